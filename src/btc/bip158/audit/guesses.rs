//! Verdicts for blocks with spent outputs of unknown script.

use alloc::vec::Vec;

use bitcoin::{Script, TxIn, Witness};

use super::known::{KnownInput, distinct};
use super::{Suspicion, Unknown, Verdict};
use crate::btc::bip158::revealed::any_candidate;
use crate::btc::bip158::{BoundBlock, DecodedFilter, GcsFilter};
use crate::btc::script::ops;

/// Returns the verdict on a filter that is consistent with all known scripts.
pub(super) fn verdict(
    block: &BoundBlock<'_>,
    set: &GcsFilter<'_>,
    decoded: &DecodedFilter,
    inputs: &[KnownInput<'_>],
) -> Verdict {
    let known: Vec<_> = inputs.iter().map(|input| input.script.bytes()).collect();
    let known_elements = distinct(block, &known).len();
    let mut unknown = Unknown {
        inputs: 0,
        guessed: 0,
        elements: (set.num_elements() as usize).saturating_sub(known_elements),
    };
    let mut suspicious = Vec::new();
    for KnownInput { index, vin, input, .. } in inputs.iter().filter(|i| !i.script.is_known()) {
        unknown.inputs += 1;
        // If the input is a usual spend, it is suspicious that the filter lacks all guessed
        // scripts. If the input is not a usual spend, a missing script proves nothing.
        if !is_guess_plausible(input) {
            continue;
        }
        if any_candidate(input, true, |script| decoded.may_contain(script.as_bytes())) {
            unknown.guessed += 1;
        } else {
            suspicious.push((*index, *vin));
        }
    }
    if suspicious.is_empty() {
        return Verdict::Undecidable(unknown);
    }
    Verdict::Suspicious(Suspicion { inputs: suspicious, unknown })
}

/// Returns `true` if the input looks like a usual spend of a hash or of a taproot script path. For
/// a usual spend, one of the candidate scripts should be in the filter.
fn is_guess_plausible(input: &TxIn) -> bool {
    if !input.witness.is_empty() {
        return input.script_sig.is_empty() && is_witness_guess_plausible(&input.witness);
    }
    if !input.script_sig.is_push_only() {
        return false;
    }
    let pushes: Vec<_> = ops(input.script_sig.as_bytes()).map(|op| op.data).collect();
    match pushes[..] {
        // P2PKH: a signature and a key.
        [signature, key] if is_signature(signature) && is_key(key) => true,
        // P2SH of a witness program whose witness may have been stripped.
        [program] if Script::from_bytes(program).is_witness_program() => true,
        // P2SH: the last push is the redeem script.
        [.., script] => is_signature_script(script) && !is_signature(script) && !is_key(script),
        [] => false,
    }
}

fn is_witness_guess_plausible(witness: &Witness) -> bool {
    let last = witness.last().unwrap_or_default();
    let first = witness.nth(0).unwrap_or_default();
    let is_control = |control: &[u8]| control.len() % 32 == 1 && control[0] >= 0xc0;
    let is_key_path = witness.len() - usize::from(witness.taproot_annex().is_some()) == 1
        && matches!(first.len(), 64 | 65);
    // The signature of a key-path spend may parse as a script.
    !is_key_path
        && (witness.len() == 2 && is_signature(first) && last.len() == 33 && is_key(last)
            || is_signature_script(last)
            || witness.taproot_control_block().is_some_and(is_control))
}

/// Returns `true` if the data may be an ECDSA signature in DER, with its sighash type.
fn is_signature(data: &[u8]) -> bool {
    data.first() == Some(&0x30) && (9..=73).contains(&data.len())
}

/// Returns `true` if the data may be a public key.
fn is_key(data: &[u8]) -> bool {
    matches!((data.first(), data.len()), (Some(2 | 3), 33) | (Some(4 | 6 | 7), 65))
}

/// Returns `true` if the data is a well-formed script that checks a signature.
fn is_signature_script(data: &[u8]) -> bool {
    let mut ops = ops(data);
    // OP_CHECKSIG (0xac) to OP_CHECKMULTISIGVERIFY (0xaf).
    let checks = ops.by_ref().filter(|op| (0xac..=0xaf).contains(&op.opcode)).count() > 0;
    checks && ops.is_well_formed()
}
