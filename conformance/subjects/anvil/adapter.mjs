import { serveNode } from '../node.mjs';

const program = 'node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil';
await serveNode((port) => [program, '--host', '127.0.0.1', '--port', port, '--silent']);
