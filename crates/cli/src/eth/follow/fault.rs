//! What a provider's answer is refused for, and what ends the command.

use std::fmt;

use chainsieve::alloy_primitives::B256;

use super::blocks::Point;

/// Why it can't go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// A branch parts below the blocks that are known.
    TooDeep { branch: Point, first: Point, printed: Option<u64>, finalized: Option<u64> },
    /// A block is not the anchor.
    Anchor { anchor: Point, found: B256 },
    /// A branch would take an anchor off the chain.
    BelowAnchor { anchor: Point, ancestor: Option<u64> },
    /// A filter lacks bits of a log of its block.
    Unsound { at: Point, log_index: u64 },
}

/// Why something that came is of no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// Another answer may be better.
    Answer(String),
    /// Nothing helps.
    Fault(Fault),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep { branch, first, printed, finalized } => {
                let Point { number, hash } = branch;
                write!(
                    f,
                    "a reorganisation too deep to follow: block {number} of the provider's branch \
                     is {hash}, and the lowest block that is kept here is {}, {}",
                    first.number, first.hash
                )?;
                if finalized.is_some_and(|finalized| finalized >= first.number) {
                    write!(f, ", which the provider called finalised")?;
                }
                let Some(printed) = printed else { return Ok(()) };
                write!(
                    f,
                    ": no common ancestor is known, so that what has to be taken back of the logs \
                     up to block {printed} is not known either. Nothing was printed of the branch"
                )
            }
            Self::Anchor { anchor: Point { number, hash }, found } => write!(
                f,
                "block {number} of the provider is {found}, and the anchor is {hash}: it is of \
                 another chain"
            ),
            Self::BelowAnchor { anchor: Point { number, hash }, ancestor } => {
                let ancestor =
                    ancestor.map_or(String::new(), |number| format!(" behind block {number}"));
                write!(
                    f,
                    "the provider goes over to a branch that parts{ancestor}, and which does not \
                     hold the anchor, block {number}, {hash}"
                )
            }
            Self::Unsound { at: Point { number, hash }, log_index } => write!(
                f,
                "the filter of block {number}, {hash}, lacks bits of its log {log_index}: filters \
                 of this chain prove nothing. With --assume-bloom unsound receipts of every block \
                 are fetched"
            ),
        }
    }
}
