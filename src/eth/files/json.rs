use alloc::collections::VecDeque;
use std::io::{BufRead as _, Read};

use alloy_primitives::B256;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::input::{BYTE_ORDER_MARK, Input, MAX_HEADER};
use super::{FileError, FileProblem, Position};
use crate::eth::header::{HeaderBuf, HeaderError, HeaderView};
use crate::eth::json::{Prefix, bytes_with, message};

/// Splits a JSON text into its values: the elements of arrays, and concatenated values as in JSON
/// Lines.
///
/// Only one value is in memory at a time. The splitter finds only the end of each value: the caller
/// must check that the value itself is valid JSON.
///
/// # Examples
/// ```
/// use chainsieve::eth::files::{Input, JsonValues};
///
/// let mut values = JsonValues::new(Input::new(&b"[1, {\"a\": [2]}]"[..]), 1 << 20);
/// assert_eq!(values.next_value()?.map(|value| value.text), Some("1".into()));
/// assert_eq!(values.next_value()?.map(|value| value.text), Some("{\"a\": [2]}".into()));
/// assert!(values.next_value()?.is_none());
/// # Ok::<(), chainsieve::eth::files::FileError>(())
/// ```
#[derive(Debug)]
pub struct JsonValues<R> {
    pub(super) input: Input<R>,
    /// Line of the next byte, from 1.
    line: u64,
    /// Offset of the first byte of the current line.
    line_start: u64,
    /// Maximum number of bytes in a value.
    limit: u64,
    state: ReadState,
    /// Number of top-level arrays opened so far.
    arrays: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Start,
    /// Outside of arrays, between values.
    Between,
    /// In an array, before a value. The value may be missing only directly after `[`.
    Element {
        opened: u64,
        required: bool,
    },
    /// In an array, after a value.
    After {
        opened: u64,
    },
}

/// The text of a JSON value, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JsonValue {
    /// The text of the value as it is in the file.
    pub text: String,
    /// Number of the line in which the value starts, from 1.
    pub line: u64,
    /// Number of the byte in the line at which the value starts, from 1.
    pub column: u64,
    /// Number of the top-level array that contains the value, from 1; `None` outside of arrays.
    pub array: Option<u64>,
}

impl JsonValue {
    /// Converts an error message of `serde_json` about the value's text.
    ///
    /// Such a message ends with a line and a column, counted from the start of the value. Returns
    /// the position in the file, and the message without line and column.
    pub fn locate<'e>(&self, message: &'e str) -> (Position, &'e str) {
        self.locate_in(&self.text, message)
    }

    /// Converts an error message of `serde_json` about `part`, a slice of the value's text.
    pub(super) fn locate_in<'e>(&self, part: &str, message: &'e str) -> (Position, &'e str) {
        let Some((what, line, column)) = split_place(message) else {
            return (Position::Line(self.line), message);
        };
        let start = part.as_ptr().addr().checked_sub(self.text.as_ptr().addr());
        let before = start.and_then(|start| self.text.as_bytes().get(..start)).unwrap_or_default();
        let (lines, after) = lines(before);
        let column_before = if lines == 0 { self.column - 1 } else { 0 } + after as u64;
        let in_file = self.line + lines + line.saturating_sub(1);
        let position = match (line, column) {
            // Columns are counted from 1. `serde_json` reports 0 if it knows no column.
            (_, 0) => Position::Line(in_file),
            (1, column) => Position::Column { line: in_file, column: column_before + column },
            (_, column) => Position::Column { line: in_file, column },
        };
        (position, what)
    }
}

impl<R: Read> JsonValues<R> {
    /// Creates a splitter of `input`; a value may have at most `limit` bytes.
    pub fn new(input: Input<R>, limit: u64) -> Self {
        Self { input, line: 1, line_start: 0, limit, state: ReadState::Start, arrays: 0 }
    }

    /// Returns the next value, or `None` after the last value.
    ///
    /// # Errors
    /// Returns a [`FileError`] with the line if a byte between values is invalid, if a value is
    /// truncated or above the limit, or if the reader fails.
    pub fn next_value(&mut self) -> Result<Option<JsonValue>, FileError> {
        if self.state == ReadState::Start {
            let start = self.input.peek_at_least(BYTE_ORDER_MARK.len())?;
            if start.starts_with(BYTE_ORDER_MARK) {
                self.input.consume(BYTE_ORDER_MARK.len());
                self.line_start = self.input.offset();
            }
            self.state = ReadState::Between;
        }
        loop {
            let byte = self.after_space()?;
            let line = self.line;
            let unexpected = |found, expected| {
                let problem = FileProblem::UnexpectedByte { found, expected };
                Err(FileError::new(Position::Line(line), problem))
            };
            self.state = match (self.state, byte) {
                (ReadState::Start | ReadState::Between, None) => return Ok(None),
                (ReadState::Element { opened, .. } | ReadState::After { opened }, None) => {
                    let problem = FileProblem::UnclosedArray { opened };
                    return Err(FileError::new(Position::Line(line), problem));
                }
                (ReadState::Start | ReadState::Between, Some(b'[')) => {
                    self.input.consume(1);
                    self.arrays += 1;
                    ReadState::Element { opened: line, required: false }
                }
                (
                    ReadState::Element { required: false, .. } | ReadState::After { .. },
                    Some(b']'),
                ) => {
                    self.input.consume(1);
                    ReadState::Between
                }
                (ReadState::After { opened }, Some(b',')) => {
                    self.input.consume(1);
                    ReadState::Element { opened, required: true }
                }
                (ReadState::After { .. }, Some(byte)) => return unexpected(byte, ", or ]"),
                (_, Some(byte @ (b',' | b']' | b'}' | b':'))) => {
                    return unexpected(byte, "a value");
                }
                (state, Some(_)) => {
                    let column = self.input.offset() - self.line_start + 1;
                    let text = self.value(line)?;
                    self.state = match state {
                        ReadState::Element { opened, .. } => ReadState::After { opened },
                        _ => ReadState::Between,
                    };
                    let array = matches!(state, ReadState::Element { .. }).then_some(self.arrays);
                    return Ok(Some(JsonValue { text, line, column, array }));
                }
            };
        }
    }

    /// Skips white space and returns the next byte, without consuming it.
    fn after_space(&mut self) -> Result<Option<u8>, FileError> {
        loop {
            let bytes = self.input.peek()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let space = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let next = bytes.get(space).copied();
            let (lines, after) = lines(&bytes[..space]);
            self.input.consume(space);
            self.count(lines, after);
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    /// Adds line breaks to the position; `after` is the number of bytes after the last line break.
    fn count(&mut self, lines: u64, after: usize) {
        if lines > 0 {
            self.line += lines;
            self.line_start = self.input.offset() - after as u64;
        }
    }

    /// Reads the value that starts with the next byte; `line` is the number of its line.
    fn value(&mut self, line: u64) -> Result<String, FileError> {
        let wrong = |problem| FileError::new(Position::Line(line), problem);
        let mut scan = Scan::default();
        let mut text = Vec::new();
        loop {
            let bytes = self.input.peek()?;
            let (part, ended) = match bytes.iter().position(|&byte| scan.ends_before(byte)) {
                Some(end) => (&bytes[..end], true),
                // A number or a word may end at the end of the text; any other value is truncated
                // there.
                None if bytes.is_empty() && scan.may_end() => (bytes, true),
                None if bytes.is_empty() => return Err(wrong(FileProblem::CutOffJson)),
                None => (bytes, false),
            };
            if (text.len() + part.len()) as u64 > self.limit {
                let problem = FileProblem::OverLimit { part: "JSON value", limit: self.limit };
                return Err(wrong(problem));
            }
            text.extend_from_slice(part);
            let read = part.len();
            let (lines, after) = lines(part);
            self.input.consume(read);
            self.count(lines, after);
            if ended {
                return String::from_utf8(text).map_err(|_| wrong(FileProblem::NotUtf8));
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

/// State of a scan after the preceding byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Start,
    InString,
    Escaped,
    /// In a list or an object, outside of strings.
    Nested,
    /// In a number or a word such as `null`.
    Scalar,
    /// After the closing byte of the value.
    End,
}

impl Scan {
    /// Returns `true` if the value ends before this byte.
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

    /// Returns `true` if the value would be complete if the text ended here.
    fn may_end(&self) -> bool {
        matches!(self.at, At::Scalar | At::End)
    }
}

/// Returns the number of line breaks, and the number of bytes after the last line break.
fn lines(bytes: &[u8]) -> (u64, usize) {
    let lines = bytes.iter().map(|&byte| u64::from(byte == b'\n')).sum();
    let last = bytes.iter().rposition(|&byte| byte == b'\n');
    (lines, last.map_or(0, |last| bytes.len() - last - 1))
}

fn split_place(error: &str) -> Option<(&str, u64, u64)> {
    let (what, place) = error.rsplit_once(" at line ")?;
    let (line, column) = place.split_once(" column ")?;
    Some((what, line.parse().ok()?, column.parse().ok()?))
}

/// Maximum size of a JSON value in bytes: larger than any block with all its transactions.
const MAX_VALUE: u64 = 64 << 20;

/// Maximum number of characters of a node's error that an error message repeats.
const EXCERPT: usize = 200;

pub(super) struct JsonHeaders<R> {
    pub(super) values: JsonValues<R>,
    /// Headers of the current value that were not yet returned.
    ready: VecDeque<(Position, Vec<u8>)>,
}

impl<R: Read> JsonHeaders<R> {
    pub(super) fn new(input: Input<R>) -> Self {
        Self { values: JsonValues::new(input, MAX_VALUE), ready: VecDeque::new() }
    }

    pub(super) fn next(&mut self, rlp: &mut Vec<u8>) -> Result<Option<Position>, FileError> {
        loop {
            if let Some((position, header)) = self.ready.pop_front() {
                rlp.extend(header);
                return Ok(Some(position));
            }
            let Some(value) = self.values.next_value()? else { return Ok(None) };
            let mut headers = Headers { value: &value, found: Vec::new() };
            headers.read(&value.text, 0)?;
            let position = Position::Line(value.line);
            self.ready.extend(headers.found.into_iter().map(|header| (position, header)));
        }
    }
}

/// The fields of the objects that may wrap a header. These fields distinguish the kinds of
/// wrappers.
#[derive(Deserialize)]
struct Wrapped<'a> {
    jsonrpc: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// The messages of a subscription have this field.
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    /// The header: RLP in hex, or an object.
    #[serde(borrow)]
    header: Option<&'a RawValue>,
    hash: Option<B256>,
}

/// Maximum depth of wrappers around a header. Replies contain arrays, arrays contain objects, and
/// objects contain headers.
const MAX_DEPTH: u8 = 4;

/// The headers found in a JSON value.
struct Headers<'v> {
    value: &'v JsonValue,
    found: Vec<Vec<u8>>,
}

impl Headers<'_> {
    fn wrong(&self, problem: FileProblem) -> FileError {
        FileError::new(Position::Line(self.value.line), problem)
    }

    /// Parses a part of the value.
    fn parse<'t, T: Deserialize<'t>>(&self, text: &'t str) -> Result<T, FileError> {
        serde_json::from_str(text).map_err(|error| {
            let message = message(&error);
            let (position, what) = self.value.locate_in(text, &message);
            FileError::new(position, FileProblem::Json(what.to_owned()))
        })
    }

    fn read(&mut self, text: &str, depth: u8) -> Result<(), FileError> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(FileProblem::TooDeep { limit: MAX_DEPTH }));
        }
        match text.trim_start().bytes().next() {
            Some(b'"') => {
                let header = self.raw(text)?;
                self.found.push(header);
                Ok(())
            }
            Some(b'[') => {
                let elements: Vec<&RawValue> = self.parse(text)?;
                elements.into_iter().try_for_each(|element| self.read(element.get(), depth + 1))
            }
            Some(b'{') => self.object(text, depth),
            _ => Err(self.wrong(FileProblem::NotAHeader)),
        }
    }

    fn object(&mut self, text: &str, depth: u8) -> Result<(), FileError> {
        let wrapped: Wrapped<'_> = self.parse(text)?;
        if let Some(error) = wrapped.error {
            let error = error.get().chars().take(EXCERPT).collect();
            return Err(self.wrong(FileProblem::NodeError(error)));
        }
        if let Some(inner) = wrapped.result.or(wrapped.params) {
            return self.read(inner.get(), depth + 1);
        }
        if wrapped.jsonrpc.is_some() {
            return Err(self.wrong(FileProblem::NoResult));
        }
        let Some(header) = wrapped.header else {
            let header = HeaderBuf::from_json(text).map_err(|error| self.refused(text, error))?;
            self.found.push(header.rlp().to_vec());
            return Ok(());
        };
        let before = self.found.len();
        self.read(header.get(), depth + 1)?;
        if let (Some(claimed), Some([header])) = (wrapped.hash, self.found.get(before..)) {
            let header = HeaderView::decode(header);
            let computed = header.map_err(|error| self.wrong(FileProblem::Header(error)))?.hash();
            if computed != claimed {
                return Err(self.wrong(FileProblem::HashMismatch { claimed, computed }));
            }
        }
        Ok(())
    }

    fn refused(&self, text: &str, error: HeaderError) -> FileError {
        let HeaderError::Json(message) = error else {
            return self.wrong(FileProblem::JsonHeader(error));
        };
        let (position, what) = self.value.locate_in(text, &message);
        FileError::new(position, FileProblem::Json(what.to_owned()))
    }

    fn raw(&self, text: &str) -> Result<Vec<u8>, FileError> {
        let hex: String = self.parse(text)?;
        let (length, limit) = (hex.len() as u64, 2 * MAX_HEADER + 2);
        if length > limit {
            let part = "hex of a header";
            return Err(self.wrong(FileProblem::TooLong { part, length, limit }));
        }
        let bytes = bytes_with(&hex, Prefix::Optional)
            .map_err(|problem| self.wrong(FileProblem::Hex(problem)))?;
        // The header is decoded here and not later, so that an error has the line of the value.
        HeaderView::decode(&bytes).map_err(|error| self.wrong(FileProblem::Header(error)))?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<(u64, String)>, FileError> {
        let mut values = JsonValues::new(Input::new(text.as_bytes()), 40);
        let mut out = Vec::new();
        while let Some(JsonValue { text, line, .. }) = values.next_value()? {
            out.push((line, text));
        }
        Ok(out)
    }

    #[test]
    fn arrays_lines_and_concatenated_values() {
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
    fn mistakes_name_their_line() {
        for (text, words) in [
            ("[1,\n2", "line 2: the text ends, and the array that starts in line 1 is not closed"),
            ("[1\n2]", "line 2: found '2', expected , or ]"),
            ("[1,\n]", "line 2: found ']', expected a value"),
            ("[,", "line 1: found ',', expected a value"),
            ("\n{\"a\"", "line 2: the text ends inside a JSON value"),
            (
                "{\"0123456789012345678901234567890123456789\":1}",
                "line 1: the JSON value has more than 40 bytes",
            ),
        ] {
            assert_eq!(values(text).unwrap_err().to_string(), words, "{text:?}");
        }
        let mut values = JsonValues::new(Input::new(&b"\"\xff\""[..]), 40);
        let error = values.next_value().unwrap_err();
        assert_eq!(error, FileError::new(Position::Line(1), FileProblem::NotUtf8));
    }

    #[test]
    fn positions_of_errors_are_those_of_the_file() {
        let text = b"\xef\xbb\xbf[\n1,\n  {}]";
        let mut values = JsonValues::new(Input::new(&text[..]), 40);
        let found = [values.next_value().unwrap(), values.next_value().unwrap()];
        let [one, object] = found.map(Option::unwrap);
        assert_eq!([&one, &object].map(|value| (value.line, value.column)), [(2, 1), (3, 3)]);
        let at = |line, column| Position::Column { line, column };
        assert_eq!(object.locate("bad at line 1 column 2"), (at(3, 4), "bad"));
        assert_eq!(object.locate("bad at line 1 column 0"), (Position::Line(3), "bad"));
        assert_eq!(object.locate("bad"), (Position::Line(3), "bad"));
        let text = "{\n \"a\": {\n}}".to_owned();
        let value = JsonValue { text, line: 7, column: 5, array: None };
        assert_eq!(value.locate("bad at line 2 column 5"), (at(8, 5), "bad"));
        // The inner object starts at byte 7 of its line.
        let inner = &value.text[8..];
        assert!(inner.starts_with('{'));
        assert_eq!(value.locate_in(inner, "bad at line 1 column 1"), (at(8, 7), "bad"));
        assert_eq!(value.locate_in(inner, "bad at line 2 column 1"), (at(9, 1), "bad"));
        assert_eq!(value.locate_in("other", "bad at line 1 column 1").0, at(7, 5));
    }
}
