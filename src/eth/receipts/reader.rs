//! Receipts from untrusted sources: read within limits, and of any type.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use alloy_primitives::{Bytes, Log};
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use super::json::{JsonReceipt, Object, Objects, OrNull};
use super::rlp::is_known;
use super::{BlockReceipts, Receipt, ReceiptEntry, ReceiptsError};
use crate::eth::bloom;

/// Limits of the receipts of one block.
///
/// A short text can contain many empty receipts and logs. Each of these takes more memory than its
/// text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptLimits {
    /// Maximum number of receipts.
    pub receipts: u64,
    /// Maximum number of logs.
    pub logs: u64,
    /// Maximum number of bytes that the receipts take in memory, approximately.
    pub bytes: u64,
}

/// Gas of a `LOG` instruction without topics and data, since Frontier (Yellow Paper, appendix G).
const LOG_GAS: u64 = 375;

impl ReceiptLimits {
    /// No limits.
    pub const NONE: Self = Self { receipts: u64::MAX, logs: u64::MAX, bytes: u64::MAX };

    /// Returns limits that no block exceeds whose header states this gas.
    ///
    /// On Ethereum, a transaction has used at least 21,000 gas and a log at least 375 gas since
    /// Frontier. The limits are wider. They allow one receipt for each 1,000 gas, and one log for each
    /// 125 gas, in case a later fork lowers the prices. In addition, 10,000 receipts and 10,000 logs
    /// are allowed, because some chains do not charge for all transactions, for example for deposits
    /// and system transactions.
    ///
    /// # Examples
    /// ```
    /// use chainsieve::eth::receipts::ReceiptLimits;
    ///
    /// // The most logs that 300 million gas pay for.
    /// assert!(ReceiptLimits::of_gas(300_000_000).logs > 800_000);
    /// // A block without gas may still have transactions of its system.
    /// assert_eq!(ReceiptLimits::of_gas(0).receipts, 10_000);
    /// ```
    pub const fn of_gas(gas_used: u64) -> Self {
        Self {
            receipts: 10_000 + gas_used / 1000,
            logs: 10_000 + gas_used / (LOG_GAS / 3),
            bytes: u64::MAX,
        }
    }
}

/// Types of receipts that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::eth) enum Types {
    Known,
    /// Any type byte (EIP-2718), in the form of the known types.
    Any,
}

impl Types {
    pub(super) const fn include(self, receipt_type: u8) -> bool {
        match self {
            Self::Known => is_known(receipt_type),
            Self::Any => receipt_type < 0x80,
        }
    }
}

/// The rest of the limits for a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    left: ReceiptLimits,
    limits: ReceiptLimits,
    pub(super) keeps_claims: bool,
}

/// Approximate bytes of an allocation beside its content.
const ALLOCATION: usize = 16;

impl Room {
    const fn new(limits: ReceiptLimits, keeps_claims: bool) -> Self {
        Self { left: limits, limits, keeps_claims }
    }

    pub(super) const fn unlimited() -> Self {
        Self::new(ReceiptLimits::NONE, true)
    }

    fn take(left: &mut u64, count: usize, limit: u64, what: &str) -> Result<(), String> {
        *left =
            left.checked_sub(count as u64).ok_or_else(|| format!("more than {limit} {what}"))?;
        Ok(())
    }

    /// Counts a receipt, with its filter.
    pub(super) fn receipt(&mut self) -> Result<(), String> {
        Self::take(&mut self.left.receipts, 1, self.limits.receipts, "receipts")?;
        // It is held twice while the receipts are put in order.
        let size = 2 * size_of::<JsonReceipt>() + bloom::BYTES;
        Self::take(&mut self.left.bytes, size, self.limits.bytes, "bytes of receipts")
    }

    pub(super) fn log(&mut self, topics: usize, data: usize) -> Result<(), String> {
        Self::take(&mut self.left.logs, 1, self.limits.logs, "logs")?;
        let size = log_size(topics, data) + if self.keeps_claims { 16 } else { 0 };
        Self::take(&mut self.left.bytes, size, self.limits.bytes, "bytes of receipts")
    }
}

/// Returns the approximate number of bytes that a log takes in memory.
const fn log_size(topics: usize, data: usize) -> usize {
    let topics = if topics == 0 { 0 } else { 32 * topics + ALLOCATION };
    let data = if data == 0 { 0 } else { data + ALLOCATION };
    size_of::<Log>() + topics + data
}

impl BlockReceipts {
    /// Returns the approximate number of bytes that the receipts take in memory.
    pub fn size(&self) -> usize {
        let logs = self.iter().flat_map(|receipt| &receipt.logs);
        let logs = logs.map(|log| log_size(log.topics().len(), log.data.data.len()));
        let entries = self.entries.len() * (size_of::<ReceiptEntry>() + bloom::BYTES);
        let claims = self.claims.iter().map(|claims| {
            size_of_val(claims) + size_of::<Option<u64>>() * claims.log_indices.len()
        });
        logs.sum::<usize>() + entries + self.raw.len() + claims.sum::<usize>()
    }
}

/// Reads the receipts of a block within limits. JSON is read element by element, from a text or a stream,
/// so that only the receipts themselves are in memory.
///
/// # Examples
/// ```
/// use chainsieve::eth::receipts::{ReceiptLimits, ReceiptsReader};
/// use serde::de::DeserializeSeed;
///
/// let limits = ReceiptLimits { receipts: 1, ..ReceiptLimits::NONE };
/// let read = |json: &str| {
///     let stream = json.as_bytes();
///     ReceiptsReader::new(limits).json().deserialize(&mut serde_json::Deserializer::from_reader(stream))
/// };
/// assert!(read("null").unwrap().is_none());
/// let receipt = |index| {
///     format!(r#"{{"transactionIndex":"{index:#x}","status":"0x1","cumulativeGasUsed":"0x1","logs":[]}}"#)
/// };
/// assert_eq!(read(&format!("[{}]", receipt(0))).unwrap().unwrap().len(), 1);
/// let error = read(&format!("[{},{}]", receipt(0), receipt(1))).unwrap_err().to_string();
/// assert!(error.starts_with("[1]: more than 1 receipts"), "{error}");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ReceiptsReader {
    room: Room,
    types: Types,
}

impl ReceiptsReader {
    /// Reads receipts of known types, with their [claims](BlockReceipts::claims).
    pub const fn new(limits: ReceiptLimits) -> Self {
        Self { room: Room::new(limits, true), types: Types::Known }
    }

    /// Also reads receipts of unknown types, as if they had the fields that receipts of all known types
    /// have. If they have other fields, their root differs, which [`verify`](BlockReceipts::verify) reports
    /// as [`ReceiptsError::RootOfUnknownType`].
    #[must_use]
    pub const fn any_type(self) -> Self {
        Self { types: Types::Any, ..self }
    }

    /// Drops the [claims](BlockReceipts::claims) of a JSON source.
    #[must_use]
    pub const fn without_claims(self) -> Self {
        Self { room: Room { keeps_claims: false, ..self.room }, ..self }
    }

    /// Reads the array that `eth_getBlockReceipts` returns, as
    /// [`from_json`](BlockReceipts::from_json) does, or `null`.
    pub fn json(self) -> impl for<'de> DeserializeSeed<'de, Value = Option<BlockReceipts>> {
        OrNull(FromJson(self))
    }

    /// Reads the array that `debug_getRawReceipts` returns, as
    /// [`from_encodings`](BlockReceipts::from_encodings) does, or `null`.
    pub fn hex_encodings(
        self,
    ) -> impl for<'de> DeserializeSeed<'de, Value = Option<BlockReceipts>> {
        OrNull(FromHex(self))
    }

    /// Decodes the consensus encoding of every receipt, as
    /// [`from_encodings`](BlockReceipts::from_encodings) does.
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if an encoding is malformed, or a limit is exceeded.
    pub fn encodings(
        mut self,
        encodings: &[impl AsRef<[u8]>],
    ) -> Result<BlockReceipts, ReceiptsError> {
        let mut receipts = BlockReceipts::default();
        for encoding in encodings {
            self.push(&mut receipts, encoding.as_ref())?;
        }
        Ok(receipts)
    }

    /// Reads the receipt that `eth_getTransactionReceipt` returns, or `null`.
    pub fn single(self) -> impl for<'de> DeserializeSeed<'de, Value = Option<SingleReceipts>> {
        OrNull(FromObject(self))
    }

    /// Collects the receipts of a block one by one.
    pub const fn one_by_one(self) -> SingleReceipts {
        SingleReceipts { reader: self, read: Vec::new() }
    }

    fn push(&mut self, receipts: &mut BlockReceipts, encoding: &[u8]) -> Result<(), ReceiptsError> {
        let room = &mut self.room;
        room.receipt().map_err(ReceiptsError::Json)?;
        let bytes = "bytes of receipts";
        Room::take(&mut room.left.bytes, encoding.len(), room.limits.bytes, bytes)
            .map_err(ReceiptsError::Json)?;
        let Receipt { logs, .. } = receipts.push_encoding(encoding, self.types)?;
        for log in logs {
            room.log(log.topics().len(), log.data.data.len()).map_err(ReceiptsError::Json)?;
        }
        Ok(())
    }
}

/// Receipts of a block that are read one by one, in any order.
#[derive(Debug)]
pub struct SingleReceipts {
    reader: ReceiptsReader,
    read: Vec<JsonReceipt>,
}

impl SingleReceipts {
    /// Returns a reader of the next receipt, with the limits that are left.
    pub const fn reader(&self) -> ReceiptsReader {
        self.reader
    }

    /// Adds a receipt that [`single`](ReceiptsReader::single) has read.
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if a limit is exceeded.
    pub fn add(&mut self, single: Self) -> Result<(), ReceiptsError> {
        let room = &mut self.reader.room;
        for receipt in single.read {
            room.receipt().map_err(ReceiptsError::Json)?;
            for log in &receipt.entry.receipt.logs {
                room.log(log.topics().len(), log.data.data.len()).map_err(ReceiptsError::Json)?;
            }
            self.read.push(receipt);
        }
        Ok(())
    }

    /// Returns the receipts in order.
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if the transaction indices are not exactly 0, 1, 2 and so on, or if a
    /// type is unknown.
    pub fn finish(self) -> Result<BlockReceipts, ReceiptsError> {
        BlockReceipts::in_order(self.read, self.reader.types)
    }
}

struct FromObject(ReceiptsReader);

impl<'de> DeserializeSeed<'de> for FromObject {
    type Value = SingleReceipts;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<SingleReceipts, D::Error> {
        let mut room = self.0.room;
        let receipt = Object::<JsonReceipt>::new(&mut room).deserialize(deserializer)?;
        Ok(SingleReceipts { reader: self.0, read: [receipt].into() })
    }
}

struct FromJson(ReceiptsReader);

impl<'de> DeserializeSeed<'de> for FromJson {
    type Value = BlockReceipts;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<BlockReceipts, D::Error> {
        let ReceiptsReader { mut room, types } = self.0;
        let read = Objects::<JsonReceipt>::new(&mut room).deserialize(deserializer)?;
        BlockReceipts::in_order(read, types).map_err(D::Error::custom)
    }
}

struct FromHex(ReceiptsReader);

impl<'de> DeserializeSeed<'de> for FromHex {
    type Value = BlockReceipts;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<BlockReceipts, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for FromHex {
    type Value = BlockReceipts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of encodings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BlockReceipts, A::Error> {
        let (mut reader, mut receipts) = (self.0, BlockReceipts::default());
        while let Some(encoding) = list.next_element::<Bytes>()? {
            let pushed = reader.push(&mut receipts, &encoding);
            pushed.map_err(|error| A::Error::custom(error.to_string()))?;
        }
        Ok(receipts)
    }
}
