//! Tests of the client's public interface, against test nodes of this package over sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use chainsieve_client::chainsieve::bitcoin::absolute::LockTime;
use chainsieve_client::chainsieve::bitcoin::transaction::Version;
use chainsieve_client::chainsieve::bitcoin::{
    Amount, Block, FeeRate, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Txid, Witness,
};
use chainsieve_client::chainsieve::btc::server::{Config, ServedChain};
use chainsieve_client::testnode::{Node, NodeBuilder};
use chainsieve_client::{
    Birthday, BroadcastNews, Builder, Client, Item, LookUpError, Memory, Network, News, Protocol,
    Update, Wallet, WalletError,
};

/// Timeout of each wait: long enough for slow machines. A test that passes does not reach this
/// timeout.
const LIMIT: Duration = Duration::from_secs(2 * 60);

fn script(byte: u8) -> ScriptBuf {
    [&[0, 20][..], &[byte; 20]].concat().into()
}

fn wallet(byte: u8) -> Wallet {
    Wallet::new(Birthday::Height(0), vec![Item::Script(script(byte))])
}

fn builder(node: &Node) -> Builder {
    Builder::new(Network::Regtest).peer(node.address().to_string())
}

/// Collects updates up to and including the first for which `is_last` returns `true`.
fn until(client: &Client, is_last: impl Fn(&News) -> bool) -> Vec<Update> {
    let (mut updates, end) = (client.updates(), Instant::now() + LIMIT);
    let mut all = Vec::new();
    while let Some(update) = updates.next_within(end.saturating_duration_since(Instant::now())) {
        let is_end = is_last(&update.news);
        all.push(update);
        if is_end {
            return all;
        }
    }
    panic!("timeout: the expected update is missing: {all:?}");
}

fn caught_up(news: &News) -> bool {
    matches!(news, News::CaughtUp(_))
}

/// Returns the wallet and txid of each hit, with `true` if the hit was delivered again.
fn hits(updates: &[Update]) -> Vec<(String, Txid, bool)> {
    let hit = |update: &Update| match &update.news {
        News::Hit(hit) => Some((update.wallet.as_ref()?.to_string(), hit.txid, update.again)),
        _ => None,
    };
    updates.iter().filter_map(hit).collect()
}

fn spend(coin: OutPoint, script: &ScriptBuf) -> Transaction {
    Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output: coin,
            script_sig: ScriptBuf::new(),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        }],
        output: vec![TxOut { value: Amount::from_sat(1_000), script_pubkey: script.clone() }],
    }
}

#[test]
fn a_wallet_added_late_is_looked_for_from_its_birthday() {
    for protocol in [Protocol::Bip157, Protocol::Bip37] {
        let node = Node::regtest().unwrap();
        let first = node.mine(&script(1)).txdata[0].compute_txid();
        let second = node.mine(&script(2)).txdata[0].compute_txid();
        node.mine_many(&script(9), 10);
        let client = builder(&node).protocol(protocol).keep_filters(1 << 20);
        let client = client.wallet("one", wallet(1)).start().unwrap();
        let found = hits(&until(&client, caught_up));
        assert_eq!(found, [("one".to_owned(), first, false)], "{protocol:?}");
        client.watch("two", wallet(2)).unwrap();
        let found = hits(&until(&client, |news| matches!(news, News::Hit(_))));
        assert_eq!(found, [("two".to_owned(), second, false)], "{protocol:?}");
        client.shutdown().unwrap();
    }
}

#[test]
fn what_was_not_acknowledged_comes_again_and_what_was_does_not() {
    let node = Node::regtest().unwrap();
    let txids: Vec<_> =
        node.mine_many(&script(1), 3).iter().map(|block| block.txdata[0].compute_txid()).collect();
    let storage = Memory::new();
    let client = builder(&node).storage(storage.clone()).wallet("w", wallet(1)).start().unwrap();
    let updates = until(&client, caught_up);
    let all: Vec<_> = updates.iter().filter(|it| matches!(it.news, News::Hit(_))).collect();
    assert_eq!(all.len(), 3);
    client.acknowledge(all[1]);
    client.shutdown().unwrap();
    let client = builder(&node).storage(storage).wallet("w", wallet(1)).start().unwrap();
    let mut again = hits(&until(&client, caught_up));
    again.sort_by_key(|(_, txid, _)| txids.iter().position(|known| known == txid));
    let expected = [0, 2].map(|at: usize| ("w".to_owned(), txids[at], true));
    assert_eq!(again, expected);
    client.shutdown().unwrap();
}

#[test]
fn a_reader_that_is_slow_gets_everything_in_order() {
    let node = Node::regtest().unwrap();
    let blocks = node.mine_many(&script(1), 60);
    let client = builder(&node).max_updates(1).wallet("w", wallet(1)).start().unwrap();
    let found = hits(&until(&client, caught_up));
    let expected = blocks.iter().map(|block| block.txdata[0].compute_txid());
    assert!(found.iter().map(|(_, txid, _)| *txid).eq(expected));
    client.shutdown().unwrap();
}

#[test]
fn a_broadcast_is_told_of_until_it_is_in_a_block() {
    let node = Node::regtest().unwrap();
    let coin = OutPoint { txid: node.mine(&script(1)).txdata[0].compute_txid(), vout: 0 };
    // A second peer, which asks for a higher fee rate than the transaction pays.
    let mut config = Config::default();
    (config.accept_transactions, config.fee_filter) = (true, Some(1_000_000));
    let dear = NodeBuilder::new(ServedChain::new(Network::Regtest, true)).config(config);
    let dear = dear.start().unwrap();
    let added = dear.chain_mut().add_block(node_block(&node), None, Duration::MAX);
    assert_eq!(added.linked, 1);
    let client = builder(&node).peer(dear.address().to_string()).wallet("w", wallet(1));
    let client = client.start().unwrap();
    // A block that only the second peer has: it sends its fee rate before any header, so whoever
    // has the block knows the rate.
    let second = dear.mine(&script(8));
    while client.status().unwrap().progress.tip.height < 2 {
        thread::yield_now();
    }
    assert_eq!(node.chain_mut().add_block(second, None, Duration::MAX).linked, 1);
    while client.status().unwrap().peers.iter().filter(|peer| peer.claims.is_some()).count() < 2 {
        thread::yield_now();
    }
    let tx = spend(coin, &script(7));
    let txid = client.broadcast_at(tx, FeeRate::from_sat_per_vb(1).unwrap()).unwrap();
    let is = |news: &News, what: fn(&BroadcastNews) -> bool| match news {
        News::Broadcast { txid: of, news } => *of == txid && what(news),
        _ => false,
    };
    let told = until(&client, |news| is(news, |it| matches!(it, BroadcastNews::Requested(_))));
    let too_low =
        |update: &&Update| is(&update.news, |it| matches!(it, BroadcastNews::FeeTooLow { .. }));
    assert_eq!(told.iter().filter(too_low).count(), 1, "{told:?}");
    while node.chain().mempool().is_empty() {
        thread::yield_now();
    }
    node.mine(&script(9));
    let told = until(&client, |news| is(news, |it| matches!(it, BroadcastNews::Mined(_))));
    // The transaction spends the wallet's own coin, so that it is also a hit of the wallet.
    assert!(hits(&told).iter().any(|(_, found, _)| *found == txid), "{told:?}");
    client.shutdown().unwrap();
}

/// Returns the block at height 1 of a node's chain.
fn node_block(node: &Node) -> Block {
    let chain = node.chain();
    let hash = chain.headers().hash_at(1).expect("the chain has a block at height 1");
    (**chain.block(&hash).expect("the block is in the chain")).clone()
}

#[test]
fn look_ups_prove_what_they_say() {
    let node = Node::regtest().unwrap();
    let blocks = node.mine_many(&script(1), 3);
    let client = builder(&node).wallet("w", wallet(2)).start().unwrap();
    until(&client, caught_up);
    let (hash, txid) = (blocks[1].block_hash(), blocks[1].txdata[0].compute_txid());
    assert_eq!(client.header_at(2).unwrap(), Some(blocks[1].header));
    assert_eq!(client.header_of(hash).unwrap(), Some((2, blocks[1].header)));
    let proof = client.transaction_in_block(hash, txid).unwrap();
    assert_eq!(proof.path.root(txid, 1).unwrap(), blocks[1].header.merkle_root);
    let other = blocks[0].txdata[0].compute_txid();
    let error = client.transaction_in_block(hash, other).unwrap_err();
    assert_eq!(error, LookUpError::NotInBlock(hash, other));
    client.shutdown().unwrap();
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let node = Node::regtest().unwrap();
    let client = builder(&node).protocol(Protocol::Bip37).start().unwrap();
    let no_push = Wallet::new(Birthday::Height(0), vec![Item::Script(ScriptBuf::from(vec![0x51]))]);
    let error = client.watch("w", no_push).unwrap_err().to_string();
    assert_eq!(error, "wallet w: item 0: BIP37 cannot watch a script that pushes no data");
    assert_eq!(client.watch("", wallet(1)).unwrap_err(), WalletError::Id("".into()));
    let error = client.watch("\0a", wallet(1)).unwrap_err().to_string();
    assert_eq!(error, "wallet \"\\0a\": an id has 1 to 255 bytes, the first not zero");
    client.shutdown().unwrap();
    assert!(Builder::new(Network::Regtest).start().is_err(), "there is no peer to connect to");
}

#[cfg(feature = "tokio")]
#[test]
fn nothing_is_lost_where_a_future_is_dropped() {
    use std::future::poll_fn;
    use std::pin::Pin;

    use futures_core::Stream as _;

    let node = Node::regtest().unwrap();
    let blocks = node.mine_many(&script(1), 40);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let client = builder(&node).max_updates(2).wallet("w", wallet(1)).start().unwrap();
    let found = runtime.block_on(async {
        let (mut updates, mut found) = (client.updates().into_stream(), Vec::new());
        loop {
            let next = poll_fn(|context| Pin::new(&mut updates).poll_next(context));
            // Most of these futures are dropped before they are ready.
            match tokio::time::timeout(Duration::from_micros(300), next).await {
                Ok(Some(update)) if caught_up(&update.news) => break found,
                Ok(Some(update)) => found.extend(hits(&[update])),
                Ok(None) => panic!("the client has stopped"),
                Err(_) => {}
            }
        }
    });
    assert!(found.iter().map(|hit| hit.1).eq(blocks.iter().map(|it| it.txdata[0].compute_txid())));
    client.shutdown().unwrap();
}

/// The process that the test below kills. The process prints each hit, and then acknowledges the
/// hit. In some runs, the process ends by itself.
#[test]
#[ignore = "not a test: the test of kills runs it in a process of its own"]
fn prints_hits() {
    let mut out = std::io::stderr();
    let (Ok(peer), Ok(data)) = (env::var("KILLED_PEER"), env::var("KILLED_DATA")) else {
        writeln!(out, "nothing is tested: this is a part of the test of kills").unwrap();
        return;
    };
    let mut left: u32 = env::var("KILLED_HITS").unwrap().parse().unwrap();
    let client = Builder::new(Network::Regtest).peer(peer).data_dir(data);
    let client = client.wallet("w", wallet(1)).start().unwrap();
    // Each line is written by one call, so that a kill leaves no part of a line.
    let mut say = |line: String| out.write_all(line.as_bytes()).unwrap();
    for update in client.updates() {
        match &update.news {
            News::Hit(hit) => {
                say(format!("hit {} {}\n", hit.txid, update.again));
                left -= 1;
            }
            News::CaughtUp(_) => say("done\n".into()),
            _ => {}
        }
        client.acknowledge(&update);
        if left == 0 {
            break;
        }
    }
    while env::var_os("KILLED_ENDS").is_none() {
        thread::park();
    }
    client.shutdown().unwrap();
    say("kept\n".into());
}

#[test]
fn hits_survive_kills_and_come_unmarked_once() {
    let node = Node::regtest().unwrap();
    let blocks = node.mine_many(&script(1), 300);
    let data = env::temp_dir().join(format!("chainsieve-killed-{}", std::process::id()));
    let mut seen: BTreeMap<Txid, (u32, u32)> = BTreeMap::new();
    // Hits that were acknowledged in runs which ended by themselves.
    let mut kept: BTreeSet<Txid> = BTreeSet::new();
    let mut kills = 0;
    for run in 0_u64.. {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "prints_hits", "--ignored", "--nocapture"])
            .env("KILLED_PEER", node.address().to_string())
            .env("KILLED_DATA", &data)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // Number of hits after which the process is killed. The number differs from run to run and
        // tends to grow, because each run first delivers again the hits that are not durably
        // acknowledged. The process may already have printed a few hits that this test has not
        // read.
        let mut left = 1 + (run * 37) % (40 + 2 * run);
        let ends_itself = run % 4 == 3;
        command.env("KILLED_HITS", (left + 5).to_string());
        if ends_itself {
            command.env("KILLED_ENDS", "1");
        }
        let mut child = command.spawn().unwrap();
        let mut of_run = Vec::new();
        let mut is_done = false;
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["hit", txid, again] => {
                    let txid: Txid = txid.parse().unwrap();
                    assert!(!kept.contains(&txid), "{txid} was acknowledged and delivered again");
                    of_run.push(txid);
                    let (marked, unmarked) = seen.entry(txid).or_default();
                    *(if *again == "true" { marked } else { unmarked }) += 1;
                    left = left.saturating_sub(1);
                }
                ["done"] => is_done = true,
                ["kept"] => kept.extend(of_run.drain(..)),
                _ => {}
            }
            if is_done || (left == 0 && !ends_itself) {
                // Lines that the process has already written are still read: the process may have
                // acknowledged these hits.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        if is_done {
            break;
        }
        kills += u32::from(!ends_itself);
        assert!(run < 1_000, "the client does not catch up in 1,000 runs");
    }
    fs::remove_dir_all(&data).unwrap();
    assert!(kills > 5, "{kills}");
    assert!(!kept.is_empty());
    for block in &blocks {
        let txid = block.txdata[0].compute_txid();
        let (marked, unmarked) = seen.get(&txid).copied().unwrap_or_default();
        assert!(marked + unmarked >= 1, "{txid} is lost after {kills} kills");
        assert!(unmarked <= 1, "{txid} was delivered {unmarked} times as new");
    }
    assert_eq!(seen.len(), blocks.len());
}
