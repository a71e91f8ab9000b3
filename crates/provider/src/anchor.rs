//! Anchors: sources of trusted block hashes.

use std::fmt;

use chainsieve::alloy_primitives::B256;

/// A source of trusted block hashes. All ancestors of a trusted block are authentic too, whoever
/// sent their headers.
///
/// A single hash is an anchor, and so is a list of hashes. An implementation that follows the chain
/// by itself, such as a light client, returns a newer block each time. A follower calls
/// [`blocks`](Self::blocks) once, at its [start](crate::FollowBuilder::start). So only the nodes
/// vouch for blocks after the blocks that this call returned.
pub trait AnchorSource: fmt::Debug + Send + Sync {
    /// Returns the hashes of the blocks that are trusted now.
    ///
    /// If the list is empty, the last block that a node names is trusted, and the results state
    /// this.
    ///
    /// # Errors
    /// Returns the reason if the hashes are unknown. The operation then fails with this text.
    fn blocks(&self) -> Result<Vec<B256>, String>;
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
