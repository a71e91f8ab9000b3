//! A light client of Bitcoin's peers: `btc sync`, `btc watch`, `btc rescan`.

mod announcer;
mod bloom;
mod bloom_findings;
mod bloom_state;
mod compact;
mod compact_state;
mod compact_wallet;
mod compact_words;
mod driver;
mod folder;
mod follower;
mod header_store;
mod header_sync;
mod hit;
mod ledger;
#[cfg(test)]
mod mined;
#[cfg(test)]
mod node;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod scratch;
mod summary;
mod sync;
mod wallet;
mod watch;
#[cfg(test)]
mod world;
#[cfg(test)]
mod world_tests;

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use chainsieve::bitcoin::Network;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::btc::bip157::Config;
use chainsieve::btc::headers::HeaderChain;

use crate::args::client::{Birthday, PeerArgs, TrustArgs};
use crate::args::compact::HeaderAt;
use crate::btc::p2p::pool::{Pool, PoolConfig};
use crate::output::{count, print_log};
use crate::stop::Stop;
use driver::Until;
use folder::Folder;
use header_store::{HeaderStore, Stored};

pub(crate) use sync::run as sync;

pub(crate) use watch::{rescan, watch};

/// What every run begins with.
struct Setup {
    folder: Folder,
    store: HeaderStore,
    chain: HeaderChain,
    pool: Pool,
    stop: Stop,
}

impl Setup {
    fn new(args: &PeerArgs, network: Network, services: ServiceFlags) -> anyhow::Result<Self> {
        let stop = Stop::on_signals()?;
        let folder = Folder::open(&args.data)?;
        let Stored { store, chain, cut } = HeaderStore::open(&folder.file("headers"), network)?;
        if cut > 0 {
            let cut = count(usize::try_from(cut)?, "byte");
            print_log(&format!("headers: {cut} that were not written whole are cut off"));
        }
        let pool = Pool::new(PoolConfig {
            network,
            peers: args.peer.clone(),
            max_peers: args.max_peers.into(),
            services: ServiceFlags::NETWORK | ServiceFlags::WITNESS | services,
            start_height: chain.tip().height,
        })?;
        Ok(Self { folder, store, chain, pool, stop })
    }
}

fn patience(args: &PeerArgs) -> Duration {
    Duration::from_secs(args.patience.into())
}

fn until(args: &PeerArgs, caught_up: bool) -> Until {
    Until { caught_up, give_up: Duration::from_secs(args.give_up.into()) }
}

/// How far the clock of a header may be behind, and more: blocks of the day before are looked at
/// too.
const CLOCK: u32 = 4 * 3_600;

/// The first height of a birthday. Of a day, the first block that is not clearly before it.
fn first_height(birthday: Birthday, chain: &HeaderChain) -> u32 {
    let day = match birthday {
        Birthday::Height(height) => return height,
        Birthday::Day(day) => day.saturating_sub(CLOCK),
    };
    // Median times ascend, times of blocks need not.
    let (mut low, mut high) = (0, chain.tip().height);
    while low < high {
        let middle = low + (high - low) / 2;
        if chain.median_time_past(middle).is_some_and(|time| time < day) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // The block itself is later than the median of those before it.
    low.saturating_sub(11)
}

/// How the filters of peers are compared.
fn filter_config(
    network: Network,
    first: u32,
    trust: &TrustArgs,
    peers: &PeerArgs,
) -> anyhow::Result<Config> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(|error| anyhow!("no random number: {error}"))?;
    let mut config = Config::new(network, first, seed);
    config.spot_audits = trust.spot_audits;
    config.limits.patience = patience(peers);
    for HeaderAt { height, header } in &trust.checkpoint {
        config.trust(*height, *header).context("--checkpoint")?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::mined::{self, UNIX};
    use super::*;

    #[test]
    fn a_day_begins_before_its_first_block_and_not_long_before() {
        let mut chain = HeaderChain::new(Network::Regtest);
        let genesis = *chain.header_at(0).unwrap();
        // A second apart.
        chain.accept(&mined::headers(&genesis, 100, 1), UNIX).unwrap();
        assert_eq!(first_height(Birthday::Height(7), &chain), 7);
        for height in 0..=100 {
            let day = genesis.time + height + CLOCK;
            let first = first_height(Birthday::Day(day), &chain);
            assert!((height.saturating_sub(20)..=height).contains(&first), "{height}: {first}");
        }
        assert!(first_height(Birthday::Day(u32::MAX), &chain) >= 80);
        assert_eq!(first_height(Birthday::Day(0), &chain), 0);
    }
}
