// Starts an Ethereum node for the area `logs.node`, and answers the runner as any subject does.
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { serve } from './protocol.mjs';

// Ends the node when the pipe on standard input closes. The system closes it when the adapter ends,
// in whatever way, so that no node is left behind when the adapter is killed.
const GUARD = '"$@" </dev/null >/dev/null & read -r _; kill -9 $!';

/** Returns a TCP port of the loopback interface that is free now. */
const freePort = () => new Promise((resolve, reject) => {
  const server = createServer().on('error', reject).listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

/** Starts the command that `command` returns for a port, and serves until the runner stops. */
export async function serveNode(command, env = {}) {
  const port = await freePort();
  const rpc = `http://127.0.0.1:${port}`;
  const guard = spawn('bash', ['-c', GUARD, 'guard', ...command(port).map(String)], {
    stdio: ['pipe', 'ignore', 'inherit'], env: { ...process.env, ...env },
  });
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] });
  const headers = { 'content-type': 'application/json' };
  const until = Date.now() + 60_000;
  while (!await fetch(rpc, { method: 'POST', headers, body }).then((r) => r.ok, () => false)) {
    if (Date.now() > until) throw new Error(`${command(port)[0]} does not answer eth_chainId`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  // The runner asks the node itself; the adapter is asked nothing but `start` and `stop`.
  await serve({ 'logs.node': () => ({}) }, { extra: { rpc } });
  guard.stdin.end();
}
