# RedisExport::Named: runs of exports that have a name.
#
#   my $sql = run_sql($node, 'people', 'SELECT …', 'person:#{id}', type => q{'hash'}, batch => 100);    # $node or a session
#   $session->query($sql);
#
# The export is defined so by the call, if there is none of this name, and others with its keys go; otherwise its query, server, value, ttl, watermark and wait_index are changed
# to these, and the id of its definition stays, and with it what Redis holds. Of the arguments, in SQL, those are told apart that are
# the definition's.
package RedisExport::Named;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT = qw(run_sql);

sub run_sql
{
	my ($where, $name, $query, $template, %arguments) = @_;
	my %definition = map { exists $arguments{$_} ? ($_ => delete $arguments{$_}) : () } qw(server type value exclude replace ttl ttl_column watermark_column overlap wait_index);
	my $quoted = "\$query\$$query\$query\$";
	my $more = join '', map { ", $_ => $definition{$_}" } sort keys %definition;
	my %now = (server => q{'redis'}, value => 'value', ttl => 'NULL', ttl_column => 'NULL', watermark_column => 'NULL', overlap => 'NULL', wait_index => 'NULL', %definition);
	# keys are those of one export
	my $sql = "DELETE FROM redis_export_definition WHERE name <> '$name' AND key_template = '$template' AND server = $now{server};"
		. " SELECT redis_export_define('$name', $quoted, '$template'$more) WHERE NOT EXISTS (SELECT FROM redis_export_definition WHERE name = '$name');"
		. " UPDATE redis_export_definition SET query = $quoted, " . join(', ', map { "$_ = $now{$_}" } qw(server value ttl ttl_column watermark_column overlap wait_index)) . " WHERE name = '$name'";
	$where->can('safe_psql') ? $where->safe_psql('postgres', $sql) : $where->query($sql);
	return "CALL redis_export_run('$name'" . join('', map { ", $_ => $arguments{$_}" } sort keys %arguments) . ')';
}

1;
