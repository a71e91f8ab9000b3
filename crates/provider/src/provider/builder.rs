//! Configuration of a provider.

use std::sync::Arc;
use std::time::Duration;

use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::log_query::Semantics;

use super::Provider;
use crate::anchor::AnchorSource;
use crate::error::BuildError;
use crate::nodes::ask::{Nodes, Settings};
use crate::nodes::{Budget, Endpoint, EndpointError, Node, NoteSink, Options};
use crate::report::Note;
use crate::stop::Stop;

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
