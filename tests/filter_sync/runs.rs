//! Checks of many simulated runs: true results, and bounds on the cost.

use std::collections::BTreeSet;

use chainsieve::btc::bip157::{Finding, Reason};
use chainsieve::btc::peer::Grade;

use crate::lies::{Lie, Reach, Tamper};
use crate::peers::Plan;
use crate::scenarios::{self, LARGE, Map, SMALL, Stores, config, plain, plan};
use crate::simulation::{Outcome, Scenario, Simulation};
use testkit::{Rng, stride};

/// Checks that the costs of a run stay below the bound for its peers, tips and rescans.
fn assert_bounded(scenario: &Scenario<'_>, outcome: &Outcome) {
    let tips = scenario.tips.len();
    let highest = scenario.tips.iter().map(|&(_, tip)| scenario.world.blocks[tip].height).max();
    let heights = highest.expect("a tip") as usize + 1;
    let intervals = heights / 1000 + 1;
    let (connections, rescans) = (outcome.connections, scenario.watches.len());
    let ranges = outcome.requests - outcome.block_requests;
    // A filter is requested alone for a disputed height, and for a height whose block has to wait.
    let alone = outcome.block_requests * connections + heights;
    let most = 4 * intervals * tips * rescans * connections + alone;
    assert!(ranges <= most, "{ranges} requests for ranges, the bound is {most}");
    let branches = outcome.blocks + heights;
    assert!(outcome.blocks <= heights * tips * rescans, "{} blocks", outcome.blocks);
    let most = branches * connections;
    assert!(outcome.block_requests <= most, "{} block requests", outcome.block_requests);
    let most = 4_000 * heights * connections;
    assert!(outcome.printed <= most, "{} bytes printed, the bound is {most}", outcome.printed);
}

fn runs(map: &'static Map, seeds: impl IntoIterator<Item = u64>) {
    let mut failed: Vec<u64> = Vec::new();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| {
            let scenario = scenarios::random(map, seed);
            let outcome = Simulation::run(&scenario);
            scenario.assert_true(&outcome);
            assert_bounded(&scenario, &outcome);
        });
        failed.extend(run.is_err().then_some(seed));
    }
    assert_eq!(failed, [0_u64; 0], "the seeds of runs that failed");
}

#[test]
fn with_one_honest_peer_the_hits_are_the_truth() {
    // These seeds, from 15,000 more runs, failed in earlier versions.
    let once = [101_811, 102_398, 108_260, 108_573, 112_149, 114_370];
    runs(&SMALL, (0..1500).step_by(stride(4)).chain(once));
}

#[test]
fn with_one_honest_peer_the_hits_are_the_truth_past_checkpoints() {
    let once = [100_386, 100_483];
    runs(&LARGE, (0..60).step_by(stride(4)).chain(once));
}

#[test]
fn a_run_repeats_from_its_seed() {
    for seed in 0..20 {
        let scenario = scenarios::random(&SMALL, seed);
        let again = scenarios::random(&SMALL, seed);
        assert_eq!(Simulation::run(&scenario), Simulation::run(&again), "seed {seed}");
    }
}

/// Returns the tip of the longest small chain, and the stores for this chain.
fn one_chain() -> (usize, Stores<'static>) {
    let tip = *SMALL.histories[4].last().expect("a tip");
    (tip, Stores::new(&SMALL.world, &[tip]))
}

#[test]
fn honest_peers_cost_what_they_must() {
    let (tip, stores) = one_chain();
    let chain = SMALL.world.chain(tip);
    let matching = chain.iter().filter(|&&number| SMALL.world.blocks[number].matches).count();
    for peers in 1..=5 {
        let plans = vec![plan(&stores.honest, true); peers];
        let mut config = config(0, 7);
        config.spot_audits = 0;
        let scenario = plain(&SMALL, tip, plans, SMALL.world.wallet.len(), config);
        let outcome = Simulation::run(&scenario);
        scenario.assert_true(&outcome);
        assert_eq!((outcome.blocks, outcome.block_requests), (matching, matching));
        let disputes = outcome.findings.iter();
        let disputes = disputes.filter(|finding| !matches!(finding, Finding::Suspicious(_)));
        assert_eq!((disputes.count(), outcome.reopened), (0, 0));
        // A filter whose block has to wait is not stored, and is requested again.
        let ranges = outcome.requests - matching;
        assert!(ranges <= 2 * peers + matching, "{ranges} requests of {peers} peers");
        for height in &outcome.denied {
            let grade = outcome.grades[height];
            let expected = match u32::try_from(peers).expect("few") {
                1 => Grade::OnePeer,
                many => Grade::Peers(many),
            };
            assert!(grade == expected || grade == Grade::Audited, "{grade:?} of {peers} peers");
        }
    }
}

/// Returns the indices of the plans that were disconnected for a false filter.
fn convicted(outcome: &Outcome) -> BTreeSet<usize> {
    let false_filter = |reason: &Reason| matches!(reason, Reason::FalseFilter(_));
    let disconnected = outcome.disconnected.iter();
    disconnected.filter(|(_, reason)| false_filter(reason)).map(|(plan, _)| *plan).collect()
}

/// Runs one honest peer and `liars` peers that serve `lie`, on one chain.
fn disputed(lie: &Lie, liars: usize, seed: u64) -> Outcome {
    let (tip, stores) = one_chain();
    let liar: Plan = plan(&stores.serving(lie), false);
    let mut plans = vec![liar; liars];
    plans.push(plan(&stores.honest, true));
    let mut config = config(0, seed);
    config.spot_audits = 0;
    let scenario = plain(&SMALL, tip, plans, SMALL.world.wallet.len(), config);
    let outcome = Simulation::run(&scenario);
    scenario.assert_true(&outcome);
    assert_bounded(&scenario, &outcome);
    outcome
}

#[test]
fn a_filter_without_an_output_convicts_all_who_claim_it() {
    let (_, stores) = one_chain();
    let mut disputes = 0;
    for seed in 0..100 {
        let rng = &mut Rng::new(seed);
        let lie = stores.lie(rng, Tamper::DropOutput, Reach::One);
        let Some((&number, _)) = lie.first_key_value() else { continue };
        // If the missing script is that of a spent output only, the block does not prove it.
        let block = &SMALL.world.blocks[number].block;
        let outputs = block.txdata.iter().flat_map(|transaction| &transaction.output);
        let mut scripts = outputs.map(|output| &output.script_pubkey);
        if !scripts.any(|script| *script == SMALL.world.blocks[number].elements[0]) {
            continue;
        }
        disputes += 1;
        let liars = 1 + rng.below(5);
        let outcome = disputed(&lie, liars, seed);
        assert_eq!(convicted(&outcome), (0..liars).collect(), "seed {seed}");
    }
    assert!(disputes > 80, "{disputes}");
}

#[test]
fn a_filter_with_one_script_more_is_settled_by_scanning() {
    let (_, stores) = one_chain();
    let (mut undecided, mut proven) = (0, 0);
    for seed in 0..100 {
        let lie = stores.lie(&mut Rng::new(seed), Tamper::Add, Reach::One);
        let outcome = disputed(&lie, 3, seed);
        let at = SMALL.world.blocks[*lie.first_key_value().expect("added").0].height;
        assert!(!outcome.denied.contains(&at), "seed {seed}: {at} is not scanned");
        // If the block spends only its own outputs, its filter is known exactly, and the extra
        // script is proven.
        if outcome.disconnected.is_empty() {
            let here =
                |finding: &Finding| matches!(finding, Finding::Undecided(b) if b.height == at);
            assert!(outcome.findings.iter().any(here), "seed {seed}");
            undecided += 1;
        } else {
            assert_eq!(convicted(&outcome), (0..3).collect(), "seed {seed}");
            proven += 1;
        }
    }
    assert!(undecided > 25 && proven > 25, "{undecided} undecided, {proven} proven");
}

#[test]
fn spot_audits_come_at_the_stated_rate() {
    let (tip, stores) = one_chain();
    let (mut audits, mut heights) = (0, 0);
    for seed in 0..400 {
        let mut config = config(1, seed);
        config.spot_audits = 20;
        let scenario = plain(&SMALL, tip, vec![plan(&stores.honest, true)], 0, config);
        let outcome = Simulation::run(&scenario);
        assert!(outcome.open.is_empty());
        audits += outcome.block_requests;
        heights += SMALL.world.blocks[tip].height as usize;
    }
    // 30,000 heights at a rate of 1 in 20: 1,500 audits expected, with a standard deviation of 38.
    assert_eq!(heights, 30_000);
    assert!((1_350..=1_650).contains(&audits), "{audits} audits of {heights} heights");
}

#[test]
fn colluders_who_never_disagree_meet_a_spot_audit() {
    let (tip, stores) = one_chain();
    let (mut runs, mut caught, mut expected, mut variance) = (0, 0, 0.0, 0.0);
    for seed in 0..600 {
        let rng = &mut Rng::new(seed);
        let (rate, reach) = (10_u32, [Reach::One, Reach::OneIn(10)][rng.below(2)]);
        let mut lie = stores.lie(rng, Tamper::DropOutput, reach);
        // Keep only lies that the block disproves, so that every audit of such a block succeeds.
        lie.retain(|&number, _| {
            let block = &SMALL.world.blocks[number];
            let outputs = block.block.txdata.iter().flat_map(|transaction| &transaction.output);
            outputs.map(|output| &output.script_pubkey).any(|s| *s == block.elements[0])
        });
        if lie.is_empty() {
            continue;
        }
        runs += 1;
        let plans = vec![plan(&stores.serving(&lie), false); 3];
        let mut config = config(1, rng.u64());
        config.spot_audits = rate;
        let scenario = plain(&SMALL, tip, plans, 0, config);
        let outcome = Simulation::run(&scenario);
        let convicted = convicted(&outcome);
        assert!(convicted.is_empty() || convicted.len() == 3, "one lie, {convicted:?} convicted");
        caught += i32::from(!convicted.is_empty());
        let lies = i32::try_from(lie.len()).expect("few");
        let chance = 1.0 - (1.0 - 1.0 / f64::from(rate)).powi(lies);
        expected += chance;
        variance += chance * (1.0 - chance);
    }
    let (off, limit) = ((f64::from(caught) - expected).abs(), 4.0 * f64::sqrt(variance));
    assert!(runs > 450, "{runs} runs");
    assert!(off < limit, "{caught} of {runs} caught, {expected} expected, off by {limit} at most");
}
