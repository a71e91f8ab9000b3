// viem as a client of `eth serve`.
//
//   node viem.cjs ask HTTP_URL WS_URL QUESTIONS    answers each question, by each transport
//   node viem.cjs watch HTTP_URL WS_URL ADDRESS    prints what happens, until it is killed
//
// Prints answers and events in the form of forms.cjs.
"use strict";
const { createPublicClient, http, parseAbiItem, webSocket } = require("viem");
const forms = require("./forms.cjs");
const { hex, low, print } = forms;

const TRANSFER = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)");
const TYPES = { legacy: 0, eip2930: 1, eip1559: 2, eip4844: 3, eip7702: 4 };

const number = (text) => (text?.startsWith("0x") ? BigInt(text) : undefined);

const log = (found) => forms.log(found, found.logIndex);
const transfer = (found) => forms.transfer(found, found.logIndex);

const receipt = (receipt) => ({
    transactionHash: receipt.transactionHash,
    transactionIndex: hex(receipt.transactionIndex),
    blockHash: receipt.blockHash,
    blockNumber: hex(receipt.blockNumber),
    from: low(receipt.from),
    to: low(receipt.to),
    contractAddress: low(receipt.contractAddress),
    gasUsed: hex(receipt.gasUsed),
    cumulativeGasUsed: hex(receipt.cumulativeGasUsed),
    effectiveGasPrice: hex(receipt.effectiveGasPrice),
    type: hex(TYPES[receipt.type]),
    status: hex(receipt.status === "success" ? 1 : 0),
    logsBloom: receipt.logsBloom,
    logs: receipt.logs.map(log),
});

const transaction = (transaction) => ({
    hash: transaction.hash,
    blockNumber: hex(transaction.blockNumber),
    blockHash: transaction.blockHash,
    transactionIndex: hex(transaction.transactionIndex),
    from: low(transaction.from),
    to: low(transaction.to),
    nonce: hex(transaction.nonce),
    value: hex(transaction.value),
    gas: hex(transaction.gas),
    input: transaction.input,
    type: transaction.typeHex,
});

const block = (block, full) =>
    forms.block(block, full ? block.transactions.map(transaction) : block.transactions);

async function answer(client, question) {
    switch (question.ask) {
        case "chainId":
            return hex(await client.getChainId());
        case "blockNumber":
            return hex(await client.getBlockNumber({ cacheTime: 0 }));
        case "logs": {
            const { address, topics, fromBlock, toBlock, blockHash } = question.filter;
            // `getLogs` of viem takes events of an ABI in place of topics.
            if (topics) {
                const logs = await client.request({ method: "eth_getLogs", params: [question.filter] });
                return logs.map(log);
            }
            const range = blockHash ? { blockHash } : { fromBlock: number(fromBlock), toBlock: number(toBlock) };
            return (await client.getLogs({ address, ...range })).map(log);
        }
        case "transfers": {
            const { address, from, to, fromBlock, toBlock } = question;
            const range = { fromBlock: number(fromBlock), toBlock: number(toBlock) };
            const args = { from: from ?? undefined, to: to ?? undefined };
            return (await client.getLogs({ address, event: TRANSFER, args, ...range })).map(transfer);
        }
        case "receipt":
            return receipt(await client.getTransactionReceipt({ hash: question.hash }));
        case "block": {
            const at = question.hash ? { blockHash: question.hash } : { blockNumber: number(question.number) };
            const found = await client.getBlock({ ...at, includeTransactions: question.full });
            return block(found, question.full);
        }
        case "error":
            try {
                return await client.request({ method: question.method, params: question.params });
            } catch (error) {
                const { code, data } = error.walk((cause) => cause.name === "RpcRequestError");
                return { code, reason: data.reason };
            }
        default:
            return "unknown question";
    }
}

const ask = (httpUrl, wsUrl, file) => {
    const transports = { http: http(httpUrl), batches: http(httpUrl, { batch: true }), ws: webSocket(wsUrl) };
    const clients = Object.entries(transports).map(([via, transport]) => [via, createPublicClient({ transport })]);
    return forms.ask(file, Object.fromEntries(clients), answer);
};

async function watch(httpUrl, wsUrl, address) {
    const over = (transport) => createPublicClient({ transport, pollingInterval: 50 });
    const clients = { http: over(http(httpUrl)), ws: over(webSocket(wsUrl)) };
    const onError = (error) => print({ stream: "error", item: String(error) });
    for (const [via, client] of Object.entries(clients)) {
        const each = (stream) => (logs) => logs.forEach((found) => print({ stream, item: log(found) }));
        client.watchEvent({ onLogs: each(`${via} logs`), onError });
        client.watchEvent({ address, onLogs: each(`${via} logs of the address`), onError });
    }
    const head = ({ number, hash, parentHash }) => ({ number, hash, parentHash });
    const onData = ({ result }) => print({ stream: "ws heads", item: head(result) });
    await clients.ws.transport.subscribe({ params: ["newHeads"], onData, onError });
    const filter = await clients.http.createBlockFilter();
    for (;;) {
        const hashes = await clients.http.getFilterChanges({ filter });
        hashes.forEach((hash) => print({ stream: "http blocks", item: hash }));
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

forms.run({ ask, watch });
