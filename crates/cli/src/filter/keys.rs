//! Reads keys, one per line, from a file or standard input, with one key in memory at a time.

use std::io::{BufRead as _, Read as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use chainsieve_report::{Source, UsageError, decode_hex, named};

/// Maximum length of a line in bytes. A file with a longer line is not a list of keys.
const LONGEST: u64 = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The lines of one file.
pub(super) struct KeyLines {
    source: Source,
    hex: bool,
    /// The number of the last line that was read, from 1.
    number: u64,
    line: Vec<u8>,
    key: Vec<u8>,
    /// Number of empty lines.
    pub(super) empty: u64,
}

impl KeyLines {
    /// Opens a file, or standard input (`-`).
    pub(super) fn open(path: &Path, hex: bool) -> anyhow::Result<Self> {
        let source = if path.as_os_str() == "-" {
            Source::open("-", "keys")?
        } else {
            Source::file(path).with_context(|| format!("keys, {}", named(path)))?
        };
        Ok(Self { source, hex, number: 0, line: Vec::new(), key: Vec::new(), empty: 0 })
    }

    /// Returns the next key; `None` at the end.
    pub(super) fn next_key(&mut self) -> anyhow::Result<Option<&[u8]>> {
        loop {
            self.line.clear();
            let mut line = (&mut self.source).take(LONGEST + 2);
            let read = line.read_until(b'\n', &mut self.line);
            if read.with_context(|| self.source.name().to_owned())? == 0 {
                return Ok(None);
            }
            self.number += 1;
            let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = match self.number {
                1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
                _ => line,
            };
            if line.len() as u64 > LONGEST {
                bail!("{}: the line is longer than {LONGEST} bytes", self.place());
            }
            if self.hex {
                let text = line.trim_ascii();
                let digits = text.strip_prefix(b"0x").unwrap_or(text);
                if !text.is_empty() && digits.is_empty() {
                    bail!("{}: no digits after 0x", self.place());
                }
                self.key.resize(digits.len() / 2, 0);
                if hex::decode_to_slice(digits, &mut self.key).is_err() {
                    let error = decode_hex(&String::from_utf8_lossy(digits)).err();
                    let error = error.unwrap_or_else(|| anyhow::anyhow!("not hex"));
                    return Err(error.context(self.place()));
                }
            } else {
                self.key.clear();
                self.key.extend_from_slice(line);
            }
            if self.key.is_empty() {
                self.empty += 1;
                continue;
            }
            return Ok(Some(&self.key));
        }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn offset(&self) -> u64 {
        self.source.offset()
    }

    fn place(&self) -> String {
        format!("{}, line {}", self.source.name(), self.number)
    }
}

/// Returns an error if the arguments contain standard input (`-`) more than once.
pub(super) fn stdin_once<'a>(
    arguments: impl IntoIterator<Item = &'a std::ffi::OsStr>,
) -> Result<(), UsageError> {
    match arguments.into_iter().filter(|argument| *argument == "-").count() {
        0 | 1 => Ok(()),
        _ => Err(UsageError("standard input (-) can be read only once")),
    }
}

/// Concatenated keys that are tested together.
#[derive(Debug, Default)]
pub(super) struct KeyBatch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyBatch {
    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn is_full(&self) -> bool {
        const KEYS: usize = 4096;
        const BYTES: usize = 4 << 20;
        self.ends.len() >= KEYS || self.bytes.len() >= BYTES
    }

    pub(super) fn keys(&self) -> Vec<&[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end]).collect()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}
