//! Headers from untrusted sources, as RLP, as JSON, and in chains.

use alloy_primitives::{B256, keccak256};
use alloy_rlp::{Encodable as _, Header as RlpHeader};
use chainsieve::eth::header::{
    ChainError, HeaderBuf, HeaderError, HeaderView, LinkedHeaders, bloom_at_fixed_place,
};

use crate::survives;
use testkit::Rng;
use testkit::eth::fixtures;
use testkit::mutated;

/// Reads a header and all its fields without allocating, and returns its hash.
fn read(rlp: &[u8]) -> Option<B256> {
    let view = survives("a header", rlp, 0, 0, || {
        bloom_at_fixed_place(rlp);
        let view = HeaderView::decode(rlp).ok()?;
        let fields = (view.num_fields(), view.layout(), view.mix_hash(), view.nonce());
        let fields = (fields, view.base_fee_per_gas(), view.withdrawals_root());
        let fields = (fields, view.blob_gas_used(), view.excess_blob_gas(), view.requests_hash());
        let fields = (fields, view.parent_beacon_block_root(), view.block_access_list_hash());
        let _ = (fields, view.slot_number(), view.difficulty(), view.number(), view.timestamp());
        let _ = (view.logs_bloom().count_ones(), view.beneficiary(), view.extra_data());
        Some(view)
    });
    view.map(|view| {
        assert_eq!(view.hash(), keccak256(rlp));
        view.hash()
    })
}

/// Returns one header of each layout.
fn layouts() -> Vec<Vec<u8>> {
    let mut headers: Vec<Vec<u8>> = Vec::new();
    let mut seen = Vec::new();
    for header in fixtures::headers() {
        let layout = HeaderView::decode(&header.rlp).expect("a header").layout();
        if !seen.contains(&layout) {
            seen.push(layout);
            headers.push(header.rlp);
        }
    }
    assert_eq!(headers.len(), 6, "{seen:?}");
    headers
}

fn list(items: &[u8]) -> Vec<u8> {
    let mut rlp = Vec::new();
    RlpHeader { list: true, payload_length: items.len() }.encode(&mut rlp);
    rlp.extend_from_slice(items);
    rlp
}

/// Returns the payload of an RLP list.
fn payload(rlp: &[u8]) -> &[u8] {
    let mut rest = rlp;
    RlpHeader::decode_bytes(&mut rest, true).expect("a list")
}

#[test]
fn truncated_and_lengthened_at_every_byte() {
    for rlp in layouts() {
        let hash = read(&rlp);
        assert!(hash.is_some());
        for end in 0..rlp.len() {
            assert_eq!(read(&rlp[..end]), None, "{end} of {}", rlp.len());
            let prefix = HeaderView::decode_prefix(&rlp[..end]);
            assert!(matches!(prefix, Err(HeaderError::NotAList(_))), "{end}: {prefix:?}");
            // Cut the payload instead, and write a length that fits.
            let start = rlp.len() - payload(&rlp).len();
            if let Some(kept) = end.checked_sub(start) {
                let shorter = list(&payload(&rlp)[..kept]);
                assert!(read(&shorter).is_none_or(|other| Some(other) != hash), "{kept}");
            }
        }
        let longer = [&rlp[..], &[0]].concat();
        assert_eq!(HeaderView::decode(&longer), Err(HeaderError::TrailingBytes(1)));
        let (view, behind) = HeaderView::decode_prefix(&longer).expect("a header");
        assert_eq!((view.rlp(), behind), (&rlp[..], &[0][..]));
    }
}

#[test]
fn every_byte_changed_is_refused_or_another_header() {
    let mut read_anyway = 0;
    for rlp in layouts() {
        let hash = keccak256(&rlp);
        for at in 0..rlp.len() {
            for change in [1, 0x20, 0x40, 0x80, 0xff] {
                let mut other = rlp.clone();
                other[at] ^= change;
                let found = read(&other);
                assert_ne!(found, Some(hash));
                read_anyway += usize::from(found.is_some());
            }
        }
    }
    assert!(read_anyway > 10_000, "{read_anyway}");
    let mut rng = Rng::new(31);
    let originals = layouts();
    for _ in 0..30_000 {
        let original = rng.pick(&originals).clone();
        read(&mutated(&mut rng, &original));
    }
}

/// Fields of wrong lengths, numbers that have leading zeros or are too long, and lists in place of
/// strings.
#[test]
fn fields_of_wrong_shapes() {
    let rlp = layouts().swap_remove(0);
    let mut fields = Vec::new();
    let mut rest = payload(&rlp);
    while !rest.is_empty() {
        let before = rest;
        let header = RlpHeader::decode(&mut rest).expect("an item");
        rest = &rest[header.payload_length..];
        fields.push(before[..before.len() - rest.len()].to_vec());
    }
    assert_eq!(fields.len(), 15);
    let with = |at: usize, field: &[u8]| {
        let mut fields = fields.clone();
        fields[at] = field.to_vec();
        HeaderView::decode(&list(&fields.concat())).map(|_| ()).map_err(|error| error.to_string())
    };
    let string = |bytes: &[u8]| {
        let mut rlp = Vec::new();
        bytes.encode(&mut rlp);
        rlp
    };
    for at in 0..13 {
        assert!(with(at, &[0xc0]).is_err_and(|error| error.ends_with(" is a list")), "{at}");
        // A length that exceeds the rest, up to the largest length.
        for huge in [&[0xb8, 0xff][..], &[0xbf; 9], &[0xbf, 0, 0, 0, 0, 0, 0, 0, 1], &[0xb8, 1]] {
            let mut cut = fields[..at].concat();
            cut.extend_from_slice(huge);
            assert_eq!(read(&list(&cut)), None, "{at}: {huge:x?}");
        }
        assert!(HeaderView::decode(&list(&fields[..at].concat())).is_err(), "ends before {at}");
    }
    for at in [0, 1, 3, 4, 5] {
        assert!(with(at, &string(&[7; 31])).is_err() && with(at, &string(&[7; 33])).is_err());
        assert!(with(at, &string(&[7; 32])).is_ok());
    }
    assert!(with(2, &string(&[7; 19])).is_err() && with(2, &string(&[7; 21])).is_err());
    for length in [0, 1, 32, 255, 256, 257, 1_000] {
        assert_eq!(with(6, &string(&vec![7; length])), Ok(()), "a filter of {length} bytes");
    }
    for at in 8..=11 {
        assert_eq!(with(at, &string(&[0xff; 8])), Ok(()), "{at}");
        assert!(with(at, &string(&[1; 9])).is_err(), "{at}: nine bytes");
        assert!(with(at, &string(&[0, 1])).is_err(), "{at}: a zero in front");
        assert!(with(at, &[0]).is_err(), "{at}: zero as a byte");
        assert_eq!(with(at, &[0x80]), Ok(()), "{at}: zero");
    }
    assert!(with(7, &string(&[1; 32])).is_ok() && with(7, &string(&[1; 33])).is_err());
    assert!(with(12, &string(&vec![1; 100_000])).is_ok());

    // Later fields may have any shape, any number and any depth.
    let tail = |items: &[u8]| read(&list(&[&fields[..13].concat(), items].concat()));
    assert!(tail(&[]).is_some() && tail(&vec![0x80; 100_000]).is_some());
    assert!(tail(&vec![0xc0; 100_000]).is_some());
    let mut deep = vec![0xc0];
    for _ in 0..20_000 {
        deep = list(&deep);
        if deep.len() > 60_000 {
            break;
        }
    }
    assert!(tail(&deep).is_some());
    assert_eq!(tail(&[0x81]), None);
    assert_eq!(tail(&[0xf8]), None);
}

/// Returns a header of the first layout with this number and parent.
fn numbered(number: u64, parent: B256) -> Vec<u8> {
    let rlp = layouts().swap_remove(0);
    let (mut items, mut rest) = (Vec::new(), payload(&rlp));
    for at in 0..15 {
        let before = rest;
        let header = RlpHeader::decode(&mut rest).expect("an item");
        rest = &rest[header.payload_length..];
        match at {
            0 => parent.encode(&mut items),
            8 => number.encode(&mut items),
            _ => items.extend_from_slice(&before[..before.len() - rest.len()]),
        }
    }
    list(&items)
}

/// Chains at the limits of the block numbers, and headers with false numbers.
#[test]
fn numbers_that_lie() {
    for first in [0, 1, u64::MAX - 2, u64::MAX - 1, u64::MAX] {
        let mut chain = LinkedHeaders::new();
        let start = numbered(first, B256::ZERO);
        let view = HeaderView::decode(&start).expect("a header");
        let _ = chain.push(&view).expect("the first");
        let last = chain.last_hash().expect("a block");
        for number in [0, 1, 2, 5, first.wrapping_add(1), first.wrapping_sub(1), first, u64::MAX] {
            for parent in [last, B256::ZERO, B256::repeat_byte(7)] {
                let rlp = numbered(number, parent);
                let view = HeaderView::decode(&rlp).expect("a header");
                let mut tried = chain.clone();
                let result = tried.push(&view);
                let follows = parent == last && Some(number) == first.checked_add(1);
                let other = parent == B256::ZERO && number == first;
                if follows && number < u64::MAX || other {
                    assert!(result.is_ok(), "{number} on {first}: {result:?}");
                } else if !(follows && number == u64::MAX) {
                    let error = result.expect_err("no link");
                    assert!(error.to_string().len() < 300, "{error}");
                    assert!(tried.blocks().eq(chain.blocks()), "{number} on {first}");
                }
                // Headers that are added as one run can't cause a reorganisation.
                let mut stretch = LinkedHeaders::new();
                let both = [&start[..], &rlp].concat();
                let linked = stretch.extend_from_rlp(&both).is_ok();
                assert!(!linked || follows, "{number} on {first}");
            }
        }
    }
}

/// A run that ends in the middle of a header keeps the whole headers, and memory is proportional to
/// them.
#[test]
fn stretches_cut_anywhere() {
    let mut rlp = numbered(7, B256::ZERO);
    let mut ends = vec![0, rlp.len()];
    for number in 8..75 {
        let parent = keccak256(&rlp[ends[ends.len() - 2]..]);
        rlp.extend(numbered(number, parent));
        ends.push(rlp.len());
    }
    for end in (0..rlp.len()).step_by(41).chain(ends.iter().copied()) {
        let whole = ends.iter().filter(|at| **at <= end).count() - 1;
        let mut chain = LinkedHeaders::new();
        let result =
            survives("a stretch", &rlp[..end], 20, 40_000, || chain.extend_from_rlp(&rlp[..end]));
        assert_eq!(chain.len(), whole, "{end}");
        match result {
            Ok(count) => assert_eq!((count, ends.contains(&end)), (whole, true)),
            Err(ChainError::Header { index, .. }) => assert_eq!(index, whole, "{end}"),
            Err(other) => panic!("{end}: {other}"),
        }
    }
}

fn json() -> String {
    let root = B256::repeat_byte(0x11);
    let bloom = "00".repeat(256);
    let text = format!(
        r#"{{"hash":"HASH","parentHash":"{root}","sha3Uncles":"{root}","miner":"0x{}","stateRoot":"{root}","transactionsRoot":"{root}","receiptsRoot":"{root}","logsBloom":"0x{bloom}","difficulty":"0x0","number":"0x7","gasLimit":"0x1","gasUsed":"0x0","timestamp":"0x5","extraData":"0x","mixHash":"{root}","nonce":"0x0000000000000000","baseFeePerGas":"0x7"}}"#,
        "22".repeat(20)
    );
    // The error message contains the hash of these fields.
    let zero = text.replace("HASH", &B256::ZERO.to_string());
    let error = HeaderBuf::from_json(&zero).expect_err("another hash").to_string();
    let hash = error.split_whitespace().find(|word| word.starts_with("0x")).expect("a hash");
    text.replace("HASH", hash.trim_end_matches(','))
}

fn read_json(text: &str) -> bool {
    let result =
        survives("a header as JSON", text.as_bytes(), 12, 6_000, || HeaderBuf::from_json(text));
    if let Err(error) = &result {
        assert!(error.to_string().len() < 1_400, "{:.2000}", error.to_string());
    }
    result.is_ok()
}

#[test]
fn json_truncated_doubled_deep_and_giant() {
    let text = json();
    assert!(read_json(&text));
    for end in 0..text.len() {
        assert!(!read_json(&text[..end]), "{end}");
    }
    assert!(!read_json(&format!("{text}]")) && read_json(&format!("{text} \n")));
    let fields: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let with = |extra: &str| format!("{},{extra}}}", &text[..text.len() - 1]);
    for (name, value) in fields.as_object().expect("an object") {
        assert!(!read_json(&with(&format!(r#""{name}":{value}"#))), "{name} twice");
        let mut without = fields.clone();
        without.as_object_mut().expect("an object").remove(name);
        assert!(!read_json(&without.to_string()), "no {name}");
        for wrong in [serde_json::Value::Null, 9.into(), "".into(), "0x".into(), "9".into()] {
            // An empty value may replace a value that is empty or zero: the hash is then right.
            let is_nothing = value == "0x" || value == "0x0";
            let empty = is_nothing && (wrong == "" || wrong == "0x");
            let mut other = fields.clone();
            other[name] = wrong;
            assert!(empty || !read_json(&other.to_string()), "{name}: {}", other[name]);
        }
    }
    assert!(!read_json(&with(
        r#""ommersHash":"0x1111111111111111111111111111111111111111111111111111111111111111""#
    )));
    // A field of a later fork without the fields before it.
    assert!(!read_json(&with(r#""blobGasUsed":"0x0""#)));
    // Unknown members are skipped: giant lists, and nested lists up to the parser's limit.
    assert!(read_json(&with(&format!(r#""transactions":[{}]"#, vec!["0"; 200_000].join(",")))));
    assert!(read_json(&with(&format!(r#""x":{}{}"#, "[".repeat(100), "]".repeat(100)))));
    for open in ["[", r#"{"a":"#, r#"[{"a":["#] {
        read_json(&with(&format!(r#""x":{}"#, open.repeat(100_000))));
        assert!(!read_json(&open.repeat(100_000)));
    }
    let deep = format!(r#""x":{}{}"#, "[".repeat(100_000), "]".repeat(100_000));
    read_json(&with(&deep));
    for field in ["extraData", "logsBloom", "number", "hash", "miner"] {
        for value in
            [format!("\"0x{}\"", "ab".repeat(500_000)), "[".repeat(100_000), "9".repeat(100_000)]
        {
            let mut other = fields.clone();
            other[field] = "VALUE".into();
            assert!(!read_json(&other.to_string().replace("\"VALUE\"", &value)), "{field}");
        }
    }
    let mut rng = Rng::new(41);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let bytes = mutated(&mut rng, text.as_bytes());
        accepted += usize::from(read_json(&String::from_utf8_lossy(&bytes)));
    }
    assert!(accepted < 2_000, "{accepted}");
}
