# What a command does is decided by the words that are sent, those from columns included: whether it may be sent at all, whether it may
# be sent again when its answer is lost, and which answer says that nothing was written.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Proxy;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis);
$node->safe_psql('postgres', q{ALTER SERVER redis OPTIONS (ADD timeout '3')});

# The export of a query by a command, as SQL.
sub command_sql
{
	my ($query, $words, %arguments) = @_;
	my $array = join ', ', map { "'" . s/'/''/gr . "'" } @$words;
	my $more = join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
	return "SELECT state, rows_written, rows_failed, rows_in_doubt FROM redis_command_export(\$query\$$query\$query\$, ARRAY[$array]$more)";
}

sub export
{
	my ($status, $out, $err) = $node->psql('postgres', command_sql(@_));
	return $status ? $err : $out;
}

# The failed rows of the newest job.
sub failures
{
	return $node->safe_psql('postgres',
		"SELECT string_agg(row_number || ': ' || message, E'\\n' ORDER BY row_number) FROM redis_export_failures((SELECT max(job) FROM redis_export_progress))");
}

my %ignore = (on_error => q{'ignore'});

subtest 'commands that change the connection' => sub {
	is(export(q{SELECT * FROM (VALUES (1, 'ID', NULL), (2, 'REPLY', 'SKIP'), (3, 'INFO', NULL), (4, E'reply', 'OFF'), (5, 'ID', NULL)) AS v (i, x, y)},
			[ 'CLIENT', '#{x}', '#{y}' ], %ignore, on_null => q{'skip'}), 'done|0|2|0', 'CLIENT with a column: two rows are refused, three have a null');
	is(failures, "2: cannot send CLIENT REPLY with redis_command_export\n4: cannot send CLIENT REPLY with redis_command_export", 'these two');
	is(export(q{SELECT ARRAY['REPLY', 'OFF'] AS a UNION ALL SELECT ARRAY['ID']}, [ 'CLIENT', '#{a}' ], %ignore), 'done|1|1|0', 'the same as an array');
	is(export(q{SELECT 'RE' AS a}, [ 'CLIENT', '#{a}PLY', 'OFF' ], %ignore), 'done|0|1|0', 'and put together');
	is(export(q{SELECT '\x5245504c5900'::bytea AS a}, [ 'CLIENT', '#{a}', 'OFF' ], %ignore), 'done|0|1|0', 'a zero byte behind it does not hide it');
	is(export(q{SELECT 'DEBUG' AS a}, [ 'SCRIPT', '#{a}', 'YES' ], %ignore), 'done|0|1|0', 'SCRIPT DEBUG');
	like(sql_error($node, command_sql('SELECT 1 AS a', [ 'CLIENT', $_, 'x' ])), qr/^ERROR:  cannot send CLIENT \U$_\E with redis_command_export\nDETAIL/, "CLIENT $_")
		for qw(REPLY TRACKING SETNAME SETINFO caching NO-TOUCH CAPA IMPORT-SOURCE);
	like(sql_error($node, "SELECT redis_command('redis', $_)"), qr/^ERROR:  cannot send CLIENT REPLY with redis_command\n/, "redis_command: $_")
		for q{'client', 'reply', 'off'}, q{VARIADIC ARRAY['CLIENT', 'REPLY', 'OFF']}, q{'CLIENT'::bytea, '\x5245504c5900'::bytea, 'OFF'};
	like($node->safe_psql('postgres', "SELECT redis_command('redis', 'CLIENT', 'INFO')"), qr/ cmd=client/, 'what is harmless is sent');
};

# In the worker it would hang.
subtest 'commands that hold up the rows behind them' => sub {
	my %short = (%ignore, retry_timeout => q{'5 s'});
	is(export(q{SELECT 'BLOCK' AS b}, [ 'XREAD', '#{b}', '0', 'STREAMS', 's', '$' ], %short), 'done|0|1|0', 'XREAD with a column');
	like(failures, qr/^1: cannot export with XREAD BLOCK$/, 'says why');
	is(export(q{SELECT ARRAY['COUNT', '1', 'block', '0'] AS b}, [ 'XREAD', '#{b}', 'STREAMS', 's', '$' ], %short), 'done|0|1|0', 'with an array');
	is(export(q{SELECT 'BLOCK' AS b}, [ 'XREAD', 'COUNT', '1', 'STREAMS', '#{b}', '0' ], %short), 'done|1|0|0', 'a stream of that name is no option');
	is(export(q{SELECT 'SLEEP' AS b}, [ 'DEBUG', '#{b}', '0' ], %short), 'done|0|1|0', 'DEBUG SLEEP');
	is(export(q{SELECT 'PAUSE' AS b}, [ 'CLIENT', '#{b}', '1' ], %short), 'done|0|1|0', 'CLIENT PAUSE');
	like(sql_error($node, command_sql('SELECT 1 AS a', $_)), qr/^ERROR:  cannot export with $_->[0]\b.*\nDETAIL/, "@$_")
		for [ 'WAIT', '1', '0' ], [ 'SHUTDOWN' ], [ 'REPLICAOF', 'NO', 'ONE' ], [ 'FAILOVER' ], [ 'CLIENT', 'PAUSE', '1' ],
		[ 'XREADGROUP', 'GROUP', 'g', 'c', 'block', '0', 'STREAMS', 's', '>' ];
};

# Redis has carried the command out, and its answer is lost: what does it hold then? The proxy is given on what byte of which row.
sub cut
{
	my ($query, $words, $marker, %arguments) = @_;
	my $proxy = RedisExport::Proxy->new($redis, swallow => $marker);
	my $name = 'cut_' . ++(our $cuts);
	add_server($node, $proxy, name => $name);
	my ($out) = $node->psql('postgres', command_sql($query, $words, server => "'$name'", %arguments));
	my $job = job($node);
	ledger_ok($node);
	return "$job->{state}|$job->{rows_written}|$job->{rows_failed}|$job->{rows_in_doubt}";
}

subtest 'after a cut between a write and its answer' => sub {
	$redis->cli('JSON.SET', 'k', '$', '{"items":[1,2,3],"m":{"a":1}}');
	is(cut(q{SELECT 'mark' AS x}, [ 'JSON.DEL', 'k', '$.items[0]' ], 'items'), 'failed|0|0|1', 'JSON.DEL of an element is not repeated');
	is($redis->cli('JSON.GET', 'k', '$.items'), '[[2,3]]', 'one has gone');
	is(cut(q{SELECT 'items[0]' AS x}, [ 'JSON.DEL', 'k', '$.#{x}' ], 'items'), 'failed|0|0|1', 'the same from a column');
	is($redis->cli('JSON.GET', 'k', '$.items'), '[[3]]', 'one has gone');
	is(cut(q{SELECT 'a' AS x}, [ 'JSON.DEL', 'k', '$.m["#{x}"]' ], 'JSON.DEL'), 'done|1|0|0', 'of a member it is');

	is(cut(q{SELECT 'INCR' AS mode}, [ 'ZADD', 'board', '#{mode}', '5', 'm' ], 'board'), 'failed|0|0|1', 'ZADD with a column');
	is($redis->cli('ZSCORE', 'board', 'm'), 5, 'INCR from a column: added once');
	is(cut(q{SELECT ARRAY['CH', 'INCR'] AS mode}, [ 'ZADD', 'board', '#{mode}', '5', 'm' ], 'board'), 'failed|0|0|1', 'ZADD with an array');
	is($redis->cli('ZSCORE', 'board', 'm'), 10, 'INCR from an array: added once');
	is(cut(q{SELECT ARRAY['INCR', '5', 'm'] AS a}, [ 'ZADD', 'board', '#{a}' ], 'board'), 'failed|0|0|1', 'all of it in an array');
	is($redis->cli('ZSCORE', 'board', 'm'), 15, 'added once');
	is(cut(q{SELECT '\x494e435200ff'::bytea AS mode}, [ 'ZADD', 'board', '#{mode}', '5', 'm' ], 'board'), 'failed|0|0|1', 'with a zero byte behind it');
	is($redis->cli('ZSCORE', 'board', 'm'), 20, 'added once');
	is(cut(q{SELECT 'INCR' AS m}, [ 'FT.SUGADD', 'sug', 'word', '1', '#{m}' ], 'FT.SUGADD'), 'failed|0|0|1', 'FT.SUGADD with a column');
	my @once = $redis->cli('FT.SUGGET', 'sug', 'wo', 'WITHSCORES');
	$redis->cli('FT.SUGADD', 'once', 'word', '1');
	is_deeply(\@once, [ $redis->cli('FT.SUGGET', 'once', 'wo', 'WITHSCORES') ], 'added once');
	is(cut(q{SELECT 'NX' AS m}, [ 'SET', 'nx', 'v', '#{m}' ], 'nx'), 'failed|0|0|1', 'SET with a column: written, and not told as failed');
	is($redis->cli('GET', 'nx'), 'v', 'it is written');

	is(cut(q{SELECT 'INCR' AS p}, [ 'FT.SUGADD', 'sug', 'word', '1', 'PAYLOAD', '#{p}' ], 'PAYLOAD'), 'done|1|0|0', 'a payload is no option');

	is(cut(q{SELECT i AS id, i AS score FROM generate_series(1, 3) AS i}, [ 'ZADD', 'scores', '#{score}', '#{id}' ], 'scores'), 'done|3|0|0', 'numbers are no options: ZADD is repeated');
	is(cut(q{SELECT 'GT' AS m}, [ 'ZADD', 'scores', '#{m}', '9', '1' ], 'scores'), 'done|1|0|0', 'and with GT');
	is(cut(q{SELECT '$.a' AS p}, [ 'JSON.SET', 'k', '#{p}', '1' ], 'JSON.SET'), 'done|1|0|0', 'a path that names one place');
	is(cut(q{SELECT '$..a' AS p}, [ 'JSON.SET', 'k', '#{p}', '{"a":5}' ], 'JSON.SET'), 'failed|0|0|1', 'one that would find what it wrote');
	is($redis->cli('JSON.GET', 'k', '$.a'), '[{"a":5}]', 'written once');
};

subtest 'rows of both kinds in one window' => sub {
	$redis->cli('FLUSHALL');
	is(cut(q{SELECT * FROM (VALUES (ARRAY['1']), (ARRAY['INCR', '5'])) AS v (a)}, [ 'ZADD', 'both', '#{a}', 'm' ], 'INCR'), 'failed|0|0|2', 'cut before the first answer');
	is($redis->cli('ZSCORE', 'both', 'm'), 6, 'it is added once, and not undone');

	# the first row is refused for the moment; to write the second again would undo what the third has added
	my $fake = RedisExport::Fake->new(sub {
		my ($fake, $client, @words) = @_;
		return $words[-1] eq 'a' && !$fake->{refused}++ ? '-OOM no room' : ':1';
	});
	add_server($node, $fake, name => 'fake');
	is(export(q{SELECT * FROM (VALUES (ARRAY['1', 'a']), (ARRAY['2', 'm']), (ARRAY['INCR', '5', 'm']), (ARRAY['3', 'z'])) AS v (a)},
			[ 'ZADD', 'k', '#{a}' ], server => q{'fake'}), 'done|4|0|0', 'all are written');
	is(join(' ', map { $_->{words}[-1] } $fake->commands('ZADD')), 'a m m z a z', 'what comes behind it is, and what comes before it is not');
};

# The words of a row say which of them is the key, too.
subtest 'keys that are counted by a column' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('SET', 'a', 1);
	my $script = 'return #KEYS > 0 and redis.call("SET", KEYS[1], "v") or redis.status_reply("none")';
	my %ttl = (ttl => q{'1 h'});
	is(export(q{SELECT 1 AS n, 'b' AS k}, [ 'EVAL', $script, '#{n}', '#{k}' ], %ttl), 'done|1|0|0', 'one key');
	is(export(q{SELECT 0 AS n, 'a' AS k}, [ 'EVAL', $script, '#{n}', '#{k}' ], %ttl, %ignore), 'done|0|1|0', 'none: there is nothing to expire');
	is(failures, '1: cannot set an expiry, since the command has no key', 'it says so');
	is(export(q{SELECT ARRAY['2', 'c', 'd'] AS a}, [ 'EVAL', $script, '#{a}' ], %ttl), 'done|1|0|0', 'all in an array');
	is($redis->cli('TTL', 'a'), -1, 'what is no key has no expiry');
	cmp_ok($redis->cli('TTL', $_), '>', 3500, "$_ has one") for qw(b c);
};

# Which answer says that nothing was written, and what that is told as.
subtest 'conditions that do not hold' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('SET', 'there', 'old');
	$redis->cli('JSON.SET', 'doc', '$', '{"a":{"b":1}}');
	my @cases = (
		# words behind a literal SET; failed rows; what Redis then holds at the key
		[ [ 'SET', 'there', '#{v}', 'NX' ], 'Redis answered nil: the command has NX, and the key exists' ],
		[ [ 'SET', 'there', '#{v}', 'NX', 'GET' ], 'Redis answered with a value: the command has NX, and the key exists' ],
		[ [ 'SET', 'there', '#{v}', 'get', 'EX', '100', 'nx' ], 'Redis answered with a value: the command has NX, and the key exists' ],
		[ [ 'SET', 'there', '#{v}', '#{nx}', 'GET' ], 'Redis answered with a value: the command has NX, and the key exists' ],
		[ [ 'SET', 'gone', '#{v}', 'XX' ], 'Redis answered nil: the command has XX, and the key does not exist' ],
		[ [ 'SET', 'gone', '#{v}', 'XX', 'GET' ], 'Redis answered nil: the command has XX, and the key does not exist' ],
		[ [ 'SET', 'gone', '#{v}', '#{options}' ], 'Redis answered nil: the command has XX, and the key does not exist' ],
		[ [ 'JSON.SET', 'doc', '$', '1', 'NX' ], 'Redis answered nil: the command has NX, and the key exists' ],
		[ [ 'JSON.SET', 'doc', '$.a.b', '2', 'NX' ],
			'Redis answered nil: the command has NX, and the path is there already, or the document has no place for it' ],
		[ [ 'JSON.SET', 'doc', '$.a.c', '2', 'XX' ], 'Redis answered nil: the command has XX, and the path is not there' ],
		[ [ 'JSON.SET', 'gone', '$', '1', '#{xx}' ], 'Redis answered nil: the command has XX, and the key does not exist' ],
		[ [ 'JSON.SET', 'doc', '$.x.y', '2' ], 'Redis answered nil: the document has no place for the path' ],
		[ [ 'JSON.MERGE', 'doc', '$.x.y', '2' ], 'Redis answered nil: the document has no place for the path' ],
		[ [ 'ZADD', 'z', 'XX', 'INCR', '1', 'm' ], 'Redis answered nil: the condition of the command did not hold' ],
		[ [ 'XADD', 'gone', 'NOMKSTREAM', 'MAXLEN', '~', '5', '*', 'f', 'v' ], 'Redis answered nil: the command has NOMKSTREAM, and the stream does not exist' ],
	);
	for my $case (@cases)
	{
		my ($words, $message) = @$case;
		is(export(q{SELECT 'new' AS v, 'NX' AS nx, 'XX' AS xx, ARRAY['PX', '9', 'XX', 'GET'] AS options}, $words, %ignore), 'done|0|1|0', "@$words");
		is(failures, "1: $message", 'says why');
	}
	is($redis->cli('GET', 'there'), 'old', 'nothing was set');
	is($redis->cli('EXISTS', 'gone', 'z'), 0, 'nor made');
	is($redis->cli('JSON.GET', 'doc'), '{"a":{"b":1}}', 'nor changed in the document');

	is(export(q{SELECT 'new' AS v}, [ 'SET', 'there', '#{v}', 'XX', 'GET' ]), 'done|1|0|0', 'XX GET of a key that exists');
	is(export(q{SELECT 'new' AS v}, [ 'SET', 'fresh', '#{v}', 'NX', 'GET' ]), 'done|1|0|0', 'NX GET of a key that does not');
	is(export(q{SELECT 'new' AS v}, [ 'SET', 'fresh2', '#{v}', 'GET' ]), 'done|1|0|0', 'GET without a condition');
	is(export(q{SELECT 'NX' AS v}, [ 'SET', 'fresh', '#{v}' ]), 'done|1|0|0', 'a value is no condition');
	is(export(q{SELECT '1' AS v}, [ 'SETNX', 'there', '#{v}' ]), 'done|1|0|0', 'an integer counts as written, whatever it is');
	is(join(' ', map { scalar $redis->cli('GET', $_) } qw(there fresh fresh2)), 'new NX new', 'Redis holds it');
	like(sql_error($node, command_sql('SELECT 1 AS a', [ 'SET', 'k', '#{a}', 'IFEQ', 'x', 'GET' ])), qr/^ERROR:  cannot export with a condition on the value and GET\n/,
		'where the answer does not tell, it is refused');
};

# A value put into a path is one member's name, whatever it holds, or fails its row.
subtest 'values in paths' => sub {
	my $before = '{"m":{"z":0,"a":{"b":1}},"a":1,"g":{"h":2}}';
	my $json = JSON::PP->new->utf8->canonical;
	my @names = ('*', 'g.h', '.a', '..a', 'a"b', "a'b", '', ']', '"]', "']", '[0]', 'a","z', "a','z", '$', '@', '?(@.b==1)', '#{x}', 'é', '日本', "\n", "a\tb",
		'a b', 'a ', '0', '-1', 'x' x 5000, 'a"],["z', ',', ':', '\\u0041', '\\', 'a\\"b', q{a"b'c}, ' a', ' ');
	my %cannot = map { $_ => 1 } '\\u0041', '\\', 'a\\"b', q{a"b'c}, ' a', ' ';
	utf8::decode($_) for @names;
	my $values = join ', ', map { my $name = s/'/''/gr; utf8::encode($name); "('$name')" } @names;
	$node->safe_psql('postgres', "CREATE TABLE name (i serial, name text); SET standard_conforming_strings = on; INSERT INTO name (name) VALUES $values");
	for my $path ('$.m.#{name}', '$.m["#{name}"]', '$.m[\'#{name}\']', 'm.#{name}', '.m.#{name}')
	{
		$redis->cli('FLUSHALL');
		$redis->cli('JSON.SET', "k:$_", '$', $before) for 1 .. @names;
		my $sql = $path =~ s/'/''/gr;
		my $failed = keys %cannot;
		my $written = @names - $failed;
		is($node->safe_psql('postgres', "SELECT state, rows_written, rows_failed FROM redis_json_export('SELECT i, name, ''77''::jsonb AS doc FROM name', 'k:#{i}',
			path => '$sql', value => 'doc', on_error => 'ignore')"), "done|$written|$failed", "$path: written, or failed");
		for my $i (1 .. @names)
		{
			my $name = $names[$i - 1];
			my $expected = $json->decode($before);
			$expected->{m}{$name} = 77 if !$cannot{$name};
			my $got = $redis->cli('JSON.GET', "k:$i");
			is($json->encode($json->decode($got)), $json->encode($expected), "$path: number $i" . ($cannot{$name} ? ' leaves the document alone' : ''));
		}
	}
	like(failures, qr/: a name in the path holds a backslash, which a path of Redis cannot say\n.*: a name in the path holds both kinds of quotes.*: a name in the path begins with a space/s,
		'says what is wrong');

	my $path_export = sub {
		my ($path, $query) = @_;
		my ($status, $out, $err) = $node->psql('postgres', "SELECT state, rows_written, rows_failed FROM redis_json_export(\$q\$$query\$q\$, 'p:#{id}',
			path => '$path', value => 'doc', on_error => 'ignore')");
		return $status ? $err : $out;
	};
	$redis->cli('JSON.SET', 'p:1', '$', '{"items":[{"id":"x","v":0},{"id":"y\\"z","v":0},{"id":"w","v":0}],"pre_a_b":1}');
	is($path_export->('$.items[#{i}].v', q{SELECT 1 AS id, i, '7'::jsonb AS doc FROM (VALUES (1), (-1), (-9), (2147483647)) AS v (i)}), 'done|1|3', 'the number of an element');
	is($redis->cli('JSON.GET', 'p:1', '$.items[*].v'), '[0,7,0]', 'that one is set, and none from the end');
	is($path_export->('$.items[?(@.id=="#{x}")].v', q{SELECT 1 AS id, x, '8'::jsonb AS doc FROM (VALUES ('y"z'), ('x" || "1"=="1')) AS v (x)}), 'done|1|1', 'a text in a filter');
	is($redis->cli('JSON.GET', 'p:1', '$.items[*].v'), '[0,8,0]', 'only what it finds is set');
	is($path_export->('$.pre_#{x}_#{y}', q{SELECT 1 AS id, 'a' AS x, 'b' AS y, '9'::jsonb AS doc}), 'done|1|0', 'a name put together');
	is($redis->cli('JSON.GET', 'p:1', '$.pre_a_b'), '[9]', 'of its parts');
	is($path_export->('$..#{x}', q{SELECT 1 AS id, 'v' AS x, '3'::jsonb AS doc}), 'done|1|0', 'at all levels, if the template says so');
	is($redis->cli('JSON.GET', 'p:1', '$.items[*].v'), '[3,3,3]', 'each is set');
	like($path_export->($_, q{SELECT 1 AS id, 1 AS i, 'x'::text AS x, '3'::jsonb AS doc}), qr/^\S+ ERROR:  path "\Q$_\E" has a column where no value can stand\nDETAIL/m, "refused: $_")
		for '#{x}', '$#{x}', '$.items[#{x}]', '$.items[?(@.id==#{x})]', '$.items[1#{i}]', '$.items[#{i}0]', '$.items[#{i}#{i}]', '$.items[-#{i}]', '$.m["#{x}]';
};

done_testing;
