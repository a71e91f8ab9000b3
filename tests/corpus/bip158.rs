//! Filters of every block whose spent scripts are known, the published filter headers, and Bitcoin
//! Core's answers about Golomb-coded sets.

use std::collections::BTreeMap;

use chainsieve::bitcoin::ScriptBuf;
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;

use testkit::btc::corpus::Corpus;
use testkit::btc::gcs_cases::{self, Mutants, SpentBlock, basic_filter_of};
use testkit::btc::naive_gcs::{Coding, basic_elements};
use testkit::btc::oracle::from_hex;

/// Returns the scripts of a file of spent outputs. Each record is a value of eight bytes, a length
/// and the script.
fn spent_scripts(mut records: &[u8]) -> Vec<ScriptBuf> {
    let mut scripts = Vec::new();
    while let Some((_value, rest)) = records.split_first_chunk::<8>() {
        let (first, rest) = rest.split_first().expect("a length");
        let (length, rest) = match first {
            0xfd => (usize::from(u16::from_le_bytes([rest[0], rest[1]])), &rest[2..]),
            0xfe.. => panic!("a script of more than 65,535 bytes"),
            length => (usize::from(*length), rest),
        };
        let (script, rest) = rest.split_at(length);
        scripts.push(ScriptBuf::from(script.to_vec()));
        records = rest;
    }
    assert!(records.is_empty(), "{} bytes left", records.len());
    scripts
}

/// Returns a block and its spent scripts. `name` is the block's file name without folder and
/// extension.
fn spent_block(corpus: &Corpus, name: &str) -> SpentBlock {
    let ending = format!("/{name}.prevouts.bin");
    let file = corpus.files.iter().find(|file| file.name.ends_with(&ending));
    let file = file.unwrap_or_else(|| panic!("nothing spent of {name} in the index"));
    (corpus.block(name), spent_scripts(&corpus.read(&file.name)))
}

/// Returns the names of the blocks with spent scripts, each with the filter that the corpus has for
/// it.
fn filters(corpus: &Corpus) -> Vec<(String, Vec<u8>)> {
    let name = |file: &str| {
        let path = file.strip_suffix(".basic_filter.hex")?;
        Some(path.rsplit('/').next()?.to_owned())
    };
    let files = corpus.files.iter().filter_map(|file| Some((name(&file.name)?, &file.name)));
    let filter = |file: &str| String::from_utf8(corpus.read(file)).expect("hex");
    files.map(|(name, file)| (name, from_hex(filter(file).trim_end()))).collect()
}

fn published_headers(corpus: &Corpus) -> Vec<FilterHeader> {
    let bytes = corpus.read("mainnet/filter_headers/filter_headers_0-49999.bin");
    let (headers, rest) = bytes.as_chunks::<32>();
    assert_eq!((headers.len(), rest.len()), (50_000, 0));
    headers.iter().map(|header| FilterHeader::from_byte_array(*header)).collect()
}

#[test]
fn core_reads_and_writes_every_set_the_same() {
    let Some(corpus) = Corpus::open() else { return };
    let text = String::from_utf8(corpus.read("core_oracle/cases.jsonl")).expect("UTF-8");
    let (counts, mutants) = gcs_cases::check_all(&text, &|name| spent_block(&corpus, name));
    let expected = [("basic_filter", 18), ("gcs", 120), ("gcs_large", 9)];
    let expected = expected.map(|(kind, count)| (kind.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
    let expected = Mutants {
        refused: 466,
        taken_by_both: 173,
        over_range: 5,
        padding: 76,
        over_range_and_padding: 0,
    };
    assert_eq!(mutants, expected);
}

/// Builds each filter of the corpus from its block and queries it. Every element must match, and
/// almost none of at most 256 absent scripts.
#[test]
fn every_block_with_its_spent_scripts_has_its_filter() {
    let Some(corpus) = Corpus::open() else { return };
    let headers = published_headers(&corpus);
    let mut with_header = Vec::new();
    let (mut elements_in_all, mut false_positives) = (0, 0);
    let filters = filters(&corpus);
    for (name, expected) in &filters {
        let (block, spent) = spent_block(&corpus, name);
        let filter = basic_filter_of(&block, &spent);
        assert_eq!(hex::encode(&filter.content), hex::encode(expected), "{name}");

        let height: usize =
            name.strip_prefix("block_").expect("a block").parse().expect("a height");
        let mainnet = format!("mainnet/blocks/{name}.raw");
        let mainnet = corpus.files.iter().any(|file| file.name == mainnet);
        if let Some(published) = headers.get(height).filter(|_| mainnet) {
            assert_eq!(filter.filter_header(&headers[height - 1]), *published, "{name}");
            with_header.push(height);
        }

        let elements: Vec<_> = basic_elements(&block.block, &spent).into_iter().collect();
        let coding = Coding::basic(filter.block_hash.as_ref());
        let set = coding.read(expected).expect("what Core wrote");
        assert!(set.is_canonical());
        assert_eq!(set.values.len(), elements.len(), "{name}");
        let few = elements.len().min(400);
        let found = coding.check_matching(expected, &elements[elements.len() - few..]);
        assert_eq!(found, Some((0..few).collect()), "{name}");
        let beside = elements.iter().take(40).flat_map(|script| [script; 10]).zip(0..=u8::MAX);
        let absent: Vec<_> = beside.map(|(script, byte)| [&script[..], &[byte]].concat()).collect();
        false_positives += coding.check_matching(expected, &absent).expect("readable").len();
        elements_in_all += elements.len();
    }
    with_header.sort_unstable();
    assert_eq!(with_header, [170, 2_016, 32_256, 32_636]);
    assert_eq!((filters.len(), elements_in_all), (18, 14_662));
    assert!(false_positives < 2, "{false_positives} of about 2,600 at 1 in 784,931");
}
