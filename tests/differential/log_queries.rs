//! Compares queries and logs with the types of `alloy-rpc-types-eth`, on which reth is built.

use alloy_rpc_types_eth::{BlockNumberOrTag, Filter, FilterBlockOption, Log as RpcLog};
use chainsieve::alloy_primitives::{Address, B256, Bloom, Bytes, Log};
use chainsieve::eth::bloom;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, Heads, LogQuery, ResolvedBlocks, Semantics, TopicSet,
};

use testkit::Rng;
use testkit::mutated;

/// Returns one of few addresses, so that queries and logs often match.
fn address(rng: &mut Rng) -> Address {
    Address::repeat_byte(*rng.pick(&[0x00, 0xab, 0xcd]))
}

fn topic(rng: &mut Rng) -> B256 {
    B256::repeat_byte(*rng.pick(&[0x00, 0x1e, 0x2f, 0xab]))
}

/// Returns `hex` as a JSON value: mostly valid, and sometimes in another spelling, `null` or
/// damaged.
fn value(rng: &mut Rng, hex: &str) -> String {
    let digits = &hex[2..];
    match rng.below(60) {
        0 => format!("\"{digits}\""),
        1 => format!("\"0X{digits}\""),
        2 => format!("\"0x{}\"", digits.to_uppercase()),
        3 => format!("\"{}\"", &hex[..hex.len() - 1]),
        4 => format!("\"{hex}00\""),
        5 => format!("\"0x{}\"", digits.replacen(|_| true, "g", 1)),
        6 => "\"\"".to_owned(),
        7 => "\"0x\"".to_owned(),
        8 => "17".to_owned(),
        9 => "{\"a\":1}".to_owned(),
        10 => "true".to_owned(),
        11..=14 => "null".to_owned(),
        _ => format!("\"{hex}\""),
    }
}

/// Returns one value, a list of values, or `null`.
fn values(rng: &mut Rng, mut one: impl FnMut(&mut Rng) -> String) -> String {
    match rng.below(5) {
        0 => "null".to_owned(),
        1 | 2 => one(rng),
        _ => {
            let list: Vec<String> = (0..rng.below(4)).map(|_| one(rng)).collect();
            format!("[{}]", list.join(","))
        }
    }
}

fn block(rng: &mut Rng) -> String {
    let odd = ["\"Latest\"", "\"EARLIEST\"", "\"0x007\"", "\"0x\"", "7", "null", "\"0X1f\""];
    let tags = ["\"latest\"", "\"earliest\"", "\"pending\"", "\"safe\"", "\"finalized\""];
    match rng.below(12) {
        0 => (*rng.pick(&odd)).to_owned(),
        1 => (*rng.pick(&tags)).to_owned(),
        2 => (*rng.pick(&["\"0xffffffffffffffff\"", "\"0x10000000000000000\"", "\"best\""]))
            .to_owned(),
        _ => format!("\"0x{:x}\"", rng.below(40)),
    }
}

fn query_text(rng: &mut Rng) -> String {
    let mut fields = Vec::new();
    if rng.one_in(6) {
        let hash = topic(rng).to_string();
        fields.push(format!("\"blockHash\":{}", value(rng, &hash)));
    }
    for name in ["fromBlock", "toBlock"] {
        if rng.below(4) == 0 || (fields.is_empty() && !rng.one_in(4)) {
            fields.push(format!("\"{name}\":{}", block(rng)));
        }
    }
    if !rng.one_in(4) {
        let list = values(rng, |rng| {
            let address = format!("{:#x}", address(rng));
            value(rng, &address)
        });
        fields.push(format!("\"address\":{list}"));
    }
    if !rng.one_in(6) {
        let most = if rng.one_in(9) { 7 } else { 5 };
        let positions = (0..rng.below(most)).map(|_| {
            values(rng, |rng| {
                let topic = topic(rng).to_string();
                value(rng, &topic)
            })
        });
        let positions: Vec<String> = positions.collect();
        fields.push(format!("\"topics\":[{}]", positions.join(",")));
    }
    if rng.one_in(40) {
        fields.push("\"limit\":10".to_owned());
    }
    if rng.one_in(40) && !fields.is_empty() {
        fields.push(rng.pick(&fields).clone());
    }
    format!("{{{}}}", fields.join(","))
}

fn log(rng: &mut Rng) -> LocatedLog {
    let topics = (0..rng.below(5)).map(|_| topic(rng)).collect();
    LocatedLog {
        log: Log::new(address(rng), topics, Bytes::new()).expect("at most four topics"),
        block_number: u64::try_from(rng.below(40)).expect("small"),
        block_hash: topic(rng),
        block_timestamp: rng.one_in(2).then_some(1_700_000_000),
        transaction_hash: rng.one_in(2).then(|| topic(rng)),
        claimed_transaction_hash: None,
        transaction_index: 3,
        log_index: 17,
        removed: rng.one_in(8),
    }
}

fn tag(block: Option<BlockNumberOrTag>) -> Option<BlockTag> {
    Some(match block? {
        BlockNumberOrTag::Number(number) => BlockTag::Number(number),
        BlockNumberOrTag::Earliest => BlockTag::Earliest,
        BlockNumberOrTag::Latest => BlockTag::Latest,
        BlockNumberOrTag::Safe => BlockTag::Safe,
        BlockNumberOrTag::Finalized => BlockTag::Finalized,
        BlockNumberOrTag::Pending => BlockTag::Pending,
    })
}

/// Checks that both have the same blocks, addresses and topics. `Filter` does not keep trailing
/// positions that match any topic.
fn assert_same(query: &LogQuery, filter: &Filter, text: &str) {
    let blocks = match filter.block_option {
        FilterBlockOption::Range { from_block, to_block } => {
            BlockSelection::Range { from: tag(from_block), to: tag(to_block) }
        }
        FilterBlockOption::AtBlockHash(hash) => BlockSelection::AtHash(hash),
    };
    assert_eq!(*query.blocks(), blocks, "{text}");
    let mut addresses: Vec<Address> = filter.address.iter().copied().collect();
    addresses.sort_unstable();
    assert_eq!(query.address_set(), addresses, "{text}");
    for (position, topics) in filter.topics.iter().enumerate() {
        let topics: TopicSet = topics.iter().copied().collect();
        let any = TopicSet::any();
        let ours = query.topics().get(position).unwrap_or(&any);
        assert_eq!(*ours, topics, "position {position} of {text}");
    }
}

fn rpc_log(log: &LocatedLog) -> RpcLog {
    RpcLog {
        inner: log.log.clone(),
        block_hash: Some(log.block_hash),
        block_number: Some(log.block_number),
        block_timestamp: log.block_timestamp,
        transaction_hash: log.transaction_hash,
        transaction_index: Some(log.transaction_index),
        log_index: Some(log.log_index),
        removed: log.removed,
    }
}

/// Returns the blocks of a query by numbers or by hash. Returns `None` for a query with tags, which
/// alloy can't judge without a chain.
fn without_tags(query: &LogQuery) -> Option<ResolvedBlocks> {
    let numbers = |block: Option<BlockTag>| matches!(block, Some(BlockTag::Number(_)));
    match *query.blocks() {
        BlockSelection::Range { from, to } if !(numbers(from) && numbers(to)) => None,
        _ => query.resolve(&Heads::latest(u64::MAX)).ok(),
    }
}

#[derive(Debug, Default)]
struct Counts {
    read: usize,
    refused: usize,
    wanted: usize,
    unwanted: usize,
    in_range: usize,
    by_arity: usize,
    bloom_no: usize,
    bloom_maybe: usize,
}

fn compare(rng: &mut Rng, text: &str, counts: &mut Counts) {
    let ours = LogQuery::from_json(text, Semantics::Alloy);
    let theirs = serde_json::from_str::<Filter>(text);
    let (query, filter) = match (ours, theirs) {
        (Ok(query), Ok(filter)) => (query, filter),
        (Err(_), Err(_)) => {
            counts.refused += 1;
            return;
        }
        (ours, theirs) => panic!("{ours:?} and {theirs:?} of {text}"),
    };
    counts.read += 1;
    assert_same(&query, &filter, text);
    let written = query.to_json();
    assert_eq!(LogQuery::from_json(&written, Semantics::Alloy), Ok(query.clone()), "{text}");
    let by_alloy: Filter = serde_json::from_str(&written).expect("the canonical form");
    assert_eq!(by_alloy, filter, "{text}");

    let compiled = query.compile();
    for _ in 0..20 {
        let log = log(rng);
        let wanted = query.matches(&log.log, Semantics::Alloy);
        assert_eq!(wanted, filter.matches(&log.log), "{text} on {log:?}");
        if let Some(blocks) = without_tags(&query) {
            let here = blocks.contains(log.block_number, &log.block_hash);
            assert_eq!(wanted && here, filter.rpc_matches(&rpc_log(&log)), "{text} on {log:?}");
            counts.in_range += usize::from(wanted && here);
        }
        let by_geth = query.matches(&log.log, Semantics::Geth);
        assert!(wanted || !by_geth, "geth matches a log that alloy does not");
        assert_eq!(wanted != by_geth, query.depends_on_semantics(&log.log));
        counts.by_arity += usize::from(wanted != by_geth);
        *(if wanted { &mut counts.wanted } else { &mut counts.unwanted }) += 1;

        let mut bits = [0; bloom::BYTES];
        bloom::accrue_log(&mut bits, &log.log);
        let maybe = compiled.answer(&bits).is_candidate();
        assert_eq!(maybe, filter.matches_bloom(Bloom::new(bits)), "{text} on the bloom of {log:?}");
        assert!(maybe || !wanted, "{text} loses {log:?}");
        *(if maybe { &mut counts.bloom_maybe } else { &mut counts.bloom_no }) += 1;
    }
}

#[test]
fn alloy_reads_and_matches_the_same() {
    let mut rng = Rng::new(7_708);
    let mut counts = Counts::default();
    for round in 0..30_000 {
        let mut text = query_text(&mut rng);
        if round % 3 == 0 {
            let damaged = mutated(&mut rng, text.as_bytes());
            text = String::from_utf8_lossy(&damaged).into_owned();
        }
        compare(&mut rng, &text, &mut counts);
    }
    let Counts { read, refused, wanted, unwanted, in_range, by_arity, bloom_no, bloom_maybe } =
        counts;
    println!("{counts:?}");
    assert!(read > 5_000 && refused > 5_000, "{counts:?}");
    assert!(wanted > 20_000 && unwanted > 20_000, "{counts:?}");
    assert!(in_range > 2_000 && by_arity > 1_000, "{counts:?}");
    assert!(bloom_no > 20_000 && bloom_maybe > 20_000, "{counts:?}");
}

/// Returns the text of a file under `CHAINSIEVE_CORPUS/ethereum`. Without a corpus, prints a line
/// and returns `None`.
fn corpus_file(name: &str) -> Option<String> {
    let (root, _) = testkit::corpus::index("ethereum")?;
    let path = root.join(name);
    Some(std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// Reads every log of three blocks, as nodes returned them.
#[test]
fn real_logs_are_read_as_alloy_reads_them() {
    let (mut logs, mut with_time) = (0, 0);
    for number in [18_090_206, 19_433_902, 21_925_176] {
        let Some(text) = corpus_file(&format!("mainnet/blocks/block_{number}.receipts.json"))
        else {
            return;
        };
        let receipts: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
        for receipt in receipts {
            let text = receipt["logs"].to_string();
            let theirs: Vec<RpcLog> = serde_json::from_str(&text).expect("logs");
            let ours = LocatedLog::list_from_json(&text).expect("logs");
            assert_eq!(ours.iter().map(rpc_log).collect::<Vec<_>>(), theirs);
            for log in &ours {
                assert_eq!(log.block_number, number);
                assert_eq!(LocatedLog::from_json(&log.to_json()).as_ref(), Ok(log));
                with_time += usize::from(log.block_timestamp.is_some());
            }
            logs += ours.len();
        }
    }
    println!("{logs} logs, {with_time} with the time of their block");
    assert!(logs > 1_000, "{logs} logs");
}

/// Reads the filters that geth's own test tool recorded on mainnet.
///
/// The tool writes block numbers as JSON numbers, which no node accepts, and a field `resultHash`,
/// which alloy rejects. With the numbers in hex and without the field, both read each filter as the
/// same query.
#[test]
fn recorded_queries_are_read() {
    let Some(text) = corpus_file("queries/filter_queries_mainnet.json") else { return };
    let groups: Vec<Vec<serde_json::Value>> = serde_json::from_str(&text).expect("JSON");
    let (mut total, mut ending_in_any, mut any_address) = (0, 0, 0);
    for mut object in groups.into_iter().flatten() {
        let error = LogQuery::from_json(&object.to_string(), Semantics::Geth).expect_err("numbers");
        assert!(error.to_string().contains("expected a block number in hex"), "{error}");
        let mut ends = [0; 2];
        for (end, name) in ends.iter_mut().zip(["fromBlock", "toBlock"]) {
            *end = object[name].as_u64().expect("a number");
            object[name] = format!("{end:#x}").into();
        }
        let query = LogQuery::from_json(&object.to_string(), Semantics::Geth).expect("a query");
        assert!(LogQuery::from_json(&object.to_string(), Semantics::Alloy).is_err());
        object.as_object_mut().expect("an object").remove("resultHash");
        let text = object.to_string();
        assert_eq!(LogQuery::from_json(&text, Semantics::Alloy), Ok(query.clone()));
        assert_same(&query, &serde_json::from_str(&text).expect("a filter"), &text);
        let range = ResolvedBlocks::Range { first: ends[0], last: ends[1] };
        assert_eq!(query.resolve(&Heads::latest(30_000_000)), Ok(range));
        // The query keeps every position of the file, trailing positions that match any topic
        // included.
        let positions = object["topics"].as_array().map_or(0, Vec::len);
        assert_eq!(query.topics().len(), positions, "{text}");
        total += 1;
        ending_in_any += usize::from(query.ends_in_any());
        any_address += usize::from(query.address_set().is_empty());
    }
    println!("{total} queries, {ending_in_any} end in any, {any_address} take any address");
    assert_eq!(total, 1_000);
    assert!(ending_in_any > 50 && any_address > 100);
}
