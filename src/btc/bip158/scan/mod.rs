//! Many filters asked for the scripts of many wallets, in one pass.
//!
//! | step | type |
//! |---|---|
//! | what to look for | [`Wallets`]: scripts and a birthday each |
//! | what to look in | [`FilterItem`]: filters in the order of the chain |
//! | look | [`Scan::scan`], on all cores `Scan::par_scan` (feature `rayon`) |
//! | what comes out | [`Candidate`]s: blocks to be looked at |
//! | stop and go on | [`Cursor`] |
//!
//! # What an answer is worth
//! A block that is no candidate of a wallet has none of its scripts, if its filter is the true
//! one. A filter that meets a [`Commitment`] is as true as that is; one without is its sender's
//! word, and [`Statistics::unverified`] counts such. A filter that cannot be read, or does not
//! meet its commitment, makes its block a candidate: never a "no".
//!
//! # Look-ahead
//! Whoever gets a candidate may add scripts, as a wallet does that reveals addresses. The same
//! filter is then asked for them, until nothing new comes, and so are all later ones, also those
//! that other cores have asked already. Filters before are not: a wallet that finds its addresses
//! in the order of the chain does not need it, others [rewind](Scan::rewind).

#[cfg(feature = "rayon")]
mod parallel;
mod scanner;
mod wallets;
mod windows;

use alloc::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::Hash as _;
use thiserror::Error;

pub use scanner::Scan;
pub use wallets::{WalletId, Wallets};

use super::block_filter::{filter_header, filter_key};
use super::gcs::{Acceptance, GcsError, GcsFilter, GcsParams};

/// A filter in its place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterItem<'a> {
    /// The height of its block.
    pub height: u32,
    /// The hash of its block, the filter's key. No commitment covers it: take it from the chain of
    /// block headers, or compare it, since a filter asked with another key says "no".
    pub block_hash: BlockHash,
    /// The encoded set, as a `cfilter` message carries it.
    pub content: &'a [u8],
    /// What the filter is to meet, if anything is known.
    pub commitment: Option<Commitment>,
}

impl<'a> FilterItem<'a> {
    /// The encoded set, ready to be read.
    ///
    /// # Errors
    /// As [`GcsFilter::parse`].
    pub fn gcs(&self) -> Result<GcsFilter<'a>, GcsError> {
        let key = filter_key(&self.block_hash);
        GcsFilter::parse(GcsParams::BASIC, key, self.content, Acceptance::Strict)
    }
}

/// What a filter is committed to by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commitment {
    /// The filter's hash, as a `cfheaders` message carries it.
    Hash(FilterHash),
    /// The headers of the filter and of the one before.
    Header {
        /// That of the filter before; all zeros before block 0.
        previous: FilterHeader,
        /// That of the filter.
        header: FilterHeader,
    },
}

impl Commitment {
    /// Whether this commits to the filter of such a [hash](super::filter_hash).
    pub fn is_met_by(&self, hash: &FilterHash) -> bool {
        match self {
            Self::Hash(committed) => committed == hash,
            Self::Header { previous, header } => filter_header(hash, previous) == *header,
        }
    }
}

/// A block that may hold scripts of a wallet: to be fetched and looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The height of the block.
    pub height: u32,
    /// The hash of the block.
    pub block_hash: BlockHash,
    /// Why it is one.
    pub reason: Reason,
}

/// Why a block is a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The filter may contain scripts of a wallet.
    Scripts {
        /// The wallet.
        wallet: WalletId,
        /// The indices of the scripts in the wallet, ascending.
        indices: Vec<usize>,
    },
    /// The filter says nothing: the block is a candidate of every wallet that is born by then.
    NoAnswer(NoAnswer),
}

/// Why a filter says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoAnswer {
    /// The filter is another than the one that is committed to.
    #[error("the filter does not meet its commitment: its hash is {0}")]
    NotCommitted(FilterHash),
    /// The filter cannot be read.
    #[error(transparent)]
    Unreadable(#[from] GcsError),
}

/// Where a scan goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The height that comes next.
    pub next_height: u32,
    /// The block before, if the scan has seen it: a chain that does not hold it any more was
    /// reorganised, and the scan has to be [rewound](Scan::rewind).
    pub previous: Option<BlockHash>,
}

impl Cursor {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = 36;

    /// The start of a scan from `height` on.
    pub const fn at(height: u32) -> Self {
        Self { next_height: height, previous: None }
    }

    /// The height, little-endian, and the hash of the block before, in the order of the wire; all
    /// zeros if it is not known.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let previous = self.previous.unwrap_or(BlockHash::all_zeros());
        bytes[..4].copy_from_slice(&self.next_height.to_le_bytes());
        bytes[4..].copy_from_slice(previous.as_byte_array());
        bytes
    }

    /// The cursor that [`to_bytes`](Self::to_bytes) wrote.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let (height, hash) = bytes.split_first_chunk().expect("36 bytes");
        let hash = BlockHash::from_byte_array(hash.try_into().expect("32 bytes are left"));
        let previous = (hash != BlockHash::all_zeros()).then_some(hash);
        Self { next_height: u32::from_le_bytes(*height), previous }
    }
}

/// What a scan has done so far. What it does again after a rewind counts again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Filters that were asked.
    pub filters: u64,
    /// Filters that nothing was asked of: no wallet with scripts was born yet.
    pub skipped: u64,
    /// Of those asked, how many had no commitment to meet.
    pub unverified: u64,
    /// The bytes of the filters that were asked.
    pub bytes: u64,
    /// Blocks that are candidates.
    pub candidates: u64,
    /// Of those, blocks whose filter says nothing.
    pub no_answers: u64,
    /// Scripts asked for, over all filters that were read.
    pub questions: u64,
}

impl Statistics {
    /// How many scripts are expected to be found by chance alone: one of 784,931 questions.
    #[expect(clippy::cast_precision_loss, reason = "an expectation")]
    pub fn expected_false(&self) -> f64 {
        self.questions as f64 / f64::from(GcsParams::BASIC.m())
    }
}

/// Why a scan cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScanError {
    /// A filter is missing, comes again, or is out of order.
    #[error("a filter of height {found}, expected that of height {expected}")]
    OutOfOrder {
        /// The height that comes next.
        expected: u32,
        /// The height of the filter.
        found: u32,
    },
    /// A height that none can follow.
    #[error("height {0}, the limit is {max}", max = u32::MAX - 1)]
    HeightTooLarge(u32),
}
