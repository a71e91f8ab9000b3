//! The exit codes of every command.

use core::error::Error;
use core::fmt;
use std::process::ExitCode;

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
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

impl Exit {
    /// Returns an error that ends the command with this exit code instead of [`Exit::Failed`].
    pub fn error(self, error: anyhow::Error) -> anyhow::Error {
        Coded { exit: self, error }.into()
    }

    /// Returns the word for the verdict of a proof; `proven` is the word for [`Yes`](Self::Yes).
    pub const fn verdict(self, proven: &'static str) -> &'static str {
        match self {
            Self::Yes => proven,
            Self::Wrong => "wrong",
            _ => "undecided",
        }
    }

    /// Returns the exit code for an error: the first code that it or one of its causes implies.
    /// `of_cause` has the program's own rules.
    pub(crate) fn of_error(error: &anyhow::Error, of_cause: OfCause) -> Self {
        if error.is::<UsageError>() {
            return Self::Usage;
        }
        let code = |cause: &(dyn Error + 'static)| match cause.downcast_ref::<Coded>() {
            Some(coded) => Some(coded.exit),
            None => of_cause(cause),
        };
        error.chain().find_map(code).unwrap_or(Self::Failed)
    }
}

/// Returns the exit code that a cause of an error implies, if it implies one.
pub type OfCause = fn(&(dyn Error + 'static)) -> Option<Exit>;

/// An error with an exit code of its own.
#[derive(Debug)]
struct Coded {
    exit: Exit,
    error: anyhow::Error,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl Error for Coded {}

/// Error for arguments that parse but contradict each other; ends the command with exit code 2.
#[derive(Debug)]
pub struct UsageError(pub &'static str);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for UsageError {}
