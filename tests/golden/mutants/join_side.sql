SELECT s.name, c.title FROM singer AS s JOIN concert AS c ON s.singer_id = c.singer_id
SELECT s.name, c.title FROM singer AS s LEFT JOIN concert AS c ON s.singer_id = c.singer_id

SELECT s.name, c.title FROM singer AS s LEFT JOIN concert AS c ON s.singer_id = c.singer_id
SELECT s.name, c.title FROM singer AS s JOIN concert AS c ON s.singer_id = c.singer_id

SELECT s.name FROM singer AS s JOIN concert AS c ON s.singer_id = c.singer_id WHERE c.year = 2014

SELECT c.title FROM concert AS c JOIN stadium AS s ON c.stadium_id = s.stadium_id

SELECT c.title FROM concert AS c JOIN singer AS s ON c.singer_id = s.singer_id
SELECT c.title FROM concert AS c LEFT JOIN singer AS s ON c.singer_id = s.singer_id
