//! Streams of bytes: a file, standard input, or hex on the command line.

use std::fs::File;
use std::io::{self, BufRead, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context as _, bail};
use chainsieve::eth::files::Input;

use crate::input::{decode_hex, shorten};

/// A stream with its name and the number of bytes that were read.
#[derive(Debug)]
pub struct Source {
    name: String,
    /// `true` if the bytes were decoded from hex on the command line.
    pub is_argument: bool,
    /// The input type of the library's readers of files.
    pub input: Input<Bytes>,
}

/// The origin of the bytes of a source.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Bytes {
    File(File),
    Stdin(io::Stdin),
    Argument(Cursor<Vec<u8>>),
}

/// Returns `true` if standard input is a pipe, a socket or a file, and not empty. Waits for the first
/// byte. A terminal or `/dev/null` is not read unless `-` is given.
pub fn stdin_is_piped() -> bool {
    is_pipe_or_file() && io::stdin().lock().fill_buf().is_ok_and(|bytes| !bytes.is_empty())
}

#[cfg(unix)]
fn is_pipe_or_file() -> bool {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileTypeExt as _;

    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let kind = stdin.and_then(|stdin| Ok(File::from(stdin).metadata()?.file_type()));
    kind.is_ok_and(|kind| kind.is_file() || kind.is_fifo() || kind.is_socket())
}

#[cfg(not(unix))]
fn is_pipe_or_file() -> bool {
    use std::io::IsTerminal as _;

    !io::stdin().is_terminal()
}

impl Source {
    /// Opens a file, standard input (`-`), or decodes hex; `what` names the source in errors.
    ///
    /// # Errors
    /// Returns an error if the argument is neither the name of a file that can be read nor hex.
    pub fn open(argument: &str, what: &str) -> anyhow::Result<Self> {
        if argument == "-" {
            let input = Input::new(Bytes::Stdin(io::stdin()));
            return Ok(Self { name: "standard input".into(), is_argument: false, input });
        }
        let path = Path::new(argument);
        if path.exists() {
            return Self::file(path).with_context(|| format!("{what}, {argument}"));
        }
        let shown = shorten(argument);
        let digits = argument.trim();
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        match decode_hex(digits) {
            Ok(_) if digits.is_empty() => bail!("{what}: the argument is empty"),
            Ok(bytes) => {
                let input = Input::seekable(Bytes::Argument(Cursor::new(bytes)))?;
                Ok(Self { name: format!("hex {shown}"), is_argument: true, input })
            }
            Err(error) => bail!("{what}, {shown}: no such file, and {error}"),
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// Returns an error if the path is a folder, or cannot be read.
    pub fn file(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            bail!("this is a directory, not a file");
        }
        let file = Bytes::File(file);
        // The reported length of a pipe or device is not the length of its contents, so the stream
        // is not seekable.
        let input = if metadata.is_file() { Input::seekable(file)? } else { Input::new(file) };
        Ok(Self { name: path.display().to_string(), is_argument: false, input })
    }

    /// Returns the name of the source, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes read so far.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Appends `count` bytes to `out`, or fewer if the source ends.
    ///
    /// # Errors
    /// Returns the error of the source.
    pub fn append(&mut self, count: u64, out: &mut Vec<u8>) -> io::Result<u64> {
        self.take(count).read_to_end(out).map(|read| read as u64)
    }
}

impl Read for Bytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(out),
            Self::Stdin(stdin) => stdin.read(out),
            Self::Argument(bytes) => bytes.read(out),
        }
    }
}

impl Seek for Bytes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::File(file) => file.seek(to),
            Self::Stdin(_) => Err(io::ErrorKind::NotSeekable.into()),
            Self::Argument(bytes) => bytes.seek(to),
        }
    }
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.input.read(out)
    }
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
    }
}
