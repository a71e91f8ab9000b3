//! Tests of `eth anchor verify`: each verdict, on a real checkpoint of mainnet. Objects of other forks and
//! the official cases are tested with the library.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::links::{Link, Links, Origin};
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, Event, LightClient, Update, UpdateKind};
use testkit::eth::beacon_server::{BeaconData, BeaconServer, Quirk};

use super::*;
use crate::cf::Folder;

/// The slot of the signature of the finality update, as a time.
pub(crate) const AT: &str = "1775040263";
const SIGNATURE_SLOT: u64 = 14_018_020;
const VERIFY: [&str; 3] = ["eth", "anchor", "verify"];

/// The checkpoint of `fixtures/ethereum/anchor_mainnet.json`.
pub(crate) const CHECKPOINT: &str =
    "0x9bcb90ec3a294591b77dd2a58e973578715cdc0e6eeeb286bc06dd120057f18b";
const NAMES: [&str; 3] = ["bootstrap", "update", "finality_update"];

/// Writes the bootstrap, the update and the finality update of the fixture into a folder.
pub(crate) fn write_objects(folder: &Folder) -> [String; 3] {
    let answers = eth_fixture("anchor_mainnet_answers.json");
    NAMES.map(|name| folder.write(&format!("{name}.json"), answer_in(&answers, name).to_string()))
}

/// Returns an object of the fixture: the update is in a list.
fn answer_in<'a>(answers: &'a Value, name: &str) -> &'a Value {
    if name == "update" { &answers["updates"][0] } else { &answers[name] }
}

/// A light client that knows the finalised block of the fixture, and servers of what it has learnt.
pub(crate) struct Known {
    network: Network,
    data: BeaconData,
    client: LightClient,
    header: Vec<u8>,
}

impl Known {
    pub(crate) fn new() -> Self {
        let fixture = eth_fixture("anchor_mainnet.json");
        let network = Network::mainnet();
        let (preset, fork) = (network.preset(), Fork::Fulu);
        let read = |name: &str, kind| {
            Update::from_ssz(&bytes(&fixture[name]), kind, fork, preset).expect("an update")
        };
        let bootstrap = bytes(&fixture["bootstrap"]);
        let bootstrap = Bootstrap::from_ssz(&bootstrap, fork, preset).expect("a bootstrap");
        let update = read("update", UpdateKind::Full);
        let finality = read("finality_update", UpdateKind::Finality);
        let now = network.time_of_slot(SIGNATURE_SLOT);
        let root = CHECKPOINT.parse().expect("a root");
        let mut client = LightClient::new(network.clone(), root, &bootstrap, now).expect("proven");
        for update in [&update, &finality] {
            client.handle(Event::Update(update), now).expect("valid");
        }
        let mut data = BeaconData::default();
        data.add_bootstrap(bootstrap);
        data.updates.insert(network.period_of_slot(update.attested.beacon.slot), update);
        data.finality = Some(finality);
        let header = bytes(&fixture["execution"]["header"]);
        Self { network, data, client, header }
    }

    /// Starts a server of the Beacon API.
    pub(crate) fn server(&self, quirk: Option<Quirk>) -> BeaconServer {
        BeaconServer::with(&self.network, self.data.clone(), quirk)
    }

    /// Writes the light client as `eth anchor sync` keeps it, and returns the folder.
    pub(crate) fn write(&self, folder: &Folder) -> String {
        let data = folder.path("light-client");
        fs::create_dir(&data).expect("a folder");
        let file = std::path::Path::new(&data).join("light-client.json");
        fs::write(file, self.client.to_json()).expect("written");
        data
    }

    /// Returns links to the finalised block: the block itself. A byte of the header may be changed,
    /// or the block from which the links start.
    pub(crate) fn links(&self, is_damaged: bool, is_of_another: bool) -> String {
        let mut header = self.header.clone();
        header[100] ^= u8::from(is_damaged);
        let mut origin = Origin::from(self.client.finalized());
        if is_of_another {
            origin.block_hash = Some(B256::repeat_byte(3));
        }
        let links = Links { links: vec![Link::Parents { headers: vec![header.into()] }] };
        json!({ "origin": origin, "links": links }).to_string()
    }
}

/// The objects of the fixture in files.
struct Objects {
    folder: Folder,
    files: [String; 3],
    fixture: Value,
    answers: Value,
}

impl Objects {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let fixture = eth_fixture("anchor_mainnet.json");
        assert_eq!(fixture["checkpoint"], CHECKPOINT);
        let answers = eth_fixture("anchor_mainnet_answers.json");
        Self { files: write_objects(&folder), folder, fixture, answers }
    }

    fn json(&self, name: &str) -> Value {
        answer_in(&self.answers, name).clone()
    }

    fn all(&self) -> [&str; 3] {
        self.files.each_ref().map(String::as_str)
    }
}

/// Returns a command that verifies files under the checkpoint, at the time of the last signature.
fn verify<'a>(files: &[&'a str]) -> Vec<&'a str> {
    [&VERIFY[..], files, &["--checkpoint", CHECKPOINT, "--at", AT]].concat()
}

/// Runs a command, and checks its exit code and the text of the reason.
fn verdict(args: &[&str], code: i32, status: &str, words: &[&str]) -> Value {
    let json = json_of(args, code);
    assert_eq!(json["status"], status, "{args:?}: {json:#}");
    assert_eq!(json["why"].is_null(), words.is_empty(), "{args:?}: {}", json["why"]);
    for word in words {
        assert!(text(&json["why"]).contains(word), "{args:?}: {}", json["why"]);
    }
    json
}

/// Returns the member `result` of each object.
fn results(json: &Value) -> Vec<&str> {
    json["objects"].as_array().expect("objects").iter().map(|it| text(&it["result"])).collect()
}

#[test]
fn a_checkpoint_leads_to_a_finalised_block() {
    let objects = Objects::new("anchor-proven");
    let json = verdict(&verify(&objects.all()), YES, "proven", &[]);
    let expected = &objects.fixture["execution"];
    let finalized = &json["finalized"];
    assert_eq!(finalized["slot"], objects.fixture["finalized_slot"]);
    assert_eq!(
        (&finalized["evidence"], &finalized["signed"], &finalized["of"], &finalized["grade"]),
        (&json!("finalized"), &json!(511), &json!(512), &json!("finalized"))
    );
    // The header is another encoding of the same block, with the same roots and the same filter.
    let header = json_of(&["eth", "header", text(&expected["header"])], YES);
    let (header, execution) = (&header["headers"][0], &finalized["execution"]);
    assert_eq!((&execution["hash"], &execution["lags"]), (&expected["hash"], &json!(false)));
    for field in [
        "hash",
        "number",
        "parent_hash",
        "timestamp",
        "state_root",
        "receipts_root",
        "gas_limit",
        "gas_used",
        "base_fee_per_gas",
        "extra_data",
    ] {
        assert_eq!(execution[field], header[field], "{field}");
    }
    assert_eq!(execution["logs_bloom"], header["logs_bloom"]["bytes"]);
    assert_eq!(execution["prev_randao"], header["mix_hash"]);
    let beneficiary = text(&header["beneficiary"]).to_lowercase();
    assert_eq!(text(&execution["fee_recipient"]).to_lowercase(), beneficiary);

    let checkpoint = &json["checkpoint"];
    assert_eq!(checkpoint["root"], json!(CHECKPOINT));
    assert_eq!((&checkpoint["given"], &checkpoint["stale"]), (&json!(true), &json!(false)));
    assert_eq!((&checkpoint["slot"], &checkpoint["age"]), (&json!(14_017_856), &json!(1_968)));
    assert_eq!(checkpoint["limit"], 3_532 * 32 * 12);
    assert_eq!(json["optimistic"]["slot"], SIGNATURE_SLOT - 1);
    assert_eq!(json["optimistic"]["grade"], "optimistic");
    assert_eq!((&json["network"], &json["at"]), (&json!("mainnet"), &json!(1_775_040_263)));
    assert_eq!(json["committee_period"], 1712);
    assert_eq!(results(&json), ["accepted"; 3]);
    let update = &json["objects"][1];
    let brought = ["object", "committee_period", "finalized_slot", "optimistic_slot", "signed"];
    assert_eq!(
        brought.map(|name| update[name].clone()),
        [json!("update"), json!(1712), Value::Null, Value::Null, json!(512)]
    );

    let page = run(&verify(&objects.all()));
    assert_eq!((page.code, page.stderr.as_str()), (YES, ""));
    for words in [
        "proven: execution block 24784163 is finalised, if the checkpoint is",
        "32 minutes old, not older than the weak-subjectivity period of 15.7 days",
        "finalised, signed by 511 of 512",
        "committee of period 1712",
        text(&expected["hash"]),
        "Not proven: full consensus",
    ] {
        assert!(page.stdout.contains(words), "{words}: {}", page.stdout);
    }
}

/// The files may be given in any order, and updates in a list.
#[test]
fn order_and_form_do_not_matter() {
    let objects = Objects::new("anchor-forms");
    let [a, b, c] = objects.all();
    let expected = json_of(&verify(&[a, b, c]), YES);
    for files in [[a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
        assert_eq!(json_of(&verify(&files), YES), expected, "{files:?}");
    }
    let parts = |json: &Value| {
        ["status", "finalized", "optimistic", "checkpoint", "committee_period"]
            .map(|name| json[name].clone())
    };
    // The finality update from standard input.
    let args = [&verify(&[a, b, "-"])[..], &["--json"]].concat();
    let piped = run_with(&args, objects.json("finality_update").to_string().as_bytes());
    assert_eq!(piped.code, YES, "{}", piped.stderr);
    assert_eq!(parts(&serde_json::from_str(&piped.stdout).expect("JSON")), parts(&expected));
    fails(&verify(&["-", "-"]), b"", USAGE, &["only once"]);
    // A list, as a server answers `updates`.
    let list = json!([objects.json("update"), objects.json("update")]);
    let list = objects.folder.write("updates.json", format!("\u{feff} {list}"));
    let json = json_of(&verify(&[a, &list, c]), YES);
    assert_eq!(parts(&json), parts(&expected));
    assert_eq!(results(&json), ["accepted", "accepted", "older", "accepted"]);
    let indices = [1, 2].map(|row: usize| json["objects"][row]["index"].clone());
    assert_eq!(indices, [json!(0), json!(1)]);
    assert_eq!(expected["objects"][1]["index"], Value::Null);
}

#[test]
fn every_outcome_has_its_exit_code() {
    let objects = Objects::new("anchor-outcomes");
    let [bootstrap, update, finality] = objects.all();
    let all = objects.all();
    let proven = |args: &[&str]| verdict(args, YES, "proven", &[]);
    // With the bootstrap alone, the block is that of the checkpoint, and nobody signed it.
    let json = proven(&verify(&[bootstrap]));
    let finalized = &json["finalized"];
    assert_eq!(
        (&finalized["evidence"], &finalized["grade"]),
        (&json!("checkpoint"), &json!("own_word"))
    );
    assert_eq!((&finalized["signed"], &json["committee_period"]), (&Value::Null, &json!(1711)));
    let page = run(&verify(&[bootstrap])).stdout;
    assert!(page.contains("is that of the checkpoint"), "{page}");
    // An update for the current period needs no other one.
    let json = proven(&verify(&[bootstrap, finality]));
    assert_eq!(json["finalized"]["slot"], objects.fixture["finalized_slot"]);
    // An object that brings nothing is no fault.
    let json = proven(&verify(&[bootstrap, finality, finality, update, update]));
    assert_eq!(results(&json), ["accepted", "accepted", "older", "accepted", "accepted"]);

    // Without a checkpoint, the same files prove nothing.
    let json = verdict(
        &[&VERIFY[..], &all, &["--at", AT]].concat(),
        UNDECIDED,
        "undecided",
        &["without --checkpoint", "proves nothing"],
    );
    assert_eq!(json["checkpoint"]["root"], json!(CHECKPOINT));
    assert_eq!(
        (&json["checkpoint"]["given"], &json["finalized"]["grade"]),
        (&json!(false), &Value::Null)
    );
    let page = run(&[&VERIFY[..], &all, &["--at", AT]].concat());
    assert!(page.stdout.starts_with("undecided: without --checkpoint"), "{}", page.stdout);
    assert!(page.stdout.contains("none: the checkpoint is not yours"), "{}", page.stdout);

    // Another root.
    let other = "0x0707070707070707070707070707070707070707070707070707070707070707";
    let args = [&VERIFY[..], &all, &["--checkpoint", other, "--at", AT]].concat();
    let json = verdict(&args, WRONG, "wrong", &["bootstrap.json", CHECKPOINT, other]);
    assert_eq!(results(&json), ["refused", "unchecked", "unchecked"]);
    assert_eq!((&json["finalized"], &json["checkpoint"]["slot"]), (&Value::Null, &Value::Null));

    // Before the checkpoint, and between the checkpoint and the signature.
    let with = |at: &str, code, status, words: &[&str]| {
        let args = [&VERIFY[..], &all, &["--checkpoint", CHECKPOINT, "--at", at]].concat();
        verdict(&args, code, status, words)
    };
    let json =
        with("2026-03-01", UNDECIDED, "undecided", &["the trusted block is of slot 14017856"]);
    assert_eq!(results(&json), ["undecided", "unchecked", "unchecked"]);
    let json = with("1775039000", UNDECIDED, "undecided", &["signed in slot 14018020"]);
    assert_eq!(results(&json), ["accepted", "accepted", "undecided"]);
    assert_eq!(json["finalized"]["evidence"], "checkpoint");
    // Seven months later, and with the clock of this machine.
    let json = with("2026-11-01", YES, "proven", &[]);
    assert_eq!(json["checkpoint"]["stale"], true);
    assert!(text(&json["warnings"][0]).contains("weak-subjectivity period of 15.7 days"));
    let now = [&VERIFY[..], &all, &["--checkpoint", CHECKPOINT]].concat();
    assert_eq!(proven(&now)["checkpoint"]["stale"], true);
    let page = run(&now);
    assert!(page.stderr.starts_with("warning: the checkpoint is "), "{}", page.stderr);
}

#[test]
fn damaged_files_are_never_proven() {
    let objects = Objects::new("anchor-damaged");
    let [bootstrap, update, finality] = objects.all();
    // Changes the last digit of a member.
    let damaged = |name: &str, pointer: &str| {
        let mut json = objects.json(name);
        let member = json.pointer_mut(pointer).expect("a member");
        let mut text = text(member).to_owned();
        let last = text.pop().expect("digits");
        text.push(if last == '0' { '1' } else { '0' });
        *member = json!(text);
        objects.folder.write("damaged.json", json.to_string())
    };
    let key = damaged("bootstrap", "/data/current_sync_committee/pubkeys/100");
    let words = ["damaged.json", "the branch of the sync committee is wrong"];
    verdict(&verify(&[&key, finality]), WRONG, "wrong", &words);
    let signature = damaged("finality_update", "/data/sync_aggregate/sync_committee_signature");
    let words = ["damaged.json", "the signature is not by the 511 members"];
    verdict(&verify(&[bootstrap, &signature]), WRONG, "wrong", &words);
    let args = [&VERIFY[..], &[bootstrap, &signature, "--at", AT]].concat();
    verdict(&args, WRONG, "wrong", &["it, or the bootstrap, is false"]);
    let extra_data = damaged("finality_update", "/data/finalized_header/execution/extra_data");
    let words = ["finalised header: the execution branch of the header of slot 14017952"];
    verdict(&verify(&[bootstrap, &extra_data]), WRONG, "wrong", &words);
    let next_key = damaged("update", "/data/next_sync_committee/pubkeys/100");
    let words = ["the branch of the next sync committee is wrong"];
    verdict(&verify(&[bootstrap, &next_key]), WRONG, "wrong", &words);

    for (name, others) in [
        ("bootstrap", [update, finality]),
        ("update", [bootstrap, finality]),
        ("finality_update", [bootstrap, update]),
    ] {
        let json = objects.json(name).to_string();
        let check = |what: &str, bytes: &[u8]| {
            let file = objects.folder.write("hostile.json", bytes);
            let output = run(&verify(&[others[0], others[1], &file]));
            let code = output.code;
            let is_refused = [WRONG, UNDECIDED, BAD_INPUT].contains(&code);
            assert!(is_refused, "{name}, {what}: {code}\n{}", output.stdout);
            assert!(!output.stderr.contains("panicked"), "{name}, {what}: {}", output.stderr);
        };
        let length = json.len();
        for cut in [1, 2, 3, 4, 8, 12, 100, length / 2, length - 40, length - 2, length - 1] {
            check(&format!("{cut} bytes"), &json.as_bytes()[..cut]);
        }
        for at in [0, 3, 4, 12, 16, 100] {
            let mut damaged = json.clone().into_bytes();
            damaged[at] ^= 0x10;
            check(&format!("byte {at}"), &damaged);
        }
        check("twice", [json.as_str(), &json].concat().as_bytes());
    }
}

#[test]
fn malformed_inputs_are_named() {
    let objects = Objects::new("anchor-malformed");
    let [bootstrap, _, finality] = objects.all();
    let refused = |name: &str, contents: &[u8], words: &[&str]| {
        let file = objects.folder.write(name, contents);
        let args = verify(&[bootstrap, &file]);
        fails(&args, b"", BAD_INPUT, &[&["light-client object", name], words].concat());
    };
    refused("raw.ssz", &[0xff; 1000], &["not text: only JSON is read, not SSZ"]);
    refused("text.json", b"what is this", &["line 1"]);
    refused("empty.json", b"", &["empty"]);
    refused(
        "error.json",
        br#"{"code":404,"message":"LC bootstrap unavailable"}"#,
        &["the server answered with an error: \"LC bootstrap unavailable\""],
    );
    refused("other.json", br#"{"version":"fulu"}"#, &["the member data is missing"]);
    refused("block.json", br#"{"version":"fulu","data":{"message":{}}}"#, &["neither a bootstrap"]);
    refused("list.json", br#"{"version":"fulu","data":[]}"#, &["a light-client object"]);
    refused("cut.json", br#"[{"version":"fulu","data":{"#, &["line 1"]);
    let finality_json = objects.json("finality_update");
    for fork in ["capella", "gloas", "phase0", "never"] {
        let mut other = finality_json.clone();
        other["version"] = json!(fork);
        refused("version.json", other.to_string().as_bytes(), &[]);
    }
    let mut cut = finality_json;
    cut["data"]["finality_branch"].as_array_mut().expect("a branch").pop();
    refused("branch.json", cut.to_string().as_bytes(), &["finality_branch: 6 values, expected 7"]);
    fails(&verify(&[finality]), b"", BAD_INPUT, &["a bootstrap is missing"]);
    fails(&verify(&[bootstrap, bootstrap]), b"", BAD_INPUT, &["two bootstraps"]);
    fails(&verify(&["/no/such/file"]), b"", BAD_INPUT, &["no such file"]);
    fails(&[&VERIFY[..], &[bootstrap, "--checkpoint", "0x12"]].concat(), b"", USAGE, &["32"]);
    fails(&[&VERIFY[..], &[bootstrap, "--at", "noon"]].concat(), b"", USAGE, &["YYYY-MM-DD"]);
    // An answer without updates is valid, and brings nothing.
    let none = objects.folder.write("none.json", "[]\n");
    let json = verdict(&verify(&[bootstrap, &none]), YES, "proven", &[]);
    assert_eq!(results(&json), ["accepted"]);
}

#[test]
fn networks_by_name_and_from_a_file() {
    let objects = Objects::new("anchor-networks");
    let all = objects.all();
    let base = verify(&all);
    let with = |network: &'static str| [&base[..], &["--network", network]].concat();
    // The slot is of another fork on Sepolia.
    verdict(&with("sepolia"), WRONG, "wrong", &["in gloas, is in a container of an earlier fork"]);
    fails(&with("goerli"), b"", USAGE, &["--network", "sepolia"]);
    let versions = ["phase0", "altair", "bellatrix", "capella", "deneb", "electra", "fulu"];
    let epochs = [0, 74_240, 144_896, 194_048, 269_568, 364_032, 411_392];
    let forks: Vec<_> = (0..)
        .zip(versions.iter().zip(epochs))
        .map(|(n, (name, epoch)): (u32, _)| {
            json!({ "name": name, "version": format!("0x0{n}000000"), "epoch": epoch })
        })
        .collect();
    let mut network = json!({
        "name": "copy",
        "preset": "mainnet",
        "genesis_time": 1_606_824_023,
        "genesis_validators_root": "0x4b363db94e286120d76eb905340fdd4e54bfe9f06bf33ff6cf5ad27f511bfe95",
        "forks": forks,
    });
    let file = objects.folder.write("network.json", network.to_string());
    let args = [&base[..], &["--network", &file]].concat();
    let json = verdict(&args, YES, "proven", &[]);
    assert_eq!((&json["network"], &json["checkpoint"]["limit"]), (&json!("copy"), &json!(98_304)));
    // Signatures of another chain are invalid, although all branches are right.
    network["genesis_validators_root"] = json!(B256::ZERO);
    objects.folder.write("network.json", network.to_string());
    verdict(&args, WRONG, "wrong", &["the signature is not by the 512 members"]);
    network["fork"] = json!([]);
    objects.folder.write("network.json", network.to_string());
    fails(&args, b"", BAD_INPUT, &["network.json", "unknown field `fork`"]);
}

#[test]
fn help_names_every_member() {
    let objects = Objects::new("anchor-help");
    let json = json_of(&verify(&objects.all()), YES);
    let help = run(&[&VERIFY[..], &["--help"]].concat()).stdout;
    let (_, members) = help.split_once("JSON: ").expect("the members");
    let words: Vec<_> = members.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut count = 0;
    let mut stack = vec![&json];
    while let Some(value) = stack.pop() {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    assert!(words.contains(&name.as_str()), "{name} is not in --help");
                    count += 1;
                    stack.push(value);
                }
            }
            Value::Array(values) => stack.extend(values),
            _ => {}
        }
    }
    assert!(count > 80, "{count}");
    for words in
        ["/eth/v1/beacon/headers/finalized", "two or three sources", "no default is built in"]
    {
        let one_line = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(one_line.contains(words), "{words}: {help}");
    }
}

#[test]
fn the_demo_ends_at_a_finalised_block() {
    let demo = json_of(&["demo"], YES);
    let finality = &demo["finality"];
    let fixture = eth_fixture("anchor_mainnet.json");
    assert_eq!(finality["checkpoint"], fixture["checkpoint"]);
    let header = text(&finality["header"]);
    assert_eq!(header.trim_start_matches("0x"), text(&fixture["execution"]["header"]));
    // The answers of a beacon node lead to the same block.
    let folder = Folder::new("anchor-demo");
    let [a, b, c] = write_objects(&folder);
    let checkpoint = text(&finality["checkpoint"]);
    let args = [&VERIFY[..], &[&a, &b, &c, "--checkpoint", checkpoint, "--at", AT]].concat();
    let json = verdict(&args, YES, "proven", &[]);
    assert_eq!(json["finalized"], finality["finalized"]);
    assert_eq!(
        keccak256(bytes(&finality["header"])).to_string(),
        json["finalized"]["execution"]["hash"]
    );
    let page = run(&["demo"]).stdout;
    assert!(
        page.contains("execution block 24,784,163 is finalised, if the checkpoint is"),
        "{page}"
    );
}
