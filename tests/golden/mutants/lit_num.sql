SELECT name FROM singer WHERE age > 20 AND height < 1.85
SELECT name FROM singer WHERE age > 21 AND height < 1.85
SELECT name FROM singer WHERE age > 19 AND height < 1.85
SELECT name FROM singer WHERE age > 20 AND height < 1.95
SELECT name FROM singer WHERE age > 20 AND height < 1.75

SELECT name FROM singer WHERE age IN (0, -3)
SELECT name FROM singer WHERE age IN (1, -3)
SELECT name FROM singer WHERE age IN (-1, -3)
SELECT name FROM singer WHERE age IN (0, -4)
SELECT name FROM singer WHERE age IN (0, -2)

SELECT ROUND(AVG(height), 2) FROM singer ORDER BY 1 LIMIT 3

SELECT COUNT(*) * 100 FROM singer
SELECT COUNT(*) * 101 FROM singer
SELECT COUNT(*) * 99 FROM singer
