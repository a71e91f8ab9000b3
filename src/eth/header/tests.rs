//! Tests with real headers of every fork, and with chains of headers that contain each kind of
//! error.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use alloy_consensus::Header as AlloyHeader;
use alloy_primitives::{Address, B256, Bloom, BloomInput, address, hex};
use alloy_rlp::Decodable as _;
use chainsieve_lanes::simd::Backend;

use super::*;
use crate::eth::log_query::LogQuery;

pub(in crate::eth) struct Known {
    pub(in crate::eth) chain: String,
    pub(in crate::eth) number: u64,
    pub(in crate::eth) hash: B256,
    pub(in crate::eth) fork: String,
    parent_hash: B256,
    pub(in crate::eth) rlp: Vec<u8>,
}

pub(in crate::eth) fn known() -> Vec<Known> {
    let json = include_str!("../../../fixtures/ethereum/headers.json");
    let rows: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().unwrap().to_string();
    rows.iter()
        .map(|row| Known {
            chain: text(row, "chain"),
            number: row["number"].as_u64().unwrap(),
            hash: text(row, "hash").parse().unwrap(),
            fork: row["fork"].as_str().unwrap_or_default().to_string(),
            parent_hash: text(row, "parent_hash").parse().unwrap(),
            rlp: hex::decode(text(row, "header")).unwrap(),
        })
        .collect()
}

fn run(chain: &str, numbers: core::ops::RangeInclusive<u64>) -> Vec<Known> {
    let mut run: Vec<_> =
        known().into_iter().filter(|h| h.chain == chain && numbers.contains(&h.number)).collect();
    run.sort_by_key(|header| header.number);
    assert_eq!(run.len() as u64, numbers.end() - numbers.start() + 1);
    run
}

fn view(known: &Known) -> HeaderView<'_> {
    HeaderView::decode(&known.rlp).unwrap()
}

#[test]
fn fields_of_later_forks_are_kept_and_hashed() {
    let known = &run("mainnet", 22_431_080..=22_431_080)[0];
    let header = view(known);
    // Append one more field of 40 bytes, and an empty list.
    let mut payload = known.rlp[3..].to_vec();
    payload.push(0x80 + 40);
    payload.extend([7; 40]);
    payload.push(0xc0);
    let mut rlp = Vec::new();
    alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut rlp);
    rlp.extend(&payload);
    let later = HeaderView::decode(&rlp).unwrap();
    assert_eq!(later.num_fields(), header.num_fields() + 2);
    assert_eq!(later.layout(), HeaderLayout::Unknown);
    assert_eq!(later.logs_bloom(), header.logs_bloom());
    assert_eq!(later.requests_hash(), header.requests_hash());
    assert_eq!(later.hash(), B256::new(chainsieve_lanes::hash::keccak256(&rlp)));
    assert_ne!(later.hash(), header.hash());
    assert_eq!((later.block_access_list_hash(), later.slot_number()), (None, None));
}

#[test]
fn a_filter_of_another_length_says_nothing() {
    let known = &run("mainnet", 22_431_080..=22_431_080)[0];
    for length in [0_usize, 32] {
        let mut payload = known.rlp[3..189].to_vec();
        payload.push(0x80 + u8::try_from(length).unwrap());
        payload.extend(alloc::vec![1; length]);
        payload.extend(&known.rlp[448..]);
        let mut rlp = Vec::new();
        alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut rlp);
        rlp.extend(&payload);
        let header = HeaderView::decode(&rlp).unwrap();
        assert_eq!(header.logs_bloom().bytes(), None);
        assert_eq!(bloom_at_fixed_place(&rlp), None);
        let mut chain = LinkedHeaders::new();
        let linked = chain.push(&header).unwrap();
        assert_eq!((linked, chain.blooms()), (Linked::Extended, &[Bloom::repeat_byte(0xff)][..]));
        let header = HeaderBuf::from_rlp(rlp.clone()).unwrap();
        assert_eq!(chain.blocks().next(), Some(ChainBlock::from(&header)));
    }
}

#[test]
fn json_is_accepted_under_its_hash_alone() {
    // The answer of eth_getBlockByNumber for the first block of Amsterdam, as alloy writes it.
    let known = &run("sepolia", 11_856_337..=11_856_337)[0];
    let alloy = AlloyHeader::decode(&mut known.rlp.as_slice()).unwrap();
    let mut json = serde_json::to_value(&alloy).unwrap();
    json["hash"] = known.hash.to_string().into();
    json["transactions"] = serde_json::json!(["0x00", {"deep": [1, null]}]);
    json["uncles"] = serde_json::json!([]);
    let header = HeaderBuf::from_json(&json.to_string()).unwrap();
    assert_eq!((header.rlp(), header.hash()), (known.rlp.as_slice(), known.hash));

    for (field, value) in [
        ("gasUsed", "0x1"),
        ("logsBloom", "0x"),
        ("slotNumber", "0x7"),
        ("hash", "0x0101010101010101010101010101010101010101010101010101010101010101"),
    ] {
        let mut wrong = json.clone();
        wrong[field] = value.into();
        let error = HeaderBuf::from_json(&wrong.to_string()).unwrap_err();
        assert!(matches!(error, HeaderError::HashMismatch { .. }), "{field}: {error}");
    }
    let mut without = json.clone();
    without.as_object_mut().unwrap().remove("slotNumber");
    let error = HeaderBuf::from_json(&without.to_string()).unwrap_err();
    assert!(matches!(error, HeaderError::HashMismatch { .. }), "{error}");
    without = json.clone();
    without["requestsHash"] = serde_json::Value::Null;
    let error = HeaderBuf::from_json(&without.to_string()).unwrap_err();
    assert_eq!(
        error,
        HeaderError::Hole { missing: "requestsHash", present: "blockAccessListHash" }
    );
    without.as_object_mut().unwrap().remove("receiptsRoot");
    let error = HeaderBuf::from_json(&without.to_string()).unwrap_err();
    assert!(error.to_string().contains("receiptsRoot"), "{error}");
    let twice = json.to_string().replacen('{', "{\"gasUsed\":\"0x0\",", 1);
    assert!(HeaderBuf::from_json(&twice).unwrap_err().to_string().contains("gasUsed"));
}

/// The RLP of a real header has the header's hash; a missing or trailing byte is an error.
#[test]
fn rlp_is_a_header_of_its_hash_or_none() {
    for known in known() {
        let header = HeaderBuf::from_rlp(known.rlp.clone()).unwrap();
        assert_eq!((header.hash(), header.rlp()), (known.hash, known.rlp.as_slice()));
        assert_eq!(header.view().number(), known.number);
        let longer = [&known.rlp[..], &[0x80]].concat();
        assert_eq!(HeaderBuf::from_rlp(longer), Err(HeaderError::TrailingBytes(1)));
        assert!(HeaderBuf::from_rlp(known.rlp[..known.rlp.len() - 1].to_vec()).is_err());
    }
    assert!(HeaderBuf::from_rlp(Vec::new()).is_err());
}

fn runs() -> [Vec<Known>; 3] {
    [
        run("mainnet", 10_234_001..=10_234_007),
        run("mainnet", 18_090_205..=18_090_213),
        run("mainnet", 22_431_080..=22_431_086),
    ]
}

#[test]
fn runs_link_one_by_one_and_together() {
    for run in runs() {
        let concatenated: Vec<u8> = run.iter().flat_map(|header| header.rlp.clone()).collect();
        let mut one_by_one = LinkedHeaders::new();
        for header in &run {
            assert_eq!(one_by_one.push(&view(header)), Ok(Linked::Extended));
            assert_eq!(one_by_one.push(&view(header)), Ok(Linked::Known));
        }
        for backend in Backend::available() {
            let mut together = LinkedHeaders::new();
            assert_eq!(together.extend_from_rlp_on(backend, &concatenated), Ok(run.len()));
            assert_eq!(together, one_by_one);
        }
        let (first, last) = (&run[0], run.last().unwrap());
        assert_eq!(one_by_one.numbers(), Some(first.number..=last.number));
        assert_eq!(one_by_one.parent_hash(), Some(first.parent_hash));
        assert_eq!(one_by_one.last_hash(), Some(last.hash));
        for (block, header) in one_by_one.blocks().zip(&run) {
            assert_eq!((block.number, block.hash), (header.number, header.hash));
            assert_eq!(Some(block), one_by_one.block(header.number));
            assert_eq!(block.receipts_root, view(header).receipts_root());
        }
        assert_eq!(one_by_one.block(first.number - 1), None);
        assert_eq!(one_by_one.block(last.number + 1), None);
        let following = one_by_one.following();
        assert!(following.is_empty() && following.parent_hash() == Some(last.hash));
    }
}

/// A part of a chain is the chain of the part's headers.
#[test]
fn parts_are_chains_of_their_own() {
    for run in runs() {
        let chain_of = |run: &[Known]| {
            let mut chain = LinkedHeaders::new();
            for header in run {
                chain.push(&view(header)).map(drop).unwrap();
            }
            chain
        };
        let whole = chain_of(&run);
        let (first, last) = (run[0].number, run[run.len() - 1].number);
        for from in 0..run.len() {
            for to in from..run.len() {
                let expected = chain_of(&run[from..=to]);
                assert_eq!(whole.part(run[from].number..=run[to].number), expected);
            }
            // Numbers that are not on the chain are ignored.
            assert_eq!(whole.part(run[from].number..=u64::MAX), chain_of(&run[from..]));
            assert_eq!(whole.part(0..=run[from].number), chain_of(&run[..=from]));
        }
        let reversed = last..=first;
        for none in [0..=first - 1, last + 1..=last + 1, last + 1..=u64::MAX, reversed] {
            assert_eq!(whole.part(none), LinkedHeaders::new());
        }
        assert_eq!(LinkedHeaders::new().part(0..=u64::MAX), LinkedHeaders::new());
    }
}

/// A trusted hash authenticates its block and the ancestors of its block, but no later block.
#[test]
fn an_anchor_authenticates_what_is_below_it() {
    let [_, run, _] = runs();
    let mut chain = LinkedHeaders::new();
    for header in &run {
        chain.push(&view(header)).map(drop).unwrap();
    }
    let (first, last) = (run[0].number, run[8].number);
    assert_eq!(chain.anchored_to(&[]), None);
    assert_eq!(chain.anchored_to(&[B256::ZERO]), None);
    // Trust in the parent of the first block authenticates no block of the chain.
    assert_eq!(chain.anchored_to(&[run[0].parent_hash]), None);
    assert_eq!(chain.anchored_to(&[run[0].hash]), Some(first));
    assert_eq!(chain.anchored_to(&[run[8].hash]), Some(last));
    assert_eq!(chain.anchored_to(&[run[3].hash, B256::ZERO, run[1].hash]), Some(run[3].number));
}

#[test]
fn what_does_not_follow_is_refused_and_changes_nothing() {
    let [run, _, other] = runs();
    let mut chain = LinkedHeaders::new();
    for header in &run[..3] {
        chain.push(&view(header)).map(drop).unwrap();
    }
    let before = chain.clone();
    let last = run[2].number;
    let gap = chain.push(&view(&run[4])).unwrap_err();
    assert_eq!(gap, ChainError::Gap { last, found: last + 2 });
    let far = chain.push(&view(&other[0])).unwrap_err();
    assert_eq!(far, ChainError::Gap { last, found: other[0].number });
    let below = known().into_iter().find(|h| h.chain == "mainnet" && h.number == 1).unwrap();
    assert_eq!(
        chain.push(&view(&below)).unwrap_err(),
        ChainError::BeforeFirst { number: 1, first: run[0].number }
    );
    let forged = altered(&run[3], |rlp| rlp[10] ^= 1); // the parent hash
    assert!(matches!(
        chain.push(&HeaderView::decode(&forged).unwrap()).unwrap_err(),
        ChainError::Parent { number, expected, .. } if number == last + 1 && expected == run[2].hash
    ));
    let at = number_offset(&run[3]);
    let forged = altered(&run[3], |rlp| rlp[at] = rlp[at].wrapping_add(2));
    assert_eq!(
        chain.push(&HeaderView::decode(&forged).unwrap()).unwrap_err(),
        ChainError::Number { last, found: last + 3 }
    );
    assert_eq!(chain, before);

    // If a header of the input is malformed, all headers before it stay linked.
    let mut stretch: Vec<u8> = run[3..6].iter().flat_map(|header| header.rlp.clone()).collect();
    stretch.extend(&run[6].rlp[..100]);
    let error = chain.extend_from_rlp(&stretch).unwrap_err();
    assert!(matches!(error, ChainError::Header { index: 3, error: HeaderError::NotAList(_) }));
    assert_eq!(chain.numbers(), Some(run[0].number..=run[5].number));
}

/// Among real headers, the candidates are the same blocks that alloy's own Bloom filter finds.
#[test]
fn candidates_are_blocks() {
    let usdc = address!("0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48");
    let nobody = Address::repeat_byte(0x5e);
    let mut selective = 0;
    for run in runs() {
        let mut chain = LinkedHeaders::new();
        let headers: Vec<_> =
            run.iter().map(|known| HeaderBuf::from_rlp(known.rlp.clone()).unwrap()).collect();
        for header in &headers {
            chain.push(&header.view()).map(drop).unwrap();
        }
        for address in [usdc, nobody] {
            let may_have = |header: &&HeaderBuf| {
                let theirs = AlloyHeader::decode(&mut header.rlp()).unwrap();
                theirs.logs_bloom.contains_input(BloomInput::Raw(address.as_slice()))
            };
            let expected: Vec<_> = headers.iter().filter(may_have).map(BlockRef::from).collect();
            selective += usize::from(expected.len() < headers.len());
            let query = LogQuery::new().address(address).compile();
            let found: Vec<_> = chain.candidates(&query).map(BlockRef::from).collect();
            assert_eq!(found, expected);
        }
        // A candidate has the same fields as a `ChainBlock` that is converted from its header.
        let query = LogQuery::new().compile();
        assert!(chain.candidates(&query).eq(headers.iter().map(ChainBlock::from)));
        assert_eq!(LinkedHeaders::new().candidates(&query).next(), None);
    }
    assert!(selective > 0);
}

#[test]
fn a_chain_ends_before_the_last_number() {
    let [run, ..] = runs();
    let at = number_offset(&run[0]);
    let with_number = |number: u64, parent: B256| {
        let mut payload = parent.to_vec();
        payload.insert(0, 0xa0);
        payload.extend(&run[0].rlp[36..=at - run_number_length(&run[0])]);
        payload.push(0x88);
        payload.extend(number.to_be_bytes());
        payload.extend(&run[0].rlp[at + 1..]);
        let mut rlp = Vec::new();
        alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut rlp);
        rlp.extend(payload);
        rlp
    };
    let last = with_number(u64::MAX, B256::ZERO);
    let last = HeaderView::decode(&last).unwrap();
    let mut chain = LinkedHeaders::new();
    assert_eq!(chain.push(&last), Ok(Linked::Extended));
    let beyond = with_number(u64::MAX, last.hash());
    assert!(matches!(
        chain.push(&HeaderView::decode(&beyond).unwrap()),
        Err(ChainError::Number { .. })
    ));
    assert_eq!(chain.numbers(), Some(u64::MAX..=u64::MAX));
    assert_eq!(chain.blocks().count(), 1);
    assert_eq!(chain.following().len(), 0);
}

fn altered(known: &Known, alter: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut rlp = known.rlp.clone();
    alter(&mut rlp);
    rlp
}

/// Offset of the block number's last byte in the RLP.
fn number_offset(known: &Known) -> usize {
    let number = known.number.to_be_bytes();
    let number = &number[number.len() - (run_number_length(known) - 1)..];
    let mut encoded = alloc::vec![0x80 + u8::try_from(number.len()).unwrap()];
    encoded.extend(number);
    let at = known.rlp[448..].windows(encoded.len()).position(|window| window == encoded).unwrap();
    448 + at + number.len()
}

/// Length of the block number in RLP, including its length prefix.
fn run_number_length(known: &Known) -> usize {
    1 + (8 - known.number.leading_zeros() as usize / 8)
}
