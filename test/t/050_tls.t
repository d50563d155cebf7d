# TLS: whom we trust and who trusts us, what goes wrong on the way and how it is told, and that an export over TLS is what it is without.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Jobs;
use RedisExport::Proxy;
use RedisExport::Rows;
use RedisExport::Tls;

my $node = new_node(undef, conf => 'redis_export.notice_interval = 0');

if (!$ENV{REDIS_EXPORT_TLS})
{
	like(sql_error($node, q{CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'true')}, verbose => 1),
		qr/^ERROR:  0A000: TLS is not supported by this build of redis_export\nDETAIL:  It was built with hiredis \d+\.\d+\.\d+, without hiredis_ssl\.\nHINT:  Build it again with hiredis/m,
		'without TLS: the foreign server is refused');
	$node->safe_psql('postgres', q{
		CREATE SERVER redis FOREIGN DATA WRAPPER redis_export;
		UPDATE pg_foreign_server SET srvoptions = '{tls=true}'});
	like(sql_error($node, export_sql('SELECT 1 AS id')), qr/^ERROR:  TLS is not supported by this build of redis_export/m,
		'and an export to one that came by replication');
	is(job($node)->{state}, 'failed', 'which has failed');
	done_testing;
	exit;
}

my $redis = RedisExport::Tls->new;
my $count = 0;

# The name of a new foreign server; Redis' authority is trusted, if the options say nothing else.
sub server
{
	my ($at, %options) = @_;
	my $name = 's' . ++$count;
	%options = (tls => 'true', tls_ca_file => tls_file('ca.crt'), %options);
	delete @options{ grep { !defined $options{$_} } keys %options };
	add_server($node, $at, name => $name, %options);
	return $name;
}

# The error of a command over it, with its SQLSTATE; empty if there is none.
sub error_of
{
	my ($server) = @_;
	return sql_error($node, "SELECT redis_command('$server', 'PING')", verbose => 1) =~ s/\nLOCATION:.*//sr;
}

# Neither a command nor an export enters: both say so at once, and nothing is written.
sub refuses
{
	my ($server, $pattern, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $expected = qr/^ERROR:  08001: could not connect to Redis server "$server" at "[^"]+", port \d+ with TLS: $pattern/m;
	like(error_of($server), $expected, "$name: a command");
	like(sql_error($node, rows(10, server => "'$server'"), verbose => 1), $expected, "$name: an export");
	return job_ended($node, 'failed', rows_read => 0);
}

sub accepts
{
	my ($server, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(error_of($server), '', $name);
}

subtest 'an export, and a command' => sub {
	my $server = server($redis);
	my $session = session($node);
	$session->query(rows(20_000, server => "'$server'"));
	job_ended($node, 'done', rows_written => 20_000, reconnects => 0);
	is(wrong_rows($redis, 20_000), 0, 'all rows are in Redis');
	like($session->query("SELECT redis_command('$server', 'CLIENT', 'INFO')"), qr/ laddr=127\.0\.0\.1:\Q@{[ $redis->port ]}\E /,
		'it was the TLS port');
	is($session->query("SELECT redis_command('$server', 'ECHO', repeat('x', 5000000)) = to_jsonb(repeat('x', 5000000))"), 't',
		'a long command and its reply');

	$session->query("SELECT redis_hash_export('SELECT i AS id, i * 2 AS twice FROM generate_series(1, 5000) AS i', 'h:#{id}', replace => true, server => '$server')");
	is($redis->cli('EVAL', q{
		local wrong = 0
		for i = 1, 5000 do if redis.call('HGET', 'h:' .. i, 'twice') ~= tostring(2 * i) then wrong = wrong + 1 end end
		return wrong}, 0), 0, 'hashes, in blocks of commands');

	$session->query(export_sql(q{SELECT 'large' AS id, '{"v":"' || string_agg(md5(i::text), '') || '"}' AS doc FROM generate_series(1, 500000) AS i},
			server => "'$server'", value => q{'doc'}));
	is($redis->cli('EVAL', q{return #redis.call('JSON.GET', 'k:large', '$.v')}, 0), 32 * 500_000 + 4, 'a row of 16 MB');
	is($redis->cli('JSON.GET', 'k:large', '$.v') =~ s/\A\["|"\]\z//gr,
		$session->query(q{SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500000) AS i}), 'is there to the last byte');
};

subtest 'a URI that says TLS' => sub {
	for my $scheme ('rediss', 'valkeys')
	{
		my $name = 's' . ++$count;
		$node->safe_psql('postgres', "CREATE SERVER $name FOREIGN DATA WRAPPER redis_export OPTIONS (uri '$scheme://localhost:" . $redis->port . q{/2', tls_ca_file '} . tls_file('ca.crt') . q{')});
		accepts($name, "$scheme, with the name in it verified");
		like(sql_error($node, "ALTER SERVER $name OPTIONS (SET uri 'redis://localhost')"), qr/^ERROR:  option "tls_ca_file" cannot be used with a URI without TLS/m, 'and not without');
	}
};

subtest 'with a password and a database' => sub {
	my $locked = RedisExport::Tls->new(conf => { requirepass => 'sesame' });
	my $server = server($locked, db => 3);
	like(error_of($server), qr/could not log in to .* NOAUTH/, 'none: the error of Redis');
	$node->safe_psql('postgres', qq{CREATE USER MAPPING FOR CURRENT_USER SERVER $server OPTIONS (password 'sesame')});
	$node->safe_psql('postgres', rows(100, server => "'$server'"));
	is($locked->cli('-n', 3, 'DBSIZE'), 100, 'the right one: all rows in that database');
	$locked->stop;
};

subtest 'who signed it' => sub {
	my $self_signed = qr/certificate verify failed: self[- ]signed certificate in certificate chain\n|certificate verify failed: unable to get local issuer certificate\n/;
	refuses(server($redis, tls_ca_file => tls_file('stranger_ca.crt')), qr/$self_signed.*HINT:  Set the option "tls_ca_file"/s, 'another authority');
	refuses(server($redis, tls_ca_file => undef), $self_signed, "none but the system's");
	refuses(server($redis, tls_ca_file => tls_file('stranger_ca.crt'), tls_verify => 'ca'), $self_signed, 'another authority, the name not verified');
	refuses(server($redis, tls_ca_file => '/nowhere/ca.crt'), qr/could not load the option "tls_ca_file", "\/nowhere\/ca\.crt": No such file or directory$/m,
		'a file that is not there');
	refuses(server($redis, tls_ca_file => tls_file('ca.key')), qr/could not load the option "tls_ca_file", ".*ca\.key": /, 'a file that holds something else');
	accepts(server($redis, tls_ca_file => undef, tls_verify => 'off'), 'tls_verify off asks for nothing');
	accepts(server($redis, tls_ca_file => tls_file('stranger_ca.crt'), tls_verify => 'off', tls_server_name => 'unknown'), 'for nothing at all');

	# where the system keeps its authorities can be told to OpenSSL
	local $ENV{SSL_CERT_FILE} = tls_file('ca.crt');
	$node->restart;
	accepts(server($redis, tls_ca_file => undef), "the system's authorities count");
	refuses(server($redis, tls_ca_file => tls_file('stranger_ca.crt')), $self_signed, 'but not where others are given');
	delete local $ENV{SSL_CERT_FILE};
	$node->restart;
};

subtest 'its name' => sub {
	my $hint = qr/.*HINT:  If it is the right server, set the option "tls_server_name" to a name that its certificate has\./s;
	accepts(server($redis, host => 'localhost'), 'a name');
	accepts(server($redis, tls_server_name => 'redis.example.com'), 'another that it has');
	refuses(server($redis, tls_server_name => 'other.example.com'), qr/certificate verify failed: hostname mismatch$hint/i, 'one that it has not');
	refuses(server($redis, tls_server_name => '127.0.0.2'), qr/certificate verify failed: IP address mismatch$hint/i, 'an address that it has not');
	accepts(server($redis, tls_server_name => 'other.example.com', tls_verify => 'ca'), 'tls_verify ca asks for no name');

	$redis->present('other_name');
	refuses(server($redis), qr/certificate verify failed: IP address mismatch$hint/i, 'an address of another');
	refuses(server($redis, host => 'localhost'), qr/certificate verify failed: hostname mismatch$hint/i, 'a name of another');
	accepts(server($redis, host => 'localhost', tls_verify => 'ca'), 'where none is asked for');
	accepts(server($redis, host => 'localhost', tls_server_name => 'other.example.com'), 'where that one is asked for');
	$redis->present('wildcard');
	accepts(server($redis, tls_server_name => 'any.example.com'), 'one of many');
	refuses(server($redis, tls_server_name => 'any.of.example.com'), qr/certificate verify failed: hostname mismatch/i, 'of that level only');
	$redis->present('stranger');
	refuses(server($redis), qr/certificate verify failed: unable to get local issuer certificate/, 'the right name by another authority');
	$redis->present('server');
};

subtest 'its dates' => sub {
	$redis->present('expired');
	refuses(server($redis), qr/certificate verify failed: certificate has expired\n.*HINT:  See the dates/s, 'expired');
	refuses(server($redis, tls_verify => 'ca'), qr/certificate verify failed: certificate has expired/, 'expired, the name not verified');
	accepts(server($redis, tls_verify => 'NONE'), 'tls_verify none asks for no dates');
	$redis->present('server');
};

subtest 'who we are' => sub {
	for my $version ('TLSv1.2', 'TLSv1.3')
	{
		my $strict = RedisExport::Tls->new(conf => { 'tls-auth-clients' => 'yes', 'tls-protocols' => "\"$version\"" });
		my $with = sub {
			my ($cert, $key) = @_;
			return server($strict, tls_cert_file => tls_file("$cert.crt"), tls_key_file => tls_file(($key // $cert) . '.key'));
		};
		my $server = $with->('client');
		accepts($server, "$version: a certificate of ours");
		$node->safe_psql('postgres', rows(1000, server => "'$server'"));
		is(wrong_rows($strict, 1000), 0, "$version: an export with it");

		refuses(server($strict), qr/.*alert.*HINT:  Redis may want a certificate of its clients: set the options "tls_cert_file"/s, "$version: none") for 1 .. 5;
		refuses($with->('client_stranger'), qr/.*alert unknown ca\n.*HINT:  Redis may not accept the certificate in "tls_cert_file"/s,
			"$version: one by another authority");
		refuses($with->('client_expired'), qr/.*alert certificate expired\n.*HINT:  Redis may not accept/s, "$version: one that has expired");

		next if $version eq 'TLSv1.2';
		my $hint = qr/.*HINT:  It must hold the key of the certificate in "tls_cert_file", without a passphrase\./s;
		refuses($with->('client', 'server'), qr/could not load the option "tls_key_file", "[^"]*\/server\.key": .*mismatch$hint/, 'the key of another');
		refuses($with->('client', 'client_locked'), qr/could not load the option "tls_key_file", "[^"]*\/client_locked\.key": .*$hint/, 'a key with a passphrase');
		refuses(server($strict, tls_cert_file => tls_file('client.key'), tls_key_file => tls_file('client.key')),
			qr/could not load the option "tls_cert_file", "[^"]*\/client\.key": /, 'no certificate');
	}
};

subtest 'no version in common' => sub {
	my $old = RedisExport::Tls->new(conf => { 'tls-protocols' => '"TLSv1.1"', 'tls-ciphers' => 'DEFAULT:@SECLEVEL=0' });
	refuses(server($old), qr/.*(?:protocol version|unsupported protocol|handshake failure)/, 'TLS 1.1');
	$old->stop;
};

subtest 'TLS to where there is none, and the reverse' => sub {
	# Redis waits for the end of what it takes for a line
	my $mistaken = server($redis, port => $redis->plain_port, connect_timeout => '0.5');
	my $no_tls = qr/could not connect to Redis server "$mistaken" at .* with TLS: no handshake within 0\.5 seconds/;
	like(error_of($mistaken), qr/^ERROR:  08001: $no_tls\n.*HINT:  See that this is the port where Redis speaks TLS, or set the option "tls" to false\./s,
		'TLS to a plain port: a command');
	like(sql_error($node, rows(10, server => "'$mistaken'", retry_timeout => q{'0.3 s'})),
		qr/^ERROR:  gave up after .*: $no_tls\n.*HINT:  See that/ms, 'TLS to a plain port: an export');
	refuses(server(RedisExport::Fake->new(rubbish => "-ERR unknown command\r\n")),
		qr/wrong version number\n.*HINT:  TLS may not be spoken there: see the option "port", or set the option "tls" to false\./s, 'TLS to what answers in plain');

	my $plain = server($redis, tls => undef, tls_ca_file => undef);
	my $expected = qr/could not log in to Redis server "$plain" at .*: lost the connection .*\n.*HINT:  If Redis speaks TLS there, set the option "tls" to true\./s;
	like(error_of($plain), qr/^ERROR:  08006: $expected/, 'plain to a TLS port: a command');
	like(sql_error($node, rows(10, server => "'$plain'", retry_timeout => q{'0.3 s'})), qr/^ERROR:  gave up after .*: $expected/m,
		'plain to a TLS port: an export');
	job_ended($node, 'failed', rows_read => 0);

	# an alert of TLS, which is what some servers say
	my $alert = RedisExport::Fake->new(rubbish => "\x15\x03\x01\x00\x02\x02\x46");
	like(error_of(server($alert, tls => undef, tls_ca_file => undef)), qr/sent what is no reply of Redis: .*HINT:  If Redis speaks TLS there, set the option "tls" to true\./s,
		'plain to what answers in TLS');
};

subtest 'what does not answer' => sub {
	my $silent = RedisExport::Fake->new(all => sub { return undef });
	my $server = server($silent, connect_timeout => '1.5');
	my $begun = time;
	like(error_of($server), qr/^ERROR:  08001: could not connect to Redis server "$server" at .* with TLS: no handshake within 1\.5 seconds\n.*HINT:  See that this is the port/s,
		'connect_timeout ends the handshake');
	my $took = time - $begun;
	cmp_ok($took, '>=', 1.5, 'not before');
	cmp_ok($took, '<', 60, 'and not long after');

	$server = server($silent, connect_timeout => 3600);
	my $session = session($node);
	$session->send("SELECT redis_command('$server', 'PING')");
	poll_until($node, 'SELECT wait_event_type = $$Extension$$ FROM pg_stat_activity WHERE pid = ' . $session->pid);
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
	like(($session->wait)[1], qr/ERROR:  canceling statement due to user request/, 'a command in its handshake can be canceled');

	my $id = start_job($node, 'SELECT 1 AS id', 'a:#{id}', server => "'$server'");
	poll_until($node, qq{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = (SELECT pid FROM redis_export_progress WHERE job = $id)});
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled');

	my $closing = RedisExport::Fake->new(rubbish => '');
	$server = server($closing);
	like(error_of($server), qr/^ERROR:  08001: could not connect to Redis server "$server" at .* with TLS: the server closed it\n/m, 'one that hangs up');
	like(sql_error($node, rows(10, server => "'$server'", retry_timeout => q{'0.3 s'}), verbose => 1), qr/^ERROR:  08001: gave up after .*the server closed it/m,
		'which an export tries again');
};

subtest 'cut in the middle of a record' => sub {
	# the handshake, the login and then records of 16 kB
	my $proxy = RedisExport::Proxy->new($redis, cut_after => [ 100, 400, 900, 9_000, 20_001, 100_000, 300_017 ], trickle => 20_000);
	my $server = server($proxy);
	$redis->cli('FLUSHALL');
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(rows(20_000, server => "'$server'")) });
	my (undef, $err) = $session->wait;
	my $job = job_ended($node, 'done', rows_written => 20_000, redis_restarts => 0);
	cmp_ok($job->{reconnects}, '>=', 3, 'it was cut') or diag $err;
	is(wrong_rows($redis, 20_000), 0, 'all rows are in Redis');

	# Redis' own replies, cut
	$redis->cli('FLUSHALL');
	$id = next_job($node, sub { $session->send(rows(20_000, rate => 5000, server => "'$server'")) });
	for my $part (1 .. 3)
	{
		until_written($node, $id, 4000 * $part);
		$proxy->raise('cut');
		poll_until($node, "SELECT reconnects >= $part FROM redis_export_progress WHERE job = $id");
	}
	$session->wait;
	job_ended($node, 'done', rows_written => 20_000);
	is(wrong_rows($redis, 20_000), 0, 'all rows are in Redis');

	my $shut = RedisExport::Proxy->new($redis, cut_after => [ 100 ]);
	like(error_of(server($shut)), qr/^ERROR:  08001: could not connect .* with TLS: (?:the server closed it|Connection reset by peer)\n/m, 'in the handshake, a command says so');
};

# What must not be sent twice: each row is in the list once, or not at all, and no more of them are in doubt than we say.
subtest 'cut while commands are sent that must not be repeated' => sub {
	for my $cut_after (2_000, 30_001, 90_000, 150_003, 333_333)
	{
		$redis->cli('DEL', 'list');
		my $server = server(RedisExport::Proxy->new($redis, cut_after => [ $cut_after ]));
		my $error = sql_error($node, "SELECT redis_command_export('SELECT i FROM generate_series(1, 20000) AS i', ARRAY['RPUSH', 'list', '#{i}'], server => '$server')");
		my $job = job($node);
		my $written = $redis->cli('LLEN', 'list');
		if ($job->{state} eq 'done')
		{
			# it was cut before anything was sent
			is($written, 20_000, "cut after $cut_after bytes: all rows are there");
			next;
		}
		job_ended($node, 'failed');
		ok($job->{rows_written} <= $written && $written <= $job->{rows_written} + $job->{rows_in_doubt},
			"cut after $cut_after bytes: $written rows are there") or diag "$job->{rows_written} written, $job->{rows_in_doubt} in doubt: $error";
		is($redis->cli('EVAL', q{
			local list = redis.call('LRANGE', 'list', 0, -1)
			for i = 1, #list do if list[i] ~= tostring(i) then return i end end
			return 0}, 0), 0, 'each once, and in order');
	}
};

# Until nothing more goes out: all buffers on the way are full.
sub until_stuck
{
	my ($id) = @_;
	my ($before, $now) = (-1, 0);
	for (my $tries = 0; $now != $before || !$now; $tries++)
	{
		die "export job $id is not stuck" if $tries > 200;
		sleep 0.3;
		($before, $now) = ($now, job($node, $id)->{bytes_sent});
	}
	return;
}

subtest 'a Redis that does not read' => sub {
	$redis->cli('FLUSHALL');
	my $server = server($redis);
	my $export = sub {
		return start_job($node, q{SELECT i AS id, repeat(md5(i::text), 1000) AS v FROM generate_series(1, 2000) AS i}, 'k:#{id}',
			server => "'$server'", value => q{'*'}, rate => 1000);
	};
	my $id = $export->();
	until_written($node, $id, 1);
	$redis->freeze;
	until_stuck($id);
	$redis->thaw;
	is(job_ends($node, $redis, $id, state => 'done', keys => 'k:*')->{reconnects}, 0, 'on the one connection');
	is($redis->cli('EVAL', q{
		local wrong = 0
		for i = 1, 2000 do
			local doc = redis.call('JSON.GET', 'k:' .. i)
			if #doc ~= 32000 + #('{"id":' .. i .. ',"v":""}') then wrong = wrong + 1 end
		end
		return wrong}, 0), 0, 'all rows are in Redis, whole');

	$id = $export->();
	until_written($node, $id, 1);
	$redis->freeze;
	until_stuck($id);
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id", 30);
	is(job($node, $id)->{state}, 'canceled', 'canceled while it does not');
	$redis->thaw;
};

# A Unix socket holds always the same number of bytes, some two hundred thousand. The sizes go from less to more in steps of less than a
# record, so that for one of them the last record and nothing else is left unsent while nobody reads.
subtest 'the last record is left unsent' => sub {
	my $proxy = RedisExport::Proxy->new($redis, socket => 1);
	my $server = server($proxy, tls_server_name => 'redis.example.com', timeout => 10);
	my $session = session($node);
	$session->query("SELECT redis_command('$server', 'PING')");
	my @wrong;
	for (my $size = 100_000; $size < 400_000; $size += 12_000)
	{
		$proxy->raise('stall');
		$session->send("SELECT redis_command('$server', 'ECHO', repeat('x', $size)) = to_jsonb(repeat('x', $size))");
		poll_until($node, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $session->pid);
		$proxy->lower('stall');
		my ($out, $err) = $session->wait;
		push @wrong, "$size bytes: $out$err" if $out ne 't';
	}
	is_deeply(\@wrong, [], 'it goes when there is room');
	is($proxy->connections, 1, 'on the one connection');
};

subtest 'a certificate that is bad for a while' => sub {
	$redis->cli('FLUSHALL');
	my $server = server($redis);
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(rows(12_000, rate => 2000, server => "'$server'")) });
	until_written($node, $id, 1000);
	$redis->present('expired');
	$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	until_state($node, $id, 'retrying');
	poll_until($node, "SELECT last_error ~ 'certificate has expired' FROM redis_export_progress WHERE job = $id");
	$redis->present('server');
	$session->wait;
	job_ended($node, 'done', rows_written => 12_000);
	is(wrong_rows($redis, 12_000), 0, 'an export that was under way goes on when it is good again');
};

subtest "PostgreSQL's own TLS" => sub {
	plan skip_all => 'this PostgreSQL has none'
		if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'ssl_library' AND setting = 'OpenSSL'}) == 0;
	$node->append_conf('postgresql.conf', "ssl = on\nlisten_addresses = '127.0.0.1'\nssl_cert_file = '@{[ tls_file('server.crt') ]}'\n"
		. "ssl_key_file = '@{[ tls_file('server.key') ]}'\n");
	$node->restart;
	my ($good, $bad) = (server($redis), server($redis, tls_server_name => 'other.example.com'));
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-XAtq', '-d', 'host=127.0.0.1 dbname=postgres sslmode=verify-full port=' . $node->port . ' sslrootcert=' . tls_file('ca.crt') ],
		'<', \"
			SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid();
			SELECT redis_command('$good', 'PING');
			SELECT redis_command('$bad', 'PING');
			SELECT redis_command('$bad', 'PING');
			SELECT redis_command('$good', 'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no')::int > 0;
			SELECT length(repeat('x', 1000000));
			SELECT redis_command('$good', 'PING');",
		'>', \$out, '2>', \$err);
	is($out, qq{t\n"PONG"\nt\n1000000\n"PONG"\n}, 'both at once');
	is(() = $err =~ /ERROR:  could not connect to Redis server "$bad" .* with TLS: certificate verify failed/g, 2, "and one's errors are not the other's")
		or diag $err;
};

subtest 'nothing is left behind' => sub {
	my ($good, $bad) = (server($redis), server($redis, tls_server_name => 'other.example.com'));
	my $session = session($node);
	my $files = sub { my @open = glob '/proc/' . $session->pid . '/fd/*'; return scalar @open };
	my $kb = sub { return slurp_file('/proc/' . $session->pid . '/status') =~ /^RssAnon:\s*(\d+)/m ? $1 : die };
	my $rounds = sub {
		my ($rounds) = @_;
		$session->query("
			DO \$\$ BEGIN
				FOR i IN 1 .. $rounds LOOP
					BEGIN PERFORM redis_command('$bad', 'PING'); EXCEPTION WHEN OTHERS THEN NULL; END;
					PERFORM redis_command('$good', 'PING');
					PERFORM redis_command('$good', 'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no');
				END LOOP;
			END \$\$");
	};
	$rounds->(50);
	my ($files_before, $kb_before) = ($files->(), $kb->());
	$rounds->(300);
	is($files->(), $files_before, '600 connections later as many files are open');
	cmp_ok($kb->() - $kb_before, '<', 3000, 'and memory has not grown by theirs');
};

done_testing;
