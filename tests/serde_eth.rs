//! The JSON of Ethereum's data types: each literal is read, and written again without a change.
#![cfg(all(feature = "eth", feature = "std"))]

use std::fmt::Debug;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::bloom::FillHistogram;
use chainsieve::eth::bloom::{BloomAnswer, positions};
use chainsieve::eth::chain_profile::{ChainProfile, ProfileRange, ReceiptsScope};
use chainsieve::eth::files::FileFormat;
use chainsieve::eth::follow::{Cursor, Failure, News, UpdateId};
use chainsieve::eth::forecast::Forecast;
use chainsieve::eth::header::{HeaderBuf, HeaderLayout, Linked};
use chainsieve::eth::index::{QueryStats, SegmentFile};
use chainsieve::eth::log::Difference;
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, CompiledQuery, Heads, LogQuery, QueryLimits, ResolvedBlocks, TopicSet,
};
use chainsieve::eth::receipts::BloomAgreement;
use chainsieve::eth::scan::QuerySet;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Reads a value and checks that the same JSON is written for it.
fn same<T: Serialize + DeserializeOwned + PartialEq + Debug>(json: &Value) -> T {
    let value: T = serde_json::from_value(json.clone()).expect("readable JSON");
    assert_eq!(serde_json::to_value(&value).expect("JSON"), *json);
    // Text and trees are read by different code.
    let text = serde_json::to_string(&value).expect("JSON");
    assert_eq!(serde_json::from_str::<T>(&text).expect("readable JSON"), value);
    value
}

fn refused<T: DeserializeOwned + Debug>(json: Value) -> String {
    serde_json::from_value::<T>(json).expect_err("invalid JSON").to_string()
}

const HASH: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";
const OTHER: &str = "0x2222222222222222222222222222222222222222222222222222222222222222";

fn hash() -> B256 {
    HASH.parse().expect("a hash")
}

fn log(removed: bool) -> Value {
    json!({
        "address": "0x3333333333333333333333333333333333333333",
        "topics": [OTHER],
        "data": "0x01",
        "blockNumber": "0x7",
        "transactionIndex": "0x1",
        "blockHash": HASH,
        "logIndex": "0x4",
        "removed": removed,
    })
}

#[test]
fn profiles() {
    let profile: ChainProfile = same(&json!({
        "name": "ours",
        "ranges": [
            {"first": 0, "bloom": "superset", "receipts": "not_every_log", "source": "our node"},
            {"first": 9, "bloom": "exact", "receipts": "every_log", "source": "a fork"},
        ],
        "statuses_since": null,
    }));
    assert_eq!(profile.at(9).receipts, ReceiptsScope::EveryLog);
    for known in ChainProfile::known() {
        let json = serde_json::to_value(&known).unwrap();
        assert_eq!(same::<ChainProfile>(&json), known);
        let _: ProfileRange = same(&json["ranges"][0]);
    }
    let none = json!({"name": "x", "ranges": []});
    assert_eq!(refused::<ChainProfile>(none), "the first range must begin at block 0");
    let stretch = json!({"first": 0, "bloom": "exact", "receipts": "every_log", "source": "x"});
    let twice = json!({"name": "x", "ranges": [stretch, stretch]});
    let error = "the range from block 0 on is not in ascending order";
    assert_eq!(refused::<ChainProfile>(twice), error);
}

#[test]
fn updates_and_cursors() {
    let block = json!({"number": 7, "hash": HASH});
    let started = json!({
        "update": "started", "start": 5, "from": 6, "to": null, "resumed": block, "anchors": [block],
        "index_to": 6,
    });
    assert!(matches!(same(&started), News::Started(started) if started.from == 6));
    let anchored = json!({"update": "anchored", "number": 7, "hash": HASH});
    assert!(matches!(same(&anchored), News::Anchored(anchor) if anchor.hash == hash()));
    let removed = json!({
        "update": "removed", "ancestor": null, "blocks": 1, "logs": [log(true)], "last": null,
        "finalized": null,
    });
    assert!(matches!(same(&removed), News::Removed(removed) if removed.logs[0].removed));
    let blocks = json!({
        "update": "blocks", "last": block, "blocks": 2, "logs": [log(false)], "every_log": true,
        "finalized": block,
    });
    assert!(matches!(same(&blocks), News::Blocks(blocks) if blocks.logs.len() == 1));
    assert_eq!(same::<UpdateId>(&json!(3)), UpdateId(3));
    let failure: Failure = same(&json!({"transient": true, "reason": "no route"}));
    assert_eq!(failure, Failure::of_connection("no route"));

    let stored = json!({
        "version": 2,
        "subject": {"chain_id": 1, "query": "{}", "semantics": "geth", "start": 5, "from": 6},
        "let_go": false,
        "blocks": [{"number": 7, "hash": HASH, "unsure": true, "logs": [log(false)]}],
        "reorg": {"ancestor": null, "removed": []},
        "anchored": block,
    });
    let cursor: Cursor = same(&stored);
    assert_eq!(cursor.first(), 6);
    // The same text, whichever way it is read and written.
    assert_eq!(cursor.to_json(), serde_json::to_string(&cursor).unwrap());
    assert_eq!(Cursor::from_json(&stored.to_string()), Ok(cursor));
    let mut later = stored.clone();
    later["version"] = json!(3);
    assert!(refused::<Cursor>(later).contains("format version 3"));
    // In a cursor of version 1, each hash is a claim.
    let mut earlier = stored.clone();
    earlier["version"] = json!(1);
    earlier["blocks"][0]["logs"][0]["transactionHash"] = json!(OTHER);
    let earlier: Cursor = serde_json::from_value(earlier).expect("a cursor");
    let mut with_claims = stored.clone();
    with_claims["blocks"][0]["logs"][0]["claimedTransactionHash"] = json!(OTHER);
    assert_eq!(earlier, same(&with_claims));
    let mut other = stored;
    other["blocks"][0]["number"] = json!(8);
    assert_eq!(refused::<Cursor>(other), "block 8: a log of another block");
}

#[test]
fn queries() {
    let by_numbers: BlockSelection = same(&json!({"fromBlock": "0x7", "toBlock": "latest"}));
    assert_eq!(by_numbers, *LogQuery::new().from_block(7).to_block(BlockTag::Latest).blocks());
    let by_hash: BlockSelection = same(&json!({"blockHash": HASH}));
    assert_eq!(by_hash, BlockSelection::AtHash(hash()));
    assert_eq!(same::<BlockSelection>(&json!({})), BlockSelection::default());
    let both = json!({"blockHash": HASH, "toBlock": "0x7"});
    assert_eq!(refused::<BlockSelection>(both), "blockHash excludes fromBlock and toBlock");

    let range: ResolvedBlocks = same(&json!({"by": "range", "first": 3, "last": 9}));
    assert_eq!(range, ResolvedBlocks::Range { first: 3, last: 9 });
    let one: ResolvedBlocks = same(&json!({"by": "hash", "hash": HASH}));
    assert_eq!(one, ResolvedBlocks::AtHash(hash()));

    let heads: Heads = same(&json!({"earliest": 0, "latest": 9, "safe": null, "finalized": null}));
    assert_eq!(heads, Heads::latest(9));
    let limits: QueryLimits = same(&json!({
        "addresses": 1000, "topics_per_position": 1000, "blocks": null,
    }));
    assert_eq!(limits, QueryLimits::geth());
    let topics: TopicSet = same(&json!([HASH, OTHER]));
    assert!(topics.admits(&hash()) && !topics.admits(&B256::ZERO));
    let compiled: CompiledQuery = same(&json!([[[1, 2, 3]], [[4, 5, 6], [7, 8, 2047]]]));
    assert_eq!(compiled.clauses()[1][1], [7, 8, 2047]);
}

#[test]
fn difference_of_two_answers() {
    let logs = [serde_json::from_value(log(false)).unwrap()];
    let difference = serde_json::to_value(Difference::new(&logs, &[])).unwrap();
    assert_eq!(difference, json!({"only_first": [log(false)], "only_second": []}));
}

#[test]
fn headers_and_filters() {
    // An empty list is not a header.
    assert!(!refused::<HeaderBuf>(json!("0xc0")).is_empty());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/ethereum/blocks");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in files.filter(|file| file.path().extension().is_some_and(|ext| ext == "json")) {
        let text = std::fs::read_to_string(file.path()).unwrap();
        let block: Value = serde_json::from_str(&text).unwrap();
        let Some(rlp) = block["header"].as_str() else { continue };
        let rlp = json!(format!("0x{}", rlp.trim_start_matches("0x")));
        let header: HeaderBuf = same(&rlp);
        assert_eq!(HeaderBuf::from_rlp(header.rlp().to_vec()).unwrap(), header);
    }
    assert_eq!(same::<HeaderLayout>(&json!("cancun")), HeaderLayout::Cancun);
    assert_eq!(same::<Linked>(&json!({"linked": "extended"})), Linked::Extended);
    let linked: Linked = same(&json!({"linked": "reorganised", "removed": [HASH]}));
    assert_eq!(linked, Linked::Reorganised { removed: vec![hash()] });
    assert_eq!(same::<BloomAnswer>(&json!("no_information")), BloomAnswer::NoInformation);
    assert_eq!(same::<FileFormat>(&json!("rlp")), FileFormat::Rlp);
    for format in [FileFormat::Rlp, FileFormat::Json, FileFormat::Hex, FileFormat::Era] {
        assert_eq!(serde_json::to_value(format).unwrap(), format.to_string());
    }
    let superset: BloomAgreement = same(&json!({"agreement": "superset", "extra_bits": 2}));
    assert_eq!(superset, BloomAgreement::Superset { extra_bits: 2 });

    let mut counts = vec![0; 2049];
    counts[3] = 5;
    let fills: FillHistogram = same(&json!(counts));
    assert_eq!((fills.filters(), fills.empty()), (5, 0));
    counts.pop();
    assert_eq!(
        refused::<FillHistogram>(json!(counts)),
        "a histogram of 2048 counts, expected 2049"
    );
}

#[test]
fn statistics() {
    let stats: QueryStats = same(&json!({
        "sections": 4, "skipped_sections": 1, "rows": 6, "bytes": 100, "unsealed_blocks": 3,
    }));
    assert_eq!(stats.rows, 6);
    let file: SegmentFile = same(&json!({
        "name": "x", "first": 0, "last": 8191, "sections": 1, "bytes": 2_000_000,
    }));
    assert_eq!(file.last, 8191);
}

/// Results of computations are written, but not read.
#[test]
fn results() {
    let value = positions(&[1; 20]);
    let mut blooms = [[0; 256]; 3];
    chainsieve::eth::bloom::accrue(&mut blooms[1], &value);
    let mut set = QuerySet::new();
    assert_eq!(set.insert(CompiledQuery::new(vec![vec![value]]), 0), 0);
    let hits = serde_json::to_value(set.scan(10, &blooms)).unwrap();
    assert_eq!(hits, json!([{"block": 11, "queries": [0]}]));

    let forecast = Forecast::new(CompiledQuery::new(vec![vec![value]]));
    let forecast = serde_json::to_value(&forecast).unwrap();
    assert_eq!((&forecast["blocks"], &forecast["candidates"]), (&json!(0), &json!(0)));
    assert_eq!(forecast["clauses"][0]["candidates"], json!(0));
    assert_eq!(forecast["clauses"][0]["values"], json!([0.0]));
}
