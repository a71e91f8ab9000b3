//! The start of a client, from the stored files to the follower, and the state that is stored for the
//! next start.

use core::time::Duration;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use bitcoin::hex::DisplayHex as _;
use bitcoin::p2p::Magic;
use thiserror::Error;

use super::blocks_asked::BlocksAsked;
use super::bloom::BloomFollower;
use super::broadcast::Broadcasts;
use super::filter_cache::FilterCache;
use super::filters::FilterFollower;
use super::follower;
use super::header_sync::{HeaderSync, StaleTip};
use super::hits::Hits;
use super::journal::VERSION as JOURNAL_VERSION;
use super::machine::{Follower, LightClient, Start};
use super::outbox::Outbox;
use super::state::{RestoreError, Saved, SavedBloom, SavedItem, SavedItems};
use super::wallets::Wallets;
use super::{Action, Config, File, Finding, News, Protocol, StoredFiles, WalletId, WatchId, Write};
use crate::btc::bip37::session::{self, FilterPolicy, Session};
use crate::btc::bip157::{self, CHECKPOINT_INTERVAL, FilterSync};
use crate::btc::headers::{HeaderChain, HeaderChainError, HeaderRules};
use crate::steady_clock::SteadyClock;

/// Error of [`LightClient::new`]: the stored files or the configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The header file cannot be decoded.
    #[error("headers: {0}")]
    Headers(HeaderChainError),
    /// The stored headers belong to another network.
    #[error("the stored headers belong to {kept}, not to {wanted}")]
    Network {
        /// Network of the stored headers.
        kept: bitcoin::Network,
        /// Network of the configuration.
        wanted: bitcoin::Network,
    },
    /// The stored state belongs to a network with another magic, such as another signet.
    #[error("the stored state has network magic {}, not {wanted}", kept.to_lower_hex_string())]
    Magic {
        /// Network magic in the storage.
        kept: Vec<u8>,
        /// Network magic of the configuration.
        wanted: Magic,
    },
    /// The journal has another version, such as that of a newer version of this crate. The client
    /// does not touch it: acknowledged hits would be delivered again as new hits.
    #[error("the journal has version {kept}, the supported version is {JOURNAL_VERSION}")]
    Journal {
        /// Version of the journal in the storage.
        kept: u8,
    },
    /// BIP157: the height of a checkpoint is not a positive multiple of 1,000.
    #[error("checkpoint at height {0}, but only multiples of {CHECKPOINT_INTERVAL} are possible")]
    Checkpoint(u32),
    /// The network cannot have the configured block time.
    #[error(transparent)]
    BlockTime(HeaderChainError),
}

impl LightClient {
    /// Creates a client that continues from the files of an earlier run.
    ///
    /// An incomplete end of the header file is cut off, and a stored state that cannot be used is
    /// dropped. An update reports each of these two cases. Unacknowledged hits are delivered again
    /// once their wallet is added with [`Event::Watch`](super::Event::Watch).
    ///
    /// # Errors
    /// [`OpenError`] if the stored headers are malformed, if the stored files belong to another
    /// network, if the journal has another version, or if the height of a checkpoint or the block time
    /// is invalid.
    pub fn new(config: Config, kept: &StoredFiles) -> Result<Self, OpenError> {
        // An invalid checkpoint must be reported here, because `Self::filter_config` relies on this
        // check.
        filter_config(&config, 0)?;
        let mut outbox = Outbox::default();
        let mut actions = Vec::new();
        let chain = open_headers(kept.headers.as_deref(), &config, &mut outbox, &mut actions)?;
        // The headers were checked first, because their error names the networks. Header files of
        // two signets look alike, so only the magic distinguishes one signet from another.
        let magic = config.magic.to_bytes();
        match &kept.network {
            Some(kept) if **kept != magic => {
                return Err(OpenError::Magic { kept: kept.clone(), wanted: config.magic });
            }
            Some(_) => {}
            // The storage has no magic yet: store it.
            None => {
                let bytes = magic.to_vec();
                let (id, write) = outbox.write(Write::Replace { file: File::Network, bytes });
                actions.push(Action::Write(id, write));
            }
        }
        let saved = kept.state.as_deref().and_then(|bytes| {
            let saved = Saved::decode(bytes, config.protocol, config.network);
            saved
                .inspect_err(|error| {
                    outbox.push(None, false, News::Finding(Finding::StartedOver(*error)));
                })
                .ok()
        });
        let journal = kept.journal.as_deref().unwrap_or_default();
        let (mut hits, is_damaged) =
            Hits::replay(journal).map_err(|kept| OpenError::Journal { kept })?;
        if is_damaged {
            hits.note_lost(chain.tip().height);
            let (file, bytes) = (File::DamagedJournal, journal.to_vec());
            let finding = Finding::JournalDamaged(bytes.len() as u64);
            outbox.push(None, false, News::Finding(finding));
            let (id, write) = outbox.write(Write::Replace { file, bytes });
            actions.push(Action::Write(id, write));
        }
        let stored = saved.as_ref().map_or(0, |saved| saved.journal_events);
        // The state counts records that the journal has lost. Later records must not take their
        // numbers: the state does not know them.
        let has_lost = is_damaged || hits.events < stored;
        if has_lost {
            hits.pass_over(stored);
        }
        // Obsolete records make the journal large and its replay slow.
        if has_lost || hits.is_wasteful() {
            let bytes = hits.rewrite(if has_lost { 0 } else { stored });
            let (id, write) = outbox.write(Write::Replace { file: File::Journal, bytes });
            actions.push(Action::Write(id, write));
        }
        let known = saved.as_ref().map(|saved| SavedItems {
            journal_events: saved.journal_events,
            items: saved.items.clone(),
        });
        Ok(Self {
            headers: HeaderSync::new(chain, config.timeout),
            start: Start::Headers(saved),
            follower: None,
            peers: BTreeMap::new(),
            wallets: Wallets::new(config.protocol),
            hits,
            journal: Vec::new(),
            outbox,
            cache: FilterCache::new(config.kept_filters, &kept.filters),
            blocks: BlocksAsked::new(config.timeout),
            broadcasts: Broadcasts::default(),
            bloom: SavedBloom::default(),
            steps: 0,
            caught_up: false,
            changes: 0,
            watched: WatchId::default(),
            recorded: WatchId::default(),
            recorded_at: Duration::ZERO,
            known,
            saved: (0, Duration::ZERO),
            reported: (0, Duration::ZERO),
            told: None,
            clock_reported: false,
            stale_tip: StaleTip::new(config.network, config.block_time),
            clock: SteadyClock::default(),
            actions,
            config,
        })
    }

    /// Creates the follower once the headers are caught up. With [`Protocol::HeadersOnly`] there is
    /// no follower.
    pub(super) fn start(&mut self, now: Duration) {
        if !self.has_headers() || self.config.protocol == Protocol::HeadersOnly {
            if self.config.protocol == Protocol::HeadersOnly && self.has_headers() {
                self.start = Start::Done;
            }
            return;
        }
        let Start::Headers(saved) = &mut self.start else { return };
        let saved = saved.take();
        if self.config.protocol == Protocol::Bip37 {
            let Some(saved) = &saved else {
                let [a, b, c, d, ..] = self.config.seed;
                self.bloom.tweak = u32::from_le_bytes([a, b, c, d]);
                // The tweak must be durable before the first filter is sent. After a crash, a
                // filter with another tweak would let peers intersect the two filters and identify
                // the wallet.
                let first = Saved { bloom: self.bloom.clone(), ..self.saved_now() };
                let bytes = first.encode(self.config.protocol, self.config.network);
                let id = self.write(Write::Replace { file: File::State, bytes });
                self.start = Start::Tweak(id);
                return;
            };
            self.bloom = saved.bloom.clone();
        }
        self.begin(saved.as_ref(), now);
    }

    /// Creates the follower from the stored state, and repeats the parts of the scan that the
    /// stored state does not cover.
    pub(super) fn begin(&mut self, saved: Option<&Saved>, now: Duration) {
        self.start = Start::Done;
        let first = self.first_wanted();
        // The chain may differ from the chain in which the hits were found, for example if the
        // header file was cut.
        if let Some(lowest) = self.hits.lowest_outside(self.headers.chain()) {
            self.roll_back(lowest.saturating_sub(1), Vec::new());
        }
        // The journal may have lost hits that the stored progress relies on.
        let lost = saved.and_then(|saved| self.hits.lost_since(saved.journal_events));
        let again = saved.and_then(|saved| saved.again).into_iter().chain(lost).min();
        // Wallets that come later may want heights that the stored scan has answered, and no others.
        let lowest = saved.map_or(first, |saved| saved.first.min(first));
        let again = again.map(|again| again.max(lowest));
        let ids: Vec<_> = self.wallets.ids().cloned().collect();
        let coins: Vec<_> = ids.iter().flat_map(|id| self.coins(id)).collect();
        let used: BTreeSet<_> = coins.iter().flat_map(|(_, s)| self.wallets.labels(s)).collect();
        // Coins that were found after the state was stored, in blocks that the state has answered.
        let since = saved.map_or(u64::MAX, |saved| saved.journal_events);
        let mut late = self.hits.coins_since(since, u32::MAX);
        late.retain(|(script, _)| self.wallets.is_watched(script));
        let follower = if self.config.protocol == Protocol::Bip37 {
            let answered = self.bloom.answered_to(self.headers.chain());
            let answered = saved.zip(answered).map(|(saved, last)| saved.first..=last);
            // No wallet may be there yet that wants the heights of the stored progress.
            let first = answered.as_ref().map_or(first, |it| first.min(*it.start()));
            let policy = FilterPolicy {
                capacity: self.bloom.capacity,
                fpr: self.config.fpr,
                ..FilterPolicy::new(self.bloom.tweak)
            };
            let mut config = session::Config::new(self.config.network, policy);
            config.timeout = self.config.timeout;
            config.in_flight = self.config.in_flight;
            let session = Session::new(config);
            let last = self.config.last;
            Follower::Bloom(Box::new(BloomFollower::new(session, first, last, answered)))
        } else {
            let sync = self.filter_sync(saved, first);
            let config = self.filter_config(sync.first());
            Follower::Filters(Box::new(FilterFollower::new(sync, &config)))
        };
        self.follower = Some(follower);
        self.wallets.resolve(self.headers.chain());
        self.follow(follower::Event::Start { first, coins, used, late }, now);
        if let Some(from) = again {
            self.follow(follower::Event::Rescan(from), now);
        }
        // The follower has not heard of the peers that connected before it existed, nor of their
        // blocks.
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            self.introduce(id, now);
        }
        let shown: Vec<_> = self.headers.shown().collect();
        for (id, hash) in shown {
            self.shown(id, hash, now);
        }
    }

    /// Restores the filter sync from the stored state, or creates a new filter sync.
    fn filter_sync(&mut self, saved: Option<&Saved>, first: u32) -> FilterSync {
        if let Some(saved) = saved {
            let config = self.filter_config(saved.first);
            match FilterSync::restore(config, self.headers.chain(), &saved.filters) {
                Ok(sync) => return sync,
                Err(error) => {
                    let finding = Finding::StartedOver(RestoreError::Filters(error));
                    self.outbox.push(None, false, News::Finding(finding));
                }
            }
        }
        FilterSync::new(self.filter_config(first))
    }

    /// Builds the configuration of the filter sync from `first` on.
    fn filter_config(&self, first: u32) -> bip157::Config {
        filter_config(&self.config, first).expect("checked when the client was made")
    }

    /// Returns the lowest height wanted by the configuration or by a wallet. If neither the
    /// configuration nor a wallet names a height, only new blocks are wanted, and the result is the
    /// height of the tip.
    fn first_wanted(&self) -> u32 {
        let chain = self.headers.chain();
        let own = self.config.first.map(|first| first.height(chain));
        let wallets = self.wallets.lowest(chain);
        own.into_iter().chain(wallets).min().unwrap_or(chain.tip().height)
    }

    /// Returns the state to store, without the parts that only the follower knows.
    fn saved_now(&self) -> Saved {
        let mut items: BTreeMap<(WalletId, [u8; 32]), SavedItem> = BTreeMap::new();
        let answered_from = self.follower.as_ref().map_or(u32::MAX, Follower::answered_from);
        // Items of an earlier run that this run does not watch: their progress ends where this run
        // has answered heights.
        let mut late = BTreeMap::new();
        for (id, record) in self.hits.items() {
            let stored = self.known.as_ref();
            let known = stored.and_then(|stored| stored.known(&self.hits, id, &record.key));
            let todo = known.map_or(Some(record.from), |known| known.todo);
            let events = stored.map_or(u64::MAX, |stored| stored.journal_events);
            let late = late.entry(id).or_insert_with(|| self.hits.late_from(id, events));
            let todo = todo.into_iter().chain(*late).min();
            let from = (answered_from < u32::MAX).then_some(answered_from.max(record.from));
            let item = SavedItem {
                next: known.map_or(record.first_index, |known| known.indices.1),
                todo: todo.into_iter().chain(from).min(),
            };
            items.insert((id.clone(), record.key), item);
        }
        let owed = self.follower.as_ref().map(|follower| follower.searched().owed());
        let mut lowest = BTreeMap::new();
        for (script, height) in owed.unwrap_or_default() {
            let known = lowest.entry(script).or_insert(height);
            *known = height.min(*known);
        }
        let todo = self.wallets.todo(&lowest);
        for id in self.wallets.ids().filter(|id| !id.is_internal()) {
            for progress in self.wallets.progress(id, self.chain()) {
                let key = (id.clone(), progress.key);
                let todo = todo.get(&key).copied();
                items.insert(key, SavedItem { next: progress.indices.1, todo });
            }
        }
        // Most items have no progress of their own.
        items.retain(|_, item| *item != SavedItem::default());
        Saved {
            journal_events: self.hits.events,
            first: self.follower.as_ref().map_or_else(|| self.first_wanted(), Follower::first),
            items,
            ..Saved::default()
        }
    }

    /// Writes the state. The journal is written first: the stored progress must not cover hits that
    /// are not stored.
    pub(super) fn save(&mut self, now: Duration) {
        // The state counts the records of items.
        self.record_items(now);
        self.flush_journal();
        let Some(follower) = &self.follower else { return };
        let mut saved = self.saved_now();
        match follower {
            Follower::Filters(filters) => {
                saved.again = filters.again();
                saved.filters = filters.sync.encode(self.headers.chain());
            }
            Follower::Bloom(bloom) => {
                self.bloom.capacity = bloom.session.filter_policy().capacity;
                self.bloom.set_answered(bloom.answered_to(), self.headers.chain());
                saved.bloom = self.bloom.clone();
            }
        }
        let bytes = saved.encode(self.config.protocol, self.config.network);
        self.write(Write::Replace { file: File::State, bytes });
        self.saved = (self.steps(), now);
    }
}

/// Builds the configuration of the filter sync from `first` on. Fails if the height of a checkpoint
/// is invalid.
fn filter_config(config: &Config, first: u32) -> Result<bip157::Config, OpenError> {
    let mut filters = bip157::Config::new(config.network, first, config.seed);
    filters.last = config.last;
    filters.spot_audits = config.spot_audits;
    filters.limits = bip157::Limits { timeout: config.timeout, ..config.filter_limits };
    for (height, header) in &config.checkpoints {
        if !filters.trust(*height, *header) {
            return Err(OpenError::Checkpoint(*height));
        }
    }
    Ok(filters)
}

/// Decodes the stored chain of headers, and queues the writes that repair the file.
///
/// An empty or incomplete preamble gives a new chain. Invalid or incomplete headers at the end are
/// cut off and reported.
fn open_headers(
    bytes: Option<&[u8]>,
    config: &Config,
    outbox: &mut Outbox,
    actions: &mut Vec<Action>,
) -> Result<HeaderChain, OpenError> {
    let rules =
        HeaderRules::new(config.network, config.block_time).map_err(OpenError::BlockTime)?;
    let fresh = HeaderChain::new(rules);
    let bytes = bytes.unwrap_or_default();
    let mut write = |write| {
        let (id, write) = outbox.write(write);
        actions.push(Action::Write(id, write));
    };
    // A crash while the file was created can leave part of the preamble, with which every header
    // file begins.
    if fresh.encode().starts_with(bytes) {
        write(Write::Replace { file: File::Headers, bytes: fresh.encode() });
        return Ok(fresh);
    }
    match HeaderChain::decode_with(bytes, rules) {
        Ok(chain) => Ok(chain),
        // Headers of another network would never connect to those of the peers.
        Err(HeaderChainError::OtherNetwork { kept, wanted }) => {
            Err(OpenError::Network { kept, wanted })
        }
        Err(error) => {
            let intact = error.intact_len().ok_or(OpenError::Headers(error))?;
            let length = usize::try_from(intact).unwrap_or(bytes.len()).min(bytes.len());
            let prefix = bytes.get(..length).unwrap_or_default();
            let chain = HeaderChain::decode_with(prefix, rules).map_err(OpenError::Headers)?;
            write(Write::Append { file: File::Headers, at: intact, bytes: Vec::new() });
            let cut = (bytes.len() - length) as u64;
            outbox.push(None, false, News::Finding(Finding::HeadersCut(cut)));
            Ok(chain)
        }
    }
}
