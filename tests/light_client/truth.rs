//! The hits that a wallet must get, read from the blocks.

use std::collections::{BTreeMap, BTreeSet};

use chainsieve::bitcoin::{BlockHash, OutPoint, ScriptBuf, Transaction, Txid};
use chainsieve::btc::client::Hit;

use super::mined::Chain;

/// The wallet's outputs and inputs in each transaction of a block.
pub(crate) type Shares = BTreeMap<(BlockHash, Txid), (BTreeSet<u32>, BTreeSet<u32>)>;

/// The scripts and heights that a wallet watches.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    /// Scripts that are given one by one.
    pub(crate) scripts: Vec<ScriptBuf>,
    /// The scripts of a descriptor by index, as many as are ever used.
    pub(crate) derived: Vec<ScriptBuf>,
    /// Number of indices that are watched from the start.
    pub(crate) range: usize,
    /// Number of indices after a used one that are watched at least.
    pub(crate) gap: usize,
    /// The first and the last height to scan.
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Watched {
    pub(crate) fn scripts(scripts: &[ScriptBuf], first: u32) -> Self {
        let (derived, scripts) = (Vec::new(), scripts.to_vec());
        Self { scripts, derived, range: 0, gap: 0, first, last: u32::MAX }
    }

    /// Returns what must be reported: payments to the watched scripts from `first` on, to indices
    /// within the gap of used indices, and the spends of these coins.
    ///
    /// The gap counts indices and not blocks (BIP44): an index that a later block brings within the
    /// gap counts in earlier blocks, too.
    pub(crate) fn must(&self, chain: &Chain) -> Shares {
        let blocks = || {
            let blocks = chain.blocks().iter();
            blocks.filter(|mined| (self.first..=self.last).contains(&mined.height))
        };
        let outputs =
            blocks().flat_map(|mined| mined.block.txdata.iter().flat_map(|tx| &tx.output));
        let paid: BTreeSet<_> = outputs.map(|output| &output.script_pubkey).collect();
        let mut end = self.range;
        loop {
            let used = self.derived.iter().take(end).rposition(|script| paid.contains(script));
            let further = used.map_or(0, |used| used + 1 + self.gap).min(self.derived.len());
            if further <= end {
                break;
            }
            end = further;
        }
        let watched: BTreeSet<_> =
            self.scripts.iter().chain(self.derived.iter().take(end)).collect();
        let mut coins = BTreeSet::new();
        let mut shares = Shares::new();
        for mined in blocks() {
            for (tx, txid) in mined.block.txdata.iter().zip(&mined.txids) {
                let share = share(tx, *txid, &watched, &mut coins);
                if !(share.0.is_empty() && share.1.is_empty()) {
                    shares.insert((mined.hash, *txid), share);
                }
            }
        }
        shares
    }

    /// Returns what may be reported: every payment to the wallet and every spend of its coins.
    pub(crate) fn may(&self, chain: &Chain) -> Shares {
        let watched: BTreeSet<_> = self.scripts.iter().chain(&self.derived).collect();
        let mut coins = BTreeSet::new();
        let mut shares = Shares::new();
        for mined in chain.blocks() {
            for (tx, txid) in mined.block.txdata.iter().zip(&mined.txids) {
                let share = share(tx, *txid, &watched, &mut coins);
                shares.insert((mined.hash, *txid), share);
            }
        }
        shares
    }
}

fn share(
    tx: &Transaction,
    txid: Txid,
    watched: &BTreeSet<&ScriptBuf>,
    coins: &mut BTreeSet<OutPoint>,
) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let spent = (0..).zip(&tx.input).filter(|(_, input)| coins.contains(&input.previous_output));
    let spent = spent.map(|(vin, _)| vin).collect();
    let paid = (0..).zip(&tx.output).filter(|(_, output)| watched.contains(&output.script_pubkey));
    let paid: BTreeSet<u32> = paid.map(|(vout, _)| vout).collect();
    coins.extend(paid.iter().map(|&vout| OutPoint { txid, vout }));
    (paid, spent)
}

/// Returns the heights and txids of the hits that the wallet must get.
pub(crate) fn places(chain: &Chain, watched: &Watched) -> BTreeSet<(u32, Txid)> {
    let all = watched.must(chain).into_keys();
    all.map(|(block, txid)| (chain.height_of(&block).unwrap(), txid)).collect()
}

/// Returns the outputs and inputs that a hit reports as the wallet's.
pub(crate) fn share_of(hit: &Hit) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let received = hit.received.iter().map(|received| received.vout).collect();
    (received, hit.spent.iter().map(|spent| spent.vin).collect())
}
