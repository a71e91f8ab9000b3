//! One server of the Beacon API: the light client's objects over HTTP.
//!
//! Only the form of answers is checked here. The light client proves their claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::header_proof::SummariesProof;
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, Update, UpdateKind};

use crate::nodes::transport::{Bytes, Transport};
use crate::nodes::{Endpoint, Options, RpcError};

/// Maximum size of a bootstrap, which has 25 kB as SSZ and 55 kB as JSON.
const MAX_BOOTSTRAP: u64 = 1 << 20;
/// Maximum size of a finality or optimistic update, which has up to 2 kB as SSZ and 5 kB as JSON.
const MAX_SMALL: u64 = 256 << 10;
/// Maximum size of one update in a list of updates. An update has 27 kB as SSZ and 60 kB as JSON.
const MAX_UPDATE: u64 = 256 << 10;
/// Maximum size of historical summaries: 64 bytes a period as SSZ, about 200 as JSON.
const MAX_SUMMARIES: u64 = 4 << 20;

/// SSZ is preferred, because it is half as long as JSON.
const ANY: &str = "application/octet-stream;q=1.0,application/json;q=0.9";
const JSON: &str = "application/json";

/// Paths of a state's historical summaries, for which the Beacon API has no path: the part before the
/// state's root.
const SUMMARIES: [&str; 2] = ["/eth/v1/lodestar/states/", "/nimbus/v1/debug/beacon/states/"];

/// One server of the Beacon API. Clones share the server's connections.
///
/// [`BeaconClient`](crate::BeaconClient) asks several servers and proves their answers.
#[derive(Debug, Clone)]
pub struct BeaconServer {
    pub(super) transport: Transport,
    network: Network,
    /// `true` once an answer as SSZ was refused or could not be read.
    only_json: Arc<AtomicBool>,
}

impl BeaconServer {
    pub(crate) fn new(endpoint: Endpoint, network: Network, options: Options) -> Self {
        Self { transport: Transport::new(endpoint, options), network, only_json: Arc::default() }
    }

    /// Returns the server's URL. Its `Display` shows only scheme, host and port.
    pub fn endpoint(&self) -> &Endpoint {
        self.transport.endpoint()
    }

    /// Requests the bootstrap of a block. Servers have it for the first blocks of finalised epochs.
    ///
    /// # Errors
    /// Returns [`RpcError::NotFound`] if the server does not have it, and another [`RpcError`] if the
    /// request fails.
    pub fn bootstrap(&self, root: B256) -> Result<Bootstrap, RpcError> {
        let what = || format!("the bootstrap of block {root}");
        let path = format!("/eth/v1/beacon/light_client/bootstrap/{root}");
        let preset = self.network.preset();
        self.object(what, &path, MAX_BOOTSTRAP, |form| {
            Ok(match form {
                Form::Ssz(bytes, fork) => Bootstrap::from_ssz(bytes, fork?, preset)?,
                Form::Json(text) => Bootstrap::from_json(text, preset)?,
            })
        })
    }

    /// Requests the best updates of `count` periods, at most 128.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails, or an object is malformed.
    pub fn updates(&self, start_period: u64, count: u64) -> Result<Vec<Update>, RpcError> {
        let what = || format!("updates from period {start_period} on");
        let path = format!(
            "/eth/v1/beacon/light_client/updates?start_period={start_period}&count={count}"
        );
        let limit = count.clamp(1, 128) * MAX_UPDATE;
        self.object(what, &path, limit, |form| {
            Ok(match form {
                // Each update has the digest of its fork.
                Form::Ssz(bytes, _) => Update::list_from_ssz(bytes, &self.network)?,
                Form::Json(text) => Update::list_from_json(text, self.network.preset())?,
            })
        })
    }

    /// Requests the newest finality update.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails, or the object is malformed.
    pub fn finality_update(&self) -> Result<Update, RpcError> {
        self.newest("a finality update", "finality_update", UpdateKind::Finality)
    }

    /// Requests the newest optimistic update.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails, or the object is malformed.
    pub fn optimistic_update(&self) -> Result<Update, RpcError> {
        self.newest("an optimistic update", "optimistic_update", UpdateKind::Optimistic)
    }

    fn newest(&self, what: &str, path: &str, kind: UpdateKind) -> Result<Update, RpcError> {
        let path = format!("/eth/v1/beacon/light_client/{path}");
        let preset = self.network.preset();
        self.object(
            || what.to_owned(),
            &path,
            MAX_SMALL,
            |form| {
                Ok(match form {
                    Form::Ssz(bytes, fork) => Update::from_ssz(bytes, kind, fork?, preset)?,
                    Form::Json(text) => Update::from_json(text, kind, preset)?,
                })
            },
        )
    }

    /// Requests the historical summaries of a state, with their branch. Lodestar and Nimbus serve
    /// them.
    ///
    /// # Errors
    /// Returns the [`RpcError`] of the first path if the server answers neither path.
    pub fn historical_summaries(&self, state_root: B256) -> Result<SummariesProof, RpcError> {
        let mut failed = None;
        for before in SUMMARIES {
            let what = || format!("the historical summaries of state {state_root}");
            let path = format!("{before}{state_root}/historical_summaries");
            let read = self.object(what, &path, MAX_SUMMARIES, |form| {
                Ok(match form {
                    Form::Ssz(bytes, _) => SummariesProof::from_ssz(bytes)?,
                    Form::Json(text) => SummariesProof::from_json(text)?,
                })
            });
            match read {
                Ok(summaries) => return Ok(summaries),
                Err(RpcError::Stopped) => return Err(RpcError::Stopped),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.expect("two paths"))
    }

    /// Requests an object, as SSZ if the server supports SSZ.
    fn object<T>(
        &self,
        what: impl Fn() -> String,
        path: &str,
        limit: u64,
        read: impl Fn(Form<'_>) -> Result<T, Unreadable>,
    ) -> Result<T, RpcError> {
        self.transport.retried(|| {
            loop {
                let only_json = self.only_json.load(Ordering::Relaxed);
                let accept = if only_json { JSON } else { ANY };
                let answer = self.transport.get(path, limit, accept);
                let bytes = match answer {
                    Ok(bytes) => bytes,
                    Err(RpcError::Http { status: 404 }) => {
                        return Err(RpcError::NotFound { what: what() });
                    }
                    Err(RpcError::Http { status: 406 | 415 }) if !only_json => {
                        self.only_json.store(true, Ordering::Relaxed);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let form = Form::of(&bytes);
                let is_ssz = matches!(form, Ok(Form::Ssz(..)));
                match form.map_err(Unreadable::from).and_then(&read) {
                    Ok(object) => return Ok(object),
                    // Some servers do not name the fork of SSZ, which JSON always contains.
                    Err(_) if is_ssz && !only_json => self.only_json.store(true, Ordering::Relaxed),
                    Err(error) => {
                        let text = self.endpoint().scrub(&format!("{}: {error}", what()));
                        return Err(RpcError::Malformed(RpcError::words(&text)));
                    }
                }
            }
        })
    }
}

/// Reason why a body cannot be read.
type Unreadable = Box<dyn std::error::Error>;

/// The body of an answer.
enum Form<'a> {
    /// SSZ, and the fork that the answer names.
    Ssz(&'a [u8], Result<Fork, String>),
    Json(&'a str),
}

impl<'a> Form<'a> {
    /// Tells the form by the content type: servers may answer with JSON although SSZ was asked for.
    fn of(answer: &'a Bytes) -> Result<Self, String> {
        let is_ssz = answer
            .header("Content-Type")
            .is_some_and(|kind| kind.trim_start().starts_with("application/octet-stream"));
        if is_ssz {
            let fork = answer.header("Eth-Consensus-Version").ok_or("the fork is not named");
            let fork = fork.map_err(str::to_owned).and_then(|name| {
                name.trim().to_ascii_lowercase().parse().map_err(|_| format!("fork {name:?}"))
            });
            return Ok(Self::Ssz(&answer.body, fork));
        }
        str::from_utf8(&answer.body).map(Self::Json).map_err(|_| "not UTF-8".to_owned())
    }
}
