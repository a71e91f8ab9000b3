//! The newest header that two thirds signed: fewer signatures never take it back, and never hide more
//! signatures of the same slot.
//!
//! The expected values are those of a slow model, which reads all updates since the start anew each
//! time.

use alloy_primitives::B256;
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::sync_committee::{
    Action, Anchor, Event, Evidence, LightClient, Participation,
};
use testkit::Rng;
use testkit::eth::beacon_chain::TWO_THIRDS;
use testkit::eth::beacon_world::{Draft, MEMBERS, World, at};

/// Slot of the last block that is finalised, in the tests that finalise one.
const FINALIZED: u64 = at(5, 9);
const ATTESTED: u64 = at(5, 30);

/// Returns a client with a finalised header, of which the whole committee signed a later one.
fn client(world: &World) -> LightClient {
    let mut client = world.start(at(5, 0));
    world.apply(&mut client, Draft::full(ATTESTED, FINALIZED)).expect("valid");
    client
}

fn signed(by: usize) -> Evidence {
    Evidence::Optimistic(Participation { signed: by, of: MEMBERS })
}

/// Slot and evidence of a header.
fn facts(anchor: &Anchor) -> (u64, Evidence) {
    (anchor.beacon.slot, anchor.evidence)
}

/// More signatures raise the grade of the same header.
#[test]
fn the_grade_after_more_signatures() {
    let world = World::new();
    let mut client = world.start(at(5, 0));
    for (by, grade) in [(1, Grade::Forced), (16, Grade::Forced), (17, Grade::Optimistic)] {
        world.apply(&mut client, Draft::optimistic(at(5, 4)).by(by)).expect("valid");
        assert_eq!((facts(client.optimistic()), client.optimistic().grade()), {
            ((at(5, 4), signed(by)), grade)
        });
        assert_eq!(client.supermajority(), client.finalized());
    }
}

/// Two headers of the same slot: the one with more signatures is taken, once two thirds signed it.
#[test]
fn two_headers_of_a_slot() {
    let world = World::new();
    let slot = ATTESTED + 4;
    // The states finalise other blocks, so the headers differ.
    let [one, other] = [FINALIZED + 8, FINALIZED + 9].map(|at| Draft::finality(slot, at));
    let root = |draft: Draft| world.update(draft).attested.beacon.root();
    assert_ne!(root(one), root(other));
    let mut client = client(&world);
    let mut expect = |draft: Draft, two_thirds: B256, optimistic: B256| {
        world.apply(&mut client, draft).expect("valid");
        assert_eq!(client.supermajority().root, two_thirds);
        assert_eq!(client.optimistic().root, optimistic);
    };
    let before = world.update(Draft::full(ATTESTED, FINALIZED)).attested.beacon.root();
    expect(one.by(20), before, root(one));
    expect(other.by(19), before, root(one));
    expect(other.by(TWO_THIRDS), root(other), root(other));
    expect(one.by(TWO_THIRDS), root(other), root(other));
    expect(one.by(TWO_THIRDS + 1), root(one), root(one));
}

/// A finalised header that is newer takes its place, also one that was forced.
#[test]
fn it_is_as_new_as_the_finalised_header() {
    let world = World::new();
    let mut client = world.start(at(5, 0));
    assert_eq!(client.supermajority(), client.finalized());
    assert_eq!(client.supermajority().evidence, Evidence::Checkpoint);
    // Nothing final follows for a period. The forced header has few signatures, and says so.
    world.apply(&mut client, Draft::full(at(5, 9), at(5, 2)).by(3)).expect("valid");
    assert_eq!(client.supermajority().evidence, Evidence::Checkpoint);
    world.apply(&mut client, Draft::full(at(5, 30), at(5, 12)).by(21)).expect("valid");
    client.handle(Event::Force, world.network.time_of_slot(at(6, 20))).expect("forced");
    assert_eq!(client.supermajority(), client.finalized());
    assert_eq!(client.supermajority().evidence, Evidence::Forced(by(21)));
    // What two thirds sign afterwards is newer, and still rests on the forced update.
    world.apply(&mut client, Draft::optimistic(at(6, 21)).by(23)).expect("valid");
    assert_eq!(facts(client.supermajority()), (at(6, 21), signed(23)));
    assert_eq!(client.supermajority().grade(), Grade::Forced);
    // A block that is finalised long after it was signed.
    world.apply(&mut client, Draft::finality(at(6, 40), at(6, 24))).expect("valid");
    assert_eq!(facts(client.supermajority()), (at(6, 40), signed(MEMBERS)));
}

const fn by(signed: usize) -> Participation {
    Participation { signed, of: MEMBERS }
}

/// A light client that was stored goes on from what its text has: the optimistic header if two thirds
/// signed it, otherwise the finalised one.
#[test]
fn after_a_restart() {
    let world = World::new();
    let now = world.network.time_of_slot(at(5, 60));
    let again = |client: &LightClient| {
        LightClient::from_json(&client.to_json(), world.network.clone(), now).expect("stored")
    };
    let mut client = client(&world);
    assert_eq!(again(&client).supermajority(), client.supermajority());
    world.apply(&mut client, Draft::optimistic(at(5, 50)).by(TWO_THIRDS)).expect("valid");
    assert_eq!(facts(again(&client).supermajority()), (at(5, 50), signed(TWO_THIRDS)));
    world.apply(&mut client, Draft::optimistic(at(5, 51)).by(TWO_THIRDS - 1)).expect("valid");
    assert_eq!(facts(client.supermajority()), (at(5, 50), signed(TWO_THIRDS)));
    let mut read = again(&client);
    assert_eq!(read.supermajority(), read.finalized());
    assert_eq!(facts(read.optimistic()), (at(5, 51), signed(TWO_THIRDS - 1)));
    // The next signature by two thirds brings it back, also that of the same slot.
    world.apply(&mut read, Draft::optimistic(at(5, 51)).by(TWO_THIRDS)).expect("valid");
    assert_eq!(facts(read.supermajority()), (at(5, 51), signed(TWO_THIRDS)));
}

/// What a client should know after some updates of one period, read anew from all of them.
struct Model {
    finalized: u64,
    supermajority: (u64, usize),
    optimistic: (u64, usize),
}

impl Model {
    /// `seen` has the drafts of all updates since the start at the slot `start`.
    fn of(start: u64, seen: &[Draft]) -> Self {
        let mut finalized = start;
        let mut valid: Vec<&Draft> = Vec::new();
        for draft in seen {
            if draft.attested > finalized {
                valid.push(draft);
                if draft.participants >= TWO_THIRDS {
                    finalized = finalized.max(draft.finalized.unwrap_or(0));
                }
            }
        }
        let key = |draft: &&Draft| (draft.attested, draft.participants);
        let most =
            |count: usize| valid[..count].iter().map(|draft| draft.participants).max().unwrap_or(0);
        // Updates that are above half of the most that signed up to then.
        let safe = (0..valid.len()).filter(|&at| valid[at].participants > most(at + 1) / 2);
        let safe = safe.map(|at| valid[at]);
        let optimistic = safe.map(|draft| key(&draft)).max();
        let two_thirds = valid.iter().filter(|draft| draft.participants >= TWO_THIRDS);
        let supermajority = two_thirds.map(key).max();
        let newer = |known: Option<(u64, usize)>| {
            known.filter(|(slot, _)| *slot > finalized).unwrap_or((finalized, 0))
        };
        Self { finalized, supermajority: newer(supermajority), optimistic: newer(optimistic) }
    }
}

/// Slot and number of signatures; no number for a header that is finalised, or the checkpoint.
fn key(anchor: &Anchor) -> (u64, usize) {
    match anchor.evidence {
        Evidence::Optimistic(by) => (anchor.beacon.slot, by.signed),
        _ => (anchor.beacon.slot, 0),
    }
}

/// Among others: fewer signatures, or an earlier slot, take back nothing; a later header by fewer hides
/// none; more signatures of a slot replace fewer.
#[test]
fn any_order_of_updates() {
    let world = World::new();
    let start = at(5, 0);
    let (mut hidden, mut replaced) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut client = world.start(start);
        // The next committee is known from the first update on.
        let mut seen = vec![Draft::full(at(5, 3), at(5, 1))];
        world.apply(&mut client, seen[0]).expect("valid");
        for _ in 0..12 {
            // A few slots, so that several updates attest the same one.
            let slot = at(5, 4 + rng.below(7) as u64);
            let participants = match rng.below(4) {
                0 => 1 + rng.below(MEMBERS),
                1 => TWO_THIRDS + rng.below(3),
                _ => MEMBERS / 2 + rng.below(TWO_THIRDS - MEMBERS / 2),
            };
            let draft = if rng.one_in(4) {
                Draft::finality(slot, slot - 1 - rng.below(3) as u64)
            } else {
                Draft::optimistic(slot)
            };
            let draft = draft.by(participants);
            seen.push(draft);
            let before = key(client.optimistic());
            let result = world.apply(&mut client, draft);
            assert_eq!(
                result.is_ok(),
                draft.attested > Model::of(start, &seen[..seen.len() - 1]).finalized
            );
            let model = Model::of(start, &seen);
            assert_eq!(client.finalized().beacon.slot, model.finalized, "{seed}");
            assert_eq!(key(client.supermajority()), model.supermajority, "{seed}: two thirds");
            assert_eq!(key(client.optimistic()), model.optimistic, "{seed}: optimistic");
            let after = key(client.optimistic());
            let announced = result.is_ok_and(|actions| {
                actions.iter().any(|action| matches!(action, Action::Optimistic(_)))
            });
            assert_eq!(announced, before != after, "{seed}: each change is announced");
            hidden += usize::from(model.optimistic.0 > model.supermajority.0);
            replaced += usize::from(before.0 == after.0 && before.1 < after.1);
        }
    }
    println!("{hidden} times newer by fewer, {replaced} times more signatures of a slot");
    assert!(hidden > 50 && replaced > 20);
}
