//! Receipts from and to RLP: the consensus encoding and the slim one.

use alloc::boxed::Box;
use alloc::vec::Vec;

use alloy_rlp::{Decodable, EMPTY_LIST_CODE, Encodable, Header};

use super::{BlockReceipts, DEPOSIT_TYPE, Entry, Form, Outcome, Receipt, ReceiptsError};
use crate::eth::bloom;

impl BlockReceipts {
    /// From an RLP list of all receipts, each with its filter: a legacy one as a list, a typed one
    /// as a byte string `type || rlp`. So does `eth/68` send them, and so do era1 files hold them.
    ///
    /// # Errors
    /// [`ReceiptsError`], where the bytes are not exactly such a list.
    pub fn from_rlp_list(rlp: &[u8]) -> Result<Self, ReceiptsError> {
        let mut receipts = Self { raw: rlp.to_vec(), ..Self::default() };
        let mut items = list(rlp)?;
        while !items.is_empty() {
            let receipt = receipts.len();
            let fault = |error| ReceiptsError::Field { receipt, field: "receipt", error };
            let start = rlp.len() - items.len();
            let header = Header::decode(&mut items).map_err(fault)?;
            let (payload, behind) = items.split_at(header.payload_length);
            items = behind;
            let end = rlp.len() - items.len();
            // A list is the encoding of a legacy receipt; of a string, the content is the encoding.
            let start = if header.list { start } else { end - payload.len() };
            let is_legacy = |code: &u8| *code >= EMPTY_LIST_CODE;
            if !header.list && payload.first().is_none_or(is_legacy) {
                return Err(fault(alloy_rlp::Error::UnexpectedString));
            }
            receipts.entries.push(decode(receipt, &rlp[start..end], start)?);
        }
        Ok(receipts)
    }

    /// From the consensus encoding of every receipt, in order: legacy ones `rlp([…])`, typed ones
    /// `type || rlp([…])`, as `debug_getRawReceipts` gives them.
    ///
    /// # Errors
    /// [`ReceiptsError`], where one is not exactly that.
    pub fn from_encodings(encodings: &[impl AsRef<[u8]>]) -> Result<Self, ReceiptsError> {
        let mut receipts = Self::default();
        for encoding in encodings.iter().map(AsRef::as_ref) {
            let start = receipts.raw.len();
            receipts.entries.push(decode(receipts.len(), encoding, start)?);
            receipts.raw.extend_from_slice(encoding);
        }
        Ok(receipts)
    }

    /// From an RLP list of all receipts in the slim form `[type, post-state-or-status,
    /// cumulative-gas, logs]`, without filters: they are computed. So does `eth/69` send them
    /// (EIP-7642), and so do `.ere` files hold them.
    ///
    /// Deposits of the OP stack have nonce and version behind the logs, as op-geth sends them.
    ///
    /// # Errors
    /// [`ReceiptsError`], where the bytes are not exactly such a list.
    pub fn from_slim_list(rlp: &[u8]) -> Result<Self, ReceiptsError> {
        let mut receipts = Self::default();
        let mut items = list(rlp)?;
        while !items.is_empty() {
            let mut fields = Fields::of(receipts.len(), &mut items)?;
            let receipt_type: u8 = fields.next("type")?;
            if !is_known(receipt_type) {
                let receipt = fields.receipt;
                return Err(ReceiptsError::UnknownType { receipt, receipt_type });
            }
            let outcome = fields.outcome()?;
            let cumulative_gas_used = fields.next("cumulativeGasUsed")?;
            let receipt = fields.logs_and_end(receipt_type, outcome, cumulative_gas_used)?;
            receipts.entries.push(Entry { receipt, form: Form::Fields { bloom: None } });
        }
        Ok(receipts)
    }

    /// The consensus encoding of a receipt, which is what the root covers; written to `scratch` if
    /// it was not received so. `bloom` is asked for where the source gave none.
    pub(super) fn encoding<'a>(
        &'a self,
        entry: &'a Entry,
        bloom: impl FnOnce() -> [u8; bloom::BYTES],
        scratch: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        match &entry.form {
            Form::Encoded { encoding, .. } => &self.raw[encoding.clone()],
            Form::Fields { bloom: Some(given) } => {
                encode(&entry.receipt, given, scratch);
                scratch
            }
            Form::Fields { bloom: None } => {
                encode(&entry.receipt, &bloom(), scratch);
                scratch
            }
        }
    }
}

/// Whether the encoding of receipts of this type is known.
pub(super) const fn is_known(receipt_type: u8) -> bool {
    receipt_type <= 4 || (cfg!(feature = "op") && receipt_type == DEPOSIT_TYPE)
}

/// Decodes one receipt.
pub(super) fn decode_one(receipt: usize, encoding: &[u8]) -> Result<Receipt, ReceiptsError> {
    decode(receipt, encoding, 0).map(|entry| entry.receipt)
}

/// Decodes a consensus encoding that stands at `start` of the received bytes.
fn decode(receipt: usize, encoding: &[u8], start: usize) -> Result<Entry, ReceiptsError> {
    let (receipt_type, mut rest) = match encoding.split_first() {
        None => {
            let error = alloy_rlp::Error::InputTooShort;
            return Err(ReceiptsError::Field { receipt, field: "receipt", error });
        }
        Some((&code, _)) if code >= EMPTY_LIST_CODE => (0, encoding),
        // Type 0 is legacy, and has no type byte.
        Some((&code, rest)) if code != 0 && is_known(code) => (code, rest),
        Some((&receipt_type, _)) => {
            return Err(ReceiptsError::UnknownType { receipt, receipt_type });
        }
    };
    let mut fields = Fields::of(receipt, &mut rest)?;
    if !rest.is_empty() {
        return Err(ReceiptsError::Behind { receipt, bytes: rest.len() });
    }
    let outcome = fields.outcome()?;
    let cumulative_gas_used = fields.next("cumulativeGasUsed")?;
    let bloom = fields.bloom()?;
    let bloom_end = start + encoding.len() - fields.rest.len();
    let receipt = fields.logs_and_end(receipt_type, outcome, cumulative_gas_used)?;
    let form = if receipt.deposit_nonce.is_some() && receipt.deposit_receipt_version.is_none() {
        // Of Regolith: the nonce is in the receipt, and the root does not cover it.
        Form::Fields { bloom: Some(Box::new(*bloom)) }
    } else {
        Form::Encoded {
            encoding: start..start + encoding.len(),
            bloom: bloom_end - bloom::BYTES..bloom_end,
        }
    };
    Ok(Entry { receipt, form })
}

/// Writes the consensus encoding over what `out` holds. The outcome must be known.
fn encode(receipt: &Receipt, bloom: &[u8; bloom::BYTES], out: &mut Vec<u8>) {
    let outcome: &dyn Encodable = match &receipt.outcome {
        Outcome::Status(status) => status,
        Outcome::PostState(root) => root,
        Outcome::Unknown => unreachable!("checked before the root is computed"),
    };
    let bloom = alloy_primitives::Bloom::from(bloom);
    let nonce = receipt.deposit_nonce.unwrap_or_default();
    let version = receipt.deposit_receipt_version;
    let fields: [&dyn Encodable; 6] = [
        outcome,
        &receipt.cumulative_gas_used,
        &bloom,
        &receipt.logs,
        &nonce,
        &version.unwrap_or_default(),
    ];
    // The last two are of deposits.
    let fields = if version.is_some() { &fields[..] } else { &fields[..4] };
    out.clear();
    if receipt.receipt_type != 0 {
        out.push(receipt.receipt_type);
    }
    alloy_rlp::encode_list::<_, dyn Encodable>(fields, out);
}

/// The payload of a list that is all of the bytes.
fn list(rlp: &[u8]) -> Result<&[u8], ReceiptsError> {
    let mut rest = rlp;
    let payload = Header::decode_bytes(&mut rest, true).map_err(ReceiptsError::NotAList)?;
    if rest.is_empty() { Ok(payload) } else { Err(ReceiptsError::TrailingBytes(rest.len())) }
}

/// The fields of a receipt that are still to be read.
struct Fields<'a> {
    receipt: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Those of the list at the start of `bytes`, which goes on behind it.
    fn of(receipt: usize, bytes: &mut &'a [u8]) -> Result<Self, ReceiptsError> {
        let fault = |error| ReceiptsError::Field { receipt, field: "receipt", error };
        Ok(Self { receipt, rest: Header::decode_bytes(bytes, true).map_err(fault)? })
    }

    fn next<T: Decodable>(&mut self, field: &'static str) -> Result<T, ReceiptsError> {
        let receipt = self.receipt;
        T::decode(&mut self.rest).map_err(|error| ReceiptsError::Field { receipt, field, error })
    }

    /// A status (EIP-658) or, of 32 bytes, the root of a state.
    fn outcome(&mut self) -> Result<Outcome, ReceiptsError> {
        const OF_32_BYTES: u8 = alloy_rlp::EMPTY_STRING_CODE + 32;
        Ok(match self.rest.first() {
            Some(&OF_32_BYTES) => Outcome::PostState(self.next("root")?),
            _ => Outcome::Status(self.next("status")?),
        })
    }

    fn bloom(&mut self) -> Result<&'a [u8; bloom::BYTES], ReceiptsError> {
        let receipt = self.receipt;
        let fault = |error| ReceiptsError::Field { receipt, field: "logsBloom", error };
        let bytes = Header::decode_bytes(&mut self.rest, false).map_err(fault)?;
        bytes.try_into().map_err(|_| fault(alloy_rlp::Error::UnexpectedLength))
    }

    /// The fields from `logs` on, and nothing behind them.
    fn logs_and_end(
        mut self,
        receipt_type: u8,
        outcome: Outcome,
        cumulative_gas_used: u64,
    ) -> Result<Receipt, ReceiptsError> {
        let logs = self.next("logs")?;
        let mut optional = |field| {
            let there = receipt_type == DEPOSIT_TYPE && !self.rest.is_empty();
            there.then(|| self.next(field)).transpose()
        };
        let receipt = Receipt {
            receipt_type,
            outcome,
            cumulative_gas_used,
            logs,
            deposit_nonce: optional("depositNonce")?,
            deposit_receipt_version: optional("depositReceiptVersion")?,
        };
        match self.rest.len() {
            0 => Ok(receipt),
            bytes => Err(ReceiptsError::Behind { receipt: self.receipt, bytes }),
        }
    }
}
