//! `merkleblock`: a header and the part of its merkle tree that leads to matched transactions.
//!
//! ```text
//! header 80 | transactions u32 | CompactSize n | n hashes of 32 | CompactSize n | n bytes of flags
//! ```
//! Hashes and flags are in depth-first order; flag `i` is `1 << (i & 7)` of byte `i >> 3` and
//! says of a node whether a matched transaction is below it. A hash stands for each node without
//! one, and for each txid reached.
//!
//! Source: Bitcoin Core 28.1, `merkleblock.cpp`. `bitcoin`'s own type loses the padding of the
//! flags, which Core does not look at; conversions to and from it are here.

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

/// A header with the part of its merkle tree that leads to matched transactions.
///
/// As received: nothing is checked before [`extract_matches`](Self::extract_matches), or
/// [`Proof`](super::Proof), which says what is proven.
///
/// # Examples
/// ```
/// use chainsieve::btc::bip37::MerkleBlock;
/// # use chainsieve::bitcoin::{Txid, block::Header, consensus::encode::deserialize_hex};
/// // Block 170 of mainnet: the first payment from one person to another stands at position 1.
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
    /// How many transactions the block is said to have.
    pub num_transactions: u32,
    /// The hashes, in depth-first order.
    pub hashes: Vec<TxMerkleNode>,
    /// The flags, in depth-first order, least significant bit first, padding included.
    pub flags: Vec<u8>,
}

impl MerkleBlock {
    /// The merkle block of a block with `txids` for the transactions at `matched`, which are
    /// positions in ascending order.
    ///
    /// # Errors
    /// No txids or more than a block can have; positions out of order, repeated, or behind the
    /// last txid.
    ///
    /// # Cost
    /// Each hash that is stored is computed once, and none above a matched transaction: about as many
    /// double hashes as there are txids at most, none when all match. A level at a time, so that
    /// they run in lanes; allocates 32 bytes for each node.
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
        // A matched leaf brings itself and a sibling at each level; there are no more than leaves.
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

    /// The payload of a `merkleblock` message.
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

    /// Reads the whole payload of a `merkleblock` message.
    ///
    /// # Errors
    /// What is truncated, badly encoded, or followed by more bytes.
    ///
    /// # Cost
    /// Allocates what the payload holds.
    pub fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let (block, rest) = Self::decode_prefix(payload)?;
        nothing_left(rest)?;
        Ok(block)
    }

    /// Reads the payload of a `merkleblock` message and returns the bytes behind it, which Core
    /// ignores.
    ///
    /// # Errors
    /// As [`decode`](Self::decode), trailing bytes apart.
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

/// The nodes of each level above the txids, without those above a matched leaf.
fn hash_unmatched(backend: Backend, txids: &[Txid], matched: &[u32]) -> Vec<Vec<[u8; 32]>> {
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
    levels.remove(0);
    levels
}

/// Hashes the pairs of `below` into `above`, other than those at the positions `skip`.
fn parents(backend: Backend, below: &[[u8; 32]], skip: &[u32], above: &mut [[u8; 32]]) {
    let mut skip = skip.iter().peekable();
    let wanted = (0..).zip(below.chunks(2)).filter(|(i, _)| skip.next_if_eq(&i).is_none());
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
            _ => (i, [pair.as_flattened(), pair.as_flattened(), &[]]),
        })
        .unzip();
    for (i, hash) in places.into_iter().zip(sha256d_each(backend, &messages)) {
        above[i as usize] = hash;
    }
}

/// Writes the tree in depth-first order.
struct Builder<'a> {
    txids: &'a [Txid],
    /// The nodes of each level from the first above the txids; those above a matched leaf, and
    /// levels behind the last, are not computed.
    levels: Vec<Vec<[u8; 32]>>,
    /// The matched leaves that are not written yet.
    matched: &'a [u32],
    hashes: Vec<TxMerkleNode>,
    flags: Vec<u8>,
    num_flags: u32,
}

impl Builder<'_> {
    /// Writes the node at `position` of `level`. All matched leaves before it are written.
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

/// Keeps the flags that `bitcoin`'s type has, and pads them with zeros.
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
    /// More hashes or flags than `bitcoin` decodes, far over what a block can have.
    fn try_from(block: &MerkleBlock) -> Result<Self, MerkleBlockError> {
        let bytes = block.hashes.len().saturating_mul(32).max(block.flags.len());
        // The fields are private: the way in is the encoding.
        deserialize(&block.encode()).map_err(|_| MerkleBlockError::TooLarge(bytes))
    }
}

/// Why there is no such merkle block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MerkleBlockError {
    /// A block without transactions.
    #[error("a block has at least 1 transaction, not 0")]
    NoTransactions,
    /// More transactions than a block can have.
    #[error("{0} transactions, the limit is {MAX_BLOCK_TRANSACTIONS}")]
    TooManyTransactions(u32),
    /// A matched position that does not come after the one before it.
    #[error("matched position {1} follows {0}, positions must ascend")]
    OutOfOrder(u32, u32),
    /// A matched position behind the last transaction.
    #[error("matched position {index} in a block of {num_transactions} transactions")]
    OutOfRange {
        /// The position.
        index: u32,
        /// The transactions in the block.
        num_transactions: u32,
    },
    /// So many bytes of hashes or flags that `bitcoin` does not decode them.
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

    /// Every backend, against hashing each node from its leaves.
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
