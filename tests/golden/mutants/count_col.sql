SELECT COUNT(*) FROM singer
SELECT COUNT(singer.country) FROM singer
SELECT COUNT(singer.age) FROM singer
SELECT COUNT(singer.height) FROM singer
SELECT COUNT(singer.born) FROM singer

SELECT COUNT(country) FROM singer
SELECT COUNT(*) FROM singer

SELECT COUNT(name) FROM singer

SELECT COUNT(s.name) FROM concert AS c LEFT JOIN singer AS s ON s.singer_id = c.singer_id
SELECT COUNT(*) FROM concert AS c LEFT JOIN singer AS s ON s.singer_id = c.singer_id
