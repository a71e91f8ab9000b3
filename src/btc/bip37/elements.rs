//! Transactions taken apart into what filters test.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Range;

use bitcoin::block::Header;
use bitcoin::consensus::{deserialize, serialize};
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, Transaction, Txid};

use super::probe::batch::{Class, MAX_BLOCKS};
use crate::btc::raw::{Part, RawError, Reader};
use crate::btc::script::pushes;

/// The elements of transactions: their ids, the non-empty data pushes of their scripts, the
/// outpoints that they spend.
///
/// Made once, tested against as many filters as wanted.
///
/// # Examples
/// ```
/// # use chainsieve::btc::bip37::{BloomFilter, Elements, UpdateMode};
/// # use chainsieve::bitcoin::consensus::deserialize;
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
pub struct Elements<'a> {
    raw: Cow<'a, [u8]>,
    txids: Vec<Txid>,
    /// The ids once more, as they are probed.
    txid_bytes: Vec<[u8; 32]>,
    txid_offsets: Vec<u32>,
    txid_lengths: Vec<u32>,
    transactions: Vec<TransactionAt>,
    /// In the order that Core tests them in.
    places: Vec<Place>,
    /// The slot of each element. Slots are ordered by the number of full blocks.
    slots: Vec<u32>,
    /// Where the bytes of each slot are.
    offsets: Vec<u32>,
    lengths: Vec<u32>,
    /// The element in each slot.
    elements: Vec<u32>,
    /// How many slots there are for each number of full blocks; the last for all above.
    classes: [u32; CLASSES],
}

/// Slots with 0 to `MAX_BLOCKS` full blocks, and those with more.
const CLASSES: usize = MAX_BLOCKS + 2;

/// Where a transaction and its elements are.
#[derive(Debug, Clone)]
struct TransactionAt {
    /// Its first byte.
    offset: u32,
    /// Its first element.
    elements: u32,
}

/// Bytes of the raw transactions.
#[derive(Debug, Clone, Copy)]
struct Span {
    offset: u32,
    len: u32,
}

/// Where in its transaction an element stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The output of this number pushes it.
    Output(u32),
    /// The input of this number spends it.
    Outpoint(u32),
    /// The input of this number pushes it.
    InputData(u32),
}

impl<'a> Elements<'a> {
    /// Takes a raw transaction apart.
    ///
    /// # Errors
    /// Bytes that `bitcoin::consensus::deserialize` refuses too.
    ///
    /// # Cost
    /// One pass, the double SHA-256 of its id, about 24 bytes for each element.
    pub fn from_raw_transaction(raw: &'a [u8]) -> Result<Self, RawError> {
        let mut reader = Reader::new(raw)?;
        let elements = Builder::read(raw, &mut reader, 1)?;
        reader.finish()?;
        Ok(elements)
    }

    /// Takes a decoded transaction apart.
    pub fn from_transaction(transaction: &Transaction) -> Elements<'static> {
        let raw = serialize(transaction);
        Elements::from_raw_transaction(&raw).expect("serialised just now").into_owned()
    }

    /// A copy that borrows nothing.
    pub fn into_owned(self) -> Elements<'static> {
        Elements { raw: Cow::Owned(self.raw.into_owned()), ..self }
    }

    /// The number of transactions.
    pub fn len(&self) -> usize {
        self.txids.len()
    }

    /// Whether there is no transaction.
    pub fn is_empty(&self) -> bool {
        self.txids.is_empty()
    }

    /// The transactions' ids, in their order.
    pub fn txids(&self) -> &[Txid] {
        &self.txids
    }

    /// How many elements filters test: ids, outpoints and pushes.
    pub fn num_elements(&self) -> usize {
        self.txids.len() + self.offsets.len()
    }

    /// The elements' bytes, transaction by transaction, each in the order that Core tests them
    /// in: id, outputs, inputs.
    pub fn iter(&self) -> impl Iterator<Item = impl Iterator<Item = &[u8]>> {
        self.txids.iter().enumerate().map(|(transaction, txid)| {
            let elements = self.elements_of(transaction);
            let rest = elements.map(|element| self.bytes(self.slots[element]));
            core::iter::once(&txid.as_byte_array()[..]).chain(rest)
        })
    }

    /// The script of an output that has elements.
    pub(super) fn output_script(&self, transaction: usize, vout: u32) -> &[u8] {
        let offset = self.transactions[transaction].offset as usize;
        let (mut next, mut script) = (0, &[][..]);
        let read = Reader::at(&self.raw, offset).transaction(|part| {
            if let Part::Output { script_pubkey } = part {
                if next == vout {
                    script = script_pubkey;
                }
                next += 1;
            }
        });
        debug_assert!(read.is_ok(), "read before");
        script
    }

    /// The elements of a transaction but its id, by number.
    pub(super) fn elements_of(&self, transaction: usize) -> Range<usize> {
        let start = |at: &TransactionAt| at.elements as usize;
        let end = self.transactions.get(transaction + 1).map_or(self.places.len(), start);
        start(&self.transactions[transaction])..end
    }

    /// The transaction that has what is in a slot, ids being behind the elements' slots.
    pub(super) fn transaction_in(&self, slot: u32) -> u32 {
        match self.elements.get(slot as usize) {
            Some(element) => {
                position(self.transactions.partition_point(|at| at.elements <= *element) - 1)
            }
            None => slot - position(self.num_slots()),
        }
    }

    /// The number of slots: one for each element but ids.
    pub(super) fn num_slots(&self) -> usize {
        self.offsets.len()
    }

    /// The slot of an id, behind those of the elements.
    pub(super) fn txid_slot(&self, transaction: usize) -> usize {
        self.num_slots() + transaction
    }

    pub(super) fn place(&self, element: usize) -> Place {
        self.places[element]
    }

    pub(super) fn slot(&self, element: usize) -> u32 {
        self.slots[element]
    }

    pub(super) fn bytes(&self, slot: u32) -> &[u8] {
        let (offset, length) = (self.offsets[slot as usize], self.lengths[slot as usize]);
        &self.raw[offset as usize..][..length as usize]
    }

    /// What can be probed many at a time, numbered by slots; the ids come last.
    pub(super) fn classes(&self) -> impl Iterator<Item = Class<'_>> {
        let mut next = 0;
        let classes =
            self.classes[..=MAX_BLOCKS].iter().enumerate().map(move |(blocks, &count)| {
                let slots = next..next + count as usize;
                next = slots.end;
                Class {
                    bytes: &self.raw,
                    offsets: &self.offsets[slots.clone()],
                    lengths: &self.lengths[slots.clone()],
                    blocks,
                    first: position(slots.start),
                }
            });
        classes.chain(core::iter::once(Class {
            bytes: self.txid_bytes.as_flattened(),
            offsets: &self.txid_offsets,
            lengths: &self.txid_lengths,
            blocks: 8,
            first: position(self.num_slots()),
        }))
    }

    /// The slots of elements too long for that.
    pub(super) fn long_slots(&self) -> Range<u32> {
        let end = self.classes.iter().sum();
        end - self.classes[MAX_BLOCKS + 1]..end
    }
}

/// A block's elements and header.
#[derive(Debug, Clone)]
pub struct BlockElements<'a> {
    header: Header,
    elements: Elements<'a>,
}

impl<'a> BlockElements<'a> {
    /// Takes a raw block apart.
    ///
    /// # Errors
    /// Bytes that `bitcoin::consensus::deserialize` refuses too.
    ///
    /// # Cost
    /// One pass, the double SHA-256 of each id, about 24 bytes for each element.
    pub fn from_raw(raw: &'a [u8]) -> Result<Self, RawError> {
        let mut reader = Reader::new(raw)?;
        let header = deserialize(reader.take::<80>()?).expect("any 80 bytes are a header");
        let count = reader.compact_size()?;
        let elements = Builder::read(raw, &mut reader, count)?;
        reader.finish()?;
        Ok(Self { header, elements })
    }

    /// Takes a decoded block apart.
    pub fn from_block(block: &Block) -> BlockElements<'static> {
        let raw = serialize(block);
        let parts = BlockElements::from_raw(&raw).expect("serialised just now");
        BlockElements { header: parts.header, elements: parts.elements.into_owned() }
    }

    /// The block's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The elements of its transactions.
    pub fn elements(&self) -> &Elements<'a> {
        &self.elements
    }

    /// The ids of its transactions.
    pub fn txids(&self) -> &[Txid] {
        self.elements.txids()
    }
}

/// Elements as they are read, in the order of the bytes.
struct Builder<'a> {
    raw: &'a [u8],
    txids: Vec<Txid>,
    transactions: Vec<TransactionAt>,
    places: Vec<Place>,
    spans: Vec<Span>,
    classes: [u32; CLASSES],
}

impl<'a> Builder<'a> {
    fn read(
        raw: &'a [u8],
        reader: &mut Reader<'a>,
        transactions: u64,
    ) -> Result<Elements<'a>, RawError> {
        let mut builder = Self {
            raw,
            txids: Vec::new(),
            transactions: Vec::new(),
            places: Vec::new(),
            spans: Vec::new(),
            classes: [0; CLASSES],
        };
        for _ in 0..transactions {
            builder.transaction(reader)?;
        }
        Ok(builder.finish())
    }

    fn transaction(&mut self, reader: &mut Reader<'a>) -> Result<(), RawError> {
        let elements = self.places.len();
        let offset = position(reader.offset());
        let (mut vin, mut vout) = (0, 0);
        let mut inputs_end = elements;
        let txid = reader.transaction(|part| match part {
            Part::Input { outpoint, script_sig } => {
                self.push(Place::Outpoint(vin), outpoint);
                for data in pushes(script_sig) {
                    self.push(Place::InputData(vin), data);
                }
                inputs_end = self.places.len();
                vin += 1;
            }
            Part::Output { script_pubkey } => {
                for data in pushes(script_pubkey) {
                    self.push(Place::Output(vout), data);
                }
                vout += 1;
            }
        })?;
        // Outputs are tested before inputs.
        self.places[elements..].rotate_left(inputs_end - elements);
        self.spans[elements..].rotate_left(inputs_end - elements);
        self.transactions.push(TransactionAt { offset, elements: position(elements) });
        self.txids.push(txid);
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, place: Place, bytes: &[u8]) {
        let offset = position(bytes.as_ptr() as usize - self.raw.as_ptr() as usize);
        let span = Span { offset, len: position(bytes.len()) };
        self.classes[span.class()] += 1;
        self.places.push(place);
        self.spans.push(span);
    }

    /// Orders the slots by class, within a class by the elements' order.
    fn finish(self) -> Elements<'a> {
        let mut next = [0; CLASSES];
        for class in 1..CLASSES {
            next[class] = next[class - 1] + self.classes[class - 1];
        }
        let zeros = alloc::vec![0; self.spans.len()];
        let (mut slots, mut offsets, mut lengths) = (zeros.clone(), zeros.clone(), zeros.clone());
        let mut elements = zeros;
        for ((element, span), slot) in (0..).zip(&self.spans).zip(&mut slots) {
            let next = &mut next[span.class()];
            *slot = *next;
            offsets[*next as usize] = span.offset;
            lengths[*next as usize] = span.len;
            elements[*next as usize] = element;
            *next += 1;
        }
        Elements {
            raw: self.raw.into(),
            txid_bytes: self.txids.iter().map(|txid| txid.to_byte_array()).collect(),
            txid_offsets: (0..).step_by(32).take(self.txids.len()).collect(),
            txid_lengths: alloc::vec![32; self.txids.len()],
            txids: self.txids,
            transactions: self.transactions,
            places: self.places,
            slots,
            offsets,
            lengths,
            elements,
            classes: self.classes,
        }
    }
}

impl Span {
    /// The number of full blocks, or `MAX_BLOCKS + 1` for all above.
    #[inline(always)]
    fn class(self) -> usize {
        (self.len as usize / 4).min(MAX_BLOCKS + 1)
    }
}

/// Positions within a block fit 32 bits: [`Reader::new`] refuses more bytes than that.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "checked by Reader::new")]
fn position(position: usize) -> u32 {
    position as u32
}
