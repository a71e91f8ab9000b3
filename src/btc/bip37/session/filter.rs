//! The wallet's filter: the policy for building it, its elements, and the filter that the node has
//! loaded, as far as the session can follow it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{OutPoint, PublicKey, Script, Transaction, Txid};

use super::report::PrivacyReport;
use crate::btc::bip37::bloom_filter::outpoint_bytes;
use crate::btc::bip37::{AddedData, BloomFilter, FilterError, MAX_FILTERADD_SIZE, UpdateMode};
use crate::btc::script::pushes;
use crate::btc::wallet::{Relevance, WatchItem, WatchedItems};

/// Policy for building a wallet's filters.
///
/// Two filters of one wallet that differ in tweak or size have different false positives, so a
/// transaction that matches both filters almost certainly belongs to the wallet. Keep `tweak`
/// permanently, and restore `capacity` with it. Store both values in the wallet's file.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FilterPolicy {
    /// Random number of this wallet's filters, which is added to the seed of each hash function.
    pub tweak: u32,
    /// Number of elements for which the last filter was sized; 0 for a new wallet. When more
    /// elements are needed, the capacity grows to their number plus [`spare`](Self::spare). The
    /// capacity never shrinks.
    pub capacity: u32,
    /// Number of spare elements that are added to the capacity whenever it must grow.
    pub spare: u32,
    /// False-positive rate per element, when the filter contains as many elements as its capacity.
    pub fpr: f64,
    /// Rule for what the node inserts when an output matches.
    pub update: UpdateMode,
    /// `true` to insert public keys beside their hashes. P2PK outputs then match, and spends of
    /// P2PKH match without their outpoint. An observer can then tell the wallet's own keys from
    /// false positives.
    pub insert_keys: bool,
    /// `true` to insert the null outpoint, so that every block's coinbase transaction matches and
    /// proves the height of the block's tree. The option costs one transaction per block, and
    /// reveals that the wallet uses this option.
    pub insert_null_outpoint: bool,
    /// `true` to send new elements as `filteradd` while the capacity suffices. `filteradd` saves
    /// bandwidth, but reveals each new element itself to the node. With `false`, the whole filter
    /// is sent again.
    pub use_filteradd: bool,
}

impl FilterPolicy {
    /// Returns the policy for a new wallet with this random number: a false-positive rate of 1 in
    /// 100,000, capacity in steps of 100 elements, outpoints inserted by the node, and key hashes
    /// without public keys.
    pub fn new(tweak: u32) -> Self {
        Self {
            tweak,
            capacity: 0,
            spare: 100,
            fpr: 1e-5,
            update: UpdateMode::All,
            insert_keys: false,
            insert_null_outpoint: false,
            use_filteradd: false,
        }
    }
}

/// Returns the element by which BIP37 watches `script`: the longest non-empty data push, or the
/// last of several pushes with that length.
///
/// Returns `None` if the script pushes no data. No BIP37 filter can watch such a script.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::{Script, ScriptBuf, WPubkeyHash, hashes::Hash};
/// use chainsieve::btc::bip37::session::element_of;
/// let script = ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array([7; 20]));
/// assert_eq!(element_of(&script), Some(&[7; 20][..]));
/// // OP_TRUE pushes a number, which BIP37 does not test.
/// assert_eq!(element_of(Script::from_bytes(&[0x51])), None);
/// ```
pub fn element_of(script: &Script) -> Option<&[u8]> {
    // One push is enough for a match, and the longest push has the fewest accidental matches.
    pushes(script.as_bytes()).max_by_key(|data| data.len())
}

/// Returns `true` if BIP37 can watch `item`.
///
/// BIP37 cannot watch a script that pushes no data, see [`element_of`]. A coin is watched by its
/// outpoint, whatever its script.
pub fn is_watchable(item: &WatchItem) -> bool {
    match item {
        WatchItem::Script { script, .. } => element_of(script).is_some(),
        WatchItem::Key { .. } | WatchItem::OutPoint { .. } => true,
    }
}

/// The elements of the wallet's filter.
#[derive(Debug, Clone)]
pub(super) struct FilterElements {
    insert_keys: bool,
    /// The elements. The value is `true` if the element is an address: the hash of a key, or a push
    /// of a script.
    is_address: BTreeMap<Vec<u8>, bool>,
    /// The number of elements that are addresses: keys and scripts that the filter can distinguish.
    /// P2PKH and P2WPKH of one key are counted as one.
    addresses: usize,
}

impl FilterElements {
    /// Returns the elements of everything watched.
    pub(super) fn of(watch: &WatchedItems, policy: &FilterPolicy) -> Self {
        let mut elements =
            Self { insert_keys: policy.insert_keys, is_address: BTreeMap::new(), addresses: 0 };
        if policy.insert_null_outpoint {
            elements.insert_outpoint(&OutPoint::null());
        }
        // Only scripts that the caller added need elements of their own. All remaining scripts are
        // matched by the elements of their keys.
        for (_, script) in watch.scripts().filter(|(_, script)| script.is_named) {
            elements.insert_script(&script.script);
        }
        for key in watch.keys() {
            elements.insert_key(key);
        }
        for (outpoint, output) in watch.outputs() {
            let shows_key = output.script.is_some_and(|script| elements.shows_key(watch, script));
            // An outpoint that the caller added is always inserted. An outpoint that the session
            // found is needed only if the input that spends it pushes no key that is an element.
            if output.is_given || !shows_key {
                elements.insert_outpoint(outpoint);
            }
        }
        elements
    }

    /// Adds the elements of `item`. Returns `true` if an element is new.
    pub(super) fn add(&mut self, item: &WatchItem) -> bool {
        match item {
            WatchItem::Key { key, .. } => self.insert_key(key),
            WatchItem::Script { script, .. } => self.insert_script(script),
            WatchItem::OutPoint { outpoint, script } => {
                let new_script = script.as_ref().is_some_and(|script| self.insert_script(script));
                self.insert_outpoint(outpoint) || new_script
            }
        }
    }

    /// Adds the outpoints of those outputs of a confirmed transaction that `watch` has stored, if a
    /// filter needs the outpoints to match the inputs that spend them. Returns these outpoints.
    pub(super) fn learn(
        &mut self,
        watch: &WatchedItems,
        txid: Txid,
        relevance: &Relevance,
    ) -> Vec<OutPoint> {
        let mut needed = Vec::new();
        for received in &relevance.received {
            let outpoint = OutPoint { txid, vout: received.vout };
            // Outputs over the limit are not stored.
            let is_kept = watch.output(&outpoint).is_some();
            // BIP37 matches an input by its outpoint or by its pushes. If the input pushes a key
            // that is an element, the outpoint would only raise the false-positive rate.
            if is_kept && !self.shows_key(watch, received.script) {
                self.insert_outpoint(&outpoint);
                needed.push(outpoint);
            }
        }
        needed
    }

    /// Returns `true` if a filter matches the spend of this script without its outpoint, because
    /// the input pushes a key that is an element.
    fn shows_key(&self, watch: &WatchedItems, script: usize) -> bool {
        self.insert_keys && watch.script(script).is_some_and(|script| script.is_key_hash)
    }

    fn insert_script(&mut self, script: &Script) -> bool {
        element_of(script).is_some_and(|element| self.insert(element, true))
    }

    fn insert_key(&mut self, key: &PublicKey) -> bool {
        let new_hash = self.insert(key.pubkey_hash().as_byte_array(), true);
        let new_key = self.insert_keys && self.insert(&key.to_bytes(), false);
        new_hash || new_key
    }

    fn insert_outpoint(&mut self, outpoint: &OutPoint) -> bool {
        self.insert(&outpoint_bytes(outpoint), false)
    }

    /// Returns `true` if the element is new. An element that is an address stays an address.
    fn insert(&mut self, element: &[u8], is_address: bool) -> bool {
        if let Some(known) = self.is_address.get_mut(element) {
            self.addresses += usize::from(is_address && !*known);
            *known |= is_address;
            return false;
        }
        self.is_address.insert(element.to_vec(), is_address);
        self.addresses += usize::from(is_address);
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.is_address.keys().map(Vec::as_slice)
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.is_address.len()).unwrap_or(u32::MAX)
    }
}

/// The filter that is loaded on the current connection, and the policy by which the filter is
/// built.
#[derive(Debug, Clone)]
pub(super) struct NodeFilter {
    pub(super) policy: FilterPolicy,
    address_population: f64,
    /// The filter as it was sent, with the outpoints that the node has inserted for transactions in
    /// blocks. The node may have inserted further outpoints, which the mirror then lacks.
    pub(super) mirror: Option<BloomFilter>,
    /// Number of filters loaded so far, which identifies the filter under which a block was
    /// requested.
    pub(super) generation: u64,
    /// `No` unless the node's filter lacks some of the wallet's elements, or may do so.
    pub(super) behind: Behind,
    /// `false` if no filter is large enough for the wallet's elements. Answers to the earlier filter
    /// are then ignored.
    pub(super) fits: bool,
    /// Size in bytes and number of hash functions of the last filter.
    last_parameters: Option<(usize, u32)>,
}

/// The state of the node's filter, compared with the wallet's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    No,
    /// There are new elements, which the filter may contain by chance.
    Unknown,
    /// The filter lacks elements. The elements are sent once no superseded answer is outstanding: such an
    /// answer may show further coins, which the node has inserted into an earlier filter only.
    Yes,
}

/// A new filter to send.
pub(super) struct Load {
    pub(super) filter: BloomFilter,
    /// The information that the filter reveals to an observer, if the filter's parameters are new.
    pub(super) privacy: Option<PrivacyReport>,
}

impl NodeFilter {
    pub(super) fn new(policy: FilterPolicy, address_population: f64) -> Self {
        Self {
            policy,
            address_population,
            mirror: None,
            generation: 0,
            behind: Behind::No,
            fits: true,
            last_parameters: None,
        }
    }

    /// Returns `true` if a filter is loaded that lacks one of these outpoints.
    pub(super) fn lacks(&self, outpoints: &[OutPoint]) -> bool {
        let lacks = |mirror: &BloomFilter| outpoints.iter().any(|it| !mirror.contains_outpoint(it));
        self.mirror.as_ref().is_some_and(lacks)
    }

    /// Returns `true` if no filter is loaded, or if the loaded filter lacks an element.
    pub(super) fn lacks_any(&self, elements: &FilterElements) -> bool {
        let lacks = |mirror: &BloomFilter| elements.iter().any(|it| !mirror.contains(it));
        self.mirror.as_ref().is_none_or(lacks)
    }

    /// Handles a closed connection: the node's filter is dropped with it.
    pub(super) fn disconnect(&mut self) {
        self.mirror = None;
        // The next connection starts by loading all elements.
        (self.behind, self.fits) = (Behind::No, true);
    }

    /// Builds a filter of all elements, to be sent. Returns `None` if there are no elements: an
    /// empty filter would match nothing, and no filter is needed.
    ///
    /// # Errors
    /// Returns an error if no filter is large enough for the elements. The earlier filter then
    /// stays loaded.
    pub(super) fn load(&mut self, elements: &FilterElements) -> Result<Option<Load>, FilterError> {
        (self.behind, self.fits) = (Behind::No, true);
        if elements.len() == 0 {
            return Ok(None);
        }
        let mut policy = self.policy;
        if elements.len() > policy.capacity {
            policy.capacity = elements.len().saturating_add(policy.spare);
        }
        let filter = BloomFilter::new(policy.capacity, policy.fpr, policy.tweak, policy.update);
        let mut filter = filter.inspect_err(|_| self.fits = false)?;
        elements.iter().for_each(|element| filter.insert(element));
        self.policy = policy;
        self.generation += 1;
        self.mirror = Some(filter.clone());
        let privacy = self.privacy(&filter, elements);
        Ok(Some(Load { filter, privacy }))
    }

    /// Returns what the filter reveals to an observer, if its parameters differ from the last
    /// filter's.
    fn privacy(
        &mut self,
        filter: &BloomFilter,
        elements: &FilterElements,
    ) -> Option<PrivacyReport> {
        let parameters = (filter.data().len(), filter.hash_funcs());
        let last = self.last_parameters.replace(parameters);
        // With the same parameters, the new filter reveals no more than the last one.
        if last == Some(parameters) {
            return None;
        }
        let mut privacy = PrivacyReport::new(filter, elements.addresses, self.address_population);
        privacy.parameters_changed = last.is_some();
        privacy.keys_inserted = self.policy.insert_keys;
        Some(privacy)
    }

    /// Returns the elements that the filter lacks, to be sent as `filteradd`, and inserts them into
    /// the mirror.
    ///
    /// Returns `None` if a new filter must be loaded instead: the policy requires it, the capacity
    /// is exceeded, or an element is too long for `filteradd`.
    pub(super) fn add(&mut self, elements: &FilterElements) -> Option<Vec<AddedData>> {
        if !self.policy.use_filteradd || elements.len() > self.policy.capacity {
            return None;
        }
        let mirror = self.mirror.as_mut()?;
        if elements.iter().any(|element| element.len() > MAX_FILTERADD_SIZE) {
            return None;
        }
        let mut added = Vec::new();
        for element in elements.iter() {
            // An element that the mirror contains need not be sent. The node's filter contains at
            // least the elements of the mirror.
            if !mirror.contains(element)
                && let Ok(data) = AddedData::new(element)
            {
                mirror.insert(element);
                added.push(data);
            }
        }
        (self.behind, self.fits) = (Behind::No, true);
        Some(added)
    }

    /// Inserts into the mirror what the node inserts for these transactions of a block.
    /// `generation` is the number of the filter under which the block was requested.
    pub(super) fn follow<'a>(
        &mut self,
        generation: u64,
        transactions: impl Iterator<Item = &'a Transaction>,
    ) {
        // If the block was requested under an earlier filter, the node inserted the outpoints into
        // that filter.
        if generation == self.generation
            && let Some(mirror) = &mut self.mirror
        {
            transactions.for_each(|tx| drop(mirror.match_transaction(tx)));
        }
    }
}
