# RedisExport::Rows: the rows that most tests of faults export, and whether Redis has them.
#
#   $session->query(rows(4000, batch => 100));           # the statement; arguments are those of export_sql
#   is(wrong_rows($redis, 4000), 0, 'all rows are in Redis as they should be');
#   job_ended($node, 'done', rows_written => 4000);      # the newest job
package RedisExport::Rows;

use strict;
use warnings;
use Exporter 'import';
use RedisExport::Test;

our @EXPORT = qw(rows wrong_rows job_ended);

# The rows 1 to count, with keys k:1 and so on.
sub rows
{
	my ($count, %arguments) = @_;
	return export_sql("SELECT i AS id, 'value ' || i AS v FROM generate_series(1, $count) AS i", value => q{'*'}, %arguments);
}

# How many of them Redis does not hold as they are.
sub wrong_rows
{
	my ($redis, $count) = @_;
	return $redis->cli('EVAL', q{
		local wrong = 0
		for i = 1, ARGV[1] do
			if redis.call('JSON.GET', 'k:' .. i) ~= '{"id":' .. i .. ',"v":"value ' .. i .. '"}' then
				wrong = wrong + 1
			end
		end
		return wrong}, 0, $count);
}

# How the newest job has ended: its state, columns of the view, and the ledger. Returns its row.
sub job_ended
{
	my ($node, $state, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $job = job($node);
	is($job->{state}, $state, "the job is $state") or diag $job->{last_error};
	is($job->{$_}, $expected{$_}, "$_ is $expected{$_}") for sort keys %expected;
	ledger_ok($node);
	return $job;
}

1;
