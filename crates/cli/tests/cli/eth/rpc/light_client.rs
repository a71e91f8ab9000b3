//! Tests of commands whose anchor comes from a light client: a made-up beacon chain finalises a block
//! after the two real ones.

use chainsieve::eth::anchor::history_contract::CODE_HASH;
use testkit::eth::beacon_server::BeaconServer;
use testkit::eth::final_blocks::FinalBlocks;
use testkit::eth::history_state::HistoryState;

use super::*;
use testkit::TestFolder;

/// Number of the second real block, where the query ends.
const END: u64 = 17_686_112;
/// Number of the finalised block.
const FINAL: u64 = END + 40;
/// Number of the newest block.
const LATEST: u64 = FINAL + 3;

/// Position of the state root and of the extra data in a header.
const STATE_ROOT: usize = 3;
const EXTRA_DATA: usize = 12;

/// The chain of the honest provider, and the state after its finalised block.
fn chain() -> (Chain, HistoryState) {
    let mut chain = Chain::real_and(40);
    let hash = |block: &Block| (block.number, text(&json!(block.hash)).parse().expect("a hash"));
    let last = chain.blocks.pop().expect("a block");
    let state = HistoryState::new(CODE_HASH, chain.blocks.iter().map(hash));
    chain.blocks.push(chain::with_field(&last, STATE_ROOT, state.root().as_slice()));
    assert_eq!(chain.last().number, FINAL);
    while chain.last().number < LATEST {
        let child = chain::child(chain.last(), "");
        chain.blocks.push(child);
    }
    // What the provider calls final does not count.
    chain.finalized = LATEST - 1;
    (chain, state)
}

fn final_block() -> String {
    block(FINAL).hash
}

fn block(number: u64) -> Block {
    let mut blocks = chain().0.blocks.into_iter();
    blocks.find(|block| block.number == number).expect("a block of the chain")
}

/// Returns the chain of a provider that made up everything from the second real block on.
fn made_up() -> Chain {
    let mut chain = Chain::real_and(0);
    chain.blocks[1] = chain::with_field(&chain.blocks[1], EXTRA_DATA, b"made up");
    while chain.last().number < LATEST {
        let child = chain::child(chain.last(), "made up");
        chain.blocks.push(child);
    }
    chain.finalized = LATEST;
    chain
}

/// Returns a provider of the chain. If `lie` returns `None`, it answers honestly.
fn archive(lie: impl Fn(&str, &Value) -> Option<Answer> + Send + Sync + 'static) -> Server {
    let (chain, state) = chain();
    provider(chain, move |chain, method, params| {
        lie(method, params).or_else(|| {
            (method == "eth_getProof").then(|| match text(&params[2]) {
                at if at == format!("{FINAL:#x}") || at == chain.blocks[41].hash => {
                    let slots: Vec<B256> =
                        serde_json::from_value(params[1].clone()).expect("slots");
                    Ok(state.proof(&slots))
                }
                _ => Err(error(-32000, "missing trie node")),
            })
        })
    })
}

fn honest_archive() -> Server {
    archive(|_, _| None)
}

/// A beacon node and what a user knows of its chain.
struct Light {
    folder: TestFolder,
    blocks: FinalBlocks,
    server: BeaconServer,
    args: Vec<String>,
}

impl Light {
    /// Finalises the block `FINAL` of the honest chain.
    fn new(name: &str) -> Self {
        Self::of(name, FinalBlocks::new(false))
    }

    fn of(name: &str, mut blocks: FinalBlocks) -> Self {
        let folder = TestFolder::new(name);
        let data = blocks.finalise(&block(FINAL).header);
        let network = &blocks.world.network;
        let file = folder.write("network.json", serde_json::to_string(network).expect("JSON"));
        let server = BeaconServer::start(network, data);
        let root = blocks.checkpoint().to_string();
        let args = ["--beacon", server.url(), "--checkpoint", &root, "--network", &file];
        let args = args.map(str::to_owned).to_vec();
        Self { folder, blocks, server, args }
    }

    /// Runs a command with this light client.
    fn run(&self, command: &[&str], server: &Server, more: &[&str]) -> Output {
        let url = server.url();
        let mut args = command.to_vec();
        args.extend(["--rpc", &url, "--retries", "0"]);
        args.extend(self.args.iter().map(String::as_str));
        args.extend(more);
        discreet(&args)
    }

    /// Runs a command with `--json`, checks its exit code, and returns its lines and notes.
    fn lines(
        &self,
        command: &[&str],
        server: &Server,
        more: &[&str],
        code: i32,
    ) -> (Vec<Value>, String) {
        let output = self.run(command, server, &[more, &["--json"]].concat());
        assert_eq!(output.code, code, "{}{}", output.stderr, output.stdout);
        let values = serde_json::Deserializer::from_str(&output.stdout).into_iter();
        let lines = values.map(|value| value.expect("JSON")).collect();
        (lines, output.stderr)
    }

    /// Audits the query from the first real block on. `code` is the exit code.
    fn audit(&self, server: &Server, more: &[&str], code: i32) -> (Value, String) {
        let more = [&QUERY[..], &["--from", "17686111"], more].concat();
        let (mut lines, notes) = self.lines(&["eth", "audit"], server, &more, code);
        (lines.pop().expect("a report"), notes)
    }

    /// Runs a command that must fail with these words.
    fn fails(&self, command: &[&str], server: &Server, more: &[&str], code: i32, words: &[&str]) {
        let output = self.run(command, server, more);
        assert_eq!(output.code, code, "{}{}", output.stderr, output.stdout);
        assert_eq!(output.stdout, "");
        for word in words {
            assert!(output.stderr.contains(word), "{word:?} is not in {}", output.stderr);
        }
    }
}

/// Checks that a verdict rests on the light client, and on nothing that the provider claims.
fn rests_on_light_client(json: &Value) {
    assert_eq!(json["anchor_from"], "light_client", "{json:#}");
    let light = &json["light_client"];
    let execution = &light["finalized"]["execution"];
    assert_eq!(execution["hash"], json!(final_block()), "{light:#}");
    assert_eq!(
        (&light["network"], &light["finalized"]["grade"]),
        (&json!("made-up"), &json!("finalized"))
    );
    let warnings = json["warnings"].to_string();
    for word in ["made up", "claims", "--anchor", "authenticated"] {
        assert!(!warnings.contains(word), "{warnings}");
    }
}

/// Returns the numbers of the blocks of which a provider was asked for the header.
fn headers_asked(server: &Server) -> Vec<u64> {
    let calls = server.params("eth_getBlockByNumber");
    let numbers = calls.iter().filter_map(|params| {
        text(&params[0])
            .strip_prefix("0x")
            .map(|digits| u64::from_str_radix(digits, 16).expect("a number"))
    });
    numbers.collect()
}

const TO_END: [&str; 2] = ["--to", "17686112"];

#[test]
fn an_audit_far_below_the_finalised_block() {
    let light = Light::new("light-audit");
    let server = honest_archive();
    let (json, notes) = light.audit(&server, &TO_END, YES);
    rests_on_light_client(&json);
    assert_eq!((&json["status"], &json["logs"]), (&json!("complete"), &json!(7)));
    let linked = json!({
        "number": END,
        "hash": anchor(),
        "grade": "history_of_finalized",
        "by": ["history contract"],
    });
    assert_eq!(json["light_client"]["linked"], linked);
    assert_eq!(json["light_client"]["finalized"]["execution"]["number"], FINAL);
    assert_eq!((&json["anchored_to"], &json["last"]), (&json!(END), &json!(END)));
    assert!(!notes.contains("no short way"), "{notes}");
    // No header between the range and the finalised block is needed.
    let asked = headers_asked(&server);
    assert!(asked.iter().all(|number| [END - 1, END].contains(number)), "{asked:?}");
    let page = light.run(
        &["eth", "audit"],
        &server,
        &[&QUERY[..], &["--from", "17686111"], &TO_END].concat(),
    );
    assert!(page.stdout.contains("complete: these are exactly the logs"), "{}", page.stdout);
    assert!(page.stdout.contains("is before it: history contract."), "{}", page.stdout);
    assert!(page.stdout.contains(&light.blocks.checkpoint().to_string()), "{}", page.stdout);
}

/// A beacon block of Gloas does not bind the number of its execution block.
#[test]
fn an_audit_with_a_block_of_gloas() {
    let light = Light::of("light-gloas", FinalBlocks::new(true));
    let (json, _) = light.audit(&honest_archive(), &TO_END, YES);
    rests_on_light_client(&json);
    assert_eq!(json["light_client"]["finalized"]["execution"]["number"], Value::Null);
    assert_eq!(json["light_client"]["linked"]["hash"], json!(anchor()));
    let (json, _) = light.audit(&honest_archive(), &[], YES);
    assert_eq!((&json["last"], &json["anchored_to"]), (&json!(FINAL), &json!(FINAL)));
    // Without the block, nothing is known of its number.
    let lags = archive(|method, _| (method == "eth_getBlockByHash").then_some(Ok(Value::Null)));
    light.fails(
        &["eth", "audit"],
        &lags,
        &[&QUERY[..], &["--from", "17686111"]].concat(),
        BAD_INPUT,
        &["no provider has the finalised block", &final_block()],
    );
}

#[test]
fn a_range_ends_at_the_finalised_block_of_the_light_client() {
    let light = Light::new("light-ends");
    let server = honest_archive();
    let (json, _) = light.audit(&server, &[], YES);
    rests_on_light_client(&json);
    assert_eq!((&json["last"], &json["anchored_to"]), (&json!(FINAL), &json!(FINAL)));
    assert_eq!((&json["logs"], &json["light_client"]["linked"]), (&json!(7), &Value::Null));
    assert!(!json["warnings"].to_string().contains("the range ends"), "{json:#}");
    for tag in ["latest", "safe", "finalized"] {
        let query = json!({ "fromBlock": "0x10dde5f", "toBlock": tag, "address": WETH });
        let file = light.folder.write("query.json", query.to_string());
        let (lines, _) = light.lines(&["eth", "audit"], &server, &["--query", &file], YES);
        rests_on_light_client(&lines[0]);
        assert_eq!(lines[0]["last"], FINAL, "{tag}");
        let words = format!("the range ends at the finalised block, {FINAL}");
        assert!(
            lines[0]["warnings"].to_string().contains(&words),
            "{tag}: {}",
            lines[0]["warnings"]
        );
    }
    // A block after it is included if the user asks for it, and is not authenticated.
    let (json, _) = light.audit(&server, &["--unfinalized"], UNDECIDED);
    assert_eq!((&json["last"], &json["anchored_to"]), (&json!(LATEST), &json!(FINAL)));
}

#[test]
fn a_provider_that_made_its_chain_up_is_refused() {
    let light = Light::new("light-made-up");
    let from = [&QUERY[..], &["--from", "17686111"]].concat();
    for to in [&[][..], &TO_END] {
        let server = honest(made_up());
        let (json, _) = light.audit(&server, to, UNDECIDED);
        assert_eq!(
            (&json["status"], &json["anchor_from"]),
            (&json!("undecided"), &json!("light_client"))
        );
        assert_eq!((&json["anchored_to"], &json["anchor"]), (&Value::Null, &Value::Null));
        // No block of the made-up chain counts, and no log is called proven or wrong.
        let blocks = if to.is_empty() { 42 } else { 2 };
        assert_eq!(
            (&json["blocks"]["undecidable"], &json["findings"]),
            (&json!(blocks), &json!([]))
        );
        let words = format!("no node has the block of anchor {}", final_block());
        assert!(json["warnings"].to_string().contains(&words), "{}", json["warnings"]);
        assert_eq!(json["light_client"]["linked"], Value::Null);

        let more = [&from[..], to].concat();
        let (lines, _) = light.lines(&["eth", "scan"], &server, &more, UNDECIDED);
        let summary = lines.last().expect("a summary");
        assert_eq!(summary["anchored_to"], Value::Null);
        let warnings = summary["warnings"].to_string();
        assert!(warnings.contains("nothing is authenticated"), "{warnings}");
    }
}

#[test]
fn an_omission_is_proven_under_the_light_client() {
    let light = Light::new("light-omission");
    for at in 0..answer().len() {
        let liar = archive(move |method, _| {
            let mut logs = answer();
            logs.remove(at);
            (method == "eth_getLogs").then(|| Ok(json!(logs)))
        });
        let (json, _) = light.audit(&liar, &TO_END, WRONG);
        rests_on_light_client(&json);
        let [finding] = &json["findings"].as_array().expect("findings")[..] else {
            panic!("{json:#}")
        };
        assert_eq!((&finding["kind"], &finding["proof"]), (&json!("omitted_log"), &json!(true)));
        assert_eq!(finding["log"]["logIndex"], answer()[at]["logIndex"]);
        assert_eq!(finding["log"]["blockHash"], answer()[at]["blockHash"]);
    }
}

/// A proof that does not hold is no obstacle: all headers in between are fetched.
#[test]
fn a_forged_proof_leads_to_all_headers() {
    let light = Light::new("light-forged");
    let liar = archive(|method, _| (method == "eth_getProof").then(|| Ok(json!([]))));
    let (json, notes) = light.audit(&liar, &TO_END, YES);
    rests_on_light_client(&json);
    assert_eq!((&json["status"], &json["logs"]), (&json!("complete"), &json!(7)));
    assert_eq!(json["light_client"]["linked"], Value::Null);
    assert_eq!((&json["anchored_to"], &json["last"]), (&json!(FINAL), &json!(END)));
    assert!(notes.contains("no short way from block 17686152 to block 17686112"), "{notes}");
    assert!(notes.contains("all headers in between are fetched"), "{notes}");
    let asked = headers_asked(&liar);
    assert!(chain().0.blocks[..42].iter().all(|block| asked.contains(&block.number)), "{asked:?}");
}

#[test]
fn a_scan() {
    let light = Light::new("light-scan");
    let from = [&QUERY[..], &["--from", "17686111"]].concat();
    let server = honest_archive();
    let (lines, _) = light.lines(&["eth", "scan"], &server, &[&from[..], &TO_END].concat(), YES);
    let [.., summary] = &lines[..] else { panic!("{lines:?}") };
    rests_on_light_client(summary);
    assert_eq!((&summary["blocks"], &summary["candidates"]), (&json!(2), &json!(2)));
    assert_eq!((&summary["anchored_to"], &summary["last_hash"]), (&json!(END), &json!(anchor())));
    assert_eq!(summary["light_client"]["linked"]["by"], json!(["history contract"]));
    let hashes: Vec<_> = lines[..2].iter().map(|line| text(&line["hash"])).collect();
    assert_eq!(hashes, Block::both().map(|block| block.hash));

    let (lines, _) = light.lines(&["eth", "scan"], &server, &from, YES);
    let [.., summary] = &lines[..] else { panic!("{lines:?}") };
    rests_on_light_client(summary);
    assert_eq!((&summary["blocks"], &summary["last"]), (&json!(42), &json!(FINAL)));
    assert_eq!(summary["anchored_to"], FINAL);
    let page = light.run(&["eth", "scan"], &server, &from);
    assert!(
        page.stdout.contains("Block 17686152 is finalised, signed by 32 of 32"),
        "{}",
        page.stdout
    );
}

#[test]
fn an_index() {
    let light = Light::new("light-index");
    let index = |name: &str| light.folder.file(name);
    let build = |name: &str, server: &Server, more: &[&str], code: i32| {
        let path = index(name);
        let more = [&["--from", "17686111", "--label", "test"], more].concat();
        light.lines(&["eth", "index", "build", &path], server, &more, code)
    };
    let (lines, notes) = build("whole", &honest_archive(), &[], YES);
    let summary = lines.last().expect("a summary");
    assert_eq!((&summary["added"], &summary["last_hash"]), (&json!(42), &json!(final_block())));
    assert!(!summary["warnings"].to_string().contains("only http"), "{summary:#}");
    assert!(notes.contains("Block 17686152 is finalised, signed by 32 of 32"), "{notes}");

    // Blocks before the finalised one, and after it.
    let (lines, _) = build("short", &honest_archive(), &TO_END, YES);
    let warnings = lines.last().expect("a summary")["warnings"].to_string();
    assert!(warnings.contains("does not reach the finalised block, 17686152"), "{warnings}");
    assert!(warnings.contains("only http"), "{warnings}");
    let (lines, _) = build("long", &honest_archive(), &["--to", "latest"], YES);
    let summary = lines.last().expect("a summary");
    assert_eq!(summary["added"], 45);
    let warnings = summary["warnings"].to_string();
    assert!(warnings.contains("after block 17686152"), "{warnings}");

    // Nothing of another chain is added.
    let path = index("made-up");
    let more = ["--from", "17686111", "--label", "test"];
    let other = made_up().blocks[41].hash.clone();
    let words = ["block 17686152 is", &other, &final_block(), "another chain than the network's"];
    light.fails(&["eth", "index", "build", &path], &honest(made_up()), &more, WRONG, &words);
    // An index that was built without a light client is not extended by a light client's chain.
    let url = honest(made_up());
    let args = ["eth", "index", "build", &path, "--rpc", &url.url(), "--to", "17686152"];
    assert_eq!(discreet(&[&args[..], &more].concat()).code, YES);
    let append = ["eth", "index", "build", &path];
    // To replace the made-up blocks, it looks for the last common one, which this provider lacks.
    let words = ["the node does not have block 17686110"];
    light.fails(&append, &honest_archive(), &[], BAD_INPUT, &words);
    let info = run(&["eth", "index", "info", &path, "--json"]);
    let info: Value = serde_json::from_str(&info.stdout).expect("JSON");
    assert!(info.to_string().contains(&other), "{info:#}");
}

/// `--data` of an earlier `eth anchor sync`, without a beacon node.
#[test]
fn the_folder_of_an_earlier_sync() {
    let mut light = Light::new("light-folder");
    let data = light.folder.file("data");
    let keep = ["--data".to_owned(), data];
    let network = light.args[4..].to_vec();
    let before = [&network[..], &keep].concat();
    let [query, from] = [&QUERY[..], &["--from", "17686111"]];
    let more = [query, from].concat();
    let commands: [&[&str]; 3] =
        [&["eth", "audit"], &["eth", "scan"], &["eth", "follow", "--once", "--poll", "0.05"]];

    // Without a checkpoint, an empty folder is worth nothing.
    let with_server = std::mem::replace(&mut light.args, before);
    for command in commands {
        let words = ["no light client there yet", "--checkpoint"];
        light.fails(command, &honest_archive(), &more, USAGE, &words);
    }
    let args = [&["eth", "anchor", "sync"].map(str::to_owned)[..], &with_server, &keep].concat();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    assert_eq!(discreet(&args).code, YES);
    let asked = light.server.take_asked().len();
    assert!(asked > 0);

    for command in commands {
        let (lines, notes) = light.lines(command, &honest_archive(), &more, YES);
        let named = lines.iter().rev().find(|line| line["light_client"].is_object());
        let named = &named.unwrap_or_else(|| panic!("{command:?}: {notes}"))["light_client"];
        assert_eq!(named["finalized"]["execution"]["hash"], json!(final_block()), "{command:?}");
    }
    let index = light.folder.file("index");
    let build = ["eth", "index", "build", &index, "--from", "17686111", "--label", "test"];
    let (lines, _) = light.lines(&build, &honest_archive(), &[], YES);
    assert_eq!(lines.last().expect("a summary")["last_hash"], json!(final_block()));
    // The beacon node was not asked again, and a provider of another chain is refused as before.
    assert_eq!(light.server.take_asked().len(), 0);
    let (json, _) = light.audit(&honest(made_up()), &[], UNDECIDED);
    assert_eq!((&json["status"], &json["anchored_to"]), (&json!("undecided"), &Value::Null));
}

#[test]
fn a_follower() {
    let light = Light::new("light-follow");
    let follow = ["eth", "follow", "--from", "17686111", "--once", "--poll", "0.05"];
    let server = honest_archive();
    let (lines, _) = light.lines(&follow, &server, &QUERY, YES);
    assert_eq!(lines[0]["kind"], "follow");
    let execution = &lines[0]["light_client"]["finalized"]["execution"];
    assert_eq!((&execution["number"], &execution["hash"]), (&json!(FINAL), &json!(final_block())));
    let warnings = lines[0]["warnings"].to_string();
    assert!(!warnings.contains("--anchor") && !warnings.contains("claims"), "{warnings}");
    let anchors: Vec<_> = lines.iter().filter(|line| line["kind"] == "anchor").collect();
    let [reached] = anchors[..] else { panic!("{anchors:?}") };
    assert_eq!((&reached["number"], &reached["hash"]), (&json!(FINAL), &json!(final_block())));
    let logs = lines.iter().filter(|line| line["kind"] == "log");
    let logs: Vec<_> = logs.map(|line| (&line["blockHash"], &line["logIndex"])).collect();
    let expected = answer();
    let expected: Vec<_> =
        expected.iter().map(|log| (&log["blockHash"], &log["logIndex"])).collect();
    assert_eq!(logs, expected);

    // A provider of another chain.
    let output = light.run(&follow, &honest(made_up()), &[&QUERY[..], &["--json"]].concat());
    assert_eq!(output.code, UNDECIDED, "{}{}", output.stdout, output.stderr);
    assert!(output.stderr.contains(&final_block()), "{}", output.stderr);
    assert!(!output.stdout.contains("\"kind\":\"log\""), "{}", output.stdout);
}

/// A later run takes as its anchor what is finalised then.
#[test]
fn a_follower_starts_from_the_block_that_is_final_then() {
    let mut light = Light::new("light-follow-newer");
    let first = light.server.clone();
    let follow = ["eth", "follow", "--from", "17686111", "--once", "--poll", "0.05"];
    let (lines, _) = light.lines(&follow, &honest_archive(), &QUERY, YES);
    let number =
        |lines: &[Value]| lines[0]["light_client"]["finalized"]["execution"]["number"].clone();
    assert_eq!(number(&lines), FINAL);
    first.set(light.blocks.finalise(&block(FINAL + 2).header));
    let (lines, _) = light.lines(&follow, &honest_archive(), &QUERY, YES);
    assert_eq!(number(&lines), FINAL + 2);
    let anchors = lines.iter().filter(|line| line["kind"] == "anchor");
    assert_eq!(anchors.map(|line| &line["number"]).collect::<Vec<_>>(), [FINAL + 2]);
}

/// `eth anchor sync --optimistic`: the newest signed block is shown beside the finalised one.
#[test]
fn the_newest_signed_block() {
    let light = Light::new("light-optimistic");
    let data = light.folder.file("data");
    let sync = ["eth", "anchor", "sync", "--data", &data, "--json"];
    let args: Vec<_> = sync.into_iter().chain(light.args.iter().map(String::as_str)).collect();
    let read = |more: &[&str]| {
        let output = discreet(&[&args[..], more].concat()).exits(YES);
        serde_json::from_str::<Value>(&output.stdout).expect("JSON")
    };
    let stored = || fs::read(light.folder.file("data/light-client.json")).expect("stored");
    let plain = read(&[]);
    assert_eq!(
        (&plain["finalized"]["execution"]["number"], &plain["optimistic"]),
        (&json!(FINAL), &Value::Null)
    );
    let before = stored();
    let more = read(&["--optimistic"]);
    assert_eq!(more["finalized"], plain["finalized"]);
    let (newest, last) = (&more["optimistic"], light.blocks.newest_signed());
    assert_eq!(newest["slot"], last);
    assert!(more["finalized"]["slot"].as_u64().expect("a slot") < last);
    assert_eq!(newest["grade"], "optimistic");
    // What is not final is not worth a write.
    assert_eq!(stored(), before);
    let text = discreet(&[&args[..5], &args[6..], &["--optimistic"]].concat()).stdout;
    assert!(text.contains("newest signed"), "{text}");
}

#[test]
fn a_network_of_another_chain_is_a_slip() {
    let light = Light::new("light-network");
    let other = provider(chain().0, |_, method, _| {
        (method == "eth_chainId").then(|| Ok(json!("0xaa36a7")))
    });
    let url = other.url();
    let args = ["eth", "audit", "--rpc", &url, "--from", "17686111", "--retries", "0"];
    let beacon = ["--beacon", light.server.url(), "--checkpoint", &final_block()];
    let output = discreet(&[&args[..], &QUERY, &beacon].concat()).exits(USAGE);
    assert!(output.stderr.contains("--network is another chain than the provider's"));
}

/// Links one block, writes the links, and verifies the file.
#[test]
fn one_block_by_its_number() {
    let light = Light::new("light-header");
    let header = |number: &str, server: &Server, more: &[&str], code: i32| {
        light.lines(&["eth", "anchor", "header", number], server, more, code).0.remove(0)
    };
    let out = light.folder.file("links.json");
    let json = header("17,686,112", &honest_archive(), &["--out", &out], YES);
    assert_eq!((&json["status"], &json["number"]), (&json!("proven"), &json!(END)));
    assert_eq!((&json["hash"], &json["by"]), (&json!(anchor()), &json!(["history contract"])));
    assert_eq!((&json["grade"], &json["out"]), (&json!("history_of_finalized"), &json!(out)));
    let near = (FINAL - 2).to_string();
    let json = header(&near, &honest_archive(), &[], YES);
    assert_eq!(json["by"], json!(["2 parent hashes"]));
    assert_eq!(json["hash"], json!(block(FINAL - 2).hash));
    let json = header(&FINAL.to_string(), &honest_archive(), &[], YES);
    assert_eq!((&json["grade"], &json["hash"]), (&json!("finalized"), &json!(final_block())));

    // A header is compared with the block that is linked.
    let own = light.folder.write("own.rlp", block(END).header);
    assert_eq!(header(&own, &honest_archive(), &[], YES)["expected"], json!(anchor()));
    let other = made_up().blocks.remove(1);
    let file = light.folder.write("other.rlp", other.header);
    let json = header(&file, &honest_archive(), &[], WRONG);
    assert_eq!((&json["expected"], &json["hash"]), (&json!(other.hash), &json!(anchor())));
    let json = header(&LATEST.to_string(), &honest_archive(), &[], UNDECIDED);
    assert!(text(&json["why"]).contains("after the finalised block, 17686152"), "{json:#}");

    // A proof that does not hold, and headers that are too many.
    let forged = || archive(|method, _| (method == "eth_getProof").then(|| Ok(json!([]))));
    let json = header("17686112", &forged(), &[], YES);
    assert_eq!((&json["by"], &json["hash"]), (&json!(["40 parent hashes"]), &json!(anchor())));
    let json = header("17686112", &forged(), &["--max-headers", "39"], UNDECIDED);
    for words in
        ["only 40 headers lead to block 17686112", "--max-headers raises the limit", "eth_getProof"]
    {
        assert!(text(&json["why"]).contains(words), "{json:#}");
    }
    // A stranger verifies the file, with their own light client and without a provider.
    let recheck = |links: &str| {
        let args = light.args.iter().map(String::as_str);
        let args: Vec<_> = ["eth", "anchor", "header", links].into_iter().chain(args).collect();
        let output = run(&[&args[..], &["--json"]].concat());
        let json: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        (output.code, json)
    };
    let (code, json) = recheck(&out);
    assert_eq!((code, &json["hash"], &json["number"]), (YES, &json!(anchor()), &json!(END)));
    let whole = fs::read_to_string(&out).expect("written");
    let changed = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        let file = light.folder.write("changed.json", whole.replace(from, to));
        let (code, json) = recheck(&file);
        (code, json["status"].clone())
    };
    let number = |number: u64| format!("\"number\":{number}");
    assert_eq!(changed(&number(END), &number(END - 1)), (WRONG, json!("wrong")));
    assert_eq!(changed(&final_block(), &anchor()).0, UNDECIDED);
    assert_eq!(changed("\"links\":[{", "\"links\":[7,{").0, BAD_INPUT);
    // A light client that knows another block does not decide.
    let mut light = light;
    light.server.set(light.blocks.finalise(&block(FINAL + 1).header));
    let args = light.args.iter().map(String::as_str);
    let args: Vec<_> = ["eth", "anchor", "header", &out].into_iter().chain(args).collect();
    let output = run(&args);
    assert_eq!(output.code, UNDECIDED, "{}", output.stdout);
    assert!(output.stdout.contains(&block(FINAL + 1).hash), "{}", output.stdout);
}
