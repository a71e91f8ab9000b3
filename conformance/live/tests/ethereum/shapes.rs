//! Blocks of every shape that matters for logs.

use chainsieve::alloy_primitives::{Address, B256};
use serde_json::Value;

use super::{Log, creation_with, runner, script};
use crate::anvil::Anvil;
use testkit::Rng;

/// A chain that a test builds: the runners, the recurring topics, and the random numbers.
pub(crate) struct Chain {
    pub(crate) runners: Vec<Address>,
    lenient: Address,
    /// Topics that many logs share; other topics occur in one log only.
    pub(crate) topics: Vec<B256>,
    pub(crate) rng: Rng,
}

/// Content of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Empty,
    /// A plain transfer: a receipt without logs.
    Plain,
    /// One log with this number of topics.
    One(usize),
    /// One log with long data.
    Long,
    /// This number of transactions, each with logs.
    Several(usize),
    /// All runners in one block, with the same topics.
    EveryAddress,
    /// This number of logs with unique topics: a crowded bloom.
    Full(usize),
    /// A failed transaction that had emitted logs, between two successful ones.
    Failed,
    /// A successful transaction whose inner call reverts its logs.
    Undone,
    /// A contract that emits logs during its deployment.
    Creation,
}

/// Each shape at least once.
pub(crate) const STEPS: [Step; 18] = [
    Step::Empty,
    Step::Plain,
    Step::One(0),
    Step::One(1),
    Step::One(2),
    Step::One(3),
    Step::One(4),
    Step::Long,
    Step::Several(2),
    Step::Several(7),
    Step::EveryAddress,
    Step::Full(40),
    Step::Full(120),
    Step::Failed,
    Step::Undone,
    Step::Creation,
    Step::Empty,
    Step::Several(3),
];

impl Chain {
    /// Deploys the runners.
    pub(crate) fn begin(node: &Anvil, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let runners = (0..5).map(|_| node.deploy(&runner(true))).collect();
        let lenient = node.deploy(&runner(false));
        let topics = (0..6).map(|_| B256::from(rng.array::<32>())).collect();
        Self { runners, lenient, topics, rng }
    }

    /// Returns a log with this number of recurring topics.
    fn log(&mut self, topics: usize) -> Log {
        let topics = (0..topics).map(|_| *self.rng.pick(&self.topics)).collect();
        let length = *self.rng.pick(&[0, 1, 31, 32, 33, 64, 100]);
        Log { topics, data: self.rng.bytes(length) }
    }

    fn some_logs(&mut self) -> Vec<Log> {
        let count = 1 + self.rng.below(4);
        (0..count)
            .map(|_| {
                let topics = self.rng.below(5);
                self.log(topics)
            })
            .collect()
    }

    /// Calls a runner.
    fn run(&mut self, node: &Anvil, runner: Address, logs: &[Log], reverts: bool) -> B256 {
        let input = script(logs, reverts);
        let gas = 200_000 + 600 * input.len() as u64 + 5_000 * logs.len() as u64;
        let from = self.rng.below(4);
        let style = self.rng.below(3);
        node.send_as(style, from, Some(runner), &input, gas)
    }

    /// Replaces the last `depth` blocks; the first new block has logs.
    pub(crate) fn reorganise(&mut self, node: &Anvil, depth: u64) {
        let (runner, logs) = (self.any_runner(), self.some_logs());
        let transaction = node.transaction(2, 5, Some(runner), &script(&logs, false), 5_000_000);
        node.reorganise(depth, &[transaction]);
    }

    fn any_runner(&mut self) -> Address {
        *self.rng.pick(&self.runners)
    }

    /// Sends the transactions of a step, and mines their block. Returns the number of the block.
    pub(crate) fn mine(&mut self, node: &Anvil, step: Step) -> u64 {
        self.hand_in(node, step);
        node.mine(1);
        node.height()
    }

    /// Sends the transactions of a step.
    pub(crate) fn hand_in(&mut self, node: &Anvil, step: Step) {
        match step {
            Step::Empty => {}
            Step::Plain => {
                node.send(0, Some(node.accounts()[1]), &[], 21_000);
            }
            Step::One(topics) => {
                let (runner, log) = (self.any_runner(), self.log(topics));
                self.run(node, runner, &[log], false);
            }
            Step::Long => {
                let (runner, mut log) = (self.any_runner(), self.log(2));
                log.data = self.rng.bytes(5_000);
                self.run(node, runner, &[log], false);
            }
            Step::Several(transactions) => {
                for _ in 0..transactions {
                    let (runner, logs) = (self.any_runner(), self.some_logs());
                    self.run(node, runner, &logs, false);
                }
            }
            Step::EveryAddress => {
                let log = self.log(3);
                for runner in self.runners.clone() {
                    self.run(node, runner, std::slice::from_ref(&log), false);
                }
            }
            Step::Full(logs) => {
                let runner = self.any_runner();
                for _ in 0..logs / 20 {
                    let logs = (0..20).map(|_| Log {
                        topics: (0..4).map(|_| B256::from(self.rng.array::<32>())).collect(),
                        data: Vec::new(),
                    });
                    let logs: Vec<_> = logs.collect();
                    self.run(node, runner, &logs, false);
                }
            }
            Step::Failed => {
                for reverts in [false, true, false] {
                    let (runner, logs) = (self.any_runner(), self.some_logs());
                    self.run(node, runner, &logs, reverts);
                }
            }
            Step::Undone => {
                let (runner, logs) = (self.lenient, self.some_logs());
                self.run(node, runner, &logs, true);
                self.run(node, runner, &logs, false);
            }
            Step::Creation => {
                let logs = self.some_logs();
                node.send(1, None, &creation_with(&logs), 3_000_000);
            }
        }
    }
}

/// Returns the logs of a range, collected from the receipts of its transactions one by one. The
/// tests first compare the answer of `eth_getLogs` with these logs, so that two methods of the node
/// check each other.
pub(crate) fn logs_of_receipts(node: &Anvil, blocks: std::ops::RangeInclusive<u64>) -> Vec<Value> {
    let mut logs = Vec::new();
    for number in blocks {
        for hash in node.block(number)["transactions"].as_array().expect("hashes") {
            let hash = serde_json::from_value(hash.clone()).expect("a hash");
            let receipt = node.receipt(hash);
            logs.extend(receipt["logs"].as_array().expect("logs").iter().cloned());
        }
    }
    logs
}
