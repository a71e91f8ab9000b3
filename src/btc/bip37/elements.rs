//! Extraction of the elements of transactions that BIP37 filters test.

use alloc::vec::Vec;
use core::ops::Range;

use bitcoin::block::Header;
use bitcoin::consensus::{deserialize, serialize};
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, Transaction, Txid};
use chainsieve_lanes::hash::sha256d::{Message, sha256d_each};
use chainsieve_lanes::simd::Backend;

use super::probe::tiles::{MAX_BLOCKS, Tiles};
use crate::btc::raw::{Part, RawError, Reader};
use crate::btc::script::{ScriptType, pushes};

/// The elements of transactions: the txids, the non-empty data pushes of the scripts, and the spent
/// outpoints.
///
/// The elements are extracted once and can be tested against any number of filters.
///
/// # Examples
/// ```
/// # use chainsieve::btc::bip37::{BloomFilter, Elements, UpdateMode};
/// let raw = hex::decode(concat!(
///     "0100000001c997a5e56e104102fa209c6a852dd90660a20b2d9c352423edce25857fcd3704000000004847304402",
///     "204e45e16932b8af514961a1d3a1a25fdf3f4f7732e9d624c6c61548ab5fb8cd410220181522ec8eca07de4860a4",
///     "acdd12909d831cc56cbbac4622082221a8768d1d0901ffffffff0200ca9a3b00000000434104ae1a62fe09c5f51b",
///     "13905f07f06b99a2f7159b2225f374cd378d71302fa28414e7aab37397f554a7df5f142c21c1b7303b8a0626f1ba",
///     "ded5c72a704f7e6cd84cac00286bee0000000043410411db93e1dcdb8a016b49840f8c53bc1eb68a382e97b1482e",
///     "cad7b148a6909a5cb2e0eaddfb84ccf9744464f82e160bfa9b8b64f9d4c03f999b8643f656b412a3ac00000000",
/// )).unwrap();
/// let elements = Elements::from_raw_transaction(&raw)?;
/// let mut filter = BloomFilter::new(1, 1e-4, 5, UpdateMode::None).unwrap();
/// filter.insert(elements.txids()[0].as_ref());
/// assert_eq!(filter.match_elements(&elements).len(), 1);
/// # Ok::<(), chainsieve::btc::RawError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Elements {
    txids: Vec<Txid>,
    /// Number of the first element of each transaction.
    starts: Vec<u32>,
    /// Position of each element except the txids, in the order in which Core tests the elements.
    positions: Vec<ElementPosition>,
    /// Slot of each element except the txids.
    slots: Vec<u32>,
    /// Contents of the slots: the elements of each class, then the txids, which can be probed many at
    /// a time. Slots are numbered consecutively through all classes.
    pub(super) classes: Vec<Tiles>,
    /// Contents of the slots after those of `classes`: the elements that are too long for a class,
    /// each with its transaction.
    long: Vec<(u32, Vec<u8>)>,
}

/// Position of an element in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementPosition {
    /// The script of an output pushes the element. `pays_to_key` is `true` for a bare public key or
    /// bare multisig script.
    Output { vout: u32, pays_to_key: bool },
    /// The element is an outpoint, and the input with this number spends it.
    Outpoint(u32),
    /// The script of the input with this number pushes the element.
    InputData(u32),
}

impl Elements {
    /// Extracts the elements of a raw transaction.
    ///
    /// # Errors
    /// Returns an error for bytes that `bitcoin::consensus::deserialize` rejects too, and for more
    /// than 4 GiB.
    ///
    /// # Cost
    /// One pass over the bytes, the double SHA-256 of the txid, and a copy of the elements.
    pub fn from_raw_transaction(raw: &[u8]) -> Result<Self, RawError> {
        let mut reader = Reader::new(raw)?;
        let elements = Builder::read(raw, &mut reader, 1)?;
        reader.finish()?;
        Ok(elements)
    }

    /// Extracts the elements of a decoded transaction.
    ///
    /// # Panics
    /// Panics if the serialised transaction is over 4 GiB.
    pub fn from_transaction(transaction: &Transaction) -> Self {
        Self::from_raw_transaction(&serialize(transaction)).expect("serialised just now")
    }

    /// Returns the number of transactions.
    pub fn len(&self) -> usize {
        self.txids.len()
    }

    /// Returns `true` if there are no transactions.
    pub fn is_empty(&self) -> bool {
        self.txids.is_empty()
    }

    /// Returns the txids, in the order of the transactions.
    pub fn txids(&self) -> &[Txid] {
        &self.txids
    }

    /// Returns the number of elements that filters test: txids, outpoints and pushes.
    pub fn num_elements(&self) -> usize {
        self.txids.len() + self.positions.len()
    }

    /// Returns the numbers of a transaction's elements, except for the txid, in the order in which
    /// Core tests them.
    pub(super) fn elements_of(&self, transaction: usize) -> Range<usize> {
        let end =
            self.starts.get(transaction + 1).map_or(self.positions.len(), |end| *end as usize);
        self.starts[transaction] as usize..end
    }

    pub(super) fn position(&self, element: usize) -> ElementPosition {
        self.positions[element]
    }

    pub(super) fn slot(&self, element: usize) -> u32 {
        self.slots[element]
    }

    /// Returns the position of an element among its script's non-empty pushes, from 0.
    pub(super) fn push_number(&self, element: usize) -> u32 {
        let at = self.positions[element];
        let start = self.starts[self.transaction_with(element)] as usize;
        position(
            self.positions[start..element].iter().rev().take_while(|before| **before == at).count(),
        )
    }

    /// Returns the first of `elements` whose slot satisfies `is_wanted`.
    pub(super) fn find(
        &self,
        elements: Range<usize>,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<usize> {
        let found = self.slots[elements.clone()].iter().position(|&slot| is_wanted(slot))?;
        Some(elements.start + found)
    }

    /// Returns the transaction that contains an element.
    pub(super) fn transaction_with(&self, element: usize) -> usize {
        self.starts.partition_point(|&start| start as usize <= element) - 1
    }

    /// Returns the elements that are too long for a class, with their slots.
    pub(super) fn long(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (self.first_long()..).zip(self.long.iter().map(|(_, bytes)| &bytes[..]))
    }

    fn first_long(&self) -> u32 {
        self.classes.last().map_or(0, Tiles::end)
    }

    /// Returns the slot of a transaction's txid.
    pub(super) fn txid_slot(&self, transaction: usize) -> u32 {
        self.classes.last().map_or(0, |class| class.start) + position(transaction)
    }

    /// Calls `look` with the bytes in a slot.
    pub(super) fn with_bytes<T>(&self, slot: u32, look: impl FnOnce(&[u8]) -> T) -> T {
        match self.classes.iter().find(|class| slot < class.end()) {
            Some(class) => class.with_bytes(slot, look),
            None => look(&self.long[(slot - self.first_long()) as usize].1),
        }
    }

    /// Returns the transaction that the element or txid in a slot belongs to.
    pub(super) fn transaction_in(&self, slot: u32) -> u32 {
        match self.classes.iter().find(|class| slot < class.end()) {
            Some(class) => class.owner(slot),
            None => self.long[(slot - self.first_long()) as usize].0,
        }
    }
}

/// The header of a block and the elements of its transactions.
#[derive(Debug, Clone)]
pub struct BlockElements {
    header: Header,
    elements: Elements,
}

impl BlockElements {
    /// Extracts the elements of a raw block.
    ///
    /// # Errors
    /// Returns an error for bytes that `bitcoin::consensus::deserialize` rejects too, and for more
    /// than 4 GiB.
    ///
    /// # Cost
    /// One pass over the bytes, the double SHA-256 of each txid, and a copy of the elements.
    pub fn from_raw(raw: &[u8]) -> Result<Self, RawError> {
        let mut reader = Reader::new(raw)?;
        let header = deserialize(reader.take::<80>()?).expect("any 80 bytes are a header");
        let count = reader.compact_size()?;
        let elements = Builder::read(raw, &mut reader, count)?;
        reader.finish()?;
        Ok(Self { header, elements })
    }

    /// Extracts the elements of a decoded block.
    ///
    /// # Panics
    /// Panics if the serialised block is over 4 GiB.
    pub fn from_block(block: &Block) -> Self {
        Self::from_raw(&serialize(block)).expect("serialised just now")
    }

    /// Returns the block's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the elements of the block's transactions.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// Returns the txids of the block's transactions.
    pub fn txids(&self) -> &[Txid] {
        self.elements.txids()
    }
}

/// State of the extraction, while the transactions are read.
struct Builder<'a> {
    raw: &'a [u8],
    /// The bytes whose double SHA-256 is the txid, for each transaction.
    transactions: Vec<Message<'a>>,
    starts: Vec<u32>,
    positions: Vec<ElementPosition>,
    spans: Vec<Span>,
    /// Number of elements with each number of full 4-byte blocks. The last entry counts all longer
    /// elements.
    counts: [usize; MAX_BLOCKS + 2],
}

/// Range of bytes in the raw block or transaction.
#[derive(Clone, Copy)]
struct Span {
    offset: u32,
    length: u32,
}

impl<'a> Builder<'a> {
    fn read(
        raw: &'a [u8],
        reader: &mut Reader<'a>,
        transactions: u64,
    ) -> Result<Elements, RawError> {
        let mut builder = Self {
            raw,
            transactions: Vec::new(),
            starts: Vec::new(),
            // Capacity estimate: most blocks have one element for every 40 to 60 bytes.
            positions: Vec::with_capacity(raw.len() / 40),
            spans: Vec::with_capacity(raw.len() / 40),
            counts: [0; MAX_BLOCKS + 2],
        };
        for _ in 0..transactions {
            builder.transaction(reader)?;
        }
        Ok(builder.finish())
    }

    fn transaction(&mut self, reader: &mut Reader<'a>) -> Result<(), RawError> {
        let start = self.positions.len();
        self.starts.push(position(start));
        let (mut vin, mut vout) = (0, 0);
        let mut inputs_end = start;
        let transaction = reader.transaction(|part| match part {
            Part::Input { outpoint, script_sig } => {
                self.push(ElementPosition::Outpoint(vin), outpoint);
                for data in pushes(script_sig) {
                    self.push(ElementPosition::InputData(vin), data);
                }
                inputs_end = self.positions.len();
                vin += 1;
            }
            Part::Output { script_pubkey } => {
                let pays_to_key = ScriptType::of(script_pubkey) != ScriptType::Other;
                for data in pushes(script_pubkey) {
                    self.push(ElementPosition::Output { vout, pays_to_key }, data);
                }
                vout += 1;
            }
        })?;
        // Core tests outputs before inputs, but a serialised transaction has its inputs before its
        // outputs.
        self.positions[start..].rotate_left(inputs_end - start);
        self.spans[start..].rotate_left(inputs_end - start);
        self.transactions.push(transaction);
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, at: ElementPosition, bytes: &[u8]) {
        let offset = position(bytes.as_ptr() as usize - self.raw.as_ptr() as usize);
        self.counts[(bytes.len() / 4).min(MAX_BLOCKS + 1)] += 1;
        self.positions.push(at);
        self.spans.push(Span { offset, length: position(bytes.len()) });
    }

    /// Copies the elements into slots, sorted by class.
    fn finish(self) -> Elements {
        let mut next = 0;
        let mut classes = Vec::with_capacity(MAX_BLOCKS + 2);
        for (blocks, &count) in self.counts[..=MAX_BLOCKS].iter().enumerate() {
            classes.push(Tiles::new(blocks, next, count));
            next += position(count);
        }
        let txids = sha256d_each(Backend::best(), &self.transactions);
        let mut ids = Tiles::new(8, next, txids.len());
        for (transaction, txid) in (0..).zip(&txids) {
            ids.push(txid, 0, 32, transaction);
        }
        let first_long = ids.end();
        let mut long = Vec::with_capacity(self.counts[MAX_BLOCKS + 1]);
        let mut slots = Vec::with_capacity(self.spans.len());
        let ends = self.starts.iter().skip(1).copied().chain([position(self.spans.len())]);
        for ((owner, &start), end) in (0..).zip(&self.starts).zip(ends) {
            for span in &self.spans[start as usize..end as usize] {
                let (offset, length) = (span.offset as usize, span.length as usize);
                slots.push(if let Some(class) = classes.get_mut(length / 4) {
                    class.push(self.raw, offset, length, owner)
                } else {
                    long.push((owner, self.raw[offset..][..length].to_vec()));
                    first_long + position(long.len() - 1)
                });
            }
        }
        classes.push(ids);
        Elements {
            txids: txids.into_iter().map(Txid::from_byte_array).collect(),
            starts: self.starts,
            positions: self.positions,
            slots,
            classes,
            long,
        }
    }
}

/// Converts a position within the raw bytes to 32 bits. [`Reader::new`] rejects inputs that are too
/// long for this.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "checked by Reader::new")]
fn position(position: usize) -> u32 {
    position as u32
}
