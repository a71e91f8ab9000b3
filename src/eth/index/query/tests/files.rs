//! Index files in memory, written bit by bit as the format documents.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Range;
use std::io;
use std::sync::Mutex;

use alloy_primitives::B256;

use crate::eth::bloom::{self, BITS, BYTES};
use crate::eth::index::format::segment::{
    Coding, FILL_CLASSES, ROW, RowEntry, SectionRecord, SegmentHeader,
};
use crate::eth::index::format::tail::{Slot, SlotPlace, TailHeader, TailRow};
use crate::eth::index::format::{self, Manifest};
use crate::eth::index::format::{SECTION, Settings, segments};
use crate::eth::index::{FileKind, ReadAt, Storage};

/// Offset and length of each read.
type Reads = Arc<Mutex<Vec<(u64, usize)>>>;

/// Files in memory that record their reads. Depending on a setting, a file can also be read as a
/// slice.
#[derive(Debug, Clone, Default)]
pub(super) struct Files {
    pub(super) by_name: BTreeMap<String, Vec<u8>>,
    pub(super) in_memory: bool,
    /// Offset and length of each read of a segment.
    pub(super) reads: Reads,
    /// Ranges of bytes that were announced to be read soon.
    pub(super) hints: Arc<Mutex<Vec<Range<u64>>>>,
}

#[derive(Debug)]
pub(super) struct Bytes {
    contents: Vec<u8>,
    in_memory: bool,
    reads: Option<Reads>,
    hints: Arc<Mutex<Vec<Range<u64>>>>,
}

impl ReadAt for Bytes {
    fn length(&self) -> io::Result<u64> {
        self.contents.length()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(reads) = &self.reads {
            reads.lock().unwrap().push((offset, buffer.len()));
        }
        self.contents.read_exact_at(buffer, offset)
    }

    fn as_slice(&self) -> Option<&[u8]> {
        self.in_memory.then_some(&self.contents)
    }

    fn will_need(&self, range: Range<u64>) {
        self.hints.lock().unwrap().push(range);
    }
}

impl Storage for Files {
    type File = Bytes;

    fn open(&self, name: &str, kind: FileKind) -> io::Result<Bytes> {
        let contents = self.by_name.get(name).ok_or(io::ErrorKind::NotFound)?.clone();
        let sealed = kind == FileKind::Sealed;
        let reads = sealed.then(|| Arc::clone(&self.reads));
        Ok(Bytes {
            contents,
            in_memory: self.in_memory && sealed,
            reads,
            hints: Arc::clone(&self.hints),
        })
    }
}

pub(super) fn settings() -> Settings {
    Settings::new("test").unwrap()
}

/// Returns the rows of one section as the format documents them: for each position, the bits of the
/// headers, and the number of set bits.
fn turned(blooms: &[[u8; BYTES]]) -> Vec<([u8; ROW], u16)> {
    let mut rows = vec![([0; ROW], 0); BITS];
    for (header, bloom) in blooms.iter().enumerate() {
        for (byte, &bits) in bloom.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            for bit in (0..8).filter(|bit| bits >> bit & 1 != 0) {
                // A filter is a big-endian number (Yellow Paper, M3:2048).
                let (row, ones) = &mut rows[(255 - byte) * 8 + bit];
                row[header / 8] |= 1 << (header % 8);
                *ones += 1;
            }
        }
    }
    rows
}

fn record(blooms: &[[u8; BYTES]]) -> SectionRecord {
    let mut fills = Box::new([0; BITS + 1]);
    for bloom in blooms {
        fills[bloom::count_ones(bloom) as usize] += 1;
    }
    SectionRecord {
        parent_hash: B256::ZERO,
        first_hash: B256::ZERO,
        last_hash: B256::ZERO,
        first_time: 0,
        last_time: 0,
        gas: [0; FILL_CLASSES],
        most_gas: [0; FILL_CLASSES],
        fills,
        hashes_crc: 0,
    }
}

/// Returns the bytes of a segment file.
pub(super) fn segment(first: u64, blooms: &[[u8; BYTES]]) -> Vec<u8> {
    let (sections, rest) = blooms.as_chunks::<SECTION>();
    assert!(rest.is_empty());
    let turned: Vec<_> = sections.iter().map(|blooms| turned(blooms)).collect();
    let num_sections = u32::try_from(sections.len()).unwrap();
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for row in 0..BITS {
        let start = u32::try_from(data.len() / 64).unwrap();
        let mut entry = RowEntry { start, ones: [0; 32], crcs: [0; 32] };
        for lists in [false, true] {
            for (section, turned) in turned.iter().enumerate() {
                let (bits, ones) = &turned[row];
                entry.ones[section] = *ones;
                let places =
                    (0..8192_u16).filter(|at| bits[usize::from(at / 8)] >> (at % 8) & 1 != 0);
                let coded = match Coding::of(*ones) {
                    Coding::List(_) if lists => places.flat_map(u16::to_le_bytes).collect(),
                    Coding::Raw if !lists => bits.to_vec(),
                    _ => continue,
                };
                entry.crcs[section] = crc32c::crc32c(&coded);
                data.extend(coded);
            }
        }
        data.resize(data.len().next_multiple_of(64), 0);
        entry.write(u16::try_from(row).unwrap(), num_sections, &mut entries);
    }
    let data_units = u32::try_from(data.len() / 64).unwrap();
    let header = SegmentHeader { settings: settings(), sections: num_sections, first, data_units };
    let mut file = header.to_bytes().to_vec();
    for blooms in sections {
        file.extend(record(blooms).to_bytes().as_slice());
    }
    file.extend(entries);
    file.resize(usize::try_from(header.data_at()).unwrap(), 0);
    file.extend(data);
    assert_eq!(file.len() as u64, header.file_len());
    file
}

/// Returns the files of an index of these filters, with `sections` sealed sections.
pub(super) fn files(first: u64, blooms: &[[u8; BYTES]], sections: u32) -> Files {
    generation(7, first, blooms, sections)
}

/// Returns the files of an index with the given generation.
pub(super) fn generation(
    generation: u64,
    first: u64,
    blooms: &[[u8; BYTES]],
    sections: u32,
) -> Files {
    let mut files = BTreeMap::new();
    let manifest = Manifest { settings: settings(), sections, first, generation };
    files.insert(format::MANIFEST.to_owned(), manifest.to_bytes().to_vec());
    for id in segments(sections) {
        let start = id.section as usize * SECTION;
        let blooms = &blooms[start..start + id.sections as usize * SECTION];
        files.insert(id.name(), segment(first + start as u64, blooms));
    }
    let unsealed = manifest.unsealed();
    let header = TailHeader { generation, durable: 0, first: unsealed, parent_hash: B256::ZERO };
    let mut tail = header.to_bytes(&settings()).to_vec();
    for (slot, bloom) in (0..).zip(&blooms[sections as usize * SECTION..]) {
        let number = unsealed + u64::from(slot);
        let row = TailRow { number, hash: B256::ZERO, time: 0, gas_used: 0, bloom: *bloom };
        let place = SlotPlace { generation, slot, durable: 0 };
        tail.extend(Slot::Row(row).to_bytes(place));
    }
    files.insert(manifest.tail(), tail);
    Files { by_name: files, in_memory: true, ..Files::default() }
}
