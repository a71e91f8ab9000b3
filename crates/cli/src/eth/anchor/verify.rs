//! The command `eth anchor verify`, and the objects that it reads.

use std::time::Duration;

use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::network::{Network, Preset};
use chainsieve::eth::anchor::sync_committee::{
    Action, Anchor, Bootstrap, Checkpoint, Event, Evidence, LightClient, LightClientError, Update,
    UpdateKind,
};
use chainsieve_report::calendar::Utc;
use chainsieve_report::{Exit, Page, Reader, Report, as_text, grouped};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::{NOT_PROVEN, age, anchor_fields, anchor_json, stale};
use crate::args::eth::VerifyAnchorArgs;

pub(super) fn run(args: &VerifyAnchorArgs) -> anyhow::Result<Report> {
    let reader = Reader::of(&args.files)?;
    let network = super::network(&args.network)?;
    let now = super::now(args.at)?;
    let mut objects = Vec::new();
    for file in &args.files {
        objects.extend(read(&reader, file, &network)?);
    }
    objects.sort_by_key(|found| found.object.order());
    let mut bootstraps = objects.iter().filter_map(|found| match &found.object {
        Object::Bootstrap(bootstrap) => Some((found, bootstrap)),
        Object::Update(..) => None,
    });
    let Some((first, bootstrap)) = bootstraps.next() else {
        anyhow::bail!("a bootstrap is missing: nothing follows from updates alone");
    };
    if let Some((second, _)) = bootstraps.next() {
        anyhow::bail!("two bootstraps, {} and {}: give only one", first.name(), second.name());
    }
    let given = args.checkpoint.checkpoint;
    let root = given.unwrap_or_else(|| bootstrap.header.beacon.root());
    let (client, results) = judge(&network, root, bootstrap, &objects, now);
    let judged = objects.iter().zip(results).collect();
    Ok(Verified { network: &network, now, root, is_given: given.is_some(), client, judged }
        .report())
}

/// Applies the objects in their order, the bootstrap first. Returns the client, unless the bootstrap
/// is refused, and a result for each object.
fn judge(
    network: &Network,
    root: B256,
    bootstrap: &Bootstrap,
    objects: &[Found],
    now: Duration,
) -> (Option<LightClient>, Vec<Outcome>) {
    let mut client = LightClient::new(network.clone(), root, bootstrap, now);
    let results = objects
        .iter()
        .map(|found| match (&found.object, &mut client) {
            (Object::Bootstrap(bootstrap), Ok(_)) => {
                let period = network.period_of_slot(bootstrap.header.beacon.slot);
                Outcome { committee_period: Some(period), ..Outcome::new(Ruling::Accepted, None) }
            }
            (Object::Bootstrap(_), Err(error)) => Outcome::of(error),
            (Object::Update(_, update), Ok(client)) => apply(client, update, now),
            (Object::Update(..), Err(_)) => Outcome::new(Ruling::Unchecked, None),
        })
        .collect();
    (client.ok(), results)
}

fn apply(client: &mut LightClient, update: &Update, now: Duration) -> Outcome {
    match client.handle(Event::Update(update), now) {
        Ok(actions) => {
            let mut brought = Outcome::new(Ruling::Accepted, None);
            for action in actions {
                match action {
                    Action::Finalized(anchor) => brought.finalized_slot = Some(anchor.beacon.slot),
                    Action::Optimistic(anchor) => {
                        brought.optimistic_slot = Some(anchor.beacon.slot);
                    }
                    Action::NextCommittee { period } => brought.committee_period = Some(period),
                    _ => {}
                }
            }
            brought
        }
        Err(error) => Outcome::of(&error),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Ruling {
    Accepted,
    /// The content of the update was known before, so its signature was not checked.
    Older,
    /// The object may be valid: its committee is unknown, or its slot is in the future.
    Undecided,
    Refused,
    /// The bootstrap was refused, so the object cannot be checked.
    Unchecked,
}

/// The result for one object, and what it added to the facts that are known.
#[derive(Debug, Serialize)]
struct Outcome {
    result: Ruling,
    finalized_slot: Option<u64>,
    optimistic_slot: Option<u64>,
    committee_period: Option<u64>,
    why: Option<String>,
}

impl Outcome {
    const fn new(result: Ruling, why: Option<String>) -> Self {
        Self { result, finalized_slot: None, optimistic_slot: None, committee_period: None, why }
    }

    fn of(error: &LightClientError) -> Self {
        let result = match error {
            LightClientError::NotNewer { .. } => Ruling::Older,
            // An honest server may have sent it, for example for another clock.
            error if error.is_about_progress() => Ruling::Undecided,
            _ => Ruling::Refused,
        };
        Self::new(result, Some(error.to_string()))
    }

    fn words(&self) -> String {
        let why = self.why.as_deref().unwrap_or_default();
        match self.result {
            Ruling::Accepted => {}
            Ruling::Older => return format!("not needed: {why}"),
            Ruling::Undecided => return format!("undecided: {why}"),
            Ruling::Refused => return format!("refused: {why}"),
            Ruling::Unchecked => return "not checked".into(),
        }
        let facts = [
            ("finalised slot", self.finalized_slot),
            ("signed slot", self.optimistic_slot),
            ("committee of period", self.committee_period),
        ];
        let facts = facts.into_iter().filter_map(|(what, number)| Some((what, number?)));
        let facts: Vec<_> =
            facts.map(|(what, number)| format!("{what} {}", grouped(number))).collect();
        if facts.is_empty() { "valid, but nothing new".into() } else { facts.join(", ") }
    }
}

/// The objects with their results, and the verdict that follows from them.
struct Verified<'a> {
    network: &'a Network,
    now: Duration,
    root: B256,
    /// `false` if the root was taken from the bootstrap.
    is_given: bool,
    /// `None` if the bootstrap is refused.
    client: Option<LightClient>,
    judged: Vec<(&'a Found, Outcome)>,
}

impl Verified<'_> {
    fn report(&self) -> Report {
        let (exit, why) = self.verdict();
        let mut warnings = Vec::new();
        if let Some(checkpoint) = self.checkpoint().filter(Checkpoint::is_stale) {
            warnings.push(stale(&checkpoint));
        }
        let (page, json) = (self.page(exit, why.as_deref()), self.json(exit, why.as_deref()));
        Report::new(page, json, exit).with_warnings(warnings)
    }

    /// Returns the exit code, and the reason if the verdict is not `proven`.
    fn verdict(&self) -> (Exit, Option<String>) {
        let find = |result| {
            let (found, outcome) = self.judged.iter().find(|(_, found)| found.result == result)?;
            Some(format!("{}: {}", found.name(), outcome.why.as_ref()?))
        };
        if let Some(why) = find(Ruling::Refused) {
            let why = match (&self.client, self.is_given) {
                // Under a root that nobody vouches for, either of the two may be the false one.
                (Some(_), false) => format!("{why}; this object or the bootstrap is false"),
                _ => why,
            };
            return (Exit::Wrong, Some(why));
        }
        if !self.is_given {
            let why =
                "without --checkpoint, the bootstrap's own root was taken, which proves nothing";
            return (Exit::Undecided, Some(why.into()));
        }
        if let Some(why) = find(Ruling::Undecided) {
            return (Exit::Undecided, Some(why));
        }
        let bound = self.client.as_ref().map(|client| client.finalized().execution.bound_hash());
        if bound.flatten().is_none() {
            let why = "no execution block is bound: headers before Capella bind none";
            return (Exit::Undecided, Some(why.into()));
        }
        (Exit::Yes, None)
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        self.client.as_ref().map(|client| client.trust().checkpoint)
    }

    /// Returns the newest signed header, if it is newer than the finalised header.
    fn optimistic(&self) -> Option<&Anchor> {
        let client = self.client.as_ref()?;
        let anchor = client.optimistic();
        (anchor.beacon.slot > client.finalized().beacon.slot).then_some(anchor)
    }

    /// Returns the last period whose sync committee is known.
    fn committee_period(&self) -> Option<u64> {
        let client = self.client.as_ref()?;
        let period = self.network.period_of_slot(client.finalized().beacon.slot);
        Some(period + u64::from(client.is_next_committee_known()))
    }

    fn page(&self, exit: Exit, why: Option<&str>) -> Page {
        let mut page = Page::default();
        page.heading(match (why, &self.client) {
            (Some(why), _) if exit == Exit::Wrong => format!("wrong: {why}"),
            (None, Some(client)) => proven(client.finalized()),
            (why, _) => format!("undecided: {}", why.unwrap_or_default()),
        });
        let mut fields = vec![
            ("network", self.network.name().to_owned()),
            ("time", Utc::new(self.now.as_secs()).date_time()),
        ];
        let taken = if self.is_given { "" } else { ", taken from the bootstrap" };
        fields.push(("checkpoint", format!("{}{taken}", self.root)));
        if let Some(checkpoint) = self.checkpoint() {
            let slot = grouped(checkpoint.slot);
            let start = self.network.time_of_slot(checkpoint.slot).as_secs();
            fields.push(("", format!("slot {slot}, {}", Utc::new(start).date_time())));
            let limit = age(checkpoint.limit);
            let is = if checkpoint.is_stale() { "older" } else { "not older" };
            let age = age(checkpoint.age);
            fields.push((
                "",
                format!("{age} old, {is} than the weak-subjectivity period of {limit}"),
            ));
        }
        page.fields(fields);
        page.line("");
        let head = vec!["object", "file", "slot", "signed in", "by", "result"];
        page.table(head, self.judged.iter().map(|(found, outcome)| row(found, outcome)).collect());
        let Some(client) = &self.client else { return page };
        page.line("");
        page.heading("The newest finalised block");
        page.fields(anchor_fields(client.finalized(), self.is_given));
        if let Some(anchor) = self.optimistic() {
            page.line("");
            page.heading("The newest signed block, which can still be reorganised away");
            page.fields(anchor_fields(anchor, self.is_given));
        }
        page.line("");
        page.line(format!("Not proven: {NOT_PROVEN}."));
        page
    }

    fn json(&self, exit: Exit, why: Option<&str>) -> Value {
        let checkpoint = self.checkpoint();
        let time = |slot| self.network.time_of_slot(slot).as_secs();
        let json = |anchor: &Anchor| anchor_json(anchor, self.is_given);
        json!({
            "status": exit.verdict("proven"),
            "why": why,
            "network": self.network.name(),
            "at": self.now.as_secs(),
            "checkpoint": {
                "root": self.root,
                "given": self.is_given,
                "slot": checkpoint.map(|checkpoint| checkpoint.slot),
                "time": checkpoint.map(|checkpoint| time(checkpoint.slot)),
                "age": checkpoint.map(|checkpoint| checkpoint.age.as_secs()),
                "limit": checkpoint.map(|checkpoint| checkpoint.limit.as_secs()),
                "stale": checkpoint.map(|checkpoint| checkpoint.is_stale()),
            },
            "objects": self.judged.iter().map(|judged| self.object_json(judged)).collect::<Vec<_>>(),
            "finalized": self.client.as_ref().map(|client| json(client.finalized())),
            "optimistic": self.optimistic().map(json),
            "committee_period": self.committee_period(),
            "not_proven": NOT_PROVEN,
        })
    }

    fn object_json(&self, (found, outcome): &(&Found, Outcome)) -> Value {
        let update = update(found);
        let participation = update.map(|update| update.aggregate.participation());
        json!({
            "file": found.source,
            "index": found.index,
            "object": found.object.kind(),
            "slot": found.object.slot(),
            "fork": self.network.fork_at_slot(found.object.slot()),
            "signature_slot": update.map(|update| update.signature_slot),
            "signed": participation.map(|by| by.signed),
            "of": participation.map(|by| by.of),
            "result": outcome.result,
            "finalized_slot": outcome.finalized_slot,
            "optimistic_slot": outcome.optimistic_slot,
            "committee_period": outcome.committee_period,
            "why": outcome.why,
        })
    }
}

/// Returns the verdict that an anchor is proven.
fn proven(anchor: &Anchor) -> String {
    let block = match &anchor.execution.header() {
        Some(header) => grouped(header.block_number),
        None => anchor.execution.bound_hash().unwrap_or_default().to_string(),
    };
    match anchor.evidence {
        Evidence::Finalized(_) => {
            format!("proven: execution block {block} is finalised, if the checkpoint is")
        }
        _ => format!("proven: execution block {block} is that of the checkpoint"),
    }
}

const fn update(found: &Found) -> Option<&Update> {
    match &found.object {
        Object::Bootstrap(_) => None,
        Object::Update(_, update) => Some(update),
    }
}

fn row(found: &Found, outcome: &Outcome) -> Vec<String> {
    let (signed_in, by) = update(found).map_or_else(Default::default, |update| {
        let by = update.aggregate.participation().to_string();
        (grouped(update.signature_slot), by)
    });
    vec![
        found.object.kind().replace('_', " "),
        found.name(),
        grouped(found.object.slot()),
        signed_in,
        by,
        outcome.words(),
    ]
}

/// The name of an input in errors.
const WHAT: &str = "light-client object";

/// An object, and the place where it was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) source: String,
    /// Index in a list of updates; `None` if the input holds a single object.
    pub(super) index: Option<usize>,
    pub(super) object: Object,
}

#[derive(Debug)]
pub(super) enum Object {
    Bootstrap(Box<Bootstrap>),
    Update(UpdateKind, Box<Update>),
}

impl Object {
    /// Returns the name of the kind: for people with spaces, for programs with underscores.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Bootstrap(_) => "bootstrap",
            Self::Update(UpdateKind::Full, _) => "update",
            Self::Update(UpdateKind::Finality, _) => "finality_update",
            Self::Update(UpdateKind::Optimistic, _) => "optimistic_update",
        }
    }

    /// Returns the slot of the header; in an update, the slot of the attested header.
    pub(super) const fn slot(&self) -> u64 {
        match self {
            Self::Bootstrap(bootstrap) => bootstrap.header.beacon.slot,
            Self::Update(_, update) => update.attested.beacon.slot,
        }
    }

    /// Returns the key by which objects are ordered before they are applied: the bootstrap first,
    /// then then updates by the slot of their signature. Within a slot, the update with most
    /// contents comes first, because other updates may need the committee that it contains.
    pub(super) const fn order(&self) -> (u64, u8) {
        match self {
            Self::Bootstrap(_) => (0, 0),
            Self::Update(kind, update) => {
                let place = match kind {
                    UpdateKind::Full => 1,
                    UpdateKind::Finality => 2,
                    UpdateKind::Optimistic => 3,
                };
                (update.signature_slot, place)
            }
        }
    }
}

impl Found {
    /// Returns the name of the object for people: the file, and the index in its list.
    pub(super) fn name(&self) -> String {
        match self.index {
            Some(index) => format!("{}[{index}]", self.source),
            None => self.source.clone(),
        }
    }
}

/// Reads the objects of an argument: a file or standard input.
pub(super) fn read(
    reader: &Reader,
    argument: &str,
    network: &Network,
) -> anyhow::Result<Vec<Found>> {
    let input = reader.raw(argument, WHAT)?;
    let source = input.source.clone();
    let what = || format!("{WHAT}, {source}");
    let text =
        as_text(&input.bytes).context("not text: only JSON is read, not SSZ").with_context(what)?;
    let json = text.trim_start();
    let preset = network.preset();
    // An answer of `updates` is a list.
    if json.starts_with('[') {
        let updates = Update::list_from_json(json, preset).with_context(what)?;
        let found = |(index, update)| Found {
            source: source.clone(),
            index: Some(index),
            object: Object::Update(UpdateKind::Full, Box::new(update)),
        };
        return Ok(updates.into_iter().enumerate().map(found).collect());
    }
    let object = from_json(json, preset).with_context(what)?;
    Ok(vec![Found { source, index: None, object }])
}

/// The members by which the kind of an object is recognised.
#[derive(Deserialize)]
#[serde(expecting = "a light-client object")]
struct Members {
    current_sync_committee: Option<IgnoredAny>,
    attested_header: Option<IgnoredAny>,
    next_sync_committee: Option<IgnoredAny>,
    finalized_header: Option<IgnoredAny>,
}

/// An answer of a beacon node: an object, or the message of an error.
#[derive(Deserialize)]
#[serde(expecting = "an answer of a beacon node")]
struct Answer {
    data: Option<Members>,
    message: Option<String>,
}

fn from_json(json: &str, preset: Preset) -> anyhow::Result<Object> {
    let answer: Answer = serde_json::from_str(json)?;
    let Some(members) = answer.data else {
        match answer.message {
            Some(message) => {
                bail!("the server answered with an error: {:?}", format!("{message:.200}"))
            }
            None => bail!("not an answer of a beacon node: the member data is missing"),
        }
    };
    let kind = match members {
        Members { current_sync_committee: Some(_), .. } => {
            return Ok(Object::Bootstrap(Box::new(Bootstrap::from_json(json, preset)?)));
        }
        Members { next_sync_committee: Some(_), .. } => UpdateKind::Full,
        Members { finalized_header: Some(_), .. } => UpdateKind::Finality,
        Members { attested_header: Some(_), .. } => UpdateKind::Optimistic,
        _ => bail!("neither a bootstrap nor an update: data has none of their members"),
    };
    Ok(Object::Update(kind, Box::new(Update::from_json(json, kind, preset)?)))
}
