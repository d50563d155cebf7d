# The page of recipes, docs/recipes.md: each of its statements runs, word for word and in its order, and does what the page says. What is in
# a block of another kind (```text) is marked there as not run.
use strict;
use warnings;
use FindBin;
use JSON::PP ();
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Vectors;

# The statements of each section, in their order; and the page, for what is no statement.
my (%statements, @unseen);
my $page = slurp_file("$FindBin::Bin/../../docs/recipes.md");
{
	my ($section, $inside, $body, $statement) = ('', 0, 0, '');
	for my $line (split /\n/, $page)
	{
		$section = $1 if $line =~ /^#+ (.*)/ && !$inside;
		if ($line =~ /^```/)
		{
			$inside = $line eq '```sql';
			next;
		}
		next if !$inside;
		$statement .= "$line\n";
		# a body between dollars has ends of lines of its own
		$body = ($statement =~ s/\$\$/$&/g) % 2;
		next if $body || $line !~ /;(?:\s+--.*)?$/;
		push @{ $statements{$section} }, $statement =~ s/^\n+//r;
		push @unseen, $statement =~ s/^\n+//r;
		$statement = '';
	}
	is($statement, '', 'the last statement has an end');
}
cmp_ok(scalar @unseen, '>', 20, 'the page has statements');

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\nmax_worker_processes = 16\n", allows_streaming => 1);
my $json = JSON::PP->new->allow_nonref->canonical;
my $major = $node->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int / 10000});

# The next statement of a section, which then counts as seen.
sub next_of
{
	my ($section) = @_;
	my $statement = shift @{ $statements{$section} } // die "no statement is left in section $section";
	@unseen = grep { $_ ne $statement } @unseen;
	return $statement;
}

# Runs the next statement of a section, and returns what it returns; in list context, what else it said, too.
sub run_next
{
	my ($section) = @_;
	my $statement = next_of($section);
	my ($status, $out, $err) = $node->psql('postgres', $statement);
	is($status, 0, 'it runs') or diag "$statement\n$err";
	return wantarray ? ($out, $err) : $out;
}

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

my $section = 'One document of many rows';
subtest $section => sub {
	run_next($section) for 1 .. 3;
	sql(q{INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob');
		INSERT INTO orders VALUES (11, 1, '2026-02-03 04:05:06+00', 2.50), (10, 1, '2026-02-01 00:00:00+00', 10)});
	my $export = next_of($section);
	is($node->safe_psql('postgres', "SET timezone = 'Asia/Tokyo'; $export"), 'done|2', 'both customers');
	is($redis->cli('JSON.GET', 'customer:1'), '{"id":1,"name":"Ada","orders":[{"id":10,"at":"2026-02-01T00:00:00","total":10.0},'
		. '{"id":11,"at":"2026-02-03T04:05:06","total":2.5}]}', 'with the orders, in their order and in UTC');
	is($redis->cli('JSON.GET', 'customer:2'), '{"id":2,"name":"Bob","orders":[]}', 'and the one who has none');

	# the index is what makes it fast
	my ($query) = $export =~ /\$\$(.*)\$\$/s;
	sql(q{INSERT INTO customers SELECT i, 'c' || i FROM generate_series(3, 1000) AS i;
		INSERT INTO orders SELECT i, i % 1000 + 1, now(), 1 FROM generate_series(100, 20000) AS i; ANALYZE customers, orders});
	like(sql("EXPLAIN $query"), qr/Index .*orders_customer_id_placed_at_idx/, 'the index is used');
};

$section = 'Places on a map';
subtest $section => sub {
	run_next($section) for 1 .. 3;
	is(run_next($section), 'done|0', 'the index has taken them');
	is(run_next($section), '[1, "shop:1", ["name", "Paris"]]', 'and Paris is found');
	my ($out, $err) = run_next($section);
	like($out, qr/^done\|1\|index "idx:shops" refused the document of key "shop:2": Invalid geo/, 'swapped, Auckland is refused');
	like($err, qr/^psql:<stdin>:\d+: WARNING:  an index of Redis refused documents/, 'and that is told');
	is(redis_keys_count($redis, 'shop:*'), 2, 'both hashes are there');
	is(scalar $redis->cli('FT.SEARCH', 'idx:shops', '@spot:[2.35 48.85 20 km]', 'NOCONTENT'), 0, 'Paris is not where it is');
	is(scalar $redis->cli('FT.SEARCH', 'idx:shops', '@spot:[48.85 2.35 20 km]', 'NOCONTENT'), "1\nshop:1", 'but in the sea');
};

$section = 'Vectors';
subtest $section => sub {
	run_next($section) for 1 .. 3;
	is(run_next($section), 'done|0', 'the index has taken them');
	is_deeply([ @{ $json->decode(scalar run_next($section)) }[ 0, 1, 3 ] ], [ 2, 'article:1', 'article:2' ], 'the neighbours are found');
	is(unpack('H*', scalar $redis->cli('HGET', 'article:2', 'embedding')), unpack('H*', float32(0.9, 0.1, 0)), 'the blob is of FLOAT32');

	# what the page warns of: without the cast it is twice as long
	my (undef, undef, $err) = $node->psql('postgres', q{SELECT redis_hash_export('SELECT 9 AS id, ''{1,0,0}''::float8[] AS embedding', 'article:#{id}', wait_index => 'articles')});
	like($err, qr/WARNING:  an index of Redis refused documents/, 'a vector of another type is refused');
	$redis->cli('DEL', 'article:9');

	if (sql(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'vector' AND string_to_array(default_version, '.')::int[] >= '{0,7}'}) > 0)
	{
		run_next($section) for 1 .. 3;
		is(run_next($section), 'done|0', 'a halfvec, cast');
		is(unpack('H*', scalar $redis->cli('HGET', 'article:101', 'embedding')), unpack('H*', float32(map { unpack 'f', pack 'f', $_ } half(0.95), half(0.05), 0)), 'is a blob of FLOAT32');
	}
	else
	{
		like(next_of($section), qr/\bvector\b|papers/, 'pgvector is not here: left out') for 1 .. 4;
	}
};

# The nearest number of eleven bits.
sub half
{
	my ($number) = @_;
	my $unit = 1;
	$unit /= 2 while $number / $unit < 1024;
	return $unit * int($number / $unit + 0.5);
}

$section = 'Streams';
subtest $section => sub {
	run_next($section);
	sql(q{INSERT INTO events SELECT i, 'k' || i % 3, 'here' FROM generate_series(1, 3000) AS i});
	is(run_next($section), 'done|3000', 'all are added');
	my $length = $redis->cli('XLEN', 'events');
	ok($length >= 1000 && $length < 1500, 'and some more than a thousand are kept') or diag $length;
	is(scalar $redis->cli('XREVRANGE', 'events', '+', '-', 'COUNT', 1), "3000-1\nkind\nk0\nplace\nhere", 'an entry has the number of its row');
	like(sql_error($node, q{SELECT redis_command_export('SELECT 1 AS id', ARRAY['XADD', 'events', '#{id}-1', 'a', 'b'])}),
		qr/equal or smaller than the target stream top item/, 'no row gets in twice');
	sql(q{INSERT INTO events SELECT i, 'new', 'there' FROM generate_series(3001, 3010) AS i});
	my $more = next_of($section);
	is(sql($more), 'done|10', 'the next ones');
	is(sql($more), 'done|0', 'and none twice');
	$redis->cli('DEL', 'events');
	is(sql($more), 'done|3010', 'all, if there is no stream');
};

$section = 'Sorted sets and counters';
subtest $section => sub {
	run_next($section) for 1 .. 2;
	sql(q{INSERT INTO players SELECT i, i * 10 FROM generate_series(1, 5) AS i; INSERT INTO visits VALUES ('a'), ('a'), ('b')});
	is(run_next($section), 'done|5', 'the scores');
	is(run_next($section), 'done|2', 'the sums');
	is(join(' ', map { scalar $redis->cli('GET', "visits:$_") } 'a', 'b'), '2 1', 'are right');
	sql('DELETE FROM players WHERE id < 3');
	run_next($section);
	is(run_next($section), 'done|3', 'the new set');
	is(run_next($section), '"OK"', 'takes the old one\'s place');
	is(scalar $redis->cli('ZRANGE', 'board', 0, -1), "3\n4\n5", 'without those that are gone');
	is(sql(q{SELECT rows_written FROM redis_command_export('SELECT id, 1 AS score FROM players', ARRAY['ZADD', 'board', 'GT', '#{score}', '#{id}'])}), 3, 'with GT all count');
	is($redis->cli('ZSCORE', 'board', 3), 30, 'and no score falls');
	like(sql_error($node, q{SELECT redis_command('redis', 'RENAME', 'board:new', 'board')}), qr/no such key/, 'an empty set is none');
};

$section = 'Only if absent, only if present';
subtest $section => sub {
	run_next($section);
	sql(q{INSERT INTO defaults SELECT i, 'light' FROM generate_series(1, 3) AS i});
	$redis->cli('SET', 'theme:1', 'dark');
	my $absent = next_of($section);
	is(sql($absent), 'done|2|1', 'NX: two are absent');
	is(sql('SELECT key, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress))'),
		'theme:1|Redis answered nil: the command has NX, and the key exists', 'the third is a failure');
	is($redis->cli('GET', 'theme:1'), 'dark', 'and stays as it was');
	like(sql_error($node, $absent =~ s/, ?\s*on_error => 'ignore'//r), qr/the command has NX/, 'without on_error that stops the job');
	$redis->cli('DEL', 'theme:3');
	is(run_next($section), 'done|2|1', 'XX: two are present');
	is($redis->cli('GET', 'theme:1'), 'light', 'and overwritten');
	is($redis->cli('EXISTS', 'theme:3'), 0, 'the third is not made');
	$redis->cli('JSON.SET', 'user:2', '$', '{}');
	is(run_next($section), 'done|2|1', 'JSON.SET');
	is($redis->cli('JSON.GET', 'user:2'), '{}', 'leaves what is there');
	$redis->cli('HSET', 'settings:2', 'theme', 'dark');
	is(run_next($section), 'done|3|0', 'HSETNX: all count as written');
	is($redis->cli('HGET', 'settings:2', 'theme'), 'dark', 'and what is there is left');
};

$section = 'Rows that are marked as deleted';
subtest $section => sub {
	run_next($section) for 1 .. 2;
	sql(q{INSERT INTO notes SELECT i, 'n' || i FROM generate_series(1, 5) AS i});
	run_next($section);
	my $run = next_of($section);
	like(sql($run), qr/\|done\|5\|5\|0\|0\|0\|$/, 'the first load');
	sql('UPDATE notes SET deleted_at = now(), updated_at = now() WHERE id <= 2');
	like(sql($run), qr/\|done\|3\|0\|3\|0\|2\|$/, 'two are deleted');
	is(join(' ', sort $redis->cli('KEYS', 'note:*')), 'note:3 note:4 note:5', 'and gone');
	sql('UPDATE notes SET deleted_at = NULL, updated_at = now() WHERE id = 1');
	like(sql($run), qr/\|done\|4\|1\|3\|0\|0\|$/, 'one comes back');
	is(join(' ', sort $redis->cli('KEYS', 'note:*')), 'note:1 note:3 note:4 note:5', 'and is there');
};

$section = 'A full reload without downtime';
subtest $section => sub {
	run_next($section);
	sql(q{INSERT INTO products SELECT i, 'apple ' || i, i FROM generate_series(1, 1200) AS i});
	run_next($section);
	is(run_next($section), 'done|0', 'the first load');
	run_next($section);
	like($redis->cli('FT.SEARCH', 'products', 'apple', 'LIMIT', 0, 0), qr/^1200$/, 'is found by the alias');
	sql(q{UPDATE products SET name = 'pear ' || id});
	run_next($section);
	is(run_next($section), 'done|0', 'the second load');
	is(run_next($section), '1200|0|0|0', 'is compared');
	is($redis->cli('FT.SEARCH', 'products', 'pear', 'LIMIT', 0, 0), 0, 'and not found yet');
	run_next($section);
	is($redis->cli('FT.SEARCH', 'products', 'pear', 'LIMIT', 0, 0), 1200, 'now it is');
	is($redis->cli('FT.SEARCH', 'products', 'apple', 'LIMIT', 0, 0), 0, 'and the old one is not');
	run_next($section);
	is(redis_keys_count($redis, 'product:1:*'), 1200, 'its keys have stayed');
	is(run_next($section), 'done|1200', 'and go');
	is(redis_keys_count($redis, 'product:*'), 1200, 'the new ones are there');
};

# What an exporter does with its file: the columns that a query returns are those that are listed below it, and each of them is a number or a label.
$section = 'Alerts and a dashboard';
subtest $section => sub {
	run_next($section) for 1 .. 2;
	my ($yaml) = $page =~ /^```yaml\n(.*?)^```/ms or die 'there is no YAML';
	my %metrics;
	for my $block (split /^(?=\w)/m, $yaml)
	{
		my ($name, $query, $list) = $block =~ /^(\w+):\n(?:  cache_seconds: \d+\n)?  query: \|\n((?:    .*\n)+)  metrics:\n((?:    - .*\n)+)\z/
			or die "a metric of another form: $block";
		$metrics{$name} = { query => $query, list => [ $list =~ /^    - (\w+): \{usage: "(LABEL|GAUGE)", description: "[^"]+"\}$/mg ] };
		is(scalar @{ $metrics{$name}{list} }, 2 * ($list =~ tr/\n//), "$name: each line of the list is one");
	}
	is(join(' ', sort keys %metrics), 'redis_export_last redis_export_running', 'two metrics');
	my @told = $page =~ /^\| `(redis_export_\w+)` \|/mg;
	cmp_ok(scalar @told, '>', 10, 'the table says what the numbers mean');
	for my $number (@told)
	{
		my ($name, $column) = $number =~ /^(redis_export_(?:last|running))_(\w+)$/;
		ok((grep { $_ eq $column } @{ $metrics{ $name // '' }{list} }), "$number is a number that there is");
	}

	# one that runs, one that has failed, one that is done
	my $job = start_job($node, 'SELECT id FROM events', 'slow:#{id}', rate => 20, batch => 1);
	until_written($node, $job, 1);
	sql_error($node, q{SELECT redis_json_export('SELECT 1 AS id, 1/0 AS x', 'bad:#{id}')});
	my $exporter = session($node, user => 'exporter');
	my %rows;
	for my $name (sort keys %metrics)
	{
		my $row = "SELECT * FROM (\n$metrics{$name}{query}) AS q";
		my %usage = @{ $metrics{$name}{list} };
		$rows{$name} = [ map { $json->decode($_) } split /\n/, $exporter->query("SELECT row_to_json(r) FROM ($row) AS r") ];
		ok(scalar @{ $rows{$name} }, "$name has rows");
		for my $row (@{ $rows{$name} })
		{
			is(join(' ', sort keys %$row), join(' ', sort keys %usage), 'with the columns that are listed');
			is(join(' ', grep { $usage{$_} eq 'GAUGE' && ($row->{$_} // '') !~ /^-?[\d.]+(?:e-?\d+)?$/ } sort keys %$row), '', 'all but labels are numbers');
			isnt($row->{key_template}, undef, 'the exporter sees the template');
		}
	}
	my ($running) = grep { $_->{key_template} eq 'slow:#{id}' } @{ $rows{redis_export_running} };
	is($running->{jobs}, 1, 'the one that runs');
	my %failed = map { $_->{key_template} => $_->{failed} } @{ $rows{redis_export_last} };
	is($failed{'bad:#{id}'}, 1, 'the one that failed');
	is($failed{'product:2:#{id}'}, 0, 'the one that is done');
	$exporter->quit;
	sql("SELECT redis_export_cancel($job)");
	job_ends($node, $redis, $job, state => 'canceled');
};

# Nobody answers at this server. That a job takes a new password when it connects again is in 070_rights.t.
$section = 'Managed services';
subtest $section => sub {
	run_next($section) for 1 .. 3;
	is(sql(q{SELECT umoptions::text FROM pg_user_mappings WHERE srvname = 'cache'}), '{username=app,"password=the next token"}', 'the mapping has the next token');
};

$section = 'On a replica, after a load on the primary';
subtest $section => sub {
	$node->backup('base');
	my $replica = PostgreSQL::Test::Cluster->new('replica');
	$replica->init_from_backup($node, 'base', has_streaming => 1);
	$replica->start;
	poll_until($replica, 'SELECT pg_last_wal_replay_lsn() IS NOT NULL');
	my ($where, $loop, $wait) = map { next_of($section) } 1 .. 3;
	my @waits = ($loop, $major >= 19 ? $wait : ());
	note('no WAIT FOR before PostgreSQL 19') if $major < 19;

	for my $statement (@waits)
	{
		# it really waits: what is committed is not replayed until the replica may go on
		$replica->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
		poll_until($replica, q{SELECT pg_get_wal_replay_pause_state() = 'paused'});
		my $id = 5000 + sql('SELECT count(*) FROM products');
		sql("INSERT INTO products VALUES ($id, 'load', 1)");
		my $lsn = sql($where);
		like($lsn, qr{^[0-9A-F]+/[0-9A-F]+$}, 'the primary says where it is');
		my $session = session($replica);
		is($statement =~ s{'0/3000060'}{'$lsn'}, 1, 'the statement has its place');
		$session->send($statement);
		poll_until($replica, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE state = 'active' AND query ~ '^(DO|WAIT)'});
		is($replica->safe_psql('postgres', "SELECT count(*) FROM products WHERE id = $id"), 0, 'the replica is not there yet');
		$replica->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
		my ($out, $err) = $session->wait;
		is($err, '', 'now it is');
		is($session->query("SELECT count(*) FROM products WHERE id = $id"), 1, 'and the load, too');
		$session->quit;
	}
	$replica->stop;
};

is("@unseen", '', 'no statement of the page was left out');

done_testing;
