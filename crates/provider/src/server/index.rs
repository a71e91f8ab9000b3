//! An index of the filters of final blocks, in a folder. It is extended as blocks become final, and
//! is read instead of the headers of past blocks.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::index::{Candidates, Folder, Index, IndexError, Settings, Writer};
use chainsieve::eth::log_query::CompiledQuery;

use super::Proven;
use super::operator::RpcServerEvent;
use crate::follow::index::{NO_HASHES, with_hashes};
use crate::proven::FilterTrust;
use crate::stop::lock;

/// Number of blocks that are added at once. If the process ends, no more than these blocks are
/// lost.
const PIECE: u64 = 8192;

/// The index, open for reading and for writing.
#[derive(Debug)]
pub(super) struct FilterIndex {
    folder: Folder,
    /// First block of a new index; `None` for the newest final block.
    from: Option<u64>,
    settings: Settings,
    /// `None` after a failed write: the next attempt opens the index again.
    writer: Mutex<Option<Writer<Folder>>>,
    reader: RwLock<Reader>,
    /// The last error of a read. The same error is reported only once.
    unreadable: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Reader {
    /// `None` until the folder has an index.
    index: Option<Index<Folder>>,
    /// The last block that is known to be part of the verified chain. All earlier blocks of the index
    /// then belong to the chain too. An index proves nothing by itself, so later blocks are not used.
    verified: Option<BlockRef>,
    /// Number of times that indexed blocks left the chain. A comparison that began before such a
    /// change is not used.
    reorganisations: u64,
}

impl FilterIndex {
    /// Opens the index in a folder, or prepares to create it.
    pub(super) fn open(folder: &Path, from: Option<u64>, chain_id: u64) -> Result<Self, String> {
        let path = folder.display();
        let failed = |error: IndexError| format!("{path}: {error}");
        super::create_folder(folder)?;
        let storage = Folder::new(folder);
        let index = match Index::open(storage.clone()) {
            Ok(index) => Some(index),
            Err(IndexError::NoIndex) => None,
            Err(error) => return Err(failed(error)),
        };
        let settings = match &index {
            None => Settings::new(&label(chain_id)).map_err(failed)?.with_block_hashes(),
            Some(index) => index.settings().clone(),
        };
        if !settings.has_block_hashes() {
            return Err(format!("{path}: {NO_HASHES}"));
        }
        // Other labels are the builder's own words.
        if (settings.label() == MAINNET) != (chain_id == 1) {
            let label = settings.label();
            return Err(format!(
                "{path}: the index has the label {label}, but the chain has the id {chain_id}"
            ));
        }
        let writer = Writer::open(storage.clone(), &settings).map_err(failed)?;
        let reader = RwLock::new(Reader { index, ..Reader::default() });
        let (writer, unreadable) = (Mutex::new(Some(writer)), Mutex::default());
        Ok(Self { folder: storage, from, settings, writer, reader, unreadable })
    }

    /// Unlocks the folder, unless blocks are added now.
    pub(super) fn close(&self) -> bool {
        self.writer.try_lock().map(|mut writer| *writer = None).is_ok()
    }

    fn read(&self) -> RwLockReadGuard<'_, Reader> {
        self.reader.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Reader> {
        self.reader.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, why: impl fmt::Display) -> String {
        format!("{}: {why}", self.folder.path().display())
    }

    fn of_other_branch(&self, number: u64, own: B256, found: B256) -> String {
        self.failed(format_args!(
            "block {number} of the index is {own}, but that of the chain is {found}: the index is not \
             used; remove the folder to build it anew"
        ))
    }

    /// Returns the numbers of the blocks that are part of the verified chain.
    pub(super) fn numbers(&self) -> Option<RangeInclusive<u64>> {
        self.read().numbers()
    }

    /// Returns the hash of a block of the verified chain.
    pub(super) fn hash(&self, number: u64) -> Option<B256> {
        let reader = self.read();
        let is_verified = reader.numbers().is_some_and(|numbers| numbers.contains(&number));
        is_verified.then(|| reader.hash(number)).flatten()
    }

    /// Returns the candidates among the indexed blocks of a range: those that may contain a log of the
    /// query. If the filters of some of these blocks cannot prove absence, all of them are candidates.
    /// `None` if the index has no block of the range. If there are more than `limit` candidates, only their
    /// number is returned.
    pub(super) fn candidates(
        &self,
        query: &CompiledQuery,
        filters: &FilterTrust,
        range: &RangeInclusive<u64>,
        limit: u64,
    ) -> Result<Option<Indexed>, String> {
        let reader = self.read();
        let (Some(index), Some(numbers)) = (&reader.index, reader.numbers()) else {
            return Ok(None);
        };
        let (from, to) = (*range.start().max(numbers.start()), *range.end().min(numbers.end()));
        if from > to {
            return Ok(None);
        }
        let bitmap = if filters.prove_absence(&(from..=to)) {
            Some(index.candidates(query, from..=to).map_err(|error| self.failed(error))?)
        } else {
            None
        };
        let count = bitmap.as_ref().map_or(to - from + 1, Candidates::count);
        if count > limit {
            return Ok(Some(Indexed { blocks: from..=to, count, candidates: Vec::new() }));
        }
        let numbers: Vec<u64> =
            bitmap.map_or_else(|| (from..=to).collect(), |bitmap| bitmap.iter().collect());
        let candidates = with_hashes(index, numbers).map_err(|why| self.failed(why))?;
        Ok(Some(Indexed { blocks: from..=to, count, candidates }))
    }

    /// Returns the reason why the index could not be read, if it differs from the previous reason.
    pub(super) fn unreadable(&self, why: String) -> Option<String> {
        let mut before = lock(&self.unreadable);
        (before.replace(why.clone()).as_ref() != Some(&why)).then_some(why)
    }

    /// Stops the use of the index until it is compared with the chain again, because blocks left the
    /// chain.
    pub(super) fn distrust(&self) {
        let mut reader = self.write();
        reader.verified = None;
        reader.reorganisations += 1;
    }

    /// Records that the block is part of the verified chain, and reads the newly written blocks.
    /// Returns `true` if no block was known to be part of it before. Does nothing if blocks left the
    /// chain since the count `since`.
    fn verified(&self, block: BlockRef, since: u64) -> Result<bool, String> {
        let mut reader = self.write();
        if reader.reorganisations != since {
            return Ok(false);
        }
        match &mut reader.index {
            Some(index) => drop(index.refresh().map_err(|error| self.failed(error))?),
            index @ None => {
                let opened = Index::open(self.folder.clone());
                *index = Some(opened.map_err(|error| self.failed(error))?);
            }
        }
        // The files were replaced by another index.
        match reader.hash(block.number) {
            Some(own) if own == block.hash => Ok(reader.verified.replace(block).is_none()),
            own => {
                reader.verified = None;
                Err(self.of_other_branch(block.number, own.unwrap_or_default(), block.hash))
            }
        }
    }
}

/// The indexed part of a range.
#[derive(Debug)]
pub(super) struct Indexed {
    /// The part of the range.
    pub(super) blocks: RangeInclusive<u64>,
    /// Number of candidates in this part.
    pub(super) count: u64,
    /// The candidates; empty if there are more than the limit.
    pub(super) candidates: Vec<BlockRef>,
}

impl Reader {
    fn numbers(&self) -> Option<RangeInclusive<u64>> {
        let first = *self.index.as_ref()?.numbers()?.start();
        Some(first..=self.verified?.number)
    }

    fn hash(&self, number: u64) -> Option<B256> {
        let (at, hash) = self.index.as_ref()?.next_known_hash(number).ok()?;
        (at == number).then_some(hash)
    }
}

/// The label that an index of Ethereum's main network has.
const MAINNET: &str = "mainnet";

fn label(chain_id: u64) -> String {
    if chain_id == 1 { MAINNET.to_owned() } else { format!("chain {chain_id}") }
}

impl Proven {
    /// Adds blocks to the index, if there is one, up to the newest final block.
    ///
    /// # Errors
    /// Returns the reason if blocks are missing afterwards.
    pub(super) fn add_to_index(&self) -> Result<(), String> {
        let (Some(index), Some(finalized)) = (&self.index, self.chain.finalized()) else {
            return Ok(());
        };
        self.add_final_blocks(index, finalized)
    }

    fn add_final_blocks(&self, index: &FilterIndex, finalized: BlockRef) -> Result<(), String> {
        let mut slot = lock(&index.writer);
        if self.stop.is_set() {
            return Ok(());
        }
        // An error leaves nothing in the slot, so that the next attempt opens the index again.
        let opened = match slot.take() {
            Some(writer) => Ok(writer),
            None => Writer::open(index.folder.clone(), &index.settings),
        };
        let mut writer = opened.map_err(|error| index.failed(error))?;
        let since = index.read().reorganisations;
        self.compare_index(index, &writer, finalized, since)?;
        if let Some(first) = index.from.filter(|from| *from > finalized.number)
            && writer.numbers().is_none()
        {
            let number = finalized.number;
            return Err(index.failed(format_args!(
                "the index begins at block {first}, and the newest final block is {number}"
            )));
        }
        while !self.stop.is_set() && index.read().reorganisations == since {
            let next = match writer.numbers() {
                Some(numbers) => *numbers.end() + 1,
                None => index.from.unwrap_or(finalized.number),
            };
            if next > finalized.number {
                break;
            }
            let last = finalized.number.min(next.saturating_add(PIECE - 1));
            let headers =
                self.headers(next..=last, &self.stop).map_err(|error| error.to_string())?;
            for (part, numbers) in headers.parts() {
                if let Err(error) = writer.append(&part.part(numbers)) {
                    index.distrust();
                    return Err(index.failed(error));
                }
            }
            writer.sync().map_err(|error| index.failed(error))?;
            let hash = headers.hash(last).ok_or("the headers end early")?;
            // From now on, the index is asked about these blocks.
            self.chain.forget(&(next..=last));
            let is_first = index.verified(BlockRef { number: last, hash }, since);
            self.note_index(index, is_first? || last - next + 1 == PIECE);
        }
        *slot = Some(writer);
        Ok(())
    }

    /// Compares the newest final block of the index with that of the chain.
    fn compare_index(
        &self,
        index: &FilterIndex,
        writer: &Writer<Folder>,
        finalized: BlockRef,
        since: u64,
    ) -> Result<(), String> {
        let Some(numbers) = writer.numbers() else { return Ok(()) };
        // The index of an earlier run may be ahead of what is final now.
        let number = finalized.number.min(*numbers.end());
        let (own, before) = {
            let reader = index.read();
            (reader.hash(number), reader.verified)
        };
        let Some(own) = own else { return Ok(()) };
        // It was compared before, and the chain gave up no block since then.
        if before.is_some_and(|before| before.number == number) {
            return Ok(());
        }
        // By the headers to the head: nodes may name final blocks that do not lead to it.
        let headers =
            self.headers(number..=number, &self.stop).map_err(|error| error.to_string())?;
        let found = headers.hash(number).ok_or("the headers end early")?;
        if found != own {
            index.distrust();
            return Err(index.of_other_branch(number, own, found));
        }
        let is_first = index.verified(BlockRef { number, hash: own }, since);
        self.note_index(index, is_first?);
        Ok(())
    }

    fn note_index(&self, index: &FilterIndex, is_event: bool) {
        if let Some(blocks) = index.numbers().filter(|_| is_event) {
            self.events.log(&RpcServerEvent::Indexed { blocks });
        }
    }
}
