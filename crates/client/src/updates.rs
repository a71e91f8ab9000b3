//! What goes between the client's thread and its users: updates out, commands in. Both are
//! bounded.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::{Block, BlockHash, FeeRate, Transaction};
use chainsieve::btc::client::{
    BlockError, Client as Machine, News, Update, UpdateId, Wallet, WalletId,
};

use crate::error::{RunError, Stopped};
use crate::net::pool::{Pool, Waker as PoolWaker};

/// A question about how things are; it sends its answer itself.
pub(crate) type Query = Box<dyn FnOnce(&Machine, &Pool) + Send>;

/// What a user wants of the client.
pub(crate) enum Command {
    Watch(WalletId, Box<Wallet>),
    Forget(WalletId),
    Rescan(u32),
    Acknowledge(UpdateId),
    Broadcast(Box<Transaction>, Option<FeeRate>),
    Block(BlockHash, Answer<BlockAnswer>),
    Query(Query),
}

/// A block that was asked for.
pub(crate) type BlockAnswer = Result<Box<Block>, BlockError>;

/// Where one answer goes.
pub(crate) type Answer<T> = std::sync::mpsc::SyncSender<T>;

/// Most commands that wait.
const MAX_COMMANDS: usize = 4_096;

#[derive(Default)]
struct State {
    updates: VecDeque<Update>,
    commands: VecDeque<Command>,
    /// The client is to stop.
    stop: bool,
    /// How it has ended.
    ended: Option<Result<(), RunError>>,
    /// How many readers of updates were made.
    readers: u64,
    /// The tasks that wait for an update, by their readers: of each the last that asked.
    tasks: BTreeMap<u64, Waker>,
}

/// What the threads share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Most updates that wait for their reader.
    capacity: usize,
    /// Notified on a new update, on room for a command, and at the end.
    reader: Condvar,
    /// There is room for an update, or a command, or it is time to stop.
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

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics with the lock held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a command to the client; waits where very many are waiting.
    pub(crate) fn command(&self, command: Command) -> Result<(), Stopped> {
        let mut state = self.state();
        while state.commands.len() >= MAX_COMMANDS && state.ended.is_none() {
            state = self.reader.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.ended.is_some() || state.stop {
            return Err(Stopped);
        }
        state.commands.push_back(command);
        drop(state);
        self.driver.notify_all();
        self.waker.wake();
        Ok(())
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
        if commands.len() >= MAX_COMMANDS {
            self.reader.notify_all();
        }
        commands
    }

    /// Hands over as many updates as there is room for. Returns `true` if all of them are.
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

    /// Drops a wallet's updates that were not read, here and from those that follow.
    pub(crate) fn drop_updates(&self, wallet: &WalletId, following: &mut VecDeque<Update>) {
        let mut state = self.state();
        let mut kept: VecDeque<Update> = VecDeque::new();
        // Where the reorganisation is that the next withdrawals belong to, if it is kept.
        let mut last = None;
        for update in state.updates.drain(..).chain(following.drain(..)) {
            let is_dropped = update.wallet.as_ref() == Some(wallet);
            match &update.news {
                News::Reorganized { .. } => last = (!is_dropped).then_some(kept.len()),
                News::Withdrawn(_) if is_dropped => {
                    let of = last.and_then(|last| kept.get_mut(last));
                    if let Some(News::Reorganized { withdrawn, .. }) = of.map(|it| &mut it.news) {
                        *withdrawn = withdrawn.saturating_sub(1);
                    }
                }
                _ => {}
            }
            if !is_dropped {
                kept.push_back(update);
            }
        }
        *following = kept.split_off(self.capacity.min(kept.len()));
        state.updates = kept;
    }

    /// Waits until there is room for an update, a command, or a reason to stop.
    pub(crate) fn wait_for_room(&self, timeout: Duration) {
        let state = self.state();
        let full = |state: &mut State| {
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

    /// How the client has ended; `None` while it runs.
    pub(crate) fn ended(&self) -> Option<Result<(), RunError>> {
        self.state().ended.clone()
    }

    /// The next update; `None` at the end, or after the deadline.
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

    /// The next update for a reader's task, which is woken when there is one.
    #[cfg(feature = "tokio")]
    fn poll(&self, reader: u64, task: &Waker) -> std::task::Poll<Option<Update>> {
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
        // It may own another reader, whose end takes the lock.
        drop(state);
        drop(earlier);
        std::task::Poll::Pending
    }
}

/// The updates of a client, in order. As an iterator it waits for the next one, and ends when the
/// client has stopped.
///
/// With the feature `tokio` it is a [`Stream`](futures_core::Stream) too, on any executor. Nothing
/// is lost where a future of it is dropped: an update leaves the queue only when it is returned.
///
/// Several of one client share the updates: each goes to one of them.
#[derive(Debug)]
pub struct Updates {
    shared: Arc<Shared>,
    /// Tells it from the others.
    number: u64,
}

impl Clone for Updates {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        let task = self.shared.state().tasks.remove(&self.number);
        // Not while the lock is held: it may own another reader.
        drop(task);
    }
}

impl Updates {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let mut state = shared.state();
        state.readers += 1;
        let number = state.readers;
        drop(state);
        Self { shared, number }
    }

    /// The next update, if one comes within `timeout`. `None` does not tell a timeout from the
    /// end: see [`Client::is_running`](crate::Client::is_running).
    pub fn next_within(&mut self, timeout: Duration) -> Option<Update> {
        self.shared.next(Instant::now().checked_add(timeout))
    }
}

impl Iterator for Updates {
    type Item = Update;

    fn next(&mut self) -> Option<Update> {
        self.shared.next(None)
    }
}

#[cfg(feature = "tokio")]
impl futures_core::Stream for Updates {
    type Item = Update;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Update>> {
        self.shared.poll(self.number, context.waker())
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake};

    use futures_core::Stream as _;

    use super::*;
    use crate::net::book::AddressBook;
    use crate::net::chain::Chain;
    use crate::net::pool::PoolConfig;
    use crate::net::target::Target;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(updates: &mut Updates, task: &Arc<Task>) -> Poll<Option<Update>> {
        let waker = Arc::clone(task).into();
        Pin::new(updates).poll_next(&mut Context::from_waker(&waker))
    }

    #[test]
    fn of_each_reader_one_task_waits_the_last_that_asked() {
        let mut config = PoolConfig::new(Chain::new(chainsieve::bitcoin::Network::Regtest));
        config.peers = vec![Target::parse("127.0.0.1:1", 1).unwrap()];
        let pool = Pool::new(config, AddressBook::new(), [3; 16]).unwrap();
        let shared = Arc::new(Shared::new(1, pool.waker()));
        let mut readers = [(); 2].map(|()| Updates::new(Arc::clone(&shared)));
        readers[1] = readers[0].clone();
        let mut last = Vec::new();
        for reader in &mut readers {
            let tasks: Vec<_> = (0..100).map(|_| Arc::new(Task::default())).collect();
            assert!(tasks.iter().all(|task| poll(reader, task).is_pending()));
            last.push(tasks[99].clone());
        }
        assert_eq!(shared.state().tasks.len(), 2);
        let gone = Arc::new(Task::default());
        assert!(poll(&mut readers[0].clone(), &gone).is_pending());
        shared.end(Ok(()));
        assert!(last.iter().all(|task| task.0.load(Ordering::Relaxed) == 1));
        assert!(matches!(poll(&mut readers[0], &last[0]), Poll::Ready(None)));
    }
}
