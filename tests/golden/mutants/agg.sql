SELECT MAX(age), SUM(height) FROM singer
SELECT MIN(age), SUM(height) FROM singer
SELECT MAX(age), AVG(height) FROM singer
SELECT MAX(age), COUNT(height) FROM singer

SELECT AVG(DISTINCT age) FROM singer
SELECT SUM(DISTINCT age) FROM singer
SELECT MAX(DISTINCT age) FROM singer

SELECT MAX(age, 3) FROM singer
