# RedisExport::Fake: what looks like a Redis and misbehaves as told, in a process of its own that ends with the test.
#
#   my $fake = RedisExport::Fake->new(sub {
#       my ($fake, $client, @words) = @_;             # runs in that process: what it changes, the test does not see
#       return '-OOM no room' if $words[1] eq 'k:3' && !$fake->{refused}++;
#       return '+OK';                                 # a reply without its \r\n; undef: none; CLOSE: hang up
#   });
#   add_server($node, $fake);
#   $fake->commands('JSON.SET')     all such commands so far, as hashes: words (each cut at 200 bytes), reply, client (its number),
#                                   at (when it came), behind (so many bytes had come with it, behind it)
#   $fake->raise('name'), ->lower('name')     flags, that the sub may ask for: $fake->flag('name')
#   return record_does($fake, @words) if is_of_record(@words);     in the sub: the lease and the record of an export, as Redis keeps them
#   $client                         a hash of the connection: number (from 1), socket, and room for the sub's own
#
# INFO, CLIENT, AUTH, SELECT and the DEL with which an export begins are answered as Redis does, unless the sub is given as `all => sub`, which answers these too. With
# `rubbish => $bytes` it sends these bytes, whatever comes in, and no more.
package RedisExport::Fake;

use strict;
use warnings;
use Exporter 'import';
use IO::Select;
use IO::Socket::INET;
use JSON::PP ();
use POSIX ();
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

use constant CLOSE => "\0close";
our @EXPORT = qw(CLOSE is_of_record record_does);

my @all;
my $owner = $$;
my $json = JSON::PP->new->latin1->canonical;

sub new
{
	my ($class, @options) = @_;
	my %options = @options == 1 ? (data => $options[0]) : @options;
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 20, ReuseAddr => 1)
		or die "no fake Redis: $!";
	my $self = bless {
		%options,
		dir => PostgreSQL::Test::Utils::tempdir_short(),
		port => $listener->sockport,
	}, $class;
	push @all, $self;
	$self->{pid} = spawn(sub { $self->_serve($listener) });
	close $listener;
	return $self;
}

sub host { return '127.0.0.1' }
sub port { return $_[0]{port} }
sub pid  { return $_[0]{pid} }

sub raise { my ($self, $name) = @_; open my $file, '>', "$self->{dir}/$name.flag" or die $!; return $self }
sub lower { my ($self, $name) = @_; unlink "$self->{dir}/$name.flag"; return $self }
sub flag  { my ($self, $name) = @_; return -e "$self->{dir}/$name.flag" }

sub commands
{
	my ($self, $name) = @_;
	open my $log, '<', "$self->{dir}/commands" or return ();
	my @commands = map { $json->decode($_) } grep { /\n\z/ } <$log>;
	return grep { !defined $name || $_->{words}[0] eq $name } @commands;
}

sub stop { my ($self) = @_; finish($self); return $self }

sub _serve
{
	my ($self, $listener) = @_;
	my $select = IO::Select->new($listener);
	my ($count, %clients) = (0);
	open my $log, '>>', "$self->{dir}/commands" or POSIX::_exit(1);
	$log->autoflush;
	while (getppid == $owner)
	{
		for my $socket ($select->can_read(0.5))
		{
			if ($socket == $listener)
			{
				my $new = $listener->accept or next;
				$clients{$new} = { number => ++$count, socket => $new, in => '' };
				$select->add($new);
				next;
			}
			my $client = $clients{$socket};
			next if sysread($socket, $client->{in}, 1 << 20, length $client->{in}) && $self->_answer($client, $log);
			delete $clients{$socket};
			$select->remove($socket);
			close $socket;
		}
	}
	return;
}

# Answers all that is there whole. False to hang up.
sub _answer
{
	my ($self, $client, $log) = @_;
	if (defined $self->{rubbish})
	{
		syswrite $client->{socket}, $self->{rubbish};
		return 0;
	}
	my ($out, $good) = ('', 1);
	while ($good and my $words = $self->_command($client))
	{
		my $reply = $self->{all} ? $self->{all}->($self, $client, @$words)
			: $self->_login($client, @$words) // $self->{data}->($self, $client, @$words);
		print $log $json->encode({ client => $client->{number}, at => time, behind => length $client->{in}, reply => $reply, words => [ map { substr $_, 0, 200 } @$words ] }), "\n";
		$good = 0 if defined $reply && $reply eq CLOSE;
		$out .= "$reply\r\n" if $good && defined $reply;
	}
	$client->{socket}->blocking(1);
	return write_all($client->{socket}, $out) && $good;
}

sub _login
{
	my ($self, $client, $name, $key) = @_;
	return '+OK' if $name =~ /^(?:CLIENT|AUTH|SELECT)$/;
	return undef if $name ne 'INFO';
	my $info = "run_id:" . 'f' x 40 . "\r\nloading:0\r\nevicted_keys:0\r\ncluster_enabled:0\r\n";
	return '$' . length($info) . "\r\n$info";
}

# The next command that has come in whole. A long one is not looked at again before it can be.
sub _command
{
	my ($self, $client) = @_;
	return undef if length $client->{in} < ($client->{need} // 1);
	my ($at, @words) = (0);
	my $header = sub {
		pos($client->{in}) = $at;
		$client->{in} =~ /\G[*\$](\d+)\r\n/g or return undef;
		$at = pos $client->{in};
		return $1;
	};
	my $count = $header->() // return undef;
	for (1 .. $count)
	{
		my $length = $header->() // return undef;
		$client->{need} = $at + $length + 2;
		return undef if length $client->{in} < $client->{need};
		push @words, substr $client->{in}, $at, $length;
		$at += $length + 2;
	}
	substr $client->{in}, 0, $at, '';
	delete $client->{need};
	return \@words;
}

# Functions for this and for RedisExport::Proxy.

# A process that runs the sub and none of the test's own ends.
sub spawn
{
	my ($sub) = @_;
	my $pid = fork // die "fork: $!";
	return $pid if $pid;
	$SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);
	$SIG{PIPE} = 'IGNORE';
	eval { $sub->(); 1 } or print STDERR "fake Redis: $@";
	POSIX::_exit(0);
}

sub finish
{
	my ($self) = @_;
	my $pid = delete $self->{pid} or return;
	kill 'KILL', $pid;
	waitpid $pid, 0;
	return;
}

sub write_all
{
	my ($socket, $bytes) = @_;
	my $at = 0;
	while ($at < length $bytes)
	{
		$at += syswrite($socket, $bytes, 65536, $at) // return 0;
	}
	return 1;
}

END
{
	local $?;
	if ($$ == $owner)
	{
		finish($_) for @all;
	}
}

# Is it about the record of an export, or its lease, and not about its books?
sub is_of_record { return ($_[1] // '') =~ /^redis_export:/ && $_[1] !~ /:keys(?::.*)?\z/ }

# What a Redis answers then. The sub calls it.
sub record_does
{
	my ($fake, $name, $key, @rest) = @_;
	my $records = $fake->{records} //= {};
	my $bulk = sub { return defined $_[0] ? '$' . length($_[0]) . "\r\n$_[0]" : '$-1' };
	return '*' . 2 * keys(%{ $records->{$key} }) . join '', map { "\r\n" . $bulk->($_) } %{ $records->{$key} // {} } if $name eq 'HGETALL';
	return $bulk->($records->{$key}{ $rest[0] }) if $name eq 'HGET';
	return $bulk->($records->{$key}) if $name eq 'GET';
	return ':1' if $name eq 'HSET' && do { %{ $records->{$key} } = (%{ $records->{$key} // {} }, @rest); 1 };
	return ':1' if $name eq 'HDEL' && do { delete @{ $records->{$key} }{@rest}; 1 };
	return exists $records->{$key} ? '$-1' : do { $records->{$key} = $rest[0]; '+OK' } if $name eq 'SET';
	return ':' . (defined delete $records->{$key} ? 1 : 0) if $name eq 'DEL';
	return ':1' if $name eq 'SADD' || $name eq 'PEXPIRE';
	return "-ERR unknown command '$name'";
}

1;
