//! Light-client objects: bootstrap and updates, from SSZ.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use alloy_primitives::{B256, FixedBytes};

use super::committee::{SyncAggregate, SyncCommittee};
use super::header::{Layout, LightClientHeader};
use super::ssz::{Container, DecodeError};
use crate::eth::anchor::network::{Fork, Network, Preset};

/// `LightClientBootstrap`: a header, and the sync committee of its period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// Header of the block that the caller trusts.
    pub header: LightClientHeader,
    /// Sync committee of the header's period.
    pub committee: Arc<SyncCommittee>,
    /// Branch from the committee's root to the state's root.
    pub committee_branch: Vec<B256>,
}

/// `LightClientUpdate`, and in the same type `LightClientFinalityUpdate` and
/// `LightClientOptimisticUpdate`, which lack parts of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Header that the sync committee signed.
    pub attested: LightClientHeader,
    /// Sync committee of the period after that of the attested header, if the update contains it,
    /// and the branch from its root to the root of the attested state.
    pub next_committee: Option<(Arc<SyncCommittee>, Vec<B256>)>,
    /// Finalised header, if the update contains it.
    pub finality: Option<Finality>,
    /// Signature of the attested header.
    pub aggregate: SyncAggregate,
    /// Slot in which the signature was made. Nothing proves this slot, but it determines the
    /// committee and the fork version, so that a false slot invalidates the signature.
    pub signature_slot: u64,
}

/// The finalised header in an [`Update`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finality {
    /// The finalised header; `None` if it is the genesis block.
    pub header: Option<LightClientHeader>,
    /// Branch from the finalised root to the root of the attested state.
    pub branch: Vec<B256>,
}

impl Finality {
    /// Returns the slot of the finalised header.
    pub fn slot(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.beacon.slot)
    }
}

/// The objects that update a light client.
///
/// `serde` and `Display` write the [name](Self::name), for example `finality`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateKind {
    /// `LightClientUpdate`: with the next sync committee and a finalised header.
    Full,
    /// `LightClientFinalityUpdate`: with a finalised header.
    Finality,
    /// `LightClientOptimisticUpdate`: with neither.
    Optimistic,
}

chainsieve_lanes::names! {
    UpdateKind, "a kind of update":
    Full = "full", Finality = "finality", Optimistic = "optimistic",
}

/// Header in the fixed part of a container: inline, or the next field of variable size.
enum HeaderPlace<'a> {
    Inline(&'a [u8]),
    Variable,
}

impl<'a> HeaderPlace<'a> {
    fn read(fields: &mut Container<'a>, layout: Layout) -> Result<Self, DecodeError> {
        match layout.header_size() {
            Some(size) => fields.take(size).map(Self::Inline),
            None => fields.offset().map(|()| Self::Variable),
        }
    }

    fn decode(
        self,
        variable: &mut impl Iterator<Item = &'a [u8]>,
        layout: Layout,
    ) -> Result<LightClientHeader, DecodeError> {
        let bytes = match self {
            Self::Inline(bytes) => bytes,
            Self::Variable => variable.next().unwrap_or_default(),
        };
        LightClientHeader::decode(bytes, layout)
    }
}

fn layout_of(fork: Fork) -> Result<Layout, DecodeError> {
    Layout::of(fork).ok_or(DecodeError::NoLightClient(fork))
}

impl Bootstrap {
    /// Decodes the SSZ of a fork's container.
    ///
    /// `fork` is the fork of the header, which a server states in the header
    /// `Eth-Consensus-Version`.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] for any byte sequence that is not exactly one object.
    ///
    /// # Cost
    /// Allocates about the length of the input, which is checked first.
    pub fn from_ssz(ssz: &[u8], fork: Fork, preset: Preset) -> Result<Self, DecodeError> {
        let layout = layout_of(fork)?;
        let mut fields = Container::new("bootstrap", ssz);
        let header = HeaderPlace::read(&mut fields, layout)?;
        let committee = Arc::new(SyncCommittee::decode(&mut fields, preset)?);
        let committee_branch = fields.branch(layout.committee_depth())?;
        let mut variable = fields.end()?.into_iter();
        let header = header.decode(&mut variable, layout)?;
        Ok(Self { header, committee, committee_branch })
    }
}

impl Update {
    /// Decodes the SSZ of a fork's container.
    ///
    /// `fork` is the fork of the attested header, which a server states in the header
    /// `Eth-Consensus-Version` or in the fork digest.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] for any byte sequence that is not exactly one object.
    ///
    /// # Cost
    /// Allocates about the length of the input, which is checked first.
    pub fn from_ssz(
        ssz: &[u8],
        kind: UpdateKind,
        fork: Fork,
        preset: Preset,
    ) -> Result<Self, DecodeError> {
        let layout = layout_of(fork)?;
        let what = match kind {
            UpdateKind::Full => "update",
            UpdateKind::Finality => "finality update",
            UpdateKind::Optimistic => "optimistic update",
        };
        let mut fields = Container::new(what, ssz);
        let attested = HeaderPlace::read(&mut fields, layout)?;
        let next = match kind {
            UpdateKind::Full => Some((
                SyncCommittee::decode(&mut fields, preset)?,
                fields.branch(layout.committee_depth())?,
            )),
            UpdateKind::Finality | UpdateKind::Optimistic => None,
        };
        let finalized = match kind {
            UpdateKind::Full | UpdateKind::Finality => Some((
                HeaderPlace::read(&mut fields, layout)?,
                fields.branch(layout.finality_depth())?,
            )),
            UpdateKind::Optimistic => None,
        };
        let aggregate = SyncAggregate::decode(&mut fields, preset)?;
        let signature_slot = fields.u64()?;
        let mut variable = fields.end()?.into_iter();
        let attested = attested.decode(&mut variable, layout)?;
        let finalized = match finalized {
            Some((header, branch)) => Some((header.decode(&mut variable, layout)?, branch)),
            None => None,
        };
        Self::assemble(attested, next, finalized, aggregate, signature_slot)
    }

    /// Creates an update from its fields. In a container, a field with only zeros is absent.
    pub(super) fn assemble(
        attested: LightClientHeader,
        next: Option<(SyncCommittee, Vec<B256>)>,
        finalized: Option<(LightClientHeader, Vec<B256>)>,
        aggregate: SyncAggregate,
        signature_slot: u64,
    ) -> Result<Self, DecodeError> {
        let is_zero = |branch: &[B256]| branch.iter().all(B256::is_zero);
        let next_committee = match next {
            Some((committee, branch)) if !is_zero(&branch) => Some((Arc::new(committee), branch)),
            Some((committee, _)) if !committee.is_empty() => {
                return Err(DecodeError::CommitteeWithoutBranch);
            }
            _ => None,
        };
        let finality = match finalized {
            Some((header, branch)) if !is_zero(&branch) => {
                let header = (!header.is_empty()).then_some(header);
                if header.as_ref().is_some_and(|header| header.beacon.slot == 0) {
                    return Err(DecodeError::FinalizedGenesis);
                }
                Some(Finality { header, branch })
            }
            Some((header, _)) if !header.is_empty() => {
                return Err(DecodeError::FinalizedWithoutBranch);
            }
            _ => None,
        };
        Ok(Self { attested, next_committee, finality, aggregate, signature_slot })
    }
}

/// Value of an update, for the choice among several updates of one period: the update with the
/// greatest value is the best.
///
/// The order is that of `is_better_update`: a signature by two thirds of the committee; without
/// such a signature, more participants; a next sync committee of the signature's period; any
/// finalised header; a finalised header in the attested period; more participants; an older
/// attested header; an earlier signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a criterion of the specification")]
pub(super) struct Rank {
    // The derived order compares the fields from first to last.
    supermajority: bool,
    /// Participants, if they are fewer than two thirds; otherwise 0.
    minority: usize,
    relevant_committee: bool,
    finality: bool,
    finality_in_period: bool,
    participants: usize,
    attested_slot: Reverse<u64>,
    signature_slot: Reverse<u64>,
}

impl Update {
    /// Returns `true` if the update is a better choice than another one of its period:
    /// `is_better_update`. Neither is verified.
    pub fn is_better_than(&self, other: &Self, preset: Preset) -> bool {
        self.rank(preset) > other.rank(preset)
    }

    /// Returns the rank of the update, by which updates of one period are compared.
    pub(super) fn rank(&self, preset: Preset) -> Rank {
        let period = |slot: u64| slot / preset.slots_per_period();
        let attested_period = period(self.attested.beacon.slot);
        let participation = self.aggregate.participation();
        let (supermajority, participants) =
            (participation.is_supermajority(), participation.signed);
        let in_period = |slot| period(slot) == attested_period;
        Rank {
            supermajority,
            minority: if supermajority { 0 } else { participants },
            relevant_committee: self.next_committee.is_some() && in_period(self.signature_slot),
            finality: self.finality.is_some(),
            finality_in_period: self.finality.as_ref().is_some_and(|at| in_period(at.slot())),
            participants,
            attested_slot: Reverse(self.attested.beacon.slot),
            signature_slot: Reverse(self.signature_slot),
        }
    }
}

impl Update {
    /// Decodes the answer to `/eth/v1/beacon/light_client/updates` as SSZ: updates one after the other.
    /// The digests are those of `network`.
    ///
    /// | bytes | field |
    /// |---|---|
    /// | 8 | length of the rest of the chunk, little-endian |
    /// | 4 | fork digest of the attested slot |
    /// | length − 4 | the update |
    ///
    /// # Errors
    /// Returns a [`DecodeError::InList`] for the first update that is malformed.
    ///
    /// # Cost
    /// Allocates about the length of the input.
    pub fn list_from_ssz(body: &[u8], network: &Network) -> Result<Vec<Self>, DecodeError> {
        let mut updates = Vec::new();
        let mut rest = body;
        while !rest.is_empty() {
            let update = read_chunk(&mut rest, network).map_err(|problem| DecodeError::InList {
                index: updates.len(),
                problem: Box::new(problem),
            })?;
            updates.push(update);
        }
        Ok(updates)
    }
}

fn read_chunk(body: &mut &[u8], network: &Network) -> Result<Update, DecodeError> {
    let truncated = |expected| DecodeError::Truncated { found: body.len(), expected };
    let (length, rest) = body.split_first_chunk().ok_or(truncated(12))?;
    let length = u64::from_le_bytes(*length);
    let chunk = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    let (chunk, rest) = chunk.ok_or(truncated(length.saturating_add(8)))?;
    let (digest, ssz) = chunk.split_first_chunk().ok_or(DecodeError::NoDigest(length))?;
    let digest = FixedBytes::new(*digest);
    let fork = network.fork_of_digest(digest).ok_or(DecodeError::UnknownDigest(digest))?;
    *body = rest;
    Update::from_ssz(ssz, UpdateKind::Full, fork, network.preset())
}
