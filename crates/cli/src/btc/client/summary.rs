//! What the end of a run says: grades of heights, peers, the tip.

use std::collections::BTreeMap;

use chainsieve::bitcoin::{Network, Work};
use chainsieve::btc::headers::HeaderChain;
use chainsieve::btc::peer::Grade;
use serde_json::{Value, json};

use crate::btc::p2p::pool::{Pool, service_names};
use crate::output::grouped;

/// Heights in a row with one grade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Graded {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) grade: Grade,
}

impl Graded {
    pub(crate) fn json(self) -> Value {
        let (grade, peers) = grade_name(self.grade);
        json!({"from": self.from, "to": self.to, "grade": grade, "peers": peers})
    }
}

/// How many blocks have which grade, in words; the worst first.
pub(crate) fn grades_in_words(runs: &[Graded]) -> Vec<String> {
    let mut counts = BTreeMap::<Grade, u64>::new();
    for run in runs {
        *counts.entry(run.grade).or_default() += u64::from(run.to - run.from) + 1;
    }
    let words = |(grade, blocks): (Grade, u64)| {
        let plural = if blocks == 1 { "" } else { "s" };
        format!("{} block{plural}: {}", grouped(blocks), grade_words(grade))
    };
    counts.into_iter().map(words).collect()
}

/// The name of a grade in JSON, and the peers if it is their number.
pub(crate) fn grade_name(grade: Grade) -> (&'static str, Option<u32>) {
    match grade {
        Grade::OnePeer => ("one_peer", Some(1)),
        Grade::Peers(peers) => ("peers", Some(peers)),
        Grade::Checkpoint => ("checkpoint", None),
        Grade::Audited => ("audited", None),
        Grade::Scanned => ("scanned", None),
        _ => ("other", None),
    }
}

fn grade_words(grade: Grade) -> String {
    match grade {
        Grade::OnePeer => "one peer's word".into(),
        Grade::Peers(peers) => format!("{peers} peers agree"),
        Grade::Checkpoint => "committed to by a checkpoint".into(),
        Grade::Audited => "audited against the block".into(),
        Grade::Scanned => "the block itself was looked at".into(),
        _ => "graded".into(),
    }
}

/// Heights in runs of one grade, those without one left out.
pub(crate) fn runs(
    heights: std::ops::RangeInclusive<u32>,
    grade: impl Fn(u32) -> Option<Grade>,
) -> Vec<Graded> {
    let mut runs: Vec<Graded> = Vec::new();
    for height in heights {
        let Some(grade) = grade(height) else { continue };
        match runs.last_mut() {
            Some(run) if run.grade == grade && run.to + 1 == height => run.to = height,
            _ => runs.push(Graded { from: height, to: height, grade }),
        }
    }
    runs
}

/// The tip in JSON.
pub(crate) fn tip_json(chain: &HeaderChain) -> Value {
    let tip = chain.tip();
    let time = chain.header_at(tip.height).map(|header| header.time);
    json!({"height": tip.height, "block": tip.hash.to_string(), "time": time})
}

/// The work of the chain, as nodes write it.
pub(crate) fn work_hex(chain: &HeaderChain) -> String {
    hex::encode(chain.work().to_be_bytes())
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
pub(crate) fn chain_warnings(chain: &HeaderChain) -> Vec<String> {
    let network = chain.network();
    let mut warnings = Vec::new();
    if known_work(network).is_some_and(|known| chain.work() < known) {
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

/// All addresses that were called, and where each stands.
pub(crate) fn peers_json(pool: &Pool) -> Value {
    let peers = pool.addresses().map(|(address, state, theirs)| {
        json!({
            "address": address,
            "agent": theirs.map(|theirs| &theirs.user_agent),
            "height": theirs.map(|theirs| theirs.start_height),
            "services": theirs.map(|theirs| service_names(theirs.services)),
            "state": state,
        })
    });
    peers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_genesis_alone_is_warned_of() {
        for network in [Network::Bitcoin, Network::Testnet, Network::Testnet4, Network::Signet] {
            assert_eq!(chain_warnings(&HeaderChain::new(network)).len(), 1, "{network}");
        }
        assert_eq!(chain_warnings(&HeaderChain::new(Network::Regtest)), Vec::<String>::new());
    }

    #[test]
    fn heights_in_a_row_with_one_grade() {
        let grades = [None, Some(Grade::OnePeer), Some(Grade::OnePeer), None, Some(Grade::OnePeer)];
        let runs = runs(0..=4, |height| grades[height as usize]);
        let heights: Vec<_> = runs.iter().map(|run| (run.from, run.to)).collect();
        assert_eq!(heights, [(1, 2), (4, 4)]);
        assert_eq!(grades_in_words(&runs), ["3 blocks: one peer's word"]);
    }
}
