SELECT name FROM singer WHERE age > 20 AND height <= 1.8
SELECT name FROM singer WHERE age < 20 AND height <= 1.8
SELECT name FROM singer WHERE age > 20 AND height >= 1.8
