//! Manifests and tails of an index: an index that opens can be queried, and finds what a scan of
//! the blooms in its tail finds. The first byte tells which magic bytes and checksums are
//! corrected.
#![no_main]

use std::collections::BTreeMap;
use std::io;

use chainsieve::eth::index::{FileKind, Index, Storage};
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::eth::scan;
use libfuzzer_sys::fuzz_target;

/// Lengths of a manifest, of the header of a tail, and of a slot of a tail, in bytes.
const MANIFEST: usize = 68;
const HEADER: usize = 96;
const SLOT: usize = 328;

/// A manifest and the tail that it names.
struct Files {
    manifest: Vec<u8>,
    tail: Vec<u8>,
}

impl Storage for Files {
    type File = Vec<u8>;

    fn open(&self, name: &str, _: FileKind) -> io::Result<Vec<u8>> {
        match name {
            "manifest" => Ok(self.manifest.clone()),
            name if name.ends_with(".tail") => Ok(self.tail.clone()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Corrects the start of a file, and clears unknown flags.
fn front(bytes: &mut [u8], letter: u8) {
    bytes[..8].copy_from_slice(b"\x89EB\0\r\n\x1a\n");
    bytes[3] = letter;
    bytes[8..10].copy_from_slice(&[1, 0]);
    bytes[10] &= 1;
    bytes[11] = 0;
}

/// Makes the rows consecutive, lets each roll-back lead to one of them, and corrects the checksums.
fn slots(tail: &mut [u8]) {
    let generation: [u8; 8] = tail[16..24].try_into().expect("eight bytes");
    let first = u64::from_le_bytes(tail[24..32].try_into().expect("eight bytes"));
    let mut hashes: Vec<[u8; 32]> = Vec::new();
    for (number, slot) in (0_u32..).zip(tail[HEADER..].chunks_exact_mut(SLOT)) {
        slot[1..4].fill(0);
        slot[4..8].copy_from_slice(&number.to_le_bytes());
        let durable = u32::from_le_bytes(slot[8..12].try_into().expect("four bytes"));
        slot[8..12].copy_from_slice(&(durable % (number + 1)).to_le_bytes());
        match slot[0] {
            1 => hashes.push(slot[40..72].try_into().expect("32 bytes")),
            2 if !hashes.is_empty() => {
                hashes.truncate(usize::from(slot[16]) % hashes.len() + 1);
                slot[40..72].copy_from_slice(&hashes[hashes.len() - 1]);
            }
            _ => {}
        }
        if slot[0] < 3 && !hashes.is_empty() {
            let block = first.wrapping_add(hashes.len() as u64 - 1);
            slot[16..24].copy_from_slice(&block.to_le_bytes());
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&generation), &slot[..12]);
        let crc = crc32c::crc32c_append(crc, &slot[16..]);
        slot[12..16].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Returns the blooms of the blocks that a tail contains at its end, if the tail can be opened.
fn filters(tail: &[u8]) -> Vec<[u8; 256]> {
    let number = |slot: &[u8]| u64::from_le_bytes(slot[16..24].try_into().expect("eight bytes"));
    let mut filters = BTreeMap::new();
    for slot in tail[HEADER..].chunks_exact(SLOT) {
        match slot[0] {
            1 => drop(filters.insert(number(slot), slot[72..].try_into().expect("256 bytes"))),
            2 => filters.retain(|&block, _| block <= number(slot)),
            _ => {}
        }
    }
    filters.into_values().collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else { return };
    let (mut manifest, mut tail) = (data.to_vec(), Vec::new());
    if manifest.len() > MANIFEST {
        tail = manifest.split_off(MANIFEST);
    }
    let all_right = first & 7 == 7 && manifest.len() == MANIFEST && tail.len() >= HEADER;
    if first & 1 != 0 && manifest.len() == MANIFEST {
        front(&mut manifest, b'M');
        manifest[12..16].fill(0);
        manifest[32..64].fill(0);
        manifest[32] = b'x';
        let crc = crc32c::crc32c(&manifest[..64]);
        manifest[64..].copy_from_slice(&crc.to_le_bytes());
    }
    if first & 2 != 0 && manifest.len() == MANIFEST && tail.len() >= HEADER {
        front(&mut tail, b'T');
        tail[10..12].copy_from_slice(&manifest[10..12]);
        tail[16..24].copy_from_slice(&manifest[24..32]);
        tail[24..32].copy_from_slice(&manifest[16..24]);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&tail[..92]), &manifest[32..64]);
        tail[92..96].copy_from_slice(&crc.to_le_bytes());
    }
    if first & 4 != 0 && tail.len() >= HEADER {
        slots(&mut tail);
    }
    let Ok(index) = Index::open(Files { manifest, tail: tail.clone() }) else { return };
    let Some(blocks) = index.numbers() else { return };
    let query = CompiledQuery::new(vec![vec![[0, 1, 2]]]);
    let found = index.candidates(&query, blocks.clone()).expect("answered");
    assert!(found.iter().all(|block| blocks.contains(&block)));
    // A slot of an unknown kind ends the tail. If the checksums are right, nothing else ends it.
    if all_right && tail[HEADER..].chunks_exact(SLOT).all(|slot| (1..=3).contains(&slot[0])) {
        let expected = scan::candidates(&query, &filters(&tail));
        let expected = expected.iter().map(|&at| blocks.start() + at as u64);
        assert!(found.iter().eq(expected));
    }
});
