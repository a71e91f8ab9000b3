//! A subject that is a program, asked over its standard input and output.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::incoming::{answer, integer, object};
use super::running::{Culprit, Fault, Running};
use super::{GaveUp, Introduction, Question, StartError, Subject};
use crate::answer::{Answer, Failure};

/// The version of the protocol.
const PROTOCOL: u64 = 1;
/// Maximum number of consecutive attempts to start the process again. Each of them may take as long
/// as [`Limits::start`], so more of them would take hours.
const RESTARTS: u32 = 3;
/// Maximum number of faults without a case that are reported.
pub(super) const FINDINGS: usize = 20;

/// Limits on a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum time without an answer while a question is open. The default is 5 s.
    pub answer: Duration,
    /// Maximum time until the introduction; nodes and virtual machines start slowly. The default is
    /// 60 s.
    pub start: Duration,
    /// Maximum length of a line in bytes. The default is 16 MiB.
    pub line: usize,
    /// Maximum number of open questions. The default is 16.
    pub window: usize,
    /// Maximum number of failures in a row, without an answer between them. The default is 20.
    pub failures: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(5),
            start: Duration::from_secs(60),
            line: 16 << 20,
            window: 16,
            failures: 20,
        }
    }
}

/// A subject that is a program, run by the shell.
///
/// If a fault happens while several questions are open, nobody can tell which question caused it.
/// The process is then started anew, and these questions are asked one at a time.
#[derive(Debug)]
pub struct Process {
    command: String,
    limits: Limits,
    running: Option<Running>,
    /// The first introduction.
    introduced: Option<Introduction>,
    /// Consecutive attempts to start the process again that failed.
    failed_restarts: u32,
    /// Why no further question of any area is asked.
    gone: Option<GaveUp>,
    next_seq: u64,
    /// Consecutive failures without an answer.
    failures: u32,
    /// Number of calls of `ask_all`: an answer given in an earlier call belongs to no case of this
    /// one.
    call: u64,
    findings: Vec<String>,
}

/// A question that is open.
#[derive(Debug)]
struct Open {
    question: Question,
    asked: Instant,
}

impl Process {
    /// Returns a subject that the shell starts with this command.
    pub fn new(command: impl Into<String>) -> Self {
        Self::with_limits(command, Limits::default())
    }

    /// Returns a subject with limits other than the default.
    pub fn with_limits(command: impl Into<String>, limits: Limits) -> Self {
        Self {
            command: command.into(),
            limits,
            running: None,
            introduced: None,
            failed_restarts: 0,
            gone: None,
            next_seq: 1,
            failures: 0,
            call: 0,
            findings: Vec::new(),
        }
    }

    /// Starts the process, and returns its introduction.
    fn launch(&mut self) -> Result<Introduction, StartError> {
        self.running = None;
        let mut running = Running::spawn(&self.command, &self.limits)
            .map_err(|error| StartError::Spawn(error.to_string()))?;
        let start = json!({ "cmd": "start", "version": PROTOCOL });
        running.send(&start)?;
        let line = running.receive(self.limits.start)?;
        let introduction = introduction(object(&line).map_err(Failure::from)?)?;
        self.running = Some(running);
        Ok(introduction)
    }

    /// Returns the running process; starts it if the last one failed.
    fn running(&mut self) -> Result<&mut Running, Failure> {
        if self.running.is_none() {
            self.failed_restarts += 1;
            self.restart()?;
            self.failed_restarts = 0;
        }
        Ok(self.running.as_mut().expect("it was started"))
    }

    /// Starts the process again.
    fn restart(&mut self) -> Result<(), Failure> {
        let again = self.launch().map_err(|error| match error {
            StartError::NoIntroduction(failure) => failure,
            other => Failure::NotRestarted(other.to_string()),
        })?;
        // The answers of two implementations must not be taken for those of one.
        if self.introduced.as_ref().is_some_and(|first| !first.is_same(&again)) {
            self.running = None;
            let reason = "it introduces itself otherwise than at first";
            return Err(Failure::NotRestarted(reason.into()));
        }
        Ok(())
    }

    /// Sends a question.
    fn send(&mut self, area: &str, question: &Question) -> Result<u64, Failure> {
        let seq = self.next_seq;
        self.next_seq += 1;
        let (_, input) = question;
        let line = json!({ "cmd": "run", "seq": seq, "area": area, "input": input });
        self.running()?.send(&line)?;
        Ok(seq)
    }

    /// Waits for an answer to one of the open questions.
    fn receive(&mut self, open: &mut BTreeMap<u64, Open>) -> Result<(Open, Answer), Fault> {
        let (limit, call) = (self.limits.answer, self.call);
        let running = self.running()?;
        let line = running.receive(limit)?;
        let (seq, given) = answer(&line)?;
        let Some(asked) = open.remove(&seq) else {
            return Err(running.stray(seq, call));
        };
        running.answered.insert(seq, (call, asked.question.0));
        Ok((asked, given.unwrap_or_else(|violation| Answer::Failed(violation.into()))))
    }

    fn found(&mut self, finding: String) {
        if self.findings.len() < FINDINGS && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }
}

impl Subject for Process {
    fn start(&mut self) -> Result<Introduction, StartError> {
        self.failed_restarts = 0;
        self.gone = None;
        let introduction = self.launch()?;
        self.introduced = Some(introduction.clone());
        Ok(introduction)
    }

    fn answer_limit(&self) -> Duration {
        self.limits.answer
    }

    fn ask(&mut self, area: &str, input: &Value) -> Answer {
        let mut last = None;
        let mut questions = std::iter::once((0, input.clone()));
        let asked = self.ask_all(area, &mut questions, &mut |_, answer, _| last = Some(answer));
        let gave_up = |gave_up: GaveUp| Answer::Error(gave_up.to_string());
        last.or_else(|| asked.err().map(gave_up)).expect("each question is answered")
    }

    fn ask_all(
        &mut self,
        area: &str,
        questions: &mut dyn Iterator<Item = Question>,
        answered: &mut dyn FnMut(usize, Answer, Duration),
    ) -> Result<(), GaveUp> {
        if let Some(gave_up) = &self.gone {
            return Err(gave_up.clone());
        }
        self.call += 1;
        let mut open = BTreeMap::<u64, Open>::new();
        // Questions that were open at a fault, which are asked one at a time.
        let mut again = VecDeque::<Question>::new();
        let mut is_alone = false;
        // A fault whose cause is searched among the questions of `again`.
        let mut suspicion = None;
        // The start of the current wait: an answer takes no longer than since the last one.
        let mut since = Instant::now();
        loop {
            let asked = loop {
                if open.is_empty() && again.is_empty() {
                    is_alone = false;
                    if let Some(failure) = suspicion.take() {
                        self.found(format!("{failure}, but not when each case was asked alone"));
                    }
                }
                let window = if is_alone { 1 } else { self.limits.window };
                if open.len() >= window {
                    break Ok(());
                }
                let Some(question) = again.pop_front().or_else(|| questions.next()) else {
                    break Ok(());
                };
                match self.send(area, &question) {
                    Ok(seq) => drop(open.insert(seq, Open { question, asked: Instant::now() })),
                    Err(failure) => {
                        // The question was not asked, so it is no cause.
                        again.push_front(question);
                        break Err(failure);
                    }
                }
            };
            let received = match asked {
                Ok(()) if open.is_empty() => return Ok(()),
                Ok(()) => self.receive(&mut open),
                Err(failure) => Err(failure.into()),
            };
            match received {
                Ok((asked, answer)) => {
                    self.failures = 0;
                    answered(asked.question.0, answer, asked.asked.max(since).elapsed());
                }
                Err(Fault { failure, culprit }) => {
                    self.running = None;
                    self.failures += 1;
                    match culprit {
                        Culprit::Question(number) => {
                            answered(number, Answer::Failed(failure.clone()), Duration::ZERO);
                        }
                        Culprit::Earlier => self.found(failure.to_string()),
                        Culprit::Unknown if open.len() == 1 => {
                            let (_, asked) = open.pop_first().expect("one is open");
                            let time = asked.asked.max(since).elapsed();
                            answered(asked.question.0, Answer::Failed(failure.clone()), time);
                            suspicion = None;
                        }
                        Culprit::Unknown if open.is_empty() => {}
                        Culprit::Unknown => suspicion = Some(failure.clone()),
                    }
                    is_alone = true;
                    // In the order in which they were asked, and before those that wait already.
                    while let Some((_, asked)) = open.pop_last() {
                        again.push_front(asked.question);
                    }
                    let is_gone = self.failed_restarts >= RESTARTS;
                    if self.failures >= self.limits.failures || is_gone {
                        let failures = std::mem::take(&mut self.failures);
                        let gave_up = GaveUp { failures, last: failure.to_string() };
                        self.gone = is_gone.then(|| gave_up.clone());
                        return Err(gave_up);
                    }
                }
            }
            since = Instant::now();
        }
    }

    fn stop(&mut self) -> Vec<String> {
        if let Some(mut running) = self.running.take() {
            for fault in running.stop(self.limits.answer) {
                self.found(fault);
            }
        }
        std::mem::take(&mut self.findings)
    }
}

/// Reads the answer to `start`.
fn introduction(object: Map<String, Value>) -> Result<Introduction, StartError> {
    let object = Value::Object(object);
    let version = &object["version"];
    if integer(version) != Some(PROTOCOL) {
        return Err(StartError::Version(version.to_string()));
    }
    let implementation = &object["implementation"];
    let text = |name: &str| {
        let text = implementation[name].as_str().filter(|text| !text.is_empty());
        let missing = || StartError::Malformed(format!("no text implementation.{name}"));
        text.map(str::to_owned).ok_or_else(missing)
    };
    let areas = object["areas"].as_array().and_then(|areas| {
        areas.iter().map(|area| area.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    Ok(Introduction {
        name: text("name")?,
        version: text("version")?,
        language: text("language")?,
        areas: areas.ok_or_else(|| StartError::Malformed("areas is no list of names".into()))?,
        rpc: match &object["rpc"] {
            Value::Null => None,
            Value::String(url) => Some(url.clone()),
            _ => return Err(StartError::Malformed("rpc is no text".into())),
        },
    })
}
