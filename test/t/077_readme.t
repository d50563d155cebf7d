# The pages that people type from: all SQL of README.md, from top to bottom, in one session of psql that stops at the first error, and that of
# docs/reference.md. What cannot be so on this machine is listed here, with its reason; an entry that fits nothing any more is a failure.
# The other pages, docs/nightly.md and docs/recipes.md, have tests of their own.
use strict;
use warnings;
use FindBin;
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new;
chomp(my ($sharedir) = qx{pg_config --sharedir});
my $has_cron = -e "$sharedir/extension/pg_cron.control";
my $has_tls = ($ENV{REDIS_EXPORT_TLS} // '') ne '';

# What is replaced or, without a replacement, left out: [ where it is told apart by, by what, why, and when if not always ].
my $port = [ qr/port '6379'/, "port '" . $redis->port . q{'}, 'the Redis of the test is on a port that was free' ];
my $tls = [ qr/^CREATE SERVER redis_tls [^;]*;\n/m, undef, 'this build has no TLS', !$has_tls ];
my @readme = (
	[ qr/\A\n*SELECT \* FROM redis_json_export\(.*\n/, undef, 'what the page begins with comes before the installation' ],
	$port, $tls,
	[ qr/^[^;\n]*\bcron\.[^;]*;\n/m, undef, 'there is no pg_cron here for this PostgreSQL', !$has_cron ]);
my @reference = ($tls);

# The SQL of a page, each line where it is on the page, so that the number in psql's message is the page's.
sub sql_of
{
	my ($page, @own) = @_;
	my $inside = 0;
	my $sql = join '', map {
		my $fence = /^```/;
		$inside = $_ eq '```sql' if $fence;
		($inside && !$fence ? $_ : '') . "\n";
	} split /\n/, slurp_file("$FindBin::Bin/../../$page");
	for my $entry (@own)
	{
		my ($where, $replacement, $why, $when) = @$entry;
		my $changed = $sql =~ s{$where}{ $replacement // "\n" x ($& =~ tr/\n//) }ger;
		isnt($changed, $sql, "$page: there still is what is not as elsewhere since $why");
		$sql = $changed if $when // 1;
	}
	return $sql;
}

# Runs it, and returns what it printed, and what else it said.
sub run_page
{
	my ($node, $page, $sql, %options) = @_;
	my ($status, $out, $err) = $node->psql($options{database} // 'postgres', $sql, on_error_stop => 1);
	is($status, 0, "$page runs from top to bottom") or diag $err =~ s/<stdin>/$page/gr;
	return ($out, $err);
}

my $node = new_node(undef, conf => ($has_cron ? "shared_preload_libraries = 'pg_cron'\n" : '') . 'max_worker_processes = 16');
$node->safe_psql('postgres', 'DROP EXTENSION redis_export');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_cron') if $has_cron;

subtest 'README.md' => sub {
	my ($out, $err) = run_page($node, 'README.md', sql_of('README.md', @readme));
	is(join("\n", $err =~ /^psql:<stdin>:\d+: (.*)/gm), 'WARNING:  1 rows of export job 3 failed and were left out', 'nothing unexpected is said');

	is($node->safe_psql('postgres', q{SELECT string_agg(job || ' ' || state, ', ' ORDER BY job) FROM redis_export_progress WHERE job <= 3}),
		'1 done, 2 canceled, 3 done', 'the jobs have the numbers that the page says');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM redis_export_progress WHERE job > 3 AND state <> 'done'}), 0, 'all others are done');
	is($node->safe_psql('postgres', 'SELECT job, rows_failed, keys_deleted FROM redis_export_progress WHERE rows_failed + keys_deleted > 0'), '3|1|0', 'one row fails, where it should');
	like($node->safe_psql('postgres', 'SELECT key, message FROM redis_export_failures(3)'), qr/^\|column "city", part of the key, is null/, 'the one without a city');
	ledger_ok($node, $_) for $node->safe_psql('postgres', 'SELECT job FROM redis_export_progress') =~ /(\d+)/g;

	my %keys;
	$keys{s/\d+\z//r}++ for $redis->cli('--scan');
	delete @keys{ grep { /^redis_export:/ } keys %keys };
	is_deeply(\%keys, { 'person:' => 1001, 'London:' => 1000, 'card:' => 1001, 'item:' => 1001, 'guest:' => 1001, board => 1 }, 'Redis holds what it should');
	like($redis->cli('JSON.GET', 'person:1'), qr/^\{"id":1,"name":"Ada 1","born":"1960-01-02","city":"London","changed_at":"20[^"]*"\}$/, 'a document');
	is($redis->cli('JSON.GET', 'card:1'), '{"name":"Ada 1","year":1960}', 'one of our own making');
	is($redis->cli('ZSCORE', 'board', '7'), 7, 'a score');
	like($redis->cli('TTL', 'guest:1'), qr/^8\d{4}$/, 'an expiry');
	like($out, qr/^\[1000, "person:\d+"/m, 'the search finds them all but Bob') or diag $out;
	like($out, qr/^1001\|0\|1\|\|.*\{person:1001\}/m, 'verify finds the difference that the page speaks of');
	like($out, qr/^person:1000\|Ada 1000\nperson:1001\|Bob$/m, 'the scan');
	like($out, qr/^people\|/m, 'the mark');
	is($redis->cli('HLEN', 'redis_export:{people}:keys'), 1001, 'the books have the name that the reference says');
};

subtest 'the other role has all functions' => sub {
	is($node->safe_psql('postgres', q{SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
		JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'redis_export' WHERE NOT has_function_privilege('app', p.oid, 'EXECUTE')}), '', 'none is left out');
	is($node->safe_psql('postgres', q{SET ROLE app; SELECT missing FROM redis_export_verify('SELECT 1 AS id', 'person:#{id}', value => '*')}), 0, 'verify');
	is($node->safe_psql('postgres', q{SET ROLE app; SELECT count(*) FROM redis_export_preview('SELECT 1 AS id', 'person:#{id}')}), 1, 'preview');
	is($node->safe_psql('postgres', q{SET ROLE app; SELECT count(*) FROM redis_scan('redis', 'board')}), 1, 'a scan');
};

# It must be a comment, since a Redis without users refuses it, and with it all that follows.
subtest 'the user mapping, where Redis wants one' => sub {
	my ($mapping) = sql_of('README.md') =~ /^-- (CREATE USER MAPPING .*;)$/m;
	ok($mapping, 'it is on the page, as a comment') or return;
	$redis->cli('ACL', 'SETUSER', 'app', 'on', '>secret', '~*', '+@all');
	$redis->cli('ACL', 'SETUSER', 'default', 'off');
	like(sql_error($node, q{SELECT redis_command('redis', 'PING')}), qr/NOAUTH/, 'Redis wants one');
	$node->safe_psql('postgres', $mapping);
	is($node->safe_psql('postgres', q{SELECT redis_command('redis', 'PING')}), '"PONG"', 'and takes this one');
	$node->safe_psql('postgres', 'DROP USER MAPPING FOR CURRENT_USER SERVER redis');
};

subtest 'docs/reference.md' => sub {
	my $other = RedisExport::Redis->new;
	$node->safe_psql('postgres', 'CREATE DATABASE reference');
	$node->safe_psql('reference', sprintf <<'SQL', $other->host, $other->port);
CREATE EXTENSION redis_export;
CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (host '%s', port '%d');
CREATE TABLE players AS SELECT i AS id, i * 10 AS score FROM generate_series(1, 10) AS i;
CREATE TABLE posts AS SELECT i AS id, ARRAY['a', 'b ' || i] AS tags FROM generate_series(1, 10) AS i;
CREATE TABLE people AS SELECT i AS id, 'Ada ' || i AS name FROM generate_series(1, 10) AS i;
CREATE TABLE appointments AS SELECT i AS appointment_id, '{"n":1}' AS doc FROM generate_series(1, 10) AS i;
CREATE TABLE docs AS SELECT i AS id, '{"n":1}' AS doc, now() - i * interval '1 day' AS changed FROM generate_series(1, 10) AS i;
CREATE TABLE places AS SELECT * FROM (VALUES ('paris', 2.3522, 48.8566), ('oslo', 10.7522, 59.9139)) AS p (id, lon, lat);
SQL
	my ($out, $err) = run_page($node, 'docs/reference.md', sql_of('docs/reference.md', @reference), database => 'reference');
	is($err, '', 'and nothing is said');
	is($other->cli('ZCARD', 'board'), 10, 'players');
	like($out, qr/^\[1, "place:paris"\]$/m, 'a place is where it is');

	# swapped: Paris is taken, and lies elsewhere; Auckland's longitude is no latitude
	$node->safe_psql('reference', q{INSERT INTO places VALUES ('auckland', 174.7633, -36.8485)});
	(undef, undef, my $told) = $node->psql('reference', q{SELECT redis_hash_export($$SELECT id, lat || ',' || lon AS spot FROM places$$, 'place:#{id}', wait_index => 'idx:places')});
	like($told, qr/WARNING:  an index of Redis refused documents 1 times.*"place:auckland": Invalid geo coordinates/s, 'a pair out of range is refused');
	is(scalar $other->cli('FT.SEARCH', 'idx:places', '@spot:[2.35 48.85 20 km]', 'NOCONTENT'), 0, 'a swapped pair is not where it is');
	is(scalar $other->cli('FT.SEARCH', 'idx:places', '@spot:[48.85 2.35 20 km]', 'NOCONTENT'), "1\nplace:paris", 'but in the sea');

	is(join(' ', sort $other->cli('SMEMBERS', 'tags:3')), 'a b 3', 'tags');
	is(redis_keys_count($other, 'doc:*'), 10, 'documents');
	is($other->cli('HGET', 'redis_export:{docs}', 'mark'), '2026-02-03 00:00:00+00', 'the mark, as it was set');
};

done_testing;
