//! The audit over JSON-RPC, as Bitcoin Core serves it: `getblockfilter`, and `getblock` with the
//! spent outputs.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;

use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::consensus::encode::deserialize_hex;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{Block, BlockHash, Network, OutPoint, ScriptBuf, Txid};
use chainsieve_provider::{Node, RpcError};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::json;

use super::filters::{Answers, FilterCheck};
use crate::audit::report::{AuditError, AuditReport, Difference, length, rules};

#[derive(Deserialize)]
struct ChainInfo {
    chain: String,
    blocks: u64,
}

#[derive(Deserialize)]
struct FilterAnswer {
    filter: String,
    header: FilterHeader,
}

/// The part of `getblock` with verbosity 3 that names the spent outputs.
#[derive(Deserialize)]
struct VerboseBlock {
    tx: Vec<VerboseTransaction>,
}

#[derive(Deserialize)]
struct VerboseTransaction {
    vin: SpentOutputs,
}

/// The spent outputs that the inputs of a transaction name. Inputs that name none are not kept: a
/// node may send any number of them.
struct SpentOutputs(Vec<(OutPoint, ScriptBuf)>);

impl<'de> Deserialize<'de> for SpentOutputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(OfInputs)
    }
}

struct OfInputs;

impl<'de> Visitor<'de> for OfInputs {
    type Value = SpentOutputs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the inputs of a transaction")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut inputs: A) -> Result<SpentOutputs, A::Error> {
        let mut outputs = Vec::new();
        while let Some(VerboseInput { txid, vout, prevout }) = inputs.next_element()? {
            if let (Some(txid), Some(vout), Some(prevout)) = (txid, vout, prevout) {
                outputs.push((OutPoint { txid, vout }, prevout.script_pub_key.hex));
            }
        }
        Ok(SpentOutputs(outputs))
    }
}

#[derive(Deserialize)]
struct VerboseInput {
    txid: Option<Txid>,
    vout: Option<u32>,
    prevout: Option<Prevout>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Prevout {
    script_pub_key: ScriptOfPrevout,
}

#[derive(Deserialize)]
struct ScriptOfPrevout {
    hex: ScriptBuf,
}

/// Maximum size of an answer in bytes. The longest honest one is a block with verbosity 3: some 300
/// bytes for each output, of which four million units of weight allow 111,000, and half as much for
/// their scripts.
const MAX_ANSWER: u64 = 64 << 20;

/// Returns the height of the newest block of a node with Bitcoin Core's JSON-RPC.
///
/// # Errors
/// Returns an error if the node does not answer.
pub fn last_block(node: &Node) -> Result<u64, AuditError> {
    let info: ChainInfo = Rpc { node }.call("getblockchaininfo", &json!([]))?;
    Ok(info.blocks)
}

/// Audits the filters and filter headers of a node with Bitcoin Core's JSON-RPC. `progress` gets
/// the number of blocks so far.
///
/// The header and the transactions of each block are checked. Nothing commits to the scripts of
/// spent outputs, so the scripts are the node's word: the audit shows that its filters agree with
/// its own undo data.
///
/// # Errors
/// Returns an error if the node does not answer, or has no filters.
pub fn audit_rpc(
    node: &Node,
    range: RangeInclusive<u64>,
    mut progress: impl FnMut(u64),
) -> Result<AuditReport, AuditError> {
    let blocks = length(&range)?;
    let rpc = Rpc { node: &node.with_max_answer(MAX_ANSWER) };
    let info: ChainInfo = rpc.call("getblockchaininfo", &json!([]))?;
    let network = network(&info.chain)?;
    if *range.end() > info.blocks {
        return Err(AuditError::BeyondTip { to: *range.end(), last: info.blocks });
    }
    let mut report = AuditReport::new(&range);
    let (mut before, previous) = match range.start().checked_sub(1) {
        None => (None, FilterHeader::all_zeros()),
        Some(height) => {
            let hash = rpc.hash_at(height)?;
            report.note(format!("the filter header of block {height} is the node's word"));
            (Some(hash), rpc.filter(hash)?.header)
        }
    };
    let mut check = FilterCheck::new(network, previous);
    for (done, height) in (1..=blocks).zip(range) {
        let hash = rpc.hash_at(height)?;
        let FilterAnswer { filter, header } = rpc.filter(hash)?;
        let block = rpc.block(hash)?;
        // Another block than the one that was requested by its hash is judged with the filter.
        let is_requested = block.block_hash() == hash;
        if is_requested && before.is_some_and(|before| before != block.header.prev_blockhash) {
            return Err(AuditError::Reorganised(height));
        }
        before = Some(hash);
        let Ok(filter) = hex::decode(&filter) else {
            let difference = (String::from("hex"), filter);
            let difference =
                Difference::new(rules::BASIC_FILTER, height, "the filter is not hex", difference);
            report.check(rules::BASIC_FILTER, Some(difference));
            break;
        };
        let prevouts = rpc.prevouts(hash, &block, &mut report)?;
        let (block, filter) = (&block, filter.as_slice());
        let answers = Answers { height, hash, block, prevouts, filter, header };
        if !check.check(&answers, &mut report) {
            break;
        }
        progress(done);
    }
    Ok(report)
}

/// Returns the network that Core names.
fn network(chain: &str) -> Result<Network, AuditError> {
    Network::from_core_arg(chain).map_err(|_| AuditError::Network(chain.to_owned()))
}

struct Rpc<'a> {
    node: &'a Node,
}

impl Rpc<'_> {
    fn call<T: serde::de::DeserializeOwned>(
        &self,
        method: &'static str,
        params: &serde_json::Value,
    ) -> Result<T, AuditError> {
        self.node.call(method, params).map_err(|error| AuditError::rpc(method, error))
    }

    fn hash_at(&self, height: u64) -> Result<BlockHash, AuditError> {
        self.call("getblockhash", &json!([height]))
    }

    fn filter(&self, hash: BlockHash) -> Result<FilterAnswer, AuditError> {
        self.call("getblockfilter", &json!([hash, "basic"]))
    }

    fn block(&self, hash: BlockHash) -> Result<Block, AuditError> {
        let raw: String = self.call("getblock", &json!([hash, 0]))?;
        deserialize_hex(&raw).map_err(|error| {
            AuditError::rpc("getblock", RpcError::Malformed(format!("block {hash}: {error}")))
        })
    }

    /// Returns the scripts of the outputs that a block spends. Nodes without verbosity 3 (Bitcoin
    /// Core before 23) name none.
    fn prevouts(
        &self,
        hash: BlockHash,
        block: &Block,
        report: &mut AuditReport,
    ) -> Result<HashMap<OutPoint, ScriptBuf>, AuditError> {
        let verbose: VerboseBlock = match self.node.call("getblock", &json!([hash, 3])) {
            Ok(block) => block,
            Err(
                RpcError::Node { .. }
                | RpcError::Malformed(_)
                | RpcError::MethodMissing { .. }
                | RpcError::TooLarge { .. },
            ) => VerboseBlock { tx: Vec::new() },
            Err(error) => return Err(AuditError::rpc("getblock", error)),
        };
        let scripts: HashMap<_, _> =
            verbose.tx.into_iter().flat_map(|VerboseTransaction { vin }| vin.0).collect();
        // A coinbase spends no output.
        let inputs = block.txdata.iter().skip(1).flat_map(|tx| &tx.input);
        let mut spent = inputs.map(|input| input.previous_output).peekable();
        if spent.peek().is_some() && !scripts.is_empty() {
            report.note("the scripts of spent outputs are the node's word");
        }
        if spent.any(|output| !scripts.contains_key(&output)) {
            report.note("outputs only, where the node names no spent outputs (getblock 3)");
        }
        Ok(scripts)
    }
}
