//! Filters of altered blocks, with filter headers that match them.

use std::collections::HashMap;

use chainsieve::bitcoin::bip158::{FilterHash, FilterHeader};
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_filter::{CFCheckpt, CFHeaders, CFilter};
use chainsieve::bitcoin::{Block, BlockHash, Network, OutPoint, ScriptBuf};
use chainsieve::btc::bip157::{BASIC_FILTER, CHECKPOINT_INTERVAL};
use chainsieve::btc::bip158::{BlockFilter, BuildError};

use super::proxy::{Fate, Rule, Sender};
use crate::serve::Count;

/// The filters of a chain, some of which are made from altered blocks. The filters are sent with
/// matching filter headers, so that the lie is consistent in itself.
#[derive(Debug)]
pub struct FalseFilters {
    heights: HashMap<BlockHash, usize>,
    contents: Vec<Vec<u8>>,
    hashes: Vec<FilterHash>,
    headers: Vec<FilterHeader>,
}

impl FalseFilters {
    /// Builds the filters for `blocks`, which start at height 1. `lie` gets each block with its
    /// height, and changes the block from which the filter is made.
    ///
    /// # Errors
    /// Returns an error if a block spends an output that no block before it creates.
    pub fn new(
        network: Network,
        blocks: impl IntoIterator<Item = Block>,
        mut lie: impl FnMut(usize, &mut Block),
    ) -> Result<Self, BuildError> {
        let mut scripts: HashMap<OutPoint, ScriptBuf> = HashMap::new();
        let mut filters = Self {
            heights: HashMap::new(),
            contents: Vec::new(),
            hashes: Vec::new(),
            headers: Vec::new(),
        };
        let mut before = FilterHeader::all_zeros();
        let all = std::iter::once(genesis_block(network)).chain(blocks);
        for (height, mut block) in all.enumerate() {
            let header = block.header;
            for tx in &block.txdata {
                let txid = tx.compute_txid();
                for (vout, output) in (0..).zip(&tx.output) {
                    scripts.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
                }
            }
            lie(height, &mut block);
            // The key of the filter is still derived from the real block.
            block.header = header;
            let filter = BlockFilter::new(&block, |outpoint| scripts.get(outpoint).cloned())?;
            before = filter.filter_header(&before);
            filters.heights.insert(header.block_hash(), height);
            filters.hashes.push(filter.filter_hash());
            filters.headers.push(before);
            filters.contents.push(filter.content);
        }
        Ok(filters)
    }

    /// Returns a rule that replaces a node's filters and filter headers by the false ones.
    pub fn rule(self, lies: Count) -> Rule {
        Box::new(move |letter| {
            let told = match letter.message {
                NetworkMessage::CFHeaders(message) => self.cfheaders(message),
                NetworkMessage::CFCheckpt(message) => self.cfcheckpt(message),
                NetworkMessage::CFilter(message) => self.cfilter(message),
                _ => None,
            };
            match told {
                Some(told) if letter.sender == Sender::Node && told != *letter.message => {
                    lies.add_one();
                    Fate::Instead(vec![told])
                }
                _ => Fate::Pass,
            }
        })
    }

    fn cfheaders(&self, message: &CFHeaders) -> Option<NetworkMessage> {
        let stop = *self.heights.get(&message.stop_hash)?;
        let start = (stop + 1).checked_sub(message.filter_hashes.len())?;
        let previous = start.checked_sub(1).map(|height| self.headers[height]);
        Some(NetworkMessage::CFHeaders(CFHeaders {
            previous_filter_header: previous.unwrap_or_else(FilterHeader::all_zeros),
            filter_hashes: self.hashes[start..=stop].to_vec(),
            ..message.clone()
        }))
    }

    fn cfcheckpt(&self, message: &CFCheckpt) -> Option<NetworkMessage> {
        let stop = *self.heights.get(&message.stop_hash)?;
        let headers = self.headers[..=stop].iter().step_by(CHECKPOINT_INTERVAL as usize).skip(1);
        let filter_headers = headers.copied().collect();
        Some(NetworkMessage::CFCheckpt(CFCheckpt { filter_headers, ..message.clone() }))
    }

    fn cfilter(&self, message: &CFilter) -> Option<NetworkMessage> {
        let height = *self.heights.get(&message.block_hash)?;
        let filter = self.contents[height].clone();
        let (filter_type, block_hash) = (BASIC_FILTER, message.block_hash);
        Some(NetworkMessage::CFilter(CFilter { filter_type, block_hash, filter }))
    }
}
