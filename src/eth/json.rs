//! What is wrong with a value of JSON-RPC, and where.
//!
//! Queries and logs come as JSON from strangers. Their readers keep no tree of it: a value is
//! null, a text or a list of such; of anything else only the kind is kept, so that memory stays
//! in proportion to the text.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// How much of an offending text an error repeats, in characters.
const EXCERPT: usize = 80;

/// Where a value stands: a field, and up to two indices into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Name of the field.
    pub field: &'static str,
    /// Index in the field's list.
    pub index: Option<usize>,
    /// Index in the list at that index.
    pub inner: Option<usize>,
}

impl Place {
    pub(crate) const fn of(field: &'static str) -> Self {
        Self { field, index: None, inner: None }
    }

    /// The element `index` of the list at this place.
    pub(crate) const fn at(self, index: usize) -> Self {
        match self.index {
            None => Self { index: Some(index), ..self },
            Some(_) => Self { inner: Some(index), ..self },
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field)?;
        self.index.iter().chain(&self.inner).try_for_each(|index| write!(f, "[{index}]"))
    }
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueProblem {
    /// The field is not there, or null.
    #[error("is missing or null")]
    Missing,
    /// Another kind of value than can stand there.
    #[error("{found} stands where {expected} belongs")]
    WrongKind {
        /// What can stand there.
        expected: &'static str,
        /// What does.
        found: &'static str,
    },
    /// Hex without its prefix.
    #[error("{text:?} does not begin with 0x")]
    NoPrefix {
        /// The value's first characters.
        text: String,
    },
    /// A number without digits.
    #[error("no digits after 0x")]
    NoDigits,
    /// A number whose first digit is zero.
    #[error("{text:?} has a leading zero")]
    LeadingZero {
        /// The value's first characters.
        text: String,
    },
    /// Half a byte too much.
    #[error("{digits} hex digits are not whole bytes")]
    OddDigits {
        /// Digits after the prefix.
        digits: usize,
    },
    /// A character that is no hex digit.
    #[error("character {character:?} at {at} is not a hex digit")]
    NotHex {
        /// The character.
        character: char,
        /// Its offset in bytes, the prefix counted.
        at: usize,
    },
    /// Bytes of another number than the type has.
    #[error("{found} bytes, {what} has {expected}")]
    Length {
        /// Bytes there.
        found: usize,
        /// Bytes that the type has.
        expected: usize,
        /// The type, with its article.
        what: &'static str,
    },
    /// A number that does not fit.
    #[error("{text:?} is above {limit:#x}")]
    TooLarge {
        /// The value's first characters.
        text: String,
        /// The largest number that can stand there.
        limit: u64,
    },
    /// A block that is neither a number nor a tag.
    #[error(
        "{text:?} is neither a number in hex with 0x nor one of earliest, latest, safe, \
         finalized, pending"
    )]
    NotABlock {
        /// The value's first characters.
        text: String,
    },
    /// More values than can stand there.
    #[error("{found} values, at most {limit} can stand there")]
    TooMany {
        /// Values there.
        found: usize,
        /// How many can be.
        limit: usize,
    },
}

/// The beginning of a text, for an error.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        None => text.to_string(),
        Some((end, _)) => alloc::format!("{}…", &text[..end]),
    }
}

/// What the parser says, without what it repeats of a long value.
pub(crate) fn message(error: &serde_json::Error) -> String {
    /// More than any message has by itself, in characters.
    const LIMIT: usize = 300;
    let text = error.to_string();
    match text.char_indices().nth(LIMIT) {
        None => text,
        Some((end, _)) => {
            let place = (error.line(), error.column());
            alloc::format!("{}… at line {} column {}", &text[..end], place.0, place.1)
        }
    }
}

/// Which prefixes hex may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// `0x` or `0X`, as geth wants it.
    Required,
    /// `0x`, `0X` or none, as alloy reads bytes.
    Optional,
}

/// The digits after the prefix, and where they begin.
fn digits(text: &str, prefix: Prefix) -> Result<(&str, usize), ValueProblem> {
    let stripped = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match (stripped, prefix) {
        (Some(digits), _) => Ok((digits, 2)),
        (None, Prefix::Optional) => Ok((text, 0)),
        (None, Prefix::Required) => Err(ValueProblem::NoPrefix { text: excerpt(text) }),
    }
}

fn all_hex(digits: &str, offset: usize) -> Result<(), ValueProblem> {
    match digits.char_indices().find(|(_, character)| !character.is_ascii_hexdigit()) {
        None => Ok(()),
        Some((at, character)) => Err(ValueProblem::NotHex { character, at: at + offset }),
    }
}

/// Bytes of a fixed number; `what` names the type with its article.
pub(crate) fn fixed_bytes<const N: usize>(
    text: &str,
    prefix: Prefix,
    what: &'static str,
) -> Result<[u8; N], ValueProblem> {
    let (digits, offset) = digits(text, prefix)?;
    all_hex(digits, offset)?;
    if !digits.len().is_multiple_of(2) {
        return Err(ValueProblem::OddDigits { digits: digits.len() });
    }
    let mut bytes = [0; N];
    if alloy_primitives::hex::decode_to_slice(digits, &mut bytes).is_err() {
        return Err(ValueProblem::Length { found: digits.len() / 2, expected: N, what });
    }
    Ok(bytes)
}

/// Bytes of any number, with their prefix.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, ValueProblem> {
    bytes_with(text, Prefix::Required)
}

/// Bytes of any number.
pub(crate) fn bytes_with(text: &str, prefix: Prefix) -> Result<Vec<u8>, ValueProblem> {
    let (digits, offset) = digits(text, prefix)?;
    all_hex(digits, offset)?;
    alloy_primitives::hex::decode(digits)
        .map_err(|_| ValueProblem::OddDigits { digits: digits.len() })
}

/// A number in hex with its prefix; leading zeros only where `zeros` says so.
pub(crate) fn number(text: &str, zeros: bool) -> Result<u64, ValueProblem> {
    let (digits, offset) = digits(text, Prefix::Required)?;
    all_hex(digits, offset)?;
    if digits.is_empty() {
        return Err(ValueProblem::NoDigits);
    }
    if !zeros && digits.len() > 1 && digits.starts_with('0') {
        return Err(ValueProblem::LeadingZero { text: excerpt(text) });
    }
    u64::from_str_radix(digits, 16)
        .map_err(|_| ValueProblem::TooLarge { text: excerpt(text), limit: u64::MAX })
}

/// As much of a value as queries and logs are made of.
#[derive(Debug)]
pub(crate) enum Shape {
    Null,
    Text(String),
    List(Vec<Self>),
    Bool(bool),
    Number,
    Object,
}

impl Shape {
    /// The kind, with its article.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Bool(_) => "a boolean",
            Self::Number => "a number",
            Self::Object => "an object",
        }
    }

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(crate) const fn instead_of(&self, expected: &'static str) -> ValueProblem {
        ValueProblem::WrongKind { expected, found: self.kind() }
    }

    pub(crate) fn text(&self, expected: &'static str) -> Result<&str, ValueProblem> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(other.instead_of(expected)),
        }
    }
}

/// How deep lists may stand in lists for their values to be kept: queries need two.
const DEPTH: usize = 2;

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reader::<0> { depth: 0, object: None }.deserialize(deserializer)
    }
}

/// Reads a value at a depth.
struct Reader<'a, const N: usize> {
    /// The lists that the value stands in.
    depth: usize,
    /// Of an object: the names of the fields to keep, and what receives them.
    object: Option<(&'a [&'static str; N], &'a mut Fields<N>)>,
}

impl<'de, const N: usize> DeserializeSeed<'de> for Reader<'_, N> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Reader<'_, N> {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Bool(value))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Shape, E> {
        Ok(Shape::Text(text.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut values = Vec::new();
        if self.depth < DEPTH {
            let within = || Reader::<0> { depth: self.depth + 1, object: None };
            while let Some(value) = seq.next_element_seed(within())? {
                values.push(value);
            }
        } else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(Shape::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
        let Some((names, fields)) = self.object else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Shape::Object);
        };
        while let Some(key) = map.next_key::<String>()? {
            let Some(at) = names.iter().position(|name| *name == key) else {
                match names.iter().find(|name| same_but_for_case(&key, name)) {
                    Some(name) => fields.misspelt = Some((excerpt(&key), name)),
                    None => fields.unknown = Some(excerpt(&key)),
                }
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if fields.values[at].is_some() {
                fields.duplicate = fields.duplicate.or(Some(names[at]));
                map.next_value::<IgnoredAny>()?;
            } else {
                fields.values[at] = Some(map.next_value()?);
            }
        }
        Ok(Shape::Object)
    }
}

/// An object as the values of its known fields.
#[derive(Debug)]
pub(crate) struct Fields<const N: usize> {
    /// What it was, if not an object.
    pub(crate) not_an_object: Option<&'static str>,
    pub(crate) values: [Option<Shape>; N],
    /// A known field that came twice.
    pub(crate) duplicate: Option<&'static str>,
    /// The last key that is none of the known ones.
    pub(crate) unknown: Option<String>,
    /// The last key that differs from a known one by case alone, and that one.
    pub(crate) misspelt: Option<(String, &'static str)>,
}

/// Reads an object that has these fields.
pub(crate) struct ObjectOf<const N: usize>(pub(crate) [&'static str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for ObjectOf<N> {
    type Value = Fields<N>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields<N>, D::Error> {
        let values = [const { None }; N];
        let mut fields =
            Fields { not_an_object: None, values, duplicate: None, unknown: None, misspelt: None };
        // Of a list in place of the object nothing is kept.
        let reader = Reader { depth: DEPTH, object: Some((&self.0, &mut fields)) };
        let shape = reader.deserialize(deserializer)?;
        fields.not_an_object = Some(shape.kind()).filter(|_| !matches!(shape, Shape::Object));
        Ok(fields)
    }
}

/// Whether Go would take `key` for the ASCII name: without regard to case, and with its two
/// letters of other alphabets that fold to ASCII, the long s and the Kelvin sign.
fn same_but_for_case(key: &str, name: &str) -> bool {
    let folded = key.chars().map(|character| match character {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(name.chars().map(|character| character.to_ascii_lowercase()))
}
