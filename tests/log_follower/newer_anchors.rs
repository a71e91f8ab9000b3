//! Anchors that arrive while the follower runs.

use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::BloomSoundness;
use chainsieve::eth::follow::{AnswerError, Config, Fault, FollowNote, Question};
use chainsieve::eth::header::BlockRef;
use proptest::prelude::*;

use super::run::{KEEP, Run, TRUE, config, settled};
use testkit::eth::world::World;

/// A limit that lost answers during reorganisations do not reach.
const TRIES: u32 = 20;

fn with_tries(tries: u32) -> Config {
    Config { tries, ..config(BloomSoundness::Exact) }
}

/// Returns a world of 20 blocks after block 0, in which no block is final.
fn world() -> World {
    let mut world = World::new();
    (0..20).for_each(|seed| world.mine(seed));
    world.elsewhere.truncate(1);
    world
}

fn at(world: &World, number: u64) -> BlockRef {
    world.at(number).unwrap().at
}

fn steps(run: &mut Run, world: &World, count: usize) {
    (0..count).for_each(|_| run.step(world, TRUE));
}

/// Removes the newest blocks from the node's chain, so that it lags. Returns their hashes.
fn lag(world: &mut World, last: u64) -> Vec<B256> {
    world.canonical.split_off(usize::try_from(last).unwrap() + 1)
}

/// Returns the numbers of the blocks that the notes call missing.
fn missing(run: &Run) -> usize {
    let is_missing = |note: &&FollowNote| match note {
        FollowNote::Failed { question, error, .. } => {
            matches!((question, error), (Question::Header(_), AnswerError::Missing))
        }
        _ => false,
    };
    run.notes.iter().filter(is_missing).count()
}

#[test]
fn a_known_block_is_held_at_once() {
    let mut world = world();
    let mut run = settled(&world, with_tries(TRIES));
    steps(&mut run, &world, 10);
    let mut expected = Vec::new();
    for number in [12, 20] {
        // Nothing is asked, and no wait has to end first.
        while run.is_asking() {
            run.step(&world, TRUE);
        }
        run.anchor(at(&world, number).hash);
        expected.push(at(&world, number));
        assert_eq!((&run.anchored, run.is_asking()), (&expected, false));
        // A repeated or an older anchor changes nothing.
        run.anchor(at(&world, number).hash);
        run.anchor(at(&world, number - 1).hash);
        assert_eq!((&run.anchored, run.is_asking()), (&expected, false));
    }
    // The cursor contains the anchor: a later process without anchors follows no other branch.
    run.pass(Duration::from_secs(10));
    world.mine(0);
    run.settle(&world);
    run.kill();
    world.revert(5);
    world.mine_all(&[1; 9]);
    steps(&mut run, &world, 50);
    assert_eq!(run.ended, Some(Err(Fault::BeforeAnchor(expected[1]))));
}

/// The cursor is stored although no block follows the anchor.
#[test]
fn a_held_anchor_is_stored_without_new_blocks() {
    let mut world = world();
    let mut run = settled(&world, with_tries(TRIES));
    let anchor = at(&world, 20);
    run.pass(Duration::from_secs(10));
    run.anchor(anchor.hash);
    steps(&mut run, &world, 10);
    assert_eq!(run.anchored, [anchor]);
    run.kill();
    world.revert(1);
    world.mine_all(&[1; 9]);
    steps(&mut run, &world, 50);
    assert_eq!(run.ended, Some(Err(Fault::BeforeAnchor(anchor))));
}

/// A node that lags for hours does not end the follower, and is reported once.
#[test]
fn a_node_that_does_not_have_it_yet_is_asked_again() {
    for is_early in [false, true] {
        let mut world = world();
        let anchor = at(&world, 18);
        let hidden = lag(&mut world, 15);
        let mut run = Run::new(with_tries(1));
        if !is_early {
            run.settle(&world);
        }
        run.anchor(anchor.hash);
        for _ in 0..200 {
            run.pass(Duration::from_secs(60));
            run.step(&world, TRUE);
        }
        assert_eq!((&run.ended, run.anchored.len(), missing(&run)), (&None, 0, 1));
        world.canonical.extend(hidden);
        run.settle(&world);
        assert_eq!((run.ended, run.anchored), (None, vec![anchor]));
        assert_eq!(run.reader.logs, world.logs_up_to(world.head(), 0));
    }
}

/// Of several anchors that the node does not have, the first and the newest one are pending. So a
/// node that always lags reaches an anchor, too.
#[test]
fn the_first_and_the_newest_one_are_pending() {
    let mut world = world();
    let anchors = [16, 17, 18, 19].map(|number| at(&world, number));
    let hidden = lag(&mut world, 14);
    let mut run = settled(&world, with_tries(1));
    for anchor in anchors {
        run.anchor(anchor.hash);
        steps(&mut run, &world, 10);
    }
    for hash in hidden {
        world.canonical.push(hash);
        run.settle(&world);
    }
    steps(&mut run, &world, 10);
    assert_eq!(run.anchored, [anchors[0], anchors[3]]);
}

/// The node's claim of finality drops blocks, but a light client may name one of them later.
#[test]
fn a_dropped_block_is_compared() {
    let mut world = world();
    world.synchronise();
    let mut run = settled(&world, with_tries(TRIES));
    world.mine(1);
    run.settle(&world);
    assert!(run.follower.num_kept() < KEEP);
    let anchor = at(&world, 6);
    run.anchor(anchor.hash);
    steps(&mut run, &world, 5);
    assert_eq!((run.anchored.as_slice(), run.notes.len()), (&[anchor][..], 0));

    // Another process does not know the block any more.
    let anchor = at(&world, 7);
    run.kill();
    run.settle(&world);
    run.anchor(anchor.hash);
    steps(&mut run, &world, 20);
    assert_eq!(run.notes, [FollowNote::AnchorNotCompared(anchor)]);
    assert_eq!((run.ended, run.anchored.len()), (None, 1));
}

/// The chain has another block at the anchor's number, and the node then reorganises.
#[test]
fn a_node_that_leaves_the_other_branch_is_followed() {
    for remembers in [false, true] {
        let mut world = world();
        let right = world.canonical.clone();
        world.revert(6);
        world.mine_all(&[9; 8]);
        let mut run = settled(&world, with_tries(8));
        run.remembers = remembers;
        run.anchor(right[18]);
        let (stray, last) = (world.head(), run.reader.last);
        for _ in 0..4 {
            steps(&mut run, &world, 4);
            world.mine(2);
        }
        if remembers {
            // The other branch is known to be wrong, so nothing more of it is given out.
            assert_eq!(run.reader.last, last);
        }
        assert_eq!((&run.ended, run.anchored.len()), (&None, 0));
        world.canonical = right;
        while world.head().number <= stray.number + 6 {
            world.mine(3);
        }
        run.settle(&world);
        steps(&mut run, &world, 10);
        assert_eq!((run.ended, run.anchored), (None, vec![at(&world, 18)]));
        assert_eq!(run.reader.logs, world.logs_up_to(world.head(), 0));
    }
}

#[test]
fn a_node_that_stays_on_the_other_branch_ends_it() {
    let mut world = world();
    let anchor = at(&world, 18);
    world.revert(6);
    world.mine_all(&[9; 8]);
    let mut run = settled(&world, with_tries(5));
    let last = run.reader.last;
    run.remembers = true;
    run.anchor(anchor.hash);
    for _ in 0..60 {
        world.mine(2);
        run.step(&world, TRUE);
    }
    let found = at(&world, 18).hash;
    let other = Fault::OtherThanAnchor { anchor, found, of: "the provider" };
    assert_eq!((run.ended, run.reader.last), (Some(Err(other)), last));
    let refused = |note: &&FollowNote| match note {
        FollowNote::Failed { error, .. } => {
            *error == AnswerError::OtherThanAnchor { anchor, found }
        }
        _ => false,
    };
    assert_eq!(run.notes.iter().filter(refused).count(), 4);
}

/// The follower learns the anchor's number before the chain is that long. Then the node's chain
/// grows with another block there.
#[test]
fn a_branch_without_the_next_anchor_is_not_linked() {
    for leaves in [false, true] {
        let mut world = world();
        let right = world.canonical.clone();
        let anchor = at(&world, 18);
        world.revert(6);
        let mut run = settled(&world, with_tries(6));
        run.remembers = true;
        run.anchor(anchor.hash);
        steps(&mut run, &world, 5);
        assert_eq!(missing(&run), 0);
        for _ in 0..8 {
            world.mine(9);
            steps(&mut run, &world, 2);
        }
        assert!(run.reader.last.unwrap().number < 18);
        if leaves {
            world.canonical = right;
            world.mine_all(&[3; 9]);
            run.settle(&world);
            assert_eq!((run.ended, run.anchored), (None, vec![anchor]));
        } else {
            steps(&mut run, &world, 50);
            let found = at(&world, 18).hash;
            let other = Fault::OtherThanAnchor { anchor, found, of: "the provider" };
            assert_eq!((run.ended, run.anchored), (Some(Err(other)), Vec::new()));
            assert!(run.reader.last.unwrap().number < 18);
        }
    }
}

/// The chain is linked up to an anchor after the last block, but no further anchor delays the end.
#[test]
fn a_range_ends_at_the_first_anchor_after_it() {
    let mut world = world();
    let anchors = [15, 19].map(|number| at(&world, number));
    let hidden = lag(&mut world, 8);
    let query = with_tries(TRIES).query.to_block(12);
    let mut run = Run::new(Config { query, ..with_tries(TRIES) });
    run.remembers = true;
    steps(&mut run, &world, 10);
    for anchor in anchors {
        run.anchor(anchor.hash);
        steps(&mut run, &world, 5);
    }
    for hash in hidden.into_iter().take(7) {
        assert_eq!(run.ended, None);
        world.canonical.push(hash);
        steps(&mut run, &world, 12);
    }
    assert_eq!((run.ended, run.anchored), (Some(Ok(())), vec![anchors[0]]));
    assert_eq!(run.reader.last, Some(at(&world, 12)));
}

#[test]
fn an_anchor_does_not_shorten_the_wait_after_a_failure() {
    let world = world();
    let mut run = settled(&world, with_tries(TRIES));
    for _ in 0..40 {
        run.step(&world, 6);
    }
    while run.is_asking() {
        run.step(&world, 6);
    }
    let wake = run.follower.wake_at();
    assert!(wake.is_some());
    run.anchor(at(&world, 20).hash);
    assert_eq!((run.anchored.len(), run.is_asking()), (1, false));
    run.anchor(B256::repeat_byte(1));
    assert_eq!((run.is_asking(), run.follower.wake_at()), (false, wake));
}

#[derive(Debug, Clone)]
enum Op {
    Mine(Vec<u8>),
    Reorg(usize, Vec<u8>),
    Steps(Vec<u8>),
    /// Trusts a block of the node's chain, this many blocks before its head.
    Trust(usize),
    /// Trusts the last of these new blocks, of which the node has only this many so far.
    TrustAhead(Vec<u8>, usize),
    Kill,
}

fn op() -> impl Strategy<Value = Op> {
    let seeds = |most| prop::collection::vec(any::<u8>(), 1..most);
    // The node lags, or the connection fails.
    let odds = prop_oneof![4 => Just(TRUE), 1 => Just(10), 1 => Just(15), 1 => Just(6)];
    prop_oneof![
        4 => seeds(6).prop_map(Op::Mine),
        4 => (1..8_usize, seeds(8)).prop_map(|(depth, seeds)| Op::Reorg(depth, seeds)),
        8 => prop::collection::vec(odds, 1..30).prop_map(Op::Steps),
        3 => (0..14_usize).prop_map(Op::Trust),
        2 => (seeds(6), 0..3_usize).prop_map(|(seeds, most)| Op::TrustAhead(seeds, most)),
        1 => Just(Op::Kill),
    ]
}

/// An honest node, which may lag behind what is trusted.
struct Honest {
    world: World,
    /// Blocks that the node does not have yet.
    hidden: Vec<B256>,
    trusted: Vec<B256>,
    /// Length of the chain that never changes.
    settled: usize,
    /// Length of the longest chain so far.
    longest: usize,
}

impl Honest {
    fn trust(&mut self, run: &mut Run, index: usize, hash: B256) {
        self.settled = self.settled.max(index + 1);
        self.trusted.push(hash);
        run.anchor(hash);
    }

    fn mine(&mut self, seeds: &[u8]) {
        for &seed in seeds {
            if self.hidden.is_empty() {
                self.world.mine(seed);
            } else {
                self.world.canonical.push(self.hidden.remove(0));
            }
        }
        self.longest = self.longest.max(self.world.canonical.len());
    }

    fn apply(&mut self, op: &Op, run: &mut Run) {
        match op {
            Op::Mine(seeds) => self.mine(seeds),
            Op::Reorg(depth, seeds) if self.hidden.is_empty() => {
                // Neither a trusted block nor a block that the follower has dropped leaves.
                let least = self.settled.max((self.longest + 1).saturating_sub(KEEP));
                let kept = self.world.canonical.len().saturating_sub(*depth).max(least);
                self.world.canonical.truncate(kept);
                self.mine(seeds);
            }
            Op::Trust(back) => {
                let index = self.world.canonical.len().saturating_sub(back + 1);
                let hash = self.world.canonical[index];
                self.trust(run, index, hash);
            }
            Op::TrustAhead(seeds, most) if self.hidden.is_empty() => {
                let length = self.world.canonical.len();
                self.mine(seeds);
                let index = self.world.canonical.len() - 1;
                let hash = self.world.canonical[index];
                let kept = (length + most).min(index);
                self.hidden = self.world.canonical.split_off(kept.max(1));
                self.trust(run, index, hash);
            }
            Op::Steps(odds) => odds.iter().for_each(|&odd| run.step(&self.world, odd)),
            Op::Kill => {
                // The next process starts with the anchor that this one found, if the node has it.
                let has = |anchor: &&BlockRef| self.world.canonical.contains(&anchor.hash);
                let anchor = run.anchored.last().filter(has).map(|anchor| anchor.hash);
                let anchors = anchor.into_iter().collect();
                run.resume(Config { anchors, ..with_tries(TRIES) });
                if let Some(&newest) = self.trusted.last() {
                    run.anchor(newest);
                }
            }
            Op::Reorg(..) | Op::TrustAhead(..) => {}
        }
    }
}

/// An operation with a node that may lie, forget, or be replaced by a node on another branch.
#[derive(Debug, Clone)]
enum Lie {
    Honest(Op),
    Synchronise,
    FailOver,
    /// Trusts a block of the other node's chain.
    TrustElsewhere(usize),
    Remember(bool),
}

fn lie() -> impl Strategy<Value = Lie> {
    let odds = prop_oneof![2 => Just(TRUE), 1 => 0..20_u8];
    prop_oneof![
        6 => op().prop_map(Lie::Honest),
        4 => prop::collection::vec(odds, 1..20).prop_map(|odds| Lie::Honest(Op::Steps(odds))),
        1 => Just(Lie::Synchronise),
        2 => Just(Lie::FailOver),
        3 => (0..10_usize).prop_map(Lie::TrustElsewhere),
        2 => any::<bool>().prop_map(Lie::Remember),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    /// An honest node never leads to a fault, whenever the anchors arrive, and the newest anchor is
    /// found in the end.
    #[test]
    fn an_honest_node_never_ends_it(
        ops in prop::collection::vec(op(), 1..50),
        remembers in any::<bool>(),
    ) {
        let mut world = World::new();
        world.elsewhere.truncate(1);
        let mut run = Run::new(with_tries(TRIES));
        run.remembers = remembers;
        let mut node = Honest { world, hidden: Vec::new(), trusted: Vec::new(), settled: 1, longest: 1 };
        for op in &ops {
            node.apply(op, &mut run);
            prop_assert_eq!(&run.ended, &None);
            for anchor in &run.anchored {
                let is_on_chain = node.world.canonical.iter().chain(&node.hidden);
                prop_assert!(is_on_chain.clone().any(|hash| *hash == anchor.hash));
                prop_assert!(node.trusted.contains(&anchor.hash));
            }
        }
        let hidden = std::mem::take(&mut node.hidden);
        node.world.canonical.extend(hidden);
        node.world.outgrow(0);
        run.settle(&node.world);
        let last = node.world.head();
        run.anchor(node.world.canonical[node.world.canonical.len() - 3]);
        steps(&mut run, &node.world, 30);
        prop_assert_eq!(&run.ended, &None);
        prop_assert_eq!(run.anchored.last().copied(), Some(at(&node.world, last.number - 2)));
        prop_assert_eq!(&run.reader.logs, &node.world.logs_up_to(last, 0));
    }

    /// Whatever the node does, a reported anchor stays on the chain, and a fault names a trusted
    /// block that the node's chain did not have.
    #[test]
    fn a_reported_anchor_stays(lies in prop::collection::vec(lie(), 1..50)) {
        let mut world = World::new();
        world.elsewhere.truncate(1);
        let mut run = Run::new(with_tries(4));
        let mut node = Honest { world, hidden: Vec::new(), trusted: Vec::new(), settled: 1, longest: 1 };
        for lie in &lies {
            match lie {
                Lie::Honest(Op::Kill) => {}
                Lie::Honest(Op::Reorg(depth, seeds)) => {
                    node.world.revert(*depth);
                    node.mine(seeds);
                }
                Lie::Honest(op) => node.apply(op, &mut run),
                Lie::Synchronise => node.world.synchronise(),
                Lie::FailOver => node.world.fail_over(),
                Lie::TrustElsewhere(back) => {
                    let index = node.world.elsewhere.len().saturating_sub(back + 1);
                    let hash = node.world.elsewhere[index];
                    node.trust(&mut run, index, hash);
                }
                Lie::Remember(remembers) => run.remembers = *remembers,
            }
            if run.ended.is_some() {
                break;
            }
        }
        steps(&mut run, &node.world, 60);
        let trusted = |anchor: &BlockRef| node.trusted.contains(&anchor.hash);
        prop_assert!(run.anchored.iter().all(trusted));
        // The anchors are ancestors of what was given out last.
        if let Some(mut block) = run.reader.last {
            let mut anchors = run.anchored.clone();
            anchors.retain(|anchor| anchor.number <= block.number);
            while let Some(anchor) = anchors.pop() {
                while block.number > anchor.number {
                    let number = block.number - 1;
                    block = BlockRef { number, hash: node.world.blocks[&block.hash].parent };
                }
                prop_assert_eq!(block, anchor);
            }
        }
        match &run.ended {
            None | Some(Err(Fault::TooDeep { .. } | Fault::GaveUp { .. } | Fault::NoReceipts { .. })) => {}
            Some(Err(Fault::BeforeAnchor(anchor))) => prop_assert!(trusted(anchor)),
            Some(Err(Fault::OtherThanAnchor { anchor, found, of: "the provider" })) => {
                prop_assert!(trusted(anchor) && *found != anchor.hash);
            }
            Some(ended) => prop_assert!(false, "{:?}", ended),
        }
    }
}
