//! Which transactions a filter matches, and which outpoints it takes in: by Bitcoin Core's code, and
//! by the text of BIP37.

use bitcoin::consensus::encode::serialize;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, OutPoint, Transaction};
use serde_json::json;

use crate::bloom::Filter;
use crate::pack::{Answer, Expect, sides};

/// Whose rules decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Bitcoin Core: after the id has matched, the outputs are tested all the same.
    Core,
    /// BIP37: "Once a match is found the algorithm aborts." A transaction whose id matches is not
    /// looked at any further. The outputs are one step of the algorithm, and all of them are tested:
    /// the flags say that the outpoint is inserted if the filter matches data of its script.
    Text,
}

/// A filter without data or hash functions, or with reserved flags: the BIP says nothing about it.
pub(crate) fn is_quirk(filter: &Filter) -> bool {
    filter.data.is_empty() || filter.hash_funcs == 0 || filter.flags > 2
}

/// Returns the indices of the matching transactions, and updates the filter.
pub(crate) fn match_block(filter: &mut Filter, block: &Block, rules: Rules) -> Vec<usize> {
    let transactions = block.txdata.iter().enumerate();
    transactions.filter_map(|(at, tx)| matches(filter, tx, rules).then_some(at)).collect()
}

/// What is expected of a block whose answer by Bitcoin Core is known. With `whole`, the filter
/// afterwards is part of the answer.
///
/// # Panics
/// Panics if the rules for Core written here do not lead to Core's answer.
pub(crate) fn expect(
    filter: &Filter,
    block: &Block,
    matched: &[usize],
    after: Option<&str>,
) -> Expect {
    let answer = |rules: Rules| {
        let mut updated = filter.clone();
        let matched = match_block(&mut updated, block, rules);
        let mut answer = json!({ "matched": matched });
        if after.is_some() {
            answer["filter_after"] = json!(updated.payload());
        }
        answer
    };
    let mut of_core = json!({ "matched": matched });
    if let Some(after) = after {
        of_core["filter_after"] = json!(after);
    }
    assert_eq!(answer(Rules::Core), of_core, "the rules of Core");
    let (core, text) = (Answer::Value(of_core), Answer::Value(answer(Rules::Text)));
    if is_quirk(filter) {
        return Expect::One(core);
    }
    sides([("core", core.clone()), ("strict", core), ("bip-text", text)])
}

fn matches(filter: &mut Filter, tx: &Transaction, rules: Rules) -> bool {
    if filter.data.is_empty() {
        return true;
    }
    let txid = tx.compute_txid();
    let mut found = filter.contains(&txid.to_byte_array());
    if found && rules == Rules::Text {
        return true;
    }
    for (vout, output) in (0..).zip(&tx.output) {
        let script = output.script_pubkey.as_bytes();
        if !pushes(script).iter().any(|push| filter.contains(push)) {
            continue;
        }
        found = true;
        let takes_in = match filter.flags & 3 {
            1 => true,
            2 => is_bare_key(script) || is_multisig(script),
            _ => false,
        };
        if takes_in {
            filter.insert(&serialize(&OutPoint { txid, vout }));
        }
    }
    found
        || tx.input.iter().any(|input| {
            filter.contains(&serialize(&input.previous_output))
                || pushes(input.script_sig.as_bytes()).iter().any(|push| filter.contains(push))
        })
}

/// An operation of a script: its byte, and the data that it pushes.
type Operation<'a> = (u8, &'a [u8]);

/// The operations of a script; the last one is `None` if it is a push that ends too early.
fn operations(script: &[u8]) -> Vec<Option<Operation<'_>>> {
    let mut rest = script;
    let mut operations = Vec::new();
    while let Some((&code, after)) = rest.split_first() {
        let operation = read_operation(code, after);
        operations.push(operation);
        let Some((_, data)) = operation else { break };
        // The data ends where the rest begins.
        let length_bytes = length_bytes(code);
        rest = &after[length_bytes + data.len()..];
    }
    operations
}

/// Number of bytes after the operation's own that say how long its data is.
fn length_bytes(code: u8) -> usize {
    match code {
        0x4c => 1,
        0x4d => 2,
        0x4e => 4,
        _ => 0,
    }
}

fn read_operation(code: u8, after: &[u8]) -> Option<Operation<'_>> {
    let (length, data) = after.split_at_checked(length_bytes(code))?;
    let len = match code {
        0..=0x4b => usize::from(code),
        0x4c..=0x4e => length.iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte)),
        _ => 0,
    };
    Some((code, data.get(..len)?))
}

/// The data pushes that are not empty, up to the first malformed one.
fn pushes(script: &[u8]) -> Vec<&[u8]> {
    let data = operations(script).into_iter().flatten().map(|(_, data)| data);
    data.filter(|data| !data.is_empty()).collect()
}

/// A key as `CPubKey::ValidSize` has it: the first byte fits the length.
fn is_key(data: &[u8]) -> bool {
    matches!((data.len(), data.first()), (33, Some(2 | 3)) | (65, Some(4 | 6 | 7)))
}

/// A script of one key and `OP_CHECKSIG`.
fn is_bare_key(script: &[u8]) -> bool {
    match script {
        [33, key @ .., 0xac] if key.len() == 33 => is_key(key),
        [65, key @ .., 0xac] if key.len() == 65 => is_key(key),
        _ => false,
    }
}

/// Bare multisig as Bitcoin Core's Solver has it.
fn is_multisig(script: &[u8]) -> bool {
    let operations = operations(script);
    let Some(operations) = operations.into_iter().collect::<Option<Vec<_>>>() else { return false };
    let [first, between @ .., last, (0xae, _)] = operations.as_slice() else { return false };
    let (Some(m), Some(n)) = (number(*first), number(*last)) else { return false };
    (1..=20).contains(&m)
        && (m..=20).contains(&n)
        && between.len() == n
        && between.iter().all(|(_, data)| is_key(data))
}

/// A number in its shortest form: `OP_1` to `OP_16`, or a push of one byte above 16. Larger numbers are
/// no numbers of keys.
fn number((code, data): Operation<'_>) -> Option<usize> {
    match (code, data) {
        (0x51..=0x60, []) => Some(usize::from(code - 0x50)),
        (1, [number @ 17..=0x7f]) => Some(usize::from(*number)),
        _ => None,
    }
}
