//! Conversions from and to the types of `alloy-rpc-types-eth`: headers, queries, logs, receipts,
//! transactions, and answers to `eth_getProof`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use alloy_eips::eip2718::Encodable2718 as _;
use alloy_primitives::{Bytes, U256, keccak256};
use alloy_rpc_types_eth::{
    Block, BlockNumberOrTag, Filter, FilterBlockOption, FilterSet, Header, Log, Transaction,
    TransactionReceipt,
};

use crate::eth::header::JsonHeader;
use crate::eth::header::{HeaderBuf, HeaderError};
use crate::eth::json::{JsonPath, ValueProblem};
use crate::eth::log::{LocatedLog, LogJsonError};
use crate::eth::log_query::{BlockSelection, BlockTag, LogQuery, MAX_TOPICS, QueryError, TopicSet};
use crate::eth::receipts::json::JsonReceipt;
use crate::eth::receipts::reader::Types;
use crate::eth::receipts::{
    BlockReceipts, Claims, Form, Outcome, Receipt, ReceiptEntry, ReceiptsError,
};
use crate::eth::transactions::{BlockTransactions, TransactionsError};

#[cfg(feature = "anchor")]
use crate::eth::anchor::account_proof::{AccountProof, SlotProof};
#[cfg(feature = "anchor")]
use alloy_primitives::U64;
#[cfg(feature = "anchor")]
use alloy_rpc_types_eth::{EIP1186AccountProofResponse, EIP1186StorageProof};

/// Encodes the fields of a header; the hash of the fields must equal the claimed hash, as in
/// [`HeaderBuf::from_json`].
///
/// A header with a field that alloy's type lacks is therefore rejected: the hash of the other
/// fields differs from the claimed hash.
///
/// # Examples
/// ```
/// use alloy_rpc_types_eth::Header;
/// use chainsieve::eth::header::{HeaderBuf, HeaderError};
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
/// assert!(matches!(refused, Err(HeaderError::HashMismatch { .. })));
/// # Ok::<(), HeaderError>(())
/// ```
impl TryFrom<&Header> for HeaderBuf {
    type Error = HeaderError;

    fn try_from(header: &Header) -> Result<Self, HeaderError> {
        let inner = &header.inner;
        Self::of(&JsonHeader {
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
    type Error = HeaderError;

    fn try_from(header: Header) -> Result<Self, HeaderError> {
        Self::try_from(&header)
    }
}

/// Converts the header of a block. The block's transactions are not compared with the header's
/// transactions root.
impl<T> TryFrom<&Block<T>> for HeaderBuf {
    type Error = HeaderError;

    fn try_from(block: &Block<T>) -> Result<Self, HeaderError> {
        Self::try_from(&block.header)
    }
}

impl From<BlockNumberOrTag> for BlockTag {
    fn from(block: BlockNumberOrTag) -> Self {
        match block {
            BlockNumberOrTag::Number(number) => Self::Number(number),
            BlockNumberOrTag::Earliest => Self::Earliest,
            BlockNumberOrTag::Latest => Self::Latest,
            BlockNumberOrTag::Safe => Self::Safe,
            BlockNumberOrTag::Finalized => Self::Finalized,
            BlockNumberOrTag::Pending => Self::Pending,
        }
    }
}

impl From<BlockTag> for BlockNumberOrTag {
    fn from(block: BlockTag) -> Self {
        match block {
            BlockTag::Number(number) => Self::Number(number),
            BlockTag::Earliest => Self::Earliest,
            BlockTag::Latest => Self::Latest,
            BlockTag::Safe => Self::Safe,
            BlockTag::Finalized => Self::Finalized,
            BlockTag::Pending => Self::Pending,
        }
    }
}

/// Converts a filter to a query. The last topic position of the query is the last position of the
/// filter that is not "any".
///
/// A `Filter` does not store "any" positions at the end. So the query selects the same logs under
/// both [`Semantics`](crate::eth::log_query::Semantics).
impl From<&Filter> for LogQuery {
    fn from(filter: &Filter) -> Self {
        let blocks = match filter.block_option {
            FilterBlockOption::Range { from_block, to_block } => BlockSelection::Range {
                from: from_block.map(Into::into),
                to: to_block.map(Into::into),
            },
            FilterBlockOption::AtBlockHash(hash) => BlockSelection::AtHash(hash),
        };
        let query = Self::of(blocks).addresses(filter.address.iter().copied());
        filter.topics.iter().enumerate().filter(|(_, topics)| !topics.is_empty()).fold(
            query,
            |query, (position, topics)| {
                query.topic(position, topics.iter().copied().collect::<TopicSet>())
            },
        )
    }
}

impl From<Filter> for LogQuery {
    fn from(filter: Filter) -> Self {
        Self::from(&filter)
    }
}

/// The conversion fails if the last topic position of the query is "any", which a `Filter` cannot store:
/// under geth's rules, the filter without this position would select more logs than the query.
impl TryFrom<&LogQuery> for Filter {
    type Error = QueryError;

    fn try_from(query: &LogQuery) -> Result<Self, QueryError> {
        if query.ends_in_any() {
            return Err(QueryError::TrailingWildcard { position: query.topics().len() - 1 });
        }
        let block_option = match *query.blocks() {
            BlockSelection::Range { from, to } => FilterBlockOption::Range {
                from_block: from.map(Into::into),
                to_block: to.map(Into::into),
            },
            BlockSelection::AtHash(hash) => FilterBlockOption::AtBlockHash(hash),
        };
        let address = query.address_set().iter().copied().collect();
        let mut filter = Self { block_option, address, ..Self::default() };
        for (set, topics) in filter.topics.iter_mut().zip(query.topics()) {
            *set = topics.values().iter().copied().collect::<FilterSet<_>>();
        }
        Ok(filter)
    }
}

/// The conversion loses only [`LocatedLog::claimed_transaction_hash`]. Apart from this field,
/// [`LocatedLog::try_from`] converts the result back to the same log.
///
/// # Examples
/// ```
/// use alloy_rpc_types_eth::Log;
/// use chainsieve::eth::log::LocatedLog;
///
/// let json = r#"{"address":"0x599bb2682a16b24b0f8e27cc549f66a9981bc6fd","topics":[],"data":"0x",
///     "blockNumber":"0x11408de","transactionIndex":"0x0","logIndex":"0x7",
///     "blockHash":"0x0e370e334fe75e14371a22557f0f0671ff3d5fc8618e6135cf133ff2acdf12bc"}"#;
/// let located = LocatedLog::from_json(json)?;
/// let log = Log::from(located.clone());
/// assert_eq!((log.block_number, log.log_index), (Some(18_090_206), Some(7)));
/// assert_eq!(LocatedLog::try_from(log)?, located);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl From<LocatedLog> for Log {
    fn from(located: LocatedLog) -> Self {
        Self {
            inner: located.log,
            block_hash: Some(located.block_hash),
            block_number: Some(located.block_number),
            block_timestamp: located.block_timestamp,
            transaction_hash: located.transaction_hash,
            transaction_index: Some(located.transaction_index),
            log_index: Some(located.log_index),
            removed: located.removed,
        }
    }
}

/// Applies the rules of [`LocatedLog::from_json`].
///
/// # Errors
/// Returns an error if the log has no position in the chain (a log of the pending block), or if it
/// has more than [`MAX_TOPICS`] topics.
impl TryFrom<Log> for LocatedLog {
    type Error = LogJsonError;

    fn try_from(log: Log) -> Result<Self, LogJsonError> {
        let topics = log.topics().len();
        if topics > MAX_TOPICS {
            let problem = ValueProblem::TooMany { found: topics, limit: MAX_TOPICS };
            return Err(LogJsonError::Value { place: JsonPath::of("topics"), problem });
        }
        Ok(Self {
            block_number: required(log.block_number, "blockNumber")?,
            block_hash: required(log.block_hash, "blockHash")?,
            block_timestamp: log.block_timestamp,
            transaction_hash: log.transaction_hash,
            claimed_transaction_hash: None,
            transaction_index: required(log.transaction_index, "transactionIndex")?,
            log_index: required(log.log_index, "logIndex")?,
            removed: log.removed,
            log: log.inner,
        })
    }
}

fn required<T>(value: Option<T>, field: &'static str) -> Result<T, LogJsonError> {
    let missing =
        LogJsonError::Value { place: JsonPath::of(field), problem: ValueProblem::Missing };
    value.ok_or(missing)
}

/// Converts the receipts of a whole block, in any order, as alloy's providers return them.
///
/// Each receipt must have its `transactionIndex`, as for [`BlockReceipts::from_json`].
///
/// # Errors
/// Returns an error if an index is missing or occurs twice, or if a receipt type is unknown.
///
/// # Examples
/// ```
/// use alloy_rpc_types_eth::TransactionReceipt;
/// use chainsieve::eth::receipts::{BlockReceipts, ReceiptsError};
///
/// let json = format!(
///     r#"{{"type":"0x2","status":"0x1","cumulativeGasUsed":"0x5208","gasUsed":"0x5208",
///     "logs":[],"logsBloom":"0x{}","transactionIndex":"0x0","transactionHash":"0x{}",
///     "from":"0x{}","to":null,"contractAddress":null,"effectiveGasPrice":"0x1"}}"#,
///     "00".repeat(256), "11".repeat(32), "22".repeat(20),
/// );
/// let receipt: TransactionReceipt = serde_json::from_str(&json)?;
/// let receipts = BlockReceipts::try_from(&[receipt.clone()][..])?;
/// assert_eq!(receipts, BlockReceipts::from_json(&format!("[{json}]"))?);
///
/// // A pending transaction is in no block yet, so its receipt is rejected.
/// let pending = TransactionReceipt { transaction_index: None, ..receipt };
/// let refused = BlockReceipts::try_from(&[pending][..]);
/// assert_eq!(refused, Err(ReceiptsError::NoIndex { receipt: 0 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<&[TransactionReceipt]> for BlockReceipts {
    type Error = ReceiptsError;

    fn try_from(receipts: &[TransactionReceipt]) -> Result<Self, ReceiptsError> {
        let read = receipts.iter().enumerate().map(|(at, receipt)| read(at, receipt));
        Self::in_order(read.collect::<Result<_, _>>()?, Types::Known)
    }
}

fn read(at: usize, given: &TransactionReceipt) -> Result<JsonReceipt, ReceiptsError> {
    let transaction_index =
        given.transaction_index.ok_or(ReceiptsError::NoIndex { receipt: at })?;
    let receipt_type = u8::from(given.inner.tx_type());
    let unknown = ReceiptsError::UnknownType { receipt: at, receipt_type };
    let fields = given.inner.as_receipt().ok_or(unknown)?;
    let status = fields.status;
    let receipt = Receipt {
        receipt_type,
        outcome: status
            .as_post_state()
            .map_or_else(|| Outcome::Status(status.coerce_status()), Outcome::PostState),
        cumulative_gas_used: fields.cumulative_gas_used,
        logs: fields.logs.iter().map(|log| log.inner.clone()).collect(),
        deposit_nonce: None,
        deposit_receipt_version: None,
    };
    let claims = Claims {
        block_hash: given.block_hash,
        block_number: given.block_number,
        transaction_hash: Some(given.transaction_hash),
        log_indices: fields.logs.iter().map(|log| log.log_index).collect(),
    };
    let bloom = Some(Box::new(*given.inner.logs_bloom().data()));
    let entry = ReceiptEntry { receipt, form: Form::Fields { bloom } };
    Ok(JsonReceipt { transaction_index, entry, claims: Some(claims) })
}

/// Encodes the transactions of a whole block, in their order in the block, as alloy's providers
/// return them. The claimed sender and place of each transaction are ignored.
///
/// # Errors
/// Returns an error if the hash of a transaction's fields differs from the claimed hash.
impl TryFrom<&[Transaction]> for BlockTransactions {
    type Error = TransactionsError;

    fn try_from(transactions: &[Transaction]) -> Result<Self, TransactionsError> {
        let encoded = transactions.iter().enumerate().map(|(index, transaction)| {
            let encoding = transaction.inner.encoded_2718();
            let (computed, claimed) = (keccak256(&encoding), *transaction.inner.tx_hash());
            if computed == claimed {
                Ok(encoding.into())
            } else {
                Err(TransactionsError::Hash { index, computed, claimed })
            }
        });
        Ok(Self::from_encodings(encoded.collect::<Result<Vec<_>, _>>()?))
    }
}

/// Takes over an answer as alloy's provider returns it. Nothing is verified yet.
///
/// # Examples
/// ```
/// use alloy_rpc_types_eth::EIP1186AccountProofResponse;
/// use chainsieve::alloy_primitives::B256;
/// use chainsieve::eth::anchor::account_proof::AccountProof;
///
/// // An answer without nodes proves nothing under any state root.
/// let answer = AccountProof::from(EIP1186AccountProofResponse::default());
/// assert!(answer.verify(B256::repeat_byte(1)).is_err());
/// ```
#[cfg(feature = "anchor")]
impl From<EIP1186AccountProofResponse> for AccountProof {
    fn from(answer: EIP1186AccountProofResponse) -> Self {
        Self {
            address: answer.address,
            account_proof: answer.account_proof,
            balance: answer.balance,
            code_hash: answer.code_hash,
            nonce: U64::from(answer.nonce),
            storage_hash: answer.storage_hash,
            storage_proof: answer.storage_proof.into_iter().map(SlotProof::from).collect(),
        }
    }
}

#[cfg(feature = "anchor")]
impl From<EIP1186StorageProof> for SlotProof {
    fn from(slot: EIP1186StorageProof) -> Self {
        let key = U256::from_be_bytes(slot.key.as_b256().0);
        Self { key, value: slot.value, proof: slot.proof }
    }
}

#[cfg(test)]
mod header_tests {
    use alloc::vec::Vec;

    use alloy_consensus::Header as Consensus;
    use alloy_primitives::{Address, B64, B256, Bloom, Bytes, U256};
    use alloy_rlp::Decodable as _;
    use alloy_rpc_types_eth::{Block, Header};
    use proptest::prelude::*;

    use crate::eth::header::tests::known;
    use crate::eth::header::{HeaderBuf, HeaderError};

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
        // `there_and_back` shows that each field is one of those that are hashed.
        let alterations: [Alter; 3] = [
            |header| header.number += 1,
            |header| header.requests_hash = None,
            |header| header.block_access_list_hash = Some(B256::ZERO),
        ];
        for (at, alter) in alterations.into_iter().enumerate() {
            let mut altered = real.clone();
            alter(&mut altered.inner);
            let refused = HeaderBuf::try_from(&altered);
            assert!(matches!(refused, Err(HeaderError::HashMismatch { .. })), "{at}: {refused:?}");
        }
        let mut other = real;
        other.hash.0[0] ^= 1;
        assert!(matches!(HeaderBuf::try_from(other), Err(HeaderError::HashMismatch { .. })));
    }

    /// If a field is missing, alloy's own encoding would move the fields after it to wrong
    /// positions.
    #[test]
    fn a_hole_is_refused_under_its_own_hash() {
        let inner = Consensus { withdrawals_root: Some(B256::ZERO), ..Consensus::default() };
        let refused = HeaderBuf::try_from(Header::new(inner));
        let (missing, present) = ("baseFeePerGas", "withdrawalsRoot");
        assert_eq!(refused, Err(HeaderError::Hole { missing, present }));
    }

    #[test]
    fn the_transactions_of_a_block_may_have_any_type() {
        let blocks: Vec<Block<u8>> = Vec::from([Block::empty(Header::new(Consensus::default()))]);
        assert!(blocks.iter().all(|block| HeaderBuf::try_from(block).is_ok()));
    }
}

#[cfg(test)]
mod filter_tests {
    use alloc::string::ToString as _;

    use alloy_primitives::{Address, B256, Bytes, Log, address};
    use alloy_rpc_types_eth::{BlockNumberOrTag, Filter};

    use crate::eth::log_query::{BlockTag, LogQuery, QueryError, Semantics, TopicSet};

    const TOKEN: Address = address!("0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48");
    const OTHER: Address = address!("0xdac17f958d2ee523a2206206994597c13d831ec7");

    /// A `Filter` that is built with alloy's methods converts to the same query that this library's
    /// methods build.
    #[test]
    fn built_there_and_here() {
        let [one, two] = [B256::with_last_byte(1), B256::with_last_byte(2)];
        let transfer = "Transfer(address,address,uint256)";
        let pairs = [
            (Filter::new(), LogQuery::new()),
            (
                Filter::new().from_block(3_u64).to_block(BlockNumberOrTag::Safe),
                LogQuery::new().from_block(3).to_block(BlockTag::Safe),
            ),
            (Filter::new().at_block_hash(one), LogQuery::new().at_hash(one)),
            (
                Filter::new().address([OTHER, TOKEN].to_vec()).event(transfer).topic2(TOKEN),
                LogQuery::new()
                    .addresses([TOKEN, OTHER])
                    .event(transfer)
                    .expect("a signature")
                    .topic2(TOKEN),
            ),
            (
                Filter::new().topic1([two, one].to_vec()).topic3(true),
                LogQuery::new().topic1([one, two]).topic3(true),
            ),
        ];
        for (filter, query) in pairs {
            assert_eq!(LogQuery::from(&filter), query);
            assert_eq!(Filter::try_from(&query), Ok(filter.clone()));
            assert_eq!(LogQuery::from(filter), query);
        }
    }

    #[test]
    fn every_tag_goes_both_ways() {
        use BlockNumberOrTag as Theirs;
        let tags =
            [Theirs::Earliest, Theirs::Latest, Theirs::Safe, Theirs::Finalized, Theirs::Pending];
        for theirs in tags.into_iter().chain([Theirs::Number(0), Theirs::Number(u64::MAX)]) {
            let ours = BlockTag::from(theirs);
            assert_eq!(Theirs::from(ours), theirs);
            assert_eq!(ours.name().map_or(theirs, |name| name.parse().expect("a tag")), theirs);
        }
    }

    /// The conversion reports a trailing "any" instead of dropping it. For a log of one topic, the
    /// query and the filter without the trailing "any" give different answers.
    #[test]
    fn a_last_any_is_refused() {
        let query = LogQuery::new().topic0(B256::ZERO).topic2(TopicSet::any());
        let error = Filter::try_from(&query).expect_err("a trailing wildcard");
        assert_eq!(error, QueryError::TrailingWildcard { position: 2 });
        assert!(error.to_string().starts_with("position 2 of the topics"));
        let log = Log::new(TOKEN, [B256::ZERO].to_vec(), Bytes::new()).expect("one topic");
        let filter = Filter::new().event_signature(B256::ZERO);
        assert!(!query.matches(&log, Semantics::Geth) && filter.matches(&log));
        // A query that was read from the filter selects the same logs under both rules.
        let query = LogQuery::from(filter);
        assert!(query.matches(&log, Semantics::Geth) && !query.depends_on_semantics(&log));
    }
}

#[cfg(test)]
mod log_tests {
    use alloc::string::ToString as _;
    use alloc::vec::Vec;

    use alloy_primitives::{Address, B256, Bytes, Log as Content};
    use alloy_rpc_types_eth::Log;
    use proptest::prelude::*;

    use crate::eth::log::LocatedLog;

    /// Logs of mainnet blocks 17,686,111 and 17,686,112.
    const REAL: &str =
        include_str!("../../fixtures/ethereum/logs/weth_withdrawals_17686111-17686112.json");

    #[test]
    fn real_logs_are_read_alike() {
        let theirs: Vec<Log> = serde_json::from_str(REAL).expect("logs for alloy");
        let ours = LocatedLog::list_from_json(REAL).expect("logs");
        assert_eq!(ours.len(), 18);
        let converted = theirs.iter().cloned().map(LocatedLog::try_from);
        assert_eq!(converted.collect::<Result<Vec<_>, _>>(), Ok(ours.clone()));
        assert_eq!(ours.into_iter().map(Log::from).collect::<Vec<_>>(), theirs);
    }

    #[test]
    fn a_log_without_a_place_is_refused() {
        let real = || serde_json::from_str::<Vec<Log>>(REAL).expect("logs").swap_remove(0);
        let lacking = [
            ("blockNumber", Log { block_number: None, ..real() }),
            ("blockHash", Log { block_hash: None, ..real() }),
            ("transactionIndex", Log { transaction_index: None, ..real() }),
            ("logIndex", Log { log_index: None, ..real() }),
        ];
        for (field, log) in lacking {
            let refused = LocatedLog::try_from(log).expect_err("no place").to_string();
            assert!(refused.starts_with(field), "{refused}");
        }
        // The fields that sources may leave out may also be missing in a log of alloy.
        let bare = Log { block_timestamp: None, transaction_hash: None, ..real() };
        assert!(LocatedLog::try_from(bare).is_ok());
    }

    #[test]
    fn five_topics_are_refused() {
        let mut log = serde_json::from_str::<Vec<Log>>(REAL).expect("logs").swap_remove(0);
        log.inner = Content::new_unchecked(Address::ZERO, [B256::ZERO; 5].to_vec(), Bytes::new());
        let refused = LocatedLog::try_from(log).expect_err("five topics").to_string();
        assert!(refused.starts_with("topics"), "{refused}");
    }

    prop_compose! {
        fn located()(
            address in any::<[u8; 20]>(),
            topics in prop::collection::vec(any::<[u8; 32]>(), 0..=4),
            data in any::<Vec<u8>>(),
            numbers in any::<[u64; 3]>(),
            block_hash in any::<[u8; 32]>(),
            block_timestamp in any::<Option<u64>>(),
            transaction_hash in any::<Option<[u8; 32]>>(),
            removed in any::<bool>(),
        ) -> LocatedLog {
            let topics = topics.into_iter().map(B256::new).collect();
            let [block_number, transaction_index, log_index] = numbers;
            LocatedLog {
                log: Content::new_unchecked(Address::new(address), topics, Bytes::from(data)),
                block_number,
                block_hash: B256::new(block_hash),
                block_timestamp,
                transaction_hash: transaction_hash.map(B256::new),
                claimed_transaction_hash: None,
                transaction_index,
                log_index,
                removed,
            }
        }
    }

    proptest! {
        #[test]
        fn there_and_back(located in located()) {
            let log = Log::from(located.clone());
            // Each of the two types reads the JSON that the other type writes.
            let text = serde_json::to_string(&log).expect("JSON");
            prop_assert_eq!(LocatedLog::from_json(&text), Ok(located.clone()));
            let read: Log = serde_json::from_str(&located.to_json()).expect("a log for alloy");
            prop_assert_eq!(&read, &log);
            prop_assert_eq!(LocatedLog::try_from(log), Ok(located));
        }
    }
}
