import { serveNode } from '../node.mjs';

const program = 'node_modules/hardhat/internal/cli/bootstrap.js';
const cache = `${process.cwd()}/node_modules/.cache`;
await serveNode((port) => [process.execPath, program, 'node', '--hostname', '127.0.0.1', '--port', port], {
  HARDHAT_DISABLE_TELEMETRY_PROMPT: 'true',
  // hardhat writes its own files below these folders, and otherwise below the home folder.
  XDG_CACHE_HOME: cache, XDG_CONFIG_HOME: cache, XDG_DATA_HOME: cache, XDG_STATE_HOME: cache,
});
