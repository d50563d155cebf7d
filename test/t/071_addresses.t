# Where Redis is, and who may say so: what can become an address, what a node of a cluster is called, what is told when something
# else listens there, and what a Redis that does not tell everything about itself still is good for.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Cluster;
use RedisExport::Fake;
use RedisExport::Jobs;
use RedisExport::Named;
use RedisExport::Rows;
use RedisExport::Tls;
use Time::HiRes qw(sleep time);

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\nmax_worker_processes = 20\n");
my $count = 0;

# The name of a new foreign server.
sub server
{
	my ($at, %options) = @_;
	my $name = 's' . ++$count;
	add_server($node, $at, name => $name, %options);
	return $name;
}

# The error of a statement alone, with its SQLSTATE, detail and hint; empty if there is none.
sub error_of
{
	my ($sql) = @_;
	return sql_error($node, $sql, verbose => 1) =~ s/^.*?(?=^ERROR:)|^LOCATION:.*//msgr =~ s/^DETAIL:  Export job .*\n//mr;
}

# ---- What may become an address --------------------------------------------------------------------------------------

my $socket = $redis->socket;

# So many connections Redis has had, this one for asking not counted: the same as before, or one more for each that asked.
my $asked = 0;
sub visits { return $redis->info('total_connections_received') - $asked++ }

# As a role that is no superuser but may create servers.
sub as_low
{
	my ($sql) = @_;
	return error_of("SET ROLE low;\n$sql");
}
$node->safe_psql('postgres', q{
	CREATE ROLE low; GRANT USAGE ON FOREIGN DATA WRAPPER redis_export TO low;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO low; GRANT CREATE ON SCHEMA public TO low});

subtest 'hosts that are none, and that an ordinary role may not name' => sub {
	my $visits = visits();
	my %bad = (
		'a socket' => $socket,
		'an abstract socket' => '@redis',
		'nothing' => '',
		'a blank' => ' ',
		'a blank in it' => '127.0.0.1 x',
		'a newline' => "127.0.0.1\nx",
		'a control character' => "127.0.0.1\x01",
		'a relative path' => 'run/redis.sock',
		'a name that is too long' => 'x' x 254,
		'a bracket' => '[::1',
		'letters beyond ASCII' => "r\x{c3}\x{a9}dis",
	);
	for my $what (sort keys %bad)
	{
		my $value = "E'" . ($bad{$what} =~ s/\n/\\n/r =~ s/\x01/\\x01/r) . "'";
		for my $of ([ 'host', '' ], [ 'sentinel_hosts', q{, sentinel_service 'm'} ], [ 'tls_server_name', q{, tls 'false'} ],
			[ 'sentinel_tls_server_name', q{, sentinel_tls 'false', sentinel_hosts 'h', sentinel_service 'm'} ])
		{
			my ($option, $more) = @$of;
			like(as_low("CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS ($option $value$more)"),
				qr/^ERROR:  (?:HV024: invalid value for option "$option"|42501: permission denied to set option "host" to the path of a socket)/, "$option: $what");
			next if $option =~ /^sentinel/;
			$node->safe_psql('postgres', q{SET ROLE low; CREATE SERVER fine FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', tls 'false', tls_server_name 'x')});
			like(as_low("ALTER SERVER fine OPTIONS (SET $option $value)"),
				qr/^ERROR:  (?:HV024: invalid value for option "$option"|42501: permission denied to set option "host" to the path of a socket)/, "$option is altered: $what");
			$node->safe_psql('postgres', 'DROP SERVER fine');
		}
		like(error_of("CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts $value, sentinel_service 'm')"),
			qr/^ERROR:  HV024: invalid value for option "sentinel_hosts"/, "sentinel_hosts, by a superuser: $what");
	}
	like(error_of("CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'h,h:1,$socket', sentinel_service 'm')"),
		qr/^ERROR:  HV024: invalid value for option "sentinel_hosts"/, 'a socket at the end of a list');
	like(error_of(qq{CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'h', sentinel_service E'm$_')}),
		qr/^ERROR:  HV024: invalid value for option "sentinel_service"/, 'a name of a master with a control character') for '\\n', '\\r\\nx', '\\x1b[m';
	like(error_of('CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (host \'/' . 'x' x 120 . q{')}),
		qr/^ERROR:  HV024: .*\nHINT:  The path of the socket is too long\./, 'a path that is too long, by a superuser');
	is(visits(), $visits, 'nobody was at the socket');
};

subtest 'hosts that are good' => sub {
	for my $host ('localhost', '127.0.0.1', '::1', 'fe80::1%eth0', 'a-b.c_d.example.com.', 'redis_1', 'x' x 253, '/run/a b/redis.sock')
	{
		is(error_of("CREATE SERVER good FOREIGN DATA WRAPPER redis_export OPTIONS (host '$host'); DROP SERVER good"), '', $host);
	}
};

subtest 'a URI, and a port behind the host' => sub {
	for my $uri ('redis://h:1/0', 'rediss://app:sesame@h:1/0')
	{
		my $error = error_of("CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (host '$uri')");
		like($error, qr/^ERROR:  HV024: invalid value for option "host": it is a URI\nHINT:  Give it as option "uri", without user name and password, which are options of a user mapping\.$/m, $uri);
		unlike($error, qr/sesame/, 'without what is secret');
	}
	like(error_of(q{CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (host 'h:6379')}),
		qr/^ERROR:  HV024: .*"h:6379"\nHINT:  .*a host alone/, 'h:6379');
	like(error_of(q{CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'redis://h:1', sentinel_service 'm')}),
		qr/^ERROR:  HV024: invalid value for option "sentinel_hosts": it is a URI\nHINT:  It is a list/, 'for sentinels');
};

# The server of a test with this URI; as a role that is no superuser.
sub uri_error { my ($uri) = @_; return as_low("CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri '$uri')") }

subtest 'URIs that are good' => sub {
	my $port = $redis->port;
	$redis->cli('-n', 3, 'SET', 'here', 'three');
	$redis->cli('SET', 'here', 'zero');
	my %good = ("redis://127.0.0.1:$port/3" => 'three', "REDIS://127.0.0.1:$port" => 'zero', "valkey://127.0.0.1:$port/" => 'zero', "redis://%31%327.0.0.1:$port/%33" => 'three');
	for my $uri (sort keys %good)
	{
		is(as_low("CREATE SERVER good FOREIGN DATA WRAPPER redis_export OPTIONS (uri '$uri')"), '', "$uri, by an ordinary role");
		is($node->safe_psql('postgres', q{SELECT redis_command('good', 'GET', 'here')}), qq{"$good{$uri}"}, 'it leads there');
		$node->safe_psql('postgres', 'DROP SERVER good');
	}
	# where nobody listens, so that the error says what was read
	my %read = ('redis://[::1]:1' => '::1', 'redis://[::ffff:127.0.0.1]:1/0' => '::ffff:127.0.0.1');
	for my $uri (sort keys %read)
	{
		$node->safe_psql('postgres', "CREATE SERVER good FOREIGN DATA WRAPPER redis_export OPTIONS (uri '$uri')");
		like(error_of(q{SELECT redis_command('good', 'PING')}), qr/"good" at "\Q$read{$uri}\E", port 1: .*\nHINT:  See that Redis runs there, and host and port/, "$uri");
		$node->safe_psql('postgres', 'DROP SERVER good');
	}
	for my $uri ('redis://[fe80::1%25eth0]:6379/0', 'redis://' . 'x' x 253, 'redis://' . '%78' x 253)
	{
		is(uri_error($uri), '', $uri);
		$node->safe_psql('postgres', 'DROP SERVER bad');
	}
};

# Whatever is wrong, there may be a password in it, at any place.
subtest 'URIs that are none' => sub {
	my $visits = visits();
	my %bad = (
		'app:sesame@h:1/0' => qr/does not begin/, 'redis://app:sesame@h:1/0' => qr/user name or a password, .*\nHINT:  .*"username" and "password" of a user mapping/,
		'rediss://:sesame@h' => qr/user name or a password/, 'valkeys://sesame@h' => qr/user name or a password/, 'redis://:ses/ame?sesame@h:1' => qr/user name or a password/,
		'redis://app:sesame:1' => qr/more than one colon .*\nHINT:  .*in brackets/, 'redis://h:sesame' => qr/Its port/, 'redis://h:1/sesame' => qr/Its path/,
		'redis://h:1/0?password=sesame' => qr/parameters/, 'redis://h:1/0#sesame' => qr/parameters/, 'redis://h sesame' => qr/Its host/, 'sesame' => qr/does not begin/,
		'redis://h:0' => qr/Its port/, 'redis://h:65536' => qr/Its port/, 'redis://h:4294973675' => qr/Its port/, 'redis://h:' => qr/Its port/, 'redis://h:+1' => qr/Its port/,
		'redis://h:%31' => qr/Its port/, 'redis://h/1000001' => qr/Its path/, 'redis://h/-1' => qr/Its path/, 'redis://h/0/' => qr/Its path/, 'redis://h/%3' => qr/Its path/,
		'redis://h/99999999999999999999' => qr/Its path/, 'redis://h/0%00' => qr/Its path/,
		'redis://' => qr/names no host/, 'redis:///0' => qr/names no host/, 'redis://:6379' => qr/names no host/, 'redis://[]' => qr/names no host/,
		'redis://h%' => qr/Its host/, 'redis://h%zz' => qr/Its host/, 'redis://h%00x' => qr/Its host/, 'redis://h%0a' => qr/Its host/, 'redis://%3a%3a1' => qr/Its host/,
		'redis://[127.0.0.1]' => qr/Its host/, 'redis://[::1' => qr/bracket/, 'redis://[::1]6379' => qr/bracket/, 'redis://::1:6379' => qr/more than one colon/,
		'redis://' . 'x' x 254 => qr/Its host/, 'redis://' . 'x' x 5000 => qr/too long/, 'redis:h' => qr/does not begin/, 'http://h' => qr/does not begin/, '' => qr/does not begin/,
		"unix://$socket" => qr/names a Unix socket\.\nHINT:  .*as option "host"/, 'redis://' . $socket =~ s{/}{%2F}gr => qr/names a Unix socket\.\nHINT:  .*as option "host"/,
	);
	for my $uri (sort keys %bad)
	{
		my $error = uri_error($uri);
		like($error, qr/\AERROR:  HV024: invalid value for option "uri"\nDETAIL:  .*$bad{$uri}/, $uri);
		unlike($error, qr/sesame|ses\/|%73/, 'without what may be secret');
	}
	is(visits(), $visits, 'nobody was at the socket');
};

# A server that was made before there was a check, or by who may write catalogs.
subtest 'what is in the catalog already' => sub {
	my $visits = visits();
	$node->safe_psql('postgres', q{
		CREATE SERVER old FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'h', sentinel_service 'm'); GRANT USAGE ON FOREIGN SERVER old TO low});
	for my $hosts ($socket, "127.0.0.1:1,$socket")
	{
		$node->safe_psql('postgres', qq{UPDATE pg_foreign_server SET srvoptions = ARRAY['sentinel_hosts=$hosts', 'sentinel_service=m'] WHERE srvname = 'old'});
		like(as_low(q{SELECT redis_command('old', 'PING')}), qr/^ERROR:  HV024: .*the option "sentinel_hosts" is not valid/, 'a command: nobody goes to a socket');
		like(error_of(rows(3, server => q{'old'}, retry_timeout => q{'0 s'})), qr/^ERROR:  HV024: .*the option "sentinel_hosts" is not valid/, 'nor an export');
	}
	$node->safe_psql('postgres', qq{UPDATE pg_foreign_server SET srvoptions = ARRAY[E'host=127.0.0.1\nx'] WHERE srvname = 'old'});
	like(error_of(q{SELECT redis_command('old', 'PING')}), qr/^ERROR:  HV024: could not connect to Redis server "old": "127\.0\.0\.1\\x0ax" is not a valid host\nDETAIL:  It is a host name, an address/, 'a host that is none');
	like(error_of(rows(3, server => q{'old'})), qr/^ERROR:  HV024: could not connect to Redis server "old"/, 'an export says so at once');
	is(visits(), $visits, 'nobody was at the socket');
	$node->safe_psql('postgres', 'DROP SERVER old');
};

# What a superuser has set stays as it is for the owner, who may not change anything beside it.
subtest 'a socket of a superuser, in the hands of an ordinary owner' => sub {
	$node->safe_psql('postgres', qq{CREATE SERVER given FOREIGN DATA WRAPPER redis_export OPTIONS (host '$socket'); ALTER SERVER given OWNER TO low});
	is(as_low(q{SELECT redis_command('given', 'PING')}), '', 'it is used');
	like(as_low("ALTER SERVER given OPTIONS ($_)"), qr/^ERROR:  42501: permission denied to set option "host" to the path of a socket/, "and not altered: $_")
		for q{ADD db '1'}, q{SET host '/other'}, q{ADD client_name 'x'};
	is(as_low(q{ALTER SERVER given OPTIONS (SET host '127.0.0.1')}), '', 'but for another host');
	$node->safe_psql('postgres', 'DROP SERVER given');
};

# Bytes as a bulk string, and a node's map that names this host for all slots.
sub bulk { my ($bytes) = @_; return '$' . length($bytes) . "\r\n$bytes" }
sub map_of { my ($host, $port) = @_; return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" . bulk($host) . "\r\n:$port" }

subtest 'what a sentinel tells' => sub {
	my $visits = visits();
	for my $host ($socket, '@redis', '', "127.0.0.1\n", '127.0.0.1 x', "127.0.0.1\0x", 'x' x 300)
	{
		my $fake = RedisExport::Fake->new(sub { return "*2\r\n" . bulk($host) . "\r\n" . bulk(6379) });
		my $name = 's' . ++$count;
		$node->safe_psql('postgres', "CREATE SERVER $name FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts '127.0.0.1:" . $fake->port . q{', sentinel_service 'm')});
		my $shown = $host =~ s/[^ -~]/?/gr;
		like(error_of("SELECT redis_command('$name', 'PING')"), qr/^ERROR:  08P01: the sentinel .* gave no address that can be read/, "a command: \"$shown\"");
		like(error_of(rows(3, server => "'$name'", retry_timeout => q{'0 s'})), qr/^ERROR:  08P01: .*the sentinel .* gave no address that can be read/, 'an export');
		$fake->stop;
	}
	is(visits(), $visits, 'nobody was at the socket');
};

subtest 'what a node of a cluster tells' => sub {
	my $visits = visits();
	for my $host ($socket, '@redis', "127.0.0.1\n", '127.0.0.1 x', "127.0.0.1\0x", 'x' x 300)
	{
		my $shown = $host =~ s/[^ -~]/?/gr;
		my $fake = RedisExport::Fake->new(sub { return $_[2] eq 'CLUSTER' ? map_of($host, 6379) : '+OK' });
		my $name = server($fake, cluster => 'true');
		like(error_of(rows(3, server => "'$name'")), qr/^ERROR:  08P01: .*Redis gave no map of its cluster that can be read/, "the map, an export: \"$shown\"");
		like(error_of("SELECT redis_scan('$name')"), qr/^ERROR:  08P01: .*Redis gave no map of its cluster that can be read/, 'the map, a scan');
		$fake->stop;
		next if $host =~ /[\n\0]/;

		for my $word ('MOVED', 'ASK')
		{
			$fake = RedisExport::Fake->new(sub {
				my ($self, $client, @words) = @_;
				return map_of('127.0.0.1', $client->{socket}->sockport) if $words[0] eq 'CLUSTER';
				return "-$word 1 $host:6379";
			});
			$name = server($fake, cluster => 'true');
			like(error_of(rows(3, server => "'$name'", retry_timeout => q{'0.3 s'})), qr/^ERROR:  0A000: gave up .*: Redis answered: $word 1 /, "$word, an export");
			like(error_of("SELECT redis_command('$name', 'GET', 'k')"), qr/^ERROR:  0A000: Redis answered: $word 1 /, "$word, a command");
			$fake->stop;
		}
	}
	is(visits(), $visits, 'nobody was at the socket');
};

subtest 'slots that there are none of' => sub {
	for my $range ([ 0, -2147483649 ], [ -1, 16383 ], [ 0, 16384 ], [ 5, 4 ], [ 4294967296, 16383 ], [ -9223372036854775808, 9223372036854775807 ])
	{
		my $fake = RedisExport::Fake->new(sub { return map_of('127.0.0.1', 6379) =~ s/:0\r\n:16383/:$range->[0]\r\n:$range->[1]/r });
		my $name = server($fake, cluster => 'true');
		like(error_of("SELECT redis_scan('$name')"), qr/^ERROR:  08P01: .*Redis gave no map of its cluster that can be read/, "from $range->[0] to $range->[1]");
		$fake->stop;
	}
};

# It tells no address of itself, which is then the one that was asked; through a socket there is none.
subtest 'a cluster through a socket' => sub {
	my $lone = RedisExport::Cluster->new(masters => 1);
	my ($one) = $lone->nodes;
	my $name = server($one, host => $one->socket, cluster => 'true');
	$lone->raw($one)->command('CONFIG', 'SET', 'cluster-announce-ip', '127.0.0.1');
	is(error_of(hash_sql('SELECT i AS id FROM generate_series(1, 20) AS i', 'k:#{id}', server => "'$name'")), '', 'its node has an address');
	is($lone->dbsize, 20, 'all keys are there');
	$lone->raw($one)->command('CONFIG', 'SET', 'cluster-preferred-endpoint-type', 'unknown-endpoint');
	like(error_of(hash_sql('SELECT 1 AS id', 'k:#{id}', server => "'$name'")), qr/^ERROR:  08P01: .*no map of its cluster that can be read/, 'its node tells none');
	$_->stop for $lone->nodes;
};

# ---- Nothing that is a part is returned for the whole ----------------------------------------------------------------

# Users who may all but something; their word is pw.
my %users = (
	slots_only => '-info -cluster +cluster|slots',
	info_only => '-cluster',
	neither => '-info -cluster',
);
my @users = map { "$_ on >pw ~* &* +\@all $users{$_}" } sort keys %users;
my $cluster = RedisExport::Cluster->new(replicas => 1, conf => { user => \@users });
my @masters = $cluster->masters;
my $whole = server($cluster);
is(error_of(hash_sql('SELECT i AS id, i AS v FROM generate_series(1, 300) AS i', 'k:#{id}', server => "'$whole'")), '', '300 keys in a cluster');

# A server for a user of Redis.
sub server_for
{
	my ($at, $user, %options) = @_;
	my $name = server($at, %options);
	$node->safe_psql('postgres', "CREATE USER MAPPING FOR CURRENT_USER SERVER $name OPTIONS (username '$user', password 'pw')");
	return $name;
}

# All that reads what Redis holds, and what it returns when it is whole; by name.
sub readings
{
	my ($name) = @_;
	return (
		redis_scan => [ "SELECT count(*) FROM redis_scan('$name', 'k:*')", 300 ],
		redis_hash_scan => [ "SELECT count(*) FROM redis_hash_scan('$name', 'k:*')", 300 ],
		redis_export_verify => [ "SELECT (v.expected, v.missing, v.different, v.unknown) FROM redis_export_verify('SELECT i AS id, i AS v FROM generate_series(1, 300) AS i', 'k:#{id}', server => '$name', type => 'hash') AS v", '(300,0,0,0)' ],
	);
}

sub reads_all
{
	my ($name, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %readings = readings($name);
	is($node->safe_psql('postgres', $readings{$_}[0]), $readings{$_}[1], "$why: $_ reads all") for sort keys %readings;
	return;
}

sub reads_nothing
{
	my ($name, $pattern, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %readings = readings($name);
	like(error_of($readings{$_}[0]), $pattern, "$why: $_ is refused") for sort keys %readings;
	return;
}

subtest 'a cluster, and users of Redis who may not ask everything' => sub {
	my $no_map = qr/could not ask for the nodes of the cluster: Redis answered: NOPERM .*\nHINT:  Grant the Redis user the command: ACL SETUSER \.\.\. \+cluster\|slots\.$/m;
	reads_all($whole, 'who may all');
	reads_all(server_for($cluster, 'slots_only'), 'who may only CLUSTER SLOTS');
	reads_nothing(server_for($cluster, 'info_only'), qr/^ERROR:  42501: $no_map/, 'who may not CLUSTER SLOTS');
	like(error_of(rows(10, server => "'s$count'", retry_timeout => q{'1 s'})), qr/^ERROR:  42501: $no_map/, 'an export says the same');
	reads_nothing(server_for($cluster, 'neither'), qr/^ERROR:  42501: .*could not find out whether Redis is a cluster: Redis answered: NOPERM .*\nHINT:  If it is none, set the option "cluster" .*\+cluster\|slots/, 'who may neither');
	reads_nothing(server($cluster, cluster => 'false'), qr/^ERROR:  0A000: .*the keys of one node of a Redis Cluster are not all there are\nHINT:  Set the option "cluster"/, 'the option says that it is none');
};

subtest 'no cluster, and users of Redis who may not ask everything' => sub {
	my $alone = RedisExport::Redis->new(modules => 0, conf => { user => \@users });
	$alone->cli('EVAL', q{for i = 1, 300 do redis.call('HSET', 'k:' .. i, 'id', i, 'v', i) end}, 0);
	reads_all(server($alone), 'who may all');
	reads_all(server_for($alone, 'slots_only'), 'who may only CLUSTER SLOTS');
	reads_all(server_for($alone, 'info_only'), 'who may not CLUSTER SLOTS');
	reads_nothing(server_for($alone, 'neither'), qr/^ERROR:  42501: .*could not find out whether Redis is a cluster/, 'who may neither');
	reads_all(server_for($alone, 'neither', cluster => 'false'), 'who may neither, and the option says that it is none');
	like(error_of("SELECT redis_scan('" . server($alone, cluster => 'true') . q{')}), qr/^ERROR:  0A000: .*cluster support disabled\nHINT:  .*Set the option "cluster" .* to false or auto/, 'the option says that it is one');
	$alone->stop;
};

# A scan that has read some of the first node's keys when something happens.
sub scan_meanwhile
{
	my ($sub) = @_;
	my $session = session($node);
	$session->query("BEGIN; DECLARE c CURSOR FOR SELECT redis_scan('$whole', 'm:*')");
	$session->query('FETCH 1 FROM c');
	$sub->();
	my ($out, $error) = $session->send('FETCH ALL FROM c')->wait;
	$session->quit;
	my @keys = split /\n/, $out;
	note @keys + 1, " keys, and $error";
	return ($error, @keys + 1);
}

my $moved = qr/ERROR:  slots of the Redis Cluster moved while the keys of Redis were read\nDETAIL:  Some of them may not have been seen\./;

# From one that is still to be read to one that has been: the first and the last as a map names them.
subtest 'slots that move while keys are read' => sub {
	my ($first, $last) = @masters[ 0, -1 ];
	my ($tag, $other, $slot) = ($cluster->tags($last), '{0}');
	my $number = 0;
	$other = '{' . $number++ . '}' until $other ne $tag && $cluster->holder($other) == $last;
	is(error_of(hash_sql("SELECT i AS id, CASE WHEN i <= 10 THEN '$tag' WHEN i <= 20 THEN '$other' ELSE '' END AS tag FROM generate_series(1, 9000) AS i", 'm:#{tag}#{id}', server => "'$whole'")), '', 'keys');
	my ($error, $keys) = scan_meanwhile(sub { });
	is("$error$keys", 9000, 'all are there');

	$slot = slot_of($tag);
	($error, $keys) = scan_meanwhile(sub {
		$cluster->begin_move($slot, $last, $first)->move_keys($slot, $last, $first)->end_move($slot, $last, $first)->until_ok;
	});
	like($error, $moved, 'one has moved');

	$slot = slot_of($other);
	($error, $keys) = scan_meanwhile(sub {
		$cluster->begin_move($slot, $last, $first);
		$cluster->move_keys($slot, $last, $first, map { "m:$other$_" } 11 .. 15);
	});
	like($error, $moved, 'one is on its way');
	$cluster->move_keys($slot, $last, $first)->end_move($slot, $last, $first)->until_ok;
	($error, $keys) = scan_meanwhile(sub { });
	is("$error$keys", 9000, 'all are there when that is over');
};

subtest 'a replica that takes over while keys are read' => sub {
	my ($replica) = $cluster->replicas_of($masters[-1]);
	my ($error) = scan_meanwhile(sub { $cluster->failover($replica) });
	like($error, qr/ERROR:  (?:slots of the Redis Cluster moved|another Redis took over as the master) while the keys of Redis were read/, 'in a cluster');

	my $master = RedisExport::Redis->new(modules => 0);
	$whole = server($master);
	$master->cli('EVAL', q{for i = 1, 9000 do redis.call('SET', 'm:' .. i, i) end}, 0);
	($error) = scan_meanwhile(sub { $master->cli('REPLICAOF', '127.0.0.1', $redis->port) });
	like($error, qr/ERROR:  another Redis took over as the master while the keys of Redis were read/, 'without one');
	$master->stop;
};

subtest 'slots that no node has' => sub {
	$cluster->raw($_)->command('CONFIG', 'SET', 'cluster-require-full-coverage', 'no') for $cluster->nodes;
	my ($owner) = $cluster->masters;
	my ($slot) = $cluster->slots_of($owner);
	$cluster->raw($_)->command('CLUSTER', 'DELSLOTS', $slot) for $cluster->nodes;
	reads_nothing(server($cluster), qr/^ERROR:  57P03: .*no node of the Redis Cluster has 1 of its 16384 slots/, 'one of them');
	$_->stop for $cluster->nodes;
};

# ---- A Redis that does not tell ------------------------------------------------------------------------------------------

# What an export of 200 rows is told, its job, and what the log has of it.
sub export_and_log
{
	my ($name, %arguments) = @_;
	my $from = -s $node->logfile;
	my (undef, undef, $told) = $node->psql('postgres', rows(200, server => "'$name'", batch => 10, %arguments));
	return ($told, job($node), substr slurp_file($node->logfile), $from);
}

# So often the text has the words.
sub how_often { my ($text, $words) = @_; my @found = $text =~ /$words/g; return scalar @found }

sub goes_on_without
{
	my ($name, $what, $info, $client) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($told, $job, $log) = export_and_log($name);
	is("$job->{state} $job->{rows_written}", 'done 200', "$what: all rows are written") or diag $told;
	is(how_often($told, qr/NOTICE:  export job \d+ went on without INFO, which Redis refused/), $info, "$info times told of INFO") or diag $told;
	is(how_often($told, qr/NOTICE:  export job \d+ went on without CLIENT ID and CLIENT KILL, which Redis refused/), $client, "$client times of CLIENT") or diag $told;
	is(how_often($log, qr/LOG:  the export goes on without INFO, which Redis refused/), $info, 'and so in the log');
	is(how_often($log, qr/LOG:  the export goes on without CLIENT ID and CLIENT KILL, which Redis refused/), $client, 'of both');
	return $job;
}

subtest 'a Redis without INFO or CLIENT' => sub {
	my @rights = ('-info', '-client', '-info -client', '-client|kill', '-client|setname');
	my $real = RedisExport::Redis->new(conf => { user => [ map { "u$_ on >pw ~* &* +\@all $rights[$_]" } 0 .. $#rights ] });
	goes_on_without(server_for($real, "u$_"), "without the right: $rights[$_]", $rights[$_] =~ /info/ ? 1 : 0, $rights[$_] =~ /client(?!\|)/ ? 1 : 0) for 0 .. $#rights;
	is(wrong_rows($real, 200), 0, 'the rows are in Redis');
	is(error_of('SELECT redis_command(' . q{'} . server_for($real, 'u2') . q{', 'SET', 'x', 'y')}), '', 'a command');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM redis_json_scan(' . q{'} . server_for($real, 'u2') . q{', 'k:*')}), 200, 'a scan');
	$real->stop;

	my $renamed = RedisExport::Redis->new(conf => { 'rename-command' => [ 'INFO ""', 'CLIENT ""', 'CLUSTER ""' ] });
	goes_on_without(server($renamed, db => 3), 'with other names', 1, 1);
	is($renamed->cli('-n', 3, 'DBSIZE'), 200, 'the rows are there');
	like(error_of("SELECT redis_scan('s$count', 'k:*')"), qr/^ERROR:  42883: could not find out whether Redis is a cluster: .*unknown command.*\nHINT:  If it is none, set/, 'a scan asks for the option');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM redis_json_scan('} . server($renamed, cluster => 'false') . q{', 'k:*')}), 0, 'and goes by it');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM redis_json_scan('} . server($renamed, cluster => 'false', db => 3) . q{', 'k:*')}), 200, 'in each database');
	$renamed->stop;
};

# In words of their own; connections are lost, so that they are asked again.
subtest 'proxies without INFO or CLIENT' => sub {
	for my $words ("-ERR unknown command `INFO`, with args beginning with: ", "-ERR unsupported command 'info'", '-ERR Proxy error', '-forbidden by policy', '+OK', "\$-1", '*0',
		'-NOPERM this user has no permissions to run the \'info\' command or its subcommand')
	{
		my $fake = RedisExport::Fake->new(all => sub {
			my ($self, $client, @words) = @_;
			return $words if $words[0] eq 'INFO' || ($words[0] eq 'CLIENT' && $words =~ /^-/);
			return CLOSE if $words[0] eq 'JSON.SET' && $words[1] =~ /^k:(?:50|90)$/ && !$self->{ $words[1] }++;
			return '+OK';
		});
		my $job = goes_on_without(server($fake), $words, 1, $words =~ /^-/ ? 1 : 0);
		is($job->{reconnects}, 2, 'though it was asked three times');
		$fake->stop;
	}
};

# Not to be let in is another matter, whatever is asked first.
subtest 'who is not let in is told so' => sub {
	for my $words ('-NOAUTH Authentication required.', '-ERR operation not permitted', '-DENIED Redis is running in protected mode')
	{
		for my $first ('INFO', 'CLIENT')
		{
			my $fake = RedisExport::Fake->new(all => sub { return $_[2] eq 'INFO' && $first ne 'INFO' ? "-ERR unknown command 'INFO'" : $_[2] =~ /^(?:INFO|CLIENT)$/ ? $words : '+OK' });
			like(error_of(rows(3, server => q{'} . server($fake) . q{'})), qr/^ERROR:  (?:28000|42501): could not log in to Redis server .*\Q@{[ substr $words, 1 ]}\E/, "$first: $words");
			$fake->stop;
		}
	}
};

# ---- Names and addresses of a cluster's nodes ------------------------------------------------------------------------

# The error of an export, its SQLSTATE and hint, the seconds it took, and what the view says of nodes and job then.
sub failed_export
{
	my ($name, %arguments) = @_;
	my $begun = time;
	my $error = error_of(hash_sql('SELECT i AS id, i AS v FROM generate_series(1, 100) AS i', 'k:#{id}', server => "'$name'", retry_timeout => q{'120 s'}, %arguments));
	return ($error, time - $begun, $node->safe_psql('postgres', 'SELECT state, last_error FROM redis_export_nodes WHERE job = ' . last_job($node)));
}

subtest 'a TLS cluster whose certificates have only a name' => sub {
	plan(skip_all => 'there is no TLS in this build') unless $ENV{REDIS_EXPORT_TLS};
	my $secure = RedisExport::Cluster->new(tls => 'only_name');
	my %tls = (host => 'localhost', tls => 'true', tls_ca_file => tls_file('ca.crt'));
	my $name = server($secure, %tls);
	my $export = sub { my ($server) = @_; return error_of(hash_sql('SELECT i AS id, i AS v FROM generate_series(1, 100) AS i', 'k:#{id}', server => "'$server'", retry_timeout => q{'5 s'})) };
	my $mismatch = qr/certificate verify failed: IP address mismatch/i;

	my ($error, $seconds, $nodes) = failed_export($name);
	like($error, qr/^ERROR:  08001: could not connect to Redis server "$name" at "127\.0\.0\.1", port \d+ with TLS: $mismatch\nHINT:  The cluster tells this address of its node\. .*cluster-announce-hostname.*"tls_server_name"/m, 'it fails, and says what is to be done');
	cmp_ok($seconds, '<', 100, 'at once');
	like($nodes, qr/^closed\|could not connect .*$mismatch/m, 'the view of nodes says it, too');
	my $id = begin_job($node, hash_sql('SELECT i AS id FROM generate_series(1, 100) AS i', 'k:#{id}', server => "'$name'", retry_timeout => q{'30 s'}));
	poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	like(job($node, $id)->{last_error}, $mismatch, 'so does the job, of which nobody waits for');
	like(error_of("SELECT redis_scan('$name')"), qr/^ERROR:  08001: .*$mismatch\nHINT:  The cluster tells this address/, 'and a scan');
	is($export->(server($secure, %tls, tls_server_name => 'localhost')), '', 'with the option it is done');
	is($secure->dbsize, 100, 'all rows are there');
	$secure->flush;

	# the certificate has its name, but no longer its address
	$secure->raw($_)->command('CONFIG', 'SET', 'cluster-announce-hostname', 'localhost') for $secure->nodes;
	wait_for('all know the names', sub { !grep { my @lines = split /\n/, $secure->raw($_)->command('CLUSTER', 'NODES'); @lines != grep { /,localhost / } @lines } $secure->nodes });
	is($export->($name), '', 'where the cluster tells names, they are taken');
	is($secure->dbsize, 100, 'all rows are there');
	is($node->safe_psql('postgres', "SELECT count(*) FROM redis_scan('$name', 'k:*')"), 100, 'a scan');
	is(error_of(join '; ', map { "SELECT redis_command('$name', 'HGETALL', 'k:$_')" } 1 .. 20), '', 'commands that are sent on');

	# a certificate with the address, and not the name that is told
	$secure->raw($_)->command('CONFIG', 'SET', 'cluster-announce-hostname', 'unknown.example.com') for $secure->nodes;
	wait_for('all know the names', sub { !grep { my @lines = split /\n/, $secure->raw($_)->command('CLUSTER', 'NODES'); @lines != grep { /,unknown\.example\.com / } @lines } $secure->nodes });
	($error, $seconds, $nodes) = failed_export($name);
	like($error, qr/$mismatch\nHINT:  The certificate has neither name that the cluster tells of this node, "127\.0\.0\.1" and "unknown\.example\.com"/, 'neither fits');
	$_->present('server') for $secure->nodes;
	is($export->($name), '', 'the address fits');

	$_->stop for $secure->nodes;
};

subtest 'a cluster behind other addresses' => sub {
	my $nat = RedisExport::Cluster->new;
	my ($first, $second, $third) = $nat->nodes;
	my $name = server($nat);
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	$nat->raw($second)->command('CONFIG', 'SET', 'cluster-announce-port', $port);
	wait_for('it is told', sub { $nat->raw($first)->command('CLUSTER', 'NODES') =~ /:$port@/ });
	my ($error, $seconds, $nodes) = failed_export($name, retry_timeout => q{'1 s'});
	like($error, qr/^ERROR:  08001: gave up after .*could not connect to Redis server "$name" at "127\.0\.0\.1", port $port: Connection refused\nHINT:  The nodes of the cluster tell this address\. .*cluster-announce-ip/, 'the hint is about what the nodes tell');
	unlike($nodes, qr/^retrying/m, 'no node is shown as if it were tried again');
	like($nodes, qr/^closed\|.*could not connect .*port $port: Connection refused/m, 'and the one that was not reached has its error');

	# while it is tried, with nobody to wait, and before there is any row: the record is on this node
	my ($tag) = grep { slot_of($_) >= 5461 && slot_of($_) <= 10922 } map { "t$_" } 1 .. 100;
	my %server = (server => "'$name'");
	for my $what ([ 'rows', hash_sql('SELECT i AS id FROM generate_series(1, 100) AS i', 'k:#{id}', %server) ],
		[ 'no rows yet', run_sql($node, $tag, 'SELECT 1 AS id', 'n:#{id}', type => q{'hash'}, %server) ])
	{
		my $id = begin_job($node, $what->[1]);
		until_state($node, $id, 'retrying');
		poll_until($node, "SELECT count(*) = 1 FROM redis_export_nodes WHERE job = $id AND port = $port AND state = 'retrying' AND last_error LIKE '%Connection refused%'", 20);
		my %seen;
		for (1 .. 20)
		{
			$seen{$_}++ for $node->safe_psql('postgres', "SELECT state, last_error IS NOT NULL FROM redis_export_nodes WHERE job = $id AND port = $port");
			sleep 0.1;
		}
		is(join(' ', sort keys %seen), 'retrying|t', "$what->[0]: all the time the view says what is wrong with the node");
		$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
		poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
		is($node->safe_psql('postgres', "SELECT count(*) FROM redis_export_nodes WHERE job = $id AND state <> 'closed'"), 0, 'and not when it has ended');
	}
	$_->stop for $nat->nodes;
};

# ---- Something else listens there ------------------------------------------------------------------------------------

subtest 'what is not Redis' => sub {
	my %answers = (
		'a web server' => [ "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", qr/A web server answers there\. See host and port of the foreign server\./ ],
		'a web server of another kind' => [ "<html>\r\n<head><title>400 Bad Request</title></head>", qr/A web server answers there\./ ],
		'a pooler of PostgreSQL' => [ "E\0\0\0\x2fSFATAL\0C08P01\0Minvalid startup packet\0\0", qr/PostgreSQL, or a pooler of its connections, answers there\./ ],
		'TLS' => [ "\x15\x03\x03\0\x02\x02\x46", qr/If Redis speaks TLS there, set the option "tls" to true\./ ],
		'something else' => [ "SSH-2.0-OpenSSH_9.2p1\r\n", qr/Something other than Redis, or Redis with TLS, may listen there\./ ],
	);
	for my $what (sort keys %answers)
	{
		my ($bytes, $hint) = @{ $answers{$what} };
		my $fake = RedisExport::Fake->new(rubbish => $bytes);
		my $name = server($fake);
		like(error_of("SELECT redis_command('$name', 'PING')"), qr/^ERROR:  08P01: .*sent what is no reply of Redis: .*\nHINT:  $hint/, "$what: a command");
		like(error_of(rows(3, server => "'$name'")), qr/^ERROR:  08P01: .*sent what is no reply of Redis: .*\nHINT:  $hint/, 'an export');
		$fake->stop;
	}
};

# It says nothing, and hangs up.
subtest 'PostgreSQL itself' => sub {
	my $real = PostgreSQL::Test::Cluster->new('listening');
	$real->init(extra => [ '-U', 'postgres' ]);
	$real->append_conf('postgresql.conf', q{listen_addresses = '127.0.0.1'});
	$real->start;
	$real->safe_psql('postgres', 'CREATE EXTENSION redis_export; CREATE SERVER self FOREIGN DATA WRAPPER redis_export OPTIONS (port ' . q{'} . $real->port . q{')});
	like(sql_error($real, q{SELECT redis_command('self', 'PING')}), qr/lost the connection .*\nHINT:  Port \d+ may be that of PostgreSQL, which hangs up on others\. See host and port/, 'at its own port');
	add_server($node, $real, name => 'elsewhere', host => '127.0.0.1');
	like(error_of(q{SELECT redis_command('elsewhere', 'PING')}), qr/lost the connection .*\nHINT:  If Redis speaks TLS there, .* If something else listens there, see host and port/, 'at a port that is not known to be one');
	$real->stop;
};

# ---- What breaks a connection ----------------------------------------------------------------------------------------

subtest 'a row that is more than maxmemory-clients' => sub {
	$redis->cli('CONFIG', 'SET', 'maxmemory-clients', '2mb');
	my $error = error_of(export_sql(q{SELECT i AS id, repeat('x', CASE i WHEN 2 THEN 6000000 ELSE 1 END) AS v FROM generate_series(1, 3) AS i}, value => q{'*'}));
	like($error, qr/row 2 with key "k:2" failed: the connection broke .*HINT:  .*maxmemory-clients/s, 'the hint names it');
	$redis->cli('CONFIG', 'SET', 'maxmemory-clients', '0');
	$redis->cli('FLUSHALL');
};

done_testing;
