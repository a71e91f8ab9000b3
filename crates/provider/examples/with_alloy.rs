//! Answers a filter of alloy like `eth_getLogs`, with all logs of the blocks that the node shows.
//! The program names no anchor, so nothing is authenticated: the node may have made up the chain.
//! `Provider::builder().anchor(…)` names the hash of a block that you trust.
//!
//! `cargo run -p chainsieve-provider --features alloy --example with_alloy -- URL ADDRESS FROM TO`

use alloy_rpc_types_eth::{Filter, Log};
use chainsieve_provider::Provider;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, address, from, to] = &arguments[..] else { return Err("URL ADDRESS FROM TO".into()) };
    let (from, to): (u64, u64) = (from.parse()?, to.parse()?);
    let filter = Filter::new().address(address.parse::<alloy_primitives::Address>()?);
    for log in logs(url, &filter.from_block(from).to_block(to))? {
        println!("{}", serde_json::to_string(&log)?);
    }
    Ok(())
}

/// Returns all logs that the filter selects.
pub(crate) fn logs(url: &str, filter: &Filter) -> Result<Vec<Log>> {
    let proven = Provider::trusting_head(url)?.logs(&filter.into())?;
    Ok(proven.logs.into_iter().map(Log::from).collect())
}
