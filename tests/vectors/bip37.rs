//! `fixtures/bitcoin/bip37_vectors.json`: the vectors of Bitcoin Core's `bloom_tests`.

use std::str::FromStr as _;

use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::secp256k1::Secp256k1;
use chainsieve::bitcoin::{OutPoint, PrivateKey, PublicKey, Transaction, Txid, consensus};
use chainsieve::btc::bip37::{BloomFilter, UpdateMode};
use serde_json::Value;

use testkit::btc::entry_points;
use testkit::btc::fixtures;
use testkit::btc::oracle::{TestBlock, from_hex};
use testkit::btc::slow_bip37::{SlowFilter, outpoint_bytes};

fn vectors() -> Value {
    serde_json::from_str(&fixtures::read("bip37_vectors.json")).expect("JSON")
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().unwrap_or_else(|| panic!("no list {field}"))
}

fn str(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no string: {value}"))
}

fn u32(value: &Value) -> u32 {
    u32::try_from(value.as_u64().expect("a number")).expect("a u32")
}

/// The library's filter and the slow matcher's filter, with the same insertions.
struct Both {
    library: BloomFilter,
    slow: SlowFilter,
}

impl Both {
    fn new(parameters: &Value) -> Self {
        let flags = u8::try_from(u32(&parameters["flags"])).expect("a byte");
        let (elements, tweak) = (u32(&parameters["elements"]), u32(&parameters["tweak"]));
        let fpr = parameters["fpr"].as_f64().expect("a rate");
        let library = BloomFilter::new(elements, fpr, tweak, UpdateMode::from_flags(flags))
            .unwrap_or_else(|e| panic!("{parameters}: {e}"));
        let slow = SlowFilter {
            data: vec![0; library.data().len()],
            hash_funcs: library.hash_funcs(),
            tweak,
            flags,
        };
        Self { library, slow }
    }

    fn insert(&mut self, element: &[u8]) {
        self.library.insert(element);
        self.slow.insert(element);
    }

    fn contains(&self, element: &[u8]) -> bool {
        let library = self.library.contains(element);
        assert_eq!(library, self.slow.contains(element), "slow and library: {element:02x?}");
        library
    }

    fn contains_outpoint(&self, outpoint: &OutPoint) -> bool {
        let library = self.library.contains_outpoint(outpoint);
        assert_eq!(library, self.contains(&outpoint_bytes(outpoint)), "{outpoint}");
        library
    }

    fn payload(&self) -> Vec<u8> {
        let payload = self.library.encode();
        assert_eq!(hex::encode(&payload), hex::encode(self.slow.payload()), "slow and library");
        payload
    }

    fn matches(&mut self, tx: &Transaction) -> bool {
        let reasons = self.slow.match_and_update(tx);
        let found = self.library.match_transaction(tx);
        let library = found.as_ref().map(entry_points::reasons).unwrap_or_default();
        assert_eq!(library, reasons, "slow and library: {}", tx.compute_txid());
        self.payload();
        found.is_some()
    }

    /// Makes the insertions of a case or a step, and returns their number.
    fn insert_all(&mut self, case: &Value) -> usize {
        let mut count = 0;
        match &case["insert"] {
            Value::Null => {}
            Value::Array(many) => {
                for hex in many {
                    self.insert(&from_hex(str(hex)));
                }
                count += many.len();
            }
            one => {
                self.insert(&from_hex(str(one)));
                count += 1;
            }
        }
        if let Some(txid) = case.get("insert_txid") {
            self.insert(&Txid::from_str(str(txid)).expect("an id").to_byte_array());
            count += 1;
        }
        if let Some(point) = case.get("insert_outpoint") {
            let point = outpoint(point);
            self.library.insert_outpoint(&point);
            self.slow.insert(&outpoint_bytes(&point));
            count += 1;
        }
        count
    }
}

fn outpoint(value: &Value) -> OutPoint {
    let txid = Txid::from_str(str(&value[0])).expect("an id");
    OutPoint { txid, vout: u32(&value[1]) }
}

#[test]
fn filterload_payloads() {
    let vectors = vectors();
    let mut rows = 0;
    for case in list(&vectors, "filterload") {
        let payload = str(&case["payload"]);
        let mut both = Both::new(&case["filter"]);
        let mut elements = Vec::new();
        if let Some(wif) = case.get("insert_wif") {
            let key = PrivateKey::from_wif(str(wif)).expect("a key");
            let key = PublicKey::from_private_key(&Secp256k1::new(), &key);
            assert_eq!(list(case, "insert_kinds"), ["public_key", "public_key_hash"]);
            both.library.insert_key(&key);
            elements.extend([key.to_bytes(), key.pubkey_hash().to_byte_array().to_vec()]);
            for element in &elements {
                both.slow.insert(element);
            }
            assert!(both.library.contains_key(&key), "{payload}: the key");
        } else {
            elements.extend(list(case, "insert").iter().map(|hex| from_hex(str(hex))));
            for element in &elements {
                both.insert(element);
            }
            for absent in list(case, "absent") {
                assert!(!both.contains(&from_hex(str(absent))), "{payload}: {absent} is absent");
            }
        }
        for element in &elements {
            assert!(both.contains(element), "{payload}: {element:02x?} is present");
        }
        assert_eq!(hex::encode(both.payload()), payload);
        let decoded = BloomFilter::decode(&from_hex(payload)).expect(payload);
        assert_eq!(decoded, both.library, "{payload}: decoded");
        rows += 1;
    }
    assert_eq!(rows, 3);
}

#[test]
fn transactions_match_by_every_kind_of_element() {
    let vectors = vectors();
    let transaction = |name: &str| -> Transaction {
        let json = &vectors["transactions"][name];
        let tx: Transaction = consensus::deserialize(&from_hex(str(&json["hex"]))).expect(name);
        assert_eq!(tx.compute_txid().to_string(), str(&json["txid"]), "{name}");
        tx
    };
    let (mut rows, mut relevant) = (0, 0);
    for case in list(&vectors, "matching") {
        let why = str(&case["why"]);
        let mut both = Both::new(&case["filter"]);
        assert_eq!(both.insert_all(case), 1, "{why}: insertions");
        let matched = both.matches(&transaction(str(&case["transaction"])));
        assert_eq!(Some(matched), case["matches"].as_bool(), "{why}");
        if let Some(expected) = case.get("then_spending_matches") {
            let matched = both.matches(&transaction("spending"));
            assert_eq!(Some(matched), expected.as_bool(), "{why}: the spending transaction");
        }
        rows += 1;
        relevant += u32::from(matched);
    }
    assert_eq!((rows, relevant), (11, 7));
}

/// Four mainnet blocks under each update flag. Each step inserts elements, and matches the block
/// again with the filter that the step before has left.
#[test]
fn merkle_blocks_step_by_step() {
    let vectors = vectors();
    let (mut rows, mut steps) = (0, 0);
    for case in list(&vectors, "merkle_blocks") {
        let hash = str(&case["block"]);
        let block = TestBlock::new(from_hex(str(&vectors["blocks"][hash])));
        assert_eq!(block.block.block_hash().to_string(), hash);
        let mut both = Both::new(&case["filter"]);
        for (at, step) in list(case, "steps").iter().enumerate() {
            let name = format!("{hash}, flags {}, step {at}", case["filter"]["flags"]);
            assert!(both.insert_all(step) > 0, "{name}: no insertion");
            check_step(&mut both, &block, step, &name);
            steps += 1;
        }
        rows += 1;
    }
    assert_eq!((rows, steps), (7, 11));
}

fn check_step(both: &mut Both, block: &TestBlock, step: &Value, name: &str) {
    let filterload = both.payload();
    let by_slow = entry_points::slow(&filterload, block);
    for (entry_point, outcome) in entry_points::library(&filterload, block) {
        assert_eq!(outcome, by_slow, "{name}: {entry_point}");
    }
    both.slow = SlowFilter::from_payload(&by_slow.filter_after);
    both.library = BloomFilter::decode(&by_slow.filter_after).expect("the filter's own payload");

    let mut asked = 0;
    if step.get("matches").is_some() {
        let txid = |index: &usize| block.block.txdata[*index].compute_txid().to_string();
        let got: Vec<_> = by_slow
            .indices()
            .iter()
            .map(|index| Value::from(vec![Value::from(*index), Value::from(txid(index))]))
            .collect();
        assert_eq!(got, list(step, "matches"), "{name}: matches");
        asked += 1;
    }
    if let Some(payload) = step.get("payload") {
        for (entry_point, outcome) in entry_points::library(&filterload, block) {
            let built = entry_points::merkle_block(block, &outcome);
            assert_eq!(hex::encode(built), str(payload), "{name}: merkleblock by {entry_point}");
        }
        let built = testkit::btc::slow_bip37::tree::merkle_block(&block.block, &by_slow.indices());
        assert_eq!(hex::encode(built), str(payload), "{name}: slow merkleblock");
        asked += 1;
    }
    for (field, expected) in [("then_contains_outpoint", true), ("then_lacks_outpoint", false)] {
        for point in outpoints(&step[field]) {
            assert_eq!(both.contains_outpoint(&point), expected, "{name}: {field} {point}");
            asked += 1;
        }
    }
    assert!(asked > 0, "{name}: nothing asked");
}

/// Returns the outpoints of a field: one, a list, or none.
fn outpoints(value: &Value) -> Vec<OutPoint> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(many) if many[0].is_array() => many.iter().map(outpoint).collect(),
        one => vec![outpoint(one)],
    }
}
