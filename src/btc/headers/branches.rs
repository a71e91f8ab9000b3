//! The headers that a chain keeps: the chain with the most work as a vector of headers, and the
//! headers of branches with less work.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use bitcoin::block::Header;
use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Work};
use hashbrown::HashTable;

use super::rules::PeriodFirst;
use super::{BlockAt, TrustedStart};

/// Number of headers between two stored sums of work.
const MARK_SPAN: usize = 2016;

/// Consecutive headers and the sum of their work, searchable by height and by hash.
#[derive(Clone)]
pub(super) struct ActiveChain {
    /// The height of the trusted start. The headers up to this height come from the trusted start
    /// and never change.
    pub(super) start: u32,
    /// The height of the first header in `headers`.
    pub(super) base: u32,
    headers: Vec<Header>,
    tip: BlockHash,
    /// The total work of the chain up to the tip.
    pub(super) work: Work,
    /// The total work up to the start, and up to every `MARK_SPAN`-th height after the start.
    marks: Vec<Work>,
    /// The height of each header, found by the header's hash.
    index: HashTable<u32>,
}

impl ActiveChain {
    /// Creates the chain of a checked trusted start, whose block is `start`.
    pub(super) fn new(trusted_start: &TrustedStart, start: BlockAt) -> Self {
        let mut chain = Self {
            start: start.height,
            base: trusted_start.base(),
            headers: trusted_start.headers.clone(),
            tip: start.hash,
            work: trusted_start.work,
            marks: vec![trusted_start.work],
            index: HashTable::new(),
        };
        for height in chain.base..=start.height {
            chain.add_to_index(height);
        }
        chain
    }

    pub(super) fn tip(&self) -> BlockAt {
        let above = u32::try_from(self.headers.len() - 1).expect("heights are u32");
        BlockAt { height: self.base + above, hash: self.tip }
    }

    /// Returns the headers from `height` on; `height` is at least the base. Empty above the tip.
    pub(super) fn headers_from(&self, height: u32) -> &[Header] {
        let place = height.checked_sub(self.base).map(|above| above as usize);
        place.and_then(|place| self.headers.get(place..)).unwrap_or_default()
    }

    pub(super) fn header_at(&self, height: u32) -> Option<&Header> {
        self.headers.get(height.checked_sub(self.base)? as usize)
    }

    pub(super) fn hash_at(&self, height: u32) -> Option<BlockHash> {
        // Hashes are not stored: each header contains the hash of its parent, and `tip` is the hash
        // of the last header.
        if height == self.tip().height {
            return Some(self.tip);
        }
        self.header_at(height)?;
        Some(self.header_at(height + 1)?.prev_blockhash)
    }

    pub(super) fn height_of(&self, hash: &BlockHash) -> Option<u32> {
        self.index.find(index_hash(hash), |&height| self.hash_at(height) == Some(*hash)).copied()
    }

    /// Iterates over the headers from `height` down, highest first.
    pub(super) fn back_from(&self, height: u32) -> impl Iterator<Item = &Header> {
        let count = height.checked_sub(self.base).map_or(0, |above| above as usize + 1);
        self.headers.iter().take(count).rev()
    }

    /// Returns the total work up to `height`, which is between the start and the tip.
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

    /// Adds a header that builds on the tip. `work` is the total work including that header.
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

    /// Removes the tip, unless it is the start. Returns the tip and the total work up to and
    /// including it.
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

    /// Number of headers that can be found by hash.
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

/// Adds the work of `headers` to `work`. Computes a division only where the headers' bits change.
pub(super) fn sum_of_work(work: Work, headers: &[Header]) -> Work {
    let runs = headers.chunk_by(|a, b| a.bits == b.bits);
    runs.fold(work, |work, run| {
        let each = run[0].work();
        run.iter().fold(work, |work, _| work + each)
    })
}

/// Returns the first eight bytes of a hash as the key for the hash table. Proof of work restricts
/// only the last bytes of a hash, so the first bytes are random.
fn index_hash(hash: &BlockHash) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = hash.to_byte_array();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// A header that is not in the active chain.
#[derive(Debug, Clone, Copy)]
pub(in crate::btc) struct SideHeader {
    pub(in crate::btc) header: Header,
    pub(in crate::btc) height: u32,
    /// The total work of the header's branch up to and including the header.
    pub(in crate::btc) work: Work,
    /// Time and bits of the first block of the header's period. The time and bits are stored here
    /// because the rules for a child need them. Otherwise, a walk back through the period would be
    /// needed.
    pub(super) first: PeriodFirst,
}

/// Side headers by hash. The parent of each is another side header or an active header.
#[derive(Clone)]
pub(super) struct SideBranches {
    headers: BTreeMap<BlockHash, SideHeader>,
    pub(super) limit: usize,
}

impl SideBranches {
    pub(super) fn new(limit: usize) -> Self {
        Self { headers: BTreeMap::new(), limit }
    }

    pub(super) fn len(&self) -> usize {
        self.headers.len()
    }

    pub(super) fn get(&self, hash: &BlockHash) -> Option<&SideHeader> {
        self.headers.get(hash)
    }

    pub(super) fn insert(&mut self, hash: BlockHash, header: SideHeader) {
        self.headers.insert(hash, header);
    }

    /// Removes and returns the branch that ends with `tip`, down to the active chain, highest
    /// first.
    pub(super) fn take_branch(&mut self, tip: BlockHash) -> Vec<(BlockHash, SideHeader)> {
        let mut branch = Vec::new();
        let mut hash = tip;
        while let Some(side) = self.headers.remove(&hash) {
            branch.push((hash, side));
            hash = side.header.prev_blockhash;
        }
        branch
    }

    /// If the limit is exceeded, drops the tips with the least work until a quarter of the room is
    /// free.
    pub(super) fn trim(&mut self) {
        if self.headers.len() <= self.limit {
            return;
        }
        // Only tips are dropped, so that the parent of each side header stays known.
        let mut children = BTreeMap::<BlockHash, usize>::new();
        for side in self.headers.values() {
            *children.entry(side.header.prev_blockhash).or_default() += 1;
        }
        let tips = self.headers.iter().filter(|(hash, _)| !children.contains_key(*hash));
        let mut tips: BinaryHeap<_> =
            tips.map(|(hash, side)| Reverse((side.work, *hash))).collect();
        // This function visits every side header. A quarter of the room is freed, so that the
        // function does not run for every new header.
        let kept = self.limit - self.limit / 4;
        while self.headers.len() > kept {
            let Some(Reverse((_, hash))) = tips.pop() else { return };
            let Some(side) = self.headers.remove(&hash) else { return };
            let parent = side.header.prev_blockhash;
            if let Some(count) = children.get_mut(&parent) {
                *count -= 1;
                if let (0, Some(side)) = (*count, self.headers.get(&parent)) {
                    tips.push(Reverse((side.work, parent)));
                }
            }
        }
    }
}
