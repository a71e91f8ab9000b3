//! Files of blocks: blocks in order, each with the scripts of the outputs that it spends, if the file
//! contains these scripts.

use std::fs::{self, Metadata};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::consensus::encode::{self, Decodable, deserialize};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::io::FromStd;
use chainsieve::bitcoin::{Block, BlockHash, CompactTarget, ScriptBuf, Transaction};
use serde::Deserialize;
use serde_json::Value;

use crate::input::{decode_hex, named};
use crate::source::Source;
use crate::text::count;

/// A block, with its height and the spent scripts as its source claims them.
#[derive(Debug)]
pub struct SourcedBlock {
    /// The block, whose transactions match its merkle root.
    pub block: Block,
    /// The height, if the source contains it.
    pub height: Option<u32>,
    /// The scripts of the outputs that the block spends, in the order of the inputs without the
    /// coinbase's input; `None` if the source does not contain the scripts.
    pub prevout_scripts: Option<Vec<ScriptBuf>>,
}

/// Decodes a block or a transaction; truncated input gets a clearer error than "IO error".
///
/// # Errors
/// Returns an error if the bytes are malformed, or bytes follow the object.
pub fn decode<T: Decodable>(bytes: &[u8]) -> anyhow::Result<T> {
    deserialize(bytes).map_err(|error| match error {
        encode::Error::Io(_) => anyhow!("truncated after {}", count(bytes.len(), "byte")),
        error => error.into(),
    })
}

/// Returns the files of a folder in the order of their names, without hidden files and without
/// files under construction (`.tmp`, `.part`).
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn files(folder: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let is_partial = path.extension().is_some_and(|end| end == "tmp" || end == "part");
        // A file that was deleted since the listing is skipped.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.is_file() && !is_hidden && !is_partial {
            files.push((path, metadata));
        }
    }
    files.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(files)
}

/// Calls `take` with each block of a file: JSON documents, lines of hex, or concatenated raw blocks.
///
/// # Errors
/// Returns the first error of the file or of `take`.
pub fn for_each_block_of(
    path: &Path,
    mut take: impl FnMut(SourcedBlock) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let source = Source::file(path).with_context(|| named(path))?;
    for_each(source, |block, _| take(block))
}

/// Calls `take` with each block of a file, of standard input or of hex on the command line.
///
/// # Errors
/// Returns the first error of the source or of `take`.
pub fn for_each_block(
    argument: &str,
    take: impl FnMut(SourcedBlock, &Source) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for_each(Source::open(argument, "block")?, take)
}

fn for_each(
    mut source: Source,
    mut take: impl FnMut(SourcedBlock, &Source) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let name = source.name().to_owned();
    let mut take = |sourced: SourcedBlock, source: &Source| {
        ensure!(
            sourced.block.check_merkle_root(),
            "the transactions do not match the merkle root of the block"
        );
        take(sourced, source)
    };
    let first = first_character(&mut source).with_context(|| name.clone())?;
    match first {
        _ if source.is_argument => {
            // Hex on the command line is decoded already.
            let mut number = 0;
            read_raw(&mut source, &mut number, &mut take)
        }
        None => bail!("{name}: the input is empty"),
        Some(b'{' | b'[') => read_json(source, &mut take).with_context(|| name),
        Some(byte) if byte.is_ascii_hexdigit() && is_hex_text(&mut source)? => {
            read_lines(&mut source, &mut take).with_context(|| name)
        }
        Some(_) => {
            let mut number = 0;
            read_raw(&mut source, &mut number, &mut take)
                .with_context(|| format!("{name}, block {number}"))
        }
    }
}

/// Returns the first byte that is not white space. Reads no more than needed: a pipe may deliver
/// the rest much later.
fn first_character(source: &mut Source) -> anyhow::Result<Option<u8>> {
    loop {
        let seen = source.fill_buf()?;
        match seen.iter().copied().find(|byte| !byte.is_ascii_whitespace()) {
            None if !seen.is_empty() => {
                let white = seen.len();
                source.consume(white);
            }
            first => return Ok(first),
        }
    }
}

/// Returns `true` if the first buffered bytes are all hex digits and white space; raw blocks
/// contain zero bytes early.
fn is_hex_text(source: &mut Source) -> anyhow::Result<bool> {
    let seen = source.fill_buf()?;
    Ok(seen.iter().take(160).all(|byte| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace()))
}

fn read_raw(
    source: &mut Source,
    number: &mut u64,
    take: &mut impl FnMut(SourcedBlock, &Source) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    while !source.fill_buf()?.is_empty() {
        *number += 1;
        let block = Block::consensus_decode(&mut FromStd::new(&mut *source))
            .context("malformed or truncated block")?;
        take(SourcedBlock { block, height: None, prevout_scripts: None }, source)?;
    }
    Ok(())
}

fn read_lines(
    source: &mut Source,
    take: &mut impl FnMut(SourcedBlock, &Source) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut line = String::new();
    for number in 1_u64.. {
        line.clear();
        if source.read_line(&mut line)? == 0 {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        let place = || format!("line {number}");
        let block = decode(&decode_hex(line.trim()).with_context(place)?).with_context(place)?;
        take(SourcedBlock { block, height: None, prevout_scripts: None }, source)
            .with_context(place)?;
    }
    Ok(())
}

fn read_json(
    mut source: Source,
    take: &mut impl FnMut(SourcedBlock, &Source) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let is_array =
        source.fill_buf()?.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if is_array {
        let documents: Vec<Value> =
            serde_json::from_reader(BufReader::new(&mut source)).context("JSON")?;
        for (number, document) in (1_u64..).zip(documents) {
            let place = || format!("element {number}");
            take(sourced(document).with_context(place)?, &source).with_context(place)?;
        }
        return Ok(());
    }
    let mut number = 0_u64;
    loop {
        // Each document gets a new parser, so that the source can be borrowed between documents.
        if first_character(&mut source)?.is_none() {
            return Ok(());
        }
        number += 1;
        let place = || format!("document {number}");
        let mut documents = serde_json::Deserializer::from_reader(&mut source).into_iter();
        let document: Value = documents
            .next()
            .context("nothing after white space")?
            .context("JSON")
            .with_context(place)?;
        drop(documents);
        take(sourced(document).with_context(place)?, &source).with_context(place)?;
    }
}

/// Decodes a block and the scripts that it spends from JSON: our own form, or a node's reply to
/// `getblock` with verbosity 3.
fn sourced(document: Value) -> anyhow::Result<SourcedBlock> {
    if document.get("block").is_some() {
        serde_json::from_value::<OwnDocument>(document)?.block()
    } else if document.get("tx").is_some() {
        serde_json::from_value::<GetBlock>(document)?.block()
    } else {
        bail!("the JSON has neither a field block (hex) nor a field tx (getblock with verbosity 3)")
    }
}

#[derive(Debug, Deserialize)]
struct OwnDocument {
    block: String,
    height: Option<u32>,
    prevouts: Option<Vec<OwnPrevout>>,
    prevout_scripts: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct OwnPrevout {
    script_pubkey: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
struct GetBlock {
    hash: String,
    height: Option<u32>,
    version: i32,
    merkleroot: String,
    time: u32,
    nonce: u32,
    bits: String,
    previousblockhash: Option<String>,
    tx: Vec<NodeTransaction>,
}

#[derive(Debug, Deserialize)]
struct NodeTransaction {
    hex: String,
    vin: Vec<NodeInput>,
}

#[derive(Debug, Deserialize)]
struct NodeInput {
    prevout: Option<NodePrevout>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodePrevout {
    script_pub_key: NodeScript,
}

#[derive(Debug, Deserialize)]
struct NodeScript {
    hex: String,
}

impl OwnDocument {
    fn block(self) -> anyhow::Result<SourcedBlock> {
        let block =
            decode(&decode_hex(&self.block).context("field block")?).context("field block")?;
        let scripts = match (self.prevouts, self.prevout_scripts) {
            (Some(prevouts), _) => {
                Some(prevouts.into_iter().map(|prevout| prevout.script_pubkey).collect())
            }
            (None, scripts) => scripts,
        };
        let prevout_scripts = scripts.map(scripts_of).transpose()?;
        Ok(SourcedBlock { block, height: self.height, prevout_scripts })
    }
}

fn scripts_of(scripts: Vec<String>) -> anyhow::Result<Vec<ScriptBuf>> {
    let script = |(number, hex): (usize, String)| {
        decode_hex(&hex).map(ScriptBuf::from).with_context(|| format!("spent output {number}"))
    };
    scripts.into_iter().enumerate().map(script).collect()
}

impl GetBlock {
    fn block(self) -> anyhow::Result<SourcedBlock> {
        let bits = u32::from_str_radix(&self.bits, 16).context("field bits")?;
        let header = Header {
            version: Version::from_consensus(self.version),
            prev_blockhash: match self.previousblockhash {
                Some(hash) => hash.parse().context("field previousblockhash")?,
                None => BlockHash::all_zeros(),
            },
            merkle_root: self.merkleroot.parse().context("field merkleroot")?,
            time: self.time,
            bits: CompactTarget::from_consensus(bits),
            nonce: self.nonce,
        };
        let hash = header.block_hash();
        let claimed: BlockHash = self.hash.parse().context("field hash")?;
        ensure!(hash == claimed, "the fields hash to {hash}, but field hash is {claimed}");
        let mut txdata = Vec::with_capacity(self.tx.len());
        let mut scripts = Some(Vec::new());
        for (index, tx) in self.tx.into_iter().enumerate() {
            let place = || format!("transaction {index}");
            let transaction: Transaction =
                decode(&decode_hex(&tx.hex).with_context(place)?).with_context(place)?;
            for input in tx.vin.into_iter().filter(|_| index > 0) {
                match (input.prevout, &mut scripts) {
                    (Some(prevout), Some(scripts)) => {
                        let hex = prevout.script_pub_key.hex;
                        scripts.push(ScriptBuf::from(decode_hex(&hex).with_context(place)?));
                    }
                    // Replies of verbosity 2 do not contain the spent scripts.
                    _ => scripts = None,
                }
            }
            txdata.push(transaction);
        }
        let block = Block { header, txdata };
        Ok(SourcedBlock { block, height: self.height, prevout_scripts: scripts })
    }
}
