//! The reports of a follower: updates, its progress and its end. Updates are read by a blocking iterator or a
//! stream.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::follow::{Cursor, Fault, News, StartError, UpdateId};
use chainsieve::eth::header::BlockRef;
use event_listener::{Event, EventListener, Listener as _};
use thiserror::Error;

use crate::durable_file::FileError;
use crate::error::FetchError;
use crate::stop::lock;

/// An update of a follower.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct LogUpdate {
    /// Number of the update in this run.
    pub id: UpdateId,
    /// The news, such as new blocks with their logs, or blocks removed by a reorganisation.
    pub news: News,
    /// Cursor for resuming after this update; `None` if there is a
    /// [cursor file](super::FollowBuilder::cursor_file).
    ///
    /// A caller that stores the cursor in one transaction with its results of the update needs no
    /// cursor file.
    pub cursor: Option<Cursor>,
}

/// Reason why a follower could not start, or ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FollowError {
    /// At the start, the chain's id or the anchor's hashes could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The query or the cursor is invalid for a follower.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The nodes' answers do not allow the follower to continue.
    #[error("{node}: {fault}")]
    Fault {
        /// Scheme, host and port of the node that was asked last.
        node: String,
        /// Reason why the follower cannot continue.
        fault: Box<Fault>,
    },
    /// The cursor file could not be read or written.
    #[error("cursor, {0}")]
    Cursor(#[from] FileError),
    /// The index could not be read.
    #[error("{0}")]
    Index(String),
    /// The system could not start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(String),
    /// The follower's thread has panicked.
    #[error("the follower has panicked")]
    Panicked,
}

/// Progress of a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct FollowStatus {
    /// The latest block that the nodes named; `None` before the first answer.
    pub head: Option<BlockRef>,
    /// Number of the next header to link.
    pub next: Option<u64>,
    /// The last block that was delivered and acknowledged.
    pub last: Option<BlockRef>,
    /// Number of blocks whose receipts were verified in this run.
    pub verified: u64,
}

/// A reader of a follower's updates, in order.
///
/// As an iterator, it waits for the next update, and ends when the follower has ended.
/// [`Following::shutdown`](super::Following::shutdown) returns the reason. With the feature
/// `tokio`, `into_stream` converts the reader into a stream.
#[derive(Debug)]
#[must_use = "iterators are lazy: no update is read until the reader is iterated"]
pub struct LogUpdates {
    shared: Arc<Shared>,
}

impl LogUpdates {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Waits at most `timeout` for the next update.
    ///
    /// Returns `None` if the timeout has passed or if the follower has ended;
    /// [`Following::is_running`](super::Following::is_running) distinguishes the two cases.
    #[must_use = "an update that was taken is not delivered again in this run"]
    pub fn next_within(&mut self, timeout: Duration) -> Option<LogUpdate> {
        self.shared.next(Instant::now().checked_add(timeout))
    }
}

#[cfg(feature = "tokio")]
impl LogUpdates {
    /// Converts the reader into a stream, which works on any executor.
    pub fn into_stream(self) -> LogUpdateStream {
        LogUpdateStream { updates: self, listener: None }
    }
}

impl Iterator for LogUpdates {
    type Item = LogUpdate;

    fn next(&mut self) -> Option<LogUpdate> {
        self.shared.next(None)
    }
}

/// A reader of a follower's updates as a [`Stream`](futures_core::Stream). The stream ends when the
/// follower has ended.
///
/// Dropping a pending future of the stream loses no update: an update is taken only when a poll
/// returns it.
#[cfg(feature = "tokio")]
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct LogUpdateStream {
    updates: LogUpdates,
    listener: Option<EventListener>,
}

#[cfg(feature = "tokio")]
impl futures_core::Stream for LogUpdateStream {
    type Item = LogUpdate;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Option<LogUpdate>> {
        let Self { updates: LogUpdates { shared }, listener } = &mut *self;
        loop {
            if let Poll::Ready(next) = shared.take() {
                *listener = None;
                return Poll::Ready(next);
            }
            // As in `Shared::next`: a new listener is polled after one more look at the state.
            match listener {
                None => *listener = Some(shared.readers.listen()),
                Some(waiting) => {
                    std::task::ready!(std::pin::Pin::new(waiting).poll(context));
                    *listener = None;
                }
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The update that no reader has taken yet. The follower delivers one update at a time.
    update: Option<LogUpdate>,
    pub(super) acknowledged: Option<UpdateId>,
    /// Newer anchors that the follower's thread has not taken yet. They replace older anchors.
    pub(super) anchors: Vec<B256>,
    pub(super) status: FollowStatus,
    pub(super) ended: Option<Result<(), FollowError>>,
}

/// The state that the follower's thread and its users share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Wakes readers, threads and tasks: notified when there is an update, and when the follower
    /// ends.
    readers: Event,
}

impl Shared {
    /// Makes an update available to the readers, and wakes them.
    pub(super) fn give(&self, update: LogUpdate) {
        lock(&self.state).update = Some(update);
        self.readers.notify(usize::MAX);
    }

    pub(super) fn end(&self, ended: Result<(), FollowError>) {
        lock(&self.state).ended.get_or_insert(ended);
        self.readers.notify(usize::MAX);
    }

    pub(super) fn acknowledge(&self, id: UpdateId) {
        let mut state = lock(&self.state);
        // An acknowledgement that arrives late must not replace the acknowledgement of a later
        // update.
        state.acknowledged = state.acknowledged.max(Some(id));
    }

    /// Returns `true` if there is an acknowledgement or an anchor for the follower's thread.
    pub(super) fn has_event(&self) -> bool {
        let state = lock(&self.state);
        state.acknowledged.is_some() || !state.anchors.is_empty()
    }

    /// Waits for the next update. Returns `None` if the follower has ended or the deadline has
    /// passed.
    pub(super) fn next(&self, deadline: Option<Instant>) -> Option<LogUpdate> {
        let mut listener: Option<EventListener> = None;
        loop {
            if let Poll::Ready(next) = self.take() {
                return next;
            }
            // The state is looked at once more after the listener was created, so that no
            // notification is missed.
            match (listener.take(), deadline) {
                (None, _) => listener = Some(self.readers.listen()),
                (Some(listener), None) => listener.wait(),
                (Some(listener), Some(deadline)) => listener.wait_deadline(deadline)?,
            }
        }
    }

    /// Takes the next update; `Ready(None)` if there will be no further update.
    fn take(&self) -> Poll<Option<LogUpdate>> {
        let mut state = lock(&self.state);
        // An update that was delivered before the end is returned before the end is reported.
        match state.update.take() {
            None if state.ended.is_none() => Poll::Pending,
            next => Poll::Ready(next),
        }
    }
}
