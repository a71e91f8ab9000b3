//! Runs: the cases of a selection, asked of a subject.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;

use crate::answer::{Answer, digest};
use crate::expect::Comparison;
use crate::node::{self, RpcNode};
use crate::pack::{Area, Case, InputError, Inputs, Level};
use crate::select::Selection;
use crate::shorten::shortened;
use crate::subject::{Introduction, StartError, Subject};

/// Maximum length in bytes of an input that a report contains; of a longer one, the report contains
/// the form with references, which `chainsieve-conformance run --show` resolves.
const MAX_SHOWN_INPUT: usize = 16 << 10;

/// Maximum length in bytes of an answer that a run keeps. Of a longer one, it keeps the form that
/// reports show: the answers to all cases could be longer than the memory.
const MAX_KEPT_ANSWER: usize = 64 << 10;
/// Maximum length in characters of the text of a refusal, an error or a reason that a run keeps.
const MAX_KEPT_TEXT: usize = 4000;

/// Why a run cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The subject cannot be run.
    #[error("the subject {0}")]
    Start(#[from] StartError),
    /// A reference of the pack cannot be resolved.
    #[error("case {case}: {error}")]
    Input {
        /// The id of the case.
        case: String,
        /// What is wrong.
        error: InputError,
    },
    /// The caller stopped the run.
    #[error("stopped")]
    Stopped,
}

/// The outcome of a case.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The answer agrees.
    Agrees {
        /// Implementations that give this answer, if the case has several answers.
        by: Vec<String>,
    },
    /// The answer is another value.
    Differs {
        /// The value; one of more than 64 KiB is shortened.
        got: Value,
        /// A JSON pointer to the first expected member that differs.
        at: String,
    },
    /// The subject refused the input, but a value is expected.
    Refused(String),
    /// The subject answered with this value, but a refusal is expected. A value of more than 64 KiB
    /// is shortened.
    Accepted(Value),
    /// The subject has no such call; the reason.
    Skipped(String),
    /// The implementation crashed, or the subject gave no usable answer.
    Error(String),
    /// The case was not asked; the reason.
    NotRun(String),
}

impl Outcome {
    /// Returns `true` if the outcome is a finding: a wrong answer or an error.
    pub fn is_finding(&self) -> bool {
        self.differs() || matches!(self, Self::Error(_))
    }

    /// Returns `true` if the subject answered, and the answer is wrong.
    pub fn differs(&self) -> bool {
        matches!(self, Self::Differs { .. } | Self::Refused(_) | Self::Accepted(_))
    }

    /// Returns the word for the outcome.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Agrees { .. } => "agrees",
            Self::Differs { .. } => "differs",
            Self::Refused(_) => "refused",
            Self::Accepted(_) => "accepted",
            Self::Skipped(_) => "skipped",
            Self::Error(_) => "error",
            Self::NotRun(_) => "not run",
        }
    }

    /// Returns what the subject answered, as the protocol has it; `None` if it agrees or was not
    /// asked.
    pub fn got(&self) -> Option<Value> {
        match self {
            Self::Differs { got, .. } | Self::Accepted(got) => Some(json!({ "value": got })),
            Self::Refused(text) => Some(json!({ "invalid": text })),
            Self::Skipped(why) => Some(json!({ "skipped": why })),
            Self::Error(text) => Some(json!({ "error": text })),
            Self::Agrees { .. } | Self::NotRun(_) => None,
        }
    }
}

/// What a reader needs to repeat a finding.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Detail {
    /// What the case shows.
    pub comment: String,
    /// The source of the expectation.
    pub source: String,
    /// What the expectation rests on.
    pub level: Level,
    /// Flags of the case.
    pub flags: Vec<String>,
    /// The input; a long one with its references.
    pub input: Value,
    /// The expectation, as the vector file has it.
    pub expected: Value,
}

/// A case of a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CaseRun {
    /// The id of the case.
    pub id: String,
    /// The outcome.
    pub outcome: Outcome,
    /// Time until the answer. While several questions are open, the time since the last answer.
    pub time: Duration,
    /// Length of the input as JSON, in bytes; 0 if the case was not asked.
    pub input_bytes: usize,
    /// The digest of the whole value, if the answer is a wrong value.
    pub(crate) sha256: Option<String>,
    /// What a reader needs, if the outcome is a finding.
    pub detail: Option<Detail>,
}

/// An area of a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AreaRun {
    /// The name of the area.
    pub name: String,
    /// The title of the area.
    pub title: String,
    /// The cases: findings first, the smallest input before others, and then the rest in the order
    /// of the pack.
    pub cases: Vec<CaseRun>,
    /// Why not all cases were asked.
    pub gave_up: Option<String>,
}

/// The numbers of cases of an area, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Cases that the subject answered or failed to answer: the sum of the next three.
    pub run: usize,
    /// Answers that agree.
    pub agree: usize,
    /// Wrong answers.
    pub differ: usize,
    /// Crashes and missing answers.
    pub error: usize,
    /// Cases that the subject has no call for.
    pub skipped: usize,
    /// Cases that were not asked.
    pub not_run: usize,
}

impl AreaRun {
    /// Counts the outcomes.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for case in &self.cases {
            let count = match &case.outcome {
                Outcome::Agrees { .. } => &mut counts.agree,
                Outcome::Error(_) => &mut counts.error,
                Outcome::Skipped(_) => &mut counts.skipped,
                Outcome::NotRun(_) => &mut counts.not_run,
                outcome if outcome.differs() => &mut counts.differ,
                _ => continue,
            };
            *count += 1;
        }
        counts.run = counts.agree + counts.differ + counts.error;
        counts
    }

    /// Returns the findings with their details, the smallest input first.
    pub fn findings(&self) -> impl Iterator<Item = (&CaseRun, &Detail)> {
        self.cases.iter().filter_map(|case| Some((case, case.detail.as_ref()?)))
    }
}

/// The run of a subject.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SubjectRun {
    /// Who the subject is.
    pub subject: Introduction,
    /// The areas that the subject supports and the selection contains, in the order of the pack.
    pub areas: Vec<AreaRun>,
    /// Faults of the subject that belong to no case.
    pub faults: Vec<String>,
    /// Areas that the subject supports, but the pack does not have.
    pub unknown_areas: Vec<String>,
}

impl SubjectRun {
    /// Returns `true` if no case is a finding, no fault happened, and every area was asked to its
    /// end.
    pub fn is_clean(&self) -> bool {
        let is_clean = |area: &AreaRun| area.gave_up.is_none() && area.findings().next().is_none();
        self.faults.is_empty() && self.areas.iter().all(is_clean)
    }

    /// Counts the outcomes of all areas.
    pub fn counts(&self) -> Counts {
        self.areas.iter().map(AreaRun::counts).fold(Counts::default(), |a, b| Counts {
            run: a.run + b.run,
            agree: a.agree + b.agree,
            differ: a.differ + b.differ,
            error: a.error + b.error,
            skipped: a.skipped + b.skipped,
            not_run: a.not_run + b.not_run,
        })
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// The area.
    pub area: &'a str,
    /// Answers so far, in all areas.
    pub answered: usize,
    /// Cases of the selection in the areas of the subject.
    pub total: usize,
}

/// Asks a subject the cases of a selection. `observe` is called after each answer, and can stop the
/// run.
///
/// # Errors
/// If the subject cannot be started, if a reference of the pack cannot be resolved, or if `observe`
/// stops the run. Whatever goes wrong later is an outcome.
pub fn run(
    inputs: &Inputs<'_>,
    selection: &Selection<'_>,
    subject: &mut dyn Subject,
    observe: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<SubjectRun, RunError> {
    let introduction = subject.start()?;
    introduction.check()?;
    let pack = inputs.pack();
    let is_supported = |name: &str| introduction.areas.iter().any(|area| area == name);
    let supported = pack.areas().iter().filter(|area| is_supported(&area.name));
    let chosen: Vec<(&Area, Vec<&Case>)> = supported
        .map(|area| (area, selection.cases(area).collect::<Vec<_>>()))
        .filter(|(_, cases)| !cases.is_empty())
        .collect();
    let total = chosen.iter().map(|(_, cases)| cases.len()).sum();
    let mut node = introduction.rpc.as_deref().map(|url| RpcNode::new(url, subject.answer_limit()));
    let mut answered = 0;
    let mut areas = Vec::new();
    for (area, cases) in chosen {
        let asked: &mut dyn Subject = match &mut node {
            Some(node) if area.name == node::AREA => node,
            _ => subject,
        };
        let mut observe = || {
            answered += 1;
            observe(Progress { area: &area.name, answered, total })
        };
        areas.push(run_area(inputs, selection.by(), area, &cases, asked, &mut observe)?);
    }
    let is_unknown = |name: &&String| !pack.areas().iter().any(|area| area.name == **name);
    let unknown_areas = introduction.areas.iter().filter(is_unknown).cloned().collect();
    let faults = subject.stop();
    Ok(SubjectRun { subject: introduction, areas, faults, unknown_areas })
}

fn run_area(
    inputs: &Inputs<'_>,
    by: Option<&str>,
    area: &Area,
    cases: &[&Case],
    subject: &mut dyn Subject,
    observe: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<AreaRun, RunError> {
    let mut lengths = vec![0; cases.len()];
    let mut outcomes: Vec<Option<(Kept, Duration)>> = vec![None; cases.len()];
    let mut without_input = Vec::new();
    let mut broken = None;
    // A `Cell`, because one closure stops and the other one has to see it.
    let is_stopped = std::cell::Cell::new(false);
    let questions = cases.iter().enumerate().map_while(|(number, case)| {
        if is_stopped.get() {
            return None;
        }
        match inputs.of(case) {
            Ok(input) => {
                lengths[number] = input.to_string().len();
                Some(Some((number, input)))
            }
            Err(error @ (InputError::NoCorpus | InputError::Corpus { .. })) => {
                without_input.push((number, error.to_string()));
                Some(None)
            }
            Err(error) => {
                broken = Some(RunError::Input { case: case.id.clone(), error });
                None
            }
        }
    });
    let mut questions = questions.flatten();
    let mut answered = |number: usize, answer: Answer, time| {
        outcomes[number] = Some((Kept::of(outcome(cases[number], answer, by)), time));
        if observe().is_break() {
            is_stopped.set(true);
        }
    };
    let asked = subject.ask_all(&area.name, &mut questions, &mut answered);
    if is_stopped.get() {
        return Err(RunError::Stopped);
    }
    if let Some(error) = broken {
        return Err(error);
    }
    for (number, why) in without_input {
        outcomes[number] = Some((Kept::of(Outcome::NotRun(why)), Duration::ZERO));
    }
    let gave_up = asked.err().map(|gave_up| kept(gave_up.to_string()));
    let mut runs = Vec::new();
    for ((case, outcome), input_bytes) in cases.iter().zip(outcomes).zip(lengths) {
        let given_up = || Kept::of(Outcome::NotRun("the area was given up".into()));
        let (Kept { outcome, sha256 }, time) =
            outcome.unwrap_or_else(|| (given_up(), Duration::ZERO));
        let is_finding = outcome.is_finding();
        let detail = is_finding.then(|| detail(inputs, case, input_bytes));
        runs.push(CaseRun { id: case.id.clone(), outcome, time, input_bytes, sha256, detail });
    }
    // The sort is stable: other cases stay in the order of the pack.
    runs.sort_by_key(|case| match case.detail {
        Some(_) => (0, case.input_bytes),
        None => (1, 0),
    });
    Ok(AreaRun { name: area.name.clone(), title: area.title.clone(), cases: runs, gave_up })
}

fn outcome(case: &Case, answer: Answer, by: Option<&str>) -> Outcome {
    match (case.expect.compare(&answer, by), answer) {
        (Some(Comparison::Agrees { by }), _) => Outcome::Agrees { by },
        (Some(Comparison::Differs { at }), Answer::Value(got)) => Outcome::Differs { got, at },
        (Some(Comparison::Accepted), Answer::Value(got)) => Outcome::Accepted(got),
        // A refusal differs from every value.
        (_, Answer::Invalid(text)) => Outcome::Refused(text),
        (_, Answer::Skipped(why)) => Outcome::Skipped(why),
        (_, Answer::Error(text)) => Outcome::Error(text),
        (_, Answer::Failed(failure)) => Outcome::Error(failure.to_string()),
        (_, Answer::Value(got)) => Outcome::Differs { got, at: String::new() },
    }
}

/// An outcome as a run keeps it: of bounded length, with the digest of its whole value.
#[derive(Clone)]
struct Kept {
    outcome: Outcome,
    sha256: Option<String>,
}

impl Kept {
    fn of(mut outcome: Outcome) -> Self {
        let mut sha256 = None;
        match &mut outcome {
            Outcome::Differs { got, .. } | Outcome::Accepted(got) => {
                sha256 = Some(digest(got));
                if got.to_string().len() > MAX_KEPT_ANSWER {
                    *got = shortened(got);
                }
            }
            Outcome::Refused(text)
            | Outcome::Skipped(text)
            | Outcome::Error(text)
            | Outcome::NotRun(text) => *text = kept(std::mem::take(text)),
            Outcome::Agrees { .. } => {}
        }
        Self { outcome, sha256 }
    }
}

/// Returns a text as a run keeps it.
fn kept(text: String) -> String {
    match text.char_indices().nth(MAX_KEPT_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn detail(inputs: &Inputs<'_>, case: &Case, input_bytes: usize) -> Detail {
    let is_short = input_bytes <= MAX_SHOWN_INPUT;
    let input = inputs.of(case).ok().filter(|_| is_short);
    Detail {
        comment: case.comment.clone(),
        source: case.source.clone(),
        level: case.level,
        flags: case.flags.clone(),
        input: input.unwrap_or_else(|| case.written_input()),
        expected: case.expect.json(),
    }
}
