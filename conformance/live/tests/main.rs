//! Tests against independent software at pinned versions, which `peers/install` installs: of the
//! command against Bitcoin and Ethereum nodes and clients on loopback, and of the light client of the
//! beacon chain against that of Lodestar.
//!
//! If the software that a test needs is missing, the test is ignored, and the reason is printed
//! above the list: such a test is never reported as passed. If `CI` is set, a test whose software
//! is missing fails.

mod anvil;
mod audit_node;
mod bcoin;
mod bcoin_spv;
mod bip157_client;
mod client_library;
mod command;
mod endpoint;
mod eth_audit;
mod ethereum;
mod evm_nodes;
mod follow;
mod harness;
mod index_rpc;
mod lodestar;
mod peers;
mod provider_library;
mod regtest;
mod served;
mod soak;
mod through_liars;
mod wallet;
mod watch_served;

use std::collections::HashSet;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Number of parallel tests, unless the command line sets another.
const THREADS: usize = 6;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The tests mostly wait for nodes, so more tests than cores run in parallel.
    arguments.test_threads.get_or_insert(THREADS);
    let mut tests: Vec<Trial> = Vec::new();
    tests.extend(anvil::tests());
    tests.extend(audit_node::tests());
    tests.extend(bcoin::tests());
    tests.extend(bcoin_spv::tests());
    tests.extend(bip157_client::tests());
    tests.extend(client_library::tests());
    tests.extend(endpoint::tests());
    tests.extend(eth_audit::tests());
    tests.extend(follow::tests());
    tests.extend(index_rpc::tests());
    tests.extend(lodestar::tests());
    tests.extend(provider_library::tests());
    tests.extend(soak::tests());
    tests.extend(through_liars::tests());
    tests.extend(watch_served::tests());
    let names: HashSet<&str> = tests.iter().map(Trial::name).collect();
    assert_eq!(names.len(), tests.len(), "two tests of the same name");
    if !arguments.list {
        peers::say_what_is_missing();
    }
    libtest_mimic::run(&arguments, tests).exit_code()
}
