//! Filters that forget, grow or count: the cost of their operations, compared with filters that are
//! better for the same purpose.
#![expect(clippy::cast_precision_loss, reason = "counts become rates")]

use chainsieve_filter::cuckoo::CuckooFilter12;
use chainsieve_filter::rolling::RollingBloomFilter;
use chainsieve_filter::scalable::ScalableBloomFilter;
use chainsieve_filter::split_block::SplitBlockFilter512;
use chainsieve_filter::textbook::CountingBloomFilter;
use chainsieve_filter::{Filter, Insert, KeyHasher, Remove};

use crate::keys;
use testkit::timer::Report;

/// Number of hashes in one batch query.
const BATCH: usize = 4096;
const FPR: f64 = 0.002;

pub(crate) fn run(report: &mut Report) {
    let n = if report.is_quick() { 100_000 } else { 1_000_000 };
    let (present, absent) = (keys::present(n), keys::absent(1_000_000));
    let (capacity, hasher) = (n as u64, KeyHasher::xxh3(0));

    let counting = CountingBloomFilter::with_fpr(capacity, FPR, hasher).expect("a size");
    measure(report, "counting", &counting, &present, &absent);
    removal(report, "counting", &counting, &present);
    // A cuckoo filter is smaller and faster than a counting filter.
    let cuckoo = CuckooFilter12::with_fpr(capacity, FPR, hasher).expect("a size");
    measure(report, "cuckoo 12", &cuckoo, &present, &absent);
    removal(report, "cuckoo 12", &cuckoo, &present);

    let grown = ScalableBloomFilter::with_fpr(capacity / 100, FPR, hasher).expect("a size");
    measure(report, "scalable, grown 100-fold", &grown, &present, &absent);
    let sized = ScalableBloomFilter::with_fpr(capacity, FPR, hasher).expect("a size");
    measure(report, "scalable, never grown", &sized, &present, &absent);
    // If the number of keys is known beforehand, a split-block filter is the better choice.
    let split_block = SplitBlockFilter512::with_fpr(capacity, FPR, hasher).expect("a size");
    measure(report, "split-block 512", &split_block, &present, &absent);

    for (capacity, fpr) in [(capacity, FPR), (capacity, 1e-6), (50_000, 1e-6)] {
        let rolling = RollingBloomFilter::with_fpr(capacity, fpr, hasher).expect("a size");
        let name = format!("rolling, the last {capacity} at {fpr:e}");
        measure(report, &name, &rolling, &present[..capacity as usize], &absent);
    }
}

fn measure<F: Insert + Clone>(
    report: &mut Report,
    name: &str,
    empty: &F,
    present: &[F::Hash],
    absent: &[F::Hash],
) {
    let name = |what| format!("{name}, {} keys, {what}", present.len());
    let mut filter = empty.clone();
    filter.insert_batch(present).expect("room");
    assert_eq!(found(&filter, present), present.len(), "a key is missing");
    let rate = found(&filter, absent) as f64 / absent.len() as f64;
    let per_key = filter.num_bits() as f64 / present.len() as f64;
    report.value(&name("bits per key"), per_key, "bits");
    report.value(&name("rate"), rate * 100.0, "%");
    report.figure_of(
        &name("insert"),
        present.len(),
        || empty.clone(),
        |filter| filter.insert_batch(present),
    );
    report.figure(&name("absent"), absent.len(), || found(&filter, absent));
    report.figure(&name("present"), present.len(), || found(&filter, present));
    let one_by_one =
        |asked: &[F::Hash]| asked.iter().filter(|hash| filter.contains_hash(**hash)).count();
    report.figure(&name("absent, one by one"), absent.len(), || one_by_one(absent));
}

fn removal<F: Remove<Hash = u64> + Clone>(
    report: &mut Report,
    name: &str,
    empty: &F,
    present: &[u64],
) {
    let mut full = empty.clone();
    full.insert_batch(present).expect("room");
    let name = format!("{name}, {} keys, remove", present.len());
    report.figure_of(
        &name,
        present.len(),
        || full.clone(),
        |filter| {
            for hash in present {
                filter.remove_known_hash(*hash).expect("it is there");
            }
        },
    );
}

fn found<F: Filter>(filter: &F, asked: &[F::Hash]) -> usize {
    let mut answers = [false; BATCH];
    let batches = asked.chunks(BATCH).map(|hashes| {
        let answers = &mut answers[..hashes.len()];
        filter.contains_batch(hashes, answers);
        answers.iter().filter(|answer| **answer).count()
    });
    batches.sum()
}
