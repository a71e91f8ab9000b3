//! A notifier with many customers. Each new header is tested against all their watches at once, and
//! only the watches that it may concern need receipts.
//!
//! `cargo run --example watch_header`

use std::error::Error;

use chainsieve::alloy_primitives::{Address, U256};
use chainsieve::eth::header::HeaderView;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve::eth::scan::QuerySet;

/// Block 17,686,111 of mainnet with all its receipts.
const BLOCK: &str = include_str!("../fixtures/ethereum/blocks/mainnet_17686111.json");

fn main() -> Result<(), Box<dyn Error>> {
    // 10,000 customers wait for tokens: the receiver of a transfer is topic 2.
    let customer = |number: u64| -> Result<LogQuery, Box<dyn Error>> {
        let account: Address = match number {
            7 => "0x3fc91a3afd70395cd496c647d5a6cc9d4b2b7fad".parse()?,
            _ => Address::from_word(U256::from(0xc0ff_ee00 + number).into()),
        };
        Ok(LogQuery::new().event("Transfer(address,address,uint256)")?.topic2(account))
    };
    let queries: Vec<LogQuery> = (0..10_000).map(customer).collect::<Result<_, _>>()?;
    let mut watches = QuerySet::new();
    for query in &queries {
        watches.insert(query.compile(), 0);
    }

    let block: serde_json::Value = serde_json::from_str(BLOCK)?;
    let bytes = |value: &serde_json::Value| {
        hex::decode(value.as_str().unwrap_or_default().trim_start_matches("0x"))
    };
    let header = bytes(&block["header"])?;
    let header = HeaderView::decode(&header)?;
    // A filter of another length says nothing: all ones match every query.
    let bloom = *header.logs_bloom().bytes().unwrap_or(&[0xff; 256]);
    watches.rewind(header.number()); // the header may replace another one of this height
    let hits = watches.scan(header.number(), &[bloom]);
    let perhaps: Vec<_> = hits.iter().flat_map(|(_, ids)| ids.to_vec()).collect();
    println!("block {}: {} of {} watches perhaps", header.number(), perhaps.len(), watches.len());

    // At least one watch may match. The block's receipts settle all such watches.
    let receipts = block["receipts"].as_array().ok_or("no receipts")?;
    let receipts: Vec<Vec<u8>> = receipts.iter().map(bytes).collect::<Result<_, _>>()?;
    let receipts = BlockReceipts::from_encodings(&receipts)?;
    let verified = receipts.verify(header.receipts_root(), header.logs_bloom())?;
    for id in perhaps {
        let query = &queries[id];
        let found = verified.logs_matching(|log| query.matches(log, Semantics::Geth)).count();
        if found > 0 {
            println!("customer {id}: {found} transfers");
        }
    }
    Ok(())
}
