//! The state of a follower that is stored between runs.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use alloy_primitives::B256;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

use super::blocks::{Block, Blocks, Work};
use super::chain::{Batch, Chain, Reorg};
use super::rules::Subject;
use crate::eth::header::BlockRef;
use crate::eth::log::LocatedLog;
use crate::eth::log_query::{BlockTag, Semantics};

/// Version of the stored format.
const VERSION: u32 = 2;
/// The first version, in which the `transactionHash` of a log was only the provider's claim.
const WITH_CLAIMS: u32 = 1;

/// The state of a [`Follower`](super::Follower) that is stored between runs: the queries, the first
/// block, and the delivered blocks.
///
/// The stored format is one JSON object ([`to_json`](Self::to_json)), which `serde` reads and
/// writes too. The cursor contains the logs of all delivered blocks that a reorganisation can still
/// remove, so its size grows with the number of these logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub(super) subject: Subject,
    pub(super) has_dropped: bool,
    pub(super) blocks: Vec<Block>,
    pub(super) reorg: Option<Reorg>,
    pub(super) anchored: Option<BlockRef>,
}

/// Reason why a follower cannot start: from its query, or from a stored cursor.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The query selects one block by its hash.
    #[error("the query is for the single block {0}; only a range can be followed")]
    OneBlock(B256),
    /// The last block is a tag that moves, such as `finalized`.
    #[error(
        "the query ends at `{}`: the last block must be a number or `latest`",
        .0.name().unwrap_or("a number")
    )]
    End(BlockTag),
    /// The cursor belongs to another chain.
    #[error("the cursor is of chain {cursor}, not of chain {chain}")]
    OtherChain {
        /// Chain id of the cursor.
        cursor: u64,
        /// Configured chain id.
        chain: u64,
    },
    /// The cursor belongs to another query.
    #[error("the cursor belongs to another query: {0}")]
    OtherQuery(String),
    /// The query of the cursor was matched with other semantics.
    #[error(
        "the cursor belongs to a query with the semantics {0}, which differ from the configured semantics"
    )]
    OtherSemantics(Semantics),
    /// The first block of the cursor differs from the configured first block.
    #[error("the cursor begins at block {cursor}, not at block {from}")]
    OtherStart {
        /// First block of the cursor.
        cursor: u64,
        /// Configured first block.
        from: u64,
    },
    /// The text is not JSON, or a member is missing or has the wrong type.
    #[error("not a cursor: {0}")]
    Json(String),
    /// A format version that this library cannot read.
    #[error("the cursor has format version {0}; this library reads versions 1 and {VERSION}")]
    Version(u32),
    /// A log is malformed or belongs to another block.
    #[error("block {block}: {reason}")]
    Log {
        /// Number of the block.
        block: u64,
        /// Description of the problem.
        reason: String,
    },
    /// The blocks are not in ascending order, or an acknowledged block follows an unacknowledged
    /// block.
    #[error("block {after} is stored after block {before}: the blocks are out of order")]
    Order {
        /// Number of a block.
        before: u64,
        /// Number of the block stored after it.
        after: u64,
    },
}

/// A cursor in its JSON form, with logs of the type `L`.
#[derive(Serialize, Deserialize)]
struct Wire<L> {
    version: u32,
    subject: Subject,
    let_go: bool,
    blocks: Vec<WireBlock<L>>,
    reorg: Option<WireReorg<L>>,
    anchored: Option<BlockRef>,
}

#[derive(Serialize, Deserialize)]
struct WireBlock<L> {
    number: u64,
    hash: B256,
    /// `true` if the block may have been delivered without being acknowledged.
    unsure: bool,
    logs: Vec<L>,
}

#[derive(Serialize, Deserialize)]
struct WireReorg<L> {
    ancestor: Option<BlockRef>,
    removed: Vec<WireBlock<L>>,
}

impl<'a> WireBlock<&'a LocatedLog> {
    fn of(block: &'a Block) -> Self {
        let BlockRef { number, hash } = block.at;
        Self { number, hash, unsure: block.unsure, logs: block.logs().iter().collect() }
    }
}

/// A log in a stored cursor: either JSON text, or a log that `serde` has decoded.
trait StoredLog {
    /// Returns the log, or a description of the problem.
    fn read(self) -> Result<LocatedLog, String>;
}

impl StoredLog for Box<RawValue> {
    fn read(self) -> Result<LocatedLog, String> {
        LocatedLog::from_json(self.get()).map_err(|problem| problem.to_string())
    }
}

impl StoredLog for LocatedLog {
    fn read(self) -> Result<LocatedLog, String> {
        Ok(self)
    }
}

impl<L: StoredLog> WireBlock<L> {
    fn read(self, version: u32) -> Result<Block, StartError> {
        let Self { number, hash, unsure, logs } = self;
        let error = |reason: String| StartError::Log { block: number, reason };
        let mut read = Vec::with_capacity(logs.len());
        for log in logs {
            let mut log = log.read().map_err(error)?;
            if version == WITH_CLAIMS {
                log.claimed_transaction_hash = log.transaction_hash.take();
            }
            if (log.block_number, log.block_hash) != (number, hash) {
                return Err(error("a log of another block".into()));
            }
            read.push(log);
        }
        Ok(Block { at: BlockRef { number, hash }, work: Work::Logs(read), unsure })
    }
}

impl Cursor {
    /// Returns the cursor to store before the batch `upcoming` is delivered, or the current cursor
    /// if `upcoming` is `None`.
    pub(super) fn before(chain: &Chain, upcoming: Option<Batch>) -> Self {
        let blocks = &chain.blocks;
        let count = match upcoming {
            Some(Batch::Blocks(count)) => count,
            Some(Batch::Reorg) | None => 0,
        };
        let sure = blocks.delivered().cloned();
        let pending = blocks.pending().enumerate();
        // Blocks that an earlier run may have delivered stay marked as `unsure` until they are
        // delivered again.
        let unsure = pending.take_while(|(index, block)| *index < count || block.unsure);
        let unsure = unsure.map(|(_, block)| Block { unsure: true, ..block.clone() });
        Self {
            subject: chain.rules.subject.clone(),
            has_dropped: blocks.has_dropped,
            blocks: sure.chain(unsure).collect(),
            reorg: chain.reorg.clone(),
            anchored: chain.anchors.held,
        }
    }

    /// Returns the number of the first block whose logs are delivered.
    pub fn first(&self) -> u64 {
        self.subject.from
    }

    /// Returns the last acknowledged block; `None` if no block is acknowledged.
    pub fn last(&self) -> Option<BlockRef> {
        self.blocks.iter().take_while(|block| !block.unsure).last().map(|block| block.at)
    }

    pub(super) fn blocks(self) -> Blocks {
        let delivered = self.blocks.iter().take_while(|block| !block.unsure).count();
        Blocks::of(self.blocks, delivered, self.has_dropped)
    }

    /// Encodes the cursor as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, hashes and logs")
    }

    /// Decodes the output of [`to_json`](Self::to_json).
    ///
    /// # Errors
    /// Returns a [`StartError`] if the text is not a valid cursor.
    pub fn from_json(text: &str) -> Result<Self, StartError> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let json = |error: serde_json::Error| StartError::Json(error.to_string());
        let Head { version } = serde_json::from_str(text).map_err(json)?;
        check(version)?;
        let wire: Wire<Box<RawValue>> = serde_json::from_str(text).map_err(json)?;
        Self::of_wire(wire)
    }

    fn of_wire<L: StoredLog>(wire: Wire<L>) -> Result<Self, StartError> {
        check(wire.version)?;
        let read = |blocks: Vec<WireBlock<L>>| {
            let blocks = blocks.into_iter().map(|block| block.read(wire.version));
            blocks.collect::<Result<Vec<_>, _>>()
        };
        let blocks = read(wire.blocks)?;
        for pair in blocks.windows(2) {
            let [before, after] = pair else { continue };
            if before.at.number >= after.at.number || (before.unsure && !after.unsure) {
                let (before, after) = (before.at.number, after.at.number);
                return Err(StartError::Order { before, after });
            }
        }
        let reorg = wire
            .reorg
            .map(|WireReorg { ancestor, removed }| Ok(Reorg { ancestor, removed: read(removed)? }));
        Ok(Self {
            subject: wire.subject,
            has_dropped: wire.let_go,
            blocks,
            reorg: reorg.transpose()?,
            anchored: wire.anchored,
        })
    }
}

fn check(version: u32) -> Result<(), StartError> {
    if (WITH_CLAIMS..=VERSION).contains(&version) {
        Ok(())
    } else {
        Err(StartError::Version(version))
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = Wire {
            version: VERSION,
            subject: self.subject.clone(),
            let_go: self.has_dropped,
            blocks: self.blocks.iter().map(WireBlock::of).collect(),
            reorg: self.reorg.as_ref().map(|reorg| WireReorg {
                ancestor: reorg.ancestor,
                removed: reorg.removed.iter().map(WireBlock::of).collect(),
            }),
            anchored: self.anchored,
        };
        wire.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::<LocatedLog>::deserialize(deserializer)?;
        Self::of_wire(wire).map_err(D::Error::custom)
    }
}
