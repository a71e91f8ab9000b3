//! Ends what waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Ends operations from another thread: once it is set, no request is sent and no wait goes on. A
/// request that is sent already ends with its answer or its timeout. Operations then end with
/// [`FetchError::Stopped`](crate::FetchError::Stopped), those of a [`Node`](crate::Node) with
/// [`RpcError::Stopped`](crate::RpcError::Stopped). Clones are one.
///
/// A [child](Self::child) is set with its parent, and not the other way round.
#[derive(Debug, Clone)]
pub struct Stop {
    /// Its own, and those of its ancestors.
    set: Vec<Arc<AtomicBool>>,
    bell: Arc<Bell>,
}

/// Wakes what waits: one of a whole family.
#[derive(Debug, Default)]
struct Bell {
    /// Held while it is rung, so that nothing that is about to wait misses it.
    gate: Mutex<()>,
    rung: Condvar,
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// Not set.
    pub fn new() -> Self {
        Self { set: vec![Arc::default()], bell: Arc::default() }
    }

    /// Another one, which is set once this is.
    #[must_use]
    pub fn child(&self) -> Self {
        let mut child = self.clone();
        child.set.push(Arc::default());
        child
    }

    /// Ends what is under way, and what is begun later. It cannot be undone.
    pub fn set(&self) {
        if let Some(own) = self.set.last() {
            own.store(true, Ordering::SeqCst);
        }
        self.ring();
    }

    /// Returns `true` once it is set.
    pub fn is_set(&self) -> bool {
        self.set.iter().any(|set| set.load(Ordering::SeqCst))
    }

    /// Waits this long, or until it is set; returns `true` if it is.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.wait_for(Some(timeout), || false);
        self.is_set()
    }

    /// Waits until it is set, or something has [changed](Self::ring) that `is_done` sees, or the
    /// time is up.
    pub(crate) fn wait_for(&self, timeout: Option<Duration>, mut is_done: impl FnMut() -> bool) {
        let gate = self.bell.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |(): &mut ()| !self.is_set() && !is_done();
        match timeout {
            Some(timeout) => drop(self.bell.rung.wait_timeout_while(gate, timeout, goes_on)),
            None => drop(self.bell.rung.wait_while(gate, goes_on)),
        }
    }

    /// Lets those that wait look again.
    pub(crate) fn ring(&self) {
        let _gate = self.bell.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.bell.rung.notify_all();
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
        let thread = thread::spawn(move || waiting.wait_timeout(Duration::from_mins(10)));
        stop.set();
        assert!(thread.join().expect("it ends"));
        assert!(stop.wait_timeout(Duration::from_mins(10)));
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
        let thread = thread::spawn(move || waiting.wait_timeout(Duration::from_mins(10)));
        parent.set();
        assert!(thread.join().expect("it ends"));
        assert!(second.is_set());
    }
}
