SELECT name FROM singer UNION SELECT name FROM stadium
SELECT name FROM singer UNION ALL SELECT name FROM stadium
SELECT name FROM singer INTERSECT SELECT name FROM stadium
SELECT name FROM singer EXCEPT SELECT name FROM stadium

SELECT name FROM singer EXCEPT SELECT name FROM stadium ORDER BY name
SELECT name FROM singer INTERSECT SELECT name FROM stadium ORDER BY name
SELECT name FROM singer UNION SELECT name FROM stadium ORDER BY name
