//! The command `run`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use chainsieve_conformance::{
    Baseline, Change, Counts, FindingKind, Judgement, Limits, Outcome, Pack, Process,
    Report as RunReport, RpcNode, RunError, SelectError, Selection, Subject, SubjectRun, shortened,
};
use chainsieve_provider::Endpoint;
use chainsieve_report::calendar::Utc;
use chainsieve_report::{
    Exit, Page, Progress, Report, UsageError, count, grouped, named, plain_or_quoted,
    printable_json, replace, write,
};
use serde_json::{Value, json};

use crate::args::RunArgs;
use crate::node::stop_on_signals;

const KINDS: [&str; 4] = ["findings", "outcome", "text", "smallest input"];
/// Number of characters of an error's text that the table of kinds shows.
const SHOWN_TEXT: usize = 60;
/// Number of findings, or of a subject's areas, that are listed.
const LISTED: usize = 10;

/// Maximum size in bytes of a baseline. A finding takes about 150 bytes.
const MAX_BASELINE: u64 = 64 << 20;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Report> {
    let pack = super::pack(args.pack.pack.as_deref())?;
    let selection = selection(&pack, args).context(UsageError("nothing to ask"))?;
    let inputs = super::inputs(&pack, &args.pack)?;
    let mut baseline =
        args.baseline.as_deref().map(|path| known(path, args.write_baseline)).transpose()?;
    if let Some(folder) = &args.report {
        // A run can take hours, so a folder that cannot be written is found before it.
        fs::create_dir_all(folder).with_context(|| format!("cannot write {}", named(folder)))?;
    }
    let mut limits = Limits::default();
    limits.answer = args.time_limit;
    let process = |command: &String| -> (String, Option<Endpoint>, Box<dyn Subject>) {
        (command.clone(), None, Box::new(Process::with_limits(command, limits)))
    };
    // A URL may contain a key, so it is not shown whole.
    let endpoints = args.rpc.iter().map(|url| Endpoint::new(url));
    let endpoints: Vec<Endpoint> = endpoints
        .collect::<Result<_, _>>()
        .map_err(|error| anyhow!(error).context(UsageError("--rpc is not a URL of a node")))?;
    let node =
        |(url, endpoint): (&String, Endpoint)| -> (String, Option<Endpoint>, Box<dyn Subject>) {
            (endpoint.to_string(), Some(endpoint), Box::new(RpcNode::new(url, limits.answer)))
        };
    let nodes = args.rpc.iter().zip(endpoints).map(node);
    let subjects = args.subject.iter().map(process).chain(nodes);
    let stop = stop_on_signals()?;
    let mut runs = Vec::new();
    let mut not_started = Vec::new();
    for (command, endpoint, mut subject) in subjects {
        let said = |error: String| endpoint.as_ref().map_or(error.clone(), |it| it.scrub(&error));
        let mut progress: Option<Progress> = None;
        let mut observe = |at: chainsieve_conformance::Progress<'_>| {
            let progress =
                progress.get_or_insert_with(|| Progress::counting(at.total as u64, "cases"));
            progress.at(at.answered as u64);
            if stop.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match chainsieve_conformance::run(&inputs, &selection, &mut *subject, &mut observe) {
            Ok(run) => runs.push(run),
            Err(RunError::Start(error)) => not_started.push((command, said(error.to_string()))),
            Err(error) => return Err(anyhow!(said(error.to_string())).context(command)),
        }
    }
    if let (true, Some((command, error))) = (runs.is_empty(), not_started.first()) {
        bail!("{command}: the subject {error}");
    }
    // What fails from here on is printed beside the results, which took long to get.
    let mut failures = Vec::new();
    let mut judgement = None;
    if let Some((path, baseline)) = &mut baseline {
        if let Some(name) = repeated_name(&runs) {
            failures.push(format!(
                "several subjects have the name {}, which a baseline cannot tell apart",
                plain_or_quoted(name)
            ));
        } else if args.write_baseline {
            // Findings that have just been recorded are known.
            baseline.update(&runs);
            failures.extend(failure(replace(path, baseline.to_json().as_bytes())));
        } else {
            judgement = Some(baseline.judge(&runs));
        }
    }
    let not_in_pack = baseline.map(|(_, baseline)| baseline.not_in(&pack)).unwrap_or_default();
    let report = RunReport::new(&pack, args.profile.clone(), runs).with_date(Utc::now().date());
    if let Some(folder) = &args.report {
        failures.extend(failure(save(folder, &report)));
    }
    let exit = match exit(&report, judgement.as_ref(), &not_started, args.write_baseline) {
        _ if !failures.is_empty() => Exit::Failed,
        exit => exit,
    };
    let mut json = report.to_json();
    json["not_started"] = not_started
        .iter()
        .map(|(subject, error)| json!({ "subject": subject, "error": error }))
        .collect();
    json["baseline"] =
        judgement.as_ref().map_or(Value::Null, |it| judgement_json(it, &not_in_pack));
    json["failures"] = json!(failures);
    let mut page = page(&report, judgement.as_ref(), &not_started);
    if let Some(first) = not_in_pack.first() {
        let number = count(not_in_pack.len(), "finding");
        page.warnings(&[format!("{number} of the baseline of no case of the pack: {first}")]);
    }
    page.warnings(&failures);
    Ok(Report::new(page, json, exit))
}

/// Returns the name that several subjects have.
fn repeated_name(runs: &[SubjectRun]) -> Option<&str> {
    let mut names = BTreeSet::new();
    let mut subjects = runs.iter().map(|run| run.subject.name.as_str());
    subjects.find(|&name| !names.insert(name))
}

/// Returns the text of an error.
fn failure(result: anyhow::Result<()>) -> Option<String> {
    result.err().map(|error| format!("{error:#}"))
}

fn selection<'p>(pack: &'p Pack, args: &RunArgs) -> Result<Selection<'p>, SelectError> {
    let selection = Selection::all(pack).with_areas(&args.area)?.with_ids(&args.id)?;
    match &args.profile {
        Some(profile) => selection.with_profile(profile),
        None => Ok(selection),
    }
}

/// Reads a baseline. A file that will be written may be missing.
fn known(path: &Path, will_be_written: bool) -> anyhow::Result<(&Path, Baseline)> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && will_be_written => {
            return Ok((path, Baseline::default()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let hint = "no such file; --write-baseline makes it";
            return Err(anyhow!(error).context(format!("{}: {hint}", named(path))));
        }
        file => file.with_context(|| named(path))?,
    };
    let mut text = String::new();
    // A device may have no end. What is cut off is no JSON.
    file.take(MAX_BASELINE).read_to_string(&mut text).with_context(|| named(path))?;
    Ok((path, Baseline::parse(&text).with_context(|| named(path))?))
}

/// Writes the report in every form.
fn save(folder: &Path, report: &RunReport) -> anyhow::Result<()> {
    let json = format!("{:#}\n", report.to_json());
    let forms = [("report.json", json), ("junit.xml", report.to_junit())];
    for (name, text) in forms {
        write(&folder.join(name), text.as_bytes(), true)?;
    }
    Ok(())
}

fn exit(
    report: &RunReport,
    judgement: Option<&Judgement>,
    not_started: &[(String, String)],
    is_recorded: bool,
) -> Exit {
    let is_complete = |run: &SubjectRun| {
        run.faults.is_empty() && run.areas.iter().all(|area| area.gave_up.is_none())
    };
    let is_clean = match judgement {
        Some(judgement) => {
            judgement.regressions.is_empty() && report.runs().iter().all(is_complete)
        }
        None if is_recorded => report.runs().iter().all(is_complete),
        None => report.runs().iter().all(SubjectRun::is_clean),
    };
    if !not_started.is_empty() {
        return Exit::Failed;
    }
    if !is_clean {
        return Exit::Wrong;
    }
    // A subject that was asked nothing has shown nothing.
    if report.runs().iter().any(|run| run.counts().run > 0) { Exit::Yes } else { Exit::Undecided }
}

fn page(
    report: &RunReport,
    judgement: Option<&Judgement>,
    not_started: &[(String, String)],
) -> Page {
    let mut page = Page::default();
    let mut warnings = Vec::new();
    let new: Option<BTreeSet<(&str, &str)>> = judgement.map(|judgement| {
        let changes = judgement.regressions.iter();
        changes.map(|change| (change.subject.as_str(), change.id.as_str())).collect()
    });
    for run in report.runs() {
        let name = run.subject.name.as_str();
        let [shown_name, version] =
            [&run.subject.name, &run.subject.version].map(|text| plain_or_quoted(text));
        let who = format!("{shown_name} {version}");
        let mut rows: Vec<_> =
            run.areas.iter().map(|area| row(&area.name, area.counts())).collect();
        if rows.is_empty() {
            let areas = shown_list(&run.subject.areas);
            page.line(format!("{who}: none of these areas; the subject has {areas}"));
        } else {
            page.heading(who);
            if rows.len() > 1 {
                rows.push(row("all", run.counts()));
            }
            let header = vec!["area", "run", "agree", "differ", "skipped", "error", "not run"];
            page.table(header, rows);
        }
        let mut not_run = Vec::new();
        for area in &run.areas {
            let kinds = area.kinds();
            if kinds.len() > 1 && judgement.is_none() {
                page.table(KINDS.to_vec(), kinds.iter().map(kind_row).collect());
            }
            // The smallest input shows the difference best. Known findings are not shown.
            let is_new = |id: &str| new.as_ref().is_none_or(|new| new.contains(&(name, id)));
            if let Some((case, detail)) = area.findings().find(|(case, _)| is_new(&case.id)) {
                let got = case.outcome.got().unwrap_or_default();
                page.fields(vec![
                    ("case", format!("{}: {}", case.id, detail.comment)),
                    ("input", printable_json(shortened(&detail.input).to_string())),
                    ("expected", printable_json(shortened(&detail.expected).to_string())),
                    ("got", printable_json(shortened(&got).to_string())),
                ]);
            }
            if let Some(why) = &area.gave_up {
                warnings.push(format!("{}: {why}", area.name));
            }
            not_run.extend(area.cases.iter().filter_map(|case| match &case.outcome {
                Outcome::NotRun(why) if area.gave_up.is_none() => Some((&case.id, why)),
                _ => None,
            }));
        }
        if let Some((id, why)) = not_run.first() {
            warnings.push(format!("{} not run, such as {id}: {why}", count(not_run.len(), "case")));
        }
        for fault in &run.faults {
            warnings.push(fault.clone());
        }
        for area in &run.unknown_areas {
            warnings.push(format!("the pack has no area {}", plain_or_quoted(area)));
        }
    }
    if let Some(judgement) = judgement {
        page.line(format!("{} as in the baseline", count(judgement.known, "finding")));
        for (what, changes) in
            [("not in the baseline", &judgement.regressions), ("fixed", &judgement.fixed)]
        {
            if !changes.is_empty() {
                page.line(format!("{} {what}:", count(changes.len(), "finding")));
            }
            for change in changes.iter().take(LISTED) {
                let before = change.before.as_deref().filter(|before| *before != change.now);
                let before = before.map_or_else(String::new, |before| format!(", was {before}"));
                let subject = plain_or_quoted(&change.subject);
                page.line(format!("  {subject} {}: {}{before}", change.id, change.now));
            }
            if changes.len() > LISTED {
                page.line(format!("  and {} more: --json lists all", changes.len() - LISTED));
            }
        }
    }
    for (subject, error) in not_started {
        warnings.push(format!("{subject}: the subject {error}"));
    }
    page.warnings(&warnings);
    page
}

fn kind_row(kind: &FindingKind<'_>) -> Vec<String> {
    let text: String = kind.text.unwrap_or_default().chars().take(SHOWN_TEXT).collect();
    let text = plain_or_quoted(&text).into_owned();
    vec![grouped(kind.number), kind.outcome.into(), text, kind.smallest.to_owned()]
}

/// Returns the first items of a list, as text.
fn shown_list(items: &[String]) -> String {
    let more = if items.len() > LISTED { ", …" } else { "" };
    let items = items.iter().take(LISTED).map(|item| plain_or_quoted(item));
    format!("{}{more}", items.collect::<Vec<_>>().join(", "))
}

fn row(name: &str, counts: Counts) -> Vec<String> {
    let Counts { run, agree, differ, skipped, error, not_run, .. } = counts;
    let number = |number: usize| if number == 0 { "–".into() } else { grouped(number) };
    let numbers = [run, agree, differ, skipped, error, not_run].map(number);
    [name.to_owned()].into_iter().chain(numbers).collect()
}

fn judgement_json(judgement: &Judgement, not_in_pack: &[String]) -> Value {
    let change = |change: &Change| json!({ "subject": change.subject, "id": change.id, "before": change.before, "now": change.now });
    json!({
        "regressions": judgement.regressions.iter().map(change).collect::<Vec<_>>(),
        "fixed": judgement.fixed.iter().map(change).collect::<Vec<_>>(),
        "known": judgement.known,
        "not_in_pack": not_in_pack,
    })
}
