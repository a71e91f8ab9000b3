//! Feeds LDK's `Filter` and `Confirm`: transactions confirmed and unconfirmed, and new chain tips.
use std::error::Error;
use std::sync::Mutex;

use chainsieve_client::chainsieve::bitcoin::block::Header;
use chainsieve_client::chainsieve::bitcoin::{BlockHash, Script, ScriptBuf, Txid};
use chainsieve_client::testnode::Node;
use chainsieve_client::{Birthday, Builder, Client, Item, Network, News, Wallet};
use lightning::chain::transaction::{self, TransactionData};
use lightning::chain::{Confirm, Filter, WatchedOutput};

/// The client, and the height of the chain when the channel was opened, which a program stores with
/// the channel. Blocks below need not be searched.
struct Registered<'a>(&'a Client, u32);

impl Filter for Registered<'_> {
    fn register_tx(&self, _txid: &Txid, script_pubkey: &Script) {
        let items = vec![Item::Script(script_pubkey.to_owned())];
        self.0.watch("ldk", Wallet::new(Birthday::Height(self.1), items)).expect("in filters");
    }
    fn register_output(&self, output: WatchedOutput) {
        // The output's script finds the transaction that creates the output, and the outpoint finds
        // its spend.
        let outpoint = output.outpoint.into_bitcoin_outpoint();
        let items = vec![Item::Coin { outpoint, script: Some(output.script_pubkey) }];
        // Only the new output is searched for, and only from the birthday on.
        self.0.watch("ldk", Wallet::new(Birthday::Height(self.1), items)).expect("in filters");
    }
}

/// Takes the place of `ChannelManager` and `ChainMonitor`, which cannot be created without keys and
/// channels.
#[derive(Default)]
struct Monitor(Mutex<Vec<(Txid, u32)>>);

impl Confirm for Monitor {
    fn transactions_confirmed(&self, _: &Header, txdata: &TransactionData<'_>, height: u32) {
        let new = txdata.iter().map(|(_, tx)| (tx.compute_txid(), height));
        self.0.lock().expect("no panic").extend(new);
    }
    fn transaction_unconfirmed(&self, txid: &Txid) {
        self.0.lock().expect("no panic").retain(|(known, _)| known != txid);
    }
    fn best_block_updated(&self, _: &Header, height: u32) {
        println!("best block {height}, {} transactions", self.get_relevant_txids().len());
    }
    fn get_relevant_txids(&self) -> Vec<(Txid, u32, Option<BlockHash>)> {
        self.0.lock().expect("no panic").iter().map(|(txid, at)| (*txid, *at, None)).collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let node = Node::regtest()?;
    let script = ScriptBuf::from_hex("0014aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")?;
    let txid = node.mine(&script).txdata[0].compute_txid();
    let client = Builder::new(Network::Regtest).peer(node.address().to_string()).start()?;
    let (monitor, outpoint) = (Monitor::default(), transaction::OutPoint { txid, index: 0 });
    Registered(&client, 1).register_tx(&outpoint.txid, &script);
    let output = WatchedOutput { block_hash: None, outpoint, script_pubkey: script };
    Registered(&client, 1).register_output(output);
    for update in client.updates() {
        match &update.news {
            News::Hit(hit) => {
                let Some((at, index)) = hit.place.map(|place| (place.block, place.index)) else {
                    continue;
                };
                let Some(header) = hit.header else { continue };
                let found = [(index as usize, &hit.transaction)];
                monitor.transactions_confirmed(&header, &found, at.height);
            }
            News::Withdrawn(hit) => monitor.transaction_unconfirmed(&hit.txid),
            News::CaughtUp(progress) => {
                let Some(header) = client.header_at(progress.tip.height)? else { continue };
                monitor.best_block_updated(&header, progress.tip.height);
                match (progress.tip.height, monitor.get_relevant_txids().len()) {
                    (1, 1) => drop(node.reorganize(0, &ScriptBuf::from_hex("51")?)),
                    (2, 0) => break,
                    _ => {}
                }
            }
            _ => {}
        }
        client.acknowledge(&update);
    }
    Ok(client.shutdown()?)
}
