//! A view of a header's fields, which are read from its RLP in place.

use alloc::string::String;

use alloy_primitives::{Address, B256, U256};
use alloy_rlp::Header as RlpHeader;
use chainsieve_lanes::hash::keccak256;
use chainsieve_lanes::names;

use crate::eth::bloom::BloomView;

/// Error of reading a header from RLP, from JSON or from alloy's type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The bytes are not an RLP list.
    #[error("not an RLP list: {0}")]
    NotAList(alloy_rlp::Error),
    /// A field is not RLP.
    #[error("{field} is not RLP: {error}")]
    Rlp {
        /// Name of the field, as in JSON-RPC.
        field: &'static str,
        /// The error of `alloy_rlp`.
        error: alloy_rlp::Error,
    },
    /// The list ends before a field.
    #[error("the header ends before {field}")]
    Missing {
        /// Name of the field, as in JSON-RPC.
        field: &'static str,
    },
    /// A field is a list instead of bytes.
    #[error("{field} is a list")]
    UnexpectedList {
        /// Name of the field, as in JSON-RPC.
        field: &'static str,
    },
    /// A field has a wrong length.
    #[error("{field} has {length} bytes, not {expected}")]
    Length {
        /// Name of the field, as in JSON-RPC.
        field: &'static str,
        /// Number of bytes found.
        length: usize,
        /// Number of bytes that the field must have.
        expected: usize,
    },
    /// A number is too large for its field, or has leading zeros.
    #[error(
        "{field} has {length} bytes, but must be a number of at most {limit} bytes without leading \
         zeros"
    )]
    Number {
        /// Name of the field, as in JSON-RPC.
        field: &'static str,
        /// Number of bytes found.
        length: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// Trailing bytes follow the header.
    #[error("{0} trailing bytes after the header")]
    TrailingBytes(usize),
    /// The text is not JSON, or a field is missing, duplicate or malformed. The message names the
    /// field.
    #[error("{0}")]
    Json(String),
    /// A field is missing, although a field that a later fork added is present.
    #[error("{missing} is missing, but the later field {present} is present")]
    Hole {
        /// Name of the missing field.
        missing: &'static str,
        /// Name of the later field.
        present: &'static str,
    },
    /// The hash of the encoded fields differs from the claimed hash.
    ///
    /// Either a field is wrong, or the chain's headers have fields that are unknown to this
    /// library. For headers with unknown fields, use `debug_getRawHeader` instead of JSON.
    #[error("the fields hash to {computed}, but the claimed hash is {claimed}")]
    HashMismatch {
        /// The claimed `hash`.
        claimed: B256,
        /// The computed hash of the fields.
        computed: B256,
    },
}

/// Names of the fields that every header starts with, as in JSON-RPC.
const FIELDS: [&str; 13] = [
    "parentHash",
    "sha3Uncles",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "logsBloom",
    "difficulty",
    "number",
    "gasLimit",
    "gasUsed",
    "timestamp",
    "extraData",
];

const BLOOM_FIELD: usize = 6;
const DIFFICULTY_FIELD: usize = 7;
const NUMBER_FIELDS: core::ops::RangeInclusive<usize> = 8..=11;

/// Lengths of the first fields, up to `receiptsRoot`, which all have fixed lengths.
const LENGTHS: [usize; BLOOM_FIELD] = [32, 32, 20, 32, 32, 32];

/// A header of any fork, as received.
///
/// Decoding checks the lengths of the first thirteen fields, and that numbers in these fields are
/// canonical. The later fields differ from fork to fork and from chain to chain. The later fields
/// are kept as RLP items, and each accessor returns its field only if the item has the form of
/// mainnet. The hash is computed over the received bytes, so it also covers unknown later fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderView<'a> {
    rlp: &'a [u8],
    fields: [&'a [u8]; 13],
    /// The items after `extraData`, each of them well-formed RLP.
    rest: &'a [u8],
}

impl<'a> HeaderView<'a> {
    /// Decodes the header in `rlp`, which must not contain any other bytes.
    ///
    /// # Errors
    /// Returns a [`HeaderError`] that names the malformed field. Trailing bytes are an error.
    ///
    /// # Cost
    /// Nothing is copied or hashed.
    pub fn decode(rlp: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, behind) = Self::decode_prefix(rlp)?;
        if behind.is_empty() { Ok(header) } else { Err(HeaderError::TrailingBytes(behind.len())) }
    }

    /// Decodes a header at the start of `bytes`, and returns the header and the bytes after it.
    ///
    /// # Errors
    /// Returns a [`HeaderError`] that names the malformed field.
    pub fn decode_prefix(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), HeaderError> {
        let mut behind = bytes;
        let mut rest = RlpHeader::decode_bytes(&mut behind, true).map_err(HeaderError::NotAList)?;
        let (rlp, _) = bytes.split_at(bytes.len() - behind.len());
        let mut fields: [&[u8]; 13] = [&[]; 13];
        for (at, (field, &name)) in fields.iter_mut().zip(&FIELDS).enumerate() {
            *field = string(&mut rest, name)?;
            let length = field.len();
            if let Some(&expected) = LENGTHS.get(at)
                && length != expected
            {
                return Err(HeaderError::Length { field: name, length, expected });
            }
            if at == DIFFICULTY_FIELD {
                check_number(field, name, 32)?;
            } else if NUMBER_FIELDS.contains(&at) {
                check_number(field, name, 8)?;
            }
        }
        let header = Self { rlp, fields, rest };
        let mut items = rest;
        while !items.is_empty() {
            next_item(&mut items)
                .map_err(|error| HeaderError::Rlp { field: "a field after extraData", error })?;
        }
        Ok((header, behind))
    }

    /// Returns the RLP of the header as received.
    pub fn rlp(&self) -> &'a [u8] {
        self.rlp
    }

    /// Computes the block's hash: the Keccak-256 hash of the header as received.
    pub fn hash(&self) -> B256 {
        B256::new(keccak256(self.rlp))
    }

    /// Returns the hash of the preceding block.
    pub fn parent_hash(&self) -> B256 {
        B256::from_slice(self.fields[0])
    }

    /// Returns the Keccak-256 hash of the list of uncle headers.
    pub fn ommers_hash(&self) -> B256 {
        B256::from_slice(self.fields[1])
    }

    /// Returns the address that receives the block's fees and rewards (`miner` in JSON-RPC).
    pub fn beneficiary(&self) -> Address {
        Address::from_slice(self.fields[2])
    }

    /// Returns the root of the state after the block.
    pub fn state_root(&self) -> B256 {
        B256::from_slice(self.fields[3])
    }

    /// Returns the root of the transactions trie.
    pub fn transactions_root(&self) -> B256 {
        B256::from_slice(self.fields[4])
    }

    /// Returns the root of the receipts trie.
    pub fn receipts_root(&self) -> B256 {
        B256::from_slice(self.fields[5])
    }

    /// Returns the filter of the block's logs, which may have any length.
    pub fn logs_bloom(&self) -> BloomView<'a> {
        BloomView::from_wire(self.fields[BLOOM_FIELD])
    }

    /// Returns the difficulty of the block, which is 0 since the Merge.
    pub fn difficulty(&self) -> U256 {
        U256::from_be_slice(self.fields[DIFFICULTY_FIELD])
    }

    /// Returns the number of the block.
    pub fn number(&self) -> u64 {
        number(self.fields[8])
    }

    /// Returns the maximum gas that the block may use.
    pub fn gas_limit(&self) -> u64 {
        number(self.fields[9])
    }

    /// Returns the gas that the block used.
    pub fn gas_used(&self) -> u64 {
        number(self.fields[10])
    }

    /// Returns the Unix timestamp of the block in seconds.
    pub fn timestamp(&self) -> u64 {
        number(self.fields[11])
    }

    /// Returns `extraData`, the bytes that the block's producer may choose.
    pub fn extra_data(&self) -> &'a [u8] {
        self.fields[12]
    }

    /// Returns `mixHash`, which is `prevRandao` since the Merge.
    ///
    /// Returns `None` on chains that have a different field in place of `mixHash`.
    pub fn mix_hash(&self) -> Option<B256> {
        self.item_hash(0)
    }

    /// Returns the proof-of-work nonce, which is eight zero bytes since the Merge.
    ///
    /// Returns `None` on chains that have a different field in place of `nonce`.
    pub fn nonce(&self) -> Option<[u8; 8]> {
        self.item(1)?.try_into().ok()
    }

    /// Returns the base fee in wei for each unit of gas, if present (since London, EIP-1559).
    pub fn base_fee_per_gas(&self) -> Option<U256> {
        let bytes = self.item(2)?;
        (check_number(bytes, "baseFeePerGas", 32) == Ok(())).then(|| U256::from_be_slice(bytes))
    }

    /// Returns the withdrawals root, if present (since Shanghai, EIP-4895).
    pub fn withdrawals_root(&self) -> Option<B256> {
        self.item_hash(3)
    }

    /// Returns the gas used by blobs, if present (since Cancun, EIP-4844).
    pub fn blob_gas_used(&self) -> Option<u64> {
        self.item_number(4)
    }

    /// Returns the excess blob gas, if present (since Cancun, EIP-4844).
    pub fn excess_blob_gas(&self) -> Option<u64> {
        self.item_number(5)
    }

    /// Returns the root of the parent beacon block, if present (since Cancun, EIP-4788).
    pub fn parent_beacon_block_root(&self) -> Option<B256> {
        self.item_hash(6)
    }

    /// Returns the hash of the execution layer requests, if present (since Prague, EIP-7685).
    pub fn requests_hash(&self) -> Option<B256> {
        self.item_hash(7)
    }

    /// Returns the hash of the block's access list, if present (since Amsterdam, EIP-7928).
    pub fn block_access_list_hash(&self) -> Option<B256> {
        self.item_hash(8)
    }

    /// Returns the slot number of the block, if present (since Amsterdam, EIP-7843).
    pub fn slot_number(&self) -> Option<u64> {
        self.item_number(9)
    }

    /// Returns the number of fields in the header. On mainnet, a header has 15 (Frontier) to 23
    /// (Amsterdam) fields, as [`HeaderLayout`] lists.
    ///
    /// # Cost
    /// Walks over the fields after `extraData` at each call, as [`layout`](Self::layout) does.
    pub fn num_fields(&self) -> usize {
        let mut items = self.rest;
        let mut count = FIELDS.len();
        while next_item(&mut items).is_ok() {
            count += 1;
        }
        count
    }

    /// Returns the mainnet fork whose headers have this number of fields.
    pub fn layout(&self) -> HeaderLayout {
        match self.num_fields() {
            15 => HeaderLayout::Frontier,
            16 => HeaderLayout::London,
            17 => HeaderLayout::Shanghai,
            20 => HeaderLayout::Cancun,
            21 => HeaderLayout::Prague,
            23 => HeaderLayout::Amsterdam,
            _ => HeaderLayout::Unknown,
        }
    }

    /// Returns the bytes of an item after `extraData`, or `None` if the item is missing or is a
    /// list.
    fn item(&self, index: usize) -> Option<&'a [u8]> {
        let mut items = self.rest;
        for _ in 0..index {
            next_item(&mut items).ok()?;
        }
        let item = next_item(&mut items).ok()?;
        (!item.list).then_some(item.payload)
    }

    fn item_hash(&self, index: usize) -> Option<B256> {
        self.item(index)?.try_into().ok()
    }

    fn item_number(&self, index: usize) -> Option<u64> {
        let bytes = self.item(index)?;
        (check_number(bytes, "", 8) == Ok(())).then(|| number(bytes))
    }
}

/// The set of fields in a header, named after the mainnet fork that added the last of these fields.
///
/// `serde` and `Display` write the [name](Self::name), for example `cancun`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeaderLayout {
    /// 15 fields, up to `nonce`.
    Frontier,
    /// 16 fields: London added `baseFeePerGas`.
    London,
    /// 17 fields: Shanghai added `withdrawalsRoot`.
    Shanghai,
    /// 20 fields: Cancun added `blobGasUsed`, `excessBlobGas` and `parentBeaconBlockRoot`.
    Cancun,
    /// 21 fields: Prague added `requestsHash`. Osaka added no field.
    Prague,
    /// 23 fields: Amsterdam added `blockAccessListHash` and `slotNumber`.
    Amsterdam,
    /// The number of fields fits none of these forks: a header of a later fork, or of a chain other
    /// than mainnet.
    Unknown,
}

names! {
    HeaderLayout, "a layout of headers":
    Frontier = "frontier", London = "london", Shanghai = "shanghai", Cancun = "cancun",
    Prague = "prague", Amsterdam = "amsterdam", Unknown = "unknown",
}

/// Returns the filter of a header from its fixed offset, without decoding the other fields.
///
/// The preceding fields have fixed lengths. So the filter starts at byte 192 of every header that
/// has more than 255 and less than 65,536 bytes and a filter of 256 bytes. Only the RLP length
/// prefixes up to the filter are checked. Use this function for headers that were decoded before,
/// or whose hash is known.
///
/// Returns `None` if the filter does not start at byte 192 or does not have 256 bytes.
/// [`HeaderView::decode`] reads headers of every layout.
///
/// # Cost
/// Compares ten bytes and copies nothing.
#[inline]
pub fn bloom_at_fixed_place(rlp: &[u8]) -> Option<BloomView<'_>> {
    let head: &[u8; 448] = rlp.first_chunk()?;
    let fixed = head[0] == 0xf9
        && [3, 36, 90, 123, 156].iter().all(|&at| head[at] == 0xa0)
        && head[69] == 0x94
        && head[189..192] == [0xb9, 0x01, 0x00];
    fixed.then(|| BloomView::from_wire(&head[192..448]))
}

struct Item<'a> {
    list: bool,
    payload: &'a [u8],
}

fn next_item<'a>(items: &mut &'a [u8]) -> alloy_rlp::Result<Item<'a>> {
    let RlpHeader { list, payload_length } = RlpHeader::decode(items)?;
    let (payload, behind) =
        items.split_at_checked(payload_length).ok_or(alloy_rlp::Error::InputTooShort)?;
    *items = behind;
    Ok(Item { list, payload })
}

fn string<'a>(items: &mut &'a [u8], field: &'static str) -> Result<&'a [u8], HeaderError> {
    if items.is_empty() {
        return Err(HeaderError::Missing { field });
    }
    let item = next_item(items).map_err(|error| HeaderError::Rlp { field, error })?;
    if item.list { Err(HeaderError::UnexpectedList { field }) } else { Ok(item.payload) }
}

fn check_number(bytes: &[u8], field: &'static str, limit: usize) -> Result<(), HeaderError> {
    if bytes.len() > limit || bytes.first() == Some(&0) {
        return Err(HeaderError::Number { field, length: bytes.len(), limit });
    }
    Ok(())
}

/// Converts at most eight big-endian bytes to a number. Decoding has checked the length.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
