//! The comparison of filters and filter headers with their blocks, for each source of blocks.

use std::collections::HashMap;

use chainsieve::bitcoin::bip158::{FilterHash, FilterHeader};
use chainsieve::bitcoin::{Block, BlockHash, Network, OutPoint, ScriptBuf};
use chainsieve::btc::bip158::audit::{Prevouts, Verdict, audit};
use chainsieve::btc::bip158::{BlockFilter, BoundBlock, filter_hash, filter_header};

use crate::audit::report::{AuditReport, Difference, rules};

/// A node's answers about one block.
pub(super) struct Answers<'a> {
    pub(super) height: u64,
    pub(super) hash: BlockHash,
    pub(super) block: &'a Block,
    /// The scripts of spent outputs that the node names, if it names any.
    pub(super) prevouts: HashMap<OutPoint, ScriptBuf>,
    pub(super) filter: &'a [u8],
    pub(super) header: FilterHeader,
}

/// Compares the answers about consecutive blocks.
pub(super) struct FilterCheck {
    network: Network,
    /// The filter header of the block before, as the node claims it and as it was checked since.
    previous: FilterHeader,
    /// The scripts of unspent outputs of the blocks so far.
    outputs: HashMap<OutPoint, ScriptBuf>,
}

impl FilterCheck {
    pub(super) fn new(network: Network, previous: FilterHeader) -> Self {
        Self { network, previous, outputs: HashMap::new() }
    }

    /// Returns the filter header of the last block.
    pub(super) fn previous(&self) -> FilterHeader {
        self.previous
    }

    /// Compares the answers about the next block. Returns `false` if there is a difference.
    pub(super) fn check(&mut self, answers: &Answers<'_>, report: &mut AuditReport) -> bool {
        let Answers { height, block, filter, .. } = *answers;
        report.blocks += 1;
        let bound = match BoundBlock::bind(block, answers.hash, self.network) {
            Ok(bound) => bound,
            Err(error) => {
                let what = "the block is not the one to which its header commits";
                let difference = (answers.hash, error);
                let difference = Difference::new(rules::BITCOIN_BLOCK, height, what, difference);
                report.check(rules::BITCOIN_BLOCK, Some(difference));
                return false;
            }
        };
        report.check(rules::BITCOIN_BLOCK, None);
        let script = |outpoint: &OutPoint| {
            let own = self.outputs.get(outpoint);
            own.or_else(|| answers.prevouts.get(outpoint)).cloned()
        };
        let judged = match audit(&bound, filter, Prevouts::Trusted(&script)) {
            Verdict::Valid(_) => None,
            Verdict::Invalid(reason) => {
                let what = Verdict::Invalid(reason).to_string();
                // Without all scripts, the filter is proven wrong, but the right one is unknown.
                let expected = BlockFilter::new(block, script)
                    .map_or_else(|error| format!("unknown: {error}"), |it| hex::encode(it.content));
                let values = (expected, hex::encode(filter));
                Some(Difference::new(rules::BASIC_FILTER, height, what, values))
            }
            undecided => {
                report.leave_undecided(|| format!("filter of block {height}: {undecided}"));
                None
            }
        };
        let is_right = judged.is_none();
        report.check(rules::BASIC_FILTER, judged);
        self.keep_outputs(&bound);
        is_right && self.check_header(height, &filter_hash(filter), answers.header, report)
    }

    /// Compares the filter header of the next block.
    fn check_header(
        &mut self,
        height: u64,
        hash: &FilterHash,
        claimed: FilterHeader,
        report: &mut AuditReport,
    ) -> bool {
        let expected = filter_header(hash, &self.previous);
        let what = "the filter header does not follow from the filter and the header before it";
        let differs = expected != claimed;
        let difference = differs
            .then(|| Difference::new(rules::FILTER_HEADER, height, what, (expected, claimed)));
        report.check(rules::FILTER_HEADER, difference);
        self.previous = expected;
        !differs
    }

    /// Keeps the outputs that the block creates, and drops those that it spends.
    fn keep_outputs(&mut self, block: &BoundBlock<'_>) {
        for (tx, &txid) in block.block().txdata.iter().zip(block.txids()) {
            for (vout, output) in (0..).zip(&tx.output) {
                self.outputs.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
            }
            for input in &tx.input {
                self.outputs.remove(&input.previous_output);
            }
        }
    }
}
