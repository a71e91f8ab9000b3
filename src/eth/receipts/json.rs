//! Parsing of receipts from JSON-RPC.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use alloy_primitives::{Address, B256, Log, LogData, hex};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::reader::{Room, Types};
use super::{
    BlockReceipts, Claims, DEPOSIT_TYPE, Form, Outcome, Receipt, ReceiptEntry, ReceiptsError,
};
use crate::eth::bloom;
use crate::eth::json::message;

impl BlockReceipts {
    /// Parses the array that `eth_getBlockReceipts` returns. The receipts may be in any order.
    ///
    /// The fields that the root covers must be written as JSON-RPC requires: with `0x`, with two
    /// digits for each byte, and without leading zeros in numbers. Some of the other fields are
    /// kept as [`claims`](Self::claims), and the rest is ignored.
    ///
    /// If a receipt has `root` and `status`, a legacy receipt uses `root` and a typed receipt uses
    /// `status`. An empty `root` is treated as missing. A receipt without `type` is a legacy
    /// receipt. A missing `logsBloom` is computed from the logs.
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] that names the receipt and the field if a receipt is malformed.
    /// Also returns an error if the transaction indices are not exactly 0, 1, 2 and so on.
    pub fn from_json(json: &str) -> Result<Self, ReceiptsError> {
        let mut json = serde_json::Deserializer::from_str(json);
        let mut room = Room::unlimited();
        let read = Objects::<JsonReceipt>::new(&mut room).deserialize(&mut json);
        let read = read.and_then(|read| json.end().map(|()| read));
        let read = read.map_err(|error| ReceiptsError::Json(message(&error)))?;
        Self::in_order(read, Types::Known)
    }

    /// Parses the answers of `eth_getTransactionReceipt` for all transactions of a block, in any
    /// order.
    ///
    /// # Errors
    /// Returns the same errors as [`from_json`](Self::from_json). The error for a malformed answer
    /// contains the index of this answer in `receipts`.
    pub fn from_json_each(receipts: &[impl AsRef<str>]) -> Result<Self, ReceiptsError> {
        let read = |(receipt, json): (usize, &str)| {
            let named = |error| ReceiptsError::Json(format!("[{receipt}]: {error}"));
            let mut json = serde_json::Deserializer::from_str(json);
            let mut room = Room::unlimited();
            let read = Object::<JsonReceipt>::new(&mut room).deserialize(&mut json);
            read.and_then(|read| json.end().map(|()| read)).map_err(named)
        };
        let receipts = receipts.iter().map(AsRef::as_ref).enumerate();
        Self::in_order(receipts.map(read).collect::<Result<_, _>>()?, Types::Known)
    }

    pub(in crate::eth) fn in_order(
        mut read: Vec<JsonReceipt>,
        types: Types,
    ) -> Result<Self, ReceiptsError> {
        read.sort_by_key(|receipt| receipt.transaction_index);
        let receipts = read.len();
        let mut all = Self { entries: Vec::with_capacity(receipts), ..Self::default() };
        for (expected, JsonReceipt { transaction_index, entry, claims }) in (0..).zip(read) {
            if transaction_index < expected {
                return Err(ReceiptsError::Twice { transaction_index });
            }
            if transaction_index > expected {
                return Err(ReceiptsError::Missing { transaction_index: expected, receipts });
            }
            let receipt_type = entry.receipt.receipt_type;
            if !types.include(receipt_type) {
                return Err(ReceiptsError::UnknownType { receipt: all.len(), receipt_type });
            }
            all.entries.push(entry);
            all.claims.extend(claims);
        }
        Ok(all)
    }
}

/// A receipt, its index, and the claims about its position.
#[derive(Debug)]
pub(in crate::eth) struct JsonReceipt {
    pub(in crate::eth) transaction_index: u64,
    pub(in crate::eth) entry: ReceiptEntry,
    /// `None` if the claims are not wanted.
    pub(in crate::eth) claims: Option<Claims>,
}

struct JsonLog {
    log: Log,
    log_index: Option<u64>,
}

/// Parses the fields of an object, each at most once.
///
/// A macro is used instead of a serde derive, because serde's error does not name the field whose
/// value is wrong.
macro_rules! read_fields {
    ($object:ident; $($field:ident: $name:literal $(by $seed:expr)?,)*) => {
        $(let mut $field = None;)*
        while let Some(name) = $object.next_key::<Cow<'de, str>>()? {
            match name.as_ref() {
                $($name => {
                    let seed = read_fields!(@seed $($seed)?);
                    read_field(&mut $object, $name, seed, &mut $field)?;
                })*
                _ => drop($object.next_value::<IgnoredAny>()?),
            }
        }
        $(let $field = $field.flatten();)*
    };
    (@seed) => { PhantomData };
    (@seed $seed:expr) => { $seed };
}

impl FromObject for JsonReceipt {
    const NAME: &'static str = "a receipt";

    fn from_object<'de, A: MapAccess<'de>>(
        mut object: A,
        room: &mut Room,
    ) -> Result<Self, A::Error> {
        room.receipt().map_err(A::Error::custom)?;
        read_fields! { object;
            receipt_type: "type",
            root: "root",
            status: "status",
            cumulative_gas_used: "cumulativeGasUsed",
            bloom: "logsBloom",
            logs: "logs" by Objects::<JsonLog>::new(room),
            transaction_index: "transactionIndex",
            deposit_nonce: "depositNonce",
            deposit_receipt_version: "depositReceiptVersion",
            block_hash: "blockHash",
            block_number: "blockNumber",
            transaction_hash: "transactionHash",
        }
        let receipt_type = receipt_type.map_or(0, |Quantity(number)| number);
        let receipt_type = u8::try_from(receipt_type)
            .map_err(|_| A::Error::custom(format!("type: {receipt_type:#x} is above 0xff")))?;
        // Receipts had statuses before typed transactions existed, so a typed receipt has a status.
        // A legacy receipt with `root` may be from before Byzantium, with a status that its source
        // made up.
        let root = root.filter(|_| receipt_type == 0 || status.is_none());
        let outcome = match (root, status) {
            (Some(PostState(Some(root))), _) => Outcome::PostState(root),
            (_, Some(Quantity(status @ (0 | 1)))) => Outcome::Status(status == 1),
            (_, Some(Quantity(status))) => {
                return Err(A::Error::custom(format!(
                    "status: {status:#x} is neither 0x0 nor 0x1"
                )));
            }
            (_, None) => Outcome::Unknown,
        };
        // In receipts of other types, the root covers neither the nonce nor the version of a
        // deposit, although a source may add these fields.
        let of_deposit =
            |value: Option<Quantity>| value.map(number).filter(|_| receipt_type == DEPOSIT_TYPE);
        let logs: Vec<JsonLog> = required("logs", logs)?;
        let keeps_claims = room.keeps_claims;
        let log_indices =
            if keeps_claims { logs.iter().map(|log| log.log_index).collect() } else { Vec::new() };
        // Exactly as long as the list, which grew in steps.
        let mut own_logs = Vec::with_capacity(logs.len());
        own_logs.extend(logs.into_iter().map(|log| log.log));
        let receipt = Receipt {
            receipt_type,
            outcome,
            cumulative_gas_used: number(required("cumulativeGasUsed", cumulative_gas_used)?),
            logs: own_logs,
            deposit_nonce: of_deposit(deposit_nonce),
            deposit_receipt_version: of_deposit(deposit_receipt_version),
        };
        if receipt.deposit_receipt_version.is_some() && receipt.deposit_nonce.is_none() {
            return Err(A::Error::custom("depositNonce is missing beside depositReceiptVersion"));
        }
        let claims = Claims {
            block_hash: block_hash.map(|Fixed(hash)| B256::new(hash)),
            block_number: block_number.map(number),
            transaction_hash: transaction_hash.map(|Fixed(hash)| B256::new(hash)),
            log_indices,
        };
        let bloom = bloom.map(|Fixed::<{ bloom::BYTES }>(bloom)| Box::new(bloom));
        Ok(Self {
            transaction_index: number(required("transactionIndex", transaction_index)?),
            entry: ReceiptEntry { receipt, form: Form::Fields { bloom } },
            claims: keeps_claims.then_some(claims),
        })
    }
}

impl FromObject for JsonLog {
    const NAME: &'static str = "a log";

    fn from_object<'de, A: MapAccess<'de>>(
        mut object: A,
        room: &mut Room,
    ) -> Result<Self, A::Error> {
        read_fields! { object;
            address: "address",
            topics: "topics",
            data: "data",
            log_index: "logIndex",
        }
        let Fixed(address) = required("address", address)?;
        let List(topics) = required("topics", topics)?;
        let topics: Vec<B256> = topics.into_iter().map(|Fixed(topic)| B256::new(topic)).collect();
        let Data(data) = required("data", data)?;
        room.log(topics.len(), data.len()).map_err(A::Error::custom)?;
        let data = LogData::new_unchecked(topics, data.into());
        let log_index = log_index.map(number);
        Ok(Self { log: Log { address: Address::new(address), data }, log_index })
    }
}

/// Parses the value of a field, and rejects a field that occurs twice.
///
/// `field` is `None` before the first value, and `Some(None)` after a `null`.
#[expect(clippy::option_option, reason = "a null must not hide a duplicate field")]
fn read_field<'de, S: DeserializeSeed<'de>, A: MapAccess<'de>>(
    object: &mut A,
    name: &str,
    seed: S,
    field: &mut Option<Option<S::Value>>,
) -> Result<(), A::Error> {
    let named = |error: A::Error| A::Error::custom(format!("{name}: {error}"));
    match field.replace(object.next_value_seed(OrNull(seed)).map_err(named)?) {
        None => Ok(()),
        Some(_) => Err(A::Error::custom(format!("duplicate field {name}"))),
    }
}

fn required<T, E: Error>(name: &str, field: Option<T>) -> Result<T, E> {
    field.ok_or_else(|| E::custom(format!("{name} is missing")))
}

fn number(Quantity(number): Quantity) -> u64 {
    number
}

/// A value of a seed, or `null`.
pub(super) struct OrNull<S>(pub(super) S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for OrNull<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for OrNull<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

pub(super) trait FromObject: Sized {
    const NAME: &'static str;

    /// Reads the object, and counts the memory of its kept parts.
    fn from_object<'de, A: MapAccess<'de>>(object: A, room: &mut Room) -> Result<Self, A::Error>;
}

/// A JSON object.
pub(super) struct Object<'a, T> {
    room: &'a mut Room,
    of: PhantomData<T>,
}

impl<'a, T> Object<'a, T> {
    pub(super) fn new(room: &'a mut Room) -> Self {
        Self { room, of: PhantomData }
    }
}

impl<'de, T: FromObject> DeserializeSeed<'de> for Object<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: FromObject> Visitor<'de> for Object<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::NAME)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<T, A::Error> {
        T::from_object(object, self.room)
    }
}

/// A JSON array of objects. If an object is invalid, the error contains its index.
pub(super) struct Objects<'a, T> {
    room: &'a mut Room,
    of: PhantomData<T>,
}

impl<'a, T> Objects<'a, T> {
    pub(super) fn new(room: &'a mut Room) -> Self {
        Self { room, of: PhantomData }
    }
}

impl<'de, T: FromObject> DeserializeSeed<'de> for Objects<'_, T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: FromObject> Visitor<'de> for Objects<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        loop {
            let element = elements.next_element_seed(Object::new(&mut *self.room));
            let named = |error| A::Error::custom(format!("[{}]: {error}", list.len()));
            match element.map_err(named)? {
                Some(element) => list.push(element),
                None => return Ok(list),
            }
        }
    }
}

/// A limit far above the four topics that a log has at most.
const MOST_TOPICS: usize = 1024;

/// A JSON array of at most [`MOST_TOPICS`] elements. If an element is invalid, the error names the index of the
/// element.
struct List<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<List<T>, A::Error> {
                let mut list = Vec::new();
                let named = |at: usize, error| A::Error::custom(format!("[{at}]: {error}"));
                while let Some(element) =
                    elements.next_element().map_err(|error| named(list.len(), error))?
                {
                    if list.len() == MOST_TOPICS {
                        return Err(A::Error::custom(format_args!(
                            "more than {MOST_TOPICS} elements"
                        )));
                    }
                    list.push(element);
                }
                Ok(List(list))
            }
        }

        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

/// A value that JSON-RPC writes as a string.
trait FromText: Sized {
    /// Description of the expected text, for errors.
    const NAME: &'static str;

    fn from_text(text: &str) -> Option<Self>;
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: FromText> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::NAME)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).ok_or_else(|| {
            let start: String = text.chars().take(80).collect();
            E::invalid_value(serde::de::Unexpected::Str(&start), &self)
        })
    }
}

macro_rules! read_as_text {
    ($([$($generics:tt)*] $type:ty),*) => {$(
        impl<'de, $($generics)*> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextVisitor(PhantomData))
            }
        }
    )*};
}
read_as_text!([] Quantity, [] Data, [const N: usize] Fixed<N>, [] PostState);

/// A number: `0x` and hex digits without leading zeros, or `0x0`.
struct Quantity(u64);

impl FromText for Quantity {
    const NAME: &'static str = "0x and a number of at most 64 bits without leading zeros";

    fn from_text(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x")?;
        let canonical = digits == "0" || !digits.starts_with(['0', '+']);
        u64::from_str_radix(digits, 16).ok().filter(|_| canonical).map(Self)
    }
}

/// A string of bytes of any length.
struct Data(Vec<u8>);

impl FromText for Data {
    const NAME: &'static str = "0x and an even number of hex digits";

    fn from_text(text: &str) -> Option<Self> {
        hex::decode(digits(text)?).ok().map(Self)
    }
}

/// A string of exactly `N` bytes.
struct Fixed<const N: usize>([u8; N]);

impl<const N: usize> FromText for Fixed<N> {
    const NAME: &'static str = match N {
        20 => "0x and 40 hex digits",
        32 => "0x and 64 hex digits",
        _ => "0x and 512 hex digits",
    };

    fn from_text(text: &str) -> Option<Self> {
        let mut bytes = [0; N];
        hex::decode_to_slice(digits(text)?, &mut bytes).ok().map(|()| Self(bytes))
    }
}

/// A state root, or `None` for `0x`, which some nodes write if there is no root.
struct PostState(Option<B256>);

impl FromText for PostState {
    const NAME: &'static str = "0x, and 64 hex digits or none";

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "0x" => Some(Self(None)),
            text => Fixed::from_text(text).map(|Fixed(root)| Self(Some(B256::new(root)))),
        }
    }
}

/// Returns the digits after `0x`. A second `0x` is rejected, since the hex decoder would strip it.
fn digits(text: &str) -> Option<&str> {
    text.strip_prefix("0x").filter(|digits| !digits.starts_with("0x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_beside_a_status_counts_for_legacy_receipts_alone() {
        let outcome = |receipt_type: &str| {
            let json = format!(
                r#"[{{"type":"{receipt_type}","root":"0x{}","status":"0x1","logs":[],
                "cumulativeGasUsed":"0x1","transactionIndex":"0x0"}}]"#,
                "00".repeat(32)
            );
            BlockReceipts::from_json(&json).unwrap().iter().next().unwrap().outcome
        };
        assert_eq!(outcome("0x0"), Outcome::PostState(B256::ZERO));
        assert_eq!(outcome("0x2"), Outcome::Status(true));
    }
}
