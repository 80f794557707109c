SELECT CAST(SUM(age) AS REAL) / COUNT(*) FROM singer
SELECT SUM(age) / COUNT(*) FROM singer

SELECT CAST(age + 1 AS TEXT) FROM singer
SELECT (age + 1) FROM singer
