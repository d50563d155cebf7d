"""lib.py: what the benches share, and nothing about any one of them.

They run between throwaway servers that test/throwaway.sh has started: PostgreSQL is met through the environment of psql,
Redis at REDIS_PORT, and the working directory is the temporary folder that is removed at the end. Here are psql and
Redis as a bench needs them, a program run under measurement, a process sampled from /proc, loads that take turns, and small
arithmetic.
"""

import argparse
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
MB = 1024 * 1024
TICKS = os.sysconf('SC_CLK_TCK')
QUIET = 0.15        # of a core, taken by what is no part of the benchmark: more than that, and it measures noise
GROWTH_LIMIT = 64   # MB of private memory that a worker may take


class BenchError(Exception):
    """Something that makes the measurement worthless; its text is for the user."""


def say(text):
    """Progress, for a person who waits: kept out of standard output."""
    print(text, file=sys.stderr, flush=True)


def output_of(argv):
    """What a short command prints, or '' if it can't be run."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ''


# ---- PostgreSQL and Redis ---------------------------------------------------------------------

def psql(*more):
    return ['psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', *more]


def rows(*more):
    """Runs psql; its rows as lists of text."""
    done = subprocess.run(psql('-F', '\t', *more), capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError('PostgreSQL: ' + done.stderr.strip())
    return [line.split('\t') for line in done.stdout.splitlines()]


def value(sql):
    return rows('-c', sql)[0][0]


class Session:
    """A psql that stays connected: for questions that must not wait for a new connection."""

    END = '-- end of answer --'

    def __init__(self):
        self.errors = tempfile.TemporaryFile(dir='.')
        self.process = subprocess.Popen(psql(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)

    def ask(self, sql):
        self.process.stdin.write(f'{sql};\n\\echo {self.END}\n')
        self.process.stdin.flush()
        answer = []
        for line in self.process.stdout:
            if line.rstrip('\n') == self.END:
                return answer
            answer.append(line.rstrip('\n'))
        self.errors.seek(0)
        raise BenchError('lost a session: ' + self.errors.read().decode(errors='replace').strip())


class Redis:
    """The Redis at REDIS_PORT, and its process."""

    def __init__(self):
        self.port = int(os.environ['REDIS_PORT'])
        self.client = self.connect()
        server = self.client.info('server')
        self.pid, self.version = server['process_id'], server['redis_version']
        self.modules = {module['name']: module['ver'] for module in self.client.module_list()}

    def connect(self):
        import redis
        return redis.Redis(port=self.port, protocol=2, decode_responses=True)

    def empty(self):
        """Without a key and an index, and done with the work that clearing them leaves behind."""
        self.client.flushall()
        self.settle()

    def settle(self):
        """Waits until Redis and its modules' threads use next to no CPU."""
        deadline = time.monotonic() + 300
        used = 1
        while used > 0.02:
            if time.monotonic() > deadline:
                raise BenchError('Redis does not come to rest')
            before = process_cpu(self.pid)
            time.sleep(0.2)
            used = process_cpu(self.pid) - before

    def index(self, name):
        """FT.INFO as a dict, numbers as numbers."""
        answer = self.client.execute_command('FT.INFO', name)
        return {key: number_or_text(value) for key, value in zip(answer[::2], answer[1::2])}


def copied_rows(sql, settings=()):
    """The rows of a query, as lists of bytes; its columns should be texts, or types whose binary form is meant."""
    process = subprocess.Popen(psql(*(word for setting in settings for word in ('-c', f'SET {setting}')),
                                    '-c', f'COPY ({sql}) TO STDOUT (FORMAT binary)'), stdout=subprocess.PIPE)
    stream = process.stdout
    stream.read(19)     # signature, flags, no header extension
    while True:
        columns = int.from_bytes(stream.read(2), 'big', signed=True)
        if columns <= 0:
            break
        yield [stream.read(int.from_bytes(stream.read(4), 'big')) for _ in range(columns)]
    if process.wait() != 0 or columns == 0:
        raise BenchError(f'PostgreSQL could not copy the rows of {sql}')


def command(*words):
    """One command as Redis reads it."""
    return b'*%d\r\n' % len(words) + b''.join([b'$%d\r\n%s\r\n' % (len(word), word) for word in words])


def read_through(path):
    """Into the page cache."""
    with open(path, 'rb', buffering=0) as file:
        while file.read(8 * MB):
            pass


# ---- measuring processes ----------------------------------------------------------------------

def process_times(pid):
    """User and system seconds of a process so far."""
    with open(f'/proc/{pid}/stat') as file:
        fields = file.read().rpartition(')')[2].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def process_cpu(pid):
    """Both together."""
    return sum(process_times(pid))


def machine_cpu():
    """Seconds that all cores together have been busy so far, also with the work of other virtual machines."""
    with open('/proc/stat') as file:
        user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + stolen) / TICKS


def process_memory(pid):
    """Bytes: private memory (RssAnon, no shared buffers in it) and the peak of all that was resident (VmHWM)."""
    with open(f'/proc/{pid}/status') as file:
        text = file.read()
    found = dict(re.findall(r'^(RssAnon|VmHWM):\s+(\d+) kB', text, re.M))
    return int(found.get('RssAnon', 0)) * 1024, int(found.get('VmHWM', 0)) * 1024


class Sampler(threading.Thread):
    """Looks at one process until it is gone; find() gives its pid, or None as long as there is none."""

    def __init__(self, find, interval):
        super().__init__(daemon=True)
        self.find, self.interval = find, interval
        self.cpu = self.user = self.resident_peak = self.private_peak = 0
        self.private_start = None
        self.samples = 0
        self.stopping = threading.Event()

    def run(self):
        pid = self.find()
        while not pid and not self.stopping.wait(0.002):
            pid = self.find()
        while pid and not self.stopping.is_set():
            try:
                self.user, system = process_times(pid)
                self.cpu = self.user + system
                private, resident = process_memory(pid)
            except (OSError, IndexError):
                return
            if private:     # none is left once the process is on its way out
                if self.private_start is None:
                    self.private_start = private
                self.private_peak = max(self.private_peak, private)
                self.resident_peak = max(self.resident_peak, resident)
                self.samples += 1
            self.stopping.wait(self.interval)

    @property
    def private_growth(self):
        return self.private_peak - (self.private_start or 0)

    def finish(self):
        self.stopping.set()
        self.join(5)


class Run:
    """One program, started now; wait() gives its output, and its time and CPU are then known."""

    def __init__(self, argv, stdin=None, seconds=600):
        self.out, self.err = tempfile.TemporaryFile(dir='.'), tempfile.TemporaryFile(dir='.')
        self.argv, self.limit = argv, seconds
        self.started = time.perf_counter()
        self.process = subprocess.Popen(argv, stdin=stdin or subprocess.DEVNULL, stdout=self.out, stderr=self.err)

    def ended(self):
        """Has it? It is still to be waited for."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self):
        watchdog = threading.Timer(self.limit, self.process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            _, status, usage = os.wait4(self.process.pid, 0)
        finally:
            watchdog.cancel()
        self.seconds = time.perf_counter() - self.started
        self.cpu = usage.ru_utime + usage.ru_stime
        self.process.returncode = os.waitstatus_to_exitcode(status)
        output, errors = self._text(self.out), self._text(self.err)
        if self.process.returncode == -signal.SIGKILL and self.seconds >= self.limit:
            raise BenchError(f'{self.argv[0]} did not end within {self.limit:.0f} s')
        if self.process.returncode != 0:
            raise BenchError(f'{self.argv[0]} failed ({self.process.returncode}): {(errors or output).strip()}')
        return output

    @staticmethod
    def _text(file):
        with file:
            file.seek(0)
            return file.read().decode(errors='replace')


def compiled(name):
    """A C program of this folder, made in the working directory."""
    done = subprocess.run(['gcc', '-O2', '-pthread', '-o', name, os.path.join(HERE, f'{name}.c')], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f'{name}.c does not compile: {done.stderr}')
    return f'./{name}'


# ---- loads ------------------------------------------------------------------------------------

class Exports:
    """PostgreSQL with the extension in it, which knows Redis as the server `redis`; its exports are run under measurement."""

    def __init__(self, redis):
        rows('-c', 'CREATE EXTENSION redis_export')
        rows('-c', f"CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port '{redis.port}')")
        self.session = Session()

    def run(self, call, expected, seconds=600, interval=0.02, unchanged=0):
        """SELECT FROM a call such as redis_hash_export(...), or the CALL of an export with a name, which is to write `expected`
        rows and to find others that are unchanged: the finished run, and the sampler of its worker."""
        sampler = Sampler(self._worker, interval)
        sampler.start()
        figures = 'SELECT state, rows_written, rows_unchanged, rows_failed, extract(epoch FROM finished_at - started_at) FROM '
        if call.startswith('CALL '):
            statements = ['-c', call, '-c', figures + 'redis_export_progress ORDER BY job DESC LIMIT 1']
        else:
            statements = ['-c', figures + call]
        run = Run(psql(*statements), seconds=seconds)
        try:
            state, written, same, failed, job_seconds = run.wait().strip().split('\n')[-1].split('|')
        finally:
            sampler.finish()
        if (state, int(written), int(same), int(failed)) != ('done', expected, unchanged, 0):
            raise BenchError(f'the export ended {state}, {written} of {expected} rows written, {same} of {unchanged} unchanged, '
                             f'{failed} failed')
        if not sampler.samples:
            raise BenchError('the worker was gone before it was seen: take more rows')
        run.job_seconds = float(job_seconds)
        return run, sampler

    def await_no_worker(self):
        """Who looks for the next worker must not find the last one, which ends a little after its job."""
        deadline = time.monotonic() + 30
        while self._worker():
            if time.monotonic() > deadline:
                raise BenchError('the last worker does not end')
            time.sleep(0.002)

    def _worker(self):
        found = self.session.ask("SELECT pid FROM pg_stat_activity WHERE backend_type = 'redis_export worker'")
        return int(found[0]) if found else None


def sampled(run, interval=0.02):
    """Waits for a program: its output, and the sampler that has looked at it meanwhile."""
    sampler = Sampler(lambda: run.process.pid, interval)
    sampler.start()
    try:
        return run.wait(), sampler
    finally:
        sampler.finish()


def pipe(redis, path, replies, seconds=600, interval=0.02):
    """redis-cli --pipe with the commands in a file: the finished run, and its sampler."""
    with open(path, 'rb') as commands:
        run = Run(['redis-cli', '-p', str(redis.port), '--pipe'], commands, seconds)
    output, sampler = sampled(run, interval)
    if f'errors: 0, replies: {replies}' not in output:
        raise BenchError('redis-cli --pipe: ' + output)
    return run, sampler


class Loaded(NamedTuple):
    """What a loader tells of itself."""
    seconds: float
    cpu: float              # seconds, of what did the work
    sampler: Sampler
    beside: float = 0       # CPU seconds of the same process that are no part of the work, such as its imports


def measured(redis, rows, load, rest=None):
    """The figures of one load, which is done by load(), a Loaded; rest(), if there is one, waits for what Redis still has
    to do, which is part of the time."""
    received = redis.client.info('stats')['total_net_input_bytes']
    redis_cpu, all_cpu = process_cpu(redis.pid), machine_cpu()
    began = time.perf_counter()
    seconds, cpu, sampler, beside = load()
    if rest:
        resting = time.perf_counter()
        rest()
        seconds += time.perf_counter() - resting
    around = time.perf_counter() - began
    redis_cpu, all_cpu = process_cpu(redis.pid) - redis_cpu, machine_cpu() - all_cpu
    received = redis.client.info('stats')['total_net_input_bytes'] - received
    return {
        'seconds': seconds, 'rows_per_second': rows / seconds, 'cpu_seconds': cpu, 'cpu_us_per_row': cpu / rows * 1e6,
        'peak_memory_mb': sampler.resident_peak / MB, 'private_growth_mb': sampler.private_growth / MB,
        'redis_cpu_share': redis_cpu / seconds, 'elsewhere_cpu_share': (all_cpu - redis_cpu - cpu - beside) / around,
        'redis_bytes_received': received}


def take_turns(loaders, rounds, load):
    """Lets each loader load in each round, first once uncounted, and turns the order around in every second round. Returns
    what load(loader) returns, with the loader and the round."""
    say('warming up')
    for loader in loaders:
        load(loader)
    done = []
    for number in range(1, rounds + 1):
        for loader in loaders if number % 2 else loaders[::-1]:
            result = load(loader)
            done.append({'round': number, 'loader': loader, **result})
            say(f'round {number} of {rounds}: {loader:10} {result["seconds"]:7.2f} s {result["rows_per_second"]:9,.0f} rows/s, '
                f'elsewhere {result["elsewhere_cpu_share"]:4.0%} of a core')
    return done


def summarized(loads, loader):
    """Medians of one loader's loads, memory at its greatest."""
    mine = [load for load in loads if load['loader'] == loader]
    middle = {name: statistics.median(load[name] for load in mine) for name in mine[0] if name not in ('round', 'loader')}
    return {**middle, 'runs': len(mine),
            'seconds_min': min(load['seconds'] for load in mine), 'seconds_max': max(load['seconds'] for load in mine),
            'peak_memory_mb': max(load['peak_memory_mb'] for load in mine),
            'private_growth_mb': max(load['private_growth_mb'] for load in mine)}


def ratios(loads, loader, to='pipe'):
    """Each load's time by that of `to` in the same round: their spread, or None if there is none."""
    base = {load['round']: load['seconds'] for load in loads if load['loader'] == to}
    each = [load['seconds'] / base[load['round']] for load in loads if load['loader'] == loader and load['round'] in base]
    return {**spread(each), 'each': each} if each else None


def load_cells(figures, ratio):
    """A loader's cells in a table; LOAD_HEADING is above them."""
    return [figures['runs'], f'{figures["seconds"]:.2f}', f'{figures["rows_per_second"]:,.0f}', f'{figures["cpu_us_per_row"]:.2f}',
            f'{figures["private_growth_mb"]:.1f}', f'{figures["redis_cpu_share"]:.0%}', f'{figures["elsewhere_cpu_share"]:.0%}',
            *([f'{ratio[part]:.3f}' for part in ('median', 'min', 'max')] if ratio else ['-', '-', '-'])]


LOAD_HEADING = ['runs', 'seconds', 'rows/s', 'CPU us/row', 'growth MB', 'Redis CPU', 'elsewhere', 'time / pipe', 'min', 'max']


def disturbed(loads):
    return sum(load['elsewhere_cpu_share'] > QUIET for load in loads)


def print_disturbed(count, loads):
    if count:
        print(f'\nNOT QUIET: during {count} of {loads} loads something else took more than {QUIET:.0%} of a core. '
              'Measure again when it is over.')


# ---- figures ----------------------------------------------------------------------------------

def machine():
    cpu = ''
    with open('/proc/cpuinfo') as file:
        for line in file:
            if line.startswith('model name'):
                cpu = line.partition(':')[2].strip()
                break
    return {
        'cores': len(os.sched_getaffinity(0)),
        'cpu': cpu,
        'memory_gb': round(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1024 ** 3, 1),
        'kernel': platform.release(),
        'hiredis': os.environ.get('REDIS_EXPORT_HIREDIS'),    # which the extension was built with
        'redis_cli': (output_of(['redis-cli', '--version']).split() or [None, None])[1],
    }


def environment(redis):
    """The machine and all versions that matter."""
    import redis as redis_py
    return {**machine(), 'postgresql': value('SHOW server_version').split()[0], 'redis': redis.version,
            'redis_modules': redis.modules, 'redis_py': redis_py.__version__, 'redis_py_parser': redis_py_parser(),
            'python': platform.python_version()}


def redis_py_parser():
    try:
        import hiredis
        return f'hiredis {hiredis.__version__}'
    except ImportError:
        return 'python'


def number_or_text(value):
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value
        return number if number == number else None     # RediSearch says nan where it has nothing
    return value


def rounded(value):
    """The same structure with four digits after each point: more would be noise."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def spread(values):
    """Median, least and greatest."""
    return {'median': statistics.median(values), 'min': min(values), 'max': max(values), 'runs': len(values)}


def table(rows):
    """Lines of text, columns padded; the first row is the heading, the first column is left-aligned."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row):
        return '  '.join(cell.ljust(width) if i == 0 else cell.rjust(width)
                         for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
    return '\n'.join([line(rows[0]), '  '.join('-' * width for width in widths), *map(line, rows[1:])])


def target(name, value, limit=None, least=None):
    """A line that says PASS, OVER or UNDER."""
    over, under = limit is not None and value > limit, least is not None and value < least
    return {'target': name, 'value': round(value, 4), 'limit': limit and round(limit, 4), 'least': least,
            'verdict': 'OVER' if over else 'UNDER' if under else 'PASS'}


def print_targets(lines):
    print()
    for line in lines:
        bounds = (f'at most {line["limit"]:g}' if line['least'] is None else f'at least {line["least"]:g}' if line['limit'] is None
                  else f'{line["least"]:g} to {line["limit"]:g}')
        print(f'{line["verdict"]:5} {line["target"]}: {line["value"]:g} ({bounds})')


# ---- the command line -------------------------------------------------------------------------

def count(text):
    """For argparse: a number of things, of which there is at least one."""
    number = int(text.replace(',', '').replace('_', ''))
    if number < 1:
        raise ValueError
    return number


def choice(*names):
    """For argparse: some of these, with commas between them, in this order."""
    def chosen(text):
        asked = text.split(',')
        unknown = sorted(set(asked) - set(names))
        if unknown:
            raise argparse.ArgumentTypeError(f'there is no {", ".join(unknown)} in {",".join(names)}')
        return [name for name in names if name in asked]
    return chosen
