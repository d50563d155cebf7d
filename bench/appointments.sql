-- bench/appointments.sql: the documents of `make demo` and of bench/json, in the table appointment_json_benchmark. Fields and
-- sizes are those of the published RIOT-X benchmark "PostgreSQL JSON Benchmark": 4,811 bytes on the average of a million, of
-- which 3,900 are one long word; the first 90,000 appointments belong to organisation 42, the others to 1,690 of them.
--
--   psql -v docs=100000 -f bench/appointments.sql        -v logged=on: through the write-ahead log, for a replica to have them
--
-- The search index for them is bench/appointments_index.sql.
\set ON_ERROR_STOP on
\if :{?docs}
\else
  \set docs 100000
\endif
\if :{?logged}
\else
  \set logged off
\endif
\if :logged
  \set persistence ''
\else
  \set persistence UNLOGGED
\endif

SET client_min_messages = warning;
DROP TABLE IF EXISTS appointment_json_benchmark;
RESET client_min_messages;

CREATE :persistence TABLE appointment_json_benchmark (
	appointment_id bigint PRIMARY KEY,
	org_id         integer NOT NULL,
	doc            text NOT NULL
);

INSERT INTO appointment_json_benchmark
SELECT n, org_id, format(
	'{"appointmentId": %1$s, "orgId": %2$s, "status": "%3$s", "startTime": "%4$s", "endTime": "%5$s", '
	'"referenceNumber": "REF-%6$s", '
	'"createdBy": {"id": %7$s, "name": "Created User %7$s", "email": "created%7$s@example.com"}, '
	'"updatedBy": {"id": %7$s, "name": "Updated User %7$s", "email": "updated%7$s@example.com"}, '
	'"dock": {"id": %8$s, "name": "Dock %8$s", "doorNumber": "%9$s"}, '
	'"warehouse": {"id": %10$s, "name": "Warehouse %10$s", "timezone": "America/Chicago"}, '
	'"loadType": {"id": %11$s, "name": "Load Type %11$s"}, '
	'"carrier": {"id": %12$s, "name": "Carrier User %12$s", "email": "carrier%12$s@example.com"}, '
	'"company": {"id": %13$s, "name": "Company %13$s", "scac": "SC%14$s"}, '
	'"customForm": {"id": %15$s, "templateId": %16$s, "answers": ['
	'{"field": "po", "value": "PO-%1$s"}, {"field": "temperature", "value": "%17$s"}]}, '
	'"customFields": {"priority": %18$s, "searchText": "%19$s"}}',
	n, org_id, status, to_char(starts, rfc3339), to_char(starts + interval '2 hours', rfc3339),
	to_char(n, 'FM000000000000'), n % 50000, n % 25000, n % 400, n % 5000, n % 500, n % 80000, n % 15000,
	to_char(n % 9999, 'FM0000'), n % 200000, n % 250, n % 80, n % 10, left(repeat(md5('search text ' || n), 122), 3900))
FROM generate_series(1, :docs) AS n
CROSS JOIN LATERAL (
	SELECT CASE WHEN n <= 90000 THEN 42 ELSE n % 1690 + 1 END AS org_id,
		CASE n % 5 WHEN 0 THEN 'scheduled' WHEN 1 THEN 'checked_in' WHEN 2 THEN 'loaded' WHEN 3 THEN 'cancelled' ELSE 'completed' END AS status,
		timestamp '2026-01-01' + n % 63072000 * interval '1 second' AS starts,
		'YYYY-MM-DD"T"HH24:MI:SS"Z"' AS rfc3339
) AS appointment;
