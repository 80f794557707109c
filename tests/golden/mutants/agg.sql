SELECT MAX(age), SUM(height) FROM singer
SELECT MIN(age), SUM(height) FROM singer
SELECT MAX(age), AVG(height) FROM singer
SELECT MAX(age), COUNT(height) FROM singer

SELECT AVG(DISTINCT age) FROM singer
SELECT SUM(DISTINCT age) FROM singer
SELECT MAX(DISTINCT age) FROM singer

SELECT MAX(age, 3) FROM singer

SELECT singer_id, COUNT(*) FROM ticket AS t JOIN concert AS c ON c.concert_id = t.concert_id GROUP BY singer_id
SELECT singer_id, SUM(t.price) FROM ticket AS t JOIN concert AS c ON c.concert_id = t.concert_id GROUP BY singer_id
SELECT singer_id, SUM(c.year) FROM ticket AS t JOIN concert AS c ON c.concert_id = t.concert_id GROUP BY singer_id

SELECT COUNT(name) FROM singer

SELECT COUNT(*) FROM (SELECT 1)
