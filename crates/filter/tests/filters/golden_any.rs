//! Reads the golden files as a recipient of an unknown file does: by the kind in their header.

use std::fs;
use std::path::Path;

use chainsieve_filter::{AnyFilter, Kind};

/// Number of keys in each golden file. The keys are consecutive numbers from 0, and the strangers
/// are the numbers after the keys. All of these numbers have 8 bytes, little-endian.
const KEYS: usize = 100;
const STRANGERS: usize = 20_000;

/// A golden file of `fixtures/filters`.
pub(crate) struct Golden {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the golden file of every kind; the file is named after the kind.
pub(crate) fn golden_files() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/filters");
    let read = |kind: Kind| {
        let path = folder.join(format!("{}.chsieve", kind.name().replace('-', "_")));
        Some(Golden { kind, bytes: fs::read(path).ok()? })
    };
    Kind::ALL.into_iter().filter_map(read).collect()
}

#[test]
fn every_kind_has_a_golden_file() {
    let kinds: Vec<Kind> = golden_files().into_iter().map(|golden| golden.kind).collect();
    assert_eq!(kinds, Kind::ALL);
}

#[test]
fn every_golden_file_decodes_to_its_kind_and_answers_as_documented() {
    for Golden { kind, bytes } in golden_files() {
        let name = kind.name();
        let filter = AnyFilter::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((filter.kind(), Kind::of(&bytes)), (kind, Ok(kind)));
        assert_eq!(filter.encode().expect("no secret"), bytes, "{name}");
        let keys: Vec<[u8; 8]> =
            (0..KEYS + STRANGERS).map(|key| (key as u64).to_le_bytes()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        let mut answers = vec![false; keys.len()];
        filter.contains_batch(&keys, &mut answers);
        for (key, answer) in keys.iter().zip(&answers) {
            assert_eq!(filter.contains(key), *answer, "{name}");
        }
        let (inserted, strangers) = answers.split_at(KEYS);
        // The rolling filter remembers the last 60 keys only.
        let first = if kind == Kind::Rolling { 40 } else { 0 };
        let inserted = &inserted[first..];
        assert!(inserted.iter().all(|answer| *answer), "{name}: a key of the file is not found");
        let hits = strangers.iter().filter(|answer| **answer).count() as f64;
        let expected = filter.stats().expected_fpr * STRANGERS as f64;
        // Within six standard deviations, the measured rate equals the rate that the filter
        // reports.
        assert!(
            (hits - expected).abs() <= 6.0 * expected.sqrt() + 1.0,
            "{name}: {hits}, {expected}"
        );
        assert!(filter.stats().len >= inserted.len() as u64, "{name}");
    }
}
