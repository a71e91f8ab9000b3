//! Peers: servers of true or false filters, and their other faults.

use std::rc::Rc;
use std::time::Duration;

use chainsieve::bitcoin::bip158::{FilterHash, FilterHeader};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_blockdata::Inventory;
use chainsieve::bitcoin::{Block, BlockHash, Witness};
use chainsieve::btc::headers::HeaderChain;
use chainsieve::btc::server::filters::{FilterResponse, FilterStore};

use testkit::Rng;
use testkit::btc::filter_world::World;

/// A fault of a peer in addition to a false store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Quirk {
    None,
    /// Answers no request of one kind, or no request at all.
    Silent(Option<Request>),
    /// Answers with this additional delay.
    Late(Duration),
    /// Closes the connection in the middle of its answer to the request with this number.
    Leaves(usize),
    /// Sends one false filter header in each `cfcheckpt`.
    FalseCheckpoint,
    /// Sends one false hash in each `cfheaders`, and the true filter.
    FalseHash,
    /// Sends a false filter header before the range.
    FalsePrevious,
    /// Sends one filter in each answer that does not fit its hash.
    FalseContent,
    /// Sends answers that have wrong parts, are reversed or repeated, or are missing.
    Garbage,
    Blocks(BlockLie),
    /// Serves its other store after this many requests.
    Switches(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Checkpoints,
    Headers,
    Filters,
    Blocks,
}

/// A change to the blocks that a peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockLie {
    Missing,
    /// Sends another block.
    Other,
    /// Sends the transactions of another block under the same header.
    Altered,
    /// Repeats a transaction. If the count is odd, repeats the last one, which keeps the merkle
    /// root (CVE-2012-2459).
    Twice,
    /// Removes all witnesses. All transaction ids stay the same.
    Stripped,
    /// Adds a witness to every input without one. All transaction ids stay the same.
    MadeUpWitness,
}

/// All changes to a block.
pub(crate) const BLOCK_LIES: [BlockLie; 6] = [
    BlockLie::Missing,
    BlockLie::Other,
    BlockLie::Altered,
    BlockLie::Twice,
    BlockLie::Stripped,
    BlockLie::MadeUpWitness,
];

/// A peer of a scenario.
#[derive(Clone)]
pub(crate) struct Plan {
    /// `true` if everything that the peer sends is true and in time.
    pub(crate) honest: bool,
    pub(crate) store: Rc<FilterStore>,
    /// The second store, for [`Quirk::Switches`].
    pub(crate) other_store: Rc<FilterStore>,
    pub(crate) quirk: Quirk,
    pub(crate) latency: Duration,
    /// Delay with which the peer learns of a block after the client.
    pub(crate) lag: Duration,
    /// Times at which the peer connects and, if given, disconnects.
    pub(crate) sessions: Vec<(Duration, Option<Duration>)>,
    /// Number of times that the peer reconnects after the client disconnects it.
    pub(crate) returns: u32,
}

/// The response of a peer to a message.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) messages: Vec<NetworkMessage>,
    pub(crate) delay: Duration,
    pub(crate) closes: bool,
    /// The rule of Core that the client's message violates, if any.
    pub(crate) violation: Option<String>,
}

/// A connection, from the peer's side.
pub(crate) struct Session {
    pub(crate) plan: Plan,
    rng: Rng,
    requests: usize,
}

impl Session {
    pub(crate) fn new(plan: Plan, seed: u64) -> Self {
        Self { plan, rng: Rng::new(seed), requests: 0 }
    }

    /// Returns the store that the peer serves now.
    pub(crate) fn store(&self) -> &FilterStore {
        match self.plan.quirk {
            Quirk::Switches(after) if self.requests > after => &self.plan.other_store,
            _ => &self.plan.store,
        }
    }

    /// Answers `message` from `chain`, the chain that the peer knows.
    pub(crate) fn answer(
        &mut self,
        world: &World,
        chain: &HeaderChain,
        message: &NetworkMessage,
    ) -> Response {
        self.requests += 1;
        let mut response = Response { delay: self.plan.latency, ..Response::default() };
        let kind = match message {
            NetworkMessage::GetCFCheckpt(_) => Request::Checkpoints,
            NetworkMessage::GetCFHeaders(_) => Request::Headers,
            NetworkMessage::GetCFilters(_) => Request::Filters,
            NetworkMessage::GetData(_) => Request::Blocks,
            other => panic!("a client sends no {other:?}"),
        };
        if let NetworkMessage::GetData(items) = message {
            response.messages = items.iter().map(|item| self.block(world, item)).collect();
        } else {
            let services = ServiceFlags::NETWORK | ServiceFlags::COMPACT_FILTERS;
            let store = self.store();
            match store.answer(chain, services, message).expect("a request") {
                FilterResponse::Send(mut reply) => {
                    response.messages.extend(std::iter::from_fn(|| reply.next_message(store)));
                }
                FilterResponse::Silent { height } => panic!("no filter at height {height}"),
                FilterResponse::Disconnect(violation) => {
                    response.violation = Some(violation.to_string());
                    response.closes = true;
                }
                other => panic!("{other:?}"),
            }
        }
        self.twist(kind, &mut response);
        response
    }

    fn block(&mut self, world: &World, item: &Inventory) -> NetworkMessage {
        let Inventory::WitnessBlock(hash) = item else { panic!("{item:?} was asked for") };
        let missing = || NetworkMessage::NotFound(vec![*item]);
        let Some(&number) = world.by_hash.get(hash) else { return missing() };
        let block = &world.blocks[number].block;
        let Quirk::Blocks(lie) = self.plan.quirk else {
            return NetworkMessage::Block(block.clone());
        };
        let other = &world.blocks[self.rng.below(world.blocks.len())].block;
        match lie {
            BlockLie::Missing => missing(),
            BlockLie::Other => NetworkMessage::Block(other.clone()),
            _ => NetworkMessage::Block(false_block(lie, block.clone(), other, &mut self.rng)),
        }
    }

    /// Changes an answer according to the quirk.
    fn twist(&mut self, kind: Request, response: &mut Response) {
        let rng = &mut self.rng;
        match &self.plan.quirk {
            Quirk::Silent(which) if which.is_none_or(|which| which == kind) => {
                response.messages.clear();
            }
            Quirk::Late(delay) => response.delay += *delay,
            Quirk::Leaves(request) if self.requests >= *request => {
                response.messages.truncate(rng.below(response.messages.len() + 1));
                response.closes = true;
            }
            Quirk::None
            | Quirk::Blocks(_)
            | Quirk::Switches(_)
            | Quirk::Silent(_)
            | Quirk::Leaves(_) => {}
            Quirk::FalseCheckpoint => {
                for message in &mut response.messages {
                    if let NetworkMessage::CFCheckpt(message) = message
                        && let count @ 1.. = message.filter_headers.len()
                    {
                        message.filter_headers[rng.below(count)] = filter_header(rng);
                    }
                }
            }
            Quirk::FalseHash => {
                for message in &mut response.messages {
                    if let NetworkMessage::CFHeaders(message) = message {
                        let at = rng.below(message.filter_hashes.len());
                        message.filter_hashes[at] = FilterHash::from_byte_array(rng.array());
                    }
                }
            }
            Quirk::FalsePrevious => {
                for message in &mut response.messages {
                    if let NetworkMessage::CFHeaders(message) = message {
                        message.previous_filter_header = filter_header(rng);
                    }
                }
            }
            Quirk::FalseContent => {
                if let count @ 1.. = response.messages.len()
                    && let NetworkMessage::CFilter(message) =
                        &mut response.messages[rng.below(count)]
                {
                    message.filter.push(0);
                }
            }
            Quirk::Garbage => {
                for message in &mut response.messages {
                    spoil(rng, message);
                }
                match rng.below(4) {
                    0 => response.messages.clear(),
                    1 => response.messages.reverse(),
                    2 => response.messages.extend(response.messages.clone()),
                    _ => {}
                }
            }
        }
    }
}

fn filter_header(rng: &mut Rng) -> FilterHeader {
    FilterHeader::from_byte_array(rng.array())
}

/// In most cases, changes one part of a message.
fn spoil(rng: &mut Rng, message: &mut NetworkMessage) {
    let hash = BlockHash::from_byte_array(rng.array());
    let which = rng.below(6);
    match message {
        NetworkMessage::CFCheckpt(message) => match which {
            0 => message.filter_type = 1,
            1 => message.stop_hash = hash,
            2 => message.filter_headers.clear(),
            3 => message.filter_headers.push(filter_header(rng)),
            4 => message.filter_headers.resize(3_000, filter_header(rng)),
            _ => {}
        },
        NetworkMessage::CFHeaders(message) => match which {
            0 => message.filter_type = 1,
            1 => message.stop_hash = hash,
            2 => message.filter_hashes.clear(),
            3 => message.filter_hashes.push(FilterHash::from_byte_array(rng.array())),
            4 => message.filter_hashes.resize(2_500, FilterHash::from_byte_array(rng.array())),
            _ => drop(message.filter_hashes.pop()),
        },
        NetworkMessage::CFilter(message) => match which {
            0 if rng.one_in(8) => message.filter_type = 1,
            1 if rng.one_in(8) => message.block_hash = hash,
            2 if rng.one_in(8) => message.filter.clear(),
            3 if rng.one_in(8) => message.filter = rng.bytes(40),
            _ => {}
        },
        NetworkMessage::Block(block) => block.header.nonce ^= 1,
        _ => {}
    }
}

/// Returns a false block with the header of `block`.
fn false_block(lie: BlockLie, mut block: Block, other: &Block, rng: &mut Rng) -> Block {
    let inputs = |block: &mut Block, change: &mut dyn FnMut(usize, &mut Witness)| {
        for (place, transaction) in block.txdata.iter_mut().enumerate() {
            for input in &mut transaction.input {
                change(place, &mut input.witness);
            }
        }
    };
    match lie {
        BlockLie::Altered => block.txdata.clone_from(&other.txdata),
        BlockLie::Twice => match block.txdata.len() {
            // At an odd count, the tree itself repeats the last leaf, so repeating the transaction
            // keeps the root.
            count @ (3 | 5 | 7) => block.txdata.push(block.txdata[count - 1].clone()),
            count => block.txdata.push(block.txdata[rng.below(count)].clone()),
        },
        BlockLie::Stripped => inputs(&mut block, &mut |_, witness| witness.clear()),
        BlockLie::MadeUpWitness => {
            let made_up = Witness::from_slice(&[rng.bytes(71), rng.bytes(33)]);
            inputs(&mut block, &mut |place, witness| {
                if place > 0 && witness.is_empty() {
                    *witness = made_up.clone();
                }
            });
        }
        BlockLie::Missing | BlockLie::Other => unreachable!("no false block"),
    }
    block
}
