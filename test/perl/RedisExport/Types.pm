# RedisExport::Types: what a value of each type must be in Redis, byte for byte, written down by hand.
#
#   $ENV{PGCLIENTENCODING} = 'UTF8';             all text in here is bytes in UTF-8
#   roles_for_cells($node);
#   my @cells = cells_database($node, $redis, 'latin1');
#       makes a database of that name and encoding, with the extension, the server "redis", one row of all types in the table "cells",
#       and a domain over each type; returns what it holds, as hashes:
#       column      its name in the table, c001 and so on; c001_domain is the domain
#       type, sql   how it is made: CAST(sql AS type)
#       json        its bytes in a document of the whole row
#       get         its bytes as RedisJSON gives them back
#       field       its bytes in a hash
#       key         its bytes in a key
#       is_array    an array, or a domain over one
#       is_vector   of pgvector: an array of numbers if it is a column, and text within other values
#   skipped()       what this PostgreSQL lacks, of what was asked for last
#   left_out()      the types that have no cell, and why
#   hostile_settings()   statements that set all by which a session changes how its values look
#
# The tables below hold bytes as they are, with nothing escaped: type, SQL, JSON and field, and what RedisJSON makes of the JSON where
# that is something else (it has numbers of 64 bits, the last digit of which it may miss, and leaves out spaces), with a " ¦ " between
# them. What has bytes that an editor would not show stands in more_cells(). Money looks as lc_monetary says, here C; and the reg* types
# are names as search_path and quote_all_identifiers have them.
package RedisExport::Types;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT = qw(roles_for_cells cells_database skipped left_out hostile_settings);

my $types = q{
	CREATE TYPE mood AS ENUM ('sad', 'a "glad" é');
	CREATE TYPE signal AS ENUM ('on', 'off');
	CREATE FUNCTION to_json(signal) RETURNS json LANGUAGE sql AS $$SELECT json_build_object('signal', $1::text, 'at', timestamptz '2026-02-03 04:05:06+05:30')$$;
	CREATE CAST (signal AS json) WITH FUNCTION to_json(signal);
	CREATE DOMAIN percentage AS numeric(5, 2) CHECK (VALUE BETWEEN 0 AND 100);
	CREATE DOMAIN raw_bytes AS bytea;
	CREATE DOMAIN moment AS timestamptz;
	CREATE DOMAIN numbers AS int[];
	CREATE TYPE pair AS (a int, b text);
	CREATE DOMAIN positive_pair AS pair CHECK ((VALUE).a > 0);
	CREATE TYPE float_range AS RANGE (subtype = float8);
	CREATE TYPE everything AS (tstz timestamptz, d date, iv interval, f float8, by bytea, p pair, ia int[], j json, r daterange);
};

# ---- What is in every PostgreSQL and every encoding -----------------------------------------------------------------

my $always = <<'END';
boolean ¦ true ¦ true ¦ t
boolean ¦ false ¦ false ¦ f

smallint ¦ -32768 ¦ -32768 ¦ -32768
smallint ¦ 32767 ¦ 32767 ¦ 32767
integer ¦ -2147483648 ¦ -2147483648 ¦ -2147483648
integer ¦ 2147483647 ¦ 2147483647 ¦ 2147483647
bigint ¦ -9223372036854775808 ¦ -9223372036854775808 ¦ -9223372036854775808
bigint ¦ 9223372036854775807 ¦ 9223372036854775807 ¦ 9223372036854775807
bigint ¦ 9007199254740993 ¦ 9007199254740993 ¦ 9007199254740993
numeric ¦ 0.10 ¦ 0.10 ¦ 0.10 ¦ 0.1
numeric ¦ 1234567890123456789012345678901234567890 ¦ 1234567890123456789012345678901234567890 ¦ 1234567890123456789012345678901234567890 ¦ 1.2345678901234567e39
numeric ¦ -0.0123456789012345678901234567890123456789 ¦ -0.0123456789012345678901234567890123456789 ¦ -0.0123456789012345678901234567890123456789 ¦ -0.012345678901234567
numeric(50,10) ¦ 1234567890123456789012345678901234567890.0987654321 ¦ 1234567890123456789012345678901234567890.0987654321 ¦ 1234567890123456789012345678901234567890.0987654321 ¦ 1.2345678901234567e39
numeric ¦ 'NaN' ¦ "NaN" ¦ NaN
numeric ¦ 'Infinity' ¦ "Infinity" ¦ Infinity
numeric ¦ '-Infinity' ¦ "-Infinity" ¦ -Infinity
real ¦ 0.1 ¦ 0.1 ¦ 0.1
real ¦ 0.333333333 ¦ 0.33333334 ¦ 0.33333334
real ¦ 16777216 ¦ 1.6777216e+07 ¦ 1.6777216e+07 ¦ 16777216.0
real ¦ '3.4028235e38' ¦ 3.4028235e+38 ¦ 3.4028235e+38 ¦ 3.4028235e38
real ¦ '1e-45' ¦ 1e-45 ¦ 1e-45 ¦ 1.0000000000000001e-45
real ¦ 'NaN' ¦ "NaN" ¦ NaN
real ¦ 'Infinity' ¦ "Infinity" ¦ Infinity
real ¦ '-Infinity' ¦ "-Infinity" ¦ -Infinity
double precision ¦ 0.1::float8 + 0.2 ¦ 0.30000000000000004 ¦ 0.30000000000000004
double precision ¦ 1::float8 / 3 ¦ 0.3333333333333333 ¦ 0.3333333333333333
double precision ¦ '-0' ¦ -0 ¦ -0 ¦ -0.0
double precision ¦ '1.7976931348623157e308' ¦ 1.7976931348623157e+308 ¦ 1.7976931348623157e+308 ¦ 1.7976931348623157e308
double precision ¦ '5e-324' ¦ 5e-324 ¦ 5e-324
double precision ¦ 'NaN' ¦ "NaN" ¦ NaN
double precision ¦ 'Infinity' ¦ "Infinity" ¦ Infinity
double precision ¦ '-Infinity' ¦ "-Infinity" ¦ -Infinity
money ¦ '1234.5' ¦ "$1,234.50" ¦ $1,234.50
money ¦ '-92233720368547758.08' ¦ "-$92,233,720,368,547,758.08" ¦ -$92,233,720,368,547,758.08
oid ¦ '4294967295' ¦ "4294967295" ¦ 4294967295
xid ¦ '4294967295' ¦ "4294967295" ¦ 4294967295
xid8 ¦ '18446744073709551615' ¦ "18446744073709551615" ¦ 18446744073709551615
cid ¦ '4294967295' ¦ "4294967295" ¦ 4294967295
tid ¦ '(4294967295,65535)' ¦ "(4294967295,65535)" ¦ (4294967295,65535)
pg_lsn ¦ '16/B374D848' ¦ "16/B374D848" ¦ 16/B374D848
pg_snapshot ¦ '10:20:10,14,15' ¦ "10:20:10,14,15" ¦ 10:20:10,14,15
txid_snapshot ¦ '10:20:10,14,15' ¦ "10:20:10,14,15" ¦ 10:20:10,14,15

text ¦ 'plain' ¦ "plain" ¦ plain
text ¦ 'null' ¦ "null" ¦ null
text ¦ '12345' ¦ "12345" ¦ 12345
text ¦ '{"a" : 1}' ¦ "{\"a\" : 1}" ¦ {"a" : 1}
text ¦ 'it''s "quoted" \ / #{c001} ##{ %s %n $1' ¦ "it's \"quoted\" \\ / #{c001} ##{ %s %n $1" ¦ it's "quoted" \ / #{c001} ##{ %s %n $1
text ¦ '\u0041\n' ¦ "\\u0041\\n" ¦ \u0041\n
text ¦ 'ünïcödé ÿ £' ¦ "ünïcödé ÿ £" ¦ ünïcödé ÿ £
varchar(5) ¦ 'é"' ¦ "é\"" ¦ é"
name ¦ 'Name "é"' ¦ "Name \"é\"" ¦ Name "é"
"char" ¦ 'x' ¦ "x" ¦ x
"char" ¦ '"' ¦ "\"" ¦ "
refcursor ¦ 'a "cursor"' ¦ "a \"cursor\"" ¦ a "cursor"
uuid ¦ 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11' ¦ "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11" ¦ a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11
bit(3) ¦ B'101' ¦ "101" ¦ 101
varbit ¦ B'0010' ¦ "0010" ¦ 0010
inet ¦ '10.0.0.1/8' ¦ "10.0.0.1/8" ¦ 10.0.0.1/8
inet ¦ '::ffff:10.0.0.1' ¦ "::ffff:10.0.0.1" ¦ ::ffff:10.0.0.1
cidr ¦ '192.168.0.0/16' ¦ "192.168.0.0/16" ¦ 192.168.0.0/16
macaddr ¦ '08-00-2B-01-02-03' ¦ "08:00:2b:01:02:03" ¦ 08:00:2b:01:02:03
macaddr8 ¦ '08-00-2B-01-02-03-04-05' ¦ "08:00:2b:01:02:03:04:05" ¦ 08:00:2b:01:02:03:04:05
tsvector ¦ $$'a''b':1A,2 'c':3$$ ¦ "'a''b':1A,2 'c':3" ¦ 'a''b':1A,2 'c':3
tsquery ¦ $$'a' & !( 'b':*B | 'c' ) <2> 'd'$$ ¦ "'a' & !( 'b':*B | 'c' ) <2> 'd'" ¦ 'a' & !( 'b':*B | 'c' ) <2> 'd'
aclitem ¦ '"a ""b"""=r*w/alice' ¦ "\"a \"\"b\"\"\"=r*w/alice" ¦ "a ""b"""=r*w/alice

date ¦ '2026-02-03' ¦ "2026-02-03" ¦ 2026-02-03
date ¦ '0044-03-15 BC' ¦ "0044-03-15 BC" ¦ 0044-03-15 BC
date ¦ '4714-11-24 BC' ¦ "4714-11-24 BC" ¦ 4714-11-24 BC
date ¦ '5874897-12-31' ¦ "5874897-12-31" ¦ 5874897-12-31
date ¦ 'infinity' ¦ "infinity" ¦ infinity
date ¦ '-infinity' ¦ "-infinity" ¦ -infinity
time ¦ '04:05:06.789' ¦ "04:05:06.789" ¦ 04:05:06.789
time ¦ '24:00' ¦ "24:00:00" ¦ 24:00:00
time(0) ¦ '04:05:06.789' ¦ "04:05:07" ¦ 04:05:07
timetz ¦ '04:05:06.789+05:30' ¦ "04:05:06.789+05:30" ¦ 04:05:06.789+05:30
timetz ¦ '23:59:59.999999-15:59:59' ¦ "23:59:59.999999-15:59:59" ¦ 23:59:59.999999-15:59:59
timestamp ¦ '2026-02-03 04:05:06.789' ¦ "2026-02-03T04:05:06.789" ¦ 2026-02-03 04:05:06.789
timestamp ¦ '0044-03-15 12:00 BC' ¦ "0044-03-15T12:00:00 BC" ¦ 0044-03-15 12:00:00 BC
timestamp ¦ '294276-12-31 23:59:59.999999' ¦ "294276-12-31T23:59:59.999999" ¦ 294276-12-31 23:59:59.999999
timestamp ¦ 'infinity' ¦ "infinity" ¦ infinity
timestamp ¦ '-infinity' ¦ "-infinity" ¦ -infinity
timestamptz ¦ '2026-02-03 04:05:06.789+05:30' ¦ "2026-02-02T22:35:06.789+00:00" ¦ 2026-02-02 22:35:06.789+00
timestamptz ¦ '1883-11-18 11:00 America/New_York' ¦ "1883-11-18T15:56:02+00:00" ¦ 1883-11-18 15:56:02+00
timestamptz ¦ '0044-03-15 12:00+00 BC' ¦ "0044-03-15T12:00:00+00:00 BC" ¦ 0044-03-15 12:00:00+00 BC
timestamptz ¦ 'infinity' ¦ "infinity" ¦ infinity
timestamptz ¦ '-infinity' ¦ "-infinity" ¦ -infinity
interval ¦ '1 year 2 months -3 days 04:05:06.789' ¦ "1 year 2 mons -3 days +04:05:06.789" ¦ 1 year 2 mons -3 days +04:05:06.789
interval ¦ '0' ¦ "00:00:00" ¦ 00:00:00
interval ¦ '-1 day -00:00:00.000001' ¦ "-1 days -00:00:00.000001" ¦ -1 days -00:00:00.000001

point ¦ '(0.30000000000000004,-0)' ¦ "(0.30000000000000004,-0)" ¦ (0.30000000000000004,-0)
point ¦ '(NaN,Infinity)' ¦ "(NaN,Infinity)" ¦ (NaN,Infinity)
line ¦ '{1,-1,0.30000000000000004}' ¦ "{1,-1,0.30000000000000004}" ¦ {1,-1,0.30000000000000004}
lseg ¦ '[(0,0),(0.30000000000000004,1)]' ¦ "[(0,0),(0.30000000000000004,1)]" ¦ [(0,0),(0.30000000000000004,1)]
box ¦ '(0,0),(0.30000000000000004,1)' ¦ "(0.30000000000000004,1),(0,0)" ¦ (0.30000000000000004,1),(0,0)
path ¦ '[(0,0),(0.30000000000000004,1)]' ¦ "[(0,0),(0.30000000000000004,1)]" ¦ [(0,0),(0.30000000000000004,1)]
path ¦ '((0,0),(0.30000000000000004,1))' ¦ "((0,0),(0.30000000000000004,1))" ¦ ((0,0),(0.30000000000000004,1))
polygon ¦ '((0,0),(0.30000000000000004,1),(1,0))' ¦ "((0,0),(0.30000000000000004,1),(1,0))" ¦ ((0,0),(0.30000000000000004,1),(1,0))
circle ¦ '<(0,0),0.30000000000000004>' ¦ "<(0,0),0.30000000000000004>" ¦ <(0,0),0.30000000000000004>

regclass ¦ 'pg_class' ¦ "pg_class" ¦ pg_class
regclass ¦ '1' ¦ "1" ¦ 1
regclass ¦ '0' ¦ "-" ¦ -
regproc ¦ 'pg_backend_pid' ¦ "pg_backend_pid" ¦ pg_backend_pid
regprocedure ¦ 'lower(text)' ¦ "lower(text)" ¦ lower(text)
regoper ¦ '||/' ¦ "||/" ¦ ||/
regoperator ¦ '+(integer,integer)' ¦ "+(integer,integer)" ¦ +(integer,integer)
regtype ¦ 'timestamptz[]' ¦ "timestamp with time zone[]" ¦ timestamp with time zone[]
regcollation ¦ '"C"' ¦ "\"C\"" ¦ "C"
regnamespace ¦ 'pg_catalog' ¦ "pg_catalog" ¦ pg_catalog
regrole ¦ '"a ""b"""' ¦ "\"a \"\"b\"\"\"" ¦ "a ""b"""
regconfig ¦ 'english' ¦ "english" ¦ english
regdictionary ¦ 'simple' ¦ "simple" ¦ simple

json ¦ '{"b" : 1,  "b": 2, "a":[1.50 , null]}' ¦ {"b" : 1,  "b": 2, "a":[1.50 , null]} ¦ {"b" : 1,  "b": 2, "a":[1.50 , null]} ¦ {"b":2,"a":[1.5,null]}
json ¦ ' "\u00e9\u20ac\ud83d\ude00\/" ' ¦  "\u00e9\u20ac\ud83d\ude00\/"  ¦  "\u00e9\u20ac\ud83d\ude00\/"  ¦ "é€😀/"
json ¦ '"\u0000"' ¦ "\u0000" ¦ "\u0000"
json ¦ 'null' ¦ null ¦ null
json ¦ '1E2' ¦ 1E2 ¦ 1E2 ¦ 100.0
json ¦ '12345678901234567890' ¦ 12345678901234567890 ¦ 12345678901234567890
jsonb ¦ '{"b":1, "b":2, "é":[1.50,null,"x\ny"]}' ¦ {"b": 2, "é": [1.50, null, "x\ny"]} ¦ {"b": 2, "é": [1.50, null, "x\ny"]} ¦ {"b":2,"é":[1.5,null,"x\ny"]}
jsonb ¦ '"a \"string\""' ¦ "a \"string\"" ¦ "a \"string\""
jsonb ¦ 'null' ¦ null ¦ null
jsonb ¦ '1e40' ¦ 10000000000000000000000000000000000000000 ¦ 10000000000000000000000000000000000000000 ¦ 1e40
jsonb ¦ '{}' ¦ {} ¦ {}
jsonb ¦ '[]' ¦ [] ¦ []
jsonpath ¦ '$.a[*] ? (@ > 1)' ¦ "$.\"a\"[*]?(@ > 1)" ¦ $."a"[*]?(@ > 1)

mood ¦ 'a "glad" é' ¦ "a \"glad\" é" ¦ a "glad" é
signal ¦ 'off' ¦ {"signal" : "off", "at" : "2026-02-02T22:35:06+00:00"} ¦ off ¦ {"signal":"off","at":"2026-02-02T22:35:06+00:00"}
percentage ¦ 42.50 ¦ 42.50 ¦ 42.50 ¦ 42.5
raw_bytes ¦ '\x22' ¦ "\\x22" ¦ "
moment ¦ '2026-02-03 04:05:06+05:30' ¦ "2026-02-02T22:35:06+00:00" ¦ 2026-02-02 22:35:06+00
pair ¦ ROW(1, 'x "y"') ¦ {"a":1,"b":"x \"y\""} ¦ (1,"x ""y""")
pair ¦ ROW(NULL, '') ¦ {"a":null,"b":""} ¦ (,"")
pair ¦ ROW(NULL, NULL) ¦ {"a":null,"b":null} ¦ (,)
positive_pair ¦ ROW(1, NULL) ¦ {"a":1,"b":null} ¦ (1,)
everything ¦ ROW('2026-02-03 04:05:06+05:30', '2026-02-03', '1 day', 0.1::float8 + 0.2, '\x00ff', ROW(1, NULL), '{1,NULL}', '{"a":1}', '[2026-02-03,2026-02-05)') ¦ {"tstz":"2026-02-02T22:35:06+00:00","d":"2026-02-03","iv":"1 day","f":0.30000000000000004,"by":"\\x00ff","p":{"a":1,"b":null},"ia":[1,null],"j":{"a":1},"r":"[2026-02-03,2026-02-05)"} ¦ ("2026-02-02 22:35:06+00",2026-02-03,"1 day",0.30000000000000004,"\\x00ff","(1,)","{1,NULL}","{""a"":1}","[2026-02-03,2026-02-05)")

int4range ¦ '(0,10]' ¦ "[1,11)" ¦ [1,11)
int8range ¦ '[,9223372036854775807)' ¦ "(,9223372036854775807)" ¦ (,9223372036854775807)
numrange ¦ '[0.10,)' ¦ "[0.10,)" ¦ [0.10,)
daterange ¦ '[2026-02-03,2026-02-04]' ¦ "[2026-02-03,2026-02-05)" ¦ [2026-02-03,2026-02-05)
daterange ¦ '[-infinity,0044-03-15 BC]' ¦ "[-infinity,\"0044-03-16 BC\")" ¦ [-infinity,"0044-03-16 BC")
tsrange ¦ '(2026-02-03 04:05:06,infinity]' ¦ "(\"2026-02-03 04:05:06\",infinity]" ¦ ("2026-02-03 04:05:06",infinity]
tstzrange ¦ '[2026-02-03 04:05:06+05:30,)' ¦ "[\"2026-02-02 22:35:06+00\",)" ¦ ["2026-02-02 22:35:06+00",)
int4range ¦ 'empty' ¦ "empty" ¦ empty
int4multirange ¦ '{[1,3],[5,5]}' ¦ "{[1,4),[5,6)}" ¦ {[1,4),[5,6)}
int8multirange ¦ '{}' ¦ "{}" ¦ {}
nummultirange ¦ '{[0.10,0.20)}' ¦ "{[0.10,0.20)}" ¦ {[0.10,0.20)}
datemultirange ¦ '{[2026-02-03,2026-02-04]}' ¦ "{[2026-02-03,2026-02-05)}" ¦ {[2026-02-03,2026-02-05)}
tsmultirange ¦ '{[2026-02-03 04:05:06,)}' ¦ "{[\"2026-02-03 04:05:06\",)}" ¦ {["2026-02-03 04:05:06",)}
tstzmultirange ¦ '{[2026-02-03 04:05:06+05:30,)}' ¦ "{[\"2026-02-02 22:35:06+00\",)}" ¦ {["2026-02-02 22:35:06+00",)}
float_range ¦ '[0.30000000000000004,)' ¦ "[0.30000000000000004,)" ¦ [0.30000000000000004,)

int[] ¦ '{{1,2},{3,NULL}}' ¦ [[1,2],[3,null]] ¦ {{1,2},{3,NULL}}
int[] ¦ '{}' ¦ [] ¦ {}
int[] ¦ '[2:3]={1,2}' ¦ [1,2] ¦ [2:3]={1,2}
bigint[] ¦ '{9223372036854775807,NULL}' ¦ [9223372036854775807,null] ¦ {9223372036854775807,NULL}
numeric[] ¦ '{0.10,NaN,-Infinity}' ¦ [0.10,"NaN","-Infinity"] ¦ {0.10,NaN,-Infinity} ¦ [0.1,"NaN","-Infinity"]
boolean[] ¦ '{t,f,NULL}' ¦ [true,false,null] ¦ {t,f,NULL}
text[] ¦ '{a,"b c",NULL,"null","","q\"\\"}' ¦ ["a","b c",null,"null","","q\"\\"] ¦ {a,"b c",NULL,"null","","q\"\\"}
text[] ¦ '{{{a},{NULL}},{{b},{é}}}' ¦ [[["a"],[null]],[["b"],["é"]]] ¦ {{{a},{NULL}},{{b},{é}}}
bytea[] ¦ ARRAY['\x00ff', '\x', NULL]::bytea[] ¦ ["\\x00ff","\\x",null] ¦ {"\\x00ff","\\x",NULL}
json[] ¦ ARRAY['{"b" : 1,  "b": 2}', 'null', NULL]::json[] ¦ [{"b" : 1,  "b": 2},null,null] ¦ {"{\"b\" : 1,  \"b\": 2}","null",NULL} ¦ [{"b":2},null,null]
jsonb[] ¦ ARRAY['{"b":1}', '"x"', 'null', NULL]::jsonb[] ¦ [{"b": 1},"x",null,null] ¦ {"{\"b\": 1}","\"x\"","null",NULL} ¦ [{"b":1},"x",null,null]
date[] ¦ '{2026-02-03,0044-03-15 BC,infinity}' ¦ ["2026-02-03","0044-03-15 BC","infinity"] ¦ {2026-02-03,"0044-03-15 BC",infinity}
timestamptz[] ¦ '{{2026-02-03 04:05:06+05:30},{infinity}}' ¦ [["2026-02-02T22:35:06+00:00"],["infinity"]] ¦ {{"2026-02-02 22:35:06+00"},{infinity}}
interval[] ¦ '{1 year 2 days}' ¦ ["1 year 2 days"] ¦ {"1 year 2 days"}
box[] ¦ '{(1,1),(0,0);(2,2),(0.30000000000000004,0)}' ¦ ["(1,1),(0,0)","(2,2),(0.30000000000000004,0)"] ¦ {(1,1),(0,0);(2,2),(0.30000000000000004,0)}
pair[] ¦ ARRAY[ROW(1, NULL), NULL]::pair[] ¦ [{"a":1,"b":null},null] ¦ {"(1,)",NULL}
mood[] ¦ ARRAY['a "glad" é']::mood[] ¦ ["a \"glad\" é"] ¦ {"a \"glad\" é"}
moment[] ¦ ARRAY['2026-02-03 04:05:06+05:30']::moment[] ¦ ["2026-02-02T22:35:06+00:00"] ¦ {"2026-02-02 22:35:06+00"}
numbers ¦ '{1,NULL}' ¦ [1,null] ¦ {1,NULL}
int2vector ¦ '1 -2' ¦ [1,-2] ¦ 1 -2
oidvector ¦ '1 4294967295' ¦ ["1","4294967295"] ¦ 1 4294967295
END

# ---- What is not in every PostgreSQL ---------------------------------------------------------------------------------

my %sometimes = (
	xml => <<'END',
xml ¦ '<a b="é">x &amp; y</a>' ¦ "<a b=\"é\">x &amp; y</a>" ¦ <a b="é">x &amp; y</a>
xml ¦ XMLPARSE(CONTENT 'plain <b/>') ¦ "plain <b/>" ¦ plain <b/>
xml ¦ XMLPARSE(DOCUMENT '<?xml version="1.0" encoding="UTF-8" standalone="yes"?><a/>') ¦ "<?xml version=\"1.0\" standalone=\"yes\"?><a/>" ¦ <?xml version="1.0" standalone="yes"?><a/>
END
	hstore => <<'END',
hstore ¦ 'a=>1, b=>NULL, "c d"=>"x\"é", n=>0.10, t=>t' ¦ {"a": "1", "b": null, "n": "0.10", "t": "t", "c d": "x\"é"} ¦ "a"=>"1", "b"=>NULL, "n"=>"0.10", "t"=>"t", "c d"=>"x\"é" ¦ {"a":"1","b":null,"n":"0.10","t":"t","c d":"x\"é"}
hstore ¦ '' ¦ {} ¦
hstore[] ¦ ARRAY['a=>1', NULL]::hstore[] ¦ [{"a": "1"},null] ¦ {"\"a\"=>\"1\"",NULL} ¦ [{"a":"1"},null]
END
	'infinite intervals' => <<'END',
interval ¦ 'infinity' ¦ "infinity" ¦ infinity
interval ¦ '-infinity' ¦ "-infinity" ¦ -infinity
END
	'oid8 and regdatabase' => <<'END',
oid8 ¦ '18446744073709551615' ¦ "18446744073709551615" ¦ 18446744073709551615
regdatabase ¦ 'template1' ¦ "template1" ¦ template1
regdatabase ¦ '4294967295' ¦ "4294967295" ¦ 4294967295
END
	# what LATIN1 has no room for
	Unicode => <<'END',
text ¦ '€ 𝄞 😀 日本' ¦ "€ 𝄞 😀 日本" ¦ € 𝄞 😀 日本
jsonb ¦ '{"😀":"€"}' ¦ {"😀": "€"} ¦ {"😀": "€"} ¦ {"😀":"€"}
name ¦ '日本' ¦ "日本" ¦ 日本
END
);

# Type, SQL, JSON, field, what RedisJSON makes of it, key.
my %vectors = (
	vector => [
		[ 'vector(3)', q{'[1,-2.5,0.1]'}, '[1,-2.5,0.1]', "\x00\x00\x80\x3f\x00\x00\x20\xc0\xcd\xcc\xcc\x3d", '[1,-2.5,0.1]', '[1,-2.5,0.1]' ],
		[ 'vector', q{'[1e30]'}, '[1e+30]', "\xca\xf2\x49\x71", '[1e30]', '[1e+30]' ],
	],
	halfvec => [
		[ 'halfvec(4)', q{'[1,-2.5,65504,0.1]'}, '[1,-2.5,65504,0.099975586]', "\x00\x3c\x00\xc1\xff\x7b\x66\x2e", '[1,-2.5,65504,0.099975586]', '[1,-2.5,65504,0.099975586]' ],
	],
	sparsevec => [
		[ 'sparsevec(5)', q{'{1:1,3:0.1}/5'}, '"{1:1,3:0.1}/5"', '{1:1,3:0.1}/5' ],
	],
);

sub more_cells
{
	my $controls = join '', map { chr } 1 .. 31, 127;
	return (
		[ 'text', q{''}, '""', '' ],
		[ 'varchar', q{''}, '""', '' ],
		[ '"char"', q{''}, '""', '' ],
		[ 'varbit', q{''}, '""', '' ],
		[ 'char(5)', q{'ab'}, '"ab   "', 'ab   ' ],
		[ 'text', q{E'\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f'},
			'"\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f' . "\x7f\"",
			$controls ],
		[ 'text', q{E'two\r\nlines\r\n$5\r\n'}, '"two\r\nlines\r\n$5\r\n"', "two\r\nlines\r\n\$5\r\n" ],
		[ 'json', q{E'{\n\t"a":1\r\n}'}, "{\n\t\"a\":1\r\n}", "{\n\t\"a\":1\r\n}", '{"a":1}' ],
		[ 'bytea', q{'\x00ff0d0a225c'}, '"\\\\x00ff0d0a225c"', "\x00\xff\r\n\"\\" ],
		[ 'bytea', q{'\x'}, '"\\\\x"', '' ],
		[ 'real[]', q{'{1,-2.5,0.1,Infinity,16777216}'}, '[1,-2.5,0.1,"Infinity",1.6777216e+07]',
			"\x00\x00\x80\x3f\x00\x00\x20\xc0\xcd\xcc\xcc\x3d\x00\x00\x80\x7f\x00\x00\x80\x4b", '[1,-2.5,0.1,"Infinity",16777216.0]',
			'{1,-2.5,0.1,Infinity,1.6777216e+07}' ],
		[ 'double precision[]', q{'{1,-2.5,0.1,-Infinity}'}, '[1,-2.5,0.1,"-Infinity"]',
			"\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x04\xc0\x9a\x99\x99\x99\x99\x99\xb9\x3f\x00\x00\x00\x00\x00\x00\xf0\xff", '[1,-2.5,0.1,"-Infinity"]',
			'{1,-2.5,0.1,-Infinity}' ],
		[ 'real[]', q{'[5:6]={1,2}'}, '[1,2]', "\x00\x00\x80\x3f\x00\x00\x00\x40", '[1,2]', '[5:6]={1,2}' ],
	);
}

sub more_unicode
{
	return (
		[ 'varchar(2)', q{'😀€'}, '"😀€"', '😀€' ],
		[ 'text', q{U&'e\0301'}, "\"e\xcc\x81\"", "e\xcc\x81" ],
		[ 'text', q{U&'\2028\2029\0085\FEFF\FFFF'}, "\"\xe2\x80\xa8\xe2\x80\xa9\xc2\x85\xef\xbb\xbf\xef\xbf\xbf\"", "\xe2\x80\xa8\xe2\x80\xa9\xc2\x85\xef\xbb\xbf\xef\xbf\xbf" ],
		[ 'text', q{U&'\+10FFFF'}, "\"\xf4\x8f\xbf\xbf\"", "\xf4\x8f\xbf\xbf" ],
	);
}

# Types that no table can have a column of, or that nothing can write a value of.
sub left_out
{
	return (
		gtsvector => 'an index holds it; it has no input',
		pg_brin_bloom_summary => 'an index holds it; it has no input',
		pg_brin_minmax_multi_summary => 'an index holds it; it has no input',
		pg_dependencies => 'the catalog of statistics holds it; it has no input',
		pg_mcv_list => 'the catalog of statistics holds it; it has no input',
		pg_ndistinct => 'the catalog of statistics holds it; it has no input',
		pg_node_tree => 'the catalogs hold it; it has no input, and its text is another in each version',
	);
}

sub hostile_settings
{
	return q{
		SET DateStyle = 'German, DMY';
		SET IntervalStyle = sql_standard;
		SET TimeZone = 'Asia/Kolkata';
		SET extra_float_digits = 0;
		SET bytea_output = escape;
	};
}

# Databases share them.
sub roles_for_cells
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{CREATE ROLE alice; CREATE ROLE "a ""b"""});
}

my @skipped;
sub skipped { return @skipped }

sub cells_database
{
	my ($node, $redis, $name) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $name ENCODING '$name' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
	my $extensions = $node->safe_psql('postgres', q{SELECT string_agg(format('CREATE EXTENSION %I;', name), ' ') FROM pg_available_extensions WHERE name IN ('hstore', 'vector')});
	$node->safe_psql($name, sprintf(q{CREATE EXTENSION redis_export; CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (host '%s', port '%d'); %s %s},
			$redis->host, $redis->port, $extensions, $types));

	my @cells = _cells($node, $name);
	$node->safe_psql($name, 'CREATE TABLE cells AS SELECT ' . join(', ', map { "CAST($_->{sql} AS $_->{type}) AS $_->{column}" } @cells)
		. ';' . join '', map { "CREATE DOMAIN $_->{column}_domain AS $_->{type};" } @cells);
	my %array = map { $_ => 1 } split /\n/, $node->safe_psql($name, q{SELECT attname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
		WHERE attrelid = 'cells'::regclass AND (typcategory = 'A' OR (SELECT typcategory FROM pg_type WHERE oid = t.typbasetype) = 'A')});
	$_->{is_array} = $array{ $_->{column} } for @cells;
	return @cells;
}

sub _cells
{
	my ($node, $database) = @_;
	my $true = sub { return $node->safe_psql($database, "SELECT $_[0]") eq 't' };
	my $type = sub { return $true->("EXISTS (SELECT FROM pg_type WHERE typname = '$_[0]')") };
	my $encoding = $node->safe_psql($database, 'SHOW server_encoding');
	my %there = (
		xml => !($node->psql($database, q{SELECT '<a/>'::xml}))[0],
		hstore => $type->('hstore'),
		'oid8 and regdatabase' => $type->('oid8'),
		'infinite intervals' => $true->(q{current_setting('server_version_num')::int >= 170000}),
		Unicode => $encoding ne 'LATIN1',
	);
	my $tables = join '', $always, map { $sometimes{$_} } grep { $there{$_} } sort keys %sometimes;
	my @vectors = grep { $type->($_) } sort keys %vectors;
	@skipped = ((grep { !$there{$_} } sort keys %sometimes), (grep { my $name = $_; !grep { $_ eq $name } @vectors } sort keys %vectors));

	my @rows = map { [ split / ¦(?: |\z)/, $_, -1 ] } grep { /\S/ } split /\n/, $tables;
	push @rows, more_cells(), map { @{ $vectors{$_} } } @vectors;
	push @rows, more_unicode() if $encoding eq 'UTF8';
	my $number = 0;
	return map {
		my ($type, $sql, $json, $field, $get, $key) = @$_;
		defined $field && @$_ <= 6 or die "not a cell: @$_";
		{
			column => sprintf('c%03d', ++$number), type => $type, sql => $sql, json => $json, field => $field, get => $get // $json, key => $key // $field,
			is_vector => $type =~ /^(?:vector|halfvec)\b/,
		};
	} @rows;
}

1;
