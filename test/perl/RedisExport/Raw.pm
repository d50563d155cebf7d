# RedisExport::Raw: a connection to Redis of the test's own, on which bytes are bytes: redis-cli would quote, split lines and lose
# the difference between nil and nothing.
#
#   my $raw = RedisExport::Raw->new($redis);
#   is($raw->command('HGET', "k\r\n\0", 'field'), "\xff", '…')    a string, a number, undef for nil, a list's reference; dies on an error
package RedisExport::Raw;

use strict;
use warnings;
use Carp;
use IO::Socket::INET;
use RedisExport::Fake ();

sub new
{
	my ($class, $redis) = @_;
	my $port = $redis->can('plain_port') ? $redis->plain_port : $redis->port;
	my $socket = IO::Socket::INET->new(PeerAddr => $redis->host, PeerPort => $port, Timeout => 10)
		or die "no connection to Redis: $!";
	binmode $socket;
	return bless { socket => $socket }, $class;
}

sub command
{
	my ($self, @words) = @_;
	RedisExport::Fake::write_all($self->{socket}, join '', '*' . @words . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @words)
		or die "Redis hung up: $!";
	return $self->_reply;
}

sub _reply
{
	my ($self) = @_;
	local $/ = "\r\n";
	my $line = readline $self->{socket};
	defined $line && $line =~ s/\r\n\z// or die 'Redis hung up';
	my $kind = substr $line, 0, 1, '';
	croak $line if $kind eq '-';
	return $line if $kind eq '+' || $kind eq ':';
	return undef if $line < 0;
	return [ map { $self->_reply } 1 .. $line ] if $kind eq '*';
	my $bytes = '';
	while (length $bytes < $line + 2)
	{
		read($self->{socket}, $bytes, $line + 2 - length $bytes, length $bytes) or die 'Redis hung up';
	}
	substr $bytes, -2, 2, '';
	return $bytes;
}

1;
