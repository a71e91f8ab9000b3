//! A provider answers `eth_getLogs` and leaves one log out. The headers, and the receipts of blocks
//! that may contain such logs, show which log it is, with a proof for anyone who trusts the last
//! block's hash.
//!
//! `cargo run --example audit_logs`

use std::error::Error;

use chainsieve::alloy_primitives::{B256, address, b256};
use chainsieve::eth::audit::{Audit, AuditQuestion};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
use chainsieve::eth::receipts::BlockReceipts;

/// Two consecutive blocks of mainnet with all their receipts.
const BLOCKS: [&str; 2] = [
    include_str!("../fixtures/ethereum/blocks/mainnet_17686111.json"),
    include_str!("../fixtures/ethereum/blocks/mainnet_17686112.json"),
];

/// The answer of an honest provider: WETH's withdrawals in these blocks.
const ANSWER: &str =
    include_str!("../fixtures/ethereum/logs/weth_withdrawals_17686111-17686112.json");

/// Hash of the second block, from a source that the user trusts, and never from the provider.
const ANCHOR: B256 = b256!("8873a33f4687bce738171f486cce04ffe060cd0b71b15fe83e047e2815253f7c");

fn main() -> Result<(), Box<dyn Error>> {
    let blocks = BLOCKS.map(read).into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut chain = LinkedHeaders::new();
    for (header, _) in &blocks {
        let _ = chain.push(&HeaderView::decode(header)?)?;
    }
    let query = LogQuery::new()
        .from_block(17_686_111)
        .to_block(17_686_112)
        .address(address!("c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2"))
        .event("Withdrawal(address,uint256)")?;
    let mut answer = LocatedLog::list_from_json(ANSWER)?;
    answer.remove(11); // this provider is not honest
    println!("the provider returns {} logs", answer.len());

    let question = AuditQuestion {
        chain: &chain,
        anchors: &[ANCHOR],
        query: &query,
        blocks: ResolvedBlocks::Range { first: 17_686_111, last: 17_686_112 },
        semantics: Semantics::Geth,
        profile: &ChainProfile::ethereum(),
    };
    let mut audit = Audit::new(question, &answer)?;
    let open: Vec<_> = audit.open().collect();
    for block in open {
        // The receipts may come from anyone: the header shows whether they are complete.
        let (_, receipts) = &blocks[usize::try_from(block.number - 17_686_111)?];
        audit.check_receipts(block.hash, receipts)?;
    }
    let report = audit.finish();
    println!("{:?}: {} blocks checked", report.status(), report.counts.checked_by_receipts);
    for omitted in report.omitted() {
        let place = &omitted.log;
        let (header, _) = &blocks[usize::try_from(place.block_number - 17_686_111)?];
        omitted.verify(&HeaderView::decode(header)?, &query, Semantics::Geth, &answer)?;
        println!("omitted, proven: log {} of block {}", place.log_index, place.block_number);
    }
    Ok(())
}

fn read(json: &str) -> Result<(Vec<u8>, BlockReceipts), Box<dyn Error>> {
    let block: serde_json::Value = serde_json::from_str(json)?;
    let hex = |value: &serde_json::Value| hex::decode(&value.as_str().unwrap_or_default()[2..]);
    let receipts = block["receipts"].as_array().ok_or("no receipts")?;
    let receipts = receipts.iter().map(hex).collect::<Result<Vec<_>, _>>()?;
    Ok((hex(&block["header"])?, BlockReceipts::from_encodings(&receipts)?))
}
