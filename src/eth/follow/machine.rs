//! The follower: determines the next question, the next delivery, and the cursors that are stored
//! before and after each delivery.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use alloy_primitives::B256;
use serde_json::value::RawValue;

use super::anchors::Anchors;
use super::blocks::Block;
use super::chain::{Batch, Chain, Seen, Want};
use super::cursor::{Cursor, StartError};
use super::pace::Pace;
use super::rules::{Refused, Subject};
use super::start::{Next, Start};
use super::{
    Action, Answer, AnswerError, Config, Event, Failure, Fault, FollowNote, News, NextBlocks,
    Question, QuestionId, Removed, Started, StoreId, UpdateId,
};
use crate::eth::header::{BlockRef, HeaderBuf};
use crate::eth::log::LocatedLog;
use crate::eth::log_query::{BlockSelection, BlockTag, LogQuery, Semantics};
use crate::eth::receipts::BlockReceipts;
use crate::eth::transactions::BlockTransactions;
use crate::steady_clock::SteadyClock;

/// Interval at which progress is stored while the delivered blocks contain no logs. After a
/// restart, blocks since the last stored cursor are requested again.
const SAVE_AFTER: Duration = Duration::from_secs(2);
/// Number of times that the transactions of blocks are requested, if all providers lag behind these
/// blocks or cannot be reached. The logs are then delivered without proven transaction hashes: the
/// logs themselves are proven already.
const TRANSACTION_TRIES: u32 = 3;

/// Kind of update to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Started,
    Anchored,
    Batch(Batch),
}

/// Event that the next step waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Waiting {
    Nothing,
    Answer(Question),
    Stored(StoreId, Delivery),
    Acknowledged(UpdateId, Delivery),
    Until(Duration),
    /// The follower has ended and ignores all events.
    Ended,
}

#[derive(Debug, Clone)]
enum Stage {
    Starting(Box<Start>),
    Following(Box<Chain>),
}

/// Result of handling an event: a fault ends the follower.
type Handled = Result<(), Box<Fault>>;

/// Receipts of a block as they arrive in an answer.
type FoundReceipts<'a> = Result<Option<&'a BlockReceipts>, Failure>;

/// Transactions of a block as they arrive in an answer.
type FoundTransactions<'a> = Result<Option<&'a BlockTransactions>, Failure>;

/// Follows the logs of a query; the [module](crate::eth::follow) describes its protocol.
#[derive(Debug, Clone)]
pub struct Follower {
    config: Config,
    stage: Stage,
    /// Cursor of an earlier run, kept until the start is complete.
    left: Option<Cursor>,
    /// First update, kept until it is delivered.
    started: Option<Started>,
    waiting: Waiting,
    pace: Pace,
    /// `true` if a part of the answer to the open question was accepted.
    came: bool,
    /// First block whose receipts were refused in the answer to the open question, and the error.
    wrong: Option<(BlockRef, AnswerError)>,
    /// Method whose receipts were refused last, if several methods are tried.
    method: Option<String>,
    /// Number of requests in a row for transactions that did not arrive.
    transaction_tries: u32,
    last_question: u64,
    last_store: u64,
    last_update: u64,
    saved_at: Duration,
    is_unsaved: bool,
    lag_reported: bool,
    clock: SteadyClock,
    /// Time of the event that is being handled, as `clock` measures it.
    now: Duration,
    /// Actions collected for the event that is being handled.
    actions: Vec<Action>,
}

impl Follower {
    /// Creates a follower that starts at the query's first block, or continues from a cursor.
    ///
    /// # Errors
    /// Returns [`StartError`] if the query's blocks cannot be followed, or if the cursor belongs to
    /// another chain or query.
    pub fn new(config: Config, cursor: Option<Cursor>) -> Result<Self, StartError> {
        let (from, to) = match *config.query.blocks() {
            BlockSelection::AtHash(hash) => return Err(StartError::OneBlock(hash)),
            BlockSelection::Range { from, to } => (from, to),
        };
        // `latest` and `pending` as the last block mean that the run has no end. `safe` and
        // `finalized` are refused: they would move during the run.
        let to = match to {
            Some(BlockTag::Number(number)) => Some(number),
            Some(BlockTag::Earliest) => Some(0),
            None | Some(BlockTag::Latest | BlockTag::Pending) => None,
            Some(tag @ (BlockTag::Safe | BlockTag::Finalized)) => return Err(StartError::End(tag)),
        };
        let from = match from {
            // A pending block is not part of the chain yet.
            None | Some(BlockTag::Pending) => BlockTag::Latest,
            Some(BlockTag::Earliest) => BlockTag::Number(0),
            Some(tag) => tag,
        };
        if let Some(cursor) = &cursor {
            // A cursor of other queries would mix the logs of those queries with the logs of this
            // run.
            check_subject(&cursor.subject, &config, from)?;
        }
        Ok(Self {
            stage: Stage::Starting(Box::new(Start::new(from, to, cursor.as_ref()))),
            left: cursor,
            started: None,
            waiting: Waiting::Nothing,
            pace: Pace::new(&config),
            came: false,
            wrong: None,
            method: None,
            transaction_tries: 0,
            last_question: 0,
            last_store: 0,
            last_update: 0,
            saved_at: Duration::ZERO,
            is_unsaved: false,
            lag_reported: false,
            clock: SteadyClock::default(),
            now: Duration::ZERO,
            actions: Vec::new(),
            config,
        })
    }

    /// Returns the configuration with which this follower was created.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the id of the open question, if any. Answers to other questions are ignored.
    pub fn question(&self) -> Option<QuestionId> {
        matches!(self.waiting, Waiting::Answer(..)).then_some(QuestionId(self.last_question))
    }

    /// Returns the time of the next useful [`Event::Tick`]; `None` while another event is awaited.
    ///
    /// The time is on the same clock as `now` in [`handle`](Self::handle). If this time has passed,
    /// the tick is due now.
    pub fn wake_at(&self) -> Option<Duration> {
        match self.waiting {
            Waiting::Until(at) => Some(self.clock.to_callers(at)),
            _ => None,
        }
    }

    fn chain(&self) -> Option<&Chain> {
        match &self.stage {
            Stage::Starting(_) => None,
            Stage::Following(chain) => Some(chain),
        }
    }

    /// Returns the provider's head; `None` if the head is not known yet.
    pub fn head(&self) -> Option<BlockRef> {
        self.chain()?.head
    }

    /// Returns the number of the next header to link; `None` while the first block is not known
    /// yet.
    pub fn next_number(&self) -> Option<u64> {
        Some(self.chain()?.next_number())
    }

    /// Returns the last block that was delivered and acknowledged.
    pub fn last(&self) -> Option<BlockRef> {
        self.chain()?.blocks.last_delivered()
    }

    /// Returns the number of blocks kept in memory, delivered or pending.
    pub fn num_kept(&self) -> usize {
        self.chain().map_or(0, |chain| chain.blocks.len())
    }

    /// Returns the number of blocks whose receipts were verified in this run.
    pub fn num_verified(&self) -> u64 {
        self.chain().map_or(0, |chain| chain.examined)
    }

    /// Returns `true` if the transactions of this block are still needed, for an open
    /// [`Question::Transactions`].
    pub fn wants_transactions(&self, at: BlockRef) -> bool {
        self.chain().is_some_and(|chain| chain.wants_transactions(at))
    }

    /// Returns a cursor that already records the unacknowledged update as processed; `None` while
    /// the first block is not known yet.
    ///
    /// This function is for callers that store the cursor in the same transaction as the results of
    /// the update. Call this function while you carry out [`Action::Update`], before you send
    /// [`Event::Acknowledged`], because that event may produce the next update.
    ///
    /// # Cost
    /// Copies the logs of the kept blocks.
    pub fn cursor(&self) -> Option<Cursor> {
        let chain = self.chain()?;
        let Waiting::Acknowledged(_, Delivery::Batch(batch)) = self.waiting else {
            return Some(Cursor::before(chain, None));
        };
        let mut chain = chain.clone();
        chain.settle(batch);
        Some(Cursor::before(&chain, None))
    }

    /// Handles an event at the time `now`, and returns the actions, which the caller must carry out
    /// in their order.
    ///
    /// `now` is the [current time](crate#time).
    /// [`Event::Tick`] must be sent at the time that [`wake_at`](Self::wake_at) returns. After
    /// [`Action::End`], all events are ignored and no action is returned.
    ///
    /// # Cost
    /// Hashes headers and receipts. For each cursor to store, copies the logs of the kept blocks.
    #[must_use]
    pub fn handle(&mut self, event: Event<'_>, now: Duration) -> Vec<Action> {
        if self.waiting == Waiting::Ended {
            return Vec::new();
        }
        self.now = self.clock.read(now);
        let taken = self.take(event);
        // A fault cannot be repaired by a further request, so the follower ends with it.
        if let Err(fault) = taken.and_then(|()| self.go_on()) {
            self.end(Err(*fault));
        }
        core::mem::take(&mut self.actions)
    }

    fn take(&mut self, event: Event<'_>) -> Handled {
        match event {
            Event::Tick => {}
            Event::Stop => self.end(Ok(())),
            Event::Stored(id) => {
                // If a cursor is durable, all cursors stored before it are durable, too.
                if let Waiting::Stored(awaited, delivery) = self.waiting
                    && id >= awaited
                {
                    self.deliver(delivery);
                }
            }
            Event::Acknowledged(id) => {
                if let Waiting::Acknowledged(awaited, delivery) = self.waiting
                    && id == awaited
                {
                    self.waiting = Waiting::Nothing;
                    self.acknowledged(delivery);
                }
            }
            Event::Anchor(hash) => self.add_anchor(hash),
            Event::Answer(id, answer) => {
                // Late answers to earlier questions are ignored.
                if id.0 == self.last_question {
                    return self.on_answer(answer);
                }
            }
        }
        Ok(())
    }

    fn add_anchor(&mut self, hash: B256) {
        match &mut self.stage {
            Stage::Starting(start) => start.add_anchor(hash),
            Stage::Following(chain) => {
                chain.add_anchor(hash);
                // If the block is known, the reader is told at once. A wait after a failure goes on
                // afterwards.
                if let Waiting::Until(_) = self.waiting {
                    self.waiting = Waiting::Nothing;
                }
            }
        }
    }

    fn on_answer(&mut self, answer: Answer<'_>) -> Handled {
        match answer {
            Answer::Block(at) => self.on_block(at),
            Answer::Header(header) => self.on_header(header),
            Answer::Headers(headers) => self.on_headers(headers),
            Answer::Receipts(at, receipts) => self.on_receipts(at, receipts),
            Answer::ReceiptsBy(method, receipts) => self.on_receipts_by(method, receipts),
            Answer::Transactions(at, transactions) => {
                self.on_transactions(at, transactions);
                Ok(())
            }
            Answer::Candidates(headers, end) => self.on_candidates(headers, end),
            Answer::Complete => self.on_complete(None),
            Answer::Failed(failure) => self.on_complete(Some(failure)),
        }
    }

    /// Closes and returns the open question, if `is_such` returns `true` for this question.
    fn answered(&mut self, is_such: impl Fn(&Question) -> bool) -> Option<Question> {
        match core::mem::replace(&mut self.waiting, Waiting::Nothing) {
            Waiting::Answer(question) if is_such(&question) => Some(question),
            other => {
                self.waiting = other;
                None
            }
        }
    }

    fn note(&mut self, note: FollowNote) {
        self.actions.push(Action::Note(note));
    }

    fn on_block(&mut self, at: BlockRef) -> Handled {
        let is_such = |it: &_| matches!(it, Question::Block(_) | Question::IndexedBlock(_));
        let Some(question) = self.answered(is_such) else { return Ok(()) };
        match (&mut self.stage, question) {
            (Stage::Starting(start), Question::IndexedBlock(_)) => {
                start.on_indexed(at, &self.config)?;
            }
            (Stage::Starting(start), _) => start.on_block(at),
            (Stage::Following(chain), Question::Block(BlockTag::Finalized)) => {
                self.pace.finality_came(true, self.now);
                chain.on_finalized(at);
            }
            (Stage::Following(chain), _) => {
                let before = chain.head;
                self.pace.has_seen_head = true;
                let note = match chain.on_head(at) {
                    Seen::Ahead => {
                        self.lag_reported = false;
                        None
                    }
                    Seen::Lagging => {
                        // Report a lagging provider once, not at every poll.
                        let last = chain.blocks.last().unwrap_or(at);
                        let was_reported = core::mem::replace(&mut self.lag_reported, true);
                        (!was_reported).then_some(FollowNote::Lags { head: at, last })
                    }
                    Seen::Branch => Some(FollowNote::Reorganization(at)),
                };
                self.actions.extend(note.map(Action::Note));
                if chain.want() == Want::Head {
                    // The chain needs only a newer head, so the counters of failures start again at
                    // 0.
                    self.pace.went_well();
                }
                // Ask for the finalised block only when the head has changed, and not too often:
                // without a new block nothing new is final, and each request counts towards the
                // quota.
                if before != Some(at) && self.pace.is_finality_due(self.now) {
                    self.ask(Question::Block(BlockTag::Finalized));
                }
            }
        }
        Ok(())
    }

    fn on_header(&mut self, header: Option<&HeaderBuf>) -> Handled {
        let is_such = |it: &_| matches!(it, Question::Header(_));
        let Some(question) = self.answered(is_such) else { return Ok(()) };
        let Question::Header(asked) = question else { return Ok(()) };
        if let Stage::Following(chain) = &mut self.stage
            && !chain.is_tracing()
        {
            // Without a branch, the header was requested for the number of a newer anchor.
            return match header.map(BlockRef::from) {
                None => self.no_newer_anchor(asked, AnswerError::Missing),
                Some(found) if found.hash == asked => {
                    let note = chain.on_anchor(found)?;
                    self.actions.extend(note.map(Action::Note));
                    Ok(())
                }
                Some(found) => {
                    chain.anchors.postpone(asked, &self.pace, self.now);
                    self.failed(question, AnswerError::OtherBlock { asked, found })
                }
            };
        }
        let taken = match (&mut self.stage, header) {
            (Stage::Starting(_), None) => return Err(Box::new(Fault::NoAnchor(asked))),
            (Stage::Starting(start), Some(header)) => {
                let found = BlockRef::from(header);
                // The provider may return any header: only the hash identifies the anchor.
                if found.hash == asked {
                    start.on_anchor(found);
                    Ok(())
                } else {
                    Err(AnswerError::OtherBlock { asked, found }.into())
                }
            }
            (Stage::Following(chain), Some(header)) => chain.on_header(header),
            // The provider named this branch but does not have its header.
            (Stage::Following(_), None) => Err(AnswerError::Missing.into()),
        };
        self.taken(taken, question)
    }

    fn on_headers(&mut self, headers: &[HeaderBuf]) -> Handled {
        let Waiting::Answer(Question::Headers(numbers)) = &self.waiting else { return Ok(()) };
        let last = *numbers.end();
        let Some(first) = headers.first() else { return Ok(()) };
        let (taken, may_grow) = match &mut self.stage {
            Stage::Starting(start) => {
                (start.on_header(first, &self.config).map_err(Refused::Fault), false)
            }
            // The request was for one block that is linked already.
            Stage::Following(chain) if chain.has_linked(last) => (chain.on_check(first), false),
            Stage::Following(chain) => (chain.on_headers(headers), true),
        };
        // Only headers that extend the chain may arrive in several parts. Otherwise the first
        // header is the whole answer. If the chain began to trace a branch, the remaining headers
        // are useless.
        let next = headers.last().map(|last| last.view().number().saturating_add(1));
        if may_grow && taken.is_ok() && self.next_number() == next {
            self.came = true;
            return Ok(());
        }
        match self.answered(|_| true) {
            Some(question) => self.taken(taken, question),
            None => Ok(()),
        }
    }

    fn on_candidates(&mut self, headers: &[HeaderBuf], end: BlockRef) -> Handled {
        let is_such = |it: &_| matches!(it, Question::Candidates(_));
        let Some(question) = self.answered(is_such) else { return Ok(()) };
        let Question::Candidates(asked) = &question else { return Ok(()) };
        // The chain would be corrupted by candidates that are out of order or outside the range.
        let number = |header: &HeaderBuf| header.view().number();
        let are_in_order = headers.windows(2).all(|pair| number(&pair[0]) < number(&pair[1]));
        let are_in_range = headers.iter().all(|header| asked.contains(&number(header)))
            && asked.contains(&end.number)
            && headers.last().is_none_or(|last| number(last) <= end.number);
        if !are_in_order || !are_in_range {
            return self.failed(question, AnswerError::OutOfRange);
        }
        if let Stage::Following(chain) = &mut self.stage {
            chain.on_index(headers, end);
            self.pace.went_well();
        }
        Ok(())
    }

    fn on_receipts(&mut self, at: BlockRef, receipts: FoundReceipts<'_>) -> Handled {
        let Waiting::Answer(Question::Receipts(_)) = self.waiting else { return Ok(()) };
        match self.verify(at, receipts) {
            Ok(()) => self.came = true,
            // If several blocks fail, the first one is reported.
            Err(Refused::Answer(error)) => {
                self.wrong.get_or_insert((at, *error));
            }
            Err(Refused::Fault(fault)) => return Err(fault),
        }
        Ok(())
    }

    fn on_receipts_by(&mut self, method: &str, receipts: FoundReceipts<'_>) -> Handled {
        let Waiting::Answer(Question::ReceiptsEachWay(at)) = self.waiting else { return Ok(()) };
        match self.verify(at, receipts) {
            Ok(()) => {
                self.waiting = Waiting::Nothing;
                self.pace.went_well();
                if let Some((at, error)) = self.wrong.take() {
                    self.note(FollowNote::OtherMethod { at, error, method: method.into() });
                }
            }
            Err(Refused::Answer(error)) => {
                // Keep the last error: it belongs to the method that was tried last.
                self.wrong = Some((at, *error));
                self.method = Some(method.into());
            }
            Err(Refused::Fault(fault)) => return Err(fault),
        }
        Ok(())
    }

    /// Verifies the receipts of a block, and extracts the matching logs.
    fn verify(&mut self, at: BlockRef, receipts: FoundReceipts<'_>) -> Result<(), Refused> {
        let Stage::Following(chain) = &mut self.stage else { return Ok(()) };
        match receipts {
            Ok(Some(receipts)) => chain.on_receipts(at, receipts),
            Ok(None) => Err(AnswerError::Missing.into()),
            Err(failure) => Err(AnswerError::Failed(failure).into()),
        }
    }

    fn on_transactions(&mut self, at: BlockRef, found: FoundTransactions<'_>) {
        let Waiting::Answer(Question::Transactions(asked)) = &self.waiting else { return };
        let Stage::Following(chain) = &mut self.stage else { return };
        // An earlier provider's answer may have been right.
        if !chain.wants_transactions(at) {
            return;
        }
        let taken = match found {
            Ok(Some(transactions)) => chain.on_transactions(at, transactions),
            Ok(None) => Err(AnswerError::Missing),
            Err(failure) => Err(AnswerError::Failed(failure)),
        };
        match taken {
            Ok(()) => {
                self.came = true;
                self.transaction_tries = 0;
                if !asked.iter().any(|at| chain.wants_transactions(*at)) {
                    self.waiting = Waiting::Nothing;
                    self.pace.went_well();
                }
            }
            // A reason that may pass is kept before one that does not: it is one to ask again.
            Err(error) if self.wrong.is_none() || may_pass(&error) => {
                self.wrong = Some((at, error));
            }
            Err(_) => {}
        }
    }

    /// Handles missing transactions: they are requested again a few times if they may still come.
    /// Otherwise the logs are delivered without proven transaction hashes.
    fn no_transactions(&mut self, asked: &[BlockRef], error: AnswerError) {
        let Stage::Following(chain) = &mut self.stage else { return };
        let left = asked.iter().copied().filter(|at| chain.wants_transactions(*at));
        let left: Vec<_> = left.collect();
        let Some(&first) = left.first() else { return };
        self.transaction_tries += 1;
        if may_pass(&error) && self.transaction_tries < TRANSACTION_TRIES {
            let wait = self.pace.pause(self.transaction_tries - 1, self.now);
            return self.ask_later(Question::Transactions(left), error, wait);
        }
        self.transaction_tries = 0;
        for &at in &left {
            chain.leave_unbound(at);
        }
        self.note(FollowNote::UnprovenHashes { first, blocks: left.len(), error });
    }

    /// Handles the end of an answer, with or without a failure.
    fn on_complete(&mut self, failure: Option<Failure>) -> Handled {
        let Some(question) = self.answered(|_| true) else { return Ok(()) };
        let came = core::mem::take(&mut self.came);
        let wrong = self.wrong.take();
        let is_following = matches!(self.stage, Stage::Following(_));
        let or_missing =
            |failure: Option<_>| failure.map_or(AnswerError::Missing, AnswerError::Failed);
        match question {
            Question::Block(BlockTag::Finalized) if is_following => {
                // After a transient failure, the finalised block is requested again with the next
                // head.
                if let Some(failure) = failure.filter(|failure| !failure.transient) {
                    self.pace.finality_came(false, self.now);
                    self.note(FollowNote::NoFinality(failure));
                }
                Ok(())
            }
            Question::Receipts(_) => {
                if came {
                    self.pace.went_well();
                }
                match (wrong, failure) {
                    // A block with wrong receipts is handled first, even if the connection failed
                    // later.
                    (Some((at, error)), _) => self.wrong_receipts(at, error),
                    (None, None) if came => {
                        self.pace.all_receipts_came();
                        Ok(())
                    }
                    (None, failure) => self.failed(question, or_missing(failure)),
                }
            }
            Question::Transactions(asked) => {
                if came {
                    self.pace.went_well();
                }
                let error = wrong.map(|(_, error)| error);
                self.no_transactions(&asked, error.unwrap_or_else(|| or_missing(failure)));
                Ok(())
            }
            Question::ReceiptsEachWay(at) => {
                let error = wrong.map(|(_, error)| error);
                self.no_receipts(at, error.unwrap_or_else(|| or_missing(failure)))
            }
            Question::Headers(_) if came && failure.is_none() => {
                self.pace.went_well();
                Ok(())
            }
            Question::Header(asked) if self.chain().is_some_and(|chain| !chain.is_tracing()) => {
                self.no_newer_anchor(asked, or_missing(failure))
            }
            // The chain contradicts an anchor, and the provider's chain now ends before it: the
            // provider lags, which is no reason to give up.
            Question::Headers(_)
                if failure.is_none() && self.chain().is_some_and(Chain::is_contradicted) =>
            {
                let wait = self.pace.wait(self.now);
                self.ask_later(question, AnswerError::Missing, wait);
                Ok(())
            }
            // The questions `Block` and `Candidates` do not belong to a branch, so the collected
            // headers of a branch are kept.
            Question::Block(_) | Question::Candidates(_) => {
                self.failed(question, or_missing(failure))
            }
            _ => self.taken(Err(or_missing(failure).into()), question),
        }
    }

    /// Continues after an answer: a refused question is repeated later, and a fault ends the
    /// follower.
    fn taken(&mut self, taken: Result<(), Refused>, question: Question) -> Handled {
        match taken {
            Ok(()) => Ok(()),
            Err(Refused::Fault(fault)) => Err(fault),
            Err(Refused::Answer(error)) => {
                // The provider may have left the branch that the question belongs to.
                if let Stage::Following(chain) = &mut self.stage {
                    chain.forget_head();
                }
                self.failed(question, *error)
            }
        }
    }

    /// Handles a failed answer: repeats the question later, or gives up after too many failures.
    fn failed(&mut self, question: Question, error: AnswerError) -> Handled {
        let is_transient = matches!(&error, AnswerError::Failed(failure) if failure.transient);
        // At the start, a failure that is not transient is due to the configuration, so a retry
        // does not help.
        if matches!(self.stage, Stage::Starting(_)) && !is_transient {
            return Err(Fault::GaveUp { question, error, tries: 1 }.into());
        }
        match self.pace.failed(is_transient, self.now) {
            Ok(wait) => {
                self.ask_later(question, error, wait);
                Ok(())
            }
            Err(tries) => Err(Box::new(match error {
                AnswerError::OtherThanAnchor { anchor, found } => {
                    Fault::OtherThanAnchor { anchor, found, of: "the provider" }
                }
                error => Fault::GaveUp { question, error, tries },
            })),
        }
    }

    /// Handles a missing header of a newer anchor: requests it again later.
    ///
    /// A provider that lags does not have the block yet. The answer that the header is missing is
    /// therefore never a reason to give up; a failed connection may be.
    fn no_newer_anchor(&mut self, hash: B256, error: AnswerError) -> Handled {
        let Stage::Following(chain) = &mut self.stage else { return Ok(()) };
        let first_wait = chain.anchors.postpone(hash, &self.pace, self.now);
        let question = Question::Header(hash);
        if matches!(&error, AnswerError::Failed(failure) if failure.transient) {
            return self.failed(question, error);
        }
        // Report the block once, not at every request.
        if let Some(wait) = first_wait {
            self.note(FollowNote::Failed { question, error, wait });
        }
        Ok(())
    }

    fn ask_later(&mut self, question: Question, error: AnswerError, wait: Duration) {
        self.waiting = Waiting::Until(self.now.saturating_add(wait));
        self.note(FollowNote::Failed { question, error, wait });
    }

    /// Handles missing or wrong receipts of a block.
    fn wrong_receipts(&mut self, at: BlockRef, error: AnswerError) -> Handled {
        if matches!(&error, AnswerError::Failed(failure) if failure.transient) {
            return self.failed(Question::Receipts([at].into()), error);
        }
        if self.pace.wrong_receipts(at.hash) > 1 {
            // The method may be at fault: try every other method before waiting again.
            self.ask(Question::ReceiptsEachWay(at));
            self.wrong = Some((at, error));
            return Ok(());
        }
        self.no_receipts(at, error)
    }

    /// Waits before requesting the receipts of a block again, or gives up after too many failures.
    fn no_receipts(&mut self, at: BlockRef, error: AnswerError) -> Handled {
        let tries = self.pace.tries_of(at.hash);
        if tries >= self.config.tries {
            let method = self.method.take();
            return Err(Fault::NoReceipts { at, error, method, tries }.into());
        }
        let wait = self.pace.wait(self.now);
        self.ask_later(Question::Receipts([at].into()), error, wait);
        // While waiting, check whether the block is still on the provider's chain.
        if let Stage::Following(chain) = &mut self.stage {
            chain.doubt(at);
        }
        Ok(())
    }

    fn ask(&mut self, question: Question) {
        self.came = false;
        self.wrong = None;
        self.method = None;
        self.last_question += 1;
        self.actions.push(Action::Ask(QuestionId(self.last_question), question.clone()));
        self.waiting = Waiting::Answer(question);
    }

    fn go_on(&mut self) -> Handled {
        if let Waiting::Until(at) = self.waiting
            && self.now >= at
        {
            self.waiting = Waiting::Nothing;
        }
        while self.waiting == Waiting::Nothing {
            match &mut self.stage {
                Stage::Starting(start) => match start.next(&self.config)? {
                    Next::Ask(question) => self.ask(question),
                    Next::Note(note) => self.note(note),
                    Next::Done => self.start()?,
                },
                Stage::Following(_) => self.follow(),
            }
        }
        Ok(())
    }

    /// Ends the start: restores the blocks of an earlier run, checks the anchors, and delivers the
    /// first update.
    fn start(&mut self) -> Handled {
        let Stage::Starting(start) = &self.stage else { return Ok(()) };
        let left = self.left.take();
        let rules = start.rules(&self.config, left.as_ref().map(|left| &left.subject));
        let is_first = left.is_none();
        let (reorg, anchored) =
            left.as_ref().map_or((None, None), |left| (left.reorg.clone(), left.anchored));
        let blocks = left.map(Cursor::blocks).unwrap_or_default();
        let last = blocks.last().map(|last| last.number);
        let mut anchors = Anchors::new(start.linked_anchors(&self.config), anchored);
        // The index contains this anchor, and the provider has the index's last block.
        if let Some(anchor) = start.indexed_anchor {
            anchors.hold(anchor);
        }
        for anchor in anchors.linked.clone() {
            // No header will be linked at the number of this anchor: compare the anchor with the
            // restored blocks.
            if anchor.number < rules.subject.start || Some(anchor.number) <= last {
                match blocks.get(anchor.number) {
                    Some(block) if block.at != anchor => {
                        let (found, of) = (block.at.hash, "the cursor");
                        return Err(Fault::OtherThanAnchor { anchor, found, of }.into());
                    }
                    // The cursor's chain contains the anchor.
                    Some(_) => anchors.hold(anchor),
                    // An earlier run found the anchor, and the anchor's block has been dropped
                    // since.
                    None if anchored == Some(anchor) => anchors.hold(anchor),
                    None => self.actions.push(Action::Note(FollowNote::AnchorNotCompared(anchor))),
                }
            }
        }
        let newer_anchor = start.newer_anchor;
        let mut chain = Chain::resume(rules, blocks, reorg, anchors);
        if let Some(hash) = newer_anchor {
            chain.add_anchor(hash);
        }
        self.started = Some(started_update(&chain, &start.anchors));
        self.stage = Stage::Following(Box::new(chain));
        // The resolved first block is stored before the first update. Otherwise a later run would
        // resolve `latest` to another block and skip the blocks between the two.
        if is_first && self.config.stored {
            self.store_before(Delivery::Started);
        } else {
            self.deliver(Delivery::Started);
        }
        Ok(())
    }

    /// Performs the next step of the followed chain.
    fn follow(&mut self) {
        let Stage::Following(chain) = &mut self.stage else { return };
        let batch = chain.batch();
        // The removal of blocks is delivered first: otherwise removed blocks could be reported as
        // authentic.
        if chain.anchors.is_unreported() && batch != Some(Batch::Reorg) {
            return self.deliver(Delivery::Anchored);
        }
        if let Some(batch) = batch {
            let delivery = Delivery::Batch(batch);
            // Logs must not be delivered before a cursor announces them: if the process were then
            // killed, the next run could not withdraw the logs. Blocks without logs need no such
            // cursor.
            return if self.config.stored && matters(chain, batch) {
                self.store_before(delivery);
            } else {
                self.deliver(delivery);
            };
        }
        if chain.is_at_end() {
            return self.end(Ok(()));
        }
        // The wait after a failure was interrupted only to deliver an anchor.
        if let Some(until) = self.pace.rests_until(self.now) {
            self.waiting = Waiting::Until(until);
            return;
        }
        // Poll the head even while old blocks are processed, to notice a reorganisation.
        if self.pace.poll(self.now) {
            return self.ask(Question::Block(BlockTag::Latest));
        }
        // The number of a newer anchor shows whether the provider is on another chain.
        if !chain.is_tracing()
            && let Some(hash) = chain.anchors.to_ask(self.now)
        {
            return self.ask(Question::Header(hash));
        }
        match chain.want() {
            Want::End => self.end(Ok(())),
            // Every block up to the provider's current head is delivered.
            Want::Head if self.pace.has_seen_head && self.config.once => self.end(Ok(())),
            Want::Head => {
                self.pace.has_seen_head = false;
                self.waiting = Waiting::Until(self.pace.poll_at);
            }
            Want::Answer(question) => self.ask(question),
        }
    }

    fn store(&mut self, cursor: Cursor) -> StoreId {
        self.last_store += 1;
        let id = StoreId(self.last_store);
        self.actions.push(Action::Store(id, cursor));
        self.saved_at = self.now;
        self.is_unsaved = false;
        id
    }

    /// Stores the cursor that announces an update; the update is delivered once the cursor is
    /// durable.
    fn store_before(&mut self, delivery: Delivery) {
        let Stage::Following(chain) = &self.stage else { return };
        let upcoming = match delivery {
            Delivery::Batch(batch) => Some(batch),
            Delivery::Started | Delivery::Anchored => None,
        };
        let cursor = Cursor::before(chain, upcoming);
        self.waiting = Waiting::Stored(self.store(cursor), delivery);
    }

    fn deliver(&mut self, delivery: Delivery) {
        let Stage::Following(chain) = &mut self.stage else { return };
        let update = match delivery {
            Delivery::Started => self.started.take().map(News::Started),
            Delivery::Anchored => chain.anchors.take_unreported().map(News::Anchored),
            Delivery::Batch(batch) => batch_update(chain, batch),
        };
        let Some(update) = update else { return };
        self.last_update += 1;
        let id = UpdateId(self.last_update);
        self.actions.push(Action::Update(id, update));
        self.waiting = Waiting::Acknowledged(id, delivery);
    }

    fn acknowledged(&mut self, delivery: Delivery) {
        let Stage::Following(chain) = &mut self.stage else { return };
        let matters = match delivery {
            Delivery::Started => return,
            // The next stored cursor contains the anchor.
            Delivery::Anchored => false,
            Delivery::Batch(batch) => {
                let matters = matters(chain, batch);
                chain.settle(batch);
                matters
            }
        };
        self.is_unsaved = self.config.stored;
        let is_due = self.now.saturating_sub(self.saved_at) >= SAVE_AFTER;
        if self.config.stored && (matters || is_due) {
            let cursor = Cursor::before(chain, None);
            self.store(cursor);
        }
    }

    /// Ends the follower, after storing all acknowledged progress.
    fn end(&mut self, ended: Result<(), Fault>) {
        if let Stage::Following(chain) = &self.stage
            && self.is_unsaved
        {
            // While an update with logs is unacknowledged, `is_unsaved` is `false`: the cursor that
            // announced this update must not be replaced.
            let cursor = Cursor::before(chain, None);
            self.store(cursor);
        }
        self.waiting = Waiting::Ended;
        self.actions.push(Action::End(ended));
    }
}

/// Returns `true` if an answer may come later: the provider lags or cannot be reached.
fn may_pass(error: &AnswerError) -> bool {
    match error {
        AnswerError::Missing => true,
        AnswerError::Failed(failure) => failure.transient,
        _ => false,
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

/// Returns an error if the cursor belongs to another chain, to other queries or to another first
/// block.
fn check_subject(left: &Subject, config: &Config, from: BlockTag) -> Result<(), StartError> {
    if left.chain_id != config.chain_id {
        let (cursor, chain) = (left.chain_id, config.chain_id);
        return Err(StartError::OtherChain { cursor, chain });
    }
    if left.semantics != config.semantics {
        return Err(StartError::OtherSemantics(left.semantics));
    }
    if queries_of_json(&left.query, left.semantics) != Some(config.queries()) {
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
    let rules = &chain.rules;
    Started {
        start: rules.subject.start,
        from: rules.subject.from,
        to: rules.to,
        resumed: chain.blocks.last_delivered(),
        anchors: anchors.to_vec(),
        index_to: rules.index_to,
    }
}

/// Returns `true` if a batch adds or removes logs, so that a cursor must be stored before and after
/// its delivery.
fn matters(chain: &Chain, batch: Batch) -> bool {
    match batch {
        Batch::Reorg => true,
        Batch::Blocks(count) => {
            chain.blocks.pending().take(count).any(|block| !block.logs().is_empty())
        }
    }
}

fn batch_update(chain: &Chain, batch: Batch) -> Option<News> {
    let finalized = chain.finalized;
    match batch {
        Batch::Reorg => {
            let reorg = chain.reorg.as_ref()?;
            let removed = |block: &Block| {
                let logs = block.logs().iter().rev().cloned();
                logs.map(|log| LocatedLog { removed: true, ..log }).collect::<Vec<_>>()
            };
            let from = chain.rules.subject.from;
            Some(News::Removed(Removed {
                ancestor: reorg.ancestor,
                blocks: reorg.removed.len(),
                logs: reorg.removed.iter().flat_map(removed).collect(),
                last: chain.blocks.last_delivered().filter(|last| last.number >= from),
                finalized,
            }))
        }
        Batch::Blocks(count) => {
            let blocks = || chain.blocks.pending().take(count);
            let last = blocks().last()?.at;
            Some(News::Blocks(NextBlocks {
                last,
                blocks: count,
                logs: blocks().flat_map(|block| block.logs().iter().cloned()).collect(),
                every_log: chain.is_every_log_in_receipts(last.number),
                finalized,
            }))
        }
    }
}
