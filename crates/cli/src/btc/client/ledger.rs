//! What was found, in a file: a hit is written before it is printed, and marked when it has been, so
//! that none is lost and none comes twice as new.
//!
//! The file is lines of JSON, each behind its checksum, that are appended: `{"hit": …}`, `{"printed": KEY}` and `{"gone": HEIGHT}`,
//! which takes back what blocks above that height held. A hit that is not marked as printed comes
//! again, and is said to. A last line that was not written whole is cut off.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::bitcoin::{BlockHash, OutPoint, Txid};
use serde_json::{Value, json};

use super::folder;
use super::wallet::Owner;
use crate::btc::compact::scripts::WatchedScript;
use crate::input::named;

/// A transaction in a block, or outside.
pub(crate) type Key = (Option<BlockHash>, Txid);

#[derive(Debug)]
struct Entry {
    height: Option<u32>,
    hit: Value,
    printed: bool,
}

/// An output that a hit found.
#[derive(Debug)]
pub(crate) struct Received {
    /// `u32::MAX` of what is in no block.
    pub(crate) height: u32,
    pub(crate) outpoint: OutPoint,
    pub(crate) owner: Owner,
}

/// All hits of a watch.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    entries: BTreeMap<Key, Entry>,
    /// Hits and marks of hits taken back ever written: whoever has noted it can ask what has become
    /// of the hits since.
    written: u64,
    /// The marks of hits taken back: the number of each, and the height.
    gone: Vec<(u64, u32)>,
}

/// What a hit is to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// New; to be printed once it is written.
    No,
    /// Written, and perhaps not printed; or printed with less.
    NotPrinted,
    /// Printed.
    Printed,
}

impl Ledger {
    /// Reads the file, or begins one.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let bytes = folder::read(path)?.unwrap_or_default();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| named(path))?;
        if whole < bytes.len() {
            file.set_len(whole as u64).with_context(|| named(path))?;
        }
        let mut ledger = Self {
            path: path.to_owned(),
            file,
            entries: BTreeMap::new(),
            written: 0,
            gone: Vec::new(),
        };
        let text = std::str::from_utf8(bytes.get(..whole).unwrap_or_default());
        let text = text.with_context(|| named(path))?;
        let mut lines = 0;
        for (number, line) in (1..).zip(text.lines()) {
            ledger.replay(line).with_context(|| format!("{}, line {number}", named(path)))?;
            lines = number;
        }
        if lines > 1_000 + 4 * ledger.entries.len() {
            return ledger.rewritten();
        }
        Ok(ledger)
    }

    /// The same with a file of what counts alone: reorganizations leave much that does not.
    fn rewritten(self) -> anyhow::Result<Self> {
        let mut lines = vec![json!({ "before": self.written })];
        for entry in self.entries.values() {
            lines.push(json!({ "hit": entry.hit }));
            lines.extend(entry.printed.then(|| mark(&entry.hit)));
        }
        folder::replace(&self.path, text_of(&lines).as_bytes())?;
        let file = OpenOptions::new().append(true).open(&self.path);
        let file = file.with_context(|| named(&self.path))?;
        let written = self.written + self.entries.len() as u64;
        Ok(Self { file, gone: vec![(self.written, 0)], written, ..self })
    }

    fn replay(&mut self, line: &str) -> anyhow::Result<()> {
        let line: Value = serde_json::from_str(folder::unsummed(line)?)?;
        if let Some(hit) = line.get("hit") {
            let key = key_of(hit)?;
            let height = hit["height"].as_u64().and_then(|height| u32::try_from(height).ok());
            self.insert(key, Entry { height, hit: hit.clone(), printed: false });
            self.written += 1;
        } else if let Some(printed) = line.get("printed") {
            if let Some(entry) = self.entries.get_mut(&key_of(printed)?) {
                entry.printed = true;
            }
        } else if let Some(height) = line.get("gone").and_then(Value::as_u64) {
            let height = u32::try_from(height)?;
            self.remove_above(height);
            self.note_gone(height);
        } else if let Some(before) = line.get("before").and_then(Value::as_u64) {
            self.written = before;
            // Marks before are not kept.
            self.gone = vec![(before, 0)];
        } else {
            bail!("neither a hit nor a mark");
        }
        Ok(())
    }

    fn note_gone(&mut self, height: u32) {
        self.written += 1;
        self.gone.push((self.written, height));
    }

    /// How many hits and marks were ever written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Where what was kept when so much was written counts no more: the lowest height whose hits have
    /// been taken back since, or lost with the file.
    pub(crate) fn lost_since(&self, written: u64) -> Option<u32> {
        if written > self.written {
            return Some(0);
        }
        let since = self.gone.iter().filter(|(number, _)| *number > written);
        since.map(|(_, height)| height.saturating_add(1)).min()
    }

    /// The transactions that no block has.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.entries.keys().take_while(|(block, _)| block.is_none()).count()
    }

    /// A transaction that is in a block is not unconfirmed.
    fn insert(&mut self, key: Key, entry: Entry) {
        if key.0.is_some() {
            self.entries.remove(&(None, key.1));
        }
        self.entries.insert(key, entry);
    }

    /// The hits, of any state.
    pub(crate) fn hits(&self) -> impl Iterator<Item = &Value> {
        self.entries.values().map(|entry| &entry.hit)
    }

    /// The outputs that hits found, those of the lowest blocks first, and last what is in no block.
    pub(crate) fn received(&self) -> Vec<Received> {
        let mut found = Vec::new();
        for ((_, txid), entry) in &self.entries {
            for received in entry.hit["received"].as_array().into_iter().flatten() {
                let number = |field: &Value| field.as_u64().and_then(|it| u32::try_from(it).ok());
                let script = received["script"].as_str().and_then(|hex| hex::decode(hex).ok());
                let (Some(vout), Some(script)) = (number(&received["vout"]), script) else {
                    continue;
                };
                let watched = WatchedScript {
                    item: received["item"].as_str().unwrap_or_default().to_owned(),
                    path: number(&received["path"]),
                    index: number(&received["index"]),
                    script: script.into(),
                };
                found.push(Received {
                    height: entry.height.unwrap_or(u32::MAX),
                    outpoint: OutPoint { txid: *txid, vout },
                    owner: Owner::of(&watched),
                });
            }
        }
        found.sort_unstable_by_key(|received| (received.height, received.outpoint));
        found
    }

    /// The blocks of hits, with their heights.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u32, BlockHash)> + '_ {
        self.entries.iter().filter_map(|((block, _), entry)| Some((entry.height?, (*block)?)))
    }

    /// Hits that may not have been printed.
    pub(crate) fn not_printed(&self) -> Vec<Value> {
        let open = self.entries.values().filter(|entry| !entry.printed);
        open.map(|entry| entry.hit.clone()).collect()
    }

    /// Writes hits, so that they are on the disk when this returns. Returns what each is to the
    /// ledger.
    pub(crate) fn add(&mut self, hits: &[Value]) -> anyhow::Result<Vec<Known>> {
        let mut known = Vec::new();
        let mut lines = Vec::new();
        for hit in hits {
            let key = key_of(hit)?;
            let same = |entry: &Entry| {
                ["received", "spent"].iter().all(|field| entry.hit[field] == hit[field])
            };
            let confirmed = |other: &Key| other.0.is_some() && other.1 == key.1;
            let (before, write) = match self.entries.get(&key) {
                // Who relays it has not seen its block.
                None if key.0.is_none() && self.entries.keys().any(confirmed) => {
                    (Known::Printed, false)
                }
                None => (Known::No, true),
                Some(entry) if !same(entry) => (Known::NotPrinted, true),
                Some(Entry { printed: true, .. }) => (Known::Printed, false),
                Some(_) => (Known::NotPrinted, false),
            };
            known.push(before);
            if write {
                lines.push(json!({ "hit": hit }));
                let height = hit["height"].as_u64().and_then(|height| u32::try_from(height).ok());
                self.insert(key, Entry { height, hit: hit.clone(), printed: false });
                self.written += 1;
            }
        }
        self.append(&lines, true)?;
        Ok(known)
    }

    /// Notes that a hit has been printed.
    pub(crate) fn printed(&mut self, hit: &Value) -> anyhow::Result<()> {
        let key = key_of(hit)?;
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| !entry.printed) else {
            return Ok(());
        };
        entry.printed = true;
        // Without waiting for the disk: if this is lost, the hit comes again, and says so.
        self.append(&[mark(hit)], false)
    }

    /// The blocks above a height are gone. Returns what they held.
    pub(crate) fn roll_back(&mut self, height: u32) -> anyhow::Result<Vec<(u32, Key)>> {
        let gone = self.remove_above(height);
        if !gone.is_empty() {
            self.note_gone(height);
            self.append(&[json!({ "gone": height })], true)?;
        }
        Ok(gone)
    }

    fn remove_above(&mut self, height: u32) -> Vec<(u32, Key)> {
        let above = |entry: &Entry| entry.height.filter(|at| *at > height);
        let gone: Vec<_> =
            self.entries.iter().filter_map(|(key, entry)| Some((above(entry)?, *key))).collect();
        for (_, key) in &gone {
            self.entries.remove(key);
        }
        gone
    }

    fn append(&mut self, lines: &[Value], wait: bool) -> anyhow::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let write = || {
            let mut file = &self.file;
            file.write_all(text_of(lines).as_bytes())?;
            if wait { file.sync_data() } else { Ok(()) }
        };
        write().with_context(|| format!("cannot write {}", named(&self.path)))
    }
}

/// A line for each, with its checksum.
fn text_of(lines: &[Value]) -> String {
    lines.iter().fold(String::new(), |text, line| text + &folder::summed(&line.to_string()))
}

fn mark(hit: &Value) -> Value {
    json!({"printed": {"block": hit["block"], "txid": hit["txid"]}})
}

fn key_of(hit: &Value) -> anyhow::Result<Key> {
    let block = match hit.get("block").and_then(Value::as_str) {
        Some(block) => Some(BlockHash::from_str(block)?),
        None => None,
    };
    let txid = hit.get("txid").and_then(Value::as_str).ok_or_else(|| anyhow!("no txid"))?;
    Ok((block, Txid::from_str(txid)?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::scratch::Scratch;
    use super::*;

    fn hit(height: u32, byte: u8) -> Value {
        let hash = format!("{byte:02x}").repeat(32);
        json!({"height": height, "block": hash, "txid": hash, "received": [], "spent": []})
    }

    #[test]
    fn what_was_printed_is_known_and_what_may_not_have_been_comes_again() {
        let scratch = Scratch::new("ledger");
        let path = scratch.path().join("hits");
        let mut ledger = Ledger::open(&path).unwrap();
        let hits = [hit(1, 1), hit(2, 2)];
        assert_eq!(ledger.add(&hits).unwrap(), [Known::No, Known::No]);
        ledger.printed(&hits[0]).unwrap();
        drop(ledger);
        let mut ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.not_printed(), [hits[1].clone()]);
        assert_eq!(ledger.add(&hits).unwrap(), [Known::Printed, Known::NotPrinted]);
        // One that says more is printed once more.
        let mut more = hits[0].clone();
        more["received"] = json!([{"vout": 0}]);
        assert_eq!(ledger.add(std::slice::from_ref(&more)).unwrap(), [Known::NotPrinted]);
        ledger.printed(&more).unwrap();
        assert_eq!(ledger.add(&[more]).unwrap(), [Known::Printed]);
    }

    #[test]
    fn a_reorganization_takes_back() {
        let scratch = Scratch::new("ledger-reorg");
        let path = scratch.path().join("hits");
        let mut ledger = Ledger::open(&path).unwrap();
        let mut unconfirmed = hit(0, 9);
        (unconfirmed["height"], unconfirmed["block"]) = (Value::Null, Value::Null);
        ledger.add(&[hit(1, 1), hit(2, 2), hit(3, 3), unconfirmed]).unwrap();
        let gone = ledger.roll_back(1).unwrap();
        assert_eq!(gone.iter().map(|(height, _)| *height).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(ledger.roll_back(1).unwrap(), []);
        assert_eq!(Ledger::open(&path).unwrap().hits().count(), 2);
        assert_eq!(ledger.add(&[hit(2, 2)]).unwrap(), [Known::No]);
        assert_eq!(Ledger::open(&path).unwrap().hits().count(), 3);
    }

    #[test]
    fn a_transaction_in_a_block_is_not_unconfirmed_and_old_lines_go() {
        let scratch = Scratch::new("ledger-old");
        let path = scratch.path().join("hits");
        let mut ledger = Ledger::open(&path).unwrap();
        for _ in 0..400 {
            let mut unconfirmed = hit(0, 1);
            (unconfirmed["height"], unconfirmed["block"]) = (Value::Null, Value::Null);
            assert_eq!(ledger.add(&[unconfirmed.clone()]).unwrap(), [Known::No]);
            assert_eq!(ledger.add(&[hit(1, 1)]).unwrap(), [Known::No]);
            assert_eq!(ledger.hits().collect::<Vec<_>>(), [&hit(1, 1)]);
            ledger.roll_back(0).unwrap();
        }
        ledger.add(&[hit(1, 1), hit(1, 2)]).unwrap();
        ledger.printed(&hit(1, 1)).unwrap();
        let mut ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.not_printed(), [hit(1, 2)]);
        ledger.printed(&hit(1, 2)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert_eq!(Ledger::open(&path).unwrap().not_printed(), Vec::<Value>::new());
    }

    #[test]
    fn a_file_cut_at_each_byte_has_the_hits_of_its_whole_lines() {
        let scratch = Scratch::new("ledger-cut");
        let path = scratch.path().join("hits");
        let mut ledger = Ledger::open(&path).unwrap();
        ledger.add(&[hit(1, 1)]).unwrap();
        ledger.printed(&hit(1, 1)).unwrap();
        ledger.add(&[hit(2, 2)]).unwrap();
        drop(ledger);
        let whole = fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let lines = whole[..length].split(|byte| *byte == b'\n').count() - 1;
            let mut ledger = Ledger::open(&path).unwrap();
            assert_eq!(ledger.hits().count(), [0, 1, 1, 2][lines], "{length}");
            assert_eq!(ledger.not_printed().len(), [0, 1, 0, 1][lines], "{length}");
            ledger.add(&[hit(3, 3)]).unwrap();
            assert_eq!(Ledger::open(&path).unwrap().hits().count(), [0, 1, 1, 2][lines] + 1);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let scratch = Scratch::new("ledger-damage");
        let path = scratch.path().join("hits");
        for text in ["{}", "x", "{\"hit\":{}}", "{\"hit\":{\"txid\":\"00\"}}", ""] {
            fs::write(&path, folder::summed(text)).unwrap();
            let error = format!("{:#}", Ledger::open(&path).unwrap_err());
            assert!(error.contains("hits, line 1: "), "{error}");
        }
    }

    #[test]
    fn a_bit_that_has_turned_is_an_error_or_cuts_the_last_line() {
        let scratch = Scratch::new("ledger-bits");
        let path = scratch.path().join("hits");
        let mut ledger = Ledger::open(&path).unwrap();
        ledger.add(&[hit(1, 1), hit(2, 2)]).unwrap();
        let written = ledger.written();
        drop(ledger);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, bytes).unwrap();
            if let Ok(ledger) = Ledger::open(&path) {
                assert_eq!((at, ledger.lost_since(written)), (whole.len() - 1, Some(0)));
            }
        }
    }
}
