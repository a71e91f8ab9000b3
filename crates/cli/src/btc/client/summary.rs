//! What the end of a run says: grades of heights, peers, the tip.

use std::collections::BTreeMap;

use chainsieve::bitcoin::{Network, Work};
use chainsieve::btc::peer::{Grade, service_names};
use chainsieve_client::{Graded, PeerStatus, Progress};
use serde_json::{Value, json};

use super::drive::{Ended, Ending};
use crate::output::grouped;

/// Heights in a row with one grade, in JSON.
pub(super) fn graded_json(graded: &Graded) -> Value {
    let Graded { from, to, grade } = graded;
    json!({"from": from, "to": to, "grade": grade.name(), "peers": grade.peers()})
}

/// How many blocks have which grade, in words; the worst first.
pub(super) fn grades_in_words(runs: &[Graded]) -> Vec<String> {
    let mut counts = BTreeMap::<Grade, u64>::new();
    for run in runs {
        *counts.entry(run.grade).or_default() += u64::from(run.to - run.from) + 1;
    }
    let words = |(grade, blocks): (Grade, u64)| {
        let plural = if blocks == 1 { "" } else { "s" };
        format!("{} block{plural}: {grade}", grouped(blocks))
    };
    counts.into_iter().map(words).collect()
}

/// The tip in JSON, with its time.
pub(super) fn tip_json(ended: &Ended) -> Value {
    let tip = ended.status.progress.tip;
    json!({"height": tip.height, "block": tip.hash.to_string(), "time": ended.time})
}

/// The work of the chain, as nodes write it.
pub(super) fn work_hex(progress: &Progress) -> String {
    hex::encode(progress.work.to_be_bytes())
}

/// Work that the network is known to have done by September 2025: Core 30's `nMinimumChainWork`.
fn known_work(network: Network) -> Option<Work> {
    let hex = match network {
        Network::Bitcoin => "0xdee8e2a309ad8a9820433c68",
        Network::Testnet => "0x16dd270dd94fac1d7632",
        Network::Testnet4 => "0x34a4690fe592dc49c7c",
        _ => return None,
    };
    Work::from_hex(hex).ok()
}

/// What a chain of headers alone does not show.
fn chain_warnings(network: Network, work: Work) -> Vec<String> {
    let mut warnings = Vec::new();
    if known_work(network).is_some_and(|known| work < known) {
        warnings.push(format!(
            "the chain has less work than {network} had in September 2025: the peers hold blocks back, or \
             have another chain"
        ));
    }
    if network == Network::Signet {
        warnings.push(String::from(
            "signet's blocks are signed, which headers do not show: the chain is worth what the \
             peers are worth",
        ));
    }
    warnings
}

/// What is to be known of an end: doubts about the chain, and why the run gave up.
pub(super) fn warnings(ended: &Ended, network: Network) -> Vec<String> {
    let mut warnings = chain_warnings(network, ended.status.progress.work);
    if let Ending::GaveUp(why) | Ending::Unreachable(why) = &ended.ending {
        warnings.push(format!("gave up: {why}"));
    }
    warnings
}

/// All addresses that were called, and where each stands.
pub(super) fn peers_json(peers: &[PeerStatus]) -> Value {
    let peers = peers.iter().map(|peer| {
        let claims = peer.claims.as_ref();
        json!({
            "address": peer.address,
            "agent": claims.map(|claims| &claims.agent),
            "height": claims.map(|claims| claims.height),
            "services": claims.map(|claims| service_names(claims.services)),
            "state": peer.state,
        })
    });
    peers.collect()
}

#[cfg(test)]
mod tests {
    use chainsieve::btc::headers::HeaderChain;

    use super::*;

    #[test]
    fn a_chain_of_genesis_alone_is_warned_of() {
        let warnings = |network| chain_warnings(network, HeaderChain::new(network).work());
        for network in [Network::Bitcoin, Network::Testnet, Network::Testnet4, Network::Signet] {
            assert_eq!(warnings(network).len(), 1, "{network}");
        }
        assert_eq!(warnings(Network::Regtest), Vec::<String>::new());
    }

    #[test]
    fn blocks_are_counted_by_their_grade() {
        let run = |from, to, grade| Graded { from, to, grade };
        let runs =
            [run(1, 2, Grade::OnePeer), run(3, 3, Grade::Peers(2)), run(4, 4, Grade::OnePeer)];
        assert_eq!(
            grades_in_words(&runs),
            ["3 blocks: claimed by one peer", "1 block: 2 peers agree"]
        );
        let json = graded_json(&runs[1]);
        assert_eq!(json, json!({"from": 3, "to": 3, "grade": "peers", "peers": 2}));
    }
}
