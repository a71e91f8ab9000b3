//! The session: filter, requests and fences.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use bitcoin::{BlockHash, Txid};

use super::blocks::OpenBlock;
use super::claims::Answer;
use super::recent::Recent;
use super::watch::WatchSet;
use super::{
    Action, Config, Event, FilterPolicy, Finding, MatchStats, Message, PrivacyReport, Watched,
};
use crate::btc::bip37::{AddedData, BloomFilter, HeaderLink, MAX_FILTERADD_SIZE};
use crate::btc::headers::BlockAt;

/// A wallet's connection to a node with bloom filters, one at a time.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use chainsieve::bitcoin::{Network, ScriptBuf, WPubkeyHash, hashes::Hash};
/// use chainsieve::btc::bip37::wallet::*;
///
/// let policy = FilterPolicy::new(0x5eed);
/// let mut session = Session::new(Config::new(Network::Bitcoin, policy));
/// let script = ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array([7; 20]));
/// let label = Some(Label { keychain: 0, index: 0 });
/// session.handle(Event::Watch(vec![Watched::Script { script, label }]), Duration::ZERO);
/// let actions = session.handle(Event::Connected, Duration::ZERO);
/// let loads = |action: &Action| matches!(action, Action::Send(Message::FilterLoad(_)));
/// assert!(actions.iter().any(loads));
/// // To be kept with the tweak: room for this script and 100 elements more.
/// assert_eq!(session.filter_policy().capacity, 101);
/// ```
#[derive(Debug, Clone)]
pub struct Session {
    pub(super) config: Config,
    pub(super) watch: WatchSet,
    pub(super) connection: Option<Connection>,
    /// Connections so far.
    pub(super) connections: u64,
    pub(super) queue: VecDeque<BlockAt>,
    pub(super) tip: Option<u32>,
    pub(super) stats: MatchStats,
    pub(super) refresh_advised: bool,
    /// Elements that the node's filter lacks.
    pub(super) filter_is_behind: bool,
    /// The lowest block from which transactions may have been missed.
    pub(super) refilter: Option<BlockAt>,
    /// The highest index used of each keychain.
    pub(super) used: BTreeMap<u32, u32>,
    /// Keychains that have advanced and got no scripts since; with the lowest block of the chain
    /// that was answered since, from the one that advanced it on.
    pub(super) advanced: BTreeMap<u32, Option<BlockAt>>,
    pub(super) recent: Recent,
    pub(super) missing: BTreeMap<Txid, (BlockAt, u32)>,
    pub(super) answers: VecDeque<Answer>,
    last_parameters: Option<(usize, u32)>,
    /// The fences sent on this connection; the end is the next one. See [`ping_nonce`].
    pub(super) fences: Range<u64>,
}

/// What holds for one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Connection {
    /// The filter as loaded, and a lower bound of the node's.
    pub(super) filter: Option<(Arc<BloomFilter>, BloomFilter)>,
    /// Counts filters loaded.
    pub(super) generation: u64,
    pub(super) in_flight: VecDeque<InFlight>,
    pub(super) open: Option<OpenBlock>,
    /// Blocks whose request was passed over: a late answer could be taken for one to another.
    pub(super) passed_over: BTreeSet<BlockHash>,
    /// The node did not answer each request once.
    pub(super) out_of_turn: bool,
    stall_reported: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    pub(super) block: BlockAt,
    pub(super) generation: u64,
    /// Its answers come before the `pong` of this fence.
    pub(super) fence: u64,
    /// It is asked for again later: what it misses is of no concern.
    pub(super) superseded: bool,
    /// The caller's chain has not dropped it since.
    pub(super) in_chain: bool,
    sent: Duration,
}

/// The most that one `getdata` may ask for (Core's `MAX_INV_SZ`).
const MAX_INV_SIZE: usize = 50_000;

/// An odd number (2^64 over the golden ratio), and its inverse modulo 2^64.
const NONCE_FACTOR: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xf1de_83e1_9937_733d];

/// The nonce of a fence's ping: fences follow one another, and often from 0, as the nonces of
/// the caller's own pings may.
pub(super) fn ping_nonce(fence: u64) -> u64 {
    fence.wrapping_mul(NONCE_FACTOR[0]) ^ NONCE_FACTOR[1]
}

/// The fence whose ping has this nonce.
pub(super) fn fence_of(nonce: u64) -> u64 {
    (nonce ^ NONCE_FACTOR[1]).wrapping_mul(NONCE_FACTOR[1])
}

/// Collects actions.
pub(super) type Actions = Vec<Action>;

pub(super) fn report(actions: &mut Actions, finding: Finding) {
    actions.push(Action::Report(finding));
}

impl Session {
    /// A session that watches nothing and is not connected.
    pub fn new(config: Config) -> Self {
        let first_fence = u64::from(config.filter.tweak) << 31;
        Self {
            watch: WatchSet::new(config.filter.insert_keys, config.filter.insert_null_outpoint),
            config,
            connection: None,
            connections: 0,
            queue: VecDeque::new(),
            tip: None,
            stats: MatchStats::new(0.0),
            refresh_advised: false,
            filter_is_behind: false,
            refilter: None,
            used: BTreeMap::new(),
            advanced: BTreeMap::new(),
            recent: Recent::default(),
            missing: BTreeMap::new(),
            answers: VecDeque::new(),
            last_parameters: None,
            fences: first_fence..first_fence,
        }
    }

    /// The policy with the capacity as it is now. Keep tweak and capacity with the wallet.
    pub fn filter_policy(&self) -> &FilterPolicy {
        &self.config.filter
    }

    /// The number of the present connection, or of the last: they count from 1, one for each
    /// [`Event::Connected`], and it is 0 before the first.
    ///
    /// Findings about an answer say the connection that it came on. Note which node each was to:
    /// answers that can be held against a node outlive its connection.
    pub fn connection(&self) -> u64 {
        self.connections
    }

    /// The node's filter as far as it can be followed: it may hold more.
    pub fn mirrored_filter(&self) -> Option<&BloomFilter> {
        self.connection.as_ref()?.filter.as_ref().map(|(_, mirror)| mirror)
    }

    /// How often foreign transactions matched since the filter was loaded.
    pub fn match_stats(&self) -> &MatchStats {
        &self.stats
    }

    /// Requests not closed yet: sent or not.
    pub fn pending_requests(&self) -> usize {
        let sent = self.connection.as_ref().map_or(0, |connection| {
            connection.in_flight.len() + usize::from(connection.open.is_some())
        });
        self.queue.len() + sent
    }

    /// Takes an event at the time `now`, counted from any one moment, and returns what to do, in
    /// order. Where `now` is less than before, waiting counts from there.
    ///
    /// # Cost
    /// In proportion to the event: an answer's tree and transactions, a claim's path. Loading a
    /// filter inserts everything watched; watching more compares the transactions kept of those
    /// that came outside of blocks.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Connected => self.connect(&mut actions),
            Event::Disconnected => self.disconnect(),
            Event::Watch(watched) => self.add_watched(watched, &mut actions),
            Event::Request(blocks) => self.request(blocks, &mut actions),
            Event::Tip(height) => self.tip = Some(height),
            Event::Reorganized(height) => self.reorganize(height),
            Event::Used(label) => {
                let used = self.used.entry(label.keychain).or_insert(label.index);
                *used = label.index.max(*used);
            }
            Event::Refresh => self.load(&mut actions),
            Event::MerkleBlock(block) => self.merkle_block(block, &mut actions),
            Event::Tx(tx) => self.transaction(tx, &mut actions),
            Event::Pong(nonce) => {
                self.close(&mut actions);
                self.fence(fence_of(nonce), &mut actions);
            }
            Event::Other => self.close(&mut actions),
            Event::OmissionClaim(block, shown) => self.omission(block, &shown, &mut actions),
            Event::HeightClaim(block, shown) => self.height(block, &shown, &mut actions),
            Event::Tick => {}
        }
        self.catch_up(&mut actions);
        self.send_requests(now, &mut actions);
        self.check_patience(now, &mut actions);
        actions
    }

    fn connect(&mut self, actions: &mut Actions) {
        self.disconnect();
        self.connection = Some(Connection::default());
        self.connections += 1;
        self.fences.start = self.fences.end;
        self.load(actions);
    }

    fn disconnect(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let open = connection.open.map(|open| open.request);
        let in_flight = connection.in_flight.into_iter().chain(open);
        let mut again: Vec<_> = in_flight.filter(|r| !r.superseded).map(|r| r.block).collect();
        again.sort_by_key(|block| block.height);
        for block in again.into_iter().rev() {
            self.queue.push_front(block);
        }
        self.answers.retain(|answer| answer.settled);
    }

    fn add_watched(&mut self, watched: Vec<Watched>, actions: &mut Actions) {
        let mut keychains = BTreeSet::new();
        let mut is_new = false;
        for watched in watched {
            let label = match &watched {
                Watched::Key { label, .. } | Watched::Script { label, .. } => *label,
                Watched::OutPoint(_) => None,
            };
            match self.watch.watch(watched) {
                Ok(new) => {
                    is_new |= new.element || new.script;
                    self.filter_is_behind |= new.element;
                    // What pays to a script whose element was there was taken for foreign.
                    let counts = new.element || new.script;
                    keychains.extend(label.filter(|_| counts).map(|label| label.keychain));
                }
                Err(script) => report(actions, Finding::Unwatchable(script)),
            }
        }
        for keychain in keychains {
            if let Some(Some(block)) = self.advanced.remove(&keychain) {
                self.refilter_from(block);
            }
        }
        if is_new {
            self.compare_again(actions);
        }
    }

    /// Requests whose answers count.
    fn in_flight(&self) -> impl Iterator<Item = &InFlight> {
        let connection = self.connection.iter();
        connection
            .flat_map(|c| c.in_flight.iter().chain(c.open.iter().map(|open| &open.request)))
            .filter(|request| !request.superseded)
    }

    pub(super) fn refilter_from(&mut self, block: BlockAt) {
        if self.refilter.is_none_or(|lowest| block.height < lowest.height) {
            self.refilter = Some(block);
        }
    }

    fn request(&mut self, blocks: Vec<BlockAt>, actions: &mut Actions) {
        let room = self.config.limits.queued.saturating_sub(self.queue.len());
        let excess = blocks.len().saturating_sub(room);
        self.queue.extend(blocks.into_iter().take(room));
        if excess > 0 {
            report(actions, Finding::LimitReached(excess));
        }
    }

    fn reorganize(&mut self, height: u32) {
        self.queue.retain(|block| block.height < height);
        self.missing.retain(|_, (block, _)| block.height < height);
        self.recent.reorganize(height);
        // The blocks in their place are noted as they are answered.
        for block in self.advanced.values_mut() {
            block.take_if(|block| block.height >= height);
        }
        if let Some(connection) = &mut self.connection {
            let open = connection.open.iter_mut().map(|open| &mut open.request);
            for request in connection.in_flight.iter_mut().chain(open) {
                let gone = request.block.height >= height;
                request.superseded |= gone;
                request.in_chain &= !gone;
            }
        }
    }

    /// Blocks under way are answered without what the node's filter gets only now.
    fn refilter_what_is_under_way(&mut self) {
        let blocks = self.in_flight().map(|request| request.block);
        if let Some(lowest) = blocks.min_by_key(|block| block.height) {
            self.refilter_from(lowest);
        }
    }

    /// Loads the filter of everything watched, if that is anything.
    fn load(&mut self, actions: &mut Actions) {
        self.filter_is_behind = false;
        let elements = self.watch.num_elements();
        let Some(connection) = &mut self.connection else { return };
        if elements == 0 {
            return;
        }
        let mut policy = self.config.filter;
        policy.grow(elements);
        let filter = match policy.build(&self.watch) {
            Ok(filter) => filter,
            Err(error) => {
                // Starting over with the same filter would never end.
                self.refilter = None;
                return report(actions, Finding::NoFilter(error));
            }
        };
        let lacks = |mirror: &BloomFilter| self.watch.elements().any(|e| !mirror.contains(e));
        let is_late = connection.filter.as_ref().is_some_and(|(_, mirror)| lacks(mirror));
        self.config.filter = policy;
        self.stats = MatchStats::new(filter.false_positive_rate());
        self.refresh_advised = false;
        connection.generation += 1;
        connection.filter = Some((Arc::new(filter.clone()), filter.clone()));
        let parameters = (filter.data().len(), filter.hash_funcs());
        if self.last_parameters != Some(parameters) {
            let own = self.watch.num_addresses();
            let mut privacy = PrivacyReport::new(&filter, own, self.config.address_population);
            privacy.parameters_changed = self.last_parameters.is_some();
            privacy.keys_inserted = self.config.filter.insert_keys;
            report(actions, Finding::Privacy(privacy));
            self.last_parameters = Some(parameters);
        }
        actions.push(Action::Send(Message::FilterLoad(filter)));
        if is_late {
            self.refilter_what_is_under_way();
        }
    }

    /// Brings the node's filter up to date, and starts over where that came too late.
    fn catch_up(&mut self, actions: &mut Actions) {
        if self.filter_is_behind && !self.add_to_filter(actions) {
            self.load(actions);
        }
        let Some(mut from) = self.refilter.take() else { return };
        let pending = self.in_flight().map(|request| request.block);
        for block in pending.chain(self.queue.iter().copied()) {
            if block.height < from.height {
                from = block;
            }
        }
        self.queue.clear();
        if let Some(connection) = &mut self.connection {
            let open = connection.open.iter_mut().map(|open| &mut open.request);
            for request in connection.in_flight.iter_mut().chain(open) {
                request.superseded = true;
            }
        }
        report(actions, Finding::Refilter(from));
    }

    /// Sends what is missing as `filteradd`, if the policy says so and there is room.
    fn add_to_filter(&mut self, actions: &mut Actions) -> bool {
        let policy = &self.config.filter;
        if !policy.use_filteradd || self.watch.num_elements() > policy.capacity {
            return false;
        }
        let Some((_, mirror)) = self.connection.as_mut().and_then(|c| c.filter.as_mut()) else {
            return false;
        };
        if self.watch.elements().any(|element| element.len() > MAX_FILTERADD_SIZE) {
            return false;
        }
        let mut is_late = false;
        for element in self.watch.elements() {
            if mirror.contains(element) {
                continue;
            }
            let Ok(data) = AddedData::new(element) else { continue };
            mirror.insert(element);
            actions.push(Action::Send(Message::FilterAdd(data)));
            is_late = true;
        }
        self.filter_is_behind = false;
        if is_late {
            self.refilter_what_is_under_way();
        }
        true
    }

    /// Asks for as many blocks as may be under way, with a fence behind them.
    fn send_requests(&mut self, now: Duration, actions: &mut Actions) {
        let Some(connection) = &mut self.connection else { return };
        let limit = self.config.limits.in_flight.min(MAX_INV_SIZE);
        let room = limit.saturating_sub(connection.in_flight.len());
        if connection.filter.is_none() || room * 2 < limit {
            return;
        }
        let mut blocks = Vec::new();
        while blocks.len() < room {
            let Some(&block) = self.queue.front() else { break };
            // Two answers for one block could not be told apart.
            let open = connection.open.as_ref().map(|open| open.request.block.hash);
            let asked = connection.in_flight.iter().any(|request| request.block.hash == block.hash);
            if asked || open == Some(block.hash) {
                break;
            }
            self.queue.pop_front();
            blocks.push(block.hash);
            connection.in_flight.push_back(InFlight {
                block,
                generation: connection.generation,
                fence: self.fences.end,
                superseded: false,
                in_chain: true,
                sent: now,
            });
        }
        if !blocks.is_empty() {
            actions.push(Action::Send(Message::GetFilteredBlocks(blocks)));
            actions.push(Action::Send(Message::Ping(ping_nonce(self.fences.end))));
            self.fences.end += 1;
        }
    }

    fn check_patience(&mut self, now: Duration, actions: &mut Actions) {
        let Some(connection) = &mut self.connection else { return };
        let open = connection.open.as_mut().map(|open| &mut open.request);
        let Some(oldest) = open.or(connection.in_flight.front_mut()) else {
            connection.stall_reported = false;
            return;
        };
        // The clock may have been set back.
        oldest.sent = oldest.sent.min(now);
        let waited = now.saturating_sub(oldest.sent);
        let stalled = waited > self.config.limits.patience;
        if stalled && !connection.stall_reported {
            report(actions, Finding::Stalled(oldest.block.hash, waited));
        }
        connection.stall_reported = stalled;
    }

    /// The header's place in the chain, once the tip is known.
    pub(super) fn link(&self, request: &InFlight) -> HeaderLink {
        let height = request.block.height;
        match self.tip.and_then(|tip| tip.checked_sub(height)) {
            Some(above) if request.in_chain => {
                HeaderLink::InChain { height, confirmations: above.saturating_add(1) }
            }
            _ => HeaderLink::Unlinked,
        }
    }
}
