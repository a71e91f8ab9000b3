//! An index, open for writing.

mod commit;
mod open;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use alloy_primitives::B256;
use chainsieve_lanes::simd::Backend;

use self::commit::Disk;
use super::error::IndexError;
use super::format::{MAX_SECTIONS, SECTION, Settings};
use super::rows::Rows;
use super::section::{Section, Turner};
use super::storage::WriteStorage;
use crate::eth::header::HeaderChain;

/// The newest blocks that stay unsealed, unless others are asked for.
const CONFIRMATIONS: u64 = 256;
/// The most that can be asked for.
const MAX_CONFIRMATIONS: u64 = 1 << 20;

/// What headers did to an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Appended {
    /// Blocks that the index had already.
    pub skipped: u64,
    /// Blocks that are new.
    pub added: u64,
}

/// An index, open for writing. There is one writer at a time.
///
/// Headers are *acknowledged* when [`sync`](Self::sync) has returned: a process that is killed, or
/// power that goes off, at whatever instant, takes nothing of them away. Of what was asked for
/// after, block by block and roll-back by roll-back, the first steps are there, or none: a
/// roll-back may be there without the blocks that were to come instead.
///
/// 8,192 blocks are sealed together as soon as enough newer ones stand behind them
/// ([`with_confirmations`](Self::with_confirmations)), and can't be taken back from then on. They
/// are written with the next sync.
///
/// # Cost
/// In memory 0.5 MB, 328 bytes for each block that is not sealed, and 2.1 MB for each section that
/// is sealed and not written (2.4 MB with block hashes), kept for later ones. With the 32nd section
/// all are written without being asked.
///
/// # Examples
/// ```
/// use chainsieve::eth::header::HeaderChain;
/// use chainsieve::eth::index::{Folder, Settings, Writer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("chainsieve-writer-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let mut writer = Writer::open(Folder::new(&folder), &Settings::new("mainnet")?)?;
/// let headers = HeaderChain::new(); // of verified headers
/// writer.append(&headers)?;
/// writer.sync()?;
/// assert_eq!(writer.numbers(), None);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
pub struct Writer<S: WriteStorage> {
    storage: S,
    /// Held.
    _lock: S::Lock,
    settings: Settings,
    confirmations: u64,
    backend: Backend,
    /// What is on disk; none before the first sync.
    disk: Option<Disk<S::Appender>>,
    /// The number of the index's first block.
    first: u64,
    /// Sealed, and not written.
    sections: Vec<Section>,
    turner: Turner,
    /// The blocks behind.
    rows: Rows,
    /// What is on disk is not known any more.
    failed: bool,
}

impl<S: WriteStorage> core::fmt::Debug for Writer<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Writer")
            .field("settings", &self.settings)
            .field("numbers", &self.numbers())
            .finish_non_exhaustive()
    }
}

impl<S: WriteStorage> Writer<S> {
    /// So many of the newest blocks stay unsealed and can be taken back: 256 unless others are
    /// asked for, at most 2²⁰.
    #[must_use]
    pub fn with_confirmations(mut self, blocks: u64) -> Self {
        self.confirmations = blocks.min(MAX_CONFIRMATIONS);
        self
    }

    /// The same writer, which seals sections on `backend`.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// What the index is of.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The numbers of the blocks, unacknowledged ones included; none if there is no block.
    pub fn numbers(&self) -> Option<RangeInclusive<u64>> {
        let last = self.rows.next().checked_sub(1)?;
        (self.first <= last).then_some(self.first..=last)
    }

    /// The hash of the last block.
    pub fn last_hash(&self) -> Option<B256> {
        self.numbers().map(|_| self.rows.last_hash())
    }

    /// The hash of a block that is not sealed, or of the one before those. Others need a reader.
    pub fn hash(&self, number: u64) -> Option<B256> {
        self.rows.hash(number)
    }

    /// Adds the blocks of a chain that the index doesn't have. The first headers of an index say
    /// at which block it starts.
    ///
    /// The chain may start with blocks that the index has. They are skipped if they are the same;
    /// blocks below the last sealed one are not compared unless the chain reaches that one, whose
    /// hash stands for all before.
    ///
    /// # Errors
    /// - [`IndexError::Gap`]: blocks are missing between the index and the chain;
    /// - [`IndexError::Parent`]: the chain is another branch. Of the index's blocks, those from two
    ///   below the number in the error downward may be the chain's, and
    ///   [`roll_back`](Self::roll_back) takes the others off;
    /// - [`IndexError::Range`]: the chain starts below the index;
    /// - [`IndexError::Number`]: block numbers end;
    ///
    /// after which the index is as it was. If sections are written: of the storage, or damage of
    /// sealed segments. Then the index must be opened again, as for [`IndexError::Failed`].
    ///
    /// # Cost
    /// A copy of 320 bytes for each block; sealing as of [`sync`](Self::sync).
    pub fn append(&mut self, chain: &HeaderChain) -> Result<Appended, IndexError> {
        self.check()?;
        let (Some(numbers), Some(parent)) = (chain.numbers(), chain.parent_hash()) else {
            return Ok(Appended { skipped: 0, added: 0 });
        };
        let skipped = self.known(chain, &numbers, parent)?;
        let (first, last) = (*numbers.start(), *numbers.end());
        let index_first = if self.numbers().is_none() { first } else { self.first };
        check_number(index_first, last)?;
        if self.numbers().is_none() {
            self.first = first;
            self.rows = Rows::new(first, parent);
            if let Some(disk) = &mut self.disk {
                disk.whole = false; // it may start elsewhere
            }
        }
        let count = chain.len() as u64;
        let mut at = usize::try_from(skipped).unwrap_or(usize::MAX);
        let mut blocks = chain.blocks();
        blocks.by_ref().take(at).for_each(drop);
        while at < chain.len() {
            // Up to the end of a section and what must stand behind it.
            let room = (SECTION as u64 + self.confirmations).saturating_sub(self.rows.len() as u64);
            let end =
                usize::try_from(room.max(1)).map_or(usize::MAX, |room| at.saturating_add(room));
            let end = end.min(chain.len());
            self.rows.extend(blocks.by_ref().take(end - at), &chain.blooms()[at..end]);
            at = end;
            self.seal();
            if self.is_segment_full() {
                self.commit()?;
            }
        }
        Ok(Appended { skipped, added: count - skipped })
    }

    /// How many blocks of a chain the index has.
    fn known(
        &self,
        chain: &HeaderChain,
        numbers: &RangeInclusive<u64>,
        parent: B256,
    ) -> Result<u64, IndexError> {
        let Some(own) = self.numbers() else { return Ok(0) };
        let (first, last) = (*numbers.start(), *numbers.end());
        let (index_first, index_last) = (*own.start(), *own.end());
        if first < index_first {
            return Err(IndexError::Range { first, last, index_first, index_last });
        }
        if first > index_last + 1 {
            return Err(IndexError::Gap { last: index_last, found: first });
        }
        // The parents of these blocks are known here and there.
        let (start, end) = (first.max(self.rows.first), last.min(index_last) + 1);
        let of_chain = |number: u64| {
            let before = number.checked_sub(1).and_then(|number| chain.block(number));
            before.map_or(parent, |block| block.hash)
        };
        let same = |number: u64| self.rows.parent_of(number) == of_chain(number);
        // Each hash stands for all before it.
        if start <= end && !same(end) {
            let mut number = end;
            while number > start && !same(number - 1) {
                number -= 1;
            }
            let (expected, found) = (self.rows.parent_of(number), of_chain(number));
            return Err(IndexError::Parent { number, expected, found });
        }
        Ok(end - first)
    }

    /// Takes all blocks behind `last` off, which becomes the last one. Returns how many they were.
    /// Nothing is written before the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// - [`IndexError::Sealed`]: `last` is below the last sealed block;
    /// - [`IndexError::BelowFirst`]: `last` is below the index's first block;
    /// - [`IndexError::Range`]: `last` is behind the index's last block;
    /// - [`IndexError::Empty`]: there is no block;
    /// - [`IndexError::Failed`].
    pub fn roll_back(&mut self, last: u64) -> Result<u64, IndexError> {
        self.check()?;
        let numbers = self.numbers().ok_or(IndexError::Empty)?;
        let (index_first, index_last) = (*numbers.start(), *numbers.end());
        if last > index_last {
            return Err(IndexError::Range { first: last, last, index_first, index_last });
        }
        if last < index_first {
            return Err(IndexError::BelowFirst { first: index_first });
        }
        if last + 1 < self.rows.first {
            let sealed = self.rows.first - 1;
            return Err(IndexError::Sealed { asked: last, sealed, rebuild_from: index_first });
        }
        self.rows.truncate(last);
        if let Some(disk) = &mut self.disk {
            disk.kept = disk.kept.min(self.rows.len());
        }
        Ok(index_last - last)
    }

    /// Makes everything durable that was appended and taken back so far: when this returns, it is
    /// acknowledged. Readers see it, too.
    ///
    /// # Errors
    /// Of the storage; damage of sealed segments that become part of a larger one. What is on disk
    /// is then unknown, up to what was acknowledged before: all further calls give
    /// [`IndexError::Failed`], and the index must be opened again.
    ///
    /// # Cost
    /// One write of 328 bytes for each block and one sync of the file. Where sections are sealed,
    /// those and the segments that they become part of are written anew, and all blocks behind:
    /// each section up to six times until its segment has 32.
    pub fn sync(&mut self) -> Result<(), IndexError> {
        self.check()?;
        if self.numbers().is_none() {
            return Ok(());
        }
        self.seal();
        while self.is_segment_full() {
            self.commit()?;
            self.seal();
        }
        let appended = match &self.disk {
            Some(disk) if self.sections.is_empty() && disk.has_room(&self.rows) => {
                self.append_slots()
            }
            _ => return self.commit(),
        };
        self.failed = appended.is_err();
        appended
    }

    fn check(&self) -> Result<(), IndexError> {
        if self.failed { Err(IndexError::Failed) } else { Ok(()) }
    }

    /// Seals what has enough blocks behind, in memory.
    fn seal(&mut self) {
        while self.rows.len() as u64 >= SECTION as u64 + self.confirmations
            && !self.is_segment_full()
        {
            self.sections.push(self.turner.turn(self.backend, &self.rows, &self.settings));
            self.rows.remove_front(SECTION);
        }
    }

    /// Whether the sections in memory are those that the largest segment still lacked.
    fn is_segment_full(&self) -> bool {
        let sealed = self.disk.as_ref().map_or(0, |disk| disk.manifest.sections);
        self.sections.len() as u64 >= u64::from(MAX_SECTIONS - sealed % MAX_SECTIONS)
    }
}

/// Whether the numbers up to the end of the section behind the one of `number` fit.
fn check_number(first: u64, number: u64) -> Result<(), IndexError> {
    let sections = (number - first) / SECTION as u64 + 3;
    let end = sections.checked_mul(SECTION as u64).and_then(|blocks| first.checked_add(blocks));
    let fits = end.is_some() && u32::try_from(sections).is_ok();
    if fits { Ok(()) } else { Err(IndexError::Number { number }) }
}
