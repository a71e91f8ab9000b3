//! era1 and ere archives: records of type and length, headers as RLP in framed Snappy.
//!
//! Layout: eth-clients/e2store-format-specs. era1 has header, body, receipts and total difficulty
//! block by block, ere has all headers first. Both end with an index, which is checked against
//! the headers that were read. The accumulator is not: the chain of hashes says more.

use std::io::{self, Read as _};

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::header::HeaderView;
use snap::read::FrameDecoder;

use super::{MAX_HEADER, Place, Records};
use crate::output::grouped;
use crate::source::Source;

/// Blocks of an archive, by its format.
const MAX_BLOCKS: usize = 8192;

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Version,
    Header,
    Body,
    Receipts,
    SlimReceipts,
    /// The index of an era1 archive.
    Index,
    /// The index of an ere archive.
    DynamicIndex,
    /// A beacon block or state: an archive of the consensus layer.
    Consensus,
    Other(u16),
}

impl Kind {
    fn new(code: u16) -> Self {
        match code {
            0x3265 => Self::Version,
            0x0001 | 0x0002 => Self::Consensus,
            0x0003 => Self::Header,
            0x0004 => Self::Body,
            0x0005 => Self::Receipts,
            0x000a => Self::SlimReceipts,
            0x3266 => Self::Index,
            0x3267 => Self::DynamicIndex,
            code => Self::Other(code),
        }
    }
}

/// The head of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Where the record starts.
    pub(crate) at: u64,
    length: u64,
}

/// The records of an archive. Each that is returned has to be read or skipped.
pub(crate) struct Entries {
    source: Source,
}

impl Entries {
    pub(crate) fn new(source: Source) -> Self {
        Self { source }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The next record's head.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<Entry>> {
        let at = self.source.offset();
        let mut head = Vec::with_capacity(8);
        match self.source.append(8, &mut head)? {
            0 => return Ok(None),
            8 => {}
            read => {
                bail!("byte {}: the head of a record has 8 bytes, {read} are left", grouped(at))
            }
        }
        let field = |range: std::ops::Range<usize>| {
            head[range].iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
        };
        let (code, length, reserved) = (field(0..2), field(2..6), field(6..8));
        if reserved != 0 {
            bail!(
                "byte {}: the reserved bytes of a record are {reserved:#06x}, not 0",
                grouped(at)
            );
        }
        if let Some(left) = self.source.left()
            && length > left
        {
            bail!(
                "byte {}: a record of {} bytes, and {} are left",
                grouped(at),
                grouped(length),
                grouped(left)
            );
        }
        let code = u16::try_from(code).expect("two bytes");
        Ok(Some(Entry { kind: Kind::new(code), at, length }))
    }

    /// Passes over a record.
    pub(crate) fn skip(&mut self, entry: Entry) -> anyhow::Result<()> {
        let skipped = self.source.skip(entry.length)?;
        Self::complete(entry, skipped)
    }

    /// Reads a record as it is, of at most `limit` bytes.
    fn read(&mut self, entry: Entry, limit: u64) -> anyhow::Result<Vec<u8>> {
        let Entry { at, length, .. } = entry;
        if length > limit {
            bail!(
                "byte {}: a record of {} bytes; the limit for its kind is {}",
                grouped(at),
                grouped(length),
                grouped(limit)
            );
        }
        let mut bytes = Vec::new();
        let read = self.source.append(length, &mut bytes)?;
        Self::complete(entry, read)?;
        Ok(bytes)
    }

    fn complete(entry: Entry, found: u64) -> anyhow::Result<()> {
        if found < entry.length {
            bail!(
                "byte {}: a record of {} bytes, and the source ends after {}",
                grouped(entry.at),
                grouped(entry.length),
                grouped(found)
            );
        }
        Ok(())
    }
}

/// Takes framed Snappy apart. Kept from record to record: its buffers are larger than a header.
pub(crate) struct Compressed {
    decoder: FrameDecoder<io::Cursor<Vec<u8>>>,
    limit: u64,
}

impl Compressed {
    /// For records of at most `limit` bytes, compressed or not.
    pub(crate) fn new(limit: u64) -> Self {
        Self { decoder: FrameDecoder::new(io::Cursor::default()), limit }
    }

    /// Appends what a record holds.
    pub(crate) fn read(
        &mut self,
        entries: &mut Entries,
        entry: Entry,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        // Bytes that don't compress take some more with their frames.
        let bytes = entries.read(entry, self.limit + self.limit / 8 + 64)?;
        *self.decoder.get_mut() = io::Cursor::new(bytes);
        let before = out.len();
        let read = (&mut self.decoder).take(self.limit + 1).read_to_end(out);
        let at = grouped(entry.at);
        let read = read.with_context(|| format!("byte {at}: not framed Snappy"))?;
        if read as u64 > self.limit {
            out.truncate(before);
            bail!("byte {at}: more than {} bytes uncompressed, the limit", grouped(self.limit));
        }
        Ok(())
    }
}

/// The headers of archives, also of several one behind the other.
pub(super) struct EraHeaders {
    entries: Entries,
    compressed: Compressed,
    /// Where the headers of this archive stand, and the number of the first.
    positions: Vec<u64>,
    first: u64,
    indexed: bool,
}

impl EraHeaders {
    pub(super) fn new(source: Source) -> Self {
        Self {
            entries: Entries::new(source),
            compressed: Compressed::new(MAX_HEADER),
            positions: Vec::new(),
            first: 0,
            indexed: true,
        }
    }

    fn header(&mut self, entry: Entry, rlp: &mut Vec<u8>) -> anyhow::Result<()> {
        if self.positions.len() == MAX_BLOCKS {
            bail!("byte {}: more than {MAX_BLOCKS} headers, an archive's limit", grouped(entry.at));
        }
        let before = rlp.len();
        self.compressed.read(&mut self.entries, entry, rlp)?;
        let header = HeaderView::decode(&rlp[before..])
            .with_context(|| format!("byte {}", grouped(entry.at)))?;
        if self.positions.is_empty() {
            self.first = header.number();
        }
        self.positions.push(entry.at);
        self.indexed = false;
        Ok(())
    }

    /// Compares the index with what was read, and forgets it.
    fn index(&mut self, entry: Entry) -> anyhow::Result<()> {
        // At most five components for each block, and three numbers around them.
        let bytes = self.entries.read(entry, (5 * MAX_BLOCKS as u64 + 3) * 8)?;
        self.check_index(entry, &bytes)
            .with_context(|| format!("byte {}: the index of blocks", grouped(entry.at)))?;
        self.positions.clear();
        self.indexed = true;
        Ok(())
    }

    fn check_index(&self, entry: Entry, bytes: &[u8]) -> anyhow::Result<()> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<_> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (components, numbers) = match (entry.kind, words.as_slice()) {
            (Kind::Index, [first, offsets @ .., count]) => (1, Some((first, offsets, count))),
            (_, [first, offsets @ .., components, count]) => {
                (*components, Some((first, offsets, count)))
            }
            _ => (0, None),
        };
        let Some((&first, offsets, &count)) = numbers.filter(|_| rest.is_empty()) else {
            bail!("{} bytes are no index", grouped(bytes.len() as u64));
        };
        let read = self.positions.len() as u64;
        if count != read {
            bail!("it counts {} blocks, {} headers were read", grouped(count), grouped(read));
        }
        if first != self.first && read > 0 {
            bail!("it starts at block {first}, the first header is that of block {}", self.first);
        }
        if !(1..=5).contains(&components)
            || components.checked_mul(count) != Some(offsets.len() as u64)
        {
            bail!(
                "{} offsets for {} blocks with {} parts each",
                grouped(offsets.len() as u64),
                grouped(count),
                grouped(components)
            );
        }
        let components = usize::try_from(components).expect("five at the most");
        let headers = offsets.iter().step_by(components);
        for (index, (&position, &offset)) in self.positions.iter().zip(headers).enumerate() {
            // Offsets count from the index's own start, backwards, and wrap.
            let found = entry.at.wrapping_add(offset);
            if found != position {
                bail!("header {index} would be at byte {found}, and is at byte {position}");
            }
        }
        Ok(())
    }
}

impl Records for EraHeaders {
    fn next(&mut self, rlp: &mut Vec<u8>) -> anyhow::Result<Option<Place>> {
        loop {
            let Some(entry) = self.entries.next()? else {
                if !self.indexed {
                    let read = self.positions.len();
                    return Err(anyhow!("it ends after {read} headers without an index of blocks"));
                }
                return Ok(None);
            };
            match entry.kind {
                Kind::Header => {
                    self.header(entry, rlp)?;
                    return Ok(Some(Place::Byte(entry.at)));
                }
                Kind::Index | Kind::DynamicIndex => self.index(entry)?,
                Kind::Consensus => bail!(
                    "byte {}: a beacon block or state: era archives of the consensus layer hold no \
                     headers of blocks; take era1 or ere",
                    grouped(entry.at)
                ),
                _ => self.entries.skip(entry)?,
            }
        }
    }

    fn source(&self) -> &Source {
        self.entries.source()
    }
}
