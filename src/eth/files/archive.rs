//! Readers of era1 and ere archives: all entries, or the entries of each block.

use core::fmt;
use std::io::{Cursor, Read};

use alloy_primitives::Bytes;
use alloy_rlp::Header as RlpHeader;
use snap::read::FrameDecoder;

use super::input::Input;
use super::input::MAX_HEADER;
use super::{FileError, FileProblem, Position};
use crate::eth::header::HeaderView;

/// Length of an entry's head in bytes: type (2), length (4), reserved bytes (2).
const HEAD: u64 = 8;

/// Type of an entry of an archive. "Compressed" means framed Snappy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// The version entry, which has no data: the start of an archive.
    Version,
    /// A header: compressed RLP.
    Header,
    /// The transactions, ommers and withdrawals of a block: compressed RLP.
    Body,
    /// The receipts of a block, encoded as in the protocol `eth/68`: compressed RLP.
    Receipts,
    /// The receipts of a block without their filters, in ere archives: compressed RLP.
    SlimReceipts,
    /// The total difficulty up to a block: 32 bytes, little-endian.
    TotalDifficulty,
    /// The root of the hashes and total difficulties of the archive's blocks, all from before the
    /// Merge: 32 bytes.
    Accumulator,
    /// A proof that a header is part of the history, in ere archives: compressed RLP.
    Proof,
    /// The index of an era1 archive: the offset of each header.
    Index,
    /// The index of an ere archive: the offsets of the entries of each block.
    DynamicIndex,
    /// A beacon block or state, in an archive of the consensus layer.
    Consensus,
    /// An entry of another type: the two bytes of the type as a little-endian number.
    Other(u16),
}

impl EntryKind {
    fn new(code: u16) -> Self {
        match code {
            0x3265 => Self::Version,
            0x0001 | 0x0002 => Self::Consensus,
            0x0003 => Self::Header,
            0x0004 => Self::Body,
            0x0005 => Self::Receipts,
            0x0006 => Self::TotalDifficulty,
            0x0007 => Self::Accumulator,
            0x000a => Self::SlimReceipts,
            0x000b => Self::Proof,
            0x3266 => Self::Index,
            0x3267 => Self::DynamicIndex,
            code => Self::Other(code),
        }
    }

    /// Returns the name of the type, for example `slim_receipts`; `other` for a type without a name
    /// here.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Header => "header",
            Self::Body => "body",
            Self::Receipts => "receipts",
            Self::SlimReceipts => "slim_receipts",
            Self::TotalDifficulty => "total_difficulty",
            Self::Accumulator => "accumulator",
            Self::Proof => "proof",
            Self::Index => "index",
            Self::DynamicIndex => "dynamic_index",
            Self::Consensus => "consensus",
            Self::Other(_) => "other",
        }
    }
}

/// Writes the [name](EntryKind::name), or the number of a type without a name, for example
/// `0x00ff`.
impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(code) => write!(f, "{code:#06x}"),
            kind => f.pad(kind.name()),
        }
    }
}

/// The head of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryHead {
    pub(super) kind: EntryKind,
    /// Offset of the entry's head in the file.
    pub(super) offset: u64,
    /// Length of the entry's data in bytes.
    length: u64,
}

impl EntryHead {
    pub(super) fn wrong(&self, problem: FileProblem) -> FileError {
        FileError::new(Position::Byte(self.offset), problem)
    }

    fn complete(&self, found: u64) -> Result<(), FileError> {
        if found < self.length {
            let problem = FileProblem::Truncated { part: "entry", expected: self.length, found };
            return Err(self.wrong(problem));
        }
        Ok(())
    }
}

/// Reads an archive entry by entry: era1, ere, and any other file in the e2store format.
///
/// The file is a sequence of entries. An entry has a type (2 bytes, little-endian), a length (4
/// bytes, little-endian), two reserved bytes that are 0, and data.
/// [eth-clients/e2store-format-specs][specs] lists the types.
///
/// # Examples
/// ```
/// use chainsieve::eth::files::{Archive, EntryKind, Input};
/// use chainsieve::eth::header::HeaderView;
///
/// # use std::io::Write as _;
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/ethereum/headers.json");
/// # let Ok(headers) = std::fs::File::open(path) else { return Ok(()) };
/// # let mut headers = chainsieve::eth::files::HeaderReader::new(Input::new(headers))?;
/// # let header = headers.next().expect("a header")?;
/// # let mut data = snap::write::FrameEncoder::new(Vec::new());
/// # data.write_all(header.rlp())?;
/// # let data = data.into_inner()?;
/// # let length = u32::try_from(data.len())?.to_le_bytes();
/// # let file = [b"e2\0\0\0\0\0\0\x03\0", &length[..], &[0, 0], &data].concat();
/// // From a file: `Archive::new(Input::seekable(File::open("mainnet-00000-5ec1ffb8.era1")?)?)`
/// let mut archive = Archive::new(Input::new(&file[..]));
/// let mut headers = Vec::new();
/// while let Some(entry) = archive.next_entry()? {
///     if entry.kind() == EntryKind::Header {
///         let rlp = entry.decompress(64 << 10)?;
///         headers.push(HeaderView::decode(&rlp)?.hash());
///     }
/// }
/// assert_eq!(headers, [header.hash()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [specs]: https://github.com/eth-clients/e2store-format-specs
pub struct Archive<R> {
    pub(super) input: Input<R>,
    /// The current entry, if its data was not yet read.
    unread: Option<EntryHead>,
    /// The decoder of all entries, which is reused because its buffers are larger than a header.
    decoder: Option<FrameDecoder<Cursor<Vec<u8>>>>,
}

impl<R: fmt::Debug> fmt::Debug for Archive<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("input", &self.input)
            .field("unread", &self.unread)
            .finish_non_exhaustive()
    }
}

impl<R: Read> Archive<R> {
    /// Creates a reader of the entries of `input`.
    pub fn new(input: Input<R>) -> Self {
        Self { input, unread: None, decoder: None }
    }

    /// Returns the number of bytes read so far.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Returns the next entry, or `None` after the last. Unread data of the preceding entry is
    /// skipped.
    ///
    /// # Errors
    /// Returns a [`FileError`] with the entry's offset if the entry is truncated or its reserved
    /// bytes are not 0.
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_, R>>, FileError> {
        let head = self.advance()?;
        Ok(head.map(|head| Entry { archive: self, head }))
    }

    /// Moves to the next entry and returns its head.
    pub(super) fn advance(&mut self) -> Result<Option<EntryHead>, FileError> {
        if let Some(head) = self.unread.take() {
            head.complete(self.input.skip(head.length)?)?;
        }
        let offset = self.input.offset();
        let wrong = |problem| Err(FileError::new(Position::Byte(offset), problem));
        let mut bytes = Vec::new();
        let found = self.input.append(HEAD, &mut bytes)?;
        let &[type_0, type_1, length_0, length_1, length_2, length_3, reserved_0, reserved_1] =
            &bytes[..]
        else {
            if found == 0 {
                return Ok(None);
            }
            let part = "head of the entry";
            return wrong(FileProblem::Truncated { part, expected: HEAD, found });
        };
        let reserved = u16::from_le_bytes([reserved_0, reserved_1]);
        if reserved != 0 {
            return wrong(FileProblem::Reserved { found: reserved });
        }
        let kind = EntryKind::new(u16::from_le_bytes([type_0, type_1]));
        let length = u32::from_le_bytes([length_0, length_1, length_2, length_3]).into();
        let head = EntryHead { kind, offset, length };
        if let Some(left) = self.input.left() {
            head.complete(left)?;
        }
        self.unread = Some(head);
        Ok(Some(head))
    }

    /// Reads the data of the entry that [`advance`](Self::advance) returned, as it is in the file.
    pub(super) fn read(&mut self, head: EntryHead, limit: u64) -> Result<Vec<u8>, FileError> {
        let length = head.length;
        if length > limit {
            return Err(head.wrong(FileProblem::TooLong { part: "entry", length, limit }));
        }
        self.unread = None;
        let mut bytes = Vec::new();
        head.complete(self.input.append(length, &mut bytes)?)?;
        Ok(bytes)
    }

    /// Appends the data of the entry that [`advance`](Self::advance) returned, decompressed.
    pub(super) fn decompress(
        &mut self,
        head: EntryHead,
        limit: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        // Data that cannot be compressed becomes longer, because frames are added.
        let framed = limit.saturating_add(limit / 8).saturating_add(64);
        let bytes = Cursor::new(self.read(head, framed)?);
        // The decoder is put back only after all its data was read. Otherwise, the decoder would
        // return the remaining bytes of this entry as bytes of the next entry.
        let mut decoder = match self.decoder.take() {
            Some(mut decoder) => {
                *decoder.get_mut() = bytes;
                decoder
            }
            None => FrameDecoder::new(bytes),
        };
        let before = out.len();
        let read = (&mut decoder).take(limit.saturating_add(1)).read_to_end(out);
        let read = read.map_err(|error| head.wrong(FileProblem::Snappy(error.to_string())));
        match read {
            Ok(read) if read as u64 <= limit => {
                self.decoder = Some(decoder);
                Ok(())
            }
            read => {
                out.truncate(before);
                let part = "uncompressed entry";
                Err(read
                    .err()
                    .unwrap_or_else(|| head.wrong(FileProblem::OverLimit { part, limit })))
            }
        }
    }
}

/// An entry of an archive, whose data is not read yet.
#[derive(Debug)]
pub struct Entry<'a, R> {
    archive: &'a mut Archive<R>,
    head: EntryHead,
}

impl<R: Read> Entry<'_, R> {
    /// Returns the type of the entry.
    pub fn kind(&self) -> EntryKind {
        self.head.kind
    }

    /// Returns the offset of the entry's head in the file.
    pub fn offset(&self) -> u64 {
        self.head.offset
    }

    /// Returns the length of the entry's data in the file, in bytes.
    pub fn data_length(&self) -> u64 {
        self.head.length
    }

    /// Reads the data as it is in the file, at most `limit` bytes.
    ///
    /// # Errors
    /// Returns [`FileProblem::TooLong`] if the data has more than `limit` bytes, and
    /// [`FileProblem::Truncated`] if the input ends before the data.
    pub fn read(self, limit: u64) -> Result<Vec<u8>, FileError> {
        self.archive.read(self.head, limit)
    }

    /// Reads and decompresses the data, at most `limit` bytes after decompression.
    ///
    /// # Errors
    /// Returns [`FileProblem::TooLong`] or [`FileProblem::OverLimit`] if the data is above the
    /// limit, [`FileProblem::Truncated`] if the input ends before the data, and
    /// [`FileProblem::Snappy`] if the data cannot be decompressed.
    pub fn decompress(self, limit: u64) -> Result<Vec<u8>, FileError> {
        let mut out = Vec::new();
        self.archive.decompress(self.head, limit, &mut out)?;
        Ok(out)
    }
}

/// Reads the bodies or the receipts of an archive, each with the number of its block.
///
/// The block number is the number of the archive's first header, plus the index of the entry among
/// the entries of its type. The reader does not verify the number: compare the entry with the roots
/// in the block's header.
#[derive(Debug)]
pub struct BlockEntries<R> {
    archive: Archive<R>,
    /// The types of the returned entries, each with the number of entries read from this archive.
    kinds: Vec<(EntryKind, u64)>,
    /// Block number of the archive's first header.
    first: Option<u64>,
}

impl<R: Read> BlockEntries<R> {
    /// Creates a reader of the bodies. [`body_transactions`] extracts the transactions of a body.
    pub fn bodies(input: Input<R>) -> Self {
        Self::new(input, &[EntryKind::Body])
    }

    /// Creates a reader of the receipts in either form.
    ///
    /// Decode an entry of type [`Receipts`](EntryKind::Receipts) with
    /// [`from_rlp_list`](crate::eth::receipts::BlockReceipts::from_rlp_list), and an entry of type
    /// [`SlimReceipts`](EntryKind::SlimReceipts) with
    /// [`from_slim_list`](crate::eth::receipts::BlockReceipts::from_slim_list).
    pub fn receipts(input: Input<R>) -> Self {
        Self::new(input, &[EntryKind::Receipts, EntryKind::SlimReceipts])
    }

    fn new(input: Input<R>, kinds: &[EntryKind]) -> Self {
        let kinds = kinds.iter().map(|&kind| (kind, 0)).collect();
        Self { archive: Archive::new(input), kinds, first: None }
    }

    /// Returns the next entry and the number of its block, or `None` after the last entry.
    ///
    /// # Errors
    /// Returns the errors of [`Archive::next_entry`], and an error if the archive's first header is
    /// malformed or missing.
    pub fn next_entry(&mut self) -> Result<Option<(u64, Entry<'_, R>)>, FileError> {
        while let Some(head) = self.archive.advance()? {
            match head.kind {
                // The start of the next archive in a concatenation of archives.
                EntryKind::Version => {
                    self.first = None;
                    self.kinds.iter_mut().for_each(|(_, count)| *count = 0);
                }
                EntryKind::Header if self.first.is_none() => {
                    let mut rlp = Vec::new();
                    self.archive.decompress(head, MAX_HEADER, &mut rlp)?;
                    let header = HeaderView::decode(&rlp);
                    let header = header.map_err(|error| head.wrong(FileProblem::Header(error)))?;
                    self.first = Some(header.number());
                }
                _ => {}
            }
            if let Some((_, count)) = self.kinds.iter_mut().find(|(kind, _)| *kind == head.kind) {
                let first = self.first.ok_or_else(|| head.wrong(FileProblem::NoHeaderBefore))?;
                let number = first.saturating_add(*count);
                *count += 1;
                return Ok(Some((number, Entry { archive: &mut self.archive, head })));
            }
        }
        Ok(None)
    }
}

/// Returns the transactions of a block's body, each encoded as in the transactions trie.
///
/// The body is the RLP list `[[transaction, …], ommers, …]`. The result is the input of
/// [`check_transactions`](crate::eth::audit::Audit::check_transactions).
///
/// # Errors
/// Returns an error if the RLP is malformed.
pub fn body_transactions(body: &[u8]) -> alloy_rlp::Result<Vec<Bytes>> {
    let mut body = body;
    let mut fields = RlpHeader::decode_bytes(&mut body, true)?;
    let mut list = RlpHeader::decode_bytes(&mut fields, true)?;
    let mut transactions = Vec::new();
    while !list.is_empty() {
        let item = list;
        let header = RlpHeader::decode(&mut list)?;
        let (payload, after) =
            list.split_at_checked(header.payload_length).ok_or(alloy_rlp::Error::InputTooShort)?;
        // The trie contains a legacy transaction with its list header, but a typed transaction
        // without its string header.
        let encoding = if header.list { &item[..item.len() - after.len()] } else { payload };
        transactions.push(Bytes::copy_from_slice(encoding));
        list = after;
    }
    Ok(transactions)
}

/// Maximum number of blocks in an archive, as the file format defines it.
pub(super) const MAX_BLOCKS: usize = 8192;

/// Maximum number of entries of a block in an ere archive, as the file format defines it.
const MAX_COMPONENTS: u64 = 5;

/// Reads the headers of one archive, or of several concatenated archives.
pub(super) struct ArchiveHeaders<R> {
    pub(super) archive: Archive<R>,
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
            return Err(FileError::new(self.archive.input.position(), problem));
        }
        Ok(None)
    }

    fn header(&mut self, head: EntryHead, rlp: &mut Vec<u8>) -> Result<(), FileError> {
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
    fn index(&mut self, head: EntryHead) -> Result<(), FileError> {
        // An index has at most five offsets for each block, and three further numbers.
        let bytes = self.archive.read(head, (MAX_COMPONENTS * MAX_BLOCKS as u64 + 3) * 8)?;
        self.check_index(head, &bytes).map_err(|problem| head.wrong(problem))?;
        self.positions.clear();
        self.indexed = true;
        Ok(())
    }

    fn check_index(&self, head: EntryHead, bytes: &[u8]) -> Result<(), FileProblem> {
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
            return Err(FileProblem::IndexLength { length: bytes.len() });
        };
        let read = self.positions.len() as u64;
        if count != read {
            return Err(FileProblem::IndexCount { counted: count, read });
        }
        if first != self.first && read > 0 {
            return Err(FileProblem::IndexFirst { indexed: first, read: self.first });
        }
        let step = usize::try_from(components).ok().filter(|_| components <= MAX_COMPONENTS);
        let whole = components.checked_mul(count) == Some(offsets.len() as u64);
        let Some(step @ 1..) = step.filter(|_| whole) else {
            let offsets = offsets.len();
            return Err(FileProblem::IndexOffsets { offsets, blocks: count, components });
        };
        let headers = offsets.iter().step_by(step);
        for (header, (&position, &offset)) in self.positions.iter().zip(headers).enumerate() {
            // Offsets are relative to the start of the index. The offsets are negative, stored in
            // two's complement.
            let indexed = head.offset.wrapping_add(offset);
            if indexed != position {
                return Err(FileProblem::IndexOffset { header, indexed, read: position });
            }
        }
        Ok(())
    }
}
