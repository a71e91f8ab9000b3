//! The machine that keeps a light client up to date by several servers: random schedules on a
//! made-up chain of 200 periods with all forks, with servers that lag, fail, withhold and lie.
//!
//! # Laws
//! 1. Every finalised header is a block of the chain, with its execution block.
//! 2. After a round, the light client is not older than the newest finalised block of any server
//!    that was asked last in this round after the last progress and answered honestly: the finalised
//!    block of its newest finality update, if two thirds signed it. This holds while the caller's
//!    clock is not behind the chain, and if each period up to then has an update by two thirds that
//!    finalises a block of the same period.
//! 3. At most one question is open, and at most one of a server is open or overdue. A round has at most `2 · servers · (progress + 1)` questions, and
//!    one more for each server if optimistic headers are wanted, as in every second schedule. Here,
//!    progress is the number of answers that finalised a newer block or taught a committee.
//!    If one server is honest and answers, servers that reveal newer blocks one after the other
//!    cannot delay it: between two of its turns, each other server has one turn.
//! 4. A server is asked in every round that begins an hour after its last failure, or later, unless it
//!    owes an answer that is overdue.
//! 5. A light client that was stored and read at any moment ends at the same block.
//! 6. The newest header that two thirds signed is a block of the chain, and its slot never decreases
//!    while the light client runs, whatever fewer sign. Once an honest server has sent a header that
//!    two thirds signed, it is at least as new as that header, if the committee that signed it is known
//!    and the caller's clock is not behind the chain.
//!
//! In every third schedule, answers may be overdue. In a round, laws 2 and 4 then hold of the servers that
//! owed no answer in it.
//!
//! `CHAINSIEVE_SYNC_SCHEDULES=COUNT` or `CHAINSIEVE_SYNC_SCHEDULES=COUNT:FIRST` gives the number of
//! schedules and the first seed.

use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use chainsieve::eth::anchor::network::Fork;
use chainsieve::eth::anchor::sync::{Action, Answer, Config, Event, OpenQuestion, Syncer};
use chainsieve::eth::anchor::sync_committee::{
    self, Bootstrap, BoundExecution, Evidence, ExecutionProof, LightClient, LightClientError,
    Request, SyncCommittee, Update,
};
use serde_json::json;
use testkit::eth::beacon_chain::{BeaconChain, TWO_THIRDS};
use testkit::eth::beacon_world::{EPOCH, MEMBERS, PERIOD, World, at, infinity};
use testkit::{Rng, stride};

/// Number of periods of the chain.
const PERIODS: u64 = 200;
/// First epochs of the forks from Altair on: one fork in the middle of a period, and two in the same
/// period.
const FORKS: [u64; 7] = [0, 8 * 20, 8 * 60 + 3, 8 * 90, 8 * 90 + 5, 8 * 130, 8 * 160 + 7];
const HOUR: Duration = Duration::from_secs(60 * 60);
/// Time between two rounds.
const POLL: Duration = Duration::from_secs(60);

static CHAIN: LazyLock<BeaconChain> = LazyLock::new(|| {
    let world = World::with(FORKS, PERIODS + 1, &json!({}));
    let chain = BeaconChain::new(world, PERIODS, 0..0, 7);
    // Every period has an update that moves the committee, so that nothing has to be forced.
    for period in 0..PERIODS {
        let best = chain.draft(chain.best(period, at(PERIODS, 0)).expect("blocks"));
        let finalized = best.finalized.expect("finality") / PERIOD;
        assert!(best.participants >= TWO_THIRDS && finalized == period, "period {period}");
    }
    chain
});

/// How a server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Honest,
    /// Honest, and fails if a range of updates reaches into the future, as Lodestar does.
    NoFuture,
    /// Honest, with data that is this number of slots old.
    Lagging(u64),
    /// Never answers.
    Silent,
    /// Honest, and fails every second time.
    Flaky,
    /// Honest about headers, without the next committees.
    Withholding,
    /// Updates by fewer than two thirds.
    Minority,
    /// The same updates as an honest server, with signatures left out: more than half of the committee
    /// remain, and fewer than two thirds.
    Weak,
    /// Another chain, signed by fewer than two thirds.
    Equivocating,
    /// Another chain, with everything but the signature as it should be.
    Forging,
    /// Signatures for another fork.
    WrongFork,
    /// One thing is changed.
    Damaging,
    /// A bootstrap for updates, and the other way round.
    OtherObject,
    /// More updates than requested.
    More,
    /// Updates out of order.
    Disordered,
    /// Updates that are known already.
    Repeating,
    /// No updates.
    Empty,
    /// Reveals one newer finalised block at a time.
    Feeding,
}

impl Kind {
    const LIARS: [Self; 15] = [
        Self::Silent,
        Self::Flaky,
        Self::Withholding,
        Self::Minority,
        Self::Weak,
        Self::Equivocating,
        Self::Forging,
        Self::WrongFork,
        Self::Damaging,
        Self::OtherObject,
        Self::More,
        Self::Disordered,
        Self::Repeating,
        Self::Empty,
        Self::Feeding,
    ];
}

impl Kind {
    const fn is_honest(self) -> bool {
        matches!(self, Self::Honest | Self::NoFuture | Self::Lagging(_) | Self::Flaky)
    }
}

/// An answer with its objects.
enum Sent {
    Bootstrap(Box<Bootstrap>),
    Updates(Vec<Update>),
    Failed,
}

impl Sent {
    fn answer(&self) -> Answer<'_> {
        match self {
            Self::Bootstrap(bootstrap) => Answer::Bootstrap(bootstrap),
            Self::Updates(updates) => Answer::Updates(updates),
            Self::Failed => Answer::Failed,
        }
    }
}

/// Returns an update of the chain without its next committee.
fn without_committee(update: &Update) -> Update {
    Update { next_committee: None, ..update.clone() }
}

fn best(period: u64, now: u64) -> Option<Update> {
    Some(Update::clone(&CHAIN.update(CHAIN.best(period, now)?)))
}

fn newest(now: u64) -> Option<Update> {
    Some(without_committee(&CHAIN.update(CHAIN.newest(now)?)))
}

/// What an honest server answers.
fn honest(question: Request, now: u64) -> Sent {
    match question {
        Request::Bootstrap(root) => {
            let slots = CHAIN.attested(0..now, now);
            let mut matching = slots.filter(|&slot| CHAIN.root(slot) == Some(root));
            matching
                .next()
                .map_or(Sent::Failed, |slot| Sent::Bootstrap(CHAIN.bootstrap(slot).into()))
        }
        Request::Updates { start_period, count } => {
            let periods = start_period..start_period + count;
            Sent::Updates(periods.map_while(|period| best(period, now)).collect())
        }
        Request::Finality => newest(now).map_or(Sent::Failed, |update| Sent::Updates(vec![update])),
        Request::Optimistic => {
            let last = CHAIN.attested(now.saturating_sub(PERIOD)..now + 1, now).last();
            last.map_or(Sent::Failed, |slot| {
                let update = without_committee(&CHAIN.update(slot));
                Sent::Updates(vec![Update { finality: None, ..update }])
            })
        }
        other => panic!("{other:?}"),
    }
}

/// Changes one thing in an update, so that it is invalid.
fn damage(rng: &mut Rng, update: &mut Update) {
    let finality = update.finality.as_mut();
    match rng.below(10) {
        0 => update.aggregate.signature.0[rng.below(96)] ^= 1 << rng.below(8),
        1 => update.aggregate.bits[rng.below(MEMBERS / 8)] ^= 1 << rng.below(8),
        2 => update.signature_slot += 1 + rng.below(200) as u64,
        3 => update.attested.beacon.proposer_index ^= 1,
        4 if finality.is_some() => {
            let finality = finality.expect("is some");
            let node = rng.below(finality.branch.len());
            finality.branch[node].0[rng.below(32)] ^= 1;
        }
        5 if finality.as_ref().is_some_and(|finality| finality.header.is_some()) => {
            let header = finality.expect("is some").header.as_mut().expect("is some");
            header.beacon.slot += rng.below(3) as u64;
            header.beacon.body_root.0[rng.below(32)] ^= 1;
        }
        6 if update.next_committee.is_some() => {
            let (_, branch) = update.next_committee.as_mut().expect("is some");
            let node = rng.below(branch.len());
            branch[node].0[rng.below(32)] ^= 1;
        }
        7 if update.next_committee.is_some() => {
            let (committee, _) = update.next_committee.as_mut().expect("is some");
            let mut keys = SyncCommittee::clone(committee);
            keys.keys.swap(rng.below(16), 16 + rng.below(16));
            *committee = Arc::new(keys);
        }
        8 => match &mut update.attested.execution {
            ExecutionProof::Absent => update.attested.beacon.state_root.0[3] ^= 1,
            ExecutionProof::Header(header, _) => header.gas_used ^= 1,
            ExecutionProof::Hash(hash, _) => hash.0[9] ^= 1,
        },
        _ => update.aggregate.signature = infinity(),
    }
}

/// Returns an update of another chain: its finalised block is not one of the chain. Its signature is
/// by `participants` members.
fn other_chain(rng: &mut Rng, slot: u64, participants: usize) -> Update {
    let mut draft = CHAIN.draft(slot).by(participants);
    let mut finalized = draft.finalized.unwrap_or(0);
    if finalized == 0 || rng.one_in(2) {
        // A block that seems newer than the chain's.
        finalized = CHAIN.block_at(slot.saturating_sub(1));
    }
    let mut finalized = CHAIN.header(finalized);
    finalized.beacon.proposer_index = 1_000 + rng.below(1_000) as u64;
    draft.finalized = Some(finalized.beacon.slot);
    CHAIN.world.update_with(draft, Some(finalized))
}

/// A server, and what the law says of it.
struct Server {
    kind: Kind,
    /// Slot of the finalised block of its last honest answer to the question for its newest one,
    /// since the last progress.
    newest: Option<u64>,
    failed_at: Option<Duration>,
    is_asked: bool,
    /// `true` if the server owed an overdue answer in this round.
    has_owed: bool,
}

/// What a round did.
#[derive(Default)]
struct Round {
    began: Duration,
    questions: usize,
    progress: usize,
}

/// A run: servers, a clock, and the machine.
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a schedule")]
struct Run {
    config: Config,
    rng: Rng,
    servers: Vec<Server>,
    syncer: Syncer,
    /// The true time.
    time: Duration,
    /// Time by which the caller's clock is late, or early if `is_early`.
    offset: Duration,
    is_early: bool,
    /// Time that has passed for the machine: never set back.
    steady: Duration,
    last_read: Duration,
    open: Option<(u64, usize, Request)>,
    /// Questions whose answers are overdue.
    overdue: Vec<(u64, usize, Request)>,
    may_be_overdue: bool,
    round: Round,
    finalized: u64,
    /// Slot from which on the newest header that two thirds signed must be.
    supermajority: u64,
    /// Slot of the finalised block in the last finality update of a server that is honest and does not
    /// lag; 0 if the update was by fewer than two thirds.
    honest_newest: Option<u64>,
    /// `true` if the caller's clock was late in this round, or periods passed at once.
    is_disturbed: bool,
    resumes: bool,
    rounds: usize,
    questions: usize,
    /// `true` if each action is printed: for one schedule.
    is_told: bool,
}

fn time_of(slot: u64) -> Duration {
    CHAIN.world.network.time_of_slot(slot)
}

impl Run {
    /// Starts at a block of a slot, with servers of these kinds.
    fn new(seed: u64, start: u64, kinds: &[Kind], now: Duration) -> Self {
        let root = CHAIN.root(start).expect("a block");
        let mut config = Config::new(kinds.len());
        // Every second schedule asks for optimistic headers, too.
        (config.poll, config.optimistic) = (POLL, seed.is_multiple_of(2));
        let server = |&kind| Server {
            kind,
            newest: None,
            failed_at: None,
            is_asked: false,
            has_owed: false,
        };
        Self {
            config,
            rng: Rng::new(seed),
            servers: kinds.iter().map(server).collect(),
            syncer: Syncer::start(CHAIN.world.network.clone(), root, config),
            time: now,
            offset: Duration::ZERO,
            is_early: false,
            steady: Duration::ZERO,
            last_read: Duration::ZERO,
            open: None,
            overdue: Vec::new(),
            may_be_overdue: false,
            round: Round::default(),
            finalized: start,
            supermajority: start,
            honest_newest: None,
            is_disturbed: false,
            resumes: false,
            rounds: 0,
            questions: 0,
            is_told: std::env::var("CHAINSIEVE_SYNC_SCHEDULES")
                .is_ok_and(|it| it.starts_with("1:")),
        }
    }

    /// Reads the caller's clock.
    fn clock(&mut self) -> Duration {
        let now = if self.is_early {
            self.time + self.offset
        } else {
            self.time.saturating_sub(self.offset)
        };
        self.steady += now.saturating_sub(self.last_read);
        self.last_read = now;
        self.is_disturbed |= !self.is_early && !self.offset.is_zero();
        now
    }

    /// Returns the slot that has started in truth.
    fn slot(&self) -> u64 {
        CHAIN.world.network.slot_at(self.time).unwrap_or(0).min(at(PERIODS, 0) - 1)
    }

    /// Returns `true` if a range of updates ends after the period that has started in truth.
    fn is_future(&self, question: Request) -> bool {
        let now = CHAIN.world.network.slot_at(self.time).unwrap_or(0);
        matches!(
            question,
            Request::Updates { start_period, count }
                if start_period + count > now / PERIOD + 1
        )
    }

    fn handle(&mut self, event: Event<'_>) {
        let now = self.clock();
        if !self.syncer.is_in_round() && matches!(event, Event::Tick) {
            self.round.began = self.steady;
        }
        let actions = self.syncer.handle(event, now);
        if self.is_told {
            println!("{now:?}, slot {}, offset {:?}: {actions:?}", self.slot(), self.offset);
        }
        let mut is_progress = false;
        for action in actions {
            match action {
                Action::Ask(OpenQuestion { id, server, request: question, .. }) => {
                    assert!(self.open.is_none(), "two questions are open");
                    let owes = self.overdue.iter().any(|(_, overdue, _)| *overdue == server);
                    assert!(!owes, "server {server} is asked while it owes an answer");
                    if self.round.questions == 0 {
                        self.is_disturbed = !self.is_early && !self.offset.is_zero();
                    }
                    self.round.questions += 1;
                    self.questions += 1;
                    self.servers[server].is_asked = true;
                    self.open = Some((id, server, question));
                }
                Action::Client(sync_committee::Action::Finalized(anchor)) => {
                    is_progress = true;
                    self.check(&anchor);
                }
                Action::Started | Action::Client(sync_committee::Action::NextCommittee { .. }) => {
                    is_progress = true;
                }
                Action::Client(_) => {}
                Action::Refused { server, refusal } => {
                    let kind = self.servers[server].kind;
                    let is_accused = !refusal.is_about_progress() && kind.is_honest();
                    assert!(!is_accused, "{kind:?} is accused: {refusal}");
                    self.servers[server].failed_at = Some(self.steady);
                }
                Action::RoundEnded { answered } => self.end_round(answered),
                other => panic!("{other:?}"),
            }
        }
        if is_progress {
            self.round.progress += 1;
        }
        self.check_supermajority();
    }

    /// Checks the newest header that two thirds signed.
    fn check_supermajority(&mut self) {
        let Some(client) = self.syncer.client() else { return };
        let newest = client.supermajority();
        let slot = newest.beacon.slot;
        assert_eq!(CHAIN.root(slot), Some(newest.root), "slot {slot} is not of the chain");
        assert!(slot >= self.supermajority, "{slot} < {}", self.supermajority);
        match newest.evidence {
            Evidence::Optimistic(by) => {
                assert!(slot > self.finalized && by.signed == CHAIN.draft(slot).participants);
                assert!(by.signed >= TWO_THIRDS, "{by}");
            }
            _ => assert_eq!(newest, client.finalized()),
        }
        self.supermajority = slot;
    }

    /// Notes the newest header that an honest answer brings, if two thirds signed it.
    fn expect_supermajority(&mut self, sent: &Sent) {
        let (Some(client), Sent::Updates(updates)) = (self.syncer.client(), sent) else { return };
        if !self.is_early && !self.offset.is_zero() {
            return;
        }
        let period = client.finalized().beacon.slot / PERIOD;
        let last = period + u64::from(client.is_next_committee_known());
        for update in updates {
            let is_known = (period..=last).contains(&(update.signature_slot / PERIOD));
            if is_known && update.aggregate.participation().signed >= TWO_THIRDS {
                self.supermajority = self.supermajority.max(update.attested.beacon.slot);
            }
        }
    }

    /// Checks a finalised header against the chain.
    fn check(&mut self, anchor: &sync_committee::Anchor) {
        let slot = anchor.beacon.slot;
        assert_eq!(CHAIN.root(slot), Some(anchor.root), "slot {slot} is not of the chain");
        assert!(slot > self.finalized, "from slot {} back to {slot}", self.finalized);
        self.finalized = slot;
        let Evidence::Finalized(by) = anchor.evidence else { panic!("{}", anchor.evidence) };
        assert!(by.signed >= TWO_THIRDS && by.of == MEMBERS, "{by}");
        assert_eq!(anchor.trust.forced, None);
        let fork = CHAIN.world.network.fork_at_slot(slot);
        let expected = match CHAIN.header(slot).execution {
            ExecutionProof::Absent => None,
            ExecutionProof::Header(header, _) => Some(header.block_hash),
            ExecutionProof::Hash(hash, _) => Some(hash),
        };
        assert_eq!(anchor.execution.bound_hash(), expected, "{fork}");
        let is_parent = matches!(anchor.execution, BoundExecution::ParentHash(_));
        assert_eq!(is_parent, fork == Fork::Gloas, "{:?}", anchor.execution);
    }

    /// Checks the laws of a round.
    fn end_round(&mut self, answered: usize) {
        let count = self.servers.len();
        assert!(answered <= count);
        let Round { questions, progress, began } = self.round;
        // A period may begin within a round, which then seeks its committee.
        let optimistic = if self.config.optimistic { count } else { 0 };
        let most = 2 * count * (progress + 2) + optimistic;
        assert!(questions <= most, "{questions} questions, {progress} moves");
        if self.syncer.client().is_some() && !self.is_disturbed {
            for server in self.servers.iter().filter(|server| !server.has_owed) {
                let newest = server.newest.unwrap_or(0);
                let kind = server.kind;
                assert!(self.finalized >= newest, "{kind:?}: {} < {newest}", self.finalized);
            }
        }
        for (at, server) in self.servers.iter_mut().enumerate() {
            let owes = self.overdue.iter().any(|(_, overdue, _)| *overdue == at);
            let since = server.failed_at.map(|failed| began.saturating_sub(failed));
            let is_due = since.is_none_or(|since| since >= HOUR) && !server.has_owed;
            assert!(server.is_asked || !is_due, "{:?} is not asked after {since:?}", server.kind);
            server.is_asked = false;
            server.newest = None;
            server.has_owed = owes;
        }
        self.round = Round::default();
        self.rounds += 1;
    }

    /// Returns the answer of a server, and notes what the law concludes from an honest one.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of server")]
    fn sent(&mut self, server: usize, question: Request) -> Sent {
        let now = self.slot();
        let kind = self.servers[server].kind;
        let (seen, is_honest) = match kind {
            Kind::NoFuture if self.is_future(question) => return Sent::Failed,
            Kind::Honest | Kind::NoFuture => (now, true),
            Kind::Lagging(slots) => (now.saturating_sub(slots), true),
            Kind::Flaky if self.rng.one_in(2) => (now, true),
            Kind::Silent | Kind::Flaky => return Sent::Failed,
            _ => (now, false),
        };
        if is_honest {
            if question == Request::Finality {
                self.servers[server].newest = CHAIN.finalized(seen);
                if matches!(kind, Kind::Honest | Kind::NoFuture) {
                    self.honest_newest = Some(CHAIN.finalized(seen).unwrap_or(0));
                }
            }
            return honest(question, seen);
        }
        let truth = honest(question, now);
        let mut updates = match truth {
            Sent::Updates(updates) => updates,
            Sent::Bootstrap(mut bootstrap) => {
                if kind == Kind::OtherObject {
                    return Sent::Updates(Vec::new());
                }
                if kind == Kind::Damaging {
                    let node = self.rng.below(bootstrap.committee_branch.len());
                    bootstrap.committee_branch[node].0[4] ^= 1;
                }
                return Sent::Bootstrap(bootstrap);
            }
            Sent::Failed => return Sent::Failed,
        };
        let rng = &mut self.rng;
        match kind {
            Kind::Withholding => updates = updates.iter().map(without_committee).collect(),
            Kind::Minority | Kind::Weak | Kind::WrongFork => {
                for update in &mut updates {
                    let mut draft = CHAIN.draft(update.attested.beacon.slot);
                    if kind == Kind::Minority {
                        draft = draft.by(1 + rng.below(TWO_THIRDS - 1));
                    } else if kind == Kind::Weak {
                        let half = MEMBERS / 2;
                        draft = draft.by(half + 1 + rng.below(TWO_THIRDS - half - 1));
                    } else {
                        let period = (draft.attested / PERIOD + 50) % 200;
                        let other = CHAIN.world.version_at(at(period, 0));
                        let right = CHAIN.world.version_at(draft.signature_slot - 1);
                        draft.version = Some(if other == right { [9; 4].into() } else { other });
                    }
                    *update = CHAIN.sign(draft);
                }
            }
            Kind::Equivocating | Kind::Forging => {
                for update in &mut updates {
                    let slot = update.attested.beacon.slot;
                    let participants = if kind == Kind::Equivocating {
                        1 + rng.below(TWO_THIRDS - 1)
                    } else {
                        MEMBERS
                    };
                    let aggregate = update.aggregate.clone();
                    *update = other_chain(rng, slot, participants);
                    if kind == Kind::Forging {
                        update.aggregate = aggregate;
                    }
                }
            }
            Kind::Damaging if !updates.is_empty() => {
                let index = rng.below(updates.len());
                damage(rng, &mut updates[index]);
            }
            Kind::OtherObject => {
                return Sent::Bootstrap(CHAIN.bootstrap(CHAIN.block_at(now / 2)).into());
            }
            Kind::More => {
                let next = updates.last().map_or(0, |last| last.attested.beacon.slot / PERIOD + 1);
                updates.extend((next..next + 3).map_while(|period| best(period, now)));
                updates.extend(newest(now));
            }
            Kind::Disordered => {
                for last in (1..updates.len()).rev() {
                    updates.swap(last, rng.below(last + 1));
                }
            }
            Kind::Repeating => {
                let finalized = self.finalized / PERIOD;
                let periods = finalized.saturating_sub(3)..=finalized;
                updates = periods.filter_map(|period| best(period, now)).collect();
            }
            Kind::Empty => updates.clear(),
            Kind::Feeding => {
                // The update of the next finalised block, in a period that the client can verify.
                let period = self.finalized / PERIOD;
                let slots = CHAIN.attested(self.finalized..at(period + 2, 0), now);
                let mut drafts = slots.map(|slot| CHAIN.draft(slot));
                let next = drafts.find(|draft| {
                    draft.participants >= TWO_THIRDS
                        && draft.finalized.is_some_and(|slot| slot > self.finalized)
                });
                if let Some(draft) = next {
                    updates = vec![Update::clone(&CHAIN.update(draft.attested))];
                }
            }
            _ => {}
        }
        Sent::Updates(updates)
    }

    /// Gives the answer of a server.
    fn answer(&mut self, (id, server, question): (u64, usize, Request)) -> Sent {
        let sent = self.sent(server, question);
        if self.servers[server].kind.is_honest() {
            self.expect_supermajority(&sent);
        }
        self.handle(Event::Answer(id, sent.answer()));
        if matches!(sent, Sent::Failed) {
            self.servers[server].failed_at = Some(self.steady);
        }
        sent
    }

    /// Answers the open question or an overdue one, or waits for the next round.
    fn step(&mut self) {
        if !self.overdue.is_empty() && self.rng.one_in(if self.may_be_overdue { 6 } else { 1 }) {
            let overdue = self.overdue.swap_remove(self.rng.below(self.overdue.len()));
            self.time += Duration::from_millis(self.rng.below(3_000) as u64);
            self.servers[overdue.1].has_owed = self.syncer.is_in_round();
            self.answer(overdue);
            // If the committee that signed it is not known, it cannot be verified.
            self.servers[overdue.1].newest = None;
        } else if let Some(open) = self.open.filter(|_| self.may_be_overdue)
            && self.rng.one_in(3)
        {
            self.time += Duration::from_secs(2);
            self.servers[open.1].has_owed = true;
            self.overdue.extend(self.open.take());
            self.handle(Event::Overdue(open.0));
        } else if let Some((id, server, question)) = self.open {
            if self.rng.one_in(20) {
                self.handle(Event::Tick);
            }
            self.time += Duration::from_millis(self.rng.below(3_000) as u64);
            self.open = None;
            let sent = self.answer((id, server, question));
            if self.rng.one_in(10) {
                // A second answer to the same question changes nothing.
                let before = self.syncer.client().map(LightClient::to_json);
                let open = self.open;
                self.handle(Event::Answer(id, sent.answer()));
                assert_eq!(self.open, open);
                assert_eq!(self.syncer.client().map(LightClient::to_json), before);
            }
        } else {
            // After the clock was set back, the time to wake is late, so the caller asks before.
            self.handle(Event::Tick);
            if self.open.is_none() {
                let wake_at = self.syncer.wake_at().expect("no question is open");
                self.time += wake_at.saturating_sub(self.last_read);
                self.handle(Event::Tick);
            }
        }
        if self.resumes && self.rng.one_in(7) {
            self.resume();
        }
    }

    /// Stores the light client, and goes on with what is read.
    fn resume(&mut self) {
        let Some(client) = self.syncer.client() else { return };
        let now = self.last_read;
        let network = client.network().clone();
        let read = LightClient::from_json(&client.to_json(), network, now).expect("stored");
        assert_eq!(read.finalized().beacon, client.finalized().beacon);
        assert_eq!(read.optimistic().beacon, client.optimistic().beacon);
        // The text has the newest signed header alone, whoever signed it.
        let newest = read.supermajority().beacon.slot;
        assert!(newest <= client.supermajority().beacon.slot);
        self.supermajority = newest;
        self.syncer = Syncer::resume(read, self.config);
        self.open = None;
        self.overdue.clear();
        self.round = Round::default();
        for server in &mut self.servers {
            (server.failed_at, server.is_asked, server.newest) = (None, false, None);
            server.has_owed = false;
        }
    }

    /// Moves the clocks: time passes, or the caller's clock is wrong for a while.
    fn disturb(&mut self) {
        match self.rng.below(12) {
            0 => {
                self.time += Duration::from_secs(6 * PERIOD * self.rng.below(4) as u64);
                self.is_disturbed = true;
            }
            1 => {
                self.offset = Duration::from_secs(self.rng.below(3_000) as u64);
                self.is_early = self.rng.one_in(2);
            }
            2 => {
                self.offset = Duration::from_secs(6 * PERIOD * self.rng.below(300) as u64);
                self.is_early = true;
            }
            3..6 => self.offset = Duration::ZERO,
            _ => {}
        }
    }

    /// Runs rounds with the right clock until nothing is waited for. Returns the finalised slot, and
    /// that of the last finality update of an honest server that does not lag; 0 if the update was by
    /// fewer than two thirds.
    fn settle(&mut self) -> (u64, u64) {
        self.offset = Duration::ZERO;
        self.may_be_overdue = false;
        while !self.overdue.is_empty() {
            self.step();
        }
        // One round may have begun with a wrong clock. After an hour, every server is due.
        for wait in [Duration::ZERO, HOUR, HOUR] {
            self.time += wait;
            self.honest_newest = None;
            let rounds = self.rounds + 1;
            while self.rounds < rounds {
                self.step();
            }
        }
        (self.finalized, self.honest_newest.expect("such a server is asked in every round"))
    }
}

/// Draws servers, of which at least one is honest.
fn servers(rng: &mut Rng) -> Vec<Kind> {
    let mut kinds = vec![*rng.pick(&[Kind::Honest, Kind::NoFuture])];
    for _ in 0..rng.below(6) {
        kinds.push(match rng.below(8) {
            0 => *rng.pick(&[Kind::Honest, Kind::NoFuture]),
            1 => Kind::Lagging(rng.below(5 * 64) as u64),
            _ => *rng.pick(&Kind::LIARS),
        });
    }
    for last in (1..kinds.len()).rev() {
        kinds.swap(last, rng.below(last + 1));
    }
    kinds
}

/// Runs a schedule over a range of periods.
fn run(seed: u64, periods: Range<u64>) -> (usize, usize) {
    let mut rng = Rng::new(seed ^ 0x7379_6e63);
    let kinds = servers(&mut rng);
    let start = CHAIN.block_at(at(periods.start, rng.below(64) as u64));
    let end = at(periods.end, 0) - 1 - rng.below(50) as u64;
    // The chain grows while the client starts and follows.
    let first = start + 2 * EPOCH + rng.below(usize::try_from(end - start).expect("few")) as u64;
    let mut ends = Vec::new();
    let mut counts = (0, 0);
    for resumes in [false, true] {
        let mut run = Run::new(rng.u64(), start, &kinds, time_of(first.min(end)));
        run.resumes = resumes;
        run.may_be_overdue = seed.is_multiple_of(3);
        let rounds = 3 + rng.below(20);
        while run.rounds < rounds && run.questions < 3_000 {
            run.step();
            if run.rng.one_in(8) {
                run.disturb();
            }
        }
        run.time = run.time.max(time_of(end));
        run.resumes = false;
        ends.push(run.settle());
        counts = (counts.0 + run.rounds, counts.1 + run.questions);
    }
    for (finalized, newest) in ends {
        assert!(finalized >= newest, "{kinds:?}: {finalized} < {newest}");
    }
    counts
}

/// Returns the number of schedules and the first seed.
fn wanted(default: u64) -> Range<u64> {
    let wanted = std::env::var("CHAINSIEVE_SYNC_SCHEDULES").unwrap_or_else(|_| default.to_string());
    let (count, first) = wanted.split_once(':').unwrap_or((&wanted, "0"));
    let (count, first): (u64, u64) =
        (count.parse().expect("a count"), first.parse().expect("a seed"));
    first..first + count
}

#[test]
fn any_schedule_ends_at_the_newest_honest_block() {
    let mut sum = (0, 0);
    for seed in wanted(40 / stride(4) as u64) {
        let mut rng = Rng::new(seed);
        let length = 2 + rng.below(25) as u64;
        let first = rng.below(usize::try_from(PERIODS - length).expect("few")) as u64;
        let counts = std::panic::catch_unwind(|| run(seed, first..first + length));
        let counts = counts.unwrap_or_else(|_| panic!("seed {seed}, from period {first}"));
        sum = (sum.0 + counts.0, sum.1 + counts.1);
    }
    println!("{} rounds, {} questions", sum.0, sum.1);
}

#[test]
fn two_hundred_periods_through_all_forks() {
    println!("{:?}", run(1, 0..PERIODS));
}

/// A server that reveals one block after the other cannot delay an honest one, although the honest
/// one failed before.
#[test]
fn a_feeding_server_does_not_delay_an_honest_one() {
    let start = CHAIN.block_at(at(30, 5));
    let now = time_of(at(50, 40));
    let mut run = Run::new(5, start, &[Kind::Empty, Kind::Silent], now);
    while run.rounds < 1 {
        run.step();
    }
    assert_eq!(run.finalized, start);
    for (server, kind) in run.servers.iter_mut().zip([Kind::Feeding, Kind::Honest]) {
        server.kind = kind;
    }
    let before = run.questions;
    while run.rounds < 2 {
        run.step();
    }
    assert!(run.finalized >= CHAIN.finalized(run.slot()).expect("by two thirds"));
    let questions = run.questions - before;
    assert!(questions <= 16, "{questions} questions for 20 periods");
}

/// A server that never answers is asked once, and the round goes on without it. Whatever it sends later is
/// used at once, and takes nothing back.
#[test]
fn an_overdue_answer_delays_no_round() {
    let (start, slot) = (CHAIN.block_at(at(30, 5)), at(31, 40));
    let now = time_of(slot);
    let root = CHAIN.root(start).expect("a block");
    let mut config = Config::new(2);
    config.poll = POLL;
    let mut syncer = Syncer::start(CHAIN.world.network.clone(), root, config);
    let mut owed = None;
    let mut told = syncer.handle(Event::Tick, now);
    while let Some(open) = syncer.open() {
        told = if open.server == 0 {
            assert_eq!(owed.replace(open), None, "asked again");
            syncer.handle(Event::Overdue(open.id), now)
        } else {
            // The other server lags.
            let sent = honest(open.request, slot - 2 * EPOCH);
            syncer.handle(Event::Answer(open.id, sent.answer()), now)
        };
    }
    let owed = owed.expect("the first server is asked first");
    assert_eq!(syncer.overdue(), [owed]);
    assert_eq!(told.last(), Some(&Action::RoundEnded { answered: 1 }));
    let before = syncer.client().expect("started").finalized().beacon.slot;
    assert_eq!(Some(before), CHAIN.finalized(slot - 2 * EPOCH));
    // In the next round, it is not asked.
    let later = syncer.wake_at().expect("a pause");
    let told = syncer.handle(Event::Tick, later);
    let asked: Vec<_> = told.iter().filter(|action| matches!(action, Action::Ask(_))).collect();
    assert!(matches!(asked[..], [Action::Ask(OpenQuestion { server: 1, .. })]), "{told:?}");
    // Its bootstrap is older than what is known.
    let sent = honest(owed.request, slot);
    let told = syncer.handle(Event::Answer(owed.id, sent.answer()), later);
    assert!(told.is_empty() && syncer.overdue().is_empty(), "{told:?}");
    assert_eq!(syncer.client().expect("started").finalized().beacon.slot, before);
    // From now on, it is asked again, and its late answer moves the client between two rounds.
    let mut owed = None;
    let mut told = Vec::new();
    while let Some(open) = syncer.open() {
        told = if open.server == 0 {
            owed = Some(open);
            syncer.handle(Event::Overdue(open.id), later)
        } else {
            syncer.handle(Event::Answer(open.id, Answer::Updates(&[])), later)
        };
    }
    assert!(matches!(told.last(), Some(Action::RoundEnded { answered })  if *answered > 0));
    let owed = owed.expect("asked again");
    let sent = honest(owed.request, slot);
    let _ = syncer.handle(Event::Answer(owed.id, sent.answer()), later);
    let finalized = syncer.client().expect("started").finalized().beacon.slot;
    assert!(finalized > before && Some(finalized) == CHAIN.finalized(slot), "{finalized}");
}

/// If nobody has answered, the round waits for an overdue answer, but not for longer than a poll.
#[test]
fn a_round_without_an_answer_waits_for_a_slow_server() {
    let (start, slot) = (CHAIN.block_at(at(30, 5)), at(31, 40));
    let (root, now) = (CHAIN.root(start).expect("a block"), time_of(slot));
    for answers in [true, false] {
        let mut config = Config::new(1);
        config.poll = POLL;
        let mut syncer = Syncer::start(CHAIN.world.network.clone(), root, config);
        let _ = syncer.handle(Event::Tick, now);
        let open = syncer.open().expect("a question");
        assert_eq!(syncer.handle(Event::Overdue(open.id), now), []);
        assert!(syncer.is_in_round() && syncer.open().is_none());
        assert_eq!(syncer.wake_at(), Some(now + POLL));
        if answers {
            let later = now + POLL / 2;
            let sent = honest(open.request, slot);
            let told = syncer.handle(Event::Answer(open.id, sent.answer()), later);
            assert_eq!(told.first(), Some(&Action::Started));
            assert!(matches!(told.last(), Some(Action::Ask(_))), "{told:?}");
        } else {
            let told = syncer.handle(Event::Tick, now + POLL);
            assert_eq!(told, [Action::RoundEnded { answered: 0 }]);
        }
    }
}

/// A clock that was years early, and is set right, does not leave the client in the future.
#[test]
fn a_clock_that_was_early() {
    let start = CHAIN.block_at(at(30, 5));
    let mut run = Run::new(6, start, &[Kind::NoFuture], time_of(at(33, 10)));
    while run.rounds < 1 {
        run.step();
    }
    let before = run.finalized;
    (run.offset, run.is_early) = (HOUR * 24 * 1_000, true);
    while run.rounds < 3 {
        run.step();
    }
    assert!(run.finalized >= before);
    run.time = time_of(at(36, 20));
    let (finalized, newest) = run.settle();
    assert!(newest > 0 && finalized >= newest, "{finalized}, {newest}");
}

/// A clock that is late at the start: the honest server is not accused, and once the clock is right,
/// the client starts.
#[test]
fn a_clock_that_is_late_at_the_start() {
    let start = CHAIN.block_at(at(30, 5));
    let bootstrap = CHAIN.bootstrap(start);
    let root = bootstrap.header.beacon.root();
    let mut syncer = Syncer::start(CHAIN.world.network.clone(), root, Config::new(1));
    let ask = |syncer: &mut Syncer, now: Duration| match &syncer.handle(Event::Tick, now)[..] {
        [Action::Ask(open)] if open.request == Request::Bootstrap(root) => open.id,
        other => panic!("{other:?}"),
    };
    let late = time_of(start).saturating_sub(Duration::from_secs(1));
    let id = ask(&mut syncer, late);
    let answer = Event::Answer(id, Answer::Bootstrap(&bootstrap));
    match &syncer.handle(answer, late)[..] {
        [Action::Refused { refusal, .. }, Action::RoundEnded { answered: 0 }] => {
            assert!(matches!(refusal, LightClientError::FutureCheckpoint { .. }), "{refusal}");
            assert!(refusal.is_about_progress());
        }
        other => panic!("{other:?}"),
    }
    let right = syncer.wake_at().expect("a pause");
    let id = ask(&mut syncer, right);
    let actions = syncer.handle(Event::Answer(id, Answer::Bootstrap(&bootstrap)), right);
    assert_eq!(actions[0], Action::Started);
}

/// A valid answer does not make up for an object in the same round that is proven invalid.
#[test]
fn a_server_with_a_false_object_has_not_answered() {
    let start = CHAIN.block_at(at(30, 5));
    let slot = at(31, 40);
    for (is_false, expected) in [(false, 1), (true, 0)] {
        let mut config = Config::new(1);
        config.optimistic = true;
        let root = CHAIN.root(start).expect("a block");
        let mut syncer = Syncer::start(CHAIN.world.network.clone(), root, config);
        let mut actions = syncer.handle(Event::Tick, time_of(slot));
        let mut asked = Vec::new();
        while let Some(open) = syncer.open() {
            let mut sent = honest(open.request, slot);
            if is_false
                && open.request == Request::Optimistic
                && let Sent::Updates(updates) = &mut sent
            {
                updates[0].aggregate.signature.0[5] ^= 1;
            }
            asked.push(open.request);
            actions = syncer.handle(Event::Answer(open.id, sent.answer()), time_of(slot));
        }
        assert_eq!(asked.last(), Some(&Request::Optimistic));
        assert_eq!(actions.last(), Some(&Action::RoundEnded { answered: expected }));
        let refused = actions.iter().any(|action| matches!(action, Action::Refused { .. }));
        assert_eq!((syncer.answered(), refused), (expected, is_false));
    }
}
