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

use super::bit_array::BitArray;
use super::probe::bank::{Mixed, Rows, SHARD, Shard};
use super::{
    AddedData, BlockElements, BloomFilter, Elements, MAX_BLOOM_FILTER_SIZE, MAX_FILTERADD_SIZE,
    MAX_HASH_FUNCS, MatchReason, PayloadError, TxMatch,
};
use crate::simd::Backend;

/// Why a bank refuses a peer's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BankError {
    /// The message is malformed or over a limit.
    Payload(PayloadError),
    /// `filteradd` by a peer that has no filter: none was loaded, or it was cleared.
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

impl fmt::Display for BankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload(error) => error.fmt(f),
            Self::NoFilter => f.write_str("data to add, and no filter is loaded"),
        }
    }
}

impl core::error::Error for BankError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Payload(error) => Some(error),
            Self::NoFilter => None,
        }
    }
}

impl From<PayloadError> for BankError {
    fn from(error: PayloadError) -> Self {
        Self::Payload(error)
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
/// bank.add("alice", transaction.compute_txid().as_ref())?;
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
    shards: Vec<Shard>,
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
    /// A copy of the filter; now and then one of up to 255 others.
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
    pub fn add(&mut self, id: Id, data: &[u8]) -> Result<(), BankError> {
        if data.len() > MAX_FILTERADD_SIZE {
            return Err(PayloadError::DataTooLarge(data.len()).into());
        }
        let &number = self.numbers.get(&id).ok_or(BankError::NoFilter)?;
        self.shards[number / SHARD].insert(self.backend, number % SHARD, data);
        Ok(())
    }

    /// `filteradd` as it comes over the wire. Bytes behind the message are ignored, as in Core.
    ///
    /// # Errors
    /// As [`add`](Self::add), or a payload that can't be read.
    pub fn add_payload(&mut self, id: Id, payload: &[u8]) -> Result<(), BankError> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bitcoin::consensus::{deserialize, serialize};
    use bitcoin::hashes::Hash as _;
    use bitcoin::{Block, Transaction};

    use super::{BankError, FilterBank};
    use crate::btc::bip37::bit_array::BitArray;
    use crate::btc::bip37::{
        AddedData, BlockElements, BloomFilter, Elements, MatchReason, PayloadError, TxMatch,
        UpdateMode,
    };
    use crate::simd::Backend;

    fn block(height: u32) -> Block {
        let file = match height {
            255_018 => include_str!("../../../fixtures/bitcoin/blocks/mainnet_255018.json"),
            150_013 => include_str!("../../../fixtures/bitcoin/blocks/mainnet_150013.json"),
            _ => unreachable!("not among the fixtures"),
        };
        let (_, block) = file.split_once("\"block\": \"").unwrap();
        let (block, _) = block.split_once('"').unwrap();
        deserialize(&hex::decode(block).unwrap()).unwrap()
    }

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            u32::try_from((mixed ^ mixed >> 31) >> 32).unwrap()
        }

        fn below(&mut self, limit: u32) -> u32 {
            self.next() % limit
        }

        fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
            &from[self.below(u32::try_from(from.len()).unwrap()) as usize]
        }

        fn bytes(&mut self, length: usize) -> Vec<u8> {
            (0..length).map(|_| self.next().to_le_bytes()[3]).collect()
        }

        /// Any filter that a peer may load, useless ones included, with something of the
        /// transactions in half of them.
        fn filter(&mut self, transactions: &[Transaction]) -> BloomFilter {
            let size = *self.pick(&[0, 1, 1, 2, 3, 4, 5, 7, 64, 100, 333, 2_396, 2_396, 36_000]);
            let hash_funcs = match self.below(4) {
                0 => self.below(5),
                1 => 50,
                _ => self.below(51),
            };
            let any = self.next();
            let tweak = *self.pick(&[0, 1, u32::MAX, any]);
            let flags = *self.pick(&[0, 1, 1, 1, 2, 3, 0x81]);
            let data = match self.below(8) {
                0 => vec![0xff; size],
                // Half full, a quarter, an eighth.
                1 => self.bytes(size),
                2 => (0..size).map(|_| self.bytes(2).iter().fold(!0, |a, b| a & b)).collect(),
                3 => (0..size).map(|_| self.bytes(3).iter().fold(!0, |a, b| a & b)).collect(),
                _ => vec![0; size],
            };
            let bits = BitArray::from_bytes(data).unwrap();
            let mut filter = BloomFilter::from_bits(bits, hash_funcs, tweak, flags);
            for _ in 0..self.below(4) {
                filter.insert(&self.element(transactions));
            }
            filter
        }

        /// Something that a filter may look for in the transactions.
        fn element(&mut self, transactions: &[Transaction]) -> Vec<u8> {
            let transaction = self.pick(transactions);
            match self.below(4) {
                0 => transaction.compute_txid().to_byte_array().to_vec(),
                1 => serialize(&self.pick(&transaction.input).previous_output),
                _ => {
                    let script = &self.pick(&transaction.output).script_pubkey;
                    let mut pushes = crate::btc::script::pushes(script.as_bytes());
                    pushes.next().unwrap_or_default().to_vec()
                }
            }
        }
    }

    /// Each peer's filter alone; `None` for a peer that gets everything.
    type Alone = BTreeMap<u32, Option<BloomFilter>>;

    fn alone(peers: &mut Alone, transaction: &Transaction) -> Vec<(u32, TxMatch)> {
        let everything = TxMatch {
            index: 0,
            txid: transaction.compute_txid(),
            reasons: vec![MatchReason::Everything],
        };
        let matches = peers.iter_mut().filter_map(|(&id, filter)| match filter {
            Some(filter) => Some((id, filter.match_transaction(transaction)?)),
            None => Some((id, everything.clone())),
        });
        matches.collect()
    }

    fn assert_equal(bank: &FilterBank<u32>, peers: &Alone) {
        let filters = peers.iter().filter(|(_, filter)| filter.is_some()).map(|(id, _)| id);
        assert!(bank.ids().eq(filters));
        let cleared = peers.iter().filter(|(_, filter)| filter.is_none()).map(|(id, _)| id);
        assert!(bank.cleared_ids().eq(cleared));
        assert_eq!(bank.len(), bank.ids().count());
        for (id, filter) in peers {
            assert_eq!(&bank.get(id), filter);
            assert_eq!(bank.relays_everything(id), filter.is_none());
        }
    }

    #[test]
    fn as_if_each_filter_were_alone() {
        let blocks = [block(255_018), block(150_013)];
        let transactions: Vec<_> =
            blocks.iter().flat_map(|block| block.txdata.iter().cloned()).collect();
        for backend in Backend::available() {
            let mut random = Random(5);
            let mut bank = FilterBank::new().with_backend(backend);
            let mut peers = Alone::new();
            let (mut matched, mut grown) = (0, 0);
            for (round, transaction) in transactions.iter().enumerate() {
                for _ in 0..random.below(12) {
                    let id = random.below(if round < 150 { 600 } else { 40 });
                    match random.below(10) {
                        0..5 => {
                            let filter = random.filter(&transactions);
                            if random.below(2) == 0 {
                                bank.load(id, filter.clone()).unwrap();
                            } else {
                                // Core ignores what stands behind the message.
                                let payload = [filter.encode(), vec![7; 3]].concat();
                                bank.load_payload(id, &payload).unwrap();
                            }
                            peers.insert(id, Some(filter));
                        }
                        5 | 6 => {
                            let data = random.element(&transactions);
                            let added = if random.below(2) == 0 {
                                bank.add(id, &data)
                            } else {
                                let payload = AddedData::new(data.clone()).unwrap().encode();
                                bank.add_payload(id, &[payload, vec![7; 3]].concat())
                            };
                            match peers.get_mut(&id).and_then(Option::as_mut) {
                                Some(filter) => {
                                    added.unwrap();
                                    filter.insert(&data);
                                }
                                None => assert_eq!(added, Err(BankError::NoFilter)),
                            }
                        }
                        7 => {
                            bank.clear(id);
                            peers.insert(id, None);
                        }
                        _ => assert_eq!(bank.remove(&id), peers.remove(&id).is_some()),
                    }
                }
                if round > 250 {
                    // Down to none.
                    for id in 0..600 {
                        if random.below(20) == 0 {
                            assert_eq!(bank.remove(&id), peers.remove(&id).is_some());
                        }
                    }
                }
                let before: u64 = peers.values().flatten().map(BloomFilter::bits_set).sum();
                let expected = alone(&mut peers, transaction);
                assert_eq!(bank.match_transaction(transaction), expected, "{backend:?}");
                let after: u64 = peers.values().flatten().map(BloomFilter::bits_set).sum();
                matched += expected.len();
                grown += usize::from(after > before);
                assert_equal(&bank, &peers);
            }
            // The test sees what it is about.
            assert!(matched > 1_000 && grown > 20, "{matched} matches, {grown} with insertions");
        }
    }

    #[test]
    fn every_number_of_filters() {
        let block = block(255_018);
        let mut random = Random(5);
        let filters: Vec<_> = (0..1_000).map(|_| random.filter(&block.txdata)).collect();
        for backend in Backend::available() {
            for count in [0, 1, 15, 16, 17, 255, 256, 257, 1_000] {
                let mut bank = FilterBank::new().with_backend(backend);
                let mut peers = Alone::new();
                // Loaded in an order that is not that of the ids.
                for i in 0..count {
                    let id = i * 7_919 % 1_009;
                    bank.load(id, filters[i as usize].clone()).unwrap();
                    peers.insert(id, Some(filters[i as usize].clone()));
                }
                for transaction in &block.txdata[..5] {
                    let expected = alone(&mut peers, transaction);
                    assert_eq!(bank.match_transaction(transaction), expected, "{backend:?}");
                }
                assert_equal(&bank, &peers);
            }
        }
    }

    #[test]
    fn blocks_and_several_transactions() {
        for block in [block(255_018), block(150_013)] {
            let mut short = block.clone();
            short.txdata.truncate(12);
            for block in [short, block] {
                let elements = BlockElements::from_block(&block);
                for backend in Backend::available() {
                    let mut random = Random(5);
                    let mut bank = FilterBank::new().with_backend(backend);
                    let mut peers = Alone::new();
                    for id in 0..100 {
                        let filter = random.filter(&block.txdata);
                        bank.load(id, filter.clone()).unwrap();
                        peers.insert(id, Some(filter));
                    }
                    let mut one_by_one = bank.clone();
                    let mut relayed = bank.clone();
                    relayed.clear(1_000);
                    relayed.clear(50);
                    bank.clear(1_000);

                    let expected: Vec<_> = peers
                        .iter_mut()
                        .filter_map(|(&id, filter)| {
                            let matches = filter.as_mut().unwrap().match_block(&elements);
                            (!matches.is_empty()).then_some((id, matches))
                        })
                        .collect();
                    assert_eq!(bank.match_block(&elements), expected);
                    peers.insert(1_000, None);
                    assert_equal(&bank, &peers);

                    // One peer after the other.
                    for (id, filter) in &peers {
                        let matches = one_by_one.match_block_for(id, &elements);
                        assert_eq!(matches.is_some(), filter.is_some());
                        let expected = expected.iter().find(|(other, _)| other == id);
                        let expected = expected.map(|(_, matches)| matches.clone());
                        assert_eq!(matches.unwrap_or_default(), expected.unwrap_or_default());
                    }
                    one_by_one.clear(1_000);
                    assert_equal(&one_by_one, &peers);

                    // Relayed, with those that get everything.
                    let found = relayed.match_elements(elements.elements());
                    let everything = found.iter().filter(|(id, _)| [50, 1_000].contains(id));
                    for (_, matches) in everything.clone() {
                        assert_eq!(matches.len(), block.txdata.len());
                        assert!(
                            matches.iter().all(|found| found.reasons == [MatchReason::Everything])
                        );
                    }
                    assert_eq!(everything.count(), 2);
                    let others = found.iter().filter(|(id, _)| ![50, 1_000].contains(id));
                    assert!(others.eq(expected.iter().filter(|(id, _)| *id != 50)));
                    assert!(found.is_sorted_by_key(|(id, _)| *id));
                }
            }
        }
    }

    /// Elements of every length, also those that no class has.
    #[test]
    fn every_length_of_an_element() {
        let mut template = block(255_018).txdata[1].clone();
        template.output.truncate(1);
        for backend in Backend::available() {
            let mut random = Random(5);
            for length in (1..80).chain([127, 128, 131, 132, 133, 519, 520, 521, 3_000]) {
                let data = random.bytes(length);
                let push: &bitcoin::script::PushBytes = data.as_slice().try_into().unwrap();
                template.output[0].script_pubkey =
                    bitcoin::ScriptBuf::builder().push_slice(push).into_script();
                let mut bank = FilterBank::new().with_backend(backend);
                for id in 0..40 {
                    let mut filter = BloomFilter::new(20, 1e-6, id, UpdateMode::All).unwrap();
                    if id % 3 == 0 {
                        filter.insert(&data);
                    }
                    bank.load(id, filter).unwrap();
                }
                let found = bank.match_elements(&Elements::from_transaction(&template));
                assert!(found.iter().map(|(id, _)| *id).eq((0..40).step_by(3)), "{length} bytes");
            }
        }
    }

    #[test]
    fn limits_and_errors() {
        let with = |bytes: usize, hash_funcs| {
            BloomFilter::from_bits(BitArray::from_bytes(vec![1; bytes]).unwrap(), hash_funcs, 0, 0)
        };
        let mut bank = FilterBank::new();
        bank.load("a", with(36_000, 50)).unwrap();
        let before = bank.get(&"a");
        let refused = [
            (with(36_001, 50), PayloadError::FilterTooLarge(36_001)),
            (with(36_000, 51), PayloadError::TooManyHashFuncs(51)),
        ];
        for (filter, error) in refused {
            assert_eq!(bank.load("a", filter.clone()), Err(BankError::Payload(error)));
            assert_eq!(bank.load_payload("b", &filter.encode()), Err(BankError::Payload(error)));
            assert!(BankError::from(error).is_misbehavior());
        }
        assert_eq!(bank.get(&"a"), before);
        assert_eq!(bank.get(&"b"), None);

        bank.add("a", &[]).unwrap();
        bank.add("a", &[3; 520]).unwrap();
        let too_large = Err(BankError::Payload(PayloadError::DataTooLarge(521)));
        assert_eq!(bank.add("a", &[3; 521]), too_large);
        assert_eq!(bank.add("b", &[3; 521]), too_large);
        assert!(too_large.unwrap_err().is_misbehavior());
        assert_eq!(bank.add("b", &[]), Err(BankError::NoFilter));
        assert!(BankError::NoFilter.is_misbehavior());

        // What Core cannot read it ignores.
        let truncated = bank.load_payload("a", &[3, 1, 1]).unwrap_err();
        assert!(!truncated.is_misbehavior());
        assert!(!bank.add_payload("a", &[0xfd, 1, 0, 9]).unwrap_err().is_misbehavior());

        bank.clear("a");
        assert_eq!(bank.add("a", &[1]), Err(BankError::NoFilter));
        assert!(bank.is_empty() && bank.relays_everything(&"a") && bank.get(&"a").is_none());
        bank.load("a", with(1, 1)).unwrap();
        assert!(!bank.relays_everything(&"a") && bank.len() == 1);
        assert!(bank.remove(&"a") && !bank.remove(&"a"));
        bank.clear("c");
        assert!(bank.remove(&"c") && !bank.relays_everything(&"c"));
        assert_eq!(format!("{bank:?}"), "{}");
    }
}
