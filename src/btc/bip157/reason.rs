//! Why a peer is disconnected, in words.

use core::fmt;

use super::{Contradiction, Reason, Violation};

impl Reason {
    /// Returns `true` if the peer lied or broke the protocol, so that it is to be banned; `false`
    /// if it was only slow, or one too many.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Stalled(_) | Self::TooManyPeers(_) => false,
            Self::FalseFilter(_)
            | Self::ContradictsItself(_)
            | Self::ContradictsCheckpoint { .. }
            | Self::Violation(_)
            | Self::FalseBlock(_) => true,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FalseFilter(filter) => {
                let how = match &filter.proof {
                    Some(_) => "the block proves it",
                    None => "the scripts that the block spends show it",
                };
                write!(f, "its filter {} of {} is false: {how}", filter.hash, filter.at)
            }
            Self::ContradictsItself(Contradiction::Filter { at, claimed, sent }) => {
                write!(f, "it claimed filter {claimed} of {at}, and sent {sent}")
            }
            Self::ContradictsItself(Contradiction::Headers { height, claimed, sent }) => {
                write!(f, "it claimed filter header {claimed} at height {height}, and then {sent}")
            }
            Self::ContradictsCheckpoint { height, claimed, trusted } => write!(
                f,
                "it claims filter header {claimed} at height {height}, {trusted} is trusted"
            ),
            Self::Violation(violation) => violation.fmt(f),
            Self::FalseBlock(hash) => {
                write!(f, "it sent a block {hash} whose transactions are not those of its header")
            }
            Self::Stalled(overdue) => {
                write!(f, "an answer about filters is overdue by {} s", overdue.as_secs())
            }
            Self::TooManyPeers(limit) => write!(f, "more than {limit} peers"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsolicited => f.write_str("it answered about filters without being asked"),
            Self::FilterType(kind) => write!(f, "it answered with filters of type {kind}"),
            Self::WrongBlock(hash) => write!(f, "it answered about block {hash}, not asked for"),
            Self::Count { sent, expected } => {
                write!(f, "it answered with {sent} filter hashes, {expected} were asked for")
            }
            Self::OversizedFilter { bytes, limit } => {
                write!(f, "a filter of {bytes} bytes, the limit is {limit}")
            }
        }
    }
}
