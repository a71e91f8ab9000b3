//! The cases of a run: by area, id and profile.

use thiserror::Error;

use crate::pack::{Area, Case, Level, Pack, Profile};

/// Why a selection is empty or unknown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No area of the pack matches the pattern.
    #[error("no area matches {pattern:?}{}", meant(.matching.as_deref()))]
    NoArea {
        /// The pattern.
        pattern: String,
        /// A pattern that matches areas, and has the text of this one in it.
        matching: Option<String>,
    },
    /// No case of the pack matches the pattern.
    #[error("no case matches {pattern:?}{}", meant(.matching.as_deref()))]
    NoCase {
        /// The pattern.
        pattern: String,
        /// A pattern that matches cases, and has the text of this one in it.
        matching: Option<String>,
    },
    /// The pack has no profile of this name.
    #[error("no profile {name:?}; the pack has {known}")]
    NoProfile {
        /// The name.
        name: String,
        /// The names of the pack's profiles.
        known: String,
    },
}

fn meant(matching: Option<&str>) -> String {
    matching.map_or_else(String::new, |pattern| format!("; {pattern:?} does"))
}

/// Returns a wider pattern that matches one of the names.
fn wider<'n>(pattern: &str, names: &(impl Iterator<Item = &'n String> + Clone)) -> Option<String> {
    let wider = [format!("{pattern}.*"), format!("*{pattern}*")];
    wider.into_iter().find(|wider| names.clone().any(|name| matches(wider, name)))
}

/// Returns the patterns, or the error of the first one that matches none of the names.
fn known<'n>(
    patterns: &[impl AsRef<str>],
    names: &(impl Iterator<Item = &'n String> + Clone),
    unknown: impl Fn(String, Option<String>) -> SelectError,
) -> Result<Vec<String>, SelectError> {
    let known = |pattern: &str| {
        let is_known = names.clone().any(|name| matches(pattern, name));
        let error = || unknown(pattern.to_owned(), wider(pattern, names));
        is_known.then(|| pattern.to_owned()).ok_or_else(error)
    };
    patterns.iter().map(|pattern| known(pattern.as_ref())).collect()
}

/// Words of the profile that follows the text of the BIPs, and of the flag for behaviour of Core
/// that contradicts it: such a case is not in the profile, although its expectation is one answer.
const BIP_TEXT: &str = "bip-text";
const CORE_QUIRK: &str = "core-quirk";

/// The cases that a run asks.
///
/// ```
/// use chainsieve_conformance::{Pack, Selection};
///
/// let pack = Pack::built_in()?;
/// let selection = Selection::all(&pack).with_areas(&["gcs.*"])?.with_profile("core-exact")?;
/// assert!(selection.has_area("gcs.decode") && !selection.has_area("bip37.sizing"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Selection<'p> {
    pack: &'p Pack,
    areas: Vec<String>,
    ids: Vec<String>,
    profile: Option<&'p Profile>,
}

/// In a pattern, `*` stands for any text.
impl<'p> Selection<'p> {
    /// Returns the selection of all cases.
    pub fn all(pack: &'p Pack) -> Self {
        Self { pack, areas: Vec::new(), ids: Vec::new(), profile: None }
    }

    /// Selects only the cases whose area matches one of the patterns. Without patterns, all do.
    ///
    /// # Errors
    /// If a pattern matches no area.
    pub fn with_areas(mut self, patterns: &[impl AsRef<str>]) -> Result<Self, SelectError> {
        let names = self.pack.areas().iter().map(|area| &area.name);
        let unknown = |pattern, matching| SelectError::NoArea { pattern, matching };
        self.areas = known(patterns, &names, unknown)?;
        Ok(self)
    }

    /// Selects only the cases whose id matches one of the patterns. Without patterns, all do.
    ///
    /// # Errors
    /// If a pattern matches no case.
    pub fn with_ids(mut self, patterns: &[impl AsRef<str>]) -> Result<Self, SelectError> {
        let ids = self.pack.areas().iter().flat_map(|area| &area.cases).map(|case| &case.id);
        let unknown = |pattern, matching| SelectError::NoCase { pattern, matching };
        self.ids = known(patterns, &ids, unknown)?;
        Ok(self)
    }

    /// Leaves out the cases that do not belong to a profile.
    ///
    /// # Errors
    /// If the pack has no profile of this name.
    pub fn with_profile(mut self, name: &str) -> Result<Self, SelectError> {
        let names = || self.pack.profiles().keys().cloned().collect::<Vec<_>>().join(", ");
        let unknown = || SelectError::NoProfile { name: name.to_owned(), known: names() };
        self.profile = Some(self.pack.profiles().get(name).ok_or_else(unknown)?);
        Ok(self)
    }

    /// Returns the name in `by` whose answers agree; `None` without a profile, if all do.
    pub fn by(&self) -> Option<&str> {
        self.profile.map(|profile| profile.by.as_str())
    }

    /// Returns `true` if the selection contains the area.
    pub fn has_area(&self, name: &str) -> bool {
        let is_listed = |patterns: &[String]| patterns.iter().any(|it| matches(it, name));
        (self.areas.is_empty() || is_listed(&self.areas))
            && self.profile.is_none_or(|profile| is_listed(&profile.areas))
    }

    /// Returns the selected cases of an area, in the order of the file.
    pub fn cases<'a>(&'a self, area: &'a Area) -> impl Iterator<Item = &'a Case> {
        let has_area = self.has_area(&area.name);
        area.cases.iter().filter(move |case| has_area && self.has_case(case))
    }

    fn has_case(&self, case: &Case) -> bool {
        let is_listed = self.ids.is_empty() || self.ids.iter().any(|it| matches(it, &case.id));
        is_listed
            && self.by().is_none_or(|by| {
                let contradicts = by == BIP_TEXT
                    && case.level == Level::Reference
                    && case.flags.iter().any(|flag| flag == CORE_QUIRK);
                case.expect.has_answer_by(by) && !contradicts
            })
    }
}

/// Returns `true` if a text matches a pattern, in which `*` stands for any text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        // The earliest place leaves most text for the parts after it.
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("gcs.decode", "gcs.decode", true),
            ("gcs.decode", "gcs.decode2", false),
            ("gcs.*", "gcs.match_any", true),
            ("gcs.*", "gcs", false),
            ("*", "", true),
            ("*match*", "gcs.match_any", true),
            ("*match", "gcs.match_any", false),
            ("b*37.*s", "bip37.insert.pushes", true),
            ("b*37.*s", "bip37.insert", false),
            ("a*a", "a", false),
            ("a*b*b", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
