SELECT name, RANK() OVER (PARTITION BY country ORDER BY age) FROM singer
SELECT name, RANK() OVER (PARTITION BY name ORDER BY age) FROM singer
SELECT name, RANK() OVER (PARTITION BY country ORDER BY singer_id) FROM singer
SELECT name, RANK() OVER (PARTITION BY country ORDER BY height) FROM singer
