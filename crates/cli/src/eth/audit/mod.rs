//! The command `eth audit`.

mod evidence;
mod rpc;
pub(crate) mod show;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditQuestion, AuditReport, Status};
use chainsieve::eth::certificate::{Certificate, IssueError};
use chainsieve::eth::header::{BlockRef, HeaderView, LinkedHeaders};
use chainsieve::eth::log_query::{Heads, LogQuery, ResolvedBlocks};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve_report::{Report, write};
use evidence::Feed;

use crate::args::eth::{AuditArgs, HeaderFormat, QueryArgs};
use super::{logs, profile, query};
use super::headers::Headers;

pub(crate) use evidence::read_wanted;

pub(crate) fn run(args: &AuditArgs) -> anyhow::Result<Report> {
    if args.rpc.is_given() {
        return rpc::run(args);
    }
    let paths = args.receipts.iter().chain(&args.transactions).map(AsRef::as_ref);
    let files = args.headers.iter().chain(&args.logs).map(AsRef::as_ref);
    let reader = query::stdin_once(&args.query, files.chain(paths))?;
    let query = query::read(&args.query, &reader)?;
    let profile = profile::read(&args.trust)?;
    let anchors = &args.trust.anchor;
    let (chain, rlp) = read_chain(&args.headers, args.format, query::bounds(&query).0, args.embed)?;
    let (query, blocks) = resolve(query, &args.query, &chain)?;
    let logs = logs::read(&args.logs)?;
    let semantics = args.query.semantics;
    let question = AuditQuestion {
        chain: &chain,
        anchors,
        query: &query,
        blocks,
        semantics,
        profile: &profile,
    };
    let mut audit = Audit::new(question, &logs)?;
    let mut feed = Feed::new(&mut audit, &chain, &logs, args.embed);
    feed.receipts(&args.receipts)?;
    feed.transactions(&args.transactions)?;
    let (kept, mut warnings) = feed.end();
    let wanted: Vec<BlockRef> = audit.open().collect();
    if let Some(path) = &args.wanted {
        write_wanted(path, &wanted, args.overwrite.force)?;
    }
    let report = audit.finish();
    let mut certificate = None;
    if let Some(path) = &args.certificate {
        let issued = Certificate::from_report(&question, &report, &logs);
        certificate =
            issue((path, args.overwrite.force), issued, &report, (&rlp, &kept), &mut warnings)?;
    }
    let shown = show::Shown {
        report: &report,
        question: &question,
        logs: &logs,
        wanted: &wanted,
        certificate,
        warnings,
        provider: None,
    };
    Ok(shown.report())
}

/// Writes the blocks whose receipts are missing, one per line.
fn write_wanted(path: &Path, wanted: &[BlockRef], force: bool) -> anyhow::Result<()> {
    let mut text = String::new();
    for BlockRef { number, hash } in wanted {
        writeln!(text, "{number} {hash}")?;
    }
    write(path, text.as_bytes(), force)
}

/// Writes a certificate with the given headers and receipts; returns its path.
///
/// If no certificate can be issued for the report, adds a warning and returns `None`.
fn issue<'a>(
    (path, force): (&'a Path, bool),
    issued: Result<Certificate, IssueError>,
    report: &AuditReport,
    (rlp, receipts): (&[Vec<u8>], &[(B256, BlockReceipts)]),
    warnings: &mut Vec<String>,
) -> anyhow::Result<Option<&'a Path>> {
    let issued = match issued {
        Ok(issued) => issued,
        Err(error) => {
            warnings.push(format!("no certificate: {error}"));
            return Ok(None);
        }
    };
    let issued = embed(issued, rlp, *report.range.start(), receipts)?;
    write(path, issued.to_json().as_bytes(), force)?;
    if report.status() == Status::Undecided {
        warnings.push(
            "the answer in the certificate is not fully proven: the certificate verifies as \
             complete only if the verifier has the evidence that is missing here"
                .into(),
        );
    }
    Ok(Some(path))
}

/// Adds headers from block `first` on, and receipts, to a certificate.
fn embed(
    certificate: Certificate,
    rlp: &[Vec<u8>],
    first: u64,
    receipts: &[(B256, BlockReceipts)],
) -> anyhow::Result<Certificate> {
    let mut certificate = certificate;
    if !rlp.is_empty() {
        let headers =
            rlp.iter().map(|rlp| HeaderView::decode(rlp)).collect::<Result<Vec<_>, _>>()?;
        let headers = headers.iter().filter(|header| header.number() >= first);
        certificate = certificate.with_headers(headers);
    }
    for (hash, receipts) in receipts {
        certificate = certificate.with_receipts(*hash, receipts);
    }
    Ok(certificate)
}

/// Links all headers from block `from` on: the headers of the range and the headers up to an
/// anchor. Also returns the RLP of these headers if `keep` is `true`.
pub(crate) fn read_chain(
    arguments: &[String],
    format: HeaderFormat,
    from: Option<u64>,
    keep: bool,
) -> anyhow::Result<(LinkedHeaders, Vec<Vec<u8>>)> {
    let mut headers = Headers::new(arguments, format);
    let mut chain = LinkedHeaders::new();
    let mut rlp = Vec::new();
    while let Some(mut batch) = headers.next_batch()? {
        batch.keep(from, None);
        batch.link(&mut chain)?;
        if keep {
            for header in batch.headers() {
                rlp.push(header?.1.rlp().to_vec());
            }
        }
    }
    if chain.is_empty() {
        let from = from.unwrap_or_default();
        anyhow::bail!("the headers contain no block from {from} on, where the range begins");
    }
    Ok((chain, rlp))
}

/// Returns the query with an explicit range of blocks, and this range.
///
/// Without `--query`, the first header replaces a missing `--from`, and the last header a missing
/// `--to`. In the object of `--query`, a missing bound or a tag such as `latest` has the same
/// meaning as for a node whose head is the last header.
pub(crate) fn resolve(
    mut query: LogQuery,
    args: &QueryArgs,
    chain: &LinkedHeaders,
) -> anyhow::Result<(LogQuery, ResolvedBlocks)> {
    let numbers = chain.numbers().context("no headers were found")?;
    if args.query.is_none() {
        if args.from.is_none() {
            query = query.from_block(*numbers.start());
        }
        if args.to.is_none() {
            query = query.to_block(*numbers.end());
        }
    }
    if let Some(last) = query::bounds(&query).1.filter(|last| last > numbers.end()) {
        anyhow::bail!(
            "the headers end at block {}, but the range ends at block {last}",
            numbers.end()
        );
    }
    let blocks =
        query.resolve(&Heads::latest(*numbers.end())).context("the block range of the query")?;
    if let ResolvedBlocks::Range { first, last } = blocks {
        // The range is made explicit, so that a certificate contains its blocks.
        query = query.from_block(first).to_block(last);
    }
    Ok((query, blocks))
}
