//! What is followed: arguments, the provider's chain and what an earlier process left.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::follow::{self, Config, Follower, StartError};
use chainsieve::simd::Backend;

use super::indexed::Indexed;
use super::state::StateFile;
use crate::args::UsageError;
use crate::args::eth::FollowArgs;
use crate::eth::rpc::Provider;
use crate::eth::{profile, query};

/// All that a driver needs.
pub(super) struct Setup {
    pub(super) follower: Follower,
    pub(super) state: Option<StateFile>,
    pub(super) index: Option<Indexed>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn set_up(args: &FollowArgs, provider: &Provider) -> anyhow::Result<Setup> {
    let reader = query::stdin_once(&args.query, [])?;
    let query = query::read(&args.query, &reader)?;
    let state = args.state.as_deref().map(StateFile::open).transpose()?;
    let cursor = match &state {
        Some(state) => state.read()?,
        None => None,
    };
    let chain_id = provider.chain_id().with_context(|| provider.name())?;
    let mut warnings = Vec::new();
    let profile = chain_profile(args, chain_id, &mut warnings)?;
    let mut index = args.index.as_deref().map(|path| Indexed::open(path, &query)).transpose()?;
    let indexed = match &mut index {
        Some(index) => {
            let (first, last) = index.numbers().into_inner();
            // The newest blocks of it may leave the chain.
            let last = last.checked_sub(args.keep).filter(|last| *last >= first);
            let last = last.map(|last| index.block(last)).transpose()?;
            last.map(|last| follow::Indexed { first, last })
        }
        None => None,
    };
    if args.trust.anchor.is_empty() {
        warnings.push(format!(
            "nothing is authenticated: which blocks are the chain is the word of {}. With the hash \
             of a block that you trust, --anchor compares it",
            provider.name()
        ));
    }
    if query.compile(Backend::best()).matches_everything() {
        warnings
            .push(String::from("the query wants every log: receipts of every block are fetched"));
    }
    let mut config = Config::new(chain_id, profile, query);
    config.semantics = args.query.semantics.rules();
    config.anchors = args.trust.anchor.iter().map(|anchor| anchor.0).collect();
    config.confirmations = args.confirmations;
    config.keep = usize::try_from(args.keep).unwrap_or(usize::MAX);
    config.index = indexed;
    config.once = args.once;
    config.poll = Duration::from_secs_f64(args.poll);
    config.tries = args.rpc.retries.saturating_mul(2).saturating_add(2);
    config.stored = state.is_some();
    let follower = Follower::new(config, cursor).map_err(in_words_of_the_command)?;
    Ok(Setup { follower, state, index, warnings })
}

/// The same with the names of arguments.
fn in_words_of_the_command(error: StartError) -> anyhow::Error {
    let other = "for another one give another file";
    match error {
        StartError::OneBlock(_) => {
            UsageError("a query for one blockHash is not followed: give --from").into()
        }
        StartError::End(_) => {
            UsageError("toBlock has to be a number or latest: safe and finalized move on").into()
        }
        StartError::OtherChain { cursor, chain } => {
            anyhow!("--state is of chain {cursor}, the provider's chain id is {chain}: {other}")
        }
        StartError::OtherQuery(query) => anyhow!("--state is of the query {query}: {other}"),
        StartError::OtherSemantics(rules) => {
            anyhow!("--state is of a query with the rules of {rules:?}: {other}")
        }
        StartError::OtherStart { cursor, from } => {
            anyhow!("--state begins at block {cursor}, --from is {from}: {other}")
        }
        other => other.into(),
    }
}

fn chain_profile(
    args: &FollowArgs,
    chain_id: u64,
    warnings: &mut Vec<String>,
) -> anyhow::Result<ChainProfile> {
    if profile::is_of_user(&args.trust) {
        return profile::of_provider(&args.trust, chain_id);
    }
    Ok(ChainProfile::of_chain_id(chain_id).unwrap_or_else(|| {
        warnings.push(format!(
            "chain {chain_id} is not known here: its filters are not looked at, and receipts of \
             every block are fetched, unless --assume-bloom says what they are"
        ));
        let name = format!("chain {chain_id}");
        let (bloom, scope) = (BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
        ChainProfile::assumed(name, bloom, scope)
    }))
}
