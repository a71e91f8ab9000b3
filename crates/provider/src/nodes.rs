//! The nodes of a provider, with the settings that they share.

use std::sync::{Arc, OnceLock};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log_query::Semantics;

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

/// Asks the nodes in order and returns the first answer. If no node has an answer, returns the
/// first error, or `None` if no node failed.
pub(crate) fn first_of<T>(
    nodes: &[Node],
    what: impl Fn() -> String,
    ask: impl Fn(&Node) -> Result<Option<T>, RpcError>,
) -> Result<Option<T>, FetchError> {
    let mut failed = None;
    for node in nodes {
        match ask(node) {
            Ok(Some(answer)) => return Ok(Some(answer)),
            Ok(None) => {}
            Err(RpcError::Stopped) => return Err(FetchError::Stopped),
            Err(error) => {
                failed.get_or_insert_with(|| FetchError::rpc(node.name(), what(), error));
            }
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Returns the profile of an unknown chain: its filters prove nothing, and its receipts may lack
/// logs. These assumptions are safe for every chain.
pub(crate) fn unknown_chain(id: u64) -> ChainProfile {
    let (bloom, receipts) = (BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
    ChainProfile::assumed(format!("chain {id}"), bloom, receipts)
}
