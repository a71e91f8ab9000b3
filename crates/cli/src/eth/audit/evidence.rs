//! Reads logs, receipts and transactions, and gives evidence to an audit.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditError};
use chainsieve::eth::files::{BlockEntries, FileFormat, JsonValue, JsonValues, body_transactions};
use chainsieve::eth::header::{BlockRef, LinkedHeaders};
use chainsieve::eth::log::{LocatedLog, LogJsonError};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve_report::{Source, excerpt, grouped, named};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::args::eth::AuditArgs;
use crate::eth::receipts::{self, Whose};

/// Maximum size of a block body in bytes; without blobs, real bodies have a few megabytes.
const MAX_BODY: u64 = 64 << 20;
/// Maximum number of files that a warning names.
const NAMED: usize = 3;

/// Finds the blocks to which receipts belong. Only blocks are considered whose receipts an audit of the
/// chain needs.
struct Missing<'a> {
    chain: &'a LinkedHeaders,
    by_root: HashMap<B256, Vec<B256>>,
    /// Descriptions of receipts that no audit needs.
    strangers: Vec<String>,
}

impl<'a> Missing<'a> {
    /// Collects the blocks whose receipts audits of this chain need.
    fn of(audits: &[Audit<'_>], chain: &'a LinkedHeaders) -> Self {
        let mut by_root: HashMap<B256, Vec<B256>> = HashMap::new();
        let mut seen = HashSet::new();
        for BlockRef { number, hash } in audits.iter().flat_map(Audit::unchecked) {
            if let Some(block) = chain.block(number).filter(|_| seen.insert(hash)) {
                by_root.entry(block.receipts_root).or_default().push(hash);
            }
        }
        Self { chain, by_root, strangers: Vec::new() }
    }

    fn by_number(&self, number: u64) -> Option<B256> {
        self.chain.block(number).map(|block| block.hash)
    }

    fn wants(&self, audits: &[Audit<'_>], whose: Whose) -> bool {
        match whose {
            Whose::Number(number) => {
                self.by_number(number).is_some_and(|hash| are_wanted(audits, hash))
            }
            Whose::Hash(hash) => are_wanted(audits, hash),
            Whose::Unknown => audits.iter().any(|audit| audit.unchecked().next().is_some()),
        }
    }

    /// Returns the blocks to which these receipts belong and whose receipts are still needed.
    fn blocks(
        &mut self,
        audits: &[Audit<'_>],
        whose: Whose,
        place: &str,
        receipts: &BlockReceipts,
    ) -> Vec<B256> {
        let mut blocks: Vec<B256> = match whose {
            Whose::Number(number) => self.by_number(number).into_iter().collect(),
            Whose::Hash(hash) => vec![hash],
            Whose::Unknown => {
                let root = receipts.root().ok();
                let blocks = root.and_then(|root| self.by_root.get(&root));
                if blocks.is_none() {
                    self.strangers.push(place.to_owned());
                }
                blocks.cloned().unwrap_or_default()
            }
        };
        blocks.retain(|hash| are_wanted(audits, *hash));
        blocks
    }

    /// Returns a warning about receipts that were not needed, if receipts of some block are still
    /// missing.
    fn warning(&self, audits: &[Audit<'_>]) -> Option<String> {
        // If no receipts are missing, the receipts that were not needed belong to blocks that the
        // filter rules out, so no warning is needed.
        if self.strangers.is_empty() || !self.wants(audits, Whose::Unknown) {
            return None;
        }
        let named = &self.strangers[..self.strangers.len().min(NAMED)];
        let more = if self.strangers.len() > NAMED { " and others" } else { "" };
        Some(format!(
            "no block that needs receipts has the receipts root of these receipts: {}{more}",
            named.join("; ")
        ))
    }
}

/// Returns `true` if an audit needs the receipts of this block.
fn are_wanted(audits: &[Audit<'_>], block_hash: B256) -> bool {
    audits.iter().any(|audit| audit.is_unchecked(block_hash))
}

/// Reads the receipts of the blocks that an audit of this chain needs; also returns warnings about
/// unreadable files.
pub(crate) fn read_wanted(
    audit: &Audit<'_>,
    chain: &LinkedHeaders,
    paths: &[PathBuf],
) -> anyhow::Result<(HashMap<B256, BlockReceipts>, Vec<String>)> {
    let audits = std::slice::from_ref(audit);
    let mut missing = Missing::of(audits, chain);
    let mut wanted = HashMap::new();
    let left_out = receipts::read_all(paths, &mut |whose, place, read| {
        if missing.wants(audits, whose) {
            let receipts = read()?;
            for hash in missing.blocks(audits, whose, &place, &receipts) {
                wanted.insert(hash, receipts.clone());
            }
        }
        Ok(())
    })?;
    Ok((wanted, left_out))
}

/// The receipts that are to be embedded in a certificate, by block hash, and warnings.
pub(super) type Fed = (Vec<(B256, BlockReceipts)>, Vec<String>);

/// Gives audits of one chain the evidence in the files of the arguments.
pub(super) fn feed<'a, 'l>(
    audits: &mut [Audit<'a>],
    chain: &'a LinkedHeaders,
    answers: impl IntoIterator<Item = &'l LocatedLog>,
    args: &AuditArgs,
) -> anyhow::Result<Fed> {
    let on_chain = |log: &&LocatedLog| {
        chain.block(log.block_number).is_some_and(|block| block.hash == log.block_hash)
    };
    let answered = answers.into_iter().filter(on_chain);
    let mut feed = Feed {
        missing: Missing::of(audits, chain),
        answered: answered.map(|log| (log.block_number, log.block_hash)).collect(),
        kept: args.embed.then(Vec::new),
        warnings: Vec::new(),
        audits,
    };
    let left_out = receipts::read_all(&args.receipts, &mut |whose, place, read| {
        if feed.missing.wants(feed.audits, whose) {
            feed.take(whose, &place, &read()?);
        }
        Ok(())
    })?;
    feed.warnings.extend(left_out);
    for path in &args.transactions {
        let name = || format!("transactions, {}", named(path));
        feed.bodies(Source::file(path).with_context(name)?).with_context(name)?;
    }
    feed.warnings.extend(feed.missing.warning(feed.audits));
    Ok((feed.kept.unwrap_or_default(), feed.warnings))
}

/// Gives evidence to audits of one chain, and collects warnings. Each file is read once, because a pipe cannot be
/// read again.
struct Feed<'a, 'b> {
    audits: &'b mut [Audit<'a>],
    missing: Missing<'a>,
    /// The hashes of blocks with logs in an answer, by number.
    answered: HashMap<u64, B256>,
    /// Receipts that an audit accepted, if they are to be embedded in a certificate.
    kept: Option<Vec<(B256, BlockReceipts)>>,
    warnings: Vec<String>,
}

impl Feed<'_, '_> {
    fn bodies(&mut self, mut source: Source) -> anyhow::Result<()> {
        if source.input.format()? != FileFormat::Era {
            bail!("the file is neither an era1 nor an ere archive");
        }
        let mut bodies = BlockEntries::bodies(source.input);
        while let Some((number, entry)) = bodies.next_entry()? {
            let Some(&block_hash) = self.answered.get(&number) else { continue };
            let place = format!("byte {}", grouped(entry.offset()));
            let body = entry.decompress(MAX_BODY)?;
            let encodings = body_transactions(&body).context(place)?;
            let checks = self.audits.iter_mut();
            let check =
                |audit: &mut Audit<'_>| audit.check_transactions(block_hash, &encodings).err();
            if let Some(why) = checks.filter_map(check).last() {
                self.reject(&format!("transactions of block {number}"), &why);
            }
        }
        Ok(())
    }

    fn take(&mut self, whose: Whose, place: &str, receipts: &BlockReceipts) {
        for block_hash in self.missing.blocks(self.audits, whose, place, receipts) {
            let checks = self.audits.iter_mut().filter(|audit| audit.is_unchecked(block_hash));
            let checked: Vec<_> =
                checks.map(|audit| audit.check_receipts(block_hash, receipts)).collect();
            if let Some(kept) = self.kept.as_mut().filter(|_| checked.contains(&Ok(true))) {
                kept.push((block_hash, receipts.clone()));
            }
            // Where the result is `Ok(false)`, they prove nothing: another file may have the receipts
            // with their state roots.
            if let Some(Err(why)) = checked.iter().find(|result| result.is_err()) {
                self.reject(place, why);
            }
        }
    }

    fn reject(&mut self, place: &str, why: &AuditError) {
        self.warnings.push(format!("{place}: {why}"));
    }
}

/// Maximum size of a JSON value in bytes: a reply with many logs is a single value.
const MAX_VALUE: u64 = 1 << 30;

/// Reads logs from each file: replies of a node, lists, or one log per line.
pub(crate) fn read_logs(arguments: &[String]) -> anyhow::Result<Vec<LocatedLog>> {
    let mut logs = Vec::new();
    for argument in arguments {
        let source = Source::open(argument, "logs")?;
        let name = format!("logs, {}", source.name());
        let mut values = JsonValues::new(source.input, MAX_VALUE);
        let mut index = 0;
        while let Some(value) = values.next_value().with_context(|| name.clone())? {
            let place = || format!("{name}, line {}", value.line);
            read_value(&value, index, &mut logs).with_context(place)?;
            index += 1;
        }
    }
    Ok(logs)
}

/// A node's JSON-RPC reply. A log has none of the fields of a reply.
#[derive(Deserialize)]
struct Reply<'a> {
    jsonrpc: Option<IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn read_value(value: &JsonValue, index: usize, logs: &mut Vec<LocatedLog>) -> anyhow::Result<()> {
    let text = value.text.as_str();
    if text.starts_with('[') {
        logs.extend(LocatedLog::list_from_json(text)?);
        return Ok(());
    }
    let reply: Option<Reply<'_>> =
        text.starts_with('{').then(|| serde_json::from_str(text)).transpose().map_err(
            |error: serde_json::Error| {
                let message = error.to_string();
                let (position, what) = value.locate(&message);
                anyhow!("{position}: {what}")
            },
        )?;
    let Some(reply) = reply else { bail!("a log is an object, not {:?}", excerpt(text)) };
    if let Some(error) = reply.error {
        bail!("the node's reply is an error: {:?}", format!("{:.200}", error.get()));
    }
    if let Some(result) = reply.result {
        logs.extend(LocatedLog::list_from_json(result.get())?);
        return Ok(());
    }
    if reply.jsonrpc.is_some() {
        bail!("the node's reply has no result");
    }
    match LocatedLog::from_json(text) {
        Ok(log) => logs.push(log),
        Err(error @ LogJsonError::Syntax(_)) => return Err(error.into()),
        Err(error) => bail!("log {index}: {error}"),
    }
    Ok(())
}
