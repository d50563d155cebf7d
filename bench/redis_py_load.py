"""redis_py_load.py PORT FILE BATCH: the loader that a careful person writes in Python.

Reads lines of `id TAB document` and sends each as a JSON.SET in pipelines of BATCH commands without MULTI. Its rows come
from a file, so it pays nothing for PostgreSQL; its time and CPU start after Python and redis-py are loaded. Prints both.
"""

import json
import sys
import time

import redis


def load(port, path, batch):
    client = redis.Redis(host='127.0.0.1', port=port)
    client.ping()
    started, cpu = time.perf_counter(), time.process_time()
    pipeline = client.pipeline(transaction=False)
    with open(path, 'rb') as rows:
        for row in rows:
            number, document = row.rstrip(b'\n').split(b'\t', 1)
            pipeline.execute_command('JSON.SET', b'appointment:' + number, '$', document)
            if len(pipeline) >= batch:
                pipeline.execute()
    if len(pipeline):
        pipeline.execute()
    return {'seconds': time.perf_counter() - started, 'cpu_seconds': time.process_time() - cpu}


if __name__ == '__main__':
    print(json.dumps(load(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
