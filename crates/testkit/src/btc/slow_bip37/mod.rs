//! A slow BIP37 matcher, written from the BIP's text and from the documented order in which Bitcoin
//! Core tests a transaction. The matcher was written without reading the library's code.
//!
//! The matcher shares no code with the library: `mur3` hashes, `bitcoin` parses transactions, and
//! everything else is written out here. The matcher is simple on purpose: no premixed hashes, no
//! early exits except those that the rules prescribe, and one murmur3 call for each hash function
//! and element.

pub mod script;
pub mod tree;

use bitcoin::hashes::Hash as _;
use bitcoin::{Block, OutPoint, Transaction};

use self::script::{Template, non_empty_pushes, template};

/// A loaded filter of any size: the four fields of `filterload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowFilter {
    pub data: Vec<u8>,
    pub hash_funcs: u32,
    pub tweak: u32,
    pub flags: u8,
}

/// Reason why a transaction matches the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The filter has no data, which matches everything.
    EmptyFilter,
    Txid,
    /// Output `output` matched with its non-empty push number `push`. `inserted` is `true` if the
    /// outpoint of the output was inserted into the filter.
    Output {
        output: usize,
        push: usize,
        inserted: bool,
    },
    /// Input `input` spends a matching outpoint.
    Outpoint {
        input: usize,
    },
    /// The scriptSig of input `input` matched with its non-empty push number `push`.
    ScriptSig {
        input: usize,
        push: usize,
    },
}

impl SlowFilter {
    fn bit(&self, function: u32, element: &[u8]) -> (usize, u8) {
        let seed = function.wrapping_mul(0xFBA4_C795).wrapping_add(self.tweak);
        let hash = u64::from(mur3::murmurhash3_x86_32(element, seed));
        let bits = self.data.len() as u64 * 8;
        let index = hash % bits;
        (usize::try_from(index / 8).expect("an index into a Vec"), 1 << (index % 8))
    }

    pub fn insert(&mut self, element: &[u8]) {
        if self.data.is_empty() {
            return;
        }
        for function in 0..self.hash_funcs {
            let (byte, mask) = self.bit(function, element);
            self.data[byte] |= mask;
        }
    }

    pub fn contains(&self, element: &[u8]) -> bool {
        if self.data.is_empty() {
            return true;
        }
        (0..self.hash_funcs).all(|function| {
            let (byte, mask) = self.bit(function, element);
            self.data[byte] & mask != 0
        })
    }

    /// Tests one transaction, and inserts the outpoints that the flags ask for. Returns the reasons
    /// of the match; no reason means no match.
    ///
    /// The reasons are in the prescribed order: first the transaction id, then one reason for each
    /// matching output. The inputs are tested only if neither the id nor an output matches. Then
    /// the only reason is that of the first matching input.
    pub fn match_and_update(&mut self, tx: &Transaction) -> Vec<Reason> {
        if self.data.is_empty() {
            return vec![Reason::EmptyFilter];
        }
        let mut reasons = Vec::new();

        let txid = tx.compute_txid().to_byte_array();
        if self.contains(&txid) {
            reasons.push(Reason::Txid);
        }

        for (output, txout) in tx.output.iter().enumerate() {
            let script = txout.script_pubkey.as_bytes();
            for (push, element) in non_empty_pushes(script).into_iter().enumerate() {
                if !self.contains(element) {
                    continue;
                }
                let wanted = match self.flags & 3 {
                    1 => true,
                    2 => template(script) != Template::Other,
                    _ => false,
                };
                reasons.push(Reason::Output { output, push, inserted: wanted });
                if wanted {
                    let vout = u32::try_from(output).expect("fewer than 2^32 outputs");
                    self.insert(&outpoint_bytes(&OutPoint { txid: tx.compute_txid(), vout }));
                }
                break;
            }
        }
        if !reasons.is_empty() {
            return reasons;
        }

        for (input, txin) in tx.input.iter().enumerate() {
            if self.contains(&outpoint_bytes(&txin.previous_output)) {
                return vec![Reason::Outpoint { input }];
            }
            let script = txin.script_sig.as_bytes();
            for (push, element) in non_empty_pushes(script).into_iter().enumerate() {
                if self.contains(element) {
                    return vec![Reason::ScriptSig { input, push }];
                }
            }
        }
        Vec::new()
    }

    /// Tests the transactions of a block in order. Returns the index and the reasons of each
    /// matching transaction.
    pub fn match_block(&mut self, block: &Block) -> Vec<(usize, Vec<Reason>)> {
        let tested = block.txdata.iter().map(|tx| self.match_and_update(tx)).enumerate();
        tested.filter(|(_, reasons)| !reasons.is_empty()).collect()
    }

    /// Returns the `filterload` payload of the filter.
    pub fn payload(&self) -> Vec<u8> {
        let mut payload = tree::compact_size(self.data.len());
        payload.extend_from_slice(&self.data);
        payload.extend_from_slice(&self.hash_funcs.to_le_bytes());
        payload.extend_from_slice(&self.tweak.to_le_bytes());
        payload.push(self.flags);
        payload
    }

    /// Returns the filter of a complete, valid `filterload` payload of any size up to 65,535 bytes.
    /// Panics on any other input: this matcher only reads payloads that are known to be valid.
    pub fn from_payload(payload: &[u8]) -> Self {
        let (len, rest) = match payload[0] {
            253 => (usize::from(payload[1]) | usize::from(payload[2]) << 8, &payload[3..]),
            len @ 0..=252 => (usize::from(len), &payload[1..]),
            _ => panic!("a filter of over 65,535 bytes"),
        };
        let (data, rest) = rest.split_at(len);
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!(rest.len(), 9, "bytes after the data");
        Self { data: data.to_vec(), hash_funcs: word(0), tweak: word(4), flags: rest[8] }
    }
}

/// Encodes an outpoint as on the wire: the id in internal byte order, then the index.
pub fn outpoint_bytes(outpoint: &OutPoint) -> Vec<u8> {
    let mut bytes = outpoint.txid.to_byte_array().to_vec();
    bytes.extend_from_slice(&outpoint.vout.to_le_bytes());
    bytes
}
