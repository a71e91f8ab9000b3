//! Ctrl-C and the signals that ask a command to end.

use std::process;
use std::sync::LazyLock;

use anyhow::anyhow;
pub(crate) use chainsieve_provider::Stop;

/// Exit code of a command that Ctrl-C killed, by the convention of shells: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Returns the flag that Ctrl-C, SIGTERM and SIGHUP set. A second signal ends the process at once,
/// for a command that does not react to the flag.
pub(crate) fn on_signals() -> anyhow::Result<Stop> {
    static INSTALLED: LazyLock<Result<Stop, String>> = LazyLock::new(|| {
        let stop = Stop::new();
        let set = stop.clone();
        let handler = move || {
            if set.is_set() {
                process::exit(INTERRUPTED);
            }
            set.set();
        };
        ctrlc::set_handler(handler).map_err(|error| error.to_string())?;
        Ok(stop)
    });
    INSTALLED.clone().map_err(|error| anyhow!("cannot listen for Ctrl-C: {error}"))
}
