# RedisExport::Proxy: a bad line to a real Redis, in a process of its own that ends with the test.
#
#   my $proxy = RedisExport::Proxy->new($redis, cut_after => [ 1000, 70_000 ], trickle => 1);
#   add_server($node, $proxy, name => 'far');
#
# cut_after: the first connection is cut after so many bytes from the client, the second after so many, and so on; those after the
# last are not cut. swallow: the first connection over which these bytes come is cut with the answer to them, which does not pass. trickle: the first so many bytes that Redis answers are passed on one at a time. socket => 1: it listens on a Unix
# socket, ->host is its path.
# ->raise('stall') and ->lower('stall'): in between nothing passes. The same with 'hold', but for connections made meanwhile, which
# pass; ->released says how many of those that were held have since come to their end. ->raise('cut') cuts all connections, once. ->connections says how
# many there have been.
package RedisExport::Proxy;

use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use PostgreSQL::Test::Utils;
use RedisExport::Fake ();
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(time);

our @ISA = ('RedisExport::Fake');

my @all;
my $owner = $$;

sub new
{
	my ($class, $redis, %options) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $listener = $options{socket} ? IO::Socket::UNIX->new(Local => "$dir/proxy.sock", Listen => 20)
		: IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 20, ReuseAddr => 1);
	die "no proxy: $!" if !$listener;
	my $self = bless {
		cut_after => [],
		trickle => 0,
		lazy => 0,
		swallow => undef,
		%options,
		redis => $redis->port,
		dir => $dir,
		port => $options{socket} ? $redis->port : $listener->sockport,
	}, $class;
	push @all, $self;
	$self->{pid} = RedisExport::Fake::spawn(sub { $self->_serve($listener) });
	close $listener;
	return $self;
}

sub host { my ($self) = @_; return $self->{socket} ? "$self->{dir}/proxy.sock" : '127.0.0.1' }

sub connections
{
	my ($self) = @_;
	my @files = glob "$self->{dir}/connection.*";
	return scalar @files;
}

sub released
{
	my ($self) = @_;
	my @files = glob "$self->{dir}/released.*";
	return scalar @files;
}

sub _serve
{
	my ($self, $listener) = @_;
	my $select = IO::Select->new($listener);
	my ($count, %pairs, @held) = (0);
	while (getppid == $owner)
	{
		if ($self->flag('stall'))
		{
			select undef, undef, undef, 0.05;
			next;
		}
		if ($self->flag('cut'))
		{
			$self->lower('cut');
			my @ends = grep { $_ != $listener } $select->handles;
			$select->remove(@ends);
			close $_ for @ends;
			%pairs = ();
		}
		if ($self->flag('hold') && !@held)
		{
			@held = grep { $_ != $listener } $select->handles;
			$select->remove(@held);
			$pairs{$_}{held} = 1 for @held;
		}
		elsif (@held && !$self->flag('hold'))
		{
			$select->add(@held);
			@held = ();
		}
		for my $pair (grep { defined $_->{kept} && time - $_->{kept_since} >= $self->{lazy} } values %pairs)
		{
			RedisExport::Fake::write_all($pair->{client}, delete $pair->{kept});
		}
		for my $socket ($select->can_read(0.1))
		{
			if ($socket == $listener)
			{
				my $client = $listener->accept or next;
				my $redis = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{redis});
				if (!$redis)
				{
					close $client;
					next;
				}
				$client->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);
				open my $mark, '>', "$self->{dir}/connection.$count";
				my $pair = { client => $client, redis => $redis, left => $self->{cut_after}[$count++], asked => 0 };
				$pairs{$_} = $pair for $client, $redis;
				$select->add($client, $redis);
				next;
			}
			my $pair = $pairs{$socket} or next;
			next if $self->_pass($pair, $socket);
			open my $mark, '>', "$self->{dir}/released.$socket" if $pair->{held};
			RedisExport::Fake::write_all($pair->{client}, delete $pair->{kept}) if defined $pair->{kept};
			for my $end (@$pair{qw(client redis)})
			{
				$select->remove($end);
				delete $pairs{$end};
				close $end;
			}
		}
	}
	return;
}

# Passes on what one end says. False when that was the end.
sub _pass
{
	my ($self, $pair, $from) = @_;
	sysread($from, my $bytes, 65536) or return 0;
	if ($from == $pair->{redis})
	{
		return 0 if $pair->{swallows};
		while ($self->{trickle} > 0 && length $bytes)
		{
			$self->{trickle}--;
			RedisExport::Fake::write_all($pair->{client}, substr $bytes, 0, 1, '') or return 0;
		}
		if ($self->{lazy} && $pair->{asked} > 1000)
		{
			$pair->{kept_since} = time unless defined $pair->{kept};
			$pair->{kept} .= $bytes;
			return 1;
		}
		return RedisExport::Fake::write_all($pair->{client}, $bytes);
	}
	$pair->{asked} += length $bytes;
	if (defined $self->{swallow} && index($bytes, $self->{swallow}) >= 0)
	{
		$pair->{swallows} = 1;
		$self->{swallow} = undef;
	}
	$bytes = substr $bytes, 0, $pair->{left} if defined $pair->{left} && length $bytes > $pair->{left};
	if (!RedisExport::Fake::write_all($pair->{redis}, $bytes))
	{
		# what it said before it hung up
		while ($self->{lazy} && sysread($pair->{redis}, my $last, 65536))
		{
			$pair->{kept} .= $last;
		}
		return 0;
	}
	return 1 unless defined $pair->{left};
	$pair->{left} -= length $bytes;
	return $pair->{left} > 0;
}

END
{
	local $?;
	if ($$ == $owner)
	{
		RedisExport::Fake::finish($_) for @all;
	}
}

1;
