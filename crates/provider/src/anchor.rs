//! Why a block is believed.

use std::fmt;

use chainsieve::alloy_primitives::B256;

/// Names blocks that are believed to be on the chain. Everything that such a block descends from is
/// authentic, whoever sent it.
///
/// A hash is one, and so is a list of hashes. Something that follows the chain by itself, as a light
/// client does, names a newer block each time that it is asked. A follower asks once, at its
/// [start](crate::FollowBuilder::start): later blocks are the nodes' word.
pub trait Anchor: fmt::Debug + Send + Sync {
    /// The hashes of the blocks believed now. With none, what a node says of its last block is
    /// taken for it, and results say so.
    ///
    /// # Errors
    /// Why they are not known: the operation that asks fails with these words.
    fn blocks(&self) -> Result<Vec<B256>, String>;
}

impl Anchor for B256 {
    fn blocks(&self) -> Result<Vec<B256>, String> {
        Ok(vec![*self])
    }
}

impl Anchor for Vec<B256> {
    fn blocks(&self) -> Result<Vec<B256>, String> {
        Ok(self.clone())
    }
}
