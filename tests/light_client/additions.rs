//! What it costs to add items while the client runs, and to give them again after a restart: filters,
//! blocks and writes, and which blocks are searched for which scripts.

use std::collections::BTreeSet;

use chainsieve::bitcoin::ScriptBuf;
use chainsieve::btc::client::{
    Birthday, Event, Finding, Item, News, Progress, Protocol, Update, Wallet, WatchId,
};

use super::mined::{Chain, script};
use super::node::Node;
use super::watches::{BOTH, DESCRIPTOR, coinbase_of, derived, descriptor_wallet, wallet};
use super::world::{World, all_hits, config};

/// A chain of 600 blocks, of which every fourth pays to script 1, and blocks 100 and 200 pay to
/// script 2.
fn long() -> Chain {
    let mut chain = Chain::new();
    for height in 1..=600 {
        let paid = match height {
            100 | 200 => 2,
            _ if height % 4 == 1 => 1,
            _ => 8,
        };
        chain.mine(&script(paid), &[]);
    }
    chain
}

/// Filters, blocks and filtered blocks that the client has asked for.
fn traffic(world: &World) -> [usize; 3] {
    let node = &world.nodes[0];
    [node.asked_filters, node.asked_blocks, node.asked_filtered]
}

/// Returns the traffic that `action` causes.
fn traffic_of(world: &mut World, action: impl FnOnce(&mut World)) -> [usize; 3] {
    let before = traffic(world);
    action(world);
    world.run();
    let after = traffic(world);
    std::array::from_fn(|kind| after[kind] - before[kind])
}

fn caught_up(updates: &[Update]) -> Vec<Progress> {
    let caught_up = updates.iter().filter_map(|update| match update.news {
        News::CaughtUp(progress) => Some(progress),
        _ => None,
    });
    caught_up.collect()
}

/// A client that has caught up with `chain` and watches script 1, after it has stored everything.
fn settled(protocol: Protocol, chain: &Chain) -> World {
    let wallets = [("a", wallet(&[script(1)], 0))];
    let mut world = World::new(config(protocol), &wallets, &[Node::new(chain, None)]);
    world.run();
    world.tick(20_000);
    world.run();
    world.updates();
    world
}

/// A script that no block pays to.
fn fresh(number: u32) -> ScriptBuf {
    ScriptBuf::from([&[0, 20][..], &number.to_be_bytes(), &[7; 16]].concat())
}

/// With the range 0-4 and a gap of 3, index 7 is watched once index 4 is used. Block 1 pays to index
/// 7, and block 2 to index 4. The coin of block 1 is spent in block 4.
#[test]
fn an_index_counts_in_earlier_blocks_than_the_one_that_brings_it_within_the_gap() {
    let scripts = derived(20);
    let mut chain = Chain::new();
    for index in [7, 4] {
        chain.mine(&scripts[index], &[]);
    }
    chain.mine(&script(9), &[]);
    let spend = super::mined::spend(&[coinbase_of(&chain, 1)], &[&script(9)]);
    chain.mine(&script(9), &[spend]);
    let expected = BTreeSet::from([(1, Some(7)), (2, Some(4)), (4, None)]);
    for protocol in BOTH {
        for kept in [0, 1 << 20] {
            let mut config = config(protocol);
            config.kept_filters = kept;
            let wallets = [("a", descriptor_wallet(0))];
            let mut world = World::new(config, &wallets, &[Node::new(&chain, None)]);
            let found = |world: &World| -> BTreeSet<_> {
                let id = "a".into();
                let hits = world.client.hits(&id).map(|hit| {
                    let index = hit.received.first().and_then(|received| received.owner.index);
                    (hit.place.unwrap().block.height, index)
                });
                hits.collect()
            };
            world.run();
            assert_eq!(found(&world), expected, "{protocol:?}");
            world.restart();
            world.run();
            assert_eq!(found(&world), expected, "{protocol:?}, after a restart");
        }
    }
}

/// Each block pays to an index lower than the block before, so that each payment brings the one
/// before within the gap.
#[test]
fn a_wallet_that_was_paid_from_the_last_index_to_the_first_is_found_whole() {
    let scripts = derived(60);
    let mut chain = Chain::new();
    let indices: Vec<_> = (0..19).map(|step| 2 + 3 * step).collect();
    for index in indices.iter().rev() {
        chain.mine(&scripts[*index], &[]);
    }
    for protocol in BOTH {
        let wallets = [("a", descriptor_wallet(0))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        world.run();
        assert_eq!(world.client.hits(&"a".into()).count(), indices.len(), "{protocol:?}");
        assert_eq!(world.client.settled_to(), Some(19));
    }
}

#[test]
fn a_fresh_address_costs_no_filter_and_no_block_of_the_past() {
    let chain = long();
    for protocol in BOTH {
        for kept in [0, 1 << 30] {
            let mut config = config(protocol);
            config.kept_filters = kept;
            let wallets = [("a", wallet(&[script(1)], 0))];
            let mut world = World::new(config, &wallets, &[Node::new(&chain, None)]);
            world.run();
            for (number, above) in [(1, 0), (2, 1), (3, 1_000)] {
                let items = wallet(&[fresh(number)], chain.height() + above);
                let id = if number == 3 { "b" } else { "a" };
                let cost = traffic_of(&mut world, |world| world.watch(id, &items));
                // BIP37: the tip is asked for again with the new script if it is not above the tip.
                let filtered = usize::from(protocol == Protocol::Bip37 && above == 0);
                assert_eq!(cost, [0, 0, filtered], "{protocol:?}, {above} above the tip");
            }
        }
    }
}

#[test]
fn an_old_address_costs_its_filters_and_its_own_blocks() {
    let mut chain = long();
    for (kept, filters) in [(1 << 30, 0), (0, 551)] {
        let mut config = config(Protocol::Bip157);
        config.kept_filters = kept;
        let wallets = [("a", wallet(&[script(1)], 0))];
        let mut world = World::new(config, &wallets, &[Node::new(&chain, None)]);
        world.run();
        let items = wallet(&[script(2)], 50);
        let cost = traffic_of(&mut world, |world| world.watch("a", &items));
        // All filters of this chain are in memory, whether or not they are stored.
        assert_eq!(cost, [0, 2, 0], "{kept}, without memory {filters}");
        // After a restart they are not in memory. Only the address that is new is searched for.
        world.restart();
        world.run();
        let items = wallet(&[fresh(5)], 50);
        let cost = traffic_of(&mut world, |world| world.watch("a", &items));
        assert_eq!(cost, [filters, 0, 0], "{kept}");
    }
    // With BIP37, the blocks from the birthday on are asked for again, and none below.
    let wallets = [("a", wallet(&[script(1)], 0))];
    let mut world = World::new(config(Protocol::Bip37), &wallets, &[Node::new(&chain, None)]);
    world.run();
    let cost = traffic_of(&mut world, |world| world.watch("a", &wallet(&[script(2)], 580)));
    assert_eq!(cost, [0, 0, 21]);
    // A block that is mined meanwhile is searched for everything at once.
    chain.mine(&script(2), &[]);
    let cost = traffic_of(&mut world, |world| world.announce(0, &chain));
    assert_eq!(cost, [0, 0, 1]);
}

/// LDK registers its outputs after the client was started.
#[test]
fn a_wallet_that_is_given_after_the_start_is_not_searched_again() {
    let mut chain = long();
    for protocol in BOTH {
        let wallets = [("a", wallet(&[script(1), script(2)], 0))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        world.run();
        let items = world.wallets.remove(&"a".into()).unwrap();
        let hits = world.client.hits(&"a".into()).count();
        world.restart();
        world.run();
        let cost = traffic_of(&mut world, |world| world.watch("a", &items));
        assert_eq!(cost, [0, 0, 0], "{protocol:?}");
        // Only blocks that were answered without the wallet are searched for it.
        world.wallets.clear();
        world.restart();
        world.run();
        chain.mine(&script(2), &[]);
        world.announce(0, &chain);
        world.updates();
        let cost = traffic_of(&mut world, |world| world.watch("a", &items));
        let filtered = usize::from(protocol == Protocol::Bip37);
        assert_eq!(cost, [0, 1 - filtered, filtered], "{protocol:?}");
        assert_eq!(world.client.hits(&"a".into()).count(), hits + 1, "{protocol:?}");
        chain.cut(600);
    }
}

#[test]
fn a_wider_range_or_gap_continues_where_indices_are_known_and_says_so() {
    let scripts = derived(40);
    let mut chain = long();
    chain.mine(&scripts[2], &[]);
    chain.mine(&scripts[18], &[]);
    let narrow = descriptor_wallet(0);
    let item = |range| vec![Item::Descriptor(DESCRIPTOR.into(), range)];
    for protocol in BOTH {
        for wide in
            [Wallet { items: item(0..=20), ..narrow.clone() }, Wallet { gap: 20, ..narrow.clone() }]
        {
            let node = Node::new(&chain, None);
            let mut world = World::new(config(protocol), &[("a", narrow.clone())], &[node]);
            world.run();
            assert_eq!(world.client.hits(&"a".into()).count(), 1);
            world.wallets.insert("a".into(), wide);
            world.restart();
            world.run();
            let told = |update: &Update| {
                matches!(update.news, News::Finding(Finding::FurtherIndices { item: 0, .. }))
            };
            assert_eq!(world.updates().iter().filter(|it| told(it)).count(), 1, "{protocol:?}");
            assert_eq!(world.client.hits(&"a".into()).count(), 2, "{protocol:?}");
        }
    }
}

#[test]
fn items_that_are_given_in_another_order_keep_their_hits() {
    let chain = long();
    for protocol in BOTH {
        let items = |bytes: [u8; 2]| wallet(&bytes.map(script), 0);
        let wallets = [("a", items([2, 1]))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        world.run();
        world.updates();
        world.wallets.insert("a".into(), items([1, 2]));
        let cost = traffic_of(&mut world, World::restart);
        assert_eq!(cost, [0, 0, 0], "{protocol:?}");
        for hit in all_hits(&world.updates()) {
            let owner = &hit.received[0].owner;
            let expected = u32::from(owner.script == Some(script(2)));
            assert_eq!(owner.item, expected, "{protocol:?}");
        }
    }
}

#[test]
fn addresses_that_are_added_one_by_one_cost_few_writes_and_no_state() {
    let chain = long();
    for protocol in BOTH {
        let mut world = settled(protocol, &chain);
        let before = world.writes;
        for number in 0..1_000 {
            // Half of them are wallets of their own. 100 are added in a second.
            let id = if number % 2 == 0 { "a".into() } else { format!("w{number}") };
            world.watch(&id, &wallet(&[fresh(number)], 601));
            world.tick(10);
        }
        world.tick(1_000);
        let (states, others) = (world.writes.0 - before.0, world.writes.1 - before.1);
        assert!((states, others.div_ceil(12)) == (0, 1), "{protocol:?}: {states}, {others}");
        // Every call is durable, and the last report names the last call.
        let updates = world.updates();
        let watched = updates.iter().filter_map(|update| match update.news {
            News::Watched(watched) => Some(watched),
            _ => None,
        });
        assert_eq!(watched.max(), Some(WatchId(1_001)), "{protocol:?}");
        let caught_up = caught_up(&updates);
        assert!(caught_up.len() <= 12, "{protocol:?}: {}", caught_up.len());
        assert_eq!(caught_up.last().unwrap().watched, WatchId(1_001), "{protocol:?}");
    }
}

#[test]
fn an_address_is_durable_once_its_record_is_stored() {
    let chain = long();
    for protocol in BOTH {
        let mut world = settled(protocol, &chain);
        world.stores_at_once = false;
        world.watch("b", &wallet(&[fresh(1)], 500));
        world.run();
        let is_told = |updates: &[Update]| {
            updates.iter().any(|update| update.news == News::Watched(WatchId(2)))
        };
        assert!(!is_told(&world.updates()), "{protocol:?}");
        world.store(usize::MAX);
        assert!(is_told(&world.updates()), "{protocol:?}");
    }
}

#[test]
fn each_call_is_followed_by_a_report_that_names_it() {
    let chain = long();
    for protocol in BOTH {
        let items = wallet(&[script(1)], 0);
        let node = Node::new(&chain, None);
        let mut world = World::new(config(protocol), &[("a", items.clone())], &[node]);
        world.run();
        assert_eq!(caught_up(&world.updates()).last().unwrap().watched, WatchId(1));
        // The second call adds nothing new, and the third is refused.
        world.watch("a", &items);
        world.tick(1_000);
        assert_eq!(caught_up(&world.updates()).last().unwrap().watched, WatchId(2));
        let items = vec![Item::Script(ScriptBuf::new())];
        world.watch("c", &Wallet::new(Birthday::Height(0), items));
        world.tick(1_000);
        assert_eq!(caught_up(&world.updates()).last().unwrap().watched, WatchId(3));
        // A report from before a call does not name it.
        let number = WatchId(4);
        let items = Box::new(wallet(&[script(2)], 0));
        world.handle(Event::Watch(number, "d".into(), items));
        let early = caught_up(&world.updates());
        assert!(early.iter().all(|it| it.watched < number || world.client.is_caught_up()));
        world.run();
        world.tick(1_000);
        let updates = world.updates();
        assert_eq!(world.client.hits(&"d".into()).count(), 2, "{protocol:?}");
        let last = early.into_iter().chain(caught_up(&updates)).last();
        assert_eq!(last.unwrap().watched, number, "{protocol:?}");
    }
}

/// Block 100 has arrived and waits for block 50, which nobody delivers, when the state is stored. The
/// wallet is given to the next run after its start.
#[test]
fn a_block_that_waited_at_the_end_of_a_run_is_searched_for_a_wallet_that_comes_late() {
    let mut chain = Chain::new();
    for height in 1..=120 {
        chain.mine(&script(if [50, 100].contains(&height) { 1 } else { 8 }), &[]);
    }
    for protocol in BOTH {
        let mut node = Node::new(&chain, None);
        node.withheld.insert(chain.at(50).unwrap().hash);
        let wallets = [("a", wallet(&[script(1)], 0))];
        let mut world = World::new(config(protocol), &wallets, &[node]);
        for _ in 0..200 {
            world.step();
        }
        let items = world.wallets.remove(&"a".into()).unwrap();
        // Another wallet has a late birthday.
        world.wallets.insert("b".into(), wallet(&[script(2)], 110));
        world.restart();
        world.nodes[0].withheld.clear();
        world.run();
        world.watch("a", &items);
        world.run();
        let id = "a".into();
        let found = world.client.hits(&id).map(|hit| hit.place.unwrap().block.height);
        assert_eq!(found.collect::<BTreeSet<_>>(), BTreeSet::from([50, 100]), "{protocol:?}");
    }
}

/// The second run watches other indices of the same descriptor than the first.
#[test]
fn indices_between_two_ranges_are_not_known() {
    let scripts = derived(70);
    let mut chain = long();
    chain.mine(&scripts[30], &[]);
    let wallet = |range| {
        let item = Item::Descriptor(DESCRIPTOR.into(), range);
        Wallet { gap: 1, ..Wallet::new(Birthday::Height(0), vec![item]) }
    };
    for protocol in BOTH {
        let wallets = [("a", wallet(0..=9))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        world.run();
        for range in [50..=59, 0..=59] {
            world.wallets.insert("a".into(), wallet(range));
            world.restart();
            world.run();
        }
        assert_eq!(world.client.hits(&"a".into()).count(), 1, "{protocol:?}");
    }
}
