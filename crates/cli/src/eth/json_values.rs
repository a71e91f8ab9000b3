//! The values of a JSON text one by one: the elements of an array, or values one behind the
//! other, as in JSON lines. Only one is in memory at a time.

use std::io::BufRead as _;

use anyhow::{Context as _, bail};

use crate::output::grouped;
use crate::source::Source;

/// What some editors put at the start of a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Splits a JSON text. What is inside a value is for its reader to check.
pub(crate) struct JsonValues {
    source: Source,
    /// The line that is read, from 1.
    line: u64,
    /// Where it starts.
    line_start: u64,
    limit: u64,
    state: State,
    /// Arrays opened so far.
    arrays: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    /// Between values that no array encloses.
    Between,
    /// In an array, where a value may or must come next.
    Element {
        opened: u64,
        required: bool,
    },
    /// In an array, behind a value.
    Behind {
        opened: u64,
    },
}

/// The text of a value, and where it starts.
#[derive(Debug)]
pub(crate) struct JsonValue {
    pub(crate) text: String,
    /// From 1.
    pub(crate) line: u64,
    /// From 1, in bytes.
    pub(crate) column: u64,
    /// Which of the text's arrays it is an element of, from 1.
    pub(crate) array: Option<u64>,
}

impl JsonValues {
    /// The values of `source`, of which none may have more than `limit` bytes.
    pub(crate) fn new(source: Source, limit: u64) -> Self {
        Self { source, line: 1, line_start: 0, limit, state: State::Start, arrays: 0 }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The next value.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<JsonValue>> {
        if self.state == State::Start {
            if self.source.peek()?.starts_with(BYTE_ORDER_MARK) {
                self.source.consume(BYTE_ORDER_MARK.len());
            }
            self.state = State::Between;
        }
        loop {
            let byte = self.after_space()?;
            let line = self.line;
            self.state = match (self.state, byte) {
                (State::Start | State::Between, None) => return Ok(None),
                (State::Element { opened, .. } | State::Behind { opened }, None) => {
                    bail!("the array that line {opened} opens is not closed")
                }
                (State::Start | State::Between, Some(b'[')) => {
                    self.source.consume(1);
                    self.arrays += 1;
                    State::Element { opened: line, required: false }
                }
                (State::Element { required: false, .. } | State::Behind { .. }, Some(b']')) => {
                    self.source.consume(1);
                    State::Between
                }
                (State::Behind { opened }, Some(b',')) => {
                    self.source.consume(1);
                    State::Element { opened, required: true }
                }
                (State::Behind { .. }, Some(byte)) => {
                    bail!("line {line}: {} where , or ] belongs", shown(byte))
                }
                (_, Some(byte @ (b',' | b']' | b'}' | b':'))) => {
                    bail!("line {line}: {} where a value belongs", shown(byte))
                }
                (state, Some(_)) => {
                    let column = self.source.offset() - self.line_start + 1;
                    let text = self.value().with_context(|| format!("line {line}"))?;
                    self.state = match state {
                        State::Element { opened, .. } => State::Behind { opened },
                        _ => State::Between,
                    };
                    let array = matches!(state, State::Element { .. }).then_some(self.arrays);
                    return Ok(Some(JsonValue { text, line, column, array }));
                }
            };
        }
    }

    /// The next byte that is no white space, not yet read.
    fn after_space(&mut self) -> anyhow::Result<Option<u8>> {
        loop {
            let bytes = self.source.peek()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let space = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let next = bytes.get(space).copied();
            let (lines, behind) = lines(&bytes[..space]);
            self.source.consume(space);
            self.count(lines, behind);
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    /// Notes line breaks, the last of them `behind` bytes before where reading stands.
    fn count(&mut self, lines: u64, behind: usize) {
        if lines > 0 {
            self.line += lines;
            self.line_start = self.source.offset() - behind as u64;
        }
    }

    fn value(&mut self) -> anyhow::Result<String> {
        let mut scan = Scan::default();
        let mut text = Vec::new();
        loop {
            let bytes = self.source.peek()?;
            let (part, ended) = match bytes.iter().position(|&byte| scan.ends_before(byte)) {
                Some(end) => (&bytes[..end], true),
                // A scalar ends with the text; all else is cut off.
                None if bytes.is_empty() && scan.may_end() => (bytes, true),
                None if bytes.is_empty() => bail!("the text ends inside of a value"),
                None => (bytes, false),
            };
            if (text.len() + part.len()) as u64 > self.limit {
                bail!("a value of more than {} bytes", grouped(self.limit));
            }
            text.extend_from_slice(part);
            let read = part.len();
            let (lines, behind) = lines(part);
            self.source.consume(read);
            self.count(lines, behind);
            if ended {
                return String::from_utf8(text).context("not UTF-8");
            }
        }
    }
}

/// Finds the end of a value.
#[derive(Default)]
struct Scan {
    depth: u64,
    at: At,
}

/// What the byte before was.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Start,
    InString,
    Escaped,
    /// Outside of strings, in a list or an object.
    Nested,
    Scalar,
    /// The value was closed.
    End,
}

impl Scan {
    /// Whether the value ends before this byte.
    #[expect(clippy::match_same_arms, reason = "an arm for each state and byte reads as a table")]
    fn ends_before(&mut self, byte: u8) -> bool {
        let outside = if self.depth > 0 { At::Nested } else { At::End };
        self.at = match (self.at, byte) {
            (At::End, _) => return true,
            (At::Escaped, _) => At::InString,
            (At::InString, b'\\') => At::Escaped,
            (At::InString, b'"') => outside,
            (At::InString, _) => At::InString,
            (At::Scalar, b',' | b']' | b'}' | b'[' | b'{' | b'"') => return true,
            (At::Scalar, byte) if byte.is_ascii_whitespace() => return true,
            (At::Scalar, _) => At::Scalar,
            (At::Start | At::Nested, b'"') => At::InString,
            (At::Start | At::Nested, b'{' | b'[') => {
                self.depth += 1;
                At::Nested
            }
            (At::Nested, b'}' | b']') => {
                self.depth -= 1;
                if self.depth > 0 { At::Nested } else { At::End }
            }
            (At::Nested, _) => At::Nested,
            (At::Start, _) => At::Scalar,
        };
        false
    }

    /// Whether the value is whole if the text ends here.
    fn may_end(&self) -> bool {
        matches!(self.at, At::Scalar | At::End)
    }
}

/// How many line breaks there are, and how many bytes behind the last.
fn lines(bytes: &[u8]) -> (u64, usize) {
    let lines = bytes.iter().map(|&byte| u64::from(byte == b'\n')).sum();
    let last = bytes.iter().rposition(|&byte| byte == b'\n');
    (lines, last.map_or(0, |last| bytes.len() - last - 1))
}

fn shown(byte: u8) -> String {
    if byte.is_ascii_graphic() {
        format!("{:?}", char::from(byte))
    } else {
        format!("byte 0x{byte:02x}")
    }
}

/// An error of `serde_json` about a value, with the line in the whole text.
///
/// Its own line counts from the start of the value.
pub(crate) fn in_text(error: &str, value: &JsonValue) -> String {
    let Some((what, line, column)) = split_place(error) else {
        return format!("line {}: {error}", value.line);
    };
    // Both count from 1, and a column of 0 is no place.
    let column = match (line, column) {
        (_, 0) => return format!("line {}: {what}", value.line + line.saturating_sub(1)),
        (1, column) => value.column + column - 1,
        (_, column) => column,
    };
    format!("line {}, column {column}: {what}", value.line + line.saturating_sub(1))
}

fn split_place(error: &str) -> Option<(&str, u64, u64)> {
    let (what, place) = error.rsplit_once(" at line ")?;
    let (line, column) = place.split_once(" column ")?;
    Some((what, line.parse().ok()?, column.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> anyhow::Result<Vec<(u64, String)>> {
        let mut values = JsonValues::new(Source::bytes("test", text.into()), 40);
        let mut out = Vec::new();
        while let Some(JsonValue { text, line, .. }) = values.next()? {
            out.push((line, text));
        }
        Ok(out)
    }

    #[test]
    fn arrays_lines_and_values_behind_each_other() {
        let objects = [(1, r#"{"a":[1,{"b":"]}\""}]}"#.to_owned()), (3, "{}".to_owned())];
        for text in [
            "\u{feff}[{\"a\":[1,{\"b\":\"]}\\\"\"}]}\n,\n{} ]\n",
            "{\"a\":[1,{\"b\":\"]}\\\"\"}]}\n\n{}",
        ] {
            assert_eq!(values(text).unwrap(), objects, "{text}");
        }
        let texts =
            |text| values(text).unwrap().into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts("1 null\t\"x\"[2,[3]][]{}"), ["1", "null", "\"x\"", "2", "[3]", "{}"]);
        assert_eq!(texts(" \n"), [""; 0]);
    }

    #[test]
    fn slips_name_their_line() {
        for (text, words) in [
            ("[1,\n2", "the array that line 1 opens is not closed"),
            ("[1\n2]", "line 2: '2' where , or ] belongs"),
            ("[1,\n]", "line 2: ']' where a value belongs"),
            ("[,", "line 1: ',' where a value belongs"),
            ("\n{\"a\"", "line 2: the text ends inside of a value"),
            ("{\"0123456789012345678901234567890123456789\":1}", "a value of more than 40 bytes"),
        ] {
            let error = format!("{:#}", values(text).unwrap_err());
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn places_of_errors_are_those_of_the_text() {
        let mut values = JsonValues::new(Source::bytes("test", b"[\n1,\n  {}]".to_vec()), 40);
        let places = [values.next().unwrap(), values.next().unwrap()].map(Option::unwrap);
        assert_eq!(places.each_ref().map(|value| (value.line, value.column)), [(2, 1), (3, 3)]);
        assert_eq!(in_text("bad at line 1 column 2", &places[1]), "line 3, column 4: bad");
        let value = JsonValue { text: String::new(), line: 7, column: 1, array: None };
        assert_eq!(in_text("bad at line 2 column 5", &value), "line 8, column 5: bad");
        assert_eq!(in_text("bad", &value), "line 7: bad");
    }
}
