//! An index to which headers are added and from which they are rolled back, compared with a list of
//! the same headers.

use chainsieve::eth::index::{Index, IndexError, Settings, Writer};
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::eth::scan;
use chainsieve::simd::Backend;

use testkit::Rng;
use testkit::eth::linked_headers::linked_headers;
use testkit::eth::random_blooms::{blooms, clauses};
use testkit::eth::recording_storage::Recorder;

use alloy_primitives::B256;

/// Number of blocks in a section.
const SECTION: usize = 8192;
/// Number of the newest blocks that stay unsealed.
const CONFIRMATIONS: usize = 70;

/// The headers that the index must have.
struct Model {
    first: u64,
    blooms: Vec<[u8; 256]>,
    hashes: Vec<B256>,
}

impl Model {
    fn last(&self) -> u64 {
        self.first + self.blooms.len() as u64 - 1
    }

    /// Queries a few ranges, among them ranges around boundaries. Returns the number of candidates.
    fn check(&self, index: &Index<Recorder>, rng: &mut Rng, backend: Backend) -> usize {
        assert_eq!(index.numbers(), Some(self.first..=self.last()));
        let count = self.blooms.len();
        let sealed = usize::try_from(index.sealed()).expect("few");
        assert!(sealed.is_multiple_of(SECTION) && sealed <= count);
        let around = |at: usize| (at.saturating_sub(1).min(count - 1), (at + 1).min(count - 1));
        let from = rng.below(count);
        let to = from + rng.below(count - from);
        let mut found = 0;
        for (from, to) in [(0, count - 1), (from, to), around(sealed), around(SECTION)] {
            let query = CompiledQuery::new(clauses(rng));
            let scanned = scan::candidates_on(backend, &query, &self.blooms[from..=to]);
            let range = self.first + from as u64..=self.first + to as u64;
            let expected = scanned.iter().map(|at| range.start() + *at as u64);
            let candidates = index.candidates_on(backend, &query, range.clone()).expect("sound");
            assert!(candidates.iter().eq(expected), "{backend:?} {range:?} {query:?}");
            let counted = index.count(&query, range).expect("sound");
            assert_eq!((counted, candidates.count()), (scanned.len() as u64, counted));
            found += scanned.len();
        }
        let at = rng.below(count);
        let (anchor, hash) = index.next_known_hash(self.first + at as u64).expect("sound");
        let to = usize::try_from(anchor - self.first).expect("one of them");
        assert_eq!(hash, self.hashes[to]);
        assert!((at..at + SECTION).contains(&to) && (at < sealed || at == to));
        assert!(!index.settings().has_block_hashes() || at == to, "the block itself");
        found
    }
}

/// Appends, rolls back, syncs and refreshes in random order.
#[test]
fn an_index_has_what_was_synced_last() {
    let mut rng = Rng::new(17);
    let mut found = 0;
    for round in 0..4 {
        let folder = Recorder::default();
        let mut settings = Settings::new("synthetic").expect("a label");
        if round % 2 == 1 {
            settings = settings.with_block_hashes();
        }
        let open = || {
            let writer = Writer::open(folder.clone(), &settings).expect("sound");
            writer.with_confirmations(CONFIRMATIONS as u64)
        };
        let mut writer = open();
        let first = *rng.pick(&[0, 1, 12_345_678]);
        let mut model = Model { first, blooms: Vec::new(), hashes: Vec::new() };
        let mut readers: Vec<Index<Recorder>> = Vec::new();
        assert_eq!(Index::open(folder.clone()).map(drop), Err(IndexError::NoIndex));
        for step in 0..14 {
            // Roll back fewer blocks than stay unsealed, then append.
            let back = rng.below(CONFIRMATIONS).min(model.blooms.len().saturating_sub(1));
            if back > 0 && step % 2 == 0 {
                let keep = model.blooms.len() - back;
                model.blooms.truncate(keep);
                model.hashes.truncate(keep);
                assert_eq!(writer.roll_back(model.last()), Ok(back as u64));
            }
            let count = match step {
                0 => 1,
                1 => SECTION + CONFIRMATIONS - 2,
                2 => 1 + rng.below(3),
                3 => 2 * SECTION + 5,
                _ => *rng.pick(&[1, 10, 511, SECTION, 2 * SECTION + 5]),
            };
            let filters = blooms(&mut rng, count);
            let parent = model.hashes.last().copied().unwrap_or_default();
            let next = first + model.blooms.len() as u64;
            let chain = linked_headers(next, parent, step, &filters);
            writer.append(&chain).expect("it follows");
            model.hashes.extend(chain.blocks().map(|block| block.hash));
            model.blooms.extend(filters);
            writer.sync().expect("a folder in memory");
            if step % 5 == 4 {
                drop(writer);
                writer = open();
            }
            for reader in &mut readers {
                assert_eq!(reader.refresh(), Ok(true));
                assert_eq!(reader.refresh(), Ok(false));
            }
            if step < 4 {
                let opened = Index::open(folder.read_as_slices(step % 2 == 0));
                readers.push(opened.expect("sound"));
            }
            for reader in &readers {
                for backend in Backend::available() {
                    found += model.check(reader, &mut rng, backend);
                }
            }
        }
        assert!(readers[0].sealed() > 2 * SECTION as u64);
    }
    assert!(found > 100_000, "answers: {found}");
}

/// Readers that do not refresh keep the state that they opened, whatever the writer seals and
/// removes.
#[test]
fn a_reader_keeps_what_it_opened() {
    let mut rng = Rng::new(18);
    let folder = Recorder::default();
    let settings = Settings::new("synthetic").expect("a label");
    let mut writer = Writer::open(folder.clone(), &settings).expect("new");
    let filters = blooms(&mut rng, 3 * SECTION);
    let chain = linked_headers(0, B256::ZERO, 0, &filters);
    writer.append(&chain).expect("it follows");
    writer.sync().expect("in memory");
    let reader = Index::open(folder.read_as_slices(false)).expect("sound");
    let hashes: Vec<_> = chain.blocks().map(|block| block.hash).collect();
    let model = Model { first: 0, blooms: filters.clone(), hashes };
    let more = linked_headers(3 * SECTION as u64, model.hashes[3 * SECTION - 1], 0, &filters);
    writer.append(&more).expect("it follows");
    writer.sync().expect("in memory");
    assert!(folder.now().get("00000000-04.segment").is_some(), "segments were merged");
    assert!(folder.now().get("00000000-02.segment").is_none(), "and the old ones removed");
    let mut found = 0;
    for _ in 0..5 {
        found += model.check(&reader, &mut rng, Backend::best());
    }
    assert!(found > 100);
}
