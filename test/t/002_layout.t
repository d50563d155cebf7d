# The folders of src/ keep their order, and the check of it sees whatever breaks it.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::Bin/../..";

# What the check says of this folder, and whether it passes.
sub check
{
	my ($src) = @_;
	my $said = qx('$top/test/layout' '$src' 2>&1);
	return ($? == 0, $said);
}

my ($good, $said) = check("$top/src");
ok($good, 'src/ is in order') or diag($said);
like($said, qr/^[5-9]\d\d includes, none of which goes up or in a circle$/, 'all of it was looked at');

my @faults = (
	['an include that goes up', 'base/error.c', '#include "flow/lane.h"', qr{^base/error includes flow/lane, which is higher up$}m],
	['an include without its folder', 'flow/lane.c', '#include "window.h"', qr{^flow/lane includes "window.h" without its folder$}m],
	['a circle within a folder', 'flow/window.h', '#include "flow/lane.h"', qr{^includes go in a circle:\n(?s:.*)flow/lane$}m],
	['a folder that nobody knows', 'attic/old.c', '#include "base/error.h"', qr{^attic/old: its folder is not in the order of test/layout$}m]);
for my $fault (@faults)
{
	my ($what, $file, $line, $expected) = @$fault;
	my $copy = PostgreSQL::Test::Utils::tempdir_short() . '/src';
	system("cp -r '$top/src' '$copy' && mkdir -p '$copy/attic'") == 0 or die 'cannot copy src';
	append_to_file("$copy/$file", "$line\n");
	($good, $said) = check($copy);
	ok(!$good, "$what is a fault");
	like($said, $expected, '... and is named');
}

done_testing;
