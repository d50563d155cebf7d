# redis_scan and its like, from a Redis that gives keys twice, breaks off, or answers nonsense, and from a cluster.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Fake;
use RedisExport::Cluster;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis);

sub bulk { return '$' . length($_[0]) . "\r\n$_[0]" }
sub list { return join "\r\n", '*' . scalar(@_), @_ }
sub page { my ($cursor, @keys) = @_; return list(bulk($cursor), list(map { bulk($_) } @keys)) }

my $count = 0;
sub fake_server
{
	my ($fake) = @_;
	my $name = 'fake' . ++$count;
	add_server($node, $fake, name => $name, cluster => 'false');
	return $name;
}

sub rows { return [ split /\n/, $node->safe_psql('postgres', $_[0]) ] }

# Of 3000 keys each comes three times, some of them on one page, and more than work_mem has room to remember.
subtest 'keys that come more than once' => sub {
	my @keys = map { "key:$_" } 1 .. 3000;
	my $fake = RedisExport::Fake->new(sub {
		my ($fake, $client, @words) = @_;
		return list(map { bulk($_) } 'f', $words[1]) if $words[0] eq 'HGETALL';
		my $at = $words[1];
		my @page = map { $keys[ ($at * 100 + $_) % 3000 ] } 0 .. 99;
		return page($at == 89 ? 0 : $at + 1, @page, @page[ 0 .. 9 ]);
	});
	my $server = fake_server($fake);
	for my $memory ('4MB', '64kB')
	{
		is($node->safe_psql('postgres', "SET work_mem = '$memory'; SELECT count(*), count(DISTINCT key) FROM redis_scan('$server') AS key"), '3000|3000', "each once: $memory");
		is($node->safe_psql('postgres', "SET work_mem = '$memory'; SELECT count(*), count(DISTINCT key), count(*) FILTER (WHERE fields->>'f' = key) FROM redis_hash_scan('$server')"),
			'3000|3000|3000', "with their values: $memory");
	}
	my $first = ($fake->commands('SCAN'))[0];
	is(join(' ', @{ $first->{words} }[ 0 .. 4 ]), 'SCAN 0 MATCH * COUNT', 'what is asked');
	is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT redis_scan('$server') LIMIT 5) AS few"), 5, 'not read to its end');
};

subtest 'what is no answer' => sub {
	my %answers = (
		'a status' => [ '+OK', qr/08P01: Redis gave no answer to SCAN that can be read/ ],
		'one element' => [ list(bulk('0')), qr/08P01: Redis gave no answer to SCAN/ ],
		'keys that are numbers' => [ "*2\r\n\$1\r\n0\r\n*1\r\n:1", qr/08P01: Redis gave no answer to SCAN/ ],
		'nil' => [ '$-1', qr/08P01: Redis gave no answer to SCAN/ ],
		'an error' => [ '-ERR no such thing', qr/38000: Redis answered: ERR no such thing/ ],
		'no RESP' => [ '?what', qr/08P01: / ],
		'the end' => [ CLOSE, qr/08006: / ]);
	for my $name (sort keys %answers)
	{
		my ($answer, $error) = @{ $answers{$name} };
		my $server = fake_server(RedisExport::Fake->new(sub { return $answer }));
		like(sql_error($node, "SELECT count(*) FROM redis_scan('$server')", verbose => 1), qr/ERROR:  $error/, $name);
	}
	my $half = fake_server(RedisExport::Fake->new(sub {
		my ($fake, $client, @words) = @_;
		return $words[0] eq 'SCAN' ? page(0, map { "k$_" } 1 .. 10) : $words[1] eq 'k5' ? CLOSE : list(bulk('a'), bulk('b'));
	}));
	like(sql_error($node, "SELECT count(*) FROM redis_hash_scan('$half')", verbose => 1), qr/ERROR:  08006: /, 'the end amid values');
};

subtest 'a frozen Redis' => sub {
	$redis->cli('SET', 'k', 'v');
	$redis->freeze;
	my $session = session($node);
	$session->send("SELECT count(*) FROM redis_scan('redis')");
	poll_until($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%FROM redis_scan%' AND state = 'active' AND pid <> pg_backend_pid()});
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
	my (undef, $err) = $session->wait;
	like($err, qr/canceling statement due to user request/, 'the query can be cancelled');
	$redis->thaw;
	is($session->query("SELECT count(*) FROM redis_scan('redis')"), 1, 'and its session goes on');
	$session->quit;
};

# With more keys than work_mem holds, in the select list, where nobody asks for the last row.
subtest 'a scan that is not read to its end' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('EVAL', q{for i = 1, 20000 do redis.call('HSET', 'h:' .. i, 'f', i) redis.call('JSON.SET', 'j:' .. i, '$', '1') end}, 0);
	my $idle = sub { wait_for('all connections are closed', sub { !grep { /name=redis_export/ } $redis->cli('CLIENT', 'LIST') }); return 1 };
	my $files = sub { return scalar(() = glob $node->data_dir . '/base/pgsql_tmp/*') };
	my %scans = (
		redis_scan => q{SELECT redis_scan('redis') LIMIT 6000},
		redis_json_scan => q{SELECT redis_json_scan('redis') LIMIT 1},
		redis_hash_scan => q{SELECT redis_hash_scan('redis') LIMIT 1},
		'twice' => q{SELECT redis_hash_scan('redis'), redis_json_scan('redis') LIMIT 1},
		'for each row' => q{SELECT (SELECT redis_hash_scan('redis') LIMIT 1) FROM generate_series(1, 3) AS i WHERE i > 0},
		'in a function' => q{DO $$ DECLARE r record; BEGIN FOR r IN SELECT redis_json_scan('redis') LOOP EXIT; END LOOP; END $$},
		'a cursor that is closed' => q{BEGIN; DECLARE c CURSOR FOR SELECT redis_json_scan('redis'); FETCH 3 FROM c; CLOSE c; COMMIT},
		'a cursor at commit' => q{BEGIN; DECLARE c CURSOR FOR SELECT redis_json_scan('redis'); FETCH 3 FROM c; COMMIT},
		'a cursor at a rollback' => q{BEGIN; SAVEPOINT s; DECLARE c CURSOR FOR SELECT redis_json_scan('redis'); FETCH 3 FROM c; ROLLBACK TO s; COMMIT},
		'an error' => q{\set ON_ERROR_STOP 0
			SELECT 1 / (10 - row_number() OVER ()), redis_json_scan('redis') FROM (SELECT redis_hash_scan('redis')) AS _; SELECT 1 / (3 - n) FROM (SELECT redis_hash_scan('redis'), generate_series(1, 5) AS n) AS _},
		'to its end' => q{SELECT count(*) FROM (SELECT redis_json_scan('redis')) AS _});
	for my $name (sort keys %scans)
	{
		my (undef, undef, $err) = $node->psql('postgres', "SET work_mem = '64kB';\n$scans{$name}");
		unlike($err, qr/WARNING/, "$name: no warning");
		like($err, qr/division by zero/, 'but the error') if $name eq 'an error';
		$idle->();
		is($files->(), 0, 'no file is left');
	}
	my $session = session($node);
	$session->query(q{SET work_mem = '64kB'; BEGIN; DECLARE c CURSOR FOR SELECT redis_json_scan('redis'); FETCH 3 FROM c});
	cmp_ok($files->(), '>', 0, 'they are there as long as the scan goes on');
	is(scalar(grep { /name=redis_export/ } $redis->cli('CLIENT', 'LIST')), 1, 'and so is the connection');
	$session->query('CLOSE c');
	is($files->(), 0, 'they go with it');
	$idle->();
	$session->quit;
	unlike(slurp_file($node->logfile), qr/temporary file leak|WARNING/, 'nor does the log tell of a leak');
};

subtest 'a cluster' => sub {
	my $cluster = RedisExport::Cluster->new;
	add_server($node, $cluster, name => 'cluster');
	is($node->safe_psql('postgres', hash_sql('SELECT i AS id FROM generate_series(1, 5000) AS i', 'c:#{id}', server => "'cluster'")) =~ s/.*\|//r, 'done', 'keys on all nodes');
	is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT key) FROM redis_scan('cluster', 'c:*') AS key}), '5000|5000', 'all are found, each once');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM redis_hash_scan('cluster', 'c:*') WHERE 'c:' || (fields->>'id') = key}), 5000, 'with their values');
	is_deeply(rows(q{SELECT key FROM redis_hash_scan('cluster', 'c:1?') ORDER BY 1}), [ map { "c:$_" } 10 .. 19 ], 'by a pattern');
};

done_testing;
