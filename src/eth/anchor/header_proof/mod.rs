//! Proofs that a header of any age is part of the chain.
//!
//! A [`HeaderProof`] leads by Merkle branches from a block's hash to a root that the verifier
//! knows. [`History`] holds these roots: two lists that no longer grow are embedded, and a light
//! client proves the third list under a beacon state.
//!
//! | kind | blocks | bytes | branches |
//! |---|---|---|---|
//! | [`Accumulator`](ProofKind::Accumulator) | before the Merge | 480 | hash → root of its epoch of 8,192 blocks |
//! | [`HistoricalRoots`](ProofKind::HistoricalRoots) | Merge to Capella | 840 | hash → beacon block → historical root |
//! | [`CapellaSummaries`](ProofKind::CapellaSummaries) | Capella | 808 | hash → beacon block → historical summary |
//! | [`DenebSummaries`](ProofKind::DenebSummaries) | Deneb to Fulu | 840 | the same |
//! | [`GloasSummaries`](ProofKind::GloasSummaries) | Gloas | 904 | hash as the parent in the next beacon block → historical summary |
//!
//! The SSZ of the last four kinds is: branch of the beacon block, root of the beacon block, branch
//! of the execution block's hash, slot (u64, little-endian). The nodes of a branch have 32 bytes,
//! the lowest first. The first kind is only a branch.
//!
//! The [grade](crate::eth::anchor::Grade) of a proven block is that of the root: the embedded lists
//! are published with this library, and the summaries are as reliable as their state root.
//!
//! Sources: portal-network-specs at 01a5ab8c51a9, `legacy/history/history-network.md` (layouts);
//! e2store-format-specs at 021d5e198ab5, `formats/ere.md` (records); EIP-7643 (accumulator);
//! consensus-specs (containers, from which the generalised indices follow).

mod history;

use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::{B256, Bytes};
use alloy_rlp::{Decodable as _, Encodable as _, Header as RlpHeader};
use chainsieve_lanes::names;

use super::Grade;
use super::merkle_branch;
use crate::eth::header::{BlockRef, HeaderView};

pub use history::{
    EPOCH_BLOCKS, ForkSlots, HistoricalSummary, History, PERIOD_SLOTS, SummariesProof, epoch_root,
};

/// The kinds of proofs, as archives number them.
///
/// `serde`, `Display` and `FromStr` use the [name](Self::name), for example `deneb_summaries`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProofKind {
    /// Kind 0, before the Merge: the accumulator of block hashes.
    Accumulator,
    /// Kind 1, from the Merge to Capella: `historical_roots` of the beacon state.
    HistoricalRoots,
    /// Kind 2, Capella: `historical_summaries` of the beacon state.
    CapellaSummaries,
    /// Kind 3, Deneb to Fulu: as kind 2, with one more level in the execution payload.
    DenebSummaries,
    /// Kind 4, from Gloas on: the hash is the parent that the next beacon block builds on, because
    /// a beacon block only promises the payload of its own slot.
    GloasSummaries,
}

names! {
    ProofKind, "a kind of header proof":
    Accumulator = "accumulator", HistoricalRoots = "historical_roots",
    CapellaSummaries = "capella_summaries", DenebSummaries = "deneb_summaries",
    GloasSummaries = "gloas_summaries",
}

impl ProofKind {
    /// Returns the number of the kind in an archive.
    pub const fn code(self) -> u8 {
        match self {
            Self::Accumulator => 0,
            Self::HistoricalRoots => 1,
            Self::CapellaSummaries => 2,
            Self::DenebSummaries => 3,
            Self::GloasSummaries => 4,
        }
    }

    /// Returns the kind with this number.
    ///
    /// # Errors
    /// Returns [`HeaderProofError::UnknownKind`] for another number than 0 to 4.
    pub fn from_code(code: u64) -> Result<Self, HeaderProofError> {
        let kind = Self::ALL.iter().find(|kind| u64::from(kind.code()) == code);
        kind.copied().ok_or(HeaderProofError::UnknownKind(code))
    }

    /// Returns `true` if the proof starts from historical summaries, which only a light client can
    /// prove; `false` if it starts from an embedded list.
    pub const fn uses_summaries(self) -> bool {
        !matches!(self, Self::Accumulator | Self::HistoricalRoots)
    }

    /// Returns the length of a proof's SSZ in bytes.
    pub const fn ssz_length(self) -> usize {
        match self.execution() {
            None => ACCUMULATOR_DEPTH * 32,
            Some(gindex) => (self.beacon_depth() + 1 + gindex.ilog2() as usize) * 32 + 8,
        }
    }

    /// Returns the depth of a beacon block's root under the root of its period: in a vector of
    /// 8,192 roots, which a historical root holds beside a vector of state roots.
    const fn beacon_depth(self) -> usize {
        if matches!(self, Self::HistoricalRoots) { 14 } else { 13 }
    }

    /// Returns the generalised index of the execution block's hash in a beacon block.
    ///
    /// `BeaconBlock.body` is node 12, `execution_payload` node 25 of the body, and `block_hash` is
    /// field 12 of a payload of at most 16 fields (Bellatrix, Capella) or 32 fields (Deneb). From
    /// Gloas on it is `body.signed_execution_payload_bid.message.parent_block_hash`.
    const fn execution(self) -> Option<u64> {
        Some(match self {
            Self::Accumulator => return None,
            Self::HistoricalRoots | Self::CapellaSummaries => 3228,
            Self::DenebSummaries => 6444,
            Self::GloasSummaries => 25384,
        })
    }
}

/// Depth of a block's hash in its epoch: 8,192 records of two fields, and the length of the list.
const ACCUMULATOR_DEPTH: usize = 15;

/// A proof that a block is part of the chain, not verified.
///
/// # JSON
/// `serde` writes and reads `{"kind", "ssz"}`: the name of the kind, and the proof in hex with
/// `0x`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct HeaderProof {
    kind: ProofKind,
    form: Form,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Accumulator { branch: Vec<[u8; 32]> },
    Beacon(BeaconForm),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BeaconForm {
    beacon_branch: Vec<[u8; 32]>,
    beacon_block: [u8; 32],
    execution_branch: Vec<[u8; 32]>,
    slot: u64,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    kind: ProofKind,
    ssz: Bytes,
}

impl HeaderProof {
    /// Decodes the SSZ of a proof of this kind.
    ///
    /// The kind must come from the archive's record or from the block's fork: two kinds have the
    /// same length.
    ///
    /// # Errors
    /// Returns [`HeaderProofError::Length`] if the length differs from
    /// [`ProofKind::ssz_length`].
    pub fn decode(kind: ProofKind, ssz: &[u8]) -> Result<Self, HeaderProofError> {
        let (expected, found) = (kind.ssz_length(), ssz.len());
        let (nodes, rest) = ssz.as_chunks::<32>();
        let length = HeaderProofError::Length { kind, expected, found };
        if expected != found {
            return Err(length);
        }
        if kind.execution().is_none() {
            return Ok(Self { kind, form: Form::Accumulator { branch: nodes.to_vec() } });
        }
        let parts = nodes.split_at_checked(kind.beacon_depth());
        let parts = parts.and_then(|(beacon, rest)| Some((beacon, rest.split_first()?)));
        let (beacon_branch, (&beacon_block, execution_branch)) = parts.ok_or(length.clone())?;
        let slot = rest.try_into().map_err(|_| length)?;
        let form = BeaconForm {
            beacon_branch: beacon_branch.to_vec(),
            beacon_block,
            execution_branch: execution_branch.to_vec(),
            slot: u64::from_le_bytes(slot),
        };
        Ok(Self { kind, form: Form::Beacon(form) })
    }

    /// Returns the SSZ of the proof.
    pub fn encode(&self) -> Vec<u8> {
        match &self.form {
            Form::Accumulator { branch } => branch.as_flattened().to_vec(),
            Form::Beacon(form) => [
                form.beacon_branch.as_flattened(),
                &form.beacon_block,
                form.execution_branch.as_flattened(),
                &form.slot.to_le_bytes(),
            ]
            .concat(),
        }
    }

    /// Decodes the record of an ere archive, after its decompression: `rlp([kind, ssz])`.
    ///
    /// # Errors
    /// Returns an error if the RLP is malformed, has trailing bytes, or has an unknown kind, or if
    /// the SSZ has another length than its kind.
    pub fn decode_record(record: &[u8]) -> Result<Self, HeaderProofError> {
        let mut behind = record;
        let fields = RlpHeader::decode_bytes(&mut behind, true);
        let mut fields = fields.map_err(HeaderProofError::Record)?;
        let code = u64::decode(&mut fields).map_err(HeaderProofError::Record)?;
        let ssz = RlpHeader::decode_bytes(&mut fields, false).map_err(HeaderProofError::Record)?;
        if !behind.is_empty() || !fields.is_empty() {
            return Err(HeaderProofError::Record(alloy_rlp::Error::UnexpectedLength));
        }
        Self::decode(ProofKind::from_code(code)?, ssz)
    }

    /// Returns the record of an ere archive, before its compression.
    pub fn encode_record(&self) -> Vec<u8> {
        let (code, ssz) = (self.kind.code(), self.encode());
        let payload_length = code.length() + ssz[..].length();
        let mut record = Vec::new();
        RlpHeader { list: true, payload_length }.encode(&mut record);
        code.encode(&mut record);
        ssz[..].encode(&mut record);
        record
    }

    /// Returns the kind of the proof.
    pub const fn kind(&self) -> ProofKind {
        self.kind
    }

    /// Returns the slot of the beacon block; `None` for a block from before the Merge.
    pub const fn slot(&self) -> Option<u64> {
        match &self.form {
            Form::Accumulator { .. } => None,
            Form::Beacon(form) => Some(form.slot),
        }
    }

    /// Returns the root of the beacon block; `None` for a block from before the Merge.
    pub fn beacon_block(&self) -> Option<B256> {
        match &self.form {
            Form::Accumulator { .. } => None,
            Form::Beacon(form) => Some(form.beacon_block.into()),
        }
    }

    /// Verifies that the header's block is part of the chain, and returns the grade of the block.
    ///
    /// The header is hashed as received. For a beacon block from before Gloas, the slot in the
    /// proof must be that of the header's timestamp. Otherwise, the slot after a block could take
    /// its place: where no block was proposed, the vector of block roots repeats the last root.
    ///
    /// # Errors
    /// Returns a [`HeaderProofError`] for the first branch or value that does not fit.
    ///
    /// # Cost
    /// One Keccak-256 hash of the header, and 15 to 27 SHA-256 hashes of 64 bytes.
    pub fn verify(
        &self,
        header: &HeaderView<'_>,
        history: &History,
    ) -> Result<Grade, HeaderProofError> {
        let block = BlockRef { number: header.number(), hash: header.hash() };
        self.verify_block(block, header.timestamp(), history)
    }

    /// Verifies the block of a header with this number, hash and timestamp.
    pub(crate) fn verify_block(
        &self,
        block: BlockRef,
        timestamp: u64,
        history: &History,
    ) -> Result<Grade, HeaderProofError> {
        let BlockRef { number, hash } = block;
        match &self.form {
            Form::Accumulator { branch } => {
                let (merge, epoch) = (history.merge_block(), number / EPOCH_BLOCKS);
                let root = history.epoch_root(epoch).filter(|_| number < merge);
                let root = root.ok_or(HeaderProofError::NotBeforeMerge { number, merge })?;
                // The records are under node 2 of the list, its length is node 3. The hash is the
                // first of two fields.
                let gindex = 2 * (2 * EPOCH_BLOCKS + number % EPOCH_BLOCKS);
                if !merkle_branch::is_valid(hash.0, branch, gindex, root.0) {
                    return Err(HeaderProofError::Epoch { epoch });
                }
                Ok(Grade::ReleaseCheckpoint)
            }
            Form::Beacon(form) => {
                let slot = form.slot;
                let time = history.forks().time(slot);
                // From Gloas on, the proof is of a later beacon block.
                let fits = if self.kind == ProofKind::GloasSummaries {
                    time.is_some_and(|time| timestamp < time)
                } else {
                    time == Some(timestamp)
                };
                if !fits {
                    return Err(HeaderProofError::Time { slot, timestamp });
                }
                self.verify_beacon(form, hash, history)
            }
        }
    }

    /// Verifies that a block with this hash is part of the chain, without its header.
    ///
    /// Nothing is proven about the block's number or time. The slot in the proof may be a slot
    /// without a block that follows the block's own.
    ///
    /// # Errors
    /// Returns a [`HeaderProofError`] for the first branch or value that does not fit, and
    /// [`HeaderProofError::NeedsHeader`] for a block from before the Merge, whose place in its
    /// epoch is its number.
    pub fn verify_hash(&self, hash: B256, history: &History) -> Result<Grade, HeaderProofError> {
        match &self.form {
            Form::Accumulator { .. } => Err(HeaderProofError::NeedsHeader),
            Form::Beacon(form) => self.verify_beacon(form, hash, history),
        }
    }

    fn verify_beacon(
        &self,
        form: &BeaconForm,
        hash: B256,
        history: &History,
    ) -> Result<Grade, HeaderProofError> {
        let &BeaconForm { slot, beacon_block, .. } = form;
        let forks = history.forks();
        let gloas = forks.gloas.unwrap_or(u64::MAX);
        let (own_fork, grade, root, known) = match self.kind {
            ProofKind::Accumulator => return Err(HeaderProofError::NeedsHeader),
            ProofKind::HistoricalRoots => {
                let (root, known) = history.historical_root(slot);
                (slot < forks.capella, Grade::ReleaseCheckpoint, root, known)
            }
            ProofKind::CapellaSummaries | ProofKind::DenebSummaries | ProofKind::GloasSummaries => {
                let own_fork = match self.kind {
                    ProofKind::CapellaSummaries => forks.capella..forks.deneb,
                    ProofKind::DenebSummaries => forks.deneb..gloas,
                    _ => gloas..u64::MAX,
                };
                let (root, known) = history.summary_root(slot);
                (own_fork.contains(&slot), history.grade, root, known)
            }
        };
        if !own_fork {
            if self.kind == ProofKind::GloasSummaries && forks.gloas.is_none() {
                return Err(HeaderProofError::UnscheduledFork { kind: self.kind });
            }
            return Err(HeaderProofError::WrongFork { kind: self.kind, slot });
        }
        let execution = self.kind.execution().unwrap_or(0);
        let in_block =
            merkle_branch::is_valid(hash.0, &form.execution_branch, execution, beacon_block);
        if !in_block {
            return Err(HeaderProofError::Execution { beacon_block: beacon_block.into() });
        }
        let root = root.ok_or(HeaderProofError::UnknownPeriod { slot, known })?;
        let gindex = (1 << self.kind.beacon_depth()) + slot % PERIOD_SLOTS;
        if !merkle_branch::is_valid(beacon_block, &form.beacon_branch, gindex, root.0) {
            return Err(HeaderProofError::Beacon { beacon_block: beacon_block.into(), slot });
        }
        Ok(grade)
    }
}

impl TryFrom<Wire> for HeaderProof {
    type Error = HeaderProofError;

    fn try_from(wire: Wire) -> Result<Self, HeaderProofError> {
        Self::decode(wire.kind, &wire.ssz)
    }
}

impl From<HeaderProof> for Wire {
    fn from(proof: HeaderProof) -> Self {
        Self { kind: proof.kind, ssz: proof.encode().into() }
    }
}

/// Error of reading or verifying a proof of a header, or the summaries on which it relies.
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
    #[error("a proof of the kind {kind} cannot be about slot {slot}, which is in another fork")]
    WrongFork {
        /// The kind of the proof.
        kind: ProofKind,
        /// The slot in the proof.
        slot: u64,
    },
    /// The slot of the proof is not the slot of the header's timestamp.
    #[error("the proof is about slot {slot}, whose time is not the header's time {timestamp}")]
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
    #[error("the root of the period of slot {slot} is not known: {known} periods are known")]
    UnknownPeriod {
        /// The slot in the proof.
        slot: u64,
        /// Number of known roots in the list to which the period belongs.
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
    /// The text is not the JSON of a node's answer. The message names the member.
    #[error("{0}")]
    SummariesJson(String),
    /// The length of the SSZ is impossible.
    #[error("{found} bytes are not whole summaries of 64 bytes after a branch")]
    SummariesLength {
        /// Number of bytes.
        found: usize,
    },
    /// The offset of the list in the SSZ does not follow a branch of a known length.
    #[error("the list starts at byte {found}, not after a branch of 5, 6 or 11 nodes")]
    SummariesOffset {
        /// The offset found.
        found: u32,
    },
    /// The branch fits no fork's beacon state.
    #[error("a branch of {found} nodes, known are 5 (Capella), 6 (Electra) and 11 (Gloas)")]
    BranchLength {
        /// Number of nodes in the branch.
        found: usize,
    },
    /// There are more summaries than the state's list can have.
    #[error("{found} summaries, but the list has at most {limit}")]
    TooManySummaries {
        /// Number of summaries.
        found: usize,
        /// Maximum number of summaries.
        limit: u64,
    },
    /// The branch leads from the list to another root.
    #[error("the branch leads to the state root {computed}, expected {expected}")]
    OtherState {
        /// The root to which the branch leads.
        computed: B256,
        /// The believed state root.
        expected: B256,
    },
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
