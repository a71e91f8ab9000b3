//! Keeps a light client up to date by several servers of the Beacon API. Any of them may be silent,
//! late or false. The module is a state machine without sockets, clock or files.
//!
//! A false answer never moves the light client, because [`LightClient`] verifies each answer. A
//! server can only withhold newer headers. So each round asks every server, and after a round the
//! light client is at least as new as the newest finality update that an honest server sent and two
//! thirds of the committee signed.
//!
//! # How to drive it
//! 1. Create a [`Syncer`] from a trusted block root ([`Syncer::start`]), or from a light client that
//!    was stored ([`Syncer::resume`]).
//! 2. Pass every occurrence to [`Syncer::handle`] as an [`Event`], starting with [`Event::Tick`].
//!    The argument `now` is the [current time](crate#time).
//! 3. Carry out the returned [`Action`]s. At most one question is open at a time, and the caller answers
//!    each question: with a timeout, by [`Answer::Failed`]. If the answer takes longer than the caller
//!    wants to wait, [`Event::Overdue`] allows questions to the other servers in the meantime.
//! 4. Store [`LightClient::to_json`] after an [`Action::Client`], before the new header is used. An
//!    older stored light client is valid too, and only repeats some requests.
//! 5. Send [`Event::Tick`] at the time that [`Syncer::wake_at`] returns.
//!
//! # Rounds
//! In the first part of a round, the updates of missing periods are requested, from one server after
//! the other. If an answer brings progress, this part restarts, with the next server first. The part
//! ends when no server brings progress. In the second part, every server is asked for its newest
//! finality update. If one of the answers brought progress, both parts are repeated.
//! [`Action::RoundEnded`] follows, and the next round begins after [`Config::poll`].
//!
//! Of the servers that are due, the server with the fewest turns in this round is next. So a server
//! that reveals one block after the other cannot delay an honest server. A round has at most
//! `2 · servers · (n + 1)` questions, where `n` is the number of answers that brought progress plus
//! the number of periods that began meanwhile.
//!
//! With [`Config::optimistic`], every server is asked for its newest optimistic update at the end of the
//! round: one more question for each server. The header of this update is usually that of the last slot,
//! two to three epochs newer than the finalised header. It is signed, but not final. After the round,
//! [`LightClient::supermajority`] is at least as new as the newest header that an honest server sent and
//! that two thirds of the committee signed, whatever other servers sent.
//!
//! A server whose answer failed or was refused is asked less and less often, at least once an hour.
//!
//! # Overdue answers
//! A server with an overdue answer gets no further question, and the round continues without it: the
//! statements above about every server then hold only for the other servers. A late answer is used
//! whenever it arrives, also between two rounds. If each server that answered in a round has another
//! answer overdue, the round waits for these answers, for at most [`Config::poll`] after its start.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use alloy_primitives::B256;

use super::network::Network;
use super::sync_committee::{self, Bootstrap, LightClient, LightClientError, Request, Update};
use crate::steady_clock::SteadyClock;

/// Longest time for which a server is not asked after failures.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// Configuration of a [`Syncer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Number of servers, at least 1.
    pub servers: usize,
    /// Time between two rounds; 2 minutes by default. A newer block is finalised every 6.4 minutes.
    pub poll: Duration,
    /// `true` if servers are also asked for headers that are not final; `false` by default.
    pub optimistic: bool,
}

impl Config {
    /// Returns the default configuration for this number of servers.
    pub const fn new(servers: usize) -> Self {
        Self { servers, poll: Duration::from_secs(2 * 60), optimistic: false }
    }
}

/// A question that a server has not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenQuestion {
    /// Number of the question, which its answer repeats. Numbers ascend.
    pub id: u64,
    /// Index of the server, less than [`Config::servers`].
    pub server: usize,
    /// The request. The answer to a [`Request::Bootstrap`] is an [`Answer::Bootstrap`]. The answer to any
    /// other request is an [`Answer::Updates`].
    pub request: Request,
}

/// Answer of a server.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// The bootstrap of a block.
    Bootstrap(&'a Bootstrap),
    /// Updates, in the order of the server.
    Updates(&'a [Update]),
    /// The server did not answer, or the answer is malformed.
    Failed,
}

/// Input of a [`Syncer`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Time has passed.
    Tick,
    /// A server answered the question with this number. The answer is ignored unless this question
    /// is the open one or overdue.
    Answer(u64, Answer<'a>),
    /// The answer to the open question, which has this number, takes too long. Other servers are
    /// asked before the answer arrives.
    Overdue(u64),
}

/// Output of a [`Syncer`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Ask a server.
    Ask(OpenQuestion),
    /// The light client has started: [`Syncer::client`] returns it.
    Started,
    /// The light client has learnt something new.
    Client(sync_committee::Action),
    /// An object of a server is invalid, or not valid yet by the caller's clock.
    Refused {
        /// Index of the server.
        server: usize,
        /// The reason. [`LightClientError::is_about_progress`] tells the two cases apart.
        refusal: LightClientError,
    },
    /// Every server that was due was asked for its newest update.
    RoundEnded {
        /// Number of servers that answered, and sent nothing that is proven invalid. The answer need not
        /// contain anything new. If the number is 0, nothing is known about newer blocks.
        answered: usize,
    },
}

/// The believed state: a root until a server has sent the bootstrap, then a light client.
#[derive(Debug, Clone)]
enum ClientState {
    Root(Network, B256),
    Client(Box<LightClient>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The bootstrap, or the updates of missing periods.
    Missing,
    /// The newest finality update.
    Newest,
    /// The newest optimistic update.
    Optimistic,
    /// Between two rounds.
    Pause,
}

#[derive(Debug, Clone, Copy, Default)]
struct Server {
    /// Number of failed or refused answers in a row.
    failures: u32,
    /// The server is not asked before this time.
    retry_at: Duration,
    /// `true` if the server was asked in this part of the round.
    is_asked: bool,
    /// Number of questions to the server in this round.
    turns: u32,
    /// `true` if the server gave a valid answer in this round.
    has_answered: bool,
    /// `true` if the server sent an object in this round that is proven invalid.
    is_refused: bool,
}

/// Time of an event.
#[derive(Debug, Clone, Copy)]
struct Time {
    /// Time by the caller's clock, which tells the current slot. If the clock was ahead and is then
    /// corrected, the light client must not stay in a future period.
    clock: Duration,
    /// Time that is never set back, for waits.
    steady: Duration,
}

/// Keeps a light client up to date. See the [module](self) for how to drive it.
#[derive(Debug, Clone)]
pub struct Syncer {
    state: ClientState,
    config: Config,
    servers: Vec<Server>,
    part: Part,
    /// `true` if a finality update or an overdue answer brought progress in this round. The light client
    /// may then be in a period whose next committee is unknown.
    has_moved: bool,
    /// The first period after those whose updates were requested in this round.
    sought: u64,
    /// The server that is asked first, if no other server has fewer failures.
    first: usize,
    open: Option<OpenQuestion>,
    /// Questions that wait for a late answer, at most one for each server.
    overdue: Vec<OpenQuestion>,
    last_question: u64,
    /// Time at which the round began. Only servers that were due at this time are asked in the round: a
    /// server that is due later was not asked for missing updates, so that its newest update might not be
    /// verifiable.
    began: Duration,
    /// Time of the next round.
    round_at: Duration,
    clock: SteadyClock,
    actions: Vec<Action>,
}

impl Syncer {
    /// Starts from a block whose root the caller trusts. See [`LightClient::new`].
    pub fn start(network: Network, trusted_root: B256, config: Config) -> Self {
        Self::new(ClientState::Root(network, trusted_root), config)
    }

    /// Continues with a light client.
    pub fn resume(client: LightClient, config: Config) -> Self {
        Self::new(ClientState::Client(Box::new(client)), config)
    }

    fn new(state: ClientState, config: Config) -> Self {
        Self {
            state,
            config,
            servers: alloc::vec![Server::default(); config.servers.max(1)],
            part: Part::Pause,
            has_moved: false,
            sought: 0,
            first: 0,
            open: None,
            overdue: Vec::new(),
            last_question: 0,
            began: Duration::ZERO,
            round_at: Duration::ZERO,
            clock: SteadyClock::default(),
            actions: Vec::new(),
        }
    }

    /// Returns the light client; `None` until a server has sent the bootstrap.
    pub const fn client(&self) -> Option<&LightClient> {
        match &self.state {
            ClientState::Client(client) => Some(client),
            ClientState::Root(..) => None,
        }
    }

    /// Returns the root of the block that the caller trusted first.
    pub fn trusted_root(&self) -> B256 {
        match &self.state {
            ClientState::Root(_, root) => *root,
            ClientState::Client(client) => client.trust().checkpoint.root,
        }
    }

    /// Returns the open question: the question of the last [`Action::Ask`], until it is answered or
    /// overdue.
    pub const fn open(&self) -> Option<OpenQuestion> {
        self.open
    }

    /// Returns the questions whose answers are overdue, at most one for each server.
    pub fn overdue(&self) -> &[OpenQuestion] {
        &self.overdue
    }

    /// Returns `true` from the first question of a round to [`Action::RoundEnded`].
    pub fn is_in_round(&self) -> bool {
        self.part != Part::Pause
    }

    /// Returns the number of servers that answered in this round, and sent nothing that is proven
    /// invalid; between two rounds, the number of the last round.
    pub fn answered(&self) -> usize {
        self.servers.iter().filter(|server| server.has_answered && !server.is_refused).count()
    }

    /// Returns the time of the caller's clock at which [`Event::Tick`] must be sent; `None` while a
    /// question is open.
    pub fn wake_at(&self) -> Option<Duration> {
        let at = if self.is_in_round() { self.waits_until() } else { self.round_at };
        self.open.is_none().then(|| self.clock.to_callers(at))
    }

    /// Handles an event at the time `now`, and returns the actions. `now` is the
    /// [current time](crate#time).
    ///
    /// # Cost
    /// That of [`LightClient::new`] for a bootstrap, and of [`LightClient::handle`] for each update.
    #[must_use]
    pub fn handle(&mut self, event: Event<'_>, now: Duration) -> Vec<Action> {
        let now = Time { clock: now, steady: self.clock.read(now) };
        match event {
            Event::Tick => {}
            Event::Overdue(id) => {
                self.overdue.extend(self.open.take_if(|open| open.id == id));
            }
            Event::Answer(id, answer) => {
                if let Some(open) = self.take(id) {
                    self.answer(open, answer, now);
                }
            }
        }
        if self.open.is_none() {
            self.ask(now);
        }
        core::mem::take(&mut self.actions)
    }

    /// Removes the open or an overdue question.
    fn take(&mut self, id: u64) -> Option<OpenQuestion> {
        self.open.take_if(|open| open.id == id).or_else(|| {
            let at = self.overdue.iter().position(|overdue| overdue.id == id)?;
            Some(self.overdue.remove(at))
        })
    }

    /// Asks the next server, and enters the next part of the round if there is none.
    fn ask(&mut self, now: Time) {
        if self.part == Part::Pause {
            if now.steady < self.round_at {
                return;
            }
            self.enter(Part::Missing);
            (self.sought, self.has_moved) = (0, false);
            self.began = now.steady;
            for server in &mut self.servers {
                (server.has_answered, server.is_refused, server.turns) = (false, false, 0);
            }
        }
        loop {
            if let Some(request) = self.request(now.clock)
                && let Some(server) = self.next_server()
            {
                if self.part == Part::Missing {
                    self.sought = self.sought.max(self.missing(now.clock));
                }
                self.last_question += 1;
                let id = self.last_question;
                self.servers[server].is_asked = true;
                self.servers[server].turns = self.servers[server].turns.saturating_add(1);
                self.first = (server + 1) % self.servers.len();
                let open = OpenQuestion { id, server, request };
                self.open = Some(open);
                return self.actions.push(Action::Ask(open));
            }
            match self.part {
                // Without a light client, there is nothing to update.
                Part::Missing if self.client().is_some() => self.enter(Part::Newest),
                Part::Newest | Part::Optimistic if core::mem::take(&mut self.has_moved) => {
                    self.enter(Part::Missing);
                }
                // A period began meanwhile, and its committee is not known yet: the newest finality
                // updates could not be verified.
                Part::Newest if self.missing(now.clock) > self.sought => {
                    // Noted here too, because perhaps no server is due.
                    self.sought = self.missing(now.clock);
                    self.enter(Part::Missing);
                }
                Part::Newest if self.config.optimistic => self.enter(Part::Optimistic),
                _ if self.needs_overdue() && now.steady < self.waits_until() => return,
                _ => return self.end_round(now.steady),
            }
        }
    }

    /// Returns `true` if answers are overdue, and every server that answered in this round has an overdue
    /// answer: without these answers, the round reveals nothing about newer headers, and the servers may
    /// just be slow.
    fn needs_overdue(&self) -> bool {
        let has_answered = |(at, server): (usize, &Server)| {
            server.has_answered && !server.is_refused && !self.is_overdue(at)
        };
        !self.overdue.is_empty() && !self.servers.iter().enumerate().any(has_answered)
    }

    /// Returns the time until which a round that needs overdue answers waits for them.
    const fn waits_until(&self) -> Duration {
        self.began.saturating_add(self.config.poll)
    }

    fn is_overdue(&self, server: usize) -> bool {
        self.overdue.iter().any(|overdue| overdue.server == server)
    }

    /// Returns the first period after those whose updates are missing; 0 if none is missing.
    fn missing(&self, now: Duration) -> u64 {
        match self.client().map(|client| client.request(now)) {
            Some(Request::Updates { start_period, count }) => start_period.saturating_add(count),
            _ => 0,
        }
    }

    fn enter(&mut self, part: Part) {
        self.part = part;
        for server in &mut self.servers {
            server.is_asked = false;
        }
    }

    fn end_round(&mut self, now: Duration) {
        self.enter(Part::Pause);
        self.round_at = now.saturating_add(self.config.poll);
        self.actions.push(Action::RoundEnded { answered: self.answered() });
    }

    /// Returns what this part of the round requests, if anything.
    fn request(&self, now: Duration) -> Option<Request> {
        let client = match &self.state {
            ClientState::Root(_, root) => return Some(Request::Bootstrap(*root)),
            ClientState::Client(client) => client,
        };
        match (self.part, client.request(now)) {
            (Part::Missing, request @ Request::Updates { .. }) => Some(request),
            (Part::Newest, _) => Some(Request::Finality),
            (Part::Optimistic, _) => Some(Request::Optimistic),
            _ => None,
        }
    }

    /// Returns the next server of this part: a server with the fewest turns in this round, and among
    /// these servers one with the fewest failures.
    fn next_server(&self) -> Option<usize> {
        let count = self.servers.len();
        let in_turn = (0..count).map(|at| (self.first + at) % count);
        let due = in_turn.filter(|&at| {
            let server = &self.servers[at];
            !server.is_asked && server.retry_at <= self.began && !self.is_overdue(at)
        });
        due.min_by_key(|&at| (self.servers[at].turns, self.servers[at].failures))
    }

    fn answer(&mut self, open: OpenQuestion, answer: Answer<'_>, now: Time) {
        let OpenQuestion { server, request, .. } = open;
        let (progress, refusal) = match (request, answer) {
            (_, Answer::Failed) => return self.failed(server, now.steady),
            (Request::Bootstrap(_), Answer::Bootstrap(bootstrap)) => {
                self.begin(bootstrap, now.clock)
            }
            (Request::Bootstrap(_), _) | (_, Answer::Bootstrap(_)) => {
                (false, Some(LightClientError::OtherKind))
            }
            (_, Answer::Updates(updates)) => {
                // No more than was requested is verified, because each update costs time.
                let most = match request {
                    Request::Updates { count, .. } => usize::try_from(count).unwrap_or(usize::MAX),
                    _ => 1,
                };
                self.update(&updates[..updates.len().min(most)], now.clock)
            }
        };
        match self.part {
            // All servers may have more now, also those that had nothing before.
            Part::Missing if progress => self.enter(Part::Missing),
            _ => self.has_moved |= progress && request != Request::Optimistic,
        }
        if let Some(refusal) = refusal {
            self.servers[server].is_refused |= !refusal.is_about_progress();
            self.actions.push(Action::Refused { server, refusal });
            return self.failed(server, now.steady);
        }
        let server = &mut self.servers[server];
        (server.failures, server.has_answered) = (0, true);
    }

    /// Counts a failure. The server is asked again after a wait that doubles each time; the first
    /// time, in the next round.
    fn failed(&mut self, server: usize, now: Duration) {
        let server = &mut self.servers[server];
        let doubled = 1_u32.checked_shl(server.failures).unwrap_or(u32::MAX);
        let wait = self.config.poll.saturating_mul(doubled).min(LONGEST_WAIT);
        server.retry_at = now.saturating_add(wait);
        server.failures = server.failures.saturating_add(1);
        server.is_asked = true;
    }

    /// Starts the light client. Returns `true` on success.
    fn begin(&mut self, bootstrap: &Bootstrap, now: Duration) -> (bool, Option<LightClientError>) {
        let ClientState::Root(network, root) = &self.state else { return (false, None) };
        match LightClient::new(network.clone(), *root, bootstrap, now) {
            Ok(client) => {
                self.state = ClientState::Client(Box::new(client));
                self.actions.push(Action::Started);
                (true, None)
            }
            Err(error) => (false, Some(error)),
        }
    }

    /// Applies updates up to the first invalid one. Returns `true` if one of them brought progress.
    fn update(&mut self, updates: &[Update], now: Duration) -> (bool, Option<LightClientError>) {
        let ClientState::Client(client) = &mut self.state else { return (false, None) };
        let mut progress = false;
        for update in updates {
            match client.handle(sync_committee::Event::Update(update), now) {
                Ok(actions) => {
                    let is_new = |action: &sync_committee::Action| {
                        !matches!(action, sync_committee::Action::Optimistic(_))
                    };
                    progress |= actions.iter().any(is_new);
                    self.actions.extend(actions.into_iter().map(Action::Client));
                }
                // An honest server that lags sends what is known already.
                Err(error) if error.is_about_progress() => {}
                Err(error) => return (progress, Some(error)),
            }
        }
        (progress, None)
    }
}
