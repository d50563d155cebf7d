# RedisExport::Test: what the TAP tests say over and over. Using it is enough, it brings Test::More and all the rest along:
#
#   use RedisExport::Test;
#   my $redis = RedisExport::Redis->new;
#   my $node = new_node($redis);                                  # PostgreSQL with the extension and the server "redis"
#   my $session = session($node);                                 # see RedisExport::Session
#   $session->send(q{SELECT redis_json_export('SELECT …', 'a:#{id}')});
#   poll_until($node, q{SELECT state = 'running' FROM redis_export_progress});
#   wait_until('a key is there', sub { redis_keys_count($redis) > 0 });
#   is(redis_keys_count($redis, 'a:*'), 1000, 'all keys');
#   is(job($node)->{state}, 'done', 'it ended well');
#   ledger_ok($node);                                             # of the newest job, or of a given one
#   like(sql_error($node, 'SELECT …'), qr/…/, 'refused');
#   done_testing;
package RedisExport::Test;

use strict;
use warnings;
use Carp;
use Exporter 'import';
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RedisExport::Redis;
use RedisExport::Session;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = (
	qw(new_node add_server export_sql session poll_until wait_until job ledger_ok redis_keys_count sql_error sleep time),
	@Test::More::EXPORT, @PostgreSQL::Test::Utils::EXPORT);

# Whoever runs the tests, the superuser has one name. An initdb of one's own needs -U for it.
$ENV{PGUSER} = 'postgres';

# new_node($redis, name => 'main', conf => "…", init => [ … ]): started; more options are those of the cluster's init.
sub new_node
{
	my ($redis, %options) = @_;
	my $name = delete $options{name} // 'main';
	my $conf = delete $options{conf} // '';
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(extra => [ '--no-locale', '-E', 'UTF8', '-U', 'postgres' ], %options);
	$node->append_conf('postgresql.conf', $conf);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION redis_export');
	add_server($node, $redis) if $redis;
	return $node;
}

# add_server($node, $redis, name => 'redis', timeout => 2, …): a foreign server; more options are the server's.
sub add_server
{
	my ($node, $redis, %options) = @_;
	my $name = delete $options{name} // 'redis';
	%options = (host => $redis->host, port => $redis->port, %options);
	my $list = join ', ', map { "$_ '" . $options{$_} =~ s/'/''/gr . "'" } sort keys %options;
	$node->safe_psql('postgres', "CREATE SERVER $name FOREIGN DATA WRAPPER redis_export OPTIONS ($list)");
	return;
}

# The statement that exports a query's rows; the key template and all arguments that are not defaults by name, as SQL or as text:
#   export_sql('SELECT id, v FROM t', batch => 10, server => q{'far'}, wait => 'false')
# The key template is 'k:#{id}' if there is no other. The statement returns "job|state".
sub export_sql
{
	my ($query, %arguments) = @_;
	my $key = delete $arguments{key_template} // q{'k:#{id}'};
	my $more = join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
	return "SELECT job, state FROM redis_json_export(\$query\$$query\$query\$, $key$more)";
}

sub session { return RedisExport::Session->new(@_) }

# Runs the query ten times a second until it says t; dies with what it said last if it does not within the time.
sub poll_until
{
	my ($node, $query, $seconds) = @_;
	my $deadline = time + ($seconds // $PostgreSQL::Test::Utils::timeout_default);
	my ($out, $err);
	do
	{
		(undef, $out, $err) = $node->psql('postgres', $query);
		return 1 if $out eq 't';
		sleep 0.1;
	} while (time < $deadline);
	croak "never true: $query\nlast answer: $out$err";
}

# The same of what is no query: asks twenty times a second.
sub wait_until
{
	my ($what, $test) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($test->())
	{
		croak "never: $what" if time > $deadline;
		sleep 0.05;
	}
	return;
}

# The newest job's row of the view, or the given job's, as a hash; numbers are numbers and NULL is undef.
sub job
{
	my ($node, $job) = @_;
	my $row = $node->safe_psql('postgres', 'SELECT row_to_json(p) FROM redis_export_progress p '
		. (defined $job ? "WHERE job = $job" : 'ORDER BY job DESC LIMIT 1'));
	return $row eq '' ? undef : JSON::PP->new->decode($row);
}

# The promise of every job however it ends: rows_read = rows_written + rows_unchanged + rows_failed + rows_skipped + rows_in_doubt, and none
# in doubt if done.
sub ledger_ok
{
	my ($node, $job, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $row = job($node, $job) or return fail($name // 'the job is in the view');
	my ($read, $written, $unchanged, $failed, $skipped, $in_doubt) = @$row{qw(rows_read rows_written rows_unchanged rows_failed rows_skipped rows_in_doubt)};
	my $good = ok($read == $written + $unchanged + $failed + $skipped + $in_doubt && ($row->{state} ne 'done' || $in_doubt == 0),
		$name // "the rows of job $row->{job} add up");
	diag "$row->{state}: read $read, written $written, unchanged $unchanged, failed $failed, skipped $skipped, in doubt $in_doubt" unless $good;
	return $good;
}

sub redis_keys_count
{
	my ($redis, $pattern) = @_;
	return $redis->cli('DBSIZE') unless defined $pattern;
	my @keys = $redis->cli('--scan', '--pattern', $pattern);
	return scalar @keys;
}

# The error that a statement ends with, DETAIL and HINT included; empty if it succeeds. SQLSTATE with verbose => 1.
sub sql_error
{
	my ($node, $query, %options) = @_;
	$query = "\\set VERBOSITY verbose\n$query" if delete $options{verbose};
	my ($status, undef, $err) = $node->psql('postgres', $query, %options);
	return $status ? $err =~ s/^psql:<stdin>:\d+: //gmr : '';
}

1;
