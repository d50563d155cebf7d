# Redis Cluster: each row goes to the node that has its slot, whatever moves meanwhile, and for each key the last row wins. What
# breaks is in 052_cluster_faults.t.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Cluster;
use RedisExport::Fake;

my $cluster = RedisExport::Cluster->new(modules => 1);
my ($first, $second, $third) = $cluster->nodes;
my $node = new_node($cluster, conf => "redis_export.notice_interval = 0\nmax_worker_processes = 20\n");

# A tag for keys of which this node has the slot.
sub tag_at
{
	my ($at, $from) = @_;
	my $number = $from // 0;
	$number++ until $cluster->holder("{$number}") == $at;
	return "{$number}";
}

sub reset_errors { $cluster->raw($_)->command('CONFIG', 'RESETSTAT') for $cluster->nodes; return }
sub all_errors { my ($name) = @_; my $sum = 0; $sum += errors($_, $name) for $cluster->nodes; return $sum }

# How many keys of a node do not hold what the expression of Lua says, of the key k.
sub wrong_values
{
	my ($at, $expression) = @_;
	return $cluster->raw($at)->command('EVAL', "local wrong = 0 for _, k in ipairs(redis.call('KEYS', '*')) do if redis.call('HGET', k, 'v') ~= $expression then wrong = wrong + 1 end end return wrong", 0);
}

# ---- Where keys go ---------------------------------------------------------------------------------------------------

# Had we reckoned another slot than Redis, it would have said MOVED, and all would be well in the end.
subtest 'the slot of a key' => sub {
	srand 4711;
	my @keys = ('', '{', '}', '{}', '{}a', '{}{a}', '{a}', 'x{a}y', '{a}{b}', '{{a}}', '{{a}', 'a}b{c', 'a{b', '}{', '}{a}', "{\0}", "\0", "{\xff\xfe}", "{ }", "\r\n{\n}\r\n", '{' . 'x' x 300 . '}');
	push @keys, join '', map { chr(rand() < 0.2 ? (123, 125)[ rand 2 ] : rand 256) } 1 .. 1 + rand 12 while @keys < 3000;
	my %keys = map { $_ => 1 } @keys;
	@keys = sort keys %keys;
	my $raw = $cluster->raw($first);
	is_deeply([ map { slot_of($_) } @keys ], [ map { $raw->command('CLUSTER', 'KEYSLOT', $_) } @keys ], 'as Redis reckons it');

	reset_errors();
	my $list = join ',', map { unpack 'H*', $_ } @keys;
	$node->safe_psql('postgres', "CREATE TABLE keys AS SELECT decode(k, 'hex') AS k FROM unnest(string_to_array('$list', ',')) AS k");
	my $out = $node->safe_psql('postgres', hash_sql('SELECT k, 1 AS v FROM keys', '#{k}', exclude => q('{k}')));
	like($out, qr/\|done$/, 'the export is done');
	is(all_errors('MOVED'), 0, 'no node had to say that a key is elsewhere');
	is_deeply([ sort $cluster->all_keys ], \@keys, 'all keys are there');
	$cluster->flush;
};

subtest '20,000 rows' => sub {
	reset_errors();
	my $out = $node->safe_psql('postgres', hash_sql('SELECT i AS id, i AS v FROM generate_series(1, 20000) AS i', 'k:#{id}', exclude => q('{id}')));
	like($out, qr/\|done$/, 'the export is done');
	is($cluster->dbsize, 20000, 'all keys are there');
	is(all_errors('MOVED'), 0, 'each was sent to its node');
	is(wrong_values($_, 'string.sub(k, 3)'), 0, 'with their values') for $cluster->masters;

	my $row = job($node);
	is($row->{nodes}, 3, 'the view shows three nodes');
	my $nodes = nodes_of($node, $row->{job});
	is_deeply([ sort keys %$nodes ], [ sort map { $_->port } $cluster->nodes ], 'redis_export_nodes shows the same three');
	for my $redis ($cluster->nodes)
	{
		my $shown = $nodes->{ $redis->port };
		is($shown->{rows_written}, $cluster->raw($redis)->command('DBSIZE'), 'its rows');
		is($shown->{slots}, scalar(my @slots = $cluster->slots_of($redis)), 'its slots');
		is("$shown->{host} $shown->{rows_with_redis}", '127.0.0.1 0', 'and that nothing is left to come');
		cmp_ok($shown->{bytes_sent}, '>', 0, 'bytes were sent');
	}
	is($nodes->{ $first->port }{bytes_sent} + $nodes->{ $second->port }{bytes_sent} + $nodes->{ $third->port }{bytes_sent},
		$row->{bytes_sent}, 'they are all that were');

	my $seen = $node->safe_psql('postgres', "CREATE ROLE stranger; SET ROLE stranger; SELECT count(*), count(host), count(port), count(last_error), sum(rows_written) FROM redis_export_nodes WHERE job = $row->{job}");
	is($seen, '3|0|0|0|20000', 'other roles see no host');
	$cluster->flush;
};

subtest 'documents, and words with arrays' => sub {
	like($node->safe_psql('postgres', export_sql(q{SELECT i AS id, 'x' || i AS name FROM generate_series(1, 2000) AS i}, value => q{'*'})), qr/\|done$/, 'documents');
	is($cluster->dbsize, 2000, 'all are there');
	is($cluster->raw($cluster->holder("k:$_"))->command('JSON.GET', "k:$_"), qq({"id":$_,"name":"x$_"}), 'with what is in them') for 1, 1000, 2000;
	$cluster->flush;

	# the key is not where the command begins, nor where its words do
	reset_errors();
	$node->safe_psql('postgres', command_sql('SELECT ARRAY[i, i + 1] AS many, i AS id FROM generate_series(1, 500) AS i', [ 'SADD', 's:#{id}', '#{many}' ]));
	$node->safe_psql('postgres', command_sql('SELECT ARRAY[i, i + 1] AS many, i AS id FROM generate_series(1, 500) AS i',
			[ 'EVAL', q{return redis.call('SET', KEYS[1], ARGV[2])}, 1, 'e:#{id}', '#{many}' ]));
	$node->safe_psql('postgres', command_sql('SELECT i AS id FROM generate_series(1, 500) AS i', [ 'XGROUP', 'CREATE', 'x:#{id}', 'g', '0', 'MKSTREAM' ]));
	$node->safe_psql('postgres', command_sql(q{SELECT ARRAY['a:' || i, 'v' || i] AS pair FROM generate_series(1, 500) AS i}, [ 'SET', '#{pair}' ]));
	is($cluster->dbsize, 2000, 'all commands arrived');
	is(all_errors('MOVED'), 0, 'at their nodes');
	is($cluster->raw($cluster->holder('e:7'))->command('GET', 'e:7'), 8, 'with their words');
	is($cluster->raw($cluster->holder('a:7'))->command('GET', 'a:7'), 'v7', 'also when the key comes out of an array');
	$cluster->flush;
};

subtest 'commands with no key, and with several' => sub {
	for my $words ([ 'PUBLISH', 'channel', '#{id}' ], [ 'EVAL', 'return 1', 0, '#{id}' ], ['PING'])
	{
		like($node->safe_psql('postgres', command_sql('SELECT i AS id FROM generate_series(1, 300) AS i', $words)), qr/\|done$/, "$words->[0] goes anywhere");
		is(job($node)->{rows_written}, 300, 'and is answered');
	}

	my $out = $node->safe_psql('postgres', command_sql(q{SELECT CASE WHEN i = 3 THEN 'b' ELSE '{a}2' END AS other FROM generate_series(1, 5) AS i},
			[ 'MSET', '{a}1', 'x', '#{other}', 'y' ], on_error => q{'ignore'}));
	my $row = job($node);
	is("$row->{state} $row->{rows_written} $row->{rows_failed}", 'done 4 1', 'keys of several slots: that row fails, and no other');
	like($node->safe_psql('postgres', "SELECT row_number, key, message FROM redis_export_failures($row->{job})"), qr/^3\|\{a\}1\|Redis answered: CROSSSLOT /, 'and is named');
	$cluster->flush;
};

# ---- The option ------------------------------------------------------------------------------------------------------

subtest 'the option' => sub {
	my $plain = RedisExport::Redis->new(modules => 0);
	my $rows = hash_sql('SELECT i AS id FROM generate_series(1, 30) AS i', 'o:#{id}');
	my $with = sub { my ($server) = @_; return $rows =~ s/\)\z/, server => '$server')/r };

	add_server($node, $cluster, name => 'told', cluster => 'true');
	is($node->safe_psql('postgres', $with->('told')) =~ s/.*\|//r, 'done', 'true, and it is one');
	is($cluster->dbsize, 30, 'all keys are there');

	add_server($node, $cluster, name => 'denied', cluster => 'false');
	like(sql_error($node, $with->('denied'), verbose => 1), qr/ERROR:  0A000: Redis answered: MOVED \d+ .*\nHINT: .*"cluster"/s, 'false, and it is one: an error that names the option');
	ledger_ok($node);

	add_server($node, $plain, name => 'untrue', cluster => 'true');
	like(sql_error($node, $with->('untrue')), qr/ERROR:  could not ask for the nodes of the cluster: Redis answered: ERR This instance has cluster support disabled/, 'true, and it is none: an error');
	like($node->safe_psql('postgres', 'SELECT rows_read, nodes FROM redis_export_progress ORDER BY job DESC LIMIT 1'), qr/^0\|/, 'before any row was read');

	add_server($node, $plain, name => 'plain');
	is($node->safe_psql('postgres', $with->('plain')) =~ s/.*\|//r, 'done', 'not told, and it is none');
	is(job($node)->{nodes}, 1, 'one node');
	is_deeply([ map { "$_->{port} $_->{rows_written}" } values %{ nodes_of($node, job($node)->{job}) } ], [ $plain->port . ' 30' ], 'which is shown, too');

	like(sql_error($node, q{CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (cluster 'maybe')}), qr/ERROR:  .*"cluster"/, 'neither true nor false is refused');
	add_server($node, $cluster, name => 'numbered', db => 1);
	like(sql_error($node, $with->('numbered')), qr/ERROR: .*SELECT is not allowed in cluster mode/, 'a cluster has no databases');

	# users with less rights
	for my $redis ($cluster->nodes)
	{
		$cluster->raw($redis)->command('ACL', 'SETUSER', 'silent', 'on', '>pw', '~*', '+@all', '-info');
		$cluster->raw($redis)->command('ACL', 'SETUSER', 'mapless', 'on', '>pw', '~*', '+@all', '-cluster');
		$cluster->raw($redis)->command('ACL', 'SETUSER', 'few', 'on', '>pw', '~o:*', '+hset', '+cluster|slots', '+asking');
	}
	my $as = sub {
		my ($server, $user, %options) = @_;
		add_server($node, $cluster, name => $server, %options);
		$node->safe_psql('postgres', "CREATE USER MAPPING FOR CURRENT_USER SERVER $server OPTIONS (username '$user', password 'pw')");
		return $with->($server);
	};
	like(sql_error($node, $as->('silent', 'silent')), qr/ERROR:  Redis answered: MOVED .*\nHINT: .*"cluster"/s, 'who must not INFO does not find out');
	is($node->safe_psql('postgres', $as->('silent_told', 'silent', cluster => 'true')) =~ s/.*\|//r, 'done', 'but can be told');
	like(sql_error($node, $as->('mapless', 'mapless')), qr/ERROR:  could not ask for the nodes of the cluster: Redis answered: NOPERM .*cluster/, 'who must not ask for the map has an error');
	is($node->safe_psql('postgres', $as->('few', 'few', cluster => 'true')) =~ s/.*\|//r, 'done', 'HSET and CLUSTER SLOTS are enough');
	$cluster->flush;
};

# ---- Slots on their way ----------------------------------------------------------------------------------------------

# Seven exports at once, of keys in six slots, each key many times, while these slots go from node to node. They are slow, so that
# the slots have time; and have little on its way, so that no row that was sent on comes when its slot has gone elsewhere and back.
subtest 'slots move while rows come' => sub {
	my @tags = map { my $tag = tag_at($_); ($tag, tag_at($_, $tag =~ s/\D//gr + 1)) } $cluster->nodes;
	my ($rows, $keys) = (1500, 60);
	my $array = join ', ', map { "'$_'" } @tags;
	my $source = "FROM (SELECT i, i % $keys AS id, (ARRAY[$array])[i % 6 + 1] AS t FROM generate_series(0, $rows - 1) AS i) AS r";
	my %common = (rate => 300, batch => 10);
	reset_errors();
	my %jobs = (
		hash => hash_sql("SELECT id, t, i $source", 'h#{t}#{id}', exclude => q('{id,t}'), %common),
		replace => hash_sql("SELECT id, t, i, CASE WHEN i / $keys % 2 = 0 THEN i END AS even, CASE WHEN i / $keys % 2 = 1 THEN i END AS odd $source",
			'r#{t}#{id}', exclude => q('{id,t}'), replace => 'true', %common),
		ttl => hash_sql("SELECT id, t, i $source", 't#{t}#{id}', exclude => q('{id,t}'), ttl => q{'1 hour'}, %common),
		ttl_column => hash_sql("SELECT id, t, i, i + 1000 AS s $source", 'c#{t}#{id}', exclude => q('{id,t,s}'), ttl_column => q{'s'}, %common),
		list => command_sql("SELECT id, t, i $source", [ 'RPUSH', 'l#{t}#{id}', '#{i}' ], %common),
		list_ttl => command_sql("SELECT id, t, i $source", [ 'RPUSH', 'm#{t}#{id}', '#{i}' ], ttl => q{'1 hour'}, %common),
		json => export_sql("SELECT id, t, i $source", key_template => q{'j#{t}#{id}'}, value => q{'*'}, %common),
	);
	$_ = begin_job($node, $_) for values %jobs;

	my $session = session($node);
	my $list = join ', ', values %jobs;
	my %at = map { $_ => $cluster->holder($_) } @tags;
	my $more = sub {
		my $goal = $session->query("SELECT sum(rows_written) FROM redis_export_progress WHERE job IN ($list)") + 200;
		session_poll($session, "SELECT sum(rows_written) >= $goal OR bool_and(finished_at IS NOT NULL) FROM redis_export_progress WHERE job IN ($list)");
	};
	my $moves = 0;
	$more->();
	while ($session->query("SELECT bool_and(finished_at IS NULL) FROM redis_export_progress WHERE job IN ($list)") eq 't')
	{
		my $tag = $tags[ $moves++ % 6 ];
		my ($slot, $from) = (slot_of($tag), $at{$tag});
		my ($to) = grep { $_ != $from } $moves % 2 ? $cluster->nodes : reverse $cluster->nodes;
		$cluster->begin_move($slot, $from, $to);
		my $some = $cluster->raw($from)->command('CLUSTER', 'GETKEYSINSLOT', $slot, 40);
		$cluster->move_keys($slot, $from, $to, @$some) if @$some;
		$more->();
		$cluster->move_keys($slot, $from, $to);
		$cluster->end_move($slot, $from, $to);
		$at{$tag} = $to;
	}
	$session->quit;
	cmp_ok($moves, '>=', 5, 'slots have moved meanwhile') or diag $moves;
	cmp_ok(all_errors('ASK'), '>', 0, 'rows met slots on their way');
	cmp_ok(all_errors('MOVED'), '>', 0, 'and slots that had gone');

	my %row = map { $_ => done_ok($node, $jobs{$_}, $rows, "$_: all rows are written") } sort keys %jobs;
	$cluster->until_ok;
	is($cluster->dbsize, 7 * $keys, 'each key is there once');
	my %wrong = map { $_ => [] } keys %jobs;
	for my $id (0 .. $keys - 1)
	{
		my $tag = $tags[ $id % 6 ];
		my $last = $rows - $keys + $id;
		my $raw = $cluster->raw($at{$tag});
		my $fields = sub { return join ' ', @{ $raw->command('HGETALL', "$_[0]$tag$id") } };
		my $lives = sub { my $left = $raw->command('PTTL', "$_[0]$tag$id"); return $left <= $_[1] * 1000 && $left > ($_[1] - 60) * 1000 };
		push @{ $wrong{hash} }, $id if $fields->('h') ne "i $last";
		push @{ $wrong{replace} }, $id if $fields->('r') ne join ' ', 'i', $last, (int($last / $keys) % 2 ? 'odd' : 'even'), $last;
		push @{ $wrong{ttl} }, $id if $fields->('t') ne "i $last" || !$lives->('t', 3600);
		push @{ $wrong{ttl_column} }, $id if $fields->('c') ne "i $last" || !$lives->('c', $last + 1000);
		push @{ $wrong{json} }, $id if $raw->command('JSON.GET', "j$tag$id") ne qq({"id":$id,"t":"$tag","i":$last});
		my $pushed = sub { return join ' ', sort { $a <=> $b } @{ $raw->command('LRANGE', "$_[0]$tag$id", 0, -1) } };
		my $all = join ' ', map { $_ * $keys + $id } 0 .. $rows / $keys - 1;
		push @{ $wrong{list} }, $id if $pushed->('l') ne $all;
		push @{ $wrong{list_ttl} }, $id if $pushed->('m') ne $all || !$lives->('m', 3600);
	}
	is_deeply($wrong{hash}, [], 'hashes: the last row of each key has won');
	is_deeply($wrong{replace}, [], 'with replace, and nothing is left of the rows before');
	is_deeply($wrong{ttl}, [], 'with an expiry, which is there');
	is_deeply($wrong{ttl_column}, [], 'with an expiry for each row, that of the last');
	is_deeply($wrong{list}, [], 'what must not be sent twice is there once');
	is_deeply($wrong{list_ttl}, [], 'with an expiry, too');
	is_deeply($wrong{json}, [], 'documents');
	is($row{$_}{reconnects} + $row{$_}{redis_restarts}, 0, "$_: no connection was lost") for sort keys %row;
	$cluster->flush;
};

subtest 'redis-cli moves slots' => sub {
	my $id = begin_job($node, hash_sql('SELECT i AS id, i AS v FROM generate_series(1, 4000) AS i', 'k:#{id}', exclude => q('{id}'), rate => 1000));
	until_written($node, $id, 100);
	my ($out, $err) = run_command([ 'redis-cli', '--cluster', 'reshard', $cluster->address($first), '--cluster-from', $cluster->id($second),
		'--cluster-to', $cluster->id($third), '--cluster-slots', 150, '--cluster-yes' ]);
	my $row = job($node, $id);
	is($row->{finished_at}, undef, 'it is done before the rows are');
	like($out, qr/Moving slot/, 'and has moved some') or diag "$out$err";
	done_ok($node, $id, 4000);
	$cluster->until_ok;
	is($cluster->dbsize, 4000, 'all keys are there');
	is(wrong_values($_, 'string.sub(k, 3)'), 0, 'with their values') for $cluster->masters;
	my $nodes = nodes_of($node, $id);
	is($nodes->{ $_->port }{slots}, scalar(my @slots = $cluster->slots_of($_)), 'the view shows who has them now') for $cluster->nodes;
	is($nodes->{ $first->port }{rows_written} + $nodes->{ $second->port }{rows_written} + $nodes->{ $third->port }{rows_written}, 4000, 'and who was sent how many rows');
	$cluster->flush;
};

# The key goes between its write and its expiry; a later row of the same key goes after it at once.
subtest 'a key moves before its expiry is set' => sub {
	my $tag = tag_at($first);
	my $slot = slot_of($tag);
	my $id = begin_job($node, hash_sql('SELECT CASE WHEN i IN (1, 30) THEN 0 ELSE i END AS id, i AS v FROM generate_series(1, 30) AS i',
			"$tag#{id}", exclude => q('{id}'), ttl => q{'1 hour'}, rate => 20));
	wait_for('the first row is there', sub { $cluster->raw($first)->command('EXISTS', "${tag}0") });
	$cluster->begin_move($slot, $first, $second);
	$cluster->move_keys($slot, $first, $second, "${tag}0");
	done_ok($node, $id, 30);
	is($cluster->raw($first)->command('CLUSTER', 'COUNTKEYSINSLOT', $slot) + $cluster->raw($second)->command('CLUSTER', 'COUNTKEYSINSLOT', $slot), 29, 'each key is there once');
	$cluster->move_keys($slot, $first, $second);
	$cluster->end_move($slot, $first, $second)->until_ok;
	my $raw = $cluster->raw($second);
	is($raw->command('HGET', "${tag}0", 'v'), 30, 'the later row has won');
	is(scalar(grep { my $left = $raw->command('PTTL', "$tag$_"); $left < 3_500_000 || $left > 3_600_000 } 0, 2 .. 29), 0, 'and all have their expiry');
	$cluster->flush;
};

subtest 'some of several keys have gone' => sub {
	my $tag = tag_at($first);
	my $slot = slot_of($tag);
	$cluster->raw($first)->command('SET', "$tag$_", 'old') for 'a', 'b';
	$cluster->begin_move($slot, $first, $third);
	$cluster->move_keys($slot, $first, $third, "${tag}a");
	my $id = begin_job($node, command_sql('SELECT i AS v FROM generate_series(1, 3) AS i', [ 'MSET', "${tag}a", '#{v}', "${tag}b", '#{v}' ]));
	until_state($node, $id, 'retrying');
	like(job($node, $id)->{last_error}, qr/Redis answered: TRYAGAIN/, 'Redis says that this cannot be done now');
	$cluster->move_keys($slot, $first, $third);
	done_ok($node, $id, 3, 'it is done when it can be');
	is_deeply([ map { $cluster->raw($_)->command('DBSIZE') } $first, $third ], [ 0, 2 ], 'where the slot goes');
	$cluster->end_move($slot, $first, $third)->until_ok;
	is_deeply($cluster->raw($third)->command('MGET', "${tag}a", "${tag}b"), [ 3, 3 ], 'in order');
	$cluster->flush;
};

# ---- Nodes that do as they are told ----------------------------------------------------------------------------------

# Two fakes that share the slots, the lower half with the first, until another border is set. Each sub answers what is no CLUSTER
# SLOTS.
my $count = 0;
sub two_fakes
{
	my (@subs) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $word = sub { return '$' . length($_[0]) . "\r\n$_[0]\r\n" };
	my $port = sub { return slurp_file("$dir/port.$_[0]") };
	my $range = sub { my ($from, $to, $which) = @_; return "*3\r\n:$from\r\n:$to\r\n*2\r\n" . $word->('127.0.0.1') . ':' . $port->($which) };
	my @fakes = map {
		my ($sub, $other) = ($subs[$_], 1 - $_);
		RedisExport::Fake->new(sub {
			my ($fake, $client, @words) = @_;
			my $border = -e "$dir/border" ? (split /\n/, slurp_file("$dir/border"))[-1] : 8192;
			return "*2\r\n" . $range->(0, $border - 1, 0) . "\r\n" . $range->($border, 16383, 1) if $words[0] eq 'CLUSTER';
			return '+OK' if $words[0] eq 'ASKING';
			$fake->{other} = '127.0.0.1:' . $port->($other);
			$fake->{shared} = $dir;
			return $sub->(@_);
		});
	} 0, 1;
	append_to_file("$dir/port.$_", $fakes[$_]->port) for 0, 1;
	add_server($node, $fakes[0], name => 'fake' . ++$count, cluster => 'true');
	return @fakes;
}

sub answer_now { my ($client, $reply) = @_; RedisExport::Fake::write_all($client->{socket}, "$reply\r\n"); return undef }
sub set_border { my ($fake, $border) = @_; append_to_file("$fake->{shared}/border", "$border\n"); return }
sub share { my ($fake, $name) = @_; append_to_file("$fake->{shared}/$name", 1); return }
sub shared { my ($fake, $name) = @_; my $end = time + 10; sleep 0.02 until -e "$fake->{shared}/$name" || time > $end; return }
sub said { my ($fake) = @_; return join ' ', map { "$_->{words}[2]$_->{reply}" } $fake->commands('SET') }

my $lower = '{' . (grep { slot_of($_) < 8192 } 1 .. 99)[0] . '}';
my $lower_slot = slot_of($lower);

# The first says of the key's first row where it is, and takes its time with the second; the other refuses the first one for now.
subtest 'a row that was sent on is refused there' => sub {
	my ($from, $to) = two_fakes(
		sub {
			my ($fake, $client, @words) = @_;
			return answer_now($client, "-ASK $lower_slot $fake->{other}") if $words[2] eq 'a';
			shared($fake, 'refused');
			sleep 1;
			return "-ASK $lower_slot $fake->{other}";
		},
		sub {
			my ($fake) = @_;
			return '+OK' if $fake->{refused}++;
			share($fake, 'refused');
			return '-OOM no room';
		});
	like($node->safe_psql('postgres', command_sql(q{VALUES ('a'), ('b')}, [ 'SET', "${lower}k", '#{column1}' ], server => "'fake$count'")), qr/\|done$/, 'it is done');
	like(said($to), qr/b\+OK$/, 'the later row is written last');
};

# An earlier row of the slot has to be sent again, and with it one that was written, whose key has gone since.
subtest 'a row that was written has to be sent on' => sub {
	my ($from, $to) = two_fakes(
		sub {
			my ($fake, $client, @words) = @_;
			return $fake->{first}++ ? '+OK' : '-OOM no room' if $words[2] eq 'z';
			return $words[2] eq 'a' && !$fake->{second}++ ? '+OK' : "-ASK $lower_slot $fake->{other}";
		},
		sub { return '+OK' });
	like($node->safe_psql('postgres', command_sql(q{VALUES ('j', 'z'), ('k', 'a'), ('k', 'b')}, [ 'SET', "$lower#{column1}", '#{column2}' ], server => "'fake$count'")), qr/\|done$/, 'it is done');
	like(said($to), qr/b\+OK$/, 'the later row is written last');
};

# The key has moved when its expiry comes, and the node that has it by then is lost at that moment.
subtest 'an expiry that was sent on is lost on its way' => sub {
	my ($from, $to) = two_fakes(
		sub {
			my ($fake, $client, @words) = @_;
			return $words[0] eq 'SET' ? '+OK' : "-ASK $lower_slot $fake->{other}";
		},
		sub { my ($fake) = @_; return $fake->{lost}++ ? ':1' : RedisExport::Fake::CLOSE });
	like($node->safe_psql('postgres', command_sql(q{VALUES ('a')}, [ 'SET', "${lower}k", '#{column1}' ], server => "'fake$count'", ttl => q{'1 hour'})), qr/\|done$/, 'it is done');
	is(scalar(() = $to->commands('PEXPIRE')), 2, 'the expiry is sent once more');
	is(scalar(() = $to->commands('SET')), 0, 'the row is not');
};

subtest 'an expiry that was sent on is refused there' => sub {
	my ($from, $to) = two_fakes(
		sub {
			my ($fake, $client, @words) = @_;
			return $words[0] eq 'PEXPIRE' ? "-ASK $lower_slot $fake->{other}" : '+OK';
		},
		sub { my ($fake) = @_; return $fake->{refused}++ ? ':1' : '-OOM no room' });
	my $id = begin_job($node, command_sql(q{VALUES ('a')}, [ 'SET', "${lower}k", '#{column1}' ], ttl => q{'1 hour'}, server => "'fake$count'"));
	done_ok($node, $id, 1);
	is(scalar($to->commands('PEXPIRE')), 2, 'it is asked for once more');
};

# A batch all of whose rows go away, only their expiry to be set, while the batch behind it has to be sent again. The slot comes
# back while the first has as many rows as it takes at a time, and has answered none of them.
subtest 'a row that waits for its expiry goes and comes back' => sub {
	my $higher = '{' . (grep { slot_of($_) > $lower_slot && slot_of($_) < 8192 } 1 .. 999)[0] . '}';
	my $slot = slot_of($higher);
	my ($from, $to) = two_fakes(
		sub {
			my ($fake, $client, @words) = @_;
			my $what = "$words[0] $words[1]";
			return ':1' if $fake->{open};
			return undef if $what eq "RPUSH $higher";
			if ($what eq "PEXPIRE $higher")
			{
				$fake->{held} = 0;
				set_border($fake, $slot);
				return "-OOM no room\r\n" x 3 . "-MOVED $slot $fake->{other}";
			}
			return undef if ++$fake->{held} < 3;
			return ':1' unless -e "$fake->{shared}/border";
			share($fake, 'full');
			shared($fake, 'back');
			sleep 1;
			$fake->{open} = 1;
			return ":1\r\n:1\r\n:1";
		},
		sub {
			my ($fake) = @_;
			shared($fake, 'full');
			sleep 0.5;
			set_border($fake, 8192);
			share($fake, 'back');
			return "-MOVED $slot $fake->{other}";
		});
	$node->safe_psql('postgres', "ALTER SERVER fake$count OPTIONS (ADD timeout '10')");
	my $rows = join ', ', "('$higher', 0)", map { "('$lower', $_)" } 1 .. 9;
	my $id = begin_job($node, command_sql("VALUES $rows", [ 'RPUSH', '#{column1}', '#{column2}' ], ttl => q{'1 hour'}, batch => 1, server => "'fake$count'"));
	done_ok($node, $id, 10);
	is(scalar($to->commands('PEXPIRE')), 1, 'it was gone');
	is(scalar(grep { $_->{words}[1] eq $higher && ($_->{reply} // '') eq ':1' } $from->commands('PEXPIRE')), 1, 'its expiry is set when it is back');
	is(join(' ', map { $_->{words}[2] } $from->commands('RPUSH')), '0 1 2 3 1 2 3 4 5 6 7 8 9', 'what was not carried out is sent again, in order');
};

# ---- What is left behind ---------------------------------------------------------------------------------------------

subtest 'many exports in one session' => sub {
	my $session = session($node);
	my $statement = hash_sql('SELECT i AS id FROM generate_series(1, 20) AS i', 'm:#{id}');
	my $open = sub { return scalar(grep { (readlink // '') =~ /^socket:/ } glob '/proc/' . $session->pid . '/fd/*') };
	my $memory = q{SELECT sum(total_bytes) FROM pg_backend_memory_contexts};
	$session->query($statement) for 1 .. 3;
	my @before = ($open->(), $session->query($memory));
	$session->query($statement) for 1 .. 15;
	is($open->(), $before[0], 'no connection is left open in it');
	cmp_ok($session->query($memory), '<', $before[1] + 500_000, 'its memory does not grow');
	no_worker_left($node);
	is(scalar(map { grep { /name=redis_export/ } split /\n/, $cluster->raw($_)->command('CLIENT', 'LIST') } $cluster->nodes), 0, 'nor a connection to a node');
	$session->quit;
};

done_testing;
