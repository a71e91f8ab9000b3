//! Which transactions are relevant to a filter: Bitcoin Core's
//! `CBloomFilter::IsRelevantAndUpdate`, with the reasons.
//!
//! In Core's order: a filter without data matches everything; the txid; each output, its first
//! data push that may be contained (then, by the [`UpdateMode`], the outpoint is inserted, and
//! the next output sees it); only if nothing matched so far each input, its outpoint and then
//! its pushes, up to the first that may be contained. Witness data is never looked at.

use alloc::vec::Vec;
use core::fmt;

use bitcoin::{OutPoint, Transaction, Txid};

use super::elements::Place;
use super::probe::batch::{self, Prober};
use super::{BlockElements, BloomFilter, Elements, UpdateMode};

/// Why a transaction matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchReason {
    /// The filter has no data and matches everything.
    Everything,
    /// The transaction's id.
    Txid,
    /// Data that an output's script pushes.
    Output {
        /// The output.
        vout: u32,
        /// Which of the script's non-empty pushes, from 0: the first that may be contained.
        push: u32,
        /// Whether the filter's flags had the outpoint inserted.
        inserted: bool,
    },
    /// The outpoint that an input spends.
    Spent {
        /// The input.
        vin: u32,
    },
    /// Data that an input's script pushes.
    InputData {
        /// The input.
        vin: u32,
        /// Which of the script's non-empty pushes, from 0.
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

/// A transaction that may be relevant to a filter, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxMatch {
    /// Its position in the block, or 0 for a transaction on its own.
    pub index: u32,
    /// Its id.
    pub txid: Txid,
    /// Every reason that Core's order comes to; never empty. An input is a reason only if
    /// neither the txid nor an output is, and then the only one.
    pub reasons: Vec<MatchReason>,
}

impl TxMatch {
    /// The outpoints that the match inserted into the filter.
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
    /// Whether `tx` may be relevant, and why; inserts outpoints as the filter's flags say.
    ///
    /// `None` is certain: no element of the transaction was ever inserted. For whole blocks
    /// [`match_block`](Self::match_block) is several times faster.
    pub fn match_transaction(&mut self, tx: &Transaction) -> Option<TxMatch> {
        self.match_elements(&Elements::from_transaction(tx)).pop()
    }

    /// Core's `IsRelevantAndUpdate`: [`match_transaction`](Self::match_transaction) without the
    /// reasons.
    pub fn is_relevant_and_update(&mut self, tx: &Transaction) -> bool {
        self.match_transaction(tx).is_some()
    }

    /// The transactions of a block that may be relevant, in their order, and why. What an earlier
    /// one has inserted by the filter's flags, a later one sees.
    pub fn match_block(&mut self, block: &BlockElements) -> Vec<TxMatch> {
        self.match_elements(block.elements())
    }

    /// The transactions that may be relevant, in their order, and why: as if each were matched
    /// after the other.
    ///
    /// # Cost
    /// A few nanoseconds for each element.
    pub fn match_elements(&mut self, elements: &Elements) -> Vec<TxMatch> {
        let mut matches = Vec::new();
        if self.data().is_empty() {
            let reasons = alloc::vec![MatchReason::Everything];
            matches.extend((0..).zip(elements.txids()).map(|(index, &txid)| TxMatch {
                index,
                txid,
                reasons: reasons.clone(),
            }));
            return matches;
        }
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

    /// Core's `IsRelevantAndUpdate`, for a filter that has data.
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
        let (mut script, mut push) = (None, 0);
        let mut matched = None;
        for (place, slot) in elements.elements_of(transaction) {
            match place {
                Place::Output { vout, .. } if matched == Some(vout) => continue,
                Place::Output { .. } => {}
                Place::Outpoint(_) | Place::InputData(_) if !reasons.is_empty() => break,
                Place::Outpoint(_) | Place::InputData(_) => {}
            }
            push = if script == Some(place) { push + 1 } else { 0 };
            script = Some(place);
            if !verdicts.contains(self, elements, slot) {
                continue;
            }
            reasons.push(match place {
                Place::Output { vout, pays_to_key } => {
                    matched = Some(vout);
                    let inserted = match self.update_mode() {
                        UpdateMode::None => false,
                        UpdateMode::All => true,
                        UpdateMode::P2PubkeyOnly => pays_to_key,
                    };
                    if inserted {
                        let txid = elements.txids()[transaction];
                        self.insert_outpoint(&OutPoint { txid, vout });
                        verdicts.inserted();
                    }
                    MatchReason::Output { vout, push, inserted }
                }
                Place::Outpoint(vin) => MatchReason::Spent { vin },
                Place::InputData(vin) => MatchReason::InputData { vin, push },
            });
        }
        reasons
    }
}

/// Fewer elements than this are probed one by one, when they are asked for.
const BATCH: usize = 64;

/// What the filter may contain, while it grows.
struct Verdicts {
    /// Element slots, then ids, that the filter may contain; `None` until probed.
    contained: Option<Vec<u32>>,
    /// The transactions that have one of them.
    candidates: Vec<u32>,
    /// For each element slot, then each id, a bit that it selects and that was clear when last
    /// looked, or `CONTAINED`. Empty if the filter can't grow.
    first_clear: Vec<u32>,
    /// Whether the filter has grown since it was probed.
    grown: bool,
}

const CONTAINED: u32 = u32::MAX;

impl Verdicts {
    /// Probes all elements at once, if they are enough to make that worth it.
    fn new(filter: &BloomFilter, elements: &Elements) -> Self {
        let mut verdicts =
            Self { contained: None, candidates: Vec::new(), first_clear: Vec::new(), grown: false };
        if elements.num_elements() < BATCH {
            return verdicts;
        }
        if filter.update_mode() != UpdateMode::None {
            verdicts.first_clear.resize(elements.num_slots() + batch::OVERRUN, CONTAINED);
        }
        let mut prober = Prober::new(filter.backend(), filter.view(), verdicts.first_clear);
        elements.classes().iter().for_each(|class| prober.probe(class));
        for (slot, bytes) in elements.long() {
            match filter.first_clear(bytes) {
                None => prober.contained.push(slot),
                Some(bit) => {
                    if let Some(place) = prober.first_clear.get_mut(slot as usize) {
                        *place = bit;
                    }
                }
            }
        }
        let Prober { mut contained, first_clear, .. } = prober;
        verdicts.first_clear = first_clear;
        for &slot in &contained {
            if let Some(place) = verdicts.first_clear.get_mut(slot as usize) {
                *place = CONTAINED;
            }
        }
        verdicts.candidates.extend(contained.iter().map(|&slot| elements.transaction_in(slot)));
        verdicts.candidates.sort_unstable();
        verdicts.candidates.dedup();
        contained.sort_unstable();
        verdicts.contained = Some(contained);
        verdicts
    }

    /// The next transaction from `from` on that can match.
    fn next_candidate(
        &self,
        from: usize,
        filter: &BloomFilter,
        elements: &Elements,
    ) -> Option<usize> {
        if from >= elements.len() {
            return None;
        }
        if self.contained.is_none() {
            return Some(from);
        }
        if !self.grown {
            let next = self.candidates.partition_point(|&candidate| (candidate as usize) < from);
            return self.candidates.get(next).map(|&candidate| candidate as usize);
        }
        let view = filter.view();
        let can_match = |slot: u32| {
            let first_clear = self.first_clear[slot as usize];
            first_clear == CONTAINED || view.is_set(first_clear)
        };
        let by_element = elements.find_from(from, can_match);
        let mut ids = from..by_element.unwrap_or(elements.len());
        ids.find(|&next| can_match(elements.txid_slot(next))).or(by_element)
    }

    fn inserted(&mut self) {
        self.grown = true;
    }

    /// Whether `filter` may contain what is in `slot`.
    #[inline]
    fn contains(&mut self, filter: &BloomFilter, elements: &Elements, slot: u32) -> bool {
        let Some(contained) = &self.contained else {
            return elements.with_bytes(slot, |bytes| filter.contains(bytes));
        };
        let Some(first_clear) = self.first_clear.get_mut(slot as usize) else {
            return contained.binary_search(&slot).is_ok();
        };
        // Only an insertion that set the recorded bit can have made a difference.
        if *first_clear != CONTAINED && filter.view().is_set(*first_clear) {
            let now = elements.with_bytes(slot, |bytes| filter.first_clear(bytes));
            *first_clear = now.unwrap_or(CONTAINED);
        }
        *first_clear == CONTAINED
    }
}
