//! The commands `btc prove make` and `btc prove verify`.

use std::collections::HashSet;

use anyhow::{Context as _, bail};
use chainsieve::bitcoin::block::Header;
use chainsieve::bitcoin::consensus::encode::serialize;
use chainsieve::bitcoin::{Block, Transaction, Txid};
use chainsieve::btc::bip37::{BlockElements, Depth, MerkleBlock, Policy, Proof, TxMatch};
use serde_json::{Value, json};

use super::describe::Described;
use super::{decode, for_each_transaction, load_filter};
use crate::args::{MakeArgs, PolicyName, VerifyArgs, network_name};
use crate::exit::Exit;
use crate::input::{Input, Reader, write};
use crate::output::{Page, Report, count, grouped};

pub(crate) fn make(args: &MakeArgs) -> anyhow::Result<Report> {
    let reader = Reader::of(args.filter.iter().chain([&args.block]))?;
    let mut warnings = Vec::new();
    let filter = args.filter.as_ref().map(|argument| load_filter(&reader, argument, &mut warnings));
    let mut filter = filter.transpose()?;
    let Input { source, bytes } = reader.one(&args.block, "block")?;
    let elements = BlockElements::from_raw(&bytes).with_context(|| format!("block, {source}"))?;
    let block: Block = decode(&bytes).with_context(|| format!("block, {source}"))?;
    let txids = elements.txids();

    let mut found: Vec<TxMatch> = match &mut filter {
        Some(filter) => filter.match_block(&elements),
        None => named(&args.txid, txids)?,
    };
    let yes = !found.is_empty();
    if args.coinbase && found.first().is_none_or(|first| first.index != 0) {
        let Some(&txid) = txids.first() else { bail!("block, {source}: no transactions") };
        found.insert(0, TxMatch { index: 0, txid, reasons: vec![] });
    }
    let indices: Vec<_> = found.iter().map(|found| found.index).collect();
    let merkle_block = MerkleBlock::new(elements.header(), txids, &indices)
        .with_context(|| format!("block, {source}"))?;
    let root = merkle_block.extract_matches().with_context(|| format!("block, {source}"));
    root.context("the header commits to other transactions: the block is damaged")?;

    let payload = hex::encode(merkle_block.encode());
    if let Some(path) = &args.out {
        write(path, format!("{payload}\n").as_bytes(), args.overwrite.force)?;
    }
    let described: Vec<_> = found
        .iter()
        .filter_map(|found| {
            let tx = block.txdata.get(found.index as usize)?;
            Some(Described { found, tx, network: args.network })
        })
        .collect();
    let transactions: Vec<_> =
        described.iter().map(|tx| hex::encode(without_witness(tx.tx))).collect();
    if let Some(path) = &args.txs_out {
        write(path, (transactions.join("\n") + "\n").as_bytes(), args.overwrite.force)?;
    }
    let filter = filter.map(|filter| hex::encode(filter.encode()));
    if let (Some(path), Some(filter)) = (&args.filter_out, &filter) {
        write(path, format!("{filter}\n").as_bytes(), args.overwrite.force)?;
    }

    let proven: Vec<Value> = described
        .iter()
        .zip(&transactions)
        .map(|(tx, hex)| {
            let mut json = tx.json();
            json["hex"] = json!(hex);
            json
        })
        .collect();
    let json = json!({
        "merkleblock": payload,
        "block_hash": block.block_hash().to_string(),
        "block_bytes": bytes.len(),
        "transactions": txids.len(),
        "proven": proven,
        "payload": filter,
        "warnings": warnings,
    });
    let mut page = Page::default();
    let hash = block.block_hash();
    page.heading(format!(
        "block {hash}: {} of {} proven",
        found.len(),
        count(txids.len(), "transaction")
    ));
    if !found.is_empty() {
        page.table(
            vec!["index", "txid", "why"],
            described.iter().flat_map(Described::rows).collect(),
        );
    }
    let delivered: usize = transactions.iter().map(|hex| hex.len() / 2).sum();
    page.line(format!(
        "merkleblock of {} and transactions of {}, for a block of {}",
        count(payload.len() / 2, "byte"),
        count(delivered, "byte"),
        count(bytes.len(), "byte")
    ));
    page.warnings(&warnings);
    let shown = if args.out.is_some() { String::new() } else { payload };
    Ok(Report::new(page, json, yes).with_payload(shown))
}

/// Returns the transactions with these ids, in the order of the block.
fn named(asked: &[Txid], txids: &[Txid]) -> anyhow::Result<Vec<TxMatch>> {
    let present: HashSet<_> = txids.iter().collect();
    if let Some(missing) = asked.iter().find(|txid| !present.contains(txid)) {
        bail!("transaction {missing} is not in the block");
    }
    let asked: HashSet<_> = asked.iter().collect();
    let found = (0..).zip(txids).filter(|(_, txid)| asked.contains(txid));
    Ok(found.map(|(index, &txid)| TxMatch { index, txid, reasons: vec![] }).collect())
}

/// Returns the difficulty of a block: how much harder its proof of work is than that of the easiest
/// block of the main chain. `number` formats whole numbers.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(crate) fn difficulty(header: &Header, number: impl Fn(u64) -> String) -> String {
    let difficulty = header.difficulty_float();
    if difficulty < 1.0 { format!("{difficulty:.1e}") } else { number(difficulty as u64) }
}

/// Encodes a transaction without witness, as nodes send it with a merkleblock.
pub(crate) fn without_witness(tx: &Transaction) -> Vec<u8> {
    let mut tx = tx.clone();
    for input in &mut tx.input {
        input.witness.clear();
    }
    serialize(&tx)
}

pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<Report> {
    let reader = Reader::of(args.transactions.iter().chain([&args.merkle_block]))?;
    let Input { source, bytes } = reader.one(&args.merkle_block, "merkleblock")?;
    let (merkle_block, rest) =
        MerkleBlock::decode_prefix(&bytes).with_context(|| format!("merkleblock, {source}"))?;
    let mut warnings = Vec::new();
    if !rest.is_empty() {
        warnings.push(format!(
            "{} after the merkleblock: nodes ignore trailing bytes",
            count(rest.len(), "byte")
        ));
    }
    let mut delivered: Vec<Transaction> = Vec::new();
    for_each_transaction(&reader, &args.transactions, |tx| delivered.push(tx))?;
    let policy = match args.policy {
        PolicyName::Strict => Policy::Strict(args.network),
        PolicyName::Core => Policy::Core,
    };
    let header = &merkle_block.header;
    let hash = header.block_hash();
    let result = Proof::verify(&merkle_block, policy, &delivered);
    let refused = match (&result, args.block_hash) {
        (Ok(_), Some(expected)) if expected != hash => {
            Some(format!("the merkleblock is of block {hash}, not of {expected}"))
        }
        (Ok(_), _) => None,
        (Err(error), _) => Some(error.to_string()),
    };
    let proof = result.as_ref().ok().filter(|_| refused.is_none());
    let inclusions = proof.map_or(&[][..], |proof| &proof.inclusions);
    let in_tree: HashSet<_> = inclusions.iter().map(|leaf| leaf.txid).collect();
    let strangers: Vec<_> = delivered
        .iter()
        .map(Transaction::compute_txid)
        .filter(|txid| proof.is_some() && !in_tree.contains(txid))
        .collect();
    let not_proven = proof.map_or_else(Vec::new, |proof| not_proven(args, proof));
    let policy = if args.policy == PolicyName::Core { "core" } else { "strict" };
    let deep = proof.is_some_and(|proof| proof.depth != Depth::Unproven);
    let json = json!({
        "valid": proof.is_some(),
        "error": refused,
        "policy": policy,
        "network": network_name(args.network),
        "block_hash": hash.to_string(),
        "previous_block": header.prev_blockhash.to_string(),
        "time": header.time,
        "proof_of_work": proof.is_some_and(Proof::has_proof_of_work),
        "named": proof.is_some() && args.block_hash.is_some(),
        "depth": if deep { "coinbase" } else { "unproven" },
        "transactions": merkle_block.num_transactions,
        "proven": inclusions.iter().map(|leaf| json!({
            "index": leaf.index,
            "txid": leaf.txid.to_string(),
            "delivered": leaf.delivered,
        })).collect::<Vec<_>>(),
        "not_in_tree": strangers.iter().map(Txid::to_string).collect::<Vec<_>>(),
        "not_proven": not_proven,
        "warnings": warnings,
    });

    let mut page = Page::default();
    page.heading(match &refused {
        None => format!("valid under the {policy} policy"),
        Some(why) => format!("not valid under the {policy} policy: {why}"),
    });
    page.fields(vec![
        ("block", hash.to_string()),
        ("previous", header.prev_blockhash.to_string()),
        ("transactions", format!("{}, as claimed", merkle_block.num_transactions)),
    ]);
    if !inclusions.is_empty() {
        let rows = inclusions.iter().map(|leaf| {
            let delivered = if leaf.delivered { "yes" } else { "no" };
            vec![leaf.index.to_string(), leaf.txid.to_string(), delivered.into()]
        });
        page.table(vec!["index", "txid", "delivered"], rows.collect());
    }
    for txid in &strangers {
        page.line(format!("delivered, but not in the merkle tree: {txid}"));
    }
    for line in proof.into_iter().flat_map(|proof| proven(args, proof)) {
        page.line(format!("proven      {line}"));
    }
    for line in &not_proven {
        page.line(format!("not proven  {line}"));
    }
    page.warnings(&warnings);
    let exit = match proof {
        None => Exit::Wrong,
        Some(_) => Exit::from(strangers.is_empty()),
    };
    Ok(Report::new(page, json, exit))
}

fn proven(args: &VerifyArgs, proof: &Proof) -> Vec<String> {
    let mut lines = Vec::new();
    if proof.has_proof_of_work() {
        let difficulty = difficulty(&proof.header, grouped);
        lines.push(format!("the header's proof of work, of difficulty {difficulty}"));
    }
    if args.block_hash.is_some() {
        lines.push("the header is that of the block given as --block-hash".into());
    }
    let leaves = count(proof.inclusions.len(), "transaction");
    if proof.inclusions.is_empty() {
        lines.push("nothing about any transaction".into());
    } else if proof.depth == Depth::Unproven {
        lines.push(format!("{leaves} under the header's merkle root"));
    } else {
        lines.push(format!("{leaves} in the block; the coinbase shows the height of the tree"));
    }
    lines
}

fn not_proven(args: &VerifyArgs, proof: &Proof) -> Vec<String> {
    let mut lines = Vec::new();
    if !proof.inclusions.is_empty() && proof.depth == Depth::Unproven {
        lines.push(
            "the height of the tree: give the coinbase transaction, proven with the others".into(),
        );
    }
    let missing = proof.inclusions.iter().filter(|leaf| !leaf.delivered).count();
    if missing > 0 {
        lines.push(format!("the contents of {}: not delivered", count(missing, "transaction")));
    }
    if args.block_hash.is_none() {
        lines.push(
            "that the block is in the chain: compare its hash with your headers, or give \
             --block-hash"
                .into(),
        );
    }
    if !proof.has_proof_of_work() {
        lines.push("the header's work: the core policy does not check it".into());
    }
    lines.push(
        "that no other transaction of the block matches: a node can omit transactions".into(),
    );
    lines
}
