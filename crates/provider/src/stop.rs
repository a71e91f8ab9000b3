//! Stops operations from another thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// A handle that stops operations from another thread. A clone is the same handle.
///
/// Once the handle is set, no further request is sent and all waits end. A request in flight still
/// ends with its answer or its timeout. Operations of a provider then return
/// [`FetchError::Stopped`](crate::FetchError::Stopped), and operations of a [`Node`](crate::Node)
/// return [`RpcError::Stopped`](crate::RpcError::Stopped).
///
/// Setting a handle also sets its [children](Self::child). Setting a child does not set its parent.
#[derive(Debug, Clone)]
pub struct Stop {
    /// The flags of the handle's ancestors, and its own flag last.
    set: Vec<Arc<AtomicBool>>,
    bell: Arc<Bell>,
}

/// Wakes waiting threads. A handle and all its descendants share one bell.
#[derive(Debug, Default)]
struct Bell {
    /// This lock is held while waiting threads are notified, so that a thread that is about to wait
    /// misses no notification.
    gate: Mutex<()>,
    rung: Condvar,
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// Creates a handle that is not set.
    pub fn new() -> Self {
        Self { set: vec![Arc::default()], bell: Arc::default() }
    }

    /// Creates a child handle. Setting this handle also sets the child, but setting the child does
    /// not set this handle.
    #[must_use]
    pub fn child(&self) -> Self {
        let mut child = self.clone();
        child.set.push(Arc::default());
        child
    }

    /// Stops all current and later operations of this handle and its children. A stop cannot be
    /// undone.
    pub fn set(&self) {
        if let Some(own) = self.set.last() {
            own.store(true, Ordering::SeqCst);
        }
        self.ring();
    }

    /// Returns `true` once this handle or one of its ancestors is set.
    pub fn is_set(&self) -> bool {
        self.set.iter().any(|set| set.load(Ordering::SeqCst))
    }

    /// Waits for `timeout`, or until the handle is set. Returns `true` if the handle is set.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.wait_for(Some(timeout), || false);
        self.is_set()
    }

    /// Waits until the handle is set.
    pub fn wait(&self) {
        self.wait_for(None, || false);
    }

    /// Waits until the handle is set, `is_done` returns `true`, or the timeout has passed.
    /// `is_done` is called again after each [`ring`](Self::ring).
    pub(crate) fn wait_for(&self, timeout: Option<Duration>, mut is_done: impl FnMut() -> bool) {
        let gate = lock(&self.bell.gate);
        let goes_on = |(): &mut ()| !self.is_set() && !is_done();
        match timeout {
            Some(timeout) => drop(self.bell.rung.wait_timeout_while(gate, timeout, goes_on)),
            None => drop(self.bell.rung.wait_while(gate, goes_on)),
        }
    }

    /// Wakes all waiting threads, so that they check their conditions again.
    pub(crate) fn ring(&self) {
        let _gate = lock(&self.bell.gate);
        self.bell.rung.notify_all();
    }
}

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

/// Locks a mutex. No code panics while it holds a lock, so the data behind a poisoned lock is still consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send + 'static> Pending<T> {
    /// Runs `work` in a thread of its own. Setting `stop` ends the work.
    pub(crate) fn spawn(stop: Stop, work: impl FnOnce() -> T + Send + 'static) -> Self {
        let shared = Arc::new(Mutex::new(State { result: None, task: None }));
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let mut state = lock(&of_thread);
            state.result = Some(result);
            let task = state.task.take();
            drop(state);
            task.map(Waker::wake)
        });
        Self { shared, stop, is_done: false }
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

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::Stop;

    #[test]
    fn waiting_ends_when_it_is_set() {
        let stop = Stop::new();
        assert!(!stop.wait_timeout(Duration::from_millis(1)));
        let waiting = stop.clone();
        let thread = thread::spawn(move || waiting.wait_timeout(Duration::from_secs(10 * 60)));
        stop.set();
        assert!(thread.join().expect("it ends"));
        assert!(stop.wait_timeout(Duration::from_secs(10 * 60)));
        assert!(stop.is_set());
    }

    #[test]
    fn a_child_is_set_with_its_parent_alone() {
        let parent = Stop::new();
        let (first, second) = (parent.child(), parent.child());
        first.set();
        assert!(first.is_set() && first.child().is_set());
        assert!(!parent.is_set() && !second.is_set());
        let waiting = second.child();
        let thread = thread::spawn(move || waiting.wait_timeout(Duration::from_secs(10 * 60)));
        parent.set();
        assert!(thread.join().expect("it ends"));
        assert!(second.is_set());
    }
}
