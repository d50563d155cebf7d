# The rights that docs/reference.md says a user of Redis needs for each function: a user with exactly these can call it, and with one of them
# less the call fails, or says what is missing.
use strict;
use warnings;
use FindBin;
use RedisExport::Test;

my $page = slurp_file("$FindBin::Bin/../../docs/reference.md");
my ($section) = $page =~ /^### Rights in Redis\n(.*?)^##/ms or die 'the page has no such section';
my ($each) = $section =~ /^ACL SETUSER (app .*)$/m or die 'the page does not say what each connection needs';
my %rights = $section =~ /^\| ([^|]+) \| `([^`]+)` \|$/mg;
delete $rights{function};

my $redis = RedisExport::Redis->new;
my $replica = RedisExport::Redis->new(conf => { replicaof => '127.0.0.1 ' . $redis->port });
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\n");
add_server($node, $redis, name => 'app');
$node->safe_psql('postgres', q{
	CREATE USER MAPPING FOR CURRENT_USER SERVER app OPTIONS (username 'app', password 'secret');
	CREATE TABLE people AS SELECT i AS id, 'Ada ' || i AS name, now() + interval '1 day' AS at FROM generate_series(1, 3) AS i;
	SELECT redis_export_define('people', 'SELECT id, name, at FROM people', 'person:#{id}.', server => 'app', watermark_column => 'at')});

sub json_export    { my (@more) = @_; return call('redis_json_export', q{'person:#{id}'}, @more) }
sub hash_export    { my (@more) = @_; return call('redis_hash_export', q{'person:#{id}'}, @more) }
sub command_export { my (@more) = @_; return call('redis_command_export', q{ARRAY['ZADD', 'board', '#{id}', '#{name}']}, @more) }

sub call
{
	my ($function, $template, @more) = @_;
	return "SELECT $function(" . join(', ', q{'SELECT id, name, at FROM people'}, $template, @more, q{server => 'app'}) . ')';
}

# What the page says of each: the calls, which all need the rights together, the lines that these are added to, and what Redis holds before.
my ($documents, $hashes) = (q{redis_json_export('SELECT id, name, at FROM people', 'person:#{id}')},
	q{redis_hash_export('SELECT id, name, at FROM people', 'person:#{id}')});
my @cases = (
	[ '`redis_json_export`', [ json_export() ] ],
	[ '… with `merge`', [ json_export('merge => true') ] ],
	[ '`redis_hash_export`', [ hash_export() ] ],
	[ '… with `replace`', [ hash_export('replace => true') ] ],
	[ '`redis_command_export`', [ command_export() ] ],
	[ 'exports with `ttl` or `ttl_column` also', [ json_export(q{ttl => '1 h'}), json_export(q{ttl_column => 'at'}), json_export(q{ttl => '0'}) ], '`redis_json_export`' ],
	[ 'with `wait_index` also', [ json_export(q{wait_index => 'idx:people'}) ], '`redis_json_export`' ],
	[ 'with `wait_replicas` also', [ json_export('wait_replicas => 1') ], '`redis_json_export`' ],
	[ '`redis_export_run`, documents', [ q{CALL redis_export_run('people')}, q{CALL redis_export_run('people')} ] ],
	[ '… that prunes also', [ q{CALL redis_export_run('people', prune => true, prune_limit => 1)} ], '`redis_export_run`, documents',
		q{redis_command('redis', 'HSET', 'redis_export:{people}:keys', 'person:7', '')} ],
	[ '`redis_export_set_mark`', [ q{SELECT 1 FROM redis_export_set_mark('people', '2026-01-01')}, q{SELECT 1 FROM redis_export_set_mark('people', NULL)} ] ],
	[ '`redis_export_reset`', [ q{SELECT 1 FROM redis_export_reset('people')} ] ],
	[ '`redis_export_verify`, documents', [ q{SELECT missing FROM redis_export_verify('SELECT id, name, at FROM people', 'person:#{id}', server => 'app')} ], undef, $documents ],
	[ '`redis_export_verify`, hashes', [ q{SELECT missing FROM redis_export_verify('SELECT id, name, at FROM people', 'person:#{id}', type => 'hash', server => 'app')} ], undef, $hashes ],
	[ '… by name also', [ q{SELECT missing FROM redis_export_verify('people')} ], '`redis_export_verify`, documents',
		q{redis_command('redis', 'HSET', 'redis_export:{people}:keys', 'person:7', ''), redis_command('redis', 'SET', 'person:8', '1')} ],
	[ '`redis_export_preview`, by name', [ q{SELECT action FROM redis_export_preview('people')} ] ],
	[ '… with `prune` also', [ q{SELECT action FROM redis_export_preview('people', prune => true)} ], '`redis_export_preview`, by name',
		q{redis_command('redis', 'HSET', 'redis_export:{people}:keys', 'person:7', '')} ],
	[ '`redis_scan`', [ q{SELECT redis_scan('app', 'person:*', 'ReJSON-RL')} ], undef, $documents ],
	[ '`redis_json_scan`', [ q{SELECT key FROM redis_json_scan('app', 'person:*')} ], undef, $documents ],
	[ '`redis_hash_scan`', [ q{SELECT key FROM redis_hash_scan('app', 'person:*')} ], undef, $hashes ],
	[ '`redis_command`', [ q{SELECT redis_command('app', 'ZSCORE', 'board', 'x')} ] ]);
is(join("\n", sort keys %rights), join("\n", sort map { $_->[0] } @cases), 'each line of the page has its test');

sub words { my ($name) = @_; return defined $name ? split / /, $rights{$name} : () }

# Makes the user anew, with these rights, and runs the calls with what they need in Redis. Returns what was said.
sub run_with
{
	my ($case, @words) = @_;
	my ($name, $calls, undef, $before) = @$case;
	$redis->cli('ACL', 'DELUSER', 'app');
	my $answer = $redis->cli('ACL', 'SETUSER', @words);
	die "ACL SETUSER @words: $answer" if $answer ne 'OK';
	$redis->cli('FLUSHALL');
	$redis->cli('FT.CREATE', 'idx:people', 'ON', 'JSON', 'PREFIX', 1, 'person:', 'SCHEMA', '$.name', 'AS', 'name', 'TEXT');
	$node->safe_psql('postgres', "SELECT $before") if $before;
	my $said = '';
	for my $sql (@$calls)
	{
		my ($status, $out, $err) = $node->psql('postgres', $sql);
		$said .= $err;
		$said .= "no rows" if $out eq '' && $status == 0;
	}
	return $said;
}

wait_until('the replica is there', sub { $replica->info('master_link_status') eq 'up' });
my @each = split / /, $each;
for my $case (@cases)
{
	my ($name, undef, $base) = @$case;
	subtest $name => sub {
		my @own = words($name);
		my @base = grep { my $word = $_; !grep { $_ eq $word } @own } words($base);
		is(run_with($case, @each, @base, @own), '', "exactly these do: @own");
		for my $right (@own)
		{
			# a right that is asked for only when a batch is sent a second time
			next if $right eq '+publish' || $right eq '&redis_export';
			my $said = run_with($case, @each, @base, grep { $_ ne $right } @own);
			like($said, qr/ERROR:.*NOPERM/s, "without $right an error");
		}
	};
}

# The rights of the connection may be denied.
subtest 'what each connection asks for' => sub {
	my @rights = grep { /^\+/ } @each;
	is("@rights", '+info +client|id +client|kill +client|setname', 'four rights');
	for my $right (@rights)
	{
		my $said = run_with($cases[0], (grep { $_ ne $right } @each), words('`redis_json_export`'));
		unlike($said, qr/ERROR/, "without $right the export is done");
		like($said, qr/NOTICE/, 'and a NOTICE tells') if $right eq '+info' || $right eq '+client|id';
	}
};

done_testing;
