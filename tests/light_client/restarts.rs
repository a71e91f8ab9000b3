//! Clients that are restarted with the same storage. The expected results follow from the blocks.

use std::collections::BTreeSet;
use std::time::Duration;

use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::{Network, OutPoint, Script, ScriptBuf, Txid};
use chainsieve::btc::client::{
    Action, Config, Event, File, Item, LightClient, OpenError, Protocol, StoredFiles, Wallet,
};

use super::mined::{self, Chain, UNIX, script};
use super::node::{Fault, Node};
use super::storage::Storage;
use super::watches::{BOTH, coinbase_of, derived, descriptor_wallet, wallet};
use super::world::{World, all_hits, config, hits, withdrawn};

/// Adds a block to the chain: its coinbase pays to a script, and a transaction spends `coins`, if
/// there are any.
fn push(chain: &mut Chain, coinbase: &Script, coins: &[OutPoint]) {
    let spend = (!coins.is_empty()).then(|| mined::spend(coins, &[&script(9)]));
    chain.mine(coinbase, &spend.into_iter().collect::<Vec<_>>());
}

fn txids(world: &mut World) -> Vec<Txid> {
    hits(&world.updates()).into_iter().map(|(_, txid)| txid).collect()
}

/// Runs until everything is seen, and ends in order. Returns the hits that are not marked as
/// repeated, and the storage.
fn run(
    protocol: Protocol,
    wallet: &Wallet,
    chain: &Chain,
    storage: Storage,
) -> (Vec<Txid>, Storage) {
    let wallets = [("a".into(), wallet.clone())].into();
    let node = Node::new(chain, None);
    let mut world = World::resume(config(protocol), wallets, &[node], storage);
    world.run();
    let mut updates = world.updates();
    for update in &updates {
        world.handle(Event::Acknowledged(update.id));
    }
    world.handle(Event::Save);
    updates.retain(|update| !update.again);
    (hits(&updates).into_iter().map(|(_, txid)| txid).collect(), world.storage)
}

/// The wallet's range and gap are a few indices, and the wallet has used many more.
#[test]
fn coins_of_indices_far_beyond_the_range_are_known_again() {
    for protocol in BOTH {
        let scripts = derived(61);
        let mut chain = Chain::new();
        scripts.iter().take(41).for_each(|script| push(&mut chain, script, &[]));
        let wallet = descriptor_wallet(0);
        let (found, storage) = run(protocol, &wallet, &chain, Storage::default());
        assert_eq!(found.len(), 41);
        let mut expected = Vec::new();
        for height in 1..=41 {
            let coin = coinbase_of(&chain, height);
            push(&mut chain, &script(8), &[coin]);
            expected.push(chain.tip().txids[1]);
        }
        push(&mut chain, &scripts[42], &[]);
        expected.push(chain.tip().txids[0]);
        assert_eq!(run(protocol, &wallet, &chain, storage).0, expected);
    }
}

/// A payment to index 4 leaves the chain, and the block that replaces it pays to index 7. After a
/// restart, the coin of index 7 is known, and index 7 is watched.
#[test]
fn indices_that_a_reorganisation_took_along_stay_watched() {
    for protocol in BOTH {
        let scripts = derived(20);
        let mut common = Chain::new();
        (50..54).for_each(|byte| push(&mut common, &script(byte), &[]));
        let (mut one, mut other) = (common.clone(), common);
        push(&mut one, &scripts[4], &[]);
        push(&mut other, &scripts[7], &[]);
        let coin = coinbase_of(&other, 5);
        push(&mut other, &script(60), &[]);
        let wallets = [("a", descriptor_wallet(0))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&one, None)]);
        world.run();
        world.announce(0, &other);
        let expected = [one.tip().txids[0], other.at(5).unwrap().txids[0]];
        assert_eq!(txids(&mut world), expected, "{protocol:?}");
        world.restart();
        world.run();
        world.updates();
        push(&mut other, &script(61), &[coin]);
        let spends = other.tip().txids[1];
        push(&mut other, &scripts[7], &[]);
        world.announce(0, &other);
        assert_eq!(txids(&mut world), [spends, other.tip().txids[0]], "{protocol:?}");
    }
}

/// Forks below the birthday, while the client runs and while it does not run.
#[test]
fn a_reorganization_below_the_birthday() {
    for protocol in BOTH {
        let mut common = Chain::new();
        (0..6).for_each(|_| push(&mut common, &script(8), &[]));
        let (mut one, mut other) = (common.clone(), common);
        other.cut(3);
        (0..5).for_each(|_| push(&mut one, &script(1), &[]));
        let spent = coinbase_of(&one, 9);
        push(&mut one, &script(8), &[spent]);
        push(&mut other, &script(7), &[]);
        (0..8).for_each(|_| push(&mut other, &script(1), &[]));
        let spent = coinbase_of(&other, 10);
        push(&mut other, &script(7), &[spent]);
        (0..4).for_each(|_| push(&mut other, &script(7), &[]));
        // The payments and the spend at height 8 and above.
        let paid = (8..=12).map(|height| other.at(height).unwrap().txids[0]);
        let expected: Vec<_> = paid.chain([other.at(13).unwrap().txids[1]]).collect();
        for live in [true, false] {
            let wallets = [("a", wallet(&[script(1)], 8))];
            let mut world = World::new(config(protocol), &wallets, &[Node::new(&one, None)]);
            world.run();
            assert_eq!(txids(&mut world).len(), 5);
            if !live {
                world.restart();
                world.run();
                world.updates();
            }
            world.announce(0, &other);
            let updates = world.updates();
            let found: Vec<_> = hits(&updates).into_iter().map(|(_, txid)| txid).collect();
            assert_eq!(found, expected, "live: {live}");
            assert_eq!(withdrawn(&updates).len(), 5, "live: {live}");
            // The first branch returns with more work, while no client runs.
            let mut longer = one.clone();
            (0..8).for_each(|_| push(&mut longer, &script(6), &[]));
            world.nodes[0] = Node::new(&longer, None);
            world.restart();
            world.run();
            let known = world.client.hits(&"a".into()).count();
            assert_eq!(known, 5, "live: {live}");
        }
    }
}

/// A liar hides a payment in one run, and an honest peer shows it in the next. The paid coin is
/// spent in a block that the first run has already scanned.
#[test]
fn a_coin_that_another_run_brings_to_light_is_followed() {
    let mut chain = Chain::new();
    push(&mut chain, &script(1), &[]);
    let coin = coinbase_of(&chain, 1);
    push(&mut chain, &script(1), &[coin]);
    let wallets = [("a".into(), wallet(&[script(1)], 0))];
    let resume = |fault, storage| {
        let node = Node::new(&chain, fault);
        World::resume(config(Protocol::Bip157), wallets.clone().into(), &[node], storage)
    };
    let mut world = resume(Some(Fault::HidesAt(1)), Storage::default());
    world.run();
    assert_eq!(txids(&mut world), [chain.at(2).unwrap().txids[0]]);
    world.handle(Event::Save);
    let mut world = resume(None, world.storage);
    world.run();
    let found: BTreeSet<_> = txids(&mut world).into_iter().collect();
    assert!(found.contains(&coin.txid) && found.contains(&chain.at(2).unwrap().txids[1]));
}

/// All signets have the same genesis block, so their headers don't tell them apart.
#[test]
fn the_folder_of_another_signet_is_refused() {
    let config = Config::new(Network::Signet, [0; 16]);
    let own = Config { magic: Magic::from_bytes([1, 2, 3, 4]), ..config.clone() };
    let storage = |config: Config| {
        let mut storage = Storage::default();
        let mut client = LightClient::new(config, &StoredFiles::default()).unwrap();
        for action in client.handle(Event::Tick, Duration::from_secs(UNIX)) {
            if let Action::Write(id, write) = action {
                storage.write(id, write);
            }
        }
        storage.store(usize::MAX);
        storage
    };
    let kept = [storage(config.clone()).kept(), storage(own.clone()).kept()];
    for (one, config) in [config, own].into_iter().enumerate() {
        for (other, kept) in kept.iter().enumerate() {
            let opened = LightClient::new(config.clone(), kept).map(drop);
            let is_refused = matches!(opened, Err(OpenError::Magic { .. }));
            assert_eq!(is_refused, one != other, "{opened:?}");
        }
    }
}

/// Cuts each file at many lengths, or removes it. The client rejects the storage, or finds the
/// later spends.
#[test]
fn files_that_are_cut() {
    for protocol in BOTH {
        let items = wallet(&[script(1)], 0);
        let mut chain = Chain::new();
        for paid in &[8, 1, 8, 1, 9] {
            push(&mut chain, &script(*paid), &[]);
        }
        let (found, storage) = run(protocol, &items, &chain, Storage::default());
        assert_eq!(found.len(), 2);
        let spent = [coinbase_of(&chain, 2), coinbase_of(&chain, 4)];
        push(&mut chain, &script(8), &spent[..1]);
        push(&mut chain, &script(8), &spent[1..]);
        for file in [File::Headers, File::State, File::Journal] {
            let whole = storage.clone().file_mut(file).len();
            assert!(whole > 0, "{file:?}");
            let mut refused = 0;
            for length in (0..whole).step_by(13).map(Some).chain([None]) {
                let mut storage = storage.clone();
                match length {
                    Some(length) => storage.file_mut(file).truncate(length),
                    None => storage.remove(file),
                }
                if LightClient::new(config(protocol), &storage.kept()).is_err() {
                    refused += 1;
                    continue;
                }
                let (found, _) = run(protocol, &items, &chain, storage);
                for height in [6, 7] {
                    let txid = chain.at(height).unwrap().txids[1];
                    assert!(found.contains(&txid), "{file:?}: {length:?}");
                }
            }
            // A crash only cuts files, and the client accepts all files that a crash leaves.
            assert_eq!(refused, 0, "{file:?}");
        }
    }
}

/// An update that was not acknowledged is given again, and the later blocks to which it leads are
/// found.
#[test]
fn what_was_not_acknowledged_comes_again_and_what_it_leads_to() {
    for protocol in BOTH {
        let scripts = derived(21);
        let mut chain = Chain::new();
        // Index 7 is watched only after index 4 is used.
        for index in [None, Some(4), None, Some(7), None, Some(4)] {
            let paid = index.map_or_else(|| script(8), |index: usize| scripts[index].clone());
            push(&mut chain, &paid, &[]);
        }
        let wallets = [("a", descriptor_wallet(0))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        let mut first = Vec::new();
        while first.is_empty() {
            world.step();
            first = world.updates();
            first.retain(|update| !hits(std::slice::from_ref(update)).is_empty());
        }
        world.restart();
        world.run();
        let updates = world.updates();
        let expected = [2, 4, 6].map(|height| chain.at(height).unwrap().txids[0]);
        let found: BTreeSet<_> = hits(&updates).into_iter().map(|(_, txid)| txid).collect();
        assert_eq!(found, BTreeSet::from(expected));
        let mut marked = updates.clone();
        marked.retain(|update| update.again);
        assert_eq!(hits(&marked), hits(&first));
        // Acknowledged updates are not given again.
        for update in &updates {
            world.handle(Event::Acknowledged(update.id));
        }
        world.restart();
        world.run();
        assert_eq!(txids(&mut world), []);
    }
}

/// The late acknowledgements cover the hit and its withdrawal, but not the later update that gives
/// the hit again.
#[test]
fn an_acknowledgement_counts_for_no_later_update_about_its_hit() {
    for protocol in BOTH {
        let mut common = Chain::new();
        push(&mut common, &script(8), &[]);
        let (mut one, mut other) = (common.clone(), common);
        push(&mut one, &script(1), &[]);
        push(&mut other, &script(8), &[]);
        push(&mut other, &script(7), &[]);
        let wallets = [("a", wallet(&[script(1)], 0))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&one, None)]);
        world.run();
        let mut updates = world.updates();
        world.announce(0, &other);
        updates.extend(world.updates());
        push(&mut one, &script(7), &[]);
        push(&mut one, &script(7), &[]);
        world.announce(0, &one);
        let last = world.updates();
        assert_eq!((hits(&updates).len(), withdrawn(&updates).len(), hits(&last).len()), (1, 1, 1));
        for update in &updates {
            world.handle(Event::Acknowledged(update.id));
        }
        world.restart();
        world.run();
        assert_eq!(txids(&mut world), [one.at(2).unwrap().txids[0]], "{protocol:?}");
    }
}

/// The process is killed after a wallet was forgotten, and before the state was saved without the
/// wallet.
#[test]
fn a_wallet_that_was_forgotten_before_a_kill_is_looked_for_again() {
    for protocol in BOTH {
        let mut chain = Chain::new();
        for paid in &[8, 1, 8, 1] {
            push(&mut chain, &script(*paid), &[]);
        }
        let items = wallet(&[script(1)], 0);
        let wallets = [("a", items.clone()), ("b", wallet(&[script(2)], 0))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        world.run();
        world.handle(Event::Save);
        world.updates();
        world.forget("a");
        world.wallets.insert("a".into(), items);
        world.crash(&mut testkit::Rng::new(1));
        world.run();
        let updates = world.updates();
        assert!(updates.iter().all(|update| !update.again));
        assert_eq!(hits(&updates).len(), 2, "{protocol:?}");
    }
}

/// If the journal is lost, the heights from the birthday on are scanned again, and no height below.
#[test]
fn nothing_below_the_birthday_is_asked_for_again() {
    let mut chain = Chain::new();
    (0..30).for_each(|_| push(&mut chain, &script(1), &[]));
    let items = wallet(&[script(1)], 20);
    for protocol in BOTH {
        let (found, mut storage) = run(protocol, &items, &chain, Storage::default());
        assert_eq!(found.len(), 11);
        storage.remove(File::Journal);
        let wallets = [("a".into(), items.clone())].into();
        let nodes = [Node::new(&chain, None)];
        let mut world = World::resume(config(protocol), wallets, &nodes, storage);
        world.run();
        assert_eq!(txids(&mut world).len(), 11);
        assert_eq!(world.client.first(), Some(20));
    }
}

#[test]
fn what_was_asked_with_less_is_not_gone_on_with() {
    let mut chain = Chain::new();
    for paid in &[1, 2, 1, 2] {
        push(&mut chain, &script(*paid), &[]);
    }
    let less = wallet(&[script(1)], 0);
    let more = wallet(&[script(1), script(2)], 0);
    let turned = wallet(&[script(2), script(1)], 0);
    for protocol in BOTH {
        let (found, storage) = run(protocol, &less, &chain, Storage::default());
        assert_eq!(found.len(), 2);
        let (found, storage) = run(protocol, &more, &chain, storage);
        assert_eq!(found.len(), 2);
        assert_eq!(run(protocol, &turned, &chain, storage).0.len(), 0);
    }
    // A coin that was given with another script was not looked for.
    let outpoint = coinbase_of(&chain, 1);
    let coin = |byte: u8| Wallet {
        items: vec![Item::Coin { outpoint, script: Some(script(byte)) }],
        ..less.clone()
    };
    push(&mut chain, &script(8), &[outpoint]);
    let (found, storage) = run(Protocol::Bip157, &coin(3), &chain, Storage::default());
    assert_eq!(found.len(), 0);
    assert_eq!(run(Protocol::Bip157, &coin(1), &chain, storage).0, [chain.tip().txids[1]]);
    // A larger gap finds a payment that a smaller gap has missed.
    let scripts = derived(20);
    let mut chain = Chain::new();
    push(&mut chain, &scripts[4], &[]);
    push(&mut chain, &scripts[12], &[]);
    for protocol in BOTH {
        let small = Wallet { gap: 2, ..descriptor_wallet(0) };
        let (found, storage) = run(protocol, &small, &chain, Storage::default());
        assert_eq!(found.len(), 1, "{protocol:?}");
        let large = Wallet { gap: 10, ..small };
        assert_eq!(run(protocol, &large, &chain, storage).0.len(), 1, "{protocol:?}");
    }
}

/// A peer that lags still has the transaction in its mempool.
#[test]
fn a_confirmed_transaction_is_not_unconfirmed_again() {
    let mut chain = Chain::new();
    (0..4).for_each(|_| push(&mut chain, &script(8), &[]));
    let behind = chain.clone();
    let paid = mined::spend(&[coinbase_of(&chain, 1)], &[&script(1)]);
    chain.mine(&script(8), std::slice::from_ref(&paid));
    let items = wallet(&[script(1)], 0);
    let (found, storage) = run(Protocol::Bip37, &items, &chain, Storage::default());
    assert_eq!(found, [paid.compute_txid()]);
    let mut behind = Node::new(&behind, None);
    behind.mempool = vec![paid];
    let wallets = [("a".into(), items)].into();
    let mut world = World::resume(config(Protocol::Bip37), wallets, &[behind], storage);
    world.run();
    for _ in 0..20 {
        world.step();
    }
    assert_eq!(all_hits(&world.updates()).len(), 0);
}

/// A peer announces more made-up payments than the client keeps.
#[test]
fn unconfirmed_transactions_are_bounded() {
    /// Largest number of unconfirmed transactions that a client keeps.
    const MOST: u32 = 1_000;
    let mut chain = Chain::new();
    push(&mut chain, &script(8), &[]);
    let coin = coinbase_of(&chain, 1);
    let fake = |number: u32| {
        let other = ScriptBuf::from(number.to_be_bytes().to_vec());
        mined::spend(&[coin], &[&script(1), &other])
    };
    let items = wallet(&[script(1)], 0);
    let mut node = Node::new(&chain, None);
    node.mempool = (0..MOST + 5).map(fake).collect();
    let mut world =
        World::new(config(Protocol::Bip37), &[("a", items)], std::slice::from_ref(&node));
    for _ in 0..2 {
        world.run();
        for _ in 0..2 * MOST {
            world.step();
        }
        assert_eq!(world.client.hits(&"a".into()).count(), MOST as usize);
        world.nodes[0].mempool.reverse();
        world.restart();
    }
    // A transaction that is in a block is reported nevertheless.
    world.updates();
    let last = fake(MOST + 4);
    chain.mine(&script(8), std::slice::from_ref(&last));
    world.nodes[0].mempool.clear();
    world.announce(0, &chain);
    let mut updates = world.updates();
    updates.retain(|update| !update.again);
    assert_eq!(hits(&updates), [(2, last.compute_txid())]);
}

/// A record of the journal is damaged. The next run ends before it has stored a state, and the run
/// after it finds the lost hit, marked as one that may have been given before.
#[test]
fn a_hit_whose_record_was_damaged_is_found_again_and_marked() {
    for protocol in BOTH {
        let items = wallet(&[script(1)], 0);
        let mut chain = Chain::new();
        for paid in &[8, 1, 8, 1, 1] {
            push(&mut chain, &script(*paid), &[]);
        }
        let (found, mut storage) = run(protocol, &items, &chain, Storage::default());
        assert_eq!(found.len(), 3);
        let journal = storage.file_mut(File::Journal);
        let middle = journal.len() / 2;
        journal[middle] ^= 1;
        // Without peers, the run stores no state.
        let wallets: std::collections::BTreeMap<_, _> = [("a".into(), items.clone())].into();
        let mut world = World::resume(config(protocol), wallets.clone(), &[], storage);
        let damage = |update: &chainsieve::btc::client::Update| {
            use chainsieve::btc::client::{Finding, News};
            matches!(update.news, News::Finding(Finding::JournalDamaged(_)))
        };
        assert_eq!(world.updates().iter().filter(|it| damage(it)).count(), 1);
        world.store(usize::MAX);
        assert!(!world.storage.clone().file_mut(File::DamagedJournal).is_empty());
        let nodes = [Node::new(&chain, None)];
        let mut world = World::resume(config(protocol), wallets, &nodes, world.storage);
        world.run();
        let updates = world.updates();
        assert!(!updates.iter().any(damage));
        assert_eq!(world.client.hits(&"a".into()).count(), 3, "{protocol:?}");
        assert!(
            all_hits(&updates).len() <= 3
                && updates.iter().all(|update| {
                    update.again || hits(std::slice::from_ref(update)).is_empty()
                })
        );
    }
}

/// A journal of a newer version is not touched.
#[test]
fn a_journal_of_another_version_is_refused() {
    let chain = Chain::new();
    let items = wallet(&[script(1)], 0);
    let (_, mut storage) = run(Protocol::Bip157, &items, &chain, Storage::default());
    storage.file_mut(File::Journal)[4] += 1;
    let opened = LightClient::new(config(Protocol::Bip157), &storage.kept());
    assert!(matches!(opened.map(drop), Err(OpenError::Journal { kept: 3 })));
}
