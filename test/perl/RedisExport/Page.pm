# RedisExport::Page: a page of the documentation, whose SQL the tests run, word for word.
#
#   my $page = RedisExport::Page->new('docs/nightly.md');
#   my $statement = $page->next('Alerts');          # the next statement of the section with this heading
#   my @statements = $page->rest('Alerts');         # those that are left of it
#   is(join('', $page->unseen), '', 'no statement of the page was left out');
#   my $sql = $page->sql;                           # all of it, each line where it is on the page
#   my $text = $page->text;
#
# SQL is what is in blocks that begin with ```sql. A statement ends with a line that ends with a semicolon, or with a comment behind one,
# outside of a body between dollars.
package RedisExport::Page;

use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils ();

sub new
{
	my ($class, $name) = @_;
	my $text = PostgreSQL::Test::Utils::slurp_file("$FindBin::Bin/../../$name");
	my $self = bless { name => $name, text => $text, sql => '', sections => {}, statements => [] }, $class;
	my ($section, $inside, $statement) = ('', 0, '');
	for my $line (split /\n/, $text)
	{
		my $fence = $line =~ /^```/;
		$inside = $line eq '```sql' if $fence;
		my $counts = $inside && !$fence;
		$self->{sql} .= ($counts ? $line : '') . "\n";
		$section = $1 if !$inside && $line =~ /^#+ (.*)/;
		next if !$counts;
		$statement .= "$line\n";
		my $dollars = () = $statement =~ /\$\$/g;
		next if $dollars % 2 || $line !~ /;(?:\s+--.*)?$/;
		$statement =~ s/^\n+//;
		push @{ $self->{statements} }, { section => $section, text => $statement };
		$statement = '';
	}
	die "$name: a statement without an end: $statement" if $statement ne '';
	return $self;
}

sub text { return $_[0]{text} }
sub sql { return $_[0]{sql} }

sub rest
{
	my ($self, $section) = @_;
	my @rest = grep { $_->{section} eq $section && !$_->{seen} } @{ $self->{statements} };
	$_->{seen} = 1 for @rest;
	return map { $_->{text} } @rest;
}

sub next
{
	my ($self, $section) = @_;
	my ($next) = grep { $_->{section} eq $section && !$_->{seen} } @{ $self->{statements} };
	die "$self->{name}: no statement is left in section $section" if !$next;
	$next->{seen} = 1;
	return $next->{text};
}

sub unseen { return map { $_->{text} } grep { !$_->{seen} } @{ $_[0]{statements} } }

1;
