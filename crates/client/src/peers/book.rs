//! The address book: the known addresses of peers, and the times at which to dial them.
//!
//! Peers that the user names are never evicted. All other addresses come from peers and seeds and
//! are not trusted. The book has at most [`MAX_ADDRESSES`] addresses that the user did not name, in
//! two tables as in Core's `addrman`: *new* addresses, which were only heard of, and *tried*
//! addresses, which have completed a handshake. In an eclipse attack, an attacker fills the book
//! with its own addresses, so that the client connects to no honest peer. These limits make the
//! attack expensive:
//!
//! - One source (a netgroup of peers, or a DNS seed) has at most [`MAX_PER_SOURCE`] new addresses.
//! - One netgroup has at most [`MAX_PER_GROUP`] addresses.
//! - When one of these two limits is reached, a new address can replace only a terrible address
//!   (see below) of the same source or netgroup. If no address can be replaced, the new address is
//!   rejected. So a source at its limit cannot evict the addresses of other sources.
//! - When the book is full, a new address replaces a terrible address. If there is no terrible
//!   address, the new address replaces a random new address of the largest source, provided that
//!   this source has more addresses than the source of the new address.
//! - Tried addresses are never evicted for new addresses. The table of tried addresses has at most
//!   [`MAX_TRIED`] addresses. When the table is full and a new address completes a handshake, the
//!   tried address with the oldest success becomes new again.
//!
//! As in Core, a new address is *terrible* in three cases: it has failed three times and never
//! succeeded, or ten times without a success for a week, or no peer has seen it for 30 days. A
//! failure is counted only if another peer is connected at that time. If no other peer is
//! connected, the cause may be our own network.
//!
//! Up to [`MAX_ANCHORS`] addresses are *anchors*: peers that served well until the end of the last
//! run. Each of them is dialled once, before all other addresses, so that an attacker cannot
//! eclipse a client by making it restart (Core's `anchors.dat`).
//!
//! For each other connection, a random bit chooses between tried and new addresses. So an attacker who
//! fills one table gets at most half of the connections, as long as the other table has addresses
//! to dial. No two automatic connections share a netgroup while addresses of other netgroups are
//! available. An address is available if it is idle, not banned, and has fewer than three failures
//! in a row.
//!
//! # File format
//!
//! ```text
//! "CSAB" | version 1 | length u32 | checksum 4 | body:
//!     magic of the chain 4
//!     addresses u32, for each: host | port u16
//!         | table u8 (0 new, 1 tried, 2 tried and an anchor) | source 6 | services u64
//!         | last seen u64 | last success u64 | failures u16
//!     bans u32, for each: host | 1 if the ban covers one port or else 0, u8 | the port or 0, u16
//!         | end of the ban u64
//! host: kind u8 (1 IPv4, 2 IPv6, 4 onion, as in BIP155; 0 host name) | 4, 16 or 32 bytes, or a text
//! ```
//! The encoding is that of the other files of a client: numbers are little-endian, a compact size
//! precedes a text, and the checksum is the first 4 bytes of the double SHA-256 of the body. Times
//! are Unix times in seconds.
//!
//! Peers named by the user are not stored, because the user names them again in the next run. Bans
//! of named peers are stored.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use chainsieve::bitcoin::consensus::encode::{
    CheckedData, Decodable, Encodable, deserialize_partial, serialize,
};
use chainsieve::bitcoin::hashes::siphash24;
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};

use super::address::{Group, Heard, Host, Target};

/// Maximum number of addresses that the user did not name.
pub const MAX_ADDRESSES: usize = 4_096;
/// Maximum number of tried addresses, which have completed a handshake.
pub const MAX_TRIED: usize = 1_024;
/// Maximum number of new addresses from one source.
pub const MAX_PER_SOURCE: usize = 256;
/// Maximum number of addresses in one netgroup.
pub const MAX_PER_GROUP: usize = 64;
/// Maximum number of addresses that the user names.
pub const MAX_NAMED: usize = 256;
/// Maximum number of anchors (see the module's documentation), as in Core
/// (`MAX_BLOCK_RELAY_ONLY_ANCHORS`).
pub const MAX_ANCHORS: usize = 2;
/// Maximum number of bans. When the list is full, the ban that ends first is lifted.
pub const MAX_BANS: usize = 1_024;
/// Duration of a ban in seconds: 24 hours.
pub const BAN_TIME: u64 = 24 * 3_600;
/// If the book has fewer addresses than this, peers are asked for more addresses, as Core does on
/// outbound connections.
const WANTED: usize = 1_000;

/// Back-off after the first failure. Each further failure in a row doubles the back-off.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Maximum back-off.
const LONGEST_WAIT: Duration = Duration::from_secs(5 * 60);
/// A connection that lasted at least this long resets the back-off.
pub(crate) const GOOD_AFTER: Duration = Duration::from_secs(60);
/// An address with this many failures in a row is not available (see the module's documentation).
/// Without this rule, unreachable addresses of unused netgroups would prevent a second connection
/// to a used netgroup.
const AVAILABLE_FAILURES: u32 = 3;

const DAY: u64 = 24 * 3_600;

/// A point in time by two clocks.
///
/// Back-off uses the monotonic clock, so that it does not stall when the system's clock is set
/// back. Times that are stored across restarts need the system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic time since a fixed moment of this run.
    pub elapsed: Duration,
    /// Unix time in seconds, by the system's clock.
    pub unix: u64,
}

/// Identifier of an address in the book. The identifier is never reused for another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressId(u64);

/// Table of an address: how it got into the book, and whether it is proven to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The user named the address.
    Named,
    /// A peer or seed sent the address, and no handshake has succeeded yet.
    New,
    /// A peer or seed sent the address, and a handshake has succeeded.
    Tried,
}

/// An address of the book with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) target: Target,
    pub(crate) standing: Standing,
    /// The source that sent the address first.
    pub(crate) source: Group,
    /// The netgroup; an address with `None` shares a netgroup with no other address.
    pub(crate) group: Option<Group>,
    /// Services that the source claimed, or that the peer claimed in its latest handshake.
    pub(crate) services: ServiceFlags,
    /// Unix time in seconds at which the peer was last seen, by us or by a source.
    pub(crate) seen: u64,
    /// Unix time in seconds of the last success (a handshake, or the end of a good connection); 0
    /// means never.
    pub(crate) success: u64,
    /// Number of failures after the last success. Failures while no other peer was connected are
    /// not included.
    pub(crate) blamed: u16,
    /// `true` if the address is an anchor: see the module's documentation.
    pub(crate) is_anchor: bool,
    /// Number of failures in a row, in this run.
    failures: u32,
    /// Monotonic time before which the address is not dialled.
    due: Duration,
    /// `true` while the address is being dialled or is connected.
    busy: bool,
    /// `true` once an attempt to connect to the address has ended in this run.
    called: bool,
}

/// State of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressState {
    /// The address is neither dialled nor connected.
    Idle,
    /// The address is being dialled.
    Calling,
    /// A connection to the address is open.
    Connected,
    /// The address is banned and not dialled before the ban ends.
    Banned,
}

impl AddressState {
    /// Returns the state as a word for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "disconnected",
            Self::Calling => "calling",
            Self::Connected => "connected",
            Self::Banned => "banned",
        }
    }
}

/// Conditions for the choice of an address to dial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// The services that the peer should offer.
    pub(crate) services: ServiceFlags,
    /// `true` if peers that the user did not name may be dialled.
    pub(crate) automatic: bool,
    /// `true` if onion services can be reached.
    pub(crate) onion: bool,
    /// Maximum number of connections to anchors.
    pub(crate) anchors: usize,
}

/// The known addresses of peers, and the bans.
#[derive(Debug, Clone, Default)]
pub struct AddressBook {
    pub(crate) entries: BTreeMap<AddressId, Entry>,
    places: BTreeMap<Target, AddressId>,
    next: u64,
    pub(crate) bans: Bans,
}

/// The banned hosts, each with the Unix time in seconds at which its ban ends.
///
/// A ban of a peer that the user named covers one port only, since the user may name several peers
/// on one host. A ban of any other peer covers the whole host: further ports cost an attacker
/// nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bans {
    pub(crate) until: BTreeMap<(Host, Option<u16>), u64>,
}

impl Bans {
    fn key(target: &Target, standing: Standing) -> (Host, Option<u16>) {
        let port = (standing == Standing::Named).then_some(target.port);
        (target.host.clone(), port)
    }

    pub(crate) fn insert(&mut self, key: (Host, Option<u16>), until: u64) {
        if self.until.len() >= MAX_BANS
            && let Some(first) = self.until.iter().min_by_key(|(_, until)| **until)
        {
            let first = first.0.clone();
            self.until.remove(&first);
        }
        self.until.insert(key, until);
    }

    fn holds(&self, entry: &Entry, unix: u64) -> bool {
        self.holds_target(&entry.target, entry.standing, unix)
    }

    fn holds_target(&self, target: &Target, standing: Standing, unix: u64) -> bool {
        if self.until.is_empty() {
            return false;
        }
        let key = Self::key(target, standing);
        // A ban that ends later than `latest` was created while the clock was wrong, and is
        // ignored. The factor of 2 allows for a clock that is set back by up to a day.
        let latest = unix.saturating_add(2 * BAN_TIME);
        self.until.get(&key).is_some_and(|until| (unix..=latest).contains(until))
    }

    fn lift(&mut self, target: &Target) {
        self.until.remove(&(target.host.clone(), Some(target.port)));
    }
}

impl Entry {
    fn is_automatic(&self) -> bool {
        self.standing != Standing::Named
    }

    /// Returns `true` if the address may be replaced: see the module's documentation.
    fn is_terrible(&self, unix: u64) -> bool {
        self.standing == Standing::New
            && !self.busy
            && (self.seen.saturating_add(30 * DAY) < unix
                || (self.success == 0 && self.blamed >= 3)
                || (self.success.saturating_add(7 * DAY) < unix && self.blamed >= 10))
    }

    /// Ranks the address by its claimed services: 0 if the address claims all wanted services, 1 if
    /// its services are unknown, 2 if it lacks some wanted services.
    fn service_rank(&self, wanted: ServiceFlags) -> u8 {
        if self.services.has(wanted) {
            0
        } else if self.services == ServiceFlags::NONE {
            1
        } else {
            2
        }
    }
}

impl AddressBook {
    /// Creates an empty book.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of addresses in the book, including the named addresses.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if the book contains no address.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a peer that the user names. Returns `false` if the book already contains [`MAX_NAMED`]
    /// other named peers.
    ///
    /// A ban of this address from an earlier run is lifted, because the user's choice is newer.
    pub fn add_named(&mut self, target: Target) -> bool {
        self.bans.lift(&target);
        if let Some(entry) = self.places.get(&target).and_then(|at| self.entries.get_mut(at)) {
            entry.standing = Standing::Named;
            return true;
        }
        if self.entries.values().filter(|entry| !entry.is_automatic()).count() >= MAX_NAMED {
            return false;
        }
        let heard = Heard { target, services: ServiceFlags::NONE, seen: 0 };
        self.insert(heard, Standing::Named, Group::UNROUTED);
        true
    }

    /// Adds an address that a peer or seed sent. Returns `true` if the address was added as a new
    /// address.
    ///
    /// Host names, addresses that are not routable on the Internet, banned hosts, and addresses not
    /// seen for 30 days are rejected. If the book already contains the address, only the claims
    /// about the address are updated.
    pub fn hear(
        &mut self,
        mut heard: Heard,
        source: Group,
        unix: u64,
        random: &mut Random,
    ) -> bool {
        let Some(group) = Group::of(&heard.target.host) else { return false };
        // No node listens on port 0.
        if heard.target.port == 0 || self.bans.holds_target(&heard.target, Standing::New, unix) {
            return false;
        }
        // As in Core: an impossible time is replaced by five days ago, and two hours are subtracted
        // because the source may relay the address late.
        if heard.seen <= 100_000_000 || heard.seen > unix.saturating_add(600) {
            heard.seen = unix.saturating_sub(5 * DAY);
        }
        heard.seen = heard.seen.saturating_sub(2 * 3_600);
        if let Some(entry) = self.places.get(&heard.target).and_then(|at| self.entries.get_mut(at))
        {
            entry.seen = entry.seen.max(heard.seen);
            // A tried peer's own claim in its handshake is more reliable than claims of others.
            if entry.standing == Standing::New {
                entry.services |= heard.services;
            }
            return false;
        }
        // If this address were added, it would be terrible immediately.
        if heard.seen.saturating_add(30 * DAY) < unix {
            return false;
        }
        if !self.make_room(group, source, unix, random) {
            return false;
        }
        self.insert(heard, Standing::New, source);
        true
    }

    /// Makes room for a new address of netgroup `group` from `source`, by the rules of the module's
    /// documentation. Returns `false` if the address must be rejected.
    fn make_room(&mut self, group: Group, source: Group, unix: u64, random: &mut Random) -> bool {
        let automatic = || self.entries.iter().filter(|(_, entry)| entry.is_automatic());
        // Only new addresses are counted for a source: a tried address has proven to work, whoever
        // sent it.
        let is_of_source =
            |entry: &Entry| entry.standing == Standing::New && entry.source == source;
        let in_group = automatic().filter(|(_, entry)| entry.group == Some(group)).count();
        let of_source = automatic().filter(|(_, entry)| is_of_source(entry)).count();
        let terrible = |fits: &dyn Fn(&Entry) -> bool| {
            let mut all = automatic();
            all.find(|(_, entry)| fits(entry) && entry.is_terrible(unix)).map(|(place, _)| *place)
        };
        // The limits of netgroup and source are checked before the size of the book: in an eclipse
        // attack, one source fills the book with its own addresses. If both limits are reached, the
        // evicted address must belong to both the netgroup and the source.
        let victim = if in_group >= MAX_PER_GROUP {
            let victim = terrible(&|entry| entry.group == Some(group));
            let Some(victim) = victim else { return false };
            let same_source = self.entries.get(&victim).is_some_and(is_of_source);
            if of_source >= MAX_PER_SOURCE && !same_source {
                return false;
            }
            victim
        } else if of_source >= MAX_PER_SOURCE {
            // The source may replace only its own addresses, not those of honest sources.
            let Some(victim) = terrible(&is_of_source) else { return false };
            victim
        } else if automatic().count() < MAX_ADDRESSES {
            return true;
        } else if let Some(victim) = terrible(&|_| true) {
            victim
        } else {
            let mut sources = BTreeMap::<Group, Vec<AddressId>>::new();
            for (place, entry) in automatic() {
                if entry.standing == Standing::New && !entry.busy {
                    sources.entry(entry.source).or_default().push(*place);
                }
            }
            // The largest source loses an address, chosen at random: an attacker can neither crowd
            // out small sources nor choose the address that is evicted.
            let most = sources.values().max_by_key(|places| places.len());
            let Some(places) = most.filter(|places| places.len() > of_source) else { return false };
            let Some(victim) = places.get(random.below(places.len())) else { return false };
            *victim
        };
        self.remove(victim);
        true
    }

    pub(crate) fn insert(&mut self, heard: Heard, standing: Standing, source: Group) -> AddressId {
        let Heard { target, services, seen } = heard;
        let place = AddressId(self.next);
        self.next += 1;
        self.places.insert(target.clone(), place);
        let entry = Entry {
            group: Group::of(&target.host),
            target,
            standing,
            source,
            services,
            seen,
            success: 0,
            blamed: 0,
            is_anchor: false,
            failures: 0,
            due: Duration::ZERO,
            busy: false,
            called: false,
        };
        self.entries.insert(place, entry);
        place
    }

    fn remove(&mut self, place: AddressId) {
        if let Some(entry) = self.entries.remove(&place) {
            self.places.remove(&entry.target);
        }
    }

    /// Chooses an address to dial now: a named address if one is due, otherwise an address that
    /// meets the conditions of `wish`.
    ///
    /// Anchors that were not dialled in this run come next, as many as `wish` allows. All other
    /// addresses that the user did not name are ordered by netgroup and services, then by a random
    /// choice between tried and new, then by failures in a row, and then at random.
    pub(crate) fn due(&self, at: Moment, wish: Wish, random: &mut Random) -> Option<AddressId> {
        let is_idle = |entry: &Entry| !entry.busy && !self.bans.holds(entry, at.unix);
        let named = self.entries.iter().filter(|(_, entry)| {
            !entry.is_automatic() && entry.due <= at.elapsed && is_idle(entry)
        });
        let named = named.min_by_key(|(place, entry)| (entry.failures, entry.due, **place));
        if let Some((place, _)) = named {
            return Some(*place);
        }
        if !wish.automatic {
            return None;
        }
        let is_reachable =
            |entry: &Entry| wish.onion || !matches!(entry.target.host, Host::Onion(_));
        let is_waiting = |entry: &Entry| {
            entry.is_anchor && entry.is_automatic() && !entry.called && is_reachable(entry)
        };
        let anchors = self.entries.values().filter(|entry| entry.is_anchor && entry.busy);
        let may_anchor = anchors.count() < wish.anchors;
        let mut waiting = self.entries.iter().filter(|(_, entry)| is_waiting(entry));
        if may_anchor && let Some((place, _)) = waiting.find(|(_, entry)| is_idle(entry)) {
            return Some(*place);
        }
        let busy = self.entries.values().filter(|entry| entry.busy);
        let occupied: BTreeSet<Group> = busy.filter_map(|entry| entry.group).collect();
        let is_near = |entry: &Entry| entry.group.is_some_and(|group| occupied.contains(&group));
        let mut best = Vec::new();
        let mut least = u8::MAX;
        let mut others_available = false;
        for (place, entry) in &self.entries {
            if !entry.is_automatic() || !is_reachable(entry) || !is_idle(entry) {
                continue;
            }
            let near = is_near(entry);
            // An anchor beyond the allowed number is dialled only if the book has nobody else.
            let spare = is_waiting(entry);
            others_available |= !near && !spare && entry.failures < AVAILABLE_FAILURES;
            if entry.due > at.elapsed {
                continue;
            }
            // An address of an unused netgroup is preferred to an address with the wanted services,
            // because services are only claims: an attacker claims all services.
            let rank = entry.service_rank(wish.services)
                + if near { 3 } else { 0 }
                + if spare { 6 } else { 0 };
            if rank < least {
                least = rank;
                best.clear();
            }
            if rank == least {
                best.push((*place, entry));
            }
        }
        // Every due address shares a netgroup with a connection. So no address is dialled now if an
        // address of an unused netgroup will be due soon.
        if least >= 3 && others_available {
            return None;
        }
        // A random bit chooses the table (tried or new). If that table has no suitable address, the
        // other table is used.
        let wants_tried = random.number() & 1 == 0;
        let is_tried = |entry: &Entry| entry.standing == Standing::Tried;
        if best.iter().any(|(_, entry)| is_tried(entry) == wants_tried) {
            best.retain(|(_, entry)| is_tried(entry) == wants_tried);
        }
        let failures = best.iter().map(|(_, entry)| entry.failures).min()?;
        best.retain(|(_, entry)| entry.failures == failures);
        best.get(random.below(best.len())).map(|(place, _)| *place)
    }

    /// Chooses an untried address to test: at random among the new addresses that are due.
    ///
    /// While the table of tried addresses is full, the result is `None`: new addresses cost an
    /// attacker nothing, so tests of new addresses must not push out tried ones.
    pub(crate) fn untried(&self, at: Moment, wish: Wish, random: &mut Random) -> Option<AddressId> {
        let tried = self.entries.values().filter(|entry| entry.standing == Standing::Tried);
        if tried.count() >= MAX_TRIED {
            return None;
        }
        let fits = |entry: &Entry| {
            entry.standing == Standing::New
                && !entry.busy
                && entry.due <= at.elapsed
                && (wish.onion || !matches!(entry.target.host, Host::Onion(_)))
                && entry.service_rank(wish.services) < 2
                && !self.bans.holds(entry, at.unix)
        };
        let fitting = self.entries.iter().filter(|(_, entry)| fits(entry));
        let places: Vec<AddressId> = fitting.map(|(place, _)| *place).collect();
        places.get(random.below(places.len())).copied()
    }

    /// Records that an untried address has completed the handshake of a test.
    pub(crate) fn tested(&mut self, place: AddressId, services: ServiceFlags, unix: u64) {
        let was_called = self.was_called(place);
        self.succeeded(place, services, None, unix);
        if let Some(entry) = self.entries.get_mut(&place) {
            // The address was not dialled to stay, so it counts as not dialled: it may take the
            // place of a peer without the needed services.
            (entry.busy, entry.failures, entry.called) = (false, 0, was_called);
        }
    }

    /// Replaces the anchors.
    pub(crate) fn set_anchors(&mut self, anchors: &[AddressId]) {
        for (place, entry) in &mut self.entries {
            entry.is_anchor = anchors.contains(place);
        }
    }

    /// Marks an address as being dialled.
    pub(crate) fn calls(&mut self, place: AddressId) {
        if let Some(entry) = self.entries.get_mut(&place) {
            entry.busy = true;
        }
    }

    /// Records a completed handshake. `group` is the netgroup of the connected IP address, if
    /// known. If the address is a host name, `group` becomes its netgroup.
    pub(crate) fn succeeded(
        &mut self,
        place: AddressId,
        services: ServiceFlags,
        group: Option<Group>,
        unix: u64,
    ) {
        let tried = self.entries.iter().filter(|(_, entry)| entry.standing == Standing::Tried);
        let is_full = tried.clone().count() >= MAX_TRIED;
        let oldest = tried.filter(|(_, entry)| !entry.busy).min_by_key(|(_, entry)| entry.success);
        let oldest = oldest.map(|(place, _)| *place);
        let Some(entry) = self.entries.get_mut(&place) else { return };
        (entry.services, entry.success, entry.blamed, entry.called) = (services, unix, 0, true);
        entry.seen = entry.seen.max(unix);
        if matches!(entry.target.host, Host::Name(_)) {
            entry.group = group;
        }
        // Only a completed handshake makes an address tried: anyone can invent addresses, but a
        // handshake needs a running node.
        if entry.standing == Standing::New {
            entry.standing = Standing::Tried;
            // The number of tried addresses is bounded. As in Core's `addrman`, the address that
            // loses its place becomes a new address again, so that it is not lost.
            if is_full && let Some(oldest) = oldest.and_then(|at| self.entries.get_mut(&at)) {
                oldest.standing = Standing::New;
            }
        }
    }

    /// Records that an attempt to connect failed, or that a connection of duration `lasted` ended.
    ///
    /// `blame` is `true` if the address may be the cause of the failure. Returns the back-off:
    /// the address is not dialled before this time has passed.
    pub(crate) fn ended(
        &mut self,
        place: AddressId,
        lasted: Duration,
        blame: bool,
        at: Moment,
        random: &mut Random,
    ) -> Duration {
        // Jitter, so that peers that failed at the same time are not dialled at the same time.
        let jitter = u32::try_from(random.below(512)).unwrap_or(0);
        let Some(entry) = self.entries.get_mut(&place) else { return Duration::ZERO };
        if lasted >= GOOD_AFTER {
            entry.failures = 1;
            (entry.success, entry.seen) = (at.unix, entry.seen.max(at.unix));
        } else {
            entry.failures = entry.failures.saturating_add(1);
            entry.blamed = entry.blamed.saturating_add(u16::from(blame));
        }
        // 16 doublings exceed the maximum back-off. The bound keeps the shift in range.
        let doublings = (entry.failures - 1).min(16);
        let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
        // Jitter of ±25 %: a factor from 768 / 1,024 to 1,279 / 1,024.
        let wait = wait.saturating_mul(768 + jitter) / 1_024;
        (entry.busy, entry.called, entry.due) = (false, true, at.elapsed + wait);
        // The next time, the name may resolve to an address of a different netgroup.
        if matches!(entry.target.host, Host::Name(_)) {
            entry.group = None;
        }
        wait
    }

    /// Bans an address for [`BAN_TIME`]. The ban covers one port if the user named the address, and
    /// otherwise the whole host.
    pub(crate) fn ban(&mut self, place: AddressId, unix: u64) {
        let Some(entry) = self.entries.get_mut(&place) else { return };
        (entry.busy, entry.called, entry.is_anchor) = (false, true, false);
        self.bans.insert(Bans::key(&entry.target, entry.standing), unix.saturating_add(BAN_TIME));
    }

    /// Returns `true` if the address is in the book.
    pub fn holds(&self, target: &Target) -> bool {
        self.places.contains_key(target)
    }

    pub(crate) fn target(&self, place: AddressId) -> Option<&Target> {
        self.entries.get(&place).map(|entry| &entry.target)
    }

    pub(crate) fn is_named(&self, place: AddressId) -> bool {
        self.entries.get(&place).is_some_and(|entry| !entry.is_automatic())
    }

    /// Returns the netgroup of an address, to identify it as a source of other addresses.
    pub(crate) fn source(&self, place: AddressId) -> Group {
        self.entries.get(&place).and_then(|entry| entry.group).unwrap_or(Group::UNROUTED)
    }

    /// Returns `true` if the book has so few addresses that peers should be asked for more.
    pub(crate) fn wants_more(&self) -> bool {
        self.entries.values().filter(|entry| entry.is_automatic()).count() < WANTED
    }

    /// Returns the state of an address. For a connected address the result is `Calling`: only the
    /// pool knows which addresses are connected.
    pub(crate) fn state(&self, place: AddressId, unix: u64) -> AddressState {
        match self.entries.get(&place) {
            Some(entry) if self.bans.holds(entry, unix) => AddressState::Banned,
            Some(entry) if entry.busy => AddressState::Calling,
            _ => AddressState::Idle,
        }
    }

    /// Returns the identifiers of the addresses that may be dialled: the named addresses, and all
    /// others if `automatic` is `true`.
    pub(crate) fn places(&self, automatic: bool) -> impl Iterator<Item = AddressId> {
        let callable =
            self.entries.iter().filter(move |(_, entry)| automatic || !entry.is_automatic());
        callable.map(|(place, _)| *place)
    }

    /// Returns `true` if an attempt to connect to the address has ended in this run.
    pub(crate) fn was_called(&self, place: AddressId) -> bool {
        self.entries.get(&place).is_some_and(|entry| entry.called)
    }

    /// Returns `true` if an idle address is due, and this address could replace a peer that lacks
    /// the services.
    ///
    /// Addresses that are known to lack the services are ignored, except those that the user named.
    /// If `again` is `false`, addresses that were already dialled in this run are ignored too.
    pub(crate) fn has_other(&self, at: Moment, wish: Wish, again: bool) -> bool {
        self.entries.values().any(|entry| {
            !entry.busy
                && entry.due <= at.elapsed
                && (again || !entry.called)
                && (wish.automatic || !entry.is_automatic())
                && (wish.onion || !matches!(entry.target.host, Host::Onion(_)))
                && (!entry.is_automatic() || entry.service_rank(wish.services) < 2)
                && !self.bans.holds(entry, at.unix)
        })
    }
}

const NAME: [u8; 4] = *b"CSAB";
const VERSION: u8 = 1;

/// Reason why bytes cannot be decoded as an address book. The caller then starts with an empty
/// book.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BookError {
    /// The bytes do not begin with the name of the format.
    #[error("not an address book")]
    NotABook,
    /// The checksum is wrong: the bytes are damaged or cut.
    #[error("damaged: the checksum of the {bytes} bytes is wrong")]
    Checksum {
        /// Number of bytes that were given.
        bytes: usize,
    },
    /// The file has a version of the format that this program does not know.
    #[error("address book of version {got}, the only known version is {VERSION}")]
    Version {
        /// The version in the file.
        got: u8,
    },
    /// The book belongs to another chain.
    #[error("address book of magic {got}, expected {expected}")]
    Network {
        /// The magic in the file.
        got: Magic,
        /// The magic of the expected chain.
        expected: Magic,
    },
    /// The checksum is right, but the contents are invalid.
    #[error("invalid address book: malformed at byte {offset} of its body")]
    Malformed {
        /// Offset of the malformed field in the body, in bytes.
        offset: usize,
    },
}

impl AddressBook {
    /// Encodes the book for the chain with this magic. The result has at most 600 kB.
    pub fn encode(&self, magic: Magic) -> Vec<u8> {
        let mut body = magic.to_bytes().to_vec();
        let kept = || self.entries.values().filter(|entry| entry.standing != Standing::Named);
        put_count(&mut body, kept().count());
        for entry in kept() {
            put_host(&mut body, &entry.target.host);
            let table: u8 = match entry.standing {
                Standing::Tried if entry.is_anchor => 2,
                Standing::Tried => 1,
                Standing::New | Standing::Named => 0,
            };
            let services = entry.services.to_u64();
            put(&mut body, &(entry.target.port, table, entry.source.to_bytes(), services));
            put(&mut body, &(entry.seen, entry.success, entry.blamed));
        }
        put_count(&mut body, self.bans.until.len());
        for ((host, port), until) in &self.bans.until {
            put_host(&mut body, host);
            put(&mut body, &(port.is_some(), port.unwrap_or(0), *until));
        }
        let [a, b, c, d] = NAME;
        let mut file = vec![a, b, c, d, VERSION];
        file.extend(serialize(&CheckedData::new(body)));
        file
    }

    /// Decodes a book that [`encode`](Self::encode) wrote for the chain with this magic.
    ///
    /// # Errors
    /// Returns a [`BookError`] if the bytes are damaged or cut, or if they belong to a different
    /// chain or version. The checksum finds all accidental damage.
    pub fn decode(bytes: &[u8], magic: Magic) -> Result<Self, BookError> {
        let rest = bytes.strip_prefix(&NAME).ok_or(BookError::NotABook)?;
        let (version, rest) = rest.split_first().ok_or(BookError::NotABook)?;
        if *version != VERSION {
            return Err(BookError::Version { got: *version });
        }
        let sealed: Option<(CheckedData, usize)> = deserialize_partial(rest).ok();
        let (body, _) = sealed
            .filter(|(_, used)| *used == rest.len())
            .ok_or(BookError::Checksum { bytes: bytes.len() })?;
        let mut from = Reader { body: body.data(), at: 0 };
        let got = Magic::from_bytes(from.take()?);
        if got != magic {
            return Err(BookError::Network { got, expected: magic });
        }
        let mut book = Self::new();
        let mut anchors = 0;
        for _ in 0..from.count(MAX_ADDRESSES)? {
            let start = from.at;
            let host = from.host()?;
            let port = from.take()?;
            let (standing, is_anchor) = match from.take()? {
                0u8 => (Standing::New, false),
                1 => (Standing::Tried, false),
                2 if anchors < MAX_ANCHORS => (Standing::Tried, true),
                _ => return Err(BookError::Malformed { offset: from.at - 1 }),
            };
            anchors += usize::from(is_anchor);
            let source = Group::from_bytes(from.take()?);
            let services = ServiceFlags::from(from.take::<u64>()?);
            let (seen, success, blamed) = from.take()?;
            // Only the user adds host names and addresses that are not routable, and named peers
            // are not stored. A second copy of an address would break the index of the book.
            let target = Target { host, port };
            if Group::of(&target.host).is_none() || book.holds(&target) {
                return Err(BookError::Malformed { offset: start });
            }
            let place = book.insert(Heard { target, services, seen }, standing, source);
            if let Some(entry) = book.entries.get_mut(&place) {
                (entry.success, entry.blamed, entry.is_anchor) = (success, blamed, is_anchor);
            }
        }
        for _ in 0..from.count(MAX_BANS)? {
            let host = from.host()?;
            let (has_port, port, until): (bool, _, _) = from.take()?;
            book.bans.insert((host, has_port.then_some(port)), until);
        }
        if from.at != body.data().len() {
            return Err(BookError::Malformed { offset: from.at });
        }
        Ok(book)
    }
}

fn put(out: &mut Vec<u8>, value: &impl Encodable) {
    out.extend(serialize(value));
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    // `MAX_ADDRESSES` and `MAX_BANS` bound the counts far below 2^32.
    put(out, &u32::try_from(count).unwrap_or(u32::MAX));
}

fn put_host(out: &mut Vec<u8>, host: &Host) {
    match host {
        Host::Ip(IpAddr::V4(ip)) => put(out, &(1_u8, ip.octets())),
        Host::Ip(IpAddr::V6(ip)) => put(out, &(2_u8, ip.octets())),
        Host::Onion(key) => put(out, &(4_u8, *key)),
        Host::Name(name) => put(out, &(0_u8, name.clone())),
    }
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<T: Decodable>(&mut self) -> Result<T, BookError> {
        let rest = self.body.get(self.at..).unwrap_or_default();
        let taken = deserialize_partial(rest);
        let (value, used) = taken.map_err(|_| BookError::Malformed { offset: self.at })?;
        self.at += used;
        Ok(value)
    }

    fn count(&mut self, limit: usize) -> Result<u32, BookError> {
        let offset = self.at;
        let count = self.take()?;
        // The book never holds more entries than `limit`, so it never writes a larger count.
        if usize::try_from(count).is_ok_and(|count| count <= limit) {
            Ok(count)
        } else {
            Err(BookError::Malformed { offset })
        }
    }

    fn host(&mut self) -> Result<Host, BookError> {
        let offset = self.at;
        Ok(match self.take()? {
            1u8 => Host::Ip(Ipv4Addr::from(self.take::<[u8; 4]>()?).into()),
            2 => Host::Ip(Ipv6Addr::from(self.take::<[u8; 16]>()?).into()),
            4 => Host::Onion(self.take()?),
            0 => Host::Name(self.take()?),
            _ => return Err(BookError::Malformed { offset }),
        })
    }
}

/// A pseudorandom generator: the `SipHash` of a counter under a secret key.
///
/// A peer that sees one number learns nothing about the other numbers.
#[derive(Debug, Clone)]
pub struct Random {
    key: (u64, u64),
    count: u64,
}

impl Random {
    /// Creates a generator from a seed. Equal seeds give equal sequences.
    pub fn new(seed: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(seed);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let key = (number as u64, (number >> 64) as u64);
        Self { key, count: 0 }
    }

    /// Returns a random seed from the operating system.
    ///
    /// # Errors
    /// Returns an error if the system provides no random bytes.
    pub fn seed() -> Result<[u8; 16], getrandom::Error> {
        let mut seed = [0; 16];
        getrandom::fill(&mut seed)?;
        Ok(seed)
    }

    /// Returns the next number of the sequence.
    pub fn number(&mut self) -> u64 {
        self.count += 1;
        siphash24::Hash::hash_to_u64_with_keys(self.key.0, self.key.1, &self.count.to_le_bytes())
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.number() % bound).unwrap_or(0)
    }

    /// Shuffles items (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (2..=items.len()).rev() {
            items.swap(left - 1, self.below(left));
        }
    }
}

#[cfg(test)]
mod tests;
