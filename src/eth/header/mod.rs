//! Block headers as received, and chains of headers.
//!
//! A header's hash is the Keccak-256 of its RLP. So headers are kept as the received bytes, and
//! [`HeaderView`] reads the fields in place. Unknown fields that later forks append are kept and
//! hashed, too. A header from JSON ([`HeaderBuf::from_json`]) or from alloy's type is encoded, and
//! its hash must equal the hash that its source claims.
//!
//! Sources for the fields: Yellow Paper 4.4.3; EIP-1559, 4895, 4844, 4788, 7685, 7928, 7843.

mod chain;
#[cfg(test)]
pub(super) mod tests;
mod view;

use alloc::vec::Vec;
use core::fmt;

use alloy_primitives::{Address, B64, B256, Bytes, U256};
use alloy_rlp::Encodable;

use crate::eth::json::message;

pub use chain::{ChainBlock, ChainError, Linked, LinkedHeaders};
pub use view::{HeaderError, HeaderLayout, HeaderView, bloom_at_fixed_place};

/// The number and hash of a block. The hash alone identifies the block.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct BlockRef {
    /// Number of the block.
    pub number: u64,
    /// Hash of the block.
    pub hash: B256,
}

impl From<&HeaderBuf> for BlockRef {
    fn from(header: &HeaderBuf) -> Self {
        Self { number: header.view().number(), hash: header.hash() }
    }
}

/// Writes number and hash, for example `block 17000000, 0x96cf…` with all digits of the hash.
impl fmt::Display for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}, {}", self.number, self.hash)
    }
}

/// A header that owns its RLP.
///
/// `serde` writes the RLP as a string of hex with `0x`, and rejects bytes that are not a header.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct HeaderBuf {
    rlp: Vec<u8>,
    hash: B256,
}

impl TryFrom<Bytes> for HeaderBuf {
    type Error = HeaderError;

    fn try_from(rlp: Bytes) -> Result<Self, HeaderError> {
        Self::from_rlp(rlp.into())
    }
}

impl From<HeaderBuf> for Bytes {
    fn from(header: HeaderBuf) -> Self {
        header.rlp.into()
    }
}

impl HeaderBuf {
    /// Parses the block or header object of JSON-RPC.
    ///
    /// The methods `eth_getBlockByNumber`, `eth_getHeaderByHash` and `eth_subscribe` return a block
    /// or header object. Fields that are not part of a header are ignored.
    ///
    /// The claimed `hash` must equal the hash of the fields. This check does not authenticate the
    /// header: the hash itself must be trusted for another reason.
    ///
    /// # Errors
    /// Returns a [`HeaderError`]. For malformed JSON, the error contains the line, the column
    /// and the field.
    pub fn from_json(json: &str) -> Result<Self, HeaderError> {
        let fields: JsonHeader =
            serde_json::from_str(json).map_err(|error| HeaderError::Json(message(&error)))?;
        Self::of(&fields)
    }

    /// Encodes the fields, and checks that their hash is the claimed hash.
    pub(in crate::eth) fn of(fields: &JsonHeader) -> Result<Self, HeaderError> {
        let header = Self::from_rlp(fields.encode()?)?;
        if header.hash != fields.hash {
            let (claimed, computed) = (fields.hash, header.hash);
            return Err(HeaderError::HashMismatch { claimed, computed });
        }
        Ok(header)
    }

    /// Decodes the RLP of a header, as `debug_getRawHeader` returns it.
    ///
    /// # Errors
    /// Returns a [`HeaderError`] if the header is malformed or trailing bytes follow it.
    pub fn from_rlp(rlp: Vec<u8>) -> Result<Self, HeaderError> {
        let hash = HeaderView::decode(&rlp)?.hash();
        Ok(Self { rlp, hash })
    }

    /// Returns the RLP of the header.
    pub fn rlp(&self) -> &[u8] {
        &self.rlp
    }

    /// Returns the hash of the header.
    pub fn hash(&self) -> B256 {
        self.hash
    }

    /// Returns a view of the header's fields.
    pub fn view(&self) -> HeaderView<'_> {
        HeaderView::decode(&self.rlp).expect("decoded when it was made")
    }
}

/// The fields of a header in JSON-RPC, in the order of the RLP.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::eth) struct JsonHeader {
    pub(in crate::eth) hash: B256,
    pub(in crate::eth) parent_hash: B256,
    #[serde(alias = "ommersHash")]
    pub(in crate::eth) sha3_uncles: B256,
    #[serde(alias = "beneficiary")]
    pub(in crate::eth) miner: Address,
    pub(in crate::eth) state_root: B256,
    pub(in crate::eth) transactions_root: B256,
    pub(in crate::eth) receipts_root: B256,
    pub(in crate::eth) logs_bloom: Bytes,
    pub(in crate::eth) difficulty: U256,
    pub(in crate::eth) number: U256,
    pub(in crate::eth) gas_limit: U256,
    pub(in crate::eth) gas_used: U256,
    pub(in crate::eth) timestamp: U256,
    pub(in crate::eth) extra_data: Bytes,
    pub(in crate::eth) mix_hash: B256,
    pub(in crate::eth) nonce: B64,
    pub(in crate::eth) base_fee_per_gas: Option<U256>,
    pub(in crate::eth) withdrawals_root: Option<B256>,
    pub(in crate::eth) blob_gas_used: Option<U256>,
    pub(in crate::eth) excess_blob_gas: Option<U256>,
    pub(in crate::eth) parent_beacon_block_root: Option<B256>,
    pub(in crate::eth) requests_hash: Option<B256>,
    pub(in crate::eth) block_access_list_hash: Option<B256>,
    pub(in crate::eth) slot_number: Option<U256>,
}

impl JsonHeader {
    fn encode(&self) -> Result<Vec<u8>, HeaderError> {
        let always: [&dyn Encodable; 15] = [
            &self.parent_hash,
            &self.sha3_uncles,
            &self.miner,
            &self.state_root,
            &self.transactions_root,
            &self.receipts_root,
            &self.logs_bloom,
            &self.difficulty,
            &self.number,
            &self.gas_limit,
            &self.gas_used,
            &self.timestamp,
            &self.extra_data,
            &self.mix_hash,
            &self.nonce,
        ];
        let mut fields = always.to_vec();
        let mut missing = None;
        // If a field were missing, the next field would move to the position of the missing field
        // and change its meaning.
        for (name, field) in self.by_fork() {
            match (field, missing) {
                (Some(field), None) => fields.push(field),
                (Some(_), Some(missing)) => {
                    return Err(HeaderError::Hole { missing, present: name });
                }
                (None, _) => missing = missing.or(Some(name)),
            }
        }
        let mut rlp = Vec::with_capacity(700);
        alloy_rlp::encode_list::<_, dyn Encodable>(&fields, &mut rlp);
        Ok(rlp)
    }

    /// Returns the fields that forks added, in the order of the RLP.
    fn by_fork(&self) -> [(&'static str, Option<&dyn Encodable>); 8] {
        fn field<T: Encodable>(value: Option<&T>) -> Option<&dyn Encodable> {
            value.map(|value| value as &dyn Encodable)
        }
        [
            ("baseFeePerGas", field(self.base_fee_per_gas.as_ref())),
            ("withdrawalsRoot", field(self.withdrawals_root.as_ref())),
            ("blobGasUsed", field(self.blob_gas_used.as_ref())),
            ("excessBlobGas", field(self.excess_blob_gas.as_ref())),
            ("parentBeaconBlockRoot", field(self.parent_beacon_block_root.as_ref())),
            ("requestsHash", field(self.requests_hash.as_ref())),
            ("blockAccessListHash", field(self.block_access_list_hash.as_ref())),
            ("slotNumber", field(self.slot_number.as_ref())),
        ]
    }
}
