//! Sets a follower up from the arguments, the provider's chain and the cursor file.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::follow::{Fault, StartError};
use chainsieve_provider::{EventDecoder, FollowBuilder, FollowError, Provider};
use chainsieve_report::{UsageError, named};

use crate::args::eth::FollowArgs;
use crate::eth::{profile, query};
use crate::eth::rpc::in_words_of_the_command;
use crate::exit::of_fault;
use super::indexed::Indexed;

/// Reads the events of ABI files.
pub(super) fn events(paths: &[PathBuf]) -> anyhow::Result<Option<EventDecoder>> {
    let mut events = None;
    for path in paths {
        let text = fs::read_to_string(path).with_context(|| format!("--abi, {}", named(path)))?;
        let so_far: EventDecoder = events.unwrap_or_default();
        let added = so_far.json_abi(&text).with_context(|| format!("--abi, {}", named(path)))?;
        events = Some(added);
    }
    Ok(events)
}

/// A follower that is configured but not started, and the warnings so far.
pub(super) struct Setup {
    pub(super) follow: FollowBuilder,
    pub(super) warnings: Vec<String>,
}

pub(super) fn set_up(args: &FollowArgs, provider: &Provider) -> anyhow::Result<Setup> {
    let reader = query::stdin_once(&args.query, [])?;
    let query = query::read(&args.query, &reader)?;
    let chain_id = provider.chain_id().map_err(in_words_of_the_command)?;
    let mut warnings = Vec::new();
    let profile = chain_profile(args, chain_id, &mut warnings)?;
    // Receipts prove logs only for the headers that the provider sends, and the provider could have
    // invented these headers.
    if args.trust.anchor.is_empty() && !args.beacon.is_given() {
        warnings.push(format!(
            "no --anchor: nothing is authenticated, and only {} claims that these blocks are the \
             chain. Give --anchor the hash of a block that you trust, or --beacon and --checkpoint",
            provider.nodes()[0].endpoint()
        ));
    }
    // For a query that matches every log, the filters of headers exclude no block.
    if query.compile().matches_everything() {
        warnings
            .push(String::from("the query matches every log: receipts of every block are fetched"));
    }
    let mut follow = provider
        .with_profile(profile)
        .follow(&query)
        .confirmations(args.confirmations)
        .keep(usize::try_from(args.keep).unwrap_or(usize::MAX))
        .poll(Duration::from_secs_f64(args.poll))
        .tries(args.rpc.retries.saturating_mul(2).saturating_add(2));
    if let Some(path) = &args.cursor {
        follow = follow.cursor_file(path);
    }
    if let Some(path) = &args.index {
        follow = follow.index(Indexed::open(path, &query, args.keep)?);
    }
    if args.once {
        follow = follow.once();
    }
    Ok(Setup { follow, warnings })
}

/// Converts an error of a follower to one that names the arguments of the command.
pub(super) fn in_words_of_follow(error: FollowError) -> anyhow::Error {
    let other = "give another file";
    let error = match error {
        FollowError::Start(error) => error,
        FollowError::Fetch(error) => return in_words_of_the_command(error),
        FollowError::Cursor(error) => {
            return anyhow!("cursor, {}: {}", named(&error.path), error.cause);
        }
        FollowError::Fault { node, fault } => {
            let advice = match *fault {
                Fault::Unsound { .. } | Fault::IndexUnsound(_) => {
                    "; to state what the filters of this chain prove, give --assume-bloom"
                }
                _ => "",
            };
            return of_fault(&fault).error(anyhow!("{node}: {fault}{advice}"));
        }
        error => return error.into(),
    };
    match error {
        StartError::OneBlock(_) => {
            UsageError("a query for one blockHash cannot be followed: query a range, with --from")
                .into()
        }
        StartError::End(_) => {
            UsageError("toBlock must be a number or latest: safe and finalized blocks change")
                .into()
        }
        StartError::OtherChain { cursor, chain } => {
            anyhow!("--cursor belongs to chain {cursor}, but the provider's is {chain}: {other}")
        }
        StartError::OtherQuery(query) => anyhow!("--cursor belongs to the query {query}: {other}"),
        StartError::OtherSemantics(rules) => {
            anyhow!("--cursor belongs to a query with --semantics {rules:?}: {other}")
        }
        StartError::OtherStart { cursor, from } => {
            anyhow!("--cursor begins at block {cursor}, but --from is {from}: {other}")
        }
        other => other.into(),
    }
}

fn chain_profile(
    args: &FollowArgs,
    chain_id: u64,
    warnings: &mut Vec<String>,
) -> anyhow::Result<ChainProfile> {
    // The user's statements about the chain take precedence over the known profiles. A `--chain`
    // that contradicts the provider's chain id is an error.
    if profile::is_of_user(&args.trust) {
        return profile::of_provider(&args.trust, chain_id);
    }
    Ok(ChainProfile::of_chain_id(chain_id).unwrap_or_else(|| {
        warnings.push(format!(
            "chain {chain_id} is unknown to this command: its filters are ignored, and the receipts \
             of every block are fetched. To use the filters, give --assume-bloom"
        ));
        let name = format!("chain {chain_id}");
        // The chain is unknown, so the weakest assumptions are made: they cost more requests, but
        // no log is missed.
        let (bloom, scope) = (BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
        ChainProfile::assumed(name, bloom, scope)
    }))
}
