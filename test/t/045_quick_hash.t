# The hash by which the books tell values apart (src/base/quick_hash.c), in a program of its own: as it is compiled with a type of 128 bits, and without.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::Bin/../../src";
my $dir = PostgreSQL::Test::Utils::tempdir_short();
plan skip_all => 'there is no compiler' if system 'command -v cc >/dev/null';

append_to_file("$dir/postgres.h", <<'C');
#include <stdint.h>
#include <string.h>
#include <stddef.h>
typedef uint64_t uint64;
typedef uint32_t uint32;
#define UINT64CONST(x) (x##ULL)
#ifdef WITH_INT128
#define HAVE_INT128 1
typedef unsigned __int128 uint128;
#endif
C
append_to_file("$dir/main.c", <<'C');
#include <stdio.h>
#include <stdlib.h>
#include "postgres.h"
#include "base/quick_hash.h"

#define SIZE 4811
#define MOST 200000

static uint64 found[MOST];
static int nfound;

static int
compare(const void *a, const void *b)
{
	uint64 x = *(const uint64 *) a, y = *(const uint64 *) b;
	return (x > y) - (x < y);
}

static void
tell(const char *what)
{
	int same = 0;
	uint64 sum = 0;

	for (int i = 0; i < nfound; i++)
		sum = sum * 31 + found[i];
	qsort(found, nfound, sizeof(uint64), compare);
	for (int i = 1; i < nfound; i++)
		same += found[i] == found[i - 1];
	printf("%s: %d, %d the same, sum %016llx\n", what, nfound, same, (unsigned long long) sum);
	nfound = 0;
}

int
main(void)
{
	static char bytes[SIZE + 8], moved[SIZE + 8];
	uint64 whole;
	long bits = 0;

	for (int i = 0; i < SIZE; i++)
		bytes[i] = "{\"id\": 17, \"name\": \"Ada\"}"[i % 25];
	found[nfound++] = whole = rexp_quick_hash(bytes, SIZE, 1);
	for (int bit = 0; bit < SIZE * 8; bit++)
	{
		bytes[bit / 8] ^= 1 << bit % 8;
		found[nfound] = rexp_quick_hash(bytes, SIZE, 1);
		bits += __builtin_popcountll(found[nfound++] ^ whole);
		bytes[bit / 8] ^= 1 << bit % 8;
	}
	printf("of 64 bits %.1f change\n", (double) bits / (SIZE * 8));
	tell("one bit");
	for (int first = 0; first < 512; first++)
		for (int second = 0; second < first; second++)
		{
			bytes[first / 8] ^= 1 << first % 8;
			bytes[second / 8] ^= 1 << second % 8;
			found[nfound++] = rexp_quick_hash(bytes, 200, 1);
			bytes[first / 8] ^= 1 << first % 8;
			bytes[second / 8] ^= 1 << second % 8;
		}
	tell("two bits");
	for (int len = 0; len <= SIZE; len++)
		found[nfound++] = rexp_quick_hash(bytes, len, 1);
	tell("lengths");
	memset(moved, 0, sizeof(moved));
	for (int len = 0; len <= SIZE; len++)
		found[nfound++] = rexp_quick_hash(moved, len, 1);
	tell("zeros");
	for (int seed = 0; seed < 100000; seed++)
		found[nfound++] = rexp_quick_hash(bytes, 700, seed);
	tell("seeds");
	for (int i = 0; i < 100000; i++)
	{
		int len = snprintf(moved, sizeof(moved), "{\"n\": %d, \"m\": %d}", i, 100000 - i);
		found[nfound++] = rexp_quick_hash(moved, len, 1);
	}
	tell("documents");
	for (int by = 0; by < 8; by++)
	{
		memcpy(moved + by, bytes, SIZE);
		found[nfound++] = rexp_quick_hash(moved + by, SIZE, 1);
	}
	tell("places");
	return 0;
}
C
my %said;
for my $with ('', '-DWITH_INT128')
{
	is(system("cc -O2 -Wall -Werror $with -I'$dir' -I'$source' -o '$dir/hash' '$dir/main.c' '$source/base/quick_hash.c'"), 0, $with || 'without a type of 128 bits');
	$said{$with} = qx{'$dir/hash'};
	like($said{$with}, qr/^of 64 bits (?:31\.9|32\.[01]) change$/m, 'a bit that changes changes half of the hash');
	like($said{$with}, qr/^$_, 0 the same/m, $_) for 'one bit: 38489', 'two bits: 130816', 'lengths: 4812', 'zeros: 4812', 'seeds: 100000', 'documents: 100000';
	like($said{$with}, qr/^places: 8, 7 the same/m, 'wherever the bytes lie');
}
is($said{''}, $said{'-DWITH_INT128'}, 'both say the same');
done_testing;
