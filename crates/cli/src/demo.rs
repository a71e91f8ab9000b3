//! `demo`: the main jobs from end to end, on blocks of the main chains.

mod audit;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use chainsieve::bitcoin::consensus::encode::deserialize;
use chainsieve::bitcoin::{Block, Network, OutPoint, Transaction};
use chainsieve::btc::bip37::{
    BlockElements, BloomFilter, Depth, MerkleBlock, Policy, Proof, TxMatch, UpdateMode,
};
use chainsieve::btc::script::pushes;
use serde_json::{Value, json};

use crate::args::Range;
use crate::btc::describe::Described;
use crate::btc::prove::{difficulty, without_witness};
use crate::btc::watch::{self, Item};
use crate::output::{Exit, Page, Report, duration, grouped, rate};

const BLOCK: &str = include_str!("demo/blocks/bitcoin_757753.json");
/// A wallet with a segwit address, an older one, and a coin that it received before. The null
/// outpoint is what every coinbase transaction spends, and the coinbase shows the tree's height.
const WATCHED: [(&str, &str); 4] = [
    ("bc1q7dmjqztn342e7qyl4tlfyqc8mju8ny7me8vm4n", "a segwit address"),
    ("1979m9gb8qypkDp8HYV3HvbWxCBX5anSzn", "an address of the first kind"),
    (
        "32814b7911b053b7c62c621b70878f3452ab331b2998dc639abf109a407d0a0b:0",
        "a segwit coin that it has",
    ),
    ("0000000000000000000000000000000000000000000000000000000000000000:4294967295", "any coinbase"),
];
/// Room beside what is watched: each match inserts its outpoint, and a filter that fills up
/// matches more and more.
const ELEMENTS: u32 = 8;
/// High, so that one block shows the cover that false positives give.
const RATE: f64 = 0.01;
/// Random in a real wallet, and then kept for good; fixed here so that every run is the same.
const TWEAK: u32 = 1;

/// What one side knows after its step.
struct Session {
    block: Block,
    block_bytes: usize,
    filter: BloomFilter,
    payload: Vec<u8>,
    matches: Vec<TxMatch>,
    merkle_block: Vec<u8>,
    delivered: Vec<Transaction>,
    proof: Proof,
    /// Whether each match is about what the wallet watches, or chance.
    own: Vec<bool>,
    times: [Duration; 5],
}

pub(crate) fn run() -> anyhow::Result<Report> {
    let fixture: Value = serde_json::from_str(BLOCK)?;
    let raw = hex::decode(fixture["block"].as_str().context("the fixture holds a block")?)?;
    let session = play(&raw)?;
    let outcome = audit::run()?;
    let mut page = session.page();
    outcome.page(&mut page);
    let mut json = session.json();
    json["audit"] = outcome.json();
    Ok(Report { page, json, payload: None, exit: Exit::Yes })
}

fn play(raw: &[u8]) -> anyhow::Result<Session> {
    let policy = watch::Policy { network: Network::Bitcoin, range: Range(0..=0), with_keys: false };
    let items: Vec<Item> = WATCHED
        .iter()
        .map(|(item, _)| Item::detect(item, &policy))
        .collect::<anyhow::Result<_>>()?;
    let mut own_data: HashSet<_> =
        items.into_iter().flat_map(|item| item.elements).map(|element| element.data).collect();

    // The wallet builds its filter and sends it.
    let started = Instant::now();
    let mut filter = BloomFilter::new(ELEMENTS, RATE, TWEAK, UpdateMode::All)?;
    for data in &own_data {
        filter.insert(data);
    }
    let payload = filter.encode();
    let built = started.elapsed();

    // The node loads it, matches the block and answers.
    // Every coinbase spends the null outpoint: what matches by it is not the wallet's.
    own_data.remove(&watch::outpoint_element(&OutPoint::null()));
    let block: Block = deserialize(raw)?;
    let started = Instant::now();
    let elements = BlockElements::from_raw(raw)?;
    let parsed = started.elapsed();
    let started = Instant::now();
    let mut loaded = BloomFilter::decode(&payload)?;
    let matches = loaded.match_block(&elements);
    let searched = started.elapsed();
    let started = Instant::now();
    let indices: Vec<_> = matches.iter().map(|found| found.index).collect();
    let merkle_block = MerkleBlock::new(elements.header(), elements.txids(), &indices)?.encode();
    let made = started.elapsed();
    let delivered: Vec<_> = matches
        .iter()
        .filter_map(|found| block.txdata.get(found.index as usize))
        .map(|tx| deserialize(&without_witness(tx)))
        .collect::<Result<_, _>>()?;

    // The wallet, which has only what the node sent, verifies it.
    let started = Instant::now();
    let received = MerkleBlock::decode(&merkle_block)?;
    let proof = Proof::verify(&received, Policy::Strict(Network::Bitcoin), &delivered)?;
    let own = delivered.iter().map(|tx| is_own(tx, &mut own_data)).collect();
    let verified = started.elapsed();

    let block_bytes = raw.len();
    let times = [built, parsed, searched, made, verified];
    Ok(Session {
        block,
        block_bytes,
        filter,
        payload,
        matches,
        merkle_block,
        delivered,
        proof,
        own,
        times,
    })
}

/// Whether `tx` pays to or spends what is in `own`; its outputs that do are then watched too.
fn is_own(tx: &Transaction, own: &mut HashSet<Vec<u8>>) -> bool {
    let txid = tx.compute_txid();
    let mut found = false;
    for (vout, output) in (0..).zip(&tx.output) {
        if pushes(output.script_pubkey.as_bytes()).any(|data| own.contains(data)) {
            own.insert(watch::outpoint_element(&OutPoint { txid, vout }));
            found = true;
        }
    }
    let spends = |outpoint: &OutPoint| own.contains(&watch::outpoint_element(outpoint));
    found || tx.input.iter().any(|input| spends(&input.previous_output))
}

impl Session {
    fn described(&self) -> impl Iterator<Item = (Described<'_>, bool)> {
        self.matches.iter().zip(&self.own).filter_map(|(found, &own)| {
            let tx = self.block.txdata.get(found.index as usize)?;
            Some((Described { found, tx, network: Network::Bitcoin }, own))
        })
    }

    fn delivered_bytes(&self) -> usize {
        self.delivered.iter().map(Transaction::base_size).sum()
    }

    fn page(&self) -> Page {
        let [built, parsed, searched, made, verified] = self.times.map(duration);
        let mut page = Page::default();
        page.line(format!(
            "Block 757,753 of the main chain: {} transactions, {} bytes.\n",
            self.block.txdata.len(),
            grouped(self.block_bytes)
        ));
        page.heading(format!("1  The wallet builds its filter ({built})"));
        for (item, what) in WATCHED {
            let (start, end) = item.split_at(item.len().min(42));
            let more = if end.is_empty() { "" } else { "…" };
            page.line(format!("   {:43}  {what}", format!("{start}{more}")));
        }
        page.line(format!("   filterload {}", hex::encode(&self.payload)));
        page.line(format!(
            "   {} bytes and {} hash functions: {} of other elements match too\n",
            self.filter.data().len(),
            self.filter.hash_funcs(),
            rate(self.filter.false_positive_rate())
        ));
        page.heading(format!(
            "2  The node matches the block ({searched}; taken apart in {parsed})"
        ));
        for (found, own) in self.described() {
            let whose = if own {
                ""
            } else if found.tx.is_coinbase() {
                "   the coinbase"
            } else {
                "   by chance"
            };
            page.line(format!("   {:>2}  {:.16}…{whose}", found.found.index, found.found.txid));
            for reason in &found.found.reasons {
                page.line(format!("       {}", shorter(&found.words(*reason))));
            }
        }
        page.line("");
        page.heading(format!("3  The node answers ({made})"));
        page.line(format!(
            "   merkleblock of {} bytes, {} transactions of {} bytes without witness\n",
            grouped(self.merkle_block.len()),
            self.delivered.len(),
            grouped(self.delivered_bytes()),
        ));
        page.heading(format!("4  The wallet verifies the answer ({verified})"));
        for line in self.proven() {
            page.line(format!("   proven      {line}"));
        }
        for line in NOT_PROVEN {
            page.line(format!("   not proven  {line}"));
        }
        page
    }

    fn proven(&self) -> Vec<String> {
        let own = self.own.iter().filter(|own| **own).count();
        let mut lines = vec![format!(
            "block {},\n               with proof of work of difficulty {}",
            self.proof.block_hash,
            difficulty(&self.proof.header)
        )];
        let leaves = self.proof.inclusions.len();
        lines.push(match self.proof.depth {
            Depth::Unproven => format!("{leaves} leaves are under its merkle root"),
            Depth::Coinbase(_) => format!(
                "{leaves} transactions are in it, {own} of them the wallet's, and the coinbase, \
                 which shows the tree's height"
            ),
        });
        lines
    }

    fn json(&self) -> Value {
        let [built, parsed, searched, made, verified] = self.times.map(|time| time.as_secs_f64());
        let matches: Vec<_> = self
            .described()
            .map(|(found, own)| {
                let mut json = found.json();
                json["own"] = json!(own);
                json
            })
            .collect();
        json!({
            "block_hash": self.proof.block_hash.to_string(), "block_bytes": self.block_bytes,
            "transactions": self.block.txdata.len(), "watched": WATCHED.map(|(item, _)| item),
            "payload": hex::encode(&self.payload), "rate": self.filter.false_positive_rate(),
            "matches": matches, "merkleblock": hex::encode(&self.merkle_block),
            "delivered_bytes": self.delivered_bytes(),
            "depth": if self.proof.depth == Depth::Unproven { "unproven" } else { "coinbase" },
            "not_proven": NOT_PROVEN,
            "seconds": {"build": built, "parse": parsed, "match": searched, "answer": made, "verify": verified},
        })
    }
}

const NOT_PROVEN: [&str; 2] = [
    "that the block is in the chain: the wallet compares it with its headers",
    "that nothing was left out: BIP37 proves inclusion, never omission",
];

/// A txid in a line of words, cut so that the line fits a terminal.
fn shorter(words: &str) -> String {
    let cut = |word: &str| match word.split_once(':') {
        Some((txid, vout)) if txid.len() == 64 => format!("{txid:.16}…:{vout}"),
        _ => word.to_owned(),
    };
    words.split(' ').map(cut).collect::<Vec<_>>().join(" ")
}
