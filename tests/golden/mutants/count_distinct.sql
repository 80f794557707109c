SELECT COUNT(country) FROM singer
SELECT COUNT(DISTINCT country) FROM singer

SELECT COUNT(DISTINCT country) FROM singer
SELECT COUNT(country) FROM singer

SELECT COUNT(singer_id) FROM singer

SELECT COUNT(*) FROM singer
SELECT COUNT(DISTINCT singer.name) FROM singer
SELECT COUNT(DISTINCT singer.country) FROM singer
SELECT COUNT(DISTINCT singer.age) FROM singer
SELECT COUNT(DISTINCT singer.height) FROM singer
SELECT COUNT(DISTINCT singer.born) FROM singer
