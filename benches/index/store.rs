//! The index of a made-up chain on disk, built once from headers that are linked by hash.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use alloy_consensus::Header;
use alloy_primitives::{B256, Bloom, keccak256};
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::index::{Folder, Index, Settings, Writer};

use crate::blooms::Filter;
use crate::mapped::MappedFolder;

/// Label of the index. The number names the distribution of the blooms: another distribution needs
/// another index.
const LABEL: &str = "bench 1";
/// Number of headers that are given to the writer at once: 32 sections, the largest segment.
const STRETCH: usize = 32 * 8_192;

/// A folder with an index of all blocks.
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    /// The times of building, or `None` if the index was there.
    pub(crate) built: Option<Built>,
    is_kept: bool,
}

pub(crate) struct Built {
    /// Time for decoding, hashing and linking the headers.
    pub(crate) verified: Duration,
    /// Time for writing the index until it is durable.
    pub(crate) written: Duration,
}

impl Store {
    /// Returns the index of these blooms, in the folder that `CHAINSIEVE_BENCH_FOLDER` names, or in
    /// one that is removed at the end.
    pub(crate) fn open(name: &str, filters: &[Filter]) -> Self {
        let kept = std::env::var_os("CHAINSIEVE_BENCH_FOLDER").map(PathBuf::from);
        let is_kept = kept.is_some();
        let parent = kept.unwrap_or_else(|| {
            std::env::temp_dir().join(format!("chainsieve-bench-{}", std::process::id()))
        });
        let path = parent.join(format!("{name}-{}", filters.len()));
        if is_kept && is_whole(&path, filters.len()) {
            return Self { path, built: None, is_kept };
        }
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let built = Some(build(&path, filters));
        Self { path, built, is_kept }
    }

    pub(crate) fn index(&self) -> Index<MappedFolder> {
        Index::open(MappedFolder::new(&self.path)).expect("an index")
    }

    /// Returns the size of all files, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.files().map(|path| std::fs::metadata(path).expect("a file").len()).sum()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(&self.path).expect("the folder of the index");
        entries.map(|entry| entry.expect("an entry").path())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_dir_all(&self.path);
            let _ = self.path.parent().map(std::fs::remove_dir);
        }
    }
}

fn is_whole(path: &Path, blocks: usize) -> bool {
    Index::open(Folder::new(path)).is_ok_and(|index| {
        index.settings().label() == LABEL && index.numbers() == Some(0..=blocks as u64 - 1)
    })
}

fn build(path: &Path, filters: &[Filter]) -> Built {
    let settings = Settings::new(LABEL).expect("a label");
    let mut writer = Writer::open(Folder::new(path), &settings).expect("a new index");
    let (mut chain, mut parent) = (LinkedHeaders::new(), B256::ZERO);
    let mut built = Built { verified: Duration::ZERO, written: Duration::ZERO };
    let mut rlp = Vec::new();
    for (stretch, filters) in filters.chunks(STRETCH).enumerate() {
        rlp.clear();
        for (number, filter) in (stretch * STRETCH..).zip(filters) {
            parent = link(parent, number as u64, filter, &mut rlp);
        }
        let started = Instant::now();
        chain = chain.following();
        chain.extend_from_rlp(&rlp).expect("linked headers");
        built.verified += started.elapsed();
        let started = Instant::now();
        let _ = writer.append(&chain).expect("the next headers");
        writer.sync().expect("a durable index");
        built.written += started.elapsed();
    }
    built
}

/// Appends the RLP of a block's header to `rlp`, and returns the header's hash.
pub(crate) fn link(parent_hash: B256, number: u64, filter: &Filter, rlp: &mut Vec<u8>) -> B256 {
    let header = Header {
        parent_hash,
        logs_bloom: Bloom::from(*filter),
        number,
        gas_limit: 30_000_000,
        gas_used: number.wrapping_mul(1_299_709) % 30_000_000,
        timestamp: 1_438_269_988 + number * 12,
        ..Default::default()
    };
    let before = rlp.len();
    alloy_rlp::Encodable::encode(&header, rlp);
    keccak256(&rlp[before..])
}
