//! Transactions of a block, verified against the transactions root of its header.
//!
//! Receipts and logs do not contain the hash of their transaction: the transactions root binds hashes
//! to their index in the block. As with receipts, all transactions of a block are verified together,
//! because the root changes if one transaction is left out.
//!
//! Sources: Yellow Paper 4.3 (the trie), EIP-2718 (typed transactions).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use alloy_primitives::{Address, B256, Bytes, U256};
use alloy_rlp::{Encodable, Header};
use chainsieve_lanes::hash::keccak256;
use chainsieve_lanes::simd::Backend;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use crate::eth::json::message;
use crate::eth::log::LocatedLog;
use crate::eth::trie::OrderedTries;

/// All transactions of a block as a source gives them, in order. Not verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockTransactions {
    encodings: Vec<Bytes>,
}

/// All transactions of a block, verified against its transactions root.
///
/// The transactions are authentic if the header with the root is authentic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifiedTransactions {
    encodings: Vec<Bytes>,
    hashes: Vec<B256>,
}

/// Error of reading the transactions of a block, or of verifying them against a root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionsError {
    /// The text is not JSON, or a field is missing or malformed, or the type of a transaction is
    /// unknown. The message names the line and the column.
    #[error("{0}")]
    Json(String),
    /// The transactions are not exactly those of a block with this root.
    #[error("{count} transactions have the root {computed}, but the header has {expected}")]
    Root {
        /// Number of the transactions.
        count: usize,
        /// Root of the given transactions.
        computed: B256,
        /// Root in the header.
        expected: B256,
    },
    /// The hash of the fields of a transaction of alloy's type differs from the hash that the
    /// source claims. The transaction may have a field that alloy's type lacks.
    #[error("the fields of transaction {index} have the hash {computed}, not {claimed}")]
    Hash {
        /// Index of the transaction in the list.
        index: usize,
        /// Hash of the encoded fields.
        computed: B256,
        /// Hash that the source claims.
        claimed: B256,
    },
}

impl BlockTransactions {
    /// Takes the consensus encodings of all transactions of a block, in order: RLP of a legacy
    /// transaction, or a type byte and the RLP of its fields (EIP-2718).
    pub const fn from_encodings(encodings: Vec<Bytes>) -> Self {
        Self { encodings }
    }

    /// Returns the root of the trie of these transactions.
    ///
    /// # Cost
    /// Hashes every encoding and every node of the trie.
    pub fn root(&self) -> B256 {
        root(&self.encodings)
    }

    /// Verifies that these are all transactions of a block with this transactions root.
    ///
    /// # Errors
    /// Returns a [`TransactionsError`] if the root of these transactions differs.
    ///
    /// # Cost
    /// The cost of [`root`](Self::root), and one hash for each transaction.
    ///
    /// # Examples
    /// ```
    /// use chainsieve::alloy_primitives::{B256, b256, bytes};
    /// use chainsieve::eth::transactions::BlockTransactions;
    ///
    /// // A block without transactions.
    /// let root = b256!("0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");
    /// assert_eq!(BlockTransactions::default().verify(root)?.hashes(), [B256::ZERO; 0]);
    /// let one = BlockTransactions::from_encodings(vec![bytes!("c0")]);
    /// assert!(one.verify(root).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(
        self,
        transactions_root: B256,
    ) -> Result<VerifiedTransactions, TransactionsError> {
        self.check(transactions_root)?;
        let hashes = self.encodings.iter().map(hash).collect();
        Ok(VerifiedTransactions { encodings: self.encodings, hashes })
    }

    /// Verifies that these are all transactions of a block with this transactions root, and sets the
    /// [`transaction_hash`](LocatedLog::transaction_hash) of the block's logs. Claims about these
    /// hashes are dropped.
    ///
    /// The logs must be of this block, and their `transaction_index` must be proven by receipts. A
    /// log with the index of no transaction is left as it is: only a made-up block can have more
    /// receipts than transactions.
    ///
    /// # Errors
    /// Returns a [`TransactionsError`] if the root of these transactions differs. The logs are
    /// then left as they are.
    ///
    /// # Cost
    /// The cost of [`root`](Self::root), and one hash for each transaction with a log.
    pub fn prove_hashes<'a>(
        &self,
        transactions_root: B256,
        logs: impl IntoIterator<Item = &'a mut LocatedLog>,
    ) -> Result<(), TransactionsError> {
        self.check(transactions_root)?;
        let mut last = None;
        for log in logs {
            let index = log.transaction_index;
            // The logs of a transaction follow each other.
            if last.is_none_or(|(of, _)| of != index) {
                let encoding = usize::try_from(index).ok().and_then(|at| self.encodings.get(at));
                last = encoding.map(|encoding| (index, hash(encoding)));
            }
            if let Some((_, hash)) = last {
                log.transaction_hash = Some(hash);
                log.claimed_transaction_hash = None;
            }
        }
        Ok(())
    }

    fn check(&self, transactions_root: B256) -> Result<(), TransactionsError> {
        let (computed, expected) = (self.root(), transactions_root);
        if computed == expected {
            return Ok(());
        }
        Err(TransactionsError::Root { count: self.encodings.len(), computed, expected })
    }
}

impl VerifiedTransactions {
    /// Returns the hashes, in the order of the transactions.
    pub fn hashes(&self) -> &[B256] {
        &self.hashes
    }

    /// Returns the consensus encodings, in the order of the transactions.
    pub fn encodings(&self) -> &[Bytes] {
        &self.encodings
    }

    /// Returns the hash of the transaction with this index; `None` if the block has fewer.
    pub fn hash(&self, index: u64) -> Option<B256> {
        self.hashes.get(usize::try_from(index).ok()?).copied()
    }
}

fn hash(encoding: &Bytes) -> B256 {
    B256::new(keccak256(encoding))
}

/// Returns the root of the trie of these encodings, each under its index.
pub(crate) fn root(encodings: &[Bytes]) -> B256 {
    OrderedTries::of(Backend::best(), &[encodings]).root(0)
}

impl BlockTransactions {
    /// Parses the list `transactions` of a block that `eth_getBlockByHash` or
    /// `eth_getBlockByNumber` returns with whole transactions.
    ///
    /// Known types: legacy, 1 (EIP-2930), 2 (EIP-1559), 3 (EIP-4844, without its blobs) and 4
    /// (EIP-7702). Feature `op` adds deposits of the OP stack (0x7e). Each transaction is encoded
    /// from its fields. The claimed hash, sender and place are ignored, and so are unknown fields.
    /// `serde` reads the same list.
    ///
    /// # Errors
    /// Returns a [`TransactionsError`] if a transaction is malformed or of another type.
    ///
    /// # Examples
    /// ```
    /// use chainsieve::eth::transactions::BlockTransactions;
    ///
    /// // A block without transactions.
    /// assert_eq!(BlockTransactions::from_json("[]")?, BlockTransactions::default());
    /// // Only hashes: the node was asked for a block without whole transactions.
    /// assert!(BlockTransactions::from_json(r#"["0x00"]"#).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_json(json: &str) -> Result<Self, TransactionsError> {
        serde_json::from_str(json).map_err(|error| TransactionsError::Json(message(&error)))
    }
}

/// Reads the same list as [`BlockTransactions::from_json`].
impl<'de> Deserialize<'de> for BlockTransactions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = ClaimedTransactions::deserialize(deserializer)?;
        all.complete().map_err(|all| {
            let unknown = all.unknown().next().map(|(_, transaction_type)| transaction_type);
            D::Error::custom(Problem::UnknownType(unknown.unwrap_or_default()))
        })
    }
}

/// All transactions of a block as JSON gives them, of which some may be of a type whose encoding this version
/// does not know. Not verified.
///
/// The encodings of transactions of an unknown type can be [set](Self::set) from another source. Without
/// them, only the hashes that the source claims are known.
#[derive(Debug, Clone, Default)]
pub struct ClaimedTransactions(Vec<Claimed>);

#[derive(Debug, Clone)]
enum Claimed {
    Encoded(Bytes),
    Unknown { transaction_type: U256, hash: Option<B256> },
}

impl ClaimedTransactions {
    /// Reads the same list as `serde`, of at most `count` transactions. The limit bounds the memory: a
    /// transaction takes more memory than its text, if the text is short.
    pub fn at_most<'de>(count: usize) -> impl DeserializeSeed<'de, Value = Self> {
        List { most: count }
    }

    /// Returns the index and the type of each transaction whose encoding is unknown. The type is a
    /// claim of the source.
    pub fn unknown(&self) -> impl Iterator<Item = (usize, U256)> {
        self.0.iter().enumerate().filter_map(|(index, one)| match one {
            Claimed::Unknown { transaction_type, .. } => Some((index, *transaction_type)),
            Claimed::Encoded(_) => None,
        })
    }

    /// Sets the encoding of a transaction. An index that no transaction has is ignored.
    pub fn set(&mut self, index: usize, encoding: Bytes) {
        if let Some(one) = self.0.get_mut(index) {
            *one = Claimed::Encoded(encoding);
        }
    }

    /// Returns the transactions if all encodings are known.
    ///
    /// # Errors
    /// Returns the same transactions if an encoding is unknown.
    pub fn complete(self) -> Result<BlockTransactions, Self> {
        if self.unknown().next().is_some() {
            return Err(self);
        }
        let encodings = self.0.into_iter().filter_map(|one| match one {
            Claimed::Encoded(encoding) => Some(encoding),
            Claimed::Unknown { .. } => None,
        });
        Ok(BlockTransactions::from_encodings(encodings.collect()))
    }

    /// Returns the hash of each transaction: the hash of its encoding, or the hash that the source claims.
    /// `None` if neither is known for some transaction.
    pub fn hashes(&self) -> Option<Vec<B256>> {
        let of_one = |one: &Claimed| match one {
            Claimed::Encoded(encoding) => Some(hash(encoding)),
            Claimed::Unknown { hash, .. } => *hash,
        };
        self.0.iter().map(of_one).collect()
    }
}

/// Reads the same list as [`BlockTransactions::from_json`], and keeps transactions of unknown types.
impl<'de> Deserialize<'de> for ClaimedTransactions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::at_most(usize::MAX).deserialize(deserializer)
    }
}

struct List {
    most: usize,
}

impl<'de> DeserializeSeed<'de> for List {
    type Value = ClaimedTransactions;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List {
    type Value = ClaimedTransactions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of transactions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ClaimedTransactions, A::Error> {
        let mut all = Vec::new();
        // One transaction at a time is held in fields, which take more memory than their text.
        while let Some(transaction) = list.next_element::<Transaction>()? {
            if all.len() == self.most {
                let most = self.most;
                return Err(A::Error::custom(format_args!("more than {most} transactions")));
            }
            all.push(match transaction.encoding() {
                Ok(encoding) => Claimed::Encoded(encoding.into()),
                Err(Problem::UnknownType(transaction_type)) => {
                    Claimed::Unknown { transaction_type, hash: transaction.hash }
                }
                Err(problem) => return Err(A::Error::custom(problem)),
            });
        }
        Ok(ClaimedTransactions(all))
    }
}

/// The fields of a transaction. A field is `None` if it is missing or null: each type has its own
/// fields.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Transaction {
    #[serde(rename = "type")]
    type_number: Option<U256>,
    chain_id: Option<U256>,
    nonce: Option<U256>,
    gas_price: Option<U256>,
    max_priority_fee_per_gas: Option<U256>,
    max_fee_per_gas: Option<U256>,
    gas: Option<U256>,
    /// `None` in a transaction that creates a contract.
    to: Option<Address>,
    value: Option<U256>,
    input: Option<Bytes>,
    /// Claimed.
    hash: Option<B256>,
    access_list: Option<Vec<Access>>,
    max_fee_per_blob_gas: Option<U256>,
    blob_versioned_hashes: Option<Vec<B256>>,
    authorization_list: Option<Vec<Authorization>>,
    y_parity: Option<U256>,
    v: Option<U256>,
    r: Option<U256>,
    s: Option<U256>,
    /// The sender, which only the encoding of a deposit contains.
    #[cfg(feature = "op")]
    from: Option<Address>,
    #[cfg(feature = "op")]
    source_hash: Option<B256>,
    #[cfg(feature = "op")]
    mint: Option<U256>,
    #[cfg(feature = "op")]
    is_system_tx: Option<bool>,
}

/// An element of an access list (EIP-2930).
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Access {
    address: Address,
    storage_keys: Vec<B256>,
}

/// An element of an authorization list (EIP-7702).
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Authorization {
    chain_id: U256,
    address: Address,
    nonce: U256,
    y_parity: Option<U256>,
    v: Option<U256>,
    r: U256,
    s: U256,
}

/// Reason why a transaction cannot be encoded.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("transactions of type {0:#x} are unknown")]
    UnknownType(U256),
    #[error("{0} is missing or null")]
    Missing(&'static str),
}

impl Transaction {
    /// Returns the consensus encoding: `rlp([…])` of a legacy transaction, `type || rlp([…])` of
    /// any other.
    fn encoding(&self) -> Result<Vec<u8>, Problem> {
        let type_byte = match self.type_number {
            None => 0,
            Some(number) => u8::try_from(number).map_err(|_| Problem::UnknownType(number))?,
        };
        let mut fields = Vec::new();
        match type_byte {
            0 => {
                self.nonce(&mut fields)?;
                required("gasPrice", self.gas_price, &mut fields)?;
                self.call(&mut fields)?;
                required("v", self.v, &mut fields)?;
            }
            1 => {
                required("chainId", self.chain_id, &mut fields)?;
                self.nonce(&mut fields)?;
                required("gasPrice", self.gas_price, &mut fields)?;
                self.call(&mut fields)?;
                self.access(&mut fields)?;
                self.parity(&mut fields)?;
            }
            2..=4 => {
                required("chainId", self.chain_id, &mut fields)?;
                self.nonce(&mut fields)?;
                required("maxPriorityFeePerGas", self.max_priority_fee_per_gas, &mut fields)?;
                required("maxFeePerGas", self.max_fee_per_gas, &mut fields)?;
                self.call(&mut fields)?;
                self.access(&mut fields)?;
                if type_byte == 3 {
                    required("maxFeePerBlobGas", self.max_fee_per_blob_gas, &mut fields)?;
                    let hashes = self.blob_versioned_hashes.as_ref();
                    required("blobVersionedHashes", hashes, &mut fields)?;
                }
                if type_byte == 4 {
                    let list = self.authorization_list.as_ref();
                    required("authorizationList", list, &mut fields)?;
                }
                self.parity(&mut fields)?;
            }
            #[cfg(feature = "op")]
            crate::eth::receipts::DEPOSIT_TYPE => {
                self.deposit(&mut fields)?;
                return Ok(typed(type_byte, &fields));
            }
            _ => return Err(Problem::UnknownType(U256::from(type_byte))),
        }
        required("r", self.r, &mut fields)?;
        required("s", self.s, &mut fields)?;
        Ok(typed(type_byte, &fields))
    }

    fn nonce(&self, out: &mut Vec<u8>) -> Result<(), Problem> {
        required("nonce", self.nonce, out)
    }

    /// Adds the fields that each type but deposits has between its fees and its own fields.
    fn call(&self, out: &mut Vec<u8>) -> Result<(), Problem> {
        required("gas", self.gas, out)?;
        self.recipient(out);
        required("value", self.value, out)?;
        required("input", self.input.as_ref(), out)
    }

    fn recipient(&self, out: &mut Vec<u8>) {
        match &self.to {
            Some(to) => to.encode(out),
            // The empty string in the place of an address creates a contract.
            None => out.push(alloy_rlp::EMPTY_STRING_CODE),
        }
    }

    fn access(&self, out: &mut Vec<u8>) -> Result<(), Problem> {
        required("accessList", self.access_list.as_ref(), out)
    }

    fn parity(&self, out: &mut Vec<u8>) -> Result<(), Problem> {
        required("yParity", parity(self.y_parity, self.v), out)
    }

    /// Adds the fields of a deposit, as the specification of the OP stack lists them.
    #[cfg(feature = "op")]
    fn deposit(&self, out: &mut Vec<u8>) -> Result<(), Problem> {
        required("sourceHash", self.source_hash, out)?;
        required("from", self.from, out)?;
        self.recipient(out);
        self.mint.unwrap_or_default().encode(out);
        required("value", self.value, out)?;
        required("gas", self.gas, out)?;
        self.is_system_tx.unwrap_or_default().encode(out);
        required("input", self.input.as_ref(), out)
    }
}

/// Returns the parity of a signature. Some nodes write it only as `v`, which has the same value in
/// typed transactions.
fn parity(y_parity: Option<U256>, v: Option<U256>) -> Option<U256> {
    y_parity.or(v)
}

fn required(
    name: &'static str,
    value: Option<impl Encodable>,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    value.ok_or(Problem::Missing(name))?.encode(out);
    Ok(())
}

/// Returns the encoded fields as a list, after the byte of the type; a legacy transaction has no
/// such byte.
fn typed(type_byte: u8, fields: &[u8]) -> Vec<u8> {
    let list = Header { list: true, payload_length: fields.len() };
    let mut encoding = Vec::with_capacity(1 + list.length() + fields.len());
    if type_byte > 0 {
        encoding.push(type_byte);
    }
    list.encode(&mut encoding);
    encoding.extend_from_slice(fields);
    encoding
}

impl Encodable for Access {
    fn encode(&self, out: &mut dyn alloy_rlp::BufMut) {
        let payload_length = self.address.length() + self.storage_keys.length();
        Header { list: true, payload_length }.encode(out);
        self.address.encode(out);
        self.storage_keys.encode(out);
    }
}

impl Encodable for Authorization {
    fn encode(&self, out: &mut dyn alloy_rlp::BufMut) {
        let parity = parity(self.y_parity, self.v).unwrap_or_default();
        let numbers = [&self.nonce, &parity, &self.r, &self.s];
        let payload_length = self.chain_id.length()
            + self.address.length()
            + numbers.map(Encodable::length).iter().sum::<usize>();
        Header { list: true, payload_length }.encode(out);
        self.chain_id.encode(out);
        self.address.encode(out);
        for number in numbers {
            number.encode(out);
        }
    }
}
