//! Reasons why a bootstrap or an update is refused.

use alloc::boxed::Box;

use alloy_primitives::B256;
use thiserror::Error;

use crate::eth::anchor::network::Fork;

/// Reason why a bootstrap or an update is refused, or why a header commits to no execution block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LightClientError {
    /// The root of the bootstrap's header is not the trusted root.
    #[error("the header has root {found}, but the trusted root is {trusted}")]
    OtherRoot {
        /// Root of the header.
        found: B256,
        /// Root that the caller trusts.
        trusted: B256,
    },
    /// The container of a header is older than the header's fork, so that it lacks fields.
    #[error("a header of slot {slot}, in {fork}, is in a container of an earlier fork")]
    OldContainer {
        /// Slot of the header.
        slot: u64,
        /// Fork of the slot.
        fork: Fork,
    },
    /// A field is set that the header's fork does not have.
    #[error("a header of slot {slot}, in {fork}, has execution fields of a later fork")]
    FieldOfLaterFork {
        /// Slot of the header.
        slot: u64,
        /// Fork of the slot.
        fork: Fork,
    },
    /// The branch does not lead from the execution header or hash to the body's root.
    #[error("the execution branch of the header of slot {slot} is wrong")]
    ExecutionBranch {
        /// Slot of the header.
        slot: u64,
    },
    /// The slot of the bootstrap's header has not started.
    #[error("the trusted block is of slot {slot}, but the current slot is {current_slot}")]
    FutureCheckpoint {
        /// Slot of the header.
        slot: u64,
        /// Slot of the caller's clock.
        current_slot: u64,
    },
    /// No member signed.
    #[error("no member of the sync committee signed")]
    NoParticipants,
    /// The attested header does not bind its execution block.
    #[error("attested header: {0}")]
    Attested(Box<Self>),
    /// The finalised header does not bind its execution block.
    #[error("finalised header: {0}")]
    Finalized(Box<Self>),
    /// The slots do not ascend: finalised, attested, signature.
    #[error(
        "finalised in slot {finalized}, attested in slot {attested}, signed in slot {signature}: \
         not ascending"
    )]
    SlotOrder {
        /// Slot of the finalised header.
        finalized: u64,
        /// Slot of the attested header.
        attested: u64,
        /// Slot of the signature.
        signature: u64,
    },
    /// The slot of the signature has not started.
    #[error("signed in slot {signature_slot}, but the current slot is {current_slot}")]
    Future {
        /// Slot of the signature.
        signature_slot: u64,
        /// Slot of the caller's clock.
        current_slot: u64,
    },
    /// The committee that signed is unknown: an update of an earlier period is missing, or the
    /// update is of a past period.
    #[error("signed in period {found}, but only committees of periods {first} to {last} are known")]
    UnknownCommittee {
        /// Period of the signature.
        found: u64,
        /// Period of the current committee.
        first: u64,
        /// Period of the last known committee.
        last: u64,
    },
    /// The update contains nothing new.
    #[error("attested in slot {attested}, but slot {finalized} is finalised already")]
    NotNewer {
        /// Slot of the attested header.
        attested: u64,
        /// Slot of the finalised header that is known.
        finalized: u64,
    },
    /// The branch does not lead from the finalised header to the attested state.
    #[error("the branch of the finalised header is wrong")]
    FinalityBranch,
    /// The next sync committee differs from the known next sync committee.
    #[error("the next sync committee differs from the known committee of period {period}")]
    OtherCommittee {
        /// Period of the committee.
        period: u64,
    },
    /// The branch does not lead from the sync committee to the header's state root.
    #[error("the Merkle branch of the sync committee does not lead to the header's state root")]
    CommitteeBranch,
    /// The signature is not that of the participants.
    #[error("the signature is not by the {participants} members whose bits are set")]
    Signature {
        /// Number of participants.
        participants: usize,
    },
    /// A key of the sync committee is invalid.
    #[error("key {index} of the sync committee is not a point of the curve, or is infinity")]
    Key {
        /// Index of the key in the committee.
        index: usize,
    },
    /// A bootstrap was requested and updates were sent, or updates were requested and a bootstrap
    /// was sent.
    #[error("an object of another kind than requested")]
    OtherKind,
}

impl LightClientError {
    /// Returns `true` if an honest server can have sent the object: it may be valid for a client
    /// with another clock, or with more or less progress.
    ///
    /// If `false`, the object is invalid for every client of this network. This holds only if the
    /// network's fork schedule is up to date: after a fork that the schedule lacks, every update
    /// seems invalid to this client, also if it is valid.
    pub const fn is_about_progress(&self) -> bool {
        matches!(
            self,
            Self::FutureCheckpoint { .. }
                | Self::Future { .. }
                | Self::UnknownCommittee { .. }
                | Self::NotNewer { .. }
        )
    }
}
