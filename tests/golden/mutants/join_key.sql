SELECT s.name FROM singer AS s JOIN stadium AS t ON s.name = t.name
SELECT s.name FROM singer AS s JOIN stadium AS t ON s.country = t.name

SELECT s.name FROM singer AS s JOIN concert AS c ON s.singer_id = c.singer_id
SELECT s.name FROM singer AS s JOIN concert AS c ON s.age = c.singer_id
SELECT s.name FROM singer AS s JOIN concert AS c ON s.height = c.singer_id
SELECT s.name FROM singer AS s JOIN concert AS c ON s.singer_id = c.concert_id
SELECT s.name FROM singer AS s JOIN concert AS c ON s.singer_id = c.year
SELECT s.name FROM singer AS s JOIN concert AS c ON s.singer_id = c.stadium_id
