//! The thread of a follower. The thread asks the nodes for the data that the follower requests,
//! passes updates to the reader, and stores cursors.

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::follow::{
    Action, Answer, Event, Failure, Fault, Follower, Question, QuestionId,
};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::{BlockTag, CompiledQuery};

use super::index::CandidateIndex;
use super::updates::{FollowError, FollowStatus, LogUpdate, Shared};
use crate::anchor::AnchorSource;
use crate::durable_file::DurableFile;
use crate::nodes::ask::once;
use crate::nodes::{Node, RpcError, unix_time};
use crate::provider::{Provider, logs};
use crate::report::Note;
use crate::stop::{Stop, lock};

pub(super) struct Driver {
    provider: Provider,
    /// Index of the node that is asked next. The index changes when a node fails.
    node: usize,
    /// Index of the node that was asked last.
    asked: usize,
    follower: Follower,
    file: Option<DurableFile>,
    /// The index, and the queries whose candidates it returns.
    index: Option<(Box<dyn CandidateIndex>, Vec<CompiledQuery>)>,
    shared: Arc<Shared>,
}

/// Reason why an answer in several parts ended before its last part.
enum Ended {
    Rpc(RpcError),
    /// The follower needs no further parts.
    Enough,
}

impl From<RpcError> for Ended {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl Driver {
    pub(super) fn new(
        provider: Provider,
        follower: Follower,
        file: Option<DurableFile>,
        index: Option<(Box<dyn CandidateIndex>, Vec<CompiledQuery>)>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { provider, node: 0, asked: 0, follower, file, index, shared }
    }

    fn handle(&mut self, event: Event<'_>) -> Vec<Action> {
        self.follower.handle(event, unix_time())
    }

    fn is_stopping(&self) -> bool {
        self.provider.stop().is_set()
    }

    /// Runs until the follower is stopped or ends by itself, and reports the result.
    pub(super) fn run(&mut self) {
        let ended = self.go();
        lock(&self.shared.state).status = self.status();
        self.shared.end(ended);
    }

    fn go(&mut self) -> Result<(), FollowError> {
        let mut actions = VecDeque::from(self.handle(Event::Tick));
        let mut has_stopped = false;
        loop {
            if !has_stopped && self.is_stopping() {
                has_stopped = true;
                // Acknowledgements that were sent before the stop are still stored: without these
                // acknowledgements, the next run would deliver the same updates again. All other
                // pending actions are dropped.
                let acknowledged = lock(&self.shared.state).acknowledged.take();
                if let Some(id) = acknowledged {
                    actions.extend(self.handle(Event::Acknowledged(id)));
                }
                actions.retain(|action| matches!(action, Action::Store(..) | Action::End(_)));
                actions.extend(self.handle(Event::Stop));
            }
            let newer = std::mem::take(&mut lock(&self.shared.state).anchors);
            for hash in newer {
                actions.extend(self.handle(Event::Anchor(hash)));
            }
            lock(&self.shared.state).status = self.status();
            match actions.pop_front() {
                Some(Action::End(ended)) => return ended.map_err(|fault| self.fault(fault)),
                Some(action) => match self.act(action) {
                    Ok(more) => actions.extend(more),
                    Err(error) => {
                        self.store_all();
                        return Err(error);
                    }
                },
                None => {
                    let wait = self.follower.wake_at();
                    let wait = wait.map(|at| at.saturating_sub(unix_time()));
                    self.provider.stop().wait_for(wait, || self.shared.has_event());
                    let id = lock(&self.shared.state).acknowledged.take();
                    actions.extend(self.handle(id.map_or(Event::Tick, Event::Acknowledged)));
                }
            }
        }
    }

    /// Stores the cursor after an error has ended the follower. Errors of this last write are
    /// ignored, because the first error is more useful.
    fn store_all(&mut self) {
        for action in self.handle(Event::Stop) {
            if let (Action::Store(_, cursor), Some(file)) = (action, &self.file) {
                drop(file.write(&cursor.to_json()));
            }
        }
    }

    fn fault(&self, fault: Fault) -> FollowError {
        FollowError::Fault { node: self.asked().name(), fault: Box::new(fault) }
    }

    fn status(&self) -> FollowStatus {
        FollowStatus {
            head: self.follower.head(),
            next: self.follower.next_number(),
            last: self.follower.last(),
            verified: self.follower.num_verified(),
        }
    }

    fn asked(&self) -> &Node {
        &self.provider.nodes()[self.asked]
    }

    /// Switches to the next node for the next request.
    fn change_node(&mut self) {
        self.node = self.others().first().copied().unwrap_or(self.node);
    }

    /// Returns the other nodes in the order in which to ask them: those that rest come last.
    fn others(&self) -> Vec<usize> {
        let nodes = self.provider.nodes();
        let mut others: Vec<usize> = (self.node + 1..nodes.len()).chain(0..self.node).collect();
        others.sort_by_cached_key(|index| nodes[*index].rests());
        others
    }

    /// Returns a node that sends each request once: the follower repeats a failed question itself, and
    /// another node may answer the question at once.
    fn once(&self, index: usize) -> Node {
        let nodes = self.provider.nodes();
        once(nodes, &nodes[index])
    }

    fn act(&mut self, action: Action) -> Result<Vec<Action>, FollowError> {
        match action {
            Action::Ask(id, question) => self.ask(id, &question),
            Action::Store(id, cursor) => {
                if let Some(file) = &self.file {
                    file.write(&cursor.to_json())?;
                }
                Ok(self.handle(Event::Stored(id)))
            }
            Action::Update(id, news) => {
                // With a cursor file, the caller need not store a cursor.
                let cursor = if self.file.is_some() { None } else { self.follower.cursor() };
                self.shared.give(LogUpdate { id, news, cursor });
                Ok(Vec::new())
            }
            Action::Note(note) => {
                if !self.is_stopping() {
                    self.asked().note(&Note::Follow(note));
                }
                Ok(Vec::new())
            }
            // The enum is `non_exhaustive`. There are no other actions in this version.
            _ => Ok(Vec::new()),
        }
    }

    /// Asks a question of the follower and passes the answer to it. Returns the follower's actions.
    fn ask(&mut self, id: QuestionId, question: &Question) -> Result<Vec<Action>, FollowError> {
        self.asked = self.node;
        let node = self.once(self.node);
        let answer = match question {
            // Not every node knows a finalised block. A failure is passed on as the answer, without
            // asking another node.
            Question::Block(BlockTag::Finalized) => {
                let block = node.block(BlockTag::Finalized).map(Answer::Block);
                let answer = block.unwrap_or_else(|error| Answer::Failed(failure(&error)));
                return Ok(self.answer(id, Ok(answer)));
            }
            Question::Block(tag) => {
                let at = self.first_that_has(|node| node.block(*tag).map(Some));
                at.map(|at| at.map_or(Answer::Complete, Answer::Block))
            }
            Question::Header(hash) => {
                let header = self.first_that_has(|node| node.header_by_hash(*hash));
                let answer = header.as_ref().map(|it| Answer::Header(it.as_ref()));
                return Ok(self.answer(id, answer.map_err(Clone::clone)));
            }
            Question::IndexedBlock(number) => {
                Ok(Answer::Block(self.index(|index, _| index.block(*number))?))
            }
            Question::Candidates(numbers) => {
                let (candidates, end) =
                    self.index(|index, queries| index.candidates(queries, numbers.clone()))?;
                let hashes: Vec<_> = candidates.iter().map(|block| block.hash).collect();
                let mut headers = Vec::with_capacity(hashes.len());
                let came = node.headers_of(&hashes, |header| headers.push(header));
                return Ok(self.answer(id, came.map(|()| Answer::Candidates(&headers, end))));
            }
            Question::Headers(numbers) => return Ok(self.ask_headers(id, numbers)),
            Question::Receipts(blocks) => {
                let mut actions = Vec::new();
                let mut is_whole = true;
                let came = node.receipts_of(blocks, |at: BlockRef, receipts| {
                    is_whole &= matches!(receipts, Ok(Some(_)));
                    let receipts = receipts.as_ref().map(Option::as_ref).map_err(failure);
                    actions.extend(self.answer(id, Ok(Answer::Receipts(at, receipts))));
                    self.go_on(id)
                });
                if !is_whole {
                    self.change_node();
                }
                actions.extend(self.complete(id, came));
                return Ok(actions);
            }
            Question::ReceiptsEachWay(at) => {
                let mut actions = Vec::new();
                // All methods of all nodes are tried, because another node may have the right
                // receipts.
                for index in 0..self.provider.nodes().len() {
                    self.asked = index;
                    self.once(index).receipts_by_each_method(*at, |method, receipts| {
                        let receipts = receipts.as_ref().map(Option::as_ref).map_err(failure);
                        actions.extend(self.answer(id, Ok(Answer::ReceiptsBy(method, receipts))));
                        self.go_on(id).is_err()
                    });
                    if self.go_on(id).is_err() {
                        break;
                    }
                }
                actions.extend(self.answer(id, Ok(Answer::Complete)));
                return Ok(actions);
            }
            Question::Transactions(blocks) => return Ok(self.ask_transactions(id, blocks)),
            // The enum is `non_exhaustive`. There are no other questions in this version.
            other => Ok(Answer::Failed(Failure::of_answer(format!("{other} is not supported")))),
        };
        Ok(self.answer(id, answer))
    }

    /// Requests transactions from the nodes, beginning with the current node, until the
    /// transactions of each block are right.
    fn ask_transactions(&mut self, id: QuestionId, blocks: &[BlockRef]) -> Vec<Action> {
        // Not repeated even by a single node: the follower must not miss a new block for a hash.
        let nodes = self.provider.nodes().iter().map(|node| node.with_retries(0));
        let nodes: Vec<Node> = nodes.collect();
        let mut actions = Vec::new();
        // The current node stays the node that is asked for headers and receipts, because it served
        // those.
        let came = logs::ask_transactions(&nodes, self.node, blocks, |index, at, received| {
            self.asked = index;
            let received = received.as_ref().map(Option::as_ref).map_err(failure);
            actions.extend(self.answer(id, Ok(Answer::Transactions(at, received))));
            let is_right = !self.follower.wants_transactions(at);
            // The question is no longer open once the last transactions were right.
            self.go_on(id).map(|()| is_right)
        });
        actions.extend(self.complete(id, came));
        actions
    }

    /// Requests headers from the nodes, beginning with the current node. The next node is asked if
    /// a node fails before its first header.
    fn ask_headers(&mut self, id: QuestionId, numbers: &RangeInclusive<u64>) -> Vec<Action> {
        let nodes = self.provider.nodes().to_vec();
        let mut actions = Vec::new();
        let mut left = nodes.len();
        loop {
            let mut came_any = false;
            self.asked = self.node;
            let came = self.once(self.node).headers(numbers.clone(), |headers| {
                came_any = true;
                actions.extend(self.answer(id, Ok(Answer::Headers(&headers))));
                self.go_on(id)
            });
            left -= 1;
            match came {
                Err(Ended::Rpc(error)) if !came_any && left > 0 && !self.is_stopping() => {
                    nodes[self.node].note(&Note::NoChain(error.to_string()));
                    self.change_node();
                }
                came => {
                    actions.extend(self.complete(id, came));
                    return actions;
                }
            }
        }
    }

    /// Asks the nodes in turn, beginning with the current node, and returns the first answer found.
    /// The node that gave this answer becomes the current node. If no node has an answer, returns
    /// the result of the first node.
    fn first_that_has<T>(
        &mut self,
        ask: impl Fn(&Node) -> Result<Option<T>, RpcError>,
    ) -> Result<Option<T>, RpcError> {
        let nodes = self.provider.nodes();
        let first = ask(&self.once(self.node));
        if matches!(first, Ok(Some(_)) | Err(RpcError::Stopped)) {
            return first;
        }
        for index in self.others() {
            match ask(&self.once(index)) {
                Ok(Some(found)) => {
                    if let Err(error) = first {
                        nodes[self.node].note(&Note::NoChain(error.to_string()));
                    }
                    (self.node, self.asked) = (index, index);
                    return Ok(Some(found));
                }
                Err(RpcError::Stopped) => return Err(RpcError::Stopped),
                Ok(None) | Err(_) => {}
            }
        }
        first
    }

    fn index<T>(
        &mut self,
        ask: impl FnOnce(&mut dyn CandidateIndex, &[CompiledQuery]) -> Result<T, String>,
    ) -> Result<T, FollowError> {
        let none = || FollowError::Index("there is no index".into());
        let (index, queries) = self.index.as_mut().ok_or_else(none)?;
        ask(&mut **index, queries).map_err(FollowError::Index)
    }

    fn answer(&mut self, id: QuestionId, answer: Result<Answer<'_>, RpcError>) -> Vec<Action> {
        if self.is_stopping() {
            return Vec::new();
        }
        let answer = answer.unwrap_or_else(|error| {
            self.change_node();
            Answer::Failed(failure(&error))
        });
        self.handle(Event::Answer(id, answer))
    }

    /// Ends an answer in several parts.
    fn complete(&mut self, id: QuestionId, came: Result<(), Ended>) -> Vec<Action> {
        match came {
            Ok(()) => self.answer(id, Ok(Answer::Complete)),
            Err(Ended::Rpc(error)) => self.answer(id, Err(error)),
            // The follower has already closed the question.
            Err(Ended::Enough) => Vec::new(),
        }
    }

    /// Returns an error if further parts of the answer are not needed: after a stop, or when the
    /// follower has closed the question.
    fn go_on(&self, id: QuestionId) -> Result<(), Ended> {
        if self.is_stopping() || self.follower.question() != Some(id) {
            return Err(Ended::Enough);
        }
        Ok(())
    }
}

fn failure(error: &RpcError) -> Failure {
    let reason = error.to_string();
    if error.origin().is_transient() {
        Failure::of_connection(reason)
    } else {
        Failure::of_answer(reason)
    }
}

/// Shortest interval between two calls, so that a source that returns 0 does not keep a core busy.
const SHORTEST: Duration = Duration::from_millis(100);

/// Asks an anchor source again and again, until the follower ends.
pub(super) struct NewerAnchors {
    pub(super) source: Arc<dyn AnchorSource>,
    /// The blocks that the source returned last.
    pub(super) known: Vec<B256>,
    /// Node to which notes are attributed.
    pub(super) node: Node,
    pub(super) shared: Arc<Shared>,
    /// Set when the follower ends.
    pub(super) stop: Stop,
}

impl NewerAnchors {
    /// Starts the thread, unless the source never returns a newer block.
    ///
    /// The thread is not joined: a call of the source in progress may take long, and must delay
    /// neither an update nor a shutdown.
    pub(super) fn spawn(self) -> io::Result<()> {
        if self.source.refresh().is_none() {
            return Ok(());
        }
        let thread = thread::Builder::new().name("chainsieve-anchor".into());
        thread.spawn(move || self.run()).map(drop)
    }

    fn run(mut self) {
        while let Some(interval) = self.source.refresh() {
            if self.stop.wait_timeout(interval.max(SHORTEST)) {
                return;
            }
            let blocks = catch_unwind(AssertUnwindSafe(|| self.source.blocks()));
            let blocks = blocks.unwrap_or_else(|_| Err("the anchor source has panicked".into()));
            if self.stop.is_set() {
                return;
            }
            match blocks {
                Ok(blocks) => {
                    let is_newer = |block: &B256| !self.known.contains(block);
                    let newer: Vec<_> = blocks.iter().copied().filter(is_newer).collect();
                    self.known = blocks;
                    if !newer.is_empty() {
                        lock(&self.shared.state).anchors = newer;
                        self.stop.ring();
                    }
                }
                Err(error) => self.node.note(&Note::NoNewerAnchor(error)),
            }
        }
    }
}
