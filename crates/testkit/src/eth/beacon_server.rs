//! A server of the Beacon API on loopback, for the light client's objects. It can misbehave in each
//! way that is named by [`Quirk`].

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alloy_primitives::B256;
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, Update, UpdateKind};
use serde_json::{Value, json};

use super::beacon_objects::{
    bootstrap_json, bootstrap_ssz, update_chunks, update_json, update_ssz,
};

const SSZ: &str = "application/octet-stream";
const JSON: &str = "application/json";
/// Largest number of updates in an answer: `MAX_REQUEST_LIGHT_CLIENT_UPDATES`.
const MAX_UPDATES: u64 = 128;
/// Number of bytes of an endless body.
const HUGE: u64 = 1 << 30;
/// Time that an answer of [`Quirk::Slow`] takes.
const SLOW: Duration = Duration::from_secs(3);
/// Pause between two bytes of [`Quirk::Drip`].
const DRIP: Duration = Duration::from_millis(50);

/// What a server has.
#[derive(Debug, Clone, Default)]
pub struct BeaconData {
    /// Bootstraps by the root of their header.
    pub bootstraps: HashMap<B256, Bootstrap>,
    /// The best update of each period.
    pub updates: BTreeMap<u64, Update>,
    pub finality: Option<Update>,
    pub optimistic: Option<Update>,
}

impl BeaconData {
    /// Adds a bootstrap, and returns its root.
    pub fn add_bootstrap(&mut self, bootstrap: Bootstrap) -> B256 {
        let root = bootstrap.header.beacon.root();
        self.bootstraps.insert(root, bootstrap);
        root
    }
}

/// Way in which a server differs from a correct one with all forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quirk {
    /// Every path is unknown: status 404.
    NotFound,
    /// Every request fails: status 500.
    Error,
    /// A range of updates that reaches beyond the newest one fails: status 500. Lodestar.
    FutureRange,
    /// JSON, also where SSZ was requested.
    OnlyJson,
    /// SSZ without the header `Eth-Consensus-Version`.
    NoVersion,
    /// A request that accepts SSZ fails: status 406.
    RefusesSsz,
    /// SSZ for every request, also where only JSON is accepted.
    OnlySsz,
    /// The content type is that of the other form.
    WrongType,
    /// The content type is `text/html`, and so is the body.
    Html,
    /// Each answer comes whole, after three seconds.
    Slow,
    /// The body comes one byte at a time.
    Drip,
    /// The body never comes.
    Stall,
    /// The server accepts a connection, and never answers.
    Silent,
    /// A body of 1 GiB with its length in front.
    Huge,
    /// The same in chunks, without a length in front.
    HugeChunked,
    /// A small body that expands to 1 GiB.
    GzipBomb,
    /// The connection ends in the middle of the body.
    Truncated,
    /// The body ends in the middle of the object, and its length says so.
    Cut,
    /// A redirect to another path.
    Redirect,
    /// Updates of the periods after the requested ones.
    OtherPeriods,
    /// The updates are in descending order.
    Reversed,
    /// All updates that the server has, whatever was requested.
    More,
    /// Signatures have one changed byte, and so has the branch of a bootstrap.
    Damaged,
    /// The header `Eth-Consensus-Version` names a fork without light clients.
    OldFork,
}

impl Quirk {
    /// All quirks.
    pub const ALL: [Self; 24] = [
        Self::NotFound,
        Self::Error,
        Self::FutureRange,
        Self::OnlyJson,
        Self::NoVersion,
        Self::RefusesSsz,
        Self::OnlySsz,
        Self::WrongType,
        Self::Html,
        Self::Slow,
        Self::Drip,
        Self::Stall,
        Self::Silent,
        Self::Huge,
        Self::HugeChunked,
        Self::GzipBomb,
        Self::Truncated,
        Self::Cut,
        Self::Redirect,
        Self::OtherPeriods,
        Self::Reversed,
        Self::More,
        Self::Damaged,
        Self::OldFork,
    ];

    /// Returns `true` if a client can still use the server's answers.
    pub const fn is_usable(self) -> bool {
        matches!(
            self,
            Self::FutureRange
                | Self::Slow
                | Self::OnlyJson
                | Self::NoVersion
                | Self::RefusesSsz
                | Self::OnlySsz
                | Self::Reversed
                | Self::OldFork
        )
    }
}

/// A request that the server received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Path and query.
    pub path: String,
    /// Value of the header `Accept`.
    pub accept: String,
}

#[derive(Debug)]
struct State {
    data: BeaconData,
    quirk: Option<Quirk>,
    asked: Vec<Asked>,
}

/// A server of the Beacon API. Its threads end with the process.
#[derive(Debug, Clone)]
pub struct BeaconServer {
    url: String,
    network: Network,
    state: Arc<Mutex<State>>,
}

impl BeaconServer {
    /// Serves `data` on a free port of this machine, correctly.
    pub fn start(network: &Network, data: BeaconData) -> Self {
        Self::with(network, data, None)
    }

    /// Serves `data` on a free port of this machine, with a quirk.
    pub fn with(network: &Network, data: BeaconData, quirk: Option<Quirk>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let state = Arc::new(Mutex::new(State { data, quirk, asked: Vec::new() }));
        let server = Self { url, network: network.clone(), state };
        let serves = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serves = serves.clone();
                // A client that disconnects is not an error of the server.
                std::thread::spawn(move || drop(serves.serve(stream)));
            }
        });
        server
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Replaces what the server has.
    pub fn set(&self, data: BeaconData) {
        self.state().data = data;
    }

    /// Replaces the quirk.
    pub fn set_quirk(&self, quirk: Option<Quirk>) {
        self.state().quirk = quirk;
    }

    /// Returns the requests since the last call.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state().asked)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers requests until the connection closes.
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut writer = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut path = String::new();
            let mut accept = String::new();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                let line = line.trim();
                if let Some(rest) = line.strip_prefix("GET ") {
                    rest.split(' ').next().unwrap_or_default().clone_into(&mut path);
                } else if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("accept")
                {
                    value.trim().clone_into(&mut accept);
                }
                if line.is_empty() {
                    break;
                }
            }
            let asked = Asked { path, accept };
            let (answer, quirk) = {
                let mut state = self.state();
                state.asked.push(asked.clone());
                (answer(&asked, &state, &self.network), state.quirk)
            };
            send(&mut writer, &answer, quirk)?;
        }
    }
}

/// An answer before it is sent.
struct Reply {
    status: u16,
    kind: &'static str,
    version: Option<Fork>,
    body: Vec<u8>,
}

impl Reply {
    fn status(status: u16) -> Self {
        let body = json!({ "code": status, "message": "no answer" }).to_string().into_bytes();
        Self { status, kind: JSON, version: None, body }
    }
}

/// An object to be written in the form that the client accepts.
enum Object {
    Bootstrap(Box<Bootstrap>),
    Update(Box<Update>, UpdateKind),
    Updates(Vec<Update>),
}

fn answer(asked: &Asked, state: &State, network: &Network) -> Reply {
    let quirk = state.quirk;
    match quirk {
        Some(Quirk::NotFound) => return Reply::status(404),
        Some(Quirk::Error) => return Reply::status(500),
        Some(Quirk::Html) => {
            let body = b"<!DOCTYPE html><title>Just a moment</title>".to_vec();
            return Reply { status: 200, kind: "text/html", version: None, body };
        }
        _ => {}
    }
    let accepts_ssz = asked.accept.contains(SSZ);
    if quirk == Some(Quirk::RefusesSsz) && accepts_ssz {
        return Reply::status(406);
    }
    match object(&asked.path, state) {
        Ok(mut object) => {
            if quirk == Some(Quirk::Damaged) {
                damage(&mut object);
            }
            let is_ssz = match quirk {
                Some(Quirk::OnlyJson) => false,
                Some(Quirk::OnlySsz) => true,
                _ => accepts_ssz,
            };
            written(&object, is_ssz, quirk, network)
        }
        Err(status) => Reply::status(status),
    }
}

/// Returns what a path names, or an HTTP status.
fn object(path: &str, state: &State) -> Result<Object, u16> {
    let path = path.strip_prefix("/eth/v1/beacon/light_client/").ok_or(404_u16)?;
    let data = &state.data;
    if let Some(root) = path.strip_prefix("bootstrap/") {
        let root: B256 = root.parse().map_err(|_| 400_u16)?;
        let found = data.bootstraps.get(&root).ok_or(404_u16)?;
        return Ok(Object::Bootstrap(Box::new(found.clone())));
    }
    let small = |update: &Option<Update>, kind| {
        update.clone().map(|update| Object::Update(Box::new(update), kind)).ok_or(404)
    };
    match path {
        "finality_update" => return small(&data.finality, UpdateKind::Finality),
        "optimistic_update" => return small(&data.optimistic, UpdateKind::Optimistic),
        _ => {}
    }
    let query = path.strip_prefix("updates?").ok_or(404_u16)?;
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.find(|(found, _)| *found == name)?.1;
        value.parse::<u64>().ok()
    };
    let (first, count) = (value("start_period").ok_or(400_u16)?, value("count").ok_or(400_u16)?);
    let mut end = first.saturating_add(count.min(MAX_UPDATES));
    let mut first = first;
    match state.quirk {
        Some(Quirk::FutureRange) if data.updates.range(end - 1..).next().is_none() => {
            return Err(500);
        }
        Some(Quirk::OtherPeriods) => (first, end) = (end, end.saturating_add(count)),
        Some(Quirk::More) => (first, end) = (0, u64::MAX),
        _ => {}
    }
    let mut updates: Vec<_> = data.updates.range(first..end).map(|(_, it)| it.clone()).collect();
    if state.quirk == Some(Quirk::Reversed) {
        updates.reverse();
    }
    Ok(Object::Updates(updates))
}

/// Changes one byte of each signature, and of the branch of a bootstrap.
fn damage(object: &mut Object) {
    match object {
        Object::Bootstrap(bootstrap) => bootstrap.committee_branch[1].0[7] ^= 1,
        Object::Update(update, _) => update.aggregate.signature.0[50] ^= 1,
        Object::Updates(updates) => {
            for update in updates {
                update.aggregate.signature.0[50] ^= 1;
            }
        }
    }
}

fn written(object: &Object, is_ssz: bool, quirk: Option<Quirk>, network: &Network) -> Reply {
    let preset = network.preset();
    let fork_of = |slot: u64| network.fork_at_slot(slot);
    let fork = match object {
        Object::Bootstrap(bootstrap) => Some(fork_of(bootstrap.header.beacon.slot)),
        Object::Update(update, _) => Some(fork_of(update.attested.beacon.slot)),
        Object::Updates(_) => None,
    };
    let (mut version, body) = match (object, fork) {
        (Object::Bootstrap(bootstrap), Some(fork)) if is_ssz => {
            (Some(fork), bootstrap_ssz(bootstrap, fork))
        }
        (Object::Bootstrap(bootstrap), Some(fork)) => {
            (Some(fork), bootstrap_json(bootstrap, fork).to_string().into())
        }
        (Object::Update(update, kind), Some(fork)) if is_ssz => {
            (Some(fork), update_ssz(update, *kind, fork, preset))
        }
        (Object::Update(update, kind), Some(fork)) => {
            (Some(fork), update_json(update, *kind, fork, preset).to_string().into())
        }
        (Object::Updates(updates), _) if is_ssz => (None, update_chunks(updates, network)),
        (Object::Updates(updates), _) => {
            let json = |update: &Update| {
                let fork = fork_of(update.attested.beacon.slot);
                update_json(update, UpdateKind::Full, fork, preset)
            };
            (None, updates.iter().map(json).collect::<Value>().to_string().into())
        }
        (Object::Bootstrap(_) | Object::Update(..), None) => unreachable!("both have a fork"),
    };
    match quirk {
        Some(Quirk::NoVersion) if is_ssz => version = None,
        Some(Quirk::OldFork) => version = version.map(|_| Fork::Phase0),
        _ => {}
    }
    let is_named_ssz = is_ssz != (quirk == Some(Quirk::WrongType));
    let kind = if is_named_ssz { SSZ } else { JSON };
    Reply { status: 200, kind, version, body }
}

/// Sends an answer in the way of the quirk. The connection is unusable after an error.
fn send(writer: &mut impl Write, reply: &Reply, quirk: Option<Quirk>) -> std::io::Result<()> {
    let Reply { status, kind, version, body } = reply;
    let version =
        version.map(|fork| format!("Eth-Consensus-Version: {fork}\r\n")).unwrap_or_default();
    let head = format!("HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\n{version}");
    let ends = |why: &str| Err(std::io::Error::other(why.to_owned()));
    let length = body.len();
    match quirk {
        Some(Quirk::Redirect) => {
            write!(writer, "HTTP/1.1 302 x\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
        }
        Some(Quirk::Silent) => sleep_forever(),
        Some(Quirk::Stall) => {
            write!(writer, "{head}Content-Length: {length}\r\n\r\n")?;
            writer.write_all(&body[..length / 2])?;
            sleep_forever()
        }
        Some(Quirk::Drip) => {
            write!(writer, "{head}Content-Length: {length}\r\n\r\n")?;
            for byte in body {
                writer.write_all(&[*byte])?;
                std::thread::sleep(DRIP);
            }
            Ok(())
        }
        Some(Quirk::Huge) => {
            write!(writer, "{head}Content-Length: {HUGE}\r\n\r\n")?;
            let block = vec![b' '; 1 << 16];
            (0..HUGE >> 16).try_for_each(|_| writer.write_all(&block))
        }
        Some(Quirk::HugeChunked) => {
            write!(writer, "{head}Transfer-Encoding: chunked\r\n\r\n")?;
            let block = [format!("{:x}\r\n", 1 << 16).into_bytes(), vec![b' '; 1 << 16]].concat();
            for _ in 0..HUGE >> 16 {
                writer.write_all(&block)?;
                writer.write_all(b"\r\n")?;
            }
            writer.write_all(b"0\r\n\r\n")
        }
        Some(Quirk::GzipBomb) => {
            let bomb = gzip_of_spaces(HUGE / 258);
            write!(
                writer,
                "{head}Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                bomb.len()
            )?;
            writer.write_all(&bomb)
        }
        Some(Quirk::Truncated) => {
            write!(writer, "{head}Content-Length: {length}\r\n\r\n")?;
            writer.write_all(&body[..length / 2])?;
            ends("truncated")
        }
        Some(Quirk::Cut) => {
            let body = &body[..length / 2];
            write!(writer, "{head}Content-Length: {}\r\n\r\n", body.len())?;
            writer.write_all(body)
        }
        quirk => {
            if quirk == Some(Quirk::Slow) {
                std::thread::sleep(SLOW);
            }
            write!(writer, "{head}Content-Length: {length}\r\n\r\n")?;
            writer.write_all(body)
        }
    }
}

fn sleep_forever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Returns spaces compressed by gzip: a literal space (deflate, RFC 1951), and then copies of 258
/// bytes from a distance of one byte.
fn gzip_of_spaces(copies: u64) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let (mut byte, mut filled) = (0_u8, 0);
    let mut push = |bit: bool| {
        byte |= u8::from(bit) << filled;
        filled += 1;
        if filled == 8 {
            file.push(byte);
            (byte, filled) = (0, 0);
        }
    };
    let mut code = |code: u32, length: u32| {
        (0..length).rev().for_each(|bit| push(code >> bit & 1 == 1));
    };
    code(0b110, 3); // the last block, fixed codes
    code(0b0011_0000 + u32::from(b' '), 8);
    for _ in 0..copies {
        code(0b1100_0101, 8); // a length of 258
        code(0, 5); // a distance of 1
    }
    code(0, 7 + 7); // the end, and padding
    file.extend([0; 8]); // a wrong checksum, which is never reached
    file
}
