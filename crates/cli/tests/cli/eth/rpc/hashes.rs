//! Transaction hashes that `eth follow` prints: proven by the transactions of the block, or marked as
//! a claim. The chain is made up.

use std::collections::BTreeMap;

use testkit::eth::json_rpc::{self, Sent};
use testkit::eth::rpc_methods::{self, BlockId, RpcBlock, receipts_json};
use testkit::eth::world::{World, WorldBlock};

use super::*;

/// What the provider claims.
const INVENTED: B256 = B256::repeat_byte(0xee);

/// Returns the URL of a provider that invents the transaction hashes in its receipts. If
/// `has_transactions` is `false`, it has no whole transactions.
fn inventor(has_transactions: bool) -> (String, BTreeMap<(String, u64), String>) {
    let mut world = World::new();
    // Some transactions with logs of several contracts each.
    (1..30).for_each(|seed| world.mine(seed * 7));
    let blocks: Vec<WorldBlock> =
        world.canonical.iter().map(|hash| world.blocks[hash].clone()).collect();
    // The hash of each transaction, as alloy computes it.
    let hashes = blocks.iter().flat_map(|block| {
        let hashes = (0..).zip(&block.hashes);
        hashes.map(|(index, hash)| ((block.at.hash.to_string(), index), hash.to_string()))
    });
    let hashes = hashes.collect();
    let address = json_rpc::serve_any(move |method, params| {
        let at = |tag: &Value| match BlockId::of(tag)? {
            BlockId::Tag(_) => blocks.last(),
            BlockId::Hash(hash) => blocks.iter().find(|block| block.at.hash == hash),
            BlockId::Number(number) => blocks.get(usize::try_from(number).ok()?),
        };
        if method == "eth_getBlockReceipts" {
            let block = at(&params[0]).map(RpcBlock::from);
            let receipts = block.map(|block| receipts_json(&block, |_| INVENTED));
            return Sent::Result(receipts.unwrap_or_default());
        }
        if params[1] == true && !has_transactions {
            return Sent::Error(-32000, "no transactions here");
        }
        let result = rpc_methods::result(method, params, |tag| at(tag).map(Into::into));
        result.map_or(Sent::Error(-32601, "no such method"), Sent::Result)
    });
    (format!("http://{address}"), hashes)
}

fn follow(url: &str, more: &[&str]) -> Output {
    let mut args = vec!["eth", "follow", "--rpc", url, "--from", "0", "--once", "--retries", "1"];
    args.extend(["--poll", "0.05"]);
    args.extend(more);
    run(&args).exits(YES)
}

fn logs(output: &Output) -> Vec<Value> {
    let logs: Vec<_> = output.lines().into_iter().filter(|line| line["kind"] == "log").collect();
    assert!(logs.len() > 20, "{}", logs.len());
    logs
}

#[test]
fn an_invented_hash_is_not_printed() {
    let (url, hashes) = inventor(true);
    let output = follow(&url, &["--json"]);
    for log in logs(&output) {
        let index =
            u64::from_str_radix(&text(&log["transactionIndex"])[2..], 16).expect("a number");
        let hash = &hashes[&(text(&log["blockHash"]).to_owned(), index)];
        assert_eq!(text(&log["transactionHash"]), hash, "{log}");
        assert_eq!(log["claimedTransactionHash"], Value::Null, "{log}");
    }
    for more in [&[][..], &["--csv"], &["--json"]] {
        let output = follow(&url, more);
        assert!(!output.stdout.contains(&INVENTED.to_string()), "{more:?}");
        assert!(!output.stderr.contains("not proven"), "{more:?}");
    }
}

#[test]
fn what_is_not_proven_is_marked() {
    // The provider has no transactions, or they are not requested.
    for (has_transactions, more) in [(false, &[][..]), (true, &["--no-transaction-hashes"])] {
        let (url, _) = inventor(has_transactions);
        let args = |format: &'static str| [&[format], more].concat();
        let claimed = INVENTED.to_string();
        let output = follow(&url, &args("--json"));
        for log in logs(&output) {
            assert_eq!(log["transactionHash"], Value::Null, "{log}");
            assert_eq!(text(&log["claimedTransactionHash"]), claimed, "{log}");
        }
        let is_said = output.stderr.contains("transaction hashes are not proven");
        assert_eq!(is_said, !has_transactions, "{}", output.stderr);
        let output = follow(&url, &args("--csv"));
        let mut rows = output.stdout.split_terminator("\r\n");
        let head: Vec<&str> = rows.next().expect("a head").split(',').collect();
        let at = |name: &str| head.iter().position(|column| *column == name).expect("a column");
        for row in rows {
            let row: Vec<&str> = row.split(',').collect();
            assert_eq!((row[at("transaction_hash")], row.len()), ("", head.len()));
            assert_eq!(row[at("claimed_transaction_hash")], claimed);
        }
        let output = follow(&url, more);
        let lines = output.stdout.lines().filter(|line| line.contains("transaction "));
        let lines: Vec<&str> = lines.collect();
        assert!(lines.len() > 20, "{}", lines.len());
        for line in lines {
            assert!(line.ends_with(&format!("transaction {claimed}, not proven")), "{line}");
        }
    }
}
