//! The client's side of SOCKS5 (RFC 1928) with user name and password (RFC 1929).
//!
//! The proxy resolves names, so that no name reaches the system's resolver. Each connection has its
//! own user name and password, so that Tor uses a separate circuit for it (`IsolateSOCKSAuth`).
//! Otherwise, two peers could see the same exit of Tor, and conclude that they serve the same
//! wallet.

use std::io::{self, Read, Write};

use super::address::{Host, Target, onion_name};

// Codes of RFC 1928, except for `AUTH_VERSION`, which is the version of RFC 1929.
const VERSION: u8 = 5;
const AUTH_VERSION: u8 = 1;
const NO_AUTH: u8 = 0;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Reason why a connection through a proxy failed.
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
    /// The proxy accepts no connection without authentication, and no connection with a password.
    #[error("the proxy accepts no authentication method that was offered")]
    NoMethod,
    /// The proxy chose a method that was not offered.
    #[error("the proxy chose authentication method {got}, but only 0 and 2 were offered")]
    Method {
        /// The method in the reply.
        got: u8,
    },
    /// The reply to the password does not have version 1 (RFC 1929).
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
    /// The proxy could not connect to the peer.
    #[error("{} (reply {code})", reply_words(*.code))]
    Refused {
        /// The code in the reply, not 0.
        code: u8,
    },
    /// The reply contains an address of an unknown type, so that the reply's length is unknown.
    #[error("address type {got} in the reply, expected 1, 3 or 4")]
    AddressType {
        /// The type in the reply.
        got: u8,
    },
    /// The host name is too long for a request.
    #[error("a host name of {bytes} bytes, the limit is {limit}")]
    NameTooLong {
        /// Length of the name in bytes.
        bytes: usize,
        /// Maximum length in bytes: 255.
        limit: usize,
    },
}

impl SocksError {
    /// Returns `true` if the proxy reported that it cannot reach this peer.
    ///
    /// All other errors concern the proxy itself and must not be counted as failures of the peer.
    pub fn is_about_the_peer(&self) -> bool {
        // Codes 3 to 6: network or host unreachable, connection refused, time to live expired. 0xf0
        // to 0xf7: Tor's codes for onion services.
        matches!(self, Self::Refused { code: 3..=6 | 0xf0..=0xf7 })
    }
}

/// Returns the meaning of a reply code (RFC 1928, section 6, and Tor's proposal 304).
fn reply_words(code: u8) -> &'static str {
    match code {
        1 => "the proxy failed",
        2 => "the proxy's rules forbid the connection",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "time to live expired",
        7 => "the proxy does not support the command",
        8 => "the proxy does not support the address type",
        0xf0 => "onion service not found",
        0xf1 => "invalid descriptor of the onion service",
        0xf2 => "introduction to the onion service failed",
        0xf3 => "rendezvous with the onion service failed",
        0xf4 => "the onion service requires client authorisation",
        0xf5 => "the onion service refused the authorisation",
        0xf6 => "invalid onion address",
        0xf7 => "introduction to the onion service timed out",
        _ => "the proxy refused",
    }
}

/// Asks the proxy at the other end of `stream` to connect to a peer. Afterwards the stream is
/// connected to the peer through the proxy. No byte that the peer sends is read here.
///
/// `isolation` is part of the user name and password: Tor uses different circuits for connections
/// with different numbers. A proxy without passwords may choose a connection without
/// authentication.
///
/// The stream must have a timeout of its own. At most 522 bytes are read.
///
/// # Errors
/// Returns a [`SocksError`] if the stream fails, if the proxy breaks the protocol or refuses the
/// connection, or if the host name has more than 255 bytes.
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
    // The reply ends with the address and port that the proxy connects from. This address and port
    // are not used, but must be read, because the peer's bytes follow.
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
    // The user name and the password are both `isolation` as 16 hex digits. Tor accepts any user
    // name and password. Tor only checks whether two connections have the same user name and
    // password.
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
