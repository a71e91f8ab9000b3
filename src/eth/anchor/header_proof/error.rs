//! Errors of decoding and verifying proofs of headers.

use alloy_primitives::B256;

use super::ProofKind;

/// Reason why a proof of a header cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofDecodeError {
    /// The length is not the length of this kind of proof.
    #[error("a proof of the kind {kind} has {expected} bytes, found {found}")]
    Length {
        /// The kind of proof.
        kind: ProofKind,
        /// Number of bytes of this kind.
        expected: usize,
        /// Number of bytes found.
        found: usize,
    },
    /// The number of the kind is unknown.
    #[error("unknown kind of proof {0}, known are 0 to 4")]
    UnknownKind(u64),
    /// The record of an archive is not `rlp([kind, ssz])`.
    #[error("the record of a proof is malformed: {0}")]
    Record(alloy_rlp::Error),
}

/// Reason why a proof does not show that a header is part of the history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderProofError {
    /// The block is not from before the Merge, or the network's epochs are not embedded.
    #[error("block {number} is not before block {merge}, where the embedded epochs end")]
    NotBeforeMerge {
        /// Number of the block.
        number: u64,
        /// Number of the first block that the embedded epochs do not cover; 0 without epochs.
        merge: u64,
    },
    /// A block of this slot has another kind of proof.
    #[error("a proof of the kind {kind} cannot be of slot {slot}, which is in another fork")]
    WrongFork {
        /// The kind of the proof.
        kind: ProofKind,
        /// The slot in the proof.
        slot: u64,
    },
    /// The slot of the proof is not the slot of the header's timestamp.
    #[error("the proof is of slot {slot}, whose time is not the header's time {timestamp}")]
    Time {
        /// The slot in the proof.
        slot: u64,
        /// The timestamp in the header.
        timestamp: u64,
    },
    /// The branch does not lead from the block's hash to the root of its epoch.
    #[error("the block's hash is not in epoch {epoch}")]
    Epoch {
        /// Index of the epoch.
        epoch: u64,
    },
    /// The branch does not lead from the block's hash to the beacon block.
    #[error("the block's hash is not in beacon block {beacon_block}")]
    Execution {
        /// The root of the beacon block in the proof.
        beacon_block: B256,
    },
    /// The branch does not lead from the beacon block to the root of its period.
    #[error("beacon block {beacon_block} is not at slot {slot}")]
    Beacon {
        /// The root of the beacon block in the proof.
        beacon_block: B256,
        /// The slot in the proof.
        slot: u64,
    },
    /// The root of the slot's period is not known. The proof may be valid: with a later list of
    /// summaries, or on a network with embedded roots, it can be decided.
    #[error("the root of the period of slot {slot} is not known, {known} periods are")]
    UnknownPeriod {
        /// The slot in the proof.
        slot: u64,
        /// Number of roots in the list that would have it.
        known: usize,
    },
    /// The verifier knows no slot for the fork of this kind of proof.
    #[error("no slot is known for the fork of a proof of the kind {kind}")]
    UnscheduledFork {
        /// The kind of the proof.
        kind: ProofKind,
    },
    /// The kind of proof needs the block's number or header.
    #[error("a proof of the kind accumulator needs the header")]
    NeedsHeader,
}

impl HeaderProofError {
    /// Returns `true` if an honest source can cause this error, because the verifier knows too
    /// little of the history.
    pub const fn is_undecidable(&self) -> bool {
        matches!(
            self,
            Self::UnknownPeriod { .. }
                | Self::UnscheduledFork { .. }
                | Self::NeedsHeader
                | Self::NotBeforeMerge { merge: 0, .. }
        )
    }
}
