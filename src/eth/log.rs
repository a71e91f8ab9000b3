//! A log with its position in the chain, as `eth_getLogs` returns it, and the difference of two
//! answers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use alloy_primitives::{Address, B256, Bytes, Log, U64};
use alloy_rlp::Encodable as _;
use chainsieve_lanes::hash::keccak256;
use serde::de::{DeserializeSeed as _, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::eth::json::{
    self, Fields, JsonPath, ObjectOf, Prefix, Shape, ValueProblem, fixed_bytes, number,
};
use crate::eth::log_query::MAX_TOPICS;

/// A log with its position in the chain.
///
/// In an answer of a node, all fields are claims of the node. In a log that was read from verified
/// receipts, all fields but [`claimed_transaction_hash`](Self::claimed_transaction_hash) are
/// proven, if the block is authentic.
///
/// `serde` writes the object that `eth_getLogs` returns, in the form of
/// [`to_json`](Self::to_json), and reads the same input as [`from_json`](Self::from_json).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedLog {
    /// Address, topics and data.
    pub log: Log,
    /// Number of the block.
    pub block_number: u64,
    /// Hash of the block. The hash identifies the block even after a reorganisation; a number does
    /// not.
    pub block_hash: B256,
    /// The block's Unix timestamp in seconds, if the source gives it.
    pub block_timestamp: Option<u64>,
    /// Hash of the transaction, if the source gives it.
    ///
    /// In a log that was read from verified receipts, this hash is proven by the transactions root
    /// of the block, or `None`: receipts contain no transaction hashes.
    pub transaction_hash: Option<B256>,
    /// In a log that was read from verified receipts: the transaction hash that a node claims and
    /// that nothing proves, or `None` if [`transaction_hash`](Self::transaction_hash) is proven. In
    /// an answer of `eth_getLogs`: `None`, unless a node adds a member of this name, which proves
    /// nothing.
    pub claimed_transaction_hash: Option<B256>,
    /// Index of the transaction, and of its receipt, in the block, from 0.
    pub transaction_index: u64,
    /// Index of the log in the block, from 0, counted over all receipts of the block.
    pub log_index: u64,
    /// `true` if the source claims that a reorganisation removed the block from the chain.
    pub removed: bool,
}

/// The fields of a log, in the order in which geth writes them, and one field of this library.
const FIELDS: [&str; 11] = [
    "address",
    "topics",
    "data",
    "blockNumber",
    "transactionHash",
    "transactionIndex",
    "blockHash",
    "blockTimestamp",
    "logIndex",
    "removed",
    "claimedTransactionHash",
];

/// Error of parsing a log or a list of logs from JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogJsonError {
    /// The text is not JSON, or text follows the JSON value.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// A log is not an object.
    #[error("a log is an object, not {0}")]
    NotAnObject(&'static str),
    /// A field of a log occurs twice. Parsers disagree on which of the two values is valid.
    #[error("duplicate field {0:?}")]
    DuplicateField(&'static str),
    /// A field of a log has an invalid value.
    ///
    /// A log of the pending block is rejected here: it has no position in the chain yet, so its
    /// block number and block hash are null.
    #[error("{place}: {problem}")]
    Value {
        /// Position of the value.
        place: JsonPath,
        /// Reason why the value is invalid.
        problem: ValueProblem,
    },
    /// The value is not a list.
    #[error("logs are a list, not {0}")]
    NotAList(&'static str),
    /// An element of the list is not a valid log.
    #[error("log {index}: {problem}")]
    InList {
        /// Index of the log in the list, from 0.
        index: usize,
        /// Reason why the log is invalid.
        problem: Box<Self>,
    },
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it so")]
fn syntax(error: serde_json::Error) -> LogJsonError {
    LogJsonError::Syntax(error.to_string())
}

impl LocatedLog {
    /// Parses one log from JSON: an element of the list that `eth_getLogs` returns, or a line of a
    /// JSON Lines file.
    ///
    /// Bytes and numbers are hex with `0x`. Leading zeros of numbers are accepted. Unknown fields
    /// are ignored, because nodes add fields of their own. `blockTimestamp`, `transactionHash`,
    /// `claimedTransactionHash` and `removed` may be missing or null.
    ///
    /// Memory use is at most about 50 times the length of the text, even for hostile input.
    ///
    /// # Errors
    /// Returns an error if the text is not a log; the error names the invalid field.
    pub fn from_json(text: &str) -> Result<Self, LogJsonError> {
        let mut json = serde_json::Deserializer::from_str(text);
        let fields = ObjectOf(FIELDS).deserialize(&mut json).map_err(syntax)?;
        json.end().map_err(syntax)?;
        Self::from_fields(&fields)
    }

    /// Parses the list of logs that `eth_getLogs` returns, and keeps its order.
    ///
    /// Each element is parsed as by [`from_json`](Self::from_json).
    ///
    /// # Errors
    /// Returns an error if the text is not a list of logs; the error has the index of the first
    /// invalid log.
    pub fn list_from_json(text: &str) -> Result<Vec<Self>, LogJsonError> {
        let mut json = serde_json::Deserializer::from_str(text);
        // `deserialize_seq` would report every JSON type except a list as a syntax error.
        if !text.trim_start().starts_with('[') {
            let other = Shape::deserialize(&mut json).map_err(syntax)?;
            json.end().map_err(syntax)?;
            return Err(LogJsonError::NotAList(other.kind()));
        }
        let logs = json.deserialize_seq(LogList).map_err(syntax)?;
        json.end().map_err(syntax)?;
        logs
    }

    fn from_fields(fields: &Fields<11>) -> Result<Self, LogJsonError> {
        if let Some(found) = fields.not_an_object {
            return Err(LogJsonError::NotAnObject(found));
        }
        if let Some(field) = fields.duplicate {
            return Err(LogJsonError::DuplicateField(field));
        }
        let [
            address,
            topics,
            data,
            block,
            transaction,
            in_block,
            hash,
            time,
            index,
            removed,
            claim,
        ] = fields.values.each_ref().map(|value| value.as_ref().filter(|value| !value.is_null()));
        let removed = match removed {
            None => false,
            Some(Shape::Bool(removed)) => *removed,
            Some(other) => {
                let problem = other.instead_of("true or false");
                return Err(LogJsonError::Value { place: JsonPath::of("removed"), problem });
            }
        };
        let address = required(address, "address", |text| fixed_bytes_of(text, "an address"))?;
        let topics = read_topics(topics)?;
        let data: Vec<u8> = required(data, "data", json::bytes)?;
        Ok(Self {
            log: Log::new_unchecked(Address::new(address), topics, Bytes::from(data)),
            block_number: required(block, "blockNumber", quantity)?,
            block_hash: required(hash, "blockHash", hash_of)?,
            block_timestamp: optional(time, "blockTimestamp", quantity)?,
            transaction_hash: optional(transaction, "transactionHash", hash_of)?,
            claimed_transaction_hash: optional(claim, "claimedTransactionHash", hash_of)?,
            transaction_index: required(in_block, "transactionIndex", quantity)?,
            log_index: required(index, "logIndex", quantity)?,
            removed,
        })
    }

    /// Returns the log as one JSON object without white space.
    ///
    /// The fields have the order in which geth writes them. `blockTimestamp`, `transactionHash` and
    /// `claimedTransactionHash`, which geth does not have, are left out if they are `None`.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, a list of them and a truth value")
    }

    /// Appends the fields that a digest covers, as an RLP list.
    fn encode(&self, out: &mut Vec<u8>) {
        let topics = self.log.topics();
        let payload_length = self.block_hash.length()
            + self.block_number.length()
            + self.log_index.length()
            + self.transaction_index.length()
            + self.log.address.length()
            + alloy_rlp::list_length::<_, B256>(topics)
            + self.log.data.data.length();
        alloy_rlp::Header { list: true, payload_length }.encode(out);
        self.block_hash.encode(out);
        self.block_number.encode(out);
        self.log_index.encode(out);
        self.transaction_index.encode(out);
        self.log.address.encode(out);
        alloy_rlp::encode_list::<_, B256>(topics, out);
        self.log.data.data.encode(out);
    }
}

impl Serialize for LocatedLog {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Written<'a> {
            address: Address,
            topics: &'a [B256],
            data: &'a Bytes,
            block_number: U64,
            #[serde(skip_serializing_if = "Option::is_none")]
            transaction_hash: Option<B256>,
            transaction_index: U64,
            block_hash: B256,
            #[serde(skip_serializing_if = "Option::is_none")]
            block_timestamp: Option<U64>,
            log_index: U64,
            removed: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            claimed_transaction_hash: Option<B256>,
        }
        let written = Written {
            address: self.log.address,
            topics: self.log.topics(),
            data: &self.log.data.data,
            block_number: U64::from(self.block_number),
            transaction_hash: self.transaction_hash,
            transaction_index: U64::from(self.transaction_index),
            block_hash: self.block_hash,
            block_timestamp: self.block_timestamp.map(U64::from),
            log_index: U64::from(self.log_index),
            removed: self.removed,
            claimed_transaction_hash: self.claimed_transaction_hash,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LocatedLog {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = ObjectOf(FIELDS).deserialize(deserializer)?;
        Self::from_fields(&fields).map_err(D::Error::custom)
    }
}

/// Returns a digest of a list of logs. The digest does not depend on the order of the logs.
///
/// The digest is the Keccak-256 hash of an RLP list that contains one list for each log: `[block
/// hash, block number, log index, transaction index, address, [topic, …], data]`. The lists are
/// sorted by block number, then by log index, then by their encoded bytes. A log that occurs twice
/// is hashed twice. The digest does not cover timestamp, transaction hashes and `removed`, because
/// sources may leave them out.
///
/// # Cost
/// Sorts the logs, and hashes their encodings. The encoding of a log has about 150 bytes in
/// addition to the log's data.
pub fn digest(logs: &[LocatedLog]) -> B256 {
    let mut encoded: Vec<(u64, u64, Vec<u8>)> = logs
        .iter()
        .map(|log| {
            let mut bytes = Vec::new();
            log.encode(&mut bytes);
            (log.block_number, log.log_index, bytes)
        })
        .collect();
    encoded.sort_unstable();
    let payload_length = encoded.iter().map(|(_, _, bytes)| bytes.len()).sum();
    let mut list = Vec::new();
    alloy_rlp::Header { list: true, payload_length }.encode(&mut list);
    for (_, _, bytes) in &encoded {
        list.extend_from_slice(bytes);
    }
    B256::new(keccak256(&list))
}

fn fixed_bytes_of<const N: usize>(text: &str, what: &'static str) -> Result<[u8; N], ValueProblem> {
    fixed_bytes(text, Prefix::Required, what)
}

fn hash_of(text: &str) -> Result<B256, ValueProblem> {
    fixed_bytes_of(text, "a hash").map(B256::new)
}

fn quantity(text: &str) -> Result<u64, ValueProblem> {
    number(text, true)
}

fn optional<T>(
    value: Option<&Shape>,
    field: &'static str,
    read: impl Fn(&str) -> Result<T, ValueProblem>,
) -> Result<Option<T>, LogJsonError> {
    let text = value.map(|value| value.text("hex in a string").and_then(&read)).transpose();
    text.map_err(|problem| LogJsonError::Value { place: JsonPath::of(field), problem })
}

fn required<T>(
    value: Option<&Shape>,
    field: &'static str,
    read: impl Fn(&str) -> Result<T, ValueProblem>,
) -> Result<T, LogJsonError> {
    let missing =
        LogJsonError::Value { place: JsonPath::of(field), problem: ValueProblem::Missing };
    optional(value, field, read)?.ok_or(missing)
}

fn read_topics(value: Option<&Shape>) -> Result<Vec<B256>, LogJsonError> {
    let place = JsonPath::of("topics");
    let topics = match value {
        None => Err(ValueProblem::Missing),
        Some(Shape::List(topics)) if topics.len() <= MAX_TOPICS => Ok(topics),
        Some(Shape::List(topics)) => {
            Err(ValueProblem::TooMany { found: topics.len(), limit: MAX_TOPICS })
        }
        Some(other) => Err(other.instead_of("a list")),
    };
    let topics = topics.map_err(|problem| LogJsonError::Value { place, problem })?;
    let read = |topic: &Shape| {
        topic.text("a topic").and_then(|text| fixed_bytes_of(text, "a topic")).map(B256::new)
    };
    let topics = topics.iter().enumerate().map(|(at, topic)| {
        read(topic).map_err(|problem| LogJsonError::Value { place: place.at(at), problem })
    });
    topics.collect()
}

/// Parses a list of logs one by one, so that at most one log at a time is in memory as JSON.
struct LogList;

impl<'de> Visitor<'de> for LogList {
    type Value = Result<Vec<LocatedLog>, LogJsonError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of logs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut logs = Vec::new();
        while let Some(fields) = seq.next_element_seed(ObjectOf(FIELDS))? {
            match LocatedLog::from_fields(&fields) {
                Ok(log) => logs.push(log),
                Err(problem) => {
                    let index = logs.len();
                    // serde_json requires that the list is read to its end.
                    while seq.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(Err(LogJsonError::InList { index, problem: problem.into() }));
                }
            }
        }
        Ok(Ok(logs))
    }
}

/// The logs that only one of two answers contains.
///
/// Logs are compared by the fields that every node must return: block hash, log index, transaction
/// index, address, topics, data and `removed`. Timestamps and transaction hashes are ignored,
/// because nodes may omit them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference<'a> {
    /// The logs of the first answer that the second answer lacks, in the order of the first answer.
    pub only_first: Vec<&'a LocatedLog>,
    /// The logs of the second answer that the first answer lacks, in the order of the second
    /// answer.
    pub only_second: Vec<&'a LocatedLog>,
}

type Key<'a> = (B256, u64, u64, Address, &'a [B256], &'a [u8], bool);

fn key(log: &LocatedLog) -> Key<'_> {
    let LocatedLog { log: inner, block_hash, log_index, transaction_index, removed, .. } = log;
    let (topics, data) = (inner.topics(), inner.data.data.as_ref());
    (*block_hash, *log_index, *transaction_index, inner.address, topics, data, *removed)
}

fn only<'a>(these: &'a [LocatedLog], others: &'a [LocatedLog]) -> Vec<&'a LocatedLog> {
    // Count equal logs, so that a log that one answer repeats is reported as a difference.
    let mut left: BTreeMap<Key<'_>, usize> = BTreeMap::new();
    for log in others {
        *left.entry(key(log)).or_default() += 1;
    }
    let is_new = |log: &&'a LocatedLog| match left.get_mut(&key(log)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    these.iter().filter(is_new).collect()
}

impl<'a> Difference<'a> {
    /// Compares two answers as multisets: a log that occurs more often in one answer is a
    /// difference.
    ///
    /// # Cost
    /// Makes O((n + m) · log(n + m)) comparisons for answers of n and m logs, and builds a map of
    /// each answer.
    pub fn new(first: &'a [LocatedLog], second: &'a [LocatedLog]) -> Self {
        Self { only_first: only(first, second), only_second: only(second, first) }
    }

    /// Returns `true` if both answers contain the same logs.
    pub fn is_empty(&self) -> bool {
        self.only_first.is_empty() && self.only_second.is_empty()
    }
}
