//! The blocks that a query selects, and the resolution of tags to block numbers.

use core::fmt;

use alloy_primitives::B256;

use super::QueryError;

/// A block, given by its number or by a tag such as `latest`.
///
/// `serde` writes a string as in JSON-RPC: the number in hex without leading zeros, for example
/// `"0x10dde5f"`, or the [name](Self::name) of the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockTag {
    /// The block with this number.
    Number(u64),
    /// The first block that the node still has: genesis, or a later block on a pruned node.
    Earliest,
    /// The newest block of the chain.
    Latest,
    /// The newest block that is safe from reorganisations, if a majority of validators is honest.
    Safe,
    /// The newest finalised block.
    Finalized,
    /// The block that is being built. A query with this tag never resolves, because the pending
    /// block has no header, so nothing can be proven.
    Pending,
}

impl BlockTag {
    /// Returns the tag's name in JSON-RPC, or `None` for a number.
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

/// Writes the string of JSON-RPC: the [name](BlockTag::name), or the number in hex, as `serde` does.
impl fmt::Display for BlockTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number:#x}"),
            tag => f.pad(tag.name().unwrap_or_default()),
        }
    }
}

impl From<u64> for BlockTag {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// The blocks that a query selects: a range, or one block by hash.
///
/// `serde` writes the members that a query has in JSON-RPC. A range is written as `fromBlock` and
/// `toBlock`, each of which is left out if it is `None`. A block hash is written as `blockHash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "SelectionWire", into = "SelectionWire")]
pub enum BlockSelection {
    /// A range of blocks, both ends included.
    Range {
        /// First block; `None` means the latest block.
        from: Option<BlockTag>,
        /// Last block; `None` means the latest block.
        to: Option<BlockTag>,
    },
    /// The one block with this hash.
    AtHash(B256),
}

/// A selection in its JSON form.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectionWire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    block_hash: Option<B256>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_block: Option<BlockTag>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to_block: Option<BlockTag>,
}

/// Reason why a parsed selection is invalid.
#[derive(Debug, thiserror::Error)]
#[error("blockHash excludes fromBlock and toBlock")]
struct HashAndRange;

impl TryFrom<SelectionWire> for BlockSelection {
    type Error = HashAndRange;

    fn try_from(wire: SelectionWire) -> Result<Self, HashAndRange> {
        match (wire.block_hash, wire.from_block, wire.to_block) {
            (Some(hash), None, None) => Ok(Self::AtHash(hash)),
            (Some(_), ..) => Err(HashAndRange),
            (None, from, to) => Ok(Self::Range { from, to }),
        }
    }
}

impl From<BlockSelection> for SelectionWire {
    fn from(selection: BlockSelection) -> Self {
        let (block_hash, from_block, to_block) = match selection {
            BlockSelection::Range { from, to } => (None, from, to),
            BlockSelection::AtHash(hash) => (Some(hash), None, None),
        };
        Self { block_hash, from_block, to_block }
    }
}

impl Default for BlockSelection {
    fn default() -> Self {
        Self::Range { from: None, to: None }
    }
}

/// The block numbers to which the tags resolve, on one node at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Heads {
    /// Number of the first block whose logs the node still has: 0, or the first block that a pruned
    /// node has kept.
    pub earliest: u64,
    /// Number of the newest block.
    pub latest: u64,
    /// Number of the newest safe block, if the node knows one.
    pub safe: Option<u64>,
    /// Number of the newest finalised block, if the node knows one.
    pub finalized: Option<u64>,
}

impl Heads {
    /// Describes a node that has all blocks up to `latest` and knows no safe or finalised block.
    pub const fn latest(latest: u64) -> Self {
        Self { earliest: 0, latest, safe: None, finalized: None }
    }

    fn number(&self, tag: BlockTag) -> Result<u64, QueryError> {
        match tag {
            BlockTag::Number(number) => Ok(number),
            BlockTag::Earliest => Ok(self.earliest),
            BlockTag::Latest => Ok(self.latest),
            BlockTag::Safe => self.safe.ok_or(QueryError::UnknownTag("safe")),
            BlockTag::Finalized => self.finalized.ok_or(QueryError::UnknownTag("finalized")),
            BlockTag::Pending => Err(QueryError::Pending),
        }
    }
}

/// The blocks that a query selects, with tags replaced by numbers: a range of numbers, or one block by hash.
///
/// `serde` writes an object. For a range, the member `by` is `"range"`, and the members `first` and
/// `last` are the numbers. For a block hash, `by` is `"hash"`, and the member `hash` is the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(from = "ResolvedWire", into = "ResolvedWire")]
pub enum ResolvedBlocks {
    /// A range of block numbers, both ends included.
    Range {
        /// Number of the first block.
        first: u64,
        /// Number of the last block, at least `first`.
        last: u64,
    },
    /// The one block with this hash.
    AtHash(B256),
}

/// Resolved blocks in their JSON form. This type is needed because `serde` cannot tag a variant
/// whose fields have no names.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
enum ResolvedWire {
    Range { first: u64, last: u64 },
    Hash { hash: B256 },
}

impl From<ResolvedWire> for ResolvedBlocks {
    fn from(wire: ResolvedWire) -> Self {
        match wire {
            ResolvedWire::Range { first, last } => Self::Range { first, last },
            ResolvedWire::Hash { hash } => Self::AtHash(hash),
        }
    }
}

impl From<ResolvedBlocks> for ResolvedWire {
    fn from(blocks: ResolvedBlocks) -> Self {
        match blocks {
            ResolvedBlocks::Range { first, last } => Self::Range { first, last },
            ResolvedBlocks::AtHash(hash) => Self::Hash { hash },
        }
    }
}

/// Writes `blocks 1 to 9`, `block 7` or `block 0x96cf…` with all digits of the hash.
impl fmt::Display for ResolvedBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { first, last } if first == last => write!(f, "block {first}"),
            Self::Range { first, last } => write!(f, "blocks {first} to {last}"),
            Self::AtHash(hash) => write!(f, "block {hash}"),
        }
    }
}

impl ResolvedBlocks {
    /// Returns the number of blocks; `u64::MAX` for the range of all block numbers.
    pub const fn count(&self) -> u64 {
        match self {
            Self::Range { first, last } => last.saturating_sub(*first).saturating_add(1),
            Self::AtHash(_) => 1,
        }
    }

    /// Returns `true` if the selection includes a block with this number and hash.
    ///
    /// For a range the hash is ignored: only a chain of headers decides which branch a block is on.
    pub fn contains(&self, number: u64, hash: &B256) -> bool {
        match self {
            Self::Range { first, last } => (*first..=*last).contains(&number),
            Self::AtHash(wanted) => wanted == hash,
        }
    }
}

impl BlockSelection {
    /// Replaces the tags by block numbers.
    ///
    /// If nodes differ, this function follows geth. The function returns an error if a node would
    /// not answer for exactly the requested range. The tag `earliest` resolves to the first block
    /// that the node still has, as in geth and reth: compare the first block of the result with the
    /// block that you intended.
    ///
    /// # Errors
    /// Returns an error if the selection includes the pending block or a tag whose block number is
    /// missing in `heads`. Returns an error if the range is reversed, ends after the head, or
    /// begins before the first block that is not pruned.
    pub fn resolve(&self, heads: &Heads) -> Result<ResolvedBlocks, QueryError> {
        let (from, to) = match *self {
            Self::AtHash(hash) => return Ok(ResolvedBlocks::AtHash(hash)),
            Self::Range { from, to } => (from, to),
        };
        let first = heads.number(from.unwrap_or(BlockTag::Latest))?;
        let last = heads.number(to.unwrap_or(BlockTag::Latest))?;
        let head = heads.latest;
        // Blocks after the head do not exist yet, so no answer for them can be complete.
        if last > head {
            return Err(QueryError::BeyondHead { last, head });
        }
        // Without this check the range would be reported as reversed, although the caller gave no
        // last block.
        if first > head && to.is_none() {
            return Err(QueryError::BeginsAfterHead { first, head });
        }
        if first > last {
            return Err(QueryError::Reversed { first, last });
        }
        // A pruned node would answer without the logs of the blocks that it has pruned.
        if first < heads.earliest {
            return Err(QueryError::Pruned { first, earliest: heads.earliest });
        }
        Ok(ResolvedBlocks::Range { first, last })
    }
}
