//! Reads JSON within limits: lists of a limited length, bodies of a limited size, and answers while they
//! arrive.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::value::RawValue;
use serde_json::{Error, Value};

use crate::stop::{Stop, lock};

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

/// The limits of an answer.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// Maximum number of bytes, after decompression.
    pub(super) bytes: u64,
    /// Maximum number of bytes between two quotes, so that a string cannot fill the memory; `None`
    /// for an answer that is held in memory as a whole anyway.
    pub(super) string: Option<u64>,
    /// Permits for long answers; `None` for no limit.
    pub(super) large: Option<Arc<Large>>,
    pub(super) timeout: Duration,
    pub(super) stop: Stop,
}

/// The body of an answer.
pub(super) struct BoundedReader<R> {
    body: R,
    bounds: Bounds,
    read: u64,
    /// Number of bytes since the last quote that no backslash precedes.
    string: u64,
    is_escaped: bool,
    /// `true` once a limit was exceeded.
    pub(super) is_too_large: bool,
    /// The error of the connection, if there was one. A parser replaces it by an error of its own.
    pub(super) failed: Option<io::ErrorKind>,
    permit: Option<Permit>,
}

impl<R> BoundedReader<R> {
    pub(super) const fn new(body: R, bounds: Bounds) -> Self {
        let (read, string) = (0, 0);
        let (is_escaped, is_too_large, permit) = (false, false, None);
        Self { body, bounds, read, string, is_escaped, is_too_large, failed: None, permit }
    }

    /// Returns the permit, if the answer needed a permit.
    pub(super) fn into_permit(self) -> Option<Permit> {
        self.permit
    }

    fn count_string(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'"' if !self.is_escaped => self.string = 0,
                _ => self.string += 1,
            }
            self.is_escaped = byte == b'\\' && !self.is_escaped;
        }
    }
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.read >= FREE
            && self.permit.is_none()
            && let Some(large) = &self.bounds.large
        {
            let permit = large.wait(self.bounds.timeout, &self.bounds.stop);
            let late = io::ErrorKind::TimedOut;
            self.permit = Some(permit.ok_or(late).inspect_err(|kind| self.failed = Some(*kind))?);
        }
        // Until the permit is given, at most the bytes that need no permit are read.
        let room = if self.permit.is_none() && self.bounds.large.is_some() {
            FREE.saturating_sub(self.read)
        } else {
            u64::MAX
        };
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(out.len());
        let read = self.body.read(&mut out[..room]);
        let count = read.inspect_err(|error| self.failed = Some(error.kind()))?;
        self.read += count as u64;
        if let Some(longest) = self.bounds.string {
            self.count_string(&out[..count]);
            self.is_too_large |= self.string > longest;
        }
        self.is_too_large |= self.read > self.bounds.bytes;
        if self.is_too_large {
            return Err(io::Error::other("too large"));
        }
        Ok(count)
    }
}

/// Number of bytes of an answer that need no permit.
pub(super) const FREE: u64 = 1 << 20;
/// Interval at which a waiting thread checks if the operation was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// Permits for answers of more than [`FREE`] bytes. Each node has permits of its own, so that a node
/// with long or slow answers delays no other node.
///
/// A permit is held while an answer is read and parsed. No thread asks for a second permit meanwhile, so
/// that each waiting thread gets a permit at last.
#[derive(Debug)]
pub(super) struct Large {
    left: Mutex<usize>,
    freed: Condvar,
}

/// The right to read a long answer, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<Large>);

impl Drop for Permit {
    fn drop(&mut self) {
        *lock(&self.0.left) += 1;
        self.0.freed.notify_one();
    }
}

impl Large {
    #[cfg(any(feature = "server", test))]
    pub(super) fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(permits), freed: Condvar::new() })
    }

    /// Waits for a permit until the timeout, or until the operation is stopped.
    pub(super) fn wait(self: &Arc<Self>, timeout: Duration, stop: &Stop) -> Option<Permit> {
        let began = Instant::now();
        let mut left = lock(&self.left);
        while *left == 0 {
            if stop.is_set() || began.elapsed() >= timeout {
                return None;
            }
            let waited = self.freed.wait_timeout(left, LOOK);
            left = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *left -= 1;
        drop(left);
        Some(Permit(Arc::clone(self)))
    }
}

/// Bytes that are read from the connection at once.
const BUFFER: usize = 64 << 10;

/// An answer to one call, whose result was read by a seed (`DeserializeSeed`).
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
    ) -> Result<Self, Error> {
        let buffered = BufReader::with_capacity(BUFFER, reader);
        let mut json = serde_json::Deserializer::from_reader(buffered);
        let reply = json.deserialize_map(Members(seed))?;
        json.end()?;
        Ok(reply)
    }
}

/// Returns the id of an answer. Some nodes write the number as a string.
pub(super) fn id_of(id: &RawValue) -> Option<u64> {
    id.get().trim_matches('"').parse().ok()
}

/// Reads JSON of any kind up to a limit: a node could send an error of any length.
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
    use std::time::Duration;

    use super::{Large, StreamedReply, list};
    use crate::stop::Stop;

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

    #[test]
    fn a_permit_is_free_again_when_it_is_dropped() {
        let (large, stop) = (Large::new(1), Stop::new());
        let short = Duration::from_millis(1);
        let permit = large.wait(short, &stop).expect("one is free");
        assert!(large.wait(short, &stop).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| large.wait(Duration::from_secs(60), &stop).is_some());
            drop(permit);
            assert!(waiting.join().expect("no panic"));
        });
        let _permit = large.wait(short, &stop).expect("it is free again");
        stop.set();
        assert!(large.wait(Duration::from_secs(60), &stop).is_none());
    }

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
