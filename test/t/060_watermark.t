# Only what is newer: the plan uses the index, rows that are committed late are not lost, and the mark moves only when all that it
# says is in Redis. What arguments, types and queries do is in sql/watermark.sql.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Cluster;
use RedisExport::Fake;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, name => 'primary', allows_streaming => 1,
	conf => "redis_export.notice_interval = 0\nmax_worker_processes = 20\nmax_prepared_transactions = 5\nrestart_after_crash = on\nautovacuum = off\n");
$node->safe_psql('postgres', q{
	CREATE TABLE item (id int PRIMARY KEY, v text, changed timestamptz DEFAULT clock_timestamp());
	CREATE INDEX item_changed ON item (changed);
	INSERT INTO item SELECT i, 'v' || i, timestamptz '2026-01-01' + i * interval '1 minute' FROM generate_series(1, 20000) i;
	CREATE VIEW item_view AS SELECT id, v, changed FROM item WHERE id > 0;
	ANALYZE item;
	CREATE ROLE alice LOGIN;
	GRANT SELECT ON item TO alice;
	GRANT USAGE ON FOREIGN SERVER redis TO alice;
	GRANT EXECUTE ON FUNCTION redis_hash_export TO alice});

# The statement that exports what is newer.
sub newer_sql
{
	my ($query, $mark, %arguments) = @_;
	my $template = delete $arguments{key_template} // 'k:#{id}';
	return hash_sql($query, $template, watermark_column => q{'changed'}, mark => "'$mark'", %arguments);
}

# Runs it; returns "job|state", and what was told besides.
sub newer
{
	my ($where, @arguments) = @_;
	my ($out, $err) = $where->can('send') ? $where->send(newer_sql(@arguments))->wait : ($where->psql('postgres', newer_sql(@arguments)))[ 1, 2 ];
	return wantarray ? ($out, $err) : $out;
}

sub mark_in { my ($from, $mark, $field) = @_; return scalar $from->cli('HGET', "redis_export:{$mark}", $field // 'value') }
sub mark { return mark_in($redis, @_) }

# The log of what the sub does.
sub logged
{
	my ($sub, $at) = @_;
	my $before = -s $node->logfile;
	$sub->();
	return substr slurp_file($node->logfile), $before;
}

my $locker = session($node);
sub lock_gate { $locker->query('SELECT pg_advisory_lock(1)'); return }
sub open_gate { $locker->query('SELECT pg_advisory_unlock(1)'); return }
sub until_at_gate { return poll_until($_[0] // $node, q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)}) }

# A query whose rows come before the gate, and end behind it.
sub gated
{
	my ($query) = @_;
	return "$query UNION ALL SELECT NULL, NULL, 'infinity' FROM (SELECT pg_advisory_xact_lock_shared(1)::text AS l OFFSET 0) AS gate WHERE l = 'never'";
}
my $items = 'SELECT id, v, changed FROM item';

# ---- The plan --------------------------------------------------------------------------------------------------------

subtest 'the plan uses the index' => sub {
	my $index = $node->safe_psql('postgres', q{SELECT 'item_changed'::regclass::oid});
	my $session = session($node);
	$session->query('SET debug_print_plan = on');
	my $plan = sub {
		my ($query, %arguments) = @_;
		my $log = logged(sub { like(newer($session, $query, 'plan', %arguments), qr/\|done$/, "done: $query") });
		# of the worker: the statement around the query
		my ($text) = $log =~ /^(.*?LOG:  plan:\n.*?)STATEMENT:/ms;
		return join '', grep { /INDEXSCAN|SEQSCAN|FUNCTIONSCAN|:indexid/ } split /^/, $log =~ s/.*(?=LOG:  plan:)//sr;
	};
	my $scans = sub { return $node->safe_psql('postgres', q{SELECT (SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'item'), (SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'item_changed')}) };

	my $first = $plan->($items);
	like($first, qr/SEQSCAN/, 'the first run reads all of the table');
	unlike($first, qr/:indexid $index\b/, 'without the index');
	is(job($node)->{rows_written}, 20000, 'all rows');
	my $before = $scans->();
	for my $query ($items, "$items ORDER BY id", "WITH w AS ($items) SELECT * FROM w;", 'SELECT * FROM item_view -- of it',
		'SELECT i.id, i.v, i.changed FROM item AS i JOIN item AS other USING (id)', "$items UNION ALL $items WHERE id = 0")
	{
		my $later = $plan->($query);
		like($later, qr/INDEXSCAN.*:indexid $index\b/s, 'by the index');
		unlike($later, qr/SEQSCAN/, 'and not all of the table') unless $query =~ /JOIN/;
		is(job($node)->{rows_written}, 5, 'the rows of the overlap');
		is(job($node)->{query}, $query, 'the view shows the query as it was');
	}
	my ($seq_before, $idx_before) = split /\|/, $before;
	my ($seq, $idx) = split /\|/, $scans->();
	cmp_ok($idx - $idx_before, '>=', 6, 'PostgreSQL has counted scans of the index');
	is($seq, $seq_before, 'and none of the table');
	$session->quit;
};

# ---- Rows that come late ---------------------------------------------------------------------------------------------

subtest 'a row that is committed late' => sub {
	my $late = session($node);
	newer($node, $items, $_) for 'late', 'never';
	$late->query(q{BEGIN; INSERT INTO item VALUES (30001, 'late')});
	$node->safe_psql('postgres', q{INSERT INTO item VALUES (30002, 'in time')});
	$redis->cli('DEL', 'k:30001', 'k:30002');
	newer($node, $items, 'late');
	newer($node, $items, 'never', overlap => q{'0'});
	is($redis->cli('EXISTS', 'k:30001', 'k:30002'), 1, 'the one is there, the other is not');
	my $mark = mark('late');
	$late->query('COMMIT');
	cmp_ok($node->safe_psql('postgres', "SELECT changed < '$mark' FROM item WHERE id = 30001"), 'eq', 't', 'it is below the mark');
	newer($node, $items, 'never', overlap => q{'0'});
	is($redis->cli('EXISTS', 'k:30001'), 0, 'without an overlap it is lost');
	newer($node, $items, 'late');
	is($redis->cli('HGET', 'k:30001', 'v'), 'late', 'with an overlap the next run has it');
	is(mark('late'), $mark, 'and the mark is the same');
	$late->quit;
};

my $old = qr/WARNING:  a transaction that has been writing for 00:00:\d\d is older than the overlap/;

subtest 'transactions that are older than the overlap' => sub {
	my $writer = session($node);
	my @run = ($items, 'writers', overlap => q{'1 s'});
	newer($node, @run);
	my $quiet = sub {
		my ($what) = @_;
		my $err;
		my $log = logged(sub { (undef, $err) = newer($node, @run) });
		unlike("$err$log", qr/WARNING/, "no warning: $what");
	};
	my $warned = sub {
		my ($what, $where) = @_;
		my $err;
		my $log = logged(sub { (undef, $err) = newer($where // $node, @run) });
		my $job = job($node)->{job};
		for my $told ([ 'who waits', $err ], [ 'the log', $log ])
		{
			like($told->[1], qr/$old\n.*DETAIL:  Rows that it has stamped may be missed by the exports that follow export job $job\.\n.*HINT:  Raise overlap/, "$what: $told->[0] is told");
		}
	};
	my $aged = sub { poll_until($node, 'SELECT now() - xact_start > \'1.5 s\' FROM pg_stat_activity WHERE pid = ' . $_[0]->pid) };

	$quiet->('nobody writes');
	$writer->query('BEGIN; SELECT count(*) FROM item');
	$aged->($writer);
	$quiet->('it only reads');
	$writer->query(q{INSERT INTO item VALUES (30003, 'slow')});
	$warned->('now it writes');
	my $alice = session($node, user => 'alice');
	$warned->('as seen by a role without rights', $alice);
	$alice->quit;
	my ($out, $err) = newer($node, $items, 'writers');
	unlike($err, $old, 'the usual overlap is longer');
	is(mark('writers', 'rows'), job($node)->{rows_written}, 'the mark has moved all the same');
	$writer->query('ROLLBACK');
	$quiet->('it has ended');

	$writer->query(q{BEGIN; INSERT INTO item VALUES (30004, 'prepared'); PREPARE TRANSACTION 'prepared'});
	poll_until($node, q{SELECT now() - prepared > '1.5 s' FROM pg_prepared_xacts});
	$warned->('one that is prepared');
	$writer->query(q{ROLLBACK PREPARED 'prepared'});
	$quiet->('it is no more');
	$writer->quit;

	$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
	$writer = session($node, dbname => 'elsewhere');
	$writer->query('CREATE TABLE t (); BEGIN; INSERT INTO t DEFAULT VALUES');
	$aged->($writer);
	$quiet->('one of another database');
	$writer->query(q{PREPARE TRANSACTION 'elsewhere'});
	poll_until($node, q{SELECT now() - prepared > '1.5 s' FROM pg_prepared_xacts});
	$quiet->('one of another database that is prepared');
	$writer->query(q{ROLLBACK PREPARED 'elsewhere'});
	$writer->quit;
};

subtest 'by the order of the column\'s collation' => sub {
	plan skip_all => 'this PostgreSQL has no ICU' if sql_error($node, q{CREATE COLLATION numbers (provider = icu, locale = 'en-u-kn')});
	$node->safe_psql('postgres', 'CREATE TABLE word (id int, v text, changed text COLLATE numbers)');
	my @run = ('SELECT * FROM word', 'words', overlap => q{'0'}, key_template => 'w:#{id}');
	$node->safe_psql('postgres', q{INSERT INTO word VALUES (1, '', 'v9'), (2, '', 'v10'), (3, '', 'v2')});
	newer($node, @run);
	is(mark('words'), 'v10', 'the highest');
	$node->safe_psql('postgres', q{INSERT INTO word VALUES (4, '', 'v11'), (5, '', 'v8'), (6, '', 'v9999')});
	newer($node, @run);
	is(join(' ', sort $redis->cli('--scan', '--pattern', 'w:*')), 'w:1 w:2 w:3 w:4 w:6', 'and what is above it');
	is(mark('words'), 'v9999', 'the next');
};

subtest 'a database in another encoding' => sub {
	$node->safe_psql('postgres', q{CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'});
	my $session = session($node, dbname => 'latin');
	$session->query(q{SET client_encoding = 'UTF8'; CREATE EXTENSION redis_export; CREATE TABLE word (id int, "würz" text); INSERT INTO word VALUES (1, 'a'), (2, 'ä')});
	$session->query('CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (host \'127.0.0.1\', port \'' . $redis->port . '\')');
	my $run = sub { return $session->query(hash_sql('SELECT * FROM word', 'é:#{id}', watermark_column => q{'würz'}, mark => q{'märk'}, overlap => q{'0'})) };
	like($run->(), qr/\|done$/, 'the first run');
	is(join(' ', mark('märk'), mark('märk', 'column'), mark('märk', 'key_template')), 'ä würz é:#{id}', 'in Redis all is UTF-8');
	$session->query(q{INSERT INTO word VALUES (3, 'z'), (4, 'ö')});
	like($run->(), qr/\|done$/, 'the next');
	is($session->query('SELECT rows_read FROM redis_export_progress ORDER BY job DESC LIMIT 1'), 1, 'goes on from there');
	is($session->query(q{SELECT value, "column", rows FROM redis_export_marks('redis') WHERE mark = 'märk'}), 'ö|würz|1', 'and here it is text');
	is($session->query(q{SELECT redis_export_reset_mark('redis', 'märk', 'ü')}) . mark('märk'), 'tü', 'set to another');
	$redis->cli('HSET', 'redis_export:{märk}', 'value', '€');
	like(($session->send(hash_sql('SELECT * FROM word', 'é:#{id}', watermark_column => q{'würz'}, mark => q{'märk'}, overlap => q{'0'}))->wait)[1],
		qr/ERROR:  a mark in Redis is no text in the encoding of this database/, 'what it has no text for');
	$redis->cli('DEL', 'redis_export:{märk}');
	$session->quit;
};

# ---- When the mark moves ---------------------------------------------------------------------------------------------

subtest 'a job that does not get to its end' => sub {
	my $slow = "$items WHERE id <= 20000";
	my %pace = (rate => 200, batch => 20, overlap => q{'10 days'});
	newer($node, $slow, 'stays');
	my $before = $redis->cli('HGETALL', 'redis_export:{stays}');
	like($before, qr/^2026-01-14 21:20:00\+00$/m, 'a mark');
	my $same = sub { is($redis->cli('HGETALL', 'redis_export:{stays}'), $before, "the mark is what it was: $_[0]") };

	my $id = begin_job($node, newer_sql($slow, 'stays', %pace));
	until_written($node, $id, 40);
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled');
	$same->('cancelled');

	$id = begin_job($node, newer_sql($slow, 'stays', %pace));
	until_written($node, $id, 40);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM redis_export_progress WHERE job = $id");
	job_ends($node, $redis, $id, state => 'failed');
	$same->('terminated');

	my $session = session($node);
	$id = next_job($node, sub { $session->send(newer_sql($slow, 'stays', %pace)) });
	until_written($node, $id, 40);
	$session->kill_client;
	job_ends($node, $redis, $id, state => 'canceled');
	$same->('who waited has gone');

	my ($out, $err) = newer($node, 'SELECT nullif(id, 20000) AS id, v, changed FROM item WHERE id <= 20000', 'stays');
	like($err, qr/ERROR:  row 5 with key "k:" failed/, 'a row fails');
	$same->('a row has failed');

	my $log = logged(sub { (undef, $err) = newer($node, 'SELECT nullif(id, 20000) AS id, v, changed FROM item WHERE id <= 20000', 'stays', on_error => q{'ignore'}) });
	$id = job($node)->{job};
	is(job($node)->{state} . job($node)->{rows_failed}, 'done1', 'a row that fails is ignored');
	like($_, qr/WARNING:  the mark of export job $id stays where it was\n.*DETAIL:  Rows failed\.\n.*HINT:  The next export with this mark writes/, 'a warning') for $err, $log;
	$same->('a failed row was left out');

	$redis->cli('SET', 'k:19999', 'a string');
	newer($node, $slow, 'stays', on_error => q{'ignore'});
	is(job($node)->{state} . job($node)->{rows_failed}, 'done1', 'a row that Redis refuses is ignored');
	$same->('so it is');
	$redis->cli('DEL', 'k:19999');

	# the server goes down with it
	$id = begin_job($node, newer_sql($slow, 'stays', %pace));
	until_written($node, $id, 40);
	kill 'KILL', job($node, $id)->{pid};
	eval { $locker->wait };
	poll_until($node, 'SELECT count(*) = 0 FROM redis_export_progress');
	$same->('killed');
	$locker = session($node);

	newer($node, $slow, 'stays');
	isnt($redis->cli('HGETALL', 'redis_export:{stays}'), $before, 'then it moves');
};

subtest 'two runs with one mark' => sub {
	$node->safe_psql('postgres', q{CREATE TABLE few (id int, v text, changed timestamptz); INSERT INTO few SELECT i, '', timestamptz '2026-02-01' + i * interval '1 hour' FROM generate_series(1, 10) i});
	my $few = 'SELECT id, v, changed FROM few';
	my $session = session($node);
	for my $first (1, 0)
	{
		my $mark = "both$first";
		newer($node, "$few WHERE id <= 5", $mark) unless $first;
		$node->safe_psql('postgres', 'DELETE FROM few WHERE id > 10');
		lock_gate();
		$session->send(newer_sql(gated($few), $mark));
		until_at_gate();
		$node->safe_psql('postgres', q{INSERT INTO few VALUES (11, '', '2026-03-01')});
		newer($node, $few, $mark);
		my $fast = $redis->cli('HGETALL', "redis_export:{$mark}");
		like($fast, qr/^2026-03-01 00:00:00\+00$/m, 'the fast one');
		open_gate();
		my ($out, $err) = $session->wait;
		like($out, qr/\|done$/, 'the slow one is done');
		unlike($err, qr/WARNING/, 'and warns of nothing');
		is($redis->cli('HGETALL', "redis_export:{$mark}"), $fast, 'it does not take the mark back');
	}

	# the slow one is the further one
	newer($node, "$few WHERE id <= 3", 'further');
	lock_gate();
	$session->send(newer_sql(gated($few), 'further'));
	until_at_gate();
	newer($node, "$few WHERE id <= 5", 'further');
	like(mark('further'), qr/^2026-02-01 05:/, 'the fast one has moved it');
	open_gate();
	$session->wait;
	like(mark('further'), qr/^2026-03-01 /, 'the slow one moves it on');

	for my $reset ([ 'set back', q{'2026-02-01 02:00+00'}, '2026-02-01 02:00:00+00' ], [ 'forgotten', 'NULL', '' ])
	{
		newer($node, "$few WHERE id <= 3", 'reset');
		lock_gate();
		$session->send(newer_sql(gated($few), 'reset'));
		until_at_gate();
		is($node->safe_psql('postgres', "SELECT redis_export_reset_mark('redis', 'reset', $reset->[1])"), 't', "it is $reset->[0] meanwhile");
		open_gate();
		like(($session->wait)[1], qr/WARNING:  the mark of export job \d+ stays where it was\n.*DETAIL:  It was reset while/, 'that is told');
		is(mark('reset'), $reset->[2], 'and counts');
	}
	$session->quit;
};

# ---- Redis -----------------------------------------------------------------------------------------------------------

subtest 'Redis is frozen when the mark is to be written' => sub {
	add_server($node, $redis, name => 'hasty', timeout => 1, connect_timeout => 1);
	my @run = (gated("SELECT id, v, changed FROM few WHERE id > 20"), 'frozen', server => q{'hasty'});
	newer($node, 'SELECT id, v, changed FROM few', 'frozen');
	my $before = $redis->cli('HGETALL', 'redis_export:{frozen}');
	lock_gate();
	my $id = begin_job($node, newer_sql(@run));
	until_at_gate();
	$redis->freeze;
	open_gate();
	poll_until($node, "SELECT state = 'retrying' FROM redis_export_progress WHERE job = $id");
	$redis->thaw;
	job_ends($node, $redis, $id, state => 'done', error => qr/no answer for 1 seconds/);
	is(mark('frozen'), ($before =~ /^value\n(.*)$/m)[0], 'the value is the same');
	is(mark('frozen', 'rows'), 0, 'it was written');

	lock_gate();
	$before = $redis->cli('HGETALL', 'redis_export:{frozen}');
	$id = begin_job($node, newer_sql(@run, retry_timeout => q{'2 s'}));
	until_at_gate();
	$redis->freeze;
	open_gate();
	poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	$redis->thaw;
	job_ends($node, $redis, $id, state => 'failed', error => qr/no answer for 1 seconds/);
	is($redis->cli('HGETALL', 'redis_export:{frozen}'), $before, 'for ever: the mark is what it was');
};

subtest 'Redis is restarted before the mark is written' => sub {
	my $few = 'SELECT id, v, changed FROM few';
	my $session = session($node);
	for my $first (1, 0)
	{
		newer($node, "$few WHERE id <= 5", 'restarted') unless $first;
		lock_gate();
		$session->send(newer_sql(gated($few), 'restarted'));
		until_at_gate();
		$redis->kill9->start;
		open_gate();
		my ($out, $err) = $session->wait;
		like($out, qr/\|done$/, 'the job is done');
		like($err, qr/WARNING:  the mark of export job \d+ stays where it was\n.*DETAIL:  Redis may have lost rows/, 'and tells that the mark stays');
		is($redis->cli('EXISTS', 'redis_export:{restarted}'), 0, 'there is none in an empty Redis');
		newer($node, $few, 'restarted');
		is(job($node)->{rows_written}, 11, 'so the next run writes all');
		is(mark('restarted', 'rows'), 11, 'and has its mark');
		$redis->cli('FLUSHALL');
	}
	$session->quit;
};

# What hangs up when the mark comes, once. Its answer to INFO is that of another process then, or of the same.
subtest 'the connection is lost while the mark is written' => sub {
	for my $other (0, 1)
	{
		my $fake = RedisExport::Fake->new(all => sub {
			my ($fake, $client, @words) = @_;
			my $id = $other && $fake->{hung_up} ? 'e' x 40 : 'f' x 40;
			my $info = "run_id:$id\r\nloading:0\r\nevicted_keys:0\r\n";
			return '$' . length($info) . "\r\n$info" if $words[0] eq 'INFO';
			return ':1' if $words[0] eq 'HSET' && $words[2] eq 'begun' && ($fake->{begun} = $words[3]);
			return "*9\r\n" . join "\r\n", ('$-1') x 8, $fake->{begun} ? '$' . length($fake->{begun}) . "\r\n$fake->{begun}" : '$-1' if $words[0] eq 'HMGET';
			return CLOSE if $words[0] eq 'HSET' && $words[1] =~ /^redis_export:/ && !$fake->{hung_up}++;
			return $words[0] eq 'HSET' ? ':1' : '+OK';
		});
		add_server($node, $fake, name => "fake$other");
		my ($out, $err) = newer($node, 'SELECT id, v, changed FROM few', 'fake', server => "'fake$other'");
		like($out, qr/\|done$/, 'the job is done');
		my @marks = grep { $_->{words}[1] eq 'redis_export:{fake}' && $_->{words}[2] ne 'begun' } $fake->commands('HSET');
		my @rows = grep { $_->{words}[1] =~ /^k:/ } $fake->commands('HSET');
		is(@rows, 11, 'all rows were sent once');
		is(@marks, $other ? 1 : 2, $other ? 'the mark is not sent to a Redis that was restarted' : 'the mark is sent again');
		$other ? like($err, qr/stays where it was/, 'and that is told') : unlike($err, qr/stays where it was/, 'and all is well');
		$fake->stop;
	}
};

subtest 'a Redis Cluster' => sub {
	my $cluster = RedisExport::Cluster->new;
	my @nodes = $cluster->nodes;
	add_server($node, $cluster, name => 'cluster');
	# a mark for each node
	my @marks = map { my ($at, $n) = ($_, 0); $n++ until $cluster->holder("redis_export:{m$n}") == $at; "m$n" } @nodes;
	for my $i (0 .. 2)
	{
		my @run = ("$items WHERE id BETWEEN 19000 AND 20000", $marks[$i], server => q{'cluster'});
		like(newer($node, @run), qr/\|done$/, 'the first run');
		is(job($node)->{rows_written}, 1001, 'all rows');
		is(mark_in($nodes[$i], $marks[$i]), '2026-01-14 21:20:00+00', 'the mark is on its node');
		newer($node, @run);
		is(job($node)->{rows_written}, 5, 'the next run');
		is(errors($_, 'MOVED'), 0, 'without detours') for @nodes;
	}
	is($node->safe_psql('postgres', q{SELECT string_agg(mark, ' ' ORDER BY mark), min(value), max(rows) FROM redis_export_marks('cluster')}),
		join(' ', sort @marks) . '|2026-01-14 21:20:00+00|5', 'all marks of all nodes');
	for my $mark (@marks)
	{
		is($node->safe_psql('postgres', "SELECT redis_export_reset_mark('cluster', '$mark', '2026-01-14 21:19+00')"), 't', 'reset');
		is(mark_in($cluster->holder("redis_export:{$mark}"), $mark), '2026-01-14 21:19:00+00', 'on its node');
		is($node->safe_psql('postgres', "SELECT redis_export_reset_mark('cluster', '$mark')"), 't', 'forgotten');
		is(mark_in($cluster->holder("redis_export:{$mark}"), $mark), '', 'also there');
	}
};

# ---- A replica -------------------------------------------------------------------------------------------------------

subtest 'on a replica' => sub {
	$node->backup('base');
	my $replica = PostgreSQL::Test::Cluster->new('replica');
	$replica->init_from_backup($node, 'base', has_streaming => 1);
	$replica->start;
	$node->wait_for_catchup($replica);
	$redis->cli('FLUSHALL');
	my $query = "$items WHERE id <= 20000 OR id > 40000";
	like(newer($replica, $query, 'replica'), qr/\|done$/, 'the first run');
	is(job($replica)->{rows_written}, 20000, 'all rows');
	is(mark('replica'), '2026-01-14 21:20:00+00', 'the mark');
	$node->safe_psql('postgres', q{INSERT INTO item VALUES (40001, 'new')});
	$node->wait_for_catchup($replica);
	newer($replica, $query, 'replica');
	is(job($replica)->{rows_written}, 6, 'the next run');
	is($redis->cli('HGET', 'k:40001', 'v'), 'new', 'has the new row');
	newer($node, $query, 'replica');
	is(job($node)->{rows_written}, 1, 'one on the primary goes on from there');
	is($replica->safe_psql('postgres', q{SELECT count(*), redis_export_reset_mark('redis', 'replica') FROM redis_export_marks('redis')}), '1|t', 'marks are seen and reset');
	$replica->stop;
};

$locker->quit;
done_testing;
