//! Beacon nodes that send few of a block's signatures: the head never moves back for that, and more
//! signatures from another node still count.

use std::net::SocketAddr;
use std::time::Duration;

use chainsieve_provider::{BeaconClient, RpcServer};
use serde_json::{Value, json};
use testkit::eth::beacon_server::{BeaconData, BeaconServer};
use testkit::eth::beacon_world::Draft;
use testkit::eth::final_blocks::FinalBlocks;
use testkit::eth::log_chains::Corpus;

use crate::upstream::{Upstream, ask};
use crate::{provider, started, until};

/// Number of the finalised block.
const FINAL: usize = 300;
/// Number of the block that the newest signed beacon block binds.
const SIGNED: usize = 340;

/// A beacon chain that has finalised a block, and has signed later ones.
struct Signed {
    blocks: FinalBlocks,
    data: BeaconData,
    /// Slot of the first signed block.
    slot: u64,
}

impl Signed {
    /// The next three slots after the finalised block bind the blocks from [`SIGNED`] on.
    fn over(upstream: &Upstream) -> Self {
        let header = |number: usize| &upstream.blocks()[number].header;
        let mut blocks = FinalBlocks::new(false);
        let data = blocks.finalise(header(FINAL));
        let slot = blocks.newest_signed();
        for (slot, number) in (slot..).zip(SIGNED..SIGNED + 3) {
            blocks.world.bind(slot, header(number));
        }
        Self { blocks, data, slot }
    }

    /// Returns what a node has if so many members signed the block of a slot after the first one.
    fn newest(&self, after: u64, participants: usize) -> BeaconData {
        let draft = Draft::optimistic(self.slot + after).by(participants);
        BeaconData { optimistic: Some(self.blocks.world.update(draft)), ..self.data.clone() }
    }

    fn node(&self, after: u64, participants: usize) -> BeaconServer {
        BeaconServer::start(&self.blocks.world.network, self.newest(after, participants))
    }

    /// Starts an endpoint whose light client asks these beacon nodes.
    fn endpoint(&self, upstream: &Upstream, nodes: &[&BeaconServer]) -> RpcServer {
        let client = BeaconClient::builder(self.blocks.world.network.clone());
        let client = client.checkpoint(self.blocks.checkpoint()).retries(0).optimistic();
        let client = nodes.iter().fold(client, |client, node| client.url(node.url()));
        let client = client.poll(Duration::from_millis(50)).build().expect("a client");
        let provider = provider(&[upstream]).anchor(client).build().expect("nodes");
        started(provider.serve().poll(Duration::from_millis(20)))
    }
}

fn head(address: SocketAddr) -> Value {
    ask(address, "eth_blockNumber", &json!([]))["result"].clone()
}

fn number(block: usize) -> Value {
    json!(format!("{block:#x}"))
}

/// Waits until a beacon node was asked for the newest signed block in three more rounds. Every answer
/// but the last has then been used.
fn rounds(node: &BeaconServer, mut meanwhile: impl FnMut()) {
    node.take_asked();
    let mut asked = 0;
    until("the light client asks", || {
        meanwhile();
        let paths = node.take_asked().into_iter();
        asked += paths.filter(|asked| asked.path.ends_with("/optimistic_update")).count();
        asked >= 3
    });
}

/// More than half of the committee signed a newer block, and fewer than two thirds: the head stays.
#[test]
fn a_weakly_signed_header_does_not_move_the_head_back() {
    let Some(corpus) = Corpus::open() else { return };
    let upstream = Upstream::start(&corpus.chains["ethtest"]);
    let signed = Signed::over(&upstream);
    let node = signed.node(0, 32);
    let server = signed.endpoint(&upstream, &[&node]);
    let address = server.address();
    until("the signed head", || head(address) == number(SIGNED));
    let filter = ask(address, "eth_newFilter", &json!([{}]))["result"].clone();
    node.set(signed.newest(1, 20));
    rounds(&node, || assert_eq!(head(address), number(SIGNED)));
    node.set(signed.newest(2, 32));
    until("the next head", || head(address) == number(SIGNED + 2));
    let logs = upstream.blocks()[SIGNED + 1..=SIGNED + 2].iter().flat_map(|block| &block.logs);
    let expected = json!(logs.collect::<Vec<_>>());
    let changes = ask(address, "eth_getFilterChanges", &json!([filter]));
    assert_eq!(changes["result"], expected, "{}", changes["error"]);
}

/// One node leaves signatures of the newest block out, and another one has them all.
#[test]
fn a_weak_aggregate_does_not_hide_a_strong_one() {
    let Some(corpus) = Corpus::open() else { return };
    let upstream = Upstream::start(&corpus.chains["ethtest"]);
    let signed = Signed::over(&upstream);
    let nodes = [signed.node(0, 32), signed.node(0, 32)];
    let [strong, weak] = &nodes;
    let server = signed.endpoint(&upstream, &[strong, weak]);
    let address = server.address();
    until("the signed head", || head(address) == number(SIGNED));
    weak.set(signed.newest(1, 17));
    rounds(weak, || assert_eq!(head(address), number(SIGNED)));
    strong.set(signed.newest(1, 32));
    until("two thirds signed it, and a node has that", || head(address) == number(SIGNED + 1));
}
