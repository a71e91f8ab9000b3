"""Times bulk queries. Answers are compared before anything is timed.

Each line is the best of several runs. ``ratio`` lines compare with rbloom, if it is installed.
"""

import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from chainsieve.eth import LogQuery
from chainsieve.filter import Bloom, Fuse8, SplitBlock

KEYS = 1_000_000
ROUNDS = 5
FPR = 0.01


def best(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The least number of seconds that one of several runs takes."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def figure(name: str, seconds: float, count: int) -> float:
    nanoseconds = seconds / count * 1e9
    print(f"figure: {name} = {nanoseconds:.2f} ns")
    return nanoseconds


def ratio(name: str, ours: float, theirs: float) -> None:
    print(f"ratio: {name} = {theirs / ours:.1f}x (ours {ours:.2f} ns, rbloom {theirs:.2f} ns)")


def membership() -> None:
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, 256, (2 * KEYS, 32), np.uint8)
    inside, outside = hashes[:KEYS], hashes[KEYS:]
    lists = [row.tobytes() for row in hashes]
    columns: dict[str, Any] = {
        "uint8[n, 32]": hashes,
        "Arrow binary": pa.array(lists),
        "list of bytes": lists,
    }
    times: dict[str, float] = {}
    for kind in (SplitBlock, Bloom, Fuse8):
        name = kind.__name__
        filter = Fuse8(inside) if kind is Fuse8 else kind.from_keys(inside, FPR)
        expected = filter.contains(hashes)
        assert expected[:KEYS].all() and expected[KEYS:].mean() < 2 * FPR
        for column, keys in columns.items():
            assert np.array_equal(filter.contains(keys), expected)
            times[f"{name}, {column}"] = figure(
                f"{name}.contains, {column}", best(lambda: filter.contains(keys)), 2 * KEYS
            )
        numbers = np.arange(2 * KEYS)
        figure(f"{name}.contains, int64", best(lambda: filter.contains(numbers)), 2 * KEYS)
        if not isinstance(filter, Fuse8):
            figure(f"{name}.update, uint8[n, 32]", best(lambda: filter.update(inside)), KEYS)
    try:
        rbloom = importlib.import_module("rbloom")
    except ImportError:
        print("rbloom is not installed: no comparison")
        return
    theirs = rbloom.Bloom(KEYS, FPR)
    theirs.update(lists[:KEYS])
    answers = [key in theirs for key in lists]
    assert all(answers[:KEYS]) and sum(answers[KEYS:]) < 2 * FPR * KEYS
    # A bytes object keeps its hash, so a second loop over the same objects is faster than the first.
    asks: dict[str, float] = {"known": best(lambda: [key in theirs for key in lists], 3)}
    fresh = [[row.tobytes() for row in hashes] for _ in range(3)]
    asks["new"] = best(lambda: [key in theirs for key in fresh.pop()], 3)
    for name, seconds in asks.items():
        loop = figure(f"rbloom, a loop over a list of bytes, {name} to Python", seconds, 2 * KEYS)
        for column in ("SplitBlock, uint8[n, 32]", "Bloom, uint8[n, 32]", "SplitBlock, list of bytes"):
            ratio(f"{column}, {name} to Python", times[column], loop)
    many(rbloom)


def many(rbloom: Any) -> None:
    """Ten million integers, as in rbloom's own benchmark: the filter is larger than the caches."""
    count = 10 * KEYS
    rng = np.random.default_rng(3)
    inside = rng.integers(0, 2**62, count)
    asked = np.concatenate([inside[:KEYS], rng.integers(0, 2**62, KEYS)])
    theirs = rbloom.Bloom(count, FPR)
    numbers: list[int] = inside.tolist()
    theirs.update(numbers)
    listed: list[int] = asked.tolist()
    answers = [number in theirs for number in listed]
    assert all(answers[:KEYS]) and sum(answers[KEYS:]) < 2 * FPR * KEYS
    loop = figure(
        "rbloom, a loop over integers, 10,000,000 keys",
        best(lambda: [number in theirs for number in listed], 3),
        2 * KEYS,
    )
    for kind in (SplitBlock, Bloom):
        filter = kind.from_keys(inside, FPR)
        found = filter.contains(asked)
        assert found[:KEYS].all() and found[KEYS:].mean() < 2 * FPR
        name = f"{kind.__name__}, int64, 10,000,000 keys"
        ratio(
            name,
            figure(f"{kind.__name__}.contains, int64, 10,000,000 keys", best(lambda: filter.contains(asked)), 2 * KEYS),
            loop,
        )


def blooms() -> None:
    rows = 100_000
    path = Path(__file__).resolve().parents[1] / "fixtures/ethereum/logs/weth_withdrawals_17686111-17686112.json"
    log = json.loads(path.read_text())[0]
    query = LogQuery({"address": log["address"], "topics": [log["topics"][0]]})
    # Filters of 30 to 50 % of their bits, as those of full blocks.
    rng = np.random.default_rng(2)
    fill = rng.uniform(0.3, 0.5, (rows, 1))
    bits = np.concatenate([rng.random((10_000, 2048)) < fill[at : at + 10_000] for at in range(0, rows, 10_000)])
    filters = np.packbits(bits, axis=1)
    expected = query.scan([row.tobytes() for row in filters])
    columns: dict[str, Any] = {
        "uint8[n, 256]": filters,
        "Arrow fixed": pa.FixedSizeBinaryArray.from_buffers(pa.binary(256), rows, [None, pa.py_buffer(filters)]),
        "Arrow binary": pa.array([row.tobytes() for row in filters]),
    }
    for name, column in columns.items():
        assert np.array_equal(query.scan(column), expected)
        figure(f"scan of filters, {name}", best(lambda: query.scan(column), 20), rows)


if __name__ == "__main__":
    membership()
    blooms()
