//! Runs the transcripts in `tests/transcripts/`: commands of a shell, and what they print.
//!
//! A line `$ COMMAND` is run by `bash` in a directory of its transcript, with the files of [`inputs`] and
//! `fixtures` in it; lines `> …` continue the command. Then come the lines of standard output, the
//! lines of standard error after `! `, and the exit code after `? `, unless it is 0. Durations and
//! blanks at the end of a line are left out, and a line `…` stands for any lines. Lines `# …` are comments.
//! `CHAINSIEVE_TRANSCRIPTS=write` writes what the commands print into the transcripts.

#![cfg(unix)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::{env, thread};

use chainsieve::btc::descriptors::descriptor_scripts;
use testkit::pages::{root, without_durations};

use super::cf::{KEY, chain_of};
use super::eth::{Block, anchor, answer, eth_fixture, write};
use super::*;
use testkit::TestFolder;

#[test]
fn commands_print_what_the_transcripts_show() {
    let folder = TestFolder::new("transcripts");
    let (folder, inputs) = (&folder, &inputs(&folder));
    let areas = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let entries =
        |path| fs::read_dir(path).expect("a folder").map(|entry| entry.expect("one").path());
    let found: Vec<PathBuf> = entries(areas).flat_map(entries).collect();
    assert!(found.len() >= 30, "{found:?}");
    let wrong: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = found
            .chunks(found.len().div_ceil(4))
            .map(|some| {
                scope.spawn(move || {
                    some.iter()
                        .filter_map(|path| wrong_with(path, folder, inputs))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Runs a transcript, and returns the commands that print something else.
fn wrong_with(path: &Path, folder: &TestFolder, inputs: &[PathBuf]) -> Option<String> {
    let expected = fs::read_to_string(path).expect("a transcript");
    let area = path.parent().and_then(Path::file_name).expect("an area");
    let directory = folder.path().join("run").join(area).join(path.file_stem().expect("a name"));
    fs::create_dir_all(&directory).expect("a folder");
    // Copies, because a transcript may write to a file with the name of an input.
    for input in inputs {
        fs::copy(input, directory.join(input.file_name().expect("a name"))).expect("a copy");
    }
    let fixtures = root().join("fixtures").canonicalize().expect("the fixtures");
    symlink(fixtures, directory.join("fixtures")).expect("a link");
    assert!(
        expected.starts_with("$ ") || expected.contains("\n$ "),
        "no command: {}",
        path.display()
    );
    let mut printed: Vec<String> = Vec::new();
    let mut wrong = Vec::new();
    let mut lines = expected.lines().peekable();
    while let Some(line) = lines.next() {
        printed.push(line.to_owned());
        let Some(start) = line.strip_prefix("$ ") else {
            assert!(line.is_empty() || line.starts_with("# "), "{}: {line}", path.display());
            continue;
        };
        let mut command = start.to_owned();
        while let Some(line) = lines.next_if(|line| line.starts_with("> ")) {
            printed.push(line.to_owned());
            command = [command.as_str(), &line[2..]].join("\n");
        }
        let is_output = |line: &&str| !line.starts_with("$ ") && !line.starts_with("# ");
        let mut shown = Vec::new();
        while let Some(line) = lines.next_if(is_output) {
            shown.push(line.to_owned());
        }
        let blank = shown.iter().rev().take_while(|line| line.is_empty()).count();
        let blank = shown.split_off(shown.len() - blank);
        let output = output(&command, &directory);
        if !matches(&output, &shown) {
            let [output, shown] = [&output, &shown].map(|lines| lines.join("\n"));
            wrong.push(format!("{}: {command}\n{output}\nis not\n{shown}", path.display()));
        }
        printed.extend(if matches(&output, &shown) { shown } else { output });
        printed.extend(blank);
    }
    if env::var("CHAINSIEVE_TRANSCRIPTS").is_ok_and(|value| value == "write") {
        fs::write(path, printed.join("\n") + "\n").expect("written");
    }
    (!wrong.is_empty()).then(|| wrong.join("\n\n"))
}

/// Compares line by line; a line `…` matches any lines up to the next match.
fn matches(lines: &[String], shown: &[String]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=lines.len()).any(|at| matches(&lines[at..], rest))
        }
        Some((first, rest)) => lines.first() == Some(first) && matches(&lines[1..], rest),
    }
}

/// Runs a command, and returns the lines that a transcript shows of it.
fn output(command: &str, directory: &Path) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_chainsieve")).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), env::var("PATH").expect("a path"));
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", command])
        .current_dir(directory)
        .env("PATH", path)
        .env_remove("ETH_RPC_URL")
        .stdin(Stdio::null())
        .output()
        .expect("bash");
    let mut shown = Vec::new();
    for (mark, bytes) in [("", &output.stdout), ("! ", &output.stderr)] {
        let text = without_durations(&String::from_utf8_lossy(bytes));
        shown.extend(text.lines().map(|line| format!("{mark}{line}").trim_end().to_owned()));
    }
    let code = output.status.code().expect("no signal");
    if code != YES {
        shown.push(format!("? {code}"));
    }
    shown
}

/// Writes the files that transcripts use beside `fixtures`, and returns their paths.
fn inputs(folder: &TestFolder) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut file = |name: &str, bytes: &[u8]| paths.push(folder.write(name, bytes).into());
    let lines = |items: &[Value], of: &dyn Fn(&Value) -> String| {
        items.iter().map(|item| of(item) + "\n").collect::<String>().into_bytes()
    };
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let json = |row: &Value| row.to_string();
    let member = |name: &'static str| move |row: &Value| text(&row[name]).to_owned();

    // The blocks 0 to 255 of mainnet: one a line, as hex and as JSON.
    let rows = list(&fixture("mainnet_0-255.json"));
    file("blocks.hex", &lines(&rows, &member("block")));
    file("blocks.json", &lines(&rows, &json));
    file("filter_headers.txt", &lines(&rows, &member("filter_header")));
    let raw = |row: &Value| {
        let mut header = hex::decode(text(&row["filter_header"])).expect("hex");
        header.reverse();
        header
    };
    file("filter_headers_10-255.bin", &rows[10..].iter().flat_map(raw).collect::<Vec<_>>());
    let header = |row: &Value| hex::decode(&text(&row["block"])[..160]).expect("hex");
    file("block_headers_9-255.bin", &rows[9..].iter().flat_map(header).collect::<Vec<_>>());
    // The transactions of the blocks 0 to 169.
    let transactions = |row: &Value| {
        let block: chainsieve::bitcoin::Block =
            deserialize_hex(text(&row["block"])).expect("a block");
        block.txdata.iter().map(serialize_hex).collect::<Vec<_>>().join("\n")
    };
    file("transactions.hex", &lines(&rows[..170], &transactions));
    file("key.txt", KEY.as_bytes());
    // Blocks that pay to these indices of a descriptor.
    let mut paid = |name: &str, descriptor: &str, indices: &[&[usize]]| {
        let scripts = descriptor_scripts(descriptor, 0..=100).expect("a descriptor");
        let of = |indices: &&[usize]| -> Vec<_> {
            indices.iter().map(|&at| scripts[at].script.clone()).collect()
        };
        let blocks = chain_of(&indices.iter().map(of).collect::<Vec<_>>());
        file(name, blocks.join("\n").as_bytes());
    };
    let receiving = format!("wpkh({XPUB}/0/*)");
    paid("paid_10_25_50_40_50.hex", &receiving, &[&[10, 25], &[50], &[40], &[50]]);
    paid("paid_30_79.hex", &receiving, &[&[30], &[79]]);
    paid("paid_change_7.hex", &format!("wpkh({XPUB}/1/*)"), &[&[7]]);
    for height in [757_753, 255_018] {
        let block = fixture(&format!("blocks/mainnet_{height}.json"));
        file(&format!("block_{height}.hex"), text(&block["block"]).as_bytes());
        file(&format!("filter_{height}.hex"), text(&block["basic_filter"]).as_bytes());
    }
    // What a node sends for a block: of the transactions 0 and 18, and of none.
    let (proof, sent) = merkle_block(&block_757753(), &[0, 18]);
    file("merkleblock.hex", proof.as_bytes());
    file("delivered.hex", sent.join("\n").as_bytes());
    file("merkleblock_of_none.hex", merkle_block(&block_757753(), &[]).0.as_bytes());
    let vectors = fixture("bip37_vectors.json");
    for name in ["funding", "spending"] {
        file(&format!("{name}.hex"), text(&vectors["transactions"][name]["hex"]).as_bytes());
    }
    for (hash, block) in vectors["blocks"].as_object().expect("blocks") {
        file(&format!("block_{}.hex", &hash[56..]), text(block).as_bytes());
    }

    // The blocks 17,686,111 and 17,686,112 of mainnet, and the seven logs of the query of the tests.
    let blocks = Block::both();
    let [first, second] = &blocks;
    file("first.hex", hex::encode(&first.header).as_bytes());
    file("second.hex", hex::encode(&second.header).as_bytes());
    file("headers.rlp", &[&first.header[..], &second.header].concat());
    file("receipts.era1", &write::era1(&blocks));
    file("archive.ere", &write::ere(&blocks));
    // A header whose bloom has every bit set, one of a block without logs, and seven linked headers.
    let headers = list(&eth_fixture("headers.json"));
    let of = |from: u64, to: u64| {
        let is_in = |row: &&Value| {
            row["chain"] == "mainnet" && (from..=to).any(|number| row["number"] == number)
        };
        let found: Vec<Value> = headers.iter().filter(is_in).cloned().collect();
        lines(&found, &member("header"))
    };
    file("full.hex", &of(15_537_394, 15_537_394));
    file("empty.hex", &of(19_840_104, 19_840_104));
    file("linked.hex", &of(22_431_080, 22_431_086));
    file("first.receipts.rlp", &first.receipts_rlp());
    file("second.receipts.rlp", &second.receipts_rlp());
    file("other.receipts.rlp", &Block::read("mainnet_14764013").receipts_rlp());
    file(
        "query.json",
        br#"{"fromBlock":"0x10dde5f","toBlock":"0x10dde60",
"address":"0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2","topics":[
"0xe1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c",
"0x0000000000000000000000007a250d5630b4cf539739df2c5dacb4c659f2488d"]}"#,
    );
    file("reply.json", write::reply(&json!(answer())).to_string().as_bytes());
    file("logs.json", &lines(&answer(), &json));
    let legacy = first.receipts.iter().find(|receipt| receipt[0] >= 0xc0).expect("one");
    let claimed = json!({ "hash": first.hash, "receipts": [format!("0x{}", hex::encode(legacy))] });
    file("claimed.json", claimed.to_string().as_bytes());
    let objects = blocks.each_ref().map(|block| write::rpc_header(&block.header));
    file("headers.json", &lines(&objects, &json));
    paths.extend(anchor::write_objects(folder).map(PathBuf::from));
    paths
}
