//! Raw blocks and transactions that are cut or have false lengths.

use chainsieve::bitcoin::consensus::{self, serialize};
use chainsieve::btc::RawError;
use chainsieve::btc::bip37::{BlockElements, BloomFilter, Elements};

use crate::survives;
use testkit::Rng;
use testkit::btc::fixtures;
use testkit::btc::slow_bip37::SlowFilter;
use testkit::mutated;

/// Decodes a block, and returns its number of transactions. Each element, of at least two bytes,
/// may take a few dozen bytes of memory, in lists that grow by doubling.
fn take_apart(raw: &[u8]) -> Result<usize, RawError> {
    survives("BlockElements::from_raw", raw, 80, 4_000, || {
        BlockElements::from_raw(raw).map(|block| block.txids().len())
    })
}

#[test]
fn blocks_cut_at_every_byte_near_a_boundary() {
    for height in fixtures::BLOCKS {
        let block = fixtures::block(height);
        let raw = &block.raw;
        let mut boundaries = vec![0, 4, 36, 68, 72, 76, 80];
        let mut at = 80 + consensus::encode::VarInt::from(block.block.txdata.len()).size();
        boundaries.push(at);
        for tx in &block.block.txdata {
            for field in [4, 5, 37, 41, 42] {
                boundaries.push(at + field);
            }
            at += tx.total_size();
            boundaries.extend([at - 4, at]);
        }
        assert_eq!(at, raw.len());
        let mut cuts: Vec<_> =
            boundaries.into_iter().flat_map(|at| at.saturating_sub(2)..=at + 2).collect();
        cuts.sort_unstable();
        cuts.dedup();
        assert_eq!(take_apart(raw), Ok(block.block.txdata.len()), "block {height}");
        for end in cuts.into_iter().filter(|end| *end < raw.len()) {
            match take_apart(&raw[..end]) {
                Err(RawError::Truncated { offset, needed, left }) => {
                    assert!(offset + left == end && needed > left as u64, "{height} cut at {end}");
                }
                other => panic!("block {height} cut at {end}: {other:?}"),
            }
        }
        let longer = [&raw[..], &[0, 1, 2]].concat();
        assert_eq!(take_apart(&longer), Err(RawError::TrailingBytes(3)), "block {height}");
    }
}

/// Replaces every byte of a transaction by each length marker, followed by extreme lengths.
#[test]
fn lengths_maxed_at_every_byte() {
    let block = fixtures::block(757_753);
    let segwit = block.block.txdata.iter().find(|tx| tx.input.len() == 1 && tx.total_size() < 300);
    let segwit = segwit.expect("a small transaction with a witness");
    assert!(!segwit.input[0].witness.is_empty());
    let legacy = fixtures::block(170).block.txdata[1].clone();
    for raw in [serialize(segwit), serialize(&legacy)] {
        for at in 0..raw.len() {
            for length in [
                &[0xfd, 0xff, 0xff][..],
                &[0xfe, 0xff, 0xff, 0xff, 0xff],
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
                &[0xff, 0, 0, 0, 0, 0, 0, 0, 0x80],
                &[0xfd, 0, 0],
                &[0],
            ] {
                let changed = [&raw[..at], length, &raw[at + 1..]].concat();
                let _ = survives("from_raw_transaction", &changed, 80, 4_000, || {
                    Elements::from_raw_transaction(&changed).map(|elements| elements.len())
                });
            }
        }
    }
}

/// As many elements as the bytes can contain: pushes of one byte each.
#[test]
fn the_most_elements_for_the_bytes() {
    let pushes = [1, 0xab].repeat(500_000);
    let mut raw = vec![1, 0, 0, 0, 1];
    raw.extend([&[0x22; 36][..], &[0xfe], &1_000_000_u32.to_le_bytes(), &pushes].concat());
    raw.extend([&[0xff; 4][..], &[0], &[0; 4]].concat());
    let count = survives("from_raw_transaction", &raw, 80, 4_000, || {
        Elements::from_raw_transaction(&raw).map(|elements| elements.num_elements())
    });
    assert_eq!(count, Ok(500_002));
}

/// `bitcoin` decodes a block without transactions, so the library decodes it too.
#[test]
fn a_block_without_transactions() {
    let header = &fixtures::block(170).raw[..80];
    let raw = [header, &[0]].concat();
    assert_eq!(take_apart(&raw), Ok(0));
    let elements = BlockElements::from_raw(&raw).expect("decoded above");
    for data in [&[][..], &[0xff; 3]] {
        let payload = SlowFilter { data: data.to_vec(), hash_funcs: 1, tweak: 0, flags: 1 };
        let mut filter = BloomFilter::decode(&payload.payload()).expect("within the limits");
        assert_eq!(filter.match_block(&elements), []);
    }
}

#[test]
fn mutated_blocks() {
    let mut rng = Rng::new(14);
    let blocks = [170, 57_043].map(|height| fixtures::block(height).raw.clone());
    let (mut accepted, mut refused) = (0, 0);
    for case in 0..10_000 {
        let original = if case % 20 == 0 { &blocks[1] } else { &blocks[0] };
        let raw = mutated(&mut rng, original);
        match take_apart(&raw) {
            Ok(_) => accepted += 1,
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(accepted > 500 && refused > 500, "{accepted} accepted, {refused} refused");
}
