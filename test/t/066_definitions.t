# Exports with a name, as far as one session does not show it: a run that is waited for holds no snapshot; whose rights and
# settings a run has; what is left when roles, servers and tables change; dump, restore and replicas.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis);

$node->safe_psql('postgres', q{
	CREATE TABLE item (id int PRIMARY KEY, n int);
	INSERT INTO item SELECT i, i FROM generate_series(1, 100000) AS i;
	SELECT redis_export_define('items', 'SELECT id, n FROM item', 'item:#{id}', type => 'hash');
});

# Does this statement's session hold a snapshot, or a transaction's number, while it waits for a job?
sub held_while_waiting
{
	my ($statement) = @_;
	my $session = session($node);
	my $pid = $session->pid;
	my $id = next_job($node, sub { $session->send($statement) });
	until_written($node, $id, 20);
	poll_until($node, "SELECT wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = $pid");
	my $held = $node->safe_psql('postgres', "SELECT state, backend_xmin IS NOT NULL OR backend_xid IS NOT NULL FROM pg_stat_activity WHERE pid = $pid");
	my $locks = $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype = 'relation'");
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	my (undef, $error) = $session->wait;
	like($error, qr/the export was canceled by role "postgres"/, 'the end of the job is told');
	is($session->query('SELECT 1'), 1, 'and the session goes on');
	return "$held|$locks";
}

# In PL/pgSQL each INOUT argument takes a variable.
my $variables = 'DECLARE j bigint; s text; r bigint; w bigint; u bigint; f bigint; k bigint; e text;';
my $into = 'job => j, state => s, rows_read => r, rows_written => w, rows_unchanged => u, rows_failed => f, keys_deleted => k, last_error => e';

subtest 'who waits for a run holds no snapshot' => sub {
	my $run = q{redis_export_run('items', rows => 'all', batch => 20, rate => 200};
	is(held_while_waiting("CALL $run)"), 'active|f|0', 'CALL by itself');
	is(held_while_waiting("DO \$\$ $variables BEGIN CALL $run, $into); END \$\$"), 'active|f|0', 'in a DO block');
	$node->safe_psql('postgres', "CREATE PROCEDURE nightly() LANGUAGE plpgsql AS \$\$ $variables BEGIN CALL $run, $into); END \$\$");
	is(held_while_waiting('CALL nightly()'), 'active|f|0', 'in another procedure');
	like(held_while_waiting("SELECT redis_hash_export('SELECT id, n FROM item', 'other:#{id}', 20, rate => 200)"), qr/^active\|t\|/,
		'a function does');
};

subtest 'in a transaction block, and in a block with EXCEPTION, it waits as functions do' => sub {
	my $call = q{CALL redis_export_run('items', rows => 'all')};
	is($node->safe_psql('postgres', "BEGIN; CREATE TABLE kept (); $call; ROLLBACK; SELECT to_regclass('kept') IS NULL") =~ s/^\d+/N/r,
		'N|done|100000|100000|0|0|0|' . "\nt", 'nothing is committed before its time');
	is($node->safe_psql('postgres', "DO \$\$ $variables BEGIN BEGIN CALL redis_export_run('items', rows => 'all', $into); EXCEPTION WHEN division_by_zero THEN NULL; END; END \$\$; SELECT 'well'"),
		'well', 'in a subtransaction');
};

subtest 'what a run returns' => sub {
	$node->safe_psql('postgres', q{CALL redis_export_run('items')});
	my $row = $node->safe_psql('postgres', q{CALL redis_export_run('items')});
	like($row, qr/^\d+\|done\|100000\|0\|100000\|0\|0\|$/, 'by CALL');
	$row = $node->safe_psql('postgres', "DO \$\$ $variables BEGIN CALL redis_export_run('items', $into); CREATE TABLE said AS SELECT s, r, w, u, f, k, e; END \$\$; SELECT * FROM said");
	is($row, 'done|100000|0|100000|0|0|', 'in variables');
};

done_testing;
