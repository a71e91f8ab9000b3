//! A wallet's session with a node: events in, messages and findings out.
//!
//! The library does no I/O. Here the node is a function. A real wallet has a socket instead.
//!
//! `cargo run --example wallet_session`

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use chainsieve::bitcoin::consensus::encode::deserialize_hex;
use chainsieve::bitcoin::{Block, Network, ScriptBuf};
use chainsieve::btc::bip37::session::{
    Action, Config, Event, FilterPolicy, Finding, Message, Session,
};
use chainsieve::btc::bip37::{BlockElements, BloomFilter, MerkleBlock};
use chainsieve::btc::headers::BlockAt;
use chainsieve::btc::wallet::{Label, WatchItem};

/// Block 150,013 of the main chain.
const BLOCK: &str = include_str!("../fixtures/bitcoin/blocks/mainnet_150013.json");

fn main() -> Result<(), Box<dyn Error>> {
    let fixture: serde_json::Value = serde_json::from_str(BLOCK)?;
    let block: Block = deserialize_hex(fixture["block"].as_str().ok_or("no block")?)?;

    // The tweak is drawn at random once, and then kept with the wallet. The null outpoint makes
    // every coinbase transaction match, which proves the height of each tree.
    let policy = FilterPolicy { insert_null_outpoint: true, ..FilterPolicy::new(0x1f2e_3d4c) };
    let mut session = Session::new(Config::new(Network::Bitcoin, policy));
    let script = ScriptBuf::from_hex("76a91444be49d2bb148a12efe5210900ca4936cdff3b3d88ac")?;
    let label = Some(Label { keychain: 0, index: 0 });
    let wanted = BlockAt { hash: block.block_hash(), height: 150_013 };
    let mut events = VecDeque::from([
        Event::Watch(vec![WatchItem::Script { script, label }]),
        Event::Connected,
        Event::Tip(150_020),
        Event::Request(vec![wanted]),
    ]);

    let mut filter = None;
    while let Some(event) = events.pop_front() {
        for action in session.handle(event, Duration::ZERO) {
            match action {
                Action::Send(message) => events.extend(node(message, &mut filter, &block)?),
                Action::Report(Finding::Relevant(found)) => {
                    let (received, spent) = (found.relevance.received, found.relevance.spent);
                    println!("{}: {} received, {} spent", found.txid, received.len(), spent.len());
                }
                Action::Report(Finding::Block { proof, .. }) => println!("{proof}"),
                Action::Report(Finding::Privacy(report)) => println!("{report}"),
                Action::Report(other) => println!("{other:?}"),
                other => println!("{other:?}"),
            }
        }
    }
    Ok(())
}

/// Returns the answers of a node with one block.
fn node(
    message: Message,
    filter: &mut Option<BloomFilter>,
    block: &Block,
) -> Result<Vec<Event>, Box<dyn Error>> {
    Ok(match message {
        Message::FilterLoad(loaded) => {
            *filter = Some(loaded);
            vec![]
        }
        Message::GetFilteredBlocks(_) => {
            let elements = BlockElements::from_block(block);
            let found = filter.as_mut().ok_or("no filter is loaded")?.match_block(&elements);
            let matched: Vec<_> = found.iter().map(|found| found.index).collect();
            let answer = MerkleBlock::new(elements.header(), elements.txids(), &matched)?;
            let transactions = matched.iter().map(|&i| Event::Tx(block.txdata[i as usize].clone()));
            std::iter::once(Event::MerkleBlock(answer)).chain(transactions).collect()
        }
        Message::Ping(nonce) => vec![Event::Pong(nonce)],
        _ => vec![],
    })
}
