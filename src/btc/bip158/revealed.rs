//! The data that an input reveals about the script that it spends.
//!
//! | the input has | the spent script is |
//! |---|---|
//! | scriptSig and witness | P2SH of the single push in the scriptSig, with certainty |
//! | witness only | a witness program of unknown version |
//! | scriptSig only, or neither | any script |
//!
//! The first row follows from consensus (BIP141; Core's `VerifyScript`), for a valid transaction to
//! whose witness the coinbase commits. A witness is allowed in two cases only. If the script is a
//! witness program, the scriptSig must be empty. If the script pays to the hash of a witness
//! program, the scriptSig must be exactly the push of that program.
//!
//! All other rows are guesses. A P2WSH spend may look like a P2WPKH spend, witness versions 2 and
//! above have no rules, and the input of a bare script may contain any pushes.

use bitcoin::hashes::Hash as _;
use bitcoin::key::TweakedPublicKey;
use bitcoin::taproot::{ControlBlock, TapNodeHash, TapTweakHash};
use bitcoin::{PubkeyHash, Script, ScriptBuf, ScriptHash, TxIn, WPubkeyHash, WScriptHash, Witness};
use secp256k1::Secp256k1;

use crate::btc::script::ops;

/// Returns the script that `input` spends, if it is a witness program wrapped into P2SH. The result
/// is certain for a valid transaction with its committed witness.
pub(in crate::btc) fn wrapped_script(input: &TxIn) -> Option<ScriptBuf> {
    let (&length, program) = input.script_sig.as_bytes().split_first()?;
    let is_program = Script::from_bytes(program).is_witness_program();
    let is_wrapped = usize::from(length) == program.len() && is_program;
    (is_wrapped && !input.witness.is_empty())
        .then(|| ScriptBuf::new_p2sh(&ScriptHash::hash(program)))
}

/// Returns `true` if `test` accepts one of the scripts whose hash or key `input` reveals.
///
/// If the spent script is P2PKH, P2SH, P2WPKH, P2WSH, or P2TR spent by its script path, it is one
/// of the candidates. The scriptSig is assumed to contain only pushes. Computing a taproot output
/// costs as much as a signature check, so the taproot output is tested last, and only if
/// `with_taproot` is `true`.
pub(in crate::btc) fn any_candidate(
    input: &TxIn,
    with_taproot: bool,
    mut test: impl FnMut(&Script) -> bool,
) -> bool {
    if input.witness.is_empty() {
        let Some(last) = ops(input.script_sig.as_bytes()).last() else { return false };
        // OP_1NEGATE and OP_1 to OP_16 push a number. Before BIP16, the hash in a P2SH output could
        // be the hash of a number.
        let number = [last.opcode.wrapping_sub(0x50)];
        let last = match last.opcode {
            0x4f => &[0x81],
            0x51..=0x60 => &number[..],
            _ => last.data,
        };
        return test(&ScriptBuf::new_p2pkh(&PubkeyHash::hash(last)))
            || test(&ScriptBuf::new_p2sh(&ScriptHash::hash(last)));
    }
    if !input.script_sig.is_empty() {
        return wrapped_script(input).is_some_and(|script| test(&script));
    }
    let last = input.witness.last().unwrap_or_default();
    let key_hash = |key| ScriptBuf::new_p2wpkh(&WPubkeyHash::hash(key));
    input.witness.len() == 2 && test(&key_hash(last))
        || test(&ScriptBuf::new_p2wsh(&WScriptHash::hash(last)))
        || with_taproot && script_path_output(&input.witness).is_some_and(|script| test(&script))
}

/// Returns the taproot output of a script-path witness, computed from the script and the control
/// block as in BIP341.
fn script_path_output(witness: &Witness) -> Option<ScriptBuf> {
    let control = ControlBlock::decode(witness.taproot_control_block()?).ok()?;
    let script = witness.taproot_leaf_script()?.script;
    let leaf = TapNodeHash::from_script(script, control.leaf_version);
    let join = |node, sibling: &_| TapNodeHash::from_node_hashes(node, *sibling);
    let root = control.merkle_branch.iter().fold(leaf, join);
    let tweak = TapTweakHash::from_key_and_tweak(control.internal_key, Some(root)).to_scalar();
    let secp = Secp256k1::verification_only();
    let (output, _) = control.internal_key.add_tweak(&secp, &tweak).ok()?;
    Some(ScriptBuf::new_p2tr_tweaked(TweakedPublicKey::dangerous_assume_tweaked(output)))
}

#[cfg(test)]
mod tests {
    use bitcoin::hashes::Hash as _;
    use bitcoin::{OutPoint, ScriptBuf, ScriptHash, Sequence, TxIn, Witness};

    use super::any_candidate;

    /// Before BIP16, `HASH160 <hash> EQUAL` compares the hash of whatever is on top of the stack.
    #[test]
    fn what_the_last_push_leaves_on_the_stack() {
        for (script_sig, top) in [
            (&[0x00][..], &[][..]),
            (&[0x4f], &[0x81]),
            (&[0x00, 0x51], &[0x01]),
            (&[0x60], &[0x10]),
            (&[0x02, 0x51, 0x60], &[0x51, 0x60]),
            (&[0x51, 0x4c, 0x01, 0x07], &[0x07]),
        ] {
            let input = TxIn {
                previous_output: OutPoint::null(),
                script_sig: ScriptBuf::from_bytes(script_sig.to_vec()),
                sequence: Sequence::MAX,
                witness: Witness::new(),
            };
            let spent = ScriptBuf::new_p2sh(&ScriptHash::hash(top));
            assert!(any_candidate(&input, false, |script| *script == *spent), "{script_sig:02x?}");
        }
    }
}
