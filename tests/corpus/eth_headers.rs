//! Checks every Ethereum header of the corpus: its hash, its fields and its links.

use std::collections::BTreeMap;

use alloy_primitives::B256;
use alloy_rlp::Encodable as _;
use chainsieve::eth::header::{HeaderBuf, HeaderError, HeaderView, LinkedHeaders};
use chainsieve::simd::Backend;

use testkit::eth::corpus::{self, EthCorpus, Format};
use testkit::eth::header_checks::{check, ones};

#[test]
fn single_headers_hash_as_the_index_says() {
    let Some(corpus) = EthCorpus::open() else { return };
    for file in corpus.of(Format::Header) {
        let header = check(&file.name, &corpus.read(&file.name), file.hash());
        assert_eq!(header.number, file.number("number"), "{}", file.name);
    }
    for file in corpus.of(Format::Receipts) {
        let header = file.name.replace(".receipts.", ".header.");
        let header = check(&header, &corpus.read(&header), file.hash());
        assert_eq!(ones(&header.logs_bloom), file.number("header_bloom_bits"), "{}", file.name);
    }
}

#[test]
fn rows_of_headers_of_four_chains() {
    let Some(corpus) = EthCorpus::open() else { return };
    let mut counts = BTreeMap::new();
    for file in corpus.of(Format::HeaderRows) {
        let chain = file.entry["chain"].as_str().expect("a chain").to_owned();
        let (mut linked, mut before) = (0, None);
        let rows = corpus.rows(file);
        for row in &rows {
            let name = format!("{chain} {}", row["number"]);
            let rlp = corpus::bytes(&row["rlp"]);
            let header = check(&name, &rlp, corpus::hash(&row["hash"]));
            assert_eq!(Some(header.number), row["number"].as_u64(), "{name}");
            assert_eq!(Some(header.timestamp), row["timestamp"].as_u64(), "{name}");
            assert_eq!(Some(ones(&header.logs_bloom)), row["bloom_bits"].as_u64(), "{name}");
            let view = HeaderView::decode(&rlp).expect("decoded above");
            let counted = view.logs_bloom().count_ones().map(u64::from);
            assert_eq!(counted, row["bloom_bits"].as_u64(), "{name}");
            linked += usize::from(before == Some(header.parent_hash));
            before = Some(header.hash_slow());
        }
        let said = file.entry["number"].as_str().expect("a range");
        assert!(said.contains(&format!("({} headers", rows.len())), "{said}");
        counts.insert(chain, (rows.len(), linked));
    }
    let sizes: Vec<_> = counts.iter().map(|(chain, (rows, _))| (chain.as_str(), *rows)).collect();
    assert_eq!(sizes, [("goerli", 5), ("mainnet", 106), ("op-sepolia", 4), ("optimism", 53)]);
    assert!(counts["mainnet"].1 > 20, "{counts:?}");
}

#[test]
fn runs_link_up_to_their_last_hash() {
    let Some(corpus) = EthCorpus::open() else { return };
    let mut linked = 0;
    for file in corpus.of(Format::HeaderRun) {
        let (name, rlp) = (&file.name, corpus.read(&file.name));
        let count = usize::try_from(file.number("count")).expect("a count");
        let mut alloy = Vec::new();
        let mut rest = &rlp[..];
        while !rest.is_empty() {
            let (view, behind) = HeaderView::decode_prefix(rest).expect("a header");
            alloy.push(check(name, view.rlp(), view.hash()));
            rest = behind;
        }
        let hashes: Vec<B256> = alloy.iter().map(alloy_consensus::Header::hash_slow).collect();
        let (first, last) = (alloy[0].number, alloy[0].number + count as u64 - 1);
        let range = file.entry["number"].as_str().expect("a range");
        assert_eq!(range, format!("{first}..{last}"), "{name}");
        for backend in Backend::available() {
            let mut chain = LinkedHeaders::new();
            assert_eq!(chain.extend_from_rlp_on(backend, &rlp), Ok(count), "{name} on {backend:?}");
            assert_eq!(chain.numbers(), Some(first..=last), "{name}");
            assert_eq!(chain.last_hash(), Some(file.hash()), "{name}");
            assert_eq!(chain.anchored_to(&[file.hash()]), Some(last), "{name}");
            assert_eq!(chain.parent_hash(), Some(alloy[0].parent_hash), "{name}");
            // A hash on the chain authenticates the headers up to it. A hash that is not on the
            // chain authenticates nothing.
            assert_eq!(chain.anchored_to(&[hashes[1], hashes[0]]), Some(first + 1), "{name}");
            assert_eq!(chain.anchored_to(&[alloy[0].parent_hash, B256::ZERO]), None, "{name}");
            for ((block, header), hash) in chain.blocks().zip(&alloy).zip(&hashes) {
                let fields = (block.number, block.hash, block.receipts_root, block.gas_used);
                assert_eq!(
                    fields,
                    (header.number, *hash, header.receipts_root, header.gas_used),
                    "{name}"
                );
                let fields = (block.transactions_root, block.timestamp, block.bloom);
                assert_eq!(
                    fields,
                    (header.transactions_root, header.timestamp, &header.logs_bloom),
                    "{name}"
                );
                assert_eq!(chain.block(header.number), Some(block), "{name}");
            }
            assert_eq!((chain.block(last + 1), chain.len()), (None, count), "{name}");
        }
        linked += count;
    }
    assert_eq!(linked, 2_048 + 7 + 7 + 16 + 9 + 7 + 49);
}

#[test]
fn blocks_of_json_rpc_are_taken_under_their_hash_alone() {
    let Some(corpus) = EthCorpus::open() else { return };
    let mut altered = 0;
    for file in corpus.of(Format::BlockJson) {
        let (name, text) = (&file.name, corpus.text(&file.name));
        let header = HeaderBuf::from_json(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let alloy = check(name, header.rlp(), file.hash());
        let mut again = Vec::new();
        alloy.encode(&mut again);
        assert_eq!((header.hash(), header.rlp()), (file.hash(), &again[..]), "{name}");
        assert_eq!(header.view().number(), file.number("number"), "{name}");

        let block: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for field in FIELDS {
            let Some(value) = block[field].as_str() else { continue };
            // Change the last digit, or write `0x00` if the value has no digit.
            let last = value.chars().last().expect("a prefix");
            let other = match last {
                'x' => "0x00".to_owned(),
                '0' => format!("{}1", &value[..value.len() - 1]),
                _ => {
                    format!("{}{}", &value[..value.len() - 1], if last == '1' { '2' } else { '1' })
                }
            };
            let mut lie = block.clone();
            lie[field] = other.into();
            let result = HeaderBuf::from_json(&lie.to_string());
            let found = matches!(result, Err(HeaderError::HashMismatch { .. }));
            assert!(found, "{name}: {field}: {result:?}");
            lie.as_object_mut().expect("an object").remove(field);
            assert!(HeaderBuf::from_json(&lie.to_string()).is_err(), "{name}: no {field}");
            altered += 1;
        }
    }
    assert!(altered > 13 * 16, "{altered}");
}

/// The members of a header over JSON-RPC, up to those of the Amsterdam fork.
const FIELDS: [&str; 24] = [
    "hash",
    "parentHash",
    "sha3Uncles",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "logsBloom",
    "difficulty",
    "number",
    "gasLimit",
    "gasUsed",
    "timestamp",
    "extraData",
    "mixHash",
    "nonce",
    "baseFeePerGas",
    "withdrawalsRoot",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "requestsHash",
    "blockAccessListHash",
    "slotNumber",
];
