//! The false filters of peers, for the final report of a run.

use chainsieve::btc::bip157::FalseFilter;
use chainsieve_client::Finding;
use chainsieve_report::count;
use serde_json::{Value, json};

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

    use super::*;

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
