# What redis_export_verify says, and what prune deletes on its word: which keys a template can make, by the types of its columns.
use strict;
use warnings;
use RedisExport::Test;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\n");

sub sql { return $node->safe_psql('postgres', $_[0]) }

$node->safe_psql('postgres', q{
	CREATE DOMAIN positive AS int CHECK (VALUE > 0);
	CREATE DOMAIN order_id AS positive;
	CREATE DOMAIN ticket AS uuid;
	CREATE TYPE mood AS ENUM ('sad', 'glad')});

# ---- Which keys a template can make ----------------------------------------------------------------------------------

my $uuid = '0f8fad5b-d9cb-469f-a165-70867728950e';
my @not_integers = ('', '-', '-0', '+1', '00', '007', '-01', '1-1', '12-3', '2026-01-01', '1.0', '1e3', '1 ', ' 1', "1\n", '1:2', 'x', '0x1', '١', '99999999999999999999', '1' x 5000);
my @not_uuids = ('', 'statistics', uc $uuid, "{$uuid}", $uuid =~ s/-//gr, "$uuid-", substr($uuid, 1), "0$uuid", $uuid =~ s/f/g/r, $uuid =~ s/-/0/r, '-' x 36, 'a' x 36);

# Of a type, and the value of its row: what it can write, and what it cannot.
my @types = (
	[ 'int2', '1', [ qw(0 -1 7 32767 -32768) ], [ @not_integers, '32768', '-32769' ] ],
	[ 'int4', '1', [ qw(0 -1 7 2147483647 -2147483648) ], [ @not_integers, '2147483648', '-2147483649' ] ],
	[ 'int8', '1', [ qw(0 -1 7 9223372036854775807 -9223372036854775808) ], [ @not_integers, '9223372036854775808', '-9223372036854775809', '18446744073709551617' ] ],
	[ 'order_id', '1', [ '7' ], \@not_integers ],
	[ 'uuid', $uuid, [ '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff' ], \@not_uuids ],
	[ 'ticket', $uuid, [ '00000000-0000-0000-0000-000000000000' ], \@not_uuids ],
	[ 'boolean', 'true', [ 'f' ], [ '', 'true', 'false', 'T', '1', 'tf' ] ],
	[ 'date', '2026-02-03', [ '2024-02-29', '0001-01-01', '9999-12-31' ],
		[ '', '2023-02-29', '2026-13-01', '2026-00-01', '2026-1-1', '2026-01-00', '2026-04-31', '0000-01-01', '2026-01-01 ', '2026:01:01', '20260101', '02026-01-01', 'today', '--------01' ] ]);

sub set_documents { my ($prefix, @ends) = @_; $redis->cli('JSON.SET', "$prefix$_", '$', '1') for @ends; return }

# As hexadecimal, so that any byte comes through.
sub sql_keys
{
	my ($pattern) = @_;
	return map { pack 'H*', $_ } split /\n/, sql("SELECT encode(convert_to(key, 'UTF8'), 'hex') FROM redis_scan('redis', '$pattern') AS key");
}

sub ends { my ($prefix, @keys) = @_; return [ sort map { substr $_, length $prefix } @keys ] }

sub extra
{
	my ($query, $template) = @_;
	return map { pack 'H*', $_ } split /\n/,
		sql("SELECT encode(convert_to(key, 'UTF8'), 'hex') FROM redis_export_verify(\$q\$$query\$q\$, '$template', value => '*', examples => 1000), unnest(extra_keys) AS key");
}

sub prune
{
	my ($query, $template) = @_;
	return sql("SELECT state, rows_pruned FROM redis_json_export(\$q\$$query\$q\$, '$template', value => '*', prune => true, prune_limit => 1)");
}

for my $type (@types)
{
	my ($name, $value, $written, $not) = @$type;
	subtest "a column of type $name" => sub {
		$redis->cli('FLUSHALL');
		set_documents('p:', @$written, @$not);
		my $query = "SELECT '$value'::$name AS id";
		is_deeply(ends('p:', extra($query, 'p:#{id}')), [ sort @$written ], 'what it can write is extra, and nothing else');
		is(prune($query, 'p:#{id}'), 'done|' . @$written, 'and goes');
		is_deeply(ends('p:', sql_keys('p:*')), [ sort $value eq 'true' ? 't' : $value, @$not ], 'what it cannot write stays');
		is(prune("$query WHERE false", 'p:#{id}'), 'done|1', 'so without rows');
	};
}

subtest 'item:1-1 is none of item:#{id}' => sub {
	$redis->cli('FLUSHALL');
	sql("SELECT redis_json_export('SELECT 1 AS a, 1 AS b', 'item:#{a}-#{b}')");
	is(prune('SELECT 1 AS id', 'item:#{id}'), 'done|0', 'nothing is pruned');
	is($redis->cli('EXISTS', 'item:1-1'), 1, 'it is there');
};

subtest 'several columns' => sub {
	$redis->cli('FLUSHALL');
	set_documents('p:', '3-4', '3--4', '-3-4', '0-0', '3-4-5', '3-', '-4', '34', '03-4', '3--04', '3-4x');
	is_deeply(ends('p:', extra('SELECT 1 AS a, 2 AS b', 'p:#{a}-#{b}')), [ sort '3-4', '3--4', '-3-4', '0-0' ], 'between two integers');
	is(prune('SELECT 1 AS a, 2 AS b', 'p:#{a}-#{b}'), 'done|4', 'these go');
	$redis->cli('FLUSHALL');
	set_documents('p:', "12:$uuid:x", "12:$uuid", "1$uuid:x", "12:$uuid:x:x", "12:t:$uuid:x");
	is_deeply(ends('p:', extra("SELECT 1 AS a, '$uuid'::uuid AS b", 'p:#{a}:#{b}:x')), [ "12:$uuid:x" ], 'an integer, a uuid and a literal');
	$redis->cli('FLUSHALL');
	set_documents('p:', '12', '1-2', '-1-2', '1', '0', '00', '-', '1--2');
	is_deeply(ends('p:', extra('SELECT 5 AS a, 6 AS b', 'p:#{a}#{b}')), [ sort '12', '1-2', '-1-2', '00' ], 'one right behind the other');
};

# What is deleted must be known to be ours.
subtest 'types that can write anything' => sub {
	$redis->cli('FLUSHALL');
	set_documents('p:', 'a', 'a:b', '', '1');
	for my $type (qw(text varchar bpchar name numeric float8 json timestamptz interval bytea mood int4[] oid))
	{
		my $query = "SELECT NULL::$type AS id, 1 AS n";
		like(sql_error($node, "SELECT redis_hash_export('$query', 'p:#{id}', prune => true)", verbose => 1),
			qr/^ERROR:  0A000: prune cannot be used with a key template that has column "id"\nDETAIL:  Values of type .+ can look like .*\nHINT:  .*redis_scan/, $type);
	}
	is(sql('SELECT count(*) FROM redis_export_progress WHERE rows_read > 1'), 0, 'no job has begun');
	like(sql_error($node, q{SELECT redis_hash_export('SELECT 1 AS id, NULL::text AS t', 'p:#{id}:#{t}', prune => true)}), qr/column "t"/, 'one of two columns');
	is(sql_error($node, q{SELECT redis_hash_export('SELECT 1 AS id, NULL::text AS t', 'q:#{id}', prune => true)}), '', 'a column that is not in the key may be anything');
	is_deeply(ends('p:', sql_keys('p:*')), [ sort 'a', 'a:b', '', '1' ], 'nothing is deleted');
};

subtest 'extra keys, where a column can write anything' => sub {
	$redis->cli('FLUSHALL');
	set_documents('p:', 'a', 'a:b', '', '1');
	is_deeply(ends('p:', extra(q{SELECT 'x'::text AS id}, 'p:#{id}')), [ sort 'a', 'a:b', '', '1' ], 'are all that have the literals');
	$redis->cli('FLUSHALL');
	set_documents('p:', 'a:1', 'a:b:-1', ':1', 'a:1:', 'a:01', 'a', '1', 'a:b');
	is_deeply(ends('p:', extra(q{SELECT 'x'::text AS t, 2 AS id}, 'p:#{t}:#{id}')), [ sort 'a:1', 'a:b:-1', ':1' ], 'and what the others can write');
	is_deeply(ends('p:', extra(q{SELECT 'x'::text AS t, 2 AS id WHERE false}, 'p:#{t}:#{id}')), [ sort 'a:1', 'a:b:-1', ':1' ], 'without rows the same');
};

done_testing;
