//! The logs of a query, past and live, read out of receipts: one machine without sockets, clock and
//! files.
//!
//! A [`Follower`] goes from a block through the past, and then with the chain's head. Each header
//! must be the child of the one before. A block whose filter rules a match out is passed over; of
//! each other block all receipts are requested and must have the header's receipts root, and the
//! logs are read out of them. What a provider says of logs by itself is never asked. So a log is as
//! true as the chain of headers is. That chain is the provider's word, except up to an
//! [anchor](Config::anchors). And where receipts do not hold every log that nodes return, those
//! given out are not all: [`NextBlocks::every_log`] says so.
//!
//! # How to drive it
//! 1. Make a [`Follower`] from a [`Config`], and the [`Cursor`] of an earlier run, if any.
//! 2. Hand over what happens as [`Event`]s, and begin with [`Event::Tick`]. `now` is the time since
//!    any one moment.
//! 3. Carry out each [`Action`] in order. One [`Question`] is open at a time; which [`Answer`]s it takes
//!    is said there. [`Answer::Complete`] or [`Answer::Failed`] ends an answer of several parts.
//! 4. Tick at [`Follower::wake_at`].
//!
//! # What is never lost
//! Each [`Update`] that brings or removes logs is announced by [`Action::Store`] before it is given
//! out, and stored as dealt with after [`Event::Acknowledged`]. So wherever a kill comes, all runs
//! together give out each log at least once, and a later run takes back whatever an earlier one may
//! have given out of blocks that left the chain. Where the follower starts is stored before its
//! first update: a tag such as `latest` is resolved once.
//!
//! Without a storage of its own, a caller keeps [`Follower::cursor`] in the same transaction as what
//! it makes of an update.

mod anchors;
mod blocks;
mod chain;
mod cursor;
mod machine;
mod pace;
mod receipts;
mod refused;
mod rules;
mod start;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use alloy_primitives::B256;
use thiserror::Error;

use crate::eth::chain_profile::ChainProfile;
use crate::eth::header::{BlockRef, ChainError, HeaderBuf};
use crate::eth::log::LocatedLog;
use crate::eth::log_query::{BlockSelection, BlockTag, LogQuery, Semantics};
use crate::eth::receipts::{BlockReceipts, VerifyError};

pub use cursor::{Cursor, CursorError};
pub use machine::{Follower, StartError};

/// What is followed, and how.
#[derive(Debug, Clone)]
pub struct Config {
    /// The chain's id (EIP-155). A cursor of another chain is refused.
    pub chain_id: u64,
    /// What the chain's filters and receipts commit to. Where filters prove nothing, the receipts of
    /// every block are requested.
    pub profile: ChainProfile,
    /// Which logs, and of which blocks. The first block is `latest` unless the query says otherwise;
    /// a tag means the block that it names when the follower starts. With a number as the last block
    /// it ends there, else it goes on with live blocks.
    pub query: LogQuery,
    /// Further queries, answered in the same pass: their own blocks are ignored. A log that several
    /// want is given out once; [`queries_of`](Self::queries_of) says which want it.
    pub more_queries: Vec<LogQuery>,
    /// Whose rules hold where nodes differ.
    pub semantics: Semantics,
    /// Hashes that the caller trusts. The chain must hold them; up to the highest that was passed,
    /// all is authentic. Where the query ends before one, the chain is followed up to it; with
    /// [`once`](Self::once) up to the head at most.
    pub anchors: Vec<B256>,
    /// A block is given out once this many blocks come after it; 0 by default.
    pub confirmations: u64,
    /// How many blocks that were given out may leave the chain again; 256 by default. A deeper
    /// reorganisation is [`Fault::TooDeep`].
    pub keep: usize,
    /// Blocks of which an index says which are candidates.
    pub index: Option<Indexed>,
    /// Ends at the provider's head instead of waiting for new blocks.
    pub once: bool,
    /// How often the head is asked for; 2 s by default. Also the first wait after a failure; it
    /// doubles up to a minute.
    pub poll: Duration,
    /// The number of wrong or missing answers in a row after which the follower gives up; 10 by
    /// default. Failures of the connection count only with [`once`](Self::once).
    pub tries: u32,
    /// Whether there is a storage. Without one no [`Action::Store`] comes.
    pub stored: bool,
}

impl Config {
    /// Live blocks of a chain from its head on, with a storage.
    pub fn new(chain_id: u64, profile: ChainProfile, query: LogQuery) -> Self {
        Self {
            chain_id,
            profile,
            query,
            more_queries: Vec::new(),
            semantics: Semantics::default(),
            anchors: Vec::new(),
            confirmations: 0,
            keep: 256,
            index: None,
            once: false,
            poll: Duration::from_secs(2),
            tries: 10,
            stored: true,
        }
    }

    /// The queries that want a log: 0 is [`query`](Self::query), 1 the first of
    /// [`more_queries`](Self::more_queries), and so on.
    pub fn queries_of<'a>(&'a self, log: &'a LocatedLog) -> impl Iterator<Item = usize> + 'a {
        let queries = core::iter::once(&self.query).chain(&self.more_queries).enumerate();
        let wants = |(_, query): &(usize, &LogQuery)| query.matches(&log.log, self.semantics);
        queries.filter(wants).map(|(place, _)| place)
    }

    /// All queries, without their blocks.
    fn queries(&self) -> Vec<LogQuery> {
        let queries = core::iter::once(&self.query).chain(&self.more_queries);
        queries.map(|query| query.clone().in_blocks(BlockSelection::default())).collect()
    }
}

/// Blocks of which an index says which are candidates. It must hold block hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    /// The index's first block.
    pub first: u64,
    /// The last block that the index is asked about: deep enough not to leave the chain.
    pub last: BlockRef,
}

/// What happens.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// Time has passed.
    Tick,
    /// Answers the question with this id. Of one that is no longer open, it is passed over.
    Answer(QuestionId, Answer<'a>),
    /// The cursor with this id is durable, and so are all before it.
    Stored(StoreId),
    /// The reader has dealt with this update.
    Acknowledged(UpdateId),
    /// Store what is not stored yet, and end.
    Stop,
}

/// The answer to a question, or a part of it.
#[derive(Debug, Clone)]
pub enum Answer<'a> {
    /// To [`Question::Block`] and [`Question::IndexedBlock`].
    Block(BlockRef),
    /// To [`Question::Header`]; `None` if the provider does not have it.
    Header(Option<&'a HeaderBuf>),
    /// To [`Question::Headers`], any number of times before [`Complete`](Self::Complete).
    Headers(&'a [HeaderBuf]),
    /// To [`Question::Receipts`], any number of times before [`Complete`](Self::Complete). `None` if
    /// the provider does not have them.
    Receipts(BlockRef, Result<Option<&'a BlockReceipts>, Failure>),
    /// To [`Question::ReceiptsEachWay`], any number of times before [`Complete`](Self::Complete): the
    /// name of a method, and what it gave.
    ReceiptsBy(&'a str, Result<Option<&'a BlockReceipts>, Failure>),
    /// To [`Question::Candidates`]: headers of the first candidates of the range, and the block up to
    /// which there are no others.
    Candidates(&'a [HeaderBuf], BlockRef),
    /// There is no more of the answer.
    Complete,
    /// There is no answer, or no more of it.
    Failed(Failure),
}

/// What the follower wants done.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Ask the provider, or the index. [`Event::Answer`] answers.
    Ask(QuestionId, Question),
    /// Replace the stored cursor with this one. [`Event::Stored`] answers.
    Store(StoreId, Cursor),
    /// Give this to the reader. [`Event::Acknowledged`] answers.
    Update(UpdateId, Update),
    /// Tell the user.
    Note(Note),
    /// The follower has ended: at its last block, at the head, or as it was told; or by a fault.
    End(Result<(), Fault>),
}

/// The number of a question. They ascend, and start over with each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionId(pub u64);

/// What is asked. One question is open at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// The block that a tag names now: [`Answer::Block`] answers.
    Block(BlockTag),
    /// The header with this hash: [`Answer::Header`] answers.
    Header(B256),
    /// The headers with these numbers, in order: [`Answer::Headers`] answers.
    Headers(RangeInclusive<u64>),
    /// All receipts of each of these blocks: [`Answer::Receipts`] answers, in any order.
    Receipts(Vec<BlockRef>),
    /// All receipts of a block by every method that the provider serves, one method after the
    /// other, until the question is [no longer open](Follower::question): [`Answer::ReceiptsBy`]
    /// answers.
    ReceiptsEachWay(BlockRef),
    /// The candidates that the index has in this range, as headers: [`Answer::Candidates`] answers.
    Candidates(RangeInclusive<u64>),
    /// The block with this number in the index: [`Answer::Block`] answers.
    IndexedBlock(u64),
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(BlockTag::Number(number)) => write!(f, "block {number}"),
            Self::Block(tag) => write!(f, "the {} block", tag.name().unwrap_or("latest")),
            Self::Header(hash) => write!(f, "the header of block {hash}"),
            Self::Headers(numbers) if numbers.start() == numbers.end() => {
                write!(f, "the header of block {}", numbers.start())
            }
            Self::Headers(numbers) => {
                write!(f, "headers of blocks {} to {}", numbers.start(), numbers.end())
            }
            Self::Receipts(blocks) => match &blocks[..] {
                [] => write!(f, "receipts of no block"),
                [block] => write!(f, "receipts of {block}"),
                [first, ..] => write!(f, "receipts of {} blocks from {first}", blocks.len()),
            },
            Self::ReceiptsEachWay(block) => write!(f, "receipts of {block}"),
            Self::Candidates(numbers) => {
                write!(f, "candidates in blocks {} to {}", numbers.start(), numbers.end())
            }
            Self::IndexedBlock(number) => write!(f, "block {number} of the index"),
        }
    }
}

/// Why a provider gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Failure {
    /// Whether the way to the provider failed, which may be mended, and not what it answered.
    pub transient: bool,
    /// What was wrong.
    pub reason: String,
}

/// The number of a stored cursor. They ascend, and start over with each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub u64);

/// The number of an update. They ascend, and start over with each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpdateId(pub u64);

/// What a reader is told. One update is out at a time.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Update {
    /// What is followed, all of it known. The first update of each run.
    Started(Started),
    /// This anchor is a block of the chain: all up to it is authentic. Of the highest it comes in
    /// each run.
    Anchored(BlockRef),
    /// Blocks left the chain, and their logs with them.
    Removed(Removed),
    /// The next blocks of the chain.
    Blocks(NextBlocks),
}

/// What is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Started {
    /// The first header that is linked: before [`from`](Self::from) where an anchor is.
    pub start: u64,
    /// The first block whose logs are given out.
    pub from: u64,
    /// The last block; `None` where live blocks follow.
    pub to: Option<u64>,
    /// The last block that an earlier run has given out.
    pub resumed: Option<BlockRef>,
    /// The blocks of the anchors.
    pub anchors: Vec<BlockRef>,
    /// Up to this block the index says which blocks are candidates.
    pub index_to: Option<u64>,
}

/// Blocks that left the chain.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Removed {
    /// The last block that stays; `None` if none of those given out does.
    pub ancestor: Option<BlockRef>,
    /// The number of blocks that left.
    pub blocks: usize,
    /// Their logs with [`removed`](LocatedLog::removed) set, the last one first.
    pub logs: Vec<LocatedLog>,
    /// The last block that is given out now, if any. It may be before `ancestor` after a kill, for
    /// what comes after it was perhaps never given out.
    pub last: Option<BlockRef>,
    /// The newest block of this chain that the provider called finalised.
    pub finalized: Option<BlockRef>,
}

/// The next blocks of the chain.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NextBlocks {
    /// The last of them. All logs in receipts up to and with it are given out.
    pub last: BlockRef,
    /// The number of blocks that were linked for this update.
    pub blocks: usize,
    /// Their logs that match, in the order of the chain. A `transaction_hash` is the provider's
    /// word: no receipt holds it.
    pub logs: Vec<LocatedLog>,
    /// Whether the profile says that receipts of these blocks hold every log. If not, nodes may
    /// return more.
    pub every_log: bool,
    /// The newest block of this chain that the provider called finalised.
    pub finalized: Option<BlockRef>,
}

/// What a user should know, and a program need not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The provider's head is before the last block that it gave: it lags.
    Lags {
        /// Its head.
        head: BlockRef,
        /// The last block that it gave.
        last: BlockRef,
    },
    /// The provider's head is on another branch.
    Reorganization(BlockRef),
    /// An answer failed; the question is asked again after a wait.
    Failed {
        /// What was asked.
        question: Question,
        /// Why the answer was of no use.
        error: AnswerError,
        /// Until the question is asked again.
        wait: Duration,
    },
    /// Receipts of a block were wrong, and another method or another node gave the right ones.
    OtherMethod {
        /// The block.
        at: BlockRef,
        /// What was wrong before.
        error: AnswerError,
        /// The method that gave them.
        method: String,
    },
    /// The provider does not say which block is final.
    NoFinality(Failure),
    /// The anchor is before the blocks that are known, so that it cannot be compared.
    AnchorNotCompared(BlockRef),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lags { head, last } => write!(
                f,
                "its head is block {}, before block {} that it gave earlier: it lags",
                head.number, last.number
            ),
            Self::Reorganization(head) => {
                write!(f, "block {} is another now, {}: a reorganisation", head.number, head.hash)
            }
            Self::Failed { question, error, wait } => {
                write!(f, "{question}: {error}; again in {:.1} s", wait.as_secs_f64())
            }
            Self::OtherMethod { at, error, method } => {
                write!(f, "receipts of {at}: {error}; {method} gave them")
            }
            Self::NoFinality(failure) => {
                write!(f, "it does not say which block is final: {failure}")
            }
            Self::AnchorNotCompared(anchor) => write!(
                f,
                "anchor {} is before the blocks that are known: it is not compared",
                anchor.hash
            ),
        }
    }
}

/// Why an answer is of no use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// None came.
    #[error("{0}")]
    Failed(Failure),
    /// The provider does not have what was requested.
    #[error("the provider does not have it")]
    Missing,
    /// A header with another number.
    #[error("a header of block {found}, but block {asked} was requested")]
    OtherNumber {
        /// The number that was requested.
        asked: u64,
        /// That of the header.
        found: u64,
    },
    /// A header with another hash.
    #[error("a header of {found}, but block {asked} was requested")]
    OtherBlock {
        /// The hash that was requested.
        asked: B256,
        /// The header's block.
        found: BlockRef,
    },
    /// Headers that are not a chain.
    #[error("headers that are not a chain: {0}")]
    Unlinked(ChainError),
    /// Candidates that are not in order, or not of the range that was asked about.
    #[error("candidates that are not in order, or not of the range")]
    OutOfRange,
    /// Receipts that are not those of the block.
    #[error("not the receipts of the block: {0}")]
    Receipts(VerifyError),
    /// Receipts that claim to be of another block.
    #[error(
        "receipts that claim to be of block {claimed}, but those of block {asked} were requested"
    )]
    ReceiptsOfOther {
        /// The block that was requested.
        asked: B256,
        /// The block that they claim.
        claimed: B256,
    },
}

/// Why a follower cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// A reorganisation below the blocks that are kept.
    #[error(
        "a reorganisation too deep to follow: {branch} is on the provider's branch, and the first \
         block kept here is {first}{}. What has to be taken back is not known; nothing of the \
         branch was given out",
        .finalized.map_or_else(String::new, |at| alloc::format!("; the provider called block {} \
         finalised", at.number))
    )]
    TooDeep {
        /// The lowest block of the branch that was looked at.
        branch: BlockRef,
        /// The first block that is kept.
        first: BlockRef,
        /// The newest block that the provider called finalised, if it is on this chain.
        finalized: Option<BlockRef>,
    },
    /// Another block in the place of an anchor.
    #[error(
        "block {} of {of} is {found}, but the anchor is {}: another chain",
        .anchor.number, .anchor.hash
    )]
    OtherThanAnchor {
        /// The anchor.
        anchor: BlockRef,
        /// The hash of the other block.
        found: B256,
        /// Whose block that is.
        of: Source,
    },
    /// A branch that leaves the chain before an anchor.
    #[error("the provider follows a branch that does not hold the anchor, {0}")]
    BeforeAnchor(BlockRef),
    /// The provider does not have an anchor.
    #[error("the provider does not have the anchor, block {0}")]
    NoAnchor(B256),
    /// A filter that lacks bits of a log of its block, which the profile rules out.
    #[error(
        "the filter of {at} lacks bits of its log {log_index}: the block is made up, or the filters \
         of this chain prove nothing. In that case assume them to be unsound and start over, and the \
         receipts of every block are requested"
    )]
    Unsound {
        /// The block.
        at: BlockRef,
        /// Index of the log in the block.
        log_index: u64,
    },
    /// The last block is before the first.
    #[error("the range begins at block {from} and ends before it, at block {to}")]
    EmptyRange {
        /// The first block.
        from: u64,
        /// The last block.
        to: u64,
    },
    /// The index begins after the first block that is wanted.
    #[error("the index begins at block {first}, after the first block wanted, {from}")]
    IndexBegins {
        /// The index's first block.
        first: u64,
        /// The first block that is wanted.
        from: u64,
    },
    /// The filters prove nothing up to this block, so neither does an index of them.
    #[error("the chain's filters prove nothing up to block {0}, and neither does an index of them")]
    IndexUnsound(u64),
    /// The index is of another chain than the provider's.
    #[error("block {} is {} in the index, but {theirs} at the provider", .ours.number, .ours.hash)]
    OtherThanIndex {
        /// The index's block.
        ours: BlockRef,
        /// The provider's block with that number.
        theirs: B256,
    },
    /// Receipts of a block did not come, or were not the block's, this often.
    #[error(
        "receipts of {at}: {error}{}, {tries} times: the logs of this block cannot be proven",
        .method.as_deref().map_or_else(String::new, |method| alloc::format!(" (by {method})"))
    )]
    NoReceipts {
        /// The block.
        at: BlockRef,
        /// What was wrong the last time.
        error: AnswerError,
        /// The method that gave them the last time, if several were tried.
        method: Option<String>,
        /// How often.
        tries: u32,
    },
    /// Answers failed this often in a row.
    #[error("{question}: {error}{}", times(*.tries))]
    GaveUp {
        /// What was asked the last time.
        question: Question,
        /// What was wrong the last time.
        error: AnswerError,
        /// How often.
        tries: u32,
    },
}

/// How often something went wrong, where that was more than once.
fn times(tries: u32) -> String {
    match tries {
        0 | 1 => String::new(),
        tries => alloc::format!(", {tries} times in a row"),
    }
}

/// Whose block differs from an anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The provider's.
    Provider,
    /// The index's.
    Index,
    /// The cursor's: an earlier run has followed another chain.
    Cursor,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Provider => "the provider",
            Self::Index => "the index",
            Self::Cursor => "the cursor",
        })
    }
}
