//! Compact filters against binary fuse filters of the same blocks, as a client asks them.
//!
//! A client has to decode a whole compact filter before it knows its first value. A fuse filter
//! answers from three cells per script, so its cost does not depend on the size of the block. This
//! is the comparison that a network has to make before it serves the one or the other.
//!
//! Both kinds are keyed by the block hash: nobody can choose scripts that collide in every block.
//! The client hashes its scripts anew for each block, and checks the filter as it reads it:
//! [`Matcher`] decodes strictly, and the fuse filter has a checksum over its bytes. The scripts are
//! absent for every filter, so all of them are asked for.

use std::hint::black_box;
use std::ops::ControlFlow;

use chainsieve::btc::bip158::{Matcher, PreparedScripts, filter_key};
use chainsieve::hash::{SipKey, siphash_2_4};
use chainsieve::simd::Backend;
use chainsieve_filter::fuse::FuseFingerprint;
use chainsieve_filter::fuse::{BinaryFuse, BinaryFuse8, BinaryFuse16, BinaryFuse16Ref};
use chainsieve_filter::{Filter as _, KeyHasher, Portable as _};
use chainsieve_lanes::hash::Packed;
use testkit::timer::Report;
use testkit::{Rng, assert_rate};

use crate::filters::{self, Family, Filter};

/// About the number of mainnet blocks in January 2026.
const CHAIN: f64 = 930_000.0;
/// `M` of BIP158: an absent script matches a filter by chance once in this many blocks.
const M: f64 = 784_931.0;

/// A block's compact filter, and its fuse filters as bytes.
struct Block<'f> {
    compact: &'f Filter,
    key: SipKey,
    /// From SipHash-1-3, the hash that the package offers for each key.
    fuse: Vec<u8>,
    /// From SipHash-2-4, the hash of BIP158, for which there are lanes.
    fuse_2_4: Vec<u8>,
}

/// Scripts that none of a block's filters may contain, as each side takes them.
struct Question<'b> {
    block: &'b Block<'b>,
    scripts: Vec<Vec<u8>>,
    prepared: PreparedScripts,
    packed: Packed,
}

pub(crate) fn run(report: &mut Report) {
    for family in [filters::synthetic(), filters::block()] {
        let blocks: Vec<_> = family.filters().map(Block::new).collect();
        sizes(report, &family, &blocks);
        rates(&family, &blocks);
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

/// Sizes of the filters as sent, and the number of blocks that a rescan downloads in vain.
fn sizes(report: &mut Report, family: &Family, blocks: &[Block<'_>]) {
    let float = |number: usize| f64::from(u32::try_from(number).expect("few"));
    let compact = blocks.iter().map(|b| b.compact.ours.content.len()).sum();
    let fuse8 = blocks.iter().map(|b| fuse::<u8>(b.compact, b.key).len()).sum();
    let fuse16 = blocks.iter().map(|b| b.fuse.len()).sum();
    let kinds: [(&str, f64, usize); 4] = [
        ("compact", M, compact),
        ("fuse8", 256.0, fuse8),
        ("fuse16", 65_536.0, fuse16),
        // The second filter is asked only after a "maybe" of the first, so the rates multiply.
        ("fuse16 and fuse8", 16_777_216.0, fuse8 + fuse16),
    ];
    let elements = blocks.iter().map(|b| b.compact.gcs().num_elements() as usize).sum();
    for (kind, one_in, bytes) in kinds {
        let name = format!("{}, {kind}", family.name);
        report.value(&format!("{name}, size"), float(bytes) / float(blocks.len()), "bytes");
        report.value(&format!("{name}, per element"), float(bytes * 8) / float(elements), "bits");
        report.value(&format!("{name}, one false positive in"), one_in, "scripts");
        let in_vain = -(1_000.0 * (-1.0 / one_in).ln_1p()).exp_m1() * CHAIN;
        report.value(&format!("{name}, false blocks of 930,000, 1,000 scripts"), in_vain, "blocks");
    }
}

/// Checks that the filters have the rates that [`sizes`] states.
fn rates(family: &Family, blocks: &[Block<'_>]) {
    let scripts = filters::scripts(&mut Rng::new(16), 20_000);
    let prepared = scripts.iter().collect();
    let mut matcher = Matcher::new();
    let mut hits = [0; 4];
    for block in blocks {
        let of_8 = fuse::<u8>(block.compact, block.key);
        let of_8 = BinaryFuse8::decode(&of_8).expect("a filter");
        let [one, two] = [&block.fuse, &block.fuse_2_4].map(|bytes| view(bytes));
        let matching = matcher.matching(&block.compact.gcs(), &prepared).expect("a filter");
        hits[0] += matching.len();
        hits[1] += scripts.iter().filter(|script| of_8.contains(script)).count();
        hits[2] += scripts.iter().filter(|script| one.contains(script)).count();
        let may_contain = |script: &&Vec<u8>| two.contains_hash(siphash_2_4(block.key, script));
        hits[3] += scripts.iter().filter(may_contain).count();
    }
    let probes = (scripts.len() * blocks.len()) as u64;
    for (hits, rate) in hits.into_iter().zip([1.0 / M, 1.0 / 256.0, 1.0 / 65_536.0, 1.0 / 65_536.0])
    {
        assert_rate(&family.name, rate, hits as u64, probes);
    }
}

/// Filters asked for scripts that they do not contain.
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

/// Checks that each way to ask finds a script of the block at the end of the absent ones.
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
        // The hasher of this one is never used: the hashes are made outside of the filter.
        let fuse_2_4 = BinaryFuse16::build(&hashes, key.k0, hasher(key)).expect("few");
        let fuse_2_4 = fuse_2_4.encode().expect("the key is public");
        Self { compact, key, fuse: fuse::<u16>(compact, key), fuse_2_4 }
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

    /// Draws scripts until no filter of the block may contain one of them: no false positive ends
    /// a walk early.
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

    /// Reads the filter in place, and asks it for one script after the other.
    fn fuse(&self) -> bool {
        let filter = view(&self.block.fuse);
        // The key that the filter names has to be that of the block.
        assert_eq!(*filter.hasher(), hasher(self.block.key), "the block's key");
        self.scripts.iter().any(|script| filter.contains(script))
    }

    /// Reads the filter in place, and hashes the scripts in lanes, as the compact filters' matcher
    /// does.
    fn fuse_in_lanes(&self, backend: Backend) -> bool {
        let filter = view(&self.block.fuse_2_4);
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

/// Returns the bytes of a block's fuse filter. The first seed to try is the block's too, so that
/// everyone builds the same filter.
fn fuse<F: FuseFingerprint>(compact: &Filter, key: SipKey) -> Vec<u8> {
    let elements = compact.elements.iter().map(Vec::as_slice);
    let filter = BinaryFuse::<F>::build_from_keys(elements, key.k0, hasher(key)).expect("few");
    filter.encode().expect("the key is public")
}

fn view(bytes: &[u8]) -> BinaryFuse16Ref<'_> {
    BinaryFuse16Ref::view(bytes).expect("a filter, where the allocator aligns it")
}
