# Redis Cluster with replicas: masters die, hang, or hand over while rows are exported, and their replicas take over. What else goes
# wrong is in 052_cluster_faults.t.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Cluster;

my $node = new_node(undef, conf => "redis_export.notice_interval = 0\nmax_worker_processes = 20\n");

sub servers
{
	my ($where, $name, %options) = @_;
	add_server($node, $where, name => $name, %options);
	return (server => "'$name'");
}

sub written_at { my ($job, $redis) = @_; return nodes_of($node, $job)->{ $redis->port }{rows_written} // 0 }

# ---- Replicas take over ----------------------------------------------------------------------------------------------

my $cluster = RedisExport::Cluster->new(replicas => 1, timeout => 1000, conf => { appendonly => 'yes' });
my @cluster = servers($cluster, 'cluster', timeout => 2);

subtest 'the host of the options is a replica' => sub {
	my ($replica) = $cluster->replicas_of(($cluster->nodes)[1]);
	like($node->safe_psql('postgres', hash_sql('SELECT i AS id FROM generate_series(1, 300) AS i', 'k:#{id}', servers($replica, 'of_replica'))), qr/\|done$/, 'the export is done');
	is($cluster->dbsize, 300, 'all keys are there');
	is_deeply([ sort keys %{ nodes_of($node, job($node)->{job}) } ], [ sort map { $_->port } $cluster->masters ], 'and were sent to the masters');
	$cluster->flush;
};

# The one that the options lead to. Its replica has not been told of all: it hangs a while, and is cut off. What it lacks is what
# was acknowledged without it.
subtest 'a master is lost, and its replica takes over' => sub {
	my ($master) = $cluster->nodes;
	my @others = grep { $_ != $master } $cluster->masters;
	my ($replica) = $cluster->replicas_of($master);
	my ($at_master, $elsewhere) = $cluster->tags($master, $others[0]);
	my $rows = 'SELECT i AS id, i AS v FROM generate_series(1, 1600) AS i';
	my %common = (exclude => q('{id}'), rate => 400, batch => 20, @cluster);
	my $session = session($node);
	my $fast = next_job($node, sub { $session->send(hash_sql($rows, 'f:#{id}', %common)) });
	my $safe = begin_job($node, hash_sql($rows, 's:#{id}', wait_replicas => 1, %common));
	my $broken_off = begin_job($node, hash_sql($rows, 'b:#{id}', wait_replicas => 1, %common));
	my $list = begin_job($node, command_sql($rows, [ 'RPUSH', 'l:#{id}', '#{v}' ], rate => 400, @cluster));
	# its rows for that master are written before, and it has no more
	my $early = begin_job($node, hash_sql("SELECT i AS id, CASE WHEN i <= 50 THEN '$at_master' ELSE '$elsewhere' END AS t, CASE WHEN i > 50 THEN pg_sleep(0.01)::text END FROM generate_series(1, 500) AS i",
			'e:#{t}#{id}', batch => 10, @cluster));
	wait_for('all have begun', sub { !grep { written_at($_, $master) < 50 } $fast, $safe, $broken_off, $list, $early });

	$replica->freeze;
	$cluster->raw($master)->command('CLIENT', 'KILL', 'TYPE', 'replica');
	my $before = written_at($fast, $master);
	wait_for('rows come that the replica lacks', sub { written_at($fast, $master) > $before + 100 });
	$master->kill9;
	$node->safe_psql('postgres', "SELECT redis_export_cancel($broken_off)");
	$replica->thaw;
	$cluster->ask($others[0]);
	wait_for('the replica takes over', sub { grep { $_ == $replica } $cluster->masters });
	is(job($node, $safe)->{finished_at}, undef, 'the job goes on');
	$master->start;                                        # as the replica of its replica
	$cluster->until_ok;

	my $row = done_ok($node, $safe, 1600, 'with wait_replicas: all rows are written');
	cmp_ok($row->{redis_restarts}, '>=', 1, 'the take-over is told');
	is_deeply([ $cluster->values_of(map { "s:$_" } 1 .. 1600) ], [ 1 .. 1600 ], 'and all are there');
	$row = job($node, $broken_off);
	my $there = grep { /^b:/ } $cluster->all_keys;
	is($row->{state}, 'canceled', 'broken off when the master was lost:');
	ok($there >= $row->{rows_written} && $row->{rows_written} > 0, 'no row that was acknowledged is missing') or diag "$there keys, $row->{rows_written} rows";
	ledger_ok($node, $broken_off);

	my ($out, $err) = $session->wait;
	like($out, qr/\|done$/, 'without wait_replicas it is done, too');
	$row = job($node, $fast);
	is($row->{rows_written}, 1600, 'all rows were acknowledged');
	my $lost = grep { !defined } $cluster->values_of(map { "f:$_" } 1 .. 1600);
	cmp_ok($lost, '>', 0, 'some are lost');
	cmp_ok($row->{redis_restarts}, '>=', 1, 'which is told: in the view');
	like($err, qr/WARNING:  [^\n]*(?:took over|restarted)[^\n]* after \d+ rows/, 'and by a warning');

	$node->safe_psql('postgres', "SELECT redis_export_wait($_, '60 s')") for $list, $early;
	$row = job($node, $list);
	ok($row->{state} eq 'done' || $row->{rows_in_doubt} > 0, 'what must not be sent twice is done, or in doubt');
	my @owners = $cluster->owners;
	is(scalar(grep { $cluster->raw($owners[ slot_of($_) ])->command('LLEN', $_) > 1 } grep { /^l:/ } $cluster->all_keys), 0, 'and is not there twice');
	ledger_ok($node, $list);
	$row = job($node, $early);
	is("$row->{state} $row->{rows_written}", 'done 500', 'one that had no more rows for that master is done');
	cmp_ok($row->{redis_restarts}, '>=', 1, 'and tells that what it had written there may be lost');
	$session->quit;
	$cluster->flush;
};

# Rows with keys that come again and again, while a replica is made the master in an orderly way.
subtest 'a master hands over to its replica' => sub {
	my ($master) = $cluster->masters;
	my ($replica) = $cluster->replicas_of($master);
	my $rows = 'SELECT i, i % 100 AS id, i AS v FROM generate_series(0, 1499) AS i';
	my %common = (rate => 500, batch => 20, @cluster);
	my $hash = begin_job($node, hash_sql($rows, 'h:#{id}', exclude => q('{id,i}'), %common));
	my $held = begin_job($node, hash_sql($rows, 'w:#{id}', exclude => q('{id,i}'), wait_replicas => 1, %common));
	my $timed = begin_job($node, hash_sql($rows, 't:#{id}', exclude => q('{id,i}'), ttl => q{'1 hour'}, %common));
	my $list = begin_job($node, command_sql($rows, [ 'RPUSH', 'l:#{id}', '#{i}' ], %common));
	until_written($node, $_, 200) for $hash, $held, $timed, $list;
	$cluster->failover($replica);
	is(job($node, $hash)->{finished_at}, undef, 'it is done before the rows are');
	done_ok($node, $_, 1500) for $hash, $held, $timed, $list;
	for my $kind ('h', 'w', 't')
	{
		is_deeply([ $cluster->values_of(map { "$kind:$_" } 0 .. 99) ], [ 1400 .. 1499 ], "$kind: for each key the last row");
	}
	is(scalar(grep { $cluster->raw($cluster->holder("t:$_"))->command('TTL', "t:$_") < 3500 } 0 .. 99), 0, 'and the expiry');
	my @wrong = grep { my $id = $_; join(' ', sort { $a <=> $b } @{ $cluster->raw($cluster->holder("l:$id"))->command('LRANGE', "l:$id", 0, -1) }) ne join ' ', map { $_ * 100 + $id } 0 .. 14 } 0 .. 99;
	is_deeply(\@wrong, [], 'what must not be sent twice is there once');
	$cluster->flush;
};

subtest 'a master hangs, and its replica takes over' => sub {
	my ($master) = $cluster->masters;
	my ($replica) = $cluster->replicas_of($master);
	my ($tag) = $cluster->tags($master);
	$cluster->ask(grep { $_ != $master } $cluster->masters);
	my $id = begin_job($node, hash_sql("SELECT i % 50 AS id, i AS v FROM generate_series(0, 1999) AS i", "$tag#{id}", exclude => q('{id}'), rate => 500, batch => 20, @cluster));
	until_written($node, $id, 200);
	$master->freeze;
	wait_for('the replica takes over', sub { grep { $_ == $replica } $cluster->masters });
	wait_for('it has rows', sub { written_at($id, $replica) > 0 });
	$master->thaw;                                         # with rows that it has not looked at yet
	my $row = done_ok($node, $id, 2000);
	cmp_ok($row->{redis_restarts}, '>=', 1, 'the take-over is told');
	$cluster->until_ok;
	is_deeply([ $cluster->values_of(map { "$tag$_" } 0 .. 49) ], [ 1950 .. 1999 ], 'for each key the last row');
	$cluster->flush;
};

subtest 'all nodes are lost, and come back' => sub {
	my $rows = 'SELECT i AS id, i AS v FROM generate_series(1, 2000) AS i';
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(hash_sql($rows, 'k:#{id}', exclude => q('{id}'), rate => 500, batch => 20, @cluster)) });
	until_written($node, $id, 300);
	$_->kill9 for $cluster->nodes;
	until_state($node, $id, 'retrying');
	$_->start for $cluster->nodes;
	$cluster->until_ok;
	my ($out, $err) = $session->wait;
	like($out, qr/\|done$/, 'the job goes on');
	my $row = done_ok($node, $id, 2000);
	cmp_ok($row->{redis_restarts}, '>=', 1, 'that they were restarted is told');
	like($err, qr/WARNING:  [^\n]*(?:restarted|took over)/, 'also by a warning');
	is_deeply([ $cluster->values_of(map { "k:$_" } 1 .. 2000) ], [ 1 .. 2000 ], 'all is there');
	$session->quit;
	$cluster->flush;
};

done_testing;
