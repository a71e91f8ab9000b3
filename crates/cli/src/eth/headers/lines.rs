//! One header of hex a line, as `debug_getRawHeader` returns them.

use std::io::{BufRead as _, Read as _};

use anyhow::{Context as _, bail};

use super::{MAX_HEADER, Place, Records};
use crate::input::decode_hex;
use crate::output::grouped;
use crate::source::Source;

/// Two digits a byte, and room for `0x`, the list's head and white space.
const MAX_LINE: u64 = 2 * MAX_HEADER + 64;

pub(super) struct HexLines {
    source: Source,
    line: u64,
}

impl HexLines {
    pub(super) fn new(source: Source) -> Self {
        Self { source, line: 0 }
    }
}

impl Records for HexLines {
    fn next(&mut self, rlp: &mut Vec<u8>) -> anyhow::Result<Option<Place>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut self.source).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            self.line += 1;
            if line.len() as u64 == MAX_LINE && line.last() != Some(&b'\n') {
                bail!(
                    "line {}: more than {} digits, the limit for a header",
                    self.line,
                    grouped(2 * MAX_HEADER)
                );
            }
            let text = str::from_utf8(&line).with_context(|| format!("line {}", self.line))?;
            let text = text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            rlp.extend(header(text).with_context(|| format!("line {}", self.line))?);
            return Ok(Some(Place::Line(self.line)));
        }
    }

    fn source(&self) -> &Source {
        &self.source
    }
}

/// The bytes of hex with or without `0x`.
pub(super) fn header(text: &str) -> anyhow::Result<Vec<u8>> {
    decode_hex(text.strip_prefix("0x").unwrap_or(text))
}
