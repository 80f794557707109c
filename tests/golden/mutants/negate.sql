SELECT name FROM singer WHERE country IN ('France', 'Spain')
SELECT name FROM singer WHERE NOT (country IN ('France', 'Spain'))

SELECT name FROM singer WHERE singer_id NOT IN (SELECT singer_id FROM concert)
SELECT name FROM singer WHERE singer_id IN (SELECT singer_id FROM concert)

SELECT name FROM singer WHERE name LIKE 'A%'
SELECT name FROM singer WHERE NOT (name LIKE 'A%')

SELECT name FROM singer WHERE name NOT LIKE 'A%'
SELECT name FROM singer WHERE name LIKE 'A%'

SELECT name FROM singer WHERE country IS NOT NULL
SELECT name FROM singer WHERE country IS NULL

SELECT name FROM singer AS s WHERE EXISTS (SELECT 1 FROM concert AS c WHERE c.singer_id = s.singer_id)
SELECT name FROM singer AS s WHERE NOT EXISTS(SELECT 1 FROM concert AS c WHERE c.singer_id = s.singer_id)
