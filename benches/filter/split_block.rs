//! Compares split-block filters with the fastest Bloom filter package at the same measured rate,
//! and with the package for Parquet's layout. The hashes are computed beforehand, so hashing is not
//! measured.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are converted to rates, and rates to sizes"
)]

use chainsieve_filter::split_block::{
    BlockShape, SplitBlockFilter, SplitBlockFilter512, SplitBlockFilter512Ref,
};
use chainsieve_filter::{Filter, Insert, KeyHasher, Portable};
use fastbloom::BloomFilter;
use foldhash::fast::FixedState;

use crate::keys::{self, Scripts, Turns};
use testkit::timer::Report;

/// Number of hashes in one batch query: the answers fit into the first-level cache together with
/// the filter's lines.
const BATCH: usize = 4096;

pub(crate) fn run(report: &mut Report) {
    for n in keys::sizes(report) {
        let (present, absent) = (keys::present(n), keys::absent(keys::probes(n)));
        // Sizes for rates of 0.1 % and 1 %.
        let bits_per_key: &[f64] = if report.is_quick() { &[15.72] } else { &[15.72, 10.1] };
        for bits_per_key in bits_per_key {
            against_fastbloom(report, *bits_per_key, &present, &absent);
        }
        parquet(report, &present, &absent);
        hashed(report, &present);
    }
}

fn against_fastbloom(report: &mut Report, bits_per_key: f64, present: &[u64], absent: &[u64]) {
    let n = present.len();
    let mut ours = filled::<chainsieve_filter::split_block::Bits512>(bits_per_key, present);
    let rate = found(&ours, absent) as f64 / absent.len() as f64;
    let (mut peer, peer_rate) = fastbloom_at(rate, present, absent);
    let asked = &present[..n.min(absent.len())];
    assert_eq!((found(&ours, asked), found_by_peer(&peer, asked)), (asked.len(), asked.len()));

    let name = |what| format!("split-block 512, {n} keys at {:.2} %, {what}", rate * 100.0);
    report.value(&name("bits per key"), ours.num_bits() as f64 / n as f64, "bits");
    report.value(&name("rate"), rate * 100.0, "%");
    report.value(&name("rate of fastbloom"), peer_rate * 100.0, "%");
    report.value(&name("bits per key of fastbloom"), peer.num_bits() as f64 / n as f64, "bits");
    for (what, asked) in [("absent", absent), ("present", present)] {
        let (mut batch, mut single, mut theirs) = turns(asked);
        let per = batch.len();
        let peers = || found_by_peer(&peer, theirs.next());
        report.ratio(&name(what), per, || found(&ours, batch.next()), peers);
        report.figure(&format!("{}, one by one", name(what)), per, || {
            single.next().iter().filter(|hash| ours.contains_hash(**hash)).count()
        });
    }
    // Our filter requests huge pages. A filter that is mapped from a file has no huge pages, so
    // small pages are measured too.
    let small_pages = Copied::of(&ours);
    let view = small_pages.view();
    let (mut batch, _, mut theirs) = turns(absent);
    let peers = || found_by_peer(&peer, theirs.next());
    let per = batch.len();
    report.ratio(&name("absent, in small pages"), per, || found(&view, batch.next()), peers);
    // Insert the same keys again into the full filters: neither filter checks whether a bit is set
    // before setting it.
    let (mut batch, _, mut theirs) = turns(present);
    let insert = || ours.insert_batch(batch.next()).expect("no limit");
    report.ratio(&name("inserts"), theirs.len(), insert, || {
        theirs.next().iter().filter(|hash| peer.insert_hash(**hash)).count()
    });
}

fn turns(hashes: &[u64]) -> (Turns<'_>, Turns<'_>, Turns<'_>) {
    (Turns::of(hashes), Turns::of(hashes), Turns::of(hashes))
}

/// Measures Parquet's layout at 12 bits per key, which has a rate of 0.5 %.
fn parquet(report: &mut Report, present: &[u64], absent: &[u64]) {
    let n = present.len();
    let mut ours = filled::<chainsieve_filter::split_block::Bits256>(12.0, present);
    let mut peer = sbbf_rs_safe::Filter::new(12, n);
    for hash in present {
        peer.insert_hash(*hash);
    }
    let peer_found = |asked: &[u64]| asked.iter().filter(|hash| peer.contains_hash(**hash)).count();
    assert_eq!(ours.num_bits() as usize, peer.as_bytes().len() * 8, "the same size");
    assert_eq!(found(&ours, absent), peer_found(absent), "the same bits");
    let name = |what| format!("split-block 256, {n} keys at 12 bits, {what}");
    for (what, asked) in [("absent", absent), ("present", present)] {
        let (mut batch, _, mut theirs) = turns(asked);
        let per = batch.len();
        let peers = || peer_found(theirs.next());
        report.ratio(&name(what), per, || found(&ours, batch.next()), peers);
    }
    let (mut batch, _, mut theirs) = turns(present);
    let insert = || ours.insert_batch(batch.next()).expect("no limit");
    report.ratio(&name("inserts"), theirs.len(), insert, || {
        theirs.next().iter().filter(|hash| peer.insert_hash(**hash)).count()
    });
}

/// Measures hashing and query together: scripts that are absent, one by one.
fn hashed(report: &mut Report, present: &[u64]) {
    let scripts = Scripts::new(0..1 << 16);
    for hasher in [KeyHasher::xxh3(0), KeyHasher::random()] {
        let num_blocks = blocks(present.len(), 15.72, 512);
        let mut filter = SplitBlockFilter512::with_blocks(num_blocks, hasher).expect("room");
        filter.insert_batch(present).expect("no limit");
        let name = format!(
            "split-block 512, {} keys at 0.10 %, a script by {}",
            present.len(),
            hasher.name()
        );
        report.figure(&name, scripts.len(), || {
            scripts.iter().filter(|script| filter.contains(script)).count()
        });
    }
}

/// A copy of a filter's bytes in ordinary memory, aligned to a cache line.
struct Copied {
    memory: Vec<u64>,
    start: usize,
    len: usize,
}

impl Copied {
    fn of(filter: &SplitBlockFilter512) -> Self {
        let bytes = filter.encode().expect("no secret");
        let len = bytes.len() / 8;
        let mut memory = vec![0; len + 8];
        let start = memory.as_ptr().align_offset(64);
        for (word, bytes) in memory[start..].iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self { memory, start, len }
    }

    fn view(&self) -> SplitBlockFilter512Ref<'_> {
        let words = &self.memory[self.start..self.start + self.len];
        SplitBlockFilter512Ref::view(bytemuck::cast_slice(words)).expect("what was written")
    }
}

fn blocks(n: usize, bits_per_key: f64, bits_per_block: u64) -> u64 {
    (n as f64 * bits_per_key / bits_per_block as f64).ceil() as u64
}

fn filled<B: BlockShape>(bits_per_key: f64, keys: &[u64]) -> SplitBlockFilter<B> {
    let one = SplitBlockFilter::<B>::with_blocks(1, KeyHasher::xxh3(0)).expect("small");
    let blocks = blocks(keys.len(), bits_per_key, one.num_bits());
    let mut filter = SplitBlockFilter::<B>::with_blocks(blocks, KeyHasher::xxh3(0)).expect("room");
    filter.insert_batch(keys).expect("no limit");
    filter
}

fn found(filter: &impl Filter<Hash = u64>, hashes: &[u64]) -> usize {
    let mut answers = [false; BATCH];
    let batches = hashes.chunks(BATCH).map(|hashes| {
        let answers = &mut answers[..hashes.len()];
        filter.contains_batch(hashes, answers);
        answers.iter().filter(|found| **found).count()
    });
    batches.sum()
}

fn found_by_peer(filter: &BloomFilter<FixedState>, hashes: &[u64]) -> usize {
    hashes.iter().filter(|hash| filter.contains_hash(**hash)).count()
}

/// Returns a filter of the other package whose measured rate is within a twentieth of `rate`, with
/// the best number of hash functions, and that measured rate.
fn fastbloom_at(rate: f64, present: &[u64], absent: &[u64]) -> (BloomFilter<FixedState>, f64) {
    let bits = |hash_funcs: f64, rate: f64| {
        -hash_funcs * present.len() as f64 / (-rate.powf(1.0 / hash_funcs)).ln_1p()
    };
    let ideal = -rate.log2();
    let (few, many) = (ideal.floor().max(1.0), ideal.ceil());
    let hash_funcs = if bits(few, rate) < bits(many, rate) { few } else { many };
    let mut aimed = rate;
    loop {
        let filter = BloomFilter::with_num_bits(bits(hash_funcs, aimed) as usize);
        let mut filter = filter.hasher(FixedState::default()).hashes(hash_funcs as u32);
        for hash in present {
            filter.insert_hash(*hash);
        }
        let measured = found_by_peer(&filter, absent) as f64 / absent.len() as f64;
        if (measured / rate - 1.0).abs() < 0.05 {
            return (filter, measured);
        }
        aimed *= rate / measured;
    }
}
