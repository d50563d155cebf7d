# Sentinels, who know where the master is: whom of them we ask, how we enter there, what they may tell; and what becomes of exports
# when another Redis takes over as the master.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Jobs;
use RedisExport::Rows;
use RedisExport::Sentinel;
use RedisExport::Tls;

# so few files that what is not closed is soon missed
my $node = new_node(undef, conf => "redis_export.notice_interval = 0\nmax_files_per_process = 100");
my @main = redis_group(2);
my @held = redis_group(1);
my @twice = redis_group(2);
my @sentinels = sentinels(3, main => \@main, held => \@held);
my $count = 0;

# The name of a new foreign server.
sub server
{
	my ($sentinels, $service, %options) = @_;
	return sentinel_server($node, $sentinels, $service, name => 's' . ++$count, %options);
}

# The error of a statement alone, with its SQLSTATE, detail and hint; empty if there is none.
sub error_of
{
	my ($sql) = @_;
	return sql_error($node, $sql, verbose => 1) =~ s/^.*?(?=^ERROR:)|^LOCATION:.*//msgr =~ s/^DETAIL:  Export job .*\n//mr;
}

sub command_error { my ($server) = @_; return error_of("SELECT redis_command('$server', 'PING')") }

# The same of an export. It fails at once if there is no retry_timeout: the default is longer than the test.
sub export_error
{
	my ($server, %arguments) = @_;
	return error_of(rows(10, server => "'$server'", %arguments));
}

# Neither enters, and both say so at once.
sub refuses
{
	my ($server, $pattern, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like(command_error($server), $pattern, "$name: a command");
	like(export_error($server), $pattern, "$name: an export");
	return job_ended($node, 'failed', rows_read => 0);
}

sub accepts
{
	my ($server, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(command_error($server), '', "$name: a command");
	is(export_error($server), '', "$name: an export");
	return job_ended($node, 'done', rows_written => 10, reconnects => 0);
}

# What a sentinel tells, and one that tells nothing else. A sub is asked each time.
sub address { my ($host, $port) = @_; return sprintf "*2\r\n\$%d\r\n%s\r\n\$%d\r\n%s", length $host, $host, length $port, $port }
sub fake_sentinel
{
	my ($answer) = @_;
	return RedisExport::Fake->new(sub { my ($fake) = @_; return ref $answer ? $answer->($fake) : $answer });
}

# Of the rows from the first to the last, how many Redis lacks, and how many it holds otherwise than they are.
sub count_rows
{
	my ($redis, $first, $last) = @_;
	return split /\n/, $redis->cli('EVAL', q{
		local missing, wrong = 0, 0
		for i = ARGV[1], ARGV[2] do
			local doc = redis.call('JSON.GET', 'k:' .. i)
			if not doc then missing = missing + 1
			elseif doc ~= '{"id":' .. i .. ',"v":"value ' .. i .. '"}' then wrong = wrong + 1 end
		end
		return { missing, wrong }}, 0, $first, $last);
}

sub list_is
{
	my ($redis, $list, $last, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($redis->cli('EVAL', q{
		local list = redis.call('LRANGE', ARGV[1], 0, -1)
		for i = 1, #list do if list[i] ~= tostring(i) then return 'at ' .. i .. ' there is ' .. list[i] end end
		return #list}, 0, $list), $last, $name);
}

# What a session was told by the end of its statement.
sub messages { my ($session) = @_; return ($session->wait)[1] =~ s/^psql:<stdin>:\d+: //gmr }

sub by_port { my ($port, @redis) = @_; my ($found) = grep { $_->port == $port } @redis; return $found // die "nothing has port $port" }

# Waits until the sentinels agree that another than this is the master, which is returned.
sub new_master
{
	my ($service, $old, @group) = @_;
	my $port;
	wait_until("the sentinels have another master for $service", sub { ($port = told_master($service, @sentinels)) && $port != $old->port });
	return by_port($port, @group);
}

subtest 'an export, and a command' => sub {
	my $server = server(\@sentinels, 'main');
	my $session = session($node);
	$session->query(rows(10_000, server => "'$server'"));
	job_ended($node, 'done', rows_written => 10_000, reconnects => 0, redis_restarts => 0);
	is(wrong_rows($main[0], 10_000), 0, 'all rows are in the master');
	is($node->safe_psql('postgres', 'SELECT host, port, rows_written FROM redis_export_nodes WHERE job = (SELECT max(job) FROM redis_export_progress)'),
		'127.0.0.1|' . $main[0]->port . '|10000', 'which the view of nodes shows');
	is($session->query("SELECT redis_command('$server', 'CONFIG', 'GET', 'port') ->> 1"), $main[0]->port, 'a command is sent to it, too');
	is($session->query("SELECT count(*) FROM redis_scan('$server', 'k:*')"), 10_000, 'and its keys can be read');

	$server = server(\@sentinels, 'main', db => 3);
	$session->query("SELECT redis_hash_export('SELECT i AS id FROM generate_series(1, 100) AS i', 'h:#{id}', server => '$server')");
	is($main[0]->cli('-n', 3, 'DBSIZE'), 100, 'the database is that of the master');
};

subtest 'one after the other is asked' => sub {
	my $closed = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my $silent = RedisExport::Fake->new(all => sub { return undef });
	my $hangs_up = RedisExport::Fake->new(all => sub { return CLOSE });
	my $starts = fake_sentinel(sub { return undef });
	my $ignorant = fake_sentinel('*-1');
	my $confused = fake_sentinel('+OK');
	my @bad = ([ $closed, 'there is none' ], [ $hangs_up, 'one hangs up' ], [ $silent, 'one is silent' ], [ $starts, 'one is silent when asked' ],
		[ 'nowhere..invalid:26379', 'its name is unknown' ], [ $ignorant, 'one does not know the master' ], [ $confused, 'one talks nonsense' ]);
	for (@bad)
	{
		my ($bad, $name) = @$_;
		accepts(server([ $bad, $sentinels[1] ], 'main', connect_timeout => 0.3), $name);
	}
	accepts(server([ (map { $_->[0] } @bad), $sentinels[2] ], 'main', connect_timeout => 0.3), 'all of that');
	is_deeply([ map { $_->{words} } $ignorant->commands('SENTINEL') ], [ ([ 'SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'main' ]) x 4 ], 'what they are asked');

	my @ports = map { $_->port } @sentinels;
	accepts(server([ " [127.0.0.1]:$ports[0] ", " localhost:$ports[1]", '' ], 'main'), 'however the list is written');

	$sentinels[0]->freeze;
	accepts(server(\@sentinels, 'main', connect_timeout => 0.3), 'a real one that stands still');
	$sentinels[0]->thaw;
};

subtest 'none answers' => sub {
	my @closed = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
	my $silent = RedisExport::Fake->new(all => sub { return undef });
	my $server = server([ map { "127.0.0.1:$_" } @closed ], 'main');
	my $text = qr/could not connect .*"$server".* at "127\.0\.0\.1", port $closed[1]: Connection refused/;
	my $error = command_error($server);
	like($error, qr/^ERROR:  08001: $text/, 'a command says so at once');
	like($error, qr/sentinel/, 'and that it is about sentinels');
	unlike($error, qr/host and port of the foreign server/, 'and nothing of options that there are not');
	like(export_error($server, retry_timeout => q{'0.5 s'}), qr/^ERROR:  08001: gave up after no row was acknowledged for [\d.]+ seconds: $text/,
		'an export tries until retry_timeout');
	job_ended($node, 'failed', rows_read => 0);

	my $silent_server = server([ $silent ], 'main', connect_timeout => 0.3);
	$text = qr/"$silent_server".* at "127\.0\.0\.1", port @{[ $silent->port ]}: .*no answer for 0\.3 seconds/;
	like(command_error($silent_server), qr/^ERROR:  08006: .*$text/, 'the same for one that is silent');
	like(export_error($silent_server, retry_timeout => q{'0.5 s'}), qr/^ERROR:  08006: gave up after .*: .*$text/, 'and an export');
	refuses(server([ 'nowhere..invalid', 'elsewhere..invalid:1' ], 'main'), qr/^ERROR:  08001: could not find the address of .*host "elsewhere..invalid"/, 'no name is known');

	# not there at the start, and later is
	my $late = RedisExport::Sentinel->new;
	$late->watch('main', $main[0]->port);
	$late->stop;
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(rows(100, server => q{'} . server([ $late ], 'main') . q{'})) });
	until_state($node, $id, 'retrying');
	$late->start;
	my (undef, $err) = $session->wait;
	like($err, qr/WARNING:  export job $id tries again: .*Connection refused/, 'the caller hears of it');
	job_ended($node, 'done', rows_written => 100, redis_restarts => 0);
	$late->stop;
};

subtest 'a service that is not known' => sub {
	my $server = server(\@sentinels, 'unknown');
	refuses($server, qr/^ERROR:  08001: the sentinel of Redis server "$server" at "127\.0\.0\.1", port @{[ $sentinels[2]->port ]} knows no master named "unknown"\nHINT:  See the option "sentinel_service" of the foreign server\./,
		'of all sentinels');
};

subtest 'passwords' => sub {
	my $locked = RedisExport::Redis->new(modules => 0, conf => { loadmodule => "$ENV{REDIS_BINARIES}/rejson.so", requirepass => 'master-password' });
	my $guarded = RedisExport::Sentinel->new(conf => { requirepass => 'sentinel-password',
			user => [ 'asker on >secret ~* &* -@all +sentinel|get-master-addr-by-name', 'off off >secret ~* &* +@all', 'barred on >secret ~* &* +@all -sentinel' ] });
	$guarded->watch('locked', $locked->port)->tell('SENTINEL', 'SET', 'locked', 'auth-pass', 'master-password');
	$guarded->watch('open', $main[0]->port);
	my $mapped = sub {
		my ($service, %options) = @_;
		my $server = server([ $guarded ], $service);
		$node->safe_psql('postgres', "CREATE USER MAPPING FOR CURRENT_USER SERVER $server OPTIONS (" . join(', ', map { "$_ '$options{$_}'" } sort keys %options) . ')')
			if %options;
		return $server;
	};
	my $at = qr/could not log in to .* at "127\.0\.0\.1", port @{[ $guarded->port ]}: /;

	accepts($mapped->('open', sentinel_password => 'sentinel-password'), 'the password of the sentinel');
	accepts($mapped->('open', sentinel_password => 'secret', sentinel_username => 'asker'), 'a user of its own, who may do nothing but ask');
	accepts($mapped->('locked', sentinel_password => 'secret', sentinel_username => 'asker', password => 'master-password'), 'one of each');
	refuses($mapped->('open'), qr/^ERROR:  28000: ${at}Redis answered: NOAUTH .*HINT:  .*\bsentinel_password\b/s, 'none');
	refuses($mapped->('open', password => 'sentinel-password'), qr/^ERROR:  28000: ${at}Redis answered: NOAUTH /, 'that of the master is not for the sentinel');
	refuses($mapped->('open', sentinel_password => 'wrong'), qr/^ERROR:  28P01: ${at}Redis answered: WRONGPASS .*HINT:  .*\bsentinel_/s, 'a wrong one');
	refuses($mapped->('open', sentinel_password => 'secret', sentinel_username => 'nobody'), qr/^ERROR:  28P01: ${at}Redis answered: WRONGPASS /, 'a wrong user');
	refuses($mapped->('open', sentinel_password => 'secret', sentinel_username => 'off'), qr/^ERROR:  28P01: ${at}Redis answered: WRONGPASS /, 'a user who is off');
	refuses($mapped->('open', sentinel_password => 'secret', sentinel_username => 'barred'), qr/^ERROR:  42501: .*Redis answered: NOPERM .*sentinel/, 'one who may not ask');
	refuses($mapped->('locked', sentinel_password => 'sentinel-password'),
		qr/^ERROR:  28000: could not log in to Redis server "s\d+" at "127\.0\.0\.1", port @{[ $locked->port ]}: Redis answered: NOAUTH /, 'none for the master');
	refuses($mapped->('locked', sentinel_password => 'sentinel-password', password => 'sentinel-password'),
		qr/^ERROR:  28P01: could not log in to Redis server "s\d+" at "127\.0\.0\.1", port @{[ $locked->port ]}: Redis answered: WRONGPASS /, 'that of the sentinel is not for the master');
	my $nameless = $mapped->('open', sentinel_username => 'asker');
	like(command_error($nameless), qr/^ERROR:  \w+: the user mapping for server "$nameless" has a .*username and no .*password/, 'a user and no password');

	accepts(server([ $guarded, $sentinels[0] ], 'main'), 'the first wants one, the second does not');
	$_->stop for $locked, $guarded;
};

subtest 'TLS' => sub {
	plan skip_all => 'this build has none' if !$ENV{REDIS_EXPORT_TLS};
	my $tls = RedisExport::Tls->new;
	my $secure = RedisExport::Sentinel->new(tls => 1, conf => { 'tls-replication' => 'yes' });
	my $strict = RedisExport::Sentinel->new(tls => 1, conf => { 'tls-replication' => 'yes', 'tls-auth-clients' => 'yes',
			# as one who is watched asks for none, it has to show its own to nobody
			'tls-client-cert-file' => tls_file('client.crt'), 'tls-client-key-file' => tls_file('client.key') });
	$_->watch('tls', $tls->port) for $secure, $strict;
	$_->watch('plain', $main[0]->port) for $secure, $strict;
	$sentinels[0]->watch('tls', $tls->port);
	my %both = map { $_ => tls_file('ca.crt') } 'tls_ca_file', 'sentinel_tls_ca_file';
	my %master = (tls => 'true', tls_ca_file => tls_file('ca.crt'));
	my %sentinel = (sentinel_tls => 'true', sentinel_tls_ca_file => tls_file('ca.crt'));

	accepts(server([ $secure ], 'plain', %sentinel), 'to the sentinel');
	accepts(server([ $sentinels[0] ], 'tls', %master), 'to the master');
	my $server = server([ $secure ], 'tls', %sentinel, %master);
	accepts($server, 'to both');
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(rows(6000, server => "'$server'", rate => 3000)) });
	until_written($node, $id, 1000);
	$tls->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	$session->wait;
	cmp_ok(job_ended($node, 'done', rows_written => 6000, redis_restarts => 0)->{reconnects}, '>=', 1, 'also after the connection was cut');
	is(wrong_rows($tls, 6000), 0, 'all rows are in Redis');

	my $at_sentinel = qr/could not connect to .* at "127\.0\.0\.1", port @{[ $secure->port ]} with TLS: /;
	my $at_master = qr/could not connect to Redis server "s\d+" at "127\.0\.0\.1", port @{[ $tls->port ]} with TLS: /;
	refuses(server([ $secure ], 'tls', %sentinel, sentinel_tls_ca_file => tls_file('stranger_ca.crt'), %master),
		qr/^ERROR:  08001: ${at_sentinel}certificate verify failed: .*HINT:  .*"sentinel_tls_ca_file"/s, 'another authority for the sentinel');
	refuses(server([ $secure ], 'tls', %sentinel, sentinel_tls_server_name => 'other.example.com', %master),
		qr/^ERROR:  08001: ${at_sentinel}certificate verify failed: hostname mismatch.*HINT:  .*"sentinel_tls_server_name"/is, 'another name of the sentinel');
	accepts(server([ $secure ], 'tls', %sentinel, sentinel_tls_server_name => 'redis.example.com', %master, tls_server_name => 'localhost'), 'names for each');
	accepts(server([ $secure ], 'tls', %sentinel, sentinel_tls_ca_file => undef, sentinel_tls_verify => 'off', %master), 'the sentinel not verified');

	# who is the master now may not be in a moment
	$server = server([ $secure ], 'tls', %sentinel, %master, tls_ca_file => tls_file('stranger_ca.crt'));
	like(command_error($server), qr/^ERROR:  08001: ${at_master}certificate verify failed: .*HINT:  Set the option "tls_ca_file"/s, 'another authority for the master: a command');
	like(export_error($server, retry_timeout => q{'0.3 s'}), qr/^ERROR:  08001: (?:gave up after .*: )?${at_master}certificate verify failed: /, 'an export');

	$server = server([ $secure ], 'tls', %master);
	like(command_error($server), qr/^ERROR:  08006: could not log in to .* at "127\.0\.0\.1", port @{[ $secure->port ]}: .*HINT:  .*"sentinel_tls"/s, 'plain to a sentinel with TLS');
	$server = server([ $sentinels[0] ], 'tls', %master, %sentinel, connect_timeout => 0.3);
	like(command_error($server), qr/^ERROR:  08001: could not connect to .* at "127\.0\.0\.1", port @{[ $sentinels[0]->port ]} with TLS: no handshake .*HINT:  .*"sentinel_tls"/s, 'TLS to a plain one');

	refuses(server([ $strict ], 'tls', %sentinel, %master), qr/^ERROR:  08001: could not connect to .*, port @{[ $strict->port ]} with TLS: .*HINT:  .*"sentinel_tls_cert_file"/s, 'a sentinel that wants a certificate');
	accepts(server([ $strict ], 'tls', %sentinel, %master, sentinel_tls_cert_file => tls_file('client.crt'), sentinel_tls_key_file => tls_file('client.key')), 'and gets it');
	$sentinels[0]->tell('SENTINEL', 'REMOVE', 'tls');
	$_->stop for $tls, $secure, $strict;
};

subtest 'they are asked at each connect' => sub {
	my $sentinel = fake_sentinel(sub {
		my ($fake) = @_;
		return '*-1' if $fake->flag('forgotten');
		return address('127.0.0.1', $main[0]->port);
	});
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(rows(10_000, server => q{'} . server([ $sentinel ], 'main') . q{'}, rate => 4000)) });
	for my $cut (1 .. 3)
	{
		until_written($node, $id, 1000 * $cut);
		$main[0]->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
		poll_until($node, "SELECT reconnects >= $cut FROM redis_export_progress WHERE job = $id");
	}
	cmp_ok(scalar($sentinel->commands('SENTINEL')), '>=', 4, 'at first, and three times more');

	# a sentinel that was started anew and does not know everything yet: what went well before is tried again
	$sentinel->raise('forgotten');
	$main[0]->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	until_state($node, $id, 'retrying');
	poll_until($node, "SELECT last_error ~ 'knows no master named \"main\"' FROM redis_export_progress WHERE job = $id");
	$sentinel->lower('forgotten');
	$session->wait;
	job_ended($node, 'done', rows_written => 10_000, redis_restarts => 0);
	is(wrong_rows($main[0], 10_000), 0, 'all rows are in Redis');
};

subtest 'what they may tell' => sub {
	my $port = $main[0]->port;
	accepts(server([ fake_sentinel(address('localhost', $port)) ], 'main'), 'a name');
	accepts(server([ fake_sentinel(sub { return RedisExport::Fake::CLOSE }), fake_sentinel(address('127.0.0.1', $port)) ], 'main'), 'an address');

	my $unread = qr/^ERROR:  08P01: the sentinel of Redis server "s\d+" at "127\.0\.0\.1", port \d+ gave no address that can be read/;
	my @answers = (
		'nil' => '$-1' => qr/^ERROR:  08001: the sentinel .* knows no master named "main"/,
		'an empty array' => '*0' => $unread,
		'a host alone' => "*1\r\n\$9\r\n127.0.0.1" => $unread,
		'three words' => "*3\r\n\$9\r\n127.0.0.1\r\n\$4\r\n6379\r\n\$1\r\nx" => $unread,
		'a number' => ':6379' => $unread,
		'a word' => '+OK' => $unread,
		'a string' => "\$14\r\n127.0.0.1:6379" => $unread,
		'numbers' => "*2\r\n:127\r\n:6379" => $unread,
		'an array of nil' => "*2\r\n\$-1\r\n\$-1" => $unread,
		'arrays in an array' => "*2\r\n*1\r\n\$1\r\na\r\n*0" => $unread,
		'no host' => address('', $port) => $unread,
		'port 0' => address('127.0.0.1', 0) => $unread,
		'a port below 0' => address('127.0.0.1', -1) => $unread,
		'a port too large' => address('127.0.0.1', 65_536) => $unread,
		'a port with something behind it' => address('127.0.0.1', "${port}x") => $unread,
		'no port' => address('127.0.0.1', '') => $unread,
		# which would be the operating system user's of PostgreSQL, and for superusers only
		'a socket' => address($main[0]->socket, $port) => $unread,
		'a host that is too long' => address('1' x 300, $port) => $unread,
		"an error of Redis" => '-ERR broken' => qr/^ERROR:  38000: .*Redis answered: ERR broken/,
		'garbage' => 'garbage' => qr/^ERROR:  08P01: .*sent what is no reply of Redis/,
		'more than there can be' => '*2000000000' => qr/^ERROR:  (?:08P01|53200|08006): /,
		'a part of it' => "*2\r\n\$9\r\n127" => qr/^ERROR:  08006: .*no answer for 0\.3 seconds/);
	while (my ($name, $answer, $pattern) = splice @answers, 0, 3)
	{
		my $server = server([ fake_sentinel($answer) ], 'main', connect_timeout => 0.3);
		like(command_error($server), $pattern, "$name: a command");
		my $error = export_error($server, retry_timeout => q{'0.2 s'});
		like($error =~ s/(?<=^ERROR:  .....: )gave up after .*? seconds: //r, $pattern, "$name: an export");
		# what is nonsense now will be nonsense later
		unlike($error, qr/gave up after/, "$name: an export fails at once") if $pattern == $unread || $pattern =~ /knows no|no reply/;
		is(job($node)->{state}, 'failed', "$name: it has failed");
	}

	my $server = server([ RedisExport::Fake->new(rubbish => "HTTP/1.1 400 Bad Request\r\n\r\n") ], 'main');
	refuses($server, qr/^ERROR:  08P01: .*"$server" at .* sent what is no reply of Redis/, 'no Redis at all');

	# what is easily done: the hosts of Redis itself
	$server = server([ $main[0] ], 'main');
	refuses($server, qr/^ERROR:  42883: .*"$server".*"127\.0\.0\.1", port $port\b.*unknown command.*sentinel/i, 'a Redis that is no sentinel');
};

subtest 'a master that is none' => sub {
	# a sentinel that has not heard of it yet
	my $late = fake_sentinel(sub { my ($fake) = @_; return address('127.0.0.1', $main[$fake->flag('right') ? 0 : 1]->port) });
	my $server = server([ $late ], 'main');
	my $text = qr/the Redis at "127\.0\.0\.1", port @{[ $main[1]->port ]}, which sentinels call the master, is a replica/;
	my $session = session($node);
	my ($out, $err) = $session->send("\\set VERBOSITY verbose\nSELECT redis_command('$server', 'PING')")->wait;
	like($err, qr/ERROR:  25006: $text/, 'a command says so');
	like(error_of("SELECT count(*) FROM redis_scan('$server')"), qr/ERROR:  25006: $text/, 'as does a look at its keys');
	like(export_error($server, retry_timeout => q{'0.3 s'}), qr/^ERROR:  25006: gave up after .*: $text/, 'an export tries until retry_timeout');
	my $id = next_job($node, sub { $session->send(rows(1000, server => "'$server'")) });
	until_state($node, $id, 'retrying');
	like(job($node, $id)->{last_error}, qr/^$text$/, 'an export tries again');
	$late->raise('right');
	$session->wait;
	job_ended($node, 'done', rows_written => 1000, redis_restarts => 0);
	is($session->query("SELECT redis_command('$server', 'ROLE') ->> 0"), 'master', 'then the session, too, is with the master');
	is($main[1]->info('errorstat_READONLY'), undef, 'nobody has tried to write to the replica');
};

subtest 'canceled while they are silent' => sub {
	my $silent = RedisExport::Fake->new(all => sub { return undef });
	my $deaf = fake_sentinel(sub { return undef });
	my $leads_to_silent = fake_sentinel(address('127.0.0.1', $silent->port));
	my %servers = ('at the login' => server([ $silent ], 'main', connect_timeout => 3600), 'when asked' => server([ $deaf ], 'main', connect_timeout => 3600),
		'and the master is' => server([ $leads_to_silent ], 'main', connect_timeout => 3600));
	my $session = session($node);
	my $good = server(\@sentinels, 'main');
	my $files = sub {
		# what a canceled command has left is closed by the next one
		$session->query("SELECT redis_command('$good', 'PING')");
		my @open = grep { (readlink // '') =~ /^socket|eventpoll/ } glob '/proc/' . $session->pid . '/fd/*';
		return scalar @open;
	};
	my $contexts = q{SELECT count(*), coalesce(sum(total_bytes), 0) FROM pg_backend_memory_contexts WHERE name LIKE 'redis_export%'};
	for my $name (sort keys %servers)
	{
		my $server = $servers{$name};
		$session->send("SELECT redis_command('$server', 'PING')");
		poll_until($node, 'SELECT wait_event_type = $$Extension$$ FROM pg_stat_activity WHERE pid = ' . $session->pid);
		$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
		like(($session->wait)[1], qr/ERROR:  canceling statement due to user request/, "silent $name: a command");

		my $id = start_job($node, 'SELECT 1 AS id', 'a:#{id}', server => "'$server'");
		poll_until($node, qq{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = (SELECT pid FROM redis_export_progress WHERE job = $id)});
		$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
		job_ends($node, $main[0], $id, state => 'canceled');

		my $rounds = sub {
			my ($rounds) = @_;
			my (undef, $err) = $session->send("SET statement_timeout = '10ms';\n" . "SELECT redis_command('$server', 'PING');\n" x $rounds . 'RESET statement_timeout')->wait;
			return scalar(() = $err =~ /ERROR:  canceling statement due to statement timeout/g);
		};
		$rounds->(3);
		my $files_before = $files->();
		my $contexts_before = $session->query($contexts);
		is($rounds->(30), 30, "silent $name: canceled thirty times more");
		is($files->(), $files_before, 'as many files are open');
		is($session->query($contexts), $contexts_before, 'and no memory was kept');
	}
};

subtest 'nothing is left of what was refused' => sub {
	my $ignorant = server([ fake_sentinel('*-1') ], 'main');
	my $good = server([ fake_sentinel('+OK'), $sentinels[1] ], 'main');
	my $session = session($node);
	is($session->query("DO \$\$ BEGIN
			FOR i IN 1 .. 60 LOOP
				BEGIN PERFORM redis_command('$ignorant', 'PING'); EXCEPTION WHEN sqlclient_unable_to_establish_sqlconnection THEN NULL; END;
				-- a command that meets the end of its connection fails
				BEGIN PERFORM redis_command('$good', 'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no'); EXCEPTION WHEN connection_failure THEN NULL; END;
				BEGIN PERFORM redis_command('$good', 'PING'); EXCEPTION WHEN connection_failure THEN NULL; END;
			END LOOP;
		END \$\$; SELECT redis_command('$good', 'PING')"), '"PONG"', 'sixty connections later there is room for one more');
};

my $server = server(\@sentinels, 'main');
my $held_server = server(\@sentinels, 'held', timeout => 0.5);   # a WAIT gets half of that
my ($old, $new);

# The replicas lack what the master acknowledged in its last moments. Of three exports, one has its rows acknowledged then, one has them held
# back until a replica has them, and the commands of one must not be repeated.
subtest 'the master dies' => sub {
	my ($held, $held_replica) = @held;
	($old, my @replicas) = @main;
	$_->cli('FLUSHALL') for $old, $held;
	my ($plain, $held_back, $once, $idle) = map { session($node) } 1 .. 4;
	is($idle->query("SELECT redis_command('$server', 'CONFIG', 'GET', 'port') ->> 1"), $old->port, 'a session has a connection');
	my $log_before = -s $node->logfile;
	my $id = next_job($node, sub { $plain->send(rows(20_000, server => "'$server'", batch => 200, rate => 2000)) });
	my $held_id = next_job($node, sub { $held_back->send(rows(8000, server => "'$held_server'", batch => 200, rate => 2000, wait_replicas => 1)) });
	my $once_id = next_job($node, sub {
		$once->send("SELECT redis_command_export('SELECT i FROM generate_series(1, 20000) AS i', ARRAY['RPUSH', 'list', '#{i}'], batch => 200, rate => 2000, server => '$server')");
	});
	until_written($node, $_, 1000) for $id, $held_id, $once_id;
	cut_off($old, @replicas);
	cut_off($held, $held_replica);
	my $before = job($node, $id)->{rows_written};
	until_written($node, $id, $before + 500);
	until_state($node, $held_id, 'retrying');
	is(job($node, $held_id)->{last_error}, 'only 0 of 1 replicas of Redis have acknowledged the rows', 'rows are held back');
	impatient($_, $sentinels[0]) for 'main', 'held';
	$_->freeze for $old, $held;
	poll_until($node, "SELECT min(rows_in_doubt) > 0 FROM redis_export_progress WHERE job IN ($id, $once_id)");
	$_->kill9 for $old, $held;
	$node->safe_psql('postgres', "SELECT redis_export_set_rate(job, NULL) FROM redis_export_progress WHERE job IN ($id, $held_id)");

	my $err = messages($once);
	like($err, qr/ERROR:  lost the connection to Redis server "$server" at "127\.0\.0\.1", port @{[ $old->port ]}: .*\nDETAIL:  Of some rows it is not known whether Redis has carried out their command, which is not one that may be sent twice\.\nExport job $once_id: .* [1-9]\d* in doubt\.\nHINT:  See rows_in_doubt\./,
		'what must not be repeated is not');
	my $row = job($node, $once_id);
	is($row->{state}, 'failed', 'that job has failed');
	ledger_ok($node, $once_id);
	my $pushed = $row->{rows_written} + $row->{rows_in_doubt};

	until_state($node, $id, 'retrying');
	my $acknowledged = job($node, $id)->{rows_written};
	$new = new_master('main', $old, @main);
	reunite(@replicas);
	is(new_master('held', $held, @held)->port, $held_replica->port, 'the only replica is the master');
	$held->start;
	is($idle->query("SELECT redis_command('$server', 'CONFIG', 'GET', 'port') ->> 1"), $new->port, 'the session goes to the new master');

	$err = messages($plain);
	like($err, qr/^WARNING:  another Redis took over as the master after $acknowledged rows of export job $id were acknowledged\nDETAIL:  Redis replicates asynchronously: what the one before had not passed on is lost\.\nHINT:  Export again, or let rows count only when replicas have them \(wait_replicas\)\.$/m,
		'who waits is warned');
	unlike($err, qr/Redis was restarted/, 'and not of a restart');
	$row = job($node, $id);
	is($row->{state}, 'done', 'the export goes on with the new master') or diag $row->{last_error};
	is($row->{rows_written}, 20_000, 'each row is counted once');
	is($row->{redis_restarts}, 1, 'it counts as a restart');
	cmp_ok($row->{reconnects}, '>=', 1, 'and a reconnect');
	ledger_ok($node, $id);
	is_deeply([ count_rows($new, $acknowledged + 1, 20_000) ], [ 0, 0 ], 'all rows that were not acknowledged before are there');
	my ($missing, $wrong) = count_rows($new, 1, $acknowledged);
	cmp_ok($missing, '>=', 500, 'of those that were, some are not');
	is($wrong, 0, 'and none is wrong');
	is($node->safe_psql('postgres', "SELECT port FROM redis_export_nodes WHERE job = $id"), $new->port, 'the view of nodes shows the new master');

	$err = messages($held_back);
	unlike($err, qr/took over|restarted|lost\./, 'who has them held back needs no warning');
	$row = job($node, $held_id);
	is($row->{state}, 'done', 'that export goes on, too') or diag $row->{last_error};
	is($row->{redis_restarts}, 1, 'it counts there as well');
	is($row->{rows_written}, 8000, 'each row is counted once');
	ledger_ok($node, $held_id);
	is_deeply([ count_rows($held_replica, 1, 8000) ], [ 0, 0 ], 'and all rows are there');

	my $log = substr slurp_file($node->logfile), $log_before;
	my @warnings = $log =~ /^.*WARNING:  Another Redis took over as the master .*\n.*/mg;
	is(scalar @warnings, 1, 'in the log there is one warning');
	like($warnings[0] // '', qr/ after $acknowledged rows were acknowledged\n.*DETAIL:  What the one before had not passed on to it is lost\./, 'of the one export');
	cmp_ok($new->cli('LLEN', 'list'), '<=', $pushed, 'nothing more was pushed');
	list_is($new, 'list', scalar $new->cli('LLEN', 'list'), 'each once, and in order');
};

subtest 'the old master comes back' => sub {
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(rows(20_000, server => "'$server'", rate => 2000)) });
	until_written($node, $id, 500);
	$old->start;
	wait_until('it is a replica', sub { $old->info('role') eq 'slave' });
	is(job($node, $id)->{state}, 'running', 'an export is under way');
	$node->safe_psql('postgres', "SELECT redis_export_set_rate($id, NULL)");
	my $err = messages($session);
	is($err, '', 'and hears nothing of it');
	job_ended($node, 'done', rows_written => 20_000, redis_restarts => 0, reconnects => 0);
	$session->query(rows(20_000, server => "'$server'"));
	is(wrong_rows($new, 20_000), 0, 'all rows are in the new master');
	wait_until('it is in step', sub { $old->info('master_link_status') eq 'up' && $old->info('slave_repl_offset') == $new->info('master_repl_offset') });
	is(wrong_rows($old, 20_000), 0, 'from which the old one has them');
	# each connection of ours asks for its number first
	unlike(scalar $old->cli('INFO', 'commandstats'), qr/client\|id/, 'none of ours has been there');
	is($old->info('errorstat_READONLY'), undef, 'and nobody has tried to write there');
};

# And back to the first one. The old master takes what it gets until it is told, so that here, too, rows may be lost.
subtest 'a failover by order' => sub {
	# The sentinel takes only whom it has heard of just now: no other may come into question while it does not hear of this one.
	my ($third) = grep { $_ != $old && $_ != $new } @main;
	$third->cli('CONFIG', 'SET', 'replica-priority', 0);
	wait_until('the sentinel knows', sub { join(' ', $sentinels[0]->cli('SENTINEL', 'REPLICAS', 'main')) =~ / slave-priority 0(?: |$)/ });
	wait_until('both replicas are in step', sub { 2 == grep { /state=online/ } $new->cli('INFO', 'replication') });
	$new->cli('FLUSHALL');
	my ($locker, $plain, $once) = map { session($node) } 1 .. 3;
	$locker->query('SELECT pg_advisory_lock(1)');
	my $once_id = next_job($node, sub {
		$once->send("SELECT redis_command_export('SELECT i FROM generate_series(1, 2000) AS i WHERE i <> 1001 OR pg_advisory_xact_lock_shared(1) IS NOT NULL', ARRAY['RPUSH', 'list', '#{i}'], batch => 100, server => '$server')");
	});
	poll_until($node, q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted});
	wait_until('what was sent is there, and in the replica', sub { $old->cli('LLEN', 'list') == 1000 });
	my $id = next_job($node, sub { $plain->send(rows(12_000, server => "'$server'", rate => 3000)) });
	until_written($node, $id, 1000);
	wait_until('the sentinel begins', sub { $sentinels[0]->cli('SENTINEL', 'FAILOVER', 'main') eq 'OK' });
	is(new_master('main', $new, @main)->port, $old->port, 'the first master is it again');
	wait_until('the other is none', sub { $new->info('role') eq 'slave' });
	$locker->query('SELECT pg_advisory_unlock(1)');

	my $err = messages($plain);
	my ($acknowledged) = $err =~ /^WARNING:  another Redis took over as the master after (\d+) rows of export job $id were acknowledged$/m;
	ok($acknowledged, 'who waits is warned') or diag $err;
	my $row = job($node, $id);
	is($row->{state}, 'done', 'the export goes on with it') or diag $row->{last_error};
	is($row->{redis_restarts}, 1, 'it counts as a restart');
	is($row->{rows_written}, 12_000, 'each row is counted once');
	ledger_ok($node, $id);
	is_deeply([ count_rows($old, $acknowledged + 1, 12_000) ], [ 0, 0 ], 'all rows that were not acknowledged before are there');
	is((count_rows($old, 1, $acknowledged))[1], 0, 'and none is wrong');

	# nothing was on its way, and so nothing is in doubt
	$err = messages($once);
	like($err, qr/^WARNING:  another Redis took over as the master after 1000 rows of export job $once_id were acknowledged$/m, 'the other export is warned, too');
	is(job($node, $once_id)->{state}, 'done', 'and goes on, with what must not be repeated') or diag $err;
	list_is($old, 'list', 2000, 'each is there once, and in order');
	is($new->info('errorstat_READONLY'), undef, 'nobody has tried to write to what is a replica now');
};

# Redis saved less than it acknowledged, and its replica takes over what it has when it is back: what replicas held is lost, too.
subtest 'a master that is started anew is no other' => sub {
	my ($master, $replica) = redis_group(1);
	my $server = server([ fake_sentinel(address('127.0.0.1', $master->port)) ], 'main');
	my @sessions = map { session($node) } 1 .. 2;
	my @ids = map {
		my $held = $_;
		next_job($node, sub {
			$sessions[$held]->send(rows(5000, key_template => "'$held:#{id}'", server => "'$server'", rate => 2000, batch => 100, wait_replicas => $held));
		});
	} 0 .. 1;
	until_written($node, $_, 500) for @ids;
	is($master->cli('SAVE'), 'OK', 'the master saves');
	until_written($node, $_, 1500) for @ids;
	$master->kill9;
	until_state($node, $_, 'retrying') for @ids;
	my @acknowledged = map { job($node, $_)->{rows_written} } @ids;
	$node->safe_psql('postgres', "SELECT redis_export_set_rate($_, NULL)") for @ids;
	$master->start;
	for my $held (0 .. 1)
	{
		my $name = $held ? 'with wait_replicas' : 'without';
		like(messages($sessions[$held]), qr/^WARNING:  Redis was restarted after $acknowledged[$held] rows of export job $ids[$held] were acknowledged$/m, "$name: who waits is warned");
		my $row = job($node, $ids[$held]);
		is_deeply([ @$row{qw(state rows_written redis_restarts)} ], [ 'done', 5000, 1 ], "$name: it is done, and counts a restart");
		cmp_ok(redis_keys_count($master, "$held:*"), '<', 5000, "$name: rows are missing");
	}
	$_->stop for $master, $replica;
};

subtest 'two failovers while nobody looks' => sub {
	my ($first, $second, $third) = @twice;
	my $sentinel = fake_sentinel(sub { my ($fake) = @_; return address('127.0.0.1', $fake->flag('over') ? $third->port : $first->port) });
	my $server = server([ $sentinel ], 'main');
	my @sessions = map { session($node) } 1 .. 2;
	my @ids = map {
		my $held = $_;
		next_job($node, sub {
			$sessions[$held]->send(rows(5000, key_template => "'$held:#{id}'", server => "'$server'", rate => 2000, batch => 100, wait_replicas => $held));
		});
	} 0 .. 1;
	until_written($node, $_, 500) for @ids;
	$first->kill9;
	until_state($node, $_, 'retrying') for @ids;
	my @acknowledged = map { job($node, $_)->{rows_written} } @ids;
	$node->safe_psql('postgres', "SELECT redis_export_set_rate($_, NULL)") for @ids;
	$second->cli('REPLICAOF', 'NO', 'ONE');
	$third->cli('REPLICAOF', '127.0.0.1', $second->port);
	wait_until('the third is in step', sub { $third->info('master_link_status') eq 'up' });
	$third->cli('REPLICAOF', 'NO', 'ONE');
	$second->cli('REPLICAOF', '127.0.0.1', $third->port);
	$sentinel->raise('over');
	my @messages = map { messages($_) } @sessions;
	like($messages[0], qr/^WARNING:  another Redis took over as the master after $acknowledged[0] rows of export job $ids[0] were acknowledged$/m, 'without wait_replicas: who waits is warned');
	unlike($messages[1], qr/took over|restarted|lost\./, 'with wait_replicas: who waits needs no warning');
	for my $held (0 .. 1)
	{
		my $row = job($node, $ids[$held]);
		is_deeply([ @$row{qw(state rows_written redis_restarts)} ], [ 'done', 5000, 1 ], 'it is done, and counts as a restart');
	}
	is(redis_keys_count($third, '1:*'), 5000, 'with wait_replicas: all rows are there');
	$_->stop for $second, $third;
};

done_testing;
