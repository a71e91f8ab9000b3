//! The roots of past blocks that a verifier knows before it receives a proof of a header.

use alloc::vec::Vec;

use alloy_primitives::{B256, U256};

use super::HeaderProofError;
use crate::eth::anchor::Grade;
use crate::eth::anchor::merkle_branch::{self, ListRoot, parent};
use crate::eth::json;

/// Slots in a period: blocks whose roots one historical root or summary covers
/// (`SLOTS_PER_HISTORICAL_ROOT`).
pub const PERIOD_SLOTS: u64 = 8192;

/// Roots of the epochs of 8,192 blocks before the Merge, epoch 0 first; the last epoch has 5,362
/// blocks. 1,897 roots of 32 bytes.
///
/// Source: `historical_epochs` of `tests/mainnet/history/accumulator/
/// historical_hashes_accumulator.ssz` in ethereum/portal-spec-tests at 938744a83d4f. EIP-7643 lists
/// the same roots, and publishes the root of the whole, which a test compares.
static EPOCH_ROOTS: &[u8; 1897 * 32] = include_bytes!("epoch_roots.bin");

/// `historical_roots` of mainnet's beacon state, which has not changed since Capella. 758 roots of
/// 32 bytes.
///
/// Source: `crates/validation/src/assets/historical_roots.ssz` in ethereum/trin at 019d645814ec.
/// Its root, which a test compares, is also in the tests of erigontech/erigon and in state proofs
/// of Layr-Labs/eigenlayer-contracts.
static HISTORICAL_ROOTS: &[u8; 758 * 32] = include_bytes!("historical_roots.bin");

/// The slots of a network at which the form of proofs changes, and the time of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkSlots {
    /// Unix time of slot 0 in seconds.
    pub genesis_time: u64,
    /// Length of a slot in seconds.
    pub seconds_per_slot: u64,
    /// First slot of Capella, whose period has the first historical summary.
    pub capella: u64,
    /// First slot of Deneb.
    pub deneb: u64,
    /// First slot of Gloas; `None` if no slot is set.
    pub gloas: Option<u64>,
}

impl ForkSlots {
    /// The Ethereum mainnet: Capella at epoch 194048, Deneb at epoch 269568, no epoch for Gloas.
    ///
    /// Source: `configs/mainnet.yaml` of consensus-specs at a08d8a6e2b45.
    pub const MAINNET: Self = Self {
        genesis_time: 1_606_824_023,
        seconds_per_slot: 12,
        capella: 194_048 * 32,
        deneb: 269_568 * 32,
        gloas: None,
    };

    /// Returns the time of a slot; `None` if it is beyond the range of `u64`.
    pub(super) fn time(&self, slot: u64) -> Option<u64> {
        slot.checked_mul(self.seconds_per_slot)?.checked_add(self.genesis_time)
    }
}

/// The roots of past blocks that a verifier knows: the lists that it embeds, and the summaries that
/// a light client has proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    forks: ForkSlots,
    epoch_roots: &'static [[u8; 32]],
    historical_roots: &'static [[u8; 32]],
    merge: u64,
    /// Summaries of all periods since Capella, and the grade of a block that is proven by them.
    pub(super) summaries: Vec<HistoricalSummary>,
    pub(super) grade: Grade,
}

impl History {
    /// The history of the Ethereum mainnet, with the embedded lists: blocks of any age up to
    /// Capella can be proven. Later blocks need [summaries](Self::with_summaries).
    pub fn mainnet() -> Self {
        Self {
            forks: ForkSlots::MAINNET,
            epoch_roots: EPOCH_ROOTS.as_chunks().0,
            historical_roots: HISTORICAL_ROOTS.as_chunks().0,
            merge: 15_537_394,
            summaries: Vec::new(),
            grade: Grade::OwnWord,
        }
    }

    /// Replaces the slots at which the form of proofs changes, for example by a newer fork schedule.
    #[must_use]
    pub const fn with_forks(mut self, forks: ForkSlots) -> Self {
        self.forks = forks;
        self
    }

    /// The history of another network, of which this library embeds no lists: only blocks since
    /// Capella can be proven.
    pub const fn of(forks: ForkSlots) -> Self {
        Self {
            forks,
            epoch_roots: &[],
            historical_roots: &[],
            merge: 0,
            summaries: Vec::new(),
            grade: Grade::OwnWord,
        }
    }

    /// Adds the summaries of all periods since Capella, which replace the earlier summaries.
    ///
    /// `grade` is the grade of a block that is proven by these summaries: the result of
    /// [`SummariesProof::verify`], or the caller's own reason to believe the list.
    #[must_use]
    pub fn with_summaries(mut self, summaries: Vec<HistoricalSummary>, grade: Grade) -> Self {
        self.set_summaries(summaries, grade);
        self
    }

    pub(in crate::eth::anchor) fn set_summaries(
        &mut self,
        summaries: Vec<HistoricalSummary>,
        grade: Grade,
    ) {
        (self.summaries, self.grade) = (summaries, grade);
    }

    /// Returns the slots at which the form of proofs changes.
    pub const fn forks(&self) -> &ForkSlots {
        &self.forks
    }

    /// Returns the known historical summaries, the first period since Capella first.
    pub fn summaries(&self) -> &[HistoricalSummary] {
        &self.summaries
    }

    /// Returns the number of the first block after the blocks that the embedded epochs cover: the
    /// first block of the Merge. 0 if no epochs are embedded.
    pub const fn merge_block(&self) -> u64 {
        self.merge
    }

    /// Returns the root of an epoch of 8,192 blocks from before the Merge; `None` if it is not
    /// embedded. [`epoch_root`] computes it from blocks.
    pub fn epoch_root(&self, epoch: u64) -> Option<B256> {
        element(self.epoch_roots, epoch).map(B256::new)
    }

    /// Returns the historical root of the period of a slot from before Capella, and the number of
    /// embedded historical roots.
    pub(super) fn historical_root(&self, slot: u64) -> (Option<B256>, usize) {
        let root = element(self.historical_roots, slot / PERIOD_SLOTS).map(B256::new);
        (root, self.historical_roots.len())
    }

    /// Returns the root over the blocks of the period of a slot since Capella, and the number of
    /// known summaries.
    pub(super) fn summary_root(&self, slot: u64) -> (Option<B256>, usize) {
        // The first summary is that of the period in which Capella began.
        let period = (slot / PERIOD_SLOTS).checked_sub(self.forks.capella / PERIOD_SLOTS);
        let root = period.and_then(|period| element(&self.summaries, period));
        (root.map(|summary| summary.block_summary_root), self.summaries.len())
    }

    /// Returns the root of the embedded list of epochs, as EIP-7643 defines it:
    /// `hash_tree_root(HistoricalHashesAccumulator)` with an empty `current_epoch`.
    ///
    /// The root of mainnet is
    /// `0xec8e040fd6c557b41ca8ddd38f7e9d58a9281918dc92bdb72342a38fb085e701`.
    pub fn accumulator_root(&self) -> B256 {
        let epochs = list_root::<11>(self.epoch_roots);
        parent(&epochs, &ListRoot::<13>::new().list_root()).into()
    }

    /// Returns the root of the embedded list of historical roots:
    /// `hash_tree_root(List[Root, 2**24])`.
    ///
    /// The root of mainnet is
    /// `0x4df6b89755125d4f6c5575039a04e22301a5a49ee893c1d27e559e3eeab73da7`.
    pub fn historical_roots_root(&self) -> B256 {
        list_root::<24>(self.historical_roots).into()
    }
}

fn element<T: Copy>(list: &[T], index: u64) -> Option<T> {
    list.get(usize::try_from(index).ok()?).copied()
}

fn list_root<const DEPTH: usize>(elements: &[[u8; 32]]) -> [u8; 32] {
    let mut list = ListRoot::<DEPTH>::new();
    let whole = elements.iter().all(|&element| list.push(element));
    debug_assert!(whole, "the embedded lists are shorter than their limits");
    list.list_root()
}

/// Number of blocks in an epoch of the accumulator.
pub const EPOCH_BLOCKS: u64 = 8192;

/// Computes the root of an epoch: of the hashes of up to 8,192 blocks, each with the total difficulty up
/// to and including it. Returns `None` if there are more blocks.
///
/// The root is the `Accumulator` entry of an archive, and
/// [`epoch_root`](History::epoch_root) of the epoch. It also commits to the number of
/// blocks, so no block can be left out.
///
/// Source: `EpochRecord` of EIP-7643, `hash_tree_root(List[HeaderRecord, 8192])`.
///
/// # Cost
/// Two SHA-256 hashes of 64 bytes for each block. Memory is 14 nodes.
pub fn epoch_root(blocks: impl IntoIterator<Item = (B256, U256)>) -> Option<B256> {
    let mut records = ListRoot::<13>::new();
    let mut blocks = blocks.into_iter();
    let fits =
        blocks.all(|(hash, difficulty)| records.push(parent(&hash, &difficulty.to_le_bytes())));
    fits.then(|| records.list_root().into())
}

/// Length of the fixed part of the SSZ container before its branch: epoch (8) and offset (4).
const FIXED: usize = 12;

/// The roots of the blocks and states of one period of 8,192 slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HistoricalSummary {
    /// Root of the vector of 8,192 block roots, one for each slot.
    pub block_summary_root: B256,
    /// Root of the vector of 8,192 state roots, one for each slot.
    pub state_summary_root: B256,
}

/// Historical summaries with their Merkle branch in a beacon state, not verified.
///
/// The list has one summary for each period since Capella. It grows by one every 8,192 slots, and
/// never changes otherwise.
///
/// # JSON
/// `serde` reads and writes `{"historical_summaries": […], "proof": […]}`. Unknown members are
/// ignored.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SummariesProof {
    /// The summaries of all complete periods since Capella.
    #[serde(rename = "historical_summaries")]
    pub summaries: Vec<HistoricalSummary>,
    /// The branch of the list in the beacon state, the lowest sibling first.
    #[serde(rename = "proof")]
    pub branch: Vec<B256>,
}

impl SummariesProof {
    /// Decodes the SSZ container `HistoricalSummariesWithProof`: epoch (u64), offset of the list
    /// (u32), branch, list. Integers are little-endian. The epoch is not kept, because no root
    /// covers it.
    ///
    /// # Errors
    /// Returns an error if the offset or the length is impossible.
    pub fn from_ssz(bytes: &[u8]) -> Result<Self, HeaderProofError> {
        let length = HeaderProofError::SummariesLength { found: bytes.len() };
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>().ok_or(length.clone())?;
        let [.., a, b, c, d] = *fixed;
        let found = u32::from_le_bytes([a, b, c, d]);
        let nodes = match found {
            172 => 5,
            204 => 6,
            364 => 11,
            _ => return Err(HeaderProofError::SummariesOffset { found }),
        };
        let (branch, list) = rest.split_at_checked(nodes * 32).ok_or(length)?;
        let (branch, _) = branch.as_chunks::<32>();
        Ok(Self {
            summaries: HistoricalSummary::list_from_ssz(list)?,
            branch: branch.iter().copied().map(B256::new).collect(),
        })
    }

    /// Parses the answer of a beacon node, with its envelope `data` or without it.
    ///
    /// There is no standard endpoint. Lodestar has
    /// `/eth/v1/lodestar/states/{root}/historical_summaries`, Nimbus has
    /// `/nimbus/v1/debug/beacon/states/{root}/historical_summaries`.
    ///
    /// # Errors
    /// Returns [`HeaderProofError::SummariesJson`].
    pub fn from_json(text: &str) -> Result<Self, HeaderProofError> {
        #[derive(serde::Deserialize)]
        struct SummariesJson {
            data: Option<SummariesProof>,
            historical_summaries: Option<Vec<HistoricalSummary>>,
            proof: Option<Vec<B256>>,
        }
        let answer: SummariesJson = serde_json::from_str(text)
            .map_err(|error| HeaderProofError::SummariesJson(json::message(&error)))?;
        if let Some(data) = answer.data {
            return Ok(data);
        }
        let missing =
            |name| HeaderProofError::SummariesJson(alloc::format!("missing field `{name}`"));
        Ok(Self {
            summaries: answer
                .historical_summaries
                .ok_or_else(|| missing("historical_summaries"))?,
            branch: answer.proof.ok_or_else(|| missing("proof"))?,
        })
    }

    /// Verifies that the state with this root has the summaries, and returns the grade of a block that
    /// is proven by these summaries.
    ///
    /// `grade` says why the state root is believed. The length of the branch tells the fork of the
    /// state: 5 nodes are generalised index 59 (Capella, Deneb), 6 are 91 (Electra, Fulu), 11 are
    /// 2950 (Gloas). A wrong fork cannot be made to fit, because the list's root is the hash of its
    /// elements and its length.
    ///
    /// # Errors
    /// Returns an error if the branch has another length, or leads to another root.
    ///
    /// # Cost
    /// Two SHA-256 hashes of 64 bytes for each summary.
    pub fn verify(&self, state_root: B256, grade: Grade) -> Result<Grade, HeaderProofError> {
        let gindex = match self.branch.len() {
            5 => 59,
            6 => 91,
            11 => 2950,
            found => return Err(HeaderProofError::BranchLength { found }),
        };
        let branch: Vec<_> = self.branch.iter().map(|node| node.0).collect();
        let leaf = summaries_root(&self.summaries)?;
        let computed = merkle_branch::root(leaf, &branch, gindex).map_or(B256::ZERO, B256::new);
        if computed != state_root {
            return Err(HeaderProofError::OtherState { computed, expected: state_root });
        }
        Ok(grade.of_ancestor())
    }
}

impl HistoricalSummary {
    /// Decodes a bare list, 64 bytes for each summary.
    ///
    /// # Errors
    /// Returns [`HeaderProofError::SummariesLength`] if the length is not a multiple of 64.
    pub fn list_from_ssz(list: &[u8]) -> Result<Vec<Self>, HeaderProofError> {
        let (roots, rest) = list.as_chunks::<32>();
        let (pairs, odd) = roots.as_chunks::<2>();
        if !rest.is_empty() || !odd.is_empty() {
            return Err(HeaderProofError::SummariesLength { found: list.len() });
        }
        let summary = |&[block, state]: &[[u8; 32]; 2]| Self {
            block_summary_root: block.into(),
            state_summary_root: state.into(),
        };
        Ok(pairs.iter().map(summary).collect())
    }
}

/// Returns the root of the list: `hash_tree_root(List[HistoricalSummary, 2**24])`.
fn summaries_root(summaries: &[HistoricalSummary]) -> Result<[u8; 32], HeaderProofError> {
    let mut list = ListRoot::<24>::new();
    for summary in summaries {
        if !list.push(parent(&summary.block_summary_root, &summary.state_summary_root)) {
            let (found, limit) = (summaries.len(), ListRoot::<24>::LIMIT);
            return Err(HeaderProofError::TooManySummaries { found, limit });
        }
    }
    Ok(list.list_root())
}
