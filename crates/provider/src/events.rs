//! Events decoded by a contract's ABI.

use std::collections::BTreeMap;

use alloy_dyn_abi::{DynSolValue, EventExt as _};
use alloy_json_abi::{Event, JsonAbi, Param};
use chainsieve::alloy_primitives::{B256, Log, hex};
use chainsieve::eth::log_query::LogQuery;
use serde_json::{Map, Value, json};
use thiserror::Error;

/// Text of an ABI that is read at most.
const MAX_ABI: usize = 16 << 20;

/// Arrays and tuples within each other: compilers give up much earlier, and whoever reads types by
/// recursion has a stack.
const MAX_DEPTH: usize = 32;

/// Events of contracts, by which logs are decoded.
///
/// ```
/// use chainsieve_provider::Events;
/// let events = Events::new()
///     .signature("event Transfer(address indexed from, address indexed to, uint256 value)")?;
/// let query = events.query();
/// assert_eq!(query.to_json(), r#"{"topics":[["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"]]}"#);
/// # Ok::<(), chainsieve_provider::EventsError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Events {
    /// Of one first topic there may be several, with other arguments indexed: ERC-20 and ERC-721
    /// share `Transfer`.
    by_topic: BTreeMap<B256, Vec<Event>>,
}

/// Why a text names no events.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EventsError {
    /// Not a contract's ABI in JSON, nor an object with one as `abi`.
    #[error("not an ABI in JSON: {0}")]
    Abi(String),
    /// Too long.
    #[error("an ABI of {0} bytes; the limit is {MAX_ABI}")]
    TooLong(usize),
    /// Not the signature of an event.
    #[error("not an event's signature, as event Name(address indexed who, uint256 amount): {0}")]
    Signature(String),
    /// An anonymous event has no first topic that tells it.
    #[error("event {0} is anonymous: no topic tells it")]
    Anonymous(String),
    /// An argument whose type is nested too deeply.
    #[error("a type of event {0} is nested more than {MAX_DEPTH} deep")]
    TooDeep(String),
    /// It has no events.
    #[error("no events")]
    Empty,
}

/// Why a log of a known event is not decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not a log of {event}: {reason}")]
#[non_exhaustive]
pub struct DecodeError {
    /// The event's signature.
    pub event: String,
    /// What is wrong.
    pub reason: String,
}

/// A log, decoded.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DecodedEvent<'a> {
    /// The event.
    pub event: &'a Event,
    /// Its arguments, in the order of its declaration.
    pub arguments: Vec<Argument<'a>>,
}

/// An argument of an event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Argument<'a> {
    /// Its name; empty if it has none.
    pub name: &'a str,
    /// Its Solidity type.
    pub solidity_type: &'a str,
    /// The value; of an indexed argument of dynamic size its keccak-256 alone, which is all that a
    /// log has.
    pub value: DynSolValue,
    /// Whether the value is such a hash.
    pub is_hash: bool,
}

impl Events {
    /// No events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds all events of a contract's ABI: the JSON list of its parts, or an object that has it as
    /// `abi`, as compilers write. Anonymous events are left out: no topic tells them.
    ///
    /// # Errors
    /// [`EventsError`].
    pub fn json_abi(mut self, json: &str) -> Result<Self, EventsError> {
        #[derive(serde::Deserialize)]
        struct Artifact {
            abi: JsonAbi,
        }
        if json.len() > MAX_ABI {
            return Err(EventsError::TooLong(json.len()));
        }
        let abi = if json.trim_start().starts_with('[') {
            serde_json::from_str(json)
        } else {
            serde_json::from_str(json).map(|Artifact { abi }| abi)
        };
        let abi: JsonAbi = abi.map_err(|error| EventsError::Abi(error.to_string()))?;
        let events = abi.events.into_values().flatten().filter(|event| !event.anonymous);
        let before = self.len();
        for event in events {
            self.add(event)?;
        }
        if self.len() == before { Err(EventsError::Empty) } else { Ok(self) }
    }

    /// Adds an event by its signature, as Solidity declares it.
    ///
    /// # Errors
    /// [`EventsError`].
    pub fn signature(mut self, signature: &str) -> Result<Self, EventsError> {
        if signature.len() > MAX_ABI {
            return Err(EventsError::TooLong(signature.len()));
        }
        if signature.matches(['(', '[']).count() > MAX_DEPTH {
            return Err(EventsError::TooDeep(signature.chars().take(40).collect()));
        }
        let event = Event::parse(signature.trim().trim_end_matches(';'));
        let event = event.map_err(|error| EventsError::Signature(error.to_string()))?;
        if event.anonymous {
            return Err(EventsError::Anonymous(event.name));
        }
        self.add(event)?;
        Ok(self)
    }

    fn add(&mut self, event: Event) -> Result<(), EventsError> {
        if event.inputs.iter().any(|input| depth(&input.ty, &input.components) > MAX_DEPTH) {
            return Err(EventsError::TooDeep(event.name));
        }
        let same_topic = self.by_topic.entry(event.selector()).or_default();
        if !same_topic.contains(&event) {
            same_topic.push(event);
        }
        Ok(())
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.by_topic.values().map(Vec::len).sum()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.by_topic.is_empty()
    }

    /// The events.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.by_topic.values().flatten()
    }

    /// A query for all of them, at any address.
    pub fn query(&self) -> LogQuery {
        LogQuery::new().topic0(self.by_topic.keys().copied().collect::<Vec<_>>())
    }

    /// Decodes a log; `None` if it is of none of the events.
    ///
    /// # Errors
    /// [`DecodeError`]: its first topic is an event's, and its other topics or its data are not.
    /// Anyone may emit such a log.
    pub fn decode(&self, log: &Log) -> Result<Option<DecodedEvent<'_>>, DecodeError> {
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
        let other_count = || DecodeError {
            event: events.first().map(Event::full_signature).unwrap_or_default(),
            reason: format!("it has {num_indexed} indexed arguments"),
        };
        Err(failed.unwrap_or_else(other_count))
    }
}

/// How deeply a type is nested. Components are as deep as JSON may be, and no deeper.
fn depth(solidity_type: &str, components: &[Param]) -> usize {
    let within = components.iter().map(|inner| depth(&inner.ty, &inner.components));
    solidity_type.matches('[').count() + within.max().map_or(0, |depth| depth + 1)
}

fn decode<'a>(event: &'a Event, log: &Log) -> Result<DecodedEvent<'a>, DecodeError> {
    let wrong = |reason: String| DecodeError { event: event.full_signature(), reason };
    let decoded = event.decode_log(&log.data).map_err(|error| wrong(error.to_string()))?;
    let (mut indexed, mut body) = (decoded.indexed.into_iter(), decoded.body.into_iter());
    let arguments = event.inputs.iter().map(|input| {
        let value = if input.indexed { indexed.next() } else { body.next() };
        let value = value.ok_or_else(|| wrong("an argument is missing".into()))?;
        let is_bytes32 = input.ty == "bytes32";
        let is_hash =
            input.indexed && !is_bytes32 && matches!(value, DynSolValue::FixedBytes(_, 32));
        Ok(Argument { name: &input.name, solidity_type: &input.ty, value, is_hash })
    });
    Ok(DecodedEvent { event, arguments: arguments.collect::<Result<_, _>>()? })
}

impl DecodedEvent<'_> {
    /// As JSON: `{"event": name, "signature": …, "arguments": {name: value}}`. Numbers are decimal
    /// text, bytes and addresses are lowercase hex with 0x, tuples and arrays are lists. An argument
    /// without a name is named by its place; one of which the log has the hash alone is
    /// `{"keccak256": hash}`.
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
    /// As JSON; see [`DecodedEvent::to_json`].
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
