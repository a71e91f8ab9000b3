//! Scripts to search for in compact filters, derived from the items of the command line.

use std::collections::HashSet;
use std::path::Path;
use std::str::FromStr as _;

use anyhow::{Context as _, bail};
use chainsieve::bitcoin::{Network, PublicKey, ScriptBuf};
use chainsieve::btc::descriptors::descriptor_scripts;
use chainsieve_report::{Reader, decode_hex, named, shorten, stdin_is_piped};

use crate::args::{Range, WatchArgs};
use crate::btc::watch::{Kind, address, check_descriptor_keys, detect, read_lines};

/// A script, and the item that it was derived from.
#[derive(Debug, Clone)]
pub(crate) struct WatchedScript {
    pub(crate) item: String,
    /// Index of the path in a multipath descriptor: 1 is the change path of `<0;1>`.
    pub(crate) path: Option<u32>,
    /// The index in a ranged descriptor.
    pub(crate) index: Option<u32>,
    pub(crate) script: ScriptBuf,
}

/// Returns the scripts of all items; a repeated item is ignored.
pub(crate) fn read(
    args: &WatchArgs,
    range: &Range,
    reader: &Reader,
) -> anyhow::Result<Vec<WatchedScript>> {
    let network = args.network;
    read_items(args, reader, |kind, text| expand(kind, text, network, range))
}

/// Applies `expand` to every item of the command line; a repeated item is ignored.
pub(crate) fn read_items<T>(
    args: &WatchArgs,
    reader: &Reader,
    mut expand: impl FnMut(Kind, &str) -> anyhow::Result<Vec<T>>,
) -> anyhow::Result<Vec<T>> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut expand = |text: &str| {
        let (kind, value) = detect(text)?;
        if !seen.insert((kind.name(), value.to_owned())) {
            return Ok(Vec::new());
        }
        expand(kind, value)
    };
    for item in args.items.iter().filter(|item| *item != "-") {
        found.extend(expand(item)?);
    }
    let is_piped = args.items.is_empty() && args.file.is_empty() && stdin_is_piped();
    let is_named = args.items.iter().any(|item| item == "-");
    let stdin = (is_named || is_piped).then(|| Path::new("-"));
    for path in stdin.into_iter().chain(args.file.iter().map(AsRef::as_ref)) {
        let text = reader.text(path)?;
        let name = if path.as_os_str() == "-" { "standard input".into() } else { named(path) };
        let items = read_lines(&text, &name, &mut expand)?;
        if items.is_empty() {
            bail!("{name}: the input contains no items");
        }
        found.extend(items.into_iter().flatten());
    }
    Ok(found)
}

/// Returns the scripts of an item.
pub(crate) fn expand(
    kind: Kind,
    text: &str,
    network: Network,
    range: &Range,
) -> anyhow::Result<Vec<WatchedScript>> {
    let one = |script| WatchedScript { item: text.to_owned(), path: None, index: None, script };
    let item = || format!("{} {}", kind.name(), shorten(text));
    Ok(match kind {
        Kind::Address => vec![one(address(text, network).with_context(item)?.script_pubkey())],
        Kind::Script => {
            let script = ScriptBuf::from(decode_hex(text).with_context(item)?);
            if script.is_empty() || script.is_op_return() {
                bail!(
                    "{}: filters contain no empty scripts and no scripts that start with OP_RETURN",
                    item()
                );
            }
            vec![one(script)]
        }
        Kind::Key => key_scripts(PublicKey::from_str(text).with_context(item)?)
            .into_iter()
            .map(one)
            .collect(),
        // Errors do not show the descriptor: it may contain a private key.
        Kind::Descriptor => {
            check_descriptor_keys(text, network)?;
            let script = |derived: chainsieve::btc::descriptors::DescriptorScript| WatchedScript {
                item: text.to_owned(),
                path: Some(derived.path),
                index: derived.index,
                script: derived.script,
            };
            descriptor_scripts(text, range.0.clone())?.into_iter().map(script).collect()
        }
        Kind::Outpoint | Kind::Txid | Kind::Data => bail!(
            "{}: a compact filter contains whole scripts only; give the coin's script or address",
            item()
        ),
    })
}

/// Returns the scripts of Bitcoin Core's descriptor `combo`: P2PK, P2PKH, and for a compressed key
/// also P2WPKH and P2SH-P2WPKH.
fn key_scripts(key: PublicKey) -> Vec<ScriptBuf> {
    let mut scripts = vec![ScriptBuf::new_p2pk(&key), ScriptBuf::new_p2pkh(&key.pubkey_hash())];
    if let Ok(hash) = key.wpubkey_hash() {
        let program = ScriptBuf::new_p2wpkh(&hash);
        scripts.push(ScriptBuf::new_p2sh(&program.script_hash()));
        scripts.push(program);
    }
    scripts
}
