//! Receipts from and to RLP: the consensus encoding and the slim encoding.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use alloy_primitives::{B256, Log};
use alloy_rlp::{Decodable, EMPTY_LIST_CODE, Encodable, Header};
use chainsieve_lanes::simd::Backend;

use super::reader::Types;
use super::{BlockReceipts, DEPOSIT_TYPE, Form, Outcome, Receipt, ReceiptEntry, ReceiptsError};
use crate::eth::bloom;

impl BlockReceipts {
    /// Decodes an RLP list of all receipts, each with its filter.
    ///
    /// A legacy receipt is a list, and a typed receipt is a byte string `type || rlp`. `eth/68` and
    /// era1 files use this form.
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if the bytes are not exactly such a list.
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
            // The root covers a legacy receipt with its list header, but a typed receipt without
            // its string header.
            let start = if header.list { start } else { end - payload.len() };
            // In this list, a legacy receipt must not be wrapped in a string.
            let is_legacy = |code: &u8| *code >= EMPTY_LIST_CODE;
            if !header.list && payload.first().is_none_or(is_legacy) {
                return Err(fault(alloy_rlp::Error::UnexpectedString));
            }
            receipts.entries.push(decode(receipt, &rlp[start..end], start, Types::Known)?);
        }
        Ok(receipts)
    }

    /// Decodes the consensus encoding of every receipt, in order, as `debug_getRawReceipts`
    /// returns it.
    ///
    /// The encoding is `rlp([…])` for legacy receipts and `type || rlp([…])` for typed receipts.
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if an encoding is malformed.
    pub fn from_encodings(encodings: &[impl AsRef<[u8]>]) -> Result<Self, ReceiptsError> {
        let mut receipts = Self::default();
        for encoding in encodings {
            receipts.push_encoding(encoding.as_ref(), Types::Known)?;
        }
        Ok(receipts)
    }

    /// Decodes one more receipt.
    pub(super) fn push_encoding(
        &mut self,
        encoding: &[u8],
        types: Types,
    ) -> Result<&Receipt, ReceiptsError> {
        let start = self.raw.len();
        let entry = decode(self.len(), encoding, start, types)?;
        self.raw.extend_from_slice(encoding);
        self.entries.push(entry);
        Ok(&self.entries[self.entries.len() - 1].receipt)
    }

    /// Decodes an RLP list of all receipts in the slim form `[type, post-state-or-status,
    /// cumulative-gas, logs]`.
    ///
    /// Slim receipts have no filters, so the filters are computed. `eth/69` (EIP-7642) and `.ere`
    /// files use this form. Deposits of the OP stack have nonce and version after the logs, as
    /// op-geth sends them.
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if the bytes are not exactly such a list.
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
            receipts.entries.push(ReceiptEntry { receipt, form: Form::Fields { bloom: None } });
        }
        Ok(receipts)
    }

    /// Returns the consensus encoding of a receipt, which the root covers.
    ///
    /// If the receipt was not received in this encoding, it is encoded into `scratch`. `bloom` is
    /// called to compute the filter if the source gave none.
    pub(super) fn encoding<'a>(
        &'a self,
        entry: &'a ReceiptEntry,
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

/// Returns `true` if the encoding of receipts of this type is known.
pub(in crate::eth) const fn is_known(receipt_type: u8) -> bool {
    receipt_type <= 4 || (cfg!(feature = "op") && receipt_type == DEPOSIT_TYPE)
}

/// Decodes one receipt.
pub(super) fn decode_one(receipt: usize, encoding: &[u8]) -> Result<Receipt, ReceiptsError> {
    decode(receipt, encoding, 0, Types::Known).map(|entry| entry.receipt)
}

/// Decodes a consensus encoding that begins at offset `start` of the received bytes.
fn decode(
    receipt: usize,
    encoding: &[u8],
    start: usize,
    types: Types,
) -> Result<ReceiptEntry, ReceiptsError> {
    let (receipt_type, mut rest) = match encoding.split_first() {
        None => {
            let error = alloy_rlp::Error::InputTooShort;
            return Err(ReceiptsError::Field { receipt, field: "receipt", error });
        }
        Some((&code, _)) if code >= EMPTY_LIST_CODE => (0, encoding),
        // Type 0 is the type of legacy receipts, which have no type byte.
        Some((&code, rest)) if code != 0 && types.include(code) => (code, rest),
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
        // A deposit of Regolith has a nonce, but the root does not cover the nonce. So the received
        // bytes cannot be hashed.
        Form::Fields { bloom: Some(Box::new(*bloom)) }
    } else {
        Form::Encoded {
            encoding: start..start + encoding.len(),
            bloom: bloom_end - bloom::BYTES..bloom_end,
        }
    };
    Ok(ReceiptEntry { receipt, form })
}

/// Replaces the content of `out` by the consensus encoding of a receipt. The receipt's outcome must
/// be known.
fn encode(receipt: &Receipt, bloom: &[u8; bloom::BYTES], out: &mut Vec<u8>) {
    let fields = ReceiptFields {
        receipt_type: receipt.receipt_type,
        outcome: receipt.outcome,
        cumulative_gas_used: receipt.cumulative_gas_used,
        deposit_nonce: receipt.deposit_nonce,
        deposit_receipt_version: receipt.deposit_receipt_version,
    };
    fields.encode(bloom, receipt.logs.length(), |out| receipt.logs.encode(out), out);
}

/// The fields of a receipt beside its filter and its logs.
pub(in crate::eth) struct ReceiptFields {
    pub(in crate::eth) receipt_type: u8,
    pub(in crate::eth) outcome: Outcome,
    pub(in crate::eth) cumulative_gas_used: u64,
    pub(in crate::eth) deposit_nonce: Option<u64>,
    pub(in crate::eth) deposit_receipt_version: Option<u64>,
}

impl ReceiptFields {
    /// Replaces the content of `out` by the consensus encoding of the receipt. The receipt's outcome must
    /// be known. `logs` appends the list of the logs, which has `logs_length` bytes.
    pub(in crate::eth) fn encode(
        &self,
        bloom: &[u8; bloom::BYTES],
        logs_length: usize,
        logs: impl FnOnce(&mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        let outcome: &dyn Encodable = match &self.outcome {
            Outcome::Status(status) => status,
            Outcome::PostState(root) => root,
            Outcome::Unknown => unreachable!("checked before the root is computed"),
        };
        let bloom = &bloom[..];
        let nonce = self.deposit_nonce.unwrap_or_default();
        let version = self.deposit_receipt_version.unwrap_or_default();
        let before: [&dyn Encodable; 3] = [outcome, &self.cumulative_gas_used, &bloom];
        let behind: [&dyn Encodable; 2] = [&nonce, &version];
        // Only deposits since Canyon have nonce and version in the encoding that the root covers.
        let behind = if self.deposit_receipt_version.is_some() { &behind[..] } else { &[] };
        let lengths = before.iter().chain(behind).map(Encodable::length);
        let payload_length = lengths.sum::<usize>() + logs_length;
        out.clear();
        if self.receipt_type != 0 {
            out.push(self.receipt_type);
        }
        Header { list: true, payload_length }.encode(out);
        for field in before {
            field.encode(out);
        }
        logs(out);
        for field in behind {
            field.encode(out);
        }
    }
}

/// Returns the payload of an RLP list, which must end where the bytes end.
fn list(rlp: &[u8]) -> Result<&[u8], ReceiptsError> {
    let mut rest = rlp;
    let payload = Header::decode_bytes(&mut rest, true).map_err(ReceiptsError::NotAList)?;
    if rest.is_empty() { Ok(payload) } else { Err(ReceiptsError::TrailingBytes(rest.len())) }
}

/// The fields of a receipt that are not yet decoded.
struct Fields<'a> {
    receipt: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Returns the fields of the list at the start of `bytes`, and advances `bytes` past the list.
    fn of(receipt: usize, bytes: &mut &'a [u8]) -> Result<Self, ReceiptsError> {
        let fault = |error| ReceiptsError::Field { receipt, field: "receipt", error };
        Ok(Self { receipt, rest: Header::decode_bytes(bytes, true).map_err(fault)? })
    }

    fn next<T: Decodable>(&mut self, field: &'static str) -> Result<T, ReceiptsError> {
        let receipt = self.receipt;
        T::decode(&mut self.rest).map_err(|error| ReceiptsError::Field { receipt, field, error })
    }

    /// Decodes a status (EIP-658), or a state root if the field has 32 bytes.
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

    /// Decodes the fields from `logs` on, and rejects trailing bytes.
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

/// The bit positions of every value of the logs of a block, or of some blocks.
///
/// Most values of a block are repeated: in nine mainnet blocks, 9 to 45 % of the values are
/// distinct. Hashing each value once saves most of the work.
pub(in crate::eth) struct LogBlooms {
    /// Bit positions of the distinct values.
    positions: Vec<[u16; 3]>,
    /// Indices in `positions` of all values of all logs, in the order of the receipts.
    values: Vec<u32>,
    /// For each receipt, the offset in `values` at which its values end.
    ends: Vec<usize>,
}

impl LogBlooms {
    /// Hashes the values of all logs.
    pub(super) fn of(backend: Backend, receipts: &BlockReceipts) -> Self {
        let count = receipts.iter().flat_map(|receipt| &receipt.logs).map(values_of_log).sum();
        let values = receipts.iter().map(|receipt| {
            receipt.logs.iter().flat_map(|log| {
                let topics = log.topics().iter().map(B256::as_slice);
                core::iter::once(log.address.as_slice()).chain(topics)
            })
        });
        Self::of_values(backend, count, values)
    }

    /// Hashes `count` values, which are given receipt by receipt.
    pub(in crate::eth) fn of_values<'a>(
        backend: Backend,
        count: usize,
        receipts: impl Iterator<Item: Iterator<Item = &'a [u8]>>,
    ) -> Self {
        let mut distinct = Distinct::with_capacity(count);
        let mut values = Vec::with_capacity(count);
        let mut ends = Vec::with_capacity(receipts.size_hint().0);
        for receipt in receipts {
            receipt.for_each(|value| values.push(distinct.index_of(value)));
            ends.push(values.len());
        }
        Self { positions: bloom::positions_of_each_on(backend, &distinct.values), values, ends }
    }

    /// Returns the filter of the logs of one receipt.
    pub(in crate::eth) fn of_receipt(&self, receipt: usize) -> [u8; bloom::BYTES] {
        self.of_receipts(receipt..receipt + 1)
    }

    /// Returns the filter of the logs of some receipts.
    pub(in crate::eth) fn of_receipts(&self, receipts: Range<usize>) -> [u8; bloom::BYTES] {
        let end = |receipts: usize| receipts.checked_sub(1).map_or(0, |last| self.ends[last]);
        let mut filter = [0; bloom::BYTES];
        for &value in &self.values[end(receipts.start)..end(receipts.end)] {
            bloom::accrue(&mut filter, &self.positions[value as usize]);
        }
        filter
    }

    /// Returns the filter of all logs of the block.
    pub(super) fn of_block(&self) -> [u8; bloom::BYTES] {
        let mut filter = [0; bloom::BYTES];
        self.positions.iter().for_each(|value| bloom::accrue(&mut filter, value));
        filter
    }

    /// Returns the index of the first receipt whose given filter differs from the filter of its
    /// logs.
    pub(super) fn first_other(&self, receipts: &BlockReceipts) -> Option<usize> {
        receipts.entries.iter().enumerate().position(|(receipt, entry)| {
            let given = match &entry.form {
                Form::Encoded { bloom, .. } => &receipts.raw[bloom.clone()],
                Form::Fields { bloom: Some(bloom) } => &bloom[..],
                Form::Fields { bloom: None } => return false,
            };
            given != self.of_receipt(receipt)
        })
    }
}

fn values_of_log(log: &Log) -> usize {
    1 + log.topics().len()
}

/// Removes most repetitions from a sequence of values.
///
/// Each value is mapped to a slot, and a slot stores the index of its latest value. If different
/// values alternate in one slot, each is treated as new and hashed again, but different values are
/// never confused. So an attacker can choose values that share slots, but at worst every value is
/// hashed.
struct Distinct<'a> {
    values: Vec<&'a [u8]>,
    /// Index in `values` plus one, or 0 for an empty slot.
    slots: Vec<u32>,
    shift: u32,
}

impl<'a> Distinct<'a> {
    fn with_capacity(count: usize) -> Self {
        let slots = (2 * count).next_power_of_two().clamp(16, 1 << 16);
        Self { values: Vec::new(), slots: vec![0; slots], shift: 64 - slots.ilog2() }
    }

    fn index_of(&mut self, value: &'a [u8]) -> u32 {
        let slot = usize::try_from(mix(value) >> self.shift).expect("at most 16 bits");
        let slot = &mut self.slots[slot];
        if let Some(index) = slot.checked_sub(1)
            && self.values[index as usize] == value
        {
            return index;
        }
        self.values.push(value);
        *slot = u32::try_from(self.values.len()).expect("2^32 values are 80 GiB");
        *slot - 1
    }
}

/// Mixes all bytes of an address or a topic into a 64-bit number.
///
/// All bytes are used, because padding gives many topics the same first or last bytes.
fn mix(value: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = value.as_chunks::<8>();
    let rest = rest.iter().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
    let words = words.iter().map(|word| u64::from_le_bytes(*word)).chain([rest]);
    // The products do not wait for each other.
    let mixed = words.fold(0_u64, |mixed, word| mixed.rotate_left(23) ^ word.wrapping_mul(FACTOR));
    (mixed ^ mixed >> 32).wrapping_mul(FACTOR)
}
