# Runs with rows => 'new': the plan uses the index, rows that are committed late are not lost, and the mark moves only when all that it
# says is in Redis. What arguments, types and queries do is in sql/watermark.sql.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Cluster;
use RedisExport::Fake;
use RedisExport::Named;

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
	GRANT EXECUTE ON PROCEDURE redis_export_run TO alice});

# The statement that runs an export of this name for rows that are newer; it is defined before, if it is not yet, in this session.
sub newer_sql
{
	my ($where, $query, $name, %arguments) = @_;
	my $template = delete $arguments{key_template} // "$name:#{id}";
	return run_sql($where, $name, $query, $template, type => q{'hash'}, watermark_column => q{'changed'}, rows => q{'new'}, %arguments);
}

# Runs it; returns what CALL returns, and what was told besides.
sub newer
{
	my ($where, @arguments) = @_;
	my $sql = newer_sql($where->can('send') ? $where : $node, @arguments);
	my ($out, $err) = $where->can('send') ? $where->send($sql)->wait : ($where->psql('postgres', $sql))[ 1, 2 ];
	return wantarray ? ($out, $err) : $out;
}

# Of the record in Redis.
sub mark_in { my ($from, $name, $field) = @_; return scalar $from->cli('HGET', "redis_export:{$name}", $field // 'mark') }
sub mark { return mark_in($redis, @_) }
sub marked { my ($name) = @_; return join ' ', $redis->cli('HMGET', "redis_export:{$name}", qw(mark mark_type mark_column mark_at)) }

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
		my $log = logged(sub { like(newer($session, $query, 'plan', %arguments), qr/\|done\|/, "done: $query") });
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
		is(job($node)->{rows_read}, 5, 'the rows of the overlap');
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
	newer($node, $items, 'late');
	newer($node, $items, 'never', overlap => q{'0'});
	is($redis->cli('EXISTS', "$_:30001") . $redis->cli('EXISTS', "$_:30002"), '01', "$_: the one is not there, the other is") for 'late', 'never';
	my $mark = mark('late');
	$late->query('COMMIT');
	cmp_ok($node->safe_psql('postgres', "SELECT changed < '$mark' FROM item WHERE id = 30001"), 'eq', 't', 'it is below the mark');
	newer($node, $items, 'never', overlap => q{'0'});
	is($redis->cli('EXISTS', 'never:30001'), 0, 'without an overlap it is lost');
	newer($node, $items, 'late');
	is($redis->cli('HGET', 'late:30001', 'v'), 'late', 'with an overlap the next run has it');
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
		newer_sql($node, @run);
		my $log = logged(sub { (undef, $err) = $where ? $where->send(q{CALL redis_export_run('writers', rows => 'new')})->wait : newer($node, @run) });
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
	my $owner = sub { $node->safe_psql('postgres', "UPDATE redis_export_definition SET owner = '$_[0]' WHERE name = 'writers'") };
	my $alice = session($node, user => 'alice');
	$owner->('alice');
	$warned->('as seen by a role without rights', $alice);
	$alice->quit;
	$owner->('postgres');
	my $before = mark('writers', 'mark_at');
	my ($out, $err) = newer($node, $items, 'writers');
	unlike($err, $old, 'the usual overlap is longer');
	isnt(mark('writers', 'mark_at'), $before, 'the mark has moved all the same');
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
	my @run = ('SELECT * FROM word', 'words', key_template => 'w:#{id}');
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
	my $sql = run_sql($session, 'märk', 'SELECT * FROM word', 'é:#{id}', type => q{'hash'}, watermark_column => q{'würz'}, rows => q{'new'});
	like($session->query($sql), qr/\|done\|/, 'the first run');
	is(join(' ', mark('märk'), mark('märk', 'mark_column'), $redis->cli('SMEMBERS', 'redis_export:exports') =~ /^(märk)$/m), 'ä würz märk', 'in Redis all is UTF-8');
	$session->query(q{INSERT INTO word VALUES (3, 'z'), (4, 'ö')});
	like($session->query($sql), qr/\|done\|1\|1\|/, 'the next goes on from there');
	$session->query(q{SELECT redis_export_set_mark('märk', 'ü')});
	is(mark('märk'), 'ü', 'set to another');
	$redis->cli('HSET', 'redis_export:{märk}', 'mark', '€');
	like(($session->send($sql)->wait)[1], qr/ERROR:  the mark in Redis contains bytes that are not valid in the encoding of this database\n.*DETAIL:  It is ".*"/, 'what it has no text for');
	$redis->cli('DEL', 'redis_export:{märk}');
	$session->quit;
};

# ---- When the mark moves ---------------------------------------------------------------------------------------------

subtest 'a job that does not get to its end' => sub {
	my $slow = 'SELECT id, clock_timestamp() AS v, changed FROM item WHERE id <= 20000';
	my %pace = (rate => 200, batch => 20, overlap => q{'10 days'});
	newer($node, $slow, 'stays');
	my $before = marked('stays');
	like($before, qr/^2026-01-14 21:20:00\+00 timestamp with time zone changed 2/, 'a mark');
	my $same = sub { is(marked('stays'), $before, "the mark is what it was: $_[0]") };

	my $id = begin_job($node, newer_sql($node, $slow, 'stays', %pace));
	until_written($node, $id, 40);
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled');
	$same->('cancelled');

	$id = begin_job($node, newer_sql($node, $slow, 'stays', %pace));
	until_written($node, $id, 40);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM redis_export_progress WHERE job = $id");
	job_ends($node, $redis, $id, state => 'failed');
	$same->('terminated');

	my $session = session($node);
	$id = next_job($node, sub { $session->send(newer_sql($node, $slow, 'stays', %pace)) });
	until_written($node, $id, 40);
	$session->kill_client;
	job_ends($node, $redis, $id, state => 'canceled');
	$same->('who waited has gone');

	my ($out, $err) = newer($node, 'SELECT nullif(id, 20000) AS id, v, changed FROM item WHERE id <= 20000', 'stays');
	like($err, qr/ERROR:  row 5 with key "stays:" failed/, 'a row fails');
	$same->('a row has failed');

	my $log = logged(sub { (undef, $err) = newer($node, 'SELECT nullif(id, 20000) AS id, v, changed FROM item WHERE id <= 20000', 'stays', on_error => q{'ignore'}) });
	$id = job($node)->{job};
	is(job($node)->{state} . job($node)->{rows_failed}, 'done1', 'a row that fails is ignored');
	like($_, qr/WARNING:  the mark of export job $id stays where it was\n.*DETAIL:  Rows failed\.\n.*HINT:  The next run with rows => 'new' writes/, 'a warning') for $err, $log;
	$same->('a failed row was left out');

	$redis->cli('SET', 'stays:19999', 'a string');
	newer($node, $slow, 'stays', on_error => q{'ignore'});
	is(job($node)->{state} . job($node)->{rows_failed}, 'done1', 'a row that Redis refuses is ignored');
	$same->('so it is');
	$redis->cli('DEL', 'stays:19999');

	# the server goes down with it
	$id = begin_job($node, newer_sql($node, $slow, 'stays', %pace));
	until_written($node, $id, 40);
	kill 'KILL', job($node, $id)->{pid};
	eval { $locker->wait };
	poll_until($node, 'SELECT count(*) = 0 FROM redis_export_progress');
	$same->('killed');
	$locker = session($node);
	$redis->cli('DEL', 'redis_export:{stays}:lease');    # which is that of a server that is no more

	newer($node, $slow, 'stays');
	isnt(marked('stays'), $before, 'then it moves');
};

subtest 'a mark is set when nothing runs' => sub {
	$node->safe_psql('postgres', q{CREATE TABLE few (id int, v text, changed timestamptz); INSERT INTO few SELECT i, '', timestamptz '2026-02-01' + i * interval '1 hour' FROM generate_series(1, 10) i});
	my $few = 'SELECT id, v, changed FROM few';
	newer($node, "$few WHERE id <= 3", 'set');
	my $before = marked('set');
	my $session = session($node);
	my $sql = newer_sql($node, gated($few), 'set');
	lock_gate();
	$session->send($sql);
	until_at_gate();
	for my $mark (q{'2026-02-01 02:00+00'}, 'NULL')
	{
		like(sql_error($node, "SELECT redis_export_set_mark('set', $mark)", verbose => 1), qr/ERROR:  55006: export "set" is running already/, "set to $mark while a run has it");
		is(marked('set'), $before, 'it is what it was');
	}
	open_gate();
	like(($session->wait)[0], qr/\|done\|8\|/, 'the run goes on');
	like(mark('set'), qr/^2026-02-01 10:/, 'and moves it');
	$node->safe_psql('postgres', q{SELECT redis_export_set_mark('set', '2026-02-01 07:00+00')});
	is(mark('set'), '2026-02-01 07:00:00+00', 'then it is set back');
	newer($node, $few, 'set', overlap => q{'0'});
	is(job($node)->{rows_read}, 3, 'and the next run begins there');
	$node->safe_psql('postgres', q{SELECT redis_export_set_mark('set', NULL)});
	is($redis->cli('HEXISTS', 'redis_export:{set}', 'mark'), 0, 'or forgotten');
	newer($node, $few, 'set');
	is(job($node)->{rows_read}, 10, 'and the next run reads all');
	$session->quit;
};

# ---- Redis -----------------------------------------------------------------------------------------------------------

subtest 'Redis is frozen when the mark is to be written' => sub {
	add_server($node, $redis, name => 'hasty', timeout => 1, connect_timeout => 1);
	my @run = (gated("SELECT id, v, changed FROM few WHERE id > 20"), 'frozen', server => q{'hasty'});
	newer($node, 'SELECT id, v, changed FROM few', 'frozen');
	my $before = mark('frozen');
	lock_gate();
	my $id = begin_job($node, newer_sql($node, @run));
	until_at_gate();
	$redis->freeze;
	open_gate();
	poll_until($node, "SELECT state = 'retrying' FROM redis_export_progress WHERE job = $id");
	$redis->thaw;
	job_ends($node, $redis, $id, state => 'done', error => qr/no answer for 1 seconds/);
	is(mark('frozen'), $before, 'the value is the same');
	is(mark('frozen', 'rows_read'), 0, 'it was written');

	lock_gate();
	$before = marked('frozen') . mark('frozen', 'ended_at');
	$id = begin_job($node, newer_sql($node, @run, retry_timeout => q{'2 s'}));
	until_at_gate();
	$redis->freeze;
	open_gate();
	poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	$redis->thaw;
	job_ends($node, $redis, $id, state => 'failed', error => qr/no answer for 1 seconds/);
	is(marked('frozen') . mark('frozen', 'ended_at'), $before, 'for ever: the mark is what it was');
};

subtest 'Redis is restarted before the mark is written' => sub {
	my $few = 'SELECT id, v, changed FROM few';
	my $session = session($node);
	for my $first (1, 0)
	{
		newer($node, "$few WHERE id <= 5", 'restarted') unless $first;
		my $sql = newer_sql($node, gated($few), 'restarted');
		lock_gate();
		$session->send($sql);
		until_at_gate();
		$redis->kill9->start;
		open_gate();
		my ($out, $err) = $session->wait;
		like($out, qr/\|done\|/, 'the job is done');
		like($err, qr/WARNING:  the mark of export job \d+ stays where it was\n.*DETAIL:  Redis may have lost rows/, 'and tells that the mark stays');
		is($redis->cli('HEXISTS', 'redis_export:{restarted}', 'mark'), 0, 'there is none in an empty Redis');
		$redis->cli('DEL', 'restarted:1');
		newer($node, $few, 'restarted');
		is(job($node)->{rows_read}, 10, 'so the next run reads all');
		is(redis_keys_count($redis, 'restarted:*'), 10, 'and writes what is gone');
		like(mark('restarted'), qr/^2026-02-01 10:/, 'and has its mark');
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
			if (is_of_record(@words))
			{
				if ($words[0] eq 'HSET' && (grep { $_ eq 'mark' } @words) && !$fake->{hung_up}++)
				{
					delete $fake->{records} if $other;
					return CLOSE;
				}
				return record_does($fake, @words);
			}
			if ($words[0] eq 'MULTI') { $client->{queued} = 0; return '+OK' }
			return '*' . delete($client->{queued}) . "\r\n:1\r\n:1" if $words[0] eq 'EXEC' && defined $client->{queued};
			return $words[0] eq 'DISCARD' && delete $client->{queued} ? '+OK' : '+OK' if $words[0] =~ /^(?:DISCARD|CLIENT)$/;
			return '+none' if $words[0] eq 'TYPE';
			return ':0' if $words[0] eq 'HLEN';
			return '$-1' if $words[0] eq 'HGET';
			return ++$client->{queued} ? '+QUEUED' : '' if defined $client->{queued};
			return ':1';
		});
		add_server($node, $fake, name => "fake$other");
		my ($out, $err) = newer($node, 'SELECT id, v, changed FROM few', "fake$other", server => "'fake$other'");
		like($out, qr/\|done\|/, 'the job is done');
		my @marks = grep { my $command = $_; grep { $_ eq 'mark' } @{ $command->{words} } } $fake->commands('HSET');
		my @rows = grep { $_->{words}[1] =~ /^fake\d:/ } $fake->commands('HSET');
		is(@rows, 10, 'all rows were sent once');
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
		like(newer($node, @run), qr/\|done\|/, 'the first run');
		is(job($node)->{rows_written}, 1001, 'all rows');
		is(mark_in($nodes[$i], $marks[$i]), '2026-01-14 21:20:00+00', 'the mark is on its node');
		newer($node, @run);
		is(job($node)->{rows_read}, 5, 'the next run');
		is(errors($_, 'MOVED'), 0, 'without detours') for @nodes;
	}
	for my $mark (@marks)
	{
		$node->safe_psql('postgres', "SELECT redis_export_set_mark('$mark', '2026-01-14 21:19+00')");
		is(mark_in($cluster->holder("redis_export:{$mark}"), $mark), '2026-01-14 21:19:00+00', 'set, on its node');
		$node->safe_psql('postgres', "SELECT redis_export_set_mark('$mark', NULL)");
		is(mark_in($cluster->holder("redis_export:{$mark}"), $mark), '', 'forgotten, also there');
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
	my $run = newer_sql($node, $query, 'replica');
	$node->wait_for_catchup($replica);
	like($replica->safe_psql('postgres', $run), qr/\|done\|20000\|20000\|/, 'the first run: all rows');
	is(mark('replica'), '2026-01-14 21:20:00+00', 'the mark');
	$node->safe_psql('postgres', q{INSERT INTO item VALUES (40001, 'new')});
	$node->wait_for_catchup($replica);
	like($replica->safe_psql('postgres', $run), qr/\|done\|6\|1\|5\|/, 'the next run');
	is($redis->cli('HGET', 'replica:40001', 'v'), 'new', 'has the new row');
	like($node->safe_psql('postgres', $run), qr/\|done\|1\|0\|1\|/, 'one on the primary goes on from there');
	$replica->safe_psql('postgres', q{SELECT redis_export_set_mark('replica', NULL)});
	is(mark('replica'), '', 'a mark is forgotten from there');
	$replica->stop;
};

$locker->quit;
done_testing;
