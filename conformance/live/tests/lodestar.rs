//! The light client of the beacon chain against that of Lodestar, over the same objects: honest
//! ones, copies in which one bit differs, and updates with parts of another update.
//!
//! The law is that chainsieve accepts nothing that Lodestar refuses, and that both believe the same
//! headers after what both accept. Lodestar accepts more: [`STRICTER`] lists for which reasons
//! chainsieve may refuse alone. Honest objects in their order are accepted by both.
//!
//! The forks are Altair to Fulu: this version of Lodestar does not know Gloas.
//!
//! `CHAINSIEVE_LODESTAR=COUNT` sets about how many copies with a flipped bit each of the two tests
//! makes: 2,000 by default, one of each field at least. With 80,000, the copies of mainnet's objects
//! cover each byte outside of the keys. More than one in each of these bytes is never made.

mod objects;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{
    Anchor, Bootstrap, BoundExecution, Event, LightClient, LightClientError, Update, UpdateKind,
};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use testkit::Rng;

use crate::harness::{Scene, live};
use crate::peers::{self, Need};
use objects::Object;

/// Number of copies with a flipped bit in a test, unless `CHAINSIEVE_LODESTAR` sets another.
const DAMAGED: usize = 2_000;

/// Reasons for which chainsieve refuses an update that Lodestar accepts, and the sentence of the
/// specification that asks for it: of `validate_light_client_update` in
/// `specs/altair/light-client/sync-protocol.md`.
const STRICTER: [(&str, &str); 3] = [
    (
        "not newer",
        "assert (update_attested_slot > store.finalized_header.beacon.slot or \
         update_has_next_sync_committee)",
    ),
    // Lodestar also keeps the committee of the period before that of its finalised header.
    (
        "committee of a past period",
        "assert update_signature_period in (store_period, store_period + 1)",
    ),
    // In the specification, an update whose finalised header is of the period before does not make
    // the next committee known (`update_has_finalized_next_sync_committee`). Lodestar takes its
    // committee over when an update of the next period comes.
    (
        "committee of a later period",
        "if is_next_sync_committee_known(store): ... else: assert update_signature_period == \
         store_period",
    ),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        live("lodestar_agrees_on_mainnet", &[Need::Lodestar], mainnet),
        live("lodestar_agrees_on_the_official_steps", &[Need::Lodestar], official_steps),
    ]
}

/// Runs over recorded objects of mainnet: a bootstrap, and updates that follow from it. The last one
/// is an update that was made so early that it does not move the committee.
const RUNS: [(&str, &[&str]); 11] = [
    ("bellatrix/bootstrap_4700000", &["bellatrix/update_573", "bellatrix/update_574"]),
    ("capella/bootstrap_6718368", &["capella/optimistic_6718464"]),
    ("capella/bootstrap_6718368", &["capella/finality_6718464"]),
    (
        "deneb/bootstrap_10248000",
        &[
            "deneb/update_1250",
            "deneb/update_1251",
            "deneb/finality_10248454",
            "deneb/optimistic_10248458",
        ],
    ),
    ("deneb/bootstrap_11624480", &["deneb/update_1419", "deneb/optimistic_derived_11635711"]),
    ("deneb/bootstrap_11640864", &["deneb/update_1421"]),
    ("electra/bootstrap_11649056", &["electra/optimistic_derived_11650269", "electra/update_1422"]),
    ("electra/bootstrap_12890400", &["electra/optimistic_derived_12890487"]),
    ("fulu/bootstrap_14017856", &["fulu/update_1711", "fulu/finality_14018020"]),
    // 28 updates of REST answers follow.
    ("deneb/bootstrap_11296800", &[]),
    ("electra/bootstrap_12890400", &["electra/update_1573"]),
];

fn mainnet(scene: &Scene) {
    let Some(corpus) = Corpus::open() else { return };
    let network = Network::mainnet();
    let mut questions = Questions::default();
    questions.network(&network, false);
    let objects = corpus.recorded(&network);
    let updates: Vec<&Object> = objects.values().filter(|object| object.kind.is_some()).collect();
    for update in &updates {
        questions.object(update);
    }
    let damaged = RUNS.iter().map(|(_, updates)| 1 + updates.len()).sum();
    let count = count().div_ceil(damaged);
    for (bootstrap, names) in RUNS {
        let bootstrap = &objects[bootstrap];
        let trusted = text(&corpus.files[&path_of(&bootstrap.name)]["block_root"]);
        let mut run = Run::start(&mut questions, &network, trusted, bootstrap);
        run.damage_bootstrap(bootstrap, count);
        let mut steps: Vec<Object> = names.iter().map(|name| objects[*name].clone()).collect();
        let is_recorded = !steps.is_empty();
        if !is_recorded {
            steps = corpus.rest_updates(&network);
        }
        for update in &steps {
            if is_recorded {
                run.damage_update(update, &updates, count);
            }
            run.take(update);
        }
        // All other updates, each alone: most are of unknown committees, some are not newer.
        for update in &updates {
            run.ask(update, None);
        }
    }
    let agreed = questions.compare(scene, &network);
    assert_eq!(agreed.honest, 11 + 17 + 28, "bootstraps, updates, updates of REST answers");
    let stricter: Vec<&str> = agreed.stricter.keys().map(String::as_str).collect();
    let mut known = STRICTER.map(|known| known.0);
    known.sort_unstable();
    assert_eq!(stricter, known, "each known reason, and no other");
    assert!(agreed.refused >= DAMAGED / 2, "{agreed:?}");
    assert!(agreed.accepted > 100, "{agreed:?}");
}

fn official_steps(scene: &Scene) {
    let Some(corpus) = Corpus::open() else { return };
    let mut cases: Vec<Case> = Vec::new();
    for (name, entry) in &corpus.files {
        if entry["kind"] == "sync case" && name.starts_with("light_client/vectors") {
            cases.extend(Case::read(&corpus, name));
        }
    }
    let updates: usize = cases.iter().map(|case| case.updates.len()).sum();
    assert_eq!((cases.len(), updates), (35, 106));
    let count = count().div_ceil(cases.len() + updates);
    let mut questions = Questions::default();
    for case in &cases {
        case.damage(&mut questions, count);
        case.follow(&mut questions);
    }
    let agreed = questions.compare(scene, &cases[0].network);
    assert_eq!(agreed.honest, 281, "bootstraps and steps of both walks");
    assert!(agreed.refused >= DAMAGED / 2, "{agreed:?}");
    assert!(agreed.accepted > 100, "{agreed:?}");
}

/// An official case: a bootstrap and steps, each with the headers that the store must have after it.
struct Case {
    name: String,
    network: Network,
    trusted: String,
    bootstrap: Object,
    /// The updates of the steps, in their order.
    updates: Vec<Object>,
    steps: Vec<Value>,
}

impl Case {
    /// Reads a case; `None` if Gloas is scheduled.
    fn read(corpus: &Corpus, name: &str) -> Option<Self> {
        let case = corpus.json(name);
        let network = network_of(&case);
        if network.first_epoch(Fork::Gloas).is_some() {
            return None;
        }
        let folder = name.strip_suffix("case.json").expect("a case");
        let object = |entry: &Value, kind| {
            let name = format!("{folder}{}", text(&entry["file"]));
            let fork = text(&entry["fork"]).parse().expect("a fork");
            let ssz = corpus.read(&name);
            Object::new(name, kind, fork, ssz, network.preset())
        };
        let bootstrap = object(&case["bootstrap"], None);
        let trusted = text(&case["trusted_block_root"]).to_owned();
        let steps = case["steps"].as_array().expect("steps").clone();
        let updates = steps.iter().filter(|step| step["op"] == "process_update");
        let updates = updates.map(|step| object(step, Some(UpdateKind::Full))).collect();
        Some(Self { name: name.to_owned(), bootstrap, trusted, updates, steps, network })
    }

    /// Asks about the bootstrap and each update, damaged.
    fn damage(&self, questions: &mut Questions, count: usize) {
        let others: Vec<&Object> = self.updates.iter().collect();
        questions.network(&self.network, false);
        let mut run = Run::start(questions, &self.network, &self.trusted, &self.bootstrap);
        run.damage_bootstrap(&self.bootstrap, count);
        for (update, step) in self.updates.iter().zip(self.process_steps()) {
            run.damage_update(update, &others, count);
            run.take_at(update, step["current_slot"].as_u64().expect("a slot"));
        }
    }

    /// Returns the steps with updates, up to the first one that is no update.
    fn process_steps(&self) -> impl Iterator<Item = &Value> {
        self.steps
            .iter()
            .filter(|s| s["op"] != "upgrade_store")
            .take_while(|step| step["op"] == "process_update")
    }

    /// Takes all steps, and checks the headers after each.
    fn follow(&self, questions: &mut Questions) {
        // Lodestar takes a forced update over only with this option.
        questions.network(&self.network, true);
        let mut run = Run::start(questions, &self.network, &self.trusted, &self.bootstrap);
        let mut updates = self.updates.iter();
        for step in &self.steps {
            let slot = || step["current_slot"].as_u64().expect("a slot");
            match text(&step["op"]) {
                "process_update" => {
                    run.take_at(updates.next().expect("as many as steps"), slot());
                }
                "force_update" => run.force(slot()),
                // Both keep headers in the form in which they came.
                "upgrade_store" => {}
                other => panic!("{}: unknown operation {other}", self.name),
            }
            let expected = ["finalized_header", "optimistic_header"].map(|of| {
                let header = &step["expect"][of];
                Head {
                    slot: header["slot"].as_u64().expect("a slot"),
                    root: root(&header["beacon_root"]),
                    execution: header.get("execution_root").map(root).unwrap_or_default(),
                }
            });
            assert_eq!(heads(&run.client), expected, "{}", self.name);
        }
    }
}

fn count() -> usize {
    let count = std::env::var("CHAINSIEVE_LODESTAR");
    count.map_or(DAMAGED, |count| count.parse().expect("a number of copies"))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn root(value: &Value) -> B256 {
    text(value).parse().expect("a root")
}

/// Returns the network of an official case.
fn network_of(case: &Value) -> Network {
    let network = json!({
        "name": case["name"],
        "preset": case["preset"],
        "genesis_time": 1000,
        "genesis_validators_root": case["genesis_validators_root"],
        "forks": case["forks"],
        "blob_schedule": case["blob_schedule"],
    });
    serde_json::from_value(network).expect("a network")
}

/// The folder `anchors` of the corpus, with the entries of its index by file name.
struct Corpus {
    root: PathBuf,
    files: BTreeMap<String, Value>,
}

fn path_of(name: &str) -> String {
    format!("light_client/mainnet/{name}.ssz")
}

impl Corpus {
    fn open() -> Option<Self> {
        let (root, entries) = testkit::corpus::index("anchors")?;
        let files = entries.into_iter().map(|entry| (text(&entry["file"]).to_owned(), entry));
        Some(Self { root, files: files.collect() })
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).expect("JSON")
    }

    /// Returns the recorded objects of mainnet by name.
    fn recorded(&self, network: &Network) -> BTreeMap<String, Object> {
        let mut objects = BTreeMap::new();
        for (file, entry) in &self.files {
            let name = file.strip_prefix("light_client/mainnet/");
            let Some(name) = name.and_then(|name| name.strip_suffix(".ssz")) else { continue };
            let kind = match text(&entry["kind"]) {
                "light-client bootstrap" => None,
                "light-client update" => Some(UpdateKind::Full),
                "light-client finality" => Some(UpdateKind::Finality),
                "light-client optimistic" => Some(UpdateKind::Optimistic),
                other => panic!("{file}: {other}"),
            };
            let fork = text(&entry["fork"]).parse().expect("a fork");
            let object =
                Object::new(name.to_owned(), kind, fork, self.read(file), network.preset());
            objects.insert(name.to_owned(), object);
        }
        objects
    }

    /// Returns the updates of two REST answers, which follow from one of the bootstraps.
    fn rest_updates(&self, network: &Network) -> Vec<Object> {
        let mut updates = Vec::new();
        for answer in ["updates_1379_count_14", "updates_1393_count_14"] {
            let body = self.read(&format!("light_client/rest/{answer}.ssz"));
            let mut rest = &body[..];
            // Each update comes after its length, with the fork digest, and the digest.
            while let Some((length, after)) = rest.split_first_chunk() {
                let length = usize::try_from(u64::from_le_bytes(*length)).expect("small");
                let name = format!("{answer} {}", updates.len());
                let ssz = after[4..length].to_vec();
                let kind = Some(UpdateKind::Full);
                updates.push(Object::new(name, kind, Fork::Deneb, ssz, network.preset()));
                rest = &after[length..];
            }
        }
        updates
    }
}

/// A believed header: slot, root, and root of its execution header.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Head {
    slot: u64,
    root: B256,
    execution: B256,
}

/// Returns the finalised and the optimistic header.
fn heads(client: &LightClient) -> [Head; 2] {
    [client.finalized(), client.optimistic()].map(|anchor: &Anchor| Head {
        slot: anchor.beacon.slot,
        root: anchor.root,
        execution: match &anchor.execution {
            BoundExecution::Nothing => B256::ZERO,
            BoundExecution::Header(header) => header.root(),
            other => panic!("{other:?} before Gloas"),
        },
    })
}

/// Returns the reason of a refusal as the tests count it.
fn reason(error: &LightClientError) -> String {
    match error {
        LightClientError::NotNewer { .. } => "not newer".into(),
        LightClientError::UnknownCommittee { found, first, .. } if found < first => {
            "committee of a past period".into()
        }
        LightClientError::UnknownCommittee { .. } => "committee of a later period".into(),
        other => {
            let text = format!("{other:?}");
            text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
        }
    }
}

/// A question to Lodestar, and chainsieve's own answer.
struct Asked {
    what: String,
    is_honest: bool,
    refused: Option<String>,
    heads: Option<[Head; 2]>,
}

/// What both answered.
#[derive(Debug, Default)]
struct Agreed {
    /// Honest steps that both took.
    honest: usize,
    /// Other objects that both accepted.
    accepted: usize,
    refused: usize,
    /// Objects that chainsieve alone refused, by the reason.
    stricter: BTreeMap<String, usize>,
}

/// The questions to Lodestar, as the script reads them.
#[derive(Default)]
struct Questions {
    lines: Vec<String>,
    asked: Vec<Asked>,
}

impl Questions {
    fn network(&mut self, network: &Network, forced: bool) {
        let described = serde_json::to_value(network).expect("JSON");
        let mut line = json!({ "network": network.name(), "forced": forced });
        for member in ["forks", "genesis_validators_root", "preset"] {
            line[member] = described[member].clone();
        }
        self.lines.push(line.to_string());
    }

    fn object(&mut self, object: &Object) {
        let Object { name, fork, ssz, .. } = object;
        let (kind, ssz) = (object.kind_name(), hex::encode(ssz));
        let line = json!({ "object": name, "kind": kind, "fork": fork, "ssz": ssz });
        self.lines.push(line.to_string());
    }

    /// Asks Lodestar, and compares its verdicts.
    fn compare(self, scene: &Scene, network: &Network) -> Agreed {
        let answers = self.answers(scene, network);
        assert_eq!(answers.len(), self.asked.len(), "an answer to each question");
        let mut agreed = Agreed::default();
        let mut wrong = Vec::new();
        for (asked, answer) in self.asked.iter().zip(&answers) {
            let Asked { what, is_honest, refused, heads } = asked;
            match (refused, answer["refused"].as_str()) {
                (None, None) => {
                    let found = ["finalized", "optimistic"].map(|at| Head {
                        slot: answer[at]["slot"].as_u64().expect("a slot"),
                        root: root(&answer[at]["root"]),
                        execution: root(&answer[at]["execution"]),
                    });
                    if Some(&found) != heads.as_ref() {
                        wrong.push(format!("{what}: Lodestar believes {found:?}, not {heads:?}"));
                    }
                    *(if *is_honest { &mut agreed.honest } else { &mut agreed.accepted }) += 1;
                }
                (None, Some(why)) => wrong.push(format!("{what}: only Lodestar refuses: {why}")),
                (Some(why), None) if *is_honest || STRICTER.iter().all(|known| known.0 != why) => {
                    wrong.push(format!("{what}: only chainsieve refuses: {why}"));
                }
                (Some(why), None) => *agreed.stricter.entry(why.clone()).or_default() += 1,
                (Some(_), Some(_)) => agreed.refused += 1,
            }
        }
        let shown = wrong.len().min(20);
        assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong[..shown].join("\n"));
        let Agreed { honest, accepted, refused, stricter } = &agreed;
        eprintln!(
            "lodestar, preset {}: {honest} honest steps; of the others, both accept {accepted} and \
             refuse {refused}",
            network.preset()
        );
        for (why, sentence) in STRICTER {
            if let Some(count) = stricter.get(why) {
                eprintln!("    only chainsieve refuses {count}, {why}: {sentence}");
            }
        }
        agreed
    }

    fn answers(&self, scene: &Scene, network: &Network) -> Vec<Value> {
        let modules = peers::lodestar().expect("the test declares that it needs Lodestar");
        // The script's imports are found next to it.
        let script = scene.path("verdicts.mjs");
        fs::write(&script, include_str!("lodestar/verdicts.mjs")).expect("written");
        #[cfg(unix)]
        std::os::unix::fs::symlink(modules, scene.path("node_modules")).expect("a link");
        let (input, output) = (scene.path("questions"), scene.path("answers"));
        fs::write(&input, self.lines.join("\n")).expect("written");
        let ended = Command::new("node")
            .arg(&script)
            .env("LODESTAR_PRESET", network.preset().name())
            .stdin(File::open(&input).expect("written"))
            .stdout(File::create(&output).expect("a file"))
            .stderr(File::create(scene.path("verdicts.log")).expect("a file"))
            .status();
        assert!(ended.as_ref().is_ok_and(ExitStatus::success), "{ended:?}");
        let answers = fs::read_to_string(&output).expect("text");
        answers.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// A light client on its way from a bootstrap, with the steps that it took.
struct Run<'a> {
    questions: &'a mut Questions,
    network: &'a Network,
    start: Value,
    steps: Vec<Value>,
    client: LightClient,
    rng: Rng,
}

impl<'a> Run<'a> {
    fn start(
        questions: &'a mut Questions,
        network: &'a Network,
        trusted: &str,
        bootstrap: &Object,
    ) -> Self {
        let client = initial(network, trusted, bootstrap, &bootstrap.ssz);
        let client = client.unwrap_or_else(|error| panic!("{}: {error}", bootstrap.name));
        questions.object(bootstrap);
        let start = json!({ "trusted": trusted, "bootstrap": { "object": bootstrap.name } });
        let rng = Rng::new(questions.asked.len() as u64);
        let mut run = Self { questions, network, start, steps: Vec::new(), client, rng };
        run.question(bootstrap.name.clone(), true, run.start.clone(), None, None);
        run
    }

    /// Returns the slot one period later. At that time, a flipped bit of a signature's slot may name
    /// the next period without naming the future.
    fn later(&self, slot: u64) -> u64 {
        slot + self.network.preset().slots_per_period()
    }

    fn question(
        &mut self,
        what: String,
        is_honest: bool,
        start: Value,
        step: Option<Value>,
        refused: Option<String>,
    ) {
        let mut line = start;
        line["case"] = self.questions.asked.len().into();
        line["steps"] = self.steps.iter().cloned().chain(step).collect();
        self.questions.lines.push(line.to_string());
        let heads = refused.is_none().then(|| heads(&self.client));
        self.questions.asked.push(Asked { what, is_honest, refused, heads });
    }

    /// Asks about an object, with a bit flipped.
    fn ask(&mut self, object: &Object, flip: Option<usize>) {
        let (mut ssz, mut what) = (object.ssz.clone(), object.name.clone());
        let mut reference = json!({ "object": object.name });
        if let Some(bit) = flip {
            ssz[bit / 8] ^= 1 << (bit % 8);
            what = format!("{what}, bit {bit} ({}) flipped", object.field_of(bit));
            reference["flip"] = bit.into();
        }
        let Some(kind) = object.kind else {
            let trusted = text(&self.start["trusted"]);
            let refused = initial(self.network, trusted, object, &ssz).err();
            let mut start = self.start.clone();
            start["bootstrap"] = reference;
            assert!(self.steps.is_empty(), "a bootstrap is the first object");
            self.question(what, false, start, None, refused);
            return;
        };
        let slot = self.later(object.signature_slot());
        let before = self.client.clone();
        let refused = self.judge(&ssz, kind, object.fork, slot).err();
        let step = json!({ "update": reference, "slot": slot });
        self.question(what, false, self.start.clone(), Some(step), refused);
        self.client = before;
    }

    /// Hands bytes to the client.
    fn judge(&mut self, ssz: &[u8], kind: UpdateKind, fork: Fork, slot: u64) -> Result<(), String> {
        let update = Update::from_ssz(ssz, kind, fork, self.network.preset());
        let update = update.map_err(|_| "decode".to_owned())?;
        let now = self.network.time_of_slot(slot) + Duration::from_secs(1);
        self.client.handle(Event::Update(&update), now).map(drop).map_err(|error| reason(&error))
    }

    /// Takes an honest update at the time of its signature.
    fn take(&mut self, update: &Object) {
        self.take_at(update, update.signature_slot());
    }

    fn take_at(&mut self, update: &Object, slot: u64) {
        let kind = update.kind.expect("an update");
        self.questions.object(update);
        let taken = self.judge(&update.ssz, kind, update.fork, slot);
        taken.unwrap_or_else(|error| panic!("{}: {error}", update.name));
        let step = json!({ "update": { "object": update.name }, "slot": slot });
        self.question(update.name.clone(), true, self.start.clone(), Some(step.clone()), None);
        self.steps.push(step);
    }

    fn force(&mut self, slot: u64) {
        let now = self.network.time_of_slot(slot) + Duration::from_secs(1);
        self.client.handle(Event::Force, now).expect("forced");
        let step = json!({ "force": slot });
        let what = format!("a forced update in slot {slot}");
        self.question(what, true, self.start.clone(), Some(step.clone()), None);
        self.steps.push(step);
    }

    fn damage_bootstrap(&mut self, bootstrap: &Object, count: usize) {
        for bit in bootstrap.bits(&mut self.rng, count, self.network.preset()) {
            self.ask(bootstrap, Some(bit));
        }
    }

    /// Asks about copies of an update: with one bit flipped, and with parts of two others.
    fn damage_update(&mut self, update: &Object, others: &[&Object], count: usize) {
        self.questions.object(update);
        for bit in update.bits(&mut self.rng, count, self.network.preset()) {
            self.ask(update, Some(bit));
        }
        let mut donors: Vec<&&Object> =
            others.iter().filter(|other| other.is_like(update)).collect();
        for _ in 0..2 {
            donors.retain(|other| other.ssz != update.ssz);
            if donors.is_empty() {
                break;
            }
            let donor = donors.swap_remove(self.rng.below(donors.len()));
            for graft in update.grafts(donor) {
                self.questions.object(&graft);
                self.ask(&graft, None);
            }
        }
    }
}

/// Starts from a bootstrap with these bytes, long after its slot. The error is the reason.
fn initial(
    network: &Network,
    trusted: &str,
    bootstrap: &Object,
    ssz: &[u8],
) -> Result<LightClient, String> {
    let decoded = Bootstrap::from_ssz(ssz, bootstrap.fork, network.preset());
    let decoded = decoded.map_err(|_| "decode".to_owned())?;
    let trusted = trusted.parse().expect("a root");
    let now = network.time_of_slot(1 << 32);
    LightClient::new(network.clone(), trusted, &decoded, now).map_err(|error| format!("{error:?}"))
}
