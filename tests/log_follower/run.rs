//! A follower with its provider, its storage and the reader of its updates.

use std::collections::VecDeque;
use std::time::Duration;

use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::follow::{
    Action, Answer, Config, Cursor, Event, Failure, Fault, FollowNote, Follower, News, Question,
    QuestionId, StoreId, UpdateId,
};
use chainsieve::eth::header::{BlockRef, HeaderBuf};
use chainsieve::eth::log_query::{BlockTag, LogQuery};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve::eth::transactions::BlockTransactions;

use testkit::eth::rpc_methods::{RpcBlock, receipts_json};
use testkit::eth::world::{ASKED, Reader, World};

/// Number of blocks that the follower keeps, and depth of the deepest reorganisation that it
/// follows.
pub(crate) const KEEP: usize = 12;
/// The value of `odd` for an answer without a fault.
pub(crate) const TRUE: u8 = 254;
/// Values of `odd` for faults of an answer with transactions.
pub(crate) const WRONG_TRANSACTIONS: u8 = 4;
pub(crate) const NO_TRANSACTIONS: u8 = 9;
pub(crate) const REFUSED_TRANSACTIONS: u8 = 11;
pub(crate) const NEXT_HAS_THEM: u8 = 12;

pub(crate) fn config(bloom: BloomSoundness) -> Config {
    let profile = ChainProfile::assumed("test", bloom, ReceiptsScope::EveryLog);
    let mut config = Config::new(1, profile, LogQuery::new().from_block(0).address(ASKED));
    config.keep = KEEP;
    config.tries = u32::MAX;
    config
}

/// The moment of the next kill.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kill {
    /// At the moment when the next cursor is to be stored, before it is stored.
    BeforeStore,
    /// At the moment when the next cursor is stored, before an update is given out.
    AfterStore,
    /// At the moment when the reader has this number of logs of the next update.
    InUpdate(usize),
    /// At the moment when the reader has the next update, and has not acknowledged it.
    AfterUpdate,
}

/// The state of a process, and the state that outlives it.
pub(crate) struct Run {
    config: Config,
    pub(crate) follower: Follower,
    actions: VecDeque<Action>,
    asked: Option<(QuestionId, Question)>,
    stored: Option<String>,
    /// `true` if cursors become durable only when something waits for them.
    pub(crate) stores_late: bool,
    /// Time that an answer takes.
    pub(crate) latency: Duration,
    late: Vec<(StoreId, String)>,
    /// `true` if the node returns headers of blocks that are not on its chain.
    pub(crate) remembers: bool,
    /// The transaction hash that the node invents in each receipt.
    pub(crate) claim: Option<B256>,
    /// Block, transaction index, and transaction hashes (proven and claimed) of each log given out.
    pub(crate) hashes: Vec<(B256, u64, Option<B256>, Option<B256>)>,
    pub(crate) reader: Reader,
    /// The first block, as the first update gives it.
    pub(crate) told: Option<u64>,
    pub(crate) anchored: Vec<BlockRef>,
    /// The last block of each update, and `true` if the update has all logs that nodes return.
    pub(crate) every_log: Vec<(u64, bool)>,
    pub(crate) kill: Option<Kill>,
    pub(crate) ended: Option<Result<(), Fault>>,
    pub(crate) notes: Vec<FollowNote>,
    /// The largest number of blocks kept.
    pub(crate) most: usize,
    now: Duration,
}

impl Run {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            follower: Follower::new(config.clone(), None).unwrap(),
            config,
            actions: VecDeque::new(),
            asked: None,
            stored: None,
            stores_late: false,
            latency: Duration::ZERO,
            late: Vec::new(),
            remembers: false,
            claim: None,
            hashes: Vec::new(),
            reader: Reader::default(),
            told: None,
            anchored: Vec::new(),
            every_log: Vec::new(),
            kill: None,
            ended: None,
            notes: Vec::new(),
            most: 0,
            now: Duration::from_secs(1),
        }
    }

    /// Kills the process, and starts another one with the stored cursor.
    pub(crate) fn kill(&mut self) {
        let cursor = self.stored.as_deref().map(|text| Cursor::from_json(text).unwrap());
        if let (Some(cursor), Some(text)) = (&cursor, &self.stored) {
            assert_eq!(&cursor.to_json(), text);
        }
        self.follower = Follower::new(self.config.clone(), cursor).unwrap();
        self.actions.clear();
        self.late.clear();
        self.asked = None;
        self.kill = None;
        // A cursor that is stored together with the logs tells exactly which logs were given out.
        self.reader.lenient = self.config.stored;
    }

    /// Kills the process, and starts another one with another configuration.
    pub(crate) fn resume(&mut self, config: Config) {
        self.config = config;
        self.kill();
    }

    fn handle(&mut self, event: Event<'_>) {
        let actions = self.follower.handle(event, self.now);
        self.actions.extend(actions);
        self.most = self.most.max(self.follower.num_kept());
    }

    /// Tells the follower of a newer anchor.
    pub(crate) fn anchor(&mut self, hash: B256) {
        self.handle(Event::Anchor(hash));
        self.act();
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    pub(crate) fn question(&self) -> Option<&Question> {
        self.asked.as_ref().map(|(_, question)| question)
    }

    /// Performs the actions of the follower.
    fn act(&mut self) {
        while let Some(action) = self.actions.pop_front() {
            match action {
                Action::Ask(id, question) => self.asked = Some((id, question)),
                Action::Store(id, cursor) => {
                    if let Some(Kill::BeforeStore) = self.kill {
                        return self.kill();
                    }
                    self.late.push((id, cursor.to_json()));
                    if !self.stores_late {
                        self.store();
                    }
                    if let Some(Kill::AfterStore) = self.kill {
                        return self.kill();
                    }
                }
                Action::Update(id, update) => {
                    if self.update(id, &update) {
                        return self.kill();
                    }
                }
                Action::Note(note) => self.notes.push(note),
                Action::End(ended) => {
                    assert!(self.actions.is_empty(), "nothing comes after the end");
                    self.store();
                    self.ended = Some(ended);
                }
                other => panic!("an unknown action: {other:?}"),
            }
        }
    }

    /// Gives an update to the reader. Returns `true` if the process is killed then.
    fn update(&mut self, id: UpdateId, update: &News) -> bool {
        if !self.config.stored {
            // The cursor is stored in one transaction with the logs.
            if matches!(self.kill, Some(Kill::BeforeStore | Kill::InUpdate(_))) {
                return true;
            }
            self.stored = self.follower.cursor().map(|cursor| cursor.to_json());
        }
        if let News::Started(started) = update {
            let told = *self.told.get_or_insert(started.from);
            assert_eq!(told, started.from, "the first block has changed");
        }
        if let News::Anchored(anchor) = update {
            self.anchored.push(*anchor);
        }
        if let (News::Removed(removed), Some(anchor)) = (update, self.anchored.last()) {
            let ancestor = removed.ancestor.unwrap();
            assert!(ancestor.number >= anchor.number, "blocks up to an anchor never leave");
        }
        if let News::Blocks(blocks) = update {
            for log in &blocks.logs {
                let hashes = (log.transaction_hash, log.claimed_transaction_hash);
                self.hashes.push((log.block_hash, log.transaction_index, hashes.0, hashes.1));
            }
            self.every_log.push((blocks.last.number, blocks.every_log));
        }
        match self.kill {
            Some(Kill::InUpdate(most)) => self.reader.read(update, most),
            _ => self.reader.read(update, usize::MAX),
        }
        if matches!(self.kill, Some(Kill::InUpdate(_) | Kill::AfterUpdate)) {
            return true;
        }
        self.handle(Event::Acknowledged(id));
        false
    }

    fn store(&mut self) {
        for (id, text) in std::mem::take(&mut self.late) {
            self.stored = Some(text);
            self.handle(Event::Stored(id));
        }
    }

    fn answer(&mut self, id: QuestionId, answer: Answer<'_>) {
        self.handle(Event::Answer(id, answer));
    }

    /// Checks that the logs given out are exactly those of the chain up to the last block, and that
    /// each of their transaction hashes is the true one.
    fn check(&self, world: &World) {
        for (block, index, proven, _) in &self.hashes {
            let index = usize::try_from(*index).unwrap();
            assert!(proven.is_none_or(|proven| proven == world.blocks[block].hashes[index]));
        }
        if let (Some(last), Some(from), false) = (self.reader.last, self.told, self.reader.lenient)
        {
            assert_eq!(self.reader.logs, world.logs_up_to(last, from));
        }
    }

    /// Answers one question. `odd` selects a fault of the answer.
    pub(crate) fn step(&mut self, world: &World, odd: u8) {
        self.act();
        if self.ended.is_some() {
            return;
        }
        self.now += self.latency;
        let Some((id, question)) = self.asked.take() else {
            if !self.late.is_empty() {
                self.store();
            } else if let Some(at) = self.follower.wake_at() {
                self.now = self.now.max(at);
                self.handle(Event::Tick);
            } else {
                self.handle(Event::Tick);
            }
            self.act();
            return self.check(world);
        };
        match &question {
            Question::Block(tag) => self.block(world, id, *tag, odd),
            Question::Headers(numbers) => {
                let mut headers: Vec<_> = numbers
                    .clone()
                    .map_while(|number| Some(world.at(number)?.header.clone()))
                    .collect();
                if odd == 1 && headers.len() > 2 {
                    // Two nodes share one address, and the last header is that of another block.
                    let last = headers.len() - 1;
                    headers[last] = headers[0].clone();
                }
                for part in headers.chunks(3) {
                    self.answer(id, Answer::Headers(part));
                }
                self.answer(id, Answer::Complete);
            }
            Question::Header(hash) => {
                // The node has neither headers nor receipts of blocks that left its chain.
                let has = self.remembers || world.canonical.contains(hash);
                let block = world.blocks.get(hash).filter(|_| has);
                let header = match odd {
                    2 => None,
                    8 => Some(&world.at(0).unwrap().header),
                    _ => block.map(|block| &block.header),
                };
                self.answer(id, Answer::Header(header));
            }
            Question::Receipts(blocks) => self.receipts(world, id, blocks, odd),
            Question::Transactions(blocks) => self.transactions(world, id, blocks, odd),
            Question::ReceiptsEachWay(at) => {
                let other = &world.blocks[&world.canonical[0]].receipts;
                let right = receipts(world, *at);
                // Otherwise no method returns receipts.
                if odd == 5 || odd == TRUE {
                    self.answer(id, Answer::ReceiptsBy("a", Ok(Some(other))));
                    self.answer(id, Answer::ReceiptsBy("b", Ok(right)));
                }
                // If the receipts were right, this answer comes too late.
                self.answer(id, Answer::Complete);
            }
            Question::Candidates(numbers) => {
                // Add every third block, because blooms have false positives.
                let end = world.at(*numbers.end()).unwrap().at;
                let asked = numbers
                    .clone()
                    .filter_map(|number| world.at(number))
                    .filter(|block| !block.asked.is_empty() || block.at.number.is_multiple_of(3));
                let headers: Vec<HeaderBuf> = asked.map(|block| block.header.clone()).collect();
                self.answer(id, Answer::Candidates(&headers, end));
            }
            Question::IndexedBlock(number) => {
                self.answer(id, Answer::Block(world.at(*number).unwrap().at));
            }
            other => panic!("an unknown question: {other}"),
        }
        // An answer to a question that is not open changes nothing.
        if odd == 7 {
            self.answer(QuestionId(id.0.wrapping_sub(1)), Answer::Header(None));
        }
        self.act();
        self.check(world);
    }

    fn block(&mut self, world: &World, id: QuestionId, tag: BlockTag, odd: u8) {
        if odd == 6 {
            let failure = Failure::of_connection("no connection");
            return self.answer(id, Answer::Failed(failure));
        }
        let at = match tag {
            BlockTag::Latest => {
                // A node that lags has an older head.
                let lag = if odd.is_multiple_of(5) { u64::from(odd / 5 % 4) } else { 0 };
                let head = world.head();
                world.at(head.number.saturating_sub(lag)).map_or(head, |block| block.at)
            }
            BlockTag::Number(number) => world.at(number).unwrap().at,
            _ => world.called_final.unwrap_or_else(|| world.finalized()),
        };
        self.answer(id, Answer::Block(at));
    }

    fn receipts(&mut self, world: &World, id: QuestionId, blocks: &[BlockRef], odd: u8) {
        let other = &world.blocks[&world.canonical[0]].receipts;
        for &at in blocks {
            let claimed = self.claim.map(|claim| {
                let block = RpcBlock::from(&world.blocks[&at.hash]);
                let json = receipts_json(&block, |_| claim).to_string();
                BlockReceipts::from_json(&json).unwrap()
            });
            let answer = match odd {
                // The answer ends early.
                3 => break,
                // The receipts are those of another block.
                4 => Ok(Some(other)),
                6 => Err(Failure::of_connection("no connection")),
                _ => Ok(receipts(world, at).map(|receipts| claimed.as_ref().unwrap_or(receipts))),
            };
            self.answer(id, Answer::Receipts(at, answer));
        }
        self.answer(id, Answer::Complete);
    }

    fn transactions(&mut self, world: &World, id: QuestionId, blocks: &[BlockRef], odd: u8) {
        let of = |at: BlockRef| {
            let is_there = world.canonical.contains(&at.hash);
            let encodings = is_there.then(|| world.blocks[&at.hash].transactions.clone());
            encodings.map(BlockTransactions::from_encodings)
        };
        let other = BlockTransactions::from_encodings(vec![Bytes::from_static(&[0xc0])]);
        for &at in blocks {
            // The first provider's answer is wrong, the second one's is right.
            if odd == NEXT_HAS_THEM {
                self.answer(id, Answer::Transactions(at, Ok(Some(&other))));
            }
            let of_block = of(at);
            let answer = match odd {
                // The answer ends early.
                3 => break,
                WRONG_TRANSACTIONS => Ok(Some(&other)),
                6 => Err(Failure::of_connection("no connection")),
                NO_TRANSACTIONS => Ok(None),
                REFUSED_TRANSACTIONS => Err(Failure::of_answer("not served")),
                _ => Ok(of_block.as_ref()),
            };
            self.answer(id, Answer::Transactions(at, answer));
        }
        // If all transactions were right, this answer comes too late.
        self.answer(id, Answer::Complete);
    }

    /// Steps with true answers until everything is given out, or the follower ends.
    pub(crate) fn settle(&mut self, world: &World) {
        let last = world.head().number.checked_sub(self.config.confirmations);
        let last = last.and_then(|last| Some(world.at(last)?.at));
        let mut idle = 0;
        for _ in 0..10_000 {
            self.step(world, TRUE);
            if self.ended.is_some() {
                return;
            }
            let is_told = self.told.is_some_and(|from| last.is_none_or(|last| last.number < from));
            idle += u32::from(self.asked.is_none() && self.actions.is_empty());
            let is_given_out = self.reader.last == last && self.follower.last() == last;
            // If the range begins after the last block, nothing is given out. Then 20 idle steps
            // show that nothing follows.
            if self.told.is_some() && (is_given_out || is_told && idle > 20) {
                return;
            }
        }
        panic!("the follower does not settle: {:?}", self.notes.last());
    }
}

fn receipts(world: &World, at: BlockRef) -> Option<&BlockReceipts> {
    let is_there = world.canonical.contains(&at.hash) && !world.withheld.contains(&at.hash);
    is_there.then(|| &world.blocks[&at.hash].receipts)
}

pub(crate) fn settled(world: &World, config: Config) -> Run {
    let mut run = Run::new(config);
    run.settle(world);
    run
}
