//! Properties of the log follower under random operations: each log is given once, and removed once
//! if it leaves the chain.

use std::time::Duration;

use chainsieve::eth::chain_profile::BloomSoundness;
use chainsieve::eth::follow::{Config, Fault};
use chainsieve::eth::log_query::{BlockTag, LogQuery};
use proptest::prelude::*;

use super::run::{KEEP, Kill, Run, TRUE, config};
use testkit::eth::world::{ASKED, NOBODY, World};

#[derive(Debug, Clone)]
enum Op {
    Mine(Vec<u8>),
    Reorg(usize, Vec<u8>),
    Steps(Vec<u8>),
    /// Makes the receipts of this many newest blocks unavailable, until the next of these.
    Withhold(usize),
    /// A second node gets the chain of the first.
    Synchronise,
    /// The second node answers instead of the first.
    FailOver,
    Kill,
    KillIn(Kill),
}

fn kill() -> impl Strategy<Value = Kill> {
    prop_oneof![
        Just(Kill::BeforeStore),
        Just(Kill::AfterStore),
        (0..12_usize).prop_map(Kill::InUpdate),
        Just(Kill::AfterUpdate),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let seeds = |most| prop::collection::vec(any::<u8>(), 1..most);
    prop_oneof![
        4 => seeds(6).prop_map(Op::Mine),
        4 => (1..7_usize, seeds(8)).prop_map(|(depth, seeds)| Op::Reorg(depth, seeds)),
        8 => prop::collection::vec(prop_oneof![3 => Just(TRUE), 2 => 0..20_u8], 1..30)
            .prop_map(Op::Steps),
        1 => (0..4_usize).prop_map(Op::Withhold),
        1 => Just(Op::Synchronise),
        2 => Just(Op::FailOver),
        1 => Just(Op::Kill),
        3 => kill().prop_map(Op::KillIn),
    ]
}

/// Draws kills during the start, each with the blocks mined before the next start.
fn deaths() -> impl Strategy<Value = Vec<(Kill, Vec<u8>)>> {
    prop::collection::vec((kill(), prop::collection::vec(any::<u8>(), 0..4)), 0..3)
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

fn go(
    mut world: World,
    mut run: Run,
    confirmations: u64,
    ops: &[Op],
    kills: bool,
) -> Result<(), TestCaseError> {
    for op in ops {
        match op {
            Op::Mine(seeds) => world.mine_all(seeds),
            Op::Reorg(depth, seeds) => {
                world.revert(*depth);
                world.mine_all(seeds);
            }
            Op::Steps(odds) => odds.iter().for_each(|&odd| run.step(&world, odd)),
            Op::Withhold(count) => world.withhold(*count),
            Op::Synchronise => world.synchronise(),
            Op::FailOver => world.fail_over(),
            Op::Kill if kills => run.kill(),
            Op::KillIn(kill) if kills => run.kill = Some(*kill),
            Op::Kill | Op::KillIn(_) => {}
        }
        if run.ended.is_some() {
            break;
        }
    }
    run.kill = None;
    if run.ended.is_none() {
        world.withhold(0);
        // The first update names the first block, which is needed below.
        if run.told.is_none() {
            run.settle(&world);
        }
        world.outgrow(run.told.unwrap() + confirmations);
        run.settle(&world);
    }
    // The blocks pending are fewer than the follower requests at a time.
    prop_assert!(run.most <= KEEP + 1 + usize::try_from(8192 + confirmations).unwrap());
    match run.ended {
        None => {
            let last = world.at(world.head().number - confirmations).unwrap().at;
            prop_assert_eq!(run.follower.last(), Some(last));
            prop_assert_eq!(run.reader.last, Some(last));
            prop_assert_eq!(&run.reader.logs, &world.logs_up_to(last, run.told.unwrap()));
        }
        // This end is right only if the reorganisation goes below the blocks kept.
        Some(Err(Fault::TooDeep { first, .. })) => {
            let last = run.follower.last().unwrap();
            prop_assert!(last.number >= first.number);
            prop_assert!(world.common(last).number < first.number);
        }
        Some(ended) => prop_assert!(false, "{ended:?}"),
    }
    Ok(())
}

fn of(from: Option<BlockTag>, confirmations: u64) -> Config {
    let range = from.map_or_else(LogQuery::new, |from| LogQuery::new().from_block(from));
    // In half of the cases, the second of two queries selects the logs.
    let (query, more_queries) = if confirmations.is_multiple_of(2) {
        (range.address(ASKED), Vec::new())
    } else {
        (range.address(NOBODY), vec![LogQuery::new().from_block(7).address(ASKED)])
    };
    Config { query, more_queries, confirmations, ..config(BloomSoundness::Exact) }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn each_log_comes_once_and_is_removed_once(
        ops in prop::collection::vec(op(), 1..40),
        confirmations in 0..4_u64,
        from in 0..6_u64,
    ) {
        let run = Run::new(of(Some(BlockTag::Number(from)), confirmations));
        go(World::new(), run, confirmations, &ops, false)?;
    }

    /// Kills lose no log since the block that the first update named, whatever start was requested
    /// and whenever the kills come.
    #[test]
    fn nothing_is_lost_by_kills(
        past in prop::collection::vec(any::<u8>(), 0..16),
        from in from(),
        deaths in deaths(),
        ops in prop::collection::vec(op(), 1..40),
        confirmations in 0..6_u64,
        stored in any::<bool>(),
        stores_late in any::<bool>(),
        is_slow in any::<bool>(),
        transaction_hashes in any::<bool>(),
    ) {
        let mut world = World::new();
        world.mine_all(&past);
        // Without a storage, the reader stores the cursor together with the logs.
        let mut run = Run::new(Config { stored, transaction_hashes, ..of(from, confirmations) });
        run.stores_late = stores_late;
        if is_slow {
            // The latency is longer than the time between two polls.
            run.latency = Duration::from_secs(3);
        }
        for (kill, seeds) in deaths {
            run.kill = Some(kill);
            for _ in 0..6 {
                run.step(&world, TRUE);
            }
            world.mine_all(&seeds);
        }
        run.kill = None;
        go(world, run, confirmations, &ops, true)?;
    }

    #[test]
    fn unsound_filters_are_not_looked_at(ops in prop::collection::vec(op(), 1..20)) {
        let mut world = World::new();
        world.unsound = true;
        go(world, Run::new(config(BloomSoundness::Unsound)), 0, &ops, true)?;
    }
}
