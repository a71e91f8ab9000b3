//! Readers of a client's updates: a blocking iterator and a stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chainsieve::btc::client::Update;

use crate::shared::Shared;

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
    use crate::net::book::AddressBook;
    use crate::net::chain::Chain;
    use crate::net::pool::{Pool, PoolConfig};
    use crate::net::target::Target;

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
        let mut config = PoolConfig::new(Chain::new(chainsieve::bitcoin::Network::Regtest));
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
