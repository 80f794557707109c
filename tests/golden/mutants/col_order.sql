SELECT name FROM singer ORDER BY age
SELECT name FROM singer ORDER BY singer_id
SELECT name FROM singer ORDER BY height

SELECT name, age FROM singer ORDER BY 2
SELECT name, age FROM singer ORDER BY 1
