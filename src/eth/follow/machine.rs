//! The follower: what is asked next, what is given out next, and what is stored before and after.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::time::Duration;

use alloy_primitives::B256;
use serde_json::value::RawValue;
use thiserror::Error;

use super::anchors::Anchors;
use super::blocks::Block;
use super::chain::{Batch, Chain, Seen, Want};
use super::cursor::{Cursor, Subject};
use super::pace::Pace;
use super::refused::Refused;
use super::start::{Next, Start};
use super::{
    Action, Answer, AnswerError, Config, Event, Failure, Fault, NextBlocks, Note, Question,
    QuestionId, Removed, Source, Started, StoreId, Update, UpdateId,
};
use crate::eth::header::{BlockRef, HeaderBuf};
use crate::eth::log::LocatedLog;
use crate::eth::log_query::{BlockSelection, BlockTag, LogQuery, Semantics};
use crate::eth::receipts::BlockReceipts;

/// Blocks without logs are stored as given out after this long: a restart asks for them again.
const SAVE_AFTER: Duration = Duration::from_secs(2);

/// Why a follower cannot start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A query for one block by its hash.
    #[error("a query for the one block {0}: a range can be followed")]
    OneBlock(B256),
    /// A last block that moves.
    #[error(
        "the last block is {}: it has to be a number, or the latest block",
        .0.name().unwrap_or("a number")
    )]
    End(BlockTag),
    /// The cursor is of another chain.
    #[error("the cursor is of chain {cursor}, not of chain {chain}")]
    OtherChain {
        /// The cursor's chain id.
        cursor: u64,
        /// The chain id that was configured.
        chain: u64,
    },
    /// The cursor is of another query.
    #[error("the cursor is of another query, {0}")]
    OtherQuery(String),
    /// The cursor's query was matched by other rules.
    #[error("the cursor is of a query matched by other rules, those of {0:?}")]
    OtherSemantics(Semantics),
    /// The cursor begins at another block.
    #[error("the cursor begins at block {cursor}, not at block {from}")]
    OtherStart {
        /// The cursor's first block.
        cursor: u64,
        /// The first block that was configured.
        from: u64,
    },
}

/// What a question is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Start,
    Head,
    Finality,
    Links,
    Branch,
    Check,
    Receipts,
    EachWay,
    Candidates,
}

/// What is given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Started,
    Anchored,
    Batch(Batch),
}

/// What the next step depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Waiting {
    Nothing,
    Answer(Question, Purpose),
    Stored(StoreId, Delivery),
    Acknowledged(UpdateId, Delivery),
    Until(Duration),
    /// Nothing comes any more.
    Ended,
}

#[derive(Debug, Clone)]
enum Stage {
    Starting(Start),
    Following(Box<Chain>, Subject),
}

/// Follows the logs of a query: see the [module](crate::eth::follow).
#[derive(Debug, Clone)]
pub struct Follower {
    config: Config,
    /// The query without its range, as `eth_getLogs` takes it; of several, the list of them.
    query: String,
    stage: Stage,
    /// What an earlier run left, until it is taken up.
    left: Option<Cursor>,
    /// The first update, until it is given out.
    started: Option<Started>,
    waiting: Waiting,
    pace: Pace,
    /// Of the answer that is open: whether something of use came, and the first block whose receipts
    /// were of no use.
    came: bool,
    wrong: Option<(BlockRef, AnswerError)>,
    /// The method whose receipts were of no use, where several are tried.
    method: Option<String>,
    last_question: u64,
    last_store: u64,
    last_update: u64,
    saved_at: Duration,
    is_unsaved: bool,
    lag_reported: bool,
}

impl Follower {
    /// A follower from the first block of the query, or from where an earlier run left off.
    ///
    /// # Errors
    /// [`StartError`] if the query's blocks cannot be followed, or the cursor is of something else.
    pub fn new(config: Config, cursor: Option<Cursor>) -> Result<Self, StartError> {
        let (from, to) = match *config.query.blocks() {
            BlockSelection::AtHash(hash) => return Err(StartError::OneBlock(hash)),
            BlockSelection::Range { from, to } => (from, to),
        };
        let to = match to {
            Some(BlockTag::Number(number)) => Some(number),
            Some(BlockTag::Earliest) => Some(0),
            None | Some(BlockTag::Latest | BlockTag::Pending) => None,
            Some(tag @ (BlockTag::Safe | BlockTag::Finalized)) => return Err(StartError::End(tag)),
        };
        let from = match from {
            None | Some(BlockTag::Pending) => BlockTag::Latest,
            Some(BlockTag::Earliest) => BlockTag::Number(0),
            Some(tag) => tag,
        };
        let queries = config.queries();
        if let Some(cursor) = &cursor {
            check_subject(&cursor.subject, &config, &queries, from)?;
        }
        Ok(Self {
            query: to_json(&queries),
            stage: Stage::Starting(Start::new(from, to, cursor.as_ref())),
            left: cursor,
            started: None,
            waiting: Waiting::Nothing,
            pace: Pace::new(&config),
            came: false,
            wrong: None,
            method: None,
            last_question: 0,
            last_store: 0,
            last_update: 0,
            saved_at: Duration::ZERO,
            is_unsaved: false,
            lag_reported: false,
            config,
        })
    }

    /// What it was set up with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The question that is open, if any: more of the answer to another one is of no use.
    pub fn question(&self) -> Option<QuestionId> {
        matches!(self.waiting, Waiting::Answer(..)).then_some(QuestionId(self.last_question))
    }

    /// When the next [`Event::Tick`] is of use; `None` while something else is waited for.
    pub fn wake_at(&self) -> Option<Duration> {
        match self.waiting {
            Waiting::Until(at) => Some(at),
            _ => None,
        }
    }

    fn chain(&self) -> Option<&Chain> {
        match &self.stage {
            Stage::Starting(_) => None,
            Stage::Following(chain, _) => Some(chain),
        }
    }

    /// The provider's head.
    pub fn head(&self) -> Option<BlockRef> {
        self.chain()?.head()
    }

    /// The number of the next header to link; `None` before the start is known.
    pub fn next_number(&self) -> Option<u64> {
        Some(self.chain()?.next_number())
    }

    /// The last block that was given out and acknowledged.
    pub fn last(&self) -> Option<BlockRef> {
        self.chain()?.blocks().last_delivered()
    }

    /// The number of blocks that are kept: given out, or about to be.
    pub fn num_kept(&self) -> usize {
        self.chain().map_or(0, |chain| chain.blocks().len())
    }

    /// The number of blocks in this run whose receipts were verified.
    pub fn num_verified(&self) -> u64 {
        self.chain().map_or(0, |chain| chain.examined)
    }

    /// The cursor for a caller who stores it in one transaction with what it makes of the update
    /// that is out: that one counts as dealt with. Take it when [`Action::Update`] is carried out,
    /// before [`Event::Acknowledged`], which may bring the next update. `None` before the start is
    /// known.
    ///
    /// # Cost
    /// A copy of the logs of the blocks that are kept.
    pub fn cursor(&self) -> Option<Cursor> {
        let Stage::Following(chain, subject) = &self.stage else { return None };
        let out = match self.waiting {
            Waiting::Acknowledged(_, Delivery::Batch(batch)) => Some(batch),
            _ => None,
        };
        let Some(batch) = out else { return Some(Cursor::before(chain, subject, None)) };
        let mut chain = chain.clone();
        chain.settle(batch);
        Some(Cursor::before(&chain, subject, None))
    }

    /// Takes an event at the time `now`, and returns what to do, in order.
    ///
    /// # Cost
    /// Hashing headers and receipts; stored cursors copy the logs of the blocks that are kept.
    #[must_use]
    pub fn handle(&mut self, event: Event<'_>, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.waiting == Waiting::Ended {
            return actions;
        }
        let taken = self.take(event, now, &mut actions);
        if let Err(fault) = taken.and_then(|()| self.go_on(now, &mut actions)) {
            self.end(Err(*fault), now, &mut actions);
        }
        actions
    }

    fn take(
        &mut self,
        event: Event<'_>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        match event {
            Event::Tick => {}
            Event::Stop => self.end(Ok(()), now, actions),
            Event::Stored(id) => {
                if let Waiting::Stored(awaited, delivery) = self.waiting
                    && id >= awaited
                {
                    self.deliver(delivery, actions);
                }
            }
            Event::Acknowledged(id) => {
                if let Waiting::Acknowledged(awaited, delivery) = self.waiting
                    && id == awaited
                {
                    self.waiting = Waiting::Nothing;
                    self.acknowledged(delivery, now, actions);
                }
            }
            Event::Answer(id, answer) => {
                if id.0 == self.last_question {
                    self.on_answer(answer, now, actions)?;
                }
            }
        }
        Ok(())
    }

    fn on_answer(
        &mut self,
        answer: Answer<'_>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        match answer {
            Answer::Block(at) => self.on_block(at, now, actions)?,
            Answer::Header(header) => self.on_header(header, now, actions)?,
            Answer::Headers(headers) => self.on_headers(headers, now, actions)?,
            Answer::Receipts(at, receipts) => self.on_receipts(at, receipts)?,
            Answer::ReceiptsBy(method, receipts) => {
                self.on_receipts_by(method, receipts, actions)?;
            }
            Answer::Candidates(headers, end) => self.on_candidates(headers, end, now, actions)?,
            Answer::Complete => self.on_complete(None, now, actions)?,
            Answer::Failed(failure) => self.on_complete(Some(failure), now, actions)?,
        }
        Ok(())
    }

    /// The open question, which is no longer open.
    fn answered(&mut self) -> Option<(Question, Purpose)> {
        match core::mem::replace(&mut self.waiting, Waiting::Nothing) {
            Waiting::Answer(question, purpose) => Some((question, purpose)),
            other => {
                self.waiting = other;
                None
            }
        }
    }

    fn on_block(
        &mut self,
        at: BlockRef,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        let Waiting::Answer(Question::Block(_) | Question::IndexedBlock(_), _) = self.waiting
        else {
            return Ok(());
        };
        let Some((question, purpose)) = self.answered() else { return Ok(()) };
        match (&mut self.stage, question) {
            (Stage::Starting(start), Question::Block(_)) => start.on_block(at),
            (Stage::Starting(start), Question::IndexedBlock(_)) => {
                start.on_indexed(at, &self.config)?;
            }
            (Stage::Following(chain, _), Question::Block(_)) if purpose == Purpose::Head => {
                let before = chain.head();
                self.pace.has_seen_head = true;
                match chain.on_head(at) {
                    Seen::Ahead => self.lag_reported = false,
                    Seen::Lagging => {
                        let last = chain.blocks().last().unwrap_or(at);
                        if !core::mem::replace(&mut self.lag_reported, true) {
                            actions.push(Action::Note(Note::Lags { head: at, last }));
                        }
                    }
                    Seen::Branch => actions.push(Action::Note(Note::Reorganization(at))),
                }
                if chain.want() == Want::Head {
                    // Nothing else is open that could have failed.
                    self.pace.went_well();
                }
                if before != Some(at) && self.pace.is_finality_due(now) {
                    self.ask(Question::Block(BlockTag::Finalized), Purpose::Finality, actions);
                }
            }
            (Stage::Following(chain, _), Question::Block(_)) => {
                self.pace.finality_came(true, now);
                chain.on_finalized(at);
            }
            (Stage::Following(..) | Stage::Starting(_), _) => {}
        }
        Ok(())
    }

    fn on_header(
        &mut self,
        header: Option<&HeaderBuf>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        let asked = match &self.waiting {
            Waiting::Answer(Question::Header(hash), _) => *hash,
            _ => return Ok(()),
        };
        let Some((question, _)) = self.answered() else { return Ok(()) };
        let taken = match (&mut self.stage, header) {
            (Stage::Starting(_), None) => return Err(Box::new(Fault::NoAnchor(asked))),
            (Stage::Starting(start), Some(header)) => {
                let found = BlockRef::from(header);
                if found.hash == asked {
                    start.on_anchor(found);
                    Ok(())
                } else {
                    Err(AnswerError::OtherBlock { asked, found }.into())
                }
            }
            (Stage::Following(chain, _), Some(header)) => chain.on_header(header),
            // Its own branch holds it.
            (Stage::Following(..), None) => Err(AnswerError::Missing.into()),
        };
        self.taken(taken, question, now, actions)
    }

    fn on_headers(
        &mut self,
        headers: &[HeaderBuf],
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        let Waiting::Answer(Question::Headers(_), purpose) = self.waiting else { return Ok(()) };
        let Some(first) = headers.first() else { return Ok(()) };
        let taken = match (&mut self.stage, purpose) {
            (Stage::Starting(start), _) => {
                start.on_header(first, &self.config).map_err(Refused::Fault)
            }
            (Stage::Following(chain, _), Purpose::Check) => chain.on_check(first),
            (Stage::Following(chain, _), _) => chain.on_headers(headers),
        };
        // One header is all of an answer, but where the chain grows. Where it has gone over to a
        // branch instead, what follows is of no use.
        let next = headers.last().map(|last| last.view().number().saturating_add(1));
        let grows = self.next_number() == next;
        if purpose == Purpose::Links && taken.is_ok() && grows {
            self.came = true;
            return Ok(());
        }
        match self.answered() {
            Some((question, _)) => self.taken(taken, question, now, actions),
            None => Ok(()),
        }
    }

    fn on_candidates(
        &mut self,
        headers: &[HeaderBuf],
        end: BlockRef,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        let Waiting::Answer(Question::Candidates(asked), _) = &self.waiting else { return Ok(()) };
        let number = |header: &HeaderBuf| header.view().number();
        let are_in_order = headers.windows(2).all(|pair| number(&pair[0]) < number(&pair[1]));
        let are_in_range = headers.iter().all(|header| asked.contains(&number(header)))
            && asked.contains(&end.number)
            && headers.last().is_none_or(|last| number(last) <= end.number);
        let Some((question, _)) = self.answered() else { return Ok(()) };
        if !are_in_order || !are_in_range {
            return self.failed(question, AnswerError::OutOfRange, now, actions);
        }
        if let Stage::Following(chain, _) = &mut self.stage {
            chain.on_index(headers, end);
            self.pace.went_well();
        }
        Ok(())
    }

    fn on_receipts(
        &mut self,
        at: BlockRef,
        receipts: Result<Option<&BlockReceipts>, Failure>,
    ) -> Result<(), Box<Fault>> {
        let Waiting::Answer(Question::Receipts(_), _) = self.waiting else { return Ok(()) };
        match self.verify(at, receipts)? {
            Ok(()) => self.came = true,
            // Of several blocks the first counts.
            Err(error) => {
                self.wrong.get_or_insert((at, error));
            }
        }
        Ok(())
    }

    fn on_receipts_by(
        &mut self,
        method: &str,
        receipts: Result<Option<&BlockReceipts>, Failure>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        let Waiting::Answer(Question::ReceiptsEachWay(at), _) = self.waiting else { return Ok(()) };
        match self.verify(at, receipts)? {
            Ok(()) => {
                self.waiting = Waiting::Nothing;
                self.pace.went_well();
                if let Some((at, error)) = self.wrong.take() {
                    let method = method.into();
                    actions.push(Action::Note(Note::OtherMethod { at, error, method }));
                }
            }
            Err(error) => {
                self.wrong = Some((at, error));
                self.method = Some(method.into());
            }
        }
        Ok(())
    }

    /// Takes receipts, if they are those of the block.
    fn verify(
        &mut self,
        at: BlockRef,
        receipts: Result<Option<&BlockReceipts>, Failure>,
    ) -> Result<Result<(), AnswerError>, Box<Fault>> {
        let Stage::Following(chain, _) = &mut self.stage else { return Ok(Ok(())) };
        let taken = match receipts {
            Ok(Some(receipts)) => chain.on_receipts(at, receipts),
            Ok(None) => return Ok(Err(AnswerError::Missing)),
            Err(failure) => return Ok(Err(AnswerError::Failed(failure))),
        };
        match taken {
            Ok(()) => Ok(Ok(())),
            Err(Refused::Answer(error)) => Ok(Err(*error)),
            Err(Refused::Fault(fault)) => Err(fault),
        }
    }

    /// No more comes of the open answer.
    fn on_complete(
        &mut self,
        failure: Option<Failure>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        let Some((question, purpose)) = self.answered() else { return Ok(()) };
        let came = core::mem::take(&mut self.came);
        let wrong = self.wrong.take();
        let failure = failure.map(AnswerError::Failed);
        match purpose {
            Purpose::Finality => {
                match failure {
                    Some(AnswerError::Failed(failure)) if !failure.transient => {
                        self.pace.finality_came(false, now);
                        actions.push(Action::Note(Note::NoFinality(failure)));
                    }
                    // It is asked for again with the next head.
                    _ => {}
                }
                Ok(())
            }
            Purpose::Receipts => {
                if came {
                    self.pace.went_well();
                }
                match (wrong, failure) {
                    (Some((at, error)), _) => self.wrong_receipts(at, error, now, actions),
                    (None, Some(error)) => self.failed(question, error, now, actions),
                    (None, None) => {
                        if came {
                            self.pace.all_receipts_came();
                            return Ok(());
                        }
                        self.failed(question, AnswerError::Missing, now, actions)
                    }
                }
            }
            Purpose::EachWay => {
                let Question::ReceiptsEachWay(at) = question else { return Ok(()) };
                let error = wrong.map(|(_, error)| error).or(failure);
                self.no_receipts(at, error.unwrap_or(AnswerError::Missing), now, actions)
            }
            Purpose::Links if came && failure.is_none() => {
                self.pace.went_well();
                Ok(())
            }
            // What was collected of a branch is as good as before.
            Purpose::Head | Purpose::Candidates => {
                let error = failure.unwrap_or(AnswerError::Missing);
                self.failed(question, error, now, actions)
            }
            _ => {
                let error = failure.unwrap_or(AnswerError::Missing);
                self.taken(Err(error.into()), question, now, actions)
            }
        }
    }

    /// What became of an answer.
    fn taken(
        &mut self,
        taken: Result<(), Refused>,
        question: Question,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        match taken {
            Ok(()) => Ok(()),
            Err(Refused::Fault(fault)) => Err(fault),
            Err(Refused::Answer(error)) => {
                if let Stage::Following(chain, _) = &mut self.stage {
                    chain.forget_head();
                }
                self.failed(question, *error, now, actions)
            }
        }
    }

    /// An answer failed: it is asked for again later, unless that has happened too often.
    fn failed(
        &mut self,
        question: Question,
        error: AnswerError,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        let is_transient = matches!(&error, AnswerError::Failed(failure) if failure.transient);
        // Before anything is followed, what was asked for is wrong rather than the moment.
        if matches!(self.stage, Stage::Starting(_)) && !is_transient {
            return Err(Fault::GaveUp { question, error, tries: 1 }.into());
        }
        match self.pace.failed(is_transient, now) {
            Ok(wait) => {
                self.waiting = Waiting::Until(now.saturating_add(wait));
                actions.push(Action::Note(Note::Failed { question, error, wait }));
                Ok(())
            }
            Err(tries) => Err(Fault::GaveUp { question, error, tries }.into()),
        }
    }

    /// Receipts of a block did not come, or are not the block's.
    fn wrong_receipts(
        &mut self,
        at: BlockRef,
        error: AnswerError,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        if matches!(&error, AnswerError::Failed(failure) if failure.transient) {
            return self.failed(Question::Receipts([at].into()), error, now, actions);
        }
        if self.pace.wrong_receipts(at.hash) > 1 {
            // The method may be at fault.
            self.ask(Question::ReceiptsEachWay(at), Purpose::EachWay, actions);
            self.wrong = Some((at, error));
            return Ok(());
        }
        self.no_receipts(at, error, now, actions)
    }

    /// No method gave the receipts of a block.
    fn no_receipts(
        &mut self,
        at: BlockRef,
        error: AnswerError,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), Box<Fault>> {
        let tries = self.pace.tries_of(at.hash);
        if tries >= self.config.tries {
            let method = self.method.take();
            return Err(Fault::NoReceipts { at, error, method, tries }.into());
        }
        let wait = self.pace.wait(now);
        self.waiting = Waiting::Until(now.saturating_add(wait));
        let question = Question::Receipts([at].into());
        actions.push(Action::Note(Note::Failed { question, error, wait }));
        if let Stage::Following(chain, _) = &mut self.stage {
            chain.doubt(at);
        }
        Ok(())
    }

    fn ask(&mut self, question: Question, purpose: Purpose, actions: &mut Vec<Action>) {
        self.came = false;
        self.wrong = None;
        self.method = None;
        self.last_question += 1;
        actions.push(Action::Ask(QuestionId(self.last_question), question.clone()));
        self.waiting = Waiting::Answer(question, purpose);
    }

    fn go_on(&mut self, now: Duration, actions: &mut Vec<Action>) -> Result<(), Box<Fault>> {
        if let Waiting::Until(at) = self.waiting
            && now >= at
        {
            self.waiting = Waiting::Nothing;
        }
        while self.waiting == Waiting::Nothing {
            match &mut self.stage {
                Stage::Starting(start) => match start.next(&self.config)? {
                    Next::Ask(question) => self.ask(question, Purpose::Start, actions),
                    Next::Note(note) => actions.push(Action::Note(note)),
                    Next::Done => self.start(actions)?,
                },
                Stage::Following(..) => self.follow(now, actions),
            }
        }
        Ok(())
    }

    /// All is known: what an earlier run left is taken up, and what is followed is stored.
    fn start(&mut self, actions: &mut Vec<Action>) -> Result<(), Box<Fault>> {
        let Stage::Starting(start) = &self.stage else { return Ok(()) };
        let left = self.left.take();
        let rules = start.rules(&self.config, left.as_ref().map(|left| &left.subject));
        let subject = Subject {
            chain_id: self.config.chain_id,
            query: self.query.clone(),
            semantics: self.config.semantics,
            start: rules.start,
            from: rules.from,
        };
        let is_first = left.is_none();
        let (reorg, anchored) =
            left.as_ref().map_or((None, None), |left| (left.reorg.clone(), left.anchored));
        let blocks = left.map(Cursor::blocks).unwrap_or_default();
        let last = blocks.last().map(|last| last.number);
        let mut anchors = Anchors::new(start.linked_anchors(&self.config), anchored);
        if let Some(anchor) = start.indexed_anchor() {
            anchors.hold(anchor);
        }
        for anchor in anchors.linked().to_vec() {
            if anchor.number < rules.start || Some(anchor.number) <= last {
                match blocks.get(anchor.number) {
                    Some(block) if block.at != anchor => {
                        let (found, of) = (block.at.hash, Source::Cursor);
                        return Err(Fault::OtherThanAnchor { anchor, found, of }.into());
                    }
                    Some(_) => anchors.hold(anchor),
                    None if anchored == Some(anchor) => anchors.hold(anchor),
                    None => actions.push(Action::Note(Note::AnchorNotCompared(anchor))),
                }
            }
        }
        let chain = Chain::resume(rules, blocks, reorg, anchors);
        let started = Delivery::Started;
        let cursor = Cursor::before(&chain, &subject, None);
        let update = started_update(&chain, start.anchors());
        self.started = Some(update);
        self.stage = Stage::Following(Box::new(chain), subject);
        // A later run would find another head, and leave out the blocks between.
        if is_first && self.config.stored {
            let id = self.store(cursor, actions);
            self.waiting = Waiting::Stored(id, started);
        } else {
            self.deliver(started, actions);
        }
        Ok(())
    }

    /// The next step of a chain that is followed.
    fn follow(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let Stage::Following(chain, subject) = &mut self.stage else { return };
        let batch = chain.batch();
        // What left the chain is taken back before the rest is said to be authentic.
        if chain.anchors().is_unreported() && batch != Some(Batch::Reorg) {
            return self.deliver(Delivery::Anchored, actions);
        }
        if let Some(batch) = batch {
            let delivery = Delivery::Batch(batch);
            if self.config.stored && matters(chain, batch) {
                let cursor = Cursor::before(chain, subject, Some(batch));
                let id = self.store(cursor, actions);
                self.saved_at = now;
                self.is_unsaved = false;
                self.waiting = Waiting::Stored(id, delivery);
            } else {
                self.deliver(delivery, actions);
            }
            return;
        }
        if chain.is_at_end() {
            return self.end(Ok(()), now, actions);
        }
        if self.pace.poll(now) {
            return self.ask(Question::Block(BlockTag::Latest), Purpose::Head, actions);
        }
        let (question, purpose) = match chain.want() {
            Want::End => return self.end(Ok(()), now, actions),
            Want::Head if self.pace.has_seen_head && self.config.once => {
                return self.end(Ok(()), now, actions);
            }
            Want::Head => {
                self.pace.has_seen_head = false;
                self.waiting = Waiting::Until(self.pace.poll_at());
                return;
            }
            Want::Headers(numbers) => (Question::Headers(numbers), Purpose::Links),
            Want::Candidates(numbers) => (Question::Candidates(numbers), Purpose::Candidates),
            Want::Header(at) => (Question::Header(at.hash), Purpose::Branch),
            Want::Check(number) => (Question::Headers(number..=number), Purpose::Check),
            Want::Receipts(blocks) => (Question::Receipts(blocks), Purpose::Receipts),
        };
        self.ask(question, purpose, actions);
    }

    fn store(&mut self, cursor: Cursor, actions: &mut Vec<Action>) -> StoreId {
        self.last_store += 1;
        let id = StoreId(self.last_store);
        actions.push(Action::Store(id, cursor));
        id
    }

    fn deliver(&mut self, delivery: Delivery, actions: &mut Vec<Action>) {
        let Stage::Following(chain, _) = &mut self.stage else { return };
        let update = match delivery {
            Delivery::Started => self.started.take().map(Update::Started),
            Delivery::Anchored => chain.anchors_mut().take_unreported().map(Update::Anchored),
            Delivery::Batch(batch) => batch_update(chain, batch),
        };
        let Some(update) = update else { return };
        self.last_update += 1;
        let id = UpdateId(self.last_update);
        actions.push(Action::Update(id, update));
        self.waiting = Waiting::Acknowledged(id, delivery);
    }

    fn acknowledged(&mut self, delivery: Delivery, now: Duration, actions: &mut Vec<Action>) {
        let Stage::Following(chain, subject) = &mut self.stage else { return };
        let Delivery::Batch(batch) = delivery else { return };
        let matters = matters(chain, batch);
        chain.settle(batch);
        self.is_unsaved = self.config.stored;
        let is_due = now.saturating_sub(self.saved_at) >= SAVE_AFTER;
        if self.config.stored && (matters || is_due) {
            let cursor = Cursor::before(chain, subject, None);
            self.store(cursor, actions);
            self.saved_at = now;
            self.is_unsaved = false;
        }
    }

    /// The last action. What was acknowledged is stored, however it ended.
    fn end(&mut self, ended: Result<(), Fault>, now: Duration, actions: &mut Vec<Action>) {
        if let Stage::Following(chain, subject) = &self.stage
            && self.is_unsaved
        {
            // Of a batch that is out and matters, what was stored before it stays.
            let cursor = Cursor::before(chain, subject, None);
            self.store(cursor, actions);
            self.saved_at = now;
            self.is_unsaved = false;
        }
        self.waiting = Waiting::Ended;
        actions.push(Action::End(ended));
    }
}

/// The queries of a cursor: an object, or a list of several.
fn to_json(queries: &[LogQuery]) -> String {
    let queries: Vec<String> = queries.iter().map(LogQuery::to_json).collect();
    match queries.as_slice() {
        [query] => query.clone(),
        queries => format!("[{}]", queries.join(",")),
    }
}

fn queries_of_json(json: &str, semantics: Semantics) -> Option<Vec<LogQuery>> {
    let one = |json: &str| LogQuery::from_json(json, semantics).ok();
    if json.starts_with('{') {
        return Some(vec![one(json)?]);
    }
    let list: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    list.into_iter().map(|query| one(query.get())).collect()
}

/// Whether an earlier run followed the same.
fn check_subject(
    left: &Subject,
    config: &Config,
    queries: &[LogQuery],
    from: BlockTag,
) -> Result<(), StartError> {
    if left.chain_id != config.chain_id {
        let (cursor, chain) = (left.chain_id, config.chain_id);
        return Err(StartError::OtherChain { cursor, chain });
    }
    if left.semantics != config.semantics {
        return Err(StartError::OtherSemantics(left.semantics));
    }
    if queries_of_json(&left.query, left.semantics).as_deref() != Some(queries) {
        return Err(StartError::OtherQuery(left.query.clone()));
    }
    match from {
        BlockTag::Number(from) if from != left.from => {
            Err(StartError::OtherStart { cursor: left.from, from })
        }
        _ => Ok(()),
    }
}

fn started_update(chain: &Chain, anchors: &[BlockRef]) -> Started {
    let rules = chain.rules();
    Started {
        start: rules.start,
        from: rules.from,
        to: rules.to,
        resumed: chain.blocks().last_delivered(),
        anchors: anchors.to_vec(),
        index_to: rules.index_to,
    }
}

/// Whether logs come or go with a batch, so that it must not be given out twice unnoticed.
fn matters(chain: &Chain, batch: Batch) -> bool {
    match batch {
        Batch::Reorg => true,
        Batch::Blocks(count) => {
            chain.blocks().pending().take(count).any(|block| !block.logs().is_empty())
        }
    }
}

fn batch_update(chain: &Chain, batch: Batch) -> Option<Update> {
    let finalized = chain.finalized();
    match batch {
        Batch::Reorg => {
            let reorg = chain.pending_reorg()?;
            let removed = |block: &Block| {
                let logs = block.logs().iter().rev().cloned();
                logs.map(|log| LocatedLog { removed: true, ..log }).collect::<Vec<_>>()
            };
            let from = chain.rules().from;
            Some(Update::Removed(Removed {
                ancestor: reorg.ancestor,
                blocks: reorg.removed.len(),
                logs: reorg.removed.iter().flat_map(removed).collect(),
                last: chain.blocks().last_delivered().filter(|last| last.number >= from),
                finalized,
            }))
        }
        Batch::Blocks(count) => {
            let blocks = || chain.blocks().pending().take(count);
            let last = blocks().last()?.at;
            Some(Update::Blocks(NextBlocks {
                last,
                blocks: count,
                logs: blocks().flat_map(|block| block.logs().iter().cloned()).collect(),
                every_log: chain.is_every_log_in_receipts(last.number),
                finalized,
            }))
        }
    }
}
