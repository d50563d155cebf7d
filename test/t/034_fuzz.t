# Random input for each parser that meets bytes from outside: key templates, options of servers and mappings, documents, what Redis
# answers to an export and to redis_command, the text of INFO. Nothing may crash or hang; errors are proper ones; the ledger holds;
# and where it is easy to say in another way what must come out, that is compared.
#
# Everything follows from a seed, which is shown. Round N of a part has the seed plus N, so that any round of a long run can be had
# alone, as the only one of REDIS_EXPORT_ROUNDS=1:
#
#   REDIS_EXPORT_SEED=7 REDIS_EXPORT_ROUNDS=1000 TEST_TIMEOUT=3000 test/run t/034_fuzz.t
use strict;
use warnings;
use utf8;
use Encode qw(encode_utf8 decode_utf8);
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Fake;

my $seed = $ENV{REDIS_EXPORT_SEED} // time % 1_000_000_000;
$seed = int $seed;
my $rounds = $ENV{REDIS_EXPORT_ROUNDS} // 25;
diag "REDIS_EXPORT_SEED=$seed REDIS_EXPORT_ROUNDS=$rounds";

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\nlog_min_messages = log\nlog_statement = none\nlog_min_error_statement = panic\n");
my $born = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my $session = session($node);
$session->query(q{
	CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		class text;
		result text;
	BEGIN
		EXECUTE statement INTO result;
		RETURN 'ok ' || coalesce(result, '');
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS class = RETURNED_SQLSTATE;
		RETURN class || ' ' || SQLERRM;
	END $$;
	CREATE TABLE statements (n int, sql text, result text)});

sub one_of { return $_[rand @_] }
sub upto   { return int rand($_[0] + 1) }

sub literal { my ($text) = @_; return q{'} . $text =~ s/'/''/gr . q{'} }

# Changes a byte or some, here and there: the trade of all fuzzing.
my @interesting = ("\0", "\xff", "\x80", "\xc3", "\r", "\n", "\r\n", '$', '*', '+', '-', ':', '_', '%', '9', '-1', '2147483648', '99999999999999999999', '"', '\\', '{', '[', ' ');
sub mutate
{
	my ($bytes, $times) = @_;
	for (1 .. $times)
	{
		my $length = length $bytes;
		my ($at, $many) = (int rand($length + 1), 1 + upto(3));
		$many = $length - $at if $at + $many > $length;
		my $piece = substr $bytes, $at, $many;
		my $way = int rand 6;
		if    ($way == 0) { substr $bytes, $at, $many, one_of(@interesting) }
		elsif ($way == 1) { substr $bytes, $at, $many, '' }
		elsif ($way == 2) { substr $bytes, $at, 0, one_of(@interesting) }
		elsif ($way == 3) { substr $bytes, $at, 0, $piece x (1 + upto(3)) }
		elsif ($way == 4) { substr $bytes, $at, $many, join '', map { chr int rand 256 } 1 .. $many }
		else              { $bytes = substr $bytes, 0, $at if rand() < 0.3 }
	}
	return $bytes;
}

# Runs statements in one go, each in a subtransaction of its own, and returns what came of each: "ok ...", or SQLSTATE and message.
sub try_all
{
	my (@statements) = @_;
	$session->query('TRUNCATE statements');
	my $file = $node->basedir . '/statements';
	open my $out, '>:encoding(UTF-8)', $file or die "$file: $!";
	print $out join("\t", $_, $statements[$_] =~ s/\\/\\\\/gr =~ s/\n/\\n/gr =~ s/\r/\\r/gr =~ s/\t/\\t/gr), "\n" for 0 .. $#statements;
	close $out;
	$session->query("COPY statements (n, sql) FROM '$file'");
	$session->query('UPDATE statements SET result = try(sql)');
	my $results = JSON::PP->new->decode($session->query('SELECT json_agg(result ORDER BY n) FROM statements'));
	return @$results;
}

# Is the server the one from the beginning, without a crash in between? An error of the class XX would be one of ours that nobody
# has thought of.
sub unharmed
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $now = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
	return ok($now eq $born && slurp_file($node->logfile) !~ /terminated by signal|TRAP|PANIC|was terminated/, $name // 'PostgreSQL is unharmed');
}

subtest 'key templates' => sub {
	my %value = (id => '7', 'a b' => 'x y', 'Ünï' => 'ö%s', '#' => 'hash', '{' => 'brace', q{'} => 'quote');
	my @columns = sort keys %value;
	my $query = 'SELECT ' . join ', ', map { literal($value{$_}) . '::text AS "' . $_ . '"' } @columns;
	my @pieces = ('#{', '##{', '#', '{', '}', '}}', 'id', '#{id}', '#{a b}', '#{Ünï}', '#{#}', '#{{}', q{#{'}}, '##', '###{', ' ', "\n", '%s', '%n', '\\', 'ü', '😀', '', "\t", 'x' x 100);

	# the same rules, written down otherwise
	my $expand = sub {
		my ($template) = @_;
		my ($key, $columns) = ('', 0);
		while (length $template)
		{
			if ($template =~ s/^##\{//) { $key .= '#{' }
			elsif ($template =~ s/^#\{([^}]*)\}//) { return undef unless exists $value{$1}; $key .= $value{$1}; $columns++ }
			elsif ($template =~ /^#\{/) { return undef }
			else { $template =~ s/^(.)//s; $key .= $1 }
		}
		return $columns ? $key : undef;
	};
	my (@statements, @expected);
	for my $round (0 .. $rounds * 8 - 1)
	{
		srand($seed + $round);
		my $template = "t$round:" . join '', map { one_of(@pieces) } 0 .. upto(7);
		$template .= '#{id}' if rand() < 0.5;
		push @expected, $expand->($template);
		push @statements, 'SELECT state FROM redis_json_export(' . literal($query) . ', ' . literal($template) . ", value => '*')";
	}
	my @results = try_all(@statements);
	my @wrong;
	for my $n (0 .. $#statements)
	{
		my $good = defined $expected[$n] ? $results[$n] eq 'ok done' && $redis->cli('EXISTS', encode_utf8($expected[$n])) eq '1'
			: $results[$n] =~ /^(?:22023|42703) key template /;
		push @wrong, "round $n: $statements[$n]: $results[$n]" unless $good;
	}
	is_deeply(\@wrong, [], 'each gives the key that it should, or an error of its own');
	my $keys = grep { defined } @expected;
	is(redis_keys_count($redis), $keys, 'and no other keys');
	note "$keys of ", scalar @expected, ' templates were good ones';
	unharmed();
};

# A path of a socket, or a name or an address without its port.
sub host_is_good
{
	my ($host) = @_;
	return length $host < 108 && $host !~ /[\0-\x1f\x7f]/ if $host =~ m{^/};
	return length $host <= 253 && $host =~ /^[-A-Za-z0-9_.:%]+\z/ && $host !~ /^[^:]*:[^:]*\z/;
}

subtest 'options' => sub {
	my %range = (port => [ 1, 65535 ], db => [ 0, 1_000_000 ], connect_timeout => [ 0.1, 86400 ], timeout => [ 0.1, 86400 ]);
	my @names = (sort(keys %range), qw(host client_name password username));
	my @values = ('', ' ', '0', '1', '-1', '6379', '65535', '65536', '0.1', '0.09', '1e3', '1e400', '-1e400', '1e-400', 'inf', 'nan', '-nan', '0x10', '1_000', '٣', ' 5', '5 ', '+5',
		'1.5', '99999999999999999999', "1\n", 'localhost', '/tmp/x', '/' . 'x' x 300, 'x' x 3000, '::1', '%s%n', 'ü', '😀', q{'"\\}, "\x{1}", 'two words', 'a' x 63);
	my (@statements, @parts);
	for my $round (0 .. $rounds * 20 - 1)
	{
		srand($seed + $round);
		my %options;
		for (0 .. upto(2))
		{
			my $name = one_of(@names);
			$name = decode_utf8(mutate($name, 1), Encode::FB_DEFAULT) =~ s/[\0"=]//gr if rand() < 0.2;
			my $value = one_of(@values);
			$value .= one_of(@values) if rand() < 0.3;
			$options{$name} = $value if $name ne '' && length $name < 60;
		}
		my $list = join ', ', map { qq{"$_" } . literal($options{$_}) } sort keys %options;
		my $mapping = rand() < 0.3;
		push @parts, [ $mapping, \%options ];
		push @statements, 'DO ' . literal($mapping ? "BEGIN CREATE USER MAPPING FOR CURRENT_USER SERVER redis OPTIONS ($list); DROP USER MAPPING FOR CURRENT_USER SERVER redis; END"
			: "BEGIN CREATE SERVER s$round FOREIGN DATA WRAPPER redis_export OPTIONS ($list); END");
		$statements[-1] = 'SELECT ' . ($list eq '' ? '1' : 'run(' . literal($statements[-1]) . ')');
	}
	$session->query(q{CREATE FUNCTION run(statement text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE statement; RETURN 'accepted'; END $$});
	my @results = try_all(@statements);
	my (@wrong, $accepted);
	for my $n (0 .. $#statements)
	{
		my ($mapping, $options) = @{ $parts[$n] };
		my $bad = 0;
		for my $name (keys %$options)
		{
			my $known = $mapping ? $name =~ /^(?:username|password)\z/ : $range{$name} || $name =~ /^(?:host|client_name)\z/;
			my $value = $options->{$name};
			$bad = 1 if !$known || ($name eq 'host' && !host_is_good(encode_utf8($value))) || ($name eq 'client_name' && $value =~ /[^!-~]/);
			next unless $known && $range{$name};
			$bad = 1 if $value =~ /e-\d{3}/;    # too small for a number
			my $number = $value =~ /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\z/ai ? $value + 0 : undef;
			$bad = 1 if !defined $number || $number < $range{$name}[0] || $number > $range{$name}[1] || ($name =~ /^(?:port|db)\z/ && $number != int $number);
		}
		my $good = $bad ? $results[$n] =~ /^(?:HV00D|HV024) (?:invalid option|invalid value for option) / : $results[$n] =~ /^ok /;
		push @wrong, encode_utf8("round $n: $statements[$n]: $results[$n]") unless $good;
		$accepted++ unless $bad;
	}
	is_deeply(\@wrong, [], 'each is accepted, or refused as it should be');
	note "$accepted of ", scalar @statements, ' were good ones';

	# what was accepted is no trap for who uses it
	my @servers = split /\n/, $session->query(q{SELECT srvname FROM pg_foreign_server WHERE srvname LIKE 's%' AND srvoptions::text !~ 'localhost' ORDER BY srvname});
	splice @servers, 30 if @servers > 30 && $rounds < 100;
	$session->query("ALTER SERVER $_ OPTIONS (ADD connect_timeout '0.2')") for grep { $session->query("SELECT srvoptions::text !~ 'connect_timeout' FROM pg_foreign_server WHERE srvname = '$_'") eq 't' } @servers;
	@results = try_all(map { "SELECT redis_command('$_', 'PING')" } @servers);
	is_deeply([ grep { !/^(?:ok|08|28|3D|57|HV|38|54|53)/ } @results ], [], 'a command to it has an answer or a proper error');
	unharmed();
	$session->query("DROP SERVER $_") for split /\n/, $session->query(q{SELECT srvname FROM pg_foreign_server WHERE srvname LIKE 's%'});
};

# A text that PostgreSQL's own parser would not take never gets into Redis.
subtest 'documents' => sub {
	my @good = ('{"a":1}', '[1,2,{"b":[null,true,false]}]', '{"s":"\u00e9\n\"x\""}', '{"n":-1.5e10,"m":0}', '{"a":{"b":{"c":[[[]]]}}}', '{"ü":"😀"}', ' { } ', '{"e":""}');
	$session->query('CREATE TABLE documents (id int, doc text)');
	my $file = $node->basedir . '/documents';
	open my $out, '>:encoding(UTF-8)', $file or die "$file: $!";
	for my $round (0 .. $rounds * 40 - 1)
	{
		srand($seed + $round);
		my $doc = decode_utf8(mutate(encode_utf8(one_of(@good)), upto(2)), Encode::FB_DEFAULT) =~ tr/\0//dr;
		print $out join("\t", $round, $doc =~ s/\\/\\\\/gr =~ s/\n/\\n/gr =~ s/\r/\\r/gr =~ s/\t/\\t/gr), "\n";
	}
	close $out;
	$redis->cli('FLUSHALL');
	$session->query("COPY documents FROM '$file'");
	like($session->query(export_sql('TABLE documents', key_template => q{'j:#{id}'}, value => q{'doc'}, on_error => q{'ignore'})), qr/\|done$/, 'the job is done');
	my %refused = map { $_ => 1 } split /\n/, $session->query(q{SELECT id FROM documents WHERE try('SELECT ' || quote_literal(doc) || '::json') !~ '^ok'});
	my @keys = map { s/^j://r } $redis->cli('--scan', '--pattern', 'j:*');
	is_deeply([ grep { $refused{$_} } @keys ], [], 'none in Redis that PostgreSQL would refuse');
	my $job = job($node);
	is($job->{rows_written}, scalar @keys, 'the others are there');
	cmp_ok($job->{rows_failed}, '>=', scalar keys %refused, 'those have failed');
	ledger_ok($node);
	note scalar(keys %refused), ' of ', $rounds * 40, ' were no JSON, ', $job->{rows_failed}, ' failed';
	unharmed();
};

# ---- What Redis answers -----------------------------------------------------------------------------------------------

my @replies = ("+OK", ":1", ":0", "\$-1", "*-1", "\$0\r\n", "\$5\r\nhello", "*2\r\n:1\r\n+OK", "*0", "*1\r\n-ERR inside", "*2\r\n*1\r\n*1\r\n*0\r\n-WRONGTYPE deep",
	"-ERR something", "-OOM command not allowed", "-LOADING Redis is loading", "-READONLY You can't write", "-BUSY running a script", "-NOREPLICAS not enough",
	"-MISCONF errors", "-WRONGTYPE wrong kind", "-NOPERM no", "-", "- ", "-\xff\xfe\x80 bytes", '-' . 'x' x 5000, "-ERR unknown command 'x', with args beginning with: 'secret'",
	"-ERR max number of clients reached", "_", "#t", ",1.5", "(123456789012345678901234567890", "%1\r\n+a\r\n:1", "~1\r\n:1", ">2\r\n+push\r\n:1", "=7\r\ntxt:abc", "|1\r\n+a\r\n+b\r\n+OK",
	":9223372036854775807", ":-9223372036854775808", ":92233720368547758070", "\$99999999", "\$-2", "*2147483647", "*99999999999", "\$9223372036854775807", '+' . 'y' x 70_000,
	"*1\r\n" x 12 . ':1', '*' . 500 . "\r\n" . join("\r\n", (':7') x 500), "\$200000\r\n" . 'z' x 200_000, "\$3\r\na\0b", "\$4\r\n\xf0\x9f\x98\x80", "\$2\r\n\xff\xff", "GET / HTTP/1.1", '');

my @info = ('run_id:' . 'f' x 40 . "\r\nloading:0\r\nevicted_keys:0\r\n", "run_id:\r\n", 'run_id:' . 'a' x 200, 'run_id:', "loading:1\r\n", 'loading:', 'evicted_keys:', "evicted_keys:99999999999999999999999\r\n",
	"evicted_keys:-5\r\n", "evicted_keys:9223372036854775807\r\nrun_id:x\r\n", "\0run_id:a\r\n", "run_id:a\0b\r\nevicted_keys:1", ':', "\r\n" x 50, 'xrun_id:1', "# Server\r\nrun_id:\xff\xfe\r\n", '', 'run_id' . ':' x 300);

# Writes the reply in pieces, some of them late.
sub send_in_pieces
{
	my ($client, $bytes) = @_;
	$client->{socket}->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);
	$client->{socket}->blocking(1);
	my $pieces = rand() < 0.8 ? 1 : 1 + upto(6);
	while (length $bytes)
	{
		my $piece = substr $bytes, 0, $pieces-- > 1 ? 1 + upto(length $bytes) : length $bytes, '';
		RedisExport::Fake::write_all($client->{socket}, $piece) or return;
		select undef, undef, undef, 0.001 if length $bytes;
	}
	return;
}

# A reply of several lines may be several replies, of which the others are taken for those to commands that have been sent and that the fake
# may never come to read. How many those are at most is written down, since the fake is a process of its own.
sub note_surplus
{
	my ($fake, $reply) = @_;
	my $lines = () = $reply =~ /\n/g;
	return if $lines < 2;
	open my $out, '>>', "$fake->{dir}/surplus" or die "$fake->{dir}/surplus: $!";
	print $out $lines - 1, "\n";
	close $out;
	return;
}

sub surplus
{
	my ($fake) = @_;
	open my $in, '<', "$fake->{dir}/surplus" or return 0;
	my $sum = 0;
	$sum += $_ while <$in>;
	return $sum;
}

# A fake that answers well, but for one in so many: then anything.
sub odd_redis
{
	my ($round, $one_in, $good) = @_;
	my $odd_info = rand() < 0.3;
	return RedisExport::Fake->new(all => sub {
		my ($fake, $client, $name) = @_;
		srand($round) unless $fake->{seeded}++;
		my $reply = "+OK\r\n";
		if ($name eq 'INFO')
		{
			my $text = $odd_info ? one_of(@info) : $info[0];
			$text = mutate($text, 1 + upto(3)) if $odd_info && rand() < 0.5;
			$reply = '$' . length($text) . "\r\n$text\r\n";
			$reply = mutate($reply, 1) if $odd_info && rand() < 0.1;
		}
		elsif ($name eq 'CLIENT') { $reply = one_of("+OK\r\n", "+OK\r\n", "-ERR no\r\n") }
		elsif (rand($one_in) < 1)
		{
			my $way = rand;
			return CLOSE if $way < 0.05;
			return undef if $way < 0.1;
			$reply = one_of(@replies) . "\r\n";
			$reply = mutate($reply, 1 + upto(2)) if $way < 0.5;
			$reply .= one_of(@replies) . "\r\n" if $way > 0.97;
			note_surplus($fake, $reply);
		}
		send_in_pieces($client, $reply);
		return undef;
	});
}

$node->safe_psql('postgres', q{CREATE SERVER odd FOREIGN DATA WRAPPER redis_export OPTIONS (port '1', timeout '0.3', connect_timeout '0.3')});

# All that a job may end with here; XX would be one that nobody has thought of.
my $proper = qr/^(?:psql:\S+ )?ERROR:  (?:08|22|25|28|38|40|42|53|54|55|57|58|0A|HV)\w{3}: /m;

subtest 'answers to an export' => sub {
	$session->query(q{SET statement_timeout = '60 s'});
	my (%ends, @wrong);
	for my $round (0 .. $rounds - 1)
	{
		srand($seed + $round);
		my $rows = one_of(1, 5, 50, 300, 2000);
		my $fake = odd_redis($seed + $round, one_of(2, 20, 200, 2000, 20_000), "+OK\r\n");
		my %arguments = (server => q{'odd'}, batch => one_of(1, 3, 50, 500), retry_timeout => q{'0.5 s'}, on_error => one_of(q{'stop'}, q{'ignore'}));
		$arguments{ttl} = q{'1 min'} if rand() < 0.4;
		my $length = one_of(1, 10, 1000);
		$session->query("ALTER SERVER odd OPTIONS (SET port '" . $fake->port . "')");
		my $begun = time;
		my (undef, $err) = $session->send("\\set VERBOSITY verbose\n" . export_sql("SELECT id, repeat('x', $length) AS v FROM generate_series(1, $rows) id",
			key_template => "'f:#{id}'", value => q{'*'}, %arguments))->wait;
		my $took = time - $begun;
		my %asked = map { $_->{words}[1] => 1 } $fake->commands('JSON.SET');
		$fake->stop;
		my $job = job($node) // { state => 'gone' };
		my @faults;
		push @faults, 'no proper end' unless $job->{finished_at} && $job->{state} =~ /^(?:done|failed)$/;
		push @faults, 'an odd error' if ($job->{state} eq 'done') == ($err =~ /ERROR:|FATAL:/) || ($job->{state} ne 'done' && $err !~ $proper);
		push @faults, 'the ledger is wrong' unless $job->{rows_read} == $job->{rows_written} + $job->{rows_failed} + $job->{rows_in_doubt};
		push @faults, 'done with rows that are not settled' if $job->{state} eq 'done' && ($job->{rows_in_doubt} || $job->{rows_read} != $rows);
		push @faults, 'more rows than there are' if $job->{rows_read} > $rows || $job->{rows_written} > keys(%asked) + surplus($fake);
		push @faults, sprintf('%.1f s', $took) if $took > 30;
		push @wrong, "REDIS_EXPORT_SEED=@{[ $seed + $round ]}: " . join(', ', @faults) . ": $err" . JSON::PP->new->canonical->encode($job) if @faults;
		$ends{ $job->{state} }++;
		last if @faults && !unharmed("seed @{[ $seed + $round ]}");
	}
	is_deeply(\@wrong, [], 'each job ends in good time, in good order');
	note join ', ', map { "$ends{$_} $_" } sort keys %ends;
	no_worker_left($node);
	unharmed();
	$session->query('RESET statement_timeout');
};

subtest 'answers to redis_command' => sub {
	my (@wrong, $answers);
	for my $round (0 .. $rounds - 1)
	{
		srand($seed + $round);
		my $fake = odd_redis($seed + $round, one_of(1, 3));
		$session->query("ALTER SERVER odd OPTIONS (SET port '" . $fake->port . "')");
		my $begun = time;
		my @results = try_all((q{SELECT redis_command('odd', 'ECHO', 'x')::text}) x 10);
		my $took = time - $begun;
		$fake->stop;
		$answers += grep { /^ok/ } @results;
		my @odd = grep { !/^(?:ok .|(?:08|22|25|28|38|40|42|53|54|55|57|58|0A)\w{3} )/ } @results;
		push @odd, sprintf '%.1f s', $took if $took > 30;
		push @wrong, "REDIS_EXPORT_SEED=@{[ $seed + $round ]}: " . encode_utf8(join '; ', @odd) if @odd;
	}
	is_deeply(\@wrong, [], 'each has an answer or a proper error, soon');
	note "$answers of ", $rounds * 10, ' answers were good ones';
	is($session->query(q{SELECT redis_command('redis', 'ECHO', 'mine')}), '"mine"', 'the session talks to its own Redis');
	unharmed();
};

# hiredis would make room for 16 GB, and look at all of it again when that is freed.
subtest 'an array that is announced and does not come' => sub {
	my $fake = RedisExport::Fake->new(sub { '*2147483647' });
	$session->query("ALTER SERVER odd OPTIONS (SET port '" . $fake->port . "')");
	like(sql_error($node, q{SELECT redis_command('odd', 'ECHO', 'x')}, verbose => 1), qr/ERROR:  08P01: .* sent what is no reply of Redis: /,
		'is refused by its size');
	$fake->stop;
};

done_testing;
