//! The outputs of a transaction that pay a wallet.
use std::collections::BTreeMap;

use serde_json::{Value, json};
use silentpayments::receiving::{Label, Receiver};
use silentpayments::secp256k1::{Secp256k1, XOnlyPublicKey};
use silentpayments::utils::receiving::calculate_ecdh_shared_secret;
use silentpayments::{Network, SpVersion};

use crate::protocol::{Answer, bytes, list};

pub fn receive(input: &Value) -> Answer {
    let Some(tweak) = crate::tweak(input)? else {
        return Ok(json!({ "tweak": "", "outputs": [], "count": 0 }));
    };
    let (scan, spend) =
        (crate::secret(&input["scan_private_key"])?, crate::secret(&input["spend_private_key"])?);
    let [scan_key, spend_key] = [scan, spend].map(|key| key.public_key(&Secp256k1::new()));
    let mut receiver =
        Receiver::new(SpVersion::ZERO, scan_key, spend_key, Label::new(scan, 0), Network::Mainnet)?;
    for label in list(&input["labels"], |label| label.as_u64().expect("a number")) {
        receiver.add_label(Label::new(scan, u32::try_from(label)?))?;
    }
    let outputs: Vec<_> = list(&input["outputs"], |key| XOnlyPublicKey::from_slice(&bytes(key)))
        .into_iter()
        .flatten()
        .collect();
    let found =
        receiver.scan_transaction(&calculate_ecdh_shared_secret(&tweak, &scan), &outputs)?;
    let found = found
        .into_values()
        .flatten()
        .map(|(key, tweak)| (key.to_string(), hex::encode(tweak.to_be_bytes())));
    let found: BTreeMap<_, _> = found.collect();
    let outputs: Vec<_> = found
        .iter()
        .map(|(key, tweak)| json!({ "public_key": key, "private_key_tweak": tweak }))
        .collect();
    Ok(json!({ "tweak": tweak.to_string(), "count": outputs.len(), "outputs": outputs }))
}
