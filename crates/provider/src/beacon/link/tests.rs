//! The planner: the cheapest way that the sources serve, and none that they do not.

use std::ops::RangeInclusive;

use super::{Believed, Plan, Sources, Step, plan};

/// A finalised block of September 2026, in the middle of its period.
const HEAD: Believed = Believed { number: 26_069_545, slot: 15_308_190, is_mainnet: true };

const NONE: Sources =
    Sources { headers: false, state_depth: None, summaries: false, header_proofs: false };
const HEADERS: Sources = Sources { headers: true, ..NONE };
const NODE: Sources = Sources { state_depth: Some(64), ..HEADERS };
const ARCHIVE: Sources = Sources { state_depth: Some(u64::MAX), ..HEADERS };
const ALL: Sources = Sources { summaries: true, header_proofs: true, ..ARCHIVE };

fn planned(wanted: u64, sources: &Sources) -> Option<Plan> {
    let plan = plan(HEAD, wanted, sources);
    if let Some(plan) = &plan {
        check(plan, wanted, sources);
    }
    plan
}

/// Plans for a block that the sources lead to.
fn reached(wanted: u64, sources: &Sources) -> Plan {
    planned(wanted, sources).expect("a way")
}

/// Carries the plan out in thought: each step starts from what is shown, is served, and the wanted
/// block is reached.
fn check(plan: &Plan, wanted: u64, sources: &Sources) {
    // Ranges of blocks, because a walk over parent hashes can show millions.
    let mut ranges = vec![HEAD.number..=HEAD.number];
    let contains = |ranges: &[RangeInclusive<u64>], number: u64| {
        ranges.iter().any(|range| range.contains(&number))
    };
    let mut summaries = false;
    for step in &plan.steps {
        match *step {
            Step::Parents { from, to } => {
                assert!(sources.headers && contains(&ranges, from) && to <= from, "{plan:?}");
                ranges.push(to..=from);
            }
            Step::HistoryContract { at, number } => {
                let depth = sources.state_depth.expect("state");
                assert!(contains(&ranges, at) && HEAD.number - at <= depth, "{plan:?}");
                assert!(at == HEAD.number || sources.headers, "{plan:?}");
                assert!(number >= at - 8191 && number < at, "{plan:?}");
                assert!(number >= 22_431_083, "{plan:?}");
                ranges.push(number..=number);
            }
            Step::Summaries => {
                assert!(sources.summaries, "{plan:?}");
                summaries = true;
            }
            Step::HeaderProof { number } => {
                assert!(sources.header_proofs, "{plan:?}");
                assert!(number < 17_034_870 || summaries, "{plan:?}");
                assert!(HEAD.number - number > HEAD.slot % 8192 || number < 17_034_870);
                ranges.push(number..=number);
            }
        }
    }
    assert!(contains(&ranges, wanted), "{wanted}: {plan:?}");
}

#[test]
fn near_blocks() {
    let head = HEAD.number;
    assert_eq!(planned(head, &NONE), Some(Plan::default()));
    // The parent's header is less than an account proof.
    let plan = reached(head - 1, &ALL);
    assert_eq!(plan.steps, [Step::Parents { from: head, to: head - 1 }]);
    assert_eq!(plan.requests, 2);
    // Thousands of headers are more.
    for back in [100, 8191] {
        let plan = reached(head - back, &NODE);
        let contract = Step::HistoryContract { at: head, number: head - back };
        assert_eq!(plan.steps, [contract], "{back}");
        assert!(plan.bytes < 10_000, "{plan:?}");
    }
    // A provider that refuses the state of the believed block.
    let plan = reached(head - 100, &HEADERS);
    assert_eq!(plan.steps, [Step::Parents { from: head, to: head - 100 }]);
    assert_eq!(plan.requests, 101);
    // Without headers, only the one of the believed block is known.
    let state = Sources { state_depth: Some(u64::MAX), ..NONE };
    let contract = Step::HistoryContract { at: head, number: head - 8191 };
    assert_eq!(reached(head - 8191, &state).steps, [contract]);
    assert_eq!(planned(head - 8192, &state), None);
}

#[test]
fn far_blocks() {
    let head = HEAD.number;
    let prague = 22_431_083;
    // One list of summaries replaces all hops.
    let by_proof = reached(prague, &ALL);
    assert_eq!(by_proof.steps, [Step::Summaries, Step::HeaderProof { number: prague }]);
    let hops = reached(prague, &ARCHIVE);
    assert_eq!(hops.steps.len(), 445);
    assert_eq!((head - prague).div_ceil(8191), 445);
    assert!(hops.bytes > 20 * by_proof.bytes, "{} {}", hops.bytes, by_proof.bytes);
    // Two hops are less than the list.
    let first = Step::HistoryContract { at: head, number: head - 8191 };
    let second = Step::HistoryContract { at: head - 8191, number: head - 10_000 };
    assert_eq!(reached(head - 10_000, &ALL).steps, [first, second]);
    // A node without old states walks from the last block that the contract shows.
    let walk = reached(head - 10_000, &NODE);
    assert_eq!(walk.steps, [first, Step::Parents { from: head - 8191, to: head - 10_000 }]);
    assert_eq!(walk.requests, 1_812);
    // One block beyond the contract's reach.
    assert_eq!(reached(head - 8192, &NODE).requests, 4);
    assert_eq!(reached(prague - 1, &ARCHIVE).requests, 892);
    let proofs = Sources { header_proofs: true, ..NONE };
    assert_eq!(plan(Believed { is_mainnet: false, ..HEAD }, 1_000_000, &proofs), None);
    // Before Capella no summaries are needed.
    for number in [1, 15_537_394] {
        assert_eq!(reached(number, &proofs).steps, [Step::HeaderProof { number }]);
    }
    for number in [17_034_870, head - 9_000] {
        assert_eq!(planned(number, &proofs), None);
    }
}

#[test]
fn what_nobody_serves_is_not_planned() {
    let head = HEAD.number;
    for number in [u64::MAX, head + 1, head - 1, 5] {
        assert_eq!(planned(number, &NONE), None, "{number}");
    }
    // The running period has no summary yet. Its first block may be in it.
    let proofs = Sources { summaries: true, header_proofs: true, ..NONE };
    let in_period = HEAD.slot % 8192;
    assert_eq!(planned(head - in_period, &proofs), None);
    assert!(planned(head - in_period - 1, &proofs).is_some());
}

/// Any numbers end in bounded time and memory.
#[test]
fn extreme_numbers() {
    for number in [0, 1, u64::MAX] {
        for slot in [0, u64::MAX] {
            for wanted in [0, 1, 8191, u64::MAX - 1, u64::MAX] {
                for is_mainnet in [false, true] {
                    let head = Believed { number, slot, is_mainnet };
                    let plan = plan(head, wanted, &ALL);
                    assert_eq!(plan.is_some(), wanted <= number, "{number} {wanted}");
                    assert!(plan.is_none_or(|plan| plan.steps.len() < 10), "{number} {wanted}");
                }
            }
        }
    }
}

/// A source more never makes a plan much worse, and never makes a block unreachable. The bound is not exact:
/// the history contract is asked for the farthest block that it has, although a nearer one may cost less.
#[test]
fn more_sources_never_cost_more() {
    let mut rng = testkit::Rng::new(8191);
    let weight = |plan: &Plan| plan.requests * 4000 + plan.bytes;
    let depths = [None, Some(0), Some(64), Some(100_000), Some(u64::MAX)];
    for _ in 0..600 {
        let spread = *rng.pick(&[50, 9_000, 100_000, 3_000_000, 26_000_000]);
        let wanted = HEAD.number - rng.below(spread) as u64;
        let mut previous: Vec<(Sources, Option<u64>)> = Vec::new();
        for bits in 0..8 {
            for state_depth in depths {
                let sources = Sources {
                    headers: bits & 1 != 0,
                    summaries: bits & 2 != 0,
                    header_proofs: bits & 4 != 0,
                    state_depth,
                };
                let cost = planned(wanted, &sources).map(|plan| weight(&plan));
                for (fewer, other) in &previous {
                    let within = (!fewer.headers || sources.headers)
                        && (!fewer.summaries || sources.summaries)
                        && (!fewer.header_proofs || sources.header_proofs)
                        && fewer.state_depth <= sources.state_depth;
                    if let (true, Some(other)) = (within, other) {
                        let cost = cost.expect("a source more keeps the block in reach");
                        assert!(cost <= other + other / 4, "{wanted} {sources:?} {fewer:?}");
                    }
                }
                previous.push((sources, cost));
            }
        }
    }
}
