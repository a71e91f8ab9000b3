//! Objects of a beacon chain's light client: any bytes and any text give an object or an error. An
//! object has a rank and roots, and its headers bind an execution block or give an error.
#![no_main]

use chainsieve::eth::anchor::network::{Fork, Network, Preset};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, Update, UpdateKind};
use libfuzzer_sys::fuzz_target;

const FORKS: [Fork; 8] = [
    Fork::Phase0,
    Fork::Altair,
    Fork::Bellatrix,
    Fork::Capella,
    Fork::Deneb,
    Fork::Electra,
    Fork::Fulu,
    Fork::Gloas,
];

fn examine(update: &Update, network: &Network) {
    assert!(!update.is_better_than(update, network.preset()));
    let finalized = update.finality.iter().filter_map(|finality| finality.header.as_ref());
    for header in finalized.chain([&update.attested]) {
        let _ = (header.beacon.root(), header.bound_execution(network));
    }
}

fuzz_target!(|data: &[u8]| {
    let network = Network::sepolia();
    for update in Update::list_from_ssz(data, &network).unwrap_or_default() {
        examine(&update, &network);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        for kind in [UpdateKind::Full, UpdateKind::Finality, UpdateKind::Optimistic] {
            if let Ok(update) = Update::from_json(text, kind, Preset::Minimal) {
                examine(&update, &network);
            }
        }
        let _ = Bootstrap::from_json(text, Preset::Minimal);
        let _ = serde_json::from_str::<Network>(text);
    }
    let Some((choice, ssz)) = data.split_first() else { return };
    let fork = FORKS[usize::from(choice % 8)];
    let kind = match choice / 8 % 4 {
        0 => UpdateKind::Full,
        1 => UpdateKind::Finality,
        2 => UpdateKind::Optimistic,
        _ => {
            let _ = Bootstrap::from_ssz(ssz, fork, Preset::Minimal);
            return;
        }
    };
    if let Ok(update) = Update::from_ssz(ssz, kind, fork, Preset::Minimal) {
        examine(&update, &network);
    }
});
