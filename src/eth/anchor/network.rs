//! Beacon chains: genesis, fork schedule, presets, and fork digests.
//!
//! A [`Network`] holds everything that a light client must know about a chain before it sees the
//! first byte of it. Three networks are built in. Any other is read from JSON:
//!
//! ```
//! use chainsieve::eth::anchor::network::{Fork, Network};
//!
//! let network: Network = serde_json::from_str(
//!     r#"{
//!         "name": "devnet",
//!         "preset": "minimal",
//!         "genesis_time": 1700000000,
//!         "genesis_validators_root":
//!             "0x0a08c27fe4ece2483f9e581f78c66379a06f96e9c24cd1390594ff939b26f95b",
//!         "forks": [
//!             {"name": "phase0", "version": "0x00000001", "epoch": 0},
//!             {"name": "altair", "version": "0x01000001", "epoch": 0},
//!             {"name": "bellatrix", "version": "0x02000001", "epoch": 0},
//!             {"name": "capella", "version": "0x03000001", "epoch": 2},
//!             {"name": "deneb", "version": "0x04000001", "epoch": null}
//!         ]
//!     }"#,
//! )?;
//! assert_eq!(network.fork_at_slot(15), Fork::Bellatrix);
//! assert_eq!(network.fork_at_slot(16), Fork::Capella);
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! # JSON
//! | member | value |
//! |---|---|
//! | `name` | name of the network, for messages |
//! | `preset` | `mainnet` or `minimal` |
//! | `genesis_time` | seconds since the Unix epoch |
//! | `genesis_validators_root` | 32 bytes in hex with `0x` |
//! | `forks` | list of `name`, `version` (4 bytes in hex with `0x`) and `epoch` (`null`: not scheduled), in order from `phase0` |
//! | `seconds_per_slot` | optional: 12 for `mainnet` and 6 for `minimal` by default |
//! | `blob_schedule` | optional: list of `epoch` and `max_blobs_per_block`, ascending |
//! | `max_blobs_per_block_electra` | optional: 9 by default |
//! | `weak_subjectivity_epochs` | optional: [`MIN_WEAK_SUBJECTIVITY_EPOCHS`] by default |
//!
//! Unknown members are errors, because a misspelt epoch would be a wrong fork schedule.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use alloy_primitives::{B256, FixedBytes, b256};
use chainsieve_lanes::names;
use sha2::{Digest as _, Sha256};

use super::header_proof::{ForkSlots, History};
use super::merkle_branch::parent;

/// Epochs in which a checkpoint is safe at any stake: `MIN_VALIDATOR_WITHDRAWABILITY_DELAY`, 27.3
/// hours on mainnet.
pub const MIN_WEAK_SUBJECTIVITY_EPOCHS: u64 = 256;

/// A hard fork of the beacon chain, in ascending order.
///
/// `serde` and `Display` write the [name](Self::name), for example `capella`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Fork {
    /// The first version of the chain, without sync committees.
    Phase0,
    /// Sync committees, and with them light clients.
    Altair,
    /// The merge. Light-client data does not contain the execution header yet.
    Bellatrix,
    /// Light-client data contains the execution header.
    Capella,
    /// The execution header has two fields for blobs.
    Deneb,
    /// The state's tree is one level deeper.
    Electra,
    /// Blob parameters are part of the fork digest.
    Fulu,
    /// Light-client data contains only the hash of the parent's execution header.
    Gloas,
}

names! {
    Fork, "a fork":
    Phase0 = "phase0", Altair = "altair", Bellatrix = "bellatrix", Capella = "capella",
    Deneb = "deneb", Electra = "electra", Fulu = "fulu", Gloas = "gloas",
}

/// Sizes that are fixed when a client is compiled.
///
/// `serde` and `Display` write the [name](Self::name), for example `mainnet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Preset {
    /// Sizes of mainnet and of all public test networks.
    Mainnet,
    /// Small sizes for tests.
    Minimal,
}

names! { Preset, "a preset": Mainnet = "mainnet", Minimal = "minimal" }

impl Preset {
    /// Returns the number of slots in an epoch: 32 or 8.
    pub const fn slots_per_epoch(self) -> u64 {
        match self {
            Self::Mainnet => 32,
            Self::Minimal => 8,
        }
    }

    /// Returns the number of slots in a period of a sync committee: 8,192 or 64.
    pub const fn slots_per_period(self) -> u64 {
        match self {
            Self::Mainnet => 32 * 256,
            Self::Minimal => 8 * 8,
        }
    }

    /// Returns the number of members of a sync committee: 512 or 32.
    pub const fn sync_committee_size(self) -> usize {
        match self {
            Self::Mainnet => 512,
            Self::Minimal => 32,
        }
    }

    /// Returns the number of slots without progress after which an update may be forced:
    /// `UPDATE_TIMEOUT`, one period.
    pub const fn update_timeout(self) -> u64 {
        self.slots_per_period()
    }

    /// Returns the length of a slot unless the network states another length: 12 s or 6 s.
    const fn seconds_per_slot(self) -> u64 {
        match self {
            Self::Mainnet => 12,
            Self::Minimal => 6,
        }
    }
}

/// Entry of a fork schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduledFork {
    /// The fork.
    #[serde(rename = "name")]
    fork: Fork,
    /// Version, which is part of what validators sign.
    version: FixedBytes<4>,
    /// First epoch; `None` if the fork is not scheduled.
    #[serde(deserialize_with = "Option::deserialize")]
    epoch: Option<u64>,
}

/// Entry of a blob schedule (EIP-7892).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BlobParameters {
    /// First epoch.
    epoch: u64,
    /// Maximum number of blobs in a block.
    max_blobs_per_block: u64,
}

/// A beacon chain: genesis, fork schedule, preset.
///
/// A `Network` can only be created from a valid description, so its fork schedule always ascends
/// and begins at epoch 0. See the [module](self) for its JSON. After a fork that the schedule
/// lacks, no signature is valid under it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Description", into = "Description")]
pub struct Network {
    described: Description,
}

/// The members of a network's JSON.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    name: Cow<'static, str>,
    preset: Preset,
    genesis_time: u64,
    genesis_validators_root: B256,
    forks: Vec<ScheduledFork>,
    #[serde(default)]
    seconds_per_slot: Option<u64>,
    #[serde(default)]
    blob_schedule: Vec<BlobParameters>,
    #[serde(default = "nine")]
    max_blobs_per_block_electra: u64,
    #[serde(default = "shortest")]
    weak_subjectivity_epochs: u64,
}

const fn nine() -> u64 {
    9
}

const fn shortest() -> u64 {
    MIN_WEAK_SUBJECTIVITY_EPOCHS
}

impl TryFrom<Description> for Network {
    type Error = String;

    fn try_from(described: Description) -> Result<Self, String> {
        let forks = &described.forks;
        if forks.first().map(|first| (first.fork, first.epoch)) != Some((Fork::Phase0, Some(0))) {
            return Err("the fork schedule does not begin with phase0 at epoch 0".into());
        }
        for (before, entry) in forks.iter().zip(forks.iter().skip(1)) {
            if entry.fork as usize != before.fork as usize + 1 {
                let (found, before) = (entry.fork, before.fork);
                return Err(format!("fork {found} follows {before}, expected the fork after it"));
            }
            if entry.epoch.unwrap_or(u64::MAX) < before.epoch.unwrap_or(u64::MAX) {
                let fork = entry.fork;
                return Err(format!("fork {fork} is scheduled before the preceding fork"));
            }
            let mut earlier = forks.iter().filter(|other| other.fork < entry.fork);
            if earlier.any(|other| other.version == entry.version) {
                return Err(format!("fork {} has the version of an earlier fork", entry.fork));
            }
        }
        let blobs = &described.blob_schedule;
        let mut pairs = blobs.iter().zip(blobs.iter().skip(1));
        if let Some((_, entry)) = pairs.find(|(before, entry)| entry.epoch <= before.epoch) {
            return Err(format!("the blob schedule does not ascend at epoch {}", entry.epoch));
        }
        if described.seconds_per_slot == Some(0) {
            return Err("a slot of 0 seconds".into());
        }
        Ok(Self { described })
    }
}

impl From<Network> for Description {
    fn from(network: Network) -> Self {
        network.described
    }
}

impl Network {
    /// Builds a network of the mainnet preset. `versions` and `epochs` begin with phase0; the forks after the
    /// last epoch are not scheduled.
    fn built_in(
        name: &'static str,
        genesis_time: u64,
        genesis_validators_root: B256,
        versions: [[u8; 4]; 8],
        epochs: &[u64],
        blobs: [(u64, u64); 2],
        weak_subjectivity_epochs: u64,
    ) -> Self {
        let epochs = epochs.iter().copied().map(Some).chain(core::iter::repeat(None));
        let fork = |((&fork, version), epoch): ((&Fork, [u8; 4]), _)| ScheduledFork {
            fork,
            version: version.into(),
            epoch,
        };
        let blob = |(epoch, max_blobs_per_block)| BlobParameters { epoch, max_blobs_per_block };
        Self {
            described: Description {
                name: Cow::Borrowed(name),
                preset: Preset::Mainnet,
                genesis_time,
                genesis_validators_root,
                forks: Fork::ALL.iter().zip(versions).zip(epochs).map(fork).collect(),
                seconds_per_slot: None,
                blob_schedule: blobs.map(blob).to_vec(),
                max_blobs_per_block_electra: 9,
                weak_subjectivity_epochs,
            },
        }
    }

    /// Returns Ethereum's mainnet. Gloas is not scheduled.
    ///
    /// Source: `configs/mainnet.yaml` of consensus-specs. The weak-subjectivity period is that of a
    /// stake of 8,388,608 ETH: 3,532 epochs, 15.7 days. A larger stake does not have a shorter
    /// period.
    pub fn mainnet() -> Self {
        Self::built_in(
            "mainnet",
            1_606_824_023,
            b256!("0x4b363db94e286120d76eb905340fdd4e54bfe9f06bf33ff6cf5ad27f511bfe95"),
            [0, 1, 2, 3, 4, 5, 6, 7].map(|first| [first, 0, 0, 0]),
            &[0, 74_240, 144_896, 194_048, 269_568, 364_032, 411_392],
            [(412_672, 15), (419_072, 21)],
            weak_subjectivity_epochs(8_388_608),
        )
    }

    /// Returns the test network Sepolia.
    ///
    /// Source: `metadata/config.yaml` of eth-clients/sepolia. Its stake is not known here, so the
    /// weak-subjectivity period is the [shortest one](MIN_WEAK_SUBJECTIVITY_EPOCHS).
    pub fn sepolia() -> Self {
        Self::built_in(
            "sepolia",
            1_655_733_600,
            b256!("0xd8ea171f3c94aea21ebc42a1ed61052acf3f9209c00e4efbaaddac09ed9b8078"),
            [0x69, 0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76].map(|last| [0x90, 0, 0, last]),
            &[0, 50, 100, 56_832, 132_608, 222_464, 272_640, 353_024],
            [(274_176, 15), (275_712, 21)],
            MIN_WEAK_SUBJECTIVITY_EPOCHS,
        )
    }

    /// Returns the test network Hoodi. Gloas is not scheduled.
    ///
    /// Source: `metadata/config.yaml` of eth-clients/hoodi. Its stake is not known here, so the
    /// weak-subjectivity period is the [shortest one](MIN_WEAK_SUBJECTIVITY_EPOCHS).
    pub fn hoodi() -> Self {
        Self::built_in(
            "hoodi",
            1_742_213_400,
            b256!("0x212f13fc4df078b6cb7db228f1c8307566dcecf900867401a92023d7ba99cb5f"),
            [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80].map(|first| [first, 0, 0x09, 0x10]),
            &[0, 0, 0, 0, 0, 2048, 50_688],
            [(52_480, 15), (54_016, 21)],
            MIN_WEAK_SUBJECTIVITY_EPOCHS,
        )
    }

    /// Returns the built-in network of this name: `mainnet`, `sepolia` or `hoodi`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "mainnet" => Some(Self::mainnet()),
            "sepolia" => Some(Self::sepolia()),
            "hoodi" => Some(Self::hoodi()),
            _ => None,
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.described.name
    }

    /// Returns the preset.
    pub const fn preset(&self) -> Preset {
        self.described.preset
    }

    /// Returns the root of the first validators, which separates signatures of different chains.
    pub const fn genesis_validators_root(&self) -> B256 {
        self.described.genesis_validators_root
    }

    /// Returns the length of a slot in seconds, at least 1.
    pub fn seconds_per_slot(&self) -> u64 {
        self.described.seconds_per_slot.unwrap_or(self.described.preset.seconds_per_slot())
    }

    /// Returns the age up to which a checkpoint is safe: the length of the weak-subjectivity
    /// period.
    pub fn weak_subjectivity_period(&self) -> Duration {
        let slots = self.described.weak_subjectivity_epochs.saturating_mul(self.slots_per_epoch());
        Duration::from_secs(slots.saturating_mul(self.seconds_per_slot()))
    }

    /// Returns the slot at a [time](crate#time), or `None` before genesis.
    pub fn slot_at(&self, now: Duration) -> Option<u64> {
        let since = now.as_secs().checked_sub(self.described.genesis_time)?;
        Some(since / self.seconds_per_slot())
    }

    /// Returns the time at which a slot starts, since the Unix epoch.
    pub fn time_of_slot(&self, slot: u64) -> Duration {
        let since = slot.saturating_mul(self.seconds_per_slot());
        Duration::from_secs(self.described.genesis_time.saturating_add(since))
    }

    const fn slots_per_epoch(&self) -> u64 {
        self.described.preset.slots_per_epoch()
    }

    /// Returns the epoch of a slot.
    pub const fn epoch_of_slot(&self, slot: u64) -> u64 {
        slot / self.slots_per_epoch()
    }

    /// Returns the number of the sync committee's period in which a slot is.
    pub const fn period_of_slot(&self, slot: u64) -> u64 {
        slot / self.described.preset.slots_per_period()
    }

    fn entry_at_epoch(&self, epoch: u64) -> &ScheduledFork {
        let started = |entry: &&ScheduledFork| entry.epoch.is_some_and(|first| first <= epoch);
        self.described.forks.iter().rfind(started).expect("phase0 starts at epoch 0")
    }

    /// Returns the fork that is active in a slot.
    pub fn fork_at_slot(&self, slot: u64) -> Fork {
        self.entry_at_epoch(self.epoch_of_slot(slot)).fork
    }

    /// Returns the version with which a sync committee signs in `signature_slot`.
    ///
    /// The committee signs the head of the slot before, so the version is that of
    /// `signature_slot - 1`.
    pub fn signing_version(&self, signature_slot: u64) -> FixedBytes<4> {
        let signed = signature_slot.max(1) - 1;
        self.entry_at_epoch(self.epoch_of_slot(signed)).version
    }

    /// Returns the root of a fork version and the genesis validators, which is part of what is
    /// signed: `compute_fork_data_root`.
    pub(super) fn fork_data_root(&self, version: FixedBytes<4>) -> [u8; 32] {
        let mut padded = [0; 32];
        padded[..4].copy_from_slice(version.as_slice());
        parent(&padded, &self.described.genesis_validators_root.0)
    }

    /// Returns the fork digest of objects of an epoch.
    ///
    /// From Fulu on, the digest also depends on the blob parameters of the epoch (EIP-7892), so one
    /// fork has several digests.
    pub fn fork_digest(&self, epoch: u64) -> FixedBytes<4> {
        let entry = self.entry_at_epoch(epoch);
        let data = self.fork_data_root(entry.version);
        let mask = if entry.fork < Fork::Fulu {
            [0; 32]
        } else {
            let parameters = self.blob_parameters(epoch);
            let hash = Sha256::new()
                .chain_update(parameters.epoch.to_le_bytes())
                .chain_update(parameters.max_blobs_per_block.to_le_bytes());
            hash.finalize().into()
        };
        let [a, b, c, d, ..] = data;
        let [w, x, y, z, ..]: [u8; 32] = mask;
        FixedBytes::new([a ^ w, b ^ x, c ^ y, d ^ z])
    }

    fn blob_parameters(&self, epoch: u64) -> BlobParameters {
        let entries = &self.described.blob_schedule;
        // Before the first entry, the parameters of Electra are in force.
        entries.iter().rfind(|entry| entry.epoch <= epoch).copied().unwrap_or(BlobParameters {
            epoch: self.first_epoch(Fork::Electra).unwrap_or(u64::MAX),
            max_blobs_per_block: self.described.max_blobs_per_block_electra,
        })
    }

    /// Returns the first epoch of a fork; `None` if the fork is not scheduled.
    pub fn first_epoch(&self, fork: Fork) -> Option<u64> {
        self.described.forks.iter().find(|entry| entry.fork == fork)?.epoch
    }

    /// Returns the slots at which the form of [header proofs](super::header_proof) changes; `None` if
    /// Capella or Deneb is not scheduled or beyond the range of `u64`, or with the preset `minimal`,
    /// whose periods of block roots are shorter.
    pub fn fork_slots(&self) -> Option<ForkSlots> {
        if self.preset() != Preset::Mainnet {
            return None;
        }
        let slot = |fork| self.first_epoch(fork)?.checked_mul(self.preset().slots_per_epoch());
        Some(ForkSlots {
            genesis_time: self.time_of_slot(0).as_secs(),
            seconds_per_slot: self.seconds_per_slot(),
            capella: slot(Fork::Capella)?,
            deneb: slot(Fork::Deneb)?,
            gloas: slot(Fork::Gloas),
        })
    }

    /// Returns `true` for Ethereum's mainnet, by the root of its first validators. The name and the
    /// fork schedule may differ from those of mainnet.
    pub fn is_mainnet(&self) -> bool {
        self.genesis_validators_root() == Self::mainnet().genesis_validators_root()
    }

    /// Returns the history of the network that is known without any proof. For networks other than
    /// mainnet, it contains only the form of header proofs. With the preset `minimal` the form is
    /// unknown, so no header proof is valid.
    pub fn history(&self) -> History {
        let forks = self.fork_slots().unwrap_or(ForkSlots {
            genesis_time: self.described.genesis_time,
            seconds_per_slot: self.seconds_per_slot(),
            capella: u64::MAX,
            deneb: u64::MAX,
            gloas: None,
        });
        if self.is_mainnet() { History::mainnet().with_forks(forks) } else { History::of(forks) }
    }

    /// Returns the fork that a digest marks; `None` if no epoch of this network has the digest.
    ///
    /// # Cost
    /// At most two SHA-256 for each fork and for each entry of the blob schedule.
    pub fn fork_of_digest(&self, digest: FixedBytes<4>) -> Option<Fork> {
        let forks = self.described.forks.iter().filter_map(|entry| entry.epoch);
        let blobs = self.described.blob_schedule.iter().map(|entry| entry.epoch);
        let mut epochs = forks.chain(blobs);
        let epoch = epochs.find(|&epoch| self.fork_digest(epoch) == digest)?;
        Some(self.entry_at_epoch(epoch).fork)
    }
}

/// Returns the length of the weak-subjectivity period in epochs, for a total active stake in whole
/// ETH.
///
/// Source: `compute_weak_subjectivity_period` of Electra with the constants of mainnet: 256 epochs
/// plus the time in which the churn limit lets a tenth of the stake change. Valid up to Fulu: Gloas
/// lets the stake change faster, and its period is less than half as long.
pub const fn weak_subjectivity_epochs(total_active_eth: u64) -> u64 {
    /// `MIN_PER_EPOCH_CHURN_LIMIT_ELECTRA`, in ETH.
    const MIN_CHURN: u64 = 128;
    /// `CHURN_LIMIT_QUOTIENT`.
    const QUOTIENT: u64 = 65_536;
    /// `SAFETY_DECAY`, in percent.
    const DECAY: u64 = 10;
    let churn = total_active_eth / QUOTIENT;
    let churn = if churn < MIN_CHURN { MIN_CHURN } else { churn };
    MIN_WEAK_SUBJECTIVITY_EPOCHS + DECAY.saturating_mul(total_active_eth) / (200 * churn)
}
