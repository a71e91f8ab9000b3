//! The folder `anchors` of the corpus.

use std::collections::BTreeMap;
use std::path::PathBuf;

use alloy_primitives::B256;
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, Update, UpdateKind};
use serde_json::Value;

/// The corpus, with the entries of its index by file name.
pub(crate) struct Anchors {
    root: PathBuf,
    pub(crate) files: BTreeMap<String, Value>,
}

impl Anchors {
    /// Opens the corpus, if one is configured.
    pub(crate) fn open() -> Option<Self> {
        let (root, entries) = testkit::corpus::index("anchors")?;
        let name = |entry: &Value| entry["file"].as_str().expect("a name").to_owned();
        Some(Self { root, files: entries.into_iter().map(|entry| (name(&entry), entry)).collect() })
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).expect("UTF-8")
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns the files of a kind under a folder, in the order of their names.
    pub(crate) fn of<'a>(
        &'a self,
        folder: &'a str,
        kind: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let wanted = move |(name, entry): &(&String, &Value)| {
            name.starts_with(folder) && entry["kind"] == kind
        };
        self.files.iter().filter(wanted).map(|(name, entry)| (name.as_str(), entry))
    }

    /// Decodes a bootstrap by the fork of its index entry.
    pub(crate) fn bootstrap(&self, name: &str, network: &Network) -> Bootstrap {
        let fork = fork(&self.files[name]["fork"]);
        Bootstrap::from_ssz(&self.read(name), fork, network.preset())
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Decodes an update by the fork of its index entry.
    pub(crate) fn update(&self, name: &str, kind: UpdateKind, network: &Network) -> Update {
        let fork = fork(&self.files[name]["fork"]);
        Update::from_ssz(&self.read(name), kind, fork, network.preset())
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

pub(crate) fn fork(name: &Value) -> Fork {
    name.as_str().expect("a name").parse().expect("a fork")
}

pub(crate) fn root(text: &Value) -> B256 {
    text.as_str().expect("hex").parse().expect("a root")
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}
