//! The `merkleblock` message: a header and the part of its merkle tree that leads to matched
//! transactions. Builds the message, and verifies its tree: Bitcoin Core's
//! `CPartialMerkleTree::ExtractMatches`, and the comparison of the root that Core's callers make.
//! Each check has an error of its own.
//!
//! ```text
//! header 80 | transactions u32 | CompactSize n | n hashes of 32 | CompactSize n | n bytes of flags
//! ```
//! Hashes and flags are in depth-first order. Flag `i` is `1 << (i & 7)` of byte `i >> 3`; it is
//! set if a matched transaction is below the node, or is the node. The message contains a hash for
//! each node whose flag is clear, and for each txid that is reached.
//!
//! Source: Bitcoin Core 28.1, `merkleblock.cpp`. The type of the crate `bitcoin` drops the padding
//! bits of the flags, which Core ignores. This module has conversions to and from that type.

use alloc::vec::Vec;

use bitcoin::block::Header;
use bitcoin::consensus::encode::{MAX_VEC_SIZE, deserialize, serialize};
use bitcoin::hashes::Hash as _;
use bitcoin::{TxMerkleNode, Txid};
use chainsieve_lanes::hash::sha256d::{Message, sha256d_each};
use chainsieve_lanes::simd::Backend;
use thiserror::Error;

use super::payload::{PayloadError, nothing_left};
use crate::btc::merkle_tree::{MAX_BLOCK_TRANSACTIONS, PathError, height, parent, preimage, width};
use crate::btc::proof_of_work::ProofOfWorkError;
use crate::btc::raw::{put_length, put_var_bytes, take, take_chunks, take_length, take_var_bytes};

/// A block header with the part of the block's merkle tree that leads to matched transactions.
///
/// The fields are as received. Nothing is verified before
/// [`extract_matches`](Self::extract_matches), or before [`Proof`](super::Proof), which also states
/// what is proven.
///
/// # Examples
/// ```
/// use chainsieve::btc::bip37::MerkleBlock;
/// # use chainsieve::bitcoin::{Txid, block::Header, consensus::encode::deserialize_hex};
/// // Block 170 of mainnet: transaction 1 is the first payment from one person to another.
/// # let header: Header = deserialize_hex("0100000055bd840a78798ad0da853f68974f3d183e2bd1db6a842c1feecf222a00000000ff104ccb05421ab93e63f8c3ce5c2c2e9dbb37de2764b3a3175c8166562cac7d51b96a49ffff001d283e9e70").unwrap();
/// let txids: [Txid; 2] = [
///     "b1fea52486ce0c62bb442b530a3f0132b826c74e473d1f2c220bfa78111c5082".parse().unwrap(),
///     "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16".parse().unwrap(),
/// ];
/// let block = MerkleBlock::new(&header, &txids, &[1])?;
/// let matches = MerkleBlock::decode(&block.encode()).unwrap().extract_matches().unwrap();
/// assert_eq!(matches, [(1, txids[1])]);
/// # Ok::<(), chainsieve::btc::bip37::MerkleBlockError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MerkleBlock {
    /// The block's header.
    pub header: Header,
    /// Number of transactions in the block, as the peer claims.
    pub num_transactions: u32,
    /// The hashes, in depth-first order.
    pub hashes: Vec<TxMerkleNode>,
    /// The flags, in depth-first order, least significant bit first, padding included.
    pub flags: Vec<u8>,
}

impl MerkleBlock {
    /// Builds the merkle block of a block with these `txids`. `matched` contains the positions of
    /// the matched transactions, in ascending order.
    ///
    /// # Errors
    /// Returns an error if there are no txids or more than a block can have, or if `matched` is not
    /// in ascending order, repeats a position, or contains a position after the last txid.
    ///
    /// # Cost
    /// At most about one double hash for each txid, and none if all transactions match. Each hash
    /// of the message is computed once, and nodes above a matched transaction are not computed. The
    /// hashes of one level run together, in SIMD lanes. Allocates 32 bytes for each node of the
    /// tree.
    pub fn new(header: &Header, txids: &[Txid], matched: &[u32]) -> Result<Self, MerkleBlockError> {
        let num_transactions = u32::try_from(txids.len()).unwrap_or(u32::MAX);
        if num_transactions == 0 {
            return Err(MerkleBlockError::NoTransactions);
        }
        if num_transactions > MAX_BLOCK_TRANSACTIONS {
            return Err(MerkleBlockError::TooManyTransactions(num_transactions));
        }
        if let Some(pair) = matched.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(MerkleBlockError::OutOfOrder(pair[0], pair[1]));
        }
        if let Some(&last) = matched.last().filter(|&&last| last >= num_transactions) {
            return Err(MerkleBlockError::OutOfRange { index: last, num_transactions });
        }
        let levels = height(num_transactions);
        // A matched leaf adds at most its own hash and, for each level, the hash of one sibling.
        // The message never has more hashes than the block has leaves.
        let hashes = matched.len().saturating_mul(levels as usize + 1).clamp(1, txids.len());
        let mut builder = Builder {
            txids,
            levels: hash_unmatched(Backend::best(), txids, matched),
            matched,
            hashes: Vec::with_capacity(hashes),
            flags: Vec::with_capacity(hashes.div_ceil(4) + 1),
            num_flags: 0,
        };
        builder.descend(levels, 0);
        let Builder { hashes, flags, .. } = builder;
        Ok(Self { header: *header, num_transactions, hashes, flags })
    }

    /// Returns the payload of a `merkleblock` message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(102 + self.hashes.len() * 32 + self.flags.len());
        out.extend(serialize(&self.header));
        out.extend(self.num_transactions.to_le_bytes());
        put_length(&mut out, self.hashes.len());
        for hash in &self.hashes {
            out.extend(hash.as_byte_array());
        }
        put_var_bytes(&mut out, &self.flags);
        out
    }

    /// Decodes the whole payload of a `merkleblock` message.
    ///
    /// # Errors
    /// Returns an error if the payload is truncated, has a malformed length, or is followed by
    /// trailing bytes.
    ///
    /// # Cost
    /// Allocates memory in proportion to the payload.
    pub fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let (block, rest) = Self::decode_prefix(payload)?;
        nothing_left(rest)?;
        Ok(block)
    }

    /// Decodes the payload of a `merkleblock` message, and returns the trailing bytes after it,
    /// which Core ignores.
    ///
    /// # Errors
    /// Returns the errors of [`decode`](Self::decode), except the error for trailing bytes.
    pub fn decode_prefix(mut payload: &[u8]) -> Result<(Self, &[u8]), PayloadError> {
        let header = deserialize(&take::<{ Header::SIZE }>(&mut payload)?)
            .expect("80 bytes of any value are a header");
        let num_transactions = u32::from_le_bytes(take(&mut payload)?);
        let num_hashes = take_length(&mut payload)?;
        let hashes = take_chunks(&mut payload, num_hashes)?;
        let hashes = hashes.iter().map(|&hash| TxMerkleNode::from_byte_array(hash)).collect();
        let flags = take_var_bytes(&mut payload)?.to_vec();
        Ok((Self { header, num_transactions, hashes, flags }, payload))
    }
}

/// Returns the nodes of each level above the txids. Nodes above a matched leaf stay zero.
fn hash_unmatched(backend: Backend, txids: &[Txid], matched: &[u32]) -> Vec<Vec<[u8; 32]>> {
    // If every leaf matches, the message contains only the txids.
    if matched.len() == txids.len() {
        return Vec::new();
    }
    let mut below: Vec<[u8; 32]> = txids.iter().map(|txid| txid.to_byte_array()).collect();
    let mut levels = Vec::new();
    let mut matched = matched.to_vec();
    while below.len() > 1 && matched.len() < below.len() {
        for position in &mut matched {
            *position >>= 1;
        }
        matched.dedup();
        let mut above = alloc::vec![[0; 32]; below.len().div_ceil(2)];
        parents(backend, &below, &matched, &mut above);
        levels.push(core::mem::replace(&mut below, above));
    }
    levels.push(below);
    // Level 0 contains the txids, which the caller already has.
    levels.remove(0);
    levels
}

/// Hashes the pairs of `below` into `above`, except at the positions in `skip`.
fn parents(backend: Backend, below: &[[u8; 32]], skip: &[u32], above: &mut [[u8; 32]]) {
    let mut skip = skip.iter().peekable();
    let wanted = (0..).zip(below.chunks(2)).filter(|(i, _)| skip.next_if_eq(&i).is_none());
    // Without SIMD lanes there is nothing to batch.
    if backend == Backend::SCALAR {
        for (i, pair) in wanted {
            let (left, right) = (&pair[0], pair.last().unwrap_or(&pair[0]));
            above[i as usize] = parent(&preimage(left, right));
        }
        return;
    }
    let (places, messages): (Vec<u32>, Vec<Message<'_>>) = wanted
        .map(|(i, pair)| match pair {
            [_, _] => (i, [pair.as_flattened(), &[], &[]]),
            // The last node of a level of odd width is paired with itself.
            _ => (i, [pair.as_flattened(), pair.as_flattened(), &[]]),
        })
        .unzip();
    for (i, hash) in places.into_iter().zip(sha256d_each(backend, &messages)) {
        above[i as usize] = hash;
    }
}

/// Builder of the hashes and flags, in depth-first order.
struct Builder<'a> {
    txids: &'a [Txid],
    /// The nodes of each level, from the first level above the txids. Nodes above a matched leaf
    /// are not computed. A level is left out if all its nodes are above matched leaves.
    levels: Vec<Vec<[u8; 32]>>,
    /// The matched leaves that are not written yet.
    matched: &'a [u32],
    hashes: Vec<TxMerkleNode>,
    flags: Vec<u8>,
    num_flags: u32,
}

impl Builder<'_> {
    /// Writes the node at `position` of `level`. All matched leaves before the node must be written
    /// already.
    fn descend(&mut self, level: u32, position: u32) {
        let flag = self.matched.first().is_some_and(|&leaf| leaf >> level == position);
        self.push_flag(flag);
        if level == 0 {
            let txid = self.txids[position as usize];
            self.hashes.push(TxMerkleNode::from_byte_array(txid.to_byte_array()));
            self.matched = &self.matched[usize::from(flag)..];
            return;
        }
        if !flag {
            let hash = self.levels[level as usize - 1][position as usize];
            self.hashes.push(TxMerkleNode::from_byte_array(hash));
            return;
        }
        self.descend(level - 1, position * 2);
        // The right child exists if the block has a transaction below it.
        if (((position * 2 + 1) << (level - 1)) as usize) < self.txids.len() {
            self.descend(level - 1, position * 2 + 1);
        }
    }

    fn push_flag(&mut self, flag: bool) {
        let bit = self.num_flags % 8;
        match self.flags.last_mut() {
            Some(byte) if bit != 0 => *byte |= u8::from(flag) << bit,
            _ => self.flags.push(u8::from(flag)),
        }
        self.num_flags += 1;
    }
}

/// Copies the flags of `bitcoin`'s type, and pads them with zeros.
impl From<&bitcoin::MerkleBlock> for MerkleBlock {
    fn from(block: &bitcoin::MerkleBlock) -> Self {
        let pack =
            |bits: &[bool]| (0..).zip(bits).fold(0, |byte, (i, &bit)| byte | u8::from(bit) << i);
        Self {
            header: block.header,
            num_transactions: block.txn.num_transactions(),
            hashes: block.txn.hashes().clone(),
            flags: block.txn.bits().chunks(8).map(pack).collect(),
        }
    }
}

impl TryFrom<&MerkleBlock> for bitcoin::MerkleBlock {
    type Error = MerkleBlockError;

    /// # Errors
    /// Returns an error if there are more hashes or flags than `bitcoin` decodes. The limit is far
    /// above what a block can have.
    fn try_from(block: &MerkleBlock) -> Result<Self, MerkleBlockError> {
        let bytes = block.hashes.len().saturating_mul(32).max(block.flags.len());
        // The fields of `bitcoin`'s type are private, so the conversion goes through the encoding.
        deserialize(&block.encode()).map_err(|_| MerkleBlockError::TooLarge(bytes))
    }
}

/// An inner node that was hashed during verification: level, position, and the two children as they
/// were hashed.
#[derive(Clone, Copy)]
pub(super) struct InnerNode {
    /// Level of the node; the txids are level 0.
    pub(super) level: u32,
    /// Position of the node in its level.
    pub(super) position: u32,
    /// The left child, followed by the right child.
    pub(super) preimage: [u8; 64],
}

impl MerkleBlock {
    /// Verifies the tree, compares its root with the header's, and returns the matched leaves:
    /// position in the block and txid.
    ///
    /// The checks are exactly as strict as Bitcoin Core's, so padding flags may be set. The checks
    /// prove neither that the header belongs to any chain nor that the number of transactions is
    /// right: see [`Proof`](super::Proof).
    ///
    /// # Errors
    /// Returns the first of Core's checks that fails, in the order of [`MerkleBlockError`].
    ///
    /// # Cost
    /// One double hash for each inner node in the message. The message has fewer inner nodes with
    /// two children than hashes. A match at the end of an uneven tree adds at most one inner node
    /// with a single child for each level.
    pub fn extract_matches(&self) -> Result<Vec<(u32, Txid)>, MerkleBlockError> {
        self.extract_matches_and_nodes(|_| ())
    }

    /// Verifies the tree as [`extract_matches`](Self::extract_matches), and calls `visit` with
    /// every inner node, children first.
    ///
    /// Nodes are visited even if a later check fails.
    ///
    /// # Errors
    /// As [`extract_matches`](Self::extract_matches).
    pub(super) fn extract_matches_and_nodes(
        &self,
        visit: impl FnMut(&InnerNode),
    ) -> Result<Vec<(u32, Txid)>, MerkleBlockError> {
        let transactions = self.num_transactions;
        let (hashes, bits) = (self.hashes.len(), self.flags.len() * 8);
        if transactions == 0 {
            return Err(MerkleBlockError::NoTransactions);
        }
        if transactions > MAX_BLOCK_TRANSACTIONS {
            return Err(MerkleBlockError::TooManyTransactions(transactions));
        }
        if hashes > transactions as usize {
            return Err(MerkleBlockError::TooManyHashes { hashes, transactions });
        }
        if bits < hashes {
            return Err(MerkleBlockError::TooFewBits { bits, hashes });
        }
        let height = height(transactions);
        let mut reader =
            Reader { block: self, bits_used: 0, hashes_used: 0, matches: Vec::new(), visit };
        let root = reader.descend(height, 0)?;
        // As in Core, only whole unused bytes are an error: the bits after the last used bit are
        // padding.
        if reader.bits_used.div_ceil(8) != self.flags.len() {
            return Err(MerkleBlockError::UnusedBits { used: reader.bits_used, bits });
        }
        if reader.hashes_used != hashes {
            return Err(MerkleBlockError::UnusedHashes { used: reader.hashes_used, hashes });
        }
        let root = TxMerkleNode::from_byte_array(root);
        if root != self.header.merkle_root {
            return Err(MerkleBlockError::RootMismatch {
                tree: root,
                header: self.header.merkle_root,
            });
        }
        Ok(reader.matches)
    }
}

struct Reader<'a, V> {
    block: &'a MerkleBlock,
    bits_used: usize,
    hashes_used: usize,
    matches: Vec<(u32, Txid)>,
    visit: V,
}

impl<V: FnMut(&InnerNode)> Reader<'_, V> {
    /// Reads the node at `position` of `level` and returns its hash. Recurses at most 15 levels
    /// deep.
    fn descend(&mut self, level: u32, position: u32) -> Result<[u8; 32], MerkleBlockError> {
        let bits = self.block.flags.len() * 8;
        let byte =
            self.block.flags.get(self.bits_used / 8).ok_or(MerkleBlockError::BitsRunOut(bits))?;
        let flag = byte >> (self.bits_used % 8) & 1 != 0;
        self.bits_used += 1;
        if level == 0 || !flag {
            let hash = self.block.hashes.get(self.hashes_used);
            let hash =
                hash.ok_or(MerkleBlockError::HashesRunOut(self.hashes_used))?.to_byte_array();
            self.hashes_used += 1;
            if flag {
                self.matches.push((position, Txid::from_byte_array(hash)));
            }
            return Ok(hash);
        }
        let left = self.descend(level - 1, position * 2)?;
        let right = if position * 2 + 1 < width(self.block.num_transactions, level - 1) {
            let right = self.descend(level - 1, position * 2 + 1)?;
            // Equal children would allow a longer list of txids with the same root (CVE-2012-2459).
            if left == right {
                return Err(MerkleBlockError::IdenticalChildren { level, position });
            }
            right
        } else {
            left
        };
        let preimage = preimage(&left, &right);
        (self.visit)(&InnerNode { level, position, preimage });
        Ok(parent(&preimage))
    }
}

/// Reason why a merkle block cannot be built, or is rejected, or why evidence against a merkle block is
/// rejected.
///
/// The checks of a tree come first, in the order in which they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MerkleBlockError {
    /// The block has no transactions.
    #[error("a block has at least 1 transaction, not 0")]
    NoTransactions,
    /// There are more transactions than a block can have.
    #[error("{0} transactions, the limit is {MAX_BLOCK_TRANSACTIONS}")]
    TooManyTransactions(u32),
    /// There are more hashes than transactions.
    #[error("{hashes} hashes exceed the {transactions} transactions")]
    TooManyHashes {
        /// Number of hashes in the message.
        hashes: usize,
        /// Number of transactions that the peer claims.
        transactions: u32,
    },
    /// There are fewer flag bits than hashes.
    #[error("{bits} flag bits are too few for {hashes} hashes")]
    TooFewBits {
        /// Number of flag bits in the message, including padding.
        bits: usize,
        /// Number of hashes in the message.
        hashes: usize,
    },
    /// The message ends after this many flag bits, but the tree needs more.
    #[error("the tree needs more than {0} flag bits")]
    BitsRunOut(usize),
    /// The message ends after this many hashes, but the tree needs more.
    #[error("the tree needs more than {0} hashes")]
    HashesRunOut(usize),
    /// The two children of a node have the same hash. Such a node allows a longer list of txids
    /// with the same root (CVE-2012-2459).
    #[error("both children of node {position} at level {level} have the same hash")]
    IdenticalChildren {
        /// The parent's level above the txids.
        level: u32,
        /// The parent's position in its level.
        position: u32,
    },
    /// At least one whole byte of flags is not used by the tree.
    #[error("the tree uses {used} of {bits} flag bits, so that a whole byte is unused")]
    UnusedBits {
        /// Number of flag bits that the tree uses.
        used: usize,
        /// Number of flag bits in the message, including padding.
        bits: usize,
    },
    /// Some hashes are not used by the tree.
    #[error("the tree uses {used} of {hashes} hashes")]
    UnusedHashes {
        /// Number of hashes that the tree uses.
        used: usize,
        /// Number of hashes in the message.
        hashes: usize,
    },
    /// The root of the tree differs from the header's merkle root.
    #[error("the tree's root is {tree}, but the header's root is {header}")]
    RootMismatch {
        /// The root of the tree.
        tree: TxMerkleNode,
        /// The root in the header.
        header: TxMerkleNode,
    },
    /// A matched position is not greater than the position before it.
    #[error("matched position {1} comes after position {0}, but positions must ascend")]
    OutOfOrder(u32, u32),
    /// A matched position is after the last transaction.
    #[error("matched position {index} is outside a block of {num_transactions} transactions")]
    OutOfRange {
        /// The matched position.
        index: u32,
        /// Number of transactions in the block.
        num_transactions: u32,
    },
    /// There are too many bytes of hashes or flags for `bitcoin` to decode.
    #[error("{0} bytes of hashes or flags, the limit is {MAX_VEC_SIZE}")]
    TooLarge(usize),
    /// The header's proof of work is invalid.
    #[error(transparent)]
    ProofOfWork(#[from] ProofOfWorkError),
    /// An inner node has the bytes of a transaction. The tree may be deeper than the block's own
    /// tree, with a leaf that never was a transaction (CVE-2017-12842).
    #[error("inner node {position} at level {level} has the bytes of a transaction")]
    InnerNodeIsTransaction {
        /// Level of the node; the txids are level 0.
        level: u32,
        /// Position of the node in its level.
        position: u32,
    },
    /// A transaction has 64 bytes without witness, and may be an inner node of the block's tree
    /// (CVE-2017-12842).
    #[error("transaction {txid} at position {index} has 64 bytes, the size of an inner node")]
    TransactionOf64Bytes {
        /// The claimed position in the block.
        index: u32,
        /// The transaction's txid.
        txid: Txid,
    },
    /// Evidence: implementations treat the filter in different ways: it has no data or no hash functions,
    /// reserved flags, or is over the limits.
    #[error(
        "implementations differ on a filter without data or hash functions, with flags above 2, \
        or over the limits"
    )]
    FilterNotReadAlike,
    /// The tree has no such merkle path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The path leads to a merkle root that differs from the root in the answer's header.
    #[error("the path's root is {path}, but the header's root is {header}")]
    OtherRoot {
        /// The root to which the path leads.
        path: TxMerkleNode,
        /// The root in the answer's header.
        header: TxMerkleNode,
    },
    /// The answer contains a transaction with the position or the txid of the claimed transaction.
    /// The value is the position.
    #[error("the answer contains transaction {0}")]
    NotOmitted(u32),
    /// The transaction does not match the filter as loaded, or it matches only in some
    /// implementations.
    #[error("the transaction does not match the filter as loaded")]
    NoMatch,
    /// The transaction is not a coinbase transaction at position 0.
    #[error("not a coinbase transaction at position 0")]
    NotTheCoinbase,
    /// The tree has the height that the answer claims.
    #[error("the tree has the claimed height {0}")]
    SameHeight(u32),
}

#[cfg(test)]
mod tests {
    use bitcoin::Txid;
    use bitcoin::hashes::Hash as _;
    use chainsieve_lanes::simd::Backend;

    use super::hash_unmatched;
    use crate::btc::merkle_tree::node;

    /// Compares the nodes that each backend computes with nodes that are hashed from their leaves.
    #[test]
    fn nodes_without_a_match_are_hashed_and_no_others() {
        for count in (1..80_u32).chain([333]) {
            let txids: Vec<_> = (0..count).map(|i| Txid::hash(&i.to_le_bytes())).collect();
            for one_in in [1, 2, 7, 50, 1_000] {
                let matched: Vec<_> = (0..count).filter(|i| i % one_in == one_in / 2).collect();
                for backend in Backend::available() {
                    let levels = hash_unmatched(backend, &txids, &matched);
                    for (level, nodes) in (1..).zip(&levels) {
                        for (position, &hash) in (0..).zip(nodes) {
                            let skipped = matched.iter().any(|leaf| leaf >> level == position);
                            let expected =
                                if skipped { [0; 32] } else { node(&txids, level, position) };
                            assert_eq!(hash, expected, "{count}, {level}, {position}");
                        }
                    }
                }
            }
        }
    }
}
