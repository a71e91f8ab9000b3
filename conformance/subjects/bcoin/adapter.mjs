// bcoin has no Golomb-coded sets: its authors publish them as the package golomb.
import bcoin from 'bcoin';
import { BloomFilter } from 'bfilter'; // bcoin's own dependencies, as its network code imports them.
import murmur3 from 'mrmr';
import { Invalid, serve } from '../protocol.mjs';

const { Block, MerkleBlock, Script } = bcoin;
const bytes = (hex) => Buffer.from(hex, 'hex');
const filterOf = (payload) => BloomFilter.fromRaw(bytes(payload));

serve({
  'bip37.murmur3': ({ seed, data }) => ({ hash: murmur3.sum(bytes(data), seed) }),
  'bip37.sizing': ({ elements, fpr }) => {
    const filter = BloomFilter.fromRate(elements, Number(fpr), 'none');
    return { bytes: filter.filter.length, hash_funcs: filter.n };
  },
  'bip37.filterload': ({ payload }) => {
    const f = filterOf(payload);
    return { data: f.filter.toString('hex'), hash_funcs: f.n, tweak: f.tweak, flags: f.update,
      within_limits: f.isWithinConstraints() };
  },
  'bip37.insert': ({ filter, insert }) => {
    const f = filterOf(filter);
    for (const item of insert) f.add(bytes(item));
    return { filter: f.toRaw().toString('hex') };
  },
  'bip37.contains': ({ filter, data }) => ({ contains: filterOf(filter).test(bytes(data)) }),
  'bip37.match': ({ filter, block }) => {
    const f = filterOf(filter);
    const watched = Block.fromRaw(bytes(block)).txs.map((tx) => tx.isWatched(f));
    return { matched: [...watched.keys()].filter((i) => watched[i]), filter_after: f.toRaw().toString('hex') };
  },
  'bip37.merkleblock_build': ({ block, matched }) => {
    const b = Block.fromRaw(bytes(block));
    const bits = b.txs.map((_, i) => Number(matched.includes(i)));
    return { merkleblock: MerkleBlock.fromMatches(b, bits).toRaw().toString('hex') };
  },
  'bip37.merkleblock': ({ merkleblock }) => {
    const m = MerkleBlock.fromRaw(bytes(merkleblock));
    const [valid, reason] = m.checkBody();
    if (!valid) throw new Invalid(reason);
    const { indexes, matches } = m.getTree();
    return { matches: indexes.map((index, i) => [index, Buffer.from(matches[i]).reverse().toString('hex')]) };
  },
  // `code` holds the operations; Script.test reads it in the same way, up to a malformed operation.
  'script.pushes': ({ script }) => {
    const { code } = Script.fromRaw(bytes(script));
    const bad = code.findIndex((op) => op.value === -1);
    const pushes = code.slice(0, bad < 0 ? undefined : bad).filter((op) => op.data?.length);
    return { pushes: pushes.map((op) => op.data.toString('hex')), well_formed: bad < 0 };
  },
  'script.kind': ({ script }) => {
    const s = Script.fromRaw(bytes(script));
    return { kind: s.isPubkey() ? 'pubkey' : s.isMultisig() ? 'multisig' : 'other' };
  },
}, {
  // Bytes that end early; assertions with a text of their own, by which bcoin checks arguments and
  // flags. An assertion without one is about bcoin's own state.
  isRefusal: (e) => e.type === 'EncodingError' || (e.code === 'ERR_ASSERTION' && !e.generatedMessage),
});
