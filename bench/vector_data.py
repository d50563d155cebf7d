"""vector_data.py: the documents and searches of bench/vector, the same each time for all clients, and the index over them.

A document has a text, a tag, a number and a vector; vectors are uniform random directions, made from a fixed seed and
normalized to length 1. Every second search is for the nearest vectors among all, the others are for those with a given tag.
make() leaves the vectors in files of the working directory, from where vectors() takes them.
"""

import numpy

INDEX = 'vectors'     # no colon in it: pgbench takes a word after one for a variable
PREFIX = 'doc'
TAGS = 10
SEED = 20260703
WORDS = 'amber birch cedar delta ember fjord grove heron inlet juniper kelp larch maple north ocean pine'.split()


def make(docs, searches, dims):
    random = numpy.random.default_rng(SEED)
    for name, count in (('docs', docs), ('searches', searches)):
        uniform = random.uniform(-1, 1, (count, dims)).astype(numpy.float32)
        numpy.save(f'{name}.npy', uniform / numpy.linalg.norm(uniform, axis=1, keepdims=True))


def vectors(name):
    """An array of 32-bit floats, a row for each of 'docs' or 'searches'."""
    return numpy.load(f'{name}.npy')


def tag(number):
    """Of the document with this number."""
    return f'tag{number % TAGS}'


def searched_tag(number):
    """What the search with this number is restricted to, or None."""
    return tag(number // 2) if number % 2 else None


def document(number):
    """Its columns but for the vector, in their order."""
    title = ' '.join(WORDS[(number * factor) % len(WORDS)] for factor in (1, 3, 5, 7))
    return {'id': number, 'title': f'{title} {number}', 'category': tag(number), 'price': number * 37 % 1000}


def objects():
    """All documents, as a Python program would have them."""
    blob = {number: vector.tobytes() for number, vector in enumerate(vectors('docs').astype('<f4'))}
    return [{**document(number), 'embedding': blob[number]} for number in blob]


def search_text(number, k):
    """The search as FT.SEARCH wants it; so does RedisVL write it."""
    wanted = searched_tag(number)
    return f'{f"(@category:{{{wanted}}})" if wanted else "*"}=>[KNN {k} @embedding $vector AS vector_distance]'


def create_words(dims):
    """The index for FT.CREATE, with the settings that RedisVL has for an HNSW index."""
    return ['FT.CREATE', INDEX, 'ON', 'HASH', 'PREFIX', '1', f'{PREFIX}:', 'SCHEMA',
            'title', 'TEXT', 'category', 'TAG', 'price', 'NUMERIC',
            'embedding', 'VECTOR', 'HNSW', '14', 'TYPE', 'FLOAT32', 'DIM', str(dims), 'DISTANCE_METRIC', 'COSINE',
            'M', '16', 'EF_CONSTRUCTION', '200', 'EF_RUNTIME', '10', 'EPSILON', '0.01']


def schema(dims):
    """The same index for RedisVL."""
    return {'index': {'name': INDEX, 'prefix': PREFIX, 'storage_type': 'hash'},
            'fields': [{'name': 'title', 'type': 'text'}, {'name': 'category', 'type': 'tag'},
                       {'name': 'price', 'type': 'numeric'},
                       {'name': 'embedding', 'type': 'vector',
                        'attrs': {'dims': dims, 'algorithm': 'hnsw', 'distance_metric': 'cosine', 'datatype': 'float32'}}]}


def nearest(k):
    """For each search the numbers of its true nearest documents, in their order, and all distances, from comparing all."""
    docs, searches = vectors('docs'), vectors('searches')
    tags = numpy.arange(len(docs)) % TAGS
    found = []
    for number, distances in enumerate(1 - searches.astype(numpy.float64) @ docs.T.astype(numpy.float64)):
        wanted = searched_tag(number)
        allowed = numpy.flatnonzero(tags == int(wanted.removeprefix('tag'))) if wanted else numpy.arange(len(docs))
        found.append((allowed[numpy.argsort(distances[allowed], kind='stable')[:k]].tolist(), distances))
    return found
