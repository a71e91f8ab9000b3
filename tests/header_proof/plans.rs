//! The planner: the cheapest way that the sources serve, and none that they do not.

use std::ops::RangeInclusive;

use chainsieve::eth::anchor::plan::{Cost, Head, Milestones, Plan, Sources, Step, plan};

/// A finalised block of September 2026, in the middle of its period.
const HEAD: Head = Head { number: 26_069_545, slot: 15_308_190 };

const NONE: Sources =
    Sources { headers: false, state_depth: None, summaries: false, header_proofs: false };
const HEADERS: Sources = Sources { headers: true, ..NONE };
const NODE: Sources = Sources { state_depth: Some(64), ..HEADERS };
const ARCHIVE: Sources = Sources { state_depth: Some(u64::MAX), ..HEADERS };
const ALL: Sources = Sources { summaries: true, header_proofs: true, ..ARCHIVE };

fn plan_of(wanted: &[u64], chain: &Milestones, sources: &Sources) -> Plan {
    plan(HEAD, wanted, chain, sources)
}

fn planned(wanted: &[u64], sources: &Sources) -> Plan {
    let plan = plan_of(wanted, &Milestones::MAINNET, sources);
    check(&plan, wanted, sources);
    plan
}

/// Carries the plan out in thought: each step starts from what is shown, is served, and every
/// wanted block is reached or named as unreachable.
fn check(plan: &Plan, wanted: &[u64], sources: &Sources) {
    // Ranges of blocks, because a walk over parent hashes can show millions.
    let mut ranges = vec![HEAD.number..=HEAD.number];
    let contains = |ranges: &[RangeInclusive<u64>], number: u64| {
        ranges.iter().any(|range| range.contains(&number))
    };
    let mut summaries = false;
    for step in &plan.steps {
        match step {
            Step::Parents { from, to } => {
                assert!(sources.headers && contains(&ranges, *from) && to <= from, "{plan:?}");
                ranges.push(*to..=*from);
            }
            Step::HistoryContract { at, numbers } => {
                let depth = sources.state_depth.expect("state");
                assert!(contains(&ranges, *at) && HEAD.number - at <= depth, "{plan:?}");
                assert!(*at == HEAD.number || sources.headers, "{plan:?}");
                assert!(!numbers.is_empty(), "{plan:?}");
                for number in numbers {
                    assert!(*number >= at - 8191 && number < at, "{plan:?}");
                    assert!(*number >= 22_431_083, "{plan:?}");
                    ranges.push(*number..=*number);
                }
            }
            Step::Summaries => {
                assert!(sources.summaries, "{plan:?}");
                summaries = true;
            }
            Step::HeaderProof { number } => {
                assert!(sources.header_proofs, "{plan:?}");
                assert!(*number < 17_034_870 || summaries, "{plan:?}");
                assert!(HEAD.number - number > HEAD.slot % 8192 || *number < 17_034_870);
                ranges.push(*number..=*number);
            }
            step => panic!("{step:?}"),
        }
    }
    for number in wanted {
        let unreachable = plan.unreachable.contains(number);
        assert_ne!(contains(&ranges, *number), unreachable, "{number}: {plan:?}");
    }
}

#[test]
fn near_blocks() {
    let head = HEAD.number;
    assert_eq!(planned(&[], &ALL).steps, []);
    assert_eq!(planned(&[head], &NONE).steps, []);
    assert_eq!(planned(&[head], &NONE).cost, Cost::default());
    // The parent's header is less than an account proof.
    let plan = planned(&[head - 1], &ALL);
    assert_eq!(plan.steps, [Step::Parents { from: head, to: head - 1 }]);
    assert_eq!(plan.cost.requests, 2);
    // Thousands of headers are more.
    for back in [100, 8191] {
        let plan = planned(&[head - back], &NODE);
        let contract = Step::HistoryContract { at: head, numbers: vec![head - back] };
        assert_eq!(plan.steps, [contract], "{back}");
        assert!(plan.cost.bytes < 10_000, "{:?}", plan.cost);
    }
    // Several blocks by one request.
    let wanted = [head - 8000, head - 100, head - 4000, head - 100];
    let numbers = vec![head - 100, head - 4000, head - 8000];
    let plan = planned(&wanted, &NODE);
    assert_eq!(plan.steps, [Step::HistoryContract { at: head, numbers }]);
    let one = planned(&wanted[..1], &NODE).cost.bytes;
    assert!(plan.cost.bytes < 2 * one, "{one} {:?}", plan.cost);
    // The fixed cost of the first block is shared by all.
    let wanted: Vec<_> = (1..=100).map(|back| head - back).collect();
    assert_eq!(planned(&wanted, &NODE).cost.requests, 2);
    // A provider that refuses the state of the believed block.
    let plan = planned(&[head - 100], &HEADERS);
    assert_eq!(plan.steps, [Step::Parents { from: head, to: head - 100 }]);
    assert_eq!(plan.cost.requests, 101);
    // Without headers, only the one of the believed block is known.
    let state = Sources { state_depth: Some(u64::MAX), ..NONE };
    let contract = Step::HistoryContract { at: head, numbers: vec![head - 8191] };
    assert_eq!(planned(&[head - 8191], &state).steps, [contract]);
    assert_eq!(planned(&[head - 8192], &state).unreachable, [head - 8192]);
}

#[test]
fn far_blocks() {
    let head = HEAD.number;
    let prague = 22_431_083;
    // One list of summaries replaces all hops.
    let plan = planned(&[prague], &ALL);
    assert_eq!(plan.steps, [Step::Summaries, Step::HeaderProof { number: prague }]);
    let plan_of_hops = planned(&[prague], &ARCHIVE);
    assert_eq!(plan_of_hops.steps.len(), 445);
    assert_eq!((head - prague).div_ceil(8191), 445);
    assert!(plan_of_hops.cost.bytes > 20 * plan.cost.bytes, "{:?}", plan_of_hops.cost);
    // Two hops are less than the list.
    let plan = planned(&[head - 10_000], &ALL);
    let first = Step::HistoryContract { at: head, numbers: vec![head - 8191] };
    let second = Step::HistoryContract { at: head - 8191, numbers: vec![head - 10_000] };
    assert_eq!(plan.steps, [first, second]);
    // A node without old states walks from the last block that the contract shows.
    let plan = planned(&[head - 10_000], &NODE);
    let contract = Step::HistoryContract { at: head, numbers: vec![head - 8191] };
    assert_eq!(plan.steps, [contract, Step::Parents { from: head - 8191, to: head - 10_000 }]);
    assert_eq!(plan.cost.requests, 1_812);
    let plan = planned(&[head - 10_000, head - 8_000], &NODE);
    let contract = Step::HistoryContract { at: head, numbers: vec![head - 8_000, head - 8191] };
    assert_eq!(plan.steps, [contract, Step::Parents { from: head - 8191, to: head - 10_000 }]);
    // One block beyond the contract's reach.
    assert_eq!(planned(&[head - 8192], &NODE).cost.requests, 4);
    assert_eq!(planned(&[prague - 1], &ARCHIVE).cost.requests, 892);
    // Without embedded lists, nobody can check a proof of an older block.
    let sepolia = Milestones {
        header_proofs: 2_990_908,
        capella: 2_990_908,
        capella_slot: 1_818_624,
        ..Milestones::MAINNET
    };
    let proofs = Sources { header_proofs: true, ..NONE };
    assert_eq!(plan_of(&[1_000_000], &sepolia, &proofs).unreachable, [1_000_000]);
    // Before Capella no summaries are needed.
    let plan = planned(&[1, 15_537_394, 17_034_870, head - 9_000], &proofs);
    let steps = [15_537_394, 1].map(|number| Step::HeaderProof { number });
    assert_eq!(plan.steps, steps);
    assert_eq!(plan.unreachable, [head - 9_000, 17_034_870]);
}

#[test]
fn what_nobody_serves_is_named() {
    let head = HEAD.number;
    let plan = planned(&[head + 1, head - 1, 5, u64::MAX], &NONE);
    assert_eq!(plan.steps, []);
    assert_eq!(plan.unreachable, [u64::MAX, head + 1, head - 1, 5]);
    // The running period has no summary yet. Its first block may be in it.
    let proofs = Sources { summaries: true, header_proofs: true, ..NONE };
    let in_period = HEAD.slot % 8192;
    assert_eq!(planned(&[head - in_period], &proofs).unreachable, [head - in_period]);
    assert_eq!(planned(&[head - in_period - 1], &proofs).unreachable, [0_u64; 0]);
}

/// Any numbers end in bounded time and memory.
#[test]
fn extreme_numbers() {
    let chain = Milestones { header_proofs: 0, capella: 0, history_contract: 0, capella_slot: 0 };
    for number in [0, 1, u64::MAX] {
        for slot in [0, u64::MAX] {
            for wanted in [0, 1, 8191, u64::MAX - 1, u64::MAX] {
                let plan = plan(Head { number, slot }, &[wanted], &chain, &ALL);
                assert_eq!(plan.unreachable.is_empty(), wanted <= number, "{number} {wanted}");
                assert!(plan.steps.len() < 10, "{plan:?}");
            }
        }
    }
}

/// A source more never makes a plan much worse, and never makes a block unreachable. The bound is
/// not exact, because blocks are planned one after the other.
#[test]
fn more_sources_never_cost_more() {
    let mut rng = testkit::Rng::new(8191);
    let weight = |cost: Cost| cost.requests * 4000 + cost.bytes;
    let depths = [None, Some(0), Some(64), Some(100_000), Some(u64::MAX)];
    for _ in 0..60 {
        let spread = *rng.pick(&[50, 9_000, 100_000, 3_000_000, 26_000_000]);
        let wanted: Vec<_> =
            (0..=rng.below(30)).map(|_| HEAD.number - rng.below(spread) as u64).collect();
        let mut previous: Vec<(Sources, Plan)> = Vec::new();
        for bits in 0..8 {
            for state_depth in depths {
                let sources = Sources {
                    headers: bits & 1 != 0,
                    summaries: bits & 2 != 0,
                    header_proofs: bits & 4 != 0,
                    state_depth,
                };
                let plan = planned(&wanted, &sources);
                for (fewer, other) in &previous {
                    let within = (!fewer.headers || sources.headers)
                        && (!fewer.summaries || sources.summaries)
                        && (!fewer.header_proofs || sources.header_proofs)
                        && fewer.state_depth <= sources.state_depth;
                    if within {
                        assert!(plan.unreachable.len() <= other.unreachable.len());
                        if plan.unreachable.len() == other.unreachable.len() {
                            let (more, less) = (weight(plan.cost), weight(other.cost));
                            assert!(more <= less + less / 4, "{sources:?} {plan:?} {other:?}");
                        }
                    }
                }
                previous.push((sources, plan));
            }
        }
    }
}
