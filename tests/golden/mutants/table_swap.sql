SELECT COUNT(*) FROM ticket
SELECT COUNT(*) FROM concert AS ticket

SELECT name FROM stadium
SELECT name FROM singer AS stadium
SELECT name FROM ticket AS stadium

SELECT c.title FROM concert AS c JOIN stadium AS s ON c.stadium_id = s.stadium_id

SELECT name FROM adult
