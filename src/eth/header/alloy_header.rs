//! Conversion of headers from the types of `alloy-rpc-types-eth`.

use alloy_primitives::{Bytes, U256};
use alloy_rpc_types_eth::{Block, Header};

use super::json::Fields;
use super::{HeaderBuf, JsonHeaderError};

/// Encodes the fields of a header; the hash of the fields must equal the claimed hash, as in
/// [`HeaderBuf::from_json`].
///
/// A header with a field that alloy's type lacks is therefore rejected: without this field, the
/// hash differs from the claimed hash.
///
/// # Examples
/// ```
/// use alloy_rpc_types_eth::Header;
/// use chainsieve::eth::header::{HeaderBuf, JsonHeaderError};
///
/// // A header as alloy's provider returns it.
/// let mut header: Header = Header::new(Default::default());
/// header.inner.number = 7;
/// let header = Header::new(header.inner);
/// assert_eq!(HeaderBuf::try_from(&header)?.view().number(), 7);
///
/// // The claimed hash must be that of the fields.
/// let mut altered = header;
/// altered.inner.number = 8;
/// let refused = HeaderBuf::try_from(&altered);
/// assert!(matches!(refused, Err(JsonHeaderError::HashMismatch { .. })));
/// # Ok::<(), JsonHeaderError>(())
/// ```
impl TryFrom<&Header> for HeaderBuf {
    type Error = JsonHeaderError;

    fn try_from(header: &Header) -> Result<Self, JsonHeaderError> {
        let inner = &header.inner;
        Self::of(&Fields {
            hash: header.hash,
            parent_hash: inner.parent_hash,
            sha3_uncles: inner.ommers_hash,
            miner: inner.beneficiary,
            state_root: inner.state_root,
            transactions_root: inner.transactions_root,
            receipts_root: inner.receipts_root,
            logs_bloom: Bytes::copy_from_slice(inner.logs_bloom.as_slice()),
            difficulty: inner.difficulty,
            number: U256::from(inner.number),
            gas_limit: U256::from(inner.gas_limit),
            gas_used: U256::from(inner.gas_used),
            timestamp: U256::from(inner.timestamp),
            extra_data: inner.extra_data.clone(),
            mix_hash: inner.mix_hash,
            nonce: inner.nonce,
            base_fee_per_gas: inner.base_fee_per_gas.map(U256::from),
            withdrawals_root: inner.withdrawals_root,
            blob_gas_used: inner.blob_gas_used.map(U256::from),
            excess_blob_gas: inner.excess_blob_gas.map(U256::from),
            parent_beacon_block_root: inner.parent_beacon_block_root,
            requests_hash: inner.requests_hash,
            block_access_list_hash: inner.block_access_list_hash,
            slot_number: inner.slot_number.map(U256::from),
        })
    }
}

impl TryFrom<Header> for HeaderBuf {
    type Error = JsonHeaderError;

    fn try_from(header: Header) -> Result<Self, JsonHeaderError> {
        Self::try_from(&header)
    }
}

/// Converts the header of a block. The block's transactions are not compared with the header's
/// transactions root.
impl<T> TryFrom<&Block<T>> for HeaderBuf {
    type Error = JsonHeaderError;

    fn try_from(block: &Block<T>) -> Result<Self, JsonHeaderError> {
        Self::try_from(&block.header)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use alloy_consensus::Header as Consensus;
    use alloy_primitives::{Address, B64, B256, Bloom, Bytes, U256};
    use alloy_rlp::Decodable as _;
    use alloy_rpc_types_eth::{Block, Header};
    use proptest::prelude::*;

    use super::super::tests::known;
    use crate::eth::header::{HeaderBuf, JsonHeaderError};

    /// The library and alloy's serde read the same fields from the JSON of each real header.
    #[test]
    fn real_headers_are_read_alike() {
        let mut compared = 0;
        for known in known() {
            // Some chains have fields that alloy's type lacks.
            let Ok(inner) = Consensus::decode(&mut &known.rlp[..]) else { continue };
            let block = Block::<B256>::empty(Header { hash: known.hash, ..Header::new(inner) });
            let text = serde_json::to_string(&block).expect("JSON");
            let ours = HeaderBuf::from_json(&text);
            let read: Block<B256> = serde_json::from_str(&text).expect("a block for alloy");
            assert_eq!(HeaderBuf::try_from(&read), ours, "{} {}", known.chain, known.number);
            assert_eq!(HeaderBuf::try_from(read.header), ours);
            if let Ok(header) = ours {
                assert_eq!((header.rlp(), header.hash()), (&known.rlp[..], known.hash));
                compared += 1;
            }
        }
        assert!(compared > 100, "{compared}");
    }

    fn inner() -> impl Strategy<Value = Consensus> {
        let roots = any::<[[u8; 32]; 10]>();
        let numbers = any::<[u64; 8]>();
        let bytes =
            (any::<[u8; 20]>(), any::<[u8; 8]>(), prop::collection::vec(any::<u8>(), 0..32));
        let bloom = prop::collection::vec(any::<u8>(), 256);
        (roots, numbers, bytes, bloom, any::<[u8; 32]>(), 0..=8_usize).prop_map(
            |(roots, numbers, (miner, nonce, extra_data), bloom, difficulty, forks)| {
                let mut roots = roots.into_iter().map(B256::new);
                let mut root = || roots.next().expect("ten roots");
                let mut numbers = numbers.into_iter();
                let mut number = || numbers.next().expect("eight numbers");
                Consensus {
                    parent_hash: root(),
                    ommers_hash: root(),
                    beneficiary: Address::new(miner),
                    state_root: root(),
                    transactions_root: root(),
                    receipts_root: root(),
                    logs_bloom: Bloom::from_slice(&bloom),
                    difficulty: U256::from_be_bytes(difficulty),
                    number: number(),
                    gas_limit: number(),
                    gas_used: number(),
                    timestamp: number(),
                    extra_data: Bytes::from(extra_data),
                    mix_hash: root(),
                    nonce: B64::new(nonce),
                    base_fee_per_gas: (forks > 0).then(&mut number),
                    withdrawals_root: (forks > 1).then(&mut root),
                    blob_gas_used: (forks > 2).then(&mut number),
                    excess_blob_gas: (forks > 3).then(&mut number),
                    parent_beacon_block_root: (forks > 4).then(&mut root),
                    requests_hash: (forks > 5).then(&mut root),
                    block_access_list_hash: (forks > 6).then(&mut root),
                    slot_number: (forks > 7).then(number),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn there_and_back(inner in inner()) {
            let header = HeaderBuf::try_from(Header::new(inner.clone())).expect("its own hash");
            prop_assert_eq!(header.hash(), inner.hash_slow());
            prop_assert_eq!(Consensus::decode(&mut header.rlp()), Ok(inner));
        }
    }

    #[test]
    fn an_altered_field_is_refused() {
        type Alter = fn(&mut Consensus);
        let real = known().into_iter().find(|known| known.fork == "Prague").expect("a header");
        let real = Header::new(Consensus::decode(&mut &real.rlp[..]).expect("a header"));
        assert!(HeaderBuf::try_from(&real).is_ok());
        let alterations: [Alter; 22] = [
            |header| header.parent_hash.0[31] ^= 1,
            |header| header.ommers_hash.0[31] ^= 1,
            |header| header.beneficiary.0[0] ^= 1,
            |header| header.state_root.0[31] ^= 1,
            |header| header.transactions_root.0[31] ^= 1,
            |header| header.receipts_root.0[31] ^= 1,
            |header| header.logs_bloom.0[255] ^= 1,
            |header| header.difficulty += U256::ONE,
            |header| header.number += 1,
            |header| header.gas_limit += 1,
            |header| header.gas_used += 1,
            |header| header.timestamp += 1,
            |header| header.extra_data = Bytes::from_static(b"other"),
            |header| header.mix_hash.0[31] ^= 1,
            |header| header.nonce.0[7] ^= 1,
            |header| header.base_fee_per_gas = Some(1),
            |header| header.withdrawals_root = Some(B256::ZERO),
            |header| header.blob_gas_used = Some(1),
            |header| header.excess_blob_gas = Some(1),
            |header| header.parent_beacon_block_root = Some(B256::ZERO),
            |header| header.requests_hash = None,
            |header| header.block_access_list_hash = Some(B256::ZERO),
        ];
        for (at, alter) in alterations.into_iter().enumerate() {
            let mut altered = real.clone();
            alter(&mut altered.inner);
            let refused = HeaderBuf::try_from(&altered);
            assert!(
                matches!(refused, Err(JsonHeaderError::HashMismatch { .. })),
                "{at}: {refused:?}"
            );
        }
        let mut other = real;
        other.hash.0[0] ^= 1;
        assert!(matches!(HeaderBuf::try_from(other), Err(JsonHeaderError::HashMismatch { .. })));
    }

    /// If a field is missing, alloy's own encoding would move the fields after it to wrong
    /// positions.
    #[test]
    fn a_hole_is_refused_under_its_own_hash() {
        let inner = Consensus { withdrawals_root: Some(B256::ZERO), ..Consensus::default() };
        let refused = HeaderBuf::try_from(Header::new(inner));
        let (missing, present) = ("baseFeePerGas", "withdrawalsRoot");
        assert_eq!(refused, Err(JsonHeaderError::Hole { missing, present }));
    }

    #[test]
    fn the_transactions_of_a_block_may_have_any_type() {
        let blocks: Vec<Block<u8>> = Vec::from([Block::empty(Header::new(Consensus::default()))]);
        assert!(blocks.iter().all(|block| HeaderBuf::try_from(block).is_ok()));
    }
}
