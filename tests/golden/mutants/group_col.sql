SELECT COUNT(*) FROM singer GROUP BY country
SELECT COUNT(*) FROM singer GROUP BY name

SELECT s.name, COUNT(*) FROM singer AS s JOIN concert AS c ON s.singer_id = c.singer_id GROUP BY c.singer_id
SELECT s.name, COUNT(*) FROM singer AS s JOIN concert AS c ON s.singer_id = c.singer_id GROUP BY c.concert_id
SELECT s.name, COUNT(*) FROM singer AS s JOIN concert AS c ON s.singer_id = c.singer_id GROUP BY c.year
SELECT s.name, COUNT(*) FROM singer AS s JOIN concert AS c ON s.singer_id = c.singer_id GROUP BY c.stadium_id
SELECT s.name, COUNT(*) FROM singer AS s JOIN concert AS c ON s.singer_id = c.singer_id GROUP BY s.name
