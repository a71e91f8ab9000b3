//! What goes between the client's thread and its users: updates out, commands in. Both are
//! bounded.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::{Block, BlockHash, FeeRate, Transaction};
use chainsieve::btc::client::{BlockError, Client as Machine, Update, UpdateId, Wallet, WalletId};

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
    Block(BlockHash, Reply<BlockAnswer>),
    Query(Query),
}

/// A block that was asked for.
pub(crate) type BlockAnswer = Result<Box<Block>, BlockError>;

/// Where one answer is sent.
pub(crate) type Reply<T> = std::sync::mpsc::SyncSender<T>;

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

    /// The number of a new reader of updates.
    pub(crate) fn new_reader(&self) -> u64 {
        let mut state = self.state();
        state.readers += 1;
        state.readers
    }

    /// A reader is gone, and nobody is woken for it.
    pub(crate) fn remove_reader(&self, number: u64) {
        let task = self.state().tasks.remove(&number);
        // Not while the lock is held: it may own another reader.
        drop(task);
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
        Update::discount(state.updates.iter_mut().chain(following.iter_mut()), wallet);
        for queue in [&mut state.updates, following] {
            queue.retain(|update| update.wallet.as_ref() != Some(wallet));
        }
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

    /// How many readers wait to be woken.
    #[cfg(all(test, feature = "tokio"))]
    pub(crate) fn num_tasks(&self) -> usize {
        self.state().tasks.len()
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
        // It may own another reader, whose end takes the lock.
        drop(state);
        drop(earlier);
        std::task::Poll::Pending
    }
}
