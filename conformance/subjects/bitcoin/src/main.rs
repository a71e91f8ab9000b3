//! rust-bitcoin: BIP158's filters and their headers, BIP37's messages, scripts.
//!
//! Its reader of a Golomb-coded set tells neither the count nor whether the set is well-formed, so
//! `gcs.decode` is left out. Of BIP37's filter, it has the message that loads one and no more.
use bitcoin::ScriptBuf;
use bitcoin::script::Instruction;
use protocol::{Answer, bytes, list, serve};
use serde_json::{Value, json};

mod bip158;
mod bip37;
#[path = "../../protocol.rs"]
mod protocol;

fn pushes(input: &Value) -> Answer {
    let script = ScriptBuf::from_bytes(bytes(&input["script"]));
    let well_formed = script.instructions().all(|instruction| instruction.is_ok());
    let data =
        script.instructions().map_while(Result::ok).filter_map(|instruction| match instruction {
            Instruction::PushBytes(data) if !data.is_empty() => Some(hex::encode(data.as_bytes())),
            _ => None,
        });
    Ok(json!({ "pushes": data.collect::<Vec<_>>(), "well_formed": well_formed }))
}

fn kind(input: &Value) -> Answer {
    let script = ScriptBuf::from_bytes(bytes(&input["script"]));
    let multisig = if script.is_multisig() { "multisig" } else { "other" };
    Ok(json!({ "kind": if script.is_p2pk() { "pubkey" } else { multisig } }))
}

fn main() {
    serve(&[
        ("gcs.build", bip158::build),
        ("gcs.match", |input| bip158::match_any(input, &[bytes(&input["item"])])),
        ("gcs.match_any", |input| bip158::match_any(input, &list(&input["items"], bytes))),
        ("bip157.header", bip158::header),
        ("bip158.basic", |input| Ok(json!({ "filter": bip158::basic(input)? }))),
        ("bip158.check", |input| {
            Ok(json!({ "correct": input["filter"] == bip158::basic(input)? }))
        }),
        ("bip37.filterload", bip37::filterload),
        ("bip37.merkleblock", bip37::merkleblock),
        ("bip37.merkleblock_build", bip37::merkleblock_build),
        ("script.pushes", pushes),
        ("script.kind", kind),
    ]);
}
