//! Reports of runs: JSON and `JUnit` XML.

mod json;
mod junit;

use crate::pack::Pack;
use crate::run::SubjectRun;

/// The runs of one or several subjects with the same selection.
#[derive(Debug, Clone)]
pub struct Report {
    pack: String,
    profile: Option<String>,
    date: Option<String>,
    runs: Vec<SubjectRun>,
}

impl Report {
    /// Returns the report of runs.
    pub fn new(pack: &Pack, profile: Option<String>, runs: Vec<SubjectRun>) -> Self {
        Self { pack: pack.version().to_owned(), profile, date: None, runs }
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
}
