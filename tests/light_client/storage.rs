//! A storage in memory that can crash.

use std::collections::{BTreeMap, VecDeque};

use chainsieve::btc::client::{File, StoredFiles, Write, WriteId};

use testkit::Rng;

/// Files, and the writes that are not durable yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Storage {
    files: BTreeMap<File, Vec<u8>>,
    waiting: VecDeque<(WriteId, Write)>,
}

impl Storage {
    pub(crate) fn write(&mut self, id: WriteId, write: Write) {
        self.waiting.push_back((id, write));
    }

    /// Makes this many of the oldest writes durable. Returns the id of the last one.
    pub(crate) fn store(&mut self, count: usize) -> Option<WriteId> {
        let mut last = None;
        for _ in 0..count {
            let Some((id, write)) = self.waiting.pop_front() else { break };
            carry_out(&mut self.files, write);
            last = Some(id);
        }
        last
    }

    /// Returns a file as a reader sees it, with the writes that are not durable yet.
    pub(crate) fn read(&self, file: File) -> Option<Vec<u8>> {
        let mut files = self.files.clone();
        for (_, write) in &self.waiting {
            carry_out(&mut files, write.clone());
        }
        files.remove(&file)
    }

    /// Simulates a crash. Durable writes stay. Of the others, a random number of the oldest stay,
    /// and a random number of the first bytes of the append after them.
    pub(crate) fn crash(&mut self, rng: &mut Rng) {
        let whole = rng.below(self.waiting.len() + 1);
        self.store(whole);
        if let Some((_, Write::Append { file, at, mut bytes })) = self.waiting.pop_front() {
            bytes.truncate(rng.below(bytes.len() + 1));
            carry_out(&mut self.files, Write::Append { file, at, bytes });
        }
        self.waiting.clear();
    }

    /// Returns the files for another run.
    pub(crate) fn kept(&self) -> StoredFiles {
        assert!(self.waiting.is_empty(), "a clean end waits for the writes");
        let filters = self.files.iter().filter_map(|(file, bytes)| match file {
            File::Filters(number) => Some((*number, bytes.len() as u64)),
            _ => None,
        });
        StoredFiles {
            network: self.files.get(&File::Network).cloned(),
            headers: self.files.get(&File::Headers).cloned(),
            journal: self.files.get(&File::Journal).cloned(),
            state: self.files.get(&File::State).cloned(),
            filters: filters.collect(),
        }
    }

    pub(crate) fn file_mut(&mut self, file: File) -> &mut Vec<u8> {
        self.files.entry(file).or_default()
    }

    pub(crate) fn remove(&mut self, file: File) {
        self.files.remove(&file);
    }
}

fn carry_out(files: &mut BTreeMap<File, Vec<u8>>, write: Write) {
    match write {
        Write::Append { file, at, bytes } => {
            let kept = files.entry(file).or_default();
            let at = usize::try_from(at).unwrap();
            assert!(at <= kept.len(), "a gap in {file:?}: {at} after {}", kept.len());
            kept.truncate(at);
            kept.extend(bytes);
        }
        Write::Replace { file, bytes } => {
            files.insert(file, bytes);
        }
        Write::Remove(file) => {
            files.remove(&file);
        }
        other => panic!("an unknown write: {other:?}"),
    }
}
