//! The exit codes of every command, in one table.

use core::fmt;
use std::process::ExitCode;

use chainsieve_conformance::audit::AuditError;

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command succeeded, and nothing that it tested breaks a rule.
    Yes = 0,
    /// The command line is invalid; `clap` exits with the same code.
    Usage = 2,
    /// A wrong answer, or a node that breaks a rule.
    Wrong = 3,
    /// The evidence does not decide the question, or nothing was asked.
    Undecided = 4,
    /// Malformed input, an I/O error, or an unreachable node or subject.
    Failed = 5,
}

/// The table of exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0  yes, or done
            2  invalid command line
            3  wrong answers, or a node that breaks a rule
            4  not decided: the evidence is missing, or nothing was asked
            5  malformed input, an I/O error, an unreachable node or subject";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// Returns the exit code for an error.
    pub(crate) fn of_error(error: &anyhow::Error) -> Self {
        if error.is::<UsageError>() {
            return Self::Usage;
        }
        match error.downcast_ref() {
            Some(AuditError::Reorganised(_)) => Self::Undecided,
            _ => Self::Failed,
        }
    }
}

/// Error for arguments that parse but contradict each other; ends the program with exit code 2.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) &'static str);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for UsageError {}
