//! Matching of transactions against a filter: Bitcoin Core's `CBloomFilter::IsRelevantAndUpdate`,
//! with the reasons for each match.
//!
//! The order is Core's:
//!
//! 1. A filter without data matches everything.
//! 2. The txid is tested.
//! 3. Each output is tested, up to its first data push that the filter may contain. After a match,
//!    the [`UpdateMode`] decides if the outpoint is inserted. The next output is tested against the
//!    filter with this outpoint.
//! 4. Only if nothing has matched so far, each input is tested: its outpoint, then its pushes, up
//!    to the first element that the filter may contain.
//!
//! Witness data is never tested.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use bitcoin::{OutPoint, Transaction, Txid};

use super::elements::ElementPosition;
use super::probe::FilterView;
use super::probe::batch::{self, Prober};
use super::{BlockElements, BloomFilter, Elements, UpdateMode};

/// Reason why a transaction matched a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "kind", rename_all = "snake_case")
)]
pub enum MatchReason {
    /// The filter has no data and matches everything.
    Everything,
    /// The filter may contain the txid.
    Txid,
    /// The filter may contain data that an output's script pushes.
    Output {
        /// The position of the output in the transaction.
        vout: u32,
        /// The position among the script's non-empty pushes, from 0, of the first push that the
        /// filter may contain.
        push: u32,
        /// `true` if the match inserted the outpoint into the filter, as the filter's flags
        /// require.
        inserted: bool,
    },
    /// The filter may contain the outpoint that an input spends.
    Spent {
        /// The position of the input in the transaction.
        vin: u32,
    },
    /// The filter may contain data that an input's script pushes.
    InputData {
        /// The position of the input in the transaction.
        vin: u32,
        /// The position of the push among the script's non-empty pushes, from 0.
        push: u32,
    },
}

impl fmt::Display for MatchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("the filter matches everything"),
            Self::Txid => f.write_str("txid"),
            Self::Output { vout, push, inserted } => {
                let inserted = if *inserted { ", outpoint inserted" } else { "" };
                write!(f, "output {vout}, push {push}{inserted}")
            }
            Self::Spent { vin } => write!(f, "outpoint spent by input {vin}"),
            Self::InputData { vin, push } => write!(f, "input {vin}, push {push}"),
        }
    }
}

/// A transaction that may be relevant to a filter, with the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TxMatch {
    /// The transaction's position in the block, or 0 for a single transaction.
    pub index: u32,
    /// The txid.
    pub txid: Txid,
    /// All reasons in the order in which Core tests; never empty. A match of an input is
    /// listed only if neither the txid nor an output matched, and is then the only reason.
    pub reasons: Vec<MatchReason>,
}

impl TxMatch {
    /// Returns a match of every transaction, for a filter without data.
    pub(super) fn everything(elements: &Elements) -> Vec<Self> {
        let matches = (0..).zip(elements.txids()).map(|(index, &txid)| Self {
            index,
            txid,
            reasons: alloc::vec![MatchReason::Everything],
        });
        matches.collect()
    }

    /// Returns the outpoints that the match inserted into the filter.
    pub fn inserted(&self) -> impl Iterator<Item = OutPoint> {
        self.reasons.iter().filter_map(|reason| match *reason {
            MatchReason::Output { vout, inserted: true, .. } => {
                Some(OutPoint { txid: self.txid, vout })
            }
            _ => None,
        })
    }
}

impl BloomFilter {
    /// Tests if `tx` may be relevant, and inserts outpoints as the filter's flags require.
    ///
    /// Returns `None` if `tx` does not match. `None` is certain: no element of the transaction was
    /// ever inserted. For whole blocks, [`match_block`](Self::match_block) is several times faster.
    #[must_use]
    pub fn match_transaction(&mut self, tx: &Transaction) -> Option<TxMatch> {
        self.match_elements(&Elements::from_transaction(tx)).pop()
    }

    /// Returns `true` if `tx` may be relevant (Core's `IsRelevantAndUpdate`):
    /// [`match_transaction`](Self::match_transaction) without the reasons.
    #[must_use]
    pub fn is_relevant_and_update(&mut self, tx: &Transaction) -> bool {
        self.match_transaction(tx).is_some()
    }

    /// Returns the transactions of a block that may be relevant, in block order, with the reasons.
    ///
    /// If the filter's flags make a match insert an outpoint, the later transactions of the block
    /// are matched with the changed filter.
    #[must_use]
    pub fn match_block(&mut self, block: &BlockElements) -> Vec<TxMatch> {
        self.match_elements(block.elements())
    }

    /// Returns the transactions that may be relevant, in their order, with the reasons, as if they
    /// were matched one after the other.
    ///
    /// # Cost
    /// A few nanoseconds for each element.
    #[must_use]
    pub fn match_elements(&mut self, elements: &Elements) -> Vec<TxMatch> {
        if self.data().is_empty() {
            return TxMatch::everything(elements);
        }
        let mut matches = Vec::new();
        let mut verdicts = Verdicts::new(self, elements);
        let mut next = 0;
        while let Some(transaction) = verdicts.next_candidate(next, self, elements) {
            let reasons = self.reasons(elements, transaction, &mut verdicts);
            if !reasons.is_empty() {
                let index = u32::try_from(transaction).expect("transactions have 10 bytes");
                matches.push(TxMatch { index, txid: elements.txids()[transaction], reasons });
            }
            next = transaction + 1;
        }
        matches
    }

    /// Returns the reasons why a transaction matches (Core's `IsRelevantAndUpdate`). The filter
    /// must have data.
    fn reasons(
        &mut self,
        elements: &Elements,
        transaction: usize,
        verdicts: &mut Verdicts,
    ) -> Vec<MatchReason> {
        let mut reasons = Vec::new();
        if verdicts.contains(self, elements, elements.txid_slot(transaction)) {
            reasons.push(MatchReason::Txid);
        }
        let mut left = elements.elements_of(transaction);
        let mut matched = None;
        while let Some(element) = verdicts.next_possible(left.clone(), self, elements) {
            left.start = element + 1;
            let position = elements.position(element);
            match position {
                // Core stops at an output's first push that matches.
                ElementPosition::Output { vout, .. } if matched == Some(vout) => continue,
                // Core tests inputs only if neither the txid nor an output matched. Inputs come
                // last, so nothing is left to test. The condition also ends the loop after the
                // first input that matches.
                ElementPosition::Outpoint(_) | ElementPosition::InputData(_)
                    if !reasons.is_empty() =>
                {
                    break;
                }
                _ => {}
            }
            if !verdicts.contains(self, elements, elements.slot(element)) {
                continue;
            }
            let push = elements.push_number(element);
            reasons.push(match position {
                ElementPosition::Output { vout, pays_to_key } => {
                    matched = Some(vout);
                    let inserted = match self.update_mode() {
                        UpdateMode::None => false,
                        UpdateMode::All => true,
                        UpdateMode::P2PubkeyOnly => pays_to_key,
                    };
                    if inserted {
                        let txid = elements.txids()[transaction];
                        self.insert_outpoint(&OutPoint { txid, vout });
                        verdicts.grown = true;
                    }
                    MatchReason::Output { vout, push, inserted }
                }
                ElementPosition::Outpoint(vin) => MatchReason::Spent { vin },
                ElementPosition::InputData(vin) => MatchReason::InputData { vin, push },
            });
        }
        reasons
    }
}

/// Smallest number of elements that are probed in one batch. Fewer elements are probed one by one,
/// when they are needed.
const BATCH: usize = 64;

/// Results of probing the slots in one batch.
enum Kind {
    /// No slot was probed in advance.
    Unknown,
    /// One bit per slot, set if the filter may contain the element. This kind is used for a filter
    /// that does not grow.
    Contained(Vec<u64>),
    /// For each slot, the position of a bit that the element selects and that was clear when last
    /// tested, or `CONTAINED`. This kind is used for a filter that may grow.
    FirstClear(Vec<u32>),
}

/// The elements that the filter may contain, kept up to date while matches insert outpoints.
struct Verdicts {
    kind: Kind,
    /// The transactions with an element that the filter may have contained when it was probed.
    candidates: Vec<u32>,
    /// `true` if a match has inserted an outpoint since the elements were probed.
    grown: bool,
}

/// Marks a slot whose element the filter may contain, in place of a clear bit's position.
const CONTAINED: u32 = u32::MAX;

impl Verdicts {
    /// Probes all elements in one batch, if there are at least [`BATCH`].
    fn new(filter: &BloomFilter, elements: &Elements) -> Self {
        // A batch has a fixed cost, so probing a few elements one by one is cheaper.
        if elements.num_elements() < BATCH {
            return Self { kind: Kind::Unknown, candidates: Vec::new(), grown: false };
        }
        let grows = filter.update_mode() != UpdateMode::None;
        let mut first_clear = Vec::new();
        if grows {
            first_clear.resize(elements.num_elements() + batch::OVERRUN, CONTAINED);
        }
        let mut prober = Prober::new(filter.backend(), filter.view(), first_clear);
        elements.classes.iter().for_each(|class| prober.probe(class));
        for (slot, bytes) in elements.long() {
            match filter.first_clear(bytes) {
                None => prober.contained.push(slot),
                Some(bit) if grows => prober.first_clear[slot as usize] = bit,
                Some(_) => {}
            }
        }
        let Prober { contained, mut first_clear, .. } = prober;
        let mut candidates: Vec<u32> =
            contained.iter().map(|&slot| elements.transaction_in(slot)).collect();
        candidates.sort_unstable();
        candidates.dedup();
        let kind = if grows {
            for slot in contained {
                first_clear[slot as usize] = CONTAINED;
            }
            Kind::FirstClear(first_clear)
        } else {
            let mut bits = alloc::vec![0; elements.num_elements() / 64 + 1];
            for slot in contained {
                bits[slot as usize / 64] |= 1 << (slot % 64);
            }
            Kind::Contained(bits)
        };
        Self { kind, candidates, grown: false }
    }

    /// Returns the next transaction from `from` on that can match.
    fn next_candidate(
        &self,
        from: usize,
        filter: &BloomFilter,
        elements: &Elements,
    ) -> Option<usize> {
        // Without a batch, every transaction is a candidate.
        if from >= elements.len() || matches!(self.kind, Kind::Unknown) {
            return Some(from).filter(|&from| from < elements.len());
        }
        // While nothing was inserted, only transactions found by the batch can match.
        if !self.grown {
            let next = self.candidates.partition_point(|&candidate| (candidate as usize) < from);
            return self.candidates.get(next).map(|&candidate| candidate as usize);
        }
        // Chunks double in size, so that a search costs time in proportion to the distance to the
        // transaction that it finds, not to the length of the block.
        let (mut start, mut chunk) = (from, 1);
        while start < elements.len() {
            let end = (start + chunk).min(elements.len());
            let left = elements.elements_of(start).start..elements.elements_of(end - 1).end;
            let by_element = self.next_possible(left, filter, elements);
            let by_element = by_element.map(|element| elements.transaction_with(element));
            let mut ids = start..by_element.unwrap_or(end);
            let by_id = ids.find(|&next| self.is_possible(filter, elements.txid_slot(next)));
            if let Some(next) = by_id.or(by_element) {
                return Some(next);
            }
            (start, chunk) = (end, chunk * 2);
        }
        None
    }

    /// Returns the first of these elements that the filter can contain.
    #[inline]
    fn next_possible(
        &self,
        among: Range<usize>,
        filter: &BloomFilter,
        elements: &Elements,
    ) -> Option<usize> {
        match &self.kind {
            Kind::Unknown => Some(among.start).filter(|_| !among.is_empty()),
            Kind::Contained(bits) => elements.find(among, |slot| is_contained(bits, slot)),
            Kind::FirstClear(first_clear) => {
                let view = filter.view();
                elements.find(among, |slot| can_be_contained(first_clear, view, slot))
            }
        }
    }

    /// Returns `true` if the element in `slot` may be contained: it was contained, its recorded
    /// clear bit has been set since, or it was not probed.
    fn is_possible(&self, filter: &BloomFilter, slot: u32) -> bool {
        match &self.kind {
            Kind::Unknown => true,
            Kind::Contained(bits) => is_contained(bits, slot),
            Kind::FirstClear(first_clear) => can_be_contained(first_clear, filter.view(), slot),
        }
    }

    /// Returns `true` if `filter` may contain the element in `slot`, and records the result.
    fn contains(&mut self, filter: &BloomFilter, elements: &Elements, slot: u32) -> bool {
        if !self.is_possible(filter, slot) {
            return false;
        }
        let first_clear = match &mut self.kind {
            Kind::Unknown => {
                return elements.with_bytes(slot, |bytes| filter.contains(bytes));
            }
            Kind::Contained(_) => return true,
            Kind::FirstClear(first_clear) => &mut first_clear[slot as usize],
        };
        if *first_clear != CONTAINED {
            let now = elements.with_bytes(slot, |bytes| filter.first_clear(bytes));
            *first_clear = now.unwrap_or(CONTAINED);
        }
        *first_clear == CONTAINED
    }
}

#[inline(always)]
fn is_contained(bits: &[u64], slot: u32) -> bool {
    bits[slot as usize / 64] >> (slot % 64) & 1 != 0
}

/// Returns `true` if the element in `slot` was contained, or if the clear bit recorded for it has
/// been set since. An absent element stays absent while its recorded bit is clear.
#[inline(always)]
fn can_be_contained(first_clear: &[u32], view: FilterView<'_>, slot: u32) -> bool {
    #[cfg(test)]
    tests::LOOKS.set(tests::LOOKS.get() + 1);
    let bit = first_clear[slot as usize];
    bit == CONTAINED || view.is_set(bit)
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use bitcoin::hashes::Hash as _;
    use bitcoin::{
        Amount, Block, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Txid, Witness,
    };

    use super::super::{BlockElements, BloomFilter, UpdateMode};

    std::thread_local! {
        /// Number of times that a slot was tested by `can_be_contained`.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    fn transaction(number: u32, pushes: usize) -> Transaction {
        let script = |length: usize| ScriptBuf::from_bytes([1, 0x77].repeat(length));
        Transaction {
            version: bitcoin::transaction::Version::ONE,
            lock_time: bitcoin::absolute::LockTime::from_consensus(number),
            input: vec![TxIn {
                previous_output: OutPoint { txid: Txid::all_zeros(), vout: number },
                script_sig: script(0),
                sequence: Sequence::MAX,
                witness: Witness::new(),
            }],
            output: vec![TxOut { value: Amount::ZERO, script_pubkey: script(pushes) }],
        }
    }

    /// The filter grows at the first transaction and then matches every other transaction by its
    /// txid. The search for the next match must not run through the rest of the block each time.
    #[test]
    fn a_grown_filter_looks_at_each_element_a_few_times() {
        let genesis = bitcoin::constants::genesis_block(bitcoin::Network::Regtest);
        let mut txdata: Vec<_> = (0..2_000).map(|number| transaction(number, 1)).collect();
        txdata.push(transaction(2_000, 20_000));
        let mut filter = BloomFilter::new(2_200, 1e-9, 3, UpdateMode::All).unwrap();
        for tx in txdata.iter().step_by(2) {
            filter.insert(tx.compute_txid().as_byte_array());
        }
        // The first transaction pays to a push that matches, so that its outpoint is inserted.
        txdata[0].output[0].script_pubkey = ScriptBuf::from_bytes(vec![2, 8, 9]);
        filter.insert(&[8, 9]);
        let block = BlockElements::from_block(&Block { header: genesis.header, txdata });
        LOOKS.set(0);
        assert_eq!(filter.match_block(&block).len(), 1_001);
        let (looks, elements) = (LOOKS.get(), block.elements().num_elements());
        assert!(looks > 0 && looks < 4 * elements, "{looks} looks at {elements} elements");
    }
}
