//! Chains of links from a believed statement to a block.
//!
//! A verifier starts from an [`Origin`]: the values that it believes, with a grade. Each [`Link`]
//! then leads from the last proven block to a further block. A link carries all bytes that its
//! check needs, so anyone who has the origin can check the chain again, without the party that
//! issued it.
//!
//! | link | from | to |
//! |---|---|---|
//! | [`Parents`](Link::Parents) | a block | an ancestor, by the parent hash of each header between |
//! | [`HistoryContract`](Link::HistoryContract) | a block | one of the 8,191 blocks before it |
//! | [`Summaries`](Link::Summaries) | the origin's beacon state | the list of historical summaries |
//! | [`HeaderProof`](Link::HeaderProof) | an embedded list, or the summaries | a block of any age |

use alloc::vec::Vec;
use core::fmt;

use alloy_primitives::{B256, Bytes};

use super::Grade;
use super::account_proof::{ProofNodes, StateProofError};
use super::header_proof::{HeaderProof, HeaderProofError, History, ProofKind, SummariesProof};
use super::history_contract;
use super::sync_committee::{Anchor, Checkpoint};
use crate::eth::header::{BlockRef, HeaderError, HeaderView};

/// The values that a verifier believes before the first link, with their grade.
///
/// The verifier supplies the origin. No part of it may come from the issuer of the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Origin {
    /// The grade of the two values below: how far they can be believed.
    pub grade: Grade,
    /// Hash of an execution block, or `None` if only the beacon state is trusted.
    pub block_hash: Option<B256>,
    /// Root of a beacon state, or `None` if only the block is trusted.
    pub beacon_state: Option<B256>,
    /// The checkpoint of the light client that provides these values; `None` for another origin.
    pub checkpoint: Option<Checkpoint>,
}

/// The origin that a light client provides: the execution block that a header binds, and the state
/// of the header. In Gloas, that execution block is the last execution block before the header.
impl From<&Anchor> for Origin {
    fn from(anchor: &Anchor) -> Self {
        Self {
            grade: anchor.grade(),
            block_hash: anchor.execution.bound_hash(),
            beacon_state: Some(anchor.beacon.state_root),
            checkpoint: Some(anchor.trust.checkpoint),
        }
    }
}

/// A step from the last proven block to a further block.
///
/// # JSON
/// `serde` writes and reads an object whose member `link` names the link, for example
/// `history_contract`. Bytes are hex with `0x`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "link", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Link {
    /// Headers that lead back from the last proven block.
    Parents {
        /// RLP of the headers: the first header is that of this block, and each further header is
        /// that of the parent of the preceding header's block. The link leads to the block of the
        /// last header.
        headers: Vec<Bytes>,
    },
    /// The hash of an earlier block, in the state of the last proven block.
    HistoryContract {
        /// RLP of the block's header.
        header: Bytes,
        /// Number of the earlier block.
        number: u64,
        /// Nodes of the state trie and of the contract's storage trie.
        nodes: ProofNodes,
    },
    /// The list of historical summaries in the origin's beacon state.
    Summaries(SummariesProof),
    /// A header that is part of the history.
    HeaderProof {
        /// RLP of the header.
        header: Bytes,
        /// The proof that its block is part of the chain.
        proof: HeaderProof,
    },
}

/// The kind of a link, without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkKind {
    /// Headers by parent hash, with the number of blocks from the first to the last.
    Parents {
        /// Number of blocks by which the link goes back.
        blocks: usize,
    },
    /// The history contract of EIP-2935.
    HistoryContract,
    /// Historical summaries under a beacon state.
    Summaries,
    /// A proof of a header.
    HeaderProof(ProofKind),
}

/// Writes a few words, for example `header proof (deneb_summaries)`.
impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parents { blocks: 0 } => f.write_str("the header itself"),
            Self::Parents { blocks: 1 } => f.write_str("1 parent hash"),
            Self::Parents { blocks } => write!(f, "{blocks} parent hashes"),
            Self::HistoryContract => f.write_str("history contract"),
            Self::Summaries => f.write_str("historical summaries"),
            Self::HeaderProof(kind) => write!(f, "header proof ({kind})"),
        }
    }
}

/// A block to which links lead from an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the grade tells how far the block can be believed"]
#[non_exhaustive]
pub struct Anchored {
    /// Hash of the block.
    pub hash: B256,
    /// Number of the block; `None` if no link names it, for example without links.
    pub number: Option<u64>,
    /// The grade of the block: how far it can be believed.
    pub grade: Grade,
    /// The links that prove the block, in order. Links before a header proof that does not use them
    /// are left out.
    pub by: Vec<LinkKind>,
    /// The checkpoint of the origin, if the block depends on the origin. The basis of the
    /// verifier's own list of summaries is not named.
    pub checkpoint: Option<Checkpoint>,
}

/// Reason why links do not lead to a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("link {link}: {problem}")]
#[non_exhaustive]
pub struct LinkError {
    /// Index of the link, from 0; the number of links if they end without a block.
    pub link: usize,
    /// Reason why the link is rejected.
    pub problem: LinkProblem,
}

/// Reason why a link is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkProblem {
    /// The link starts from a block, and no block is proven yet.
    #[error("no block is proven before it")]
    NoBlock,
    /// The link starts from a beacon state, but the origin has no beacon state.
    #[error("the origin has no beacon state")]
    NoBeaconState,
    /// A header is malformed.
    #[error("header {index}: {error}")]
    Header {
        /// Index of the header in the link.
        index: usize,
        /// The error of decoding.
        error: HeaderError,
    },
    /// A header is not the header of the expected block.
    #[error("header {index} hashes to {computed}, expected {expected}")]
    OtherHeader {
        /// Index of the header in the link.
        index: usize,
        /// Hash of the header.
        computed: B256,
        /// The hash that was proven before.
        expected: B256,
    },
    /// The link has no header.
    #[error("it has no header")]
    NoHeader,
    /// The history contract does not prove the block.
    #[error(transparent)]
    HistoryContract(StateProofError),
    /// The summaries are not in the beacon state, or the proof does not prove the header.
    #[error(transparent)]
    HeaderProof(HeaderProofError),
}

/// Verifies links from an origin to a block, one after the other, and returns the block.
///
/// `history` has the roots that the verifier knows without these links: [`Network::history`]. A
/// link with summaries replaces the summaries in it.
///
/// # Errors
/// Returns the first invalid link.
///
/// # Cost
/// In proportion to the bytes of the links. Nothing is kept but the list of summaries.
///
/// [`Network::history`]: super::network::Network::history
pub fn verify(links: &[Link], origin: &Origin, history: History) -> Result<Anchored, LinkError> {
    let mut verifier = LinkVerifier::new(*origin, history);
    links.iter().try_for_each(|link| verifier.follow(link))?;
    verifier.end()
}

/// Verifies links one after the other, as they arrive. [`verify`] does the same for a complete list
/// of links.
#[derive(Debug, Clone)]
pub struct LinkVerifier {
    origin: Origin,
    history: History,
    block: Option<Anchored>,
    /// `true` if the summaries come from a link.
    linked_summaries: bool,
    /// Number of valid links so far.
    links: usize,
}

impl LinkVerifier {
    /// Starts from the values that the verifier trusts, and the roots that it knows without links.
    pub fn new(origin: Origin, history: History) -> Self {
        let block = origin.block_hash.map(|hash| Anchored {
            hash,
            number: None,
            grade: origin.grade,
            by: Vec::new(),
            checkpoint: origin.checkpoint,
        });
        Self { origin, history, block, linked_summaries: false, links: 0 }
    }

    /// Returns the block to which the links lead so far: at first, the block of the origin; `None`
    /// if the origin has no block.
    pub const fn block(&self) -> Option<&Anchored> {
        self.block.as_ref()
    }

    /// Verifies the next link.
    ///
    /// # Errors
    /// Returns the reason why the link is invalid. The verifier is then as it was before, and
    /// another link can be tried.
    ///
    /// # Cost
    /// In proportion to the bytes of the link.
    pub fn follow(&mut self, link: &Link) -> Result<(), LinkError> {
        self.step(link).map_err(|problem| LinkError { link: self.links, problem })?;
        self.links += 1;
        Ok(())
    }

    /// Returns the block to which the links lead.
    ///
    /// # Errors
    /// Returns [`LinkProblem::NoBlock`] if the origin has no block, and no link shows one.
    pub fn end(self) -> Result<Anchored, LinkError> {
        self.block.ok_or(LinkError { link: self.links, problem: LinkProblem::NoBlock })
    }

    fn step(&mut self, link: &Link) -> Result<(), LinkProblem> {
        match link {
            Link::Parents { headers } => {
                let block = self.block.as_mut().ok_or(LinkProblem::NoBlock)?;
                let mut expected = block.hash;
                let mut last = None;
                for (index, rlp) in headers.iter().enumerate() {
                    let header = decode(rlp, index)?;
                    last = Some((check(&header, index, expected)?, header.number()));
                    expected = header.parent_hash();
                }
                let (hash, number) = last.ok_or(LinkProblem::NoHeader)?;
                (block.hash, block.number) = (hash, Some(number));
                let blocks = headers.len() - 1;
                if blocks > 0 {
                    block.grade = block.grade.of_ancestor();
                }
                block.by.push(LinkKind::Parents { blocks });
            }
            Link::HistoryContract { header, number, nodes } => {
                let block = self.block.as_mut().ok_or(LinkProblem::NoBlock)?;
                let header = decode(header, 0)?;
                check(&header, 0, block.hash)?;
                let earlier = history_contract::verify(&header, nodes, &[*number]);
                let earlier = earlier.map_err(LinkProblem::HistoryContract)?;
                for earlier in earlier {
                    block.hash = earlier.hash;
                    block.number = Some(earlier.number);
                }
                block.grade = block.grade.of_ancestor();
                block.by.push(LinkKind::HistoryContract);
            }
            Link::Summaries(proof) => {
                let state = self.origin.beacon_state.ok_or(LinkProblem::NoBeaconState)?;
                let grade = proof.verify(state, self.origin.grade);
                let grade = grade.map_err(LinkProblem::HeaderProof)?;
                self.history.set_summaries(proof.summaries.clone(), grade);
                self.linked_summaries = true;
            }
            Link::HeaderProof { header, proof } => {
                let header = decode(header, 0)?;
                let block = BlockRef { number: header.number(), hash: header.hash() };
                let grade = proof.verify_block(block, header.timestamp(), &self.history);
                let grade = grade.map_err(LinkProblem::HeaderProof)?;
                // A proof starts from a list, not from the block before it.
                let mut by = Vec::new();
                let uses_summaries = proof.kind().uses_summaries();
                if uses_summaries && self.linked_summaries {
                    by.push(LinkKind::Summaries);
                }
                by.push(LinkKind::HeaderProof(proof.kind()));
                self.block = Some(Anchored {
                    hash: block.hash,
                    number: Some(block.number),
                    grade,
                    by,
                    checkpoint: self
                        .origin
                        .checkpoint
                        .filter(|_| uses_summaries && self.linked_summaries),
                });
            }
        }
        Ok(())
    }
}

fn decode(rlp: &Bytes, index: usize) -> Result<HeaderView<'_>, LinkProblem> {
    HeaderView::decode(rlp).map_err(|error| LinkProblem::Header { index, error })
}

/// Compares the hash of a header with the hash that was proven before, and returns it.
fn check(header: &HeaderView<'_>, index: usize, expected: B256) -> Result<B256, LinkProblem> {
    let computed = header.hash();
    if computed == expected {
        Ok(computed)
    } else {
        Err(LinkProblem::OtherHeader { index, computed, expected })
    }
}
