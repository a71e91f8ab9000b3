//! Subscriptions over WebSocket: new heads, and logs of new blocks and of blocks that left the chain.

use std::sync::Arc;

use chainsieve::eth::log_query::{CompiledQuery, LogQuery};
use jsonrpsee::RpcModule;
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::core::SubscriptionError;
use jsonrpsee::core::server::{PendingSubscriptionSink, SubscriptionSink};
use jsonrpsee::core::traits::IdProvider;
use jsonrpsee::types::{ErrorObjectOwned, SubscriptionId};
use serde_json::value::{RawValue, to_raw_value};

use super::filters::{check_new_logs, random_id};
use super::journal::Change;
use super::logs::SEMANTICS;
use super::refusal::Refusal;
use super::{Proven, json, methods};

/// Ids of subscriptions: hex, as clients of Ethereum expect them.
#[derive(Debug)]
pub(super) struct HexIds;

impl IdProvider for HexIds {
    fn next_id(&self) -> SubscriptionId<'static> {
        SubscriptionId::Str(random_id().into())
    }
}

/// What a subscription selects.
enum Selects {
    Heads,
    Logs(Arc<(LogQuery, CompiledQuery)>),
}

pub(super) fn register(module: &mut RpcModule<Proven>) -> Result<(), RegisterMethodError> {
    module.register_subscription(
        "eth_subscribe",
        "eth_subscription",
        "eth_unsubscribe",
        |params, pending, proven, _| async move {
            let selects = methods::list(&params).and_then(|params| selected(&params));
            let selects = selects.and_then(|selects| proven.check(selects));
            match selects {
                Ok(selects) => run(proven, pending, selects).await,
                Err(refusal) => {
                    pending.reject(ErrorObjectOwned::from(refusal)).await;
                    Ok(())
                }
            }
        },
    )?;
    Ok(())
}

impl Proven {
    /// Returns an error if a subscription could never send anything.
    fn check(&self, selects: Selects) -> Result<Selects, Refusal> {
        let heads = self.heads()?;
        if let Selects::Logs(of) = &selects {
            check_new_logs(&of.0)?;
            self.check_profile(heads.latest)?;
        }
        Ok(selects)
    }
}

fn selected(params: &[&RawValue]) -> Result<Selects, Refusal> {
    let kind = params.first().map_or("", |raw| raw.get());
    match kind {
        "\"newHeads\"" => Ok(Selects::Heads),
        "\"logs\"" => {
            let filter = params.get(1).map_or("{}", |raw| raw.get());
            let query = LogQuery::from_json(filter, SEMANTICS)?;
            let compiled = query.compile();
            Ok(Selects::Logs(Arc::new((query, compiled))))
        }
        _ => Err(Refusal::Params(format!("no subscription {kind}: newHeads and logs are served"))),
    }
}

/// Sends what happens until the client leaves, or until something is lost: the subscription then ends
/// with an error, so that nobody takes a gap for silence.
async fn run(
    proven: Arc<Proven>,
    pending: PendingSubscriptionSink,
    selects: Selects,
) -> Result<(), SubscriptionError> {
    let mut changed = proven.journal.watch();
    let mut next = proven.journal.next();
    let Ok(sink) = pending.accept().await else { return Ok(()) };
    let _counted = Counted::new(&proven);
    let stop = proven.stopped.clone();
    loop {
        let gap = || SubscriptionError::from("some changes are lost: subscribe again");
        let (changes, end) = proven.journal.since(next).ok_or_else(gap)?;
        if end == next {
            tokio::select! {
                woken = changed.changed() => if woken.is_err() { return Ok(()) },
                () = sink.closed() => return Ok(()),
                () = stop.notified() => return Ok(()),
            }
            continue;
        }
        match messages(&proven, &selects, changes).await {
            Ok(messages) => {
                if send(&sink, messages).await.is_err() {
                    return Ok(());
                }
                next = end;
            }
            // A block is not proven yet.
            Err(Refusal::NotProven { reason: "no_receipts" | "no_transactions", .. }) => {
                tokio::select! {
                    () = tokio::time::sleep(proven.limits.retry) => {}
                    () = sink.closed() => return Ok(()),
                    () = stop.notified() => return Ok(()),
                }
            }
            Err(refusal) => {
                let error = ErrorObjectOwned::from(refusal);
                return Err(error.message().to_owned().into());
            }
        }
    }
}

/// Counts an open subscription.
struct Counted(Arc<Proven>);

impl Counted {
    fn new(proven: &Arc<Proven>) -> Self {
        proven.metrics.subscriptions.inc();
        Self(Arc::clone(proven))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.subscriptions.dec();
    }
}

async fn send(sink: &SubscriptionSink, messages: Vec<Box<RawValue>>) -> Result<(), ()> {
    for message in messages {
        sink.send(message).await.map_err(drop)?;
    }
    Ok(())
}

/// Returns the messages for some changes: all of them, or none if a block is not proven yet.
async fn messages(
    proven: &Arc<Proven>,
    selects: &Selects,
    changes: Vec<Change>,
) -> Result<Vec<Box<RawValue>>, Refusal> {
    match selects {
        Selects::Heads => {
            let added = changes.iter().filter(|change| !change.removed);
            added.map(|change| raw(&json::head(&change.block)?)).collect()
        }
        Selects::Logs(of) => {
            let (proven, of) = (Arc::clone(proven), Arc::clone(of));
            let permit = proven.background.clone().acquire_owned().await;
            let logs = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                proven.logs_of_changes(&of.0, &of.1, &changes)
            });
            let logs = logs.await.unwrap_or(Err(Refusal::Internal))?;
            json::logs(&logs).iter().map(raw).collect()
        }
    }
}

fn raw(value: &impl serde::Serialize) -> Result<Box<RawValue>, Refusal> {
    to_raw_value(value).map_err(|error| Refusal::Params(error.to_string()))
}
