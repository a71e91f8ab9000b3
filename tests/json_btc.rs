//! JSON of the data types of `chainsieve::btc`: literal texts, since users store them.

use std::fmt::Debug;

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::bip158::FilterHash;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::transaction::Version;
use chainsieve::bitcoin::{
    Amount, BlockHash, FeeRate, Network, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut,
    Txid, Witness,
};
use chainsieve::btc::bip37::session::{FilterPolicy, MatchStats, OmissionEvidence, RefreshReason};
use chainsieve::btc::bip37::{
    BloomFilter, FilterError, HeaderLink, Inclusion, MatchReason, TxMatch, UpdateMode,
};
use chainsieve::btc::bip158::audit::{Basis, FilterEvidence, InvalidFilter, Refutation, Verdict};
use chainsieve::btc::bip158::scan::{
    Candidate, CandidateReason, Commitment, NoAnswer, ScanCursor, Statistics,
};
use chainsieve::btc::bip158::{GcsError, GcsParams};
use chainsieve::btc::client;
use chainsieve::btc::client::{
    Birthday, BroadcastNews, Finding, Graded, Hit, Item, News, Owner, Progress, Update, UpdateId,
    Wallet,
};
use chainsieve::btc::headers::{BlockAt, ChainEvent, TrustedStart};
use chainsieve::btc::merkle_tree::MerklePath;
use chainsieve::btc::peer::{Grade, PeerId};
use chainsieve::btc::wallet::{
    History, Label, RelevantTransaction, TxPosition, WatchItem, WatchedOutput,
};
use serde_json::{Value, from_value, json, to_value};

trait Data: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug {}

impl<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug> Data for T {}

/// Checks that a value is written as this JSON, and that the JSON is read as this value.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "literals are shorter")]
fn check<T: Data>(value: T, json: Value) {
    assert_eq!(to_value(&value).expect("JSON"), json);
    assert_eq!(from_value::<T>(json).expect("the value"), value);
}

/// Checks that this JSON is read and written again. For types that only the library creates.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "literals are shorter")]
fn check_text<T: Data>(json: Value) {
    let value: T = from_value(json.clone()).expect("the value");
    assert_eq!(to_value(&value).expect("JSON"), json);
}

const HASH: &str = "0707070707070707070707070707070707070707070707070707070707070707";
const GENESIS_HEADER: &str = "0100000000000000000000000000000000000000000000000000000000000000\
    000000003ba3edfd7a7b12b27ac72c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c";
const WORK: &str = "0000000000000000000000000000000000000000000000000000000100010001";
const TRANSACTION: &str = "0200000001070707070707070707070707070707070707070707070707070707070707\
    07070100000000ffffffff010500000000000000015100000000";

fn at() -> BlockAt {
    BlockAt { height: 5, hash: BlockHash::from_byte_array([7; 32]) }
}

fn at_json() -> Value {
    json!({"height": 5, "hash": HASH})
}

fn txid() -> Txid {
    Txid::from_byte_array([7; 32])
}

fn outpoint() -> OutPoint {
    OutPoint { txid: txid(), vout: 1 }
}

fn script() -> ScriptBuf {
    ScriptBuf::from_bytes(vec![0x51])
}

fn transaction() -> Transaction {
    let output = vec![TxOut { value: Amount::from_sat(5), script_pubkey: script() }];
    let input = TxIn {
        previous_output: outpoint(),
        script_sig: ScriptBuf::new(),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let input = vec![input];
    Transaction { version: Version::TWO, lock_time: LockTime::ZERO, input, output }
}

#[test]
fn updates() {
    let owner = Owner { item: 1, path: None, index: Some(7), script: Some(script()) };
    let hit = Hit {
        txid: txid(),
        transaction: transaction(),
        place: Some(TxPosition { block: at(), index: 3 }),
        header: None,
        received: vec![client::OwnedOutput {
            vout: 0,
            value: Amount::from_sat(5),
            owner: owner.clone(),
        }],
        spent: vec![client::OwnedSpend {
            vin: 2,
            outpoint: outpoint(),
            owner: Some(owner),
            certain: true,
        }],
        evidence: client::InclusionEvidence::MerkleProof,
        why: client::HitReason::FilteredBlock,
        peer: Some("127.0.0.1:8333".into()),
    };
    let owner = json!({"item": 1, "path": null, "index": 7, "script": "51"});
    let mut hit_json = json!({
        "txid": HASH,
        "transaction": TRANSACTION,
        "place": {"block": at_json(), "index": 3},
        "header": null,
        "received": [{"vout": 0, "value": 5, "owner": owner}],
        "spent": [{"vin": 2, "outpoint": format!("{HASH}:1"), "owner": owner, "certain": true}],
        "evidence": "merkle_proof",
        "why": "filtered_block",
        "peer": "127.0.0.1:8333",
    });
    check(hit.clone(), hit_json.clone());
    let mut unconfirmed = hit_json.clone();
    unconfirmed["place"] = Value::Null;
    check(Hit { place: None, ..hit.clone() }, unconfirmed);
    hit_json["event"] = "hit".into();
    let update = Update {
        id: UpdateId(9),
        wallet: Some("savings".into()),
        again: false,
        news: News::Hit(Box::new(hit.clone())),
    };
    let update_json = json!({"id": 9, "wallet": "savings", "again": false, "news": hit_json});
    check(update, update_json);
    hit_json["event"] = "withdrawn".into();
    check(News::Withdrawn(Box::new(hit)), hit_json);
    let grade = Grade::Peers(3);
    check(
        News::Graded(Graded { from: 1, to: 5, grade }),
        json!({"event": "graded", "from": 1, "to": 5, "grade": "peers", "peers": 3}),
    );
    check(News::Reopened { from: 1, to: 5 }, json!({"event": "reopened", "from": 1, "to": 5}));
    let reorganised = News::Reorganized { fork: at(), disconnected: vec![at()], withdrawn: 1 };
    check(
        reorganised,
        json!({
            "event": "reorganized", "fork": at_json(), "disconnected": [at_json()], "withdrawn": 1
        }),
    );
    let progress =
        json!({"tip": at_json(), "work": WORK, "end": 5, "settled_to": null, "watched": 2});
    check_text::<Progress>(progress.clone());
    let mut caught_up = progress;
    caught_up["event"] = "caught_up".into();
    check_text::<News>(caught_up);
}

#[test]
fn broadcasts() {
    let peer = || String::from("a");
    let fee_rate = FeeRate::from_sat_per_kwu(250);
    let forms = [
        (BroadcastNews::Offered(peer()), json!({"what": "offered", "peer": "a"})),
        (BroadcastNews::Requested(peer()), json!({"what": "requested", "peer": "a"})),
        (
            BroadcastNews::FeeTooLow { peer: peer(), fee_rate },
            json!({"what": "fee_too_low", "peer": "a", "fee_rate": 250}),
        ),
        (BroadcastNews::Seen(peer()), json!({"what": "seen", "peer": "a"})),
        (
            BroadcastNews::Rejected { peer: peer(), reason: "dust".into() },
            json!({"what": "rejected", "peer": "a", "reason": "dust"}),
        ),
        (BroadcastNews::Mined(at()), json!({"what": "mined", "at": at_json()})),
        (BroadcastNews::Unmined, json!({"what": "unmined"})),
    ];
    for (news, json) in forms {
        check(news.clone(), json.clone());
        check(
            News::Broadcast { txid: txid(), news },
            json!({"event": "broadcast", "txid": HASH, "news": json}),
        );
    }
}

#[test]
fn findings_of_the_client() {
    let hash = FilterHash::from_byte_array([7; 32]);
    let services = ServiceFlags::COMPACT_FILTERS | ServiceFlags::NETWORK;
    let forms = [
        (
            Finding::Disputed { at: at(), claims: vec![(hash, vec!["a".into()])] },
            json!({
                "kind": "disputed", "at": at_json(),
                "claims": [{"filter_hash": HASH, "peers": ["a"]}]
            }),
        ),
        (Finding::Undecided(at()), json!({"kind": "undecided", "at": at_json()})),
        (Finding::Suspicious(at()), json!({"kind": "suspicious", "at": at_json()})),
        (Finding::BlockUnavailable(at()), json!({"kind": "block_unavailable", "at": at_json()})),
        (Finding::FirstUnknown(5), json!({"kind": "first_unknown", "height": 5})),
        (Finding::NoneSeen(at()), json!({"kind": "none_seen", "at": at_json()})),
        (
            Finding::Refused { at: at(), txid: txid() },
            json!({"kind": "refused", "at": at_json(), "txid": HASH}),
        ),
        (Finding::UnconfirmedLimit(5), json!({"kind": "unconfirmed_limit", "limit": 5})),
        (Finding::CoinLimit(5), json!({"kind": "coin_limit", "count": 5})),
        (
            Finding::NoFilter(FilterError::ZeroBytes { elements: 1, fpr: 0.5 }),
            json!({"kind": "no_filter", "error": "zero_bytes", "elements": 1, "fpr": 0.5}),
        ),
        (
            Finding::FilterRefreshed(RefreshReason::Filled { fpr: 0.5, loaded: 0.25 }),
            json!({"kind": "filter_refreshed", "reason": "filled", "fpr": 0.5, "loaded": 0.25}),
        ),
        (
            Finding::LacksService { peer: "a".into(), services },
            json!({"kind": "lacks_service", "peer": "a", "services": 65}),
        ),
        (Finding::HeadersCut(5), json!({"kind": "headers_cut", "bytes": 5})),
        (Finding::WalletRefused("".into()), json!({"kind": "wallet_refused", "wallet": ""})),
        (
            Finding::StartedOver(client::RestoreError::Damaged(5)),
            json!({"kind": "started_over", "error": "damaged", "length": 5}),
        ),
        (Finding::ClockBehind, json!({"kind": "clock_behind"})),
        (Finding::StaleTip { seconds: 5 }, json!({"kind": "stale_tip", "seconds": 5})),
    ];
    for (finding, mut json) in forms {
        assert_eq!(json["kind"], finding.kind());
        check(finding.clone(), json.clone());
        json["event"] = "finding".into();
        check(News::Finding(finding), json);
    }
    check_text::<Finding>(json!({
        "kind": "false_filter",
        "peer": "a",
        "at": at_json(),
        "filter_hash": HASH,
        "proof": format!("0100{HASH}0102"),
    }));
    check_text::<Finding>(json!({
        "kind": "privacy", "own": 5, "others": 12.5, "parameters_changed": true,
        "keys_inserted": false
    }));
    check_text::<Finding>(json!({
        "kind": "item_refused", "wallet": "a",
        "error": {"item": 0, "cause": {"kind": "descriptor", "error": "malformed", "reason": "?"}}
    }));
    check_text::<Finding>(json!({
        "kind": "started_over", "error": "filters", "filters": "first", "kept": 1, "wanted": 2
    }));
}

#[test]
fn wallets() {
    let key = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
    let items = vec![
        Item::Script(script()),
        Item::Key(key.parse().unwrap()),
        Item::Coin { outpoint: outpoint(), script: None },
        Item::Descriptor("wpkh(…)".into(), 0..=19),
    ];
    let wallet = Wallet { history: History::Unknown, ..Wallet::new(Birthday::Height(5), items) };
    check(
        wallet,
        json!({
            "birthday": {"by": "height", "height": 5},
            "history": "unknown",
            "items": [
                {"item": "script", "script": "51"},
                {"item": "key", "key": key},
                {"item": "coin", "outpoint": format!("{HASH}:1"), "script": null},
                {"item": "descriptor", "descriptor": "wpkh(…)", "range": {"start": 0, "end": 19}},
            ],
            "gap": 20,
        }),
    );
    check(Birthday::Time(5), json!({"by": "time", "seconds": 5}));
    check(
        WatchItem::Script { script: script(), label: Some(Label { keychain: 1, index: 2 }) },
        json!({"kind": "script", "script": "51", "label": {"keychain": 1, "index": 2}}),
    );
    check_text::<WatchedOutput>(json!({
        "script": 0, "value": 5, "created": 1, "spent": null, "is_given": false
    }));
    check_text::<RelevantTransaction>(json!({
        "transaction": TRANSACTION,
        "txid": HASH,
        "place": {"block": at_json(), "index": 3},
        "relevance": {
            "received": [{"vout": 0, "value": 5, "script": 0, "label": null}],
            "spent": [{"vin": 0, "outpoint": format!("{HASH}:1"), "script": null, "certain": false}],
        },
    }));
}

#[test]
fn headers_and_grades() {
    let trusted_start = TrustedStart::genesis(Network::Bitcoin);
    let header = trusted_start.period_first;
    check(
        trusted_start,
        json!({
            "height": 0, "headers": [GENESIS_HEADER], "period_first": GENESIS_HEADER, "work": WORK
        }),
    );
    check(
        ChainEvent::Connected { at: at(), header },
        json!({"kind": "connected", "at": at_json(), "header": GENESIS_HEADER}),
    );
    check(
        MerklePath { index: 1, siblings: vec![header.merkle_root] },
        json!({"index": 1, "siblings": [header.merkle_root.to_string()]}),
    );
    check(PeerId(5), json!(5));
    check(Grade::OnePeer, json!({"grade": "one_peer"}));
    check(Grade::Peers(3), json!({"grade": "peers", "peers": 3}));
}

#[test]
fn bloom_filters() {
    let policy = json!({
        "tweak": 5, "capacity": 0, "spare": 100, "fpr": 1e-5, "update": "all",
        "insert_keys": false, "insert_null_outpoint": false, "use_filteradd": false,
    });
    check(FilterPolicy::new(5), policy);
    check(UpdateMode::P2PubkeyOnly, json!("p2pubkey_only"));
    check_text::<MatchStats>(json!({
        "transactions": 5, "relevant": 1, "false_positives": 2, "loaded_fpr": 0.5
    }));
    // The first test case of Core's `bloom_tests.cpp`, as a payload of `filterload`.
    check_text::<BloomFilter>(json!("03614e9b050000000000000001"));
    let error = from_value::<BloomFilter>(json!("03614e9b05")).unwrap_err().to_string();
    assert!(error.contains("ends early"), "{error}");
    let reasons = vec![
        MatchReason::Txid,
        MatchReason::Output { vout: 1, push: 0, inserted: true },
        MatchReason::Spent { vin: 2 },
    ];
    check(
        TxMatch { index: 3, txid: txid(), reasons },
        json!({
            "index": 3, "txid": HASH,
            "reasons": [
                {"kind": "txid"},
                {"kind": "output", "vout": 1, "push": 0, "inserted": true},
                {"kind": "spent", "vin": 2},
            ]
        }),
    );
    check(
        HeaderLink::InChain { height: 5, confirmations: 1 },
        json!({"link": "in_chain", "height": 5, "confirmations": 1}),
    );
    check_text::<Inclusion>(json!({"index": 3, "txid": HASH, "delivered": true}));
    let root = &GENESIS_HEADER[72..136];
    check_text::<OmissionEvidence>(json!({
        "filter": "03614e9b050000000000000001",
        "merkle_block": format!("{GENESIS_HEADER}0100000001{root}0101"),
        "omitted": {"transaction": TRANSACTION, "path": {"index": 0, "siblings": []}},
    }));
}

#[test]
fn compact_filters() {
    check(
        ScanCursor { next_height: 5, previous: Some(at().hash) },
        json!({"next_height": 5, "previous": HASH}),
    );
    check(
        Statistics::default(),
        json!({
            "filters": 0, "skipped": 0, "unverified": 0, "bytes": 0, "candidates": 0,
            "repeated": 0, "no_answers": 0, "questions": 0
        }),
    );
    let hash = FilterHash::from_byte_array([7; 32]);
    check(Commitment::Hash(hash), json!({"by": "hash", "filter_hash": HASH}));
    check(NoAnswer::NotCommitted(hash), json!({"no_answer": "not_committed", "filter_hash": HASH}));
    check_text::<Candidate>(json!({
        "height": 5, "block_hash": HASH,
        "reason": {"kind": "scripts", "wallet": 0, "indices": [1, 2]}
    }));
    check(
        Candidate {
            height: 5,
            block_hash: at().hash,
            reason: CandidateReason::NoAnswer(NoAnswer::Unreadable(GcsError::CountTooLarge(9))),
        },
        json!({
            "height": 5, "block_hash": HASH,
            "reason": {
                "kind": "no_answer", "no_answer": "unreadable", "error": "count_too_large",
                "count": 9
            }
        }),
    );
    check(GcsParams::BASIC, json!({"p": 19, "m": 784_931}));
    let error = from_value::<GcsParams>(json!({"p": 19, "m": 0})).unwrap_err().to_string();
    assert_eq!(error, "M is 0, the least is 1");
}

#[test]
fn verdicts() {
    check(Verdict::Valid(Basis::Trusted), json!({"verdict": "valid", "basis": "trusted"}));
    let block_hash = at().hash;
    let proof = InvalidFilter { block_hash, filter: vec![2], evidence: FilterEvidence::Malformed };
    // The format of proofs: version, kind, block hash, and the filter with its length.
    let proof_json = format!("0100{HASH}0102");
    check(proof.clone(), json!(proof_json));
    check(
        Verdict::Invalid(Refutation::Proof(Box::new(proof))),
        json!({"verdict": "invalid", "refutation": "proof", "proof": proof_json}),
    );
    check(
        Verdict::Invalid(Refutation::TrustedMissing(outpoint())),
        json!({
            "verdict": "invalid", "refutation": "trusted_missing", "outpoint": format!("{HASH}:1")
        }),
    );
    check_text::<Verdict>(json!({
        "verdict": "suspicious",
        "inputs": [{"transaction": 1, "vin": 2}],
        "unknown": {"inputs": 3, "guessed": 1, "elements": 0},
    }));
    check_text::<Verdict>(
        json!({"verdict": "undecidable", "inputs": 3, "guessed": 1, "elements": 0}),
    );
}
