//! Receipt proofs, verified by independent code.

use alloy_rlp::{Decodable as _, Encodable as _, Header};
use chainsieve::alloy_primitives::{Address, B256, Bytes, keccak256};
use serde_json::Value;

/// Returns the receipt that a proof shows at an index of the trie with this root, as encoded in the
/// trie.
pub(crate) fn receipt_of_proof(root: B256, index: u64, nodes: &[Bytes]) -> Bytes {
    let mut key = Vec::new();
    index.encode(&mut key);
    let nibbles: Vec<u8> = key.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect();
    let mut path = nibbles.as_slice();
    let mut wanted = root.to_vec();
    for node in nodes {
        // A node is referenced by its hash, or embedded if it is shorter than 32 bytes.
        let by = if wanted.len() == 32 { keccak256(node).to_vec() } else { node.to_vec() };
        assert_eq!(by, wanted, "a node other than the referenced one");
        let mut list = Header::decode_bytes(&mut node.as_ref(), true).expect("a list");
        let mut items = Vec::new();
        while !list.is_empty() {
            let all = list;
            let item = Header::decode(&mut list).expect("an item");
            if item.list {
                list = &list[item.payload_length..];
                items.push(&all[..all.len() - list.len()]);
            } else {
                // A single byte has no separate header.
                items.push(&list[..item.payload_length]);
                list = &list[item.payload_length..];
            }
        }
        if items.len() == 17 {
            let Some((nibble, rest)) = path.split_first() else {
                return items[16].to_vec().into();
            };
            wanted = items[usize::from(*nibble)].to_vec();
            path = rest;
            continue;
        }
        let (prefix, value) = (items[0], items[1]);
        let mut own: Vec<u8> = prefix.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect();
        let (is_leaf, is_odd) = (own[0] & 2 != 0, own[0] & 1 != 0);
        own.drain(..if is_odd { 1 } else { 2 });
        path = path.strip_prefix(own.as_slice()).expect("a node on the way");
        if is_leaf {
            assert!(path.is_empty(), "a leaf of another key");
            return value.to_vec().into();
        }
        wanted = value.to_vec();
    }
    panic!("the proof ends before the receipt");
}

/// Returns `true` if the receipt has a log with this address, these topics and this data.
pub(crate) fn is_in_receipt(log: &Value, receipt: &[u8]) -> bool {
    let field = |name: &str| log[name].clone();
    let address: Address = serde_json::from_value(field("address")).expect("an address");
    let topics: Vec<B256> = serde_json::from_value(field("topics")).expect("topics");
    let data: Bytes = serde_json::from_value(field("data")).expect("data");
    // After the type byte: status, gas, bloom, logs.
    let mut rest = if receipt[0] < 0x80 { &receipt[1..] } else { receipt };
    let mut fields = Header::decode_bytes(&mut rest, true).expect("a receipt");
    for _ in 0..3 {
        let head = Header::decode(&mut fields).expect("a field");
        fields = &fields[head.payload_length..];
    }
    let mut logs = Header::decode_bytes(&mut fields, true).expect("logs");
    while !logs.is_empty() {
        let mut log = Header::decode_bytes(&mut logs, true).expect("a log");
        let of = (
            Address::decode(&mut log).expect("an address"),
            Vec::<B256>::decode(&mut log).expect("topics"),
            Bytes::decode(&mut log).expect("data"),
        );
        if of == (address, topics.clone(), data.clone()) {
            return true;
        }
    }
    false
}
