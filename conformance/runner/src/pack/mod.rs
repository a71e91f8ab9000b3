//! The pack: its areas, cases and profiles.

mod files;
mod format;
mod inputs;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::expect::Expect;
use files::Files;
use format::{AreaEntry, CaseEntry, PackFile, VectorFile};

pub use inputs::{InputError, Inputs};

/// The version of the format that this package reads.
pub const FORMAT: u64 = 1;

/// Why a pack cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PackError {
    /// A file cannot be read.
    #[error("{file}: cannot be read: {reason}")]
    Unreadable {
        /// The file, relative to the pack.
        file: String,
        /// The message of the operating system.
        reason: String,
    },
    /// A file is not JSON of the format.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file, relative to the pack.
        file: String,
        /// What is wrong, with the line.
        reason: String,
    },
    /// A file has another version of the format.
    #[error("{file}: format version {found}, but this program reads version {FORMAT}")]
    Version {
        /// The file, relative to the pack.
        file: String,
        /// The version of the file.
        found: u64,
    },
    /// A file has the vectors of another area than `pack.json` lists it for.
    #[error("{file}: has vectors of {found}, but pack.json lists it for {listed}")]
    OtherArea {
        /// The file, relative to the pack.
        file: String,
        /// The area of the file.
        found: String,
        /// The area in `pack.json`.
        listed: String,
    },
    /// `pack.json` lists an area twice.
    #[error("pack.json: lists the area {0} twice")]
    RepeatedArea(String),
    /// A file has another number of cases than `pack.json` says.
    #[error("{file}: {found} cases, but pack.json says {expected}")]
    Incomplete {
        /// The file, relative to the pack.
        file: String,
        /// The number of cases of the file.
        found: usize,
        /// The number of cases in `pack.json`.
        expected: usize,
    },
    /// A case is invalid.
    #[error("{file}: case {case}: {fault}")]
    Case {
        /// The file, relative to the pack.
        file: String,
        /// The id of the case, or its position if it has no id.
        case: String,
        /// What is wrong.
        fault: CaseFault,
    },
}

/// Why a case is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CaseFault {
    /// A member is missing, unknown or of the wrong type.
    #[error("{0}")]
    Malformed(String),
    /// `expect` is not exactly one of `value`, `invalid` and `any_of`.
    #[error("expect is not exactly one of a value (an object), invalid and any_of")]
    Expect,
    /// The id does not begin with the area and a slash.
    #[error("the id does not begin with the name of the area and a slash")]
    ForeignId,
    /// Another case of the pack has this id.
    #[error("another case has this id")]
    RepeatedId,
    /// Neither the file nor `pack.json` explains the flag.
    #[error("the flag {0:?} is not explained")]
    UnknownFlag(String),
    /// `by` contains a name that no profile has.
    #[error("no profile has the name {0:?} of by")]
    UnknownBy(String),
    /// A member is in `params` and in `input`.
    #[error("{0:?} is in params and in input")]
    RepeatedMember(String),
    /// The input refers to the corpus, but `needs` does not say so.
    #[error("the input refers to the corpus, but the case has no needs")]
    MissingNeeds,
}

/// What a case's expectation rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Level {
    /// Consensus of the chain: any other answer forks.
    Consensus,
    /// The text of a specification.
    Specification,
    /// What the reference implementation does where no text decides.
    Reference,
    /// Implementations differ, and none is the reference.
    Open,
}

impl Level {
    /// Returns the word of the vector files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Consensus => "consensus",
            Self::Specification => "specification",
            Self::Reference => "reference",
            Self::Open => "open",
        }
    }
}

/// Areas, and the implementation whose answers count where an expectation lists several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Profile {
    /// Patterns of areas.
    pub areas: Vec<String>,
    /// The name in `by` of `any_of`.
    pub by: String,
    /// What the profile stands for, for people.
    #[serde(default)]
    pub about: String,
}

/// Data outside of the pack that a case needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Needs {
    /// `true` if the case refers to files of the corpus.
    pub corpus: bool,
    /// The chain of the block.
    pub chain: String,
    /// The height of the block.
    pub height: u64,
    /// The hash of the block, in display order.
    pub hash: String,
}

/// A case: an input and the answers that agree.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Case {
    /// The id, which begins with the area: `bip37.sizing/0009`.
    pub id: String,
    /// What the case shows, in a few words.
    pub comment: String,
    /// What the expectation rests on.
    pub level: Level,
    /// The source of the expectation.
    pub source: String,
    /// Flags, which `flags` of the area or of the pack explains.
    pub flags: Vec<String>,
    /// Data outside of the pack that the case needs.
    pub needs: Option<Needs>,
    /// The answers that agree.
    pub expect: Expect,
    params: Arc<Map<String, Value>>,
    input: Map<String, Value>,
}

impl Case {
    /// Returns the input with the group's `params`, as the file has it: with its references.
    /// [`Inputs::of`] resolves them.
    pub fn written_input(&self) -> Value {
        let mut input = (*self.params).clone();
        input.extend(self.input.clone());
        input.into()
    }
}

/// An area: one question that is asked of an implementation with many inputs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Area {
    /// The name: `bip37.sizing`.
    pub name: String,
    /// The title for people.
    pub title: String,
    /// The file of the vectors, relative to the pack.
    pub file: String,
    /// The source of the vectors.
    pub source: String,
    /// The licence of the vectors, as an SPDX identifier.
    pub licence: String,
    /// What each flag of the area means.
    pub flags: BTreeMap<String, String>,
    /// The cases, in the order of the file.
    pub cases: Vec<Case>,
}

/// A pack of vectors.
#[derive(Debug, Clone)]
pub struct Pack {
    version: String,
    licence: String,
    profiles: BTreeMap<String, Profile>,
    flags: BTreeMap<String, String>,
    areas: Vec<Area>,
    files: Files,
}

impl Pack {
    /// Returns the pack of the package `chainsieve-vectors`, which is part of the program.
    ///
    /// # Errors
    /// If the pack is not of the format.
    pub fn built_in() -> Result<Self, PackError> {
        Self::load(Files::BuiltIn)
    }

    /// Reads a pack from a folder that contains `pack.json`, `vectors/` and `fixtures/`.
    ///
    /// # Errors
    /// If a file is missing or is not of the format.
    pub fn from_folder(folder: impl Into<PathBuf>) -> Result<Self, PackError> {
        Self::load(Files::Folder(folder.into()))
    }

    fn load(files: Files) -> Result<Self, PackError> {
        let pack: PackFile = parsed(&files, "pack.json")?;
        let mut loaded = Self {
            version: pack.version,
            licence: pack.licence,
            profiles: pack.profiles,
            flags: pack.flags,
            areas: Vec::new(),
            files,
        };
        let mut ids = BTreeSet::new();
        for entry in pack.areas {
            // Reports and selections name areas.
            if loaded.areas.iter().any(|area| area.name == entry.name) {
                return Err(PackError::RepeatedArea(entry.name));
            }
            let area = loaded.area_of(entry, &mut ids)?;
            loaded.areas.push(area);
        }
        Ok(loaded)
    }

    /// Reads the vectors of an area.
    fn area_of(&self, entry: AreaEntry, ids: &mut BTreeSet<String>) -> Result<Area, PackError> {
        let AreaEntry { name, file, title, cases: expected } = entry;
        let vectors: VectorFile = parsed(&self.files, &file)?;
        if vectors.area != name {
            return Err(PackError::OtherArea { file, found: vectors.area, listed: name });
        }
        let mut area = Area {
            name,
            title,
            file,
            source: vectors.source,
            licence: vectors.licence,
            flags: vectors.flags,
            cases: Vec::new(),
        };
        for group in vectors.groups {
            let params = Arc::new(group.params);
            for value in group.cases {
                let at = || format!("number {}", area.cases.len() + 1);
                let case = value["id"].as_str().map_or_else(at, str::to_owned);
                match self.case_of(&area, value, &params, ids) {
                    Ok(case) => area.cases.push(case),
                    Err(fault) => return Err(PackError::Case { file: area.file, case, fault }),
                }
            }
        }
        let found = area.cases.len();
        if let Some(expected) = expected.filter(|&expected| expected != found) {
            return Err(PackError::Incomplete { file: area.file, found, expected });
        }
        Ok(area)
    }

    fn case_of(
        &self,
        area: &Area,
        value: Value,
        params: &Arc<Map<String, Value>>,
        ids: &mut BTreeSet<String>,
    ) -> Result<Case, CaseFault> {
        let entry: CaseEntry = serde_json::from_value(value)
            .map_err(|error| CaseFault::Malformed(error.to_string()))?;
        let expect = entry.expect.parsed().ok_or(CaseFault::Expect)?;
        let number = entry.id.strip_prefix(&area.name).and_then(|rest| rest.strip_prefix('/'));
        if number.is_none_or(str::is_empty) {
            return Err(CaseFault::ForeignId);
        }
        if !ids.insert(entry.id.clone()) {
            return Err(CaseFault::RepeatedId);
        }
        let is_explained =
            |flag: &&String| area.flags.contains_key(*flag) || self.flags.contains_key(*flag);
        if let Some(flag) = entry.flags.iter().find(|flag| !is_explained(flag)) {
            return Err(CaseFault::UnknownFlag(flag.clone()));
        }
        // A misspelt name would silently drop the case from its profile.
        let is_known = |by: &&str| self.profiles.values().any(|profile| profile.by == *by);
        if let Some(by) = expect.names().find(|by| !is_known(by)) {
            return Err(CaseFault::UnknownBy(by.to_owned()));
        }
        if let Some(name) = entry.input.keys().find(|name| params.contains_key(*name)) {
            return Err(CaseFault::RepeatedMember(name.clone()));
        }
        let case = Case {
            id: entry.id,
            comment: entry.comment,
            level: entry.level,
            source: entry.source.unwrap_or_else(|| area.source.clone()),
            flags: entry.flags,
            needs: entry.needs,
            expect,
            params: Arc::clone(params),
            input: entry.input,
        };
        let needs_corpus = case.needs.as_ref().is_some_and(|needs| needs.corpus);
        if !needs_corpus && inputs::refers_to_corpus(&case.written_input()) {
            return Err(CaseFault::MissingNeeds);
        }
        Ok(case)
    }

    /// Returns the version of the pack.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the licence of the pack, as an SPDX identifier.
    pub fn licence(&self) -> &str {
        &self.licence
    }

    /// Returns the profiles by name.
    pub fn profiles(&self) -> &BTreeMap<String, Profile> {
        &self.profiles
    }

    /// Returns what each flag means that several areas share.
    pub fn flags(&self) -> &BTreeMap<String, String> {
        &self.flags
    }

    /// Returns the areas in the order of `pack.json`.
    pub fn areas(&self) -> &[Area] {
        &self.areas
    }

    /// Returns a case and its area.
    pub fn case(&self, id: &str) -> Option<(&Area, &Case)> {
        let mut cases =
            self.areas.iter().flat_map(|area| area.cases.iter().map(move |it| (area, it)));
        cases.find(|(_, case)| case.id == id)
    }

    /// Returns the paths of all files of the pack except the fixtures, sorted.
    ///
    /// # Errors
    /// If a folder cannot be read.
    pub fn file_names(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    /// Returns the text of a file of the pack.
    ///
    /// # Errors
    /// If the file is missing or unreadable.
    pub fn file(&self, path: &str) -> io::Result<Cow<'static, str>> {
        self.files.read(path)
    }
}

/// Reads a file of the pack.
fn parsed<T: for<'de> Deserialize<'de>>(files: &Files, file: &str) -> Result<T, PackError> {
    /// The member that every version has.
    #[derive(Deserialize)]
    struct Version {
        pack: u64,
    }
    let text = files.read(file).map_err(|error| PackError::Unreadable {
        file: file.to_owned(),
        reason: error.to_string(),
    })?;
    // The version comes first: another version may have members that this one does not know.
    match serde_json::from_str(&text) {
        Ok(Version { pack: FORMAT }) => serde_json::from_str(&text),
        Ok(Version { pack }) => {
            return Err(PackError::Version { file: file.to_owned(), found: pack });
        }
        Err(error) => Err(error),
    }
    .map_err(|error| PackError::Malformed { file: file.to_owned(), reason: error.to_string() })
}
