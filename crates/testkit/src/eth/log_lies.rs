//! Lies about the logs of an answer, and what must be found of each. The tests of each layer tell all of them.

use alloy_primitives::{Address, B256, Bytes, Log, keccak256};
use chainsieve::eth::log::LocatedLog;

/// What must be found of a lie, as far as it follows from the lie alone. Positions are those in the answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// The answer omits the log with this block hash and log index.
    Omitted(B256, u64),
    Forged(usize),
    Number(usize, u64),
    Timestamp(usize, u64),
    Transaction(usize, u64),
    Index(usize, u64),
    Duplicate(usize, usize),
    NotMatching(usize),
    OtherFork(usize),
    Removed(usize),
}

impl Found {
    /// Returns a duplicate of two positions in a fixed order, because an audit may report either of
    /// them as the repetition.
    pub fn twice(one: usize, other: usize) -> Self {
        Self::Duplicate(one.max(other), one.min(other))
    }

    /// Returns the name of such a finding in JSON.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Omitted(..) => "omitted_log",
            Self::Forged(_) => "forged_log",
            Self::Number(..) | Self::Timestamp(..) | Self::Transaction(..) | Self::Index(..) => {
                "wrong_field"
            }
            Self::Duplicate(..) => "duplicate",
            Self::NotMatching(_) => "not_matching",
            Self::OtherFork(_) => "other_fork",
            Self::Removed(_) => "removed",
        }
    }
}

/// A lie about one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    Withhold,
    Address,
    Topic(usize),
    TopicMore,
    Data,
    DataMore,
    Number,
    Timestamp,
    UnknownHash,
    OtherBlock,
    TransactionIndex,
    LogIndex,
    Twice,
    Invent,
    Remove,
}

pub const LIES: [Lie; 18] = [
    Lie::Withhold,
    Lie::Address,
    Lie::Topic(0),
    Lie::Topic(1),
    Lie::Topic(2),
    Lie::Topic(3),
    Lie::TopicMore,
    Lie::Data,
    Lie::DataMore,
    Lie::Number,
    Lie::Timestamp,
    Lie::UnknownHash,
    Lie::OtherBlock,
    Lie::TransactionIndex,
    Lie::LogIndex,
    Lie::Twice,
    Lie::Invent,
    Lie::Remove,
];

/// A block of the range that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub hash: B256,
    pub number: u64,
    pub timestamp: u64,
}

/// An answer with lies, and what must be found of them.
#[derive(Debug)]
pub struct Told {
    pub answer: Vec<LocatedLog>,
    /// In ascending order.
    pub expected: Vec<Found>,
    /// The number of lies. A log that lacks what a lie changes is left as it is.
    pub lies: usize,
}

pub fn flip_address(address: &mut Address) {
    address.0[7] ^= 0x10;
}

/// Returns the log with the part altered that `lie` names, or `None` if the log has no such part.
pub fn altered(log: &Log, lie: Lie) -> Option<Log> {
    let mut topics = log.topics().to_vec();
    let mut data = log.data.data.to_vec();
    let mut address = log.address;
    match lie {
        Lie::Address => flip_address(&mut address),
        // Replace the topic by its hash. Flipping a bit could turn one token id into the next,
        // which may be in the answer too.
        Lie::Topic(at) => {
            let topic = topics.get_mut(at)?;
            *topic = keccak256(*topic);
        }
        Lie::TopicMore if topics.len() < 4 => topics.push(B256::repeat_byte(0x99)),
        Lie::Data => *data.first_mut()? ^= 0x80,
        Lie::DataMore => data.push(0),
        _ => return None,
    }
    Log::new(address, topics, Bytes::from(data))
}

/// Tells a lie about the logs of a true answer at these ascending positions. `blocks` are those of the range,
/// and `wants` says which logs the query selects.
pub fn tell(
    lie: Lie,
    positions: &[usize],
    truth: &[LocatedLog],
    blocks: &[Place],
    wants: impl Fn(&Log) -> bool,
) -> Told {
    let mut told = Told { answer: truth.to_vec(), expected: Vec::new(), lies: 0 };
    let mut withheld = Vec::new();
    for &at in positions {
        if lie == Lie::Withhold {
            withheld.push(at);
        }
        let alone = positions.len() == 1;
        if let Some(found) = tell_one(lie, at, &mut told.answer, blocks, &wants, alone) {
            told.expected.extend(found);
            told.lies += 1;
        }
    }
    let mut at = 0..;
    told.answer.retain(|_| withheld.binary_search(&at.next().expect("an endless range")).is_err());
    told.expected.sort();
    told
}

/// Tells a lie about the log at position `at`. Some lies append a log; a withheld one stays. Returns `None` if
/// the lie does not apply to the log.
fn tell_one(
    lie: Lie,
    at: usize,
    answer: &mut Vec<LocatedLog>,
    blocks: &[Place],
    wants: &impl Fn(&Log) -> bool,
    alone: bool,
) -> Option<Vec<Found>> {
    let log = answer[at].clone();
    let omitted = Found::Omitted(log.block_hash, log.log_index);
    let told = &mut answer[at];
    Some(match lie {
        Lie::Withhold => vec![omitted],
        Lie::Address | Lie::Topic(_) | Lie::TopicMore | Lie::Data | Lie::DataMore => {
            told.log = altered(&log.log, lie)?;
            let mut expected = vec![omitted, Found::Forged(at)];
            if !wants(&told.log) {
                expected.push(Found::NotMatching(at));
            }
            expected
        }
        Lie::Number => {
            told.block_number += 1;
            vec![Found::Number(at, log.block_number)]
        }
        Lie::Timestamp => {
            told.block_timestamp = told.block_timestamp.map(|time| time + 1);
            vec![Found::Timestamp(at, log.block_timestamp?)]
        }
        Lie::UnknownHash => {
            told.block_hash.0[at % 32] ^= 1;
            vec![omitted, Found::OtherFork(at)]
        }
        Lie::OtherBlock => {
            let others = blocks.iter().filter(|block| block.hash != log.block_hash);
            let other = others.cycle().nth(at)?;
            (told.block_hash, told.block_number) = (other.hash, other.number);
            told.block_timestamp = Some(other.timestamp);
            // The other block may contain an equal log at the same index. The lie is then a
            // duplicate.
            let equal = |one: &LocatedLog| {
                let place = (one.block_hash, one.log_index);
                place == (other.hash, log.log_index) && one.log == log.log
            };
            let equal = (0..answer.len()).find(|&one| one != at && equal(&answer[one]));
            vec![omitted, equal.map_or(Found::Forged(at), |one| Found::twice(at, one))]
        }
        Lie::TransactionIndex => {
            // Several logs may lie at once. Then don't use the next index, because a neighbour may
            // be equal and lie too.
            told.transaction_index += if alone { 1 } else { 10_000 };
            vec![Found::Transaction(at, log.transaction_index)]
        }
        Lie::LogIndex => {
            told.log_index += 1_000_000;
            vec![Found::Index(at, log.log_index)]
        }
        Lie::Twice => {
            answer.push(log);
            vec![Found::twice(answer.len() - 1, at)]
        }
        Lie::Invent => {
            let invented = Log::new(log.log.address, log.log.topics().to_vec(), "invented".into());
            answer.push(LocatedLog { log: invented?, log_index: log.log_index + 5_000, ..log });
            vec![Found::Forged(answer.len() - 1)]
        }
        Lie::Remove => {
            told.removed = true;
            vec![omitted, Found::Removed(at)]
        }
    })
}
