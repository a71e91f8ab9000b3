//! Bytes that are read piece by piece: a file, standard input, or hex on the command line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::input::{decode_hex, shorten};

/// Large enough that the system is asked rarely.
const BUFFER: usize = 256 << 10;

/// A stream that knows its name and how far it was read.
pub(crate) struct Source {
    name: String,
    inner: Inner,
    offset: u64,
    /// How many bytes it has, where that is known before the end.
    length: Option<u64>,
}

enum Inner {
    File(BufReader<File>),
    Stdin(BufReader<io::Stdin>),
    Bytes(Cursor<Vec<u8>>),
}

impl Source {
    /// Opens a file, standard input (`-`), or takes hex; `what` names it in errors.
    pub(crate) fn open(argument: &str, what: &str) -> anyhow::Result<Self> {
        if argument == "-" {
            let inner = Inner::Stdin(BufReader::with_capacity(BUFFER, io::stdin()));
            return Ok(Self { name: "standard input".into(), inner, offset: 0, length: None });
        }
        let path = Path::new(argument);
        if path.exists() {
            return Self::file(path).with_context(|| format!("{what}, {argument}"));
        }
        let shown = shorten(argument);
        let digits = argument.trim();
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        match decode_hex(digits) {
            Ok(_) if digits.is_empty() => bail!("{what}: an empty argument"),
            Ok(bytes) => {
                let length = Some(bytes.len() as u64);
                let inner = Inner::Bytes(Cursor::new(bytes));
                Ok(Self { name: format!("hex {shown}"), inner, offset: 0, length })
            }
            Err(error) => bail!("{what}, {shown}: no such file, and {error}"),
        }
    }

    /// Opens a file.
    pub(crate) fn file(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            bail!("a directory");
        }
        // Pipes and devices have no length that means anything.
        let length = metadata.is_file().then_some(metadata.len());
        let inner = Inner::File(BufReader::with_capacity(BUFFER, file));
        Ok(Self { name: path.display().to_string(), inner, offset: 0, length })
    }

    /// Bytes that are in memory.
    #[cfg(test)]
    pub(crate) fn bytes(name: impl Into<String>, bytes: Vec<u8>) -> Self {
        let length = Some(bytes.len() as u64);
        Self { name: name.into(), inner: Inner::Bytes(Cursor::new(bytes)), offset: 0, length }
    }

    /// Where the bytes come from.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is hex of the command line, decoded.
    pub(crate) fn is_argument(&self) -> bool {
        matches!(self.inner, Inner::Bytes(_))
    }

    /// How many bytes were read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes are left, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        Some(self.length?.saturating_sub(self.offset))
    }

    /// The next bytes without reading them; empty at the end.
    pub(crate) fn peek(&mut self) -> anyhow::Result<&[u8]> {
        Ok(self.fill_buf()?)
    }

    /// Appends `count` bytes to `out`, or fewer if the source ends.
    pub(crate) fn append(&mut self, count: u64, out: &mut Vec<u8>) -> io::Result<u64> {
        self.take(count).read_to_end(out).map(|read| read as u64)
    }

    /// Passes over `count` bytes; returns how many there were. A file is not read for it.
    pub(crate) fn skip(&mut self, count: u64) -> io::Result<u64> {
        let count = self.left().map_or(count, |left| count.min(left));
        if let Inner::File(file) = &mut self.inner
            && self.length.is_some()
            && let Ok(by) = i64::try_from(count)
        {
            file.seek_relative(by)?;
            self.offset += count;
            return Ok(count);
        }
        io::copy(&mut self.take(count), &mut io::sink())
    }
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.inner {
            Inner::File(inner) => inner.read(out)?,
            Inner::Stdin(inner) => inner.read(out)?,
            Inner::Bytes(inner) => inner.read(out)?,
        };
        self.offset += read as u64;
        Ok(read)
    }
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match &mut self.inner {
            Inner::File(inner) => inner.fill_buf(),
            Inner::Stdin(inner) => inner.fill_buf(),
            Inner::Bytes(inner) => inner.fill_buf(),
        }
    }

    fn consume(&mut self, count: usize) {
        match &mut self.inner {
            Inner::File(inner) => inner.consume(count),
            Inner::Stdin(inner) => inner.consume(count),
            Inner::Bytes(inner) => inner.consume(count),
        }
        self.offset += count as u64;
    }
}
