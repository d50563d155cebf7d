# RedisExport::Sentinel: sentinels (the machine's own Redis), and masters with replicas for them to watch.
#
#   my ($master, @replicas) = redis_group(2);               # RedisExport::Redis with JSON, the replicas in step
#   my ($master, $replica) = redis_group(1, program => …, modules => …, conf => {…});    # another server, see RedisExport::Redis
#   my @sentinels = sentinels(3, main => [ $master, @replicas ], …);    # who know them all, and each other
#   sentinel_server($node, \@sentinels, 'main', name => 's', timeout => 2, …);   # a foreign server; where instead of a sentinel
#                                                           # there is a text, it is put into the list of hosts as it is
#   impatient('main', $sentinel)        a master that is silent for a second is down; before that, none ever is
#   told_master('main', @sentinels)     the port of the master that all of them tell, or 0 if they do not agree
#   cut_off($master, @replicas)         from now on the replicas get nothing, but can still be made the master
#   reunite(@replicas)
#
# One sentinel by itself: RedisExport::Sentinel->new(conf => {…})->watch('main', $redis->port); with tls => 1 its ->port is
# one of TLS. It sees at once what takes others seconds. All else is RedisExport::Redis.
package RedisExport::Sentinel;

use strict;
use warnings;
use Carp;
use Exporter 'import';
use POSIX ();
use PostgreSQL::Test::Cluster;
use RedisExport::Redis;
use RedisExport::Test qw(wait_until);
use RedisExport::Tls ();
use Time::HiRes qw(sleep time);

our @ISA = ('RedisExport::Redis');
our @EXPORT = qw(redis_group sentinels sentinel_server impatient told_master cut_off reunite);

sub new
{
	my ($class, %options) = @_;
	my $tls_port = delete $options{tls} && PostgreSQL::Test::Cluster::get_free_port();
	my %tls = $tls_port ? ('tls-port' => $tls_port, 'tls-ca-cert-file' => RedisExport::Tls::tls_file('ca.crt'), 'tls-auth-clients' => 'no',
		'tls-cert-file' => RedisExport::Tls::tls_file('server.crt'), 'tls-key-file' => RedisExport::Tls::tls_file('server.key')) : ();
	my $self = $class->SUPER::new(modules => 0, %options, conf => { %tls, %{ $options{conf} // {} } });
	$self->{tls_port} = $tls_port;
	# what it does every second or two by itself, or every ten, and how long it stands aside after it was stopped; the period of its
	# pings is also that in which a replica must have answered to be made the master
	my $answer = $self->cli('SENTINEL', 'DEBUG', 'info-period', 200, 'ask-period', 100, 'publish-period', 200, 'tilt-period', 500);
	croak "SENTINEL DEBUG: $answer" unless $answer =~ /^OK$|Unknown subcommand/;    # 6.2 keeps its own
	return $self;
}

sub port { return $_[0]{tls_port} || $_[0]{port} }

# It keeps what it knows in its configuration. By that name the program is a sentinel.
sub start
{
	my ($self) = @_;
	my $server = $self->_program;
	$self->_write_conf($ENV{REDIS_BINARIES}) unless -e "$self->{dir}/redis.conf";
	my $pid = fork // die "fork: $!";
	if (!$pid)
	{
		chdir $self->{dir};
		exec({ $server } 'redis-sentinel', "$self->{dir}/redis.conf", '--sentinel') or POSIX::_exit(127);
	}
	$self->{pid} = $pid;
	$self->_wait_until_it_answers;
	return $self;
}

sub tell
{
	my ($self, @command) = @_;
	my $answer = $self->cli(@command);
	croak "@command: $answer" if $answer ne 'OK';
	return $self;
}

sub watch
{
	my ($self, $service, $port) = @_;
	$self->tell('SENTINEL', 'MONITOR', $service, '127.0.0.1', $port, 1);
	return $self->tell('SENTINEL', 'SET', $service, 'down-after-milliseconds', 3_600_000, 'failover-timeout', 2000);
}

# One value of what it tells of a service.
sub about
{
	my ($self, $service, $name) = @_;
	my %values = $self->cli('SENTINEL', 'MASTER', $service);
	return $values{$name} // '';
}

sub redis_group
{
	my ($count, %options) = @_;
	%options = (program => "$ENV{REDIS_BINARIES}/plain/redis-server", modules => [ 'rejson' ], %options);
	my %conf = ('repl-diskless-sync-delay' => 0, 'repl-ping-replica-period' => 1, %{ $options{conf} // {} });
	my $master = RedisExport::Redis->new(%options, conf => \%conf);
	my @replicas = map { RedisExport::Redis->new(%options, conf => { %conf, replicaof => '127.0.0.1 ' . $master->port }) } 1 .. $count;
	wait_until('the replicas are in step', sub { !grep { ($_->info('master_link_status') // '') ne 'up' } @replicas });
	return ($master, @replicas);
}

sub sentinels
{
	my ($count, %services) = @_;
	my @sentinels = map { RedisExport::Sentinel->new } 1 .. $count;
	for my $service (sort keys %services)
	{
		# any of them may call for a failover, which the most of them have to agree to
		$_->watch($service, $services{$service}[0]->port) for @sentinels;
	}
	for my $service (sort keys %services)
	{
		my $replicas = $#{ $services{$service} };
		wait_until('the sentinels know each other and the replicas', sub {
			!grep { $_->about($service, 'num-other-sentinels') ne $count - 1 || $_->about($service, 'num-slaves') ne $replicas } @sentinels
		});
	}
	return @sentinels;
}

sub sentinel_server
{
	my ($node, $sentinels, $service, %options) = @_;
	my $hosts = join ',', map { ref $_ ? $_->host . ':' . $_->port : $_ } @$sentinels;
	%options = (name => 'redis', sentinel_hosts => $hosts, sentinel_service => $service, %options);
	my $name = delete $options{name};
	my $list = join ', ', map { "$_ '" . $options{$_} =~ s/'/''/gr . "'" } grep { defined $options{$_} } sort keys %options;
	$node->safe_psql('postgres', "CREATE SERVER $name FOREIGN DATA WRAPPER redis_export OPTIONS ($list)");
	return $name;
}

sub impatient
{
	my ($service, $sentinel) = @_;
	$sentinel->tell('SENTINEL', 'SET', $service, 'down-after-milliseconds', 1000);
	return;
}

sub told_master
{
	my ($service, @sentinels) = @_;
	my %told;
	for my $sentinel (@sentinels)
	{
		my ($host, $port) = $sentinel->cli('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', $service);
		$told{ $port // 0 } = 1;
	}
	my @ports = keys %told;
	return @ports == 1 ? $ports[0] : 0;
}

# A password that the master does not know: what was sent before is in the replicas, and nothing comes after.
sub cut_off
{
	my ($master, @replicas) = @_;
	$_->cli('CONFIG', 'SET', 'masterauth', 'unknown') for @replicas;
	$master->cli('CLIENT', 'KILL', 'TYPE', 'replica');
	wait_until('the replicas are cut off', sub { $master->info('connected_slaves') == 0 });
	return;
}

sub reunite
{
	my (@replicas) = @_;
	$_->cli('CONFIG', 'SET', 'masterauth', '') for @replicas;
	return;
}

1;
