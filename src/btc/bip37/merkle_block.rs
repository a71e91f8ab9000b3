//! The `merkleblock` message: a header and the part of its merkle tree that leads to matched
//! transactions.
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

use super::PayloadError;
use super::payload::nothing_left;
use crate::btc::compact_size::{
    put_length, put_var_bytes, take, take_chunks, take_length, take_var_bytes,
};
use crate::btc::merkle_tree::{MAX_BLOCK_TRANSACTIONS, height, parent, preimage};

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
/// let tree = MerkleBlock::decode(&block.encode()).unwrap().extract_matches().unwrap();
/// assert_eq!(tree.matches, [(1, txids[1])]);
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
    /// Returns the errors of [`decode`](Self::decode), but trailing bytes are no error.
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

/// Reason why a merkle block cannot be built or converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MerkleBlockError {
    /// The block has no transactions.
    #[error("a block has at least 1 transaction, not 0")]
    NoTransactions,
    /// There are more transactions than a block can have.
    #[error("{0} transactions, the limit is {MAX_BLOCK_TRANSACTIONS}")]
    TooManyTransactions(u32),
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
