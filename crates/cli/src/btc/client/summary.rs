//! Parts of the final report of a run: grades of filters, false filters, peers, the tip.

use std::collections::BTreeMap;

use chainsieve::bitcoin::{Network, Work};
use chainsieve::btc::bip157::FalseFilter;
use chainsieve::btc::peer::{Grade, service_names};
use chainsieve_client::{Finding, Graded, PeerStatus, Progress};
use chainsieve_report::args::network_name;
use chainsieve_report::{count, grouped};
use serde_json::{Value, json};

use super::drive::{Ended, Ending};

/// Returns a range of heights with one grade, in JSON.
pub(super) fn graded_json(graded: &Graded) -> Value {
    let Graded { from, to, grade } = graded;
    json!({"from": from, "to": to, "grade": grade.name(), "peers": grade.peers()})
}

/// Returns the number of blocks of each grade as text, the lowest grade first.
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

/// Returns the members that the reports of both commands share, in JSON.
pub(super) fn json(ended: &Ended, network: Network) -> Value {
    let progress = &ended.status.progress;
    let tip = progress.tip;
    json!({
        "ended": ended.ending.name(),
        "network": network_name(network),
        "tip": {"height": tip.height, "block": tip.hash.to_string(), "time": ended.time},
        "work": work_hex(progress),
        "answered_to": progress.settled_to,
        "grades": ended.grades.iter().map(graded_json).collect::<Vec<_>>(),
        "false_filters": ended.false_filters.json(),
        "peers": peers_json(&ended.status.peers),
    })
}

/// Returns the first fields of the reports of both commands.
pub(super) fn fields(ended: &Ended) -> Vec<(&'static str, String)> {
    let tip = ended.status.progress.tip;
    vec![
        ("ended", ended.ending.name().replace('_', " ")),
        ("tip", format!("{} at height {}", tip.hash, grouped(tip.height))),
    ]
}

/// Returns the work of the chain as 64 hex digits, big-endian, as nodes print it.
pub(super) fn work_hex(progress: &Progress) -> String {
    hex::encode(progress.work.to_be_bytes())
}

/// Returns the work that a network had by September 2025: `nMinimumChainWork` of Bitcoin Core 30.
fn known_work(network: Network) -> Option<Work> {
    let hex = match network {
        Network::Bitcoin => "0xdee8e2a309ad8a9820433c68",
        Network::Testnet => "0x16dd270dd94fac1d7632",
        Network::Testnet4 => "0x34a4690fe592dc49c7c",
        _ => return None,
    };
    Work::from_hex(hex).ok()
}

/// Returns warnings about what a chain of headers does not prove.
fn chain_warnings(network: Network, work: Work) -> Vec<String> {
    let mut warnings = Vec::new();
    // Peers that withhold the real chain can serve an old chain, or a chain that was cheap to make.
    if known_work(network).is_some_and(|known| work < known) {
        warnings.push(format!(
            "the chain has less work than {network} had in September 2025: the peers withhold \
             blocks, or have another chain"
        ));
    }
    if network == Network::Signet {
        warnings.push(String::from(
            "blocks of signet are authenticated by signatures, which headers do not contain: the \
             chain is only as reliable as the peers",
        ));
    }
    warnings
}

/// Returns the warnings of a run: doubts about the chain, and why the run gave up.
pub(super) fn warnings(ended: &Ended, network: Network) -> Vec<String> {
    let mut warnings = match ended.ending {
        // Nobody withheld anything.
        Ending::Unreachable(_) => Vec::new(),
        _ => chain_warnings(network, ended.status.progress.work),
    };
    if let Ending::GaveUp(why) | Ending::Unreachable(why) = &ended.ending {
        warnings.push(format!("gave up: {why}"));
    }
    warnings.extend(ended.false_filters.warning());
    warnings
}

/// Returns all addresses that the client dialled, with their states, in JSON.
fn peers_json(peers: &[PeerStatus]) -> Value {
    let peers = peers.iter().map(|peer| {
        let claims = peer.claims.as_ref();
        json!({
            "address": peer.address,
            "agent": claims.map(|claims| &claims.agent),
            "height": claims.map(|claims| claims.height),
            "services": claims.map(|claims| service_names(claims.services)),
            "state": peer.state,
            "banned_for": peer.banned_for,
        })
    });
    peers.collect()
}

/// Maximum number of false filters that the report lists: each one costs an attacker an address.
const MAX_LISTED: usize = 100;
/// Maximum size of the proofs that the report contains. Most proofs have less than 1 kB, but a peer
/// can choose a filter whose proof needs a whole block, of up to 4 MB.
const MAX_PROOF_BYTES: usize = 8_000_000;

/// The false filters that peers claimed in a run.
#[derive(Debug, Default)]
pub(super) struct FalseFilters {
    /// Name of each peer, and its filter. A proof that exceeds [`MAX_PROOF_BYTES`] is left out.
    listed: Vec<(String, Box<FalseFilter>)>,
    proof_bytes: usize,
    /// Number of false filters that are not listed.
    left_out: usize,
}

impl FalseFilters {
    /// Adds a finding if it reports a false filter.
    pub(super) fn add(&mut self, finding: &Finding) {
        let Finding::FalseFilter { peer, filter } = finding else { return };
        if self.listed.len() == MAX_LISTED {
            self.left_out += 1;
            return;
        }
        let mut filter = filter.clone();
        let bytes = filter.proof.as_ref().map_or(0, |proof| proof.encode().len());
        if self.proof_bytes + bytes > MAX_PROOF_BYTES {
            filter.proof = None;
        } else {
            self.proof_bytes += bytes;
        }
        self.listed.push((peer.clone(), filter));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Returns a text for each listed filter.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        self.listed.iter().map(|(peer, filter)| format!("peer {peer}: {filter}"))
    }

    /// Returns the listed filters in JSON, each with its proof in hex.
    pub(super) fn json(&self) -> Vec<Value> {
        let of = |(peer, filter): &(String, Box<FalseFilter>)| {
            json!({
                "peer": peer,
                "height": filter.at.height,
                "block": filter.at.hash.to_string(),
                "filter_hash": filter.hash.to_string(),
                "proof": filter.proof.as_ref().map(|proof| hex::encode(proof.encode())),
            })
        };
        self.listed.iter().map(of).collect()
    }

    /// Returns a warning if filters were left out.
    pub(super) fn warning(&self) -> Option<String> {
        let is_whole = self.left_out == 0;
        let left_out = || format!("{} not listed", count(self.left_out, "further false filter"));
        (!is_whole).then(left_out)
    }
}

#[cfg(test)]
mod tests {
    use chainsieve::bitcoin::BlockHash;
    use chainsieve::bitcoin::hashes::Hash as _;
    use chainsieve::btc::bip158::audit::{FilterEvidence, InvalidFilter};
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

    /// Returns a finding whose proof has a filter of `len` bytes.
    fn finding(len: usize) -> Finding {
        let block_hash = BlockHash::all_zeros();
        let evidence = FilterEvidence::Malformed;
        let proof = InvalidFilter { block_hash, filter: vec![2; len], evidence };
        let zeros = "0".repeat(64);
        let finding = json!({
            "kind": "false_filter",
            "peer": "a",
            "at": {"height": 5, "hash": zeros},
            "filter_hash": zeros,
            "proof": hex::encode(proof.encode()),
        });
        serde_json::from_value(finding).unwrap()
    }

    #[test]
    fn filters_and_the_size_of_proofs_are_bounded() {
        let mut filters = FalseFilters::default();
        filters.add(&Finding::ClockBehind);
        assert!(filters.is_empty());
        // The second proof exceeds the limit, the third one does not.
        for len in [5_000_000, 5_000_000, 1] {
            filters.add(&finding(len));
        }
        let has_proof = |filter: &Value| filter["proof"].is_string();
        let listed = filters.json();
        assert_eq!(listed.iter().map(has_proof).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(filters.warning(), None);
        for _ in 0..98 {
            filters.add(&finding(1));
        }
        assert_eq!((filters.json().len(), filters.texts().count()), (MAX_LISTED, MAX_LISTED));
        assert_eq!(filters.warning().unwrap(), "1 further false filter not listed");
    }
}
