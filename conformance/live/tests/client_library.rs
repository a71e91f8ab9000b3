//! Tests `chainsieve-client` as a wallet backend uses it, against bcoin and through a SOCKS5 proxy:
//! two wallets, one of them added late, reorganisations, and a broadcast that is mined.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use chainsieve::bitcoin::{FeeRate, Network};
use chainsieve::btc::server::{Config, ServedChain};
use chainsieve_client::testnode::{Node, NodeBuilder};
use chainsieve_client::{
    Birthday, BroadcastNews, Builder, Client, Hit, Item, News, Protocol, Update, Updates,
};
use futures_core::Stream as _;
use libtest_mimic::Trial;
use tokio::runtime::Runtime;

use crate::bcoin::Bcoin;
use crate::harness::{PATIENCE, Scene, live, wait_until};
use crate::peers::Need;
use crate::regtest::{Branch, Event, KINDS, Key, Move};
use crate::wallet::{self, Wallet};
use testkit::socks::SocksProxy;

pub(crate) fn tests() -> Vec<Trial> {
    let needs = &[Need::Bcoin];
    let trial = |name, reader: fn() -> Reader, protocol| {
        live(name, needs, move |scene| keeps_up(scene, reader(), protocol))
    };
    vec![
        trial("client_library_bip37_blocking", || Reader::Blocking, Protocol::Bip37),
        trial("client_library_bip37_tokio", Reader::tokio, Protocol::Bip37),
        trial("client_library_bip157_blocking", || Reader::Blocking, Protocol::Bip157),
        trial("client_library_bip157_tokio", Reader::tokio, Protocol::Bip157),
    ]
}

/// The way in which the test reads updates: blocking or with tokio.
enum Reader {
    Blocking,
    Tokio(Runtime),
}

impl Reader {
    fn tokio() -> Self {
        Self::Tokio(Runtime::new().expect("a runtime"))
    }

    fn next(&self, mut updates: Updates) -> Update {
        let next = match self {
            Self::Blocking => updates.next_within(PATIENCE),
            Self::Tokio(runtime) => runtime.block_on(async {
                let mut updates = updates.into_stream();
                let next = poll_fn(|task| Pin::new(&mut updates).poll_next(task));
                tokio::time::timeout(PATIENCE, next).await.expect("an update in time")
            }),
        };
        next.expect("an update")
    }
}

/// A wallet backend: the client, and the state from its updates.
struct Backend {
    client: Client,
    reader: Reader,
    confirmed: BTreeMap<String, BTreeSet<Event>>,
    broadcast: Vec<BroadcastNews>,
}

impl Backend {
    fn take(&mut self) -> News {
        let update = self.reader.next(self.client.updates());
        let of_wallet = || update.wallet.as_ref().expect("of a wallet").to_string();
        match &update.news {
            News::Hit(hit) => self.confirmed.entry(of_wallet()).or_default().extend(events(hit)),
            News::Withdrawn(hit) => {
                let known = self.confirmed.entry(of_wallet()).or_default();
                for event in events(hit) {
                    assert!(known.remove(&event), "withdrawn but never reported: {event:?}");
                }
            }
            News::Broadcast { news, .. } => self.broadcast.push(news.clone()),
            _ => {}
        }
        self.client.acknowledge(&update);
        update.news
    }

    /// Reads updates until the confirmed events of a wallet are exactly the expected ones.
    fn tells(&mut self, wallet: &str, expected: &[Event]) {
        let expected: BTreeSet<_> = expected.iter().copied().collect();
        while self.confirmed.get(wallet) != Some(&expected) {
            self.take();
        }
    }
}

/// Returns the events of a hit; none if it is unconfirmed.
fn events(hit: &Hit) -> Vec<Event> {
    let Some(at) = hit.place.map(|place| place.block) else { return Vec::new() };
    let paid = hit.received.iter().map(|it| Move::Paid { vout: it.vout });
    let spent = hit.spent.iter().map(|it| Move::Spent { vin: it.vin });
    let event = |what| Event { height: at.height, block: at.hash, txid: hit.txid, what };
    paid.chain(spent).map(event).collect()
}

fn watched(wallet: &Wallet) -> chainsieve_client::Wallet {
    let items = wallet.scripts().into_iter().map(Item::Script).collect();
    chainsieve_client::Wallet::new(Birthday::Height(0), items)
}

/// Adds bcoin's blocks to a node that also serves compact filters.
fn follow(filters: &Node, node: &Bcoin, from: u32) {
    for block in node.blocks_from(from) {
        let added = filters.chain_mut().add_block(block, None, Duration::MAX);
        assert!(added.errors.is_empty(), "{added:?}");
    }
}

fn keeps_up(scene: &Scene, reader: Reader, protocol: Protocol) {
    let node = Bcoin::in_memory(scene);
    let mut branch = Branch::begin(&node);
    let (mut early, mut late) = (Wallet::new(30, &KINDS), Wallet::new(31, &KINDS));
    wallet::live(&node, &mut branch, &mut early);
    wallet::live(&node, &mut branch, &mut late);
    let filters = NodeBuilder::new(ServedChain::new(Network::Regtest, true));
    let filters = filters.config(Config::default()).start().expect("a node");
    follow(&filters, &node, 1);
    let proxy = SocksProxy::start();
    let mut builder = Builder::new(Network::Regtest).peer(node.address().to_string());
    if protocol == Protocol::Bip157 {
        // The additional peer serves filters; bcoin serves headers and relays the broadcast.
        builder = builder.peer(filters.address().to_string());
    }
    let builder = builder.protocol(protocol).proxy(proxy.address()).data_dir(scene.path("data"));
    let client = builder.wallet("early", watched(&early)).start().expect("a client");
    let (confirmed, broadcast) = (BTreeMap::new(), Vec::new());
    let mut backend = Backend { client, reader, confirmed, broadcast };
    let caught_up = |news: &News| match news {
        News::CaughtUp(progress) => progress.tip.hash == node.tip(),
        _ => false,
    };
    while !caught_up(&backend.take()) {}
    let expected = early.history(&node);
    assert!(expected.len() > 20, "{expected:?}");
    assert_eq!(backend.confirmed["early"], expected.into_iter().collect());

    // A second wallet is added, and new blocks arrive.
    backend.client.watch("late", watched(&late)).expect("scripts");
    let mut other = (branch.clone().fork(), early.clone());
    let payment = early.receive(&mut branch, &KINDS[2..5]);
    let fork = branch.height();
    for transactions in [vec![payment], vec![early.spend(1), late.spend(1)]] {
        node.submit(&branch.mine(transactions));
    }
    follow(&filters, &node, fork + 1);
    backend.tells("late", &late.history(&node));
    backend.tells("early", &early.history(&node));

    // Both new blocks are reorganised away.
    let payment = other.1.receive(&mut other.0, &KINDS[..3]);
    let spend = other.1.spend(2);
    for transactions in [vec![], vec![payment], vec![spend]] {
        node.submit(&other.0.mine(transactions));
    }
    let (mut branch, mut early) = other;
    assert_eq!(node.tip(), branch.tip(), "the node follows it");
    follow(&filters, &node, fork + 1);
    backend.tells("early", &early.history(&node));
    backend.tells("late", &late.history(&node));

    // The wallet broadcasts a transaction, and the node accepts and mines the transaction.
    let transaction = early.spend(1);
    let rate = FeeRate::from_sat_per_vb(2).expect("in range");
    let txid = backend.client.broadcast_at(transaction, rate).expect("it runs");
    wait_until("the transaction in the node's memory pool", || node.has_unconfirmed(txid));
    node.generate(1, Key::new(1).hash());
    branch.adopt(&node);
    follow(&filters, &node, branch.height());
    let mined = |news: &BroadcastNews| match news {
        BroadcastNews::Mined(at) => at.hash == branch.tip(),
        _ => false,
    };
    while !backend.broadcast.iter().any(mined) {
        backend.take();
    }
    let asked = |news: &BroadcastNews| matches!(news, BroadcastNews::Requested(_));
    assert!(backend.broadcast.iter().any(asked), "{:?}", backend.broadcast);
    backend.tells("early", &early.history(&node));
    backend.client.shutdown().expect("everything is written");

    // Every connection uses the proxy, with a user name of its own, so that the proxy can separate
    // the connections.
    let asked = proxy.asked();
    let users: HashSet<_> = asked.iter().map(|(user, _)| user).collect();
    assert_eq!(users.len(), asked.len(), "streams with one user name: {asked:?}");
    let targets: HashSet<_> = asked.iter().map(|(_, target)| *target).collect();
    let mut expected = HashSet::from([node.address()]);
    expected.extend((protocol == Protocol::Bip157).then(|| filters.address()));
    assert_eq!(targets, expected);
}
