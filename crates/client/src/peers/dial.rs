//! Opens connections to peers, directly or through a proxy, and performs the handshake.
//!
//! With a proxy, no name is resolved by the local system: the proxy resolves names, so that the DNS
//! does not reveal the client. With a proxy, the client connects to seeds in the same way as to
//! peers, and asks the seeds for addresses, as in Core (`AddrFetch`).

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;

use super::address::{Heard, Host, Target, heard};
use super::frame::{FrameError, Timed, read_message, write_message};
use super::handshake::{HandshakeError, Ours, TIME_LIMIT, Theirs, shake_hands};
use super::socks;
use super::socks::SocksError;

/// Timeout of a direct connection, for each address of a name.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Timeout of a connection through a proxy, longer than that of a direct connection because Tor may
/// build a circuit first.
const PROXY_TIME: Duration = Duration::from_secs(60);
/// Timeout for the addresses of a seed. The value is an estimate: four times the half minute within
/// which Bitcoin Core sends its addresses.
const FETCH_TIME: Duration = Duration::from_secs(2 * 60);
/// Maximum number of messages that are read from a seed before its addresses.
const FETCH_MESSAGES: usize = 64;

/// The way to reach a peer: directly or through a proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    /// Address of a SOCKS5 proxy; `None` connects directly.
    pub(crate) proxy: Option<SocketAddr>,
    /// Number that the credentials for the proxy contain. Connections with different numbers share
    /// no Tor circuit.
    pub(crate) isolation: u64,
}

/// Reason why an attempt to connect failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The name could not be resolved, or no TCP connection could be opened.
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    /// The host name resolves to no address.
    #[error("no connection: the name resolves to no address")]
    NoAddress,
    /// An onion service can be reached only through a proxy.
    #[error("no connection: an onion address needs a proxy")]
    NeedsProxy,
    /// The proxy cannot be reached, or did not open a connection to the peer.
    #[error("no connection: proxy: {0}")]
    Proxy(#[source] SocksError),
    /// The system provides no thread for the connection.
    #[error("no connection: no thread: {0}")]
    Thread(#[source] io::Error),
    /// The handshake with the peer failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The seed sent no addresses.
    #[error("the seed sent no addresses")]
    NoAddresses,
}

impl CallError {
    /// Returns `true` if the peer may be the cause of the failure, and `false` if the cause is the
    /// proxy or our own system.
    pub(crate) fn is_about_the_peer(&self) -> bool {
        match self {
            Self::Proxy(error) => error.is_about_the_peer(),
            Self::Thread(_) | Self::NeedsProxy => false,
            _ => true,
        }
    }
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    pub(crate) theirs: Theirs,
    /// The connected IP address; `None` through a proxy.
    pub(crate) address: Option<SocketAddr>,
}

/// Connects to a peer and performs the handshake. Waits for up to the sum of the timeouts.
pub(crate) fn call(target: &Target, ours: &Ours, route: Route) -> Result<Dialled, CallError> {
    let (mut stream, address) = connect(target, route)?;
    // Nagle's algorithm is disabled, because requests are small and the client waits for an answer
    // to each request.
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIME_LIMIT))?;
    let theirs = shake_hands(&mut stream, ours, address)?;
    Ok(Dialled { stream, theirs, address })
}

fn connect(target: &Target, route: Route) -> Result<(TcpStream, Option<SocketAddr>), CallError> {
    if let Some(proxy) = route.proxy {
        let until = Instant::now() + PROXY_TIME;
        let stream = TcpStream::connect_timeout(&proxy, CONNECT_TIME)
            .map_err(|error| CallError::Proxy(error.into()))?;
        socks::connect(&mut Timed::new(&stream, until), target, route.isolation)
            .map_err(CallError::Proxy)?;
        return Ok((stream, None));
    }
    if matches!(target.host, Host::Onion(_)) {
        return Err(CallError::NeedsProxy);
    }
    let mut last = CallError::NoAddress;
    for address in target.resolve()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIME) {
            Ok(stream) => return Ok((stream, Some(address))),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Connects to a seed, asks for addresses by `getaddr`, and closes the connection.
pub(crate) fn fetch(target: &Target, ours: &Ours, route: Route) -> Result<Vec<Heard>, CallError> {
    let Dialled { stream, .. } = call(target, ours, route)?;
    let mut stream = Timed::new(&stream, Instant::now() + FETCH_TIME);
    write_message(&mut stream, ours.magic, NetworkMessage::GetAddr)?;
    for _ in 0..FETCH_MESSAGES {
        let message = match read_message(&mut stream, ours.magic) {
            Ok(message) => message,
            Err(FrameError::Io(error)) => return Err(error.into()),
            Err(error) => return Err(CallError::Handshake(error.into())),
        };
        match heard(&message) {
            // A single address is the peer's own address, which nodes announce without a request.
            Some(Ok(heard)) if heard.len() > 1 => return Ok(heard),
            Some(Err(_)) => break,
            _ => {}
        }
        if let NetworkMessage::Ping(nonce) = message {
            write_message(&mut stream, ours.magic, NetworkMessage::Pong(nonce))?;
        }
    }
    Err(CallError::NoAddresses)
}

/// Asks the system's resolver for addresses from a DNS seed.
///
/// The query asks for nodes with these services, by a prefix of the name. If this query has no
/// answer and `needed` is `true`, a second query asks for nodes with any services.
pub(crate) fn ask_seed(
    seed: &str,
    port: u16,
    services: ServiceFlags,
    needed: bool,
    unix: u64,
) -> Vec<Heard> {
    let resolve = |name: &str| -> io::Result<Vec<SocketAddr>> {
        Ok((name, port).to_socket_addrs()?.collect())
    };
    let heard = |found: Vec<SocketAddr>, services| {
        let heard = |socket: SocketAddr| Heard { target: socket.into(), services, seen: unix };
        found.into_iter().map(heard).collect()
    };
    match resolve(&format!("x{:x}.{seed}", services.to_u64())) {
        Ok(found) if !found.is_empty() => heard(found, services),
        // Some seeds do not support the prefix. The nodes of such a seed may lack the services.
        _ if needed => heard(resolve(seed).unwrap_or_default(), ServiceFlags::NONE),
        _ => Vec::new(),
    }
}
