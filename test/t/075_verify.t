# What redis_export_verify says: whose keys they are, which values are the same, and what it cannot read.
use strict;
use warnings;
use RedisExport::Fake;
use RedisExport::Test;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\n");

sub sql { return $node->safe_psql('postgres', $_[0]) }

$node->safe_psql('postgres', q{
	CREATE DOMAIN positive AS int CHECK (VALUE > 0);
	CREATE DOMAIN order_id AS positive;
	CREATE TABLE rows AS SELECT true AS there;
	CREATE TYPE mood AS ENUM ('sad', 'glad')});

# ---- Whose keys they are --------------------------------------------------------------------------------------------

my $uuid = '0f8fad5b-d9cb-469f-a165-70867728950e';

sub set_documents { my ($prefix, @ends) = @_; $redis->cli('JSON.SET', "$prefix$_", '$', '1') for @ends; return }

# As hexadecimal, so that any byte comes through.
sub hex_keys { my ($sql) = @_; return [ sort map { pack 'H*', $_ } split /\n/, sql("SELECT encode(convert_to(key, 'UTF8'), 'hex') FROM $sql AS key") ] }

# Of each type two values: one that the export has written, and one that others have written in just the same way. Then its row goes.
for my $type ([ 'int2', '-7', '7' ], [ 'int8', '9223372036854775807', '-1' ], [ 'order_id', '12', '13' ], [ 'uuid', $uuid, $uuid =~ s/^0/1/r ], [ 'boolean', 't', 'f' ],
	[ 'date', '2026-01-01', '2026-01-02' ], [ 'text', 'a:b', 'a' ], [ 'text', '', ' ' ], [ 'text', "a\nb*[c]", "a\nb*c" ], [ 'mood', 'sad', 'glad' ], [ 'numeric', '1.50', '1.5' ],
	[ 'timestamptz', '2026-01-01 00:00:00+00', '2026-01-01' ], [ 'float8', '1e+300', '1e300' ], [ 'text', 'é' x 3000, 'é' x 3001 ])
{
	my ($name, $own, $other) = @$type;
	subtest "a column of type $name: " . substr($own, 0, 20) => sub {
		$redis->cli('FLUSHALL');
		set_documents('p:', $other);
		sql("SET timezone = 'UTC'; DELETE FROM redis_export_definition; SELECT redis_export_define('p', \$q\$SELECT \$v\$$own\$v\$::$name AS id WHERE (SELECT there FROM rows)\$q\$, 'p:#{id}')");
		sql("SET timezone = 'UTC'; UPDATE rows SET there = true; CALL redis_export_run('p')");
		my $all = hex_keys(q{redis_scan('redis', 'p:*')});
		is(@$all, 2, 'both are there');
		is(sql("SET timezone = 'UTC'; SELECT expected, missing, different, extra, unknown FROM redis_export_verify('p')"), '1|0|0|0|1', 'one of them is unknown');
		is_deeply(hex_keys(q{redis_export_verify('p'), unnest(unknown_keys)}), [ "p:$other" ], 'that of others');
		sql('UPDATE rows SET there = false');
		my ($extra) = grep { $_ ne "p:$other" } @$all;
		is_deeply(hex_keys(q{redis_export_verify('p'), unnest(extra_keys)}), [ $extra ], 'without its row the other is extra');
		like(sql(q{CALL redis_export_run('p', prune => true, prune_limit => 1)}), qr/\|done\|0\|0\|0\|0\|1\|$/, 'and goes');
		is_deeply(hex_keys(q{redis_scan('redis', 'p:*')}), [ "p:$other" ], 'which the key of others does not');
	};
}
sql('DELETE FROM redis_export_definition');

# Of the same keys, one is in the books of another export, in whose registry it is.
subtest 'keys of other exports are not unknown' => sub {
	$redis->cli('FLUSHALL');
	sql(q{SELECT redis_export_define('orders', 'SELECT i AS id FROM generate_series(1, 3) AS i', 'order:#{id}');
		SELECT redis_export_define('lines', 'SELECT 12 AS id, i AS line FROM generate_series(1, 700) AS i', 'order:#{id}-#{line}', type => 'hash');
		CALL redis_export_run('orders'); CALL redis_export_run('lines')});
	is(sql(q{SELECT expected, missing, different, extra, unknown FROM redis_export_verify('orders')}), '3|0|0|0|0', 'orders');
	is(sql(q{SELECT expected, missing, different, extra, unknown FROM redis_export_verify('lines')}), '700|0|0|0|0', 'lines');
	$redis->cli('HDEL', 'redis_export:{lines}:keys', map { "order:12-$_" } 1 .. 600);
	is(sql(q{SELECT extra, unknown, unknown_keys FROM redis_export_verify('orders', 2)}), '0|600|{order:12-1,order:12-10}', 'what is in no books is unknown');
	$redis->cli('DEL', 'redis_export:exports');
	$redis->cli('LPUSH', 'redis_export:exports', 'x');
	like(sql_error($node, q{SELECT * FROM redis_export_verify('orders')}), qr/WRONGTYPE/, 'a registry that is none is an error');
	sql('DELETE FROM redis_export_definition');
};

# ---- Numbers ---------------------------------------------------------------------------------------------------------

# Of each kind so many; VERIFY_NUMBERS=1000000 takes some minutes.
my $numbers = $ENV{VERIFY_NUMBERS} // 20_000;

# What is told of documents or hashes: expected, missing, different, unknown.
sub verified
{
	my ($query, $template, $more) = @_;
	return sql("SELECT expected, missing, different, unknown FROM redis_export_verify(\$q\$$query\$q\$, '$template'" . ($more // '') . ')');
}

# A hundred in each document.
my %kinds = (
	'latitude and longitude' => 'random() * 360 - 180',
	'parts of a vector' => 'random() * 2 - 1',
	'real' => '(random() * 2 - 1)::real',
	'numeric of 20 digits' => q{((random() * 8e9 + 1e9)::bigint || lpad((random() * 9e9)::bigint::text, 10, '0'))::numeric},
	'numeric with a fraction' => q{((random() * 1e6)::bigint || '.' || lpad((random() * 9e18)::bigint::text, 19, '0'))::numeric},
	'numeric of any size' => q{((random() * 9e18)::bigint || 'e' || (random() * 580 - 300)::int)::numeric},
	'float8 between 1e15 and 1e16' => '1e15 + random() * 9e15',
	'numeric like 1725951662616140000.0' => q{((1e18 + random() * 8e18)::bigint || '.0')::numeric},
	'the ends of bigint' => '(CASE WHEN random() < 0.5 THEN 1 ELSE -1 END) * (9223372036854775807 - (random() * 5000)::bigint)',
	'beyond bigint' => '18446744073709551615 + 2500 - (random() * 5000)::bigint::numeric',
	'float8 of any bits' => undef);

# Any bits that are a finite number, as a table "bits".
sub make_bits
{
	my ($count) = @_;
	my @lines;
	while (@lines < $count)
	{
		my $number = unpack 'd', pack 'L2', int rand 2**32, int rand 2**32;
		push @lines, sprintf '%.17g', $number if $number - $number == 0;
	}
	sql(join "\n", 'CREATE TABLE bits (number bigserial, value float8);', 'COPY bits (value) FROM STDIN;', @lines, '\.', '');
	return;
}

make_bits($numbers);
for my $kind (sort keys %kinds)
{
	subtest "$numbers of $kind" => sub {
		$redis->cli('FLUSHALL');
		my $from = defined $kinds{$kind} ? "generate_series(1, $numbers) AS number" : 'bits';
		my $value = $kinds{$kind} // 'value';
		sql("CREATE TABLE numbers AS SELECT number / 100 AS id, array_agg($value) AS v FROM $from GROUP BY 1");
		my $rows = sql('SELECT count(*) FROM numbers');
		is(sql("SELECT rows_written FROM redis_json_export('SELECT * FROM numbers', 'n:#{id}')"), $rows, 'written');
		is(verified('SELECT * FROM numbers', 'n:#{id}'), "$rows|0|0|0", 'none is different');
		sql('DROP TABLE numbers');
	};
}

subtest 'vectors of 768 float8' => sub {
	$redis->cli('FLUSHALL');
	my $rows = int($numbers / 768) + 1;
	sql("CREATE TABLE vectors AS SELECT n / 768 AS id, array_agg(random() * 2 - 1) AS v FROM generate_series(0, $rows * 768 - 1) AS n GROUP BY 1");
	sql(q{SELECT redis_json_export('SELECT * FROM vectors', 'n:#{id}')});
	is(verified('SELECT * FROM vectors', 'n:#{id}'), "$rows|0|0|0", 'none is different');
	sql('UPDATE vectors SET v[500] = v[500] + 1e-9 WHERE id = 3');
	is(verified('SELECT * FROM vectors', 'n:#{id}'), "$rows|0|1|0", 'but one of them that was changed');
};

# What was written, and what the row is now.
my @pairs = (
	[ '9200000000000000001', '9200000000000000002' ], [ '18446744073709551615', '18446744073709551614' ], [ '9223372036854775807', '9223372036854775806' ],
	[ '-9223372036854775808', '-9223372036854775807' ], [ '9223372036854775807', '-9223372036854775808' ], [ '0.1', '0.1000001' ], [ '0.1', '0.10000000000001' ],
	[ '1e300', '1e301' ], [ '1', '-1' ], [ '0.5', '-0.5' ], [ '5e-324', '1e-300' ], [ '1', '"1"' ], [ '1', '"i1"' ], [ '0.5', '"d0"' ], [ '"a"', '"b"' ], [ '"\u0000"', '"\uffff"' ], [ '"a\u0000"', '"a"' ],
	[ '"\ud83d\ude00"', '"\ud83d\ude01"' ], [ '"\n"', '"n"' ], [ '"\\\\n"', '"\n"' ], [ '""', 'null' ], [ 'true', 'false' ], [ '[]', '{}' ], [ '[1,2]', '[2,1]' ], [ '[0.5,1.5]', '[1.5,0.5]' ],
	[ '[0.5,[1.5]]', '[[0.5],1.5]' ], [ '{"a":0.5,"b":1.5}', '{"a":1.5,"b":0.5}' ], [ '{"a":1}', '{"b":1}' ], [ '{"a":1,"a":2}', '{"a":1}' ]);
my @same = (
	[ '{"a":0.5,"b":1.5}', '{"b":1.5,"a":0.5}' ], [ '{"a":0.5,"a":1.5}', '{"a":1.5}' ], [ '1e2', '100.0' ], [ '1E2', '1.0e+2' ], [ '-0', '-0.0' ], [ '"\u00e9\ud83d\ude00\/"', '"é😀/"' ], [ ' [ 1 , 2 ] ', '[1,2]' ],
	[ '12345678901234567890123', '12345678901234567890124' ], [ '0.1', '0.10000000000000001' ], [ '-0.0', '0.0' ]);

subtest 'what is different, and what is the same' => sub {
	$redis->cli('FLUSHALL');
	my $table = sub {
		my ($side) = @_;
		my $id = 0;
		return 'SELECT * FROM (VALUES ' . join(', ', map { '(' . ++$id . ", \$j\$$_->[$side]\$j\$::json)" } @pairs, @same) . ') AS _ (id, doc)';
	};
	my $export = $table->(0);
	is(sql("SELECT rows_written FROM redis_json_export(\$q\$$export\$q\$, 'p:#{id}')"), @pairs + @same, 'written');
	my $now = $table->(1);
	is(verified($export, 'p:#{id}'), @pairs + @same . '|0|0|0', 'as they were');
	my $keys = sql("SELECT array_to_string(different_keys, ' ') FROM redis_export_verify(\$q\$$now\$q\$, 'p:#{id}', examples => 1000)");
	is($keys, join(' ', sort map { "p:$_" } 1 .. @pairs), 'what is told');
};

# A string with characters written in any way that JSON allows, and spaces where they may be.
my @characters = ('a', 'z', '0', ' ', '%', '/', '\/', '\"', '\\\\', '\n', '\t', '\u0000', '\u0041', '\u00e9', 'é', '€', '\u20ac', '\ud83d\ude00', '😀', '\u001f', '\uffff', '\u007F', 'u0041', 's', 'd0', 'i1');
sub some { return $_[ int rand @_ ] }
sub space { return some('', '', '', ' ', "\n") }
sub random_string { return '"' . join('', map { some(@characters) } 1 .. int rand 5) . '"' }

sub random_json
{
	my ($depth) = @_;
	my $kind = int rand($depth > 3 ? 5 : 8);
	return random_string() if $kind < 2;
	return some('true', 'false', 'null') if $kind == 2;
	return some(0, 1, -1, 10, '1.0', '1e1', '1E+2', '-0', '-0.0', '9223372036854775808', '18446744073709551616', '123456789012345678901234567890', '1e-7', int rand 1e9) if $kind == 3;
	return sprintf '%.17g', (rand() - 0.5) * 10**(int rand 40) if $kind == 4;
	return '[' . join(',', map { space() . random_json($depth + 1) . space() } 1 .. int rand 4) . ']' if $kind == 5;
	return '{' . join(',', map { space() . random_string() . space() . ':' . space() . random_json($depth + 1) . space() } 1 .. int rand 5) . '}';
}

subtest 'any documents' => sub {
	my $seed = $ENV{VERIFY_SEED} // int time;
	srand $seed;
	diag "VERIFY_SEED=$seed";
	$redis->cli('FLUSHALL');
	sql('CREATE TABLE documents (id serial, doc json); INSERT INTO documents (doc) VALUES ' . join ', ', map { '($j$' . random_json(0) . '$j$)' } 1 .. 2000);
	is(sql(q{SELECT rows_written FROM redis_json_export('SELECT * FROM documents', 'a:#{id}')}), 2000, 'written');
	is(sql(q{SELECT different_keys FROM redis_export_verify('SELECT * FROM documents', 'a:#{id}')}), '{}', 'none is different');
	is(sql(q{SELECT different FROM redis_export_verify('SELECT id, json_build_array(doc) AS doc FROM documents', 'a:#{id}')}), 2000, 'all are, in an array');
};

# What no Redis says.
subtest 'documents that are none' => sub {
	my @bad = ('', '"', '"a', '"\\', '"\\u', '"\\u12', '"\\u12"', '"\\ud83d\\u', '"\\ud83d\\u00', '[', '{"a"', 'x', "[1\0]", "\"\0", '1 2', '\\', '[1,', "\xff", "\"\xff\"");
	my $fake = RedisExport::Fake->new(sub {
		my ($fake, $client, @words) = @_;
		return "*2\r\n\$1\r\n0\r\n*0" if $words[0] eq 'SCAN';
		return '*0' if $words[0] eq 'SMEMBERS';
		my ($number) = $words[1] =~ /^b:(\d+):/;
		return '$' . length($bad[$number]) . "\r\n$bad[$number]";
	});
	add_server($node, $fake, name => 'fake', cluster => 'false');
	for my $number (0 .. $#bad)
	{
		my ($status, $out, $err) = $node->psql('postgres', "SELECT different FROM redis_export_verify('SELECT 1 AS id, ''{}'' AS doc', 'b:$number:#{id}', server => 'fake')");
		ok($status == 0 ? $out =~ /^[01]$/ : $err =~ /ERROR:/ && $err !~ /terminated|closed/, "document $number") or diag "$status $out $err";
	}
};

# ---- Rows that cannot be written -------------------------------------------------------------------------------------

# expected|missing|different|unknown|unwritable|unknown_keys|unwritable_keys
sub found
{
	my ($query, $template, $more) = @_;
	return sql("SELECT expected, missing, different, unknown, unwritable, unknown_keys, unwritable_keys FROM redis_export_verify(\$q\$$query\$q\$, '$template'" . ($more // '') . ')');
}

subtest 'rows that cannot be written' => sub {
	$redis->cli('FLUSHALL');
	my $rows = sub { return "SELECT * FROM (VALUES (1, '{}'), (2, '$_[0]'), (3, '{}'), (4, '{}'), (5, '{}')) AS _ (id, doc)" };
	sql('SELECT redis_json_export($q$' . $rows->('{}') . '$q$, \'u:#{id}\')');
	is(found($rows->('{}'), 'u:#{id}'), '5|0|0|0|0|{}|{}', 'all can');
	is(found($rows->('no JSON'), 'u:#{id}'), '4|0|0|0|1|{}|{u:2}', 'one cannot: what Redis holds of it is not too much');
	$redis->cli('DEL', 'u:2');
	is(found($rows->('no JSON'), 'u:#{id}'), '4|0|0|0|1|{}|{u:2}', 'nor is it missing');
	$redis->cli('JSON.SET', 'u:7', '$', '1');
	is(found($rows->('no JSON') . q{ UNION ALL VALUES (NULL, '{}'), (8, 'none')}, 'u:#{id}'), '4|0|0|1|3|{u:7}|{u:2,u:8}', 'without a key it is counted');
	is(found($rows->('no JSON') . q{ UNION ALL VALUES (NULL, '{}'), (8, 'none')}, 'u:#{id}', ', examples => 1'), '4|0|0|1|3|{u:7}|{u:2}', 'examples');
	is(found($rows->('{}') . q{ UNION ALL VALUES (7, '{}'), (1, 'none'), (1, '{}'), (2, '[]'), (2, 'none')}, 'u:#{id}'), '6|1|1|0|0|{}|{}', 'of one key, those count that can be written');
	is(found(q{SELECT 1 AS a, NULL::int AS b, '{}'::json AS doc}, 'u:#{a}:#{b}'), '0|0|0|5|1|{u:1,u:3,u:4,u:5,u:7}|{}', 'a part of a key is none');
};

subtest 'hashes that cannot be written' => sub {
	$redis->cli('FLUSHALL');
	my $rows = sub { return "SELECT id, v FROM (VALUES (1, '{1}'::float8[]), (2, '$_[0]'), (3, '{2}')) AS _ (id, v)" };
	sql('SELECT redis_hash_export($q$' . $rows->('{3}') . '$q$, \'h:#{id}\')');
	is(found($rows->('{3}'), 'h:#{id}', q{, type => 'hash'}), '3|0|0|0|0|{}|{}', 'all can');
	is(found($rows->('{}'), 'h:#{id}', q{, type => 'hash'}), '2|0|0|0|1|{}|{h:2}', 'no vector');
	sql(q{SELECT redis_export_define('expiring', $$SELECT 1 AS id, 'nan'::float8 AS ttl$$, 'h:#{id}', type => 'hash', ttl_column => 'ttl')});
	is(sql(q{SELECT expected, missing, different, extra, unknown, unwritable, unwritable_keys FROM redis_export_verify('expiring')}), '0|0|0|0|2|1|{h:1}', 'no expiry');
	sql('DELETE FROM redis_export_definition');
	is(found(q{SELECT 1 AS id, NULL::int AS v}, 'h:#{id}', q{, type => 'hash', exclude => '{id}'}), '0|0|0|2|1|{h:2,h:3}|{h:1}', 'no fields');
	is(found(q{SELECT 1 AS id, NULL::int AS v}, 'h:#{id}', q{, type => 'hash', exclude => '{id}', replace => true}), '0|0|1|2|0|{h:2,h:3}|{}', 'whose key would be deleted');
};

# ---- Keys of our own -------------------------------------------------------------------------------------------------

subtest 'keys in which exports keep books' => sub {
	$redis->cli('FLUSHALL');
	sql(q{SELECT redis_export_define('r', 'SELECT i AS id, now() AS at FROM generate_series(1, 50) AS i', 'r:#{id}', type => 'hash', watermark_column => 'at'); CALL redis_export_run('r')});
	$redis->cli('SET', 'redis_exporter', 'x');
	cmp_ok(redis_keys_count($redis, 'redis_export:*'), '>=', 2, 'are there');
	is(sql(q{SELECT count(*), count(*) FILTER (WHERE key LIKE 'redis\_export:%') FROM redis_scan('redis') AS key}), '51|0', 'redis_scan leaves them out');
	is(sql(q{SELECT count(*), count(*) FILTER (WHERE key LIKE 'redis\_export:%') FROM redis_hash_scan('redis')}), '50|0', 'redis_hash_scan, too');
	is(sql(q{SELECT * FROM redis_scan('redis', 'redis_export*')}), 'redis_exporter', 'a pattern that fits them by chance');
	is(sql(q{SELECT count(*) FROM redis_scan('redis', 'redis_export:*')}), redis_keys_count($redis, 'redis_export:*'), 'who asks for them gets them');
	is(sql(q[SELECT count(*) FROM redis_hash_scan('redis', 'redis_export:{r}*')]), 2, 'with their values');
	my $unknown = sub { my ($template) = @_; return sql("SELECT unknown, unknown_keys FROM redis_export_verify('SELECT ''x''::text AS id WHERE false', '$template', type => 'hash', examples => 1)") };
	is($unknown->('#{id}'), '1|{redis_exporter}', 'they are not unknown');
	is($unknown->('redis_export:#{id}'), '0|{}', 'by no template');
	is($unknown->('redis_export:{#{id}'), '0|{}', 'not by this one either');
	is(sql(q{SELECT expected, missing, different, extra, unknown FROM redis_export_verify('r')}), '50|0|50|0|0', 'nor by name');
	sql('DELETE FROM redis_export_definition');
};

# ---- What is no text ------------------------------------------------------------------------------------------------

# A database in which there is no euro sign.
sql(q{CREATE DATABASE latin1 ENCODING 'LATIN1' TEMPLATE template0});
$node->safe_psql('latin1', 'CREATE EXTENSION redis_export; CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (host \'' . $redis->host . '\', port \'' . $redis->port . '\')');
$ENV{PGCLIENTENCODING} = 'UTF8';

# Runs it in a database, and returns what psql prints, or its error as "SQLSTATE: message|detail|hint".
sub in
{
	my ($database, $query) = @_;
	my ($status, $out, $err) = $node->psql($database, "\\set VERBOSITY verbose\n$query");
	return $out if $status == 0;
	return join '|', $err =~ /ERROR:  (.*)/, $err =~ /DETAIL:  (.*)/, $err =~ /HINT:  (.*)/;
}

subtest 'documents that cannot be read' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('JSON.SET', 'd:1', '$', '{"a":"é"}');
	my $scan = q{SELECT count(*), string_agg(key, ' ' ORDER BY key) FROM redis_json_scan('redis', 'd:*', skip_invalid => %s)};
	my ($all, $some) = (sprintf($scan, 'false'), sprintf($scan, 'true'));
	is(in('latin1', $all), '1|d:1', 'what can be converted is');
	is(in('latin1', q{SELECT document->>'a' FROM redis_json_scan('redis')}), 'é', 'so it is');
	$redis->cli('JSON.SET', 'd:2', '$', '{"a":"€"}');
	is(in('latin1', $all), '22P05: the document of key "d:2" cannot be read as jsonb|It holds what is no text in the encoding of this database.|With skip_invalid => true such keys are left out.',
		'what cannot is an error');
	is(in('latin1', $some), '1|d:1', 'or left out, if so asked for');
	is(in('postgres', $all), '2|d:1 d:2', 'elsewhere it can');
	for my $bad ('\u0000', 'a\\\\\\\\\u0000')
	{
		sql(qq{SELECT redis_json_export(\$q\$SELECT 3 AS id, '{"a":"$bad"}'::json AS doc\$q\$, 'd:#{id}')});
		is(in('postgres', $all), '22P05: the document of key "d:3" cannot be read as jsonb|It holds \u0000, or another escape that jsonb does not take.|With skip_invalid => true such keys are left out.',
			"$bad, which an export of json writes, is an error");
		is(in('postgres', $some), '2|d:1 d:2', 'or left out');
		is(in('postgres', q{SELECT missing + different FROM redis_export_verify($q$SELECT 3 AS id, '} . qq({"a":"$bad"}) . q{'::json AS doc$q$, 'd:#{id}')}), 0, 'verify reads it');
	}
	sql(q{SELECT redis_json_export($q$SELECT 3 AS id, '{"a":"\\\\u0000 \\ud83d\\ude00 \\t"}'::json AS doc$q$, 'd:#{id}')});
	is(in('postgres', $all), '3|d:1 d:2 d:3', 'a backslash before u0000 is none of it');
	is(in('postgres', q{SELECT count(*) FROM redis_json_scan('redis', 'd:*', '$.a')}), 3, 'nor with a path');
};

subtest 'a verification in LATIN1' => sub {
	$redis->cli('FLUSHALL');
	my $query = q{SELECT 1 AS id, '{ "b":1.50, "a":"\u20ac\u00e9é", "\ud83d\ude00":"\u0000" }'::json AS doc};
	my $verify = "SELECT expected, missing, different, unknown FROM redis_export_verify(\$q\$$query\$q\$, 'v:#{id}')";
	in('latin1', "SELECT redis_json_export(\$q\$$query\$q\$, 'v:#{id}')");
	is(in('latin1', $verify), '1|0|0|0', 'escapes of what it lacks are the same');
	$redis->cli('JSON.SET', 'v:1', '$.a', '"x"');
	is(in('latin1', $verify), '1|0|1|0', 'and another text is not');
};

subtest 'hashes and keys that are no text' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('HSET', 'h:1', 'f', '€', 'é', '1');
	is(in('latin1', q{SELECT fields->>'f', fields->>'é' FROM redis_hash_scan('redis')}), '\xe282ac|1', 'a field is told in hexadecimal');
	is(in('latin1', q{SELECT redis_command('redis', 'HGET', 'h:1', 'f')}), '"\\\\xe282ac"', 'by redis_command, too');
	$redis->cli('HSET', 'h:€', 'f', '1');
	for my $function (qw(redis_scan redis_hash_scan))
	{
		like(in('latin1', "SELECT count(*) FROM $function('redis')"), qr/^22P05: key "h:.*" is no text in the encoding of this database\|With skip_invalid/, "a key is an error: $function");
		is(in('latin1', "SELECT count(*) FROM $function('redis', skip_invalid => true)"), 1, 'or left out');
	}
};

done_testing;
