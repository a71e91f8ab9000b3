//! Bodies of blocks: transactions under the transactions root of a trusted header, withdrawals and ommers
//! under its other commitments.

use std::sync::Arc;

use alloy_consensus::EMPTY_OMMER_ROOT_HASH;
use alloy_consensus::proofs::calculate_withdrawals_root;
use alloy_rpc_types_eth::Withdrawal;
use chainsieve::alloy_primitives::{B256, Bytes, keccak256};
use chainsieve::eth::header::{BlockRef, ChainBlock, HeaderBuf};
use chainsieve::eth::receipts::DEPOSIT_TYPE;
use chainsieve::eth::transactions::{BlockTransactions, ClaimedTransactions, VerifiedTransactions};

use super::header::BlockHeader;
use super::kept::{Flights, Kept, Kind, Size, kept};
use super::source::{ClaimedHashes, Missing, Part, Source, Wrong};
use crate::nodes::ask::{Unaccepted, ask};

/// Maximum number of ommers of a block (Yellow Paper 11.1).
const MOST_OMMERS: usize = 2;

/// Hashes of all transactions of a block, which its header commits to.
pub(super) type Hashes = Arc<[B256]>;

/// The data of a block to which its header commits, except receipts and state.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) transactions: Arc<VerifiedTransactions>,
    pub(crate) ommers: Vec<HeaderBuf>,
    /// `None` before Shanghai.
    pub(crate) withdrawals: Option<Vec<Withdrawal>>,
}

/// The known parts of a body. The transactions are proven.
#[derive(Debug, Clone)]
struct Known {
    transactions: Arc<VerifiedTransactions>,
    rest: Rest,
}

/// The parts of a body other than its transactions. Logs and receipts do not depend on these parts.
#[derive(Debug, Clone)]
enum Rest {
    /// Not fetched, for example because the transactions were read from the disk.
    Unknown,
    /// The withdrawals that arrived with the transactions, and that are not checked yet.
    Received(Option<Vec<Withdrawal>>),
    Proven {
        ommers: Vec<HeaderBuf>,
        withdrawals: Option<Vec<Withdrawal>>,
    },
}

impl Size for Hashes {
    fn size(&self) -> u64 {
        32 * self.len() as u64
    }
}

impl Size for Arc<Known> {
    fn size(&self) -> u64 {
        // A hash, the two pointers of an encoding, and what an allocation costs.
        let transaction = |encoding: &Bytes| encoding.len() as u64 + 100;
        let transactions: u64 = self.transactions.encodings().iter().map(transaction).sum();
        let withdrawals = |list: &Option<Vec<Withdrawal>>| {
            list.as_ref().map_or(0, |list| size_of_val(&list[..]) as u64)
        };
        let rest = match &self.rest {
            Rest::Unknown => 0,
            Rest::Received(list) => withdrawals(list),
            Rest::Proven { ommers, withdrawals: list } => {
                withdrawals(list) + ommers.iter().map(|it| it.rlp().len() as u64).sum::<u64>()
            }
        };
        transactions + rest
    }
}

/// Bodies in memory, and bodies that are being fetched. Transactions stay encoded: the parts of a
/// transaction take more space than its encoding.
#[derive(Debug)]
pub(super) struct Bodies {
    kept: Kept<B256, Arc<Known>>,
    hashes: Kept<B256, Hashes>,
    transactions_in_flight: Flights<B256, Result<Arc<Known>, Missing>>,
    in_flight: Flights<B256, Result<Body, Missing>>,
}

/// Decides if the withdrawals of a node are accepted.
type Fits<'a> = &'a dyn Fn(&VerifiedTransactions, Option<&[Withdrawal]>) -> bool;

impl Bodies {
    pub(super) fn new(bytes: u64, hashes: u64) -> Self {
        Self {
            kept: kept(bytes),
            hashes: kept(hashes),
            transactions_in_flight: Flights::new(),
            in_flight: Flights::new(),
        }
    }

    /// Returns the hashes of a block's transactions, in order.
    pub(super) fn hashes(
        &self,
        source: &Source,
        block: &ChainBlock<'_>,
    ) -> Result<Hashes, Missing> {
        if let Some(known) = self.hashes.get(&block.hash) {
            return Ok(known);
        }
        Ok(self.transactions(source, block)?.hashes().into())
    }

    /// Returns the transactions of a block.
    pub(super) fn transactions(
        &self,
        source: &Source,
        block: &ChainBlock<'_>,
    ) -> Result<Arc<VerifiedTransactions>, Missing> {
        let any = |_: &VerifiedTransactions, _: Option<&[Withdrawal]>| true;
        let known = match self.known(source, block, &any) {
            // The error is that of a call that shares the request, and that also wants the withdrawals.
            Err(Missing { part: Part::Withdrawals, .. }) => self.known(source, block, &any)?,
            known => known?,
        };
        Ok(Arc::clone(&known.transactions))
    }

    /// Keeps transactions that were fetched before they were requested, if the header commits to
    /// them.
    pub(super) fn take_ahead(
        &self,
        source: &Source,
        block: &ChainBlock<'_>,
        body: crate::nodes::body::Body,
    ) {
        if let Ok(transactions) = body.transactions.complete()
            && let Ok(transactions) = transactions.verify(block.transactions_root)
        {
            let rest = Rest::Received(body.withdrawals);
            self.keep(source, block, Known { transactions: Arc::new(transactions), rest });
        }
    }

    fn keep(&self, source: &Source, block: &ChainBlock<'_>, known: Known) -> Arc<Known> {
        let encodings = || Some(known.transactions.encodings());
        source.put(Kind::Transactions, block.transactions_root, encodings);
        self.hold(block.hash, known)
    }

    fn hold(&self, hash: B256, known: Known) -> Arc<Known> {
        let known = Arc::new(known);
        self.hashes.insert(hash, known.transactions.hashes().into());
        self.kept.insert(hash, Arc::clone(&known));
        known
    }

    fn known(
        &self,
        source: &Source,
        block: &ChainBlock<'_>,
        fits: Fits<'_>,
    ) -> Result<Arc<Known>, Missing> {
        if let Some(known) = self.kept.get(&block.hash) {
            return Ok(known);
        }
        self.transactions_in_flight.run(&block.hash, || {
            // A flight that ended since the look above leaves its transactions in memory.
            if let Some(known) = self.kept.get(&block.hash) {
                return Ok(known);
            }
            let root = block.transactions_root;
            let stored = source.stored(Kind::Transactions, root, |encodings| {
                let encodings = encodings.into_iter().map(Bytes::from).collect();
                BlockTransactions::from_encodings(encodings).verify(root).ok()
            });
            if let Some(transactions) = stored {
                let known = Known { transactions: Arc::new(transactions), rest: Rest::Unknown };
                return Ok(self.hold(block.hash, known));
            }
            let known = fetch(source, BlockRef::from(*block), root, fits)?;
            Ok(self.keep(source, block, known))
        })
    }

    /// Returns the whole body of a block.
    pub(super) fn body(&self, source: &Source, block: &BlockHeader) -> Result<Body, Missing> {
        let proven = |known: &Known| match &known.rest {
            Rest::Proven { ommers, withdrawals } => Some(Body {
                transactions: Arc::clone(&known.transactions),
                ommers: ommers.clone(),
                withdrawals: withdrawals.clone(),
            }),
            _ => None,
        };
        if let Some(body) = self.kept.get(&block.at.hash).and_then(|known| proven(&known)) {
            return Ok(body);
        }
        self.in_flight.run(&block.at.hash, || {
            let chain_block = ChainBlock::from(block);
            let root = block.header.view().withdrawals_root();
            let fits = |transactions: &VerifiedTransactions, list: Option<&[Withdrawal]>| {
                are_withdrawals_of(root, transactions, list)
            };
            let known = self.known(source, &chain_block, &fits)?;
            // A flight that ended since the look above leaves the body in memory.
            if let Some(body) = proven(&known) {
                return Ok(body);
            }
            let withdrawals = match &known.rest {
                Rest::Received(list) if fits(&known.transactions, list.as_deref()) => list.clone(),
                _ if root.is_none() => None,
                // The transactions are from the disk, or they were requested by a call that did not
                // check the withdrawals.
                _ => match fetch(source, block.at, chain_block.transactions_root, &fits)?.rest {
                    Rest::Received(list) => list,
                    _ => None,
                },
            };
            let ommers = fetch_ommers(source, block)?;
            let rest = Rest::Proven { ommers: ommers.clone(), withdrawals: withdrawals.clone() };
            let transactions = Arc::clone(&known.transactions);
            self.hold(block.at.hash, Known { transactions: Arc::clone(&transactions), rest });
            Ok(Body { transactions, ommers, withdrawals })
        })
    }
}

/// Returns `true` if a header with this withdrawals root commits to these withdrawals. `None` stands for a
/// header or a body from before Shanghai.
fn are_withdrawals_of(
    root: Option<B256>,
    transactions: &VerifiedTransactions,
    list: Option<&[Withdrawal]>,
) -> bool {
    // A block of the OP stack begins with a deposit. Since Isthmus, its header has another root in this field,
    // that of the storage of a contract, and its list of withdrawals is always empty.
    let begins_with = transactions.encodings().first().and_then(|encoding| encoding.first());
    if begins_with == Some(&DEPOSIT_TYPE) && root.is_some() && list.is_some_and(<[_]>::is_empty) {
        return true;
    }
    list.map(calculate_withdrawals_root) == root
}

/// Fetches the transactions of a block, with withdrawals that `fits` accepts.
fn fetch(
    source: &Source,
    at: BlockRef,
    transactions_root: B256,
    fits: Fits<'_>,
) -> Result<Known, Missing> {
    let (mut part, mut claimed) = (Part::Transactions, None);
    let asked = ask(&source.nodes, |node| {
        let Some(body) = node.body(at.hash)? else { return Ok(None) };
        let transactions = match body.transactions.complete() {
            Ok(transactions) => transactions,
            Err(all) => {
                claimed = claimed.take().or_else(|| ClaimedHashes::new(&all));
                return Err(Unaccepted::Answer(of_unknown_type(&all)));
            }
        };
        let (wrong, why) = match transactions.verify(transactions_root) {
            Ok(transactions) if fits(&transactions, body.withdrawals.as_deref()) => {
                let (transactions, rest) =
                    (Arc::new(transactions), Rest::Received(body.withdrawals));
                return Ok(Some(Known { transactions, rest }));
            }
            Ok(_) => {
                part = Part::Withdrawals;
                let why = "the withdrawals have another root than the header";
                (Wrong::Withdrawals, why.to_owned())
            }
            Err(error) => (Wrong::Transactions, error.to_string()),
        };
        source.observer.wrong(node, wrong);
        Err(Unaccepted::Answer(why))
    });
    asked.map_err(|why| {
        let claimed = claimed.map(Arc::new);
        Missing { claimed, ..Missing::new(at, part, &why) }
    })
}

fn of_unknown_type(all: &ClaimedTransactions) -> String {
    all.unknown().next().map_or_else(String::new, |(index, transaction_type)| {
        format!(
            "transaction {index} is of the unknown type {transaction_type:#x}, and the node does not \
             give its encoding"
        )
    })
}

/// Fetches the headers of a block's ommers, under the hash in its header.
fn fetch_ommers(source: &Source, block: &BlockHeader) -> Result<Vec<HeaderBuf>, Missing> {
    let (at, expected) = (block.at, block.header.view().ommers_hash());
    if expected == EMPTY_OMMER_ROOT_HASH {
        return Ok(Vec::new());
    }
    let asked = ask(&source.nodes, |node| {
        let mut headers: Vec<HeaderBuf> = Vec::new();
        // Only the hash in the header says how many there are.
        while headers.len() < MOST_OMMERS {
            let Some(header) = node.ommer(at.hash, headers.len())? else { break };
            headers.push(header);
            let payload: Vec<u8> = headers.iter().flat_map(|it| it.rlp().to_vec()).collect();
            let mut list = Vec::new();
            alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut list);
            list.extend(payload);
            if keccak256(list) == expected {
                return Ok(Some(headers));
            }
        }
        Ok(None)
    });
    asked.map_err(|why| Missing::new(at, Part::Ommers, &why))
}
