//! A folder whose sealed segments are mapped into memory, as the CLI maps them, and where the rows
//! of a query are in them, read by the format's documentation alone.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use chainsieve::eth::index::{FileKind, Folder, ReadAt, Storage};
use memmap2::{Advice, Mmap};

pub(crate) struct MappedFolder(Folder);

impl MappedFolder {
    pub(crate) fn new(path: &Path) -> Self {
        Self(Folder::new(path))
    }
}

pub(crate) enum MappedFile {
    Mapped(Mmap),
    Read(File),
}

impl Storage for MappedFolder {
    type File = MappedFile;

    fn open(&self, name: &str, kind: FileKind) -> io::Result<MappedFile> {
        let file = self.0.open(name, kind)?;
        Ok(match kind {
            FileKind::Sealed => MappedFile::Mapped(map(&file)?),
            FileKind::Growing => MappedFile::Read(file),
        })
    }
}

fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: a sealed segment is never changed or cut, and the bench's folder is its own.
    #[expect(unsafe_code, reason = "what maps files can't be safe")]
    let mapped = unsafe { Mmap::map(file) }?;
    mapped.advise(Advice::Random)?; // what is needed is asked for
    Ok(mapped)
}

impl ReadAt for MappedFile {
    fn length(&self) -> io::Result<u64> {
        match self {
            Self::Mapped(mapped) => mapped[..].length(),
            Self::Read(file) => file.length(),
        }
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Mapped(mapped) => mapped[..].read_exact_at(buffer, offset),
            Self::Read(file) => file.read_exact_at(buffer, offset),
        }
    }

    fn as_slice(&self) -> Option<&[u8]> {
        match self {
            Self::Mapped(mapped) => Some(mapped),
            Self::Read(_) => None,
        }
    }

    fn will_need(&self, range: Range<u64>) {
        if let Self::Mapped(mapped) = self {
            let in_memory = |offset: u64| usize::try_from(offset).expect("in memory");
            let (from, to) = (in_memory(range.start), in_memory(range.end));
            mapped.advise_range(Advice::WillNeed, from, to - from).expect("a range of the file");
        }
    }
}

/// The sealed segments of a folder, mapped once more.
pub(crate) struct Segments(Vec<Mmap>);

impl Segments {
    pub(crate) fn map(folder: &Path) -> Self {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .expect("the folder of the index")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "segment"))
            .collect();
        names.sort();
        let open = |path: &_| map(&File::open(path).expect("a segment")).expect("a mapping");
        Self(names.iter().map(open).collect())
    }

    /// A byte of the first segment.
    pub(crate) fn byte_in_the_middle(&self) -> u8 {
        self.0[0][self.0[0].len() / 2]
    }

    /// The data of rows, segment by segment.
    pub(crate) fn rows(&self, positions: &[u16]) -> Vec<&[u8]> {
        let rows =
            self.0.iter().flat_map(|segment| positions.iter().map(|row| data(segment, *row)));
        rows.filter(|data| !data.is_empty()).collect()
    }
}

/// The data of a row in a segment.
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

/// Reads all bytes of the rows, as fast as memory gives them.
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
