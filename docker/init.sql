-- What README.md types first, with the Redis that is beside this PostgreSQL. Runs once, when the database is made.
CREATE EXTENSION redis_export;
CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (host 'redis', port '6379');

CREATE TABLE people (id int PRIMARY KEY, name text, born date, city text, changed_at timestamptz DEFAULT now());
INSERT INTO people SELECT i, 'Ada ' || i, date '1960-01-01' + i, 'London' FROM generate_series(1, 1000) AS i;
INSERT INTO people VALUES (1001, 'Bob', '1990-10-30', NULL);
