//! The command `btc prove verify`.

use std::collections::HashSet;

use anyhow::Context as _;
use chainsieve::bitcoin::block::Header;
use chainsieve::bitcoin::{Transaction, Txid};
use chainsieve::btc::bip37::{MerkleBlock, Policy, Proof};
use chainsieve_report::args::network_name;
use chainsieve_report::{Exit, Input, Page, Reader, Report, count, grouped};
use serde_json::json;

use super::for_each_transaction;
use crate::args::{PolicyName, VerifyArgs, word};

/// Returns the difficulty of a block: how much harder its proof of work is than that of the easiest
/// block of the main chain.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn difficulty(header: &Header) -> String {
    let difficulty = header.difficulty_float();
    if difficulty < 1.0 { format!("{difficulty:.1e}") } else { grouped(difficulty as u64) }
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
    let not_proven =
        proof.map_or_else(Vec::new, |proof| not_proven(proof, args.block_hash.is_some()));
    let policy = word(&args.policy);
    let deep = proof.is_some_and(|proof| proof.coinbase.is_some());
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
    for line in proof.into_iter().flat_map(|proof| proven(proof, args.block_hash.is_some())) {
        page.line(format!("proven      {line}"));
    }
    for line in &not_proven {
        page.line(format!("not proven  {line}"));
    }
    let exit = proof.map_or(Exit::Wrong, |_| Exit::from(strangers.is_empty()));
    Ok(Report::new(page, json, exit).with_warnings(warnings))
}

/// Returns the facts that a proof shows. `is_named` is `true` if the header is that of a block that the
/// user knows.
pub(crate) fn proven(proof: &Proof, is_named: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if proof.has_proof_of_work() {
        let difficulty = difficulty(&proof.header);
        lines.push(format!("the header's proof of work, of difficulty {difficulty}"));
    }
    if is_named {
        lines.push("the header is that of the block given as --block-hash".into());
    }
    let leaves = count(proof.inclusions.len(), "transaction");
    if proof.inclusions.is_empty() {
        lines.push("nothing about any transaction".into());
    } else if proof.coinbase.is_none() {
        lines.push(format!("{leaves} under the header's merkle root"));
    } else {
        lines.push(format!("{leaves} in the block; the coinbase shows the height of the tree"));
    }
    lines
}

/// Returns the facts that a proof does not show.
pub(crate) fn not_proven(proof: &Proof, is_named: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if !proof.inclusions.is_empty() && proof.coinbase.is_none() {
        lines.push(
            "the height of the tree: give the coinbase transaction, proven with the others".into(),
        );
    }
    let missing = proof.inclusions.iter().filter(|leaf| !leaf.delivered).count();
    if missing > 0 {
        lines.push(format!("the contents of {}: not delivered", count(missing, "transaction")));
    }
    if !is_named {
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
