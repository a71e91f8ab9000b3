//! The golden index with changed bytes and right checksums: it is opened, queried and explained
//! without a panic, and all backends give the same answer.

#![no_main]

use std::collections::BTreeMap;
use std::io;

use chainsieve::eth::index::{FileKind, Index, Storage};
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::simd::Backend;
use libfuzzer_sys::fuzz_target;

/// The files of the golden index: the manifest, a sealed segment and the tail.
const MANIFEST: &[u8] = include_bytes!("../../fixtures/ethereum/index/manifest");
const SEGMENT: &[u8] = include_bytes!("../../fixtures/ethereum/index/00000000-01.segment");
const TAIL: &[u8] = include_bytes!("../../fixtures/ethereum/index/0000000000000001.tail");

struct Files(BTreeMap<&'static str, Vec<u8>>);

impl Storage for Files {
    type File = Vec<u8>;

    fn open(&self, name: &str, _: FileKind) -> io::Result<Vec<u8>> {
        self.0.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn reseal(bytes: &mut [u8], part: std::ops::Range<usize>, seed: &[u8]) {
    let crc = crc32c::crc32c_append(crc32c::crc32c(seed), &bytes[part.start..part.end - 4]);
    bytes[part.end - 4..part.end].copy_from_slice(&crc.to_le_bytes());
}

/// Corrects the checksums of a segment of one section, those of rows included.
fn reseal_segment(bytes: &mut [u8]) {
    // The entries of the rows follow the header and the record of the section.
    const ENTRIES: usize = 64 + 4496;
    // The data of the rows follows the entries, aligned to 4,096 bytes.
    const DATA: usize = (ENTRIES + 2048 * 14).next_multiple_of(4096);
    reseal(bytes, 0..64, &[]);
    reseal(bytes, 64..ENTRIES, &[]);
    for row in 0..2048_u16 {
        let at = ENTRIES + usize::from(row) * 14;
        let start = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize;
        let ones = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        let len = match ones {
            0 | 8192 => 0,
            1..=256 => ones * 2,
            _ => 1024,
        };
        let data = start.checked_mul(64).and_then(|start| bytes.get(DATA + start..)?.get(..len));
        let crc = data.map_or(0, crc32c::crc32c);
        bytes[at + 6..at + 10].copy_from_slice(&crc.to_le_bytes());
        reseal(bytes, at..at + 14, &row.to_le_bytes());
    }
}

fuzz_target!(|data: &[u8]| {
    // Patches of five bytes: the position, the file and the new byte.
    let (mut manifest, mut segment, mut tail) =
        (MANIFEST.to_vec(), SEGMENT.to_vec(), TAIL.to_vec());
    let (asked, patches) = data.split_at(data.len().min(24));
    for patch in patches.chunks_exact(5) {
        let at = u32::from_le_bytes([patch[0], patch[1], patch[2], 0]) as usize;
        let file =
            [&mut manifest, &mut segment, &mut tail][usize::from(patch[3] % 3)].as_mut_slice();
        let length = file.len();
        file[at % length] = patch[4];
    }
    reseal_segment(&mut segment);
    reseal(&mut manifest, 0..64 + 4, &[]);
    let files =
        [("manifest", manifest), ("00000000-01.segment", segment), ("0000000000000001.tail", tail)];
    let Ok(index) = Index::open(Files(files.into())) else { return };
    let Some(blocks) = index.numbers() else { return };
    let words: Vec<u16> =
        asked.as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word) & 0x7ff).collect();
    let values: Vec<[u16; 3]> = words.as_chunks::<3>().0.to_vec();
    let (single, several) = values.split_at(values.len().min(1));
    let clauses =
        [single.to_vec(), several.to_vec()].into_iter().filter(|clause| !clause.is_empty());
    let query = CompiledQuery::new(clauses.collect());
    let mut answers =
        Backend::available().map(|backend| index.candidates_on(backend, &query, blocks.clone()));
    let first = answers.next().expect("a backend");
    for answer in answers {
        match (&first, answer) {
            (Ok(first), Ok(answer)) => assert!(first.iter().eq(answer.iter())),
            (first, answer) => assert_eq!(first.as_ref().err(), answer.err().as_ref()),
        }
    }
    drop(index.fills(blocks));
});
