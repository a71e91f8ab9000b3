//! Topics of a query: their conversion from Solidity values, and the topics of events such as
//! `Transfer(address,address,uint256)`, which are hashes of canonical signatures.

use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::{Address, B256, U256};
use chainsieve_lanes::hash::keccak256;

use super::QueryError;
use crate::eth::json::excerpt;

/// A value that can be an indexed argument of an event and fits into the 32 bytes of a topic.
///
/// The trait is not implemented for text and for bytes of variable length, because their topic is a
/// hash.
pub trait ToTopic {
    /// Returns the value as a topic.
    fn to_topic(&self) -> B256;
}

impl ToTopic for B256 {
    fn to_topic(&self) -> B256 {
        *self
    }
}

/// The topic is twelve zero bytes, then the address. The hash of the address without padding would
/// set the wrong bits in a filter.
impl ToTopic for Address {
    fn to_topic(&self) -> B256 {
        self.into_word()
    }
}

/// The topic is the number in big-endian order. The same number in a smaller unsigned type has the
/// same topic.
impl ToTopic for U256 {
    fn to_topic(&self) -> B256 {
        B256::from(*self)
    }
}

/// The topic is the same as the topic of the number 0 or 1.
impl ToTopic for bool {
    fn to_topic(&self) -> B256 {
        B256::with_last_byte(u8::from(*self))
    }
}

/// The topics that a query accepts at one position of a log's topics. An empty set accepts any
/// topic.
///
/// `serde` writes the list of the topics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<B256>", into = "Vec<B256>")]
pub struct TopicSet {
    /// Sorted, without duplicates.
    values: Vec<B256>,
}

impl TopicSet {
    /// Returns the set that accepts any topic.
    pub const fn any() -> Self {
        Self { values: Vec::new() }
    }

    /// Returns `true` if the set accepts any topic.
    pub const fn is_any(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the topics, sorted and without duplicates; empty if the set accepts any topic.
    pub fn values(&self) -> &[B256] {
        &self.values
    }

    /// Returns `true` if the set accepts this topic.
    pub fn admits(&self, topic: &B256) -> bool {
        self.is_any() || self.values.binary_search(topic).is_ok()
    }
}

impl From<TopicSet> for Vec<B256> {
    fn from(set: TopicSet) -> Self {
        set.values
    }
}

impl<T: ToTopic> From<T> for TopicSet {
    fn from(value: T) -> Self {
        Self { values: alloc::vec![value.to_topic()] }
    }
}

/// An empty list accepts any topic, as in JSON.
impl<T: ToTopic> From<Vec<T>> for TopicSet {
    fn from(values: Vec<T>) -> Self {
        values.into_iter().collect()
    }
}

impl<T: ToTopic, const N: usize> From<[T; N]> for TopicSet {
    fn from(values: [T; N]) -> Self {
        values.into_iter().collect()
    }
}

impl<T: ToTopic> FromIterator<T> for TopicSet {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut values: Vec<B256> = values.into_iter().map(|value| value.to_topic()).collect();
        values.sort_unstable();
        values.dedup();
        Self { values }
    }
}

/// Returns the first topic of an event: the Keccak-256 hash of its canonical signature.
///
/// The text is the signature, or a declaration as Solidity has it: with `event`, `indexed`, names of
/// arguments, white space and a semicolon, which are not part of the signature. `uint` and `int` stand
/// for `uint256` and `int256`. Write a tuple instead of a struct, with or without the word `tuple` before it and
/// without names of its fields, `address` instead of a contract, and `uint8` instead of an enum: only the
/// contract's source says what these names mean.
///
/// # Errors
/// Returns an error if the text declares no event, or an anonymous event.
///
/// # Examples
/// ```
/// use chainsieve::alloy_primitives::b256;
/// use chainsieve::eth::log_query::event_topic;
/// let topic = b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");
/// assert_eq!(event_topic("Transfer(address,address,uint256)")?, topic);
/// let declaration = "event Transfer(address indexed from, address indexed to, uint value);";
/// assert_eq!(event_topic(declaration)?, topic);
/// assert_eq!(
///     event_topic("Transfer(IERC20,address)").unwrap_err().to_string(),
///     r#""IERC20" at byte 9 is not a type of the ABI"#
/// );
/// # Ok::<(), chainsieve::eth::log_query::QueryError>(())
/// ```
pub fn event_topic(event: &str) -> Result<B256, QueryError> {
    Ok(B256::new(keccak256(canonical(event)?.as_bytes())))
}

fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}

fn is_name(name: &str) -> bool {
    let begins_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
    !name.is_empty() && !begins_with_digit && name.chars().all(is_in_name)
}

/// Returns the offset after white space that begins at `at`.
fn after_space(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_ascii_start().len()
}

/// Returns the canonical signature of an event.
fn canonical(text: &str) -> Result<String, QueryError> {
    let mut at = after_space(text, 0);
    if let Some(rest) = text[at..].strip_prefix("event")
        && rest.starts_with(|c: char| c.is_ascii_whitespace())
    {
        at = after_space(text, text.len() - rest.len());
    }
    let name_end = text[at..].find('(').map_or(text.len(), |length| at + length);
    let name = &text[at..name_end];
    if !is_name(name) || name == "event" {
        return Err(QueryError::EventName(excerpt(name)));
    }
    let mut signature = String::from(name);
    at = name_end;
    let mut depth = 0_usize;
    // `after_type` is `true` if a type has just ended, and `after_open` if a list has just begun.
    // These flags decide which characters may follow.
    let (mut after_type, mut after_open) = (false, false);
    loop {
        match text.as_bytes().get(at) {
            Some(b'(') if !after_type => {
                (depth, after_open) = (depth + 1, true);
                signature.push('(');
                at += 1;
            }
            Some(b',') if after_type => {
                after_type = false;
                signature.push(',');
                at += 1;
            }
            // The list of arguments may be empty, but a tuple must have at least one field.
            Some(b')') if after_type || (after_open && depth == 1) => {
                depth -= 1;
                signature.push(')');
                at += 1;
                if depth == 0 {
                    break;
                }
                at = after_argument(text, at, depth, &mut signature)?;
                after_type = true;
            }
            _ if depth == 0 => return Err(QueryError::EventSyntax { expected: "(", at }),
            _ if after_type => {
                return Err(QueryError::EventSyntax { expected: "a comma or )", at });
            }
            // Parsers of human-readable ABIs take this word before the types of a tuple.
            _ if text[at..].starts_with("tuple(") => at += "tuple".len(),
            _ => {
                let rest = &text[at..];
                let ends = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | '(' | ')' | '[');
                let length = rest.find(ends).unwrap_or(rest.len());
                signature.push_str(canonical_type(&rest[..length], at)?);
                at = after_argument(text, at + length, depth, &mut signature)?;
                (after_type, after_open) = (true, false);
            }
        }
        at = after_space(text, at);
    }
    at = after_space(text, at);
    if text[at..].starts_with("anonymous") {
        return Err(QueryError::EventAnonymous);
    }
    if text[at..].starts_with(';') {
        at = after_space(text, at + 1);
    }
    if at < text.len() {
        return Err(QueryError::EventSyntax { expected: "the end", at });
    }
    Ok(signature)
}

/// Returns the offset after the parts that follow the type of an argument: array dimensions, such as `[]`
/// or `[3]`, are appended to the signature; `indexed` and a name are not. Fields of a tuple have no
/// names.
fn after_argument(
    text: &str,
    at: usize,
    depth: usize,
    signature: &mut String,
) -> Result<usize, QueryError> {
    let mut end = at;
    while let Some(rest) = text[end..].strip_prefix('[') {
        let size = rest.split(']').next().unwrap_or_default();
        let is_length = is_number(size) && size.parse::<u64>().is_ok();
        if rest.len() == size.len() || !(size.is_empty() || is_length) {
            let expected = "the length of an array and ]";
            return Err(QueryError::EventSyntax { expected, at: end + 1 });
        }
        end += size.len() + 2;
    }
    signature.push_str(&text[at..end]);
    if depth > 1 {
        return Ok(end);
    }
    let word = |at: usize| {
        let start = after_space(text, at);
        let rest = &text[start..];
        let word = &rest[..rest.find(|c| !is_in_name(c)).unwrap_or(rest.len())];
        // Arguments of events are never references.
        let is_reference = matches!(word, "memory" | "storage" | "calldata");
        let is_one = start > at && is_name(word) && !is_reference;
        is_one.then(|| (word, start + word.len()))
    };
    match word(end) {
        Some(("indexed", after)) => Ok(word(after).map_or(after, |(_, after)| after)),
        Some((_, after)) => Ok(after),
        None => Ok(end),
    }
}

/// Returns `true` if the text is a decimal number above 0 without leading zeros.
fn is_number(text: &str) -> bool {
    text.bytes().all(|digit| digit.is_ascii_digit()) && !text.starts_with('0') && !text.is_empty()
}

/// Parses a decimal number; returns `None` if the text is not a number or if the number is not in
/// the range.
fn size_in(text: &str, range: core::ops::RangeInclusive<u16>) -> Option<u16> {
    text.parse().ok().filter(|size| is_number(text) && range.contains(size))
}

/// Returns the canonical name of a type.
fn canonical_type(found: &str, at: usize) -> Result<&str, QueryError> {
    let bits = |size: &str| size_in(size, 8..=256).is_some_and(|size| size.is_multiple_of(8));
    let is_type = match found {
        "uint" => return Ok("uint256"),
        "int" => return Ok("int256"),
        "address" | "bool" | "bytes" | "string" | "function" => true,
        _ => {
            let unsigned = found.strip_prefix('u').unwrap_or(found);
            if let Some(size) = unsigned.strip_prefix("int") {
                bits(size)
            } else if let Some((size, places)) =
                unsigned.strip_prefix("fixed").and_then(|sizes| sizes.split_once('x'))
            {
                bits(size) && (places == "0" || size_in(places, 1..=80).is_some())
            } else {
                found.strip_prefix("bytes").is_some_and(|size| size_in(size, 1..=32).is_some())
            }
        }
    };
    if is_type { Ok(found) } else { Err(QueryError::EventType { found: excerpt(found), at }) }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use alloy_primitives::{B256, b256};

    use super::event_topic;

    /// Topics that contracts on mainnet emit.
    #[test]
    fn known_topics() {
        let known: [(&str, B256); 6] = [
            (
                "Transfer(address,address,uint256)",
                b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"),
            ),
            (
                "Approval(address,address,uint256)",
                b256!("0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"),
            ),
            (
                "Sync(uint112,uint112)",
                b256!("0x1c411e9a96e071241c2f21f7726b17ae89e3cab4c78be50e062b03a9fffbbad1"),
            ),
            (
                "Swap(address,uint256,uint256,uint256,uint256,address)",
                b256!("0xd78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822"),
            ),
            (
                "TransferBatch(address,address,address,uint256[],uint256[])",
                b256!("0x4a39dc06d4c0dbc64b70af90fd698a233a518aa5d07e595d983b8c0526c8f7fb"),
            ),
            (
                "OrderFulfilled(bytes32,address,address,address,(uint8,address,uint256,uint256)[],\
                 (uint8,address,uint256,uint256,address)[])",
                b256!("0x9d9af8e38d66c62e2c12f0225249fd9d721c54b83f48d9352c97c6cacdcb6f31"),
            ),
        ];
        for (signature, topic) in known {
            assert_eq!(event_topic(signature), Ok(topic), "{signature}");
        }
    }

    #[test]
    fn every_type_of_the_abi() {
        for types in [
            "",
            "bool",
            "string",
            "bytes",
            "bytes1",
            "bytes32",
            "uint8",
            "int256",
            "function",
            "fixed128x18",
            "ufixed8x0",
            "uint256[]",
            "uint256[3][][12]",
            "(bool)",
            "(bool,(int8[]))[2]",
        ] {
            assert!(event_topic(&alloc::format!("E({types})")).is_ok(), "{types}");
        }
        assert!(event_topic("$_a9()").is_ok());
    }

    /// What a declaration has beside the signature does not change the topic.
    #[test]
    fn declarations() {
        for (declaration, signature) in [
            ("event E (bool)", None),
            (" event E( bool ) ; ", Some("E(bool)")),
            ("event E(uint a, int[2] indexed b)", Some("E(uint256,int256[2])")),
            ("E(address indexed)", Some("E(address)")),
            ("E((uint,bool)[] pairs,\n  bytes32 indexed $id)", Some("E((uint256,bool)[],bytes32)")),
            ("E(bool indexed indexed)", Some("E(bool)")),
            ("E(tuple(uint,tuple(bool))[] pairs)", Some("E((uint256,(bool))[])")),
        ] {
            assert_eq!(super::canonical(declaration).ok().as_deref(), signature, "{declaration}");
        }
    }

    #[test]
    fn what_is_no_signature() {
        let cases = [
            ("", r#""" is not the name of an event"#),
            ("(bool)", r#""" is not the name of an event"#),
            ("1E(bool)", r#""1E" is not the name of an event"#),
            ("E (bool)", r#""E " is not the name of an event"#),
            ("É(bool)", r#""É" is not the name of an event"#),
            ("Transfer", "expected ( at byte 8"),
            ("E(", r#""" at byte 2 is not a type of the ABI"#),
            ("E(bool", "expected a comma or ) at byte 6"),
            ("E(bool))", "expected the end at byte 7"),
            ("E(bool) x", "expected the end at byte 8"),
            ("event(bool)", r#""event" is not the name of an event"#),
            ("function f(bool)", r#""function f" is not the name of an event"#),
            ("event E(bool) anonymous;", "an anonymous event has no topic of its own"),
            ("E(bool,)", r#""" at byte 7 is not a type of the ABI"#),
            ("E(,bool)", r#""" at byte 2 is not a type of the ABI"#),
            ("E(bool indexed a b)", "expected a comma or ) at byte 17"),
            ("E(string memory)", "expected a comma or ) at byte 9"),
            ("E((bool a))", "expected a comma or ) at byte 8"),
            ("E(bool [])", "expected a comma or ) at byte 7"),
            ("E(tuple)", r#""tuple" at byte 2 is not a type of the ABI"#),
            ("E(tuple())", r#""" at byte 8 is not a type of the ABI"#),
            ("E(bool tuple(bool))", "expected a comma or ) at byte 12"),
            ("E(byte)", r#""byte" at byte 2 is not a type of the ABI"#),
            ("E(())", r#""" at byte 3 is not a type of the ABI"#),
            ("E((bool)x)", "expected a comma or ) at byte 8"),
            ("E(bool(bool))", "expected a comma or ) at byte 6"),
            ("E(uint7)", r#""uint7" at byte 2 is not a type of the ABI"#),
            ("E(uint264)", r#""uint264" at byte 2 is not a type of the ABI"#),
            ("E(uint08)", r#""uint08" at byte 2 is not a type of the ABI"#),
            ("E(uint+8)", r#""uint+8" at byte 2 is not a type of the ABI"#),
            ("E(bytes0)", r#""bytes0" at byte 2 is not a type of the ABI"#),
            ("E(bytes33)", r#""bytes33" at byte 2 is not a type of the ABI"#),
            ("E(IERC20)", r#""IERC20" at byte 2 is not a type of the ABI"#),
            ("E(bool[0])", "expected the length of an array and ] at byte 7"),
            ("E(bool[)", "expected the length of an array and ] at byte 7"),
            ("E(bool[3)", "expected the length of an array and ] at byte 7"),
        ];
        for (signature, message) in cases {
            let error = event_topic(signature).expect_err(signature);
            assert_eq!(error.to_string(), message, "{signature}");
        }
    }
}
