//! The receipts of a block, by each method that the node serves.

use std::fmt;

use chainsieve::alloy_primitives::Bytes;
use chainsieve::eth::chain_profile::BloomSoundness;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement, ReceiptsError, VerifiedBlock};
use chainsieve_provider::{Node, RpcError};
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::{Value, json};

use super::ask::{called, is_refusal, words};
use super::chain::Chain;
use super::headers::Found;
use super::places::{Place, first_wrong};
use crate::audit::report::{AuditError, AuditReport, Difference, rules};

/// Maximum number of transactions in a block, which is more than any real block has.
const MAX_TRANSACTIONS: usize = 100_000;

/// A method for the receipts of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    ByHash,
    Raw,
    ByNumber,
    Each,
}

const METHODS: [Method; 4] = [Method::ByHash, Method::Raw, Method::ByNumber, Method::Each];

const OF_BLOCK: &str = "eth_getBlockReceipts";
const RAW: &str = "debug_getRawReceipts";
const OF_TRANSACTION: &str = "eth_getTransactionReceipt";

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::ByHash => "eth_getBlockReceipts by hash",
            Self::Raw => RAW,
            Self::ByNumber => "eth_getBlockReceipts by number",
            Self::Each => "eth_getTransactionReceipt for each transaction",
        }
    }
}

/// The answer by one method.
enum Answer {
    Receipts(Receipts),
    /// The answer cannot be read as receipts.
    Malformed(String),
    /// A receipt has a type that the library does not know, so that it cannot be encoded.
    UnknownType(u8, String),
    /// `null` in place of the receipts of a block.
    Null,
    /// `null` for transactions of the block.
    Missing(MissingReceipts),
    /// The node does not serve the method, or has no answer.
    Refused(RpcError),
}

struct Receipts {
    receipts: BlockReceipts,
    /// The claimed places, if the receipts came as JSON.
    places: Option<Result<Vec<Place>, String>>,
}

/// The transactions of a block for which a node has no receipt.
struct MissingReceipts {
    /// Index of the first of them.
    first: usize,
    /// Index of a transaction before it whose receipt the node has.
    before: Option<usize>,
}

/// Requests and checks the receipts of one block.
pub(super) struct Auditor<'a> {
    pub(super) node: &'a Node,
    pub(super) chain: &'a Chain,
    pub(super) block: &'a Found,
}

impl Auditor<'_> {
    /// Requests the receipts by each method, and returns the logs of those that are right.
    pub(super) fn logs(
        &self,
        report: &mut AuditReport,
    ) -> Result<Option<Vec<LocatedLog>>, AuditError> {
        let at = self.at();
        let mut logs = None;
        // Answers that are wrong only if the node has the receipts, which another method shows.
        let (mut strange, mut unknown, mut absent) = (Vec::new(), Vec::new(), Vec::new());
        let mut missing = None;
        for method in METHODS {
            match self.ask(method)? {
                Answer::Receipts(receipts) => {
                    let right = self.verified(method.name(), receipts, report);
                    logs = logs.or(right);
                }
                Answer::Malformed(words) => strange.push((method, words)),
                Answer::UnknownType(receipt_type, words) => {
                    unknown.push((method, receipt_type, words));
                }
                Answer::Null => absent.push(method),
                Answer::Missing(found) => missing = Some(found),
                Answer::Refused(
                    error @ (RpcError::TooLarge { .. } | RpcError::LimitExceeded { .. }),
                ) => {
                    let name = method.name();
                    report.leave_undecided(|| format!("receipts of {at}, {name}: {error}"));
                }
                Answer::Refused(_) => {}
            }
        }
        // If a node has dropped the receipts, the receipts of its transactions are missing too.
        if logs.is_some() || absent.is_empty() {
            for (method, words) in strange {
                let values = ("the receipts of the block", words);
                let difference =
                    Difference::new(rules::RECEIPTS_ROOT, at.number, method.name(), values);
                self.chain.judge(report, rules::RECEIPTS_ROOT, Some(difference));
            }
        }
        for (method, receipt_type, words) in unknown {
            if logs.is_some() {
                // The root commits to the types, and receipts of other types have the root.
                let values = ("receipts of the types that the receipts root commits to", words);
                let difference =
                    Difference::new(rules::RECEIPTS_ROOT, at.number, method.name(), values);
                self.chain.judge(report, rules::RECEIPTS_ROOT, Some(difference));
            } else {
                report.note(format!(
                    "receipts of the type {receipt_type:#04x} are unknown to chainsieve"
                ));
                let name = method.name();
                report.leave_undecided(|| format!("receipts of {at}, {name}: {words:?}"));
            }
        }
        if logs.is_some() {
            self.null_for_block(&absent, report)?;
            self.null_for_transactions(missing, report)?;
        } else {
            report
                .leave_undecided(|| format!("the node has no receipts of {at} that can be judged"));
        }
        Ok(logs)
    }

    fn at(&self) -> BlockRef {
        BlockRef::from(&self.block.header)
    }

    /// Reports `null` for a block whose receipts the node has.
    fn null_for_block(
        &self,
        absent: &[Method],
        report: &mut AuditReport,
    ) -> Result<(), AuditError> {
        let number = self.at().number;
        for &method in absent {
            // A provider may have several nodes behind one name, one of which lags.
            if method == Method::Raw || !matches!(self.ask(method)?, Answer::Null) {
                continue;
            }
            let values = ("the receipts, which the node has by another method", "null");
            let difference = Difference::new(rules::RECEIPTS_ROOT, number, method.name(), values);
            self.chain.judge(report, rules::RECEIPTS_ROOT, Some(difference));
        }
        Ok(())
    }

    /// Reports `null` for transactions of a block whose receipts the node has.
    ///
    /// Nodes drop the index of old transactions, but not their receipts: geth block by block, reth
    /// in the order of the transactions. So a transaction may be missing only if all before it are.
    fn null_for_transactions(
        &self,
        missing: Option<MissingReceipts>,
        report: &mut AuditReport,
    ) -> Result<(), AuditError> {
        let at = self.at();
        let Some(missing) = missing else { return Ok(()) };
        let again = match missing.before {
            Some(_) => self.ask(Method::Each)?,
            None => Answer::Missing(missing),
        };
        match again {
            Answer::Missing(MissingReceipts { first, before: Some(before) }) => {
                let what = format!("{OF_TRANSACTION} of transaction {first}");
                let expected = format!("a receipt, as of transaction {before} of the same block");
                let difference =
                    Difference::new(rules::RECEIPTS_ROOT, at.number, what, (expected, "null"));
                self.chain.judge(report, rules::RECEIPTS_ROOT, Some(difference));
            }
            Answer::Missing(_) => {
                report.note(format!(
                    "{OF_TRANSACTION} is null for blocks whose receipts the node has: it may have \
                     dropped the index of old transactions"
                ));
                report.leave_undecided(|| format!("{OF_TRANSACTION} is null for {at}"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Requests the receipts by one method.
    fn ask(&self, method: Method) -> Result<Answer, AuditError> {
        let BlockRef { number, hash } = self.at();
        let answer = match method {
            Method::ByHash => self.node.read(OF_BLOCK, &json!([hash]), list),
            Method::ByNumber => self.node.read(OF_BLOCK, &json!([format!("{number:#x}")]), list),
            Method::Raw => self.node.read(RAW, &json!([hash]), encodings),
            Method::Each => self.each(),
        };
        match answer {
            Ok(Answer::Malformed(text)) => Ok(Answer::Malformed(words(self.node, &text))),
            Ok(answer) => Ok(answer),
            Err(error) if is_refusal(&error) => Ok(Answer::Refused(error)),
            Err(error) => called(method.name(), Err(error)),
        }
    }

    fn each(&self) -> Result<Answer, RpcError> {
        let transactions = match &self.block.transactions {
            Ok(transactions) if transactions.len() <= MAX_TRANSACTIONS => transactions,
            Ok(transactions) => {
                return Ok(Answer::Malformed(format!("{} transactions", transactions.len())));
            }
            // The list itself is judged with the block.
            Err(_) => {
                let what = String::from("the hashes of the block's transactions");
                return Ok(Answer::Refused(RpcError::NotFound { what }));
            }
        };
        let params: Vec<Value> = transactions.iter().map(|hash| json!([hash])).collect();
        let answers = self.node.read_each(OF_TRANSACTION, &params, ToOwned::to_owned)?;
        let answers: Vec<String> = answers.into_iter().collect::<Result<_, _>>()?;
        let is_null = |text: &String| text == "null";
        if let Some(first) = answers.iter().position(is_null) {
            let before = answers.iter().position(|text| !is_null(text));
            let last = answers.iter().rposition(is_null).unwrap_or(first);
            let before = before.filter(|before| *before < last);
            let first = if before.is_some() { last } else { first };
            return Ok(Answer::Missing(MissingReceipts { first, before }));
        }
        let places = answers.iter().zip(transactions).map(|(text, transaction)| {
            let place: Place = serde_json::from_str(text).map_err(|error| error.to_string())?;
            place.of_transaction(*transaction)
        });
        Ok(receipts(BlockReceipts::from_json_each(&answers), || places.collect()))
    }

    /// Checks receipts against their header. Returns the logs if the receipts are right.
    fn verified(
        &self,
        method: &'static str,
        Receipts { receipts, places }: Receipts,
        report: &mut AuditReport,
    ) -> Option<Vec<LocatedLog>> {
        let header = &self.block.header;
        let number = header.view().number();
        let has_statuses = self.chain.has_statuses(number);
        let receipts = if has_statuses { receipts.after_byzantium() } else { receipts };
        let verified = match receipts.verify_block(header) {
            Ok(verified) => verified,
            Err(error) if error.is_undecidable() => {
                report.leave_undecided(|| format!("receipts of block {number}, {method}: {error}"));
                return None;
            }
            Err(error) => {
                let values = (header.view().receipts_root(), error);
                let difference = Difference::new(rules::RECEIPTS_ROOT, number, method, values);
                self.chain.judge(report, rules::RECEIPTS_ROOT, Some(difference));
                return None;
            }
        };
        report.check(rules::RECEIPTS_ROOT, None);
        self.bloom(&verified, method, report);
        if let Some(places) = places {
            let difference = self.place_differs(places, receipts.len(), method);
            self.chain.judge(report, rules::RECEIPTS_PLACE, difference);
        }
        let transaction = |index: u64| {
            let transactions = self.block.transactions.as_ref().ok()?;
            transactions.get(usize::try_from(index).ok()?).copied()
        };
        // The hashes of transactions come from the block, and not from the receipts.
        let logs = verified.logs().map(|log| LocatedLog {
            transaction_hash: transaction(log.transaction_index),
            claimed_transaction_hash: None,
            ..log
        });
        Some(logs.collect())
    }

    /// Compares the filters of the header and of the receipts with the logs.
    fn bloom(&self, verified: &VerifiedBlock<'_>, method: &'static str, report: &mut AuditReport) {
        let number = verified.block().number;
        let soundness = self.chain.bloom(number);
        if !soundness.proves_absence() {
            let source = self.chain.source(number);
            report.note(format!("filters of logs are not compared: {source}"));
            return;
        }
        let differs = |what: String, got: String| {
            let values = ("exactly the bits of the logs", got);
            Some(Difference::new(rules::LOGS_BLOOM, number, what, values))
        };
        let receipts = verified.receipts();
        let difference = match (receipts.header_bloom(), receipts.unsound_receipt()) {
            (_, Some(receipt)) if soundness == BloomSoundness::Exact => {
                let got = String::from("other bits than those of its logs");
                differs(format!("{method}: the filter of receipt {receipt}"), got)
            }
            (BloomAgreement::Exact, _) => None,
            (BloomAgreement::Superset { .. }, _) if soundness == BloomSoundness::Superset => None,
            (other, _) => differs("the filter of the header".into(), other.to_string()),
        };
        report.check(rules::LOGS_BLOOM, difference);
    }

    /// Compares what receipts in JSON claim about their place.
    fn place_differs(
        &self,
        places: Result<Vec<Place>, String>,
        receipts: usize,
        method: &'static str,
    ) -> Option<Difference> {
        let at = self.at();
        let differs = |what: String, values: (String, String)| {
            Some(Difference::new(rules::RECEIPTS_PLACE, at.number, what, values))
        };
        let transactions = match &self.block.transactions {
            Ok(transactions) if transactions.len() == receipts => Some(transactions.as_slice()),
            Ok(transactions) => {
                let values = (format!("{receipts}, as receipts"), transactions.len().to_string());
                return differs("the number of the block's transactions".into(), values);
            }
            // Some nodes send whole transactions, although hashes are requested.
            Err(_) => None,
        };
        match places.map(|places| first_wrong(places, at, transactions)) {
            Ok(None) => None,
            Ok(Some(wrong)) => {
                differs(format!("{method}: {}", wrong.what), (wrong.expected, wrong.got))
            }
            Err(error) => {
                let values = ("the place of each receipt and log".into(), words(self.node, &error));
                differs(method.into(), values)
            }
        }
    }
}

fn list(text: &str) -> Answer {
    if text == "null" {
        return Answer::Null;
    }
    receipts(BlockReceipts::from_json(text), || {
        serde_json::from_str(text).map_err(|error| error.to_string())
    })
}

/// Returns receipts that came as JSON.
fn receipts(
    read: Result<BlockReceipts, ReceiptsError>,
    places: impl FnOnce() -> Result<Vec<Place>, String>,
) -> Answer {
    match read {
        // The places are read only from receipts that are well-formed, and so not many.
        Ok(receipts) => Answer::Receipts(Receipts { receipts, places: Some(places()) }),
        Err(error) => unreadable(&error),
    }
}

fn unreadable(error: &ReceiptsError) -> Answer {
    match error {
        ReceiptsError::UnknownType { receipt_type, .. } => {
            Answer::UnknownType(*receipt_type, error.to_string())
        }
        error => Answer::Malformed(error.to_string()),
    }
}

fn encodings(text: &str) -> Answer {
    if text == "null" {
        return Answer::Null;
    }
    match serde_json::from_str(text).map(|Encodings(list)| BlockReceipts::from_encodings(&list)) {
        Ok(Ok(receipts)) => Answer::Receipts(Receipts { receipts, places: None }),
        Ok(Err(error)) => unreadable(&error),
        Err(error) => Answer::Malformed(error.to_string()),
    }
}

/// The encodings of a block's receipts. An empty one takes far more memory than its text, so their
/// number is limited.
struct Encodings(Vec<Bytes>);

impl<'de> Deserialize<'de> for Encodings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Encodings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of encoded receipts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Encodings, A::Error> {
                let mut encodings = Vec::new();
                while let Some(encoding) = list.next_element()? {
                    if encodings.len() == MAX_TRANSACTIONS {
                        let words = format_args!("more than {MAX_TRANSACTIONS} receipts");
                        return Err(A::Error::custom(words));
                    }
                    encodings.push(encoding);
                }
                Ok(Encodings(encodings))
            }
        }

        deserializer.deserialize_seq(List)
    }
}
