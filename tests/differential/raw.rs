//! Raw blocks and transactions against `bitcoin`'s decoder. Both accept or both reject, with the
//! same ids and number of elements, and the elements match as in the slow matcher.

use chainsieve::bitcoin::{Block, ScriptBuf, Transaction, consensus};
use chainsieve::btc::bip37::{BlockElements, BloomFilter, Elements};

use testkit::Rng;
use testkit::btc::corpus::Corpus;
use testkit::btc::entry_points;
use testkit::btc::fixtures;
use testkit::btc::random_block;
use testkit::btc::slow_bip37::SlowFilter;
use testkit::btc::slow_bip37::script::non_empty_pushes;
use testkit::btc::slow_bip37::tree::compact_size;
use testkit::mutated;

/// Returns the number of elements that a filter tests for a transaction: its id, its outpoints and
/// its pushes.
fn count_elements(tx: &Transaction) -> usize {
    let pushes = |script: &ScriptBuf| non_empty_pushes(script.as_bytes()).len();
    let outputs: usize = tx.output.iter().map(|output| pushes(&output.script_pubkey)).sum();
    let inputs: usize = tx.input.iter().map(|input| 1 + pushes(&input.script_sig)).sum();
    1 + outputs + inputs
}

fn check_elements(name: &str, ours: &Elements, transactions: &[Transaction]) {
    let txids: Vec<_> = transactions.iter().map(Transaction::compute_txid).collect();
    assert_eq!(ours.txids(), txids, "{name}");
    assert_eq!((ours.len(), ours.is_empty()), (txids.len(), txids.is_empty()), "{name}");
    let expected: usize = transactions.iter().map(count_elements).sum();
    assert_eq!(ours.num_elements(), expected, "{name}");
}

/// Compares both decoders on a block. Returns `true` if both accept the block.
fn same_block(name: &str, raw: &[u8]) -> bool {
    let by_bitcoin = consensus::deserialize::<Block>(raw);
    let ours = BlockElements::from_raw(raw);
    match (&by_bitcoin, &ours) {
        (Ok(block), Ok(ours)) => {
            assert_eq!(*ours.header(), block.header, "{name}");
            check_elements(name, ours.elements(), &block.txdata);
            check_elements(name, BlockElements::from_block(block).elements(), &block.txdata);
            true
        }
        (Err(_), Err(error)) => {
            assert!(!error.to_string().is_empty());
            false
        }
        _ => panic!(
            "{name}: bitcoin {:?}, library {:?}: {}",
            by_bitcoin.as_ref().map(|_| "accepts"),
            ours.as_ref().map(|_| "accepts"),
            hex::encode(raw)
        ),
    }
}

/// Compares both decoders on a transaction. Returns `true` if both accept the transaction.
fn same_transaction(name: &str, raw: &[u8]) -> bool {
    let by_bitcoin = consensus::deserialize::<Transaction>(raw);
    let ours = Elements::from_raw_transaction(raw);
    match (&by_bitcoin, &ours) {
        (Ok(tx), Ok(ours)) => {
            let one = std::slice::from_ref(tx);
            check_elements(name, ours, one);
            check_elements(name, &Elements::from_transaction(tx), one);
            let payload =
                SlowFilter { data: vec![0xb7; 9], hash_funcs: 3, tweak: 1, flags: 1 }.payload();
            let mut slow = SlowFilter::from_payload(&payload);
            let mut filter = BloomFilter::decode(&payload).expect("within the limits");
            let found = filter.match_elements(ours).pop();
            let found = found.as_ref().map(entry_points::reasons).unwrap_or_default();
            assert_eq!(found, slow.match_and_update(tx), "{name}: reasons");
            assert_eq!(filter.encode(), slow.payload(), "{name}: filter after");
            true
        }
        (Err(_), Err(_)) => false,
        _ => panic!(
            "{name}: bitcoin {:?}, library {:?}: {}",
            by_bitcoin.as_ref().map(|_| "accepts"),
            ours.as_ref().map(|_| "accepts"),
            hex::encode(raw)
        ),
    }
}

#[test]
fn whole_and_cut_blocks() {
    for height in fixtures::BLOCKS {
        let raw = &fixtures::block(height).raw;
        assert!(same_block(&format!("block {height}"), raw));
        let longer = [&raw[..], &[0]].concat();
        assert!(!same_block(&format!("block {height} and a byte"), &longer));
    }
    let raw = &fixtures::block(170).raw;
    for end in 0..raw.len() {
        assert!(!same_block(&format!("block 170 cut at {end}"), &raw[..end]));
    }
}

#[test]
fn damaged_transactions() {
    let mut rng = Rng::new(21);
    let mut originals = Vec::new();
    for height in fixtures::BLOCKS {
        let block = &fixtures::block(height).block;
        originals.extend(block.txdata.iter().map(consensus::serialize));
    }
    let words: Vec<_> = [1, 20, 33].map(|length| rng.bytes(length)).into();
    let made_up = random_block::block(&mut rng, 300, &words);
    originals.extend(made_up.block.txdata.iter().map(consensus::serialize));
    originals.retain(|raw| raw.len() < 1_000);
    assert!(originals.len() > 400);

    let (mut accepted, mut refused) = (0, 0);
    for case in 0..60_000 {
        let original = rng.pick(&originals).clone();
        let raw = mutated(&mut rng, &original);
        let both = same_transaction(&format!("case {case}"), &raw);
        *if both { &mut accepted } else { &mut refused } += 1;
    }
    assert!(accepted > 5_000 && refused > 5_000, "{accepted} accepted, {refused} refused");
}

#[test]
fn damaged_blocks() {
    let mut rng = Rng::new(22);
    let words: Vec<_> = [1, 20, 33].map(|length| rng.bytes(length)).into();
    let mut originals: Vec<_> =
        (1..6).map(|count| random_block::block(&mut rng, count, &words).raw.clone()).collect();
    originals.push(fixtures::block(170).raw.clone());
    let (mut accepted, mut refused) = (0, 0);
    for case in 0..40_000 {
        let original = rng.pick(&originals).clone();
        let raw = mutated(&mut rng, &original);
        let both = same_block(&format!("case {case}"), &raw);
        *if both { &mut accepted } else { &mut refused } += 1;
    }
    assert!(accepted > 3_000 && refused > 3_000, "{accepted} accepted, {refused} refused");
}

/// Edge cases of the segwit encoding: the marker, the flag, and witnesses that are present, empty
/// or missing.
#[test]
fn segwit_corners() {
    let input = [&[0x11; 32][..], &[0; 4], &[1, 0xaa], &[0xff; 4]].concat();
    let output = [&[0; 8][..], &[2, 0x01, 0xbb]].concat();
    let version = [2, 0, 0, 0];
    let locktime = [9, 0, 0, 0];
    let case = |parts: &[&[u8]]| [&[&version[..]], parts, &[&locktime[..]]].concat().concat();
    let cases = [
        ("no inputs, no marker", case(&[&[0], &[1], &output]), false),
        ("no inputs with marker", case(&[&[0, 1], &[0], &[1], &output]), true),
        ("nothing at all with marker", case(&[&[0, 1], &[0], &[0]]), true),
        ("flag 0", case(&[&[0, 0], &[1], &input, &[1], &output, &[1, 1, 7]]), false),
        ("flag 2", case(&[&[0, 2], &[1], &input, &[1], &output, &[1, 1, 7]]), false),
        ("a witness", case(&[&[0, 1], &[1], &input, &[1], &output, &[1, 1, 7]]), true),
        ("an empty item", case(&[&[0, 1], &[1], &input, &[1], &output, &[1, 0]]), true),
        ("no witness", case(&[&[0, 1], &[1], &input, &[1], &output, &[0]]), false),
        (
            "a witness for the second input",
            case(&[&[0, 1], &[2], &input, &input, &[1], &output, &[0], &[1, 1, 7]]),
            true,
        ),
        ("two markers", case(&[&[0, 1], &[0, 1], &[1], &input, &[1], &output, &[0]]), false),
        ("no marker, no outputs", case(&[&[1], &input, &[0]]), true),
        ("outputs in three bytes", case(&[&[1], &input, &[0xfd, 1, 0], &output]), false),
        ("inputs in three bytes", case(&[&[0xfd, 1, 0], &input, &[1], &output]), false),
        ("marker in three bytes", case(&[&[0xfd, 0, 0], &[1], &input, &[0]]), false),
    ];
    for (name, raw, accepted) in cases {
        assert_eq!(same_transaction(name, &raw), accepted, "{name}");
    }
}

/// Transaction ids are hashed in batches. Checks transactions of every padding length, with and
/// without witnesses, in blocks of every size below 70.
#[test]
fn ids_of_transactions_of_every_length() {
    let mut rng = Rng::new(23);
    let tx = |rng: &mut Rng, length: usize| {
        let mut raw = vec![2, 0, 0, 0];
        let has_witness = rng.one_in(3);
        raw.extend(if has_witness { &[0, 1][..] } else { &[] });
        raw.push(1);
        raw.extend(rng.bytes(36));
        raw.extend(compact_size(length));
        raw.extend(rng.bytes(length));
        raw.extend([0xff; 4]);
        raw.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        raw.extend(if has_witness { &[1, 3, 7, 8, 9][..] } else { &[] });
        raw.extend([0; 4]);
        raw
    };
    let header = &fixtures::block(170).raw[..80];
    let check = |rng: &mut Rng, lengths: &[usize]| {
        let mut raw = [header, &compact_size(lengths.len())].concat();
        for length in lengths {
            raw.extend(tx(rng, *length));
        }
        assert!(same_block(&format!("transactions of {lengths:?}"), &raw));
    };
    let all: Vec<_> = (0..700).collect();
    check(&mut rng, &all);
    for length in 0..400 {
        check(&mut rng, &[length]);
    }
    for count in 1..70 {
        let same = vec![rng.below(300); count];
        check(&mut rng, &same);
        let mixed: Vec<_> = (0..count).map(|_| rng.below(2_500)).collect();
        check(&mut rng, &mixed);
    }
}

/// The one known difference: `bitcoin` limits the witness of an input to 4,000,000 bytes. Core
/// does not, and no block has room for more.
#[test]
fn larger_witnesses_are_refused_by_bitcoin_alone() {
    let input = [&[0x11; 36][..], &[0], &[0xff; 4]].concat();
    for (size, accepted_by_both) in [(3_999_990_u32, true), (4_000_001, false)] {
        let mut raw = [&[2, 0, 0, 0, 0, 1, 1][..], &input, &[0], &[1, 0xfe]].concat();
        raw.extend(size.to_le_bytes());
        raw.resize(raw.len() + size as usize, 7);
        raw.extend([0; 4]);
        let by_bitcoin = consensus::deserialize::<Transaction>(&raw);
        assert_eq!(by_bitcoin.is_ok(), accepted_by_both, "{size} bytes");
        let ours = Elements::from_raw_transaction(&raw).map(|elements| elements.num_elements());
        assert_eq!(ours, Ok(2), "{size} bytes");
    }
}

#[test]
fn blocks_of_the_corpus() {
    let Some(corpus) = Corpus::open() else { return };
    let mut blocks = 0;
    for file in corpus.files.iter().filter(|file| file.format_kind() == "raw block") {
        assert!(same_block(&file.name, &corpus.read(&file.name)));
        blocks += 1;
    }
    assert_eq!(blocks, 30);
}
