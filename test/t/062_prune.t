# A run with prune => true, and what becomes of the books: what rows that come meanwhile, other sessions, faults of Redis, a cluster and
# a replica of PostgreSQL do to it. What one session sees of it is in sql/prune.sql.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Cluster;
use RedisExport::Jobs qw(next_job until_state no_worker_left session_poll);
use RedisExport::Proxy;

# A line to Redis with tripwires: when the client says a word, it stalls in front of it, cuts the line in front of it, or passes on what
# came with it and cuts the line then, so that Redis has it and its answers are lost. Each snaps once: ->set('HSCAN', 'stall').
package Tripwire
{
	use Socket qw(MSG_PEEK);
	our @ISA = ('RedisExport::Proxy');

	my @actions = qw(stall cut pass_and_cut);

	sub set
	{
		my ($self, $word, $action) = @_;
		return $self->raise("$action.$word");
	}

	sub snapped { my ($self, $word) = @_; return $self->flag("snapped.$word") }
	sub reset   { my ($self) = @_; unlink glob "$self->{dir}/*.flag"; return $self }

	sub _pass
	{
		my ($self, $pair, $from) = @_;
		return $self->SUPER::_pass($pair, $from) if $from != $pair->{client};
		recv $from, my $bytes, 65536, MSG_PEEK;
		for my $action (@actions)
		{
			for my $flag (glob "$self->{dir}/$action.*.flag")
			{
				my ($word) = $flag =~ /\.(\w+)\.flag$/;
				next unless ($bytes // '') =~ /\r\n$word\r\n/;
				unlink $flag;
				$self->raise('stall') if $action eq 'stall';
				$self->SUPER::_pass($pair, $from) if $action eq 'pass_and_cut';
				$self->raise("snapped.$word");
				return $action eq 'stall';
			}
		}
		return $self->SUPER::_pass($pair, $from);
	}
}

package main;

# Far below the timeout of the foreign server (60 s), after which the worker would do something by itself.
my $SOON = 50;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, allows_streaming => 1,
	conf => "redis_export.notice_interval = 0\nmax_worker_processes = 20\nlog_temp_files = 0\nautovacuum = off\n");
my $line = Tripwire->new($redis);
add_server($node, $line, name => 'line');
add_server($node, $line, name => 'hasty', timeout => 1);

# A query that waits at lock 1.
$node->safe_psql('postgres', q{
	CREATE TABLE shop (id int PRIMARY KEY);
	CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM pg_advisory_lock_shared(1);
			PERFORM pg_advisory_unlock_shared(1);
			RETURN true;
		END $$});

my $shop = 'SELECT id FROM shop';
my $gated = 'SELECT id FROM shop WHERE (SELECT gate())';
my $holder = session($node);

sub close_gate { my ($number) = @_; return $holder->query("SELECT pg_advisory_lock($number)") }
sub open_gate  { my ($number) = @_; return $holder->query("SELECT pg_advisory_unlock($number)") }

sub until_at_gate
{
	my ($number, $at) = @_;
	return poll_until($at // $node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $number AND NOT granted");
}

# The statement that runs an export. Its name is the first letter of the template; it is defined the first time, and then changed, so that
# its books stay.
sub run_sql
{
	my ($query, $template, %arguments) = @_;
	my $name = substr $template, 0, 1;
	my %defined = (server => delete $arguments{server} // "'redis'", wait_index => delete $arguments{wait_index} // 'NULL');
	$node->safe_psql('postgres', qq{
		SELECT redis_export_define('$name', \$query\$$query\$query\$, '$template', type => 'hash', server => $defined{server})
			WHERE NOT EXISTS (SELECT FROM redis_export_definition WHERE name = '$name');
		UPDATE redis_export_definition SET query = \$query\$$query\$query\$, key_template = '$template', server = $defined{server}, wait_index = $defined{wait_index} WHERE name = '$name'});
	my $more = join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
	return "CALL redis_export_run('$name'$more)";
}

# By default all rows are written.
sub prune_sql
{
	my ($query, $template, %arguments) = @_;
	return run_sql($query, $template, rows => "'all'", prune => 'true', prune_limit => 1, %arguments);
}

sub begin_prune { return begin_job($node, prune_sql(@_)) }

# The table holds these ids, and Redis keys for those, which are in the books.
sub rows_and_keys
{
	my ($prefix, $rows, $from, $to) = @_;
	$node->safe_psql('postgres', "TRUNCATE shop; INSERT INTO shop SELECT generate_series(1, $rows)");
	fill($redis, $prefix, $from, $to);
	return;
}

sub fill
{
	my ($at, $prefix, $from, $to) = @_;
	return $at->cli('EVAL', q{for i = ARGV[2], ARGV[3] do redis.call('HSET', ARGV[1] .. i, 'id', i) redis.call('HSET', ARGV[4], ARGV[1] .. i, '') end return 1},
		0, $prefix, $from, $to, books($prefix));
}

sub books { my ($prefix) = @_; return 'redis_export:{' . substr($prefix, 0, 1) . '}:keys' }

# The number of entries in them.
sub kept { my ($at, $prefix) = @_; return $at->cli('HLEN', books($prefix)) }

# Numbers in order, as ranges: 1-10 12
sub ranges
{
	my @ranges;
	for my $id (sort { $a <=> $b } @_)
	{
		@ranges && $ranges[-1][1] == $id - 1 ? $ranges[-1][1] = $id : push @ranges, [ $id, $id ];
	}
	return join ' ', map { $_->[0] == $_->[1] ? $_->[0] : "$_->[0]-$_->[1]" } @ranges;
}

sub ids
{
	my ($at, $prefix) = @_;
	return ranges(map { s/^\Q$prefix\E//r } $at->cli('KEYS', "$prefix*"));
}

sub adds_up_ok
{
	my ($row) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($read, $sum) = ($row->{rows_read}, 0);
	$sum += $row->{$_} for qw(rows_written rows_unchanged rows_failed rows_skipped rows_in_doubt);
	return is($sum, $read, "the rows of job $row->{job} add up");
}

# Waits for the end of a job, and sees how it has ended: its state, its columns, and its error, or that it has none.
sub ended
{
	my ($id, $state, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $at = delete $expected{at} // $node;
	my $error = delete $expected{error};
	poll_until($at, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	my $row = job($at, $id);
	is($row->{state}, $state, "job $id is $state") or diag $row->{last_error};
	like($row->{last_error} // '', $error // qr/^$/, 'its error');
	is($row->{$_}, $expected{$_}, "$_ is $expected{$_}") for sort keys %expected;
	adds_up_ok($row);
	return $row;
}

sub soon
{
	my ($name, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $begun = time;
	$code->();
	return cmp_ok(time - $begun, '<', $SOON, "$name: soon");
}

sub until_ended { my ($id) = @_; return poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id") }

# Redis has taken all that was on its way to it.
sub until_no_client
{
	my ($at) = @_;
	return wait_for('the connection is gone', sub { !grep { /name=redis_export/ } $at->cli('CLIENT', 'LIST') });
}

# The line of a job before must not trip.
sub trip
{
	my ($word, $action) = @_;
	$line->reset;
	until_no_client($redis);
	return $line->set($word, $action);
}

# ---- Rows that come and go -------------------------------------------------------------------------------------------

# Row 50 comes after the snapshot, and somebody else has written its key. Row 7 goes after it: its key has just been written, and stays
# until the next time.
for my $level ('read committed', 'repeatable read', 'serializable')
{
	subtest "rows that come and go meanwhile: $level" => sub {
		$redis->cli('FLUSHALL');
		rows_and_keys('p:', 10, 90, 99);
		$node->safe_psql('postgres', "ALTER DATABASE postgres SET default_transaction_isolation = '$level'");
		close_gate(1);
		my $id = begin_prune($gated, 'p:#{id}');
		until_at_gate(1);
		$node->safe_psql('postgres', 'INSERT INTO shop VALUES (50); DELETE FROM shop WHERE id = 7');
		$redis->cli('HSET', 'p:50', 'id', 50);
		open_gate(1);
		ended($id, 'done', rows_read => 10, rows_written => 10, keys_deleted => 10);
		is(ids($redis, 'p:'), '1-10 50', 'what others have written is there, those of no row are not');
		ended(begin_prune($shop, 'p:#{id}'), 'done', rows_written => 10, keys_deleted => 1);
		is(ids($redis, 'p:'), '1-6 8-10 50', 'the next time that of the row that went goes');
		is(kept($redis, 'p:'), 10, 'there is an entry for each key');
		$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET default_transaction_isolation');
	};
}

sub has_snapshot
{
	my ($id) = @_;
	return $node->safe_psql('postgres', "SELECT backend_xmin IS NOT NULL FROM pg_stat_activity WHERE pid = (SELECT pid FROM redis_export_progress WHERE job = $id)");
}

# All that waits for Redis does so without one: it shall not hold back vacuum.
subtest 'when the query is not run there is no snapshot' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('p:', 30, 90, 119);
	my $slow = begin_prune($shop, 'p:#{id}', rate => 25, batch => 10);
	until_state($node, $slow, 'finishing');
	is(has_snapshot($slow), 'f', 'when the last answers are awaited');
	poll_until($node, "SELECT keys_deleted > 0 FROM redis_export_progress WHERE job = $slow");
	is(has_snapshot($slow), 'f', 'when keys are deleted');
	ended($slow, 'done', rows_written => 30, keys_deleted => 30);

	$redis->cli('FLUSHALL');
	rows_and_keys('p:', 10, 90, 99);
	trip('HSCAN', 'stall');
	my $id = begin_prune($shop, 'p:#{id}', server => "'line'");
	wait_for('it searches', sub { $line->snapped('HSCAN') });
	is(has_snapshot($id), 'f', 'when the books are read');
	my $row = job($node, $id);
	is("$row->{state} $row->{rows_written} $row->{keys_deleted}", 'pruning 10 0', 'which is pruning, with all rows written');
	$line->reset;
	ended($id, 'done', rows_read => 10, rows_written => 10, keys_deleted => 10);
};

# ---- What ends it ----------------------------------------------------------------------------------------------------

my $by_user = qr/canceling statement due to user request/;
my $by_admin = qr/due to administrator command/;

# A job that reads the books of a Redis that does not answer. It has 100 rows, and 300 keys have none.
sub frozen_search
{
	rows_and_keys('f:', 100, 1001, 1300);
	trip('HSCAN', 'stall');
	my $id = begin_prune($shop, 'f:#{id}', server => "'line'");
	wait_for('it searches', sub { $line->snapped('HSCAN') });
	return $id;
}

# A job that has sent what deletes 3000 keys to a Redis that does not answer. It has 100 rows.
sub frozen_deletes
{
	rows_and_keys('f:', 100, 1001, 4000);
	trip('UNLINK', 'stall');
	my $id = begin_prune($shop, 'f:#{id}', server => "'line'");
	wait_for('it deletes', sub { $line->snapped('UNLINK') });
	poll_until($node, "SELECT wait_event_type = 'Extension' FROM redis_export_progress JOIN pg_stat_activity USING (pid) WHERE job = $id");
	my $row = job($node, $id);
	is("$row->{state} $row->{rows_written}", 'pruning 100', 'it waits for Redis, all rows are written');
	return $id;
}

# What was left is pruned the next time.
sub next_prunes
{
	my ($name) = @_;
	until_no_client($redis);
	my $left = redis_keys_count($redis, 'f:*') - 100;
	my $row = ended(begin_prune($shop, 'f:#{id}', if_running => q{'wait'}), 'done', rows_written => 100, keys_deleted => $left);
	is(ids($redis, 'f:'), '1-100', "$name: the next run prunes");
	return $left;
}

subtest 'cancelled or terminated while it searches' => sub {
	my $id = frozen_search();
	is(job($node, $id)->{state}, 'pruning', 'the view shows what it does');
	soon 'cancel', sub { $node->safe_psql('postgres', "SELECT redis_export_cancel($id)"); until_ended($id) };
	$line->reset;
	ended($id, 'canceled', error => qr/^the export was canceled by role/, rows_written => 100, keys_deleted => 0);
	is(redis_keys_count($redis, 'f:*'), 400, 'nothing is deleted');

	$id = frozen_search();
	soon 'terminate', sub { $node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . job($node, $id)->{pid} . ')'); until_ended($id) };
	$line->reset;
	ended($id, 'failed', error => $by_admin, rows_written => 100, keys_deleted => 0);
	no_worker_left($node);
	is(next_prunes('then'), 300, 'nothing was deleted');
};

subtest 'cancelled or terminated while Redis is frozen and keys are deleted' => sub {
	$redis->cli('FLUSHALL');
	my $id = frozen_deletes();
	soon 'cancel', sub { $node->safe_psql('postgres', "SELECT redis_export_cancel($id)"); until_ended($id) };
	$line->reset;
	ended($id, 'canceled', error => qr/^the export was canceled by role/, rows_read => 100, rows_written => 100, rows_in_doubt => 0);
	cmp_ok(next_prunes('after a cancel'), '>', 0, 'not all were gone');

	$id = frozen_deletes();
	soon 'terminate', sub { $node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . job($node, $id)->{pid} . ')'); until_ended($id) };
	$line->reset;
	ended($id, 'failed', error => $by_admin, rows_read => 100, rows_written => 100, rows_in_doubt => 0);
	cmp_ok(next_prunes('after a terminate'), '>', 0, 'not all were gone');
};

subtest 'fast shutdown while Redis is frozen and keys are deleted' => sub {
	$redis->cli('FLUSHALL');
	my $id = frozen_deletes();
	$holder->quit;
	soon 'pg_ctl stop -m fast', sub { $node->stop('fast') };
	$line->reset;
	like(slurp_file($node->logfile), qr/LOG:  export job $id to server "line" failed: 100 rows written, 0 failed, 0 in doubt.*\n.*DETAIL:  terminating background worker .* $by_admin/,
		'the log has the ledger');
	$node->start;
	is(scalar(() = glob $node->data_dir . '/base/pgsql_tmp/*'), 0, 'no temporary file is left');
	$holder = session($node);
	cmp_ok(next_prunes('after a restart'), '>', 0, 'not all were gone');
};

# Who only looks does it in the session, and can be cancelled there.
subtest 'redis_export_verify and redis_export_preview while Redis is frozen' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('f:', 100, 1001, 1010);
	$node->safe_psql('postgres', run_sql($shop, 'f:#{id}'));
	for my $sql (q{SELECT * FROM redis_export_verify('f')}, q{SELECT * FROM redis_export_preview('f', prune => true)})
	{
		my $session = session($node);
		my $before = $session->query($sql);
		$redis->freeze;
		$session->send($sql);
		poll_until($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $session->{pid}");
		soon 'pg_cancel_backend', sub { $node->safe_psql('postgres', "SELECT pg_cancel_backend($session->{pid})"); like(($session->wait)[1], qr/ERROR:  $by_user/, $sql) };
		$redis->thaw;
		is($session->query($sql), $before, 'then it can');
		$session->quit;
		until_no_client($redis);
	}
};

# ---- The connection --------------------------------------------------------------------------------------------------

# Those whose answers were lost are there no more when they are sent again, and yet are pruned by this job.
subtest 'the line is cut while keys are deleted' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('c:', 100, 1001, 3000);
	trip('UNLINK', 'pass_and_cut');
	my $row = ended(begin_prune($shop, 'c:#{id}', server => "'line'"), 'done', error => qr/^lost the connection/, rows_written => 100, keys_deleted => 2000);
	cmp_ok($row->{reconnects}, '>=', 1, 'it came back');
	is(ids($redis, 'c:'), '1-100', 'the keys are gone');

	rows_and_keys('c:', 100, 1001, 2500);
	my $id = begin_prune($shop, 'c:#{id}', rate => 1000, batch => 50);
	poll_until($node, "SELECT keys_deleted >= 200 FROM redis_export_progress WHERE job = $id");
	is(job($node, $id)->{state}, 'pruning', 'some are gone already');
	$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	$row = ended($id, 'done', error => qr/^lost the connection/, rows_written => 100, keys_deleted => 1500);
	cmp_ok($row->{reconnects}, '>=', 1, 'after CLIENT KILL, too');
	is(ids($redis, 'c:'), '1-100', 'the keys are gone');
};

subtest 'the line is cut while Redis is searched' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('c:', 100, 1001, 1300);
	trip('HSCAN', 'cut');
	like(sql_error($node, prune_sql($shop, 'c:#{id}', server => "'line'")),
		qr/^ERROR:  could not read the books of the export: lost the connection to Redis server "line".*\nDETAIL:  Export job \d+: 100 rows read, 100 written, 0 failed/, 'an error, and how far it came');
	ended(job($node)->{job}, 'failed', error => qr/^could not read the books of the export: lost the connection to Redis server "line"/, rows_written => 100, keys_deleted => 0);
	is(redis_keys_count($redis, 'c:*'), 400, 'nothing is deleted');

	trip('HSCAN', 'stall');
	ended(begin_prune($shop, 'c:#{id}', server => "'hasty'"), 'failed', error => qr/could not read the books of the export: lost the connection .*: no answer for 1 second/, rows_written => 100, keys_deleted => 0);
	$line->reset;
	is(redis_keys_count($redis, 'c:*'), 400, 'nor by a job that Redis did not answer in time');

	like(sql_error($node, prune_sql($shop, 'c:#{id}', server => "'line'")), qr/^$/, 'the next one can');
	is(ids($redis, 'c:'), '1-100', 'prune');
};

subtest 'Redis is killed and started again' => sub {
	my $kept = RedisExport::Redis->new(conf => { appendonly => 'yes', appendfsync => 'always' });
	add_server($node, $kept, name => 'kept');
	fill($kept, 'c:', 1001, 2500);
	my $id = begin_prune($shop, 'c:#{id}', server => "'kept'", rate => 1000, batch => 50);
	poll_until($node, "SELECT keys_deleted >= 200 FROM redis_export_progress WHERE job = $id");
	$kept->kill9;
	until_state($node, $id, 'retrying');
	$kept->start;
	ended($id, 'done', error => qr/./, rows_written => 100, keys_deleted => 1500, redis_restarts => 1);
	is(ids($kept, 'c:'), '1-100', 'the keys are gone');

	fill($kept, 'c:', 1001, 1300);
	my $line = Tripwire->new($kept);
	add_server($node, $line, name => 'line_to_kept');
	$line->set('HSCAN', 'stall');
	$id = begin_prune($shop, 'c:#{id}', server => "'line_to_kept'");
	wait_for('it searches', sub { $line->snapped('HSCAN') });
	$kept->kill9;
	$line->reset;
	ended($id, 'failed', error => qr/could not read the books of the export: lost the connection/, rows_written => 100, keys_deleted => 0);
	$kept->start;
	is(redis_keys_count($kept, 'c:*'), 400, 'killed while it is searched: nothing is deleted');
	$kept->stop;
};

# The line is cut when no row has been acknowledged for longer than retry_timeout, but keys have been deleted all the time.
subtest 'deleted keys count as progress' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('z:', 1, 1001, 1300);
	my $id = begin_prune($shop, 'z:#{id}', rate => 100, batch => 10, retry_timeout => "'1 s'");
	poll_until($node, "SELECT keys_deleted >= 200 FROM redis_export_progress WHERE job = $id");
	$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	my $row = ended($id, 'done', error => qr/^lost the connection/, rows_written => 1, keys_deleted => 300);
	is($row->{reconnects}, 1, 'it came back');
};

# ---- Never after -----------------------------------------------------------------------------------------------------

subtest 'rows that fail' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('n:', 10, 90, 99);
	my $one_fails = 'SELECT CASE WHEN id <> 3 THEN id END AS id FROM shop';
	my ($status, undef, $err) = $node->psql('postgres', prune_sql($one_fails, 'n:#{id}', on_error => "'ignore'"));
	is($status, 0, 'left out: no error');
	my $row = job($node);
	like($err, qr/^(?:psql:\S+ )?WARNING:  nothing was pruned by export job $row->{job}, since rows have failed$/m, 'the caller hears that nothing was pruned');
	like(slurp_file($node->logfile), qr/WARNING:  nothing was pruned, since rows have failed/, 'so does the log');
	ended($row->{job}, 'done', error => qr/NULL/i, rows_written => 9, rows_failed => 1, keys_deleted => 0);
	is(redis_keys_count($redis, 'n:*'), 19, 'and nothing was');

	# one that Redis refuses
	$redis->cli('SET', 'n:3', 'no hash');
	$redis->cli('DEL', 'n:1');
	(undef, undef, $err) = $node->psql('postgres', prune_sql($shop, 'n:#{id}', on_error => "'ignore'"));
	like($err, qr/WARNING:  nothing was pruned by export job/, 'rows that Redis refuses: the same');
	ended(job($node)->{job}, 'done', error => qr/WRONGTYPE/, rows_written => 9, rows_failed => 1, keys_deleted => 0);
	is(redis_keys_count($redis, 'n:*'), 20, 'and nothing was');

	# the first one ends it
	ended(begin_prune($shop, 'n:#{id}'), 'failed', error => qr/WRONGTYPE/, rows_failed => 1, keys_deleted => 0);
	is(redis_keys_count($redis, 'n:*'), 20, 'nor by a job that has failed');

	# nor does the query's own error, after the last row
	ended(begin_prune('SELECT id FROM shop WHERE id <> 3 UNION ALL SELECT 1 / (count(*) - 10)::int FROM shop', 'n:#{id}'),
		'failed', error => qr/division by zero/, keys_deleted => 0);
	is(redis_keys_count($redis, 'n:*'), 20, 'nor by one whose query has');

	$redis->cli('DEL', 'n:3');
	ended(begin_prune($shop, 'n:#{id}'), 'done', rows_written => 10, keys_deleted => 10);
	is(ids($redis, 'n:'), '1-10', 'but by one that wrote all');
};

subtest 'a job that is cancelled before it has written all' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('n:', 1000, 1001, 1010);
	my $id = begin_prune($shop, 'n:#{id}', rate => 100, batch => 10);
	poll_until($node, "SELECT rows_written >= 20 FROM redis_export_progress WHERE job = $id");
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	ended($id, 'canceled', error => qr/canceled by role/, keys_deleted => 0);
	like(ids($redis, 'n:'), qr/ 1001-1010$/, 'nothing is deleted');
};

subtest 'more than prune_limit' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('n:', 90, 1001, 1010);
	fill($redis, 'n:', 2001, 2001);
	like(sql_error($node, prune_sql($shop, 'n:#{id}', prune_limit => 0.1), verbose => 1),
		qr/ERROR:  54000: prune would delete 11 of 101 keys, more than prune_limit 0\.1 allows\nDETAIL:  All rows are written, and nothing is deleted\.\nExport job \d+: 90 rows read, 90 written/,
		'an error');
	ended(job($node)->{job}, 'failed', error => qr/^prune would delete 11 of 101 keys/, rows_written => 90, keys_deleted => 0);
	is(redis_keys_count($redis, 'n:*'), 101, 'nothing at all is deleted');
	$redis->cli('DEL', 'n:2001');
	$redis->cli('HDEL', books('n:'), 'n:2001');
	ended(begin_prune($shop, 'n:#{id}', prune_limit => 0.1, rows => "'changed'"), 'done', rows_written => 0, rows_unchanged => 90, keys_deleted => 10);
};

# ---- Replicas and indexes of Redis -----------------------------------------------------------------------------------

subtest 'wait_replicas' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('CONFIG', 'SET', 'repl-diskless-sync-delay', 0);
	my $replica = RedisExport::Redis->new(conf => { replicaof => '127.0.0.1 ' . $redis->port });
	wait_for('the replica is in step', sub { ($replica->info('master_link_status') // '') eq 'up' });
	rows_and_keys('r:', 100, 1001, 3000);
	trip('HSCAN', 'stall');
	my $id = begin_prune($shop, 'r:#{id}', wait_replicas => 1, server => "'line'");
	wait_for('it searches', sub { $line->snapped('HSCAN') });
	$replica->freeze;
	$line->reset;
	until_state($node, $id, 'retrying');
	my $row = job($node, $id);
	is("$row->{rows_written} $row->{keys_deleted}", '100 0', 'a replica that is frozen: no key counts as pruned');
	like($row->{last_error}, qr/^only 0 of 1 replicas of Redis have acknowledged/, 'and the view says why');
	$replica->thaw;
	ended($id, 'done', error => qr/^only 0 of 1/, rows_written => 100, keys_deleted => 2000);
	$redis->freeze;
	is(ids($replica, 'r:'), '1-100', 'what the job has deleted, the replica has');
	$redis->thaw;
	$replica->stop;
};

subtest 'wait_index' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('i:', 100, 1001, 1900);
	is($redis->cli(qw(FT.CREATE idx ON HASH PREFIX 1 i: SCHEMA id NUMERIC)), 'OK', 'an index');
	my $found = sub { return ($redis->cli('FT.SEARCH', 'idx', '@id:[1001 2000]', 'LIMIT', 0, 0))[0] };
	wait_for('it has all', sub { $found->() == 900 });
	my $session = session($node);
	like($session->query(prune_sql($shop, 'i:#{id}', wait_index => "'idx'")), qr/\|done\|/, 'the job is done');
	is($found->(), 0, 'searches do not find them any more');
	is(($redis->cli('FT.SEARCH', 'idx', '*', 'LIMIT', 0, 0))[0], 100, 'but the others');
	ended(job($node)->{job}, 'done', rows_written => 100, keys_deleted => 900);
	$session->quit;
	$redis->cli('FT.DROPINDEX', 'idx');
};

# ---- Other sessions --------------------------------------------------------------------------------------------------

# The worker has the table's lock to its end, so what wants the table for itself waits.
subtest 'ALTER TABLE meanwhile' => sub {
	$redis->cli('FLUSHALL');
	my $id = frozen_search();
	my $session = session($node);
	$session->send('ALTER TABLE shop ADD more int');
	my $pid = job($node, $id)->{pid};
	poll_until($node, "SELECT pg_blocking_pids($session->{pid}) = ARRAY[$pid]");
	is(job($node, $id)->{state}, 'pruning', 'it waits for the worker');
	$line->reset;
	ended($id, 'done', rows_written => 100, keys_deleted => 300);
	is(($session->wait)[1], '', 'which does not wait for it');
	is(ids($redis, 'f:'), '1-100', 'the keys are gone');
	$session->quit;
};

subtest 'rate' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('r:', 20, 1001, 1400);
	my $begun = time;
	my $id = begin_prune($shop, 'r:#{id}', rate => 200, batch => 20);
	poll_until($node, "SELECT keys_deleted >= 20 FROM redis_export_progress WHERE job = $id");
	cmp_ok(redis_keys_count($redis, 'r:*'), '>', 20, 'it goes on');
	ended($id, 'done', rows_written => 20, keys_deleted => 400);
	cmp_ok($node->safe_psql('postgres', "SELECT extract(epoch FROM finished_at - started_at) FROM redis_export_progress WHERE job = $id"), '>', 1.9,
		'420 rows and keys took the time of 420 rows');

	fill($redis, 'r:', 1001, 1400);
	$id = begin_prune($shop, 'r:#{id}', rate => 10, batch => 5);
	poll_until($node, "SELECT keys_deleted >= 2 FROM redis_export_progress WHERE job = $id");
	is($node->safe_psql('postgres', "SELECT redis_export_set_rate($id, NULL)"), 't', 'which can be changed while keys are deleted');
	soon 'and then', sub { ended($id, 'done', keys_deleted => 400) };
};

# ---- Memory ----------------------------------------------------------------------------------------------------------

subtest '300,000 keys with a work_mem of 1 MB' => sub {
	$redis->cli('FLUSHALL');
	$node->safe_psql('postgres', 'TRUNCATE shop; INSERT INTO shop SELECT generate_series(1, 150000)');
	my $prefix = 'k' x 200 . ':';
	fill($redis, $prefix, 1, 300_000);
	my $session = session($node);
	$session->query("SET work_mem = '1MB'");
	my $kb = sub { return (eval { slurp_file("/proc/$_[0]/status") } // '') =~ /^RssAnon:\s*(\d+)/m ? $1 : 0 };
	my $sql = prune_sql($gated, "$prefix#{id}");
	close_gate(1);
	my $id = next_job($node, sub { $session->send($sql) });
	until_at_gate(1);
	my $pid = job($node, $id)->{pid};
	my $most = my $before = $kb->($pid);
	open_gate(1);
	while ($session->busy)
	{
		my $now = $kb->($pid);
		$most = $now if $now > $most;
		sleep 0.01;
	}
	$session->wait;
	ended($id, 'done', rows_written => 150_000, keys_deleted => 150_000);
	is(redis_keys_count($redis, "$prefix*"), 150_000, 'the keys are gone');
	is(kept($redis, $prefix), 150_000, 'and their entries');
	cmp_ok($before, '>', 0, 'the memory of the worker');
	cmp_ok($most - $before, '<', 64 * 1024, 'grows by less than 64 MB') or diag "from $before to $most kB";
	note "from $before to $most kB";
	like(slurp_file($node->logfile), qr/temporary file: path "base\/pgsql_tmp\/pgsql_tmp$pid\.\d+", size/, 'keys were on disk');
	is(scalar(() = glob $node->data_dir . '/base/pgsql_tmp/*'), 0, 'and are not any more');
	$session->quit;
	$redis->cli('FLUSHALL');
};

# ---- A replica of PostgreSQL -----------------------------------------------------------------------------------------

subtest 'on a hot standby' => sub {
	$redis->cli('FLUSHALL');
	rows_and_keys('s:', 100, 1001, 1300);
	$node->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = 1s\nhot_standby_feedback = off\nwal_receiver_status_interval = 1s\ndefault_transaction_isolation = 'repeatable read'\n");
	$standby->start;
	$node->wait_for_catchup($standby);

	# it is defined on the primary
	my $begin_there = sub { my $sql = prune_sql(@_); $node->wait_for_catchup($standby); return begin_job($standby, $sql) };

	# a row that comes after the snapshot, by replication
	my $holder_there = session($standby);
	$holder_there->query('SELECT pg_advisory_lock(1)');
	my $id = $begin_there->($gated, 's:#{id}');
	until_at_gate(1, $standby);
	$node->safe_psql('postgres', 'INSERT INTO shop VALUES (1050)');
	$node->wait_for_catchup($standby);
	$holder_there->query('SELECT pg_advisory_unlock(1)');
	ended($id, 'done', at => $standby, rows_written => 100, keys_deleted => 300);
	is(ids($redis, 's:'), '1-100', 'it prunes what has no row there');

	# what takes the table for itself on the primary
	fill($redis, 's:', 2001, 2300);
	trip('HSCAN', 'stall');
	$id = $begin_there->($shop, 's:#{id}', server => "'line'");
	wait_for('it searches', sub { $line->snapped('HSCAN') });
	is(job($standby, $id)->{state}, 'pruning', 'it prunes');
	$node->safe_psql('postgres', 'ALTER TABLE shop ADD even_more int');
	soon 'recovery goes on', sub { $node->wait_for_catchup($standby, 'replay') };
	$line->reset;
	ended($id, 'failed', at => $standby, error => qr/conflict with recovery/, rows_written => 101, keys_deleted => 0);
	is(redis_keys_count($redis, 's:*'), 401, 'a conflict with recovery: nothing is deleted');
	ended($begin_there->($shop, 's:#{id}'), 'done', at => $standby, rows_written => 101, keys_deleted => 300);
	$holder_there->quit;
	$standby->stop;
};

# ---- A cluster -------------------------------------------------------------------------------------------------------

my $cluster = RedisExport::Cluster->new(replicas => 1, timeout => 1000, conf => { appendonly => 'yes', 'appendfsync' => 'no' });
add_server($node, $cluster, name => 'cluster', timeout => 2);
my @cluster = (server => "'cluster'");

sub cluster_ids
{
	my ($prefix) = @_;
	return ranges(map { /^\Q$prefix\E(\d+)$/ ? $1 : () } $cluster->all_keys);
}

# The number of entries that the books in the cluster hold.
sub entries
{
	my $sum = 0;
	for my $master ($cluster->masters)
	{
		my $raw = $cluster->raw($master);
		$sum += $raw->command('HLEN', $_) for @{ $raw->command('KEYS', 'redis_export:{*}:keys:*') };
	}
	return $sum;
}

sub rows_from_to { my ($from, $to) = @_; return "SELECT i AS id, i AS v FROM generate_series($from, $to) AS i" }

subtest 'all masters of a cluster' => sub {
	like($node->safe_psql('postgres', run_sql(rows_from_to(1, 1500), 'a:#{id}', @cluster)), qr/\|done\|/, 'keys');
	my %before = map { $_->port => $cluster->raw($_)->command('DBSIZE') } $cluster->masters;
	ended(begin_prune(rows_from_to(1, 1000), 'a:#{id}', @cluster), 'done', rows_written => 1000, keys_deleted => 500);
	is(cluster_ids('a:'), '1-1000', 'those that no row has are gone');
	cmp_ok($cluster->raw($_)->command('DBSIZE'), '<', $before{ $_->port }, 'from each master') for $cluster->masters;
	$cluster->flush;

	ended(begin_prune(rows_from_to(1, 600), 'd:#{id}', rows => "'changed'", @cluster), 'done', rows_written => 600, keys_deleted => 0);
	is(entries(), 600, 'there are books');
	ended(begin_prune(rows_from_to(1, 400), 'd:#{id}', rows => "'changed'", @cluster), 'done', rows_unchanged => 400, rows_written => 0, keys_deleted => 200);
	is(cluster_ids('d:'), '1-400', 'the keys are gone');
	is(entries(), 400, 'and their entries');
	ended(begin_prune(rows_from_to(1, 401), 'd:#{id}', rows => "'changed'", @cluster), 'done', rows_unchanged => 400, rows_written => 1, keys_deleted => 0);
	is(cluster_ids('d:'), '1-401', 'so that a row that comes back is written');

	# what is known of the keys there
	run_sql(rows_from_to(3, 401), 'd:#{id}', @cluster);
	my @others = map { "d:x$_" } 1 .. 20;
	for my $key (@others)
	{
		my $master = $cluster->owner(slot_of($key));
		$cluster->raw($master)->command('SET', $key, 1);
	}
	is($node->safe_psql('postgres', q{SELECT expected, missing, different, extra, unknown, extra_keys FROM redis_export_verify('d', 2)}), '399|0|0|2|20|{d:1,d:2}', 'redis_export_verify');

	# without prune what has gone by itself goes out of the books
	my $gone = 0;
	for my $id (1, 2, 5)
	{
		$gone += $cluster->raw($cluster->owner(slot_of("d:$id")))->command('DEL', "d:$id");
	}
	is($gone, 3, 'keys go');
	my $row = ended(begin_job($node, run_sql(rows_from_to(3, 401), 'd:#{id}', @cluster)), 'done', rows_written => 1, rows_unchanged => 398, keys_deleted => 0);
	is(entries(), 399, 'a run without prune takes their entries out of the books');
	$cluster->flush;
};

subtest 'slots move while keys are deleted' => sub {
	my @owners = $cluster->owners;
	my @numbers = map { my $at = $_; my $number = 0; $number++ until $owners[ slot_of("{$number}") ] == $at; $number } $cluster->masters;
	my @tags = map { "{$_}" } @numbers;
	my $array = join ', ', @numbers;
	my $rows = sub { my ($count) = @_; return "SELECT i AS id, (ARRAY[$array])[i % 3 + 1] AS t FROM generate_series(1, $count) AS i" };
	my %common = (rate => 300, batch => 10, @cluster);
	my %extra = (m => [ rows => "'all'" ], n => [ rows => "'changed'" ]);
	like($node->safe_psql('postgres', run_sql($rows->(900), "${_}{#{t}}:#{id}", @cluster, @{ $extra{$_} })), qr/\|done\|/, 'keys') for sort keys %extra;
	my %job = map { $_ => begin_prune($rows->(30), "${_}{#{t}}:#{id}", %common, @{ $extra{$_} }) } sort keys %extra;
	my $list = join ', ', values %job;
	my $session = session($node);
	# a key waits until it has moved with its books: between two moves, keys are deleted
	my $more = sub {
		my $goal = $session->query("SELECT keys_deleted FROM redis_export_progress WHERE job = $job{m}") + 30;
		session_poll($session, "SELECT keys_deleted >= $goal OR finished_at IS NOT NULL FROM redis_export_progress WHERE job = $job{m}");
	};
	my $moves = 0;
	session_poll($session, "SELECT bool_and(keys_deleted > 0) FROM redis_export_progress WHERE job IN ($list)");
	while ($session->query("SELECT bool_and(finished_at IS NULL) FROM redis_export_progress WHERE job IN ($list)") eq 't')
	{
		my $tag = $tags[ $moves++ % 3 ];
		my $slot = slot_of($tag);
		my $from = $cluster->owner($slot);
		my ($to) = grep { $_ != $from } $moves % 2 ? $cluster->masters : reverse $cluster->masters;
		$cluster->begin_move($slot, $from, $to);
		my $some = $cluster->raw($from)->command('CLUSTER', 'GETKEYSINSLOT', $slot, 40);
		$cluster->move_keys($slot, $from, $to, @$some) if @$some;
		$cluster->move_keys($slot, $from, $to);
		$cluster->end_move($slot, $from, $to);
		$more->();
	}
	$session->quit;
	cmp_ok($moves, '>=', 3, 'slots have moved meanwhile');
	my $errors = 0;
	$errors += errors($_, 'MOVED') + errors($_, 'ASK') for $cluster->nodes;
	cmp_ok($errors, '>', 0, 'which the job has met');
	for my $prefix (sort keys %job)
	{
		poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $job{$prefix}");
		my $row = job($node, $job{$prefix});
		is("$row->{state} $row->{keys_deleted}", 'done 870', 'each key is counted once') or diag $row->{last_error};
		is($row->{rows_written} + $row->{rows_unchanged}, 30, 'all rows are there');
		adds_up_ok($row);
		is(ranges(map { /^$prefix\{\d+\}:(\d+)$/ ? $1 : () } $cluster->all_keys), '1-30', 'the keys are gone');
	}
	is(entries(), 60, 'and their entries');
	$cluster->until_ok->flush;
};

# What is read while a slot is on its way may be a part of the books: that is an error, and no key is deleted for it.
subtest 'a slot is on its way when the books are read' => sub {
	like($node->safe_psql('postgres', run_sql(rows_from_to(1, 300), 'b:#{id}', @cluster)), qr/\|done\|/, 'keys');
	my $slot = slot_of('b:200');
	my $from = $cluster->owner($slot);
	my ($to) = grep { $_ != $from } $cluster->masters;
	$cluster->begin_move($slot, $from, $to);
	ended(begin_prune(rows_from_to(1, 199), 'b:#{id}', @cluster), 'failed',
		error => qr/^could not read the books of the export: slots of the Redis Cluster moved/, rows_written => 199, keys_deleted => 0);
	is(cluster_ids('b:'), '1-300', 'nothing is deleted');
	like(sql_error($node, q{SELECT redis_export_verify('b')}), qr/slots of the Redis Cluster moved/, 'redis_export_verify says so, too');
	like(sql_error($node, q{SELECT redis_export_preview('b', prune => true)}), qr/slots of the Redis Cluster moved/, 'and redis_export_preview');
	ended(begin_job($node, run_sql(rows_from_to(1, 199), 'b:#{id}', @cluster)), 'done', rows_unchanged => 199);
	$cluster->move_keys($slot, $from, $to);
	$cluster->end_move($slot, $from, $to);
	$cluster->until_ok;
	is($node->safe_psql('postgres', q{SELECT extra, unknown FROM redis_export_verify('b')}), '101|0', 'then they can be read');
	is($node->safe_psql('postgres', q{SELECT count(*), min(command) FROM redis_export_preview('b', 1000, prune => true) WHERE action = 'prune'}), '101|UNLINK b:200', 'by both');
	ended(begin_prune(rows_from_to(1, 199), 'b:#{id}', @cluster), 'done', keys_deleted => 101);
	is(cluster_ids('b:'), '1-199', 'the keys are gone');
	is(entries(), 199, 'and their entries');
	$cluster->flush;
};

# The master that the options name. With wait_replicas, what was counted is gone from the replica, too.
subtest 'a master is lost while keys are deleted' => sub {
	my ($master) = $cluster->nodes;
	my ($replica) = $cluster->replicas_of($master);
	my ($other) = grep { $_ != $master } $cluster->masters;
	like($node->safe_psql('postgres', run_sql(rows_from_to(1, 1600), 'l:#{id}', @cluster)), qr/\|done\|/, 'keys');
	my $id = begin_prune(rows_from_to(1, 100), 'l:#{id}', wait_replicas => 1, rate => 600, batch => 20, @cluster);
	poll_until($node, "SELECT keys_deleted >= 200 FROM redis_export_progress WHERE job = $id");
	$master->kill9;
	$cluster->ask($other);
	wait_for('the replica takes over', sub { grep { $_ == $replica } $cluster->masters });
	is(job($node, $id)->{finished_at}, undef, 'the job goes on');
	$master->start;                                        # as the replica of its replica
	my $row = ended($id, 'done', error => qr/./, rows_written => 100, keys_deleted => 1500);
	cmp_ok($row->{redis_restarts}, '>=', 1, 'the take-over is told');
	$cluster->until_ok;
	is(cluster_ids('l:'), '1-100', 'the keys are gone');
	$cluster->flush;
};

# Its rows go elsewhere; so must the search.
subtest 'the node that the options name is lost before Redis is searched' => sub {
	my ($named) = $cluster->nodes;
	$cluster->failover($named) if !grep { $_ == $named } $cluster->masters;
	my ($replica) = $cluster->replicas_of($named);
	my ($other) = grep { $_ != $named } $cluster->masters;
	like($node->safe_psql('postgres', run_sql(rows_from_to(1, 600), 'h:#{id}', @cluster)), qr/\|done\|/, 'keys');
	close_gate(1);
	my $id = begin_prune(rows_from_to(1, 300) . ' WHERE (SELECT gate())', 'h:#{id}', @cluster);
	until_at_gate(1);
	$named->kill9;
	$cluster->ask($other);
	wait_for('the replica takes over', sub { grep { $_ == $replica } $cluster->masters });
	open_gate(1);
	ended($id, 'done', error => qr/./, rows_written => 300, keys_deleted => 300);
	is(cluster_ids('h:'), '1-300', 'the keys are gone');
	$named->start;
	$cluster->until_ok->flush;
};

is(scalar(() = glob $node->data_dir . '/base/pgsql_tmp/*'), 0, 'no temporary file is left');
done_testing;
