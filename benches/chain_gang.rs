//! `chain-gang`'s filter sets the same bits for the same parameters. The sizing and the wire form
//! of `chain-gang` differ from Core's and are not compared.

use chain_gang::util::BloomFilter as ChainGang;
use chainsieve::btc::bip37::BloomFilter;

use testkit::Rng;
use testkit::btc::slow_bip37::SlowFilter;

#[test]
fn chain_gang_sets_and_finds_the_same_bits() {
    let mut rng = Rng::new(3);
    let (mut present, mut absent) = (0, 0);
    for case in 0..300 {
        let size = *rng.pick(&[1, 2, 3, 5, 8, 31, 64, 100, 1_021, 2_396, 36_000]);
        let hash_funcs = u32::try_from(rng.below(51)).expect("small");
        let empty = SlowFilter { data: vec![0; size], hash_funcs, tweak: rng.u32(), flags: 1 };
        let mut ours = BloomFilter::decode(&empty.payload()).expect("within the limits");
        let mut peers = ChainGang {
            filter: empty.data.clone(),
            num_hash_funcs: usize::try_from(hash_funcs).expect("small"),
            tweak: empty.tweak,
        };
        for _ in 0..=rng.below(12) {
            let length = rng.below(80);
            let element = rng.bytes(length);
            ours.insert(&element);
            peers.add(&element);
            assert!(ours.contains(&element), "case {case}: lost {element:02x?}");
        }
        assert_eq!(ours.data(), peers.filter, "case {case}: {size} bytes, {hash_funcs} functions");
        for _ in 0..50 {
            let length = rng.below(80);
            let element = rng.bytes(length);
            let contains = ours.contains(&element);
            assert_eq!(contains, peers.contains(&element), "case {case}: {element:02x?}");
            *if contains { &mut present } else { &mut absent } += 1;
        }
    }
    assert!(present > 1_000 && absent > 1_000, "{present} present, {absent} absent");
}
