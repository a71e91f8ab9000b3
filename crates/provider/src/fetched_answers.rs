//! The headers of a query's blocks and the nodes' answers: all data of an audit except receipts.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditError, AuditQuestion};
use chainsieve::eth::bloom::BloomAnswer;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::ChainBlock;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};

use crate::answers;
use crate::error::FetchError;
use crate::fetched_chain::FetchedChain;
use crate::nodes::Nodes;
use crate::note::Note;
use crate::resolve::{Asks, Needed, ResolvedQuery, resolve};
use crate::source::{self, Source};
use crate::tip::Tip;
use crate::warning::Warning;

/// The headers of a query's blocks, and each node's answer if the nodes were asked for logs.
///
/// [`Provider::ask`](crate::Provider::ask) returns a value of this type.
///
/// [`Provider::audit`](crate::Provider::audit) carries out all steps of an audit. A caller that
/// carries out the steps itself can pass its own receipts to the audits before the other receipts
/// are fetched.
#[derive(Debug)]
#[non_exhaustive]
pub struct FetchedAnswers {
    /// The chain's id (EIP-155).
    pub chain_id: u64,
    /// The profile of the chain: what its headers commit to.
    pub profile: ChainProfile,
    /// The rules by which a log matches the query.
    pub semantics: Semantics,
    /// The query with its blocks resolved to numbers.
    pub query: ResolvedQuery,
    /// The headers of the query's blocks, and of the blocks up to the anchor.
    pub fetched: FetchedChain,
    /// The trusted hashes: the caller's anchors, or the hash of the chain's last block if the
    /// caller gave no anchor.
    pub anchors: Vec<B256>,
    /// The block that all results depend on.
    pub tip: Tip,
    /// Each node's answer, in the order of the nodes; empty if the nodes were not asked for logs.
    pub logs: Vec<Vec<LocatedLog>>,
    /// Warnings about the reliability of the result.
    pub warnings: Vec<Warning>,
}

impl FetchedAnswers {
    /// Resolves the query, and fetches the headers and, with [`Asks::ChainAndLogs`], the answers.
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
                !proves_absence || compiled.answer(block.bloom) != BloomAnswer::No
            };
            // The source is asked first, because a reorganisation at the source replaces the chain.
            // The other nodes are asked after the source, when the chain no longer changes.
            let others = (0..nodes.len()).filter(|index| *index != source.node);
            for index in [source.node].into_iter().chain(others) {
                let (node, is_source) = (&nodes[index], index == source.node);
                let found =
                    answers::fetch(node, &asked, &mut source.fetched, is_source, &may_hold)?;
                node.note(&Note::Logs(found.len()));
                logs[index] = found;
            }
        }
        let tip = Tip::new(&anchors, &source, nodes, end, asks)?;
        if tip.has_no_anchor {
            anchors = vec![tip.block.hash];
        }
        let Source { fetched, .. } = source;
        let semantics = settings.semantics;
        Ok(Self {
            chain_id,
            profile,
            semantics,
            query: asked,
            fetched,
            anchors,
            tip,
            logs,
            warnings,
        })
    }

    /// Returns the question that an audit of a node's answer decides. `node` is the node's index.
    ///
    /// If only one node vouches for the tip, and the audited node has a different block at the
    /// height of the tip, the question has no anchors: nothing can then be proven against the
    /// audited node.
    pub fn question(&self, node: usize) -> AuditQuestion<'_> {
        AuditQuestion {
            chain: &self.fetched.chain,
            anchors: if self.tip.binds(node) { &self.anchors } else { &[] },
            query: &self.query.query,
            blocks: self.query.blocks,
            semantics: self.semantics,
            profile: &self.profile,
        }
    }

    /// Creates the audit of each node's answer.
    /// [`Provider::fetch_receipts`](crate::Provider::fetch_receipts) passes the audits the receipts
    /// that they need.
    ///
    /// # Errors
    /// Returns an [`AuditError`] if the headers do not cover the query's blocks.
    pub fn audits(&self) -> Result<Vec<Audit<'_>>, AuditError> {
        let answers = self.logs.iter().enumerate();
        answers.map(|(node, logs)| Audit::new(self.question(node), logs)).collect()
    }
}
