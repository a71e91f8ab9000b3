//! Reader of hex headers, one on each line, as `debug_getRawHeader` returns them.

use std::io::{BufRead as _, Read};

use super::error::{FileError, FileProblem, Position};
use super::format::MAX_HEADER;
use super::input::Input;
use crate::eth::json::{Prefix, bytes_with};

/// Maximum length of a line: two digits for each byte of a header, and room for `0x`, the head of
/// the RLP list and white space.
const MAX_LINE: u64 = 2 * MAX_HEADER + 64;

pub(super) struct HexLines<R> {
    pub(super) input: Input<R>,
    /// Number of lines read so far.
    line: u64,
}

impl<R: Read> HexLines<R> {
    pub(super) fn new(input: Input<R>) -> Self {
        Self { input, line: 0 }
    }

    pub(super) fn next(&mut self, rlp: &mut Vec<u8>) -> Result<Option<Position>, FileError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let offset = self.input.offset();
            let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut line);
            if read.map_err(|error| FileError::io(offset, &error))? == 0 {
                return Ok(None);
            }
            self.line += 1;
            let position = Position::Line(self.line);
            let wrong = |problem| FileError::new(position, problem);
            if line.len() as u64 == MAX_LINE && line.last() != Some(&b'\n') {
                return Err(wrong(FileProblem::OverLimit { part: "line", limit: MAX_LINE }));
            }
            let text = str::from_utf8(&line).map_err(|_| wrong(FileProblem::NotUtf8))?;
            let text = text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let header = bytes_with(text, Prefix::Optional);
            rlp.extend(header.map_err(|problem| wrong(FileProblem::Hex(problem)))?);
            return Ok(Some(position));
        }
    }
}
