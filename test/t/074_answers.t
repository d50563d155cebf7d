# Error replies that no rule knows, of proxies and managed services above all: what is one row's fault, and what is the state of the server? And
# what else answers must not do to a job: a command that Redis lacks, a key that the user may not touch, data that is flushed meanwhile.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Cluster;
use RedisExport::Fake;
use RedisExport::Jobs qw(next_job until_written);
use RedisExport::Named;
use RedisExport::Rows;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => 'redis_export.notice_interval = 0');
my $session = session($node);

# A fake with this sub, for all commands if that is said; and the server's name as SQL.
my $fakes = 0;
sub fake
{
	my ($sub, $all) = @_;
	my $fake = RedisExport::Fake->new(($all ? 'all' : 'data') => $sub);
	my $name = 'fake_' . ++$fakes;
	add_server($node, $fake, name => $name);
	return ($fake, "'$name'");
}

# Which rows a fake has been sent, in order.
sub sent
{
	my ($fake, $name) = @_;
	return map { $_->{words}[1] =~ s/^k://r } $fake->commands($name // 'JSON.SET');
}

sub failures
{
	return $node->safe_psql('postgres',
		'SELECT row_number, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress))');
}

for my $text ('upstream failure', 'no upstream host', 'ERR Connection timed out', 'ERR the backend is being switched')
{
	subtest "$text, for a second" => sub {
		my ($fake, $server) = fake(sub {
			my ($fake, $client, $name, $key) = @_;
			$fake->{since} //= time if $key eq 'k:300';
			return "-$text" if defined $fake->{since} && time - $fake->{since} < 1;
			return '+OK';
		});
		my ($out, $err) = $session->send(rows(2000, server => $server, on_error => q{'ignore'}, batch => 100))->wait;
		job_ended($node, 'done', rows_written => 2000, rows_failed => 0, reconnects => 0);
		like($err, qr/tries again: Redis answered: $text$/m, 'the caller is told');
		my %last = map { $_->{words}[1] => $_->{reply} } $fake->commands('JSON.SET');
		is(scalar(grep { $_ eq '+OK' } values %last), 2000, 'the last word on each row is that it is written');
	};
}

subtest 'a quota that is used up' => sub {
	for my $on_error ('stop', 'ignore')
	{
		for my $text ('ERR max daily request limit exceeded. Limit: 10000, Usage: 10000', 'ERR this plan is at its end (no 4711)')
		{
			my ($fake, $server) = fake(sub { my ($fake, $client, $name, $key) = @_; return $key =~ /(\d+)/ && $1 <= 300 ? '+OK' : "-$text" });
			my $error = sql_error($node, rows(5000, server => $server, on_error => "'$on_error'"), verbose => 1);
			like($error, qr/^ERROR:  (?:53400|38000): Redis answered: \Q$text\E$/m, "$on_error: the job fails with that text");
			like($error, $text =~ /daily/ ? qr/HINT:  It is a limit of the service/ : qr/DETAIL:  \d+ rows in succession got such an answer.*HINT:  The cause seems to be Redis/s, 'and says why');
			my $job = job_ended($node, 'failed', rows_written => 300);
			cmp_ok($job->{rows_failed}, '<', 10, 'and few rows do, if any');
			cmp_ok(scalar(sent($fake)), '<', 2500, 'the rest is not sent in vain');
		}
	}
};

subtest 'one row with an error of its own' => sub {
	my ($fake, $server) = fake(sub { return $_[3] eq 'k:700' ? '-MOD no such color' : '+OK' });
	$session->send(rows(3000, server => $server, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 2999, rows_failed => 1);
	is(failures(), '700|Redis answered: MOD no such color', 'it alone has failed');
	is(scalar(grep { $_ == 700 } sent($fake)), 2, 'after it was asked again, once');
	my @at = map { $_->{at} } grep { $_->{words}[1] eq 'k:700' } $fake->commands('JSON.SET');
	cmp_ok($at[1] - $at[0], '>=', 1.4, 'when a short outage would have been over');

	($fake, $server) = fake(sub { return $_[3] eq 'k:7' ? '-MOD no such color' : '+OK' });
	$session->send(rows(20, server => $server, on_error => q{'ignore'}, retry_timeout => q{'1 s'}))->wait;
	job_ended($node, 'done', rows_written => 19, rows_failed => 1);

	my ($small, $small_server) = fake(sub { return '-MOD no such color' });
	like(sql_error($node, rows(1, server => $small_server)), qr/^ERROR:  row 1 with key "k:1" failed: Redis answered: MOD no such color$/m, 'one row all by itself');
	job_ended($node, 'failed', rows_failed => 1);
};

subtest 'many rows with errors of their own' => sub {
	my ($fake, $server) = fake(sub { return $_[3] =~ /:(\d*[05])$/ ? "-MOD no such color '$1' at $1" : '+OK' });
	$session->send(rows(2500, server => $server, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 2000, rows_failed => 500);
	my @sent = sent($fake);
	cmp_ok(scalar(@sent), '<', 2500 + 2100, 'the window is sent again once, and not for each of them');

	($fake, $server) = fake(sub { return $_[3] =~ /:1\d\d$/ ? '-MOD no such color' : '+OK' });
	$session->send(rows(2500, server => $server, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 2400, rows_failed => 100);

	($fake, $server) = fake(sub { return $_[3] =~ /:(\d*)00$/ ? '-MOD no such ' . 'x' x $1 : '+OK' });
	$session->send(rows(2000, server => $server, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 1980, rows_failed => 20);
	my %times;
	$times{$_}++ for grep { $_ % 100 == 0 } sent($fake);
	cmp_ok(scalar(grep { $_->{words}[1] eq 'k:2000' } $fake->commands('JSON.SET')), '<', 12, 'texts that all differ are looked into for a while only');
};

subtest 'a command that must not be repeated' => sub {
	my $command = q{SELECT job FROM redis_command_export('SELECT i AS id FROM generate_series(1, %d) AS i', ARRAY['RPUSH', 'k:#{id}', 'x'], server => %s, on_error => 'ignore')};
	my ($fake, $server) = fake(sub { return $_[3] eq 'k:3' ? '-MOD half done' : ':1' });
	$session->query(sprintf $command, 100, $server);
	job_ended($node, 'done', rows_written => 99, rows_failed => 1);
	is(() = sent($fake, 'RPUSH'), 100, 'is sent once, whatever the answer');

	($fake, $server) = fake(sub { return $_[3] =~ /:(\d+)/ && $1 < 300 ? ':1' : '-MOD out of order' });
	like(sql_error($node, sprintf($command, 5000, $server)), qr/^ERROR:  Redis answered: MOD out of order\n.*rows in succession/ms, 'unless all get the same');
	my $job = job_ended($node, 'failed', rows_written => 299);
	cmp_ok($job->{rows_failed}, '<=', 10, 'few rows have failed');
	my @sent = sent($fake, 'RPUSH');
	my %twice = map { $_ => 1 } @sent;
	is(scalar(keys %twice), scalar(@sent), 'none is sent twice');
};

subtest 'expiries, checks and questions' => sub {
	my ($fake, $server) = fake(sub {
		my ($fake, $client, $name, $key) = @_;
		return '+OK' if $name ne 'PEXPIRE';
		return $fake->{said}++ ? ':1' : '-MOD not now';
	});
	$session->send(rows(50, server => $server, ttl => q{'1 h'}, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 50, rows_failed => 0);

	($fake, $server) = fake(sub { return $_[2] eq 'PEXPIRE' ? '-MOD never' : '+OK' });
	like(sql_error($node, rows(2000, server => $server, ttl => q{'1 h'}, on_error => q{'ignore'})), qr/^ERROR:  Redis answered: MOD never$/m, 'expiries that are all refused');
	cmp_ok(job_ended($node, 'failed')->{rows_failed}, '<', 10, 'are not the fault of each row');

	for my $asked ('TYPE', 'HGET')
	{
		($fake, $server) = fake(sub {
			my ($fake, $client, $name, @more) = @_;
			return record_does($fake, $name, @more) if is_of_record($name, @more);
			return '-MOD not now' if $name eq $asked && !$fake->{said}++;
			return '+OK' if $name =~ /^(?:MULTI|DISCARD)$/;
			return '+none' if $name eq 'TYPE';
			return ':50' if $name eq 'HLEN';
			return "*2\r\n:1\r\n+OK" if $name eq 'EXEC';
			return $name eq 'HGET' ? '$-1' : '+QUEUED';
		});
		# the first run writes all rows, and asks for none
		my $sql = run_sql($node, "asked $asked", q{SELECT i AS id, 'value' AS v FROM generate_series(1, 50) AS i}, 'k:#{id}', value => q{'*'}, server => $server, on_error => q{'ignore'});
		$session->send($sql)->wait for 1, 2;
		job_ended($node, 'done', rows_written => 50, rows_failed => 0);
		ok(scalar(grep { $_->{reply} =~ /not now/ } $fake->commands($asked)), "$asked was refused once");
	}
};

# An export without a name sends nothing on behalf of features that it does not use.
subtest 'what is sent' => sub {
	my ($fake, $server) = fake(sub { return '+OK' });
	$session->send(rows(10, server => $server))->wait;
	job_ended($node, 'done', rows_written => 10);
	is(join(' ', map { "$_->{words}[0]" } grep { $_->{words}[0] !~ /^(?:CLIENT|INFO)\z/ } $fake->commands), join(' ', ('JSON.SET') x 10), 'rows, and nothing else');
	$fake->stop;
};

# A run of an export of this name, which has a mark: of rows 1 to 2000 and, once the advisory lock is free, of 2001 and 2002; begun, and with
# the first rows written.
my $holder = session($node);
my $marked = sub {
	my ($name) = @_;
	return run_sql($node, $name, q{SELECT i AS id, 'v' AS v, timestamptz '2026-01-01' + i * interval '1 s' AS changed FROM generate_series(1, 2002) AS i
		WHERE i <= 2000 OR pg_advisory_xact_lock_shared(1) IS NOT NULL}, "$name:#{id}", value => q{'*'}, watermark_column => q{'changed'}, overlap => q{'1 s'},
		rows => q{'new'}, batch => 100);
};
sub begin_marked
{
	my ($session, @run) = @_;
	my $id = next_job($node, sub { $session->send($marked->(@run)) });
	until_written($node, $id, 1000);
	return $id;
}
sub hold { return $holder->query('SELECT pg_advisory_lock(1)') }
sub let_go { return $holder->query('SELECT pg_advisory_unlock(1)') }
sub mark { return scalar $redis->cli('HGET', "redis_export:{$_[0]}", 'mark') }
my $stays = qr/WARNING:  the mark of export job \d+ stays where it was/;

subtest 'Redis is flushed in the first run of a mark' => sub {
	$redis->cli('FLUSHALL');
	hold();
	begin_marked($session, 'first');
	is(mark('first'), '', 'there is no mark yet');
	$redis->cli('FLUSHALL');
	let_go();
	my (undef, $err) = $session->wait;
	job_ended($node, 'done', rows_written => 2002);
	like($err, qr/$stays.*Redis was flushed/s, 'it is told');
	is(mark('first'), '', 'and the mark is not set');
	$session->query($marked->('first'));
	job_ended($node, 'done', rows_read => 2002);
	is(redis_keys_count($redis, 'first:*'), 2002, 'so that the next run reads all, and writes what is gone');
	isnt(mark('first'), '', 'and sets it');
};

subtest 'a first run that is cancelled' => sub {
	$redis->cli('FLUSHALL');
	hold();
	my $id = begin_marked($session, 'gone');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	$session->wait;
	let_go();
	is(mark('gone'), '', 'leaves no mark');
	my (undef, $err) = $session->send($marked->('gone'))->wait;
	unlike($err, $stays, 'nor anything that is in the way of the next');
	isnt(mark('gone'), '', 'which sets the mark');
};

subtest 'Redis evicts keys in a run with a mark' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('SET', 'victim', 'x' x 1000);
	hold();
	begin_marked($session, 'evicted');
	$redis->cli('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-random');
	my $used = $redis->info('used_memory');
	$redis->cli('CONFIG', 'SET', 'maxmemory', $used - 20_000);
	for (1 .. 200)
	{
		last if $redis->info('evicted_keys') > 0;
		$redis->cli('SET', "more:$_", 'x');
		sleep 0.05;
	}
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	let_go();
	my (undef, $err) = $session->wait;
	is(job($node)->{state}, 'done', 'the job is done');
	like($err, qr/WARNING:  Redis evicted \d+ keys during/, 'that it evicted keys is told');
	like($err, qr/$stays.*Redis evicted keys|$stays.*Redis was flushed/s, 'and that the mark stays');
	is(mark('evicted'), '', 'it does');
	$redis->cli('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
};

# A Redis without these commands, and what each costs.
subtest 'commands that this Redis does not have' => sub {
	my $poor = RedisExport::Redis->new(modules => 0, conf => { 'rename-command' => [ map { qq{$_ ""} } qw(MULTI SCAN WAIT PEXPIRE PERSIST) ] });
	my $poorer = RedisExport::Redis->new(modules => 0, conf => { 'rename-command' => [ map { qq{$_ ""} } qw(HGET) ] });
	add_server($node, $poor, name => 'poor');
	add_server($node, $poorer, name => 'poorer');
	my $hash = sub { my %arguments = @_; return q{SELECT job FROM redis_hash_export('SELECT 1 AS id, now() AS at, NULL::interval AS valid', 'h:#{id}', server => 'poor'} . join('', map { ", $_ => $arguments{$_}" } sort keys %arguments) . ')' };
	for my $case (
		[ 'MULTI', 'redis_export_run, and for hashes by replace', $hash->(replace => 'true') ],
		[ 'MULTI', 'redis_export_run, and for hashes by replace', run_sql($node, 'poor', 'SELECT 1 AS id, 2 AS n', 'r:#{id}', type => q{'hash'}, server => q{'poor'}) ],
		[ 'HGET', 'redis_export_run', run_sql($node, 'poorer', 'SELECT 1 AS id, 2 AS n', 'r:#{id}', type => q{'hash'}, server => q{'poorer'}) ],
		[ 'SCAN', 'redis_export_verify, and the functions that scan', q{SELECT * FROM redis_export_verify('SELECT 1 AS id, 2 AS n', 'h:#{id}', type => 'hash', server => 'poor')} ],
		[ 'SCAN', 'redis_export_verify, and the functions that scan', q{SELECT * FROM redis_scan('poor')} ],
		[ 'WAIT', 'wait_replicas', $hash->(wait_replicas => 1) ],
		[ 'PEXPIRE', 'ttl and ttl_column', $hash->(ttl => q{'1 h'}) ])
	{
		my ($command, $needed, $sql) = @$case;
		my $error = sql_error($node, $sql, verbose => 1);
		like($error, qr/ERROR:  42883: .*unknown command '$command'.*^HINT:  It is needed by $needed/ims, "$command: the hint says for what it is needed") or diag $sql;
	}
	like(sql_error($node, $hash->(wait_index => q{'idx'}), verbose => 1), qr/unknown command 'FT\.INFO'.*HINT:  This Redis has no search\. Load the module RediSearch/s, 'FT.INFO');
	like(sql_error($node, q{SELECT redis_command('poor', 'JSON.GET', 'a')}), qr/HINT:  This Redis has no JSON\. Load the module RedisJSON or valkey-json.*MODULE LIST/, 'JSON');
	$_->stop for $poor, $poorer;

	my ($fake, $server) = fake(sub {
		my ($fake, $client, $name, @more) = @_;
		return record_does($fake, $name, @more) if is_of_record($name, @more);
		return '+OK' if $name =~ /^(?:MULTI|DISCARD)$/;
		return "-ERR unknown command '$name', with args beginning with: 'secret'" if $name =~ /^(?:JSON\.MERGE|UNLINK)$/;
		return "-ERR unknown type name '$more[-1]'" if $name eq 'SCAN' && $more[-1] =~ /JSON/;
		return "-ERR unknown command 'HSCAN', with args beginning with:" if $name eq 'HSCAN' && $more[0] =~ /x:/;
		return "*2\r\n\$1\r\n0\r\n*2\r\n\$4\r\nh:77\r\n\$0\r\n" if $name eq 'HSCAN';
		return ':2' if $name eq 'HLEN';
		return $name eq 'JSON.SET' ? '+OK' : ':1';
	});
	like(sql_error($node, rows(3, server => $server, merge => 'true')), qr/unknown command 'JSON\.MERGE'.*HINT:  JSON\.MERGE came with RedisJSON 2\.6, and valkey-json has none: .* Export without merge\./s, 'JSON.MERGE is not the whole of JSON');
	like(sql_error($node, run_sql($node, 'few', 'SELECT 1 AS id, 2 AS n', 'h:#{id}', type => q{'hash'}, server => $server, rows => q{'all'}, prune => 'true', prune_limit => 1)),
		qr/unknown command 'UNLINK'.*HINT:  It is needed by prune/s, 'UNLINK');
	like(sql_error($node, run_sql($node, 'x:', 'SELECT 1 AS id, 2 AS n', 'x:#{id}', type => q{'hash'}, server => $server, rows => q{'all'}, prune => 'true', prune_limit => 1)),
		qr/could not read the books of the export: .*unknown command 'HSCAN'.*HINT:  It is needed by prune/s, 'HSCAN');
	like(sql_error($node, "SELECT * FROM redis_json_scan($server)"), qr/unknown type name 'ReJSON-RL'.*HINT:  This Redis has no JSON/s, 'a type that it does not know');

	($fake, $server) = fake(sub { return $_[0]{said}++ ? '+OK' : '-BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.' });
	my (undef, $err) = $session->send(rows(3, server => $server))->wait;
	like($err, qr/WARNING:  export job \d+ tries again: Redis answered: BUSY Valkey is busy.*HINT:  A script.*SCRIPT KILL or FUNCTION KILL/s, 'BUSY of Valkey');
	job_ended($node, 'done', rows_written => 3);
};

subtest 'an index that cannot take what is written' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli(qw(FT.CREATE), @$_) for [ qw(documents ON JSON PREFIX 2 k: l: SCHEMA $.name AS name TEXT $.city.zip AS zip TAG $..any AS any TAG) ],
		[ qw(hashes ON HASH PREFIX 1 k: SCHEMA name TEXT city TAG) ], [ qw(anywhere SCHEMA name TEXT) ], [ qw(nested ON JSON PREFIX 1 k:a: SCHEMA $.name AS name TEXT) ];
	my $export = sub {
		my ($kind, $index, $columns, %arguments) = @_;
		my $key = delete $arguments{key} // 'k:#{id}';
		return (($session->send("SELECT state FROM redis_${kind}_export('SELECT 1 AS id, $columns', '$key', wait_index => '$index'"
			. join('', map { ", $_ => $arguments{$_}" } sort keys %arguments) . ')')->wait)[1] =~ s/^psql:<stdin>:\d+: //gmr);
	};
	my ($name, $both) = ("''a'' AS name, 1 AS more", q{''a'' AS name, ''{"zip":"1"}''::json AS city});
	for my $case (
		[ 'no key has its prefix', qr/index "documents" takes keys with other prefixes than "m:"/, 'json', 'documents', $both, key => 'm:#{id}' ],
		[ 'keys of another type', qr/index "hashes" is on HASH, and the export writes JSON/, 'json', 'hashes', $both ],
		[ 'the other way round', qr/index "documents" is on JSON, and the export writes HASH/, 'hash', 'documents', $name ],
		[ 'a member that no document has', qr/index "documents" is over what no row gives: "\$\.city\.zip"$/m, 'json', 'documents', "''a'' AS name, 1 AS town" ],
		[ 'of excluded columns', qr/index "documents" is over what no row gives: "\$\.name", "\$\.city\.zip"$/m, 'json', 'documents', $both, exclude => q{'{name,city}'} ],
		[ 'fields that no hash has', qr/index "hashes" is over what no row gives: "name", "city"$/m, 'hash', 'hashes', "''a'' AS title" ],
		[ 'one that none has, if hashes are replaced', qr/index "hashes" is over what no row gives: "city"$/m, 'hash', 'hashes', $name, replace => 'true' ])
	{
		my ($what, $pattern, @run) = @$case;
		$redis->cli('DEL', 'k:1');
		my $err = $export->(@run);
		like($err, qr/WARNING:  $pattern/, "$what: a warning");
		like($err, qr/HINT:  Compare prefixes, key type and schema/, 'with a hint');
		is(job($node)->{state}, 'done', 'and the job is done');
		like(job($node)->{last_error}, $pattern, 'whose last error tells it, too');
	}
	for my $case (
		[ 'all that it is over', 'json', 'documents', $both ],
		[ 'a document in a column', 'json', 'documents', q{''{"a":1}''::jsonb AS doc} ],
		[ 'a part of a document', 'json', 'documents', $name, merge => 'true' ],
		[ 'some of the fields', 'hash', 'hashes', $name ],
		[ 'an index on all hashes', 'hash', 'anywhere', $name, key => '#{id}' ],
		[ 'keys that may have the prefix', 'json', 'nested', $name, key => 'k:#{id}' ])
	{
		my ($what, @run) = @$case;
		$redis->cli('DEL', 'k:1');
		is($export->(@run), '', "$what: nothing is said");
		is(job($node)->{state}, 'done', 'and the job is done');
	}
};

$holder->quit;
$session->quit;
done_testing;
