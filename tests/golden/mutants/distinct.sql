SELECT country FROM singer
SELECT DISTINCT country FROM singer

SELECT DISTINCT country FROM singer
SELECT country FROM singer

SELECT singer_id, name FROM singer

SELECT COUNT(*) FROM singer

SELECT country, COUNT(*) FROM singer GROUP BY country

SELECT name FROM singer WHERE singer_id IN (SELECT singer_id FROM concert)
SELECT DISTINCT name FROM singer WHERE singer_id IN (SELECT singer_id FROM concert)

SELECT name FROM singer UNION SELECT name FROM stadium
