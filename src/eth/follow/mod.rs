//! Follows the past and the new logs of a query, and proves them by receipts: a state machine
//! without sockets, clock or files.
//!
//! A [`Follower`] starts at a block, processes the past blocks, and then follows the chain's head. Each
//! header must be the child of the preceding header. A block whose filter rules out a match is skipped. For
//! all remaining blocks, all receipts are requested, checked against the header's receipts root, and
//! searched for logs. The provider is never asked for logs, so a delivered log is as trustworthy as the
//! chain of headers. Receipts contain no transaction hashes: if a log matches, all transactions of the
//! block are requested too, and checked against the header's transactions root
//! ([`Config::transaction_hashes`]). The chain of headers is only the provider's claim, except up to an
//! [anchor](Config::anchors). A caller that learns of newer trusted blocks while the follower runs, for
//! example from a light client, sends them as [`Event::Anchor`]. On some chains, nodes return logs that no
//! receipt contains; [`NextBlocks::every_log`] is `false` for blocks that may have such logs.
//!
//! # What you call
//! [`Cursor`] stores the position that a run has reached, and starts the next run there.
//!
//! # What you drive
//! 1. Create a [`Follower`] from a [`Config`] and the [`Cursor`] of an earlier run, if there is
//!    one.
//! 2. Pass every occurrence to [`Follower::handle`] as an [`Event`], starting with [`Event::Tick`].
//!    The argument `now` is the [current time](crate#time).
//! 3. Carry out the returned [`Action`]s in order. At most one [`Question`] is open at a time, and
//!    its documentation names the [`Answer`]s that it accepts. [`Answer::Complete`] or
//!    [`Answer::Failed`] ends an answer of several parts.
//! 4. Send [`Event::Tick`] at the time that [`Follower::wake_at`] returns.
//!
//! # What is never lost
//! Before a [`News`] adds or removes logs, [`Action::Store`] stores a cursor that announces the
//! update. After [`Event::Acknowledged`], a cursor is stored that records the update as processed.
//! So if the process is killed at any time, all runs together deliver each log at least once. A
//! later run also removes the logs of reorganised blocks that an earlier run may have delivered.
//! The first block is stored before the first update, so that a tag such as `latest` is resolved
//! only once.
//!
//! A caller that does not use [`Action::Store`] stores [`Follower::cursor`] in the same transaction
//! as the results of an update.

mod anchors;
mod blocks;
mod chain;
mod cursor;
mod machine;
mod pace;
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
use crate::eth::receipts::{BlockReceipts, ReceiptsError};
use crate::eth::transactions::{BlockTransactions, TransactionsError};

pub use cursor::{Cursor, StartError};
pub use machine::Follower;

/// Configuration of a [`Follower`]: the chain, the queries, and how to follow them.
#[derive(Debug, Clone)]
pub struct Config {
    /// Chain id (EIP-155). A cursor of another chain is refused.
    pub chain_id: u64,
    /// Profile of the chain: what its filters and receipts commit to. If the filters prove nothing,
    /// the receipts of every block are requested.
    pub profile: ChainProfile,
    /// Query for logs in a range of blocks.
    ///
    /// The default first block is `latest`. A tag is resolved once, when the follower starts. If
    /// the last block is a number, the follower ends there; otherwise it continues with live
    /// blocks.
    pub query: LogQuery,
    /// Further queries, which are answered together with [`query`](Self::query). The block ranges
    /// of these queries are ignored.
    ///
    /// A log that several queries match is delivered once; [`queries_of`](Self::queries_of) returns
    /// the queries that match it.
    pub more_queries: Vec<LogQuery>,
    /// Matching rules for the cases in which clients differ.
    pub semantics: Semantics,
    /// Hashes of blocks that the caller trusts.
    ///
    /// The chain must contain these blocks, and all blocks up to the highest anchor that was
    /// reached are authentic. If the query ends before an anchor, the chain is linked up to that
    /// anchor. With [`once`](Self::once), the chain is linked at most up to the provider's head.
    ///
    /// The provider must have these blocks when the follower starts. [`Event::Anchor`] adds newer
    /// anchors later.
    pub anchors: Vec<B256>,
    /// Number of blocks that must follow a block before it is delivered; 0 by default.
    pub confirmations: u64,
    /// Maximum number of delivered blocks that a reorganisation can remove; 256 by default. A
    /// deeper reorganisation ends the follower with [`Fault::TooDeep`].
    pub keep: usize,
    /// Range of blocks whose candidates are taken from an index.
    pub index: Option<Indexed>,
    /// `true` to end at the provider's head instead of waiting for new blocks.
    pub once: bool,
    /// Interval between requests for the head; 2 s by default. The same interval is the first wait
    /// after a failure. Each further failure in a row doubles the wait, up to one minute.
    pub poll: Duration,
    /// Number of wrong or missing answers in a row after which the follower gives up; 10 by
    /// default. Connection failures are counted only with [`once`](Self::once).
    pub tries: u32,
    /// `true` if the caller stores cursors; `false` to omit all [`Action::Store`].
    pub stored: bool,
    /// `true`, the default, to prove the transaction hashes of delivered logs by the transactions of
    /// their block. `false` to request no transactions; then the hashes are only claims.
    ///
    /// If no provider has the right transactions, the logs are delivered without them: their
    /// [`transaction_hash`](LocatedLog::transaction_hash) is `None`, and
    /// [`claimed_transaction_hash`](LocatedLog::claimed_transaction_hash) has the claim.
    pub transaction_hashes: bool,
}

impl Config {
    /// Returns the default configuration for a query: the caller stores cursors, transaction hashes
    /// are proven, and there are no anchors and no index.
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
            transaction_hashes: true,
        }
    }

    /// Returns the indices of the queries that match a log: index 0 is [`query`](Self::query),
    /// index 1 is the first of [`more_queries`](Self::more_queries), and so on.
    pub fn queries_of<'a>(&'a self, log: &'a LocatedLog) -> impl Iterator<Item = usize> + 'a {
        let queries = core::iter::once(&self.query).chain(&self.more_queries).enumerate();
        let wants = |(_, query): &(usize, &LogQuery)| query.matches(&log.log, self.semantics);
        queries.filter(wants).map(|(place, _)| place)
    }

    /// Returns all queries, without their block ranges.
    fn queries(&self) -> Vec<LogQuery> {
        let queries = core::iter::once(&self.query).chain(&self.more_queries);
        queries.map(|query| query.clone().in_blocks(BlockSelection::default())).collect()
    }
}

/// Range of blocks whose candidates are taken from an index. The index must store block hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    /// Number of the index's first block.
    pub first: u64,
    /// Last block for which the index is used. This block must be so deep in the chain that no
    /// reorganisation removes it.
    pub last: BlockRef,
}

/// Input of a [`Follower`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Time has passed. The caller must send this event at the time that [`Follower::wake_at`]
    /// returns.
    Tick,
    /// An answer, or a part of an answer, to the question with this id. Answers to questions that
    /// are no longer open are ignored.
    Answer(QuestionId, Answer<'a>),
    /// The cursor with this id and all earlier cursors are durable.
    Stored(StoreId),
    /// The reader has processed this update.
    Acknowledged(UpdateId),
    /// The caller now trusts the block with this hash. Allowed at any time, any number of times.
    ///
    /// If the block is on the chain, or once the chain reaches it, all blocks up to it are
    /// authentic, as with a [configured anchor](Config::anchors). Until then, the block is pending.
    /// A provider that does not have the block lags, or is on another chain: the follower asks
    /// again, and never ends for this reason. If the provider stays on a branch with another block
    /// at this number, no further block of that branch is delivered, and the follower ends with
    /// [`Fault::OtherThanAnchor`] after [`Config::tries`] attempts.
    ///
    /// At most two anchors are pending: the anchor that has waited longest, and the newest anchor.
    Anchor(B256),
    /// The follower must store unsaved progress and then end.
    Stop,
}

/// Answer to a question, or a part of the answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// Answers [`Question::Block`] and [`Question::IndexedBlock`].
    Block(BlockRef),
    /// Answers [`Question::Header`]; `None` if the provider does not have the header.
    Header(Option<&'a HeaderBuf>),
    /// Answers [`Question::Headers`]; allowed any number of times before
    /// [`Complete`](Self::Complete).
    Headers(&'a [HeaderBuf]),
    /// Answers [`Question::Receipts`] for one block; allowed any number of times before
    /// [`Complete`](Self::Complete). The value is `None` if the provider does not have the
    /// receipts.
    Receipts(BlockRef, Result<Option<&'a BlockReceipts>, Failure>),
    /// Answers [`Question::ReceiptsEachWay`] with the name of a method and its result; allowed any
    /// number of times before [`Complete`](Self::Complete).
    ReceiptsBy(&'a str, Result<Option<&'a BlockReceipts>, Failure>),
    /// Answers [`Question::Transactions`] for one block; allowed any number of times before
    /// [`Complete`](Self::Complete), also for the same block. The value is `None` if the provider
    /// does not have the block.
    Transactions(BlockRef, Result<Option<&'a BlockTransactions>, Failure>),
    /// Answers [`Question::Candidates`]: the headers of the first candidates in the range, and a
    /// block. There are no other candidates up to this block.
    Candidates(&'a [HeaderBuf], BlockRef),
    /// Ends an answer: no further part follows.
    Complete,
    /// Ends an answer with a failure: the provider or the index gave no answer, or only a part of
    /// the answer.
    Failed(Failure),
}

/// Output of a [`Follower`]: something for the caller to do.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Ask the provider or the index. The reply is [`Event::Answer`].
    Ask(QuestionId, Question),
    /// Replace the stored cursor with this cursor. The reply is [`Event::Stored`].
    Store(StoreId, Cursor),
    /// Deliver this update to the reader. The reply is [`Event::Acknowledged`].
    Update(UpdateId, News),
    /// Show this note to the user.
    Note(FollowNote),
    /// The follower has ended: at its last block, at the head, after [`Event::Stop`], or with a
    /// fault.
    End(Result<(), Fault>),
}

/// Id of a question. Ids ascend within a run, and start again at 1 in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionId(pub u64);

/// Question to the provider or to the index. At most one question is open at a time.
///
/// A later version of this library may ask other questions. A caller answers a question that it
/// does not know with [`Answer::Failed`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Question {
    /// The block that a tag names now. The reply is [`Answer::Block`].
    Block(BlockTag),
    /// The header with this hash: of an anchor, or of another branch. The reply is
    /// [`Answer::Header`].
    Header(B256),
    /// The headers with these numbers, in order. The reply is [`Answer::Headers`].
    Headers(RangeInclusive<u64>),
    /// All receipts of each of these blocks. The reply is [`Answer::Receipts`], in any order of
    /// blocks.
    Receipts(Vec<BlockRef>),
    /// All receipts of a block, requested by every method that the provider supports. The reply is
    /// [`Answer::ReceiptsBy`].
    ///
    /// The caller tries one method after the other, until the question is [no longer
    /// open](Follower::question).
    ReceiptsEachWay(BlockRef),
    /// All transactions of each of these blocks. The reply is [`Answer::Transactions`], in any order
    /// of blocks.
    ///
    /// The caller asks one provider after the other for the blocks whose transactions are [still
    /// needed](Follower::wants_transactions), until the question is [no longer
    /// open](Follower::question).
    Transactions(Vec<BlockRef>),
    /// The headers of the index's candidates in this range. The reply is [`Answer::Candidates`].
    Candidates(RangeInclusive<u64>),
    /// The block with this number in the index. The reply is [`Answer::Block`].
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
            Self::Receipts(blocks) => write!(f, "receipts of {}", Listed(blocks)),
            Self::Transactions(blocks) => write!(f, "transactions of {}", Listed(blocks)),
            Self::ReceiptsEachWay(block) => write!(f, "receipts of {block}"),
            Self::Candidates(numbers) => {
                write!(f, "candidates in blocks {} to {}", numbers.start(), numbers.end())
            }
            Self::IndexedBlock(number) => write!(f, "block {number} of the index"),
        }
    }
}

/// Writes a list of blocks as their number and the first block.
struct Listed<'a>(&'a [BlockRef]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("no block"),
            [block] => block.fmt(f),
            [first, ..] => write!(f, "{} blocks from {first}", self.0.len()),
        }
    }
}

/// Reason why a provider gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error, serde::Serialize, serde::Deserialize)]
#[error("{reason}")]
#[non_exhaustive]
pub struct Failure {
    /// `true` if the connection failed, so that a retry may succeed; `false` if the provider's
    /// answer itself is the reason.
    pub transient: bool,
    /// Description of the failure.
    pub reason: String,
}

impl Failure {
    /// Returns the failure of a connection, for which a retry may succeed.
    pub fn of_connection(reason: impl Into<String>) -> Self {
        Self { transient: true, reason: reason.into() }
    }

    /// Returns a failure that the provider's answer caused, for example an error of JSON-RPC.
    pub fn of_answer(reason: impl Into<String>) -> Self {
        Self { transient: false, reason: reason.into() }
    }
}

/// Id of a stored cursor. Ids ascend within a run, and start again at 1 in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub u64);

/// Id of an update. Ids ascend within a run, and start again at 1 in each run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct UpdateId(pub u64);

/// News for the reader: the content of an update. At most one update is unacknowledged at a time.
///
/// # JSON
/// `serde` writes an object: `update` is `"started"`, `"anchored"`, `"removed"` or `"blocks"`; the
/// other members are those of [`Started`], [`BlockRef`], [`Removed`] or [`NextBlocks`]. When an
/// update is read, unknown members are ignored.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "update", rename_all = "snake_case")]
#[non_exhaustive]
pub enum News {
    /// The first update of each run, with the resolved configuration.
    Started(Started),
    /// The chain contains this anchor, so all blocks up to it are authentic. Each run delivers this
    /// update for the highest anchor found so far.
    Anchored(BlockRef),
    /// A reorganisation removed blocks, and their logs with them.
    Removed(Removed),
    /// The next blocks of the chain, with their matching logs.
    Blocks(NextBlocks),
}

/// Configuration of a run with all tags and anchors resolved.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Started {
    /// Number of the first header to link; this header is before [`from`](Self::from) if an anchor
    /// is before [`from`](Self::from).
    pub start: u64,
    /// First block whose logs are delivered.
    pub from: u64,
    /// Last block to deliver; `None` if the follower continues with live blocks.
    pub to: Option<u64>,
    /// Last block that an earlier run delivered; `None` if there was no earlier run.
    pub resumed: Option<BlockRef>,
    /// The blocks of the anchors, in the order of [`Config::anchors`].
    pub anchors: Vec<BlockRef>,
    /// Last block for which the index supplies the candidates; `None` without an index.
    pub index_to: Option<u64>,
}

/// Blocks that a reorganisation removed.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Removed {
    /// Last common block of both branches; `None` if no delivered block remains.
    pub ancestor: Option<BlockRef>,
    /// Number of removed blocks.
    pub blocks: usize,
    /// Logs of the removed blocks with [`removed`](LocatedLog::removed) set, the last log first.
    pub logs: Vec<LocatedLog>,
    /// Last delivered block that is not removed, if any. If an earlier run was killed, this block
    /// may be before `ancestor`, because the blocks between the two may never have been delivered.
    pub last: Option<BlockRef>,
    /// Newest block of this chain that the provider called finalised.
    pub finalized: Option<BlockRef>,
}

/// News with the next blocks of the chain and their matching logs.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct NextBlocks {
    /// Last block of this update. All matching logs in the receipts of this block and of the blocks
    /// before it are delivered.
    pub last: BlockRef,
    /// Number of linked blocks in this update.
    pub blocks: usize,
    /// The matching logs of these blocks, in chain order. The `transaction_hash` of each log is
    /// proven by the transactions of the block, or `None`: see [`Config::transaction_hashes`].
    pub logs: Vec<LocatedLog>,
    /// `true` if, according to the profile, the receipts of these blocks contain every log. If
    /// `false`, nodes may return further logs that no receipt contains.
    pub every_log: bool,
    /// Newest block of this chain that the provider called finalised.
    pub finalized: Option<BlockRef>,
}

/// Note for the user; a program can ignore it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FollowNote {
    /// The provider lags: its head is before the last block that it sent.
    Lags {
        /// Head of the provider.
        head: BlockRef,
        /// Last block that the provider sent.
        last: BlockRef,
    },
    /// The provider's head, which is on another branch.
    Reorganization(BlockRef),
    /// An answer failed; the question will be repeated after a wait.
    Failed {
        /// The question.
        question: Question,
        /// Reason why the answer was refused.
        error: AnswerError,
        /// Time until the question is repeated.
        wait: Duration,
    },
    /// Receipts of a block were wrong, but another method or node returned the right receipts.
    OtherMethod {
        /// The block whose receipts were wrong.
        at: BlockRef,
        /// The error that was found in the wrong receipts.
        error: AnswerError,
        /// Name of the method that returned the right receipts.
        method: String,
    },
    /// The transaction hashes of the logs in some blocks are not proven, because no provider
    /// returned the right transactions. The logs themselves are proven.
    UnprovenHashes {
        /// The first of these blocks.
        first: BlockRef,
        /// Number of these blocks.
        blocks: usize,
        /// Reason why transactions were refused or are missing.
        error: AnswerError,
    },
    /// The provider does not report which block is finalised.
    NoFinality(Failure),
    /// The anchor is before the known blocks, or in the range of the index, so it cannot be
    /// compared.
    AnchorNotCompared(BlockRef),
}

impl fmt::Display for FollowNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lags { head, last } => write!(
                f,
                "the provider lags: its head is block {}, but it sent block {} earlier",
                head.number, last.number
            ),
            Self::Reorganization(head) => {
                write!(f, "a reorganisation: block {} now has hash {}", head.number, head.hash)
            }
            Self::Failed { question, error, wait } => {
                write!(f, "{question}: {error}; retry in {:.1} s", wait.as_secs_f64())
            }
            Self::OtherMethod { at, error, method } => {
                write!(f, "receipts of {at}: {error}; {method} returned the right receipts")
            }
            Self::UnprovenHashes { first, blocks, error } => {
                let more = match blocks.saturating_sub(1) {
                    0 => String::new(),
                    more => alloc::format!(" and {more} more blocks"),
                };
                write!(f, "{first}{more}: transaction hashes are not proven: {error}")
            }
            Self::NoFinality(failure) => {
                write!(f, "the provider does not report the finalised block: {failure}")
            }
            Self::AnchorNotCompared(anchor) => write!(
                f,
                "the anchor ({anchor}) is before the known blocks, or in the range of the index, so its hash \
                 can't be compared"
            ),
        }
    }
}

/// Reason why an answer was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The request failed.
    #[error("{0}")]
    Failed(Failure),
    /// The provider does not have the requested block, header or receipts.
    #[error("the provider does not have the requested data")]
    Missing,
    /// The number of a header differs from the requested number.
    #[error("a header of block {found}, but block {asked} was requested")]
    OtherNumber {
        /// Requested number.
        asked: u64,
        /// Number of the header.
        found: u64,
    },
    /// The hash of a header differs from the requested hash.
    #[error("a header of {found}, but block {asked} was requested")]
    OtherBlock {
        /// Requested hash.
        asked: B256,
        /// Number and hash of the received header.
        found: BlockRef,
    },
    /// A header has the number of an anchor but another hash.
    #[error(
        "block {} has hash {found}, but the anchor has hash {}", .anchor.number, .anchor.hash
    )]
    OtherThanAnchor {
        /// The anchor, which arrived after the start.
        anchor: BlockRef,
        /// Hash of the provider's block.
        found: B256,
    },
    /// Consecutive headers are not linked.
    #[error("headers that are not a chain: {0}")]
    Unlinked(ChainError),
    /// Candidates are out of order, or outside the requested range.
    #[error("candidates are out of order, or outside the requested range")]
    OutOfRange,
    /// Receipts do not match the block's receipts root.
    #[error("not the receipts of the block: {0}")]
    Receipts(ReceiptsError),
    /// Transactions do not match the block's transactions root.
    #[error("not the transactions of the block: {0}")]
    Transactions(TransactionsError),
    /// Receipts claim to belong to another block.
    #[error(
        "receipts that claim to be of block {claimed}, but the receipts of block {asked} were requested"
    )]
    ReceiptsOfOther {
        /// Hash of the requested block.
        asked: B256,
        /// Hash of the block to which the receipts claim to belong.
        claimed: B256,
    },
}

/// Reason why a follower ended early.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// A reorganisation reaches below the blocks that are kept.
    #[error(
        "a reorganisation too deep to follow: {branch} is on the provider's branch, but the first \
         block kept here is {first}{}. The logs to remove are unknown; no block of the branch was \
         delivered",
        .finalized.map_or_else(String::new, |at| alloc::format!("; the provider called block {} \
         finalised", at.number))
    )]
    TooDeep {
        /// Lowest known block of the branch.
        branch: BlockRef,
        /// First block that is kept.
        first: BlockRef,
        /// Newest block that the provider called finalised, if it is on this chain and still kept.
        finalized: Option<BlockRef>,
    },
    /// A block has the number of an anchor but another hash.
    #[error(
        "block {} of {of} has hash {found}, but the anchor has hash {}: another chain",
        .anchor.number, .anchor.hash
    )]
    OtherThanAnchor {
        /// The anchor.
        anchor: BlockRef,
        /// Hash of the block that has the anchor's number.
        found: B256,
        /// Source of the block that has the anchor's number: `the provider`, `the index`, or `the cursor`
        /// if an earlier run followed another chain.
        of: &'static str,
    },
    /// The provider's branch leaves the chain before an anchor.
    #[error("the provider follows a branch that does not contain the anchor, {0}")]
    BeforeAnchor(BlockRef),
    /// The provider does not have the block of an anchor.
    #[error("the provider does not have the anchor, block {0}")]
    NoAnchor(B256),
    /// A filter lacks bits of a log of its block, which is impossible according to the chain's
    /// profile.
    #[error(
        "the filter of {at} lacks bits of the block's log {log_index}: the block is forged, or the \
         filters of this chain are unsound. If they are unsound, start over with a profile that \
         says so; the receipts of every block are then requested"
    )]
    Unsound {
        /// Block whose filter lacks bits.
        at: BlockRef,
        /// Index of the log within its block.
        log_index: u64,
    },
    /// The last requested block is before the first requested block.
    #[error("the range begins at block {from} and ends before it, at block {to}")]
    EmptyRange {
        /// First requested block.
        from: u64,
        /// Last requested block.
        to: u64,
    },
    /// The index begins after the first requested block.
    #[error("the index begins at block {first}, after the first requested block, {from}")]
    IndexBegins {
        /// Number of the index's first block.
        first: u64,
        /// Number of the first requested block.
        from: u64,
    },
    /// The filters of some blocks up to this block are unsound, so an index of these filters proves
    /// nothing.
    #[error("filters of blocks up to {0} are unsound, so an index of them proves nothing")]
    IndexUnsound(u64),
    /// The index and the provider are on different chains.
    #[error("block {} is {} in the index, but {theirs} at the provider", .ours.number, .ours.hash)]
    OtherThanIndex {
        /// Last block for which the index is used.
        ours: BlockRef,
        /// Hash of the provider's block with the same number.
        theirs: B256,
    },
    /// Receipts of a block were missing or wrong too often.
    #[error(
        "receipts of {at}: {error}{}, {tries} times: the logs of this block cannot be proven",
        .method.as_deref().map_or_else(String::new, |method| alloc::format!(" (by {method})"))
    )]
    NoReceipts {
        /// Block whose receipts were missing or wrong.
        at: BlockRef,
        /// Last error.
        error: AnswerError,
        /// Name of the method whose receipts were rejected last; `None` if the methods were not
        /// tried in turn.
        method: Option<String>,
        /// Number of failed attempts.
        tries: u32,
    },
    /// Answers failed too often in a row.
    #[error("{question}: {error}{}", times(*.tries))]
    GaveUp {
        /// Last question.
        question: Question,
        /// Last error.
        error: AnswerError,
        /// Number of failures in a row.
        tries: u32,
    },
}

/// Returns a suffix with the number of failures, if there was more than one.
fn times(tries: u32) -> String {
    match tries {
        0 | 1 => String::new(),
        tries => alloc::format!(", {tries} times in a row"),
    }
}
