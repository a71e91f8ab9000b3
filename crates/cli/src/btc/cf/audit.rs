//! The command `btc cf audit`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use chainsieve::bitcoin::{Block, BlockHash, OutPoint, ScriptBuf, Transaction, Txid};
use chainsieve::btc::bip158::audit::{
    Basis, FilterEvidence, InvalidFilter, Prevouts, ProvenTransaction, Refutation, Verdict, audit,
};
use chainsieve::btc::bip158::container::{MAGIC, Records};
use chainsieve::btc::bip158::{Acceptance, BlockFilter, BoundBlock, filter_hash};
use chainsieve_report::blocks::{SourcedBlock, for_each_block};
use chainsieve_report::{
    Exit, Input, Page, Reader, Report, UsageError, count, decode_hex, grouped, named, write_hex,
};
use serde::Deserialize;
use serde_json::json;

use super::FilterFiles;
use crate::args::cf::AuditArgs;
use crate::btc::for_each_transaction;

pub(crate) fn run(args: &AuditArgs) -> anyhow::Result<Report> {
    if let Some(proof) = &args.proof {
        return verify_proof(proof, args);
    }
    let (Some(content), Some(block)) = (&args.filter, &args.block) else {
        bail!(UsageError("a filter and its block are needed, or --proof"));
    };
    let reader = Reader::of([content, block].into_iter().chain(&args.prev_txs))?;
    let mut sourced: Option<SourcedBlock> = None;
    for_each_block(block, |block, _| {
        ensure!(sourced.is_none(), "the input contains more than one block");
        sourced = Some(block);
        Ok(())
    })?;
    let SourcedBlock { block, prevout_scripts, .. } =
        sourced.context("the input contains no block")?;
    let block_hash = block.block_hash();
    let bound = BoundBlock::bind(&block, block_hash, args.network).context("block")?;
    let content = filter(content, block_hash, &reader)?;
    let mut transactions: Vec<Transaction> = Vec::new();
    for_each_transaction(&reader, &args.prev_txs, |tx| transactions.push(tx))?;
    let said = prevout_scripts.filter(|_| !args.distrust_prevouts);
    if said.is_some() && !transactions.is_empty() {
        bail!(UsageError(
            "the block's JSON has the spent scripts: leave out --prev-txs, or add --distrust-prevouts"
        ));
    }
    let said = said.map(|scripts| by_outpoint(&block, scripts)).transpose()?;
    let trusted = |outpoint: &OutPoint| said.as_ref()?.get(outpoint).cloned();
    let prevouts = match (&said, transactions.is_empty()) {
        (Some(_), _) => Prevouts::Trusted(&trusted),
        (None, true) => Prevouts::None,
        (None, false) => Prevouts::ByTransactions(&transactions),
    };
    let verdict = audit(&bound, &content, prevouts);
    let missing = match verdict {
        Verdict::Suspicious { .. } | Verdict::Undecidable(_) => missing(&block, &transactions),
        _ => BTreeSet::new(),
    };
    report(args, &BlockFilter { block_hash, content }, &verdict, &missing)
}

/// Returns the ids of the transactions whose outputs the block spends, without transactions that
/// are in the block or in `shown`.
fn missing(block: &Block, shown: &[Transaction]) -> BTreeSet<Txid> {
    let spent = block.txdata.iter().skip(1).flat_map(|tx| &tx.input);
    let mut missing: BTreeSet<_> = spent.map(|input| input.previous_output.txid).collect();
    for tx in block.txdata.iter().chain(shown) {
        missing.remove(&tx.compute_txid());
    }
    missing
}

type Scripts = std::collections::HashMap<OutPoint, ScriptBuf>;

fn by_outpoint(block: &Block, scripts: Vec<ScriptBuf>) -> anyhow::Result<Scripts> {
    let spent: Vec<_> = block.txdata.iter().skip(1).flat_map(|tx| &tx.input).collect();
    ensure!(
        spent.len() == scripts.len(),
        "the JSON has {} of spent outputs, but the block has {}",
        count(scripts.len(), "script"),
        count(spent.len(), "input")
    );
    Ok(spent.iter().map(|input| input.previous_output).zip(scripts).collect())
}

/// Reads the filter of a block: from a file of filters, from a node's reply to `getblockfilter`, or
/// as a bare filter.
fn filter(argument: &str, block: BlockHash, reader: &Reader) -> anyhow::Result<Vec<u8>> {
    let path = Path::new(argument);
    if path.is_dir() || starts_with_magic(path) {
        let mut found = None;
        let damage = FilterFiles::open(path)?.for_each_batch(|batch, _, _| {
            let of_block = batch.iter().find(|item| item.block_hash == block);
            found = of_block.map(|item| item.content.to_vec());
            Ok(match found {
                Some(_) => std::ops::ControlFlow::Break(()),
                None => std::ops::ControlFlow::Continue(()),
            })
        })?;
        return match (found, damage) {
            (Some(content), _) => Ok(content),
            (None, Some(damage)) => bail!("no filter of block {block}; {damage}"),
            (None, None) => bail!("{}: no filter of block {block}", named(path)),
        };
    }
    let input = reader.raw(argument, "filter")?;
    let place = || format!("filter, {}", input.source);
    // The input is a file of filters that was read from a pipe.
    if input.bytes.starts_with(&MAGIC) {
        for item in Records::new(&input.bytes).with_context(place)? {
            let item = item.with_context(place)?;
            if item.block_hash == block {
                return Ok(item.content.to_vec());
            }
        }
        bail!("{}: no filter of block {block}", input.source);
    }
    if input.bytes.trim_ascii_start().starts_with(b"{") {
        let answer: GetBlockFilter = serde_json::from_slice(&input.bytes).with_context(place)?;
        return decode_hex(&answer.filter).context("field filter").with_context(place);
    }
    Ok(input.unhex("filter")?.bytes)
}

/// A node's reply to `getblockfilter`.
#[derive(Debug, Deserialize)]
struct GetBlockFilter {
    filter: String,
}

fn starts_with_magic(path: &Path) -> bool {
    if !path.is_file() {
        // Bytes that are read from a pipe cannot be read again.
        return false;
    }
    let mut start = [0; MAGIC.len()];
    let read = std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    read.is_ok() && start == MAGIC
}

fn report(
    args: &AuditArgs,
    filter: &BlockFilter,
    verdict: &Verdict,
    missing: &BTreeSet<Txid>,
) -> anyhow::Result<Report> {
    let (name, exit) = match verdict {
        Verdict::Valid(_) => ("valid", Exit::Yes),
        Verdict::Invalid(_) => ("invalid", Exit::Wrong),
        Verdict::Suspicious { .. } => ("suspicious", Exit::Undecided),
        Verdict::Undecidable(_) => ("undecidable", Exit::Undecided),
    };
    let hash = filter.filter_hash();
    let elements = filter.gcs(Acceptance::Core).map(|gcs| gcs.num_elements()).ok();
    let mut json = json!({
        "verdict": name,
        "block_hash": filter.block_hash.to_string(),
        "filter_hash": hash.to_string(),
        "elements": elements,
    });
    let mut page = Page::default();
    let mut warnings = Vec::new();
    page.heading(format!("{name}: {}", words(verdict)));
    let elements = elements.map_or_else(|| "not readable".into(), grouped);
    page.fields(vec![
        ("block", filter.block_hash.to_string()),
        ("filter", format!("{}, hash {hash}", count(filter.content.len(), "byte"))),
        ("elements", elements),
    ]);
    match verdict {
        Verdict::Valid(Basis::Trusted) => {
            json["basis"] = "trusted".into();
            warnings.push(String::from(
                "the verdict relies on the source of the spent scripts; --prev-txs proves them",
            ));
        }
        Verdict::Valid(Basis::Transactions) => json["basis"] = "transactions".into(),
        Verdict::Invalid(refutation) => {
            json["reason"] = words(verdict).into();
            match (refutation.proof(), &args.proof_out) {
                (Some(proof), out) => {
                    let bytes = proof.encode();
                    json["proof"] = json!({
                        "evidence": evidence(&proof.evidence),
                        "bytes": bytes.len(),
                        "out": out.as_deref().map(named),
                    });
                    let size = count(bytes.len(), "byte");
                    let place = match out {
                        Some(path) => {
                            write_hex(path, &bytes, args.overwrite.force)?;
                            format!(", written to {}", named(path))
                        }
                        None => "; --proof-out writes it to a file".into(),
                    };
                    page.line(format!("proof that anyone can verify: {size}{place}"));
                }
                (None, out) => {
                    json["basis"] = "trusted".into();
                    let no_proof = if out.is_some() { "no proof was written: " } else { "" };
                    warnings.push(format!(
                        "{no_proof}the verdict relies on spent scripts that are not proven; \
                         --distrust-prevouts ignores them"
                    ));
                }
            }
        }
        Verdict::Suspicious { .. } | Verdict::Undecidable(_) => {
            json["reason"] = words(verdict).into();
            json["missing_txids"] = missing.iter().map(ToString::to_string).collect();
            warnings.push(format!(
                "to decide, give with --prev-txs the {} whose outputs the block spends: --json \
                 lists the transaction ids",
                count(missing.len(), "transaction")
            ));
        }
    }
    Ok(Report::new(page, json, exit).with_warnings(warnings))
}

fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Valid(_) => "the filter is equal to the block's filter, byte for byte".into(),
        Verdict::Invalid(Refutation::Proof(proof)) => evidence(&proof.evidence),
        Verdict::Invalid(Refutation::TrustedMissing(outpoint)) => {
            format!("the script of {outpoint}, which the block spends, is missing")
        }
        Verdict::Invalid(Refutation::TrustedUnequal) => {
            "the elements are not the scripts that the block creates and spends".into()
        }
        Verdict::Suspicious { inputs, .. } => {
            let (tx, input) = inputs.first().copied().unwrap_or_default();
            format!(
                "the script that input {input} of transaction {tx} seems to spend is missing ({} in \
                 all); this proves nothing",
                count(inputs.len(), "input")
            )
        }
        Verdict::Undecidable(unknown) => format!(
            "no contradiction found; spent outputs whose script is unknown: {}; elements of the \
             filter that match no known script: {}",
            grouped(unknown.inputs),
            grouped(unknown.elements)
        ),
    }
}

fn evidence(evidence: &FilterEvidence) -> String {
    match evidence {
        FilterEvidence::Malformed => "the filter does not have the canonical encoding".into(),
        FilterEvidence::MissingOutput { transaction: of, vout } => {
            format!("the script of output {vout} of transaction {} is missing", position(of))
        }
        FilterEvidence::MissingPrevout { spending: of, vin, .. }
        | FilterEvidence::MissingWrapped { spending: of, vin, .. } => {
            format!("the script that input {vin} of transaction {} spends is missing", position(of))
        }
        FilterEvidence::Unequal { .. } => {
            "the filter has more, fewer or other elements than the block can have".into()
        }
        other => other.to_string(),
    }
}

fn position(proven: &ProvenTransaction) -> u32 {
    proven.other.as_ref().map_or(0, |transaction| transaction.path.index)
}

/// Verifies a proof that `--proof-out` wrote.
fn verify_proof(proof: &str, args: &AuditArgs) -> anyhow::Result<Report> {
    let Input { source, bytes } = Reader::default().one(proof, "proof")?;
    let proof = InvalidFilter::decode(&bytes).with_context(|| format!("proof, {source}"))?;
    let expected = args.block_hash.unwrap_or(proof.block_hash);
    let hash = filter_hash(&proof.filter);
    let reason = match (proof.verify(expected, args.network), args.filter_hash) {
        (Err(error), _) => Err(error.to_string()),
        (Ok(()), Some(meant)) if meant != hash => {
            Err(format!("the proof is about filter {hash}, but --filter-hash is {meant}"))
        }
        (Ok(()), _) => Ok(evidence(&proof.evidence)),
    };
    let mut warnings = Vec::new();
    if args.block_hash.is_none() {
        warnings.push(format!(
            "it was not checked that block {} is in the chain: give --block-hash from your headers",
            proof.block_hash
        ));
    }
    let json = json!({
        "holds": reason.is_ok(),
        "block_hash": proof.block_hash.to_string(),
        "filter_hash": hash.to_string(),
        "reason": reason.as_ref().unwrap_or_else(|why_not| why_not),
    });
    let mut page = Page::default();
    page.heading(match &reason {
        Ok(evidence) => format!("the proof holds: {evidence}"),
        Err(why_not) => format!("the proof does not hold: {why_not}"),
    });
    page.fields(vec![
        ("block", proof.block_hash.to_string()),
        ("filter", format!("{}, hash {hash}", count(proof.filter.len(), "byte"))),
    ]);
    let exit = if reason.is_ok() { Exit::Yes } else { Exit::Wrong };
    Ok(Report::new(page, json, exit).with_warnings(warnings))
}
