SELECT name FROM singer WHERE age > 20 AND height <= 1.8
SELECT name FROM singer WHERE age >= 20 AND height <= 1.8
SELECT name FROM singer WHERE age > 20 AND height < 1.8

SELECT country FROM singer GROUP BY country HAVING COUNT(*) >= 2
SELECT country FROM singer GROUP BY country HAVING COUNT(*) > 2
