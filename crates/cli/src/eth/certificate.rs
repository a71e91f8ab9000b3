//! The command `eth verify-certificate`.

use anyhow::{Context as _, anyhow};
use chainsieve::eth::audit::{Audit, AuditQuestion, AuditReport, Status};
use chainsieve::eth::certificate::{Certificate, CertificateError};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockSelection, LogQuery, ResolvedBlocks};
use chainsieve_report::{Exit, Page, Report, UsageError, count, grouped, named};
use serde_json::{Value, json};

use super::audit::evidence::read_logs;
use super::audit::show::{evidence_fields, undecided_json, undecided_table};
use super::audit::{read_chain, read_wanted};
use super::query;
use crate::args::eth::VerifyCertificateArgs;

pub(crate) fn run(args: &VerifyCertificateArgs) -> anyhow::Result<Report> {
    let paths = args.receipts.iter().chain([&args.certificate]).map(AsRef::as_ref);
    let files = args.headers.iter().chain(&args.logs).map(AsRef::as_ref);
    let reader = query::stdin_once(&args.query, files.chain(paths))?;
    let query = query::read(&args.query, &reader)?;
    let blocks = blocks(&query)?;
    let profile = args.trust.profile()?;
    let anchors = &args.trust.anchor;
    let named = || format!("certificate, {}", named(&args.certificate));
    let text = reader.text(&args.certificate)?;
    let certificate = Certificate::from_json(&text).with_context(named)?;
    let chain = if args.headers.is_empty() {
        certificate.chain().map_err(no_headers).with_context(named)?
    } else {
        read_chain(&args.headers, args.format, query::bounds(&query).0, false)?.0
    };
    let semantics = args.query.semantics;
    let question = AuditQuestion {
        chain: &chain,
        anchors,
        query: &query,
        blocks,
        semantics,
        profile: &profile,
    };
    // The audit determines the blocks whose receipts are needed.
    let audit = Audit::new(question, &[])?;
    let (receipts, mut warnings) = read_wanted(&audit, &chain, &args.receipts)?;
    let result = (!args.logs.is_empty()).then(|| read_logs(&args.logs)).transpose()?;
    let mut wanted = Vec::new();
    let fetch = |number, hash| {
        let found = receipts.get(&hash).cloned();
        if found.is_none() {
            wanted.push(BlockRef { number, hash });
        }
        found
    };
    let verified = certificate.verify(question, fetch, result.as_deref());
    let (report, logs, error) = match verified {
        Ok(verified) => (Some(verified.report), verified.logs, None),
        Err(
            error @ (CertificateError::NoHeaders
            | CertificateError::Headers { .. }
            | CertificateError::Audit(_)),
        ) => {
            return Err(error).with_context(named);
        }
        Err(CertificateError::Refuted(report)) => {
            let findings = report.findings.len();
            let error = format!("the audit of the given logs has {}", count(findings, "finding"));
            (Some(*report), None, Some(error))
        }
        Err(error) => (None, None, Some(error.to_string())),
    };
    if anchors.is_empty() {
        warnings.push("no --anchor: no block is authenticated, so nothing is proven".into());
    } else if chain.anchored_to(anchors).is_none() {
        let none =
            "no header has the hash of an anchor: no block is authenticated, so nothing is proven";
        warnings.push(none.into());
    }
    Ok(Shown { certificate: &certificate, wanted, error, report, logs, warnings }.report())
}

/// Returns the blocks of the verifier's query. The query must name its blocks explicitly, because
/// headers from an untrusted source must not determine the range.
fn blocks(query: &LogQuery) -> Result<ResolvedBlocks, UsageError> {
    match (query.blocks(), query::bounds(query)) {
        (BlockSelection::AtHash(hash), _) => Ok(ResolvedBlocks::AtHash(*hash)),
        (_, (Some(first), Some(last))) => Ok(ResolvedBlocks::Range { first, last }),
        _ => Err(UsageError(
            "the block range of the query is missing or incomplete: give --from and --to",
        )),
    }
}

/// Adds advice to the error for a certificate without headers.
fn no_headers(error: CertificateError) -> anyhow::Error {
    match error {
        CertificateError::NoHeaders => {
            anyhow!("the certificate contains no headers: give them with --headers")
        }
        error => error.into(),
    }
}

struct Shown<'a> {
    certificate: &'a Certificate,
    wanted: Vec<BlockRef>,
    error: Option<String>,
    report: Option<AuditReport>,
    logs: Option<Vec<LocatedLog>>,
    warnings: Vec<String>,
}

impl Shown<'_> {
    fn report(self) -> Report {
        let complete = self.logs.is_some()
            && self.report.as_ref().is_some_and(|report| report.status() == Status::Complete);
        let exit = match &self.error {
            Some(_) => Exit::Wrong,
            None if complete => Exit::Yes,
            None => Exit::Undecided,
        };
        Report::new(self.page(exit), self.json(exit), exit).with_warnings(self.warnings)
    }

    fn page(&self, exit: Exit) -> Page {
        let mut page = Page::default();
        page.heading(match (&self.error, exit) {
            (Some(error), _) => format!("wrong: {error}"),
            (None, Exit::Yes) => "complete: the result is proven".into(),
            (None, _) => "undecided: no contradiction, but not everything is proven".into(),
        });
        let certificate = self.certificate;
        let (first, last) = (*certificate.blocks().start(), *certificate.blocks().end());
        let mut fields = vec![
            ("blocks", format!("{} to {}", grouped(first), grouped(last))),
            ("last hash", certificate.last_hash().to_string()),
            ("query", certificate.query().to_json()),
            ("logs", grouped(certificate.num_logs())),
            ("digest", certificate.digest().to_string()),
        ];
        if let Some(report) = &self.report {
            let to = |anchored| format!("blocks up to {}", grouped(anchored));
            fields.push(("authentic", report.anchored_to.map_or("none".into(), to)));
            fields.extend(evidence_fields(report));
        }
        page.fields(fields);
        self.report.iter().for_each(|report| undecided_table(&mut page, report));
        page
    }

    fn json(&self, exit: Exit) -> Value {
        let certificate = self.certificate;
        let report = self.report.as_ref();
        json!({
            "status": exit.verdict("complete"),
            "error": self.error,
            "first": report.map(|report| *report.range.start()),
            "last": report.map(|report| *report.range.end()),
            "anchored_to": report.and_then(|report| report.anchored_to),
            "blocks": report.map(|report| report.counts),
            "undecided": report.map(undecided_json),
            "wanted": self.wanted,
            "logs": self.logs,
            "count": certificate.num_logs(),
            "digest": certificate.digest(),
            "certificate": {
                "profile": certificate.profile_name(),
                "query": certificate.query(),
                "semantics": certificate.semantics(),
                "first": certificate.blocks().start(),
                "last": certificate.blocks().end(),
                "last_hash": certificate.last_hash(),
                "parent_hash": certificate.parent_hash(),
            },
        })
    }
}
