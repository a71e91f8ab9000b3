//! Lines of a subject: read in a thread with bounded memory, and parsed.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::answer::{Answer, Violation};

/// Maximum number of unread lines: a subject that sends more has to wait.
const QUEUE: usize = 16;
/// Number of bytes of standard error that a message quotes.
const STDERR: usize = 1000;
/// Number of characters of a line that a message quotes.
const QUOTED: usize = 200;

/// What arrives from a subject.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A line, without its line break.
    Line(Vec<u8>),
    /// More bytes than a line may have.
    LongLine,
    /// The end of the output.
    End,
}

/// Reads lines of at most `limit` bytes in a thread of their own.
pub(super) fn lines_of(output: impl Read + Send + 'static, limit: usize) -> Receiver<Incoming> {
    let (sender, receiver) = sync_channel(QUEUE);
    // The thread ends when the receiver is dropped or the output ends. If a process that escaped
    // its group keeps the pipe open, the thread waits until that process ends.
    thread::spawn(move || read_lines(BufReader::new(output), limit, &sender));
    receiver
}

fn read_lines(mut output: impl BufRead, limit: usize, to: &SyncSender<Incoming>) {
    loop {
        let mut line = Vec::new();
        // One more byte than the limit shows that the line is too long.
        let read = output.by_ref().take(limit as u64 + 1).read_until(b'\n', &mut line);
        let incoming = match read {
            Ok(0) | Err(_) => Incoming::End,
            Ok(_) if line.last() == Some(&b'\n') => {
                line.pop();
                Incoming::Line(line)
            }
            Ok(read) if read > limit => Incoming::LongLine,
            // The output ends within a line.
            Ok(_) => Incoming::Line(line),
        };
        let is_last = !matches!(incoming, Incoming::Line(_));
        if to.send(incoming).is_err() || is_last {
            return;
        }
    }
}

/// The end of a subject's standard error, which a thread reads so that the subject never waits.
#[derive(Debug)]
pub(super) struct Stderr {
    tail: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Stderr {
    pub(super) fn of(mut output: impl Read + Send + 'static) -> Self {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = sync_channel(0);
        let kept = Arc::clone(&tail);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..read]);
                let surplus = kept.len().saturating_sub(STDERR);
                kept.drain(..surplus);
            }
            drop(end);
        });
        Self { tail, ended }
    }

    /// Returns the last text of a process that has ended, on one line.
    pub(super) fn last_words(&self, wait: Duration) -> String {
        // The process may end before the thread has read its last words. The sender never sends:
        // the call returns when the thread ends, or after the time.
        let _ = self.ended.recv_timeout(wait);
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail);
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        // A line that has lost its beginning says little.
        match text.split_once('\n') {
            Some((_, lines)) if tail.len() >= STDERR && !lines.trim().is_empty() => {
                format!("… {}", words(lines))
            }
            _ => words(&text),
        }
    }
}

/// Parses a line as a JSON object.
pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, Violation> {
    match serde_json::from_slice(line) {
        Ok(Members { repeated: Some(name), .. }) => {
            Err(Violation::RepeatedMember(quoted(name.as_bytes())))
        }
        Ok(Members { all, repeated: None }) => Ok(all),
        Err(_) => Err(Violation::NotAnObject(quoted(line))),
    }
}

/// The members of an object, and the name of one that it has twice: nobody can tell which of the two
/// is meant.
#[derive(Default)]
struct Members {
    all: Map<String, Value>,
    repeated: Option<String>,
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Self, A::Error> {
        while let Some((name, value)) = members.next_entry::<String, Value>()? {
            if self.all.insert(name.clone(), value).is_some() {
                self.repeated = Some(name);
            }
        }
        Ok(self)
    }
}

/// Returns a number that is no fraction: 1 and 1.0 are the same number of JSON.
pub(super) fn integer(number: &Value) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
    let whole = |float: f64| {
        (float.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&float))
            .then_some(float as u64)
    };
    number.as_u64().or_else(|| number.as_f64().and_then(whole))
}

/// Parses a line as an answer: its `seq`, and the answer or what is wrong with it.
pub(super) fn answer(line: &[u8]) -> Result<(u64, Result<Answer, Violation>), Violation> {
    let mut object = object(line)?;
    let seq = object.get("seq").and_then(integer);
    let seq = seq.ok_or_else(|| Violation::NoSeq(quoted(line)))?;
    Ok((seq, only_answer(&mut object)))
}

fn only_answer(object: &mut Map<String, Value>) -> Result<Answer, Violation> {
    const KINDS: [&str; 4] = ["value", "invalid", "skipped", "error"];
    let count = KINDS.iter().filter(|kind| object.contains_key(**kind)).count();
    let mut given = KINDS.into_iter().filter_map(|kind| Some((kind, object.remove(kind)?)));
    let (Some((kind, content)), 1) = (given.next(), count) else {
        return Err(Violation::NotOneAnswer(count));
    };
    match (kind, content) {
        ("value", value @ Value::Object(_)) => Ok(Answer::Value(value)),
        ("invalid", Value::String(text)) => Ok(Answer::Invalid(text)),
        ("skipped", Value::String(why)) => Ok(Answer::Skipped(why)),
        ("error", Value::String(text)) => Ok(Answer::Error(text)),
        (member, content) => Err(Violation::WrongType { member, got: type_of(&content) }),
    }
}

const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn quoted(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * QUOTED)]);
    text.chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(output: &'static [u8], limit: usize) -> Vec<Incoming> {
        lines_of(output, limit).iter().collect()
    }

    #[test]
    fn lines_are_bounded() {
        let line = |text: &[u8]| Incoming::Line(text.to_vec());
        assert_eq!(all_of(b"", 4), [Incoming::End]);
        assert_eq!(all_of(b"a\n\nb", 4), [line(b"a"), line(b""), line(b"b"), Incoming::End]);
        assert_eq!(all_of(b"abcd\n", 4), [line(b"abcd"), Incoming::End]);
        assert_eq!(all_of(b"abcd", 4), [line(b"abcd"), Incoming::End]);
        assert_eq!(all_of(b"a\nabcde\n", 4), [line(b"a"), Incoming::LongLine]);
    }

    #[test]
    fn an_answer_has_one_kind_and_its_type() {
        let parsed = |line: &str| answer(line.as_bytes());
        assert_eq!(
            parsed(r#"{"seq":1,"invalid":"x","time":3}"#),
            Ok((1, Ok(Answer::Invalid("x".into()))))
        );
        let wrong = [
            (r#"{"seq":1}"#, Violation::NotOneAnswer(0)),
            (r#"{"seq":1,"value":{},"error":"x"}"#, Violation::NotOneAnswer(2)),
            (r#"{"seq":1,"value":7}"#, Violation::WrongType { member: "value", got: "a number" }),
            (
                r#"{"seq":1.0,"skipped":null}"#,
                Violation::WrongType { member: "skipped", got: "null" },
            ),
        ];
        for (line, violation) in wrong {
            assert_eq!(parsed(line), Ok((1, Err(violation))), "{line}");
        }
        for seq in ["-1", "1.5", "-1.0", "1e300", "\"1\"", "null", "[1]"] {
            let line = format!("{{\"seq\":{seq},\"value\":{{}}}}");
            assert_eq!(parsed(&line), Err(Violation::NoSeq(line)));
        }
        assert_eq!(parsed("{}"), Err(Violation::NoSeq("{}".into())));
        let deep = "[".repeat(1_000_000);
        for line in
            ["", "[1]", "{", "warning: x", "{} {}", "{\"seq\":1,\"value\":NaN}", deep.as_str()]
        {
            let quoted = line.chars().take(QUOTED).collect();
            assert_eq!(parsed(line), Err(Violation::NotAnObject(quoted)));
        }
        for (line, name) in [
            (r#"{"seq":1,"seq":2,"value":{}}"#, "seq"),
            (r#"{"seq":1,"value":{"a":1},"value":{"a":2}}"#, "value"),
        ] {
            assert_eq!(parsed(line), Err(Violation::RepeatedMember(name.into())));
        }
    }
}
