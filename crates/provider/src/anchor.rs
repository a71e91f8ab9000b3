//! Anchors: sources of trusted block hashes, and the block that a result depends on.

use std::fmt;
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;

use crate::nodes::Node;

/// A source of trusted block hashes. All ancestors of a trusted block are authentic too, whatever
/// the source of their headers.
///
/// A single hash is an anchor, and so is a list of hashes. An implementation that follows the chain
/// by itself, such as a light client, may return a newer block at each call of
/// [`blocks`](Self::blocks). A follower calls [`blocks`](Self::blocks) at its
/// [start](crate::FollowBuilder::start), and then again at the interval that
/// [`refresh`](Self::refresh) returns. Only the nodes vouch for blocks after the last trusted
/// block.
pub trait AnchorSource: fmt::Debug + Send + Sync {
    /// Returns the hashes of the blocks that are trusted now.
    ///
    /// If the list is empty, the last block that a node names is trusted, and the results state
    /// this.
    ///
    /// # Errors
    /// Returns the reason if the hashes are unknown. The operation then fails with this text.
    fn blocks(&self) -> Result<Vec<B256>, String>;

    /// Returns the interval after which [`blocks`](Self::blocks) may return a newer block; `None`
    /// (the default) if `blocks` never returns a newer block.
    ///
    /// While a follower runs, a thread of its own waits for this interval, calls `blocks`, and waits
    /// again. So a slow call delays no update. Intervals below 100 ms count as 100 ms. An error of
    /// `blocks` is reported as a [`Note`](crate::Note), and the next call follows after the
    /// interval. A call in progress is not awaited when the follower stops: the thread ends when the
    /// call returns, so a call should have a timeout.
    fn refresh(&self) -> Option<Duration> {
        None
    }

    /// Returns the hash of the newest block that is trusted although it is not final; `None` (the
    /// default) if the newest trusted block is one of [`blocks`](Self::blocks). No request is sent.
    fn head(&self) -> Option<B256> {
        None
    }

    /// Returns the hash of an earlier block by its number, proven without the headers in between;
    /// `None` (the default) if the source has no such proofs. `nodes` are asked for parts of the proof.
    /// They are not trusted.
    ///
    /// # Errors
    /// Returns the reason if no proof leads to the block.
    fn link(&self, number: u64, nodes: &[Node]) -> Result<Option<B256>, String> {
        let _ = (number, nodes);
        Ok(None)
    }
}

/// The evidence for the [tip](crate::Tip) of a result.
///
/// ```
/// use chainsieve_provider::{ProvenLogs, Trust};
/// fn is_proven(proven: &ProvenLogs) -> bool {
///     matches!(proven.tip.trust, Trust::Anchored)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Trust {
    /// The tip is an anchor of the caller.
    Anchored,
    /// The caller named no anchor: only the node that provided the chain vouches for the tip.
    NoAnchor,
    /// The caller named anchors, and none of them is on the chain: nothing is proven.
    AnchorNotOnChain,
}

/// A node's block at the height of the [`Tip`], compared with the tip: part of [`Tip::others`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "beside", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Beside {
    /// The node has the tip.
    Same,
    /// The node has a block other than the tip.
    Another {
        /// Hash of the node's block.
        hash: B256,
    },
    /// The node has no block at this height, or did not answer.
    Nothing,
}

/// The block that all results depend on: the results are valid if this block is on the chain.
///
/// [`ProvenLogs::tip`](crate::ProvenLogs::tip) and [`FetchedAnswers::tip`](crate::FetchedAnswers::tip) have this type.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Tip {
    /// The highest anchor on the fetched chain, or the chain's last block if there is none.
    pub block: BlockRef,
    /// The evidence for the block. Without an anchor, a node may have made up the whole chain.
    pub trust: Trust,
    /// Index of the node that provided the chain.
    pub node: usize,
    /// Every other node, with its block at the height of the tip.
    pub others: Vec<OtherNode>,
}

/// A node other than the node that provided the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct OtherNode {
    /// Index of the node.
    pub node: usize,
    /// The node's block at the height of the [`Tip`].
    #[serde(flatten)]
    pub beside: Beside,
}

impl Tip {
    /// Returns `true` if a node's answer can be proven wrong by this chain.
    ///
    /// Without an anchor, only one node vouches for the chain. The claim of one node proves nothing
    /// against another node that has a different block at the height of the tip.
    pub fn binds(&self, node: usize) -> bool {
        let differs = |other: &OtherNode| other.node == node && other.beside != Beside::Same;
        self.trust != Trust::NoAnchor || !self.others.iter().any(differs)
    }

    /// Returns `true` if all other nodes have the tip too.
    pub fn is_agreed(&self) -> bool {
        self.others.iter().all(|other| other.beside == Beside::Same)
    }
}

impl AnchorSource for B256 {
    fn blocks(&self) -> Result<Vec<B256>, String> {
        Ok(vec![*self])
    }
}

impl AnchorSource for Vec<B256> {
    fn blocks(&self) -> Result<Vec<B256>, String> {
        Ok(self.clone())
    }
}
