SELECT name FROM singer WHERE age > 20
SELECT name FROM singer WHERE singer_id > 20
SELECT name FROM singer WHERE height > 20

SELECT country FROM singer GROUP BY country HAVING AVG(age) > 20
SELECT country FROM singer GROUP BY country HAVING AVG(singer_id) > 20
SELECT country FROM singer GROUP BY country HAVING AVG(height) > 20
