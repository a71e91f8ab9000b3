//! Scans of real headers, compared with alloy's bloom tests.

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bloom};
use alloy_rlp::Decodable as _;
use alloy_rpc_types_eth::Filter;
use chainsieve::eth::bloom::positions;
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::eth::scan::{QuerySet, candidates_on};
use chainsieve::simd::Backend;

use testkit::Rng;
use testkit::btc::oracle::from_hex;

/// Returns the blooms of the headers in `fixtures/ethereum/headers.json`.
fn blooms() -> Vec<Bloom> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/ethereum/headers.json");
    let json = std::fs::read_to_string(file).expect("a fixture");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let headers = json.as_array().expect("headers").iter();
    let hex =
        headers.map(|header| header["header"].as_str().expect("hex").trim_start_matches("0x"));
    let decoded = hex.filter_map(|hex| Header::decode(&mut from_hex(hex).as_slice()).ok());
    decoded.map(|header| header.logs_bloom).collect()
}

/// Returns addresses and topics of well-known contracts, followed by random addresses.
fn values(rng: &mut Rng) -> (Vec<Address>, Vec<B256>) {
    let known = [
        "c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2", // WETH
        "dac17f958d2ee523a2206206994597c13d831ec7", // USDT
        "a0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", // USDC
        "6b175474e89094c44da98b954eedeac495271d0f", // DAI
        "7a250d5630b4cf539739df2c5dacb4c659f2488d", // Uniswap V2's router
        "00000000219ab540356cbb839cbe05303d7705fa", // the deposit contract
    ];
    let addresses = known.iter().map(|hex| Address::from_slice(&from_hex(hex)));
    let addresses: Vec<Address> =
        addresses.chain((0..2_000).map(|_| Address::from(rng.array::<20>()))).collect();
    let events = [
        "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef", // Transfer
        "8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925", // Approval
        "d78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822", // Swap of Uniswap V2
        "e1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c", // Deposit of WETH
    ];
    let topics = events.iter().map(|hex| B256::from_slice(&from_hex(hex)));
    let wallets = addresses.iter().map(Address::into_word);
    (addresses.clone(), topics.chain(wallets).collect())
}

/// Returns a random filter of alloy's type, and the same query in compiled form.
fn query(rng: &mut Rng, addresses: &[Address], topics: &[B256]) -> (Filter, CompiledQuery) {
    let draw = |rng: &mut Rng, known: usize| -> Vec<usize> {
        let count = [0, 1, 1, 1, 3, 20, 150, 1_000][rng.below(8)];
        // Half of the values belong to well-known contracts.
        (0..count)
            .map(|_| if rng.one_in(2) { rng.below(known) } else { rng.below(2_000) })
            .collect()
    };
    let mut filter = Filter::new();
    let mut clauses = Vec::new();
    let drawn: Vec<Address> = draw(rng, 6).into_iter().map(|i| addresses[i]).collect();
    if !drawn.is_empty() {
        clauses.push(drawn.iter().map(|value| positions(value.as_slice())).collect());
        filter = filter.address(drawn);
    }
    for place in 0..rng.below(4) {
        let drawn: Vec<B256> = draw(rng, 4).into_iter().map(|i| topics[i]).collect();
        if !drawn.is_empty() {
            clauses.push(drawn.iter().map(|value| positions(value.as_slice())).collect());
            filter.topics[place] = drawn.into();
        }
    }
    (filter, CompiledQuery::new(clauses))
}

#[test]
fn scans_of_real_headers_are_those_of_alloy() {
    let headers = blooms();
    assert!(headers.len() >= 100, "{}", headers.len());
    // Repeat the blooms to fill tiles of 512.
    let headers: Vec<Bloom> = headers.iter().cycle().take(700).copied().collect();
    let mut rng = Rng::new(41);
    let (addresses, topics) = values(&mut rng);
    let (mut queries, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..150 {
        let (filter, query) = query(&mut rng, &addresses, &topics);
        let indexed = headers.iter().enumerate();
        let matching = indexed.filter(|(_, bloom)| filter.matches_bloom(**bloom));
        expected.push(matching.map(|(i, _)| i).collect::<Vec<_>>());
        queries.push(query);
    }
    let selective = expected.iter().filter(|found| (20..650).contains(&found.len())).count();
    assert!(selective > 40, "{selective}");
    for backend in Backend::available() {
        for (query, expected) in queries.iter().zip(&expected) {
            assert_eq!(
                &candidates_on(backend, query, &headers),
                expected,
                "{backend:?}, {query:?}"
            );
        }
        let mut set = QuerySet::new().with_backend(backend);
        for query in &queries {
            set.insert(query.clone(), 0);
        }
        let mut found = vec![Vec::new(); queries.len()];
        for (block, ids) in set.scan(0, &headers).iter() {
            let block = usize::try_from(block).expect("an index");
            for &id in ids {
                found[id].push(block);
            }
        }
        assert_eq!(found, expected, "{backend:?}");
    }
}
