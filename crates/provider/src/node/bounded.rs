//! Reads JSON lists of a limited length.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::Error;

/// Reads a JSON list of at most `most` elements.
///
/// Reading stops with an error at the first element beyond this limit. Without the limit, a short
/// text could contain many elements, each of which takes far more memory than its text.
pub(crate) fn list<'de, T: Deserialize<'de>>(json: &'de str, most: usize) -> Result<Vec<T>, Error> {
    let mut json = serde_json::Deserializer::from_str(json);
    let list = json.deserialize_seq(Elements { most, of: PhantomData })?;
    json.end()?;
    Ok(list)
}

struct Elements<T> {
    most: usize,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} elements", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            if list.len() == self.most {
                return Err(A::Error::custom(format_args!("a list of more than {}", self.most)));
            }
            list.push(element);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn a_list_is_read_no_further_than_it_may_be_long() {
        assert_eq!(list::<u8>("[]", 0).unwrap(), Vec::<u8>::new());
        assert_eq!(list::<u8>(" [1, 2] ", 2).unwrap(), [1, 2]);
        // The invalid JSON after the third element is not reached.
        let error = list::<u8>("[1, 2, 3, }", 2).unwrap_err().to_string();
        assert!(error.starts_with("a list of more than 2"), "{error}");
        for text in ["", "null", "{}", "[1", "[1] 2", "[1,]"] {
            assert!(list::<u8>(text, 9).is_err(), "{text}");
        }
    }
}
