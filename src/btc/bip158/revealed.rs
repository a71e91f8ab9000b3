//! What an input shows of the script that it spends.
//!
//! | input | the script is |
//! |---|---|
//! | scriptSig and witness | P2SH of the one push in the scriptSig, for certain |
//! | witness alone | a witness program of unknown version |
//! | scriptSig alone, or nothing | anything |
//!
//! The first row is consensus (BIP141; Core's `VerifyScript`): a witness is unexpected unless the
//! script is a witness program, for which the scriptSig must be empty, or pays to the hash of
//! one, for which the scriptSig must be exactly the push of it. So it holds for a valid
//! transaction whose witness is the committed one. All else is a guess: a P2WSH spend may look
//! like P2WPKH, versions 2 and up ask for nothing, and a bare script may take any pushes.

use bitcoin::hashes::Hash as _;
use bitcoin::key::TweakedPublicKey;
use bitcoin::taproot::{ControlBlock, TapNodeHash, TapTweakHash};
use bitcoin::{PubkeyHash, Script, ScriptBuf, ScriptHash, TxIn, WPubkeyHash, WScriptHash, Witness};
use secp256k1::Secp256k1;

use crate::btc::script::ops;

/// The script that `input` spends, if it is a witness program wrapped into P2SH: certain for a
/// valid transaction with its committed witness.
pub(in crate::btc) fn wrapped_script(input: &TxIn) -> Option<ScriptBuf> {
    let (&length, program) = input.script_sig.as_bytes().split_first()?;
    let is_program = Script::from_bytes(program).is_witness_program();
    let is_wrapped = usize::from(length) == program.len() && is_program;
    (is_wrapped && !input.witness.is_empty())
        .then(|| ScriptBuf::new_p2sh(&ScriptHash::hash(program)))
}

/// Whether `test` holds for one of the scripts whose hash or key `input` shows: if the script
/// that it spends is P2PKH, P2SH, P2WPKH, P2WSH or P2TR spent by its script path, it is among
/// them.
///
/// The scriptSig is taken to hold nothing but pushes. A taproot output costs as much as a
/// signature check, so it is worked out last, and only if it is asked for.
pub(in crate::btc) fn any_candidate(
    input: &TxIn,
    with_taproot: bool,
    mut test: impl FnMut(&Script) -> bool,
) -> bool {
    if input.witness.is_empty() {
        let Some(last) = ops(input.script_sig.as_bytes()).last() else { return false };
        // OP_1NEGATE and OP_1 to OP_16: before BIP16, P2SH could be of a number.
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

/// The taproot output that a witness opens by a script: BIP341's computation from the script and
/// its control block.
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

    /// `HASH160 <hash> EQUAL` asks for whatever is on top of the stack, until BIP16 asks for more.
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
