//! Reader of headers in JSON.
//!
//! The reader accepts objects, as `eth_getBlockByNumber` returns them, and strings of hex, as
//! `debug_getRawHeader` returns them. Objects and strings may stand alone, in arrays, or in the
//! replies of a node.

use alloc::collections::VecDeque;
use std::io::Read;

use alloy_primitives::B256;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::{FileError, FileProblem, Position};
use super::format::MAX_HEADER;
use super::input::Input;
use super::json_values::{JsonValue, JsonValues};
use crate::eth::header::{HeaderBuf, HeaderView, JsonHeaderError};
use crate::eth::json::{Prefix, bytes_with, message};

/// Maximum size of a JSON value in bytes: larger than any block with all its transactions.
const MAX_VALUE: u64 = 64 << 20;

/// Maximum number of characters of a node's error that an error message repeats.
const EXCERPT: usize = 200;

pub(super) struct JsonHeaders<R> {
    values: JsonValues<R>,
    /// Headers of the current value that were not yet returned.
    ready: VecDeque<(Position, Vec<u8>)>,
}

impl<R: Read> JsonHeaders<R> {
    pub(super) fn new(input: Input<R>) -> Self {
        Self { values: JsonValues::new(input, MAX_VALUE), ready: VecDeque::new() }
    }

    pub(super) fn input(&self) -> &Input<R> {
        self.values.input()
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

    fn refused(&self, text: &str, error: JsonHeaderError) -> FileError {
        let JsonHeaderError::Json(message) = error else {
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
