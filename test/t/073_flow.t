# That a job always comes to an end, and to the right one: no lane stands still with rows that are not settled, a row is blamed for a
# connection that breaks only when others pass, who makes progress is not given up, nothing is sent again without need, and no wait is
# without a limit.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Jobs;
use RedisExport::Proxy;
use RedisExport::Rows;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\nstatement_timeout = '40s'");
my $session = session($node);

# An export into hashes, as export_sql() is one into documents.
sub hash_sql
{
	my ($query, %arguments) = @_;
	return export_sql($query, %arguments) =~ s/redis_json_export/redis_hash_export/r;
}

# Rows 1 to count, those whose numbers are given too large by far for a Redis that takes 1 MB.
sub oversize
{
	my ($count, @large) = @_;
	my $list = join ',', @large;
	return "SELECT i AS id, repeat('x', CASE WHEN i = ANY ('{$list}') THEN 6000000 ELSE 100 END) AS v FROM generate_series(1, $count) AS i";
}

# Runs an export and says how it ended; one that stands still ends by statement_timeout.
sub run_job
{
	my ($sql) = @_;
	$redis->cli('FLUSHALL');
	my $before = last_job($node);
	my $begun = time;
	my ($out, $err) = $session->send($sql)->wait;
	my $job = job($node);
	die "no job: $out$err" if !$job || $job->{job} == $before;
	$job->{took} = time - $begun;
	$job->{message} = $err;
	no_worker_left($node);
	ledger_ok($node);
	return $job;
}

sub failed_keys
{
	my ($job) = @_;
	return $node->safe_psql('postgres',
		"SELECT coalesce(string_agg(key, ' ' ORDER BY row_number), '') FROM redis_export_failures($job->{job})");
}

# The job is done, and just these rows have failed; Redis has the others.
sub only_these_failed
{
	my ($job, $count, @bad) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($job->{state}, 'done', 'the job is done') or diag $job->{message};
	is(failed_keys($job), join(' ', map { "k:$_" } @bad), 'these rows have failed: ' . (join(', ', @bad) || 'none'));
	is($job->{rows_written} + $job->{rows_unchanged}, $count - @bad, 'the others are written');
	is(redis_keys_count($redis, 'k:*'), $count - @bad, 'and in Redis');
	return;
}

subtest 'a row that breaks the connection, with all that may follow a write' => sub {
	my $replica = RedisExport::Redis->new(conf => { replicaof => '127.0.0.1 ' . $redis->port });
	$redis->cli('CONFIG', 'SET', 'repl-diskless-sync-delay', 0);
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '1mb');
	my %ways = (
		'changed_only' => [ changed_only => 'true' ],
		'an expiry' => [ ttl => q{'1 hour'} ],
		'both' => [ changed_only => 'true', ttl => q{'1 hour'} ],
		'replicas' => [ wait_replicas => 1 ],
		'all of it' => [ changed_only => 'true', ttl => q{'1 hour'}, wait_replicas => 1 ]);
	for my $way (sort keys %ways)
	{
		for my $kind ('json', 'hash')
		{
			my @arguments = (@{ $ways{$way} }, on_error => q{'ignore'}, retry_timeout => q{'10 s'}, $kind eq 'json' ? (value => q{'*'}) : ());
			my $sql = $kind eq 'json' ? \&export_sql : \&hash_sql;
			subtest "$way, $kind" => sub {
				only_these_failed(run_job($sql->(oversize(5, 3), @arguments)), 5, 3);
				only_these_failed(run_job($sql->(oversize(9, 1, 5, 6, 9), @arguments, batch => 3)), 9, 1, 5, 6, 9);
			};
		}
	}
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '512mb');
	$replica->stop;
};

subtest 'retry_timeout counts from the last row that was settled' => sub {
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '1mb');
	my $job = run_job(export_sql(q{SELECT i AS id, repeat('x', CASE WHEN i % 100 = 0 THEN 2000000 ELSE 100 END) AS v FROM generate_series(1, 3000) AS i},
		value => q{'*'}, on_error => q{'ignore'}, retry_timeout => q{'1 s'}));
	only_these_failed($job, 3000, map { $_ * 100 } 1 .. 30);
	cmp_ok($job->{took}, '>', 1, 'it took longer than that');
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '512mb');
};

# No way leads there any more, as far as is known: so a debugger takes a row out of its way.
subtest 'a row of which nothing is due ends the job' => sub {
	my $gdb = sub {
		my ($pid, @commands) = @_;
		my $out = '';
		eval { IPC::Run::run([ 'gdb', '-batch', '-p', $pid, map { ('-ex', $_) } @commands ], '<', \undef, '>', \$out, '2>', \$out, IPC::Run::timeout(60)) };
		return $out;
	};
	$redis->cli('FLUSHALL');
	my $id = start_job($node, 'SELECT i AS id FROM generate_series(1, 20) AS i', 'k:#{id}', rate => 5);
	until_written($node, $id, 1);
	my $out = $gdb->(job($node, $id)->{pid}, 'break rexp_lane_work', 'continue',
		'print lane->window.ring[lane->window.head].rows[19].state = 4', 'delete', 'detach');
	if ($out !~ /^\$1 = 4/m)
	{
		$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
		no_worker_left($node);
		plan skip_all => 'there is no debugger that may look at the worker';
	}
	my $row = job_ends($node, $redis, $id, state => 'failed', error => qr/^rows are left of which nothing is due: row 20 is refused, 1 batches, 0 flights, flow 2$/,
		keys => 'k:*');
	is("$row->{rows_written} $row->{rows_in_doubt}", '19 0', 'the others are written');
};

$session->quit;
done_testing;
