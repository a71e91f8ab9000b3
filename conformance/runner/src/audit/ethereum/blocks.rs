//! The blocks of a range, one after the other.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use chainsieve_provider::{Node, RpcError};

use super::chain::Chain;
use super::headers::{Answer, Found, Name, claimed_hash, fetch};
use super::receipts::Auditor;
use crate::audit::report::{AuditError, AuditReport, Difference, rules};

/// A block, and its logs from verified receipts.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) at: BlockRef,
    pub(super) logs: Vec<LocatedLog>,
}

impl Block {
    /// Returns the approximate size of the logs in memory.
    pub(super) fn size(&self) -> usize {
        let size = |log: &LocatedLog| size_of::<LocatedLog>() + 128 + log.log.data.data.len();
        self.logs.iter().map(size).sum()
    }
}

/// Fetches consecutive blocks, and checks them.
pub(super) struct Blocks<'a> {
    node: &'a Node,
    chain: &'a Chain,
    /// The hash of the block before the next one.
    before: Option<B256>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(node: &'a Node, chain: &'a Chain) -> Self {
        Self { node, chain, before: None }
    }

    /// Checks the next block. Returns `None` if its logs are not known for certain.
    pub(super) fn audit(
        &mut self,
        number: u64,
        report: &mut AuditReport,
    ) -> Result<Option<Block>, AuditError> {
        let before = self.before.take();
        let known = report.differences.len();
        let Some(block) = self.header(number, before, report)? else { return Ok(None) };
        if let Err(words) = &block.transactions {
            let what = "the transactions of the block";
            let values = ("a list of hashes", words);
            let difference = Difference::new(rules::RECEIPTS_PLACE, number, what, values);
            self.chain.judge(report, rules::RECEIPTS_PLACE, Some(difference));
        }
        let auditor = Auditor { node: self.node, chain: self.chain, block: &block };
        let logs = auditor.logs(report)?;
        let at = BlockRef::from(&block.header);
        if report.differences.len() > known {
            let kept = still_has(self.node, at);
            // What differs about a block that the node has, or may have, replaced since is none.
            if kept.is_err() {
                report.differences.truncate(known);
            }
            kept?;
        }
        let Some(logs) = logs else { return Ok(None) };
        if !self.chain.commits_to_logs(number) {
            report.leave_undecided(|| {
                let source = self.chain.source(number);
                format!("logs of block {number}: no receipts root commits to every log; {source}")
            });
            return Ok(None);
        }
        Ok(Some(Block { at, logs }))
    }

    /// Fetches the header by its number and by its hash. Returns `None` if it breaks a rule, or
    /// cannot be decided.
    fn header(
        &mut self,
        number: u64,
        before: Option<B256>,
        report: &mut AuditReport,
    ) -> Result<Option<Found>, AuditError> {
        let by_number = match fetch(self.node, self.chain, Name::Number(number), report)? {
            Answer::Found(found) => found,
            Answer::Unusable => return Ok(None),
            Answer::Absent => {
                let error = RpcError::NotFound { what: format!("block {number}") };
                return Err(AuditError::rpc(format!("block {number} by number"), error));
            }
        };
        let hash = by_number.header.hash();
        let by_hash = match fetch(self.node, self.chain, Name::Hash(number, hash), report)? {
            Answer::Found(found) => Some(found),
            Answer::Unusable => return Ok(None),
            Answer::Absent => None,
        };
        let what = "the block by its own hash";
        let differs = |values: (String, String)| {
            Some(Difference::new(rules::HEADER_CHAIN, number, what, values))
        };
        let others = by_hash.as_ref().map(|by_hash| &by_hash.transactions);
        let difference = match (&by_number.transactions, others) {
            (_, None) => differs((format!("the header with hash {hash}"), "no block".into())),
            // If the hash is the same, the header is the same too, but a header does not contain
            // the hashes of the transactions.
            (Ok(transactions), Some(Ok(others))) if transactions != others => {
                let values = ("the transactions of the block by number", "other ones");
                differs((values.0.into(), values.1.into()))
            }
            _ => None,
        };
        if difference.is_some() {
            // A node that has replaced the block since may have dropped it.
            still_has(self.node, BlockRef::from(&by_number.header))?;
        }
        report.check(rules::HEADER_CHAIN, difference);
        let parent = by_number.header.view().parent_hash();
        if let Some(before) = before.filter(|before| *before != parent) {
            // A node whose chain has changed since is not wrong.
            if claimed_hash(self.node, number - 1)?.is_some_and(|again| again != Ok(before)) {
                return Err(AuditError::Reorganised(number - 1));
            }
            let what = "the parent hash is not the hash of the block before";
            let difference = Difference::new(rules::HEADER_CHAIN, number, what, (before, parent));
            report.check(rules::HEADER_CHAIN, Some(difference));
        }
        self.before = Some(hash);
        Ok(by_hash.map(|found| *found))
    }
}

/// Checks that a block is still in the node's chain. Then all blocks before it are, too.
///
/// # Errors
/// Returns [`AuditError::Reorganised`] if the node has another block, or none, at this height.
pub(super) fn still_has(node: &Node, block: BlockRef) -> Result<(), AuditError> {
    match claimed_hash(node, block.number)? {
        // The difference may be about this answer.
        Some(Err(())) => Ok(()),
        Some(Ok(hash)) if hash == block.hash => Ok(()),
        _ => Err(AuditError::Reorganised(block.number)),
    }
}
