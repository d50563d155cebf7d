# One run of an export at a time, of all servers that know it: a second one at the same time, on the same server and on a replica; a
# worker or a Redis that stands still for longer than the lease; a worker that is killed. Whatever happens, books and values agree after it.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Cluster;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new(conf => { appendonly => 'yes' });
my $primary = new_node($redis, name => 'primary', allows_streaming => 1, conf => "autovacuum = off\nrestart_after_crash = on\nmax_connections = 50\n");
$primary->safe_psql('postgres', q{
	CREATE TABLE item (id int PRIMARY KEY, n int);
	INSERT INTO item SELECT i, 1 FROM generate_series(1, 2000) AS i;
	SELECT redis_export_define('items', 'SELECT id, n FROM item', 'item:#{id}', type => 'hash', watermark_column => 'n');
});
$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->start;
$primary->wait_for_catchup($replica);

# "job" is what CALL returns first.
sub call { my ($how) = @_; return "CALL redis_export_run('items'" . ($how ? ", $how" : '') . ')' }

my $slowly = q{rows => 'all', batch => 10, rate => 100};

# A run in its midst: its session, and its job.
sub begin_run
{
	my ($node, $how) = @_;
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(call($how // $slowly)) });
	until_written($node, $id, 20);
	return ($session, $id);
}

sub end_run
{
	my ($node, $session, $id) = @_;
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	return ($session->wait)[1];
}

sub lease { return $redis->cli('GET', 'redis_export:{items}:lease') }

# What Redis holds of all rows: how many have this value, and how many entries there are.
sub holding
{
	my ($n) = @_;
	return $redis->cli('EVAL', "local k = 0 for i = 1, 2000 do if redis.call('HGET', 'item:' .. i, 'n') == ARGV[1] then k = k + 1 end end return k", 0, $n)
	  . ' ' . $redis->cli('HLEN', 'redis_export:{items}:keys');
}

# The runs that follow find books and values in agreement: what differs is written, and then nothing.
sub agrees
{
	my ($node, $n) = @_;
	like($node->safe_psql('postgres', call()), qr/\|done\|2000\|/, 'the next run is done');
	is(holding($n), '2000 2000', 'each key has its value, and an entry');
	like($node->safe_psql('postgres', call()), qr/\|done\|2000\|0\|2000\|0\|/, '... and the one after it writes nothing');
	is($node->safe_psql('postgres', q{SELECT missing, different, extra, unknown FROM redis_export_verify('items')}), '0|0|0|0', 'nothing differs');
}

like($primary->safe_psql('postgres', call()), qr/\|done\|2000\|2000\|/, 'the first run');
is(lease(), '', 'a run that is done leaves no lease');
is($redis->cli('HEXISTS', 'redis_export:{items}', 'holder'), 0, '... and no holder');
is((grep { /^unclean:/ } $redis->cli('HKEYS', 'redis_export:{items}')), 0, '... and no stamp that is not clean');

subtest 'a second run at the same time' => sub {
	my ($session, $id) = begin_run($primary);
	my $held = qr/ERROR:  55006: export "items" is running already\nDETAIL:  It is run by role "postgres" in database "postgres" on .*, port @{[ $primary->port ]}, export job $id, since 2.*\nExport job \d+: 0 rows read/;
	for my $node ($primary, $replica)
	{
		my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n" . call());
		like($err, $held, 'fails at once on the ' . $node->name);
		like($err, qr/HINT:  Wait until that run has ended/, 'with a hint');
	}
	my $waiting = session($replica);
	my $job = next_job($replica, sub { $waiting->send(call(q{if_running => 'wait'})) });
	my $given_up = session($replica);
	my $other = next_job($replica, sub { $given_up->send(call(q{if_running => 'wait'})) });
	$replica->safe_psql('postgres', "SELECT redis_export_cancel($other)");
	like(($given_up->wait)[1], qr/the export was canceled/, 'one that waits can be canceled');
	ok($waiting->busy, 'another waits');
	like(end_run($primary, $session, $id), qr/the export was canceled/, 'the first one ends');
	my ($out, $err) = $waiting->wait;
	like($out, qr/^$job\|done\|2000\|/, 'and the one that waited runs');
	agrees($primary, 1);
};

subtest 'a run that was canceled, on the same server: the next one begins at once' => sub {
	my ($session, $id) = begin_run($primary);
	end_run($primary, $session, $id);
	agrees($primary, 1);
};

# Stop a process for longer than the lease of the export: until Redis has let go of it.
sub stop_until_lease_is_gone
{
	my ($pid) = @_;
	kill 'STOP', $pid;
	wait_until('the lease is gone', sub { lease() eq '' });
}

subtest 'a worker that stands still for longer than the lease, and another run meanwhile' => sub {
	my ($session, $id) = begin_run($primary);
	my $pid = $primary->safe_psql('postgres', "SELECT pid FROM redis_export_progress WHERE job = $id");
	stop_until_lease_is_gone($pid);
	$primary->safe_psql('postgres', 'UPDATE item SET n = 2');
	$primary->wait_for_catchup($replica);
	like($replica->safe_psql('postgres', call()), qr/\|done\|2000\|/, 'the run on the replica');
	kill 'CONT', $pid;
	my (undef, $err) = $session->wait;
	like($err, qr/ERROR:  export "items" lost its lease/, 'the first one fails');
	ledger_ok($primary, $id);
	my $old = 2000 - (split / /, holding(2))[0];
	cmp_ok($old, '<=', 20, 'what it had on its way may be late, and nothing more is written');
	agrees($replica, 2);
};

subtest 'a worker that stands still for longer than the lease, and nobody else' => sub {
	$primary->safe_psql('postgres', 'UPDATE item SET n = 3');
	my ($session, $id) = begin_run($primary, q{batch => 10, rate => 1000});
	my $pid = $primary->safe_psql('postgres', "SELECT pid FROM redis_export_progress WHERE job = $id");
	stop_until_lease_is_gone($pid);
	kill 'CONT', $pid;
	my ($out, $err) = $session->wait;
	like($out, qr/^$id\|done\|2000\|2000\|/, 'goes on');
	agrees($primary, 3);
};

subtest 'a Redis that stands still for longer than the lease' => sub {
	$primary->safe_psql('postgres', 'UPDATE item SET n = 4');
	my ($session, $id) = begin_run($primary, q{batch => 10, rate => 1000});
	my $began = time;
	$redis->freeze;
	poll_until($primary, "SELECT state = 'retrying' FROM redis_export_progress WHERE job = $id");
	wait_until('half a minute has gone by', sub { time - $began > 31 });
	$redis->thaw;
	my ($out, $err) = $session->wait;
	like($out, qr/^$id\|done\|2000\|2000\|/, 'the run goes on');
	agrees($primary, 4);
};

subtest 'a query that gives no row for longer than the lease' => sub {
	$primary->safe_psql('postgres', q{
		CREATE FUNCTION hold() RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN 0; END $$;
		SELECT redis_export_define('items', 'SELECT id, n + CASE id WHEN 1 THEN hold() ELSE 0 END AS n FROM item ORDER BY id', 'item:#{id}', type => 'hash', watermark_column => 'n', or_replace => true);
	});
	$primary->wait_for_catchup($replica);
	my $holder = session($primary);
	$holder->query('SELECT pg_advisory_lock(1)');
	my $session = session($primary);
	my $id = next_job($primary, sub { $session->send(call()) });
	wait_until('it has the lease', sub { lease() ne '' });
	wait_until('the lease has run out', sub { lease() eq '' });
	like(sql_error($primary, call()), qr/export "items" is running already/, 'on the same server it is known that it still runs');
	$holder->query('SELECT pg_advisory_unlock(1)');
	my ($out, $err) = $session->wait;
	like($out, qr/^$id\|done\|2000\|/, 'and it goes on when there are rows');
	agrees($primary, 4);
};

# The rows that it has read are those of a snapshot which is older than what the other has written.
subtest 'a query that gives no row for longer than the lease, and another run meanwhile' => sub {
	my $holder = session($primary);
	$holder->query('SELECT pg_advisory_lock(1)');
	my $session = session($primary);
	my $id = next_job($primary, sub { $session->send(call(q{rows => 'all'})) });
	wait_until('it has the lease', sub { lease() ne '' });
	poll_until($primary, q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)});
	$primary->safe_psql('postgres', 'UPDATE item SET n = 6');
	$primary->wait_for_catchup($replica);
	wait_until('the lease has run out', sub { lease() eq '' });
	like($replica->safe_psql('postgres', call()), qr/\|done\|2000\|2000\|/, 'the replica does not know of it, and runs');
	$holder->query('SELECT pg_advisory_unlock(1)');
	like(($session->wait)[1], qr/ERROR:  export "items" lost its lease/, 'it fails when there are rows');
	is(job($primary, $id)->{rows_written}, 0, 'of which none is written');
	is(holding(6), '2000 2000', 'what the other run has written is there');
	agrees($replica, 6);
	$holder->quit;
};

# Books of one name are those of one definition, and their lease, too.
subtest 'an export of the same name in another database' => sub {
	$primary->safe_psql('postgres', 'CREATE DATABASE other');
	$primary->safe_psql('other', 'CREATE EXTENSION redis_export');
	$primary->safe_psql('other', q{CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (host '} . $redis->host . q{', port '} . $redis->port . q{')});
	$primary->safe_psql('other', q{SELECT redis_export_define('items', 'SELECT 1 AS id', 'other:#{id}', type => 'hash')});
	my ($session, $id) = begin_run($primary);
	like(($primary->psql('other', call()))[2], qr/ERROR:  export "items" is running already\n.*DETAIL:  It is run by .* in database "postgres" on .*, export job $id,/, 'is told who runs it');
	end_run($primary, $session, $id);
	like(($primary->psql('other', call()))[2], qr/ERROR:  the books of export "items" in Redis are those of another definition/, '... and then whose it is');
	is(lease(), '', 'and leaves no lease');
	agrees($primary, 6);
};

subtest 'a Redis Cluster, and a failover of the node that has the lease' => sub {
	my $cluster = RedisExport::Cluster->new(replicas => 1);
	add_server($primary, $cluster, name => 'cluster');
	$primary->safe_psql('postgres', q{SELECT redis_export_define('spread', 'SELECT id, n FROM item', 'spread:#{id}', type => 'hash', server => 'cluster')});
	$primary->wait_for_catchup($replica);
	my $key = 'redis_export:{spread}:lease';
	my $run = q{CALL redis_export_run('spread', rows => 'all', batch => 10, rate => 100)};
	my $session = session($primary);
	my $id = next_job($primary, sub { $session->send($run) });
	until_written($primary, $id, 100);
	my $node = $cluster->holder($key);
	like(scalar $node->cli('GET', $key), qr/ $id role "postgres"/, 'it has the lease, on the node of its key');
	my ($other) = $cluster->replicas_of($node);
	$cluster->failover($other);
	like(($_->psql('postgres', $run))[2], qr/ERROR:  export "spread" is running already/, 'after the failover the ' . $_->name . ' sees it') for $primary, $replica;
	$primary->safe_psql('postgres', "SELECT redis_export_set_rate($id, NULL)");
	my ($out) = $session->wait;
	like($out, qr/^$id\|done\|2000\|/, 'the run goes on');
	is($cluster->holder($key), $other, 'on the other node');
	is(scalar $other->cli('GET', $key), '', 'there is no lease any more');
	is((grep { /^unclean:|^holder$/ } $other->cli('HKEYS', 'redis_export:{spread}')), 0, 'and the record says that it ended well');
	like($replica->safe_psql('postgres', q{CALL redis_export_run('spread')}), qr/\|done\|2000\|0\|2000\|/, 'so that the next run writes nothing');
	$_->stop for $cluster->nodes;
};

# An entry says "unchanged" of a key without a row, and Redis has something else: what it says must not be believed when the row comes back.
subtest 'entries of which it is not known any more whether they hold' => sub {
	my $record = 'redis_export:{few}';
	my $run = q{CALL redis_export_run('few')};
	$primary->safe_psql('postgres', q{CREATE TABLE few AS SELECT i AS id, 1 AS n FROM generate_series(1, 3) AS i;
		SELECT redis_export_define('few', 'SELECT id, n FROM few', 'few:#{id}', type => 'hash')});
	my $comes_back = sub {
		my ($lose) = @_;
		$primary->safe_psql('postgres', q{DELETE FROM few WHERE id = 3});
		$redis->cli('HSET', 'few:3', 'n', 999);
		$lose->();
		like($primary->safe_psql('postgres', $run), qr/\|done\|2\|2\|0\|/, 'all rows are written');
		$primary->safe_psql('postgres', q{INSERT INTO few VALUES (3, 1)});
		like($primary->safe_psql('postgres', $run), qr/\|done\|3\|1\|2\|/, 'and later the row that has come back');
		is($redis->cli('HGET', 'few:3', 'n'), 1, 'its value is there');
	};
	$primary->safe_psql('postgres', $run);
	$comes_back->(sub { $redis->cli('DEL', $record) });
	my $era = $redis->cli('HGET', $record, 'era');
	$comes_back->(sub { $redis->cli('HSET', $record, map { (sprintf('unclean:%08x', $_), 'then') } 1 .. 64) });
	isnt($redis->cli('HGET', $record, 'era'), $era, 'after more runs that were not clean than are counted a new era begins');
	is((grep { /^unclean:/ } $redis->cli('HKEYS', $record)), 0, '... in which they mean nothing');

	# It is lost while a run writes: what that run knew is written anew.
	$primary->safe_psql('postgres', q{INSERT INTO few SELECT i, 1 FROM generate_series(4, 500) AS i});
	$redis->cli('HSET', $record, 'unclean:00000001', 'then');
	my $session = session($primary);
	my $id = next_job($primary, sub { $session->send(q{CALL redis_export_run('few', batch => 10, rate => 100)}) });
	until_written($primary, $id, 20);
	$redis->cli('DEL', $record);
	$primary->safe_psql('postgres', "SELECT redis_export_set_rate($id, NULL)");
	like(($session->wait)[0], qr/\|done\|500\|/, 'the run goes on');
	is((grep { /^unclean:/ } $redis->cli('HKEYS', $record)), 1, 'and the record tells again which runs were not clean');
};

subtest 'a worker that is killed' => sub {
	$primary->safe_psql('postgres', 'UPDATE item SET n = 7');
	my ($session, $id) = begin_run($primary);
	my $pid = $primary->safe_psql('postgres', "SELECT pid FROM redis_export_progress WHERE job = $id");
	kill 'KILL', $pid;
	$session->wait;
	wait_until('the server is there again', sub { ($primary->psql('postgres', 'SELECT 1'))[0] == 0 });
	my $run = $redis->cli('HGET', 'redis_export:{items}', 'run');
	is($redis->cli('HEXISTS', 'redis_export:{items}', "unclean:$run"), 1, 'its stamp is none that counts');
	my ($written) = (split / /, holding(7));
	my $row = $primary->safe_psql('postgres', call(q{if_running => 'wait'}));
	like($row, qr/^\d+\|done\|2000\|2000\|0\|/, 'the next run waits for its lease, and writes its rows again');
	agrees($primary, 7);
};

done_testing;
