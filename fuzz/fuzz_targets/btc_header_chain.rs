//! Chains of Bitcoin headers. Bytes that decode are encoded to themselves. Headers mined on
//! regtest, in any order, give events that lead from one tip to the next.
#![no_main]

use std::time::Duration;

use bitcoin::Network;
use bitcoin::hashes::Hash as _;
use chainsieve::bitcoin;
use chainsieve::btc::headers::{ChainEvent, HeaderChain};
use libfuzzer_sys::fuzz_target;

use testkit::btc::regtest::{genesis, mine};

fuzz_target!(|data: &[u8]| {
    if let Ok(chain) = HeaderChain::decode(data) {
        assert_eq!(chain.encode(), data);
    }
    let mut chain = HeaderChain::new(Network::Regtest).with_side_limit(20);
    let mut pool = vec![genesis()];
    let mut active = vec![genesis().block_hash()];
    for step in data.chunks(24) {
        let mut message = Vec::new();
        for (salt, &[back, time, flip]) in (pool.len() as u64..).zip(step.as_chunks().0) {
            let parent = pool[pool.len() - 1 - usize::from(back) % pool.len()];
            let mut header = mine(&parent, parent.time.wrapping_add(u32::from(time)), salt);
            pool.push(header);
            if flip < 40 {
                header.nonce ^= u32::from(flip);
            }
            message.push(header);
        }
        let now = Duration::from_secs(u64::from(genesis().time) + 7_200);
        let events = chain.accept(&message, now).unwrap_or_else(|error| error.events);
        for event in events {
            match event {
                ChainEvent::Connected { at, header } => {
                    assert_eq!(Some(&header.prev_blockhash), active.last());
                    assert_eq!(at.height as usize, active.len());
                    active.push(at.hash);
                }
                ChainEvent::Disconnected { at } => assert_eq!(active.pop(), Some(at.hash)),
            }
        }
        assert_eq!(active.last(), Some(&chain.tip().hash));
        assert!(chain.side_headers() <= 20);
    }
    let chain = HeaderChain::decode(&chain.encode()).expect("what was written");
    assert_eq!(active.last(), Some(&chain.tip().hash));
    assert_eq!(chain.height_of(&bitcoin::BlockHash::all_zeros()), None);
});
