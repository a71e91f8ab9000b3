"""chiabip158: Chia's build of Core's GCSFilter, with P = 20, M = 2^20 and a key of zeros that no caller can change.

Cases with any other key or parameters are skipped.
"""

from chiabip158 import PyBIP158

from protocol import Skip, serve

unhex = bytearray.fromhex  # the library refuses `bytes`


def only(key, p, m):
    if (key, p, m) != ("00" * 16, 20, 1 << 20):
        raise Skip("the key, P and M are fixed to zeros, 20 and 1048576")


def build(key, p, m, items):
    only(key, p, m)
    return {"encoded": bytes(PyBIP158([unhex(item) for item in items]).GetEncoded()).hex()}


def read(key, p, m, encoded):
    only(key, p, m)
    return PyBIP158(unhex(encoded))


def match(key, p, m, encoded, item):
    return {"match": read(key, p, m, encoded).Match(unhex(item))}


def match_any(key, p, m, encoded, items):
    return {"match": read(key, p, m, encoded).MatchAny([unhex(item) for item in items])}


# A RuntimeError carries the message of the exception of Core's decoder.
serve({"gcs.build": build, "gcs.match": match, "gcs.match_any": match_any}, refusals=(RuntimeError,))
