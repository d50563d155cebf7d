"""rows_bench.py: how fast small rows go to Redis as hashes and strings, against the limit.

Started by bench/rows. A table of small rows is exported in four ways, each of which takes turns with `redis-cli --pipe` on the
very same commands, ready-made (what Redis can take at all): as hashes, as strings (SET), as hashes that replace what the key
holds (MULTI, DEL, HSET, EXEC), and as hashes with an expiry (HSET, and PEXPIRE when it is answered). There is no index. README.md
here says what the numbers mean. Prints tables, and one last line of JSON with everything.
"""

import argparse
import json
import os
import sys

import lib
from lib import BenchError, say

HERE = os.path.dirname(os.path.abspath(__file__))
TIME_LIMIT = 1.10               # of the pipe's time
TTL = 3_600_000                 # milliseconds
SOURCE = 'small_rows'


class Workload:
    """One way of exporting the rows: the call, the same as commands, and what Redis must hold then."""

    query = f'SELECT id, name, amount, seen FROM {SOURCE}'
    call = "redis_hash_export($q${query}$q$, 'row:#{{id}}', {batch})"
    replies = 1                 # of Redis for each row
    expires = False

    def write(self, out, rows, batch):
        """The commands, in the order in which the export sends them."""
        for row in rows:
            self.write_row(out, row)

    def write_row(self, out, row):
        number, name, amount, seen = row
        out.write(lib.command(b'HSET', b'row:' + number, b'id', number, b'name', name, b'amount', amount, b'seen', seen))

    def expected(self, row):
        return dict(zip(('id', 'name', 'amount', 'seen'), (column.decode() for column in row)))

    def read(self, client, key):
        return client.hgetall(key)


class Hash(Workload):
    title = 'redis_hash_export'


class Set(Workload):
    title = 'redis_command_export, SET'
    query = f'SELECT id, name FROM {SOURCE}'
    call = "redis_command_export($q${query}$q$, ARRAY['SET', 'row:#{{id}}', '#{{name}}'], {batch})"

    def write_row(self, out, row):
        out.write(lib.command(b'SET', b'row:' + row[0], row[1]))

    def expected(self, row):
        return row[1].decode()

    def read(self, client, key):
        return client.get(key)


class Replace(Workload):
    title = 'redis_hash_export, replace'
    call = "redis_hash_export($q${query}$q$, 'row:#{{id}}', {batch}, replace => true)"
    replies = 4
    MULTI, EXEC = lib.command(b'MULTI'), lib.command(b'EXEC')

    def write_row(self, out, row):
        out.write(self.MULTI + lib.command(b'DEL', b'row:' + row[0]))
        super().write_row(out, row)
        out.write(self.EXEC)


class Ttl(Workload):
    title = 'redis_hash_export, ttl'
    call = "redis_hash_export($q${query}$q$, 'row:#{{id}}', {batch}, ttl => '%d milliseconds')" % TTL
    replies = 2
    expires = True

    def write(self, out, rows, batch):
        keys = []
        for row in rows:
            self.write_row(out, row)
            keys.append(b'row:' + row[0])
            if len(keys) == batch:
                self.write_expiries(out, keys)
                keys = []
        self.write_expiries(out, keys)

    @staticmethod
    def write_expiries(out, keys):
        for key in keys:
            out.write(lib.command(b'PEXPIRE', key, b'%d' % TTL))


WORKLOADS = {'hash': Hash(), 'set': Set(), 'replace': Replace(), 'ttl': Ttl()}


class Loads:
    """The two loaders of one workload, each of which puts the whole table into an empty Redis."""

    def __init__(self, options, redis, exports, name, rows, sample):
        self.options, self.redis, self.exports = options, redis, exports
        self.name, self.workload = name, WORKLOADS[name]
        self.limit = 120 + options.rows / 2000
        self.interval = 0.02 if options.rows >= 200_000 else 0.002
        self.commands = f'{name}.resp'
        say(f'writing the rows as commands: {name}')
        with open(self.commands, 'wb') as out:
            self.workload.write(out, rows, options.batch)
        lib.read_through(self.commands)
        self.sample = {f'row:{row[0].decode()}': self.workload.expected(row) for row in sample}

    def load(self, loader):
        self.redis.empty()
        if self.name == 'replace':
            # What is in the way, so that leaving out the DEL would be seen.
            for key in self.sample:
                self.redis.client.hset(key, 'old', 'field')
            self.redis.settle()
        figures = lib.measured(self.redis, self.options.rows, getattr(self, loader))
        self.check(loader)
        return figures

    def ours(self):
        call = self.workload.call.format(query=self.workload.query, batch=self.options.batch)
        run, sampler = self.exports.run(call, self.options.rows, self.limit, self.interval)
        return lib.Loaded(run.seconds, sampler.cpu, sampler)

    def pipe(self):
        run, sampler = lib.pipe(self.redis, self.commands, self.options.rows * self.workload.replies, self.limit, self.interval)
        return lib.Loaded(run.seconds, run.cpu, sampler)

    def check(self, loader):
        """As many keys as rows, a sample of them with its content, all or none with an expiry: anything else is an error."""
        client, where = self.redis.client, f'{self.name}, {loader}'
        space = client.info('keyspace')['db0']
        if space['keys'] != self.options.rows:
            raise BenchError(f'{where}: {space["keys"]} keys after {self.options.rows} rows')
        if space['expires'] != (self.options.rows if self.workload.expires else 0):
            raise BenchError(f'{where}: {space["expires"]} of {self.options.rows} keys have an expiry')
        for key, expected in self.sample.items():
            found = self.workload.read(client, key)
            if found != expected:
                raise BenchError(f'{where}: {key} holds {found}, and should hold {expected}')
            if self.workload.expires and not 0 < client.pttl(key) <= TTL:
                raise BenchError(f'{where}: {key} expires in {client.pttl(key)} ms')


def check_same_commands(name, loads):
    """Redis has got as many bytes from both, but for greetings and the questions of the bench itself."""
    got = {load['loader']: load['redis_bytes_received'] for load in loads}
    if abs(got.get('ours', 0) - got.get('pipe', 0)) > 8192 + max(got.values()) / 1000 and len(got) == 2:
        raise BenchError(f'{name}: Redis got {got["ours"]:,} bytes from the export and {got["pipe"]:,} from the pipe: these are '
                         'not the same commands')


def measure(options, loads):
    done = lib.take_turns(options.loaders, options.pairs, loads.load)
    check_same_commands(loads.name, done)
    return {'loaders': {loader: lib.summarized(done, loader) for loader in options.loaders},
            'ratios_to_pipe': lib.ratios(done, 'ours'), 'disturbed_loads': lib.disturbed(done),
            'loads': [{name: load[name] for name in ('round', 'loader', 'seconds', 'cpu_seconds', 'elsewhere_cpu_share')}
                      for load in done]}


def benchmark(options):
    redis = lib.Redis()
    say(f'making {options.rows:,} rows')
    lib.rows('-v', f'rows={options.rows}', '-f', os.path.join(HERE, 'small_rows.sql'))
    exports = lib.Exports(redis)
    source = (f'SELECT id::text, name, amount::text, seen::text FROM {SOURCE}', ("DateStyle = 'ISO'",))
    sample = list(lib.copied_rows(f'{source[0]} WHERE id % {max(1, options.rows // 50)} = 0', source[1]))
    report = {'bench': 'rows', 'rows': options.rows, 'pairs': options.pairs, 'batch': options.batch,
              'table_mb': float(lib.value(f"SELECT pg_total_relation_size('{SOURCE}') / {lib.MB}.0")),
              'machine': lib.environment(redis), 'workloads': {}}
    for name in options.only:
        report['workloads'][name] = measure(options, Loads(options, redis, exports, name, lib.copied_rows(*source), sample))
    report['targets'] = targets(report)
    report['disturbed_loads'] = sum(workload['disturbed_loads'] for workload in report['workloads'].values())
    return report


def targets(report):
    lines = []
    for name, workload in report['workloads'].items():
        if workload['ratios_to_pipe']:
            lines.append(lib.target(f"{name}: time, median of the ratios to the pipe's", workload['ratios_to_pipe']['median'],
                                    TIME_LIMIT))
        if 'ours' in workload['loaders']:
            lines.append(lib.target(f'{name}: worker memory above its start, MB', workload['loaders']['ours']['private_growth_mb'],
                                    lib.GROWTH_LIMIT))
    return lines


def print_report(report):
    machine = report['machine']
    print(f'{report["rows"]:,} rows in {report["table_mb"]:,.0f} MB, {report["pairs"]} pairs, batches of {report["batch"]}; '
          f'PostgreSQL {machine["postgresql"]}, Redis {machine["redis"]}, hiredis {machine["hiredis"]}, '
          f'{machine["cores"]} cores ({machine["cpu"]})\n')
    lines = [['loader', *lib.LOAD_HEADING]]
    for name, workload in report['workloads'].items():
        for loader, figures in workload['loaders'].items():
            title = WORKLOADS[name].title if loader == 'ours' else f'redis-cli --pipe, {name}'
            lines.append([title, *lib.load_cells(figures, workload['ratios_to_pipe'] if loader == 'ours' else None)])
    print(lib.table(lines))
    lib.print_disturbed(report['disturbed_loads'], sum(len(workload['loads']) for workload in report['workloads'].values()))
    lib.print_targets(report['targets'])


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog='bench/rows', usage='bench/rows [--pg PG_CONFIG] [options]', description=__doc__.split('\n\n', 1)[1],
        epilog='--pg PG_CONFIG: the PostgreSQL to measure. Nothing is installed into it.')
    parser.add_argument('--rows', type=lib.count, default=1_000_000, help='rows in the table (1000000)')
    parser.add_argument('--pairs', type=lib.count, default=7, help='pairs of loads, ours and the pipe, of each workload (7)')
    parser.add_argument('--batch', type=lib.count, default=500, help='rows in a batch (500)')
    parser.add_argument('--only', type=lib.choice(*WORKLOADS), default=list(WORKLOADS),
                        help=f'which workloads ({",".join(WORKLOADS)})')
    parser.add_argument('--loaders', type=lib.choice('ours', 'pipe'), default=['ours', 'pipe'], help='which to run (ours,pipe)')
    parser.add_argument('--parse-only', action='store_true', help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.parse_only:
        return
    try:
        report = benchmark(options)
    except BenchError as error:
        sys.exit(f'bench/rows: {error}')
    print_report(report)
    print('\n' + json.dumps(lib.rounded(report)))


if __name__ == '__main__':
    main()
