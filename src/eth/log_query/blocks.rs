//! Which blocks a query is about, and their numbers.

use alloy_primitives::B256;

/// A block by number or by its role. As `serde` it is a string, as in JSON-RPC: the number in hex
/// without leading zeros, as `"0x10dde5f"`, or the [name](Self::name) of the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockTag {
    /// By number.
    Number(u64),
    /// The first block that the node still has: genesis, or a later one on a pruned node.
    Earliest,
    /// The head of the chain.
    Latest,
    /// The newest block that is safe from reorganisation, if a majority of validators is honest.
    Safe,
    /// The newest finalised block.
    Finalized,
    /// The block in the making. No query with it resolves: it has no header to prove anything by.
    Pending,
}

impl BlockTag {
    /// The tag's name; none for a number.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Number(_) => None,
            Self::Earliest => Some("earliest"),
            Self::Latest => Some("latest"),
            Self::Safe => Some("safe"),
            Self::Finalized => Some("finalized"),
            Self::Pending => Some("pending"),
        }
    }

    pub(super) fn by_name(name: &str) -> Option<Self> {
        [Self::Earliest, Self::Latest, Self::Safe, Self::Finalized, Self::Pending]
            .into_iter()
            .find(|tag| tag.name() == Some(name))
    }
}

impl From<u64> for BlockTag {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// The blocks of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockSelection {
    /// From one block to another, both included. What is not given is the latest block.
    Range {
        /// First block.
        from: Option<BlockTag>,
        /// Last block.
        to: Option<BlockTag>,
    },
    /// The one block with this hash.
    AtHash(B256),
}

impl Default for BlockSelection {
    fn default() -> Self {
        Self::Range { from: None, to: None }
    }
}

/// What the tags stand for, on one node at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// The first block whose logs the node still has: 0, or the cutoff of a pruned node.
    pub earliest: u64,
    /// The head.
    pub latest: u64,
    /// The safe block, where the node knows one.
    pub safe: Option<u64>,
    /// The finalised block, where the node knows one.
    pub finalized: Option<u64>,
}

impl Heads {
    /// A node that has every block up to `latest` and knows no safe and no finalised one.
    pub const fn latest(latest: u64) -> Self {
        Self { earliest: 0, latest, safe: None, finalized: None }
    }

    fn number(&self, tag: BlockTag) -> Result<u64, ResolveError> {
        match tag {
            BlockTag::Number(number) => Ok(number),
            BlockTag::Earliest => Ok(self.earliest),
            BlockTag::Latest => Ok(self.latest),
            BlockTag::Safe => self.safe.ok_or(ResolveError::UnknownTag("safe")),
            BlockTag::Finalized => self.finalized.ok_or(ResolveError::UnknownTag("finalized")),
            BlockTag::Pending => Err(ResolveError::Pending),
        }
    }
}

/// Why the blocks of a query can't be named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The block in the making. geth refuses it; reth answers with its own candidate block.
    #[error("logs of the pending block can't be queried")]
    Pending,
    /// A tag that the node can't place, before the first finalised block, say.
    #[error("the number of the {0} block is not known")]
    UnknownTag(&'static str),
    /// The range ends before it begins. Where tags are involved older versions of geth answer
    /// with an empty list.
    #[error("the range begins at block {first} and ends before it, at {last}")]
    Reversed {
        /// First block.
        first: u64,
        /// Last block.
        last: u64,
    },
    /// The range ends after the head: what is not there yet can't be complete.
    #[error("block range extends beyond the head: block {last}, the head is {head}")]
    BeyondHead {
        /// Last block.
        last: u64,
        /// The head.
        head: u64,
    },
    /// The range begins after the head and has no end. geth refuses it; older versions of reth
    /// answer with an empty list, which says nothing.
    #[error("the range begins at block {first}, after the head {head}")]
    BeginsAfterHead {
        /// First block.
        first: u64,
        /// The head.
        head: u64,
    },
    /// The range begins before the first block whose logs the node still has.
    #[error("the range begins at block {first}, the node has pruned what is before {earliest}")]
    Pruned {
        /// First block.
        first: u64,
        /// First block that is not pruned.
        earliest: u64,
    },
}

/// The blocks of a query, all by number or the one by hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResolvedBlocks {
    /// From one number to another, both included, in order.
    Range {
        /// First block.
        first: u64,
        /// Last block, not before the first.
        last: u64,
    },
    /// The one block with this hash.
    AtHash(B256),
}

impl ResolvedBlocks {
    /// How many blocks these are.
    pub const fn count(&self) -> u64 {
        match self {
            Self::Range { first, last } => last.saturating_sub(*first).saturating_add(1),
            Self::AtHash(_) => 1,
        }
    }

    /// Whether a block with this number and hash is one of them. In a range the hash is not
    /// looked at: which fork a block is on is for a chain of headers to say.
    pub fn contains(&self, number: u64, hash: &B256) -> bool {
        match self {
            Self::Range { first, last } => (*first..=*last).contains(&number),
            Self::AtHash(wanted) => wanted == hash,
        }
    }
}

impl BlockSelection {
    /// The blocks by number.
    ///
    /// The rules are those of geth where nodes differ, and an error where a node would answer a
    /// range that is not the one asked for. `earliest` is the first block that the node still
    /// has, as geth and reth read it: compare the result's first block with what you meant.
    ///
    /// # Errors
    /// A pending block, a tag that `heads` does not place, a range that is reversed, that reaches
    /// beyond the head or into what is pruned.
    pub fn resolve(&self, heads: &Heads) -> Result<ResolvedBlocks, ResolveError> {
        let (from, to) = match *self {
            Self::AtHash(hash) => return Ok(ResolvedBlocks::AtHash(hash)),
            Self::Range { from, to } => (from, to),
        };
        let first = heads.number(from.unwrap_or(BlockTag::Latest))?;
        let last = heads.number(to.unwrap_or(BlockTag::Latest))?;
        let head = heads.latest;
        if last > head {
            return Err(ResolveError::BeyondHead { last, head });
        }
        if first > head && to.is_none() {
            return Err(ResolveError::BeginsAfterHead { first, head });
        }
        if first > last {
            return Err(ResolveError::Reversed { first, last });
        }
        if first < heads.earliest {
            return Err(ResolveError::Pruned { first, earliest: heads.earliest });
        }
        Ok(ResolvedBlocks::Range { first, last })
    }
}
