//! The area of Parquet's filters as files have them: Thrift's header, then the bits.

use parquet::bloom_filter::Sbbf;
use serde_json::json;

use crate::pack::{Area, Case, Expect, Group, Kind, Level, invalid, member, value};

/// The algorithm, the hash function and the compression of the header: each a union of which the format
/// has one member.
const CHOICES: [u8; 12] = [0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0];

/// Fields that no version of the format has, one of each type of Thrift's compact protocol.
const UNKNOWN: &[(&str, &str, &[u8])] = &[
    ("unknown-booleans", "true and false, whose value is in the type", &[0x11, 0x12]),
    ("unknown-byte", "a byte", &[0x13, 0x7f]),
    (
        "unknown-numbers",
        "integers of 16, 32 and 64 bits",
        &[0x14, 0x80, 1, 0x15, 2, 0x16, 0xff, 0x7f],
    ),
    (
        "unknown-largest-number",
        "an integer of 64 bits in ten bytes",
        &[0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
    ),
    ("unknown-double", "a double, of eight bytes", &[0x17, 1, 2, 3, 4, 5, 6, 7, 8]),
    ("unknown-text", "text, and text without bytes", &[0x18, 3, b'a', b'b', b'c', 0x18, 0]),
    ("unknown-list", "a list of three bytes", &[0x19, 0x33, 1, 2, 1]),
    (
        "unknown-long-list",
        "a list of sixteen numbers, whose length is a byte of its own",
        &[0x19, 0xf5, 16, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
    ),
    (
        "unknown-map",
        "a map of a text to a number, and one without entries",
        &[0x1b, 1, 0x85, 1, b'a', 4, 0x1b, 0],
    ),
    ("unknown-map-of-texts", "a map of texts to texts", &[0x1b, 1, 0x88, 2, b'a', b'b', 1, b'c']),
    (
        "unknown-list-of-large-bytes",
        "a list of three bytes that are no types of fields",
        &[0x19, 0x33, 0x7f, 0x7d, 0x7e],
    ),
    (
        "unknown-lists",
        "40 lists without items, one after the other",
        [[0x19, 0x03]; 40].as_flattened(),
    ),
    (
        "unknown-structs",
        "40 structs without fields, one after the other",
        [[0x1c, 0]; 40].as_flattened(),
    ),
    (
        "unknown-nested-structs",
        "a struct in a struct, 15 deep",
        [[0x1c; 15], [0; 15]].as_flattened(),
    ),
    ("unknown-struct", "a struct with a field and a struct in it", &[0x1c, 0x15, 2, 0x1c, 0, 0]),
    (
        "unknown-far-field",
        "a field whose number does not fit into four bits",
        &[0x05, 0xd0, 0x0f, 2],
    ),
];

const MALFORMED: &[(&str, &str, &[u8])] = &[
    ("unknown-type", "a field of type 13, which Thrift does not have", &[0x1d]),
    ("unknown-type-in-list", "a list of items of type 13", &[0x19, 0x1d, 0]),
    ("text-beyond-the-end", "a text that is longer than what is left", &[0x18, 0xff, 0xff, 0x03]),
];

fn file(bitset: &[u8], fields: &[&[u8]]) -> Vec<u8> {
    let mut file = vec![0x15];
    let mut zigzag = bitset.len() << 1;
    while zigzag >= 0x80 {
        file.push(zigzag.to_le_bytes()[0] | 0x80);
        zigzag >>= 7;
    }
    file.push(zigzag.to_le_bytes()[0]);
    [file, fields.concat(), vec![0], bitset.to_vec()].concat()
}

/// The case of a file. The crate parquet must agree.
fn case(comment: impl Into<String>, file: &[u8], bitset: Option<&[u8]>) -> Case {
    let comment = comment.into();
    let bits = |filter: Sbbf| {
        let mut bits = Vec::new();
        filter.write_bitset(&mut bits).expect("a vector takes all bytes");
        bits
    };
    let read = std::panic::catch_unwind(|| Sbbf::from_bytes(file).ok().map(bits));
    let read = read.unwrap_or_else(|_| panic!("{comment}: the crate panics"));
    assert_eq!(read.as_deref(), bitset, "{comment}");
    let expect: Expect = match bitset {
        Some(bitset) => value(json!({ "bitset": hex::encode(bitset) })),
        None => invalid("malformed"),
    };
    let case = Case::new(comment, json!({ "file": hex::encode(file) }), expect);
    case.level(Level::Specification).flag_if(bitset.is_none(), "Hostile")
}

/// Number of structs of a header that never ends.
const DEEP: usize = 100_000;

pub(crate) fn area() -> Area {
    let mut filter = Sbbf::new(&[0; 32]);
    filter.insert(&b"key"[..]);
    let mut bitset = Vec::new();
    filter.write_bitset(&mut bitset).expect("a vector takes all bytes");
    let four = bitset.repeat(4);

    let mut cases = vec![
        case("a block, as any writer writes it", &file(&bitset, &[&CHOICES]), Some(&bitset))
            .named("one-block"),
        case("four blocks: a length of two bytes", &file(&four, &[&CHOICES]), Some(&four))
            .named("four-blocks"),
    ];
    let lists = [&[0x1c][..], [[0x19, 0x03]; 40].as_flattened(), &[0]].concat();
    let comment = "an unknown field must be passed over: a struct with 40 lists without items";
    let of_lists = case(comment, &file(&bitset, &[&CHOICES, &lists]), Some(&bitset));
    cases.push(of_lists.named("unknown-struct-of-lists"));
    for (name, what, field) in UNKNOWN {
        let comment = format!("an unknown field must be passed over: {what}");
        cases.push(case(comment, &file(&bitset, &[&CHOICES, field]), Some(&bitset)).named(name));
    }
    // The field of the length is number 1, four after the field before it.
    let zigzag = u8::try_from(bitset.len() * 2).expect("a byte");
    let negative = [&[0x05, 0x05, 2, 0x45, zigzag][..], &CHOICES, &[0], &bitset].concat();
    let comment = "an unknown field of number -3 comes before the length";
    cases.push(case(comment, &negative, Some(&bitset)).named("unknown-negative-field"));
    for (name, what, field) in MALFORMED {
        cases.push(case(*what, &file(&bitset, &[&CHOICES, field]), None).named(name));
    }
    for (at, what) in [(0, "algorithm"), (4, "hash function"), (8, "compression")] {
        let mut other = CHOICES;
        other[at + 1] = 0x2c;
        let comment = format!("a second kind of {what}: its bits would be read wrongly");
        cases.push(case(comment, &file(&bitset, &[&other]), None));
        let mut without = CHOICES.to_vec();
        // A field of this number that is no struct keeps the numbers of the others.
        without.splice(at..at + 4, [0x11]);
        cases.push(case(format!("no {what}"), &file(&bitset, &[&without]), None));
    }
    let whole = file(&bitset, &[&CHOICES]);
    for end in 0..whole.len() - bitset.len() {
        cases.push(case(format!("the header ends after {end} bytes"), &whole[..end], None));
    }
    let comment = "structs in structs that never end";
    let _ = case(comment, &vec![0xfc; DEEP], None);
    let input = json!({ "file": { "repeat": "fc", "times": DEEP } });
    let deep = Case::new(comment, input, invalid("malformed")).level(Level::Specification);
    cases.push(deep.named("structs-without-end").flag("Hostile"));
    let cut = &whole[..whole.len() - 1];
    cases.push(case("the last byte of the bits is missing", cut, None).named("bits-cut"));
    Area {
        name: "filter.parquet_file",
        title: "Reading Parquet's split-block Bloom filter from a file",
        about: "A struct of Thrift's compact protocol with the number of bytes, the algorithm, the hash function \
                and the compression; then the bits. Unknown fields are passed over, as Thrift demands.",
        source: "parquet.thrift and Thrift's compact protocol; the crate parquet 60 agrees",
        input: vec![member("file", Kind::Bytes, "header and bits")],
        value: vec![member("bitset", Kind::Bytes, "the bits")],
        flags: &[("Hostile", "malformed: must be refused in an orderly way")],
        groups: vec![Group { cases, ..Group::default() }],
    }
}
