//! Ctrl-C and what else asks a command to end.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Context as _;

/// What a shell says of a command that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Whether the command is to end. Clones are of the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    set: AtomicBool,
    /// Held while `set` changes, so that nobody who is about to wait misses it.
    gate: Mutex<()>,
    changed: Condvar,
}

impl Stop {
    /// The one that Ctrl-C, SIGTERM and SIGHUP set. The second of them ends the process at once,
    /// for a command that does not come to its end by itself.
    pub(crate) fn on_signals() -> anyhow::Result<Self> {
        static INSTALLED: OnceLock<Stop> = OnceLock::new();
        static INSTALLING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = INSTALLED.get() {
            return Ok(stop.clone());
        }
        let stop = Self::default();
        let set = stop.clone();
        ctrlc::set_handler(move || {
            if set.is_set() {
                process::exit(INTERRUPTED);
            }
            set.set();
        })
        .context("cannot listen for Ctrl-C")?;
        Ok(INSTALLED.get_or_init(|| stop).clone())
    }

    /// From now on the command is to end.
    pub(crate) fn set(&self) {
        let _gate = self.0.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.set.store(true, Ordering::SeqCst);
        self.0.changed.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.set.load(Ordering::SeqCst)
    }

    /// Waits so long, or until the command is to end; whether it is.
    pub(crate) fn wait_timeout(&self, timeout: Duration) -> bool {
        let gate = self.0.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.changed.wait_timeout_while(gate, timeout, |()| !self.is_set());
        drop(waited);
        self.is_set()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::Stop;

    #[test]
    fn who_waits_is_woken() {
        let stop = Stop::default();
        assert!(!stop.wait_timeout(Duration::from_millis(1)));
        let waiting = stop.clone();
        let thread = thread::spawn(move || waiting.wait_timeout(Duration::from_mins(10)));
        stop.set();
        assert!(thread.join().expect("it ends"));
        assert!(stop.wait_timeout(Duration::from_mins(10)));
        assert!(stop.is_set());
    }
}
