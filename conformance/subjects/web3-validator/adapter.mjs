import { isContractAddressInBloom, isTopicInBloom } from 'web3-validator';
import { serve } from '../protocol.mjs';

serve({
  'logsbloom.test': ({ bloom, kind, item }) => {
    const isIn = kind === 'topic' ? isTopicInBloom : isContractAddressInBloom;
    return { may_contain: isIn(`0x${bloom}`, `0x${item}`) };
  },
});
