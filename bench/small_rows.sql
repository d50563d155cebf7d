-- small_rows.sql: rows of four columns, the same each time it runs. For psql, with the variable rows.
SET TIME ZONE 'UTC';
CREATE UNLOGGED TABLE small_rows AS
  SELECT id, (ARRAY['pallet', 'crate', 'drum', 'sack', 'box'])[1 + id % 5] || ' ' || substr(md5(id::text), 1, 8) AS name,
         (id * 7919 % 100003)::int AS amount, timestamp '2026-01-01' + id * interval '17.003 s' AS seen
  FROM generate_series(1::bigint, :rows) id;
-- Hint bits now, so that the first reader doesn't pay for them.
VACUUM ANALYZE small_rows;
