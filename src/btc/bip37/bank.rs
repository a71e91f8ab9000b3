//! The filters that a node's peers have loaded, all tested at once.
//!
//! A node keeps one filter for each peer and asks all of them about each transaction that it
//! relays. [`FilterBank`] takes the transaction apart and mixes its elements once, and probes
//! sixteen filters at a time. Only those that may contain an element, few unless they are useless,
//! go through [`BloomFilter::match_elements`], alone, so that results, order and updates are its
//! own.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use bitcoin::Transaction;
use chainsieve_lanes::simd::Backend;
use thiserror::Error;

use super::bit_array::BitArray;
use super::probe::bank::{Rows, SHARD, Shard};
use super::probe::mixed::Mixed;
use super::{
    AddedData, BlockElements, BloomFilter, Elements, MAX_BLOOM_FILTER_SIZE, MAX_FILTERADD_SIZE,
    MAX_HASH_FUNCS, MatchReason, PayloadError, TxMatch,
};

/// Why a bank refuses a peer's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BankError {
    /// The message is malformed or over a limit.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// `filteradd` by a peer that has no filter: none was loaded, or it was cleared.
    #[error("data to add, and no filter is loaded")]
    NoFilter,
}

impl BankError {
    /// Whether Core punishes the peer (`Misbehaving`): for a filter or data over the limits, and
    /// for data without a filter. A payload that can't be read is ignored.
    pub fn is_misbehavior(&self) -> bool {
        match self {
            Self::NoFilter => true,
            Self::Payload(error) => matches!(
                error,
                PayloadError::FilterTooLarge(_)
                    | PayloadError::TooManyHashFuncs(_)
                    | PayloadError::DataTooLarge(_)
            ),
        }
    }
}

/// The filters of many peers, by id.
///
/// A peer is in one of three states, as in Core: it has a filter ([`load`](Self::load)), it gets
/// every transaction ([`clear`](Self::clear)), or the bank does not know it, and no answer names
/// it. Whether BIP37 is offered at all (service bit 2) is for the caller to check first.
///
/// # Examples
/// ```
/// # use chainsieve::btc::bip37::{BloomFilter, FilterBank, UpdateMode};
/// # let transaction = chainsieve::bitcoin::Transaction {
/// #     version: chainsieve::bitcoin::transaction::Version::ONE,
/// #     lock_time: chainsieve::bitcoin::absolute::LockTime::ZERO,
/// #     input: vec![],
/// #     output: vec![],
/// # };
/// let mut bank = FilterBank::new();
/// let mut wallet = BloomFilter::new(10, 1e-4, 5, UpdateMode::All).unwrap();
/// bank.load_payload("alice", &wallet.encode())?;
/// bank.add(&"alice", transaction.compute_txid().as_ref())?;
/// bank.load("bob", wallet)?;
/// bank.clear("carol"); // wants everything
///
/// let announced = bank.match_transaction(&transaction);
/// assert_eq!(announced.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ["alice", "carol"]);
/// # Ok::<(), chainsieve::btc::bip37::BankError>(())
/// ```
#[derive(Clone)]
pub struct FilterBank<Id> {
    /// The number of each peer's filter: its place in `owners`, and among those of the shards.
    numbers: BTreeMap<Id, usize>,
    owners: Vec<Owner<Id>>,
    /// All full but the last one.
    pub(super) shards: Vec<Shard>,
    /// The peers that get everything.
    cleared: BTreeSet<Id>,
    backend: Backend,
    scratch: Rows,
}

#[derive(Debug, Clone)]
struct Owner<Id> {
    id: Id,
    flags: u8,
}

impl<Id: Ord + Clone> Default for FilterBank<Id> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Id: Ord + Clone> FilterBank<Id> {
    /// More elements than this are worth more in lanes than filters are.
    const FEW_ELEMENTS: usize = 256;

    /// A bank that knows no peer.
    pub fn new() -> Self {
        Self {
            numbers: BTreeMap::new(),
            owners: Vec::new(),
            shards: Vec::new(),
            cleared: BTreeSet::new(),
            backend: Backend::best(),
            scratch: Rows::default(),
        }
    }

    /// Probes with `backend` instead of the best of this CPU. Answers don't change.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// The instructions that the filters are probed with.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// `filterload`: the peer has this filter from now on, and no other.
    ///
    /// # Errors
    /// A filter over the limits of 36,000 bytes and 50 hash functions. What the peer had before
    /// stays.
    ///
    /// # Cost
    /// A copy of the filter; now and then one of up to 1,023 others.
    #[expect(clippy::needless_pass_by_value, reason = "the bank is where the filter lives now")]
    pub fn load(&mut self, id: Id, filter: BloomFilter) -> Result<(), BankError> {
        if filter.data().len() > MAX_BLOOM_FILTER_SIZE {
            return Err(PayloadError::FilterTooLarge(filter.data().len()).into());
        }
        if filter.hash_funcs() > MAX_HASH_FUNCS {
            return Err(PayloadError::TooManyHashFuncs(filter.hash_funcs()).into());
        }
        self.cleared.remove(&id);
        let flags = filter.flags();
        if let Some(&number) = self.numbers.get(&id) {
            self.owners[number].flags = flags;
            self.put(number, &filter);
            return Ok(());
        }
        if self.owners.len().is_multiple_of(SHARD) {
            self.shards.push(Shard::default());
        }
        self.shards[self.owners.len() / SHARD].push(filter.params(), filter.data());
        self.numbers.insert(id.clone(), self.owners.len());
        self.owners.push(Owner { id, flags });
        Ok(())
    }

    /// `filterload` as it comes over the wire. Bytes behind the message are ignored, as in Core.
    ///
    /// # Errors
    /// As [`load`](Self::load), or a payload that can't be read.
    pub fn load_payload(&mut self, id: Id, payload: &[u8]) -> Result<(), BankError> {
        let (filter, _) = BloomFilter::decode_prefix(payload)?;
        self.load(id, filter)
    }

    /// `filteradd`: inserts an element, which may be empty, into the peer's filter.
    ///
    /// # Errors
    /// More than 520 bytes, or a peer without a filter.
    pub fn add(&mut self, id: &Id, data: &[u8]) -> Result<(), BankError> {
        if data.len() > MAX_FILTERADD_SIZE {
            return Err(PayloadError::DataTooLarge(data.len()).into());
        }
        let &number = self.numbers.get(id).ok_or(BankError::NoFilter)?;
        self.shards[number / SHARD].insert(self.backend, number % SHARD, data);
        Ok(())
    }

    /// `filteradd` as it comes over the wire. Bytes behind the message are ignored, as in Core.
    ///
    /// # Errors
    /// As [`add`](Self::add), or a payload that can't be read.
    pub fn add_payload(&mut self, id: &Id, payload: &[u8]) -> Result<(), BankError> {
        let (data, _) = AddedData::decode_prefix(payload)?;
        self.add(id, data.as_bytes())
    }

    /// `filterclear`: drops the peer's filter, if it has one. The peer gets every transaction from
    /// now on, and no merkle blocks.
    ///
    /// Right also for a peer that asks for everything from the start (`fRelay` of its version
    /// message).
    pub fn clear(&mut self, id: Id) {
        self.remove(&id);
        self.cleared.insert(id);
    }

    /// Forgets a peer. Returns whether the bank knew it.
    pub fn remove(&mut self, id: &Id) -> bool {
        let Some(number) = self.numbers.remove(id) else {
            return self.cleared.remove(id);
        };
        // The last filter moves into the gap.
        let last = self.owners.len() - 1;
        if number != last {
            let filter = self.filter(last);
            self.put(number, &filter);
            self.numbers.insert(self.owners[last].id.clone(), number);
        }
        self.owners.swap_remove(number);
        self.shards[last / SHARD].pop();
        if last.is_multiple_of(SHARD) {
            self.shards.pop();
        }
        true
    }

    /// A copy of the peer's filter as it is now, with what was inserted since it was loaded.
    /// `None` also for a peer that gets everything.
    pub fn get(&self, id: &Id) -> Option<BloomFilter> {
        self.numbers.get(id).map(|&number| self.filter(number))
    }

    /// Whether the peer gets everything since [`clear`](Self::clear).
    pub fn relays_everything(&self, id: &Id) -> bool {
        self.cleared.contains(id)
    }

    /// The number of filters.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there is no filter.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The peers that have a filter, in ascending order.
    pub fn ids(&self) -> impl Iterator<Item = &Id> {
        self.numbers.keys()
    }

    /// The peers that get everything, in ascending order.
    pub fn cleared_ids(&self) -> impl Iterator<Item = &Id> {
        self.cleared.iter()
    }

    /// The peers to announce a transaction to, in ascending order, and why; inserts outpoints as
    /// each filter's flags say.
    ///
    /// Those that get everything are among them, with [`MatchReason::Everything`].
    pub fn match_transaction(&mut self, transaction: &Transaction) -> Vec<(Id, TxMatch)> {
        let matches = self.match_elements(&Elements::from_transaction(transaction));
        matches.into_iter().filter_map(|(id, mut matches)| Some((id, matches.pop()?))).collect()
    }

    /// The peers to announce transactions to, in ascending order, and for each which and why: as
    /// if each filter were alone, and each transaction announced after the other.
    ///
    /// Those that get everything are among them, with [`MatchReason::Everything`].
    ///
    /// # Cost
    /// For one transaction a few nanoseconds for each filter and element.
    pub fn match_elements(&mut self, elements: &Elements) -> Vec<(Id, Vec<TxMatch>)> {
        let mut found = self.match_filters(elements);
        if !self.cleared.is_empty() && !elements.is_empty() {
            let everything = TxMatch::everything(elements);
            found.extend(self.cleared.iter().map(|id| (id.clone(), everything.clone())));
            found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        }
        found
    }

    /// For each peer with a filter that matches transactions of a block, in ascending order,
    /// which and why: as if each filter were alone.
    ///
    /// Those that get everything are not among them: a peer without a filter gets no merkle
    /// block.
    pub fn match_block(&mut self, block: &BlockElements) -> Vec<(Id, Vec<TxMatch>)> {
        self.match_filters(block.elements())
    }

    /// The transactions of a block that match one peer's filter: its answer to `getdata` of a
    /// filtered block. `None` if it has no filter: Core then does not answer.
    pub fn match_block_for(&mut self, id: &Id, block: &BlockElements) -> Option<Vec<TxMatch>> {
        self.numbers.get(id).copied().map(|number| self.match_one(number, block.elements()))
    }

    fn match_filters(&mut self, elements: &Elements) -> Vec<(Id, Vec<TxMatch>)> {
        let mut hits = Vec::new();
        if elements.num_elements() > Self::FEW_ELEMENTS {
            hits.extend(0..self.owners.len());
        } else {
            let mixed = Mixed::new(elements);
            for (shard, start) in self.shards.iter().zip((0..).step_by(SHARD)) {
                let masks = shard.probe(self.backend, &mixed, &mut self.scratch);
                for (mask, start) in masks.iter().zip((start..).step_by(16)) {
                    let mut mask = *mask;
                    while mask != 0 {
                        hits.push(start + mask.trailing_zeros() as usize);
                        mask &= mask - 1;
                    }
                }
            }
        }
        let mut found = Vec::new();
        for number in hits {
            let matches = self.match_one(number, elements);
            if !matches.is_empty() {
                found.push((self.owners[number].id.clone(), matches));
            }
        }
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        found
    }

    /// Matches one filter alone.
    fn match_one(&mut self, number: usize, elements: &Elements) -> Vec<TxMatch> {
        let mut filter = self.filter(number);
        let matches = filter.match_elements(elements);
        if matches.iter().any(|found| found.inserted().next().is_some()) {
            self.shards[number / SHARD].data_mut(number % SHARD).copy_from_slice(filter.data());
        }
        matches
    }

    fn filter(&self, number: usize) -> BloomFilter {
        let (shard, flags) = (&self.shards[number / SHARD], self.owners[number].flags);
        let params = shard.params(number % SHARD);
        let bits = BitArray::copy_of(shard.data(number % SHARD)).expect("36,000 bytes at most");
        BloomFilter::from_bits(bits, params.hash_funcs, params.tweak, flags)
            .with_backend(self.backend)
    }

    /// Puts a filter in the place of another one; not its flags.
    fn put(&mut self, number: usize, filter: &BloomFilter) {
        self.shards[number / SHARD].replace(number % SHARD, filter.params(), filter.data());
    }
}

impl<Id: Ord + Clone + fmt::Debug> fmt::Debug for FilterBank<Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filters = self.numbers.iter().map(|(id, &number)| (id, self.filter(number)));
        f.debug_map()
            .entries(filters)
            .entries(self.cleared.iter().map(|id| (id, MatchReason::Everything)))
            .finish()
    }
}
