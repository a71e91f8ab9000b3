//! Calls: a connection to a peer, through a proxy if there is one, and the handshake.
//!
//! With a proxy nothing here resolves a name: the proxy does, and seeds are connected to like peers
//! and asked for addresses, as Core does (`AddrFetch`).

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;

use super::events::CallError;
use super::frame::{FrameError, read_message, write_message};
use super::gossip::{Heard, heard};
use super::handshake::{Ours, TIME_LIMIT, Theirs, shake_hands};
use super::socks;
use super::target::{Host, Target};
use super::timed::Timed;

/// Timeout of a connection, for each address of a name.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Timeout of a connection through a proxy, which may build a circuit first.
const PROXY_TIME: Duration = Duration::from_mins(1);
/// Timeout of the addresses of a seed: Core sends them within half a minute or so.
const FETCH_TIME: Duration = Duration::from_mins(2);
/// Messages that are read of a seed before its addresses.
const FETCH_MESSAGES: usize = 64;

/// How peers are reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    /// A SOCKS5 proxy.
    pub(crate) proxy: Option<SocketAddr>,
    /// Told to the proxy: calls with different numbers share no circuit.
    pub(crate) isolation: u64,
}

/// A call that was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) stream: TcpStream,
    pub(crate) theirs: Theirs,
    /// The address that answered; `None` through a proxy.
    pub(crate) address: Option<SocketAddr>,
}

/// Calls a peer. Takes as long as the timeouts above allow.
pub(crate) fn call(target: &Target, ours: &Ours, route: Route) -> Result<Answered, CallError> {
    let (mut stream, address) = connect(target, route)?;
    // Requests are small and waited for.
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIME_LIMIT))?;
    let theirs = shake_hands(&mut stream, ours, address)?;
    Ok(Answered { stream, theirs, address })
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

/// Connects to a peer for its addresses alone.
pub(crate) fn fetch(target: &Target, ours: &Ours, route: Route) -> Result<Vec<Heard>, CallError> {
    let Answered { stream, .. } = call(target, ours, route)?;
    let mut stream = Timed::new(&stream, Instant::now() + FETCH_TIME);
    write_message(&mut stream, ours.magic, NetworkMessage::GetAddr)?;
    for _ in 0..FETCH_MESSAGES {
        let message = match read_message(&mut stream, ours.magic) {
            Ok(message) => message,
            Err(FrameError::Io(error)) => return Err(error.into()),
            Err(error) => return Err(CallError::Handshake(error.into())),
        };
        match heard(&message) {
            // One alone is the peer's own address, which it tells without being asked.
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

/// Asks the system's resolver for the addresses that a DNS seed names, of nodes with these services
/// where the seed tells them apart. `needed` is whether any other nodes will do.
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
        // Some seeds do not know the prefix. The nodes they name may lack the services.
        _ if needed => heard(resolve(seed).unwrap_or_default(), ServiceFlags::NONE),
        _ => Vec::new(),
    }
}
