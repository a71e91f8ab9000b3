//! A light client of the beacon chain, over untrusted servers of the Beacon API.

mod client;
mod link;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync::{Config, Syncer};
use chainsieve::eth::anchor::sync_committee::Evidence;

use self::client::{FILE, Requests, State};
use crate::anchor::AnchorSource;
use crate::durable_file::{DurableFile, FileError};
use crate::nodes::{Endpoint, Node, NoteSink, Options};
use crate::provider::Endpoints;
use crate::report::Note;
use crate::stop::{Stop, lock};

pub use client::{BeaconClient, BeaconError, BeaconRound, ServerFailure};
pub use link::{FindProof, LinkOptions, LinkedBlock};
pub use server::BeaconServer;

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
    network: Network,
    checkpoint: Option<B256>,
    folder: Option<PathBuf>,
    restart: bool,
    poll: Option<Duration>,
    optimistic: bool,
    options: Options,
}

impl BeaconBuilder {
    setters! { self:
        /// Adds a server of the Beacon API by its http or https URL. Without servers, the light
        /// client in the folder is used as it is.
        ///
        /// If there are several servers, each of them is asked, so that a single server cannot hide
        /// newer blocks.
        url(url: &str) { self.endpoints.add(Endpoint::new(url)); }

        /// Adds a server by its endpoint. In all other respects, this is the same as
        /// [`url`](Self::url).
        endpoint(endpoint: Endpoint) { self.endpoints.add(Ok(endpoint)); }

        /// Adds an HTTP header, `Name: value`, to the requests for the last URL. If there is no URL
        /// yet, [`build`](Self::build) returns an error.
        header(header: &str) { self.endpoints.add_header(header); }

        /// Sets the root of a finalised beacon block that the caller trusts. It is needed unless the
        /// folder has a light client.
        checkpoint(root: B256) { self.checkpoint = Some(root); }

        /// Sets the folder in which the light client is stored, so that a later run can continue.
        /// The folder is created if it does not exist. Only one process at a time can use the
        /// folder, but other processes can read it: without servers, the folder is only read.
        folder(folder: impl Into<PathBuf>) { self.folder = Some(folder.into()); }

        /// Starts from the checkpoint even if the folder has a light client, which is replaced.
        restart() { self.restart = true; }

        /// Sets the time after which the servers are asked for newer headers again (default: 2
        /// minutes).
        poll(poll: Duration) { self.poll = Some(poll); }

        /// Asks each server for its newest signed header, too: one more request in each round. That
        /// header is not final. It is returned as
        /// [`BeaconRound::optimistic`](crate::BeaconRound::optimistic), and changes no anchor. The
        /// newest header that two thirds of the committee signed is the
        /// [`head`](crate::AnchorSource::head) of the client. A server without such headers is one
        /// of the [failures](crate::BeaconRound::failures).
        optimistic() { self.optimistic = true; }

        /// Sets the timeout of each request (default: 30 s).
        timeout(timeout: Duration) { self.options.timeout = timeout; }

        /// Sets the maximum number of retries of a failed request, with growing back-off (default: 5).
        retries(retries: u32) { self.options.retries = retries; }

        /// Sets the handle that stops all requests and waits.
        stop(stop: Stop) { self.options.stop = stop; }

        /// Sets a callback that receives notes, for a log or a progress bar, with the endpoint of the
        /// server that the note describes.
        on_note(sink: impl Fn(&Endpoint, &Note) + Send + Sync + 'static) {
            self.options.on_note = Some(NoteSink(Arc::new(sink)));
        }
    }

    /// Creates the light client, or reads what an earlier run stored in the folder. No request is
    /// sent yet.
    ///
    /// # Errors
    /// Returns a [`BeaconError`] if a URL is invalid, if there is nothing to start from, or if the
    /// folder cannot be used.
    pub fn build(self) -> Result<BeaconClient, BeaconError> {
        let Self { endpoints, network, checkpoint, folder, restart, poll, optimistic, options } =
            self;
        let endpoints = endpoints.build()?.into_iter();
        let server = |endpoint| BeaconServer::new(endpoint, network.clone(), options.clone());
        let servers: Vec<BeaconServer> = endpoints.map(server).collect();
        // Without servers, nothing is written, and another process may use the folder.
        let written = folder.as_deref().filter(|_| !servers.is_empty());
        let file = written.map(open_folder).transpose()?;
        let mut client = None;
        if let Some(folder) = folder.as_deref().filter(|_| !restart) {
            client = BeaconClient::read(folder, network.clone())?;
        }
        let mut config = Config::new(servers.len());
        config.poll = poll.unwrap_or(config.poll);
        config.optimistic = optimistic;
        let syncer = match (client, checkpoint) {
            (Some(client), given) => {
                let stored = client.trust().checkpoint.root;
                if let Some(given) = given.filter(|&given| given != stored) {
                    let path = folder.unwrap_or_default().join(FILE);
                    return Err(BeaconError::OtherCheckpoint { path, stored, given });
                }
                Syncer::resume(client, config)
            }
            (None, Some(root)) => Syncer::start(network, root, config),
            (None, None) => {
                return Err(folder.map_or(BeaconError::NoStart, |folder| {
                    BeaconError::NoCheckpoint(folder.join(FILE))
                }));
            }
        };
        let (stop, poll) = (options.stop, config.poll);
        Ok(BeaconClient {
            servers,
            stop,
            poll,
            optimistic,
            round: Mutex::new(Requests::new()),
            state: Mutex::new(State { syncer, file, is_new: false }),
        })
    }
}

impl BeaconClient {
    /// Returns a builder with default settings.
    pub fn builder(network: Network) -> BeaconBuilder {
        BeaconBuilder {
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
}

fn open_folder(folder: &Path) -> Result<DurableFile, FileError> {
    fs::create_dir_all(folder).map_err(|error| FileError::io(folder, &error))?;
    DurableFile::open(&folder.join(FILE))
}

/// Returns the newest finalised execution block: each call asks the servers, but at most once in a
/// [poll interval](BeaconBuilder::poll). A server that does not answer [delays](BeaconClient::advance)
/// nothing. If no server answers, the block of the previous call is returned, because it is still
/// authentic. A block of any [grade](chainsieve::eth::anchor::sync_committee::Anchor::grade) is
/// returned: check the grade of [`light_client`](BeaconClient::light_client), and the age of its
/// checkpoint.
impl AnchorSource for BeaconClient {
    fn blocks(&self) -> Result<Vec<B256>, String> {
        let finalized = self.advance().map_err(|error| error.to_string())?.finalized;
        let hash = finalized.execution.bound_hash();
        let slot = finalized.beacon.slot;
        hash.map(|hash| vec![hash]).ok_or_else(|| BeaconError::NoExecution { slot }.to_string())
    }

    /// The [poll interval](BeaconBuilder::poll); `None` without servers.
    fn refresh(&self) -> Option<Duration> {
        (!self.servers.is_empty()).then_some(self.poll)
    }

    /// The newest block that at least two thirds
    /// [signed](chainsieve::eth::anchor::sync_committee::LightClient::supermajority), if the client
    /// [asks for optimistic headers](BeaconBuilder::optimistic). A newer block with fewer signatures
    /// does not replace it.
    fn head(&self) -> Option<B256> {
        let state = lock(&self.state);
        let client = state.syncer.client().filter(|_| self.optimistic)?;
        let newest = client.supermajority();
        match newest.evidence {
            Evidence::Finalized(_) | Evidence::Optimistic(_) => newest.execution.bound_hash(),
            // The checkpoint is not signed, and a forced header by fewer.
            _ => None,
        }
    }

    /// Uses [`link`](BeaconClient::link): the history contract, or parent hashes.
    fn link(&self, number: u64, nodes: &[Node]) -> Result<Option<B256>, String> {
        let linked = Self::link(self, number, LinkOptions::new(nodes));
        linked.map(|(shown, _)| Some(shown.hash)).map_err(|error| error.to_string())
    }
}
