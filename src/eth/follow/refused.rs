//! Why something that came is of no use.

use alloc::boxed::Box;

use super::{AnswerError, Fault};

/// Why something that came is of no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// Another answer may be better.
    Answer(Box<AnswerError>),
    /// Nothing helps.
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
