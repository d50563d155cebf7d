# RedisExport::Sentinel: sentinels (Debian's Redis 7.0), and a master with replicas for them to watch.
#
#   my ($master, @replicas) = redis_group(2);                      # RedisExport::Redis, with JSON, in step; more options are of conf
#   my @sentinels = sentinels(3, main => [ $master, @replicas ]);   # who know them all, and each other
#   add_server($node, …): see sentinel_server
#   sentinel_server($node, 'name', \@sentinels, 'main', timeout => 2, …)     # a foreign server; a sentinel is an object or a text
#   impatient('main', @sentinels), patient(…)   from now on a master that is silent for half a second is down; or, as at first, none is
#   told_master('main', @sentinels)             the port of the master that all of them tell; 0 if they do not agree
#   cut_off($master, @replicas)                 replicas get nothing from it any more, and would lack it after a failover
#   reunite(@replicas)
#
# A sentinel by itself, for one with a password or TLS: RedisExport::Sentinel->new(conf => {…}); everything else is RedisExport::Redis.
# Its ->watch('main', $redis, quorum => 1, port => …) goes on at once.
package RedisExport::Sentinel;

use strict;
use warnings;
use Carp;
use Exporter 'import';
use RedisExport::Redis;
use Time::HiRes qw(sleep time);

our @ISA = ('RedisExport::Redis');
our @EXPORT = qw(redis_group sentinels sentinel_server impatient patient told_master cut_off reunite wait_until);

sub new
{
	my ($class, %options) = @_;
	my $self = $class->SUPER::new(modules => 0, %options);
	# What it does every second or two, and every ten, it does all the time. A frozen machine is no reason to stand back for long.
	$self->command('SENTINEL', 'DEBUG', 'info-period', 200, 'ping-period', 100, 'ask-period', 100, 'publish-period', 200,
		'tilt-period', 500, 'default-down-after', 3_600_000, 'default-failover-timeout', 3000);
	return $self;
}

# It keeps what it knows in its configuration.
sub _write_conf
{
	my ($self, @arguments) = @_;
	return if $self->{written}++;
	return $self->SUPER::_write_conf(@arguments);
}

# By that name the program is a sentinel.
sub start
{
	my ($self) = @_;
	local $ENV{REDIS_BINARIES} = "$self->{dir}/bin";
	if (!-e "$self->{dir}/bin")
	{
		mkdir "$self->{dir}/bin" or die $!;
	}
	return $self->SUPER::start;
}

sub command
{
	my ($self, @words) = @_;
	my $answer = $self->cli(@words);
	croak "@words: $answer" if $answer ne 'OK';
	return;
}

1;
