"""json_bench.py: how fast redis_json_export fills a Redis whose search index is active, against the limit.

Started by bench/json. In one run, on one PostgreSQL and one Redis, it loads the same appointment documents again and again,
alternating between redis_json_export, `redis-cli --pipe` on ready-made commands (what Redis can take at all) and a redis-py
pipeline. --flat looks at the worker's memory instead, --rate at the evenness of a throttled export, --tls at what TLS costs.
README.md here says what the numbers mean. Prints tables, and one last line of JSON with everything.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

import lib
from lib import BenchError, MB, say

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = 'appointment_json_benchmark'
INDEX = 'idx:appointments'
FULL_CORPUS = 36_900_717        # documents that the reference estimates for
WINDOW_HOURS = 8
TIME_LIMIT = 1 / 0.97           # of the pipe's time
CPU_LIMIT = 30                  # microseconds a document
TLS_LIMIT = 1 / 0.75            # of the time without TLS
REFERENCE = {                   # published figures of the same benchmark with 1,000,000 documents
    'docs': 1_000_000, 'seconds': 199, 'docs_per_second': 5025, 'keys': 1_000_000, 'num_docs': 1_000_000,
    'num_records': 9_066_141, 'records_per_doc_avg': 9.07, 'inverted_sz_mb': 284, 'doc_table_size_mb': 80,
    'sortable_values_size_mb': 23, 'key_table_size_mb': 31, 'redis_used_memory_mb': round(10.63 * 1024),
    'doc_bytes_avg': 4811, 'doc_bytes_min': 4732, 'doc_bytes_max': 4820, 'table_mb': 673,
    'full_corpus_seconds': 7343, 'full_corpus_hours': 2.04, 'needed_docs_per_second': 1281, 'times_needed': 3.9,
}


class Bench:
    """The two servers and the source table."""

    def __init__(self, options, docs):
        self.options, self.docs, self.redis = options, docs, lib.Redis()
        say(f'making {docs:,} documents')
        lib.rows('-v', f'docs={docs}', '-f', os.path.join(HERE, 'appointments.sql'))
        # Hint bits now, so that the first reader doesn't pay for them.
        lib.rows('-c', f'VACUUM ANALYZE {TABLE}')
        self.exports = lib.Exports(self.redis)

    def create_index(self):
        lib.rows('-f', os.path.join(HERE, 'appointments_index.sql'))

    def export(self, query, key, interval, rows, more='', seconds=600):
        """redis_json_export, its worker sampled: the finished run and the sampler."""
        return self.exports.run(f'redis_json_export($q${query}$q$, $k${key}$k$, {self.options.batch}{more})', rows, seconds, interval)


# ---- the benchmark ----------------------------------------------------------------------------

class Loads:
    """The loaders, each of which puts the whole table into an empty Redis with an active index."""

    QUERY = f'SELECT appointment_id, doc FROM {TABLE}'

    def __init__(self, bench):
        self.bench, self.docs = bench, bench.docs
        self.limit = 120 + self.docs / 500
        self.resp, self.lines = 'commands.resp', 'rows.tsv'
        self.sample = {}
        self.prepare()

    def prepare(self):
        """Writes the same rows as commands for redis-cli and as lines for redis-py; they stay in the page cache."""
        say('writing the same rows as commands and as lines')
        every, count = max(1, self.docs // 50), 0
        with open(self.resp, 'wb') as resp, open(self.lines, 'wb') as lines:
            for number, document in lib.copied_rows(f'SELECT appointment_id::text, doc FROM {TABLE}'):
                key = b'appointment:' + number
                resp.write(lib.command(b'JSON.SET', key, b'$', document))
                if b'\n' in document:
                    raise BenchError('a document has more than one line')
                lines.write(number + b'\t' + document + b'\n')
                if count % every == 0:
                    self.sample[key.decode()] = json.loads(document)
                count += 1
        if count != self.docs:
            raise BenchError(f'the source has {count} documents, {self.docs} were asked for')
        for path in (self.resp, self.lines):
            lib.read_through(path)

    def load(self, loader):
        redis = self.bench.redis
        redis.empty()
        self.bench.create_index()
        received = redis.client.info('stats')['total_net_input_bytes']
        redis_cpu, machine_cpu = lib.process_cpu(redis.pid), lib.machine_cpu()
        seconds, cpu, sampler = getattr(self, loader.replace('-', '_'))()
        resting = time.perf_counter()
        while redis.index(INDEX)['indexing']:
            if time.perf_counter() - resting > self.limit:
                raise BenchError('the index does not come to rest')
            time.sleep(0.01)
        seconds += time.perf_counter() - resting
        redis_cpu, machine_cpu = lib.process_cpu(redis.pid) - redis_cpu, lib.machine_cpu() - machine_cpu
        received = redis.client.info('stats')['total_net_input_bytes'] - received
        return {
            'loader': loader, 'seconds': seconds, 'docs_per_second': self.docs / seconds,
            'cpu_seconds': cpu, 'cpu_us_per_doc': cpu / self.docs * 1e6,
            'peak_memory_mb': sampler.resident_peak / MB, 'private_growth_mb': sampler.private_growth / MB,
            'redis_cpu_share': redis_cpu / seconds, 'elsewhere_cpu_share': (machine_cpu - redis_cpu - cpu) / seconds,
            'redis_bytes_received': received, **self.check(loader)}

    def ours(self):
        run, sampler = self.bench.export(self.QUERY, 'appointment:#{appointment_id}', 0.02, self.docs, seconds=self.limit)
        return run.seconds, sampler.cpu, sampler

    def pipe(self):
        run, sampler = lib.pipe(self.bench.redis, self.resp, self.docs, self.limit)
        return run.seconds, run.cpu, sampler

    def redis_py(self):
        run = lib.Run([sys.executable, os.path.join(HERE, 'redis_py_load.py'), str(self.bench.redis.port), self.lines,
                       str(self.bench.options.batch)], seconds=self.limit)
        output, sampler = lib.sampled(run)
        told = json.loads(output)
        return told['seconds'], told['cpu_seconds'], sampler

    def check(self, loader):
        """Every document is there and in the index, a sample of them with its content: anything else is an error."""
        client, index = self.bench.redis.client, self.bench.redis.index(INDEX)
        keys = client.dbsize()
        failures = index['hash_indexing_failures']
        if (keys, index['num_docs'], failures) != (self.docs, self.docs, 0):
            raise BenchError(f'{loader}: {keys} keys, {index["num_docs"]} in the index, {failures} index failures '
                             f'after {self.docs} documents')
        for key, document in self.sample.items():
            if json.loads(client.execute_command('JSON.GET', key)) != document:
                raise BenchError(f'{loader}: {key} has not the content that was sent')
        return {'keys': keys, 'redis_used_memory_mb': client.info('memory')['used_memory'] / MB,
                **{name: index[name] for name in ('num_docs', 'num_records', 'records_per_doc_avg', 'inverted_sz_mb',
                                                  'doc_table_size_mb', 'sortable_values_size_mb', 'key_table_size_mb',
                                                  'hash_indexing_failures')}}


def benchmark(options):
    bench = Bench(options, options.docs)
    plan = lib.value(f'EXPLAIN {Loads.QUERY}').split('  ')[0]
    loads = Loads(bench)
    pair_of = [loader for loader in ('ours', 'pipe') if loader in options.loaders]
    every = max(1, min(3, options.pairs // 3))      # redis-py in every third pair, but at least three times

    say('warming up')
    for loader in pair_of:
        loads.load(loader)
    done = []
    for pair in range(options.pairs):
        order = pair_of[::-1] if pair % 2 else list(pair_of)
        if 'redis-py' in options.loaders and pair % every == 0:
            order.append('redis-py')
        for loader in order:
            result = loads.load(loader)
            done.append({'pair': pair + 1, **result})
            say(f'pair {pair + 1} of {options.pairs}: {loader:8} {result["seconds"]:7.2f} s '
                f'{result["docs_per_second"]:8,.0f} docs/s, elsewhere {result["elsewhere_cpu_share"]:4.0%} of a core')
    if len({load['num_records'] for load in done}) > 1:
        raise BenchError('the loaders left indexes of different sizes')

    report = {'bench': 'json', 'docs': options.docs, 'pairs': options.pairs, 'batch': options.batch, 'plan': plan,
              **source_figures(), 'machine': lib.environment(bench.redis), 'loaders': {}, 'ratios_to_pipe': {}}
    for loader in options.loaders:
        mine = [load for load in done if load['loader'] == loader]
        if mine:
            report['loaders'][loader] = summary(mine, options.docs)
    pipe = {load['pair']: load['seconds'] for load in done if load['loader'] == 'pipe'}
    for loader in set(report['loaders']) - {'pipe'}:
        ratios = [load['seconds'] / pipe[load['pair']] for load in done if load['loader'] == loader and load['pair'] in pipe]
        if ratios:
            report['ratios_to_pipe'][loader] = {**lib.spread(ratios), 'each': ratios}
    report['targets'] = targets(report)
    report['disturbed_loads'] = sum(load['elsewhere_cpu_share'] > lib.QUIET for load in done)
    report['loads'] = [{name: load[name] for name in ('pair', 'loader', 'seconds', 'cpu_seconds', 'elsewhere_cpu_share')}
                       for load in done]
    print_benchmark(report)
    return report


def summary(loads, docs):
    """Medians of one loader's loads, and what they mean for the reference's full corpus."""
    middle = {name: statistics.median(load[name] for load in loads) for name in loads[0] if name not in ('pair', 'loader')}
    rate = docs / middle['seconds']
    needed = FULL_CORPUS / (WINDOW_HOURS * 3600)
    return {**middle, 'docs_per_second': rate, 'runs': len(loads),
            'seconds_min': min(load['seconds'] for load in loads), 'seconds_max': max(load['seconds'] for load in loads),
            'peak_memory_mb': max(load['peak_memory_mb'] for load in loads),
            'private_growth_mb': max(load['private_growth_mb'] for load in loads),
            'full_corpus_seconds': FULL_CORPUS / rate, 'full_corpus_hours': FULL_CORPUS / rate / 3600,
            'needed_docs_per_second': needed, 'times_needed': rate / needed}


def source_figures():
    names = ('doc_bytes_avg', 'doc_bytes_min', 'doc_bytes_max', 'table_mb')
    values = lib.rows('-c', f'SELECT round(avg(octet_length(doc)), 2), min(octet_length(doc)), max(octet_length(doc)), '
                           f"round(pg_total_relation_size('{TABLE}') / {MB}.0, 1) FROM {TABLE}")[0]
    return dict(zip(names, map(float, values)))


def targets(report):
    """The lines that say PASS or OVER: name, value, limit."""
    lines = []
    if 'ours' in report['ratios_to_pipe']:
        lines.append(lib.target("time, median of the ratios to the pipe's", report['ratios_to_pipe']['ours']['median'], TIME_LIMIT))
    if 'ours' in report['loaders']:
        ours = report['loaders']['ours']
        lines.append(lib.target('worker CPU, microseconds a document', ours['cpu_us_per_doc'], CPU_LIMIT))
        lines.append(lib.target('worker memory above its start, MB', ours['private_growth_mb'], lib.GROWTH_LIMIT))
    return lines


def print_benchmark(report):
    machine = report['machine']
    print(f'{report["docs"]:,} documents of {report["doc_bytes_avg"]:,.0f} bytes, {report["pairs"]} pairs, '
          f'batches of {report["batch"]}; PostgreSQL {machine["postgresql"]}, Redis {machine["redis"]}, '
          f'hiredis {machine["hiredis"]}, {machine["cores"]} cores ({machine["cpu"]})\n')
    rows = [['loader', 'runs', 'seconds', 'docs/s', 'CPU us/doc', 'peak MB', 'growth MB', 'Redis CPU', 'elsewhere', 'time / pipe', 'min', 'max']]
    for name, figures in report['loaders'].items():
        ratio = report['ratios_to_pipe'].get(name)
        rows.append([{'pipe': 'redis-cli --pipe', 'ours': 'redis_json_export'}.get(name, name), figures['runs'],
                     f'{figures["seconds"]:.2f}', f'{figures["docs_per_second"]:,.0f}', f'{figures["cpu_us_per_doc"]:.1f}',
                     f'{figures["peak_memory_mb"]:.1f}', f'{figures["private_growth_mb"]:.1f}',
                     f'{figures["redis_cpu_share"]:.0%}', f'{figures["elsewhere_cpu_share"]:.0%}',
                     *([f'{ratio[part]:.3f}' for part in ('median', 'min', 'max')] if ratio else ['-', '-', '-'])])
    print(lib.table(rows))
    lib.print_disturbed(report['disturbed_loads'], len(report['loads']))

    ours = report['loaders'].get('ours') or next(iter(report['loaders'].values()))
    here = {**report, **ours}
    rows = [["the reference's figures", 'reference', 'here']]
    rows += [[name, f'{value:,}', f'{here[name]:,.2f}'.removesuffix('.00')] for name, value in REFERENCE.items()]
    print('\n' + lib.table(rows))
    lib.print_targets(report['targets'])


# ---- --flat: the worker's memory --------------------------------------------------------------

def flat(options):
    """Exports of growing length over the same few keys, so that only the worker could grow."""
    sizes = [size for size in (10_000, 100_000, 1_000_000) if size <= max(options.docs, 10_000)]
    bench = Bench(options, max(sizes))
    exports = [(f'{size:,} documents', size, f'SELECT appointment_id % 10000 AS k, doc FROM {TABLE} '
                f'WHERE appointment_id <= {size}', 'appointment:#{k}', '') for size in sizes]
    exports.append(('2,000 objects of 1 MB', 2000, "SELECT id % 20 AS id, repeat('x', 1000000) AS v "
                    'FROM generate_series(1, 2000) id', 'big:#{id}', ", value => '*'"))
    results = []
    for name, rows, query, key, more in exports:
        bench.redis.empty()
        say(f'exporting {name}')
        run, sampler = bench.export(query, key, 0.005, rows, more, seconds=120 + rows / 500)
        results.append({'rows': rows, 'name': name, 'seconds': run.seconds, 'keys': bench.redis.client.dbsize(),
                        'start_mb': (sampler.private_start or 0) / MB, 'peak_mb': sampler.private_peak / MB,
                        'growth_mb': sampler.private_growth / MB, 'resident_peak_mb': sampler.resident_peak / MB,
                        'cpu_seconds': sampler.cpu, 'samples': sampler.samples})
    lines = [lib.target(f'worker memory above its start, MB, {result["name"]}', result['growth_mb'], lib.GROWTH_LIMIT)
             for result in results]
    print(lib.table([['export', 'seconds', 'rows/s', 'start MB', 'peak MB', 'growth MB', 'with shared memory MB', 'samples']] + [
        [result['name'], f'{result["seconds"]:.2f}', f'{result["rows"] / result["seconds"]:,.0f}', f'{result["start_mb"]:.1f}',
         f'{result["peak_mb"]:.1f}', f'{result["growth_mb"]:.1f}', f'{result["resident_peak_mb"]:.1f}', result['samples']]
        for result in results]))
    lib.print_targets(lines)
    return {'bench': 'json --flat', 'batch': options.batch, 'exports': results, 'targets': lines,
            'machine': lib.environment(bench.redis)}


# ---- --rate: evenness -------------------------------------------------------------------------

class KeyCounter(threading.Thread):
    """Asks Redis for its number of keys every few milliseconds: (asked, answered, keys) in self.seen."""

    def __init__(self, redis, pause=0.005):
        super().__init__(daemon=True)
        self.client = redis.connect()
        self.pause, self.seen, self.stopping = pause, [], threading.Event()

    def run(self):
        while not self.stopping.is_set():
            asked = time.perf_counter()
            keys = self.client.dbsize()
            self.seen.append((asked, time.perf_counter(), keys))
            self.stopping.wait(self.pause)

    def finish(self):
        self.stopping.set()
        self.join(5)


def most_within(seen, window):
    """The most keys that came between two looks which were surely no more than a window apart."""
    most = first = 0
    for _, answered, keys in seen:
        while answered - seen[first][0] > window:
            first += 1
            if first == len(seen):
                return most
        most = max(most, keys - seen[first][2])
    return most


def burst(seen, rate):
    """The most keys that came in any stretch of time beyond what an even flow brings in it."""
    lowest, most = float('inf'), 0
    for asked, answered, keys in seen:
        if lowest < float('inf'):
            most = max(most, keys - rate * answered - lowest)
        lowest = min(lowest, keys - rate * asked)
    return most


def even(options):
    rate, rows = options.rate, options.rate * 10
    bench = Bench(options, rows)
    bench.create_index()
    bench.redis.settle()
    say(f'exporting {rows:,} rows at {rate:,} a second')
    counter = KeyCounter(bench.redis)
    counter.start()
    try:
        run, sampler = bench.export(Loads.QUERY, 'appointment:#{appointment_id}', 0.02, rows, f', rate => {rate}')
    finally:
        counter.finish()
    keys = bench.redis.client.dbsize()
    if keys != rows:
        raise BenchError(f'{keys} keys after {rows} rows')
    arrivals = [answered for _, answered, keys in counter.seen if 0 < keys < rows]
    report = {'bench': 'json --rate', 'rate': rate, 'rows': rows, 'batch': options.batch, 'seconds': run.seconds,
              'job_seconds': run.job_seconds, 'arrival_seconds': arrivals[-1] - arrivals[0], 'looks': len(counter.seen),
              'most_in_10_ms': most_within(counter.seen, 0.010), 'most_in_50_ms': most_within(counter.seen, 0.050),
              'most_in_100_ms': most_within(counter.seen, 0.100), 'burst': burst(counter.seen, rate),
              'cpu_seconds': sampler.cpu, 'machine': lib.environment(bench.redis)}
    tenth = rate / 10
    report['targets'] = [lib.target('seconds, from the call to its answer', run.seconds, 10.3, 9.7),
                         lib.target('rows in any 50 ms', report['most_in_50_ms'], tenth),
                         lib.target('rows beyond an even flow, in any stretch of time', report['burst'], tenth)]
    print(f'{rows:,} rows at {rate:,} a second; the number of keys looked at {report["looks"]:,} times\n')
    print(lib.table([['', 'here', 'even'], ['seconds, the call', f'{run.seconds:.3f}', '10'],
                     ['seconds, the job', f'{run.job_seconds:.3f}', '10'],
                     ['seconds, first to last arrival', f'{report["arrival_seconds"]:.3f}', '10'],
                     *[[f'most rows in {ms} ms', report[f'most_in_{ms}_ms'], f'{rate * ms / 1000:g}'] for ms in (10, 50, 100)]]))
    lib.print_targets(report['targets'])
    return report


# ---- --tls: what TLS costs --------------------------------------------------------------------

def speak_tls(redis):
    """Gives this Redis a certificate, which is its own authority, and a TLS port; returns that."""
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=benchmark',
                    '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', 'redis.key', '-out', 'redis.crt'],
                   check=True, capture_output=True)
    os.chmod('redis.key', 0o644)    # Redis is another user
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    for name, setting in (('tls-ca-cert-file', os.path.abspath('redis.crt')), ('tls-cert-file', os.path.abspath('redis.crt')),
                          ('tls-key-file', os.path.abspath('redis.key')), ('tls-auth-clients', 'no'), ('tls-port', port)):
        redis.client.config_set(name, setting)
    return port


def secure(options):
    """Exports that take turns, with TLS and without, into one Redis. It has no search, and so no index: none that has speaks TLS."""
    bench = Bench(options, options.docs)
    redis, docs = bench.redis, bench.docs
    lib.rows('-c', f"CREATE SERVER redis_tls FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port '{speak_tls(redis)}', "
                   f"tls 'true', tls_ca_file '{os.path.abspath('redis.crt')}')")
    servers = {'tls': 'redis_tls', 'plain': 'redis'}

    def load(loader):
        def export():
            run, sampler = bench.export(Loads.QUERY, 'appointment:#{appointment_id}', 0.02, docs,
                                        f", server => '{servers[loader]}'", seconds=120 + docs / 500)
            return lib.Loaded(run.seconds, sampler.cpu, sampler)
        redis.empty()
        figures = lib.measured(redis, docs, export)
        if redis.client.dbsize() != docs:
            raise BenchError(f'{loader}: {redis.client.dbsize()} keys after {docs} documents')
        return figures

    done = lib.take_turns(list(servers), options.pairs, load)
    ratio = lib.ratios(done, 'tls', 'plain')
    figures = {loader: lib.summarized(done, loader) for loader in servers}
    report = {'bench': 'json --tls', 'docs': docs, 'pairs': options.pairs, 'batch': options.batch, **source_figures(),
              'machine': lib.environment(redis), 'loaders': figures, 'ratios_to_plain': ratio,
              'targets': [lib.target('time with TLS, median of the ratios to that without', ratio['median'], TLS_LIMIT)],
              'disturbed_loads': lib.disturbed(done)}
    print(f'{docs:,} documents of {report["doc_bytes_avg"]:,.0f} bytes, {options.pairs} pairs, no index\n')
    print(lib.table([['', *lib.LOAD_HEADING[:-3], 'time / plain', 'min', 'max']]
                    + [[loader, *lib.load_cells(figures[loader], ratio if loader == 'tls' else None)] for loader in servers]))
    lib.print_disturbed(report['disturbed_loads'], len(done))
    lib.print_targets(report['targets'])
    return report


# ---- the command line -------------------------------------------------------------------------

def parse_arguments():
    parser = argparse.ArgumentParser(
        prog='bench/json', usage='bench/json [--pg PG_CONFIG] [options]', description=__doc__.split('\n\n', 1)[1],
        epilog='--pg PG_CONFIG: the PostgreSQL to measure. Nothing is installed into it.')
    parser.add_argument('--docs', type=lib.count, default=100_000, help='documents in the table (100000); with --flat the longest export')
    parser.add_argument('--pairs', type=lib.count, default=9, help='pairs of loads, ours and the pipe (9)')
    parser.add_argument('--batch', type=lib.count, default=500, help='rows in a batch, of ours and of redis-py (500)')
    parser.add_argument('--loaders', default='ours,pipe,redis-py', help='which to run (ours,pipe,redis-py)')
    parser.add_argument('--flat', action='store_true', help="the worker's memory at growing numbers of rows, and with rows of 1 MB")
    parser.add_argument('--rate', type=lib.count, nargs='?', const=2000, metavar='ROWS',
                        help='ten seconds of an export throttled to ROWS a second (2000): its time and its bursts')
    parser.add_argument('--tls', action='store_true', help='exports with TLS and without, in pairs, into a Redis without an index')
    parser.add_argument('--parse-only', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.loaders = options.loaders.split(',')
    unknown = set(options.loaders) - {'ours', 'pipe', 'redis-py'}
    if unknown:
        parser.error(f'unknown loader: {", ".join(sorted(unknown))}')
    return options


def main():
    options = parse_arguments()
    if options.parse_only:
        return
    mode = flat if options.flat else even if options.rate else secure if options.tls else benchmark
    try:
        report = mode(options)
    except BenchError as error:
        sys.exit(f'bench/json: {error}')
    print('\n' + json.dumps(lib.rounded(report)))


if __name__ == '__main__':
    main()
