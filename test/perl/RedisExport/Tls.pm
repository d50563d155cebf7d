# RedisExport::Tls: a Redis that speaks TLS (the machine's own, with JSON), and certificates for it, all made by openssl for this test.
#
#   my $redis = RedisExport::Tls->new;                                   # its certificate is server.crt
#   my $strict = RedisExport::Tls->new(server => 'expired', conf => { 'tls-auth-clients' => 'yes' });
#   add_server($node, $redis, tls => 'true', tls_ca_file => tls_file('ca.crt'));
#   $redis->present('other_name');      # this certificate from now on
#
# ->port is its TLS port, for add_server and RedisExport::Proxy; ->cli, ->info and ->plain_port are at one without. Everything else
# is RedisExport::Redis.
#
# tls_file('NAME.crt') and tls_file('NAME.key') are
#   ca          the authority that has signed all that follow
#   server      for localhost, redis.example.com and 127.0.0.1; with expired, other_name (and other address), stranger (by another
#               authority, which is stranger_ca), wildcard (*.example.com, and no address) and only_name (localhost, and no address)
#   client      of a client; client_expired and client_stranger; client_locked.key has a passphrase, and is of client.crt
package RedisExport::Tls;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RedisExport::Redis;

our @ISA = ('RedisExport::Redis');
our @EXPORT = qw(tls_file);

my $dir;
my $good_names = 'DNS:localhost,DNS:redis.example.com,IP:127.0.0.1';
# A certificate of no days ends in the second in which it is made.
my %certificates = (
	server => { names => $good_names },
	expired => { names => $good_names, days => 0 },
	other_name => { names => 'DNS:other.example.com,IP:127.0.0.2' },
	only_name => { names => 'DNS:localhost' },
	wildcard => { names => 'DNS:*.example.com' },
	stranger => { names => $good_names, by => 'stranger_ca' },
	client => {},
	client_expired => { days => 0 },
	client_stranger => { by => 'stranger_ca' });

sub new
{
	my ($class, %options) = @_;
	my $server = delete $options{server} // 'server';
	my $tls_port = PostgreSQL::Test::Cluster::get_free_port();
	my $self = $class->SUPER::new(modules => 0, %options, conf => {
		loadmodule => "$ENV{REDIS_BINARIES}/rejson.so",
		'tls-port' => $tls_port,
		'tls-ca-cert-file' => tls_file('ca.crt'),
		'tls-cert-file' => tls_file("$server.crt"),
		'tls-key-file' => tls_file("$server.key"),
		'tls-auth-clients' => 'no',
		%{ $options{conf} // {} } });
	$self->{tls_port} = $tls_port;
	return $self;
}

sub port       { return $_[0]{tls_port} }
sub plain_port { return $_[0]{port} }

sub present
{
	my ($self, $name) = @_;
	my $answer = $self->cli('CONFIG', 'SET', 'tls-cert-file', tls_file("$name.crt"), 'tls-key-file', tls_file("$name.key"));
	die "CONFIG SET: $answer" if $answer ne 'OK';
	return $self;
}

sub tls_file
{
	my ($name) = @_;
	make_certificates() if !defined $dir;
	-e "$dir/$name" or die "there is no $name";
	return "$dir/$name";
}

sub make_certificates
{
	$dir = PostgreSQL::Test::Utils::tempdir_short();
	append_to_file("$dir/openssl.cnf", "[req]\ndistinguished_name = dn\nx509_extensions = ca\n[dn]\n"
		. "[ca]\nbasicConstraints = critical,CA:true\nsubjectKeyIdentifier = hash\n");
	my @key = (qw(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config), "$dir/openssl.cnf");
	for my $ca ('ca', 'stranger_ca')
	{
		openssl(qw(req -x509 -days 10), @key, '-subj', "/CN=$ca", '-keyout', "$dir/$ca.key", '-out', "$dir/$ca.crt");
	}
	for my $name (sort keys %certificates)
	{
		my %of = (days => 5, by => 'ca', %{ $certificates{$name} });
		append_to_file("$dir/$name.ext", $of{names} ? "subjectAltName = $of{names}\n" : "extendedKeyUsage = clientAuth\n");
		openssl(qw(req -new), @key, '-subj', "/CN=$name", '-keyout', "$dir/$name.key", '-out', "$dir/$name.csr");
		openssl(qw(x509 -req -days), $of{days}, '-in', "$dir/$name.csr", '-extfile', "$dir/$name.ext", '-out', "$dir/$name.crt",
			'-CA', "$dir/$of{by}.crt", '-CAkey', "$dir/$of{by}.key", '-CAcreateserial');
	}
	openssl(qw(pkey -aes128 -passout pass:secret -in), "$dir/client.key", '-out', "$dir/client_locked.key");
	return;
}

sub openssl
{
	my (@arguments) = @_;
	my ($out, $err);
	IPC::Run::run([ 'openssl', @arguments ], '<', \undef, '>', \$out, '2>', \$err) or die "openssl @arguments: $err";
	return;
}

1;
