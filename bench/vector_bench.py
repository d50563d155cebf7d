"""vector_bench.py: documents with vectors, from PostgreSQL into Redis and found there, against other clients.

Started by bench/vector. Three workloads of a published benchmark (RedisVL for Golang against RedisVL for Python): a bulk load
into an HNSW index of 384 dimensions, searches one after the other, and searches of many clients at once. Half of the searches
are restricted to a tag. Loading is redis_hash_export against `redis-cli --pipe` on the same commands, redis-py and RedisVL for
Python; searching is redis_command() in sessions of pgbench against RedisVL for Python in threads. README.md here says what the
numbers mean. Prints tables, and one last line of JSON with everything.
"""

import argparse
import json
import os
import statistics
import sys
import time

import lib
from lib import BenchError, say

HERE = os.path.dirname(os.path.abspath(__file__))
LOADERS = {'ours': 'redis_hash_export', 'pipe': 'redis-cli --pipe', 'redis-py': 'redis-py', 'redisvl': 'RedisVL'}
SEARCHERS = {'ours': 'redis_command, pgbench', 'redisvl': 'RedisVL, threads'}
WORKLOADS = ('load', 'sequential', 'concurrent')
TIME_LIMIT = 1.03               # of the pipe's time
GATE = 7                        # number of an advisory lock
REFERENCE = {                   # published figures: RedisVL for Golang, RedisVL for Python
    'load, docs/s': (28050, 24139), 'sequential, mean ms': (0.331, 0.396), 'sequential, p99 ms': (0.542, 0.708),
    'concurrent, searches/s': (8902, 5073), 'concurrent, p99 ms': (7.6, 25.0),
}


class Bench:
    """The two servers, the documents and searches in PostgreSQL, and in files for the other clients."""

    def __init__(self, options):
        import redis
        import vector_data
        self.options, self.data, self.redis = options, vector_data, lib.Redis()
        self.raw = redis.Redis(port=self.redis.port, protocol=2)
        self.exports = lib.Exports(self.redis)
        self.searches = max(options.queries, options.conc_queries)
        say(f'making {options.docs:,} documents and {self.searches:,} searches')
        vector_data.make(options.docs, self.searches, options.dims)
        self.type = self.make_tables()

    def make_tables(self):
        """Returns the type of the documents' vectors: pgvector's where there is one."""
        pgvector = lib.value("SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'") == '1'
        with open('docs.tsv', 'w') as out:
            for number, vector in enumerate(self.data.vectors('docs')):
                columns = [str(column) for column in self.data.document(number).values()]
                out.write('\t'.join([*columns, array(vector, '[]' if pgvector else '{}')]) + '\n')
        with open('searches.tsv', 'w') as out:
            for number, vector in enumerate(self.data.vectors('searches')):
                out.write(f'{number}\t{self.data.search_text(number, self.options.k)}\t{array(vector, "{}")}\n')
        if pgvector:
            lib.rows('-c', 'CREATE EXTENSION vector')
        vector_type = f'vector({self.options.dims})' if pgvector else 'real[]'
        lib.rows('-c', f'CREATE UNLOGGED TABLE docs (id int, title text, category text, price int, embedding {vector_type})',
                 '-c', 'CREATE UNLOGGED TABLE searches (id int PRIMARY KEY, search text, vector real[])',
                 '-c', r"\copy docs FROM 'docs.tsv'", '-c', r"\copy searches FROM 'searches.tsv'",
                 '-c', 'VACUUM ANALYZE docs', '-c', 'VACUUM ANALYZE searches')
        return vector_type

    def create_index(self):
        words = ', '.join(f"'{word}'" for word in self.data.create_words(self.options.dims))
        lib.rows('-c', f"SELECT redis_command('redis', {words})")

    def client(self, *words, seconds=600):
        """One of the Python programs, started."""
        return lib.Run([sys.executable, os.path.join(HERE, 'vector_clients.py'), str(self.redis.port), *map(str, words)],
                       seconds=seconds)

    def check_index(self):
        """RedisVL would make the same index."""
        def attributes():
            return self.redis.index(self.data.INDEX)['attributes']
        self.redis.empty()
        self.create_index()
        ours = attributes()
        self.redis.empty()
        self.client('create').wait()
        if attributes() != ours:
            raise BenchError(f'RedisVL makes another index: {attributes()}, and not {ours}')

    def environment(self):
        import numpy
        import redisvl
        return {**lib.environment(self.redis), 'redisvl': redisvl.__version__, 'numpy': numpy.__version__,
                'pgbench': lib.output_of(['pgbench', '--version'])}


def array(vector, brackets):
    return brackets[0] + ','.join(map(repr, vector.tolist())) + brackets[1]


# ---- load -------------------------------------------------------------------------------------

class Loads:
    """The loaders, each of which puts all documents into an empty Redis with an active index."""

    QUERY = 'SELECT id, title, category, price, embedding FROM docs'

    def __init__(self, bench):
        self.bench, self.docs, self.data = bench, bench.options.docs, bench.data
        self.limit = 120 + self.docs / 50
        self.commands = 'docs.resp'
        every = max(1, self.docs // 50)
        self.sample = {}
        say('writing the documents as commands')
        with open(self.commands, 'wb') as out:
            for item in self.data.objects():
                key = f'{self.data.PREFIX}:{item["id"]}'.encode()
                fields = {name.encode(): value if isinstance(value, bytes) else str(value).encode() for name, value in item.items()}
                out.write(lib.command(b'HSET', key, *(word for field in fields.items() for word in field)))
                if item['id'] % every == 0:
                    self.sample[key] = fields
        lib.read_through(self.commands)

    def load(self, loader):
        self.bench.redis.empty()
        self.bench.create_index()
        figures = lib.measured(self.bench.redis, self.docs, getattr(self, loader.replace('-', '_')), self.rest)
        return {**figures, **self.check(loader)}

    def ours(self):
        call = f"redis_hash_export($q${self.QUERY}$q$, '{self.data.PREFIX}:#{{id}}', {self.bench.options.batch})"
        run, sampler = self.bench.exports.run(call, self.docs, self.limit)
        return lib.Loaded(run.seconds, sampler.cpu, sampler)

    def pipe(self):
        run, sampler = lib.pipe(self.bench.redis, self.commands, self.docs, self.limit)
        return lib.Loaded(run.seconds, run.cpu, sampler)

    def redis_py(self):
        return self.python('redis-py')

    def redisvl(self):
        return self.python('redisvl')

    def python(self, loader):
        run = self.bench.client('load', loader, self.bench.options.batch, seconds=self.limit)
        output, sampler = lib.sampled(run)
        told = json.loads(output)
        return lib.Loaded(told['seconds'], told['cpu_seconds'], sampler, run.cpu - told['cpu_seconds'])

    def rest(self):
        """Until all is in the index."""
        deadline = time.monotonic() + self.limit
        while True:
            index = self.bench.redis.index(self.data.INDEX)
            if index['percent_indexed'] == 1 and not index['indexing']:
                return
            if time.monotonic() > deadline:
                raise BenchError('the index does not come to rest')
            time.sleep(0.01)

    def check(self, loader):
        """Every document is there and in the index, a sample of them byte for byte: anything else is an error."""
        index, keys = self.bench.redis.index(self.data.INDEX), self.bench.raw.dbsize()
        failures = index['hash_indexing_failures']
        if (keys, index['num_docs'], failures) != (self.docs, self.docs, 0):
            raise BenchError(f'{loader}: {keys} keys, {index["num_docs"]} in the index, {failures} index failures '
                             f'after {self.docs} documents')
        for key, fields in self.sample.items():
            found = self.bench.raw.hgetall(key)
            if found != fields:
                wrong = [name.decode() for name in {*found, *fields} if found.get(name) != fields.get(name)]
                raise BenchError(f'{loader}: {key.decode()} has not what was sent in {", ".join(sorted(wrong))}')
        return {name: index[name] for name in ('num_docs', 'num_records', 'vector_index_sz_mb')}


def load_workload(bench):
    options, loads = bench.options, Loads(bench)
    done = lib.take_turns(options.loaders, options.rounds, loads.load)
    if len({load['num_records'] for load in done}) > 1:
        raise BenchError('the loaders left indexes of different sizes')
    return {'loaders': {loader: lib.summarized(done, loader) for loader in options.loaders},
            'ratios_to_pipe': {loader: lib.ratios(done, loader) for loader in options.loaders if loader != 'pipe'},
            'disturbed_loads': lib.disturbed(done),
            'loads': [{name: load[name] for name in ('round', 'loader', 'seconds', 'cpu_seconds', 'elsewhere_cpu_share')}
                      for load in done]}


# ---- searches ---------------------------------------------------------------------------------

class Searches:
    """The two clients, over one and the same loaded index."""

    def __init__(self, bench):
        self.bench, self.options = bench, bench.options
        self.statement = (
            f"SELECT redis_command('redis', 'FT.SEARCH', '{bench.data.INDEX}', search, 'RETURN', '3', 'title', 'price', "
            f"'vector_distance', 'SORTBY', 'vector_distance', 'ASC', 'DIALECT', '2', 'LIMIT', '0', '{self.options.k}', "
            "'PARAMS', '2', 'vector', vector) FROM searches WHERE id")
        with open('search.pgbench', 'w') as script:
            # The first transaction of a client makes its connections and its plan, and then waits at the gate.
            script.write(f'\\set n :n + 1\n\\set search :client_id * :each + :n - 1\n\\if :n = 0\n\\set search :client_id * :each\n'
                         f'{self.statement} = :search;\nSELECT pg_advisory_lock_shared({GATE});\n'
                         f'\\else\n{self.statement} = :search;\n\\endif\n')

    def ours(self, concurrency, each):
        ask = self.bench.exports.session.ask
        ask(f'SELECT pg_advisory_lock({GATE})')
        run = lib.Run(['pgbench', '-n', '-M', 'prepared', '-f', 'search.pgbench', '-c', str(concurrency),
                       '-j', str(min(2, concurrency)), '-t', str(each + 1), '-D', 'n=-1', '-D', f'each={each}',
                       '--log', '--log-prefix=search'])
        try:
            while int(ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")[0]) < concurrency:
                if run.ended():
                    run.wait()
                    raise BenchError('pgbench has ended before it began')
                time.sleep(0.002)
            before = self.busy()
        finally:
            ask(f'SELECT pg_advisory_unlock({GATE})')
        run.wait()
        after = self.busy()
        return {'redis_cpu_seconds': after[0] - before[0], 'machine_cpu_seconds': after[1] - before[1],
                **logged(run.process.pid, concurrency, each)}

    def redisvl(self, concurrency, each):
        return json.loads(self.bench.client('search', concurrency, each, self.options.k).wait())

    def busy(self):
        return lib.process_cpu(self.bench.redis.pid), lib.machine_cpu()

    def run(self, searcher, concurrency, each):
        before = self.commands()
        told = getattr(self, searcher)(concurrency, each)
        calls, spent = (after - at for after, at in zip(self.commands(), before))
        searches = concurrency * each
        if len(told['latencies_ms']) != searches or calls != searches + concurrency:
            raise BenchError(f'{searcher}: {len(told["latencies_ms"])} searches were done, {calls} came to Redis, and not {searches} '
                             f'and {concurrency} more')
        latencies = sorted(told['latencies_ms'])
        return {
            'searches_per_second': searches / told['seconds'], 'mean_ms': statistics.fmean(latencies),
            **{f'p{part}_ms': percentile(latencies, part) for part in (50, 95, 99)},
            'redis_us_per_search': spent / calls, 'redis_cpu_share': told['redis_cpu_seconds'] / told['seconds'],
            'other_cpu_us_per_search': (told['machine_cpu_seconds'] - told['redis_cpu_seconds']) / searches * 1e6}

    def commands(self):
        """How many searches Redis has done, and the microseconds that they took it."""
        search = self.bench.redis.client.info('commandstats').get('cmdstat_FT.SEARCH', {'calls': 0, 'usec': 0})
        return search['calls'], search['usec']

    def compare(self):
        """Both find the same, in the same order and with the true distances: anything else is an error. Returns which part
        of the true nearest is among what the index finds, which is its own affair."""
        searches, k, data = self.bench.searches, self.options.k, self.bench.data
        theirs = json.loads(self.bench.client('results', searches, k).wait())
        ours = [json.loads(line[0]) for line in lib.rows('-c', f'{self.statement} < {searches} ORDER BY id')]
        hits = 0
        for number, (answer, found, (nearest, distances)) in enumerate(zip(ours, theirs['found'], data.nearest(k), strict=True)):
            mine = [[key, float(dict(zip(fields[::2], fields[1::2]))['vector_distance'])]
                    for key, fields in zip(answer[1::2], answer[2::2])]
            if mine != found or len(mine) != k or theirs['texts'][number] != data.search_text(number, k):
                raise BenchError(f'search {number}: {data.search_text(number, k)} finds {mine}, '
                                 f'RedisVL {theirs["texts"][number]} {found}')
            numbers = [int(key.removeprefix(f'{data.PREFIX}:')) for key, _ in mine]
            for document, (_, distance) in zip(numbers, mine):
                if abs(distances[document] - distance) > 1e-4 or data.searched_tag(number) not in (None, data.tag(document)):
                    raise BenchError(f'search {number} finds document {document} at {distance}; it is at {distances[document]}, '
                                     f'and in {data.tag(document)}')
            hits += len(set(numbers) & set(nearest))
        return {'compared': searches, 'recall': hits / (searches * k)}


def logged(pid, concurrency, each):
    """What pgbench has logged: milliseconds of each search, and seconds from the first one's start to the last one's end."""
    latencies, begins, ends = [], [], []
    clients = {}
    for thread in range(min(2, concurrency)):
        path = f'search.{pid}.{thread}' if thread else f'search.{pid}'
        with open(path) as log:
            for line in log:
                client, _, microseconds, _, second, rest = map(int, line.split()[:6])
                clients.setdefault(client, []).append((second + rest / 1e6, microseconds))
        os.unlink(path)
    for transactions in clients.values():
        for end, microseconds in sorted(transactions)[1:]:      # the first was to get ready
            latencies.append(microseconds / 1000)
            begins.append(end - microseconds / 1e6)
            ends.append(end)
    if len(clients) != concurrency or len(latencies) != concurrency * each:
        raise BenchError(f'pgbench logged {len(latencies)} searches of {len(clients)} clients')
    return {'latencies_ms': latencies, 'seconds': max(ends) - min(begins)}


def percentile(values, part):
    """Of sorted values: the least that is as great as so many per cent of them."""
    return values[max(0, -(-len(values) * part // 100) - 1)]


def search_workload(searches, name, concurrency, total):
    options, done = searches.options, {searcher: [] for searcher in searches.options.searchers}
    say(f'{name}: {total:,} searches, {concurrency} at once')
    for number in range(options.rounds + 1):        # the first is to warm up
        for searcher in options.searchers if number % 2 else options.searchers[::-1]:
            figures = searches.run(searcher, concurrency, total // concurrency)
            if number:
                done[searcher].append(figures)
                say(f'round {number} of {options.rounds}: {searcher:10} {figures["searches_per_second"]:9,.0f} searches/s, '
                    f'mean {figures["mean_ms"]:.3f} ms, p99 {figures["p99_ms"]:.3f} ms')
    return {'searches': total, 'concurrency': concurrency,
            'clients': {searcher: {part: statistics.median(each[part] for each in figures) for part in figures[0]}
                        for searcher, figures in done.items()},
            'rounds': done}


# ---- the report -------------------------------------------------------------------------------

def benchmark(options):
    bench = Bench(options)
    report = {'bench': 'vector', 'docs': options.docs, 'dims': options.dims, 'queries': options.queries,
              'concurrency': options.concurrency, 'conc_queries': options.conc_queries, 'k': options.k,
              'rounds': options.rounds, 'batch': options.batch, 'vector_type': bench.type, 'machine': bench.environment()}
    bench.check_index()
    if 'load' in options.only:
        report['load'] = load_workload(bench)
    if 'sequential' in options.only or 'concurrent' in options.only:
        Loads(bench).load('ours' if 'ours' in options.loaders else options.loaders[0])
        searches = Searches(bench)
        if 'sequential' in options.only:
            report['sequential'] = search_workload(searches, 'sequential', 1, options.queries)
        if 'concurrent' in options.only:
            report['concurrent'] = search_workload(searches, 'concurrent', options.concurrency, options.conc_queries)
        say('comparing what is found')
        report['results'] = searches.compare()
    report['comparison'] = comparison(report)
    report['targets'] = targets(report)
    return report


def comparison(report):
    """The published table with our figures: ours, RedisVL for Python, and the one by the other."""
    figures = {}
    for name in REFERENCE:
        workload, part = name.split(', ')
        part = {'docs/s': 'rows_per_second', 'searches/s': 'searches_per_second'}.get(part, part.replace(' ', '_'))
        clients = report.get(workload, {}).get('loaders' if workload == 'load' else 'clients', {})
        if 'ours' in clients and 'redisvl' in clients:
            figures[name] = {'ours': clients['ours'][part], 'redisvl': clients['redisvl'][part],
                             'ratio': clients['ours'][part] / clients['redisvl'][part]}
    return figures


def targets(report):
    if 'ours' not in report.get('load', {}).get('loaders', {}):
        return []
    load, lines = report['load'], []
    if load['ratios_to_pipe']['ours']:
        lines.append(lib.target("load: time, median of the ratios to the pipe's", load['ratios_to_pipe']['ours']['median'], TIME_LIMIT))
    lines.append(lib.target('load: worker memory above its start, MB', load['loaders']['ours']['private_growth_mb'], lib.GROWTH_LIMIT))
    return lines


def print_report(report):
    machine = report['machine']
    print(f'{report["docs"]:,} documents with vectors of {report["dims"]} dimensions ({report["vector_type"]}), '
          f'{report["rounds"]} rounds, batches of {report["batch"]}; PostgreSQL {machine["postgresql"]}, Redis {machine["redis"]}, '
          f'hiredis {machine["hiredis"]}, RedisVL {machine["redisvl"]}, redis-py {machine["redis_py"]}, '
          f'{machine["cores"]} cores ({machine["cpu"]})\n')
    if 'load' in report:
        load = report['load']
        print(lib.table([['load', *lib.LOAD_HEADING]] + [
            [LOADERS[loader], *lib.load_cells(figures, load['ratios_to_pipe'].get(loader))]
            for loader, figures in load['loaders'].items()]) + '\n')
    for name in ('sequential', 'concurrent'):
        if name in report:
            print(f'{report[name]["searches"]:,} searches for {report["k"]} documents, {report[name]["concurrency"]} at once')
            print(lib.table([[name, 'searches/s', 'mean ms', 'p50', 'p95', 'p99', 'Redis us', 'Redis CPU', 'other CPU us']] + [
                [SEARCHERS[searcher], f'{figures["searches_per_second"]:,.0f}',
                 *(f'{figures[part]:.3f}' for part in ('mean_ms', 'p50_ms', 'p95_ms', 'p99_ms')),
                 f'{figures["redis_us_per_search"]:.0f}', f'{figures["redis_cpu_share"]:.0%}',
                 f'{figures["other_cpu_us_per_search"]:.0f}']
                for searcher, figures in report[name]['clients'].items()]) + '\n')
    if 'results' in report:
        print(f'Both found the same in {report["results"]["compared"]:,} searches; {report["results"]["recall"]:.0%} of the true '
              'nearest are among it.\n')
    if report['comparison']:
        print(lib.table([['medians', 'here', 'RedisVL Python', 'ratio', 'published: Go', 'Python', 'ratio']] + [
            [name, *(f'{figures[part]:,.0f}' if figures[part] > 1000 else f'{figures[part]:.3f}' for part in ('ours', 'redisvl')),
             f'{figures["ratio"]:.2f}', *(f'{value:,}' for value in REFERENCE[name]), f'{REFERENCE[name][0] / REFERENCE[name][1]:.2f}']
            for name, figures in report['comparison'].items()]))
    if 'load' in report:
        lib.print_disturbed(report['load']['disturbed_loads'], len(report['load']['loads']))
    lib.print_targets(report['targets'])


# ---- the command line -------------------------------------------------------------------------

def parse_arguments():
    parser = argparse.ArgumentParser(
        prog='bench/vector', usage='bench/vector [--pg PG_CONFIG] [options]', description=__doc__.split('\n\n', 1)[1],
        epilog='--pg PG_CONFIG: the PostgreSQL to measure. Nothing is installed into it. Its vectors are of pgvector\'s type where '
               'it has that, and real[] elsewhere.')
    parser.add_argument('--docs', type=lib.count, default=10_000, help='documents (10000)')
    parser.add_argument('--dims', type=lib.count, default=384, help='dimensions of a vector (384)')
    parser.add_argument('--queries', type=lib.count, default=500, help='searches one after the other (500)')
    parser.add_argument('--concurrency', type=lib.count, default=32, help='clients that search at once (32)')
    parser.add_argument('--conc-queries', type=lib.count, default=3200, help='searches of all of them together (3200)')
    parser.add_argument('--k', type=lib.count, default=10, help='documents that a search finds (10)')
    parser.add_argument('--rounds', type=lib.count, default=5, help='how often each client takes its turn at each workload (5)')
    parser.add_argument('--batch', type=lib.count, default=500, help='documents in a batch (500)')
    parser.add_argument('--only', type=lib.choice(*WORKLOADS), default=list(WORKLOADS),
                        help=f'which workloads ({",".join(WORKLOADS)})')
    parser.add_argument('--loaders', type=lib.choice(*LOADERS), default=list(LOADERS), help=f'which to run ({",".join(LOADERS)})')
    parser.add_argument('--parse-only', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.searchers = list(SEARCHERS)
    if options.conc_queries % options.concurrency:
        parser.error(f'--conc-queries must be a multiple of --concurrency, {options.concurrency}')
    if options.docs < 2 * options.k * 10:
        parser.error(f'--docs must be at least {2 * options.k * 10}, so that each tag has enough of them')
    return options


def main():
    options = parse_arguments()
    if options.parse_only:
        return
    try:
        report = benchmark(options)
    except BenchError as error:
        sys.exit(f'bench/vector: {error}')
    print_report(report)
    print('\n' + json.dumps(lib.rounded(report)))


if __name__ == '__main__':
    main()
