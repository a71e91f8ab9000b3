"""Membership filters: files of other programs, golden files, and laws."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import chainsieve
from chainsieve.filter import Bloom, Fuse8, Fuse16, SplitBlock

KEY = bytes(range(16))
GROWING = [SplitBlock, Bloom]
ALL = [SplitBlock, Bloom, Fuse8, Fuse16]


def filled(kind: Any, keys: Any) -> Any:
    """A filter of these keys."""
    return kind(keys) if kind in (Fuse8, Fuse16) else kind.from_keys(keys)


# A filter that parquet-mr wrote for the strings a0 to a9, from the tests of Arrow's Rust crate.
PARQUET_MR = bytes([0x15, 64, 0x1C, 0x1C, 0, 0, 0x1C, 0x1C, 0, 0, 0x1C, 0x1C, 0, 0, 0]) + bytes(
    [200, 1, 80, 20, 64, 68, 8, 109, 6, 37, 4, 67, 144, 80, 96, 32]
    + [8, 132, 43, 33, 0, 5, 99, 65, 2, 0, 224, 44, 64, 78, 96, 4]
)


def test_a_filter_of_parquet_mr() -> None:
    strings = [f"a{number}" for number in range(10)]
    theirs = SplitBlock.from_bytes(PARQUET_MR, "parquet")
    assert theirs.contains(strings).all()
    ours = SplitBlock(1)
    ours.update(strings)
    assert ours.num_blocks == 1
    assert ours.to_bytes("parquet") == PARQUET_MR
    assert 8 <= len(theirs) <= 12, "an estimate: the format does not store the number"


@pytest.mark.parametrize("rows", [10, 5000])
def test_filters_in_a_file_of_arrow_cpp(tmp_path: Path, rows: int) -> None:
    """pyarrow writes a file with filters, and the filter of each column is ours, bit for bit."""
    columns: dict[str, Any] = {
        "text": pa.array([f"a{number}" for number in range(rows)]),
        "wide": pa.array(range(rows), pa.int64()),
        "bytes": pa.array([number.to_bytes(20, "big") for number in range(rows)], pa.binary(20)),
    }
    path = tmp_path / "file.parquet"
    options = {name: {"ndv": rows, "fpp": 0.01} for name in columns}
    pq.write_table(pa.table(columns), path, bloom_filter_options=options)
    group = pq.ParquetFile(path).metadata.row_group(0)
    for place, column in enumerate(columns.values()):
        meta = group.column(place)
        start = meta.bloom_filter_offset
        theirs = path.read_bytes()[start : start + meta.bloom_filter_length]
        filter = SplitBlock.from_bytes(theirs, "parquet")
        assert filter.contains(column).all()
        # The same number of blocks, filled by our own hash and bits.
        same = SplitBlock.from_bytes(filter.to_bytes())
        same.clear()
        same.update(column)
        assert same.to_bytes("parquet") == theirs


def slow_split_block(keys: list[bytes], blocks: int) -> bytes:
    """The bitset as Parquet's BloomFilter.md describes it, without code of ours."""
    salts = [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31]
    words = [0] * (8 * blocks)
    for key in keys:
        hashed = xxhash.xxh64_intdigest(key, 0)
        block = (hashed >> 32) * blocks >> 32
        for word, salt in enumerate(salts):
            words[8 * block + word] |= 1 << ((hashed * salt & 0xFFFFFFFF) >> 27)
    return b"".join(word.to_bytes(4, "little") for word in words)


def test_split_blocks_as_the_specification_says() -> None:
    keys = [random.Random(number).randbytes(number % 40) for number in range(1000)]
    filter = SplitBlock.from_keys(keys, 0.001)
    bits = slow_split_block(keys, filter.num_blocks)
    assert filter.to_bytes("parquet").endswith(bits)
    assert filter.num_bits == 8 * len(bits)


def test_golden_files_of_the_rust_package(fixtures: Path) -> None:
    golden = fixtures / "filters"
    numbers = range(100)
    bloom = Bloom(100, 0.01, hash="siphash13", seed=KEY)
    bloom.update(numbers)
    assert bloom.to_bytes() == (golden / "bloom.chsieve").read_bytes()
    assert Bloom.load(golden / "bloom.chsieve") == bloom
    split = SplitBlock.load(golden / "split_block_256.chsieve")
    assert (split.num_blocks, split.hash, split.added) == (5, "xxh64", 100)
    assert split.contains(numbers).all()
    split.clear()
    split.update(numbers)
    assert split.to_bytes() == (golden / "split_block_256.chsieve").read_bytes()
    fuses: list[tuple[Any, str]] = [(Fuse8, "fuse8"), (Fuse16, "fuse16")]
    for kind, name in fuses:
        fuse = kind.load(golden / f"{name}.chsieve")
        assert fuse.contains(numbers).all() and len(fuse) == 100
        assert fuse.to_bytes() == (golden / f"{name}.chsieve").read_bytes()


@pytest.mark.parametrize(("kind", "name"), [(Fuse8, "fuse8"), (Fuse16, "fuse16")])
def test_filters_of_xor_singleheader(fixtures: Path, kind: Any, name: str) -> None:
    """What pyfusefilter wrote for the texts of 0 to 99."""
    bytes_of_others = (fixtures / "filters" / f"xor_singleheader_{name}.bin").read_bytes()
    fuse = kind.from_bytes(bytes_of_others, "xor_singleheader", hash="xxh64")
    texts = [str(number) for number in range(100)]
    assert fuse.contains(texts).all()
    assert fuse.contains([str(number) for number in range(100, 1100)]).sum() < 20
    # The C library sizes the buffer of 16-bit filters four bytes too large.
    assert bytes_of_others.startswith(fuse.to_bytes("xor_singleheader"))
    with pytest.raises(TypeError, match="pass hash and seed"):
        kind.from_bytes(bytes_of_others, "xor_singleheader")


def same_keys() -> list[tuple[str, list[Any], list[Any]]]:
    """For each list of keys, the same keys in other containers."""
    rng = random.Random(7)
    hashes = [rng.randbytes(32) for _ in range(300)] + [bytes(32), bytes(31) + b"\1", b"\1" + bytes(31)]
    texts = ["", "a", "0123456789ab", "0123456789abc", "é", "😀" * 5] + [str(rng.random()) for _ in range(200)]
    binary = [text.encode() for text in texts] + [rng.randbytes(rng.randrange(40)) for _ in range(100)]
    small = [rng.randrange(-100, 100) for _ in range(200)] + [-128, 127]
    large = [rng.randrange(-(2**63), 2**63) for _ in range(200)] + [-(2**63), 2**63 - 1, -1, 0]
    natural = [rng.randrange(2**64) for _ in range(200)] + [2**64 - 1, 2**63]
    joined = np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 32)
    cut = {"large": pa.large_binary(), "binary": pa.binary(), "view": pa.binary_view()}
    sets: list[tuple[str, list[Any], list[Any]]] = [
        ("hashes", hashes, [joined, joined.reshape(-1).view("V32"), np.asfortranarray(joined)]),
        ("hashes", hashes, [np.repeat(joined, 2, axis=0)[::2], pa.array(hashes, pa.binary(32))]),
        ("hashes", hashes[:200], [np.array(hashes[:200], "V32")]),
        ("hashes", hashes, [pa.array(hashes, kind) for kind in cut.values()]),
        ("hashes", hashes, [pa.array(hashes).dictionary_encode(), bytearrays(hashes), tuple(hashes)]),
        ("texts", texts, [pa.array(texts, kind) for kind in (pa.utf8(), pa.large_utf8(), pa.string_view())]),
        ("texts", texts, [np.array(texts), np.array(texts, object), iter(texts), pa.table({"a": texts})]),
        ("texts", texts, [[text.encode() for text in texts], pa.array(texts).dictionary_encode()]),
        ("binary", binary, [pa.array(binary, kind) for kind in cut.values()]),
        ("binary", binary, [np.array(binary, object), pa.chunked_array([binary[:50], [], binary[50:]])]),
        ("binary", binary, [pa.array([b"first", *binary, b"last"], kind)[1:-1] for kind in cut.values()]),
        ("natural", natural, [np.array(natural, np.uint64), pa.array(natural, pa.uint64())]),
    ]
    for width in ("int8", "int16", "int32", "int64"):
        sets.append((width, small, [np.array(small, width), pa.array(small, width)]))
        sets.append((width, small, [np.array([7, *small, 8], width)[1:-1], pa.array([7, *small], width)[1:]]))
        unsigned = [abs(number) for number in small]
        sets.append((f"u{width}", unsigned, [np.array(unsigned, f"u{width}"), pa.array(unsigned, f"u{width}")]))
    sets.append(("large", large, [np.array(large), pa.array(large), np.array(large)[::1], list(np.array(large))]))
    sets.append(("large", large, [[number.to_bytes(8, "little", signed=True) for number in large]]))
    return sets


def bytearrays(keys: list[bytes]) -> list[bytearray]:
    return [bytearray(key) for key in keys]


@pytest.mark.parametrize("kind", ALL)
def test_a_key_has_the_same_bytes_in_every_container(kind: Any) -> None:
    checked = 0
    for name, keys, containers in same_keys():
        expected = filled(kind, keys)
        assert expected.contains(keys).all(), name
        for container in containers:
            again = list(container) if hasattr(container, "__next__") else container
            assert filled(kind, again) == expected, f"{name} in {type(container)}"
            assert expected.contains(again).all(), f"{name} in {type(container)}"
            checked += 1
    assert checked > 50


def test_a_negative_number_is_its_two_s_complement() -> None:
    filter = Bloom.from_keys([-1])
    assert filter == Bloom.from_keys([2**64 - 1]) == Bloom.from_keys([b"\xff" * 8])
    assert -1 in filter and np.int8(-1) in filter and 255 not in filter


@pytest.mark.parametrize("kind", ALL)
def test_rates(kind: Any) -> None:
    """No key of the set is missed, and others are found at the rate that the filter names."""
    keys, others = np.arange(100_000), np.arange(100_000, 600_000)
    filter = filled(kind, keys)
    assert filter.contains(keys).all()
    found, expected = int(filter.contains(others).sum()), filter.expected_fpr * len(others)
    deviation = 5 * expected**0.5 + 5
    assert expected - deviation < found < expected + deviation
    assert filter.expected_fpr < 0.011
    assert 99_000 < len(filter) < 101_000
    assert filter.added == 100_000
    assert [key in filter for key in (0, 99_999, "x")] == [True, True, bool(filter.contains(["x"])[0])]


@pytest.mark.parametrize("kind", GROWING)
def test_the_interface_of_a_set(kind: Any) -> None:
    filter = kind(100, 0.0001)
    assert not filter and len(filter) == 0
    filter.add("hello")
    filter.add("hello")
    assert filter and len(filter) == 1 and filter.added == 2
    assert "hello" in filter and "world" not in filter
    other = filter.copy()
    other.update(["hello", "world", 5])
    assert filter != other and len(other) == 3 and 2.5 < other.approx_items < 3.5
    union = filter | other
    filter |= other
    filter |= filter
    assert filter.contains(["hello", "world", 5]).all() and union.contains(["world"])[0]
    filter.clear()
    assert not filter and filter == kind(100, 0.0001)
    with pytest.raises(chainsieve.InvalidInput):
        filter | kind(10_000)
    with pytest.raises(chainsieve.InvalidInput, match="hash"):
        kind(100, hash="xxh3", seed=8) | kind(100, hash="xxh3", seed=9)
    with pytest.raises(TypeError):
        filter | {"hello"}
    with pytest.raises(TypeError):
        hash(filter)


@pytest.mark.parametrize("kind", ALL)
def test_files(kind: Any, tmp_path: Path) -> None:
    filter = filled(kind, range(1000))
    formats = {SplitBlock: ["parquet"], Bloom: [], Fuse8: ["xor_singleheader"], Fuse16: ["xor_singleheader"]}
    for format in ["chainsieve", *formats[kind]]:
        path = tmp_path / format
        filter.save(path, format)
        assert path.read_bytes() == filter.to_bytes(format)
        more = {"hash": "xxh3"} if format == "xor_singleheader" else {}
        assert kind.load(str(path), format, **more).contains(range(1000)).all()
        assert kind.from_bytes(bytearray(path.read_bytes()), format, **more).contains([5])[0]
    with pytest.raises(chainsieve.InvalidInput, match="format"):
        filter.to_bytes("other")
    with pytest.raises(FileNotFoundError):
        kind.load(tmp_path / "none")


WRONG: list[tuple[Any, type[Exception]]] = [
    ("text", TypeError),
    (b"bytes", TypeError),
    (1, TypeError),
    (None, TypeError),
    (7.5, TypeError),
    ([1.5], TypeError),
    ([True], TypeError),
    ([None], TypeError),
    (["\ud800"], UnicodeEncodeError),
    ([2**64], OverflowError),
    ([-(2**63) - 1], OverflowError),
    (np.array([1.5]), TypeError),
    (np.array([True]), TypeError),
    (np.zeros((2, 2), np.int64), TypeError),
    (np.zeros((2, 2, 2), np.uint8), TypeError),
    (np.zeros(3, ">i8"), TypeError),
    (np.zeros(3, "M8[s]"), TypeError),
    (np.array(5), TypeError),
    (np.array([b"a", b"bc"]), chainsieve.InvalidInput),
    (pa.array([1, None]), chainsieve.InvalidInput),
    (pa.array(["a", None]), chainsieve.InvalidInput),
    (pa.array([1.5]), TypeError),
    (pa.array([True]), TypeError),
    (pa.array([[1]]), TypeError),
    (pa.table({"a": [1], "b": [2]}), TypeError),
    (pa.array(["a", None]).dictionary_encode(), chainsieve.InvalidInput),
]


@pytest.mark.parametrize(("keys", "error"), WRONG, ids=lambda value: repr(value)[:30].replace("\n", " "))
def test_what_is_no_key_is_refused(keys: Any, error: type[Exception]) -> None:
    filter = Bloom(10)
    with pytest.raises(error):
        filter.update(keys)
    with pytest.raises(error):
        filter.contains(keys)
    assert not filter


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bloom(10, 2.0),
        lambda: Bloom(10, float("nan")),
        lambda: Bloom(2**63),
        lambda: SplitBlock(2**60),
        lambda: SplitBlock(10, 1e-9),
        lambda: Bloom(10, hash="md5"),  # type: ignore[arg-type]
        lambda: Bloom(10, hash="murmur3", seed=2**32),
        lambda: Bloom(10, hash="fnv1a", seed=1),
        lambda: Bloom(10, seed=bytes(17)),
        lambda: SplitBlock(100, hash="xxh3").to_bytes("parquet"),
    ],
)
def test_wrong_parameters(make: Callable[[], Any]) -> None:
    with pytest.raises(chainsieve.InvalidInput) as error:
        make()
    assert isinstance(error.value, chainsieve.Error) and isinstance(error.value, ValueError)


def test_empty_containers() -> None:
    filter = Bloom.from_keys([])
    empties: list[Any] = [[], np.array([], np.int64), np.zeros((0, 32), np.uint8), pa.array([], pa.binary())]
    for empty in empties:
        filter.update(empty)
        assert len(filter.contains(empty)) == 0
    assert not filter
    # Keys of no bytes are keys.
    assert len(filter.contains(np.zeros((3, 0), np.uint8))) == 3


def test_answers_are_arrays_that_can_be_written() -> None:
    answers = Bloom.from_keys([1]).contains([1, 2])
    assert answers.dtype == np.bool_ and answers.tolist() == [True, False]
    answers[1] = True


def test_without_numpy() -> None:
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from chainsieve.filter import Bloom\n"
        "assert Bloom.from_keys([1]).contains([1, 2]) == [True, False]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "filter"
    old = SplitBlock.from_keys(range(10))
    old.save(path)
    program = f"""
import resource
from chainsieve.filter import SplitBlock
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
SplitBlock.from_keys(range(10_000)).save({str(path)!r})
"""
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "OSError" in failed.stderr, failed.stderr
    assert SplitBlock.load(path) == old
    assert [file.name for file in tmp_path.iterdir()] == ["filter"]


def test_bulk_work_leaves_the_interpreter_to_others() -> None:
    keys = np.arange(20_000_000)
    filter = SplitBlock.from_keys(keys[:1_000_000])
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    filter.contains(keys)
    took, ticked = time.perf_counter() - start, ticks
    done.set()
    ticker.join()
    # If the call held the interpreter, there would be a tick or two.
    assert ticked > 5, f"{ticked} ticks in {took} s"
