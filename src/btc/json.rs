//! JSON forms that serde's derived implementations cannot produce, one module or macro for each
//! kind.
//!
//! The conventions: members in snake case; numbers as numbers, amounts in satoshis; hashes and
//! scripts as `bitcoin` writes them; transactions and headers as the hex of their consensus
//! encoding; the variant of an enum as a member, such as `kind`, beside the members of its value.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use bitcoin::OutPoint;
use bitcoin::bip158::FilterHash;

use crate::btc::bip37::{BloomFilter, MerkleBlock};
use crate::btc::bip158::audit::{Basis, InvalidFilter};

/// Defines modules for `serde(with = "…")` that give the only field of a tuple variant the name of
/// a member. Without a name, serde refuses to write a number or a text beside the tag of its enum.
macro_rules! members {
    ($($field:ident: $type:ty),+ $(,)?) => { $(
        #[expect(clippy::allow_attributes, reason = "only some types need the import, so `expect` would fail")]
        pub(in crate::btc) mod $field {
            #[allow(unused_imports, clippy::wildcard_imports, reason = "the type of the field")]
            use super::*;

            #[derive(serde::Serialize)]
            struct Borrowed<'a> {
                $field: &'a $type,
            }

            #[derive(serde::Deserialize)]
            struct Owned {
                $field: $type,
            }

            #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
            pub(in crate::btc) fn serialize<S: serde::Serializer>(
                $field: &$type,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&Borrowed { $field }, serializer)
            }

            pub(in crate::btc) fn deserialize<'de, D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                let Owned { $field } = serde::Deserialize::deserialize(deserializer)?;
                Ok($field)
            }
        }
    )+ };
}

#[cfg(all(feature = "std", feature = "descriptors"))]
pub(in crate::btc) use members;

members! {
    basis: Basis,
    bits: u64,
    bytes: usize,
    count: u64,
    filter_hash: FilterHash,
    fpr: f64,
    index: u32,
    outpoint: OutPoint,
    p: u8,
    peers: u32,
    proof: Box<InvalidFilter>,
}

#[cfg(feature = "std")]
members! {
    length: usize,
    version: u8,
}

#[cfg(feature = "descriptors")]
members! {
    reason: String,
}

/// A transaction or a header as hex.
pub(in crate::btc) mod consensus {
    use alloc::string::String;

    use bitcoin::consensus::encode::{Decodable, Encodable, deserialize_hex, serialize_hex};

    pub(in crate::btc) fn serialize<T: Encodable, S: serde::Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&serialize_hex(value))
    }

    pub(in crate::btc) fn deserialize<'de, T: Decodable, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let text: String = serde::Deserialize::deserialize(deserializer)?;
        deserialize_hex(&text).map_err(serde::de::Error::custom)
    }
}

/// A list of headers, each as hex.
pub(in crate::btc) mod consensus_list {
    use alloc::string::String;
    use alloc::vec::Vec;

    use bitcoin::consensus::encode::{Decodable, Encodable, deserialize_hex, serialize_hex};

    pub(in crate::btc) fn serialize<T: Encodable, S: serde::Serializer>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(serialize_hex))
    }

    pub(in crate::btc) fn deserialize<'de, T: Decodable, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        let texts: Vec<String> = serde::Deserialize::deserialize(deserializer)?;
        let values = texts.iter().map(|text| deserialize_hex(text));
        values.collect::<Result<_, _>>().map_err(serde::de::Error::custom)
    }
}

/// Inputs of a block: the position of the transaction in the block, and the position of the input
/// in the transaction.
pub(in crate::btc) mod inputs {
    use alloc::vec::Vec;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Input {
        transaction: u32,
        vin: u32,
    }

    pub(in crate::btc) fn serialize<S: serde::Serializer>(
        inputs: &[(u32, u32)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(inputs.iter().map(|&(transaction, vin)| Input { transaction, vin }))
    }

    pub(in crate::btc) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(u32, u32)>, D::Error> {
        let inputs: Vec<Input> = serde::Deserialize::deserialize(deserializer)?;
        Ok(inputs.into_iter().map(|Input { transaction, vin }| (transaction, vin)).collect())
    }
}

/// Implements serde for types that have an encoding of their own: as hex of the encoding, which is
/// checked when it is read.
macro_rules! hex_of_encoding {
    ($($type:ty),+) => { $(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&bitcoin::hex::DisplayHex::as_hex(&self.encode()))
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text: String = serde::Deserialize::deserialize(deserializer)?;
                let bytes: Vec<u8> =
                    bitcoin::hex::FromHex::from_hex(&text).map_err(serde::de::Error::custom)?;
                Self::decode(&bytes).map_err(serde::de::Error::custom)
            }
        }
    )+ };
}

hex_of_encoding!(InvalidFilter, BloomFilter, MerkleBlock);
