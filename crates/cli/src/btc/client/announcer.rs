//! What is printed of a watch, line by line: hits by way of the ledger, and what changes their worth.

use chainsieve::bitcoin::Network;
use chainsieve::btc::headers::{BlockAt, HeaderChain};
use serde_json::{Value, json};

use super::hit::Hit;
use super::ledger::{Known, Ledger};
use super::summary::{Graded, work_hex};
use crate::output::{Lines, count, grouped};

/// Prints a watch.
#[derive(Debug)]
pub(crate) struct Announcer {
    ledger: Ledger,
    pub(super) lines: Lines,
    json: bool,
    network: Network,
    /// Printed: new ones, ones that may have been printed before, ones taken back.
    pub(crate) hits: u64,
    pub(crate) again: u64,
    pub(crate) withdrawn: u64,
}

impl Announcer {
    pub(crate) fn new(ledger: Ledger, network: Network, json: bool) -> Self {
        let lines = Lines::default();
        Self { ledger, lines, json, network, hits: 0, again: 0, withdrawn: 0 }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn network(&self) -> Network {
        self.network
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lines.is_closed()
    }

    /// Hits of an earlier run that may not have been printed, and those that left the chain since.
    pub(crate) fn resume(&mut self, chain: &HeaderChain) -> anyhow::Result<()> {
        let is_gone = |(height, block): &(u32, _)| chain.hash_at(*height) != Some(*block);
        let lowest = self.ledger.blocks().filter(is_gone).map(|(height, _)| height).min();
        if let Some(lowest) = lowest {
            self.roll_back(lowest.saturating_sub(1), &[], chain)?;
        }
        for hit in self.ledger.not_printed() {
            let text = || format!("again: {}\n", short(&hit));
            self.print_hit(&hit, text, chain, true)?;
        }
        Ok(())
    }

    /// Writes hits, and prints what is new of them.
    pub(crate) fn found(&mut self, hits: &[Hit], chain: &HeaderChain) -> anyhow::Result<()> {
        let values: Vec<_> = hits.iter().map(|hit| hit.json(self.network)).collect();
        let known = self.ledger.add(&values)?;
        for ((hit, value), known) in hits.iter().zip(&values).zip(known) {
            let again = known == Known::NotPrinted;
            if known != Known::Printed {
                let confirmations = confirmations(value, chain);
                self.print_hit(value, || hit.words(confirmations, again), chain, again)?;
            }
        }
        Ok(())
    }

    fn print_hit(
        &mut self,
        hit: &Value,
        words: impl FnOnce() -> String,
        chain: &HeaderChain,
        again: bool,
    ) -> anyhow::Result<()> {
        let mut line = hit.clone();
        line["confirmations"] = confirmations(hit, chain).into();
        line["again"] = again.into();
        self.print(&line, Some(words))?;
        if !self.is_closed() {
            self.ledger.printed(hit)?;
            self.hits += u64::from(!again);
            self.again += u64::from(again);
        }
        Ok(())
    }

    /// Blocks above a height have left the chain.
    pub(crate) fn roll_back(
        &mut self,
        height: u32,
        disconnected: &[BlockAt],
        chain: &HeaderChain,
    ) -> anyhow::Result<()> {
        let gone = self.ledger.roll_back(height)?;
        let blocks = disconnected
            .iter()
            .map(|at| json!({"height": at.height, "block": at.hash.to_string()}));
        let withdrawn = gone.iter().map(|(height, (block, txid))| {
            json!({
                "height": height,
                "block": block.map(|block| block.to_string()),
                "txid": txid.to_string(),
            })
        });
        let line = json!({
            "event": "reorg",
            "fork": {"height": height, "block": chain.hash_at(height).map(|hash| hash.to_string())},
            "disconnected": blocks.collect::<Vec<_>>(),
            "withdrawn": withdrawn.collect::<Vec<_>>(),
        });
        self.withdrawn += gone.len() as u64;
        let words = || {
            let mut text = format!(
                "reorganization: the blocks above height {} left the chain, and with them {}\n",
                grouped(height.into()),
                count(gone.len(), "hit")
            );
            text.extend(gone.iter().map(|(height, (_, txid))| {
                format!("taken back: height {}  tx {txid}\n", grouped((*height).into()))
            }));
            text
        };
        self.print(&line, Some(words))
    }

    /// What a "no" in these blocks is worth now.
    pub(crate) fn graded(&mut self, graded: Graded) -> anyhow::Result<()> {
        let mut line = json!({"event": "graded"});
        merge(&mut line, graded.json());
        self.print(&line, None::<fn() -> String>)
    }

    /// What was said of these blocks counts no more.
    pub(crate) fn reopened(&mut self, from: u32, to: u32) -> anyhow::Result<()> {
        let line = json!({"event": "reopened", "from": from, "to": to});
        self.print(&line, None::<fn() -> String>)
    }

    pub(crate) fn finding(
        &mut self,
        kind: &'static str,
        at: Option<BlockAt>,
        text: &str,
    ) -> anyhow::Result<()> {
        let line = json!({
            "event": "finding",
            "kind": kind,
            "height": at.map(|at| at.height),
            "block": at.map(|at| at.hash.to_string()),
            "text": text,
        });
        self.print(&line, Some(|| format!("{text}\n")))
    }

    /// All that the peers have is seen.
    pub(crate) fn caught_up(
        &mut self,
        chain: &HeaderChain,
        answered_to: Option<u32>,
    ) -> anyhow::Result<()> {
        let tip = chain.tip();
        let unconfirmed = self.ledger.hits().filter(|hit| hit["block"].is_null()).count();
        let confirmed = self.ledger.hits().count() - unconfirmed;
        let line = json!({
            "event": "caught_up",
            "height": tip.height,
            "block": tip.hash.to_string(),
            "work": work_hex(chain),
            "answered_to": answered_to,
            "confirmed": confirmed,
            "unconfirmed": unconfirmed,
        });
        let words = || {
            let height = grouped(tip.height.into());
            format!("caught up: height {height}  {}\n", tip.hash)
        };
        self.print(&line, Some(words))
    }

    fn print(
        &mut self,
        line: &Value,
        words: Option<impl FnOnce() -> String>,
    ) -> anyhow::Result<()> {
        let text = match words {
            _ if self.json => format!("{line}\n"),
            Some(words) => words(),
            None => return Ok(()),
        };
        Ok(self.lines.print(&text)?)
    }
}

/// How deep the hit's block is; 0 while unconfirmed.
fn confirmations(hit: &Value, chain: &HeaderChain) -> u32 {
    let height = hit["height"].as_u64().and_then(|height| u32::try_from(height).ok());
    height.map_or(0, |height| (chain.tip().height + 1).saturating_sub(height))
}

fn short(hit: &Value) -> String {
    let height = hit["height"]
        .as_u64()
        .map_or("unconfirmed".into(), |height| format!("height {}", grouped(height)));
    format!("{height}  tx {}", hit["txid"].as_str().unwrap_or_default())
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}
