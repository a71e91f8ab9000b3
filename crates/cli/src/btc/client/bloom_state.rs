//! What a watch by BIP37 keeps between runs: the filter's tweak and capacity, how far it is, and up to
//! which index each descriptor is derived.

use std::path::PathBuf;
use std::str::FromStr as _;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::bitcoin::BlockHash;
use chainsieve::btc::headers::HeaderChain;
use serde_json::{Value, json};

use super::folder;
use crate::input::named;

const VERSION: u64 = 1;

/// The state and its file.
#[derive(Debug)]
pub(crate) struct BloomState {
    path: PathBuf,
    pub(crate) tweak: u32,
    /// The elements that the filter has room for; 0 before the first.
    pub(crate) capacity: u32,
    /// Blocks up to which all is answered: the last, and some before it, for reorganizations.
    answered: Vec<(u32, BlockHash)>,
    /// How much was written of hits then.
    pub(crate) hits: u64,
    /// The next index of each ranged descriptor. What led to it may have left the chain since, and
    /// what was found there has not.
    pub(crate) next: Vec<u32>,
}

impl BloomState {
    /// Reads the file, or begins with a random tweak, which is kept for good: two filters of one
    /// wallet that differ in it tell the wallet.
    pub(crate) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let Some(bytes) = folder::read(&path)? else {
            let tweak = getrandom::u32().map_err(|error| anyhow!("no random number: {error}"))?;
            let (answered, next) = (Vec::new(), Vec::new());
            let mut state = Self { path, tweak, capacity: 0, answered, hits: 0, next };
            state.write()?;
            return Ok(state);
        };
        parse(&bytes, path.clone()).with_context(|| named(&path))
    }

    /// The height up to which all is answered, of blocks that are still in the chain.
    pub(crate) fn resume_from(&self, chain: &HeaderChain) -> Option<u32> {
        let in_chain = |(height, hash): &&(u32, BlockHash)| chain.hash_at(*height) == Some(*hash);
        self.answered.iter().filter(in_chain).map(|(height, _)| *height).max()
    }

    /// Keeps that all is answered up to this height.
    pub(crate) fn save(
        &mut self,
        answered: Option<u32>,
        chain: &HeaderChain,
    ) -> anyhow::Result<()> {
        self.answered.clear();
        let mut step = 1;
        let mut height = answered;
        while let Some(at) = height
            && let Some(hash) = chain.hash_at(at)
        {
            self.answered.push((at, hash));
            height = at.checked_sub(step);
            if self.answered.len() > 10 {
                step = step.saturating_mul(2);
            }
        }
        self.write()
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let answered = self.answered.iter().map(|(height, hash)| json!([height, hash.to_string()]));
        let state = json!({
            "version": VERSION,
            "tweak": self.tweak,
            "capacity": self.capacity,
            "answered": answered.collect::<Vec<_>>(),
            "hits": self.hits,
            "next": self.next,
        });
        folder::replace(&self.path, format!("{state}\n").as_bytes())
    }
}

fn parse(bytes: &[u8], path: PathBuf) -> anyhow::Result<BloomState> {
    let state: Value = serde_json::from_slice(bytes)?;
    match state["version"].as_u64() {
        Some(VERSION) => {}
        Some(version) => bail!("version {version}, known is {VERSION}"),
        None => bail!("no version"),
    }
    let number = |value: &Value, name: &str| {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| anyhow!("{name} is no number from 0 to 4294967295"))
    };
    let answered = state["answered"].as_array().into_iter().flatten().map(|block| {
        let hash = block[1].as_str().ok_or_else(|| anyhow!("answered without a hash"))?;
        Ok((number(&block[0], "height")?, BlockHash::from_str(hash)?))
    });
    let answered = answered.collect::<anyhow::Result<_>>()?;
    let hits = state["hits"].as_u64().ok_or_else(|| anyhow!("no number of hits"))?;
    let (tweak, capacity) =
        (number(&state["tweak"], "tweak")?, number(&state["capacity"], "capacity")?);
    let next = state["next"].as_array().ok_or_else(|| anyhow!("no indices"))?;
    let next = next.iter().map(|next| number(next, "index")).collect::<anyhow::Result<_>>()?;
    Ok(BloomState { path, tweak, capacity, answered, hits, next })
}
