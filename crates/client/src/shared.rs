//! The bounded queues between the client's thread and its users, one for updates and one for
//! commands, and the readers of updates: a blocking iterator and a stream.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::{Block, BlockHash, FeeRate, Transaction};
use chainsieve::btc::client::{
    BlockError, LightClient, Update, UpdateId, Wallet, WalletId, WatchId,
};

use crate::error::{RunError, Stopped};
use crate::peers::pool::{Pool, Waker as PoolWaker};

/// A function that reads the machine and the pool on the client's thread, and sends its result.
pub(crate) type Query = Box<dyn FnOnce(&LightClient, &Pool) + Send>;

/// A command of a user to the client's thread.
pub(crate) enum Command {
    Watch(WatchId, WalletId, Box<Wallet>),
    Forget(WalletId),
    Rescan(u32),
    Acknowledge(UpdateId),
    Broadcast(Box<Transaction>, Option<FeeRate>),
    Block(BlockHash, Reply<BlockResult>),
    Query(Query),
}

/// The result of [`Command::Block`].
pub(crate) type BlockResult = Result<Box<Block>, BlockError>;

/// The channel for the answer to one command.
pub(crate) type Reply<T> = std::sync::mpsc::SyncSender<T>;

/// Maximum number of queued commands. If the queue is full, the sender of a further command waits.
const MAX_COMMANDS: usize = 4_096;

#[derive(Default)]
struct Queues {
    updates: VecDeque<Update>,
    commands: VecDeque<Command>,
    /// Number of the last call that added items, and of the last one whose records are durable.
    watched: WatchId,
    stored: WatchId,
    /// `true` once a stop was requested.
    stop: bool,
    /// Result of the client's run; `None` while the client runs.
    ended: Option<Result<(), RunError>>,
    /// Number of readers created so far. A new reader gets this value as its number.
    readers: u64,
    /// Wakers of the tasks that wait for an update, by the number of their reader. Each reader has
    /// the waker of its latest poll.
    tasks: BTreeMap<u64, Waker>,
}

/// The state that the client's thread and its users share.
pub(crate) struct Shared {
    state: Mutex<Queues>,
    /// Maximum number of queued updates.
    capacity: usize,
    /// Wakes the users: notified on a new update, on room for a command, and at the end.
    reader: Condvar,
    /// Wakes the client's thread: notified on room for an update, on a command, and on a stop.
    driver: Condvar,
    waker: PoolWaker,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(capacity: usize, waker: PoolWaker) -> Self {
        let (reader, driver) = (Condvar::new(), Condvar::new());
        Self { state: Mutex::default(), capacity: capacity.max(1), reader, driver, waker }
    }

    /// Registers a new reader of updates and returns its number.
    pub(crate) fn new_reader(&self) -> u64 {
        let mut state = self.state();
        state.readers += 1;
        state.readers
    }

    /// Removes a dropped reader, so that its task is not woken any more.
    pub(crate) fn remove_reader(&self, number: u64) {
        let task = self.state().tasks.remove(&number);
        // The task may own another reader, whose drop takes the lock. So the task is dropped while
        // the lock is free.
        drop(task);
    }

    fn state(&self) -> MutexGuard<'_, Queues> {
        // No code panics while it holds this lock, so the data of a poisoned lock is still
        // consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the next call that adds items.
    pub(crate) fn next_watch(&self) -> WatchId {
        let mut state = self.state();
        state.watched.0 += 1;
        state.watched
    }

    /// Queues the items of a wallet for the client's thread, and returns the number of the call.
    pub(crate) fn watch(&self, id: WalletId, wallet: Box<Wallet>) -> Result<WatchId, Stopped> {
        let mut state = self.room()?;
        // The queue has the order of the numbers, because both are assigned under one lock.
        state.watched.0 += 1;
        let number = state.watched;
        self.queue(state, Command::Watch(number, id, wallet));
        Ok(number)
    }

    /// Records that the items of all calls up to this one are durable.
    pub(crate) fn set_stored(&self, number: WatchId) {
        self.state().stored = number;
        self.reader.notify_all();
    }

    /// Waits until the items of a call are durable. Returns `false` if the client has ended or the
    /// deadline has passed before.
    pub(crate) fn wait_stored(&self, number: WatchId, deadline: Instant) -> bool {
        let mut state = self.state();
        while state.stored < number {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.ended.is_some() {
                return false;
            }
            let waited = self.reader.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Queues a command for the client's thread. Waits while [`MAX_COMMANDS`] commands are queued.
    pub(crate) fn command(&self, command: Command) -> Result<(), Stopped> {
        let state = self.room()?;
        self.queue(state, command);
        Ok(())
    }

    /// Waits until the queue of commands has room.
    fn room(&self) -> Result<MutexGuard<'_, Queues>, Stopped> {
        let mut state = self.state();
        while state.commands.len() >= MAX_COMMANDS && state.ended.is_none() {
            state = self.reader.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.ended.is_some() || state.stop {
            return Err(Stopped);
        }
        Ok(state)
    }

    fn queue(&self, mut state: MutexGuard<'_, Queues>, command: Command) {
        state.commands.push_back(command);
        drop(state);
        self.driver.notify_all();
        self.waker.wake();
    }

    pub(crate) fn stop(&self) {
        self.state().stop = true;
        self.driver.notify_all();
        self.waker.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state().stop
    }

    pub(crate) fn take_commands(&self) -> VecDeque<Command> {
        let commands = std::mem::take(&mut self.state().commands);
        // Callers wait for room only if the queue was full.
        if commands.len() >= MAX_COMMANDS {
            self.reader.notify_all();
        }
        commands
    }

    /// Moves updates into the readers' queue while it has room. Returns `true` if all updates were
    /// moved.
    pub(crate) fn hand_over(&self, updates: &mut VecDeque<Update>) -> bool {
        if updates.is_empty() {
            return true;
        }
        let mut state = self.state();
        let room = self.capacity.saturating_sub(state.updates.len()).min(updates.len());
        state.updates.extend(updates.drain(..room));
        let tasks = if room > 0 { std::mem::take(&mut state.tasks) } else { BTreeMap::new() };
        drop(state);
        self.reader.notify_all();
        tasks.into_values().for_each(Waker::wake);
        updates.is_empty()
    }

    /// Drops a wallet's updates from the readers' queue and from `following`, the driver's queue.
    pub(crate) fn drop_updates(&self, wallet: &WalletId, following: &mut VecDeque<Update>) {
        let mut state = self.state();
        // An update about a reorganisation contains the number of withdrawals that follow. This
        // number must not include the dropped withdrawals.
        Update::discount(state.updates.iter_mut().chain(following.iter_mut()), wallet);
        for queue in [&mut state.updates, following] {
            queue.retain(|update| update.wallet.as_ref() != Some(wallet));
        }
    }

    /// Waits until the readers' queue has room, a command is queued, or a stop is requested.
    pub(crate) fn wait_for_room(&self, timeout: Duration) {
        let state = self.state();
        let full = |state: &mut Queues| {
            state.updates.len() >= self.capacity && state.commands.is_empty() && !state.stop
        };
        drop(self.driver.wait_timeout_while(state, timeout, full));
    }

    pub(crate) fn end(&self, result: Result<(), RunError>) {
        let mut state = self.state();
        state.ended.get_or_insert(result);
        state.commands.clear();
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        self.reader.notify_all();
        tasks.into_values().for_each(Waker::wake);
    }

    /// Returns the number of readers whose task waits to be woken.
    #[cfg(all(test, feature = "tokio"))]
    pub(crate) fn num_tasks(&self) -> usize {
        self.state().tasks.len()
    }

    /// Returns the result of the client's run; `None` while it runs.
    pub(crate) fn ended(&self) -> Option<Result<(), RunError>> {
        self.state().ended.clone()
    }

    /// Waits for the next update. Returns `None` if the client has ended or the deadline has
    /// passed.
    pub(crate) fn next(&self, deadline: Option<Instant>) -> Option<Update> {
        let mut state = self.state();
        loop {
            if let Some(update) = state.updates.pop_front() {
                drop(state);
                self.driver.notify_all();
                return Some(update);
            }
            if state.ended.is_some() {
                return None;
            }
            state = match deadline {
                None => self.reader.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = self.reader.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Returns the next update, or registers the reader's task to be woken when there is one.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll(&self, reader: u64, task: &Waker) -> std::task::Poll<Option<Update>> {
        let mut state = self.state();
        if let Some(update) = state.updates.pop_front() {
            drop(state);
            self.driver.notify_all();
            return std::task::Poll::Ready(Some(update));
        }
        if state.ended.is_some() {
            return std::task::Poll::Ready(None);
        }
        let earlier = state.tasks.insert(reader, task.clone());
        // The replaced task may own another reader, whose drop takes the lock. So the lock is
        // released before the task is dropped.
        drop(state);
        drop(earlier);
        std::task::Poll::Pending
    }
}

/// A reader of a client's updates, in order.
///
/// As an iterator, the reader waits for the next update. The iterator ends when the client has
/// stopped. With the feature `tokio`, `into_stream` converts the reader into a stream.
///
/// If a client has several readers, each update is delivered to exactly one of them.
#[derive(Debug)]
#[must_use = "iterators are lazy"]
pub struct Updates {
    shared: Arc<Shared>,
    /// Number of this reader among the client's readers.
    number: u64,
}

impl Clone for Updates {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.shared.remove_reader(self.number);
    }
}

impl Updates {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let number = shared.new_reader();
        Self { shared, number }
    }

    /// Waits at most `timeout` for the next update.
    ///
    /// Returns `None` if the timeout has passed or if the client has stopped;
    /// [`Client::is_running`](crate::Client::is_running) distinguishes these two cases.
    #[must_use = "an update that is dropped is delivered again only after a restart"]
    pub fn next_within(&mut self, timeout: Duration) -> Option<Update> {
        self.shared.next(Instant::now().checked_add(timeout))
    }
}

#[cfg(feature = "tokio")]
impl Updates {
    /// Converts the reader into a stream, which works on any executor.
    pub fn into_stream(self) -> UpdateStream {
        UpdateStream(self)
    }
}

impl Iterator for Updates {
    type Item = Update;

    fn next(&mut self) -> Option<Update> {
        self.shared.next(None)
    }
}

/// A reader of a client's updates as a [`Stream`](futures_core::Stream). The stream ends when the
/// client has stopped.
///
/// Dropping a pending future of the stream loses no update: an update leaves the queue only when a
/// poll returns it.
#[cfg(feature = "tokio")]
#[derive(Debug, Clone)]
#[must_use = "streams do nothing unless polled"]
pub struct UpdateStream(Updates);

#[cfg(feature = "tokio")]
impl futures_core::Stream for UpdateStream {
    type Item = Update;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Update>> {
        self.0.shared.poll(self.0.number, context.waker())
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake};

    use futures_core::Stream as _;

    use super::*;
    use crate::peers::address::NetworkParams;
    use crate::peers::address::Target;
    use crate::peers::book::AddressBook;
    use crate::peers::pool::{Pool, PoolConfig};

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(updates: &mut UpdateStream, task: &Arc<Task>) -> Poll<Option<Update>> {
        let waker = Arc::clone(task).into();
        Pin::new(updates).poll_next(&mut Context::from_waker(&waker))
    }

    #[test]
    fn of_each_reader_one_task_waits_the_last_that_asked() {
        let mut config = PoolConfig::new(NetworkParams::new(chainsieve::bitcoin::Network::Regtest));
        config.peers = vec![Target::parse("127.0.0.1:1", 1).unwrap()];
        let pool = Pool::new(config, AddressBook::new(), [3; 16]).unwrap();
        let shared = Arc::new(Shared::new(1, pool.waker()));
        let mut readers = [(); 2].map(|()| Updates::new(Arc::clone(&shared)).into_stream());
        readers[1] = readers[0].clone();
        let mut last = Vec::new();
        for reader in &mut readers {
            let tasks: Vec<_> = (0..100).map(|_| Arc::new(Task::default())).collect();
            assert!(tasks.iter().all(|task| poll(reader, task).is_pending()));
            last.push(tasks[99].clone());
        }
        assert_eq!(shared.num_tasks(), 2);
        let gone = Arc::new(Task::default());
        assert!(poll(&mut readers[0].clone(), &gone).is_pending());
        shared.end(Ok(()));
        assert!(last.iter().all(|task| task.0.load(Ordering::Relaxed) == 1));
        assert!(matches!(poll(&mut readers[0], &last[0]), Poll::Ready(None)));
    }
}
