//! A wallet of `bdk_wallet` that is stored: it goes on after a restart, and gives out an address beyond the range
//! that the client watches.
//!
//! `bdk_wallet` can also store a wallet in `SQLite`, by the same calls.

mod bdk_updates;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use bdk_wallet::file_store::Store;
use bdk_wallet::{ChangeSet, KeychainKind, PersistedWallet, Wallet as BdkWallet};
use chainsieve_client::chainsieve::bitcoin::ScriptBuf;
use chainsieve_client::testnode::Node;
use chainsieve_client::{Birthday, Builder, Client, Item, Network, News, Wallet};

const EXTERNAL: &str = "wpkh(tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQgewGiYZqrA9DsP4zbQ1M/0/*)";
const INTERNAL: &str = "wpkh(tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQgewGiYZqrA9DsP4zbQ1M/1/*)";

/// A running client, and the wallet that it keeps up to date.
struct Backend {
    client: Client,
    bdk: PersistedWallet<Store<ChangeSet>>,
    db: Store<ChangeSet>,
}

impl Backend {
    /// Starts with what earlier runs have stored in a folder.
    fn start(folder: &Path, node: &Node) -> Result<Self, Box<dyn Error>> {
        let (mut db, _) = Store::load_or_create(b"example", folder.join("wallet.db"))?;
        let stored = BdkWallet::load()
            .descriptor(KeychainKind::External, Some(EXTERNAL))
            .descriptor(KeychainKind::Internal, Some(INTERNAL))
            .load_wallet(&mut db)?;
        let bdk = if let Some(bdk) = stored {
            bdk
        } else {
            let bdk = BdkWallet::create(EXTERNAL, INTERNAL).network(Network::Regtest);
            bdk.create_wallet(&mut db)?
        };
        let client = Builder::new(Network::Regtest)
            .peer(node.address().to_string())
            .data_dir(folder.join("client"))
            .wallet("bdk", watched(&bdk, Birthday::Height(0)))
            .start()?;
        Ok(Self { client, bdk, db })
    }

    /// Returns the script of an address that the wallet gives out.
    fn reveal(&mut self, index: u32) -> Result<ScriptBuf, Box<dyn Error>> {
        self.bdk.reveal_addresses_to(KeychainKind::External, index).for_each(drop);
        self.bdk.persist(&mut self.db)?;
        // Nobody can have paid to a new address yet: only later blocks are searched for it.
        let birthday = Birthday::Height(self.bdk.latest_checkpoint().height());
        let watch = self.client.watch("bdk", watched(&self.bdk, birthday))?;
        // Whoever gives out an address before it is watched durably could miss a payment after a crash.
        if !self.client.wait_stored(watch, Duration::from_secs(60)) {
            return Err("the address is not stored".into());
        }
        Ok(self.bdk.peek_address(KeychainKind::External, index).script_pubkey())
    }

    /// Applies updates until one of them is the last; returns the number of hits.
    fn follow(&mut self, is_last: impl Fn(&News) -> bool) -> Result<usize, Box<dyn Error>> {
        let mut hits = 0;
        for update in self.client.updates() {
            bdk_updates::apply(&self.client, &mut self.bdk, &update.news)?;
            // First stored, then acknowledged: after a crash in between, the update comes again.
            self.bdk.persist(&mut self.db)?;
            self.client.acknowledge(&update);
            hits += usize::from(matches!(update.news, News::Hit(_)));
            if is_last(&update.news) {
                return Ok(hits);
            }
        }
        Err("the client has stopped".into())
    }
}

/// Returns what the client watches: all addresses that were given out, and 20 more.
fn watched(bdk: &BdkWallet, birthday: Birthday) -> Wallet {
    let item = |keychain| {
        let given = bdk.derivation_index(keychain).unwrap_or(0);
        Item::Descriptor(bdk.public_descriptor(keychain).to_string(), 0..=given + 20)
    };
    Wallet::new(birthday, [KeychainKind::External, KeychainKind::Internal].map(item).into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("bdk-stored-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let node = Node::regtest()?;

    let mut backend = Backend::start(&folder, &node)?;
    node.mine(&backend.reveal(0)?);
    let hits = backend.follow(|news| matches!(news, News::Hit(_)))?;
    println!("first run: {hits} hit, {}", backend.bdk.balance().total());
    backend.client.shutdown()?;

    let mut backend = Backend::start(&folder, &node)?;
    let hits = backend.follow(|news| matches!(news, News::CaughtUp(_)))?;
    println!("second run: {hits} hits, {}", backend.bdk.balance().total());
    node.mine(&backend.reveal(60)?);
    let hits = backend.follow(|news| matches!(news, News::Hit(_)))?;
    println!("address 60: {hits} hit, {}", backend.bdk.balance().total());
    backend.client.shutdown()?;

    let mut backend = Backend::start(&folder, &node)?;
    let hits = backend.follow(|news| matches!(news, News::CaughtUp(_)))?;
    println!("third run: {hits} hits, {}", backend.bdk.balance().total());
    backend.client.shutdown()?;
    Ok(std::fs::remove_dir_all(&folder)?)
}
