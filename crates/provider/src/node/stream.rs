//! A JSON-RPC answer that is read while it comes.

use std::fmt;
use std::io::{BufReader, Read};

use serde::de::{
    DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;
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

/// Reads any JSON that is short: a node could send an error of any length.
#[derive(Default)]
struct Short {
    /// Number of values and bytes of strings.
    size: usize,
}

/// Maximum size of an id or an error.
const MOST: usize = 64 << 10;

impl Short {
    fn grow<E: serde::de::Error>(&mut self, by: usize) -> Result<(), E> {
        self.size += by;
        if self.size > MOST {
            return Err(E::custom(format_args!("an id or an error of more than {MOST} bytes")));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Short {
    type Value = Box<RawValue>;

    fn deserialize<D: serde::Deserializer<'de>>(
        mut self,
        json: D,
    ) -> Result<Self::Value, D::Error> {
        let value = json.deserialize_any(&mut self)?;
        serde_json::value::to_raw_value(&value).map_err(D::Error::custom)
    }
}

impl<'de> DeserializeSeed<'de> for &mut Short {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Short {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id or an error")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.grow(text.len())?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(&mut *self)? {
            self.grow(size_of::<Value>())?;
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = serde_json::Map::new();
        while let Some(name) = members.next_key::<String>()? {
            self.grow(name.len() + size_of::<Value>())?;
            let value = members.next_value_seed(&mut *self)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
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
                "id" => reply.id = id_of(&members.next_value_seed(Short::default())?),
                "error" => {
                    let error = members.next_value_seed(Short::default())?;
                    reply.error = Some(error).filter(|error| error.get() != "null");
                }
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
        for long in [
            format!(r#"{{"error":"{}"}}"#, "x".repeat(1 << 17)),
            format!(r#"{{"error":[{}0]}}"#, "0,".repeat(1 << 17)),
        ] {
            assert!(read(&long).unwrap_err().to_string().contains("more than 65536 bytes"));
        }
        for text in ["", "[]", "null", r#"{"result":[1],"result":[2]}"#, r#"{"result":1}"#, "{} {}"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
