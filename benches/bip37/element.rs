//! One element at a time: an insertion, a present element and an absent element.

use chain_gang::util::BloomFilter as ChainGangFilter;
use chainsieve::btc::bip37::BloomFilter;
use chainsieve::simd::Backend;

use crate::plain::PlainFilter;
use testkit::Rng;
use testkit::timer::Report;

/// Returns a half-full filter of 36,000 bytes in both forms.
pub(crate) fn half_full(hash_funcs: u32, random: &mut Rng) -> (BloomFilter, PlainFilter) {
    let data = random.bytes(36_000);
    let tweak = 0x1234_5678;
    let plain = PlainFilter { data, hash_funcs, tweak };
    (ours(&plain, 0), plain)
}

/// Returns the library's filter with the same data, decoded from the wire form.
pub(crate) fn ours(plain: &PlainFilter, flags: u8) -> BloomFilter {
    let mut payload = vec![0xfd];
    payload.extend(u16::try_from(plain.data.len()).expect("at most 36,000").to_le_bytes());
    if plain.data.len() < 0xfd {
        payload = vec![u8::try_from(plain.data.len()).expect("below 0xfd")];
    }
    payload.extend(&plain.data);
    payload.extend(plain.hash_funcs.to_le_bytes());
    payload.extend(plain.tweak.to_le_bytes());
    payload.push(flags);
    BloomFilter::decode(&payload).expect("a filter within the limits")
}

pub(crate) fn run(report: &mut Report) {
    // With a few thousand elements only, a branch predictor learns where each query ends.
    let count = 200_000;
    let mut random = Rng::new(7);
    for length in [20, 36] {
        let absent: Vec<Vec<u8>> = (0..count).map(|_| random.bytes(length)).collect();
        for hash_funcs in [10, 17] {
            let (filter, plain) = half_full(hash_funcs, &mut random);
            let expected = absent.iter().filter(|element| plain.contains(element)).count();
            for backend in Backend::available() {
                let filter = filter.clone().with_backend(backend);
                let contained = || absent.iter().filter(|element| filter.contains(element)).count();
                assert_eq!(contained(), expected);
                report.ratio(
                    &format!("absent element, {length} B, k = {hash_funcs}, {backend:?} vs mur3"),
                    absent.len(),
                    contained,
                    || absent.iter().filter(|element| plain.contains(element)).count(),
                );
            }
            // A filter that contains only these 4,096 elements.
            let present = &absent[..4_096];
            let mut plain = PlainFilter { data: vec![0; 36_000], ..plain };
            for element in present {
                plain.insert(element);
            }
            for backend in Backend::available() {
                let filter = ours(&plain, 0).with_backend(backend);
                let all = || present.iter().all(|element| filter.contains(element));
                assert!(all() && present.iter().all(|element| plain.contains(element)));
                report.ratio(
                    &format!("present element, {length} B, k = {hash_funcs}, {backend:?} vs mur3"),
                    present.len(),
                    all,
                    || present.iter().all(|element| plain.contains(element)),
                );
                let empty = PlainFilter { data: vec![0; 36_000], ..plain.clone() };
                let mut ours = ours(&empty, 0).with_backend(backend);
                let mut theirs = empty;
                for element in present {
                    ours.insert(element);
                    theirs.insert(element);
                }
                assert_eq!(ours.data(), theirs.data);
                report.ratio(
                    &format!("insert, {length} B, k = {hash_funcs}, {backend:?} vs mur3"),
                    present.len(),
                    || present.iter().for_each(|element| ours.insert(element)),
                    || present.iter().for_each(|element| theirs.insert(element)),
                );
            }
        }
    }
    chain_gang(report, &mut random);
}

/// Compares with `chain-gang`, the one other crate that has BIP37's `contains` and `add`.
fn chain_gang(report: &mut Report, random: &mut Rng) {
    let elements: Vec<Vec<u8>> = (0..4_096).map(|_| random.bytes(20)).collect();
    let empty = PlainFilter { data: vec![0; 36_000], hash_funcs: 17, tweak: 0x1234_5678 };
    let mut ours = ours(&empty, 0);
    let mut theirs = ChainGangFilter { filter: empty.data, num_hash_funcs: 17, tweak: 0x1234_5678 };
    for element in &elements {
        ours.insert(element);
        theirs.add(element);
    }
    assert_eq!(ours.data(), theirs.filter);
    assert!(elements.iter().all(|element| ours.contains(element) && theirs.contains(element)));
    report.ratio(
        "insert, 20 B, k = 17, best vs chain-gang",
        elements.len(),
        || elements.iter().for_each(|element| ours.insert(element)),
        || elements.iter().for_each(|element| theirs.add(element)),
    );
    report.ratio(
        "present element, 20 B, k = 17, best vs chain-gang",
        elements.len(),
        || elements.iter().all(|element| ours.contains(element)),
        || elements.iter().all(|element| theirs.contains(element)),
    );
}
