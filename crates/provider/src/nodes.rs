//! The nodes of a provider, with the settings that they share.

use std::sync::{Arc, OnceLock};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log_query::Semantics;
use thiserror::Error;

use crate::anchor::AnchorSource;
use crate::error::FetchError;
use crate::node::{Node, RpcError};
use crate::stop::Stop;

/// Settings of a provider: what is trusted, and the limits of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) anchor: Option<Arc<dyn AnchorSource>>,
    pub(crate) profile: Option<ChainProfile>,
    pub(crate) semantics: Semantics,
    pub(crate) final_only: bool,
    pub(crate) keep_evidence: bool,
    pub(crate) max_headers: u64,
    pub(crate) max_receipts: u64,
    /// `true` to prove the transaction hashes of logs.
    pub(crate) transaction_hashes: bool,
}

/// The nodes of a provider (at least one), with the state that its operations share.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    pub(crate) list: Vec<Node>,
    pub(crate) settings: Settings,
    /// The chain's id once it is known, shared by all clones.
    pub(crate) chain_id: Arc<OnceLock<u64>>,
    pub(crate) stop: Stop,
}

impl Nodes {
    /// Returns the chain's id. All nodes that answer must agree on this id.
    pub(crate) fn chain_id(&self) -> Result<u64, FetchError> {
        if let Some(id) = self.chain_id.get() {
            return Ok(*id);
        }
        let (mut first, mut failed) = (None, None);
        for node in &self.list {
            let other = match node.chain_id() {
                Ok(id) => id,
                Err(error) => {
                    failed.get_or_insert(FetchError::rpc(node.name(), "eth_chainId", error));
                    continue;
                }
            };
            let first = *first.get_or_insert(other);
            if first != other {
                return Err(FetchError::TwoChains { first, other });
            }
        }
        let none = || failed.expect("a provider has at least one node");
        let first = first.ok_or_else(none)?;
        Ok(*self.chain_id.get_or_init(|| first))
    }

    /// Returns the chain's profile: the configured one, or the one known for the chain's id.
    pub(crate) fn profile(&self) -> Result<ChainProfile, FetchError> {
        if let Some(profile) = &self.settings.profile {
            return Ok(profile.clone());
        }
        let id = self.chain_id()?;
        Ok(ChainProfile::of_chain_id(id).unwrap_or_else(|| unknown_chain(id)))
    }

    /// Returns the block hashes that the anchor currently trusts; none if there is no anchor.
    pub(crate) fn anchors(&self) -> Result<Vec<B256>, FetchError> {
        let anchor = self.settings.anchor.as_ref();
        anchor.map_or(Ok(Vec::new()), |anchor| anchor.blocks().map_err(FetchError::Anchor))
    }
}

/// Reason why the answer of a node was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Unaccepted {
    /// There was none.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// It is not what was asked for. The text has no secrets.
    #[cfg(feature = "server")]
    #[error("{0}")]
    Answer(String),
}

/// Reasons why no answer was accepted, one for each node, in the order in which they were asked; `None` if
/// the node does not have what was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Unanswered(pub(crate) Vec<(Node, Option<Unaccepted>)>);

impl Unanswered {
    /// Returns `true` if the operation was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.iter().any(|(_, why)| matches!(why, Some(Unaccepted::Rpc(RpcError::Stopped))))
    }

    /// Returns `true` if a node does not have what was asked for, and the operation was not stopped.
    #[cfg(feature = "server")]
    pub(crate) fn has_none(&self) -> bool {
        !self.is_stopped() && self.0.iter().any(|(_, why)| why.is_none())
    }

    /// Returns a line for each node. `absent` says that a node does not have what was asked for.
    #[cfg(feature = "server")]
    pub(crate) fn lines(&self, absent: &str) -> Vec<String> {
        let line = |(node, why): &(Node, Option<Unaccepted>)| {
            let why = why.as_ref().map_or_else(|| absent.to_owned(), ToString::to_string);
            format!("{}: {why}", node.name())
        };
        self.0.iter().map(line).collect()
    }
}

/// Returns nodes in the order in which to ask them: those that rest come last.
pub(crate) fn in_turn(nodes: &[Node]) -> Vec<&Node> {
    let mut nodes: Vec<&Node> = nodes.iter().collect();
    nodes.sort_by_cached_key(|node| node.rests());
    nodes
}

/// Asks nodes in turn until the answer of one is accepted, which `ask` decides. `None` means that the node
/// does not have it.
///
/// A node that rests is asked after the others. Nobody waits for one while another may answer at once: a
/// failed request is repeated only after all of them were asked.
pub(crate) fn ask<T>(
    nodes: &[Node],
    mut ask: impl FnMut(&Node) -> Result<Option<T>, Unaccepted>,
) -> Result<T, Unanswered> {
    let nodes = in_turn(nodes);
    let mut reasons: Vec<(Node, Option<Unaccepted>)> = Vec::new();
    let is_only_one = nodes.len() == 1;
    for node in nodes {
        let once = if is_only_one { node.clone() } else { node.with_retries(0) };
        let why = match ask(&once) {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        let is_stopped = why == Some(Unaccepted::Rpc(RpcError::Stopped));
        reasons.push((node.clone(), why));
        if is_only_one || is_stopped {
            return Err(Unanswered(reasons));
        }
    }
    for (node, reason) in &mut reasons {
        let may_pass = |why: &Unaccepted| matches!(why, Unaccepted::Rpc(error) if error.origin().is_transient());
        if node.options().retries == 0 || !reason.as_ref().is_some_and(may_pass) {
            continue;
        }
        *reason = match ask(node) {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        if *reason == Some(Unaccepted::Rpc(RpcError::Stopped)) {
            break;
        }
    }
    Err(Unanswered(reasons))
}

/// Asks nodes in turn for something that may not exist. If no node has it, returns the first error, or
/// `None` if no node failed.
pub(crate) fn first_of<T>(
    nodes: &[Node],
    what: impl Fn() -> String,
    ask: impl Fn(&Node) -> Result<Option<T>, RpcError>,
) -> Result<Option<T>, FetchError> {
    match self::ask(nodes, |node| Ok(ask(node)?)) {
        Ok(answer) => Ok(Some(answer)),
        Err(unanswered) => first_error(unanswered, what).map_or(Ok(None), Err),
    }
}

/// Returns the first error of a node that was asked for something, named by `what`; `None` if no node failed,
/// so that none has it.
pub(crate) fn first_error(unanswered: Unanswered, what: impl Fn() -> String) -> Option<FetchError> {
    if unanswered.is_stopped() {
        return Some(FetchError::Stopped);
    }
    unanswered.0.into_iter().find_map(|(node, why)| match why {
        Some(Unaccepted::Rpc(error)) => Some(FetchError::rpc(node.name(), what(), error)),
        _ => None,
    })
}

/// Returns the profile of an unknown chain: its filters prove nothing, and its receipts may lack
/// logs. These assumptions are safe for every chain.
pub(crate) fn unknown_chain(id: u64) -> ChainProfile {
    let (bloom, receipts) = (BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
    ChainProfile::assumed(format!("chain {id}"), bloom, receipts)
}
