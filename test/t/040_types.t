# Every type, in a document, in a hash and in a command, byte for byte: what goes over the wire, and what Redis gives back. The bytes are written
# down by hand in RedisExport::Types; they are the same whatever the session's settings and the database's encoding.
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

# Runs the statement, which is an export that shall be done, and returns the commands of this name that were sent for it.
sub sent
{
	my ($database, $settings, $command, $statement) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$redis->cli('FLUSHALL');
	$wire->commands;
	my (undef, $out, $err) = $node->psql($database, "$settings $statement");
	is($out, 'done', 'the job is done') or diag substr $err, 0, 1000;
	return grep { $_->[0] eq $command } $wire->commands;
}

# Exports the rows of a query, to keys m:1 and so on by their column id, which is no part of the value. Returns what was sent, words
# by key. More arguments are those of the function.
sub exported
{
	my ($database, $function, $query, %arguments) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $settings = delete $arguments{settings} // '';
	%arguments = (exclude => q{'{id}'}, ($function eq 'json' ? (value => q{'*'}) : ()), %arguments);
	my $list = join '', map { ", $_ => $arguments{$_}" } grep { defined $arguments{$_} } sort keys %arguments;
	return map { $_->[1] => $_ } sent($database, $settings, $function eq 'json' ? 'JSON.SET' : 'HSET',
		"SELECT state FROM redis_${function}_export(\$query\$$query\$query\$, 'm:#{id}'$list)");
}

# Two long texts; where they part is shown.
sub same
{
	my ($got, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$got //= '';
	return pass($name) if $got eq $expected;
	my $at = 0;
	$at++ while substr($got, $at, 1) eq substr($expected, $at, 1);
	diag sprintf "%d bytes in place of %d; from byte %d on:\n  %s\n  %s", length $got, length $expected, $at,
		map { substr $_, $at > 20 ? $at - 20 : 0, 100 } $got, $expected;
	return fail($name);
}

# The failures of the newest job, as "key|sqlstate|message", in order.
sub failures
{
	my ($database) = @_;
	return split /\n/, $node->safe_psql($database, q{SELECT key, sqlstate, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress)) ORDER BY row_number});
}

# ---- The matrix -------------------------------------------------------------------------------------------------------

# A document of the whole row: each column in a certain shape, and how its bytes are in that.
sub document_ok
{
	my ($database, $settings, $shape, $sql, $bytes, @cells) = @_;
	my %sent = exported($database, 'json', "SELECT 1 AS id, @{[ join ', ', map { $sql->($_) . ' AS ' . $_->{column} } @cells ]} FROM cells", settings => $settings);
	my $document = $sent{'m:1'}[3] // '';
	my %members = $document =~ /[{,]"(c\d+)":(.*?)(?=,"c\d+":|\}\z)/gs;
	for my $cell (@cells)
	{
		my $name = "$shape $cell->{type} $cell->{sql}";
		is($members{ $cell->{column} }, $bytes->($cell->{json}), "$name: bytes sent");
		is($raw->command('JSON.GET', 'm:1', "\$.$cell->{column}"), '[' . $bytes->($cell->{get}) . ']', "$name: JSON.GET");
	}
	same($document, '{' . join(',', map { qq{"$_->{column}":} . $bytes->($_->{json}) } @cells) . '}', "$shape: and nothing else");
	return;
}

sub hash_ok
{
	my ($database, $settings, $shape, $sql, @cells) = @_;
	my %sent = exported($database, 'hash', "SELECT 1 AS id, @{[ join ', ', map { $sql->($_) . ' AS ' . $_->{column} } @cells ]} FROM cells", settings => $settings);
	my (undef, undef, %fields) = @{ $sent{'m:1'} // [] };
	for my $cell (@cells)
	{
		my $name = "$shape $cell->{type} $cell->{sql}";
		is($fields{ $cell->{column} }, $cell->{field}, "$name: bytes sent");
		is($raw->command('HGET', 'm:1', $cell->{column}), $cell->{field}, "$name: HGET");
	}
	is($raw->command('HLEN', 'm:1'), scalar @cells, "$shape: and nothing else");
	return;
}

# A command whose words are the columns; arrays would become many words.
sub words_ok
{
	my ($database, $settings, @cells) = @_;
	my $words = join ',', map { qq{"$_->{column}","#{$_->{column}}"} } @cells;
	my ($sent) = sent($database, $settings, 'HSET', "SELECT state FROM redis_command_export('TABLE cells', '{HSET,m:1,$words}')");
	my (undef, undef, %words) = @{ $sent // [] };
	is($words{ $_->{column} }, $_->{field}, "word $_->{type} $_->{sql}: bytes sent") for @cells;
	return;
}

sub matrix
{
	my ($name, $database, $settings, @cells) = @_;
	my $plain = sub { $_[0]{column} };
	my $domain = sub { "$_[0]{column}::$_[0]{column}_domain" };
	subtest "$name: documents" => sub {
		document_ok($database, $settings, 'plain', $plain, sub { $_[0] }, @cells);
		document_ok($database, $settings, 'as a domain', $domain, sub { $_[0] }, @cells);
		document_ok($database, $settings, 'in a record', sub { "ROW($_[0]{column}, NULL)" }, sub { qq({"f1":$_[0],"f2":null}) }, grep { !$_->{is_vector} } @cells);
		document_ok($database, $settings, 'in an array', sub { "ARRAY[$_[0]{column}, NULL]" }, sub { "[$_[0],null]" }, grep { !$_->{is_vector} && !$_->{is_array} } @cells);
	};
	subtest "$name: hashes" => sub {
		hash_ok($database, $settings, 'plain', $plain, @cells);
		hash_ok($database, $settings, 'as a domain', $domain, @cells);
	};
	subtest "$name: words of a command" => sub { words_ok($database, $settings, grep { !$_->{is_array} } @cells) };
	return;
}

my @cells = cells_database($node, $wire, 'utf8');
for my $what (skipped())
{
	SKIP: { skip "this PostgreSQL has no $what", 1 }
}
matrix('default settings', 'utf8', '', @cells);
matrix('hostile settings', 'utf8', hostile_settings(), @cells);
for my $encoding (qw(latin1 sql_ascii))
{
	my @cells = cells_database($node, $wire, $encoding);
	matrix("\U$encoding\E", $encoding, '', @cells);
	matrix("\U$encoding\E, hostile settings", $encoding, hostile_settings(), @cells);
}

subtest 'no type is missing' => sub {
	my %left_out = left_out();
	my %known = (%left_out, map { $_ => 1 } split /\n/, $node->safe_psql('utf8', q{SELECT typname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid WHERE attrelid = 'cells'::regclass AND attnum > 0}));
	$known{xml} = 1 if grep { $_ eq 'xml' } skipped();
	my @scalars = split /\n/, $node->safe_psql('utf8', q{SELECT typname FROM pg_type WHERE oid < 16384 AND typtype = 'b' AND typcategory <> 'A' ORDER BY 1});
	cmp_ok(scalar @scalars, '>', 60, 'there are many');
	is_deeply([ grep { !$known{$_} } @scalars ], [], 'each scalar type of PostgreSQL has a cell');
	my @ranges = split /\n/, $node->safe_psql('utf8', q{SELECT typname FROM pg_type WHERE oid < 16384 AND typtype IN ('r', 'm') ORDER BY 1});
	is_deeply([ grep { !$known{$_} } @ranges ], [], 'and each range and multirange');
	note "$_: $left_out{$_}" for sort keys %left_out;
};

subtest 'nulls' => sub {
	my $nulls = 'SELECT 1 AS id, ' . join ', ', map { "CAST(NULL AS $_->{type}) AS $_->{column}" } @cells;
	my %sent = exported('utf8', 'json', $nulls);
	is($sent{'m:1'}[3], '{' . join(',', map { qq{"$_->{column}":null} } @cells) . '}', 'of all types, in a document: the bytes sent');
	is($raw->command('JSON.GET', 'm:1'), $sent{'m:1'}[3], 'JSON.GET');

	%sent = exported('utf8', 'hash', $nulls, exclude => undef);
	is_deeply($sent{'m:1'}, [ 'HSET', 'm:1', 'id', '1' ], 'leave out their fields of a hash');
	is_deeply($raw->command('HGETALL', 'm:1'), [ 'id', '1' ], 'HGETALL');

	%sent = exported('utf8', 'hash', "$nulls UNION ALL SELECT 2, true" . ', NULL' x (@cells - 1), on_error => q{'ignore'});
	is($raw->command('EXISTS', 'm:1'), 0, 'a row with no field left is not written');
	like((failures('utf8'))[0], qr/^m:1\|22004\|/, 'and fails');
	is($raw->command('HGET', 'm:2', 'c001'), 't', 'unlike the next');
};

# ---- Names of columns -------------------------------------------------------------------------------------------------

# Name in SQL, in a document, in a hash.
my @names = (
	[ 'a b', 'a b' ], [ 'Case', 'Case' ], [ 'quo""te', 'quo\"te', 'quo"te' ], [ q{apo'strophe}, q{apo'strophe} ], [ 'back\slash', 'back\\\\slash', 'back\slash' ],
	[ "new\r\nline\t", 'new\r\nline\t', "new\r\nline\t" ], [ "\x01\x7f", "\\u0001\x7f", "\x01\x7f" ], [ '$.a', '$.a' ], [ '*', '*' ], [ '#{id}', '#{id}' ], [ '##{', '##{' ], [ '%s%n', '%s%n' ],
	[ '{', '{' ], [ '123', '123' ], [ 'null', 'null' ], [ ' ', ' ' ], [ 'x' x 63, 'x' x 63 ], [ 'Ünï ÿ', 'Ünï ÿ' ], [ '/', '/' ],
);

for my $encoding (qw(utf8 latin1 sql_ascii))
{
	my @these = (@names, $encoding eq 'latin1' ? () : [ "€ 😀 \xe2\x80\xa8", "€ 😀 \xe2\x80\xa8" ]);
	my $query = 'SELECT 1 AS id, ' . join ', ', map { qq{$_ AS "$these[$_][0]"} } 0 .. $#these;
	subtest "$encoding: names of columns" => sub {
		my %sent = exported($encoding, 'json', $query);
		my $document = '{' . join(',', map { qq{"$these[$_][1]":$_} } 0 .. $#these) . '}';
		same($sent{'m:1'}[3], $document, 'in a document');
		same($raw->command('JSON.GET', 'm:1'), $document, 'JSON.GET');
		exported($encoding, 'json', $query, exclude => q{ARRAY['id'} . join('', map { q{, E'} . $_->[0] =~ s/""/"/r =~ s/([\\'])/\\$1/gr . q{'} } @these[ 0 .. $#these - 1 ]) . ']');
		is($raw->command('JSON.GET', 'm:1'), qq({"$these[-1][1]":$#these}), 'can all be excluded');

		%sent = exported($encoding, 'hash', $query);
		is_deeply([ map { $_ // '' } @{ $sent{'m:1'} }[ 2 .. 1 + 2 * @these ] ], [ map { ($these[$_][2] // $these[$_][1], $_) } 0 .. $#these ], 'in a hash');
		is($raw->command('HGET', 'm:1', $these[$_][2] // $these[$_][1]), $_, 'HGET') for 0 .. $#these;
	};
}

# ---- Encodings --------------------------------------------------------------------------------------------------------

subtest 'LATIN1 becomes UTF-8' => sub {
	my $upper = join '', map { $_ < 192 ? "\xc2" . chr : "\xc3" . chr $_ - 64 } 128 .. 255;
	my $query = q{SELECT 1 AS id, string_agg(chr(i), '' ORDER BY i) AS v FROM generate_series(128, 255) i};
	my %sent = exported('latin1', 'json', $query);
	same($sent{'m:1'}[3], qq({"v":"$upper"}), 'all characters, in a document of the whole row');
	same($raw->command('JSON.GET', 'm:1', '$.v'), qq(["$upper"]), 'JSON.GET');
	for my $type (qw(json jsonb text varchar))
	{
		%sent = exported('latin1', 'json', qq(SELECT id, ('{"' || v || '": "' || v || '"}')::$type AS v FROM ($query) q), value => q{'v'}, exclude => undef);
		same($sent{'m:1'}[3], qq({"$upper": "$upper"}), "in a document that is a column of type $type");
	}
	exported('latin1', 'json', q{SELECT 1 AS id, '{"ä":{"ö":1}}'::json AS v}, value => q{'v'}, exclude => undef);
	is($node->safe_psql('latin1', q{SELECT state FROM redis_json_export('SELECT 1 AS id, ''"ÿ"''::json AS v', 'm:#{id}', path => '$["ä"]["ö"]')}), 'done', 'in a path');
	is($raw->command('JSON.GET', 'm:1'), '{"ä":{"ö":"ÿ"}}', 'JSON.GET');

	%sent = exported('latin1', 'hash', qq(SELECT id, v, ARRAY[v, v] AS a, '\\xe9'::bytea AS b FROM ($query) q));
	same($sent{'m:1'}[3], $upper, 'in a hash: the bytes sent');
	same($raw->command('HGET', 'm:1', 'v'), $upper, 'HGET');
	same($raw->command('HGET', 'm:1', 'a'), "{$upper,$upper}", 'in an array');
	is($raw->command('HGET', 'm:1', 'b'), "\xe9", 'but bytea stays as it is');
};

subtest 'SQL_ASCII: bytes that are no UTF-8' => sub {
	my %bytes = (1 => "caf\xc3\xa9", 2 => "caf\xe9", 3 => "\xc3", 4 => "\x80", 5 => "\xed\xa0\x80", 6 => "\xf4\x90\x80\x80", 7 => "\xc0\xaf", 8 => "\xff\xfe", 9 => "\xf0\x9f\x98\x80");
	my @good = (1, 9);
	my @bad = grep { my $id = $_; !grep { $_ == $id } @good } sort keys %bytes;
	my $rows = join ' UNION ALL ', map { "SELECT $_ AS id, E'" . join('', map { sprintf '\\x%02x', ord } split //, $bytes{$_}) . "' AS v" } sort keys %bytes;

	my $check = sub {
		my ($what, $document, %sent) = @_;
		is($sent{"m:$_"}[3], $document->($bytes{$_}), "$what: good UTF-8 goes as it is") for @good;
		is_deeply([ sort keys %sent ], [ map { "m:$_" } @good ], "$what: nothing is sent of the others");
		is_deeply([ map { s/\|[^|]*\z//r } failures('sql_ascii') ], [ map { "m:$_|22P05" } @bad ], "$what: they have failed");
		like((failures('sql_ascii'))[0], qr/cannot be converted to UTF-8/, "$what: and why is told");
	};
	$check->('whole row', sub { qq({"v":"$_[0]"}) }, exported('sql_ascii', 'json', $rows, on_error => q{'ignore'}));
	$check->("column of type $_", sub { qq({"v": "$_[0]"}) },
		exported('sql_ascii', 'json', qq(SELECT id, ('{"v": "' || v || '"}')::$_ AS v FROM ($rows) q), value => q{'v'}, exclude => undef, on_error => q{'ignore'})) for qw(json jsonb text);

	exported('sql_ascii', 'hash', $rows);
	is($raw->command('HGET', "m:$_", 'v'), $bytes{$_}, "in a hash they go as they are: $_") for sort keys %bytes;
	exported('sql_ascii', 'hash', "SELECT id, ARRAY[v] AS v FROM ($rows) q");
	is($raw->command('HGET', "m:2", 'v'), "{caf\xe9}", "in an array, too");
	exported('sql_ascii', 'hash', "SELECT id, v::name AS v FROM ($rows) q");
	is($raw->command('HGET', "m:2", 'v'), "caf\xe9", "and in a name");

	local $ENV{PGCLIENTENCODING} = 'SQL_ASCII';
	exported('sql_ascii', 'json', "SELECT 1 AS id, 2 AS \"\xe9\"", on_error => q{'ignore'});
	like((failures('sql_ascii'))[0], qr/^m:1\|22P05\|/, 'the name of a column, in a document');
	exported('sql_ascii', 'hash', "SELECT 1 AS id, 2 AS \"\xe9\"");
	is($raw->command('HGET', 'm:1', "\xe9"), 2, 'in a hash');
};

# ---- What RedisJSON refuses -------------------------------------------------------------------------------------------

# RedisJSON has 127 levels, of which the row itself is one.
subtest 'JSON that RedisJSON refuses' => sub {
	my %refused = (
		'a high surrogate alone' => q("\ud800"),
		'a low surrogate alone' => q("\udc00"),
		'surrogates in the wrong order' => q("\udc00\ud83d"),
		'a surrogate in a name' => q({"\ud83d":1}),
		'a number beyond doubles' => '1e400',
		'127 levels' => '[' x 127 . ']' x 127,
		'129 levels' => '{"a":' x 129 . 'null' . '}' x 129,
		'5000 levels' => '[' x 5000 . ']' x 5000,
	);
	my %taken = (
		'a null character' => q("\u0000"),
		'a null character in a name' => q({"\u0000":1}),
		'a pair of surrogates' => q("\ud83d\ude00"),
		'126 levels' => '[' x 126 . ']' x 126,
		'names that are there twice' => q({"a":1,"a":{"b":1,"b":2}}),
	);
	my %get = (%taken, 'a pair of surrogates' => '"😀"', 'names that are there twice' => q({"a":{"b":2}}));
	my %json = (%refused, %taken);
	my @names = sort keys %json;
	my $rows = join ' UNION ALL ', map { "SELECT $_ AS id, '$json{$names[$_]}'::json AS v" } 0 .. $#names;

	my %sent = exported('utf8', 'json', $rows, on_error => q{'ignore'}, batch => 3);
	my %failed = map { my ($key, $sqlstate, $message) = split /\|/; $key => [ $sqlstate, $message ] } failures('utf8');
	for my $id (0 .. $#names)
	{
		my $name = $names[$id];
		is($sent{"m:$id"}[3], qq({"v":$json{$name}}), "$name: the bytes sent, whole row");
		if (!exists $refused{$name})
		{
			is($raw->command('JSON.GET', "m:$id"), qq({"v":$get{$name}}), "$name: JSON.GET");
			is($failed{"m:$id"}, undef, "$name: no failure");
			next;
		}
		is($raw->command('EXISTS', "m:$id"), 0, "$name: no key");
		is($failed{"m:$id"}[0], '38000', "$name: SQLSTATE");
		like($failed{"m:$id"}[1], qr/^Redis answered: /, "$name: it says what Redis said");
	}

	%sent = exported('utf8', 'json', $rows, value => q{'v'}, exclude => undef, on_error => q{'ignore'});
	is_deeply([ map { $sent{"m:$_"}[3] } 0 .. $#names ], [ map { $json{$_} } @names ], 'a column as the document: the bytes sent');
	is($raw->command('EXISTS', 'm:' . (grep { $names[$_] eq '127 levels' } 0 .. $#names)[0]), 1, 'has a level more');
	is($raw->command('EXISTS', 'm:' . (grep { $names[$_] eq '129 levels' } 0 .. $#names)[0]), 0, 'but not 129');

	exported('utf8', 'hash', $rows);
	is($raw->command('HGET', "m:$_", 'v'), $json{ $names[$_] }, "$names[$_]: in a hash, byte for byte") for 0 .. $#names;
};

# ---- Vectors ----------------------------------------------------------------------------------------------------------

subtest 'arrays that are no vectors' => sub {
	my %bad = (2 => q('{1,NULL,3}'), 3 => q('{}'), 4 => q('{{1,2},{3,4}}'));
	for my $type ('real', 'double precision')
	{
		my $rows = "SELECT 1 AS id, '{1,2}'::$type\[] AS v" . join '', map { " UNION ALL SELECT $_, $bad{$_}" } sort keys %bad;
		my %sent = exported('utf8', 'hash', "$rows UNION ALL SELECT 5, '[3:4]={1,2}'", on_error => q{'ignore'});
		is_deeply([ sort keys %sent ], [ 'm:1', 'm:5' ], "$type: only vectors are sent");
		is($raw->command('HGET', 'm:5', 'v'), $type eq 'real' ? "\0\0\x80\x3f\0\0\0\x40" : "\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\x40", "$type: whatever their lower bound");
		my @failures = failures('utf8');
		is_deeply([ map { (split /\|/)[0] } @failures ], [ 'm:2', 'm:3', 'm:4' ], "$type: the others have failed");
		like($failures[0], qr/\|22004\|.*"v"/, "$type: a null in it");
		like($failures[1], qr/\|2202E\|.*"v".*empty/, "$type: an empty one");
		like($failures[2], qr/\|2202E\|.*"v".*dimension/, "$type: two dimensions");
	}
};

# ---- Large values -----------------------------------------------------------------------------------------------------

subtest '64 MB' => sub {
	my $times = 4 * 1024 * 1024;
	my $text = '0123456789 "abc\\' x $times;
	my $escaped = '0123456789 \"abc\\\\' x $times;
	my $query = "SELECT 1 AS id, repeat('0123456789 \"abc\\', $times) AS v";
	my %sent = exported('utf8', 'json', $query);
	ok($sent{'m:1'}[3] eq qq({"v":"$escaped"}), 'in a document of the whole row: the bytes sent') or diag length $sent{'m:1'}[3];
	ok($raw->command('JSON.GET', 'm:1') eq qq({"v":"$escaped"}), 'JSON.GET');
	%sent = exported('utf8', 'json', "SELECT 1 AS id, json_build_array(v)::text AS v FROM ($query) q", value => q{'v'}, exclude => undef);
	ok($sent{'m:1'}[3] eq qq(["$escaped"]), 'in a document that is a column') or diag length $sent{'m:1'}[3];
	exported('utf8', 'hash', $query);
	my $got = $raw->command('HGET', 'm:1', 'v');
	ok($got eq $text, 'in a hash: HGET') or diag length $got;
};

done_testing;
