//! What the user says of the chain.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};

use crate::args::eth::{Scope, Soundness, TrustArgs};

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
    let found = match chain.parse() {
        Ok(id) => ChainProfile::of_chain_id(id),
        Err(_) if chain == "mainnet" => Some(ChainProfile::ethereum()),
        Err(_) => ChainProfile::known().find(|profile| profile.name() == chain),
    };
    found.ok_or_else(|| {
        let names: Vec<_> =
            ChainProfile::known().map(|profile| profile.name().to_owned()).collect();
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
