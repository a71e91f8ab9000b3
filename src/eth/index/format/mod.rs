//! File format of an index, byte by byte.
//!
//! An index is a folder. All integers are little-endian. Hashes are stored in wire order. Every
//! checksum is CRC-32C (Castagnoli, RFC 3720 B.4). Bits and bytes without a meaning are zero.
//!
//! ```text
//! manifest               number of sealed sections, and name of the tail
//! 00000000-32.segment    sections 0 to 31, sealed: bit rows of 262,144 headers
//! 00000032-32.segment    sections 32 to 63
//! 00000064-04.segment    sections 64 to 67
//! 00000068-01.segment    section 68
//! 0000000000000045.tail  the headers after the sealed sections, one by one, in order of arrival
//! lock                   locked by the writer; empty
//! ```
//!
//! A **section** is 8,192 consecutive headers, counted from the index's first block. If the index
//! starts at block 0, the sections have the same blocks as the epochs of era1 and ere archives. A
//! **row** is one bit of the filters of many headers: row `p` contains the bit at position `p`, 0
//! to 2047, as the Yellow Paper numbers them (M3:2048). A row has 1,024 bytes for each section.
//! Header `i` of the section is bit `i % 8` of byte `i / 8`, where bit 0 is the lowest bit.
//!
//! A **segment** contains 1, 2, 4, 8, 16 or 32 sections. The number of a segment's first section is
//! a multiple of the segment's number of sections. The number of sealed sections therefore
//! determines all segments ([`segments`]): 69 sections are stored as 32 + 32 + 4 + 1. A segment is
//! written once and never changed. When another section is sealed, segments of equal size are
//! merged into one segment of twice the size. A row of 32 sections has 32 KiB.
//!
//! The **tail** is append-only. A reorganisation is appended as a record, too.
//!
//! The manifest is replaced as a whole by renaming a new file over it, and only the manifest
//! decides which files belong to the index. Other files with names of this format were left by an
//! interrupted writer or are about to be removed.
//!
//! Checksums detect accidental damage, not forgery. An index is a cache of headers that its builder
//! verified, and proves nothing to others.

#[cfg(test)]
mod bytes_tests;
pub(super) mod segment;
pub(super) mod tail;

use alloc::format;
use alloc::string::String;

use crate::eth::index::{Damage, IndexError, Part};

/// Format version that is written, and the highest version that is read.
pub(super) const VERSION: u16 = 1;
/// Number of headers in a section.
pub(super) const SECTION: usize = 8192;
/// Number of sections in the largest segment.
pub(super) const MAX_SECTIONS: u32 = 32;
/// Length in bytes of a chain label, including its padding with zeros.
pub(super) const LABEL: usize = 32;
/// Flag: segments have a column of block hashes.
const BLOCK_HASHES: u16 = 1;

/// Settings that every file of an index stores: the chain label, and whether block hashes are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub(super) label: String,
    pub(super) block_hashes: bool,
}

impl Settings {
    /// Returns the settings of an index whose chain has this label, without a column of block hashes.
    ///
    /// The label has 1 to 32 bytes and should be recognisable by people, such as `mainnet`. The
    /// label only has one effect: when an index is opened for writing, its label must equal the
    /// requested label.
    ///
    /// # Errors
    /// Returns [`IndexError::Label`] if the label is empty, too long, or contains control
    /// characters.
    pub fn new(label: &str) -> Result<Self, IndexError> {
        let length = label.len();
        if length == 0 || length > LABEL || label.contains(char::is_control) {
            return Err(IndexError::Label { length, max: LABEL });
        }
        Ok(Self { label: String::from(label), block_hashes: false })
    }

    /// Adds a column of block hashes, which costs 32 bytes for each block.
    ///
    /// With this column, the index returns the hash of every candidate block. Without this column,
    /// a candidate must be linked by headers to the last block of its section.
    #[must_use]
    pub fn with_block_hashes(mut self) -> Self {
        self.block_hashes = true;
        self
    }

    /// Returns the label of the chain.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns `true` if the index has a column of block hashes.
    pub fn has_block_hashes(&self) -> bool {
        self.block_hashes
    }

    fn flags(&self) -> u16 {
        if self.block_hashes { BLOCK_HASHES } else { 0 }
    }

    fn label_bytes(&self) -> [u8; LABEL] {
        let mut label = [0; LABEL];
        label[..self.label.len()].copy_from_slice(self.label.as_bytes());
        label
    }
}

/// Identifies a sealed segment by its first section and its number of sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SegmentId {
    /// Number of the segment's first section, from 0.
    pub(super) section: u32,
    /// Number of sections in the segment.
    pub(super) sections: u32,
}

impl SegmentId {
    pub(super) fn name(self) -> String {
        format!("{:08}-{:02}.segment", self.section, self.sections)
    }
}

/// Returns the segments that store `sections` sealed sections, in ascending order.
pub(super) fn segments(sections: u32) -> impl Iterator<Item = SegmentId> {
    let mut section = 0;
    core::iter::from_fn(move || {
        let left = sections - section;
        // The size of the next segment is the highest power of two that is at most 32 and at most
        // the number of remaining sections. The number of a segment's first section is then always
        // a multiple of the segment's size.
        let size = left.checked_ilog2().map(|log| 1_u32 << log)?.min(MAX_SECTIONS);
        let id = SegmentId { section, sections: size };
        section += size;
        Some(id)
    })
}

/// Reads and checks the first 12 bytes of a file: eight bytes of magic, the version and the flags.
fn open_front(name: &str, magic: [u8; 8], bytes: &mut &[u8]) -> Result<u16, IndexError> {
    let found: [u8; 8] = field(bytes);
    if found != magic {
        let file = String::from(name);
        return Err(IndexError::NotOfAnIndex { file, found, expected: magic });
    }
    let found = u16::from_le_bytes(field(bytes));
    if found != VERSION {
        return Err(IndexError::Version { file: name.into(), found, known: VERSION });
    }
    let flags = u16::from_le_bytes(field(bytes));
    let unknown = flags & !BLOCK_HASHES;
    if unknown != 0 {
        return Err(IndexError::Flags { file: name.into(), flags, unknown });
    }
    Ok(flags)
}

/// Decodes a padded chain label; returns `None` if the label is invalid.
fn read_label(label: &[u8; LABEL]) -> Option<String> {
    let end = label.iter().position(|&byte| byte == 0).unwrap_or(LABEL);
    let (label, zeros) = label.split_at(end);
    let label = core::str::from_utf8(label).ok()?;
    let valid = zeros.iter().all(|&byte| byte == 0) && Settings::new(label).is_ok();
    valid.then(|| label.into())
}

/// Removes and returns the first `N` bytes of a part that is known to be long enough.
pub(super) fn field<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().expect("the part contains all its fields");
    *bytes = rest;
    *first
}

/// Returns an error if a stored checksum differs from the computed checksum.
pub(super) fn check(
    file: &str,
    offset: u64,
    part: Part,
    stored: u32,
    computed: u32,
) -> Result<(), IndexError> {
    if stored == computed {
        return Ok(());
    }
    Err(damaged(file, offset, part, Damage::Checksum { stored, computed }))
}

/// Returns the error for a damaged part.
pub(super) fn damaged(file: &str, offset: u64, part: Part, damage: Damage) -> IndexError {
    IndexError::Damaged { file: file.into(), offset, part, damage }
}

/// Returns the error for a part whose checksum is right but whose content is impossible.
pub(super) fn contradiction(
    file: &str,
    offset: u64,
    part: Part,
    what: impl Into<String>,
) -> IndexError {
    damaged(file, offset, part, Damage::Contradiction(what.into()))
}

/// File name of the manifest.
pub(in crate::eth::index) const MANIFEST: &str = "manifest";
/// File name of a manifest that is still being written.
pub(in crate::eth::index) const NEW_MANIFEST: &str = "manifest.new";
/// Length of the manifest in bytes.
pub(in crate::eth::index) const MANIFEST_LEN: usize = 68;
const MAGIC: [u8; 8] = *b"\x89EBM\r\n\x1a\n";

/// Decoded manifest: states which files of the folder belong to the index.
///
/// | offset | bytes | what |
/// |---|---|---|
/// | 0 | 8 | magic: `89 45 42 4d 0d 0a 1a 0a`, "EBM" for Ethereum bloom manifest; as in PNG, these bytes reveal damage by text-mode transfers |
/// | 8 | 2 | version: 1 |
/// | 10 | 2 | flags; bit 0: segments have a column of block hashes |
/// | 12 | 4 | number of sealed sections |
/// | 16 | 8 | number of the index's first block |
/// | 24 | 8 | generation: increases by one with each manifest; as 16 hex digits, the name of the tail |
/// | 32 | 32 | chain label, UTF-8, padded with zeros |
/// | 64 | 4 | checksum of all preceding bytes |
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::eth::index) struct Manifest {
    pub(in crate::eth::index) settings: Settings,
    /// Number of sealed sections.
    pub(in crate::eth::index) sections: u32,
    /// Number of the index's first block.
    pub(in crate::eth::index) first: u64,
    pub(in crate::eth::index) generation: u64,
}

impl Manifest {
    /// Returns the file name of the tail, which continues after the sealed sections.
    pub(in crate::eth::index) fn tail(&self) -> String {
        format!("{:016x}.tail", self.generation)
    }

    /// Returns the number of the first unsealed block.
    pub(in crate::eth::index) fn unsealed(&self) -> u64 {
        self.first + u64::from(self.sections) * SECTION as u64
    }

    pub(in crate::eth::index) fn to_bytes(&self) -> [u8; MANIFEST_LEN] {
        let mut bytes = [0; MANIFEST_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.settings.flags().to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sections.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.settings.label_bytes());
        let crc = crc32c::crc32c(&bytes[..64]);
        bytes[64..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a manifest.
    ///
    /// # Errors
    /// Returns an error if the bytes belong to another format or version, if they are damaged, or
    /// if the block numbers overflow.
    pub(in crate::eth::index) fn from_bytes(bytes: &[u8]) -> Result<Self, IndexError> {
        let length = |bytes: &[u8]| {
            let (found, expected) = (bytes.len() as u64, MANIFEST_LEN as u64);
            damaged(MANIFEST, 0, Part::Manifest, Damage::Length { found, expected })
        };
        let mut rest = bytes;
        if bytes.len() < 12 {
            return Err(length(bytes));
        }
        let flags = open_front(MANIFEST, MAGIC, &mut rest)?;
        let bytes: &[u8; MANIFEST_LEN] = bytes.try_into().map_err(|_| length(bytes))?;
        let computed = crc32c::crc32c(&bytes[..64]);
        let stored = u32::from_le_bytes(field(&mut &bytes[64..]));
        check(MANIFEST, 0, Part::Manifest, stored, computed)?;
        let sections = u32::from_le_bytes(field(&mut rest));
        let first = u64::from_le_bytes(field(&mut rest));
        let generation = u64::from_le_bytes(field(&mut rest));
        let label: [u8; LABEL] = field(&mut rest);
        let wrong = |what: &str| contradiction(MANIFEST, 0, Part::Manifest, what);
        let label = read_label(&label).ok_or_else(|| wrong("its chain label is invalid"))?;
        // The tail continues after the sealed sections, so the block numbers of the next two
        // sections must fit in 64 bits, too.
        let end = (u64::from(sections) + 2).checked_mul(SECTION as u64);
        if end.and_then(|end| first.checked_add(end)).is_none() {
            return Err(wrong("its block numbers don't fit 64 bits"));
        }
        let settings = Settings { label, block_hashes: flags & BLOCK_HASHES != 0 };
        Ok(Self { settings, sections, first, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::{SegmentId, segments};

    #[test]
    fn a_number_of_sections_says_which_segments_there_are() {
        let sizes = |sections| -> Vec<u32> { segments(sections).map(|id| id.sections).collect() };
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(69), [32, 32, 4, 1]);
        assert_eq!(sizes(63), [32, 16, 8, 4, 2, 1]);
        for sections in 0..200 {
            let mut next = 0;
            for SegmentId { section, sections } in segments(sections) {
                assert_eq!(section, next);
                assert_eq!(section % sections, 0);
                next += sections;
            }
            assert_eq!(next, sections);
        }
        assert_eq!(SegmentId { section: 64, sections: 4 }.name(), "00000064-04.segment");
    }
}
