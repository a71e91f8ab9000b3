//! Tests that the bank gives the same results as each filter alone.

use std::collections::BTreeMap;

use bitcoin::consensus::{deserialize, serialize};
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, Transaction};
use chainsieve_lanes::simd::Backend;

use super::bit_array::BitArray;
use super::probe::bank::Rows;
use super::probe::mixed::Mixed;
use super::{
    AddedData, BlockElements, BloomFilter, Elements, MatchReason, PayloadError, TxMatch, UpdateMode,
};
use super::{BankError, FilterBank};
use testkit::Rng;

fn block(height: u32) -> Block {
    let file = match height {
        255_018 => include_str!("../../../fixtures/bitcoin/blocks/mainnet_255018.json"),
        150_013 => include_str!("../../../fixtures/bitcoin/blocks/mainnet_150013.json"),
        _ => unreachable!("not among the fixtures"),
    };
    let (_, block) = file.split_once("\"block\": \"").unwrap();
    let (block, _) = block.split_once('"').unwrap();
    deserialize(&hex::decode(block).unwrap()).unwrap()
}

/// Returns a random filter that a peer may load, including useless filters. Some of the filters
/// contain elements of the transactions.
fn filter(rng: &mut Rng, transactions: &[Transaction]) -> BloomFilter {
    let size = *rng.pick(&[0, 1, 1, 2, 3, 4, 5, 7, 64, 100, 333, 2_396, 2_396, 36_000]);
    let hash_funcs = match rng.below(4) {
        0 => rng.u32() % 5,
        1 => 50,
        _ => rng.u32() % 51,
    };
    let any = rng.u32();
    let tweak = *rng.pick(&[0, 1, u32::MAX, any]);
    let flags = *rng.pick(&[0, 1, 1, 1, 2, 3, 0x81]);
    let data = match rng.below(8) {
        0 => vec![0xff; size],
        // The filters of cases 1 to 3 are half full, a quarter full and an eighth full.
        1 => rng.bytes(size),
        2 => (0..size).map(|_| rng.bytes(2).iter().fold(!0, |a, b| a & b)).collect(),
        3 => (0..size).map(|_| rng.bytes(3).iter().fold(!0, |a, b| a & b)).collect(),
        _ => vec![0; size],
    };
    let bits = BitArray::from_bytes(data).unwrap();
    let mut filter = BloomFilter::from_bits(bits, hash_funcs, tweak, flags);
    for _ in 0..rng.below(4) {
        filter.insert(&element(rng, transactions));
    }
    filter
}

/// Returns a random element of the transactions.
fn element(rng: &mut Rng, transactions: &[Transaction]) -> Vec<u8> {
    let transaction = rng.pick(transactions);
    match rng.below(4) {
        0 => transaction.compute_txid().to_byte_array().to_vec(),
        1 => serialize(&rng.pick(&transaction.input).previous_output),
        _ => {
            let script = &rng.pick(&transaction.output).script_pubkey;
            let mut pushes = crate::btc::script::pushes(script.as_bytes());
            pushes.next().unwrap_or_default().to_vec()
        }
    }
}

/// Each peer's filter; `None` for a peer that gets every transaction.
type Alone = BTreeMap<u32, Option<BloomFilter>>;

fn alone(peers: &mut Alone, transaction: &Transaction) -> Vec<(u32, TxMatch)> {
    let everything = TxMatch {
        index: 0,
        txid: transaction.compute_txid(),
        reasons: vec![MatchReason::Everything],
    };
    let matches = peers.iter_mut().filter_map(|(&id, filter)| match filter {
        Some(filter) => Some((id, filter.match_transaction(transaction)?)),
        None => Some((id, everything.clone())),
    });
    matches.collect()
}

fn assert_equal(bank: &FilterBank<u32>, peers: &Alone) {
    let filters = peers.iter().filter(|(_, filter)| filter.is_some()).map(|(id, _)| id);
    assert!(bank.ids().eq(filters));
    let cleared = peers.iter().filter(|(_, filter)| filter.is_none()).map(|(id, _)| id);
    assert!(bank.cleared_ids().eq(cleared));
    assert_eq!(bank.len(), bank.ids().count());
    for (id, filter) in peers {
        assert_eq!(&bank.get(id), filter);
        assert_eq!(bank.relays_everything(id), filter.is_none());
    }
}

#[test]
fn as_if_each_filter_were_alone() {
    let blocks = [block(255_018), block(150_013)];
    let transactions: Vec<_> =
        blocks.iter().flat_map(|block| block.txdata.iter().cloned()).collect();
    for backend in Backend::available() {
        let mut rng = Rng::new(5);
        let mut bank = FilterBank::new().with_backend(backend);
        let mut peers = Alone::new();
        let (mut matched, mut grown) = (0, 0);
        for (round, transaction) in transactions.iter().enumerate() {
            for _ in 0..rng.below(12) {
                let id = rng.u32() % if round < 150 { 600 } else { 40 };
                match rng.below(10) {
                    0..5 => {
                        let filter = filter(&mut rng, &transactions);
                        if rng.one_in(2) {
                            bank.load(id, filter.clone()).unwrap();
                        } else {
                            // Core ignores trailing bytes.
                            let payload = [filter.encode(), vec![7; 3]].concat();
                            bank.load_payload(id, &payload).unwrap();
                        }
                        peers.insert(id, Some(filter));
                    }
                    5 | 6 => {
                        let data = element(&mut rng, &transactions);
                        let added = if rng.one_in(2) {
                            bank.add(&id, &data)
                        } else {
                            let payload = AddedData::new(data.clone()).unwrap().encode();
                            bank.add_payload(&id, &[payload, vec![7; 3]].concat())
                        };
                        match peers.get_mut(&id).and_then(Option::as_mut) {
                            Some(filter) => {
                                added.unwrap();
                                filter.insert(&data);
                            }
                            None => assert_eq!(added, Err(BankError::NoFilter)),
                        }
                    }
                    7 => {
                        bank.clear(id);
                        peers.insert(id, None);
                    }
                    _ => assert_eq!(bank.remove(&id), peers.remove(&id).is_some()),
                }
            }
            if round > 250 {
                // Remove peers until none is left.
                for id in 0..600 {
                    if rng.one_in(20) {
                        assert_eq!(bank.remove(&id), peers.remove(&id).is_some());
                    }
                }
            }
            let before: u64 = peers.values().flatten().map(BloomFilter::bits_set).sum();
            let expected = alone(&mut peers, transaction);
            assert_eq!(bank.match_transaction(transaction), expected, "{backend:?}");
            let after: u64 = peers.values().flatten().map(BloomFilter::bits_set).sum();
            matched += expected.len();
            grown += usize::from(after > before);
            assert_equal(&bank, &peers);
        }
        // The test must have seen enough matches and insertions.
        assert!(matched > 1_000 && grown > 20, "{matched} matches, {grown} with insertions");
    }
}

#[test]
fn every_number_of_filters() {
    let block = block(255_018);
    let mut rng = Rng::new(5);
    let filters: Vec<_> = (0..1_100).map(|_| filter(&mut rng, &block.txdata)).collect();
    for backend in Backend::available() {
        for count in [0, 1, 15, 16, 17, 63, 64, 65, 1_000, 1_023, 1_024, 1_025, 1_100] {
            let mut bank = FilterBank::new().with_backend(backend);
            let mut peers = Alone::new();
            // The filters are loaded in another order than that of the ids.
            for i in 0..count {
                let id = i * 7_919 % 1_109;
                bank.load(id, filters[i as usize].clone()).unwrap();
                peers.insert(id, Some(filters[i as usize].clone()));
            }
            for transaction in &block.txdata[..5] {
                let expected = alone(&mut peers, transaction);
                assert_eq!(bank.match_transaction(transaction), expected, "{backend:?}");
            }
            assert_equal(&bank, &peers);
        }
    }
}

/// Extra hits would not change the results of the bank, only the time that matching takes.
#[test]
fn every_backend_hits_the_same_filters() {
    let block = block(255_018);
    let mut rng = Rng::new(6);
    let mut bank = FilterBank::new();
    for id in 0..1_000 {
        bank.load(id, filter(&mut rng, &block.txdata)).unwrap();
    }
    let mut rows = Rows::default();
    for transaction in &block.txdata {
        let mixed = Mixed::new(&Elements::from_transaction(transaction));
        let expected = bank.shards[0].probe(Backend::SCALAR, &mixed, &mut rows);
        for backend in Backend::available() {
            let hits = bank.shards[0].probe(backend, &mixed, &mut rows);
            assert_eq!(hits, expected, "{backend:?}");
        }
    }
}

#[test]
fn blocks_and_several_transactions() {
    for block in [block(255_018), block(150_013)] {
        let mut short = block.clone();
        short.txdata.truncate(12);
        for block in [short, block] {
            let elements = BlockElements::from_block(&block);
            for backend in Backend::available() {
                let mut rng = Rng::new(5);
                let mut bank = FilterBank::new().with_backend(backend);
                let mut peers = Alone::new();
                for id in 0..100 {
                    let filter = filter(&mut rng, &block.txdata);
                    bank.load(id, filter.clone()).unwrap();
                    peers.insert(id, Some(filter));
                }
                let mut one_by_one = bank.clone();
                let mut relayed = bank.clone();
                relayed.clear(1_000);
                relayed.clear(50);
                bank.clear(1_000);

                let expected: Vec<_> = peers
                    .iter_mut()
                    .filter_map(|(&id, filter)| {
                        let matches = filter.as_mut().unwrap().match_block(&elements);
                        (!matches.is_empty()).then_some((id, matches))
                    })
                    .collect();
                assert_eq!(bank.match_block(&elements), expected);
                peers.insert(1_000, None);
                assert_equal(&bank, &peers);

                // Match one peer after the other.
                for (id, filter) in &peers {
                    let matches = one_by_one.match_block_for(id, &elements);
                    assert_eq!(matches.is_some(), filter.is_some());
                    let expected = expected.iter().find(|(other, _)| other == id);
                    let expected = expected.map(|(_, matches)| matches.clone());
                    assert_eq!(matches.unwrap_or_default(), expected.unwrap_or_default());
                }
                one_by_one.clear(1_000);
                assert_equal(&one_by_one, &peers);

                // Relay the transactions, also to peers that get every transaction.
                let found = relayed.match_elements(elements.elements());
                let everything = found.iter().filter(|(id, _)| [50, 1_000].contains(id));
                for (_, matches) in everything.clone() {
                    assert_eq!(matches.len(), block.txdata.len());
                    assert!(matches.iter().all(|found| found.reasons == [MatchReason::Everything]));
                }
                assert_eq!(everything.count(), 2);
                let others = found.iter().filter(|(id, _)| ![50, 1_000].contains(id));
                assert!(others.eq(expected.iter().filter(|(id, _)| *id != 50)));
                assert!(found.is_sorted_by_key(|(id, _)| *id));
            }
        }
    }
}

/// Tests elements of every length, including those too long for a class.
#[test]
fn every_length_of_an_element() {
    let mut template = block(255_018).txdata[1].clone();
    template.output.truncate(1);
    for backend in Backend::available() {
        let mut rng = Rng::new(5);
        for length in (1..80).chain([127, 128, 131, 132, 133, 519, 520, 521, 3_000]) {
            let data = rng.bytes(length);
            let push: &bitcoin::script::PushBytes = data.as_slice().try_into().unwrap();
            template.output[0].script_pubkey =
                bitcoin::ScriptBuf::builder().push_slice(push).into_script();
            let mut bank = FilterBank::new().with_backend(backend);
            for id in 0..40 {
                let mut filter = BloomFilter::new(20, 1e-6, id, UpdateMode::All).unwrap();
                if id % 3 == 0 {
                    filter.insert(&data);
                }
                bank.load(id, filter).unwrap();
            }
            let found = bank.match_elements(&Elements::from_transaction(&template));
            assert!(found.iter().map(|(id, _)| *id).eq((0..40).step_by(3)), "{length} bytes");
        }
    }
}

#[test]
fn limits_and_errors() {
    let with = |bytes: usize, hash_funcs| {
        BloomFilter::from_bits(BitArray::from_bytes(vec![1; bytes]).unwrap(), hash_funcs, 0, 0)
    };
    let mut bank = FilterBank::new();
    bank.load("a", with(36_000, 50)).unwrap();
    let before = bank.get(&"a");
    let refused = [
        (with(36_001, 50), PayloadError::FilterTooLarge(36_001)),
        (with(36_000, 51), PayloadError::TooManyHashFuncs(51)),
    ];
    for (filter, error) in refused {
        assert_eq!(bank.load("a", filter.clone()), Err(BankError::Payload(error)));
        assert_eq!(bank.load_payload("b", &filter.encode()), Err(BankError::Payload(error)));
        assert!(BankError::from(error).is_misbehavior());
    }
    assert_eq!(bank.get(&"a"), before);
    assert_eq!(bank.get(&"b"), None);

    bank.add(&"a", &[]).unwrap();
    bank.add(&"a", &[3; 520]).unwrap();
    let too_large = BankError::Payload(PayloadError::DataTooLarge(521));
    assert_eq!(bank.add(&"a", &[3; 521]), Err(too_large));
    assert_eq!(bank.add(&"b", &[3; 521]), Err(too_large));
    assert!(too_large.is_misbehavior());
    assert_eq!(bank.add(&"b", &[]), Err(BankError::NoFilter));
    assert!(BankError::NoFilter.is_misbehavior());

    // Core ignores payloads that it cannot decode.
    let truncated = bank.load_payload("a", &[3, 1, 1]).unwrap_err();
    assert!(!truncated.is_misbehavior());
    assert!(!bank.add_payload(&"a", &[0xfd, 1, 0, 9]).unwrap_err().is_misbehavior());

    bank.clear("a");
    assert_eq!(bank.add(&"a", &[1]), Err(BankError::NoFilter));
    assert!(bank.is_empty() && bank.relays_everything(&"a") && bank.get(&"a").is_none());
    bank.load("a", with(1, 1)).unwrap();
    assert!(!bank.relays_everything(&"a") && bank.len() == 1);
    assert!(bank.remove(&"a") && !bank.remove(&"a"));
    bank.clear("c");
    assert!(bank.remove(&"c") && !bank.relays_everything(&"c"));
    assert_eq!(format!("{bank:?}"), "{}");
}
