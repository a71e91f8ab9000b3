//! Golomb-coded sets and block filters, compared with `bitcoin` and with a coder written from the
//! BIP. The flaws of `bitcoin`'s reader are asserted one by one.

use std::collections::{BTreeSet, HashMap};
use std::panic::catch_unwind;

use chainsieve::bitcoin::bip158::{BlockFilter as TheirFilter, Error};
use chainsieve::bitcoin::consensus::serialize;
use chainsieve::bitcoin::hashes::siphash24;
use chainsieve::bitcoin::{Block, OutPoint, ScriptBuf, TxIn};
use chainsieve::btc::bip158::{Acceptance, BlockFilter, GcsError};
use chainsieve::hash::SipKey;

use testkit::Rng;
use testkit::btc::bitcoin_sets::{Flaws, asked_of_bitcoin, written_by_bitcoin};
use testkit::btc::fuzzed_sets::{block_has_its_filter, elements_come_back, set_is_read_alike};
use testkit::btc::naive_gcs::{Coding, Fault, compact_size};
use testkit::btc::random_block;
use testkit::btc::random_sets::{coding, elements, queries};
use testkit::mutated;

/// Both writers agree byte for byte, except on an empty element, which `bitcoin` leaves out. Core's
/// sets may contain an empty element, but its block filters never do.
#[test]
fn sets_are_written_the_same() {
    let mut rng = Rng::new(0x158);
    let (mut with_empty, mut multibyte_counts) = (0, 0);
    for round in 0..6_000 {
        let coding = coding(&mut rng);
        let most = if round % 100 == 0 { 3_000 } else { 60 };
        let count = rng.below(most);
        let mut elements = elements(&mut rng, count);
        let ours = coding.written(&elements);
        assert_eq!(hex::encode(&ours), hex::encode(coding.encode(&elements)), "{coding:?}");
        if elements.iter().any(Vec::is_empty) {
            with_empty += 1;
            assert_ne!(ours, written_by_bitcoin(coding, &elements));
            elements.retain(|element| !element.is_empty());
            assert_eq!(coding.written(&elements), written_by_bitcoin(coding, &elements));
        } else {
            assert_eq!(ours, written_by_bitcoin(coding, &elements), "{coding:?}");
        }
        multibyte_counts += usize::from(ours[0] >= 0xfd);
    }
    assert!(with_empty > 100 && multibyte_counts > 20, "{with_empty}, {multibyte_counts}");
}

#[test]
fn whole_sets_answer_the_same() {
    let mut rng = Rng::new(0x159);
    let mut flaws = Flaws::default();
    let (mut some, mut none, mut every) = (0, 0, 0);
    for _ in 0..6_000 {
        let coding = coding(&mut rng);
        let count = rng.below(50);
        let elements = elements(&mut rng, count);
        let most = *rng.pick(&[0, 1, 3, 20, 80]);
        let queries = queries(&mut rng, &elements, most);
        let bytes = coding.encode(&elements);
        assert!(flaws.check(coding, &bytes, &queries));
        match coding.check_matching(&bytes, &queries).expect("an answer").len() {
            0 => none += 1,
            found if found == queries.len() => every += 1,
            _ => some += 1,
        }
    }
    assert!(some > 500 && none > 500 && every > 500, "{some} {none} {every}");
}

/// Sizes at which another matching algorithm may pay: few queries of a large set, and many queries
/// of a small set.
#[test]
fn large_sets_answer_the_same() {
    let mut rng = Rng::new(0x15a);
    let mut flaws = Flaws::default();
    for count in [1, 2, 16, 255, 1_000, 5_000] {
        for asked in [1, 2, 8, 33, 250, 1_000, 6_000] {
            for (p, m) in [(19, 784_931), (4, 20)] {
                let coding = Coding { k0: rng.u64(), k1: rng.u64(), p, m };
                let elements = elements(&mut rng, count);
                let absent = self::elements(&mut rng, asked);
                let bytes = coding.encode(&elements);
                assert!(flaws.check(coding, &bytes, &absent));
                let mut mixed = absent;
                for query in mixed.iter_mut().step_by(7) {
                    query.clone_from(rng.pick(&elements));
                }
                assert!(flaws.check(coding, &bytes, &mixed));
                let known: Vec<_> = (0..asked).map(|_| rng.pick(&elements).clone()).collect();
                assert!(flaws.check(coding, &bytes, &known));
            }
        }
    }
}

#[test]
fn damaged_sets_are_refused_where_bitcoin_guesses() {
    let mut rng = Rng::new(0x15b);
    let mut flaws = Flaws::default();
    let (mut answered, mut refused, mut over_range) = (0, 0, 0);
    for _ in 0..40_000 {
        let coding = coding(&mut rng);
        let count = rng.below(30);
        let elements = elements(&mut rng, count);
        let queries = queries(&mut rng, &elements, 6);
        let whole = coding.encode(&elements);
        let mut bytes = mutated(&mut rng, &whole);
        if rng.one_in(20) {
            // Encode the count in more bytes than it needs, or use a count above Core's limit.
            let (count, codes) = (u64::from(whole[0]), &whole[1..]);
            let count = count.to_le_bytes();
            bytes = match rng.below(4) {
                0 => [&[0xfd], &count[..2], codes].concat(),
                1 => [&[0xfe], &count[..4], codes].concat(),
                2 => [&[0xff], &count[..8], codes].concat(),
                _ => [&[0xfe, 1, 0, 0, 2], codes].concat(),
            };
        }
        // Counts whose product with M exceeds 64 bits are tested in
        // `counts_that_overflow_are_only_an_error`.
        if coding.prefix(&bytes).is_ok_and(|(count, _)| count > u64::MAX / u64::from(coding.m)) {
            continue;
        }
        // Core accepts values above the range, which match nothing.
        over_range += usize::from(coding.read(&bytes).is_ok_and(|reading| reading.over_range));
        if flaws.check(coding, &bytes, &queries) {
            answered += 1;
        } else {
            refused += 1;
        }
    }
    println!("{answered} answered, {refused} refused, {flaws:?}");
    assert!(answered > 5_000 && refused > 5_000, "{answered} {refused}");
    assert!(over_range > 200, "{over_range}");
    assert!(flaws.count_read_as_zero > 100, "{flaws:?}");
    assert!(flaws.trailing_bytes > 1_000, "{flaws:?}");
    assert!(flaws.settled_before_the_end > 1_000, "{flaws:?}");
    assert!(flaws.nothing_asked > 500, "{flaws:?}");
}

/// A count whose product with M exceeds 64 bits is an error. `bitcoin` panics where overflow is
/// checked, and continues with a wrong range where it is not.
#[test]
fn counts_that_overflow_are_only_an_error() {
    let coding = Coding { k0: 1, k1: 2, p: 19, m: 784_931 };
    let (mut panics, mut answers) = (0, 0);
    for count in [u64::MAX, u64::MAX / 784_931 + 1, 1 << 45, 1 << 63] {
        let bytes = [&compact_size(count)[..], &[0; 100]].concat();
        let queries = vec![b"script".to_vec()];
        match catch_unwind(|| asked_of_bitcoin(coding, &bytes, &queries)) {
            Err(_) => panics += 1,
            Ok(_) => answers += 1,
        }
        for acceptance in [Acceptance::Core, Acceptance::Strict] {
            let ours = coding.parse(&bytes, acceptance).map(drop);
            assert_eq!(ours, Err(GcsError::CountTooLarge(count)));
        }
    }
    let checked = catch_unwind(|| std::hint::black_box(u8::MAX) + std::hint::black_box(1)).is_err();
    assert_eq!((panics, answers), if checked { (4, 0) } else { (0, 4) });
}

/// A count above Core's limit is an error. `bitcoin` accepts it, and here finds a script at the
/// first value.
#[test]
fn a_count_over_the_limit_is_only_an_error() {
    /// The smallest count above Core's limit.
    const COUNT: u64 = 0x0200_0001;
    let coding = Coding { k0: 5, k1: 6, p: 0, m: 1 };
    let scripts = (0..u32::MAX).map(|number| number.to_le_bytes().to_vec());
    let script = scripts.into_iter().find(|script| coding.value(COUNT, script) < 800);
    let script = script.expect("one in 42,000");
    let value = usize::try_from(coding.value(COUNT, &script)).expect("small");
    // With P = 0 the codes are unary: `value` ones and a zero give the first value, and each
    // further zero repeats it.
    let mut codes = vec![0; 200];
    (0..value).for_each(|bit| codes[bit / 8] |= 0x80 >> (bit % 8));
    let bytes = [&compact_size(COUNT)[..], &codes].concat();
    let queries = [script];
    assert_eq!(asked_of_bitcoin(coding, &bytes, &queries), (Some(true), Some(true)));
    assert!(!Flaws::default().check(coding, &bytes, &queries));
    assert_eq!(coding.check_reading(&bytes), Err(Fault::CountTooLarge));

    // A count at the limit is accepted, and then the codes run out.
    let bytes = [&compact_size(COUNT - 1)[..], &codes].concat();
    assert_eq!(coding.check_reading(&bytes), Err(Fault::Cut));
}

/// Two scripts have the same hash under this key, found by a search over seven billion hashes. A
/// set counts both, and its codes contain a delta of 0.
#[test]
fn scripts_of_one_hash_are_two_elements() {
    let key: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).expect("small"));
    let (k0, k1) = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
    assert_eq!(SipKey::from_bytes(key), SipKey { k0, k1 });
    let script = |program: u64| {
        let mut script = vec![0; 22];
        script[1] = 20;
        script[2..10].copy_from_slice(&program.to_le_bytes());
        script
    };
    let (one, other) = (script(0x4a6d_5790_7baf_8fe2), script(0x0ff3_20e1_0242_5322));
    let hash = |script: &[u8]| siphash24::Hash::hash_to_u64_with_keys(k0, k1, script);
    assert_eq!((hash(&one), hash(&other)), (0x0c2c_e6b2_65aa_ea06, 0x0c2c_e6b2_65aa_ea06));

    let mut rng = Rng::new(0x15f);
    for beside in [0, 1, 30, 400] {
        let mut elements = elements(&mut rng, beside);
        elements.retain(|element| !element.is_empty());
        elements.extend([&one, &other, &one, &one, &other].map(Clone::clone));
        for (p, m) in [(19, 784_931), (0, 1), (2, 5), (32, u32::MAX)] {
            let coding = Coding { k0, k1, p, m };
            let bytes = coding.written(&elements);
            assert_eq!(bytes, written_by_bitcoin(coding, &elements), "beside {beside}");
            assert_eq!(bytes, coding.encode(&elements), "beside {beside}");
            let distinct: BTreeSet<_> = elements.iter().collect();
            let count = coding.parse(&bytes, Acceptance::Strict).map(|set| set.num_elements());
            assert_eq!(count, Ok(u32::try_from(distinct.len()).expect("few")));
            assert!(Flaws::default().check(coding, &bytes, &elements));
            // A set with only one of the two scripts matches both.
            let alone = coding.written(std::slice::from_ref(&one));
            let queries = [one.clone(), other.clone()];
            assert_eq!(coding.check_matching(&alone, &queries), Some(vec![0, 1]));
        }
    }
}

/// A filter that is cut within its count is rejected, as in Core. `bitcoin` reads it as a filter
/// that contains nothing.
#[test]
fn a_cut_count_hides_every_script_from_bitcoin() {
    let coding = Coding { k0: 3, k1: 4, p: 19, m: 784_931 };
    let mut rng = Rng::new(0x15c);
    let elements = elements(&mut rng, 300);
    let whole = coding.encode(&elements);
    assert_eq!(asked_of_bitcoin(coding, &whole, &elements), (Some(true), Some(true)));
    for cut in [&whole[..0], &whole[..1], &whole[..2]] {
        assert_eq!(asked_of_bitcoin(coding, cut, &elements), (Some(false), Some(false)));
        assert_eq!(coding.check_reading(cut), Err(Fault::CountCut));
    }
}

fn block_with_coinbase(rng: &mut Rng, transactions: usize, words: &[Vec<u8>]) -> Block {
    let mut block = random_block::block(rng, transactions, words).block.clone();
    block.txdata[0].input = vec![TxIn::default()];
    block
}

/// Random blocks with empty and unspendable scripts, which spend outputs of their own and outputs
/// that are not in the block.
#[test]
fn filters_of_blocks_are_built_the_same() {
    let mut rng = Rng::new(0x15d);
    let words: Vec<_> = (0..20).map(|length| rng.bytes(length + 2)).collect();
    let (mut empty, mut unspendable) = (0, 0);
    for _ in 0..400 {
        let count = 1 + rng.below(24);
        let block = block_with_coinbase(&mut rng, count, &words);
        let mut scripts: HashMap<OutPoint, ScriptBuf> = HashMap::new();
        for input in block.txdata.iter().skip(1).flat_map(|tx| &tx.input) {
            let script = match rng.below(5) {
                0 => Vec::new(),
                1 => vec![0x6a, 1, 2],
                _ => rng.pick(&words).clone(),
            };
            empty += usize::from(script.is_empty());
            unspendable += usize::from(script.first() == Some(&0x6a));
            scripts.insert(input.previous_output, ScriptBuf::from(script));
        }
        for tx in &block.txdata {
            let txid = tx.compute_txid();
            for (output, vout) in tx.output.iter().zip(0..) {
                scripts.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
            }
        }
        let theirs = TheirFilter::new_script_filter(&block, |outpoint| {
            scripts.get(outpoint).cloned().ok_or(Error::UtxoMissing(*outpoint))
        });
        let ours = BlockFilter::new(&block, |outpoint| scripts.get(outpoint).cloned());
        let (theirs, ours) = (theirs.expect("all given"), ours.expect("all given"));
        assert_eq!(hex::encode(&ours.content), hex::encode(&theirs.content));
        let inputs = block.txdata.iter().skip(1).flat_map(|tx| &tx.input);
        let spent: Vec<_> = inputs.map(|input| &scripts[&input.previous_output]).collect();
        assert_eq!(BlockFilter::from_prevout_scripts(&block, &spent), Ok(ours.clone()));
        let raw = serialize(&block);
        assert_eq!(BlockFilter::from_raw_block(&raw, &spent), Ok(ours.clone()));

        let coding = Coding::basic(ours.block_hash.as_ref());
        let questions: Vec<_> = scripts.values().map(|script| script.to_bytes()).collect();
        let any = theirs.match_any(&ours.block_hash, questions.iter().map(Vec::as_slice));
        let found = coding.check_matching(&ours.content, &questions).expect("readable");
        assert_eq!(any.ok(), Some(!found.is_empty()));
    }
    assert!(empty > 100 && unspendable > 100, "{empty} {unspendable}");
}

/// Checks the assertions of the fuzz targets on random bytes and on damaged blocks.
#[test]
fn any_bytes_at_all() {
    let mut rng = Rng::new(0x15e);
    let (mut sets, mut found, mut blocks) = (0, 0, 0);
    for round in 0..20_000 {
        let length = rng.below(60);
        let mut data = rng.bytes(length);
        found += usize::from(elements_come_back(&data).is_some_and(|found| found > 0));
        if let Some(count) = data.get_mut(6) {
            *count %= 30;
        }
        sets += usize::from(set_is_read_alike(&data).is_some());
        if round % 20 == 0 {
            let words = [rng.bytes(22), rng.bytes(23), vec![0x6a, 1]];
            let count = 1 + rng.below(9);
            let block = serialize(&block_with_coinbase(&mut rng, count, &words));
            let block = if rng.one_in(3) { block } else { mutated(&mut rng, &block) };
            blocks += usize::from(block_has_its_filter(&[block, data].concat()).is_some());
        }
    }
    assert!(sets > 150 && found > 1_000 && blocks > 300, "{sets} {found} {blocks}");
}
