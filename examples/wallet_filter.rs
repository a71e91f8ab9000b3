//! A wallet's filter: the elements that it watches, and the `filterload` message for a node.
//!
//! `cargo run --example wallet_filter`

use std::error::Error;

use chainsieve::bitcoin::{Address, Network, OutPoint, PubkeyHash};
use chainsieve::btc::bip37::{AddedData, BloomFilter, UpdateMode};

fn main() -> Result<(), Box<dyn Error>> {
    // Chosen at random when the wallet is created, and never changed. Whoever compares filters with
    // different tweaks can single out the elements that are in both.
    let tweak = 0x1f2e_3d4c;
    // Room for 100 more elements: with `UpdateMode::All` every match inserts an outpoint, and a
    // full filter matches everything.
    let elements = 4 + 100;
    let mut filter = BloomFilter::new(elements, 0.0001, tweak, UpdateMode::All)?;

    // Receiving addresses: the node tests each push of an output's script.
    let addresses =
        ["bc1q7dmjqztn342e7qyl4tlfyqc8mju8ny7me8vm4n", "1979m9gb8qypkDp8HYV3HvbWxCBX5anSzn"];
    for address in addresses {
        let script = address.parse::<Address<_>>()?.require_network(Network::Bitcoin)?;
        filter.insert_script(&script.script_pubkey());
    }
    // The hash of a key finds P2PKH and P2WPKH outputs. The key itself would cost privacy.
    let hash: PubkeyHash = "751e76e8199196d454941c45d1b3a323f1433bd6".parse()?;
    filter.insert_key_hash(&hash);
    // Coins received earlier: the only element of a segwit input is its outpoint.
    let coin: OutPoint =
        "32814b7911b053b7c62c621b70878f3452ab331b2998dc639abf109a407d0a0b:0".parse()?;
    filter.insert_outpoint(&coin);

    println!("filterload {} bytes", filter.encode().len());
    println!("data {} bytes, {} hash functions", filter.data().len(), filter.hash_funcs());
    println!("estimated elements {:.1}", filter.estimated_elements());
    assert!(filter.contains_outpoint(&coin));

    // Later, a `filteradd` message sends one more element to the node.
    let added = AddedData::new(vec![0xab; 20])?;
    filter.insert(added.as_bytes());
    println!("filteradd {}", hex::encode(added.encode()));
    Ok(())
}
