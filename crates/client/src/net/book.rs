//! The address book: which peers to call, and when to call them again.
//!
//! Peers that the user names are never evicted. All other addresses are hearsay: at most
//! [`MAX_ADDRESSES`] are kept, in two standings as in Core's `addrman`. *New* ones have only been
//! heard of; *tried* ones have completed a handshake. An attacker may try to fill the book with
//! addresses of its own, so that we are connected to nobody else. The limits make that expensive:
//!
//! - One source (a netgroup of peers, or a DNS seed) has at most [`MAX_PER_SOURCE`] new addresses.
//! - One netgroup has at most [`MAX_PER_GROUP`] addresses.
//! - At these limits, a new address takes the place only of one that is terrible (see below) within
//!   the same source or group, else it is not taken. So no source evicts what others told.
//! - When the book is full, it takes the place of a terrible one, else of a random new one of the
//!   source that has the most, if that has more than its own.
//! - Tried addresses are never evicted for new ones. There are at most [`MAX_TRIED`]; beyond, the
//!   one whose last success is the oldest becomes new again.
//!
//! *Terrible* is, as in Core, a new address that has failed three times and never succeeded, or ten
//! times with no success for a week, or that was not seen by anybody for 30 days. Failures count
//! only while another peer is connected: else the fault may be our own network's.
//!
//! For each call, a random bit chooses between tried and new addresses: an attacker who fills one of
//! them gets half of the calls at most, while the other has addresses to call. No two automatic
//! connections are in one netgroup while addresses of other netgroups are available: idle, not
//! banned, and with fewer than three failures in a row.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chainsieve::bitcoin::p2p::ServiceFlags;

use super::gossip::Heard;
use super::netgroup::Group;
use super::random::Random;
use super::target::{Host, Target};

/// Addresses that are not named by the user.
pub const MAX_ADDRESSES: usize = 4_096;
/// Of these, such as have completed a handshake.
pub const MAX_TRIED: usize = 1_024;
/// New addresses from one source.
pub const MAX_PER_SOURCE: usize = 256;
/// Addresses in one netgroup.
pub const MAX_PER_GROUP: usize = 64;
/// Addresses that the user names.
pub const MAX_NAMED: usize = 256;
/// Hosts that are banned; beyond, the ban that ends first is lifted.
pub const MAX_BANS: usize = 1_024;
/// How long a ban lasts, in seconds.
pub const BAN_TIME: u64 = 24 * 3_600;
/// With fewer addresses than this, peers are asked for more: as Core's outbound connections do.
const WANTED: usize = 1_000;

/// The wait after the first failure; each further failure doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// A connection that lasted this long does not count as a failure.
pub(crate) const GOOD_AFTER: Duration = Duration::from_mins(1);
/// From this many failures in a row, an address no longer counts as available: see the module's
/// documentation.
const AVAILABLE_FAILURES: u32 = 3;

const DAY: u64 = 24 * 3_600;

/// A point in time by two clocks: waits must not stall when the system's clock is set back, and
/// what is kept over a restart can be counted by no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Since any fixed moment of this run.
    pub elapsed: Duration,
    /// Seconds since 1970, by the system's clock.
    pub unix: u64,
}

/// Identifies an address of the book. Not reused for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// How an address got into the book, and what that is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// By the user.
    Named,
    /// By hearsay.
    New,
    /// By hearsay, and a handshake since.
    Tried,
}

/// What is known of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) target: Target,
    pub(crate) standing: Standing,
    /// The source that told it first.
    pub(crate) source: Group,
    /// The netgroup; `None` counts as near to no other address.
    pub(crate) group: Option<Group>,
    /// As told, or as the peer claimed in its handshake.
    pub(crate) services: ServiceFlags,
    /// Last seen by anybody, in seconds since 1970.
    pub(crate) seen: u64,
    /// The last handshake or end of a good connection; 0 is never.
    pub(crate) success: u64,
    /// Failures since, while another peer was connected.
    pub(crate) blamed: u16,
    /// Failures in a row, in this run.
    failures: u32,
    /// Not called before this.
    due: Duration,
    /// Being called, or connected.
    busy: bool,
    /// Called in this run at least once, and the call is over.
    called: bool,
}

/// Where an address stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressState {
    /// Not called, and not connected.
    Idle,
    /// Being called.
    Calling,
    /// A connection is open.
    Connected,
    /// Not called before the ban ends.
    Banned,
}

impl AddressState {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "disconnected",
            Self::Calling => "calling",
            Self::Connected => "connected",
            Self::Banned => "banned",
        }
    }
}

/// What a call is to serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// What the peer should serve.
    pub(crate) services: ServiceFlags,
    /// Whether others than the named peers may be called.
    pub(crate) automatic: bool,
    /// Whether onion services can be reached.
    pub(crate) onion: bool,
}

/// All addresses.
#[derive(Debug, Clone, Default)]
pub struct AddressBook {
    pub(crate) entries: BTreeMap<Place, Entry>,
    places: BTreeMap<Target, Place>,
    next: u64,
    pub(crate) bans: Bans,
}

/// Who is banned, and until when in seconds since 1970.
///
/// A peer that the user named is banned with its port: of one host, the user may name several. Of
/// other addresses the host is banned: ports cost an attacker nothing.
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
        // One that ends days later was put by a clock that was wrong. A clock may be set back a bit.
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

    /// See the module's documentation.
    fn is_terrible(&self, unix: u64) -> bool {
        self.standing == Standing::New
            && !self.busy
            && (self.seen.saturating_add(30 * DAY) < unix
                || (self.success == 0 && self.blamed >= 3)
                || (self.success.saturating_add(7 * DAY) < unix && self.blamed >= 10))
    }

    /// 0: claims the services; 1: nothing is known of it; 2: lacks them.
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
    /// An empty book.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many addresses the book holds, the named ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if the book holds no address.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a peer that the user names, at most [`MAX_NAMED`]; returns whether it is in the book.
    /// A ban from an earlier run is lifted: the user's word is newer.
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

    /// Takes in an address that a source tells. Returns whether it was new and is now in the book.
    /// Names, and addresses that are not on the Internet, are not taken.
    pub fn hear(
        &mut self,
        mut heard: Heard,
        source: Group,
        unix: u64,
        random: &mut Random,
    ) -> bool {
        let Some(group) = Group::of(&heard.target.host) else { return false };
        if heard.target.port == 0 || self.bans.holds_target(&heard.target, Standing::New, unix) {
            return false;
        }
        // As Core: a time that cannot be is taken for five days ago, and who tells may tell late.
        if heard.seen <= 100_000_000 || heard.seen > unix.saturating_add(600) {
            heard.seen = unix.saturating_sub(5 * DAY);
        }
        heard.seen = heard.seen.saturating_sub(2 * 3_600);
        if let Some(entry) = self.places.get(&heard.target).and_then(|at| self.entries.get_mut(at))
        {
            entry.seen = entry.seen.max(heard.seen);
            // What a peer said of itself is worth more than what others say.
            if entry.standing == Standing::New {
                entry.services |= heard.services;
            }
            return false;
        }
        if heard.seen.saturating_add(30 * DAY) < unix {
            return false;
        }
        if !self.make_room(group, source, unix, random) {
            return false;
        }
        self.insert(heard, Standing::New, source);
        true
    }

    /// Makes room for a new address of `group` by `source`; `false` if there is none.
    fn make_room(&mut self, group: Group, source: Group, unix: u64, random: &mut Random) -> bool {
        let automatic = || self.entries.iter().filter(|(_, entry)| entry.is_automatic());
        let is_of_source =
            |entry: &Entry| entry.standing == Standing::New && entry.source == source;
        let in_group = automatic().filter(|(_, entry)| entry.group == Some(group)).count();
        let of_source = automatic().filter(|(_, entry)| is_of_source(entry)).count();
        let terrible = |fits: &dyn Fn(&Entry) -> bool| {
            let mut all = automatic();
            all.find(|(_, entry)| fits(entry) && entry.is_terrible(unix)).map(|(place, _)| *place)
        };
        // A place within the limit that is reached leaves the other limit as it is.
        let victim = if in_group >= MAX_PER_GROUP {
            let victim = terrible(&|entry| entry.group == Some(group));
            let Some(victim) = victim else { return false };
            let same_source = self.entries.get(&victim).is_some_and(is_of_source);
            if of_source >= MAX_PER_SOURCE && !same_source {
                return false;
            }
            victim
        } else if of_source >= MAX_PER_SOURCE {
            let Some(victim) = terrible(&is_of_source) else { return false };
            victim
        } else if automatic().count() < MAX_ADDRESSES {
            return true;
        } else if let Some(victim) = terrible(&|_| true) {
            victim
        } else {
            let mut sources = BTreeMap::<Group, Vec<Place>>::new();
            for (place, entry) in automatic() {
                if entry.standing == Standing::New && !entry.busy {
                    sources.entry(entry.source).or_default().push(*place);
                }
            }
            let most = sources.values().max_by_key(|places| places.len());
            let Some(places) = most.filter(|places| places.len() > of_source) else { return false };
            let Some(victim) = places.get(random.below(places.len())) else { return false };
            *victim
        };
        self.remove(victim);
        true
    }

    pub(crate) fn insert(&mut self, heard: Heard, standing: Standing, source: Group) -> Place {
        let Heard { target, services, seen } = heard;
        let place = Place(self.next);
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
            failures: 0,
            due: Duration::ZERO,
            busy: false,
            called: false,
        };
        self.entries.insert(place, entry);
        place
    }

    fn remove(&mut self, place: Place) {
        if let Some(entry) = self.entries.remove(&place) {
            self.places.remove(&entry.target);
        }
    }

    /// An address to call now: a named one first, then by `wish`.
    pub(crate) fn due(&self, at: Moment, wish: Wish, random: &mut Random) -> Option<Place> {
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
        let busy = self.entries.values().filter(|entry| entry.busy);
        let occupied: BTreeSet<Group> = busy.filter_map(|entry| entry.group).collect();
        let is_near = |entry: &Entry| entry.group.is_some_and(|group| occupied.contains(&group));
        let mut best = Vec::new();
        let mut least = u8::MAX;
        let mut others_available = false;
        for (place, entry) in &self.entries {
            let reachable = wish.onion || !matches!(entry.target.host, Host::Onion(_));
            if !entry.is_automatic() || !reachable || !is_idle(entry) {
                continue;
            }
            let near = is_near(entry);
            others_available |= !near && entry.failures < AVAILABLE_FAILURES;
            if entry.due > at.elapsed {
                continue;
            }
            // Another group before the services: claims of services are hearsay.
            let rank = entry.service_rank(wish.services) + if near { 3 } else { 0 };
            if rank < least {
                least = rank;
                best.clear();
            }
            if rank == least {
                best.push((*place, entry));
            }
        }
        if least >= 3 && others_available {
            return None;
        }
        let wants_tried = random.number() & 1 == 0;
        let is_tried = |entry: &Entry| entry.standing == Standing::Tried;
        if best.iter().any(|(_, entry)| is_tried(entry) == wants_tried) {
            best.retain(|(_, entry)| is_tried(entry) == wants_tried);
        }
        let failures = best.iter().map(|(_, entry)| entry.failures).min()?;
        best.retain(|(_, entry)| entry.failures == failures);
        best.get(random.below(best.len())).map(|(place, _)| *place)
    }

    /// The address is called.
    pub(crate) fn calls(&mut self, place: Place) {
        if let Some(entry) = self.entries.get_mut(&place) {
            entry.busy = true;
        }
    }

    /// A handshake is done; `group` is that of the address behind a name, where it is known.
    pub(crate) fn succeeded(
        &mut self,
        place: Place,
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
        if entry.standing == Standing::New {
            entry.standing = Standing::Tried;
            if is_full && let Some(oldest) = oldest.and_then(|at| self.entries.get_mut(&at)) {
                oldest.standing = Standing::New;
            }
        }
    }

    /// A call has failed, or a connection that lasted so long has ended. `blame` is whether the
    /// address is to blame for a failure. Returns how long it is left alone.
    pub(crate) fn ended(
        &mut self,
        place: Place,
        lasted: Duration,
        blame: bool,
        at: Moment,
        random: &mut Random,
    ) -> Duration {
        // Peers that went down together are not called together.
        let jitter = u32::try_from(random.below(512)).unwrap_or(0);
        let Some(entry) = self.entries.get_mut(&place) else { return Duration::ZERO };
        if lasted >= GOOD_AFTER {
            entry.failures = 1;
            (entry.success, entry.seen) = (at.unix, entry.seen.max(at.unix));
        } else {
            entry.failures = entry.failures.saturating_add(1);
            entry.blamed = entry.blamed.saturating_add(u16::from(blame));
        }
        let doublings = (entry.failures - 1).min(16);
        let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
        // Three quarters to five quarters of it.
        let wait = wait.saturating_mul(768 + jitter) / 1_024;
        (entry.busy, entry.called, entry.due) = (false, true, at.elapsed + wait);
        if matches!(entry.target.host, Host::Name(_)) {
            entry.group = None;
        }
        wait
    }

    /// Bans an address for [`BAN_TIME`]: one that the user named with its port, else the whole host.
    pub(crate) fn ban(&mut self, place: Place, unix: u64) {
        let Some(entry) = self.entries.get_mut(&place) else { return };
        (entry.busy, entry.called) = (false, true);
        self.bans.insert(Bans::key(&entry.target, entry.standing), unix.saturating_add(BAN_TIME));
    }

    /// Whether an address is in the book.
    pub fn holds(&self, target: &Target) -> bool {
        self.places.contains_key(target)
    }

    pub(crate) fn target(&self, place: Place) -> Option<&Target> {
        self.entries.get(&place).map(|entry| &entry.target)
    }

    pub(crate) fn is_named(&self, place: Place) -> bool {
        self.entries.get(&place).is_some_and(|entry| !entry.is_automatic())
    }

    /// The group of an address as a source of others.
    pub(crate) fn source(&self, place: Place) -> Group {
        self.entries.get(&place).and_then(|entry| entry.group).unwrap_or(Group::UNROUTED)
    }

    /// Whether there are so few addresses that peers are to be asked.
    pub(crate) fn wants_more(&self) -> bool {
        self.entries.values().filter(|entry| entry.is_automatic()).count() < WANTED
    }

    /// Where an address stands. `Calling` stands for `Connected` too, which only the pool can tell.
    pub(crate) fn state(&self, place: Place, unix: u64) -> AddressState {
        match self.entries.get(&place) {
            Some(entry) if self.bans.holds(entry, unix) => AddressState::Banned,
            Some(entry) if entry.busy => AddressState::Calling,
            _ => AddressState::Idle,
        }
    }

    /// The places of the addresses that may be called: named ones, and others if `automatic`.
    pub(crate) fn places(&self, automatic: bool) -> impl Iterator<Item = Place> {
        let callable =
            self.entries.iter().filter(move |(_, entry)| automatic || !entry.is_automatic());
        callable.map(|(place, _)| *place)
    }

    /// Whether an address was called in this run and the call is over.
    pub(crate) fn was_called(&self, place: Place) -> bool {
        self.entries.get(&place).is_some_and(|entry| entry.called)
    }

    /// Whether an idle address that can be called now may serve better than a peer that lacks the
    /// services: it was never called in this run, or `again` and it is not known to lack them too.
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

#[cfg(test)]
mod tests;
