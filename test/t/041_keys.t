# Keys, byte for byte: what stands in the template, what columns hold, and what Redis then has, for each kind of export. A value is put
# into a key once, as it is, and never read again as a template, a format or a part of the protocol.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Raw;
use RedisExport::Types;
use RedisExport::Wire;

# All text in here is bytes in UTF-8.
$ENV{PGCLIENTENCODING} = 'UTF8';

my $redis = RedisExport::Redis->new;
my $wire = RedisExport::Wire->new($redis);
my $raw = RedisExport::Raw->new($redis);
my $node = new_node(undef, conf => "redis_export.notice_interval = 0\n");
roles_for_cells($node);
my %cells = map { $_ => [ cells_database($node, $wire, $_) ] } qw(utf8 latin1 sql_ascii);

# A string in SQL, whatever bytes it holds; of type bytea with the type.
sub literal { return q{E'} . join('', map { sprintf '\\x%02x', ord } split //, $_[0]) . q{'} }
sub text    { return q{E'} . $_[0] =~ s/([\\'])/\\$1/gr =~ s/\r/\\r/gr =~ s/\n/\\n/gr . q{'} }
sub bytea   { return q{'\\x} . unpack('H*', $_[0]) . q{'::bytea} }

# The statement that exports rows as one kind or another. Each row has a column id besides what is in its key.
my @kinds = qw(json hash command);
sub statement
{
	my ($kind, $query, $template, %arguments) = @_;
	my $what = $kind eq 'command' ? q{ARRAY['SET', } . text($template) . q{, '#{id}']} : text($template);
	$arguments{value} = q{'*'} if $kind eq 'json';
	my $list = join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
	return "SELECT state FROM redis_${kind}_export(\$query\$$query\$query\$, $what$list)";
}

# Exports, and returns the keys of the commands that were sent, in order.
sub keys_sent
{
	my ($database, $kind, $query, $template, %arguments) = @_;
	my $settings = delete $arguments{settings} // '';
	$wire->commands;
	my (undef, $out, $err) = $node->psql($database, $settings . statement($kind, $query, $template, %arguments));
	is($out, 'done', "$kind: the job is done") or diag substr $err, 0, 1000;
	my %name = (json => 'JSON.SET', hash => 'HSET', command => 'SET');
	return map { $_->[1] } grep { $_->[0] eq $name{$kind} } $wire->commands;
}

# The error that an export ends with, SQLSTATE included.
sub error_of
{
	my (undef, undef, $err) = $node->psql('utf8', "\\set VERBOSITY verbose\n" . statement(@_));
	return $err;
}

# What the row left at its key.
sub id_at
{
	my ($kind, $key) = @_;
	return $raw->command('GET', $key) if $kind eq 'command';
	return $raw->command('HGET', $key, 'id') if $kind eq 'hash';
	return ($raw->command('JSON.GET', $key, '$.id') // '') =~ s/^\[(.*)\]\z/$1/sr;
}

# Texts that can be shown in a test's name.
sub shown { my ($text) = @_; return length $text > 60 ? substr($text, 0, 40) . '... (' . length($text) . ' bytes)' : $text =~ s/([^ -~])/sprintf '\\x%02x', ord $1/ger }

# Exports one row for each value with each kind, and looks for exactly the keys that the sub makes of the values: on the wire, and in
# Redis, each with its own row's id. As SQL, a value is what the other sub makes of it.
sub keys_ok
{
	my ($name, $database, $template, $key, $sql, @values) = @_;
	my $query = join ' UNION ALL ', map { "SELECT $_ AS id, " . $sql->($values[$_]) . ' AS k' } 0 .. $#values;
	my @keys = map { $key->($_) } @values;
	subtest $name => sub {
		for my $kind (@kinds)
		{
			$redis->cli('FLUSHALL');
			my @sent = keys_sent($database, $kind, $query, $template, $kind eq 'json' ? (exclude => q{'{k}'}) : ());
			is($sent[$_], $keys[$_], "$kind: key sent of " . shown($values[$_])) for 0 .. $#values;
			is(scalar @sent, scalar @keys, "$kind: and no others");
			is(id_at($kind, $keys[$_]), $_, "$kind: row at the key of " . shown($values[$_])) for 0 .. $#values;
			is_deeply([ sort @{ $raw->command('KEYS', '*') } ], [ sort @keys ], "$kind: Redis has no others");
		}
	};
	return;
}

# ---- Texts and templates ----------------------------------------------------------------------------------------------

my $protocol = "x\r\n*1\r\n\$8\r\nFLUSHALL\r\n";
my @texts = ('plain', 'a:b:c', ' spaces at both ends ', q{it's "quoted" \\ back}, "two\r\nlines\r\n", $protocol, '%s%n%d%%', '{tag}:1', '#{k}', '#{id}', '##{k}', '#{', '}', '#',
	'*?[a-z]^', "\t\x01\x1b\x7f", '$1', 'null', '0', 'Case', 'ünï ÿ', "€ 😀 \xe2\x80\xa8", 'x' x 10_240, '%s' x 5_000, '{"a": 1}');

for (
	# template, and what is before and behind the value
	[ '#{k}', '', '' ], [ 'pre:#{k}:post', 'pre:', ':post' ], [ '{tag}:#{k}', '{tag}:', '' ], [ '{#{k}}', '{', '}' ], [ '##{k}:#{k}', '#{k}:', '' ], [ '###{k}:#{k}#', '##{k}:', '#' ],
	[ '%s%n:#{k}:%d', '%s%n:', ':%d' ], [ "a\r\nb:#{k}\r\n", "a\r\nb:", "\r\n" ], [ "${protocol}#{k}", $protocol, '' ], [ q{it's "quoted" \\ back #{k}}, q{it's "quoted" \\ back }, '' ],
	[ ' #{k} ', ' ', ' ' ], [ "ünï€ 😀:#{k}", "ünï€ 😀:", '' ], [ 'y' x 10_240 . ':#{k}', 'y' x 10_240 . ':', '' ], [ '{}#{k}}}', '{}', '}}' ])
{
	my ($template, $before, $behind) = @$_;
	keys_ok('template ' . shown($template), 'utf8', $template, sub { $before . $_[0] . $behind }, \&text, $template =~ /k.*k/s ? @texts[ 0 .. 8 ] : @texts);
}
keys_ok('a value twice', 'utf8', '#{k}#{k}', sub { "$_[0]$_[0]" }, \&text, @texts);
keys_ok('an empty value', 'utf8', '#{k}', sub { $_[0] }, \&text, '', 'x');
keys_ok('an empty value between others', 'utf8', 'a:#{k}:', sub { "a:$_[0]:" }, \&text, '');

# ---- Bytes ------------------------------------------------------------------------------------------------------------

my @bytes = ("\0", "\xff\xfe", "\r\n", join('', map { chr } 0 .. 255), '#{id}', "\xe9", "\xc3\xa9", '', '\\x00', join('', map { chr } 0 .. 255) x 40);
for my $database (qw(utf8 latin1 sql_ascii))
{
	keys_ok("$database: bytea alone", $database, '#{k}', sub { $_[0] }, \&bytea, @bytes);
	keys_ok("$database: bytea in a template", $database, 'b:#{k}:ü', sub { "b:$_[0]:ü" }, \&bytea, @bytes);
	keys_ok("$database: bytea as a domain", $database, '#{k}', sub { $_[0] }, sub { bytea($_[0]) . '::raw_bytes' }, @bytes);
}

# ---- Types ------------------------------------------------------------------------------------------------------------

# All types of RedisExport::Types as the parts of one long key.
for my $database (qw(utf8 latin1 sql_ascii))
{
	my @cells = @{ $cells{$database} };
	for my $settings ('', hostile_settings())
	{
		subtest "$database: all types" . ($settings ? ', hostile settings' : '') => sub {
			for my $kind (@kinds)
			{
				$redis->cli('FLUSHALL');
				my ($sent) = keys_sent($database, $kind, 'SELECT 1 AS id, * FROM cells', join('', map { "<|>#{$_->{column}}" } @cells), settings => $settings);
				my (undef, @parts) = split /<\|>/, $sent // '', -1;
				is($parts[$_], $cells[$_]{key}, "$kind: $cells[$_]{type} $cells[$_]{sql}") for 0 .. $#cells;
				is($raw->command('EXISTS', join '', map { "<|>$_->{key}" } @cells), 1, "$kind: Redis has the key");
			}
		};
	}
}

# ---- Encodings --------------------------------------------------------------------------------------------------------

keys_ok('LATIN1 becomes UTF-8', 'latin1', 'Ünï:#{k}:ÿ', sub { "Ünï:$_[0]:ÿ" }, \&text, 'é', 'ÿ', 'plain', "\xc2\x80");
keys_ok('SQL_ASCII stays as it is', 'sql_ascii', 'Ünï:#{k}:ÿ', sub { "Ünï:$_[0]:ÿ" }, \&literal, 'é', "\xe9", "\xff\xfe", "\xc3", "\xed\xa0\x80");
{
	local $ENV{PGCLIENTENCODING} = 'SQL_ASCII';
	keys_ok('SQL_ASCII: a template, too', 'sql_ascii', "\xe9:#{k}:\xff", sub { "\xe9:$_[0]:\xff" }, \&literal, 'plain', "\xe9");
}

# ---- Columns ----------------------------------------------------------------------------------------------------------

for my $database (qw(utf8 latin1))
{
	# name in SQL, and in the template if that is not the same
	my @names = ([ 'a b' ], [ 'k' ], [ 'K' ], [ 'quo""te', 'quo"te' ], [ q{apo'strophe} ], [ 'back\slash' ], [ "new\r\nline" ], [ '#' ], [ '{' ], [ '%s' ], [ ' ' ], [ '$.a' ], [ 'Ünï' ], [ 'x' x 63 ]);
	my $query = 'SELECT 1 AS id, ' . join ', ', map { "'v$_'::text AS \"$names[$_][0]\"" } 0 .. $#names;
	my $template = join ':', map { '#{' . ($_->[1] // $_->[0]) . '}' } @names;
	for my $kind (@kinds)
	{
		$redis->cli('FLUSHALL');
		is_deeply([ keys_sent($database, $kind, $query, $template) ], [ join ':', map { "v$_" } 0 .. $#names ], "$database, $kind: names of columns in a template");
	}
}
like(error_of($_, 'SELECT 1 AS id', 'k:#{ID}'), qr/ERROR:  42703: .*"ID"/, "$_: case counts in names") for @kinds;

# ---- Nulls ------------------------------------------------------------------------------------------------------------

subtest 'a part that is null' => sub {
	my $query = q{SELECT * FROM (VALUES (1, 'a', 'b'), (2, NULL, 'b'), (3, 'a', NULL), (4, NULL, NULL), (5, '', ''), (6, 'null', 'null')) AS v (id, k, l)};
	for my $kind (@kinds)
	{
		$redis->cli('FLUSHALL');
		is_deeply([ keys_sent('utf8', $kind, $query, 'n:#{k}:#{l}', on_error => q{'ignore'}) ], [ 'n:a:b', 'n::', 'n:null:null' ], "$kind: only the others are sent");
		is_deeply([ sort @{ $raw->command('KEYS', '*') } ], [ 'n::', 'n:a:b', 'n:null:null' ], "$kind: Redis has these keys");
		my @failures = split /\n/, $node->safe_psql('utf8', q{SELECT row_number, sqlstate, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress)) ORDER BY 1});
		is_deeply([ map { s/\|[^|]*\z//r } @failures ], [ '2|22004', '3|22004', '4|22004' ], "$kind: the rows have failed");
		like($failures[0], qr/column "k"/, "$kind: the column is named");
		like($failures[1], qr/column "l"/, "$kind: the second, too");
		like(error_of($kind, $query, 'n:#{k}:#{l}'), qr/ERROR:  22004: row 2 /, "$kind: without on_error the job stops");
	}
	$redis->cli('FLUSHALL');
	is_deeply([ keys_sent('utf8', 'command', $query, 'n:#{k}:#{l}', on_null => q{'skip'}) ], [ 'n:a:b', 'n::', 'n:null:null' ], 'command: or the rows are skipped');
	is($node->safe_psql('utf8', q{SELECT rows_skipped, rows_failed FROM redis_export_progress ORDER BY job DESC LIMIT 1}), '3|0', 'command: and counted');
};

# ---- The same key in other commands -----------------------------------------------------------------------------------

subtest 'an expiry finds its key' => sub {
	my @values = (grep({ length } @bytes), $protocol);
	my $query = join ' UNION ALL ', map { "SELECT $_ AS id, " . bytea($values[$_]) . ' AS k' } 0 .. $#values;
	for my $kind (@kinds)
	{
		$redis->cli('FLUSHALL');
		keys_sent('utf8', $kind, $query, 'e:#{k}', ttl => q{'1 hour'});
		for my $value (@values)
		{
			my $left = $raw->command('PTTL', "e:$value");
			ok($left > 3_000_000 && $left <= 3_600_000, "$kind: " . shown($value)) or diag $left;
		}
	}
};

subtest 'a hash that is replaced' => sub {
	my $query = join ' UNION ALL ', map { "SELECT $_ AS id, " . bytea($bytes[$_]) . ' AS k' } 0 .. $#bytes;
	$redis->cli('FLUSHALL');
	$raw->command('HSET', "r:$_", 'old', 'field') for @bytes;
	keys_sent('utf8', 'hash', $query, 'r:#{k}', replace => 'true', exclude => q{'{k}'});
	is_deeply($raw->command('HGETALL', "r:$bytes[$_]"), [ 'id', $_ ], shown($bytes[$_])) for 0 .. $#bytes;
	is($raw->command('DBSIZE'), scalar @bytes, 'and there is nothing else');
};

subtest 'the last row of a key wins' => sub {
	for my $kind (@kinds)
	{
		$redis->cli('FLUSHALL');
		my @sent = keys_sent('utf8', $kind, q{SELECT id, E'a\r\n' AS k FROM generate_series(1, 1000) id}, 'l:#{k}', batch => 7);
		is(scalar @sent, 1000, "$kind: all rows are sent");
		is(id_at($kind, "l:a\r\n"), 1000, "$kind: the last stays");
	}
};

# ---- The key of a row that has failed ---------------------------------------------------------------------------------

subtest 'a failed row is named' => sub {
	for my $database (qw(utf8 latin1))
	{
		# how it is shown: control characters, the backslash and what is no text as hexadecimal bytes; where the database's encoding is
		# not that of keys, either as the text that it is or as its bytes, but not as other characters
		my @values = ([ 'plain', 'plain' ], [ "a\r\nb\\", 'a\x0d\x0ab\x5c' ], [ '%s%n', '%s%n' ], [ 'ÿ é', $database eq 'utf8' ? 'ÿ é' : ('ÿ é', '\xc3\xbf \xc3\xa9') ]);
		push @values, [ '€😀', '€😀' ] if $database eq 'utf8';
		my $query = join ' UNION ALL ', map { "SELECT $_ AS id, " . text($values[$_][0]) . ' AS k' } 0 .. $#values;
		for my $kind (qw(json hash))
		{
			$redis->cli('FLUSHALL');
			$raw->command('SET', "f:$_->[0]", 'in the way') for @values;
			keys_sent($database, $kind, $query, 'f:#{k}', on_error => q{'ignore'});
			my @shown = split /\n/, $node->safe_psql($database, q{SELECT key FROM redis_export_failures((SELECT max(job) FROM redis_export_progress)) ORDER BY row_number});
			for my $row (0 .. $#values)
			{
				my ($value, @ways) = @{ $values[$row] };
				like($shown[$row], qr/^f:(?:@{[ join '|', map { quotemeta } @ways ]})$/, "$database, $kind: key of row $row is shown");
				is($raw->command('GET', "f:$value"), 'in the way', "$database, $kind: and untouched in Redis");
			}
		}
	}
};

done_testing;
