import { createMPT } from '@ethereumjs/mpt';
import { RLP } from '@ethereumjs/rlp';
import { bytesToUnprefixedHex, unprefixedHexToBytes as bytes } from '@ethereumjs/util';
import { Bloom, encodeReceipt } from '@ethereumjs/vm';
import { serve } from '../protocol.mjs';

/** Adds addresses and topics to a bloom, as the virtual machine does after a transaction. */
function bloomOf(logs) {
  const bloom = new Bloom();
  for (const { address, topics } of logs) for (const item of [address, ...topics]) bloom.add(bytes(item));
  return bloom.bitvector;
}

serve({
  'logsbloom.build': ({ logs }) => ({ bloom: bytesToUnprefixedHex(bloomOf(logs)) }),
  'logsbloom.test': ({ bloom, item }) => ({ may_contain: new Bloom(bytes(bloom)).check(bytes(item)) }),
  'receipts.encode': ({ receipt: { type, status, post_state, cumulative_gas, logs } }) => {
    const receipt = {
      ...(post_state === undefined ? { status } : { stateRoot: bytes(post_state) }),
      cumulativeBlockGasUsed: BigInt(cumulative_gas),
      bitvector: bloomOf(logs),
      logs: logs.map(({ address, topics, data }) => [bytes(address), topics.map(bytes), bytes(data)]),
    };
    return { encoded: bytesToUnprefixedHex(encodeReceipt(receipt, type)) };
  },
  // The virtual machine puts receipts into a trie in this way when it runs a block.
  'receipts.root': async ({ receipts }) => {
    const trie = await createMPT();
    for (const [i, receipt] of receipts.entries()) await trie.put(RLP.encode(i), bytes(receipt));
    return { root: bytesToUnprefixedHex(trie.root()) };
  },
}, {
  // The library's own error, which it throws for a bloom of a wrong length.
  isRefusal: (e) => e.constructor.name === 'EthereumJSError',
});
