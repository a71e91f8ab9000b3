//! Runs blocking operations as futures, for any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::provider::Provider;
use crate::stop::Stop;

/// Future of an operation that runs in a thread of its own. Dropping the future ends the operation.
#[derive(Debug)]
#[must_use = "dropping the future ends the operation"]
pub struct Pending<T> {
    shared: Arc<Mutex<State<T>>>,
    stop: Stop,
    /// `true` once the result was returned. After that, dropping the future stops nothing: the
    /// result may contain a follower, which must continue.
    is_done: bool,
}

#[derive(Debug)]
struct State<T> {
    result: Option<thread::Result<T>>,
    task: Option<Waker>,
}

fn lock<T>(shared: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    // No code panics while it holds this lock, so the data behind a poisoned lock is still
    // consistent.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Provider {
    /// Runs `work` with the provider in a thread of its own, and returns a future of the result.
    ///
    /// The future works on any executor. When the future is dropped, a request in flight is
    /// completed, and no further request is sent.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use chainsieve_provider::{LogQuery, Provider};
    /// let provider = Provider::new("http://127.0.0.1:8545")?;
    /// let query = LogQuery::new().from_block(17_000_000).to_block(17_000_100);
    /// let proven = provider.spawn(move |provider| provider.logs(&query)).await?;
    /// println!("{} logs", proven.logs.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics if no thread can be started. The future panics if `work` panics.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Pending<T> {
        let stop = self.stop().child();
        let provider = self.with_stop(stop.clone());
        let shared = Arc::new(Mutex::new(State { result: None, task: None }));
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            let work = std::panic::AssertUnwindSafe(|| work(&provider));
            let result = std::panic::catch_unwind(work);
            let mut state = lock(&of_thread);
            state.result = Some(result);
            let task = state.task.take();
            drop(state);
            task.map(Waker::wake)
        });
        Pending { shared, stop, is_done: false }
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let shared = Arc::clone(&self.shared);
        let mut state = lock(&shared);
        match state.result.take() {
            Some(Ok(result)) => {
                self.get_mut().is_done = true;
                Poll::Ready(result)
            }
            Some(Err(panic)) => {
                drop(state);
                std::panic::resume_unwind(panic)
            }
            None => {
                let earlier = state.task.replace(context.waker().clone());
                drop(state);
                drop(earlier);
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if !self.is_done {
            self.stop.set();
        }
    }
}
