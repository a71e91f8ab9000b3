//! A JSON-RPC answer that is read while it comes.

use std::fmt;
use std::io::{BufReader, Read};

use serde::de::{DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::calls::id_of;

/// Bytes that are read from the connection at once.
const BUFFER: usize = 64 << 10;

/// An answer to one call, whose result a seed has read.
#[derive(Debug)]
pub(super) struct StreamedReply<T> {
    pub(super) id: Option<u64>,
    pub(super) result: Option<T>,
    pub(super) error: Option<Box<RawValue>>,
}

impl<T> StreamedReply<T> {
    /// Reads an answer, whose members may have any order.
    pub(super) fn read<S: for<'de> DeserializeSeed<'de, Value = T>>(
        reader: &mut dyn Read,
        seed: S,
    ) -> Result<Self, serde_json::Error> {
        let buffered = BufReader::with_capacity(BUFFER, reader);
        let mut json = serde_json::Deserializer::from_reader(buffered);
        let reply = json.deserialize_map(Members(seed))?;
        json.end()?;
        Ok(reply)
    }
}

struct Members<S>(S);

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Members<S> {
    type Value = StreamedReply<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer, which is an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut seed = Some(self.0);
        let mut reply = StreamedReply { id: None, result: None, error: None };
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "id" => reply.id = id_of(&members.next_value::<Box<RawValue>>()?),
                "error" => reply.error = members.next_value::<Option<Box<RawValue>>>()?,
                "result" => {
                    let seed = seed.take().ok_or_else(|| A::Error::custom("two results"))?;
                    reply.result = Some(members.next_value_seed(seed)?);
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;

    use super::StreamedReply;

    fn read(text: &str) -> Result<StreamedReply<Vec<u8>>, serde_json::Error> {
        StreamedReply::read(&mut text.as_bytes(), PhantomData::<Vec<u8>>)
    }

    #[test]
    fn members_may_have_any_order() {
        for text in [
            r#" {"jsonrpc":"2.0","id":7,"result":[1,2]} "#,
            r#"{"result":[1,2],"more":{"a":[]},"id":"7"}"#,
            r#"{"result":[1,2],"id":7,"error":null}"#,
        ] {
            let reply = read(text).unwrap();
            assert_eq!((reply.id, reply.result), (Some(7), Some(vec![1, 2])), "{text}");
            assert!(reply.error.is_none());
        }
        let reply = read(r#"{"error":{"code":-1},"id":null}"#).unwrap();
        assert_eq!((reply.result, reply.error.unwrap().get()), (None, r#"{"code":-1}"#));
        for text in ["", "[]", "null", r#"{"result":[1],"result":[2]}"#, r#"{"result":1}"#, "{} {}"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
