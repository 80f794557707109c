SELECT name FROM singer WHERE age BETWEEN 20 AND 30
SELECT name FROM singer WHERE (age > 20 AND age < 30)
SELECT name FROM singer WHERE age >= 20
SELECT name FROM singer WHERE age <= 30
