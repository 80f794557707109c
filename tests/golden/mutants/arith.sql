SELECT height * 100 - age FROM singer
SELECT height * 100 + age FROM singer
SELECT age - (height * 100) FROM singer
SELECT height / 100 - age FROM singer

SELECT SUM(age) / COUNT(*) FROM singer
SELECT SUM(age) * COUNT(*) FROM singer
SELECT COUNT(*) / SUM(age) FROM singer
