"""Logs of Ethereum: queries, scans, certificates, and nodes that lie."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import node
import numpy as np
import pyarrow as pa
import pytest

import chainsieve
from chainsieve.eth import LogQuery, Provider, scan, verify_certificate

FIRST, LAST, HEAD = node.FIRST, node.LAST, node.HEAD
WETH = "0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2"
WITHDRAWAL = "0x7fcf532c15f0a6db0bd6d0e038bea71d30d808c7d98cb3bf7268a95bf5081b65"
QUERY: dict[str, Any] = {"address": WETH, "topics": [WITHDRAWAL], "fromBlock": FIRST, "toBlock": LAST}


@pytest.fixture(scope="session")
def chain(fixtures: Path) -> node.Chain:
    return node.Chain(fixtures)


@pytest.fixture(scope="session")
def withdrawals(fixtures: Path) -> list[dict[str, Any]]:
    """The 18 logs that ``eth_getLogs`` returns, written by a program without code of the library."""
    path = fixtures / "ethereum/logs/weth_withdrawals_17686111-17686112.json"
    logs: list[dict[str, Any]] = json.loads(path.read_text())
    return logs


def assert_same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], chain: node.Chain) -> None:
    """Compares our dictionaries with objects of JSON-RPC."""
    assert len(ours) == len(theirs)
    for log, expected in zip(ours, theirs, strict=True):
        number, index = int(expected["blockNumber"], 16), int(expected["transactionIndex"], 16)
        assert log["address"] == WETH
        assert [topic.hex() for topic in log["topics"]] == [topic[2:] for topic in expected["topics"]]
        assert log["data"].hex() == expected["data"][2:]
        assert (log["blockNumber"], log["transactionIndex"]) == (number, index)
        assert log["logIndex"] == int(expected["logIndex"], 16)
        assert log["blockHash"].hex() == expected["blockHash"][2:]
        assert log["transactionHash"].hex() == chain.blocks[number]["transactions"][index]["hash"][2:]
        assert log["removed"] is False


def test_dictionaries_of_web3() -> None:
    same: list[Any] = [
        QUERY,
        {**QUERY, "fromBlock": hex(FIRST), "toBlock": hex(LAST)},
        {**QUERY, "address": [WETH.lower()], "topics": [[WITHDRAWAL]]},
        {**QUERY, "address": bytes.fromhex(WETH[2:]), "topics": (bytes.fromhex(WITHDRAWAL[2:]),)},
        json.dumps({**QUERY, "fromBlock": hex(FIRST), "toBlock": hex(LAST)}),
    ]
    queries = [LogQuery(filter) for filter in same]
    assert all(query == queries[0] for query in queries)
    assert LogQuery(queries[0]) == LogQuery(queries[0].to_json()) == queries[0]
    assert LogQuery({"blockHash": b"\1" * 32}) != queries[0]


WRONG = [
    {"fromBlock": "soon"},
    {"fromBlock": -1},
    {"address": "0x12"},
    {"topics": [WITHDRAWAL] * 5},
    {"blockHash": "0x" + "00" * 32, "fromBlock": 1},
    "{",
    "[]",
    "",
]


@pytest.mark.parametrize("filter", WRONG, ids=str)
def test_filters_that_are_none(filter: Any) -> None:
    with pytest.raises(chainsieve.InvalidInput):
        LogQuery(filter)


def test_values_without_json() -> None:
    for value in (1.5, {"fromBlock": 1.5}, {"address": object()}):
        with pytest.raises(TypeError):
            LogQuery(value)  # type: ignore[arg-type]


def blooms_of(fixtures: Path) -> tuple[list[bytes], list[int]]:
    """The filters of the 105 headers of mainnet, and their numbers."""
    headers = json.loads((fixtures / "ethereum/headers.json").read_text())
    mainnet = [header for header in headers if header["chain"] == "mainnet"]
    fields = [node.rlp(bytes.fromhex(header["header"].removeprefix("0x"))) for header in mainnet]
    return [each[6] for each in fields], [int(header["number"]) for header in mainnet]


def test_scans_in_every_container(fixtures: Path) -> None:
    blooms, numbers = blooms_of(fixtures)
    assert len(blooms) > 100 and all(len(bloom) == 256 for bloom in blooms)
    query = LogQuery(QUERY)
    expected = [query.scan([bloom]).tolist()[0] for bloom in blooms]
    # The blocks with the 18 logs are candidates, and blocks before WETH are none.
    assert all(expected[numbers.index(number)] for number in (FIRST, LAST))
    assert not any(is_candidate for is_candidate, number in zip(expected, numbers, strict=True) if number < 4_000_000)
    joined = np.frombuffer(b"".join(blooms), np.uint8).reshape(-1, 256)
    containers: list[Any] = [
        blooms,
        joined,
        np.repeat(joined, 2, axis=0)[::2],
        joined.reshape(-1).view("V256"),
        pa.array(blooms, pa.binary(256)),
        pa.array(blooms),
        pa.array(blooms, pa.large_binary()),
        pa.array(blooms, pa.binary_view()),
        pa.array([b"first", *blooms, b"last"])[1:-1],
        pa.array([blooms[0], *blooms], pa.large_binary())[1:],
        pa.chunked_array([pa.array(blooms[:40], pa.binary(256)), pa.array(blooms[40:], pa.binary(256))]),
    ]
    for container in containers:
        assert query.scan(container).tolist() == expected, type(container)
        assert scan(QUERY, container).tolist() == expected


def test_filters_without_information_are_candidates() -> None:
    query = LogQuery(QUERY)
    assert query.scan([bytes(256), b"\xff" * 256, b"", bytes(255), bytes(257)]).tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert query.scan(np.zeros((2, 32), np.uint8)).all()
    assert LogQuery({}).scan([bytes(256)]).tolist() == [True]
    with pytest.raises(TypeError):
        query.scan(np.arange(256))
    with pytest.raises(TypeError):
        query.scan(["00" * 256])  # type: ignore[list-item]


def test_logs_of_an_honest_node(chain: node.Chain, withdrawals: list[Any]) -> None:
    with node.serve(chain) as (url, served):
        provider = Provider(url, anchor=chain.hash(HEAD))
        logs = provider.logs(QUERY)
        assert_same(logs, withdrawals, chain)
        assert logs.blocks == (FIRST, LAST) and logs.anchored and logs.verified == 2
        assert logs.tip == (HEAD, bytes.fromhex(chain.hash(HEAD)[2:])) and isinstance(logs.warnings, list)
        assert "eth_getLogs" not in served.calls
        assert served.keys == {None}
        trusting = Provider([url], trust_head=True, headers=["Authorization: Bearer key"])
        assert trusting.logs(LogQuery(QUERY)) == logs and not trusting.logs(QUERY).anchored
        assert served.keys == {None, "Bearer key"}
        [report] = provider.audit(QUERY)
        assert report["status"] == "complete" and report["findings"] == [] and report["node"] == url


def test_a_node_that_leaves_a_log_out(chain: node.Chain, withdrawals: list[Any]) -> None:
    with node.serve(chain, "omits-log") as (url, _):
        provider = Provider(url, anchor=[chain.hash(HEAD)])
        assert_same(provider.logs(QUERY), withdrawals, chain)
        [report] = provider.audit(QUERY)
        assert report["status"] == "wrong" and report["node"] == url
        [finding] = report["findings"]
        assert "omitted" in json.dumps(finding)
        # The same answer from elsewhere, as JSON-RPC has it and as web3.py has it.
        for answer in (withdrawals[1:], list(provider.logs(QUERY))[1:]):
            [report] = provider.audit(QUERY, answer)
            assert report["status"] == "wrong" and report["node"] is None and len(report["findings"]) == 1
        [report] = provider.audit(QUERY, withdrawals)
        assert report["status"] == "complete"


def test_a_node_whose_receipts_lack_a_log(chain: node.Chain, withdrawals: list[Any]) -> None:
    with node.serve(chain, "omits-receipt-log") as (liar, _), node.serve(chain) as (honest, _):
        anchor = bytes.fromhex(chain.hash(HEAD)[2:])
        with pytest.raises(chainsieve.IncompleteError) as error:
            Provider(liar, anchor=anchor, retries=0).logs(QUERY)
        assert [block for block, _ in error.value.missing] == [FIRST, LAST]
        assert error.value.logs == [] and "not proven" in str(error.value)
        assert isinstance(error.value, chainsieve.ProviderError)
        assert_same(Provider([liar, honest], anchor=anchor, retries=0).logs(QUERY), withdrawals, chain)


def test_an_anchor_that_is_not_on_the_chain(chain: node.Chain) -> None:
    with node.serve(chain) as (url, _):
        with pytest.raises(chainsieve.ProviderError):
            Provider(url, anchor=b"\1" * 32, retries=0).logs(QUERY)


def test_no_node() -> None:
    with pytest.raises(chainsieve.ProviderError) as error:
        Provider("http://127.0.0.1:1/secret", trust_head=True, retries=0).logs(QUERY)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "http://127.0.0.1:1"},
        {"url": "ftp://127.0.0.1:1", "trust_head": True},
        {"url": "", "trust_head": True},
        {"url": [], "trust_head": True},
        {"url": "http://127.0.0.1:1", "anchor": "0x12"},
        {"url": "http://127.0.0.1:1", "anchor": b"12"},
        {"url": "http://127.0.0.1:1", "anchor": []},
        {"url": "http://127.0.0.1:1", "trust_head": True, "headers": ["no header"]},
        {"url": "http://127.0.0.1:1", "trust_head": True, "timeout": -1.0},
        {"url": "http://127.0.0.1:1", "trust_head": True, "timeout": float("nan")},
    ],
    ids=str,
)
def test_providers_that_cannot_be(arguments: dict[str, Any]) -> None:
    with pytest.raises(chainsieve.InvalidInput):
        Provider(**arguments)


def test_following_and_resuming(chain: node.Chain, withdrawals: list[Any]) -> None:
    first = [log for log in withdrawals if int(log["blockNumber"], 16) == FIRST]
    with node.serve(chain) as (url, _):
        provider = Provider(url, anchor=chain.hash(HEAD))
        updates = list(provider.follow({**QUERY, "toBlock": FIRST}, poll=0.05))
        kinds = [update.kind for update in updates]
        assert kinds[0] == "started" and "blocks" in kinds
        delivered = [log for update in updates for log in update.logs]
        assert_same(delivered, first, chain)
        assert updates[-1].block == (FIRST, bytes.fromhex(chain.hash(FIRST)[2:]))
        # The whole range at once, and what is left of it after a part.
        whole = [update for update in provider.follow(QUERY, poll=0.05)]
        assert_same([log for update in whole for log in update.logs], withdrawals, chain)
        cursor = [update.cursor for update in whole if update.kind == "blocks"][-1]
        rest = [update for update in provider.follow(QUERY, cursor=cursor, poll=0.05)]
        assert [log for update in rest for log in update.logs] == []


def test_a_cursor_file_delivers_again_what_was_not_acknowledged(
    chain: node.Chain, withdrawals: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "cursor"
    with node.serve(chain) as (url, _):
        provider = Provider(url, anchor=chain.hash(HEAD))
        for _ in range(2):
            with provider.follow(QUERY, cursor_file=path, poll=0.05) as following:
                update = next(update for update in following if update.logs)
                assert update.cursor is None and len(update.logs) >= 8
        with provider.follow(QUERY, cursor_file=path, poll=0.05) as following:
            again = [log for update in following for log in update.logs]
            assert_same(again, withdrawals, chain)
            assert list(following) == []
        with provider.follow(QUERY, cursor_file=path, poll=0.05) as following:
            assert [log for update in following for log in update.logs] == []


def test_once_ends_at_the_head_and_otherwise_new_blocks_are_awaited(chain: node.Chain) -> None:
    # No filter of these blocks has this address.
    live = {"address": "0x" + "11" * 20, "fromBlock": HEAD - 1}
    with node.serve(chain) as (url, served):
        provider = Provider(url, anchor=chain.hash(HEAD), retries=0)
        updates = list(provider.follow(live, once=True, poll=0.05))
        assert updates[-1].block == (HEAD, bytes.fromhex(chain.hash(HEAD)[2:]))
        assert [log for update in updates for log in update.logs] == []
        following = provider.follow(live, poll=0.05)
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            for _ in following:
                pass
        assert time.monotonic() - start < 10
        following.close()
        calls = len(served.calls)
        time.sleep(0.3)
        assert len(served.calls) == calls, "no request after close"


def test_ctrl_c_ends_a_wait_for_a_silent_node(chain: node.Chain) -> None:
    with node.serve(chain, "silent") as (url, served):
        provider = Provider(url, trust_head=True, timeout=15)
        calls: list[Callable[[], Any]] = [lambda: provider.logs(QUERY), lambda: provider.audit(QUERY)]
        for call in calls:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            start = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                call()
            assert time.monotonic() - start < 5


def test_other_threads_run_while_a_call_waits(chain: node.Chain) -> None:
    with node.serve(chain, "silent") as (url, served):
        provider = Provider(url, trust_head=True, timeout=1, retries=0)
        errors: list[BaseException] = []

        def call() -> None:
            try:
                provider.logs(QUERY)
            except chainsieve.ProviderError as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        node.wait_until(lambda: len(served.calls) > 0)
        thread.join()
        assert len(errors) == 1


def certificate(fixtures: Path, chain: node.Chain) -> tuple[dict[str, Any], dict[str, Any]]:
    """The certificate that docs and transcripts of the command describe, made without the library.

    The query is Deposit to one account; the digest is the one that ``crates/cli`` prints.
    """
    query = {
        "fromBlock": hex(FIRST),
        "toBlock": hex(LAST),
        "address": [WETH.lower()],
        "topics": [
            ["0xe1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c"],
            ["0x0000000000000000000000007a250d5630b4cf539739df2c5dacb4c659f2488d"],
        ],
    }
    sources = [
        json.loads((fixtures / f"ethereum/blocks/mainnet_{number}.json").read_text()) for number in (FIRST, LAST)
    ]
    text = {
        "format": "chainsieve-log-certificate",
        "version": 1,
        "profile": "ethereum",
        "chain": {
            "parentHash": chain.hash(FIRST - 1),
            "first": hex(FIRST),
            "last": hex(LAST),
            "lastHash": chain.hash(LAST),
        },
        "query": query,
        "semantics": "geth",
        "result": {"logs": "0x7", "digest": "0x03c8f2e1b8486c4a92749e82e11be362453fbe827158f68e350d6a57b3f2a7a5"},
        "counts": {"blocks": "0x2", "examined": "0x2"},
        "headers": [source["header"] for source in sources],
        "receipts": [{"blockHash": source["hash"], "receipts": source["receipts"]} for source in sources],
    }
    return text, query


def test_certificates(fixtures: Path, chain: node.Chain) -> None:
    text, query = certificate(fixtures, chain)
    anchor = chain.hash(LAST)
    verified = verify_certificate(json.dumps(text), query, anchor)
    assert verified["complete"] and verified["unverified"] == []
    assert verified["logs"] is not None
    assert [log["logIndex"] for log in verified["logs"]] == [0x1E, 0x52, 0x75, 0x101, 0x10E, 0x65, 0x6F]
    # Without the anchor on its chain, nothing is proven.
    other = verify_certificate(json.dumps(text), query, b"\1" * 32)
    assert not other["complete"] and [block for block, _ in other["unverified"]] == [FIRST, LAST]
    bare = {name: value for name, value in text.items() if name != "receipts"}
    without = verify_certificate(json.dumps(bare), query, anchor)
    assert not without["complete"] and without["logs"] is None and len(without["unverified"]) == 2
    for wrong in (
        {**text, "result": {**text["result"], "logs": "0x6"}},
        {**text, "result": {**text["result"], "digest": "0x" + "00" * 32}},
        {**text, "counts": {"blocks": "0x2", "examined": "0x1"}},
        {**text, "version": 2},
        {**text, "headers": text["headers"][:1]},
        {**text, "more": 1},
    ):
        with pytest.raises(chainsieve.InvalidInput):
            verify_certificate(json.dumps(wrong), query, anchor)
    with pytest.raises(chainsieve.InvalidInput, match="query"):
        verify_certificate(json.dumps(text), QUERY, anchor)
    for filter in ({}, {"fromBlock": "latest", "toBlock": "latest"}):
        with pytest.raises(chainsieve.InvalidInput, match="numbers"):
            verify_certificate(json.dumps(text), filter, anchor)
    with pytest.raises(chainsieve.InvalidInput, match="unknown"):
        verify_certificate(json.dumps(text), query, anchor, chain="nowhere")


def test_matching_one_log(withdrawals: list[Any]) -> None:
    query = LogQuery(QUERY)
    assert all(query.matches(log) for log in withdrawals)
    assert not query.matches({**withdrawals[0], "topics": []})
    with pytest.raises(chainsieve.InvalidInput):
        query.matches({"address": WETH})
