//! Transactions of a block, verified against the transactions root of its header.
//!
//! Receipts and logs do not contain the hash of their transaction: the transactions root binds hashes
//! to their index in the block. As with receipts, all transactions of a block are verified together,
//! because leaving one out changes the root.
//!
//! Sources: Yellow Paper 4.3 (the trie), EIP-2718 (typed transactions).

mod json;

use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::{B256, Bytes};
use alloy_trie::root::ordered_trie_root_with_encoder;
use chainsieve_lanes::hash::keccak256;

pub use json::ClaimedTransactions;

use crate::eth::log::LocatedLog;

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
    #[error("{count} transactions have the root {computed}, the header has {expected}")]
    Root {
        /// Number of the transactions.
        count: usize,
        /// Root of the given transactions.
        computed: B256,
        /// Root in the header.
        expected: B256,
    },
    /// The fields of a transaction of alloy's type have another hash than the one that its source
    /// claims. The transaction may have a field that alloy's type lacks.
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
    ordered_trie_root_with_encoder(encodings, |encoding, out| out.extend_from_slice(encoding))
}
