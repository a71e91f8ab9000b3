//! Errors in JSON-RPC values, with their position.
//!
//! Queries and logs arrive as JSON from untrusted sources. The parsers of these values build no
//! full JSON tree. The parsers keep nulls, booleans, strings and lists. For numbers and objects,
//! the parsers keep only the JSON type, so that memory stays proportional to the input.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// Maximum number of characters of an invalid text that an error message repeats.
const EXCERPT: usize = 80;

/// Position of a JSON value: a field, and up to two list indices in it.
///
/// `Display` writes, for example, `topics[1][3]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonPath {
    /// Name of the field.
    pub field: &'static str,
    /// Index in the field's list, or `None` for the whole field.
    pub index: Option<usize>,
    /// Index in the nested list at `index`, or `None` for the whole element.
    pub inner: Option<usize>,
}

impl JsonPath {
    pub(crate) const fn of(field: &'static str) -> Self {
        Self { field, index: None, inner: None }
    }

    /// Returns the position of element `index` in the list at this position.
    pub(crate) const fn at(self, index: usize) -> Self {
        match self.index {
            None => Self { index: Some(index), ..self },
            Some(_) => Self { inner: Some(index), ..self },
        }
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field)?;
        self.index.iter().chain(&self.inner).try_for_each(|index| write!(f, "[{index}]"))
    }
}

/// Reason why a JSON value is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueProblem {
    /// The field is missing or null.
    #[error("is missing or null")]
    Missing,
    /// The value has the wrong JSON type.
    #[error("expected {expected}, found {found}")]
    WrongKind {
        /// The expected type, with its article.
        expected: &'static str,
        /// The type that was found, with its article.
        found: &'static str,
    },
    /// A hex string lacks its prefix `0x`.
    #[error("{text:?} does not begin with 0x")]
    NoPrefix {
        /// The value's first characters.
        text: String,
    },
    /// A hex number has no digits.
    #[error("no digits after 0x")]
    NoDigits,
    /// A hex number of at least two digits begins with zero.
    #[error("{text:?} has a leading zero")]
    LeadingZero {
        /// The value's first characters.
        text: String,
    },
    /// The number of hex digits is odd.
    #[error("{digits} hex digits are not whole bytes")]
    OddDigits {
        /// Number of digits after the prefix.
        digits: usize,
    },
    /// A character is not a hex digit.
    #[error("character {character:?} at {at} is not a hex digit")]
    NotHex {
        /// The character.
        character: char,
        /// Offset in bytes of the invalid character, from the start of the prefix.
        at: usize,
    },
    /// The number of bytes differs from the size of the type.
    #[error("{found} bytes, but {what} has {expected}")]
    Length {
        /// Number of bytes found.
        found: usize,
        /// Number of bytes of the type.
        expected: usize,
        /// Name of the type, with its article.
        what: &'static str,
    },
    /// A number is above the limit.
    #[error("{text:?} is above {limit:#x}")]
    TooLarge {
        /// The value's first characters.
        text: String,
        /// The largest number that is allowed.
        limit: u64,
    },
    /// The name of a block is neither a hex number nor a tag.
    #[error(
        "{text:?} is neither a number in hex with 0x nor one of earliest, latest, safe, \
         finalized, pending"
    )]
    NotABlock {
        /// The value's first characters.
        text: String,
    },
    /// A list has too many values.
    #[error("{found} values, but at most {limit} are allowed")]
    TooMany {
        /// Number of values found.
        found: usize,
        /// Maximum number of values.
        limit: usize,
    },
}

/// Returns the first [`EXCERPT`] characters of a text, for an error message.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        None => text.to_string(),
        Some((end, _)) => alloc::format!("{}…", &text[..end]),
    }
}

/// Returns the parser's error message, shortened if it repeats a long value.
pub(crate) fn message(error: &serde_json::Error) -> String {
    /// Maximum length of a message in characters. Messages that repeat no value are shorter.
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

/// Prefixes that a hex string may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// `0x` or `0X`, as geth requires.
    Required,
    /// `0x`, `0X` or no prefix, as alloy accepts for bytes.
    Optional,
}

/// Returns the digits after the prefix, and their offset in bytes.
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

/// Parses exactly `N` bytes in hex; `what` is the type's name with its article, for errors.
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

/// Parses any number of bytes in hex; the prefix is required.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, ValueProblem> {
    bytes_with(text, Prefix::Required)
}

/// Parses any number of bytes in hex.
pub(crate) fn bytes_with(text: &str, prefix: Prefix) -> Result<Vec<u8>, ValueProblem> {
    let (digits, offset) = digits(text, prefix)?;
    all_hex(digits, offset)?;
    alloy_primitives::hex::decode(digits)
        .map_err(|_| ValueProblem::OddDigits { digits: digits.len() })
}

/// Parses a hex number with its prefix; leading zeros are allowed only if `zeros` is `true`.
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

/// The parts of a JSON value that queries and logs need.
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
    /// Returns the name of the JSON type, with its article.
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

/// Maximum nesting of lists whose values are kept. Topics in queries need two levels.
const DEPTH: usize = 2;

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reader::<0> { depth: 0, object: None }.deserialize(deserializer)
    }
}

/// Parses a value at a nesting depth.
struct Reader<'a, const N: usize> {
    /// Number of lists that enclose the value.
    depth: usize,
    /// The names of the fields to keep if the value is an object, and the place for their values.
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
            // No valid query has lists nested so deeply, so the elements are skipped and not
            // stored.
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
                // Go's parser accepts a field name in any case. The caller reports that the case
                // differs.
                match names.iter().find(|name| same_but_for_case(&key, name)) {
                    Some(name) => fields.misspelt = Some((excerpt(&key), name)),
                    None => fields.unknown = Some(excerpt(&key)),
                }
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            // Parsers disagree on which of two fields with the same name is valid. The caller
            // rejects an object that has such fields.
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

/// The values of an object's known fields, and the problems that were found in the object.
#[derive(Debug)]
pub(crate) struct Fields<const N: usize> {
    /// The type of the JSON value, with its article, if the value is not an object.
    pub(crate) not_an_object: Option<&'static str>,
    pub(crate) values: [Option<Shape>; N],
    /// The first known field that occurs twice.
    pub(crate) duplicate: Option<&'static str>,
    /// The last key that is not a known field.
    pub(crate) unknown: Option<String>,
    /// The last key that differs from a known field only in upper or lower case, and the known
    /// field.
    pub(crate) misspelt: Option<(String, &'static str)>,
}

/// Parses an object with these known fields.
pub(crate) struct ObjectOf<const N: usize>(pub(crate) [&'static str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for ObjectOf<N> {
    type Value = Fields<N>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields<N>, D::Error> {
        let values = [const { None }; N];
        let mut fields =
            Fields { not_an_object: None, values, duplicate: None, unknown: None, misspelt: None };
        // If the value is a list instead of an object, none of its elements are kept.
        let reader = Reader { depth: DEPTH, object: Some((&self.0, &mut fields)) };
        let shape = reader.deserialize(deserializer)?;
        fields.not_an_object = Some(shape.kind()).filter(|_| !matches!(shape, Shape::Object));
        Ok(fields)
    }
}

/// Returns `true` if Go's JSON parser would accept `key` as the ASCII field `name`.
///
/// Go ignores case, and folds two letters outside ASCII to ASCII: the long s and the Kelvin sign.
fn same_but_for_case(key: &str, name: &str) -> bool {
    let folded = key.chars().map(|character| match character {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(name.chars().map(|character| character.to_ascii_lowercase()))
}
