//! Rules of a run: the configuration with all tags and anchors resolved. The rules decide which logs
//! of a block are wanted, and which answers are refused.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::Log;
use serde::{Deserialize, Serialize};

use super::blocks::Wanted;
use super::{AnswerError, Fault};
use crate::eth::bloom::BloomView;
use crate::eth::chain_profile::ChainProfile;
use crate::eth::forecast;
use crate::eth::header::{BlockRef, ChainBlock};
use crate::eth::log::LocatedLog;
use crate::eth::log_query::{LogQuery, Semantics};
use crate::eth::receipts::{BlockReceipts, BloomAgreement};

/// The configuration of a run with all tags and anchors resolved.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// The queries; a log is wanted if any of these queries matches.
    pub(super) queries: Vec<LogQuery>,
    pub(super) subject: Subject,
    pub(super) profile: ChainProfile,
    pub(super) to: Option<u64>,
    pub(super) confirmations: u64,
    pub(super) keep: usize,
    /// `true` to prove the transaction hashes of logs.
    pub(super) transaction_hashes: bool,
    /// Last block for which an index supplies the candidates.
    pub(super) index_to: Option<u64>,
}

/// The chain, the queries and the first block that a cursor belongs to. A follower refuses a cursor
/// whose subject differs from its own subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    pub(super) chain_id: u64,
    /// The query without its block range, in the JSON format of `eth_getLogs`; a JSON list for
    /// several queries.
    pub(super) query: String,
    pub(super) semantics: Semantics,
    /// Number of the first header to link; this header is before `from` if an anchor is before
    /// `from`.
    pub(super) start: u64,
    /// First block whose logs are wanted.
    pub(super) from: u64,
}

/// Reason why an answer is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// The answer is wrong; another answer may be right.
    Answer(Box<AnswerError>),
    /// The follower must end: another answer would not help.
    Fault(Box<Fault>),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self::Fault(Box::new(fault))
    }
}

impl From<Box<Fault>> for Refused {
    fn from(fault: Box<Fault>) -> Self {
        Self::Fault(fault)
    }
}

impl From<AnswerError> for Refused {
    fn from(error: AnswerError) -> Self {
        Self::Answer(Box::new(error))
    }
}

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
