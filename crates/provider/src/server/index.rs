//! An index of the filters of final blocks, in a folder. It is written while blocks become final, and
//! read in place of the headers of past blocks.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::index::{Folder, Index, IndexError, Settings, Writer};
use chainsieve::eth::log_query::CompiledQuery;

use super::Proven;
use super::events::RpcServerEvent;

/// Number of blocks that are added at once. An end of the process loses no more than these.
const PIECE: u64 = 8192;

/// Reason why an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterIndexError {
    #[error("{path}: {error}")]
    Index { path: String, error: IndexError },
    #[error("{path}: {error}")]
    Folder { path: String, error: std::io::Error },
    #[error("{path}: the index has no block hashes: build it with them (--block-hashes)")]
    NoHashes { path: String },
    #[error("{path}: the index has the label {label}, but the chain has the id {chain_id}")]
    OtherChain { path: String, label: String, chain_id: u64 },
    #[error("{path}: block {number} of the index is {own}, but that of the chain is {found}")]
    OtherBranch { path: String, number: u64, own: B256, found: B256 },
}

/// The index, open for reading and for writing.
#[derive(Debug)]
pub(super) struct FilterIndex {
    folder: Folder,
    /// First block of an index that has none yet; the newest final block if it is not given.
    from: Option<u64>,
    writer: Mutex<Writer<Folder>>,
    reader: RwLock<Reader>,
}

#[derive(Debug, Default)]
struct Reader {
    /// `None` until the folder has an index.
    index: Option<Index<Folder>>,
    /// The last block that is known to be part of the verified chain, and with it all earlier ones. An
    /// index proves nothing by itself, so later blocks are not used.
    verified: Option<BlockRef>,
}

impl FilterIndex {
    /// Opens the index in a folder, or prepares to create it.
    pub(super) fn open(
        folder: &Path,
        from: Option<u64>,
        chain_id: u64,
    ) -> Result<Self, FilterIndexError> {
        let path = || folder.display().to_string();
        let failed = |error| FilterIndexError::Index { path: path(), error };
        let created = std::fs::create_dir_all(folder);
        created.map_err(|error| FilterIndexError::Folder { path: path(), error })?;
        let folder = Folder::new(folder);
        let index = match Index::open(folder.clone()) {
            Ok(index) => Some(index),
            Err(IndexError::NoIndex) => None,
            Err(error) => return Err(failed(error)),
        };
        let settings = match &index {
            None => Settings::new(&label(chain_id)).map_err(failed)?.with_block_hashes(),
            Some(index) => index.settings().clone(),
        };
        if !settings.has_block_hashes() {
            return Err(FilterIndexError::NoHashes { path: path() });
        }
        // Other labels are the builder's own words.
        if (settings.label() == MAINNET) != (chain_id == 1) {
            let label = settings.label().to_owned();
            return Err(FilterIndexError::OtherChain { path: path(), label, chain_id });
        }
        let writer = Mutex::new(Writer::open(folder.clone(), &settings).map_err(failed)?);
        Ok(Self { folder, from, writer, reader: RwLock::new(Reader { index, verified: None }) })
    }

    fn writer(&self) -> MutexGuard<'_, Writer<Folder>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: IndexError) -> FilterIndexError {
        FilterIndexError::Index { path: self.folder.path().display().to_string(), error }
    }

    /// Returns the numbers of the blocks that are part of the verified chain.
    pub(super) fn numbers(&self) -> Option<RangeInclusive<u64>> {
        self.reader.read().unwrap_or_else(PoisonError::into_inner).numbers()
    }

    /// Returns the hash of a block of the verified chain.
    pub(super) fn hash(&self, number: u64) -> Option<B256> {
        let reader = self.reader.read().unwrap_or_else(PoisonError::into_inner);
        let is_verified = reader.numbers().is_some_and(|numbers| numbers.contains(&number));
        is_verified.then(|| reader.hash(number)).flatten()
    }

    /// Returns the blocks of a range that may contain a log of the query: all of them where filters
    /// prove nothing.
    pub(super) fn candidates(
        &self,
        query: &CompiledQuery,
        profile: &ChainProfile,
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<BlockRef>, FilterIndexError> {
        let reader = self.reader.read().unwrap_or_else(PoisonError::into_inner);
        let index = reader.index.as_ref().ok_or_else(|| self.failed(IndexError::Empty))?;
        let is_sound = |number: u64| profile.at(number).bloom.proves_absence();
        let numbers: Vec<u64> = if is_sound(*blocks.start()) && is_sound(*blocks.end()) {
            let found = index.candidates(query, blocks).map_err(|error| self.failed(error))?;
            found.iter().collect()
        } else {
            blocks.collect()
        };
        // Hashes are read from one section of the index at a time.
        let (mut first, mut hashes) = (0, Vec::new());
        let hash = |number: u64| {
            let place = |first: u64| usize::try_from(number.checked_sub(first)?).ok();
            if place(first).is_none_or(|at| at >= hashes.len()) {
                let around = index.hashes_around(number).map_err(|error| self.failed(error))?;
                let path = || self.folder.path().display().to_string();
                (first, hashes) =
                    around.ok_or_else(|| FilterIndexError::NoHashes { path: path() })?;
            }
            let hash = place(first).and_then(|at| hashes.get(at)).copied().unwrap_or_default();
            Ok(BlockRef { number, hash })
        };
        numbers.into_iter().map(hash).collect()
    }

    /// Stops reading until the index is compared with the chain again.
    pub(super) fn distrust(&self) {
        self.reader.write().unwrap_or_else(PoisonError::into_inner).verified = None;
    }

    /// Notes that the block is part of the verified chain, and reads what was written. Returns `true`
    /// if no block was known to be one before.
    fn verified(&self, block: BlockRef) -> Result<bool, FilterIndexError> {
        let mut reader = self.reader.write().unwrap_or_else(PoisonError::into_inner);
        match &mut reader.index {
            Some(index) => drop(index.refresh().map_err(|error| self.failed(error))?),
            index @ None => {
                let opened = Index::open(self.folder.clone());
                *index = Some(opened.map_err(|error| self.failed(error))?);
            }
        }
        Ok(reader.verified.replace(block).is_none())
    }
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
        let mut writer = index.writer();
        self.compare_index(index, &writer, finalized)?;
        while !self.stop.is_set() {
            let next = match writer.numbers() {
                Some(numbers) => *numbers.end() + 1,
                None => index.from.unwrap_or(finalized.number),
            };
            if next > finalized.number {
                break;
            }
            let last = finalized.number.min(next.saturating_add(PIECE - 1));
            let headers = self.headers(next..=last).map_err(|error| error.to_string())?;
            for (part, numbers) in headers.parts() {
                let added = writer.append(&part.part(numbers));
                added.map_err(|error| index.failed(error).to_string())?;
            }
            writer.sync().map_err(|error| index.failed(error).to_string())?;
            let hash = headers.hash(last).ok_or("the headers end early")?;
            let is_first = index.verified(BlockRef { number: last, hash });
            let is_first = is_first.map_err(|error| error.to_string())?;
            self.note_index(index, is_first || last - next + 1 == PIECE);
        }
        Ok(())
    }

    /// Compares the last block of the index with that of the chain.
    fn compare_index(
        &self,
        index: &FilterIndex,
        writer: &Writer<Folder>,
        finalized: BlockRef,
    ) -> Result<(), String> {
        let Some(numbers) = writer.numbers() else { return Ok(()) };
        // The index of an earlier run may be ahead of what is final now.
        let number = finalized.number.min(*numbers.end());
        let (own, before) = {
            let reader = index.reader.read().unwrap_or_else(PoisonError::into_inner);
            (reader.hash(number), reader.verified)
        };
        let Some(own) = own else { return Ok(()) };
        let found = if number == finalized.number {
            Some(finalized.hash)
        } else if before.is_some_and(|before| before.number == number) {
            // It was compared before; nodes that name final blocks may have changed their minds.
            self.chain.hash(number).or(Some(own))
        } else {
            self.headers(number..=number).map_err(|error| error.to_string())?.hash(number)
        };
        match found {
            Some(found) if found != own => {
                index.distrust();
                let path = index.folder.path().display().to_string();
                Err(FilterIndexError::OtherBranch { path, number, own, found }.to_string())
            }
            _ => {
                let block = BlockRef { number, hash: own };
                let is_first = index.verified(block).map_err(|error| error.to_string())?;
                self.note_index(index, is_first);
                Ok(())
            }
        }
    }

    fn note_index(&self, index: &FilterIndex, is_event: bool) {
        let Some(blocks) = index.numbers() else { return };
        self.metrics.set_index(&blocks);
        if is_event {
            self.events.log(&RpcServerEvent::Indexed { blocks });
        }
    }
}
