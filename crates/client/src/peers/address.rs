//! Addresses of peers: an IP address, an onion service or a host name, with a port; the netgroup of
//! an address; addresses that peers send in `addr` and `addrv2` (BIP155), with limits on their
//! number; and the parameters of a network.
//!
//! A netgroup is a group of addresses that one operator may own. An attacker with many addresses
//! usually has few netgroups.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::time::Duration;
use std::{fmt, io};

use chainsieve::bitcoin::consensus::encode::serialize;
use chainsieve::bitcoin::hashes::{Hash as _, sha256d};
use chainsieve::bitcoin::p2p::address::AddrV2;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};
use chainsieve::bitcoin::{Network, Script};
use chainsieve::btc::headers::BLOCK_TIME;
use chainsieve::btc::protocol::default_port;
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

/// A netgroup: a set of addresses that may belong to one operator.
///
/// The rules are those of Core without a map of autonomous systems (`NetGroupManager::GetGroup`):
///
/// - IPv4 addresses are grouped by their /16 prefix.
/// - IPv6 addresses are grouped by their /32 prefix, or by /36 for Hurricane Electric's tunnels.
/// - An IPv6 address that contains an IPv4 address (mapped, 6to4, Teredo, NAT64) has the netgroup
///   of the IPv4 address.
/// - Onion addresses are grouped by the first four bits of their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group([u8; 6]);

const SEED: u8 = 0xff;

impl Group {
    /// Length of an encoded netgroup in bytes.
    pub const BYTES: usize = 6;
    /// The netgroup that represents a source of addresses without a netgroup of its own.
    pub const UNROUTED: Self = Self([0; 6]);

    /// Returns the netgroup of an address. Host names and addresses that are not routable on the
    /// Internet have no netgroup.
    ///
    /// Loopback and private addresses belong to the user, so the limits on netgroups do not apply
    /// to these addresses.
    pub fn of(host: &Host) -> Option<Self> {
        match host {
            Host::Ip(ip) if !is_routable(*ip) => None,
            Host::Ip(IpAddr::V4(ip)) => Some(Self::of_v4(*ip)),
            Host::Ip(IpAddr::V6(ip)) => {
                Some(linked_v4(*ip).map_or_else(|| Self::of_v6(*ip), Self::of_v4))
            }
            Host::Onion([first, ..]) => Some(Self([4, first >> 4, 0, 0, 0, 0])),
            Host::Name(_) => None,
        }
    }

    /// Returns the netgroup that identifies a DNS seed as a source of addresses.
    pub fn of_seed(name: &str) -> Self {
        // A hash without a key (FNV-1a) is sufficient: the program contains the names of the seeds,
        // so no attacker can choose colliding names.
        let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let [a, b, c, d] = name.bytes().fold(0x811c_9dc5, mix).to_le_bytes();
        Self([SEED, a, b, c, d, 0])
    }

    fn of_v4(ip: Ipv4Addr) -> Self {
        let [a, b, ..] = ip.octets();
        Self([1, a, b, 0, 0, 0])
    }

    fn of_v6(ip: Ipv6Addr) -> Self {
        let [a, b, c, d, e, ..] = ip.octets();
        // Hurricane Electric gives anybody a /48 of 2001:470::/32. So Core groups these addresses
        // by 36 bits instead of 32.
        let more = if [a, b, c, d] == [0x20, 0x01, 0x04, 0x70] { e & 0xf0 } else { 0 };
        Self([2, a, b, c, d, more])
    }

    /// Encodes the netgroup, as in the file of the address book.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Decodes a netgroup from the file of the address book. All byte values are valid.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

/// Returns `true` if an address is routable on the Internet (Core's `IsRoutable`).
pub fn is_routable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_routable_v4(ip),
        IpAddr::V6(ip) => {
            let [s0, s1, ..] = ip.segments();
            // If the IPv6 address contains an IPv4 address, both addresses must be routable.
            linked_v4(ip).is_none_or(is_routable_v4)
                && !ip.is_unspecified()
                && !ip.is_loopback()
                && !ip.is_multicast()
                && s0 & 0xffc0 != 0xfe80 // link-local, RFC 4862
                && s0 & 0xfe00 != 0xfc00 // unique local, RFC 4193; includes CJDNS
                && (s0, s1) != (0x2001, 0x0db8) // documentation, RFC 3849
                && !(s0 == 0x2001 && matches!(s1 & 0xfff0, 0x10 | 0x20)) // ORCHID, RFC 4843 and 7343
        }
    }
}

fn is_routable_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !(matches!(a, 0 | 10 | 127 | 224..)
        || (a, b) == (169, 254) // RFC 3927
        || (a, b) == (192, 168)
        || (a == 172 && b & 0xf0 == 16)
        || (a == 100 && b & 0xc0 == 64) // carrier-grade NAT, RFC 6598
        || (a == 198 && b & 0xfe == 18) // benchmarks, RFC 2544
        || matches!((a, b, c), (192, 0, 2) | (198, 51, 100) | (203, 0, 113))) // RFC 5737
}

/// Returns the IPv4 address that an IPv6 address contains (6to4, Teredo, NAT64, mapped), if any.
fn linked_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = ip.segments();
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match (s0, s1) {
        (0x2002, _) => v4(s1, s2),
        // Teredo (RFC 4380) stores the IPv4 address with all bits inverted.
        (0x2001, 0) => v4(!s6, !s7),
        (0x64, 0xff9b) if (s2, s3, s4, s5) == (0, 0, 0, 0) => v4(s6, s7),
        (0, 0) if (s2, s3, s4, s5) == (0, 0, 0, 0xffff) => v4(s6, s7),
        _ => None,
    }
}

/// Maximum number of addresses in a message (Core's `MAX_ADDR_TO_SEND`).
pub const MAX_HEARD: usize = 1_000;
/// Time in which a peer may send one address that was not requested (Core's
/// `MAX_ADDR_RATE_PER_SECOND` is 0.1).
const UNASKED_EVERY: Duration = Duration::from_secs(10);

/// An address, and the claims of its source about the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The address.
    pub target: Target,
    /// The services that the source claims for the address; [`ServiceFlags::NONE`] if unknown.
    pub services: ServiceFlags,
    /// Unix time in seconds at which the node was last seen, as the source claims.
    pub seen: u64,
}

/// A message contains more addresses than nodes send: the limit is [`MAX_HEARD`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of {count} addresses, the limit is {MAX_HEARD}")]
pub struct TooMany {
    /// Number of addresses in the message.
    pub count: usize,
}

/// Returns the addresses in a message; `None` if the message is neither `addr` nor `addrv2`.
///
/// Addresses of networks that the client cannot reach are left out: I2P, CJDNS, Tor version 2, and
/// unknown networks.
///
/// # Errors
/// Returns [`TooMany`] if the message contains more than [`MAX_HEARD`] addresses.
pub fn heard(message: &NetworkMessage) -> Option<Result<Vec<Heard>, TooMany>> {
    let heard = |host, port, services, time: u32| {
        let target = Target { host, port };
        Heard { target, services, seen: time.into() }
    };
    let (count, found) = match message {
        NetworkMessage::Addr(list) => {
            let parts = list.iter().take(MAX_HEARD).map(|(time, address)| {
                // OnionCat addresses (Tor version 2) need no test here: they are not routable, and
                // the book rejects them.
                let host = ip(Ipv6Addr::from(address.address));
                heard(host, address.port, address.services, *time)
            });
            (list.len(), parts.collect())
        }
        NetworkMessage::AddrV2(list) => {
            let parts = list.iter().take(MAX_HEARD).filter_map(|message| {
                let host = match &message.addr {
                    AddrV2::Ipv4(v4) => Host::Ip((*v4).into()),
                    AddrV2::Ipv6(v6) => ip(*v6),
                    AddrV2::TorV3(key) => Host::Onion(*key),
                    _ => return None,
                };
                Some(heard(host, message.port, message.services, message.time))
            });
            (list.len(), parts.collect())
        }
        _ => return None,
    };
    Some(if count > MAX_HEARD { Err(TooMany { count }) } else { Ok(found) })
}

/// Returns the IPv4 address if `v6` is an IPv4-mapped address, and otherwise `v6`.
fn ip(v6: Ipv6Addr) -> Host {
    Host::Ip(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4))
}

/// Limits the number of addresses that are accepted from a peer.
///
/// A peer may send 1,000 addresses for each `getaddr`, and one address every ten seconds without a
/// request. So a peer that sends addresses without end cannot crowd out the addresses of other
/// peers.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    left: usize,
    since: Duration,
}

impl Allowance {
    /// Creates the limit of a connection that begins now. The limit allows one address at first,
    /// the peer's own.
    pub fn new(now: Duration) -> Self {
        Self { left: 1, since: now }
    }

    /// Allows [`MAX_HEARD`] more addresses, because the peer is sent a `getaddr`.
    pub fn asked(&mut self) {
        self.left = (self.left + MAX_HEARD).min(2 * MAX_HEARD);
    }

    /// Accepts as many of `count` received addresses as are allowed, and returns their number.
    pub fn take(&mut self, count: usize, now: Duration) -> usize {
        let passed = now.saturating_sub(self.since).as_secs() / UNASKED_EVERY.as_secs();
        if passed > 0 {
            self.since += UNASKED_EVERY.saturating_mul(u32::try_from(passed).unwrap_or(u32::MAX));
            let gained = usize::try_from(passed).unwrap_or(usize::MAX);
            // The allowance grows with time up to `MAX_HEARD` addresses. If requests have made the
            // allowance larger than this, it is not reduced.
            self.left = self.left.max(MAX_HEARD.min(self.left.saturating_add(gained)));
        }
        let taken = count.min(self.left);
        self.left -= taken;
        taken
    }
}

/// A chain with the parameters of its peer-to-peer network.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkParams {
    /// The network whose consensus rules apply.
    pub network: Network,
    /// The first four bytes of each message.
    pub magic: Magic,
    /// The default port of nodes, used for addresses without a port.
    pub port: u16,
    /// Block time in seconds at which the difficulty aims: 600, except on a custom signet whose
    /// nodes run with another `-signetblocktime`.
    pub block_time: u32,
    /// Host names of DNS seeds. With a proxy, onion addresses and `HOST:PORT` are possible too.
    pub seeds: Vec<String>,
}

impl NetworkParams {
    /// Returns a well-known chain, with the port and DNS seeds of Core 30
    /// (`kernel/chainparams.cpp`).
    pub fn new(network: Network) -> Self {
        let seeds = seeds(network).iter().map(|seed| (*seed).to_owned()).collect();
        let (magic, port) = (network.magic(), default_port(network));
        Self { network, magic, port, block_time: BLOCK_TIME, seeds }
    }

    /// Returns the signet with this challenge (BIP325). Signets other than the default signet have
    /// no seeds. Their block time is ten minutes, unless [`block_time`](Self::block_time) is
    /// changed.
    ///
    /// ```
    /// use chainsieve_client::{Builder, NetworkParams, chainsieve::bitcoin::ScriptBuf};
    ///
    /// // Mutinynet: a block every 30 seconds.
    /// let challenge = "512102f7561d208dd9ae99bf497273e16f389bdbd6c4742ddb8e6b216e64fa2928ad8f51ae";
    /// let mut mutinynet = NetworkParams::signet(&ScriptBuf::from_hex(challenge)?);
    /// mutinynet.block_time = 30;
    /// let builder = Builder::new(mutinynet).peer("45.79.52.207");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn signet(challenge: &Script) -> Self {
        let default = Self::new(Network::Signet);
        // BIP325: the magic is the start of SHA256d of the challenge, serialised with its length.
        let [m0, m1, m2, m3, ..] = sha256d::Hash::hash(&serialize(challenge)).to_byte_array();
        let magic = Magic::from_bytes([m0, m1, m2, m3]);
        if magic == default.magic {
            return default;
        }
        Self { magic, seeds: Vec::new(), ..default }
    }
}

impl From<Network> for NetworkParams {
    fn from(network: Network) -> Self {
        Self::new(network)
    }
}

fn seeds(network: Network) -> &'static [&'static str] {
    match network {
        Network::Bitcoin => &[
            "seed.bitcoin.sipa.be",
            "dnsseed.bluematt.me",
            "seed.bitcoin.jonasschnelli.ch",
            "seed.btc.petertodd.net",
            "seed.bitcoin.sprovoost.nl",
            "dnsseed.emzy.de",
            "seed.bitcoin.wiz.biz",
            "seed.mainnet.achownodes.xyz",
        ],
        Network::Testnet => &[
            "testnet-seed.bitcoin.jonasschnelli.ch",
            "seed.tbtc.petertodd.net",
            "seed.testnet.bitcoin.sprovoost.nl",
            "testnet-seed.bluematt.me",
            "seed.testnet.achownodes.xyz",
        ],
        Network::Testnet4 => &["seed.testnet4.bitcoin.sprovoost.nl", "seed.testnet4.wiz.biz"],
        Network::Signet => &["seed.signet.bitcoin.sprovoost.nl", "seed.signet.achownodes.xyz"],
        Network::Regtest => &[],
    }
}

#[cfg(test)]
mod tests;
