# RedisExport::Wire: a line to a real Redis that remembers every byte that is sent to it.
#
#   my $wire = RedisExport::Wire->new($redis);
#   add_server($node, $wire);
#   my @commands = $wire->commands;            all since the last call, each a list of its words, as they came over the wire
package RedisExport::Wire;

use strict;
use warnings;
use PostgreSQL::Test::Utils;
use RedisExport::Proxy;

our @ISA = ('RedisExport::Proxy');

# Kept before it is passed on: what Redis has answered is there to be read.
sub _pass
{
	my ($self, $pair, $from) = @_;
	return $self->SUPER::_pass($pair, $from) if $from != $pair->{client};
	if (!$pair->{record})
	{
		my $path = sprintf '%s/sent.%06d', $self->{dir}, ++$self->{count};
		open $pair->{record}, '>:raw', $path or die "$path: $!";
	}
	sysread($from, my $bytes, 1 << 20) or return 0;
	return RedisExport::Fake::write_all($pair->{record}, $bytes) && RedisExport::Fake::write_all($pair->{redis}, $bytes);
}

sub commands
{
	my ($self) = @_;
	my @commands;
	for my $path (sort glob "$self->{dir}/sent.*")
	{
		open my $file, '<:raw', $path or die "$path: $!";
		while (defined(my $count = _number($file, '*')))
		{
			push @commands, [ map { _word($file) } 1 .. $count ];
		}
		unlink $path;
	}
	return @commands;
}

sub _number
{
	my ($file, $kind) = @_;
	local $/ = "\r\n";
	my $line = readline $file;
	return undef unless defined $line;
	$line =~ /\A\Q$kind\E(\d+)\r\n\z/ or die 'not RESP: ' . substr $line, 0, 200;
	return $1;
}

sub _word
{
	my ($file) = @_;
	my $length = _number($file, '$') // die 'a command breaks off';
	read($file, my $bytes, $length + 2) == $length + 2 or die 'a command breaks off';
	substr($bytes, -2, 2, '') eq "\r\n" or die "a word of $length bytes has no end";
	return $bytes;
}

1;
