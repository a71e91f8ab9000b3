"""Uses every public name. ``mypy --strict`` checks it, and it runs."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import pyarrow
from numpy.typing import NDArray

import chainsieve
from chainsieve import btc, eth
from chainsieve.filter import Bloom, Fuse8, Fuse16, SplitBlock


def filters(folder: Path) -> None:
    split = SplitBlock(1000, 0.001, hash="xxh64", seed=0)
    split.add("key")
    split.update([b"bytes", "text", 7, bytearray(b"more")])
    split.update(numpy.arange(10))
    split.update(pyarrow.array(["a", "b"]))
    found: NDArray[numpy.bool_] = split.contains(numpy.zeros((3, 32), numpy.uint8))
    sizes: tuple[int, float, int, int, float, float, str] = (
        split.added,
        split.approx_items,
        split.num_bits,
        split.num_blocks,
        split.fill,
        split.expected_fpr,
        split.hash,
    )
    assert len(found) == 3 and len(sizes) == 7 and "key" in split and len(split) > 10 and split
    split.save(folder / "filter", "parquet")
    assert SplitBlock.load(str(folder / "filter"), "parquet").contains(["key"]).all()
    united: SplitBlock = SplitBlock.from_bytes(split.to_bytes()) | split.copy()
    united |= split
    united.clear()
    assert united != split and SplitBlock.from_keys([1], 0.1) == SplitBlock.from_keys([1], 0.1)
    bloom = Bloom.from_keys(["a"], 0.01, hash="siphash13", seed=bytes(16))
    bloom.add(numpy.int64(5))
    bloom.save(folder / "bloom")
    other: Bloom = Bloom.load(folder / "bloom") | Bloom.from_bytes(bloom.to_bytes())
    assert other.hash_funcs > 1 and other.approx_items > 1 and other.copy() == other
    fuse = Fuse8(range(100), hash="xxh3", seed=5)
    wide = Fuse16(["a"])
    fuse.save(folder / "fuse", "xor_singleheader")
    again = Fuse8.load(folder / "fuse", "xor_singleheader", hash="xxh3", seed=5)
    assert again.num_shards == 1 and 5 in again and again.contains([5])[0] and wide.num_bits > 0
    assert Fuse16.from_bytes(wide.to_bytes()) == wide and wide.fill > 0 and wide.expected_fpr < 0.1
    try:
        Bloom.from_bytes(b"")
    except chainsieve.InvalidInput as error:
        assert isinstance(error, chainsieve.Error)


def bitcoin() -> None:
    filter = btc.BloomFilter(10, 0.01, tweak=5, update="all")
    filter.insert(b"element")
    filter.insert_outpoint("ab" * 32, 0)
    answers: NDArray[numpy.bool_] = filter.contains([b"element"])
    assert answers.all() and filter.contains_outpoint(bytes.fromhex("ab" * 32), 0) and b"element" in filter
    same = btc.BloomFilter.from_bytes(filter.to_bytes())
    sizes: tuple[int, int, int, str, float] = (
        same.num_bits,
        same.hash_funcs,
        same.tweak,
        same.update,
        same.expected_fpr,
    )
    assert same == filter and sizes[2] == 5
    try:
        found: list[tuple[int, str]] = filter.matches_in_block(b"")
        assert filter.matches(b"") and found
    except chainsieve.InvalidInput:
        pass
    empty = btc.BlockFilter("00" * 32, b"\0")
    header: str = empty.filter_header(bytes(32))
    indices: list[int] = empty.matching([b"script"])
    assert empty.match_any([b"script"]) is False and indices == [] and len(header) == 64
    assert (len(empty.block_hash), len(empty.filter_hash), empty.content) == (64, 64, b"\0")
    assert not btc.match_any([bytes(32)], [b"\0"], pyarrow.array([b"script"])).any()
    try:
        btc.BlockFilter.build(b"", [])
    except chainsieve.InvalidInput:
        pass
    # A block of one transaction, whose id is the root.
    block = btc.MerkleBlock.from_bytes(bytes(80) + b"\1\0\0\0\1" + bytes(32) + b"\1\1")
    proven: list[tuple[int, str]] = block.verify(network=None, transactions=[])
    assert proven == [(0, "00" * 32)] and block.num_transactions == 1 and block.header == bytes(80)
    assert len(block.block_hash) == 64 and block.to_bytes()[:80] == block.header


def ethereum(folder: Path) -> None:
    query = eth.LogQuery({"fromBlock": 1, "toBlock": 2, "address": ["0x" + "11" * 20]})
    candidates: NDArray[numpy.bool_] = query.scan(numpy.zeros((2, 256), numpy.uint8))
    assert not candidates.any() and not eth.scan(query.to_json(), [bytes(256)]).any()
    try:
        query.matches({"address": "0x"})
        eth.verify_certificate("{}", query, [bytes(32)], chain="ethereum", logs=[])
    except chainsieve.InvalidInput:
        pass
    provider = eth.Provider(
        ["http://127.0.0.1:1"],
        trust_head=True,
        headers=["A: b"],
        timeout=1.0,
        retries=0,
        max_headers=10,
        max_receipts=5,
    )
    anchored = eth.Provider("http://127.0.0.1:1", anchor=bytes(32), timeout=1.0, retries=0)
    try:
        logs: eth.ProvenLogs = provider.logs(query)
        facts: tuple[tuple[int, int], tuple[int, bytes], bool, int, list[str]] = (
            logs.blocks,
            logs.tip,
            logs.anchored,
            logs.verified,
            logs.warnings,
        )
        assert facts
    except chainsieve.IncompleteError as error:
        assert error.logs is not None and error.missing is not None
    except chainsieve.ProviderError:
        pass
    try:
        reports = anchored.audit(query, logs="[]")
        assert reports[0]["status"]
    except chainsieve.ProviderError:
        pass
    try:
        with provider.follow(
            query, cursor=None, cursor_file=folder / "cursor", once=True, confirmations=1, poll=0.1
        ) as following:
            updates: eth.Following = following
            for update in updates:
                news: eth.Update = update
                assert news.kind and news.logs is not None and news.block and news.cursor is None
                following.acknowledge()
            following.close()
    except chainsieve.ProviderError:
        pass


def main() -> None:
    bitcoin()
    with TemporaryDirectory() as folder:
        filters(Path(folder))
        ethereum(Path(folder))


if __name__ == "__main__":
    main()
