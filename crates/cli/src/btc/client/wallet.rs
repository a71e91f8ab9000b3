//! What is watched: scripts, the coins that pay to them, and the indices that descriptors go on to.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr as _;

use anyhow::{Context as _, bail};
use chainsieve::bitcoin::hashes::{Hash as _, sha256};
use chainsieve::bitcoin::{Network, OutPoint, Script, ScriptBuf};
use chainsieve::btc::descriptors::{descriptor_scripts, is_ranged};
use chainsieve::btc::script::pushes;

use crate::args::client::Protocol;
use crate::args::{Range, UsageError, WatchArgs};
use crate::btc::compact::scan::{HARDENED, words};
use crate::btc::compact::scripts::{self, WatchedScript};
use crate::btc::watch::{Kind, address};
use crate::input::{Reader, decode_hex, shorten};

/// A coin that the command line names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coin {
    pub(crate) item: String,
    pub(crate) outpoint: OutPoint,
    /// What it pays to, where the item says so.
    pub(crate) script: Option<ScriptBuf>,
}

impl Coin {
    /// What tells it from others.
    fn line(&self) -> String {
        let script = self.script.as_ref().map(hex::encode).unwrap_or_default();
        format!("{}={script}", self.outpoint)
    }
}

/// A ranged descriptor.
#[derive(Debug)]
struct Ranged {
    item: String,
    /// The next index to derive.
    next: u32,
    /// How many indices the command line asks for.
    window: u32,
}

/// What is watched.
#[derive(Debug)]
pub(crate) struct Wallet {
    scripts: Vec<WatchedScript>,
    by_script: HashMap<ScriptBuf, usize>,
    pub(crate) coins: Vec<Coin>,
    ranged: Vec<Ranged>,
    gap: u32,
    /// Which items these are, whatever their order.
    digest: String,
}

enum Expanded {
    Script(WatchedScript),
    Coin(Coin),
}

impl Wallet {
    /// The wallet of the items of the command line.
    pub(crate) fn read(args: &WatchArgs, gap: u32, protocol: Protocol) -> anyhow::Result<Self> {
        let network = args.network.network();
        let reader = Reader::of(args.items.iter())?;
        let expand = |kind, text: &str| match kind {
            Kind::Outpoint => Ok(vec![Expanded::Coin(coin(text, network, protocol)?)]),
            kind => {
                let scripts = scripts::expand(kind, text, network, &args.range)?;
                if protocol == Protocol::Bip37 {
                    check_watchable(kind, text, &scripts)?;
                }
                Ok(scripts.into_iter().map(Expanded::Script).collect())
            }
        };
        let items = scripts::read_items(args, &reader, expand)?;
        if items.is_empty() {
            return Err(UsageError("nothing to watch: give items, --file or -; see --help").into());
        }
        let (mut scripts, mut coins) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Expanded::Script(script) => scripts.push(script),
                Expanded::Coin(coin) => coins.push(coin),
            }
        }
        Self::new(scripts, coins, &args.range, gap)
    }

    fn new(
        scripts: Vec<WatchedScript>,
        coins: Vec<Coin>,
        range: &Range,
        gap: u32,
    ) -> anyhow::Result<Self> {
        let mut wallet = Self {
            scripts: Vec::new(),
            by_script: HashMap::new(),
            coins,
            ranged: Vec::new(),
            gap,
            digest: String::new(),
        };
        for watched in scripts {
            wallet.push(watched);
        }
        for watched in &wallet.scripts {
            if watched.index.is_some()
                && wallet.ranged.iter().all(|ranged| ranged.item != watched.item)
                && is_ranged(&watched.item)?
            {
                let (next, window) = (*range.0.end() + 1, *range.0.end() - *range.0.start() + 1);
                wallet.ranged.push(Ranged { item: watched.item.clone(), next, window });
            }
        }
        wallet.digest = wallet.make_digest();
        Ok(wallet)
    }

    fn make_digest(&self) -> String {
        let mut lines: Vec<String> = self
            .scripts
            .iter()
            .map(|watched| hex::encode(&watched.script))
            .chain(self.coins.iter().map(Coin::line))
            // More indices may have been used than a smaller gap has found.
            .chain((!self.ranged.is_empty()).then(|| format!("gap {}", self.gap)))
            .collect();
        lines.sort();
        lines.dedup();
        let hash = sha256::Hash::hash(lines.join("\n").as_bytes());
        hash.to_string().chars().take(16).collect()
    }

    /// Tells these items from others, in any order.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    fn push(&mut self, watched: WatchedScript) -> Option<usize> {
        if self.by_script.contains_key(&watched.script) {
            return None;
        }
        let index = self.scripts.len();
        self.by_script.insert(watched.script.clone(), index);
        self.scripts.push(watched);
        Some(index)
    }

    /// All scripts, by their index.
    pub(crate) fn scripts(&self) -> &[WatchedScript] {
        &self.scripts
    }

    /// What a script is watched for.
    pub(crate) fn script(&self, script: &Script) -> Option<&WatchedScript> {
        self.scripts.get(*self.by_script.get(script)?)
    }

    /// The keychain and index of a ranged descriptor's script.
    pub(crate) fn label(&self, watched: &WatchedScript) -> Option<(u32, u32)> {
        let place = self.ranged.iter().position(|ranged| ranged.item == watched.item)?;
        Some((u32::try_from(place).ok()?, watched.index?))
    }

    /// The keychain and index of a coin that an earlier run found, whether or not its script is
    /// derived now.
    pub(crate) fn keychain(&self, owner: &Owner) -> Option<(u32, u32)> {
        let place = self.ranged.iter().position(|ranged| ranged.item == owner.item)?;
        Some((u32::try_from(place).ok()?, owner.index?))
    }

    /// The next index of each ranged descriptor.
    pub(crate) fn next_indices(&self) -> Vec<u32> {
        self.ranged.iter().map(|ranged| ranged.next).collect()
    }

    /// Derives up to these indices, of which there is one for each ranged descriptor.
    pub(crate) fn derive_to(&mut self, next: &[u32]) -> anyhow::Result<()> {
        for (place, &next) in next.iter().enumerate().take(self.ranged.len()) {
            self.derive(place, next.min(HARDENED))?;
        }
        Ok(())
    }

    /// An index of a keychain is used: derives those that are to be watched now. With `slide`, as many
    /// as the command line asks for stay ahead of it; else the gap does. Returns the places of
    /// the new scripts.
    pub(crate) fn advance(
        &mut self,
        keychain: u32,
        index: u32,
        slide: bool,
    ) -> anyhow::Result<Vec<usize>> {
        let Some(ranged) = self.ranged.get_mut(keychain as usize) else { return Ok(Vec::new()) };
        let ahead = if slide { self.gap.max(ranged.window) } else { self.gap };
        let end = index.saturating_add(ahead).min(HARDENED - 1);
        if end < ranged.next {
            return Ok(Vec::new());
        }
        // In steps that pay.
        let end = if slide { end } else { end.saturating_add(ahead).min(HARDENED - 1) };
        self.derive(keychain as usize, end + 1)
    }

    /// Derives all indices below `end` that are not yet.
    fn derive(&mut self, place: usize, end: u32) -> anyhow::Result<Vec<usize>> {
        let Some(ranged) = self.ranged.get_mut(place) else { return Ok(Vec::new()) };
        let (item, next) = (ranged.item.clone(), ranged.next);
        if end <= next {
            return Ok(Vec::new());
        }
        ranged.next = end;
        let derived = descriptor_scripts(&item, next..=end - 1)?;
        let places = derived.into_iter().filter_map(|derived| {
            self.push(WatchedScript {
                item: item.clone(),
                path: Some(derived.path),
                index: derived.index,
                script: derived.script,
            })
        });
        Ok(places.collect())
    }
}

/// A bloom filter tests the data that scripts push: an item whose scripts push none would be watched
/// for nothing, without an end.
fn check_watchable(kind: Kind, text: &str, scripts: &[WatchedScript]) -> anyhow::Result<()> {
    if scripts.iter().any(|watched| pushes(watched.script.as_bytes()).next().is_some()) {
        return Ok(());
    }
    // What a descriptor says may be secret.
    let item = match kind {
        Kind::Descriptor => "a descriptor".to_owned(),
        kind => format!("{} {}", kind.name(), shorten(text)),
    };
    let why = UsageError(
        "BIP37 cannot watch it, since its script pushes no data that a bloom filter could test; take \
         --protocol bip157",
    );
    Err(anyhow::Error::from(why).context(item))
}

/// `TXID:VOUT` or `TXID:VOUT=SCRIPT`.
fn coin(text: &str, network: Network, protocol: Protocol) -> anyhow::Result<Coin> {
    let name = || format!("outpoint {}", shorten(text));
    let (outpoint, script) = match text.split_once('=') {
        Some((outpoint, script)) => (outpoint.trim(), Some(script.trim())),
        None => (text, None),
    };
    let outpoint = OutPoint::from_str(outpoint).with_context(name)?;
    let script = match script {
        None if protocol == Protocol::Bip157 => bail!(
            "{}: a compact filter holds whole scripts only: write outpoint:TXID:VOUT=SCRIPT, hex or an \
             address, or take --protocol bip37",
            name()
        ),
        None => None,
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Some(ScriptBuf::from(decode_hex(hex).with_context(name)?))
        }
        Some(text) => Some(address(text, network).with_context(name)?.script_pubkey()),
    };
    Ok(Coin { item: text.to_owned(), outpoint, script })
}

/// The coins that are known to be watched, with what they pay to: those that the command line names,
/// and those that were found.
#[derive(Debug, Default)]
pub(crate) struct Coins(BTreeMap<OutPoint, Owner>);

/// Whose a coin is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    /// In words: the item, with path and index.
    pub(crate) words: String,
    pub(crate) item: String,
    pub(crate) path: Option<u32>,
    pub(crate) index: Option<u32>,
    pub(crate) script: Option<ScriptBuf>,
}

impl Owner {
    pub(crate) fn of(watched: &WatchedScript) -> Self {
        Self {
            words: words(watched),
            item: watched.item.clone(),
            path: watched.path,
            index: watched.index,
            script: Some(watched.script.clone()),
        }
    }

    fn of_coin(coin: &Coin) -> Self {
        let (item, script) = (coin.item.clone(), coin.script.clone());
        Self { words: shorten(&item), item, path: None, index: None, script }
    }
}

impl Coins {
    pub(crate) fn of(wallet: &Wallet) -> Self {
        Self(wallet.coins.iter().map(|coin| (coin.outpoint, Owner::of_coin(coin))).collect())
    }

    pub(crate) fn add(&mut self, outpoint: OutPoint, owner: Owner) {
        self.0.entry(outpoint).or_insert(owner);
    }

    pub(crate) fn owner(&self, outpoint: &OutPoint) -> Option<&Owner> {
        self.0.get(outpoint)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{BtcCommand, Cli, Command};

    const TXID: &str = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b";

    #[test]
    fn coins_with_and_without_their_script() {
        let read = |text: &str, protocol| coin(text, Network::Regtest, protocol);
        let (bip37, bip157) = (Protocol::Bip37, Protocol::Bip157);
        let script = format!("0014{}", "07".repeat(20));
        let hex = read(&format!("{TXID}:1={script}"), bip157).unwrap();
        let address =
            read(&format!("{TXID}:1 = bcrt1qqurswpc8qurswpc8qurswpc8qurswpc8dxm0gk"), bip157);
        assert_eq!(hex.script, address.unwrap().script);
        assert_eq!(hex.outpoint.to_string(), format!("{TXID}:1"));
        assert_eq!(read(&format!("{TXID}:1"), bip37).unwrap().script, None);
        let error = read(&format!("{TXID}:1"), bip157).unwrap_err().to_string();
        assert!(error.contains("outpoint:TXID:VOUT=SCRIPT"), "{error}");
        for bad in ["", ":", "1", "x=00", "4a:1=00"] {
            assert!(read(bad, bip37).is_err(), "{bad}");
        }
        for bad in ["001", "1BoatSLRHtKNngkdXEeobR76b53LETtpyT", "tb1q", "zz"] {
            assert!(read(&format!("{TXID}:1={bad}"), bip37).is_err(), "{bad}");
        }
    }

    /// `OP_1` pushes no data; a coin is watched by its outpoint.
    #[test]
    fn what_a_bloom_filter_cannot_test_is_refused_at_the_start() {
        let read = |item: &str, protocol: Protocol| {
            let fixed = ["chainsieve", "btc", "watch", "--network", "regtest", "--data", "x"];
            let args = fixed.iter().chain([&item]);
            let args = Cli::try_parse_from(args).unwrap().command;
            let Command::Btc(BtcCommand::Watch(args)) = args else { panic!("another command") };
            Wallet::read(&args.look.watch, 3, protocol)
        };
        let coin = format!("outpoint:{TXID}:1=51");
        let pushing = format!("script:0014{}", "07".repeat(20));
        for item in ["script:51", "script:0087", &coin, &pushing] {
            assert!(read(item, Protocol::Bip157).is_ok(), "{item}");
            let refused = read(item, Protocol::Bip37).err();
            assert_eq!(refused.is_some(), item.len() < 12, "{item}: {refused:?}");
            let Some(error) = refused else { continue };
            assert!(error.is::<UsageError>());
            let text = format!("{error:#}");
            assert!(text.contains("script ") && text.contains("pushes no data"), "{text}");
        }
    }

    #[test]
    fn the_same_items_in_another_order_are_the_same() {
        let script = |byte: u8| WatchedScript {
            item: hex::encode([byte]),
            path: None,
            index: None,
            script: ScriptBuf::from(vec![byte]),
        };
        let digest = |scripts: Vec<WatchedScript>| {
            Wallet::new(scripts, Vec::new(), &Range(0..=0), 1).unwrap().digest().to_owned()
        };
        assert_eq!(digest(vec![script(1), script(2)]), digest(vec![script(2), script(1)]));
        assert_ne!(digest(vec![script(1), script(2)]), digest(vec![script(1)]));
    }
}
