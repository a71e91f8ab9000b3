//! Topics of a query.

use alloc::vec::Vec;

use alloy_primitives::{Address, B256, U256};

/// A value that can be an indexed argument of an event, in the 32 bytes of a topic.
///
/// There is none for text and bytes of any length: their topic is a hash.
pub trait ToTopic {
    /// The topic.
    fn to_topic(&self) -> B256;
}

impl ToTopic for B256 {
    fn to_topic(&self) -> B256 {
        *self
    }
}

/// Twelve zero bytes, then the address. Unpadded it would be another value for a filter.
impl ToTopic for Address {
    fn to_topic(&self) -> B256 {
        self.into_word()
    }
}

/// Big-endian. An argument of a smaller unsigned type has the same topic.
impl ToTopic for U256 {
    fn to_topic(&self) -> B256 {
        B256::from(*self)
    }
}

/// As the number 0 or 1.
impl ToTopic for bool {
    fn to_topic(&self) -> B256 {
        B256::with_last_byte(u8::from(*self))
    }
}

/// What a query wants at one position of a log's topics: one of these values. Empty is "any".
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TopicSet {
    /// Sorted, each once.
    values: Vec<B256>,
}

impl TopicSet {
    /// Any topic.
    pub const fn any() -> Self {
        Self { values: Vec::new() }
    }

    /// Whether any topic will do.
    pub const fn is_any(&self) -> bool {
        self.values.is_empty()
    }

    /// The topics, sorted, each once; empty if any will do.
    pub fn values(&self) -> &[B256] {
        &self.values
    }

    /// Whether a topic will do.
    pub fn admits(&self, topic: &B256) -> bool {
        self.is_any() || self.values.binary_search(topic).is_ok()
    }
}

impl<T: ToTopic> From<T> for TopicSet {
    fn from(value: T) -> Self {
        Self { values: alloc::vec![value.to_topic()] }
    }
}

/// An empty list is "any", as in JSON.
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
