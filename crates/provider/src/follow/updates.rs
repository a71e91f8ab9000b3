//! Readers of a follower's updates: a blocking iterator and a stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::LogUpdate;
use super::shared::Shared;

/// A reader of a follower's updates, in order.
///
/// As an iterator, it waits for the next update, and ends when the follower has ended.
/// [`Following::shutdown`](super::Following::shutdown) returns the reason. With the feature
/// `tokio`, `into_stream` converts the reader into a stream.
#[derive(Debug)]
#[must_use = "iterators are lazy: no update is read until the reader is iterated"]
pub struct LogUpdates {
    shared: Arc<Shared>,
    /// Number of this reader among the follower's readers.
    #[cfg(feature = "tokio")]
    number: u64,
}

impl LogUpdates {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            #[cfg(feature = "tokio")]
            number: shared.new_reader(),
            shared,
        }
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
        LogUpdateStream(self)
    }
}

impl Iterator for LogUpdates {
    type Item = LogUpdate;

    fn next(&mut self) -> Option<LogUpdate> {
        self.shared.next(None)
    }
}

#[cfg(feature = "tokio")]
impl Drop for LogUpdates {
    fn drop(&mut self) {
        self.shared.remove_reader(self.number);
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
pub struct LogUpdateStream(LogUpdates);

#[cfg(feature = "tokio")]
impl futures_core::Stream for LogUpdateStream {
    type Item = LogUpdate;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<LogUpdate>> {
        self.0.shared.poll(self.0.number, context.waker())
    }
}
