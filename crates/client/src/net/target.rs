//! The address of a peer: an IP address, an onion service or a host name, with a port.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use tiny_keccak::{Hasher as _, Sha3};

/// Maximum number of addresses that are dialled for one name. The limit bounds the time that a name
/// with many unreachable addresses can take.
const MAX_RESOLVED: usize = 8;
/// Length of a version 3 onion address in bytes: public key (32), checksum (2), version (1).
const ONION_BYTES: usize = 35;
const ONION_VERSION: u8 = 3;
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The host of a peer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A Tor onion service of version 3, by its public key. The service can be reached only through
    /// a proxy.
    Onion([u8; 32]),
    /// A host name. The name is resolved for each connection, by the proxy if there is one, and
    /// otherwise by the system.
    Name(String),
}

/// The address of a peer: host and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The TCP port.
    pub port: u16,
}

/// Reason why a text cannot be parsed as the address of a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The port is not a number from 0 to 65535.
    #[error("the port is not a number from 0 to 65535")]
    Port,
    /// The host is neither an IP address nor a valid host name.
    #[error("neither an IP address nor a host name")]
    Host,
    /// The name ends with `.onion` but is not a valid version 3 address, or its checksum is wrong.
    #[error("not an onion address of version 3")]
    Onion,
}

impl Target {
    /// Parses `HOST`, `HOST:PORT`, or an IPv6 address with or without brackets. An address without
    /// a port gets `default_port`.
    ///
    /// # Errors
    /// Returns a [`TargetError`] if the host or the port is invalid.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, TargetError> {
        let text = text.trim();
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(socket.into());
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Self { host: Host::Ip(ip), port: default_port });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| TargetError::Port)?),
            None => (text, default_port),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if host.is_empty() || !host.chars().all(is_name) {
            return Err(TargetError::Host);
        }
        // Names under `.onion` must never reach a resolver (RFC 7686).
        let host = match host.to_ascii_lowercase().strip_suffix(".onion") {
            Some(label) => Host::Onion(onion_key(label).ok_or(TargetError::Onion)?),
            None => Host::Name(host.to_owned()),
        };
        Ok(Self { host, port })
    }

    /// Resolves the host by the system's resolver, to at most eight addresses. The result is empty
    /// for an onion service.
    ///
    /// # Errors
    /// Returns the errors of the resolver.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.host {
            Host::Ip(ip) => Ok(vec![(*ip, self.port).into()]),
            Host::Name(name) => {
                Ok((name.as_str(), self.port).to_socket_addrs()?.take(MAX_RESOLVED).collect())
            }
            Host::Onion(_) => Ok(Vec::new()),
        }
    }
}

impl From<SocketAddr> for Target {
    fn from(socket: SocketAddr) -> Self {
        let host = match socket {
            // `IpAddr` has no field for the scope of a link-local address. The resolver accepts a
            // scope as part of the name.
            SocketAddr::V6(v6) if v6.scope_id() != 0 => {
                Host::Name(format!("{}%{}", v6.ip(), v6.scope_id()))
            }
            _ => Host::Ip(socket.ip()),
        };
        Self { host, port: socket.port() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::from((*ip, self.port)).fmt(f),
            Host::Onion(key) => write!(f, "{}:{}", onion_name(key), self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Returns the name of an onion service, including `.onion` (Tor's `rend-spec-v3`, "Encoding onion
/// addresses").
pub fn onion_name(key: &[u8; 32]) -> String {
    let mut bytes = key.to_vec();
    bytes.extend(onion_checksum(key));
    bytes.push(ONION_VERSION);
    let mut name = String::with_capacity(62);
    // Base32 encodes five bytes as eight letters of five bits. 35 bytes need no padding.
    for five in bytes.chunks(5) {
        let bits = five.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        name.extend((0..8).rev().filter_map(|letter| {
            let value = usize::try_from(bits >> (5 * letter) & 31).ok()?;
            BASE32.get(value).copied().map(char::from)
        }));
    }
    name + ".onion"
}

/// Decodes the public key from the name of an onion service without `.onion`. Returns `None` if a
/// letter, the length, the checksum or the version is wrong.
fn onion_key(label: &str) -> Option<[u8; 32]> {
    let mut bytes = Vec::with_capacity(ONION_BYTES);
    for eight in label.as_bytes().chunks(8) {
        let mut bits = 0_u64;
        for letter in eight {
            let value = BASE32.iter().position(|known| known == letter)?;
            bits = bits << 5 | u64::try_from(value).ok()?;
        }
        bytes.extend(bits.to_be_bytes().into_iter().skip(3));
    }
    if label.len() != ONION_BYTES / 5 * 8 {
        return None;
    }
    let (key, rest) = bytes.split_first_chunk::<32>()?;
    let [c0, c1] = onion_checksum(key);
    (rest == [c0, c1, ONION_VERSION]).then_some(*key)
}

fn onion_checksum(key: &[u8; 32]) -> [u8; 2] {
    let mut sha3 = Sha3::v256();
    sha3.update(b".onion checksum");
    sha3.update(key);
    sha3.update(&[ONION_VERSION]);
    let mut digest = [0; 32];
    sha3.finalize(&mut digest);
    let [c0, c1, ..] = digest;
    [c0, c1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        let parse = |text| Target::parse(text, 8_333).map(|target| target.to_string());
        for (text, target) in [
            ("127.0.0.1", "127.0.0.1:8333"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("::1", "[::1]:8333"),
            ("[::1]", "[::1]:8333"),
            ("[::1]:1", "[::1]:1"),
            ("node.example", "node.example:8333"),
            (" node-1.example:65535 ", "node-1.example:65535"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(target), "{text}");
        }
        for text in ["", ":1", "node:65536", "node:", "node:x", "a b", "http://node", "a\u{1b}[m"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn onion_addresses_by_key_and_by_name() {
        // Core's test vector of BIP155 (net_tests.cpp, cnetaddr_basic), and the address of the Tor
        // Project's site.
        let key = "79bcc625184b05194975c28b66b66b0469f7f6556fb1ac3189a79b40dda32f1f";
        let core = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion";
        let key: [u8; 32] = hex::decode(key).unwrap().try_into().unwrap();
        assert_eq!(onion_name(&key), core);
        let parsed = Target::parse(&format!("{}:1", core.to_uppercase()), 8_333).unwrap();
        assert_eq!(parsed, Target { host: Host::Onion(key), port: 1 });
        let tor = "2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion";
        assert_eq!(Target::parse(tor, 1).unwrap().to_string(), format!("{tor}:1"));
        // One letter changed, one letter missing, a version 2 address, an empty name: all of them
        // are rejected, so that no resolver is asked.
        let changed = format!("q{}", &core[1..]);
        for text in [changed.as_str(), &core[1..], "6hzph5hv6337r6p2.onion", ".onion"] {
            assert_eq!(Target::parse(text, 1), Err(TargetError::Onion), "{text}");
        }
    }
}
