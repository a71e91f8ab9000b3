//! The exit codes of every command, in one table, the codes of the libraries' errors, and the stop at a signal.

use chainsieve::eth::follow::{AnswerError, Fault};
use chainsieve::eth::index::IndexError;
use chainsieve_provider::{FetchError, FollowError, Stop};
use chainsieve_report::Exit;

/// The table of exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0  yes, or done
            1  no: nothing matched
            2  invalid command line
            3  proven wrong: an incomplete or false answer, an invalid proof or filter
            4  not decided: the evidence is missing, or the command gave up
            5  malformed input, an I/O error, an unreachable peer or provider";

/// Returns the exit code that a cause of an error implies, if it implies one.
pub(crate) fn of_cause(cause: &(dyn core::error::Error + 'static)) -> Option<Exit> {
    if let Some(error) = cause.downcast_ref() {
        return Some(of_fetch(error));
    }
    if let Some(FollowError::Fault { fault, .. }) = cause.downcast_ref() {
        return Some(of_fault(fault));
    }
    match cause.downcast_ref() {
        Some(IndexError::Differs { .. }) => Some(Exit::Wrong),
        _ => None,
    }
}

/// Returns the exit code for a failed fetch.
///
/// Missing receipts, or headers that do not form a chain, do not prove that an answer is wrong: a
/// provider often consists of many nodes, and some of them lag or follow another branch.
pub(crate) fn of_fetch(error: &FetchError) -> Exit {
    match error {
        FetchError::NoOneChain { .. }
        | FetchError::Reorganized { .. }
        | FetchError::OtherBranch { .. }
        | FetchError::NoReceipts { .. }
        | FetchError::UnknownBlock(_)
        | FetchError::Anchor(_) => Exit::Undecided,
        _ => Exit::Failed,
    }
}

pub(crate) fn of_fault(fault: &Fault) -> Exit {
    match fault {
        // The user vouches for the anchor, so a chain that lacks it is the wrong chain.
        Fault::OtherThanAnchor { .. } | Fault::BeforeAnchor(_) => Exit::Wrong,
        Fault::EmptyRange { .. }
        | Fault::IndexBegins { .. }
        | Fault::IndexUnsound(_)
        | Fault::GaveUp { error: AnswerError::Failed(_), .. }
        | Fault::NoReceipts { error: AnswerError::Failed(_), .. } => Exit::Failed,
        // For all remaining errors, either it is unknown which side is wrong, or the provider
        // delivers no more data.
        _ => Exit::Undecided,
    }
}

/// Returns a handle that Ctrl-C, SIGTERM and SIGHUP set.
pub(crate) fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new();
    let set = stop.clone();
    chainsieve_report::on_signals(move || set.set())?;
    Ok(stop)
}
