//! Compact filters against binary fuse filters of the same blocks: what a client computes for each
//! block, what it downloads, and how many blocks it downloads in vain.
//!
//! A client has to decode a compact filter before it can look up a script. A fuse filter answers
//! from three cells per script, so the cost of a query does not grow with the block.
//!
//! Both kinds are keyed by the block hash, as BIP158 does, so that nobody can choose scripts that
//! collide in the filters of many blocks. The client therefore hashes its scripts again for each
//! block. Each side checks the filter while it reads it: [`Matcher`] decodes strictly, and the fuse
//! filter has a checksum. The double SHA-256, by which a filter header commits to a filter, is
//! measured separately: both kinds need it.
//!
//! No filter contains any of the scripts, so that each side has to test all of them. A ratio above
//! 1 means that the fuse filter is faster.

use std::hint::black_box;
use std::ops::ControlFlow;

use chainsieve::btc::bip158::{Matcher, PreparedScripts, filter_key};
use chainsieve::hash::{SipKey, siphash_2_4};
use chainsieve::simd::Backend;
use chainsieve_filter::fuse::FuseFingerprint;
use chainsieve_filter::fuse::{BinaryFuse, BinaryFuse8, BinaryFuse16, BinaryFuse16Ref};
use chainsieve_filter::{Filter as _, KeyHasher, Portable as _};
use chainsieve_lanes::hash::Packed;
use chainsieve_lanes::hash::sha256d::{Message, sha256d_each};
use testkit::timer::Report;
use testkit::{Rng, assert_rate};

use crate::filters::{self, Family, Filter};

/// Approximate height of mainnet in January 2026.
const CHAIN: f64 = 930_000.0;
/// The parameter `M` of BIP158: the false-positive rate of a compact filter is 1 / `M`.
const M: f64 = 784_931.0;

/// A block's compact filter, and its fuse filters as encoded bytes.
struct Block<'f> {
    compact: &'f Filter,
    key: SipKey,
    /// Hashed by SipHash-1-3, with which `chainsieve-filter` hashes one key at a time.
    fuse16: Vec<u8>,
    /// Hashed by SipHash-2-4, the hash function of BIP158, which hashes many scripts in lanes.
    fuse16_2_4: Vec<u8>,
    fuse8: Vec<u8>,
}

/// Scripts that no filter of the block contains, in the form that each side takes.
struct Question<'b> {
    block: &'b Block<'b>,
    scripts: Vec<Vec<u8>>,
    prepared: PreparedScripts,
    packed: Packed,
}

pub(crate) fn run(report: &mut Report) {
    for family in [filters::synthetic(), filters::block()] {
        let blocks: Vec<_> = family.filters().map(Block::new).collect();
        check_rates(&family, &blocks);
        sizes(report, &family, &blocks);
        commitments(report, &family, &blocks);
        let cells = if report.is_quick() {
            [(10, 128), (100, 32), (1_000, 16), (10_000, 4)]
        } else {
            [(10, 1_024), (100, 128), (1_000, 64), (10_000, 16)]
        };
        for (count, questions) in cells {
            absent(report, &family, &blocks, count, questions);
        }
    }
}

/// Checks that the filters have the rates that [`sizes`] prints.
fn check_rates(family: &Family, blocks: &[Block<'_>]) {
    let scripts = filters::scripts(&mut Rng::new(16), 20_000);
    let prepared = scripts.iter().collect();
    let mut matcher = Matcher::new();
    let mut hits = [0; 5];
    for block in blocks {
        let [fuse16, fuse16_2_4] = [&block.fuse16, &block.fuse16_2_4].map(|bytes| view(bytes));
        let fuse8 = BinaryFuse8::decode(&block.fuse8).expect("a filter");
        hits[0] += matcher.matching(&block.compact.gcs(), &prepared).expect("a filter").len();
        for script in &scripts {
            let [in_8, in_16] = [fuse8.contains(script), fuse16.contains(script)];
            let in_16_2_4 = fuse16_2_4.contains_hash(siphash_2_4(block.key, script));
            for (hits, hit) in hits[1..].iter_mut().zip([in_8, in_16, in_16_2_4, in_8 && in_16]) {
                *hits += usize::from(hit);
            }
        }
    }
    let probes = (scripts.len() * blocks.len()) as u64;
    for (hits, one_in) in hits.into_iter().zip([M, 256.0, 65_536.0, 65_536.0, 16_777_216.0]) {
        assert_rate(&family.name, 1.0 / one_in, hits as u64, probes);
    }
}

/// Measures sizes of filters as sent, and computes how many blocks a rescan downloads in vain.
fn sizes(report: &mut Report, family: &Family, blocks: &[Block<'_>]) {
    let float = |number: usize| f64::from(u32::try_from(number).expect("few"));
    let compact = blocks.iter().map(|block| block.compact.ours.content.len()).sum();
    let fuse8 = blocks.iter().map(|block| block.fuse8.len()).sum();
    let fuse16 = blocks.iter().map(|block| block.fuse16.len()).sum();
    let kinds = [
        ("compact", M, compact),
        ("fuse8", 256.0, fuse8),
        ("fuse16", 65_536.0, fuse16),
        // Two filters with different seeds: the rates multiply, as `check_rates` shows.
        ("fuse16 and fuse8", 16_777_216.0, fuse8 + fuse16),
    ];
    let elements = blocks.iter().map(|block| block.compact.gcs().num_elements() as usize).sum();
    for (kind, one_in, bytes) in kinds {
        let name = format!("{}, {kind}", family.name);
        report.value(&format!("{name}, size"), float(bytes) / float(blocks.len()), "bytes");
        report.value(&format!("{name}, per element"), float(bytes * 8) / float(elements), "bits");
        report.value(&format!("{name}, one false positive in"), one_in, "scripts");
        let in_vain = -(1_000.0 * (-1.0 / one_in).ln_1p()).exp_m1() * CHAIN;
        report.value(&format!("{name}, 1,000 scripts, 930,000 blocks, in vain"), in_vain, "blocks");
    }
}

/// Measures what a client computes before any query, to check a filter against its header, and to
/// read a fuse filter.
fn commitments(report: &mut Report, family: &Family, blocks: &[Block<'_>]) {
    let compact = blocks.iter().map(|block| [&block.compact.ours.content[..], &[], &[]]).collect();
    let fuse16 = blocks.iter().map(|block| [&block.fuse16[..], &[], &[]]).collect();
    let both: [(&str, Vec<Message<'_>>); 2] = [("compact", compact), ("fuse16", fuse16)];
    for (kind, messages) in &both {
        for backend in Backend::available() {
            let name = format!("{}, {kind}, double SHA-256, {backend:?}", family.name);
            report.figure(&name, blocks.len(), || sha256d_each(backend, black_box(messages)));
        }
    }
    let name = format!("{}, fuse16, read in place", family.name);
    report.figure(&name, blocks.len(), || {
        black_box(blocks).iter().map(|block| view(&block.fuse16).len()).sum::<u64>()
    });
}

/// Measures queries for scripts that no filter contains.
fn absent(
    report: &mut Report,
    family: &Family,
    blocks: &[Block<'_>],
    count: usize,
    questions: usize,
) {
    let mut random = Rng::new(count as u64);
    let question = |block| Question::absent(block, || filters::scripts(&mut random, count));
    let questions: Vec<_> = blocks.iter().cycle().take(questions).map(question).collect();
    let name = format!("{}, {count} absent scripts", family.name);

    check(&questions);
    let fuse = || black_box(&questions).iter().filter(|q| q.fuse()).count();
    let peer = || black_box(&questions).iter().filter(|q| q.peer()).count();
    assert_eq!((fuse(), peer()), (0, 0), "none is there");
    report.ratio(&format!("{name}, fuse16 against bitcoin's compact"), questions.len(), fuse, peer);
    for backend in Backend::available() {
        let mut matcher = Matcher::new().with_backend(backend);
        let mut compact =
            || black_box(&questions).iter().filter(|q| q.compact(&mut matcher)).count();
        let lanes = || black_box(&questions).iter().filter(|q| q.fuse_in_lanes(backend)).count();
        assert_eq!((compact(), lanes()), (0, 0), "none is there");
        let name = |fuse: &str| format!("{name}, {fuse} against our compact, {backend:?}");
        report.ratio(&name("fuse16"), questions.len(), fuse, &mut compact);
        report.ratio(&name("fuse16 hashed in lanes"), questions.len(), lanes, &mut compact);
    }
}

/// Checks that every side finds a script of the block after the absent ones.
fn check(questions: &[Question<'_>]) {
    for (at, question) in questions.iter().enumerate() {
        let elements = &question.block.compact.elements;
        let mut scripts = question.scripts.clone();
        scripts.push(elements[at % elements.len()].clone());
        let question = Question::new(question.block, scripts);
        assert!(question.fuse() && question.peer(), "one is there");
        for backend in Backend::available() {
            let mut matcher = Matcher::new().with_backend(backend);
            assert!(question.compact(&mut matcher), "one is there, {backend:?}");
            assert!(question.fuse_in_lanes(backend), "one is there, {backend:?}");
        }
    }
}

impl<'f> Block<'f> {
    fn new(compact: &'f Filter) -> Self {
        let key = filter_key(&compact.ours.block_hash);
        let hashes = compact.elements.iter().map(|element| siphash_2_4(key, element));
        let hashes: Vec<_> = hashes.collect();
        // Here the hasher only records the key: `Packed` computes the hashes.
        let fuse16_2_4 = BinaryFuse16::build_with_seed(&hashes, hasher(key), key.k0).expect("few");
        let fuse16_2_4 = fuse16_2_4.encode().expect("the key is public");
        // Filters with the same seed would have the same false positives.
        let (fuse16, fuse8) = (fuse::<u16>(compact, key, key.k0), fuse::<u8>(compact, key, key.k1));
        Self { compact, key, fuse16, fuse16_2_4, fuse8 }
    }
}

impl<'b> Question<'b> {
    fn new(block: &'b Block<'b>, scripts: Vec<Vec<u8>>) -> Self {
        let prepared = scripts.iter().collect();
        let mut packed = Packed::default();
        for (index, script) in (0..).zip(&scripts) {
            packed.push(index, script);
        }
        Self { block, scripts, prepared, packed }
    }

    /// Draws scripts until no filter of the block matches, so that no false positive ends a walk
    /// early.
    fn absent(block: &'b Block<'b>, mut scripts: impl FnMut() -> Vec<Vec<u8>>) -> Self {
        loop {
            let question = Self::new(block, scripts());
            let may_contain =
                question.peer() || question.fuse() || question.fuse_in_lanes(Backend::SCALAR);
            if !may_contain {
                return question;
            }
        }
    }

    fn compact(&self, matcher: &mut Matcher) -> bool {
        matcher.match_any(&self.block.compact.gcs(), &self.prepared).expect("a filter")
    }

    fn peer(&self) -> bool {
        self.block.compact.peer_matches(&self.scripts)
    }

    /// Reads the filter in place, and hashes and tests one script after the other.
    fn fuse(&self) -> bool {
        let filter = view(&self.block.fuse16);
        // A server must not choose the key.
        assert_eq!(*filter.hasher(), hasher(self.block.key), "the block's key");
        self.scripts.iter().any(|script| filter.contains(script))
    }

    /// Reads the filter in place, and hashes the scripts in lanes, as [`Matcher`] does.
    fn fuse_in_lanes(&self, backend: Backend) -> bool {
        let filter = view(&self.block.fuse16_2_4);
        let key = self.block.key;
        assert_eq!(*filter.hasher(), hasher(key), "the block's key");
        let all = 0..u32::try_from(self.scripts.len()).expect("few");
        let script = |index: u32| self.scripts[index as usize].as_slice();
        let end = self.packed.hash_each(backend, key, all, script, |_, hashes| {
            let may_contain = hashes.iter().any(|hash| filter.contains_hash(*hash));
            if may_contain { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        end.is_break()
    }
}

/// Returns the hasher of a block's fuse filter.
fn hasher(key: SipKey) -> KeyHasher {
    KeyHasher::siphash_1_3([key.k0, key.k1])
}

/// Returns the encoded fuse filter of a block. Everyone who builds it gets the same bytes.
fn fuse<F: FuseFingerprint>(compact: &Filter, key: SipKey, seed: u64) -> Vec<u8> {
    let elements = compact.elements.iter().map(Vec::as_slice);
    let mut hashes = Vec::new();
    hasher(key).hash_each(elements, &mut hashes);
    let filter = BinaryFuse::<F>::build_with_seed(&hashes, hasher(key), seed).expect("few");
    filter.encode().expect("the key is public")
}

fn view(bytes: &[u8]) -> BinaryFuse16Ref<'_> {
    BinaryFuse16Ref::view(bytes).expect("a filter, aligned by the allocator")
}
