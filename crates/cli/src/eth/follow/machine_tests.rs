//! Random chains, reorganisations, lies and kills, against a naive answer.

use chainsieve::eth::chain_profile::BloomSoundness;
use chainsieve::eth::log_query::{BlockTag, LogQuery};
use proptest::prelude::*;

use super::blocks::Point;
use super::fault::Fault;
use super::machine_run::{KEEP, KillAtStart, KillIn, Run, TRUE, rules, settled};
use super::messages::{Rules, STRETCH, Seen, Want};
use super::world::World;

#[derive(Debug, Clone)]
enum Op {
    Mine(Vec<u8>),
    Reorg(usize, Vec<u8>),
    Steps(Vec<u8>),
    Finalize(u64),
    /// Receipts of so many of the newest blocks can't be had until the next of these.
    Withhold(usize),
    /// A second node gets the chain of the first.
    Synchronise,
    /// The second node answers instead of the first.
    FailOver,
    Kill,
    KillIn(KillIn),
}

fn op() -> impl Strategy<Value = Op> {
    let seeds = |most| prop::collection::vec(any::<u8>(), 1..most);
    prop_oneof![
        4 => seeds(6).prop_map(Op::Mine),
        4 => (1..7_usize, seeds(8)).prop_map(|(depth, seeds)| Op::Reorg(depth, seeds)),
        8 => prop::collection::vec(prop_oneof![3 => Just(TRUE), 2 => 0..20_u8], 1..12)
            .prop_map(Op::Steps),
        1 => (0..8_u64).prop_map(Op::Finalize),
        1 => (0..4_usize).prop_map(Op::Withhold),
        1 => Just(Op::Synchronise),
        2 => Just(Op::FailOver),
        1 => Just(Op::Kill),
        1 => Just(Op::KillIn(KillIn::BeforeLines)),
        3 => (0..3000_usize).prop_map(|bytes| Op::KillIn(KillIn::Lines(bytes))),
    ]
}

/// A start that is killed, and what is mined before the next one.
type Death = (KillAtStart, Vec<u8>);

fn deaths() -> impl Strategy<Value = Vec<Death>> {
    let kill = prop_oneof![
        Just(KillAtStart::BeforeFile),
        Just(KillAtStart::BeforeLine),
        Just(KillAtStart::AfterLine)
    ];
    prop::collection::vec((kill, prop::collection::vec(any::<u8>(), 0..4)), 0..3)
}

fn from() -> impl Strategy<Value = Option<BlockTag>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(BlockTag::Latest)),
        1 => Just(Some(BlockTag::Safe)),
        1 => Just(Some(BlockTag::Finalized)),
        1 => Just(Some(BlockTag::Earliest)),
        1 => (0..12_u64).prop_map(|number| Some(BlockTag::Number(number))),
    ]
}

/// Runs operations from block `rules.from` on.
fn run(rules: Rules, ops: &[Op], kills: bool) -> Result<(), TestCaseError> {
    let mut world = World::new();
    world.unsound = rules.profile.at(0).bloom == BloomSoundness::Unsound;
    let run = Run::new(&world, rules);
    run_on(world, run, ops, kills)
}

fn run_on(mut world: World, mut run: Run, ops: &[Op], kills: bool) -> Result<(), TestCaseError> {
    let confirmations = run.machine.rules().confirmations;
    let mut went = Ok(());
    for op in ops {
        match op {
            Op::Mine(seeds) => seeds.iter().for_each(|&seed| world.mine(seed)),
            Op::Reorg(depth, seeds) => {
                world.revert(*depth);
                world.mine_all(seeds);
            }
            Op::Steps(odds) => {
                for &odd in odds {
                    went = run.step(&world, odd).map(|_| ());
                    if went.is_err() {
                        break;
                    }
                }
            }
            Op::Finalize(behind) => {
                // Not above what the chain and the machine have in common, which is final.
                let head = world.head();
                if let Some(block) = world.at(head.number.saturating_sub(20 + behind)) {
                    run.machine.on_finalized(block.at);
                }
            }
            Op::Withhold(count) => world.withhold(*count),
            Op::Synchronise => world.synchronise(),
            Op::FailOver => world.fail_over(),
            Op::Kill if kills => run.kill(&world),
            Op::KillIn(kill) if kills => run.kill = Some(*kill),
            Op::Kill | Op::KillIn(_) => {}
        }
        if went.is_err() {
            break;
        }
    }
    run.kill = None;
    if went.is_ok() {
        world.withhold(0);
        world.outgrow(run.told.expect("it has started"));
        went = run.settle(&world);
    }
    // Pending blocks are less than what is asked for at a time.
    let bound = KEEP + 1 + usize::try_from(STRETCH + confirmations).expect("small");
    prop_assert!(run.most <= bound);
    match went {
        Ok(()) => {
            let head = world.head();
            let from = run.told.expect("it has started");
            let last = head.number.checked_sub(confirmations).filter(|last| *last >= from);
            let Some(last) = last else {
                prop_assert!(run.consumer.logs.is_empty());
                return Ok(());
            };
            let at = world.at(last).expect("on the chain").at;
            prop_assert_eq!(run.machine.blocks().last_printed(), Some(at));
            prop_assert_eq!(run.consumer.logs, world.logs_up_to(at, from));
        }
        Err(Fault::TooDeep { first, .. }) => {
            let last = run.machine.blocks().last().expect("there are blocks");
            prop_assert!(run.machine.blocks().has_let_go());
            prop_assert!(world.common(last).number < first.number);
            // Nothing of the branch was printed.
            let printed = run.machine.blocks().last_printed().expect("printed");
            prop_assert!(printed.number >= first.number);
        }
        Err(fault) => prop_assert!(false, "{}", fault),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_log_comes_once_and_is_removed_once(
        ops in prop::collection::vec(op(), 1..40),
        confirmations in 0..4_u64,
        from in 0..6_u64,
    ) {
        run(Rules { from, confirmations, ..rules(BloomSoundness::Exact) }, &ops, false)?;
    }

    #[test]
    fn nothing_is_lost_by_kills(
        ops in prop::collection::vec(op(), 1..40),
        confirmations in 0..3_u64,
    ) {
        run(Rules { confirmations, ..rules(BloomSoundness::Exact) }, &ops, true)?;
    }

    /// Every log from the block on that the first line named: whatever was asked for as the start,
    /// and wherever kills came.
    #[test]
    fn nothing_is_lost_from_the_start_on(
        past in prop::collection::vec(any::<u8>(), 0..16),
        from in from(),
        deaths in deaths(),
        ops in prop::collection::vec(op(), 1..40),
        confirmations in 0..6_u64,
        lowest in prop_oneof![4 => Just(u64::MAX), 1 => 0..8_u64],
    ) {
        let mut world = World::new();
        world.mine_all(&past);
        let rules = Rules { start: lowest, confirmations, ..rules(BloomSoundness::Exact) };
        let mut run = Run::before_start(rules, from);
        for (kill, seeds) in deaths {
            run.start(&world, Some(kill));
            world.mine_all(&seeds);
        }
        run.start(&world, None);
        run_on(world, run, &ops, true)?;
    }

    #[test]
    fn unsound_filters_are_not_looked_at(ops in prop::collection::vec(op(), 1..20)) {
        run(rules(BloomSoundness::Unsound), &ops, true)?;
    }
}

#[test]
fn a_reorganisation_below_what_is_kept_ends_it() {
    let mut world = World::new();
    (0..40).for_each(|seed| world.mine(seed));
    for (depth, killed) in [(KEEP, false), (KEEP, true), (KEEP + 1, false), (KEEP + 1, true)] {
        let mut run = settled(&world, rules(BloomSoundness::Exact));
        let (before, lines) = (run.machine.blocks().last_printed(), run.consumer.logs.clone());
        let canonical = world.canonical.clone();
        if killed {
            run.kill(&world);
        }
        world.revert(depth);
        (0..50_u8).for_each(|seed| world.mine(seed * 3));
        let settled = run.settle(&world);
        if depth == KEEP {
            settled.expect("it can be followed");
            assert_eq!(run.consumer.reorgs, 1, "at depth {depth}");
        } else {
            let fault = settled.expect_err("it can't be followed");
            assert!(matches!(fault, Fault::TooDeep { finalized: None, .. }));
            assert!(fault.to_string().contains("no common ancestor is known"), "{fault}");
            assert_eq!(run.consumer.logs, lines);
            assert_eq!(run.machine.blocks().last_printed(), before);
        }
        world.canonical = canonical;
    }
}

/// What a killed process may have printed leaves the chain before another one has printed it again.
#[test]
fn lines_of_a_killed_process_are_taken_back() {
    // Two receipts with two logs each, all of them asked for or of another contract.
    const SEED: u8 = 2 | 2 << 2;
    let kills = [(KillIn::BeforeLines, 0), (KillIn::Lines(900), 1), (KillIn::Lines(100_000), 4)];
    // All that was printed last, or the last block of it alone.
    for ((kill, printed), depth) in kills.into_iter().flat_map(|kill| [(kill, 6), (kill, 3)]) {
        let mut world = World::new();
        world.mine_all(&[SEED; 6]);
        let mut run = settled(&world, Rules { confirmations: 2, ..rules(BloomSoundness::Exact) });
        let before = run.consumer.logs.len();
        world.mine_all(&[SEED; 2]);
        run.kill = Some(kill);
        while run.kill.is_some() {
            run.step(&world, TRUE).expect("no fault");
        }
        let out = run.consumer.logs.len() - before;
        assert!(out >= printed && (out > 0) == (printed > 0), "{out} of {printed} lines");
        world.revert(depth);
        world.mine_all(&[SEED; 9]);
        run.settle(&world).expect("it can be followed");
        let last = run.machine.blocks().last_printed().expect("printed");
        assert_eq!(last.number, world.head().number - 2);
        assert_eq!(run.consumer.logs, world.logs_up_to(last, 0));
    }
}

#[test]
fn what_is_final_is_not_taken_back() {
    let mut world = World::new();
    (0..20).for_each(|seed| world.mine(seed));
    let mut run = settled(&world, rules(BloomSoundness::Exact));
    // Of another branch, and then of this one.
    run.machine.on_finalized(Point { number: 16, ..world.head() });
    assert_eq!(run.machine.finalized(), None);
    assert_eq!(run.machine.blocks().len(), KEEP + 1);
    run.machine.on_finalized(world.at(17).expect("there").at);
    assert_eq!(run.machine.finalized().map(|at| at.number), Some(17));
    assert_eq!(run.machine.blocks().len(), 4);
    world.revert(5);
    (0..9).for_each(|seed| world.mine(seed));
    let fault = run.settle(&world).expect_err("final blocks");
    assert!(matches!(fault, Fault::TooDeep { finalized: Some(17), .. }));
    assert!(fault.to_string().contains("called finalised"), "{fault}");
}

#[test]
fn another_block_than_the_anchor_ends_it() {
    let mut world = World::new();
    (0..20).for_each(|seed| world.mine(seed));
    let anchor = world.at(12).expect("there").at;
    let with = |anchor| Rules { anchors: vec![anchor], ..rules(BloomSoundness::Exact) };
    let mut run = settled(&world, with(anchor));
    assert_eq!(run.machine.take_anchored(), Some(anchor));
    assert_eq!(run.machine.take_anchored(), None);
    // A branch that parts below it.
    world.revert(10);
    (0..30).for_each(|seed| world.mine(seed));
    let fault = run.settle(&world).expect_err("below the anchor");
    assert_eq!(fault, Fault::BelowAnchor { anchor, ancestor: Some(10) });

    let mut run = Run::new(&world, with(anchor));
    let fault = run.settle(&world).expect_err("another block 12");
    let found = world.at(12).expect("there").at.hash;
    assert_eq!(fault, Fault::Anchor { anchor, found });
    assert!(run.consumer.logs.is_empty());
}

#[test]
fn a_filter_that_lacks_bits_ends_it() {
    let mut world = World::new();
    world.unsound = true;
    // The filter has no bits: only a query for everything asks for receipts.
    (0..20).for_each(|seed| world.mine(seed));
    let everything = Rules { query: LogQuery::new(), ..rules(BloomSoundness::Exact) };
    let fault = Run::new(&world, everything).settle(&world).expect_err("unsound");
    assert!(matches!(fault, Fault::Unsound { .. }));
}

#[test]
fn it_ends_at_the_last_block() {
    let mut world = World::new();
    (0..20).for_each(|seed| world.mine(seed));
    for confirmations in [0, 3, 5] {
        let to = Rules { to: Some(12), confirmations, ..rules(BloomSoundness::Exact) };
        let run = settled(&world, to);
        assert_eq!(run.machine.want(), Want::End);
        let last = world.at(12).expect("there").at;
        assert_eq!(run.machine.blocks().last_printed(), Some(last));
        assert_eq!(run.consumer.logs, world.logs_up_to(last, 0));
    }
}

#[test]
fn a_node_that_lags_takes_nothing_back() {
    let mut world = World::new();
    (0..20).for_each(|seed| world.mine(seed));
    let mut run = settled(&world, rules(BloomSoundness::Exact));
    assert_eq!(run.machine.on_head(world.at(15).expect("there").at), Seen::Behind);
    assert_eq!(run.machine.on_head(Point { number: 2, ..world.head() }), Seen::Behind);
    assert_eq!(run.machine.want(), Want::Head);
    assert_eq!(run.machine.blocks().last_printed(), Some(world.head()));
}

/// With an index of the past: the same logs, and no branch is followed below it.
#[test]
fn an_index_serves_the_past() {
    for (to, from) in [(30, 0), (30, 7), (33, 33), (0, 0)] {
        let mut world = World::new();
        (0..40).for_each(|seed| world.mine(seed));
        let indexed =
            Rules { index_to: Some(to), from, start: from, ..rules(BloomSoundness::Exact) };
        let mut run = settled(&world, indexed);
        let logs = world.logs_up_to(world.head(), from);
        assert!(logs.len() > 5);
        assert_eq!(run.consumer.logs, logs);
        assert_eq!(run.machine.blocks().last_printed(), Some(world.head()));
        let first = run.machine.blocks().first().expect("there are blocks").number;
        assert!(first >= to.max(40 - KEEP as u64), "{first}");
        run.kill(&world);
        world.revert(40 - usize::try_from(to).expect("small").max(30));
        (0..9).for_each(|seed| world.mine(seed * 5));
        run.settle(&world).expect("above the index");
        assert_eq!(run.consumer.logs, world.logs_up_to(world.head(), from));
        if to >= 30 {
            let depth = world.head().number - to + 1;
            world.revert(usize::try_from(depth).expect("small"));
            (0..20).for_each(|seed| world.mine(seed));
            let fault = run.settle(&world).expect_err("below the index");
            assert!(matches!(fault, Fault::TooDeep { .. }), "{fault}");
        }
    }
}
