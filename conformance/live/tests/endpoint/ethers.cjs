// ethers as a client of `eth serve`.
//
//   node ethers.cjs ask HTTP_URL WS_URL QUESTIONS    answers each question, by each transport
//   node ethers.cjs watch HTTP_URL WS_URL ADDRESS    prints what happens, until it is killed
//
// `JsonRpcProvider` sends calls in batches.
"use strict";
const { Contract, JsonRpcProvider, WebSocketProvider } = require("ethers");
const forms = require("./forms.cjs");
const { hex, low, print } = forms;

const TRANSFER = "event Transfer(address indexed from, address indexed to, uint256 value)";

const log = (found) => forms.log(found, found.index);
const transfer = (found) => forms.transfer(found, found.index);

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

const block = (block, full) =>
    forms.block(block, full ? block.prefetchedTransactions.map(transaction) : block.transactions);

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

const ask = (httpUrl, wsUrl, file) =>
    forms.ask(file, { http: new JsonRpcProvider(httpUrl), ws: new WebSocketProvider(wsUrl) }, answer);

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

forms.run({ ask, watch });
