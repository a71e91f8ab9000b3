//! Compares classic Bloom filters with those of `fastbloom`, the fastest package for such filters.
//! Both filters have the same number of bits and of hash functions, so they have the same
//! false-positive rate. The hashes are computed beforehand, so hashing is not measured.
#![expect(clippy::cast_precision_loss, reason = "counts become rates")]

use chainsieve_filter::bloom::{AtomicBloomFilter, BloomFilter};
use chainsieve_filter::textbook::PartitionedBloomFilter;
use chainsieve_filter::{Filter, Insert, KeyHasher};
use foldhash::fast::FixedState;

use crate::keys::{self, Turns};
use testkit::timer::Report;

type Peer = fastbloom::BloomFilter<FixedState>;

const HASHER: KeyHasher = KeyHasher::xxh3(0);
/// Number of hashes in one batch query.
const BATCH: usize = 4096;

pub(crate) fn run(report: &mut Report) {
    for n in keys::sizes(report) {
        let (present, absent) = (keys::present(n), keys::absent(keys::probes(n)));
        for (fpr, percent) in [(0.01, "1 %"), (0.001, "0.1 %")] {
            against_fastbloom(report, fpr, percent, &present, &absent);
        }
        if n < 100_000_000 {
            shared(report, &present, &absent);
        }
    }
}

fn against_fastbloom(
    report: &mut Report,
    fpr: f64,
    percent: &str,
    present: &[u64],
    absent: &[u64],
) {
    let n = present.len();
    let name = |what: &str| format!("classic, {n} keys at {percent}, {what}");
    let mut ours = <BloomFilter>::with_fpr(n as u64, fpr, HASHER).expect("a size");
    let bits = usize::try_from(ours.num_bits()).expect("in memory");
    let mut peer: Peer = fastbloom::BloomFilter::with_num_bits(bits)
        .hasher(FixedState::default())
        .hashes(ours.hash_funcs());
    assert_eq!(peer.num_bits(), bits);
    ours.insert_batch(present).expect("never full");
    for hash in present {
        peer.insert_hash(*hash);
    }
    let rate = |hits: usize| hits as f64 / absent.len() as f64;
    let rates = (rate(in_batches(&ours, absent)), rate(peer_one_by_one(&peer, absent)));
    assert!((rates.0 / rates.1 - 1.0).abs() < 0.05, "equal rates: {rates:?}");
    assert_eq!(one_by_one(&ours, absent), in_batches(&ours, absent));
    assert_eq!(in_batches(&ours, present), n);
    assert_eq!(peer_one_by_one(&peer, present), n);
    report.value(&name("rate"), rates.0 * 100.0, "%");
    report.value(&name("rate of fastbloom"), rates.1 * 100.0, "%");
    report.value(&name("bits per key"), bits as f64 / n as f64, "bits");

    for (what, asked) in [("absent", absent), ("present", present)] {
        let mut turns = [turns_of(asked), turns_of(asked)];
        let [ours_turns, peer_turns] = &mut turns;
        let per = ours_turns.len();
        report.ratio(
            &name(&format!("{what}, one by one")),
            per,
            || one_by_one(&ours, ours_turns.next()),
            || peer_one_by_one(&peer, peer_turns.next()),
        );
        let mut turns = [turns_of(asked), turns_of(asked)];
        let [ours_turns, peer_turns] = &mut turns;
        report.ratio(
            &name(&format!("{what}, batch")),
            per,
            || in_batches(&ours, ours_turns.next()),
            || peer_one_by_one(&peer, peer_turns.next()),
        );
    }
    // Insert into the full filters: the cost of an insertion does not depend on which bits are
    // already set.
    let mut turns = [turns_of(present), turns_of(present)];
    let [ours_turns, peer_turns] = &mut turns;
    let per = ours_turns.len();
    report.ratio(
        &name("inserts, one by one"),
        per,
        || {
            let insert = |hash: &&u64| ours.insert_hash(**hash).expect("never full");
            ours_turns.next().iter().filter(insert).count()
        },
        || peer_turns.next().iter().filter(|hash| !peer.insert_hash(**hash)).count(),
    );
    let mut turns = [turns_of(present), turns_of(present)];
    let [ours_turns, peer_turns] = &mut turns;
    report.ratio(
        &name("inserts, batch"),
        per,
        || ours.insert_batch(ours_turns.next()).expect("never full"),
        || peer_turns.next().iter().filter(|hash| !peer.insert_hash(**hash)).count(),
    );
}

/// Measures the filters that threads share, and the partitioned filters.
fn shared(report: &mut Report, present: &[u64], absent: &[u64]) {
    let n = present.len();
    let name = |what: &str| format!("classic, {n} keys at 1 %, {what}");
    let ours = <AtomicBloomFilter>::with_fpr(n as u64, 0.01, HASHER).expect("a size");
    let bits = usize::try_from(ours.num_bits()).expect("in memory");
    let peer = fastbloom::AtomicBloomFilter::with_num_bits(bits)
        .hasher(FixedState::default())
        .hashes(ours.hash_funcs());
    ours.insert_batch(present);
    for hash in present {
        peer.insert_hash(*hash);
    }
    let found = |asked: &[u64]| asked.iter().filter(|hash| ours.contains_hash(**hash)).count();
    let peer_found = |asked: &[u64]| asked.iter().filter(|hash| peer.contains_hash(**hash)).count();
    assert_eq!((found(present), peer_found(present)), (n, n));
    let mut turns = [turns_of(absent), turns_of(absent)];
    let [ours_turns, peer_turns] = &mut turns;
    let per = ours_turns.len();
    report.ratio(
        &name("atomic, absent"),
        per,
        || found(ours_turns.next()),
        || peer_found(peer_turns.next()),
    );
    let mut turns = [turns_of(present), turns_of(present)];
    let [ours_turns, peer_turns] = &mut turns;
    report.ratio(
        &name("atomic, inserts of keys already in the filter"),
        per,
        || ours_turns.next().iter().filter(|hash| ours.insert_hash(**hash)).count(),
        || peer_turns.next().iter().filter(|hash| !peer.insert_hash(**hash)).count(),
    );
    // New keys: start with an empty filter each time, and insert few enough keys that most bits
    // stay unset.
    let part = &present[..n.min(1 << 20)];
    let fresh = || <AtomicBloomFilter>::with_bits(bits as u64, 7, HASHER).expect("a size");
    report.figure_of(&name("atomic, inserts of new keys"), part.len(), fresh, |filter| {
        part.iter().filter(|hash| filter.insert_hash(**hash)).count()
    });
    let fresh = || {
        fastbloom::AtomicBloomFilter::with_num_bits(bits).hasher(FixedState::default()).hashes(7)
    };
    report.figure_of(
        &name("atomic, inserts of new keys by fastbloom"),
        part.len(),
        fresh,
        |filter| part.iter().filter(|hash| !filter.insert_hash(**hash)).count(),
    );

    let mut sliced = <PartitionedBloomFilter>::with_fpr(n as u64, 0.01, HASHER).expect("a size");
    sliced.insert_batch(present).expect("never full");
    let mut turns = turns_of(absent);
    report.figure(&name("partitioned, absent, batch"), per, || in_batches(&sliced, turns.next()));
}

/// Returns short runs: on a busy machine, some short runs are still undisturbed.
fn turns_of(hashes: &[u64]) -> Turns<'_> {
    Turns::of_len(hashes, 1 << 14)
}

fn one_by_one(filter: &BloomFilter, asked: &[u64]) -> usize {
    asked.iter().filter(|hash| filter.contains_hash(**hash)).count()
}

fn peer_one_by_one(filter: &Peer, asked: &[u64]) -> usize {
    asked.iter().filter(|hash| filter.contains_hash(**hash)).count()
}

fn in_batches<F: Filter<Hash = u64>>(filter: &F, asked: &[u64]) -> usize {
    let mut answers = [false; BATCH];
    let mut found = 0;
    for asked in asked.chunks(BATCH) {
        let answers = &mut answers[..asked.len()];
        filter.contains_batch(asked, answers);
        found += answers.iter().filter(|answer| **answer).count();
    }
    found
}
