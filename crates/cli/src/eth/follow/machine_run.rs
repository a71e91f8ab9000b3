//! A machine with whoever reads its lines, for tests.

use std::convert::Infallible;

use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log_query::{BlockTag, LogQuery, Semantics};

use super::fault::{Fault, Refused};
use super::lines;
use super::machine::Machine;
use super::messages::{Batch, Rules, Seen, Want};
use super::setup;
use super::state::{self, Subject};
use super::world::{ASKED, Consumer, World};

pub(super) const KEEP: usize = 12;
/// An answer without anything odd.
pub(super) const TRUE: u8 = 254;

pub(super) fn rules(bloom: BloomSoundness) -> Rules {
    Rules {
        query: LogQuery::new().address(ASKED),
        semantics: Semantics::Geth,
        profile: ChainProfile::assumed("test", bloom, ReceiptsScope::EveryLog),
        start: 0,
        from: 0,
        to: None,
        confirmations: 0,
        keep: KEEP,
        index_to: None,
        anchors: Vec::new(),
    }
}

fn subject(rules: &Rules) -> Subject {
    let Rules { start, from, .. } = *rules;
    Subject { chain_id: 1, query: "{}".into(), semantics: "geth".into(), start, from }
}

/// A machine, whoever reads its lines, and the file.
pub(super) struct Run {
    pub(super) machine: Machine,
    /// Where it is to start.
    from: Option<BlockTag>,
    /// The lowest block that it is to link.
    lowest: u64,
    /// The first block, as the first line had it.
    pub(super) told: Option<u64>,
    pub(super) consumer: Consumer,
    pub(super) file: Option<String>,
    /// A kill that comes in the midst of the next batch.
    pub(super) kill: Option<KillIn>,
    /// The most blocks that were in memory.
    pub(super) most: usize,
}

/// How far into a batch a kill comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum KillIn {
    /// The file is written, and no line is out.
    BeforeLines,
    /// So many bytes are out.
    Lines(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Went {
    On,
    /// Nothing to do but to wait.
    Idle,
}

/// When a process is killed that has hardly begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KillAtStart {
    BeforeFile,
    BeforeLine,
    AfterLine,
}

impl Run {
    /// From the block that the rules say.
    pub(super) fn new(world: &World, rules: Rules) -> Self {
        let from = Some(BlockTag::Number(rules.from));
        let mut run = Self::before_start(rules, from);
        run.start(world, None);
        run
    }

    pub(super) fn before_start(rules: Rules, from: Option<BlockTag>) -> Self {
        Self {
            lowest: rules.start,
            machine: Machine::new(rules),
            from,
            told: None,
            consumer: Consumer::default(),
            file: None,
            kill: None,
            most: 0,
        }
    }

    /// A process starts, as the command does.
    pub(super) fn start(&mut self, world: &World, kill: Option<KillAtStart>) {
        let (left_of, left) =
            self.file.as_deref().map(|text| state::parse(text).expect("what was written")).unzip();
        let head = |tag| {
            Ok::<_, Infallible>(match tag {
                BlockTag::Finalized | BlockTag::Safe => world.finalized(),
                _ => world.head(),
            })
        };
        let Ok(from) = setup::first_block(left_of.as_ref(), self.from, head);
        let mut rules = self.machine.rules().clone();
        rules.start = left_of.as_ref().map_or(from.min(self.lowest), |left| left.start);
        rules.from = from;
        if let Some(left_of) = left_of {
            assert_eq!(left_of, subject(&rules));
        }
        let left = left.unwrap_or_default();
        self.machine = Machine::resume(rules, left.blocks, left.reorg, left.anchored);
        if kill == Some(KillAtStart::BeforeFile) {
            return;
        }
        if self.file.is_none() {
            self.save(None);
        }
        if kill != Some(KillAtStart::BeforeLine) {
            assert_eq!(*self.told.get_or_insert(from), from, "it starts elsewhere than it said");
        }
    }

    /// The process ends here, and another one reads the file.
    pub(super) fn kill(&mut self, world: &World) {
        self.consumer.killed();
        self.start(world, None);
    }

    pub(super) fn save(&mut self, batch: Option<Batch>) {
        self.file = Some(
            state::text(&self.machine, &subject(self.machine.rules()), batch).expect("written"),
        );
    }

    /// Prints what is ready, as the driver does.
    pub(super) fn print(&mut self, world: &World) {
        while let Some(batch) = self.machine.batch() {
            let (text, logs) = lines::of_batch(&self.machine, batch, true);
            let matters = logs > 0 || batch == Batch::Reorg;
            if matters {
                self.save(Some(batch));
            }
            if let Some(kill) = self.kill.take() {
                if let KillIn::Lines(bytes) = kill {
                    // Whole lines: what a reader sees of half a line is nothing.
                    let end = text[..bytes.min(text.len())].rfind('\n').map_or(0, |end| end + 1);
                    self.consumer.read(&text[..end]);
                }
                self.kill(world);
                return;
            }
            self.consumer.read(&text);
            self.machine.settle(batch);
            if matters {
                self.save(None);
            }
            self.check(world);
        }
        self.most = self.most.max(self.machine.blocks().len());
    }

    /// What was printed are exactly the logs of the chain of the last printed block.
    pub(super) fn check(&self, world: &World) {
        let rules = self.machine.rules();
        let unsure = self.machine.blocks().pending().any(|block| block.unsure);
        let reorganising = self.machine.pending_reorg().is_some();
        let Some(last) = self.machine.blocks().last_printed() else {
            assert!(self.consumer.logs.is_empty() || self.consumer.lenient);
            return;
        };
        if !unsure && !reorganising {
            assert_eq!(self.consumer.logs, world.logs_up_to(last, rules.from));
        }
        if last.number >= rules.from {
            assert_eq!(self.consumer.checkpoint, Some(last));
        }
    }

    /// One question and its answer. `odd` makes the answer less than it should be.
    pub(super) fn step(&mut self, world: &World, odd: u8) -> Result<Went, Fault> {
        self.print(world);
        let result = match self.machine.want() {
            Want::End => return Ok(Went::Idle),
            Want::Head => {
                // A node that lags has an older head.
                let lag = if odd.is_multiple_of(5) { u64::from(odd / 5 % 4) } else { 0 };
                let head = world.head();
                let number = head.number.saturating_sub(lag);
                let head = world.at(number).map_or(head, |block| block.at);
                let before = self.machine.blocks().last();
                let seen = self.machine.on_head(head);
                if seen == Seen::Behind || before == Some(head) {
                    return Ok(Went::Idle);
                }
                Ok(())
            }
            Want::Headers(numbers) => {
                let mut headers: Vec<_> =
                    numbers.map_while(|number| Some(world.at(number)?.header.clone())).collect();
                if odd == 1 && headers.len() > 2 {
                    // Two nodes behind one address: the last is of another block.
                    let last = headers.len() - 1;
                    headers[last] = headers[0].clone();
                }
                if headers.is_empty() {
                    self.machine.forget_head();
                }
                self.machine.on_headers(&headers)
            }
            Want::Index(numbers) => {
                // Every third block besides the right ones: filters say "maybe" too often.
                let end = world.at(*numbers.end()).expect("final").at;
                let asked = numbers
                    .filter_map(|number| world.at(number))
                    .filter(|block| !block.asked.is_empty() || block.at.number.is_multiple_of(3));
                let headers: Vec<_> = asked.map(|block| block.header.clone()).collect();
                self.machine.on_index(&headers, end);
                Ok(())
            }
            Want::Check(number) => match world.at(number) {
                Some(block) if odd != 2 => self.machine.on_check(&block.header),
                _ => {
                    self.machine.forget_head();
                    Ok(())
                }
            },
            // Of what left its chain the node has neither headers nor receipts.
            Want::Header(at) => match world.at(at.number).filter(|block| block.at == at) {
                Some(block) if odd != 2 => self.machine.on_header(&block.header),
                _ => {
                    self.machine.forget_head();
                    Ok(())
                }
            },
            Want::Receipts(blocks) => {
                let mut result = Ok(());
                for at in blocks {
                    let Some(block) = world.at(at.number).filter(|block| block.at == at) else {
                        self.machine.doubt(at);
                        break;
                    };
                    if world.withheld.contains(&at.hash) {
                        self.machine.doubt(at);
                        break;
                    }
                    let other = &world.blocks[&world.canonical[0]].receipts;
                    result = match odd {
                        3 => break,
                        4 if block.receipts != *other => self.machine.on_receipts(at, other),
                        _ => self.machine.on_receipts(at, &block.receipts),
                    };
                    if result.is_err() {
                        break;
                    }
                }
                if odd == 4 {
                    // The driver looks for another head before it tries again.
                    self.machine.on_head(world.head());
                }
                result
            }
        };
        self.print(world);
        match result {
            Ok(()) => Ok(Went::On),
            Err(Refused::Answer(_)) => {
                self.machine.forget_head();
                Ok(Went::On)
            }
            Err(Refused::Fault(fault)) => Err(fault),
        }
    }

    /// Goes on with true answers until there is nothing to do.
    pub(super) fn settle(&mut self, world: &World) -> Result<(), Fault> {
        for _ in 0..10_000 {
            if self.step(world, TRUE)? == Went::Idle {
                return Ok(());
            }
        }
        panic!("it does not come to an end: {:?}", self.machine.want());
    }
}

pub(super) fn settled(world: &World, rules: Rules) -> Run {
    let mut run = Run::new(world, rules);
    run.settle(world).expect("no fault");
    run
}
