//! Scripts as Bitcoin Core reads them: data pushes as in `CScript::GetOp`, and the two output types
//! of BIP37's `UPDATE_P2PUBKEY_ONLY` as in `Solver`.
//!
//! `bitcoin::Script::is_p2pk` and `is_multisig` are not used, because their rules differ from
//! Core's: they do not check a key's first byte and size, and they allow at most 16 keys.
//!
//! Source: Bitcoin Core 28.1, `script/script.cpp` and `script/solver.cpp`.

use crate::btc::names::names;

const OP_PUSHDATA1: u8 = 0x4c;
const OP_PUSHDATA2: u8 = 0x4d;
const OP_PUSHDATA4: u8 = 0x4e;
const OP_1: u8 = 0x51;
const OP_16: u8 = 0x60;
const OP_CHECKSIG: u8 = 0xac;
const OP_CHECKMULTISIG: u8 = 0xae;
/// Largest number of keys in a multisig script (Core's `MAX_PUBKEYS_PER_MULTISIG`).
const MAX_PUBKEYS: usize = 20;

/// One operation of a script, with the data that it pushes.
///
/// `OP_0` pushes no bytes; `OP_1NEGATE` and `OP_1` to `OP_16` carry no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    /// The opcode byte.
    pub opcode: u8,
    /// The pushed bytes; empty for an operation that pushes no data.
    pub data: &'a [u8],
}

/// Returns an iterator over the operations of `script`, read as Core's `GetOp` does: up to the end of
/// the script, or to the first push that runs past the end. [`is_well_formed`] distinguishes the two
/// cases.
///
/// # Cost
/// The cost is linear in the length of the script. Nothing is allocated.
///
/// # Examples
/// ```
/// use chainsieve::btc::script::{is_well_formed, ops};
/// // A push of two bytes, then a push of five bytes of which only one is left.
/// let script = [0x02, 0xaa, 0xbb, 0x05, 0xcc];
/// let mut read = ops(&script);
/// assert_eq!(read.next().unwrap().data, [0xaa, 0xbb]);
/// assert_eq!(read.next(), None);
/// assert!(!is_well_formed(&script));
/// ```
pub fn ops(mut script: &[u8]) -> impl Iterator<Item = Op<'_>> {
    core::iter::from_fn(move || take_op(&mut script))
}

/// Returns `false` if a push of `script` runs past the end of the script.
pub fn is_well_formed(mut script: &[u8]) -> bool {
    while take_op(&mut script).is_some() {}
    script.is_empty()
}

/// Returns the non-empty data pushes of `script`, including those before a malformed push.
///
/// BIP37 tests these pushes in outputs and inputs.
pub fn pushes(script: &[u8]) -> impl Iterator<Item = &[u8]> {
    ops(script).map(|op| op.data).filter(|data| !data.is_empty())
}

/// Removes the first operation from `rest`. If there is none, or if its push runs past the end, `rest`
/// stays as it is.
#[inline]
fn take_op<'a>(rest: &mut &'a [u8]) -> Option<Op<'a>> {
    let (&opcode, after) = rest.split_first()?;
    let (length, after) = match opcode {
        0..OP_PUSHDATA1 => (usize::from(opcode), after),
        OP_PUSHDATA1 => {
            let (length, after) = after.split_first_chunk()?;
            (usize::from(u8::from_le_bytes(*length)), after)
        }
        OP_PUSHDATA2 => {
            let (length, after) = after.split_first_chunk()?;
            (usize::from(u16::from_le_bytes(*length)), after)
        }
        OP_PUSHDATA4 => {
            let (length, after) = after.split_first_chunk()?;
            (usize::try_from(u32::from_le_bytes(*length)).ok()?, after)
        }
        _ => (0, after),
    };
    let (data, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(Op { opcode, data })
}

/// Type of an output script, as far as `UPDATE_P2PUBKEY_ONLY` distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptType {
    /// `<key> OP_CHECKSIG`.
    PubKey,
    /// `m <key>… n OP_CHECKMULTISIG`.
    MultiSig,
    /// Anything else.
    Other,
}

names! { ScriptType, "a script type": PubKey = "pubkey", MultiSig = "multisig", Other = "other" }

impl ScriptType {
    /// Classifies `script` as Core's `Solver` does.
    pub fn of(script: &[u8]) -> Self {
        if is_pay_to_pubkey(script) {
            Self::PubKey
        } else if is_multisig(script) {
            Self::MultiSig
        } else {
            Self::Other
        }
    }
}

/// Returns `true` for `<key> OP_CHECKSIG` (Core's `MatchPayToPubkey`).
fn is_pay_to_pubkey(script: &[u8]) -> bool {
    match script {
        [33, key @ .., OP_CHECKSIG] if key.len() == 33 => is_key_size_valid(key),
        [65, key @ .., OP_CHECKSIG] if key.len() == 65 => is_key_size_valid(key),
        _ => false,
    }
}

/// Returns `true` for `m <key>… n OP_CHECKMULTISIG` (Core's `MatchMultisig`).
fn is_multisig(script: &[u8]) -> bool {
    if script.last() != Some(&OP_CHECKMULTISIG) {
        return false;
    }
    let mut rest = script;
    let Some(required) = take_op(&mut rest).and_then(|op| script_number(op, 1)) else {
        return false;
    };
    let mut keys = 0;
    let after_keys = loop {
        match take_op(&mut rest) {
            Some(op) if is_key_size_valid(op.data) => keys += 1,
            other => break other,
        }
    };
    let Some(total) = after_keys.and_then(|op| script_number(op, required)) else { return false };
    keys == total && rest.len() == 1
}

/// Returns `true` if the first byte of `key` matches its length (Core's `CPubKey::ValidSize`). The
/// point may be off the curve.
fn is_key_size_valid(key: &[u8]) -> bool {
    matches!((key.first(), key.len()), (Some(2 | 3), 33) | (Some(4 | 6 | 7), 65))
}

/// Reads a number from `least` to 20 that is pushed in its only minimal form (Core's
/// `GetScriptNumber`).
fn script_number(op: Op<'_>, least: usize) -> Option<usize> {
    let number = match (op.opcode, op.data) {
        (OP_1..=OP_16, _) => usize::from(op.opcode - OP_1 + 1),
        // The numbers 1 to 16 must be encoded as opcodes. A single byte over 20 is out of range or
        // negative. A number of two bytes or more is out of range or not minimal.
        (1, &[number @ 17..=u8::MAX]) => usize::from(number),
        _ => return None,
    };
    (least..=MAX_PUBKEYS).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::{ScriptType, is_well_formed, pushes};

    fn pushed(script: &[u8]) -> Vec<&[u8]> {
        pushes(script).collect()
    }

    #[test]
    fn each_push_opcode_and_its_truncations() {
        let script = [0, 1, 7, 0x4c, 2, 8, 9, 0x4d, 1, 0, 10, 0x4e, 1, 0, 0, 0, 11, 0x51, 0x4f];
        assert_eq!(pushed(&script), [&[7][..], &[8, 9], &[10], &[11]]);
        for (end, count) in
            [(1, 0), (2, 0), (3, 1), (4, 1), (6, 1), (7, 2), (10, 2), (11, 3), (16, 3), (17, 4)]
        {
            assert_eq!(pushed(&script[..end]).len(), count, "{end}");
            let whole = matches!(end, 1 | 3 | 7 | 11 | 17);
            assert_eq!(is_well_formed(&script[..end]), whole, "{end}");
        }
        assert!(pushed(&[0x4e, 0xff, 0xff, 0xff, 0xff, 1]).is_empty());
    }

    #[test]
    fn multisig_counts_beyond_sixteen_need_the_minimal_push() {
        let key = [&[33, 2][..], &[5; 32]].concat();
        let script = |m: &[u8], keys: usize, n: &[u8]| [m, &key.repeat(keys), n, &[0xae]].concat();
        assert_eq!(ScriptType::of(&script(&[0x51], 17, &[1, 17])), ScriptType::MultiSig);
        assert_eq!(ScriptType::of(&script(&[1, 17], 20, &[1, 20])), ScriptType::MultiSig);
        assert_eq!(ScriptType::of(&script(&[0x51], 21, &[1, 21])), ScriptType::Other);
        assert_eq!(ScriptType::of(&script(&[0x51], 17, &[2, 17, 0])), ScriptType::Other);
        assert_eq!(ScriptType::of(&script(&[1, 1], 1, &[0x51])), ScriptType::Other);
        assert_eq!(ScriptType::of(&script(&[0x52], 1, &[0x51])), ScriptType::Other);
        assert_eq!(ScriptType::of(&script(&[0x51], 300, &[0x51])), ScriptType::Other);
    }
}
