# Vectors: real[] and float8[], pgvector's vector and halfvec where it is there (halfvec since pgvector 0.7). As blobs in hashes and
# commands, byte for byte what Perl computes; as arrays of numbers in documents; and in indexes over either, which find the same
# neighbours that PostgreSQL computes one by one.
use strict;
use warnings;
use Digest::SHA qw(sha1_hex);
use JSON::PP ();
use RedisExport::Test;
use RedisExport::Rows;
use RedisExport::Vectors;

use constant { DOCUMENTS => 2000, DIMENSIONS => 384, QUERIES => 20, NEIGHBOURS => 10 };

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\nwork_mem = '256MB'\n");
my $session = session($node);
$session->query('CREATE EXTENSION vector') if $session->query(q{SELECT true FROM pg_available_extensions WHERE name = 'vector'});
my %has = map { $_ => 1 } split /\n/, $session->query(q{SELECT typname FROM pg_type WHERE typname IN ('vector', 'halfvec')});
note $has{vector} ? $has{halfvec} ? 'pgvector is here' : 'a pgvector without halfvec is here' : 'pgvector is not here';

my $json = JSON::PP->new->allow_nonref;
my %bytes_of = ('real[]' => \&float32, vector => \&float32, 'float8[]' => \&float64, halfvec => \&float16);

sub vector_types { return grep { /\[\]$/ || $has{$_} } @_ }
sub text_of      { my ($type, $vector) = @_; return $type =~ /\[\]$/ ? array_text($vector) : vector_text($vector) }
sub field        { my ($key, $name) = @_; return unpack 'H*', scalar $redis->cli('HGET', $key, $name) }
sub command      { my (@words) = @_; return $json->decode($session->query('SELECT redis_command(' . join(', ', map { "'$_'" } 'redis', @words) . ')')) }
sub document     { my ($key) = @_; return $json->decode(scalar $redis->cli('JSON.GET', $key)) }

sub hash_export
{
	my ($query, %arguments) = @_;
	return export('redis_hash_export', $query, q{'v:#{id}'}, %arguments);
}

# What the newest job then has failed with is to be had by failures().
sub export
{
	my ($function, $query, $template, %arguments) = @_;
	my $more = join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
	return $session->query("SELECT state FROM $function(\$query\$$query\$query\$, $template$more)");
}

sub failures
{
	return $session->query(q{SELECT string_agg(concat_ws(' ', row_number, key, sqlstate, message), E'\n' ORDER BY row_number)
		FROM redis_export_failures((SELECT max(job) FROM redis_export_progress))});
}

# All that an index says of itself, as a hash.
sub index_info { my ($name) = @_; my %info = @{ command('FT.INFO', $name) }; return \%info }

sub index_holds
{
	my ($name, $count) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $info = index_info($name);
	is($info->{num_docs}, $count, "$name holds $count documents");
	is($info->{hash_indexing_failures}, 0, 'and has refused none') or diag $json->encode($info->{'Index Errors'});
	return;
}

subtest 'the bytes of a field' => sub {
	my @edges = (0, -0.0, 1, -2.5, 1 / 3, 1e-40, 3.4028234663852886e38);
	my @halves = (0, 1, -2, 0.1, 1 / 3, 2049, 2051, 2047.9, 65504, -65504, 6.103515625e-05, 6.0975551605e-05, 5.960464477539063e-08);
	my $domains = 'CREATE DOMAIN embedding AS real[]; CREATE DOMAIN checked AS embedding CHECK (cardinality(VALUE) = 2)';
	my @cases = (
		[ q{'{0,-0,1,-2.5,0.3333333333333333,1e-40,3.4028234663852886e38}'::real[]}, float32(@edges), 'real[]' ],
		[ q{'{0,-0,1,-2.5,0.3333333333333333,1e-40,3.4028234663852886e38}'::float8[]}, float64(@edges), 'float8[]' ],
		[ q{'{5e-324,1.7976931348623157e308,0.1}'::float8[]}, float64(5e-324, 1.7976931348623157e308, 0.1), 'float8[] of numbers that real has not' ],
		[ q{'{NaN,Infinity,-Infinity}'::real[]}, pack('V*', 0x7fc00000, 0x7f800000, 0xff800000), 'numbers that are none' ],
		[ q{'[5:6]={1,2}'::real[]}, float32(1, 2), 'an array that does not begin at 1' ],
		[ q{('{1,2,NULL}'::real[])[1:2]}, float32(1, 2), 'an array that has lost its null, and not the map of its nulls' ],
		[ q{'{1,2}'::embedding}, float32(1, 2), 'a domain' ],
		[ q{'{1,2}'::checked}, float32(1, 2), 'a domain over a domain' ],
		[ q{'{1,2}'::int[]}, '{1,2}', 'int[] is text' ]);
	if ($has{vector})
	{
		$domains .= '; CREATE DOMAIN vector2 AS vector(2); CREATE DOMAIN vector2s AS vector2 CHECK (VALUE <> $$[0,0]$$)';
		push @cases,
			[ q{'[0,-0,1,-2.5,0.3333333333333333,1e-40,3.4028234663852886e38]'::vector}, float32(@edges), 'vector' ],
			[ q{'[7]'::vector(1)}, float32(7), 'one dimension' ],
			[ q{'[1,-2]'::vector2}, float32(1, -2), 'a domain over vector' ],
			[ q{'[1,-2]'::vector2s}, float32(1, -2), 'and one over that' ],
			[ q{ARRAY['[1,2]'::vector]}, '{"[1,2]"}', 'an array of vectors is text' ];
	}
	if ($has{halfvec})
	{
		$domains .= '; CREATE DOMAIN half2 AS halfvec(2)';
		push @cases,
			[ qq{'@{[ vector_text(\@halves) ]}'::halfvec}, float16(@halves), 'halfvec' ],
			[ q{'[-0,1e-8,-1e-8]'::halfvec}, float16(-0.0, 1e-8, -1e-8), 'what a half rounds to zero' ],
			[ q{'[1,-2]'::half2}, float16(1, -2), 'a domain over halfvec' ],
			[ q{'{1:1.5,3:2}/4'::sparsevec}, '{1:1.5,3:2}/4', 'sparsevec is text' ];
	}
	$session->query($domains);
	my $columns = join ', ', map { "$cases[$_][0] AS c$_" } 0 .. $#cases;
	is(hash_export("SELECT 1 AS id, $columns, NULL::real[] AS missing"), 'done', 'the row is exported');
	is(field('v:1', "c$_"), unpack('H*', $cases[$_][1]), $cases[$_][2]) for 0 .. $#cases;
	is($redis->cli('HEXISTS', 'v:1', 'missing'), 0, 'a null leaves the field out');

	# The tenth bit and the sign, by hand, so that float16() is not only compared with pgvector.
	is(unpack('H*', float16(1, -2, 2049, 2051, 65504, 5.960464477539063e-08)), '003c00c000680268ff7b0100', 'halves are what they should be');
};

subtest 'large vectors, which PostgreSQL keeps elsewhere' => sub {
	my ($vector) = unit_vectors(1, 16000);
	for my $type (vector_types('real[]', 'float8[]', 'vector', 'halfvec'))
	{
		$session->query("DROP TABLE IF EXISTS large; CREATE TABLE large AS SELECT 1 AS id, '" . text_of($type, $vector) . "'::$type AS v");
		cmp_ok($session->query(q{SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'large'}), '>', 0, "a $type is large");
		is(hash_export('TABLE large'), 'done', 'it is exported');
		# array_text has nine digits, which is what a float8 then holds
		my @numbers = $type eq 'float8[]' ? map { sprintf '%.9g', $_ } @$vector : @$vector;
		is(sha1_hex(pack 'H*', field('v:1', 'v')), sha1_hex($bytes_of{$type}->(@numbers)), 'and all of it is there');
	}
};

# A type is pgvector's because the extension owns it, wherever it is, and not because of its name.
subtest 'where the type comes from' => sub {
	$session->query(q{CREATE SCHEMA other; CREATE TYPE other.halfvec AS ENUM ('[1]'); CREATE TYPE other.vector AS ENUM ('[1]')});
	is(hash_export(q{SELECT 2 AS id, '[1]'::other.vector AS v, '[1]'::other.halfvec AS h}), 'done', 'types of the same names');
	is($redis->cli('HGET', 'v:2', $_), '[1]', "are text ($_)") for 'v', 'h';
	return unless $has{vector};
	$session->query('CREATE SCHEMA extensions; ALTER EXTENSION vector SET SCHEMA extensions');
	is(hash_export(q{SELECT 2 AS id, '[1,2]'::extensions.vector AS v}), 'done', 'pgvector in a schema that is not in the path');
	is(field('v:2', 'v'), unpack('H*', float32(1, 2)), 'is the blob');
	$session->query('ALTER EXTENSION vector SET SCHEMA public');
};

subtest 'what is no vector' => sub {
	my $rows = q{(VALUES (1, '{1,NULL}'), (2, '{{1,2},{3,4}}'), (3, '{}'), (4, '{7}')) AS _ (id, v)};
	for my $type ('real[]', 'float8[]')
	{
		$redis->cli('FLUSHALL');
		is(hash_export("SELECT id, v::$type AS v FROM $rows", on_error => q{'ignore'}), 'done', "$type: others pass");
		is(failures(), join("\n",
			'1 v:1 22004 column "v" is a vector that contains a null',
			'2 v:2 2202E column "v" is an array of more than one dimension, which is no vector',
			'3 v:3 2202E column "v" is an empty array, which is no vector'), 'each has its reason');
		job_ended($node, 'done', rows_written => 1, rows_failed => 3);
		is(join(' ', sort $redis->cli('KEYS', '*')), 'v:4', 'and nothing of it is in Redis');
		is(field('v:4', 'v'), unpack('H*', $bytes_of{$type}->(7)), 'the good one is');

		$redis->cli('HSET', 'v:1', 'old', '1');
		is(hash_export("SELECT id, 'new' AS w, v::$type AS v FROM $rows", on_error => q{'ignore'}, replace => 'true'), 'done', 'with replace');
		is($redis->cli('HGETALL', 'v:1'), "old\n1", 'the old hash stays');
		is($redis->cli('HGET', 'v:4', 'w'), 'new', 'and the good one is replaced');
	}
	like(sql_error($node, q{SELECT redis_hash_export('SELECT 9 AS id, ''{}''::real[] AS v', 'v:#{id}')}, verbose => 1),
		qr/ERROR:  2202E: .*column "v" is an empty array/s, 'by default the first one stops the job');

	# In a document nothing is wrong with them.
	is(export('redis_json_export', "SELECT id, v::real[] AS v FROM $rows", q{'d:#{id}'}, value => q{'*'}), 'done', 'as documents all pass');
	is_deeply([ map { document("d:$_")->{v} } 1 .. 4 ], [ [ 1, undef ], [ [ 1, 2 ], [ 3, 4 ] ], [], [7] ], 'as arrays of numbers');

	like(sql_error($node, "SELECT redis_command('redis', 'SET', 'x', '$_->[0]'::float8[])"), $_->[1], "redis_command refuses $_->[0]")
		for [ '{1,NULL}', qr/argument 3 of the command is a vector that contains a null/ ],
		[ '{{1}}', qr/argument 3 of the command is an array of more than one dimension/ ],
		[ '{}', qr/argument 3 of the command is an empty array/ ];
	is($redis->cli('EXISTS', 'x'), 0, 'and sends nothing');
};

subtest 'commands' => sub {
	my %expected = ('real[]' => [ 1, '2.5' ], 'float8[]' => [ 1, '2.5' ], vector => [ float32(1, 2.5) ], halfvec => [ float16(1, 2.5) ]);
	for my $type (vector_types(sort keys %expected))
	{
		$redis->cli('FLUSHALL');
		my $text = text_of($type, [ 1, 2.5 ]);
		$session->query("SELECT redis_command('redis', 'SET', 'blob', '$text'::$type)");
		is(unpack('H*', scalar $redis->cli('GET', 'blob')), unpack('H*', $bytes_of{$type}->(1, 2.5)), "$type: redis_command sends the blob");

		is(export('redis_command_export', "SELECT '$text'::$type AS v", q{ARRAY['RPUSH', 'list:#{v}', 'v=#{v}', '#{v}', 'end']}), 'done', 'an export');
		is(join(' ', $redis->cli('KEYS', 'list:*')), "list:$text", 'in a key it is text');
		my @words = map { unpack 'H*', scalar $redis->cli('LINDEX', "list:$text", $_) } 0 .. $redis->cli('LLEN', "list:$text") - 1;
		is_deeply(\@words, [ map { unpack 'H*', $_ } "v=$text", @{ $expected{$type} }, 'end' ],
			'and in a part of a word; alone ' . ($type =~ /\[\]$/ ? 'each element is a word' : 'it is the blob'));
	}
	return unless $has{vector};
	is(export('redis_command_export', q{SELECT 1 AS id, ARRAY['[1,2]', '[3,4]']::vector[] AS v}, q{ARRAY['RPUSH', 'list:#{id}', '#{v}']}), 'done',
		'an array of vectors');
	is(unpack('H*', join '', $redis->cli('LRANGE', 'list:1', 0, -1)), unpack('H*', float32(1, 2, 3, 4)), 'is as many blobs');
};

# The numbers of a document are read back by Perl, and must be the same 32 bits.
subtest 'documents' => sub {
	my @numbers = (0, 1, -2.5, unpack('f*', pack 'f*', 0.1, 1 / 3, 1e-40, 3e38), 123456789);
	my @halves = (0, 1, -2.5, 0.0999755859375, 65504, 5.960464477539063e-08);
	$session->query('SET extra_float_digits = -3');
	for my $type (vector_types('real[]', 'float8[]', 'vector', 'halfvec'))
	{
		my $vector = $type eq 'halfvec' ? \@halves : \@numbers;
		my $text = text_of($type, $vector);
		is(export('redis_json_export', "SELECT 1 AS id, '$text'::$type AS v, NULL::$type AS missing", q{'d:#{id}'}), 'done', $type);
		my $document = document('d:1');
		is(join(' ', sort keys %$document), 'id missing v', 'is part of the document');
		is($document->{missing}, undef, 'null where it is null');
		is(ref $document->{v}, 'ARRAY', 'else an array') or next;
		is(unpack('H*', float32(@{ $document->{v} })), unpack('H*', float32(@$vector)), 'of these numbers');
		unlike($redis->cli('JSON.GET', 'd:1', '$.v'), qr/"/, 'which are no strings');
	}
	$session->query('RESET extra_float_digits');
	return unless $has{vector};
	is(export('redis_json_export', q{SELECT 1 AS id, '[1,-2]'::vector2s AS v}, q{'d:#{id}'}), 'done', 'a domain over vector');
	is_deeply(document('d:1')->{v}, [ 1, -2 ], 'is an array of numbers, too');
};

# ---- Neighbours -------------------------------------------------------------------------------------------------------

my @vectors = unit_vectors(DOCUMENTS + QUERIES, DIMENSIONS);
my @categories = qw(art food music sport travel);
my $table = PostgreSQL::Test::Utils::tempdir() . '/documents';
open my $file, '>', $table or die "$table: $!";
print $file join("\t", $_, "document number$_", $categories[ $_ % @categories ], $_ / 4, array_text($vectors[ $_ - 1 ])), "\n" for 1 .. @vectors;
close $file;
chmod 0644, $table;
$session->query(qq{
	CREATE TABLE documents (id int PRIMARY KEY, title text, category text, price float8, embedding real[]);
	COPY documents FROM '$table';
	CREATE TABLE queries AS SELECT id, category, embedding FROM documents WHERE id > @{[DOCUMENTS]};
	DELETE FROM documents WHERE id > @{[DOCUMENTS]};
	ANALYZE documents, queries});

# The cosine distances of all documents from all queries, in double precision, and the nearest: of all, and of the query's category.
# vector is the vector's expression, as if it were a column of documents and of queries.
sub compute_distances
{
	my ($vector) = @_;
	$session->query(qq{
		DROP TABLE IF EXISTS distances;
		CREATE TABLE distances AS
			SELECT q.id AS query, d.id, d.category = q.category AS same_category,
				(SELECT 1 - sum(x::float8 * y) / sqrt(sum(x::float8 * x) * sum(y::float8 * y)) FROM unnest(q.v, d.v) AS _ (x, y)) AS distance
			FROM (SELECT id, category, $vector AS v FROM queries) AS q, (SELECT id, category, $vector AS v FROM documents) AS d});
	return;
}

sub nearest
{
	my ($filtered) = @_;
	my $where = $filtered ? 'WHERE same_category' : '';
	my $rows = $json->decode($session->query(qq{SELECT json_agg(json_build_array(query, id, distance) ORDER BY query, rank)
		FROM (SELECT *, row_number() OVER (PARTITION BY query ORDER BY distance) AS rank FROM distances $where) AS ranked
		WHERE rank <= 1 + @{[NEIGHBOURS]}}));
	my %nearest;
	push @{ $nearest{ $_->[0] } }, [ @$_[ 1, 2 ] ] for @$rows;
	return \%nearest;
}

# What the index finds for each query, asked as RedisVL does: [ id, distance ] each.
sub found
{
	my ($index, $filtered, $vector) = @_;
	my $filter = $filtered ? q{'(@category:{' || category || '})'} : q{'(*)'};
	my $rows = $json->decode($session->query(qq{
		SELECT json_object_agg(id, redis_command('redis', 'FT.SEARCH', '$index',
			$filter || '=>[KNN @{[NEIGHBOURS]} \@embedding \$vector AS vector_distance]', 'RETURN', '1', 'vector_distance',
			'SORTBY', 'vector_distance', 'ASC', 'DIALECT', '2', 'LIMIT', '0', '@{[NEIGHBOURS]}', 'PARAMS', '2', 'vector', $vector))
		FROM queries}));
	my %found;
	for my $query (keys %$rows)
	{
		my (undef, @pairs) = @{ $rows->{$query} };
		while (my ($key, $fields) = splice @pairs, 0, 2)
		{
			push @{ $found{$query} }, [ $key =~ s/.*://r, $fields->[1] ];
		}
	}
	return \%found;
}

# share: how many of a hundred neighbours must be found. tolerance: how far the index' distances may be from the exact ones.
sub finds_the_nearest
{
	my ($index, $vector, $share, $tolerance) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %distance = map { join('|', (split /\|/)[ 0, 1 ]) => (split /\|/)[2] }
		split /\n/, $session->query('SELECT query, id, distance FROM distances');
	for my $filtered (0, 1)
	{
		my ($nearest, $found) = (nearest($filtered), found($index, $filtered, $vector));
		my ($hits, $wanted, $close, $wrong) = (0, 0, 0, 0);
		for my $query (keys %$nearest)
		{
			my @near = @{ $nearest->{$query} };
			# The next one must be farther by more than the index may err, or the question has no answer.
			$close++ if @near <= NEIGHBOURS || $near[NEIGHBOURS][1] - $near[ NEIGHBOURS - 1 ][1] <= $tolerance;
			my %near = map { $near[$_][0] => 1 } 0 .. NEIGHBOURS - 1;
			my @ids = map { $_->[0] } @{ $found->{$query} // [] };
			$wanted += NEIGHBOURS;
			$hits += delete $near{$_} // 0 for @ids;
			$wrong += grep { abs($_->[1] - ($distance{"$query|$_->[0]"} // 9)) > $tolerance } @{ $found->{$query} };
		}
		my $what = $filtered ? 'of one category' : 'of all';
		is($close, 0, "$what: PostgreSQL knows which are nearest");
		cmp_ok(100 * $hits, '>=', $share * $wanted, "$index finds $share % of them") or diag "$hits of $wanted";
		note "$index, $what: $hits of $wanted";
		is($wrong, 0, 'and their distances');
	}
	return;
}

# The index of RedisVL's benchmark: text, tag, numeric, 384 dimensions, cosine.
sub create_index
{
	my ($name, $on, $prefix, $algorithm, %vector) = @_;
	%vector = (TYPE => 'FLOAT32', DIM => DIMENSIONS, DISTANCE_METRIC => 'COSINE', %vector);
	my @fields = map { $on eq 'JSON' ? [ "\$.$_", 'AS', $_ ] : [$_] } qw(title category price embedding);
	is(command('FT.CREATE', $name, 'ON', $on, 'PREFIX', 1, $prefix, 'SCHEMA', @{ $fields[0] }, 'TEXT', @{ $fields[1] }, 'TAG',
		@{ $fields[2] }, 'NUMERIC', @{ $fields[3] }, 'VECTOR', $algorithm, 2 * keys %vector, map { $_ => $vector{$_} } sort keys %vector),
		'OK', "an index over $on: $algorithm of $vector{TYPE}");
	return;
}

compute_distances('embedding');

for my $type (vector_types('real[]', 'vector'))
{
	subtest "the index of RedisVL's benchmark, from $type" => sub {
		$redis->cli('FLUSHALL');
		create_index('flat', 'HASH', 'doc:', 'FLAT');
		# Among vectors of random directions all are about as far, which is the hardest case for a graph: 28 % with the default of 10.
		create_index('hnsw', 'HASH', 'doc:', 'HNSW', EF_RUNTIME => 400);
		is(export('redis_hash_export', "SELECT id, title, category, price, embedding::$type AS embedding FROM documents", q{'doc:#{id}'},
			exclude => q{'{id}'}, wait_index => q{'hnsw'}), 'done', 'the table is exported');
		job_ended($node, 'done', rows_written => DOCUMENTS, index_failures => 0);
		index_holds($_, DOCUMENTS) for 'flat', 'hnsw';

		is($redis->cli('EVAL', q{
			local all = {}
			for i = 1, ARGV[1] do
				all[i] = redis.call('HGET', 'doc:' .. i, 'embedding')
			end
			return redis.sha1hex(table.concat(all))}, 0, DOCUMENTS),
			sha1_hex(join '', map { float32(@$_) } @vectors[ 0 .. DOCUMENTS - 1 ]), 'each vector is there, bit for bit');
		is(join(' ', sort $redis->cli('HKEYS', 'doc:7')), 'category embedding price title', 'and the other fields');
		is(command('FT.SEARCH', 'hnsw', '@category:{food} @price:[10 20] number61', 'NOCONTENT')->[1], 'doc:61', 'the text, tag and number are indexed');

		finds_the_nearest('flat', "embedding::$type", 100, 1e-5);
		finds_the_nearest('hnsw', "embedding::$type", 95, 1e-5);
	};
	subtest "the same over documents, from $type" => sub {
		$redis->cli('FLUSHALL');
		create_index('flat', 'JSON', 'doc:', 'FLAT');
		is(export('redis_json_export', "SELECT id, title, category, price, embedding::$type AS embedding FROM documents", q{'doc:#{id}'},
			exclude => q{'{id}'}, value => q{'*'}, wait_index => q{'flat'}), 'done', 'the table is exported');
		job_ended($node, 'done', rows_written => DOCUMENTS, index_failures => 0);
		index_holds('flat', DOCUMENTS);
		finds_the_nearest('flat', "embedding::$type", 100, 1e-5);
	};
}

# pgvector's own answer is the same.
subtest 'what pgvector finds' => sub {
	plan skip_all => 'no pgvector' unless $has{vector};
	is($session->query(qq{
		SELECT count(*)
		FROM queries AS q, LATERAL (SELECT d.id FROM documents AS d ORDER BY d.embedding::vector <=> q.embedding::vector LIMIT @{[NEIGHBOURS]}) AS n
		JOIN (SELECT query, id, row_number() OVER (PARTITION BY query ORDER BY distance) AS rank FROM distances) AS r USING (id)
		WHERE r.query = q.id AND rank <= @{[NEIGHBOURS]}}), QUERIES * NEIGHBOURS, 'is what we compare with');
};

# Directions on a circle, two degrees apart: far enough for halves, with which Redis may compute in halves, too.
subtest 'indexes of other widths' => sub {
	$session->query(q{
		TRUNCATE documents, queries;
		INSERT INTO documents SELECT i, 'document', CASE i % 2 WHEN 0 THEN 'even' ELSE 'odd' END, i,
			ARRAY[cosd(2 * i), sind(2 * i)]::real[] FROM generate_series(1, 180) AS i;
		INSERT INTO queries SELECT 1000 + i, CASE i % 2 WHEN 0 THEN 'even' ELSE 'odd' END,
			ARRAY[cosd(40 * i + 0.6), sind(40 * i + 0.6)]::real[] FROM generate_series(1, 9) AS i});
	my @widths = ([ 'float8[]', 'FLOAT64', 1e-9, 'embedding::float8[]' ]);
	push @widths, [ 'halfvec', 'FLOAT16', 2e-3, 'embedding::vector::halfvec::vector::real[]' ] if $has{halfvec};
	for (@widths)
	{
		my ($type, $width, $tolerance, $exact) = @$_;
		my $expression = $type eq 'halfvec' ? 'embedding::vector::halfvec' : "embedding::$type";
		compute_distances($exact);
		for my $on ('HASH', 'JSON')
		{
			$redis->cli('FLUSHALL');
			create_index('flat', $on, 'doc:', 'FLAT', TYPE => $width, DIM => 2);
			is(export('redis_' . lc($on) . '_export', "SELECT id, title, category, price, $expression AS embedding FROM documents", q{'doc:#{id}'},
				exclude => q{'{id}'}, wait_index => q{'flat'}), 'done', 'the table is exported');
			index_holds('flat', 180);
			finds_the_nearest('flat', $expression, 100, $tolerance);
		}
	}
};

subtest 'a vector of other dimensions than the index has' => sub {
	my %refused = (HASH => qr/Could not add vector with blob size 8 \(expected size 12\)/, JSON => qr/Invalid vector length. Expected 3, got 2/);
	my $id = 0;
	for my $on (sort keys %refused)
	{
		for my $type (vector_types('real[]', 'vector'))
		{
			$redis->cli('FLUSHALL');
			my @texts = map { text_of($type, $_) } [ 1, 2, 3 ], [ 1, 2 ], [ 0, 0, 1 ], [ 1, 2, 3, 4 ];
			@texts[ 1, 3 ] = @texts[ 3, 1 ];
			my $rows = join ', ', map { ++$id; "($_, '$texts[$_ - 1]'::$type)" } 1 .. @texts;
			command('FT.CREATE', 'three', 'ON', $on, 'PREFIX', 1, 'v:', 'SCHEMA', $on eq 'JSON' ? ('$.v', 'AS') : (), 'v',
				'VECTOR', 'FLAT', 6, 'TYPE', 'FLOAT32', 'DIM', 3, 'DISTANCE_METRIC', 'L2');
			my ($rc, $out, $err) = $node->psql('postgres', 'SELECT state, rows_written, index_failures, last_error FROM redis_'
				. lc($on) . "_export('SELECT * FROM (VALUES @{[ $rows =~ s/'/''/gr ]}) AS _ (id, v)', 'v:#{id}', wait_index => 'three')");
			like($out, qr/^done\|4\|2\|index "three" refused the document of key "v:4": $refused{$on}/, "$on, $type: Redis has it, its index not");
			like($err, qr/WARNING:  an index of Redis refused documents 2 times during export job \d+/, 'which the caller is told');
			is(redis_keys_count($redis, 'v:*'), 4, 'all rows are there');
			is(index_info('three')->{num_docs}, 2, 'two of them in the index');
			is(index_info('three')->{hash_indexing_failures}, 2, 'which counts the same');
			my $found = $json->decode($session->query(q{SELECT redis_command('redis', 'FT.SEARCH', 'three', '*=>[KNN 4 @v $q]', 'NOCONTENT',
				'SORTBY', '__v_score', 'DIALECT', '2', 'PARAMS', '2', 'q', '{1,2,3}'::real[])}));
			is_deeply($found, [ 2, 'v:1', 'v:3' ], 'and to be found');
		}
	}
};

$session->quit;
done_testing;
