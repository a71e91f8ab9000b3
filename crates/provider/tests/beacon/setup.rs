//! A made-up chain whose newest slot is now, and temporary folders.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::network::Network;
use chainsieve_provider::{BeaconBuilder, BeaconClient};
use testkit::TestFolder;
use testkit::eth::beacon_chain::BeaconChain;
use testkit::eth::beacon_server::BeaconData;
use testkit::eth::beacon_world::{World, at, started};

/// Number of periods of the chain.
pub(crate) const PERIODS: u64 = 9;
/// First epochs of the forks from Altair on, some in the middle of a period.
const FORKS: [u64; 7] = [0, 8, 19, 24, 32, 43, 56];
/// Timeout of each request: far longer than an answer takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A chain, what an honest server has of it now, and a checkpoint.
pub(crate) struct Setup {
    pub(crate) chain: BeaconChain,
    /// The slot that has started.
    pub(crate) now: u64,
    pub(crate) data: BeaconData,
    /// Root of the checkpoint.
    pub(crate) root: B256,
}

impl Setup {
    /// Makes the chain, up to the slot that has started now.
    fn new() -> Self {
        let now = at(PERIODS, 0) - 20;
        let world = World::with(FORKS, PERIODS + 1, &started(now));
        let chain = BeaconChain::new(world, PERIODS, 0..0, 5);
        let mut data = chain.data(now);
        let root = data.add_bootstrap(chain.bootstrap(chain.block_at(20)));
        Self { chain, now, data, root }
    }

    pub(crate) fn network(&self) -> &Network {
        &self.chain.world.network
    }

    /// Returns what an honest server had in a slot.
    pub(crate) fn data_at(&self, slot: u64) -> BeaconData {
        let bootstraps = self.data.bootstraps.clone();
        BeaconData { bootstraps, ..self.chain.data(slot) }
    }

    /// Returns the slot of the newest finalised block that an honest server proves.
    pub(crate) fn newest(&self) -> u64 {
        self.chain.finalized(self.now).expect("by two thirds")
    }

    /// Returns a builder for these servers that never waits between two rounds.
    pub(crate) fn client<'a>(&self, urls: impl IntoIterator<Item = &'a str>) -> BeaconBuilder {
        let builder = BeaconClient::builder(self.network().clone()).checkpoint(self.root);
        let builder = builder.poll(Duration::ZERO).timeout(TIMEOUT).retries(0);
        urls.into_iter().fold(builder, BeaconBuilder::url)
    }
}

pub(crate) static MADE_UP: LazyLock<Setup> = LazyLock::new(Setup::new);

/// Returns the path of the light client's file in a folder.
pub(crate) fn file(folder: &TestFolder) -> PathBuf {
    folder.path().join("light-client.json")
}
