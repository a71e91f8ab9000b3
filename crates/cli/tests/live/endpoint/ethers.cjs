// ethers as a client of `eth serve`.
//
//   node ethers.cjs ask HTTP_URL WS_URL QUESTIONS    answers each question, by each transport
//   node ethers.cjs watch HTTP_URL WS_URL ADDRESS    prints what happens, until it is killed
//
// Prints a line of JSON for each answer or event. The objects of ethers are written in the form of
// JSON-RPC, so that the caller compares them with the node's JSON. `JsonRpcProvider` sends calls in
// batches.
"use strict";
const { readFileSync } = require("node:fs");
const { Contract, JsonRpcProvider, WebSocketProvider } = require("ethers");

const TRANSFER = "event Transfer(address indexed from, address indexed to, uint256 value)";

const print = (value) => console.log(JSON.stringify(value));
const hex = (number) => (number === null || number === undefined ? null : `0x${BigInt(number).toString(16)}`);
const low = (address) => (address ? address.toLowerCase() : null);

const log = (log) => ({
    address: low(log.address),
    topics: log.topics,
    data: log.data,
    blockNumber: hex(log.blockNumber),
    blockHash: log.blockHash,
    transactionHash: log.transactionHash,
    transactionIndex: hex(log.transactionIndex),
    logIndex: hex(log.index),
    removed: log.removed,
});

const transfer = (found) => {
    const { address, blockNumber, blockHash, transactionHash, transactionIndex, logIndex } = log(found);
    const { from, to, value } = found.args;
    const args = { from: low(from), to: low(to), value: hex(value) };
    return { address, blockNumber, blockHash, transactionHash, transactionIndex, logIndex, ...args };
};

const receipt = (receipt) => ({
    transactionHash: receipt.hash,
    transactionIndex: hex(receipt.index),
    blockHash: receipt.blockHash,
    blockNumber: hex(receipt.blockNumber),
    from: low(receipt.from),
    to: low(receipt.to),
    contractAddress: low(receipt.contractAddress),
    gasUsed: hex(receipt.gasUsed),
    cumulativeGasUsed: hex(receipt.cumulativeGasUsed),
    effectiveGasPrice: hex(receipt.gasPrice),
    type: hex(receipt.type),
    status: hex(receipt.status),
    logsBloom: receipt.logsBloom,
    // ethers does not read `removed` in receipts, where it is always false.
    logs: receipt.logs.map((found) => ({ ...log(found), removed: false })),
});

const transaction = (transaction) => ({
    hash: transaction.hash,
    blockNumber: hex(transaction.blockNumber),
    blockHash: transaction.blockHash,
    transactionIndex: hex(transaction.index),
    from: low(transaction.from),
    to: low(transaction.to),
    nonce: hex(transaction.nonce),
    value: hex(transaction.value),
    gas: hex(transaction.gasLimit),
    input: transaction.data,
    type: hex(transaction.type),
});

const block = (block, full) => ({
    number: hex(block.number),
    hash: block.hash,
    parentHash: block.parentHash,
    timestamp: hex(block.timestamp),
    gasLimit: hex(block.gasLimit),
    gasUsed: hex(block.gasUsed),
    baseFeePerGas: hex(block.baseFeePerGas),
    miner: low(block.miner),
    extraData: block.extraData,
    stateRoot: block.stateRoot,
    receiptsRoot: block.receiptsRoot,
    transactions: full ? block.prefetchedTransactions.map(transaction) : block.transactions,
});

async function answer(provider, question) {
    switch (question.ask) {
        case "chainId":
            return hex((await provider.getNetwork()).chainId);
        case "blockNumber":
            return hex(await provider.getBlockNumber());
        case "logs":
            return (await provider.getLogs(question.filter)).map(log);
        case "transfers": {
            const contract = new Contract(question.address, [TRANSFER], provider);
            const event = contract.filters.Transfer(question.from, question.to);
            return (await contract.queryFilter(event, question.fromBlock, question.toBlock)).map(transfer);
        }
        case "receipt":
            return receipt(await provider.getTransactionReceipt(question.hash));
        case "block":
            return block(await provider.getBlock(question.hash ?? question.number, question.full), question.full);
        case "error":
            try {
                return await provider.send(question.method, question.params);
            } catch (error) {
                const { code, data } = error.error ?? error.info.error;
                return { code, reason: data.reason };
            }
        default:
            return "unknown question";
    }
}

async function ask(httpUrl, wsUrl, file) {
    const questions = JSON.parse(readFileSync(file, "utf8"));
    const providers = { http: new JsonRpcProvider(httpUrl), ws: new WebSocketProvider(wsUrl) };
    for (const [via, provider] of Object.entries(providers)) {
        const answered = async (question, index) =>
            print({ via, index, answer: await answer(provider, question).catch((error) => `failed: ${error}`) });
        // The endpoint works on 128 calls at the same time, and refuses more.
        for (let first = 0; first < questions.length; first += 50) {
            const some = questions.slice(first, first + 50);
            await Promise.all(some.map((question, index) => answered(question, first + index)));
        }
    }
    process.exit();
}

async function watch(httpUrl, wsUrl, address) {
    const options = { pollingInterval: 50 };
    const providers = { http: new JsonRpcProvider(httpUrl, undefined, options), ws: new WebSocketProvider(wsUrl) };
    for (const [via, provider] of Object.entries(providers)) {
        const each = (stream) => (found) => print({ stream, item: log(found) });
        provider.on({ topics: [] }, each(`${via} logs`));
        provider.on({ address }, each(`${via} logs of the address`));
        provider.on("block", (number) => print({ stream: `${via} numbers`, item: hex(number) }));
        provider.on("error", (error) => print({ stream: "error", item: String(error) }));
    }
}

const [task, ...rest] = process.argv.slice(2);
const done = task === "ask" ? ask(...rest) : watch(...rest);
done.catch((error) => {
    console.error(error);
    process.exit(1);
});
