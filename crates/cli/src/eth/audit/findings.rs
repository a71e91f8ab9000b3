//! Findings in words and in JSON.

use chainsieve::eth::audit::{Finding, FindingKind, Forgery, Grounds, WrongField};
use chainsieve::eth::chain_profile::BloomSoundness;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::receipts::ReceiptProof;
use serde_json::{Value, json};

use crate::output::grouped;

/// A finding and the answer that it is about.
pub(crate) struct Described<'a> {
    pub(crate) finding: &'a Finding,
    pub(crate) logs: &'a [LocatedLog],
}

impl Described<'_> {
    /// The kind in one word.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.finding.kind {
            FindingKind::OmittedLog(_) => "omitted_log",
            FindingKind::ForgedLog(_) => "forged_log",
            FindingKind::WrongField { .. } => "wrong_field",
            FindingKind::Duplicate { .. } => "duplicate",
            FindingKind::NotMatching { .. } => "not_matching",
            FindingKind::OutOfRange { .. } => "out_of_range",
            FindingKind::BeyondTag { .. } => "beyond_tag",
            FindingKind::OtherFork { .. } => "other_fork",
            FindingKind::ArityDependent { .. } => "arity_dependent",
            FindingKind::Removed { .. } => "removed",
            FindingKind::ProfileContradicted { .. } => "profile_contradicted",
            _ => "other",
        }
    }

    /// What is wrong, and what shows it.
    pub(crate) fn words(&self) -> String {
        let answered = |at: usize| format!("log {} of the answer", grouped(at as u64));
        match &self.finding.kind {
            FindingKind::OmittedLog(omitted) => {
                format!("omitted: {}; {}", place(&omitted.log), proof_words(&omitted.proof))
            }
            FindingKind::ForgedLog(forged) => {
                let shown = match &forged.forgery {
                    Forgery::Bloom => "the header's filter lacks its bits".to_owned(),
                    Forgery::Receipts { proof: Some(proof) } => {
                        format!("not in the receipt; {}", proof_words(proof))
                    }
                    Forgery::Receipts { proof: None } => {
                        "the block has no such transaction".to_owned()
                    }
                    _ => "shown otherwise".to_owned(),
                };
                format!("forged: {}, {}; {shown}", answered(forged.at), place(&forged.log))
            }
            FindingKind::WrongField { at, field } => {
                format!("wrong: {}: {}", answered(*at), field_words(field))
            }
            FindingKind::Duplicate { at, first } => {
                format!("twice: {} is log {} again", answered(*at), grouped(*first as u64))
            }
            FindingKind::NotMatching { at } => {
                format!("not asked for: {} does not match the query", answered(*at))
            }
            FindingKind::OutOfRange { at } => {
                format!("not asked for: {} is of a block outside the range", answered(*at))
            }
            FindingKind::BeyondTag { at } => format!(
                "beyond a tag: {} is of a block outside what the tag was taken for",
                answered(*at)
            ),
            FindingKind::OtherFork { at } => {
                format!("of another fork: the block of {} is not on this chain", answered(*at))
            }
            FindingKind::ArityDependent { at, log } => match at {
                Some(at) => format!("by other rules: {} matches by them alone", answered(*at)),
                None => format!("by other rules: {} is rightly missing by them", place(log)),
            },
            FindingKind::Removed { at } => {
                format!("removed: {} says that its block left the chain", answered(*at))
            }
            FindingKind::ProfileContradicted { claimed, missing_bits, extra_bits } => format!(
                "the filter is not {} as the chain's profile says: {missing_bits} bits missing, \
                 {extra_bits} too many",
                soundness(*claimed)
            ),
            other => format!("{other:?}"),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let Finding { block, grounds, kind } = self.finding;
        let at = self.finding.at();
        let mut json = json!({
            "kind": self.kind(),
            "block": block,
            "grounds": grounds_name(*grounds),
            "proof": self.finding.is_proof(),
            "at": at,
            "words": self.words(),
        });
        let log = match kind {
            FindingKind::OmittedLog(omitted) => {
                json["index_in_receipt"] = json!(omitted.index_in_receipt);
                json["receipt_proof"] = json!(*omitted.proof);
                Some(&omitted.log)
            }
            FindingKind::ForgedLog(forged) => {
                json["shown_by"] = match &forged.forgery {
                    Forgery::Bloom => json!("bloom"),
                    _ => json!("receipts"),
                };
                if let Forgery::Receipts { proof: Some(proof) } = &forged.forgery {
                    json["receipt_proof"] = json!(**proof);
                }
                Some(&forged.log)
            }
            FindingKind::ArityDependent { log, .. } => Some(&**log),
            FindingKind::WrongField { field, .. } => {
                let (name, actual) = field_json(field);
                json["field"] = json!(name);
                json["actual"] = actual;
                None
            }
            FindingKind::Duplicate { first, .. } => {
                json["first"] = json!(first);
                None
            }
            FindingKind::ProfileContradicted { claimed, missing_bits, extra_bits } => {
                json["claimed"] = json!(soundness(*claimed));
                json["missing_bits"] = json!(missing_bits);
                json["extra_bits"] = json!(extra_bits);
                None
            }
            _ => None,
        };
        let log = log.or_else(|| self.logs.get(at?));
        json["log"] = log.map_or(Value::Null, log_json);
        json
    }
}

/// A log as nodes write it.
pub(crate) fn log_json(log: &LocatedLog) -> Value {
    serde_json::from_str(&log.to_json()).unwrap_or_default()
}

fn place(log: &LocatedLog) -> String {
    format!(
        "log {} (transaction {}) of {}",
        grouped(log.log_index),
        grouped(log.transaction_index),
        log.log.address
    )
}

fn proof_words(proof: &ReceiptProof) -> String {
    format!(
        "receipt {} is proven by {} nodes of the trie",
        grouped(proof.transaction_index),
        proof.nodes.len()
    )
}

fn field_words(field: &WrongField) -> String {
    match field {
        WrongField::BlockNumber { actual } => format!("blockNumber is {actual}"),
        WrongField::BlockTimestamp { actual } => format!("blockTimestamp is {actual}"),
        WrongField::ZeroTimestamp { actual } => {
            format!("blockTimestamp is {actual}, not filled in by the node, perhaps")
        }
        WrongField::TransactionIndex { actual } => format!("transactionIndex is {actual}"),
        WrongField::LogIndex { actual } => format!("logIndex is {actual}"),
        WrongField::TransactionHash { actual: Some(actual) } => {
            format!("transactionHash is {actual}")
        }
        WrongField::TransactionHash { actual: None } => "there is no such transaction".into(),
        other => format!("{other:?}"),
    }
}

fn field_json(field: &WrongField) -> (&'static str, Value) {
    match field {
        WrongField::BlockNumber { actual } => ("blockNumber", json!(actual)),
        WrongField::BlockTimestamp { actual } | WrongField::ZeroTimestamp { actual } => {
            ("blockTimestamp", json!(actual))
        }
        WrongField::TransactionIndex { actual } => ("transactionIndex", json!(actual)),
        WrongField::LogIndex { actual } => ("logIndex", json!(actual)),
        WrongField::TransactionHash { actual } => ("transactionHash", json!(actual)),
        _ => ("other", Value::Null),
    }
}

fn grounds_name(grounds: Grounds) -> &'static str {
    match grounds {
        Grounds::Answer => "answer",
        Grounds::Anchored => "anchored",
        Grounds::Unanchored => "unanchored",
    }
}

pub(crate) fn soundness(soundness: BloomSoundness) -> &'static str {
    match soundness {
        BloomSoundness::Exact => "exact",
        BloomSoundness::Superset => "superset",
        BloomSoundness::Absent => "absent",
        BloomSoundness::Unsound => "unsound",
    }
}
