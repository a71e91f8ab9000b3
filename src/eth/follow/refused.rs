//! Reason why an answer is refused.

use alloc::boxed::Box;

use super::{AnswerError, Fault};

/// Reason why an answer is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// The answer is wrong; another answer may be right.
    Answer(Box<AnswerError>),
    /// The follower must end: another answer would not help.
    Fault(Box<Fault>),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self::Fault(Box::new(fault))
    }
}

impl From<Box<Fault>> for Refused {
    fn from(fault: Box<Fault>) -> Self {
        Self::Fault(fault)
    }
}

impl From<AnswerError> for Refused {
    fn from(error: AnswerError) -> Self {
        Self::Answer(Box::new(error))
    }
}
