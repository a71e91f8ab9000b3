//! Every byte of every field is changed, one at a time. Each changed object is refused for a reason
//! that its field gives, and the client stays as it was.
//!
//! The one field that can change unnoticed is the slot of the signature: nothing signs it. It only
//! chooses the committee and the fork version, so another slot with the same two is accepted, with
//! the same result.

use std::collections::BTreeMap;
use std::time::Duration;

use chainsieve::eth::anchor::network::{Fork, Network, Preset};
use chainsieve::eth::anchor::sync_committee::{
    Anchor, Bootstrap, DecodeError, Event, LightClient, LightClientError, Update, UpdateKind,
};
use testkit::{Rng, mutated};

use crate::corpus::{Anchors, fork, root};
use crate::mainnet::{start, vouched};
use crate::vectors::network_of;

/// A field with the number of its bytes.
type Field = (&'static str, usize);

/// Lists the fields of a container, in the order of their bytes.
struct Layout {
    fork: Fork,
    members: usize,
    /// Lengths of the fields of variable size: the headers.
    variable: Vec<usize>,
}

const ATTESTED: [&str; 9] = [
    "attested slot",
    "attested proposer and parent",
    "attested state root",
    "attested body root",
    "offset",
    "attested execution branch",
    "attested execution",
    "offset",
    "attested execution",
];
const FINALIZED: [&str; 9] = [
    "finalized slot",
    "finalized proposer and parent",
    "finalized state root",
    "finalized body root",
    "offset",
    "finalized execution branch",
    "finalized execution",
    "offset",
    "finalized execution",
];

impl Layout {
    fn is_variable(&self) -> bool {
        (Fork::Capella..=Fork::Fulu).contains(&self.fork)
    }

    /// Returns the fields of a header of `length` bytes.
    fn header(&self, names: [&'static str; 9], length: usize) -> Vec<Field> {
        let [slot, parent, state, body, offset, branch, execution, extra, rest] = names;
        let mut fields = vec![(slot, 8), (parent, 40), (state, 32), (body, 32)];
        match self.fork {
            Fork::Altair | Fork::Bellatrix => {}
            Fork::Gloas => fields.extend([(execution, 32), (branch, 11 * 32)]),
            _ => fields.extend([
                (offset, 4),
                (branch, 4 * 32),
                (execution, 436),
                (extra, 4),
                (rest, length - 112 - 4 - 128 - 436 - 4),
            ]),
        }
        fields
    }

    /// Returns the field in the place of a header in the fixed part.
    fn place(&self, names: [&'static str; 9]) -> Vec<Field> {
        if self.is_variable() { vec![("offset", 4)] } else { self.header(names, 0) }
    }

    fn committee(&self) -> [Field; 2] {
        let depth = match self.fork {
            Fork::Electra | Fork::Fulu => 6,
            Fork::Gloas => 11,
            _ => 5,
        };
        [("keys", 48 * (self.members + 1)), ("committee branch", 32 * depth)]
    }

    fn update(&self, kind: UpdateKind) -> Vec<Field> {
        let mut fields = self.place(ATTESTED);
        if kind == UpdateKind::Full {
            fields.extend(self.committee());
        }
        if kind != UpdateKind::Optimistic {
            let depth = match self.fork {
                Fork::Electra | Fork::Fulu => 7,
                Fork::Gloas => 9,
                _ => 6,
            };
            fields.extend(self.place(FINALIZED));
            fields.push(("finality branch", 32 * depth));
        }
        fields.extend([("bits", self.members / 8), ("signature", 96), ("signature slot", 8)]);
        for (names, length) in [ATTESTED, FINALIZED].into_iter().zip(&self.variable) {
            fields.extend(self.header(names, *length));
        }
        fields
    }

    fn bootstrap(&self) -> Vec<Field> {
        let mut fields = self.place(ATTESTED);
        fields.extend(self.committee());
        for length in &self.variable {
            fields.extend(self.header(ATTESTED, *length));
        }
        fields
    }
}

fn reason(error: &LightClientError) -> &'static str {
    match error {
        LightClientError::OtherRoot { .. } => "root",
        LightClientError::OldContainer { .. }
        | LightClientError::FieldOfLaterFork { .. }
        | LightClientError::ExecutionBranch { .. } => "header",
        LightClientError::NoParticipants => "no participants",
        LightClientError::Attested(_) => "attested",
        LightClientError::Finalized(_) => "finalized",
        LightClientError::SlotOrder { .. } => "slot order",
        LightClientError::Future { .. } => "future",
        LightClientError::UnknownCommittee { .. } => "unknown committee",
        LightClientError::NotNewer { .. } => "not newer",
        LightClientError::FinalityBranch => "finality branch",
        LightClientError::OtherCommittee { .. } => "other committee",
        LightClientError::CommitteeBranch => "committee branch",
        LightClientError::Signature { .. } => "signature",
        LightClientError::Key { .. } => "key",
        _ => "unknown reason",
    }
}

/// Returns the reasons for which an update with this field changed may be refused.
#[expect(clippy::match_same_arms, reason = "the fields of each part stay together")]
fn reasons(field: &str, fork: Fork, kind: UpdateKind) -> &'static [&'static str] {
    let is_bound = fork >= Fork::Capella;
    match field {
        "offset" => &["decode"],
        "keys" | "committee branch" => &["committee branch", "other committee"],
        "finality branch" => &["finality branch"],
        "bits" | "signature" | "attested proposer and parent" => &["signature"],
        "signature slot" => &["slot order", "future", "unknown committee", "signature", "accepted"],
        "attested slot" => &["slot order", "not newer", "attested", "finality branch", "signature"],
        "attested state root" if kind == UpdateKind::Optimistic => &["signature"],
        "attested state root" => &["finality branch"],
        "attested body root" if !is_bound => &["signature"],
        "attested body root" | "attested execution" | "attested execution branch" => &["attested"],
        "finalized slot" => &["slot order", "finalized", "finality branch"],
        "finalized proposer and parent" | "finalized state root" => &["finality branch"],
        "finalized body root" if !is_bound => &["finality branch"],
        "finalized body root" | "finalized execution" | "finalized execution branch" => {
            &["finalized"]
        }
        other => panic!("unknown field {other}"),
    }
}

/// Calls `check` with each field and a copy of the object in which one byte of the field differs.
///
/// Only each `step`th byte of the keys is changed, and the lowest byte of the signature's slot in
/// every way. Returns the number of copies.
fn each_change(
    ssz: &[u8],
    fields: &[Field],
    step: usize,
    mut check: impl FnMut(&'static str, &[u8]),
) -> usize {
    assert_eq!(fields.iter().map(|field| field.1).sum::<usize>(), ssz.len(), "{fields:?}");
    let mut rng = Rng::new(ssz.len() as u64);
    let (mut at, mut count) = (0, 0);
    let mut damaged = ssz.to_vec();
    for (field, length) in fields {
        for byte in (at..at + length).step_by(if *field == "keys" { step } else { 1 }) {
            let change = u8::try_from(1 + rng.below(255)).expect("a byte");
            let is_low = *field == "signature slot" && byte == at;
            let changes = if is_low { 1..=255 } else { change..=change };
            for change in changes {
                damaged[byte] ^= change;
                check(field, &damaged);
                damaged[byte] ^= change;
                count += 1;
            }
        }
        at += length;
    }
    count
}

/// Returns the lengths of the headers of variable size.
fn variable(ssz: &[u8], offsets: &[usize]) -> Vec<usize> {
    let read = |at: &usize| {
        let bytes = ssz[*at..at + 4].try_into().expect("4 bytes");
        usize::try_from(u32::from_le_bytes(bytes)).expect("small")
    };
    let starts: Vec<_> = offsets.iter().map(read).chain([ssz.len()]).collect();
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn update_layout(ssz: &[u8], kind: UpdateKind, fork: Fork, members: usize) -> Layout {
    let mut layout = Layout { fork, members, variable: Vec::new() };
    if layout.is_variable() {
        let [keys, branch] = layout.committee();
        let finalized = if kind == UpdateKind::Full { 4 + keys.1 + branch.1 } else { 4 };
        let offsets: &[_] = if kind == UpdateKind::Optimistic { &[0] } else { &[0, finalized] };
        layout.variable = variable(ssz, offsets);
    }
    layout
}

fn roots(client: &LightClient) -> [Anchor; 2] {
    [client.finalized().clone(), client.optimistic().clone()]
}

/// Changes each byte of an update that `client` accepts. Returns the number of refusals by reason.
fn damage_update(
    client: &LightClient,
    ssz: &[u8],
    kind: UpdateKind,
    fork: Fork,
    step: usize,
    counts: &mut BTreeMap<&'static str, usize>,
) {
    let network = client.network();
    let preset = network.preset();
    let original = Update::from_ssz(ssz, kind, fork, preset).expect("valid");
    // A period later, so that signatures of the next period are not of the future.
    let now = network.time_of_slot(original.signature_slot + preset.slots_per_period());
    let mut after = client.clone();
    after.handle(Event::Update(&original), now).expect("valid");
    let fields = update_layout(ssz, kind, fork, preset.sync_committee_size()).update(kind);
    let mut client = client.clone();
    let before = roots(&client);
    each_change(ssz, &fields, step, |field, damaged| {
        let found = if let Ok(update) = Update::from_ssz(damaged, kind, fork, preset) {
            let accepts = field == "signature slot";
            let mut copy = accepts.then(|| client.clone());
            let client = copy.as_mut().unwrap_or(&mut client);
            if let Err(error) = client.handle(Event::Update(&update), now) {
                reason(&error)
            } else {
                assert!(accepts, "{fork} {kind}: a changed {field} is accepted");
                assert_eq!(roots(client), roots(&after));
                "accepted"
            }
        } else {
            "decode"
        };
        let expected = reasons(field, fork, kind);
        assert!(expected.contains(&found), "{fork} {kind}: {field}: {found}, not {expected:?}");
        *counts.entry(found).or_default() += 1;
    });
    assert_eq!(roots(&client), before, "refused updates change nothing");
}

#[test]
fn each_byte_of_the_updates_of_mainnet() {
    let Some(anchors) = Anchors::open() else { return };
    let mut counts = BTreeMap::new();
    let mut damage = |client: &LightClient, name: &str, kind, step| {
        let name = format!("light_client/mainnet/{name}.ssz");
        let fork = fork(&anchors.files[&name]["fork"]);
        damage_update(client, &anchors.read(&name), kind, fork, step, &mut counts);
    };
    let (full, finality, optimistic) =
        (UpdateKind::Full, UpdateKind::Finality, UpdateKind::Optimistic);
    damage(&start(&anchors, "bellatrix/bootstrap_4700000"), "bellatrix/update_573", full, 7);
    damage(&vouched(&anchors, "capella/update_816"), "capella/update_817", full, 7);
    let capella = start(&anchors, "capella/bootstrap_6718368");
    damage(&capella, "capella/optimistic_6718464", optimistic, 1);
    damage(&start(&anchors, "deneb/bootstrap_10248000"), "deneb/update_1250", full, 7);
    damage(&start(&anchors, "electra/bootstrap_11649056"), "electra/update_1422", full, 7);
    let fulu = start(&anchors, "fulu/bootstrap_14017856");
    damage(&fulu, "fulu/update_1711", full, 1);
    damage(&fulu, "fulu/finality_14018020", finality, 1);
    println!("{counts:?}");
    assert!(counts["committee branch"] > 24_624, "{counts:?}");
    assert!(counts["signature"] > 1000, "{counts:?}");
    let kinds: Vec<_> = counts.keys().copied().collect();
    assert_eq!(
        kinds,
        [
            "accepted",
            "attested",
            "committee branch",
            "decode",
            "finality branch",
            "finalized",
            "future",
            "signature",
            "slot order",
        ]
    );
}

#[test]
fn each_byte_of_the_updates_of_gloas() {
    let Some(anchors) = Anchors::open() else { return };
    let folder = "light_client/vectors/gloas/light_client_sync/";
    let case = anchors.json(&format!("{folder}case.json"));
    let network = network_of(&case);
    let trusted = root(&case["trusted_block_root"]);
    let ssz = anchors.read(&format!("{folder}bootstrap.ssz"));
    let bootstrap = Bootstrap::from_ssz(&ssz, Fork::Gloas, network.preset()).expect("valid");
    let now = network.time_of_slot(bootstrap.header.beacon.slot);
    let client = LightClient::new(network, trusted, &bootstrap, now).expect("valid");
    let step = &case["steps"][0];
    let ssz = anchors.read(&format!("{folder}{}", step["file"].as_str().expect("a name")));
    let mut counts = BTreeMap::new();
    damage_update(&client, &ssz, UpdateKind::Full, Fork::Gloas, 1, &mut counts);
    println!("{counts:?}");
    assert_eq!(counts.values().sum::<usize>(), ssz.len() + 254);
    assert!(counts["attested"] >= 32 + 32 + 11 * 32, "{counts:?}");
    assert!(counts["accepted"] < 64, "{counts:?}");
}

#[test]
fn each_byte_of_bootstraps() {
    let Some(anchors) = Anchors::open() else { return };
    let network = Network::mainnet();
    let mut count = 0;
    for (name, step) in [
        ("bellatrix/bootstrap_4700000", 11),
        ("capella/bootstrap_6718368", 11),
        ("deneb/bootstrap_10248000", 11),
        ("electra/bootstrap_11649056", 11),
        ("fulu/bootstrap_14017856", 1),
    ] {
        let name = format!("light_client/mainnet/{name}.ssz");
        let entry = &anchors.files[&name];
        let (fork, trusted) = (fork(&entry["fork"]), root(&entry["block_root"]));
        let ssz = anchors.read(&name);
        let preset = network.preset();
        let mut layout = Layout { fork, members: 512, variable: Vec::new() };
        if layout.is_variable() {
            layout.variable = variable(&ssz, &[0]);
        }
        let now = Duration::from_secs(2_000_000_000);
        count += each_change(&ssz, &layout.bootstrap(), step, |field, damaged| {
            let found = match Bootstrap::from_ssz(damaged, fork, preset) {
                Err(_) => "decode",
                Ok(bootstrap) => {
                    let client = LightClient::new(network.clone(), trusted, &bootstrap, now);
                    reason(&client.expect_err("a changed bootstrap"))
                }
            };
            let expected = match field {
                "offset" => "decode",
                "keys" | "committee branch" => "committee branch",
                "attested execution" | "attested execution branch" => "header",
                _ => "root",
            };
            assert_eq!(found, expected, "{name}: {field}");
        });
    }
    assert!(count > 34_000, "{count}");
}

/// Truncated, extended and mutated bytes give an error or an object, and never a panic.
#[test]
fn hostile_bytes() {
    let Some(anchors) = Anchors::open() else { return };
    let mut rng = Rng::new(5);
    let mut objects = 0;
    for (name, entry) in &anchors.files {
        if entry["kind"] != "sync case object" || !name.contains("/light_client_sync/") {
            continue;
        }
        let fork = fork(&entry["fork"]);
        let ssz = anchors.read(name);
        let is_bootstrap = name.ends_with("bootstrap.ssz");
        let decode = |bytes: &[u8], fork| {
            if is_bootstrap {
                Bootstrap::from_ssz(bytes, fork, Preset::Minimal).map(drop)
            } else {
                Update::from_ssz(bytes, UpdateKind::Full, fork, Preset::Minimal).map(drop)
            }
        };
        assert_eq!(decode(&ssz, fork), Ok(()), "{name}");
        for length in 0..ssz.len() {
            let cut = decode(&ssz[..length], fork);
            // The extra data of the last execution header is the one part that may be shorter.
            let shortened =
                ssz.len() - length <= 32 && (Fork::Capella..=Fork::Fulu).contains(&fork);
            assert!(cut.is_err() || shortened, "{name}: {length} bytes");
        }
        let long = [&ssz[..], &[0; 33]].concat();
        assert!(decode(&long, fork).is_err(), "{name}: trailing bytes");
        for _ in 0..300 {
            let _ = decode(&mutated(&mut rng, &ssz), fork);
        }
        for other in
            [Fork::Phase0, Fork::Altair, Fork::Capella, Fork::Deneb, Fork::Electra, Fork::Gloas]
        {
            let same = other == fork || (fork, other) == (Fork::Fulu, Fork::Electra);
            assert_eq!(decode(&ssz, other).is_ok(), same, "{name} as {other}");
        }
        let none = Err(DecodeError::NoLightClient(Fork::Phase0));
        assert_eq!(decode(&ssz, Fork::Phase0), none);
        objects += 1;
    }
    assert!(objects >= 45, "{objects}");
}

#[test]
fn hostile_answers() {
    let Some(anchors) = Anchors::open() else { return };
    let network = Network::mainnet();
    let body = anchors.read("light_client/rest/updates_1379_count_14.ssz");
    let mut rng = Rng::new(6);
    let count = |body: &[u8]| match Update::list_from_ssz(body, &network) {
        Ok(updates) => (updates.len(), false),
        Err(DecodeError::InList { index, .. }) => (index + 1, true),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(count(&body), (14, false));
    assert_eq!(count(&[]), (0, false));
    assert_eq!(count(&body[..body.len() - 1]), (14, true));
    assert_eq!(count(&[&body[..], &[0]].concat()), (15, true));
    for length in [[0_u8; 8], [3, 0, 0, 0, 0, 0, 0, 0], [0xff; 8]] {
        let mut long = body.clone();
        long[..8].copy_from_slice(&length);
        assert_eq!(count(&long), (1, true));
    }
    let short = [&[3, 0, 0, 0, 0, 0, 0, 0], &body[8..]].concat();
    let problem = Box::new(DecodeError::NoDigest(3));
    let expected = DecodeError::InList { index: 0, problem };
    assert_eq!(Update::list_from_ssz(&short, &network), Err(expected));
    let mut other = body.clone();
    other[8] ^= 1;
    let error = Update::list_from_ssz(&other, &network).expect_err("a digest");
    assert!(error.to_string().contains("unknown on this network"), "{error}");
    for _ in 0..100 {
        count(&mutated(&mut rng, &body));
    }
}

#[test]
fn hostile_json() {
    let Some(anchors) = Anchors::open() else { return };
    let preset = Preset::Mainnet;
    let finality = anchors.text("light_client/rest/fulu_finality.json");
    let parse = |text: &str| Update::from_json(text, UpdateKind::Finality, preset);
    assert!(parse(&finality).is_ok());
    let refused = |from: &str, to: &str| {
        assert!(finality.contains(from), "{from}");
        parse(&finality.replacen(from, to, 1)).expect_err(to).to_string()
    };
    // Members of other forks and kinds.
    assert!(refused("\"fulu\"", "\"gloas\"").contains("finality_branch: 7 values, expected 9"));
    let gloas = finality.replacen("\"fulu\"", "\"gloas\"", 1);
    let error = Update::from_json(&gloas, UpdateKind::Optimistic, preset).expect_err("no hash");
    assert!(error.to_string().contains("execution_block_hash is missing"), "{error}");
    assert!(refused("\"fulu\"", "\"deneb\"").contains("finality_branch: 7 values, expected 6"));
    assert!(refused("\"fulu\"", "\"phase0\"").contains("phase0 has no light-client objects"));
    assert!(refused("\"fulu\"", "\"osaka\"").contains("unknown variant"));
    assert!(refused("\"finality_branch\"", "\"branch\"").contains("finality_branch is missing"));
    assert!(refused("\"blob_gas_used\"", "\"x\"").contains("blob_gas_used is missing"));
    assert!(refused("\"execution\"", "\"x\"").contains("execution is missing"));
    let error = Update::from_json(&finality, UpdateKind::Full, preset).expect_err("no committee");
    assert!(error.to_string().contains("next_sync_committee is missing"), "{error}");
    assert!(Update::from_json(&finality, UpdateKind::Optimistic, preset).is_ok());
    // Numbers are decimal strings.
    for number in ["14018019", "\"0x1\"", "\"+1\"", "\"-1\"", "\"\"", "\"18446744073709551616\""] {
        assert!(!refused("\"14018019\"", number).is_empty());
    }
    assert!(
        refused("\"sync_committee_bits\":\"0x", "\"sync_committee_bits\":\"0xff").contains("65")
    );
    assert!(
        refused("\"extra_data\":\"0x", &format!("\"extra_data\":\"0x{}", "00".repeat(32)))
            .contains("at most 32")
    );
    let mut rng = Rng::new(7);
    for _ in 0..2000 {
        let bytes = mutated(&mut rng, finality.as_bytes());
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let _ = parse(text);
        }
    }
}
