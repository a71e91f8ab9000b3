import { serveNode } from '../node.mjs';

const program = 'node_modules/ganache/dist/node/cli.js';
await serveNode((port) => [process.execPath, program, '--server.host', '127.0.0.1', '--server.port', port]);
