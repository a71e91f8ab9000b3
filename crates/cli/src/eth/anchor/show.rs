//! Anchors, as fields for people and as JSON.

use std::time::Duration;

use chainsieve::eth::anchor::sync_committee::{Anchor, BoundExecution, Checkpoint, Evidence, ExecutionHeader, Participation};
use chainsieve_report::{count, float, grouped};
use chainsieve_report::calendar::Utc;
use serde_json::{Value, json};

use crate::eth::header::decimal;

/// What no sync committee proves.
pub(super) const NOT_PROVEN: &str = "\
full consensus: no attestations were counted, and members of a sync committee are not slashed for a \
false signature";

/// Returns the fields of an anchor: the beacon block, the execution block, and the evidence.
///
/// `is_trusted` is `false` if nobody vouches for the checkpoint. The anchor then has no grade.
pub(super) fn fields(anchor: &Anchor, is_trusted: bool) -> Vec<(&'static str, String)> {
    let mut fields =
        vec![("beacon block", format!("slot {}, {}", grouped(anchor.beacon.slot), anchor.root))];
    match &anchor.execution {
        BoundExecution::Header(header) => fields.extend([
            ("block", grouped(header.block_number)),
            ("hash", header.block_hash.to_string()),
            ("parent", header.parent_hash.to_string()),
            ("time", Utc::new(header.timestamp).date_time()),
            ("state root", header.state_root.to_string()),
            ("receipts root", header.receipts_root.to_string()),
        ]),
        execution => {
            let hash = execution.bound_hash();
            fields.push(("hash", hash.map_or("none is bound".into(), |hash| hash.to_string())));
            if execution.lags() {
                fields.push(("", "of the last execution block before the beacon block".into()));
            }
        }
    }
    fields.push(("evidence", anchor.evidence.to_string()));
    let grade =
        if is_trusted { anchor.grade().name() } else { "none: the checkpoint is not yours" };
    fields.push(("grade", grade.into()));
    fields
}

/// Returns the JSON of an anchor, with the same facts and more fields of the execution header.
pub(crate) fn json(anchor: &Anchor, is_trusted: bool) -> Value {
    let (evidence, by) = evidence(anchor.evidence);
    json!({
        "slot": anchor.beacon.slot,
        "root": anchor.root,
        "state_root": anchor.beacon.state_root,
        "evidence": evidence,
        "signed": by.map(|by| by.signed),
        "of": by.map(|by| by.of),
        "grade": is_trusted.then(|| anchor.grade()),
        "execution": execution(&anchor.execution),
    })
}

fn evidence(evidence: Evidence) -> (&'static str, Option<Participation>) {
    match evidence {
        Evidence::Finalized(by) => ("finalized", Some(by)),
        Evidence::Optimistic(by) => ("optimistic", Some(by)),
        Evidence::Forced(by) => ("forced", Some(by)),
        _ => ("checkpoint", None),
    }
}

fn execution(execution: &BoundExecution) -> Value {
    let Some(hash) = execution.bound_hash() else { return Value::Null };
    let header = execution.header();
    let of = |value: fn(&ExecutionHeader) -> Value| header.map_or(Value::Null, value);
    json!({
        "number": of(|header| json!(header.block_number)),
        "hash": hash,
        "lags": execution.lags(),
        "parent_hash": of(|header| json!(header.parent_hash)),
        "timestamp": of(|header| json!(header.timestamp)),
        "state_root": of(|header| json!(header.state_root)),
        "receipts_root": of(|header| json!(header.receipts_root)),
        "fee_recipient": of(|header| json!(header.fee_recipient)),
        "gas_limit": of(|header| json!(header.gas_limit)),
        "gas_used": of(|header| json!(header.gas_used)),
        "base_fee_per_gas": of(|header| decimal(header.base_fee_per_gas)),
        "prev_randao": of(|header| json!(header.prev_randao)),
        "extra_data": of(|header| json!(header.extra_data)),
        "logs_bloom": of(|header| json!(header.logs_bloom)),
    })
}

/// Returns the warning about a checkpoint that is too old.
pub(super) fn stale(checkpoint: &Checkpoint) -> String {
    format!(
        "the checkpoint is {} old, more than the weak-subjectivity period of {}: validators of that \
         time may have withdrawn their stake, and can then sign another chain at no cost; a newer \
         checkpoint has no such risk",
        age(checkpoint.age),
        age(checkpoint.limit)
    )
}

/// Formats an age for people: `12 minutes`, `5.2 hours`, `15.7 days`.
pub(super) fn age(age: Duration) -> String {
    const HOUR: u64 = 3_600;
    let seconds = age.as_secs();
    match seconds / HOUR {
        0..2 => count(seconds / 60, "minute"),
        2..48 => format!("{:.1} hours", float(seconds) / float(HOUR)),
        _ => format!("{:.1} days", float(seconds) / float(24 * HOUR)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_for_people() {
        for (seconds, expected) in [
            (0, "0 minutes"),
            (119, "1 minute"),
            (7_199, "119 minutes"),
            (98_304, "27.3 hours"),
            (1_356_288, "15.7 days"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }
}
