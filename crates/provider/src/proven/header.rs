//! Headers, by the hash of their block.

use std::sync::Arc;

use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::header::{BlockRef, ChainBlock, HeaderBuf};

use super::kept::{Flights, Kept, Kind, Size, kept};
use super::source::Source;
use crate::nodes::Node;
use crate::nodes::ask::{Unanswered, ask, ask_if_any};

/// The header of a block.
#[derive(Debug, Clone)]
pub(crate) struct BlockHeader {
    pub(crate) at: BlockRef,
    pub(crate) header: HeaderBuf,
}

impl BlockHeader {
    pub(crate) fn new(header: HeaderBuf) -> Self {
        Self { at: BlockRef::from(&header), header }
    }
}

impl<'a> From<&'a BlockHeader> for ChainBlock<'a> {
    fn from(block: &'a BlockHeader) -> Self {
        Self::from(&block.header)
    }
}

impl Size for Arc<BlockHeader> {
    fn size(&self) -> u64 {
        self.header.rlp().len() as u64 + 100
    }
}

/// Headers in memory, and headers that are being fetched. The hash proves a header, but not that its
/// block is on the chain.
#[derive(Debug)]
pub(super) struct Headers {
    kept: Kept<B256, Arc<BlockHeader>>,
    in_flight: Flights<(B256, bool), Result<Arc<BlockHeader>, Unanswered>>,
}

impl Headers {
    pub(super) fn new(bytes: u64) -> Self {
        Self { kept: kept(bytes), in_flight: Flights::new() }
    }

    /// `exists` is `true` if the block is known to exist. Nodes that fail are then asked again, even if
    /// another node answers that it does not have the block.
    pub(super) fn get(
        &self,
        source: &Source,
        hash: B256,
        exists: bool,
    ) -> Result<Arc<BlockHeader>, Unanswered> {
        if let Some(known) = self.kept.get(&hash) {
            return Ok(known);
        }
        self.in_flight.run(&(hash, exists), || {
            // A flight that ended since the look above leaves its header in memory.
            if let Some(known) = self.kept.get(&hash) {
                return Ok(known);
            }
            let stored = source.stored(Kind::Header, hash, |mut encodings| {
                HeaderBuf::from_rlp(encodings.pop()?).ok().filter(|header| header.hash() == hash)
            });
            let header = match stored {
                Some(header) => header,
                None => fetch(source, hash, exists)?,
            };
            let block = Arc::new(BlockHeader::new(header));
            self.kept.insert(hash, Arc::clone(&block));
            Ok(block)
        })
    }
}

fn fetch(source: &Source, hash: B256, exists: bool) -> Result<HeaderBuf, Unanswered> {
    let by_hash = |node: &Node| Ok(node.header_by_hash(hash)?);
    let nodes = &source.nodes;
    let header = if exists { ask(nodes, by_hash) } else { ask_if_any(nodes, by_hash) }?;
    source.put(Kind::Header, hash, || Some([Bytes::copy_from_slice(header.rlp())]));
    Ok(header)
}
