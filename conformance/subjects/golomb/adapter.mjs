import Golomb from 'golomb';
import { serve, skip } from '../protocol.mjs';

const bytes = (hex) => Buffer.from(hex, 'hex');
const display = (hash) => Buffer.from(hash).reverse().toString('hex');
// The library knows no other M.
const fixedM = (m) => m === 784931 || skip(`M is 784931, not ${m}`);
const filterOf = ({ p, m, encoded }) => fixedM(m) && Golomb.fromNBytes(p, bytes(encoded));

serve({
  'gcs.build': ({ key, p, m, items }) => {
    fixedM(m);
    return { encoded: Golomb.fromItems(p, bytes(key), items.map(bytes)).toNBytes().toString('hex') };
  },
  // The only call that reads a filter takes the count, and does not decode the elements.
  'gcs.decode': (input) => ({ count: filterOf(input).n }),
  'gcs.match': (input) => ({ match: filterOf(input).match(bytes(input.key), bytes(input.item)) }),
  'gcs.match_any': (input) => {
    return { match: filterOf(input).matchAny(bytes(input.key), input.items.map(bytes)) };
  },
  'bip157.header': ({ filter, previous_header_display }) => {
    const gcs = Golomb.fromRaw(bytes(filter));
    const previous = bytes(previous_header_display).reverse();
    return { filter_hash_display: display(gcs.hash()), filter_header_display: display(gcs.header(previous)) };
  },
}, {
  // Bytes that end early, and assertions with a text of their own.
  isRefusal: (e) => e.type === 'EncodingError' || (e.code === 'ERR_ASSERTION' && !e.generatedMessage),
});
