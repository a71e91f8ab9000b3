//! Reads receipts of blocks from files, folders and archives.

use std::ffi::OsStr;
use std::fs;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::files::{BlockEntries, EntryKind, FileFormat, JsonValue, JsonValues};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve_report::{Source, decode_hex, grouped, named};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Maximum size of the receipts of one block in RLP, in bytes. A byte of log data costs 8 gas, so
/// the log data of a block with 60 million gas has less than 8 MB.
const MAX_RLP: u64 = 64 << 20;
/// Maximum size of the receipts of one block in JSON, in bytes: JSON is about three times as large
/// as RLP.
const MAX_JSON: u64 = 256 << 20;

/// The block to which receipts belong, as their source claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Number(u64),
    Hash(B256),
    /// The source does not name the block; the receipts root identifies it.
    Unknown,
}

/// A function that reads the receipts of a block, called only if they are needed.
pub(crate) type Found<'a> = Box<dyn FnOnce() -> anyhow::Result<BlockReceipts> + 'a>;

/// Callback for the receipts of each block: the block, a description of their position, and a
/// function that reads them.
type Take<'a> = dyn FnMut(Whose, String, Found<'_>) -> anyhow::Result<()> + 'a;

/// Reads all receipts of files and folders. Returns warnings about unreadable files of folders,
/// which are skipped.
///
/// # Errors
/// Returns an error if a file or folder of `paths` cannot be read.
pub(crate) fn read_all(paths: &[PathBuf], take: &mut Take<'_>) -> anyhow::Result<Vec<String>> {
    let mut left_out = Vec::new();
    for path in paths {
        for file in files(path)? {
            match read(&file, take) {
                Err(error) if *path != file => left_out.push(format!("skipped: {error:#}")),
                result => result?,
            }
        }
    }
    Ok(left_out)
}

/// Returns the path itself, or the files of a folder that may contain receipts.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.with_context(|| format!("receipts, {}", named(path)))?;
    let mut files: Vec<_> = entries
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            let extension = path.extension().and_then(OsStr::to_str);
            name.contains("receipts") || matches!(extension, Some("era1" | "ere" | "erae"))
        })
        .collect();
    files.sort();
    if files.is_empty() {
        bail!(
            "receipts, {}: the folder has no archive and no file with \"receipts\" in its name",
            named(path)
        );
    }
    Ok(files)
}

/// Reads all receipts of a file.
fn read(path: &Path, take: &mut Take<'_>) -> anyhow::Result<()> {
    let name = named(path);
    let mut read = || {
        let mut source = match path.to_str() {
            Some("-") => Source::open("-", "receipts")?,
            _ => Source::file(path)?,
        };
        match source.input.format()? {
            FileFormat::Era => archive(source, &name, take),
            FileFormat::Json => json(source, &name, take),
            FileFormat::Hex => hex_lines(source, &name, take),
            FileFormat::Rlp => rlp(source, &name, take),
            format => bail!("receipts in the format {format} are not supported"),
        }
    };
    read().with_context(|| format!("receipts, {name}"))
}

/// Reads the receipts of an archive, in which the position gives the block number.
fn archive(source: Source, name: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    let mut entries = BlockEntries::receipts(source.input);
    while let Some((number, entry)) = entries.next_entry()? {
        let (kind, place) = (entry.kind(), format!("byte {}", grouped(entry.offset())));
        let words = format!("{name}, {place}");
        let read = || {
            let rlp = entry.decompress(MAX_RLP)?;
            let read = match kind {
                EntryKind::SlimReceipts => BlockReceipts::from_slim_list(&rlp),
                _ => BlockReceipts::from_rlp_list(&rlp),
            };
            read.context(place)
        };
        take(Whose::Number(number), words, Box::new(read))?;
    }
    Ok(())
}

/// Concatenated lists of receipts.
fn rlp(mut source: Source, name: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    while !source.fill_buf()?.is_empty() {
        let at = source.offset();
        let mut list = Vec::new();
        source.append(1, &mut list)?;
        let first = list[0];
        if first < 0xc0 {
            bail!("byte {}: 0x{first:02x} does not start a list of receipts", grouped(at));
        }
        let digits = u64::from(first.saturating_sub(0xf7));
        let mut length = u64::from(first - 0xc0);
        if digits > 0 {
            if source.append(digits, &mut list)? < digits {
                bail!("byte {}: the file ends within the length of a list", grouped(at));
            }
            length = list[1..].iter().fold(0, |length, &byte| length << 8 | u64::from(byte));
        }
        if length > MAX_RLP {
            bail!(
                "byte {}: receipts of {} bytes; the limit is {}",
                grouped(at),
                grouped(length),
                grouped(MAX_RLP)
            );
        }
        if source.append(length, &mut list)? < length {
            bail!("byte {}: the file ends within a list of {} bytes", grouped(at), grouped(length));
        }
        let receipts = of_rlp(&list).with_context(|| format!("byte {}", grouped(at)))?;
        let place = if at == 0 { name.to_owned() } else { format!("{name}, byte {}", grouped(at)) };
        take(Whose::Unknown, place, Box::new(|| Ok(receipts)))?;
    }
    Ok(())
}

fn hex_lines(source: Source, name: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    for (line, text) in (1..).zip(source.lines()) {
        let text = text?;
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            continue;
        }
        let receipts = decode_hex(text.strip_prefix("0x").unwrap_or(text))
            .and_then(|bytes| of_rlp(&bytes))
            .with_context(|| format!("line {line}"))?;
        take(Whose::Unknown, format!("{name}, line {line}"), Box::new(|| Ok(receipts)))?;
    }
    Ok(())
}

/// Decodes receipts in the form of eth/68 or eth/69; no list is valid in both forms.
fn of_rlp(list: &[u8]) -> anyhow::Result<BlockReceipts> {
    BlockReceipts::from_rlp_list(list).or_else(|error| {
        BlockReceipts::from_slim_list(list).map_err(|slim| {
            anyhow!(
                "neither receipts with filters ({error}) nor slim receipts as of eth/69 ({slim})"
            )
        })
    })
}

/// A JSON object that may be a node's reply, receipts with their block's hash, or a single receipt.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Value<'a> {
    jsonrpc: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    receipts: Option<&'a RawValue>,
    hash: Option<B256>,
    block_hash: Option<B256>,
}

/// Single receipts, collected until a receipt of another block follows.
#[derive(Default)]
struct Group {
    of: Option<(Option<u64>, Option<B256>)>,
    line: u64,
    receipts: Vec<String>,
    raw: Vec<Vec<u8>>,
}

fn json(source: Source, name: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    let mut values = JsonValues::new(source.input, MAX_JSON);
    let mut group = Group::default();
    while let Some(value) = values.next_value()? {
        value_of_json(&value, name, &mut group, take).map_err(|error| {
            let message = format!("{error:#}");
            let (position, what) = value.locate(&message);
            anyhow!("{position}: {what}")
        })?;
    }
    group.end(name, take)
}

fn value_of_json(
    value: &JsonValue,
    name: &str,
    group: &mut Group,
    take: &mut Take<'_>,
) -> anyhow::Result<()> {
    let text = value.text.as_str();
    let place = || format!("{name}, line {}", value.line);
    if text.starts_with('"') {
        let hex: String = serde_json::from_str(text)?;
        group.begin((value.array, None), value.line, name, take)?;
        group.raw.push(raw(&hex)?);
        return Ok(());
    }
    if text.starts_with('[') {
        let (whose, receipts) = list(text)?;
        take(whose, place(), Box::new(|| Ok(receipts)))?;
        return Ok(());
    }
    let object: Value<'_> = serde_json::from_str(text)?;
    if let Some(error) = object.error {
        bail!("the node's reply is an error: {:?}", format!("{:.200}", error.get()));
    }
    let hash = object.hash.or(object.block_hash);
    match object.result.or(object.receipts) {
        // A reply with one receipt is read as that receipt.
        Some(inner) if inner.get().starts_with('{') => {
            let receipt: Value<'_> = serde_json::from_str(inner.get()).context("result")?;
            group.begin((value.array, receipt.block_hash), value.line, name, take)?;
            group.receipts.push(inner.get().to_owned());
        }
        Some(inner) => {
            let (whose, receipts) = list(inner.get())?;
            take(hash.map_or(whose, Whose::Hash), place(), Box::new(|| Ok(receipts)))?;
        }
        None if object.jsonrpc.is_some() => {
            bail!("the node's reply has no result: the node does not have the block's receipts")
        }
        None => {
            group.begin((value.array, object.block_hash), value.line, name, take)?;
            group.receipts.push(text.to_owned());
        }
    }
    Ok(())
}

/// Decodes a list of receipts, as objects or as hex.
fn list(text: &str) -> anyhow::Result<(Whose, BlockReceipts)> {
    let elements: Vec<&RawValue> = serde_json::from_str(text)?;
    if elements.first().is_some_and(|first| first.get().starts_with('"')) {
        let hexes: Vec<String> = serde_json::from_str(text)?;
        let encodings = hexes.iter().map(|hex| raw(hex)).collect::<anyhow::Result<Vec<_>>>()?;
        return Ok((Whose::Unknown, BlockReceipts::from_encodings(&encodings)?));
    }
    let receipts = BlockReceipts::from_json(text)?;
    Ok((claimed(&receipts), receipts))
}

/// Returns the block that the receipts name.
fn claimed(receipts: &BlockReceipts) -> Whose {
    let hash = receipts.claims().iter().find_map(|claims| claims.block_hash);
    let number = receipts.claims().iter().find_map(|claims| claims.block_number);
    hash.map(Whose::Hash).or(number.map(Whose::Number)).unwrap_or(Whose::Unknown)
}

fn raw(hex: &str) -> anyhow::Result<Vec<u8>> {
    decode_hex(hex.strip_prefix("0x").unwrap_or(hex))
}

impl Group {
    fn begin(
        &mut self,
        of: (Option<u64>, Option<B256>),
        line: u64,
        name: &str,
        take: &mut Take<'_>,
    ) -> anyhow::Result<()> {
        // Receipts outside of an array are grouped by the block that they name.
        let same = self.of == Some(of);
        if !same {
            self.end(name, take)?;
            (self.of, self.line) = (Some(of), line);
        }
        Ok(())
    }

    fn end(&mut self, name: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
        let Self { of, line, receipts, raw } = std::mem::take(self);
        if of.is_none() {
            return Ok(());
        }
        let (whose, receipts) = if raw.is_empty() {
            let receipts = BlockReceipts::from_json_each(&receipts)?;
            (claimed(&receipts), receipts)
        } else {
            (Whose::Unknown, BlockReceipts::from_encodings(&raw)?)
        };
        take(whose, format!("{name}, line {line}"), Box::new(|| Ok(receipts)))?;
        Ok(())
    }
}
