//! The command `eth audit`, of answers in files and of answers of providers.

pub(super) mod evidence;
pub(crate) mod show;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditQuestion, AuditReport, Status};
use chainsieve::eth::certificate::Certificate;
use chainsieve::eth::header::{BlockRef, HeaderView, LinkedHeaders};
use chainsieve::eth::log::{Difference, LocatedLog};
use chainsieve::eth::log_query::{Heads, LogQuery, ResolvedBlocks};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve_provider::{AuditResult, Beside, FetchedAnswers, Provider, Stop, Tip, Trust};
use chainsieve_report::{Exit, Page, Report, UsageError, count, grouped, write};
use evidence::{Fed, feed, read_logs};
use serde_json::{Value, json};

use super::anchor::Trusted;
use super::headers::Headers;
use super::query::{self, QueryArgs};
use super::{builder, in_words_of_the_command, words_of, words_of_all};
use crate::args::eth::{AuditArgs, HeaderFormat};
use show::{Answered, LISTED, ROWS, Shown};

pub(crate) use evidence::read_wanted;

pub(crate) fn run(args: &AuditArgs) -> anyhow::Result<Report> {
    if args.rpc.is_given() {
        return of_provider(args);
    }
    let paths = args.receipts.iter().chain(&args.transactions).map(AsRef::as_ref);
    let files = args.headers.iter().chain(&args.logs).map(AsRef::as_ref);
    let query = query::of_args(&args.query, files.chain(paths))?;
    let profile = args.trust.profile()?;
    let anchors = &args.trust.anchor;
    let (chain, rlp) = read_chain(&args.headers, args.format, query::bounds(&query).0, args.embed)?;
    let (query, blocks) = resolve(query, &args.query, &chain)?;
    let logs = read_logs(&args.logs)?;
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
    let audits = std::slice::from_mut(&mut audit);
    let (kept, mut warnings) = feed(audits, &chain, &logs, args)?;
    let wanted: Vec<BlockRef> = audit.open().collect();
    write_wanted(args, &wanted)?;
    let report = audit.finish();
    let certificate = issue(args, &question, (&report, &logs), (&rlp, &kept), &mut warnings)?;
    let shown = Shown {
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

/// Writes the blocks whose receipts are missing, one per line, if a file for them is given.
fn write_wanted(args: &AuditArgs, wanted: &[BlockRef]) -> anyhow::Result<()> {
    let Some(path) = &args.wanted else { return Ok(()) };
    let mut text = String::new();
    for BlockRef { number, hash } in wanted {
        writeln!(text, "{number} {hash}")?;
    }
    write(path, text.as_bytes(), args.overwrite.force)
}

/// Writes a certificate, if a file for it is given, with the given headers and receipts; returns its path.
///
/// If no certificate can be issued for the report, adds a warning and returns `None`.
fn issue<'a>(
    args: &'a AuditArgs,
    question: &AuditQuestion<'_>,
    (report, logs): (&AuditReport, &[LocatedLog]),
    (rlp, receipts): (&[Vec<u8>], &[(B256, BlockReceipts)]),
    warnings: &mut Vec<String>,
) -> anyhow::Result<Option<&'a Path>> {
    let Some(path) = &args.certificate else { return Ok(None) };
    let mut issued = match Certificate::from_report(question, report, logs) {
        Ok(issued) => issued,
        Err(error) => {
            warnings.push(format!("no certificate: {error}"));
            return Ok(None);
        }
    };
    if !rlp.is_empty() {
        let headers: Result<Vec<_>, _> = rlp.iter().map(|rlp| HeaderView::decode(rlp)).collect();
        let is_needed = |header: &&HeaderView<'_>| header.number() >= *report.range.start();
        issued = issued.with_headers(headers?.iter().filter(is_needed));
    }
    for (hash, receipts) in receipts {
        issued = issued.with_receipts(*hash, receipts);
    }
    write(path, issued.to_json().as_bytes(), args.overwrite.force)?;
    if report.status() == Status::Undecided {
        warnings.push(
            "the answer in the certificate is not fully proven: the certificate verifies as \
             complete only if the verifier has the evidence that is missing here"
                .into(),
        );
    }
    Ok(Some(path))
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

const LETTERS: [&str; 2] = ["A", "B"];

pub(super) fn of_provider(args: &AuditArgs) -> anyhow::Result<Report> {
    let paths = args.receipts.iter().chain(&args.transactions).map(AsRef::as_ref);
    let query = query::of_args(&args.query, args.logs.iter().map(AsRef::as_ref).chain(paths))?;
    let endpoints = args.rpc.endpoints(&args.asking.rpc2_header)?;
    if !args.logs.is_empty() && endpoints.len() > 1 {
        bail!(UsageError("--logs with two providers: give --rpc once"));
    }
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
    let provider = provider.with_profile(args.trust.profile_of(chain_id)?);
    query::require_from(&args.query)?;
    let mut trusted =
        Trusted::given(&args.trust.anchor).bring(&args.beacon, &args.rpc, &provider)?;
    let query = trusted.bound(&provider, query, args.asking.unfinalized);
    let provider = provider.with_anchor(trusted.anchors.clone());
    let own = (!args.logs.is_empty()).then(|| read_logs(&args.logs)).transpose()?;
    let mut of_files = Fed::default();
    let audited = provider.audit_with(&query, own.as_deref(), |audits, answers| {
        let logs = own.iter().flatten().chain(answers.logs.iter().flatten());
        of_files = feed(audits, &answers.fetched.chain, logs, args)?;
        Ok(())
    });
    let in_words = |error: anyhow::Error| match error.downcast() {
        Ok(error) => in_words_of_the_command(error),
        Err(error) => error,
    };
    judge(args, &provider, &trusted, audited.map_err(in_words)?, own.as_deref(), of_files)
}

/// Reports on the audit of each answer. `own` is the answer in the files, if there is one.
fn judge(
    args: &AuditArgs,
    provider: &Provider,
    trusted: &Trusted,
    audited: AuditResult,
    own: Option<&[LocatedLog]>,
    (mut kept, of_files): Fed,
) -> anyhow::Result<Report> {
    let AuditResult { answers, reports, open: missing, fetched, .. } = audited;
    let mut warnings = warnings(args, provider, &answers, trusted);
    warnings.extend(trusted.warnings());
    warnings.extend(of_files);
    kept.extend(fetched.kept);
    warnings.extend(fetched.warnings.iter().map(words_of));
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
    let (logs, questions): (Vec<_>, Vec<_>) = match own {
        Some(logs) => vec![(logs, answers.question(answers.tip.node))],
        None => answers
            .logs
            .iter()
            .enumerate()
            .map(|(node, logs)| (&logs[..], answers.question(node)))
            .collect(),
    }
    .into_iter()
    .unzip();
    write_wanted(args, &missing)?;
    let certified = certified(&reports);
    let hosts: Vec<String> =
        provider.nodes().iter().map(|node| node.endpoint().to_string()).collect();
    let mut shown = Vec::new();
    for (index, (report, question)) in reports.iter().zip(&questions).enumerate() {
        let logs = logs[index];
        let mut warnings = Vec::new();
        let mut certificate = None;
        if index == certified {
            let evidence = (answers.fetched.rlp.as_deref().unwrap_or_default(), &kept[..]);
            certificate = issue(args, question, (report, logs), evidence, &mut warnings)?;
        }
        shown.push(Shown {
            report,
            question,
            logs,
            wanted: &missing,
            certificate,
            warnings,
            provider: Some(Answered {
                letter: own.is_none().then_some(LETTERS[index]),
                host: &hosts[index],
                own_anchor: answers.tip.trust == Trust::NoAnchor,
            }),
        });
    }
    let compared = match logs.as_slice() {
        [first, second] => Some(Difference::new(first, second)),
        _ => None,
    };
    let of = (&hosts[..], &fetched.from[..]);
    Ok(outcome(args, &answers, of, trusted, &warnings, compared.as_ref(), shown))
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
    warnings.extend(words_of_all(&args.query, &answers.warnings));
    // A light client is one of a known chain.
    let is_chain_known = args.trust.names_chain() || trusted.finalized().is_some();
    if answers.tip.trust != Trust::NoAnchor && !is_chain_known {
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
    if tip.trust == Trust::NoAnchor {
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
        let undecided = if tip.trust == Trust::NoAnchor {
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
    let chain_of_user = args.trust.names_chain();
    json["chain_from"] = json!(if chain_of_user { "user" } else { "provider" });
    let tip = &answers.tip;
    json["anchor"] = json!((tip.trust != Trust::AnchorNotOnChain).then_some(tip.block));
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
