//! `eth audit --rpc`: fetches the answer of one or two providers, and audits each answer against one
//! chain of headers and receipts.

use chainsieve::eth::audit::{Audit, AuditReport, Status};
use chainsieve::eth::certificate::Certificate;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::provider::Difference;
use chainsieve_provider::{Beside, FetchedAnswers, Provider, Stop, Tip, Warning};
use chainsieve_report::{Exit, Page, Report, count, grouped};
use serde_json::{Value, json};

use crate::args::eth::AuditArgs;
use crate::eth::{profile, query};
use crate::eth::anchor::trusted::Trusted;
use crate::eth::rpc::{builder, in_words_of_the_command, words_of};
use super::{issue, write_wanted};
use super::evidence::Feed;
use super::show::{Answered, LISTED, ROWS, Shown};

const LETTERS: [&str; 2] = ["A", "B"];

pub(super) fn run(args: &AuditArgs) -> anyhow::Result<Report> {
    let paths = args.receipts.iter().chain(&args.transactions).map(AsRef::as_ref);
    let reader = query::stdin_once(&args.query, paths)?;
    let query = query::read(&args.query, &reader)?;
    let endpoints = args.rpc.endpoints(&args.asking.rpc2_header)?;
    let (mut builder, _bar) = builder(&args.rpc, endpoints, Stop::new());
    builder = builder
        .semantics(args.query.semantics)
        .max_headers(args.asking.max_headers)
        .max_receipts(args.asking.max_receipts);
    // A light client decides what is final, not the provider.
    if !args.asking.unfinalized && !args.beacon.is_given() {
        builder = builder.final_only();
    }
    if args.embed {
        builder = builder.keep_evidence();
    }
    let provider = builder.build()?;
    let chain_id = provider.chain_id().map_err(in_words_of_the_command)?;
    let provider = provider.with_profile(profile::of_provider(&args.trust, chain_id)?);
    query::require_from(&args.query)?;
    let mut trusted =
        Trusted::given(&args.trust.anchor).bring(&args.beacon, &args.rpc, &provider)?;
    let query = trusted.bound(&provider, query, args.asking.unfinalized);
    let provider = provider.with_anchor(trusted.anchors.clone());
    let answers = provider.ask(&query).map_err(in_words_of_the_command)?;
    judge(args, &provider, &answers, &trusted)
}

/// Audits each answer against the chain, with receipts from files and from either provider.
fn judge(
    args: &AuditArgs,
    provider: &Provider,
    answers: &FetchedAnswers,
    trusted: &Trusted,
) -> anyhow::Result<Report> {
    let mut warnings = warnings(args, provider, answers, trusted);
    warnings.extend(trusted.warnings());
    let chain = &answers.fetched.chain;
    let logs = &answers.logs;
    let mut audits = answers.audits()?;
    let questions: Vec<_> = (0..logs.len()).map(|node| answers.question(node)).collect();
    let mut kept = Vec::new();
    let mut own_warnings = Vec::new();
    for (audit, logs) in audits.iter_mut().zip(logs) {
        let mut feed = Feed::new(audit, chain, logs, args.embed);
        feed.receipts(&args.receipts)?;
        feed.transactions(&args.transactions)?;
        let (given, warnings) = feed.end();
        kept = given;
        own_warnings.push(warnings);
    }
    let fetched = provider.fetch_receipts(&mut audits, chain).map_err(in_words_of_the_command)?;
    kept.extend(fetched.kept);
    warnings.extend(fetched.warnings.iter().map(words_of));
    let missing: Vec<_> = audits.first().into_iter().flat_map(Audit::open).collect();
    let reports: Vec<AuditReport> = audits.into_iter().map(Audit::finish).collect();
    if let Some(error) = fetched.unreachable {
        let error = in_words_of_the_command(error);
        // If a report already proves something, a provider that fails now does not prevent the
        // output of the reports.
        if !reports.iter().any(is_of_use) {
            return Err(error);
        }
        let blocks = count(missing.len(), "block");
        warnings.push(format!("{error}: receipts of {blocks} are missing"));
    }
    if let Some(path) = &args.wanted {
        write_wanted(path, &missing, args.overwrite.force)?;
    }
    let certified = certified(&reports);
    let hosts: Vec<String> =
        provider.nodes().iter().map(|node| node.endpoint().to_string()).collect();
    let mut shown = Vec::new();
    for (index, (report, logs)) in reports.iter().zip(logs).enumerate() {
        let question = &questions[index];
        let mut warnings = std::mem::take(&mut own_warnings[index]);
        let mut certificate = None;
        if let Some(path) = args.certificate.as_ref().filter(|_| index == certified) {
            let issued = Certificate::from_report(question, report, logs);
            let rlp = answers.fetched.rlp.as_deref().unwrap_or_default();
            certificate =
                issue((path, args.overwrite.force), issued, report, (rlp, &kept), &mut warnings)?;
        }
        shown.push(Shown {
            report,
            question,
            logs,
            wanted: &missing,
            certificate,
            warnings,
            provider: Some(Answered {
                letter: LETTERS[index],
                host: &hosts[index],
                own_anchor: answers.tip.has_no_anchor,
            }),
        });
    }
    let compared = match logs.as_slice() {
        [first, second] => Some(Difference::new(first, second)),
        _ => None,
    };
    let of = (&hosts[..], &fetched.from[..]);
    Ok(outcome(args, answers, of, trusted, &warnings, compared.as_ref(), shown))
}

/// Returns `true` if a report proves something by receipts, or proves the answer wrong.
fn is_of_use(report: &AuditReport) -> bool {
    report.status() == Status::Wrong || report.counts.checked_by_receipts > 0
}

/// Returns warnings about the limits of the chain's reliability, on which the reliability of the
/// answers depends.
fn warnings(
    args: &AuditArgs,
    provider: &Provider,
    answers: &FetchedAnswers,
    trusted: &Trusted,
) -> Vec<String> {
    let mut warnings = of_tip(&answers.tip, provider);
    // Without --to, the user expects the range to end at the finalised block, so no warning about
    // this end is needed.
    let open_end = args.query.query.is_none() && args.query.to.is_none();
    let listed = answers.warnings.iter();
    let listed = listed.filter(|it| !(open_end && matches!(it, Warning::EndsAtFinalized { .. })));
    warnings.extend(listed.map(words_of));
    // A light client is one of a known chain.
    let is_chain_known = profile::is_of_user(&args.trust) || trusted.finalized().is_some();
    if !answers.tip.has_no_anchor && !is_chain_known {
        warnings.push(format!(
            "only the provider claims that the blocks are of chain {}, {}, and the rules for their \
             filters and receipts depend on this claim: give --chain to set the chain yourself",
            answers.chain_id,
            answers.profile.name()
        ));
    }
    warnings
}

fn of_tip(tip: &Tip, provider: &Provider) -> Vec<String> {
    let mut warnings = Vec::new();
    let name = |node: usize| provider.nodes()[node].endpoint();
    let at = grouped(tip.block.number);
    if tip.has_no_anchor {
        let whose = if tip.others.is_empty() {
            "the provider claims".to_owned()
        } else if tip.is_agreed() {
            "both providers claim".to_owned()
        } else {
            format!("only {} claims", name(tip.node))
        };
        warnings.push(format!(
            "no --anchor: {whose} that block {at}, {}, is on the chain, and the result holds only \
             if this is true. A chain that the provider made up would pass",
            tip.block.hash
        ));
    }
    for other in &tip.others {
        let name = name(other.node);
        let undecided = if tip.has_no_anchor {
            "; without --anchor, nothing in its answer is proven"
        } else {
            ""
        };
        match other.beside {
            Beside::Another { hash } => warnings.push(format!(
                "{name} has another block {at}, {hash}: one of the two providers is wrong, or one \
                 of them has not applied a reorganisation yet{undecided}"
            )),
            Beside::Nothing => {
                warnings.push(format!("{name} does not have block {at}{undecided}"));
            }
            _ => {}
        }
    }
    warnings
}

/// Returns the index of the answer that a certificate commits to: the first complete answer, or the
/// first answer if none is complete.
fn certified(reports: &[AuditReport]) -> usize {
    reports.iter().position(|report| report.status() == Status::Complete).unwrap_or(0)
}

/// Returns the final report.
///
/// With one provider, the JSON is the same as for an audit of files, with additional members. With
/// two providers, the member `audits` contains the JSON of both audits.
fn outcome(
    args: &AuditArgs,
    answers: &FetchedAnswers,
    (hosts, receipts_from): (&[String], &[u64]),
    trusted: &Trusted,
    warnings: &[String],
    compared: Option<&Difference<'_>>,
    shown: Vec<Shown<'_>>,
) -> Report {
    let mut page = Page::default();
    page.warnings(warnings);
    trusted.lines().into_iter().for_each(|line| page.line(line));
    let (mut exit, mut status) = (Exit::Yes, "complete");
    let mut audits = Vec::new();
    for (letter, report) in LETTERS.into_iter().zip(shown.into_iter().map(Shown::report)) {
        let (of_page, of_json, of_exit) = report.into_parts();
        match of_exit {
            Exit::Wrong => (exit, status) = (Exit::Wrong, "wrong"),
            Exit::Undecided if exit == Exit::Yes => {
                (exit, status) = (Exit::Undecided, "undecided");
            }
            _ => {}
        }
        if !audits.is_empty() {
            page.line("");
        }
        page.append(of_page, compared.map(|_| letter));
        audits.push(of_json);
    }
    if let Some(compared) = compared {
        page.line("");
        page.line(difference_in_words(compared));
        show_difference(compared, &mut page);
    }
    let mut json = match compared {
        None => audits.pop().unwrap_or_default(),
        Some(compared) => json!({
            "status": status,
            "first": answers.query.first,
            "last": answers.query.last,
            "anchored_to": audits.first().map(|audit| audit["anchored_to"].clone()),
            "audits": audits,
            "compared": difference_json(compared),
            "warnings": [],
        }),
    };
    let own = json["warnings"].as_array().cloned().unwrap_or_default();
    json["warnings"] = warnings.iter().map(|warning| json!(warning)).chain(own).collect();
    json["chain_id"] = json!(answers.chain_id);
    let chain_of_user = profile::is_of_user(&args.trust);
    json["chain_from"] = json!(if chain_of_user { "user" } else { "provider" });
    let tip = &answers.tip;
    json["anchor"] = json!((!tip.is_missing).then_some(tip.block));
    json["anchor_from"] = json!(trusted.source(Some(tip.block.hash)));
    json["light_client"] = trusted.json();
    json["anchor_agreed"] = json!((!tip.others.is_empty()).then(|| tip.is_agreed()));
    json["finalized"] = json!(answers.query.finalized);
    let providers = LETTERS.iter().zip(hosts).zip(receipts_from);
    json["providers"] = providers
        .map(|((letter, host), from)| {
            json!({ "name": letter, "host": host, "receipts_of_blocks": from })
        })
        .collect();
    Report::new(page, json, exit)
}

/// Describes the difference between two answers.
fn difference_in_words(difference: &Difference<'_>) -> String {
    if difference.is_empty() {
        return "A and B return the same logs".into();
    }
    format!(
        "A and B return different logs: {} only from A, {} only from B",
        count(difference.only_first.len(), "log"),
        count(difference.only_second.len(), "log")
    )
}

fn show_difference(difference: &Difference<'_>, page: &mut Page) {
    if difference.is_empty() {
        return;
    }
    let both = [("A", &difference.only_first), ("B", &difference.only_second)];
    let rows = both.into_iter().flat_map(|(letter, logs)| {
        logs.iter().take(ROWS).map(move |log| {
            let what = format!("log {} of {}", grouped(log.log_index), log.log.address);
            vec![grouped(log.block_number), letter.to_owned(), what]
        })
    });
    page.table(vec!["block", "only from", "log"], rows.collect());
}

fn difference_json(difference: &Difference<'_>) -> Value {
    let list = |logs: &[&LocatedLog]| json!(&logs[..logs.len().min(LISTED)]);
    json!({
        "same": difference.is_empty(),
        "only_a": list(&difference.only_first),
        "only_b": list(&difference.only_second),
    })
}
