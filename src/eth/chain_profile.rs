//! Whose filters and receipts commit to what.
//!
//! An audit rests on two properties of a chain, which its headers don't state and which differ
//! from chain to chain, and sometimes from one fork to the next:
//!
//! - does the filter of a header have the bits of every log of the block ([`BloomSoundness`])?
//! - does the receipts root commit to every log that `eth_getLogs` returns ([`ReceiptsScope`])?
//!
//! A [`ChainProfile`] says it for each height, with the source of the statement. The chains that
//! are known ([`ChainProfile::of_chain_id`]) are those for which there is a source; of any other
//! chain the caller has to give its word ([`ChainProfile::assumed`]).
//!
//! A chain id is a label: no header commits to one. Which chain a header belongs to is proven by
//! the anchor alone, so the profile must be chosen by whoever trusts the anchor.

use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// How the filter of a header relates to the logs of its block. As `serde` and as text it is the
/// name in lower case, as `exact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BloomSoundness {
    /// It has the bits of the block's logs and no other.
    Exact,
    /// It has the bits of the block's logs, and perhaps others.
    Superset,
    /// There is none, or a constant stands in its place: it is never looked at.
    Absent,
    /// It may lack bits of a log: it is never looked at.
    Unsound,
}

impl BloomSoundness {
    /// Whether the "no" of such a filter proves that a log is not in the block.
    pub const fn proves_absence(self) -> bool {
        matches!(self, Self::Exact | Self::Superset)
    }
}

impl fmt::Display for BloomSoundness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Superset => "superset",
            Self::Absent => "absent",
            Self::Unsound => "unsound",
        })
    }
}

/// Whether a receipts root commits to all that `eth_getLogs` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReceiptsScope {
    /// Every log of the block is in a receipt under the root, and every node counts transactions
    /// and logs by them.
    EveryLog,
    /// Nodes also return logs that no receipt under the root has, or the root is none of receipts.
    NotEveryLog,
}

/// What is said of the blocks from one height on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// Number of the first block.
    pub first: u64,
    /// What the filters say.
    pub bloom: BloomSoundness,
    /// What the receipts say.
    pub receipts: ReceiptsScope,
    /// Where this is known from.
    pub source: Cow<'static, str>,
}

/// What a chain's filters and receipts commit to, by height.
///
/// # Examples
/// ```
/// use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
///
/// let polygon = ChainProfile::of_chain_id(137).unwrap();
/// assert_eq!(polygon.at(80_084_799).receipts, ReceiptsScope::NotEveryLog);
/// assert_eq!(polygon.at(80_084_800).receipts, ReceiptsScope::EveryLog);
///
/// // A private network of unchanged geth nodes: the caller's own word.
/// let ours = ChainProfile::assumed("ours", BloomSoundness::Exact, ReceiptsScope::EveryLog);
/// assert_eq!(ours.at(0).bloom, BloomSoundness::Exact);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainProfile {
    name: Cow<'static, str>,
    /// Ascending; the first begins at block 0.
    stretches: Vec<Stretch>,
    statuses_since: Option<u64>,
}

/// The source of what a caller assumes.
const ASSUMED: &str = "the caller's word";

impl ChainProfile {
    /// Ethereum's main network.
    pub fn ethereum() -> Self {
        Self::of_chain_id(1).expect("in the table")
    }

    /// The profile of the chain with this id (EIP-155), none for a chain that is not known here.
    ///
    /// | chain | id | filters | receipts |
    /// |---|---|---|---|
    /// | Ethereum and its test networks | 1, 5, 17000, 560048, 11155111 | exact | every log |
    /// | OP Mainnet | 10 | exact from Bedrock on, before it unsound | every log from Bedrock on |
    /// | Base, OP Sepolia, Base Sepolia | 8453, 11155420, 84532 | exact | every log |
    /// | Polygon PoS, Amoy | 137, 80002 | exact from Madhugiri on, before it unsound | every log from Madhugiri on |
    /// | Cronos | 25 | superset, exact from 2,693,800 on | not every log |
    /// | zkSync Era | 324 | unsound | not every log |
    /// | Sei | 1329 | unsound | not every log |
    /// | Filecoin, Zilliqa 2, `CloudWalk` (Stratus) | 314, 32769, 2009 | absent | not every log |
    ///
    /// On Polygon the receipt of a state sync is of type 0x7f since Madhugiri, which
    /// [`receipts`](crate::eth::receipts) don't read: a block with one stays undecided if its
    /// filter does not rule a log out.
    pub fn of_chain_id(chain_id: u64) -> Option<Self> {
        KNOWN.iter().find(|known| known.id == chain_id).map(Known::profile)
    }

    /// The profiles of all chains that are known here, each with its own [name](Self::name).
    pub fn known() -> impl Iterator<Item = Self> {
        KNOWN.iter().map(Known::profile)
    }

    /// What the caller says of a whole chain. What an audit under it proves is worth as much as
    /// this word.
    pub fn assumed(
        name: impl Into<Cow<'static, str>>,
        bloom: BloomSoundness,
        receipts: ReceiptsScope,
    ) -> Self {
        let source = Cow::Borrowed(ASSUMED);
        let stretches = vec![Stretch { first: 0, bloom, receipts, source }];
        Self { name: name.into(), stretches, statuses_since: None }
    }

    /// Says that the receipts of the blocks from `first` on hold statuses (Byzantium, EIP-658): 0
    /// for a chain that began with them.
    #[must_use]
    pub fn with_statuses_since(mut self, first: u64) -> Self {
        self.statuses_since = Some(first);
        self
    }

    /// Number of the first block whose receipts hold statuses, as those of all later blocks do;
    /// none where it is not known, as of a chain that a caller assumes without saying it.
    ///
    /// Receipts of earlier blocks hold post-states, which many nodes have dropped. So of a block
    /// that may be earlier, receipts with another root may be all that an honest source has; of
    /// later ones they are the wrong ones.
    ///
    /// Sources: `byzantiumBlock` in the configurations of go-ethereum, op-geth and bor.
    pub fn statuses_since(&self) -> Option<u64> {
        self.statuses_since
    }

    /// Whether the receipts of the block of this number are known to hold statuses.
    pub fn has_statuses(&self, number: u64) -> bool {
        self.statuses_since.is_some_and(|first| first <= number)
    }

    /// Says something else of the blocks from `first` on; what was said of them before goes.
    #[must_use]
    pub fn from_block(
        mut self,
        first: u64,
        bloom: BloomSoundness,
        receipts: ReceiptsScope,
        source: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.stretches.retain(|stretch| stretch.first < first);
        self.stretches.push(Stretch { first, bloom, receipts, source: source.into() });
        self
    }

    /// The chain's name: a label, which nothing commits to.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is said of the block of this number.
    pub fn at(&self, number: u64) -> &Stretch {
        let behind = self.stretches.partition_point(|stretch| stretch.first <= number);
        &self.stretches[behind.saturating_sub(1)] // the first begins at 0
    }

    /// All that is said, from block 0 on.
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }
}

type Row = (u64, BloomSoundness, ReceiptsScope, &'static str);

struct Known {
    name: &'static str,
    id: u64,
    /// First block with statuses in receipts, where there is a source.
    statuses_since: Option<u64>,
    rows: &'static [Row],
}

impl Known {
    fn profile(&self) -> ChainProfile {
        let &Self { name, statuses_since, rows, .. } = self;
        let stretch = |&(first, bloom, receipts, source): &Row| {
            let source = Cow::Borrowed(source);
            Stretch { first, bloom, receipts, source }
        };
        let (name, stretches) = (Cow::Borrowed(name), rows.iter().map(stretch).collect());
        ChainProfile { name, stretches, statuses_since }
    }
}

use BloomSoundness::{Absent, Exact, Superset, Unsound};
use ReceiptsScope::{EveryLog, NotEveryLog};

const YELLOW_PAPER: &str = "Yellow Paper 4.4 and 12.2: a block whose logsBloom or receiptsRoot is \
                            not that of its receipts is invalid";
const OP_STACK: &str = "OP stack specification, deposits and execution engine: a deposit has a \
                        receipt under the root like any transaction, op-geth checks filter and \
                        root as geth does";
const BEFORE_BEDROCK: &str = "no source for blocks before Bedrock";
const POLYGON_BEFORE: &str = "PIP-74: state syncs affect neither receiptsRoot nor logsBloom; bor \
                              returns their logs with --bor.logs (0xPolygon/bor#519, #585)";
const POLYGON_SINCE: &str = "PIP-74, fork Madhugiri (0xPolygon/erigon v3.3.0; bor's genesis)";
const CRONOS_BEFORE: &str = "subsquid/squid-sdk#460: logs of failed transactions are in the \
                             filter; Ethermint gives the root of no receipts as receiptsRoot";
const CRONOS_SINCE: &str = "subsquid/squid-sdk#460: mended by v0.7.0; Ethermint gives the root of \
                            no receipts as receiptsRoot";
const ZKSYNC: &str = "across-protocol/relayer#1789: all zeros from some nodes; \
                      matter-labs/zksync-era#2633, #4580; the hash is not that of an Ethereum \
                      header";
const SEI: &str = "sei-protocol/sei-chain#2230, #2268: synthetic logs, filter and eth_getLogs \
                   disagree";
const FILECOIN: &str = "ChainSafe/forest#7151: all bits set in every block; nodes make these \
                        headers up";
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
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        assert_eq!(count, 17);
    }

    #[test]
    fn an_unknown_chain_has_no_profile() {
        for id in [0, 2, 56, 42_161, u64::MAX] {
            assert_eq!(ChainProfile::of_chain_id(id), None);
        }
    }

    #[test]
    fn forks_are_where_the_chains_say() {
        // PIP-74 by 0xPolygon/erigon v3.3.0 and bor's genesis; op-geth; squid-sdk#460.
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
        // byzantiumBlock by params/config.go of go-ethereum, params/superchain.go of op-geth and
        // the genesis files of bor.
        let ethereum = ChainProfile::ethereum();
        assert!(!ethereum.has_statuses(4_369_999) && ethereum.has_statuses(4_370_000));
        for id in [5, 10, 137, 8453, 17_000, 80_002, 84_532, 560_048, 11_155_111, 11_155_420] {
            assert!(ChainProfile::of_chain_id(id).unwrap().has_statuses(0), "{id}");
        }
        for id in [25, 314, 324, 1329, 2009, 32_769] {
            assert_eq!(ChainProfile::of_chain_id(id).unwrap().statuses_since(), None);
        }
        let assumed = ChainProfile::assumed("x", Exact, EveryLog);
        assert!(!assumed.has_statuses(u64::MAX));
        let said = assumed.with_statuses_since(7).from_block(9, Absent, EveryLog, "a fork");
        assert!(!said.has_statuses(6) && said.has_statuses(7) && said.has_statuses(u64::MAX));
    }

    #[test]
    fn what_is_said_later_counts_from_its_block_on() {
        let profile = ChainProfile::assumed("x", Exact, EveryLog)
            .from_block(10, Absent, NotEveryLog, "a fork")
            .from_block(5, Superset, EveryLog, "another")
            .from_block(8, Unsound, EveryLog, "a third");
        let blooms: Vec<_> = [0, 4, 5, 7, 8, 10].map(|at| profile.at(at).bloom).into();
        assert_eq!(blooms, [Exact, Exact, Superset, Superset, Unsound, Unsound]);
        let replaced = profile.from_block(0, Absent, NotEveryLog, "all of it");
        assert_eq!(replaced.stretches().len(), 1);
        assert_eq!(replaced.at(0).bloom, Absent);
    }
}
