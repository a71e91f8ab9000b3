//! Headers from JSON-RPC: rebuilt as RLP, and accepted only under their hash.

use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::{Address, B64, B256, Bytes, U256};
use alloy_rlp::Encodable;

use super::{HeaderError, HeaderView};
use crate::eth::json::message;

/// Why JSON, or a header of alloy, is not accepted as a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonHeaderError {
    /// Not JSON, or a field is missing, twice there or malformed; the text names it.
    #[error("{0}")]
    Json(String),
    /// A field is missing although one that came with a later fork is there.
    #[error("{missing} is missing, though {present} is there")]
    Hole {
        /// The field that is missing.
        missing: &'static str,
        /// The later one.
        present: &'static str,
    },
    /// The fields, encoded, have another hash: one of them is not the block's, or the chain's
    /// headers have fields that are not known here. Ask for `debug_getRawHeader` then.
    #[error("the fields hash to {computed}, the claimed hash is {claimed}")]
    HashMismatch {
        /// The `hash` that came with the fields.
        claimed: B256,
        /// The hash of its fields.
        computed: B256,
    },
    /// The fields do not make a header.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

/// A header that owns its RLP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderBuf {
    rlp: Vec<u8>,
    hash: B256,
}

impl HeaderBuf {
    /// From the block or header object of JSON-RPC: `eth_getBlockByNumber`,
    /// `eth_getHeaderByHash`, `eth_subscribe`. What is not part of a header is ignored.
    ///
    /// The claimed `hash` alone authenticates nothing; that it equals the hash of the fields means
    /// that a chain that holds the one holds the other.
    ///
    /// # Errors
    /// [`JsonHeaderError`], with the line, the column and the field.
    pub fn from_json(json: &str) -> Result<Self, JsonHeaderError> {
        let fields: Fields =
            serde_json::from_str(json).map_err(|error| JsonHeaderError::Json(message(&error)))?;
        Self::of(&fields)
    }

    /// From fields whose hash is the one claimed.
    pub(super) fn of(fields: &Fields) -> Result<Self, JsonHeaderError> {
        let header = Self::from_rlp(fields.encode()?)?;
        if header.hash != fields.hash {
            let (claimed, computed) = (fields.hash, header.hash);
            return Err(JsonHeaderError::HashMismatch { claimed, computed });
        }
        Ok(header)
    }

    /// From the RLP of a header, as `debug_getRawHeader` returns it.
    ///
    /// # Errors
    /// [`HeaderError`], also if something stands behind the header.
    pub fn from_rlp(rlp: Vec<u8>) -> Result<Self, HeaderError> {
        let hash = HeaderView::decode(&rlp)?.hash();
        Ok(Self { rlp, hash })
    }

    /// The bytes whose hash the header's is.
    pub fn rlp(&self) -> &[u8] {
        &self.rlp
    }

    /// The hash of the header.
    pub fn hash(&self) -> B256 {
        self.hash
    }

    /// The fields.
    pub fn view(&self) -> HeaderView<'_> {
        HeaderView::decode(&self.rlp).expect("decoded when it was made")
    }
}

/// The fields of a header in JSON-RPC, in the order of the RLP.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fields {
    pub(super) hash: B256,
    pub(super) parent_hash: B256,
    #[serde(alias = "ommersHash")]
    pub(super) sha3_uncles: B256,
    #[serde(alias = "beneficiary")]
    pub(super) miner: Address,
    pub(super) state_root: B256,
    pub(super) transactions_root: B256,
    pub(super) receipts_root: B256,
    pub(super) logs_bloom: Bytes,
    pub(super) difficulty: U256,
    pub(super) number: U256,
    pub(super) gas_limit: U256,
    pub(super) gas_used: U256,
    pub(super) timestamp: U256,
    pub(super) extra_data: Bytes,
    pub(super) mix_hash: B256,
    pub(super) nonce: B64,
    pub(super) base_fee_per_gas: Option<U256>,
    pub(super) withdrawals_root: Option<B256>,
    pub(super) blob_gas_used: Option<U256>,
    pub(super) excess_blob_gas: Option<U256>,
    pub(super) parent_beacon_block_root: Option<B256>,
    pub(super) requests_hash: Option<B256>,
    pub(super) block_access_list_hash: Option<B256>,
    pub(super) slot_number: Option<U256>,
}

impl Fields {
    fn encode(&self) -> Result<Vec<u8>, JsonHeaderError> {
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
        for (name, field) in self.by_fork() {
            match (field, missing) {
                (Some(field), None) => fields.push(field),
                (Some(_), Some(missing)) => {
                    return Err(JsonHeaderError::Hole { missing, present: name });
                }
                (None, _) => missing = missing.or(Some(name)),
            }
        }
        let mut rlp = Vec::with_capacity(700);
        alloy_rlp::encode_list::<_, dyn Encodable>(&fields, &mut rlp);
        Ok(rlp)
    }

    /// The fields that came with forks, in their order.
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
