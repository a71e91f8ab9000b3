//! Random runs: chains that reorganise, and peers of every kind that come and go.

use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use chainsieve::bitcoin::Network;
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip157::{Config, Limits};
use chainsieve::btc::server::filters::FilterStore;

use crate::lies::{self, Lie, Reach, TAMPERS, Tamper};
use crate::peers::{BLOCK_LIES, Plan, Quirk, Request};
use crate::simulation::Scenario;
use testkit::Rng;
use testkit::btc::filter_world::World;

/// A world, and sequences of its tips. Each tip has more work than the one before.
pub(crate) struct Map {
    pub(crate) world: World,
    pub(crate) histories: Vec<Vec<usize>>,
}

/// A world whose chains end below the first checkpoint, with at most 75 blocks.
pub(crate) static SMALL: LazyLock<Map> = LazyLock::new(|| {
    let mut world = World::new(1);
    let at_40 = world.grow(0, 40);
    let at_60 = world.grow(at_40, 20);
    let last = world.grow(at_60, 15);
    let at_55 = world.chain(at_60)[55];
    let short = world.grow(at_55, 9);
    let deep = world.grow(world.chain(at_40)[25], 43);
    let histories = vec![
        vec![at_60],
        vec![at_40, at_60],
        // A reorganisation of five blocks, one of thirty-nine, and the return to the first branch.
        vec![at_60, short],
        vec![at_60, short, deep],
        vec![at_60, short, deep, last],
        vec![at_40, at_60, deep, last],
        // A chain of a few blocks, and a chain that grows by one block at a time.
        vec![world.chain(at_40)[2]],
        world.chain(at_60)[50..].to_vec(),
        // A chain that at first has only the genesis block.
        vec![0, at_40],
    ];
    Map { world, histories }
});

/// A world past the second checkpoint, with a reorganisation across the checkpoint.
pub(crate) static LARGE: LazyLock<Map> = LazyLock::new(|| {
    let mut world = World::new(2);
    let at_1990 = world.grow(0, 1990);
    let at_2020 = world.grow(at_1990, 30);
    let fork = world.grow(at_1990, 40);
    let last = world.grow(fork, 1000);
    let at_1000 = world.chain(at_1990)[1000];
    let histories = vec![
        vec![at_2020, fork],
        vec![at_1000, at_2020],
        vec![at_1990, last],
        vec![last],
        vec![world.chain(at_1990)[999], at_1000, world.chain(at_1990)[1001]],
    ];
    Map { world, histories }
});

/// Timeout of a request in the simulations.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a configuration with the timeout of the simulations.
pub(crate) fn config(first: u32, seed: u64) -> Config {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut config = Config::new(Network::Regtest, first, key);
    config.limits = Limits { peers: 64, timeout: TIMEOUT, ..config.limits };
    config
}

/// The filter stores that peers serve for one history.
pub(crate) struct Stores<'w> {
    world: &'w World,
    chains: Vec<Vec<usize>>,
    /// All blocks of the history except genesis, in ascending order of height.
    pub(crate) numbers: Vec<usize>,
    pub(crate) honest: Rc<FilterStore>,
}

impl<'w> Stores<'w> {
    pub(crate) fn new(world: &'w World, history: &[usize]) -> Self {
        let chains: Vec<_> = history.iter().map(|&tip| world.chain(tip)).collect();
        let mut numbers: Vec<usize> = chains.iter().flatten().copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|&number| number > 0);
        numbers.sort_by_key(|&number| world.blocks[number].height);
        let honest = Rc::new(lies::store(world, &chains, &Lie::new()));
        Self { world, chains, numbers, honest }
    }

    pub(crate) fn lie(&self, rng: &mut Rng, how: Tamper, reach: Reach) -> Lie {
        lies::lie(self.world, rng, &self.numbers, how, reach)
    }

    pub(crate) fn serving(&self, lie: &Lie) -> Rc<FilterStore> {
        Rc::new(lies::store(self.world, &self.chains, lie))
    }

    /// Returns a store of true hashes after a false filter header before genesis.
    fn false_start(&self, rng: &mut Rng) -> Rc<FilterStore> {
        let before = FilterHeader::from_byte_array(rng.array());
        Rc::new(lies::store_behind(self.world, &self.chains, &Lie::new(), before))
    }
}

/// Returns a peer that serves `store` during the whole run.
pub(crate) fn plan(store: &Rc<FilterStore>, honest: bool) -> Plan {
    Plan {
        honest,
        store: Rc::clone(store),
        other_store: Rc::clone(store),
        quirk: Quirk::None,
        latency: Duration::from_millis(100),
        lag: Duration::ZERO,
        sessions: vec![(Duration::from_secs(1), None)],
        returns: 0,
    }
}

fn seconds(rng: &mut Rng, from: usize, to: usize) -> Duration {
    Duration::from_millis(
        u64::try_from(1000 * from + rng.below(1000 * (to - from))).expect("small"),
    )
}

fn random_lie(rng: &mut Rng, stores: &Stores<'_>) -> Rc<FilterStore> {
    if rng.one_in(12) {
        return stores.false_start(rng);
    }
    if rng.one_in(24) {
        let genesis = lies::tamper(stores.world, rng, 0, Tamper::Empty).expect("not empty");
        return stores.serving(&Lie::from([(0, genesis)]));
    }
    let how = *rng.pick(&TAMPERS);
    let reach = match rng.below(4) {
        0 | 1 => Reach::One,
        2 => Reach::OneIn(1 + rng.below(6)),
        _ => Reach::Onwards,
    };
    let lie = stores.lie(rng, how, reach);
    stores.serving(&lie)
}

fn random_quirk(rng: &mut Rng) -> Quirk {
    let kinds = [Request::Checkpoints, Request::Headers, Request::Filters, Request::Blocks];
    match rng.below(11) {
        0 => Quirk::Silent(None),
        1 => Quirk::Silent(Some(*rng.pick(&kinds))),
        2 => Quirk::Late(seconds(rng, 15, 150)),
        3 => Quirk::Leaves(1 + rng.below(6)),
        4 => Quirk::FalseCheckpoint,
        5 => Quirk::FalseHash,
        6 => Quirk::FalsePrevious,
        7 => Quirk::FalseContent,
        8 => Quirk::Garbage,
        9 => Quirk::Switches(1 + rng.below(5)),
        _ => Quirk::Blocks(*rng.pick(&BLOCK_LIES)),
    }
}

/// Draws dishonest peers: some with lies of their own, and a group that shares one lie.
fn others(rng: &mut Rng, stores: &Stores<'_>) -> Vec<Plan> {
    let mut plans = Vec::new();
    let group = random_lie(rng, stores);
    let groups = [0, 0, 1, 2, 4][rng.below(5)];
    plans.extend((0..groups).map(|_| plan(&group, false)));
    for _ in 0..rng.below(4) {
        let mut liar = plan(&random_lie(rng, stores), false);
        if rng.one_in(2) {
            liar.store = Rc::clone(&stores.honest);
        }
        plans.push(liar);
    }
    for other in &mut plans {
        if Rc::ptr_eq(&other.store, &stores.honest) || rng.one_in(3) {
            other.quirk = random_quirk(rng);
        }
        other.returns = [0, 0, 1, 3][rng.below(4)];
    }
    plans
}

/// Draws the times at which the peers connect, disconnect and learn of blocks.
fn set_times(rng: &mut Rng, plans: &mut [Plan], script_ends: usize) {
    for plan in plans {
        plan.latency = seconds(rng, 0, 4);
        plan.lag = if rng.one_in(2) { Duration::ZERO } else { seconds(rng, 0, 30) };
        let mut sessions = Vec::new();
        let mut joins = if rng.one_in(2) { Duration::ZERO } else { seconds(rng, 0, script_ends) };
        while sessions.len() < 3 && rng.one_in(3) {
            let leaves = joins + seconds(rng, 1, 60);
            sessions.push((joins, Some(leaves)));
            joins = leaves + seconds(rng, 1, 60);
        }
        sessions.push((joins, None));
        plan.sessions = sessions;
    }
}

/// Draws a run with at least one honest peer.
pub(crate) fn random(map: &'static Map, seed: u64) -> Scenario<'static> {
    let rng = &mut Rng::new(seed);
    let history = rng.pick(&map.histories);
    let stores = Stores::new(&map.world, history);
    let mut time = Duration::ZERO;
    let mut tips = Vec::new();
    for &tip in history {
        tips.push((time, tip));
        time += seconds(rng, 1, 90);
    }
    let script_ends = usize::try_from(time.as_secs()).expect("small") + 60;

    let mut plans = vec![plan(&stores.honest, true)];
    plans.extend((0..[0, 0, 0, 1, 2][rng.below(5)]).map(|_| plan(&stores.honest, true)));
    plans.extend(others(rng, &stores));
    set_times(rng, &mut plans, script_ends);

    let lowest = map.world.blocks[history[0]].height as usize;
    let first = if rng.one_in(2) { 0 } else { rng.below(lowest + 1) };
    let first = u32::try_from(first).expect("small");
    let mut config = config(first, rng.u64());
    config.spot_audits = [0, 5, 40, 1000][rng.below(4)];
    let all = map.world.wallet.len();
    let watches = if rng.one_in(4) {
        vec![(Duration::ZERO, 3), (seconds(rng, 1, script_ends), all)]
    } else {
        vec![(Duration::ZERO, all)]
    };
    let mut trusted = 0;
    if lowest >= 1000 && rng.one_in(3) {
        trusted = 1000;
        let block = &map.world.blocks[map.world.chain(history[0])[1000]];
        let header = stores.honest.filter_header(&block.hash).expect("a filter");
        assert!(config.trust(trusted, header), "a multiple of 1000");
    }
    // Allow two seconds for each block.
    let rest = script_ends + 2 * stores.numbers.len();
    let end = Duration::from_secs(u64::try_from(rest).expect("small")) + 60 * TIMEOUT;
    let restarts = if rng.one_in(4) { vec![seconds(rng, 1, script_ends)] } else { Vec::new() };
    Scenario { world: &map.world, seed, config, trusted, tips, plans, watches, restarts, end }
}

/// Returns a run on one chain. The peers stay connected during the whole run, and the wallet
/// watches the first `scripts` of its scripts.
pub(crate) fn plain(
    map: &'static Map,
    tip: usize,
    plans: Vec<Plan>,
    scripts: usize,
    config: Config,
) -> Scenario<'static> {
    Scenario {
        world: &map.world,
        seed: 0,
        config,
        trusted: 0,
        tips: vec![(Duration::ZERO, tip)],
        plans,
        watches: vec![(Duration::ZERO, scripts)],
        restarts: Vec::new(),
        end: 60 * TIMEOUT,
    }
}
