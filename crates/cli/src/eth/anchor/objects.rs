//! Light-client objects from files: JSON of the Beacon API, or SSZ, raw or as hex.
//!
//! # Telling SSZ apart
//! Bare SSZ names neither the kind nor the fork of an object, but no two containers accept the same
//! bytes, except those that are the same in two forks. With the preset `mainnet`:
//!
//! | fork | bootstrap | update | finality update | optimistic update |
//! |---|---|---|---|---|
//! | Altair, Bellatrix | 24,896 | 25,368 | 584 | 280 |
//! | Capella | 24,788: 25,600 to 25,632 | 25,152: 26,776 to 26,840 | 368: 1,992 to 2,056 | 172: 984 to 1,016 |
//! | Deneb | 24,788: 25,616 to 25,648 | 25,152: 26,808 to 26,872 | 368: 2,024 to 2,088 | 172: 1,000 to 1,032 |
//! | Electra, Fulu | 24,820: 25,648 to 25,680 | 25,216: 26,872 to 26,936 | 400: 2,056 to 2,120 | as Deneb |
//! | Gloas | 25,472 | 26,424 | 1,448 | 664 |
//!
//! A container of fixed size has a length that no other one has. A container of variable size
//! begins with an offset, the number before the colon, which differs by kind, and between Deneb and
//! Electra. Capella and Deneb differ in the offset of the extra data within the execution header: 568
//! and 584. So the first decoder that accepts the bytes is the only one.

use std::{iter, slice};

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::anchor::network::{Fork, ForkDigest, Network, Preset};
use chainsieve::eth::anchor::sync_committee::{
    Bootstrap, DecodeError, SszError, Update, UpdateChunks, UpdateKind,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::input::{Reader, as_text};
use crate::output::count;

/// The name of an input in errors.
const WHAT: &str = "light-client object";

/// One fork for each form of containers: Bellatrix has those of Altair, and Fulu those of Electra.
const FORMS: [Fork; 5] = [Fork::Altair, Fork::Capella, Fork::Deneb, Fork::Electra, Fork::Gloas];

const KINDS: [UpdateKind; 3] = [UpdateKind::Full, UpdateKind::Finality, UpdateKind::Optimistic];

/// An object, and the place where it was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) source: String,
    /// Index in a list of updates; `None` if the input holds a single object.
    pub(super) index: Option<usize>,
    /// `json` or `ssz`.
    pub(super) format: &'static str,
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

/// Reads the objects of an argument: a file, standard input, or hex.
///
/// `fork` restricts the containers of bare SSZ.
pub(super) fn read(
    reader: &Reader,
    argument: &str,
    network: &Network,
    fork: Option<Fork>,
) -> anyhow::Result<Vec<Found>> {
    let input = reader.raw(argument, WHAT)?;
    let source = input.source.clone();
    let what = || format!("{WHAT}, {source}");
    let text = as_text(&input.bytes).map(str::trim_start);
    let json = text.filter(|text| text.starts_with(['{', '[']));
    let (format, objects) = match json {
        Some(json) => ("json", from_json(json, network).with_context(what)?),
        None => ("ssz", from_ssz(&input.unhex(WHAT)?.bytes, network, fork).with_context(what)?),
    };
    let found = |(index, object)| Found { source: source.clone(), index, format, object };
    Ok(match objects {
        Objects::One(object) => vec![found((None, object))],
        Objects::List(updates) => updates
            .into_iter()
            .enumerate()
            .map(|(index, update)| {
                found((Some(index), Object::Update(UpdateKind::Full, Box::new(update))))
            })
            .collect(),
    })
}

/// The contents of an input.
enum Objects {
    One(Object),
    /// An answer of `updates`.
    List(Vec<Update>),
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

fn from_json(json: &str, network: &Network) -> anyhow::Result<Objects> {
    let preset = network.preset();
    if json.starts_with('[') {
        return Ok(Objects::List(Update::list_from_json(json, preset)?));
    }
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
            let bootstrap = Bootstrap::from_json(json, preset)?;
            return Ok(Objects::One(Object::Bootstrap(Box::new(bootstrap))));
        }
        Members { next_sync_committee: Some(_), .. } => UpdateKind::Full,
        Members { finalized_header: Some(_), .. } => UpdateKind::Finality,
        Members { attested_header: Some(_), .. } => UpdateKind::Optimistic,
        _ => bail!("neither a bootstrap nor an update: data has no member of these"),
    };
    let update = Update::from_json(json, kind, preset)?;
    Ok(Objects::One(Object::Update(kind, Box::new(update))))
}

fn from_ssz(ssz: &[u8], network: &Network, fork: Option<Fork>) -> anyhow::Result<Objects> {
    let error = match bare(ssz, network, fork) {
        Ok(object) => return Ok(Objects::One(object)),
        Err(error) => error,
    };
    if has_chunks(ssz, network) {
        let updates = UpdateChunks::new(ssz, network).collect::<Result<_, _>>()?;
        return Ok(Objects::List(updates));
    }
    let forks = fork.map_or("any fork".into(), |fork| fork.to_string());
    let length = count(ssz.len(), "byte");
    let what = anyhow!("{length} are neither a bootstrap nor an update of {forks}, in SSZ");
    Err(match error {
        Some(error) => anyhow!(error).context(what),
        None => what,
    })
}

/// Decodes an object without a fork digest.
///
/// # Errors
/// If no container accepts the bytes, returns the error of the container that fits best: of one
/// whose own offsets are right, but not the contents of its headers.
fn bare(ssz: &[u8], network: &Network, fork: Option<Fork>) -> Result<Object, Option<DecodeError>> {
    let forks = fork.as_ref().map_or(&FORMS[..], slice::from_ref);
    let mut errors = Vec::new();
    for decoded in attempts(ssz, forks, network.preset()) {
        match decoded {
            Ok(object) => return Ok(object),
            Err(error) => errors.push(error),
        }
    }
    let is_near = |error: &DecodeError| match error {
        // A wrong offset is that of another container.
        DecodeError::Ssz(SszError::Length { what, .. }) => what.ends_with("header"),
        DecodeError::Ssz(SszError::TooLong { .. }) => true,
        DecodeError::Ssz(_) | DecodeError::NoLightClient(_) => false,
        _ => true,
    };
    Err(errors.into_iter().find(is_near))
}

/// Decodes bytes as each kind of object of each fork.
fn attempts(
    ssz: &[u8],
    forks: &[Fork],
    preset: Preset,
) -> impl Iterator<Item = Result<Object, DecodeError>> {
    forks.iter().flat_map(move |&fork| {
        let bootstrap = Bootstrap::from_ssz(ssz, fork, preset);
        let bootstrap = bootstrap.map(|bootstrap| Object::Bootstrap(Box::new(bootstrap)));
        let updates = KINDS.into_iter().map(move |kind| {
            let update = Update::from_ssz(ssz, kind, fork, preset)?;
            Ok(Object::Update(kind, Box::new(update)))
        });
        iter::once(bootstrap).chain(updates)
    })
}

/// Returns `true` if the bytes are an answer of `updates`, complete or not: the first 8 bytes are the
/// length of an update, or the 4 bytes after them are a fork digest of the network.
///
/// A damaged object without a digest begins with a slot, or with an offset of 4 bytes and then
/// signature bits or a key, so that its first 8 bytes are a number out of this range.
fn has_chunks(ssz: &[u8], network: &Network) -> bool {
    let Some((length, rest)) = ssz.split_first_chunk() else { return false };
    let Some((digest, _)) = rest.split_first_chunk() else { return false };
    // The shortest update, with the preset `minimal`, has more than 2,000 bytes.
    let is_length = |length| (2_000..=rest.len()).contains(&length);
    usize::try_from(u64::from_le_bytes(*length)).is_ok_and(is_length)
        || network.fork_of_digest(ForkDigest::new(*digest)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a light-client header of slot 1, with other fields zero.
    fn header(form: Fork, extra_data: usize) -> Vec<u8> {
        let mut header = vec![0; if form == Fork::Gloas { 496 } else { 112 }];
        header[0] = 1;
        let execution: u32 = match form {
            Fork::Capella => 568,
            Fork::Deneb | Fork::Electra => 584,
            _ => return header,
        };
        header.extend(244_u32.to_le_bytes());
        header.resize(244 + 436, 0);
        header.extend(execution.to_le_bytes());
        header.resize(244 + execution as usize + extra_data, 0);
        header
    }

    /// Returns an object with headers of these numbers of bytes of extra data. `None` is a bootstrap.
    fn object(kind: Option<UpdateKind>, form: Fork, preset: Preset, extra: [usize; 2]) -> Vec<u8> {
        let (committee_depth, finality_depth) = match form {
            Fork::Altair | Fork::Capella | Fork::Deneb => (5, 6),
            Fork::Electra => (6, 7),
            _ => (11, 9),
        };
        let members = preset.sync_committee_size();
        // Branches are not zero, so that the committee and the finalised header are there.
        let committee = Part::Bytes(vec![1; 48 * (members + 1) + 32 * committee_depth]);
        let branch = Part::Bytes(vec![1; 32 * finality_depth]);
        let signature = Part::Bytes(vec![0; members / 8 + 96 + 8]);
        let [first, second] = extra.map(|extra| Part::Header(header(form, extra)));
        let parts = match kind {
            None => vec![first, committee],
            Some(UpdateKind::Full) => vec![first, committee, second, branch, signature],
            Some(UpdateKind::Finality) => vec![first, second, branch, signature],
            Some(UpdateKind::Optimistic) => vec![first, signature],
        };
        let is_fixed = [Fork::Altair, Fork::Gloas].contains(&form);
        let size = |part: &Part| match part {
            Part::Header(_) if !is_fixed => 4,
            Part::Header(bytes) | Part::Bytes(bytes) => bytes.len(),
        };
        let fixed: usize = parts.iter().map(size).sum();
        let (mut out, mut variable) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Part::Header(bytes) if !is_fixed => {
                    let offset = u32::try_from(fixed + variable.len()).expect("short");
                    out.extend(offset.to_le_bytes());
                    variable.extend(bytes);
                }
                Part::Header(bytes) | Part::Bytes(bytes) => out.extend(bytes),
            }
        }
        [out, variable].concat()
    }

    enum Part {
        Header(Vec<u8>),
        Bytes(Vec<u8>),
    }

    /// Objects of every container and of every length are accepted by their own decoder and by no
    /// other, except where two forks have the same container.
    #[test]
    fn no_two_containers_accept_the_same_bytes() {
        let mut objects = 0;
        let mut lengths = Vec::new();
        for preset in [Preset::Mainnet, Preset::Minimal] {
            for form in FORMS {
                for kind in [None].into_iter().chain(KINDS.map(Some)) {
                    for extra in 0..=64_usize {
                        let extra = [extra.min(32), extra.saturating_sub(32)];
                        let ssz = object(kind, form, preset, extra);
                        let accepted: Vec<_> = FORMS
                            .iter()
                            .flat_map(|fork| {
                                let attempts = attempts(&ssz, slice::from_ref(fork), preset);
                                attempts.flatten().map(|object| (object.kind(), *fork))
                            })
                            .collect();
                        let is_shared = kind == Some(UpdateKind::Optimistic)
                            && [Fork::Deneb, Fork::Electra].contains(&form);
                        assert_eq!(accepted.len(), 1 + usize::from(is_shared), "{accepted:?}");
                        let name = match kind {
                            None => "bootstrap",
                            Some(UpdateKind::Full) => "update",
                            Some(UpdateKind::Finality) => "finality_update",
                            Some(UpdateKind::Optimistic) => "optimistic_update",
                        };
                        assert!(accepted.contains(&(name, form)), "{accepted:?}, {name}, {form}");
                        assert!(!has_chunks(&ssz, &Network::mainnet()), "{name}, {form}");
                        objects += 1;
                        if preset == Preset::Mainnet && extra == [0, 0] {
                            lengths.push(ssz.len());
                        }
                    }
                }
            }
        }
        assert_eq!(objects, 2 * 5 * 4 * 65);
        // The lengths of the table in the module's documentation.
        let expected = [
            [24_896, 25_368, 584, 280],
            [25_600, 26_776, 1_992, 984],
            [25_616, 26_808, 2_024, 1_000],
            [25_648, 26_872, 2_056, 1_000],
            [25_472, 26_424, 1_448, 664],
        ];
        assert_eq!(lengths, expected.concat());
    }
}
