//! A query's chain and its nodes' answers: all that an audit needs but receipts.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditError, Question};
use chainsieve::eth::bloom::Answer;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::ChainBlock;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};

use crate::answers;
use crate::error::FetchError;
use crate::fetched_chain::FetchedChain;
use crate::nodes::Nodes;
use crate::note::Note;
use crate::resolve::{Asked, Asks, Needed, resolve};
use crate::source::{self, Source};
use crate::tip::Tip;
use crate::warning::Warning;

/// A query's blocks and the chain that holds them, and what each node answered, if it was asked.
///
/// [`Provider::audit`](crate::Provider::audit) does all at once; with its parts a caller hands over
/// receipts of its own before the rest is fetched.
#[derive(Debug)]
#[non_exhaustive]
pub struct Asking {
    /// The chain's id.
    pub chain_id: u64,
    /// What the chain's headers commit to.
    pub profile: ChainProfile,
    /// By whose rules a log matches.
    pub semantics: Semantics,
    /// The query and its blocks.
    pub asked: Asked,
    /// The headers of its blocks, and of those up to the anchor.
    pub fetched: FetchedChain,
    /// The hashes that are believed: the caller's, or that of the chain's last block.
    pub anchors: Vec<B256>,
    /// The block that everything hangs on.
    pub tip: Tip,
    /// What each node answered; empty where none was asked.
    pub logs: Vec<Vec<LocatedLog>>,
    /// What the caller should know.
    pub warnings: Vec<Warning>,
}

impl Asking {
    /// Fetches the chain, and what each node answers if that is asked for.
    pub(crate) fn new(nodes: &Nodes, query: &LogQuery, asks: Asks) -> Result<Self, FetchError> {
        let (chain_id, profile) = (nodes.chain_id()?, nodes.profile()?);
        let (all, settings) = (nodes, &nodes.settings);
        let nodes = &all.list;
        let (asked, mut warnings) = resolve(nodes, query, asks, settings.final_only)?;
        let mut anchors = all.anchors()?;
        let needed = Needed::new(nodes, &anchors, &asked, &mut warnings)?;
        let (first, last, end) = (asked.first, asked.last, *needed.blocks.end());
        let headers = (end - first).saturating_add(1);
        let limit = settings.max_headers;
        if headers > limit {
            return Err(FetchError::TooManyHeaders { headers, first, last, end, limit });
        }
        let mut source =
            source::fetch(nodes, &anchors, &needed, settings.keep_evidence, &mut warnings)?;
        let mut logs = Vec::new();
        if asks == Asks::ChainAndLogs {
            logs = vec![Vec::new(); nodes.len()];
            let compiled = asked.query.compile();
            let may_hold = |block: &ChainBlock<'_>| {
                let proves_absence = profile.at(block.number).bloom.proves_absence();
                !proves_absence || compiled.answer(block.bloom) != Answer::No
            };
            // The source first: while it is asked, its chain may still change.
            let others = (0..nodes.len()).filter(|index| *index != source.node);
            for index in [source.node].into_iter().chain(others) {
                let (node, is_source) = (&nodes[index], index == source.node);
                let found =
                    answers::fetch(node, &asked, &mut source.fetched, is_source, &may_hold)?;
                node.note(&Note::Logs(found.len()));
                logs[index] = found;
            }
        }
        let tip = Tip::new(&anchors, &source, nodes, end)?;
        if tip.is_own {
            anchors = vec![tip.block.hash];
        }
        let Source { fetched, .. } = source;
        let semantics = settings.semantics;
        Ok(Self { chain_id, profile, semantics, asked, fetched, anchors, tip, logs, warnings })
    }

    /// What is asked of a node's answer, by the node's index.
    pub fn question(&self, node: usize) -> Question<'_> {
        Question {
            chain: &self.fetched.chain,
            anchors: if self.tip.binds(node) { &self.anchors } else { &[] },
            query: &self.asked.query,
            blocks: self.asked.blocks,
            semantics: self.semantics,
            profile: &self.profile,
        }
    }

    /// The audit of each node's answer. [`Provider::fetch_receipts`](crate::Provider::fetch_receipts)
    /// hands them what they want.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn audits(&self) -> Result<Vec<Audit<'_>>, AuditError> {
        let answers = self.logs.iter().enumerate();
        answers.map(|(node, logs)| Audit::new(self.question(node), logs)).collect()
    }
}
