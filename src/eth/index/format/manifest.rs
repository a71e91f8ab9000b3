//! The manifest: states which files of the folder belong to the index.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic: `89 45 42 4d 0d 0a 1a 0a`, "EBM" for Ethereum bloom manifest; as in PNG, these bytes reveal damage by text-mode transfers |
//! | 8 | 2 | version: 1 |
//! | 10 | 2 | flags; bit 0: segments have a column of block hashes |
//! | 12 | 4 | number of sealed sections |
//! | 16 | 8 | number of the index's first block |
//! | 24 | 8 | generation: increases by one with each manifest; as 16 hex digits, the name of the tail |
//! | 32 | 32 | chain label, UTF-8, padded with zeros |
//! | 64 | 4 | checksum of all preceding bytes |

use alloc::format;
use alloc::string::String;

use super::{
    LABEL, SECTION, Settings, check, contradiction, damaged, field, open_front, read_label,
};
use crate::eth::index::error::{Damage, IndexError, Part};

/// File name of the manifest.
pub(in crate::eth::index) const NAME: &str = "manifest";
/// File name of a manifest that is still being written.
pub(in crate::eth::index) const NEW: &str = "manifest.new";
/// Length of the manifest in bytes.
pub(in crate::eth::index) const LEN: usize = 68;
const MAGIC: [u8; 8] = *b"\x89EBM\r\n\x1a\n";

/// Decoded manifest: states which files of the folder belong to the index.
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

    pub(in crate::eth::index) fn to_bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&super::VERSION.to_le_bytes());
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
            let (found, expected) = (bytes.len() as u64, LEN as u64);
            damaged(NAME, 0, Part::Manifest, Damage::Length { found, expected })
        };
        let mut rest = bytes;
        if bytes.len() < 12 {
            return Err(length(bytes));
        }
        let flags = open_front(NAME, MAGIC, &mut rest)?;
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| length(bytes))?;
        let computed = crc32c::crc32c(&bytes[..64]);
        let stored = u32::from_le_bytes(field(&mut &bytes[64..]));
        check(NAME, 0, Part::Manifest, stored, computed)?;
        let sections = u32::from_le_bytes(field(&mut rest));
        let first = u64::from_le_bytes(field(&mut rest));
        let generation = u64::from_le_bytes(field(&mut rest));
        let label: [u8; LABEL] = field(&mut rest);
        let wrong = |what: &str| contradiction(NAME, 0, Part::Manifest, what);
        let label = read_label(&label).ok_or_else(|| wrong("its chain label is invalid"))?;
        // The tail continues after the sealed sections, so the block numbers of the next two
        // sections must fit in 64 bits, too.
        let end = (u64::from(sections) + 2).checked_mul(SECTION as u64);
        if end.and_then(|end| first.checked_add(end)).is_none() {
            return Err(wrong("its block numbers don't fit 64 bits"));
        }
        let settings = Settings { label, block_hashes: flags & super::BLOCK_HASHES != 0 };
        Ok(Self { settings, sections, first, generation })
    }
}
