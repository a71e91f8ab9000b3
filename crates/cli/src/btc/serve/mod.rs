//! `btc serve`.
//!
//! The main thread looks at the folder and takes connections; each connection has a thread. They
//! share the [`chain::Chain`], which only the main thread changes.

mod chain;
mod connection;
mod folder;
mod log;
mod node;
mod pool;
mod replies;
#[cfg(test)]
mod test_chain;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use chainsieve::bitcoin::Network;
use serde_json::json;

use self::chain::{Chain, Taken};
use self::folder::{Folder, News};
use self::log::Log;
use self::node::Offers;
use crate::args::{ServeArgs, UsageError};
use crate::btc::decode;
use crate::input::{Input, Reader, named};
use crate::output::{Exit, Page, Report, count, grouped};
use crate::stop::Stop;

/// How often to look for connections.
const TICK: Duration = Duration::from_millis(20);
/// How often to look at the folder, unless that takes longer than a tenth of it.
const LOOK: Duration = Duration::from_millis(200);

/// What the threads share.
struct Shared {
    network: Network,
    offers: Offers,
    chain: RwLock<Chain>,
    stop: Stop,
}

impl Shared {
    fn chain(&self) -> RwLockReadGuard<'_, Chain> {
        self.chain.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stop.is_set()
    }
}

pub(crate) fn run(args: &ServeArgs, json: bool) -> anyhow::Result<Report> {
    let network = args.network.network();
    let address = args.listen.unwrap_or_else(|| default_address(network));
    if !address.ip().is_loopback() && !args.listen_anywhere {
        return Err(UsageError(
            "--listen: other machines can reach this address; if they may, --listen-anywhere",
        )
        .into());
    }
    ensure!(args.blocks.is_dir(), "{}: not a folder", named(&args.blocks));
    let log = Arc::new(Log::new(json, args.network));
    let mut chain = Chain::new(network, !args.no_bip157);
    let reader = Reader::of(&args.prev_txs)?;
    for argument in &args.prev_txs {
        for Input { source, bytes } in reader.many(argument, "transaction")? {
            chain.learn(&decode(&bytes).with_context(|| format!("transaction, {source}"))?);
        }
    }
    let stop = Stop::on_signals()?;
    let offers = Offers { bip37: !args.no_bip37, bip157: !args.no_bip157 };
    let shared = Arc::new(Shared { network, offers, chain: RwLock::new(chain), stop });
    let mut watcher = Watcher::new(Folder::new(&args.blocks), Arc::clone(&shared), &log);
    watcher.look()?;
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    listener.set_nonblocking(true)?;
    log.listening(listener.local_addr()?, &shared.chain(), offers);
    watcher.is_announced = true;
    let mut door = Door::new(listener, Arc::clone(&shared), &log, args.max_connections);
    let mut next_look = Instant::now();
    while !shared.stop.wait_timeout(TICK) {
        door.open();
        let now = Instant::now();
        if now >= next_look {
            if let Err(error) = watcher.look() {
                watcher.complain(format!("{error:#}"));
            }
            next_look = Instant::now() + LOOK.max(now.elapsed() * 9);
        }
    }
    let connections = door.close();
    Ok(report(&shared.chain(), connections))
}

fn report(chain: &Chain, connections: u64) -> Report {
    let tip = chain.tip();
    let mut page = Page::default();
    page.fields(vec![
        ("connections", grouped(connections)),
        ("blocks", grouped(chain.len() as u64)),
        ("tip", format!("{}, height {}", tip.hash, grouped(tip.height.into()))),
    ]);
    let json = json!({
        "connections": connections,
        "blocks": chain.len(),
        "height": tip.height,
        "tip": tip.hash.to_string(),
    });
    Report { page, json, payload: None, exit: Exit::YesAfterLines }
}

fn default_address(network: Network) -> SocketAddr {
    let port = match network {
        Network::Bitcoin => 8333,
        Network::Testnet => 18333,
        Network::Testnet4 => 48333,
        Network::Signet => 38333,
        Network::Regtest => 18444,
    };
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Takes in what is new in the folder.
struct Watcher {
    folder: Folder,
    shared: Arc<Shared>,
    log: Arc<Log>,
    /// Whether the chain was told of, so that changes of it are worth a line.
    is_announced: bool,
    /// What was said last of what keeps being wrong.
    complaint: String,
    waiting: usize,
}

impl Watcher {
    fn new(folder: Folder, shared: Arc<Shared>, log: &Arc<Log>) -> Self {
        let log = Arc::clone(log);
        Self { folder, shared, log, is_announced: false, complaint: String::new(), waiting: 0 }
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let now = u32::try_from(unix_time()).unwrap_or(u32::MAX);
        let (mut linked, mut disconnected) = (0, 0);
        let shared = &self.shared;
        let write = || shared.chain.write().unwrap_or_else(PoisonError::into_inner);
        let News { transactions, complaints } = self.folder.poll(Instant::now(), |incoming| {
            let taken = write().take(incoming, now);
            let Taken { linked: more, disconnected: left, complaints } = taken;
            linked += more;
            disconnected += left;
            self.log.warnings(&complaints);
        })?;
        self.log.warnings(&complaints);
        let has_new_pool = transactions.is_some();
        if let Some(transactions) = transactions {
            write().set_pool(transactions);
        }
        let chain = shared.chain();
        if self.is_announced && linked > 0 {
            self.log.chain(&chain, linked, disconnected);
        }
        if self.is_announced && has_new_pool {
            self.log.pool(&chain);
        }
        let (waiting, missing) = chain.waiting().map_or((0, None), |(n, hash)| (n, Some(hash)));
        if let Some(missing) = missing
            && waiting != self.waiting
        {
            let blocks = count(waiting, "block");
            self.log.warning(&format!(
                "{blocks} not served: block {missing}, which they build on, is not in the folder"
            ));
        }
        self.waiting = waiting;
        Ok(())
    }

    /// Says what is wrong, once.
    fn complain(&mut self, complaint: String) {
        if complaint != self.complaint {
            self.log.warning(&complaint);
            self.complaint = complaint;
        }
    }
}

/// Takes connections.
struct Door {
    listener: TcpListener,
    shared: Arc<Shared>,
    log: Arc<Log>,
    limit: usize,
    guests: Vec<Guest>,
    /// How many have come.
    count: u64,
}

struct Guest {
    stream: Arc<TcpStream>,
    thread: JoinHandle<()>,
}

impl Door {
    fn new(listener: TcpListener, shared: Arc<Shared>, log: &Arc<Log>, limit: u16) -> Self {
        let log = Arc::clone(log);
        Self { listener, shared, log, limit: limit.into(), guests: Vec::new(), count: 0 }
    }

    /// Lets in who waits.
    fn open(&mut self) {
        let (gone, here) =
            self.guests.drain(..).partition(|guest: &Guest| guest.thread.is_finished());
        self.guests = here;
        leave(gone);
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) => {
                    // Gone before it was let in, or no descriptors are left: others will leave.
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.log.warning(&format!("a connection was lost: {error}"));
                    }
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, address: SocketAddr) {
        if self.guests.len() >= self.limit {
            self.log.refused(address, &format!("{} are connected, the limit", self.limit));
            return;
        }
        self.count += 1;
        let (shared, log, peer) = (Arc::clone(&self.shared), Arc::clone(&self.log), self.count);
        let stream = Arc::new(stream);
        let own = Arc::clone(&stream);
        let talk = move || {
            log.connected(peer, address);
            let ended = match prepare(&own) {
                Ok(()) => connection::talk(&own, &shared, random(), |met| log.ready(peer, met)),
                Err(error) => connection::Ended::Frame(error.into()),
            };
            // The other side may be gone already.
            drop(own.shutdown(Shutdown::Both));
            log.disconnected(peer, &ended);
        };
        match thread::Builder::new().name(format!("peer {peer}")).spawn(talk) {
            Ok(thread) => self.guests.push(Guest { stream, thread }),
            Err(error) => self.log.refused(address, &format!("no thread for it: {error}")),
        }
    }

    /// Sends everyone home; returns how many have come.
    fn close(self) -> u64 {
        for guest in &self.guests {
            // A thread may be in the middle of a message.
            drop(guest.stream.shutdown(Shutdown::Both));
        }
        leave(self.guests);
        self.count
    }
}

/// A thread that panicked has said so.
fn leave(guests: Vec<Guest>) {
    for guest in guests {
        drop(guest.thread.join());
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)
}

/// The time in Unix seconds.
fn unix_time() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// A number that nobody can guess, if the system has one; nothing depends on it.
fn random() -> u64 {
    getrandom::u64().unwrap_or(1)
}
