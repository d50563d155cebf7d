"""vector_clients.py PORT WHAT ...: the Python programs that bench/vector compares with, RedisVL and plain redis-py.

  load redis-py|redisvl BATCH       all documents, in pipelines of BATCH
  search CONCURRENCY EACH K         RedisVL: as many threads, each of which does EACH searches over a connection of its own
  results SEARCHES K                RedisVL: what the searches find, for comparison
  create                            RedisVL: the index

Vectors are read, modules imported and documents put together before the clock starts. Prints one line of JSON.
"""

import json
import sys
import threading
import time

import redis
from redisvl.index import SearchIndex
from redisvl.query import VectorQuery
from redisvl.query.filter import Tag

import lib
import vector_data


def open_index(port, dims=None):
    dims = dims or vector_data.vectors('docs').shape[1]
    return SearchIndex.from_dict(vector_data.schema(dims), redis_url=f'redis://127.0.0.1:{port}')


def create(port):
    open_index(port).create()
    return {}


# ---- loading ----------------------------------------------------------------------------------

def load_redisvl(port, objects, batch):
    index = open_index(port)
    index.exists()      # connects, and asks what Redis it is
    started, cpu = time.perf_counter(), time.process_time()
    index.load(objects, id_field='id', batch_size=batch)
    return started, cpu


def load_redis_py(port, objects, batch):
    client = redis.Redis(host='127.0.0.1', port=port)
    client.ping()
    started, cpu = time.perf_counter(), time.process_time()
    pipeline = client.pipeline(transaction=False)
    for item in objects:
        pipeline.hset(f'{vector_data.PREFIX}:{item["id"]}', mapping=item)
        if len(pipeline) >= batch:
            pipeline.execute()
    if len(pipeline):
        pipeline.execute()
    return started, cpu


def load(port, loader, batch):
    loader = {'redis-py': load_redis_py, 'redisvl': load_redisvl}[loader]
    started, cpu = loader(port, vector_data.objects(), int(batch))
    return {'seconds': time.perf_counter() - started, 'cpu_seconds': time.process_time() - cpu}


# ---- searching --------------------------------------------------------------------------------

def query(number, vector, k):
    wanted = vector_data.searched_tag(number)
    return VectorQuery(vector=vector, vector_field_name='embedding', return_fields=['title', 'price'], num_results=k,
                       filter_expression=Tag('category') == wanted if wanted else None)


class Searcher(threading.Thread):
    """Does the searches from `first` on, once all are at the gate; each one's milliseconds are then in self.latencies."""

    def __init__(self, index, vectors, first, each, k, gate):
        super().__init__(daemon=True)
        self.index, self.vectors, self.numbers, self.k, self.gate = index, vectors, range(first, first + each), k, gate
        self.latencies, self.error = [], None

    def run(self):
        try:
            self.search(self.numbers[0])
            self.gate.wait()
            for number in self.numbers:
                started = time.perf_counter()
                found = self.search(number)
                self.latencies.append((time.perf_counter() - started) * 1000)
                if len(found) != self.k:
                    raise lib.BenchError(f'RedisVL: {len(found)} documents found by search {number}')
        except Exception as error:      # any, for the main thread
            self.error = error
            self.gate.abort()

    def search(self, number):
        return self.index.query(query(number, self.vectors[number], self.k))


def search(port, concurrency, each, k):
    """The searches are spread over the threads: 0 to EACH - 1 are the first's, and so on."""
    index, vectors = open_index(port), vector_data.vectors('searches')
    redis_pid = redis.Redis(port=port).info('server')['process_id']
    # The last to come opens the gate, and takes the time.
    begin = {}
    gate = threading.Barrier(int(concurrency), lambda: begin.update(time=time.perf_counter(), **busy(redis_pid)))
    searchers = [Searcher(index, vectors, first * int(each), int(each), int(k), gate) for first in range(int(concurrency))]
    for searcher in searchers:
        searcher.start()
    for searcher in searchers:
        searcher.join()
    seconds = time.perf_counter() - begin['time'] if begin else 0
    end = busy(redis_pid)
    errors = [searcher.error for searcher in searchers if searcher.error]
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return {'seconds': seconds, 'latencies_ms': [latency for searcher in searchers for latency in searcher.latencies],
            'redis_cpu_seconds': end['redis'] - begin['redis'], 'machine_cpu_seconds': end['machine'] - begin['machine']}


def busy(redis_pid):
    return {'redis': lib.process_cpu(redis_pid), 'machine': lib.machine_cpu()}


def results(port, searches, k):
    index, vectors = open_index(port), vector_data.vectors('searches')
    found, texts = [], []
    for number in range(int(searches)):
        asked = query(number, vectors[number], int(k))
        texts.append(asked.query_string())
        found.append([[item['id'], float(item['vector_distance'])] for item in index.query(asked)])
    return {'found': found, 'texts': texts}


if __name__ == '__main__':
    what = {'load': load, 'search': search, 'results': results, 'create': create}[sys.argv[2]]
    print(json.dumps(what(int(sys.argv[1]), *sys.argv[3:])))
