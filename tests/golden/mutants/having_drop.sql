SELECT country FROM singer GROUP BY country HAVING COUNT(*) > 1
SELECT country FROM singer GROUP BY country
