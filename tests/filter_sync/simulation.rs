//! A simulated run: events between a sync and its peers, in the order of their times.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use chainsieve::bitcoin::bip158::FilterHash;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::{BlockHash, Network, ScriptBuf, Txid};
use chainsieve::btc::bip157::{Action, Config, Event, FilterSync, Finding, Reason};
use chainsieve::btc::bip158::filter_hash;
use chainsieve::btc::headers::HeaderChain;
use chainsieve::btc::peer::{Grade, PeerId};

use crate::peers::{Plan, Quirk, Session};
use crate::wallet::{State, Wallet};
use testkit::Rng;
use testkit::btc::filter_world::{NOW, World, wallet_transactions};

/// The inputs of a run.
pub(crate) struct Scenario<'w> {
    pub(crate) world: &'w World,
    pub(crate) seed: u64,
    pub(crate) config: Config,
    /// Height of the highest filter header that the configuration trusts.
    pub(crate) trusted: u32,
    /// Times at which the client learns of each tip.
    pub(crate) tips: Vec<(Duration, usize)>,
    pub(crate) plans: Vec<Plan>,
    /// Times at which the wallet watches more scripts, with their number. The first entry is the
    /// number at the start.
    pub(crate) watches: Vec<(Duration, usize)>,
    /// Times at which the client stops and continues from its stored state.
    pub(crate) restarts: Vec<Duration>,
    /// End of the run.
    pub(crate) end: Duration,
}

/// The results of a run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Heights that are unanswered, or whose filter matches and whose block did not arrive.
    pub(crate) open: BTreeSet<u32>,
    /// Heights where a filter that does not match is the final answer.
    pub(crate) denied: BTreeSet<u32>,
    /// The final grades of the answers.
    pub(crate) grades: BTreeMap<u32, Grade>,
    /// The transactions that the wallet found.
    pub(crate) transactions: BTreeSet<(BlockHash, Txid)>,
    /// Plans whose connection the client closed, with the reasons.
    pub(crate) disconnected: Vec<(usize, Reason)>,
    pub(crate) findings: Vec<Finding>,
    /// Number of requests to peers, and number of block requests among them.
    pub(crate) requests: usize,
    pub(crate) block_requests: usize,
    /// Number of blocks that the wallet scanned.
    pub(crate) blocks: usize,
    pub(crate) connections: usize,
    pub(crate) reopened: usize,
    pub(crate) events: usize,
    /// Length of the sync's `Debug` text at the end.
    pub(crate) printed: usize,
}

enum Step {
    Connect(usize),
    Leave(PeerId),
    Deliver(PeerId, Vec<NetworkMessage>, bool),
    /// The client learns of a tip.
    Tip(usize),
    /// A peer learns of a tip.
    PeerTip(PeerId, usize),
    Watch(usize),
    Restart,
    Tick,
}

struct Connection {
    plan: usize,
    session: Session,
    open: bool,
    /// Number of tips that the peer knows.
    heard: usize,
    /// Arrival time of the peer's last answer, because answers stay in order.
    busy: Duration,
    /// `true` if a message of the peer has arrived.
    spoke: bool,
}

pub(crate) struct Simulation<'w> {
    scenario: &'w Scenario<'w>,
    /// The chain of headers after each tip.
    chains: Vec<HeaderChain>,
    known: usize,
    sync: FilterSync,
    wallet: Wallet,
    connections: BTreeMap<PeerId, Connection>,
    returns: Vec<u32>,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    steps: BTreeMap<u64, Step>,
    numbered: u64,
    rng: Rng,
    now: Duration,
    outcome: Outcome,
}

/// Returns the header chain after each of `tips`, for a node that learns of them in turn.
pub(crate) fn header_chains(world: &World, tips: &[(Duration, usize)]) -> Vec<HeaderChain> {
    let mut chain = HeaderChain::new(Network::Regtest);
    let after = |&(_, tip): &(Duration, usize)| {
        let headers: Vec<_> = world.chain(tip).iter().map(|&n| world.header(n)).collect();
        chain.accept(&headers[1..], NOW).expect("valid headers");
        assert_eq!(chain.tip().hash, world.blocks[tip].hash, "each tip has more work");
        chain.clone()
    };
    tips.iter().map(after).collect()
}

impl<'w> Simulation<'w> {
    pub(crate) fn run(scenario: &'w Scenario<'w>) -> Outcome {
        let first = scenario.watches.first().map_or(scenario.world.wallet.len(), |watch| watch.1);
        let mut simulation = Self {
            scenario,
            chains: header_chains(scenario.world, &scenario.tips),
            known: 0,
            sync: FilterSync::new(scenario.config.clone()),
            wallet: Wallet::new(&scenario.world.wallet[..first]),
            connections: BTreeMap::new(),
            returns: scenario.plans.iter().map(|plan| plan.returns).collect(),
            queue: BinaryHeap::new(),
            steps: BTreeMap::new(),
            numbered: 0,
            rng: Rng::new(scenario.seed),
            now: Duration::ZERO,
            outcome: Outcome::default(),
        };
        simulation.schedule();
        let mut empty = HeaderChain::new(Network::Regtest);
        while let Some(Reverse((time, number))) = simulation.queue.pop()
            && time <= scenario.end
        {
            simulation.now = time;
            let step = simulation.steps.remove(&number).expect("each has a step");
            simulation.step(step, &mut empty);
        }
        simulation.finish(&empty)
    }

    fn at(&mut self, time: Duration, step: Step) {
        self.queue.push(Reverse((time, self.numbered)));
        self.steps.insert(self.numbered, step);
        self.numbered += 1;
    }

    fn schedule(&mut self) {
        let scenario = self.scenario;
        for (index, &(time, _)) in scenario.tips.iter().enumerate() {
            self.at(time, Step::Tip(index));
        }
        for (index, plan) in scenario.plans.iter().enumerate() {
            for &(joins, _) in &plan.sessions {
                self.at(joins, Step::Connect(index));
            }
        }
        for &(time, count) in scenario.watches.iter().skip(1) {
            self.at(time, Step::Watch(count));
        }
        for &time in &scenario.restarts {
            self.at(time, Step::Restart);
        }
        self.at(Duration::ZERO, Step::Tick);
    }

    fn step(&mut self, step: Step, chain: &mut HeaderChain) {
        match step {
            Step::Tick => {
                let half = self.scenario.config.limits.timeout / 2;
                self.at(self.now + half, Step::Tick);
                self.handle(chain, Event::Tick);
            }
            Step::Tip(index) => {
                let tip = self.scenario.tips[index].1;
                let numbers = self.scenario.world.chain(tip);
                let headers: Vec<_> =
                    numbers.iter().map(|&number| self.scenario.world.header(number)).collect();
                let events = chain.accept(&headers[1..], NOW).expect("valid headers");
                self.known = index + 1;
                self.handle(chain, Event::Chain(events));
                // These peers announced the tip before the client knew it.
                let told = self.connections.iter().filter(|(_, peer)| peer.heard == index + 1);
                for id in told.map(|(&id, _)| id).collect::<Vec<_>>() {
                    self.tell_tip(chain, id);
                }
            }
            Step::Watch(count) => {
                self.wallet.watch(&self.scenario.world.wallet[..count], self.scenario.config.first);
                self.handle(chain, Event::Rescan(self.scenario.config.first..=u32::MAX));
            }
            Step::Restart => self.restart(chain),
            Step::Connect(plan) => self.connect(chain, plan),
            Step::Leave(id) => self.close(chain, id),
            Step::PeerTip(id, index) => {
                let peer = self.connections.get_mut(&id).expect("connected once");
                peer.heard = peer.heard.max(index + 1);
                self.tell_tip(chain, id);
            }
            Step::Deliver(id, messages, closes) => {
                for message in messages {
                    let peer = self.connections.get_mut(&id).expect("connected once");
                    // A closed connection delivers nothing.
                    if !peer.open {
                        return;
                    }
                    peer.spoke = true;
                    for event in Event::from_message(id, message) {
                        self.handle(chain, event);
                    }
                }
                if closes {
                    self.close(chain, id);
                }
            }
        }
    }

    /// Restarts the client. All connections are lost, and the connected peers reconnect. The wallet
    /// keeps the answers that the restored sync still knows.
    fn restart(&mut self, chain: &HeaderChain) {
        let bytes = self.sync.encode(chain);
        let kept = FilterSync::restore(self.scenario.config.clone(), chain, &bytes);
        let before = std::mem::replace(&mut self.sync, kept.expect("as it was written"));
        for height in self.wallet.restart(&self.sync) {
            let grades = (before.grade(height), self.sync.grade(height));
            assert!(grades.0.is_some(), "height {height}: {grades:?}");
        }
        for (height, hash) in self.wallet.by_filter(0, chain.tip().height).collect::<Vec<_>>() {
            if let Some(grade) = self.sync.grade(height) {
                self.check_grade(height, hash, grade);
            }
        }
        for peer in self.connections.values_mut().filter(|peer| peer.open) {
            peer.open = false;
            let later = self.now + Duration::from_secs(1);
            self.queue.push(Reverse((later, self.numbered)));
            self.steps.insert(self.numbered, Step::Connect(peer.plan));
            self.numbered += 1;
        }
    }

    fn connect(&mut self, chain: &HeaderChain, index: usize) {
        let id = PeerId(self.rng.u64());
        let plan = &self.scenario.plans[index];
        // The peer knows the tips that are older than its lag.
        let heard_by = self.now.saturating_sub(plan.lag);
        let heard = self.scenario.tips.iter().filter(|(time, _)| *time <= heard_by).count();
        for (at, &(time, _)) in self.scenario.tips.iter().enumerate().skip(heard) {
            self.at(time + plan.lag, Step::PeerTip(id, at));
        }
        let ends = plan.sessions.iter().find(|(joins, _)| *joins == self.now);
        if let Some(&(_, Some(leaves))) = ends {
            self.at(leaves, Step::Leave(id));
        }
        let session = Session::new(plan.clone(), self.rng.u64());
        let busy = self.now;
        let connection = Connection { plan: index, session, open: true, heard, busy, spoke: false };
        self.connections.insert(id, connection);
        self.outcome.connections += 1;
        if std::env::var("SIM_SEED").is_ok() {
            eprintln!(
                "{id:?}: plan {index} honest {} {:?} latency {:?} lag {:?}",
                plan.honest, plan.quirk, plan.latency, plan.lag
            );
        }
        self.handle(chain, Event::PeerConnected(id));
        self.tell_tip(chain, id);
    }

    /// Tells the sync the peer's best block, if the client knows the block.
    fn tell_tip(&mut self, chain: &HeaderChain, id: PeerId) {
        let peer = &self.connections[&id];
        let Some(index) = peer.heard.checked_sub(1).filter(|_| peer.open) else { return };
        let tip = self.scenario.world.blocks[self.scenario.tips[index].1].hash;
        if chain.contains(&tip) {
            self.handle(chain, Event::PeerTip(id, tip));
        }
    }

    /// Closes the connection from the peer's side.
    fn close(&mut self, chain: &HeaderChain, id: PeerId) {
        let peer = self.connections.get_mut(&id).expect("connected once");
        if peer.open {
            peer.open = false;
            let plan = peer.plan;
            self.come_back(plan);
            self.handle(chain, Event::PeerDisconnected(id));
        }
    }

    fn come_back(&mut self, plan: usize) {
        if let Some(left) = self.returns[plan].checked_sub(1) {
            self.returns[plan] = left;
            let later = self.now + Duration::from_secs(5);
            self.at(later, Step::Connect(plan));
        }
    }

    /// Passes an event to the sync and performs its actions, then passes the wallet's own events.
    fn handle(&mut self, chain: &HeaderChain, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.outcome.events += 1;
            let trace = std::env::var("SIM_SEED").is_ok();
            if trace && !matches!(event, Event::CFilter(..)) {
                eprintln!("{:?} <- {:.300}", self.now, format!("{event:?}"));
            }
            for action in self.sync.handle(chain, event, self.now) {
                self.act(chain, action, &mut events);
            }
        }
    }

    fn act(&mut self, chain: &HeaderChain, action: Action, events: &mut VecDeque<Event>) {
        if std::env::var("SIM_SEED").is_ok() {
            match &action {
                Action::Filter(f) => eprintln!("   -> Filter {} {:?}", f.at.height, f.grade),
                Action::Block { at, why, .. } => eprintln!("   -> Block {} {why:?}", at.height),
                other => eprintln!("   -> {:.400}", format!("{other:?}")),
            }
        }
        match action {
            Action::Send(id, message) => self.send(id, &message),
            Action::Disconnect(id, reason) => {
                let peer = self.connections.get_mut(&id).expect("connected once");
                assert!(peer.open, "a connection is closed twice: {reason:?}");
                peer.open = false;
                let index = peer.plan;
                let honest = self.scenario.plans[index].honest;
                assert!(!honest, "an honest peer is disconnected: {reason:?}");
                self.outcome.disconnected.push((index, reason));
                self.come_back(index);
            }
            Action::Filter(answer) => {
                self.check_grade(answer.at.height, answer.filter.filter_hash(), answer.grade);
                if self.wallet.filter(chain, &answer) {
                    events.push_back(Event::Matched(answer));
                }
            }
            Action::Block { at, block, .. } => {
                self.wallet.block(chain, self.scenario.world, at, *block);
            }
            Action::Reopened(from, to) => {
                self.outcome.reopened += 1;
                self.wallet.reopen(from, to);
            }
            Action::Graded(from, to, grade) => {
                for (height, hash) in self.wallet.by_filter(from, to).collect::<Vec<_>>() {
                    self.check_grade(height, hash, grade);
                }
                self.wallet.confirm(from, to);
            }
            Action::Rollback(height) => self.wallet.roll_back(height),
            Action::Report(finding) => self.outcome.findings.push(finding),
            other => panic!("{other:?} is new here"),
        }
    }

    /// Checks that a grade is no better than its evidence. `hash` is the hash of the filter that is
    /// the current answer at `height`.
    fn check_grade(&self, height: u32, hash: FilterHash, grade: Grade) {
        let block = self.chains[self.known - 1].hash_at(height).expect("a height of the chain");
        match grade {
            // The answer itself shows that one peer claims the filter.
            Grade::OnePeer => {}
            Grade::Peers(count) => {
                // A peer with a quirk may have claimed any hash.
                let claims = |peer: &&Connection| {
                    let honest = peer.session.plan.quirk == Quirk::None;
                    let store = &peer.session.plan.store;
                    peer.spoke && (!honest || store.filter_hash(&block) == Some(hash))
                };
                let claimed = self.connections.values().filter(claims).count();
                assert!(count as usize <= claimed, "{count} peers at {height}, {claimed} claims");
            }
            Grade::Checkpoint => {
                let trusted = self.scenario.trusted;
                assert!(height <= trusted, "height {height}, the trust ends at {trusted}");
                self.assert_is_true(block, hash);
            }
            Grade::Audited => self.assert_is_true(block, hash),
            other => panic!("{other:?} is new here"),
        }
    }

    fn assert_is_true(&self, block: BlockHash, hash: FilterHash) {
        let block = &self.scenario.world.blocks[self.scenario.world.by_hash[&block]];
        assert_eq!(hash, filter_hash(&block.filter), "height {}: a false filter", block.height);
    }

    fn send(&mut self, id: PeerId, message: &NetworkMessage) {
        // A message that requests several blocks counts as that many requests.
        let (requests, blocks) = match message {
            NetworkMessage::GetData(items) => (items.len(), items.len()),
            _ => (1, 0),
        };
        self.outcome.requests += requests;
        self.outcome.block_requests += blocks;
        let world = self.scenario.world;
        let peer = self.connections.get_mut(&id).expect("connected once");
        assert!(peer.open, "a message to a closed connection");
        let heard = peer.heard.checked_sub(1).expect("a peer without a tip is asked nothing");
        let response = peer.session.answer(world, &self.chains[heard], message);
        assert_eq!(response.violation, None, "the client breaks the protocol: {message:?}");
        // Answers over one connection stay in order.
        let time = (self.now + response.delay).max(peer.busy);
        peer.busy = time;
        self.at(time, Step::Deliver(id, response.messages, response.closes));
    }

    fn finish(mut self, chain: &HeaderChain) -> Outcome {
        let first = self.scenario.config.first;
        let tip = chain.tip().height;
        self.outcome.blocks = self.wallet.blocks;
        let settled = |height: &u32| {
            let state = self.wallet.states.get(height).map(|(_, state)| state);
            match state {
                Some(State::Scanned(_)) => true,
                Some(State::No(_)) => !self.wallet.reopened.contains(height),
                Some(State::Matched(_)) | None => false,
            }
        };
        self.outcome.open = (first..=tip).filter(|height| !settled(height)).collect();
        if self.outcome.open.is_empty() {
            assert_eq!(self.sync.answered_to(), Some(tip), "all is answered");
        }
        let denied = |state: &State| matches!(state, State::No(_));
        let states = self.wallet.states.iter();
        self.outcome.denied =
            states.filter(|(_, (_, s))| denied(s)).map(|(&height, _)| height).collect();
        self.outcome.transactions = self.wallet.transactions();
        self.outcome.grades =
            (first..=tip).filter_map(|height| Some((height, self.sync.grade(height)?))).collect();
        self.outcome.printed = format!("{:?}", self.sync).len();
        for (height, (hash, _)) in &self.wallet.states {
            assert_eq!(chain.hash_at(*height), Some(*hash), "an answer of another chain");
        }
        self.outcome
    }
}

impl Scenario<'_> {
    /// Checks that the wallet has found all its transactions and nothing else.
    pub(crate) fn assert_true(&self, outcome: &Outcome) {
        assert_eq!(outcome.open, BTreeSet::new(), "the heights left open");
        let world = self.world;
        let &(_, tip) = self.tips.last().expect("a tip");
        let scripts = &world.wallet[..self.watches.last().map_or(world.wallet.len(), |w| w.1)];
        let chain = world.chain(tip);
        let chain: Vec<_> =
            chain[self.config.first as usize..].iter().map(|&n| &world.blocks[n]).collect();
        for block in &chain {
            let holds = |script: &ScriptBuf| scripts.contains(script);
            let matches = block.elements.iter().any(holds);
            assert!(!matches || !outcome.denied.contains(&block.height), "{} denied", block.height);
        }
        let truth = wallet_transactions(scripts, chain.iter().map(|block| &block.block));
        assert_eq!(outcome.transactions, truth, "the wallet's transactions");
    }
}
