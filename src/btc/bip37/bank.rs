//! Bank of the filters that a node's peers have loaded, all tested at once.
//!
//! A node has one filter for each peer, and tests every filter against each transaction that it
//! relays. [`FilterBank`] extracts and mixes the elements of the transaction once, and probes
//! sixteen filters at a time in SIMD lanes.
//!
//! If a filter may contain an element, [`BloomFilter::match_elements`] then matches this filter as
//! a single filter. Results, their order and updates are therefore the same as without a bank. Few
//! filters need this second step, except for filters that match nearly everything.

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

/// Reason why a bank rejects a peer's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BankError {
    /// The message is malformed or over a limit.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A peer without a filter sent `filteradd`: it loaded none, or it cleared its filter.
    #[error("filteradd, but no filter is loaded")]
    NoFilter,
}

impl BankError {
    /// Returns `true` if Core punishes the peer for the message (`Misbehaving`).
    ///
    /// Core punishes a filter or data over the limits, and `filteradd` without a filter. Core
    /// ignores a payload that it cannot decode.
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

/// Filters of many peers, by peer id.
///
/// As in Core, a peer is in one of three states:
///
/// - the peer has a filter ([`load`](Self::load));
/// - the peer gets every transaction ([`clear`](Self::clear));
/// - the bank does not know the peer, and no result contains its id.
///
/// The caller is a node, and must check first that it offers BIP37 at all (service bit 2).
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
    /// For each peer, the number of its filter, which is the index in `owners` and the position in
    /// the shards.
    numbers: BTreeMap<Id, usize>,
    owners: Vec<Owner<Id>>,
    /// Shards of filters; all but the last one are full.
    pub(super) shards: Vec<Shard>,
    /// The peers that get every transaction.
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
    /// Largest number of elements for which filters are probed in lanes. With more elements, the
    /// filters are matched one by one, with the elements in lanes.
    const FEW_ELEMENTS: usize = 256;

    /// Returns a bank without peers.
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

    /// Probes with `backend` instead of the best backend of this CPU. Results do not change.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Returns the set of CPU instructions that the filters are probed with.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Handles `filterload`: replaces the peer's filter, or its request for every transaction, by
    /// `filter`.
    ///
    /// # Errors
    /// Returns an error if the filter is over the limits of 36,000 bytes and 50 hash functions. The
    /// peer's earlier filter is then kept.
    ///
    /// # Cost
    /// A copy of the filter. Occasionally the bank also copies up to 1,023 other filters, to
    /// reclaim memory.
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
        // A peer that already has a filter keeps its number.
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

    /// Handles the payload of a `filterload` message. Trailing bytes are ignored, as in Core.
    ///
    /// # Errors
    /// Returns the errors of [`load`](Self::load), and an error if the payload cannot be decoded.
    pub fn load_payload(&mut self, id: Id, payload: &[u8]) -> Result<(), BankError> {
        let (filter, _) = BloomFilter::decode_prefix(payload)?;
        self.load(id, filter)
    }

    /// Handles `filteradd`: inserts an element, which may be empty, into the peer's filter.
    ///
    /// # Errors
    /// Returns an error if `data` has more than 520 bytes, or if the peer has no filter.
    pub fn add(&mut self, id: &Id, data: &[u8]) -> Result<(), BankError> {
        if data.len() > MAX_FILTERADD_SIZE {
            return Err(PayloadError::DataTooLarge(data.len()).into());
        }
        let &number = self.numbers.get(id).ok_or(BankError::NoFilter)?;
        self.shards[number / SHARD].insert(self.backend, number % SHARD, data);
        Ok(())
    }

    /// Handles the payload of a `filteradd` message. Trailing bytes are ignored, as in Core.
    ///
    /// # Errors
    /// Returns the errors of [`add`](Self::add), and an error if the payload cannot be decoded.
    pub fn add_payload(&mut self, id: &Id, payload: &[u8]) -> Result<(), BankError> {
        let (data, _) = AddedData::decode_prefix(payload)?;
        self.add(id, data.as_bytes())
    }

    /// Handles `filterclear`: removes the peer's filter, if it has one. From then on the peer gets
    /// every transaction and no merkle blocks.
    ///
    /// Also call this for a peer that asks for every transaction from the start (`fRelay` in its
    /// `version` message).
    pub fn clear(&mut self, id: Id) {
        self.remove(&id);
        self.cleared.insert(id);
    }

    /// Removes a peer. Returns `true` if the bank knew the peer.
    pub fn remove(&mut self, id: &Id) -> bool {
        let Some(number) = self.numbers.remove(id) else {
            return self.cleared.remove(id);
        };
        // Numbers must stay without gaps, so the last filter takes the number of the removed
        // filter.
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

    /// Returns a copy of the peer's filter, including all elements inserted since it was loaded.
    ///
    /// Returns `None` for an unknown peer and for a peer that gets every transaction.
    pub fn get(&self, id: &Id) -> Option<BloomFilter> {
        self.numbers.get(id).map(|&number| self.filter(number))
    }

    /// Returns `true` if the peer gets every transaction, because of [`clear`](Self::clear).
    pub fn relays_everything(&self, id: &Id) -> bool {
        self.cleared.contains(id)
    }

    /// Returns the number of filters.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Returns `true` if no peer has a filter.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Returns the peers that have a filter, in ascending order.
    pub fn ids(&self) -> impl Iterator<Item = &Id> {
        self.numbers.keys()
    }

    /// Returns the peers that get every transaction, in ascending order.
    pub fn cleared_ids(&self) -> impl Iterator<Item = &Id> {
        self.cleared.iter()
    }

    /// Returns the peers to announce a transaction to, in ascending order, with the reasons.
    /// Inserts outpoints as each filter's flags require.
    ///
    /// The result includes the peers that get every transaction, with [`MatchReason::Everything`].
    #[must_use]
    pub fn match_transaction(&mut self, transaction: &Transaction) -> Vec<(Id, TxMatch)> {
        let matches = self.match_elements(&Elements::from_transaction(transaction));
        matches.into_iter().filter_map(|(id, mut matches)| Some((id, matches.pop()?))).collect()
    }

    /// Returns the peers to announce transactions to, in ascending order, each with its
    /// transactions and the reasons.
    ///
    /// Each filter is matched as if the bank contained no other filter. The transactions are
    /// matched as if they were announced one after the other.
    ///
    /// The result includes the peers that get every transaction, with [`MatchReason::Everything`].
    ///
    /// # Cost
    /// A few nanoseconds for each filter and each element of a transaction.
    #[must_use]
    pub fn match_elements(&mut self, elements: &Elements) -> Vec<(Id, Vec<TxMatch>)> {
        let mut found = self.match_filters(elements);
        // Peers without a filter get every transaction, so no filter is probed for them.
        if !self.cleared.is_empty() && !elements.is_empty() {
            let everything = TxMatch::everything(elements);
            found.extend(self.cleared.iter().map(|id| (id.clone(), everything.clone())));
            found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        }
        found
    }

    /// Returns, for each peer whose filter matches transactions of a block, these transactions and
    /// the reasons, in ascending order of peers. Each filter is matched as if the bank contained no
    /// other filter.
    ///
    /// Peers that get every transaction are not in the result: a peer without a filter gets no
    /// merkle block.
    #[must_use]
    pub fn match_block(&mut self, block: &BlockElements) -> Vec<(Id, Vec<TxMatch>)> {
        self.match_filters(block.elements())
    }

    /// Returns the transactions of a block that match one peer's filter: the answer to its
    /// `getdata` for a filtered block.
    ///
    /// Returns `None` if the peer has no filter, because Core does not answer such a request.
    #[must_use]
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

    /// Matches a single filter, and stores the outpoints that the match inserted.
    fn match_one(&mut self, number: usize, elements: &Elements) -> Vec<TxMatch> {
        let mut filter = self.filter(number);
        let matches = filter.match_elements(elements);
        // `filter` is a copy. Only an inserted outpoint changes the copy, so it is stored only if
        // an outpoint was inserted.
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

    /// Replaces filter `number`, except for its flags.
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
