//! The golden index: every version must read it, and this version must write it byte for byte.
//!
//! `fixtures/ethereum/index` contains blocks 1,000,000 to 1,008,207 of a made-up chain. The blocks
//! up to 1,008,191 are sealed, and the tail has two branches. The blooms are made by alloy.

use std::fs;
use std::path::{Path, PathBuf};

use alloy_primitives::{Address, B256, Bloom, BloomInput};
use chainsieve::eth::bloom;
use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::eth::index::{Folder, Index, IndexError, Settings, Writer};
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::simd::Backend;

use testkit::TestFolder;
use testkit::eth::fixtures;
use testkit::eth::linked_headers::linked_headers;

/// Number of the first block.
const FIRST: u64 = 1_000_000;
/// Number of blocks in a section.
const SECTION: u64 = 8_192;
/// The last common block of both branches.
const FORK: u64 = FIRST + SECTION + 11;

/// Returns two real blooms, of blocks 17,686,111 and 17,686,112.
fn real_blooms() -> [Bloom; 2] {
    [17_686_111, 17_686_112].map(|number| {
        let (header, _) = fixtures::block(number);
        let header = HeaderView::decode(&header).expect("a header");
        Bloom::from(*header.logs_bloom().bytes().expect("256 bytes"))
    })
}

fn address(number: u64) -> Address {
    Address::left_padding_from(&(0xa000 + number).to_be_bytes())
}

/// Returns the bloom of a block. One contract is in every block, one in every other, and some are
/// rarer. Two blocks contain a real bloom, and one block has a bloom of all ones.
fn bloom_of(number: u64, real: &[Bloom; 2]) -> Bloom {
    let mut bloom = Bloom::ZERO;
    let add = |bloom: &mut Bloom, number| bloom.accrue(BloomInput::Raw(address(number).as_slice()));
    add(&mut bloom, 0);
    for (index, every) in (1..).zip([2, 31, 257, 5_000]) {
        if number.is_multiple_of(every) {
            add(&mut bloom, index);
        }
    }
    match number - FIRST {
        273 => bloom |= real[0],
        8_200 => bloom |= real[1],
        4_000 => bloom = Bloom::repeat_byte(0xff),
        _ => {}
    }
    bloom
}

/// Returns the blocks up to the fork, the branch that is rolled back, and the branch that replaces
/// it.
fn chains() -> [LinkedHeaders; 3] {
    let real = real_blooms();
    let blooms = |first: u64, last: u64| -> Vec<[u8; 256]> {
        (first..=last).map(|number| bloom_of(number, &real).0.0).collect()
    };
    let stem = linked_headers(FIRST, B256::repeat_byte(0x42), 0, &blooms(FIRST, FORK));
    let tip = stem.last_hash().expect("blocks");
    let old = linked_headers(FORK + 1, tip, 1, &blooms(FORK + 1, FORK + 2));
    let new = linked_headers(FORK + 1, tip, 2, &blooms(FORK + 1, FORK + 4));
    [stem, old, new]
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ethereum/index")
}

/// Returns the files of a folder by name, without the lock.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            let name = entry.file_name().into_string().expect("UTF-8");
            (name, fs::read(entry.path()).expect("a file"))
        })
        .filter(|(name, _)| name != "lock")
        .collect();
    files.sort();
    files
}

fn write(folder: &Path, chains: &[LinkedHeaders; 3]) -> Result<(), IndexError> {
    let settings = Settings::new("golden")?;
    let mut writer = Writer::open(Folder::new(folder), &settings)?.with_confirmations(8);
    let [stem, old, new] = chains;
    writer.append(stem)?;
    writer.sync()?;
    writer.append(old)?;
    writer.sync()?;
    assert_eq!(writer.roll_back(FORK)?, 2);
    writer.append(new)?;
    writer.sync()
}

#[test]
fn the_golden_index_is_written_byte_for_byte() {
    let folder = TestFolder::new("golden-index");
    write(folder.path(), &chains()).expect("written");
    let (written, golden) = (files(folder.path()), files(&golden()));
    let names = |files: &[(String, _)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&written), ["00000000-01.segment", "0000000000000001.tail", "manifest"]);
    assert_eq!(names(&golden), names(&written));
    for ((name, written), (_, golden)) in written.iter().zip(&golden) {
        assert!(written == golden, "{name} has changed: {} bytes", written.len());
    }
}

#[test]
fn the_golden_index_answers_as_its_filters() {
    let index = Index::open(Folder::new(golden())).expect("the golden index");
    assert_eq!(index.settings().label(), "golden");
    assert_eq!(index.numbers(), Some(FIRST..=FORK + 4));
    let [stem, _, new] = chains();
    let sealed = stem.block(FIRST + SECTION - 1).expect("a block").hash;
    assert_eq!(index.next_known_hash(FIRST), Ok((FIRST, stem.block(FIRST).expect("a block").hash)));
    assert_eq!(index.next_known_hash(FIRST + 1), Ok((FIRST + SECTION - 1, sealed)));
    assert_eq!(
        index.next_known_hash(FORK + 3),
        Ok((FORK + 3, new.block(FORK + 3).expect("a block").hash))
    );

    let real = real_blooms();
    // USDC and wrapped ether are in the real blooms.
    let tokens =
        ["a0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", "c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2"]
            .map(|hex| hex.parse::<Address>().expect("an address"));
    let asked: Vec<Vec<Vec<Address>>> = vec![
        vec![vec![address(0)]],
        vec![vec![address(1)]],
        vec![vec![address(2)]],
        vec![vec![address(3)]],
        vec![vec![address(4)]],
        vec![vec![address(98)]],
        vec![vec![address(2)], vec![address(3)]],
        vec![vec![address(2), address(3), address(98)]],
        vec![vec![address(1)], vec![address(3), address(4)]],
        vec![vec![tokens[0]]],
        vec![vec![tokens[0], tokens[1]], vec![address(0)]],
    ];
    let mut counts = Vec::new();
    for query in asked {
        let matches = |number: &u64| {
            let bloom = bloom_of(*number, &real);
            query.iter().all(|values| {
                values.iter().any(|value| bloom.contains_input(BloomInput::Raw(value.as_slice())))
            })
        };
        let expected: Vec<u64> = (FIRST..=FORK + 4).filter(matches).collect();
        let clause = |values: &Vec<Address>| {
            values.iter().map(|value| bloom::positions(value.as_slice())).collect()
        };
        let compiled = CompiledQuery::new(query.iter().map(clause).collect());
        for backend in Backend::available() {
            let found =
                index.candidates_on(backend, &compiled, FIRST..=FORK + 4).expect("an answer");
            assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        }
        counts.push(expected.len());
    }
    // Counted by hand: multiples of 1, 2, 31, 257 and 5,000, and the block with a bloom of all
    // ones.
    assert_eq!(counts, [8_208, 4_104, 265, 32, 3, 1, 2, 295, 19, 3, 3]);
}

/// A file of another version is rejected by its version number, whatever else is right.
#[test]
fn versions_to_come_are_refused() {
    for name in ["manifest", "00000000-01.segment", "0000000000000001.tail"] {
        let folder = TestFolder::new(&format!("version-2-of-{name}"));
        for (name, bytes) in files(&golden()) {
            fs::write(folder.path().join(name), bytes).expect("a copy");
        }
        let path = folder.path().join(name);
        let mut bytes = fs::read(&path).expect("a copy");
        bytes[8] = 2;
        fs::write(path, bytes).expect("written");
        let error = Index::open(Folder::new(folder.path())).map(|_| ()).expect_err("of version 2");
        assert_eq!(error, IndexError::Version { file: name.into(), found: 2, known: 1 });
    }
}
