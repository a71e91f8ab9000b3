//! The folder of blocks that `serve-node` serves, in the form that `chainsieve btc test-node` reads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::consensus::encode::{Decodable as _, deserialize};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{Block, BlockHash, CompactTarget, ScriptBuf};
use chainsieve::btc::server::{IncomingBlock, ServedChain};
use serde::Deserialize;
use serde_json::Value;

use crate::files::named;
use crate::output::count;

/// Adds all blocks of a folder to a chain. Returns warnings about damaged files and invalid blocks.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub(crate) fn chain_of_folder(
    folder: &Path,
    chain: &mut ServedChain,
) -> anyhow::Result<Vec<String>> {
    ensure!(folder.is_dir(), "{}: not a folder", named(folder));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut warnings = Vec::new();
    for path in list(folder).with_context(|| named(folder))? {
        let mut take = |incoming: IncomingBlock| {
            let errors = chain.add_block(incoming, now).errors;
            warnings.extend(errors.iter().map(ToString::to_string));
        };
        let bytes = fs::read(&path).map_err(Into::into);
        if let Err(error) = bytes.and_then(|bytes| read(&bytes, &mut take)) {
            warnings.push(format!("damaged or truncated file: {}: {error:#}", named(&path)));
        }
    }
    if let Some((waiting, missing)) = chain.waiting() {
        let blocks = count(waiting, "block");
        warnings.push(format!("{blocks} not served: block {missing} is not in the folder"));
    }
    Ok(warnings)
}

/// Returns the files of a folder in the order of their names, without hidden files and without
/// files under construction (`.tmp`, `.part`).
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let is_partial = path.extension().is_some_and(|end| end == "tmp" || end == "part");
        if path.is_file() && !is_hidden && !is_partial {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Reads the blocks of a file: JSON documents, lines of hex, or concatenated raw blocks.
fn read(bytes: &[u8], take: &mut impl FnMut(IncomingBlock)) -> anyhow::Result<()> {
    let mut take = |incoming: IncomingBlock| {
        ensure!(
            incoming.block.check_merkle_root(),
            "the transactions do not match the merkle root of the block"
        );
        take(incoming);
        Ok(())
    };
    let is_hex = |byte: &u8| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace();
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => bail!("the file is empty"),
        Some(b'{' | b'[') => {
            for document in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
                match document.context("JSON")? {
                    Value::Array(documents) => {
                        documents.into_iter().try_for_each(|document| take(of_json(document)?))?;
                    }
                    document => take(of_json(document)?)?,
                }
            }
        }
        // Raw blocks contain zero bytes early.
        Some(_) if bytes.iter().take(160).all(is_hex) => {
            for line in str::from_utf8(bytes)?.lines().filter(|line| !line.trim().is_empty()) {
                take(block_of(line.trim())?.into())?;
            }
        }
        Some(_) => {
            let mut rest = bytes;
            while !rest.is_empty() {
                let block = Block::consensus_decode(&mut rest);
                take(block.context("malformed or truncated block")?.into())?;
            }
        }
    }
    Ok(())
}

fn block_of(text: &str) -> anyhow::Result<Block> {
    Ok(deserialize(&hex::decode(text)?)?)
}

/// The repository's own form: a block, and the scripts that it spends.
#[derive(Debug, Deserialize)]
struct OwnDocument {
    block: String,
    prevouts: Option<Vec<OwnPrevout>>,
    prevout_scripts: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct OwnPrevout {
    script_pubkey: String,
}

/// A node's reply to `getblock` with verbosity 3.
#[derive(Debug, Deserialize)]
struct GetBlock {
    hash: BlockHash,
    version: i32,
    merkleroot: String,
    time: u32,
    nonce: u32,
    bits: String,
    previousblockhash: Option<BlockHash>,
    tx: Vec<NodeTransaction>,
}

#[derive(Debug, Deserialize)]
struct NodeTransaction {
    hex: String,
    vin: Vec<Value>,
}

/// Decodes a block and the scripts that it spends.
fn of_json(document: Value) -> anyhow::Result<IncomingBlock> {
    if document.get("block").is_some() {
        let own: OwnDocument = serde_json::from_value(document)?;
        let scripts = match own.prevouts {
            Some(prevouts) => {
                Some(prevouts.into_iter().map(|prevout| prevout.script_pubkey).collect())
            }
            None => own.prevout_scripts,
        };
        let scripts = scripts.map(|scripts: Vec<String>| {
            scripts.iter().map(|script| Ok(ScriptBuf::from(hex::decode(script)?))).collect()
        });
        let prevouts = scripts.transpose().map_err(|error: hex::FromHexError| error)?;
        return Ok(IncomingBlock { block: block_of(&own.block)?, prevouts });
    }
    let reply: GetBlock = serde_json::from_value(document)
        .context("neither a field block (hex) nor the reply to getblock with verbosity 3")?;
    let header = Header {
        version: Version::from_consensus(reply.version),
        prev_blockhash: reply.previousblockhash.unwrap_or_else(BlockHash::all_zeros),
        merkle_root: reply.merkleroot.parse().context("field merkleroot")?,
        time: reply.time,
        bits: CompactTarget::from_consensus(u32::from_str_radix(&reply.bits, 16)?),
        nonce: reply.nonce,
    };
    let hash = header.block_hash();
    ensure!(hash == reply.hash, "the fields hash to {hash}, but field hash is {}", reply.hash);
    let mut txdata = Vec::with_capacity(reply.tx.len());
    // Replies of verbosity 2 do not contain the spent scripts.
    let mut prevouts = Some(Vec::new());
    for (index, tx) in reply.tx.iter().enumerate() {
        for input in tx.vin.iter().filter(|_| index > 0) {
            match (input["prevout"]["scriptPubKey"]["hex"].as_str(), &mut prevouts) {
                (Some(script), Some(prevouts)) => {
                    prevouts.push(ScriptBuf::from(hex::decode(script)?));
                }
                _ => prevouts = None,
            }
        }
        txdata.push(deserialize(&hex::decode(&tx.hex)?)?);
    }
    Ok(IncomingBlock { block: Block { header, txdata }, prevouts })
}
