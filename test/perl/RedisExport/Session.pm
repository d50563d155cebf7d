# RedisExport::Session: a psql session that goes on while the test does something else.
#
#   my $session = RedisExport::Session->new($node, dbname => 'postgres', user => 'alice');
#   my $rows = $session->query('SELECT 1');        # waits; dies if it was an error
#   $session->send('SELECT redis_json_export(…)'); # returns at once
#   ok $session->busy;
#   my ($out, $err) = $session->wait;              # what it printed, notices and errors in $err
#   $session->messages                             # notices that have come so far
#   $session->pid                                  # of its backend
#   $session->quit; $session->kill_client          # orderly; as if the client's machine went away
package RedisExport::Session;

use strict;
use warnings;
use Carp;
use IPC::Run ();

my $timeout = $ENV{PG_TEST_TIMEOUT_DEFAULT} || 120;

sub new
{
	my ($class, $node, %options) = @_;
	my $connection = $node->connstr($options{dbname} // 'postgres');
	$connection .= " user='$options{user}'" if $options{user};
	my $self = bless { in => '', out => '', err => '', count => 0 }, $class;
	$self->{timer} = IPC::Run::timer($timeout);
	$self->{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $connection, '-f', '-' ],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err}, $self->{timer});
	$self->{pid} = $self->query('SELECT pg_backend_pid()');
	return $self;
}

sub pid { return $_[0]{pid} }

sub send
{
	my ($self, $sql) = @_;
	croak 'the last statement has not been waited for' if $self->{mark};
	$self->{mark} = 'end of statement ' . ++$self->{count};
	$self->{in} .= "$sql\n;\n\\echo '$self->{mark}'\n\\warn '$self->{mark}'\n";
	$self->{timer}->start;
	$self->{run}->pump_nb;
	return $self;
}

sub _done
{
	my ($self) = @_;
	return $self->{out} =~ /^\Q$self->{mark}\E\n/m && $self->{err} =~ /^\Q$self->{mark}\E\n/m;
}

sub busy
{
	my ($self) = @_;
	return 0 unless $self->{mark};
	$self->{run}->pump_nb;
	return !$self->_done;
}

# A session whose backend was terminated ends too: then there is no mark, but all that was printed.
sub wait
{
	my ($self) = @_;
	croak 'nothing to wait for' unless $self->{mark};
	while (!$self->_done && $self->{run}->pumpable)
	{
		croak "no end after $timeout seconds; so far: $self->{out}$self->{err}" if $self->{timer}->is_expired;
		eval { $self->{run}->pump; 1 } or last;
	}
	s/^\Q$self->{mark}\E\n//m for $self->{out}, $self->{err};
	my ($out, $err) = @$self{qw(out err)};
	@$self{qw(out err mark)} = ('', '', undef);
	chomp($out, $err);
	return wantarray ? ($out, $err) : $out;
}

sub query
{
	my ($self, $sql) = @_;
	my ($out, $err) = $self->send($sql)->wait;
	croak "query failed: $err" if $err =~ /^(?:psql:.*? )?(?:ERROR|FATAL|PANIC):/m;
	return $out;
}

sub messages
{
	my ($self) = @_;
	$self->{run}->pump_nb;
	return $self->{err};
}

sub quit
{
	my ($self) = @_;
	$self->{in} .= "\\q\n";
	eval { $self->{run}->finish };
	return;
}

sub kill_client
{
	my ($self) = @_;
	$self->{run}->kill_kill(grace => 0);
	return;
}

1;
