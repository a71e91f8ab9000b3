//! The filter that the node has, as far as it can be followed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use bitcoin::{OutPoint, Transaction};

use super::elements::FilterElements;
use super::policy::FilterPolicy;
use super::privacy::PrivacyReport;
use crate::btc::bip37::{AddedData, BloomFilter, MAX_FILTERADD_SIZE, SizingError};

/// The filter on the present connection, and the policy by which it is made.
#[derive(Debug, Clone)]
pub(super) struct NodeFilter {
    policy: FilterPolicy,
    address_population: f64,
    loaded: Option<Loaded>,
    /// Counts the filters loaded: an answer is held against the filter that it was asked under.
    generation: u64,
    /// There are elements that the filter lacks.
    is_behind: bool,
    /// Size and number of hash functions of the last filter.
    last_parameters: Option<(usize, u32)>,
}

#[derive(Debug, Clone)]
struct Loaded {
    /// The filter as it was sent.
    sent: Arc<BloomFilter>,
    /// The filter with what the node has inserted since, as far as blocks show: a lower bound.
    mirror: BloomFilter,
}

/// A filter to send.
pub(super) struct Load {
    pub(super) filter: BloomFilter,
    /// What it tells an observer, if its parameters are new.
    pub(super) privacy: Option<PrivacyReport>,
    /// The filter before lacked an element: what is in flight is answered without it.
    pub(super) is_late: bool,
}

impl NodeFilter {
    pub(super) fn new(policy: FilterPolicy, address_population: f64) -> Self {
        Self {
            policy,
            address_population,
            loaded: None,
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

    /// The filter as it was sent.
    pub(super) fn sent(&self) -> Option<&Arc<BloomFilter>> {
        self.loaded.as_ref().map(|loaded| &loaded.sent)
    }

    /// The node's filter, which may hold more.
    pub(super) fn mirror(&self) -> Option<&BloomFilter> {
        self.loaded.as_ref().map(|loaded| &loaded.mirror)
    }

    /// Whether elements were added that the filter lacks.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    pub(super) fn set_behind(&mut self) {
        self.is_behind = true;
    }

    /// Whether a filter is loaded that lacks one of these outpoints.
    pub(super) fn lacks(&self, outpoints: &[OutPoint]) -> bool {
        self.mirror().is_some_and(|mirror| outpoints.iter().any(|it| !mirror.contains_outpoint(it)))
    }

    /// The connection is gone, and the node's filter with it.
    pub(super) fn disconnect(&mut self) {
        self.loaded = None;
        // The next connection begins by loading everything.
        self.is_behind = false;
    }

    /// Makes a filter of all elements, to be sent. `None` if there are no elements: a filter of
    /// nothing would let nothing through, and no filter asks for nothing.
    ///
    /// # Errors
    /// No filter has room for the elements. The one before stays.
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
        let sent = Arc::new(filter.clone());
        self.loaded = Some(Loaded { sent, mirror: filter.clone() });
        let privacy = self.privacy(&filter, elements);
        Ok(Some(Load { filter, privacy, is_late }))
    }

    /// What the filter tells an observer, if its parameters differ from the last filter's.
    fn privacy(
        &mut self,
        filter: &BloomFilter,
        elements: &FilterElements,
    ) -> Option<PrivacyReport> {
        let parameters = (filter.data().len(), filter.hash_funcs());
        let last = self.last_parameters.replace(parameters);
        if last == Some(parameters) {
            return None;
        }
        let own = elements.num_addresses();
        let mut privacy = PrivacyReport::new(filter, own, self.address_population);
        privacy.parameters_changed = last.is_some();
        privacy.keys_inserted = self.policy.insert_keys;
        Some(privacy)
    }

    /// The elements that the filter lacks, to be sent as `filteradd`; they count as sent. `None` if
    /// the filter is to be loaded instead: by the policy, for want of room, or since an element is
    /// too long for `filteradd`.
    pub(super) fn add(&mut self, elements: &FilterElements) -> Option<Vec<AddedData>> {
        if !self.policy.use_filteradd || elements.len() > self.policy.capacity {
            return None;
        }
        let Loaded { mirror, .. } = self.loaded.as_mut()?;
        if elements.iter().any(|element| element.len() > MAX_FILTERADD_SIZE) {
            return None;
        }
        let mut added = Vec::new();
        for element in elements.iter() {
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

    /// Follows what the node inserts for these transactions of a block that was asked for under
    /// the filter with this number.
    pub(super) fn follow<'a>(
        &mut self,
        generation: u64,
        transactions: impl Iterator<Item = &'a Transaction>,
    ) {
        // Under a filter before, the node inserted into that one.
        if generation == self.generation
            && let Some(loaded) = &mut self.loaded
        {
            transactions.for_each(|tx| drop(loaded.mirror.match_transaction(tx)));
        }
    }
}
