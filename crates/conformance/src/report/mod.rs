//! Reports of runs: JSON, `JUnit` XML, Markdown and HTML.

mod html;
mod json;
mod junit;
mod markdown;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::pack::Pack;
use crate::run::{AreaRun, SubjectRun};

/// The runs of one or several subjects with the same selection.
#[derive(Debug, Clone)]
pub struct Report {
    pack: String,
    profile: Option<String>,
    date: Option<String>,
    /// What each flag means.
    flags: BTreeMap<String, String>,
    runs: Vec<SubjectRun>,
}

impl Report {
    /// Returns the report of runs.
    pub fn new(pack: &Pack, profile: Option<String>, runs: Vec<SubjectRun>) -> Self {
        let mut flags = pack.flags().clone();
        flags.extend(pack.areas().iter().flat_map(|area| area.flags.clone()));
        Self { pack: pack.version().to_owned(), profile, date: None, flags, runs }
    }

    /// Adds the day of the runs.
    #[must_use]
    pub fn with_date(self, date: impl Into<String>) -> Self {
        Self { date: Some(date.into()), ..self }
    }

    /// Returns the runs.
    pub fn runs(&self) -> &[SubjectRun] {
        &self.runs
    }

    /// Returns the names and titles of the areas of any run.
    fn areas(&self) -> Vec<(&str, &str)> {
        let mut areas: Vec<(&str, &str)> = Vec::new();
        for area in self.runs.iter().flat_map(|run| &run.areas) {
            if !areas.iter().any(|(name, _)| *name == area.name) {
                areas.push((&area.name, &area.title));
            }
        }
        areas
    }

    /// Returns one line about the report: pack, profile and date.
    fn subtitle(&self) -> String {
        let mut parts = vec![format!("Pack {}", self.pack)];
        parts.extend(self.profile.as_ref().map(|profile| format!("profile {profile}")));
        parts.extend(self.date.clone());
        parts.join(", ")
    }
}

/// Returns the area of a run by name.
fn area_of<'a>(run: &'a SubjectRun, name: &str) -> Option<&'a AreaRun> {
    run.areas.iter().find(|area| area.name == name)
}

/// Returns name and version of a subject.
fn title(run: &SubjectRun) -> String {
    format!("{} {}", run.subject.name, run.subject.version)
}

/// Returns the text of a cell: the wrong answers and errors of those that were run.
fn cell(area: Option<&AreaRun>) -> String {
    let Some(area) = area else { return "–".into() };
    let counts = area.counts();
    let mut text = match counts.differ + counts.error {
        0 if counts.run == 0 => "not run".into(),
        0 => format!("{} agree", counts.run),
        findings => format!("{findings} / {}", counts.run),
    };
    if counts.error > 0 {
        let _ = write!(text, " ({} errors)", counts.error);
    }
    if area.gave_up.is_some() {
        text += ", given up";
    }
    text
}
