//! A header's fields, read out of its RLP in place.

use alloy_primitives::{Address, B256, U256};
use alloy_rlp::Header as RlpHeader;
use chainsieve_lanes::hash::keccak256;

use crate::eth::bloom::BloomView;

/// What is wrong with the bytes of a header.
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
        /// What `alloy_rlp` says.
        error: alloy_rlp::Error,
    },
    /// The list ends before a field.
    #[error("the header ends before {field}")]
    Missing {
        /// Name of the field, as in JSON-RPC.
        field: &'static str,
    },
    /// A list stands where bytes belong.
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
        /// Bytes found.
        length: usize,
        /// Bytes that belong there; of a number, the most.
        expected: usize,
    },
    /// A number is too large for its field, or has leading zeros.
    #[error(
        "{field} has {length} bytes and is no number of at most {limit} bytes without leading zeros"
    )]
    Number {
        /// Name of the field, as in JSON-RPC.
        field: &'static str,
        /// Bytes found.
        length: usize,
        /// The most bytes that it may have.
        limit: usize,
    },
    /// Bytes stand behind the header.
    #[error("{0} bytes behind the header")]
    TrailingBytes(usize),
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

/// The length each field must have, where it is fixed.
const LENGTHS: [usize; BLOOM_FIELD] = [32, 32, 20, 32, 32, 32];

/// A header as received, of any fork.
///
/// The first thirteen fields are checked: their lengths, and that numbers are canonical. What
/// stands behind them differs from fork to fork and chain to chain; it is kept as RLP items, and
/// read where it has the shape that mainnet gives it. The hash is that of the bytes as received,
/// so unknown later fields are covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderView<'a> {
    rlp: &'a [u8],
    fields: [&'a [u8]; 13],
    /// The items behind `extraData`, each well-formed.
    rest: &'a [u8],
}

impl<'a> HeaderView<'a> {
    /// Reads a header that fills `rlp`.
    ///
    /// # Errors
    /// [`HeaderError`] names the field that is wrong.
    ///
    /// # Cost
    /// Nothing is copied or hashed.
    pub fn decode(rlp: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, behind) = Self::decode_prefix(rlp)?;
        if behind.is_empty() { Ok(header) } else { Err(HeaderError::TrailingBytes(behind.len())) }
    }

    /// Reads a header at the start of `bytes`; returns what stands behind it.
    ///
    /// # Errors
    /// [`HeaderError`] names the field that is wrong.
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
                .map_err(|error| HeaderError::Rlp { field: "a field behind extraData", error })?;
        }
        Ok((header, behind))
    }

    /// The bytes of the header.
    pub fn rlp(&self) -> &'a [u8] {
        self.rlp
    }

    /// The hash of the header, which is the block's: Keccak-256 of the bytes as received.
    pub fn hash(&self) -> B256 {
        B256::new(keccak256(self.rlp))
    }

    /// Hash of the block before.
    pub fn parent_hash(&self) -> B256 {
        B256::from_slice(self.fields[0])
    }

    /// Keccak-256 of the list of uncle headers.
    pub fn ommers_hash(&self) -> B256 {
        B256::from_slice(self.fields[1])
    }

    /// Who is paid for the block.
    pub fn beneficiary(&self) -> Address {
        Address::from_slice(self.fields[2])
    }

    /// Root of the state behind the block.
    pub fn state_root(&self) -> B256 {
        B256::from_slice(self.fields[3])
    }

    /// Root of the trie of transactions.
    pub fn transactions_root(&self) -> B256 {
        B256::from_slice(self.fields[4])
    }

    /// Root of the trie of receipts.
    pub fn receipts_root(&self) -> B256 {
        B256::from_slice(self.fields[5])
    }

    /// The filter of the block's logs.
    pub fn logs_bloom(&self) -> BloomView<'a> {
        BloomView::from_wire(self.fields[BLOOM_FIELD])
    }

    /// Difficulty of the block; 0 since the Merge.
    pub fn difficulty(&self) -> U256 {
        U256::from_be_slice(self.fields[DIFFICULTY_FIELD])
    }

    /// Number of the block.
    pub fn number(&self) -> u64 {
        number(self.fields[8])
    }

    /// The most gas that the block may use.
    pub fn gas_limit(&self) -> u64 {
        number(self.fields[9])
    }

    /// The gas that the block used.
    pub fn gas_used(&self) -> u64 {
        number(self.fields[10])
    }

    /// Time of the block in seconds since 1970.
    pub fn timestamp(&self) -> u64 {
        number(self.fields[11])
    }

    /// Free bytes of the block's maker.
    pub fn extra_data(&self) -> &'a [u8] {
        self.fields[12]
    }

    /// `mixHash`, since the Merge `prevRandao`; none on chains that have something else there.
    pub fn mix_hash(&self) -> Option<B256> {
        self.item_hash(0)
    }

    /// The nonce of proof of work, eight zeros since the Merge; none on chains that have something
    /// else there.
    pub fn nonce(&self) -> Option<[u8; 8]> {
        self.item(1)?.try_into().ok()
    }

    /// Base fee in wei for each unit of gas, since London (EIP-1559).
    pub fn base_fee_per_gas(&self) -> Option<U256> {
        let bytes = self.item(2)?;
        (check_number(bytes, "baseFeePerGas", 32) == Ok(())).then(|| U256::from_be_slice(bytes))
    }

    /// Root of the withdrawals, since Shanghai (EIP-4895).
    pub fn withdrawals_root(&self) -> Option<B256> {
        self.item_hash(3)
    }

    /// Gas used by blobs, since Cancun (EIP-4844).
    pub fn blob_gas_used(&self) -> Option<u64> {
        self.item_number(4)
    }

    /// Running excess of gas used by blobs, since Cancun (EIP-4844).
    pub fn excess_blob_gas(&self) -> Option<u64> {
        self.item_number(5)
    }

    /// Root of the beacon block before, since Cancun (EIP-4788).
    pub fn parent_beacon_block_root(&self) -> Option<B256> {
        self.item_hash(6)
    }

    /// Hash of the requests to the consensus layer, since Prague (EIP-7685).
    pub fn requests_hash(&self) -> Option<B256> {
        self.item_hash(7)
    }

    /// Hash of the block's access list, since Amsterdam (EIP-7928).
    pub fn block_access_list_hash(&self) -> Option<B256> {
        self.item_hash(8)
    }

    /// Slot of the block, since Amsterdam (EIP-7843).
    pub fn slot_number(&self) -> Option<u64> {
        self.item_number(9)
    }

    /// How many fields the header has.
    pub fn num_fields(&self) -> usize {
        let mut items = self.rest;
        let mut count = FIELDS.len();
        while next_item(&mut items).is_ok() {
            count += 1;
        }
        count
    }

    /// The fork whose headers have so many fields, on mainnet.
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

    /// The bytes of an item behind `extraData`; none if it is a list.
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

/// Which fields a header has, named by the mainnet fork that brought the last of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderLayout {
    /// Up to `nonce`: 15 fields.
    Frontier,
    /// And `baseFeePerGas`: 16.
    London,
    /// And `withdrawalsRoot`: 17. Osaka and others in between brought none.
    Shanghai,
    /// And `blobGasUsed`, `excessBlobGas` and `parentBeaconBlockRoot`: 20.
    Cancun,
    /// And `requestsHash`: 21.
    Prague,
    /// And `blockAccessListHash` and `slotNumber`: 23.
    Amsterdam,
    /// Another number of fields: another chain, or a later fork.
    Unknown,
}

/// The filter of a header, read at its place without looking at the other fields.
///
/// The fields before it have fixed lengths, so that it starts at byte 192 of every header of more
/// than 255 and less than 65,536 bytes that has a filter of 256 bytes. Only the bytes that say so
/// are checked: for headers that were decoded before, or whose hash is known.
///
/// None if the header is not laid out like that; [`HeaderView::decode`] reads every header.
///
/// # Cost
/// Nine bytes are compared, nothing is copied.
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

/// At most eight bytes, checked when the header was read.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
