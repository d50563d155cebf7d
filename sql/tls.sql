-- TLS: in a build without it, where all that asks for it fails, the output is that of tls_1.out. What goes over the line is in
-- test/t/050_tls.t.
CREATE SERVER secure FOREIGN DATA WRAPPER redis_export OPTIONS (port '1', tls 'true');
DROP SERVER secure;
CREATE SERVER secure FOREIGN DATA WRAPPER redis_export OPTIONS (port '1', tls 'false');
ALTER SERVER secure OPTIONS (SET tls 'on');
ALTER SERVER secure OPTIONS (ADD tls_cert_file '/etc/redis/us.crt');
ALTER SERVER secure OPTIONS (ADD tls_ca_file '/etc/redis/ca.crt', ADD tls_cert_file '/etc/redis/us.crt', ADD tls_key_file '/etc/redis/us.key');
DROP SERVER secure;

-- a socket has no name to be verified
CREATE SERVER secure FOREIGN DATA WRAPPER redis_export OPTIONS (host '/run/redis/redis.sock', tls 'true');
CREATE SERVER secure FOREIGN DATA WRAPPER redis_export OPTIONS (host '/run/redis/redis.sock', tls 'true', tls_server_name 'redis.example.com');
DROP SERVER secure;
CREATE SERVER secure FOREIGN DATA WRAPPER redis_export OPTIONS (host '/run/redis/redis.sock', tls 'true', tls_verify 'ca');
DROP SERVER secure;

-- a server that was made where there is TLS, and has come here by replication
CREATE SERVER secure FOREIGN DATA WRAPPER redis_export;
UPDATE pg_foreign_server SET srvoptions = '{port=1,tls=true}' WHERE srvname = 'secure';
SELECT redis_command('secure', 'PING');
DROP SERVER secure;
