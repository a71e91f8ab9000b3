// The form in which the JavaScript clients of `eth serve` print answers and events: a line of JSON for
// each, in the form of JSON-RPC, so that the caller compares them with the node's JSON.
"use strict";
const { readFileSync } = require("node:fs");

const print = (value) => console.log(JSON.stringify(value));
const hex = (number) => (number === null || number === undefined ? null : `0x${BigInt(number).toString(16)}`);
const low = (address) => (address ? address.toLowerCase() : null);

// A log. Clients have different names for its index.
const log = (log, index) => ({
    address: low(log.address),
    topics: log.topics,
    data: log.data,
    blockNumber: hex(log.blockNumber),
    blockHash: log.blockHash,
    transactionHash: log.transactionHash,
    transactionIndex: hex(log.transactionIndex),
    logIndex: hex(index),
    removed: log.removed,
});

// A decoded event of a transfer.
const transfer = (found, index) => {
    const { address, blockNumber, blockHash, transactionHash, transactionIndex, logIndex } = log(found, index);
    const { from, to, value } = found.args;
    const args = { from: low(from), to: low(to), value: hex(value) };
    return { address, blockNumber, blockHash, transactionHash, transactionIndex, logIndex, ...args };
};

// A block. `transactions` are its hashes, or its transactions.
const block = (block, transactions) => ({
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
    transactions,
});

// Asks the questions of a file, by each of the transports, and prints the answers.
async function ask(file, clients, answer) {
    const questions = JSON.parse(readFileSync(file, "utf8"));
    for (const [via, client] of Object.entries(clients)) {
        const answered = async (question, index) =>
            print({ via, index, answer: await answer(client, question).catch((error) => `failed: ${error}`) });
        // The endpoint works on 128 calls at the same time, and refuses more.
        for (let first = 0; first < questions.length; first += 50) {
            const some = questions.slice(first, first + 50);
            await Promise.all(some.map((question, index) => answered(question, first + index)));
        }
    }
    process.exit();
}

// Runs the task that the command line names.
function run(tasks) {
    const [task, ...rest] = process.argv.slice(2);
    tasks[task](...rest).catch((error) => {
        console.error(error);
        process.exit(1);
    });
}

module.exports = { ask, block, hex, log, low, print, run, transfer };
