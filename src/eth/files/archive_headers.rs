//! Reader of the headers of archives, which are checked against the index of each archive.

use std::io::Read;

use super::archive::{Archive, EntryKind, Head};
use super::error::{FileError, FileProblem, IndexProblem, Position};
use super::format::MAX_HEADER;
use super::input::Input;
use crate::eth::header::HeaderView;

/// Maximum number of blocks in an archive, as the file format defines it.
pub(super) const MAX_BLOCKS: usize = 8192;

/// Maximum number of entries of a block in an ere archive, as the file format defines it.
const MAX_COMPONENTS: u64 = 5;

/// Reads the headers of one archive, or of several concatenated archives.
pub(super) struct ArchiveHeaders<R> {
    archive: Archive<R>,
    /// Offsets of the headers of the current archive.
    positions: Vec<u64>,
    /// Block number of the current archive's first header.
    first: u64,
    /// `true` if an index was read after the last header.
    indexed: bool,
}

impl<R: Read> ArchiveHeaders<R> {
    pub(super) fn new(input: Input<R>) -> Self {
        Self { archive: Archive::new(input), positions: Vec::new(), first: 0, indexed: true }
    }

    pub(super) fn input(&self) -> &Input<R> {
        self.archive.input()
    }

    pub(super) fn next(&mut self, rlp: &mut Vec<u8>) -> Result<Option<Position>, FileError> {
        while let Some(head) = self.archive.advance()? {
            match head.kind {
                EntryKind::Header => {
                    self.header(head, rlp)?;
                    return Ok(Some(Position::Byte(head.offset)));
                }
                EntryKind::Index | EntryKind::DynamicIndex => self.index(head)?,
                EntryKind::Consensus => return Err(head.wrong(FileProblem::ConsensusArchive)),
                _ => {}
            }
        }
        // The index is the last entry of an archive: without it the archive is truncated.
        if !self.indexed {
            let problem = FileProblem::NoIndex { headers: self.positions.len() };
            return Err(FileError::new(self.input().position(), problem));
        }
        Ok(None)
    }

    fn header(&mut self, head: Head, rlp: &mut Vec<u8>) -> Result<(), FileError> {
        if self.positions.len() == MAX_BLOCKS {
            return Err(head.wrong(FileProblem::TooManyHeaders { limit: MAX_BLOCKS }));
        }
        let before = rlp.len();
        self.archive.decompress(head, MAX_HEADER, rlp)?;
        let header = HeaderView::decode(&rlp[before..]);
        let header = header.map_err(|error| head.wrong(FileProblem::Header(error)))?;
        if self.positions.is_empty() {
            self.first = header.number();
        }
        self.positions.push(head.offset);
        self.indexed = false;
        Ok(())
    }

    /// Compares the index with the headers of its archive, and ends the archive.
    fn index(&mut self, head: Head) -> Result<(), FileError> {
        // An index has at most five offsets for each block, and three further numbers.
        let bytes = self.archive.read(head, (MAX_COMPONENTS * MAX_BLOCKS as u64 + 3) * 8)?;
        self.check_index(head, &bytes)
            .map_err(|problem| head.wrong(FileProblem::Index(problem)))?;
        self.positions.clear();
        self.indexed = true;
        Ok(())
    }

    fn check_index(&self, head: Head, bytes: &[u8]) -> Result<(), IndexProblem> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<_> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (components, numbers) = match (head.kind, words.as_slice()) {
            (EntryKind::Index, [first, offsets @ .., count]) => (1, Some((first, offsets, count))),
            (_, [first, offsets @ .., components, count]) => {
                (*components, Some((first, offsets, count)))
            }
            _ => (0, None),
        };
        let Some((&first, offsets, &count)) = numbers.filter(|_| rest.is_empty()) else {
            return Err(IndexProblem::Length { length: bytes.len() });
        };
        let read = self.positions.len() as u64;
        if count != read {
            return Err(IndexProblem::Count { counted: count, read });
        }
        if first != self.first && read > 0 {
            return Err(IndexProblem::First { indexed: first, read: self.first });
        }
        let step = usize::try_from(components).ok().filter(|_| components <= MAX_COMPONENTS);
        let whole = components.checked_mul(count) == Some(offsets.len() as u64);
        let Some(step @ 1..) = step.filter(|_| whole) else {
            let offsets = offsets.len();
            return Err(IndexProblem::Offsets { offsets, blocks: count, components });
        };
        let headers = offsets.iter().step_by(step);
        for (header, (&position, &offset)) in self.positions.iter().zip(headers).enumerate() {
            // Offsets are relative to the start of the index. The offsets are negative, stored in
            // two's complement.
            let indexed = head.offset.wrapping_add(offset);
            if indexed != position {
                return Err(IndexProblem::Offset { header, indexed, read: position });
            }
        }
        Ok(())
    }
}
