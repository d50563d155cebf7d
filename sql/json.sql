-- Is a text JSON?  The quick look must not say yes where PostgreSQL says no, and the answer must be PostgreSQL's.
CREATE FUNCTION is_json(t text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM t::json;
	RETURN true;
EXCEPTION WHEN OTHERS THEN
	RETURN false;
END
$$;
CREATE TABLE candidate (id serial PRIMARY KEY, doc text);
-- known ones, at the edges of the eight bytes too
INSERT INTO candidate (doc) VALUES ('1'), ('-0'), ('01'), ('-'), ('1.'), ('.5'), ('1.5e'), ('1.5e+'), ('1e5'), ('1E-05'), ('+1'), ('0x1'), ('1_000'), ('NaN'), ('Infinity'),
	('true'), ('tru'), ('truefalse'), ('nul'), ('null '), (''), ('   '), (E'\t\n\r 1 \t\n\r'), (E'\f1'), (U&'\00A01'), (U&'\FEFF1'),
	('""'), ('"'), ('"a'), ('"a\'), ('"a\"'), ('"\u12"'), ('"\u12g4"'), ('"\u00e9"'), ('"\ud800"'), ('"\u0000"'), ('"\x41"'), ('"\a"'), ('"\/\b\f\n\r\t\\\""'),
	(E'"a\tb"'), (E'"a\x01b"'), (E'"\x7f"'), (E'"a\nb"'), ('"ünïcödé €𝄞"'), ('''a'''), ('{}'), ('[]'), ('[[]]'), ('[{}]'), ('{"a":{}}'), ('{"a":1,}'), ('[1,]'), ('[,1]'),
	('{"a"}'), ('{"a":}'), ('{:1}'), ('{a:1}'), ('{"a":1 "b":2}'), ('[1 2]'), ('{"a":1}{"b":2}'), ('[1]]'), ('[1'), ('{"a":1'), ('[1}'), ('{"a":1]'), ('{"a" : 1 , "b" : [ 1 , 2 ] }'),
	('{1:2}'), ('{"a":1,"a":2}'), ('//x'), ('[1]//x'), ('[1,,2]'), ('[-]'), ('[1e]'), ('{"":""}'), ('[true,false,null,1,"x",{},[]]');
INSERT INTO candidate (doc) SELECT '"' || repeat('x', n) || c || repeat('y', m) || '"'
	FROM generate_series(0, 9) AS n, generate_series(0, 9, 3) AS m, unnest(ARRAY['\', '\"', '"', '\n', E'\n', E'\x1f', ' ', '!', '#', '[', ']', 'é', '\u00', '\u0041', '']) AS c;
INSERT INTO candidate (doc) SELECT repeat('[', n) || repeat(']', m) FROM (VALUES (499, 499), (500, 500), (500, 499), (100, 101)) AS _ (n, m);
-- and many that are one step or a few off the path
DO $$
DECLARE
	base text[] := ARRAY['{"id":12,"name":"Ada \"x\" Lovelace","tags":["a","b\\c"],"n":-1.5e+10,"deep":{"x":[{"y":null},true,false]}}',
		'[1,2.25,-3,"four",{"five":[]},[],{}]', '"just a string with an escape \u00e9 and some length to it"', '{"a":{"b":{"c":[[[0]]]}},"text":"' || repeat('long ', 20) || '"}'];
	piece text[] := ARRAY['{', '}', '[', ']', '"', ',', ':', '\', '\u', '0', '1', '9', '-', '+', '.', 'e', 'E', 't', 'true', 'null', ' ', E'\n', E'\x02', 'é', '""', '[]', '{}', '"a":', ',"b":1', '\"', '\\'];
	doc text;
	place int;
BEGIN
	PERFORM setseed(0.5);
	FOR i IN 1 .. 20000 LOOP
		doc := base[1 + floor(random() * array_length(base, 1))];
		FOR step IN 1 .. 1 + floor(random() * 3) LOOP
			place := 1 + floor(random() * length(doc));
			doc := CASE floor(random() * 3)
				WHEN 0 THEN overlay(doc PLACING '' FROM place FOR 1 + floor(random() * 3)::int)
				WHEN 1 THEN overlay(doc PLACING piece[1 + floor(random() * array_length(piece, 1))] FROM place FOR 0)
				ELSE overlay(doc PLACING piece[1 + floor(random() * array_length(piece, 1))] FROM place FOR 1) END;
		END LOOP;
		INSERT INTO candidate (doc) VALUES (doc);
	END LOOP;
END
$$;
CREATE TABLE verdict AS SELECT id, doc, is_json(doc) AS postgres FROM candidate;
SELECT count(*) FILTER (WHERE postgres) > 2000 AS many_are, count(*) FILTER (WHERE NOT postgres) > 10000 AS many_are_not FROM verdict;
SELECT v.id, v.doc, v.postgres, p.error
FROM verdict AS v JOIN redis_export_preview('SELECT id, doc FROM verdict ORDER BY id', 'x:#{id}', value => 'doc', rows => 100000) AS p ON p.row_number = v.id
WHERE v.postgres IS DISTINCT FROM (p.error IS NULL);
SELECT count(*) = (SELECT count(*) FROM verdict) AS all_rows FROM redis_export_preview('SELECT id, doc FROM verdict ORDER BY id', 'x:#{id}', value => 'doc', rows => 100000);
-- what is deeper than the parser is let go
SELECT error FROM redis_export_preview($$SELECT 1 AS id, repeat('[', 501) || repeat(']', 501) AS doc$$, 'x:#{id}', value => 'doc');
SELECT error FROM redis_export_preview($$SELECT 1 AS id, repeat('[', 100000) AS doc$$, 'x:#{id}', value => 'doc');
