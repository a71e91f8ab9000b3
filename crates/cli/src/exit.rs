//! The exit codes of every command, in one table.

use std::process::ExitCode;

use chainsieve::eth::follow::{AnswerError, Fault};
use chainsieve::eth::index::IndexError;
use chainsieve_provider::{FetchError, FollowError};
use thiserror::Error;

use crate::args::UsageError;

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command succeeded. If the command answers a question, the answer is yes.
    Yes = 0,
    /// Nothing matched.
    No = 1,
    /// The command line is invalid; `clap` exits with the same code.
    Usage = 2,
    /// Proven wrong: an incomplete or false answer, an invalid proof, or an invalid filter.
    Wrong = 3,
    /// The evidence does not decide the question, or the command gave up.
    Undecided = 4,
    /// Malformed input, an I/O error, or an unreachable peer or provider.
    Failed = 5,
}

/// The table of exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0  yes, or done
            1  no: nothing matched
            2  invalid command line
            3  proven wrong: an incomplete or false answer, an invalid proof or filter
            4  not decided: the evidence is missing, or the command gave up
            5  malformed input, an I/O error, an unreachable peer or provider";

impl From<bool> for Exit {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error with an exit code of its own, which replaces [`Exit::Failed`].
#[derive(Debug, Error)]
#[error("{error:#}")]
struct Coded {
    exit: Exit,
    error: anyhow::Error,
}

impl Exit {
    /// Returns an error that ends the command with this exit code.
    pub(crate) fn error(self, error: anyhow::Error) -> anyhow::Error {
        Coded { exit: self, error }.into()
    }

    /// Returns the exit code for an error: the first code that it or one of its causes implies.
    pub(crate) fn of_error(error: &anyhow::Error) -> Self {
        if error.is::<UsageError>() {
            return Self::Usage;
        }
        error.chain().find_map(Self::of_cause).unwrap_or(Self::Failed)
    }

    fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Self> {
        if let Some(coded) = cause.downcast_ref::<Coded>() {
            return Some(coded.exit);
        }
        if let Some(error) = cause.downcast_ref() {
            return Some(Self::of_fetch(error));
        }
        if let Some(FollowError::Fault { fault, .. }) = cause.downcast_ref() {
            return Some(Self::of_fault(fault));
        }
        match cause.downcast_ref() {
            Some(IndexError::Differs { .. }) => Some(Self::Wrong),
            _ => None,
        }
    }

    /// Returns the exit code for a failed fetch.
    ///
    /// Headers that do not form a chain, or missing receipts, prove nothing wrong: a provider often
    /// consists of many nodes, and some of them lag or follow another branch.
    pub(crate) fn of_fetch(error: &FetchError) -> Self {
        match error {
            FetchError::NoOneChain { .. }
            | FetchError::Reorganized { .. }
            | FetchError::OtherBranch { .. }
            | FetchError::NoReceipts { .. }
            | FetchError::UnknownBlock(_)
            | FetchError::Anchor(_) => Self::Undecided,
            _ => Self::Failed,
        }
    }

    pub(crate) fn of_fault(fault: &Fault) -> Self {
        match fault {
            // The user vouches for the anchor, so a chain that lacks it is the wrong chain.
            Fault::OtherThanAnchor { .. } | Fault::BeforeAnchor(_) => Self::Wrong,
            Fault::EmptyRange { .. }
            | Fault::IndexBegins { .. }
            | Fault::IndexUnsound(_)
            | Fault::GaveUp { error: AnswerError::Failed(_), .. }
            | Fault::NoReceipts { error: AnswerError::Failed(_), .. } => Self::Failed,
            // For all remaining errors, either it is unknown which side is wrong, or the provider
            // delivers no more data.
            _ => Self::Undecided,
        }
    }
}
