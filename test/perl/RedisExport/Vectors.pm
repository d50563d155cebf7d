# RedisExport::Vectors: vectors of floats, always the same ones, and the bytes of vectors as Perl computes them.
#
#   my @vectors = unit_vectors(2000, 384)     # references to lists of numbers, each of which is exact in 32 bits
#   array_text($vector)                       # {0.25,-1}, as PostgreSQL reads arrays, without loss; vector_text: [0.25,-1]
#   float16(@numbers), float32(@numbers), float64(@numbers)     # little-endian
package RedisExport::Vectors;

use strict;
use warnings;
use Exporter 'import';
use POSIX qw(frexp);

our @EXPORT = qw(unit_vectors array_text vector_text float16 float32 float64);

# Uniform in all directions of the cube, then made one long. A generator of its own, since rand would differ from run to run, and
# with srand the ports of servers would not.
sub unit_vectors
{
	my ($count, $dimensions) = @_;
	my $state = 384;
	my @vectors;
	for (1 .. $count)
	{
		my ($square, @numbers) = (0);
		for (1 .. $dimensions)
		{
			$state = ($state * 1103515245 + 12345) & 0x7fffffff;
			my $number = $state / 0x40000000 - 1;
			push @numbers, $number;
			$square += $number * $number;
		}
		my $length = sqrt $square;
		push @vectors, [ unpack 'f*', pack 'f*', map { $_ / $length } @numbers ];
	}
	return @vectors;
}

# Nine digits tell every 32-bit float from its neighbours.
sub array_text  { my ($vector) = @_; return '{' . join(',', map { sprintf '%.9g', $_ } @$vector) . '}' }
sub vector_text { my ($vector) = @_; return array_text($vector) =~ tr/{}/[]/r }

sub float32 { return pack 'f<*', @_ }
sub float64 { return pack 'd<*', @_ }
sub float16 { return pack 'v*', map { half($_) } @_ }

# The 16 bits of a half: sign, five of the exponent, ten of the fraction. What lies between two is rounded to the nearer, and half way
# to the even one, as %.0f does it. A fraction that is rounded up to the next power carries into the exponent, which is right.
sub half
{
	my ($number) = @_;
	my $sign = unpack('Q>', pack 'd>', $number) >> 63;
	my (undef, $exponent) = frexp(abs $number);
	$exponent = $number == 0 || $exponent - 1 < -14 ? -14 : $exponent - 1;
	my $fraction = sprintf '%.0f', abs($number) / 2**($exponent - 10);
	return $sign << 15 | ($exponent + 14) * 1024 + $fraction;
}

1;
