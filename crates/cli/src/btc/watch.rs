//! Items to watch, each an argument or a line of a file: the elements of Bloom filters and the scripts
//! of compact filters that follow from them.

use std::collections::HashSet;
use std::path::Path;
use std::str::FromStr as _;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::bitcoin::address::{NetworkUnchecked, ParseError};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{Address, Network, OutPoint, PublicKey, ScriptBuf, Txid};
use chainsieve::btc::descriptors::{DescriptorScript, descriptor_scripts};
use chainsieve::btc::script::{is_well_formed, pushes};
use chainsieve_report::args::{NOT_SHOWN, holds_private_key, words};
use chainsieve_report::{Reader, decode_hex, named, shorten, stdin_is_piped};
use clap::ValueEnum;

use crate::args::{Range, WatchArgs, word};

/// Settings for reading items.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) network: Network,
    pub(crate) range: Range,
    pub(crate) with_keys: bool,
}

/// The kind of an item; its name is the word before the colon in `kind:value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Kind {
    Address,
    Script,
    Key,
    Outpoint,
    Txid,
    Data,
    Descriptor,
}

impl Kind {
    /// Returns the word before the colon.
    pub(crate) fn name(self) -> String {
        word(&self)
    }

    /// Returns the name of an item of this kind, for errors.
    pub(crate) fn item(self, text: &str) -> String {
        format!("{} {}", self.name(), shorten(text))
    }
}

/// One item to watch.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(crate) elements: Vec<Element>,
    /// Number of scripts of the item that push no data, which no Bloom filter can find.
    pub(crate) unwatchable: usize,
    /// `true` if a script ends inside a push: the incomplete push is not inserted.
    pub(crate) malformed: bool,
}

/// An element that is inserted into the filter.
#[derive(Debug)]
pub(crate) struct Element {
    /// The index of the script in a ranged descriptor.
    pub(crate) index: Option<u32>,
    pub(crate) data: Vec<u8>,
}

impl Item {
    /// Parses an item. The kind of the item is detected from its form, or is written before a
    /// colon.
    pub(crate) fn detect(text: &str, policy: &Policy) -> anyhow::Result<Self> {
        let (kind, value) = detect(text)?;
        Self::new(kind, value, policy)
    }

    pub(crate) fn new(kind: Kind, text: &str, policy: &Policy) -> anyhow::Result<Self> {
        let text = text.trim();
        if holds_private_key(text) {
            bail!(NOT_SHOWN);
        }
        let mut item =
            Self { kind, text: text.into(), elements: vec![], unwatchable: 0, malformed: false };
        match Watched::parse(kind, text, policy.network)? {
            Watched::Script(script) => item.push_script(script.as_bytes(), None),
            Watched::Key(key) => {
                item.push(key.pubkey_hash().to_byte_array().to_vec());
                if policy.with_keys {
                    item.push(key.to_bytes());
                }
            }
            Watched::Coin(outpoint, None) => item.push(outpoint_element(&outpoint)),
            Watched::Coin(_, Some(_)) => {
                bail!("{}: a Bloom filter needs no script of a coin: TXID:VOUT", kind.item(text))
            }
            Watched::Txid(txid) => item.push(txid.to_byte_array().to_vec()),
            Watched::Data(data) => item.push(data),
            Watched::Descriptor => {
                for derived in descriptor_scripts(text, policy.range.0.clone())? {
                    item.push_script(derived.script.as_bytes(), derived.index);
                }
            }
        }
        Ok(item)
    }

    fn push(&mut self, data: Vec<u8>) {
        self.elements.push(Element { index: None, data });
    }

    fn push_script(&mut self, script: &[u8], index: Option<u32>) {
        let before = self.elements.len();
        self.elements.extend(pushes(script).map(|data| Element { index, data: data.to_vec() }));
        self.unwatchable += usize::from(self.elements.len() == before);
        self.malformed |= !is_well_formed(script);
    }
}

/// The meaning of an item.
#[derive(Debug)]
pub(crate) enum Watched {
    Script(ScriptBuf),
    Key(PublicKey),
    /// A descriptor, whose text is the item.
    Descriptor,
    /// A coin, and its script if the item has it: `TXID:VOUT=SCRIPT`.
    Coin(OutPoint, Option<ScriptBuf>),
    Txid(Txid),
    Data(Vec<u8>),
}

impl Watched {
    /// Parses an item. Errors do not show a descriptor: it may contain a private key, and errors end up
    /// in logs.
    pub(crate) fn parse(kind: Kind, text: &str, network: Network) -> anyhow::Result<Self> {
        let parsed = match kind {
            Kind::Address => address(text, network).map(Self::Script),
            Kind::Script => decode_hex(text).map(|script| Self::Script(script.into())),
            Kind::Key => PublicKey::from_str(text).map(Self::Key).map_err(Into::into),
            Kind::Outpoint => coin(text, network),
            Kind::Txid => Txid::from_str(text).map(Self::Txid).map_err(Into::into),
            Kind::Data => match decode_hex(text) {
                Ok(data) if data.is_empty() => {
                    Err(anyhow!("empty data: no script pushes empty data"))
                }
                data => data.map(Self::Data),
            },
            Kind::Descriptor => {
                check_descriptor_keys(text, network)?;
                return Ok(Self::Descriptor);
            }
        };
        parsed.with_context(|| kind.item(text))
    }
}

fn coin(text: &str, network: Network) -> anyhow::Result<Watched> {
    let (outpoint, script) = match text.split_once('=') {
        Some((outpoint, script)) => (outpoint.trim(), Some(script.trim())),
        None => (text, None),
    };
    let outpoint = OutPoint::from_str(outpoint)?;
    let script = match script {
        None => None,
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Some(ScriptBuf::from(decode_hex(hex)?))
        }
        Some(text) => Some(address(text, network)?),
    };
    Ok(Watched::Coin(outpoint, script))
}

/// Returns the kind and the text of an item; the kind is detected, or is written before a colon.
fn detect(text: &str) -> anyhow::Result<(Kind, &str)> {
    let text = text.trim();
    if holds_private_key(text) {
        bail!(NOT_SHOWN);
    }
    if let Some(explicit) = explicit(text) {
        return Ok(explicit);
    }
    if text.contains('(') {
        return Ok((Kind::Descriptor, text));
    }
    if OutPoint::from_str(text).is_ok() {
        return Ok((Kind::Outpoint, text));
    }
    if text.len() >= 66 && PublicKey::from_str(text).is_ok() {
        return Ok((Kind::Key, text));
    }
    if looks_like_address(text) {
        return Ok((Kind::Address, text));
    }
    let shown = shorten(text);
    if ["xpub", "tpub", "ypub", "zpub"].iter().any(|prefix| text.starts_with(prefix)) {
        bail!("{shown}: an extended key has no script: write a descriptor, such as wpkh(KEY/0/*)");
    }
    if hex::decode(text).is_ok() {
        bail!(
            "{shown}: the kind of this hex is unknown: write script:HEX, or for a Bloom filter also \
             data:HEX or txid:HEX"
        );
    }
    bail!("{shown}: this is neither an address, TXID:VOUT, a public key nor a descriptor");
}

/// Reads the items of a text, one per line; errors contain the number of the line.
pub(crate) fn read_lines<T>(
    text: &str,
    source: &str,
    mut read: impl FnMut(&str) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let mut items = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let item = without_comment(line).trim();
        if !item.is_empty() {
            items.push(read(item).with_context(|| format!("{source}, line {number}"))?);
        }
    }
    Ok(items)
}

/// Removes a comment from a line. A `#` starts a comment only at the start of the line or after
/// white space; inside a word, `#` starts the checksum of a descriptor.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        if c == '#' && before.is_whitespace() {
            return &line[..at];
        }
        before = c;
    }
    line
}

fn explicit(text: &str) -> Option<(Kind, &str)> {
    let (name, value) = text.split_once(':')?;
    Some((Kind::from_str(name.trim(), false).ok()?, value.trim()))
}

/// Returns `true` if a text looks like an address, so that the error should be about addresses.
fn looks_like_address(text: &str) -> bool {
    let base58 = (26..=35).contains(&text.len())
        && text.starts_with(['1', '2', '3', 'm', 'n'])
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_bech32(text) || base58
}

fn is_bech32(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    ["bc1", "tb1", "bcrt1"].iter().any(|prefix| lower.starts_with(prefix))
}

/// Returns an error for a descriptor with extended keys of another network.
fn check_descriptor_keys(text: &str, network: Network) -> anyhow::Result<()> {
    let (other, takes) = match network {
        Network::Bitcoin => ("tpub", "testnet"),
        _ => ("xpub", "mainnet"),
    };
    if words(text).any(|word| word.starts_with(other)) {
        bail!("descriptor: {other} keys belong to another network: give --network {takes}");
    }
    Ok(())
}

/// Returns the script of an address of the network.
fn address(text: &str, network: Network) -> anyhow::Result<ScriptBuf> {
    let address = Address::<NetworkUnchecked>::from_str(text);
    // The parser tries base58 last, so its error for invalid bech32 would be about base58.
    let address = match address {
        Err(ParseError::Base58(_)) if is_bech32(text) => {
            bail!("invalid bech32: a wrong checksum or character")
        }
        address => address?,
    };
    if address.is_valid_for_network(network) {
        return Ok(address.assume_checked().script_pubkey());
    }
    let others = [
        (Network::Bitcoin, "mainnet"),
        (Network::Testnet, "testnet"),
        (Network::Regtest, "regtest"),
    ];
    let names: Vec<_> = others
        .into_iter()
        .filter(|(network, _)| address.is_valid_for_network(*network))
        .map(|(_, name)| name)
        .collect();
    bail!("the address belongs to another network: give --network {}", names.join(" or "))
}

/// Encodes an outpoint as BIP37 filters store it: the txid in wire order, then the index, 4 bytes
/// little-endian.
pub(crate) fn outpoint_element(outpoint: &OutPoint) -> Vec<u8> {
    [&outpoint.txid.to_byte_array()[..], &outpoint.vout.to_le_bytes()].concat()
}

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
pub(crate) fn scripts(
    args: &WatchArgs,
    range: &Range,
    reader: &Reader,
) -> anyhow::Result<Vec<WatchedScript>> {
    let network = args.network;
    read_items(args, reader, |kind, text| expand(kind, text, network, range))
}

/// Returns the name of a file of items, or of standard input, for errors.
pub(crate) fn source_name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { named(path) }
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
        if !seen.insert((kind, value.to_owned())) {
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
        let name = source_name(path);
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
    Ok(match Watched::parse(kind, text, network)? {
        Watched::Script(script) if script.is_empty() || script.is_op_return() => bail!(
            "{}: filters contain no empty scripts and no scripts that start with OP_RETURN",
            kind.item(text)
        ),
        Watched::Script(script) => vec![one(script)],
        Watched::Key(key) => key_scripts(key).into_iter().map(one).collect(),
        Watched::Descriptor => {
            let derived = descriptor_scripts(text, range.0.clone())?.into_iter();
            let script = |DescriptorScript { path, index, script, .. }| WatchedScript {
                path: Some(path),
                index,
                ..one(script)
            };
            derived.map(script).collect()
        }
        Watched::Coin(..) | Watched::Txid(_) | Watched::Data(_) => bail!(
            "{}: a compact filter contains whole scripts only; give the coin's script or address",
            kind.item(text)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy { network: Network::Bitcoin, range: Range(0..=1), with_keys: false }
    }

    #[test]
    fn kinds_are_detected() {
        let kind = |text: &str| Item::detect(text, &policy()).map(|item| item.kind);
        assert_eq!(kind("bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu").unwrap(), Kind::Address);
        assert_eq!(kind(&format!("{}:0", "ab".repeat(32))).unwrap(), Kind::Outpoint);
        let key = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
        assert_eq!(kind(key).unwrap(), Kind::Key);
        assert_eq!(kind(&format!("pkh({key})")).unwrap(), Kind::Descriptor);
        assert_eq!(kind("data: 00ff").unwrap(), Kind::Data);
        assert_eq!(kind("script:0014").unwrap(), Kind::Script);
        assert_eq!(kind(&format!("txid:{}", "ab".repeat(32))).unwrap(), Kind::Txid);
        for ambiguous in ["00ff", "", "satoshi", "xpub6C", "nonsense:00", "data:", "data:0"] {
            assert!(kind(ambiguous).is_err(), "{ambiguous}");
        }
    }

    #[test]
    fn comments_end_lines_and_checksums_do_not() {
        assert_eq!(without_comment("a # b"), "a ");
        assert_eq!(without_comment("# b"), "");
        assert_eq!(without_comment("wpkh(k)#abc # b"), "wpkh(k)#abc ");
    }

    #[test]
    fn scripts_that_push_nothing_and_scripts_that_end_early() {
        let item = |text| Item::detect(text, &policy()).unwrap();
        assert_eq!(item("script:51").unwatchable, 1);
        let cut = item("script:02aabb05cc");
        assert_eq!((cut.elements.len(), cut.malformed), (1, true));
    }
}
