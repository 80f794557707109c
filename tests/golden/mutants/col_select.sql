SELECT name FROM singer
SELECT country FROM singer

SELECT age, country FROM singer
SELECT singer_id, country FROM singer
SELECT height, country FROM singer
SELECT age, name FROM singer

SELECT MAX(s.height) FROM singer AS s
SELECT MAX(s.singer_id) FROM singer AS s
SELECT MAX(s.age) FROM singer AS s

SELECT COUNT(DISTINCT country) FROM singer
SELECT COUNT(DISTINCT singer_id) FROM singer
SELECT COUNT(DISTINCT name) FROM singer
SELECT COUNT(DISTINCT age) FROM singer
SELECT COUNT(DISTINCT height) FROM singer
SELECT COUNT(DISTINCT born) FROM singer

SELECT COUNT(name) FROM singer
SELECT COUNT(country) FROM singer
SELECT COUNT(age) FROM singer
SELECT COUNT(height) FROM singer
SELECT COUNT(born) FROM singer

SELECT t.name FROM (SELECT name, age FROM singer) AS t
SELECT t.name FROM (SELECT country AS name, age FROM singer) AS t
SELECT t.name FROM (SELECT name, singer_id AS age FROM singer) AS t
SELECT t.name FROM (SELECT name, height AS age FROM singer) AS t

WITH old AS (SELECT name FROM singer) SELECT name FROM old
WITH old AS (SELECT country AS name FROM singer) SELECT name FROM old
