//! The updates of a follower, for their reader: a blocking iterator, or a stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::LogUpdate;
use super::shared::Shared;

/// The updates of a follower, in order. As an iterator it waits for the next one, and ends when the
/// follower has ended: [`Following::shutdown`](super::Following::shutdown) says how.
///
/// With the feature `tokio`, `into_stream` makes a stream of it.
#[derive(Debug)]
pub struct LogUpdates {
    shared: Arc<Shared>,
    /// Tells it from others.
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

    /// The next update, if one comes within `timeout`. `None` does not tell a timeout from the end:
    /// see [`Following::is_running`](super::Following::is_running).
    pub fn next_within(&mut self, timeout: Duration) -> Option<LogUpdate> {
        self.shared.next(Instant::now().checked_add(timeout))
    }
}

#[cfg(feature = "tokio")]
impl LogUpdates {
    /// The same updates as a stream, on any executor.
    #[must_use]
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

/// The updates of a follower as a [`Stream`](futures_core::Stream), which ends when the follower has
/// ended. Nothing is lost where a future of it is dropped: an update leaves only when it is returned.
#[cfg(feature = "tokio")]
#[derive(Debug)]
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
