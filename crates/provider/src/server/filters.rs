//! Filters that clients install and poll, and subscriptions of a connection: new blocks, and logs of new blocks
//! and of blocks that left the chain.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::bloom::BloomAnswer;
use chainsieve::eth::header::ChainBlock;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockSelection, BlockTag, CompiledQuery, LogQuery};
use serde_json::value::RawValue;

use super::call::{Answer, Call};
use super::chain::Change;
use super::clients::{Counted, Held};
use super::error::Refusal;
use super::logs::SEMANTICS;
use super::{Proven, json};
use crate::stop::lock;

/// A filter that is not polled for this time is removed, as in go-ethereum.
const UNUSED: Duration = Duration::from_secs(300);

/// Maximum number of addresses and topics of a filter or subscription.
const MOST_VALUES: u64 = 4096;

/// The blocks or logs that a filter or a subscription selects.
#[derive(Debug, Clone)]
enum Selects {
    Logs(Arc<(LogQuery, CompiledQuery)>),
    Blocks,
}

#[derive(Debug)]
struct Filter {
    selects: Selects,
    /// Number of the next change of the chain.
    next: u64,
    used: Instant,
    _counted: Counted,
    _held: Held,
}

/// The installed filters, by their id.
#[derive(Debug)]
pub(super) struct Filters {
    limit: usize,
    installed: Mutex<HashMap<String, Arc<Mutex<Filter>>>>,
}

/// The changes since the last poll.
#[derive(Debug)]
pub(super) enum Changes {
    Logs(Vec<LocatedLog>),
    Blocks(Vec<B256>),
}

/// Returns an id that nobody can guess.
pub(super) fn random_id() -> String {
    let random = || getrandom::u64().expect("random bytes of the operating system");
    format!("{:#x}", u128::from(random()) << 64 | u128::from(random()))
}

impl Filters {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, installed: Mutex::default() }
    }

    fn install(&self, filter: Filter) -> Result<String, Refusal> {
        let mut installed = lock(&self.installed);
        let now = filter.used;
        installed.retain(|_, filter| {
            // A filter that is in use now is locked.
            filter.try_lock().map_or(true, |filter| now.duration_since(filter.used) < UNUSED)
        });
        if installed.len() >= self.limit {
            return Err(Refusal::Busy { what: "filters", limit: self.limit as u64 });
        }
        let id = random_id();
        installed.insert(id.clone(), Arc::new(Mutex::new(filter)));
        Ok(id)
    }

    fn get(&self, id: &str) -> Result<Arc<Mutex<Filter>>, Refusal> {
        let mut installed = lock(&self.installed);
        let is_unused = |filter: &Filter| filter.used.elapsed() >= UNUSED;
        let found = installed.get(id).cloned().ok_or(Refusal::NoFilter)?;
        // A filter that is in use now is locked.
        if found.try_lock().is_ok_and(|filter| is_unused(&filter)) {
            installed.remove(id);
            return Err(Refusal::NoFilter);
        }
        Ok(found)
    }

    fn remove(&self, id: &str) -> bool {
        lock(&self.installed).remove(id).is_some()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.installed).len()
    }

    /// Returns `true` if a block may contain a log of an installed filter.
    /// `proves_absence` states whether the filter of the block can rule that out.
    pub(super) fn may_match(&self, block: &ChainBlock<'_>, proves_absence: bool) -> bool {
        let installed: Vec<_> = lock(&self.installed).values().cloned().collect();
        installed.iter().any(|filter| match filter.try_lock().as_deref() {
            Ok(Filter { used, .. }) if used.elapsed() >= UNUSED => false,
            Ok(Filter { selects: Selects::Logs(of), .. }) => {
                !proves_absence || of.1.answer(block.bloom) != BloomAnswer::No
            }
            Ok(Filter { selects: Selects::Blocks, .. }) => false,
            // It is polled now, and nobody waits for the end of that.
            Err(_) => true,
        })
    }
}

/// Estimates the bytes that a query takes. Its compiled form takes the same number of bytes in
/// addition.
pub(super) fn bytes_of(query: &LogQuery) -> u64 {
    /// Bytes of an address or a topic, in the sets of a query and in its bits.
    const VALUE: u64 = 200;
    /// Bytes of a filter without addresses and topics.
    const PLAIN: u64 = 1000;
    PLAIN + VALUE * num_values(query)
}

fn num_values(query: &LogQuery) -> u64 {
    let topics = query.topics().iter().map(|topics| topics.values().len()).sum::<usize>();
    (query.address_set().len() + topics) as u64
}

impl Call {
    /// Installs a filter of logs, from the next block on.
    pub(super) fn new_filter(&self, query: LogQuery) -> Result<String, Refusal> {
        self.heads()?;
        check_new_logs(&query)?;
        let mut held = self.standing.part(&self.client);
        held.grow(bytes_of(&query))?;
        let compiled = query.compile();
        self.install(Selects::Logs(Arc::new((query, compiled))), held)
    }

    /// Installs a filter of blocks, from the next block on.
    pub(super) fn new_block_filter(&self) -> Result<String, Refusal> {
        self.heads()?;
        self.install(Selects::Blocks, self.standing.part(&self.client))
    }

    fn install(&self, selects: Selects, held: Held) -> Result<String, Refusal> {
        let limit = self.limits.max_filters_of_client;
        let counted = Counted::new(&self.client.filters, limit);
        let installed = counted.ok_or(Refusal::Busy { what: "filters of yours", limit });
        let (next, used) = (self.journal.next(), Instant::now());
        let installed = installed.and_then(|counted| {
            let filter = Filter { selects, next, used, _counted: counted, _held: held };
            self.filters.install(filter)
        });
        if installed.is_err() {
            self.metrics.limit_reached("filters");
        }
        installed
    }

    pub(super) fn uninstall_filter(&self, id: &str) -> bool {
        self.filters.remove(id)
    }

    /// Returns the changes since the last poll of a filter, as `write` writes them. After an error,
    /// including an error of `write`, the next poll returns the same changes again.
    pub(super) fn filter_changes(
        &self,
        id: &str,
        write: impl FnOnce(&Changes) -> Answer,
    ) -> Answer {
        let filter = self.filters.get(id)?;
        let mut filter = lock(&filter);
        filter.used = Instant::now();
        let Some((changes, next)) = self.journal.since(filter.next) else {
            // The missed changes are not known any more: only a new filter has no gap.
            drop(filter);
            self.filters.remove(id);
            return Err(Refusal::NoFilter);
        };
        let found = match &filter.selects {
            Selects::Logs(of) => {
                let (query, compiled) = &**of;
                match self.logs_of_changes(query, compiled, &changes) {
                    Ok(logs) => Changes::Logs(logs),
                    Err(gap @ Refusal::Gap(_)) => {
                        drop(filter);
                        self.filters.remove(id);
                        return Err(gap);
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
            Selects::Blocks => {
                let added = changes.iter().filter(|change| !change.removed);
                Changes::Blocks(added.map(|change| change.block.at.hash).collect())
            }
        };
        let written = write(&found)?;
        filter.next = next;
        filter.used = Instant::now();
        Ok(written)
    }

    /// Returns all logs of a filter, including past logs.
    pub(super) fn filter_logs(&self, id: &str) -> Result<Vec<LocatedLog>, Refusal> {
        let filter = self.filters.get(id)?;
        let selects = {
            let mut filter = lock(&filter);
            filter.used = Instant::now();
            filter.selects.clone()
        };
        match selects {
            Selects::Logs(of) => self.logs(&of.0),
            Selects::Blocks => Err(Refusal::NoFilter),
        }
    }
}

/// Returns an error if a query cannot select new logs. By the rules of go-ethereum, the range begins with
/// `latest` or a number, and ends with `latest` or a number that is not smaller. A block hash is ignored
/// here, as in go-ethereum. The query is kept, so the number of its values is limited, too.
pub(super) fn check_new_logs(query: &LogQuery) -> Result<(), Refusal> {
    if let BlockSelection::Range { from, to } = *query.blocks() {
        let [from, to] = [from, to].map(|tag| tag.unwrap_or(BlockTag::Latest));
        let number = |tag| match tag {
            BlockTag::Number(number) => Some(number),
            BlockTag::Earliest => Some(0),
            _ => None,
        };
        // The words of go-ethereum.
        let why = match (from, to) {
            (BlockTag::Pending, _) | (_, BlockTag::Pending) => "pending logs are not supported",
            (BlockTag::Latest, BlockTag::Latest) => "",
            (from, BlockTag::Latest) if number(from).is_some() => "",
            (from, to) => match (number(from), number(to)) {
                (Some(first), Some(last)) if first <= last => "",
                // Nobody could tell later whether a new block was final when its logs were sent.
                _ => "invalid block range params",
            },
        };
        if !why.is_empty() {
            return Err(Refusal::Params(why.to_owned()));
        }
    }
    let (found, limit) = (num_values(query), MOST_VALUES);
    if found > limit {
        return Err(Refusal::Limit { what: "addresses and topics", found, limit });
    }
    Ok(())
}

/// Number of characters of a client's words that an error repeats.
pub(super) const MOST_WORDS: usize = 100;

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
    _counted: [Counted; 2],
    _held: Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The client does not know the id of the subscription yet.
    New,
    Idle,
    /// Messages are being written, or wait to be sent.
    Busy,
}

/// Work for a subscription: changes of the chain that are reported to its client.
#[derive(Debug)]
pub(super) struct Work {
    id: String,
    selects: Selects,
    changes: Vec<Change>,
    /// Number of the change after these changes.
    end: u64,
}

/// Messages of a subscription.
#[derive(Debug)]
pub(super) struct Messages {
    id: String,
    pub(super) texts: Vec<Bytes>,
    end: u64,
    /// The part of the budget that the messages take.
    _held: Option<Held>,
}

/// Reason why a subscription sends nothing.
#[derive(Debug)]
pub(super) enum Unsent {
    /// The work can be tried again: a block is not proven yet, or a limit of the clients is
    /// reached.
    Later(String),
    /// The work was tried again meanwhile.
    Again,
    /// Changes are lost, and the client must learn that.
    Gap,
}

impl Subscriptions {
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Records that the client knows these ids.
    pub(super) fn begin(&self, ids: &[String]) {
        for subscription in lock(&self.0).iter_mut().filter(|own| ids.contains(&own.id)) {
            subscription.state = State::Idle;
        }
    }

    /// Returns work for all idle subscriptions for which there are new changes.
    ///
    /// # Errors
    /// Returns an error if a change that a subscription needs is no longer known.
    pub(super) fn work(&self, proven: &Proven) -> Result<Vec<Work>, Unsent> {
        let mut work = Vec::new();
        for own in lock(&self.0).iter_mut().filter(|own| own.state == State::Idle) {
            let (changes, end) = proven.journal.since(own.next).ok_or(Unsent::Gap)?;
            if end > own.next {
                own.state = State::Busy;
                work.push(Work { id: own.id.clone(), selects: own.selects.clone(), changes, end });
            }
        }
        Ok(work)
    }

    /// Returns `true` if the subscription of these messages has not ended.
    pub(super) fn has(&self, messages: &Messages) -> bool {
        lock(&self.0).iter().any(|own| own.id == messages.id)
    }

    /// Ends a subscription. Returns `true` if it existed.
    pub(super) fn end(&self, id: &str) -> bool {
        let mut open = lock(&self.0);
        let before = open.len();
        open.retain(|own| own.id != id);
        open.len() < before
    }

    /// Records that messages were sent.
    pub(super) fn sent(&self, messages: &Messages) {
        self.idle(&messages.id, Some(messages.end));
    }

    /// Lets a subscription try again.
    pub(super) fn again(&self, id: &str) {
        self.idle(id, None);
    }

    fn idle(&self, id: &str, next: Option<u64>) {
        if let Some(own) = lock(&self.0).iter_mut().find(|own| own.id == id) {
            own.state = State::Idle;
            own.next = next.unwrap_or(own.next);
        }
    }

    /// Opens a subscription, which begins when the client knows its id.
    pub(super) fn subscribe(&self, call: &Call, params: &[&RawValue]) -> Result<String, Refusal> {
        let next = call.journal.next();
        let selects = selected(params)?;
        let heads = call.heads()?;
        let mut held = call.standing.part(&call.client);
        let selects = match selects {
            None => {
                held.grow(bytes_of(&LogQuery::new()))?;
                Selects::Blocks
            }
            Some(query) => {
                check_new_logs(&query)?;
                // It could never send anything.
                call.check_profile(&(heads.latest..=heads.latest))?;
                held.grow(bytes_of(&query))?;
                let compiled = query.compile();
                Selects::Logs(Arc::new((query, compiled)))
            }
        };
        let limits = &call.limits;
        let mut open = lock(&self.0);
        let of_connection = u64::from(limits.max_subscriptions_of_connection);
        if open.len() as u64 >= of_connection {
            call.metrics.limit_reached("subscriptions_of_connection");
            let what = "subscriptions of a connection";
            return Err(Refusal::Busy { what, limit: of_connection });
        }
        let of_client = limits.max_subscriptions_of_client;
        let Some(own) = Counted::new(&call.client.subscriptions, of_client) else {
            call.metrics.limit_reached("subscriptions_of_client");
            return Err(Refusal::Busy { what: "subscriptions of yours", limit: of_client });
        };
        let counted = Counted::new(&call.subscriptions, limits.max_subscriptions);
        let Some(counted) = counted else {
            call.metrics.limit_reached("subscriptions");
            return Err(Refusal::Busy { what: "subscriptions", limit: limits.max_subscriptions });
        };
        let (id, state) = (random_id(), State::New);
        open.push(Subscription {
            id: id.clone(),
            selects,
            next,
            state,
            _counted: [own, counted],
            _held: held,
        });
        Ok(id)
    }
}

impl Work {
    /// Returns the messages for a subscription: all of them, or none.
    pub(super) async fn messages(self, call: Call) -> Result<Messages, Unsent> {
        let Self { id, selects, changes, end } = self;
        let written = match selects {
            Selects::Blocks => heads(&call, &id, &changes),
            Selects::Logs(of) => {
                // One client with many subscriptions leaves room for the others.
                let own = Arc::clone(&call.client.background).acquire_owned().await;
                let permit = (own, Arc::clone(&call.background).acquire_owned().await);
                let id = id.clone();
                let logs = tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    let logs = call.logs_of_changes(&of.0, &of.1, &changes)?;
                    let mut held = call.passing.part(&call.client);
                    let logs = json::logs(&logs);
                    let texts = logs.iter().map(|log| message(&id, log, &mut held));
                    Ok((texts.collect::<Result<Vec<_>, _>>()?, held))
                });
                logs.await.unwrap_or(Err(Refusal::Internal))
            }
        };
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
    let mut held = call.passing.part(&call.client);
    let added = changes.iter().filter(|change| !change.removed);
    let texts = added.map(|change| message(id, &json::head(&change.block)?, &mut held));
    let texts = texts.collect::<Result<_, _>>()?;
    Ok((texts, held))
}

/// Returns the query of a subscription of logs; `None` for a subscription of heads.
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
