//! Binary fuse filters against `xorf`, from the same hashes.

use std::hint::black_box;

use chainsieve_filter::fuse::{BinaryFuse, FuseFingerprint};
use chainsieve_filter::{Filter, KeyHasher};

use crate::keys;
use testkit::timer::Report;

const SEED: u64 = 1;

pub(crate) fn run(report: &mut Report) {
    for size in keys::sizes(report) {
        against::<u8, xorf::BinaryFuse8>(report, size, |hashes| {
            xorf::BinaryFuse8::try_from(hashes).expect("distinct hashes")
        });
        against::<u16, xorf::BinaryFuse16>(report, size, |hashes| {
            xorf::BinaryFuse16::try_from(hashes).expect("distinct hashes")
        });
    }
}

fn against<F: FuseFingerprint, P: xorf::Filter<u64>>(
    report: &mut Report,
    size: usize,
    peer: impl Fn(&[u64]) -> P,
) {
    let hashes = keys::present(size);
    let build = |hashes: &[u64]| {
        BinaryFuse::<F>::build_with_seed(hashes, KeyHasher::xxh3(0), SEED).expect("distinct hashes")
    };
    let name = format!("fuse{}, {size} keys", F::BITS);
    let (ours, theirs) = (build(&hashes), peer(&hashes));
    report.value(&format!("{name}, bits per key"), ours.num_bits() as f64 / size as f64, "bits");
    let theirs_bits = theirs.len() as f64 * f64::from(F::BITS) / size as f64;
    report.value(&format!("{name}, xorf's bits per key"), theirs_bits, "bits");

    let probes = keys::probes(size);
    let mut answers = vec![false; probes];
    for (kind, asked, least, most) in [
        ("present", shuffled(&hashes, probes), 1.0, 1.0),
        ("absent", keys::absent(probes), 0.0, 0.006),
    ] {
        let count =
            |hit: &mut dyn FnMut(u64) -> bool| asked.iter().filter(|hash| hit(**hash)).count();
        let of_ours = count(&mut |hash| ours.contains_hash(hash));
        let of_theirs = count(&mut |hash| theirs.contains(&hash));
        for hits in [of_ours, of_theirs] {
            let rate = hits as f64 / probes as f64;
            assert!((least..=most).contains(&rate), "{name}: {rate} of {kind}");
        }
        report.ratio(
            &format!("{name}, {kind}, one by one"),
            probes,
            || black_box(&asked).iter().filter(|hash| ours.contains_hash(**hash)).count(),
            || black_box(&asked).iter().filter(|hash| theirs.contains(*hash)).count(),
        );
        report.ratio(
            &format!("{name}, {kind}, batch"),
            probes,
            || ours.contains_batch(black_box(&asked), &mut answers),
            || black_box(&asked).iter().filter(|hash| theirs.contains(*hash)).count(),
        );
    }
    drop((ours, theirs));
    report.ratio(
        &format!("{name}, build"),
        size,
        || build(black_box(&hashes)),
        || peer(black_box(&hashes)),
    );
}

/// Returns `probes` keys, in a different order from the one in which the filter was built. Keys are
/// repeated if there are fewer than `probes` keys.
fn shuffled(hashes: &[u64], probes: usize) -> Vec<u64> {
    let mut asked: Vec<_> = hashes.iter().copied().cycle().take(probes).collect();
    asked.sort_unstable_by_key(|hash| hash.rotate_left(32));
    asked
}
