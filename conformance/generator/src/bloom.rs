//! Areas of BIP37's filter: hash, sizing, payload, insertion, test, matching of transactions.

use bitcoin::consensus::encode::serialize;
use bitcoin::hashes::{Hash as _, hash160};
use bitcoin::{PrivateKey, VarInt, consensus};
use serde_json::{Value, json};

use crate::numbers::Numbers;
use crate::pack::{Answer, Area, Case, Group, Kind, Level, QUIRK, invalid, member, sides, value};
use crate::sizing::{self, core_size};
use crate::sources::{Sources, bytes, int, list, small};

/// A filterload payload in parts.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) data: Vec<u8>,
    pub(crate) hash_funcs: u32,
    pub(crate) tweak: u32,
    pub(crate) flags: u8,
}

impl Filter {
    fn empty(len: usize, hash_funcs: u32, tweak: u32, flags: u8) -> Self {
        Self { data: vec![0; len], hash_funcs, tweak, flags }
    }

    /// A filter for `elements` at `fpr`, of the size that Bitcoin Core gives it.
    pub(crate) fn sized(elements: u64, fpr: f64, tweak: u32, flags: u8) -> Self {
        let (len, hash_funcs) = core_size(elements, fpr);
        Self::empty(len, hash_funcs, tweak, flags)
    }

    /// The bits of an element, by the text of BIP37 and the crate `mur3`.
    fn bits<'a>(&'a self, element: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        (0..self.hash_funcs).map(move |i| {
            let seed = i.wrapping_mul(0xfba4_c795).wrapping_add(self.tweak);
            mur3::murmurhash3_x86_32(element, seed) as usize % (8 * self.data.len())
        })
    }

    pub(crate) fn insert(&mut self, element: &[u8]) {
        if !self.data.is_empty() {
            for bit in self.bits(element).collect::<Vec<_>>() {
                self.data[bit / 8] |= 1 << (bit % 8);
            }
        }
    }

    pub(crate) fn contains(&self, element: &[u8]) -> bool {
        // A filter without data matches everything: CBloomFilter::contains.
        self.data.is_empty()
            || self.bits(element).all(|bit| self.data[bit / 8] >> (bit % 8) & 1 == 1)
    }

    pub(crate) fn payload(&self) -> String {
        let mut payload = serialize(&VarInt(self.data.len() as u64));
        payload.extend(&self.data);
        payload.extend(self.hash_funcs.to_le_bytes());
        payload.extend(self.tweak.to_le_bytes());
        payload.push(self.flags);
        hex::encode(payload)
    }
}

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    vec![
        murmur3(),
        sizing::area(sources),
        filterload(sources),
        insert(sources),
        contains(sources),
        crate::match_area::area(sources),
        filteradd(),
    ]
}

fn one_group(cases: Vec<Case>) -> Vec<Group> {
    vec![Group { cases, ..Group::default() }]
}

fn murmur3() -> Area {
    /// The cases of Bitcoin Core's `hash_tests.cpp`.
    const CORE_TESTS: [(u32, u32, &str); 14] = [
        (0x0000_0000, 0x0000_0000, ""),
        (0x6a39_6f08, 0xfba4_c795, ""),
        (0x81f1_6f39, 0xffff_ffff, ""),
        (0x514e_28b7, 0x0000_0000, "00"),
        (0xea3f_0b17, 0xfba4_c795, "00"),
        (0xfd6c_f10d, 0x0000_0000, "ff"),
        (0x16c6_b7ab, 0x0000_0000, "0011"),
        (0x8eb5_1c3d, 0x0000_0000, "001122"),
        (0xb447_1bf8, 0x0000_0000, "00112233"),
        (0xe230_1fa8, 0x0000_0000, "0011223344"),
        (0xfc2e_4a15, 0x0000_0000, "001122334455"),
        (0xb074_502c, 0x0000_0000, "00112233445566"),
        (0x8034_d2a0, 0x0000_0000, "0011223344556677"),
        (0xb469_8def, 0x0000_0000, "001122334455667788"),
    ];
    let of_core = CORE_TESTS.iter().map(|(hash, seed, data)| {
        let input = json!({ "seed": seed, "data": data });
        let len = data.len() / 2;
        let comment = format!("a test of Core's own authors: seed {seed:08x}, {len} bytes");
        Case::new(comment, input, value(json!({ "hash": hash })))
            .source("Bitcoin Core 28.1, hash_tests.cpp")
    });
    let mut numbers = Numbers::new(37);
    let lengths = (0..70).chain([255, 520]).map(|len| {
        let (seed, data) = (numbers.u32(), numbers.bytes(len));
        let hash = mur3::murmurhash3_x86_32(&data, seed);
        let input = json!({ "seed": seed, "data": hex::encode(&data) });
        Case::new(
            match len % 4 {
                0 if len == 0 => "no bytes: the seed alone is mixed".to_owned(),
                0 => format!("{len} bytes: whole blocks, and a length that is mixed in at the end"),
                tail => format!("{len} bytes: a tail of {tail}, which is not mixed like a block"),
            },
            input,
            value(json!({ "hash": hash })),
        )
    });
    Area {
        name: "bip37.murmur3",
        title: "MurmurHash3, the x86 variant of 32 bits",
        about: "The hash function of BIP37's filters. Blocks of 4 bytes are little-endian; the length \
                is mixed in at the end.",
        source: "the crate mur3 0.1, and Bitcoin Core's tests where a case says so",
        input: vec![
            member("seed", Kind::Integer, "seed of 32 bits"),
            member("data", Kind::Bytes, "what is hashed"),
        ],
        value: vec![member("hash", Kind::Integer, "hash of 32 bits")],
        flags: &[],
        groups: one_group(
            of_core.chain(lengths).map(|case| case.level(Level::Specification)).collect(),
        ),
    }
}

fn filterload(sources: &Sources) -> Area {
    let parsed = |filter: &Filter| {
        let within = filter.data.len() <= 36_000 && filter.hash_funcs <= 50;
        json!({ "data": hex::encode(&filter.data), "hash_funcs": filter.hash_funcs,
            "tweak": filter.tweak, "flags": filter.flags, "within_limits": within })
    };
    let small =
        |flags: u8| Filter { data: vec![0x5a, 0xc3], hash_funcs: 2, tweak: 0xdead_beef, flags };
    let case = |comment: &str, filter: &Filter| {
        Case::new(comment, json!({ "payload": filter.payload() }), value(parsed(filter)))
    };
    let mut cases = vec![
        case(
            "a filter of 0 bytes: it is no error, and matches everything",
            &Filter::empty(0, 0, 0, 0),
        )
        .named("no-data"),
        case(
            "no hash functions, but data: it is no error, and matches everything",
            &Filter { hash_funcs: 0, ..small(1) },
        )
        .named("no-functions"),
        case(
            "50 hash functions: the most that is within the limits",
            &Filter { hash_funcs: 50, ..small(0) },
        ),
        case(
            "51 hash functions: read all the same, but beyond the limits",
            &Filter { hash_funcs: 51, ..small(0) },
        )
        .flag("TooLarge")
        .flag(QUIRK)
        .named("51-functions"),
        case(
            "2^32 - 1 hash functions: a loop over them must not run",
            &Filter { hash_funcs: u32::MAX, ..small(0) },
        )
        .flag("TooLarge")
        .flag(QUIRK),
    ];
    for flags in [0, 1, 2, 3, 4, 0x80, 0x81, 0x82, 0xff] {
        let comment = match flags {
            0..=2 => format!("flags {flags}: a mode that BIP37 defines"),
            3 => "flags 3: both bits, read without a word".into(),
            _ => format!("flags {flags:#04x}: reserved bits are read and kept"),
        };
        let case = case(&comment, &small(flags))
            .flag_if(flags > 2, "ReservedFlags")
            .flag_if(flags > 2, QUIRK);
        cases.push(if flags == 3 { case.named("flags-3") } else { case });
    }
    for (len, name) in [
        (252, None),
        (253, None),
        (300, None),
        (36_000, Some("36000-bytes")),
        (36_001, Some("36001-bytes")),
    ] {
        let filter = Filter::empty(len, 1, 0, 1);
        let prefix = hex::encode(serialize(&VarInt(len as u64)));
        let case = Case::new(
            match len {
                0..=252 => format!("{len} bytes of data: the longest length in one byte"),
                253 => format!("{len} bytes of data: the shortest length in three bytes"),
                36_000 => {
                    format!("{len} bytes of data: the largest filter that is within the limits")
                }
                36_001 => format!("{len} bytes of data: read all the same, but beyond the limits"),
                _ => format!("{len} bytes of data: a length in three bytes, low byte first"),
            },
            json!({ "payload": filter.payload() }),
            value(
                json!({ "data": { "sha256": sha256(&filter.data), "bytes": len }, "hash_funcs": 1,
                "tweak": 0, "flags": 1, "within_limits": len <= 36_000 }),
            ),
        );
        let case = case
            .flag_if(len > 36_000, "TooLarge")
            .flag_if(len > 36_000, QUIRK)
            .flag_if(prefix.len() > 2, "LongLength");
        cases.push(match name {
            Some(name) => case.named(name),
            None => case,
        });
    }
    for row in list(&sources.fixture("bitcoin/bip37_vectors.json")["filterload"]) {
        let filter = parse(&bytes(&row["payload"]));
        cases.push(case("a filter that Core's authors wrote down in their unit tests", &filter));
    }
    let whole = hex::decode(small(1).payload()).expect("hex");
    for len in 0..whole.len() {
        let case = Case::new(
            format!("cut after {len} of {} bytes: each part must be there", whole.len()),
            json!({ "payload": hex::encode(&whole[..len]) }),
            invalid("truncated"),
        );
        let case = case.flag("Hostile");
        cases.push(if len == 0 { case.named("no-bytes") } else { case });
    }
    // Core reads messages from a stream, and does not look at what follows.
    cases.push(
        Case::new(
            "a byte after the flags: Core does not look at it, and the flags are those before it",
            json!({ "payload": format!("{}00", small(1).payload()) }),
            sides([
                ("core", Answer::Value(parsed(&small(1)))),
                ("strict", Answer::Invalid("trailing bytes")),
            ]),
        )
        .named("trailing-byte")
        .flag("TrailingBytes")
        .source("Bitcoin Core 28.1, serialisation, as read"),
    );
    for (name, prefix, comment) in [
        ("length-not-canonical", "fd0200", "the length 2 in 3 bytes: not canonical"),
        ("length-too-large", "feffffff7f", "a length of 2 GiB"),
        ("length-of-64-bits", "ffffffffffffffffff", "a length of 2^64 - 1"),
    ] {
        let payload = format!("{prefix}{}", &small(1).payload()[2..]);
        let class = if name == "length-not-canonical" { "not canonical" } else { "truncated" };
        cases.push(
            Case::new(comment, json!({ "payload": payload }), invalid(class))
                .flag("Hostile")
                .named(name),
        );
    }
    Area {
        name: "bip37.filterload",
        title: "The message filterload",
        about: "Reads the payload: CompactSize length and data, number of hash functions and tweak \
                (32 bits, little-endian), flags. The limits are checked after reading: Bitcoin Core \
                reads a filter that is too large, and then punishes the peer.",
        source: "BIP37; Bitcoin Core 28.1 for limits and flags",
        input: vec![member("payload", Kind::Bytes, "payload of the message")],
        value: vec![
            member("data", Kind::Bytes, "the bits"),
            member("hash_funcs", Kind::Integer, "number of hash functions"),
            member("tweak", Kind::Integer, "tweak"),
            member("flags", Kind::Integer, "the byte as it was sent, reserved bits included"),
            member("within_limits", Kind::Boolean, "at most 36,000 bytes and 50 hash functions"),
        ],
        flags: &[
            (
                "ReservedFlags",
                "Core uses the two lowest bits only, keeps the others, and treats 3 like 0",
            ),
            ("TooLarge", "over a limit: read all the same"),
            ("LongLength", "the length takes more than a byte"),
            ("TrailingBytes", "bytes after the message: Core does not look at them"),
            ("Hostile", "malformed: must be refused in an orderly way"),
        ],
        groups: one_group(cases),
    }
}

fn sha256(data: &[u8]) -> String {
    hex::encode(bitcoin::hashes::sha256::Hash::hash(data))
}

/// Reads a payload that is known to be well formed.
pub(crate) fn parse(payload: &[u8]) -> Filter {
    let (len, prefix): (VarInt, usize) = consensus::deserialize_partial(payload).expect("a length");
    let end = prefix + usize::try_from(len.0).expect("a length");
    let word = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().expect("4 bytes"));
    let data = payload[prefix..end].to_vec();
    Filter { data, hash_funcs: word(end), tweak: word(end + 4), flags: payload[end + 8] }
}

/// The elements that a case of Bitcoin Core's unit tests inserts.
fn unit_test_elements(row: &Value) -> Vec<Vec<u8>> {
    if let Some(wif) = row["insert_wif"].as_str() {
        let secp = bitcoin::secp256k1::Secp256k1::new();
        let key = PrivateKey::from_wif(wif).expect("a key").public_key(&secp).to_bytes();
        let hash = hash160::Hash::hash(&key).to_byte_array().to_vec();
        return vec![key, hash];
    }
    list(&row["insert"]).iter().map(bytes).collect()
}

/// Shapes of filters: length, number of hash functions.
const SHAPES: [(usize, u32); 14] = [
    (1, 1),
    (1, 5),
    (3, 5),
    (8, 2),
    (33, 3),
    (100, 7),
    (128, 8),
    (257, 9),
    (512, 16),
    (1_000, 17),
    (1_023, 24),
    (2_048, 31),
    (4_500, 48),
    (4_501, 50),
];

fn insert(sources: &Sources) -> Area {
    let mut cases = Vec::new();
    for row in list(&sources.fixture("bitcoin/bip37_vectors.json")["filterload"]) {
        let parts = &row["filter"];
        let (tweak, flags) = (small(&parts["tweak"]), small(&parts["flags"]));
        let fpr = parts["fpr"].as_f64().expect("a rate");
        let filter = Filter::sized(int(&parts["elements"]), fpr, tweak, flags);
        let elements: Vec<_> = unit_test_elements(row).iter().map(hex::encode).collect();
        cases.push(
            Case::new(
                "a filter of Core's unit tests: the result was written down by Core's authors",
                json!({ "filter": filter.payload(), "insert": elements }),
                value(json!({ "filter": row["payload"] })),
            )
            .level(Level::Specification)
            .source("Bitcoin Core 28.1, bloom_tests.cpp"),
        );
    }
    let mut numbers = Numbers::new(371);
    let mut add =
        |comment: String, filter: &Filter, elements: &[Vec<u8>], name: Option<&'static str>| {
            let mut after = filter.clone();
            for element in elements {
                after.insert(element);
            }
            let hex: Vec<_> = elements.iter().map(hex::encode).collect();
            let input = json!({ "filter": filter.payload(), "insert": hex });
            // BIP37 says nothing about filters without data or hash functions.
            let quirk = filter.data.is_empty() || filter.hash_funcs == 0;
            let case = Case::new(comment, input, value(json!({ "filter": after.payload() })))
                .level(if quirk { Level::Reference } else { Level::Specification })
                .flag_if(filter.data.is_empty(), "NoData")
                .flag_if(quirk, QUIRK);
            cases.push(match name {
                Some(name) => case.named(name),
                None => case,
            });
        };
    add(
        "a filter without data takes nothing in".into(),
        &Filter::empty(0, 5, 0, 1),
        &[vec![1]],
        Some("no-data"),
    );
    add(
        "no hash functions: nothing changes".into(),
        &Filter::empty(2, 0, 0, 1),
        &[vec![1]],
        Some("no-functions"),
    );
    add(
        "an empty element sets bits, too".into(),
        &Filter::empty(4, 3, 7, 1),
        &[vec![]],
        Some("empty-element"),
    );
    add(
        "an element of 521 bytes: only the message filteradd has a limit".into(),
        &Filter::empty(9, 3, 7, 1),
        &[numbers.bytes(521)],
        Some("521-bytes"),
    );
    for (len, hash_funcs) in SHAPES {
        let filter = Filter::empty(len, hash_funcs, numbers.u32(), (hash_funcs % 3) as u8);
        let elements = [20, 32, 33, 36, 65].map(|len| numbers.bytes(len));
        let some = if len > 300 { 2 } else { 5 };
        let comment = format!(
            "{len} bytes, {hash_funcs} functions, a random tweak: bits agree, not only sizes"
        );
        add(comment, &filter, &elements[..some], None);
    }
    for len in 0..40 {
        let filter = Filter::empty(61, 11, numbers.u32(), 0);
        let element = numbers.bytes(len);
        let comment =
            format!("an element of {len} bytes: each length of the hash's tail in a filter");
        add(comment, &filter, &[element], None);
    }
    Area {
        name: "bip37.insert",
        title: "Insertion of elements into a filter",
        about: "Sets the bits of each element. Bit i is bit i mod 8 of byte i / 8. Hash function n is \
                MurmurHash3 with the seed n × 0xfba4c795 + tweak, both modulo 2^32, reduced by `%`.",
        source: "the text of BIP37 with the crate mur3 0.1, and Bitcoin Core's tests where a case says so",
        input: vec![
            member("filter", Kind::Bytes, "filterload payload"),
            member("insert", Kind::List(&Kind::Bytes), "elements"),
        ],
        value: vec![member("filter", Kind::Bytes, "filterload payload afterwards")],
        flags: &[("NoData", "a filter of 0 bytes")],
        groups: one_group(cases),
    }
}

fn contains(sources: &Sources) -> Area {
    let mut cases = Vec::new();
    let case = |comment: String, filter: &Filter, data: &[u8]| {
        let input = json!({ "filter": filter.payload(), "data": hex::encode(data) });
        let contains = filter.contains(data);
        Case::new(comment, input, value(json!({ "contains": contains })))
            .flag_if(filter.data.is_empty(), "NoData")
            .flag_if(filter.data.is_empty() || filter.hash_funcs == 0, QUIRK)
            .flag_if(!filter.data.is_empty() && filter.hash_funcs == 0, "NoFunctions")
            .flag_if(
                filter.data.iter().all(|byte| *byte == 0xff) && !filter.data.is_empty(),
                "Full",
            )
    };
    for row in list(&sources.fixture("bitcoin/bip37_vectors.json")["filterload"]) {
        let filter = parse(&bytes(&row["payload"]));
        let absent = row["absent"].as_array().map_or(&[][..], Vec::as_slice);
        for (data, contains) in unit_test_elements(row)
            .into_iter()
            .map(|data| (data, true))
            .chain(absent.iter().map(|data| (bytes(data), false)))
        {
            let input = json!({ "filter": filter.payload(), "data": hex::encode(&data) });
            let expect = value(json!({ "contains": contains }));
            let comment = if contains {
                "an element that Core's unit tests insert"
            } else {
                "an element that Core's unit tests did not insert: one bit differs"
            };
            let case = Case::new(comment, input, expect);
            cases.push(case.source("Bitcoin Core 28.1, bloom_tests.cpp"));
        }
    }
    let one = [0xab_u8];
    cases.push(
        case(
            "a filter without data contains everything (CVE-2013-5700)".into(),
            &Filter::empty(0, 11, 0, 0),
            &one,
        )
        .named("no-data"),
    );
    cases.push(case(
        "neither data nor hash functions: contains everything all the same".into(),
        &Filter::empty(0, 0, 0, 0),
        &one,
    ));
    cases.push(
        case(
            "no hash functions: nothing denies the element".into(),
            &Filter::empty(2, 0, 0, 0),
            &one,
        )
        .named("no-functions"),
    );
    cases.push(
        case(
            "all bits are set: no shortcut may say no".into(),
            &Filter { data: vec![0xff; 3], hash_funcs: 3, tweak: 9, flags: 0 },
            &one,
        )
        .named("all-ones"),
    );
    cases.push(
        case("no bit is set: nothing was inserted".into(), &Filter::empty(3, 3, 9, 0), &one)
            .named("all-zeros"),
    );
    cases.push(
        case("an empty element is hashed like any other".into(), &Filter::empty(3, 3, 9, 0), &[])
            .named("empty-element"),
    );
    let mut numbers = Numbers::new(372);
    for (len, hash_funcs) in SHAPES {
        let mut filter = Filter::empty(len, hash_funcs, numbers.u32(), 0);
        let inserted: Vec<_> = (0..=(len * 5 / hash_funcs as usize))
            .map(|_| {
                let len = [20, 32, 33, 36, 65][numbers.below(5)];
                numbers.bytes(len)
            })
            .collect();
        for element in &inserted {
            filter.insert(element);
        }
        cases.push(case(
            format!(
                "an element that was inserted, {len} bytes and {hash_funcs} functions: a no would hide a payment"
            ),
            &filter,
            &inserted[0],
        ));
        // A false positive of a small filter, and elements that all but one hash function admit.
        let mut admitted = 0;
        for _ in 0..2_000 {
            let data = numbers.bytes(20);
            let set =
                filter.bits(&data).filter(|bit| filter.data[bit / 8] >> (bit % 8) & 1 == 1).count();
            if set == hash_funcs as usize && admitted < 2 {
                admitted += 1;
                cases.push(
                    case(
                        "not inserted, but all its bits are set: exact bits, not only sizes".into(),
                        &filter,
                        &data,
                    )
                    .flag("FalsePositive"),
                );
            } else if set + 1 == hash_funcs as usize && admitted < 4 && (len < 300 || admitted < 1)
            {
                admitted += 2;
                cases.push(case(
                    "one of its bits is not set: each hash function must be asked".into(),
                    &filter,
                    &data,
                ));
            }
        }
    }
    Area {
        name: "bip37.contains",
        title: "Test of an element",
        about: "True means that the filter may contain the element. False means that it does not.",
        source: "the text of BIP37 with the crate mur3 0.1; Bitcoin Core 28.1 for filters without data \
                 or hash functions, and where a case says so",
        input: vec![
            member("filter", Kind::Bytes, "filterload payload"),
            member("data", Kind::Bytes, "element"),
        ],
        value: vec![member(
            "contains",
            Kind::Boolean,
            "whether the filter may contain the element",
        )],
        flags: &[
            (
                "NoData",
                "a filter of 0 bytes contains everything; a division by its length crashed nodes in 2013",
            ),
            ("NoFunctions", "without hash functions nothing denies an element"),
            ("Full", "all bits are set"),
            ("FalsePositive", "was never inserted: an exact implementation says so as well"),
        ],
        groups: one_group(cases),
    }
}

fn filteradd() -> Area {
    let mut numbers = Numbers::new(373);
    let mut cases = Vec::new();
    for (len, name) in [
        (0, "empty"),
        (1, "one-byte"),
        (252, "252-bytes"),
        (253, "253-bytes"),
        (520, "520-bytes"),
        (521, "521-bytes"),
    ] {
        let data = numbers.bytes(len);
        let payload = [serialize(&VarInt(len as u64)), data.clone()].concat();
        let expect = value(json!({ "data": hex::encode(&data), "within_limits": len <= 520 }));
        let why = match len {
            0 => "is read, and inserted like any other",
            252 => "the longest length in one byte",
            253 => "the shortest length in three bytes",
            520 => "the largest push of a script",
            521 => "read all the same, but beyond the limit",
            _ => "no least length",
        };
        let comment = format!("{len} bytes: {why}");
        let case = Case::new(comment, json!({ "payload": hex::encode(payload) }), expect);
        cases.push(case.named(name).flag_if(len > 520, "TooLarge"));
    }
    for (name, comment, payload) in [
        ("no-bytes", "no bytes", ""),
        ("truncated", "2 bytes are announced, one is there", "02aa"),
        ("length-not-canonical", "the length 1 in 3 bytes", "fd0100aa"),
        ("length-of-64-bits", "2^64 - 1 bytes are announced", "ffffffffffffffffffaa"),
    ] {
        let case = Case::new(comment, json!({ "payload": payload }), invalid("malformed"));
        cases.push(case.named(name).flag("Hostile"));
    }
    cases.push(
        Case::new(
            "a byte after the element: Core does not look at it",
            json!({ "payload": "01aa00" }),
            sides([
                ("core", Answer::Value(json!({ "data": "aa", "within_limits": true }))),
                ("strict", Answer::Invalid("trailing bytes")),
            ]),
        )
        .named("trailing-byte")
        .flag("TrailingBytes"),
    );
    Area {
        name: "bip37.filteradd",
        title: "The message filteradd",
        about: "Reads the payload: CompactSize length and data. A node that reads more than 520 bytes \
                punishes the peer; an empty element is inserted like any other.",
        source: "BIP37; Bitcoin Core 28.1, as read",
        input: vec![member("payload", Kind::Bytes, "payload of the message")],
        value: vec![
            member("data", Kind::Bytes, "element"),
            member("within_limits", Kind::Boolean, "at most 520 bytes"),
        ],
        flags: &[
            ("TooLarge", "over the limit"),
            ("TrailingBytes", "bytes after the message: Core does not look at them"),
            ("Hostile", "malformed: must be refused in an orderly way"),
        ],
        groups: one_group(cases),
    }
}
