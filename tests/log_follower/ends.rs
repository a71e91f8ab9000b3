//! The start and the end of a follower: the faults that end it, and the events that do not.

use std::time::Duration;

use chainsieve::alloy_primitives::{Address, B256, Bytes, Log};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::follow::{
    Action, Answer, Config, Cursor, Event, Failure, Fault, FollowNote, Follower, Indexed, Question,
    StartError,
};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockTag, LogQuery, Semantics};

use super::run::{KEEP, Kill, Run, TRUE, config, settled};
use testkit::eth::world::{ASKED, NOBODY, World};

fn exact() -> Config {
    config(BloomSoundness::Exact)
}

fn grown(blocks: u8) -> World {
    let mut world = World::new();
    (0..blocks).for_each(|seed| world.mine(seed));
    world
}

#[test]
fn a_reorganisation_below_what_is_kept_ends_it() {
    for (depth, is_killed) in [(KEEP, false), (KEEP, true), (KEEP + 1, false), (KEEP + 1, true)] {
        // Without finality, which would end the follower earlier.
        let mut world = grown(40);
        world.elsewhere.truncate(1);
        let mut run = settled(&world, exact());
        let (before, logs) = (run.follower.last(), run.reader.logs.clone());
        if is_killed {
            run.kill();
        }
        world.revert(depth);
        (0..50_u8).for_each(|seed| world.mine(seed * 3));
        run.settle(&world);
        if depth == KEEP {
            assert_eq!(run.ended, None);
            assert_eq!(run.reader.reorgs, 1, "at depth {depth}");
        } else {
            let Some(Err(fault @ Fault::TooDeep { finalized: None, .. })) = run.ended else {
                panic!("{:?}", run.ended)
            };
            assert!(fault.to_string().contains("too deep to follow"), "{fault}");
            assert_eq!((run.follower.last(), run.reader.logs), (before, logs));
        }
    }
}

/// Logs that a killed process may have given out leave the chain before another process has given
/// them out again.
#[test]
fn what_a_killed_process_gave_out_is_taken_back() {
    // Two receipts with two logs each, of the queried contract or of another one.
    const SEED: u8 = 2 | 2 << 2;
    let kills = [(Kill::AfterStore, 0), (Kill::InUpdate(1), 1), (Kill::AfterUpdate, 4)];
    // The reorganisation removes all blocks that were given out last, or only the last of them.
    for ((kill, given), depth) in kills.into_iter().flat_map(|kill| [(kill, 6), (kill, 3)]) {
        let mut world = World::new();
        world.mine_all(&[SEED; 6]);
        let mut run = settled(&world, Config { confirmations: 2, ..exact() });
        let before = run.reader.logs.len();
        world.mine_all(&[SEED; 2]);
        run.kill = Some(kill);
        while run.kill.is_some() {
            run.step(&world, TRUE);
        }
        assert_eq!(run.reader.logs.len() - before, given, "{kill:?}");
        world.revert(depth);
        world.mine_all(&[SEED; 9]);
        run.settle(&world);
        assert_eq!(run.ended, None);
        let last = run.follower.last().unwrap();
        assert_eq!(last.number, world.head().number - 2);
        assert_eq!(run.reader.logs, world.logs_up_to(last, 0));
    }
}

#[test]
fn what_is_final_is_not_taken_back() {
    let mut world = grown(20);
    world.synchronise();
    let finalized = world.finalized();
    let mut run = settled(&world, exact());
    // The follower asks for the finalised block when there is a new head.
    world.mine(1);
    run.settle(&world);
    assert_eq!(run.follower.num_kept() as u64, world.head().number - finalized.number + 1);
    let depth = world.head().number - finalized.number + 1;
    world.revert(usize::try_from(depth).unwrap());
    (0..15).for_each(|seed| world.mine(seed));
    run.settle(&world);
    let Some(Err(fault)) = run.ended else { panic!("{:?}", run.ended) };
    assert!(fault.to_string().contains("called block 11 finalised"), "{fault}");
}

#[test]
fn a_claim_that_the_future_is_final_is_forgotten() {
    let mut world = grown(20);
    world.synchronise();
    world.called_final = Some(BlockRef { number: 1_000_000, hash: B256::ZERO });
    let mut run = settled(&world, exact());
    world.called_final = None;
    run.latency = Duration::from_secs(60);
    world.mine(1);
    world.synchronise();
    run.settle(&world);
    let not_final = world.head().number - world.finalized().number + 1;
    assert_eq!(run.follower.num_kept() as u64, not_final);
}

/// The cursor was taken without an anchor, or before the anchor was known.
#[test]
fn an_anchor_among_blocks_of_an_earlier_run_is_told_and_holds() {
    let mut world = grown(20);
    world.elsewhere.truncate(1);
    let anchor = world.at(15).unwrap().at;
    let mut run = settled(&world, exact());
    for _ in 0..2 {
        run.anchored.clear();
        run.resume(Config { anchors: vec![anchor.hash], ..exact() });
        run.settle(&world);
        assert_eq!((run.ended.clone(), &run.anchored[..]), (None, &[anchor][..]));
    }
    // The branch leaves the chain before the anchor, and is shorter.
    world.revert(8);
    world.mine_all(&[3, 7]);
    assert!(world.head().number < anchor.number);
    run.settle(&world);
    assert_eq!(run.ended, Some(Err(Fault::BeforeAnchor(anchor))));
    assert_eq!(run.reader.reorgs, 0);
}

#[test]
fn an_anchor_after_the_last_block_is_reached() {
    let mut world = grown(30);
    let anchor = world.at(26).unwrap().at;
    for confirmations in [0, 3] {
        let query = exact().query.to_block(12);
        let config = Config { query, confirmations, anchors: vec![anchor.hash], ..exact() };
        let mut run = settled(&world, config.clone());
        assert_eq!((run.ended.clone(), &run.anchored[..]), (Some(Ok(())), &[anchor][..]));
        let last = world.at(12).unwrap().at;
        assert_eq!(run.reader.last, Some(last));
        assert_eq!(run.reader.logs, world.logs_up_to(last, 0));
        // Resume from the cursor of the finished run.
        run.ended = None;
        run.resume(config);
        run.settle(&world);
        assert_eq!((run.ended, run.reader.last), (Some(Ok(())), Some(last)));
    }
    // The node first has the anchor, and then another chain.
    let query = exact().query.to_block(12);
    let mut run = Run::new(Config { query, anchors: vec![anchor.hash], ..exact() });
    while run.follower.next_number().is_none() {
        run.step(&world, TRUE);
    }
    world.revert(25);
    (0..40).for_each(|seed| world.mine(seed));
    run.settle(&world);
    let found = world.at(26).unwrap().at.hash;
    let other = Fault::OtherThanAnchor { anchor, found, of: "the provider" };
    assert_eq!((run.ended, run.anchored), (Some(Err(other)), Vec::new()));
}

#[test]
fn where_receipts_lack_logs_it_says_so() {
    use BloomSoundness::Exact;
    use ReceiptsScope::{EveryLog, NotEveryLog};
    let mut world = grown(8);
    let profile = ChainProfile::assumed("test", Exact, EveryLog)
        .with_range(12, Exact, NotEveryLog, "assumed")
        .with_range(16, Exact, EveryLog, "assumed");
    let mut run = settled(&world, Config { profile: profile.clone(), ..exact() });
    for number in world.head().number..20 {
        run.settle(&world);
        let (last, every_log) = *run.every_log.last().unwrap();
        assert_eq!((last, every_log), (number, !(12..16).contains(&number)));
        world.mine(2);
    }
    // An update over several blocks has every log only if each of its blocks has.
    let several = |from: u64| {
        let query = exact().query.from_block(from);
        let run = settled(&world, Config { query, profile: profile.clone(), ..exact() });
        run.every_log
    };
    assert!(several(0).contains(&(world.head().number, false)));
    assert!(several(17).iter().all(|(_, every_log)| *every_log));
}

#[test]
fn another_block_than_the_anchor_ends_it() {
    let mut world = grown(20);
    let anchor = world.at(12).unwrap().at;
    let with = |hash| Config { anchors: vec![hash], ..exact() };
    let mut run = settled(&world, with(anchor.hash));
    assert_eq!(run.anchored, [anchor]);
    // A branch that leaves the chain before the anchor.
    world.revert(10);
    (0..30).for_each(|seed| world.mine(seed));
    run.settle(&world);
    assert_eq!(run.ended, Some(Err(Fault::BeforeAnchor(anchor))));

    let none = settled(&world, with(B256::ZERO));
    assert_eq!(none.ended, Some(Err(Fault::NoAnchor(B256::ZERO))));
}

#[test]
fn a_cursor_of_another_chain_than_the_anchors_ends_it() {
    let mut world = grown(20);
    let run = settled(&world, exact());
    let cursor = run.follower.cursor();
    world.revert(5);
    (0..9).for_each(|seed| world.mine(seed * 7));
    let anchor = world.at(18).unwrap().at;
    let mut follower =
        Follower::new(Config { anchors: vec![anchor.hash], ..exact() }, cursor).unwrap();
    let mut actions = follower.handle(Event::Tick, Duration::ZERO);
    let Some(Action::Ask(id, Question::Header(hash))) = actions.pop() else { panic!() };
    assert_eq!(hash, anchor.hash);
    let header = &world.at(18).unwrap().header;
    let actions = follower.handle(Event::Answer(id, Answer::Header(Some(header))), Duration::ZERO);
    let found = run.reader.last.map(|_| ()).and(Some(anchor));
    let Some(Action::End(Err(Fault::OtherThanAnchor { anchor, of, .. }))) = actions.last() else {
        panic!("{actions:?}")
    };
    assert_eq!((Some(*anchor), *of), (found, "the cursor"));
}

#[test]
fn a_filter_that_lacks_bits_ends_it() {
    let mut world = World::new();
    world.unsound = true;
    // The blooms have no bits, so only a query for everything fetches receipts.
    (0..20).for_each(|seed| world.mine(seed));
    let everything = Config { query: LogQuery::new().from_block(0), ..exact() };
    let run = settled(&world, everything);
    assert!(matches!(run.ended, Some(Err(Fault::Unsound { .. }))), "{:?}", run.ended);
}

#[test]
fn it_ends_at_the_last_block() {
    let world = grown(20);
    for confirmations in [0, 3, 5] {
        let query = exact().query.to_block(12);
        let run = settled(&world, Config { query, confirmations, ..exact() });
        assert_eq!(run.ended, Some(Ok(())));
        let last = world.at(12).unwrap().at;
        assert_eq!(run.reader.last, Some(last));
        assert_eq!(run.reader.logs, world.logs_up_to(last, 0));
    }
    let query = exact().query.from_block(9).to_block(8);
    let run = settled(&world, Config { query, ..exact() });
    assert_eq!(run.ended, Some(Err(Fault::EmptyRange { from: 9, to: 8 })));
}

#[test]
fn once_ends_at_the_head() {
    let world = grown(20);
    let mut run = Run::new(Config { once: true, ..exact() });
    for _ in 0..100 {
        run.step(&world, TRUE);
    }
    assert_eq!(run.ended, Some(Ok(())));
    assert_eq!(run.reader.logs, world.logs_up_to(world.head(), 0));
}

#[test]
fn a_node_that_lags_takes_nothing_back() {
    let mut world = grown(20);
    let mut run = settled(&world, exact());
    let ahead = world.canonical.clone();
    world.revert(5);
    for _ in 0..20 {
        run.step(&world, TRUE);
    }
    let lags = run.notes.iter().filter(|note| matches!(note, FollowNote::Lags { .. })).count();
    assert_eq!((lags, run.reader.reorgs), (1, 0), "said once");
    world.canonical = ahead;
    assert_eq!(run.reader.logs, world.logs_up_to(world.head(), 0));
}

/// With an index of the past, the logs are the same, and no branch below the index is followed.
#[test]
fn an_index_serves_the_past() {
    for (to, from) in [(30_u64, 0), (30, 7), (33, 33), (0, 0)] {
        let mut world = grown(40);
        world.elsewhere.truncate(1);
        let index = Some(Indexed { first: 0, last: world.at(to).unwrap().at });
        let query = exact().query.from_block(from);
        let anchors = vec![world.at(to / 2).unwrap().at.hash];
        let mut run = settled(&world, Config { index, query, anchors, ..exact() });
        assert_eq!(run.ended, None);
        let logs = world.logs_up_to(world.head(), from);
        assert!(logs.len() > 5);
        assert_eq!(run.reader.logs, logs);
        assert_eq!(run.anchored, [world.at(to / 2).unwrap().at]);
        assert!(run.follower.num_kept() <= KEEP + 1);
        run.kill();
        world.revert(40 - usize::try_from(to).unwrap().max(30));
        (0..9).for_each(|seed| world.mine(seed * 5));
        run.settle(&world);
        assert_eq!(run.ended, None, "above the index");
        assert_eq!(run.reader.logs, world.logs_up_to(world.head(), from));
        if to >= 30 {
            let depth = world.head().number - to + 1;
            world.revert(usize::try_from(depth).unwrap());
            (0..20).for_each(|seed| world.mine(seed));
            run.settle(&world);
            assert!(matches!(run.ended, Some(Err(Fault::TooDeep { .. }))), "{:?}", run.ended);
        }
    }
}

#[test]
fn an_index_that_does_not_fit_is_refused() {
    let world = grown(20);
    let at = |number: u64| world.at(number).unwrap().at;
    let with = |config: Config, first, last| {
        let index = Some(Indexed { first, last });
        settled(&world, Config { index, ..config }).ended
    };
    let begins = Fault::IndexBegins { first: 3, from: 0 };
    assert_eq!(with(exact(), 3, at(10)), Some(Err(begins)));
    let ours = BlockRef { hash: B256::ZERO, ..at(10) };
    let other = Fault::OtherThanIndex { ours, theirs: at(10).hash };
    assert_eq!(with(exact(), 0, ours), Some(Err(other)));
    let unsound = with(config(BloomSoundness::Unsound), 0, at(10));
    assert_eq!(unsound, Some(Err(Fault::IndexUnsound(10))));
    // The index is not used, because the range begins after it.
    let query = exact().query.from_block(15);
    assert_eq!(with(Config { query, ..exact() }, 0, at(10)), None);
}

/// An index that does not contain the last block of an earlier run is not used: only headers show
/// where the two chains part.
#[test]
fn an_index_is_not_joined_to_another_branch() {
    let mut world = grown(16);
    world.elsewhere.truncate(1);
    let mut run = settled(&world, exact());
    world.revert(4);
    (0..30).for_each(|seed| world.mine(seed * 7));
    let last = world.at(30).unwrap().at;
    run.resume(Config { index: Some(Indexed { first: 0, last }), ..exact() });
    run.settle(&world);
    assert_eq!((run.ended.clone(), run.reader.reorgs), (None, 1));
    assert_eq!(run.reader.logs, world.logs_up_to(world.head(), 0));
    // An index that contains the last block is used.
    run.resume(Config { index: Some(Indexed { first: 0, last: world.head() }), ..exact() });
    (0..9).for_each(|seed| world.mine(seed));
    run.settle(&world);
    assert_eq!(run.reader.logs, world.logs_up_to(world.head(), 0));
}

/// An update that was given out but not acknowledged when the follower stops is not in its cursor.
#[test]
fn a_stop_leaves_the_update_that_is_out() {
    let mut follower = Follower::new(Config { stored: false, ..exact() }, None).unwrap();
    let mut actions = follower.handle(Event::Tick, Duration::ZERO);
    let Some(Action::Update(..)) = actions.pop() else { panic!("the start is out") };
    let ended = follower.handle(Event::Stop, Duration::ZERO);
    assert_eq!(ended, [Action::End(Ok(()))]);
    assert_eq!(follower.cursor().unwrap().last(), None);
    assert!(follower.handle(Event::Tick, Duration::ZERO).is_empty(), "nothing comes after the end");
}

/// Receipts that never arrive end the follower, after a try with each method.
#[test]
fn receipts_that_never_come_end_it() {
    let mut world = grown(20);
    world.withhold(20);
    let mut run = Run::new(Config { tries: 4, ..exact() });
    for _ in 0..200 {
        run.step(&world, TRUE);
    }
    let Some(Err(Fault::NoReceipts { at, tries: 4, .. })) = run.ended else {
        panic!("{:?}", run.ended)
    };
    assert!(world.withheld.contains(&at.hash));
}

#[test]
fn wrong_answers_in_a_row_end_it() {
    let mut world = grown(20);
    let mut run = settled(&world, Config { tries: 3, ..exact() });
    // The headers of the other branch are unavailable.
    world.revert(3);
    world.mine_all(&[0; 5]);
    for _ in 0..200 {
        run.step(&world, 2);
    }
    assert!(matches!(run.ended, Some(Err(Fault::GaveUp { tries: 3, .. }))), "{:?}", run.ended);

    // The waits after failed connections become longer. With `once`, the follower gives up.
    for once in [false, true] {
        let mut follower = Follower::new(Config { tries: 5, once, ..exact() }, None).unwrap();
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        let mut actions = follower.handle(Event::Tick, now);
        let mut answer = 0;
        while answer < 12 {
            let Some(action) = actions.pop() else {
                now = follower.wake_at().unwrap();
                actions = follower.handle(Event::Tick, now);
                continue;
            };
            match action {
                Action::Ask(id, _) => {
                    answer += 1;
                    let failure = Failure::of_connection("no route");
                    let event = Event::Answer(id, Answer::Failed(failure));
                    actions.extend(follower.handle(event, now));
                }
                Action::Store(id, _) => actions.extend(follower.handle(Event::Stored(id), now)),
                Action::Update(id, _) => {
                    actions.extend(follower.handle(Event::Acknowledged(id), now));
                }
                Action::Note(FollowNote::Failed { wait, .. }) => waits.push(wait.as_secs()),
                Action::End(ended) => {
                    assert!(once && matches!(ended, Err(Fault::GaveUp { tries: 5, .. })));
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        let expected: &[u64] = if once { &[2, 4, 8, 16] } else { &[2, 4, 8, 16, 32, 60, 60] };
        assert_eq!(&waits[..expected.len()], expected);
    }
}

/// A log that several queries select is given once, and the configuration tells which queries
/// select it.
#[test]
fn several_queries_are_answered_in_one_pass() {
    let world = grown(20);
    let query = LogQuery::new().from_block(0).address(NOBODY);
    let more_queries = vec![exact().query.from_block(15), exact().query];
    let config = Config { query, more_queries, ..exact() };
    let both = settled(&world, config.clone());
    assert!(!both.reader.logs.is_empty());
    assert_eq!(both.reader.logs, settled(&world, exact()).reader.logs);
    let log = |address: Address| LocatedLog {
        log: Log::new_unchecked(address, Vec::new(), Bytes::new()),
        block_number: 1,
        block_hash: B256::ZERO,
        block_timestamp: None,
        transaction_hash: None,
        claimed_transaction_hash: None,
        transaction_index: 0,
        log_index: 0,
        removed: false,
    };
    assert_eq!(config.queries_of(&log(ASKED)).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(config.queries_of(&log(NOBODY)).collect::<Vec<_>>(), [0]);
    let left = both.follower.cursor().unwrap();
    let again = Cursor::from_json(&left.to_json()).unwrap();
    assert!(Follower::new(config.clone(), Some(again)).is_ok());
    let fewer = Config { more_queries: vec![exact().query], ..config };
    assert!(matches!(Follower::new(fewer, Some(left)), Err(StartError::OtherQuery(_))));
}

#[test]
fn a_cursor_is_of_one_query_from_one_block() {
    let world = grown(5);
    let cursor = || settled(&world, exact()).follower.cursor();
    let start = |config| Follower::new(config, cursor()).map(|_| ());
    assert_eq!(start(exact()), Ok(()));
    let other = Config { chain_id: 5, ..exact() };
    assert_eq!(start(other), Err(StartError::OtherChain { cursor: 1, chain: 5 }));
    let other = Config { query: LogQuery::new().from_block(0), ..exact() };
    assert!(matches!(start(other), Err(StartError::OtherQuery(_))));
    let other = Config { semantics: Semantics::Alloy, ..exact() };
    assert_eq!(start(other), Err(StartError::OtherSemantics(Semantics::Geth)));
    let other = Config { query: exact().query.from_block(3), ..exact() };
    assert_eq!(start(other), Err(StartError::OtherStart { cursor: 0, from: 3 }));
    let other = Config { more_queries: vec![LogQuery::new()], ..exact() };
    assert!(matches!(start(other), Err(StartError::OtherQuery(_))));
    // A tag keeps the block that it named at the first start.
    let query = LogQuery::new().address(ASKED).from_block(BlockTag::Finalized);
    assert_eq!(start(Config { query, ..exact() }), Ok(()));
    let query = exact().query.at_hash(B256::ZERO);
    assert_eq!(start(Config { query, ..exact() }), Err(StartError::OneBlock(B256::ZERO)));
    let query = exact().query.to_block(BlockTag::Safe);
    assert_eq!(start(Config { query, ..exact() }), Err(StartError::End(BlockTag::Safe)));
}

/// A cursor whose text is cut off or changed is rejected or read, and nothing panics.
#[test]
fn a_cursor_that_is_damaged_is_refused() {
    let world = grown(14);
    let text = settled(&world, exact()).follower.cursor().unwrap().to_json();
    assert_eq!(Cursor::from_json(&text).unwrap().to_json(), text);
    for end in 0..text.len() {
        assert!(matches!(Cursor::from_json(&text[..end]), Err(StartError::Json(_))), "{end}");
    }
    for other in [0, 3] {
        let text = text.replacen("\"version\":2", &format!("\"version\":{other}"), 1);
        assert_eq!(Cursor::from_json(&text), Err(StartError::Version(other)));
    }
    for at in (0..text.len()).step_by(3) {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = bytes[at].wrapping_add(1) & 0x7f;
        if let Ok(cursor) = Cursor::from_json(core::str::from_utf8(&bytes).unwrap()) {
            let follower = Follower::new(exact(), Some(cursor));
            drop(follower.map(|mut follower| follower.handle(Event::Tick, Duration::ZERO)));
        }
    }
}

/// A wait continues if the clock is set back, and ends after the same time.
#[test]
fn a_clock_that_is_set_back_delays_nothing() {
    let [first, hour] = [10_000, 3_600].map(Duration::from_secs);
    let run = |back: Duration| {
        let mut follower = Follower::new(exact(), None).unwrap();
        let mut actions = follower.handle(Event::Tick, first);
        let id = loop {
            let event = match actions.pop().expect("a question") {
                Action::Store(id, _) => Event::Stored(id),
                Action::Update(id, _) => Event::Acknowledged(id),
                Action::Ask(id, _) => break id,
                other => panic!("{other:?}"),
            };
            actions.extend(follower.handle(event, first));
        };
        let failed = Event::Answer(id, Answer::Failed(Failure::of_connection("no route")));
        let _note = follower.handle(failed, first);
        let mut wakes = Vec::new();
        let asked = (0..60).find(|seconds| {
            let now = (first + Duration::from_secs(*seconds)).saturating_sub(back);
            let actions = follower.handle(Event::Tick, now);
            wakes.extend(follower.wake_at().map(|at| at + back));
            !actions.is_empty()
        });
        (asked.expect("the next question"), wakes)
    };
    let steady = run(Duration::ZERO);
    assert!(steady.0 >= 2 && !steady.1.is_empty(), "{steady:?}");
    assert_eq!(run(hour), steady);
}
