//! `demo`: the main tasks from end to end, on mainnet blocks.

mod ethereum;

use std::collections::HashSet;

use anyhow::Context as _;
use chainsieve::bitcoin::consensus::encode::{deserialize, serialize_hex};
use chainsieve::bitcoin::{Block, Network, OutPoint, Transaction};
use chainsieve::btc::bip37::{BlockElements, BloomFilter, MerkleBlock, Policy, Proof, UpdateMode};
use chainsieve::btc::script::pushes;
use chainsieve_report::{Exit, Page, Report, rate_with_separators, with_separators};
use serde_json::{Value, json};

use crate::args::Range;
use crate::btc::matching::Described;
use crate::btc::prove::{not_proven, proven};
use crate::btc::watch::{self, Item};

const BLOCK: &str = include_str!("demo/blocks/bitcoin_757753.json");
const HEIGHT: u64 = 757_753;
/// A wallet with a segwit address, a legacy address, and a coin of the wallet. The last item, the
/// null outpoint, matches every coinbase transaction, which proves the height of the merkle tree.
const WATCHED: [(&str, &str); 4] = [
    ("bc1q7dmjqztn342e7qyl4tlfyqc8mju8ny7me8vm4n", "a segwit address"),
    ("1979m9gb8qypkDp8HYV3HvbWxCBX5anSzn", "a legacy (P2PKH) address"),
    (
        "32814b7911b053b7c62c621b70878f3452ab331b2998dc639abf109a407d0a0b:0",
        "a segwit coin of the wallet",
    ),
    ("0000000000000000000000000000000000000000000000000000000000000000:4294967295", "any coinbase"),
];
/// Number of elements that the filter is sized for, more than are inserted: each match inserts an
/// outpoint, and a filter that fills up has a higher false-positive rate.
const ELEMENTS: u32 = 8;
/// False-positive rate, high enough to show false positives in a single block.
const RATE: f64 = 0.01;
/// Tweak of the filter. A real wallet draws a random tweak once. The demo uses a fixed tweak, so
/// that all runs are equal.
const TWEAK: u32 = 1;

pub(crate) fn run() -> anyhow::Result<Report> {
    let fixture: Value = serde_json::from_str(BLOCK)?;
    let raw = hex::decode(fixture["block"].as_str().context("the fixture holds a block")?)?;
    let mut page = Page::default();
    let mut json = play(&raw, &mut page)?;
    json["audit"] = ethereum::audit_answers(&mut page)?;
    json["finality"] = ethereum::finality(&mut page)?;
    Ok(Report::new(page, json, Exit::Yes))
}

/// Runs the wallet and the node; each side uses only the data that the other side sent.
fn play(raw: &[u8], page: &mut Page) -> anyhow::Result<Value> {
    let block: Block = deserialize(raw)?;
    page.line(format!(
        "Block {} of the main chain: {} transactions, {} bytes.",
        with_separators(HEIGHT),
        block.txdata.len(),
        with_separators(raw.len())
    ));
    page.line("");
    let (filter, mut own_data) = wallets_filter(page)?;
    let payload = filter.encode();

    // The node loads it, matches the block and answers.
    let elements = BlockElements::from_raw(raw)?;
    let matches = BloomFilter::decode(&payload)?.match_block(&elements);
    let indices: Vec<_> = matches.iter().map(|found| found.index).collect();
    let merkle_block = MerkleBlock::new(elements.header(), elements.txids(), &indices)?.encode();
    let matched: Vec<_> = matches
        .iter()
        .filter_map(|found| Some((found, block.txdata.get(found.index as usize)?)))
        .collect();
    let delivered: Vec<_> = matched.iter().map(|(_, tx)| without_witness(tx)).collect();
    let delivered_bytes: usize = delivered.iter().map(Transaction::base_size).sum();

    // The wallet verifies the answer, using only the data that the node sent.
    let received = MerkleBlock::decode(&merkle_block)?;
    let proof = Proof::verify(&received, Policy::Strict(Network::Bitcoin), &delivered)?;
    let own: Vec<_> = delivered.iter().map(|tx| is_own(tx, &mut own_data)).collect();

    let described = matched.into_iter().zip(&own).map(|((found, tx), &own)| {
        let described = Described { found, tx, network: Network::Bitcoin };
        (described, own)
    });
    let described: Vec<_> = described.collect();
    page.heading("2  The node matches the block");
    show_matches(page, &described);
    page.heading("3  The node answers");
    page.line(format!(
        "   merkleblock of {} bytes, {} transactions, {} bytes together, without witnesses",
        with_separators(merkle_block.len()),
        delivered.len(),
        with_separators(delivered_bytes),
    ));
    page.line("");
    page.heading("4  The wallet verifies the answer");
    for line in proven(&proof, false) {
        page.line(format!("   proven      {line}"));
    }
    let open = not_proven(&proof, false);
    for line in &open {
        page.line(format!("   not proven  {line}"));
    }
    let matches = described.iter().map(|(found, own)| {
        let mut json = found.json();
        json["own"] = json!(own);
        json
    });
    Ok(json!({
        "block_hash": proof.block_hash.to_string(),
        "block_bytes": raw.len(),
        "transactions": block.txdata.len(),
        "watched": WATCHED.map(|(item, _)| item),
        "payload": hex::encode(&payload),
        "rate": filter.false_positive_rate(),
        "matches": matches.collect::<Vec<_>>(),
        "merkleblock": hex::encode(&merkle_block),
        "delivered": delivered.iter().map(serialize_hex).collect::<Vec<_>>(),
        "depth": if proof.coinbase.is_none() { "unproven" } else { "coinbase" },
        "not_proven": open,
    }))
}

/// Returns the wallet's filter, and the elements that belong to the wallet.
fn wallets_filter(page: &mut Page) -> anyhow::Result<(BloomFilter, HashSet<Vec<u8>>)> {
    let policy = watch::Policy { network: Network::Bitcoin, range: Range(0..=0), with_keys: false };
    let items: Vec<Item> = WATCHED
        .iter()
        .map(|(item, _)| Item::detect(item, &policy))
        .collect::<anyhow::Result<_>>()?;
    let mut data: HashSet<_> =
        items.into_iter().flat_map(|item| item.elements).map(|element| element.data).collect();
    let mut filter = BloomFilter::new(ELEMENTS, RATE, TWEAK, UpdateMode::All)?;
    for data in &data {
        filter.insert(data);
    }
    // Every coinbase spends the null outpoint, so this element does not belong to the wallet.
    data.remove(&watch::outpoint_element(&OutPoint::null()));
    page.heading("1  The wallet builds its filter");
    for (item, what) in WATCHED {
        let (start, end) = item.split_at(item.len().min(42));
        let more = if end.is_empty() { "" } else { "…" };
        page.line(format!("   {:43}  {what}", format!("{start}{more}")));
    }
    page.line(format!("   filterload {}", hex::encode(filter.encode())));
    page.line(format!(
        "   {} bytes and {} hash functions: {} of other elements match too",
        filter.data().len(),
        filter.hash_funcs(),
        rate_with_separators(filter.false_positive_rate())
    ));
    page.line("");
    Ok((filter, data))
}

/// Returns a transaction without witness, as nodes send it with a merkleblock.
fn without_witness(tx: &Transaction) -> Transaction {
    let mut tx = tx.clone();
    tx.input.iter_mut().for_each(|input| input.witness.clear());
    tx
}

/// Returns `true` if `tx` pays to an element of `own` or spends one; adds the outpoints of the
/// outputs that pay to an element.
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

/// Shows the matches, and whether each one is the wallet's or a false positive.
fn show_matches(page: &mut Page, matched: &[(Described<'_>, bool)]) {
    for (described, own) in matched {
        let Described { found, tx, .. } = described;
        let whose = match own {
            true => "",
            false if tx.is_coinbase() => "   the coinbase",
            false => "   by chance",
        };
        page.line(format!("   {:>2}  {:.16}…{whose}", found.index, found.txid));
        for reason in &found.reasons {
            page.line(format!("       {}", shorter(&described.words(*reason))));
        }
    }
    page.line("");
}

/// Shortens the txid in a line of text, so that the line fits a terminal.
fn shorter(words: &str) -> String {
    let cut = |word: &str| match word.split_once(':') {
        Some((txid, vout)) if txid.len() == 64 => format!("{txid:.16}…:{vout}"),
        _ => word.to_owned(),
    };
    words.split(' ').map(cut).collect::<Vec<_>>().join(" ")
}
