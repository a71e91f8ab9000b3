//! Membership filters over the output scripts of real blocks: no member is lost, and absent scripts
//! pass at the expected rate.
#![expect(clippy::cast_precision_loss, reason = "counts become rates")]

use std::collections::BTreeSet;

use chainsieve::bitcoin::{Block, consensus};
use chainsieve_filter::bloom::BloomFilter;
use chainsieve_filter::cuckoo::CuckooFilter12;
use chainsieve_filter::fuse::BinaryFuse8;
use chainsieve_filter::ribbon::RibbonFilter;
use chainsieve_filter::split_block::SplitBlockFilter512;
use chainsieve_filter::{Filter, Insert, KeyHasher};

use testkit::assert_rate;
use testkit::btc::corpus::Corpus;

/// Number of seeds, large enough for more than 1,000 false positives of the rarest kind.
const SEEDS: u64 = 60;

/// Returns the distinct scripts of all outputs, split alternately into two halves.
fn scripts(corpus: &Corpus) -> [Vec<Vec<u8>>; 2] {
    let mut scripts = BTreeSet::new();
    for file in corpus.files.iter().filter(|file| file.format_kind() == "raw block") {
        let block: Block = consensus::deserialize(&corpus.read(&file.name)).expect("a block");
        let outputs = block.txdata.into_iter().flat_map(|tx| tx.output);
        scripts.extend(outputs.map(|output| output.script_pubkey.into_bytes()));
    }
    // Sorted scripts with the same prefix are neighbours, so both halves get scripts with the same
    // prefixes.
    let mut halves = [Vec::new(), Vec::new()];
    for (index, script) in scripts.into_iter().enumerate() {
        halves[index % 2].push(script);
    }
    halves
}

/// Checks that `filter` contains all members, and returns the number of strangers that pass.
fn passed(filter: &impl Filter, [members, strangers]: &[Vec<Vec<u8>>; 2]) -> u64 {
    assert!(members.iter().all(|script| filter.contains(script)), "a member is lost");
    strangers.iter().filter(|script| filter.contains(script)).count() as u64
}

#[test]
fn filters_of_real_scripts_have_their_rates() {
    let Some(corpus) = Corpus::open() else { return };
    let halves = scripts(&corpus);
    let [members, strangers] = &halves;
    assert!(members.len() > 10_000, "{} scripts", members.len());
    let count = members.len() as f64;

    let mut hits = [0; 5];
    let (mut blocks_rate, mut cuckoo_rate) = (0.0, 0.0);
    for seed in 0..SEEDS {
        let hasher = match seed % 2 {
            0 => KeyHasher::xxh3(seed),
            _ => KeyHasher::siphash_1_3([seed, 1]),
        };
        let hashes: Vec<u64> = members.iter().map(|script| hasher.hash(script)).collect();
        let mut bloom = <BloomFilter>::with_bits(members.len() as u64 * 10, 7, hasher).unwrap();
        bloom.insert_batch(&hashes).unwrap();
        let mut blocks =
            SplitBlockFilter512::with_blocks(members.len() as u64 / 50, hasher).unwrap();
        blocks.insert_batch(&hashes).unwrap();
        blocks_rate += blocks.expected_fpr() / SEEDS as f64;
        let mut cuckoo = CuckooFilter12::with_capacity(members.len() as u64, hasher).unwrap();
        cuckoo.insert_batch(&hashes).unwrap();
        // A query is compared with two buckets of `each` fingerprints on average. A fingerprint has
        // 4,095 possible values.
        let each = count / cuckoo.num_buckets() as f64;
        cuckoo_rate += (1.0 - (1.0 - 1.0 / 4095.0_f64).powf(2.0 * each)) / SEEDS as f64;
        let fuse = BinaryFuse8::build_with_seed(&hashes, hasher, seed).unwrap();
        let ribbon = RibbonFilter::build_with_columns(&hashes, 7, hasher).unwrap();
        let now = [
            passed(&bloom, &halves),
            passed(&blocks, &halves),
            passed(&cuckoo, &halves),
            passed(&fuse, &halves),
            passed(&ribbon, &halves),
        ];
        hits.iter_mut().zip(now).for_each(|(hits, now)| *hits += now);
    }
    let bloom_rate = (1.0 - (-0.7_f64).exp()).powi(7);
    let rates = [bloom_rate, blocks_rate, cuckoo_rate, 1.0 / 256.0, 1.0 / 128.0];
    let names = ["classic", "split-block", "cuckoo", "fuse", "ribbon"];
    for ((name, rate), hits) in names.into_iter().zip(rates).zip(hits) {
        assert!(hits > 1_000, "{name}: {hits} hits are too few to tell");
        assert_rate(name, rate, hits, strangers.len() as u64 * SEEDS);
    }
}
