//! The report of an audit, for people and for programs.

use std::collections::BTreeSet;
use std::path::Path;

use chainsieve::eth::audit::{
    AuditQuestion, AuditReport, Finding, FindingKind, Status, Undecidable,
};
use chainsieve::eth::chain_profile::ReceiptsScope;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::{LocatedLog, digest};
use chainsieve_report::{Exit, Page, Report, count, grouped, span};
use serde_json::{Value, json};

/// Maximum number of rows of a table on the page.
pub(super) const ROWS: usize = 20;
/// Maximum number of undecided blocks, and of logs, that the JSON lists.
pub(super) const LISTED: usize = 1000;

/// Everything from which the report of an audit is built.
pub(crate) struct Shown<'a> {
    pub(crate) report: &'a AuditReport,
    pub(crate) question: &'a AuditQuestion<'a>,
    pub(crate) logs: &'a [LocatedLog],
    pub(crate) wanted: &'a [BlockRef],
    pub(crate) certificate: Option<&'a Path>,
    pub(crate) warnings: Vec<String>,
    pub(crate) provider: Option<Answered<'a>>,
}

/// The provider that gave an answer, or only the headers and receipts.
#[derive(Clone, Copy)]
pub(crate) struct Answered<'a> {
    /// `A` or `B`; `None` if the answer is from files.
    pub(crate) letter: Option<&'static str>,
    /// The host of the URL; the rest of the URL is secret.
    pub(crate) host: &'a str,
    /// `true` if the user gave no anchor, so that only the provider claims the last block.
    pub(crate) own_anchor: bool,
}

impl Shown<'_> {
    pub(crate) fn report(mut self) -> Report {
        self.warn();
        let exit = match self.report.status() {
            Status::Complete => Exit::Yes,
            Status::Wrong => Exit::Wrong,
            Status::Undecided => Exit::Undecided,
        };
        Report::new(self.page(), self.json(), exit).with_warnings(self.warnings)
    }

    /// Returns the last block that the user's anchors authenticate; a block that the provider names
    /// is not such an anchor.
    fn anchored_to(&self) -> Option<u64> {
        let own = self.provider.is_some_and(|provider| provider.own_anchor);
        self.report.anchored_to.filter(|_| !own)
    }

    fn warn(&mut self) {
        let last = *self.report.range.end();
        match self.report.anchored_to {
            None if self.question.anchors.is_empty() => self.warnings.push(
                "no --anchor: no block is authenticated, so nothing is proven; give --anchor the \
                 hash of a block that you trust, at or after the end of the range"
                    .into(),
            ),
            None => self.warnings.push(
                "no header has the hash of an anchor: no block is authenticated, so nothing is \
                 proven"
                    .into(),
            ),
            Some(anchored) if anchored < last => self.warnings.push(format!(
                "the headers after block {anchored}, the highest anchor, are not authenticated: an \
                 anchor authenticates only its own block and the blocks before it"
            )),
            Some(_) => {}
        }
        let is_other_fork =
            |finding: &Finding| matches!(finding.kind, FindingKind::OtherFork { .. });
        if self.report.omitted().next().is_some() && self.report.findings.iter().any(is_other_fork)
        {
            self.warnings.push(
                "some logs are of blocks that are not on this chain. If a reorganisation happened \
                 between the answer and the headers, the provider could not know the omitted logs: \
                 query again, by block hash or up to the finalised block"
                    .into(),
            );
        }
    }

    /// Returns the verdict in one line.
    pub(crate) fn verdict(&self) -> String {
        let counts = &self.report.counts;
        match self.report.status() {
            Status::Complete if self.provider.is_some_and(|provider| provider.own_anchor) => {
                "complete if the provider's blocks are on the chain: these are exactly the logs of \
                 these blocks that match the query"
                    .into()
            }
            Status::Complete => {
                "complete: these are exactly the logs of these blocks that match the query".into()
            }
            Status::Wrong => {
                let proofs = || self.report.findings.iter().filter(|finding| finding.is_proof());
                let is_omitted = |kind: &FindingKind| matches!(kind, FindingKind::OmittedLog(_));
                let omitted = proofs().filter(|finding| is_omitted(&finding.kind)).count();
                // One log may have several findings, so the number of logs is shown, not the number
                // of findings.
                let others = proofs().filter_map(Finding::at).collect::<BTreeSet<_>>().len();
                let what = match (omitted, others) {
                    (0, others) => format!("{} wrong or not requested", count(others, "log")),
                    (omitted, 0) => format!("{} omitted", count(omitted, "log")),
                    (omitted, others) => format!(
                        "{} omitted, {} wrong or not requested",
                        count(omitted, "log"),
                        count(others, "log")
                    ),
                };
                format!("wrong: {what}")
            }
            Status::Undecided if counts.undecidable > 0 => {
                format!("undecided: {} could not be decided", count(counts.undecidable, "block"))
            }
            Status::Undecided => "undecided: see the findings".into(),
        }
    }

    fn page(&self) -> Page {
        let report = self.report;
        let counts = &report.counts;
        let (first, last) = (*report.range.start(), *report.range.end());
        let anchor = match self.anchored_to() {
            _ if self.provider.is_some_and(|provider| provider.own_anchor) => {
                "unknown: only the provider claims these blocks".into()
            }
            Some(anchored) if anchored >= last => {
                format!("all blocks, by the anchor at block {}", grouped(anchored))
            }
            Some(anchored) => format!("blocks up to {}", grouped(anchored)),
            None => "none".into(),
        };
        let profile = self.question.profile;
        let stretch = profile.at(first);
        let scope = match stretch.receipts {
            ReceiptsScope::EveryLog => "every log is in a receipt",
            ReceiptsScope::NotEveryLog => "some logs may be in no receipt",
        };
        let mut page = Page::default();
        page.heading(self.verdict());
        match self.provider {
            Some(Answered { letter: Some(letter), host, .. }) => {
                page.fields(vec![("provider", format!("{letter} ({host})"))]);
            }
            Some(Answered { letter: None, host, .. }) => {
                page.fields(vec![("evidence", format!("headers and receipts of {host}"))]);
            }
            None => {}
        }
        let mut fields = vec![("blocks", span(first, last, counts.blocks)), ("authentic", anchor)];
        fields.extend(evidence_fields(report));
        fields.extend([
            ("answer", count(self.logs.len(), "log")),
            ("chain", format!("{}: {} filters, {scope}", profile.name(), stretch.bloom)),
        ]);
        page.fields(fields);
        if !report.findings.is_empty() {
            page.line("");
            let whose = self.provider.and_then(|provider| provider.letter).map(str::to_owned);
            let row = |finding: &Finding| {
                let block = finding.block.map_or_else(|| "-".into(), grouped);
                [block].into_iter().chain(whose.clone()).chain([finding.to_string()]).collect()
            };
            let rows = report.findings.iter().take(ROWS).map(row).collect();
            let header = ["block"].into_iter().chain(whose.as_ref().map(|_| "provider"));
            page.table(header.chain(["finding"]).collect(), rows);
            more(&mut page, report.findings.len());
        }
        self.undecided(&mut page);
        if let Some(path) = self.certificate {
            page.line("");
            page.line(format!("Certificate: {}", path.display()));
        }
        if report.unbound_transaction_hashes > 0 {
            page.line("");
            page.line(format!(
                "Not checked: the transaction hashes of {}. Receipts do not contain them; give \
                 --transactions.",
                count(report.unbound_transaction_hashes, "log")
            ));
        }
        page
    }

    fn undecided(&self, page: &mut Page) {
        if self.wanted.is_empty() {
            undecided_table(page, self.report);
            return more(
                page,
                usize::try_from(self.report.counts.undecidable).unwrap_or(usize::MAX),
            );
        }
        page.line("");
        page.line(format!(
            "Receipts of {} are missing: fetch them by hash with eth_getBlockReceipts, from any \
             node.",
            count(self.wanted.len(), "block")
        ));
        let row = |block: &BlockRef| vec![grouped(block.number), block.hash.to_string()];
        page.table(vec!["block", "hash"], self.wanted.iter().take(ROWS).map(row).collect());
        more(page, self.wanted.len());
    }

    fn json(&self) -> Value {
        let mut json = json!(self.report);
        json["anchored_to"] = json!(self.anchored_to());
        json["undecided"] = undecided_json(self.report);
        json["findings"] = self.report.findings.iter().map(|found| self.finding(found)).collect();
        json["wanted"] = json!(self.wanted);
        json["logs"] = json!(self.logs.len());
        json["digest"] = json!(digest(self.logs));
        json["query"] = json!(self.question.query);
        json["semantics"] = json!(self.question.semantics);
        json["chain"] = json!(self.question.profile.name());
        json["certificate"] = json!(self.certificate.map(|path| path.display().to_string()));
        if let Some(Answered { letter: Some(letter), host, .. }) = self.provider {
            json["provider"] = json!({ "name": letter, "host": host });
        }
        json
    }

    /// Returns a finding in JSON, with members that readers would otherwise have to derive: whether
    /// the finding is a proof, its description, and the log of the answer that it concerns.
    fn finding(&self, finding: &Finding) -> Value {
        let at = finding.at();
        let mut json = json!(finding);
        json["proof"] = json!(finding.is_proof());
        json["at"] = json!(at);
        json["words"] = json!(finding.to_string());
        if json.get("log").is_none() {
            json["log"] = json!(at.and_then(|at| self.logs.get(at)));
        }
        if let Some(letter) = self.provider.and_then(|provider| provider.letter) {
            json["provider"] = json!(letter);
        }
        json
    }
}

/// Returns the first undecided blocks with the reasons, in JSON.
pub(crate) fn undecided_json(report: &AuditReport) -> Value {
    let undecided = report.undecided().take(LISTED);
    undecided.map(|(number, why)| json!({ "number": number, "why": why })).collect()
}

/// Returns fields about how the blocks of an audit were decided.
pub(crate) fn evidence_fields(report: &AuditReport) -> [(&'static str, String); 3] {
    let counts = &report.counts;
    [
        ("ruled out", format!("{} by their filter", grouped(counts.absent_by_bloom))),
        ("checked", format!("{} by all their receipts", grouped(counts.checked_by_receipts))),
        ("undecided", grouped(counts.undecidable)),
    ]
}

/// Adds a table of the first undecided blocks with the reasons, if there are any.
pub(crate) fn undecided_table(page: &mut Page, report: &AuditReport) {
    let row = |(number, why): (u64, Undecidable)| vec![grouped(number), why.to_string()];
    let rows: Vec<_> = report.undecided().take(ROWS).map(row).collect();
    if !rows.is_empty() {
        page.line("");
        page.table(vec!["block", "undecided"], rows);
    }
}

/// Adds a line with the number of rows that a table leaves out.
fn more(page: &mut Page, all: usize) {
    if all > ROWS {
        page.line(format!("… and {} more: see --json", grouped(all - ROWS)));
    }
}
