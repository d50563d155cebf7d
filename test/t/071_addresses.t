# Where Redis is, and who may say so: what can become an address, what a node of a cluster is called, what is told when something
# else listens there, and what a Redis that does not tell everything about itself still is good for.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Cluster;
use RedisExport::Fake;
use RedisExport::Jobs;
use RedisExport::Rows;

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

# ---- What breaks a connection ----------------------------------------------------------------------------------------

subtest 'a row that is more than maxmemory-clients' => sub {
	$redis->cli('CONFIG', 'SET', 'maxmemory-clients', '2mb');
	my $error = error_of(export_sql(q{SELECT i AS id, repeat('x', CASE i WHEN 2 THEN 6000000 ELSE 1 END) AS v FROM generate_series(1, 3) AS i}, value => q{'*'}));
	like($error, qr/row 2 with key "k:2" failed: the connection broke .*HINT:  .*maxmemory-clients/s, 'the hint names it');
	$redis->cli('CONFIG', 'SET', 'maxmemory-clients', '0');
	$redis->cli('FLUSHALL');
};

done_testing;
