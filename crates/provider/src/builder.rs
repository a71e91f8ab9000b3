//! How a provider is set up.

use std::sync::Arc;
use std::time::Duration;

use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::log_query::Semantics;
use chainsieve::eth::provider::Budget;

use crate::anchor::Anchor;
use crate::error::BuildError;
use crate::node::{Endpoint, EndpointError, Node, NoteSink, Options};
use crate::nodes::{Nodes, Settings};
use crate::note::Note;
use crate::provider::Provider;
use crate::stop::Stop;

/// Headers that one operation holds, unless the builder says otherwise: about a gigabyte.
const MAX_HEADERS: u64 = 2_000_000;
/// Blocks whose receipts one operation fetches, unless the builder says otherwise.
const MAX_RECEIPTS: u64 = 10_000;

/// Sets a provider up.
///
/// ```
/// use std::time::Duration;
/// use chainsieve::eth::provider::Budget;
/// use chainsieve_provider::Provider;
/// let provider = Provider::builder()
///     .url("https://mainnet.example/v3/0123456789abcdef")
///     .url("http://127.0.0.1:8545")
///     .header("Authorization: Bearer abcdef")
///     .timeout(Duration::from_secs(10))
///     .budget(Budget::per_second(500.0).default_cost(80).cost("eth_getLogs", 255))
///     .build()?;
/// assert_eq!(provider.nodes()[0].endpoint().to_string(), "https://mainnet.example");
/// # Ok::<(), chainsieve_provider::BuildError>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    endpoints: Vec<Result<Endpoint, EndpointError>>,
    /// A header came before any URL.
    has_stray_header: bool,
    options: Options,
    anchor: Option<Arc<dyn Anchor>>,
    profile: Option<ChainProfile>,
    semantics: Semantics,
    final_only: bool,
    keep_evidence: bool,
    max_headers: Option<u64>,
    max_receipts: Option<u64>,
}

impl Builder {
    /// The http or https URL of a node. With several, what one does not give is asked of the next,
    /// and audits compare their answers.
    pub fn url(mut self, url: &str) -> Self {
        self.endpoints.push(Endpoint::new(url));
        self
    }

    /// The same as [`url`](Self::url), with an endpoint that is made already.
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.push(Ok(endpoint));
        self
    }

    /// A header, `Name: value`, for the last URL. One before any URL is an error of
    /// [`build`](Self::build).
    pub fn header(mut self, header: &str) -> Self {
        match self.endpoints.pop() {
            Some(endpoint) => {
                self.endpoints.push(endpoint.and_then(|endpoint| endpoint.with_header(header)));
            }
            None => self.has_stray_header = true,
        }
        self
    }

    /// How long an answer may take; 30 s unless this is called.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// How often a request that failed is sent again, after longer and longer waits; 5 unless this
    /// is called.
    pub fn retries(mut self, retries: u32) -> Self {
        self.options.retries = retries;
        self
    }

    /// Calls in one request at most; 100 unless this is called.
    pub fn batch(mut self, calls: usize) -> Self {
        self.options.batch = calls.max(1);
        self
    }

    /// Requests at a time at each node; 4 unless this is called.
    pub fn parallel(mut self, requests: usize) -> Self {
        self.options.parallel = requests.max(1);
        self
    }

    /// Blocks of one `eth_getLogs` at most; learnt from the node unless this is called.
    pub fn log_range(mut self, blocks: u64) -> Self {
        self.options.log_range = Some(blocks);
        self
    }

    /// What may be spent at each node.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.options.budget = Some(budget);
        self
    }

    /// Why a block of the chain is believed. Without it, what a node says of its last block is taken
    /// for it.
    pub fn anchor(mut self, anchor: impl Anchor + 'static) -> Self {
        self.anchor = Some(Arc::new(anchor));
        self
    }

    /// What the chain's headers commit to; by the chain's id unless this is called.
    pub fn profile(mut self, profile: ChainProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// By whose rules a log matches; go-ethereum's unless this is called.
    pub fn semantics(mut self, semantics: Semantics) -> Self {
        self.semantics = semantics;
        self
    }

    /// Ends ranges at the finalised block, and refuses blocks after it: they may still leave the
    /// chain. A follower is not bound by it: it gives out new blocks, and takes them back.
    pub fn final_only(mut self) -> Self {
        self.final_only = true;
        self
    }

    /// Keeps the RLP of headers, and verified receipts, in results that have a place for them.
    pub fn keep_evidence(mut self) -> Self {
        self.keep_evidence = true;
        self
    }

    /// Headers that one operation may hold, at about 500 bytes each; 2,000,000 unless this is
    /// called.
    pub fn max_headers(mut self, headers: u64) -> Self {
        self.max_headers = Some(headers);
        self
    }

    /// Blocks whose receipts one operation may fetch; 10,000 unless this is called.
    pub fn max_receipts(mut self, blocks: u64) -> Self {
        self.max_receipts = Some(blocks);
        self
    }

    /// Bytes that one operation may hold of headers' RLP, and as many of logs, and of receipts;
    /// 2 GiB unless this is called. An answer that comes in addition has at most 256 MiB.
    pub fn max_held(mut self, bytes: u64) -> Self {
        self.options.max_held = bytes;
        self
    }

    /// Ends all operations once it is set.
    pub fn stop(mut self, stop: Stop) -> Self {
        self.options.stop = stop;
        self
    }

    /// Gets notes, for a log or a progress bar, with the endpoint of the node that a note is about.
    /// Called on the threads that ask.
    pub fn on_note(mut self, sink: impl Fn(&Endpoint, &Note) + Send + Sync + 'static) -> Self {
        self.options.on_note = Some(NoteSink(Arc::new(sink)));
        self
    }

    /// Sets the provider up. No node is asked anything yet.
    ///
    /// # Errors
    /// [`BuildError`]: no URL, or an invalid URL or header, or a header before any URL.
    pub fn build(self) -> Result<Provider, BuildError> {
        if self.has_stray_header {
            return Err(BuildError::HeaderBeforeUrl);
        }
        let Self { options, .. } = self;
        let mut nodes = Vec::with_capacity(self.endpoints.len());
        for (index, endpoint) in self.endpoints.into_iter().enumerate() {
            let place = index + 1;
            let endpoint = endpoint.map_err(|error| BuildError::Endpoint { place, error })?;
            nodes.push(Node::new(endpoint, options.clone()));
        }
        if nodes.is_empty() {
            return Err(BuildError::NoUrl);
        }
        let settings = Settings {
            anchor: self.anchor,
            profile: self.profile,
            semantics: self.semantics,
            final_only: self.final_only,
            keep_evidence: self.keep_evidence,
            max_headers: self.max_headers.unwrap_or(MAX_HEADERS),
            max_receipts: self.max_receipts.unwrap_or(MAX_RECEIPTS),
        };
        let stop = options.stop;
        Ok(Provider(Arc::new(Nodes { list: nodes, settings, chain_id: Arc::default(), stop })))
    }
}

impl Provider {
    /// Sets a provider up.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A provider of one node, with everything else as [`builder`](Self::builder) has it.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(url: &str) -> Result<Self, BuildError> {
        Self::builder().url(url).build()
    }
}
