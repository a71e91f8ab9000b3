//! Single elements and batches of every size around the lane boundaries, on every backend, compared
//! with the slow filter.

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, CompactTarget, OutPoint, ScriptBuf, Sequence, Transaction, TxIn,
    TxMerkleNode, TxOut, Witness, consensus, transaction,
};
use chainsieve::btc::bip37::BloomFilter;
use chainsieve::simd::Backend;

use testkit::Rng;
use testkit::btc::entry_points::{library, slow};
use testkit::btc::oracle::TestBlock;
use testkit::btc::slow_bip37::SlowFilter;

/// Returns `size` random bytes. Each bit is set with probability `fill` / 8.
fn filled(rng: &mut Rng, size: usize, fill: u32) -> Vec<u8> {
    let mut bytes = vec![0; size];
    for byte in &mut bytes {
        for bit in 0..8 {
            *byte |= u8::from(rng.u32() % 8 < fill) << bit;
        }
    }
    bytes
}

/// Backends that the CPU lacks are not tested. If `EXPECT_BACKENDS` is set, such as to
/// `scalar,avx2,avx512`, the test fails unless exactly these backends are available.
#[test]
fn backends_are_those_expected() {
    let names: Vec<_> = Backend::available().map(Backend::name).collect();
    println!("backends: {names:?}");
    assert_eq!((names.first(), names.last()), (Some(&"scalar"), Some(&Backend::best().name())));
    if let Ok(expected) = std::env::var("EXPECT_BACKENDS") {
        assert_eq!(names.join(","), expected, "EXPECT_BACKENDS");
    }
}

#[test]
fn insert_and_contains_at_every_length() {
    let mut rng = Rng::new(41);
    let backends: Vec<_> = Backend::available().collect();
    let (mut present, mut absent) = (0, 0);
    for length in 0..=300 {
        for case in 0..12 {
            let size = *rng.pick(&[1, 2, 3, 5, 8, 100, 1_021, 4_096, 35_999, 36_000]);
            let slow = SlowFilter {
                data: filled(&mut rng, size, case % 8),
                hash_funcs: u32::try_from(rng.below(52)).expect("small"),
                tweak: rng.u32(),
                flags: 0,
            };
            // Start at a random offset, because an element may lie at any address.
            let start = rng.below(16);
            let bytes = rng.bytes(start + length);
            let element = &bytes[start..];
            let mut inserted = slow.clone();
            inserted.insert(element);
            // Count once per case, not once per backend, because the number of backends depends on
            // the CPU.
            *if slow.contains(element) { &mut present } else { &mut absent } += 1;
            let name = format!("{length} bytes, {size} bytes of filter, k {}", slow.hash_funcs);
            for backend in &backends {
                let (filter, _) = BloomFilter::decode_any_size(&slow.payload()).expect(&name);
                let mut filter = filter.with_backend(*backend);
                assert_eq!(
                    filter.contains(element),
                    slow.contains(element),
                    "{name}, {}",
                    backend.name()
                );
                filter.insert(element);
                assert!(filter.data() == inserted.data, "{name}, {}: insert", backend.name());
                assert!(filter.contains(element), "{name}, {}: lost", backend.name());
            }
        }
    }
    assert!(present > 100 && absent > 1_000, "{present} present, {absent} absent");
}

/// Returns a block of two transactions. The first has a null outpoint as its input and these output
/// scripts. The second spends the first output.
fn block_of(scripts: Vec<ScriptBuf>) -> std::rc::Rc<TestBlock> {
    let tx = |previous_output, scripts: Vec<ScriptBuf>| Transaction {
        version: transaction::Version::ONE,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output,
            script_sig: ScriptBuf::new(),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        }],
        output: scripts
            .into_iter()
            .map(|script_pubkey| TxOut { value: Amount::ZERO, script_pubkey })
            .collect(),
    };
    let first = tx(OutPoint::null(), scripts);
    let spends = tx(OutPoint { txid: first.compute_txid(), vout: 0 }, vec![ScriptBuf::new()]);
    let header = Header {
        version: Version::ONE,
        prev_blockhash: BlockHash::all_zeros(),
        merkle_root: TxMerkleNode::all_zeros(),
        time: 0,
        bits: CompactTarget::from_consensus(0),
        nonce: 0,
    };
    TestBlock::new(consensus::serialize(&Block { header, txdata: vec![first, spends] }))
}

#[test]
fn batches_around_every_border() {
    let mut rng = Rng::new(42);
    let mut matchings = 0;
    for length in [1, 3, 4, 5, 15, 16, 20, 33, 36, 65, 75, 127, 128, 131, 132, 133, 520] {
        for count in [
            1, 14, 15, 16, 17, 31, 33, 47, 61, 62, 63, 64, 65, 100, 239, 240, 241, 255, 256, 257,
            271, 272, 273, 288, 496, 511, 512, 513, 600,
        ] {
            let script = |rng: &mut Rng| {
                let length = u16::try_from(length).expect("short");
                let data = rng.bytes(usize::from(length));
                ScriptBuf::from([&[0x4d][..], &length.to_le_bytes(), &data].concat())
            };
            let block = block_of((0..count).map(|_| script(&mut rng)).collect());
            for (fill, hash_funcs) in [(4, 1), (7, 2), (7, 3), (6, 9), (7, 17)] {
                let filter = SlowFilter {
                    data: filled(&mut rng, 301, fill),
                    hash_funcs,
                    tweak: rng.u32(),
                    flags: *rng.pick(&[0, 1, 2]),
                };
                let filterload = filter.payload();
                let expected = slow(&filterload, &block);
                for (entry_point, outcome) in library(&filterload, &block) {
                    assert!(
                        outcome == expected,
                        "{count} of {length} bytes, {entry_point}: {}",
                        hex::encode(&filterload)
                    );
                }
                matchings += 1;
            }
        }
    }
    assert_eq!(matchings, 17 * 29 * 5);
}
