//! The node's filter, as far as the session can follow it.

use alloc::vec::Vec;

use bitcoin::{OutPoint, Transaction};

use super::elements::FilterElements;
use super::policy::FilterPolicy;
use super::privacy::PrivacyReport;
use crate::btc::bip37::{AddedData, BloomFilter, MAX_FILTERADD_SIZE, SizingError};

/// The filter that is loaded on the present connection, and the policy by which it is built.
#[derive(Debug, Clone)]
pub(super) struct NodeFilter {
    policy: FilterPolicy,
    address_population: f64,
    /// The filter as it was sent, with the outpoints that the node has inserted for transactions in
    /// blocks. The node may have inserted further outpoints, which the mirror then lacks.
    mirror: Option<BloomFilter>,
    /// Number of filters loaded so far, which identifies the filter under which a block was
    /// requested.
    generation: u64,
    /// `true` if the node's filter lacks some of the wallet's elements.
    is_behind: bool,
    /// Size in bytes and number of hash functions of the last filter.
    last_parameters: Option<(usize, u32)>,
}

/// A new filter to send.
pub(super) struct Load {
    pub(super) filter: BloomFilter,
    /// The information that the filter reveals to an observer, if the filter's parameters are new.
    pub(super) privacy: Option<PrivacyReport>,
    /// `true` if the earlier filter lacked an element, so that blocks in flight are answered
    /// without it.
    pub(super) is_late: bool,
}

impl NodeFilter {
    pub(super) fn new(policy: FilterPolicy, address_population: f64) -> Self {
        Self {
            policy,
            address_population,
            mirror: None,
            generation: 0,
            is_behind: false,
            last_parameters: None,
        }
    }

    pub(super) fn policy(&self) -> &FilterPolicy {
        &self.policy
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the mirror of the node's filter. The node's own filter may contain more elements.
    pub(super) fn mirror(&self) -> Option<&BloomFilter> {
        self.mirror.as_ref()
    }

    /// Returns `true` if the node's filter lacks some of the wallet's elements.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    pub(super) fn set_behind(&mut self) {
        self.is_behind = true;
    }

    /// Returns `true` if a filter is loaded that lacks one of these outpoints.
    pub(super) fn lacks(&self, outpoints: &[OutPoint]) -> bool {
        self.mirror().is_some_and(|mirror| outpoints.iter().any(|it| !mirror.contains_outpoint(it)))
    }

    /// Handles a closed connection: the node's filter is dropped with it.
    pub(super) fn disconnect(&mut self) {
        self.mirror = None;
        // The next connection starts by loading all elements.
        self.is_behind = false;
    }

    /// Builds a filter of all elements, to be sent. Returns `None` if there are no elements: an
    /// empty filter would match nothing, and no filter is needed.
    ///
    /// # Errors
    /// Returns an error if no filter is large enough for the elements. The earlier filter then
    /// stays loaded.
    pub(super) fn load(&mut self, elements: &FilterElements) -> Result<Option<Load>, SizingError> {
        self.is_behind = false;
        if elements.len() == 0 {
            return Ok(None);
        }
        let mut policy = self.policy;
        policy.grow(elements.len());
        let mut filter =
            BloomFilter::new(policy.capacity, policy.fpr, policy.tweak, policy.update)?;
        elements.iter().for_each(|element| filter.insert(element));
        self.policy = policy;
        let is_late = self
            .mirror()
            .is_some_and(|mirror| elements.iter().any(|element| !mirror.contains(element)));
        self.generation += 1;
        self.mirror = Some(filter.clone());
        let privacy = self.privacy(&filter, elements);
        Ok(Some(Load { filter, privacy, is_late }))
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
        let own = elements.num_addresses();
        let mut privacy = PrivacyReport::new(filter, own, self.address_population);
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
        self.is_behind = false;
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
