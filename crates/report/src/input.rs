//! Bytes from the command line, from files and from standard input.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::args::holds_private_key;
use crate::exit::UsageError;
use crate::text::plain_or_quoted;

const STDIN_TWICE: UsageError = UsageError("standard input (-) can be read only once");

/// The byte order mark, which some editors write at the start of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Bytes, and the name of their source for errors.
#[derive(Debug)]
pub struct Input {
    /// The name of the source.
    pub source: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Input {
    /// Decodes the bytes if they are text, which must be hex; returns raw bytes unchanged.
    ///
    /// # Errors
    /// Returns an error if the bytes are text but not hex.
    pub fn unhex(self, what: &str) -> anyhow::Result<Self> {
        let Self { source, bytes } = self;
        let bytes = match as_text(&bytes) {
            Some(text) => all_hex(text)
                .and_then(|()| decode_hex(&text.split_ascii_whitespace().collect::<String>()))
                .with_context(|| format!("{what}, {source}"))?,
            None => bytes,
        };
        Ok(Self { source, bytes })
    }
}

/// Reads arguments that may be hex, a file or `-`.
#[derive(Debug, Default)]
pub struct Reader {
    stdin_taken: Cell<bool>,
}

impl Reader {
    /// Returns a reader of these arguments; at most one of them may be standard input (`-`).
    ///
    /// # Errors
    /// Returns an error if more than one argument is `-`.
    pub fn of(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self, UsageError> {
        if arguments.into_iter().filter(|argument| argument.as_ref() == "-").count() > 1 {
            return Err(STDIN_TWICE);
        }
        Ok(Self::default())
    }

    /// Reads one object: a file of hex may break it into several lines.
    ///
    /// # Errors
    /// Returns an error if the argument cannot be read or decoded.
    pub fn one(&self, argument: &str, what: &str) -> anyhow::Result<Input> {
        self.raw(argument, what)?.unhex(what)
    }

    /// Reads several objects: a file of hex contains one per line, a raw file contains one.
    ///
    /// # Errors
    /// Returns an error if the argument cannot be read or decoded.
    pub fn many(&self, argument: &str, what: &str) -> anyhow::Result<Vec<Input>> {
        let Input { source, bytes } = self.raw(argument, what)?;
        let Some(text) = as_text(&bytes) else { return Ok(vec![Input { source, bytes }]) };
        let lines: Vec<_> =
            (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()).collect();
        let only = lines.len() == 1;
        lines
            .into_iter()
            .map(|(number, line)| {
                let source = if only { source.clone() } else { format!("{source}, line {number}") };
                let bytes = decode_hex(line.trim()).with_context(|| format!("{what}, {source}"))?;
                Ok(Input { source, bytes })
            })
            .collect()
    }

    /// Reads the text of a file or of standard input.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is not UTF-8.
    pub fn text(&self, path: &Path) -> anyhow::Result<String> {
        let bytes = if path.as_os_str() == "-" {
            self.stdin()?
        } else {
            fs::read(path).with_context(|| shorten(&path.to_string_lossy()))?
        };
        let text = String::from_utf8(bytes)
            .with_context(|| format!("{}: not a text file", shorten(&path.to_string_lossy())))?;
        Ok(text.strip_prefix(BYTE_ORDER_MARK).map(str::to_owned).unwrap_or(text))
    }

    /// Reads the bytes of a file or of standard input; returns a hex argument as text, not decoded.
    ///
    /// # Errors
    /// Returns an error if the argument cannot be read, is empty, or is neither a file nor hex.
    pub fn raw(&self, argument: &str, what: &str) -> anyhow::Result<Input> {
        if argument == "-" {
            let bytes = self.stdin()?;
            // Without this check, an empty input or a single line break would be reported as a
            // malformed filter or proof.
            if bytes.trim_ascii().is_empty() {
                bail!("{what}, standard input: the input is empty");
            }
            return Ok(Input { source: "standard input".into(), bytes });
        }
        let path = Path::new(argument);
        if path.exists() {
            let bytes = fs::read(path).with_context(|| format!("{what}, {argument}"))?;
            if bytes.trim_ascii().is_empty() {
                bail!("{what}, {argument}: the file is empty");
            }
            return Ok(Input { source: argument.to_owned(), bytes });
        }
        let shown = shorten(argument);
        let argument = argument.trim();
        match hex::decode(argument) {
            Ok(_) if argument.is_empty() => bail!("{what}: the argument is empty"),
            Ok(_) => {
                Ok(Input { source: format!("hex {shown}"), bytes: argument.as_bytes().to_vec() })
            }
            Err(error) => bail!("{what}, {shown}: no such file, and not hex: {}", reason(error)),
        }
    }

    fn stdin(&self) -> anyhow::Result<Vec<u8>> {
        if self.stdin_taken.replace(true) {
            return Err(STDIN_TWICE.into());
        }
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
        Ok(bytes)
    }
}

/// Returns `bytes` as text if all characters are printable or white space.
///
/// The caller decodes such text as hex or JSON. Raw filters, blocks, transactions and SSZ contain
/// zero bytes, so they are not printable.
pub fn as_text(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let prints = |c: char| !c.is_control() || c.is_whitespace();
    (!text.trim().is_empty() && text.chars().all(prints)).then_some(text)
}

/// Returns an error with the first character that is neither a hex digit nor white space.
fn all_hex(text: &str) -> anyhow::Result<()> {
    let hex = |c: char| c.is_ascii_hexdigit() || c.is_ascii_whitespace();
    match text.chars().enumerate().find(|&(_, c)| !hex(c)) {
        Some((index, c)) => bail!("not hex: {c:?} at position {index}"),
        None => Ok(()),
    }
}

/// Decodes hex, with readable errors.
///
/// # Errors
/// Returns the position of the first character that is not a hex digit.
pub fn decode_hex(text: &str) -> anyhow::Result<Vec<u8>> {
    all_hex(text)?;
    hex::decode(text).map_err(|error| anyhow::anyhow!("not hex: {}", reason(error)))
}

fn reason(error: hex::FromHexError) -> String {
    match error {
        hex::FromHexError::InvalidHexCharacter { c, index } => {
            format!("{c:?} at position {index}")
        }
        hex::FromHexError::OddLength => "an odd number of digits".into(),
        hex::FromHexError::InvalidStringLength => "the wrong number of digits".into(),
    }
}

/// Shortens a text for a message, like [`excerpt`], and quotes it if a terminal would not show it as it
/// is.
pub fn shorten(text: &str) -> String {
    plain_or_quoted(&excerpt(text)).into_owned()
}

/// Shortens a text to 64 characters. Hides a private key, and everything but the scheme of a URL: the
/// path or user of a URL is often an API key.
pub fn excerpt(text: &str) -> String {
    if holds_private_key(text) {
        return "(a private key, not shown)".into();
    }
    if let Some((scheme, _)) = text.split_once("://") {
        return format!("{scheme:.16}://… (a URL, not shown: no URL is accepted here)");
    }
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a path for a message. If a URL was given instead of a path, the URL is hidden, as in
/// [`shorten`].
pub fn named(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains("://") { shorten(&text) } else { plain_or_quoted(&text).into_owned() }
}

/// Writes a file; replaces an existing file only if `force` is `true`.
///
/// # Errors
/// Returns an error if the file exists and `force` is `false`, or it cannot be written.
pub fn write(path: &Path, bytes: &[u8], force: bool) -> anyhow::Result<()> {
    check_overwrite(path, force)?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", named(path)))
}

/// Writes bytes as a line of hex; replaces an existing file only if `force` is `true`.
///
/// # Errors
/// Returns an error if the file exists and `force` is `false`, or it cannot be written.
pub fn write_hex(path: &Path, bytes: &[u8], force: bool) -> anyhow::Result<()> {
    write(path, format!("{}\n", hex::encode(bytes)).as_bytes(), force)
}

/// Writes a file so that no incomplete contents are ever visible: an interrupted command leaves the
/// old contents.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    // If `path` is a link, the link stays. The target of the link is replaced, or created if it does
    // not exist yet.
    let target = || Some(folder_and_name(path).ok()?.0.join(fs::read_link(path).ok()?));
    let path = fs::canonicalize(path).ok().or_else(target).unwrap_or_else(|| path.to_owned());
    let special = fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file());
    let written = if special { fs::write(&path, bytes) } else { replace_file(&path, bytes) };
    written.with_context(|| format!("cannot write {}", named(&path)))
}

/// Writes a temporary file in the same folder, syncs it to the disk, and renames it to `path`.
fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (folder, _) = folder_and_name(path)?;
    // The temporary name is not derived from `path`, whose name may already have the maximum length.
    let beside = Unfinished(folder.join(format!(".chainsieve-{}.tmp", std::process::id())));
    let mut file = File::create_new(&beside.0)?;
    if let Ok(metadata) = fs::metadata(path) {
        file.set_permissions(metadata.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside.0, path)
}

/// A temporary file. Dropping this value deletes the file, unless the file was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// Splits the path of a file into the folder and the name.
///
/// # Errors
/// Returns an error if the path ends in no name.
pub fn folder_and_name(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file");
    let name = path.file_name().ok_or_else(no_name)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok((folder.unwrap_or(Path::new(".")), name))
}

/// Checks that no file exists at `path`, or that `force` is `true`.
///
/// # Errors
/// Returns an error if a file exists at `path` and `force` is `false`.
pub fn check_overwrite(path: &Path, force: bool) -> anyhow::Result<()> {
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    ensure!(force || !is_file, "{} exists: --force replaces it", named(path));
    Ok(())
}
