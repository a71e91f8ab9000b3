"""Bytes of strangers give exceptions of the package, never a panic, and never a crash."""

import ctypes
import functools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import chainsieve
from chainsieve import btc, eth
from chainsieve.filter import Bloom, Fuse8, Fuse16, SplitBlock

ROUNDS = 400


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The bytes with a few changes, cut off, or with trailing bytes."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(5)
        if kind == 0 and changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        elif kind == 1 and changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del changed[rng.randrange(len(changed) + 1) :]
        elif kind == 3:
            changed += rng.randbytes(rng.randrange(1, 9))
        elif kind == 4 and changed:
            start = rng.randrange(len(changed))
            changed[start : start + 8] = b"\xff" * len(changed[start : start + 8])
    return bytes(changed)


def parsers(fixtures: Path) -> Iterator[tuple[str, Callable[[bytes], Any], bytes]]:
    """Every function that reads bytes, and bytes that it accepts."""
    filters = fixtures / "filters"
    split = (filters / "split_block_256.chsieve").read_bytes()
    yield "SplitBlock", SplitBlock.from_bytes, split
    same = SplitBlock.from_keys(range(100))
    yield "Parquet", lambda data: SplitBlock.from_bytes(data, "parquet"), same.to_bytes("parquet")
    yield "Bloom", Bloom.from_bytes, (filters / "bloom.chsieve").read_bytes()
    fuses: list[tuple[str, Any]] = [("fuse8", Fuse8), ("fuse16", Fuse16)]
    for name, kind in fuses:
        yield name, kind.from_bytes, (filters / f"{name}.chsieve").read_bytes()
        xor = (filters / f"xor_singleheader_{name}.bin").read_bytes()
        yield name, functools.partial(kind.from_bytes, format="xor_singleheader", hash="xxh64"), xor
    bip37 = json.loads((fixtures / "bitcoin/bip37_vectors.json").read_text())
    payload = bytes.fromhex(bip37["filterload"][0]["payload"])
    yield "filterload", btc.BloomFilter.from_bytes, payload
    funding = bytes.fromhex(bip37["transactions"]["funding"]["hex"])
    yield "transaction", lambda data: btc.BloomFilter.from_bytes(payload).matches(data), funding
    merkle = next(step["payload"] for case in bip37["merkle_blocks"] for step in case["steps"] if "payload" in step)
    yield "merkleblock", btc.MerkleBlock.from_bytes, bytes.fromhex(merkle)
    vector = json.loads((fixtures / "bitcoin/bip158_vectors.json").read_text())[3]
    block, spent = bytes.fromhex(vector["block"]), [bytes.fromhex(script) for script in vector["prevout_scripts"]]
    yield "block", lambda data: btc.BloomFilter.from_bytes(payload).matches_in_block(data), block
    yield "raw block", lambda data: btc.BlockFilter.build(data, spent), block
    content = bytes.fromhex(vector["basic_filter"])
    yield "cfilter", lambda data: btc.BlockFilter(vector["hash"], data).matching([b"a", b"b"]), content
    yield "cfilters", lambda data: btc.match_any([bytes(32)], [data], [b"a", b"b"]), content
    query = b'{"address":["0xc02aaa39b223fe8d0a0e5c4f27ead9083c756cc2"],"fromBlock":"0x1","topics":[null]}'
    yield "query", lambda data: eth.LogQuery(data.decode("latin-1")), query
    yield "log", lambda data: eth.LogQuery({}).matches(data.decode("latin-1")), log_text(fixtures)
    yield "certificate", certify, b'{"format":"chainsieve-log-certificate","version":1,"profile":"ethereum"}'


def log_text(fixtures: Path) -> bytes:
    logs = json.loads((fixtures / "ethereum/logs/weth_withdrawals_17686111-17686112.json").read_text())
    return json.dumps(logs[0]).encode()


def certify(data: bytes) -> Any:
    """Reads a certificate, whose valid example here is too short to be whole."""
    try:
        return eth.verify_certificate(data.decode("latin-1"), {"fromBlock": 1, "toBlock": 1}, bytes(32))
    except chainsieve.InvalidInput:
        if data.endswith(b'"ethereum"}') and data.startswith(b'{"format":"chain'):
            return None
        raise


def use(value: Any) -> None:
    """Calls what a program calls on a value that a stranger has made."""
    if isinstance(value, (SplitBlock, Bloom, Fuse8, Fuse16)):
        value.contains([1, "a", b""])
        len(value), repr(value), value.fill, value.expected_fpr, value.to_bytes()
    if isinstance(value, btc.BloomFilter):
        value.insert(b"a")
        value.contains([b"a"]), repr(value), value.expected_fpr, value.to_bytes(), value.update
    if isinstance(value, btc.MerkleBlock):
        repr(value), value.header
        assert btc.MerkleBlock.from_bytes(value.to_bytes()) == value
        for network in (None, "bitcoin"):
            try:
                value.verify(network)
            except chainsieve.InvalidInput as error:
                assert str(error)


def test_damaged_bytes_are_refused(fixtures: Path) -> None:
    rng = random.Random(1)
    refused = accepted = 0
    for name, parse, data in parsers(fixtures):
        use(parse(data))
        short = [data[:end] for end in range(min(len(data), 200))]
        random_bytes = [rng.randbytes(rng.randrange(200)) for _ in range(50)]
        for hostile in [*short, *random_bytes, *(damaged(rng, data) for _ in range(ROUNDS))]:
            try:
                use(parse(hostile))
                accepted += 1
            except chainsieve.InvalidInput as error:
                assert str(error), name
                refused += 1
    # Without a checksum, some damages are other valid bytes.
    assert refused > 4000 and accepted > 100


class Schema(ctypes.Structure):
    """``ArrowSchema`` of the C data interface."""


class Array(ctypes.Structure):
    """``ArrowArray`` of the C data interface."""


SCHEMA_RELEASE = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
ARRAY_RELEASE = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", SCHEMA_RELEASE),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", ARRAY_RELEASE),
    ("private_data", ctypes.c_void_p),
]


class Exported:
    """An array of the C data interface, made by hand, with whatever contradictions it is given."""

    def __init__(self, format: bytes | None, buffers: list[bytes | None], length: int, **fields: int) -> None:
        self.released = [0, 0]
        self.kept = [buffer and ctypes.create_string_buffer(buffer, max(len(buffer), 1)) for buffer in buffers]
        pointers = [ctypes.cast(kept, ctypes.c_void_p) if kept else None for kept in self.kept]
        self.pointers = (ctypes.c_void_p * max(len(buffers), 1))(*pointers)

        def release_schema(pointer: Any) -> None:
            self.released[0] += 1
            ctypes.memset(ctypes.byref(pointer.contents, Schema.release.offset), 0, 8)

        def release_array(pointer: Any) -> None:
            self.released[1] += 1
            ctypes.memset(ctypes.byref(pointer.contents, Array.release.offset), 0, 8)

        self.schema = Schema(format=format, name=b"", release=SCHEMA_RELEASE(release_schema))
        whole: dict[str, Any] = {"n_buffers": len(buffers), "length": length, **fields}
        self.array = Array(buffers=self.pointers, release=ARRAY_RELEASE(release_array), **whole)

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.schema_capsule = new(ctypes.addressof(self.schema), b"arrow_schema", None)
        self.array_capsule = new(ctypes.addressof(self.array), b"arrow_array", None)
        return self.schema_capsule, self.array_capsule


def offsets(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)


def view(length: int, buffer: int, start: int) -> bytes:
    return offsets(length) + b"abcd" + offsets(buffer, start)


def test_an_array_made_by_hand_is_read_and_released_once() -> None:
    exported = Exported(b"z", [None, offsets(0, 1, 3), b"abc"], 2)
    filter = Bloom.from_keys(exported)
    assert filter == Bloom.from_keys([b"a", b"bc"])
    assert exported.released == [1, 1]
    # The capsule now holds a released array.
    with pytest.raises(chainsieve.InvalidInput, match="already used"):
        filter.contains(exported)
    assert exported.released == [1, 1]
    views = Exported(b"vz", [None, view(14, 0, 1), b"_" + b"k" * 14, (15).to_bytes(8, "little")], 1)
    assert filter.from_keys(views) == Bloom.from_keys([b"k" * 14])


MALFORMED: list[tuple[bytes | None, list[bytes | None], int, dict[str, int]]] = [
    (b"z", [None, offsets(0, 3, 1), b"abc"], 2, {}),
    (b"z", [None, offsets(-1, 1, 3), b"abc"], 2, {}),
    (b"Z", [None, (5).to_bytes(8, "little") + (2).to_bytes(8, "little"), b"abc"], 1, {}),
    (b"z", [None, None, b"abc"], 2, {}),
    (b"z", [None, offsets(0, 1, 3), None], 2, {}),
    (b"z", [None], 2, {}),
    (b"z", [], 2, {}),
    (b"z", [None, offsets(0, 1), b"abc"], -1, {}),
    (b"z", [None, offsets(0, 1), b"abc"], 1, {"offset": -5}),
    (b"z", [None, offsets(0, 1), b"abc"], 2**62, {}),
    (b"w:32", [None, bytes(32)], 2**55, {"offset": 2**55}),
    (b"l", [None, None], 3, {}),
    (b"l", [None, bytes(8)], 1, {"n_buffers": -1}),
    (b"l", [None, bytes(8)], 1, {"n_buffers": 2**40}),
    (b"l", [b"\0", bytes(8)], 1, {"null_count": 1}),
    (b"l", [b"\0", bytes(8)], 1, {"null_count": -1}),
    (b"vz", [None, view(14, 0, 2), b"_" + b"k" * 14, (15).to_bytes(8, "little")], 1, {}),
    (b"vz", [None, view(14, 1, 0), b"_" + b"k" * 14, (15).to_bytes(8, "little")], 1, {}),
    (b"vz", [None, view(-1, 0, 0), b"_" + b"k" * 14, (15).to_bytes(8, "little")], 1, {}),
    (b"vz", [None, view(14, 0, -1), b"_" + b"k" * 14, (15).to_bytes(8, "little")], 1, {}),
    (b"vz", [None, view(14, 0, 0), b"_" + b"k" * 14, (-1).to_bytes(8, "little", signed=True)], 1, {}),
    (b"vz", [None, view(14, 0, 0)], 1, {}),
    (b"\xff\xfe", [None, bytes(8)], 1, {}),
    (None, [None, bytes(8)], 1, {}),
]


@pytest.mark.parametrize("place", range(len(MALFORMED)))
def test_malformed_arrays_are_refused(place: int) -> None:
    format, buffers, length, fields = MALFORMED[place]
    exported = Exported(format, buffers, length, **fields)
    with pytest.raises(chainsieve.InvalidInput):
        Bloom(10).update(exported)
    assert exported.released == [1, 1]


@pytest.mark.parametrize("format", [b"g", b"w:", b"w:-1", b"w:99999999999999", b"+s", b"+l", b"tsu:", b"", b"b"])
def test_formats_without_keys_are_refused(format: bytes) -> None:
    with pytest.raises(TypeError):
        Bloom(10).update(Exported(format, [None, bytes(8)], 1))


@pytest.mark.parametrize("answer", [None, (), (1, 2), "ab"])
def test_objects_that_only_look_like_arrow_are_refused(answer: Any) -> None:
    class Pretender:
        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            return answer

    with pytest.raises((TypeError, IndexError)):
        Bloom(10).update(Pretender())
