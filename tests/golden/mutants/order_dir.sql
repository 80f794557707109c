SELECT name FROM singer ORDER BY age DESC, name
SELECT name FROM singer ORDER BY age ASC, name
SELECT name FROM singer ORDER BY age DESC, name DESC

SELECT name FROM (SELECT name FROM singer ORDER BY age)

SELECT name FROM (SELECT name FROM singer ORDER BY age LIMIT 3)
SELECT name FROM (SELECT name FROM singer ORDER BY age DESC LIMIT 3)
