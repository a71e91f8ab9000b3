//! Verification of receipts against the root and the filter of a header.

use alloc::vec::Vec;
use core::fmt;

use alloy_primitives::{B256, Bytes, Log};
use chainsieve_lanes::simd::Backend;

use super::rlp::LogBlooms;
use super::rlp::is_known;
use super::{BlockReceipts, Outcome, ReceiptsError};
use crate::eth::bloom::{self, BloomView};
use crate::eth::chain_profile::ChainProfile;
use crate::eth::header::{BlockRef, ChainBlock};
use crate::eth::log::LocatedLog;
use crate::eth::trie::{Items, OrderedTries};

/// Relation of a header's filter to the logs of the block's receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "agreement", rename_all = "snake_case")]
pub enum BloomAgreement {
    /// The filter has exactly the bits of the logs, as Ethereum's rules require.
    Exact,
    /// The filter has all bits of the logs, and further bits that belong to no log. A "no" of this
    /// filter is still correct.
    Superset {
        /// Number of bits that belong to no log.
        extra_bits: u32,
    },
    /// The filter lacks bits of a log. A "no" of this filter, or of any filter of its chain, proves
    /// nothing.
    Missing {
        /// Transaction index of the first log whose bits are missing.
        transaction_index: u64,
        /// Index in the block of the first log whose bits are missing.
        log_index: u64,
        /// Number of bits of the logs that the filter lacks.
        missing_bits: u32,
        /// Number of bits in the filter that belong to no log.
        extra_bits: u32,
    },
    /// The length of the filter is not 256 bytes.
    NoInformation,
}

/// Writes the relation in words, with its numbers.
impl fmt::Display for BloomAgreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("the filter has exactly the bits of the logs"),
            Self::Superset { extra_bits } => {
                write!(f, "the filter has {extra_bits} bits that belong to no log")
            }
            Self::Missing { log_index, missing_bits, extra_bits, .. } => write!(
                f,
                "the filter lacks {missing_bits} bits of the logs, first of log {log_index}, and \
                 has {extra_bits} bits that belong to no log"
            ),
            Self::NoInformation => f.write_str("the length of the filter is not 256 bytes"),
        }
    }
}

/// A log from verified receipts, with its indices in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct VerifiedLog<'a> {
    /// Index of the transaction, and of its receipt, in the block, from 0.
    pub transaction_index: u64,
    /// Index of the log in the block, from 0, counted over all receipts of the block.
    pub log_index: u64,
    /// Address, topics and data.
    pub log: &'a Log,
}

impl VerifiedLog<'_> {
    /// Returns the log with its position in the chain.
    ///
    /// `block` and `timestamp` must be those of the block whose receipts were verified. The
    /// transaction hash is `None`, because receipts do not contain it.
    pub fn located(&self, block: BlockRef, timestamp: u64) -> LocatedLog {
        LocatedLog {
            log: self.log.clone(),
            block_number: block.number,
            block_hash: block.hash,
            block_timestamp: Some(timestamp),
            transaction_hash: None,
            claimed_transaction_hash: None,
            transaction_index: self.transaction_index,
            log_index: self.log_index,
            removed: false,
        }
    }
}

/// The consensus encodings of the receipts of a block.
pub(super) struct Encodings<'a> {
    pub(super) receipts: &'a BlockReceipts,
    pub(super) blooms: &'a LogBlooms,
}

impl Items for Encodings<'_> {
    fn count(&self) -> usize {
        self.receipts.len()
    }

    fn item<'a>(&'a self, index: u32, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let index = index as usize;
        let bloom = || self.blooms.of_receipt(index);
        self.receipts.encoding(&self.receipts.entries[index], bloom, scratch)
    }
}

/// All receipts of a block, verified against its receipts root.
///
/// The receipts are authentic if the header with the receipts root is authentic. The root does not
/// cover the transaction hashes, nor the other [claims](BlockReceipts::claims) of a JSON source.
#[derive(Debug, Clone, Copy)]
pub struct VerifiedReceipts<'a> {
    receipts: &'a BlockReceipts,
    header_bloom: BloomAgreement,
    unsound_receipt: Option<u64>,
}

impl BlockReceipts {
    /// Verifies that these are all receipts of a block with this root, and compares their logs with
    /// the header's filter.
    ///
    /// `Ok` means that the computed root equals `receipts_root`. A filter that differs from the
    /// logs is no error: if the roots are equal, the wrong filter comes from the chain itself. See
    /// [`header_bloom`](VerifiedReceipts::header_bloom) and
    /// [`unsound_receipt`](VerifiedReceipts::unsound_receipt).
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if the root differs or cannot be computed.
    ///
    /// # Cost
    /// Computes the hashes of the trie, and about one hash for each distinct value of the logs.
    ///
    /// # Examples
    /// Mainnet block 19,840,104, which has no transactions:
    /// ```
    /// use chainsieve::alloy_primitives::{Bloom, b256};
    /// use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement};
    ///
    /// let root = b256!("0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");
    /// let receipts = BlockReceipts::from_json("[]")?;
    /// let verified = receipts.verify(root, (&Bloom::ZERO).into())?;
    /// assert_eq!(verified.header_bloom(), BloomAgreement::Exact);
    /// assert_eq!(verified.logs().count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify<'a>(
        &'a self,
        receipts_root: B256,
        header_bloom: BloomView<'_>,
    ) -> Result<VerifiedReceipts<'a>, ReceiptsError> {
        self.verify_as(self.after_byzantium, receipts_root, header_bloom)
    }

    /// Verifies the receipts as [`verify`](Self::verify) does, and uses the chain's profile.
    ///
    /// The profile states if the block with this number is
    /// [from Byzantium or later](ChainProfile::has_statuses).
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if the root differs or cannot be computed.
    pub fn verify_by_profile<'a>(
        &'a self,
        profile: &ChainProfile,
        number: u64,
        receipts_root: B256,
        header_bloom: BloomView<'_>,
    ) -> Result<VerifiedReceipts<'a>, ReceiptsError> {
        let after_byzantium = self.after_byzantium || profile.has_statuses(number);
        self.verify_as(after_byzantium, receipts_root, header_bloom)
    }

    /// Verifies the receipts as [`verify`](Self::verify) does, against a block of a chain or a
    /// header.
    ///
    /// The logs of the result have their position in the chain.
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if the root differs or cannot be computed.
    ///
    /// # Examples
    /// Transfers of USDC in mainnet block 17,686,111:
    /// ```
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/ethereum/blocks/mainnet_17686111.json");
    /// # let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    /// # let bytes = |hex: &serde_json::Value| chainsieve::alloy_primitives::hex::decode(hex.as_str().unwrap());
    /// # let header = bytes(&json["header"])?;
    /// # let encodings = json["receipts"].as_array().unwrap().iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
    /// use chainsieve::alloy_primitives::address;
    /// use chainsieve::eth::header::HeaderBuf;
    /// use chainsieve::eth::log_query::{LogQuery, Semantics};
    /// use chainsieve::eth::receipts::BlockReceipts;
    ///
    /// let query = LogQuery::new()
    ///     .address(address!("0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48"))
    ///     .event("Transfer(address,address,uint256)")?;
    /// let header = HeaderBuf::from_rlp(header)?;
    /// let receipts = BlockReceipts::from_encodings(&encodings)?;
    /// let block = receipts.verify_block(&header)?;
    /// let mut logs = block.logs_matching(|log| query.matches(log, Semantics::Geth));
    /// let first = logs.next().expect("a transfer");
    /// assert_eq!((first.block_number, first.block_hash), (17_686_111, header.hash()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify_block<'a, 'b>(
        &'a self,
        block: impl Into<ChainBlock<'b>>,
    ) -> Result<VerifiedBlock<'a>, ReceiptsError> {
        let block = block.into();
        let verified = self.verify(block.receipts_root, block.bloom.into())?;
        Ok(verified.in_block(block.into(), block.timestamp))
    }

    fn verify_as<'a>(
        &'a self,
        after_byzantium: bool,
        receipts_root: B256,
        header_bloom: BloomView<'_>,
    ) -> Result<VerifiedReceipts<'a>, ReceiptsError> {
        let (computed, blooms) = self.root_and_blooms()?;
        if computed != receipts_root {
            return Err(self.mismatch(after_byzantium, computed, receipts_root));
        }
        let receipts = VerifiedReceipts {
            receipts: self,
            header_bloom: BloomAgreement::NoInformation,
            unsound_receipt: blooms.first_other(self).map(|receipt| receipt as u64),
        };
        let header_bloom = receipts.agreement(header_bloom, &blooms.of_block());
        Ok(VerifiedReceipts { header_bloom, ..receipts })
    }

    /// Computes the receipts root of a block with these receipts.
    ///
    /// To verify receipts, compare them with a header by [`verify`](Self::verify). The root alone shows
    /// to which of several blocks the receipts belong.
    ///
    /// # Errors
    /// Returns [`ReceiptsError::NoOutcome`] if a receipt has neither status nor post-state.
    pub fn root(&self) -> Result<B256, ReceiptsError> {
        Ok(self.root_and_blooms()?.0)
    }

    fn root_and_blooms(&self) -> Result<(B256, LogBlooms), ReceiptsError> {
        // Without status and post-state the encoding of a receipt is unknown, and so is the root.
        let no_outcome = |receipt: &super::Receipt| receipt.outcome == Outcome::Unknown;
        if let Some(receipt) = self.iter().position(no_outcome) {
            return Err(ReceiptsError::NoOutcome { receipt });
        }
        let backend = Backend::best();
        let blooms = LogBlooms::of(backend, self);
        let encodings = Encodings { receipts: self, blooms: &blooms };
        Ok((OrderedTries::of(backend, &[&encodings]).root(0), blooms))
    }

    /// Returns the consensus encoding of every receipt, in order.
    ///
    /// [`from_encodings`](Self::from_encodings) reads this form, so that others can verify the
    /// receipts. Receipts that were read from another form are encoded from their fields.
    ///
    /// Returns `None` if a receipt has neither status nor post-state.
    pub fn encodings(&self) -> Option<Vec<Bytes>> {
        if self.iter().any(|receipt| receipt.outcome == Outcome::Unknown) {
            return None;
        }
        let blooms = LogBlooms::of(Backend::best(), self);
        let mut scratch = Vec::new();
        let entries = self.entries.iter().enumerate();
        let encodings = entries.map(|(index, entry)| {
            let bloom = || blooms.of_receipt(index);
            Bytes::copy_from_slice(self.encoding(entry, bloom, &mut scratch))
        });
        Some(encodings.collect())
    }

    /// Returns the transaction hash that the receipts' source claims for this index.
    ///
    /// Returns `None` if the source claims no hash, or claims that the receipt is in another block.
    pub(crate) fn claimed_transaction_hash(&self, index: u64, block: B256) -> Option<B256> {
        let claims = self.claims().get(usize::try_from(index).ok()?)?;
        let is_of_block = claims.block_hash.is_none_or(|claimed| claimed == block);
        claims.transaction_hash.filter(|_| is_of_block)
    }

    fn mismatch(&self, after_byzantium: bool, computed: B256, expected: B256) -> ReceiptsError {
        let unknown = |receipt: &super::Receipt| !is_known(receipt.receipt_type);
        if let Some(receipt) = self.iter().position(unknown) {
            let receipt_type = self.entries[receipt].receipt.receipt_type;
            return ReceiptsError::RootOfUnknownType { receipt, receipt_type, computed, expected };
        }
        let is_status = |receipt: &super::Receipt| matches!(receipt.outcome, Outcome::Status(_));
        // Typed receipts did not exist before Byzantium. So a block that has only legacy receipts
        // may be from before Byzantium, and its source may have sent statuses in place of
        // post-states.
        let before_byzantium = !after_byzantium
            && self.iter().all(|receipt| receipt.receipt_type == 0)
            && self.iter().any(is_status);
        if before_byzantium {
            ReceiptsError::PostStatesMayBeMissing { computed, expected }
        } else {
            ReceiptsError::RootMismatch { receipts: self.len(), computed, expected }
        }
    }
}

/// All receipts of a block with a known header, so that each log has its position in the chain.
///
/// The logs are authentic if the header is authentic.
#[derive(Debug, Clone, Copy)]
pub struct VerifiedBlock<'a> {
    receipts: VerifiedReceipts<'a>,
    block: BlockRef,
    timestamp: u64,
}

impl VerifiedBlock<'_> {
    /// Returns the number and hash of the block.
    pub fn block(&self) -> BlockRef {
        self.block
    }

    /// Returns all logs of the block, in order.
    ///
    /// The position of each log is verified. Receipts do not contain transaction hashes, so
    /// `transaction_hash` is `None`; [`BlockTransactions::prove_hashes`] sets it. Until then, the
    /// claim of the receipts' source is in `claimed_transaction_hash`.
    ///
    /// [`BlockTransactions::prove_hashes`]: crate::eth::transactions::BlockTransactions::prove_hashes
    pub fn logs(&self) -> impl Iterator<Item = LocatedLog> {
        self.logs_matching(|_| true)
    }

    /// Returns all [logs](Self::logs) of the block for which `matches` returns `true`, in order.
    pub fn logs_matching(
        &self,
        matches: impl FnMut(&Log) -> bool,
    ) -> impl Iterator<Item = LocatedLog> {
        let Self { receipts, block, timestamp } = self;
        receipts.logs_matching(matches).map(move |found| {
            let claimed_transaction_hash =
                receipts.receipts.claimed_transaction_hash(found.transaction_index, block.hash);
            LocatedLog { claimed_transaction_hash, ..found.located(*block, *timestamp) }
        })
    }
}

impl<'a> VerifiedBlock<'a> {
    /// Returns the receipts, with the relation of the header's filter to their logs.
    pub fn receipts(&self) -> VerifiedReceipts<'a> {
        self.receipts
    }
}

impl<'a> VerifiedReceipts<'a> {
    /// Adds the number, hash and timestamp of the block whose receipts these are.
    pub(crate) fn in_block(self, block: BlockRef, timestamp: u64) -> VerifiedBlock<'a> {
        VerifiedBlock { receipts: self, block, timestamp }
    }

    /// Returns the receipts that were verified.
    pub fn receipts(&self) -> &'a BlockReceipts {
        self.receipts
    }

    /// Returns the relation of the header's filter to the logs.
    pub fn header_bloom(&self) -> BloomAgreement {
        self.header_bloom
    }

    /// Returns the index of the first receipt whose own filter differs from the filter of its logs.
    ///
    /// Returns `None` if all receipts have the correct filter or were given without a filter.
    /// Ethereum's rules allow only correct filters.
    pub fn unsound_receipt(&self) -> Option<u64> {
        self.unsound_receipt
    }

    /// Returns all logs of the block, in order.
    pub fn logs(&self) -> impl Iterator<Item = VerifiedLog<'a>> + use<'a> {
        let receipts = (0_u64..).zip(self.receipts.iter());
        let logs = receipts.flat_map(|(transaction_index, receipt)| {
            receipt.logs.iter().map(move |log| (transaction_index, log))
        });
        (0_u64..).zip(logs).map(|(log_index, (transaction_index, log))| VerifiedLog {
            transaction_index,
            log_index,
            log,
        })
    }

    /// Returns all logs of the block for which `matches` returns `true`, in order.
    pub fn logs_matching(
        &self,
        mut matches: impl FnMut(&Log) -> bool,
    ) -> impl Iterator<Item = VerifiedLog<'a>> {
        self.logs().filter(move |found| matches(found.log))
    }

    fn agreement(&self, header: BloomView<'_>, logs: &[u8; bloom::BYTES]) -> BloomAgreement {
        let Some(header) = header.bytes() else { return BloomAgreement::NoInformation };
        let beyond = |one: &[u8; bloom::BYTES], other: &[u8; bloom::BYTES]| {
            one.iter().zip(other).map(|(one, other)| (one & !other).count_ones()).sum()
        };
        let (missing_bits, extra_bits) = (beyond(logs, header), beyond(header, logs));
        let lacks = |log: &Log| {
            let mut bits = [0; bloom::BYTES];
            bloom::accrue_log(&mut bits, log);
            !bloom::covers(header, &bits)
        };
        match (missing_bits, extra_bits) {
            (0, 0) => BloomAgreement::Exact,
            (0, extra_bits) => BloomAgreement::Superset { extra_bits },
            (missing_bits, extra_bits) => {
                let first =
                    self.logs_matching(lacks).next().expect("a missing bit belongs to a log");
                BloomAgreement::Missing {
                    transaction_index: first.transaction_index,
                    log_index: first.log_index,
                    missing_bits,
                    extra_bits,
                }
            }
        }
    }
}
