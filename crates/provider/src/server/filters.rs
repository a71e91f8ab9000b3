//! Filters that clients install and poll.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::bloom::BloomAnswer;
use chainsieve::eth::header::ChainBlock;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockSelection, BlockTag, CompiledQuery, LogQuery};

use super::call::{Answer, Call};
use super::clients::{Held, OwnFilter};
use super::refusal::Refusal;

/// A filter that is not polled for so long is removed, as by go-ethereum.
const UNUSED: Duration = Duration::from_secs(300);

/// Maximum number of addresses and topics of a filter or subscription.
const MOST_VALUES: u64 = 4096;

/// What a filter selects.
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
    _counted: OwnFilter,
    _held: Held,
}

/// The installed filters, by their id.
#[derive(Debug)]
pub(super) struct Filters {
    limit: usize,
    installed: Mutex<HashMap<String, Arc<Mutex<Filter>>>>,
}

/// What happened since the last poll.
#[derive(Debug)]
pub(super) enum Changes {
    Logs(Vec<LocatedLog>),
    Blocks(Vec<B256>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Estimates the bytes that a query takes, beside those of its compiled form, which are as many.
pub(super) fn bytes_of(query: &LogQuery) -> u64 {
    /// Of an address or a topic, in the sets of a query and in its bits.
    const VALUE: u64 = 200;
    /// Of a filter without any.
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
        let mut held = self.standing.part(self.client());
        held.grow(bytes_of(&query))?;
        let compiled = query.compile();
        self.install(Selects::Logs(Arc::new((query, compiled))), held)
    }

    /// Installs a filter of blocks, from the next one on.
    pub(super) fn new_block_filter(&self) -> Result<String, Refusal> {
        self.heads()?;
        self.install(Selects::Blocks, self.standing.part(self.client()))
    }

    fn install(&self, selects: Selects, held: Held) -> Result<String, Refusal> {
        let limit = self.limits.max_filters_of_client;
        let counted = self.client().filter(limit);
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

    /// Returns what happened since the last poll of a filter, as `write` writes it. After an error, also
    /// one of `write`, the next poll returns the same changes again.
    pub(super) fn filter_changes(
        &self,
        id: &str,
        write: impl FnOnce(&Changes) -> Answer,
    ) -> Answer {
        let filter = self.filters.get(id)?;
        let mut filter = lock(&filter);
        filter.used = Instant::now();
        let Some((changes, next)) = self.journal.since(filter.next) else {
            // What was missed is not known any more: only a new filter has no gap.
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

    /// Returns all logs of a filter, past ones too.
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

/// Returns an error if a query cannot select new logs: by the rules of go-ethereum, from `latest`, or from
/// a number that the last block, a number or `latest`, is not before. A block hash is ignored here, as
/// by go-ethereum. The query is kept, so the number of its values is limited, too.
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
