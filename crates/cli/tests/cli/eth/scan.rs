//! Tests of `eth scan` and `eth forecast`.

use chainsieve::alloy_primitives::{Address, Bloom, BloomInput};

use super::*;

/// Returns `true` if alloy finds a value in a block's bloom.
fn passes(block: &Block, value: &[u8]) -> bool {
    Bloom::from_slice(block.bloom()).contains_input(BloomInput::Raw(value))
}

/// Returns two absent addresses: the first block's bloom contains the first one by chance, and no
/// bloom contains the other.
fn by_chance() -> (String, String) {
    let blocks = Block::both();
    let address = |n: u32| Address::left_padding_from(&n.to_be_bytes());
    let find = |wanted: [bool; 2]| {
        let found = (1..100_000).map(address).find(|address| {
            blocks.each_ref().map(|block| passes(block, address.as_slice())) == wanted
        });
        found.expect("one in fifteen").to_string()
    };
    (find([true, false]), find([false, false]))
}

#[test]
fn scans_find_the_blocks_that_alloy_finds() {
    let headers = both_headers("scan.rlp");
    let blocks = Block::both();
    let scan =
        |more: &[&str], code| json_lines(&[&["eth", "scan", headers.path()], more].concat(), code);
    let lines = scan(&QUERY, YES);
    assert_eq!(lines.len(), 3);
    for (line, block) in lines.iter().zip(&blocks) {
        let expected = json!({
            "kind": "candidate",
            "number": block.number,
            "hash": block.hash,
            "answer": "maybe",
        });
        assert_eq!(*line, expected);
    }
    assert_eq!((&lines[2]["blocks"], &lines[2]["candidates"]), (&json!(2), &json!(2)));
    let (one, none) = by_chance();
    let lines = scan(&["--address", &one], YES);
    assert_eq!((lines.len(), &lines[0]["number"]), (2, &json!(17_686_111)));
    let lines = scan(&["--address", &none], NO);
    assert_eq!((lines.len(), &lines[0]["candidates"]), (1, &json!(0)));
    // The false-positive rate of a value with three distinct bits: the mean of p^3 over the blocks,
    // where p is the fill of a block's filter.
    let fills = blocks.each_ref().map(|block| f64::from(block.bits_set()) / 2048.0);
    let rate = lines[0]["rate"].as_f64().expect("a rate");
    let expected = f64::midpoint(fills[0].powi(3), fills[1].powi(3));
    assert!((rate / expected - 1.0).abs() < 1e-9, "{rate} {expected}");
    // The query matches either address. Both addresses are in a file with comments.
    let list = TempFile::new("addresses.txt", format!("# two\n{one}\n\n{none} # the other\n"));
    let lines = scan(&["--address", &format!("@{}", list.path())], YES);
    assert_eq!(lines[1]["query"]["address"].as_array().map(Vec::len), Some(2));
    assert_eq!(lines[1]["candidates"], 1);
    // The same query is given as JSON, with each choice of the rules.
    let query = json!({ "address": [one, none], "fromBlock": "0x10dde60" });
    let query = TempFile::new("query.json", query.to_string());
    for semantics in ["geth", "alloy"] {
        let lines = scan(&["--query", query.path(), "--semantics", semantics], NO);
        assert_eq!((&lines[0]["blocks"], &lines[0]["first"]), (&json!(1), &json!(17_686_112)));
        assert_eq!(lines[0]["semantics"], semantics);
    }
    let lines = scan(&["--query", query.path(), "--from", "17,686,111"], YES);
    assert_eq!((lines.len(), &lines[1]["blocks"]), (2, &json!(2)));
    let page = run(&["eth", "scan", headers.path(), "--address", &one, "--count"]);
    assert_eq!(page.code, YES);
    assert!(!page.stdout.contains(&blocks[0].hash), "{}", page.stdout);
    assert!(page.stdout.contains("candidates  1, 50.0 %"), "{}", page.stdout);
}

#[test]
fn an_anchor_authenticates_what_is_before_it() {
    let headers = both_headers("anchor.rlp");
    let [first, second] = Block::both().map(|block| block.hash);
    let anchored = |anchors: &[&str], to: &str, code| {
        let anchors = anchors.iter().flat_map(|anchor| ["--anchor", anchor]);
        let mut args = vec!["eth", "scan", headers.path(), "--address", WETH, "--to", to];
        args.extend(anchors);
        let last = json_lines(&args, code).pop().expect("a summary");
        let warnings = last["warnings"].as_array().expect("warnings").len();
        (last["anchored_to"].clone(), last["blocks"].clone(), warnings)
    };
    assert_eq!(anchored(&[], "17686112", YES), (Value::Null, json!(2), 1));
    assert_eq!(anchored(&[&second], "17686112", YES), (json!(17_686_112), json!(2), 0));
    assert_eq!(anchored(&[&first], "17686112", UNDECIDED), (json!(17_686_111), json!(2), 1));
    assert_eq!(anchored(&[&first, &second], "17686112", YES), (json!(17_686_112), json!(2), 0));
    // An anchor after the range is used, although its block is not queried.
    assert_eq!(anchored(&[&second], "17686111", YES), (json!(17_686_112), json!(1), 0));
    let other = B256::repeat_byte(7).to_string();
    assert_eq!(anchored(&[&other], "17686112", UNDECIDED), (Value::Null, json!(2), 1));
    let plain = run(&["eth", "scan", headers.path(), "--address", WETH]);
    assert!(plain.stderr.contains("as reliable as the source of the headers"), "{}", plain.stderr);
    fails(
        &["eth", "scan", headers.path(), "--anchor", "0x12"],
        b"",
        USAGE,
        &["1 bytes, but a hash has 32"],
    );
}

#[test]
fn headers_that_are_no_chain() {
    let [first, second] = Block::both().map(|block| block.header);
    let refused = |name: &str, contents: &[u8], words: &[&str]| {
        let file = TempFile::new(name, contents);
        fails(&["eth", "scan", file.path(), "--address", WETH], b"", BAD_INPUT, words);
        file
    };
    let order = [&second[..], &first].concat();
    drop(refused("order.rlp", &order, &["order.rlp", "byte 581", "block 17686111"]));
    let far = eth_fixture("blocks/mainnet_19426587.json");
    let far = bytes(&far["header"]);
    let words = ["gap.rlp", "byte 564", "block 19426587 comes after block 17686111"];
    drop(refused("gap.rlp", &[&first[..], &far].concat(), &words));
    // A gap between the headers of two files is found too.
    let [a, b] = [TempFile::new("a.rlp", &first), TempFile::new("b.rlp", &far)];
    let args = ["eth", "scan", a.path(), b.path(), "--address", WETH];
    let output = run(&args);
    assert_eq!(output.code, BAD_INPUT);
    let words = ["b.rlp", "byte 0", "comes after block 17686111"];
    for word in words {
        assert!(output.stderr.contains(word), "{}", output.stderr);
    }
    let headers = both_headers("range.rlp");
    let scan = ["eth", "scan", headers.path(), "--address", WETH];
    let range = |args: &[&str], words: &[&str]| {
        let args = [&scan[..], args].concat();
        let output = run(&args);
        assert_eq!(output.code, BAD_INPUT, "{}", output.stderr);
        for word in words {
            assert!(output.stderr.contains(word), "{}", output.stderr);
        }
    };
    range(&["--to", "17686113"], &["end at block 17686112"]);
    range(&["--from", "17686110"], &["begin at block 17686111"]);
    range(&["--from", "1", "--to", "2"], &["none of the headers"]);
}

#[test]
fn a_filter_that_says_nothing_rules_nothing_out() {
    let all = eth_fixture("headers.json");
    let full = all.as_array().expect("a list").iter().find(|h| h["number"] == 15_537_394);
    let header = text(&full.expect("the full one")["header"]);
    let (_, none) = by_chance();
    let lines = json_lines(&["eth", "scan", header, "--address", &none, "--event", DEPOSIT], YES);
    assert_eq!(lines[0]["answer"], "no_information");
    assert_eq!(lines[1]["no_information"], 1);
    let page = run(&["eth", "scan", header, "--address", &none]).stdout;
    assert!(page.contains("100.0 %  no information"), "{page}");
}

#[test]
fn slips_in_queries() {
    let header = hex::encode(Block::read(FIRST).header);
    let refused = |args: &[&str], code, words: &[&str]| {
        fails(&[&["eth", "scan", &header], args].concat(), b"", code, words);
    };
    let unpadded = ROUTER.trim_start_matches("address:");
    refused(&["--topic1", unpadded], USAGE, &["--topic1", "write address:0x7a25"]);
    refused(&["--address", &WETH.replace("C02a", "C12a")], USAGE, &["checksum"]);
    refused(&["--address", "0x00"], USAGE, &["1 bytes, but an address has 20"]);
    // A type that the ABI does not know is refused, both in a signature and in a declaration.
    for (event, words) in [
        ("Deposit(address,unit256)", "\"unit256\" at 16"),
        ("Deposit(address,uint7)", "uint7"),
        ("event Transfer(address indexed from, Token value)", "\"Token\" at 40"),
        ("Deposit(address,", "type"),
        ("Deposit(address wad", "expected a comma or )"),
        ("Deposit", "expected ("),
        ("event Deposit(address a) anonymous", "anonymous"),
        ("function deposit(address a)", "not the name of an event"),
    ] {
        refused(&["--event", event], USAGE, &["--event", words]);
    }
    refused(&["--query", "q.json", "--address", WETH], USAGE, &["--query"]);
    refused(&["--query", "/no/such.json"], BAD_INPUT, &["/no/such.json"]);
    let list = TempFile::new("bad.txt", format!("{WETH}\n0x1234\n"));
    let at = format!("@{}", list.path());
    refused(&["--address", &at], BAD_INPUT, &["bad.txt, line 2"]);
    let bad = |query: Value, words: &[&str]| {
        let file = TempFile::new("slip.json", query.to_string());
        refused(&["--query", file.path()], BAD_INPUT, &[&["slip.json"], words].concat());
    };
    bad(json!({ "topics": [null, ["0x12"]] }), &["topics[1][0]"]);
    bad(json!({ "fromBlock": 7 }), &["fromBlock"]);
    bad(json!({ "blockHash": B256::ZERO, "toBlock": "0x1" }), &["blockHash"]);
    let hash = TempFile::new("hash.json", json!({ "blockHash": B256::ZERO }).to_string());
    refused(&["--query", hash.path(), "--to", "7"], USAGE, &["blockHash"]);
    fails(&["eth", "scan", "-", "--query", "-"], b"", USAGE, &["only once"]);
}

#[test]
fn forecasts_count_and_say_what_selects_nothing() {
    let headers = both_headers("forecast.rlp");
    let (one, _) = by_chance();
    let args = ["eth", "forecast", headers.path(), "--address", &one, "--topic0", TRANSFER];
    let json = json_of(&args, YES);
    assert_eq!((&json["blocks"], &json["candidates"]), (&json!(2), &json!(1)));
    let clauses = json["clauses"].as_array().expect("clauses");
    assert_eq!((&clauses[0]["what"], &clauses[0]["share"]), (&json!("addresses"), &json!(0.5)));
    // Both blocks contain transfers.
    assert_eq!(
        (&clauses[1]["what"], &clauses[1]["selects_nothing"]),
        (&json!("topic0"), &json!(true))
    );
    assert!(text(&json["warnings"][0]).contains("topic0 excludes few blocks"));
    // The estimated number of receipts is within the documented bounds around the actual number of
    // receipts in the block.
    let receipts = json["receipts"].as_f64().expect("an estimate");
    let actual = f64::from(u32::try_from(Block::read(FIRST).receipts.len()).expect("few"));
    assert!((0.38..1.54).contains(&(receipts / actual)), "{receipts} of {actual}");
    let page = run(&args).stdout;
    assert!(page.contains("candidates  1, 50.0 % of the blocks"), "{page}");
    let all = json_of(&["eth", "forecast", headers.path()], YES);
    assert_eq!((&all["share"], &all["clauses"]), (&json!(1.0), &json!([])));
}

/// An event may be given in the form of its declaration in Solidity.
#[test]
fn events_are_taken_as_solidity_declares_them() {
    let headers = both_headers("declared.rlp");
    for event in [
        "Transfer(address,address,uint256)",
        "Transfer(address,address,uint)",
        "Transfer(address indexed from, address indexed to, uint value)",
        "event Transfer(address indexed from, address indexed to, uint value)",
        " event Transfer(address indexed from, address indexed to, uint256 value); ",
    ] {
        let lines = json_lines(&["eth", "scan", headers.path(), "--event", event], YES);
        let summary = lines.last().expect("a summary");
        assert_eq!(summary["query"]["topics"], json!([[TRANSFER]]), "{event}");
    }
    let event = "Both((address,uint)[] pairs, bytes32 indexed id)";
    let lines = json_lines(&["eth", "scan", headers.path(), "--event", event], NO);
    let topic = keccak256("Both((address,uint256)[],bytes32)");
    assert_eq!(lines[0]["query"]["topics"], json!([[topic]]));
}

/// The topic of Transfer(address,address,uint256) in ERC-20.
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
