//! Lies about headers, in the answers to `eth_getBlockByNumber` and `eth_getBlockByHash`.

use chainsieve::eth::header::{HeaderBuf, HeaderError};
use serde_json::{Value, json};

use super::{lie, withhold};
use crate::serve::lie::{Lie, Verdict};

/// A lie about a header.
#[derive(Debug)]
pub(super) struct HeaderLie {
    pub(super) lie: Lie,
    /// Changes the object of a block.
    tell: fn(&mut Value),
}

const fn told(
    id: &'static str,
    title: &'static str,
    by: &'static str,
    tell: fn(&mut Value),
) -> HeaderLie {
    let source = "Yellow Paper 4.3 (the block header, its hash)";
    HeaderLie { lie: lie(id, title, (Verdict::MustDetect, by), source), tell }
}

/// The evidence against a header whose fields were changed.
const HASH: &str = "the hash of the header, computed from its fields";
/// The evidence against a header with a hash of its own.
const CHAIN: &str = "the parent hash in the next header, or a trusted block hash";

/// The lies about headers. A node tells them about each block.
pub(super) static LIES: [HeaderLie; 4] = [
    told("eth-header-bloom", "The filter of a header has no bits", HASH, |block| {
        block["logsBloom"] = json!(no_bits());
    }),
    told("eth-header-receipts-root", "A header has another receipts root", HASH, |block| {
        block["receiptsRoot"] = block["transactionsRoot"].clone();
    }),
    told(
        "eth-header-bloom-rehashed",
        "The filter of a header has no bits, and its hash is computed again",
        CHAIN,
        |block| {
            block["logsBloom"] = json!(no_bits());
            rehash(block);
        },
    ),
    told(
        "eth-header-reorganised",
        "A header is that of another branch, with a hash of its own",
        CHAIN,
        |block| {
            block["extraData"] = json!("0x616e6f74686572206272616e6368");
            rehash(block);
        },
    ),
];

fn no_bits() -> String {
    format!("0x{}", "0".repeat(512))
}

/// Sets the hash of a block to the hash of its fields.
fn rehash(block: &mut Value) {
    // The error names the computed hash. Other errors mean that the object is no header.
    if let Err(HeaderError::HashMismatch { computed, .. }) =
        HeaderBuf::from_json(&block.to_string())
    {
        block["hash"] = json!(computed);
    }
}

impl HeaderLie {
    /// Tells the lie about the answer to a request for a block, and withholds the header in its
    /// other form.
    pub(super) fn alter(&self, method: &str, answer: &mut Value) {
        match method {
            "eth_getBlockByNumber" | "eth_getBlockByHash" if answer["result"].is_object() => {
                (self.tell)(&mut answer["result"]);
            }
            "debug_getRawHeader" => withhold(method, answer),
            _ => {}
        }
    }
}
