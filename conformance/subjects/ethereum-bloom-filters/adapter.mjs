import { isContractAddressInBloom, isTopicInBloom } from 'ethereum-bloom-filters';
import { serve } from '../protocol.mjs';

serve({
  'logsbloom.test': ({ bloom, kind, item }) => {
    const test = { address: isContractAddressInBloom, topic: isTopicInBloom }[kind];
    return { may_contain: test(`0x${bloom}`, `0x${item}`) };
  },
}, {
  // The library throws plain errors: "Invalid bloom given", "Invalid topic", …
  isRefusal: (e) => e.constructor === Error,
});
