//! Reader of the evidence in an archive which shows that the archive's headers are part of the
//! chain.

use std::io::Read;

use alloy_primitives::{B256, Bytes, U256};

use super::archive::MAX_BLOCKS;
use super::archive::{Archive, EntryHead, EntryKind};
use super::input::Input;
use super::input::MAX_HEADER;
use super::{FileError, FileProblem};
use crate::eth::anchor::Grade;
use crate::eth::anchor::header_proof::{EPOCH_BLOCKS, HeaderProof, History, epoch_root};
use crate::eth::header::{BlockRef, HeaderView};

/// Maximum length of the record of a proof in bytes: the longest proof has 904.
const MAX_PROOF: u64 = 1024;

/// Reads archives, and checks that their headers are part of the chain that a [`History`] knows.
///
/// - The headers of an archive must be linked by their parent hashes.
/// - An accumulator must be the root of the archive's blocks from before the Merge, and of their
///   total difficulties. If the history knows the root of the epoch of the archive, the accumulator
///   must also be the known root of this epoch. All headers of the archive are then shown to be
///   part of the chain.
/// - Every proof of a header must be valid. Because the headers are linked, a proof of the last
///   header shows that all headers are part of the chain.
///
/// Bodies and receipts are skipped: compare them with the roots in the headers. The index is not
/// compared with the headers; [`HeaderReader`](super::HeaderReader) compares it.
#[derive(Debug)]
pub struct HistoryReader<R> {
    archive: Archive<R>,
    history: History,
}

/// An archive whose headers do not contradict the [`History`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the headers may be linked and yet not be part of the chain"]
#[non_exhaustive]
pub struct ArchiveHistory {
    /// Number of the first block.
    pub first: u64,
    /// Hashes of the blocks, in order.
    pub hashes: Vec<B256>,
    /// The accumulator of the archive, if it has one. It is compared with the blocks if the archive
    /// also has their total difficulties.
    pub accumulator: Option<B256>,
    /// Number of valid proofs.
    pub proofs: usize,
    /// Number of proofs that need a longer list of summaries.
    pub undecided: usize,
    /// The trust that the blocks up to [`shown`](Self::shown) deserve; `None` if nothing shows that
    /// they are part of the chain.
    pub grade: Option<Grade>,
    /// Number of blocks, from the first, that are shown to be part of the chain.
    pub shown: usize,
}

/// The parts of an archive that were read so far.
#[derive(Debug, Default)]
struct Parts {
    headers: Vec<(BlockRef, HeaderTime)>,
    difficulties: Vec<U256>,
    proofs: Vec<(EntryHead, HeaderProof)>,
    accumulator: Option<(EntryHead, B256)>,
    last: Option<EntryHead>,
}

/// The data of a header that are kept.
#[derive(Debug, Clone, Copy)]
struct HeaderTime {
    timestamp: u64,
    /// `true` if the block has a difficulty, as all blocks before the Merge have.
    mined: bool,
}

impl<R: Read> HistoryReader<R> {
    /// Creates a reader of one archive or of several concatenated archives.
    pub fn new(input: Input<R>, history: History) -> Self {
        Self { archive: Archive::new(input), history }
    }

    /// Reads the next archive and checks it, or returns `None` after the last archive.
    ///
    /// # Errors
    /// Returns an error if the archive is malformed, or if its headers are not part of the chain:
    /// they are not linked, the accumulator is that of other blocks, or a proof is invalid.
    ///
    /// # Cost
    /// Keeps 90 bytes for each header of the archive, and the archive's proofs.
    pub fn next_archive(&mut self) -> Result<Option<ArchiveHistory>, FileError> {
        let mut parts = Parts::default();
        while let Some(head) = self.archive.advance()? {
            match head.kind {
                EntryKind::Header => self.header(head, &mut parts)?,
                EntryKind::TotalDifficulty => {
                    let bytes = self.word(head)?;
                    parts.counted(head, parts.difficulties.len())?;
                    parts.difficulties.push(U256::from_le_bytes(bytes));
                }
                EntryKind::Proof => {
                    let number = parts.counted(head, parts.proofs.len())?;
                    parts.proofs.push((head, self.proof(head, number)?));
                }
                EntryKind::Accumulator => {
                    if parts.accumulator.is_some() {
                        return Err(head.wrong(FileProblem::SecondAccumulator));
                    }
                    parts.accumulator = Some((head, self.word(head)?.into()));
                }
                // The index is the last entry of an archive.
                EntryKind::Index | EntryKind::DynamicIndex => {
                    return parts.check(head, &self.history).map(Some);
                }
                EntryKind::Consensus => return Err(head.wrong(FileProblem::ConsensusArchive)),
                _ => {}
            }
        }
        match parts.last {
            None => Ok(None),
            Some(head) => Err(head.wrong(FileProblem::NoIndex { headers: parts.headers.len() })),
        }
    }

    /// Reads until the header of a block and its proof are found; `None` if no archive from the
    /// current position on has both.
    ///
    /// The header and the proof are not verified: use [`HeaderProof::verify`]. In archives, the
    /// proofs follow the headers, in the same order.
    ///
    /// # Errors
    /// Returns an error if an archive is malformed before the proof.
    ///
    /// # Cost
    /// Decompresses all headers before this header.
    pub fn find(&mut self, number: u64) -> Result<Option<(Bytes, HeaderProof)>, FileError> {
        let mut found = None;
        let (mut headers, mut proofs) = (0_usize, 0_usize);
        while let Some(head) = self.archive.advance()? {
            match head.kind {
                EntryKind::Header => {
                    let mut rlp = Vec::new();
                    self.archive.decompress(head, MAX_HEADER, &mut rlp)?;
                    let header = HeaderView::decode(&rlp);
                    let header = header.map_err(|error| head.wrong(FileProblem::Header(error)))?;
                    if header.number() == number {
                        found = Some((headers, Bytes::from(rlp)));
                    }
                    headers += 1;
                }
                EntryKind::Proof => {
                    if let Some((_, header)) = found.take_if(|(index, _)| *index == proofs) {
                        return Ok(Some((header, self.proof(head, number)?)));
                    }
                    proofs += 1;
                }
                EntryKind::Index | EntryKind::DynamicIndex => {
                    (found, headers, proofs) = (None, 0, 0);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn proof(&mut self, head: EntryHead, number: u64) -> Result<HeaderProof, FileError> {
        let mut record = Vec::new();
        self.archive.decompress(head, MAX_PROOF, &mut record)?;
        HeaderProof::decode_record(&record)
            .map_err(|error| head.wrong(FileProblem::ProofEncoding { number, error }))
    }

    fn header(&mut self, head: EntryHead, parts: &mut Parts) -> Result<(), FileError> {
        if parts.headers.len() == MAX_BLOCKS {
            return Err(head.wrong(FileProblem::TooManyHeaders { limit: MAX_BLOCKS }));
        }
        let mut rlp = Vec::new();
        self.archive.decompress(head, MAX_HEADER, &mut rlp)?;
        let header = HeaderView::decode(&rlp);
        let header = header.map_err(|error| head.wrong(FileProblem::Header(error)))?;
        let block = BlockRef { number: header.number(), hash: header.hash() };
        if let Some((parent, _)) = parts.headers.last() {
            let next = parent.number.checked_add(1);
            if next != Some(block.number) || parent.hash != header.parent_hash() {
                return Err(head.wrong(FileProblem::NotLinked { number: block.number }));
            }
        }
        let kept =
            HeaderTime { timestamp: header.timestamp(), mined: !header.difficulty().is_zero() };
        parts.headers.push((block, kept));
        parts.last = Some(head);
        Ok(())
    }

    /// Reads an entry of 32 bytes.
    fn word(&mut self, head: EntryHead) -> Result<[u8; 32], FileError> {
        let bytes = self.archive.read(head, 32)?;
        let found = bytes.len() as u64;
        let truncated = FileProblem::Truncated { part: "entry", expected: 32, found };
        bytes.try_into().map_err(|_| head.wrong(truncated))
    }
}

impl Parts {
    /// Returns the number of the block of the entry after `before` entries of its type.
    fn counted(&self, head: EntryHead, before: usize) -> Result<u64, FileError> {
        let block = self.headers.get(before).map(|(block, _)| block.number);
        block.ok_or_else(|| head.wrong(FileProblem::NoHeaderBefore))
    }

    fn check(self, index: EntryHead, history: &History) -> Result<ArchiveHistory, FileError> {
        let headers = self.headers.len();
        let first = self.headers.first().map_or(0, |(block, _)| block.number);
        let all = |found: usize, kind: EntryKind| {
            let problem = FileProblem::EntryCount { kind: kind.name(), found, headers };
            if found == 0 || found == headers { Ok(()) } else { Err(index.wrong(problem)) }
        };
        all(self.difficulties.len(), EntryKind::TotalDifficulty)?;
        all(self.proofs.len(), EntryKind::Proof)?;
        let mut result = ArchiveHistory {
            first,
            hashes: self.headers.iter().map(|(block, _)| block.hash).collect(),
            accumulator: self.accumulator.map(|(_, root)| root),
            proofs: 0,
            undecided: 0,
            grade: None,
            shown: 0,
        };
        // Without the total difficulties, which an ere archive may leave out, an accumulator cannot
        // be computed again.
        let accumulator = self.accumulator.filter(|_| !self.difficulties.is_empty());
        if let Some((head, stated)) = accumulator {
            let all = self.headers.iter().zip(&self.difficulties);
            let mined = all.filter(|((_, kept), _)| kept.mined);
            let blocks = mined.clone().count() as u64;
            let mined = mined.map(|((block, _), &difficulty)| (block.hash, difficulty));
            // The limit of headers is that of an epoch.
            let computed = epoch_root(mined).expect("at most 8,192 blocks");
            if computed != stated {
                return Err(head.wrong(FileProblem::Accumulator { stated, blocks, computed }));
            }
            let epoch = first / EPOCH_BLOCKS;
            if let Some(known) = history.epoch_root(epoch) {
                if computed != known {
                    return Err(head.wrong(FileProblem::OtherEpoch { epoch, known, computed }));
                }
                // Mined blocks precede all others, because headers are linked and the epoch's
                // blocks are known.
                result.shown = usize::try_from(blocks).unwrap_or(headers);
                result.grade = Some(Grade::ReleaseCheckpoint);
            }
        }
        for (at, ((head, proof), (block, kept))) in
            self.proofs.iter().zip(&self.headers).enumerate()
        {
            let number = block.number;
            match proof.verify_block(*block, kept.timestamp, history) {
                Ok(proven) => {
                    result.proofs += 1;
                    // The headers before a proven one are its ancestors.
                    if at >= result.shown {
                        let grade = result.grade.unwrap_or(proven);
                        result.grade = Some(grade.min(proven));
                        result.shown = at + 1;
                    }
                }
                Err(error) if error.is_undecidable() => result.undecided += 1,
                Err(error) => {
                    return Err(head.wrong(FileProblem::HeaderProof { number, error }));
                }
            }
        }
        Ok(result)
    }
}
