//! Random schedules of honest peers and liars that come and go, of reorganisations, proofs and restarts.
//!
//! Every schedule must keep these laws:
//! - No honest peer is blamed, and what it has claimed stays its claim.
//! - A grade counts only parties that have claimed the accepted filter of the block, each of them once. A filter
//!   that was audited, or that a trusted header commits to, is the true one.
//! - An answer by a filter has a grade until it is withdrawn.
//! - At the end an honest peer answers everything: then every height is answered, nothing is disputed or
//!   withdrawn, the hits are those of the chain, and nothing more is requested or reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bitcoin::bip158::FilterHash;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::{BlockHash, ScriptBuf};
use core::time::Duration;
use testkit::Rng;

use super::super::interval::HeightAnswer;
use super::world::{Known, Node, TestChain, World, blocks_of, refute};
use crate::btc::bip157::{Action, Event, FilterSync, VerifiedFilter};
use crate::btc::bip158::{BlockFilter, filter_hash};
use crate::btc::peer::{Grade, PeerId};

/// A false filter of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// It lacks the scripts of spent outputs, which the block does not contain.
    WithoutPrevouts,
    /// It has other scripts of spent outputs.
    OtherPrevouts,
    /// It has a script that the block does not have, and matches what the true filter matches.
    OneMore,
    Malformed,
}

impl Lie {
    /// Returns the false filter of a block. Only lies about spent outputs depend on the block's spending any.
    fn filter(self, chain: &TestChain, height: u32) -> Vec<u8> {
        let mut block = chain.blocks[height as usize].clone();
        let prevouts = |script: ScriptBuf| vec![script; block.txdata.len() - 1];
        match self {
            Self::WithoutPrevouts if block.txdata.len() > 1 => chain.without_prevouts(height),
            Self::OtherPrevouts if block.txdata.len() > 1 => {
                let other = prevouts(ScriptBuf::from(vec![9; 22]));
                BlockFilter::from_prevout_scripts(&block, &other).unwrap().content
            }
            Self::OneMore => {
                let nothing = prevouts(ScriptBuf::new());
                let mut more = block.txdata[0].output[0].clone();
                more.script_pubkey = ScriptBuf::from(vec![1, 2, 3]);
                block.txdata[0].output.push(more);
                BlockFilter::from_prevout_scripts(&block, &nothing).unwrap().content
            }
            _ => vec![0; 2],
        }
    }

    /// Draws lies about up to four of the blocks above `base`, most of them such as the block does not refute.
    fn draw(base: u32, rng: &mut Rng) -> BTreeMap<u32, Self> {
        let lies = (0..rng.below(5)).map(|_| {
            let height = base + u32::try_from(10 * rng.below(6)).unwrap();
            match rng.below(6) {
                0 => (height + 5, Self::Malformed),
                1 => (height + 7, Self::OneMore),
                2 | 3 => (height + [3, 7][rng.below(2)], Self::OtherPrevouts),
                _ => (height + 7, Self::WithoutPrevouts),
            }
        });
        lies.filter(|(height, _)| (base + 4..base + 57).contains(height)).collect()
    }
}

/// Somebody who may connect again and again.
struct Party {
    is_honest: bool,
    lies: BTreeMap<u32, Lie>,
    /// All that it has claimed or could have.
    claims: BTreeSet<(BlockHash, FilterHash)>,
}

struct Connection {
    party: usize,
    /// The node of each chain since it connected, which answers what it was asked then.
    nodes: Vec<Node>,
    answers: VecDeque<Event>,
}

struct Schedule<'a> {
    rng: Rng,
    world: World,
    /// The height above which the schedule happens.
    base: u32,
    chains: &'a [TestChain],
    /// Index of the present chain.
    at: usize,
    parties: Vec<Party>,
    open: BTreeMap<PeerId, Connection>,
    next: u64,
    /// Number of actions that were checked.
    seen: usize,
    /// `true` if liars answer nothing any more.
    are_liars_silent: bool,
}

impl<'a> Schedule<'a> {
    fn new(seed: u64, base: u32, chains: &'a [TestChain]) -> Self {
        let mut rng = Rng::new(seed);
        let mut config = World::config();
        config.first = base + [0, 0, 15, 30, 46][rng.below(5)];
        config.spot_audits = [0, 0, 1, 4][rng.below(4)];
        config.limits.peers = [1, 2, 4, 6][rng.below(4)];
        config.limits.inspections = [1, 2, 8, 128][rng.below(4)];
        config.limits.intervals = [1, 4][rng.below(2)];
        config.limits.kept_bytes = [0, 64 << 20][rng.below(2)];
        config.limits.disputes = [1, 3, 16][rng.below(3)];
        config.seed = rng.array();
        let most = [5, 12][rng.below(2)];
        let drawn = (0..=rng.below(most)).map(|_| Lie::draw(base, &mut rng));
        let lies: Vec<_> = [BTreeMap::new()].into_iter().chain(drawn).collect();
        let party = |lies: BTreeMap<_, _>| Party {
            is_honest: lies.is_empty(),
            lies,
            claims: BTreeSet::new(),
        };
        let parties = lies.into_iter().map(party).collect();
        // No reorganisation reaches down to this height.
        if base > 0 && rng.one_in(2) {
            assert!(config.trust(1_000, chains[0].headers()[1_000]));
        }
        let world = World::new(&chains[0], config);
        Self {
            rng,
            world,
            base,
            chains,
            at: 0,
            parties,
            open: BTreeMap::new(),
            next: 1,
            seen: 0,
            are_liars_silent: false,
        }
    }

    fn chain(&self) -> &'a TestChain {
        &self.chains[self.at]
    }

    /// Returns the node of a party on the present chain.
    fn node(&mut self, party: usize) -> Node {
        let chain = self.chain();
        let party = &mut self.parties[party];
        let lies = party.lies.iter().map(|(&height, lie)| (height, lie.filter(chain, height)));
        let node = Node::lying(chain, &lies.collect::<Vec<_>>());
        let claims = node.chain.blocks.iter().zip(&node.chain.filters);
        party
            .claims
            .extend(claims.map(|(block, filter)| (block.block_hash(), filter_hash(filter))));
        node
    }

    fn event(&mut self, event: Event) {
        self.world.event(event);
        self.check();
    }

    fn check(&mut self) {
        let new = self.world.actions.split_off(self.seen);
        for action in &new {
            let Action::Disconnect(peer, reason) = action else { continue };
            let party = &self.parties[self.open.remove(peer).unwrap().party];
            assert!(!party.is_honest || !reason.is_misbehaviour(), "blamed: {peer}, {reason:?}");
        }
        self.world.actions.extend(new);
        self.seen = self.world.actions.len();
        for height in self.base + 1..=self.world.headers.tip().height {
            let hashes =
                self.world.headers.hash_at(height).zip(self.world.sync.filter_hash(height));
            let Some(claim) = hashes else { continue };
            let claimed = self.parties.iter().filter(|party| party.claims.contains(&claim)).count();
            let truth = filter_hash(&self.chain().filters[height as usize]);
            let is_lost = self.world.sync.claims.at(height).is_none_or(|at| at.lost_claims);
            let honest = self.open.iter().filter(|(_, it)| self.parties[it.party].is_honest);
            for (id, _) in honest.filter(|_| !is_lost) {
                let claimed = self.world.sync.claims.claim(*id, height);
                assert!(claimed.is_none_or(|it| it == truth), "{height}: a lie of {id}");
            }
            for grade in [self.world.grade(height), self.world.sync.filter_grade(height)] {
                let counted = match grade {
                    Some(Grade::OnePeer) => 1,
                    Some(Grade::Peers(peers)) => peers,
                    _ => 0,
                };
                assert!(counted as usize <= claimed, "{height}: {counted} of {claimed}");
            }
            let answered = self.world.sync.claims.at(height).map(|at| at.answer);
            if let Some(Known::Filter(filter)) = self.world.known.get(&height)
                && answered == Some(HeightAnswer::Filter)
                && !self.world.reopened.contains(&height)
            {
                let grade = self.world.grade(height);
                assert!(grade.is_some(), "{height}: withdrawn in silence");
                if [filter.grade, grade.unwrap()]
                    .iter()
                    .any(|it| matches!(it, Grade::Audited | Grade::Checkpoint))
                {
                    assert_eq!(filter.filter.content, self.chain().filters[height as usize]);
                }
            }
        }
    }

    fn connect(&mut self, party: usize, is_lower: bool) {
        let id = PeerId(self.next);
        self.next += 1;
        let node = self.node(party);
        self.world.nodes.insert(id, node.clone());
        let connection = Connection { party, nodes: vec![node], answers: VecDeque::new() };
        self.open.insert(id, connection);
        self.event(Event::PeerConnected(id));
        if self.open.contains_key(&id) {
            self.show_tip(id, is_lower);
        }
    }

    fn show_tip(&mut self, id: PeerId, is_lower: bool) {
        let tip = self.chain().tip();
        let lower = if is_lower { self.rng.below(30) } else { 0 };
        let shown = self.chain().hash(tip - u32::try_from(lower).unwrap());
        self.event(Event::PeerTip(id, shown));
    }

    fn leave(&mut self, id: PeerId) {
        self.open.remove(&id);
        self.world.nodes.remove(&id);
        self.event(Event::PeerDisconnected(id));
    }

    /// Draws a connection.
    fn draw_open(&mut self) -> Option<PeerId> {
        let which = self.rng.below(self.open.len().max(1));
        self.open.keys().nth(which).copied()
    }

    /// Lets a peer answer its oldest message. `lacks_blocks` is `true` if it has no block now.
    fn answer(&mut self, id: PeerId, lacks_blocks: bool) {
        let place = self.world.queue.iter().position(|(peer, _)| *peer == id);
        let Some((_, message)) = place.and_then(|place| self.world.queue.remove(place)) else {
            return;
        };
        let Some(connection) = self.open.get_mut(&id) else { return };
        if self.are_liars_silent && !self.parties[connection.party].is_honest {
            return;
        }
        let knows = |node: &&Node| {
            let has = |hash| node.chain.blocks.iter().any(|block| block.block_hash() == hash);
            match &message {
                NetworkMessage::GetCFCheckpt(message) => has(message.stop_hash),
                NetworkMessage::GetCFHeaders(message) => has(message.stop_hash),
                NetworkMessage::GetCFilters(message) => has(message.stop_hash),
                NetworkMessage::GetData(items) => blocks_of(items).into_iter().all(has),
                other => panic!("a filter sync sends no {other:?}"),
            }
        };
        let Some(node) = connection.nodes.iter().rev().find(knows) else { return };
        let answers = node.answer(id, &message).into_iter().map(|event| match event {
            Event::Block(_, block) if lacks_blocks => {
                Event::BlockUnavailable(id, block.block_hash())
            }
            other => other,
        });
        connection.answers.extend(answers);
    }

    fn deliver(&mut self, id: PeerId, count: usize) {
        for _ in 0..count {
            let answers = self.open.get_mut(&id).map(|connection| &mut connection.answers);
            let Some(event) = answers.and_then(VecDeque::pop_front) else { return };
            self.event(event);
        }
    }

    fn reorganize(&mut self) {
        if self.at + 1 == self.chains.len() {
            return;
        }
        self.at += 1;
        let ids: Vec<_> = self.open.keys().copied().collect();
        for &id in &ids {
            let party = self.open[&id].party;
            if !self.parties[party].is_honest && self.rng.one_in(3) {
                self.parties[party].lies = Lie::draw(self.base, &mut self.rng);
            }
            let node = self.node(party);
            self.world.nodes.insert(id, node.clone());
            self.open.get_mut(&id).unwrap().nodes.push(node);
        }
        self.world.move_to(self.chain());
        self.check();
        for id in ids {
            if self.open.contains_key(&id) && !self.rng.one_in(4) {
                self.show_tip(id, false);
            }
        }
    }

    /// Shows a proof that a lie of some party is false.
    fn refute(&mut self) {
        let party = self.rng.below(self.parties.len());
        let which = self.rng.below(4);
        let Some((&height, lie)) = self.parties[party].lies.iter().nth(which) else { return };
        let filter = lie.filter(self.chain(), height);
        self.event(Event::Refuted(refute(self.chain(), height, &filter)));
    }

    /// Says that the stored filter of a scanned block matches no more.
    fn unmatched(&mut self) {
        let height = self.base + 1 + u32::try_from(self.rng.below(60)).unwrap();
        let Some(known) = self.world.sync.claims.at(height).copied() else { return };
        let Some(grade) = self.world.sync.filter_grade(height) else { return };
        if known.answer != HeightAnswer::Block || matches!(height % 10, 5 | 7) {
            return;
        }
        let lies = self.parties.iter().filter_map(|party| party.lies.get(&height));
        let stored = lies.map(|lie| lie.filter(self.chain(), height));
        let mut stored = stored.chain([self.chain().filters[height as usize].clone()]);
        let Some(content) = stored.find(|filter| filter_hash(filter) == known.hash) else { return };
        let at = self.chain().at(height);
        let filter = BlockFilter { block_hash: at.hash, content };
        self.world.known.insert(height, Known::Filter(VerifiedFilter { at, filter, grade }));
        self.event(Event::Unmatched(at, known.hash));
    }

    fn restart(&mut self) {
        let (config, headers) = (self.world.sync.config.clone(), &self.world.headers);
        let bytes = self.world.sync.encode(headers);
        self.world.sync = FilterSync::restore(config, headers, &bytes).unwrap();
        self.world.nodes.clear();
        self.world.queue.clear();
        self.open.clear();
        let unanswered = self.world.sync.unanswered();
        let known = self.world.known.iter().filter(|(_, known)| matches!(known, Known::Filter(_)));
        let void = known.map(|(height, _)| *height);
        let void = void.filter(|height| unanswered.iter().any(|run| run.contains(height)));
        self.world.reopened.extend(void);
    }

    fn step(&mut self) {
        let drawn = self.draw_open();
        match (self.rng.below(100), drawn) {
            (0..=29, Some(id)) => {
                let lacks_blocks = self.rng.one_in(4);
                self.answer(id, lacks_blocks);
            }
            (30..=69, Some(id)) => {
                let count = 1 + self.rng.below(30);
                self.deliver(id, count);
            }
            (70..=77, _) => {
                let party = self.rng.below(self.parties.len());
                if self.open.values().all(|other| other.party != party) {
                    let is_lower = self.rng.one_in(4);
                    self.connect(party, is_lower);
                }
            }
            (78..=81, Some(id)) => self.leave(id),
            (82, _) => self.reorganize(),
            (83 | 84, _) => {
                let from = self.base + u32::try_from(self.rng.below(60)).unwrap();
                self.event(Event::Rescan(from..=from + 20));
            }
            (85, _) => {
                let above = self.rng.below((self.world.sync.first() - self.base) as usize + 1);
                self.event(Event::Extend(self.base + u32::try_from(above).unwrap()));
            }
            (86 | 87, _) => self.refute(),
            (88..=90, _) => self.unmatched(),
            (91, _) => {
                self.world.now += Duration::from_secs(1 + self.rng.u64() % 40);
                self.event(Event::Tick);
            }
            (92, _) if self.rng.one_in(2) => self.restart(),
            (93..=95, Some(id)) => {
                let is_lower = !self.parties[self.open[&id].party].is_honest && self.rng.one_in(6);
                self.show_tip(id, is_lower);
            }
            _ => {}
        }
    }

    /// Some liars stay, and the honest party is connected.
    fn end(&mut self) {
        let is_first = |connection: &Connection| connection.party == 0;
        self.are_liars_silent = self.rng.one_in(2);
        while self.open.len() >= self.world.sync.config.limits.peers {
            let others = self.open.iter().filter(|(_, connection)| !is_first(connection));
            let others: Vec<_> = others.map(|(id, _)| *id).collect();
            if others.is_empty() {
                break;
            }
            let id = *self.rng.pick(&others);
            self.leave(id);
        }
        for id in self.open.keys().copied().collect::<Vec<_>>() {
            if self.open.contains_key(&id) {
                self.show_tip(id, false);
            }
        }
        if !self.open.values().any(is_first) {
            self.connect(0, false);
        }
        for _ in 0..60 {
            self.drain();
            self.world.now += Duration::from_secs(31);
            self.event(Event::Tick);
        }
        self.drain();
        assert!(self.open.values().any(is_first), "the honest party is gone");
        let tip = self.chain().tip();
        assert_eq!(self.world.sync.answered_to(), Some(tip));
        assert_eq!(self.world.sync.settled_to(), Some(tip));
        assert!(!self.world.sync.is_disputed(tip));
        let first = self.world.sync.first();
        assert!(self.world.hits.range(first..).eq(self.chain().truth().range(first..)));
        assert_eq!(self.world.reopened.range(first..).next(), None);
        let before = self.world.actions.len();
        for _ in 0..10 {
            self.event(Event::Tick);
        }
        assert_eq!(self.world.actions[before..], []);
    }

    /// Answers and delivers all messages.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            if let Some((id, _)) = self.open.iter().find(|(_, it)| !it.answers.is_empty()) {
                self.deliver(*id, usize::MAX);
            } else if let Some(&(id, _)) = self.world.queue.front() {
                self.answer(id, false);
            } else {
                return;
            }
        }
        panic!("no end of requests");
    }
}

/// Returns a chain of 60 blocks above `base`, and branches that replace it one after another.
fn chains(base: u32) -> Vec<TestChain> {
    let mut chains = vec![TestChain::new(base + 60)];
    for (salt, (height, longer)) in
        (10..).zip([(58, 1), (50, 1), (61, 1), (44, 2), (62, 1), (26, 1)])
    {
        let (mut next, height) = (chains.last().unwrap().clone(), base + height);
        let length = next.tip() + 1 - height + longer;
        next.truncate(height);
        next.grow(length, salt);
        chains.push(next);
    }
    chains
}

fn run(seed: u64, base: u32, chains: &[TestChain]) {
    let kept = catch_unwind(AssertUnwindSafe(|| {
        let mut schedule = Schedule::new(seed, base, chains);
        for _ in 0..60 + schedule.rng.below(400) {
            schedule.step();
        }
        schedule.end();
    }));
    assert!(kept.is_ok(), "seed {seed}: see above");
}

#[test]
fn any_schedule_keeps_the_laws() {
    let chains = chains(0);
    for seed in 0..6_000 / testkit::stride(60) as u64 {
        run(seed, 0, &chains);
    }
}

/// The same with two intervals, and in some schedules with a trusted header between them.
#[test]
fn any_schedule_with_two_intervals_keeps_the_laws() {
    let chains = chains(980);
    for seed in 0..3_000 / testkit::stride(120) as u64 {
        run(seed, 980, &chains);
    }
    // An answer was withdrawn in silence here.
    run(137, 980, &chains);
}
