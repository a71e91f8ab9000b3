//! Topics of a query, and their conversion from Solidity values.

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

/// Returns the first topic of an event that is not anonymous: the hash of its signature.
///
/// The hash is Keccak-256. The signature must be in canonical form: the name of the event and the
/// types of all arguments, indexed or not, without argument names and without white space. Write
/// `uint256` instead of `uint`, a tuple instead of a struct, `address` instead of a contract, and
/// `uint8` instead of an enum. The function does not correct the text, because the hash of a text
/// in any other form is not the topic of an event.
///
/// # Errors
/// Returns an error if the text is not a canonical signature.
///
/// # Examples
/// ```
/// use chainsieve::alloy_primitives::b256;
/// use chainsieve::eth::log_query::event_topic;
/// assert_eq!(
///     event_topic("Transfer(address,address,uint256)")?,
///     b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
/// );
/// assert_eq!(
///     event_topic("Transfer(address,address,uint)").unwrap_err().to_string(),
///     r#""uint" at 25 is short for "uint256": the hash needs the long form"#
/// );
/// # Ok::<(), chainsieve::eth::log_query::QueryError>(())
/// ```
pub fn event_topic(signature: &str) -> Result<B256, QueryError> {
    check(signature)?;
    Ok(B256::new(keccak256(signature.as_bytes())))
}

fn check(signature: &str) -> Result<(), QueryError> {
    let name_end = signature.find('(').unwrap_or(signature.len());
    let name = &signature[..name_end];
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(in_name)
    {
        return Err(QueryError::EventName(excerpt(name)));
    }
    let bytes = signature.as_bytes();
    let mut at = name_end;
    let mut depth = 0_usize;
    // `after_type` is `true` if a type has just ended, and `after_open` if a list has just begun.
    // These flags decide which characters may follow.
    let (mut after_type, mut after_open) = (false, false);
    loop {
        match bytes.get(at) {
            Some(b'(') if !after_type => {
                (depth, after_open) = (depth + 1, true);
                at += 1;
            }
            Some(b',') if after_type => {
                after_type = false;
                at += 1;
            }
            // The list of arguments may be empty, but a tuple must have at least one field.
            Some(b')') if after_type || (after_open && depth == 1) => {
                depth -= 1;
                at += 1;
                if depth == 0 {
                    break;
                }
                at = after_dimensions(signature, at)?;
                after_type = true;
            }
            _ if depth == 0 => return Err(QueryError::EventSyntax { expected: "(", at }),
            _ if after_type => {
                return Err(QueryError::EventSyntax { expected: "a comma or )", at });
            }
            _ => {
                let rest = &signature[at..];
                let len = rest.find([',', '(', ')', '[']).unwrap_or(rest.len());
                check_type(&rest[..len], at)?;
                at = after_dimensions(signature, at + len)?;
                (after_type, after_open) = (true, false);
            }
        }
    }
    if at < signature.len() {
        return Err(QueryError::EventSyntax { expected: "the end", at });
    }
    Ok(())
}

/// Returns the offset after the array dimensions, such as `[]` or `[3]`, that begin at `at`.
fn after_dimensions(signature: &str, mut at: usize) -> Result<usize, QueryError> {
    while let Some(rest) = signature[at..].strip_prefix('[') {
        let size = rest.split(']').next().unwrap_or_default();
        let sound = rest.len() > size.len() && (size.is_empty() || is_number(size));
        if !sound {
            let expected = "the length of an array and ]";
            return Err(QueryError::EventSyntax { expected, at: at + 1 });
        }
        at += size.len() + 2;
    }
    Ok(at)
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

fn check_type(found: &str, at: usize) -> Result<(), QueryError> {
    let aliases = [
        ("uint", "uint256"),
        ("int", "int256"),
        ("fixed", "fixed128x18"),
        ("ufixed", "ufixed128x18"),
        ("byte", "bytes1"),
    ];
    if let Some(&(found, canonical)) = aliases.iter().find(|(alias, _)| *alias == found) {
        return Err(QueryError::EventAlias { found, canonical, at });
    }
    let bits = |size: &str| size_in(size, 8..=256).is_some_and(|size| size.is_multiple_of(8));
    let sound = match found {
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
    if sound { Ok(()) } else { Err(QueryError::EventType { found: excerpt(found), at }) }
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

    #[test]
    fn what_is_no_signature() {
        let cases = [
            ("", r#""" is not the name of an event"#),
            ("(bool)", r#""" is not the name of an event"#),
            ("1E(bool)", r#""1E" is not the name of an event"#),
            ("E (bool)", r#""E " is not the name of an event"#),
            ("É(bool)", r#""É" is not the name of an event"#),
            ("Transfer", "expected ( at 8"),
            ("E(", r#""" at 2 is not a type of the ABI"#),
            ("E(bool", "expected a comma or ) at 6"),
            ("E(bool))", "expected the end at 7"),
            ("E(bool) ", "expected the end at 7"),
            ("E(bool,)", r#""" at 7 is not a type of the ABI"#),
            ("E(,bool)", r#""" at 2 is not a type of the ABI"#),
            ("E(bool, bool)", r#"" bool" at 7 is not a type of the ABI"#),
            ("E(address indexed)", r#""address indexed" at 2 is not a type of the ABI"#),
            ("E(())", r#""" at 3 is not a type of the ABI"#),
            ("E((bool)x)", "expected a comma or ) at 8"),
            ("E(bool(bool))", "expected a comma or ) at 6"),
            ("E(uint)", r#""uint" at 2 is short for "uint256": the hash needs the long form"#),
            ("E(uint[])", r#""uint" at 2 is short for "uint256": the hash needs the long form"#),
            ("E(uint7)", r#""uint7" at 2 is not a type of the ABI"#),
            ("E(uint264)", r#""uint264" at 2 is not a type of the ABI"#),
            ("E(uint08)", r#""uint08" at 2 is not a type of the ABI"#),
            ("E(uint+8)", r#""uint+8" at 2 is not a type of the ABI"#),
            ("E(bytes0)", r#""bytes0" at 2 is not a type of the ABI"#),
            ("E(bytes33)", r#""bytes33" at 2 is not a type of the ABI"#),
            ("E(IERC20)", r#""IERC20" at 2 is not a type of the ABI"#),
            ("E(bool[0])", "expected the length of an array and ] at 7"),
            ("E(bool[)", "expected the length of an array and ] at 7"),
            ("E(bool[3)", "expected the length of an array and ] at 7"),
        ];
        for (signature, message) in cases {
            let error = event_topic(signature).expect_err(signature);
            assert_eq!(error.to_string(), message, "{signature}");
        }
    }
}
