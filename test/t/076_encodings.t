# Databases of other encodings than UTF-8. What Redis says comes in the database's encoding wherever it is shown. What a job shows of itself is
# right for sessions of every database of the server. What an encoding lacks is escaped, and nothing fails for it.
use strict;
use warnings;
use Encode ();
use RedisExport::Fake;
use RedisExport::Test;
use RedisExport::Jobs;

local $ENV{PGCLIENTENCODING} = 'UTF8';

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => 'redis_export.notice_interval = 0');

# Each with a word that it can write, and Perl's name of its encoding.
my %databases = (
	postgres => { encoding => 'UTF8', word => 'ñ鍵☃€', perl => 'UTF-8' },
	latin1 => { encoding => 'LATIN1', word => 'ñé', perl => 'iso-8859-1' },
	win1252 => { encoding => 'WIN1252', word => 'ñé€', perl => 'cp1252' },
	eucjp => { encoding => 'EUC_JP', word => 'é鍵', perl => 'euc-jp' },
	ascii => { encoding => 'SQL_ASCII', word => 'ñ鍵☃', perl => 'UTF-8' });
my @names = sort keys %databases;
my $options = sprintf q{host '%s', port '%d'}, $redis->host, $redis->port;

for my $name (grep { $_ ne 'postgres' } @names)
{
	$node->safe_psql('postgres', "CREATE DATABASE $name ENCODING '$databases{$name}{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
	$node->safe_psql($name, "CREATE EXTENSION redis_export; CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS ($options)");
}

# A text as a database shows it: characters that its encoding lacks are the bytes of UTF-8, each as \x and two digits.
sub shown
{
	my ($name, $text) = @_;
	my $encoding = Encode::find_encoding($databases{$name}{perl});
	return join '', map {
		my $character = $_;
		my $bytes = $encoding->encode($character, sub { '' });
		my $utf8 = Encode::encode('UTF-8', $character);
		$bytes ne '' ? $utf8 : join '', map { sprintf '\x%02x', ord } split //, $utf8;
	} split //, Encode::decode('UTF-8', $text);
}

sub error_in
{
	my ($name, $query) = @_;
	my ($status, undef, $err) = $node->psql($name, $query);
	return $status ? $err =~ s/^psql:<stdin>:\d+: //gmr : '';
}

my $last_failure = 'redis_export_failures((SELECT max(job) FROM redis_export_progress))';

# What Redis says, by a script.
my $everything = 'ñé€鍵☃';
my $script = q{return redis.error_reply(redis.call("GET", "everything"))};

subtest 'what Redis says, and keys' => sub {
	for my $name (@names)
	{
		my ($word, $told) = ($databases{$name}{word}, shown($name, $everything));
		$redis->cli('SET', "s:$word", 'a string');
		$redis->cli('SET', 'everything', "WRONGTYPE $everything");
		like(error_in($name, qq{SELECT redis_command('redis', 'EVAL', '$script', '0')}),
			qr/ERROR:  Redis answered: WRONGTYPE \Q$told\E\n/, "$name: an error of redis_command");
		my ($status, $out, $err) = $node->psql($name, qq{SELECT rows_failed FROM redis_json_export(\$\$SELECT '$word' AS k, 1 AS v\$\$, 's:#{k}', on_error => 'ignore')});
		is($out, 1, "$name: a row fails");
		is($node->safe_psql($name, "SELECT key FROM $last_failure"), "s:$word", "$name: its key");
		like(error_in($name, qq{SELECT redis_json_export(\$\$SELECT '$word' AS k, 1 AS v\$\$, 's:#{k}')}),
			qr/row 1 with key "s:\Q$word\E" failed/, "$name: in the error");
		$node->psql($name, qq{SELECT redis_command_export('SELECT 1 AS v', ARRAY['EVAL', '$script', '0'], on_error => 'ignore')});
		is($node->safe_psql($name, "SELECT message FROM $last_failure"), "Redis answered: WRONGTYPE $told", "$name: what Redis said to a row");
		is($node->safe_psql($name, qq{SELECT command FROM redis_export_preview(\$\$SELECT '$word' AS k, '{"a":"$word"}' AS v\$\$, 's:#{k}')}),
			qq{JSON.SET "s:$word" \$ "{\\"a\\":\\"$word\\"}"}, "$name: the preview");
		is($node->safe_psql($name, qq{SELECT missing_keys FROM redis_export_verify(\$\$SELECT '$word' AS k, '{}' AS v\$\$, 'm:#{k}')}),
			"{m:$word}", "$name: a key of verify");
	}
};

subtest 'bytes that are no text' => sub {
	for my $name (@names)
	{
		$node->psql($name, q{SELECT redis_json_export($$SELECT '\x41c3e9c3'::bytea AS v, '\x5c0901ff'::bytea AS w$$, '#{v}#{w}', path => '$.a', on_error => 'ignore')});
		is($node->safe_psql($name, "SELECT key FROM $last_failure"), 'A\xc3\xe9\xc3\x5c\x09\x01\xff', "$name: in a key");
		is($node->safe_psql($name, q{SELECT command FROM redis_export_preview($$SELECT '\x4141c3e9c3'::bytea AS v, '\x5c0901'::bytea AS w$$, ARRAY['SET', 'k', '#{v}#{w}'])}),
			'SET k "AA\xc3\xe9\xc3\\\\\t\x01"', "$name: in the preview");
	}
};

# What a job of one database shows, in the sessions of all.
subtest 'a job seen from other databases' => sub {
	my %jobs;
	for my $name (@names)
	{
		my $word = $databases{$name}{word};
		$redis->cli('SET', "$word:$word", 'a string');
		$node->psql($name, qq{SELECT redis_json_export(\$\$SELECT '$word' AS "$word", 1 AS v\$\$, '$word:#{$word}')});
		$jobs{$name} = last_job($node);
		is($node->safe_psql($name, 'SELECT state FROM redis_export_progress ORDER BY job DESC LIMIT 1'), 'failed', "a job of $name");
	}
	for my $reader (@names)
	{
		for my $writer (@names)
		{
			my $word = shown($reader, $databases{$writer}{word});
			my $row = $node->safe_psql($reader, "SELECT key_template, query, last_error FROM redis_export_progress WHERE job = $jobs{$writer}");
			my $error = qq{row 1 with key "$word:$word" failed: Redis answered: Existing key has wrong Redis type};
			is($row, qq{$word:#{$word}|SELECT '$word' AS "$word", 1 AS v|$error}, "$writer in $reader");
			is($node->safe_psql($reader, "SELECT key, length(key) > 0 FROM redis_export_failures($jobs{$writer})"), "$word:$word|t", 'its failures');
			is($node->safe_psql($reader, "SELECT last_error FROM redis_export_wait($jobs{$writer})"), $error, 'whoever waits');
		}
	}
};

subtest 'SQL_ASCII holds what is no UTF-8' => sub {
	local $ENV{PGCLIENTENCODING} = 'SQL_ASCII';
	$node->psql('ascii', "SELECT redis_json_export('SELECT ''\xe9'' AS k', '\xe9\xff:#{k}')");
	my $job = last_job($node);
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	is($node->safe_psql($_, "SELECT key_template FROM redis_export_progress WHERE job = $job"), '\xe9\xff:#{k}', "in $_") for @names;
};

subtest 'long texts end where a character ends' => sub {
	for my $name (qw(latin1 eucjp postgres))
	{
		my $query = 'SELECT 1 AS k, 1 AS v -- ' . ('é' x 3000);
		for my $offset ('', '-')
		{
			$node->safe_psql($name, "SELECT redis_json_export('$query', '$offset" . ('é' x 700) . "#{k}')");
			for my $reader (@names)
			{
				my $is = $node->safe_psql($reader, 'SELECT query, key_template FROM redis_export_progress ORDER BY job DESC LIMIT 1');
				like($is, qr/^SELECT 1 AS k, 1 AS v -- (?:é)+\|$offset(?:é)+$/, "of $name in $reader");
				cmp_ok(length $is, '>', 4080 + 1010, 'and no earlier');
			}
		}
	}
};

subtest 'long texts are converted whole' => sub {
	for my $name (@names)
	{
		my $text = ('-' x 7) . ($databases{$name}{word} x 1000);
		is($node->safe_psql($name, qq{SELECT command FROM redis_export_preview(\$\$SELECT 'k' AS k, '"$text"' AS v\$\$, '#{k}', value => 'v')}),
			qq{JSON.SET k \$ "\\"$text\\""}, "$name: in the preview");
		$redis->cli('HSET', 'long', 'text', $text);
		is($node->safe_psql($name, q{SELECT fields->>'text' FROM redis_hash_scan('redis', 'long')}), $text, "$name: in a scan");
		my $key = 'é' x 120;
		$key = 'ñ' x 120 if $name eq 'ascii';
		$node->psql($name, qq{SELECT redis_json_export(\$\$SELECT '$key' AS k, 'no JSON' AS v\$\$, '#{k}', value => 'v', on_error => 'ignore')});
		like($node->safe_psql($_, "SELECT key FROM $last_failure"), qr/^(?:é|ñ){40,62}\.\.\.$/, "$name: a long key in $_") for @names;
	}
};

subtest 'nodes of Redis' => sub {
	for my $name (@names)
	{
		my $word = $databases{$name}{word};
		$node->safe_psql($name, "CREATE SERVER far FOREIGN DATA WRAPPER redis_export OPTIONS (host '/no/$word')");
		$node->psql($name, q{SELECT redis_json_export('SELECT 1 AS k', '#{k}', server => 'far', retry_timeout => '0.1 s')});
		for my $reader (@names)
		{
			my $row = $node->safe_psql($reader, 'SELECT host, p.last_error FROM redis_export_nodes JOIN redis_export_progress p USING (job) ORDER BY job DESC LIMIT 1');
			my $host = shown($reader, $word);
			like($row, qr{^/no/\Q$host\E\|.*"/no/\Q$host\E"}, "of $name in $reader");
		}
	}
};

subtest 'an index, and keys of ours' => sub {
	for my $name (@names)
	{
		my $word = $databases{$name}{word};
		my $sql = sub { return qq{SELECT redis_hash_export('SELECT 1 AS id, ''$word'' AS n', '$word-i:#{id}', wait_index => '$word')} };
		like(error_in($name, $sql->()), qr/could not look at index "\Q$word\E"/, "$name: an index that is not there");
		$redis->cli('FT.CREATE', $word, 'ON', 'HASH', 'PREFIX', 1, "$word-i:", 'SCHEMA', 'n', 'NUMERIC');
		my (undef, undef, $err) = $node->psql($name, $sql->());
		like($err, qr/index "\Q$word\E" refused the document of key "\Q$word\E-i:1": .*\Q$word\E/, 'one that refuses');
		$node->safe_psql($name, qq{SELECT redis_export_define('$word-s', 'SELECT 1 AS id', '$word-s:#{id}'); CALL redis_export_run('$word-s')});
		is($redis->cli('HEXISTS', "redis_export:{$word-s}:keys", "$word-s:1"), 1, 'the books');
		is($redis->cli('SISMEMBER', 'redis_export:exports', "$word-s"), 1, 'and the name of the export');
		$node->safe_psql($name, 'DELETE FROM redis_export_definition');
	}
};

subtest 'marks, patterns and prune' => sub {
	for my $name (@names)
	{
		my $word = $databases{$name}{word};
		my $define = sub { return qq{SELECT redis_export_define('$word', 'SELECT 1 AS id, ''$word''::text AS "$word"', '$word-m:#{id}', value => '*', watermark_column => '$word')} };
		$node->safe_psql($name, $define->());
		like($node->safe_psql($name, qq{CALL redis_export_run('$word', rows => 'new')}), qr/\|done\|1\|1\|/, "$name: an export with a mark");
		is(join('|', $redis->cli('HMGET', "redis_export:{$word}", 'mark', 'mark_column')), "$word|$word", 'in Redis all is UTF-8');
		like($node->safe_psql($name, qq{CALL redis_export_run('$word', rows => 'new')}), qr/\|done\|0\|0\|/, 'the next run goes by it');
		$node->safe_psql($name, qq{SELECT redis_export_set_mark('$word', '$word$word')});
		is($redis->cli('HGET', "redis_export:{$word}", 'mark'), "$word$word", 'it is set');
		$node->safe_psql($name, qq{SELECT redis_export_set_mark('$word', NULL)});
		is($redis->cli('HEXISTS', "redis_export:{$word}", 'mark'), 0, 'and forgotten');

		# the same name in another database is another export
		for my $other (grep { $_ ne $name && shown($_, $word) eq $word } @names)
		{
			$node->safe_psql($other, $define->());
			like(error_in($other, qq{CALL redis_export_run('$word')}), qr/the books of export "\Q$word\E" in Redis are those of another definition\nDETAIL:  They belong to role "postgres" in database "$name"/,
				"seen from $other");
			$node->safe_psql($other, 'DELETE FROM redis_export_definition');
		}

		$redis->cli('JSON.SET', "$word-m:2", '$', '1');
		is($node->safe_psql($name, qq{SELECT string_agg(key, ' ' ORDER BY key) FROM redis_scan('redis', '$word-m:*') key}), "$word-m:1 $word-m:2", 'a pattern');
		is($node->safe_psql($name, qq{SELECT unknown_keys FROM redis_export_verify('SELECT 1 AS id, ''$word''::text AS "$word"', '$word-m:#{id}', value => '*')}), "{$word-m:2}", 'verify');

		# the same by name: a key that is in the books, and has no row
		$redis->cli('HSET', "redis_export:{$word}:keys", "$word-m:2", '');
		is($node->safe_psql($name, qq{SELECT expected, missing, unknown, extra_keys FROM redis_export_verify('$word')}), "1|0|0|{$word-m:2}", 'verify by name');
		like($node->safe_psql($name, qq{CALL redis_export_run('$word', prune => true, prune_limit => 1)}), qr/\|done\|1\|0\|1\|0\|1\|$/, 'prune');
		is(redis_keys_count($redis, "$word-m:*"), 1, 'has done its work');
		is($redis->cli('HKEYS', "redis_export:{$word}:keys"), "$word-m:1", 'in the books, too');
		$node->safe_psql($name, 'DELETE FROM redis_export_definition');
	}
};

# Users, passwords and a service are sent in UTF-8, as all that is sent.
subtest 'who enters' => sub {
	my $locked = RedisExport::Redis->new(modules => 0);
	$locked->cli('ACL', 'SETUSER', $databases{$_}{word}, 'on', ">p$databases{$_}{word}", '~*', '+@all') for @names;
	$locked->cli('ACL', 'SETUSER', 'default', 'off');
	my $sentinel = RedisExport::Fake->new(sub { return '*-1' });
	for my $name (@names)
	{
		my $word = $databases{$name}{word};
		$node->safe_psql($name, sprintf q{
			CREATE SERVER locked FOREIGN DATA WRAPPER redis_export OPTIONS (host '%s', port '%d');
			CREATE USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (username '%s', password 'p%s');
			CREATE SERVER ha FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts '%s:%d', sentinel_service '%s')},
			$locked->host, $locked->port, $word, $word, $sentinel->host, $sentinel->port, $word);
		is($node->safe_psql($name, q{SELECT redis_command('locked', 'ACL', 'WHOAMI')}), qq{"$word"}, "$name: a user");
		is($node->safe_psql($name, q{SELECT state FROM redis_command_export('SELECT 1 AS v', ARRAY['SET', 'k', '#{v}'], server => 'locked')}), 'done', 'in an export');
		like(error_in($name, q{SELECT redis_command('ha', 'PING')}), qr/knows no master named "\Q$word\E"/, 'a service');
		is(($sentinel->commands('SENTINEL'))[-1]{words}[2], $word, 'as the sentinel was asked');
	}
};

# Their encoding is known to nobody: those that were named in another one are shown escaped at least.
subtest 'names of databases and roles' => sub {
	$node->safe_psql('latin1', q{CREATE DATABASE "naïve"; CREATE ROLE "rôle" SUPERUSER LOGIN});
	$node->safe_psql('latin1', q{SET ROLE "rôle"; SELECT redis_json_export('SELECT 1 AS k', 'k:#{k}')});
	my $sql = 'SELECT usename, length(usename) FROM redis_export_progress ORDER BY job DESC LIMIT 1';
	is($node->safe_psql('latin1', $sql), 'rôle|4', 'a role');
	is($node->safe_psql('postgres', $sql), 'r\xf4le|7', 'in another database');

	my $job = start_job($node, 'SELECT i AS id FROM generate_series(1, 10000) i', 'c:#{id}', rate => 100);
	until_written($node, $job, 10);
	$node->safe_psql('latin1', qq{SET ROLE "rôle"; SELECT redis_export_cancel($job)});
	job_ends($node, $redis, $job, state => 'canceled', error => qr/^the export was canceled by role "rôle"$/, keys => 'c:*');
};

done_testing;
