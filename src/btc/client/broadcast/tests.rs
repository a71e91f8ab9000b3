//! Broadcasts with peers that relay, peers that do not relay, and hostile peers: the messages that
//! they are sent and the news that results.

use bitcoin::absolute::LockTime;
use bitcoin::consensus::serialize;
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::Magic;
use bitcoin::p2p::message::RawNetworkMessage;
use bitcoin::p2p::message_network::{Reject, RejectReason};
use bitcoin::transaction::Version;
use bitcoin::{Amount, BlockHash, OutPoint, ScriptBuf, Sequence, TxIn, TxOut, Witness, Wtxid};

use super::*;
use crate::btc::protocol::MAX_INV_SIZE;

/// A plausible time of the system clock.
const START: Duration = Duration::from_secs(1_700_000_000);
/// Inventory types of BIP144, as encoded in messages.
const MSG_TX: u32 = 1;
const MSG_WITNESS_TX: u32 = 0x4000_0001;

/// A transaction with a witness, so that its txid and its wtxid differ.
fn tx(number: u32) -> Transaction {
    let previous_output = OutPoint { txid: Txid::from_byte_array([1; 32]), vout: number };
    let witness = Witness::from_slice(&[[number.to_le_bytes()[0]; 64]]);
    let (script_sig, sequence) = (ScriptBuf::new(), Sequence::MAX);
    Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: std::vec![TxIn { previous_output, script_sig, sequence, witness }],
        output: std::vec![TxOut {
            value: Amount::from_sat(1_000),
            script_pubkey: ScriptBuf::new_op_return([]),
        }],
    }
}

fn ids(numbers: impl IntoIterator<Item = u64>) -> Vec<PeerId> {
    numbers.into_iter().map(PeerId).collect()
}

/// Peers that offer Bloom filters, so that they answer probes.
fn with_filters(numbers: impl IntoIterator<Item = u64>) -> BTreeMap<PeerId, ServiceFlags> {
    numbers.into_iter().map(|id| (PeerId(id), ServiceFlags::BLOOM)).collect()
}

fn at(height: u32, branch: u8) -> BlockAt {
    BlockAt { height, hash: BlockHash::from_byte_array([branch; 32]) }
}

/// The broadcasts, the connected peers, and the messages and news since they were last taken.
struct World {
    broadcasts: Broadcasts,
    peers: BTreeMap<PeerId, ServiceFlags>,
    now: Duration,
    sent: Vec<(PeerId, NetworkMessage)>,
    news: Vec<(Txid, News)>,
}

impl World {
    fn new(peers: u64) -> Self {
        Self {
            broadcasts: Broadcasts::default(),
            peers: with_filters(1..=peers),
            now: START,
            sent: Vec::new(),
            news: Vec::new(),
        }
    }

    /// A world in which the transaction was announced to the first three peers, and they have
    /// requested it.
    fn asked(peers: u64, tx: &Transaction) -> Self {
        let mut world = Self::new(peers);
        world.offer(tx, None);
        assert_eq!(world.told(tx), ids(1..=3));
        for id in 1..=3 {
            world.get(id, tx);
        }
        world.news();
        world.sent.clear();
        world
    }

    fn keep(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Send(id, message) => self.sent.push((id, message)),
                Step::News(txid, news) => self.news.push((txid, news)),
            }
        }
    }

    fn next(&mut self) {
        let steps = self.broadcasts.next(&self.peers, self.now);
        self.keep(steps);
    }

    fn offer(&mut self, tx: &Transaction, rate: Option<FeeRate>) -> Vec<Txid> {
        let dropped = self.broadcasts.add(tx.clone(), rate, self.now);
        self.next();
        dropped
    }

    fn take(&mut self, id: u64, message: &NetworkMessage) {
        let steps = self.broadcasts.take(PeerId(id), message);
        self.keep(steps);
        self.next();
    }

    /// A peer requests a transaction as Core does from a peer that does not offer witnesses.
    fn get(&mut self, id: u64, tx: &Transaction) {
        let items = std::vec![Inventory::Transaction(tx.compute_txid())];
        self.take(id, &NetworkMessage::GetData(items));
    }

    /// A peer announces a transaction.
    fn announce(&mut self, id: u64, tx: &Transaction) {
        let items = std::vec![Inventory::Transaction(tx.compute_txid())];
        self.take(id, &NetworkMessage::Inv(items));
    }

    fn connect(&mut self, id: u64) {
        self.peers.insert(PeerId(id), ServiceFlags::BLOOM);
        self.next();
    }

    fn disconnect(&mut self, id: u64) {
        self.peers.remove(&PeerId(id));
        self.broadcasts.disconnected(PeerId(id));
        self.next();
    }

    /// Advances the time second by second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            self.next();
        }
    }

    /// The peers that were sent a message accepted by `is_wanted`, in order.
    fn sent_to(&self, is_wanted: impl Fn(&NetworkMessage) -> bool) -> Vec<PeerId> {
        let wanted = self.sent.iter().filter(|(_, message)| is_wanted(message));
        wanted.map(|(id, _)| *id).collect()
    }

    /// The peers to which a transaction was announced.
    fn told(&self, tx: &Transaction) -> Vec<PeerId> {
        let item = Inventory::Transaction(tx.compute_txid());
        self.sent_to(|message| matches!(message, NetworkMessage::Inv(of) if of.contains(&item)))
    }

    /// The peers that were probed for a transaction.
    fn probed(&self, tx: &Transaction) -> Vec<PeerId> {
        let item = Inventory::WitnessTransaction(tx.compute_txid());
        self.sent_to(|message| matches!(message, NetworkMessage::GetData(of) if of.contains(&item)))
    }

    /// The peers that were sent a transaction with its witnesses.
    fn answered(&self, tx: &Transaction) -> Vec<PeerId> {
        self.sent_to(|message| matches!(message, NetworkMessage::Tx(sent) if sent == tx))
    }

    fn news(&mut self) -> Vec<News> {
        core::mem::take(&mut self.news).into_iter().map(|(_, news)| news).collect()
    }
}

/// The encoded payload of a message.
fn payload(message: &NetworkMessage) -> Vec<u8> {
    let message = RawNetworkMessage::new(Magic::REGTEST, message.clone());
    // 24 bytes precede the payload: the magic, the command, the length and the checksum.
    serialize(&message)[24..].to_vec()
}

/// The encoded payload of an `inv` or `getdata` with one item.
fn inventory(kind: u32, hash: &[u8; 32]) -> Vec<u8> {
    [&[1], kind.to_le_bytes().as_slice(), hash].concat()
}

#[test]
fn three_are_told_at_first_and_are_sent_it_on_request() {
    let tx = tx(1);
    let txid = tx.compute_txid();
    let mut world = World::new(8);
    world.offer(&tx, None);
    assert_eq!(world.told(&tx), ids(1..=3));
    let offered = |id| News::Offered(PeerId(id));
    assert_eq!(world.news(), [offered(1), offered(2), offered(3)]);
    for (_, message) in &world.sent {
        assert_eq!(message.cmd(), "inv");
        assert_eq!(payload(message), inventory(MSG_TX, txid.as_byte_array()));
    }
    // Peer 1 requests the transaction without the flag of BIP144, and peer 2 requests it with the
    // flag. Core requests witnesses only from a peer that offers them, but needs them in any case.
    world.get(1, &tx);
    world.take(2, &NetworkMessage::GetData(std::vec![Inventory::WitnessTransaction(txid)]));
    assert_eq!(world.answered(&tx), ids([1, 2]));
    assert_eq!(world.news(), [News::Requested(PeerId(1)), News::Requested(PeerId(2))]);
    // A peer that has received the announcement gets no second one.
    world.pass(4);
    assert_eq!(world.told(&tx).len(), 3);
}

#[test]
fn with_few_peers_all_are_told_and_later_ones_up_to_three() {
    let tx = tx(1);
    let mut world = World::new(1);
    world.offer(&tx, None);
    for id in 2..=5 {
        world.connect(id);
    }
    assert_eq!(world.told(&tx), ids(1..=3));
}

#[test]
fn who_was_not_told_is_sent_nothing() {
    let tx = tx(1);
    let mut world = World::new(4);
    world.offer(&tx, None);
    world.news();
    world.get(4, &tx);
    assert_eq!((world.answered(&tx), world.news()), (ids([]), std::vec![]));
    // The request of peer 4 is not recorded: no peer with the announcement has requested the
    // transaction. So after 30 seconds the transaction is announced to all peers.
    world.pass(31);
    assert_eq!(world.told(&tx), ids(1..=4));
}

#[test]
fn a_request_names_the_txid() {
    let tx = tx(1);
    let wtxid = tx.compute_wtxid();
    let mut world = World::new(3);
    world.offer(&tx, None);
    world.news();
    assert_ne!(wtxid.to_byte_array(), tx.compute_txid().to_byte_array());
    // The flag of BIP144 changes how a transaction is encoded, not which transaction is meant. A
    // wtxid has an inventory type of its own, which both sides must negotiate first (BIP339).
    let as_txid = Txid::from_byte_array(wtxid.to_byte_array());
    for item in [Inventory::WitnessTransaction(as_txid), Inventory::WTx(wtxid)] {
        world.take(1, &NetworkMessage::GetData(std::vec![item]));
        assert_eq!((world.answered(&tx), world.news()), (ids([]), std::vec![]), "{item:?}");
    }
}

#[test]
fn a_transaction_is_sent_once_a_message_and_seldom_to_one_peer() {
    let (first, second) = (tx(1), tx(2));
    let mut world = World::new(3);
    world.offer(&first, None);
    world.offer(&second, None);
    world.news();
    let (one, two) = (first.compute_txid(), second.compute_txid());
    // This is the longest message that a node accepts, with both kinds of item.
    let mut items = std::vec![Inventory::Transaction(one); MAX_INV_SIZE - 2];
    items.extend([Inventory::WitnessTransaction(one), Inventory::WitnessTransaction(two)]);
    world.take(1, &NetworkMessage::GetData(items.clone()));
    assert_eq!((world.answered(&first), world.answered(&second)), (ids([1]), ids([1])));
    assert_eq!(world.news(), [News::Requested(PeerId(1)), News::Requested(PeerId(1))]);
    for _ in 0..1_000 {
        world.take(1, &NetworkMessage::GetData(items[..10].to_vec()));
    }
    assert_eq!(world.answered(&first), ids([1, 1, 1]));
    assert_eq!(world.news(), []);
    // Another peer still gets the transaction.
    world.get(2, &first);
    assert_eq!(world.answered(&first), ids([1, 1, 1, 2]));
}

#[test]
fn many_offers_go_in_one_message_in_their_order() {
    let all: Vec<_> = (0..100).map(tx).collect();
    let mut world = World::new(0);
    for tx in &all {
        world.offer(tx, None);
    }
    for id in 1..=2 {
        world.connect(id);
        // A parent is announced before its child.
        let items = all.iter().map(|tx| Inventory::Transaction(tx.compute_txid())).collect();
        assert_eq!(world.sent, [(PeerId(id), NetworkMessage::Inv(items))]);
        world.sent.clear();
    }
    // All requested transactions are sent, in the order of the request.
    let order: Vec<_> = all.iter().rev().cloned().collect();
    let items = order.iter().map(|tx| Inventory::Transaction(tx.compute_txid())).collect();
    world.take(1, &NetworkMessage::GetData(items));
    let sent: Vec<_> = order.into_iter().map(|tx| (PeerId(1), NetworkMessage::Tx(tx))).collect();
    assert_eq!(world.sent, sent);
    // The peer without an announcement is also probed in one message.
    world.connect(3);
    world.connect(4);
    world.sent.clear();
    world.pass(5);
    let [(PeerId(4), NetworkMessage::GetData(items))] = world.sent.as_slice() else {
        panic!("{:?}", world.sent)
    };
    assert_eq!(items.len(), 100);
}

#[test]
fn without_a_request_all_are_told_after_half_a_minute() {
    let tx = tx(1);
    let mut world = World::new(8);
    world.offer(&tx, None);
    world.pass(30);
    assert_eq!(world.told(&tx), ids(1..=3));
    world.pass(1);
    assert_eq!(world.told(&tx), ids(1..=8));
    // Peers that connect later get the announcement too.
    world.connect(9);
    assert_eq!(world.told(&tx), ids(1..=9));
    // No peer has requested the transaction, so no peer can have it.
    world.pass(3_600);
    assert_eq!(world.probed(&tx), []);
    assert_eq!(world.told(&tx).len(), 9);
}

#[test]
fn who_was_not_told_is_asked_for_it() {
    let tx = tx(1);
    let mut world = World::asked(6, &tx);
    world.pass(4);
    assert_eq!(world.sent, []);
    world.pass(1);
    assert_eq!(world.probed(&tx), ids(4..=6));
    for (_, message) in &world.sent {
        assert_eq!(message.cmd(), "getdata");
        let expected = inventory(MSG_WITNESS_TX, tx.compute_txid().as_byte_array());
        assert_eq!(payload(message), expected);
    }
    world.sent.clear();
    // Peers 4 and 5 have the transaction: peer 4 shows this by `tx` and `inv`, and peer 5 by `inv`.
    world.take(4, &NetworkMessage::Tx(tx.clone()));
    world.take(4, &NetworkMessage::Tx(tx.clone()));
    world.announce(4, &tx);
    world.announce(5, &tx);
    // If a peer that got the announcement announces the transaction itself, this does not prove
    // that the network relayed the transaction.
    world.announce(1, &tx);
    assert_eq!(world.news(), [News::Seen(PeerId(4)), News::Seen(PeerId(5))]);
    // Peer 6 is probed again after the two minutes of Core, but not for ever.
    world.pass(120);
    assert_eq!(world.sent, []);
    world.pass(3_600);
    assert_eq!(world.probed(&tx), [PeerId(6); 9]);
    // The transaction was relayed, so it is announced to no further peer.
    assert_eq!(world.told(&tx), []);
}

#[test]
fn other_transactions_say_nothing_of_an_offer() {
    let mut world = World::asked(4, &tx(1));
    world.take(4, &NetworkMessage::Tx(tx(2)));
    world.announce(4, &tx(2));
    let wtxid = Wtxid::from_byte_array(tx(1).compute_txid().to_byte_array());
    world.take(4, &NetworkMessage::Inv(std::vec![Inventory::WTx(wtxid)]));
    assert_eq!((world.news(), world.sent.len()), (std::vec![], 0));
}

#[test]
fn peers_that_ask_and_do_not_relay_cannot_keep_it_from_the_others() {
    let tx = tx(1);
    let mut world = World::asked(8, &tx);
    // These seconds cover the first probe, the second probe after Core's two minutes, and 30
    // seconds in which an answer could arrive.
    world.pass(5 + 130 + 30);
    assert_eq!((world.probed(&tx).len(), world.told(&tx)), (10, ids([])));
    world.pass(1);
    assert_eq!(world.told(&tx), ids(4..=8));
    assert_eq!(world.news(), (4..=8).map(|id| News::Offered(PeerId(id))).collect::<Vec<_>>());
    world.get(8, &tx);
    assert_eq!(world.answered(&tx), ids([8]));
    // Peers that connect later get the announcement too.
    world.connect(9);
    assert_eq!(world.told(&tx).last(), Some(&PeerId(9)));
}

/// Core answers no `getdata` for a transaction of this client, which wants no announcements, unless
/// Core offers Bloom filters.
#[test]
fn only_peers_that_would_answer_are_asked_for_it() {
    let tx = tx(1);
    let mut world = World::asked(3, &tx);
    let core = ServiceFlags::NETWORK | ServiceFlags::WITNESS | ServiceFlags::COMPACT_FILTERS;
    world.peers.extend([(PeerId(4), core), (PeerId(5), core | ServiceFlags::BLOOM)]);
    world.pass(5 + 130 + 30);
    assert_eq!((world.probed(&tx), world.told(&tx)), (ids([5, 5]), ids([])));
    // Nobody has shown the transaction, so everyone is told of it.
    world.pass(1);
    assert_eq!(world.told(&tx), ids([4, 5]));
    world.connect(6);
    assert_eq!(world.told(&tx), ids([4, 5, 6]));
}

#[test]
fn who_takes_no_such_fee_is_not_told_until_it_does() {
    // BIP133 gives rates per 1,000 virtual bytes: 5 sat/vB are 5,000 in this unit.
    let rate = FeeRate::from_sat_per_vb(5).unwrap();
    let tx = tx(1);
    let mut world = World::new(0);
    world.take(1, &NetworkMessage::FeeFilter(6_000));
    // A rate equal to the minimum is accepted.
    world.take(2, &NetworkMessage::FeeFilter(5_000));
    // A negative rate is not a valid amount, and Core ignores it.
    world.take(3, &NetworkMessage::FeeFilter(-1));
    world.take(5, &NetworkMessage::FeeFilter(i64::MAX));
    world.peers = with_filters(1..=5);
    world.offer(&tx, Some(rate));
    assert_eq!(world.told(&tx), ids(2..=4));
    let too_low = News::FeeTooLow(PeerId(1), FeeRate::from_sat_per_vb(6).unwrap());
    assert_eq!(world.news().iter().filter(|news| **news == too_low).count(), 1);
    // No peer requests the transaction, so it is announced to all peers that accept its rate. Peer
    // 5 is found to refuse the rate only now.
    world.pass(31);
    assert_eq!(world.told(&tx), ids(2..=4));
    assert!(matches!(world.news().as_slice(), [News::FeeTooLow(PeerId(5), _)]));
    // The minimum is lower, but still too high.
    world.take(1, &NetworkMessage::FeeFilter(5_004));
    assert_eq!((world.told(&tx), world.news()), (ids(2..=4), std::vec![]));
    world.take(1, &NetworkMessage::FeeFilter(5_000));
    assert_eq!(
        (world.told(&tx), world.news()),
        (ids([2, 3, 4, 1]), [News::Offered(PeerId(1))].into())
    );
    world.get(1, &tx);
    assert_eq!(world.answered(&tx), ids([1]));
    // Peer 1 has had the announcement and gets no second announcement.
    world.take(1, &NetworkMessage::FeeFilter(6_000));
    world.take(1, &NetworkMessage::FeeFilter(1_000));
    assert_eq!((world.told(&tx).len(), world.news()), (4, [News::Requested(PeerId(1))].into()));
}

#[test]
fn a_lower_fee_filter_is_of_no_account_where_three_are_told_or_no_rate_is_known() {
    let [tx, other, last] = [1, 2, 3].map(tx);
    let mut world = World::new(5);
    world.take(1, &NetworkMessage::FeeFilter(2_000));
    world.offer(&tx, FeeRate::from_sat_per_vb(1));
    assert_eq!(world.told(&tx), ids(2..=4));
    world.get(2, &tx);
    world.take(1, &NetworkMessage::FeeFilter(1_000));
    assert_eq!(world.told(&tx), ids(2..=4));
    world.take(1, &NetworkMessage::FeeFilter(1_000_000));
    world.offer(&other, None);
    assert_eq!(world.told(&other), ids(1..=3));
    // A fee filter is valid only for its connection.
    world.disconnect(1);
    world.connect(1);
    world.offer(&last, FeeRate::from_sat_per_vb(1));
    assert_eq!(world.told(&last), ids(1..=3));
}

#[test]
fn a_rejection_is_told_once_and_only_of_who_was_told() {
    let [tx, other] = [1, 2].map(tx);
    let reject = |hash| {
        NetworkMessage::Reject(Reject {
            message: "tx".into(),
            ccode: RejectReason::Dust,
            reason: "du\x1b[31mst\n".into(),
            hash,
        })
    };
    let mut world = World::new(4);
    world.offer(&tx, None);
    world.news();
    // BIP61: the hash in `reject` is the txid.
    let message = reject(tx.compute_txid().to_raw_hash());
    world.take(4, &message);
    world.take(1, &reject(other.compute_txid().to_raw_hash()));
    assert_eq!(world.news(), []);
    for _ in 0..10 {
        world.take(1, &message);
    }
    assert_eq!(world.news(), [News::Rejected(PeerId(1), "du\\u{1b}[31mst\\n".into())]);
    world.take(2, &message);
    assert!(matches!(world.news().as_slice(), [News::Rejected(PeerId(2), _)]));
}

#[test]
fn what_is_mined_rests_until_its_block_leaves_the_chain() {
    let [tx, other] = [1, 2].map(tx);
    let txid = tx.compute_txid();
    let mut world = World::new(0);
    world.offer(&tx, None);
    assert!(!world.broadcasts.set_mined(&other.compute_txid(), at(100, 1)));
    assert!(world.broadcasts.set_mined(&txid, at(100, 1)));
    assert!(!world.broadcasts.set_mined(&txid, at(100, 1)));
    world.connect(1);
    world.pass(3_600);
    assert_eq!(world.told(&tx), []);
    // A repeated broadcast changes nothing while the transaction is in a block.
    world.offer(&tx, None);
    assert_eq!(world.told(&tx), []);
    // The block of the transaction stays if only blocks above that block leave the chain.
    assert_eq!(world.broadcasts.roll_back(100), []);
    assert_eq!(world.broadcasts.roll_back(99), [txid]);
    assert_eq!(world.broadcasts.roll_back(99), []);
    world.next();
    assert_eq!(world.told(&tx), ids([1]));
    // The transaction is now in another block at the same height.
    assert!(world.broadcasts.set_mined(&txid, at(100, 2)));
}

#[test]
fn the_oldest_of_more_than_a_hundred_is_dropped() {
    let all: Vec<_> = (0..102).map(tx).collect();
    let mut world = World::new(1);
    for tx in &all[..100] {
        assert_eq!(world.offer(tx, None), []);
    }
    // The first transaction is broadcast again and is now the newest.
    assert_eq!(world.offer(&all[0], None), []);
    for (new, old) in [(100, 1), (101, 2)] {
        assert_eq!(world.offer(&all[new], None), [all[old].compute_txid()]);
        world.get(1, &all[old]);
        assert_eq!(world.answered(&all[old]), []);
    }
    for tx in all[..1].iter().chain(&all[3..]) {
        world.get(1, tx);
        assert_eq!(world.answered(tx), ids([1]));
    }
}

#[test]
fn what_is_broadcast_again_is_told_again() {
    let tx = tx(1);
    let mut world = World::asked(5, &tx);
    world.announce(4, &tx);
    world.pass(3_600);
    world.sent.clear();
    world.offer(&tx, None);
    assert_eq!(world.told(&tx), ids(1..=3));
}

#[test]
fn another_is_told_for_one_that_leaves_and_who_returns_is_new() {
    let tx = tx(1);
    let mut world = World::asked(4, &tx);
    world.disconnect(2);
    assert_eq!(world.told(&tx), ids([4]));
    world.connect(2);
    assert_eq!(world.told(&tx), ids([4]));
    world.get(2, &tx);
    assert_eq!(world.answered(&tx), []);
    // The earlier request is still remembered after its peers have left: the peer without an
    // announcement is probed.
    for id in [1, 3, 4] {
        world.disconnect(id);
    }
    assert_eq!(world.told(&tx), ids([4, 2]));
    world.connect(5);
    world.connect(6);
    world.connect(7);
    world.sent.clear();
    world.pass(31);
    assert_eq!((world.probed(&tx), world.told(&tx)), (ids([7]), ids([])));
    // A peer that had the transaction and reconnects is reported once more.
    world.news();
    world.announce(7, &tx);
    world.disconnect(7);
    world.connect(7);
    world.announce(7, &tx);
    assert_eq!(world.news(), [News::Seen(PeerId(7)), News::Seen(PeerId(7))]);
    // The transaction is still treated as relayed after the peers that had the transaction have
    // left.
    world.pass(3_600);
    assert_eq!(world.told(&tx), []);
}

#[test]
fn peers_that_come_and_go_leave_nothing_behind() {
    let tx = tx(1);
    let mut world = World::asked(8, &tx);
    for id in 9..1_000 {
        world.connect(id);
        world.take(id, &NetworkMessage::FeeFilter(1_000));
        world.announce(id, &tx);
        world.disconnect(id);
    }
    assert_eq!(world.broadcasts.fee_filters.len(), 0);
    let offer = &world.broadcasts.offers[&tx.compute_txid()];
    assert!(offer.states.len() <= world.peers.len());
}

#[test]
fn a_clock_that_is_set_back_is_waited_for() {
    let (heard, unheard) = (tx(1), tx(2));
    let mut world = World::asked(4, &heard);
    world.offer(&unheard, None);
    world.now -= Duration::from_secs(1_000);
    world.pass(1_000);
    assert_eq!((world.probed(&heard), world.told(&unheard)), (ids([]), ids(1..=3)));
    world.pass(31);
    assert_eq!((world.probed(&heard), world.told(&unheard)), (ids([4]), ids(1..=4)));
}
