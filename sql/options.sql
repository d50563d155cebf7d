-- Options of foreign servers and user mappings
CREATE SERVER s1 FOREIGN DATA WRAPPER redis_export;
CREATE SERVER s2 FOREIGN DATA WRAPPER redis_export OPTIONS (host 'localhost', port '6380', db '3',
	connect_timeout '2.5', timeout '30', client_name 'nightly');
ALTER SERVER s1 OPTIONS (ADD host '/run/redis/redis.sock');
DROP SERVER s1;

-- an option that is not known, with the nearest one as a hint
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (hots 'localhost');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (conect_timeout '3');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (dbname 'x');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (something_else 'x');
CREATE FOREIGN DATA WRAPPER other VALIDATOR redis_export_validator OPTIONS (host 'x');

-- secrets belong into the mapping, addresses into the server
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (password 'secret');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (username 'app');
CREATE USER MAPPING FOR CURRENT_USER SERVER s2 OPTIONS (host 'localhost');
CREATE USER MAPPING FOR CURRENT_USER SERVER s2 OPTIONS (passwd 'secret');

-- all in one, as services hand it out
CREATE SERVER s4 FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'redis://localhost:6380/3', timeout '30');
ALTER SERVER s4 OPTIONS (ADD tls_verify 'ca');
ALTER SERVER s4 OPTIONS (ADD host 'localhost');
ALTER SERVER s4 OPTIONS (ADD port '6380');
ALTER SERVER s4 OPTIONS (ADD db '0');
ALTER SERVER s4 OPTIONS (ADD tls 'true');
ALTER SERVER s4 OPTIONS (ADD sentinel_hosts 'a', ADD sentinel_service 'm');
DROP SERVER s4;
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'redis://app:secret@localhost:6379/0');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'localhost:6379');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'unix:///run/redis/redis.sock');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'redis://%2Frun%2Fredis%2Fredis.sock');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'redis:///0');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'redis://localhost:secret');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'redis://localhost/sessions');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'redis://localhost/0?timeout=5');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'redis://::1:6379');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (uri 'redis://local%20host');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (host 'unix:///run/redis/redis.sock');

-- values that cannot be
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (host '');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (host 'two words');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (host 'localhost:6379');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (host 'redis://localhost:6379/0');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (port '0');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (port '65536');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (port '6379.5');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (port '6379x');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (port '');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (db '-1');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (timeout '0');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (timeout 'nan');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (connect_timeout '1e9');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (client_name 'two words');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'perhaps');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'false', tls_verify 'somewhat');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'false', tls_server_name '');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'false', tls_ca_file '');

-- TLS is off because somebody said so, or all other options for it are off too
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (tls_ca_file '/etc/redis/ca.crt');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (tls_verify 'full');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'false', tls_cert_file '/etc/redis/us.crt');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'false', tls_key_file '/etc/redis/us.key');
CREATE SERVER s3 FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'off', tls_ca_file '/etc/redis/ca.crt', tls_verify 'ca',
	tls_cert_file '/etc/redis/us.crt', tls_key_file '/etc/redis/us.key', tls_server_name 'redis.example.com');
ALTER SERVER s3 OPTIONS (DROP tls);
ALTER SERVER s3 OPTIONS (DROP tls_key_file);

-- a socket is entered by the server's own operating system user
CREATE ROLE regress_redis_admin;
GRANT USAGE ON FOREIGN DATA WRAPPER redis_export TO regress_redis_admin;
SET ROLE regress_redis_admin;
CREATE SERVER mine FOREIGN DATA WRAPPER redis_export OPTIONS (host '/run/redis/redis.sock');
CREATE SERVER mine FOREIGN DATA WRAPPER redis_export OPTIONS (host 'localhost');
ALTER SERVER mine OPTIONS (SET host '/run/redis/redis.sock');
DROP SERVER mine;

-- and files are read by it
CREATE SERVER mine FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'false', tls_ca_file '/etc/redis/ca.crt');
CREATE SERVER mine FOREIGN DATA WRAPPER redis_export OPTIONS (tls 'false', tls_server_name 'redis.example.com');
ALTER SERVER mine OPTIONS (ADD tls_cert_file '/etc/redis/us.crt', ADD tls_key_file '/etc/redis/us.key');
DROP SERVER mine;
RESET ROLE;
ALTER SERVER s3 OWNER TO regress_redis_admin;
SET ROLE regress_redis_admin;
ALTER SERVER s3 OPTIONS (ADD host 'elsewhere');
RESET ROLE;
DROP SERVER s3;
REVOKE USAGE ON FOREIGN DATA WRAPPER redis_export FROM regress_redis_admin;
DROP ROLE regress_redis_admin;

-- a user mapping is complete or not there
CREATE USER MAPPING FOR CURRENT_USER SERVER s2 OPTIONS (username 'app');
SELECT redis_command('s2', 'PING');
DROP SERVER s2 CASCADE;

-- clusters and sentinels
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (cluster 'perhaps');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'a:26379,:1', sentinel_service 'm');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'a:99999', sentinel_service 'm');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts '[::1', sentinel_service 'm');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts '', sentinel_service 'm');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'a,/run/redis/redis.sock', sentinel_service 'm');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'a');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_service 'm');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'a', sentinel_service '');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'a', sentinel_service 'm', port '6379');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'a', sentinel_service 'm', cluster 'true');
CREATE SERVER bad FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_password 'x');
CREATE SERVER good FOREIGN DATA WRAPPER redis_export OPTIONS (sentinel_hosts 'a, b:1 ,[::1]:26379,[::1]', sentinel_service 'm', cluster 'Auto');
DROP SERVER good;
