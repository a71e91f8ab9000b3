//! The endpoint over nodes that serve the chains of the corpus, honestly or not.

mod accusations;
#[cfg(feature = "alloy-layer")]
mod alloy_layer;
mod anchored;
mod block_parts;
mod cached;
mod compared;
mod filters_of_corpus;
mod hashes;
mod head;
mod hostile_clients;
mod index;
mod large;
mod lies;
mod new_logs;
mod operations;
mod published;
mod secrets;
mod slow_nodes;
mod types;
mod unsound_filters;
mod upstream;
mod weak_signatures;

use std::time::{Duration, Instant};

use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve_provider::{
    AnchorSource, Builder, Provider, RpcServer, RpcServerBuilder, RpcServerLimits,
};

use upstream::Upstream;

/// Returns a builder of a provider of these nodes, on a chain whose headers commit to all logs.
pub(crate) fn provider(upstreams: &[&Upstream]) -> Builder {
    let profile = ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
    let builder = Provider::builder().profile(profile).trust_head().retries(0);
    let builder = builder.timeout(Duration::from_secs(20));
    upstreams.iter().fold(builder, |builder, upstream| builder.url(&upstream.url()))
}

/// Returns an endpoint that trusts the blocks of an anchor, and asks these nodes.
pub(crate) fn endpoint(
    upstreams: &[&Upstream],
    anchor: impl AnchorSource + 'static,
) -> RpcServerBuilder {
    provider(upstreams).anchor(anchor).build().expect("nodes").serve()
}

/// Returns limits without memory, so that each question is asked anew.
pub(crate) fn forgetful() -> RpcServerLimits {
    let mut limits = RpcServerLimits::default();
    limits.memory = 0;
    limits
}

/// Returns the sum of the counters whose names begin so.
pub(crate) fn counter(server: &RpcServer, name: &str) -> u64 {
    let text = upstream::get(server.address(), "/metrics").1;
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().expect("a value").parse::<u64>().expect("one")).sum()
}

/// Starts an endpoint, and waits until it has a head.
pub(crate) fn started(builder: RpcServerBuilder) -> RpcServer {
    // Shown if a test fails.
    let builder = builder.on_event(|event| eprintln!("{event}"));
    let server = builder.start("127.0.0.1:0".parse().expect("an address")).expect("it starts");
    until("no head", || upstream::get(server.address(), "/health").0 == 200);
    server
}

/// Waits until something holds. The limit ends a test that hangs; a busy machine may be slow.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
