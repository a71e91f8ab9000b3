//! Golomb-coded sets and basic filters, written from the text of BIP158, slow and bit by bit. This
//! code shares no code with the library; SipHash is that of the `bitcoin` crate.

mod reading;

use std::collections::BTreeSet;

use chainsieve::bitcoin::hashes::siphash24;
use chainsieve::bitcoin::{Block, ScriptBuf};

/// Parameters of a Golomb-coded set: the two halves of the SipHash key, P and M.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coding {
    pub k0: u64,
    pub k1: u64,
    pub p: u8,
    pub m: u32,
}

/// Reason why readers that follow the BIP's text, such as Bitcoin Core, reject the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    CountCut,
    CountNonMinimal,
    /// The count is above Core's limit of 0x02000000.
    CountTooLarge,
    /// The bits end before the end of the last value.
    Cut,
    /// At least one whole trailing byte after the last value.
    Trailing,
}

/// A set that Core accepts, and the two ways in which it may differ from a writer's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The values in the order of the bytes. 128 bits hold any value that the bytes can encode.
    pub values: Vec<u128>,
    /// `true` if at least one value is not below N * M.
    pub over_range: bool,
    /// `true` if one of the padding bits of the last byte is set.
    pub padding: bool,
}

impl Reading {
    pub fn is_canonical(&self) -> bool {
        !self.over_range && !self.padding
    }
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn next(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1 == 1;
        self.at += 1;
        Some(bit)
    }
}

fn bytes_of(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| {
        let bit = |(at, bit): (usize, &bool)| u8::from(*bit) << (7 - at);
        bits.iter().enumerate().map(bit).sum()
    };
    bits.chunks(8).map(byte).collect()
}

/// Encodes a count as a `CompactSize`.
pub fn compact_size(count: u64) -> Vec<u8> {
    let bytes = count.to_le_bytes();
    match count {
        0..=0xfc => bytes[..1].to_vec(),
        0xfd..=0xffff => [&[0xfd], &bytes[..2]].concat(),
        0x1_0000..=0xffff_ffff => [&[0xfe], &bytes[..4]].concat(),
        _ => [&[0xff], &bytes[..]].concat(),
    }
}

fn take_count(bytes: &[u8]) -> Result<(u64, &[u8]), Fault> {
    let (first, rest) = bytes.split_first().ok_or(Fault::CountCut)?;
    let size = match first {
        0xfd => 2,
        0xfe => 4,
        0xff => 8,
        small => return Ok((u64::from(*small), rest)),
    };
    let (number, rest) = rest.split_at_checked(size).ok_or(Fault::CountCut)?;
    let count = number.iter().rev().fold(0, |count, byte| count << 8 | u64::from(*byte));
    if compact_size(count).len() == size + 1 {
        Ok((count, rest))
    } else {
        Err(Fault::CountNonMinimal)
    }
}

impl Coding {
    /// Returns the coding of a basic filter: the key is the first 16 bytes of the block hash.
    pub fn basic(block_hash: &[u8]) -> Self {
        let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        Self { k0: half(&block_hash[..8]), k1: half(&block_hash[8..16]), p: 19, m: 784_931 }
    }

    /// Maps an element to its value in a set of `count` elements.
    pub fn value(self, count: u64, element: &[u8]) -> u64 {
        let hash = siphash24::Hash::hash_to_u64_with_keys(self.k0, self.k1, element);
        let range = u128::from(count) * u128::from(self.m);
        u64::try_from(u128::from(hash) * range >> 64).expect("below the range")
    }

    /// Returns the sorted values of `elements`; duplicate elements are included once.
    pub fn values<E: AsRef<[u8]>>(self, elements: &[E]) -> Vec<u64> {
        let set: BTreeSet<&[u8]> = elements.iter().map(AsRef::as_ref).collect();
        let count = set.len() as u64;
        let mut values: Vec<_> = set.iter().map(|element| self.value(count, element)).collect();
        values.sort_unstable();
        values
    }

    pub fn encode<E: AsRef<[u8]>>(self, elements: &[E]) -> Vec<u8> {
        let values: Vec<_> = self.values(elements).into_iter().map(u128::from).collect();
        self.encode_values(&values)
    }

    /// Encodes ascending values, which may be out of range.
    pub fn encode_values(self, values: &[u128]) -> Vec<u8> {
        let mut bits = Vec::new();
        let mut last = 0;
        for value in values {
            let delta = value - last;
            last = *value;
            bits.extend((0..delta >> self.p).map(|_| true));
            bits.push(false);
            bits.extend((0..self.p).rev().map(|bit| delta >> bit & 1 == 1));
        }
        [compact_size(values.len() as u64), bytes_of(&bits)].concat()
    }

    /// Reads a whole set, including its padding.
    pub fn read(self, bytes: &[u8]) -> Result<Reading, Fault> {
        let (count, codes) = take_count(bytes)?;
        if count > 0x0200_0000 {
            return Err(Fault::CountTooLarge);
        }
        let mut bits = Bits { bytes: codes, at: 0 };
        let values = self.whole_values(count, &mut bits);
        if (values.len() as u64) < count {
            return Err(Fault::Cut);
        }
        if bits.at.div_ceil(8) < codes.len() {
            return Err(Fault::Trailing);
        }
        let range = u128::from(count) * u128::from(self.m);
        let over_range = values.iter().any(|value| *value >= range);
        let mut padding = false;
        while let Some(bit) = bits.next() {
            padding |= bit;
        }
        Ok(Reading { values, over_range, padding })
    }

    /// Returns the count, and all values that are complete in the bytes. Ignores what follows these
    /// values.
    pub fn prefix(self, bytes: &[u8]) -> Result<(u64, Vec<u128>), Fault> {
        let (count, codes) = take_count(bytes)?;
        Ok((count, self.whole_values(count, &mut Bits { bytes: codes, at: 0 })))
    }

    fn whole_values(self, count: u64, bits: &mut Bits<'_>) -> Vec<u128> {
        let mut values = Vec::new();
        let mut value = 0;
        while (values.len() as u64) < count {
            let Some(delta) = self.take_delta(bits) else { break };
            value += delta;
            values.push(value);
        }
        values
    }

    fn take_delta(self, bits: &mut Bits<'_>) -> Option<u128> {
        let mut delta = 0;
        while bits.next()? {
            delta += 1 << self.p;
        }
        for bit in (0..self.p).rev() {
            delta += u128::from(bits.next()?) << bit;
        }
        Some(delta)
    }

    /// Returns the indices of the queries whose value is in the set.
    pub fn matching<Q: AsRef<[u8]>>(self, set: &Reading, queries: &[Q]) -> Vec<usize> {
        let count = set.values.len() as u64;
        let values: BTreeSet<u128> = set.values.iter().copied().collect();
        let contains = |query: &Q| values.contains(&self.value(count, query.as_ref()).into());
        (0..queries.len()).filter(|index| contains(&queries[*index])).collect()
    }
}

/// Returns the elements of a basic filter: all output scripts that do not start with `OP_RETURN`,
/// and all scripts that the inputs spend, except empty scripts. `spent` has the scripts in input
/// order, without the coinbase.
pub fn basic_elements(block: &Block, spent: &[ScriptBuf]) -> BTreeSet<Vec<u8>> {
    let mut elements = BTreeSet::new();
    for tx in &block.txdata {
        for output in &tx.output {
            let script = output.script_pubkey.to_bytes();
            if script.first() != Some(&0x6a) {
                elements.insert(script);
            }
        }
    }
    elements.extend(spent.iter().map(|script| script.to_bytes()));
    elements.remove(&Vec::new());
    elements
}
