//! The rows of a query in sealed segments, found by the format's documentation alone.

#[path = "../../crates/cli/src/eth/index/mapped.rs"]
#[expect(unused_imports, reason = "its tests run with the command")]
mod of_the_command;

use std::path::Path;

use chainsieve::eth::index::{FileKind, ReadAt as _, Storage as _};

use of_the_command::MappedFile;
pub(crate) use of_the_command::MappedFolder;

/// The sealed segments of a folder, mapped a second time.
pub(crate) struct Segments(Vec<MappedFile>);

impl Segments {
    pub(crate) fn map(folder: &Path) -> Self {
        let entries = std::fs::read_dir(folder).expect("the folder of the index");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.into_string().expect("UTF-8"));
        let mut names: Vec<_> = names.filter(|name| name.ends_with(".segment")).collect();
        names.sort();
        let folder = MappedFolder::new(folder);
        let open = |name: &String| folder.open(name, FileKind::Sealed).expect("a segment");
        Self(names.iter().map(open).collect())
    }

    /// Returns the bytes of each segment.
    fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|segment| segment.as_slice().expect("mapped"))
    }

    /// Returns a byte in the middle of the first segment.
    pub(crate) fn byte_in_the_middle(&self) -> u8 {
        let first = self.bytes().next().expect("a segment");
        first[first.len() / 2]
    }

    /// Returns the data of rows, segment by segment.
    pub(crate) fn rows(&self, positions: &[u16]) -> Vec<&[u8]> {
        let rows =
            self.bytes().flat_map(|segment| positions.iter().map(move |row| data(segment, *row)));
        rows.filter(|data| !data.is_empty()).collect()
    }
}

/// Returns the data of a row in a segment.
fn data(segment: &[u8], row: u16) -> &[u8] {
    let number =
        |at: usize| u32::from_le_bytes(segment[at..at + 4].try_into().expect("4")) as usize;
    let flags = u16::from_le_bytes([segment[10], segment[11]]);
    assert_eq!(flags, 0, "no column of block hashes");
    let sections = number(12);
    let entries = 64 + sections * 4_496;
    let entry = entries + usize::from(row) * (8 + 6 * sections);
    let ones = segment[entry + 4..][..sections * 2].as_chunks::<2>().0;
    let len = |ones: &[u8; 2]| match u16::from_le_bytes(*ones) {
        0 | 8_192 => 0,
        ones @ 1..=256 => usize::from(ones) * 2,
        _ => 1_024,
    };
    let from = (entries + 2_048 * (8 + 6 * sections)).next_multiple_of(4_096) + number(entry) * 64;
    &segment[from..from + ones.iter().map(len).sum::<usize>()]
}

/// Reads all bytes of the rows, as fast as memory allows.
pub(crate) fn stream(rows: &[&[u8]]) -> u64 {
    let mut sums = [0_u64; 16];
    for row in rows {
        let (chunks, rest) = row.as_chunks::<128>();
        for chunk in chunks {
            for (sum, word) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_le_bytes(*word));
            }
        }
        sums[0] = rest.iter().fold(sums[0], |sum, byte| sum.wrapping_add(u64::from(*byte)));
    }
    sums.iter().fold(0, |sum, part| sum.wrapping_add(*part))
}
