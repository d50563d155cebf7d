# Redis Cluster when things go wrong: nodes die and hang, slots have no owner, nodes come and go, and some say what is not true.
# What goes well is in 051_cluster.t, replicas take over in 052_cluster_failover.t.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Cluster;
use RedisExport::Fake;

my $node = new_node(undef, conf => "redis_export.notice_interval = 0\nmax_worker_processes = 20\n");

sub servers
{
	my ($where, $name, %options) = @_;
	add_server($node, $where, name => $name, %options);
	return (server => "'$name'");
}

sub written_at { my ($job, $redis) = @_; return nodes_of($node, $job)->{ $redis->port }{rows_written} // 0 }

sub log_of { return slurp_file($node->logfile) }

# ---- Nodes that hang or are lost, and nobody takes over --------------------------------------------------------------

my $bare = RedisExport::Cluster->new(timeout => 60_000);
my @bare = servers($bare, 'bare');
my ($first, $second, $third) = $bare->nodes;
my ($at_first, $at_second, $at_third) = $bare->tags($first, $second, $third);

# A row for each node, so that there are connections, and then many for the first.
subtest 'one node is lost while another hangs' => sub {
	my $id = begin_job($node, hash_sql("SELECT i AS id, CASE i WHEN 1 THEN '$at_second' WHEN 2 THEN '$at_third' ELSE '$at_first' END AS t, pg_sleep(0.01)::text FROM generate_series(1, 200) AS i",
			'#{t}#{id}', batch => 1, @bare));
	poll_until($node, "SELECT count(*) = 3 FROM redis_export_nodes WHERE job = $id AND rows_written > 0");
	$second->freeze;
	$first->kill9;
	until_state($node, $id, 'retrying');
	sleep 3;                                              # longer than a node is given to tell the map
	$first->start;
	$second->thaw;
	done_ok($node, $id, 200);
	unlike(log_of(), qr/terminated by signal/, 'nothing has crashed');
	$bare->flush;
};

# The connection to a node that hangs is lost after a second; to make a new one may take a minute.
subtest 'while a node hangs, the others go on' => sub {
	my @patient = servers($bare, 'patient', timeout => 1, connect_timeout => 60);
	my $id = begin_job($node, hash_sql("SELECT i AS id, CASE WHEN i % 10 = 0 THEN '$at_third' WHEN i % 2 = 0 THEN '$at_second' ELSE '$at_first' END AS t, pg_sleep(0.005)::text FROM generate_series(1, 800) AS i",
			'#{t}#{id}', @patient));
	poll_until($node, "SELECT count(*) = 3 FROM redis_export_nodes WHERE job = $id AND rows_written > 0");
	$third->freeze;
	ok(eval { poll_until($node, "SELECT sum(rows_written) = 720 FROM redis_export_nodes WHERE job = $id AND port <> " . $third->port, 20) },
		'all rows for the others are written meanwhile') or diag explain nodes_of($node, $id);
	cmp_ok(written_at($id, $third), '<', 80, 'and not those for this one');
	$third->thaw;
	done_ok($node, $id, 800);
	$bare->flush;
};

subtest 'until the window of the one that hangs is full' => sub {
	$third->freeze;
	my $id = begin_job($node, hash_sql('SELECT i AS id, i AS v FROM generate_series(1, 6000) AS i', 'k:#{id}', batch => 50, @bare));
	# it does not answer our greeting either: the first connection to it is made later
	poll_until($node, "SELECT rows_read > 400 FROM redis_export_progress WHERE job = $id");
	sleep 0.5;
	my $row = job($node, $id);
	is($row->{finished_at}, undef, 'the job stands still');
	cmp_ok($row->{rows_read}, '<', 2000, 'nothing more is read') or diag explain nodes_of($node, $id);
	cmp_ok(written_at($id, $first) + written_at($id, $second), '>', 200, 'the others have had theirs');
	$third->thaw;
	done_ok($node, $id, 6000);
	$bare->flush;

	# now one that is connected, and hangs while the query waits for us
	my $session = session($node);
	$session->query('SELECT pg_advisory_lock(1)');
	$id = begin_job($node, hash_sql("SELECT i AS id, i AS v, CASE WHEN i < 100 THEN pg_sleep(0.01)::text WHEN i = 100 THEN pg_advisory_xact_lock(1)::text END AS s FROM generate_series(1, 6000) AS i",
			'k:#{id}', batch => 50, @bare));
	poll_until($node, q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
	is($node->safe_psql('postgres', "SELECT count(*) FROM redis_export_nodes WHERE job = $id AND rows_written > 0"), 3, 'each has had rows');
	$third->freeze;
	$session->query('SELECT pg_advisory_unlock(1)');
	$session->quit;
	poll_until($node, "SELECT rows_with_redis > 100 FROM redis_export_nodes WHERE job = $id AND port = " . $third->port);
	poll_until($node, "SELECT sum(rows_with_redis) = 0 FROM redis_export_nodes WHERE job = $id AND port <> " . $third->port);
	my $nodes = nodes_of($node, $id);
	cmp_ok($nodes->{ $third->port }{rows_with_redis}, '<=', 250, 'rows are on their way to the one that hangs, its window full');
	cmp_ok($nodes->{ $first->port }{rows_written}, '>', 100, 'who have had theirs');
	$third->thaw;
	done_ok($node, $id, 6000);
	is(scalar(grep { ($_ // '') ne '' } $bare->values_of(map { "k:$_" } 1 .. 6000)), 6000, 'all is there');
	$bare->flush;
};

# Each in its own way, all while one node hangs.
subtest 'the end comes at once while a node hangs' => sub {
	my $rows = hash_sql('SELECT i AS id FROM generate_series(1, 100000) AS i', 'e:#{id}', batch => 50, rate => 1000, @bare);
	my $canceled = begin_job($node, $rows);
	my $terminated = begin_job($node, $rows);
	my ($timed, $interrupted) = (session($node), session($node));
	$timed->query(q{SET statement_timeout = '3 s'});
	my $timed_job = next_job($node, sub { $timed->send($rows) });
	my $interrupted_job = next_job($node, sub { $interrupted->send($rows) });
	until_written($node, $_, 100) for $canceled, $terminated, $timed_job, $interrupted_job;
	$third->freeze;
	poll_until($node, "SELECT count(*) = 4 FROM redis_export_nodes WHERE rows_with_redis > 0 AND port = " . $third->port);

	my $begun = time;
	$node->safe_psql('postgres', "SELECT redis_export_cancel($canceled)");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM redis_export_progress WHERE job = $terminated");
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $interrupted->pid . ')');
	like(($interrupted->wait)[1], qr/ERROR:  canceling statement due to user request/, 'the one who waits hears of it');
	like(($timed->wait)[1], qr/ERROR:  canceling statement due to statement timeout/, 'so does the one whose time is up');
	poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $_") for $canceled, $terminated, $timed_job, $interrupted_job;
	cmp_ok(time - $begun, '<', 50, 'none waited for the node');
	$third->thaw;
	my %ends = ($canceled => 'canceled', $terminated => qr/^(?:canceled|failed)$/, $timed_job => qr/^(?:canceled|failed)$/, $interrupted_job => 'canceled');
	like(job($node, $_)->{state}, qr/^$ends{$_}$/, 'its state') for sort { $a <=> $b } keys %ends;
	nodes_add_up_ok($node, $_) for sort { $a <=> $b } keys %ends;
	is($node->safe_psql('postgres', "SELECT count(*) FROM redis_export_nodes WHERE job = $_ AND state IN ('open', 'retrying', 'connecting')"), 0, 'no node is shown as if it went on')
		for sort { $a <=> $b } keys %ends;
	job_ends($node, $bare, $canceled, state => 'canceled');
	ledger_ok($node, $_) for $terminated, $timed_job, $interrupted_job;
	$timed->quit;
	$interrupted->quit;
	$bare->flush;
};

# ---- Slots without an owner ------------------------------------------------------------------------------------------

sub without_owner
{
	my ($slot, $sub) = @_;
	$bare->raw($_)->command('CLUSTER', 'DELSLOTS', $slot) for $bare->nodes;
	$sub->();
	return;
}

sub give_back
{
	my ($slot, $to) = @_;
	$bare->raw($to)->command('CLUSTER', 'ADDSLOTS', $slot);
	return $bare->until_ok;
}

sub full_coverage { my ($how) = @_; $bare->raw($_)->command('CONFIG', 'SET', 'cluster-require-full-coverage', $how) for $bare->nodes; return }

# The second row of the query is in that slot, so is each twentieth; a key twenty times.
my $holes = "SELECT CASE WHEN i % 20 = 2 THEN '${at_second}h' || i % 100 ELSE 'k:' || i END AS k, i AS v FROM generate_series(1, 2000) AS i";
my $hole = slot_of($at_second);

subtest 'a slot without an owner, and a cluster that wants all' => sub {
	my $id;
	without_owner($hole, sub {
		wait_for('the cluster is down', sub { $bare->raw($first)->command('CLUSTER', 'INFO') =~ /^cluster_state:fail/m });
		$id = begin_job($node, hash_sql($holes, '#{k}', exclude => q('{k}'), @bare));
		until_state($node, $id, 'retrying');
		like(job($node, $id)->{last_error}, qr/CLUSTERDOWN|no node of the Redis Cluster has the slots/, 'the view says why');
		give_back($hole, $second);
	});
	done_ok($node, $id, 2000, 'all is written when it has one again');
	is_deeply([ $bare->values_of(map { "${at_second}h$_" } 2, 22, 42, 62, 82) ], [ 1902, 1922, 1942, 1962, 1982 ], 'for each key the last row');
	is($bare->dbsize, 1905, 'all keys are there');
	$bare->flush;
};

subtest 'a slot without an owner, and a cluster that goes on' => sub {
	full_coverage('no');
	my ($id, $hopeless);
	without_owner($hole, sub {
		$id = begin_job($node, hash_sql($holes, '#{k}', exclude => q('{k}'), @bare));
		$hopeless = begin_job($node, hash_sql("SELECT 'x' || i AS k, i AS v FROM generate_series(1, 5) AS i", "$at_second#{k}", retry_timeout => q{'1 s'}, @bare));
		poll_until($node, "SELECT rows_written = 1900 FROM redis_export_progress WHERE job = $id");
		my $row = job($node, $id);
		is("$row->{state} $row->{rows_failed}", 'retrying 0', 'all others are written, and these wait');
		like($row->{last_error}, qr/CLUSTERDOWN Hash slot not served|no node of the Redis Cluster has the slots/, 'the view says why');

		$node->safe_psql('postgres', "SELECT redis_export_wait($hopeless, '60 s')");
		$row = job($node, $hopeless);
		is("$row->{state} $row->{rows_read} $row->{rows_written} $row->{rows_in_doubt}", 'failed 0 0 0', 'if it has none for longer than retry_timeout, the job fails');
		like($row->{last_error}, qr/^gave up after no row was acknowledged for \d\.\d seconds: .*(?:slot)/, 'and says so');
		give_back($hole, $second);
	});
	done_ok($node, $id, 2000, 'all is written when it has one again');
	is_deeply([ $bare->values_of(map { "${at_second}h$_" } 2, 22, 42, 62, 82) ], [ 1902, 1922, 1942, 1962, 1982 ], 'for each key the last row');
	full_coverage('yes');
	$bare->flush;
};

# ---- Nodes come and go -----------------------------------------------------------------------------------------------

# One row of four is in a slot that goes there and back. The node that goes keeps its connection, and knows of no other node and no
# slot any more: it is not to be asked who has which.
subtest 'a node is added, and taken out again' => sub {
	my $slot = slot_of($at_first);
	my $id = begin_job($node, hash_sql("SELECT CASE WHEN i % 4 = 0 THEN '$at_first' ELSE 'k:' END || i AS k, i AS v FROM generate_series(1, 4000) AS i",
			'#{k}', exclude => q('{k}'), batch => 50, rate => 500, retry_timeout => q{'10 s'}, @bare));
	until_written($node, $id, 200);
	my $new = $bare->add;
	$bare->move($first, $new, $slot)->until_ok;
	wait_for('it has rows', sub { written_at($id, $new) > 0 });
	is(job($node, $id)->{nodes}, 4, 'the view shows four nodes');
	is(nodes_of($node, $id)->{ $new->port }{slots}, 1, 'and its slot');
	$bare->move($new, $first, $slot)->until_ok;
	wait_for('the job knows', sub { nodes_of($node, $id)->{ $new->port }{slots} == 0 });
	$bare->forget($new);
	RedisExport::Raw->new($new)->command('CLUSTER', 'RESET');
	my $before = job($node, $id)->{rows_written};
	is($bare->raw($_)->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes') > 0, 1, 'connections are lost, so that the map is asked for') for $first, $second, $third;
	until_written($node, $id, $before + 300);
	is(job($node, $id)->{finished_at}, undef, 'all that was while it ran');
	done_ok($node, $id, 4000);
	is($bare->dbsize, 4000, 'all keys are there');
	is_deeply([ $bare->values_of(map { "$at_first$_" } map { $_ * 4 } 1 .. 1000) ], [ map { $_ * 4 } 1 .. 1000 ], 'also those that moved');
	$new->stop;
	$bare->flush;
};

subtest 'connections are lost again and again' => sub {
	my $id = begin_job($node, hash_sql('SELECT i AS id, i AS v FROM generate_series(1, 100000) AS i', 'k:#{id}', exclude => q('{id}'), batch => 50, rate => 1000, @bare));
	until_written($node, $id, 300);
	my $pid = job($node, $id)->{pid};
	my $open = sub { return scalar(my @files = glob "/proc/$pid/fd/*") };
	my ($before, $most) = ($open->(), 0);
	for (1 .. 10)
	{
		$bare->raw($_)->command('CLIENT', 'KILL', 'TYPE', 'normal') for $bare->nodes;
		until_written($node, $id, job($node, $id)->{rows_written} + 100);
		$most = $open->() if $open->() > $most;
	}
	cmp_ok($most, '<=', $before + 6, 'no more files are open than before');
	cmp_ok(job($node, $id)->{reconnects}, '>=', 20, 'it was connected again each time');
	my $clients = () = join("\n", map { $bare->raw($_)->command('CLIENT', 'LIST') } $bare->nodes) =~ /name=redis_export/g;
	cmp_ok($clients, '<=', 4, 'nor has Redis more clients');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $bare, $id, state => 'canceled');
	my $there = $bare->dbsize;
	my $row = job($node, $id);
	ok($there >= $row->{rows_written} && $there <= $row->{rows_written} + $row->{rows_in_doubt}, 'all is there that was written') or diag "$there keys, $row->{rows_written} + $row->{rows_in_doubt}";
	$bare->flush;
};

# ---- Nodes that say what is not true ---------------------------------------------------------------------------------

# Fakes that all tell the same map, that the first has all slots; or, with CONTRARY, each that another has them. Each sub answers
# what is no CLUSTER SLOTS; $fake->{address}[1] is the second's address.
use constant CONTRARY => 'contrary';
my $count = 0;
sub fakes
{
	my ($host, @subs) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $address = sub { return '127.0.0.1:' . slurp_file("$dir/port.$_[0]") };
	my $contrary = defined $host && $host eq CONTRARY;
	my @fakes = map {
		my ($number, $sub) = ($_, $subs[$_]);
		RedisExport::Fake->new(sub {
			my ($fake, $client, @words) = @_;
			my $said = ref $host ? $host->($fake) : $contrary ? '127.0.0.1' : $host;
			my $port = $address->($contrary ? 1 - $number : 0) =~ s/.*://r;
			return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" . (defined $said ? '$' . length($said) . "\r\n$said\r\n" : "\$-1\r\n") . ":$port"
				if $words[0] eq 'CLUSTER';
			return '+OK' if $words[0] eq 'ASKING' || $words[0] eq 'MULTI';
			$fake->{address} = [ map { $address->($_) } 0 .. $#subs ];
			return $sub->(@_);
		});
	} 0 .. $#subs;
	append_to_file("$dir/port.$_", $fakes[$_]->port) for 0 .. $#fakes;
	my @server = servers($fakes[0], 'fake' . ++$count, cluster => 'true');
	return (\@server, @fakes);
}

# Jobs that go in circles until their retry_timeout of a second, at the pace of one that waits longer each time.
subtest 'nodes that send from one to the other' => sub {
	my $to = sub { my ($word, $number) = @_; return sub { return "-$word 1 $_[0]{address}[$number]" } };
	my %circles = (
		'MOVED, and back' => [ '127.0.0.1', $to->('MOVED', 1), $to->('MOVED', 0) ],
		'MOVED, and back, and so say the maps' => [ CONTRARY, $to->('MOVED', 1), $to->('MOVED', 0) ],
		'ASK, and MOVED back' => [ '127.0.0.1', $to->('ASK', 1), $to->('MOVED', 0) ],
		'ASK, and back' => [ '127.0.0.1', $to->('ASK', 1), $to->('ASK', 0) ],
		'MOVED to itself' => [ '127.0.0.1', $to->('MOVED', 0) ],
		'MOVED to where nobody is' => [ '127.0.0.1', sub { return '-MOVED 1 127.0.0.1:1' } ],
		'ASK where nobody is' => [ '127.0.0.1', sub { return '-ASK 1 127.0.0.1:1' } ],
	);
	for my $name (sort keys %circles)
	{
		my ($server, @fakes) = fakes(@{ $circles{$name} });
		my $session = session($node);
		$session->query(q{SET statement_timeout = '20 s'});
		my $id = next_job($node, sub { $session->send(command_sql('SELECT 1 AS id', [ 'SET', 'k', '#{id}' ], retry_timeout => q{'1 s'}, @$server)) });
		$circles{$name} = [ $id, $session, @fakes ];
	}
	for my $name (sort keys %circles)
	{
		my ($id, $session, @fakes) = @{ $circles{$name} };
		my ($out, $error) = $session->wait;
		like($error, qr/ERROR:  gave up after no row was acknowledged for \d+\.\d seconds/, "$name: it gives up");
		unlike($error, qr/option "cluster"/, 'and gives no hint that is of no use');
		my $commands = 0;
		$commands += () = $_->commands('SET') for @fakes;
		cmp_ok($commands, '<', 100, 'it was not always at it');
		ledger_ok($node, $id);
		$_->stop for @fakes;
		$session->quit;
	}
};

# Handed over to another node, a row is still one that must not be repeated, and its answer still says whether it was written.
subtest 'what is known of a row goes with it' => sub {
	my $query = "SELECT i AS id, CASE WHEN i = 1 THEN 'NX' ELSE 'KEEPTTL' END AS o FROM generate_series(1, 2) AS i";
	my @command = ($query, [ 'SET', 'k', '#{id}', '#{o}' ], retry_timeout => q{'3 s'});
	my $ask = sub { return "-ASK 1 $_[0]{address}[1]" };
	my ($server, @fakes) = fakes('127.0.0.1', $ask, sub { return $_[-1] eq 'NX' ? '$-1' : '+OK' });
	like(sql_error($node, command_sql(@command, @$server)), qr/ERROR:  row 1 with key "k" failed: Redis answered nil: the command has NX, and the key exists/,
		'nil is told as what it was before');
	($server, @fakes) = fakes('127.0.0.1', $ask, sub { return CLOSE });
	like(sql_error($node, command_sql(@command, @$server)), qr/Of some rows it is not known whether Redis has carried out their command/,
		'a lost answer is not asked for again');
	is(scalar(() = grep { $_->{words}[-1] eq 'NX' } $fakes[1]->commands('SET')), 1, 'it was sent once');
};

# Each says something odd once, and is sensible then.
subtest 'nodes without a name' => sub {
	my %once = (
		'MOVED, without a host' => sub { return "-MOVED 1 :$_[0]{port}" },
		'MOVED, to a host that is not known' => sub { return "-MOVED 1 ?:$_[0]{port}" },
		'MOVED, to a name' => sub { return "-MOVED 1 localhost:$_[0]{port}" },
		'MOVED, to a long name' => sub { return '-MOVED 1 ' . join('.', ('x' x 60) x 3) . ':6379' },
	);
	for my $what (sort keys %once)
	{
		my ($server, $fake) = fakes('127.0.0.1', sub {
			my ($fake) = @_;
			$fake->{port} = $fake->{address}[0] =~ s/.*://r;
			return $_[2] eq 'EXEC' ? '*2' . "\r\n:0\r\n:1" : '+QUEUED' if $fake->{sensible} || $_[2] eq 'DEL';
			return '-EXECABORT discarded' if $_[2] eq 'EXEC' && ($fake->{sensible} = 1);
			return $once{$what}->($fake);
		});
		like(sql_error($node, hash_sql('SELECT 1 AS id', 'k:#{id}', replace => 'true', retry_timeout => q{'3 s'}, @$server)), qr/^(?:WARNING:[^\n]*\n)*$/, "$what: the row is written");
	}

	for my $host ([ 'not told' => undef ], [ 'empty' => '' ], [ 'a name' => 'localhost' ], [ 'first not known' => sub { return $_[0]{looks}++ ? '127.0.0.1' : '?' } ])
	{
		my ($server, $fake) = fakes($host->[1], sub { return '+OK' });
		is(sql_error($node, command_sql('SELECT 1 AS id', [ 'SET', 'k', '#{id}' ], @$server)) =~ s/WARNING:[^\n]*\n//gr, '', "the map's host is $host->[0]: the row is written");
	}
	my ($server, $fake) = fakes('?', sub { return '+OK' });
	like(sql_error($node, command_sql('SELECT 1 AS id', [ 'SET', 'k', '#{id}' ], retry_timeout => q{'1 s'}, @$server)), qr/ERROR:  gave up after .*slots/, 'a host that is never known: it gives up');
};

# A real node of real names.
subtest 'a node with an address of IPv6, and with a name' => sub {
	my $six = eval { IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) && require IO::Socket::IP && IO::Socket::IP->new(LocalHost => '::1', Listen => 1) };
	plan(skip_all => 'there is no ::1 here') unless $six;
	my $lone = RedisExport::Cluster->new(masters => 1, conf => { bind => '127.0.0.1 ::1' });
	my @lone = servers($lone, 'lone');
	my $redis = ($lone->nodes)[0];
	for my $setting ([ 'cluster-announce-ip' => '::1' ], [ 'cluster-announce-hostname' => 'localhost' ], [ 'cluster-preferred-endpoint-type' => 'hostname' ],
		[ 'cluster-preferred-endpoint-type' => 'unknown-endpoint' ])
	{
		$lone->raw($redis)->command('CONFIG', 'SET', @$setting);
		like($node->safe_psql('postgres', hash_sql('SELECT i AS id FROM generate_series(1, 50) AS i', 'k:#{id}', @lone)), qr/\|done$/, "@$setting: the export is done");
		is(join(' ', map { $_->{host} } values %{ nodes_of($node, job($node)->{job}) }), { '::1' => '::1', localhost => '::1', hostname => 'localhost', 'unknown-endpoint' => '127.0.0.1' }->{ $setting->[1] }, 'as the view shows it');
	}
};

# ---- What was found on the way ---------------------------------------------------------------------------------------

# On another connection WAIT knows of no write, and has nothing to wait for.
subtest 'WAIT over a new connection says nothing' => sub {
	my $fake = RedisExport::Fake->new(sub {
		my ($fake, $client, @words) = @_;
		return $words[0] ne 'WAIT' || $client->{number} > 1 ? ':1' : '-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)';
	});
	my @server = servers($fake, 'unblocked');
	ok(sql_error($node, command_sql('SELECT 1 AS id', [ 'RPUSH', 'l', '#{id}' ], wait_replicas => 1, retry_timeout => q{'1 s'}, @server)), 'the job fails');
	my $row = job($node);
	is("$row->{rows_written} $row->{rows_in_doubt}", '0 1', 'the row is in doubt');
};

# It refuses the first row's expiry, and the third row, and tells when the fourth row has come. Each answer is that of its own
# command all the same.
subtest 'the expiry of what must not be sent twice is refused' => sub {
	my $fake = RedisExport::Fake->new(sub {
		my ($fake, $client, @words) = @_;
		my $what = "$words[0] $words[1]";
		my $reply = $what =~ /^(?:PEXPIRE l:1|RPUSH l:3)$/ && !$fake->{$what}++ ? '-NOREPLICAS Not enough good replicas to write.' : ':1';
		$fake->{held} //= '' if $what eq 'PEXPIRE l:1' && $reply ne ':1';
		return $reply unless defined $fake->{held};
		$fake->{held} .= "$reply\r\n";
		return undef if $what ne 'RPUSH l:4';
		return (delete $fake->{held}) =~ s/\r\n\z//r;
	});
	my @server = servers($fake, 'refusing');
	my $id = begin_job($node, command_sql('SELECT i AS id, pg_sleep(0.2)::text FROM generate_series(1, 6) AS i', [ 'RPUSH', 'l:#{id}', '#{id}' ], ttl => q{'1 hour'}, batch => 1, @server));
	done_ok($node, $id, 6);
	is(join(' ', sort { $a <=> $b } map { $_->{words}[2] } grep { ($_->{reply} // '') =~ /:1\z/ } $fake->commands('RPUSH')), '1 2 3 4 5 6', 'each was carried out once');
	is(scalar(grep { $_->{words}[1] eq 'l:1' && ($_->{reply} // '') eq ':1' } $fake->commands('PEXPIRE')), 1, 'the first has its expiry');
};

# With a replica, Redis writes into its snapshot whose data it is: after a restart it looks like one that took over from itself.
subtest 'a master that comes back with an old snapshot' => sub {
	my $master = RedisExport::Redis->new(modules => 0, conf => { 'repl-diskless-sync-delay' => 0 });
	my $replica = RedisExport::Redis->new(modules => 0, conf => { replicaof => '127.0.0.1 ' . $master->port });
	wait_for('the replica is in step', sub { ($replica->info('master_link_status') // '') eq 'up' });
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(hash_sql('SELECT i AS id FROM generate_series(1, 400) AS i', 'k:#{id}', rate => 200, wait_replicas => 1, batch => 10, servers($master, 'snapshot'))) });
	until_written($node, $id, 20);
	$master->cli('SAVE');
	my $saved = job($node, $id)->{rows_written};
	until_written($node, $id, $saved + 60);
	$master->kill9;
	$replica->freeze;
	$master->start;
	$replica->thaw;
	my ($out, $err) = $session->wait;
	like($out, qr/\|done$/, 'the job goes on');
	cmp_ok($master->cli('DBSIZE'), '<', 400, 'rows are lost');
	is(job($node, $id)->{redis_restarts}, 1, 'which is told: in the view');
	like($err, qr/WARNING:  Redis was restarted after/, 'and by a warning');
	$session->quit;
};

# The last look at Redis, when all rows are written, finds nobody; then its index is asked for.
subtest 'the connection is lost at the very end' => sub {
	my $fake = RedisExport::Fake->new(all => sub {
		my ($fake, $client, @words) = @_;
		return $fake->{written} && !$fake->{cut}++ ? CLOSE : "\$8\r\nrun_id:f" if $words[0] eq 'INFO';
		return "*4\r\n\$8\r\nindexing\r\n\$1\r\n0\r\n\$15\r\npercent_indexed\r\n\$1\r\n1" if $words[0] eq 'FT.INFO';
		$fake->{written} = 1 if $words[0] eq 'HSET';
		return $words[0] eq 'HSET' ? ':1' : '+OK';
	});
	my @server = servers($fake, 'cut');
	is(sql_error($node, hash_sql('SELECT 1 AS id', 'k:#{id}', wait_index => q{'i'}, retry_timeout => q{'3 s'}, @server)) =~ s/WARNING:[^\n]*\n//gr, '', 'the job is done');
	unlike(log_of(), qr/terminated by signal/, 'nothing has crashed');
};

done_testing;
