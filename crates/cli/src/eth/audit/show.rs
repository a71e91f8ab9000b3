//! An audit's result, for people and for programs.

use std::collections::BTreeSet;
use std::path::Path;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{
    AuditReport, Finding, FindingKind, Question, Status, Undecidable, Verdict,
};
use chainsieve::eth::chain_profile::ReceiptsScope;
use chainsieve::eth::log::{LocatedLog, digest};
use serde_json::{Value, json};

use super::findings::{Described, soundness};
use crate::output::{Exit, Page, Report, count, grouped};

/// Rows of a page.
const ROWS: usize = 20;
/// Undecided blocks that the JSON lists.
const LISTED: usize = 1000;

/// All that the result is made of.
pub(crate) struct Shown<'a> {
    pub(crate) report: &'a AuditReport,
    pub(crate) question: &'a Question<'a>,
    pub(crate) semantics: &'static str,
    pub(crate) logs: &'a [LocatedLog],
    pub(crate) wanted: &'a [(u64, B256)],
    pub(crate) certificate: Option<&'a Path>,
    pub(crate) warnings: Vec<String>,
    pub(crate) provider: Option<Answered<'a>>,
}

/// Who gave an answer, where that is known.
#[derive(Clone, Copy)]
pub(crate) struct Answered<'a> {
    /// `A` or `B`.
    pub(crate) letter: &'static str,
    /// Of the URL, what is no secret.
    pub(crate) host: &'a str,
    /// Nobody else than the provider says that the anchor is on the chain.
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
        Report { page: self.page(), json: self.json(), payload: None, exit }
    }

    /// Up to which block the user's anchors reach: a provider's own is none of them.
    fn anchored_to(&self) -> Option<u64> {
        let own = self.provider.is_some_and(|provider| provider.own_anchor);
        self.report.anchored_to.filter(|_| !own)
    }

    fn warn(&mut self) {
        let last = *self.report.range.end();
        match self.report.anchored_to {
            None if self.question.anchors.is_empty() => self.warnings.push(
                "no --anchor: nothing is authentic, and nothing proven; trust the hash of a block \
                 at the end of the range or behind it"
                    .into(),
            ),
            None => self.warnings.push(
                "no header has the hash of an anchor: nothing is authentic, and nothing proven"
                    .into(),
            ),
            Some(anchored) if anchored < last => self.warnings.push(format!(
                "headers behind block {anchored}, the highest anchor, may be anyone's: a hash \
                 authenticates only what is before it"
            )),
            Some(_) => {}
        }
        let is_other_fork =
            |finding: &Finding| matches!(finding.kind, FindingKind::OtherFork { .. });
        if self.report.omitted().next().is_some() && self.report.findings.iter().any(is_other_fork)
        {
            self.warnings.push(
                "some logs are of blocks off this chain: if it was reorganised between the answer and \
                 the headers, the omitted logs were not there yet; ask again, by block hash or up to \
                 the finalised block"
                    .into(),
            );
        }
    }

    /// What the result is, in a line.
    pub(crate) fn verdict(&self) -> String {
        let counts = &self.report.counts;
        match self.report.status() {
            Status::Complete if self.provider.is_some_and(|provider| provider.own_anchor) => {
                "complete by its own chain: these are exactly the logs that the query wants of \
                 these blocks, if the blocks are the chain's"
                    .into()
            }
            Status::Complete => {
                "complete: these are exactly the logs that the query wants of these blocks".into()
            }
            Status::Wrong => {
                let proofs = || self.report.findings.iter().filter(|finding| finding.is_proof());
                let is_omitted = |kind: &FindingKind| matches!(kind, FindingKind::OmittedLog(_));
                let omitted = proofs().filter(|finding| is_omitted(&finding.kind)).count();
                // There may be several findings of a log.
                let others = proofs().filter_map(Finding::at).collect::<BTreeSet<_>>().len();
                let what = match (omitted, others) {
                    (0, others) => format!("{} wrong or not asked for", count(others, "log")),
                    (omitted, 0) => format!("{} omitted", count(omitted, "log")),
                    (omitted, others) => format!(
                        "{} omitted, {} wrong or not asked for",
                        count(omitted, "log"),
                        count(others, "log")
                    ),
                };
                format!("wrong: {what}")
            }
            Status::Undecided if counts.undecidable > 0 => format!(
                "undecided: {} could not be decided",
                count(usize::try_from(counts.undecidable).unwrap_or(usize::MAX), "block")
            ),
            Status::Undecided => "undecided: see the findings".into(),
        }
    }

    fn page(&self) -> Page {
        let report = self.report;
        let counts = &report.counts;
        let (first, last) = (*report.range.start(), *report.range.end());
        let anchor = match self.anchored_to() {
            _ if self.provider.is_some_and(|provider| provider.own_anchor) => {
                "unknown: the provider's own word".into()
            }
            Some(anchored) if anchored >= last => {
                format!("all blocks, by block {}", grouped(anchored))
            }
            Some(anchored) => format!("blocks up to {}", grouped(anchored)),
            None => "none".into(),
        };
        let profile = self.question.profile;
        let stretch = profile.at(first);
        let scope = match stretch.receipts {
            ReceiptsScope::EveryLog => "every log in receipts",
            ReceiptsScope::NotEveryLog => "logs outside of receipts",
        };
        let mut page = Page::default();
        page.heading(self.verdict());
        if let Some(Answered { letter, host, .. }) = self.provider {
            page.fields(vec![("provider", format!("{letter} ({host})"))]);
        }
        page.fields(vec![
            (
                "blocks",
                format!("{}, {} to {}", grouped(counts.blocks), grouped(first), grouped(last)),
            ),
            ("authentic", anchor),
            ("absent", format!("{} by their filter", grouped(counts.absent_by_bloom))),
            ("checked", format!("{} by all their receipts", grouped(counts.checked_by_receipts))),
            ("undecided", grouped(counts.undecidable)),
            ("answer", count(self.logs.len(), "log")),
            ("chain", format!("{}: {} filters, {scope}", profile.name(), soundness(stretch.bloom))),
        ]);
        if !report.findings.is_empty() {
            page.line("");
            let whose = self.provider.map(|provider| provider.letter.to_owned());
            let row = |finding| {
                let described = Described { finding, logs: self.logs };
                let block = finding.block.map_or_else(|| "-".into(), grouped);
                [block].into_iter().chain(whose.clone()).chain([described.words()]).collect()
            };
            let rows = report.findings.iter().take(ROWS).map(row).collect();
            let header = ["block"].into_iter().chain(whose.as_ref().map(|_| "answer of"));
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
                "Not checked: the transaction hashes of {}, which receipts do not hold \
                 (--transactions).",
                count(report.unbound_transaction_hashes, "log")
            ));
        }
        page.warnings(&self.warnings);
        page
    }

    fn undecided(&self, page: &mut Page) {
        if self.wanted.is_empty() {
            let undecided: Vec<_> = self.report.undecided().take(ROWS).collect();
            if !undecided.is_empty() {
                page.line("");
                let row = |(number, why)| vec![grouped(number), why_words(why).to_owned()];
                page.table(vec!["block", "undecided"], undecided.into_iter().map(row).collect());
                more(page, usize::try_from(self.report.counts.undecidable).unwrap_or(usize::MAX));
            }
            return;
        }
        page.line("");
        page.line(format!(
            "Receipts are missing of {}: eth_getBlockReceipts by hash, from any node.",
            count(self.wanted.len(), "block")
        ));
        let row = |(number, hash): &(u64, B256)| vec![grouped(*number), hash.to_string()];
        page.table(vec!["block", "hash"], self.wanted.iter().take(ROWS).map(row).collect());
        more(page, self.wanted.len());
    }

    fn json(&self) -> Value {
        let report = self.report;
        let counts = &report.counts;
        let status = match report.status() {
            Status::Complete => "complete",
            Status::Wrong => "wrong",
            Status::Undecided => "undecided",
        };
        let hash = |number| self.question.chain.block(number).map(|block| block.hash);
        let examined = report.examined().iter().map(|&(number, verdict)| {
            let mut json = json!({ "number": number, "hash": hash(number) });
            json["verdict"] = json!(match verdict {
                Verdict::AbsentByBloom => "absent_by_bloom",
                Verdict::CheckedByReceipts => "checked_by_receipts",
                Verdict::Undecidable(_) => "undecidable",
            });
            if let Verdict::Undecidable(why) = verdict {
                json["why"] = json!(why_name(why));
            }
            json
        });
        let examined: Vec<_> = examined.collect();
        let findings: Vec<_> = report
            .findings
            .iter()
            .map(|finding| {
                let mut json = Described { finding, logs: self.logs }.json();
                if let Some(Answered { letter, .. }) = self.provider {
                    json["provider"] = json!(letter);
                }
                json
            })
            .collect();
        let wanted: Vec<_> = self
            .wanted
            .iter()
            .map(|(number, hash)| json!({ "number": number, "hash": hash }))
            .collect();
        let query: Value = serde_json::from_str(&self.question.query.to_json()).unwrap_or_default();
        let mut json = json!({
            "status": status,
            "first": report.range.start(),
            "last": report.range.end(),
            "anchored_to": self.anchored_to(),
            "blocks": {
                "all": counts.blocks,
                "examined": counts.examined,
                "absent_by_bloom": counts.absent_by_bloom,
                "checked_by_receipts": counts.checked_by_receipts,
                "undecidable": counts.undecidable,
            },
            "examined": examined,
            "undecided": undecided_json(report),
            "findings": findings,
            "wanted": wanted,
            "logs": self.logs.len(),
            "digest": digest(self.logs),
            "transaction_hashes_unbound": report.unbound_transaction_hashes,
            "query": query,
            "semantics": self.semantics,
            "chain": self.question.profile.name(),
            "certificate": self.certificate.map(|path| path.display().to_string()),
            "warnings": self.warnings,
        });
        if let Some(Answered { letter, host, .. }) = self.provider {
            json["provider"] = json!({ "name": letter, "host": host });
        }
        json
    }
}

/// The first undecided blocks, and why.
pub(crate) fn undecided_json(report: &AuditReport) -> Value {
    let undecided = report.undecided().take(LISTED);
    undecided.map(|(number, why)| json!({ "number": number, "why": why_name(why) })).collect()
}

/// Says that a table is cut.
fn more(page: &mut Page, all: usize) {
    if all > ROWS {
        page.line(format!("… and {} more; --json has them all", grouped((all - ROWS) as u64)));
    }
}

fn why_name(why: Undecidable) -> &'static str {
    match why {
        Undecidable::Unanchored => "unanchored",
        Undecidable::ReceiptsNotSupplied => "receipts_not_supplied",
        Undecidable::PostStateMissing => "post_state_missing",
        Undecidable::ReceiptsNotEveryLog => "receipts_not_every_log",
        Undecidable::ProfileContradicted => "profile_contradicted",
        _ => "other",
    }
}

pub(crate) fn why_words(why: Undecidable) -> &'static str {
    match why {
        Undecidable::Unanchored => "its header may be anyone's: no anchor at or behind it",
        Undecidable::ReceiptsNotSupplied => "its receipts are missing",
        Undecidable::PostStateMissing => "its receipts came without the roots of states",
        Undecidable::ReceiptsNotEveryLog => "nodes of this chain return logs outside of receipts",
        Undecidable::ProfileContradicted => "filters of this chain turned out to lack bits",
        _ => "see the library's documentation",
    }
}
