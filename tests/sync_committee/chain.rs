//! A made-up chain with known keys: seven forks in seven periods, empty slots, weak signatures,
//! wrong fork versions, old checkpoints. The signatures are made by another BLS library.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{B256, FixedBytes};
use blst::min_pk::SecretKey;
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{
    Action, BlobGas, Bootstrap, BoundExecution, Event, Evidence, ExecutionProof, LightClient,
    LightClientError, Participation, Request, SyncCommittee,
};

use testkit::eth::beacon_world::{Draft, MEMBERS, Members, Tree, World, at, checkpoint, infinity};

fn by(signed: usize) -> Participation {
    Participation { signed, of: MEMBERS }
}

/// What the actions finalise, sign, and teach.
fn summary(actions: &[Action]) -> (Option<u64>, Option<u64>, Option<u64>) {
    let mut summary = (None, None, None);
    for action in actions {
        match action {
            Action::Finalized(anchor) => summary.0 = Some(anchor.beacon.slot),
            Action::Optimistic(anchor) => summary.1 = Some(anchor.beacon.slot),
            Action::NextCommittee { period } => summary.2 = Some(*period),
            other => panic!("{other:?}"),
        }
    }
    summary
}

/// Follows the chain through all forks. The slots are irregular: the finalised blocks are not the
/// first ones of an epoch, and signatures are several slots later than what they sign.
#[test]
fn seven_forks_in_nine_periods() {
    let world = World::new();
    let mut client = world.start(3);
    let forks = [
        Fork::Altair,
        Fork::Bellatrix,
        Fork::Capella,
        Fork::Deneb,
        Fork::Electra,
        Fork::Fulu,
        Fork::Gloas,
        Fork::Gloas,
        Fork::Gloas,
    ];
    for (period, fork) in (0..).zip(forks) {
        let (finalized, attested) = (at(period, 5), at(period, 23));
        let now = world.network.time_of_slot(attested + 4);
        let expected = Request::Updates { start_period: period, count: 1 };
        if period == 0 {
            assert_eq!(client.request(now), expected);
        } else {
            // The committee of this period is known, and the next one is not urgent.
            assert_eq!(client.request(now), Request::Finality);
        }
        let draft = Draft { signature_slot: attested + 4, ..Draft::full(attested, finalized) };
        let actions = world.apply(&mut client, draft).expect("valid");
        let learnt = Some(period + 1);
        assert_eq!(summary(&actions), (Some(finalized), Some(attested), learnt), "{fork}");
        // A later block of the same period, by another update without a committee.
        let draft = Draft::finality(at(period, 45), at(period, 31));
        let actions = world.apply(&mut client, draft).expect("valid");
        assert_eq!(summary(&actions), (Some(at(period, 31)), Some(at(period, 45)), None));
        assert!(client.is_next_committee_known());

        let anchor = client.finalized();
        assert_eq!(world.network.fork_at_slot(anchor.beacon.slot), fork);
        assert_eq!(anchor.evidence, Evidence::Finalized(by(MEMBERS)));
        assert_eq!(anchor.root, world.finalized(at(period, 31)).beacon.root());
        let number = at(period, 31) + 1000;
        match &anchor.execution {
            BoundExecution::Nothing => assert!(fork < Fork::Capella),
            BoundExecution::Header(header) => {
                assert!((Fork::Capella..Fork::Gloas).contains(&fork));
                assert_eq!(header.block_number, number);
                assert_eq!(header.blob_gas.is_some(), fork >= Fork::Deneb);
            }
            BoundExecution::ParentHash(hash) => {
                assert_eq!((fork, Some(*hash)), (Fork::Gloas, anchor.execution.bound_hash()));
                assert!(anchor.execution.lags() && anchor.execution.header().is_none());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.trust().forced, None);
}

/// A finality update that crosses into the next period moves the committee, and leaves the next one
/// unknown.
#[test]
fn a_finality_update_across_periods() {
    let world = World::new();
    let mut client = world.start(at(2, 0));
    world.apply(&mut client, Draft::full(at(2, 40), at(2, 20))).expect("valid");
    // The first signatures of the next period sign a block of this one.
    let late = Draft { signature_slot: at(3, 0), ..Draft::finality(at(2, 63), at(2, 50)) };
    world.apply(&mut client, late).expect("signed by the next committee");
    assert!(client.is_next_committee_known(), "the finalised block is still in the period");
    let crossing = Draft::finality(at(3, 30), at(3, 16));
    let actions = world.apply(&mut client, crossing).expect("valid");
    assert_eq!(summary(&actions), (Some(at(3, 16)), Some(at(3, 30)), None));
    assert!(!client.is_next_committee_known());
    let now = world.network.time_of_slot(at(3, 31));
    assert_eq!(client.request(now), Request::Updates { start_period: 3, count: 1 });
    // The update of the period teaches the committee, although its blocks are older.
    let older = Draft::full(at(3, 12), at(3, 8));
    let actions = world.apply(&mut client, older).expect("valid");
    assert_eq!(summary(&actions), (None, None, Some(4)));
    let error = world.apply(&mut client, older).expect_err("known");
    assert_eq!(error, LightClientError::NotNewer { attested: at(3, 12), finalized: at(3, 16) });
}

#[test]
fn requests_name_what_is_missing() {
    let world = World::new();
    let mut client = world.start(at(1, 0));
    let request = |client: &LightClient, slot| client.request(world.network.time_of_slot(slot));
    let updates = |start_period, count| Request::Updates { start_period, count };
    assert_eq!(request(&client, at(1, 1)), updates(1, 1));
    assert_eq!(request(&client, at(9, 1)), updates(1, 8));
    assert_eq!(request(&client, at(900, 1)), updates(1, 128));
    assert_eq!(client.request(Duration::ZERO), updates(1, 1));
    world.apply(&mut client, Draft::full(at(1, 40), at(1, 20))).expect("valid");
    assert_eq!(request(&client, at(1, 50)), Request::Finality);
    assert_eq!(request(&client, at(2, 50)), Request::Finality);
    assert_eq!(request(&client, at(3, 50)), updates(2, 1));
    assert_eq!(request(&client, at(9, 50)), updates(2, 7));
}

/// The committee signs with the version of the slot before its signature, also in the first slot of
/// a fork.
#[test]
fn fork_versions_at_each_boundary() {
    let world = World::new();
    for period in 1..=6 {
        let client = {
            let mut client = world.start(at(period - 1, 0));
            let full = Draft::full(at(period - 1, 40), at(period - 1, 20));
            world.apply(&mut client, full).expect("valid");
            client
        };
        let before = world.version_at(at(period, 0) - 1);
        let after = world.version_at(at(period, 0));
        assert_ne!(before, after);
        let first = Draft { signature_slot: at(period, 0), ..Draft::optimistic(at(period, 0) - 1) };
        let second = Draft::optimistic(at(period, 0));
        // A block of the old fork that is signed later is signed with the new version.
        let skipped =
            Draft { signature_slot: at(period, 4), ..Draft::optimistic(at(period, 0) - 1) };
        for (draft, right, wrong) in
            [(first, before, after), (second, after, before), (skipped, after, before)]
        {
            let version = Some(wrong);
            let refused = world.apply(&mut client.clone(), Draft { version, ..draft });
            assert_eq!(
                refused,
                Err(LightClientError::Signature { participants: MEMBERS }),
                "{period}"
            );
            let version = Some(right);
            let actions = world.apply(&mut client.clone(), Draft { version, ..draft });
            assert_eq!(summary(&actions.expect("valid")).1, Some(draft.attested), "{period}");
        }
    }
}

/// Less than two thirds: valid, but not final. 21 of 32 are less, 22 are enough.
#[test]
fn two_thirds_and_the_safety_threshold() {
    let world = World::new();
    let mut client = world.start(at(2, 0));
    let actions = world.apply(&mut client, Draft::full(at(2, 20), at(2, 8)).by(21)).expect("valid");
    assert_eq!(summary(&actions), (None, Some(at(2, 20)), None));
    assert_eq!(client.optimistic().evidence, Evidence::Optimistic(by(21)));
    assert_eq!(client.finalized().evidence, Evidence::Checkpoint);
    let actions = world.apply(&mut client, Draft::full(at(2, 21), at(2, 8)).by(22)).expect("valid");
    assert_eq!(summary(&actions), (Some(at(2, 8)), Some(at(2, 21)), Some(3)));
    assert_eq!(client.finalized().evidence, Evidence::Finalized(by(22)));

    // More than half of the most that signed in this period or the last one.
    assert_eq!(client.safety_threshold(), 11);
    let actions = world.apply(&mut client, Draft::optimistic(at(2, 22)).by(11)).expect("valid");
    assert_eq!(summary(&actions), (None, None, None));
    let actions = world.apply(&mut client, Draft::optimistic(at(2, 23)).by(12)).expect("valid");
    assert_eq!(summary(&actions), (None, Some(at(2, 23)), None));
    // The first update of the next period still counts for the one before: half of 32.
    world.apply(&mut client, Draft::full(at(3, 20), at(3, 8))).expect("valid");
    assert_eq!(client.safety_threshold(), 16);
    let actions = world.apply(&mut client, Draft::optimistic(at(3, 21)).by(16)).expect("valid");
    assert_eq!(summary(&actions), (None, None, None));
    let actions = world.apply(&mut client, Draft::optimistic(at(3, 22)).by(17)).expect("valid");
    assert_eq!(summary(&actions), (None, Some(at(3, 22)), None));
    // In the period after that, only 17 have signed at the beginning.
    let actions = world.apply(&mut client, Draft::full(at(4, 20), at(4, 8)).by(22)).expect("valid");
    assert_eq!(summary(&actions), (Some(at(4, 8)), Some(at(4, 20)), Some(5)));
    assert_eq!(client.safety_threshold(), 11);
}

/// An older header never replaces a newer one.
#[test]
fn headers_never_go_back() {
    let world = World::new();
    let mut client = world.start(at(2, 0));
    world.apply(&mut client, Draft::full(at(2, 30), at(2, 8))).expect("valid");
    let actions = world.apply(&mut client, Draft::optimistic(at(2, 25))).expect("valid");
    assert_eq!(summary(&actions), (None, None, None));
    assert_eq!(client.optimistic().beacon.slot, at(2, 30));
    // A finalised header that is newer than the optimistic one takes it along.
    let mut client = world.start(at(2, 0));
    world.apply(&mut client, Draft::full(at(2, 20), at(2, 8))).expect("valid");
    assert_eq!(client.optimistic().beacon.slot, at(2, 20));
    assert!(client.optimistic().beacon.slot >= client.finalized().beacon.slot);
}

#[test]
fn forced_updates_need_time_and_are_named_so() {
    let world = World::new();
    let mut client = world.start(at(2, 0));
    let time = |slot| world.network.time_of_slot(slot);
    assert_eq!(client.force_from(), None);
    assert_eq!(client.handle(Event::Force, time(at(9, 0))), Ok(Vec::new()));
    world.apply(&mut client, Draft::full(at(2, 30), at(2, 8)).by(15)).expect("valid");
    // A worse update does not replace the best one, a better one does.
    world.apply(&mut client, Draft::full(at(2, 31), at(2, 8)).by(14)).expect("valid");
    world.apply(&mut client, Draft::full(at(2, 32), at(2, 8)).by(16)).expect("valid");
    assert_eq!(client.force_from(), Some(at(3, 1)));
    assert_eq!(client.handle(Event::Force, time(at(3, 0))), Ok(Vec::new()));
    let actions = client.handle(Event::Force, time(at(3, 1))).expect("forced");
    // The update finalises a newer block, so that block is taken, not the attested one.
    assert_eq!(summary(&actions), (Some(at(2, 8)), None, Some(3)));
    assert_eq!(client.finalized().evidence, Evidence::Forced(by(16)));
    assert_eq!(client.finalized().evidence.to_string(), "forced, signed by 16 of 32");
    assert_eq!(client.trust().forced, Some(by(16)));
    assert_eq!(client.force_from(), None);

    // Without a finalised block, the attested one stands in for it.
    let draft = Draft { finalized: None, ..Draft::full(at(3, 10), 0) };
    world.apply(&mut client, draft.by(13)).expect("valid");
    assert_eq!(client.force_from(), Some(at(3, 9)));
    let actions = client.handle(Event::Force, time(at(3, 20))).expect("forced");
    assert_eq!(summary(&actions), (Some(at(3, 10)), None, Some(4)));
    assert_eq!(client.finalized().beacon.slot, at(3, 10));
    assert_eq!(client.trust().forced, Some(by(13)), "the weakest one");
    // What follows is finalised again, and still says what it rests on.
    world.apply(&mut client, Draft::full(at(4, 30), at(4, 8))).expect("valid");
    let anchor = client.finalized();
    assert_eq!((anchor.evidence, anchor.trust.forced), (Evidence::Finalized(by(32)), Some(by(13))));
}

#[test]
fn updates_of_unknown_committees() {
    let world = World::new();
    let mut client = world.start(at(2, 10));
    let unknown =
        |found, first, last| Err(LightClientError::UnknownCommittee { found, first, last });
    let apply = |client: &mut LightClient, draft| world.apply(client, draft);
    assert_eq!(apply(&mut client, Draft::full(at(3, 20), at(3, 8))), unknown(3, 2, 2));
    assert_eq!(apply(&mut client, Draft::full(at(1, 20), at(1, 8))), unknown(1, 2, 2));
    apply(&mut client, Draft::full(at(2, 40), at(2, 20))).expect("valid");
    assert_eq!(apply(&mut client, Draft::full(at(4, 20), at(4, 8))), unknown(4, 2, 3));
    assert_eq!(apply(&mut client, Draft::full(at(1, 20), at(1, 8))), unknown(1, 2, 3));
    apply(&mut client, Draft::full(at(3, 40), at(3, 20))).expect("valid");
    assert_eq!(apply(&mut client, Draft::full(at(2, 41), at(2, 20))), unknown(2, 3, 4));
}

/// The next committee is proven once. Another one is refused, although it has a valid branch.
#[test]
fn another_next_committee() {
    let world = World::new();
    let mut client = world.start(at(3, 0));
    world.apply(&mut client, Draft::full(at(3, 30), at(3, 8))).expect("valid");
    let mut other = world.update(Draft::full(at(3, 40), at(3, 16)));
    let (committee, _) = other.next_committee.as_mut().expect("a committee");
    let mut keys = SyncCommittee::clone(committee);
    keys.keys.swap(0, 1);
    *committee = Arc::new(keys);
    let now = world.network.time_of_slot(at(3, 41));
    let error = client.handle(Event::Update(&other), now);
    assert_eq!(error, Err(LightClientError::OtherCommittee { period: 4 }));
}

/// The state of the first epochs names the genesis block by a root of zero.
#[test]
fn finality_of_the_genesis_block() {
    let world = World::new();
    let mut client = world.start(3);
    let actions = world.apply(&mut client, Draft::full(12, 0)).expect("valid");
    assert_eq!(summary(&actions), (None, Some(12), Some(1)));
    assert_eq!(client.finalized().evidence, Evidence::Checkpoint);
}

#[test]
fn bootstraps_are_proven_by_the_trusted_root() {
    let world = World::new();
    let good = world.bootstrap(at(4, 6));
    let trusted = good.header.beacon.root();
    let now = world.network.time_of_slot(at(4, 6));
    let start = |bootstrap: &Bootstrap, now| {
        LightClient::new(world.network.clone(), trusted, bootstrap, now).map(drop)
    };
    assert_eq!(start(&good, now), Ok(()));
    let early = now.saturating_sub(Duration::from_secs(1));
    let (slot, current_slot) = (at(4, 6), at(4, 5));
    assert_eq!(start(&good, early), Err(LightClientError::FutureCheckpoint { slot, current_slot }));
    let future = LightClientError::FutureCheckpoint { slot, current_slot: 0 };
    assert_eq!(start(&good, Duration::ZERO), Err(future));
    let other = world.bootstrap(at(4, 7));
    let found = other.header.beacon.root();
    assert_eq!(start(&other, now), Err(LightClientError::OtherRoot { found, trusted }));
    let mut bad = good.clone();
    bad.committee = Arc::clone(&world.members(5).committee);
    assert_eq!(start(&bad, now), Err(LightClientError::CommitteeBranch));
    let mut bad = good.clone();
    bad.committee_branch[1] = B256::repeat_byte(1);
    assert_eq!(start(&bad, now), Err(LightClientError::CommitteeBranch));
    let mut bad = good;
    bad.header.execution = ExecutionProof::Absent;
    let old = LightClientError::OldContainer { slot, fork: Fork::Electra };
    assert_eq!(start(&bad, now), Err(old));
}

/// The age of a checkpoint is stated in every result, and is no error.
#[test]
fn old_checkpoints_are_stale() {
    let world = World::new();
    let bootstrap = world.bootstrap(at(2, 0));
    let trusted = bootstrap.header.beacon.root();
    let limit = world.network.weak_subjectivity_period();
    assert_eq!(limit, Duration::from_secs(256 * 8 * 6));
    let made = world.network.time_of_slot(at(2, 0));
    let second = Duration::from_secs(1);
    // The update comes ten minutes later. What it goes on from must not be too old by then either.
    let later = second * 600;
    for (age, stale, expected) in [
        (Duration::ZERO, false, Duration::ZERO),
        (limit.saturating_sub(later), false, limit.saturating_sub(later)),
        (limit.saturating_sub(later) + second, true, limit + second),
        (limit + second, true, limit + second + later),
    ] {
        let network = world.network.clone();
        let mut client =
            LightClient::new(network, trusted, &bootstrap, made + age).expect("proven");
        let update = world.update(Draft::full(at(2, 30), at(2, 8)));
        client.handle(Event::Update(&update), made + age + later).expect("valid");
        let checkpoint = client.finalized().trust.checkpoint;
        assert_eq!((checkpoint.root, checkpoint.slot), (trusted, at(2, 0)));
        assert_eq!((checkpoint.age, checkpoint.limit), (expected, limit));
        assert_eq!(checkpoint.is_stale(), stale, "{age:?}");
    }
}

fn start_of(
    world: &World,
    committee: &Arc<SyncCommittee>,
) -> Result<LightClient, LightClientError> {
    let slot = at(2, 0);
    let (header, committee_branch) = checkpoint(&world.network, slot, committee);
    let bootstrap = Bootstrap { header, committee: Arc::clone(committee), committee_branch };
    let trusted = bootstrap.header.beacon.root();
    let now = world.network.time_of_slot(slot);
    LightClient::new(world.network.clone(), trusted, &bootstrap, now)
}

/// A committee under a state root can only have valid keys. If it has not, no signature counts.
#[test]
fn invalid_keys() {
    let world = World::new();
    let valid = &world.members(2).committee;
    let mut infinite = [0; 48];
    infinite[0] = 0xc0;
    let mut uncompressed = valid.keys[5].0;
    uncompressed[0] &= 0x7f;
    // The curve has no point with this x coordinate.
    let mut off_curve = [0; 48];
    (off_curve[0], off_curve[47]) = (0x80, 1);
    // Not less than the order of the field.
    let mut large = [0xff; 48];
    large[0] = 0x9f;
    for key in [infinite, uncompressed, off_curve, large, [0; 48]] {
        assert!(blst::min_pk::PublicKey::key_validate(&key).is_err());
        let mut committee = SyncCommittee::clone(valid);
        committee.keys[5] = FixedBytes::new(key);
        let error = start_of(&world, &Arc::new(committee)).expect_err("an invalid key");
        assert!(matches!(error, LightClientError::Key { index: 5 }), "{error}");
    }
}

/// Keys that cancel out would accept the signature at infinity for any message.
#[test]
fn keys_that_cancel_out() {
    let world = World::new();
    let mut keys = Vec::new();
    for member in 0..16_u8 {
        let key = SecretKey::key_gen(&[member; 32], &[]).expect("32 bytes");
        keys.push(key);
    }
    // The negative of a key has the other sign of y, which is one bit.
    let half = Members::of_keys(keys.iter().chain(&keys).cloned().collect());
    let mut committee = SyncCommittee::clone(&half.committee);
    for key in &mut committee.keys[16..] {
        key.0[0] ^= 0x20;
    }
    let mut client = start_of(&world, &Arc::new(committee)).expect("valid keys");
    let mut update = world.update(Draft::optimistic(at(2, 5)));
    update.aggregate.signature = infinity();
    let now = world.network.time_of_slot(at(2, 6));
    let error = client.handle(Event::Update(&update), now);
    assert_eq!(error, Err(LightClientError::Signature { participants: MEMBERS }));
}

/// Any number of participants, with any of them absent, verifies as the other library signs.
#[test]
fn every_number_of_participants() {
    let world = World::new();
    for participants in 1..=MEMBERS {
        let mut client = world.start(at(2, 0));
        let draft = Draft::optimistic(at(2, 5)).by(participants);
        let actions = world.apply(&mut client, draft).expect("valid");
        assert_eq!(summary(&actions), (None, Some(at(2, 5)), None), "{participants}");
        // The first signature after a start moves the header, but a minority is no majority.
        let grade = if participants > MEMBERS / 2 { Grade::Optimistic } else { Grade::Forced };
        assert_eq!(client.optimistic().grade(), grade, "{participants}");
        // One bit less, or one more, is another set of keys.
        for bit in [participants - 1, participants % MEMBERS] {
            let mut update = world.update(draft);
            update.aggregate.bits[bit / 8] ^= 1 << (bit % 8);
            let now = world.network.time_of_slot(at(2, 6));
            assert!(world.start(at(2, 0)).handle(Event::Update(&update), now).is_err());
        }
    }
}

/// The container of a later fork can hold headers of earlier ones: a client of any fork reads what
/// a server has converted.
#[test]
fn blocks_of_earlier_forks_in_later_containers() {
    let world = World::new();
    let network: &Network = &world.network;
    // Deneb's container has two fields more, which are zero for a block of Capella.
    let mut header = world.finalized(at(2, 9));
    let ExecutionProof::Header(execution, _) = &mut header.execution else { panic!() };
    execution.blob_gas = Some(BlobGas::default());
    let bound = header.bound_execution(network).expect("zeros");
    assert_eq!(bound, world.finalized(at(2, 9)).bound_execution(network).expect("valid"));
    let ExecutionProof::Header(execution, _) = &mut header.execution else { panic!() };
    execution.blob_gas.as_mut().expect("set").excess = 1;
    let later = LightClientError::FieldOfLaterFork { slot: at(2, 9), fork: Fork::Capella };
    assert_eq!(header.bound_execution(network), Err(later));
    // A block of Altair binds nothing, so an execution header beside it is an error.
    let mut header = world.finalized(at(0, 9));
    header.execution = world.finalized(at(2, 9)).execution;
    let later = LightClientError::FieldOfLaterFork { slot: at(0, 9), fork: Fork::Altair };
    assert_eq!(header.bound_execution(network), Err(later));
    // Gloas keeps the hash alone, with a branch that is padded in front.
    let hash = B256::repeat_byte(3);
    for (slot, gindex, padding) in [(at(2, 9), 412, 3), (at(3, 9), 812, 2), (at(5, 9), 812, 2)] {
        let tree = Tree::new([(gindex, hash)]);
        let mut branch = vec![B256::ZERO; padding];
        branch.extend(tree.branch(gindex));
        let mut header = world.finalized(slot);
        header.beacon.body_root = tree.root();
        let proof = |branch: &[B256]| {
            let nodes: [B256; 11] = branch.try_into().expect("11 nodes");
            ExecutionProof::Hash(hash, Box::new(nodes))
        };
        header.execution = proof(&branch);
        assert_eq!(header.bound_execution(network), Ok(BoundExecution::Hash(hash)), "{slot}");
        branch[0] = B256::repeat_byte(1);
        header.execution = proof(&branch);
        let wrong = LightClientError::ExecutionBranch { slot };
        assert_eq!(header.bound_execution(network), Err(wrong), "{slot}");
    }
    // A block of Gloas needs the container of Gloas.
    let mut header = world.finalized(at(6, 9));
    header.execution = world.finalized(at(5, 9)).execution;
    let old = LightClientError::OldContainer { slot: at(6, 9), fork: Fork::Gloas };
    assert_eq!(header.bound_execution(network), Err(old));
}
