//! Conversion of receipts from the receipt type of `alloy-rpc-types-eth`.

use alloc::boxed::Box;

use alloy_rpc_types_eth::TransactionReceipt;

use super::json::JsonReceipt;
use super::reader::Types;
use super::{BlockReceipts, Claims, Entry, Form, Outcome, Receipt, ReceiptsError};

/// Converts the receipts of a whole block, in any order, as alloy's providers return them.
///
/// Each receipt must have its `transactionIndex`, as for [`BlockReceipts::from_json`].
///
/// # Errors
/// Returns an error if an index is missing or occurs twice, or if a receipt type is unknown.
///
/// # Examples
/// ```
/// use alloy_rpc_types_eth::TransactionReceipt;
/// use chainsieve::eth::receipts::{BlockReceipts, ReceiptsError};
///
/// let json = format!(
///     r#"{{"type":"0x2","status":"0x1","cumulativeGasUsed":"0x5208","gasUsed":"0x5208",
///     "logs":[],"logsBloom":"0x{}","transactionIndex":"0x0","transactionHash":"0x{}",
///     "from":"0x{}","to":null,"contractAddress":null,"effectiveGasPrice":"0x1"}}"#,
///     "00".repeat(256), "11".repeat(32), "22".repeat(20),
/// );
/// let receipt: TransactionReceipt = serde_json::from_str(&json)?;
/// let receipts = BlockReceipts::try_from(&[receipt.clone()][..])?;
/// assert_eq!(receipts, BlockReceipts::from_json(&format!("[{json}]"))?);
///
/// // A pending transaction is in no block yet, so its receipt is rejected.
/// let pending = TransactionReceipt { transaction_index: None, ..receipt };
/// let refused = BlockReceipts::try_from(&[pending][..]);
/// assert_eq!(refused, Err(ReceiptsError::NoIndex { receipt: 0 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<&[TransactionReceipt]> for BlockReceipts {
    type Error = ReceiptsError;

    fn try_from(receipts: &[TransactionReceipt]) -> Result<Self, ReceiptsError> {
        let read = receipts.iter().enumerate().map(|(at, receipt)| read(at, receipt));
        Self::in_order(read.collect::<Result<_, _>>()?, Types::Known)
    }
}

fn read(at: usize, given: &TransactionReceipt) -> Result<JsonReceipt, ReceiptsError> {
    let transaction_index =
        given.transaction_index.ok_or(ReceiptsError::NoIndex { receipt: at })?;
    let receipt_type = u8::from(given.inner.tx_type());
    let unknown = ReceiptsError::UnknownType { receipt: at, receipt_type };
    let fields = given.inner.as_receipt().ok_or(unknown)?;
    let status = fields.status;
    let receipt = Receipt {
        receipt_type,
        outcome: status
            .as_post_state()
            .map_or_else(|| Outcome::Status(status.coerce_status()), Outcome::PostState),
        cumulative_gas_used: fields.cumulative_gas_used,
        logs: fields.logs.iter().map(|log| log.inner.clone()).collect(),
        deposit_nonce: None,
        deposit_receipt_version: None,
    };
    let claims = Claims {
        block_hash: given.block_hash,
        block_number: given.block_number,
        transaction_hash: Some(given.transaction_hash),
        log_indices: fields.logs.iter().map(|log| log.log_index).collect(),
    };
    let bloom = Some(Box::new(*given.inner.logs_bloom().data()));
    let entry = Entry { receipt, form: Form::Fields { bloom } };
    Ok(JsonReceipt { transaction_index, entry, claims: Some(claims) })
}
