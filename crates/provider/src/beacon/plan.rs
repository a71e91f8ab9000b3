//! Chooses the cheapest way from a trusted block to an earlier block, among the ways that the
//! sources allow.
//!
//! | way | needs | evidence |
//! |---|---|---|
//! | parent hashes | headers of all blocks between | 650 bytes a block |
//! | history contract | the state of the believed block | 6.2 kB, at most 8,191 blocks back |
//! | hops over the contract | the state of older blocks | 6.2 kB for each 8,191 blocks back |
//! | header proof | a server of proofs, and from Capella on the summaries, for complete periods | 1.5 kB with the header, 64 bytes for each period |
//!
//! One list of summaries replaces all hops: from September 2026 back to Prague these are about 440.

use chainsieve::eth::anchor::header_proof::PERIOD_SLOTS;
use chainsieve::eth::anchor::history_contract::SERVE_WINDOW;

/// The data that the sources serve.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sources {
    /// Headers by number or hash. The header of the believed block is taken to be known.
    pub(super) headers: bool,
    /// Answers to `eth_getProof`: the number of blocks before the believed block whose state is
    /// served. 0 means that block only, and `u64::MAX` an archive. `None` if no state is served,
    /// because the believed block is already too old for a node.
    pub(super) state_depth: Option<u64>,
    /// Historical summaries.
    pub(super) summaries: bool,
    /// Proofs of headers.
    pub(super) header_proofs: bool,
}

/// A believed block, and what is known of its network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Believed {
    /// Number of the execution block.
    pub(super) number: u64,
    /// Slot of the beacon block that binds it.
    pub(super) slot: u64,
    /// `true` on the Ethereum mainnet. The block numbers of other networks are not known here: plans for
    /// these networks have no header proofs, and may use the history contract before it exists, where no
    /// node can serve its state.
    pub(super) is_mainnet: bool,
}

/// Mainnet's first block of Capella, from which on header proofs need historical summaries.
const CAPELLA: u64 = 17_034_870;
/// First slot of Capella on mainnet. Block [`CAPELLA`] is at slot 6,209,538.
const CAPELLA_SLOT: u64 = 6_209_536;
/// Mainnet's first block whose hash the history contract has: the parent of the first block of Prague.
const HISTORY_CONTRACT: u64 = 22_431_083;

/// Something to fetch and to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The headers from block `from`, whose hash is proven, back to block `to`, both included.
    Parents { from: u64, to: u64 },
    /// The hash of block `number` in the state of block `at`, by one `eth_getProof`. The header of `at` is
    /// part of the link.
    HistoryContract { at: u64, number: u64 },
    /// The historical summaries.
    Summaries,
    /// The header and the proof of a block.
    HeaderProof { number: u64 },
}

/// Steps to an earlier block, in the order in which they can be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Estimated number of requests.
    pub(super) requests: u64,
    /// Estimated bytes of the evidence that another party needs. JSON takes about twice as many.
    pub(super) bytes: u64,
}

/// Bytes of a header; mainnet's have up to 652.
const HEADER: u64 = 650;
/// Bytes of the nodes from the state root to a slot of the contract, in September 2026.
const STATE: u64 = 3764 + 1779;
/// Bytes of the largest header proof before Gloas.
const PROOF: u64 = 840;
/// Bytes of a summary.
const SUMMARY: u64 = 64;
/// Maximum number of hops, which are 300 years of blocks: memory is bounded for any numbers.
const MAX_HOPS: u64 = 100_000;
/// Bytes that take as long as a request without data: 40 ms at 100 kB a second.
const REQUEST: u64 = 4000;

impl Plan {
    /// Returns the value by which plans are compared.
    const fn weight(&self) -> u64 {
        self.requests.saturating_mul(REQUEST).saturating_add(self.bytes)
    }

    /// Adds the steps of a plan that starts where this plan ends.
    fn then(mut self, next: Self) -> Self {
        self.steps.extend(next.steps);
        self.requests = self.requests.saturating_add(next.requests);
        self.bytes = self.bytes.saturating_add(next.bytes);
        self
    }
}

/// Returns the cheapest steps from a believed block to block `number`. Returns `None` if no source leads
/// to the block, for example because it is above the trusted block.
///
/// The result depends on estimates of size. If a source fails to serve a step, plan again without
/// that source.
pub(super) fn plan(head: Believed, number: u64, sources: &Sources) -> Option<Plan> {
    if number == head.number {
        return Some(Plan::default());
    }
    let direct = [
        by_parents(head.number, number, sources),
        by_contract(head, number, sources),
        by_proof(head, number, sources),
    ];
    // The lowest block that the contract leads to: parent hashes below it may start there.
    let reach = sources.state_depth.map(|depth| {
        let hops = (depth / SERVE_WINDOW).min(MAX_HOPS - 1) + 1;
        head.number.saturating_sub(hops * SERVE_WINDOW).max(first_in_contract(head))
    });
    let from_reach =
        reach.filter(|&reach| number < reach && reach < head.number).and_then(|reach| {
            let shown = [by_contract(head, reach, sources), by_proof(head, reach, sources)];
            let shown = shown.into_iter().flatten().min_by_key(Plan::weight)?;
            Some(shown.then(by_parents(reach, number, sources)?))
        });
    direct.into_iter().flatten().chain(from_reach).min_by_key(Plan::weight)
}

const fn first_in_contract(head: Believed) -> u64 {
    if head.is_mainnet { HISTORY_CONTRACT } else { 0 }
}

fn by_parents(from: u64, to: u64, sources: &Sources) -> Option<Plan> {
    let blocks = from.checked_sub(to).filter(|_| sources.headers)?;
    // The header at the start is counted, because nothing but its hash is shown.
    let requests = blocks.saturating_add(1);
    let bytes = requests.saturating_mul(HEADER);
    Some(Plan { steps: vec![Step::Parents { from, to }], requests, bytes })
}

fn by_contract(head: Believed, number: u64, sources: &Sources) -> Option<Plan> {
    let depth = sources.state_depth.filter(|_| number >= first_in_contract(head))?;
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
    let (requests, bytes) = (2 * (hops + 1), (hops + 1) * (HEADER + STATE));
    Some(Plan { steps: (0..=hops).map(step).collect(), requests, bytes })
}

fn by_proof(head: Believed, number: u64, sources: &Sources) -> Option<Plan> {
    let back = head.number.checked_sub(number)?;
    if !sources.header_proofs || !head.is_mainnet {
        return None;
    }
    let steps = vec![Step::HeaderProof { number }];
    let proof = Plan { steps, requests: 1, bytes: PROOF + HEADER };
    if number < CAPELLA {
        return Some(proof);
    }
    // Only complete periods have a summary. A block is at least one slot after its parent, so a
    // block this far back is surely in an earlier period. Nearer blocks may be, but their slots are
    // not known here.
    if !sources.summaries || back <= head.slot % PERIOD_SLOTS {
        return None;
    }
    let periods = head.slot.saturating_sub(CAPELLA_SLOT) / PERIOD_SLOTS;
    let bytes = periods.saturating_mul(SUMMARY);
    Some(Plan { steps: vec![Step::Summaries], requests: 1, bytes }.then(proof))
}

#[cfg(test)]
mod tests;
