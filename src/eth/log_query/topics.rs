//! Topics of a query, and their conversion from Solidity values.

use alloc::vec::Vec;

use alloy_primitives::{Address, B256, U256};

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
