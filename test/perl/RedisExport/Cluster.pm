# RedisExport::Cluster: a Redis Cluster of the test's own, on loopback. Each node is a RedisExport::Redis, and ends with the test.
#
#   my $cluster = RedisExport::Cluster->new;                     # three masters; Debian's 7.0, without modules
#   my $cluster = RedisExport::Cluster->new(replicas => 1, timeout => 1000, modules => 1, conf => { appendonly => 'yes' });
#   my $cluster = RedisExport::Cluster->new(program => '/…/server');      # another server, 7.0 or later
#   my $cluster = RedisExport::Cluster->new(tls => 'only_name');     # among themselves and to others TLS (RedisExport::Tls), with this certificate
#   my $node = new_node($cluster);                               # ->host, ->port, ->cli are those of the first node
#
#   $cluster->nodes, ->running                 all of them, the first masters first; those that are not stopped
#   $cluster->until_ok                         all that run say ok and tell the same map, and each replica is in step
#   $cluster->owners                           the node of each slot, as the first that runs sees it; see ->ask
#   $cluster->owner($slot), ->holder($key)     the node that has it
#   $cluster->replicas_of($node)
#   $cluster->masters                          those that have slots
#   $cluster->slots_of($node)                  a list of numbers
#   $cluster->id($node), ->address($node)
#   $cluster->tags(@nodes)                     for each of these nodes a tag whose slot it has, braces included
#   $cluster->values_of(@keys)                 the field v of each key, a hash, from wherever it is
#   $cluster->dbsize, ->all_keys                   over all masters: how many keys, and all as a list
#   $cluster->move($from, $to, @slots)         keys and all, slot by slot in the steps that redis-cli takes:
#   $cluster->begin_move($slot, $from, $to), ->move_keys($slot, $from, $to, @keys), ->end_move($slot, $from, $to)
#   $cluster->add                              a node more, that all know and that has no slots
#   $cluster->forget($node)                    takes one out: all others forget it
#   $cluster->failover($replica)               the orderly way; returns when it is the master, as all see it
#   $cluster->raw($node)                       RedisExport::Raw to a node, kept open
#
# And functions:
#   slot_of($key)                              the slot of a key, reckoned here
#   hash_sql($query, $key_template, batch => 10, wait => 'false', …), command_sql($query, [ 'SET', '#{id}', … ], …)
#                                              statements that export; they return "job|state"
#   begin_job($node, $sql)                     such a statement, not waited for; returns the job's number
#   done_ok($node, $job, $rows, $name)         waits for the end, and sees that all these rows are written; returns the job's row
#   nodes_of($node, $job)                      its rows of the view redis_export_nodes, by port
#   nodes_add_up_ok($node, $job)               the rows written to each node are those of the job
#   errors($redis, 'MOVED')                    how many such errors it has answered
#   wait_for($what, sub { … }, $seconds)       until the sub says so
#
# Redis takes two seconds to trust a new cluster, and a node that begins as a master anew.
package RedisExport::Cluster;

use strict;
use warnings;
use Carp;
use Exporter 'import';
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use RedisExport::Raw;
use RedisExport::Redis;
use RedisExport::Test;
use RedisExport::Tls;

our @EXPORT = qw(slot_of hash_sql command_sql begin_job done_ok nodes_of nodes_add_up_ok errors wait_for);

use constant SLOTS => 16384;

sub new
{
	my ($class, %options) = @_;
	my $self = bless {
		masters => 3,
		replicas => 0,
		timeout => 5000,
		modules => 0,
		conf => {},
		%options,
		nodes => [],
		raw => {},
		id => {},
	}, $class;
	my $count = $self->{masters} * (1 + $self->{replicas});
	push @{ $self->{nodes} }, $self->_start for 1 .. $count;
	my @nodes = $self->nodes;
	$self->raw($nodes[$_])->command('CLUSTER', 'SET-CONFIG-EPOCH', $_ + 1) for 0 .. $#nodes;
	$self->_give_slots;
	$self->_meet($_) for @nodes[ 1 .. $#nodes ];
	$self->_until_all_known;
	for my $i ($self->{masters} .. $#nodes)
	{
		$self->raw($nodes[$i])->command('CLUSTER', 'REPLICATE', $self->id($nodes[ $i % $self->{masters} ]));
	}

	# the map leaves out replicas that have received nothing yet, so that all may tell the same before all know who replicates whom
	wait_for('all nodes know the replicas', sub {
		!grep { grep({ $_->{master} ne '-' } $self->_known($_)) < $count - $self->{masters} } @nodes;
	});
	return $self->until_ok;
}

sub nodes   { return @{ $_[0]{nodes} } }
sub running { return grep { $_->pid } $_[0]->nodes }
sub host    { return $_[0]{nodes}[0]->host }
sub port    { return $_[0]{nodes}[0]->port }
sub cli     { my ($self, @command) = @_; return $self->{nodes}[0]->cli(@command) }

# The port of the bus is by default so much higher that there may be no such port.
sub _start
{
	my ($self) = @_;
	my $class = $self->{tls} ? 'RedisExport::Tls' : 'RedisExport::Redis';
	return $class->new(
		modules => $self->{modules},
		program => $self->{program},
		($self->{tls} ? (server => $self->{tls}) : ()),
		conf => {
			($self->{tls} ? ('tls-cluster' => 'yes', 'tls-replication' => 'yes') : ()),
			'cluster-enabled' => 'yes',
			'cluster-port' => PostgreSQL::Test::Cluster::get_free_port(),
			'cluster-node-timeout' => $self->{timeout},
			'cluster-replica-validity-factor' => 0,
			'cluster-allow-replica-migration' => 'no',
			'repl-diskless-sync-delay' => 0,
			'repl-ping-replica-period' => 1,
			($self->{modules} ? (loadmodule => "$ENV{REDIS_BINARIES}/rejson.so") : ()),
			%{ $self->{conf} },
		});
}

sub _give_slots
{
	my ($self) = @_;
	my $masters = $self->{masters};
	for my $i (0 .. $masters - 1)
	{
		my @range = (int(SLOTS * $i / $masters), int(SLOTS * ($i + 1) / $masters) - 1);
		$self->raw($self->{nodes}[$i])->command('CLUSTER', 'ADDSLOTSRANGE', @range);
	}
	return;
}

sub _meet
{
	my ($self, $node) = @_;
	$self->raw($self->{nodes}[0])->command('CLUSTER', 'MEET', $node->host, $node->port, $node->{conf}{'cluster-port'});
	return;
}

# Each knows each other by its name, the handshakes being over.
sub _until_all_known
{
	my ($self) = @_;
	my @running = $self->running;
	wait_for('the nodes know each other', sub {
		!grep {
			my @lines = split /\n/, $self->raw($_)->command('CLUSTER', 'NODES');
			@lines < @running || grep { /handshake|noaddr/ } @lines;
		} @running;
	});
	return;
}

sub raw
{
	my ($self, $node) = @_;
	my $kept = $self->{raw}{ $node->port };
	return $kept->[1] if $kept && $kept->[0] == $node->pid;
	$self->{raw}{ $node->port } = [ $node->pid, RedisExport::Raw->new($node) ];
	return $self->{raw}{ $node->port }[1];
}

sub id
{
	my ($self, $node) = @_;
	return $self->{id}{ $node->port } //= $self->raw($node)->command('CLUSTER', 'MYID');
}

sub address { my ($self, $node) = @_; return $node->host . ':' . $node->port }

# The map as a node sees it: a line for each range, the same for the same.
sub _map
{
	my ($self, $node) = @_;
	my $ranges = eval { $self->raw($node)->command('CLUSTER', 'SLOTS') } // [];
	return join "\n", sort map {
		my ($first, $last, $master, @replicas) = @$_;
		join ' ', $first, $last, $master->[1], sort map { $_->[1] } @replicas;
	} @$ranges;
}

# A process that is frozen does not answer, and is left out: name it.
sub until_ok
{
	my ($self, %options) = @_;
	my @looked_at = grep { my $node = $_; !grep { $_ == $node } @{ $options{but} // [] } } $self->running;
	wait_for('the cluster is ok', sub {
		my %maps = map { $self->_map($_) => 1 } @looked_at;
		return 0 if keys %maps > 1;
		for my $node (@looked_at)
		{
			my $raw = $self->raw($node);
			return 0 if $raw->command('CLUSTER', 'INFO') !~ /^cluster_state:ok\r$/m;
			my $info = $raw->command('INFO', 'replication');
			return 0 if $info =~ /^role:slave\r$/m && $info !~ /^master_link_status:up\r$/m;
		}
		return 1;
	});
	return $self;
}

# Lines of CLUSTER NODES of the first that runs: id, address, flags, master, and the slots.
sub _known
{
	my ($self, $by) = @_;
	$by //= $self->{asked} // ($self->running)[0];
	return map {
		my ($id, $address, $flags, $master, undef, undef, undef, undef, @slots) = split / /;
		{
			id => $id,
			port => $address =~ /:(\d+)@/ ? $1 : 0,
			flags => $flags,
			master => $master,
			slots => [ map { /^(\d+)(?:-(\d+))?$/ ? $1 .. ($2 // $1) : () } @slots ],
		}
	} split /\n/, $self->raw($by)->command('CLUSTER', 'NODES');
}

sub _by_port
{
	my ($self, $port) = @_;
	my ($node) = grep { $_->port == $port || ($_->can('plain_port') && $_->plain_port == $port) } $self->nodes;
	return $node;
}

# Of whom the others are asked, from now on.
sub ask { my ($self, $node) = @_; $self->{asked} = $node; return $self }

sub masters
{
	my ($self) = @_;
	return map { $self->_by_port($_->{port}) } grep { @{ $_->{slots} } } $self->_known;
}

# All at once: the owner of each slot, by number.
sub owners
{
	my ($self) = @_;
	my @owners;
	for my $line ($self->_known)
	{
		my $node = $self->_by_port($line->{port});
		@owners[ @{ $line->{slots} } ] = ($node) x @{ $line->{slots} } if @{ $line->{slots} };
	}
	return @owners;
}

sub owner { my ($self, $slot) = @_; return ($self->owners)[$slot] }
sub holder { my ($self, $key) = @_; return $self->owner(slot_of($key)) }

sub slots_of
{
	my ($self, $node) = @_;
	return map { $self->_by_port($_->{port}) == $node ? @{ $_->{slots} } : () } $self->_known;
}

sub tags
{
	my ($self, @nodes) = @_;
	return map {
		my ($at, $number) = ($_, 0);
		$number++ until $self->holder("{$number}") == $at;
		"{$number}";
	} @nodes;
}

sub values_of
{
	my ($self, @keys) = @_;
	my @owners = $self->owners;
	return map { $self->raw($owners[ slot_of($_) ])->command('HGET', $_, 'v') } @keys;
}

sub replicas_of
{
	my ($self, $node) = @_;
	my $id = $self->id($node);
	return map { $self->_by_port($_->{port}) } grep { $_->{master} eq $id } $self->_known;
}

sub dbsize
{
	my ($self) = @_;
	my $sum = 0;
	$sum += $self->raw($_)->command('DBSIZE') for $self->masters;
	return $sum;
}

sub all_keys
{
	my ($self) = @_;
	return map { @{ $self->raw($_)->command('KEYS', '*') } } $self->masters;
}

sub flush
{
	my ($self) = @_;
	$self->raw($_)->command('FLUSHALL') for $self->masters;
	return $self;
}

# Moving a slot. $from is the node that has it.

sub begin_move
{
	my ($self, $slot, $from, $to) = @_;
	$self->raw($to)->command('CLUSTER', 'SETSLOT', $slot, 'IMPORTING', $self->id($from));
	$self->raw($from)->command('CLUSTER', 'SETSLOT', $slot, 'MIGRATING', $self->id($to));
	return $self;
}

# Without keys: all there are.
sub move_keys
{
	my ($self, $slot, $from, $to, @keys) = @_;
	my $all = !@keys;
	do
	{
		@keys = @{ $self->raw($from)->command('CLUSTER', 'GETKEYSINSLOT', $slot, 100) } if $all;
		return $self unless @keys;
		$self->raw($from)->command('MIGRATE', $to->host, $to->port, '', 0, 5000, 'KEYS', @keys);
	} while ($all);
	return $self;
}

# The new owner first: were it the last that hears of it, the slot would have none for a while.
sub end_move
{
	my ($self, $slot, $from, $to) = @_;
	my $id = $self->id($to);
	my @others = grep { $_ != $from && $_ != $to } $self->masters;
	$self->raw($_)->command('CLUSTER', 'SETSLOT', $slot, 'NODE', $id) for $to, $from, @others;
	return $self;
}

# Many at a time, with the others told by the nodes themselves.
sub move
{
	my ($self, $from, $to, @slots) = @_;
	my $id = $self->id($to);
	for my $slot (@slots)
	{
		$self->begin_move($slot, $from, $to);
		$self->move_keys($slot, $from, $to);
		$self->raw($_)->command('CLUSTER', 'SETSLOT', $slot, 'NODE', $id) for $to, $from;
	}
	return $self;
}

sub add
{
	my ($self) = @_;
	my $new = $self->_start;
	push @{ $self->{nodes} }, $new;
	$self->raw($new)->command('CLUSTER', 'SET-CONFIG-EPOCH', scalar $self->nodes);
	$self->_meet($new);
	$self->_until_all_known;
	$self->until_ok;
	return $new;
}

# As redis-cli does it: the others forget it, and it them.
sub forget
{
	my ($self, $node) = @_;
	my $id = $self->id($node);
	$self->{nodes} = [ grep { $_ != $node } $self->nodes ];
	$self->raw($_)->command('CLUSTER', 'FORGET', $id) for $self->running;
	return $self;
}

sub failover
{
	my ($self, $replica) = @_;
	$self->raw($replica)->command('CLUSTER', 'FAILOVER');
	wait_for('the replica is the master', sub { grep { $_ == $replica } $self->masters });
	return $self->until_ok;
}

# Functions

sub hash_sql
{
	my ($query, $template, %arguments) = @_;
	return _export_sql('redis_hash_export', $query, _literal($template), %arguments);
}

sub command_sql
{
	my ($query, $words, %arguments) = @_;
	return _export_sql('redis_command_export', $query, 'ARRAY[' . join(', ', map { _literal($_) } @$words) . ']', %arguments);
}

sub _export_sql
{
	my ($function, $query, $template, %arguments) = @_;
	my $more = join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
	return "SELECT job, state FROM $function(\$query\$$query\$query\$, $template$more)";
}

sub _literal { my ($text) = @_; return q{'} . $text =~ s/'/''/gr . q{'} }

sub begin_job
{
	my ($node, $sql) = @_;
	my $row = $node->safe_psql('postgres', $sql =~ s/\)\z/, wait => false)/r);
	return $row =~ s/\|.*//r;
}

sub done_ok
{
	my ($node, $job, $rows, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->safe_psql('postgres', "SELECT redis_export_wait($job, '60 s')");
	my $row = job($node, $job);
	is("$row->{state}: $row->{rows_written} written, $row->{rows_failed} failed, $row->{rows_in_doubt} in doubt",
		"done: $rows written, 0 failed, 0 in doubt", $name // 'all rows are written')
		or diag $row->{last_error};
	ledger_ok($node, $job);
	nodes_add_up_ok($node, $job);
	return $row;
}

sub nodes_add_up_ok
{
	my ($node, $job) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql('postgres', "SELECT sum(rows_written) FROM redis_export_nodes WHERE job = $job"), job($node, $job)->{rows_written},
		"the rows of job $job by node add up");
}

sub nodes_of
{
	my ($node, $job) = @_;
	my $rows = $node->safe_psql('postgres', "SELECT coalesce(json_object_agg(port, n), '{}') FROM redis_export_nodes n WHERE job = $job");
	return JSON::PP->new->decode($rows);
}

sub errors
{
	my ($redis, $name) = @_;
	return scalar $redis->cli('INFO', 'errorstats') =~ /^errorstat_$name:count=(\d+)/m ? $1 : 0;
}

sub wait_for
{
	my ($what, $test, $seconds) = @_;
	my $deadline = time + ($seconds // $PostgreSQL::Test::Utils::timeout_default);
	until ($test->())
	{
		croak "never: $what" if time > $deadline;
		sleep 0.05;
	}
	return 1;
}

# Bit by bit, so that it is another way of reckoning than the one that is tested.
sub slot_of
{
	my ($key) = @_;
	$key = $1 if $key =~ /^[^{]*\{([^}]+)\}/s;
	my $crc = 0;
	for my $byte (unpack 'C*', $key)
	{
		$crc ^= $byte << 8;
		$crc = ($crc & 0x8000 ? $crc << 1 ^ 0x1021 : $crc << 1) & 0xffff for 1 .. 8;
	}
	return $crc % SLOTS;
}

1;
