//! Opening an index while a writer replaces its files.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::io;

use super::files::{Bytes, Files, generation};
use crate::eth::bloom::BYTES;
use crate::eth::index::format::SECTION;
use crate::eth::index::{FileKind, Index, IndexError, Storage};

/// Storage that returns the manifests of several generations in turn, each manifest a given number
/// of times. Apart from the manifests, only the files of the last generation exist.
#[derive(Debug, Clone)]
struct Replaced {
    generations: Vec<Files>,
    each: usize,
    /// Number of times that the manifest was opened.
    opened: Arc<AtomicUsize>,
}

impl Storage for Replaced {
    type File = Bytes;

    fn open(&self, name: &str, kind: FileKind) -> io::Result<Bytes> {
        let last = self.generations.len() - 1;
        if name != "manifest" {
            return self.generations[last].open(name, kind);
        }
        let now = self.opened.fetch_add(1, Ordering::Relaxed) / self.each;
        self.generations[now.min(last)].open(name, kind)
    }
}

fn generations(count: u64) -> Vec<Files> {
    let blooms = vec![[0; BYTES]; 4 * SECTION];
    let sections = |number: u64| u32::try_from(number.min(4)).unwrap();
    (1..=count).map(|number| generation(number, 0, &blooms, sections(number))).collect()
}

#[test]
fn a_manifest_that_is_replaced_is_read_again() {
    for each in [1, 2] {
        let generations = generations(3);
        let replaced = Replaced { generations, each, opened: Arc::default() };
        // If the manifest is unchanged when it is read again, its missing files are an error.
        let opened = Index::open(replaced.clone());
        if each == 1 {
            assert_eq!(opened.unwrap().sealed(), 3 * SECTION as u64);
            continue;
        }
        let kind = io::ErrorKind::NotFound;
        let (operation, offset) = ("open", 0);
        let file = "00000000-01.segment".into();
        assert_eq!(opened.map(drop), Err(IndexError::Io { kind, operation, file, offset }));
    }
}

/// If the manifest changes at every attempt, opening ends with an error.
#[test]
fn an_index_that_never_stands_still() {
    let mut generations = generations(5);
    // The sequence of five manifests is repeated many times.
    for _ in 0..6 {
        generations.extend(generations.clone());
    }
    generations.push(Files::default());
    let opened = Arc::default();
    let replaced = Replaced { generations, each: 1, opened: Arc::clone(&opened) };
    let error = Index::open(replaced).map(drop).unwrap_err();
    assert!(matches!(error, IndexError::Io { kind: io::ErrorKind::NotFound, .. }), "{error}");
    assert!(opened.load(Ordering::Relaxed) < 100);
}
