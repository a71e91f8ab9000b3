//! A light wallet over compact filters: finds the payments to a descriptor and prints their sum.
use chainsieve_client::chainsieve::bitcoin::{Amount, ScriptBuf};
use chainsieve_client::testnode::Node;
use chainsieve_client::{Birthday, Builder, Item, Network, News, Wallet};

const KEYS: &str = "wpkh(tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQgewGiYZqrA9DsP4zbQ1M/0/*)";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::regtest()?; // takes the place of peers on the network
    node.mine(&ScriptBuf::from_hex("0014d0c4a3ef09e997b6e99e397e518fe3e41a118ca1")?);
    let wallet = Wallet::new(Birthday::Height(0), vec![Item::Descriptor(KEYS.into(), 0..=19)]);
    let builder = Builder::new(Network::Regtest).peer(node.address().to_string());
    let client = builder.wallet("savings", wallet).start()?;
    let mut received = Amount::ZERO;
    for update in client.updates() {
        match &update.news {
            News::Hit(hit) => received += hit.received.iter().map(|it| it.value).sum(),
            News::CaughtUp(_) => break,
            _ => {}
        }
        client.acknowledge(&update);
    }
    println!("{received} received");
    Ok(client.shutdown()?)
}
