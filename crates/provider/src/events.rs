//! Decodes logs as events, by a contract's ABI or by event signatures.

use std::collections::BTreeMap;

use alloy_dyn_abi::{DynSolValue, EventExt as _};
use alloy_json_abi::{Event, JsonAbi, Param};
use chainsieve::alloy_primitives::{B256, Log, hex};
use chainsieve::eth::log_query::{LogQuery, QueryError, event_topic};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// Maximum length of an ABI's or a signature's text in bytes. An estimate that bounds the memory
/// and the time of parsing.
const MAX_ABI: usize = 16 << 20;

/// Maximum nesting of arrays and tuples in a type. Types are read by recursion, so deeper
/// types could overflow the stack. Compilers allow far fewer levels.
const MAX_DEPTH: usize = 32;

/// A set of events of contracts, for decoding logs.
///
/// ```
/// use chainsieve_provider::EventDecoder;
/// let events = EventDecoder::new()
///     .signature("event Transfer(address indexed from, address indexed to, uint256 value)")?;
/// let query = events.query();
/// assert_eq!(query.to_json(), r#"{"topics":[["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"]]}"#);
/// # Ok::<(), chainsieve_provider::EventDecoderError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct EventDecoder {
    /// The events by their first topic. Events that differ only in their indexed arguments share a
    /// topic: ERC-20 and ERC-721 both have `Transfer`.
    by_topic: BTreeMap<B256, Vec<Event>>,
}

/// Reason why a text cannot be read as events, or why a log cannot be decoded as one of these
/// events.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EventDecoderError {
    /// The text is neither a contract's ABI in JSON nor an object with an ABI as `abi`.
    #[error("not an ABI in JSON: {0:?}")]
    Abi(String),
    /// The text has this many bytes, which is too long.
    #[error("an ABI of {0} bytes, the limit is {MAX_ABI}")]
    TooLong(usize),
    /// The text is neither the signature nor the declaration of an event, or the event is anonymous.
    #[error(transparent)]
    Signature(#[from] QueryError),
    /// Values of a type of the event cannot be decoded.
    #[error("the event cannot be decoded: {0:?}")]
    Undecodable(String),
    /// An argument of the event has a type that is nested too deeply.
    #[error(
        "event {0:?} has an argument that is nested more than {MAX_DEPTH} levels deep, or more than that many \
         brackets"
    )]
    TooDeep(String),
    /// The ABI adds no event: each of its events is anonymous or already known.
    #[error("the ABI contains no new events")]
    Empty,
    /// The first topic of a log is that of a known event, but the log is not one of this event.
    #[error("not a log of {event:?}: {reason:?}")]
    Log {
        /// The event's signature.
        event: String,
        /// Reason why the log is not a log of this event.
        reason: String,
    },
}

/// A decoded log: the event and its arguments.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DecodedEvent<'a> {
    /// The event.
    pub event: &'a Event,
    /// The event's arguments, in the order of its declaration.
    pub arguments: Vec<Argument<'a>>,
}

/// A decoded argument of an event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Argument<'a> {
    /// Name of the argument; empty if the argument has no name.
    pub name: &'a str,
    /// Solidity type of the argument.
    pub solidity_type: &'a str,
    /// Value of the argument. The value of an indexed argument of dynamic size is replaced by its
    /// keccak-256 hash, because the log contains only the hash.
    pub value: DynSolValue,
    /// `true` if [`value`](Self::value) is the hash of the argument.
    pub is_hash: bool,
}

impl EventDecoder {
    /// Creates an empty set of events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds all events of a contract's ABI, except anonymous ones, which no topic identifies.
    ///
    /// `json` is the ABI as a JSON list, or a JSON object with the list as `abi`, as compilers
    /// write it.
    ///
    /// # Errors
    /// Returns an [`EventDecoderError`] if the text is too long, is not an ABI, contains no new events,
    /// or has a type that is nested too deeply.
    pub fn json_abi(mut self, json: &str) -> Result<Self, EventDecoderError> {
        #[derive(serde::Deserialize)]
        struct Artifact {
            abi: JsonAbi,
        }
        // The length is checked before parsing, because parsing takes memory in proportion to the
        // length.
        if json.len() > MAX_ABI {
            return Err(EventDecoderError::TooLong(json.len()));
        }
        let abi = if json.trim_start().starts_with('[') {
            serde_json::from_str(json)
        } else {
            serde_json::from_str(json).map(|Artifact { abi }| abi)
        };
        let abi: JsonAbi = abi.map_err(|error| EventDecoderError::Abi(error.to_string()))?;
        let events = abi.events.into_values().flatten().filter(|event| !event.anonymous);
        let before = self.len();
        for event in events {
            self.add(event)?;
        }
        // A text that adds no event is most likely the wrong file. Without the error, the caller
        // would only notice that no log is decoded.
        if self.len() == before { Err(EventDecoderError::Empty) } else { Ok(self) }
    }

    /// Adds an event by its declaration, such as `event Named(address indexed who, string name)`. The
    /// declaration is read by the rules of [`event_topic`]. Without `indexed`, all arguments are read
    /// from the data of a log.
    ///
    /// # Errors
    /// Returns an [`EventDecoderError`] if the text is too long or invalid, if the event is anonymous, or
    /// if a type is nested too deeply.
    pub fn signature(mut self, signature: &str) -> Result<Self, EventDecoderError> {
        // As in `json_abi`, the length is checked before parsing.
        if signature.len() > MAX_ABI {
            return Err(EventDecoderError::TooLong(signature.len()));
        }
        // alloy's parser recurses at each bracket, so the number of brackets is limited before parsing.
        if signature.matches(['(', '[']).count() > MAX_DEPTH {
            return Err(EventDecoderError::TooDeep(signature.chars().take(40).collect()));
        }
        // alloy's parser also takes names that are no types, whose hash is no topic.
        let topic = event_topic(signature)?;
        let words: Vec<&str> = signature.split_ascii_whitespace().collect();
        match Event::parse(words.join(" ").trim_end_matches([';', ' '])) {
            Ok(event) if event.selector() == topic => self.add(event)?,
            Ok(event) => return Err(EventDecoderError::Undecodable(event.full_signature())),
            Err(error) => return Err(EventDecoderError::Undecodable(error.to_string())),
        }
        Ok(self)
    }

    fn add(&mut self, event: Event) -> Result<(), EventDecoderError> {
        if event.inputs.iter().any(|input| depth(&input.ty, &input.components) > MAX_DEPTH) {
            return Err(EventDecoderError::TooDeep(event.name));
        }
        let same_topic = self.by_topic.entry(event.selector()).or_default();
        if !same_topic.contains(&event) {
            same_topic.push(event);
        }
        Ok(())
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.by_topic.values().map(Vec::len).sum()
    }

    /// Returns `true` if there are no events.
    pub fn is_empty(&self) -> bool {
        self.by_topic.is_empty()
    }

    /// Returns the events, ordered by their first topic.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.by_topic.values().flatten()
    }

    /// Returns the first topics of the events, each the hash of a signature, in order.
    pub fn topics(&self) -> impl Iterator<Item = B256> {
        self.by_topic.keys().copied()
    }

    /// Returns a query for the logs of all events, at any address.
    pub fn query(&self) -> LogQuery {
        LogQuery::new().topic0(self.topics().collect::<Vec<_>>())
    }

    /// Decodes a log. Returns `None` if the log's first topic is not that of a known event.
    ///
    /// # Errors
    /// Returns an [`EventDecoderError`] if the first topic is that of a known event, but the other topics
    /// or the data do not fit the event. Any contract may emit a log with such a mismatch.
    pub fn decode(&self, log: &Log) -> Result<Option<DecodedEvent<'_>>, EventDecoderError> {
        let Some(first) = log.topics().first() else { return Ok(None) };
        let Some(events) = self.by_topic.get(first) else { return Ok(None) };
        let num_indexed = log.topics().len() - 1;
        let is_indexed = |event: &&Event| event.inputs.iter().filter(|it| it.indexed).count();
        let mut failed = None;
        for event in events.iter().filter(|event| is_indexed(event) == num_indexed) {
            match decode(event, log) {
                Ok(decoded) => return Ok(Some(decoded)),
                Err(error) => failed = Some(error),
            }
        }
        let other_count = || EventDecoderError::Log {
            event: events.first().map(Event::full_signature).unwrap_or_default(),
            reason: format!("the log has {num_indexed} indexed arguments"),
        };
        Err(failed.unwrap_or_else(other_count))
    }
}

/// Returns the nesting depth of a type. The recursion is bounded, because the JSON parser limits
/// the depth of components.
fn depth(solidity_type: &str, components: &[Param]) -> usize {
    let within = components.iter().map(|inner| depth(&inner.ty, &inner.components));
    solidity_type.matches('[').count() + within.max().map_or(0, |depth| depth + 1)
}

fn decode<'a>(event: &'a Event, log: &Log) -> Result<DecodedEvent<'a>, EventDecoderError> {
    let wrong = |reason: String| EventDecoderError::Log { event: event.full_signature(), reason };
    let decoded = event.decode_log(&log.data).map_err(|error| wrong(error.to_string()))?;
    let (mut indexed, mut body) = (decoded.indexed.into_iter(), decoded.body.into_iter());
    let arguments = event.inputs.iter().map(|input| {
        let value = if input.indexed { indexed.next() } else { body.next() };
        let value = value.ok_or_else(|| wrong("an argument is missing".into()))?;
        let is_bytes32 = input.ty == "bytes32";
        let is_hash =
            input.indexed && !is_bytes32 && matches!(value, DynSolValue::FixedBytes(_, 32));
        Ok::<_, EventDecoderError>(Argument {
            name: &input.name,
            solidity_type: &input.ty,
            value,
            is_hash,
        })
    });
    Ok(DecodedEvent { event, arguments: arguments.collect::<Result<_, _>>()? })
}

impl DecodedEvent<'_> {
    /// Returns the event as JSON: `{"event": name, "signature": …, "arguments": {name: value}}`.
    ///
    /// Numbers are decimal strings, bytes and addresses are lower-case hex with 0x, and tuples and
    /// arrays are lists. The name of an unnamed argument is its position, from 0. If the log
    /// contains only the hash of an argument, its value is `{"keccak256": hash}`.
    pub fn to_json(&self) -> Value {
        let arguments = self.arguments.iter().enumerate().map(|(place, argument)| {
            let name = match argument.name {
                "" => place.to_string(),
                name => name.to_owned(),
            };
            (name, argument.to_json())
        });
        let arguments: Map<String, Value> = arguments.collect();
        json!({
            "event": self.event.name,
            "signature": self.event.signature(),
            "arguments": arguments,
        })
    }
}

impl Argument<'_> {
    /// Returns the argument's value as JSON; see [`DecodedEvent::to_json`].
    pub fn to_json(&self) -> Value {
        if self.is_hash {
            return json!({ "keccak256": to_json(&self.value) });
        }
        to_json(&self.value)
    }
}

fn to_json(value: &DynSolValue) -> Value {
    match value {
        DynSolValue::Bool(value) => json!(value),
        DynSolValue::Int(value, _) => json!(value.to_string()),
        DynSolValue::Uint(value, _) => json!(value.to_string()),
        DynSolValue::FixedBytes(word, size) => {
            json!(hex::encode_prefixed(&word[..*size]))
        }
        DynSolValue::Address(address) => json!(address),
        DynSolValue::Function(function) => json!(function),
        DynSolValue::Bytes(bytes) => {
            json!(hex::encode_prefixed(bytes))
        }
        DynSolValue::String(text) => json!(text),
        DynSolValue::Array(values)
        | DynSolValue::FixedArray(values)
        | DynSolValue::Tuple(values) => values.iter().map(to_json).collect(),
    }
}

#[cfg(test)]
mod tests;
