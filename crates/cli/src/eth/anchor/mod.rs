//! The `eth anchor` commands, and the hashes that a command trusts: those of the arguments, and
//! those of a light client.

pub(crate) mod client;
mod header;
mod verify;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::links::Anchored;
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync_committee::LightClient;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::{BlockSelection, BlockTag, LogQuery};
use chainsieve_provider::{AnchorSource, BeaconClient, LinkOptions, Node, Provider, Stop};
use chainsieve_report::{Report, UsageError, grouped, named, print_note};
use serde_json::{Value, json};

use super::RpcArgs;
use crate::args::eth::{AnchorCommand, BeaconArgs, NetworkArgs};
use client::{builder, in_words};

pub(crate) fn run(command: &AnchorCommand, json: bool) -> anyhow::Result<Report> {
    match command {
        AnchorCommand::Sync(args) => client::run_sync(args, json),
        AnchorCommand::Header(args) => header::run(args),
        AnchorCommand::Verify(args) => verify::run(args),
    }
}

/// Returns the network that `--network` names or describes.
fn network(args: &NetworkArgs) -> anyhow::Result<Network> {
    let name = args.network.as_str();
    if let Some(network) = Network::named(name) {
        return Ok(network);
    }
    let path = Path::new(name);
    if !path.exists() {
        return Err(UsageError("--network is neither mainnet, sepolia, hoodi nor a file").into());
    }
    let what = || format!("network, {}", named(path));
    let text = fs::read_to_string(path).with_context(what)?;
    serde_json::from_str(&text).with_context(what)
}

/// Returns the time of the check: `--at`, or the system's clock.
fn now(at: Option<u64>) -> anyhow::Result<Duration> {
    at.map_or_else(
        || SystemTime::UNIX_EPOCH.elapsed().context("the system's clock is before 1970"),
        |seconds| Ok(Duration::from_secs(seconds)),
    )
}

/// Number of headers from which a proof of a block hash costs less than all headers in between: a
/// proof of the history contract has 6 kB, a header 650 bytes.
const FAR: u64 = 32;

const NO_CLIENT: UsageError = UsageError(
    "there is no light client yet: give --beacon and --checkpoint, or --data of `eth anchor sync`",
);

/// The trusted hashes of a command, and where they come from.
#[derive(Debug, Default)]
pub(crate) struct Trusted {
    /// The hashes: those of `--anchor`, then those of the light client.
    pub(crate) anchors: Vec<B256>,
    /// Number of hashes that the user gave.
    given: usize,
    brought: Option<Brought>,
}

/// The result of a light client.
#[derive(Debug)]
struct Brought {
    beacon: BeaconClient,
    client: LightClient,
    /// The time at which the light client was asked.
    at: Duration,
    finalized: BlockRef,
    /// The last block of the range, if it was linked to the finalised block.
    linked: Option<Anchored>,
    warnings: Vec<String>,
}

/// Returns the light client of the arguments; `None` if they ask for none. With `newest`, it also asks
/// for the newest signed header.
pub(crate) fn beacon(
    args: &BeaconArgs,
    rpc: &RpcArgs,
    chain_id: u64,
    stop: Stop,
    newest: bool,
) -> anyhow::Result<Option<BeaconClient>> {
    if !args.is_given() {
        return Ok(None);
    }
    let network = network(&args.network)?;
    if let Some(expected) = chain_id_of(&network).filter(|&expected| expected != chain_id) {
        let words = "--network is another chain than the provider's";
        return Err(anyhow::Error::from(UsageError(words)).context(format!(
            "the provider's chain id is {chain_id}, {} has {expected}",
            network.name()
        )));
    }
    let limits = (rpc.timeout, rpc.retries);
    let mut client = builder(args, network, args.data.clone(), limits, stop)?;
    if newest {
        // A slot: there is no newer header in between.
        client = client.optimistic().poll(Duration::from_secs(12));
    }
    Ok(Some(client.build().map_err(in_words)?))
}

/// Returns the chain id of a built-in network. The name of any other network does not identify its
/// chain.
fn chain_id_of(network: &Network) -> Option<u64> {
    let root = network.genesis_validators_root();
    let is_same = |known: &Network| known.genesis_validators_root() == root;
    let known = [Network::mainnet(), Network::sepolia(), Network::hoodi()];
    let name = known.iter().find(|known| is_same(known))?.name();
    ChainProfile::id_by_name(if name == "mainnet" { "ethereum" } else { name })
}

/// Returns `true` for tags that name the newest block of some kind.
fn is_near_the_head(tag: BlockTag) -> bool {
    matches!(tag, BlockTag::Latest | BlockTag::Safe | BlockTag::Finalized)
}

impl Trusted {
    /// Returns the hashes of `--anchor` alone.
    pub(crate) fn given(anchors: &[B256]) -> Self {
        Self { anchors: anchors.to_vec(), given: anchors.len(), brought: None }
    }

    /// Adds the finalised block of the arguments' light client, if they ask for one.
    pub(crate) fn bring(
        mut self,
        args: &BeaconArgs,
        rpc: &RpcArgs,
        provider: &Provider,
    ) -> anyhow::Result<Self> {
        let chain_id = if args.is_given() { provider.chain_id()? } else { 0 };
        if let Some(beacon) = beacon(args, rpc, chain_id, provider.stop().clone(), false)? {
            let brought = Brought::of(beacon, provider.nodes())?;
            self.anchors.push(brought.finalized.hash);
            self.brought = Some(brought);
        }
        Ok(self)
    }

    /// Returns the query with the finalised block as its end, unless the query names another end by
    /// number. If that end is far below the finalised block, its block is linked to the finalised
    /// block. Without a light client, the query is returned as it is.
    pub(crate) fn bound(
        &mut self,
        provider: &Provider,
        query: LogQuery,
        may_be_unfinalized: bool,
    ) -> LogQuery {
        let Some(brought) = &mut self.brought else { return query };
        let finalized = brought.finalized.number;
        let BlockSelection::Range { from, to } = *query.blocks() else { return query };
        match to {
            Some(BlockTag::Number(end)) if end.saturating_add(FAR) < finalized => {
                self.anchors.extend(brought.link(end, provider.nodes()));
                query
            }
            _ if !may_be_unfinalized && to.is_none_or(is_near_the_head) => {
                if to.is_some() {
                    brought.warnings.push(format!(
                        "the range ends at the finalised block, {finalized} (--unfinalized includes \
                         later ones)"
                    ));
                }
                let to = Some(BlockTag::Number(finalized));
                query.in_blocks(BlockSelection::Range { from, to })
            }
            _ => query,
        }
    }

    /// Returns the newest finalised block, if a light client brought it.
    pub(crate) fn finalized(&self) -> Option<BlockRef> {
        self.brought.as_ref().map(|brought| brought.finalized)
    }

    /// Returns the name of the source of the trusted hashes, for JSON. `block` is the trusted block on
    /// which the result rests, if it is known.
    pub(crate) fn source(&self, block: Option<B256>) -> &'static str {
        let is_of_user = block.is_some_and(|block| self.anchors[..self.given].contains(&block));
        match (&self.brought, self.anchors.is_empty()) {
            (Some(_), _) if !is_of_user => "light_client",
            (_, false) => "user",
            (_, true) => "provider",
        }
    }

    /// Returns the warnings about the results of the light client.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.brought.as_ref().map(|brought| brought.warnings.clone()).unwrap_or_default()
    }

    /// Returns lines for people about the trusted blocks, and the reason for the trust.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Some(brought) = &self.brought else { return Vec::new() };
        let checkpoint = brought.client.trust().checkpoint;
        let finalized = brought.client.finalized();
        let mut lines = vec![format!(
            "Block {} is {}; the committees follow from checkpoint {}.",
            grouped(brought.finalized.number),
            finalized.evidence,
            checkpoint.root
        )];
        if let Some(linked) = &brought.linked {
            let by: Vec<_> = linked.by.iter().map(ToString::to_string).collect();
            let number = linked.number.map_or(String::new(), grouped);
            lines.push(format!("Block {number} is before it: {}.", by.join(", then ")));
        }
        lines
    }

    /// Returns the results of the light client as JSON; null without a light client.
    pub(crate) fn json(&self) -> Value {
        let Some(brought) = &self.brought else { return Value::Null };
        let mut json = client::json(&brought.client, brought.at);
        json["linked"] = json!(brought.linked.as_ref().map(|linked| {
            json!({
                "number": linked.number,
                "hash": linked.hash,
                "grade": linked.grade,
                "by": linked.by.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        }));
        json
    }
}

/// Anchors of a follower: hashes of the arguments, and the newest finalised block.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) anchors: Vec<B256>,
    pub(crate) beacon: Option<BeaconClient>,
}

impl Following {
    /// Asks the beacon nodes for the first time. Returns the warnings about the result, and the
    /// result as JSON; null without a light client.
    pub(crate) fn begin(&self) -> anyhow::Result<(Vec<String>, Value)> {
        let Some(beacon) = &self.beacon else { return Ok((Vec::new(), Value::Null)) };
        let failures = client::advance(beacon)?;
        let client = beacon.light_client().ok_or(NO_CLIENT)?;
        let now = now(None)?;
        let mut warnings = client::warnings(&client, now);
        warnings.extend(failures);
        Ok((warnings, client::json(&client, now)))
    }
}

impl AnchorSource for Following {
    fn blocks(&self) -> Result<Vec<B256>, String> {
        let mut blocks = self.anchors.clone();
        if let Some(beacon) = &self.beacon {
            blocks.extend(beacon.blocks()?);
        }
        Ok(blocks)
    }

    fn refresh(&self) -> Option<Duration> {
        self.beacon.as_ref().and_then(BeaconClient::refresh)
    }

    fn head(&self) -> Option<B256> {
        self.beacon.as_ref().and_then(AnchorSource::head)
    }

    fn link(&self, number: u64, nodes: &[Node]) -> Result<Option<B256>, String> {
        self.beacon.as_ref().map_or(Ok(None), |beacon| AnchorSource::link(beacon, number, nodes))
    }
}

impl Brought {
    fn of(beacon: BeaconClient, nodes: &[Node]) -> anyhow::Result<Self> {
        let failures = client::advance(&beacon)?;
        let client = beacon.light_client().ok_or(NO_CLIENT)?;
        let at = now(None)?;
        let mut warnings = client::warnings(&client, at);
        warnings.extend(failures);
        let execution = &client.finalized().execution;
        let hash = execution.bound_hash();
        ensure!(
            hash.is_some(),
            "the finalised block is older than Capella, and commits to no execution block"
        );
        let hash = hash.unwrap_or_default();
        let mut number = execution.header().map(|header| header.block_number);
        // From Gloas on, only the hash is bound.
        for node in nodes {
            if number.is_none()
                && let Ok(Some(header)) = node.header_by_hash(hash)
            {
                number = Some(header.view().number());
            }
        }
        let number = number.ok_or_else(|| {
            anyhow::anyhow!(
                "no provider has the finalised block {hash}: the provider lags, or serves another chain"
            )
        })?;
        let finalized = BlockRef { number, hash };
        Ok(Self { beacon, client, at, finalized, linked: None, warnings })
    }

    /// Links a block to the finalised block by few headers, and returns the hash of the linked
    /// block. Without such a link, all headers in between are fetched instead.
    fn link(&mut self, number: u64, nodes: &[Node]) -> Option<B256> {
        let mut options = LinkOptions::new(nodes);
        options.max_headers = FAR;
        match self.beacon.link(number, options) {
            Ok((shown, _)) => Some(self.linked.insert(shown).hash),
            Err(error) => {
                print_note(&format!(
                    "no short way from block {} to block {}: {error}; all headers in between are \
                     fetched",
                    grouped(self.finalized.number),
                    grouped(number)
                ));
                None
            }
        }
    }
}
