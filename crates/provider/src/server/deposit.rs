//! Deposits of the OP stack (type 0x7e) as JSON, in the form of op-geth.
//!
//! Source: <https://specs.optimism.io/protocol/deposits.html>. A deposit has no signature: its sender is in its
//! encoding, and it pays no fee. Its nonce is not in the encoding, but in the receipt.

use alloy_rlp::{Decodable, Header};
use chainsieve::alloy_primitives::{Address, B256, Bytes, TxKind, U64, U256};
use chainsieve::eth::receipts::{DEPOSIT_TYPE, Receipt};
use serde_json::{Map, Value, json};

/// A deposit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deposit {
    source_hash: B256,
    pub(super) from: Address,
    pub(super) to: TxKind,
    mint: U256,
    value: U256,
    gas: u64,
    is_system: bool,
    input: Bytes,
}

/// Returns `true` if an encoding is that of a deposit.
pub(super) fn is_deposit(encoding: &[u8]) -> bool {
    encoding.first() == Some(&DEPOSIT_TYPE)
}

/// Returns the nonce of a deposit, if its receipt proves it: before Canyon, the receipts root covers none.
pub(super) fn proven_nonce(receipt: &Receipt) -> Option<u64> {
    receipt.deposit_nonce.filter(|_| receipt.deposit_receipt_version.is_some())
}

impl Deposit {
    pub(super) fn decode(encoding: &[u8]) -> Result<Self, alloy_rlp::Error> {
        let mut rest = encoding.strip_prefix(&[DEPOSIT_TYPE]).unwrap_or_default();
        let mut fields = Header::decode_bytes(&mut rest, true)?;
        let deposit = Self {
            source_hash: Decodable::decode(&mut fields)?,
            from: Decodable::decode(&mut fields)?,
            to: Decodable::decode(&mut fields)?,
            mint: Decodable::decode(&mut fields)?,
            value: Decodable::decode(&mut fields)?,
            gas: Decodable::decode(&mut fields)?,
            is_system: Decodable::decode(&mut fields)?,
            input: Decodable::decode(&mut fields)?,
        };
        if rest.is_empty() && fields.is_empty() {
            Ok(deposit)
        } else {
            Err(alloy_rlp::Error::UnexpectedLength)
        }
    }

    /// Returns the members that depend on no block. Members of a signature are zero, as op-geth writes them.
    pub(super) fn json(&self, hash: B256) -> Map<String, Value> {
        let mut json = json!({
            "type": U64::from(DEPOSIT_TYPE),
            "hash": hash,
            "sourceHash": self.source_hash,
            "from": self.from,
            "to": self.to.to(),
            "value": self.value,
            "gas": U64::from(self.gas),
            "gasPrice": "0x0",
            "input": self.input,
            "v": "0x0",
            "r": "0x0",
            "s": "0x0",
        });
        if !self.mint.is_zero() {
            json["mint"] = json!(self.mint);
        }
        if self.is_system {
            json["isSystemTx"] = json!(true);
        }
        match json {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }
}
