//! The client's side of SOCKS5 (RFC 1928) with user name and password (RFC 1929).
//!
//! The proxy resolves names: no request of ours reaches the system's resolver. A user name and a
//! password of its own for each connection make Tor use a circuit of its own (`IsolateSOCKSAuth`),
//! so that two peers cannot tell that they serve the same wallet by their common exit.

use std::io::{self, Read, Write};

use super::target::{Host, Target, onion_name};

const VERSION: u8 = 5;
const AUTH_VERSION: u8 = 1;
const NO_AUTH: u8 = 0;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Why a proxy gave no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocksError {
    /// The stream to the proxy failed or timed out.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The proxy does not speak SOCKS5.
    #[error("SOCKS version {got}, expected 5")]
    Version {
        /// The version in the reply.
        got: u8,
    },
    /// The proxy accepts neither a connection without authentication nor one with a password.
    #[error("the proxy accepts no authentication method that was offered")]
    NoMethod,
    /// The proxy chose a method that was not offered.
    #[error("the proxy chose authentication method {got}, offered were 0 and 2")]
    Method {
        /// The method in the reply.
        got: u8,
    },
    /// The reply to the password has another version than RFC 1929's.
    #[error("authentication version {got}, expected 1")]
    AuthVersion {
        /// The version in the reply.
        got: u8,
    },
    /// The proxy refused the password.
    #[error("the proxy refused the password with status {status}")]
    AuthRefused {
        /// The status in the reply, not 0.
        status: u8,
    },
    /// The proxy could not connect.
    #[error("{} (reply {code})", reply_words(*.code))]
    Refused {
        /// The code in the reply, not 0.
        code: u8,
    },
    /// The reply holds an address of an unknown type, so that its end is unknown.
    #[error("address type {got} in the reply, expected 1, 3 or 4")]
    AddressType {
        /// The type in the reply.
        got: u8,
    },
    /// The name does not fit into a request.
    #[error("a name of {bytes} bytes, the limit is {limit}")]
    NameTooLong {
        /// Its length.
        bytes: usize,
        /// 255.
        limit: usize,
    },
}

impl SocksError {
    /// Returns `true` if the proxy said that this very peer cannot be reached. Other errors say
    /// something of the proxy and nothing of the peer.
    pub fn is_about_the_peer(&self) -> bool {
        // Network or host unreachable, refused, expired; Tor's codes on onion services.
        matches!(self, Self::Refused { code: 3..=6 | 0xf0..=0xf7 })
    }
}

/// The codes of RFC 1928, section 6, and Tor's proposal 304.
fn reply_words(code: u8) -> &'static str {
    match code {
        1 => "the proxy failed",
        2 => "the proxy's rules forbid it",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "time to live expired",
        7 => "the proxy does not know the command",
        8 => "the proxy does not know the type of address",
        0xf0 => "onion service not found",
        0xf1 => "invalid descriptor of the onion service",
        0xf2 => "introduction to the onion service failed",
        0xf3 => "rendezvous with the onion service failed",
        0xf4 => "the onion service wants client authorisation",
        0xf5 => "the onion service refused the authorisation",
        0xf6 => "invalid onion address",
        0xf7 => "introduction to the onion service timed out",
        _ => "the proxy refused",
    }
}

/// Asks the proxy at the other end of `stream` to connect to a peer. Afterwards the stream is the
/// peer's: not a byte of what it sends is read here.
///
/// `isolation` goes into user name and password: connections with different numbers get different
/// circuits of Tor. A proxy that knows no passwords may choose a connection without.
///
/// The stream has to bring a timeout: at most 522 bytes are read.
///
/// # Errors
/// [`SocksError`].
pub fn connect(
    stream: &mut (impl Read + Write),
    target: &Target,
    isolation: u64,
) -> Result<(), SocksError> {
    let request = request(target)?;
    stream.write_all(&[VERSION, 2, NO_AUTH, PASSWORD])?;
    match read(stream)? {
        [VERSION, NO_AUTH] => {}
        [VERSION, PASSWORD] => authenticate(stream, isolation)?,
        [VERSION, 0xff] => return Err(SocksError::NoMethod),
        [VERSION, got] => return Err(SocksError::Method { got }),
        [got, _] => return Err(SocksError::Version { got }),
    }
    stream.write_all(&request)?;
    let [version, code, _reserved, kind] = read(stream)?;
    if version != VERSION {
        return Err(SocksError::Version { got: version });
    }
    if code != 0 {
        return Err(SocksError::Refused { code });
    }
    // The address that the proxy calls from is of no use, but it stands before the peer's bytes.
    let address = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => {
            let [length] = read(stream)?;
            usize::from(length)
        }
        got => return Err(SocksError::AddressType { got }),
    };
    let mut rest = [0; 255 + 2];
    stream.read_exact(rest.get_mut(..address + 2).unwrap_or_default())?;
    Ok(())
}

fn authenticate(stream: &mut (impl Read + Write), isolation: u64) -> Result<(), SocksError> {
    let word = format!("{isolation:016x}");
    let mut request = vec![AUTH_VERSION];
    for _ in ["user", "password"] {
        request.push(16);
        request.extend(word.as_bytes());
    }
    stream.write_all(&request)?;
    match read(stream)? {
        [AUTH_VERSION, 0] => Ok(()),
        [AUTH_VERSION, status] => Err(SocksError::AuthRefused { status }),
        [got, _] => Err(SocksError::AuthVersion { got }),
    }
}

fn request(target: &Target) -> Result<Vec<u8>, SocksError> {
    let mut request = vec![VERSION, CONNECT, 0];
    let mut push_name = |name: &str| {
        let bytes = name.len();
        let length =
            u8::try_from(bytes).map_err(|_| SocksError::NameTooLong { bytes, limit: 255 })?;
        request.extend([NAME, length]);
        request.extend(name.as_bytes());
        Ok::<_, SocksError>(())
    };
    match &target.host {
        Host::Name(name) => push_name(name)?,
        Host::Onion(key) => push_name(&onion_name(key))?,
        Host::Ip(std::net::IpAddr::V4(ip)) => {
            request.push(IPV4);
            request.extend(ip.octets());
        }
        Host::Ip(std::net::IpAddr::V6(ip)) => {
            request.push(IPV6);
            request.extend(ip.octets());
        }
    }
    request.extend(target.port.to_be_bytes());
    Ok(request)
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
