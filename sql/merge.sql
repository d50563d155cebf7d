-- JSON.MERGE, and paths that differ by row
SELECT redis_command('redis', 'JSON.SET', 'm:1', '$', '{"keep":1,"change":2,"drop":3,"deep":{"a":1,"b":2}}');
SELECT state, command FROM redis_json_export($$SELECT 1 AS id, '{"change":20,"drop":null,"new":[1],"deep":{"a":null}}'::json AS doc UNION ALL SELECT 2, '{"a":1,"b":null}'$$, 'm:#{id}', merge => true);
-- (by RFC 7396 a null deletes)
SELECT redis_command('redis', 'JSON.GET', 'm:1'), redis_command('redis', 'JSON.GET', 'm:2');
SELECT state FROM redis_json_export($$SELECT 1 AS id, 5 AS "keep", NULL AS new$$, 'm:#{id}', exclude => '{id}', merge => true);
SELECT redis_command('redis', 'JSON.GET', 'm:1');
SELECT state, rows_written FROM redis_json_export($$SELECT 1 AS id, 'p' || i AS part, i AS n FROM generate_series(1, 3) AS i$$, 'm:#{id}', path => '$.#{part}', exclude => '{id,part}');
SELECT redis_command('redis', 'JSON.GET', 'm:1', '$.p3');
-- a column that the path uses is not the document
SELECT state FROM redis_json_export($$SELECT 1 AS id, 'q' AS part, '{"x":1}' AS doc$$, 'm:#{id}', path => '$.#{part}', value => 'doc');
SELECT redis_command('redis', 'JSON.GET', 'm:1', '$.q');
SELECT error_of($x$SELECT redis_json_export($$SELECT 1 AS id, NULL::text AS part, 1 AS n$$, 'm:#{id}', path => '$.#{part}')$x$);
SELECT error_of($x$SELECT redis_json_export($$SELECT 1 AS id, 1 AS n$$, 'm:#{id}', path => '$.#{part}')$x$);
SELECT error_of($x$SELECT redis_json_export($$SELECT 9 AS id, 1 AS n$$, 'm:#{id}', path => '$.a.b')$x$);
SELECT error_of($x$SELECT redis_json_export($$SELECT 1 AS id, 1 AS n$$, 'm:#{id}', path => '$.no.where', merge => true)$x$);
SELECT error_of($x$SELECT redis_json_export($$SELECT 1 AS id, 1 AS n$$, 'm:#{id}', path => '$.[')$x$);
SELECT error_of($x$SELECT redis_json_export($$SELECT 1 AS id, 1 AS n$$, 'm:#{id}', merge => NULL)$x$);
SELECT redis_command('redis', 'FLUSHALL');
