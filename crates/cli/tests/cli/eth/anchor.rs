//! Tests of `eth anchor verify` on a real checkpoint of mainnet: the header that it proves, and damaged
//! objects. Objects of other forks and the official cases are tested with the library.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::links::{Link, Origin};
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, Event, LightClient, Update, UpdateKind};
use testkit::eth::beacon_server::{BeaconData, BeaconServer, Quirk};

use super::*;
use testkit::TestFolder;

/// The slot of the signature of the finality update, as a time.
pub(crate) const AT: &str = "1775040263";
const SIGNATURE_SLOT: u64 = 14_018_020;
const VERIFY: [&str; 3] = ["eth", "anchor", "verify"];

/// The checkpoint of `fixtures/ethereum/anchor_mainnet.json`.
pub(crate) const CHECKPOINT: &str =
    "0x9bcb90ec3a294591b77dd2a58e973578715cdc0e6eeeb286bc06dd120057f18b";
const NAMES: [&str; 3] = ["bootstrap", "update", "finality_update"];

/// Writes the bootstrap, the update and the finality update of the fixture into a folder.
pub(crate) fn write_objects(folder: &TestFolder) -> [String; 3] {
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
    pub(crate) fn write(&self, folder: &TestFolder) -> String {
        let data = folder.file("light-client");
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
        let links = vec![Link::Parents { headers: vec![header.into()] }];
        json!({ "origin": origin, "links": links }).to_string()
    }
}

/// The objects of the fixture in files.
struct Objects {
    folder: TestFolder,
    files: [String; 3],
    fixture: Value,
    answers: Value,
}

impl Objects {
    fn new(name: &str) -> Self {
        let folder = TestFolder::new(name);
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

#[test]
fn a_checkpoint_leads_to_a_finalised_block() {
    let objects = Objects::new("anchor-proven");
    let json = json_of(&verify(&objects.all()), YES);
    assert_eq!((&json["status"], &json["why"]), (&json!("proven"), &Value::Null));
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
}

#[test]
fn damaged_files_are_never_proven() {
    let objects = Objects::new("anchor-damaged");
    let [bootstrap, update, finality] = objects.all();
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
fn help_says_where_a_checkpoint_comes_from() {
    let help = run(&[&VERIFY[..], &["--help"]].concat()).stdout;
    let one_line = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in
        ["/eth/v1/beacon/headers/finalized", "two or three sources", "no default is built in"]
    {
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
    let folder = TestFolder::new("anchor-demo");
    let [a, b, c] = write_objects(&folder);
    let checkpoint = text(&finality["checkpoint"]);
    let args = [&VERIFY[..], &[&a, &b, &c, "--checkpoint", checkpoint, "--at", AT]].concat();
    let json = json_of(&args, YES);
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
