//! Prints all transfers of a token in a range of blocks, proven complete, from an untrusted node.
//! `ANCHOR` is a hash that you trust: that of block `TO` or of a later block.
//!
//! `cargo run -p chainsieve-provider --features abi --example verified_scanner -- URL TOKEN FROM
//! TO ANCHOR`

use chainsieve_provider::chainsieve::alloy_primitives::B256;
use chainsieve_provider::{EventDecoder, Provider};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, token, from, to, anchor] = &arguments[..] else {
        return Err("URL TOKEN FROM TO ANCHOR".into());
    };
    let transfers = transfers(url, token, (from.parse()?, to.parse()?), anchor.parse()?)?;
    println!("{}", transfers.join("\n"));
    Ok(())
}

/// Returns each transfer as JSON.
pub(crate) fn transfers(
    url: &str,
    token: &str,
    (from, to): (u64, u64),
    anchor: B256,
) -> Result<Vec<String>> {
    let transfer = "event Transfer(address indexed from, address indexed to, uint256 value)";
    let events = EventDecoder::new().signature(transfer)?;
    let query = events.query().address(token.parse()?).from_block(from).to_block(to);
    let proven = Provider::builder().url(url).anchor(anchor).build()?.logs(&query)?;
    let decoded = proven.logs.iter().filter_map(|log| events.decode(&log.log).ok().flatten());
    Ok(decoded.map(|event| event.to_json().to_string()).collect())
}
