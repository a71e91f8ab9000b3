//! The header and the receipts of a block.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::{BlockRef, HeaderBuf};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::BlockTag;
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement, VerifiedBlock};
use chainsieve_provider::{Node, RpcError};

use crate::audit::report::{AuditError, AuditReport, Difference, rules};

/// A block, and its logs from verified receipts.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) at: BlockRef,
    pub(super) logs: Vec<LocatedLog>,
}

/// Fetches consecutive blocks, and checks them.
pub(super) struct Blocks<'a> {
    node: &'a Node,
    /// The hash of the block before the next one.
    before: Option<B256>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(node: &'a Node) -> Self {
        Self { node, before: None }
    }

    /// Checks the next block. Returns `None` if its logs are not known for certain.
    pub(super) fn audit(
        &mut self,
        number: u64,
        report: &mut AuditReport,
    ) -> Result<Option<Block>, AuditError> {
        let before = self.before.take();
        let known = report.differences.len();
        let Some(header) = self.header(number, before, report)? else { return Ok(None) };
        let logs = self.logs(&header, report)?;
        let at = BlockRef::from(&header);
        if report.differences.len() > known {
            let kept = still_has(self.node, at);
            // What differs about a block that the node has, or may have, replaced since is none.
            if kept.is_err() {
                report.differences.truncate(known);
            }
            kept?;
        }
        Ok(logs.map(|logs| Block { at, logs }))
    }

    /// Fetches the header by its number and by its hash. Returns `None` if it breaks a rule.
    fn header(
        &mut self,
        number: u64,
        before: Option<B256>,
        report: &mut AuditReport,
    ) -> Result<Option<HeaderBuf>, AuditError> {
        let what = |by: &str| format!("block {number} by {by}");
        let mut found = |by: &str, header: Result<Option<HeaderBuf>, RpcError>| match header {
            Err(RpcError::Malformed(words)) => {
                let values = ("a header whose fields hash to its hash", words);
                let difference = Difference::new(rules::HEADER_JSON, number, what(by), values);
                report.check(rules::HEADER_JSON, Some(difference));
                Ok(None)
            }
            Err(error) => Err(AuditError::rpc(what(by), error)),
            Ok(header) => {
                report.check(rules::HEADER_JSON, None);
                Ok(Some(header))
            }
        };
        let by_number = self.node.header_at(BlockTag::Number(number));
        let Some(by_number) = found("number", by_number)? else { return Ok(None) };
        let Some(header) = by_number else {
            let error = RpcError::NotFound { what: format!("block {number}") };
            return Err(AuditError::rpc(what("number"), error));
        };
        let hash = header.hash();
        let Some(by_hash) = found("hash", self.node.header_by_hash(hash))? else {
            return Ok(None);
        };
        if by_hash.is_none() {
            // A node that has replaced the block since may have dropped it.
            still_has(self.node, BlockRef::from(&header))?;
        }
        // If the hash is the same, the header is the same too.
        let difference = by_hash.is_none().then(|| {
            let values = (format!("the header with hash {hash}"), "no block");
            Difference::new(rules::HEADER_CHAIN, number, what("its own hash"), values)
        });
        report.check(rules::HEADER_CHAIN, difference);
        let parent = header.view().parent_hash();
        if let Some(before) = before.filter(|before| *before != parent) {
            let again = self.node.header_at(BlockTag::Number(number - 1));
            let again = again.map_err(|error| AuditError::rpc(what("number"), error))?;
            // A node whose chain has changed since is not wrong.
            if again.is_some_and(|again| again.hash() != before) {
                return Err(AuditError::Reorganised(number - 1));
            }
            let what = "the parent hash is not the hash of the block before";
            let difference = Difference::new(rules::HEADER_CHAIN, number, what, (before, parent));
            report.check(rules::HEADER_CHAIN, Some(difference));
        }
        self.before = Some(hash);
        Ok(by_hash)
    }

    /// Fetches the receipts by each method, and returns the logs of those that are right.
    fn logs(
        &self,
        header: &HeaderBuf,
        report: &mut AuditReport,
    ) -> Result<Option<Vec<LocatedLog>>, AuditError> {
        let block = BlockRef::from(header);
        let (mut logs, mut failed, mut is_absent) = (None, None, false);
        let mut malformed = Vec::new();
        self.node.receipts_by_each_method(block, |method, receipts| {
            match receipts {
                Ok(Some(receipts)) => {
                    let right = verified(header, method, &receipts, report);
                    logs = logs.take().or(right);
                }
                Ok(None) => is_absent = true,
                // Nodes drop the index of old transactions, but not their receipts: a receipt that
                // is not found, like a method that is not served, is no difference.
                Err(
                    RpcError::MethodMissing { .. }
                    | RpcError::Node { .. }
                    | RpcError::NotFound { .. },
                ) => {}
                Err(RpcError::Malformed(words)) => malformed.push((method, words)),
                Err(error) => failed = Some(AuditError::rpc(method, error)),
            }
            failed.is_some()
        });
        if let Some(error) = failed {
            return Err(error);
        }
        // If a node has dropped the receipts, the receipts of its transactions are missing too.
        if logs.is_some() || !is_absent {
            for (method, words) in malformed {
                let values = ("the receipts of the block", words);
                let difference =
                    Difference::new(rules::RECEIPTS_ROOT, block.number, method, values);
                report.check(rules::RECEIPTS_ROOT, Some(difference));
            }
        }
        if logs.is_none() {
            report.leave_undecided(|| format!("the node has no receipts of {block}"));
        }
        Ok(logs)
    }
}

/// Checks that a block is still in the node's chain. Then all blocks before it are, too.
///
/// # Errors
/// Returns [`AuditError::Reorganised`] if the node has another block, or none, at this height.
pub(super) fn still_has(node: &Node, block: BlockRef) -> Result<(), AuditError> {
    let header = match node.header_at(BlockTag::Number(block.number)) {
        // The difference may be about this header.
        Err(RpcError::Malformed(_)) => return Ok(()),
        header => header.map_err(|error| AuditError::rpc("the block again", error))?,
    };
    match header {
        Some(header) if header.hash() == block.hash => Ok(()),
        _ => Err(AuditError::Reorganised(block.number)),
    }
}

/// Checks receipts against their header. Returns the logs if the receipts are right.
fn verified(
    header: &HeaderBuf,
    method: &'static str,
    receipts: &BlockReceipts,
    report: &mut AuditReport,
) -> Option<Vec<LocatedLog>> {
    let number = header.view().number();
    let verified = match receipts.verify_block(header) {
        Ok(verified) => verified,
        Err(error) if error.is_undecidable() => {
            report.leave_undecided(|| format!("receipts of block {number}, {method}: {error}"));
            return None;
        }
        Err(error) => {
            let values = (header.view().receipts_root(), error);
            let difference = Difference::new(rules::RECEIPTS_ROOT, number, method, values);
            report.check(rules::RECEIPTS_ROOT, Some(difference));
            return None;
        }
    };
    report.check(rules::RECEIPTS_ROOT, None);
    report.check(rules::LOGS_BLOOM, bloom_differs(&verified, number, method));
    let logs: Vec<_> = verified.logs().collect();
    if !receipts.claims().is_empty() {
        report.check(rules::RECEIPTS_PLACE, place_differs(&verified, &logs, method));
    }
    Some(logs)
}

fn bloom_differs(
    verified: &VerifiedBlock<'_>,
    number: u64,
    method: &'static str,
) -> Option<Difference> {
    let differs = |what: String, got: String| {
        Difference::new(rules::LOGS_BLOOM, number, what, ("exactly the bits of the logs", got))
    };
    let receipts = verified.receipts();
    if let Some(receipt) = receipts.unsound_receipt() {
        let got = String::from("other bits than those of its logs");
        return Some(differs(format!("{method}: the filter of receipt {receipt}"), got));
    }
    match receipts.header_bloom() {
        BloomAgreement::Exact => None,
        other => Some(differs("the filter of the header".into(), other.to_string())),
    }
}

/// Compares what receipts in JSON claim about their place, which no root commits to.
fn place_differs(
    verified: &VerifiedBlock<'_>,
    logs: &[LocatedLog],
    method: &'static str,
) -> Option<Difference> {
    let BlockRef { number, hash } = verified.block();
    let differs = |what: String, expected: String, got: String| {
        let what = format!("{method}: {what}");
        Some(Difference::new(rules::RECEIPTS_PLACE, number, what, (expected, got)))
    };
    let mut indices = logs.iter().map(|log| log.log_index);
    for (receipt, claims) in verified.receipts().receipts().claims().iter().enumerate() {
        if let Some(claimed) = claims.block_hash.filter(|claimed| *claimed != hash) {
            let what = format!("blockHash of receipt {receipt}");
            return differs(what, hash.to_string(), claimed.to_string());
        }
        if let Some(claimed) = claims.block_number.filter(|claimed| *claimed != number) {
            let what = format!("blockNumber of receipt {receipt}");
            return differs(what, number.to_string(), claimed.to_string());
        }
        for (claimed, index) in claims.log_indices.iter().zip(indices.by_ref()) {
            if let Some(claimed) = claimed.filter(|claimed| *claimed != index) {
                let what = format!("logIndex of a log of receipt {receipt}");
                return differs(what, index.to_string(), claimed.to_string());
            }
        }
    }
    None
}
