SELECT country, age, COUNT(*) FROM singer GROUP BY country, age
SELECT country, age, COUNT(*) FROM singer GROUP BY age
SELECT country, age, COUNT(*) FROM singer GROUP BY country

SELECT name, COUNT(*) FROM singer GROUP BY singer_id, name
SELECT name, COUNT(*) FROM singer GROUP BY name

SELECT COUNT(*) FROM singer GROUP BY country
SELECT COUNT(*) FROM singer
