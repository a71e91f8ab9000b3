//! Areas of filters of other formats: Parquet's split-block filter, binary fuse filters as the C
//! library `xor_singleheader` writes them.

use std::fs;

use parquet::bloom_filter::Sbbf;
use serde_json::{Value, json};

use crate::numbers::Numbers;
use crate::pack::{Area, Case, Group, Kind, Level, invalid, member, value};
use crate::parquet_file;
use crate::sources::Sources;

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    vec![parquet(), parquet_file::area(), fuse(sources, &FUSE8), fuse(sources, &FUSE16)]
}

/// The bits of a filter: what `write` puts after the header, which ends with the number of bytes.
fn bits(filter: &Sbbf) -> Vec<u8> {
    let mut bytes = Vec::new();
    filter.write_bitset(&mut bytes).expect("a vector takes all bytes");
    bytes
}

fn parquet() -> Area {
    let mut numbers = Numbers::new(256);
    let mut cases = Vec::new();
    let case = |comment: String, filter: &Sbbf, data: &[u8]| {
        let input = json!({ "bitset": hex::encode(bits(filter)), "data": hex::encode(data) });
        Case::new(comment, input, value(json!({ "contains": filter.check(data) })))
            .level(Level::Specification)
    };
    // The crate's constructor for a number of bytes would make four blocks of three. It comes last, so
    // that the keys of the other filters stay as they are.
    for blocks in [1_usize, 2, 4, 32, 3] {
        let mut filter = Sbbf::new(&vec![0; 32 * blocks]);
        let len = 32 * blocks;
        let of_three =
            if blocks == 3 { ", in three blocks, among which no mask can choose" } else { "" };
        let len = format!("{len} bytes{of_three}");
        cases.push(case(format!("{len}: nothing inserted"), &filter, b"key"));
        let keys: Vec<_> = (0..12 * blocks).map(|at| numbers.bytes(at % 40)).collect();
        for key in &keys {
            filter.insert(key.as_slice());
        }
        for key in keys.iter().take(if blocks > 4 { 2 } else { 6 }) {
            let comment = format!("{len}: a key of {} bytes that was inserted", key.len());
            cases.push(case(comment, &filter, key));
        }
        let mut absent = [0, 0];
        for _ in 0..3_000 {
            let key = numbers.bytes(20);
            let found = filter.check(key.as_slice());
            absent[usize::from(found)] += 1;
            if absent[usize::from(found)] <= 3 {
                let comment = if found {
                    "not inserted, but its eight bits are set: exact bits, not only those of keys"
                } else {
                    "not inserted: a reader that says maybe to all is no use"
                };
                cases.push(
                    case(format!("{len}: {comment}"), &filter, &key)
                        .flag_if(found, "FalsePositive"),
                );
            }
        }
    }
    // Bits that need not come from keys alone: those of a key, and one more.
    let mut filter = Sbbf::new(&[0; 32]);
    filter.insert(&b"key"[..]);
    let mut bitset = bits(&filter);
    let clear = bitset.iter().position(|byte| *byte == 0).expect("a byte without bits");
    bitset[clear] = 1;
    let filter = Sbbf::new(&bitset);
    cases.push(case("a key, and a bit that is of no key".into(), &filter, b"key"));
    // Written by parquet-mr for the strings a0 to a9; from the tests of Arrow's crate.
    let mr: [u8; 32] = [
        200, 1, 80, 20, 64, 68, 8, 109, 6, 37, 4, 67, 144, 80, 96, 32, 8, 132, 43, 33, 0, 5, 99,
        65, 2, 0, 224, 44, 64, 78, 96, 4,
    ];
    for number in 0..10 {
        let input = json!({ "bitset": hex::encode(mr), "data": hex::encode(format!("a{number}")) });
        cases.push(
            Case::new(
                "a key of a filter that parquet-mr wrote: another implementation's bits",
                input,
                value(json!({ "contains": true })),
            )
            .level(Level::Specification)
            .source("parquet-mr, from the tests of the crate parquet"),
        );
    }
    for (name, length) in [("no-block", 0), ("half-a-block", 16), ("a-block-and-a-byte", 33)] {
        let input = json!({ "bitset": "00".repeat(length), "data": "6b6579" });
        cases.push(
            Case::new(format!("a bitset of {length} bytes"), input, invalid("length"))
                .named(name)
                .flag("Hostile")
                .level(Level::Specification)
                .source("BloomFilter.md of parquet-format: one or more blocks of 32 bytes"),
        );
    }
    Area {
        name: "filter.parquet",
        title: "Parquet's split-block Bloom filter",
        about: "Blocks of 256 bits; XXH64 with seed 0 of the key's bytes chooses a block by its high half, \
                and a bit of each of the eight words by its low half. The choice is a product with the number \
                of blocks, which need not be a power of two, though some readers demand that.",
        source: "the crate parquet 60",
        input: vec![
            member("bitset", Kind::Bytes, "the bits, without Thrift's header"),
            member("data", Kind::Bytes, "bytes of the key"),
        ],
        value: vec![member("contains", Kind::Boolean, "whether the filter may contain the key")],
        flags: &[
            ("FalsePositive", "was not inserted: an exact implementation finds it as well"),
            ("Hostile", "malformed: must be refused in an orderly way"),
        ],
        groups: vec![Group { cases, ..Group::default() }],
    }
}

/// A filter that pyfusefilter 1.3.0 wrote for the texts of 0 to 99, and what it answers for others.
struct Fuse {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    file: &'static str,
    /// Numbers below `asked` that it finds though they were not put in.
    found: &'static [u32],
    asked: u32,
}

const FUSE8: Fuse = Fuse {
    name: "filter.fuse8",
    title: "Binary fuse filter of 8-bit fingerprints",
    about: "Reads the bytes that the C library xor_singleheader and its bindings write \
            (little-endian), and tests keys. A key is a text, hashed by XXH64 with seed 0. The bytes are: seed \
            (8), number of keys (4), length of a segment (4), number of segments (4), their length together \
            (4), number of fingerprints (4), fingerprints.",
    file: "filters/xor_singleheader_fuse8.bin",
    found: &[347, 568, 727, 786, 908, 995, 996, 1_107, 1_142, 1_474, 1_517, 1_695, 1_865],
    asked: 2_000,
};

const FUSE16: Fuse = Fuse {
    name: "filter.fuse16",
    title: "Binary fuse filter of 16-bit fingerprints",
    about: "Reads the bytes that the C library xor_singleheader and its bindings write \
            (little-endian), and tests keys. A key is a text, hashed by XXH64 with seed 0. The bytes are: seed \
            (8), number of keys (4), length of a segment (4), number of segments (4), their length together \
            (4), number of fingerprints (4), fingerprints. \
            The last 4 bytes are unused: the library's function for the size of 16-bit filters counts the \
            mask of a segment's length, which the function that writes the filter leaves out.",
    file: "filters/xor_singleheader_fuse16.bin",
    found: &[29_046, 42_288, 144_194, 152_295, 181_559, 193_955],
    asked: 200_000,
};

fn fuse(sources: &Sources, fuse: &Fuse) -> Area {
    let bytes = fs::read(sources.fixtures.join(fuse.file)).expect("the fixture");
    let text = hex::encode(bytes);
    let case = |comment: String, keys: &[u32]| {
        let contains: Vec<Value> =
            keys.iter().map(|key| json!(*key < 100 || fuse.found.contains(key))).collect();
        let keys: Vec<_> = keys.iter().map(u32::to_string).collect();
        Case::new(
            comment,
            json!({ "bytes": text, "keys": keys }),
            value(json!({ "contains": contains })),
        )
    };
    let mut cases: Vec<_> = (0..10)
        .map(|ten| {
            case(
                "keys that were put in: a no would lose them".into(),
                &(10 * ten..10 * ten + 10).collect::<Vec<_>>(),
            )
        })
        .collect();
    let step = (fuse.asked - 100) / 200;
    for at in 0..20 {
        let keys: Vec<_> = (0..10).map(|key| 100 + step * (10 * at + key)).collect();
        cases.push(case(
            "keys that were not put in: positions of a key by the seed, and its fingerprint".into(),
            &keys,
        ));
    }
    for found in fuse.found {
        cases.push(
            case(
                "a false positive between two absent keys: only exact fingerprints find it".into(),
                &[found - 1, *found, found + 1],
            )
            .flag("FalsePositive"),
        );
    }
    Area {
        name: fuse.name,
        title: fuse.title,
        about: fuse.about,
        source: "pyfusefilter 1.3.0",
        input: vec![
            member("bytes", Kind::Bytes, "serialised filter"),
            member("keys", Kind::List(&Kind::Decimal), "keys: decimal numbers as text"),
        ],
        value: vec![member(
            "contains",
            Kind::List(&Kind::Boolean),
            "for each key, whether the filter may contain it",
        )],
        flags: &[("FalsePositive", "was not put in: an exact implementation finds it as well")],
        groups: vec![Group { cases, ..Group::default() }],
    }
}
