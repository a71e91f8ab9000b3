//! The headers that lead to the trusted head, kept in memory: each is the parent of the next. The journal tells
//! which blocks joined the chain, and which left it.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::{BlockRef, ChainBlock, HeaderBuf, Linked, LinkedHeaders};
use tokio::sync::watch;

use crate::anchor::AnchorSource;
use crate::error::FetchError;
use crate::nodes::ask::{ask, trusted_header};
use crate::nodes::{Node, RpcError};
use crate::proven::Flights;
use crate::provider::chain::{FetchedChain, unaccepted};
use crate::stop::lock;

pub(super) use crate::proven::BlockHeader;

/// Number of headers in a part of the chain, which takes 3 MB.
const PART: u64 = 8192;
/// If at least this number of headers is missing, a proof of one block is used instead: a proof costs a few
/// calls, one after the other, and these headers cost ten requests of the usual size, several at a time.
const WORTH_A_PROOF: u64 = 1000;
/// Maximum number of islands that are kept: ranges of headers far below the head.
const MOST_ISLANDS: usize = 64;
/// Number of blocks by which the head may advance at once. If more blocks are missing, the chain
/// restarts at the head.
const MAX_ADVANCE: u64 = 4 * PART;
/// Number of headers that are loaded where the chain starts, so that a reorganisation of the newest blocks
/// can be reported to clients, too.
const AT_START: u64 = 256;
/// Number of these headers that are requested by hash, if no node returns them by number.
const AT_START_BY_HASH: usize = 8;

/// The chain that ends at the trusted head.
#[derive(Debug)]
pub(super) struct Chain {
    /// Maximum number of headers in memory.
    limit: u64,
    state: RwLock<State>,
    /// A lock that is held while the headers below the lowest part are fetched, so that they are
    /// fetched only once.
    extending: Mutex<()>,
    /// Islands that are being fetched.
    islands_in_flight: Flights<RangeInclusive<u64>, Result<Headers, HeadersError>>,
}

#[derive(Debug, Default)]
struct State {
    /// Parts of the chain, in ascending order. The last block of each part is the parent of the
    /// first block of the next part. The last part ends at the head.
    parts: Vec<Arc<LinkedHeaders>>,
    /// Ranges of blocks far below the blocks of `parts`. The range that was added last is the last
    /// element. The last block of each range was linked to a finalised block.
    islands: Vec<Arc<LinkedHeaders>>,
    finalized: Option<BlockRef>,
    /// Unix time of the head.
    head_time: u64,
}

/// The source that names a head, compared with the source of the previous head.
#[derive(Debug, Clone)]
pub(super) struct HeadSource {
    /// The name of the source in messages.
    pub(super) name: String,
    /// `true` if this source is trusted more than the previous source: its head replaces the chain, even
    /// if nothing shows how the two heads are related.
    pub(super) is_stronger: bool,
    /// `true` if the previous source is trusted more than this source.
    pub(super) is_weaker: bool,
}

/// Blocks that lead to a new head.
#[derive(Debug, Default)]
pub(super) struct Branch {
    /// The blocks, the lowest first.
    pub(super) blocks: Vec<Arc<BlockHeader>>,
    /// `true` if the parent of the first block is on the chain.
    is_linked: bool,
}

/// The changes after a move of the head.
#[derive(Debug)]
pub(super) struct Moved {
    /// Hashes of blocks that left the chain, the highest first.
    pub(super) removed: Vec<B256>,
    /// Blocks that joined the chain, the lowest first.
    pub(super) added: Vec<Arc<BlockHeader>>,
    /// `true` if blocks between the old head and the new head are missing.
    pub(super) restarted: bool,
}

/// Reason why headers cannot be returned.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum HeadersError {
    #[error("no head is trusted yet")]
    NoHead,
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("{0}")]
    Link(String),
    #[error("block {last} is after the verified head, {head}, which moved back meanwhile")]
    AboveHead { last: u64, head: u64 },
    #[error("{headers} headers are needed to reach block {first}, but the limit is {limit}")]
    TooMany { first: u64, headers: u64, limit: u64 },
}

/// The headers of a range, which is part of the chain.
#[derive(Debug, Clone)]
pub(super) struct Headers {
    range: RangeInclusive<u64>,
    parts: Vec<Arc<LinkedHeaders>>,
}

impl Headers {
    /// Returns the hash of a block of the range.
    pub(super) fn hash(&self, number: u64) -> Option<B256> {
        self.parts.iter().find_map(|part| part.block(number)).map(|block| block.hash)
    }

    /// Returns the parts of the range, ascending, each with the numbers that belong to the range.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&LinkedHeaders, RangeInclusive<u64>)> {
        self.parts.iter().filter_map(|part| {
            let numbers = part.numbers()?;
            let first = *self.range.start().max(numbers.start());
            let last = *self.range.end().min(numbers.end());
            (first <= last).then(|| (&**part, first..=last))
        })
    }
}

impl State {
    fn head(&self) -> Option<BlockRef> {
        let last = self.parts.last()?;
        Some(BlockRef { number: *last.numbers()?.end(), hash: last.last_hash()? })
    }

    fn numbers(&self) -> Option<RangeInclusive<u64>> {
        let first = *self.parts.first()?.numbers()?.start();
        let last = *self.parts.last()?.numbers()?.end();
        Some(first..=last)
    }

    fn part_of(&self, number: u64) -> Option<&Arc<LinkedHeaders>> {
        let above = self.parts.partition_point(|part| {
            part.numbers().is_some_and(|numbers| *numbers.start() <= number)
        });
        self.parts.get(above.checked_sub(1)?)
    }

    fn block(&self, number: u64) -> Option<ChainBlock<'_>> {
        let on_chain = self.part_of(number).and_then(|part| part.block(number));
        on_chain.or_else(|| self.islands.iter().rev().find_map(|island| island.block(number)))
    }

    fn headers(&self, range: &RangeInclusive<u64>) -> Option<Headers> {
        let covers = |numbers: RangeInclusive<u64>| {
            numbers.contains(range.start()) && numbers.contains(range.end())
        };
        let parts = if self.numbers().is_some_and(covers) {
            let is_in = |part: &&Arc<LinkedHeaders>| {
                part.numbers().is_some_and(|numbers| {
                    numbers.start() <= range.end() && range.start() <= numbers.end()
                })
            };
            self.parts.iter().filter(is_in).cloned().collect()
        } else {
            let island = self.islands.iter().rev();
            vec![island.clone().find(|island| island.numbers().is_some_and(covers))?.clone()]
        };
        Some(Headers { range: range.clone(), parts })
    }

    fn len(&self) -> u64 {
        self.parts.iter().chain(&self.islands).map(|part| part.len() as u64).sum()
    }

    fn add_island(&mut self, island: Arc<LinkedHeaders>, limit: u64) {
        if self.islands.len() >= MOST_ISLANDS {
            self.islands.remove(0);
        }
        // The new one fits: it was checked against the limit.
        self.drop_islands(limit.saturating_sub(island.len() as u64));
        self.drop_parts(limit.saturating_sub(island.len() as u64));
        self.islands.push(island);
    }

    /// Removes the oldest islands until no more than `limit` headers are left.
    fn drop_islands(&mut self, limit: u64) {
        while self.len() > limit && !self.islands.is_empty() {
            self.islands.remove(0);
        }
    }

    /// Removes the lowest parts until no more than `limit` headers are left. The newest part stays.
    fn drop_parts(&mut self, limit: u64) {
        while self.len() > limit && self.parts.len() > 1 {
            self.parts.remove(0);
        }
    }

    /// Links a header whose parent is on the chain. Returns the hashes of the blocks that left the
    /// chain, the highest first.
    fn push(&mut self, header: &HeaderBuf) -> Vec<B256> {
        let mut removed = Vec::new();
        let view = header.view();
        while let Some(last) = self.parts.last_mut() {
            let first = last.numbers().map(|numbers| *numbers.start());
            if first.is_some_and(|first| first >= view.number()) {
                let mut all: Vec<B256> = last.blocks().map(|block| block.hash).collect();
                all.reverse();
                removed.extend(all);
                self.parts.pop();
                continue;
            }
            if last.len() as u64 >= PART && last.last_hash() == Some(view.parent_hash()) {
                let next = last.following();
                self.parts.push(Arc::new(next));
            }
            break;
        }
        if self.parts.is_empty() {
            self.parts.push(Arc::default());
        }
        let last = self.parts.last_mut().expect("one was pushed");
        if let Ok(Linked::Reorganised { removed: others }) = Arc::make_mut(last).push(&view) {
            removed.extend(others.into_iter().rev());
        }
        removed
    }
}

impl Chain {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            state: RwLock::default(),
            extending: Mutex::default(),
            islands_in_flight: Flights::new(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the verified head.
    pub(super) fn head(&self) -> Option<BlockRef> {
        self.read().head()
    }

    /// Returns the verified head and the Unix time of this block.
    pub(super) fn head_and_time(&self) -> Option<(BlockRef, u64)> {
        let state = self.read();
        Some((state.head()?, state.head_time))
    }

    pub(super) fn finalized(&self) -> Option<BlockRef> {
        self.read().finalized
    }

    /// Returns the hash of the chain's block with this number, if its header is in memory.
    pub(super) fn hash(&self, number: u64) -> Option<B256> {
        self.read().block(number).map(|block| block.hash)
    }

    /// Returns the headers of a range if they are in memory.
    pub(super) fn held(&self, range: &RangeInclusive<u64>) -> Option<Headers> {
        self.read().headers(range)
    }

    /// Returns the number of headers from this block on that are not in memory.
    pub(super) fn missing_from(&self, first: u64) -> u64 {
        self.read().numbers().map_or(u64::MAX, |numbers| numbers.start().saturating_sub(first))
    }

    /// Fetches the headers that lead from the head to the block with this hash; none if the block is
    /// the head, or is on the chain already: a source that names such a block lags, and must not
    /// shorten the chain. Only this hash is trusted: the headers that nodes send must lead to it.
    ///
    /// # Errors
    /// Returns an error if a header is missing, or if nothing shows how the block is related to the head,
    /// unless `source` may replace the chain anyway.
    pub(super) fn fetch(
        &self,
        nodes: &[Node],
        head: B256,
        source: &HeadSource,
    ) -> Result<Branch, FetchError> {
        let before = self.head();
        if before.is_some_and(|before| before.hash == head) {
            return Ok(Branch::default());
        }
        let header = header_of(nodes, head)?;
        let at = BlockRef::from(&header);
        if self.hash(at.number) == Some(head) {
            return Ok(Branch::default());
        }
        let mut new = vec![header];
        let is_linked = self.walk_back(nodes, &mut new)?;
        if !is_linked {
            if let Some(before) = before
                && self.has_earlier(nodes, at, before, source)?
            {
                return Ok(Branch::default());
            }
            new.truncate(1);
            load_before(nodes, &mut new);
        }
        let blocks = new.into_iter().rev().map(|header| Arc::new(BlockHeader::new(header)));
        Ok(Branch { blocks: blocks.collect(), is_linked })
    }

    /// Returns `true` if the block is an ancestor of the head, and `false` if a different block of its
    /// height leads to the head, so that the block replaces the chain. It is called if walking back
    /// from the block did not reach the chain.
    ///
    /// # Errors
    /// Returns an error if this cannot be decided and `source` may not replace the chain: a node may lag,
    /// or make up a block.
    fn has_earlier(
        &self,
        nodes: &[Node],
        at: BlockRef,
        head: BlockRef,
        source: &HeadSource,
    ) -> Result<bool, FetchError> {
        let lowest = self.read().numbers().map_or(0, |numbers| *numbers.start());
        if (lowest..=head.number).contains(&at.number) {
            // The chain has another block with this number.
            return Ok(false);
        }
        if at.number < lowest
            && lowest - at.number <= MAX_ADVANCE
            && let Ok(earlier) = self.headers(nodes, None, at.number..=at.number)
        {
            return Ok(earlier.hash(at.number) == Some(at.hash));
        }
        let is_ahead = at.number > head.number;
        if source.is_stronger || is_ahead && !source.is_weaker {
            return Ok(false);
        }
        Err(FetchError::OtherBranch { node: source.name.clone(), block: at.number, tries: 1 })
    }

    /// Moves the head to the end of a branch. `moved` receives the changes before the new head becomes
    /// visible.
    pub(super) fn advance(&self, branch: Branch, moved: impl FnOnce(Moved)) {
        let Branch { blocks, is_linked } = branch;
        if blocks.is_empty() {
            return;
        }
        let mut state = self.write();
        let restarted = !is_linked && !state.parts.is_empty();
        if !is_linked {
            state.parts.clear();
        }
        let mut removed = Vec::new();
        for block in &blocks {
            removed.extend(state.push(&block.header));
            state.head_time = block.header.view().timestamp();
        }
        state.drop_islands(self.limit);
        state.drop_parts(self.limit);
        moved(Moved { removed, added: blocks, restarted });
    }

    /// Fetches headers, the highest first, until the parent of the last header is on the chain.
    /// Returns `false` if that is too far away.
    fn walk_back(&self, nodes: &[Node], new: &mut Vec<HeaderBuf>) -> Result<bool, FetchError> {
        let Some(numbers) = self.read().numbers() else { return Ok(false) };
        let mut by_number = true;
        while let Some(lowest) = new.last() {
            let (number, parent) = (lowest.view().number(), lowest.view().parent_hash());
            let Some(before) = number.checked_sub(1).filter(|it| numbers.contains(it)) else {
                let missing = number.saturating_sub(*numbers.end());
                if number <= *numbers.start() || missing > MAX_ADVANCE {
                    return Ok(false);
                }
                let first = numbers.end().saturating_add(1);
                if by_number && missing > 2 {
                    by_number = false;
                    // The headers in between at once, if a node has those that lead to the head.
                    new.extend(linked_below(nodes, first..=number - 1, parent));
                } else {
                    new.push(parent_of(nodes, parent, number)?);
                }
                continue;
            };
            if self.hash(before) == Some(parent) {
                return Ok(true);
            }
            new.push(parent_of(nodes, parent, number)?);
        }
        Ok(false)
    }

    /// Sets the newest final block. Returns `true` if it has changed.
    pub(super) fn set_finalized(&self, finalized: Option<BlockRef>) -> bool {
        let mut state = self.write();
        let is_new = state.finalized != finalized;
        state.finalized = finalized;
        is_new
    }

    /// Returns the headers of a range that ends at most at the head. Missing headers are fetched,
    /// and linked to the head or to the finalised block.
    pub(super) fn headers(
        &self,
        nodes: &[Node],
        anchor: Option<&dyn AnchorSource>,
        range: RangeInclusive<u64>,
    ) -> Result<Headers, HeadersError> {
        if let Some(headers) = self.held(&range) {
            return Ok(headers);
        }
        let (first, last) = (*range.start(), *range.end());
        let in_range = (last - first).saturating_add(1);
        let lowest = self.read().numbers().map(|numbers| *numbers.start());
        let mut no_link = None;
        if let (Some(anchor), Some(lowest)) = (anchor, lowest)
            && lowest.saturating_sub(first) > in_range.saturating_add(WORTH_A_PROOF)
        {
            let island = || self.island(nodes, anchor, &range);
            match self.islands_in_flight.run(&range, island) {
                Err(HeadersError::Link(why)) => no_link = Some(why),
                found => return found,
            }
        }
        loop {
            // Once for each part, so that a question about nearer blocks need not wait for all of them.
            let _extending = lock(&self.extending);
            let (lowest, parent, held) = {
                let state = self.read();
                if let Some(headers) = state.headers(&range) {
                    return Ok(headers);
                }
                let numbers = state.numbers().ok_or(HeadersError::NoHead)?;
                if last > *numbers.end() {
                    return Err(HeadersError::AboveHead { last, head: *numbers.end() });
                }
                let part = state.parts.first().ok_or(HeadersError::NoHead)?;
                let parent = part.parent_hash().ok_or(HeadersError::NoHead)?;
                (*numbers.start(), parent, (numbers.end() - numbers.start()).saturating_add(1))
            };
            let below = lowest.saturating_sub(first);
            if let Err(error) = self.check_room(first, below.saturating_add(held)) {
                let both = |why| HeadersError::Link(format!("{error}; {why}"));
                return Err(no_link.map_or_else(|| error.clone(), both));
            }
            let end = lowest - 1;
            let start = end.saturating_sub(PART - 1).max(first);
            let part = fetch_below(nodes, start..=end, parent)?;
            let mut state = self.write();
            // Another thread may have added the same part, or the chain may have started anew.
            if state.parts.first().and_then(|part| part.parent_hash()) == part.last_hash() {
                state.parts.insert(0, Arc::new(part));
                state.drop_islands(self.limit);
            }
        }
    }

    /// Drops the headers of this range, if they are an island, far below the head.
    pub(super) fn forget(&self, range: &RangeInclusive<u64>) {
        self.write().islands.retain(|island| island.numbers().as_ref() != Some(range));
    }

    /// Fetches the headers of a range far below the head, whose last block the anchor proves.
    fn island(
        &self,
        nodes: &[Node],
        anchor: &dyn AnchorSource,
        range: &RangeInclusive<u64>,
    ) -> Result<Headers, HeadersError> {
        // A flight that ended since the look before leaves its island.
        if let Some(headers) = self.held(range) {
            return Ok(headers);
        }
        let (first, last) = (*range.start(), *range.end());
        let hash = anchor.link(last, nodes).map_err(HeadersError::Link)?;
        let hash = hash.ok_or_else(|| HeadersError::Link("no proofs".to_owned()))?;
        self.check_room(first, (last - first).saturating_add(1))?;
        let island = Arc::new(fetch_below(nodes, range.clone(), hash)?);
        self.write().add_island(Arc::clone(&island), self.limit);
        Ok(Headers { range: range.clone(), parts: vec![island] })
    }

    fn check_room(&self, first: u64, headers: u64) -> Result<(), HeadersError> {
        let limit = self.limit;
        if headers > limit {
            return Err(HeadersError::TooMany { first, headers, limit });
        }
        Ok(())
    }
}

fn header_of(nodes: &[Node], hash: B256) -> Result<HeaderBuf, FetchError> {
    let what = || format!("block {hash}");
    let found = trusted_header(nodes, hash)?;
    found.ok_or_else(|| {
        let name = nodes.first().map_or_else(String::new, Node::name);
        FetchError::rpc(name, what(), RpcError::NotFound { what: what() })
    })
}

/// Fetches some headers before the first header of a new chain. If no node has these headers, none
/// are added.
fn load_before(nodes: &[Node], new: &mut Vec<HeaderBuf>) {
    let Some(first) = new.first().map(HeaderBuf::view) else { return };
    let (number, parent) = (first.number(), first.parent_hash());
    let Some(last) = number.checked_sub(1) else { return };
    new.extend(linked_below(nodes, number.saturating_sub(AT_START)..=last, parent));
    // A node whose chain was reorganised meanwhile, or that has few headers, has them by their hash.
    while (2..AT_START_BY_HASH).contains(&(new.len() + 1))
        && let Some(lowest) = new.last().map(HeaderBuf::view)
        && lowest.number() > 0
        && let Ok(parent) = parent_of(nodes, lowest.parent_hash(), lowest.number())
    {
        new.push(parent);
    }
}

/// Returns the header of the parent of block `number`.
fn parent_of(nodes: &[Node], hash: B256, number: u64) -> Result<HeaderBuf, FetchError> {
    let header = header_of(nodes, hash)?;
    let found = header.view().number();
    if found.checked_add(1) == Some(number) {
        return Ok(header);
    }
    // Its hash is right, so block `number` itself is made up.
    let what = format!("block {hash}");
    let words = format!("the parent of block {number} has the number {found}");
    let name = nodes.first().map_or_else(String::new, Node::name);
    Err(FetchError::rpc(name, what, RpcError::Malformed(words)))
}

/// Returns the headers of a range, the highest first, whose last block has this hash; none if no node
/// has them.
fn linked_below(nodes: &[Node], range: RangeInclusive<u64>, last: B256) -> Vec<HeaderBuf> {
    let asked = ask(nodes, |node| {
        let mut headers: Vec<HeaderBuf> = Vec::new();
        node.headers(range.clone(), |part| {
            headers.extend(part);
            Ok::<_, RpcError>(())
        })?;
        headers.reverse();
        let mut expected = last;
        let leads = headers.iter().all(|header| {
            let is_parent = header.hash() == expected;
            expected = header.view().parent_hash();
            is_parent
        });
        Ok(leads.then_some(headers))
    });
    asked.unwrap_or_default()
}

/// Fetches the headers of a range whose last block has this hash.
fn fetch_below(
    nodes: &[Node],
    range: RangeInclusive<u64>,
    hash: B256,
) -> Result<LinkedHeaders, FetchError> {
    let mut failed = None;
    let asked = ask(nodes, |node| {
        let mut fetched = FetchedChain::new(false);
        let error = match fetched.fetch(node, range.clone(), false) {
            Ok(()) if fetched.chain.last_hash() == Some(hash) => return Ok(Some(fetched.chain)),
            Ok(()) => {
                let block = *range.end();
                FetchError::OtherBranch { node: node.name(), block, tries: 1 }
            }
            Err(error) => error,
        };
        let why = unaccepted(&error);
        failed.get_or_insert(error);
        Err(why)
    });
    asked.map_err(|unanswered| {
        let failed = failed.expect("a provider has at least one node");
        if unanswered.is_stopped() { FetchError::Stopped } else { failed }
    })
}

/// Maximum number of changes in the journal: blocks that joined or left the chain.
const CAPACITY: usize = 4096;

/// A change of the chain: a block that joined it or left it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) block: Arc<BlockHeader>,
    /// `true` if the block left the chain.
    pub(super) removed: bool,
}

/// The newest changes, each with a number. Each filter and subscription reads the changes from its
/// own position on.
#[derive(Debug)]
pub(super) struct Journal {
    state: Mutex<Recent>,
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Recent {
    changes: VecDeque<Change>,
    /// Number of the first change.
    first: u64,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), next: watch::Sender::new(0) }
    }

    /// Returns the number of the next change.
    pub(super) fn next(&self) -> u64 {
        *self.next.borrow()
    }

    /// Returns a receiver that is woken by each change, and when the journal is dropped.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }

    /// Records that blocks left the chain, the highest first, and that other blocks joined it. With
    /// `gap`, blocks in between are missing: a reader at an earlier position has missed changes.
    pub(super) fn push(&self, removed: &[B256], added: Vec<Arc<BlockHeader>>, gap: bool) {
        let mut state = lock(&self.state);
        // Of a block that the journal does not know, nobody can be told.
        let is_forgotten = |hash: &B256| !state.changes.iter().any(|it| it.block.at.hash == *hash);
        let gap = gap || removed.iter().any(is_forgotten);
        if gap {
            state.first += state.changes.len() as u64 + 1;
            state.changes.clear();
        }
        for hash in removed {
            let is_it = |change: &&Change| !change.removed && change.block.at.hash == *hash;
            if let Some(known) = state.changes.iter().rev().find(is_it) {
                let block = Arc::clone(&known.block);
                state.changes.push_back(Change { block, removed: true });
            }
        }
        let added = added.into_iter().map(|block| Change { block, removed: false });
        state.changes.extend(added);
        while state.changes.len() > CAPACITY {
            state.changes.pop_front();
            state.first += 1;
        }
        let next = state.first + state.changes.len() as u64;
        drop(state);
        self.next.send_replace(next);
    }

    /// Returns the changes from this number on, and the number of the next change; `None` if some of
    /// them are no longer known.
    pub(super) fn since(&self, number: u64) -> Option<(Vec<Change>, u64)> {
        let state = lock(&self.state);
        let skipped = usize::try_from(number.checked_sub(state.first)?).ok()?;
        let changes = state.changes.iter().skip(skipped).cloned().collect();
        Some((changes, state.first + state.changes.len() as u64))
    }

    /// Returns the header of a block that joined the chain not long ago.
    pub(super) fn header(&self, hash: B256) -> Option<Arc<BlockHeader>> {
        let state = lock(&self.state);
        let mut known = state.changes.iter().rev();
        known.find(|change| change.block.at.hash == hash).map(|change| Arc::clone(&change.block))
    }
}
