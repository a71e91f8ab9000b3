//! The head is the newest block that two thirds signed, whatever fewer signatures servers send.

use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::sync_committee::{ExecutionProof, Participation, Update};
use chainsieve_provider::{AnchorSource as _, BeaconClient, BeaconRound};
use testkit::eth::beacon_chain::TWO_THIRDS;
use testkit::eth::beacon_server::{BeaconData, BeaconServer};
use testkit::eth::beacon_world::{Draft, MEMBERS, World, at, started};

const CHECKPOINT: u64 = at(1, 8);
const FINALIZED: u64 = at(1, 16);
const ATTESTED: u64 = at(1, 32);
/// The slot that has started.
const NOW: u64 = at(1, 60);
/// First epochs of the forks from Altair on: all blocks are of Fulu.
const FORKS: [u64; 7] = [0, 0, 0, 0, 0, 0, 1 << 32];

/// Returns what a server has, with this newest signed header.
fn data(world: &World, newest: Update) -> BeaconData {
    let mut data = BeaconData::default();
    data.add_bootstrap(world.bootstrap(CHECKPOINT));
    data.updates.insert(1, world.update(Draft::full(ATTESTED, FINALIZED)));
    data.finality = Some(world.update(Draft::finality(ATTESTED, FINALIZED)));
    data.optimistic = Some(newest);
    data
}

/// Returns the hash of the execution block that the attested header binds.
fn bound(update: &Update) -> B256 {
    match &update.attested.execution {
        ExecutionProof::Header(header, _) => header.block_hash,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fewer_signatures_neither_take_the_head_back_nor_hide_it() {
    let world = World::with(FORKS, 3, &started(NOW));
    let of = |slot: u64, by: usize| world.update(Draft::optimistic(slot).by(by));
    let hash = |slot: u64| bound(&of(slot, MEMBERS));
    let start = || BeaconServer::start(&world.network, data(&world, of(ATTESTED, MEMBERS)));
    let servers = [start(), start()];
    for order in [[0, 1], [1, 0]] {
        let builder = || {
            let builder = BeaconClient::builder(world.network.clone()).poll(Duration::ZERO);
            let root = world.finalized(CHECKPOINT).beacon.root();
            let builder = builder.checkpoint(root).retries(0).timeout(Duration::from_secs(60));
            order.iter().fold(builder, |builder, &at| builder.url(servers[at].url()))
        };
        let client = builder().optimistic().build().expect("a client");
        assert_eq!(client.head(), None, "nothing is known yet");
        let round = |[one, other]: [(u64, usize); 2]| -> BeaconRound {
            servers[0].set(data(&world, of(one.0, one.1)));
            servers[1].set(data(&world, of(other.0, other.1)));
            let round = client.sync().expect("a round");
            assert_eq!(round.answered, 2, "{:?}", round.failures);
            round
        };
        let first = ATTESTED + 1;
        for (sent, head, optimistic) in [
            // The finality update is signed too.
            ([(ATTESTED, MEMBERS), (ATTESTED, MEMBERS)], ATTESTED, (ATTESTED, MEMBERS)),
            ([(first, TWO_THIRDS), (ATTESTED, MEMBERS)], first, (first, TWO_THIRDS)),
            // More than half, fewer than two thirds: of both servers, then of one.
            ([(first + 1, 17), (first + 1, 21)], first, (first + 1, 21)),
            ([(first + 1, MEMBERS), (first + 1, 17)], first + 1, (first + 1, MEMBERS)),
            // A weak aggregate of a later slot, and a strong one of an earlier slot.
            ([(first + 3, 20), (first + 2, MEMBERS)], first + 2, (first + 3, 20)),
            ([(first + 3, 20), (first + 3, TWO_THIRDS)], first + 3, (first + 3, TWO_THIRDS)),
        ] {
            let round = round(sent);
            assert_eq!(client.head(), Some(hash(head)), "{sent:?}");
            assert_eq!(round.optimistic.beacon.slot, optimistic.0, "{sent:?}");
            let by = Participation { signed: optimistic.1, of: MEMBERS };
            let evidence = round.optimistic.evidence.to_string();
            assert_eq!(evidence, format!("not finalised, signed by {by}"), "{sent:?}");
        }
        // Only a client that asks for signed headers has such a head.
        let client = builder().build().expect("a client");
        client.sync().expect("a round");
        assert_eq!(client.head(), None);
    }
}
