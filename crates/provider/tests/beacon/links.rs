//! Links from a finalised block to earlier ones, fetched from nodes that serve all of a made-up
//! chain, a part of it, or something else.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use chainsieve::alloy_primitives::{B256, hex};
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::links::{Anchored, Link, LinkKind, Origin};
use chainsieve_provider::{
    BeaconClient, BeaconError, LinkOptions, LinkedBlock, Node, Provider, Stop,
};
use serde_json::{Value, json};
use testkit::eth::beacon_server::BeaconServer;
use testkit::eth::final_blocks::FinalBlocks;
use testkit::eth::json_rpc::{Sent, serve_any};
use testkit::eth::state_chain::StateChain;

/// Number of the finalised block.
const HEAD: u64 = 20_000;
/// Number of blocks whose hashes the contract has (EIP-2935).
const WINDOW: u64 = 8191;
/// First and second hop before the finalised block.
const HOPS: [u64; 2] = [HEAD - WINDOW, HEAD - 2 * WINDOW];
/// A block that is reached by fewer bytes over the contract than by parent hashes.
const FAR: u64 = HEAD - 10;

/// The chain. An archive node has each state that links need.
static CHAIN: LazyLock<StateChain> =
    LazyLock::new(|| StateChain::new(HEAD + 40, 0, &[HEAD, HOPS[0], HOPS[1]]));
/// A chain that a provider made up.
static OTHER: LazyLock<StateChain> = LazyLock::new(|| StateChain::new(HEAD, 1, &[HEAD]));

/// Returns a light client that knows the finalised block of the chain.
fn client_of(is_gloas: bool) -> BeaconClient {
    let mut blocks = FinalBlocks::new(is_gloas);
    let data = blocks.finalise(CHAIN.header(HEAD));
    let network = blocks.world.network.clone();
    let server = BeaconServer::start(&network, data);
    let builder = BeaconClient::builder(network).checkpoint(blocks.checkpoint());
    let client = builder.url(server.url()).retries(0).build().expect("a client");
    let round = client.sync().expect("a bootstrap");
    assert_eq!(round.finalized.execution.bound_hash(), Some(CHAIN.hash(HEAD)));
    assert_eq!(round.finalized.execution.header().is_none(), is_gloas);
    client
}

static CLIENT: LazyLock<BeaconClient> = LazyLock::new(|| client_of(false));

/// Answer of a node that lies; `None` for the true answer.
type Lie = Arc<dyn Fn(&str, &Value) -> Option<Sent> + Send + Sync>;

fn lie(lie: impl Fn(&str, &Value) -> Option<Sent> + Send + Sync + 'static) -> Lie {
    Arc::new(lie)
}

/// Nodes of the chain, and the calls that they received.
struct Nodes {
    nodes: Vec<Node>,
    calls: Arc<Mutex<Vec<(usize, String, Value)>>>,
}

impl Nodes {
    /// Starts nodes that tell the truth where their lie is `None`.
    fn start(lies: impl IntoIterator<Item = Lie>) -> Self {
        Self::with_stop(lies, Stop::new())
    }

    fn with_stop(lies: impl IntoIterator<Item = Lie>, stop: Stop) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let mut builder =
            Provider::builder().retries(0).trust_head().timeout(Duration::from_secs(60)).stop(stop);
        for (index, lie) in lies.into_iter().enumerate() {
            let kept = Arc::clone(&calls);
            let address = serve_any(move |method, params| {
                let call = (index, method.to_owned(), params.clone());
                kept.lock().expect("no panic").push(call);
                lie(method, params).unwrap_or_else(|| CHAIN.answer(method, params))
            });
            builder = builder.url(&format!("http://{address}"));
        }
        Self { nodes: builder.build().expect("nodes").nodes().to_vec(), calls }
    }

    fn honest() -> Self {
        Self::start([lie(|_, _| None)])
    }

    /// Links a block, and checks what every link must satisfy.
    fn link(&self, number: u64) -> Result<Anchored, BeaconError> {
        let (shown, linked) = CLIENT.link(number, LinkOptions::new(&self.nodes))?;
        check(&CLIENT, number, &shown, &linked);
        Ok(shown)
    }

    /// Returns the blocks whose state each node was asked for.
    fn states(&self) -> Vec<(usize, u64)> {
        let calls = self.calls.lock().expect("no panic");
        let proofs = calls.iter().filter(|(_, method, _)| method == "eth_getProof");
        proofs
            .map(|(node, _, params)| (*node, CHAIN.number(&params[2]).expect("a number")))
            .collect()
    }
}

/// Checks that links lead to the block of the chain, and that a stranger can verify them.
fn check(client: &BeaconClient, number: u64, shown: &Anchored, linked: &LinkedBlock) {
    assert_eq!((shown.number, shown.hash), (Some(number), CHAIN.hash(number)));
    let is_head = number == HEAD;
    let grade = if is_head { Grade::Finalized } else { Grade::HistoryOfFinalized };
    assert_eq!(shown.grade, grade, "{number}");
    let known = client.light_client().expect("started");
    let origin = Origin::from(known.finalized());
    let text = serde_json::to_string(linked).expect("JSON");
    let read: LinkedBlock = serde_json::from_str(&text).expect("the same");
    assert_eq!(read, *linked, "{number}");
    assert_eq!(read.verify(&origin, known.network()).as_ref(), Ok(shown), "{number}");
    // A stranger who believes another block, or none, believes no link.
    for block_hash in [Some(OTHER.hash(HEAD)), None] {
        let other = Origin { block_hash, ..origin };
        assert!(read.verify(&other, known.network()).is_err(), "{number}");
    }
}

fn parents(blocks: u64) -> LinkKind {
    LinkKind::Parents { blocks: usize::try_from(blocks).expect("small") }
}

/// A node without any state.
fn stateless() -> Lie {
    lie(|method, _| (method == "eth_getProof").then_some(Sent::Error(-32000, "pruned")))
}

/// A node with the newest state alone.
fn full_node() -> Lie {
    lie(|method, params| {
        let is_old = method == "eth_getProof" && CHAIN.number(&params[2]) != Some(HEAD);
        is_old.then_some(Sent::Error(-32000, "missing trie node"))
    })
}

/// The way is the one of the fewest bytes: by the specification, the contract has 8,191 blocks.
#[test]
fn each_distance_has_its_way() {
    let contract = LinkKind::HistoryContract;
    let cases = [
        (HEAD, vec![parents(0)], vec![]),
        (HEAD - 1, vec![parents(1)], vec![]),
        (HEAD - 2, vec![parents(2)], vec![]),
        (HEAD - 3, vec![contract], vec![HEAD]),
        (FAR, vec![contract], vec![HEAD]),
        (HEAD - WINDOW, vec![contract], vec![HEAD]),
        (HOPS[0] - 50, vec![contract; 2], vec![HEAD, HOPS[0]]),
        (HOPS[1], vec![contract; 2], vec![HEAD, HOPS[0]]),
        (HOPS[1] - 50, vec![contract; 3], vec![HEAD, HOPS[0], HOPS[1]]),
        (0, vec![contract; 3], vec![HEAD, HOPS[0], HOPS[1]]),
    ];
    for (number, by, states) in cases {
        let nodes = Nodes::honest();
        let shown = nodes.link(number).unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(shown.by, by, "{number}");
        let states: Vec<_> = states.into_iter().map(|number| (0, number)).collect();
        assert_eq!(nodes.states(), states, "{number}");
    }
}

/// A beacon block of Gloas binds the hash of an execution block, and nothing else of it.
#[test]
fn only_the_hash_is_bound_in_gloas() {
    let client = client_of(true);
    let nodes = Nodes::honest();
    for (number, by) in [
        (HEAD, vec![parents(0)]),
        (HEAD - 2, vec![parents(2)]),
        (FAR, vec![LinkKind::HistoryContract]),
        (HOPS[0] - 50, vec![LinkKind::HistoryContract; 2]),
    ] {
        let linked = client.link(number, LinkOptions::new(&nodes.nodes));
        let (shown, linked) = linked.unwrap_or_else(|error| panic!("{number}: {error}"));
        check(&client, number, &shown, &linked);
        assert_eq!(shown.by, by, "{number}");
    }
}

#[test]
fn without_old_states_headers_are_fetched() {
    let nodes = Nodes::start([stateless()]);
    let shown = nodes.link(HEAD - 100).expect("by headers");
    assert_eq!((shown.by, nodes.states()), (vec![parents(100)], vec![(0, HEAD)]));

    // The newest state leads as far back as it can.
    let nodes = Nodes::start([full_node()]);
    let shown = nodes.link(HOPS[0] - 50).expect("by both");
    assert_eq!(shown.by, [LinkKind::HistoryContract, parents(50)]);
    // What was fetched before the missing state is not fetched again.
    assert_eq!(nodes.states(), [(0, HEAD), (0, HOPS[0])]);

    // An archive node is asked for what the first node does not have.
    let nodes = Nodes::start([full_node(), lie(|_, _| None)]);
    let shown = nodes.link(HOPS[1] - 50).expect("by both nodes");
    assert_eq!(shown.by, [LinkKind::HistoryContract; 3]);
    let states = [(0, HEAD), (0, HOPS[0]), (1, HOPS[0]), (0, HOPS[1]), (1, HOPS[1])];
    assert_eq!(nodes.states(), states);
}

#[test]
fn the_limit_of_headers() {
    let nodes = Nodes::start([stateless()]);
    let link = |max_headers| {
        CLIENT.link(HEAD - 100, LinkOptions { max_headers, ..LinkOptions::new(&nodes.nodes) })
    };
    let (shown, linked) = link(100).expect("as many as it takes");
    check(&CLIENT, HEAD - 100, &shown, &linked);
    assert_eq!(shown.by, [parents(100)]);
    let error = link(99).expect_err("too many");
    let BeaconError::TooManyHeaders { number, headers, limit, failures } = &error else {
        panic!("{error}");
    };
    assert_eq!((*number, *headers, *limit), (HEAD - 100, 100, 99));
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert!(failure.contains("eth_getProof of block 20000") && failure.contains("pruned"));
    assert!(error.to_string().contains(failure), "{error}");
    // By default, as many as the contract has.
    assert_eq!(LinkOptions::new(&[]).max_headers, WINDOW);
}

/// Changes the honest answer of `eth_getProof`.
fn forged(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Lie {
    lie(move |method, params| {
        if method != "eth_getProof" {
            return None;
        }
        let Sent::Result(mut proof) = CHAIN.answer(method, params) else { return None };
        change(&mut proof);
        Some(Sent::Result(proof))
    })
}

/// Answers `eth_getProof` with the proof of a slot in another state.
fn of_state(chain: &'static LazyLock<StateChain>, state: u64, slot: Option<B256>) -> Lie {
    lie(move |method, params| {
        let asked: Vec<B256> = serde_json::from_value(params[1].clone()).ok()?;
        let slots = slot.map_or(asked, |slot| vec![slot]);
        (method == "eth_getProof").then(|| Sent::Result(chain.state(state).proof(&slots)))
    })
}

fn flipped(node: &mut Value, at: impl FnOnce(usize) -> usize) {
    let mut bytes = hex::decode(node.as_str().expect("text")).expect("hex");
    let at = at(bytes.len());
    bytes[at] ^= 1;
    *node = json!(hex::encode_prefixed(bytes));
}

/// Lies of `eth_getProof`, each of which leads to another block if it is believed, or to none.
fn forged_proofs() -> Vec<(&'static str, Lie)> {
    let list = |path: &'static str, change: fn(&mut Vec<Value>)| {
        forged(move |proof| {
            change(proof.pointer_mut(path).and_then(Value::as_array_mut).expect("a list"));
        })
    };
    let (account, storage) = ("/accountProof", "/storageProof/0/proof");
    vec![
        ("another value", forged(|proof| proof["storageProof"][0]["value"] = json!("0x1234"))),
        (
            "the hash of another chain",
            forged(|proof| proof["storageProof"][0]["value"] = json!(OTHER.hash(FAR))),
        ),
        ("another storage root", forged(|proof| proof["storageHash"] = json!(B256::ZERO))),
        ("first node", list(account, |nodes| flipped(&mut nodes[0], |length| length / 2))),
        (
            "last node",
            list(account, |nodes| flipped(nodes.last_mut().expect("nodes"), |length| length - 1)),
        ),
        ("first storage node", list(storage, |nodes| flipped(&mut nodes[0], |_| 9))),
        (
            "last storage node",
            list(storage, |nodes| flipped(nodes.last_mut().expect("nodes"), |length| length - 1)),
        ),
        ("a missing node", list(account, |nodes| drop(nodes.pop()))),
        ("a missing storage node", list(storage, |nodes| drop(nodes.pop()))),
        ("no nodes", forged(|proof| proof["accountProof"] = json!([]))),
        ("no slot", forged(|proof| proof["storageProof"] = json!([]))),
        ("a node too many", list(storage, |nodes| nodes.push(json!("0xc0")))),
        ("of another block", of_state(&CHAIN, HOPS[0], None)),
        ("of another chain", of_state(&OTHER, HEAD, None)),
        ("of another slot", of_state(&CHAIN, HEAD, Some(B256::with_last_byte(77)))),
        ("too large", forged(|proof| proof["padding"] = json!(" ".repeat(1 << 20)))),
        ("null", forged(|proof| *proof = Value::Null)),
        ("a list", forged(|proof| *proof = json!([proof.clone()]))),
        ("a text", forged(|proof| *proof = json!("\u{1b}[31m<html>"))),
        ("no nonce", forged(|proof| proof["nonce"] = Value::Null)),
        ("an HTTP error", lie(|method, _| (method == "eth_getProof").then_some(Sent::Status(500)))),
    ]
}

#[test]
fn forged_proofs_are_refused() {
    for (name, lie) in forged_proofs() {
        // Alone: parent hashes lead there.
        let nodes = Nodes::start([Arc::clone(&lie)]);
        let shown = nodes.link(FAR).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(shown.by, [parents(HEAD - FAR)], "{name}");
        // Without the headers, the reason is named.
        let few = LinkOptions { max_headers: 5, ..LinkOptions::new(&nodes.nodes) };
        let error = CLIENT.link(FAR, few).expect_err(name);
        let BeaconError::TooManyHeaders { failures, .. } = &error else { panic!("{error}") };
        let [failure] = &failures[..] else { panic!("{name}: {failures:?}") };
        assert!(failure.contains("eth_getProof of block 20000"), "{name}: {failure}");
        assert!(!failure.contains('\u{1b}'), "{name}: {failure:?}");
        // Beside an honest node, whose proof is used.
        let nodes = Nodes::start([lie, self::lie(|_, _| None)]);
        let shown = nodes.link(FAR).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(shown.by, [LinkKind::HistoryContract], "{name}");
        assert_eq!(nodes.states(), [(0, HEAD), (1, HEAD)], "{name}");
    }
}

/// Lies about the headers of blocks before the finalised one.
fn forged_headers() -> Vec<(&'static str, Lie)> {
    let by_number = |answer: fn(&Value) -> Sent| {
        lie(move |method, params| {
            let is_header = ["debug_getRawHeader", "eth_getBlockByNumber"].contains(&method);
            is_header.then(|| answer(&params[0]))
        })
    };
    vec![
        (
            "of another chain",
            by_number(|number| OTHER.answer("eth_getBlockByNumber", &json!([number]))),
        ),
        (
            "of another chain, as bytes",
            lie(|method, params| {
                (method == "debug_getRawHeader").then(|| OTHER.answer(method, params))
            }),
        ),
        ("another block", by_number(|_| CHAIN.answer("debug_getRawHeader", &json!(["0x7"])))),
        ("null", by_number(|_| Sent::Result(Value::Null))),
        ("garbage", by_number(|_| Sent::Result(json!("0xc0")))),
        ("an error", by_number(|_| Sent::Error(-32000, "no"))),
    ]
}

#[test]
fn forged_headers_are_refused() {
    for (name, lie) in forged_headers() {
        // The contract needs no header but that of the finalised block.
        let nodes = Nodes::start([Arc::clone(&lie)]);
        for number in [HEAD - 2, FAR] {
            assert_eq!(nodes.link(number).expect(name).by, [LinkKind::HistoryContract], "{name}");
        }
        // Without states too, nothing leads there.
        let (headers, states) = (Arc::clone(&lie), stateless());
        let neither = move |method: &str, params: &Value| {
            headers(method, params).or_else(|| states(method, params))
        };
        let nodes = Nodes::start([self::lie(neither)]);
        let error = nodes.link(HEAD - 2).expect_err(name);
        let BeaconError::Unreachable { number, failures } = &error else {
            panic!("{name}: {error}")
        };
        assert_eq!(*number, HEAD - 2, "{name}");
        assert!(!failures.is_empty(), "{name}");
        // Beside an honest node, whose headers are used.
        let nodes = Nodes::start([lie, self::lie(|_, _| None)]);
        let shown = nodes.link(HEAD - 2).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(shown.by, [parents(2)], "{name}");
    }
}

/// Returns a node with another answer for the finalised block, which is asked for by its hash.
fn head_of(answer: fn() -> Sent) -> Lie {
    lie(move |method, _| (method == "eth_getBlockByHash").then(answer))
}

#[test]
fn a_node_without_the_finalised_block() {
    let hash = CHAIN.hash(HEAD);
    let lags = || head_of(|| Sent::Result(Value::Null));
    let error = Nodes::start([lags()]).link(FAR).expect_err("no header");
    assert_eq!(error, BeaconError::NoHead { hash, failures: Vec::new() });
    assert!(error.to_string().contains(&hash.to_string()), "{error}");
    let error = CLIENT.link(FAR, LinkOptions::new(&[])).expect_err("no node");
    assert_eq!(error, BeaconError::NoHead { hash, failures: Vec::new() });

    // A node of another chain, which returns its own block.
    let forged = || head_of(|| OTHER.answer("eth_getBlockByNumber", &json!(["latest", false])));
    let error = Nodes::start([forged(), lags()]).link(FAR).expect_err("another header");
    let BeaconError::NoHead { failures, .. } = &error else { panic!("{error}") };
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert!(failure.contains(&OTHER.hash(HEAD).to_string()), "{failure}");

    // The next node has it.
    let nodes = Nodes::start([forged(), lags(), lie(|_, _| None)]);
    assert_eq!(nodes.link(FAR).expect("by the third").by, [LinkKind::HistoryContract]);
}

#[test]
fn a_block_after_the_finalised_one() {
    let nodes = Nodes::honest();
    for number in [HEAD + 1, HEAD + 40, u64::MAX] {
        let error = nodes.link(number).expect_err("not final");
        assert_eq!(error, BeaconError::NotFinal { number, finalized: HEAD });
        assert!(error.to_string().contains("after the finalised block, 20000"), "{error}");
    }
}

#[test]
fn before_the_first_answer_of_a_beacon_server() {
    let network = FinalBlocks::new(false).world.network;
    let client = BeaconClient::builder(network).checkpoint(B256::ZERO).build();
    let error = client.expect("a client").link(FAR, LinkOptions::new(&[])).expect_err("unknown");
    assert_eq!(error, BeaconError::NoStart);
}

/// A stop ends the search at the next request, whatever that is.
#[test]
fn a_stop_ends_the_search() {
    let stop = Stop::new();
    stop.set();
    let nodes = Nodes::with_stop([lie(|_, _| None)], stop);
    assert_eq!(nodes.link(FAR), Err(BeaconError::Stopped));
    assert!(nodes.calls.lock().expect("no panic").is_empty());

    for (number, stops_at) in [
        (FAR, "eth_getBlockByHash"),
        (HEAD - 2, "eth_getBlockByHash"),
        // A failed proof, after which headers would be fetched.
        (FAR, "eth_getProof"),
        // The header of the first hop.
        (HOPS[0] - 50, "eth_getProof"),
    ] {
        let (stop, is_far) = (Stop::new(), number == FAR);
        let set = stop.clone();
        let lie = lie(move |method, _| {
            if method == stops_at {
                set.set();
            }
            (is_far && method == "eth_getProof").then_some(Sent::Error(-32000, "pruned"))
        });
        let nodes = Nodes::with_stop([lie], stop);
        assert_eq!(nodes.link(number), Err(BeaconError::Stopped), "{number} {stops_at}");
        let calls = nodes.calls.lock().expect("no panic");
        assert_eq!(calls.last().map(|(_, method, _)| method.as_str()), Some(stops_at), "{number}");
    }
}

/// What the links say of their origin does not count.
#[test]
fn links_of_a_false_origin() {
    let nodes = Nodes::honest();
    let known = CLIENT.light_client().expect("started");
    let origin = Origin::from(known.finalized());
    for number in [HEAD, HEAD - 2, FAR] {
        let linked = CLIENT.link(number, LinkOptions::new(&nodes.nodes));
        let (shown, mut linked) = linked.expect("honest");
        linked.origin.block_hash = Some(OTHER.hash(HEAD));
        assert_eq!(linked.verify(&origin, known.network()), Ok(shown), "{number}");
    }
}

/// Links that are cut, doubled or in another order lead to no block of another chain.
#[test]
fn reordered_links_are_refused_or_lead_to_the_chain() {
    let nodes = Nodes::start([full_node()]);
    let known = CLIENT.light_client().expect("started");
    let origin = Origin::from(known.finalized());
    let number = HOPS[0] - 5;
    let linked = CLIENT.link(number, LinkOptions::new(&nodes.nodes)).expect("honest").1;
    let [contract, parents] = &linked.links[..] else { panic!("{:?}", linked.links) };
    let Link::Parents { headers } = parents else { panic!("{parents:?}") };
    let some = |keep: &dyn Fn(usize) -> bool| {
        let kept = headers.iter().enumerate().filter(|(index, _)| keep(*index));
        Link::Parents { headers: kept.map(|(_, header)| header.clone()).collect() }
    };
    let mut reversed = headers.clone();
    reversed.reverse();
    let links = |links: &[&Link]| links.iter().copied().cloned().collect::<Vec<_>>();
    let cases = [
        ("none", vec![], Some((None, HEAD))),
        ("only the contract", links(&[contract]), Some((Some(HOPS[0]), HOPS[0]))),
        ("only headers", links(&[parents]), None),
        ("the other order", links(&[parents, contract]), None),
        ("the contract twice", links(&[contract, contract]), None),
        ("headers twice", links(&[contract, parents, parents]), None),
        ("no headers", links(&[contract, &some(&|_| false)]), None),
        ("without the first", links(&[contract, &some(&|index| index != 0)]), None),
        ("without the third", links(&[contract, &some(&|index| index != 2)]), None),
        ("reversed", links(&[contract, &Link::Parents { headers: reversed }]), None),
        (
            "without the last",
            links(&[contract, &some(&|index| index != 5)]),
            Some((Some(number + 1), number + 1)),
        ),
    ];
    for (name, links, expected) in cases {
        let mut changed = linked.clone();
        changed.links = links;
        let shown = changed.verify(&origin, known.network()).ok();
        let shown = shown.map(|shown| (shown.number, shown.hash));
        let expected = expected.map(|(number, block)| (number, CHAIN.hash(block)));
        assert_eq!(shown, expected, "{name}");
    }
}
