//! The header of a block, from JSON or from its RLP.

use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::header::{HeaderBuf, HeaderError};
use chainsieve::eth::log_query::BlockTag;
use chainsieve_provider::{Node, RpcError};
use serde_json::json;

use super::ask::{called, is_refusal, words};
use super::chain::Chain;
use super::members::{Hash, Members, Transactions};
use crate::audit::report::{AuditError, AuditReport, Difference, rules};

/// A header whose hash is known to be right, and what its block in JSON has besides.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) header: HeaderBuf,
    /// The hashes of the block's transactions, or the reason why they are unknown.
    pub(super) transactions: Result<Vec<B256>, String>,
}

/// The name by which a block is requested.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name {
    Number(u64),
    /// The hash of the block with this number.
    Hash(u64, B256),
}

impl Name {
    fn number(self) -> u64 {
        let (Self::Number(number) | Self::Hash(number, _)) = self;
        number
    }
}

/// An answer to a request for a block.
#[derive(Debug)]
pub(super) enum Answer {
    Absent,
    Found(Box<Found>),
    /// The header breaks a rule, or it cannot be decided if it does. The report has the reason.
    Unusable,
}

/// A block in JSON.
struct Block {
    header: Result<HeaderBuf, HeaderError>,
    /// The members, if the header cannot be hashed.
    members: Members,
    transactions: Result<Vec<B256>, String>,
}

impl Block {
    /// Parses a block; returns `None` for `null`.
    fn from_json(text: &str) -> Option<Self> {
        if text == "null" {
            return None;
        }
        let header = HeaderBuf::from_json(text);
        let members = match header {
            Ok(_) => None,
            Err(_) => Members::from_json(text),
        };
        let transactions = serde_json::from_str(text)
            .map(|Transactions { transactions }| transactions)
            .map_err(|error| error.to_string());
        Some(Self { header, members: members.unwrap_or_default(), transactions })
    }
}

/// Requests a header, and checks that its fields hash to its hash, and that it is the requested
/// one.
pub(super) fn fetch(
    node: &Node,
    chain: &Chain,
    name: Name,
    report: &mut AuditReport,
) -> Result<Answer, AuditError> {
    let number = name.number();
    let (method, parameter, what) = match name {
        Name::Number(_) => (
            "eth_getBlockByNumber",
            json!(format!("{number:#x}")),
            format!("block {number} by number"),
        ),
        Name::Hash(_, hash) => {
            ("eth_getBlockByHash", json!(hash), format!("block {number} by hash"))
        }
    };
    let block = node.read(method, &json!([parameter, false]), Block::from_json);
    let block = match block {
        // geth's error for a block that it does not have.
        Err(RpcError::Node { code: -39001, .. }) => None,
        block => called(what.as_str(), block)?,
    };
    let Some(Block { header, members, transactions }) = block else { return Ok(Answer::Absent) };
    let transactions = transactions.map_err(|error| words(node, &error));
    let found = |header| Answer::Found(Box::new(Found { header, transactions }));
    let differs = |(expected, got): (String, String)| {
        Some(Difference::new(rules::HEADER_JSON, number, what.as_str(), (expected, got)))
    };
    let error = match header {
        Ok(header) => {
            let difference = match name {
                Name::Number(_) if header.view().number() != number => differs((
                    format!("the header of block {number}"),
                    format!("the header of block {}", header.view().number()),
                )),
                Name::Hash(_, hash) if header.hash() != hash => differs((
                    format!("the header with hash {hash}"),
                    format!("the header with hash {}", header.hash()),
                )),
                _ => None,
            };
            let is_wrong = difference.is_some();
            report.check(rules::HEADER_JSON, difference);
            return Ok(if is_wrong { Answer::Unusable } else { found(header) });
        }
        Err(error) => error,
    };
    let expected = String::from("a header whose fields hash to its hash");
    let error = words(node, &error);
    let has_other_headers = !members.unknown.is_empty() || !chain.commits_to_logs(number);
    let Some(hash) = members.hash.filter(|_| has_other_headers) else {
        report.check(rules::HEADER_JSON, differs((expected, error)));
        return Ok(Answer::Unusable);
    };
    // The hash may commit to members that are unknown here. The RLP of the header has them all.
    let Some(header) = raw(node, number, hash)? else {
        let why = match members.unknown.as_slice() {
            [] => chain.source(number).to_owned(),
            unknown => {
                let unknown = unknown.join(", ");
                let unknown = format!("header members unknown to chainsieve: {unknown}");
                report.note(words(node, &unknown));
                words(node, &unknown)
            }
        };
        report.leave_undecided(|| format!("{what}: {error:?}; {why}"));
        return Ok(Answer::Unusable);
    };
    let is_requested = match name {
        Name::Number(number) => header.view().number() == number,
        Name::Hash(_, requested) => hash == requested,
    };
    let difference = match members.differs_from(&header.view()) {
        Some((member, expected, got)) => {
            let expected = format!("{member} {expected}, as in debug_getRawHeader");
            differs((expected, format!("{member} {got}")))
        }
        None if !is_requested => differs((
            String::from("the header that was requested"),
            format!("the header of block {} with hash {hash}", header.view().number()),
        )),
        None => None,
    };
    let is_wrong = difference.is_some();
    report.check(rules::HEADER_JSON, difference);
    if is_wrong {
        return Ok(Answer::Unusable);
    }
    report.note("headers with unknown members: taken from debug_getRawHeader");
    Ok(found(header))
}

/// Requests the RLP of the header with this hash. Returns `None` if the node does not serve it, or
/// if it has another hash: the chain may compute its hashes in another way.
fn raw(node: &Node, number: u64, hash: B256) -> Result<Option<HeaderBuf>, AuditError> {
    /// Maximum number of hex digits of a header: Ethereum's have some 1,300.
    const LONGEST: usize = 1 << 20;
    for parameter in [json!(hash), json!(format!("{number:#x}"))] {
        let header = node.read("debug_getRawHeader", &json!([parameter]), |text| {
            let rlp = (text.len() <= LONGEST).then(|| serde_json::from_str::<Bytes>(text).ok());
            HeaderBuf::from_rlp(rlp.flatten()?.to_vec()).ok()
        });
        match header {
            Ok(Some(header)) if header.hash() == hash => return Ok(Some(header)),
            // Some nodes accept a number only.
            Ok(_) => {}
            Err(error) if is_refusal(&error) => {}
            Err(error) => return called("debug_getRawHeader", Err(error)),
        }
    }
    Ok(None)
}

/// Returns the hash that the node claims for the block with this number, or `None` if the node has
/// no such block. An answer without a hash is an error of its own.
pub(super) fn claimed_hash(
    node: &Node,
    number: u64,
) -> Result<Option<Result<B256, ()>>, AuditError> {
    let tag = BlockTag::Number(number).to_string();
    let hash = node.read("eth_getBlockByNumber", &json!([tag, false]), |text| {
        let hash = || serde_json::from_str(text).map(|Hash { hash }| hash).map_err(drop);
        (text != "null").then(hash)
    });
    match hash {
        Err(RpcError::Node { code: -39001, .. }) => Ok(None),
        hash => called(format!("block {number} again"), hash),
    }
}
