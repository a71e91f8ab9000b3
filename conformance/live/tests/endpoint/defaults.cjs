// viem and ethers with their defaults as clients of `eth serve --unverified pass`.
//
//   node defaults.cjs ask LIBRARY HTTP_URL WS_URL ADDRESS    many calls at once, proven ones and others
//   node defaults.cjs follow LIBRARY WS_URL                  prints the numbers of new blocks, until it is killed
"use strict";
const { JsonRpcProvider, WebSocketProvider } = require("ethers");
const { createPublicClient, http, webSocket } = require("viem");
const { hex, print, run } = require("./forms.cjs");

// Numbers of this many blocks, each by a call of its own.
const MANY = 150;
const numbers = [...Array(MANY).keys()];

async function viem(via, transport, address) {
    const client = createPublicClient({ transport });
    const blocks = await Promise.all(numbers.map((number) => client.getBlock({ blockNumber: BigInt(number % 20) })));
    const [balance, nonce, code, price] = await Promise.all([
        client.getBalance({ address }),
        client.getTransactionCount({ address }),
        client.getCode({ address }),
        client.getGasPrice(),
    ]);
    print({ via, blocks: blocks.map(({ hash }) => hash), balance: hex(balance), nonce: hex(nonce), code: code ?? "0x", price: hex(price) });
}

async function ethers(via, provider, address) {
    const blocks = await Promise.all(numbers.map((number) => provider.getBlock(number % 20)));
    const [balance, nonce, code, { gasPrice }] = await Promise.all([
        provider.getBalance(address),
        provider.getTransactionCount(address),
        provider.getCode(address),
        provider.getFeeData(),
    ]);
    print({ via, blocks: blocks.map(({ hash }) => hash), balance: hex(balance), nonce: hex(nonce), code, price: hex(gasPrice) });
}

async function ask(library, httpUrl, wsUrl, address) {
    if (library === "viem") {
        await viem("http", http(httpUrl), address);
        await viem("batches", http(httpUrl, { batch: true }), address);
        await viem("ws", webSocket(wsUrl), address);
    } else {
        await ethers("http", new JsonRpcProvider(httpUrl), address);
        await ethers("ws", new WebSocketProvider(wsUrl), address);
    }
    process.exit();
}

// ethers leaves it to its user to connect again.
function connect(wsUrl) {
    const provider = new WebSocketProvider(wsUrl);
    provider.on("block", (number) => print({ number }));
    provider.websocket.onclose = () => {
        print({ closed: true });
        setTimeout(connect, 100, wsUrl);
    };
}

async function follow(library, wsUrl) {
    if (library === "viem") {
        const client = createPublicClient({ transport: webSocket(wsUrl) });
        const onBlockNumber = (number) => print({ number: Number(number) });
        client.watchBlockNumber({ onBlockNumber, onError: () => print({ closed: true }) });
    } else {
        connect(wsUrl);
    }
}

run({ ask, follow });
