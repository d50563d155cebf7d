"""scale_bench.py: how many rows a second one export can feed, where its time goes, and what that means for several shards.

Started by bench/scale. Documents and small rows are exported to a sink that only answers (sink.c), so that the worker is the
limit; and documents to one Redis with their search index active, which is one shard. From both comes the table: shards against
documents a second, and from where on one worker is the limit. --profile says where the worker's time goes, by perf. README.md
here says what the numbers mean. Prints tables, and one last line of JSON with everything.
"""

import argparse
import collections
import concurrent.futures
import json
import math
import os
import re
import subprocess
import sys
import time
from typing import NamedTuple

import lib
from lib import BenchError, say

HERE = os.path.dirname(os.path.abspath(__file__))
DOCUMENTS, SMALL_ROWS = 'appointment_json_benchmark', 'small_rows'
INDEX = 'idx:appointments'
FULL_CORPUS = 36_900_717        # documents that the reference estimates for
WANTED = {'documents': 100_000, 'set': 1_000_000, 'hash': 1_000_000}    # rows a second
SHARDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


class Workload(NamedTuple):
    """One way of exporting a table, and what the sink must have counted after it."""
    title: str
    table: str
    call: str
    commands: int               # of each row
    words: int                  # in these
    text: str                   # all these words, in SQL


HSET = "'HSETrow:' || id || 'idnameamountseen' || id || name || amount || seen"
WORKLOADS = {
    'documents': Workload(
        'documents, redis_json_export', DOCUMENTS,
        f"redis_json_export('SELECT appointment_id, doc FROM {DOCUMENTS}', 'appointment:#{{appointment_id}}', %d)",
        1, 4, "'JSON.SET$appointment:' || appointment_id || doc"),
    'set': Workload(
        'small rows, redis_command_export SET', SMALL_ROWS,
        f"redis_command_export('SELECT id, name FROM {SMALL_ROWS}', ARRAY['SET', 'row:#{{id}}', '#{{name}}'], %d)",
        1, 3, "'SETrow:' || id || name"),
    'hash': Workload(
        'small rows, redis_hash_export', SMALL_ROWS,
        f"redis_hash_export('SELECT id, name, amount, seen FROM {SMALL_ROWS}', 'row:#{{id}}', %d)",
        1, 10, HSET),
    'replace': Workload(
        'small rows, redis_hash_export, replace', SMALL_ROWS,
        f"redis_hash_export('SELECT id, name, amount, seen FROM {SMALL_ROWS}', 'row:#{{id}}', %d, replace => true)",
        4, 14, f"'MULTIDELrow:' || id || {HSET} || 'EXEC'"),
    'ttl': Workload(
        'small rows, redis_hash_export, ttl', SMALL_ROWS,
        f"redis_hash_export('SELECT id, name, amount, seen FROM {SMALL_ROWS}', 'row:#{{id}}', %d, ttl => '1 hour')",
        2, 13, f"{HSET} || 'PEXPIRErow:' || id || '3600000'"),
}


class Sink:
    """sink.c, compiled and running; to lib it looks like a Redis."""

    def __init__(self):
        # It ends with the pipe that is its standard input, and so with us.
        self.process = subprocess.Popen([lib.compiled('sink')], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid, self.port = self.process.pid, int(self.process.stdout.readline())
        import redis
        self.client = redis.Redis(port=self.port, protocol=2, decode_responses=True)

    def counted(self):
        """Commands, words and bytes of words so far."""
        info = self.client.info()
        return [info[name] for name in ('sink_commands', 'sink_words', 'sink_word_bytes')]


def worker_of(session):
    found = session.ask("SELECT pid FROM pg_stat_activity WHERE backend_type = 'redis_export worker'")
    return found[0] if found else None


class Feeder:
    """The workloads, each exported into the sink."""

    def __init__(self, options, sink, exports):
        self.options, self.sink, self.exports = options, sink, exports
        self.rows, self.expected = {}, {}
        for name in options.only:
            workload = WORKLOADS[name]
            count, size = map(int, lib.rows('-c', f'SELECT count(*), sum(octet_length({workload.text})) '
                                                  f'FROM {workload.table}')[0])
            self.rows[name] = count
            self.expected[name] = [count * workload.commands, count * workload.words, size]

    def call(self, name):
        return WORKLOADS[name].call % self.options.batch

    def load(self, name):
        """The figures of one export. Its time is that of the job: psql's start and the answer's way are no part of it."""
        samplers = []

        def export():
            run, sampler = self.exports.run(self.call(name), self.rows[name], interval=0.01)
            samplers.append(sampler)
            return lib.Loaded(run.job_seconds, sampler.cpu, sampler)

        self.exports.await_no_worker()
        before = self.sink.counted()
        figures = lib.measured(self.sink, self.rows[name], export)
        counted = [after - once for after, once in zip(self.sink.counted(), before)]
        if counted != self.expected[name]:
            raise BenchError(f'{name}: the sink counted {counted} commands, words and bytes of words, and should have counted '
                             f'{self.expected[name]}')
        figures['sink_cpu_share'] = figures.pop('redis_cpu_share')
        figures['worker_cpu_share'] = figures['cpu_seconds'] / figures['seconds']
        figures['user_share'] = samplers[0].user / figures['cpu_seconds']
        figures['mb_per_second'] = figures.pop('redis_bytes_received') / 1e6 / figures['seconds']
        return figures


# ---- one shard ----------------------------------------------------------------------------------

class Shard:
    """A Redis with the documents' search index, into which they are exported until the index has them all."""

    def __init__(self, options, redis, exports):
        self.options, self.redis, self.exports = options, redis, exports
        self.docs = min(options.docs, 100_000)
        lib.rows('-c', f"CREATE SERVER shard FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port '{redis.port}')")
        with open(os.path.join(HERE, 'appointments_index.sql')) as file:
            self.create_index = file.read().replace("'redis'", "'shard'")

    def load(self, _loader):
        self.redis.empty()
        lib.rows('-c', self.create_index)
        figures = lib.measured(self.redis, self.docs, self.export, self.rest)
        index = self.redis.index(INDEX)
        if (self.redis.client.dbsize(), index['num_docs'], index['hash_indexing_failures']) != (self.docs, self.docs, 0):
            raise BenchError(f'{self.docs} documents were to be there and in the index: {self.redis.client.dbsize()} and '
                             f'{index["num_docs"]} are')
        return figures

    def export(self):
        run, sampler = self.exports.run(
            f"redis_json_export('SELECT appointment_id, doc FROM {DOCUMENTS} WHERE appointment_id <= {self.docs}', "
            f"'appointment:#{{appointment_id}}', {self.options.batch}, server => 'shard')", self.docs)
        return lib.Loaded(run.job_seconds, sampler.cpu, sampler)

    def rest(self):
        deadline = time.monotonic() + 300
        while self.redis.index(INDEX)['indexing']:
            if time.monotonic() > deadline:
                raise BenchError('the index does not come to rest')
            time.sleep(0.01)


def extrapolated(shard_rate, worker_rate):
    """Shards against documents a second: all of them at their best, as far as one worker can feed them."""
    def line(shards):
        taken = shards * shard_rate
        rate = min(taken, worker_rate)
        return {'shards': shards, 'docs_per_second': rate, 'limit': 'Redis' if taken <= worker_rate else 'the worker',
                'worker_busy': rate / worker_rate, 'full_corpus_seconds': FULL_CORPUS / rate,
                'workers_for_all': math.ceil(taken / worker_rate), 'full_corpus_seconds_with_these': FULL_CORPUS / taken}
    return [line(shards) for shards in SHARDS]


# ---- --profile: where the time goes -------------------------------------------------------------

# What a sample's time was spent for says the first of these that fits, tried on its functions from the innermost outwards: so
# what the C library, memory contexts and the kernel do belongs to who called them.
KINDS = [
    ('waiting for answers', r'^(rexp_link_wait|WaitEventSetWait|WaitLatch|ResetLatch)'),
    ('send()', r'^rexp_link_send'),
    ('recv()', r'^rexp_link_receive'),
    ('parsing answers', r'^(redisReader|rexp_link_next_reply|next_object|on_(string|integer|array|nil)$)'),
    ('decompressing', r'pglz_|lz4|detoast_|toast_'),
    ('checking JSON', r'check_json|nested_too_deep|pg_parse_json|json_lex|JsonLex'),
    ('values as text', r'^(OutputFunctionCall|rexp_value_|rexp_output_settings|rexp_to_utf8|pg_u?l+toa|JsonEncode)'),
    ('clock', r'^(GetCurrentTimestamp|clock_gettime|gettimeofday|__vdso)'),
    ('progress', r'^(rexp_progress_|publish)'),
    ('writing commands', r'^(rexp_fill_|rexp_resp_|rexp_buffer_|rexp_append_key|rexp_document_|rexp_encoder_|encode_|append_|'
                         r'note_key)'),
    ('settling rows', r'^(take_repl|judge|settle|row_went|advance|retire|queue_|forget|'
                      r'rexp_window_(advance_receiver|settle|commands))'),
    ('the window, what else sending takes', r'^(rexp_window_|rexp_pipeline_|rexp_expiry_|step|exchange|dispatch|send_piece|'
                                            r'receive$|take_row)'),
    ('the query', r'^(standard_Executor|Exec|heap|slot_|PortalRun|receive_row|rexp_source_|ReadBuffer|read_stream|table_)'),
]
KINDS = [(name, re.compile(pattern)) for name, pattern in KINDS]
PROFILE_RUNS = 3
TOP = 25


def kind_of(names):
    for name in names:
        for kind, pattern in KINDS:
            if pattern.search(name):
                return kind
    return 'other'


def samples_of(script):
    """(function, its library, kind) of each sample in what `perf script` prints: a frame a line, the innermost first."""
    for block in re.split(r'\n\s*\n', script):
        frames = re.findall(r'^\s+[0-9a-f]+ (.*) \((.*)\)$', block, re.M)
        if not frames:
            continue
        names = [re.sub(r'(\.(isra|part|constprop|cold)\.?\d*)+$', '', name) for name, _library in frames]
        function = names[0]
        if function == '[unknown]':
            # A static function of a stripped program: what is known is who called it.
            function = '? called by ' + next((name for name in names if name != '[unknown]'), '?')
        library = os.path.basename(next((library for _name, library in frames if library != 'inlined'), ''))
        yield function, 'kernel' if library.startswith('[kernel') else library, kind_of(names)


class Perf:
    """perf, which looks at the next worker until that is gone, four thousand times a second."""

    def __init__(self, session):
        self.pid = None
        deadline = time.monotonic() + 30
        while not self.pid:
            self.pid = worker_of(session)
            if time.monotonic() > deadline:
                raise BenchError('no worker was seen')
        # Stacks are copied and unwound later: neither PostgreSQL nor the C library keeps frame pointers.
        self.process = subprocess.Popen(
            ['perf', 'record', '--quiet', '--event', 'cpu-clock', '--freq', '4000', '--call-graph', 'dwarf,4096',
             '--mmap-pages', '1024', '--output', 'perf.data', '--pid', self.pid],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def samples(self):
        _, errors = self.process.communicate(timeout=60)
        if self.process.returncode != 0:
            raise BenchError('perf record failed; with few rows the worker may have been gone by then. ' + errors.strip())
        done = subprocess.run(['perf', 'script', '--input', 'perf.data', '--inline', '--fields', 'ip,sym,dso'],
                              capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise BenchError('perf script: ' + done.stderr.strip())
        return list(samples_of(done.stdout))


def profile(feeder, session, name):
    """Exports under perf: shares of the worker's time by what it was spent for, and by function."""
    samples = []
    for number in range(1, PROFILE_RUNS + 1):
        say(f'profile of {name}, {number} of {PROFILE_RUNS}')
        feeder.exports.await_no_worker()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            export = pool.submit(feeder.exports.run, feeder.call(name), feeder.rows[name])
            samples += Perf(session).samples()
            export.result()
    if not samples:
        raise BenchError('perf has seen nothing')
    kinds = collections.Counter(kind for _, _, kind in samples)
    functions = collections.Counter(sample[:2] for sample in samples)
    return {'samples': len(samples),
            'kinds': {kind: count / len(samples) for kind, count in kinds.most_common()},
            'functions': [{'function': function, 'in': library, 'share': count / len(samples)}
                          for (function, library), count in functions.most_common(TOP)]}


# ---- all of it ------------------------------------------------------------------------------------

def make_tables(options):
    if 'documents' in options.only:
        say(f'making {options.docs:,} documents')
        lib.rows('-v', f'docs={options.docs}', '-f', os.path.join(HERE, 'appointments.sql'))
        # Hint bits now, so that the first reader doesn't pay for them.
        lib.rows('-c', f'VACUUM ANALYZE {DOCUMENTS}')
    if set(options.only) - {'documents'}:
        say(f'making {options.rows:,} small rows')
        lib.rows('-v', f'rows={options.rows}', '-f', os.path.join(HERE, 'small_rows.sql'))


def benchmark(options):
    redis, sink = lib.Redis(), Sink()
    make_tables(options)
    exports = lib.Exports(sink)
    feeder = Feeder(options, sink, exports)
    done = lib.take_turns(options.only, options.runs, feeder.load)
    report = {'bench': 'scale', 'runs': options.runs, 'batch': options.batch, 'machine': lib.environment(redis),
              'workloads': {name: {'rows': feeder.rows[name], **lib.summarized(done, name)} for name in options.only},
              'loads': [{name: load[name] for name in ('round', 'loader', 'seconds', 'cpu_seconds', 'elsewhere_cpu_share')}
                        for load in done]}
    if 'documents' in options.only:
        report.update(shards(options, redis, exports, report['workloads']['documents']))
    report['targets'] = [lib.target(f'{name}: microseconds a row', 1e6 / report['workloads'][name]['rows_per_second'], 1e6 / rate)
                         for name, rate in WANTED.items() if name in options.only]
    report['disturbed_loads'] = lib.disturbed(done + report.get('shard_loads', []))
    if options.profile:
        session = lib.Session()
        report['profiles'] = {name: profile(feeder, session, name) for name in options.only}
    return report


def shards(options, redis, exports, documents):
    """The rate of one shard, unless it was given, and what follows from it."""
    if options.shard_rate:
        rate, done = options.shard_rate, []
    else:
        say('one shard: documents into a Redis that indexes them')
        done = lib.take_turns(['shard'], min(options.runs, 3), Shard(options, redis, exports).load)
        rate = lib.summarized(done, 'shard')['rows_per_second']
    return {'shard_rate': rate, 'shard_loads': done, 'worker_is_the_limit_from_shards': documents['rows_per_second'] / rate,
            'shards': extrapolated(rate, documents['rows_per_second'])}


def print_report(report):
    machine = report['machine']
    print(f'{report["runs"]} runs of each, batches of {report["batch"]}; PostgreSQL {machine["postgresql"]}, '
          f'Redis {machine["redis"]}, hiredis {machine["hiredis"]}, {machine["cores"]} cores ({machine["cpu"]})\n')
    lines = [['into a sink that only answers', 'rows', 'seconds', 'rows/s', 'least', 'greatest', 'MB/s', 'CPU us/row', 'rows/CPU s',
              'user mode', 'worker CPU', 'sink CPU', 'elsewhere']]
    for name, figures in report['workloads'].items():
        rows = figures['rows']
        rates = [figures['rows_per_second'], rows / figures['seconds_max'], rows / figures['seconds_min']]
        shares = [figures[part] for part in ('user_share', 'worker_cpu_share', 'sink_cpu_share', 'elsewhere_cpu_share')]
        lines.append([WORKLOADS[name].title, f'{rows:,}', f'{figures["seconds"]:.2f}', *(f'{rate:,.0f}' for rate in rates),
                      f'{figures["mb_per_second"]:.0f}', f'{figures["cpu_us_per_row"]:.3f}',
                      f'{1e6 / figures["cpu_us_per_row"]:,.0f}', *(f'{share:.0%}' for share in shares)])
    print(lib.table(lines))
    lib.print_disturbed(report['disturbed_loads'], len(report['loads'] + report.get('shard_loads', [])))
    if 'shards' in report:
        print_shards(report)
    for name, found in report.get('profiles', {}).items():
        print_profile(name, found, report['workloads'][name]['cpu_us_per_row'])
    lib.print_targets(report['targets'])


def print_shards(report):
    print(f'\none shard with the index active: {report["shard_rate"]:,.0f} documents a second; one worker is the limit from '
          f'{report["worker_is_the_limit_from_shards"]:.1f} shards on\n')
    lines = [['shards', 'docs/s of one worker', 'limit', 'worker busy', f'{FULL_CORPUS:,} docs', 'workers for all shards',
              'with these']]
    for line in report['shards']:
        lines.append([line['shards'], f'{line["docs_per_second"]:,.0f}', line['limit'], f'{line["worker_busy"]:.0%}',
                      minutes(line['full_corpus_seconds']), line['workers_for_all'],
                      minutes(line['full_corpus_seconds_with_these'])])
    print(lib.table(lines))


def minutes(seconds):
    return f'{seconds / 60:.1f} min'


def print_profile(name, found, microseconds):
    print(f'\nwhere the time of {name} goes, {found["samples"]:,} samples\n')
    print(lib.table([['for', 'share', 'us/row']] + [[kind, f'{share:.1%}', f'{share * microseconds:.3f}']
                                                    for kind, share in found['kinds'].items()]))
    print('\n' + lib.table([['function', 'in', 'share']] + [[line['function'], line['in'], f'{line["share"]:.1%}']
                                                            for line in found['functions']]))


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog='bench/scale', usage='bench/scale [--pg PG_CONFIG] [options]', description=__doc__.split('\n\n', 1)[1],
        epilog='--pg PG_CONFIG: the PostgreSQL to measure. Nothing is installed into it.')
    parser.add_argument('--docs', type=lib.count, default=200_000, help='documents in their table (200000)')
    parser.add_argument('--rows', type=lib.count, default=3_000_000, help='small rows in theirs (3000000)')
    parser.add_argument('--runs', type=lib.count, default=7, help='exports of each workload (7)')
    parser.add_argument('--batch', type=lib.count, default=500, help='rows in a batch (500)')
    parser.add_argument('--only', type=lib.choice(*WORKLOADS), default=['documents', 'set', 'hash'],
                        help=f'which workloads (documents,set,hash), of {",".join(WORKLOADS)}')
    parser.add_argument('--shard-rate', type=lib.count, metavar='DOCS',
                        help='documents a second that one shard takes, if it need not be measured')
    parser.add_argument('--profile', action='store_true', help="also where the worker's time goes, by perf")
    parser.add_argument('--parse-only', action='store_true', help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.parse_only:
        return
    try:
        report = benchmark(options)
    except BenchError as error:
        sys.exit(f'bench/scale: {error}')
    print_report(report)
    print('\n' + json.dumps(lib.rounded(report)))


if __name__ == '__main__':
    main()
