SELECT avg(value) FROM boxes WHERE value > 150
SELECT avg(value) FROM boxes WHERE value > ?

SELECT t.x*1e4+t.y, 6.5E-8, 2.E3 FROM t
SELECT t.x*?+t.y, ?, ? FROM t

SELECT 'O''Brien; DROP', a FROM t WHERE b = 'x--y' /* 'q' 7 */ AND c = 8
SELECT ?, a FROM t WHERE b = ? AND c = ?

SELECT a-5, a -7, -3 FROM t WHERE b = -0.5
SELECT a-?, a -?, -? FROM t WHERE b = -?

SELECT CAST(a AS VARCHAR(20)), CAST(b AS DECIMAL(10,2)) FROM t WHERE c > 4
SELECT CAST(a AS VARCHAR(20)), CAST(b AS DECIMAL(10,2)) FROM t WHERE c > ?

SELECT CAST((a + 1) * 2 AS UNSIGNED BIG INT(8)) + 3
SELECT CAST((a + ?) * ? AS UNSIGNED BIG INT(8)) + ?

SELECT a FROM t WHERE b LIKE '50\%%' ESCAPE '\' LIMIT 10 OFFSET 5
SELECT a FROM t WHERE b LIKE ? ESCAPE ? LIMIT ? OFFSET ?

SELECT a FROM t WHERE b = 'x'; -- done ; 5
SELECT a FROM t WHERE b = ?

SELECT/* glue */a--c
SELECT a

  SELECT	a ,b   FROM   t ; ;
SELECT a ,b FROM t

SELECT x'0F', X'', 0x1F, 1_000, .5, 5., 1e+3 FROM t1 AS T2 WHERE T2.c3 = t_4
SELECT ?, ?, ?, ?, ?, ?, ? FROM t1 AS T2 WHERE T2.c3 = t_4

SELECT NULL, TRUE, false, CURRENT_DATE FROM t WHERE a IS NOT NULL
SELECT NULL, TRUE, false, CURRENT_DATE FROM t WHERE a IS NOT NULL

SELECT "name", `a 1`, [b 2] FROM singer WHERE name = "Joe ""J"" 5"
SELECT "name", `a 1`, [b 2] FROM singer WHERE name = ?

SELECT count(*) "Total 1" FROM singer AS "s 2" WHERE "s 2".name LIKE "%a%" ORDER BY "total 1"
SELECT count(*) "Total 1" FROM singer AS "s 2" WHERE "s 2".name LIKE ? ORDER BY "total 1"

WITH "c 1"("k 1") AS (SELECT "NAME" FROM singer) SELECT "k 1", "k 2" FROM "c 1"
WITH "c 1"("k 1") AS (SELECT "NAME" FROM singer) SELECT "k 1", ? FROM "c 1"

SELECT CASE WHEN name = "a" THEN "b" ELSE "c" END "label" FROM singer WHERE name IN ("x", "name")
SELECT CASE WHEN name = ? THEN ? ELSE ? END "label" FROM singer WHERE name IN (?, "name")

SELECT CAST(name AS TEXT) FROM singer WHERE name = "text" GROUP BY "rowid"
SELECT CAST(name AS TEXT) FROM singer WHERE name = ? GROUP BY "rowid"

SELECT ?1, :a, @b5, $c::(9), #d FROM t WHERE größe2 = 3 AND "ü" = 'ß'
SELECT ?1, :a, @b5, $c::(9), #d FROM t WHERE größe2 = ? AND ? = ?

SELECT name->>'$.a' FROM singer WHERE name != '10:30' AND name GLOB '*"x"--/*'
SELECT name->>? FROM singer WHERE name != ? AND name GLOB ?

SELECT 12ab, 'no end 5
SELECT 12ab, 'no end 5

