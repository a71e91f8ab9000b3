//! Matching many filters with the scripts of many wallets, in one pass.
//!
//! | part of a scan | type |
//! |---|---|
//! | what to look for | [`Wallets`]: the scripts and the birthday of each wallet |
//! | input | [`FilterItem`]: the filters in chain order |
//! | scan | [`FilterScan::scan`], or on all cores `FilterScan::par_scan` (feature `rayon`) |
//! | output | [`Candidate`]s: the blocks to fetch and scan |
//! | stop and resume | [`ScanCursor`] |
//!
//! # What an answer is worth
//! If a block is not a candidate for a wallet and its filter is correct, the block contains none of
//! the wallet's scripts. A filter that meets a [`Commitment`] is as trustworthy as that commitment.
//! A filter without a commitment is an unverified claim of its sender; [`Statistics::unverified`]
//! is the number of such filters. A filter that is malformed or does not meet its commitment makes
//! its block a candidate, never a "no".
//!
//! # Look-ahead and gap limit
//! When a candidate is reported, the caller may add scripts, as a wallet does when it reveals
//! addresses. The same filter is then matched with the new scripts, repeatedly until none are
//! added. All later filters are matched with the new scripts too, including filters that other
//! cores have already matched.
//!
//! The gap limit of BIP44 is a rule about indices, not about time: a payment to a high index may be
//! in a block before the payment that extends the range to this index. So the earlier filters, from
//! the wallet's birthday on, must be matched with the new scripts as well. [`FilterScan::missed`]
//! returns their heights, and [`FilterScan::scan_missed`] matches them with the new scripts only,
//! repeatedly until no script is missed.
//!
//! A coin that such a pass finds may be spent in a block above, which the caller has scanned before
//! it knew the coin. The filter of that block contains the coin's script, so the block is a
//! candidate as well. Scan the candidates in chain order once `missed` returns `None`, or scan the
//! candidates above the coin again.

mod scanner;
mod wallets;

use alloc::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::Hash as _;
use thiserror::Error;

pub use scanner::FilterScan;
pub use wallets::Wallets;

use super::block_filter::{filter_header, filter_key};
use super::gcs::{Acceptance, GcsError, GcsFilter, GcsParams};

/// A filter and its position in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterItem<'a> {
    /// The height of the filter's block.
    pub height: u32,
    /// The hash of the filter's block, which is the filter's key. No commitment covers this hash.
    /// The caller must take it from the header chain or compare it with that chain, because a
    /// filter that is matched with a wrong key answers "no".
    pub block_hash: BlockHash,
    /// The encoded set, as in a `cfilter` message.
    pub content: &'a [u8],
    /// The commitment that the filter must meet, if one is known.
    pub commitment: Option<Commitment>,
}

impl<'a> FilterItem<'a> {
    /// Parses the encoded set for decoding.
    ///
    /// # Errors
    /// Returns the errors of [`GcsFilter::parse`].
    pub fn gcs(&self) -> Result<GcsFilter<'a>, GcsError> {
        let key = filter_key(&self.block_hash);
        GcsFilter::parse(GcsParams::BASIC, key, self.content, Acceptance::Strict)
    }
}

/// A commitment to a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "by", rename_all = "snake_case")
)]
pub enum Commitment {
    /// The filter's hash, as in `cfheaders` messages.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::filter_hash"))]
    Hash(FilterHash),
    /// The filter headers of the filter and of the filter before it.
    Header {
        /// The filter header of the previous block; all zeros before block 0.
        previous: FilterHeader,
        /// The filter header of the filter itself.
        header: FilterHeader,
    },
}

impl Commitment {
    /// Returns `true` if this is a commitment to the filter with the given
    /// [hash](super::filter_hash).
    pub fn is_met_by(&self, hash: &FilterHash) -> bool {
        match self {
            Self::Hash(committed) => committed == hash,
            Self::Header { previous, header } => filter_header(hash, previous) == *header,
        }
    }
}

/// A block that may contain scripts of a wallet, to be fetched and scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Candidate {
    /// The height of the block.
    pub height: u32,
    /// The hash of the block.
    pub block_hash: BlockHash,
    /// The reason why the block is a candidate.
    pub reason: CandidateReason,
}

/// Reason why a block is a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "kind", rename_all = "snake_case")
)]
pub enum CandidateReason {
    /// The filter may contain scripts of a wallet.
    Scripts {
        /// The index of the wallet that has the scripts.
        wallet: usize,
        /// The indices of the scripts in the wallet, ascending.
        indices: Vec<usize>,
    },
    /// The filter gives no answer: the block is a candidate for every wallet whose birthday is not
    /// after the block.
    NoAnswer(NoAnswer),
}

/// Reason why a filter gives no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "no_answer", rename_all = "snake_case")
)]
pub enum NoAnswer {
    /// The filter does not match its commitment.
    #[error("the filter does not meet its commitment: its hash is {0}")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::filter_hash"))]
    NotCommitted(FilterHash),
    /// The filter is malformed.
    #[error(transparent)]
    Unreadable(#[from] GcsError),
}

/// The position at which a scan continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ScanCursor {
    /// The next height to scan.
    pub next_height: u32,
    /// The block before the next height, if the scan has processed this block. If this block has
    /// left the chain, a reorganisation has happened and the scan must be
    /// [rewound](FilterScan::rewind).
    pub previous: Option<BlockHash>,
}

impl ScanCursor {
    /// The length of an encoded cursor in bytes.
    pub const LEN: usize = 36;

    /// Returns a cursor that starts at `height`.
    pub const fn at(height: u32) -> Self {
        Self { next_height: height, previous: None }
    }

    /// Encodes the cursor: the height, little-endian, and the hash of the previous block, in
    /// internal byte order. An unknown hash is all zeros.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let previous = self.previous.unwrap_or(BlockHash::all_zeros());
        bytes[..4].copy_from_slice(&self.next_height.to_le_bytes());
        bytes[4..].copy_from_slice(previous.as_byte_array());
        bytes
    }

    /// Decodes the bytes of [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let (height, hash) = bytes.split_first_chunk().expect("36 bytes");
        let hash = BlockHash::from_byte_array(hash.try_into().expect("32 bytes are left"));
        let previous = (hash != BlockHash::all_zeros()).then_some(hash);
        Self { next_height: u32::from_le_bytes(*height), previous }
    }
}

/// Counters of a scan. Work that is repeated after a rewind is counted again. Apart from
/// `repeated`, a repeated pass ([`FilterScan::scan_missed`]) adds to the last three counters only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Statistics {
    /// The number of filters that were matched.
    pub filters: u64,
    /// The number of filters that were skipped, because all wallets with scripts have a later
    /// birthday.
    pub skipped: u64,
    /// The number of matched filters that had no commitment.
    pub unverified: u64,
    /// The total bytes of the matched filters.
    pub bytes: u64,
    /// The number of filters that a repeated pass matched with scripts that were added late.
    pub repeated: u64,
    /// The number of blocks that are candidates. A block that a repeated pass reports again is
    /// counted again.
    pub candidates: u64,
    /// The number of candidates whose filter gave no answer, counted in the same way.
    pub no_answers: u64,
    /// The number of queries: for each filter that could be decoded, the number of scripts that it
    /// was matched with, summed over all these filters.
    pub questions: u64,
}

impl Statistics {
    /// Returns the expected number of scripts that match by chance: one in 784,931 queries.
    #[expect(clippy::cast_precision_loss, reason = "an expectation")]
    pub fn expected_false(&self) -> f64 {
        self.questions as f64 / f64::from(GcsParams::BASIC.m())
    }
}

/// Reason why a scan cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScanError {
    /// A filter is missing, repeated, or out of order.
    #[error("a filter of height {found}, expected height {expected}")]
    OutOfOrder {
        /// The height that the scan expects next.
        expected: u32,
        /// The height of the given filter.
        found: u32,
    },
    /// The height is the maximum `u32`, so that no next height exists.
    #[error("height {0}, the limit is {max}", max = u32::MAX - 1)]
    HeightTooLarge(u32),
}
