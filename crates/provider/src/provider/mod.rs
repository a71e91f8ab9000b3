//! The provider: operations on one or several untrusted nodes, and its configuration.
//!
//! | file | contents |
//! |---|---|
//! | `chain` | the blocks of a query as numbers, and the headers of these blocks |
//! | `audit` | what nodes answer to `eth_getLogs`, and the receipts that decide it |
//! | `logs`, `scan` | proven logs, and blocks that may contain one |

pub(crate) mod audit;
pub(crate) mod chain;
pub(crate) mod logs;
pub(crate) mod scan;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::Audit;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{BlockRef, HeaderBuf, LinkedHeaders};
use chainsieve::eth::log_query::{BlockTag, LogQuery, Semantics};
use chainsieve::eth::receipts::BlockReceipts;

use crate::anchor::AnchorSource;
use crate::error::{BuildError, FetchError};
use crate::nodes::ask::{Nodes, Settings, Unaccepted, ask, first_of};
use crate::nodes::{Budget, Endpoint, EndpointError, Node, NoteSink, Options, named};
use crate::report::{Note, Warning};
use crate::stop::{Pending, Stop};
use audit::FetchedAnswers;
use chain::{Asks, Needed, ResolvedQuery, resolve};
use logs::{LogsError, ProvenLogs, drop_unanchored, prove_hashes};
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

impl Provider {
    /// Returns a builder with default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Creates a provider of one node that [trusts the head](Builder::trust_head), with the defaults of
    /// [`builder`](Self::builder).
    ///
    /// # Errors
    /// Returns an error if the URL is invalid.
    pub fn trusting_head(url: &str) -> Result<Self, BuildError> {
        Self::builder().url(url).trust_head().build()
    }

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
        first_of(self.nodes(), || named(tag), |node| node.header_at(tag))
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
        let fetched = audit::fetch_receipts(&self.0, &mut audits, &answers.fetched.chain)?;
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
}

/// Configures and creates a provider.
///
/// ```
/// use std::time::Duration;
/// use chainsieve_provider::{Budget, Provider};
/// let provider = Provider::builder()
///     .url("https://mainnet.example/v3/0123456789abcdef")
///     .url("http://127.0.0.1:8545")
///     .header("Authorization: Bearer abcdef")
///     .trust_head()
///     .timeout(Duration::from_secs(10))
///     .budget(Budget::per_second(500.0).default_cost(80).cost("eth_getLogs", 255))
///     .build()?;
/// assert_eq!(provider.nodes()[0].endpoint().to_string(), "https://mainnet.example");
/// # Ok::<(), chainsieve_provider::BuildError>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    endpoints: Endpoints,
    options: Options,
    settings: Settings,
    trust_head: bool,
}

impl Builder {
    setters! { self:
        /// Adds a node by its http or https URL.
        ///
        /// If there are several nodes and one of them fails, the next node is asked. Audits compare
        /// the answers of all nodes.
        url(url: &str) { self.endpoints.add(Endpoint::new(url)); }

        /// Adds a node by its endpoint. In all other respects, this is the same as [`url`](Self::url).
        endpoint(endpoint: Endpoint) { self.endpoints.add(Ok(endpoint)); }

        /// Adds an HTTP header, `Name: value`, to the requests for the last URL. If there is no URL
        /// yet, [`build`](Self::build) returns an error.
        header(header: &str) { self.endpoints.add_header(header); }

        /// Sets the timeout of each request (default: 30 s).
        timeout(timeout: Duration) { self.options.timeout = timeout; }

        /// Sets the maximum number of retries of a failed request, with growing back-off (default: 5).
        retries(retries: u32) { self.options.retries = retries; }

        /// Sets the maximum number of calls in one batch request (default: 100, at least 1).
        batch(calls: usize) { self.options.batch = calls.max(1); }

        /// Sets the maximum number of parallel requests to each node (default: 4, at least 1).
        parallel(requests: usize) { self.options.parallel = requests.max(1); }

        /// Sets the maximum number of blocks in one `eth_getLogs` call (default: learnt from the node's
        /// errors).
        log_range(blocks: u64) { self.options.log_range = Some(blocks); }

        /// Sets the budget of calls or credits that may be spent at each node (default: no limit).
        budget(budget: Budget) { self.options.budget = Some(budget); }

        /// Sets the anchor: a source of trusted block hashes. A provider without an anchor must
        /// [trust the head](Self::trust_head).
        anchor(anchor: impl AnchorSource + 'static) {
            self.settings.anchor = Some(Arc::new(anchor));
        }

        /// Trusts the last block that a node names, unless there is an [anchor](Self::anchor).
        ///
        /// Nothing is then authenticated: a node may have made up the whole chain. Results state
        /// this by [`Trust::NoAnchor`](crate::Trust::NoAnchor).
        trust_head() { self.trust_head = true; }

        /// Sets the profile of the chain, which states what its headers commit to. The default is the
        /// known profile for the chain's id.
        profile(profile: ChainProfile) { self.settings.profile = Some(profile); }

        /// Sets the rules by which a log matches a query (default: those of go-ethereum).
        semantics(semantics: Semantics) { self.settings.semantics = semantics; }

        /// Restricts operations to finalised blocks, because later blocks may still leave the chain.
        ///
        /// A range that ends with a tag ends at the finalised block instead. A range that ends with a
        /// block number after the finalised block is an error. Followers ignore this setting: they
        /// deliver new blocks, and report their logs as removed if the blocks leave the chain.
        final_only() { self.settings.final_only = true; }

        /// Keeps evidence: results contain the RLP of headers and the verified receipts.
        keep_evidence() { self.settings.keep_evidence = true; }

        /// Leaves the transaction hashes of logs unproven, in [`Provider::logs`] and followers, and
        /// fetches no transactions.
        ///
        /// By default, all transactions of each block with a matching log are fetched and checked
        /// against the transactions root of its header. With this setting, the `transaction_hash`
        /// of each log is `None`, and `claimed_transaction_hash` has the node's claim, if the node
        /// makes one.
        ///
        /// # What it saves
        /// Measured over 10,000 blocks, 500 of them candidates with 150 transactions and 450 logs
        /// each (`cargo bench -p benches --bench logs`): with the hashes, [`Provider::logs`] takes
        /// 1 % longer if 10 candidates match and 14 % longer if all match, at a node 20 ms away. At
        /// a node that answers from memory on the same two cores, it takes 3 % and 54 % longer.
        without_transaction_hashes() { self.settings.transaction_hashes = false; }

        /// Sets the maximum number of headers that one operation may hold, at about 500 bytes each
        /// (default: 2,000,000).
        max_headers(headers: u64) { self.settings.max_headers = headers; }

        /// Sets the maximum number of blocks whose receipts one operation may fetch (default: 10,000).
        max_receipts(blocks: u64) { self.settings.max_receipts = blocks; }

        /// Sets the maximum number of bytes that one operation may hold in memory (default: 2 GiB). The
        /// maximum applies separately to each kind of data: RLP of headers, logs, and receipts.
        ///
        /// Each answer that is being processed takes up to 256 MiB in addition.
        max_held(bytes: u64) { self.options.max_held = bytes; }

        /// Sets the handle that stops all operations.
        stop(stop: Stop) { self.options.stop = stop; }

        /// Sets a callback that receives notes, for a log or a progress bar. The callback also receives
        /// the endpoint of the node that the note describes.
        ///
        /// The threads that send requests run the callback.
        on_note(sink: impl Fn(&Endpoint, &Note) + Send + Sync + 'static) {
            self.options.on_note = Some(NoteSink(Arc::new(sink)));
        }
    }

    /// Creates the provider. No request is sent yet.
    ///
    /// # Errors
    /// Returns a [`BuildError`] if there is no URL, if a URL or header is invalid, if a header was given
    /// before any URL, or if neither an anchor nor [`trust_head`](Self::trust_head) was given.
    pub fn build(self) -> Result<Provider, BuildError> {
        let Self { endpoints, options, settings, trust_head } = self;
        let endpoints = endpoints.build()?.into_iter();
        let chain_id = Arc::default();
        let node = |endpoint| Node::new(endpoint, options.clone()).of_chain(Arc::clone(&chain_id));
        let nodes: Vec<Node> = endpoints.map(node).collect();
        if nodes.is_empty() {
            return Err(BuildError::NoUrl);
        }
        if settings.anchor.is_none() && !trust_head {
            return Err(BuildError::NoAnchor);
        }
        let stop = options.stop;
        Ok(Provider(Arc::new(Nodes { list: nodes, settings, chain_id, stop })))
    }
}

/// Endpoints in the order in which they were given. Errors are reported by `build`.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    list: Vec<Result<Endpoint, EndpointError>>,
    /// `true` if a header was given before any URL.
    has_stray_header: bool,
}

impl Endpoints {
    pub(crate) fn add(&mut self, endpoint: Result<Endpoint, EndpointError>) {
        self.list.push(endpoint);
    }

    /// Adds a header to the last endpoint.
    pub(crate) fn add_header(&mut self, header: &str) {
        match self.list.pop() {
            Some(endpoint) => {
                self.list.push(endpoint.and_then(|endpoint| endpoint.with_header(header)));
            }
            None => self.has_stray_header = true,
        }
    }

    pub(crate) fn build(self) -> Result<Vec<Endpoint>, BuildError> {
        if self.has_stray_header {
            return Err(BuildError::HeaderBeforeUrl);
        }
        let numbered = self.list.into_iter().zip(1..);
        let endpoints = numbered.map(|(endpoint, place)| {
            endpoint.map_err(|error| BuildError::Endpoint { place, error })
        });
        endpoints.collect()
    }
}
