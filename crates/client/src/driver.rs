//! The client's thread, which passes messages and commands to the machine, and carries out the
//! actions that the machine returns.
//!
//! # Two clocks
//! The machine takes the system's time, because headers have timestamps. Its timeouts must not
//! expire because the system's clock is set forward, for example by NTP after the start of a
//! computer, or because the computer wakes up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chainsieve::bitcoin::BlockHash;
use chainsieve::btc::client::{Action, Event, File, LightClient, News, PeerInfo, Update, WriteId};

use crate::error::RunError;
use crate::peers::pool::Pool;
use crate::peers::pool::{PeerNote, PoolEvent};
use crate::shared::{BlockResult, Command, Reply, Shared};
use crate::storage::{Storage, StorageError};

/// Interval of `Event::Tick`. The machine checks its timeouts on ticks and needs a few per second.
const TICK: Duration = Duration::from_millis(200);
/// Time for which writes are collected before one commit makes all of them durable. The value is an
/// estimate: a longer time needs fewer syncs of the disk, but delays each hit by about this time.
const GROUP: Duration = Duration::from_millis(20);
/// Maximum number of pool events that are processed in one turn. The value is an estimate, and it
/// bounds how long commands, ticks and commits wait.
const BATCH: usize = 512;
/// Interval at which the address book is written. The value is an estimate: each write contains the
/// whole book, and if the process is killed, lost addresses are found again.
const KEEP_ADDRESSES: Duration = Duration::from_secs(5 * 60);

/// Callback that receives notes about connections.
pub(crate) type Log = Box<dyn FnMut(&PeerNote) + Send>;

type Asked = BTreeMap<BlockHash, Vec<Reply<BlockResult>>>;

/// The state that the client's thread owns.
pub(crate) struct Driver {
    pub(crate) machine: LightClient,
    pub(crate) pool: Pool,
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Option<Log>,
    /// Updates that do not fit into the readers' queue yet.
    updates: VecDeque<Update>,
    asked: Asked,
    /// Files whose contents the machine has requested. Each turn reads one file, so that commands
    /// and peers wait for at most one file.
    reads: VecDeque<File>,
    /// Id of the last write, and the time of the first write that is not durable yet. `None` if
    /// every write is durable.
    written: Option<(WriteId, Instant)>,
    ticked: Instant,
    kept: Instant,
    /// The system's clock.
    unix: fn() -> Duration,
    /// The start of this run, from which the monotonic time is measured.
    begun: Instant,
    steps: ForwardSteps,
}

/// Returns the time since the Unix epoch by the system's clock.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Driver {
    pub(crate) fn new(
        machine: LightClient,
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
            unix: unix_time,
            begun: now,
            steps: ForwardSteps::new(Reading { steady: Duration::ZERO, unix: unix_time() }),
        }
    }

    /// Runs until the client is stopped or its storage fails, then writes the state.
    pub(crate) fn run(mut self) {
        let result = self.run_until_stopped();
        let result = result.and_then(|()| self.close()).map_err(RunError::Storage);
        let shared = Arc::clone(&self.shared);
        // Release the storage and its lock before the end is reported: a caller that sees the end
        // may open the same storage at once.
        drop(self);
        shared.end(result);
    }

    fn run_until_stopped(&mut self) -> Result<(), StorageError> {
        loop {
            self.take_commands()?;
            // After this return, `close` is called. It processes the commands that arrived last and
            // writes the state.
            if self.shared.is_stopping() {
                return Ok(());
            }
            if self.written.is_some_and(|(_, since)| since.elapsed() >= GROUP) {
                self.commit()?;
            }
            let is_read = self.shared.hand_over(&mut self.updates);
            // Back-pressure: while the readers' queue is full, nothing is read from the peers. A
            // requested block is an exception: the caller that waits for the block may be the
            // reader, which empties the queue only after the block has arrived.
            if !is_read && self.asked.is_empty() {
                let since = Instant::now();
                self.shared.wait_for_room(self.until_commit());
                // Nothing was read from the peers during the pause, so the pause must not make
                // their answers overdue.
                self.feed(Event::Paused(since.elapsed()))?;
                continue;
            }
            // This wait does not end when the readers' queue has room again. So the wait is short
            // if some updates did not fit into the queue.
            self.take_events(if is_read { TICK } else { GROUP })?;
            if let Some(file) = self.reads.pop_front() {
                self.read(file)?;
            }
            if self.ticked.elapsed() >= TICK {
                self.ticked = Instant::now();
                self.feed(Event::Tick)?;
                self.pool.set_tip_is_stale(self.machine.is_tip_stale());
                self.make_room()?;
            }
            if self.kept.elapsed() >= KEEP_ADDRESSES {
                self.keep_addresses();
            }
        }
    }

    /// Returns the time until the next commit is due, or [`TICK`] if there is nothing to commit.
    ///
    /// Waits must not exceed this time, because the machine does not report hits before their
    /// writes are durable.
    fn until_commit(&self) -> Duration {
        self.written.map_or(TICK, |(_, since)| GROUP.saturating_sub(since.elapsed()))
    }

    /// Waits for a pool event for at most `limit`, and processes the queued events.
    fn take_events(&mut self, limit: Duration) -> Result<(), StorageError> {
        let wait = if self.reads.is_empty() { limit } else { Duration::ZERO };
        let mut next = self.pool.wait(self.until_commit().min(wait));
        for _ in 0..BATCH {
            let Some(event) = next else { break };
            self.take_event(event)?;
            next = self.pool.try_next();
        }
        // The event after the batch is already taken out of the queue and must be processed too.
        next.map_or(Ok(()), |event| self.take_event(event))
    }

    fn take_event(&mut self, event: PoolEvent) -> Result<(), StorageError> {
        let event = match event {
            PoolEvent::Connected(id, theirs) => {
                let name = self.pool.name(id).unwrap_or_default();
                let (services, start_height) = (theirs.services, theirs.start_height);
                Event::Connected(id, PeerInfo { name, services, start_height })
            }
            PoolEvent::Message(id, message) => {
                let before = self.machine.chain().work();
                self.feed(Event::Message(id, message))?;
                if self.machine.chain().work() > before {
                    self.pool.brought_block(id);
                }
                return Ok(());
            }
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
                Command::Watch(number, id, wallet) => Event::Watch(number, id, wallet),
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

    /// Passes an event to the machine, and carries out the actions that the machine returns.
    pub(crate) fn feed(&mut self, event: Event) -> Result<(), StorageError> {
        let now = Reading { steady: self.begun.elapsed(), unix: (self.unix)() };
        // The machine measures timeouts by the system's clock. If this clock was set forward, every
        // open request would be overdue at once, and its peer would be disconnected.
        if let Some(ahead) = self.steps.read(now) {
            self.pass(Event::Paused(ahead), now.unix)?;
        }
        self.pass(event, now.unix)
    }

    fn pass(&mut self, event: Event, unix: Duration) -> Result<(), StorageError> {
        for action in self.machine.handle(event, unix) {
            match action {
                Action::Send(id, message) => self.pool.send(id, message),
                Action::Disconnect(id, reason) => {
                    let why = reason.to_string();
                    // A peer that is only slow or useless is not banned.
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
                Action::Update(update) => {
                    if let News::Watched(number) = update.news {
                        self.shared.set_stored(number);
                    }
                    self.updates.push_back(update);
                }
                Action::Block(hash, result) => {
                    for answer in self.asked.remove(&hash).unwrap_or_default() {
                        // If the caller no longer waits, the channel is closed.
                        drop(answer.try_send(result.clone()));
                    }
                }
                _ => {}
            }
        }
        self.pool.set_height(self.machine.chain().tip().height);
        Ok(())
    }

    /// Reads a file and passes its contents to the machine.
    fn read(&mut self, file: File) -> Result<(), StorageError> {
        let bytes = match self.storage.read(file) {
            // Stored filters only save downloads: unreadable filters are downloaded again.
            Err(_) if matches!(file, File::Filters(_)) => None,
            bytes => bytes?,
        };
        self.feed(Event::Contents(file, bytes))
    }

    /// Makes all writes durable, and reports them to the machine as stored.
    fn commit(&mut self) -> Result<(), StorageError> {
        let Some((id, _)) = self.written.take() else { return Ok(()) };
        self.storage.commit()?;
        self.feed(Event::Stored(id))
    }

    /// Drops a peer that lacks the needed services if all connections are in use and another
    /// address may offer these services.
    fn make_room(&mut self) -> Result<(), StorageError> {
        // Before the headers are downloaded, every peer is useful: all peers serve headers.
        let is_full = self.pool.is_full_before_others(self.machine.is_served());
        if self.machine.has_started()
            && is_full
            && let Some(id) = self.machine.unneeded_peer()
        {
            self.pool.drop_peer(id, "it lacks services that another peer may offer");
            self.feed(Event::Disconnected(id))?;
        }
        Ok(())
    }

    fn keep_addresses(&mut self) {
        self.kept = Instant::now();
        let bytes = self.pool.encode_book();
        // Losing the address book is no failure: seeds and peers provide addresses again.
        drop(self.storage.keep_addresses(&bytes));
    }

    fn close(&mut self) -> Result<(), StorageError> {
        // Acknowledgements that were sent before the stop must be stored with the state.
        self.take_commands()?;
        self.feed(Event::Save)?;
        self.commit()?;
        self.keep_addresses();
        // The commit has released updates of durable hits. Readers get the updates that fit into
        // the queue, and the next run delivers the other updates.
        self.shared.hand_over(&mut self.updates);
        while let Some(event) = self.pool.ready() {
            if let (PoolEvent::Note(note), Some(log)) = (&event, &mut self.log) {
                log(note);
            }
        }
        Ok(())
    }
}

/// Smallest step that is reported. Smaller steps are shorter than any timeout, and the two clocks
/// are not read at exactly the same time.
const SMALLEST_STEP: Duration = Duration::from_secs(1);

/// A reading of both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Monotonic time since a fixed moment of this run. On most systems, this clock stands still
    /// while the computer sleeps.
    pub(crate) steady: Duration,
    /// Time since the Unix epoch by the system's clock.
    pub(crate) unix: Duration,
}

/// Finds the steps by which the system's clock is set forward.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardSteps {
    /// The reading from which the next step is measured.
    from: Reading,
}

impl ForwardSteps {
    pub(crate) fn new(now: Reading) -> Self {
        Self { from: now }
    }

    /// Returns the time by which the system's clock has run ahead of the monotonic clock since the
    /// last step. `None` if this time is less than a second.
    ///
    /// Returns `None` if the clock was set back. A later step forward is returned in full.
    pub(crate) fn read(&mut self, now: Reading) -> Option<Duration> {
        let from = self.from;
        // Sums instead of differences, since either clock may show less than the other.
        let (expected, found) =
            (from.unix.saturating_add(now.steady), now.unix.saturating_add(from.steady));
        if found < expected {
            self.from = now;
        }
        let ahead = found.saturating_sub(expected);
        if ahead < SMALLEST_STEP {
            return None;
        }
        self.from = now;
        Some(ahead)
    }
}

#[cfg(test)]
mod tests;
