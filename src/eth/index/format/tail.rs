//! The tail: headers after the sealed sections, in the order in which they were added.
//!
//! The file starts with 96 bytes:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic: `89 45 42 54 0d 0a 1a 0a`, "EBT" for Ethereum bloom tail |
//! | 8 | 2 | version: 1 |
//! | 10 | 2 | flags, as in the manifest |
//! | 12 | 4 | number of slots that were durable before the manifest named this tail |
//! | 16 | 8 | generation, as in the manifest |
//! | 24 | 8 | number of the block of the first row |
//! | 32 | 32 | hash of the block before the first row |
//! | 64 | 28 | zeros |
//! | 92 | 4 | checksum of all preceding bytes, followed by the padded chain label |
//!
//! Slots of 328 bytes follow:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | kind: 1 row, 2 roll-back, 3 synced |
//! | 4 | 4 | number of the slot, from 0 |
//! | 8 | 4 | number of slots that were durable when this slot was written |
//! | 12 | 4 | checksum of the generation as 8 bytes, the first 12 bytes of the slot, and its last 312 bytes |
//! | 16 | 8 | number of a block |
//! | 24 | 8 | row: timestamp, in seconds since 1970 |
//! | 32 | 8 | row: gas used |
//! | 40 | 32 | hash of the block |
//! | 72 | 256 | row: the filter |
//!
//! A **row** is the child of the current last block. A **roll-back** removes all rows after the
//! block that it names, which must be one of the rows or the block before the first row. A
//! **synced** slot names no block: a writer appends this slot after a sync, to record that the
//! slots before it are durable.
//!
//! The tail ends before the first slot that is truncated or has a wrong checksum: such a slot was
//! left by an interrupted writer, and readers ignore it. But if a later slot records that the
//! invalid slot was durable, the tail is damaged.

use alloc::format;

use alloy_primitives::B256;

use super::{Settings, check, contradiction, field, open_front};
use crate::eth::bloom::BYTES;
use crate::eth::index::{IndexError, Part};

const MAGIC: [u8; 8] = *b"\x89EBT\r\n\x1a\n";
/// Length of the tail's header in bytes.
pub(in crate::eth::index) const HEADER: usize = 96;
/// Length of a slot in bytes.
pub(in crate::eth::index) const SLOT: usize = 328;

/// Decoded header of a tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::eth::index) struct TailHeader {
    pub(in crate::eth::index) generation: u64,
    /// Number of slots, from the start, that are durable.
    pub(in crate::eth::index) durable: u32,
    /// Number of the first row's block.
    pub(in crate::eth::index) first: u64,
    /// Hash of the block before the first row.
    pub(in crate::eth::index) parent_hash: B256,
}

impl TailHeader {
    pub(in crate::eth::index) fn to_bytes(&self, settings: &Settings) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&super::VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&settings.flags().to_le_bytes());
        bytes[12..16].copy_from_slice(&self.durable.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..64].copy_from_slice(self.parent_hash.as_slice());
        let crc = Self::checksum(settings, &bytes);
        bytes[92..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn checksum(settings: &Settings, bytes: &[u8; HEADER]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&bytes[..92]), &settings.label_bytes())
    }

    /// Decodes the header of the tail `name` of an index with these settings.
    ///
    /// # Errors
    /// Returns an error if the bytes belong to another format, another version or another index, or
    /// if they are damaged.
    pub(in crate::eth::index) fn from_bytes(
        name: &str,
        settings: &Settings,
        bytes: &[u8; HEADER],
    ) -> Result<Self, IndexError> {
        let mut rest = &bytes[..];
        let flags = open_front(name, MAGIC, &mut rest)?;
        let stored = u32::from_le_bytes(field(&mut &bytes[92..]));
        check(name, 0, Part::TailHeader, stored, Self::checksum(settings, bytes))?;
        if flags != settings.flags() {
            let what = format!(
                "its flags are {flags:#06x}, but the manifest has {:#06x}",
                settings.flags()
            );
            return Err(contradiction(name, 0, Part::TailHeader, what));
        }
        Ok(Self {
            durable: u32::from_le_bytes(field(&mut rest)),
            generation: u64::from_le_bytes(field(&mut rest)),
            first: u64::from_le_bytes(field(&mut rest)),
            parent_hash: B256::from(field::<32>(&mut rest)),
        })
    }
}

/// A header stored in the tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::eth::index) struct TailRow {
    pub(in crate::eth::index) number: u64,
    pub(in crate::eth::index) hash: B256,
    /// Timestamp, in seconds since 1970.
    pub(in crate::eth::index) time: u64,
    pub(in crate::eth::index) gas_used: u64,
    pub(in crate::eth::index) bloom: [u8; BYTES],
}

/// Content of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are rows")]
pub(in crate::eth::index) enum Slot {
    /// A block: the child of the current last block.
    Row(TailRow),
    /// A roll-back: removes all rows after block `number`.
    RollBack { number: u64, hash: B256 },
    /// A marker: the slots before it are durable.
    Synced,
}

/// Position of a slot in a tail. The checksum of the slot covers the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::eth::index) struct SlotPlace {
    pub(in crate::eth::index) generation: u64,
    /// Number of the slot, from 0.
    pub(in crate::eth::index) slot: u32,
    /// Number of slots that were durable when this slot was written.
    pub(in crate::eth::index) durable: u32,
}

impl SlotPlace {
    /// Returns the offset of a slot in the file.
    pub(in crate::eth::index) fn offset(slot: u32) -> u64 {
        HEADER as u64 + u64::from(slot) * SLOT as u64
    }
}

fn checksum(generation: u64, bytes: &[u8; SLOT]) -> u32 {
    let crc = crc32c::crc32c(&generation.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &bytes[..12]), &bytes[16..])
}

impl Slot {
    pub(in crate::eth::index) fn to_bytes(&self, place: SlotPlace) -> [u8; SLOT] {
        let mut bytes = [0; SLOT];
        let kind: u32 = match self {
            Self::Row(_) => 1,
            Self::RollBack { .. } => 2,
            Self::Synced => 3,
        };
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&place.slot.to_le_bytes());
        bytes[8..12].copy_from_slice(&place.durable.to_le_bytes());
        match self {
            Self::Row(row) => {
                bytes[16..24].copy_from_slice(&row.number.to_le_bytes());
                bytes[24..32].copy_from_slice(&row.time.to_le_bytes());
                bytes[32..40].copy_from_slice(&row.gas_used.to_le_bytes());
                bytes[40..72].copy_from_slice(row.hash.as_slice());
                bytes[72..].copy_from_slice(&row.bloom);
            }
            Self::RollBack { number, hash } => {
                bytes[16..24].copy_from_slice(&number.to_le_bytes());
                bytes[40..72].copy_from_slice(hash.as_slice());
            }
            Self::Synced => {}
        }
        let crc = checksum(place.generation, &bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a slot and the number of slots that were durable when it was written.
    ///
    /// Returns `None` if the bytes are not a complete slot with this generation and number.
    pub(in crate::eth::index) fn from_bytes(
        generation: u64,
        slot: u32,
        bytes: &[u8; SLOT],
    ) -> Option<(Self, u32)> {
        let mut rest = &bytes[..];
        let mut word = || u32::from_le_bytes(field(&mut rest));
        let (kind, number, durable, stored) = (word(), word(), word(), word());
        if stored != checksum(generation, bytes) || number != slot || durable > slot {
            return None;
        }
        let mut number = || u64::from_le_bytes(field(&mut rest));
        let (number, time, gas_used) = (number(), number(), number());
        let hash = B256::from(field::<32>(&mut rest));
        let slot = match kind {
            1 => Self::Row(TailRow { number, hash, time, gas_used, bloom: field(&mut rest) }),
            2 => Self::RollBack { number, hash },
            3 => Self::Synced,
            _ => return None,
        };
        Some((slot, durable))
    }
}
