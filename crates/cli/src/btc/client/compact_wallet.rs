//! The wallet that asks compact filters and looks through blocks.

use std::collections::BTreeMap;

use chainsieve::bitcoin::OutPoint;
use chainsieve::btc::bip157::{ScanBlock, Why};
use chainsieve::btc::bip158::block_scan::{History, Outcome, Reason, RelevantTransaction, Watch};
use chainsieve::btc::bip158::{Acceptance, BlockFilter, BoundBlock, Matcher, PreparedScripts};
use chainsieve::btc::headers::{BlockAt, HeaderChain};
use chainsieve::simd::Backend;

use super::announcer::Announcer;
use super::compact_words;
use super::hit::{Evidence, Hit, Received, Spent};
use super::wallet::{Coins, Owner, Wallet};

/// A block to look at, and who sent it.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) block: ScanBlock,
    /// Its size on the wire.
    pub(crate) bytes: usize,
    pub(crate) peer: Option<String>,
}

/// Scripts, prepared for filters and for blocks.
#[derive(Debug)]
pub(crate) struct CompactWallet {
    wallet: Wallet,
    coins: Coins,
    pub(crate) announcer: Announcer,
    history: History,
    prepared: PreparedScripts,
    matcher: Matcher,
    watch: Watch,
    /// By the watch's index of a script: whose it is.
    owners: BTreeMap<usize, Owner>,
    /// Scripts of the wallet that are watched already.
    added: usize,
    /// The highest block that was looked at.
    scanned: Option<u32>,
}

impl CompactWallet {
    /// `history` says whether the scripts may have been used before the first block.
    pub(crate) fn new(wallet: Wallet, announcer: Announcer, history: History) -> Self {
        let mut compact = Self {
            coins: Coins::of(&wallet),
            wallet,
            announcer,
            history,
            prepared: PreparedScripts::new(),
            matcher: Matcher::new(Backend::best()),
            watch: Watch::new(),
            owners: BTreeMap::new(),
            added: 0,
            scanned: None,
        };
        for coin in compact.wallet.coins.clone() {
            let Some(script) = coin.script else { continue };
            compact.prepared.push(script.as_bytes());
            let place = compact.watch.add_outpoint(coin.outpoint, script);
            if let Some(owner) = compact.coins.owner(&coin.outpoint) {
                compact.owners.entry(place).or_insert_with(|| owner.clone());
            }
        }
        compact.add_scripts();
        compact
    }

    /// Watches the wallet's scripts that are not watched yet.
    fn add_scripts(&mut self) {
        let new = self.wallet.scripts().get(self.added..).unwrap_or_default();
        for watched in new {
            self.prepared.push(watched.script.as_bytes());
            let place = self.watch.add_script(watched.script.clone(), self.history);
            self.owners.insert(place, Owner::of(watched));
        }
        self.added = self.wallet.scripts().len();
    }

    /// The next index of each ranged descriptor.
    pub(crate) fn next_indices(&self) -> Vec<u32> {
        self.wallet.next_indices()
    }

    /// Goes on where an earlier run stopped: its filters were asked up to the indices `next`. Returns
    /// the height from which filters are to be asked again for those further on.
    pub(crate) fn restore(
        &mut self,
        next: Option<&[u32]>,
        chain: &HeaderChain,
    ) -> anyhow::Result<Option<u32>> {
        self.announcer.resume(chain)?;
        if let Some(next) = next {
            self.wallet.derive_to(next)?;
        }
        let mut rescan: Option<u32> = None;
        // Lowest first: what is found leads to indices further on.
        for received in self.announcer.ledger().received() {
            let (height, owner) = (received.height, received.owner);
            let keychain = self.wallet.keychain(&owner);
            if let Some(script) = owner.script.clone() {
                self.watch.add_outpoint(received.outpoint, script);
            }
            self.coins.add(received.outpoint, owner);
            // The indices kept may be older than the hit, which tells its own.
            if let Some((keychain, index)) = keychain
                && !self.wallet.advance(keychain, index, false)?.is_empty()
            {
                rescan = Some(rescan.map_or(height, |lowest| lowest.min(height)));
            }
        }
        self.add_scripts();
        Ok(rescan.filter(|_| next.is_some()))
    }

    /// Whether a filter may hold one of the scripts, or cannot be read.
    pub(crate) fn may_concern(&mut self, filter: &BlockFilter) -> bool {
        let matches = filter
            .gcs(Acceptance::Strict)
            .and_then(|filter| self.matcher.match_any(&filter, &self.prepared));
        matches.unwrap_or(true)
    }

    /// Looks through a block. Returns the height from which filters are to be asked again: for
    /// scripts that the block has led to, or since a coin was found behind a block that may spend it.
    pub(crate) fn scan(
        &mut self,
        wanted: &Wanted,
        chain: &HeaderChain,
    ) -> anyhow::Result<Option<u32>> {
        let ScanBlock { at, block, why, .. } = &wanted.block;
        // Whose header is in the chain, as the filters' state machine has checked.
        let bound = BoundBlock::bind(block, at.hash, self.announcer.network())?;
        let mut again: Option<u32> = None;
        loop {
            let scan = self.watch.scan(at.height, &bound);
            let mut hits = Vec::new();
            let (mut new_coin, mut new_scripts) = (false, false);
            for tx in &scan.transactions {
                hits.push(self.hit(*at, tx, *why, wanted.peer.clone()));
                for reason in &tx.reasons {
                    let Reason::Created { vout, script, .. } = *reason else { continue };
                    let outpoint = OutPoint { txid: tx.txid, vout };
                    let Some(owner) = self.owners.get(&script) else { continue };
                    new_coin |= self.coins.owner(&outpoint).is_none();
                    self.coins.add(outpoint, owner.clone());
                    let script = owner.script.as_ref().and_then(|it| self.wallet.script(it));
                    let label = script.and_then(|watched| self.wallet.label(watched));
                    if let Some((keychain, index)) = label {
                        new_scripts |= !self.wallet.advance(keychain, index, false)?.is_empty();
                    }
                }
            }
            self.announcer.found(&hits, chain)?;
            if scan.outcome() == Outcome::NoneSeen && *why == Why::Matched {
                let text = format!(
                    "{at}: its filter matches, and no transaction is seen to concern what is watched; an \
                     input that shows no script may spend a coin from before"
                );
                self.announcer.finding("none_seen", Some(*at), &text)?;
            }
            if new_coin && self.scanned.is_some_and(|scanned| scanned > at.height) {
                again = Some(at.height + 1);
            }
            self.scanned = self.scanned.max(Some(at.height));
            if !new_scripts {
                return Ok(again);
            }
            // The block itself may hold the new scripts too.
            self.add_scripts();
            again = Some(at.height);
        }
    }

    fn hit(&self, at: BlockAt, tx: &RelevantTransaction, why: Why, peer: Option<String>) -> Hit {
        let (mut received, mut spent) = (Vec::new(), Vec::new());
        for reason in &tx.reasons {
            match *reason {
                Reason::Created { vout, script, value } => {
                    if let Some(owner) = self.owners.get(&script).cloned() {
                        received.push(Received { vout, value, owner });
                    }
                }
                Reason::Spent { vin, outpoint, script } => {
                    let owner = self.coins.owner(&outpoint).or_else(|| self.owners.get(&script));
                    spent.push(Spent { vin, outpoint, owner: owner.cloned(), certain: true });
                }
                Reason::LooksSpent { vin, outpoint, script } => {
                    let owner = self.owners.get(&script).cloned();
                    spent.push(Spent { vin, outpoint, owner, certain: false });
                }
            }
        }
        Hit {
            place: Some((at.height, at.hash, tx.index)),
            txid: tx.txid,
            received,
            spent,
            reason: compact_words::why(why),
            evidence: Evidence::Block,
            peer,
        }
    }

    /// The blocks above a height have left the chain.
    pub(crate) fn roll_back(
        &mut self,
        height: u32,
        gone: &[BlockAt],
        chain: &HeaderChain,
    ) -> anyhow::Result<()> {
        self.watch.rewind(height);
        self.scanned = self.scanned.map(|scanned| scanned.min(height));
        self.announcer.roll_back(height, gone, chain)
    }
}
