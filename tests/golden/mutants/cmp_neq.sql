SELECT name FROM singer WHERE country = 'France'
SELECT name FROM singer WHERE country <> 'France'

SELECT name FROM singer WHERE country <> 'France'
SELECT name FROM singer WHERE country = 'France'

SELECT s.name FROM singer AS s JOIN concert AS c ON c.singer_id = s.singer_id WHERE c.year = 2014
SELECT s.name FROM singer AS s JOIN concert AS c ON c.singer_id = s.singer_id WHERE c.year <> 2014

SELECT name FROM singer WHERE age = (SELECT MAX(age) FROM singer)
SELECT name FROM singer WHERE age <> (SELECT MAX(age) FROM singer)
