"""changed_bench.py: what a second export costs when Redis holds nearly all of it, and how fast Redis is read back.

Started by bench/changed. A run of an export with a name writes only the rows that Redis does not hold yet: here it takes turns
with the plain export of all rows, after a part of the documents has been changed, the search index active; then the first run
with a plain export; and then reader.c, a raw socket, asks Redis for all documents, or for digests of them, which shows what a
way of telling what has changed can cost at least. --scan compares redis_scan, redis_json_scan and redis_hash_scan with the raw
socket, --verify looks at the memory of redis_export_verify, --prune at the time that finding and deleting keys takes. README.md
here says what the numbers mean. Prints tables, and one last line of JSON with everything.
"""

import argparse
import binascii
import hashlib
import json
import math
import os
import random
import sys
import time

import lib
from lib import BenchError, MB, say

HERE = os.path.dirname(os.path.abspath(__file__))
DOCUMENTS, SMALL_ROWS = 'appointment_json_benchmark', 'small_rows'
INDEX = 'idx:appointments'
QUERY, KEY = f'SELECT appointment_id, doc FROM {DOCUMENTS}', 'appointment:'
TEMPLATE = KEY + '#{appointment_id}'
OWN_KEYS = 'redis_export:*'     # what the extension keeps in Redis for itself
PART = 0.01                     # of the documents, changed between two exports
FIRST_PAIRS = 3
SLOTS = 16384
LEAST_GAIN = 10                 # how much faster a run must be when PART has changed
SCAN_LIMIT = 1.10               # of the raw socket's time
VERIFY_MEMORY = '64MB'          # work_mem of --verify
PRUNE_LIMIT = 3                 # seconds beyond the run
SCANNED = 1_000_000             # keys at least, where only keys are read
SPOILED = 10                    # keys of each kind that --verify must find


# ---- the documents, and the Redis that holds them ----------------------------------------------

class Bench:
    """The two servers and the documents. Redis' index collects its garbage between the measurements, when it is told to: else it
    does so at any time, in another process."""

    def __init__(self, options):
        self.options, self.docs, self.redis = options, options.docs, lib.Redis()
        self.limit = 120 + self.docs / 500
        say(f'making {self.docs:,} documents')
        lib.rows('-v', f'docs={self.docs}', '-f', os.path.join(HERE, 'appointments.sql'))
        lib.rows('-c', f'VACUUM ANALYZE {DOCUMENTS}')
        self.exports = lib.Exports(self.redis)
        # as another server: the keys of an export with a name are not those of a plain one
        lib.rows('-c', "CREATE SERVER named FOREIGN DATA WRAPPER redis_export "
                       f"OPTIONS (host '127.0.0.1', port '{self.redis.port}')")
        lib.rows('-c', f"SELECT redis_export_define('bench', '{QUERY}', '{TEMPLATE}', server => 'named')")
        self.versions = 0           # of documents so far

    def empty(self):
        """An empty Redis with the index."""
        self.redis.empty()
        lib.rows('-f', os.path.join(HERE, 'appointments_index.sql'))
        self.redis.client.execute_command('FT.DEBUG', 'GC_STOP_SCHEDULE', INDEX)

    def settle(self):
        self.redis.client.execute_command('FT.DEBUG', 'GC_FORCEINVOKE', INDEX, 300_000)
        self.redis.settle()
        self.exports.await_no_worker()

    def change(self, count):
        """Changes the text of so many documents, taken at random: their numbers."""
        self.versions += 1
        changed = lib.rows('-c', f"UPDATE {DOCUMENTS} SET doc = regexp_replace(doc, '\"priority\": \\d+', "
                                 f"'\"priority\": {1000 + self.versions}') WHERE appointment_id IN "
                                 f'(SELECT appointment_id FROM {DOCUMENTS} ORDER BY random() LIMIT {count}) '
                                 'RETURNING appointment_id') if count else []
        if len(changed) != count:
            raise BenchError(f'{len(changed)} documents were changed instead of {count}')
        lib.rows('-c', f'VACUUM ANALYZE {DOCUMENTS}')
        return [int(number) for number, in changed]

    def lose(self, count):
        """Deletes so many documents, taken at random, from Redis alone: their numbers."""
        lost = random.sample(range(1, self.docs + 1), count)
        if self.redis.client.delete(*(f'{KEY}{number}' for number in lost)) != count:
            raise BenchError('Redis had not the documents that were to be deleted')
        return lost

    def export(self, named, expected):
        """One export that must write so many documents and leave the rest alone; what it says of itself."""
        call = (f"CALL redis_export_run('bench', batch => {self.options.batch})" if named else
                f"redis_json_export('{QUERY}', '{TEMPLATE}', {self.options.batch})")
        run, sampler = self.exports.run(call, expected, self.limit, 0.005, self.docs - expected)
        return lib.Loaded(run.seconds, sampler.cpu, sampler)

    def measured(self, named, expected, changed=()):
        """The figures of one export, and the check that Redis holds all that it should, the changed documents in their new form."""
        figures = lib.measured(self.redis, self.docs, lambda: self.export(named, expected), self.rest)
        self.check(changed)
        return {**figures, 'rows_written': expected, 'rows_unchanged': self.docs - expected}

    def rest(self):
        deadline = time.monotonic() + self.limit
        while self.redis.index(INDEX)['indexing']:
            if time.monotonic() > deadline:
                raise BenchError('the index does not come to rest')
            time.sleep(0.01)

    def check(self, changed):
        """As many keys and documents in the index as rows; fifty of all, and fifty of those that have changed, as in the table."""
        client, index = self.redis.client, self.redis.index(INDEX)
        keys = client.dbsize() - self.own_keys()
        if (keys, index['num_docs'], index['hash_indexing_failures']) != (self.docs, self.docs, 0):
            raise BenchError(f'{self.docs} documents were to be there and in the index: {keys} and {index["num_docs"]} are')
        some = random.sample(range(1, self.docs + 1), min(50, self.docs)) + random.sample(list(changed), min(50, len(changed)))
        for number, document in lib.copied_rows(f'SELECT appointment_id::text, doc FROM {DOCUMENTS} '
                                                f'WHERE appointment_id IN ({",".join(map(str, some))})'):
            key = KEY + number.decode()
            if json.loads(client.execute_command('JSON.GET', key) or 'null') != json.loads(document):
                raise BenchError(f'{key} is not as in the table')

    def own_keys(self):
        return sum(1 for _ in self.redis.client.scan_iter(match=OWN_KEYS, count=5000))

    def forget(self):
        """Deletes the books, which runs go by."""
        self.redis.client.delete(*self.redis.client.scan_iter(match=OWN_KEYS, count=5000), 'none')

    def verify(self):
        """Every document is as in the table, says redis_export_verify."""
        found = lib.rows('-c', f"SELECT expected, missing, different, unknown FROM redis_export_verify('{QUERY}', '{TEMPLATE}')")[0]
        if found != [str(self.docs), '0', '0', '0']:
            raise BenchError('expected, missing, different and unknown documents are ' + ', '.join(found))


# ---- a second export -----------------------------------------------------------------------------

class SecondExports:
    """The plain export of all documents and the one of what has changed, each into a Redis that holds them all."""

    def __init__(self, bench):
        self.bench = bench
        self.part = max(1, round(bench.docs * PART))
        self.known = False          # do the books have what the last export has written?
        bench.empty()
        bench.export(False, bench.docs)

    def make_known(self):
        """What a plain export writes is not in the books: they are made anew."""
        if not self.known:
            self.bench.exports.await_no_worker()
            self.bench.forget()
            self.bench.export(True, self.bench.docs)
        self.known = True

    def load(self, loader):
        """The figures of one export after a change of a part."""
        bench = self.bench
        if loader == 'changed':
            self.make_known()
        changed = bench.change(self.part)
        bench.settle()
        self.known = loader == 'changed'
        return bench.measured(self.known, self.part if self.known else bench.docs, changed)

    def shares(self, full):
        """One run each, with other shares of changed documents, and with documents that are gone from Redis."""
        bench, docs = self.bench, self.bench.docs
        runs = [('nothing changed', 0, bench.change), ('1 % deleted in Redis', self.part, bench.lose),
                ('10 % changed', max(1, docs // 10), bench.change), ('all changed', docs, bench.change)]
        done = []
        for title, count, do in runs:
            say(f'a run by name: {title}')
            self.make_known()
            some = do(count)
            bench.settle()
            figures = bench.measured(True, count, some)
            done.append({'what': title, **figures, 'gain': full / figures['seconds']})
        return done


def second_exports(bench):
    """The pairs, and the other shares."""
    second = SecondExports(bench)
    done = lib.take_turns(['full', 'changed'], bench.options.pairs, second.load)
    bench.verify()
    figures = {loader: lib.summarized(done, loader) for loader in ('full', 'changed')}
    report = {'pairs': bench.options.pairs, 'loaders': figures, 'gain': lib.ratios(done, 'full', 'changed'),
              'disturbed_loads': lib.disturbed(done), 'loads': short(done)}
    if 'shares' in bench.options.only:
        report['shares'] = second.shares(figures['full']['seconds'])
        bench.verify()
    return report


def first_exports(bench):
    """Into an empty Redis: what the books cost, in time and in Redis' memory."""
    def load(loader):
        bench.empty()
        bench.exports.await_no_worker()
        figures = bench.measured(loader == 'changed', bench.docs)
        bench.redis.settle()
        return {**figures, 'own_keys': bench.own_keys(), 'redis_mb': bench.redis.client.info('memory')['used_memory'] / MB}

    done = lib.take_turns(['changed', 'plain'], min(FIRST_PAIRS, bench.options.pairs), load)
    figures = {loader: lib.summarized(done, loader) for loader in ('changed', 'plain')}
    return {'loaders': figures, 'ratio': lib.ratios(done, 'changed', 'plain'),
            'redis_bytes_per_row': (figures['changed']['redis_mb'] - figures['plain']['redis_mb']) * MB / bench.docs,
            'disturbed_loads': lib.disturbed(done), 'loads': short(done)}


def short(loads):
    return [{name: load[name] for name in ('round', 'loader', 'seconds', 'cpu_seconds', 'elsewhere_cpu_share')} for load in loads]


# ---- what Redis can answer ---------------------------------------------------------------------

class Reader:
    """reader.c, compiled."""

    def __init__(self, options, redis):
        self.program, self.options, self.redis = lib.compiled('reader'), options, redis

    def run(self, *words, seconds=600):
        """What it counted, with its seconds, its CPU and its sampler as a Loaded."""
        run = lib.Run([self.program, str(self.redis.port), str(self.options.window), *words], seconds=seconds)
        output, sampler = lib.sampled(run)
        counted = json.loads(output)
        return counted, lib.Loaded(counted['seconds'], run.cpu, sampler)

    def send(self, path, times=1):
        return self.run('send', path, str(times))


def slot_of(key):
    """Redis Cluster's."""
    return binascii.crc_hqx(key, 0) % SLOTS


def tags():
    """The shortest number, as text, of each hash slot."""
    found, number = {}, 0
    while len(found) < SLOTS:
        tag = b'%d' % number
        found.setdefault(slot_of(tag), tag)
        number += 1
    return found


class Ways:
    """What could be asked for each row to learn whether Redis holds it: one file of commands each."""

    TITLES = {'document': 'JSON.GET', 'digest': 'EXISTS, and HGET of a digest from one of 16,384 hashes',
              'string': 'EXISTS, and GET of a digest beside the key', 'get': 'GET of a digest beside the key'}
    ASKED = {'document': 100_000, 'digest': 1_000_000, 'string': 1_000_000, 'get': 1_000_000}      # rows, at least

    def __init__(self, bench):
        self.redis, self.docs = bench.redis, bench.docs
        self.reader = Reader(bench.options, bench.redis)
        self.keys = [b'%s%d' % (KEY.encode(), number) for number in range(1, self.docs + 1)]
        bench.redis.empty()
        bench.exports.await_no_worker()
        bench.export(False, self.docs)
        self.memory = {way: self.leave(way) for way in ('digest', 'string')}
        for way in self.TITLES:
            self.write(f'{way}.resp', getattr(self, way))
            lib.read_through(f'{way}.resp')

    @staticmethod
    def write(path, commands):
        with open(path, 'wb') as out:
            for part in commands():
                out.write(part)

    def leave(self, way):
        """Has Redis keep the digests: bytes of its memory for each."""
        before = self.redis.client.info('memory')['used_memory']
        self.write('leave.resp', getattr(self, f'leave_{way}'))
        counted, _ = self.reader.send('leave.resp')
        if counted['replies'] != self.docs:
            raise BenchError(f'{counted["replies"]} of {self.docs} digests were written')
        return (self.redis.client.info('memory')['used_memory'] - before) / self.docs

    def places(self):
        """Of each key the hash and the field in which its digest is; and the digest."""
        hashes = {slot: b'redis_export:digests:{%s}' % tag for slot, tag in tags().items()}
        for key in self.keys:
            both = hashlib.blake2b(key, digest_size=16).digest()
            yield key, hashes[slot_of(key)], both[:8], both[8:]

    def leave_digest(self):
        return (lib.command(b'HSET', name, field, digest) for _key, name, field, digest in self.places())

    def leave_string(self):
        return (lib.command(b'SET', b'digest:' + key, digest) for key, _name, _field, digest in self.places())

    def document(self):
        return (lib.command(b'JSON.GET', key) for key in self.keys)

    def digest(self):
        return (lib.command(b'EXISTS', key) + lib.command(b'HGET', name, field) for key, name, field, _digest in self.places())

    def string(self):
        return (lib.command(b'EXISTS', key) + lib.command(b'GET', b'digest:' + key) for key in self.keys)

    def get(self):
        return (lib.command(b'GET', b'digest:' + key) for key in self.keys)

    def load(self, way):
        """The figures of asking for all, so often that it takes a second or so."""
        times = math.ceil(self.ASKED[way] / self.docs)
        rows, found = self.docs * times, []

        def ask():
            counted, loaded = self.reader.send(f'{way}.resp', times)
            found.append(counted)
            return loaded

        self.redis.settle()
        figures = lib.measured(self.redis, rows, ask)
        counted = found[0]
        exist = rows if way in ('digest', 'string') else 0
        if (counted['replies'], counted['nils'], counted['integers']) != (rows + exist, 0, exist):
            raise BenchError(f'{way}: these are not the answers for {rows} documents: {counted}')
        if way == 'document' and counted['bytes'] < 1000 * rows or way != 'document' and counted['bytes'] != 8 * rows:
            raise BenchError(f'{way}: {counted["bytes"]} bytes are not those of {rows} documents')
        return {**figures, 'rows': rows, 'seconds_for_all': figures['seconds'] / times,
                'mb_per_second': counted['bytes'] / 1e6 / counted['seconds'],
                'redis_us_per_row': figures['redis_cpu_share'] * figures['seconds'] / rows * 1e6}


def ways_of_reading(bench):
    ways = Ways(bench)
    done = lib.take_turns(list(Ways.TITLES), bench.options.rounds, ways.load)
    return {'window': bench.options.window, 'redis_bytes_per_digest': ways.memory,
            'ways': {way: lib.summarized(done, way) for way in Ways.TITLES},
            'disturbed_loads': lib.disturbed(done), 'loads': short(done)}


def benchmark(options):
    bench = Bench(options)
    report = {'bench': 'changed', 'docs': options.docs, 'batch': options.batch, 'changed_share': PART,
              'table_mb': float(lib.value(f"SELECT pg_total_relation_size('{DOCUMENTS}') / {MB}.0")),
              'machine': lib.environment(bench.redis)}
    targets = []
    if 'pairs' in options.only or 'shares' in options.only:
        second = report['second'] = second_exports(bench)
        targets += [lib.target('seconds of the full export by those of a run with 1 % changed, median of the pairs',
                               second['gain']['median'], least=LEAST_GAIN),
                    lib.target('worker memory above its start, 1 % changed, MB',
                               second['loaders']['changed']['private_growth_mb'], lib.GROWTH_LIMIT)]
    if 'first' in options.only:
        report['first'] = first_exports(bench)
        targets.append(lib.target('worker memory above its start, first run with books, MB',
                                  report['first']['loaders']['changed']['private_growth_mb'], lib.GROWTH_LIMIT))
    if 'read' in options.only:
        report['read'] = ways_of_reading(bench)
    report['targets'] = targets
    print_benchmark(report)
    return report


def print_benchmark(report):
    print_machine(f'{report["docs"]:,} documents in {report["table_mb"]:,.0f} MB, batches of {report["batch"]}', report)
    if 'second' in report:
        print_second(report['second'])
    if 'first' in report:
        first = report['first']
        print('\ninto an empty Redis, with the index\n')
        print(lib.table([['', *lib.LOAD_HEADING[:-3], 'time / plain', 'min', 'max', 'Redis MB']]
                        + [[loader, *lib.load_cells(figures, first['ratio'] if loader == 'changed' else None),
                            f'{figures["redis_mb"]:,.1f}']
                           for loader, figures in first['loaders'].items()]))
        print(f'\nthe books in Redis: {first["redis_bytes_per_row"]:.1f} bytes a row, '
              f'{first["loaders"]["changed"]["own_keys"]:,.0f} keys')
    if 'read' in report:
        print_read(report['read'], report['docs'])
    parts = [report[part] for part in ('second', 'first', 'read') if part in report]
    report['disturbed_loads'] = sum(part['disturbed_loads'] for part in parts)
    lib.print_disturbed(report['disturbed_loads'], sum(len(part['loads']) for part in parts))
    if report['targets']:
        lib.print_targets(report['targets'])


def print_machine(text, report):
    machine = report['machine']
    print(f'{text}; PostgreSQL {machine["postgresql"]}, Redis {machine["redis"]}, hiredis {machine["hiredis"]}, '
          f'{machine["cores"]} cores ({machine["cpu"]})')


def print_second(second):
    def cells(figures, gain):
        return [f'{figures["rows_written"]:,.0f}', f'{figures["rows_unchanged"]:,.0f}', f'{figures["seconds"]:.3f}',
                f'{figures["rows_per_second"]:,.0f}', f'{figures["cpu_us_per_row"]:.2f}', f'{figures["private_growth_mb"]:.1f}',
                f'{figures["redis_cpu_share"]:.0%}', f'{figures["redis_bytes_received"] / MB:,.1f}',
                f'{figures["elsewhere_cpu_share"]:.0%}', *gain]

    gain = second['gain']
    heading = ['into a Redis that holds all', 'written', 'unchanged', 'seconds', 'rows/s', 'CPU us/row', 'growth MB', 'Redis CPU',
               'MB to Redis', 'elsewhere', 'full / this', 'min', 'max']
    lines = [['full export, 1 % changed', *cells(second['loaders']['full'], ['-', '-', '-'])],
             ['a run, 1 % changed', *cells(second['loaders']['changed'],
                                                  [f'{gain[part]:.2f}' for part in ('median', 'min', 'max')])]]
    for run in second.get('shares', []):
        lines.append([f'a run, {run["what"]}', *cells(run, [f'{run["gain"]:.2f}', '-', '-'])])
    print('\n' + lib.table([heading, *lines]))


def print_read(read, docs):
    print(f'\nwhat Redis answers to a raw socket, {read["window"]:,} commands in flight\n')
    lines = [['asked for each row', 'runs', 'rows/s', 'MB/s', f'seconds for {docs:,}', 'Redis us/row', 'Redis CPU', 'elsewhere',
              'memory, bytes/row']]
    for way, figures in read['ways'].items():
        memory = read['redis_bytes_per_digest'].get('string' if way == 'get' else way)
        lines.append([Ways.TITLES[way], figures['runs'], f'{figures["rows_per_second"]:,.0f}', f'{figures["mb_per_second"]:,.1f}',
                      f'{figures["seconds_for_all"]:.3f}', f'{figures["redis_us_per_row"]:.2f}', f'{figures["redis_cpu_share"]:.0%}',
                      f'{figures["elsewhere_cpu_share"]:.0%}', '-' if memory is None else f'{memory:.1f}'])
    print(lib.table(lines))


# ---- --scan: the functions that read, against the raw socket -------------------------------------

class Scan:
    """One function, and reader.c doing the same: it reads the same keys, and asks for the same values."""

    def __init__(self, options, redis, title, call, pattern, command, rows):
        self.redis, self.rows = redis, rows
        self.title, self.call, self.words, self.values = title, call, ['scan', pattern, *command], bool(command)
        self.reader = Reader(options, redis)
        self.session = lib.Session()
        self.pid = int(self.session.ask('SELECT pg_backend_pid()')[0])
        self.session.ask(f"SET work_mem = '{options.work_mem or '4MB'}'")

    def load(self, loader):
        """Keys alone are read so often that it takes half a second or so."""
        times = 1 if self.values else math.ceil(SCANNED / self.rows)

        def read():
            done = [getattr(self, loader)() for _ in range(times)]
            return lib.Loaded(sum(one.seconds for one in done), sum(one.cpu for one in done), done[-1].sampler)

        self.redis.settle()
        return {**lib.measured(self.redis, self.rows * times, read), 'times': times}

    def ours(self):
        cpu = lib.process_cpu(self.pid)
        sampler = lib.Sampler(lambda: self.pid, 0.02)
        sampler.start()
        began = time.perf_counter()
        try:
            count = int(self.session.ask(f'SELECT count(*) FROM {self.call}')[0])
            seconds = time.perf_counter() - began
        finally:
            sampler.finish()
        self.check(count)
        return lib.Loaded(seconds, lib.process_cpu(self.pid) - cpu, sampler)

    def raw(self):
        counted, loaded = self.reader.run(*self.words)
        self.check(counted['keys'])
        if self.values and (counted['replies'] < self.rows or counted['nils'] or counted['bytes'] < 30 * self.rows):
            raise BenchError(f'{self.title}: these are not {self.rows} keys with their values: {counted}')
        return loaded

    def check(self, count):
        if count != self.rows:
            raise BenchError(f'{self.title}: {count} of {self.rows} keys were found')


def make_small_rows(options):
    say(f'making {options.keys:,} small rows')
    lib.rows('-v', f'rows={options.keys}', '-f', os.path.join(HERE, 'small_rows.sql'))


def scans(options):
    bench = Bench(options)
    make_small_rows(options)
    report = {'bench': 'changed --scan', 'docs': options.docs, 'keys': options.keys, 'window': options.window,
              'rounds': options.rounds, 'machine': lib.environment(bench.redis), 'scans': {}}

    def measure(name, *about):
        say(name)
        scan = Scan(options, bench.redis, name, *about)
        done = lib.take_turns(['ours', 'raw'], options.rounds, scan.load)
        report['scans'][name] = {'rows': scan.rows, 'loaders': {loader: lib.summarized(done, loader) for loader in ('ours', 'raw')},
                                 'ratio': lib.ratios(done, 'ours', 'raw'), 'disturbed_loads': lib.disturbed(done),
                                 'loads': short(done)}

    bench.redis.empty()
    bench.export(False, options.docs)
    measure('redis_scan, documents', f"redis_scan('redis', '{KEY}*')", f'{KEY}*', [], options.docs)
    measure('redis_json_scan', f"redis_json_scan('redis', '{KEY}*')", f'{KEY}*', ['JSON.GET'], options.docs)
    bench.redis.empty()
    bench.exports.await_no_worker()
    bench.exports.run(f"redis_hash_export('SELECT id, name, amount, seen FROM {SMALL_ROWS}', 'row:#{{id}}', {options.batch})",
                      options.keys)
    measure('redis_scan, hashes', "redis_scan('redis', 'row:*')", 'row:*', [], options.keys)
    measure('redis_hash_scan', "redis_hash_scan('redis', 'row:*')", 'row:*', ['HGETALL'], options.keys)

    report['targets'] = [lib.target(f"{name}: time, median of the ratios to the raw socket's", scan['ratio']['median'], SCAN_LIMIT)
                         for name, scan in report['scans'].items()]
    report['disturbed_loads'] = sum(scan['disturbed_loads'] for scan in report['scans'].values())
    print_machine(f'{options.docs:,} documents and {options.keys:,} hashes, each by itself; {options.rounds} pairs', report)
    lines = [['count(*) of all', *lib.LOAD_HEADING[:-3], 'time / raw', 'min', 'max']]
    for name, scan in report['scans'].items():
        times = scan['loaders']['ours']['times']
        lines += [[name if times == 1 else f'{name}, {times:g} times', *lib.load_cells(scan['loaders']['ours'], scan['ratio'])],
                  ['  raw socket', *lib.load_cells(scan['loaders']['raw'], None)]]
    print('\n' + lib.table(lines))
    lib.print_disturbed(report['disturbed_loads'], sum(len(scan['loads']) for scan in report['scans'].values()))
    lib.print_targets(report['targets'])
    return report


# ---- --verify: its memory ------------------------------------------------------------------------

class Verify:
    """redis_export_verify of small documents, in a session of its own each time, which is looked at."""

    QUERY = f'SELECT id, name, amount, seen FROM {SMALL_ROWS}'
    ARGUMENTS = f"'{QUERY}', 'row:#{{id}}', value => '*'"

    def __init__(self, options, redis, exports):
        self.options, self.redis = options, redis
        self.memory = options.work_mem or VERIFY_MEMORY
        exports.run(f'redis_json_export({self.ARGUMENTS}, batch => {options.batch})', options.keys, 120 + options.keys / 2000)

    def run(self, title, missing, different, unknown):
        """The figures of one; it must find so many keys of each kind."""
        say(f'redis_export_verify, {title}')
        self.redis.settle()
        session = lib.Session()
        pid = int(session.ask('SELECT pg_backend_pid()')[0])
        session.ask(f"SET work_mem = '{self.memory}'")
        sampler = lib.Sampler(lambda: pid, 0.005)
        found = []

        def verify():
            cpu = lib.process_cpu(pid)
            sampler.start()
            began = time.perf_counter()
            try:
                found.extend(session.ask('SELECT expected, missing, different, unknown '
                                         f"FROM redis_export_verify({self.ARGUMENTS}, type => 'json')"))
                seconds = time.perf_counter() - began
            finally:
                sampler.finish()
            return lib.Loaded(seconds, lib.process_cpu(pid) - cpu, sampler)

        figures = lib.measured(self.redis, self.options.keys, verify)
        session.process.stdin.close()
        session.process.wait()
        right = f'{self.options.keys}|{missing}|{different}|{unknown}'
        if found != [right]:
            raise BenchError(f'{title}: {found[0]} are expected, missing, different and unknown; {right} was right')
        return {'what': title, **figures, 'start_mb': (sampler.private_start or 0) / MB, 'peak_mb': sampler.private_peak / MB}

    def spoil(self):
        """Keys of each kind that are not as they should be."""
        client, some = self.redis.client, random.sample(range(1, self.options.keys + 1), 2 * SPOILED)
        client.delete(*(f'row:{number}' for number in some[:SPOILED]))
        for number in some[SPOILED:]:
            client.execute_command('JSON.SET', f'row:{number}', '$.amount', '-1')
        for number in range(SPOILED):
            client.execute_command('JSON.SET', f'row:{self.options.keys + 1 + number}', '$', '{"id": 0}')


def verification(options):
    redis = lib.Redis()
    make_small_rows(options)
    verify = Verify(options, redis, lib.Exports(redis))
    runs = [verify.run('all as it should be', 0, 0, 0)]
    verify.spoil()
    runs.append(verify.run(f'{SPOILED} keys missing, different and unknown', SPOILED, SPOILED, SPOILED))
    report = {'bench': 'changed --verify', 'keys': options.keys, 'work_mem': verify.memory, 'machine': lib.environment(redis),
              'runs': runs, 'disturbed_loads': lib.disturbed(runs)}
    print_machine(f'{options.keys:,} small documents, work_mem {verify.memory}', report)
    print('\n' + lib.table([['redis_export_verify', 'seconds', 'rows/s', 'CPU us/row', 'start MB', 'peak MB', 'growth MB', 'Redis CPU',
                              'elsewhere']]
                           + [[run['what'], f'{run["seconds"]:.2f}', f'{run["rows_per_second"]:,.0f}', f'{run["cpu_us_per_row"]:.2f}',
                               f'{run["start_mb"]:.1f}', f'{run["peak_mb"]:.1f}', f'{run["private_growth_mb"]:.1f}',
                               f'{run["redis_cpu_share"]:.0%}', f'{run["elsewhere_cpu_share"]:.0%}'] for run in runs]))
    lib.print_disturbed(report['disturbed_loads'], len(runs))
    return report


# ---- --prune: keys that no row has ---------------------------------------------------------------

class Prune:
    """Small rows, as hashes, of which some go from the table between two runs: what finding and deleting their keys adds to a run."""

    def __init__(self, options, redis):
        self.options, self.redis, self.exports = options, redis, lib.Exports(redis)
        self.gone = max(1, round(options.keys * PART))
        lib.rows('-c', f"SELECT redis_export_define('bench', 'SELECT id, name, amount, seen FROM {SMALL_ROWS}', "
                       "'row:#{id}', type => 'hash')")
        lib.rows('-c', f'CREATE TABLE away (LIKE {SMALL_ROWS})')
        self.run("rows => 'all'", options.keys, 0)

    def run(self, how, written, unchanged):
        run, sampler = self.exports.run(f"CALL redis_export_run('bench', {how}, batch => {self.options.batch})", written,
                                        120 + self.options.keys / 2000, 0.005, unchanged)
        self.exports.await_no_worker()
        return lib.Loaded(run.seconds, sampler.cpu, sampler)

    def load(self, how):
        """One run with as many rows as keys, or with keys that no row has any more, and the check that these are gone."""
        self.redis.settle()
        left = self.options.keys
        if how == 'prune':
            left -= self.gone
            lib.rows('-c', f'WITH moved AS (DELETE FROM {SMALL_ROWS} WHERE id IN (SELECT id FROM {SMALL_ROWS} ORDER BY random() '
                           f'LIMIT {self.gone}) RETURNING *) INSERT INTO away SELECT * FROM moved')
        figures = lib.measured(self.redis, left, lambda: self.run('prune => true', 0, left))
        keys = sum(1 for _ in self.redis.client.scan_iter(match='row:*', count=10000))
        if keys != left:
            raise BenchError(f'{keys} keys are there where {left} rows are')
        if how == 'prune':
            lib.rows('-c', f'WITH moved AS (DELETE FROM away RETURNING *) INSERT INTO {SMALL_ROWS} SELECT * FROM moved')
            self.run("rows => 'changed'", self.gone, left)
        lib.rows('-c', f'VACUUM ANALYZE {SMALL_ROWS}')
        return figures


def pruning(options):
    redis = lib.Redis()
    make_small_rows(options)
    prune = Prune(options, redis)
    done = lib.take_turns(['none', 'prune'], options.pairs, prune.load)
    figures = {loader: lib.summarized(done, loader) for loader in ('none', 'prune')}
    beyond = figures['prune']['seconds'] - figures['none']['seconds']
    report = {'bench': 'changed --prune', 'keys': options.keys, 'deleted': prune.gone, 'machine': lib.environment(redis),
              'loaders': figures, 'seconds_beyond_the_run': beyond, 'ratio': lib.ratios(done, 'prune', 'none'),
              'disturbed_loads': lib.disturbed(done), 'loads': short(done),
              'targets': [lib.target('seconds that the prune takes beyond the run, medians', beyond, PRUNE_LIMIT)]}
    print_machine(f'{options.keys:,} small rows as hashes', report)
    print('\n' + lib.table([['a run with prune', *lib.LOAD_HEADING[:-3], 'time / none', 'min', 'max']]
                           + [[title, *lib.load_cells(figures[loader], report['ratio'] if loader == 'prune' else None)]
                              for title, loader in (('nothing to delete', 'none'), (f'{prune.gone:,} keys to delete', 'prune'))]))
    lib.print_disturbed(report['disturbed_loads'], len(done))
    lib.print_targets(report['targets'])
    return report


# ---- the command line -------------------------------------------------------------------------

def parse_arguments():
    parser = argparse.ArgumentParser(
        prog='bench/changed', usage='bench/changed [--pg PG_CONFIG] [options]', description=__doc__.split('\n\n', 1)[1],
        epilog='--pg PG_CONFIG: the PostgreSQL to measure. Nothing is installed into it.')
    parser.add_argument('--docs', type=lib.count, default=100_000, help='documents in their table (100000)')
    parser.add_argument('--pairs', type=lib.count, default=7, help='pairs of exports, full and by name, or with --prune (7)')
    parser.add_argument('--batch', type=lib.count, default=500, help='rows in a batch (500)')
    parser.add_argument('--only', type=lib.choice('pairs', 'shares', 'first', 'read'), default=['pairs', 'shares', 'first', 'read'],
                        help='which parts (pairs,shares,first,read); shares need the pairs')
    parser.add_argument('--scan', action='store_true', help='the functions that read Redis against a raw socket')
    parser.add_argument('--verify', action='store_true', help='the memory of redis_export_verify')
    parser.add_argument('--prune', action='store_true', help='what a prune takes beyond its run')
    parser.add_argument('--keys', type=lib.count, default=1_000_000, help='small rows, with --scan, --verify and --prune (1000000)')
    parser.add_argument('--rounds', type=lib.count, default=5, help='rounds of reading, also with --scan (5)')
    parser.add_argument('--window', type=lib.count, default=1000, help='commands that the raw socket has in flight (1000)')
    parser.add_argument('--work-mem', help='with --scan (4MB) and --verify (64MB)')
    parser.add_argument('--parse-only', action='store_true', help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.parse_only:
        return
    try:
        run = scans if options.scan else verification if options.verify else pruning if options.prune else benchmark
        report = run(options)
    except BenchError as error:
        sys.exit(f'bench/changed: {error}')
    print('\n' + json.dumps(lib.rounded(report)))


if __name__ == '__main__':
    main()
