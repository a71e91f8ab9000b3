//! The command `btc match`, and descriptions of matches.

use anyhow::{Context as _, bail};
use chainsieve::bitcoin::{Address, Block, Network, Script, Transaction};
use chainsieve::btc::bip37::{BlockElements, BloomFilter, Elements, MatchReason, TxMatch};
use chainsieve::btc::script::pushes;
use chainsieve_report::{Input, Page, Progress, Reader, Report, count, size, write_hex};
use serde_json::{Value, json};

use super::{decode, load_filter};
use crate::args::{Contents, MatchArgs};

/// One input and its matches.
#[derive(Debug)]
struct Matched {
    source: String,
    kind: &'static str,
    hash: String,
    num_transactions: usize,
    /// Each match with its transaction.
    matches: Vec<(TxMatch, Transaction)>,
}

pub(crate) fn run(args: &MatchArgs) -> anyhow::Result<Report> {
    let reader = Reader::of(args.inputs.iter().chain([&args.filter]))?;
    let mut warnings = Vec::new();
    let mut filter = load_filter(&reader, &args.filter, &mut warnings)?;
    let progress = Progress::over_files(args.inputs.iter().map(String::as_str));
    let mut done = 0;
    let mut results = Vec::new();
    // One argument is read at a time, because the blocks of a chain may not fit into memory
    // together.
    for argument in &args.inputs {
        for input in reader.many(argument, what(args.contents))? {
            results.push(match_input(&mut filter, input, args.contents)?);
        }
        done += size(argument);
        progress.at(done);
    }
    drop(progress);
    if let Some(path) = &args.filter_out {
        write_hex(path, &filter.encode(), args.overwrite.force)?;
    }
    let network = args.network;
    let matched: usize = results.iter().map(|result| result.matches.len()).sum();
    let inserted = results
        .iter()
        .flat_map(|result| &result.matches)
        .flat_map(|(found, _)| found.inserted())
        .count();
    let json = json!({
        "inputs": results.iter().map(|result| result.json(network)).collect::<Vec<_>>(),
        "matched": matched,
        "inserted": inserted,
        "payload": hex::encode(filter.encode()),
    });
    let mut page = Page::default();
    for result in &results {
        result.show(&mut page, network);
    }
    let changed = if inserted == 0 {
        "the filter is unchanged".into()
    } else {
        format!("{} inserted into the filter", count(inserted, "outpoint"))
    };
    page.line(format!("{} matched; {changed}", count(matched, "transaction")));
    Ok(Report::new(page, json, matched > 0).with_warnings(warnings))
}

fn what(contents: Contents) -> &'static str {
    match contents {
        Contents::Auto => "block or transaction",
        Contents::Block => "block",
        Contents::Tx => "transaction",
    }
}

fn match_input(
    filter: &mut BloomFilter,
    Input { source, bytes }: Input,
    contents: Contents,
) -> anyhow::Result<Matched> {
    let block = || BlockElements::from_raw(&bytes);
    let transaction = || Elements::from_raw_transaction(&bytes);
    let (block, transaction) = match contents {
        Contents::Block => (Some(block().with_context(|| format!("block, {source}"))?), None),
        Contents::Tx => {
            (None, Some(transaction().with_context(|| format!("transaction, {source}"))?))
        }
        Contents::Auto => match (block(), transaction()) {
            (Ok(block), _) => (Some(block), None),
            (_, Ok(transaction)) => (None, Some(transaction)),
            (Err(block), Err(transaction)) => {
                bail!("{source}: neither a block ({block}) nor a transaction ({transaction})")
            }
        },
    };
    // The transactions are decoded only if something matched, to describe the matches.
    if let Some(block) = block {
        let found = filter.match_block(&block);
        let decoded = if found.is_empty() { vec![] } else { decode::<Block>(&bytes)?.txdata };
        return Ok(Matched {
            source,
            kind: "block",
            hash: block.header().block_hash().to_string(),
            num_transactions: block.txids().len(),
            matches: with_transactions(found, &decoded),
        });
    }
    let Some(elements) = transaction else { bail!("{source}: nothing to match") };
    let found = filter.match_elements(&elements);
    let decoded = if found.is_empty() { vec![] } else { vec![decode(&bytes)?] };
    Ok(Matched {
        source,
        kind: "transaction",
        hash: elements.txids().iter().map(ToString::to_string).collect(),
        num_transactions: 1,
        matches: with_transactions(found, &decoded),
    })
}

fn with_transactions(found: Vec<TxMatch>, block: &[Transaction]) -> Vec<(TxMatch, Transaction)> {
    let transaction = |found: TxMatch| {
        let tx = block.get(found.index as usize)?.clone();
        Some((found, tx))
    };
    found.into_iter().filter_map(transaction).collect()
}

impl Matched {
    fn described(&self, network: Network) -> impl Iterator<Item = Described<'_>> {
        self.matches.iter().map(move |(found, tx)| Described { found, tx, network })
    }

    fn json(&self, network: Network) -> Value {
        json!({
            "source": self.source,
            "kind": self.kind,
            "hash": self.hash,
            "transactions": self.num_transactions,
            "matches": self.described(network).map(|match_| match_.json()).collect::<Vec<_>>(),
        })
    }

    fn show(&self, page: &mut Page, network: Network) {
        if self.kind == "block" {
            page.heading(format!(
                "block {}: {} of {} matched",
                self.hash,
                self.matches.len(),
                count(self.num_transactions, "transaction")
            ));
        } else if self.matches.is_empty() {
            page.line(format!("transaction {}: no match", self.hash));
        } else {
            page.heading(format!("transaction {}: matched", self.hash));
        }
        if !self.matches.is_empty() {
            let rows = self.described(network).flat_map(|match_| match_.rows()).collect();
            page.table(vec!["index", "txid", "why"], rows);
        }
    }
}

/// A match and its transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described<'a> {
    pub(crate) found: &'a TxMatch,
    pub(crate) tx: &'a Transaction,
    pub(crate) network: Network,
}

impl Described<'_> {
    pub(crate) fn json(&self) -> Value {
        let reasons: Vec<_> =
            self.found.reasons.iter().map(|reason| self.reason(*reason)).collect();
        json!({
            "index": self.found.index,
            "txid": self.found.txid.to_string(),
            "reasons": reasons,
        })
    }

    /// Returns the rows of a table: index, txid, and one reason in each row.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let mut why = self.found.reasons.iter().map(|reason| self.words(*reason));
        let first = why.next().unwrap_or_else(|| "requested".into());
        let first = vec![self.found.index.to_string(), self.found.txid.to_string(), first];
        let rest = why.map(|why| vec![String::new(), String::new(), why]);
        [first].into_iter().chain(rest).collect()
    }

    fn reason(&self, reason: MatchReason) -> Value {
        match reason {
            MatchReason::Everything => json!({"kind": "everything"}),
            MatchReason::Txid => json!({"kind": "txid"}),
            MatchReason::Output { vout, push, inserted } => {
                let output = self.tx.output.get(vout as usize);
                let script = output.map_or(Script::new(), |output| &output.script_pubkey);
                json!({
                    "kind": "output",
                    "vout": vout,
                    "push": push,
                    "data": nth_push(script, push).map(hex::encode),
                    "script": hex::encode(script),
                    "address": self.address(script),
                    "satoshis": output.map(|output| output.value.to_sat()),
                    "inserted": inserted,
                })
            }
            MatchReason::Spent { vin } => {
                json!({"kind": "spent", "vin": vin, "outpoint": self.outpoint(vin)})
            }
            MatchReason::InputData { vin, push } => json!({
                "kind": "input_data",
                "vin": vin,
                "push": push,
                "data": self.input_data(vin, push).map(hex::encode),
            }),
            _ => json!({"kind": "other", "text": reason.to_string()}),
        }
    }

    /// Describes one reason for people.
    pub(crate) fn words(&self, reason: MatchReason) -> String {
        match reason {
            MatchReason::Output { vout, push, inserted } => {
                let Some(output) = self.tx.output.get(vout as usize) else {
                    return reason.to_string();
                };
                let script = &output.script_pubkey;
                let to = match (self.address(script), nth_push(script, push)) {
                    (Some(address), _) => format!("to {address}"),
                    (None, Some(data)) => format!("push {}", data_words(data)),
                    (None, None) => String::from("no push"),
                };
                let inserted = if inserted { "; outpoint inserted" } else { "" };
                format!("output {vout}: {} {to}{inserted}", output.value)
            }
            MatchReason::Spent { vin } => match self.outpoint(vin) {
                Some(outpoint) => format!("input {vin} spends {outpoint}"),
                None => reason.to_string(),
            },
            MatchReason::InputData { vin, push } => match self.input_data(vin, push) {
                Some(data) => format!("input {vin} pushes {}", data_words(data)),
                None => reason.to_string(),
            },
            _ => reason.to_string(),
        }
    }

    fn address(&self, script: &Script) -> Option<String> {
        Address::from_script(script, self.network).ok().map(|address| address.to_string())
    }

    fn outpoint(&self, vin: u32) -> Option<String> {
        self.tx.input.get(vin as usize).map(|input| input.previous_output.to_string())
    }

    fn input_data(&self, vin: u32, push: u32) -> Option<&[u8]> {
        nth_push(&self.tx.input.get(vin as usize)?.script_sig, push)
    }
}

fn nth_push(script: &Script, push: u32) -> Option<&[u8]> {
    pushes(script.as_bytes()).nth(push as usize)
}

fn data_words(data: &[u8]) -> String {
    if data.len() > 40 {
        format!("{}… ({} bytes)", hex::encode(&data[..36]), data.len())
    } else {
        hex::encode(data)
    }
}
