//! A shipped list of known-bad addresses. The client queries its filter locally, and asks the
//! list's owner only about addresses that the filter does not rule out.
//!
//! `cargo run --example blocklist`

use std::collections::BTreeSet;
use std::error::Error;

use chainsieve::alloy_primitives::Address;
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve_filter::fuse::{BinaryFuse16, BinaryFuse16Ref};
use chainsieve_filter::{Filter, KeyHasher, Portable};

/// Block 17,686,111 of mainnet with all its receipts.
const BLOCK: &str = include_str!("../fixtures/ethereum/blocks/mainnet_17686111.json");
/// Number of listed addresses.
const LISTED: u64 = 50_000;

fn main() -> Result<(), Box<dyn Error>> {
    // The list: made-up addresses, and two that are in the block.
    let made_up = |number: u64| {
        let hash = KeyHasher::xxh3(7).hash::<u128>(&number.to_le_bytes()).to_le_bytes();
        Address::from_slice(&[&hash[..], &number.to_be_bytes()[4..]].concat())
    };
    let mut list: BTreeSet<Address> = (2..LISTED).map(made_up).collect();
    list.insert("0x3fc91a3afd70395cd496c647d5a6cc9d4b2b7fad".parse()?);
    list.insert("0xdac17f958d2ee523a2206206994597c13d831ec7".parse()?);

    // The owner builds a static filter and ships its bytes. The seed of the hash is in the bytes,
    // so anyone who has the filter can find unlisted addresses that match. Such a match is
    // harmless, because the owner confirms each match.
    let keys = list.iter().map(|address| address.as_slice());
    let filter = BinaryFuse16::build_from_keys(keys, KeyHasher::xxh3(42))?;
    let shipped = filter.encode()?;
    println!("list {} bytes, filter shipped {} bytes", list.len() * 20, shipped.len());

    // The client: collects every address in the block's logs.
    let block: serde_json::Value = serde_json::from_str(BLOCK)?;
    let receipts = block["receipts"].as_array().ok_or("no receipts")?;
    let receipts = receipts
        .iter()
        .map(|receipt| hex::decode(receipt.as_str().unwrap_or_default().trim_start_matches("0x")));
    let receipts = BlockReceipts::from_encodings(&receipts.collect::<Result<Vec<_>, _>>()?)?;
    let logs = receipts.iter().flat_map(|receipt| &receipt.logs);
    let named: BTreeSet<Address> = logs
        .flat_map(|log| {
            let in_topics = log.topics().iter().filter(|topic| topic[..12] == [0; 12]);
            in_topics.map(|topic| Address::from_word(*topic)).chain([log.address])
        })
        .collect();

    // The client queries the bytes where they are: a filter of any size is opened at once.
    let filter = BinaryFuse16Ref::view(&shipped)?;
    let suspects: Vec<_> = named.iter().filter(|address| filter.contains(&address[..])).collect();
    // The owner learns of these addresses, and answers exactly.
    let listed: Vec<_> = suspects.iter().filter(|address| list.contains(**address)).collect();
    println!(
        "{} addresses in the block, {} asked of the owner, {} listed",
        named.len(),
        suspects.len(),
        listed.len()
    );
    let exact = named.intersection(&list).count();
    assert_eq!(listed.len(), exact, "every listed address is found");

    // Count the unlisted addresses, among a million, that the owner would be asked about.
    let strangers = (LISTED..LISTED + 1_000_000).map(made_up);
    let asked = strangers.filter(|address| filter.contains(&address[..])).count();
    println!("of a million others {asked} would be asked about");
    Ok(())
}
