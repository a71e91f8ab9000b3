"""An Ethereum node over HTTP with blocks of mainnet from the fixtures. It can lie."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FIRST, LAST, HEAD = 17_686_111, 17_686_112, 17_686_125
HEADER_FIELDS = [
    ("parentHash", False),
    ("sha3Uncles", False),
    ("miner", False),
    ("stateRoot", False),
    ("transactionsRoot", False),
    ("receiptsRoot", False),
    ("logsBloom", False),
    ("difficulty", True),
    ("number", True),
    ("gasLimit", True),
    ("gasUsed", True),
    ("timestamp", True),
    ("extraData", False),
    ("mixHash", False),
    ("nonce", False),
    ("baseFeePerGas", True),
    ("withdrawalsRoot", False),
]


def rlp(data: bytes) -> Any:
    """Decodes RLP: bytes, or lists of what it decodes."""
    item, rest = rlp_item(data)
    assert not rest
    return item


def rlp_item(data: bytes) -> tuple[Any, bytes]:
    first = data[0]
    if first < 0x80:
        return data[:1], data[1:]
    is_list, base = first >= 0xC0, 0xC0 if first >= 0xC0 else 0x80
    length, start = first - base, 1
    if length > 55:
        start = 1 + length - 55
        length = int.from_bytes(data[1:start], "big")
    content, rest = data[start : start + length], data[start + length :]
    if not is_list:
        return content, rest
    items = []
    while content:
        item, content = rlp_item(content)
        items.append(item)
    return items, rest


def hexed(data: bytes) -> str:
    return "0x" + data.hex()


def quantity(data: bytes) -> str:
    return hex(int.from_bytes(data, "big"))


class Chain:
    """The blocks of the fixtures as JSON-RPC has them."""

    def __init__(self, fixtures: Path) -> None:
        headers = json.loads((fixtures / "ethereum/headers.json").read_text())
        self.blocks: dict[int, dict[str, Any]] = {}
        self.receipts: dict[int, list[dict[str, Any]]] = {}
        for header in headers:
            number = int(header["number"])
            if header["chain"] == "mainnet" and FIRST - 1 <= number <= HEAD:
                fields = rlp(bytes.fromhex(header["header"].removeprefix("0x")))
                names = zip(HEADER_FIELDS, fields, strict=True)
                block: dict[str, Any] = {
                    name: quantity(value) if is_number else hexed(value) for (name, is_number), value in names
                }
                block |= {"hash": header["hash"], "transactions": [], "uncles": [], "withdrawals": [], "size": "0x1"}
                self.blocks[number] = block
        for number in (FIRST, LAST):
            source = json.loads((fixtures / f"ethereum/blocks/mainnet_{number}.json").read_text())
            place = {"blockHash": source["hash"], "blockNumber": hex(number)}
            self.blocks[number]["transactions"] = [
                {**transaction, **place, "transactionIndex": hex(index)}
                for index, transaction in enumerate(source["transactions"])
            ]
            self.receipts[number] = self.receipts_of(number, source, place)

    def receipts_of(self, number: int, source: Any, place: dict[str, str]) -> list[dict[str, Any]]:
        receipts, count, gas = [], 0, 0
        for index, encoded in enumerate(source["receipts"]):
            data = bytes.fromhex(encoded.removeprefix("0x"))
            kind = data[0] if data[0] < 0xC0 else 0
            status, cumulative, bloom, logs = rlp(data[1:] if kind else data)
            where = {**place, "transactionHash": source["transactions"][index]["hash"], "transactionIndex": hex(index)}
            receipt_logs = []
            for address, topics, content in logs:
                log = {"address": hexed(address), "topics": [hexed(topic) for topic in topics], "data": hexed(content)}
                receipt_logs.append({**log, **where, "logIndex": hex(count), "removed": False})
                count += 1
            total = int.from_bytes(cumulative, "big")
            receipts.append(
                {
                    **where,
                    "type": hex(kind),
                    "status": quantity(status),
                    "cumulativeGasUsed": hex(total),
                    "gasUsed": hex(total - gas),
                    "logsBloom": hexed(bloom),
                    "logs": receipt_logs,
                }
            )
            gas = total
        return receipts

    def hash(self, number: int) -> str:
        text: str = self.blocks[number]["hash"]
        return text


class Node:
    """What a node answers. ``lie`` is one of "", "omits-receipt-log", "omits-log", "silent"."""

    def __init__(self, chain: Chain, lie: str) -> None:
        self.chain, self.lie = chain, lie
        self.calls: list[str] = []
        self.keys: set[str | None] = set()
        self.wakes = threading.Event()

    def number(self, tag: str) -> int | None:
        named = {"latest": HEAD, "safe": HEAD, "finalized": HEAD - 2, "earliest": FIRST - 1}
        if tag in named:
            return named[tag]
        if len(tag) == 66:
            found = [number for number in self.chain.blocks if self.chain.hash(number) == tag]
            return found[0] if found else None
        number = int(tag, 16)
        return number if number in self.chain.blocks else None

    def answer(self, method: str, params: list[Any]) -> Any:
        self.calls.append(method)
        if self.lie == "silent" and method != "eth_chainId":
            self.wakes.wait(20)
        if method == "eth_chainId":
            return "0x1"
        if method in ("eth_getBlockByNumber", "eth_getBlockByHash"):
            number = self.number(params[0])
            if number is None:
                return None
            block = self.chain.blocks[number]
            return block if params[1] else {**block, "transactions": [each["hash"] for each in block["transactions"]]}
        if method == "eth_getBlockReceipts":
            tag = params[0]["blockHash"] if isinstance(params[0], dict) else params[0]
            number = self.number(tag)
            if number is None:
                return None
            receipts = self.chain.receipts.get(number, [])
            if self.lie == "omits-receipt-log":
                receipts = [{**receipt, "logs": receipt["logs"][1:]} for receipt in receipts]
            return receipts
        if method == "eth_getLogs":
            return self.logs(params[0])
        raise ValueError(method)

    def logs(self, query: dict[str, Any]) -> list[Any]:
        first, last = self.number(query["fromBlock"]), self.number(query["toBlock"])
        assert first is not None and last is not None
        addresses = query.get("address")
        addresses = [addresses] if isinstance(addresses, str) else addresses
        found = []
        for number in range(first, last + 1):
            for receipt in self.chain.receipts.get(number, []):
                for log in receipt["logs"]:
                    topics = enumerate(query.get("topics", []))
                    matches = all(
                        topic is None
                        or (
                            len(log["topics"]) > at
                            and log["topics"][at] in ([topic] if isinstance(topic, str) else topic)
                        )
                        for at, topic in topics
                    )
                    if matches and (not addresses or log["address"] in addresses):
                        found.append(log)
        return found[1:] if self.lie == "omits-log" else found


@contextmanager
def serve(chain: Chain, lie: str = "") -> Iterator[tuple[str, Node]]:
    """Serves a node, and gives its URL."""
    node = Node(chain, lie)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            node.keys.add(self.headers["Authorization"])
            call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answers = [self.answer(one) for one in (call if isinstance(call, list) else [call])]
            body = json.dumps(answers if isinstance(call, list) else answers[0]).encode()
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # the client has left

        def answer(self, call: dict[str, Any]) -> dict[str, Any]:
            answer = {"jsonrpc": "2.0", "id": call["id"]}
            try:
                return {**answer, "result": node.answer(call["method"], call["params"])}
            except ValueError:
                return {**answer, "error": {"code": -32601, "message": "the method does not exist"}}

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", node
    finally:
        node.wakes.set()
        server.shutdown()
        thread.join()
        server.server_close()


def wait_until(condition: Any, seconds: float = 20) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the time is over"
        time.sleep(0.01)
