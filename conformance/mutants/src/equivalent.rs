//! The changes that no input can show, with the reason of each: they are not drawn.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::tree::Mutant;

/// Changes of one file that no input can show, all for the same reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file: String,
    reason: String,
    /// Each line with its change in it, as the report prints it.
    places: Vec<String>,
}

/// Returns the numbers of the mutants that a list names.
///
/// # Errors
/// Returns the entries that match another number of places than they list, one in each line: the code
/// has changed, so the reason may no longer hold.
pub(crate) fn numbers(list: &str, mutants: &[Mutant]) -> Result<BTreeSet<usize>, String> {
    let entries: Vec<Entry> = serde_json::from_str(list).map_err(|error| error.to_string())?;
    let mut listed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for entry in &entries {
        if entry.reason.is_empty() {
            return Err(format!("{}: an entry without a reason", entry.file));
        }
        for place in &entry.places {
            *listed.entry((&entry.file, place)).or_default() += 1;
        }
    }
    let mut found: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for mutant in mutants {
        *found.entry((&mutant.file, &mutant.text)).or_default() += 1;
    }
    let stale: Vec<_> = listed
        .iter()
        .filter_map(|(key @ (file, place), times)| {
            let places = found.get(key).copied().unwrap_or(0);
            (places != *times)
                .then(|| format!("{file}: listed {times} times, found {places}: {place}"))
        })
        .collect();
    if !stale.is_empty() {
        return Err(stale.join("\n"));
    }
    let is_listed =
        |mutant: &&Mutant| listed.contains_key(&(mutant.file.as_str(), mutant.text.as_str()));
    Ok(mutants.iter().filter(is_listed).map(|mutant| mutant.number).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::numbers;
    use crate::tree;

    const LIST: &str = include_str!("../equivalent.json");

    fn mutants() -> Vec<tree::Mutant> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        tree::places(&repository).into_iter().map(|(mutant, _)| mutant).collect()
    }

    #[test]
    fn the_list_is_current() {
        let mutants = mutants();
        let listed = numbers(LIST, &mutants).unwrap_or_else(|stale| panic!("{stale}"));
        // A long list would say more of the list than of the vectors.
        assert!(listed.len() * 8 < mutants.len(), "{} of {}", listed.len(), mutants.len());
    }

    #[test]
    fn an_entry_without_a_place_is_an_error() {
        let list =
            r#"[{"file":"src/eth/bloom.rs","reason":"none","places":["no «1 -> 2» such line"]}]"#;
        let stale = numbers(list, &mutants()).expect_err("no such place");
        assert!(stale.contains("listed 1 times, found 0"), "{stale}");
    }
}
