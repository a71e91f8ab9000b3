//! What the user says of the chain.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};

use crate::args::eth::{Scope, Soundness, TrustArgs};

/// The chains that the library knows, by id, to find them by name.
const IDS: [u64; 17] = [
    1, 5, 10, 25, 137, 314, 324, 1329, 2009, 8453, 17_000, 32_769, 80_002, 84_532, 560_048,
    11_155_111, 11_155_420,
];

const ASSUMED: &str = "assumed";

/// The profile of `--chain` or `--assume-bloom`.
pub(crate) fn read(args: &TrustArgs) -> anyhow::Result<ChainProfile> {
    let Some(chain) = &args.chain else {
        let bloom = match args.assume_bloom {
            Some(Soundness::Exact) => BloomSoundness::Exact,
            Some(Soundness::Superset) => BloomSoundness::Superset,
            Some(Soundness::Absent) => BloomSoundness::Absent,
            Some(Soundness::Unsound) | None => BloomSoundness::Unsound,
        };
        let receipts = match args.assume_receipts {
            Scope::EveryLog => ReceiptsScope::EveryLog,
            Scope::NotEveryLog => ReceiptsScope::NotEveryLog,
        };
        return Ok(ChainProfile::assumed(ASSUMED, bloom, receipts));
    };
    let profiles = || IDS.into_iter().filter_map(ChainProfile::of_chain_id);
    let found = match chain.parse() {
        Ok(id) => ChainProfile::of_chain_id(id),
        Err(_) if chain == "mainnet" => Some(ChainProfile::ethereum()),
        Err(_) => profiles().find(|profile| profile.name() == chain),
    };
    found.ok_or_else(|| {
        let names: Vec<_> = profiles().map(|profile| profile.name().to_owned()).collect();
        anyhow::anyhow!(
            "--chain {chain}: known are {} and their ids; of another chain say --assume-bloom and \
             --assume-receipts",
            names.join(", ")
        )
    })
}

/// The trusted hashes.
pub(crate) fn anchors(args: &TrustArgs) -> Vec<B256> {
    args.anchor.iter().map(|anchor| anchor.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_chain_is_known() {
        assert!(IDS.into_iter().all(|id| ChainProfile::of_chain_id(id).is_some()));
    }
}
