//! The bounded queues between the client's thread and its users, one for updates and one for
//! commands, and the readers of updates: a blocking iterator and a stream.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "tokio")]
use std::task::Poll;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::{Block, BlockHash, FeeRate, Transaction};
use chainsieve::btc::client::{
    BlockError, LightClient, Update, UpdateId, Wallet, WalletId, WatchId,
};
use event_listener::{Event, EventListener, Listener as _};

use crate::error::{RunError, Stopped};
use crate::peers::pool::{Pool, Waker};

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
    /// Number of the last call that added items, and number of the last such call whose records are
    /// durable.
    watched: WatchId,
    stored: WatchId,
    /// `true` once a stop was requested.
    stop: bool,
    /// Result of the client's run; `None` while the client runs.
    ended: Option<Result<(), RunError>>,
}

/// The state that the client's thread and its users share.
pub(crate) struct Shared {
    state: Mutex<Queues>,
    /// Maximum number of queued updates.
    capacity: usize,
    /// Wakes the users, threads and tasks: notified on a new update, on room for a command, when
    /// items are durable, and at the end.
    users: Event,
    /// Wakes the client's thread: notified on room for an update, on a command, and on a stop.
    driver: Condvar,
    waker: Waker,
}

debug_by!(Shared: capacity);

impl Shared {
    pub(crate) fn new(capacity: usize, waker: Waker) -> Self {
        let (users, driver) = (Event::new(), Condvar::new());
        Self { state: Mutex::default(), capacity: capacity.max(1), users, driver, waker }
    }

    fn state(&self) -> MutexGuard<'_, Queues> {
        // No code panics while it holds this lock, so the data of a poisoned lock is still
        // consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_ready` returns `true`, and returns the state. Returns `None` if the deadline
    /// passes first.
    fn wait(
        &self,
        deadline: Option<Instant>,
        is_ready: impl Fn(&Queues) -> bool,
    ) -> Option<MutexGuard<'_, Queues>> {
        let mut listener: Option<EventListener> = None;
        loop {
            let state = self.state();
            if is_ready(&state) {
                return Some(state);
            }
            drop(state);
            // The state is looked at once more after the listener was created, so that no
            // notification is missed.
            match (listener.take(), deadline) {
                (None, _) => listener = Some(self.users.listen()),
                (Some(listener), None) => listener.wait(),
                (Some(listener), Some(deadline)) => listener.wait_deadline(deadline)?,
            }
        }
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

    /// Records that the items of all calls up to this call are durable.
    pub(crate) fn set_stored(&self, number: WatchId) {
        self.state().stored = number;
        self.users.notify(usize::MAX);
    }

    /// Waits until the items of a call are durable. Returns `false` if the client ends or the
    /// deadline passes first.
    pub(crate) fn wait_stored(&self, number: WatchId, deadline: Instant) -> bool {
        let is_ready = |state: &Queues| state.stored >= number || state.ended.is_some();
        self.wait(Some(deadline), is_ready).is_some_and(|state| state.stored >= number)
    }

    /// Queues a command for the client's thread. Waits while [`MAX_COMMANDS`] commands are queued.
    pub(crate) fn command(&self, command: Command) -> Result<(), Stopped> {
        let state = self.room()?;
        self.queue(state, command);
        Ok(())
    }

    /// Waits until the queue of commands has room.
    fn room(&self) -> Result<MutexGuard<'_, Queues>, Stopped> {
        let is_ending = |state: &Queues| state.ended.is_some() || state.stop;
        let has_room = |state: &Queues| state.commands.len() < MAX_COMMANDS || is_ending(state);
        self.wait(None, has_room).filter(|state| !is_ending(state)).ok_or(Stopped)
    }

    fn queue(&self, mut state: MutexGuard<'_, Queues>, command: Command) {
        state.commands.push_back(command);
        drop(state);
        self.driver.notify_all();
        self.waker.wake();
    }

    pub(crate) fn stop(&self) {
        self.state().stop = true;
        self.users.notify(usize::MAX);
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
            self.users.notify(usize::MAX);
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
        drop(state);
        if room > 0 {
            self.users.notify(usize::MAX);
        }
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
        drop(state);
        self.users.notify(usize::MAX);
    }

    /// Returns the result of the client's run; `None` while it runs.
    pub(crate) fn ended(&self) -> Option<Result<(), RunError>> {
        self.state().ended.clone()
    }

    /// Waits for the next update. Returns `None` if the client has ended or the deadline has
    /// passed.
    pub(crate) fn next(&self, deadline: Option<Instant>) -> Option<Update> {
        let is_known = |state: &Queues| !state.updates.is_empty() || state.ended.is_some();
        let mut state = self.wait(deadline, is_known)?;
        let update = state.updates.pop_front()?;
        drop(state);
        self.driver.notify_all();
        Some(update)
    }

    /// Takes the next update; `Ready(None)` if there will be no further update.
    #[cfg(feature = "tokio")]
    fn poll(&self) -> Poll<Option<Update>> {
        let mut state = self.state();
        match state.updates.pop_front() {
            None if state.ended.is_none() => Poll::Pending,
            next => {
                drop(state);
                self.driver.notify_all();
                Poll::Ready(next)
            }
        }
    }
}

/// A reader of a client's updates, in order.
///
/// As an iterator, the reader waits for the next update. The iterator ends when the client has
/// stopped. With the feature `tokio`, `into_stream` converts the reader into a stream.
///
/// If a client has several readers, each update is delivered to exactly one of them.
#[derive(Debug, Clone)]
#[must_use = "iterators are lazy"]
pub struct Updates {
    shared: Arc<Shared>,
}

impl Updates {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
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
        UpdateStream { updates: self, listener: None }
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
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct UpdateStream {
    updates: Updates,
    listener: Option<EventListener>,
}

#[cfg(feature = "tokio")]
impl Clone for UpdateStream {
    fn clone(&self) -> Self {
        self.updates.clone().into_stream()
    }
}

#[cfg(feature = "tokio")]
impl futures_core::Stream for UpdateStream {
    type Item = Update;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Option<Update>> {
        let Self { updates: Updates { shared }, listener } = &mut *self;
        loop {
            if let Poll::Ready(next) = shared.poll() {
                *listener = None;
                return Poll::Ready(next);
            }
            // As in `Shared::wait`: a new listener is polled after one more look at the state.
            match listener {
                None => *listener = Some(shared.users.listen()),
                Some(waiting) => {
                    std::task::ready!(std::pin::Pin::new(waiting).poll(context));
                    *listener = None;
                }
            }
        }
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
        let gone = Arc::new(Task::default());
        assert!(poll(&mut readers[0].clone(), &gone).is_pending());
        shared.end(Ok(()));
        assert!(last.iter().all(|task| task.0.load(Ordering::Relaxed) == 1));
        assert!(matches!(poll(&mut readers[0], &last[0]), Poll::Ready(None)));
    }
}
