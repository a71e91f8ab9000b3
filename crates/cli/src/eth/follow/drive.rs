//! What a follower wants, asked of a provider; what it gives out, printed and stored.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::chain_profile::ReceiptsScope;
use chainsieve::eth::follow::{
    Action, Answer, Event, Failure, Fault, Follower, Note, Question, QuestionId, Started, Update,
};
use chainsieve::eth::header::BlockRef;

use super::indexed::Indexed;
use super::lines;
use super::setup::Setup;
use super::state::StateFile;
use crate::eth::rpc::{Provider, RpcError};
use crate::output::{Lines, print_note};
use crate::progress::Progress;
use crate::stop::Stop;

/// Blocks that have to be linked before a bar is worth it.
const SHOW: u64 = 8192;

/// What was printed.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) blocks: u64,
    pub(super) logs: u64,
    pub(super) removed: u64,
}

pub(super) struct Driver<'a> {
    provider: &'a Provider,
    pub(super) follower: Follower,
    state: Option<StateFile>,
    /// What says which blocks of the past are candidates.
    index: Option<Indexed>,
    stop: Stop,
    json: bool,
    lines: Lines,
    progress: Progress,
    began: Instant,
    pub(super) started: Option<Started>,
    pub(super) counts: Counts,
    pub(super) warnings: Vec<String>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(provider: &'a Provider, setup: Setup, stop: Stop, json: bool) -> Self {
        let Setup { follower, state, index, warnings } = setup;
        Self {
            provider,
            follower,
            state,
            index,
            stop,
            json,
            lines: Lines::default(),
            progress: Progress::hidden(),
            began: Instant::now(),
            started: None,
            counts: Counts::default(),
            warnings,
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn handle(&mut self, event: Event<'_>) -> Vec<Action> {
        self.follower.handle(event, self.now())
    }

    /// Goes on until it is stopped, or everything is printed.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        let mut actions = VecDeque::from(self.handle(Event::Tick));
        let mut is_stopping = false;
        loop {
            if !is_stopping && (self.stop.is_set() || self.lines.is_closed()) {
                is_stopping = true;
                // What was printed is stored; nothing else is begun.
                actions.retain(|action| matches!(action, Action::Store(..) | Action::End(_)));
                actions.extend(self.handle(Event::Stop));
            }
            match actions.pop_front() {
                Some(Action::End(ended)) => return ended.map_err(|fault| self.fault(&fault)),
                Some(action) => match self.act(action) {
                    Ok(more) => actions.extend(more),
                    Err(error) => {
                        self.store_all();
                        return Err(error);
                    }
                },
                None => {
                    let at = self.follower.wake_at().unwrap_or_default();
                    self.progress = Progress::hidden();
                    self.stop.wait_timeout(at.saturating_sub(self.now()));
                    actions.extend(self.handle(Event::Tick));
                }
            }
        }
    }

    /// What was printed is stored, however it ended.
    fn store_all(&mut self) {
        for action in self.handle(Event::Stop) {
            if let (Action::Store(_, cursor), Some(state)) = (action, &self.state) {
                // The error that ends the command says more than a second one.
                let _ = state.write(&cursor);
            }
        }
    }

    fn fault(&self, fault: &Fault) -> anyhow::Error {
        let advice = match fault {
            Fault::Unsound { .. } | Fault::IndexUnsound(_) => {
                ". --assume-bloom says what the filters of a chain are"
            }
            _ => "",
        };
        anyhow!("{}: {fault}{advice}", self.provider.name())
    }

    fn act(&mut self, action: Action) -> anyhow::Result<Vec<Action>> {
        match action {
            Action::Ask(id, question) => self.ask(id, &question),
            Action::Store(id, cursor) => {
                if let Some(state) = &self.state {
                    state.write(&cursor)?;
                }
                Ok(self.handle(Event::Stored(id)))
            }
            Action::Update(id, update) => {
                self.print(update)?;
                // A reader who has gone has perhaps not read all of it.
                let is_read = !self.lines.is_closed();
                Ok(if is_read { self.handle(Event::Acknowledged(id)) } else { Vec::new() })
            }
            Action::Note(note) => {
                match note {
                    Note::AnchorNotCompared(_) => self.warnings.push(lines::of_note(&note)),
                    _ if self.stop.is_set() => {}
                    note => self.note(&lines::of_note(&note)),
                }
                Ok(Vec::new())
            }
            other => bail!("an unknown action: {other:?}"),
        }
    }

    fn print(&mut self, update: Update) -> anyhow::Result<()> {
        let from = self.started.as_ref().map_or(0, |started| started.from);
        match update {
            Update::Started(started) => self.start(started),
            Update::Anchored(anchor) => self.put(&lines::of_anchor(anchor, self.json)),
            Update::Removed(removed) => {
                self.put(&lines::of_removed(&removed, self.json))?;
                if !self.lines.is_closed() {
                    self.counts.removed += removed.logs.len() as u64;
                }
                Ok(())
            }
            Update::Blocks(blocks) => {
                self.put(&lines::of_blocks(&blocks, from, self.json))?;
                if !self.lines.is_closed() {
                    self.counts.blocks += blocks.blocks as u64;
                    self.counts.logs += blocks.logs.len() as u64;
                }
                let start = self.started.as_ref().map_or(0, |started| started.start);
                self.progress.at(blocks.last.number.saturating_sub(start).saturating_add(1));
                Ok(())
            }
            other => bail!("an unknown update: {other:?}"),
        }
    }

    fn start(&mut self, started: Started) -> anyhow::Result<()> {
        let config = self.follower.config();
        if config.profile.at(started.from).receipts == ReceiptsScope::NotEveryLog {
            self.warnings.push(format!(
                "nodes of {} may return logs that are in no receipt: those are not found",
                config.profile.name()
            ));
        }
        if self.json {
            let name = self.provider.name();
            let text = lines::of_start(&started, config, &name, &self.warnings);
            self.put(&text)?;
        } else {
            print_note(&format!(
                "{}: {}",
                self.provider.name(),
                lines::note_of_start(&started, config)
            ));
            self.warnings.iter().for_each(|warning| print_note(warning));
        }
        self.started = Some(started);
        Ok(())
    }

    fn put(&mut self, text: &str) -> anyhow::Result<()> {
        let lines = &mut self.lines;
        self.progress.suspend(|| lines.print(text)).context("standard output")
    }

    /// A line on standard error, above the bar.
    fn note(&self, text: &str) {
        let text = format!("{}: {text}", self.provider.name());
        self.progress.suspend(|| print_note(&text));
    }

    /// Asks, and hands the answer over. What it leads to is returned.
    fn ask(&mut self, id: QuestionId, question: &Question) -> anyhow::Result<Vec<Action>> {
        let provider = self.provider;
        let answer = match question {
            Question::Block(tag) => provider.head(*tag).map(Answer::Block),
            Question::Header(hash) => {
                let header = provider.header_by_hash(*hash);
                let header = match &header {
                    Ok(header) => Ok(Answer::Header(header.as_ref())),
                    Err(error) => Err(error.clone()),
                };
                return Ok(self.answer(id, header));
            }
            Question::IndexedBlock(number) => Ok(Answer::Block(self.index()?.block(*number)?)),
            Question::Candidates(numbers) => {
                let (candidates, end) = self.index()?.candidates(numbers.clone())?;
                let hashes: Vec<_> = candidates.iter().map(|block| block.hash).collect();
                let mut headers = Vec::with_capacity(hashes.len());
                let came = provider.headers_of(&hashes, |header| headers.push(header));
                return Ok(match came {
                    Ok(()) => self.answer(id, Ok(Answer::Candidates(&headers, end))),
                    Err(error) => self.failed(id, &error),
                });
            }
            Question::Headers(numbers) => {
                let mut actions = Vec::new();
                let came = provider.headers(numbers.clone(), |headers| {
                    actions.extend(self.answer(id, Ok(Answer::Headers(&headers))));
                    self.go_on(id)
                });
                actions.extend(self.complete(id, &came));
                return Ok(actions);
            }
            Question::Receipts(blocks) => {
                let mut actions = Vec::new();
                let blocks: Vec<_> = blocks.iter().map(|at| (at.number, at.hash)).collect();
                let came = provider.receipts_of(&blocks, |(number, hash), receipts| {
                    let at = BlockRef { number, hash };
                    let receipts = receipts.as_ref().map(Option::as_ref).map_err(failure);
                    actions.extend(self.answer(id, Ok(Answer::Receipts(at, receipts))));
                    self.go_on(id)
                });
                actions.extend(self.complete(id, &came));
                return Ok(actions);
            }
            Question::ReceiptsEachWay(at) => {
                let mut actions = Vec::new();
                provider.receipts_each_way(at.number, at.hash, |method, receipts| {
                    let receipts = receipts.as_ref().map(Option::as_ref).map_err(failure);
                    actions.extend(self.answer(id, Ok(Answer::ReceiptsBy(method, receipts))));
                    self.go_on(id).is_err()
                });
                actions.extend(self.answer(id, Ok(Answer::Complete)));
                return Ok(actions);
            }
        };
        let is_head = matches!(question, Question::Block(_));
        let actions = self.answer(id, answer);
        if is_head {
            self.show_progress();
        }
        Ok(actions)
    }

    fn index(&mut self) -> anyhow::Result<&mut Indexed> {
        self.index.as_mut().context("there is no index")
    }

    fn answer(&mut self, id: QuestionId, answer: Result<Answer<'_>, RpcError>) -> Vec<Action> {
        if self.stop.is_set() {
            return Vec::new();
        }
        let answer = answer.unwrap_or_else(|error| Answer::Failed(failure(&error)));
        self.handle(Event::Answer(id, answer))
    }

    /// No more comes of an answer in parts.
    fn complete(&mut self, id: QuestionId, came: &anyhow::Result<()>) -> Vec<Action> {
        match came {
            Ok(()) => self.answer(id, Ok(Answer::Complete)),
            Err(error) => self.failed(id, error),
        }
    }

    fn failed(&mut self, id: QuestionId, error: &anyhow::Error) -> Vec<Action> {
        let rpc = error.chain().find_map(|cause| cause.downcast_ref::<RpcError>());
        let transient = rpc.is_some_and(|error| error.origin().is_transient());
        let reason = format!("{error:#}");
        if self.stop.is_set() {
            return Vec::new();
        }
        self.handle(Event::Answer(id, Answer::Failed(Failure { transient, reason })))
    }

    /// Whether more of the answer is of use.
    fn go_on(&self, id: QuestionId) -> anyhow::Result<()> {
        if self.stop.is_set() || self.follower.question() != Some(id) {
            bail!("no more of this answer is of use");
        }
        Ok(())
    }

    fn show_progress(&mut self) {
        let (Some(head), Some(started)) = (self.follower.head(), &self.started) else { return };
        let last = head.number.min(started.to.unwrap_or(u64::MAX));
        let left = last.saturating_sub(self.follower.next_number().unwrap_or(last));
        if left > SHOW && !self.progress.is_shown() {
            let all = last.saturating_sub(started.start).saturating_add(1);
            self.progress = Progress::counting(all, "blocks");
        }
    }
}

fn failure(error: &RpcError) -> Failure {
    Failure { transient: error.origin().is_transient(), reason: error.to_string() }
}
