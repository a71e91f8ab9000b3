//! Requests and answers that execution-apis publishes: `>>` precedes a request, `<<` an answer.

use alloy_primitives::B256;
use bitcoin::hashes::{Hash as _, HashEngine as _, sha1};
use chainsieve::eth::header::HeaderView;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::Semantics;
use chainsieve::eth::receipts::{BlockReceipts, ReceiptsError};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::audits::{Audits, right_and_one_short};
use crate::readings::{BOTH, Reading};
use testkit::eth::audit_runs::Block;
use testkit::eth::log_chains::{Body, Chain, Corpus};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request<'a> {
    #[serde(rename = "jsonrpc")]
    _version: &'a str,
    #[serde(rename = "id")]
    _id: u64,
    method: &'a str,
    #[serde(borrow)]
    params: [&'a RawValue; 1],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer<'a> {
    #[serde(rename = "jsonrpc")]
    _version: &'a str,
    #[serde(rename = "id")]
    _id: u64,
    /// `None` if the result is null, and if there is an error.
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RpcError {
    code: i64,
    message: String,
}

fn exchange(text: &str) -> (Request<'_>, Answer<'_>) {
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("// ")).collect();
    let [request, answer] = lines[..] else { panic!("one request, one answer: {lines:?}") };
    let request = request.strip_prefix(">> ").expect("a request");
    let answer = answer.strip_prefix("<< ").expect("an answer");
    let answer: Answer<'_> = serde_json::from_str(answer).expect("an answer");
    assert!(answer.result.is_none() || answer.error.is_none());
    (serde_json::from_str(request).expect("a request"), answer)
}

/// Returns the published files of a method: name, chain and text.
fn files<'a>(
    corpus: &'a Corpus,
    method: &'a str,
) -> impl Iterator<Item = (&'a str, &'a Chain, String)> {
    corpus.names("io/").filter_map(move |name| {
        let mut parts = name.split('/').skip(1);
        let (chain, of_method) = (parts.next().expect("a chain"), parts.next());
        (of_method == Some(method)).then(|| (name, &corpus.chains[chain], corpus.text(name)))
    })
}

/// Every published error of `eth_getLogs`, with the name that the corpus's own cases use for it.
const ERRORS: [(&str, &str); 3] = [
    (
        "block range extends beyond current head block",
        "block range extends beyond current head block",
    ),
    ("invalid block range params", "invalid block range"),
    (
        "invalid argument 0: cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other",
        "blockHash with fromBlock or toBlock",
    ),
];

#[test]
fn published_logs_are_the_logs_of_the_chain() {
    let Some(corpus) = Corpus::open() else { return };
    let (mut answers, mut logs, mut with_timestamp) = (0, 0, 0);
    let (mut errors, mut audits) = (Vec::new(), Audits::default());
    for (index, (name, chain, text)) in files(corpus, "eth_getLogs").enumerate() {
        let (request, answer) = exchange(&text);
        assert_eq!(request.method, "eth_getLogs", "{name}");
        let readings = BOTH.map(|rules| Reading::of(chain, request.params[0].get(), rules));
        if let Some(error) = answer.error {
            let (_, said) =
                ERRORS.into_iter().find(|(text, _)| *text == error.message).expect(name);
            for reading in readings {
                let refusal = reading.err().unwrap_or_else(|| panic!("{name}: {said}"));
                assert!(refusal.is(said), "{name}: {refusal:?}, expected {said}");
            }
            errors.push(error);
            continue;
        }
        let published = answer.result.expect("logs").get();
        let published_logs = LocatedLog::list_from_json(published).expect(name);
        assert!(!published_logs.is_empty(), "{name}");
        for reading in readings {
            let reading = reading.unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
            // Older fixtures have no timestamps.
            let has_timestamps = published_logs[0].block_timestamp.is_some();
            let found = reading.logs.iter().map(|log| LocatedLog {
                block_timestamp: log.block_timestamp.filter(|_| has_timestamps),
                ..(*log).clone()
            });
            let found: Vec<_> = found.collect();
            assert_eq!(found, published_logs, "{name}");
            assert_eq!(as_list(&found), published, "{name}: as it is written");
            // Both semantics read these filters in the same way, so one audit suffices.
            if reading.semantics == Semantics::Geth {
                audits += right_and_one_short(chain, &reading, &published_logs, |_| true, index);
            }
        }
        answers += 1;
        logs += published_logs.len();
        with_timestamp += published_logs.iter().filter(|l| l.block_timestamp.is_some()).count();
    }
    assert_eq!((answers, logs, with_timestamp), (10, 28, 7));
    assert_eq!(audits, Audits { complete: 10, wrong: 10, undecided: 0 });

    // The corpus lists the same errors as facts, with the same counts.
    let facts: Value =
        serde_json::from_str(&corpus.text("facts/execution_apis.json")).expect("JSON");
    let listed = facts["errors_in_fixtures"].as_array().expect("a list").iter();
    let mut listed: Vec<_> = listed
        .map(|error| RpcError {
            code: error["code"].as_i64().expect("a number"),
            message: error["message"].as_str().expect("a text").to_owned(),
        })
        .collect();
    listed.sort();
    errors.sort();
    assert_eq!((errors.len(), errors), (5, listed));
}

/// Returns the logs as a node writes them.
fn as_list(logs: &[LocatedLog]) -> String {
    let logs: Vec<_> = logs.iter().map(LocatedLog::to_json).collect();
    format!("[{}]", logs.join(","))
}

/// The corpus leaves out a published file of 21 MB, and names its request and its git blob. The
/// library's answer has the hash of this blob.
#[test]
fn the_answer_that_is_left_out_for_its_size_has_the_hash_of_the_published_one() {
    let Some(corpus) = Corpus::open() else { return };
    let blob = "ae68e6da44cf8d5caa233228c26efe1defbb1e40";
    let request = r#"{"fromBlock":"0x1","toBlock":"0x3"}"#;
    let readme = corpus.text("README.md");
    assert!(readme.contains(&format!("`{request}`")) && readme.contains(blob));
    // The first line is the comment of the same request to the other chain.
    let other = corpus.text("io/ea2025b/eth_getLogs/no-topics.io");
    let comment = other.lines().next().expect("a line");
    let reading = Reading::of(&corpus.chains["ea2026"], request, Semantics::Geth).expect("logs");
    let logs: Vec<_> = reading.logs.iter().copied().cloned().collect();
    let file = format!(
        "{comment}\n>> {{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_getLogs\",\"params\":[{request}]}}\n\
         << {{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}}\n",
        as_list(&logs)
    );
    assert_eq!((logs.len(), file.len()), (77, 21_310_148));
    let mut engine = sha1::Hash::engine();
    engine.input(format!("blob {}\0", file.len()).as_bytes());
    engine.input(file.as_bytes());
    assert_eq!(sha1::Hash::from_engine(engine).to_string(), blob);
    let read = LocatedLog::list_from_json(&as_list(&logs));
    assert!(read.as_ref() == Ok(&logs), "read again");
}

/// Returns the block that `eth_getBlockReceipts` was asked for, by number, tag or hash.
fn block_of<'a>(chain: &'a Chain, asked: &str) -> Option<(&'a Block, &'a Body)> {
    let number = match asked {
        "earliest" => Some(chain.run.first()),
        "latest" => Some(chain.run.last()),
        hash if hash.len() == 66 => {
            let hash: B256 = hash.parse().expect("a hash");
            return chain.blocks().find(|(block, _)| block.hash == hash);
        }
        number => number.strip_prefix("0x").and_then(|n| u64::from_str_radix(n, 16).ok()),
    };
    let number = number.unwrap_or_else(|| panic!("a block: {asked}"));
    chain.blocks().find(|(block, _)| block.number == number)
}

#[test]
fn published_receipts_are_under_the_root_of_their_header() {
    let Some(corpus) = Corpus::open() else { return };
    // Numbers of answers with receipts, of answers without receipts, of null answers, of receipts,
    // and of logs.
    let mut counts = [0; 5];
    for (name, chain, text) in files(corpus, "eth_getBlockReceipts") {
        let (request, answer) = exchange(&text);
        assert_eq!(request.method, "eth_getBlockReceipts", "{name}");
        let asked: &str = serde_json::from_str(request.params[0].get()).expect("a block");
        assert_eq!(answer.error, None, "{name}");
        let (Some((block, body)), Some(result)) = (block_of(chain, asked), answer.result) else {
            assert!(block_of(chain, asked).is_none() && answer.result.is_none(), "{name}");
            let refused = BlockReceipts::from_json("null");
            assert!(matches!(refused, Err(ReceiptsError::Json(_))), "{name}: {refused:?}");
            counts[2] += 1;
            continue;
        };
        let receipts = BlockReceipts::from_json(result.get()).expect(name);
        assert!(receipts.iter().eq(block.receipts.iter()), "{name}");
        let view: HeaderView<'_> = block.view();
        let verified = receipts.verify(view.receipts_root(), view.logs_bloom());
        let verified = verified.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(verified.unsound_receipt(), None, "{name}");
        assert!(verified.logs().map(|log| log.log).eq(block.logs.iter().map(|log| &log.log)));
        // Fields that no root covers.
        assert_eq!(receipts.claims().len(), body.hashes.len(), "{name}");
        let mut indices = 0..;
        for ((claims, hash), receipt) in
            receipts.claims().iter().zip(&body.hashes).zip(receipts.iter())
        {
            assert_eq!(claims.block_hash, Some(block.hash), "{name}");
            assert_eq!(claims.block_number, Some(block.number), "{name}");
            assert_eq!(claims.transaction_hash, Some(*hash), "{name}");
            let expected: Vec<_> = indices.by_ref().take(receipt.logs.len()).map(Some).collect();
            assert_eq!(claims.log_indices, expected, "{name}");
        }
        counts[usize::from(receipts.is_empty())] += 1;
        counts[3] += receipts.len();
        counts[4] += block.logs.len();
    }
    assert_eq!(counts, [6, 4, 6, 24, 13]);
}
