//! The files of an index, byte by byte.
//!
//! An index is a folder. All integers are little-endian, hashes are in the order of the wire, and
//! every checksum is CRC-32C (Castagnoli, RFC 3720 B.4). What has no meaning is zero.
//!
//! ```text
//! manifest               how far the sealed part reaches, and which tail goes on from there
//! 00000000-32.segment    sections 0 to 31, sealed: bit rows of 262,144 headers
//! 00000032-32.segment    sections 32 to 63
//! 00000064-04.segment    sections 64 to 67
//! 00000068-01.segment    section 68
//! 0000000000000045.tail  the headers behind, one by one, in the order in which they came
//! lock                   held by the writer; without content
//! ```
//!
//! A **section** is 8,192 consecutive headers, counted from the index's first block (which for an
//! index from block 0 are the epochs of era1 and ere archives). A **row** is one bit of the filters
//! of many headers: row `p` holds the bit at position `p` of the Yellow Paper's 4.4.3, 0 to 2047.
//! In its 1,024 bytes for a section, header `i` is bit `i % 8` of byte `i / 8`, the lowest bit
//! being bit 0.
//!
//! A **segment** holds 1, 2, 4, 8, 16 or 32 sections and starts at a multiple of their number. How
//! many sections are sealed thus says which segments there are ([`segments`]): 69 are 32 + 32 +
//! 4 + 1. A segment is written once and never changed; when one more section is sealed, segments
//! of one size become one of the next. At 32 sections a row is 32 KiB.
//!
//! The **tail** is only appended to. A reorganisation is an appended record, too.
//!
//! The manifest is replaced as a whole by renaming, and is what counts: other files of these
//! names are left-overs of an interrupted writer or await removal.
//!
//! Checksums find accidents, not liars: an index is a cache of headers that its builder verified,
//! and proves nothing to anyone else.

#[cfg(test)]
mod bytes_tests;
pub(super) mod manifest;
pub(super) mod segment;
pub(super) mod tail;

use alloc::format;
use alloc::string::String;

use super::error::{Damage, IndexError, Part};

/// The version that is written, and the highest that is read.
pub(super) const VERSION: u16 = 1;
/// Headers of a section.
pub(super) const SECTION: usize = 8192;
/// Sections of the largest segment.
pub(super) const MAX_SECTIONS: u32 = 32;
/// Bytes of a chain label, with the zeros behind it.
pub(super) const LABEL: usize = 32;
/// Flag: segments have a column of block hashes.
const BLOCK_HASHES: u16 = 1;

/// What every file of an index says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub(super) chain: String,
    pub(super) block_hashes: bool,
}

impl Settings {
    /// An index of a chain: a label of 1 to 32 bytes that people recognise, `mainnet`. It is
    /// compared when an index is opened for writing, and says nothing else.
    ///
    /// # Errors
    /// A label of another length or with control characters.
    pub fn new(chain: &str) -> Result<Self, IndexError> {
        let length = chain.len();
        if length == 0 || length > LABEL || chain.contains(char::is_control) {
            return Err(IndexError::Label { length, max: LABEL });
        }
        Ok(Self { chain: String::from(chain), block_hashes: false })
    }

    /// With a column of block hashes, 32 bytes for each block: a candidate then comes with its
    /// hash, and needs no headers up to the end of its section to be linked to one.
    #[must_use]
    pub fn with_block_hashes(mut self) -> Self {
        self.block_hashes = true;
        self
    }

    /// The label of the chain.
    pub fn chain(&self) -> &str {
        &self.chain
    }

    /// Whether there is a column of block hashes.
    pub fn has_block_hashes(&self) -> bool {
        self.block_hashes
    }

    fn flags(&self) -> u16 {
        if self.block_hashes { BLOCK_HASHES } else { 0 }
    }

    fn label(&self) -> [u8; LABEL] {
        let mut label = [0; LABEL];
        label[..self.chain.len()].copy_from_slice(self.chain.as_bytes());
        label
    }
}

/// A sealed segment by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SegmentId {
    /// The number of its first section, from 0.
    pub(super) section: u32,
    /// How many sections it has.
    pub(super) sections: u32,
}

impl SegmentId {
    pub(super) fn name(self) -> String {
        format!("{:08}-{:02}.segment", self.section, self.sections)
    }
}

/// The segments of so many sealed sections, in order.
pub(super) fn segments(sections: u32) -> impl Iterator<Item = SegmentId> {
    let mut section = 0;
    core::iter::from_fn(move || {
        let left = sections - section;
        // The highest power of two that is left.
        let size = left.checked_ilog2().map(|log| 1_u32 << log)?.min(MAX_SECTIONS);
        let id = SegmentId { section, sections: size };
        section += size;
        Some(id)
    })
}

/// What a file starts with: eight bytes of magic, the version, flags.
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

/// A chain label that was written.
fn read_label(label: &[u8; LABEL]) -> Option<String> {
    let end = label.iter().position(|&byte| byte == 0).unwrap_or(LABEL);
    let (label, zeros) = label.split_at(end);
    let label = core::str::from_utf8(label).ok()?;
    let valid = zeros.iter().all(|&byte| byte == 0) && Settings::new(label).is_ok();
    valid.then(|| label.into())
}

/// Takes `N` bytes off the front of a part whose length is known to suffice.
pub(super) fn field<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().expect("the fields are as long as the whole");
    *bytes = rest;
    *first
}

/// Compares a checksum that was read with that of the bytes.
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

/// A part is damaged.
pub(super) fn damaged(file: &str, offset: u64, part: Part, damage: Damage) -> IndexError {
    IndexError::Damaged { file: file.into(), offset, part, damage }
}

/// A part that its checksum lets pass and that can't be.
pub(super) fn contradiction(
    file: &str,
    offset: u64,
    part: Part,
    what: impl Into<String>,
) -> IndexError {
    damaged(file, offset, part, Damage::Contradiction(what.into()))
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
