//! Ctrl-C and what else asks a command to end.

use std::process;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::Context as _;
pub(crate) use chainsieve_provider::Stop;

/// What a shell says of a command that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// The one that Ctrl-C, SIGTERM and SIGHUP set. The second of them ends the process at once, for a
/// command that does not come to its end by itself.
pub(crate) fn on_signals() -> anyhow::Result<Stop> {
    static INSTALLED: OnceLock<Stop> = OnceLock::new();
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = INSTALLED.get() {
        return Ok(stop.clone());
    }
    let stop = Stop::new();
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
