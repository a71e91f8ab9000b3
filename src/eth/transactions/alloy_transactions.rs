//! Conversion of transactions from the transaction type of `alloy-rpc-types-eth`.

use alloc::vec::Vec;

use alloy_eips::eip2718::Encodable2718 as _;
use alloy_primitives::{B256, keccak256};
use alloy_rpc_types_eth::Transaction;

use super::BlockTransactions;

/// Error of a transaction whose fields have another hash than the one that its source claims. The
/// transaction may have a field that alloy's type lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the fields of transaction {index} have the hash {computed}, not {claimed}")]
pub struct TransactionHashError {
    /// Index of the transaction in the list.
    pub index: usize,
    /// Hash of the encoded fields.
    pub computed: B256,
    /// Hash that the source claims.
    pub claimed: B256,
}

/// Encodes the transactions of a whole block, in their order in the block, as alloy's providers
/// return them. The claimed sender and place of each transaction are ignored.
///
/// # Errors
/// Returns an error if a transaction's fields have another hash than the claimed one.
impl TryFrom<&[Transaction]> for BlockTransactions {
    type Error = TransactionHashError;

    fn try_from(transactions: &[Transaction]) -> Result<Self, TransactionHashError> {
        let encoded = transactions.iter().enumerate().map(|(index, transaction)| {
            let encoding = transaction.inner.encoded_2718();
            let (computed, claimed) = (keccak256(&encoding), *transaction.inner.tx_hash());
            if computed == claimed {
                Ok(encoding.into())
            } else {
                Err(TransactionHashError { index, computed, claimed })
            }
        });
        Ok(Self::from_encodings(encoded.collect::<Result<Vec<_>, _>>()?))
    }
}
