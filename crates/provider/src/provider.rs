//! The provider: one node or several, and what is believed of them.

use std::ops::RangeInclusive;
use std::sync::Arc;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditReport};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{BlockRef, HeaderBuf, HeaderChain};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockTag, LogQuery};
use chainsieve::eth::receipts::BlockReceipts;

use crate::asking::Asking;
use crate::error::FetchError;
use crate::logs::{LogsError, ProvenLogs};
use crate::node::Node;
use crate::nodes::{Nodes, Settings, first_of};
use crate::receipts::{self, Fetched};
use crate::resolve::{Asked, Asks, Needed, resolve};
use crate::scan::{Scan, ScannedPart, scan_parts};
use crate::source;
use crate::stop::Stop;
use crate::warning::Warning;

/// One node or several that serve a chain, none of which is trusted. Clones are one.
///
/// Every header has the hash of its bytes and is the child of the one before, receipts have the
/// root of their header, and logs are read out of such receipts. That the chain's last block is on
/// the chain is the nodes' word, unless there is an [anchor](crate::Builder::anchor).
///
/// Where there are several nodes, what one does not give is asked of the next.
///
/// All operations block; see [`spawn`](Self::spawn) for futures.
#[derive(Debug, Clone)]
pub struct Provider(pub(crate) Arc<Nodes>);

/// What was found about the nodes' answers to a query.
#[derive(Debug)]
#[non_exhaustive]
pub struct Audited {
    /// The query's chain and the answers.
    pub asking: Asking,
    /// What is known of each answer: of each node's, in the order of the nodes, or of the one that
    /// was handed in. It holds if [`Asking::tip`] is on the chain.
    pub reports: Vec<AuditReport>,
    /// Where the receipts came from, and why some did not come.
    pub fetched: Fetched,
}

impl Provider {
    /// The nodes, in the order of their URLs.
    pub fn nodes(&self) -> &[Node] {
        &self.0.list
    }

    /// Ends all operations, from any thread.
    pub fn stop(&self) -> &Stop {
        &self.0.stop
    }

    /// The same provider, whose operations end with `stop`. Of a [child](Stop::child) of
    /// [`stop`](Self::stop), they end with those of this provider, too.
    #[must_use]
    pub fn with_stop(&self, stop: Stop) -> Self {
        let list = self.nodes().iter().map(|node| node.with_stop(stop.clone())).collect();
        Self(Arc::new(Nodes { list, stop, ..Nodes::clone(&self.0) }))
    }

    /// The same provider with another profile of the chain, as
    /// [`Builder::profile`](crate::Builder::profile) has it.
    #[must_use]
    pub fn with_profile(&self, profile: ChainProfile) -> Self {
        let mut nodes = Nodes::clone(&self.0);
        nodes.settings.profile = Some(profile);
        Self(Arc::new(nodes))
    }

    /// The chain's id (EIP-155), which all nodes that answer must agree on. Asked for once.
    ///
    /// # Errors
    /// [`FetchError::TwoChains`], or no node says.
    pub fn chain_id(&self) -> Result<u64, FetchError> {
        self.0.chain_id()
    }

    /// What the chain's headers commit to: as the builder was told, or else by the chain's id. Of a
    /// chain that is not known, filters are taken to prove nothing, so that receipts of every block
    /// are fetched.
    ///
    /// # Errors
    /// Those of [`chain_id`](Self::chain_id).
    pub fn profile(&self) -> Result<ChainProfile, FetchError> {
        self.0.profile()
    }

    /// The header of the block that a tag or a number names now; `None` if no node has it. It has
    /// the hash of its bytes; that it is on the chain is the node's word.
    ///
    /// # Errors
    /// No node answers.
    pub fn header(&self, tag: BlockTag) -> Result<Option<HeaderBuf>, FetchError> {
        first_of(self.nodes(), || crate::node::named(tag), |node| node.header_at(tag))
    }

    /// The header with this hash; `None` if no node has it.
    ///
    /// # Errors
    /// No node answers.
    pub fn header_by_hash(&self, hash: B256) -> Result<Option<HeaderBuf>, FetchError> {
        first_of(self.nodes(), || format!("block {hash}"), |node| node.header_by_hash(hash))
    }

    /// The headers of these blocks, each the child of the one before, from the first node that has
    /// them all. With anchors they come from the node whose chain holds the highest of them, and
    /// `chain.anchored_to` says how far they are authentic.
    ///
    /// # Errors
    /// [`FetchError`], also if they are more than [allowed](crate::Builder::max_headers).
    pub fn headers(&self, blocks: RangeInclusive<u64>) -> Result<HeaderChain, FetchError> {
        let (first, last) = (*blocks.start(), *blocks.end());
        if first > last {
            return Ok(HeaderChain::new());
        }
        let (headers, limit) = ((last - first).saturating_add(1), self.0.settings.max_headers);
        if headers > limit {
            return Err(FetchError::TooManyHeaders { headers, first, last, end: last, limit });
        }
        let anchors = self.0.anchors()?;
        let needed = Needed::all(blocks);
        let source = source::fetch(self.nodes(), &anchors, &needed, false, &mut Vec::new())?;
        Ok(source.fetched.chain)
    }

    /// A block by its hash: its header, and all its receipts, which have the header's root. `None`
    /// if no node has the header.
    ///
    /// # Errors
    /// No node answers, or none has the block's receipts.
    pub fn block(&self, hash: B256) -> Result<Option<(HeaderBuf, BlockReceipts)>, FetchError> {
        let Some(header) = self.header_by_hash(hash)? else { return Ok(None) };
        let receipts = self.receipts(&header)?;
        Ok(Some((header, receipts)))
    }

    /// All receipts of a block, which have the header's root, from the first node that gives such.
    ///
    /// # Errors
    /// [`FetchError::NoReceipts`]: none does.
    pub fn receipts(&self, header: &HeaderBuf) -> Result<BlockReceipts, FetchError> {
        let block = BlockRef::from(header);
        let profile = self.profile()?;
        let view = header.view();
        let mut why = None;
        for node in self.nodes() {
            let mut found = None;
            node.receipts_by_each_method(block, |_, receipts| {
                let problem = match receipts {
                    Ok(Some(receipts)) => {
                        let (root, bloom) = (B256::from(*view.receipts_root()), view.logs_bloom());
                        let number = block.number;
                        match receipts.verify_by_profile(&profile, number, root, bloom).map(drop) {
                            Ok(()) => {
                                found = Some(receipts);
                                return true;
                            }
                            Err(error) => error.to_string(),
                        }
                    }
                    Ok(None) => "the node does not have them".into(),
                    Err(error) => error.to_string(),
                };
                why.get_or_insert(format!("{}: {problem}", node.name()));
                self.stop().is_set()
            });
            if let Some(receipts) = found {
                return Ok(receipts);
            }
            if self.stop().is_set() {
                return Err(FetchError::Stopped);
            }
        }
        Err(FetchError::NoReceipts { block, why: why.unwrap_or_default() })
    }

    /// The logs of a query, all of them: read out of all receipts of each block whose filter does
    /// not rule a match out. `eth_getLogs` is not asked.
    ///
    /// # Errors
    /// [`LogsError::Incomplete`] says what is proven and what is missing. Of a chain whose receipts do
    /// not commit to every log, and of one that is not known, nothing is ever proven to be all: see
    /// [`profile`](Self::profile).
    ///
    /// # Cost
    /// The headers of the range and up to the anchor, and the receipts of the candidates. In memory
    /// are what headers say and the logs. The [builder](crate::Builder) limits all of it.
    pub fn logs(&self, query: &LogQuery) -> Result<ProvenLogs, LogsError> {
        let asking = Asking::new(&self.0, query, Asks::Chain)?;
        let audit = Audit::collecting(asking.question(asking.tip.node));
        let mut audits = [audit.map_err(FetchError::from)?];
        let fetched = self.fetch_receipts(&mut audits, &asking.fetched.chain)?;
        let [audit] = audits;
        let (report, logs) = audit.finish_collecting();
        ProvenLogs::new(&asking, fetched, &report, logs)
    }

    /// The blocks that may have a log that the query wants: the others have none.
    ///
    /// # Errors
    /// [`FetchError`].
    ///
    /// # Cost
    /// The headers of the range, of which 8,192 are in memory at a time.
    pub fn scan(&self, query: &LogQuery) -> Result<Scan, FetchError> {
        let (nodes, final_only) = (self.nodes(), self.0.settings.final_only);
        let (asked, mut warnings) = resolve(nodes, query, Asks::Chain, final_only)?;
        let anchors = self.0.anchors()?;
        let needed = Needed::new(nodes, &anchors, &asked, &mut warnings)?;
        Scan::new(&self.0, &asked, &anchors, &needed, warnings)
    }

    /// The headers of a query's blocks, and of those up to the anchor, in parts of at most 8,192,
    /// with the candidates by their filters: what [`scan`](Self::scan) is made of. Ends early once
    /// `take` returns `false`. Returns the query as it was asked, and what the caller should know.
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn scan_parts(
        &self,
        query: &LogQuery,
        mut take: impl FnMut(&Asked, ScannedPart<'_>) -> bool,
    ) -> Result<(Asked, Vec<Warning>), FetchError> {
        let (nodes, final_only) = (self.nodes(), self.0.settings.final_only);
        let (asked, mut warnings) = resolve(nodes, query, Asks::Chain, final_only)?;
        let needed = Needed::new(nodes, &self.0.anchors()?, &asked, &mut warnings)?;
        scan_parts(&self.0, &asked, &needed, &mut warnings, |part| take(&asked, part))?;
        Ok((asked, warnings))
    }

    /// Asks each node for the logs of a query, and holds each answer against the chain's headers
    /// and receipts.
    ///
    /// # Errors
    /// [`FetchError`]: there is no chain, or a node gives no logs. An answer that is wrong or
    /// undecided is no error. A block whose receipts did not come stays undecided, and
    /// [`Fetched::unreachable`] says why: no node can hide by silence what is proven of its answer.
    pub fn audit(&self, query: &LogQuery) -> Result<Audited, FetchError> {
        let asking = self.ask(query)?;
        let mut audits = asking.audits()?;
        let fetched = self.fetch_receipts(&mut audits, &asking.fetched.chain)?;
        let reports = audits.into_iter().map(Audit::finish).collect();
        Ok(Audited { asking, reports, fetched })
    }

    /// Holds an answer from anywhere against the chain's headers and receipts. The query must name
    /// its blocks as the answer means them.
    ///
    /// # Errors
    /// [`FetchError`]: there is no chain. What is undecided is as in [`audit`](Self::audit).
    pub fn audit_answer(
        &self,
        query: &LogQuery,
        logs: &[LocatedLog],
    ) -> Result<Audited, FetchError> {
        let asking = Asking::new(&self.0, query, Asks::Chain)?;
        let audit = Audit::new(asking.question(asking.tip.node), logs)?;
        let mut audits = [audit];
        let fetched = self.fetch_receipts(&mut audits, &asking.fetched.chain)?;
        let reports = audits.map(Audit::finish).into();
        Ok(Audited { asking, reports, fetched })
    }

    /// Fetches a query's chain and each node's answer: the first part of [`audit`](Self::audit).
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn ask(&self, query: &LogQuery) -> Result<Asking, FetchError> {
        Asking::new(&self.0, query, Asks::ChainAndLogs)
    }

    /// Fetches the receipts that audits of one chain want, and hands them over: the second part of
    /// [`audit`](Self::audit).
    ///
    /// # Errors
    /// [`FetchError::TooManyReceipts`], [`FetchError::Stopped`]. Where a node cannot be reached, the
    /// result says so.
    pub fn fetch_receipts(
        &self,
        audits: &mut [Audit<'_>],
        chain: &HeaderChain,
    ) -> Result<Fetched, FetchError> {
        let Settings { max_receipts, keep_evidence, .. } = self.0.settings;
        receipts::fetch(self.nodes(), audits, chain, max_receipts, keep_evidence)
    }
}
