//! Chooses the cheapest way from a believed block to an earlier block, among the ways that the
//! sources can serve.
//!
//! | way | needs | evidence |
//! |---|---|---|
//! | parent hashes | headers of all blocks between | 650 bytes a block |
//! | history contract | the state of the believed block | 6.2 kB, at most 8,191 blocks back |
//! | hops over the contract | the state of older blocks | 6.2 kB for each 8,191 blocks back |
//! | header proof | a server of proofs, and from Capella on the summaries, for complete periods | 1.5 kB with the header, 64 bytes for each period |
//!
//! The evidence for the block is a chain of links ([`Link`](super::links::Link)), one for each
//! step. One list of summaries replaces all hops: from September 2026 back to Prague these are
//! about 440.

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
pub struct BelievedBlock {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// The hash of a block in the state of block `at`, by one `eth_getProof`:
    /// [`Link::HistoryContract`](super::links::Link::HistoryContract).
    HistoryContract {
        /// Number of the block whose state is used. Its header is part of the link.
        at: u64,
        /// Number of the earlier block.
        number: u64,
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

/// Steps to an earlier block, in the order in which they can be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
#[non_exhaustive]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// Estimated number of requests.
    pub requests: u64,
    /// Estimated bytes of evidence, as a stranger needs them again. JSON takes about twice as many.
    pub bytes: u64,
}

/// Bytes of a header; mainnet's have up to 652.
const HEADER: u64 = 650;
/// Bytes of the nodes from the state root to the contract's account, in September 2026.
const ACCOUNT: u64 = 3764;
/// Bytes of the nodes from the contract's storage root to a slot, in September 2026.
const SLOT: u64 = 1779;
/// Bytes of the largest header proof before Gloas.
const PROOF: u64 = 840;
/// Bytes of a summary.
const SUMMARY: u64 = 64;
/// Maximum number of hops, which are 300 years of blocks: memory is bounded for any numbers.
const MAX_HOPS: u64 = 100_000;
/// Bytes that take as long as a request without data: 40 ms at 100 kB a second.
const REQUEST: u64 = 4000;

impl Plan {
    /// Returns what plans are compared by.
    const fn weight(&self) -> u64 {
        self.requests.saturating_mul(REQUEST).saturating_add(self.bytes)
    }

    /// Adds the steps of a plan that starts where this one ends.
    fn then(mut self, next: Self) -> Self {
        self.steps.extend(next.steps);
        self.requests = self.requests.saturating_add(next.requests);
        self.bytes = self.bytes.saturating_add(next.bytes);
        self
    }
}

/// Returns the cheapest steps from `head` to block `number`. Returns `None` if no source leads to
/// the block, for example because it is above the head.
///
/// The result depends on estimates of size. Where the sources fail to serve a step, plan again
/// without what failed.
///
/// # Cost
/// Constant, or in proportion to the number of hops.
pub fn plan(
    head: BelievedBlock,
    number: u64,
    chain: &Milestones,
    sources: &Sources,
) -> Option<Plan> {
    if number == head.number {
        return Some(Plan::default());
    }
    // The lowest block that the contract leads to: parent hashes below it may start there.
    let reach = sources.state_depth.map(|depth| {
        let hops = (depth / SERVE_WINDOW).min(MAX_HOPS - 1) + 1;
        head.number.saturating_sub(hops * SERVE_WINDOW).max(chain.history_contract)
    });
    let from_reach =
        reach.filter(|&reach| number < reach && reach < head.number).and_then(|reach| {
            let shown = cheapest([
                by_contract(head, reach, chain, sources),
                by_proof(head, reach, chain, sources),
            ]);
            Some(shown?.then(by_parents(reach, number, sources)?))
        });
    cheapest([
        by_parents(head.number, number, sources),
        by_contract(head, number, chain, sources),
        by_proof(head, number, chain, sources),
        from_reach,
    ])
}

fn cheapest<const N: usize>(plans: [Option<Plan>; N]) -> Option<Plan> {
    plans.into_iter().flatten().min_by_key(Plan::weight)
}

fn by_parents(from: u64, to: u64, sources: &Sources) -> Option<Plan> {
    let blocks = from.checked_sub(to).filter(|_| sources.headers)?;
    // The header at the start is counted, because nothing but its hash is shown.
    let requests = blocks.saturating_add(1);
    let bytes = requests.saturating_mul(HEADER);
    Some(Plan { steps: [Step::Parents { from, to }].into(), requests, bytes })
}

fn by_contract(
    head: BelievedBlock,
    number: u64,
    chain: &Milestones,
    sources: &Sources,
) -> Option<Plan> {
    let depth = sources.state_depth.filter(|_| number >= chain.history_contract)?;
    // Block `head - 8191` is the last one in reach of the head itself.
    let hops = head.number.checked_sub(number)?.saturating_sub(1) / SERVE_WINDOW;
    // Each further hop starts from a header that is not known yet.
    if hops >= MAX_HOPS || hops * SERVE_WINDOW > depth || (hops > 0 && !sources.headers) {
        return None;
    }
    let at = |hop: u64| head.number - hop * SERVE_WINDOW;
    let step = |hop| Step::HistoryContract {
        at: at(hop),
        number: if hop < hops { at(hop + 1) } else { number },
    };
    // Each hop needs the header of its block, and a proof of that block's hash.
    let (requests, bytes) = (2 * (hops + 1), (hops + 1) * (HEADER + ACCOUNT + SLOT));
    Some(Plan { steps: (0..=hops).map(step).collect(), requests, bytes })
}

fn by_proof(
    head: BelievedBlock,
    number: u64,
    chain: &Milestones,
    sources: &Sources,
) -> Option<Plan> {
    let back = head.number.checked_sub(number)?;
    if !sources.header_proofs || number < chain.header_proofs {
        return None;
    }
    let step = Step::HeaderProof { number };
    let proof = Plan { steps: [step].into(), requests: 1, bytes: PROOF + HEADER };
    if number < chain.capella {
        return Some(proof);
    }
    // Only complete periods have a summary. A block is at least one slot after its parent, so a
    // block this far back is surely in an earlier period. Nearer blocks may be, but their slots are
    // not known here.
    if !sources.summaries || back <= head.slot % PERIOD_SLOTS {
        return None;
    }
    let periods = head.slot.saturating_sub(chain.capella_slot) / PERIOD_SLOTS;
    let bytes = periods.saturating_mul(SUMMARY);
    Some(Plan { steps: [Step::Summaries].into(), requests: 1, bytes }.then(proof))
}
