import bitcore from 'bitcore-lib';
import { serve, Invalid } from '../protocol.mjs';

const { MerkleBlock, Opcode, Script, errors } = bitcore;
const bytes = (hex) => Buffer.from(hex, 'hex');
const script = (input) => Script.fromBuffer(bytes(input.script));

serve({
  // The library gives ids, and not their places: those are the positions in its own walk.
  'bip37.merkleblock': ({ merkleblock }) => {
    const block = MerkleBlock.fromBuffer(bytes(merkleblock));
    if (!block.validMerkleTree()) throw new Invalid('validMerkleTree() is false');
    const places = [];
    const walk = block._traverseMerkleTree;
    block._traverseMerkleTree = function (depth, place, state, ...rest) {
      const before = state.txs?.length ?? 0;
      const result = walk.call(this, depth, place, state, ...rest);
      if (depth === 0 && state.txs.length > before) places.push(place);
      return result;
    };
    const ids = block.filterdTxsHash();
    return { matches: ids.map((id, at) => [places[at], bytes(id).reverse().toString('hex')]) };
  },
  'script.pushes': (input) => {
    const data = script(input).chunks.filter((chunk) => chunk.opcodenum <= Opcode.OP_PUSHDATA4 && chunk.buf?.length);
    return { pushes: data.map((chunk) => chunk.buf.toString('hex')), well_formed: true };
  },
  'script.kind': (input) => {
    const read = script(input);
    return { kind: read.isPublicKeyOut() ? 'pubkey' : read.isMultisigOut() ? 'multisig' : 'other' };
  },
}, {
  // Its own classes, and its own texts. A RangeError of Node's Buffer is neither.
  isRefusal: (e) => e instanceof errors || e.constructor === Error,
});
