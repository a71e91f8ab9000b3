//! A folder of an index whose sealed segments are mapped into memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use chainsieve::eth::index::{FileKind, Folder, ReadAt, Storage};
use memmap2::{Mmap, MmapOptions};

/// A folder whose sealed segments are mapped into memory. All other files, which grow or are
/// replaced, are read with system calls.
#[derive(Debug, Clone)]
pub(crate) struct MappedFolder(Folder);

impl MappedFolder {
    pub(crate) fn new(path: &Path) -> Self {
        Self(Folder::new(path))
    }
}

#[derive(Debug)]
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
            // A file that is not a sealed segment may be truncated, so it must not be mapped.
            _ => MappedFile::Read(file),
        })
    }
}

/// Maps a sealed segment. Rows are read at random positions, so nothing is read ahead unless
/// [`ReadAt::will_need`] requests it.
fn map(file: &File) -> io::Result<Mmap> {
    let options = MmapOptions::new();
    // SAFETY: a segment is complete and synced before a manifest names it; after that, no writer
    // changes or truncates the file. A deleted segment stays mapped, and a new segment of the same
    // name is a new file. The mapping is read-only.
    #[expect(unsafe_code, reason = "a mapped file must not change, see SAFETY")]
    let mapped = unsafe { options.map(file) }?;
    #[cfg(unix)]
    mapped.advise(memmap2::Advice::Random)?;
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
        #[cfg(unix)]
        if let Self::Mapped(mapped) = self
            && let (Ok(from), Ok(to)) = (usize::try_from(range.start), usize::try_from(range.end))
            && from < to
            && to <= mapped.len()
        {
            // This is only a hint: if the system rejects it, reads still work.
            drop(mapped.advise_range(memmap2::Advice::WillNeed, from, to - from));
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_read_bytes_are_the_same() {
        let folder = std::env::temp_dir().join(format!("chainsieve-mapped-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        std::fs::write(folder.join("a"), &bytes).unwrap();
        std::fs::write(folder.join("empty"), b"").unwrap();
        let storage = MappedFolder::new(&folder);
        let mapped = storage.open("a", FileKind::Sealed).unwrap();
        let read = storage.open("a", FileKind::Growing).unwrap();
        assert_eq!(mapped.as_slice(), Some(&bytes[..]));
        assert_eq!(read.as_slice(), None);
        for file in [&mapped, &read] {
            assert_eq!(file.length().unwrap(), 10_000);
            let mut some = [0; 700];
            file.read_exact_at(&mut some, 9_300).unwrap();
            assert_eq!(some[..], bytes[9_300..]);
            let behind = file.read_exact_at(&mut some, 9_301).unwrap_err();
            assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
            // Hints about any range are harmless.
            for range in [0..10_000, 5_000..5_001, 7..7, 9_000..u64::MAX, u64::MAX..u64::MAX] {
                file.will_need(range);
            }
        }
        assert_eq!(storage.open("empty", FileKind::Sealed).unwrap().length().unwrap(), 0);
        let absent = storage.open("b", FileKind::Sealed).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        // A segment stays readable after its file is deleted.
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(mapped.as_slice(), Some(&bytes[..]));
    }
}
