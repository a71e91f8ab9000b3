//! The chain profile, given by the user or derived from the provider's chain id.

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve_report::{Exit, UsageError};

use crate::args::eth::TrustArgs;

const ASSUMED: &str = "assumed";

/// Returns the profile of `--chain` or `--assume-bloom`, one of which must be given.
pub(crate) fn read(args: &TrustArgs) -> anyhow::Result<ChainProfile> {
    let given = given(args)?;
    given.ok_or_else(|| UsageError("--chain or --assume-bloom is missing: see --help").into())
}

/// Returns the profile of `--chain` or `--assume-bloom`; `None` if neither is given.
pub(crate) fn given(args: &TrustArgs) -> anyhow::Result<Option<ChainProfile>> {
    let Some(chain) = &args.chain else {
        let assumed = |bloom| ChainProfile::assumed(ASSUMED, bloom, args.assume_receipts);
        return Ok(args.assume_bloom.map(assumed));
    };
    let found = match chain.parse() {
        Ok(id) => ChainProfile::of_chain_id(id),
        Err(_) if chain == "mainnet" => Some(ChainProfile::ethereum()),
        Err(_) => ChainProfile::by_name(chain),
    };
    found.map(Some).ok_or_else(|| {
        let names: Vec<_> =
            ChainProfile::known().map(|profile| profile.name().to_owned()).collect();
        Exit::Usage.error(anyhow!(
            "--chain {chain}: this chain is unknown. Known chains, by name or chain id: {}. For \
             another chain, give --assume-bloom and --assume-receipts",
            names.join(", ")
        ))
    })
}

/// Returns the profile for the chain id that a provider returns. A profile that the user gives
/// takes precedence, but the chain of `--chain` must have the provider's chain id.
pub(crate) fn of_provider(args: &TrustArgs, chain_id: u64) -> anyhow::Result<ChainProfile> {
    let known = ChainProfile::of_chain_id(chain_id);
    let Some(given) = given(args)? else {
        return known.with_context(|| {
            format!(
                "the provider's chain has id {chain_id}, which is unknown to this command: give \
                 --assume-bloom and --assume-receipts (for unmodified geth nodes: exact, every-log)"
            )
        });
    };
    if args.chain.is_some() && known.as_ref() != Some(&given) {
        let name = known.map_or_else(String::new, |known| format!(", {}", known.name()));
        bail!(
            "--chain {}: the provider serves another chain, with id {chain_id}{name}",
            given.name()
        );
    }
    Ok(given)
}

/// Returns `true` if the user names the chain, or states its properties.
pub(crate) fn is_of_user(args: &TrustArgs) -> bool {
    args.chain.is_some() || args.assume_bloom.is_some()
}
