//! The client's thread: what peers send goes to the machine, and what the machine wants goes back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chainsieve::bitcoin::BlockHash;
use chainsieve::btc::client::{Action, Client as Machine, Event, File, PeerInfo, Update, WriteId};

use crate::error::RunError;
use crate::net::events::{PeerNote, PoolEvent};
use crate::net::pool::Pool;
use crate::shared::{BlockAnswer, Command, Reply, Shared};
use crate::storage::{Storage, StorageError};

/// How long nothing may happen until the machine is told that time has passed: it wants a few ticks
/// a second.
const TICK: Duration = Duration::from_millis(200);
/// How long writes are collected to be made durable together. An estimate: one sync to disk serves
/// many writes, and hits are given out about this much later.
const GROUP: Duration = Duration::from_millis(20);
/// Most events of peers that are taken before anything else is looked at. An estimate that bounds
/// how long commands, ticks and writes wait.
const BATCH: usize = 512;
/// How often the addresses of peers are kept. An estimate: each time all of them are written, and
/// those that a kill loses are found again.
const KEEP_ADDRESSES: Duration = Duration::from_mins(5);

/// Where notes about connections go.
pub(crate) type Log = Box<dyn FnMut(&PeerNote) + Send>;

type Asked = BTreeMap<BlockHash, Vec<Reply<BlockAnswer>>>;

/// Everything that the thread owns.
pub(crate) struct Driver {
    pub(crate) machine: Machine,
    pub(crate) pool: Pool,
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Option<Log>,
    /// Updates for which there is no room yet.
    updates: VecDeque<Update>,
    asked: Asked,
    /// Files that the machine wants to be read: one a turn, so that commands and peers wait for no
    /// more than one.
    reads: VecDeque<File>,
    /// The last write, and since when something is not durable.
    written: Option<(WriteId, Instant)>,
    ticked: Instant,
    kept: Instant,
}

/// The time since the Unix epoch, by the system.
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Driver {
    pub(crate) fn new(
        machine: Machine,
        pool: Pool,
        storage: Box<dyn Storage>,
        shared: Arc<Shared>,
        log: Option<Log>,
    ) -> Self {
        let now = Instant::now();
        Self {
            machine,
            pool,
            storage,
            shared,
            log,
            updates: VecDeque::new(),
            asked: BTreeMap::new(),
            reads: VecDeque::new(),
            written: None,
            ticked: now,
            kept: now,
        }
    }

    /// Runs until it is stopped, and keeps what is known.
    pub(crate) fn run(mut self) {
        let result = self.run_until_stopped();
        let result = result.and_then(|()| self.close()).map_err(RunError::Storage);
        let shared = Arc::clone(&self.shared);
        // Whoever is told of the end may open the same storage at once.
        drop(self);
        shared.end(result);
    }

    fn run_until_stopped(&mut self) -> Result<(), StorageError> {
        loop {
            self.take_commands()?;
            if self.shared.is_stopping() {
                return Ok(());
            }
            if self.written.is_some_and(|(_, since)| since.elapsed() >= GROUP) {
                self.commit()?;
            }
            let is_read = self.shared.hand_over(&mut self.updates);
            // A slow reader slows the peers: nothing is read from them until there is room. One
            // that waits for a block makes no room before that has come.
            if !is_read && self.asked.is_empty() {
                let since = Instant::now();
                self.shared.wait_for_room(self.until_commit());
                self.feed(Event::Paused(since.elapsed()))?;
                continue;
            }
            // Room that a reader makes ends no wait for peers.
            self.take_events(if is_read { TICK } else { GROUP })?;
            if let Some(file) = self.reads.pop_front() {
                self.read(file)?;
            }
            if self.ticked.elapsed() >= TICK {
                self.ticked = Instant::now();
                self.feed(Event::Tick)?;
                self.make_room()?;
            }
            if self.kept.elapsed() >= KEEP_ADDRESSES {
                self.keep_addresses();
            }
        }
    }

    /// How long to wait for anything: what is written waits to be durable, and updates for that.
    fn until_commit(&self) -> Duration {
        self.written.map_or(TICK, |(_, since)| GROUP.saturating_sub(since.elapsed()))
    }

    /// Waits for an event of the peers, at most for `limit`, and takes those that have come.
    fn take_events(&mut self, limit: Duration) -> Result<(), StorageError> {
        let wait = if self.reads.is_empty() { limit } else { Duration::ZERO };
        let mut next = self.pool.wait(self.until_commit().min(wait));
        for _ in 0..BATCH {
            let Some(event) = next else { break };
            self.take_event(event)?;
            next = self.pool.try_next();
        }
        // One beyond the batch is not lost.
        next.map_or(Ok(()), |event| self.take_event(event))
    }

    fn take_event(&mut self, event: PoolEvent) -> Result<(), StorageError> {
        let event = match event {
            PoolEvent::Connected(id, theirs) => {
                let name = self.pool.name(id).unwrap_or_default();
                let (services, start_height) = (theirs.services, theirs.start_height);
                Event::Connected(id, PeerInfo { name, services, start_height })
            }
            PoolEvent::Message(id, message) => Event::Message(id, message),
            PoolEvent::Disconnected(id) => Event::Disconnected(id),
            PoolEvent::Note(note) => {
                if let Some(log) = &mut self.log {
                    log(&note);
                }
                return Ok(());
            }
        };
        self.feed(event)
    }

    fn take_commands(&mut self) -> Result<(), StorageError> {
        for command in self.shared.take_commands() {
            let event = match command {
                Command::Watch(id, wallet) => Event::Watch(id, wallet),
                Command::Forget(id) => {
                    self.feed(Event::Forget(id.clone()))?;
                    self.shared.drop_updates(&id, &mut self.updates);
                    continue;
                }
                Command::Rescan(from) => Event::Rescan(from),
                Command::Query(query) => {
                    query(&self.machine, &self.pool);
                    continue;
                }
                Command::Acknowledge(id) => Event::Acknowledged(id),
                Command::Broadcast(tx, fee_rate) => Event::Broadcast(tx, fee_rate),
                Command::Block(hash, answer) => {
                    self.asked.entry(hash).or_default().push(answer);
                    Event::GetBlock(hash)
                }
            };
            self.feed(event)?;
        }
        Ok(())
    }

    /// Tells the machine, and does what it wants.
    pub(crate) fn feed(&mut self, event: Event) -> Result<(), StorageError> {
        for action in self.machine.handle(event, unix_time()) {
            match action {
                Action::Send(id, message) => self.pool.send(id, message),
                Action::Disconnect(id, reason) => {
                    let why = reason.to_string();
                    if reason.is_misbehaviour() {
                        self.pool.ban(id, &why);
                    } else {
                        self.pool.drop_peer(id, &why);
                    }
                }
                Action::Write(id, write) => {
                    self.storage.write(&write)?;
                    let since = self.written.map_or_else(Instant::now, |(_, since)| since);
                    self.written = Some((id, since));
                }
                Action::Read(file) => self.reads.push_back(file),
                Action::Update(update) => self.updates.push_back(update),
                Action::Block(hash, result) => {
                    for answer in self.asked.remove(&hash).unwrap_or_default() {
                        // The user may not wait any longer.
                        drop(answer.try_send(result.clone()));
                    }
                }
                _ => {}
            }
        }
        self.pool.set_height(self.machine.chain().tip().height);
        Ok(())
    }

    /// Reads a file for the machine.
    fn read(&mut self, file: File) -> Result<(), StorageError> {
        let bytes = match self.storage.read(file) {
            // Filters only spare downloads: those that cannot be read are downloaded again.
            Err(_) if matches!(file, File::Filters(_)) => None,
            bytes => bytes?,
        };
        self.feed(Event::Contents(file, bytes))
    }

    /// Makes what is written durable.
    fn commit(&mut self) -> Result<(), StorageError> {
        let Some((id, _)) = self.written.take() else { return Ok(()) };
        self.storage.commit()?;
        self.feed(Event::Stored(id))
    }

    /// A peer that does not offer what is needed leaves its place to one that may.
    fn make_room(&mut self) -> Result<(), StorageError> {
        let is_full = self.pool.is_full_before_others(self.machine.is_served());
        if self.machine.has_started()
            && is_full
            && let Some(id) = self.machine.unneeded_peer()
        {
            self.pool.drop_peer(id, "its place is for a peer that may offer what is needed");
            self.feed(Event::Disconnected(id))?;
        }
        Ok(())
    }

    fn keep_addresses(&mut self) {
        self.kept = Instant::now();
        let bytes = self.pool.book().encode(self.pool.chain().magic);
        // They are found again.
        drop(self.storage.keep_addresses(&bytes));
    }

    fn close(&mut self) -> Result<(), StorageError> {
        // What was acknowledged before the client was stopped is to be kept.
        self.take_commands()?;
        self.feed(Event::Save)?;
        self.commit()?;
        self.keep_addresses();
        // What is durable now may go out, as far as there is room; the rest comes again.
        self.shared.hand_over(&mut self.updates);
        while let Some(event) = self.pool.ready() {
            if let (PoolEvent::Note(note), Some(log)) = (&event, &mut self.log) {
                log(note);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
