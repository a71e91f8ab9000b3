//! One loop: what peers send goes to the headers and to their follower, and what these want goes
//! back.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::{MAX_INV_SIZE, NetworkMessage};
use chainsieve::bitcoin::p2p::message_blockdata::{GetHeadersMessage, Inventory};
use chainsieve::btc::headers::{ChainEvent, HeaderChain};
use chainsieve::btc::peer::PeerId;

use super::follower::{Follower, Order, Told, World};
use super::header_store::HeaderStore;
use super::header_sync::{HeaderSync, Step};
use crate::btc::p2p::handshake::{PROTOCOL, Theirs};
use crate::btc::p2p::pool::{Pool, PoolEvent, service_names};
use crate::output::print_log;
use crate::progress::Status;
use crate::stop::Stop;

/// How long nothing may happen until the state machines are told that time has passed.
const TICK: Duration = Duration::from_millis(200);
/// How often the state is kept while it changes.
const SAVE_EVERY: Duration = Duration::from_secs(15);

/// Makes the follower as soon as the headers are there.
pub(crate) type Make<F> = Box<dyn FnOnce(&HeaderChain) -> anyhow::Result<F>>;

/// The headers and their follower, without sockets.
pub(crate) struct Core<F> {
    pub(crate) chain: HeaderChain,
    store: HeaderStore,
    headers: HeaderSync,
    /// None before all headers are there.
    pub(crate) follower: Option<F>,
    make: Option<Make<F>>,
    peers: BTreeMap<PeerId, (Theirs, String)>,
    services: ServiceFlags,
    is_caught_up: bool,
    /// Headers taken.
    steps: u64,
    /// An error may have come between a block and what follows from it: what was kept before counts.
    has_failed: bool,
}

/// What happens to a core.
#[derive(Debug)]
pub(crate) enum Happening {
    Connected(PeerId, Theirs, String),
    Disconnected(PeerId),
    Message(PeerId, NetworkMessage),
    Tick,
}

impl<F: Follower> Core<F> {
    pub(crate) fn new(
        chain: HeaderChain,
        store: HeaderStore,
        patience: Duration,
        services: ServiceFlags,
        make: Make<F>,
    ) -> Self {
        Self {
            chain,
            store,
            headers: HeaderSync::new(patience),
            follower: None,
            make: Some(make),
            peers: BTreeMap::new(),
            services,
            is_caught_up: false,
            steps: 0,
            has_failed: false,
        }
    }

    /// Takes what happened at `now`, counted from any one moment, and at `unix`, the clock's time.
    pub(crate) fn handle(
        &mut self,
        happening: Happening,
        now: Duration,
        unix: u32,
    ) -> anyhow::Result<Vec<Order>> {
        let orders = self.take_happening(happening, now, unix);
        self.has_failed |= orders.is_err();
        orders
    }

    fn take_happening(
        &mut self,
        happening: Happening,
        now: Duration,
        unix: u32,
    ) -> anyhow::Result<Vec<Order>> {
        let mut orders = Vec::new();
        match happening {
            Happening::Connected(id, theirs, name) => {
                self.headers.connected(id, theirs.start_height);
                orders.push(Order::Send(id, NetworkMessage::SendHeaders));
                self.peers.insert(id, (theirs, name));
                self.introduce(id, now, &mut orders)?;
            }
            Happening::Disconnected(id) => self.forget(id, now, &mut orders)?,
            Happening::Message(id, message) => self.take(id, message, now, unix, &mut orders)?,
            Happening::Tick => self.tell(Told::Tick, now, &mut orders)?,
        }
        self.start(now, &mut orders)?;
        let steps = self.headers.next(&self.chain, now);
        for step in steps {
            Self::take_step(step, &mut orders);
        }
        self.finish(orders, now)
    }

    /// Closed connections are forgotten, and what that leads to is done too.
    fn finish(&mut self, orders: Vec<Order>, now: Duration) -> anyhow::Result<Vec<Order>> {
        let mut all = Vec::new();
        let mut orders = VecDeque::from(orders);
        while let Some(order) = orders.pop_front() {
            let mut more = Vec::new();
            if let Order::Drop(id, _) | Order::Ban(id, _) = &order {
                if !self.peers.contains_key(id) {
                    continue;
                }
                self.forget(*id, now, &mut more)?;
            }
            all.push(order);
            orders.extend(more);
        }
        Ok(all)
    }

    fn forget(&mut self, id: PeerId, now: Duration, orders: &mut Vec<Order>) -> anyhow::Result<()> {
        if self.peers.remove(&id).is_none() {
            return Ok(());
        }
        self.headers.disconnected(id);
        self.tell(Told::Disconnected(id), now, orders)
    }

    fn tell(
        &mut self,
        told: Told<'_>,
        now: Duration,
        orders: &mut Vec<Order>,
    ) -> anyhow::Result<()> {
        let Some(follower) = &mut self.follower else { return Ok(()) };
        orders.extend(follower.handle(told, World { chain: &self.chain, now })?);
        Ok(())
    }

    /// Tells the follower of a peer, if it has what is needed.
    fn introduce(
        &mut self,
        id: PeerId,
        now: Duration,
        orders: &mut Vec<Order>,
    ) -> anyhow::Result<()> {
        let Some((theirs, name)) = self.peers.get(&id).cloned() else { return Ok(()) };
        if self.follower.is_some() && theirs.services.has(self.services) {
            self.tell(Told::Connected(id, &theirs, &name), now, orders)?;
        }
        Ok(())
    }

    /// Makes the follower once the headers are there.
    fn start(&mut self, now: Duration, orders: &mut Vec<Order>) -> anyhow::Result<()> {
        if !self.headers.is_caught_up() {
            return Ok(());
        }
        let Some(make) = self.make.take() else { return Ok(()) };
        self.follower = Some(make(&self.chain)?);
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            self.introduce(id, now, orders)?;
        }
        self.tell_shown(now, orders)
    }

    fn tell_shown(&mut self, now: Duration, orders: &mut Vec<Order>) -> anyhow::Result<()> {
        let shown: Vec<_> = self.headers.shown().collect();
        for (id, hash) in shown {
            self.tell_shows(id, hash, now, orders)?;
        }
        Ok(())
    }

    fn tell_shows(
        &mut self,
        id: PeerId,
        hash: BlockHash,
        now: Duration,
        orders: &mut Vec<Order>,
    ) -> anyhow::Result<()> {
        match self.chain.height_of(&hash) {
            Some(_) => self.tell(Told::Shows(id, hash), now, orders),
            None => Ok(()),
        }
    }

    fn take(
        &mut self,
        id: PeerId,
        message: NetworkMessage,
        now: Duration,
        unix: u32,
        orders: &mut Vec<Order>,
    ) -> anyhow::Result<()> {
        if !self.peers.contains_key(&id) {
            return Ok(());
        }
        match &message {
            NetworkMessage::Headers(headers) => {
                let outcome = self.headers.take(&mut self.chain, id, headers, unix);
                self.steps += outcome.events.len() as u64;
                self.change(&outcome.events, now, orders)?;
                if let Some(step) = outcome.step {
                    Self::take_step(step, orders);
                }
                if let Some(hash) = outcome.shown {
                    self.tell_shows(id, hash, now, orders)?;
                }
            }
            NetworkMessage::Inv(items) if items.len() > MAX_INV_SIZE => {
                let count = items.len();
                orders.push(Order::Ban(id, format!("inv of {count}, the limit is {MAX_INV_SIZE}")));
                return Ok(());
            }
            NetworkMessage::Inv(items) => {
                let blocks = items.iter().filter_map(|item| match item {
                    Inventory::Block(hash) | Inventory::WitnessBlock(hash) => Some(*hash),
                    _ => None,
                });
                for hash in blocks {
                    if let Some(hash) = self.headers.announced(&self.chain, id, hash) {
                        self.tell_shows(id, hash, now, orders)?;
                    }
                }
            }
            _ => {}
        }
        self.tell(Told::Message(id, message), now, orders)
    }

    /// The chain has changed: to the disk first, then to the follower.
    fn change(
        &mut self,
        events: &[ChainEvent],
        now: Duration,
        orders: &mut Vec<Order>,
    ) -> anyhow::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        self.store.apply(&self.chain, events)?;
        self.tell(Told::Chain(events), now, orders)?;
        self.tell_shown(now, orders)
    }

    fn take_step(step: Step, orders: &mut Vec<Order>) {
        match step {
            Step::Ask(id, locator_hashes) => {
                let (version, stop_hash) = (PROTOCOL, BlockHash::all_zeros());
                let message = GetHeadersMessage { version, locator_hashes, stop_hash };
                orders.push(Order::Send(id, NetworkMessage::GetHeaders(message)));
            }
            Step::Drop(id, why) => orders.push(Order::Drop(id, why)),
            Step::Ban(id, why) => orders.push(Order::Ban(id, why)),
        }
    }

    /// Whether all is seen that the connected peers have.
    pub(crate) fn look_for_end(&mut self, now: Duration) -> anyhow::Result<bool> {
        let world = World { chain: &self.chain, now };
        let caught_up = self.headers.is_caught_up()
            && self.follower.as_mut().is_some_and(|follower| follower.is_caught_up(world));
        if caught_up
            && !self.is_caught_up
            && let Some(follower) = &mut self.follower
        {
            follower.caught_up(world)?;
        }
        self.is_caught_up = caught_up;
        Ok(caught_up)
    }

    fn progress(&self) -> u64 {
        self.steps + self.follower.as_ref().map_or(0, F::progress)
    }

    pub(crate) fn save(&mut self) -> anyhow::Result<()> {
        match &mut self.follower {
            Some(follower) if !self.has_failed => follower.save(&self.chain),
            _ => Ok(()),
        }
    }

    /// Whether a peer has what the follower needs.
    fn is_served(&self) -> bool {
        self.peers.values().any(|(theirs, _)| theirs.services.has(self.services))
    }
}

impl<F: Follower> Core<F> {
    /// A peer without what the follower needs, in the place of one that may have it.
    fn in_the_way(&self, pool: &Pool) -> Option<PeerId> {
        self.follower.as_ref()?;
        if !pool.is_full_before_others(self.is_served()) {
            return None;
        }
        let lacks = |(theirs, _): &(Theirs, String)| !theirs.services.has(self.services);
        self.peers.iter().find(|(_, peer)| lacks(peer)).map(|(id, _)| *id)
    }
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    CaughtUp,
    Interrupted,
    GaveUp(String),
    /// Nobody reads what is printed.
    Closed,
}

impl Ending {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::CaughtUp => "caught_up",
            Self::Interrupted => "interrupted",
            Self::GaveUp(_) => "gave_up",
            Self::Closed => "closed",
        }
    }
}

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    /// When all is seen that the peers have.
    pub(crate) caught_up: bool,
    /// Then also after as long without progress.
    pub(crate) give_up: Duration,
}

/// Runs until there is a reason to end, and keeps the state.
pub(crate) fn drive<F: Follower>(
    core: &mut Core<F>,
    pool: &mut Pool,
    stop: &Stop,
    until: Until,
) -> anyhow::Result<Ending> {
    let ending = run(core, pool, stop, until);
    // What came is kept, whatever ended the run.
    core.save().and(ending)
}

fn run<F: Follower>(
    core: &mut Core<F>,
    pool: &mut Pool,
    stop: &Stop,
    until: Until,
) -> anyhow::Result<Ending> {
    let mut status = Status::new();
    let mut progress = (core.progress(), pool.now());
    let mut saved = progress;
    let mut ticked = Duration::ZERO;
    let mut happenings = VecDeque::new();
    let mut lacking = Vec::new();
    loop {
        if stop.is_set() {
            return Ok(Ending::Interrupted);
        }
        if core.follower.as_ref().is_some_and(F::is_closed) {
            return Ok(Ending::Closed);
        }
        let event = pool.wait(TICK)?;
        happenings.extend(event.and_then(|event| happening(event, pool)));
        let now = pool.now();
        if now.saturating_sub(ticked) >= TICK {
            ticked = now;
            happenings.push_back(Happening::Tick);
        }
        while let Some(happening) = happenings.pop_front() {
            if let Happening::Connected(_, theirs, name) = &happening {
                note_lack(core.services, theirs, name, &mut lacking);
            }
            let orders = core.handle(happening, now, unix_time())?;
            for order in orders {
                match order {
                    Order::Send(id, message) => happenings.extend(
                        pool.send(id, message).and_then(|event| self::happening(event, pool)),
                    ),
                    Order::Drop(id, why) => pool.drop_peer(id, &why),
                    Order::Ban(id, why) => pool.ban(id, &why),
                }
            }
        }
        pool.set_height(core.chain.tip().height);
        status.show(|| {
            let words = core.follower.as_ref().map(|follower| follower.status(&core.chain));
            format!("headers {}  {}", core.chain.tip().height, words.unwrap_or_default())
        });
        let caught_up = core.look_for_end(now)?;
        let is_new = core.progress() != progress.0;
        if is_new {
            progress = (core.progress(), now);
        }
        if saved.0 != progress.0 && (now.saturating_sub(saved.1) >= SAVE_EVERY || caught_up) {
            core.save()?;
            saved = (progress.0, now);
        }
        if let Some(id) = core.in_the_way(pool) {
            pool.drop_peer(id, "its place is for one that may offer what is needed");
            happenings.push_back(Happening::Disconnected(id));
        }
        // Nobody will ever come again.
        if pool.all_banned() {
            return Ok(Ending::GaveUp("every peer is banned".into()));
        }
        if !until.caught_up {
            continue;
        }
        if caught_up && pool.all_tried() {
            return Ok(Ending::CaughtUp);
        }
        if core.follower.is_some() && !core.is_served() && pool.all_up() {
            let needed = service_names(core.services).join("|");
            return Ok(Ending::GaveUp(format!("none of the peers named offers {needed}")));
        }
        let waited = now.saturating_sub(progress.1);
        if waited >= until.give_up {
            let why = if core.peers.is_empty() {
                "no peer is connected"
            } else if !core.is_served() {
                "no peer that is connected offers what is needed"
            } else {
                "no progress"
            };
            return Ok(Ending::GaveUp(format!("{why} for {} s", waited.as_secs())));
        }
    }
}

/// Says once of each address that it lacks what is needed.
fn note_lack(needed: ServiceFlags, theirs: &Theirs, name: &str, lacking: &mut Vec<String>) {
    if theirs.services.has(needed) || lacking.iter().any(|known| known == name) {
        return;
    }
    let missing = ServiceFlags::from(needed.to_u64() & !theirs.services.to_u64());
    let missing = service_names(missing).join("|");
    print_log(&format!("peer {name}: offers no {missing}: it is asked for headers only"));
    lacking.push(name.to_owned());
}

fn happening(event: PoolEvent, pool: &Pool) -> Option<Happening> {
    Some(match event {
        PoolEvent::Connected(id, theirs) => Happening::Connected(id, theirs, pool.name(id)?),
        PoolEvent::Disconnected(id) => Happening::Disconnected(id),
        PoolEvent::Message(id, message) => Happening::Message(id, message),
    })
}

/// The clock's time.
pub(crate) fn unix_time() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}
