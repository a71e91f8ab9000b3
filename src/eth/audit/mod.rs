//! Whether an answer to a log query is complete and true, block by block.
//!
//! Under an authentic header two things are certain of a block: a log whose bits its filter lacks
//! is not in it, and with all its receipts, each log that is in it is known. An [`Audit`] takes
//! the headers of a range, a query and what a provider answered; it asks for all receipts of each
//! block that the filter can't rule out, and ends in an [`AuditReport`]: a [`Verdict`] for each
//! block and a [`Finding`] for each log that is missing or not as the chain has it. It does no
//! I/O: receipts come from anyone, since the header says whether they are the block's.
//!
//! A returned log explains nothing about its neighbours (a second log of the same address and
//! topics adds no bit), so every block that may hold a match needs all its receipts.
//!
//! # How to drive it
//! 1. Make an [`Audit`] from a [`Question`] and the answer, and send [`Event::Begin`].
//! 2. Carry out each [`Action`]: for [`Action::FetchReceipts`] send what comes as
//!    [`Event::Receipts`], or give up with [`Event::ReceiptsUnavailable`].
//! 3. Which blocks are still open is asked of the audit ([`open`](Audit::open),
//!    [`is_open`](Audit::is_open)); [`finish`](Audit::finish) ends it at any time.
//!
//! Reports and findings are `serde`: what is stored can be read and its evidence verified again.
//! The JSON of each type is in its documentation.
//!
//! # What is claimed, and what is not
//! - **Relative to the chain.** A verdict or finding holds for the chain that ends at the anchor.
//!   Headers above the highest anchor are [`Unanchored`](Undecidable::Unanchored): whatever is
//!   found there is compared with headers that anyone can make.
//! - **Relative to the answer.** Findings say what is wrong with a set of logs. Replies are not
//!   signed: whose they are is the caller's word.
//! - **Relative to the profile.** What headers commit to is said by the
//!   [`ChainProfile`]. Where its word turns out wrong
//!   ([`ProfileContradicted`](FindingKind::ProfileContradicted)), nothing is concluded from it.
//!   Where receipts don't commit to every log
//!   ([`NotEveryLog`](crate::eth::chain_profile::ReceiptsScope::NotEveryLog)), an omission is
//!   claimed only if the answer has fewer logs of the same address, topics and data in the block
//!   than the receipts have, and no log is called forged for not being in them.
//! - **Not the transaction hash**, which receipts don't hold: it is checked where the block's
//!   transactions are given ([`Event::Transactions`]), else counted as
//!   [unbound](AuditReport::unbound_transaction_hashes).
//! - **Not the order.** Nodes answer in the chain's order; a set in another order has the same
//!   logs.
//!
//! A log marked `removed` says that its block has left the chain. `eth_getLogs` has no such logs
//! (they come from subscriptions and `eth_getFilterChanges`), and who reads one takes it away. So
//! it delivers nothing here: it is set aside with a [finding](FindingKind::Removed), and if the
//! block is on this chain, its log counts as not delivered.

mod answer;
mod blocks;
mod compare;
mod finding;
mod proof;
mod report;

use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use alloy_primitives::{B256, Bytes};
use alloy_trie::EMPTY_ROOT_HASH;
use alloy_trie::root::ordered_trie_root_with_encoder;

use crate::eth::chain_profile::ChainProfile;
use crate::eth::header::{BlockRef, ChainBlock, HeaderChain};
use crate::eth::log::LocatedLog;
use crate::eth::log_query::{BlockSelection, BlockTag, LogQuery, ResolvedBlocks, Semantics};
use crate::eth::receipts::{BlockReceipts, VerifiedReceipts, VerifyError};

use answer::Answer;
use blocks::{Blocks, State};
pub use finding::{Finding, FindingKind, Forgery, Grounds, WrongField};
pub use proof::{EvidenceError, ForgedLog, OmittedLog};
pub use report::{AuditReport, Counts, Examined, Status, Undecidable, Verdict};

/// What was asked, and what is trusted.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Headers of the queried blocks, and of others below and above, as far as an anchor if need
    /// be.
    pub chain: &'a HeaderChain,
    /// Hashes that are trusted. The blocks up to the highest that is on the chain are authentic.
    pub anchors: &'a [B256],
    /// Which logs.
    pub query: &'a LogQuery,
    /// The query's blocks by number, as [resolved](LogQuery::resolve) against the provider's head
    /// when it was asked. Where that is not known exactly, a tag must be resolved too low rather
    /// than too high: the logs of a block that the provider did not have yet are omitted logs
    /// here, while one too many is [no proof](FindingKind::BeyondTag).
    pub blocks: ResolvedBlocks,
    /// By whose rules a log matches.
    pub semantics: Semantics,
    /// What the chain's headers commit to.
    pub profile: &'a ChainProfile,
}

/// Why an audit can't begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The range ends before it begins.
    #[error("the range ends at block {last}, before it begins at block {first}")]
    Reversed {
        /// Its first block.
        first: u64,
        /// Its last block.
        last: u64,
    },
    /// The blocks are not those of the query.
    #[error("the query names other blocks than {blocks:?}")]
    OtherBlocks {
        /// The blocks given.
        blocks: ResolvedBlocks,
    },
    /// Headers of the range are missing at its beginning.
    #[error("headers of blocks {} to {} are missing", .missing.start(), .missing.end())]
    MissingBelow {
        /// The numbers.
        missing: RangeInclusive<u64>,
    },
    /// Headers of the range are missing at its end, or altogether.
    #[error("headers of blocks {} to {} are missing", .missing.start(), .missing.end())]
    MissingAbove {
        /// The numbers.
        missing: RangeInclusive<u64>,
    },
    /// The query asks for a block that is not on the chain.
    #[error("block {hash} is not on the chain")]
    NotOnChain {
        /// Its hash.
        hash: B256,
    },
}

/// What happened outside.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The first event: asks for the receipts of each [open](Audit::open) block. Sent again, it asks
    /// again for what is still missing.
    Begin,
    /// Somebody sent the receipts of a block.
    Receipts {
        /// Hash of the block.
        block_hash: B256,
        /// All its receipts.
        receipts: &'a BlockReceipts,
    },
    /// Nobody has the receipts of a block: it stays undecided.
    ReceiptsUnavailable {
        /// Hash of the block.
        block_hash: B256,
    },
    /// Somebody sent the transactions of a block, for the hashes in the answer.
    Transactions {
        /// Hash of the block.
        block_hash: B256,
        /// Each as it is in the trie of transactions (EIP-2718: legacy ones `rlp([…])`, typed ones
        /// `type || rlp([…])`), in order.
        encodings: &'a [Bytes],
    },
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Get all receipts of this block, from anyone.
    FetchReceipts {
        /// Number of the block.
        number: u64,
        /// Hash of the block.
        block_hash: B256,
    },
    /// What was sent is not the block's. It says nothing about the audited answer.
    Rejected {
        /// The block's hash in the event.
        block_hash: B256,
        /// What is wrong.
        why: Rejection,
    },
    /// What is known of this block now.
    Settled {
        /// Number of the block.
        number: u64,
        /// The verdict.
        verdict: Verdict,
    },
}

/// Why what was sent is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The block is not one of those whose receipts are wanted, or were.
    #[error("no receipts of a block with this hash were asked for")]
    UnknownBlock,
    /// The receipts are not the block's.
    #[error(transparent)]
    Receipts(VerifyError),
    /// The transactions are not the block's.
    #[error("the transactions have the root {computed}, the header says {expected}")]
    Transactions {
        /// Their root.
        computed: B256,
        /// The root in the header.
        expected: B256,
    },
}

/// An audit under way.
///
/// # Examples
/// ```
/// # use chainsieve::eth::header::{HeaderBuf, HeaderChain};
/// # use chainsieve::eth::receipts::BlockReceipts;
/// use chainsieve::eth::audit::{Action, Audit, Event, Question, Status};
/// use chainsieve::eth::chain_profile::ChainProfile;
/// use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
///
/// # let source = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/ethereum/blocks/mainnet_17686111.json");
/// # let Ok(json) = std::fs::read_to_string(source) else { return Ok(()) };
/// # let json: serde_json::Value = serde_json::from_str(&json).unwrap();
/// # let bytes = |text: &str| hex::decode(text.trim_start_matches("0x")).unwrap();
/// # let header = bytes(json["header"].as_str().unwrap());
/// # let encodings: Vec<_> =
/// #     json["receipts"].as_array().unwrap().iter().map(|r| bytes(r.as_str().unwrap())).collect();
/// # let receipts = BlockReceipts::from_encodings(&encodings).unwrap();
/// # let mut chain = HeaderChain::new();
/// # chain.extend_from_rlp(&header).unwrap();
/// # let trusted = chain.last_hash().unwrap();
/// // The provider says that USDT moved in block 17686111 not once.
/// let tether = "0xdac17f958d2ee523a2206206994597c13d831ec7".parse().unwrap();
/// let query = LogQuery::new()
///     .from_block(17_686_111)
///     .to_block(17_686_111)
///     .address(tether)
///     .event("Transfer(address,address,uint256)")?;
/// let question = Question {
///     chain: &chain,
///     anchors: &[trusted],
///     query: &query,
///     blocks: ResolvedBlocks::Range { first: 17_686_111, last: 17_686_111 },
///     semantics: Semantics::Geth,
///     profile: &ChainProfile::ethereum(),
/// };
/// let mut audit = Audit::new(question, &[])?;
/// for action in audit.handle(Event::Begin) {
///     let Action::FetchReceipts { block_hash, .. } = action else { continue };
///     # assert_eq!(block_hash, trusted);
///     let _ = audit.handle(Event::Receipts { block_hash, receipts: &receipts });
/// }
/// let report = audit.finish();
/// assert_eq!(report.status(), Status::Wrong);
/// // Each missing log with a proof for whoever trusts the block's hash.
/// let header = chainsieve::eth::header::HeaderView::decode(&header)?;
/// for omitted in report.omitted() {
///     omitted.verify(&header, &query, Semantics::Geth, &[])?;
/// }
/// # assert!(report.omitted().count() > 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Audit<'a> {
    question: Question<'a>,
    range: RangeInclusive<u64>,
    anchored_to: Option<u64>,
    blocks: Blocks,
    answer: Answer<'a>,
    findings: Vec<Finding>,
    /// The logs that the query wants, where there is no answer to audit.
    collected: Option<Vec<LocatedLog>>,
}

impl<'a> Audit<'a> {
    /// Begins an audit of `logs`, what a provider answered.
    ///
    /// # Errors
    /// [`AuditError`]: the chain does not cover the range, or the blocks are not the query's.
    ///
    /// # Cost
    /// One scan of the range's filters; memory for each block that they can't rule out and each
    /// log of the answer.
    pub fn new(question: Question<'a>, logs: &'a [LocatedLog]) -> Result<Self, AuditError> {
        Self::begin(question, logs, None)
    }

    /// Collects the logs that the query wants from receipts, where there is no answer:
    /// [`finish_collecting`](Self::finish_collecting) returns them.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn collecting(question: Question<'a>) -> Result<Self, AuditError> {
        Self::begin(question, &[], Some(Vec::new()))
    }

    fn begin(
        question: Question<'a>,
        logs: &'a [LocatedLog],
        collected: Option<Vec<LocatedLog>>,
    ) -> Result<Self, AuditError> {
        let range = range(&question)?;
        let anchored_to = question.chain.anchored_to(question.anchors);
        let blocks = Blocks::new(&question, &range);
        let mut findings = Vec::new();
        let answer = Answer::new(&question, &range, anchored_to, logs, &mut findings);
        let mut audit = Self { question, range, anchored_to, blocks, answer, findings, collected };
        audit.settle_empty_blocks();
        Ok(audit)
    }

    /// The blocks whose receipts are still missing, and not given up, in order.
    pub fn open(&self) -> impl Iterator<Item = BlockRef> {
        self.blocks.open().filter_map(|number| {
            Some(BlockRef { number, hash: self.question.chain.block(number)?.hash })
        })
    }

    /// Whether the receipts of the block with this hash are still missing, and not given up.
    pub fn is_open(&self, block_hash: B256) -> bool {
        self.examined(block_hash).is_some_and(|(_, state)| state == State::Open)
    }

    /// Takes note of an event; returns what follows from it. Receipts that are not the block's
    /// are rejected and asked for again; send [`Event::ReceiptsUnavailable`] to give up.
    ///
    /// # Cost
    /// Receipts: their hashes, and a proof for each receipt of which something is missing or
    /// forged. Nothing of them is kept but the findings.
    #[must_use]
    pub fn handle(&mut self, event: Event<'_>) -> Vec<Action> {
        match event {
            Event::Begin => {
                let fetch = |BlockRef { number, hash: block_hash }| Action::FetchReceipts {
                    number,
                    block_hash,
                };
                self.open().map(fetch).collect()
            }
            Event::Receipts { block_hash, receipts } => self.receipts(block_hash, receipts),
            Event::ReceiptsUnavailable { block_hash } => match self.examined(block_hash) {
                None => unknown(block_hash),
                Some((block, _)) => {
                    self.blocks.give_up(block.number);
                    self.settled(block.number)
                }
            },
            Event::Transactions { block_hash, encodings } => {
                self.transactions(block_hash, encodings)
            }
        }
    }

    /// Ends the audit. Blocks that are still open are undecided.
    pub fn finish(self) -> AuditReport {
        self.end().0
    }

    /// The logs that were [collected](Self::collecting) so far, in the order in which they came.
    pub fn collected(&self) -> &[LocatedLog] {
        self.collected.as_deref().unwrap_or_default()
    }

    /// Ends an audit that [collects](Self::collecting); returns the logs of the blocks that were
    /// checked by their receipts besides, in the order of the chain. They are all if the report has
    /// no undecided block.
    pub fn finish_collecting(self) -> (AuditReport, Vec<LocatedLog>) {
        let (report, collected, _) = self.end();
        (report, collected)
    }

    /// Ends the audit; returns besides what was collected, in the order of the chain, and whether
    /// the receipts of all examined blocks came and have every log that nodes return, anchored or
    /// not.
    pub(crate) fn end(mut self) -> (AuditReport, Vec<LocatedLog>, bool) {
        let unsound = self.blocks.unsound_parts(self.question.profile, &self.range);
        let (anchored_to, blocks) = (self.anchored_to, &self.blocks);
        self.answer.finish(&self.question, anchored_to, blocks, &unsound, &mut self.findings);
        let unbound = self.answer.unbound_transaction_hashes();
        let is_whole = blocks.are_all_checked() && unsound.is_empty();
        let mut collected = self.collected.unwrap_or_default();
        collected.sort_by_key(|log| (log.block_number, log.log_index));
        let on_chain = (self.question.chain, blocks);
        let report =
            AuditReport::new(self.range, anchored_to, on_chain, unsound, self.findings, unbound);
        (report, collected, is_whole)
    }

    /// A block of the range without receipts needs none sent.
    fn settle_empty_blocks(&mut self) {
        let empty = BlockReceipts::default();
        let open: Vec<u64> = self.blocks.open().collect();
        for number in open {
            let block = self.question.chain.block(number);
            if let Some(block) = block.filter(|b| b.receipts_root == EMPTY_ROOT_HASH) {
                self.receipts(block.hash, &empty);
            }
        }
    }

    fn receipts(&mut self, block_hash: B256, receipts: &BlockReceipts) -> Vec<Action> {
        let Some((block, state)) = self.examined(block_hash) else { return unknown(block_hash) };
        if matches!(state, State::Checked | State::PartlyChecked) {
            return Vec::new();
        }
        let (profile, number) = (&self.question.profile, block.number);
        let verified =
            receipts.verify_by_profile(profile, number, block.receipts_root, block.bloom.into());
        let has_statuses = profile.has_statuses(number);
        match verified {
            Ok(verified) => {
                self.compare(&block, &verified, receipts);
                self.settled(block.number)
            }
            // Where every receipt has a status, nothing is missing that another source lacks too.
            Err(error) if error.is_undecidable() && !has_statuses => {
                self.blocks.miss_post_states(block.number);
                self.settled(block.number)
            }
            Err(error) => {
                let rejected = Action::Rejected { block_hash, why: Rejection::Receipts(error) };
                vec![rejected, Action::FetchReceipts { number: block.number, block_hash }]
            }
        }
    }

    fn compare(
        &mut self,
        block: &ChainBlock<'_>,
        verified: &VerifiedReceipts<'_>,
        receipts: &BlockReceipts,
    ) {
        let grounds = Grounds::of_block(block.number, self.anchored_to);
        let stretch = self.question.profile.at(block.number);
        if let Some(kind) = compare::contradiction(block, stretch, verified) {
            let lacks = matches!(kind, FindingKind::ProfileContradicted { missing_bits: 1.., .. });
            if lacks && grounds == Grounds::Anchored {
                self.blocks.contradict(block.number);
            }
            self.findings.push(Finding { block: Some(block.number), grounds, kind });
        }
        self.blocks.check(block.number, stretch.receipts);
        let comparison =
            compare::Comparison::new(&self.question, block, stretch.receipts, verified);
        match &mut self.collected {
            Some(collected) => collected.extend(comparison.wanted().map(|mut log| {
                log.transaction_hash =
                    receipts.claimed_transaction_hash(log.transaction_index, block.hash);
                log
            })),
            None => comparison.run(&mut self.answer, grounds, &mut self.findings),
        }
    }

    fn transactions(&mut self, block_hash: B256, encodings: &[Bytes]) -> Vec<Action> {
        let Some((block, _)) = self.examined(block_hash) else { return unknown(block_hash) };
        let expected = block.transactions_root;
        let computed = ordered_trie_root_with_encoder(encodings, |encoding, out| {
            out.extend_from_slice(encoding);
        });
        if computed != expected {
            let why = Rejection::Transactions { computed, expected };
            return vec![Action::Rejected { block_hash, why }];
        }
        self.answer.bind_transactions(block.number, encodings);
        Vec::new()
    }

    /// Whether the filter of the block with this hash does not rule a log out.
    pub(crate) fn is_examined(&self, block_hash: B256) -> bool {
        self.examined(block_hash).is_some()
    }

    /// A block whose receipts were asked for.
    fn examined(&self, block_hash: B256) -> Option<(ChainBlock<'a>, State)> {
        let number = self.blocks.number_of(block_hash)?;
        Some((self.question.chain.block(number)?, self.blocks.state(number)?))
    }

    fn settled(&self, number: u64) -> Vec<Action> {
        let verdict = self.blocks.verdict(number, self.anchored_to);
        vec![Action::Settled { number, verdict }]
    }
}

fn unknown(block_hash: B256) -> Vec<Action> {
    vec![Action::Rejected { block_hash, why: Rejection::UnknownBlock }]
}

/// The queried numbers, all of them on the chain.
fn range(question: &Question<'_>) -> Result<RangeInclusive<u64>, AuditError> {
    let blocks = question.blocks;
    let (first, last) = match blocks {
        ResolvedBlocks::Range { first, last } => (first, last),
        ResolvedBlocks::AtHash(hash) => {
            let block = question.chain.blocks().find(|block| block.hash == hash);
            let number = block.ok_or(AuditError::NotOnChain { hash })?.number;
            (number, number)
        }
    };
    let is_other = |asked: Option<BlockTag>, given: u64| matches!(asked, Some(BlockTag::Number(asked)) if asked != given);
    let other = match (*question.query.blocks(), blocks) {
        (BlockSelection::AtHash(asked), ResolvedBlocks::AtHash(given)) => asked != given,
        (BlockSelection::Range { from, to }, ResolvedBlocks::Range { first, last }) => {
            is_other(from, first) || is_other(to, last)
        }
        _ => true,
    };
    if other {
        return Err(AuditError::OtherBlocks { blocks });
    }
    if last < first {
        return Err(AuditError::Reversed { first, last });
    }
    let Some(covered) = question.chain.numbers() else {
        return Err(AuditError::MissingAbove { missing: first..=last });
    };
    if first < *covered.start() {
        let end = last.min(covered.start() - 1);
        return Err(AuditError::MissingBelow { missing: first..=end });
    }
    if last > *covered.end() {
        let start = first.max(covered.end() + 1);
        return Err(AuditError::MissingAbove { missing: start..=last });
    }
    Ok(first..=last)
}
