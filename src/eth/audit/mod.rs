//! Audit of the answer to a log query: decides for each block whether the answer is complete and
//! correct.
//!
//! An authentic header gives two proofs about its block. A log whose bits are missing in the
//! header's filter is not in the block. All receipts of the block, verified against the receipts
//! root, show every log of the block.
//!
//! An [`Audit`] takes the headers of a range, a query and the answer of a provider. The audit
//! needs all receipts of each block that the filter cannot rule out. The audit ends in an
//! [`AuditReport`] with a [`Verdict`] for each block and a [`Finding`] for each log that is missing
//! or differs from the chain. The audit does no I/O. The receipts may come from an untrusted
//! source, because they are verified against the header.
//!
//! A returned log proves nothing about other logs of its block, because a second log with the same
//! address and topics sets no further bit. So the audit needs all receipts of every block that may
//! contain a match.
//!
//! 1. Create an [`Audit`] from an [`AuditQuestion`] and the answer.
//! 2. Fetch the receipts of each block that is [open](Audit::open), and pass them to
//!    [`check_receipts`](Audit::check_receipts).
//! 3. [`finish`](Audit::finish) ends the audit at any time. Blocks that are still open are undecided.
//!    The evidence in the report ([`OmittedLog`], [`ForgedLog`]) can be verified by others.
//!
//! Reports and findings implement `serde`: a stored report can be read, and its evidence can be
//! verified again. The documentation of each type describes its JSON.
//!
//! # What is claimed, and what is not
//! - **Relative to the chain.** A verdict or finding is valid for the chain that ends at the
//!   anchor. Headers above the highest anchor are [`Unanchored`](Undecidable::Unanchored): anyone
//!   can make such headers, so a difference from them proves nothing.
//! - **Relative to the answer.** Findings describe errors in a set of logs. Replies are not signed,
//!   so only the caller knows which provider sent them.
//! - **Relative to the profile.** The [`ChainProfile`] states what headers commit to. If a block
//!   contradicts the profile ([`ProfileContradicted`](FindingKind::ProfileContradicted)), the audit
//!   concludes nothing from the contradicted statement. If the receipts do not commit to every log
//!   ([`NotEveryLog`](crate::eth::chain_profile::ReceiptsScope::NotEveryLog)), the audit claims an
//!   omission only if the block's receipts have more logs with the same address, topics and data
//!   than the answer has. On such a chain, a log that the receipts lack is not called forged.
//! - **Not the transaction hash.** Receipts do not contain it. The audit checks transaction hashes
//!   against the block's transactions if they are given
//!   ([`check_transactions`](Audit::check_transactions)). Hashes that were
//!   not checked are counted as [unbound](AuditReport::unbound_transaction_hashes).
//! - **Not the order.** Nodes answer in the order of the chain, but the same logs in another order
//!   are still a complete answer.
//!
//! A log marked `removed` claims that its block has left the chain. `eth_getLogs` never returns
//! such logs: only subscriptions and `eth_getFilterChanges` return them. A client that reads such a
//! log deletes it. So the audit reports such a log as a [finding](FindingKind::Removed) and treats
//! the log as not delivered. If the log's block is on this chain, the log is therefore missing in
//! the answer.

mod blocks;
mod compare;
mod finding;
mod proof;
mod report;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use alloy_primitives::{B256, Bytes};
use alloy_trie::EMPTY_ROOT_HASH;

use crate::eth::chain_profile::ChainProfile;
use crate::eth::header::{BlockRef, ChainBlock, LinkedHeaders};
use crate::eth::log::LocatedLog;
use crate::eth::log_query::{BlockSelection, BlockTag, LogQuery, ResolvedBlocks, Semantics};
use crate::eth::receipts::{BlockReceipts, ReceiptsError, VerifiedReceipts};
use crate::eth::transactions;

use blocks::{Blocks, State};
use compare::{Answer, Comparison, contradiction};
pub use finding::{Finding, FindingKind, Forgery, Grounds, WrongField};
pub use proof::{EvidenceError, ForgedLog, OmittedLog};
pub use report::{AuditReport, Counts, Examined, Status, Undecidable, Verdict};

/// The query to audit, and the data that the caller trusts.
#[derive(Debug, Clone, Copy)]
pub struct AuditQuestion<'a> {
    /// Headers of all queried blocks. The headers may extend below and above the range. Blocks can
    /// be decided only if the headers extend to an anchor.
    pub chain: &'a LinkedHeaders,
    /// Trusted block hashes. All blocks up to the highest trusted block on the chain are authentic.
    pub anchors: &'a [B256],
    /// The query for logs.
    pub query: &'a LogQuery,
    /// The query's blocks, as [resolved](LogQuery::resolve) against the provider's head at the time
    /// of the request.
    ///
    /// If the provider's head is not known exactly, resolve a tag to a block that is too low rather
    /// than too high. A block that the provider did not have yet would cause false omissions. A log
    /// above the resolved block gives only a finding that is [no proof](FindingKind::BeyondTag).
    pub blocks: ResolvedBlocks,
    /// The rules by which a log matches the query.
    pub semantics: Semantics,
    /// The properties of the chain: which logs the filters and the receipts roots in its headers
    /// cover.
    pub profile: &'a ChainProfile,
}

/// Reason why an audit cannot begin, or why it rejects receipts or transactions. It proves nothing about
/// the audited answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The last block of the range precedes the first block.
    #[error("the range ends at block {last}, before it begins at block {first}")]
    Reversed {
        /// Number of the first block of the range.
        first: u64,
        /// Number of the last block of the range.
        last: u64,
    },
    /// The given blocks are not the blocks of the query.
    #[error("the query selects other blocks than {blocks}")]
    OtherBlocks {
        /// The blocks given.
        blocks: ResolvedBlocks,
    },
    /// Headers are missing at the beginning of the range.
    #[error("headers of blocks {} to {} are missing", .missing.start(), .missing.end())]
    MissingBelow {
        /// Numbers of the blocks whose headers are missing.
        missing: RangeInclusive<u64>,
    },
    /// Headers are missing at the end of the range, or the chain has no headers at all.
    #[error("headers of blocks {} to {} are missing", .missing.start(), .missing.end())]
    MissingAbove {
        /// Numbers of the blocks whose headers are missing.
        missing: RangeInclusive<u64>,
    },
    /// The query selects a block by hash, and the chain does not contain the block.
    #[error("block {hash} is not on the chain")]
    NotOnChain {
        /// Hash of the block.
        hash: B256,
    },
    /// The audit does not examine the block: the block is not in the range, or its filter rules out a
    /// match.
    #[error("the audit examines no block with this hash")]
    UnknownBlock,
    /// The receipts are not those of the block.
    #[error(transparent)]
    Receipts(ReceiptsError),
    /// The transactions are not those of the block.
    #[error("the transactions have the root {computed}, but the header has {expected}")]
    Transactions {
        /// Computed root of the transactions.
        computed: B256,
        /// The transactions root in the header.
        expected: B256,
    },
}

/// An audit in progress.
///
/// # Examples
/// ```
/// # use chainsieve::eth::header::{HeaderBuf, LinkedHeaders};
/// # use chainsieve::eth::receipts::BlockReceipts;
/// use chainsieve::eth::audit::{Audit, AuditQuestion, Status};
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
/// # let mut chain = LinkedHeaders::new();
/// # chain.extend_from_rlp(&header).unwrap();
/// # let trusted = chain.last_hash().unwrap();
/// // The provider claims that block 17686111 has no transfer of USDT.
/// let tether = "0xdac17f958d2ee523a2206206994597c13d831ec7".parse().unwrap();
/// let query = LogQuery::new()
///     .from_block(17_686_111)
///     .to_block(17_686_111)
///     .address(tether)
///     .event("Transfer(address,address,uint256)")?;
/// let question = AuditQuestion {
///     chain: &chain,
///     anchors: &[trusted],
///     query: &query,
///     blocks: ResolvedBlocks::Range { first: 17_686_111, last: 17_686_111 },
///     semantics: Semantics::Geth,
///     profile: &ChainProfile::ethereum(),
/// };
/// let mut audit = Audit::new(question, &[])?;
/// let open: Vec<_> = audit.open().collect();
/// # assert_eq!(open.len(), 1);
/// for block in open {
///     // Fetch the receipts of the block, from anyone.
///     audit.check_receipts(block.hash, &receipts)?;
/// }
/// let report = audit.finish();
/// assert_eq!(report.status(), Status::Wrong);
/// // Each omitted log has a proof that convinces everyone who trusts the block's hash.
/// let header = chainsieve::eth::header::HeaderView::decode(&header)?;
/// for omitted in report.omitted() {
///     omitted.verify(&header, &query, Semantics::Geth, &[])?;
/// }
/// # assert!(report.omitted().count() > 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Audit<'a> {
    question: AuditQuestion<'a>,
    range: RangeInclusive<u64>,
    anchored_to: Option<u64>,
    blocks: Blocks,
    answer: Answer<'a>,
    findings: Vec<Finding>,
    /// The matching logs, if the audit collects logs instead of auditing an answer.
    collected: Option<Vec<LocatedLog>>,
}

impl<'a> Audit<'a> {
    /// Begins an audit of `logs`, the answer of a provider.
    ///
    /// # Errors
    /// Returns an [`AuditError`] if the chain does not cover the range, or if the blocks are not
    /// those of the query.
    ///
    /// # Cost
    /// Scans the filters of the range once. Needs memory for each block whose filter cannot rule
    /// out a match, and for each log of the answer.
    pub fn new(question: AuditQuestion<'a>, logs: &'a [LocatedLog]) -> Result<Self, AuditError> {
        Self::begin(question, logs, None)
    }

    /// Begins to collect the matching logs from receipts, without an answer to audit.
    ///
    /// [`finish_collecting`](Self::finish_collecting) returns the logs.
    ///
    /// # Errors
    /// Returns the same errors as [`new`](Self::new).
    pub fn collecting(question: AuditQuestion<'a>) -> Result<Self, AuditError> {
        Self::begin(question, &[], Some(Vec::new()))
    }

    fn begin(
        question: AuditQuestion<'a>,
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

    /// Returns the open blocks in ascending order: their receipts are missing.
    pub fn open(&self) -> impl Iterator<Item = BlockRef> {
        self.refs(self.blocks.open())
    }

    /// Returns the blocks that receipts can still decide, in ascending order: those that are
    /// [open](Self::open), and those whose receipts came without post-state roots.
    pub fn unchecked(&self) -> impl Iterator<Item = BlockRef> {
        self.refs(self.blocks.unchecked())
    }

    /// Returns `true` if receipts can still decide the block with this hash: see
    /// [`unchecked`](Self::unchecked).
    pub fn is_unchecked(&self, block_hash: B256) -> bool {
        self.examined(block_hash).is_some_and(|(_, state)| !state.is_checked())
    }

    fn refs(&self, numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = BlockRef> {
        numbers.filter_map(|number| {
            Some(BlockRef { number, hash: self.question.chain.block(number)?.hash })
        })
    }

    /// Verifies the receipts of a block against its header, and compares them with the answer. The
    /// receipts may be from an untrusted source.
    ///
    /// Returns `true` if the receipts are those of the block. If they were compared before, nothing
    /// changes. Returns `false` if this cannot be decided: before Byzantium, receipts without their
    /// post-state roots cannot be hashed. The block is then not [open](Self::open) any more, but still
    /// [unchecked](Self::unchecked): receipts of another source, with these roots, can decide it. The
    /// verdicts are in the report of [`finish`](Self::finish).
    ///
    /// # Errors
    /// Returns an [`AuditError`] if the receipts are not those of the block, or if the audit does not
    /// examine the block. After an error, the state of the block is unchanged.
    ///
    /// # Cost
    /// All receipts are hashed, and one proof is built for each receipt with an omitted or forged
    /// log. Only the findings are kept, not the receipts.
    pub fn check_receipts(
        &mut self,
        block_hash: B256,
        receipts: &BlockReceipts,
    ) -> Result<bool, AuditError> {
        let (block, state) = self.examined(block_hash).ok_or(AuditError::UnknownBlock)?;
        let is_compared = state.is_checked();
        let (profile, number) = (&self.question.profile, block.number);
        let verified =
            receipts.verify_by_profile(profile, number, block.receipts_root, block.bloom.into());
        match verified {
            // A second comparison would repeat the findings of the block.
            Ok(_) if is_compared => Ok(true),
            Ok(verified) => {
                self.compare(&block, &verified, receipts);
                Ok(true)
            }
            // Before Byzantium the root also covers post-state roots, which many nodes no longer
            // store. So it is possible that no source can send receipts that can be hashed.
            Err(error)
                if error.is_undecidable() && !profile.has_statuses(number) && !is_compared =>
            {
                self.blocks.miss_post_states(number);
                Ok(false)
            }
            Err(error) => Err(AuditError::Receipts(error)),
        }
    }

    /// Checks the transaction hashes in the answer against the transactions of a block.
    ///
    /// `encodings` are the block's transactions in order, encoded as in the transactions trie
    /// (EIP-2718): `rlp([…])` for legacy transactions, `type || rlp([…])` for typed transactions.
    ///
    /// # Errors
    /// Returns an [`AuditError`] if the transactions are not those of the block, or if the audit does not
    /// examine the block.
    ///
    /// # Cost
    /// All transactions are hashed.
    pub fn check_transactions(
        &mut self,
        block_hash: B256,
        encodings: &[Bytes],
    ) -> Result<(), AuditError> {
        let (block, _) = self.examined(block_hash).ok_or(AuditError::UnknownBlock)?;
        let expected = block.transactions_root;
        let computed = transactions::root(encodings);
        if computed != expected {
            return Err(AuditError::Transactions { computed, expected });
        }
        self.answer.bind_transactions(block.number, encodings);
        Ok(())
    }

    /// Ends the audit and returns the report. Blocks that are still open are undecided.
    pub fn finish(self) -> AuditReport {
        self.end().0
    }

    /// Returns the logs [collected](Self::collecting) so far, in the order of arrival.
    pub fn collected(&self) -> &[LocatedLog] {
        self.collected.as_deref().unwrap_or_default()
    }

    /// Ends an audit that [collects](Self::collecting), and returns the report and the logs.
    ///
    /// The logs are from the blocks whose receipts were checked, in the order of the chain. The
    /// logs are complete if the report has no undecided block. Their `transaction_hash` is `None`
    /// until [`prove_hashes`](transactions::BlockTransactions::prove_hashes) sets it.
    pub fn finish_collecting(self) -> (AuditReport, Vec<LocatedLog>) {
        let (report, collected, _) = self.end();
        (report, collected)
    }

    /// Ends the audit and returns the report, the collected logs and a flag.
    ///
    /// The logs are in the order of the chain. The flag is `true` if the receipts of all examined
    /// blocks were checked and contain every log that nodes return. The flag ignores anchors.
    pub(crate) fn end(mut self) -> (AuditReport, Vec<LocatedLog>, bool) {
        let unsound = self.blocks.unsound_parts(self.question.profile, &self.range);
        let (anchored_to, blocks) = (self.anchored_to, &self.blocks);
        self.answer.finish(&self.question, anchored_to, blocks, &unsound, &mut self.findings);
        let unbound = self.answer.unbound;
        let is_whole = blocks.are_all_checked() && unsound.is_empty();
        let mut collected = self.collected.unwrap_or_default();
        collected.sort_by_key(|log| (log.block_number, log.log_index));
        let on_chain = (self.question.chain, blocks);
        let report =
            AuditReport::new(self.range, anchored_to, on_chain, unsound, self.findings, unbound);
        (report, collected, is_whole)
    }

    /// Checks all blocks whose receipts root is the root of an empty list: the caller need not fetch
    /// their receipts.
    fn settle_empty_blocks(&mut self) {
        let empty = BlockReceipts::default();
        let open: Vec<BlockRef> = self.open().collect();
        for BlockRef { number, hash } in open {
            let block = self.question.chain.block(number);
            if block.is_some_and(|block| block.receipts_root == EMPTY_ROOT_HASH) {
                let _ = self.check_receipts(hash, &empty);
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
        let properties = self.question.profile.at(block.number);
        if let Some(kind) = contradiction(block, properties, verified) {
            let lacks = matches!(kind, FindingKind::ProfileContradicted { missing_bits: 1.., .. });
            // Only an authentic header may withdraw the profile's statement: anyone can make an
            // unanchored header whose filter lacks bits.
            if lacks && grounds == Grounds::Anchored {
                self.blocks.contradict(block.number);
            }
            self.findings.push(Finding { block: Some(block.number), grounds, kind });
        }
        self.blocks.check(block.number, properties.receipts);
        let comparison = Comparison::new(&self.question, block, properties.receipts, verified);
        match &mut self.collected {
            Some(collected) => collected.extend(comparison.wanted().map(|mut log| {
                log.claimed_transaction_hash =
                    receipts.claimed_transaction_hash(log.transaction_index, block.hash);
                log
            })),
            None => comparison.run(&mut self.answer, grounds, &mut self.findings),
        }
    }

    /// Returns `true` if the filter of the block with this hash cannot rule out a match.
    pub(crate) fn is_examined(&self, block_hash: B256) -> bool {
        self.examined(block_hash).is_some()
    }

    /// Returns a block and its state, if the filter of the block cannot rule out a match.
    fn examined(&self, block_hash: B256) -> Option<(ChainBlock<'a>, State)> {
        let number = self.blocks.number_of(block_hash)?;
        Some((self.question.chain.block(number)?, self.blocks.state(number)?))
    }
}

/// Returns the range of queried block numbers, after checking that the chain has all of them.
fn range(question: &AuditQuestion<'_>) -> Result<RangeInclusive<u64>, AuditError> {
    let blocks = question.blocks;
    let (first, last) = match blocks {
        ResolvedBlocks::Range { first, last } => (first, last),
        ResolvedBlocks::AtHash(hash) => {
            let block = question.chain.blocks().find(|block| block.hash == hash);
            let number = block.ok_or(AuditError::NotOnChain { hash })?.number;
            (number, number)
        }
    };
    // A tag can resolve to any number, so only numbers are compared.
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
