//! Verification of bootstraps and updates.

use alloc::boxed::Box;
use alloc::sync::Arc;

use alloy_primitives::B256;

use super::Participation;
use super::committee::{Committee, SyncCommittee};
use super::header::{BeaconHeader, BoundExecution, LightClientHeader, proves};
use super::refusal::LightClientError;
use super::update::Rank;
use super::update::{Bootstrap, Finality, Update};
use crate::eth::anchor::network::{Fork, Network};

/// A header whose execution proof is verified.
#[derive(Debug, Clone)]
pub(super) struct VerifiedHeader {
    pub(super) beacon: BeaconHeader,
    pub(super) root: B256,
    pub(super) execution: BoundExecution,
}

impl VerifiedHeader {
    fn new(header: &LightClientHeader, network: &Network) -> Result<Self, LightClientError> {
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
    let header = VerifiedHeader::new(&bootstrap.header, network)?;
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

/// The facts that a light client knows when an update arrives.
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
    /// The checks are those of the specification, with the cheap checks first: the signature is
    /// checked last.
    pub(super) fn verify(
        self,
        update: &Update,
        current_slot: u64,
    ) -> Result<VerifiedUpdate, LightClientError> {
        let network = self.network;
        let participation = update.aggregate.participation();
        let participants = participation.signed;
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
        let attested = VerifiedHeader::new(&update.attested, network)
            .map_err(|error| LightClientError::Attested(Box::new(error)))?;
        let indices = StateIndices::of(network.fork_at_slot(attested_slot));
        let state_root = attested.beacon.state_root;
        let finalized = match &update.finality {
            None => None,
            Some(Finality { header, branch }) => {
                let header = header.as_ref().map(|header| VerifiedHeader::new(header, network));
                let header = header
                    .transpose()
                    .map_err(|error| LightClientError::Finalized(Box::new(error)))?;
                // A state names the genesis block by a root of zero.
                let root = header.as_ref().map_or(B256::ZERO, |header| header.root);
                if !proves(root, branch, indices.finalized_root, state_root) {
                    return Err(LightClientError::FinalityBranch);
                }
                header
            }
        };
        if let Some((next, branch)) = &update.next_committee {
            let known = self.next.filter(|_| in_store_period);
            if known.is_some_and(|known| known.listed != *next) {
                return Err(LightClientError::OtherCommittee { period: period + 1 });
            }
            let root = next.root();
            if !proves(root, branch, indices.next_committee, state_root) {
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
            next_committee: update.next_committee.as_ref().map(|(next, _)| Arc::clone(next)),
            participation,
            rank: update.rank(network.preset()),
        })
    }
}
