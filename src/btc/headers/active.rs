//! The chain with most work, as a vector of headers.

use alloc::vec;
use alloc::vec::Vec;

use bitcoin::block::Header;
use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Work};
use hashbrown::HashTable;

use super::{Anchor, BlockAt};

/// Headers between two stored sums of work.
const MARK_SPAN: usize = 2016;

/// Consecutive headers, with the sum of their work, found by height and by hash.
#[derive(Clone)]
pub(super) struct ActiveChain {
    /// Where the headers may change from: those below are the anchor's.
    start: u32,
    /// The height of the first header.
    base: u32,
    headers: Vec<Header>,
    tip: BlockHash,
    /// The work up to the tip.
    work: Work,
    /// The work up to the start, and up to each `MARK_SPAN`-th height behind it.
    marks: Vec<Work>,
    /// Heights, by the hashes of their headers.
    index: HashTable<u32>,
}

impl ActiveChain {
    /// The chain of an anchor that was checked, at `start`.
    pub(super) fn new(anchor: &Anchor, start: BlockAt) -> Self {
        let mut chain = Self {
            start: start.height,
            base: anchor.base(),
            headers: anchor.headers.clone(),
            tip: start.hash,
            work: anchor.work,
            marks: vec![anchor.work],
            index: HashTable::new(),
        };
        for height in chain.base..=start.height {
            chain.add_to_index(height);
        }
        chain
    }

    pub(super) fn start(&self) -> u32 {
        self.start
    }

    pub(super) fn base(&self) -> u32 {
        self.base
    }

    pub(super) fn tip(&self) -> BlockAt {
        let above = u32::try_from(self.headers.len() - 1).expect("heights are u32");
        BlockAt { height: self.base + above, hash: self.tip }
    }

    pub(super) fn work(&self) -> Work {
        self.work
    }

    /// The headers from `height` on, which is the base or above; none above the tip.
    pub(super) fn headers_from(&self, height: u32) -> &[Header] {
        let place = height.checked_sub(self.base).map(|above| above as usize);
        place.and_then(|place| self.headers.get(place..)).unwrap_or_default()
    }

    pub(super) fn header_at(&self, height: u32) -> Option<&Header> {
        self.headers.get(height.checked_sub(self.base)? as usize)
    }

    pub(super) fn hash_at(&self, height: u32) -> Option<BlockHash> {
        if height == self.tip().height {
            return Some(self.tip);
        }
        self.header_at(height)?;
        Some(self.header_at(height + 1)?.prev_blockhash)
    }

    pub(super) fn height_of(&self, hash: &BlockHash) -> Option<u32> {
        self.index.find(index_hash(hash), |&height| self.hash_at(height) == Some(*hash)).copied()
    }

    /// The headers at `height` and below, the highest first.
    pub(super) fn back_from(&self, height: u32) -> impl Iterator<Item = &Header> {
        let count = height.checked_sub(self.base).map_or(0, |above| above as usize + 1);
        self.headers.iter().take(count).rev()
    }

    /// The work up to `height`, between start and tip.
    pub(super) fn work_at(&self, height: u32) -> Work {
        if height == self.tip().height {
            return self.work;
        }
        let above = (height - self.start) as usize;
        let mark = above / MARK_SPAN;
        let first = (self.start - self.base) as usize + mark * MARK_SPAN + 1;
        let behind = &self.headers[first..first + above % MARK_SPAN];
        sum_of_work(self.marks[mark], behind)
    }

    /// Adds a header that builds on the tip; `work` is the chain's with it.
    pub(super) fn push(&mut self, header: Header, hash: BlockHash, work: Work) {
        self.headers.push(header);
        self.tip = hash;
        self.work = work;
        let height = self.tip().height;
        if ((height - self.start) as usize).is_multiple_of(MARK_SPAN) {
            self.marks.push(work);
        }
        self.add_to_index(height);
    }

    /// Takes the tip off, unless it is the start. Returns it with the work up to it.
    pub(super) fn pop(&mut self) -> Option<(BlockAt, Header, Work)> {
        let (at, work) = (self.tip(), self.work);
        if at.height == self.start {
            return None;
        }
        if let Ok(entry) =
            self.index.find_entry(index_hash(&at.hash), |&height| height == at.height)
        {
            entry.remove();
        }
        let header = self.headers.pop()?;
        if ((at.height - self.start) as usize).is_multiple_of(MARK_SPAN) {
            self.marks.pop();
        }
        self.tip = header.prev_blockhash;
        self.work = work - header.work();
        Some((at, header, work))
    }

    /// How many headers are found by their hashes.
    #[cfg(test)]
    pub(super) fn indexed(&self) -> usize {
        self.index.len()
    }

    fn add_to_index(&mut self, height: u32) {
        let hash = |height: u32| match self.headers.get((height - self.base) as usize + 1) {
            Some(next) => index_hash(&next.prev_blockhash),
            None => index_hash(&self.tip),
        };
        self.index.insert_unique(hash(height), height, |&height| hash(height));
    }
}

/// `work` and that of `headers`, dividing only where the bits change.
pub(super) fn sum_of_work(work: Work, headers: &[Header]) -> Work {
    let runs = headers.chunk_by(|a, b| a.bits == b.bits);
    runs.fold(work, |work, run| {
        let each = run[0].work();
        run.iter().fold(work, |work, _| work + each)
    })
}

/// The bits of a hash that a table of hashes goes by: its first bytes, which proof of work leaves
/// random.
fn index_hash(hash: &BlockHash) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = hash.to_byte_array();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}
