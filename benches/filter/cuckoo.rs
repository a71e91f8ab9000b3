//! Cuckoo filters: queries against `xorf`'s binary fuse filter with fingerprints of the same width,
//! and single operations against `scalable_cuckoo_filter` with the same hash function.

use std::hash::Hasher;

use chainsieve_filter::cuckoo::{CuckooFilter8, CuckooFilter12, CuckooFilter16};
use chainsieve_filter::{Filter, Insert, KeyHasher, Remove};
use scalable_cuckoo_filter::{ScalableCuckooFilter, ScalableCuckooFilterBuilder};
use xorf::{BinaryFuse16, Filter as _};

use crate::keys::{self, Turns};
use testkit::timer::Report;

/// Largest number of keys for the comparison with the scalable filter: with more keys, the
/// insertions alone take a minute per run.
const MOST_OF_SCALABLE: usize = 10_000_000;

pub(crate) fn run(report: &mut Report) {
    for n in keys::sizes(report) {
        let (present, absent) = (keys::present(n), keys::absent(keys::probes(n)));
        against_fuse(report, n, &present, &absent);
        if n <= MOST_OF_SCALABLE {
            against_scalable(report, n, &present, &absent);
        }
        widths(report, n, &present, &absent);
    }
}

fn hasher() -> KeyHasher {
    KeyHasher::xxh3(0)
}

fn build(present: &[u64]) -> CuckooFilter16 {
    let mut filter = CuckooFilter16::with_capacity(present.len() as u64, hasher()).expect("memory");
    filter.insert_batch(present).expect("room for all");
    filter
}

fn against_fuse(report: &mut Report, n: usize, present: &[u64], absent: &[u64]) {
    let ours = build(present);
    let bits = ours.num_bits() as f64 / n as f64;
    report.value(&format!("cuckoo16, {n} keys: memory"), bits, "bits/key");
    report.figure(&format!("cuckoo16, {n} keys: build in a batch"), n, || build(present));
    let peer = BinaryFuse16::try_from(present).expect("distinct keys");
    report.figure(&format!("xorf BinaryFuse16, {n} keys: build"), n, || {
        BinaryFuse16::try_from(present).expect("distinct keys")
    });

    let mut answers = vec![false; absent.len()];
    ours.contains_batch(absent, &mut answers);
    let rate = count(&answers) as f64 / absent.len() as f64;
    report.value(&format!("cuckoo16, {n} keys: rate"), rate * 100.0, "%");
    assert!(rate < 2.0 * ours.expected_fpr());
    let mut fuse_answers = vec![false; absent.len()];
    fuse_batch(&peer, absent, &mut fuse_answers);
    assert!(absent.iter().zip(&fuse_answers).all(|(hash, hit)| peer.contains(hash) == *hit));
    ours.contains_batch(present, &mut vec![false; n]);
    for (what, hashes) in [("absent", absent), ("present", present)] {
        let (mut ours_turns, mut turns) = (Turns::of(hashes), Turns::of(hashes));
        let per = turns.len();
        let mut answers = (vec![false; per], vec![false; per]);
        let name = |how| format!("cuckoo16, {n} keys, {what}: batch against xorf {how}");
        report.ratio(
            &name("in chunks"),
            per,
            || ours.contains_batch(ours_turns.next(), &mut answers.0),
            || fuse_batch(&peer, turns.next(), &mut answers.1),
        );
        report.ratio(
            &name("one by one"),
            per,
            || ours.contains_batch(ours_turns.next(), &mut answers.0),
            || each(turns.next(), |hash| peer.contains(&hash)),
        );
        let mut one_turns = Turns::of(hashes);
        report.figure(&format!("cuckoo16, {n} keys, {what}: one by one"), per, || {
            each(one_turns.next(), |hash| ours.contains_hash(hash))
        });
    }
}

fn count(answers: &[bool]) -> usize {
    answers.iter().filter(|answer| **answer).count()
}

/// Queries the hashes one at a time, and returns the number of hits.
fn each(hashes: &[u64], mut contains: impl FnMut(u64) -> bool) -> usize {
    hashes.iter().filter(|hash| contains(**hash)).count()
}

/// Batch query of `xorf`'s filter: computes the same answers as `contains`, but lets the CPU
/// overlap the memory reads of many keys.
fn fuse_batch(filter: &BinaryFuse16, hashes: &[u64], answers: &mut [bool]) {
    const CHUNK: usize = 32;
    let (at, fingerprints) = (&filter.descriptor, &filter.fingerprints);
    let mut places = [(0_usize, 0_usize, 0_usize, 0_u16); CHUNK];
    for (hashes, answers) in hashes.chunks(CHUNK).zip(answers.chunks_mut(CHUNK)) {
        for (place, key) in places.iter_mut().zip(hashes) {
            let mut hash = key.wrapping_add(at.seed);
            hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            hash ^= hash >> 33;
            let h0 = (u128::from(hash) * u128::from(at.segment_count_length) >> 64) as u32;
            let h1 = h0 + at.segment_length ^ (hash >> 18) as u32 & at.segment_length_mask;
            let h2 = h0 + 2 * at.segment_length ^ hash as u32 & at.segment_length_mask;
            *place = (h0 as usize, h1 as usize, h2 as usize, (hash ^ hash >> 32) as u16);
        }
        for (answer, (h0, h1, h2, fingerprint)) in answers.iter_mut().zip(places) {
            *answer = fingerprint == fingerprints[h0] ^ fingerprints[h1] ^ fingerprints[h2];
        }
    }
}

/// A very fast hash of words: murmur3's finalizer. In one comparison, our filter and
/// `scalable_cuckoo_filter` both use this hash.
#[derive(Clone, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// The false-positive rate for which the other package chooses fingerprints of 16 bits.
const PEER_FPR: f64 = 1.0 / 4096.0;

type Scalable<H> = ScalableCuckooFilter<u64, H>;

fn against_scalable(report: &mut Report, n: usize, present: &[u64], absent: &[u64]) {
    let builder = || {
        let builder = ScalableCuckooFilterBuilder::new().initial_capacity(n);
        builder.false_positive_probability(PEER_FPR)
    };
    one_by_one(report, "murmur finalizer", (present, absent), mix, || {
        builder().hasher(Mixer::default()).finish()
    });
    let sip = KeyHasher::siphash_1_3([0; 2]);
    let hash = |key: u64| sip.hash(&key.to_le_bytes());
    one_by_one(report, "SipHash-1-3", (present, absent), hash, || builder().finish());
}

/// Measures single operations, with the same hash function on both sides.
fn one_by_one<H: Hasher + Clone>(
    report: &mut Report,
    function: &str,
    (present, absent): (&[u64], &[u64]),
    hash: impl Fn(u64) -> u64,
    new_peer: impl Fn() -> Scalable<H>,
) {
    let n = present.len();
    let name =
        |what| format!("cuckoo16, {n} keys, {function}: {what} against scalable_cuckoo_filter");
    let fill_ours = || {
        let mut filter = CuckooFilter16::with_capacity(n as u64, hasher()).expect("memory");
        for key in present {
            filter.insert_hash(hash(*key)).expect("room for all");
        }
        filter
    };
    let fill_peer = || {
        let mut filter = new_peer();
        for key in present {
            filter.insert(key);
        }
        filter
    };
    report.ratio(&name("insert"), n, fill_ours, fill_peer);
    let (ours, peer) = (fill_ours(), fill_peer());
    let bits = peer.bits() as f64 / n as f64;
    report.value(&format!("scalable_cuckoo_filter, {n} keys: memory"), bits, "bits/key");
    let hits = (
        each(absent, |key| ours.contains_hash(hash(key))),
        each(absent, |key| peer.contains(&key)),
    );
    let rates = (hits.0 as f64 / absent.len() as f64, hits.1 as f64 / absent.len() as f64);
    assert!(rates.0 < 2e-4 && rates.1 < 2e-4, "{rates:?}");
    for (what, keys) in [("absent", absent), ("present", present)] {
        let (mut ours_turns, mut turns) = (Turns::of(keys), Turns::of(keys));
        report.ratio(
            &name(what),
            turns.len(),
            || each(ours_turns.next(), |key| ours.contains_hash(hash(key))),
            || each(turns.next(), |key| peer.contains(&key)),
        );
    }
    report.ratio(
        &name("remove all"),
        n,
        || {
            let mut ours = ours.clone();
            for key in present {
                ours.remove_known_hash(hash(*key)).expect("it is there");
            }
            ours
        },
        || {
            let mut peer = peer.clone();
            assert_eq!(each(present, |key| peer.remove(&key)), n);
            peer
        },
    );
}

/// Measures filters with fingerprints of 8 and 12 bits.
fn widths(report: &mut Report, n: usize, present: &[u64], absent: &[u64]) {
    width(report, ("cuckoo8", 0.03), present, absent, |hashes| {
        let mut filter = CuckooFilter8::with_capacity(n as u64, hasher()).expect("memory");
        filter.insert_batch(hashes).expect("room for all");
        filter
    });
    width(report, ("cuckoo12", 0.0019), present, absent, |hashes| {
        let mut filter = CuckooFilter12::with_capacity(n as u64, hasher()).expect("memory");
        filter.insert_batch(hashes).expect("room for all");
        filter
    });
}

fn width<F: Filter<Hash = u64>>(
    report: &mut Report,
    (name, most): (&str, f64),
    present: &[u64],
    absent: &[u64],
    build: impl Fn(&[u64]) -> F,
) {
    let n = present.len();
    let filter = build(present);
    let bits = filter.num_bits() as f64 / n as f64;
    report.value(&format!("{name}, {n} keys: memory"), bits, "bits/key");
    let mut answers = vec![false; absent.len()];
    filter.contains_batch(absent, &mut answers);
    let rate = count(&answers) as f64 / absent.len() as f64;
    report.value(&format!("{name}, {n} keys: rate"), rate * 100.0, "%");
    assert!(rate < most);
    report.figure(&format!("{name}, {n} keys: build in a batch"), n, || build(present));
    for (what, hashes) in [("absent", absent), ("present", present)] {
        let mut turns = Turns::of(hashes);
        let mut answers = vec![false; turns.len()];
        report.figure(&format!("{name}, {n} keys, {what}: batch"), answers.len(), || {
            filter.contains_batch(turns.next(), &mut answers);
        });
    }
}
