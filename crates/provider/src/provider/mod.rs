//! The provider: operations on one or several untrusted nodes.
//!
//! | file | contents |
//! |---|---|
//! | `builder` | configuration |
//! | `query`, `chain` | the blocks of a query as numbers, and the headers of these blocks |
//! | `answers`, `receipts` | what nodes answer to `eth_getLogs`, and the receipts that decide it |
//! | `logs`, `scan` | proven logs, and blocks that may contain one |

pub(crate) mod answers;
pub(crate) mod builder;
pub(crate) mod chain;
pub(crate) mod logs;
pub(crate) mod query;
pub(crate) mod receipts;
pub(crate) mod scan;

use std::ops::RangeInclusive;
use std::sync::Arc;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditReport};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{BlockRef, HeaderBuf, LinkedHeaders};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockTag, LogQuery};
use chainsieve::eth::receipts::BlockReceipts;

use crate::anchor::AnchorSource;
use crate::error::FetchError;
use crate::nodes::Node;
use crate::nodes::ask::{Nodes, Settings, Unaccepted, ask, first_of};
use crate::report::Warning;
use crate::stop::{Pending, Stop};
use answers::FetchedAnswers;
use logs::{LogsError, ProvenLogs, drop_unanchored, prove_hashes};
use query::{Asks, Needed, ResolvedQuery, resolve};
use receipts::FetchedReceipts;
use scan::{ScanResult, ScannedPart, scan_parts};

/// One or several untrusted nodes that serve one chain. Clones share the connections and limits.
///
/// Every header is checked by its hash and must be a child of the header before it. Receipts must
/// have the receipts root of their header, and logs are read from checked receipts. Only the nodes
/// vouch for the last block of the chain, unless there is an [anchor](crate::Builder::anchor).
///
/// If there are several nodes and one of them fails, the next node is asked.
///
/// All operations block; see [`spawn`](Self::spawn) for futures.
#[derive(Debug, Clone)]
pub struct Provider(pub(crate) Arc<Nodes>);

/// Result of an audit: a report on each answer to a query.
#[derive(Debug)]
#[non_exhaustive]
pub struct AuditResult {
    /// The headers of the query's blocks, and the nodes' answers.
    pub answers: FetchedAnswers,
    /// The report on each node's answer, in the order of the nodes; or the report on the answer
    /// that the caller passed. The reports are valid if the block [`FetchedAnswers::tip`] is on the
    /// chain.
    pub reports: Vec<AuditReport>,
    /// The sources of the receipts, and the reason if some are missing.
    pub fetched: FetchedReceipts,
}

impl Provider {
    /// Returns the nodes, in the order in which their URLs were given.
    pub fn nodes(&self) -> &[Node] {
        &self.0.list
    }

    /// Returns the handle that stops all operations of this provider, from any thread.
    pub fn stop(&self) -> &Stop {
        &self.0.stop
    }

    /// Returns the same provider with another stop handle.
    ///
    /// If `stop` is a [child](Stop::child) of [`stop`](Self::stop), the operations also end when
    /// this provider is stopped.
    #[must_use]
    pub fn with_stop(&self, stop: Stop) -> Self {
        let list = self.nodes().iter().map(|node| node.with_stop(stop.clone())).collect();
        Self(Arc::new(Nodes { list, stop, ..Nodes::clone(&self.0) }))
    }

    /// Runs `work` with the provider in a thread of its own, and returns a future of the result.
    ///
    /// The future works on any executor. When the future is dropped, a request in flight is
    /// completed, and no further request is sent.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use chainsieve_provider::{LogQuery, Provider};
    /// let provider = Provider::trusting_head("http://127.0.0.1:8545")?;
    /// let query = LogQuery::new().from_block(17_000_000).to_block(17_000_100);
    /// let proven = provider.spawn(move |provider| provider.logs(&query)).await?;
    /// println!("{} logs", proven.logs.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics if no thread can be started. The future panics if `work` panics.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Pending<T> {
        let stop = self.stop().child();
        let provider = self.with_stop(stop.clone());
        Pending::spawn(stop, move || work(&provider))
    }

    /// Returns the same provider with another profile of the chain. See
    /// [`Builder::profile`](crate::Builder::profile).
    #[must_use]
    pub fn with_profile(&self, profile: ChainProfile) -> Self {
        let mut nodes = Nodes::clone(&self.0);
        nodes.settings.profile = Some(profile);
        Self(Arc::new(nodes))
    }

    /// Returns the same provider with another anchor. See [`Builder::anchor`](crate::Builder::anchor).
    #[must_use]
    pub fn with_anchor(&self, anchor: impl AnchorSource + 'static) -> Self {
        let mut nodes = Nodes::clone(&self.0);
        nodes.settings.anchor = Some(Arc::new(anchor));
        Self(Arc::new(nodes))
    }

    /// Returns the chain's id (EIP-155). The nodes are asked only once.
    ///
    /// # Errors
    /// Returns [`FetchError::TwoChains`] if two nodes disagree, or another error if no node
    /// answers.
    pub fn chain_id(&self) -> Result<u64, FetchError> {
        self.0.chain_id()
    }

    /// Returns the chain's profile: what its headers commit to.
    ///
    /// The profile is that of the [builder](crate::Builder::profile), or the known profile for the
    /// chain's id. On an unknown chain, filters are assumed to prove nothing, so that the receipts
    /// of every block are fetched.
    ///
    /// # Errors
    /// Returns the errors of [`chain_id`](Self::chain_id).
    pub fn profile(&self) -> Result<ChainProfile, FetchError> {
        self.0.profile()
    }

    /// Returns the header of the block that a tag or number currently names; `None` if no node has
    /// the block.
    ///
    /// The header's hash is checked against its bytes. Only the node vouches that the block is on
    /// the chain.
    ///
    /// # Errors
    /// Returns an error if no node has the block and at least one node failed.
    pub fn header(&self, tag: BlockTag) -> Result<Option<HeaderBuf>, FetchError> {
        first_of(self.nodes(), || crate::nodes::named(tag), |node| node.header_at(tag))
    }

    /// Returns the header with this hash; `None` if no node has it.
    ///
    /// # Errors
    /// Returns an error if no node has the block and at least one node failed.
    pub fn header_by_hash(&self, hash: B256) -> Result<Option<HeaderBuf>, FetchError> {
        first_of(self.nodes(), || format!("block {hash}"), |node| node.header_by_hash(hash))
    }

    /// Returns the headers of consecutive blocks. Each header is the child of the header before it.
    ///
    /// Without an anchor, the first node that has all of the headers provides them. With anchors,
    /// the node whose chain contains the highest anchor provides them, and `chain.anchored_to`
    /// returns the height up to which the headers are authentic.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if no node provides all of the headers, or if there are more than
    /// [allowed](crate::Builder::max_headers).
    pub fn headers(&self, blocks: RangeInclusive<u64>) -> Result<LinkedHeaders, FetchError> {
        let (first, last) = (*blocks.start(), *blocks.end());
        if first > last {
            return Ok(LinkedHeaders::new());
        }
        let (headers, limit) = ((last - first).saturating_add(1), self.0.settings.max_headers);
        if headers > limit {
            return Err(FetchError::TooManyHeaders { headers, first, last, end: last, limit });
        }
        let anchors = self.0.anchors()?;
        let needed = Needed::all(blocks);
        let source = chain::fetch(self.nodes(), &anchors, &needed, false, &mut Vec::new())?;
        Ok(source.fetched.chain)
    }

    /// Returns the header and all receipts of a block by its hash; `None` if no node has the
    /// header.
    ///
    /// The receipts are checked against the receipts root of the header.
    ///
    /// # Errors
    /// Returns an error if no node answers, or if no node has the block's receipts.
    pub fn block(&self, hash: B256) -> Result<Option<(HeaderBuf, BlockReceipts)>, FetchError> {
        let Some(header) = self.header_by_hash(hash)? else { return Ok(None) };
        let receipts = self.receipts(&header)?;
        Ok(Some((header, receipts)))
    }

    /// Returns all receipts of a block, from the first node whose receipts match the header's
    /// receipts root.
    ///
    /// # Errors
    /// Returns [`FetchError::NoReceipts`] if no node provides matching receipts.
    pub fn receipts(&self, header: &HeaderBuf) -> Result<BlockReceipts, FetchError> {
        let block = BlockRef::from(header);
        let profile = self.profile()?;
        let view = header.view();
        let asked = ask(self.nodes(), |node| {
            let (mut found, mut why) = (None, None);
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
                            Err(error) => Some(Unaccepted::Answer(error.to_string())),
                        }
                    }
                    Ok(None) => None,
                    Err(error) => Some(error.into()),
                };
                // The other methods of a silent node would cost a timeout each.
                let is_silence =
                    matches!(&problem, Some(Unaccepted::Rpc(error)) if error.is_silence());
                if is_silence || why.is_none() {
                    why = Some(problem);
                }
                is_silence
            });
            match (found, why.flatten()) {
                (Some(receipts), _) => Ok(Some(receipts)),
                (None, Some(why)) => Err(why),
                (None, None) => Ok(None),
            }
        });
        asked.map_err(|unanswered| {
            // A stop makes requests fail. It is not reported as missing receipts.
            if unanswered.is_stopped() || self.stop().is_set() {
                return FetchError::Stopped;
            }
            let why = unanswered.lines("the node does not have the receipts").into_iter().next();
            FetchError::NoReceipts { block, why: why.unwrap_or_default() }
        })
    }

    /// Returns all logs of a query, with proof that none is missing.
    ///
    /// The logs are read from all receipts of each candidate: a block whose filter does not rule a
    /// match out. `eth_getLogs` is not called. Where a log matches, all transactions of the block
    /// prove its transaction hash, unless
    /// [`without_transaction_hashes`](crate::Builder::without_transaction_hashes) is set. If no node
    /// has the right transactions, the hash stays unproven, which is no error.
    ///
    /// # Errors
    /// Returns [`LogsError::Incomplete`], with the proven logs and the missing blocks, if some
    /// blocks could not be proven. On a chain whose receipts do not commit to every log, and on an
    /// unknown chain, no result is ever proven complete: see [`profile`](Self::profile).
    ///
    /// # Cost
    /// Downloads the headers of the range, the headers after it up to the anchor, the receipts of the
    /// candidates, and the transactions of blocks with a matching log. Fields of the headers and the logs are held in memory. The
    /// [builder](crate::Builder) sets limits for all of these data.
    pub fn logs(&self, query: &LogQuery) -> Result<ProvenLogs, LogsError> {
        let answers = FetchedAnswers::new(&self.0, query, Asks::Chain)?;
        let audit = Audit::collecting(answers.question(answers.tip.node));
        let mut audits = [audit.map_err(FetchError::from)?];
        let fetched = self.fetch_receipts(&mut audits, &answers.fetched.chain)?;
        let [audit] = audits;
        let (report, mut logs) = audit.finish_collecting();
        drop_unanchored(&mut logs, &report);
        let mut hashes = None;
        if self.0.settings.transaction_hashes {
            hashes = prove_hashes(self.nodes(), &answers.fetched.chain, &mut logs)?;
        }
        ProvenLogs::new(&answers, fetched, &report, logs, hashes)
    }

    /// Returns the blocks that may contain a log which matches the query. All other blocks of the
    /// range contain no matching log.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if the headers cannot be fetched.
    ///
    /// # Cost
    /// Downloads the headers of the range, and the headers after it up to the anchor. At most 8,192
    /// headers are in memory at a time.
    pub fn scan(&self, query: &LogQuery) -> Result<ScanResult, FetchError> {
        let (nodes, final_only) = (self.nodes(), self.0.settings.final_only);
        let (asked, mut warnings) = resolve(nodes, query, Asks::Chain, final_only)?;
        let anchors = self.0.anchors()?;
        let needed = Needed::new(nodes, &anchors, &asked, &mut warnings)?;
        ScanResult::new(&self.0, &asked, &anchors, &needed, warnings)
    }

    /// Scans the headers of a query's blocks, and of those up to the anchor, in parts of at most
    /// 8,192 headers. [`scan`](Self::scan) is built on this.
    ///
    /// `take` receives each part with its candidates. The scan ends early when `take` returns
    /// `false`. Returns the resolved query and the warnings.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if the headers cannot be fetched.
    pub fn scan_parts(
        &self,
        query: &LogQuery,
        mut take: impl FnMut(&ResolvedQuery, ScannedPart<'_>) -> bool,
    ) -> Result<(ResolvedQuery, Vec<Warning>), FetchError> {
        let (nodes, final_only) = (self.nodes(), self.0.settings.final_only);
        let (asked, mut warnings) = resolve(nodes, query, Asks::Chain, final_only)?;
        let needed = Needed::new(nodes, &self.0.anchors()?, &asked, &mut warnings)?;
        scan_parts(&self.0, &asked, &needed, &mut warnings, |part| take(&asked, part))?;
        Ok((asked, warnings))
    }

    /// Asks each node for the logs of a query, and checks each answer against the chain's headers
    /// and receipts.
    ///
    /// A block whose receipts are missing stays undecided; [`FetchedReceipts::unreachable`] has the
    /// reason. So a node that does not send receipts cannot hide errors that are already proven.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if the headers cannot be fetched, or if a node returns no logs. A
    /// wrong or undecided answer is not an error.
    pub fn audit(&self, query: &LogQuery) -> Result<AuditResult, FetchError> {
        let answers = self.ask(query)?;
        let mut audits = answers.audits()?;
        let fetched = self.fetch_receipts(&mut audits, &answers.fetched.chain)?;
        let reports = audits.into_iter().map(Audit::finish).collect();
        Ok(AuditResult { answers, reports, fetched })
    }

    /// Checks an answer from any source against the chain's headers and receipts. The query must
    /// name the blocks whose logs were requested.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if the headers cannot be fetched. As in [`audit`](Self::audit), a
    /// wrong or undecided answer is not an error.
    pub fn audit_answer(
        &self,
        query: &LogQuery,
        logs: &[LocatedLog],
    ) -> Result<AuditResult, FetchError> {
        let answers = self.ask_headers(query)?;
        let audit = Audit::new(answers.question(answers.tip.node), logs)?;
        let mut audits = [audit];
        let fetched = self.fetch_receipts(&mut audits, &answers.fetched.chain)?;
        let reports = audits.map(Audit::finish).into();
        Ok(AuditResult { answers, reports, fetched })
    }

    /// Fetches the headers of a query's blocks and each node's answer: the first part of
    /// [`audit`](Self::audit).
    ///
    /// # Errors
    /// Returns a [`FetchError`] if the headers cannot be fetched, or if a node returns no logs.
    pub fn ask(&self, query: &LogQuery) -> Result<FetchedAnswers, FetchError> {
        FetchedAnswers::new(&self.0, query, Asks::ChainAndLogs)
    }

    /// Fetches the headers of a query's blocks, and no logs. The answer to audit, from any source, can be
    /// put into [`FetchedAnswers::logs`]. [`audit_answer`](Self::audit_answer) carries out all steps.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if the headers cannot be fetched.
    pub fn ask_headers(&self, query: &LogQuery) -> Result<FetchedAnswers, FetchError> {
        FetchedAnswers::new(&self.0, query, Asks::Chain)
    }

    /// Fetches the receipts that audits of one chain need, and passes them to the audits: the
    /// second part of [`audit`](Self::audit).
    ///
    /// # Errors
    /// Returns [`FetchError::TooManyReceipts`] or [`FetchError::TooMuch`] if a limit is exceeded,
    /// and [`FetchError::Stopped`] if the operation was stopped. Unreachable nodes are not an
    /// error; the result names the reason.
    pub fn fetch_receipts(
        &self,
        audits: &mut [Audit<'_>],
        chain: &LinkedHeaders,
    ) -> Result<FetchedReceipts, FetchError> {
        let Settings { max_receipts, keep_evidence, .. } = self.0.settings;
        receipts::fetch(self.nodes(), audits, chain, max_receipts, keep_evidence)
    }
}
