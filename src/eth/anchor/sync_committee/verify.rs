//! Verification of bootstraps and updates.

use alloc::sync::Arc;

use alloy_primitives::B256;
use thiserror::Error;

use super::Participation;
use super::committee::{Committee, SyncCommittee};
use super::header::{BeaconHeader, BeaconHeaderError, BoundExecution, LightClientHeader, proves};
use super::update::Rank;
use super::update::{Bootstrap, Finality, Update};
use crate::eth::anchor::network::{Fork, Network};

/// Reason why a bootstrap or an update is refused.
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
    /// The bootstrap's header does not bind its execution block.
    #[error(transparent)]
    Header(BeaconHeaderError),
    /// The slot of the bootstrap's header has not started.
    #[error("the trusted block is of slot {slot}, but the current slot is {current_slot}")]
    FutureCheckpoint {
        /// Slot of the header.
        slot: u64,
        /// Slot of the caller's clock.
        current_slot: u64,
    },
    /// Nobody signed.
    #[error("no member of the sync committee signed")]
    NoParticipants,
    /// The attested header does not bind its execution block.
    #[error("attested header: {0}")]
    Attested(BeaconHeaderError),
    /// The finalised header does not bind its execution block.
    #[error("finalised header: {0}")]
    Finalized(BeaconHeaderError),
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
    /// The update contains nothing that is not known.
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
    /// The next sync committee is not the known one.
    #[error("the next sync committee is not the known one of period {period}")]
    OtherCommittee {
        /// Period of the committee.
        period: u64,
    },
    /// The branch does not lead from the sync committee to the state of the header.
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
    /// A bootstrap was requested and updates were sent, or the other way round.
    #[error("an object of another kind than requested")]
    OtherKind,
}

impl LightClientError {
    /// Returns `true` if an honest server can have sent the object: it may be valid for a client
    /// with another clock, or with more or less progress.
    ///
    /// If `false`, the object is invalid for every client of this [`Network`]. The network's fork
    /// schedule must be up to date for that: after a fork that it lacks, every update is invalid.
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

/// A header whose execution proof is verified.
#[derive(Debug, Clone)]
pub(super) struct VerifiedHeader {
    pub(super) beacon: BeaconHeader,
    pub(super) root: B256,
    pub(super) execution: BoundExecution,
}

impl VerifiedHeader {
    fn new(header: &LightClientHeader, network: &Network) -> Result<Self, BeaconHeaderError> {
        let execution = header.bound_execution(network)?;
        Ok(Self { beacon: header.beacon, root: header.beacon.root(), execution })
    }
}

/// An update that passed [`Known::verify`].
#[derive(Debug, Clone)]
pub(super) struct VerifiedUpdate {
    pub(super) attested: VerifiedHeader,
    /// The finalised header; `None` without one, or if it is the genesis block.
    pub(super) finalized: Option<VerifiedHeader>,
    /// `true` if the update proves a finalised header, the genesis block included.
    pub(super) has_finality: bool,
    pub(super) next_committee: Option<Arc<SyncCommittee>>,
    pub(super) participation: Participation,
    pub(super) rank: Rank,
}

impl VerifiedUpdate {
    /// Returns the slot of the finalised header, 0 without one.
    pub(super) fn finalized_slot(&self) -> u64 {
        self.finalized.as_ref().map_or(0, |header| header.beacon.slot)
    }
}

/// Generalized indices of the state that differ by fork.
struct StateIndices {
    finalized_root: u64,
    current_committee: u64,
    next_committee: u64,
}

impl StateIndices {
    /// Returns the indices of the states of a fork. Source: `light-client/sync-protocol.md` of
    /// Altair, Electra and Gloas.
    fn of(fork: Fork) -> Self {
        let (finalized_root, current_committee) = match fork {
            fork if fork < Fork::Electra => (105, 54),
            fork if fork < Fork::Gloas => (169, 86),
            _ => (735, 2945),
        };
        Self { finalized_root, current_committee, next_committee: current_committee + 1 }
    }
}

/// Verifies a bootstrap under a trusted root: `initialize_light_client_store`.
pub(super) fn bootstrap(
    bootstrap: &Bootstrap,
    trusted: B256,
    current_slot: u64,
    network: &Network,
) -> Result<(VerifiedHeader, Committee), LightClientError> {
    // The root is compared first: under another root, nothing else says anything.
    let found = bootstrap.header.beacon.root();
    if found != trusted {
        return Err(LightClientError::OtherRoot { found, trusted });
    }
    let header =
        VerifiedHeader::new(&bootstrap.header, network).map_err(LightClientError::Header)?;
    let slot = header.beacon.slot;
    if slot > current_slot {
        return Err(LightClientError::FutureCheckpoint { slot, current_slot });
    }
    let gindex = StateIndices::of(network.fork_at_slot(slot)).current_committee;
    let root = bootstrap.committee.root();
    if !proves(root, &bootstrap.committee_branch, gindex, header.beacon.state_root) {
        return Err(LightClientError::CommitteeBranch);
    }
    let committee = Committee::new(Arc::clone(&bootstrap.committee));
    Ok((header, committee.map_err(|index| LightClientError::Key { index })?))
}

/// What a light client knows when an update arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) network: &'a Network,
    /// Slot of the finalised header.
    pub(super) finalized_slot: u64,
    /// Committee of the period of that slot.
    pub(super) current: &'a Committee,
    /// Committee of the period after it.
    pub(super) next: Option<&'a Committee>,
}

impl Known<'_> {
    /// Verifies an update: `validate_light_client_update`.
    ///
    /// The checks are those of the specification, with the cheap ones first: the signature is the
    /// last one.
    pub(super) fn verify(
        self,
        update: &Update,
        current_slot: u64,
    ) -> Result<VerifiedUpdate, LightClientError> {
        let network = self.network;
        let participants = update.aggregate.participants();
        if participants == 0 {
            return Err(LightClientError::NoParticipants);
        }
        let (attested_slot, signature_slot) = (update.attested.beacon.slot, update.signature_slot);
        let finalized_slot = update.finality.as_ref().map_or(0, Finality::slot);
        if !(signature_slot > attested_slot && attested_slot >= finalized_slot) {
            return Err(LightClientError::SlotOrder {
                finalized: finalized_slot,
                attested: attested_slot,
                signature: signature_slot,
            });
        }
        if signature_slot > current_slot {
            return Err(LightClientError::Future { signature_slot, current_slot });
        }
        let period = network.period_of_slot(self.finalized_slot);
        let signature_period = network.period_of_slot(signature_slot);
        let committee = match signature_period.checked_sub(period) {
            Some(0) => Some(self.current),
            Some(1) => self.next,
            _ => None,
        };
        let Some(committee) = committee else {
            let last = period + u64::from(self.next.is_some());
            return Err(LightClientError::UnknownCommittee {
                found: signature_period,
                first: period,
                last,
            });
        };
        let in_store_period = network.period_of_slot(attested_slot) == period;
        let teaches = self.next.is_none() && update.next_committee.is_some() && in_store_period;
        if attested_slot <= self.finalized_slot && !teaches {
            let (attested, finalized) = (attested_slot, self.finalized_slot);
            return Err(LightClientError::NotNewer { attested, finalized });
        }
        let attested =
            VerifiedHeader::new(&update.attested, network).map_err(LightClientError::Attested)?;
        let indices = StateIndices::of(network.fork_at_slot(attested_slot));
        let state_root = attested.beacon.state_root;
        let finalized = match &update.finality {
            None => None,
            Some(Finality { header, branch }) => {
                let header = header.as_ref().map(|header| VerifiedHeader::new(header, network));
                let header = header.transpose().map_err(LightClientError::Finalized)?;
                // A state names the genesis block by a root of zero.
                let root = header.as_ref().map_or(B256::ZERO, |header| header.root);
                if !proves(root, branch, indices.finalized_root, state_root) {
                    return Err(LightClientError::FinalityBranch);
                }
                header
            }
        };
        if let Some(next) = &update.next_committee {
            let known = self.next.filter(|_| in_store_period);
            if known.is_some_and(|known| *known.committee() != *next.committee) {
                return Err(LightClientError::OtherCommittee { period: period + 1 });
            }
            let root = next.committee.root();
            if !proves(root, &next.branch, indices.next_committee, state_root) {
                return Err(LightClientError::CommitteeBranch);
            }
        }
        let aggregate = &update.aggregate;
        if !committee.signed_header(aggregate, attested.root, signature_slot, network) {
            return Err(LightClientError::Signature { participants });
        }
        Ok(VerifiedUpdate {
            attested,
            finalized,
            has_finality: update.finality.is_some(),
            next_committee: update.next_committee.as_ref().map(|next| Arc::clone(&next.committee)),
            participation: Participation { signed: participants, of: aggregate.committee_size() },
            rank: update.rank(network.preset()),
        })
    }
}
