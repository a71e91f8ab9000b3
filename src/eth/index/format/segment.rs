//! A segment: the rows of 1 to 32 sections, sealed.
//!
//! With `S` sections:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic: `89 45 42 53 0d 0a 1a 0a`, "EBS" for Ethereum bloom segment |
//! | 8 | 2 | version: 1 |
//! | 10 | 2 | flags; bit 0: there is a column of block hashes |
//! | 12 | 4 | `S` |
//! | 16 | 8 | number of the first block |
//! | 24 | 32 | chain label, UTF-8, padded with zeros |
//! | 56 | 4 | length of the rows' data, in units of 64 bytes |
//! | 60 | 4 | checksum of all preceding bytes |
//! | 64 | `S` × 4,496 | one record for each section |
//! | | 2,048 × (8 + 6 `S`) | one entry for each row, from position 0 on |
//! | | `S` × 262,144 | only with the flag: the block hashes, section by section |
//! | | | zeros up to the next multiple of 4,096 |
//! | | | the rows' data |
//!
//! The record of a section:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 32 | hash of the block before the section's first block |
//! | 32 | 32 | hash of its first block |
//! | 64 | 32 | hash of its last block |
//! | 96 | 8 | time of its first block, in seconds since 1970 |
//! | 104 | 8 | time of its last block |
//! | 112 | 17 × 8 | sum of the gas used, by number of bits set in the block's filter: 0 to 127, 128 to 255, …, and last all 2,048 |
//! | 248 | 17 × 8 | highest gas used by one block, by the same classes |
//! | 384 | 2,049 × 2 | number of filters with 0, 1, 2, …, 2,048 bits set |
//! | 4,482 | 6 | zeros |
//! | 4,488 | 4 | checksum of the section's block hashes; 0 if the segment has none |
//! | 4,492 | 4 | checksum of all preceding bytes of the record |
//!
//! The entry of a row:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | offset of the row's data, in units of 64 bytes from the start of all rows' data |
//! | 4 | `S` × 2 | bits set in each section, 0 to 8,192 |
//! | | `S` × 4 | checksum of the row's data for each section; 0 if there are no data |
//! | | 4 | checksum of the row's position, as 2 bytes, and of all preceding bytes of the entry |
//!
//! The number of bits set in a section determines the encoding of the row's data for that section:
//!
//! - no bit or all 8,192 bits set: no data;
//! - 1 to 256 bits set: a **list** of the positions of the set bits within the section, 2 bytes
//!   each, ascending;
//! - otherwise **raw**: the 1,024 bytes of the row.
//!
//! The data of a row are all its raw sections in order, then all its lists in order, then zeros up
//! to the next multiple of 64, where the data of the next row start.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use alloy_primitives::B256;

use super::{
    LABEL, MAX_SECTIONS, SECTION, Settings, check, contradiction, damaged, field, open_front,
    read_label,
};
use crate::eth::bloom::BITS;
use crate::eth::index::{Damage, IndexError, Part};

const MAGIC: [u8; 8] = *b"\x89EBS\r\n\x1a\n";
/// Length of a segment's header in bytes.
pub(in crate::eth::index) const HEADER: usize = 64;
/// Length of a section's record in bytes.
pub(in crate::eth::index) const RECORD: usize = 4496;
/// Length of a raw row in one section, in bytes.
pub(in crate::eth::index) const ROW: usize = SECTION / 8;
/// Length of the block hashes of a section, in bytes.
pub(in crate::eth::index) const HASHES: usize = SECTION * 32;
/// Highest number of set bits for which the data are encoded as a list.
pub(in crate::eth::index) const LIST_MAX: u16 = 256;
/// Alignment of the start of a row's data, in bytes.
pub(in crate::eth::index) const UNIT: usize = 64;
/// Alignment of the start of the rows' data, in bytes.
const PAGE: u64 = 4096;
/// Number of classes into which blocks are divided by the number of bits set in their filters.
pub(in crate::eth::index) const FILL_CLASSES: usize = 17;

/// Returns the class of a filter with `ones` bits set: each class covers 128 numbers of set bits,
/// and a full filter has a class of its own.
pub(in crate::eth::index) fn fill_class(ones: u32) -> usize {
    (ones as usize / 128).min(FILL_CLASSES - 1)
}

/// Decoded header of a segment; computes the offsets of the segment's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::eth::index) struct SegmentHeader {
    pub(in crate::eth::index) settings: Settings,
    /// Number of sections in the segment.
    pub(in crate::eth::index) sections: u32,
    /// Number of the segment's first block.
    pub(in crate::eth::index) first: u64,
    /// Length of the rows' data, in [`UNIT`]s.
    pub(in crate::eth::index) data_units: u32,
}

impl SegmentHeader {
    pub(in crate::eth::index) fn to_bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&super::VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.settings.flags().to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sections.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..56].copy_from_slice(&self.settings.label_bytes());
        bytes[56..60].copy_from_slice(&self.data_units.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the header of the segment `name`.
    ///
    /// # Errors
    /// Returns an error if the bytes belong to another format or version, if they are damaged, or
    /// if a number is out of range.
    pub(in crate::eth::index) fn from_bytes(
        name: &str,
        bytes: &[u8; HEADER],
    ) -> Result<Self, IndexError> {
        let mut rest = &bytes[..];
        let flags = open_front(name, MAGIC, &mut rest)?;
        let computed = crc32c::crc32c(&bytes[..60]);
        let stored = u32::from_le_bytes(field(&mut &bytes[60..]));
        check(name, 0, Part::SegmentHeader, stored, computed)?;
        let sections = u32::from_le_bytes(field(&mut rest));
        let first = u64::from_le_bytes(field(&mut rest));
        let label: [u8; LABEL] = field(&mut rest);
        let data_units = u32::from_le_bytes(field(&mut rest));
        let wrong = |what: String| contradiction(name, 0, Part::SegmentHeader, what);
        let label = read_label(&label).ok_or_else(|| wrong("its chain label is invalid".into()))?;
        if !sections.is_power_of_two() || sections > MAX_SECTIONS {
            return Err(wrong(format!(
                "{sections} sections, but only 1, 2, 4, 8, 16 or 32 are valid"
            )));
        }
        // The data of a row are never longer than its raw bytes, which are a whole number of units.
        if data_units as usize > sections as usize * (BITS * ROW / UNIT) {
            return Err(wrong(format!(
                "{data_units} units of data are too many for {sections} sections"
            )));
        }
        let settings = Settings { label, block_hashes: flags & super::BLOCK_HASHES != 0 };
        Ok(Self { settings, sections, first, data_units })
    }

    /// Returns the offset of a section's record.
    #[expect(clippy::unused_self, reason = "as the other parts")]
    pub(in crate::eth::index) fn record_at(&self, section: u32) -> u64 {
        HEADER as u64 + u64::from(section) * RECORD as u64
    }

    /// Returns the offset of a row's entry.
    pub(in crate::eth::index) fn entry_at(&self, row: u16) -> u64 {
        self.record_at(self.sections) + u64::from(row) * entry_len(self.sections) as u64
    }

    /// Returns the offset of a section's block hashes, if the segment has block hashes.
    pub(in crate::eth::index) fn hashes_at(&self, section: u32) -> u64 {
        let entries = BITS as u64 * entry_len(self.sections) as u64;
        self.record_at(self.sections) + entries + u64::from(section) * HASHES as u64
    }

    /// Returns the offset at which the rows' data start.
    pub(in crate::eth::index) fn data_at(&self) -> u64 {
        let hashed = if self.settings.block_hashes { self.sections } else { 0 };
        self.hashes_at(hashed).next_multiple_of(PAGE)
    }

    /// Returns the length of the file in bytes.
    pub(in crate::eth::index) fn file_len(&self) -> u64 {
        self.data_at() + u64::from(self.data_units) * UNIT as u64
    }
}

/// Returns the length of a row's entry in bytes.
pub(in crate::eth::index) const fn entry_len(sections: u32) -> usize {
    8 + 6 * sections as usize
}

/// Per-section record of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::eth::index) struct SectionRecord {
    /// Hash of the block before the section's first block.
    pub(in crate::eth::index) parent_hash: B256,
    pub(in crate::eth::index) first_hash: B256,
    pub(in crate::eth::index) last_hash: B256,
    /// Timestamps of the first and the last block, in seconds since 1970.
    pub(in crate::eth::index) first_time: u64,
    pub(in crate::eth::index) last_time: u64,
    /// Sum of the gas used by the blocks of each [`fill_class`].
    pub(in crate::eth::index) gas: [u64; FILL_CLASSES],
    /// Highest gas used by one block of each [`fill_class`].
    pub(in crate::eth::index) most_gas: [u64; FILL_CLASSES],
    /// Histogram of the fills: entry `n` is the number of filters with `n` bits set.
    pub(in crate::eth::index) fills: Box<[u16; BITS + 1]>,
    /// Checksum of the block hashes; 0 if the segment has no block hashes.
    pub(in crate::eth::index) hashes_crc: u32,
}

impl SectionRecord {
    pub(in crate::eth::index) fn to_bytes(&self) -> Box<[u8; RECORD]> {
        let mut bytes: Box<[u8; RECORD]> =
            vec![0; RECORD].try_into().expect("as long as it was made");
        bytes[..32].copy_from_slice(self.parent_hash.as_slice());
        bytes[32..64].copy_from_slice(self.first_hash.as_slice());
        bytes[64..96].copy_from_slice(self.last_hash.as_slice());
        bytes[96..104].copy_from_slice(&self.first_time.to_le_bytes());
        bytes[104..112].copy_from_slice(&self.last_time.to_le_bytes());
        let gas = self.gas.iter().chain(&self.most_gas);
        for (to, gas) in bytes[112..384].as_chunks_mut::<8>().0.iter_mut().zip(gas) {
            *to = gas.to_le_bytes();
        }
        let fills = bytes[384..4482].as_chunks_mut::<2>().0;
        for (to, filters) in fills.iter_mut().zip(self.fills.iter()) {
            *to = filters.to_le_bytes();
        }
        bytes[4488..4492].copy_from_slice(&self.hashes_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..4492]);
        bytes[4492..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the record of a section, which starts at `offset` of the file `name`.
    ///
    /// # Errors
    /// Returns an error if the bytes are damaged, or if the fills do not sum to 8,192 filters.
    pub(in crate::eth::index) fn from_bytes(
        name: &str,
        offset: u64,
        section: u32,
        bytes: &[u8; RECORD],
    ) -> Result<Self, IndexError> {
        let part = Part::Section { section };
        let stored = u32::from_le_bytes(field(&mut &bytes[4492..]));
        check(name, offset, part, stored, crc32c::crc32c(&bytes[..4492]))?;
        let mut rest = &bytes[..];
        let mut hash = || B256::from(field::<32>(&mut rest));
        let (parent_hash, first_hash, last_hash) = (hash(), hash(), hash());
        let mut number = || u64::from_le_bytes(field(&mut rest));
        let (first_time, last_time) = (number(), number());
        let gas = core::array::from_fn(|_| number());
        let most_gas = core::array::from_fn(|_| number());
        let mut fills = Box::new([0; BITS + 1]);
        fills.fill_with(|| u16::from_le_bytes(field(&mut rest)));
        let hashes_crc = u32::from_le_bytes(field(&mut &bytes[4488..]));
        let filters: usize = fills.iter().map(|&filters| usize::from(filters)).sum();
        if filters != SECTION {
            let what = format!("it counts {filters} filters, but a section has {SECTION}");
            return Err(contradiction(name, offset, part, what));
        }
        Ok(Self {
            parent_hash,
            first_hash,
            last_hash,
            first_time,
            last_time,
            gas,
            most_gas,
            fills,
            hashes_crc,
        })
    }
}

/// Encoding of a row's data for one section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::eth::index) enum Coding {
    /// No bit is set: there are no data.
    Zeros,
    /// All bits are set: there are no data.
    Ones,
    /// The positions of the set bits; the value is their number.
    List(u16),
    /// The 1,024 bytes of the row.
    Raw,
}

impl Coding {
    /// Returns the encoding of a row with `ones` bits set in a section.
    pub(in crate::eth::index) fn of(ones: u16) -> Self {
        match ones {
            0 => Self::Zeros,
            1..=LIST_MAX => Self::List(ones),
            ones if usize::from(ones) == SECTION => Self::Ones,
            _ => Self::Raw,
        }
    }

    /// Returns the length of the data in bytes.
    pub(in crate::eth::index) fn len(self) -> usize {
        match self {
            Self::Zeros | Self::Ones => 0,
            Self::List(ones) => usize::from(ones) * 2,
            Self::Raw => ROW,
        }
    }
}

/// Directory entry of a row. In its arrays, the elements for sections that the segment lacks are
/// zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::eth::index) struct RowEntry {
    /// Offset of the row's data from the start of all rows' data, in [`UNIT`]s.
    pub(in crate::eth::index) start: u32,
    /// Number of bits set in each section.
    pub(in crate::eth::index) ones: [u16; MAX_SECTIONS as usize],
    /// Checksum of the data for each section; 0 for a section without data.
    pub(in crate::eth::index) crcs: [u32; MAX_SECTIONS as usize],
}

impl RowEntry {
    /// Entry of a row without set bits.
    pub(in crate::eth::index) const EMPTY: Self =
        Self { start: 0, ones: [0; MAX_SECTIONS as usize], crcs: [0; MAX_SECTIONS as usize] };

    /// Appends the encoded entry of row `row` to `to`.
    pub(in crate::eth::index) fn write(&self, row: u16, sections: u32, to: &mut Vec<u8>) {
        let before = to.len();
        to.extend(self.start.to_le_bytes());
        let sections = sections as usize;
        to.extend(self.ones[..sections].iter().flat_map(|ones| ones.to_le_bytes()));
        to.extend(self.crcs[..sections].iter().flat_map(|crc| crc.to_le_bytes()));
        let crc = crc32c::crc32c_append(crc32c::crc32c(&row.to_le_bytes()), &to[before..]);
        to.extend(crc.to_le_bytes());
    }

    /// Decodes the entry of a row from its [`entry_len`] bytes.
    ///
    /// If the segment's file has the length that its header states, the data of a returned entry
    /// lie within the file.
    ///
    /// # Errors
    /// Returns an error if the bytes are damaged, if more bits are set than a section has, or if
    /// the row's data would end after the end of all data.
    pub(in crate::eth::index) fn from_bytes(
        name: &str,
        header: &SegmentHeader,
        row: u16,
        bytes: &[u8],
    ) -> Result<Self, IndexError> {
        let part = Part::RowEntry { row };
        let offset = header.entry_at(row);
        let (checked, mut stored) =
            bytes.split_at_checked(bytes.len().wrapping_sub(4)).expect("as long as an entry");
        let computed = crc32c::crc32c_append(crc32c::crc32c(&row.to_le_bytes()), checked);
        check(name, offset, part, u32::from_le_bytes(field(&mut stored)), computed)?;
        let entry = Self::read(header.sections, bytes);
        let most = entry.ones.iter().copied().max().unwrap_or(0);
        if usize::from(most) > SECTION {
            let what = format!("{most} bits are set in a section of {SECTION}");
            return Err(contradiction(name, offset, part, what));
        }
        let units = entry.data_len().div_ceil(UNIT) as u64;
        if u64::from(entry.start) + units > u64::from(header.data_units) {
            let what = format!(
                "its {units} units of data start at unit {}, but the segment has {} units",
                entry.start, header.data_units
            );
            return Err(contradiction(name, offset, part, what));
        }
        Ok(entry)
    }

    /// Decodes, without checks, an entry that [`from_bytes`](Self::from_bytes) has accepted before.
    pub(in crate::eth::index) fn read(sections: u32, mut bytes: &[u8]) -> Self {
        let sections = sections as usize;
        let mut entry = Self { start: u32::from_le_bytes(field(&mut bytes)), ..Self::default() };
        let (ones, crcs) = bytes.split_at(sections * 2);
        for (to, ones) in entry.ones[..sections].iter_mut().zip(ones.as_chunks().0) {
            *to = u16::from_le_bytes(*ones);
        }
        for (to, crc) in entry.crcs[..sections].iter_mut().zip(crcs.as_chunks().0) {
            *to = u32::from_le_bytes(*crc);
        }
        entry
    }

    /// Returns the length of the row's data in bytes, without the padding.
    pub(in crate::eth::index) fn data_len(&self) -> usize {
        self.ones.iter().map(|&ones| Coding::of(ones).len()).sum()
    }

    /// Returns the offset of the data for a section, in bytes from the start of the row's data.
    pub(in crate::eth::index) fn place(&self, section: u32) -> usize {
        let codings = self.ones.iter().map(|&ones| Coding::of(ones));
        let before = section as usize;
        let raw_before = codings.clone().take(before).filter(|&coding| coding == Coding::Raw);
        if Coding::of(self.ones[before]) == Coding::Raw {
            return raw_before.count() * ROW;
        }
        let raw = codings.clone().filter(|&coding| coding == Coding::Raw).count();
        let lists = codings.take(before).filter(|&coding| coding != Coding::Raw);
        raw * ROW + lists.map(Coding::len).sum::<usize>()
    }
}

/// Decodes a list of bit positions, which must ascend and be below 8,192.
///
/// # Errors
/// Returns [`IndexError::Damaged`] if a position is out of order or too large.
pub(in crate::eth::index) fn check_list<'a>(
    name: &str,
    offset: u64,
    part: Part,
    data: &'a [u8],
) -> Result<&'a [[u8; 2]], IndexError> {
    let places = data.as_chunks().0;
    let mut next = 0;
    for place in places {
        let place = u16::from_le_bytes(*place);
        if place < next || usize::from(place) >= SECTION {
            let what = format!("its list has position {place} where at least {next} is expected");
            return Err(contradiction(name, offset, part, what));
        }
        next = place + 1;
    }
    Ok(places)
}

/// Returns the error for a segment whose file does not have the length that its header states.
pub(in crate::eth::index) fn wrong_length(name: &str, found: u64, expected: u64) -> IndexError {
    let damage = Damage::Length { found, expected };
    damaged(name, found.min(expected), Part::SegmentHeader, damage)
}
