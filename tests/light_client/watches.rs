//! Watches among honest and lying nodes, with both protocols. The expected results follow from the
//! blocks.

use std::collections::BTreeSet;
use std::time::Duration;

use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_blockdata::Inventory;
use chainsieve::bitcoin::{FeeRate, Network, OutPoint, ScriptBuf, Transaction, Txid};
use chainsieve::btc::client::{
    Birthday, BroadcastNews, Event, Finding, Hit, InclusionEvidence, Item, News, Protocol, Update,
    Wallet,
};
use chainsieve::btc::descriptors::descriptor_scripts;
use chainsieve::btc::peer::Grade;

use super::mined::{self, Chain, script};
use super::node::{Fault, Node};
use super::truth::{Watched, places};
use super::world::{World, all_hits, config, hits, withdrawn};
use testkit::Rng;

/// Both protocols that find the transactions of wallets.
pub(crate) const BOTH: [Protocol; 2] = [Protocol::Bip37, Protocol::Bip157];

/// The descriptor of BIP84's test wallet, with its key as testnets encode it.
pub(crate) const DESCRIPTOR: &str = "wpkh(tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQgewGiYZqrA9DsP4zbQ1M/0/*)";

/// Returns the first `count` scripts of the descriptor.
pub(crate) fn derived(count: u32) -> Vec<ScriptBuf> {
    let derived = descriptor_scripts(DESCRIPTOR, 0..=count - 1).unwrap();
    derived.into_iter().map(|derived| derived.script).collect()
}

/// Returns a wallet with the descriptor's first five indices and a gap of three.
pub(crate) fn descriptor_wallet(first: u32) -> Wallet {
    let item = Item::Descriptor(DESCRIPTOR.into(), 0..=4);
    Wallet { gap: 3, ..Wallet::new(Birthday::Height(first), vec![item]) }
}

pub(crate) fn wallet(scripts: &[ScriptBuf], first: u32) -> Wallet {
    let items = scripts.iter().cloned().map(Item::Script).collect();
    Wallet::new(Birthday::Height(first), items)
}

pub(crate) fn coinbase_of(chain: &Chain, height: u32) -> OutPoint {
    OutPoint { txid: chain.at(height).unwrap().txids[0], vout: 0 }
}

fn set(updates: &[Update]) -> BTreeSet<(u32, Txid)> {
    hits(updates).into_iter().collect()
}

fn mine(chain: &mut Chain, scripts: &[u8]) {
    for byte in scripts {
        chain.mine(&script(*byte), &[]);
    }
}

/// Returns twelve blocks. Script 1 is paid in the third and seventh, and spent in the fifth and
/// ninth.
fn blocks() -> Chain {
    let mut chain = Chain::new();
    mine(&mut chain, &[8, 9, 1, 9]);
    let spend = mined::spend(&[coinbase_of(&chain, 3)], &[&script(8), &script(9)]);
    chain.mine(&script(9), &[spend]);
    mine(&mut chain, &[8]);
    let paid = mined::spend(&[coinbase_of(&chain, 1)], &[&script(9), &script(1)]);
    chain.mine(&script(8), &[paid]);
    mine(&mut chain, &[8]);
    let coin = OutPoint { txid: chain.at(7).unwrap().txids[1], vout: 1 };
    chain.mine(&script(9), &[mined::spend(&[coin], &[&script(8)])]);
    mine(&mut chain, &[8, 9, 8]);
    chain
}

fn txid(chain: &Chain, height: u32) -> Txid {
    chain.at(height).unwrap().txids[0]
}

fn truth(chain: &Chain) -> BTreeSet<(u32, Txid)> {
    places(chain, &Watched::scripts(&[script(1)], 0))
}

fn one() -> [(&'static str, Wallet); 1] {
    [("a", wallet(&[script(1)], 0))]
}

#[test]
fn received_and_spent_is_found() {
    for protocol in BOTH {
        let chain = blocks();
        let mut world = World::new(config(protocol), &one(), &[Node::new(&chain, None)]);
        world.run();
        let updates = world.updates();
        let expected: Vec<_> = truth(&chain).into_iter().collect();
        assert_eq!((expected.len(), hits(&updates)), (4, expected));
        let found = all_hits(&updates);
        assert_eq!(found[0].received[0].value.to_sat(), 50);
        assert_eq!(found[1].spent[0].outpoint, coinbase_of(&chain, 3));
        assert!(found[1].spent[0].certain);
        assert_eq!(found[2].received[0].vout, 1);
        let caught_up: Vec<_> = updates
            .iter()
            .filter_map(|update| match update.news {
                News::CaughtUp(progress) => Some(progress),
                _ => None,
            })
            .collect();
        assert_eq!(caught_up.len(), 1);
        assert_eq!((caught_up[0].settled_to, caught_up[0].tip.height), (Some(12), 12));
        assert_eq!((world.dropped.len(), world.banned.len()), (0, 0));
    }
}

/// Each block pays to an index three after the one before, far beyond the range 0-4.
#[test]
fn descriptors_go_on_past_their_range() {
    for protocol in BOTH {
        let scripts = derived(40);
        let used = [4, 7, 10, 13, 16, 19, 22];
        let mut chain = Chain::new();
        for index in used {
            chain.mine(&scripts[index as usize], &[]);
        }
        let wallets = [("a", descriptor_wallet(0))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        world.run();
        let updates = world.updates();
        let expected: BTreeSet<_> =
            chain.blocks()[1..].iter().map(|mined| (mined.height, mined.txids[0])).collect();
        assert_eq!(set(&updates), expected);
        let found = all_hits(&updates);
        let indices: Vec<_> = found.iter().map(|hit| hit.received[0].owner.index).collect();
        assert_eq!(indices, used.map(Some));
    }
}

/// A script that is given by itself, before or after the descriptor that derives it, shows that its
/// index is used.
#[test]
fn a_script_that_is_a_descriptors_too_leads_it_on() {
    let scripts = derived(20);
    let mut chain = Chain::new();
    // Index 7 is watched after index 4 is used.
    for index in [4, 7] {
        chain.mine(&scripts[index], &[]);
    }
    let by_itself = Item::Script(scripts[4].clone());
    for protocol in BOTH {
        for place in [0, 1] {
            let mut wallet = descriptor_wallet(0);
            wallet.items.insert(place, by_itself.clone());
            let node = Node::new(&chain, None);
            let mut world = World::new(config(protocol), &[("a", wallet)], &[node]);
            world.run();
            let heights: Vec<_> = hits(&world.updates()).iter().map(|(at, _)| *at).collect();
            assert_eq!(heights, [1, 2], "{protocol:?}");
        }
        // The descriptor is added later, when its script has already been paid.
        let script = wallet(&scripts[4..5], 0);
        let node = Node::new(&chain, None);
        let mut world = World::new(config(protocol), &[("a", script)], &[node]);
        world.run();
        world.updates();
        world.watch("a", &descriptor_wallet(0));
        world.run();
        let heights: BTreeSet<_> = all_hits(&world.updates()).iter().map(height).collect();
        assert!(heights.contains(&2), "{protocol:?}: {heights:?}");
    }
}

/// A script that is given by itself is paid before the descriptor reaches its index.
#[test]
fn a_script_that_gets_its_index_later_leads_the_descriptor_on() {
    let scripts = derived(30);
    let mut chain = Chain::new();
    // With range 0-4 and gap 3, index 4 extends the watched indices to 9 or 10, and index 8 to 13
    // or 14, with either protocol.
    for index in [8, 4, 13] {
        chain.mine(&scripts[index], &[]);
    }
    for protocol in BOTH {
        let mut wallet = descriptor_wallet(0);
        wallet.items.push(Item::Script(scripts[8].clone()));
        let node = Node::new(&chain, None);
        let mut world = World::new(config(protocol), &[("a", wallet)], &[node]);
        world.run();
        let heights: BTreeSet<_> = all_hits(&world.updates()).iter().map(height).collect();
        assert_eq!(heights, BTreeSet::from([1, 2, 3]), "{protocol:?}");
    }
}

fn height(hit: &Hit) -> u32 {
    hit.place.unwrap().block.height
}

/// A wallet is watched again with a larger gap.
#[test]
fn a_larger_gap_finds_what_a_smaller_one_has_passed_over() {
    let scripts = derived(20);
    let mut chain = Chain::new();
    for index in [1, 12] {
        chain.mine(&scripts[index], &[]);
    }
    let narrow = descriptor_wallet(0);
    let wide = Wallet { gap: 12, ..narrow.clone() };
    for protocol in BOTH {
        let node = Node::new(&chain, None);
        let mut world = World::new(config(protocol), &[("a", narrow.clone())], &[node]);
        world.run();
        let found = |world: &mut World| -> Vec<u32> {
            all_hits(&world.updates()).iter().map(height).collect()
        };
        assert_eq!(found(&mut world), [1], "{protocol:?}");
        world.watch("a", &wide);
        world.run();
        assert_eq!(found(&mut world), [2], "{protocol:?}");
    }
}

#[test]
fn a_reorganization_takes_hits_back() {
    for protocol in BOTH {
        let chain = blocks();
        let mut world = World::new(config(protocol), &one(), &[Node::new(&chain, None)]);
        world.run();
        world.updates();
        // Another branch from the sixth block on, which pays to script 1 in the eighth.
        let mut other = chain.clone();
        other.cut(5);
        mine(&mut other, &[7, 7, 1, 7, 7, 7, 7, 7, 7]);
        world.announce(0, &other);
        let updates = world.updates();
        let reorganized: Vec<_> = updates
            .iter()
            .filter_map(|update| match &update.news {
                News::Reorganized { fork, disconnected, .. } => {
                    Some((fork.height, disconnected.len()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(reorganized, [(5, 7)]);
        let gone: BTreeSet<_> = withdrawn(&updates).iter().map(|(height, _)| *height).collect();
        assert_eq!(gone, BTreeSet::from([7, 9]));
        assert_eq!(hits(&updates), [(8, other.at(8).unwrap().txids[0])]);
        assert_eq!(world.client.hits(&"a".into()).count(), truth(&other).len());
    }
}

/// Kills the client after each message and restarts it. All hits are found, and none is given twice
/// as new.
fn killed(protocol: Protocol, wallet: &Wallet, watched: &Watched, chain: &Chain) {
    let nodes = [Node::new(chain, None), Node::new(chain, None)];
    let expected = places(chain, watched);
    let wallets = [("a", wallet.clone())];
    let total = {
        let mut world = World::new(config(protocol), &wallets, &nodes);
        world.run();
        assert_eq!(set(&world.updates()), expected);
        world.taken
    };
    assert!(total > 10, "{total}");
    let mut rng = Rng::new(1);
    for kill in 1..=total {
        // The state was saved at some earlier moment, or never, and some of the last writes are
        // lost.
        let saved = [0, kill / 2, kill][kill % 3];
        let mut world = World::new(config(protocol), &wallets, &nodes);
        for taken in 1..=kill {
            world.step();
            if taken == saved {
                world.handle(Event::Save);
            }
            world.stores_at_once = taken + 4 < kill;
        }
        let mut updates = world.updates();
        world.stores_at_once = true;
        world.crash(&mut rng);
        world.run();
        updates.extend(world.updates());
        assert_eq!(set(&updates), expected, "killed after {kill}, saved at {saved}");
        let new: Vec<_> = updates
            .iter()
            .filter(|update| matches!(update.news, News::Hit(_)) && !update.again)
            .cloned()
            .collect();
        assert_eq!(new.len(), set(&new).len(), "killed after {kill}, saved at {saved}");
    }
}

#[test]
fn a_kill_at_any_time_loses_nothing_and_repeats_nothing() {
    for protocol in BOTH {
        let watched = Watched::scripts(&[script(1)], 0);
        killed(protocol, &wallet(&[script(1)], 0), &watched, &blocks());
    }
}

#[test]
fn a_kill_while_a_descriptor_goes_on_loses_nothing() {
    let scripts = derived(40);
    let mut chain = Chain::new();
    // Index 7 is watched only after the payment to index 2.
    for index in &[2, 7, 4, 10, 13, 12] {
        chain.mine(&scripts[*index], &[]);
    }
    // Both protocols watch as many indices ahead as the range has.
    let watched = Watched { derived: scripts, range: 5, gap: 5, ..Watched::scripts(&[], 0) };
    for protocol in BOTH {
        killed(protocol, &descriptor_wallet(0), &watched, &chain);
    }
}

#[test]
fn another_peer_takes_the_place_of_one_that_fails() {
    let chain = blocks();
    for (fault, banned) in [
        (Fault::Silent, false),
        (Fault::PassesOver, false),
        (Fault::NoTransactions, false),
        (Fault::BadTree, true),
    ] {
        let nodes = [Node::new(&chain, Some(fault)), Node::new(&chain, None)];
        let mut world = World::new(config(Protocol::Bip37), &one(), &nodes);
        world.run();
        assert_eq!(set(&world.updates()), truth(&chain), "{fault:?}");
        let (dropped, given_up) = (&world.dropped, &world.banned);
        let (some, none) = if banned { (given_up, dropped) } else { (dropped, given_up) };
        assert!(some.iter().all(|(place, _)| *place == 0) && !some.is_empty(), "{fault:?}");
        assert_eq!(none.len(), 0, "{fault:?}");
    }
}

/// The node skips the first block, and disconnects before the client can notice. The second block,
/// which spends a coin of the first, is requested again.
#[test]
fn what_is_answered_after_a_block_passed_over_is_asked_for_again() {
    let mut chain = Chain::new();
    chain.mine(&script(1), &[]);
    let spend = mined::spend(&[coinbase_of(&chain, 1)], &[&script(1)]);
    chain.mine(&script(8), &[spend]);
    let mut node = Node::new(&chain, None);
    node.withheld.insert(chain.at(1).unwrap().hash);
    let mut world = World::new(config(Protocol::Bip37), &one(), &[node]);
    while world.client.hits(&"a".into()).count() == 0 {
        world.step();
    }
    assert_eq!(hits(&world.updates()), [(2, chain.at(2).unwrap().txids[1])]);
    world.hang_up(0);
    world.nodes[0].withheld.clear();
    world.run();
    let spent: usize = world.client.hits(&"a".into()).map(|hit| hit.spent.len()).sum();
    assert_eq!((world.client.hits(&"a".into()).count(), spent), (2, 1));
}

#[test]
fn what_nobody_delivers_is_told() {
    let node = Node::new(&blocks(), Some(Fault::NoTransactions));
    let mut world = World::new(config(Protocol::Bip37), &one(), &[node]);
    for _ in 0..2_000 {
        world.step();
    }
    assert!(!world.is_done());
    let mut unavailable = BTreeSet::new();
    for update in world.updates() {
        match update.news {
            News::CaughtUp(_) => panic!("caught up"),
            News::Finding(Finding::BlockUnavailable(at)) => drop(unavailable.insert(at.height)),
            _ => {}
        }
    }
    assert!(unavailable.contains(&3), "{unavailable:?}");
}

/// Bitcoin Core relays no transaction over 400,000 weight units (`MAX_STANDARD_TX_WEIGHT`).
#[test]
fn unconfirmed_transactions_that_no_node_relays_are_passed_over() {
    let chain = blocks();
    let pays = |outputs: usize| {
        let scripts = vec![script(1); outputs];
        let scripts: Vec<_> = scripts.iter().map(|script| &**script).collect();
        mined::spend(&[coinbase_of(&chain, 12)], &scripts)
    };
    // An output has 31 bytes of four weight units each.
    let (small, large) = (pays(3_200), pays(3_300));
    assert!(small.weight().to_wu() <= 400_000 && large.weight().to_wu() > 400_000);
    let mut node = Node::new(&chain, None);
    node.mempool = vec![large, small.clone()];
    let mut world = World::new(config(Protocol::Bip37), &one(), &[node]);
    world.run();
    for _ in 0..20 {
        world.step();
    }
    let found = all_hits(&world.updates());
    let unconfirmed: Vec<_> = found.iter().filter(|hit| hit.place.is_none()).collect();
    let txids: Vec<_> = unconfirmed.iter().map(|hit| hit.txid).collect();
    assert_eq!(txids, [small.compute_txid()]);
}

/// A wallet that is too large for any filter delays the others until it is forgotten.
#[test]
fn a_wallet_that_is_too_large_for_a_filter_can_be_forgotten() {
    let chain = blocks();
    let mut world = World::new(config(Protocol::Bip37), &one(), &[Node::new(&chain, None)]);
    world.run();
    world.updates();
    // With more than 144,000 elements, BIP37's formula gives a filter of 36,000 bytes no hash function.
    let many = (0..144_001_u32).map(|number| {
        let bytes = [&[0, 20][..], &number.to_le_bytes(), &[5; 16]].concat();
        Item::Script(bytes.into())
    });
    world.watch("b", &Wallet::new(Birthday::Height(0), many.collect()));
    for _ in 0..20 {
        world.step();
    }
    let is_told = |update: &Update| matches!(update.news, News::Finding(Finding::NoFilter(_)));
    assert!(world.updates().iter().any(is_told));
    let mut paid = chain;
    mine(&mut paid, &[1]);
    world.switch(0, &paid, true);
    for _ in 0..20 {
        world.step();
    }
    assert!(!world.is_done());
    world.forget("b");
    world.run();
    assert_eq!(hits(&world.updates()), [(13, paid.at(13).unwrap().txids[0])]);
}

/// Two wallets are together too large for a filter. In the next run, the second is alone.
#[test]
fn what_no_filter_had_room_for_is_looked_for_in_another_run() {
    let mut chain = blocks();
    mine(&mut chain, &[2]);
    let many = |tag: u8, count: u32| {
        let scripts = (0..count).map(move |number| {
            let bytes = [&[0, 20][..], &number.to_le_bytes(), &[tag; 16]].concat();
            Item::Script(bytes.into())
        });
        Wallet::new(Birthday::Height(0), scripts.collect())
    };
    let first = many(5, 100_000);
    let mut second = many(6, 44_001);
    second.items.push(Item::Script(script(2)));
    let node = Node::new(&chain, None);
    let mut world =
        World::new(config(Protocol::Bip37), &[("a", first)], std::slice::from_ref(&node));
    world.run();
    world.watch("b", &second);
    for _ in 0..20 {
        world.step();
    }
    assert!(!world.is_done());
    world.handle(Event::Save);
    world.store(usize::MAX);
    let wallets = [("b".into(), second)].into();
    let mut world = World::resume(config(Protocol::Bip37), wallets, &[node], world.storage);
    world.run();
    assert_eq!(hits(&world.updates()), [(13, chain.at(13).unwrap().txids[0])]);
}

#[test]
fn unconfirmed_transactions_are_found_and_then_confirmed() {
    let chain = blocks();
    let payment = mined::spend(&[coinbase_of(&chain, 12)], &[&script(1)]);
    let mut paid = chain.clone();
    paid.mine(&script(8), std::slice::from_ref(&payment));
    let mut node = Node::new(&chain, None);
    node.mempool = vec![payment.clone()];
    let mut world = World::new(config(Protocol::Bip37), &one(), &[node]);
    world.run();
    for _ in 0..20 {
        world.step();
    }
    let found = all_hits(&world.updates());
    let unconfirmed: Vec<_> = found.iter().filter(|hit| hit.place.is_none()).collect();
    assert_eq!(unconfirmed.len(), 1);
    assert_eq!(unconfirmed[0].evidence, InclusionEvidence::Unconfirmed);
    world.announce(0, &paid);
    assert_eq!(hits(&world.updates()), [(13, payment.compute_txid())]);
    assert!(world.client.hits(&"a".into()).all(|hit| hit.place.is_some()));
}

#[test]
fn a_liar_about_filters_is_found_out_and_hides_nothing() {
    let chain = blocks();
    for lying_first in [true, false] {
        let lies = Some(Fault::HidesFrom(0));
        let mut nodes = vec![Node::new(&chain, lies), Node::new(&chain, None)];
        if !lying_first {
            nodes.reverse();
        }
        let mut world = World::new(config(Protocol::Bip157), &one(), &nodes);
        world.run();
        let updates = world.updates();
        assert_eq!(set(&updates), truth(&chain));
        let liar = usize::from(!lying_first);
        assert!(matches!(world.banned.as_slice(), [(place, _)] if *place == liar));
        let is_dispute =
            |update: &&Update| matches!(update.news, News::Finding(Finding::Disputed { .. }));
        assert!(updates.iter().filter(is_dispute).count() > 0);
        // The liar is reported with a proof that anyone can check.
        let found = updates.iter().filter_map(|update| match &update.news {
            News::Finding(Finding::FalseFilter { peer, filter }) => Some((peer, filter)),
            _ => None,
        });
        let [(peer, filter)] = found.collect::<Vec<_>>()[..] else { panic!("{updates:?}") };
        assert_eq!(*peer, format!("node {liar}"));
        assert_eq!(chain.height_of(&filter.at.hash), Some(filter.at.height));
        let proof = filter.proof.as_ref().expect("a proof");
        assert_eq!(proof.verify(filter.at.hash, Network::Regtest), Ok(()));
    }
}

/// While a liar's filter is in dispute, further indices are searched for, and again after the liar was
/// convicted of another lie. The true filter, which comes last, is matched with the first indices, too.
#[test]
fn a_filter_that_replaces_a_false_one_is_matched_with_everything() {
    let derived = derived(10);
    let mut chain = Chain::new();
    for height in 1..=21 {
        let to = match height {
            5 => derived[4].clone(),
            20 => derived[0].clone(),
            _ => script(9),
        };
        chain.mine(&to, &[]);
    }
    let [fifth, first_lie, second_lie] = [5, 19, 20].map(|height| chain.at(height).unwrap().hash);
    let mut nodes = [Node::new(&chain, Some(Fault::HidesFrom(19))), Node::new(&chain, None)];
    for node in &mut nodes {
        node.withheld.extend([fifth, first_lie, second_lie]);
    }
    let mut config = config(Protocol::Bip157);
    let timeout = config.timeout;
    // While the first dispute is open, the filters of the second one are not requested.
    config.filter_limits.inspections = 1;
    let mut world = World::new(config, &[("a", descriptor_wallet(0))], &nodes);
    let settle = |world: &mut World| {
        while world.has_messages() {
            world.step();
        }
    };
    // The liar alone has answered everything.
    world.hang_up(1);
    settle(&mut world);
    world.call(1);
    settle(&mut world);
    // The payment in the fifth block brings further indices.
    let give = |world: &mut World, hash| {
        for node in &mut world.nodes {
            node.withheld.remove(&hash);
        }
        world.now += timeout + Duration::from_millis(1);
        world.tick(1);
    };
    give(&mut world, fifth);
    settle(&mut world);
    assert_eq!(world.client.hits(&"a".into()).count(), 1);
    // The liar is convicted. The true filters are late.
    give(&mut world, first_lie);
    while world.banned.is_empty() {
        world.step();
    }
    world.tick(31_000);
    give(&mut world, second_lie);
    world.run();
    assert_eq!(set(&world.updates()), [(5, txid(&chain, 5)), (20, txid(&chain, 20))].into());
}

#[test]
fn what_peers_agree_on_is_graded() {
    let chain = blocks();
    let nodes = [Node::new(&chain, None), Node::new(&chain, None)];
    let wallets = [("a", wallet(&[script(1)], 1))];
    let mut world = World::new(config(Protocol::Bip157), &wallets, &nodes);
    world.run();
    let scanned: BTreeSet<_> = truth(&chain).iter().map(|(height, _)| *height).collect();
    let grades = world.client.grades();
    let heights: Vec<_> = grades.iter().flat_map(|graded| graded.from..=graded.to).collect();
    assert!(heights.into_iter().eq(1..=chain.height()), "{grades:?}");
    for graded in grades {
        for height in graded.from..=graded.to {
            let is_hit = scanned.contains(&height);
            let expected = if is_hit { Grade::Scanned } else { Grade::Peers(2) };
            assert_eq!(graded.grade, expected, "{height}");
        }
    }
}

#[test]
fn a_range_is_looked_through_and_no_more() {
    for protocol in BOTH {
        // The last height of the range is below the tip, at the tip, or above the tip.
        for last in [8, 12, 13] {
            let chain = blocks();
            let mut config = config(protocol);
            config.last = Some(last);
            let wallets = [("a", wallet(&[script(1)], 4))];
            let mut world = World::new(config, &wallets, &[Node::new(&chain, None)]);
            world.run();
            // The coin that the fifth block spends was paid before the range, so the blocks don't
            // show whose it is.
            let watched = Watched { last, ..Watched::scripts(&[script(1)], 4) };
            assert_eq!(set(&world.updates()), places(&chain, &watched));
            // Blocks after the range don't matter.
            let mut more = chain.clone();
            mine(&mut more, &[1, 1, 1]);
            world.announce(0, &more);
            let new = places(&more, &watched).len() - places(&chain, &watched).len();
            let updates = world.updates();
            assert_eq!(set(&updates).len(), new, "{protocol:?}, {last}");
        }
    }
}

#[test]
fn a_coin_is_seen_spent() {
    let chain = blocks();
    let outpoint = coinbase_of(&chain, 3);
    for (protocol, script) in [(Protocol::Bip157, Some(script(1))), (Protocol::Bip37, None)] {
        let items = vec![Item::Coin { outpoint, script }];
        let wallets = [("a", Wallet::new(Birthday::Height(4), items))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        world.run();
        let found = all_hits(&world.updates());
        let spent: Vec<_> = found.iter().filter(|hit| !hit.spent.is_empty()).collect();
        assert_eq!(spent.len(), 1);
        assert_eq!(spent[0].txid, chain.at(5).unwrap().txids[1]);
        assert_eq!(spent[0].spent[0].outpoint, outpoint);
    }
}

#[test]
fn a_wallet_that_is_forgotten_is_not_told_and_its_coins_stay_watched_for_others() {
    for protocol in BOTH {
        let chain = blocks();
        let outpoint = coinbase_of(&chain, 3);
        let coin = Item::Coin { outpoint, script: Some(script(1)) };
        let coin = Wallet::new(Birthday::Height(4), vec![coin]);
        let mut short = chain.clone();
        short.cut(4);
        let wallets = [("a", wallet(&[script(1)], 0)), ("b", coin)];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&short, None)]);
        world.run();
        world.updates();
        world.forget("a");
        world.announce(0, &chain);
        let updates = world.updates();
        let told: BTreeSet<_> =
            updates.iter().filter_map(|update| Some(update.wallet.clone()?.0)).collect();
        assert_eq!(told, BTreeSet::from(["b".to_owned()]), "{protocol:?}");
        assert_eq!(hits(&updates)[0], (5, chain.at(5).unwrap().txids[1]));
        // The wallet is watched again, and gets every hit as new.
        world.watch("a", &wallet(&[script(1)], 0));
        world.run();
        let updates = world.updates();
        assert_eq!(set(&updates), truth(&chain), "{protocol:?}");
        assert!(updates.iter().all(|update| !update.again));
    }
}

/// The wallet is forgotten and watched again before the headers arrive.
#[test]
fn a_wallet_that_is_watched_again_at_once_is_watched() {
    for protocol in BOTH {
        let chain = blocks();
        let mut world = World::new(config(protocol), &one(), &[]);
        world.forget("a");
        world.watch("a", &wallet(&[script(1)], 0));
        world.nodes = vec![Node::new(&chain, None)];
        world.run();
        world.watch("b", &wallet(&[script(200)], 0));
        world.run();
        let mut more = chain.clone();
        mine(&mut more, &[1]);
        world.announce(0, &more);
        assert_eq!(set(&world.updates()), truth(&more), "{protocol:?}");
    }
}

#[test]
fn a_wallet_that_gets_an_earlier_birthday_is_looked_for_from_there() {
    for protocol in BOTH {
        let chain = blocks();
        let wallets = [("b", wallet(&[script(200)], 5))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        world.run();
        world.watch("a", &wallet(&[script(1)], 8));
        world.run();
        // The coin that the ninth block spends was paid before the birthday.
        assert_eq!(set(&world.updates()), BTreeSet::new());
        world.watch("a", &wallet(&[script(1)], 2));
        world.run();
        let known: BTreeSet<_> = world.client.hits(&"a".into()).map(|hit| hit.txid).collect();
        let expected: BTreeSet<_> = truth(&chain).into_iter().map(|(_, txid)| txid).collect();
        assert_eq!(known, expected, "{protocol:?}");
    }
}

/// If filters are kept, another wallet downloads only filters that are not there.
#[test]
fn kept_filters_are_asked_for_another_wallet() {
    let chain = blocks();
    let mut config = config(Protocol::Bip157);
    config.kept_filters = 1 << 20;
    let mut world = World::new(config, &one(), &[Node::new(&chain, None)]);
    world.run();
    let asked = world.nodes[0].asked_filters;
    world.watch("b", &wallet(&[script(9)], 0));
    world.run();
    let updates = world.updates();
    let of_b: Vec<_> = updates
        .into_iter()
        .filter(|update| update.wallet.as_ref().is_some_and(|id| id.0 == "b"))
        .collect();
    assert_eq!(set(&of_b), places(&chain, &Watched::scripts(&[script(9)], 0)));
    // A filter that a single peer claims proves nothing about other scripts. So only the filters of
    // blocks that were already scanned, for either wallet, are requested again.
    let scanned =
        [script(1), script(9)].map(|script| places(&chain, &Watched::scripts(&[script], 0)));
    let scanned: BTreeSet<_> = scanned.iter().flatten().map(|(height, _)| height).collect();
    let more = world.nodes[0].asked_filters - asked;
    assert!(more <= scanned.len() && scanned.len() < 12, "{more}");
}

fn broadcast_news(updates: &[Update]) -> Vec<BroadcastNews> {
    let news = updates.iter().filter_map(|update| match &update.news {
        News::Broadcast { news, .. } => Some(news.clone()),
        _ => None,
    });
    news.collect()
}

#[test]
fn a_broadcast_is_offered_mined_and_offered_again() {
    for protocol in BOTH {
        let chain = blocks();
        let nodes = [Node::new(&chain, None), Node::new(&chain, None)];
        let mut world = World::new(config(protocol), &one(), &nodes);
        world.run();
        // Node 1 accepts no transaction that pays less than 2,000 satoshis for 1,000 virtual bytes.
        world.push(1, NetworkMessage::FeeFilter(2_000));
        world.step();
        world.updates();
        let tx = mined::spend(&[coinbase_of(&chain, 12)], &[&script(50)]);
        let rate = FeeRate::from_sat_per_kwu(250);
        world.handle(Event::Broadcast(Box::new(tx.clone()), Some(rate)));
        world.run();
        let news = broadcast_news(&world.updates());
        assert!(news.contains(&BroadcastNews::Offered("node 0".into())), "{news:?}");
        assert!(news.contains(&BroadcastNews::Requested("node 0".into())), "{news:?}");
        let least = FeeRate::from_sat_per_kwu(500);
        assert!(
            news.contains(&BroadcastNews::FeeTooLow { peer: "node 1".into(), fee_rate: least }),
            "{news:?}"
        );
        assert_eq!(world.nodes[0].received, [tx.compute_txid()]);
        assert!(world.nodes[1].told.is_empty() && world.nodes[1].received.is_empty());
        let mut paid = chain.clone();
        paid.mine(&script(8), std::slice::from_ref(&tx));
        world.announce(0, &paid);
        let mined = BroadcastNews::Mined(world.client.chain().tip());
        assert_eq!(broadcast_news(&world.updates()), [mined]);
        let mut other = chain;
        mine(&mut other, &[7, 7]);
        world.announce(0, &other);
        let news = broadcast_news(&world.updates());
        assert_eq!(news.first(), Some(&BroadcastNews::Unmined));
        // The transaction is no hit of a wallet.
        assert_eq!(world.client.hits(&"a".into()).count(), truth(&other).len());
        let inv = NetworkMessage::Inv(vec![Inventory::Transaction(tx.compute_txid())]);
        world.push(1, inv);
        world.step();
        assert_eq!(broadcast_news(&world.updates()), [BroadcastNews::Seen("node 1".into())]);
    }
}

#[test]
fn a_block_is_fetched_from_whoever_has_it() {
    let chain = blocks();
    let mut poor = Node::new(&chain, None);
    poor.withheld.insert(chain.at(4).unwrap().hash);
    let mut world = World::new(config(Protocol::Bip157), &[], &[poor, Node::new(&chain, None)]);
    world.run();
    let mut other = chain.clone();
    other.cut(3);
    mine(&mut other, &[7]);
    let asked = [chain.at(4).unwrap().hash, other.tip().hash];
    for hash in asked {
        world.handle(Event::GetBlock(hash));
    }
    for _ in 0..10 {
        world.step();
    }
    world.blocks.sort_by_key(|(hash, _)| *hash != asked[0]);
    assert_eq!(world.blocks, [(asked[0], true), (asked[1], false)]);
}

/// Replaces all answers in flight: everything is searched again, and another script makes another filter.
fn supersede(world: &mut World) {
    world.handle(Event::Rescan(0));
    world.watch("b", &wallet(&[script(3)], 0));
}

/// A superseded answer shows a coin in a block that then leaves the chain. In the new branch the coin is in a lower
/// block, which the node does not have yet when it is asked, and the next block spends it.
#[test]
fn a_coin_that_is_lower_in_the_new_branch() {
    let mut base = Chain::new();
    mine(&mut base, &[8; 21]);
    let pay = mined::spend(&[coinbase_of(&base, 1)], &[&script(1)]);
    let coin = OutPoint { txid: pay.compute_txid(), vout: 0 };
    let spend = mined::spend(&[coin], &[&script(9)]);
    let want = [&pay, &spend].map(Transaction::compute_txid);
    let mut old = base.clone();
    mine(&mut old, &[10; 3]);
    old.mine(&script(10), std::slice::from_ref(&pay));
    let mut new = base;
    new.mine(&script(11), &[pay]);
    new.mine(&script(11), &[spend]);
    mine(&mut new, &[11; 3]);
    let mut world = World::new(config(Protocol::Bip37), &one(), &[Node::new(&old, None)]);
    while world.nodes[0].asked_filtered < 26 {
        world.step();
    }
    supersede(&mut world);
    while world.client.hits(&"a".into()).count() == 0 {
        world.step();
    }
    world.nodes[0].withheld.insert(new.at(22).unwrap().hash);
    world.switch(0, &new, true);
    while world.dropped.is_empty() {
        world.step();
    }
    world.nodes[0].withheld.clear();
    world.run();
    assert!(world.client.is_caught_up());
    let found: BTreeSet<_> = world.client.hits(&"a".into()).map(|hit| hit.txid).collect();
    assert_eq!(found, BTreeSet::from(want));
}

/// No filter is large enough for coins that superseded answers show. When another wallet is forgotten, their spends
/// are found.
#[test]
fn no_filter_for_coins_of_superseded_answers() {
    let mut chain = Chain::new();
    mine(&mut chain, &[8; 4]);
    let scripts = vec![script(1); 120];
    let scripts: Vec<_> = scripts.iter().map(|script| &**script).collect();
    let pay = mined::spend(&[coinbase_of(&chain, 1)], &scripts);
    // A filter this large has many false positives, so that some of the spends are found by chance.
    let txid = pay.compute_txid();
    let spend =
        |vout: u8| mined::spend(&[OutPoint { txid, vout: vout.into() }], &[&script(100 + vout)]);
    let spends: Vec<_> = (0..40).map(spend).collect();
    mine(&mut chain, &[8; 5]);
    chain.mine(&script(8), &[pay]);
    chain.mine(&script(8), &spends);
    mine(&mut chain, &[8; 8]);
    let [paid, spent] = [10, 11].map(|height| chain.at(height).unwrap().hash);
    let many = (0..143_890_u32).map(|number| {
        let bytes = [&[0, 20][..], &number.to_le_bytes(), &[5; 16]].concat();
        Item::Script(bytes.into())
    });
    let many = Wallet::new(Birthday::Height(0), many.collect());
    let wallets = [("a", wallet(&[script(1)], 0)), ("z", many)];
    let mut world = World::new(config(Protocol::Bip37), &wallets, &[Node::new(&chain, None)]);
    world.nodes[0].withheld.insert(spent);
    while world.nodes[0].asked_filtered < 12 {
        world.step();
    }
    world.nodes[0].withheld = BTreeSet::from([paid]);
    supersede(&mut world);
    let is_told = |update: &Update| matches!(update.news, News::Finding(Finding::NoFilter(_)));
    while !world.updates().iter().any(is_told) {
        world.step();
    }
    assert!(world.dropped.is_empty());
    world.hang_up(0);
    world.nodes[0].withheld.clear();
    world.forget("z");
    world.run();
    let found: BTreeSet<_> = world.client.hits(&"a".into()).map(|hit| hit.txid).collect();
    let own = spends.iter().map(Transaction::compute_txid).chain([txid]);
    assert_eq!(found, own.collect());
}
