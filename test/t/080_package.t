# What is handed out: the version is the same everywhere, META.json is what PGXN wants, the zip of make dist builds, installs and loads
# as it is, and an upgrade leaves the same objects as a fresh install.
use strict;
use warnings;
use File::Copy qw(copy);
use FindBin;
use RedisExport::Test;

my $project = "$FindBin::Bin/../..";
my $scratch = PostgreSQL::Test::Utils::tempdir();
my $redis = RedisExport::Redis->new;

sub read_page { return scalar slurp_file("$project/$_[0]") }

sub write_page
{
	my ($path, $text) = @_;
	open my $out, '>', $path or die "$path: $!";
	print $out $text;
	close $out or die "$path: $!";
	return;
}

# Runs it in a shell, quietly if all goes well.
sub run_ok
{
	my ($command, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $said = qx{exec 2>&1; $command};
	return ok($? == 0, $name) || (diag($said), 0);
}

# ---- The version ------------------------------------------------------------------------------------------------------

my ($version) = read_page('redis_export.control') =~ /^default_version = '([\d.]+)'$/m;
my ($three) = "$version.0.0" =~ /^(\d+\.\d+\.\d+)/;
my $meta = JSON::PP->new->decode(read_page('META.json'));
my ($address) = $meta->{maintainer} =~ /<(.+)>/;

subtest 'the version is that of the control file' => sub {
	my $install = "redis_export--$version.sql";
	is_deeply([ map { s{.*/}{}r } grep { !/--.*--/ } glob "$project/redis_export--*.sql" ], [$install], 'of install scripts there is the current one');
	like(read_page($install), qr{\A/\* \Q$install\E \*/\n\n.*\n\\echo Use "CREATE EXTENSION redis_export"}, 'it begins as all do');
	is($meta->{version}, $three, 'META.json');
	is($meta->{provides}{redis_export}{version}, $three, 'META.json, of the extension');
	is($meta->{provides}{redis_export}{file}, $install, 'META.json, the file');
	like((read_page('CHANGELOG.md') =~ /^(## .*)/m)[0], qr/^## \Q$version\E \((?:unreleased|\d{4}-\d\d-\d\d)\)$/, 'the first heading of CHANGELOG.md');
	like(read_page('debian/changelog'), qr/\Aredis-export \(\Q$three\E-/, 'debian/changelog');
	my $spec = read_page('redis_export.spec');
	like($spec, qr/^Version: +\Q$three\E$/m, 'redis_export.spec');
	like($spec, qr/^%changelog\n\* .* - \Q$three\E-\d+$/m, 'and its changelog');
	for my $script (map { s{.*/}{}r } glob "$project/redis_export--*--*.sql")
	{
		like(read_page($script), qr{\A/\* \Q$script\E \*/\n\n.*\n\\echo Use "ALTER EXTENSION redis_export UPDATE}, "$script begins as all do");
	}
};

# ---- META.json: the spec 1.0.0 of PGXN, as far as there are keys of it here ----------------------------------------------

# A rule is a pattern, a sub that returns what is wrong, a list of one rule for all elements, or a hash of rules for keys, where "!" after a
# key says that it is required, and "*" stands for keys of any name.
my $semver = qr/\A(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?\z/;
my $range = qr/\A(0|(([=!]=|[<>]=?)\s*)?\d+\.\d+\.\d+(,\s*(([=!]=|[<>]=?)\s*)?\d+\.\d+\.\d+)*)\z/;
my $term = qr{\A[^\s/\\[:cntrl:]]{2,}\z};
my $text = qr/\S/;
my $uri = qr{\A[a-z][a-z0-9+.-]*://[^\s/]+(/\S*)?\z};
my $email = qr/\A[^\s@]+@[^\s@]+\z/;
my $file = sub { return -e "$project/$_[0]" ? () : 'no such file' };
my $relations = { map { $_ => { '*' => $range } } qw(requires recommends suggests conflicts) };
my $spec = {
	'name!' => $term,
	'version!' => $semver,
	'abstract!' => $text,
	'maintainer!' => qr/\A[^<>]+ <[^\s@]+@[^\s@]+>\z/,
	'license!' => qr/\A(agpl_3|apache_2_0|artistic_2|bsd|gpl_[123]|lgpl_2_1|lgpl_3_0|mit|mozilla_1_[01]|openssl|postgresql|restricted|unrestricted)\z/,
	'provides!' => { '*' => { 'file!' => $file, 'version!' => $semver, abstract => $text, docfile => $file } },
	'meta-spec!' => { 'version!' => qr/\A1\.0\.\d+\z/, url => qr{\Ahttps?://pgxn\.org/meta/spec\.txt\z} },
	description => $text,
	generated_by => $text,
	release_status => qr/\A(stable|testing|unstable)\z/,
	tags => [qr{\A[^/\\[:cntrl:]]{2,255}\z}],
	prereqs => { map { $_ => $relations } qw(configure build test runtime develop) },
	resources => {
		homepage => $uri,
		bugtracker => { web => $uri, mailto => $email },
		repository => { 'url!' => $uri, web => $uri, 'type!' => qr/\A[a-z]+\z/ },
	},
};

sub faults
{
	my ($value, $rule, $where) = @_;
	return ref $value ? "$where: not a text" : $value =~ $rule ? () : "$where: $value" if ref $rule eq 'Regexp';
	return ref $value ? "$where: not a text" : map { "$where: $_" } $rule->($value) if ref $rule eq 'CODE';
	return "$where: empty, or of another kind" if ref $value ne ref $rule || (ref $value eq 'HASH' ? !%$value : !@$value);
	return map { faults($value->[$_], $rule->[0], "$where\[$_]") } 0 .. $#$value if ref $rule eq 'ARRAY';
	my @faults = map { /(.*)!$/ && !exists $value->{$1} ? "$where.$1: missing" : () } sort keys %$rule;
	for my $key (sort grep { !/^x_/i } keys %$value)
	{
		my $inner = $rule->{$key} // $rule->{"$key!"} // $rule->{'*'};
		push @faults, $inner ? faults($value->{$key}, $inner, "$where.$key") : "$where.$key: no such key";
	}
	return @faults;
}

subtest 'META.json' => sub {
	is(join("\n", faults($meta, $spec, '')), '', 'it keeps to the spec 1.0.0 of PGXN');
	for my $broken (
		[ name => 'a/b', '.name: a/b' ],
		[ version => '1.0', '.version: 1.0' ],
		[ license => undef, '.license: missing' ],
		[ provides => {}, '.provides: empty, or of another kind' ],
		[ resources => { homepage => 'nowhere' }, '.resources.homepage: nowhere' ],
		[ colour => 'red', '.colour: no such key' ])
	{
		my ($key, $value, $fault) = @$broken;
		my %changed = (%$meta, $key => $value);
		delete $changed{$key} unless defined $value;
		is(join("\n", faults(\%changed, $spec, '')), $fault, "and would not with $fault");
	}
	my ($host) = $address =~ /@(.*)/;
	for my $page (grep { -e "$project/$_" } qw(SECURITY.md debian/control.in debian/control debian/changelog debian/copyright redis_export.spec))
	{
		my @others = grep { $_ ne $address } read_page($page) =~ /([\w.+-]+@[\w.-]+\.\w+)/g;
		is("@others", '', "$page has no address but that of META.json");
		my @elsewhere = grep { !m{^https?://\Q$host\E(/|$)} } read_page($page) =~ m{(https?://[\w.-]*example\.org\S*)}g;
		is("@elsewhere", '', "$page has no home but that of META.json");
	}
};

# ---- The zip -------------------------------------------------------------------------------------------------------------

# Both are where Debian has PostgreSQL, and the user of the tests can read them.
my $pg_config = $ENV{REDIS_EXPORT_PG_CONFIG};
my %dir = map { $_ => qx{'$pg_config' --$_} =~ s/\n//r } qw(bindir sharedir pkglibdir includedir-server docdir);
my $can_build = -r "$dir{'includedir-server'}/postgres.h";
chomp(my $own = qx{pg_config --bindir});
my $root = substr $own, 0, -length $dir{bindir};    # the private copy that test/run has made

# new_root(NAME): another private copy of PostgreSQL, without the extension; returns where it is.
sub new_root
{
	my ($name) = @_;
	my $new = "$scratch/$name";
	mkdir $new or die "$new: $!";
	system "cp -a '$root/.' '$new'" and die "$root could not be copied";
	system "find '$new' -name 'redis_export*' -prune -exec rm -rf {} +" and die "$new still has the extension";
	return $new;
}

# Builds the tree and installs it into that copy. The tree has no hiredis of its own, so that this is what a user of it gets.
sub build_into
{
	my ($tree, $into, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return run_ok("make -s -C '$tree' PG_CONFIG='$pg_config' && make -s -C '$tree' install PG_CONFIG='$pg_config' DESTDIR='$into'", $name);
}

# A server of that copy. The worker of an export finds its library there, too.
sub node_of
{
	my ($into, $name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, install_path => $into . $dir{bindir} =~ s{/bin$}{}r);
	$node->init(extra => [ '--no-locale', '-E', 'UTF8', '-U', 'postgres' ]);
	$node->start;
	return $node;
}

my $current;    # the copy with the extension from the zip
subtest 'make dist' => sub {
	plan skip_all => 'git is not installed' if system 'command -v git >/dev/null';
	plan skip_all => "the user of the tests cannot read the headers of $pg_config" unless $can_build;

	system "cp -a '$project' '$scratch/repository'" and die 'the project could not be copied';
	my $git = 'git -c user.name=test -c user.email=test@localhost -c init.defaultBranch=main';
	my $zip = "$scratch/repository/redis_export-$three.zip";
	run_ok("cd '$scratch/repository' && $git init -q && $git add -A && $git commit -q -m all && make dist && test -s '$zip'", 'it makes a zip of its name') or return;
	run_ok("cd '$scratch' && python3 -m zipfile -e '$zip' .", 'which unpacks');
	is(join(' ', glob "$scratch/redis_export-*"), "$scratch/redis_export-$three", 'into one folder');
	my $tree = "$scratch/redis_export-$three";
	ok(-e "$tree/$_", "has $_") for qw(META.json Makefile LICENSE README.md docs/reference.md sql/setup.sql expected/setup.out test/run demo/run);
	ok(!-e "$tree/$_", "has no $_") for qw(.ci .github .gitattributes .gitignore bench);

	$current = new_root('current');
	build_into($tree, $current, 'it builds and installs with the hiredis of this machine') or return;
	my $doc = "$current$dir{docdir}/redis_export";
	for my $page (map { s{^\Q$tree\E/}{}r } map { glob "$tree/$_" } qw(README.md CHANGELOG.md SECURITY.md LICENSE docs/*.md))
	{
		ok(-e "$doc/$page", "$page is installed");
		next unless $page =~ /\.md$/;
		my @links = grep { !/:/ && !m{^(\.\./)?(bench/|docker/|debian/|src/|CONTRIBUTING\.md$)} } slurp_file("$doc/$page") =~ /\]\(([^)#\s]+)/g;
		is(join(' ', grep { !-e "$doc/" . ($page =~ s{[^/]*$}{}r) . $_ } @links), '', "and where it links to, but for what serves the repository");
	}

	my $node = node_of($current, 'zip');
	$node->safe_psql('postgres', 'CREATE EXTENSION redis_export');
	add_server($node, $redis);
	is($node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'redis_export'}), $version, 'it can be created');
	is($node->safe_psql('postgres', q{SELECT state, rows_written FROM redis_hash_export('SELECT 1 AS id', 'zip:#{id}')}), 'done|1', 'and exports');

	# the tables of the compose file: those of the pages, where the extension can be
	my $pages = join '', map { slurp_file($_) } "$tree/README.md", glob "$tree/docs/*.md";
	my $tables = slurp_file("$tree/docker/init.sql");
	is(join("\n", grep { /^(CREATE TABLE|INSERT)/ && index($pages, $_) < 0 } split /\n/, $tables), '', 'docker/init.sql has the tables of the pages');
	$node->safe_psql('postgres', 'CREATE DATABASE docker');
	$node->safe_psql('docker', $tables);
	is($node->safe_psql('docker', 'SELECT count(*) > 1000 FROM people'), 't', 'and runs');

	is($node->safe_psql('postgres', q{SELECT version FROM pg_get_loaded_modules() WHERE file_name LIKE 'redis_export%'}),
		'', 'a session that has not used it has not loaded it') if $node->pg_version >= 18;
	is($node->safe_psql('postgres', q{LOAD 'redis_export'; SELECT version FROM pg_get_loaded_modules() WHERE file_name LIKE 'redis_export%'}),
		$version, 'the library tells its version') if $node->pg_version >= 18;
	$node->stop;

	run_ok("make -s -C '$tree' uninstall PG_CONFIG='$pg_config' DESTDIR='$scratch/gone' && make -s -C '$tree' install PG_CONFIG='$pg_config' DESTDIR='$scratch/gone'"
		. " && make -s -C '$tree' uninstall PG_CONFIG='$pg_config' DESTDIR='$scratch/gone'", 'and can be uninstalled');
	is(qx{find '$scratch/gone' -type f}, '', 'as a whole');
};

# ---- Upgrades --------------------------------------------------------------------------------------------------------------

# All objects of the extension with what is said about them, one a line.
sub objects
{
	my ($node, $database) = @_;
	return $node->safe_psql($database, <<'SQL');
SET search_path = pg_catalog;
WITH member AS (
	SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.extname = 'redis_export'
		AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e')
SELECT concat_ws(' | ', pg_describe_object(m.classid, m.objid, 0), obj_description(m.objid, m.classid::regclass::name), pg_get_functiondef(p.oid), p.proacl,
	pg_get_viewdef(c.oid), c.relacl, w.fdwacl, w.fdwhandler::regproc, w.fdwvalidator::regproc, t.typacl, i.privtype, i.initprivs,
	(SELECT string_agg(concat_ws(' ', a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attacl, col_description(a.attrelid, a.attnum)), ', '
		ORDER BY a.attnum)
	 FROM pg_attribute a WHERE a.attrelid IN (c.oid, t.typrelid) AND a.attnum > 0 AND NOT a.attisdropped))
FROM member m
	LEFT JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
	LEFT JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
	LEFT JOIN pg_type t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid
	LEFT JOIN pg_foreign_data_wrapper w ON m.classid = 'pg_foreign_data_wrapper'::regclass AND w.oid = m.objid
	LEFT JOIN pg_init_privs i ON i.classoid = m.classid AND i.objoid = m.objid AND i.objsubid = 0
ORDER BY 1
SQL
}

# From the version OLD, which must be created in the database postgres, to NEW, beside a fresh install of NEW.
sub upgrade
{
	my ($node, $old, $new) = @_;
	$node->safe_psql('postgres', "ALTER EXTENSION redis_export UPDATE TO '$new'");
	$node->safe_psql('postgres', 'CREATE DATABASE fresh');
	$node->safe_psql('fresh', "CREATE EXTENSION redis_export VERSION '$new'");
	my ($upgraded, $fresh) = (objects($node, 'postgres'), objects($node, 'fresh'));
	$node->safe_psql('postgres', 'DROP DATABASE fresh');
	cmp_ok(() = $fresh =~ /^function /gm, '>', 10, "the objects of $new are seen");
	return ($upgraded, $fresh);
}

subtest 'the last release becomes this version' => sub {
	plan skip_all => 'nothing has been released, as git has it' unless $ENV{REDIS_EXPORT_RELEASE};
	plan skip_all => 'the zip was not installed' unless $current;
	my $release = $ENV{REDIS_EXPORT_RELEASE};
	my ($old) = slurp_file("$release/redis_export.control") =~ /^default_version = '([\d.]+)'$/m;
	if ($old eq $version)
	{
		is(slurp_file("$release/redis_export--$old.sql"), read_page("redis_export--$version.sql"), 'its install script is as it was released');
		return;
	}
	my $root = new_root('release');
	system "cp -a '$release' '$scratch/release-source'" and die;
	build_into("$scratch/release-source", $root, "$old builds") or return;
	my $node = node_of($root, 'release');
	$node->safe_psql('postgres', 'CREATE EXTENSION redis_export');
	add_server($node, $redis);
	my $export = q{SELECT state, rows_written FROM redis_hash_export('SELECT 1 AS id', 'upgrade:#{id}')};
	is($node->safe_psql('postgres', $export), 'done|1', "$old exports");
	# as the upgrade of a package does, while the server runs
	run_ok("make -s -C '$scratch/redis_export-$three' install PG_CONFIG='$pg_config' DESTDIR='$root'", "$version is installed over it");
	is($node->safe_psql('postgres', $export), 'done|1', "the library of $version serves the objects of $old");
	cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM redis_export_progress'), '>', 0, 'and their view');
	my ($upgraded, $fresh) = upgrade($node, $old, $version);
	is($upgraded, $fresh, 'an upgrade leaves the objects of a fresh install');
	is($node->safe_psql('postgres', $export), 'done|1', 'and they work');
};

# A next version that is made up here: with what an upgrade can change, and how.
subtest 'a version that is made up' => sub {
	plan skip_all => 'the zip was not installed' unless $current;
	my $folder = "$current$dir{sharedir}/extension";
	my $install = read_page("redis_export--$version.sql");
	my $next = '999.0';
	my $guard = qq{\\echo Use "ALTER EXTENSION redis_export UPDATE TO '$next'" to load this file. \\quit\n};
	my %change = (
		type => "ALTER TYPE redis_export_job ADD ATTRIBUTE weather text;\n",
		view => "CREATE OR REPLACE VIEW redis_export_progress AS\n\tSELECT * FROM redis_export_jobs();\n",
		function => "CREATE FUNCTION redis_export_forecast(job bigint)\nRETURNS redis_export_job\nAS 'MODULE_PATHNAME', 'redis_export_wait'\nLANGUAGE C VOLATILE;\n",
		comment => "COMMENT ON FUNCTION redis_export_forecast(bigint) IS\n'what will become of an export';\n",
		revoke => "REVOKE ALL ON FUNCTION redis_export_forecast(bigint) FROM PUBLIC;\n");
	my $fresh = $install =~ s/(\tlast_error text)(\);\n\nCOMMENT ON TYPE redis_export_job)/$1,\n\tweather text$2/r;
	isnt($fresh, $install, 'the type is where it is looked for');
	write_page("$folder/redis_export--$next.sql", $fresh . join '', @change{qw(function comment revoke)});

	my $node = node_of($current, 'made_up');
	my $compare = sub {
		my @changes = @_;
		write_page("$folder/redis_export--$version--$next.sql", $guard . join '', @change{@changes});
		$node->safe_psql('postgres', "CREATE EXTENSION redis_export VERSION '$version'");
		my @both = upgrade($node, $version, $next);
		$node->safe_psql('postgres', 'DROP EXTENSION redis_export') unless @changes == 5;
		return @both;
	};
	for my $forgotten (qw(revoke comment view function))
	{
		my ($upgraded, $fresh) = $compare->(grep { $_ ne $forgotten && !($forgotten eq 'function' && /comment|revoke/) } qw(type view function comment revoke));
		isnt($upgraded, $fresh, "it is seen that the upgrade forgets the $forgotten");
	}
	my ($upgraded, $expected) = $compare->(qw(type view function comment revoke));
	is($upgraded, $expected, 'an upgrade leaves the objects of a fresh install');

	# This library knows less than these objects, as in a session that has loaded it before the upgrade.
	my ($status, $out, $err) = $node->psql('postgres', 'SELECT count(*) FROM redis_export_progress');
	like($err, qr/ERROR:  the loaded library of redis_export is older than the extension\nHINT:  Connect again, or install/, 'an older library says so');
};

done_testing();
