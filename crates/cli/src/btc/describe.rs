//! Descriptions of matches, as text and as JSON, with the data that matched.

use chainsieve::bitcoin::{Address, Network, Script, Transaction};
use chainsieve::btc::bip37::{MatchReason, TxMatch};
use chainsieve::btc::script::pushes;
use serde_json::{Value, json};

/// A match and its transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described<'a> {
    pub(crate) found: &'a TxMatch,
    pub(crate) tx: &'a Transaction,
    pub(crate) network: Network,
}

impl Described<'_> {
    pub(crate) fn json(&self) -> Value {
        let reasons: Vec<_> =
            self.found.reasons.iter().map(|reason| self.reason(*reason)).collect();
        json!({
            "index": self.found.index,
            "txid": self.found.txid.to_string(),
            "reasons": reasons,
        })
    }

    /// Returns the rows of a table: index, txid, and one reason in each row.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let mut why = self.found.reasons.iter().map(|reason| self.words(*reason));
        let first = why.next().unwrap_or_else(|| "requested".into());
        let first = vec![self.found.index.to_string(), self.found.txid.to_string(), first];
        let rest = why.map(|why| vec![String::new(), String::new(), why]);
        [first].into_iter().chain(rest).collect()
    }

    fn reason(&self, reason: MatchReason) -> Value {
        match reason {
            MatchReason::Everything => json!({"kind": "everything"}),
            MatchReason::Txid => json!({"kind": "txid"}),
            MatchReason::Output { vout, push, inserted } => {
                let output = self.tx.output.get(vout as usize);
                let script = output.map_or(Script::new(), |output| &output.script_pubkey);
                json!({
                    "kind": "output",
                    "vout": vout,
                    "push": push,
                    "data": nth_push(script, push).map(hex::encode),
                    "script": hex::encode(script),
                    "address": self.address(script),
                    "satoshis": output.map(|output| output.value.to_sat()),
                    "inserted": inserted,
                })
            }
            MatchReason::Spent { vin } => {
                json!({"kind": "spent", "vin": vin, "outpoint": self.outpoint(vin)})
            }
            MatchReason::InputData { vin, push } => json!({
                "kind": "input_data",
                "vin": vin,
                "push": push,
                "data": self.input_data(vin, push).map(hex::encode),
            }),
            _ => json!({"kind": "other", "text": reason.to_string()}),
        }
    }

    /// Describes one reason for people.
    pub(crate) fn words(&self, reason: MatchReason) -> String {
        match reason {
            MatchReason::Output { vout, push, inserted } => {
                let Some(output) = self.tx.output.get(vout as usize) else {
                    return reason.to_string();
                };
                let script = &output.script_pubkey;
                let to = match (self.address(script), nth_push(script, push)) {
                    (Some(address), _) => format!("to {address}"),
                    (None, Some(data)) => format!("push {}", data_words(data)),
                    (None, None) => String::from("no push"),
                };
                let inserted = if inserted { "; outpoint inserted" } else { "" };
                format!("output {vout}: {} {to}{inserted}", output.value)
            }
            MatchReason::Spent { vin } => match self.outpoint(vin) {
                Some(outpoint) => format!("input {vin} spends {outpoint}"),
                None => reason.to_string(),
            },
            MatchReason::InputData { vin, push } => match self.input_data(vin, push) {
                Some(data) => format!("input {vin} pushes {}", data_words(data)),
                None => reason.to_string(),
            },
            _ => reason.to_string(),
        }
    }

    fn address(&self, script: &Script) -> Option<String> {
        Address::from_script(script, self.network).ok().map(|address| address.to_string())
    }

    fn outpoint(&self, vin: u32) -> Option<String> {
        self.tx.input.get(vin as usize).map(|input| input.previous_output.to_string())
    }

    fn input_data(&self, vin: u32, push: u32) -> Option<&[u8]> {
        nth_push(&self.tx.input.get(vin as usize)?.script_sig, push)
    }
}

fn nth_push(script: &Script, push: u32) -> Option<&[u8]> {
    pushes(script.as_bytes()).nth(push as usize)
}

fn data_words(data: &[u8]) -> String {
    if data.len() > 40 {
        format!("{}… ({} bytes)", hex::encode(&data[..36]), data.len())
    } else {
        hex::encode(data)
    }
}
