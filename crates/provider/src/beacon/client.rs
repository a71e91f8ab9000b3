//! A light client of the beacon chain that asks servers and keeps its state in a folder.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync::{Action, Answer, Event, OpenQuestion, Syncer};
use chainsieve::eth::anchor::sync_committee::{
    self, Anchor, Bootstrap, LightClient, Request, Update,
};
use thiserror::Error;

use super::server::BeaconServer;
use crate::durable_file::{self, DurableFile, FileError};
use crate::error::BuildError;
use crate::nodes::RpcError;
use crate::nodes::transport::unix_time;
use crate::report::{Note, Stage};
use crate::stop::{Stop, lock};

/// Minimum time between two rounds of [`BeaconClient::watch`].
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// Time for which [`BeaconClient::advance`] waits for a server before it asks the next server: a sixth
/// of a slot.
const PROMPT: Duration = Duration::from_secs(2);
/// Longest delay after which a stop is noticed during a wait for servers.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// Name of the file in the folder.
pub(super) const FILE: &str = "light-client.json";

/// Light client of the beacon chain: proves the hashes of finalised blocks, without trust in a
/// server.
///
/// It starts from a checkpoint: the root of a finalised beacon block that the caller trusts. As an
/// [`AnchorSource`](crate::AnchorSource), it returns the newest finalised execution block.
///
/// ```no_run
/// use chainsieve::eth::anchor::network::Network;
/// use chainsieve_provider::{BeaconClient, Provider};
/// let checkpoint = "0x9bcb90ec3a294591b77dd2a58e973578715cdc0e6eeeb286bc06dd120057f18b";
/// let beacon = BeaconClient::builder(Network::mainnet())
///     .checkpoint(checkpoint.parse()?)
///     .url("https://beacon.example")
///     .build()?;
/// let provider = Provider::builder().url("https://mainnet.example").anchor(beacon).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BeaconClient {
    pub(super) servers: Vec<BeaconServer>,
    pub(super) stop: Stop,
    pub(super) poll: Duration,
    /// `true` if the servers are asked for the newest signed header.
    pub(super) optimistic: bool,
    /// A lock that is held while servers are asked, so that two calls do not ask the same question.
    pub(super) round: Mutex<Requests>,
    /// A lock that is never held during a request: a server that stalls does not delay readers of
    /// the light client.
    pub(super) state: Mutex<State>,
}

/// Requests of threads whose answers may come late.
#[derive(Debug)]
pub(super) struct Requests {
    sender: Sender<Came>,
    came: Receiver<Came>,
    /// The last question that a thread sent. Numbers of questions ascend.
    sent: Option<u64>,
}

/// A question, and the result of its request.
type Came = (OpenQuestion, Result<Received, RpcError>);

#[derive(Debug)]
pub(super) struct State {
    pub(super) syncer: Syncer,
    pub(super) file: Option<DurableFile>,
    /// `true` if the light client has learnt something that is not stored yet.
    pub(super) is_new: bool,
}

/// Result of asking every server once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BeaconRound {
    /// The newest finalised header.
    pub finalized: Anchor,
    /// The newest signed header. It may leave the chain again, and right after a start, few members of
    /// the committee may have signed it: see its [grade](Anchor::grade). Without
    /// [`BeaconBuilder::optimistic`](super::BeaconBuilder::optimistic), it is the newest signed header
    /// among the updates that were needed anyway.
    pub optimistic: Anchor,
    /// Number of servers that answered in the last round, and sent nothing that is proven invalid.
    /// If this is 0, nothing is known about newer headers.
    pub answered: usize,
    /// Reasons why servers did not answer, and the invalid objects that servers sent.
    pub failures: Vec<ServerFailure>,
}

/// Reason why a server's answer was not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFailure {
    /// Scheme, host and port of the server.
    pub server: String,
    /// `true` if the server sent an object that is proven invalid: by a false proof or signature.
    pub is_proven: bool,
    /// The reason.
    pub why: String,
}

impl fmt::Display for ServerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.server, self.why)
    }
}

/// Objects that a server sent.
#[derive(Debug)]
enum Received {
    Bootstrap(Box<Bootstrap>),
    Updates(Vec<Update>),
}

impl BeaconClient {
    /// Reads the light client in a folder, also while another process uses the folder; `None` if
    /// the folder has no light client.
    ///
    /// # Errors
    /// Returns a [`BeaconError`] if the file cannot be read, or is damaged.
    pub fn read(folder: &Path, network: Network) -> Result<Option<LightClient>, BeaconError> {
        let path = folder.join(FILE);
        let Some(text) = durable_file::read(&path, MAX_FILE)? else { return Ok(None) };
        let client = LightClient::from_json(&text, network, unix_time());
        Ok(Some(client.map_err(|error| FileError::invalid(&path, &error))?))
    }

    /// Returns the servers, in the order in which they were given.
    pub fn servers(&self) -> &[BeaconServer] {
        &self.servers
    }

    /// Returns a copy of the light client; `None` until a server has sent the bootstrap.
    pub fn light_client(&self) -> Option<LightClient> {
        lock(&self.state).syncer.client().cloned()
    }

    /// Asks every server for newer headers, and stores the headers that became known. If the servers were
    /// asked less than the [poll interval](super::BeaconBuilder::poll) ago, or if there are none, no
    /// request is sent.
    ///
    /// The result is valid even if servers fail: its [`answered`](BeaconRound::answered) tells how many
    /// servers could have sent newer blocks. A server that never answers costs the time of all attempts of
    /// its requests: [`advance`](Self::advance) does not wait for such a server.
    ///
    /// # Errors
    /// Returns a [`BeaconError`] if nothing is known yet and no server has a valid bootstrap, if the
    /// folder cannot be written, or if the client was stopped.
    pub fn sync(&self) -> Result<BeaconRound, BeaconError> {
        self.ask(false)
    }

    /// Asks the servers like [`sync`](Self::sync), and does not wait longer than two seconds for a server
    /// if another one answers. The late server is one of the [failures](BeaconRound::failures), and gets
    /// no further request before it has answered. A later call uses its answer. So a server that never
    /// answers delays neither a start nor newer headers.
    ///
    /// # Errors
    /// Returns the errors of [`sync`](Self::sync).
    pub fn advance(&self) -> Result<BeaconRound, BeaconError> {
        self.ask(true)
    }

    /// Asks the servers. If `is_prompt`, servers that do not answer do not delay the others.
    fn ask(&self, is_prompt: bool) -> Result<BeaconRound, BeaconError> {
        let mut requests = lock(&self.round);
        let mut state = lock(&self.state);
        let mut failures = Vec::new();
        let mut from = None;
        while let Ok(came) = requests.came.try_recv() {
            self.take(&mut state, came, &mut failures)?;
        }
        if !self.servers.is_empty() {
            let actions = state.syncer.handle(Event::Tick, unix_time());
            self.carry_out(&mut state, actions, &mut failures);
        }
        loop {
            state.store()?;
            // A question of a call that ended with an error is still open.
            let open = state.syncer.open();
            let is_sent = open.is_some_and(|open| requests.sent >= Some(open.id));
            let wait = match open {
                Some(open) => {
                    let server = &self.servers[open.server];
                    if !is_sent {
                        progress(&state.syncer, server, &mut from);
                    }
                    is_prompt.then_some(PROMPT)
                }
                // Nobody has answered yet.
                None if state.syncer.is_in_round() => {
                    let wake_at = state.syncer.wake_at().unwrap_or_default();
                    Some(wake_at.saturating_sub(unix_time()))
                }
                // Without a light client, there is nothing to return.
                None if is_prompt
                    && state.syncer.client().is_none()
                    && !state.syncer.overdue().is_empty() =>
                {
                    None
                }
                None => break,
            };
            drop(state);
            let came = match open.filter(|_| !is_sent) {
                Some(open) if !is_prompt => {
                    let server = &self.servers[open.server];
                    Some((open, ask(server, open.request)))
                }
                open => {
                    if let Some(open) = open {
                        requests.send(open, &self.servers[open.server]);
                    }
                    requests.receive(wait, &self.stop)?
                }
            };
            state = lock(&self.state);
            match (came, state.syncer.open()) {
                (Some(came), _) => self.take(&mut state, came, &mut failures)?,
                (None, open) => {
                    let event = open.map_or(Event::Tick, |open| Event::Overdue(open.id));
                    let actions = state.syncer.handle(event, unix_time());
                    self.carry_out(&mut state, actions, &mut failures);
                }
            }
        }
        if is_prompt {
            failures.extend(state.syncer.overdue().iter().map(|overdue| ServerFailure {
                server: self.servers[overdue.server].endpoint().to_string(),
                is_proven: false,
                why: "no answer yet".to_owned(),
            }));
        }
        let Some(client) = state.syncer.client() else {
            let checkpoint = state.syncer.trusted_root();
            return Err(BeaconError::NoBootstrap { checkpoint, failures });
        };
        let (finalized, optimistic) = (client.finalized().clone(), client.optimistic().clone());
        Ok(BeaconRound { finalized, optimistic, answered: state.syncer.answered(), failures })
    }

    /// Passes an answer to the machine.
    fn take(
        &self,
        state: &mut State,
        (question, received): Came,
        failures: &mut Vec<ServerFailure>,
    ) -> Result<(), BeaconError> {
        let received = match received {
            Ok(received) => Some(received),
            Err(RpcError::Stopped) => return Err(BeaconError::Stopped),
            Err(error) => {
                let why = error.to_string();
                let server = &self.servers[question.server];
                server.transport.note(&Note::NoChain(why.clone()));
                let server = server.endpoint().to_string();
                failures.push(ServerFailure { server, is_proven: false, why });
                None
            }
        };
        let answer = match &received {
            Some(Received::Bootstrap(bootstrap)) => Answer::Bootstrap(bootstrap),
            Some(Received::Updates(updates)) => Answer::Updates(updates),
            None => Answer::Failed,
        };
        let actions = state.syncer.handle(Event::Answer(question.id, answer), unix_time());
        self.carry_out(state, actions, failures);
        Ok(())
    }

    /// Notes what must be stored, and which objects are refused.
    fn carry_out(
        &self,
        state: &mut State,
        actions: Vec<Action>,
        failures: &mut Vec<ServerFailure>,
    ) {
        for action in actions {
            match action {
                Action::Started => state.is_new = true,
                Action::Client(action) => {
                    state.is_new |= !matches!(action, sync_committee::Action::Optimistic(_));
                }
                Action::Refused { server, refusal } => {
                    let server = &self.servers[server];
                    let (is_proven, why) = (!refusal.is_about_progress(), refusal.to_string());
                    let note = if is_proven { Note::Refused } else { Note::NoChain };
                    server.transport.note(&note(why.clone()));
                    let server = server.endpoint().to_string();
                    failures.push(ServerFailure { server, is_proven, why });
                }
                // The machine keeps the open question, and how many servers answered.
                _ => {}
            }
        }
    }

    /// Asks the servers for newer headers until [stopped](super::BeaconBuilder::stop), and passes each
    /// round to `on_round`. A server that does not answer [delays](Self::advance) nothing.
    ///
    /// # Errors
    /// Returns the errors of [`advance`](Self::advance), except [`BeaconError::Stopped`].
    pub fn watch(&self, mut on_round: impl FnMut(&BeaconRound)) -> Result<(), BeaconError> {
        while !self.stop.is_set() {
            match self.advance() {
                Ok(round) => on_round(&round),
                Err(BeaconError::Stopped) => return Ok(()),
                Err(error) => return Err(error),
            }
            let wake_at = lock(&self.state).syncer.wake_at().unwrap_or_default();
            let wait = wake_at.saturating_sub(unix_time()).min(self.poll);
            self.stop.wait_timeout(wait.max(SHORTEST_WAIT));
        }
        Ok(())
    }
}

impl Requests {
    pub(super) fn new() -> Self {
        let (sender, came) = mpsc::channel();
        Self { sender, came, sent: None }
    }

    /// Asks a server in a thread of its own.
    fn send(&mut self, question: OpenQuestion, server: &BeaconServer) {
        let (server, sender) = (server.clone(), self.sender.clone());
        let request = move || {
            // A callback for notes that panics must not leave the question open for ever.
            let received = catch_unwind(AssertUnwindSafe(|| ask(&server, question.request)));
            let ended = |_| Err(RpcError::Transport("the request panicked".into()));
            // Nobody may be there to hear it.
            drop(sender.send((question, received.unwrap_or_else(ended))));
        };
        let thread = thread::Builder::new().name("chainsieve-beacon".into()).spawn(request);
        if let Err(error) = thread {
            let error = RpcError::Transport(format!("cannot start a thread: {error}"));
            drop(self.sender.send((question, Err(error))));
        }
        self.sent = Some(question.id);
    }

    /// Waits for an answer of any server, without a limit if `wait` is `None`. Returns `None` if no
    /// answer arrived in this time.
    fn receive(&self, wait: Option<Duration>, stop: &Stop) -> Result<Option<Came>, BeaconError> {
        let began = Instant::now();
        loop {
            let left = wait.map(|wait| wait.saturating_sub(began.elapsed()));
            match self.came.recv_timeout(left.unwrap_or(STOP_CHECK).min(STOP_CHECK)) {
                Ok(came) => return Ok(Some(came)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if stop.is_set() => {
                    return Err(BeaconError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) if left.is_some_and(|left| left <= STOP_CHECK) => {
                    return Ok(None);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl State {
    /// Stores the light client if it has learnt something new. The stored state is durable when this
    /// method returns.
    fn store(&mut self) -> Result<(), BeaconError> {
        if self.is_new
            && let (Some(file), Some(client)) = (&self.file, self.syncer.client())
        {
            file.write(&client.to_json())?;
        }
        self.is_new = false;
        Ok(())
    }
}

/// Reports how many of the missing periods are done, before a server is asked for the next periods.
fn progress(syncer: &Syncer, server: &BeaconServer, from: &mut Option<u64>) {
    let Some(client) = syncer.client() else { return };
    let network = client.network();
    let period = network.period_of_slot(client.finalized().beacon.slot);
    let now = network.slot_at(unix_time()).map_or(period, |slot| network.period_of_slot(slot));
    let from = *from.get_or_insert(period);
    if now > from {
        let (done, total) = (period - from, now - from);
        server.transport.note(&Note::Progress { stage: Stage::Periods, done, total });
    }
}

fn ask(server: &BeaconServer, request: Request) -> Result<Received, RpcError> {
    match request {
        Request::Bootstrap(root) => {
            server.bootstrap(root).map(|bootstrap| Received::Bootstrap(Box::new(bootstrap)))
        }
        Request::Updates { start_period, count } => {
            server.updates(start_period, count).map(Received::Updates)
        }
        Request::Finality => server.finality_update().map(|update| Received::Updates(vec![update])),
        Request::Optimistic => {
            server.optimistic_update().map(|update| Received::Updates(vec![update]))
        }
        other => Err(RpcError::Malformed(format!("{other:?} is not known in this version"))),
    }
}

/// Maximum size of the file of a light client, which has about 200 kB.
pub(super) const MAX_FILE: u64 = 4 << 20;

/// Reason why a light client of the beacon chain could not start or continue, or why it cannot prove an
/// earlier block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BeaconError {
    /// A URL or one of its headers is invalid.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No checkpoint was given, and the folder has no light client from which to continue.
    #[error("no checkpoint was given, and {} does not exist", .0.display())]
    NoCheckpoint(PathBuf),
    /// Neither a checkpoint nor a folder was given.
    #[error("neither a checkpoint nor a folder with a light client was given")]
    NoStart,
    /// The light client in the folder started from another checkpoint than the given checkpoint.
    #[error("{}: the light client started from checkpoint {stored}, not {given}", .path.display())]
    OtherCheckpoint {
        /// Path of the file.
        path: PathBuf,
        /// Checkpoint of the light client in the file.
        stored: B256,
        /// The checkpoint that was given.
        given: B256,
    },
    /// The file of the light client could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// No server sent a valid bootstrap of the checkpoint.
    #[error("no server has a valid bootstrap of checkpoint {checkpoint}{}", listed(.failures))]
    NoBootstrap {
        /// Root of the trusted block.
        checkpoint: B256,
        /// Reasons, at least one for each server that was asked.
        failures: Vec<ServerFailure>,
    },
    /// The newest finalised header is older than Capella, and commits to no execution block.
    #[error(
        "the finalised header of slot {slot} is older than Capella, and commits to no execution block"
    )]
    NoExecution {
        /// Slot of the header.
        slot: u64,
    },
    /// No node has the finalised block, so its header is not known.
    #[error("no node has the finalised block {hash}{}", listed(.failures))]
    NoHead {
        /// Hash of the block.
        hash: B256,
        /// Reasons, one for each node that failed.
        failures: Vec<String>,
    },
    /// The block is after the finalised block.
    #[error("block {number} is after the finalised block, {finalized}")]
    NotFinal {
        /// Number of the block.
        number: u64,
        /// Number of the finalised block.
        finalized: u64,
    },
    /// No source leads to the block.
    #[error("no source leads to block {number}{}", listed(.failures))]
    Unreachable {
        /// Number of the block.
        number: u64,
        /// Reasons why sources failed.
        failures: Vec<String>,
    },
    /// Only parent hashes lead to the block, and they need too many headers.
    #[error(
        "only {headers} headers lead to block {number}: the limit is {limit}{}",
        listed(.failures)
    )]
    TooManyHeaders {
        /// Number of the block.
        number: u64,
        /// Number of headers between.
        headers: u64,
        /// Maximum number of headers.
        limit: u64,
        /// Reasons why shorter ways failed.
        failures: Vec<String>,
    },
    /// A [`Stop`] was set.
    #[error("stopped")]
    Stopped,
}

fn listed(failures: &[impl fmt::Display]) -> String {
    failures.iter().fold(String::new(), |text, failure| text + &format!("; {failure}"))
}
