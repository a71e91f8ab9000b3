// ox builds no blooms, encodes no receipts and matches no logs: it has the test alone.
import { Bloom, Errors } from 'ox';
import { serve } from '../protocol.mjs';

serve({
  'logsbloom.test': ({ bloom, item }) => ({ may_contain: Bloom.contains(`0x${bloom}`, `0x${item}`) }),
}, { isRefusal: (e) => e instanceof Errors.BaseError });
