"""lib.py: what the benches share, and nothing about any one of them.

They run between throwaway servers that test/throwaway.sh has started: PostgreSQL is met through the environment of psql,
Redis at REDIS_PORT, and the working directory is the temporary folder that is removed at the end. Here are psql and
Redis as a bench needs them, a program run under measurement, a process sampled from /proc, and small arithmetic.
"""

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

MB = 1024 * 1024
TICKS = os.sysconf('SC_CLK_TCK')


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
        self.process = subprocess.Popen(psql(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)

    def ask(self, sql):
        self.process.stdin.write(f'{sql};\n\\echo {self.END}\n')
        self.process.stdin.flush()
        answer = []
        for line in self.process.stdout:
            if line.rstrip('\n') == self.END:
                return answer
            answer.append(line.rstrip('\n'))
        raise BenchError('lost the watching session')


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


# ---- measuring processes ----------------------------------------------------------------------

def process_cpu(pid):
    """User and system seconds of a process so far."""
    with open(f'/proc/{pid}/stat') as file:
        fields = file.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


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
        self.cpu = self.resident_peak = self.private_peak = 0
        self.private_start = None
        self.samples = 0
        self.stopping = threading.Event()

    def run(self):
        pid = self.find()
        while not pid and not self.stopping.wait(0.002):
            pid = self.find()
        while pid and not self.stopping.is_set():
            try:
                self.cpu = process_cpu(pid)
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
        'hiredis': output_of(['pkg-config', '--modversion', 'hiredis']) or None,
        'redis_cli': (output_of(['redis-cli', '--version']).split() or [None, None])[1],
    }


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
