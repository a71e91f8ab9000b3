//! Tests of `eth follow --abi` and `--csv`: logs decoded by the ABI of a contract.

use super::*;

/// The events as EIP-20 declares them, and WETH9's Deposit.
const ABI: &str = r#"{"contractName":"any","abi":[
 {"type":"event","name":"Transfer","anonymous":false,"inputs":[
  {"name":"from","type":"address","indexed":true},{"name":"to","type":"address","indexed":true},
  {"name":"value","type":"uint256","indexed":false}]},
 {"type":"event","name":"Deposit","anonymous":false,"inputs":[
  {"name":"dst","type":"address","indexed":true},{"name":"wad","type":"uint256","indexed":false}]},
 {"type":"event","name":"Hidden","anonymous":true,"inputs":[]},
 {"type":"function","name":"f","inputs":[],"outputs":[],"stateMutability":"view"}]}"#;

const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

fn follow(url: &str, abi: &TempFile, more: &[&str]) -> Output {
    let mut args = vec!["eth", "follow", "--rpc", url, "--from", "17686111", "--to", "17686112"];
    args.extend(["--once", "--retries", "1", "--abi", abi.path()]);
    args.extend(more);
    discreet(&args)
}

/// Returns word `at` of a log's data, which the ABI encodes in words of 32 bytes.
fn word(hex: &str, at: usize) -> &str {
    &hex[2 + 64 * at..2 + 64 * (at + 1)]
}

#[test]
fn logs_are_decoded_by_an_abi() {
    let abi = TempFile::new("abi.json", ABI);
    let server = honest(Chain::real_and(0));
    let output = follow(&server.url(), &abi, &["--json"]).exits(YES);
    let lines = output.lines();
    let logs: Vec<&Value> = lines.iter().filter(|line| line["logIndex"].is_string()).collect();
    let expected: usize = Block::both().iter().map(|block| block.logs().len()).sum();
    assert_eq!(logs.len(), expected);
    let mut decoded = 0;
    let mut of_tokens = 0;
    for log in logs {
        let topics = log["topics"].as_array().expect("topics");
        if topics.first() != Some(&json!(TRANSFER)) {
            continue;
        }
        if topics.len() != 3 {
            // In EIP-721 the third argument is indexed as well.
            of_tokens += 1;
            assert!(
                log["decoded"].is_null() && text(&log["undecoded"]).contains("Transfer"),
                "{log}"
            );
            continue;
        }
        decoded += 1;
        let found = &log["decoded"];
        assert_eq!(found["signature"], "Transfer(address,address,uint256)");
        let arguments = &found["arguments"];
        let address = |topic: &Value| format!("0x{}", &text(topic)[26..]);
        assert_eq!(text(&arguments["from"]).to_lowercase(), address(&topics[1]));
        assert_eq!(text(&arguments["to"]).to_lowercase(), address(&topics[2]));
        let value = word(text(&log["data"]), 0).trim_start_matches('0');
        if value.len() <= 32 {
            let value = u128::from_str_radix(if value.is_empty() { "0" } else { value }, 16);
            assert_eq!(arguments["value"], json!(value.expect("hex").to_string()), "{log}");
        }
    }
    assert!(decoded > 100, "{decoded}, and {of_tokens} of tokens");
}

#[test]
fn a_table_has_a_line_for_each_log() {
    let abi = TempFile::new("abi-csv.json", ABI);
    let server = honest(Chain::real_and(0));
    let output = follow(&server.url(), &abi, &["--csv"]).exits(YES);
    let mut rows = output.stdout.split_terminator("\r\n");
    let names = "block_number,block_hash,transaction_index,transaction_hash,log_index,removed,address,\
                 topic0,topic1,topic2,topic3,data,claimed_transaction_hash,event,arguments";
    let head = rows.next().expect("a head");
    assert_eq!(head, names);
    let columns: Vec<&str> = head.split(',').collect();
    let logs: Vec<Value> = Block::both().iter().flat_map(Block::logs).collect();
    let rows: Vec<Vec<&str>> = rows.map(|row| row.splitn(columns.len(), ',').collect()).collect();
    assert_eq!(rows.len(), logs.len());
    let at = |name: &str| columns.iter().position(|column| *column == name).expect("a column");
    for (row, log) in rows.iter().zip(&logs) {
        assert_eq!(row.len(), columns.len());
        assert_eq!(row[at("block_hash")], text(&log["blockHash"]));
        assert_eq!(row[at("data")], text(&log["data"]));
        assert_eq!(row[at("removed")], "false");
        let deposit = "0xe1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c";
        if log["topics"][0] == deposit {
            assert_eq!(row[at("event")], "Deposit");
            let quoted = row[at("arguments")].trim_matches('"').replace("\"\"", "\"");
            let arguments: Value = serde_json::from_str(&quoted).expect("JSON");
            assert!(arguments["wad"].is_string() && arguments["to"].is_null(), "{arguments}");
        }
    }
    assert!(output.stderr.contains("up to"), "{}", output.stderr);
    let both = follow(&server.url(), &abi, &["--csv", "--json"]);
    assert_ne!(both.code, YES);
}
