import Filter from 'bloom-filter';
import { Invalid, serve } from '../protocol.mjs';

// The library has no encoding of a filterload payload: a filter is an object of numbers. These two
// functions read and write a payload, for the areas whose filters are given as one.
function filterOf(payload) {
  const b = Buffer.from(payload, 'hex');
  const wide = { 0xfd: 2, 0xfe: 4 }[b[0]] ?? 0; // bytes of the length that follow the first
  const start = 1 + wide;
  const end = start + (wide ? b.readUIntLE(1, wide) : b[0]);
  const parts = { vData: [...b.subarray(start, end)], nHashFuncs: b.readUInt32LE(end),
    nTweak: b.readUInt32LE(end + 4), nFlags: b.readUInt8(end + 8) };
  try {
    return new Filter(parts);
  } catch (e) {
    throw new Invalid(e.message); // The constructor checks the parts, and throws a TypeError.
  }
}
function payloadOf({ vData, nHashFuncs, nTweak, nFlags }) {
  const n = vData.length;
  const head = n < 0xfd ? [n] : n <= 0xffff ? [0xfd, n & 255, n >> 8] : [0xfe, n & 255, n >> 8 & 255, n >> 16, 0];
  const tail = Buffer.alloc(9);
  tail.writeUInt32LE(nHashFuncs, 0);
  tail.writeUInt32LE(nTweak, 4);
  tail[8] = nFlags;
  return Buffer.concat([Buffer.from(head), Buffer.from(vData), tail]).toString('hex');
}

serve({
  'bip37.murmur3': ({ seed, data }) => ({ hash: Filter.MurmurHash3(seed, Buffer.from(data, 'hex')) }),
  'bip37.sizing': ({ elements, fpr }) => {
    const { vData, nHashFuncs } = Filter.create(elements, Number(fpr), 0, Filter.BLOOM_UPDATE_NONE);
    return { bytes: vData.length, hash_funcs: nHashFuncs };
  },
  'bip37.insert': ({ filter, insert }) => {
    const f = filterOf(filter);
    for (const item of insert) f.insert(Buffer.from(item, 'hex'));
    return { filter: payloadOf(f) };
  },
  'bip37.contains': ({ filter, data }) => {
    return { contains: filterOf(filter).contains(Buffer.from(data, 'hex')) };
  },
});
