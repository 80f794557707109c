SELECT title FROM concert WHERE year = 2014
SELECT title FROM concert WHERE year >= 2014
SELECT title FROM concert WHERE year <= 2014

SELECT title FROM concert WHERE held = '2014-05-01'
SELECT title FROM concert WHERE held >= '2014-05-01'
SELECT title FROM concert WHERE held <= '2014-05-01'

SELECT name FROM singer WHERE country = 'France'
