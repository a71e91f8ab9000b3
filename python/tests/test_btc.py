"""Filters of Bitcoin: Core's cases of BIP37 and the vectors of BIP158."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chainsieve
from chainsieve.btc import BlockFilter, BloomFilter, MerkleBlock, match_any

UPDATES: dict[int, Any] = {0: "none", 1: "all", 2: "p2pubkey_only"}


@pytest.fixture(scope="session")
def bip37(fixtures: Path) -> Any:
    """The cases of Bitcoin Core's bloom_tests.cpp."""
    return json.loads((fixtures / "bitcoin/bip37_vectors.json").read_text())


@pytest.fixture(scope="session")
def bip158(fixtures: Path) -> Any:
    """The vectors that BIP158 publishes."""
    return json.loads((fixtures / "bitcoin/bip158_vectors.json").read_text())


def filter_of(case: Any) -> BloomFilter:
    values = case["filter"]
    return BloomFilter(values["elements"], values["fpr"], values["tweak"], UPDATES[values["flags"]])


def insert(filter: BloomFilter, case: Any) -> None:
    if "insert" in case:
        elements = case["insert"] if isinstance(case["insert"], list) else [case["insert"]]
        for element in elements:
            filter.insert(bytes.fromhex(element))
    if "insert_txid" in case:
        filter.insert(bytes.fromhex(case["insert_txid"])[::-1])
    if "insert_outpoint" in case:
        filter.insert_outpoint(*case["insert_outpoint"])


def test_payloads_of_core(bip37: Any) -> None:
    checked = 0
    for case in bip37["filterload"]:
        if "insert" not in case:
            continue
        filter = filter_of(case)
        insert(filter, case)
        assert filter.to_bytes().hex() == case["payload"]
        assert BloomFilter.from_bytes(bytes.fromhex(case["payload"])) == filter
        present = [bytes.fromhex(element) for element in case["insert"]]
        assert filter.contains(present).all() and all(element in filter for element in present)
        assert not any(bytes.fromhex(element) in filter for element in case["absent"])
        checked += 1
    assert checked == 2


def test_matching_transactions(bip37: Any) -> None:
    transactions = {name: bytes.fromhex(value["hex"]) for name, value in bip37["transactions"].items()}
    for case in bip37["matching"]:
        filter = filter_of(case)
        insert(filter, case)
        assert filter.matches(transactions[case["transaction"]]) is case["matches"], case["why"]
        if "then_spending_matches" in case:
            assert filter.matches(transactions["spending"]) is case["then_spending_matches"], case["why"]
    assert len(bip37["matching"]) > 10


def test_merkle_blocks_of_core(bip37: Any) -> None:
    verified = 0
    for case in bip37["merkle_blocks"]:
        filter = filter_of(case)
        block = bytes.fromhex(bip37["blocks"][case["block"]])
        for step in case["steps"]:
            insert(filter, step)
            if "matches" in step or "payload" in step:
                found = filter.matches_in_block(block)
            if "matches" in step:
                assert found == [tuple(match) for match in step["matches"]]
            if "payload" in step:
                payload = bytes.fromhex(step["payload"])
                merkle = MerkleBlock.from_bytes(payload)
                assert merkle.to_bytes() == payload and merkle.block_hash == case["block"]
                assert merkle.verify(None) == found and merkle.header == block[:80]
                verified += 1
    assert verified >= 1


def test_a_changed_merkle_block_is_refused(bip37: Any) -> None:
    payloads = [step["payload"] for case in bip37["merkle_blocks"] for step in case["steps"] if "payload" in step]
    for hex_payload in payloads:
        payload = bytearray.fromhex(hex_payload)
        payload[90] ^= 1
        with pytest.raises(chainsieve.InvalidInput):
            MerkleBlock.from_bytes(bytes(payload)).verify(None)


def test_filters_of_bip158(bip158: Any) -> None:
    assert len(bip158) == 10
    for vector in bip158:
        block, content = bytes.fromhex(vector["block"]), bytes.fromhex(vector["basic_filter"])
        spent = [bytes.fromhex(script) for script in vector["prevout_scripts"]]
        filter = BlockFilter.build(block, spent)
        assert filter.content == content and filter.block_hash == vector["hash"]
        assert filter.filter_header(vector["previous_filter_header"]) == vector["filter_header"]
        assert filter == BlockFilter(vector["hash"], content)
        assert filter == BlockFilter(bytes.fromhex(vector["hash"])[::-1], content)
        wanted = [b"not in any block", *(script for script in spent if script)]
        assert filter.match_any(wanted) is (len(wanted) > 1)
        assert filter.matching(wanted) == list(range(1, len(wanted)))
        with pytest.raises(chainsieve.InvalidInput):
            BlockFilter.build(block, [*spent, b"one too many"])


def test_many_filters(bip158: Any) -> None:
    hashes = [bytes.fromhex(vector["hash"])[::-1] for vector in bip158]
    contents = [bytes.fromhex(vector["basic_filter"]) for vector in bip158]
    spent = [[bytes.fromhex(script) for script in vector["prevout_scripts"]] for vector in bip158]
    for place, scripts in enumerate(spent):
        wanted = [script for script in scripts if script]
        expected = [
            bool(wanted) and BlockFilter(block_hash, content).match_any(wanted)
            for block_hash, content in zip(hashes, contents, strict=True)
        ]
        joined = np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 32)
        for columns in [
            (hashes, contents),
            (joined, pa.array(contents)),
            (pa.array(hashes), pa.array(contents, pa.binary_view())),
        ]:
            assert match_any(*columns, wanted).tolist() == expected
        assert not wanted or expected[place]
    with pytest.raises(chainsieve.InvalidInput, match="filter 1"):
        match_any(hashes, [contents[0], b"\xff", *contents[2:]], [b"a"])
    with pytest.raises(chainsieve.InvalidInput, match="block hash 0"):
        match_any([b"short", *hashes[1:]], contents, [b"a"])
    with pytest.raises(chainsieve.InvalidInput, match="9 block hashes"):
        match_any(hashes[1:], contents, [b"a"])


def test_hex_is_not_taken_for_a_script() -> None:
    with pytest.raises(TypeError, match="bytes are expected"):
        match_any([bytes(32)], [b"\0"], ["76a9"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="bytes are expected"):
        BloomFilter(3, 0.01, 0).contains(pa.array(["76a9"]))


@pytest.mark.parametrize(("elements", "fpr"), [(0, 0.1), (1, 0.0), (1, 1.5), (200_000, 0.5)])
def test_filters_that_cannot_be(elements: int, fpr: float) -> None:
    with pytest.raises(chainsieve.InvalidInput):
        BloomFilter(elements, fpr, 0)


def test_wrong_names() -> None:
    with pytest.raises(chainsieve.InvalidInput):
        BloomFilter(1, 0.1, 0, "some")  # type: ignore[arg-type]
    with pytest.raises(chainsieve.InvalidInput):
        BlockFilter("12", b"")
    with pytest.raises(TypeError):
        BlockFilter(12, b"")  # type: ignore[arg-type]
