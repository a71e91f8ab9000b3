//! What a verifier knows of the past before it is given a proof of a header.

use alloy_primitives::B256;

use super::summaries::KnownSummaries;
use crate::eth::anchor::list_root::ListRoot;
use crate::eth::anchor::merkle_branch::parent;

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

/// What a verifier knows of the past: the lists that it embeds, and the summaries that a light
/// client has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    forks: ForkSlots,
    epoch_roots: &'static [[u8; 32]],
    historical_roots: &'static [[u8; 32]],
    merge: u64,
    summaries: Option<KnownSummaries>,
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
            summaries: None,
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
        Self { forks, epoch_roots: &[], historical_roots: &[], merge: 0, summaries: None }
    }

    /// Adds historical summaries, which replace earlier ones.
    #[must_use]
    pub fn with_summaries(mut self, summaries: KnownSummaries) -> Self {
        self.set_summaries(summaries);
        self
    }

    pub(in crate::eth::anchor) fn set_summaries(&mut self, summaries: KnownSummaries) {
        self.summaries = Some(summaries);
    }

    /// Returns the slots at which the form of proofs changes.
    pub const fn forks(&self) -> &ForkSlots {
        &self.forks
    }

    /// Returns the known historical summaries.
    pub const fn summaries(&self) -> Option<&KnownSummaries> {
        self.summaries.as_ref()
    }

    /// Returns the number of the first block after the blocks that the embedded epochs cover: the
    /// first block of the Merge. 0 if no epochs are embedded.
    pub const fn merge_block(&self) -> u64 {
        self.merge
    }

    /// Returns the root of an epoch of 8,192 blocks from before the Merge; `None` if it is not
    /// embedded. [`EpochRecord`](super::EpochRecord) computes it from blocks.
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
        let list = self.summaries().map_or(&[][..], KnownSummaries::summaries);
        // The first summary is that of the period in which Capella began.
        let period = (slot / PERIOD_SLOTS).checked_sub(self.forks.capella / PERIOD_SLOTS);
        let root = period.and_then(|period| element(list, period));
        (root.map(|summary| summary.block_summary_root), list.len())
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
