//! Light-client objects from files: JSON of the Beacon API.

use anyhow::{Context as _, bail};
use chainsieve::eth::anchor::network::{Network, Preset};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, Update, UpdateKind};
use chainsieve_report::{Reader, as_text};
use serde::Deserialize;
use serde::de::IgnoredAny;

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

    /// Returns the slot of the header, which is the attested one in an update.
    pub(super) const fn slot(&self) -> u64 {
        match self {
            Self::Bootstrap(bootstrap) => bootstrap.header.beacon.slot,
            Self::Update(_, update) => update.attested.beacon.slot,
        }
    }

    /// Returns the key by which objects are ordered before they are applied: the bootstrap first,
    /// then updates by the slot of their signature, and in one slot the one with most contents
    /// first, because the others may need the committee that it contains.
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

/// The members of an object by which its kind is known.
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
        _ => bail!("neither a bootstrap nor an update: data has no member of these"),
    };
    Ok(Object::Update(kind, Box::new(Update::from_json(json, kind, preset)?)))
}
