//! The outputs that pay addresses.
use serde_json::{Value, json};
use silentpayments::SilentPaymentCode;
use silentpayments::sending::generate_recipient_pubkeys;
use silentpayments::utils::receiving::is_p2tr;
use silentpayments::utils::sending::calculate_partial_secret;

use crate::protocol::{Answer, bytes};
use crate::{key, outpoints, secret};

pub fn send(input: &Value) -> Answer {
    let mut keys = Vec::new();
    for input in input["inputs"].as_array().expect("a list") {
        if key(input)?.is_some() {
            keys.push((secret(&input["private_key"])?, is_p2tr(&bytes(&input["prevout_script"]))));
        }
    }
    let mut codes = Vec::new();
    for recipient in input["recipients"].as_array().expect("a list") {
        let code = SilentPaymentCode::try_from(recipient["address"].as_str().expect("text"))?;
        codes.extend((0..recipient["count"].as_u64().unwrap_or(1)).map(|_| code));
    }
    let outputs =
        generate_recipient_pubkeys(codes, calculate_partial_secret(&keys, &outpoints(input))?)?;
    let mut outputs: Vec<_> = outputs.into_values().flatten().map(|key| key.to_string()).collect();
    outputs.sort();
    Ok(json!({ "outputs": outputs }))
}
