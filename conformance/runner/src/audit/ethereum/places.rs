//! What receipts in JSON claim about their place, and about that of their logs. The receipts root
//! commits to none of it.

use chainsieve::alloy_primitives::{B256, U64};
use chainsieve::eth::header::BlockRef;
use serde::Deserialize;

/// The claims of a receipt. A member that a node leaves out claims nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Place {
    transaction_index: Option<U64>,
    transaction_hash: Option<B256>,
    block_hash: Option<B256>,
    block_number: Option<U64>,
    logs: Vec<LogPlace>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogPlace {
    transaction_index: Option<U64>,
    transaction_hash: Option<B256>,
    block_hash: Option<B256>,
    block_number: Option<U64>,
    log_index: Option<U64>,
    removed: Option<bool>,
}

impl Place {
    /// Checks that this is the receipt of the transaction that was requested.
    pub(super) fn of_transaction(self, requested: B256) -> Result<Self, String> {
        match self.transaction_hash {
            Some(hash) if hash != requested => {
                Err(format!("transaction {requested} was requested, the receipt is that of {hash}"))
            }
            _ => Ok(self),
        }
    }
}

/// A wrong claim: its name, the value that is right, and the claimed one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrongPlace {
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) got: String,
}

/// Returns the first wrong claim of all receipts of a block.
///
/// `transactions` are the hashes of the block's transactions, if they are known.
pub(super) fn first_wrong(
    mut places: Vec<Place>,
    BlockRef { number, hash }: BlockRef,
    transactions: Option<&[B256]>,
) -> Option<WrongPlace> {
    // The receipts root proves that the indices are 0, 1, 2 and so on.
    places.sort_by_key(|place| place.transaction_index);
    let mut log_index = 0_u64;
    for (index, place) in (0_u64..).zip(&places) {
        let transaction = transactions.and_then(|all| all.get(usize::try_from(index).ok()?));
        let of_receipt = || format!("of receipt {index}");
        let claims = wrong("blockHash", Some(&hash), place.block_hash.as_ref())
            .or_else(|| wrong("blockNumber", Some(&number), place.block_number.map(to).as_ref()))
            .or_else(|| wrong("transactionHash", transaction, place.transaction_hash.as_ref()));
        if let Some(found) = claims {
            return Some(found.named(&of_receipt()));
        }
        for log in &place.logs {
            let claims = wrong("blockHash", Some(&hash), log.block_hash.as_ref())
                .or_else(|| wrong("blockNumber", Some(&number), log.block_number.map(to).as_ref()))
                .or_else(|| wrong("transactionHash", transaction, log.transaction_hash.as_ref()))
                .or_else(|| {
                    let claimed = log.transaction_index.map(to);
                    wrong("transactionIndex", Some(&index), claimed.as_ref())
                })
                .or_else(|| wrong("logIndex", Some(&log_index), log.log_index.map(to).as_ref()))
                .or_else(|| wrong("removed", Some(&false), log.removed.as_ref()));
            if let Some(found) = claims {
                return Some(found.named(&format!("of a log {}", of_receipt())));
            }
            log_index += 1;
        }
    }
    None
}

fn to(number: U64) -> u64 {
    number.to()
}

impl WrongPlace {
    fn named(self, of: &str) -> Self {
        Self { what: format!("{} {of}", self.what), ..self }
    }
}

/// Compares a claim with the right value, if both are known.
fn wrong<T: PartialEq + ToString>(
    what: &str,
    right: Option<&T>,
    claimed: Option<&T>,
) -> Option<WrongPlace> {
    let (right, claimed) = (right?, claimed?);
    (right != claimed).then(|| WrongPlace {
        what: what.to_owned(),
        expected: right.to_string(),
        got: claimed.to_string(),
    })
}
