# RedisExport::Redis: a Redis of the test's own, on a free port in a temporary folder. It ends with the test, however that ends.
#
#   my $redis = RedisExport::Redis->new;                    # 8.2.3 with JSON and search, started
#   my $plain = RedisExport::Redis->new(modules => 0);      # the machine's own (Debian 12: 7.0), without modules
#   my $other = RedisExport::Redis->new(program => '/…/server', modules => [ 'rejson' ]);    # another server, and modules by name
#   my $kept  = RedisExport::Redis->new(conf => { appendonly => 'yes', user => [ 'app on >pw ~* +@all', 'off off' ] });
#
#   $redis->port, ->host (127.0.0.1), ->socket, ->pid, ->dir, ->log
#   $redis->cli('JSON.GET', 'a:1')      what redis-cli prints; a list of lines in list context; an error reply is its text
#   $redis->stop, ->kill9, ->start      on the same port and folder; ->restart is stop and start
#   $redis->freeze, ->thaw              SIGSTOP, SIGCONT
#   $redis->info('run_id')              one value of INFO
package RedisExport::Redis;

use strict;
use warnings;
use Carp;
use Cwd qw(realpath);
use File::Path qw(make_path);
use IO::Socket::INET;
use IPC::Run ();
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(sleep time);

my @all;
my $owner = $$;

sub new
{
	my ($class, %options) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $self = bless {
		program => $options{program},
		modules => $options{modules} // 1,
		conf => $options{conf} // {},
		dir => $dir,
		port => PostgreSQL::Test::Cluster::get_free_port(),
		log => sprintf('%s/redis_%d.log', $PostgreSQL::Test::Utils::log_path, scalar @all + 1),
	}, $class;
	push @all, $self;
	$self->start;
	return $self;
}

sub host   { return '127.0.0.1' }
sub port   { return $_[0]{port} }
sub socket { return "$_[0]{dir}/redis.sock" }
sub pid    { return $_[0]{pid} }
sub dir    { return $_[0]{dir} }
sub log    { return slurp_file($_[0]{log}) }

sub start
{
	my ($self) = @_;
	croak 'Redis is running already' if $self->{pid};
	my $binaries = $ENV{REDIS_BINARIES} or croak 'REDIS_BINARIES is not set: run this with test/run';
	my $server = $self->_program;
	$self->_write_conf($binaries);

	my $pid = fork // die "fork: $!";
	if (!$pid)
	{
		chdir $self->{dir};
		exec({ $server } $server, "$self->{dir}/redis.conf") or POSIX::_exit(127);
	}
	$self->{pid} = $pid;
	$self->_wait_until_it_answers;
	return $self;
}

sub _program
{
	my ($self) = @_;
	return $self->{program} // $ENV{REDIS_BINARIES} . ($self->{modules} ? '/redis-server' : '/plain/redis-server');
}

# A setting that is undef is left out, for servers that do not know it.
sub _write_conf
{
	my ($self, $binaries) = @_;
	my @modules = ref $self->{modules} ? @{ $self->{modules} } : $self->{modules} ? qw(redisearch rejson) : ();
	my %conf = (
		bind => '127.0.0.1',
		port => $self->{port},
		unixsocket => $self->socket,
		dir => $self->{dir},
		logfile => realpath($self->{log} =~ s{/[^/]+$}{}r) . $self->{log} =~ s{.*(/)}{$1}r,
		save => '""',
		'enable-debug-command' => 'local',
		(@modules ? (loadmodule => [ map { "$binaries/$_.so" } @modules ]) : ()),
		%{ $self->{conf} });
	open my $file, '>', "$self->{dir}/redis.conf" or die "$self->{dir}/redis.conf: $!";
	for my $name (sort grep { defined $conf{$_} } keys %conf)
	{
		print $file "$name $_\n" for ref $conf{$name} ? @{ $conf{$name} } : $conf{$name};
	}
	close $file;
	return;
}

# Until it has loaded its data and answers anything, be it that a password is wanted.
sub _wait_until_it_answers
{
	my ($self) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	while (time < $deadline)
	{
		if (waitpid($self->{pid}, WNOHANG) == $self->{pid})
		{
			delete $self->{pid};
			croak "Redis did not start:\n" . $self->log;
		}
		my $link = IO::Socket::INET->new(PeerAddr => $self->host, PeerPort => $self->{port}, Timeout => 5);
		if ($link)
		{
			print $link "PING\r\n";
			my $answer = <$link> // '';
			return if $answer =~ /^\+PONG|^-NOAUTH/;
		}
		sleep 0.02;
	}
	croak "Redis does not answer:\n" . $self->log;
}

sub cli
{
	my ($self, @command) = @_;
	local $ENV{REDISCLI_AUTH} = $self->{conf}{requirepass} // '';
	delete local $ENV{REDISCLI_AUTH} if $ENV{REDISCLI_AUTH} eq '';
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'redis-cli', '-h', $self->host, '-p', $self->{port}, @command ],
		'<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	chomp($out .= $err);
	return wantarray ? split(/\n/, $out) : $out;
}

sub info
{
	my ($self, $name) = @_;
	return scalar $self->cli('INFO', 'everything') =~ /^\Q$name\E:(.*?)\r?$/m ? $1 : undef;
}

sub stop  { my ($self) = @_; return $self->_end('TERM') }
sub kill9 { my ($self) = @_; return $self->_end('KILL') }

sub restart
{
	my ($self) = @_;
	$self->stop;
	return $self->start;
}

sub thaw { my ($self) = @_; kill 'CONT', $self->{pid}; return $self }

# Returns when it has really stopped.
sub freeze
{
	my ($self) = @_;
	kill 'STOP', $self->{pid};
	for (1 .. 500)
	{
		last if slurp_file("/proc/$self->{pid}/stat") =~ /\) T /;
		sleep 0.01;
	}
	return $self;
}

# A stopped process takes no SIGTERM before it goes on, so that comes along; after ten seconds there is no more asking.
sub _end
{
	my ($self, $signal) = @_;
	my $pid = delete $self->{pid} or return $self;
	kill $signal, $pid;
	kill 'CONT', $pid;
	for (1 .. 500)
	{
		return $self if waitpid($pid, WNOHANG) != 0;
		sleep 0.02;
	}
	kill 'KILL', $pid;
	waitpid $pid, 0;
	return $self;
}

# The test's own END runs also when it is told to terminate.
$SIG{$_} //= sub { exit 1 } for qw(INT TERM HUP);

END
{
	local $?;
	if ($$ == $owner)
	{
		$_->_end('KILL') for @all;
	}
}

1;
