//! silentpayments: BIP352.
//!
//! The library leaves to its caller whether a transaction has a taproot output, and which outputs are
//! points of the curve: the adapter does both. An error that says that the keys' sum is no key is how
//! the library says that a transaction is not scanned.
use protocol::{Answer, bytes, list, serve};
use serde_json::{Value, json};
use silentpayments::Error;
use silentpayments::secp256k1::{Error::InvalidPublicKeySum, PublicKey, SecretKey};
use silentpayments::utils::{OutPoint, receiving::*};

#[path = "../../protocol.rs"]
mod protocol;
mod receive;
mod send;

fn outpoints(input: &Value) -> Vec<OutPoint> {
    list(&input["inputs"], |input| {
        OutPoint::from_bytes(bytes(&input["outpoint"]).try_into().expect("36 bytes"))
    })
}

fn key(input: &Value) -> Result<Option<PublicKey>, Error> {
    get_pubkey_from_input(
        &bytes(&input["script_sig"]),
        &list(&input["witness"], bytes),
        &bytes(&input["prevout_script"]),
    )
}

fn secret(input: &Value) -> Result<SecretKey, Error> {
    Ok(SecretKey::from_slice(&bytes(input))?)
}

fn tweak(input: &Value) -> Result<Option<PublicKey>, Error> {
    let keys = list(&input["inputs"], key)
        .into_iter()
        .filter_map(Result::transpose)
        .collect::<Result<Vec<_>, _>>()?;
    match calculate_tweak_data(&keys.iter().collect::<Vec<_>>(), &outpoints(input)) {
        Err(Error::Secp256k1Error(InvalidPublicKeySum)) => Ok(None),
        tweak => tweak.map(Some),
    }
}

fn index(input: &Value) -> Answer {
    let has_taproot_output =
        list(&input["output_scripts"], bytes).iter().any(|script| is_p2tr(script));
    let tweak = if has_taproot_output { tweak(input)? } else { None };
    Ok(json!({ "tweak": tweak.map(|tweak| tweak.to_string()).unwrap_or_default() }))
}

fn main() {
    serve(&[
        ("bip352.tweak", index),
        ("bip352.receive", receive::receive),
        ("bip352.send", send::send),
    ]);
}
