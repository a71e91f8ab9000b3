//! Reads from scripts what BIP37 tests: data pushes, and the two templates whose outpoints
//! `BLOOM_UPDATE_P2PUBKEY_ONLY` inserts.

const OP_PUSHDATA1: u8 = 0x4c;
const OP_PUSHDATA2: u8 = 0x4d;
const OP_PUSHDATA4: u8 = 0x4e;
const OP_1: u8 = 0x51;
const OP_16: u8 = 0x60;
const OP_CHECKSIG: u8 = 0xac;
const OP_CHECKMULTISIG: u8 = 0xae;
const MAX_MULTISIG_KEYS: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    PublicKey,
    Multisig,
    Other,
}

/// Reads one step of a script. Returns the opcode of the step, the data that the opcode pushes
/// (empty for opcodes above `OP_PUSHDATA4`) and the rest of the script. Returns `None` if a push
/// extends past the end.
fn step(script: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&opcode, rest) = script.split_first()?;
    let length_bytes = match opcode {
        OP_PUSHDATA1 => 1,
        OP_PUSHDATA2 => 2,
        OP_PUSHDATA4 => 4,
        _ => 0,
    };
    if rest.len() < length_bytes {
        return None;
    }
    let (length, rest) = rest.split_at(length_bytes);
    let length = match opcode {
        0..OP_PUSHDATA1 => u64::from(opcode),
        _ => length.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
    };
    if (rest.len() as u64) < length {
        return None;
    }
    let (data, rest) = rest.split_at(usize::try_from(length).expect("no more than the rest"));
    Some((opcode, data, rest))
}

/// Returns the non-empty data pushes of a script, up to the first malformed push.
pub fn non_empty_pushes(mut script: &[u8]) -> Vec<&[u8]> {
    let mut pushes = Vec::new();
    while let Some((_, data, rest)) = step(script) {
        if !data.is_empty() {
            pushes.push(data);
        }
        script = rest;
    }
    pushes
}

/// Returns `true` if every push has all its data.
pub fn is_well_formed(mut script: &[u8]) -> bool {
    while !script.is_empty() {
        match step(script) {
            Some((_, _, rest)) => script = rest,
            None => return false,
        }
    }
    true
}

pub fn template(script: &[u8]) -> Template {
    if is_pay_to_public_key(script) {
        Template::PublicKey
    } else if is_multisig(script) {
        Template::Multisig
    } else {
        Template::Other
    }
}

/// Returns `true` for a key with the length that its first byte requires. The key is not checked
/// against the curve.
fn is_key(bytes: &[u8]) -> bool {
    match bytes.first() {
        Some(2 | 3) => bytes.len() == 33,
        Some(4 | 6 | 7) => bytes.len() == 65,
        _ => false,
    }
}

fn is_pay_to_public_key(script: &[u8]) -> bool {
    match script {
        [33, key @ .., OP_CHECKSIG] if key.len() == 33 => is_key(key),
        [65, key @ .., OP_CHECKSIG] if key.len() == 65 => is_key(key),
        _ => false,
    }
}

/// Reads a count of 1 to 20 as multisig scripts encode it: `OP_1` to `OP_16`, or the shortest push
/// of a larger number.
fn count(opcode: u8, data: &[u8]) -> Option<usize> {
    match (opcode, data) {
        (OP_1..=OP_16, _) => Some(usize::from(opcode - OP_1) + 1),
        (1, &[number @ 17..=20]) => Some(usize::from(number)),
        _ => None,
    }
}

fn is_multisig(script: &[u8]) -> bool {
    let read = || {
        let (opcode, data, mut rest) = step(script)?;
        let required = count(opcode, data)?;
        let mut keys = 0;
        let total = loop {
            let (opcode, data, after) = step(rest)?;
            rest = after;
            if !is_key(data) {
                break count(opcode, data)?;
            }
            keys += 1;
        };
        let counted = total == keys && required <= total && total <= MAX_MULTISIG_KEYS;
        Some(counted && rest == [OP_CHECKMULTISIG])
    };
    read().unwrap_or(false)
}
