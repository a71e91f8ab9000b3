//! Checks that the index of the Ethereum corpus lists every file, each in a format that a test
//! reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use testkit::eth::corpus::{EthCorpus, Format};

fn files_under(root: &Path, directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_owned();
        if path.is_dir() {
            files_under(root, &path, found);
        } else if name != "README.md" && name != "index.json" {
            let relative = path.strip_prefix(root).expect("below the root");
            found.insert(relative.to_str().expect("UTF-8").to_owned());
        }
    }
}

#[test]
fn every_file_is_in_the_index_and_of_a_known_format() {
    let Some(corpus) = EthCorpus::open() else { return };
    let mut formats = BTreeMap::new();
    for file in &corpus.files {
        *formats.entry(file.format).or_insert(0) += 1;
    }
    let expected = [
        (Format::Header, 37),
        (Format::Receipts, 37),
        (Format::TransactionHashes, 30),
        (Format::ReceiptsJson, 3),
        (Format::HeaderRows, 4),
        (Format::HeaderRun, 7),
        (Format::Era1, 1),
        (Format::BlockJson, 13),
        (Format::Queries, 1),
    ];
    assert_eq!(formats, BTreeMap::from(expected));

    let mut there = BTreeSet::new();
    files_under(corpus.root(), corpus.root(), &mut there);
    let named: BTreeSet<_> = corpus.files.iter().map(|file| file.name.clone()).collect();
    assert_eq!(named.len(), corpus.files.len(), "a file is in the index twice");
    assert_eq!(there, named);
}
