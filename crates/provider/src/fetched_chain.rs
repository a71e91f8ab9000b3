//! Fetches the headers of a node and links them to a chain, even if the node's chain is reorganised
//! meanwhile.

use std::ops::RangeInclusive;

use chainsieve::eth::header::{ChainError, HeaderBuf, Linked, LinkedHeaders};

use crate::error::FetchError;
use crate::held::Held;
use crate::node::{Node, RpcError};
use crate::note::{Note, Stage};

/// Maximum number of attempts to fetch a chain that is reorganised meanwhile.
const TRIES: u32 = 6;
/// If a header is not a child of the header before it, this many earlier blocks are fetched again.
/// Each further attempt goes back four times as far, so that deep reorganisations need few
/// attempts.
const STEP_BACK: u64 = 8;

/// A chain of linked headers of consecutive blocks.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct FetchedChain {
    /// The linked headers.
    pub chain: LinkedHeaders,
    /// The RLP of each header, if evidence is kept.
    pub rlp: Option<Vec<Vec<u8>>>,
    held: Held,
}

/// Reason why headers could not be fetched and linked.
enum Failed {
    Rpc(RpcError),
    /// The header with this number is not a child of the header before it.
    Misfit(u64, ChainError),
    TooMuch(FetchError),
}

impl From<RpcError> for Failed {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl FetchedChain {
    /// Creates an empty chain. `keep_rlp` sets whether the RLP of headers is kept.
    pub fn new(keep_rlp: bool) -> Self {
        Self { rlp: keep_rlp.then(Vec::new), ..Self::default() }
    }

    /// Fetches the headers of these blocks from a node, and links them to the chain.
    ///
    /// If the node's chain was reorganised meanwhile, or since the earlier headers of this chain
    /// were fetched, earlier blocks are fetched again, as far back as necessary. `progress` sets
    /// whether progress is reported by notes.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if a request fails, if a limit is exceeded, or if the headers still
    /// form no chain after six attempts.
    pub fn fetch(
        &mut self,
        node: &Node,
        blocks: RangeInclusive<u64>,
        progress: bool,
    ) -> Result<(), FetchError> {
        let (first, last) = blocks.into_inner();
        let bottom = self.chain.numbers().map_or(first, |numbers| *numbers.start());
        let total = last.saturating_sub(bottom).saturating_add(1);
        let mut from = first;
        for tries in 1.. {
            let fetched = node.headers(from..=last, |headers| {
                for header in &headers {
                    self.link(node, header)?;
                }
                // A scan fetches its chain in parts and reports the progress over all parts itself.
                if let Some(header) = headers.last().filter(|_| progress) {
                    let done = header.view().number().saturating_sub(bottom).saturating_add(1);
                    node.note(&Note::Progress { stage: Stage::Headers, done, total });
                }
                Ok::<_, Failed>(())
            });
            let (block, error) = match fetched {
                Ok(()) => break,
                Err(Failed::Misfit(block, error)) => (block, error),
                Err(Failed::Rpc(error)) => {
                    return Err(FetchError::rpc(node.name(), "headers", error));
                }
                Err(Failed::TooMuch(error)) => return Err(error),
            };
            if tries == TRIES {
                return Err(FetchError::NoOneChain { node: node.name(), block, error, tries });
            }
            let back = STEP_BACK << (2 * (tries - 1));
            from = block.saturating_sub(back).max(bottom);
            node.note(&Note::Reorganized { block, from });
            if from == bottom {
                // The reorganisation may have replaced the first block too.
                *self = Self::new(self.rlp.is_some());
            }
        }
        Ok(())
    }

    fn link(&mut self, node: &Node, header: &HeaderBuf) -> Result<(), Failed> {
        let view = header.view();
        let linked = self.chain.push(&view);
        let linked = linked.map_err(|error| Failed::Misfit(view.number(), error))?;
        if let Some(rlp) = &mut self.rlp {
            if let Linked::Reorganised { removed } = &linked {
                let left = rlp.drain(rlp.len().saturating_sub(removed.len())..);
                self.held.sub(left.as_slice().iter().map(|rlp| rlp.len() as u64).sum());
            }
            if linked != Linked::Known {
                let bytes = header.rlp().len() as u64;
                self.held.add(node, "headers", bytes).map_err(Failed::TooMuch)?;
                rlp.push(header.rlp().to_vec());
            }
        }
        Ok(())
    }
}
