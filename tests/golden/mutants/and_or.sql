SELECT name FROM singer WHERE age > 20 AND country = 'France' AND height < 2
SELECT name FROM singer WHERE age > 20 AND country = 'France' OR height < 2
SELECT name FROM singer WHERE (age > 20 OR country = 'France') AND height < 2

SELECT name FROM singer WHERE age > 20 OR country = 'France'
SELECT name FROM singer WHERE age > 20 AND country = 'France'

SELECT s.name FROM singer AS s, concert AS c WHERE s.singer_id = c.singer_id AND c.year > 2000
