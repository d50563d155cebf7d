# Passwords are nowhere to be seen: not in the server's log at its most talkative, not in an error, the view or pg_stat_activity.
# PostgreSQL itself logs statements, CREATE USER MAPPING with its password among them, if it is told to by log_statement: what it says
# of those is left out here. And mappings and exports are not to be had by other roles, by roles that have lost their rights, and by
# look-alikes.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

# Words that occur nowhere else.
my %password = (default => 'Zitrone-Xq71', app => 'Quitte-Vw82', wrong => 'Kirsche-Ju93', changed => 'Pflaume-Hy64', older => 'Birne-Ko55');
my $any = join '|', map { quotemeta } values %password;

my $redis = RedisExport::Redis->new(conf => { requirepass => $password{default}, user => "app on >$password{app} ~* &* +\@all" });
my $plain = RedisExport::Redis->new;
my $node = new_node($redis, conf => "log_min_messages = debug5\nlog_min_error_statement = debug5\nlog_statement = none\n"
	. "log_error_verbosity = verbose\nlog_connections = on\nlog_disconnections = on\n");
$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN;
	CREATE ROLE bob LOGIN;
	CREATE TABLE few AS SELECT id FROM generate_series(1, 100) id;
	GRANT SELECT ON few TO alice, bob;
	GRANT USAGE ON FOREIGN SERVER redis TO alice, bob;
	GRANT EXECUTE ON FUNCTION redis_json_export, redis_command, redis_export_wait, redis_export_failures TO alice, bob});

# What a statement of this kind puts into the log is PostgreSQL's doing.
sub set_mapping
{
	my ($server, $options, %more) = @_;
	my $role = $more{role} // 'CURRENT_USER';
	my $silent = 'SET log_min_messages = panic; SET log_min_error_statement = panic; SET client_min_messages = error';
	$node->safe_psql('postgres', "$silent; DROP USER MAPPING IF EXISTS FOR $role SERVER $server; CREATE USER MAPPING FOR $role SERVER $server OPTIONS ($options)");
	return;
}

# Everything that the session and the server have said since the last look.
my ($seen, $heard) = (0, '');
sub nothing_said
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $log = slurp_file($node->logfile, $seen);
	$seen = -s $node->logfile;
	my $text = $log . $heard;
	$heard = '';
	cmp_ok(length $text, '>', 1000, "much was said: $name");
	my @lines = grep { /$any/ } split /\n/, $text;
	return is_deeply(\@lines, [], "and no password: $name");
}

# Runs a statement with all messages shown; returns what was printed and what was said.
sub run_it
{
	my ($sql, %more) = @_;
	my (undef, $out, $err) = $node->psql('postgres', "SET client_min_messages = debug5;\n\\set VERBOSITY verbose\n$sql", %more);
	$heard .= "$out\n$err\n";
	return wantarray ? ($out, $err) : $err;
}

sub export { return export_sql('SELECT id FROM few', @_) }

set_mapping('redis', "password '$password{default}'");
$seen = -s $node->logfile;    # the test's own statements above
$node->append_conf('postgresql.conf', "log_statement = all\nlog_duration = on\nlog_min_duration_statement = 0\n");
$node->reload;
poll_until($node, q{SELECT current_setting('log_statement') = 'all'});

subtest 'exports and commands that work' => sub {
	like(run_it(export(key_template => q{'a:#{id}'})), qr/DEBUG/, 'an export at debug5');
	like(slurp_file($node->logfile, $seen), qr/DEBUG:.*\n(?:.*\n)*.*export job \d+ to server "redis" is done/, 'the worker is logged at debug5, too');
	run_it(export(key_template => q{'a:#{id}'}, wait => 'false'));
	like((run_it(q{SELECT redis_command('redis', 'DBSIZE')}))[0], qr/100/, 'a command');
	no_worker_left($node);
	nothing_said('a password alone');
	set_mapping('redis', "username 'app', password '$password{app}'");
	$seen = -s $node->logfile;
	run_it(export(key_template => q{'a:#{id}'}));
	run_it(q{SELECT redis_command('redis', 'DBSIZE')});
	run_it(q{TABLE redis_export_progress; TABLE pg_stat_activity; TABLE pg_stat_ssl; TABLE pg_settings; TABLE pg_prepared_statements; TABLE pg_cursors});
	nothing_said('a user name and a password');
};

subtest 'a wrong password' => sub {
	for my $options ("password '$password{wrong}'", "username 'app', password '$password{wrong}'", "username 'nobody', password '$password{wrong}'")
	{
		set_mapping('redis', $options);
		$seen = -s $node->logfile;
		like(run_it(export()), qr/ERROR:  28P01: .*WRONGPASS/, 'the error of an export: ' . $options =~ s/password .*//r);
		like(run_it(q{SELECT redis_command('redis', 'PING')}), qr/ERROR:  28P01: .*WRONGPASS/, 'and of a command');
		run_it(export(wait => 'false') . q{; SELECT * FROM redis_export_wait((SELECT max(job) FROM redis_export_progress), '1 min'); TABLE redis_export_progress});
		like(job($node)->{last_error}, qr/WRONGPASS/, 'the view has the reason');
		nothing_said('nor the wrong one');
	}
};

subtest 'a password where none is wanted, and one that has changed' => sub {
	add_server($node, $plain, name => 'open');
	set_mapping('open', "password '$password{wrong}'");
	$seen = -s $node->logfile;
	run_it(export(server => q{'open'}));
	run_it(q{SELECT redis_command('open', 'PING')});
	nothing_said('where none is wanted');

	set_mapping('redis', "username 'app', password '$password{app}'");
	$seen = -s $node->logfile;
	my $id = start_job($node, 'SELECT id FROM generate_series(1, 100000) id', 'b:#{id}', rate => 100, batch => 10);
	until_written($node, $id, 10);
	$redis->cli('ACL', 'SETUSER', 'app', 'resetpass', ">$password{changed}");
	$redis->cli('CLIENT', 'KILL', 'USER', 'app');
	my $row = job_ends($node, $redis, $id, state => 'failed', error => qr/WRONGPASS/);
	$heard .= JSON::PP->new->encode($row);
	nothing_said('changed in mid-job');
	$redis->cli('ACL', 'SETUSER', 'app', 'resetpass', ">$password{app}");
};

# Options that cannot be: the errors name the option and never the value. The statement itself is in PostgreSQL's log, as ever.
subtest 'errors of the mapping itself' => sub {
	for my $case (
		[ "passwort '$password{older}'", qr/invalid option "passwort"/ ],
		[ "password '$password{older}', host 'x'", qr/invalid option "host"/ ],
		[ "username 'app', password '$password{older}', password '$password{older}'", qr/more than once/ ])
	{
		my ($options, $error) = @$case;
		my $sql = "CREATE USER MAPPING FOR alice SERVER redis OPTIONS ($options)";
		my $err = sql_error($node, $sql);
		like($err, $error, 'the error');
		unlike($err, qr/$any/, 'without the password') or diag $err;
	}
	my $err = sql_error($node, "ALTER SERVER redis OPTIONS (ADD password '$password{older}')");
	like($err, qr/invalid option "password"/, 'a password is no option of the server');
	unlike($err, qr/$any/, 'and is not repeated');
	$seen = -s $node->logfile;
};

subtest 'other roles' => sub {
	my $id = start_job($node, q{SELECT id, 'a secret of the query' AS s FROM few}, 'c:#{id}', rate => 20, batch => 2, value => q{'*'});
	until_written($node, $id, 1);
	my $bob = session($node, user => 'bob');
	my $everything = join "\n", map { $bob->query("SELECT row_to_json(t) FROM $_ t") } qw(redis_export_progress pg_stat_activity pg_user_mappings
		pg_foreign_server pg_stat_database pg_stat_user_tables);
	like($everything, qr/"job":$id/, 'another role sees that there is a job');
	unlike($everything, qr/$any/, 'and no password');
	unlike($everything, qr/a secret of the query/, 'nor the query, not even of the worker');
	like(($bob->send('TABLE pg_user_mapping')->wait)[1], qr/permission denied/, 'nor the mappings');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled', keys => 'c:*');
	# the command line of a process is for everybody to read
	$id = start_job($node, 'SELECT id FROM few', 'd:#{id}', rate => 20, batch => 2);
	until_written($node, $id, 1);
	my $worker = job($node, $id)->{pid};
	my $line = slurp_file("/proc/$worker/cmdline");
	like($line, qr/redis_export job $id/, 'the worker\'s title');
	unlike($line, qr/$any|SELECT/, 'has neither password nor query');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled', keys => 'd:*');
	nothing_said('in all this');
};

# With a mapping of another's nobody gets in.
subtest 'mappings belong to their role' => sub {
	my $alice = session($node, user => 'alice');
	for my $sql (q{SELECT redis_command('redis', 'PING')}, export())
	{
		like(($alice->send($sql)->wait)[1], qr/NOAUTH/, 'a role without a mapping has no password');
	}
	set_mapping('redis', "username 'app', password '$password{app}'", role => 'alice');
	like($alice->query(q{SELECT redis_command('redis', 'ACL', 'WHOAMI')}), qr/app/, 'one with a mapping of its own has it at once');
	$node->safe_psql('postgres', 'DROP USER MAPPING FOR alice SERVER redis');
	like(($alice->send(q{SELECT redis_command('redis', 'PING')})->wait)[1], qr/NOAUTH/, 'and not any more when it is dropped, kept connections included');
	set_mapping('redis', "username 'app', password '$password{app}'", role => 'PUBLIC');
	like($alice->query(q{SELECT redis_command('redis', 'ACL', 'WHOAMI')}), qr/app/, 'that of PUBLIC is for all');
	my $id = start_job($alice, 'SELECT id FROM generate_series(1, 100000) id', 'e:#{id}', rate => 100, batch => 10);
	until_written($node, $id, 10);
	$node->safe_psql('postgres', 'REVOKE USAGE ON FOREIGN SERVER redis FROM alice');
	like(($alice->send(q{SELECT redis_command('redis', 'PING')})->wait)[1], qr/permission denied for foreign server redis/,
		'but not for one whose USAGE was revoked, kept connections included');
	like(($alice->send(export())->wait)[1], qr/permission denied for foreign server redis/, 'nor to export');
	is(job($node, $id)->{state}, 'running', 'an export that runs goes on, as any statement would');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled', keys => 'e:*');
};

# Names that our own code looks up must not be found in a schema of the caller's.
subtest 'look-alikes' => sub {
	$node->safe_psql('postgres', q{
		GRANT USAGE ON FOREIGN SERVER redis TO alice;
		CREATE SCHEMA trap;
		CREATE TABLE trap.few AS SELECT 777 AS id;
		CREATE FUNCTION trap.spring() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'caught %', current_user; END $$;
		CREATE FUNCTION trap.redis_export_jobs() RETURNS SETOF record LANGUAGE plpgsql AS 'BEGIN PERFORM trap.spring(); END';
		CREATE FUNCTION trap.row_to_json(record) RETURNS json LANGUAGE plpgsql AS 'BEGIN RETURN trap.spring(); END';
		CREATE FUNCTION trap.pg_blocking_pids(int) RETURNS int[] LANGUAGE sql AS 'SELECT ARRAY[trap.spring()::int]';
		CREATE FUNCTION trap.format_type(oid, int) RETURNS text LANGUAGE sql AS 'SELECT trap.spring()';
		CREATE FUNCTION trap.int4eq_(int, int) RETURNS bool LANGUAGE sql AS 'SELECT trap.spring() IS NULL';
		CREATE OPERATOR trap.= (LEFTARG = int, RIGHTARG = int, FUNCTION = trap.int4eq_);
		CREATE FUNCTION trap.redis_json_export(text, text) RETURNS text LANGUAGE sql AS 'SELECT trap.spring()';
		CREATE VIEW trap.redis_export_progress AS SELECT trap.spring();
		CREATE DOMAIN trap.text AS pg_catalog.text CHECK (false);
		CREATE DOMAIN trap.json AS pg_catalog.json CHECK (false);
		CREATE TABLE trap.pg_foreign_server (srvname name);
		GRANT USAGE ON SCHEMA trap TO alice;
		GRANT ALL ON ALL TABLES IN SCHEMA trap TO alice});
	$redis->cli('FLUSHALL');
	my $alice = session($node, user => 'alice');
	$alice->query('SET search_path = trap, public, pg_catalog');
	$alice->query(q{SELECT state FROM public.redis_json_export('SELECT id, 1.5 AS n FROM public.few', 'f:#{id}', value => '*')});
	is($alice->query(q{SELECT state || rows_written FROM public.redis_export_progress ORDER BY job DESC LIMIT 1}), 'done100', 'an export goes by none of them');
	is($redis->cli('JSON.GET', 'f:7'), '{"id":7,"n":1.5}', 'nor do its documents');
	is($alice->query(q{SELECT state FROM public.redis_json_export('SELECT id FROM few', 'g:#{id}', value => '*')}), 'done', 'the query does, as its caller would');
	is(redis_keys_count($redis, 'g:*'), 1, 'its table is the one that the caller sees first');
	is($alice->query(q{SELECT public.redis_command('redis', 'EXISTS', 'g:777')}), '1', 'it is there');
	like($alice->query(q{SELECT * FROM public.redis_export_failures((SELECT max(job) FROM public.redis_export_progress))}), qr/^$/, 'failures');

	# pg_temp comes first unless it is named: functions are never found there, and tables are refused
	$node->safe_psql('postgres', 'GRANT TEMPORARY ON DATABASE postgres TO alice');
	$alice->query(q{RESET search_path; CREATE TEMP TABLE few AS SELECT 888 AS id; CREATE TEMP TABLE redis_export_progress (job bigint, state text);
		CREATE TEMP TABLE pg_foreign_server (srvname name);
		CREATE FUNCTION pg_temp.redis_json_export(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'caught' $$;
		CREATE FUNCTION pg_temp.row_to_json(record) RETURNS json LANGUAGE plpgsql AS $$ BEGIN RETURN '"caught"'; END $$});
	like(($alice->send(export(key_template => q{'h:#{id}'}))->wait)[1], qr/cannot export from temporary relation "few"/, 'a temporary table in place of a permanent one');
	$alice->query('SET search_path = public, pg_temp');
	is($alice->query(export(key_template => q{'h:#{id}'}, value => q{'*'})) =~ s/.*\|//r, 'done', 'unless it is named last');
	is(redis_keys_count($redis, 'h:*'), 100, 'then it is the permanent one');
	is($redis->cli('JSON.GET', 'h:7'), '{"id":7}', 'and its documents are its own');

	# a superuser's session that such a schema has found its way into, and one of a SECURITY DEFINER function
	$node->safe_psql('postgres', q{
		CREATE FUNCTION by_owner() RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
			AS $$ SELECT state FROM public.redis_json_export('SELECT id FROM few', 'i:#{id}', value => '*') $$});
	$alice->query('SET search_path = trap, pg_temp, public, pg_catalog');
	is($alice->query('SELECT public.by_owner()'), 'done', 'a SECURITY DEFINER function with a search_path of its own');
	is(redis_keys_count($redis, 'i:*'), 100, 'exports the table that it means');
};

$node->stop('fast');
my $whole = slurp_file($node->logfile);
unlike($whole =~ s/^.*(?:USER MAPPING|ALTER SERVER).*$//gmr, qr/$any/, 'no password in the whole log but in statements that PostgreSQL logs');

done_testing;
