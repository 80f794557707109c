SELECT name FROM singer WHERE age > 20
SELECT name FROM singer

SELECT name FROM singer WHERE age > 20 AND country = 'France' AND height < 2
SELECT name FROM singer WHERE age > 20 AND country = 'France'
SELECT name FROM singer WHERE height < 2
SELECT name FROM singer WHERE age > 20 AND height < 2
SELECT name FROM singer WHERE country = 'France' AND height < 2

SELECT name FROM singer WHERE age > 20 OR country = 'Spain'
SELECT name FROM singer WHERE age > 20
SELECT name FROM singer WHERE country = 'Spain'

SELECT s.name FROM singer AS s JOIN concert AS c ON c.singer_id = s.singer_id AND c.year > 2000
SELECT s.name FROM singer AS s JOIN concert AS c ON c.singer_id = s.singer_id
SELECT s.name FROM singer AS s JOIN concert AS c ON c.year > 2000

SELECT s.name FROM singer AS s, concert AS c WHERE s.singer_id = c.singer_id
