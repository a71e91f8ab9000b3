//! Stored light clients of a beacon chain, from damaged files: any text gives a light client or an
//! error. A light client that was read is written as it was read.
//!
//! Input: the file, or its member `client`, which is given the right checksum.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::bitcoin::hashes::{Hash as _, sha256};
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync_committee::LightClient;
use libfuzzer_sys::fuzz_target;
use testkit::eth::beacon_world::World;

/// The network of the golden files.
static NETWORK: LazyLock<Network> = LazyLock::new(|| World::new().network);
const NOW: Duration = Duration::from_secs(2_000_000);

fn examine(text: &str) {
    let read = |text: &str| LightClient::from_json(text, NETWORK.clone(), NOW);
    let Ok(client) = read(text) else { return };
    let written = client.to_json();
    let again = read(&written).expect("what was written");
    assert_eq!(again.finalized(), client.finalized());
    assert_eq!(again.to_json(), written);
}

fuzz_target!(|text: &str| {
    examine(text);
    let sha256 = B256::new(sha256::Hash::hash(text.as_bytes()).to_byte_array());
    examine(&format!(r#"{{"version":1,"sha256":"{sha256}","client":{text}}}"#));
});
