//! Configuration of a light client of the beacon chain.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::network::Network;

use super::client::BeaconClient;
use super::error::BeaconError;
use super::server::BeaconServer;
use crate::endpoints::Endpoints;
use crate::node::{Endpoint, NoteSink, Options};
use crate::note::Note;
use crate::stop::Stop;

/// Configures and creates a light client of the beacon chain.
///
/// ```
/// use chainsieve::eth::anchor::network::Network;
/// use chainsieve_provider::BeaconClient;
/// let folder = std::env::temp_dir().join("chainsieve-doc-beacon");
/// let checkpoint = "0x9bcb90ec3a294591b77dd2a58e973578715cdc0e6eeeb286bc06dd120057f18b";
/// let client = BeaconClient::builder(Network::mainnet())
///     .checkpoint(checkpoint.parse()?)
///     .url("https://beacon.example")
///     .url("http://127.0.0.1:5052")
///     .folder(&folder)
///     .build()?;
/// assert_eq!(client.servers().len(), 2);
/// # drop(client);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct BeaconBuilder {
    endpoints: Endpoints,
    pub(super) network: Network,
    pub(super) checkpoint: Option<B256>,
    pub(super) folder: Option<PathBuf>,
    pub(super) restart: bool,
    pub(super) poll: Option<Duration>,
    pub(super) optimistic: bool,
    pub(super) options: Options,
}

impl BeaconBuilder {
    pub(super) fn new(network: Network) -> Self {
        Self {
            endpoints: Endpoints::default(),
            network,
            checkpoint: None,
            folder: None,
            restart: false,
            poll: None,
            optimistic: false,
            options: Options::default(),
        }
    }

    /// Adds a server of the Beacon API by its http or https URL. Without servers, the light client in
    /// the folder is used as it is.
    ///
    /// With several servers, each is asked, so that one of them cannot hide newer blocks.
    pub fn url(mut self, url: &str) -> Self {
        self.endpoints.add(Endpoint::new(url));
        self
    }

    /// Adds a server by its endpoint. In all other respects, this is the same as [`url`](Self::url).
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.add(Ok(endpoint));
        self
    }

    /// Adds an HTTP header, `Name: value`, to the requests for the last URL. If there is no URL yet,
    /// [`build`](Self::build) returns an error.
    pub fn header(mut self, header: &str) -> Self {
        self.endpoints.add_header(header);
        self
    }

    /// Sets the root of a finalised beacon block that the caller trusts. It is needed unless the
    /// folder has a light client.
    pub fn checkpoint(mut self, root: B256) -> Self {
        self.checkpoint = Some(root);
        self
    }

    /// Sets the folder in which the light client is stored, to go on later. It is created if it does
    /// not exist. Only one process at a time can use it. Another one can read it: without servers,
    /// the folder is only read.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Starts from the checkpoint even if the folder has a light client, which is replaced.
    pub fn restart(mut self) -> Self {
        self.restart = true;
        self
    }

    /// Sets the time after which the servers are asked for newer headers again (default: 2 minutes).
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = Some(poll);
        self
    }

    /// Asks each server for its newest signed header, too: one more request in each round. That header
    /// is not final. It is returned as [`BeaconRound::optimistic`](crate::BeaconRound::optimistic),
    /// and changes no anchor. The newest one that two thirds signed is the
    /// [`head`](crate::AnchorSource::head) of the client. A server without such headers is one of the
    /// [failures](crate::BeaconRound::failures).
    pub fn optimistic(mut self) -> Self {
        self.optimistic = true;
        self
    }

    /// Sets the timeout of each request (default: 30 s).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Sets the maximum number of retries of a failed request, with growing back-off (default: 5).
    pub fn retries(mut self, retries: u32) -> Self {
        self.options.retries = retries;
        self
    }

    /// Sets the handle that stops all requests and waits.
    pub fn stop(mut self, stop: Stop) -> Self {
        self.options.stop = stop;
        self
    }

    /// Sets a callback that receives notes, for a log or a progress bar, with the endpoint of the
    /// server that the note describes.
    pub fn on_note(mut self, sink: impl Fn(&Endpoint, &Note) + Send + Sync + 'static) -> Self {
        self.options.on_note = Some(NoteSink(Arc::new(sink)));
        self
    }

    /// Creates the light client. No request is sent yet; the light client in the folder is read.
    ///
    /// # Errors
    /// Returns a [`BeaconError`] if a URL is invalid, if there is nothing to start from, or if the
    /// folder cannot be used.
    pub fn build(mut self) -> Result<BeaconClient, BeaconError> {
        let endpoints = std::mem::take(&mut self.endpoints).build()?.into_iter();
        let server =
            |endpoint| BeaconServer::new(endpoint, self.network.clone(), self.options.clone());
        let servers = endpoints.map(server).collect();
        BeaconClient::open(self, servers)
    }
}
