//! What the filters and receipts of each chain commit to.
//!
//! An audit depends on two properties of a chain. Headers do not state these properties, which
//! differ from chain to chain and sometimes change at a fork:
//!
//! - Does the filter of a header contain the bits of every log of the block ([`BloomSoundness`])?
//! - Does the receipts root commit to every log that `eth_getLogs` returns ([`ReceiptsScope`])?
//!
//! A [`ChainProfile`] states both properties for each block number, with the source of each
//! statement. [`ChainProfile::of_chain_id`] has profiles only for chains with a published source.
//! For any other chain the caller states the properties on its own authority
//! ([`ChainProfile::assumed`]).
//!
//! A chain id is a label: no header commits to it. Only the anchor proves which chain a header
//! belongs to, so the profile must be chosen by the party that trusts the anchor.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

/// Relation of a header's filter to the logs of its block.
///
/// `serde` and `Display` write the [name](Self::name), for example `exact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BloomSoundness {
    /// The filter has exactly the bits of the block's logs.
    Exact,
    /// The filter has all bits of the block's logs, and perhaps further bits.
    Superset,
    /// The header has no filter, or a constant in place of a filter: the filter is never used.
    Absent,
    /// The filter may lack bits of a log: the filter is never used.
    Unsound,
}

impl BloomSoundness {
    /// Returns `true` if a "no" of the filter proves that a log is not in the block.
    pub const fn proves_absence(self) -> bool {
        matches!(self, Self::Exact | Self::Superset)
    }
}

names! {
    BloomSoundness, "a soundness of filters":
    Exact = "exact", Superset = "superset", Absent = "absent", Unsound = "unsound",
}

/// States whether the receipts root commits to every log that `eth_getLogs` returns.
///
/// `serde` and `Display` write the [name](Self::name), for example `every_log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptsScope {
    /// Every log of the block is in a receipt under the root, and every node numbers transactions
    /// and logs by these receipts.
    EveryLog,
    /// Nodes also return logs that are in no receipt under the root, or the receipts root does not
    /// commit to receipts at all.
    NotEveryLog,
}

names! {
    ReceiptsScope, "a scope of receipts": EveryLog = "every_log", NotEveryLog = "not_every_log",
}

/// The properties of a range of blocks, up to the first block of the next `ProfileRange`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ProfileRange {
    /// Number of the first block.
    pub first: u64,
    /// The bits of the filters, compared with the bits of the logs: equal, more, or too few.
    pub bloom: BloomSoundness,
    /// The logs that the receipts roots commit to.
    pub receipts: ReceiptsScope,
    /// Source of this information: a specification, an issue or the caller.
    pub source: Cow<'static, str>,
}

impl ProfileRange {
    /// Returns `true` if only the caller states these properties ([`ChainProfile::assumed`]). Data of the
    /// chain may refute them.
    pub fn is_assumed(&self) -> bool {
        self.source == ASSUMED
    }
}

/// The properties of a chain's filters and receipts, for each range of block numbers.
///
/// # JSON
/// `serde` writes an object: `name`, `ranges` (a list of [`ProfileRange`]s) and `statuses_since`, a
/// number or null. A list that does not begin at block 0, or that is not ascending, is rejected.
/// Unknown members are ignored.
///
/// # Examples
/// ```
/// use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
///
/// let polygon = ChainProfile::of_chain_id(137).unwrap();
/// assert_eq!(polygon.at(80_084_799).receipts, ReceiptsScope::NotEveryLog);
/// assert_eq!(polygon.at(80_084_800).receipts, ReceiptsScope::EveryLog);
///
/// // A private network of unmodified geth nodes: the caller states the properties.
/// let ours = ChainProfile::assumed("ours", BloomSoundness::Exact, ReceiptsScope::EveryLog);
/// assert_eq!(ours.at(0).bloom, BloomSoundness::Exact);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Wire")]
pub struct ChainProfile {
    name: Cow<'static, str>,
    /// Ascending by first block; the first entry begins at block 0.
    ranges: Vec<ProfileRange>,
    /// The first block whose receipts have statuses in place of state roots; `None` if it is not known.
    pub(super) statuses_since: Option<u64>,
}

/// A profile in its JSON form.
#[derive(serde::Deserialize)]
struct Wire {
    name: String,
    ranges: Vec<ProfileRange>,
    #[serde(default)]
    statuses_since: Option<u64>,
}

impl TryFrom<Wire> for ChainProfile {
    type Error = String;

    fn try_from(wire: Wire) -> Result<Self, String> {
        let Wire { name, ranges, statuses_since } = wire;
        if ranges.first().is_none_or(|first| first.first != 0) {
            return Err("the first range must begin at block 0".into());
        }
        let unordered = ranges.windows(2).find(|pair| pair[0].first >= pair[1].first);
        if let Some(pair) = unordered {
            let first = pair[1].first;
            return Err(format!("the range from block {first} on is not in ascending order"));
        }
        Ok(Self { name: name.into(), ranges, statuses_since })
    }
}

/// The text of `source` in a profile that the caller assumes.
const ASSUMED: &str = "stated by the caller";

impl ChainProfile {
    /// Returns the profile of Ethereum mainnet.
    pub fn ethereum() -> Self {
        Self::of_chain_id(1).expect("in the table")
    }

    /// Returns the profile of the chain with this id (EIP-155), or `None` for an unknown chain.
    ///
    /// | chain | id | filters | receipts |
    /// |---|---|---|---|
    /// | Ethereum and its test networks | 1, 5, 17000, 560048, 11155111 | exact | every log |
    /// | OP Mainnet | 10 | unsound, exact since Bedrock | every log since Bedrock |
    /// | Base, OP Sepolia, Base Sepolia | 8453, 11155420, 84532 | exact | every log |
    /// | Polygon PoS, Amoy | 137, 80002 | unsound, exact since Madhugiri | every log since Madhugiri |
    /// | Cronos | 25 | superset, exact since block 2,693,800 | not every log |
    /// | zkSync Era | 324 | unsound | not every log |
    /// | Sei | 1329 | unsound | not every log |
    /// | Filecoin, Zilliqa 2, `CloudWalk` (Stratus) | 314, 32769, 2009 | absent | not every log |
    ///
    /// On Polygon the receipt of a state sync has type 0x7f since Madhugiri.
    /// [`receipts`](crate::eth::receipts) cannot decode this type. So an audit cannot decide a
    /// block with a state sync, unless the block's filter rules out a match.
    pub fn of_chain_id(chain_id: u64) -> Option<Self> {
        KNOWN.iter().find(|known| known.id == chain_id).map(Known::profile)
    }

    /// Returns the profiles of all known chains, each with a different [name](Self::name).
    pub fn known() -> impl Iterator<Item = Self> {
        KNOWN.iter().map(Known::profile)
    }

    /// Returns the id of a chain whose profile is known, by its name.
    pub fn id_by_name(name: &str) -> Option<u64> {
        KNOWN.iter().find(|known| known.name == name).map(|known| known.id)
    }

    /// Returns the profile of the known chain with this [name](Self::name), for example
    /// `op-mainnet`, or `None` if no known chain has the name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::id_by_name(name).and_then(Self::of_chain_id)
    }

    /// Creates a profile of a whole chain from what the caller assumes.
    ///
    /// An audit under this profile proves its result only if the assumption is true.
    pub fn assumed(
        name: impl Into<Cow<'static, str>>,
        bloom: BloomSoundness,
        receipts: ReceiptsScope,
    ) -> Self {
        let source = Cow::Borrowed(ASSUMED);
        let ranges = vec![ProfileRange { first: 0, bloom, receipts, source }];
        Self { name: name.into(), ranges, statuses_since: None }
    }

    /// Declares that the receipts of block `first` and of all later blocks have a status (EIP-658,
    /// fork Byzantium). Use 0 for a chain that has had the status since its genesis.
    #[must_use]
    pub fn with_statuses_since(mut self, first: u64) -> Self {
        self.statuses_since = Some(first);
        self
    }

    /// Returns `true` if the receipts of the block with this number, and of all later blocks, are known to
    /// have a status.
    ///
    /// Receipts of earlier blocks contain a post-state root, which many nodes no longer store. So
    /// receipts that do not match the root of such an earlier block may come from an honest source.
    /// If all receipts of a block have a status, receipts that do not match the block's receipts
    /// root are wrong.
    ///
    /// Sources: `byzantiumBlock` in the configurations of go-ethereum, op-geth and bor.
    pub fn has_statuses(&self, number: u64) -> bool {
        self.statuses_since.is_some_and(|first| first <= number)
    }

    /// Overrides the profile for block `first` and all later blocks.
    ///
    /// All earlier overrides for blocks from `first` on are removed; `first` = 0 replaces the
    /// properties of all blocks. The first block whose receipts [have statuses](Self::has_statuses) is
    /// unchanged.
    #[must_use]
    pub fn with_range(
        mut self,
        first: u64,
        bloom: BloomSoundness,
        receipts: ReceiptsScope,
        source: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.ranges.retain(|range| range.first < first);
        self.ranges.push(ProfileRange { first, bloom, receipts, source: source.into() });
        self
    }

    /// Returns the chain's name, which is only a label: no header commits to the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the properties of the block with this number.
    pub fn at(&self, number: u64) -> &ProfileRange {
        let after = self.ranges.partition_point(|range| range.first <= number);
        &self.ranges[after.saturating_sub(1)] // the first begins at 0
    }

    /// Returns the properties of a range of blocks, ascending: more than one entry if the
    /// properties change within the range. The result for an empty range is empty.
    ///
    /// A conclusion about a whole range, for example from its filters, needs the properties of all
    /// blocks of the range. The properties of its first and last block are not enough.
    pub fn within(&self, blocks: &RangeInclusive<u64>) -> &[ProfileRange] {
        if blocks.is_empty() {
            return &[];
        }
        let until = |number| self.ranges.partition_point(|range| range.first <= number);
        // The first range begins at 0, so there is one for each number.
        &self.ranges[until(*blocks.start()) - 1..until(*blocks.end())]
    }

    /// Returns the properties of all ranges of blocks, ascending, from block 0 on.
    pub fn ranges(&self) -> &[ProfileRange] {
        &self.ranges
    }
}

/// Writes the [name](ChainProfile::name).
impl fmt::Display for ChainProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

type Row = (u64, BloomSoundness, ReceiptsScope, &'static str);

struct Known {
    name: &'static str,
    id: u64,
    /// First block with statuses in receipts, if a source states it.
    statuses_since: Option<u64>,
    rows: &'static [Row],
}

impl Known {
    fn profile(&self) -> ChainProfile {
        let &Self { name, statuses_since, rows, .. } = self;
        let range = |&(first, bloom, receipts, source): &Row| {
            let source = Cow::Borrowed(source);
            ProfileRange { first, bloom, receipts, source }
        };
        let (name, ranges) = (Cow::Borrowed(name), rows.iter().map(range).collect());
        ChainProfile { name, ranges, statuses_since }
    }
}

use BloomSoundness::{Absent, Exact, Superset, Unsound};
use ReceiptsScope::{EveryLog, NotEveryLog};
use chainsieve_lanes::names;

const YELLOW_PAPER: &str = "Yellow Paper 4.4 and 12.2: a block whose logsBloom or receiptsRoot \
                            differs from that of its receipts is invalid";
const OP_STACK: &str = "OP stack specification, deposits and execution engine: a deposit has a \
                        receipt under the root like any transaction; op-geth checks filter and \
                        root as geth does";
const BEFORE_BEDROCK: &str = "no source for blocks before Bedrock";
const POLYGON_BEFORE: &str = "PIP-74: state syncs affect neither receiptsRoot nor logsBloom; bor \
                              returns their logs with --bor.logs (0xPolygon/bor#519, #585)";
const POLYGON_SINCE: &str = "PIP-74, fork Madhugiri (0xPolygon/erigon v3.3.0; bor's genesis)";
const CRONOS_BEFORE: &str = "subsquid/squid-sdk#460: logs of failed transactions are in the \
                             filter; Ethermint sets receiptsRoot to the root of an empty list";
const CRONOS_SINCE: &str = "subsquid/squid-sdk#460: fixed by v0.7.0; Ethermint sets receiptsRoot \
                            to the root of an empty list";
const ZKSYNC: &str = "across-protocol/relayer#1789: all zeros from some nodes; \
                      matter-labs/zksync-era#2633, #4580; the hash is not that of an Ethereum \
                      header";
const SEI: &str = "sei-protocol/sei-chain#2230, #2268: synthetic logs, filter and eth_getLogs \
                   disagree";
const FILECOIN: &str = "ChainSafe/forest#7151: all bits set in every block; nodes synthesise \
                        these headers";
const ZILLIQA: &str = "Zilliqa/zq2#1902, #2231: blocks have no filter";
const CLOUDWALK: &str = "cloudwalk/stratus#1134: all zeros in every block";

const L1: &[Row] = &[(0, Exact, EveryLog, YELLOW_PAPER)];
const OP: &[Row] = &[(0, Exact, EveryLog, OP_STACK)];
/// From `bedrockBlock` of op-geth's configuration.
const OP_MAINNET: &[Row] =
    &[(0, Unsound, NotEveryLog, BEFORE_BEDROCK), (105_235_063, Exact, EveryLog, OP_STACK)];
const POLYGON: &[Row] =
    &[(0, Unsound, NotEveryLog, POLYGON_BEFORE), (80_084_800, Exact, EveryLog, POLYGON_SINCE)];
const AMOY: &[Row] =
    &[(0, Unsound, NotEveryLog, POLYGON_BEFORE), (28_899_616, Exact, EveryLog, POLYGON_SINCE)];
const CRONOS: &[Row] =
    &[(0, Superset, NotEveryLog, CRONOS_BEFORE), (2_693_800, Exact, NotEveryLog, CRONOS_SINCE)];

const KNOWN: &[Known] = &[
    Known { name: "ethereum", id: 1, statuses_since: Some(4_370_000), rows: L1 },
    Known { name: "goerli", id: 5, statuses_since: Some(0), rows: L1 },
    Known { name: "holesky", id: 17_000, statuses_since: Some(0), rows: L1 },
    Known { name: "hoodi", id: 560_048, statuses_since: Some(0), rows: L1 },
    Known { name: "sepolia", id: 11_155_111, statuses_since: Some(0), rows: L1 },
    Known { name: "op-mainnet", id: 10, statuses_since: Some(0), rows: OP_MAINNET },
    Known { name: "base", id: 8453, statuses_since: Some(0), rows: OP },
    Known { name: "op-sepolia", id: 11_155_420, statuses_since: Some(0), rows: OP },
    Known { name: "base-sepolia", id: 84_532, statuses_since: Some(0), rows: OP },
    Known { name: "polygon", id: 137, statuses_since: Some(0), rows: POLYGON },
    Known { name: "polygon-amoy", id: 80_002, statuses_since: Some(0), rows: AMOY },
    Known { name: "cronos", id: 25, statuses_since: None, rows: CRONOS },
    Known {
        name: "zksync-era",
        id: 324,
        statuses_since: None,
        rows: &[(0, Unsound, NotEveryLog, ZKSYNC)],
    },
    Known { name: "sei", id: 1329, statuses_since: None, rows: &[(0, Unsound, NotEveryLog, SEI)] },
    Known {
        name: "filecoin",
        id: 314,
        statuses_since: None,
        rows: &[(0, Absent, NotEveryLog, FILECOIN)],
    },
    Known {
        name: "zilliqa",
        id: 32_769,
        statuses_since: None,
        rows: &[(0, Absent, NotEveryLog, ZILLIQA)],
    },
    Known {
        name: "cloudwalk",
        id: 2009,
        statuses_since: None,
        rows: &[(0, Absent, NotEveryLog, CLOUDWALK)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_chain_begins_at_block_0_in_order_with_sources() {
        let mut ids: Vec<u64> = Vec::new();
        for &Known { name, id, rows, .. } in KNOWN {
            assert_eq!(rows[0].0, 0, "{name}");
            assert!(rows.is_sorted_by(|a, b| a.0 < b.0), "{name}");
            assert!(rows.iter().all(|row| row.3.len() > 20), "{name}");
            ids.push(id);
            let profile = ChainProfile::by_name(name).unwrap();
            assert_eq!(Some(&profile), ChainProfile::of_chain_id(id).as_ref());
            assert_eq!(profile.to_string(), name);
        }
        assert_eq!(ChainProfile::by_name("mainnet"), None);
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        assert_eq!(count, 17);
    }

    #[test]
    fn the_properties_of_a_range_are_those_of_each_block() {
        let profile = ChainProfile::assumed("test", Exact, EveryLog)
            .with_range(2, Unsound, EveryLog, "")
            .with_range(4, Exact, NotEveryLog, "");
        for first in 0..7 {
            for last in 0..7 {
                let mut expected: Vec<_> =
                    (first..=last).map(|number| profile.at(number)).collect();
                expected.dedup();
                let within: Vec<_> = profile.within(&(first..=last)).iter().collect();
                assert_eq!(within, expected, "{first} to {last}");
            }
        }
        assert_eq!(profile.within(&(0..=u64::MAX)).len(), 3);
    }

    #[test]
    fn an_unknown_chain_has_no_profile() {
        for id in [0, 2, 56, 42_161, u64::MAX] {
            assert_eq!(ChainProfile::of_chain_id(id), None);
        }
    }

    #[test]
    fn forks_are_where_the_chains_say() {
        // Sources: PIP-74 in 0xPolygon/erigon v3.3.0 and in bor's genesis; op-geth; squid-sdk#460.
        for (id, fork) in [(137, 80_084_800), (80_002, 28_899_616), (10, 105_235_063)] {
            let profile = ChainProfile::of_chain_id(id).unwrap();
            let before = profile.at(fork - 1);
            assert_eq!((before.bloom, before.receipts), (Unsound, NotEveryLog));
            let since = profile.at(fork);
            assert_eq!((since.bloom, since.receipts), (Exact, EveryLog));
            assert_eq!(profile.at(u64::MAX), since);
        }
        let cronos = ChainProfile::of_chain_id(25).unwrap();
        assert_eq!(cronos.at(2_693_799).bloom, Superset);
        assert_eq!(cronos.at(2_693_800).bloom, Exact);
    }

    #[test]
    fn statuses_are_since_byzantium() {
        // Sources: `byzantiumBlock` in params/config.go of go-ethereum, params/superchain.go of
        // op-geth and the genesis files of bor.
        let ethereum = ChainProfile::ethereum();
        assert!(!ethereum.has_statuses(4_369_999) && ethereum.has_statuses(4_370_000));
        for id in [5, 10, 137, 8453, 17_000, 80_002, 84_532, 560_048, 11_155_111, 11_155_420] {
            assert!(ChainProfile::of_chain_id(id).unwrap().has_statuses(0), "{id}");
        }
        for id in [25, 314, 324, 1329, 2009, 32_769] {
            assert!(!ChainProfile::of_chain_id(id).unwrap().has_statuses(u64::MAX));
        }
        let assumed = ChainProfile::assumed("x", Exact, EveryLog);
        assert!(!assumed.has_statuses(u64::MAX));
        let said = assumed.with_statuses_since(7).with_range(9, Absent, EveryLog, "a fork");
        assert!(!said.has_statuses(6) && said.has_statuses(7) && said.has_statuses(u64::MAX));
    }

    #[test]
    fn what_is_said_later_counts_from_its_block_on() {
        let profile = ChainProfile::assumed("x", Exact, EveryLog)
            .with_range(10, Absent, NotEveryLog, "a fork")
            .with_range(5, Superset, EveryLog, "another")
            .with_range(8, Unsound, EveryLog, "a third");
        let blooms: Vec<_> = [0, 4, 5, 7, 8, 10].map(|at| profile.at(at).bloom).into();
        assert_eq!(blooms, [Exact, Exact, Superset, Superset, Unsound, Unsound]);
        let replaced = profile.with_range(0, Absent, NotEveryLog, "all of it");
        assert_eq!(replaced.ranges().len(), 1);
        assert_eq!(replaced.at(0).bloom, Absent);
    }
}
