"""web3.py as a client of `eth serve`, and the parser of Prometheus's Python client.

    python web3_client.py ask HTTP_URL WS_URL QUESTIONS    answers each question, by each transport
    python web3_client.py watch HTTP_URL WS_URL ADDRESS    prints what happens, until it is killed
    python web3_client.py defaults HTTP_URL WS_URL ADDRESS proven calls and others, as they come
    python web3_client.py follow WS_URL                    prints the numbers of new blocks, until it is killed
    python web3_client.py metrics HTTP_URL                 prints the samples of /metrics

Prints a line of JSON for each answer, event or sample. The objects of web3.py are written in the form of
JSON-RPC, so that the caller compares them with the node's JSON.
"""

import asyncio
import json
import sys
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from web3 import AsyncWeb3, HTTPProvider, Web3, WebSocketProvider
from web3.exceptions import Web3RPCError
from websockets import ConnectionClosed

ABI = [
    {
        "type": "event",
        "name": "Transfer",
        "anonymous": False,
        "inputs": [
            {"name": "from", "type": "address", "indexed": True},
            {"name": "to", "type": "address", "indexed": True},
            {"name": "value", "type": "uint256", "indexed": False},
        ],
    }
]
LOG = "address topics data blockNumber blockHash transactionHash transactionIndex logIndex removed"
TRANSFER = "address blockNumber blockHash transactionHash transactionIndex logIndex"
RECEIPT = (
    "transactionHash transactionIndex blockHash blockNumber from to contractAddress gasUsed cumulativeGasUsed"
    " effectiveGasPrice type status logsBloom logs"
)
TRANSACTION = "hash blockNumber blockHash transactionIndex from to nonce value gas input type"
BLOCK = (
    "number hash parentHash timestamp gasLimit gasUsed baseFeePerGas miner extraData stateRoot receiptsRoot"
    " transactions"
)
HEAD = "number hash parentHash"


def emit(value):
    print(json.dumps(value), flush=True)


def plain(value):
    """Writes a value in the form of JSON-RPC."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return hex(value)
    if isinstance(value, bytes):
        return "0x" + bytes(value).hex()
    if isinstance(value, str):
        return value.lower()
    return [plain(item) for item in value]


def members(value, names):
    return {name: plain(value[name]) for name in names.split()}


def receipt(value):
    found = {**value, "logs": []}
    return {**members(found, RECEIPT), "logs": [members(log, LOG) for log in value["logs"]]}


def block(value, full):
    found = members({**value, "transactions": []}, BLOCK)
    listed = value["transactions"]
    found["transactions"] = [members(it, TRANSACTION) for it in listed] if full else plain(listed)
    return found


def checksummed(addresses):
    if isinstance(addresses, list):
        return [checksummed(address) for address in addresses]
    return addresses and Web3.to_checksum_address(addresses)


def filter_of(question):
    found = dict(question["filter"])
    if "address" in found:
        found["address"] = checksummed(found["address"])
    return found


async def answer(w3, question):
    eth = w3.eth
    match question["ask"]:
        case "chainId":
            return plain(await eth.chain_id)
        case "blockNumber":
            return plain(await eth.block_number)
        case "logs":
            return [members(log, LOG) for log in await eth.get_logs(filter_of(question))]
        case "transfers":
            contract = eth.contract(address=checksummed(question["address"]), abi=ABI)
            args = {name: checksummed(question[name]) for name in ("from", "to") if question[name]}
            logs = await contract.events.Transfer().get_logs(
                argument_filters=args,
                from_block=int(question["fromBlock"], 16),
                to_block=int(question["toBlock"], 16),
            )
            return [{**members(log, TRANSFER), **members(log["args"], "from to value")} for log in logs]
        case "receipt":
            return receipt(await eth.get_transaction_receipt(question["hash"]))
        case "receipts":
            return [receipt(it) for it in await eth.get_block_receipts(question["block"])]
        case "block":
            at = question.get("hash") or int(question["number"], 16)
            return block(await eth.get_block(at, question["full"]), question["full"])
        case "error":
            call = {"eth_getBalance": eth.get_balance, "eth_getLogs": eth.get_logs}[question["method"]]
            try:
                return plain(await call(*question["params"]))
            except Web3RPCError as error:
                found = error.rpc_response["error"]
                return {"code": found["code"], "reason": found["data"]["reason"]}
    return "unknown question"


class Awaited:
    """Lets the same questions be asked of the blocking client: what it returns can be awaited."""

    def __init__(self, of):
        self.of = of

    def __getattr__(self, name):
        async def value():
            return getattr(self.of, name)

        if name in ("chain_id", "block_number"):
            return value()
        if name == "contract":
            return lambda **options: Contract(self.of.contract(**options))

        async def call(*args):
            return getattr(self.of, name)(*args)

        return call


class Contract:
    """A contract of the blocking client, whose events can be awaited."""

    def __init__(self, contract):
        self.contract = contract
        self.events = self

    def Transfer(self):
        return self

    async def get_logs(self, **options):
        return self.contract.events.Transfer().get_logs(**options)


class Blocking:
    """The blocking client."""

    def __init__(self, w3):
        self.eth = Awaited(w3.eth)


async def answered(w3, via, questions):
    for index, question in enumerate(questions):
        try:
            found = await answer(w3, question)
        except Exception as error:
            found = f"failed: {error!r}"
        emit({"via": via, "index": index, "answer": found})


async def ask(http_url, ws_url, file):
    with open(file) as text:
        questions = json.load(text)
    await answered(Blocking(Web3(HTTPProvider(http_url))), "http", questions)
    async with AsyncWeb3(WebSocketProvider(ws_url)) as w3:
        await answered(w3, "ws", questions)


async def poll(http_url, address):
    """Polls filters by HTTP."""
    eth = Web3(HTTPProvider(http_url)).eth
    filters = {
        "http logs": eth.filter({}),
        "http logs of the address": eth.filter({"address": address}),
        "http blocks": eth.filter("latest"),
    }
    while True:
        for stream, polled in filters.items():
            for item in await asyncio.to_thread(polled.get_new_entries):
                emit({"stream": stream, "item": plain(item) if "blocks" in stream else members(item, LOG)})
        await asyncio.sleep(0.05)


async def subscribe(ws_url, address):
    async with AsyncWeb3(WebSocketProvider(ws_url)) as w3:
        subscribed = {
            await w3.eth.subscribe("logs", {}): ("ws logs", LOG),
            await w3.eth.subscribe("logs", {"address": address}): ("ws logs of the address", LOG),
            await w3.eth.subscribe("newHeads"): ("ws heads", HEAD),
        }
        async for message in w3.socket.process_subscriptions():
            stream, names = subscribed[message["subscription"]]
            emit({"stream": stream, "item": members(message["result"], names)})


async def watch(http_url, ws_url, address):
    address = checksummed(address)
    await asyncio.gather(poll(http_url, address), subscribe(ws_url, address))


async def state(via, eth, address):
    blocks = [plain((await eth.get_block(number % 20))["hash"]) for number in range(150)]
    balance, nonce = await eth.get_balance(address), await eth.get_transaction_count(address)
    code = await eth.get_code(address)
    price = (await eth.of.gas_price) if via == "ws" else eth.of.gas_price
    emit(
        {
            "via": via,
            "blocks": blocks,
            "balance": hex(balance),
            "nonce": hex(nonce),
            "code": plain(code),
            "price": hex(price),
        }
    )


class Direct:
    """The asynchronous client, with the shape of `Awaited`."""

    def __init__(self, of):
        self.of = of

    def __getattr__(self, name):
        return getattr(self.of, name)


async def defaults(http_url, ws_url, address):
    address = checksummed(address)
    await state("http", Awaited(Web3(HTTPProvider(http_url)).eth), address)
    async with AsyncWeb3(WebSocketProvider(ws_url)) as w3:
        await state("ws", Direct(w3.eth), address)


async def follow(ws_url):
    # As web3.py's documentation says, the loop connects again when a connection has ended.
    async for w3 in AsyncWeb3(WebSocketProvider(ws_url)):
        try:
            await w3.eth.subscribe("newHeads")
            async for message in w3.socket.process_subscriptions():
                emit({"number": message["result"]["number"]})
        except ConnectionClosed:
            emit({"closed": True})


async def metrics(http_url):
    with urllib.request.urlopen(f"{http_url}/metrics") as page:
        kind, text = page.headers["content-type"], page.read().decode()
    assert kind.startswith("application/openmetrics-text"), kind
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            value = int(sample.value) if float(sample.value).is_integer() else sample.value
            emit({"name": sample.name, "labels": sample.labels, "value": value})


asyncio.run({"ask": ask, "watch": watch, "defaults": defaults, "follow": follow, "metrics": metrics}[sys.argv[1]](*sys.argv[2:]))
