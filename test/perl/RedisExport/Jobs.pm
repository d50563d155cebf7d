# RedisExport::Jobs: exports that run while the test does something to them, and how they must have ended.
#
#   my $id = start_job($node, 'SELECT …', 'a:#{id}', rate => 100);   # with wait => false; $node or a session
#   until_state($node, $id, 'running');
#   until_written($node, $id, 50);
#   job_ends($node, $redis, $id, state => 'canceled', error => qr/…/, keys => 'a:*');
#   my $id = next_job($node, sub { $session->send(export_sql('SELECT …')) });   # of who waits: its job's number
package RedisExport::Jobs;

use strict;
use warnings;
use Exporter 'import';
use RedisExport::Test;

our @EXPORT = qw(start_job next_job last_job until_state until_written job_ends no_worker_left session_poll);

# Starts an export that nobody waits for; the arguments are those of export_sql.
sub start_job
{
	my ($where, $query, $template, %arguments) = @_;
	my $sql = export_sql($query, key_template => "'$template'", %arguments, wait => 'false');
	my $row = $where->can('safe_psql') ? $where->safe_psql('postgres', $sql) : $where->query($sql);
	return $row =~ s/\|.*//r;
}

sub last_job
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT coalesce(max(job), 0) FROM redis_export_progress');
}

# Does what starts an export, and returns the export's number when it is in the view.
sub next_job
{
	my ($node, $start) = @_;
	my $before = last_job($node);
	$start->();
	poll_until($node, "SELECT max(job) > $before FROM redis_export_progress");
	return last_job($node);
}

sub until_state
{
	my ($node, $job, $state) = @_;
	return poll_until($node, "SELECT state = '$state' FROM redis_export_progress WHERE job = $job");
}

sub until_written
{
	my ($node, $job, $rows) = @_;
	return poll_until($node, "SELECT rows_written >= $rows FROM redis_export_progress WHERE job = $job");
}

# Like poll_until, in a session that is there already: for when new connections have to wait.
sub session_poll
{
	my ($session, $query, $seconds) = @_;
	my $deadline = time + ($seconds // $PostgreSQL::Test::Utils::timeout_default);
	while (time < $deadline)
	{
		return 1 if $session->query($query) eq 't';
		sleep 0.1;
	}
	die "never true: $query\n";
}

# One that stays is shown: what it waits for, as PostgreSQL and the kernel see it, and its connections.
sub no_worker_left
{
	my ($node) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $worker = q{FROM pg_stat_activity WHERE backend_type = 'redis_export worker'};
	my $none = eval { poll_until($node, "SELECT count(*) = 0 $worker") };
	return ok(1, 'no worker is left') if $none;
	note($node->safe_psql('postgres', "SELECT row_to_json(a) FROM (SELECT * $worker) AS a"));
	note($node->safe_psql('postgres', 'SELECT row_to_json(p) FROM redis_export_progress AS p ORDER BY job DESC LIMIT 3'));
	for my $pid (split /\n/, $node->safe_psql('postgres', "SELECT pid $worker"))
	{
		note(`for f in status wchan syscall stack; do echo "-- \$f"; cat /proc/$pid/\$f; done; ls -l /proc/$pid/fd; gdb -batch -p $pid -ex bt 2>&1`);
	}
	return ok(0, 'no worker is left');
}

# Waits for the job's end, and looks at everything that must then be so: state, error, ledger, no worker, and in Redis as many
# keys of the pattern as rows were written, and no more besides than are in doubt. Returns the job's row.
sub job_ends
{
	my ($node, $redis, $job, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $job");
	my $row = job($node, $job);
	is($row->{state}, $expected{state}, "the job is $expected{state}");
	like($row->{last_error} // '', $expected{error}, 'its error') if $expected{error};
	is($row->{last_error}, undef, 'it has no error') if $expected{state} eq 'done' && !$expected{error};
	is($row->{pid}, undef, 'it has no pid any more');
	ledger_ok($node, $job);
	no_worker_left($node);
	if ($expected{keys})
	{
		my $keys = redis_keys_count($redis, $expected{keys});
		my ($written, $doubt) = @$row{qw(rows_written rows_in_doubt)};
		ok($keys >= $written && $keys <= $written + $doubt, 'Redis holds the rows that were written')
			or diag "$keys keys, $written written, $doubt in doubt";
	}
	return $row;
}

1;
