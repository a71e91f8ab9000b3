//! What an era1 or ere archive has of its blocks besides headers, by the number of the block.

use anyhow::Context as _;
use chainsieve::eth::header::HeaderView;

use super::headers::{Compressed, Entries, Entry, Kind, MAX_HEADER};
use crate::output::grouped;
use crate::source::Source;

/// The records of some kinds, one of them for each block in order.
pub(crate) struct BlockRecords {
    entries: Entries,
    kinds: &'static [Kind],
    header: Compressed,
    record: Compressed,
    /// Number of the archive's first block.
    first: Option<u64>,
    /// How many records of the archive came.
    index: u64,
}

impl BlockRecords {
    /// For records of at most `limit` bytes, compressed or not.
    pub(crate) fn new(source: Source, kinds: &'static [Kind], limit: u64) -> Self {
        Self {
            entries: Entries::new(source),
            kinds,
            header: Compressed::new(MAX_HEADER),
            record: Compressed::new(limit),
            first: None,
            index: 0,
        }
    }

    /// The next record with the number of its block. It has to be read or skipped.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<(u64, Entry)>> {
        while let Some(entry) = self.entries.next()? {
            let place = || format!("byte {}", grouped(entry.at));
            match entry.kind {
                // Of the next archive, where several stand one behind the other.
                Kind::Version => {
                    (self.first, self.index) = (None, 0);
                    self.entries.skip(entry)?;
                }
                Kind::Header if self.first.is_none() => {
                    let mut rlp = Vec::new();
                    self.header.read(&mut self.entries, entry, &mut rlp)?;
                    self.first = Some(HeaderView::decode(&rlp).with_context(place)?.number());
                }
                kind if self.kinds.contains(&kind) => {
                    let first = self.first;
                    let first = first.with_context(|| format!("{}: no header before", place()))?;
                    let number = first.saturating_add(self.index);
                    self.index += 1;
                    return Ok(Some((number, entry)));
                }
                _ => self.entries.skip(entry)?,
            }
        }
        Ok(None)
    }

    /// What a record holds.
    pub(crate) fn read(&mut self, entry: Entry) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.record.read(&mut self.entries, entry, &mut bytes)?;
        Ok(bytes)
    }

    /// Passes over a record.
    pub(crate) fn skip(&mut self, entry: Entry) -> anyhow::Result<()> {
        self.entries.skip(entry)
    }
}
