//! The state that a follower's thread shares with its readers and with the thread that asks for
//! anchors: an update for the readers, and acknowledgements and anchors for the follower's thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[cfg(feature = "tokio")]
use std::{collections::BTreeMap, task::Waker};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::follow::UpdateId;

use super::{FollowError, FollowStatus, LogUpdate};

#[derive(Debug, Default)]
struct State {
    /// The update that no reader has taken yet. The follower delivers one update at a time.
    update: Option<LogUpdate>,
    acknowledged: Option<UpdateId>,
    /// Newer anchors that the follower's thread has not taken yet.
    anchors: Vec<B256>,
    status: FollowStatus,
    ended: Option<Result<(), FollowError>>,
    #[cfg(feature = "tokio")]
    tasks: BTreeMap<u64, Waker>,
    #[cfg(feature = "tokio")]
    readers: u64,
}

/// The state that the follower's thread and its users share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes readers: notified when there is an update, and when the follower ends.
    reader: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock, so the data behind a poisoned lock is still
        // consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_reader(&self, state: MutexGuard<'_, State>) {
        #[cfg(feature = "tokio")]
        let tasks = {
            let mut state = state;
            std::mem::take(&mut state.tasks)
        };
        #[cfg(not(feature = "tokio"))]
        drop(state);
        self.reader.notify_all();
        // The lock is released first: a woken task may own a reader, whose drop takes the lock.
        #[cfg(feature = "tokio")]
        tasks.into_values().for_each(Waker::wake);
    }

    /// Makes an update available to the readers, and wakes them.
    pub(super) fn give(&self, update: LogUpdate) {
        let mut state = self.state();
        state.update = Some(update);
        self.notify_reader(state);
    }

    pub(super) fn end(&self, ended: Result<(), FollowError>) {
        let mut state = self.state();
        state.ended.get_or_insert(ended);
        self.notify_reader(state);
    }

    pub(super) fn set_status(&self, status: FollowStatus) {
        self.state().status = status;
    }

    pub(super) fn status(&self) -> FollowStatus {
        self.state().status
    }

    pub(super) fn ended(&self) -> Option<Result<(), FollowError>> {
        self.state().ended.clone()
    }

    pub(super) fn acknowledge(&self, id: UpdateId) {
        let mut state = self.state();
        // An acknowledgement that arrives late must not replace the acknowledgement of a later
        // update.
        state.acknowledged = state.acknowledged.max(Some(id));
    }

    /// Hands newer anchors over to the follower's thread. They replace older ones that it has not
    /// taken yet.
    pub(super) fn set_anchors(&self, anchors: Vec<B256>) {
        self.state().anchors = anchors;
    }

    pub(super) fn take_anchors(&self) -> Vec<B256> {
        std::mem::take(&mut self.state().anchors)
    }

    /// Returns `true` if there is an acknowledgement or an anchor for the follower's thread.
    pub(super) fn has_event(&self) -> bool {
        let state = self.state();
        state.acknowledged.is_some() || !state.anchors.is_empty()
    }

    pub(super) fn take_acknowledged(&self) -> Option<UpdateId> {
        self.state().acknowledged.take()
    }

    /// Waits for the next update. Returns `None` if the follower has ended or the deadline has
    /// passed.
    pub(super) fn next(&self, deadline: Option<Instant>) -> Option<LogUpdate> {
        let mut state = self.state();
        loop {
            // An update that was delivered before the end is returned before the end is reported.
            if let Some(update) = state.update.take() {
                return Some(update);
            }
            // The follower's thread has ended, so nothing would end the wait.
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

    /// Registers a new reader and returns its number.
    #[cfg(feature = "tokio")]
    pub(super) fn new_reader(&self) -> u64 {
        let mut state = self.state();
        state.readers += 1;
        state.readers
    }

    /// Removes a dropped reader, so that its task is not woken any more.
    #[cfg(feature = "tokio")]
    pub(super) fn remove_reader(&self, number: u64) {
        let task = self.state().tasks.remove(&number);
        // The task may own another reader, whose drop takes the lock. So this function does not
        // hold the lock while it drops the task.
        drop(task);
    }

    /// Returns the next update, or registers the reader's task to be woken when there is one.
    #[cfg(feature = "tokio")]
    pub(super) fn poll(&self, reader: u64, task: &Waker) -> std::task::Poll<Option<LogUpdate>> {
        let mut state = self.state();
        // As in `next`: an update that was delivered before the end is returned before the end is
        // reported.
        if let Some(update) = state.update.take() {
            return std::task::Poll::Ready(Some(update));
        }
        // The follower's thread has ended, so nothing would wake the task.
        if state.ended.is_some() {
            return std::task::Poll::Ready(None);
        }
        let earlier = state.tasks.insert(reader, task.clone());
        // The replaced task may own another reader, whose drop takes the lock.
        drop(state);
        drop(earlier);
        std::task::Poll::Pending
    }
}
