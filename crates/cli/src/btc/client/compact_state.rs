//! What BIP157 keeps between runs: what is known of the filters, and the indices up to which
//! descriptors were asked of them, and blocks that came and were not looked at. All in one file, so
//! that nothing is older than the other: a filter that was asked before an index was derived has not
//! been asked for it.
//!
//! A line of JSON behind its checksum, and then the bytes of `FilterSync::encode`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use chainsieve::btc::bip157::{Config, FilterSync};
use chainsieve::btc::headers::HeaderChain;
use serde_json::{Value, json};

use super::folder;
use crate::input::named;
use crate::output::print_log;

const VERSION: u64 = 1;

/// What is kept beside the filters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The next index of each ranged descriptor.
    pub(crate) next: Vec<u32>,
    /// The lowest block that came and was not looked at.
    pub(crate) again: Option<u32>,
    /// How much was written of hits.
    pub(crate) hits: u64,
}

/// The file, and what was in it.
#[derive(Debug)]
pub(crate) struct CompactState {
    path: PathBuf,
    kept: Option<(Kept, Vec<u8>)>,
}

impl CompactState {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let kept = match folder::read(path)? {
            Some(bytes) => Some(parse(&bytes).with_context(|| named(path))?),
            None => None,
        };
        Ok(Self { path: path.to_owned(), kept })
    }

    /// What is known of the filters, and what was kept with it; or nothing, if there is nothing that is
    /// of use.
    pub(crate) fn restore(
        &mut self,
        config: &Config,
        chain: &HeaderChain,
    ) -> (FilterSync, Option<Kept>) {
        if let Some((kept, bytes)) = self.kept.take() {
            match FilterSync::restore(config.clone(), chain, &bytes) {
                Ok(sync) => return (sync, Some(kept)),
                Err(error) => {
                    print_log(&format!("{}: {error}: filters start over", named(&self.path)));
                }
            }
        }
        (FilterSync::new(config.clone()), None)
    }

    pub(crate) fn save(
        &self,
        kept: &Kept,
        sync: &FilterSync,
        chain: &HeaderChain,
    ) -> anyhow::Result<()> {
        let line =
            json!({"version": VERSION, "next": kept.next, "again": kept.again, "hits": kept.hits});
        let mut bytes = folder::summed(&line.to_string()).into_bytes();
        bytes.extend(sync.encode(chain));
        folder::replace(&self.path, &bytes)
    }
}

fn parse(bytes: &[u8]) -> anyhow::Result<(Kept, Vec<u8>)> {
    let end =
        bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| anyhow!("no line in it"))?;
    let (line, rest) = bytes.split_at(end);
    let line = folder::unsummed(str::from_utf8(line)?)?;
    let line: Value = serde_json::from_str(line)?;
    match line["version"].as_u64() {
        Some(VERSION) => {}
        Some(version) => bail!("version {version}, known is {VERSION}"),
        None => bail!("no version"),
    }
    let number = |value: &Value| {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| anyhow!("{value} is no number from 0 to 4294967295"))
    };
    let next = line["next"].as_array().ok_or_else(|| anyhow!("no indices"))?;
    let next = next.iter().map(number).collect::<anyhow::Result<_>>()?;
    let again = Some(&line["again"]).filter(|again| !again.is_null()).map(number).transpose()?;
    let hits = line["hits"].as_u64().ok_or_else(|| anyhow!("no number of hits"))?;
    Ok((Kept { next, again, hits }, rest.get(1..).unwrap_or_default().to_vec()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use chainsieve::bitcoin::Network;

    use super::super::scratch::Scratch;
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_a_cut_file_is_none() {
        let scratch = Scratch::new("compact-state");
        let path = scratch.path().join("state");
        let chain = HeaderChain::new(Network::Regtest);
        let config = Config::new(Network::Regtest, 3, [1; 16]);
        let sync = FilterSync::new(config.clone());
        let kept = Kept { next: vec![5, 100], again: Some(17), hits: 3 };
        CompactState::open(&path).unwrap().save(&kept, &sync, &chain).unwrap();
        let restored = CompactState::open(&path).unwrap().restore(&config, &chain).1;
        assert_eq!(restored, Some(kept));
        // Another first height: of no use.
        let other = Config::new(Network::Regtest, 4, [1; 16]);
        assert_eq!(CompactState::open(&path).unwrap().restore(&other, &chain).1, None);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, bytes).unwrap();
            if let Ok(mut state) = CompactState::open(&path) {
                assert_eq!(state.restore(&config, &chain).1, None, "{at}");
            }
        }
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            // An error or nothing, and never something else.
            if let Ok(mut state) = CompactState::open(&path) {
                assert_eq!(state.restore(&config, &chain).1, None, "{length}");
            }
        }
    }
}
