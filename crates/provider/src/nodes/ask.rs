//! The nodes of a provider with the settings that they share, and how they are asked: in turn until one
//! answers, or many blocks at once.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
#[cfg(feature = "server")]
use chainsieve::eth::header::HeaderBuf;
use chainsieve::eth::log_query::Semantics;
use thiserror::Error;

use super::{Node, RpcError};
use crate::anchor::AnchorSource;
use crate::error::FetchError;
use crate::stop::{Stop, lock};

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

impl Default for Settings {
    fn default() -> Self {
        Self {
            anchor: None,
            profile: None,
            semantics: Semantics::default(),
            final_only: false,
            keep_evidence: false,
            // About a gigabyte.
            max_headers: 2_000_000,
            max_receipts: 10_000,
            transaction_hashes: true,
        }
    }
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
    /// Returns the chain's id. All nodes that answer must agree on this id. A node that does not answer now
    /// is asked for its chain id before its first answer is used.
    pub(crate) fn chain_id(&self) -> Result<u64, FetchError> {
        if let Some(id) = self.chain_id.get() {
            return Ok(*id);
        }
        let (mut first, mut other) = (None, None);
        let asked = ask_if_any(&self.list, |node| {
            let id = node.chain_id()?;
            if *first.get_or_insert(id) != id {
                other.get_or_insert(id);
            }
            // The others are asked, too.
            Ok(None::<()>)
        });
        let failed = || asked.err().and_then(Unanswered::failure);
        let Some(first) = first else {
            let (node, error) = failed().expect("a provider has at least one node");
            return Err(FetchError::rpc(node.name(), "eth_chainId", error));
        };
        if let Some(other) = other {
            return Err(FetchError::TwoChains { first, other });
        }
        Ok(*self.chain_id.get_or_init(|| first))
    }

    /// Returns the chain's profile: the configured profile, or the known profile for the chain's
    /// id.
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
    /// There was no answer.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The answer does not fit the request. The text has no secrets.
    #[error("{0}")]
    Answer(String),
}

impl Unaccepted {
    fn is_stopped(&self) -> bool {
        matches!(self, Self::Rpc(RpcError::Stopped))
    }

    fn is_transient(&self) -> bool {
        matches!(self, Self::Rpc(error) if error.origin().is_transient())
    }

    fn is_timeout(&self) -> bool {
        matches!(self, Self::Rpc(error) if matches!(error.origin(), RpcError::Timeout { .. }))
    }
}

/// Reasons why no answer was accepted, one for each node, in the order in which they were asked; `None`
/// for a node that does not have the data.
#[derive(Debug, Clone)]
pub(crate) struct Unanswered(pub(crate) Vec<(Node, Option<Unaccepted>)>);

impl Unanswered {
    /// Returns `true` if the operation was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.iter().any(|(_, why)| why.as_ref().is_some_and(Unaccepted::is_stopped))
    }

    /// Returns `true` if a node does not have what was asked for, and the operation was not stopped.
    #[cfg(feature = "server")]
    pub(crate) fn has_none(&self) -> bool {
        !self.is_stopped() && self.0.iter().any(|(_, why)| why.is_none())
    }

    /// Returns a line for each node. `absent` says that a node does not have the requested data.
    pub(crate) fn lines(&self, absent: &str) -> Vec<String> {
        let line = |(node, why): &(Node, Option<Unaccepted>)| {
            let why = why.as_ref().map_or_else(|| absent.to_owned(), ToString::to_string);
            format!("{}: {why}", node.name())
        };
        self.0.iter().map(line).collect()
    }

    /// Returns the first node that failed, and its error.
    fn failure(self) -> Option<(Node, RpcError)> {
        self.0.into_iter().find_map(|(node, why)| match why {
            Some(Unaccepted::Rpc(error)) => Some((node, error)),
            _ => None,
        })
    }
}

/// Returns nodes in the order in which to ask them: those that rest come last.
pub(crate) fn in_turn(nodes: &[Node]) -> Vec<&Node> {
    let mut nodes: Vec<&Node> = nodes.iter().collect();
    nodes.sort_by_cached_key(|node| node.rests());
    nodes
}

/// Returns the place of a node among others.
pub(crate) fn index_of(nodes: &[Node], node: &Node) -> usize {
    nodes.iter().position(|own| own.is_same(node)).unwrap_or_default()
}

/// Returns the node with the settings of the first pass: without retries, if there are other nodes.
pub(crate) fn once(nodes: &[Node], node: &Node) -> Node {
    if nodes.len() == 1 { node.clone() } else { node.with_retries(0) }
}

/// Asks nodes in turn until `ask` accepts the answer of one of them. `None` means that this node lacks the
/// data, although another node may have it.
///
/// A node that rests is asked after the others. A failed request is repeated only after every node was asked
/// once, so that one node delays nothing while another node may answer at once.
pub(crate) fn ask<T>(
    nodes: &[Node],
    ask: impl FnMut(&Node) -> Result<Option<T>, Unaccepted>,
) -> Result<T, Unanswered> {
    ask_for(nodes, false, ask)
}

/// Asks nodes in turn like [`ask`] for data that may not exist: if a node answers that it does not have
/// the data, the other nodes are asked too, but without retries.
pub(crate) fn ask_if_any<T>(
    nodes: &[Node],
    ask: impl FnMut(&Node) -> Result<Option<T>, Unaccepted>,
) -> Result<T, Unanswered> {
    ask_for(nodes, true, ask)
}

fn ask_for<T>(
    nodes: &[Node],
    may_be_absent: bool,
    mut ask: impl FnMut(&Node) -> Result<Option<T>, Unaccepted>,
) -> Result<T, Unanswered> {
    let mut reasons: Vec<(Node, Option<Unaccepted>)> = Vec::new();
    let is_answered = |reasons: &[(Node, Option<Unaccepted>)]| {
        may_be_absent && reasons.iter().any(|(_, why)| why.is_none())
    };
    let is_only_one = nodes.len() == 1;
    for node in in_turn(nodes) {
        // Each further call would cost a timeout, if the node still does not answer.
        if let Some(why) = node.why_it_rests().filter(|_| is_answered(&reasons)) {
            reasons.push((node.clone(), Some(why.into())));
            continue;
        }
        let why = match ask(&once(nodes, node)) {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        let is_stopped = why.as_ref().is_some_and(Unaccepted::is_stopped);
        reasons.push((node.clone(), why));
        if is_only_one || is_stopped {
            return Err(Unanswered(reasons));
        }
    }
    if is_answered(&reasons) {
        return Err(Unanswered(reasons));
    }
    // If another node answers, one that let a whole timeout pass is not waited for again.
    let has_any =
        reasons.iter().any(|(_, why)| !why.as_ref().is_some_and(Unaccepted::is_transient));
    for (node, reason) in &mut reasons {
        let is_repeated = |why: &Unaccepted| why.is_transient() && !(has_any && why.is_timeout());
        if node.options().retries == 0 || !reason.as_ref().is_some_and(is_repeated) {
            continue;
        }
        *reason = match ask(node) {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        if reason.as_ref().is_some_and(Unaccepted::is_stopped) {
            break;
        }
    }
    Err(Unanswered(reasons))
}

/// Asks nodes in turn for data that may not exist. If no node has the data, returns the first error,
/// or `None` if no node failed.
pub(crate) fn first_of<T>(
    nodes: &[Node],
    what: impl Fn() -> String,
    ask: impl Fn(&Node) -> Result<Option<T>, RpcError>,
) -> Result<Option<T>, FetchError> {
    found(ask_if_any(nodes, |node| Ok(ask(node)?)), what)
}

/// Asks nodes in turn for a header under a trusted hash. If no node has it, returns the first error, or
/// `None` if no node failed.
#[cfg(feature = "server")]
pub(crate) fn trusted_header(nodes: &[Node], hash: B256) -> Result<Option<HeaderBuf>, FetchError> {
    // It exists: the others are waited for if one does not have it yet.
    found(ask(nodes, |node| Ok(node.header_by_hash(hash)?)), || format!("block {hash}"))
}

fn found<T>(
    asked: Result<T, Unanswered>,
    what: impl Fn() -> String,
) -> Result<Option<T>, FetchError> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(unanswered) => first_error(unanswered, what).map_or(Ok(None), Err),
    }
}

/// Returns the first error of the nodes that were asked for the data that `what` names; `None` if no node
/// failed, so that no node has the data.
pub(crate) fn first_error(unanswered: Unanswered, what: impl Fn() -> String) -> Option<FetchError> {
    if unanswered.is_stopped() {
        return Some(FetchError::Stopped);
    }
    let (node, error) = unanswered.failure()?;
    Some(FetchError::rpc(node.name(), what(), error))
}

/// Returns the profile of an unknown chain: its filters prove nothing, and its receipts may lack
/// logs. These assumptions are safe for every chain.
pub(crate) fn unknown_chain(id: u64) -> ChainProfile {
    let (bloom, receipts) = (BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
    ChainProfile::assumed(format!("chain {id}"), bloom, receipts)
}

/// Applies `work` to each item on `threads` threads, and passes the results to `take` in the order
/// of the items. At most `2 * threads` items are in flight or wait for `take`.
///
/// # Errors
/// Returns the first error of `take`. After an error, the items in flight are completed, and their
/// results are dropped.
pub(crate) fn in_order<I: Send, O: Send, E>(
    threads: usize,
    items: impl Iterator<Item = I> + Send,
    work: impl Fn(I) -> O + Sync,
    mut take: impl FnMut(O) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.max(1);
    let (permit, permits) = mpsc::sync_channel::<()>(2 * threads);
    for _ in 0..2 * threads {
        let _ = permit.try_send(());
    }
    let source = Mutex::new((permits, items.enumerate()));
    let (done, results) = mpsc::sync_channel(2 * threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (done, source, work) = (done.clone(), &source, &work);
            scope.spawn(move || {
                loop {
                    let next = {
                        let mut source = lock(source);
                        let (permits, items) = &mut *source;
                        // The channel is closed when the receiver of the results has ended: no more
                        // work is needed.
                        if permits.recv().is_err() {
                            return;
                        }
                        items.next()
                    };
                    let Some((index, item)) = next else { return };
                    // A panic is caught and sent as the result. A missing result would block the
                    // taker, which waits for the results in order.
                    let result = catch_unwind(AssertUnwindSafe(|| work(item)));
                    if done.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let mut waiting = BTreeMap::new();
        let mut next = 0;
        let taken = (|| {
            for (index, result) in &results {
                waiting.insert(index, result);
                while let Some(result) = waiting.remove(&next) {
                    take(result.unwrap_or_else(|panic| resume_unwind(panic)))?;
                    next += 1;
                    // Sending fails if all threads have ended, which is no error.
                    let _ = permit.try_send(());
                }
            }
            Ok(())
        })();
        drop((permit, results));
        taken
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::in_order;

    #[test]
    fn results_come_in_order_and_an_error_ends_it() {
        for threads in [1, 3, 8] {
            let mut taken = Vec::new();
            in_order(
                threads,
                0..500_u32,
                |item| item * 2,
                |result| {
                    taken.push(result);
                    Ok::<_, ()>(())
                },
            )
            .unwrap();
            assert_eq!(taken, (0..500).map(|item| item * 2).collect::<Vec<_>>());

            let begun = AtomicUsize::new(0);
            let work = |item: u32| {
                begun.fetch_add(1, Ordering::Relaxed);
                item
            };
            let error =
                in_order(
                    threads,
                    0..u32::MAX,
                    work,
                    |item| {
                        if item < 5 { Ok(()) } else { Err("enough") }
                    },
                );
            assert_eq!(error, Err("enough"));
            assert!(begun.load(Ordering::Relaxed) <= 6 + 2 * threads);
        }
    }
}
