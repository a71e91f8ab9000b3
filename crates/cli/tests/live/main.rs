//! The command against software that nobody here wrote: nodes of Bitcoin and Ethereum and a client,
//! each on loopback, each at a pinned version (`peers/install` installs them).
//!
//! A test whose peers are not there is ignored, and the reason stands above the list: it never
//! counts as passed. Where `CI` is set it fails.

mod anvil;
mod bcoin;
mod bcoin_spv;
mod bip157_client;
mod client_library;
mod command;
mod ethereum;
mod evm_nodes;
mod follow;
mod harness;
mod index_rpc;
mod liars;
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

/// Tests at a time, unless the command line says otherwise.
const THREADS: usize = 6;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of a test is waiting for nodes.
    arguments.test_threads.get_or_insert(THREADS);
    let mut tests: Vec<Trial> = Vec::new();
    tests.extend(anvil::tests());
    tests.extend(bcoin::tests());
    tests.extend(bcoin_spv::tests());
    tests.extend(bip157_client::tests());
    tests.extend(client_library::tests());
    tests.extend(follow::tests());
    tests.extend(index_rpc::tests());
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
