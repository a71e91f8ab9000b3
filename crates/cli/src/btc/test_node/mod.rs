//! `btc test-node`: a test node of `chainsieve-client` over a folder that is polled: files of blocks, and
//! `mempool/` with files of transactions.
//!
//! A truncated file may still be under construction. Such a file is read again when it changes. It
//! is reported as damaged if it has not changed for a while.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::DerefMut;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::{Network, Transaction};
use chainsieve::btc::protocol::default_port;
use chainsieve::btc::server::{Added, Config, ServedChain};
use chainsieve_client::testnode::{ConnectionNote, NodeBuilder};
use chainsieve_report::args::network_name;
use chainsieve_report::blocks::{SourcedBlock, decode, files, for_each_block_of};
use chainsieve_report::{
    Exit, Input, Lines, Page, Reader, Report, UsageError, count, grouped, json_line, named,
    print_log,
};
use serde_json::{Value, json};

use super::for_each_transaction;
use crate::args::TestNodeArgs;
use crate::exit::stop_on_signals;

/// Polling interval of the folder; if a poll takes more than a tenth of it, the interval grows.
const LOOK: Duration = Duration::from_millis(200);
/// Time without a change after which a truncated file is reported as damaged.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest file of one transaction in bytes: the hex of the largest message payload.
const MAX_TX_FILE: u64 = 8_000_000;
/// The subfolder of transactions.
const MEMPOOL: &str = "mempool";

pub(crate) fn run(args: &TestNodeArgs, json: bool) -> anyhow::Result<Report> {
    let network = args.network;
    let address = args.listen.unwrap_or((Ipv4Addr::LOCALHOST, default_port(network)).into());
    if !address.ip().is_loopback() && !args.listen_anywhere {
        bail!(UsageError(
            "--listen: other machines can reach this address: add --listen-anywhere to allow that"
        ));
    }
    ensure!(args.blocks.is_dir(), "{}: not a folder", named(&args.blocks));
    let log = Arc::new(Log::new(json, args.network));
    let mut chain = ServedChain::new(network, !args.no_bip157);
    let reader = Reader::of(&args.prev_txs)?;
    for_each_transaction(&reader, &args.prev_txs, |tx| chain.add_outputs(&tx))?;
    let stop = stop_on_signals()?;
    let mut config = Config::default();
    config.bip37 = !args.no_bip37;
    config.bip157 = !args.no_bip157;
    let chain = RefCell::new(chain);
    let mut watcher = Watcher::new(Folder::new(&args.blocks), &log);
    watcher.look(|| chain.borrow_mut())?;
    let notes = Arc::clone(&log);
    let node = NodeBuilder::new(chain.into_inner())
        .config(config)
        .listen(address)
        .max_connections(args.max_connections.into())
        .log(move |note| notes.note(note))
        .start()
        .with_context(|| format!("cannot listen on {address}"))?;
    log.listening(node.address(), &node.chain(), config);
    watcher.is_announced = true;
    // A poll of a large folder must not use more than about a tenth of the time.
    let mut wait = LOOK;
    while !stop.wait_timeout(wait) {
        let now = Instant::now();
        if let Err(error) = watcher.look(|| node.chain_mut()) {
            watcher.complain(format!("{error:#}"));
        }
        wait = LOOK.max(now.elapsed() * 9);
    }
    let report = report(&node.chain(), node.connections());
    node.stop();
    Ok(report)
}

fn report(chain: &ServedChain, connections: u64) -> Report {
    let tip = chain.tip();
    let mut page = Page::default();
    page.fields(vec![
        ("connections", grouped(connections)),
        ("blocks", grouped(chain.len())),
        ("tip", format!("{}, height {}", tip.hash, grouped(tip.height))),
    ]);
    let json = json!({
        "connections": connections,
        "blocks": chain.len(),
        "height": tip.height,
        "tip": tip.hash.to_string(),
    });
    Report::new(page, json, Exit::Yes).after_lines()
}

/// Adds new files of the folder to the chain.
struct Watcher {
    folder: Folder,
    log: Arc<Log>,
    /// `true` once the first line was printed; only later changes of the chain get their own lines.
    is_announced: bool,
    /// The last error, stored so that a repeated error is printed only once.
    complaint: String,
    /// Number of blocks whose parent is missing.
    waiting: usize,
}

impl Watcher {
    fn new(folder: Folder, log: &Arc<Log>) -> Self {
        let log = Arc::clone(log);
        Self { folder, log, is_announced: false, complaint: String::new(), waiting: 0 }
    }

    /// Polls the folder and updates the chain. The chain is either that of the running node, whose
    /// peers wait during the update, or the chain with which the node will start.
    fn look<C>(&mut self, chain: impl Fn() -> C) -> anyhow::Result<()>
    where
        C: DerefMut<Target = ServedChain>,
    {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (mut linked, mut disconnected) = (0, 0);
        let News { transactions, complaints } = self.folder.poll(Instant::now(), |incoming| {
            let added = chain().add_block(incoming.block, incoming.prevout_scripts, now);
            let Added { linked: more, disconnected: left, errors, .. } = added;
            linked += more;
            disconnected += left;
            for error in &errors {
                self.log.warning(&error.to_string());
            }
        })?;
        for complaint in &complaints {
            self.log.warning(complaint);
        }
        let has_new_mempool = transactions.is_some();
        if let Some(transactions) = transactions {
            chain().set_transactions(transactions);
        }
        self.report(&chain(), (linked, disconnected), has_new_mempool);
        Ok(())
    }

    fn report(&mut self, chain: &ServedChain, changes: (usize, usize), has_new_mempool: bool) {
        let (linked, disconnected) = changes;
        if self.is_announced && linked > 0 {
            self.log.chain(chain, linked, disconnected);
        }
        if self.is_announced && has_new_mempool {
            self.log.mempool(chain);
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
    }

    /// Prints an error, unless it equals the last printed error.
    fn complain(&mut self, complaint: String) {
        if complaint != self.complaint {
            self.log.warning(&complaint);
            self.complaint = complaint;
        }
    }
}

/// Prints complete lines from any thread.
pub(super) struct Log {
    json: bool,
    network: Network,
    lines: Mutex<Lines>,
}

impl Log {
    pub(super) fn new(json: bool, network: Network) -> Self {
        Self { json, network, lines: Mutex::new(Lines::default()) }
    }

    /// Prints that the node accepts connections, on standard output in both formats: a test waits
    /// for this line.
    pub(super) fn listening(&self, address: SocketAddr, chain: &ServedChain, config: Config) {
        let tip = chain.tip();
        let services = names(config.services(chain));
        if self.json {
            let members = json!({
                "address": address.to_string(),
                "network": network_name(self.network),
                "blocks": chain.len(),
                "height": tip.height,
                "tip": tip.hash.to_string(),
                "transactions": chain.mempool().len(),
                "services": services,
            });
            return self.print(&json_line("listening", members));
        }
        self.print(&format!(
            "listening at {address}: {}, {}, tip {} at height {}, {}\n",
            network_name(self.network),
            count(chain.len(), "block"),
            tip.hash,
            grouped(tip.height),
            services.join(", ")
        ));
    }

    pub(super) fn chain(&self, chain: &ServedChain, linked: usize, disconnected: usize) {
        let tip = chain.tip();
        let members = json!({
            "blocks": linked,
            "height": tip.height,
            "tip": tip.hash.to_string(),
            "disconnected": disconnected,
        });
        let left = match disconnected {
            0 => String::new(),
            left => format!(", {} removed from the chain", count(left, "block")),
        };
        let height = grouped(tip.height);
        let new = format!("{} new", count(linked, "block"));
        let text = format!("{new}{left}: tip {} at height {height}", tip.hash);
        self.event("chain", members, &text);
    }

    pub(super) fn mempool(&self, chain: &ServedChain) {
        let transactions = chain.mempool().len();
        let text = format!("mempool: {}", count(transactions, "transaction"));
        self.event("mempool", json!({ "transactions": transactions }), &text);
    }

    /// Prints an event of a connection.
    pub(super) fn note(&self, note: &ConnectionNote<'_>) {
        let (kind, members, text) = match note {
            ConnectionNote::Connected(peer, address) => (
                "connected",
                json!({ "peer": peer, "address": address.to_string() }),
                format!("peer {peer}: connected from {address}"),
            ),
            ConnectionNote::Ready(peer, met) => {
                let (agent, protocol) = (met.user_agent(), met.protocol());
                let members = json!({ "peer": peer, "user_agent": agent, "protocol": protocol });
                ("ready", members, format!("peer {peer}: {agent:?}, protocol {protocol}"))
            }
            ConnectionNote::Disconnected(peer, ended) => {
                let (reason, misbehaved) = (ended.to_string(), ended.is_misbehaviour());
                let members = json!({ "peer": peer, "reason": reason, "misbehaved": misbehaved });
                let why = if misbehaved { ", it broke the protocol" } else { "" };
                let text = format!("peer {peer}: disconnected{why}: {reason}");
                ("disconnected", members, text)
            }
            ConnectionNote::Refused(address, limit) => {
                let reason = format!("{limit} peers are connected, which is the limit");
                let members = json!({ "address": address.to_string(), "reason": reason });
                ("refused", members, format!("refused {address}: {reason}"))
            }
            ConnectionNote::Lost(error) => {
                return self.warning(&format!("a connection was lost: {error}"));
            }
            _ => return,
        };
        self.event(kind, members, &text);
    }

    pub(super) fn warning(&self, text: &str) {
        self.event("warning", json!({ "text": text }), &format!("warning: {text}"));
    }

    /// Prints one line: `members` if the format is JSON, otherwise `text`.
    fn event(&self, kind: &str, members: Value, text: &str) {
        if self.json {
            return self.print(&json_line(kind, members));
        }
        print_log(text);
    }

    fn print(&self, text: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // The node continues without a reader of its log, because its purpose is to serve peers.
        drop(lines.print(text));
    }
}

fn names(services: ServiceFlags) -> Vec<&'static str> {
    let known = [
        (ServiceFlags::NETWORK, "network"),
        (ServiceFlags::BLOOM, "bloom"),
        (ServiceFlags::WITNESS, "witness"),
        (ServiceFlags::COMPACT_FILTERS, "compact_filters"),
    ];
    known.into_iter().filter(|(flag, _)| services.has(*flag)).map(|(_, name)| name).collect()
}

/// The folder, and the state of its files.
struct Folder {
    root: PathBuf,
    blocks: HashMap<PathBuf, Seen<()>>,
    transactions: HashMap<PathBuf, Seen<Arc<Transaction>>>,
}

/// The state of a file when it was read last.
struct Seen<T> {
    stamp: Stamp,
    state: State<T>,
}

/// Length and modification time of a file, to detect changes.
type Stamp = (u64, Option<SystemTime>);

enum State<T> {
    Read(T),
    /// The file is truncated and may still be under construction.
    Unread {
        since: Instant,
    },
    Damaged,
}

/// Changes in the folder, except new blocks.
#[derive(Default)]
struct News {
    /// All current transactions, if any was added or removed.
    transactions: Option<Vec<Arc<Transaction>>>,
    /// Errors of damaged files.
    complaints: Vec<String>,
}

impl Folder {
    fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), blocks: HashMap::new(), transactions: HashMap::new() }
    }

    /// Polls the folder; calls `take` with the blocks of new and changed files. If a file is
    /// truncated, its complete blocks are passed.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be listed.
    fn poll(&mut self, now: Instant, mut take: impl FnMut(SourcedBlock)) -> anyhow::Result<News> {
        let mut news = News::default();
        let files = list(&self.root).with_context(|| named(&self.root))?;
        self.blocks.retain(|path, _| is_listed(&files, path));
        for (path, stamp) in files {
            let read = || read_blocks(&path, &mut take);
            look(&mut self.blocks, &path, stamp, now, read, &mut news.complaints);
        }
        let mempool = self.root.join(MEMPOOL);
        let files = match list(&mempool) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            files => files.with_context(|| named(&mempool))?,
        };
        let before = self.transactions.len();
        self.transactions.retain(|path, _| is_listed(&files, path));
        let mut changed = self.transactions.len() != before;
        for (path, stamp) in files {
            let read = || read_transaction(&path);
            changed |= look(&mut self.transactions, &path, stamp, now, read, &mut news.complaints);
        }
        if changed {
            let read = self.transactions.values().filter_map(|seen| match &seen.state {
                State::Read(tx) => Some(Arc::clone(tx)),
                _ => None,
            });
            news.transactions = Some(read.collect());
        }
        Ok(news)
    }
}

/// Reads a file if it is new or has changed. A file that could not be read is tried once more after
/// a while without changes. Returns `true` if the file was read, so that its contents may have
/// changed.
fn look<T>(
    seen: &mut HashMap<PathBuf, Seen<T>>,
    path: &Path,
    stamp: Stamp,
    now: Instant,
    read: impl FnOnce() -> anyhow::Result<T>,
    complaints: &mut Vec<String>,
) -> bool {
    let since = match seen.get(path) {
        Some(seen) if seen.stamp == stamp => match seen.state {
            State::Unread { since } if now.duration_since(since) >= PATIENCE => Some(since),
            _ => return false,
        },
        _ => None,
    };
    let state = match read() {
        Ok(read) => State::Read(read),
        Err(_) if since.is_none() => State::Unread { since: now },
        Err(error) => {
            complaints.push(format!("damaged or truncated file: {error:#}"));
            State::Damaged
        }
    };
    seen.insert(path.to_owned(), Seen { stamp, state });
    true
}

/// Returns the files of a folder, each with its stamp, in the order of their names.
fn list(folder: &Path) -> io::Result<Vec<(PathBuf, Stamp)>> {
    let stamp = |metadata: Metadata| (metadata.len(), metadata.modified().ok());
    Ok(files(folder)?.into_iter().map(|(path, metadata)| (path, stamp(metadata))).collect())
}

fn is_listed(files: &[(PathBuf, Stamp)], path: &Path) -> bool {
    files.binary_search_by(|(file, _)| file.as_path().cmp(path)).is_ok()
}

fn read_blocks(path: &Path, take: &mut impl FnMut(SourcedBlock)) -> anyhow::Result<()> {
    for_each_block_of(path, |block| {
        take(block);
        Ok(())
    })
}

fn read_transaction(path: &Path) -> anyhow::Result<Arc<Transaction>> {
    let source = named(path);
    let bytes = fs::read(path).with_context(|| source.clone())?;
    let length = bytes.len() as u64;
    ensure!(length <= MAX_TX_FILE, "{source}: {length} bytes, the limit is {MAX_TX_FILE}");
    let Input { source, bytes } = Input { source, bytes }.unhex("transaction")?;
    Ok(Arc::new(decode(&bytes).with_context(|| format!("transaction, {source}"))?))
}

#[cfg(test)]
mod tests;
