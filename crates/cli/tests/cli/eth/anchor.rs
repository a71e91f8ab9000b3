//! Tests of `eth anchor verify`: each verdict, on a real checkpoint of mainnet, on recorded objects of
//! each fork, and on the official cases.

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

/// Writes the bootstrap, the update and the finality update of the fixture as SSZ into a folder.
pub(crate) fn write_objects(folder: &Folder) -> [String; 3] {
    let fixture = eth_fixture("anchor_mainnet.json");
    NAMES.map(|name| folder.write(&format!("{name}.ssz"), bytes(&fixture[name])))
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
}

impl Objects {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let fixture = eth_fixture("anchor_mainnet.json");
        assert_eq!(fixture["checkpoint"], CHECKPOINT);
        Self { files: write_objects(&folder), folder, fixture }
    }

    fn ssz(&self, name: &str) -> Vec<u8> {
        bytes(&self.fixture[name])
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

/// The files may be given in any order, and in any form.
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
    let hex = NAMES.map(|name| objects.folder.write(name, hex::encode(objects.ssz(name))));
    let hex = hex.each_ref().map(String::as_str);
    assert_eq!(parts(&json_of(&verify(&hex), YES)), parts(&expected));
    // The finality update as an argument, and from standard input.
    let argument = hex::encode(objects.ssz("finality_update"));
    let json = json_of(&verify(&[a, b, &argument]), YES);
    assert_eq!(parts(&json), parts(&expected));
    let args = [&verify(&[a, b, "-"])[..], &["--json"]].concat();
    let piped = run_with(&args, &objects.ssz("finality_update"));
    assert_eq!(piped.code, YES, "{}", piped.stderr);
    assert_eq!(parts(&serde_json::from_str(&piped.stdout).expect("JSON")), parts(&expected));
    fails(&verify(&["-", "-"]), b"", USAGE, &["only once"]);

    let [bootstrap, update, finality] = NAMES.map(|name| json_of_ssz(name, &objects.ssz(name)));
    let list = json!([update]);
    let write = |name: &str, json: &Value| objects.folder.write(name, format!("\u{feff} {json}"));
    let files = [
        write("bootstrap.json", &bootstrap),
        write("updates.json", &list),
        write("finality.json", &finality),
    ];
    let files = files.each_ref().map(String::as_str);
    let json = json_of(&verify(&files), YES);
    assert_eq!(parts(&json), parts(&expected));
    let row = &json["objects"][1];
    assert_eq!((&row["format"], &row["index"]), (&json!("json"), &json!(0)));
    let single = write("update.json", &update);
    let json = json_of(&verify(&[files[0], &single, c]), YES);
    assert_eq!((parts(&json), &json["objects"][1]["index"]), (parts(&expected), &Value::Null));
    // The same bytes as chunks, as a server answers with SSZ.
    let ssz = objects.ssz("update");
    let digest = hex::decode("8c9f62fe").expect("hex");
    let length = (ssz.len() as u64 + 4).to_le_bytes();
    let chunk = [&length[..], &digest, &ssz].concat();
    let chunks = objects.folder.write("chunks.ssz", [&chunk[..], &chunk].concat());
    let json = json_of(&verify(&[a, &chunks, c]), YES);
    assert_eq!(parts(&json), parts(&expected));
    assert_eq!(results(&json), ["accepted", "accepted", "older", "accepted"]);
    let cut = objects.folder.write("cut.ssz", &chunk[..chunk.len() - 1]);
    let words = ["cut.ssz", "update 0 of the answer", "26929 bytes, expected 26930"];
    fails(&verify(&[a, &cut, c]), b"", BAD_INPUT, &words);
    let other = [&length[..], &[1, 2, 3, 4], &ssz].concat();
    let other = objects.folder.write("other.ssz", other);
    let words = ["other.ssz", "fork digest 0x01020304 is unknown on this network"];
    fails(&verify(&[a, &other, c]), b"", BAD_INPUT, &words);
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
    let json = verdict(&args, WRONG, "wrong", &["bootstrap.ssz", CHECKPOINT, other]);
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
    let damaged = |name: &str, at: usize| {
        let mut ssz = objects.ssz(name);
        ssz[at] ^= 4;
        objects.folder.write("damaged.ssz", ssz)
    };
    // The places of a key, the signature, the signature slot, and the finalised execution hash.
    let key = damaged("bootstrap", 5_000);
    let words = ["damaged.ssz", "the branch of the sync committee is wrong"];
    verdict(&verify(&[&key, finality]), WRONG, "wrong", &words);
    let signature = damaged("finality_update", 400 - 8 - 50);
    let words = ["damaged.ssz", "the signature is not by the 511 members"];
    verdict(&verify(&[bootstrap, &signature]), WRONG, "wrong", &words);
    let args = [&VERIFY[..], &[bootstrap, &signature, "--at", AT]].concat();
    verdict(&args, WRONG, "wrong", &["it, or the bootstrap, is false"]);
    let length = objects.ssz("finality_update").len();
    let extra_data = damaged("finality_update", length - 1);
    let words = ["finalised header: the execution branch of the header of slot 14017952"];
    verdict(&verify(&[bootstrap, &extra_data]), WRONG, "wrong", &words);
    let next_key = damaged("update", 5_000);
    let words = ["the branch of the next sync committee is wrong"];
    verdict(&verify(&[bootstrap, &next_key]), WRONG, "wrong", &words);

    for (name, others) in [
        ("bootstrap", [update, finality]),
        ("update", [bootstrap, finality]),
        ("finality_update", [bootstrap, update]),
    ] {
        let ssz = objects.ssz(name);
        let check = |what: &str, bytes: &[u8]| {
            let file = objects.folder.write("hostile.ssz", bytes);
            let output = run(&verify(&[others[0], others[1], &file]));
            let code = output.code;
            let is_refused = [WRONG, UNDECIDED, BAD_INPUT].contains(&code);
            assert!(is_refused, "{name}, {what}: {code}\n{}", output.stdout);
            assert!(!output.stderr.contains("panicked"), "{name}, {what}: {}", output.stderr);
        };
        let length = ssz.len();
        for cut in [1, 2, 3, 4, 8, 12, 100, length / 2, length - 40, length - 2, length - 1] {
            check(&format!("{cut} bytes"), &ssz[..cut]);
        }
        for at in [0, 3, 4, 100, 200, 300, 390, length / 2, length - 300, length - 40] {
            let mut damaged = ssz.clone();
            damaged[at] ^= 0x10;
            check(&format!("byte {at}"), &damaged);
        }
        check("more", &[&ssz[..], &[0; 33]].concat());
        check("twice", &[&ssz[..], &ssz].concat());
    }
}

#[test]
fn malformed_inputs_are_named() {
    let objects = Objects::new("anchor-malformed");
    let [bootstrap, update, finality] = objects.all();
    let refused = |name: &str, contents: &[u8], words: &[&str]| {
        let file = objects.folder.write(name, contents);
        let args = verify(&[bootstrap, &file]);
        fails(&args, b"", BAD_INPUT, &[&["light-client object", name], words].concat());
    };
    let words = ["26918 bytes are neither a bootstrap nor an update of deneb, in SSZ"];
    let args = |fork: &'static str| {
        let mut args = verify(&[update, bootstrap]);
        args.extend(["--fork", fork]);
        args
    };
    fails(&args("deneb"), b"", BAD_INPUT, &words);
    fails(&args("gloas"), b"", BAD_INPUT, &["update.ssz"]);
    fails(&args("phase0"), b"", USAGE, &["possible values"]);
    for fork in ["electra", "fulu"] {
        verdict(&args(fork), YES, "proven", &[]);
    }
    let ssz = objects.ssz("finality_update");
    refused("short.ssz", &ssz[..1500], &["of any fork", "execution header: 1 bytes"]);
    refused("long.ssz", &[&ssz[..], &[0; 33]].concat(), &["extra data", "at most 32"]);
    refused("zeros.ssz", &[0; 1000], &["1000 bytes are neither"]);
    refused("text.hex", b"what is this", &["not hex"]);
    refused("empty.ssz", b"", &["empty"]);
    refused(
        "error.json",
        br#"{"code":404,"message":"LC bootstrap unavailable"}"#,
        &["the server answered with an error: \"LC bootstrap unavailable\""],
    );
    refused("other.json", br#"{"version":"fulu"}"#, &["the member data is missing"]);
    refused("block.json", br#"{"version":"fulu","data":{"message":{}}}"#, &["neither a bootstrap"]);
    refused("list.json", br#"{"version":"fulu","data":[]}"#, &["a light-client object"]);
    refused("cut.json", br#"[{"version":"fulu","data":{"#, &["line 1"]);
    let finality_json = json_of_ssz("finality_update", &ssz);
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
    // The objects that the demo prints lead to the same block.
    let folder = Folder::new("anchor-demo");
    let [first, second] = [0, 1].map(|index| text(&finality["updates"][index]));
    let names = [("b", text(&finality["bootstrap"])), ("u", first), ("f", second)];
    let [a, b, c] = names.map(|(name, hex)| folder.write(name, hex));
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

/// Recorded objects of mainnet from Bellatrix to Fulu, from checkpoints to the newest block.
#[test]
fn recorded_objects_of_each_fork() {
    let Some((root, index)) = testkit::corpus::index("anchors") else { return };
    let folder = root.join("light_client");
    let entry = |name: &str| {
        let file = format!("light_client/{name}");
        index.iter().find(|entry| entry["file"] == file).unwrap_or_else(|| panic!("{name}"))
    };
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let runs: [(&str, &[&str], i32, u64); 9] = [
        (
            "bellatrix/bootstrap_4700000",
            &["bellatrix/update_574", "bellatrix/update_573"],
            UNDECIDED,
            0,
        ),
        ("capella/bootstrap_6718368", &["capella/optimistic_6718464"], YES, 6_718_368),
        ("capella/bootstrap_6718368", &["capella/finality_6718464"], YES, 6_718_368),
        (
            "deneb/bootstrap_10248000",
            &[
                "deneb/optimistic_10248458",
                "deneb/finality_10248454",
                "deneb/update_1251",
                "deneb/update_1250",
            ],
            YES,
            10_248_384,
        ),
        ("deneb/bootstrap_11640864", &["deneb/update_1421"], YES, 11_640_928),
        (
            "electra/bootstrap_11649056",
            &["electra/optimistic_derived_11650269", "electra/update_1422"],
            YES,
            11_651_008,
        ),
        ("electra/bootstrap_12890400", &["electra/update_1573"], YES, 12_890_400),
        (
            "fulu/bootstrap_14017856",
            &["fulu/update_1711", "fulu/finality_14018020"],
            YES,
            14_017_952,
        ),
        ("fulu/bootstrap_14017856", &["fulu/finality_15308190"], UNDECIDED, 0),
    ];
    for (bootstrap, updates, code, finalized) in runs {
        let name = |name: &str| format!("mainnet/{name}.ssz");
        let checkpoint = text(&entry(&name(bootstrap))["block_root"]);
        let mut files: Vec<_> = updates.iter().map(|update| path(&name(update))).collect();
        files.push(path(&name(bootstrap)));
        let args: Vec<_> = files.iter().map(String::as_str).collect();
        let args = [&VERIFY[..], &args, &["--checkpoint", checkpoint]].concat();
        let json = json_of(&args, code);
        if code == YES {
            assert_eq!(json["finalized"]["slot"], finalized, "{bootstrap} {updates:?}");
        }
        let objects = json["objects"].as_array().expect("objects");
        assert_eq!(objects.len(), files.len());
        for object in objects {
            let path = PathBuf::from(text(&object["file"]));
            let file = path.strip_prefix(&folder).expect("below").to_str().expect("text");
            let entry = entry(file);
            let kind = text(&entry["kind"]).trim_start_matches("light-client ");
            assert!(text(&object["object"]).starts_with(kind), "{file}: {}", object["object"]);
            for (member, expected) in
                [("fork", "fork"), ("slot", "slot"), ("signed", "participants")]
            {
                assert_eq!(object[member], *entry.get(expected).unwrap_or(&Value::Null), "{file}");
            }
        }
        let found = [&json["finalized"]["execution"], &json["optimistic"]["execution"]];
        for (found, member) in found.into_iter().zip(["finalized_execution", "attested_execution"])
        {
            let last = updates.iter().map(|update| entry(&name(update))).find_map(|entry| {
                entry.get(member).filter(|expected| expected["hash"] == found["hash"])
            });
            let is_of_checkpoint = json["finalized"]["evidence"] == "checkpoint";
            let has_expected = last.is_some() || found.is_null() || is_of_checkpoint;
            assert!(has_expected, "{bootstrap} {updates:?} {member}: {found}");
        }
    }
}

/// The same objects in JSON and in SSZ, and two answers of 14 updates each.
#[test]
fn answers_of_servers() {
    let Some((root, index)) = testkit::corpus::index("anchors") else { return };
    let path = |name: &str| root.join("light_client").join(name).to_str().expect("text").to_owned();
    let run_of = |checkpoint: &str, files: &[String]| {
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        verdict(
            &[&VERIFY[..], &files, &["--checkpoint", checkpoint, "--at", "2027-01-01"]].concat(),
            YES,
            "proven",
            &[],
        )
    };
    let checkpoint = eth_fixture("anchor_mainnet.json")["checkpoint"].clone();
    let json =
        ["bootstrap", "updates", "finality"].map(|name| path(&format!("rest/fulu_{name}.json")));
    let ssz = ["bootstrap_14017856", "update_1711", "finality_14018020"]
        .map(|name| path(&format!("mainnet/fulu/{name}.ssz")));
    let [json, ssz] = [json, ssz].map(|files| {
        let mut found = run_of(text(&checkpoint), &files);
        for object in found["objects"].as_array_mut().expect("objects") {
            let object = object.as_object_mut().expect("an object");
            object.retain(|name, _| !["file", "format", "index"].contains(&name.as_str()));
        }
        found
    });
    assert_eq!(json, ssz);

    let bootstrap = "mainnet/deneb/bootstrap_11296800.ssz";
    let file = format!("light_client/{bootstrap}");
    let entry = index.iter().find(|entry| entry["file"] == file).expect("a bootstrap");
    let files = [
        path("rest/updates_1393_count_14.ssz"),
        path(bootstrap),
        path("rest/updates_1379_count_14.ssz"),
    ];
    let found = run_of(text(&entry["block_root"]), &files);
    assert_eq!(results(&found), ["accepted"; 29]);
    assert_eq!(found["committee_period"], 1407);
    assert_eq!(found["objects"][28]["index"], 13);
    // Without the first answer, no committee of the second one is known.
    let args =
        [&VERIFY[..], &[&files[0], &files[1]], &["--checkpoint", text(&entry["block_root"])]];
    let words = ["[0]: signed in period 1393", "committees of periods 1379 to 1379"];
    verdict(&args.concat(), UNDECIDED, "undecided", &words);
}

/// Official cases of each fork on a network from a file, those of Gloas included.
#[test]
fn official_cases() {
    let Some((root, index)) = testkit::corpus::index("anchors") else { return };
    let mut cases = 0;
    let mut lagging = 0;
    for entry in index.iter().filter(|entry| entry["kind"] == "sync case") {
        let name = text(&entry["file"]);
        let path = root.join(name);
        let case: Value = serde_json::from_slice(&fs::read(&path).expect("a case")).expect("JSON");
        let steps = case["steps"].as_array().expect("steps");
        // The command forces no update.
        if steps.iter().any(|step| step["op"] == "force_update") {
            continue;
        }
        let folder = Folder::new(&format!("anchor-case-{cases}"));
        let mut network = json!({
            "name": case["name"],
            "preset": case["preset"],
            "genesis_time": 1000,
            "genesis_validators_root": case["genesis_validators_root"],
            "forks": case["forks"],
            "blob_schedule": case["blob_schedule"],
        });
        if let Some(blobs) = case["max_blobs_per_block_electra"].as_u64() {
            network["max_blobs_per_block_electra"] = blobs.into();
        }
        let network = folder.write("network.json", network.to_string());
        let file = |entry: &Value| {
            let path = path.with_file_name(text(&entry["file"]));
            path.to_str().expect("text").to_owned()
        };
        let updates = steps.iter().filter(|step| step["op"] == "process_update");
        let mut files: Vec<_> = updates.map(file).collect();
        files.push(file(&case["bootstrap"]));
        let args: Vec<_> = files.iter().map(String::as_str).collect();
        let (checkpoint, at) = (text(&case["trusted_block_root"]), "9999");
        let args =
            [&VERIFY[..], &args, &["--checkpoint", checkpoint, "--network", &network, "--at", at]];
        let output = run(&[&args.concat()[..], &["--json"]].concat());
        let json: Value = serde_json::from_str(&output.stdout).expect(&output.stderr);
        let expected = &steps.last().expect("a step")["expect"]["finalized_header"];
        let finalized = &json["finalized"];
        assert_eq!(
            (&finalized["slot"], &finalized["root"]),
            (&expected["slot"], &expected["beacon_root"]),
            "{name}"
        );
        let is_bound = finalized["execution"].is_object();
        assert_eq!(output.code, if is_bound { YES } else { UNDECIDED }, "{name}: {json:#}");
        if finalized["execution"]["lags"] == true {
            assert_eq!(finalized["execution"]["hash"], expected["execution_root"], "{name}");
            assert_eq!(finalized["execution"]["number"], Value::Null, "{name}");
            let page = run(&args.concat()).stdout;
            assert!(page.contains("of the last execution block before the beacon block"), "{page}");
            lagging += 1;
        }
        cases += 1;
    }
    assert!(cases >= 20 && lagging >= 2, "{cases} cases, {lagging} of Gloas");
}

/// Converts SSZ of Fulu to JSON of the Beacon API.
fn json_of_ssz(kind: &str, ssz: &[u8]) -> Value {
    let mut fields = Fields { rest: ssz };
    let u32_at =
        |at: usize| u32::from_le_bytes(ssz[at..at + 4].try_into().expect("4 bytes")) as usize;
    let data = if kind == "bootstrap" {
        fields.bytes(4);
        let (keys, branch) = (fields.committee(), fields.branch(6));
        json!({
            "header": header_json(&ssz[u32_at(0)..]),
            "current_sync_committee": keys,
            "current_sync_committee_branch": branch,
        })
    } else {
        fields.bytes(4);
        let next = (kind == "update").then(|| (fields.committee(), fields.branch(6)));
        let finalized = u32_at(ssz.len() - fields.rest.len());
        fields.bytes(4);
        let finality_branch = fields.branch(7);
        let (bits, signature) = (fields.hex(64), fields.hex(96));
        let mut data = json!({
            "attested_header": header_json(&ssz[u32_at(0)..finalized]),
            "finalized_header": header_json(&ssz[finalized..]),
            "finality_branch": finality_branch,
            "sync_aggregate": {
                "sync_committee_bits": bits,
                "sync_committee_signature": signature,
            },
            "signature_slot": fields.number(),
        });
        if let Some((keys, branch)) = next {
            data["next_sync_committee"] = keys;
            data["next_sync_committee_branch"] = branch;
        }
        data
    };
    json!({ "version": "fulu", "data": data })
}

fn header_json(ssz: &[u8]) -> Value {
    let mut fields = Fields { rest: ssz };
    let beacon = json!({
        "slot": fields.number(),
        "proposer_index": fields.number(),
        "parent_root": fields.hex(32),
        "state_root": fields.hex(32),
        "body_root": fields.hex(32),
    });
    fields.bytes(4);
    let branch = fields.branch(4);
    let mut execution = json!({});
    for (name, length) in [
        ("parent_hash", 32),
        ("fee_recipient", 20),
        ("state_root", 32),
        ("receipts_root", 32),
        ("logs_bloom", 256),
        ("prev_randao", 32),
    ] {
        execution[name] = fields.hex(length);
    }
    for name in ["block_number", "gas_limit", "gas_used", "timestamp"] {
        execution[name] = fields.number();
    }
    fields.bytes(4);
    let fee = fields.bytes(32);
    assert!(fee[8..].iter().all(|byte| *byte == 0));
    execution["base_fee_per_gas"] = Fields { rest: fee }.number();
    for name in ["block_hash", "transactions_root", "withdrawals_root"] {
        execution[name] = fields.hex(32);
    }
    for name in ["blob_gas_used", "excess_blob_gas"] {
        execution[name] = fields.number();
    }
    execution["extra_data"] = json!(hex0x(fields.rest));
    json!({ "beacon": beacon, "execution": execution, "execution_branch": branch })
}

/// The fields of a container that are left.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        bytes
    }

    fn hex(&mut self, length: usize) -> Value {
        json!(hex0x(self.bytes(length)))
    }

    fn number(&mut self) -> Value {
        let bytes = self.bytes(8).try_into().expect("8 bytes");
        json!(u64::from_le_bytes(bytes).to_string())
    }

    fn branch(&mut self, depth: usize) -> Value {
        (0..depth).map(|_| self.hex(32)).collect()
    }

    fn committee(&mut self) -> Value {
        let keys: Vec<_> = (0..512).map(|_| self.hex(48)).collect();
        json!({ "pubkeys": keys, "aggregate_pubkey": self.hex(48) })
    }
}
