//! Chooses the cheapest way from a believed block to earlier blocks, among the ways that the
//! sources can serve.
//!
//! | way | needs | evidence |
//! |---|---|---|
//! | parent hashes | headers of all blocks between | 650 bytes a block |
//! | history contract | the state of the believed block | 6.2 kB for the first block, 1.3 kB for each further one, at most 8,191 back |
//! | hops over the contract | the state of older blocks | 6.2 kB for each 8,191 blocks back |
//! | header proof | a server of proofs, and from Capella on the summaries, for complete periods | 1.5 kB a block with its header, 64 bytes for each period once |
//!
//! A plan is for all wanted blocks together. The evidence for each is a chain of links of its own
//! ([`Links`](super::links::Links)), which repeats what it shares with others.
//!
//! Several blocks under one head share one `eth_getProof`. One list of summaries replaces all hops:
//! from September 2026 back to Prague these are about 440.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::header_proof::PERIOD_SLOTS;
use super::history_contract::SERVE_WINDOW;
use super::network::Network;

/// What the sources of a caller serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sources {
    /// Headers by number or hash. The header of the believed block is taken to be known.
    pub headers: bool,
    /// Answers to `eth_getProof`: the number of blocks before the believed block whose state is
    /// served. 0 is that block only, `u64::MAX` an archive. `None` if no state is served, which is
    /// so where the believed block is already too old for a node.
    pub state_depth: Option<u64>,
    /// Historical summaries with their branch, or the caller already knows them.
    pub summaries: bool,
    /// Proofs of headers.
    pub header_proofs: bool,
}

/// The believed block, and the slot of the beacon block that binds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Number of the execution block.
    pub number: u64,
    /// Slot of the beacon block.
    pub slot: u64,
}

/// The numbers of a chain's blocks at which the ways change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milestones {
    /// First block that header proofs can show: 0 with embedded lists, otherwise the first block of
    /// Capella.
    pub header_proofs: u64,
    /// First block whose header proof needs historical summaries: the first block of Capella.
    pub capella: u64,
    /// First block whose hash the history contract has: the parent of the first block of Prague.
    pub history_contract: u64,
    /// First slot of Capella.
    pub capella_slot: u64,
}

impl Milestones {
    /// The Ethereum mainnet. Capella's first block is at slot 6,209,538, the history contract's
    /// first entry is that of block 22,431,083.
    pub const MAINNET: Self = Self {
        header_proofs: 0,
        capella: 17_034_870,
        history_contract: 22_431_083,
        capella_slot: 6_209_536,
    };

    /// Returns the milestones of a network. Of networks other than mainnet, the numbers of the blocks
    /// are not known here: plans for them have no header proofs, and may use the history contract
    /// before it exists, where no node can serve it.
    pub fn of(network: &Network) -> Self {
        if network.is_mainnet() {
            return Self::MAINNET;
        }
        Self { header_proofs: u64::MAX, capella: u64::MAX, history_contract: 0, capella_slot: 0 }
    }
}

/// Something to fetch and to verify.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The headers from block `from`, whose hash is shown, back to block `to`, both included:
    /// [`Link::Parents`](super::links::Link::Parents).
    Parents {
        /// Number of the block whose hash is shown.
        from: u64,
        /// Number of the wanted block.
        to: u64,
    },
    /// The hashes of blocks in the state of block `at`, by one `eth_getProof`:
    /// [`Link::HistoryContract`](super::links::Link::HistoryContract).
    HistoryContract {
        /// Number of the block whose state is used. Its header is part of the link.
        at: u64,
        /// Numbers of the earlier blocks, descending.
        numbers: Vec<u64>,
    },
    /// The historical summaries: [`Link::Summaries`](super::links::Link::Summaries).
    Summaries,
    /// The header and the proof of a block:
    /// [`Link::HeaderProof`](super::links::Link::HeaderProof).
    HeaderProof {
        /// Number of the block.
        number: u64,
    },
}

/// Estimated cost of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Number of requests.
    pub requests: u64,
    /// Bytes of evidence, as a stranger needs them again. JSON takes about twice as many.
    pub bytes: u64,
}

/// Steps to earlier blocks, in the order in which they can be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// The cost of all steps.
    pub cost: Cost,
    /// Wanted blocks that no source leads to, descending. A block above the head is one of them.
    pub unreachable: Vec<u64>,
}

/// Bytes of a header; mainnet's have up to 652.
const HEADER: u64 = 650;
/// Bytes of the nodes from the state root to the contract's account, in September 2026.
const ACCOUNT: u64 = 3764;
/// Bytes of the nodes from the contract's storage root to a slot, in September 2026.
const SLOT: u64 = 1779;
/// Bytes of the storage trie's root node, which all slots share.
const SHARED: u64 = 532;
/// Bytes of the largest header proof before Gloas.
const PROOF: u64 = 840;
/// Bytes of a summary.
const SUMMARY: u64 = 64;
/// Maximum number of hops, which are 300 years of blocks: memory is bounded for any numbers.
const MAX_HOPS: u64 = 100_000;
/// Bytes that take as long as a request without data: 40 ms at 100 kB a second.
const REQUEST: u64 = 4000;

impl Cost {
    const fn weight(self) -> u64 {
        self.requests.saturating_mul(REQUEST).saturating_add(self.bytes)
    }

    fn add(&mut self, requests: u64, bytes: u64) {
        self.requests = self.requests.saturating_add(requests);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Returns steps from `head` to each of the blocks `wanted`, in any order: the cheapest of 32 plans.
/// Blocks are planned one after the other, so a still cheaper plan may exist.
///
/// The result depends on estimates of size. Where the sources fail to serve a step, plan again
/// without what failed.
///
/// # Cost
/// In proportion to the number of wanted blocks, and of hops where these are cheapest.
pub fn plan(head: Head, wanted: &[u64], chain: &Milestones, sources: &Sources) -> Plan {
    let wanted: BTreeSet<u64> = wanted.iter().copied().filter(|&it| it != head.number).collect();
    // The lowest block that the contract leads to: parent hashes below it may start there.
    let reach = sources.state_depth.map(|depth| {
        let hops = (depth / SERVE_WINDOW).min(MAX_HOPS - 1) + 1;
        head.number.saturating_sub(hops * SERVE_WINDOW).max(chain.history_contract)
    });
    let lowest = wanted.first().copied().unwrap_or(u64::MAX);
    let reach = reach.filter(|&it| lowest < it && it < head.number);
    // Ways with a cost of their own, which pays for itself only if enough blocks use it, are tried
    // with and without: the contract, hops over it, and the summaries. In half of the tries, a block
    // is planned as if this cost were paid already, because later blocks may share it.
    let tries = (0_u8..32).map(|bits| {
        let mut wanted = wanted.clone();
        wanted.extend(reach.filter(|_| bits & 8 != 0));
        let usable = Usable {
            contract: bits & 1 != 0 && sources.state_depth.is_some(),
            hops: bits & 3 == 3 && sources.state_depth.is_some(),
            summaries: bits & 4 != 0 && sources.summaries,
        };
        Planner::new(head, chain, sources, usable, bits & 16 != 0).run(&wanted)
    });
    let cheapest = tries.min_by_key(|plan| (plan.unreachable.len(), plan.cost.weight()));
    cheapest.expect("32 tries")
}

/// The ways with a cost of their own that a try may use.
#[derive(Debug, Clone, Copy)]
struct Usable {
    contract: bool,
    hops: bool,
    summaries: bool,
}

struct Planner<'a> {
    head: Head,
    chain: &'a Milestones,
    sources: &'a Sources,
    usable: Usable,
    /// Ways are chosen as if their own cost were paid already. The total counts it all the same.
    paid: bool,
    /// The uses of the contract at each head: the first at the believed block, each further one
    /// 8,191 blocks earlier.
    hops: Vec<Vec<u64>>,
    others: Vec<Step>,
    /// The lowest block so far whose hash is shown. Parent hashes start from there.
    lowest: u64,
    with_summaries: bool,
    cost: Cost,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Parents,
    Contract { hop: usize },
    HeaderProof,
}

impl<'a> Planner<'a> {
    fn new(
        head: Head,
        chain: &'a Milestones,
        sources: &'a Sources,
        usable: Usable,
        paid: bool,
    ) -> Self {
        Self {
            head,
            chain,
            sources,
            usable,
            paid,
            hops: Vec::new(),
            others: Vec::new(),
            lowest: head.number,
            with_summaries: false,
            cost: Cost::default(),
        }
    }

    fn run(mut self, wanted: &BTreeSet<u64>) -> Plan {
        let mut unreachable = Vec::new();
        for &number in wanted.iter().rev() {
            let Some(back) = self.head.number.checked_sub(number) else {
                unreachable.push(number);
                continue;
            };
            let ways = [
                self.by_parents(number),
                self.by_contract(number, back),
                self.by_proof(number, back),
            ];
            match ways.into_iter().flatten().min_by_key(|&(way, cost)| self.rank(way, cost)) {
                Some((way, cost)) => self.take(way, number, cost),
                None => unreachable.push(number),
            }
        }
        let mut steps = Vec::new();
        let mut at = self.head.number;
        let last = self.hops.len().saturating_sub(1);
        for (hop, mut numbers) in self.hops.into_iter().enumerate() {
            let next = at.saturating_sub(SERVE_WINDOW);
            if hop < last && numbers.last() != Some(&next) {
                numbers.push(next);
            }
            steps.push(Step::HistoryContract { at, numbers });
            at = next;
        }
        if self.with_summaries {
            steps.push(Step::Summaries);
        }
        // Parent hashes may start from a block that a step above shows.
        steps.extend(self.others);
        Plan { steps, cost: self.cost, unreachable }
    }

    /// Returns what a way is compared by.
    const fn rank(&self, way: Way, cost: Cost) -> u64 {
        match way {
            Way::Contract { .. } if self.paid => SLOT - SHARED,
            Way::HeaderProof if self.paid => REQUEST + PROOF + HEADER,
            _ => cost.weight(),
        }
    }

    fn take(&mut self, way: Way, number: u64, cost: Cost) {
        self.cost.add(cost.requests, cost.bytes);
        match way {
            Way::Parents => self.others.push(Step::Parents { from: self.lowest, to: number }),
            Way::Contract { hop } => {
                while self.hops.len() <= hop {
                    self.hops.push(Vec::new());
                }
                self.hops[hop].push(number);
            }
            Way::HeaderProof => {
                self.with_summaries |= number >= self.chain.capella;
                self.others.push(Step::HeaderProof { number });
            }
        }
        self.lowest = number;
    }

    fn by_parents(&self, number: u64) -> Option<(Way, Cost)> {
        let blocks = self.lowest.checked_sub(number).filter(|_| self.sources.headers)?;
        // The header at the start is counted, because nothing but its hash is shown.
        let requests = blocks.saturating_add(1);
        Some((Way::Parents, Cost { requests, bytes: requests.saturating_mul(HEADER) }))
    }

    fn by_contract(&self, number: u64, back: u64) -> Option<(Way, Cost)> {
        let depth = self.sources.state_depth.filter(|_| self.usable.contract)?;
        if number < self.chain.history_contract {
            return None;
        }
        // Block `head - 8191` is the last one in reach of the head itself.
        let hop = back.saturating_sub(1) / SERVE_WINDOW;
        let served = hop < MAX_HOPS && hop * SERVE_WINDOW <= depth;
        // Each further hop starts from a header that is not known yet.
        if !served || (hop > 0 && !(self.usable.hops && self.sources.headers)) {
            return None;
        }
        let hop = usize::try_from(hop).ok()?;
        let new = (hop + 1).saturating_sub(self.hops.len()) as u64;
        let mut cost = Cost::default();
        // Each further hop needs the header of its block, and the proof of that block's hash under
        // the block before it.
        cost.add(new.saturating_mul(2), new.saturating_mul(HEADER + ACCOUNT + SLOT));
        if new == 0 {
            cost.add(0, SLOT - SHARED);
        }
        Some((Way::Contract { hop }, cost))
    }

    fn by_proof(&self, number: u64, back: u64) -> Option<(Way, Cost)> {
        if !self.sources.header_proofs || number < self.chain.header_proofs {
            return None;
        }
        let mut cost = Cost { requests: 1, bytes: PROOF + HEADER };
        if number >= self.chain.capella {
            // Only complete periods have a summary. A block is at least one slot after its parent,
            // so a block this far back is surely in an earlier period. Nearer blocks may be, but
            // their slots are not known here.
            let in_period = self.head.slot % PERIOD_SLOTS;
            if !self.usable.summaries || back <= in_period {
                return None;
            }
            if !self.with_summaries {
                let periods = self.head.slot.saturating_sub(self.chain.capella_slot) / PERIOD_SLOTS;
                cost.add(1, periods.saturating_mul(SUMMARY));
            }
        }
        Some((Way::HeaderProof, cost))
    }
}
