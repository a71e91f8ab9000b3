//! Extracts the logs of a block from its receipts, after verifying the receipts.

use alloc::vec::Vec;

use alloy_primitives::Log;

use super::blocks::Wanted;
use super::refused::Refused;
use super::rules::Rules;
use super::{AnswerError, Fault};
use crate::eth::bloom::BloomView;
use crate::eth::forecast;
use crate::eth::header::{BlockRef, ChainBlock};
use crate::eth::log::LocatedLog;
use crate::eth::receipts::{BlockReceipts, BloomAgreement};

/// Returns the header fields against which the receipts of a block will be checked.
pub(super) fn wanted(block: &ChainBlock<'_>) -> Wanted {
    Wanted {
        receipts_root: block.receipts_root,
        transactions_root: block.transactions_root,
        bloom: *block.bloom,
        timestamp: block.timestamp,
        cost: forecast::json_bytes(block),
    }
}

/// Returns the matching logs of a block, or refuses the answer if the receipts are not exactly
/// those of the block.
pub(super) fn logs(
    rules: &Rules,
    at: BlockRef,
    wanted: &Wanted,
    receipts: &BlockReceipts,
) -> Result<Vec<LocatedLog>, Refused> {
    let (root, bloom) = (wanted.receipts_root, BloomView::from(&wanted.bloom));
    let verified = receipts.verify_by_profile(&rules.profile, at.number, root, bloom);
    let verified = verified.map_err(AnswerError::Receipts)?;
    let claims = receipts.claims();
    let other = claims.iter().filter_map(|claims| claims.block_hash).find(|hash| *hash != at.hash);
    if let Some(claimed) = other {
        return Err(AnswerError::ReceiptsOfOther { asked: at.hash, claimed }.into());
    }
    // The receipts are proven by the root. If the filter still lacks bits of a log, the profile is
    // wrong or the header is forged. Skipping blocks by their filters would then lose logs.
    let proves_absence = rules.profile.at(at.number).bloom.proves_absence();
    if let (BloomAgreement::Missing { log_index, .. }, true) =
        (verified.header_bloom(), proves_absence)
    {
        return Err(Fault::Unsound { at, log_index }.into());
    }
    let semantics = rules.subject.semantics;
    let wants = |log: &Log| rules.queries.iter().any(|query| query.matches(log, semantics));
    Ok(verified.in_block(at, wanted.timestamp).logs_matching(wants).collect())
}
