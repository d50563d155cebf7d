# Whose code runs with whose rights and settings, and how long a worker lives: what a query or Redis brings along never gets further
# than the role that exports, no setting of a session stays changed, the query's text is shown to nobody who may not see it, time
# begins when the query does, a worker is gone when its call returns, and new passwords are used.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Cluster;
use RedisExport::Jobs;
use RedisExport::Sentinel;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "max_worker_processes = 16\n");

# The error of a statement in the session, SQLSTATE included.
sub error_in
{
	my ($session, $sql) = @_;
	my (undef, $err) = $session->send("\\set VERBOSITY verbose\n$sql")->wait;
	return $err;
}

# A call of an export, a preview or a verification of a query.
sub call
{
	my ($function, $query, $template, %arguments) = @_;
	my $more = join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
	return "SELECT * FROM $function(\$query\$$query\$query\$, '$template'$more)";
}

# Defines an export of this name, or defines it anew.
sub defined_so
{
	my ($name, $query, $more) = @_;
	return "SELECT redis_export_define('$name', \$query\$$query\$query\$, '$name:#{id}', or_replace => true" . ($more ? ", $more" : '') . '); ';
}

# A role without rights writes functions, and a superuser who has become that role exports a query that calls them. Whatever they do
# then, and whenever it is done, is done with the rights of the role: with more, the loot is there.
my $loot = PostgreSQL::Test::Utils::tempdir_short() . '/loot';
$node->safe_psql('postgres', qq{
	CREATE TABLE hidden AS SELECT 'the secret'::text AS secret;
	CREATE ROLE low;
	GRANT CREATE ON SCHEMA public TO low;
	GRANT USAGE ON FOREIGN SERVER redis TO low;
	GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO low;
	CREATE TABLE items AS SELECT id, now() AS changed FROM generate_series(1, 3) id;
	GRANT SELECT ON items TO low;
	SET ROLE low;
	CREATE FUNCTION evil() RETURNS int LANGUAGE plpgsql AS \$\$
		BEGIN
			EXECUTE 'RESET ROLE';
			EXECUTE 'COPY (SELECT secret FROM hidden) TO PROGRAM ''cat > $loot''';
			RETURN 1;
		EXCEPTION WHEN OTHERS THEN
			RETURN 2;
		END \$\$;
	CREATE FUNCTION declares() RETURNS int LANGUAGE plpgsql AS \$\$
		BEGIN
			EXECUTE format('DECLARE %I CURSOR WITH HOLD FOR SELECT evil()', 'c' || random());
			RETURN 1;
		END \$\$;
	CREATE FUNCTION tries() RETURNS int LANGUAGE plpgsql AS \$\$
		BEGIN
			RETURN declares();
		EXCEPTION WHEN OTHERS THEN
			RETURN 3;
		END \$\$;
	CREATE FUNCTION is_fine(int) RETURNS boolean LANGUAGE plpgsql AS \$\$
		BEGIN
			PERFORM evil();
			PERFORM tries();
			RETURN true;
		END \$\$;
	CREATE DOMAIN checked AS int CHECK (is_fine(VALUE));
	CREATE TYPE checked_range AS RANGE (subtype = checked)});

sub no_loot
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(!-e $loot, $name) or unlink $loot;
	return;
}

subtest 'nothing gets out of the fence' => sub {
	my $session = session($node);
	$session->query('SET ROLE low');
	my %calls = (
		'an export' => sub { call('redis_json_export', $_[0], 'loot:#{id}') },
		'an export of hashes' => sub { call('redis_hash_export', $_[0], 'loot:#{id}') },
		'a run with a watermark' => sub { defined_so('newer', $_[0], q{watermark_column => 'changed', overlap => '1 h'}) . q{CALL redis_export_run('newer', rows => 'new')} },
		'a run that prunes' => sub { defined_so('pruned', $_[0]) . q{CALL redis_export_run('pruned', prune => true, prune_limit => 1)} },
		'a preview' => sub { call('redis_export_preview', $_[0], 'loot:#{id}', type => q{'json'}) },
		'a preview by name' => sub { defined_so('seen', $_[0]) . q{SELECT redis_export_preview('seen')} },
		'a verification' => sub { call('redis_export_verify', $_[0], 'loot:#{id}', type => q{'json'}) },
		'a verification by name' => sub { defined_so('verified', $_[0]) . q{SELECT redis_export_verify('verified')} });
	for my $name (sort keys %calls)
	{
		my $sql = $calls{$name};
		for my $how (qw(evil() tries() declares()), q{'[1,2]'::checked_range})
		{
			$redis->cli('HSET', 'redis_export:{pruned}:keys', 'pruned:9', '');
			$session->send($sql->("SELECT id, changed, $how AS v FROM items"))->wait;
			no_loot("$name of $how");
			is($session->query('SELECT current_user || session_user'), 'lowpostgres', 'and the session is who it was');
		}
		like(error_in($session, $sql->('SELECT id, changed, declares() AS v FROM items')),
			qr/ERROR:  42501: cannot create a cursor WITH HOLD within security-restricted operation/, "$name says why");
	}
	$session->query(q{
		SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off;
		ALTER FUNCTION evil() PARALLEL SAFE; ALTER FUNCTION declares() PARALLEL SAFE; ALTER FUNCTION tries() PARALLEL SAFE});
	for my $name (sort keys %calls)
	{
		$session->send($calls{$name}->("SELECT id, changed, $_ AS v FROM items"))->wait for qw(evil() tries());
		no_loot("$name in parallel workers");
	}
	$session->query('RESET ALL; SET ROLE low; ALTER FUNCTION evil() PARALLEL UNSAFE');
	is($session->query('SELECT evil()'), '1', 'what it would have done otherwise, ');
	is(slurp_file($loot), "the secret\n", 'which works');
	unlink $loot;
	$session->query('SET ROLE low');

	# in an aborted subtransaction, and in one that goes on
	$session->query(q{
		CREATE FUNCTION previews(query text) RETURNS text LANGUAGE plpgsql AS $$
			DECLARE error text := 'none';
			BEGIN
				BEGIN
					PERFORM * FROM redis_export_preview(query, 'loot:#{id}', type => 'json');
				EXCEPTION WHEN OTHERS THEN
					error := SQLSTATE;
				END;
				RETURN error || ' ' || current_user || ' ' || current_setting('transaction_read_only');
			END $$});
	is($session->query(q{SELECT previews('SELECT 1 AS id, evil() AS v')}), 'none low off', 'after a preview all is as before');
	is($session->query(q{SELECT previews('SELECT 1 AS id, declares() AS v')}), '42501 low off', 'after an error in it, too');
	no_loot('nothing got out');
	$session->query('RESET ROLE');
	is($session->query('SET ROLE postgres; RESET ROLE; SELECT current_user'), 'postgres', 'the fence is gone afterwards');
};

# The functions of the mark's type are called for rows, for the mark that Redis has, and for one that is set.
subtest 'marks are compared and read within the fence' => sub {
	my $session = session($node);
	$session->query('SET ROLE low');
	$session->query(defined_so('ranges', 'SELECT id, int4range(id, NULL)::text::checked_range AS at FROM generate_series(1, 100) id', q{watermark_column => 'at'}));
	my $run = q{CALL redis_export_run('ranges', rows => 'new')};
	like($session->query($run), qr/\|done\|100\|/, 'the first run is done');
	no_loot('nothing got out');
	is($redis->cli('HGET', 'redis_export:{ranges}', 'mark_type'), 'public.checked_range', 'its mark');
	$redis->cli('HSET', 'redis_export:{ranges}', mark => '[50,)');
	like($session->query($run), qr/\|done\|50\|/, 'and so is the next one, which goes by it');
	no_loot('nothing got out');
	$session->query('RESET ROLE');
	$session->query(q{SELECT redis_export_set_mark('ranges', '[60,)')});
	is($redis->cli('HGET', 'redis_export:{ranges}', 'mark'), '[60,)', 'a superuser sets the mark');
	no_loot('nothing got out');
	$session->quit;
};

# What a query can do all the same, and what it cannot, as the reference says.
subtest 'what the fence costs' => sub {
	$node->safe_psql('postgres', q{
		CREATE SCHEMA apart;
		CREATE TABLE apart.things AS SELECT 5 AS n;
		CREATE FUNCTION does(statement text) RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN EXECUTE statement; RETURN 1; END $$;
		CREATE FUNCTION opens() RETURNS refcursor LANGUAGE plpgsql AS
			$$ DECLARE c refcursor; BEGIN OPEN c FOR SELECT n FROM apart.things; RETURN c; END $$;
		CREATE FUNCTION by_cursor() RETURNS int LANGUAGE plpgsql AS
			$$ DECLARE c refcursor := opens(); r record; BEGIN FETCH c INTO r; CLOSE c; RETURN r.n; END $$;
		CREATE FUNCTION by_loop() RETURNS int LANGUAGE plpgsql AS
			$$ DECLARE s int := 0; r record; BEGIN FOR r IN SELECT n FROM apart.things LOOP s := s + r.n; END LOOP; RETURN s; END $$;
		CREATE FUNCTION by_clause() RETURNS int LANGUAGE plpgsql SET search_path = apart AS
			$$ BEGIN RETURN (SELECT n FROM things); END $$;
		CREATE FUNCTION by_local() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN SET LOCAL search_path = apart; RETURN (SELECT n FROM things); END $$;
		CREATE FUNCTION by_definer() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS
			$$ BEGIN RETURN (SELECT n FROM apart.things); END $$;
		CREATE FUNCTION by_exception() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN PERFORM 1 / 0; RETURN 4; EXCEPTION WHEN OTHERS THEN RETURN 5; END $$;
		CREATE FUNCTION by_execute() RETURNS int LANGUAGE plpgsql AS
			$$ DECLARE n int; BEGIN EXECUTE 'SELECT n FROM apart.things WHERE n > $1' INTO n USING 1; RETURN n; END $$});
	my $session = session($node);
	for my $function (qw(by_cursor by_loop by_clause by_local by_definer by_exception by_execute))
	{
		$session->query(call('redis_json_export', "SELECT 1 AS id, $function() AS n", "$function:#{id}"));
		is($redis->cli('JSON.GET', "$function:1", '.n'), 5, "$function works");
		like($session->query(call('redis_export_preview', "SELECT 1 AS id, $function() AS n", "$function:#{id}")), qr/"n\\":5/, 'in a preview, too');
	}
	for my $other (split /\n/, $session->query(q{SELECT name FROM pg_available_extensions WHERE name IN ('dblink', 'postgres_fdw') ORDER BY name}))
	{
		my $far = 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres';
		$session->query("CREATE EXTENSION $other");
		$session->query(q{CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '} . $node->host . q{', port '} . $node->port . q{', dbname 'postgres');
			CREATE USER MAPPING FOR CURRENT_USER SERVER far;
			CREATE FOREIGN TABLE far_things (n int) SERVER far OPTIONS (schema_name 'apart', table_name 'things')}) if $other eq 'postgres_fdw';
		my $query = $other eq 'dblink' ? "SELECT 1 AS id, n FROM dblink('$far', 'SELECT n FROM apart.things') AS d (n int)" : 'SELECT 1 AS id, n FROM far_things';
		for my $function (qw(redis_json_export redis_export_preview redis_export_verify))
		{
			is(error_in($session, call($function, $query, "$other:#{id}", value => q{'*'})), '', "$function: $other works");
		}
		is($redis->cli('JSON.GET', "$other:1", '.n'), 5, 'and its rows are there');
	}
	my $nested = q{SELECT redis_json_export('SELECT 1 AS id', 'nested:#{id}')};
	my %refused = (
		'DECLARE c CURSOR WITH HOLD FOR SELECT 1' => qr/42501: cannot create a cursor WITH HOLD within security-restricted operation/,
		'PREPARE p AS SELECT 1' => qr/42501: cannot execute PREPARE within security-restricted operation/,
		'DEALLOCATE ALL' => qr/42501: cannot execute DEALLOCATE within security-restricted operation/,
		'DISCARD PLANS' => qr/42501: cannot execute DISCARD within security-restricted operation/,
		'LISTEN l' => qr/42501: cannot execute LISTEN within security-restricted operation|25006/,
		'CLOSE ALL' => qr/42501: cannot execute CLOSE within security-restricted operation/,
		'SET ROLE low' => qr/42501: cannot set parameter "role" within security-/,
		'RESET SESSION AUTHORIZATION' => qr/42501: cannot set parameter "session_authorization" within security-/,
		'CREATE TEMP TABLE t (n int)' => qr/25006: cannot execute CREATE TABLE in a read-only transaction/,
		$nested => qr/42501: cannot export within a security-restricted operation/);
	for my $statement (sort keys %refused)
	{
		my $query = 'SELECT 1 AS id, does($s$' . $statement . '$s$) AS n';
		for my $function (qw(redis_json_export redis_export_preview redis_export_verify))
		{
			like(error_in($session, call($function, $query, 'refused:#{id}')), qr/ERROR:  $refused{$statement}/, "$function: $statement");
		}
	}
	is(redis_keys_count($redis, 'nested:*'), 0, 'nothing was exported by a query that is exported');
};

# A mark may be written by whoever may write to Redis.
subtest 'what Redis says is not run' => sub {
	my $session = session($node);
	my $run = sub { my ($name) = @_; return "CALL redis_export_run('$name', rows => 'new')" };
	$session->query(defined_so('m', 'SELECT 1 AS id, 1 AS v', q{watermark_column => 'v'}));
	my $set = sub { $redis->cli('HSET', 'redis_export:{m}', mark_column => 'v', mark_type => $_[0], mark => $_[1]) };
	for my $case ([ 'checked', '7' ], [ 'public.checked', '7' ], [ '"checked"', '7' ], [ 'public.checked[]', '{7}' ], [ '_checked', '{7}' ],
		[ 'checked_range', '[1,2]' ], [ 'hidden', '7' ], [ 'numeric(1)', '77' ], [ 'public.nothing', '7' ], [ 'int4; SELECT evil()', '7' ], [ '%s%n', '7' ], [ '', '7' ])
	{
		my ($type, $value) = @$case;
		$set->($type, $value);
		like($session->query($run->('m')), qr/\|done\|1\|/, "a mark of type '$type' is none of the column's");
		is(join(' ', $redis->cli('HMGET', 'redis_export:{m}', 'mark', 'mark_type')), '1 integer', 'and is written over');
		no_loot('nothing is run');
	}
	$set->('integer', '1); SELECT evil(); --');
	like(error_in($session, $run->('m')), qr/ERROR:  22P02: invalid input syntax for type integer/, 'one that is no value of the type');
	no_loot('is not run');

	# set in a session, with its settings
	my $count = 0;
	for my $case ([ 'timestamp with time zone', '2026-02-03 05:30', '2026-02-03 10:30:00+00' ], [ 'date', '3.2.2026', '2026-02-03' ],
		[ 'numeric', '1e3', '1000' ], [ 'bpchar', 'a', 'a' ], [ 'text', 'a', 'a' ], [ '"char"', 'a', 'a' ])
	{
		my ($type, $given, $kept) = @$case;
		my $name = 'set' . ++$count;
		$session->query(defined_so($name, "SELECT 1 AS id, NULL::$type AS v", q{watermark_column => 'v'}));
		$session->query("SET timezone = 'America/New_York'; SET datestyle = German; SELECT redis_export_set_mark('$name', '$given')");
		is($redis->cli('HGET', "redis_export:{$name}", 'mark'), $kept, "$type, under the settings of the session");
	}
	like(error_in($session, q(SELECT redis_export_set_mark('m', '{7'))), qr/ERROR:  22P02: invalid input syntax for type integer/, 'a value that is none');

	$session->query(q{CREATE TYPE mood AS ENUM ('low', 'high')});
	$session->query(defined_so('mood', q{SELECT 1 AS id, 'high'::mood AS v}, q{watermark_column => 'v'}));
	$session->query($run->('mood'));
	like(error_in($session, q{SELECT redis_export_set_mark('mood', 'lower')}), qr/ERROR:  22P02: invalid input value for enum mood: "lower"/, 'of an enum, too');
	$session->query(q{SELECT redis_export_set_mark('mood', 'low')});
	like($session->query($run->('mood')), qr/\|done\|1\|/, 'and the next run goes by it');
};

# All that an export sets for its values, shown by what values look like: SHOW would tell nothing.
my $look = q{SELECT '2026-07-01 00:00+00'::timestamptz, '2026-07-01'::date, interval '1 day 2 h', 1::float8 / 3, '\x01'::bytea, '1/2/2026'::date,
	quote_ident('plain'), current_setting('transaction_read_only')};

subtest 'the session is set as it was' => sub {
	my $session = session($node);
	$session->query(q{
		CREATE TYPE level AS ENUM ('bad', 'slow', 'good');
		CREATE FUNCTION level_json(level) RETURNS json LANGUAGE plpgsql AS $$
			BEGIN
				IF $1 = 'bad' THEN RAISE 'no level'; END IF;
				IF $1 = 'slow' THEN PERFORM pg_sleep(60); END IF;
				RETURN to_json($1::text);
			END $$;
		CREATE CAST (level AS json) WITH FUNCTION level_json(level);
		CREATE FUNCTION sets() RETURNS text LANGUAGE plpgsql AS $$
			BEGIN
				SET timezone = 'Asia/Tokyo';
				SET bytea_output = 'hex';
				SET quote_all_identifiers = off;
				RETURN 'set';
			END $$;
		CREATE FUNCTION caught(statement text) RETURNS text LANGUAGE plpgsql AS $$
			BEGIN
				EXECUTE statement;
				RETURN 'none';
			EXCEPTION WHEN OTHERS OR query_canceled THEN
				RETURN SQLSTATE;
			END $$;
		SET timezone = 'America/New_York';
		SET datestyle = 'SQL, DMY';
		SET intervalstyle = 'iso_8601';
		SET extra_float_digits = -10;
		SET bytea_output = 'escape';
		SET quote_all_identifiers = on});
	my $looks = sub { return join '', $session->send($look)->wait };
	my $before = $looks->();
	like($before, qr{^30/06/2026 20:00:00 EDT\|01/07/2026\|P1DT2H\|0\.33333\|\\001\|01/02/2026\|"plain"\|off$}, 'as it is set');
	for my $function (qw(redis_export_preview redis_export_verify))
	{
		for my $query (q{SELECT 1 AS id, 'bad'::level AS v}, q{SELECT 1 AS id, sets() AS s, 'bad'::level AS v}, q{SELECT 1 AS id, 'slow'::level AS v},
			q{SELECT 1 AS id, sets() AS s, 'good'::level AS v})
		{
			my $call = call($function, $query, 'state:#{id}');
			my $error = $query =~ /bad/ ? 'P0001' : $query =~ /slow/ ? '57014' : 'none';
			$session->query(q{SET statement_timeout = '300 ms'}) if $query =~ /slow/;
			my (undef, $err) = $session->send($call)->wait;
			is($err eq '', $error eq 'none', "$function of $query: ends with " . ($err =~ s/\n.*//sr || 'no error'));
			is($looks->(), $before, 'all is as before');

			$session->query('BEGIN; SAVEPOINT s');
			$session->send($call)->wait;
			$session->query('ROLLBACK TO s');
			is($looks->(), $before, 'after ROLLBACK TO');
			is($session->query("SELECT caught(\$call\$$call\$call\$)"), $error, 'when it is caught');
			is($looks->(), $before, 'too, in the transaction');
			$session->query('COMMIT');
			is($looks->(), $before, 'and after it');
			$session->query('RESET statement_timeout');
		}
	}
	is($session->query('SHOW timezone'), 'America/New_York', 'and SHOW agrees');
};

# pg_stat_activity shows to a session's user what its processes do, and to all members of that role.
subtest 'the query of another role is not shown' => sub {
	$node->safe_psql('postgres', q{
		CREATE ROLE alice LOGIN;
		CREATE ROLE owner;
		CREATE ROLE boss LOGIN IN ROLE owner;
		GRANT USAGE ON FOREIGN SERVER redis TO owner, alice;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO owner, alice;
		GRANT CREATE ON SCHEMA public TO owner;
		CREATE TABLE large AS SELECT id FROM generate_series(1, 20000) id;
		ANALYZE large;
		GRANT SELECT ON large TO owner, alice;
		SET ROLE owner;
		CREATE FUNCTION exports() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$
			SELECT job FROM redis_json_export('SELECT id, ''classified'' AS v FROM large WHERE id >= 0', 'classified:#{id}', value => '*', rate => 100, batch => 10, wait => false) $$});
	my $parallel = q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off};
	my $shown = q{SELECT string_agg(DISTINCT coalesce(query, 'NULL'), ',') || ' ' || count(*)::text FROM pg_stat_activity
		WHERE (backend_type = 'redis_export worker' OR leader_pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'redis_export worker'))};
	for my $user (qw(alice boss))
	{
		my $session = session($node, user => $user);
		$session->query($parallel);
		my $job = $session->query('SELECT exports()');
		until_written($node, $job, 10);
		my $query = $user eq 'boss' ? q{SELECT id, 'classified' AS v FROM large WHERE id >= 0} : 'query of another role: see redis_export_progress';
		session_poll($session, qq{SELECT ($shown) ~ ' 3\$'}, 20);
		is($session->query($shown), "$query 3", "what $user sees of the worker and of those that help it");
		is($node->safe_psql('postgres', $shown), "$query 3", 'and what a superuser does');
		is($session->query(q{SELECT string_agg(t, ' ') FROM (SELECT a::text FROM pg_stat_activity a UNION SELECT p::text FROM redis_export_progress p) AS s (t)
			WHERE t ~ ('class' || 'ified')}), '', 'nor is it anywhere else')
			if $user eq 'alice';
		$node->safe_psql('postgres', "SELECT redis_export_cancel($job)");
		job_ends($node, $redis, $job, state => 'canceled');
	}
	my $alice = session($node, user => 'alice');
	$alice->query($parallel);
	my $job = start_job($alice, 'SELECT id FROM large', 'own:#{id}', rate => 100, batch => 10);
	until_written($node, $job, 10);
	session_poll($alice, qq{SELECT ($shown) ~ ' 3\$'}, 20);
	is($alice->query($shown), 'SELECT id FROM large 3', 'her own is shown');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($job)");
	job_ends($node, $redis, $job, state => 'canceled');
};

subtest 'time begins with the query' => sub {
	my $away = RedisExport::Redis->new;
	add_server($node, $away, name => 'away');
	$node->safe_psql('postgres', 'CREATE TABLE due (id int, at timestamptz DEFAULT clock_timestamp()); INSERT INTO due VALUES (1)');
	$away->stop;
	my $session = session($node);
	$session->query(q{SET statement_timeout = '2500 ms'});
	my $query = q{SELECT id, now() AS now, statement_timestamp() AS statement FROM due WHERE at <= now()};
	my $job = start_job($session, $query, 'due:#{id}', server => q{'away'});
	until_state($node, $job, 'retrying');
	sleep 3;
	$node->safe_psql('postgres', 'INSERT INTO due VALUES (2)');
	my $committed = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	$away->start;
	my $row = job_ends($node, $away, $job, state => 'done', error => qr/could not connect/, keys => 'due:*');
	is($row->{rows_written}, 2, 'a row that was committed before the query began is found');
	my $document = $away->cli('JSON.GET', 'due:2');
	$document =~ /"now":"([^"]*)","statement":"([^"]*)"/;
	is($node->safe_psql('postgres', "SELECT '$1'::timestamptz > '$committed' AND '$2'::timestamptz >= '$1'"), 't', 'now() is the moment of the query');

	# of which statement_timeout, of an export that nobody waits for, counts the time
	$job = start_job($session, 'SELECT id, pg_sleep(60)::text FROM due', 'due:#{id}', server => q{'away'});
	$row = job_ends($node, $away, $job, state => 'canceled', error => qr/statement timeout/);
	$job = start_job($session, 'SELECT id FROM generate_series(1, 1000) id', 'slow:#{id}', server => q{'away'}, rate => 10, batch => 1);
	until_written($node, $job, 5);
	my $begin = $node->safe_psql('postgres', q{SELECT now() - xact_start < '2500 ms' FROM pg_stat_activity WHERE backend_type = 'redis_export worker'});
	is($begin, 't', 'as xact_start says');
	job_ends($node, $away, $job, state => 'canceled', error => qr/statement timeout/);
};

# One slot in all: whoever returns without having let go of it is in the way of the next one.
subtest 'a worker is gone when its call returns' => sub {
	my $small = new_node($redis, name => 'small', conf => "max_worker_processes = 1\nmax_logical_replication_workers = 0\n");
	my $session = session($small);
	my $count = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'redis_export worker'};
	$session->query(q{
		CREATE FUNCTION loops(query text, rounds int) RETURNS text LANGUAGE plpgsql AS $$
			DECLARE
				done int := 0;
				refused int := 0;
				left_over int := 0;
			BEGIN
				FOR i IN 1 .. rounds LOOP
					BEGIN
						PERFORM redis_json_export(query, 'loop:#{id}');
						done := done + 1;
					EXCEPTION WHEN configuration_limit_exceeded THEN
						refused := refused + 1;
					WHEN division_by_zero THEN
						NULL;
					END;
					PERFORM pg_stat_clear_snapshot();
					left_over := left_over + (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'redis_export worker');
				END LOOP;
				RETURN format('done %s, refused %s, left %s', done, refused, left_over);
			END $$});
	is($session->query(q{SELECT loops('SELECT 1 AS id', 200)}), 'done 200, refused 0, left 0', 'after exports that are done');
	is($session->query(q{SELECT loops('SELECT 1/(random()::int * 0) AS id', 50)}), 'done 0, refused 0, left 0', 'after exports that failed');

	# another one may take a moment
	my $other = session($small);
	my $before = next_job($small, sub { $other->send(export_sql('SELECT 1 AS id, pg_sleep(0.5)::text')) });
	is($session->query(export_sql('SELECT 1 AS id')), ($before + 1) . '|done', 'and after another one, which took the slot for a moment');
	$other->wait;

	# but not for ever, and who waits can be cancelled
	my $running = start_job($small, 'SELECT id FROM generate_series(1, 100000) id', 'w:#{id}', rate => 100);
	until_state($small, $running, 'running');
	like(error_in($session, export_sql('SELECT 1 AS id')), qr/ERROR:  53400: no background worker is free for the export/, 'after a while it is an error');
	like(error_in($session, q{SET statement_timeout = '300 ms'; } . export_sql('SELECT 1 AS id')), qr/ERROR:  57014: canceling statement due to statement timeout/,
		'unless it is cancelled before');
	is(job($small)->{state}, 'canceled', 'and so is the job');
	$small->safe_psql('postgres', "SELECT redis_export_cancel($running)");
	job_ends($small, $redis, $running, state => 'canceled', keys => 'w:*');
	$small->stop('fast');
};

# Passwords that last for a quarter of an hour: whoever replaces them in Redis replaces them in the mapping, too. A connection that is there
# stays good, so they are needed when it is made anew.
subtest 'a new password is used at the next connection' => sub {
	my $rounds = 0;
	my $locked = RedisExport::Redis->new(conf => { requirepass => 'admin', user => 'app on >first ~* &* +@all' });
	add_server($node, $locked, name => 'locked');
	$node->safe_psql('postgres', q{CREATE USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (username 'app', password 'first')});
	my $in_redis = sub {
		my ($password) = @_;
		$locked->cli('ACL', 'SETUSER', 'app', 'resetpass', ">$password");
	};
	my $cut = sub { $locked->cli('CLIENT', 'KILL', 'USER', 'app') };
	my $new_password = sub {
		my $password = 'password' . ++$rounds;
		$in_redis->($password);
		$node->safe_psql('postgres', "ALTER USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (SET password '$password')");
		$cut->();
	};
	my $ends = sub {
		my ($job, $rows, $reconnects, $name) = @_;
		my $row = job_ends($node, $locked, $job, state => 'done', error => qr/connect/);
		is($row->{rows_written}, $rows, "$name: all rows are written");
		cmp_ok($row->{reconnects}, '>=', $reconnects, 'over connections that were made anew');
	};

	# while the query runs
	my $session = session($node);
	my $job = start_job($session, 'SELECT id FROM generate_series(1, 500) id', 'p:#{id}', server => q{'locked'}, rate => 200, batch => 10);
	until_written($node, $job, 20);
	$new_password->();
	until_written($node, $job, 200);
	$new_password->();
	$ends->($job, 500, 2, 'in the query');

	# and in a parallel one, with a snapshot that is older than the password
	$session->query(q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
		SET default_transaction_isolation = 'repeatable read'});
	$job = start_job($session, 'SELECT id FROM large WHERE id <= 400', 'q:#{id}', server => q{'locked'}, rate => 200, batch => 10);
	until_written($node, $job, 20);
	$new_password->();
	$ends->($job, 400, 1, 'in a parallel query');

	# when it is over, and only answers are awaited
	$locked->cli('CLIENT', 'PAUSE', 60000, 'WRITE');
	$job = $session->query(command_sql('SELECT id FROM generate_series(1, 10) id', [ 'SET', 'r:#{id}', 'x' ], server => q{'locked'}, wait => 'false')) =~ s/\|.*//r;
	until_state($node, $job, 'finishing');
	$new_password->();
	$locked->cli('CLIENT', 'UNPAUSE');
	$ends->($job, 10, 1, 'after the query');

	# a job that finds no Redis at first
	$locked->stop;
	$job = start_job($session, 'SELECT id FROM generate_series(1, 10) id', 's:#{id}', server => q{'locked'});
	until_state($node, $job, 'retrying');
	$node->safe_psql('postgres', q{ALTER USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (SET password 'first')});
	$locked->start;
	$ends->($job, 10, 0, 'before the first connection');

	# what is gone, or cannot be, leaves what was known
	for my $change (q{ALTER USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (DROP password)}, 'DROP USER MAPPING FOR CURRENT_USER SERVER locked',
		'DROP SERVER locked CASCADE')
	{
		$job = start_job($session, 'SELECT id FROM generate_series(1, 400) id', 't:#{id}', server => q{'locked'}, rate => 200, batch => 10);
		until_written($node, $job, 20);
		$node->safe_psql('postgres', $change);
		$cut->();
		$ends->($job, 400, 1, $change);
		add_server($node, $locked, name => 'locked') if $change =~ /^DROP SERVER/;
		$node->safe_psql('postgres', q{DROP USER MAPPING IF EXISTS FOR CURRENT_USER SERVER locked;
			CREATE USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (username 'app', password 'first')});
	}
};

# One statement that goes on and on, in which PostgreSQL may never look for what others have changed.
subtest 'the same for a session that keeps its connection' => sub {
	my $locked = RedisExport::Redis->new(conf => { requirepass => 'admin', user => 'app on >first ~* &* +@all' });
	add_server($node, $locked, name => 'kept');
	my $session = session($node);
	$session->query(q{
		CREATE USER MAPPING FOR CURRENT_USER SERVER kept OPTIONS (username 'app', password 'first');
		CREATE FUNCTION counts(until int) RETURNS int LANGUAGE plpgsql AS $$
			DECLARE n int := 0;
			BEGIN
				WHILE n < until LOOP
					n := redis_command('kept', 'INCR', 'counter')::int;
					PERFORM pg_sleep(0.01);
				END LOOP;
				RETURN n;
			END $$});
	$session->send('SELECT counts(1000000)');
	wait_for('it counts', sub { return ($locked->cli('GET', 'counter') || 0) > 10 }, 30);
	$locked->cli('ACL', 'SETUSER', 'app', 'resetpass', '>second');
	$node->safe_psql('postgres', q{ALTER USER MAPPING FOR CURRENT_USER SERVER kept OPTIONS (SET password 'second')});
	$locked->cli('CLIENT', 'KILL', 'USER', 'app');
	my $so_far = $locked->cli('GET', 'counter');
	wait_for('it counts on', sub { return !$session->busy || $locked->cli('GET', 'counter') > $so_far + 10 }, 30);
	$locked->cli('SET', 'counter', 1000000);
	my ($out, $err) = $session->wait;
	is("$out$err", 1000001, 'it goes on with the new password');
};

subtest 'the same for each node of a cluster, and for sentinels' => sub {
	my $cluster = RedisExport::Cluster->new;
	add_server($node, $cluster, name => 'cluster');
	my $users = sub { $_->cli('ACL', 'SETUSER', 'app', 'reset', 'on', ">$_[0]", '~*', '&*', '+@all') for $cluster->nodes };
	my $cut = sub { $_->cli('CLIENT', 'KILL', 'USER', 'app') for $cluster->nodes };
	$users->('first');
	my $session = session($node);
	$session->query(q{CREATE USER MAPPING FOR CURRENT_USER SERVER cluster OPTIONS (username 'app', password 'first')});
	my $job = $session->query(hash_sql('SELECT id FROM generate_series(1, 600) id', 'c:#{id}', server => q{'cluster'}, rate => 200, batch => 10, wait => 'false')) =~ s/\|.*//r;
	until_written($node, $job, 50);
	$users->('second');
	$session->query(q{ALTER USER MAPPING FOR CURRENT_USER SERVER cluster OPTIONS (SET password 'second')});
	$cut->();
	my $row = job_ends($node, $cluster, $job, state => 'done', error => qr/connect/);
	is($row->{rows_written}, 600, 'all rows are in the cluster');
	cmp_ok($row->{reconnects}, '>=', 3, 'over new connections to all nodes');
	is($cluster->dbsize, 600, 'as its nodes say');

	my $master = RedisExport::Redis->new(conf => { requirepass => 'master1' });
	my $sentinel = RedisExport::Sentinel->new(conf => { requirepass => 'sentinel1' });
	$sentinel->watch('main', $master->port)->tell('SENTINEL', 'SET', 'main', 'auth-pass', 'master1');
	sentinel_server($node, [ $sentinel ], 'main', name => 'watched');
	$session->query(q{CREATE USER MAPPING FOR CURRENT_USER SERVER watched OPTIONS (password 'master1', sentinel_password 'sentinel1')});
	$job = start_job($session, 'SELECT id FROM generate_series(1, 400) id', 'w:#{id}', server => q{'watched'}, rate => 200, batch => 10);
	until_written($node, $job, 20);
	is($sentinel->cli('ACL', 'SETUSER', 'default', 'resetpass', '>sentinel2'), 'OK', 'the sentinel has a new password');
	$sentinel->{conf}{requirepass} = 'sentinel2';
	$master->cli('CONFIG', 'SET', 'requirepass', 'master2');
	$master->{conf}{requirepass} = 'master2';
	$session->query(q{ALTER USER MAPPING FOR CURRENT_USER SERVER watched OPTIONS (SET password 'master2', SET sentinel_password 'sentinel2')});
	$master->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	$row = job_ends($node, $master, $job, state => 'done', error => qr/connect/, keys => 'w:*');
	is($row->{rows_written}, 400, 'and with the master that a sentinel knows');
};

done_testing;
