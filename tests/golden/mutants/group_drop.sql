SELECT country, age, COUNT(*) FROM singer GROUP BY country, age
SELECT country, age, COUNT(*) FROM singer GROUP BY age
SELECT country, age, COUNT(*) FROM singer GROUP BY country

SELECT COUNT(*) FROM singer GROUP BY country
SELECT COUNT(*) FROM singer
