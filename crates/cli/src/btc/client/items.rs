//! Items of the command line, converted to items of the client.

use std::str::FromStr as _;

use anyhow::{Context as _, bail};
use chainsieve::bitcoin::{Network, OutPoint, PublicKey, ScriptBuf};
use chainsieve_client::{Birthday, History, Item, Protocol, Wallet};
use chainsieve_report::{Reader, UsageError, decode_hex, shorten};

use crate::args::WatchArgs;
use crate::btc::cf::scripts;
use crate::btc::watch::{Kind, address, check_descriptor_keys};

/// Returns a wallet of all items of the command line, and the items as they were typed.
pub(super) fn read(
    args: &WatchArgs,
    gap: u32,
    protocol: Protocol,
    birthday: Birthday,
    history: History,
) -> anyhow::Result<(Wallet, Vec<String>)> {
    let network = args.network;
    let reader = Reader::of(args.items.iter())?;
    let empty = Wallet { history, gap, ..Wallet::new(birthday, Vec::new()) };
    let read = scripts::read_items(args, &reader, |kind, text| {
        let item = item(kind, text, args, network, protocol)?;
        let alone = Wallet { items: vec![item], ..empty.clone() };
        if let Err(error) = alone.check(protocol) {
            return Err(match kind {
                // Errors do not show the descriptor: it may contain a private key.
                Kind::Descriptor => error.cause.into(),
                kind => anyhow::Error::from(error.cause).context(name(kind, text)),
            });
        }
        Ok(alone.items.into_iter().map(|item| (item, text.to_owned())).collect())
    })?;
    // An empty file or input is most likely a mistake: a run without items would never find
    // anything.
    if read.is_empty() {
        bail!(UsageError("nothing to watch: give items, --file or -; see --help"));
    }
    // Two different texts may mean the same item, and a client accepts an item only once.
    let mut known = std::collections::HashSet::new();
    let distinct = read.into_iter().filter(|(item, _)| known.insert(item.clone()));
    let (items, names) = distinct.unzip();
    Ok((Wallet { items, ..empty }, names))
}

fn name(kind: Kind, text: &str) -> String {
    format!("{} {}", kind.name(), shorten(text))
}

fn item(
    kind: Kind,
    text: &str,
    args: &WatchArgs,
    network: Network,
    protocol: Protocol,
) -> anyhow::Result<Item> {
    let name = || name(kind, text);
    Ok(match kind {
        Kind::Address => Item::Script(address(text, network).with_context(name)?.script_pubkey()),
        Kind::Script => Item::Script(decode_hex(text).with_context(name)?.into()),
        Kind::Key => Item::Key(PublicKey::from_str(text).with_context(name)?),
        Kind::Descriptor => {
            check_descriptor_keys(text, network)?;
            Item::Descriptor(text.to_owned(), args.range.0.clone())
        }
        Kind::Outpoint => coin(text, network, protocol)?,
        Kind::Txid | Kind::Data => bail!(
            "{}: this is not a script, key, descriptor or coin: give a script or an address",
            name()
        ),
    })
}

/// Parses a coin: `TXID:VOUT` or `TXID:VOUT=SCRIPT`. The protocol BIP157 needs the script of the
/// coin.
fn coin(text: &str, network: Network, protocol: Protocol) -> anyhow::Result<Item> {
    let name = || name(Kind::Outpoint, text);
    let (outpoint, script) = match text.split_once('=') {
        Some((outpoint, script)) => (outpoint.trim(), Some(script.trim())),
        None => (text, None),
    };
    let outpoint = OutPoint::from_str(outpoint).with_context(name)?;
    let script = match script {
        None if protocol == Protocol::Bip157 => bail!(
            "{}: a compact filter contains whole scripts only: write outpoint:TXID:VOUT=SCRIPT (hex or \
             an address), or use --protocol bip37",
            name()
        ),
        None => None,
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Some(ScriptBuf::from(decode_hex(hex).with_context(name)?))
        }
        Some(text) => Some(address(text, network).with_context(name)?.script_pubkey()),
    };
    Ok(Item::Coin { outpoint, script })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transaction of Bitcoin's genesis block. Any txid would do.
    const TXID: &str = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b";

    #[test]
    fn coins_with_and_without_their_script() {
        let read = |text: &str, protocol| coin(text, Network::Regtest, protocol);
        let (bip37, bip157) = (Protocol::Bip37, Protocol::Bip157);
        let script = format!("0014{}", "07".repeat(20));
        let hex = read(&format!("{TXID}:1={script}"), bip157).unwrap();
        let address =
            read(&format!("{TXID}:1 = bcrt1qqurswpc8qurswpc8qurswpc8qurswpc8dxm0gk"), bip157);
        assert_eq!(hex, address.unwrap());
        let outpoint = format!("{TXID}:1").parse().unwrap();
        let script = Some(ScriptBuf::from_hex(&script).unwrap());
        assert_eq!(hex, Item::Coin { outpoint, script });
        let bare = read(&format!("{TXID}:1"), bip37).unwrap();
        assert_eq!(bare, Item::Coin { outpoint, script: None });
        let error = read(&format!("{TXID}:1"), bip157).unwrap_err().to_string();
        assert!(error.contains("outpoint:TXID:VOUT=SCRIPT"), "{error}");
        for bad in ["", ":", "1", "x=00", "4a:1=00"] {
            assert!(read(bad, bip37).is_err(), "{bad}");
        }
        for bad in ["001", "1BoatSLRHtKNngkdXEeobR76b53LETtpyT", "tb1q", "zz"] {
            assert!(read(&format!("{TXID}:1={bad}"), bip37).is_err(), "{bad}");
        }
    }
}
