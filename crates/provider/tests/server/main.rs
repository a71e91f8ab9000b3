//! The endpoint over nodes that serve the chains of the corpus, honestly or not.

#[cfg(feature = "alloy-layer")]
mod alloy_layer;
mod anchored;
mod lies;
mod operations;
mod published;
mod upstream;

use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve_provider::{Builder, Limits, Provider, RpcServer, RpcServerBuilder};

use upstream::Upstream;

/// Returns a builder of a provider of these nodes, on a chain whose headers commit to all logs.
pub(crate) fn provider(upstreams: &[&Upstream]) -> Builder {
    let profile = ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
    let builder = Provider::builder().profile(profile).retries(0).timeout(Duration::from_secs(20));
    upstreams.iter().fold(builder, |builder, upstream| builder.url(&upstream.url()))
}

/// Returns an endpoint that trusts a block, and asks these nodes.
pub(crate) fn endpoint(upstreams: &[&Upstream], anchor: B256) -> RpcServerBuilder {
    provider(upstreams).anchor(anchor).build().expect("nodes").serve()
}

/// Returns limits without memory, so that each question is asked anew.
pub(crate) fn forgetful() -> Limits {
    let mut limits = Limits::default();
    limits.memory = 0;
    limits
}

/// Starts an endpoint, and waits until it has a head.
pub(crate) fn started(builder: RpcServerBuilder) -> RpcServer {
    // Shown if a test fails.
    let builder = builder.on_event(|event| eprintln!("{event}"));
    let server = builder.start("127.0.0.1:0".parse().expect("an address")).expect("it starts");
    let began = Instant::now();
    while upstream::get(server.address(), "/health").0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(60), "no head");
        std::thread::sleep(Duration::from_millis(5));
    }
    server
}
