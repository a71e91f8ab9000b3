//! Subscriptions of a connection: new heads, and logs of new blocks and of blocks that left the chain.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use chainsieve::eth::log_query::{CompiledQuery, LogQuery};
use serde_json::value::RawValue;

use super::call::{Answer, Call};
use super::clients::{Counted, Held, OwnSubscription};
use super::filters::{bytes_of, check_new_logs, random_id};
use super::journal::Change;
use super::logs::SEMANTICS;
use super::methods::param;
use super::refusal::Refusal;
use super::rpc::Caller;
use super::{Proven, json};

/// Number of characters of a client's words that an error repeats.
pub(super) const MOST_WORDS: usize = 100;

/// What a subscription selects.
#[derive(Debug, Clone)]
enum Selects {
    Heads,
    Logs(Arc<(LogQuery, CompiledQuery)>),
}

/// The subscriptions of a connection.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Mutex<Vec<Subscription>>);

#[derive(Debug)]
struct Subscription {
    id: String,
    selects: Selects,
    /// Number of the next change of the chain.
    next: u64,
    state: State,
    _counted: (OwnSubscription, Counted),
    _held: Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The client does not know its id yet.
    New,
    Idle,
    /// Messages are written, or wait until they are sent.
    Busy,
}

/// Work for a subscription: changes of the chain of which its client is told.
#[derive(Debug)]
pub(super) struct Work {
    id: String,
    selects: Selects,
    changes: Vec<Change>,
    /// Number of the change after them.
    end: u64,
}

/// Messages of a subscription.
#[derive(Debug)]
pub(super) struct Messages {
    id: String,
    pub(super) texts: Vec<Bytes>,
    end: u64,
    /// Their part of the budget.
    _held: Option<Held>,
}

/// Why a subscription sends nothing.
#[derive(Debug)]
pub(super) enum Unsent {
    /// It can be tried again: a block is not proven yet, or clients hold as much as they may.
    Later(String),
    /// It was tried again meanwhile.
    Again,
    /// Something is lost, so that nobody may take the gap for silence.
    Gap,
}

impl Subscriptions {
    fn open(&self) -> MutexGuard<'_, Vec<Subscription>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open().is_empty()
    }

    /// Notes that the client knows these ids.
    pub(super) fn begin(&self, ids: &[String]) {
        for subscription in self.open().iter_mut().filter(|own| ids.contains(&own.id)) {
            subscription.state = State::Idle;
        }
    }

    /// Returns work for all subscriptions that have missed a change, and are not at work.
    ///
    /// # Errors
    /// Returns an error if a change that one has missed is not known any more.
    pub(super) fn work(&self, proven: &Proven) -> Result<Vec<Work>, Unsent> {
        let mut work = Vec::new();
        for own in self.open().iter_mut().filter(|own| own.state == State::Idle) {
            let (changes, end) = proven.journal.since(own.next).ok_or(Unsent::Gap)?;
            if end > own.next {
                own.state = State::Busy;
                work.push(Work { id: own.id.clone(), selects: own.selects.clone(), changes, end });
            }
        }
        Ok(work)
    }

    /// Returns `true` if the subscription of messages has not ended.
    pub(super) fn has(&self, messages: &Messages) -> bool {
        self.open().iter().any(|own| own.id == messages.id)
    }

    /// Ends a subscription. Returns `true` if there was one.
    pub(super) fn end(&self, id: &str) -> bool {
        let mut open = self.open();
        let before = open.len();
        open.retain(|own| own.id != id);
        open.len() < before
    }

    /// Notes that messages were sent.
    pub(super) fn sent(&self, messages: &Messages) {
        self.idle(&messages.id, Some(messages.end));
    }

    /// Lets a subscription try again.
    pub(super) fn again(&self, id: &str) {
        self.idle(id, None);
    }

    fn idle(&self, id: &str, next: Option<u64>) {
        if let Some(own) = self.open().iter_mut().find(|own| own.id == id) {
            own.state = State::Idle;
            own.next = next.unwrap_or(own.next);
        }
    }
}

impl Caller {
    /// Opens a subscription, which begins when the client knows its id.
    pub(super) fn subscribe(&self, call: &Call, params: &[&RawValue]) -> Result<String, Refusal> {
        let subscriptions = self.subscriptions.as_ref().ok_or(Refusal::NeedsWebSocket)?;
        let next = call.journal.next();
        let selects = selected(params)?;
        let heads = call.heads()?;
        let mut held = call.standing.part(&self.client);
        let selects = match selects {
            None => {
                held.grow(bytes_of(&LogQuery::new()))?;
                Selects::Heads
            }
            Some(query) => {
                check_new_logs(&query)?;
                // It could never send anything.
                call.check_profile(heads.latest)?;
                held.grow(bytes_of(&query))?;
                let compiled = query.compile();
                Selects::Logs(Arc::new((query, compiled)))
            }
        };
        let limits = &call.limits;
        let mut open = subscriptions.open();
        let of_connection = u64::from(limits.max_subscriptions_of_connection);
        if open.len() as u64 >= of_connection {
            call.metrics.limit_reached("subscriptions_of_connection");
            let what = "subscriptions of a connection";
            return Err(Refusal::Busy { what, limit: of_connection });
        }
        let of_client = limits.max_subscriptions_of_client;
        let Some(own) = self.client.subscription(of_client) else {
            call.metrics.limit_reached("subscriptions_of_client");
            return Err(Refusal::Busy { what: "subscriptions of yours", limit: of_client });
        };
        let counted = Counted::new(&call.subscriptions, limits.max_subscriptions);
        let Some(counted) = counted else {
            call.metrics.limit_reached("subscriptions");
            return Err(Refusal::Busy { what: "subscriptions", limit: limits.max_subscriptions });
        };
        let id = random_id();
        let state = State::New;
        let own = Subscription {
            id: id.clone(),
            selects,
            next,
            state,
            _counted: (own, counted),
            _held: held,
        };
        open.push(own);
        Ok(id)
    }

    pub(super) fn unsubscribe(&self, call: &Call, params: &[&RawValue]) -> Answer {
        let subscriptions = self.subscriptions.as_ref().ok_or(Refusal::NeedsWebSocket)?;
        let id: String = param(params, 0)?;
        if subscriptions.end(&id) { call.written(&true) } else { Err(Refusal::NoSubscription) }
    }

    /// Returns the messages for a subscription: all of them, or none.
    pub(super) async fn messages(&self, work: Work) -> Result<Messages, Unsent> {
        let Work { id, selects, changes, end } = work;
        let room = Arc::new(AtomicU64::new(u64::MAX));
        let (call, mut waiting) = self.begin(room);
        let written = match selects {
            Selects::Heads => heads(&call, &id, &changes),
            Selects::Logs(of) => {
                // One client with many subscriptions leaves room for the others.
                let own = Arc::clone(&self.client.background).acquire_owned().await;
                let permit = (own, Arc::clone(&self.proven.background).acquire_owned().await);
                let id = id.clone();
                let logs = tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    let logs = call.logs_of_changes(&of.0, &of.1, &changes)?;
                    let mut held = call.passing.part(call.client());
                    let logs = json::logs(&logs);
                    let texts = logs.iter().map(|log| message(&id, log, &mut held));
                    Ok((texts.collect::<Result<Vec<_>, _>>()?, held))
                });
                logs.await.unwrap_or(Err(Refusal::Internal))
            }
        };
        waiting.is_over();
        match written {
            Ok((texts, held)) => Ok(Messages { id, texts, end, _held: Some(held) }),
            Err(Refusal::NotProven { reason, .. }) if reason != "chain_profile" => {
                Err(Unsent::Later(id))
            }
            Err(Refusal::Busy { .. }) => Err(Unsent::Later(id)),
            Err(_) => Err(Unsent::Gap),
        }
    }
}

fn heads(call: &Call, id: &str, changes: &[Change]) -> Result<(Vec<Bytes>, Held), Refusal> {
    let mut held = call.passing.part(call.client());
    let added = changes.iter().filter(|change| !change.removed);
    let texts = added.map(|change| message(id, &json::head(&change.block)?, &mut held));
    let texts = texts.collect::<Result<_, _>>()?;
    Ok((texts, held))
}

/// Returns the query of a subscription of logs; `None` for one of heads.
fn selected(params: &[&RawValue]) -> Result<Option<LogQuery>, Refusal> {
    let kind = params.first().map_or("", |raw| raw.get());
    match kind {
        "\"newHeads\"" => Ok(None),
        "\"logs\"" => {
            let filter = params.get(1).map_or("{}", |raw| raw.get());
            Ok(Some(LogQuery::from_json(filter, SEMANTICS)?))
        }
        _ => {
            let kind: String = kind.chars().take(MOST_WORDS).collect();
            let why = format!("no subscription {kind}: newHeads and logs are served");
            Err(Refusal::Params(why))
        }
    }
}

fn message(id: &str, value: &impl serde::Serialize, held: &mut Held) -> Result<Bytes, Refusal> {
    let result = serde_json::to_string(value).map_err(|_| Refusal::Internal)?;
    let text = format!(
        r#"{{"jsonrpc":"2.0","method":"eth_subscription","params":{{"subscription":"{id}","result":{result}}}}}"#
    );
    held.grow(text.len() as u64)?;
    Ok(text.into())
}
