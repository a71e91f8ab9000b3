//! The lines that `watch` prints: text for people, or JSON for programs.

use chainsieve::bitcoin::{Address, Network};
use chainsieve::btc::headers::BlockAt;
use chainsieve::btc::wallet::TxPosition;
use chainsieve_client::{
    Client, Finding, Hit, HitCounts, News, OwnedOutput, OwnedSpend, Owner, Progress, Status,
    Update, WalletId,
};
use chainsieve_report::{Lines, count, grouped, line_of, print_log};
use serde_json::{Value, json};

use super::run::{Reader, graded_json, work_hex};
use crate::btc::cf::scan::words;

/// Prints the updates of one wallet.
#[derive(Debug)]
pub(super) struct Printer {
    lines: Lines,
    json: bool,
    network: Network,
    wallet: WalletId,
    /// The items as they were typed, indexed by their numbers in the wallet.
    names: Vec<String>,
    /// A reorganisation, kept until all its withdrawn hits have arrived.
    reorganization: Option<Reorganization>,
    /// Number of new hits that were printed.
    pub(super) hits: usize,
    /// Number of printed hits that an earlier run may have printed already.
    pub(super) again: usize,
    /// Number of withdrawn hits that were printed.
    pub(super) withdrawn: usize,
}

#[derive(Debug)]
struct Reorganization {
    fork: BlockAt,
    disconnected: Vec<BlockAt>,
    /// Number of withdrawn hits that have not arrived yet.
    to_come: usize,
    withdrawn: Vec<Update>,
}

impl Reader for Printer {
    fn take(
        &mut self,
        update: Update,
        status: &Status,
        client: &Client,
    ) -> anyhow::Result<Vec<Update>> {
        if let News::CaughtUp(progress) = &update.news {
            let counts = client.count_hits(self.wallet.clone())?;
            self.caught_up(progress, counts)?;
            return Ok(Vec::new());
        }
        self.print_update(update, status.progress.tip.height)
    }

    fn is_closed(&self) -> bool {
        self.lines.is_closed()
    }
}

impl Printer {
    pub(super) fn new(wallet: WalletId, names: Vec<String>, network: Network, json: bool) -> Self {
        Self {
            lines: Lines::default(),
            json,
            network,
            wallet,
            names,
            reorganization: None,
            hits: 0,
            again: 0,
            withdrawn: 0,
        }
    }

    /// Prints an update. Returns the updates that are printed completely, to be acknowledged. An
    /// update that is not acknowledged is delivered again in the next run.
    fn print_update(&mut self, update: Update, tip: u32) -> anyhow::Result<Vec<Update>> {
        match &update.news {
            News::Hit(hit) => {
                self.hit(hit, update.again, tip)?;
                return Ok(vec![update]);
            }
            News::Reorganized { fork, disconnected, withdrawn } => {
                self.reorganization = Some(Reorganization {
                    fork: *fork,
                    disconnected: disconnected.clone(),
                    to_come: *withdrawn,
                    withdrawn: Vec::new(),
                });
                return self.finish_reorganization();
            }
            News::Withdrawn(hit) if hit.place.is_none() => {
                let line = json!({"kind": "withdrawn", "txid": hit.txid.to_string()});
                let words = || format!("withdrawn: unconfirmed  tx {}\n", hit.txid);
                self.print(&line, words)?;
                self.withdrawn += 1;
                return Ok(vec![update]);
            }
            News::Withdrawn(_) => {
                if let Some(reorganization) = &mut self.reorganization {
                    reorganization.to_come = reorganization.to_come.saturating_sub(1);
                    reorganization.withdrawn.push(update);
                }
                return self.finish_reorganization();
            }
            News::Graded(graded) => {
                let mut line = json!({"kind": "graded"});
                merge(&mut line, graded_json(graded));
                self.print(&line, String::new)?;
            }
            News::Reopened { from, to } => {
                let line = json!({"kind": "reopened", "from": from, "to": to});
                self.print(&line, String::new)?;
            }
            News::Finding(finding) => self.finding(finding)?,
            _ => {}
        }
        Ok(Vec::new())
    }

    fn hit(&mut self, hit: &Hit, again: bool, tip: u32) -> anyhow::Result<()> {
        let confirmations =
            hit.place.map_or(0, |place| (tip + 1).saturating_sub(place.block.height));
        let mut line = self.hit_json(hit);
        line["confirmations"] = confirmations.into();
        line["again"] = again.into();
        let words = self.hit_words(hit, confirmations, again);
        self.print(&line, || words)?;
        *(if again { &mut self.again } else { &mut self.hits }) += 1;
        Ok(())
    }

    fn finish_reorganization(&mut self) -> anyhow::Result<Vec<Update>> {
        let Some(done) = self.reorganization.take_if(|it| it.to_come == 0) else {
            return Ok(Vec::new());
        };
        let Reorganization { fork, disconnected, withdrawn, .. } = done;
        let block = |at: &BlockAt| json!({"height": at.height, "block": at.hash.to_string()});
        let gone = withdrawn.iter().filter_map(|update| match &update.news {
            News::Withdrawn(hit) => Some((hit.place?.block, hit.txid)),
            _ => None,
        });
        let gone: Vec<_> = gone.collect();
        let taken_back = gone.iter().map(|(at, txid)| {
            let mut hit = block(at);
            hit["txid"] = txid.to_string().into();
            hit
        });
        let line = json!({
            "kind": "reorg",
            "fork": block(&fork),
            "disconnected": disconnected.iter().map(block).collect::<Vec<_>>(),
            "withdrawn": taken_back.collect::<Vec<_>>(),
        });
        let words = || {
            let mut text = format!(
                "reorganisation: the blocks after height {} were removed from the chain, {} \
                 withdrawn\n",
                grouped(fork.height),
                count(gone.len(), "hit")
            );
            text.extend(gone.iter().map(|(at, txid)| {
                format!("withdrawn: height {}  tx {txid}\n", grouped(at.height))
            }));
            text
        };
        self.print(&line, words)?;
        self.withdrawn += gone.len();
        Ok(withdrawn)
    }

    /// Prints a finding as a line. A finding that concerns no block is a log line, unless programs
    /// read the output.
    fn finding(&mut self, finding: &Finding) -> anyhow::Result<()> {
        let at = finding.at();
        match finding {
            // The run would never find anything, so it ends with an error.
            Finding::NoFilter(_) | Finding::ItemRefused { .. } => anyhow::bail!("{finding}"),
            Finding::FirstUnknown(_) => {}
            _ if at.is_none() && !self.json => {
                print_log(&finding.to_string());
                return Ok(());
            }
            _ => {}
        }
        let line = json!({
            "kind": "finding",
            "finding": finding.kind(),
            "height": at.map(|at| at.height),
            "block": at.map(|at| at.hash.to_string()),
            "text": finding.to_string(),
        });
        self.print(&line, || format!("{finding}\n"))
    }

    fn caught_up(&mut self, progress: &Progress, counts: HitCounts) -> anyhow::Result<()> {
        let tip = progress.tip;
        let line = json!({
            "kind": "caught_up",
            "height": tip.height,
            "block": tip.hash.to_string(),
            "work": work_hex(progress),
            "answered_to": progress.settled_to,
            "confirmed": counts.confirmed,
            "unconfirmed": counts.unconfirmed,
        });
        let words = || format!("caught up: height {}  {}\n", grouped(tip.height), tip.hash);
        self.print(&line, words)
    }

    fn print(&mut self, line: &Value, words: impl FnOnce() -> String) -> anyhow::Result<()> {
        let text = if self.json { line_of(line) } else { words() };
        Ok(self.lines.print(&text)?)
    }

    /// Returns the item that `owner` refers to, as the user typed it.
    fn item(&self, owner: &Owner) -> &str {
        self.names.get(owner.item as usize).map_or("", |name| name)
    }

    /// Returns a hit as JSON, without the members that change with time.
    fn hit_json(&self, hit: &Hit) -> Value {
        let received = hit.received.iter().map(|OwnedOutput { vout, value, owner }| {
            let script = owner.script.as_ref();
            let address = script.and_then(|it| Address::from_script(it, self.network).ok());
            json!({
                "vout": vout,
                "satoshis": value.to_sat(),
                "script": script.map(hex::encode),
                "address": address.map(|address| address.to_string()),
                "item": self.item(owner),
                "path": owner.path,
                "index": owner.index,
            })
        });
        let spent = hit.spent.iter().map(|spent| {
            let owner = spent.owner.as_ref();
            json!({
                "vin": spent.vin,
                "outpoint": spent.outpoint.to_string(),
                "item": owner.map(|owner| self.item(owner)),
                "script": owner.and_then(|owner| owner.script.as_ref()).map(hex::encode),
                "certain": spent.certain,
            })
        });
        json!({
            "kind": "hit",
            "height": hit.place.map(|place| place.block.height),
            "block": hit.place.map(|place| place.block.hash.to_string()),
            "index": hit.place.map(|place| place.index),
            "txid": hit.txid.to_string(),
            "received": received.collect::<Vec<_>>(),
            "spent": spent.collect::<Vec<_>>(),
            "evidence": hit.evidence.name(),
            "reason": hit.why.name(),
            "peer": hit.peer,
        })
    }

    /// Returns a hit as one line for people.
    fn hit_words(&self, hit: &Hit, confirmations: u32, again: bool) -> String {
        let place = match hit.place {
            Some(TxPosition { block: at, .. }) => {
                format!("height {}  {}", grouped(at.height), at.hash)
            }
            None => "unconfirmed".into(),
        };
        let name = |owner: &Owner| words(self.item(owner), owner.path, owner.index);
        let received = hit.received.iter().map(|OwnedOutput { vout, value, owner }| {
            format!("output {vout} pays {value} to {}", name(owner))
        });
        let spent = hit.spent.iter().map(|OwnedSpend { vin, outpoint, owner, certain }| {
            let verb = if *certain { "spends" } else { "seems to spend" };
            let whose = owner.as_ref().map(|owner| format!(" of {}", name(owner)));
            format!("input {vin} {verb} {outpoint}{}", whose.unwrap_or_default())
        });
        let what = received.chain(spent).collect::<Vec<_>>().join(", ");
        let evidence = match hit.place {
            Some(_) => {
                let confirmations = count(confirmations, "confirmation");
                format!("{}, {confirmations}, {}", hit.evidence.describe(), hit.why)
            }
            None => format!("relayed by {}", hit.peer.as_deref().unwrap_or("a peer")),
        };
        let again = if again { "  (again)" } else { "" };
        format!("{place}  tx {}  {what}  [{evidence}]{again}\n", hit.txid)
    }
}

/// Adds the fields of one JSON object to another object.
fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use chainsieve::bitcoin::consensus::encode::deserialize_hex;
    use chainsieve::bitcoin::hashes::Hash as _;
    use chainsieve::bitcoin::{Amount, BlockHash, Transaction};
    use chainsieve_client::{HitReason, InclusionEvidence, UpdateId};

    use super::*;

    /// The coinbase of Bitcoin's genesis block.
    fn coinbase() -> Transaction {
        deserialize_hex(concat!(
            "01000000010000000000000000000000000000000000000000000000000000000000000000ffffffff4d04ff",
            "ff001d0104455468652054696d65732030332f4a616e2f32303039204368616e63656c6c6f72206f6e2062",
            "72696e6b206f66207365636f6e64206261696c6f757420666f722062616e6b73ffffffff0100f2052a0100",
            "00004341",
            "04678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f355",
            "04e51ec112de5c384df7ba0b8d578a4c702b6bf11d5fac00000000"
        ))
        .unwrap()
    }

    fn at(height: u32) -> BlockAt {
        BlockAt { height, hash: BlockHash::all_zeros() }
    }

    fn hit(height: Option<u32>) -> Box<Hit> {
        let transaction = coinbase();
        let owner = Owner { item: 1, path: None, index: Some(7), script: None };
        Box::new(Hit {
            header: None,
            txid: transaction.compute_txid(),
            transaction,
            place: height.map(|height| TxPosition { block: at(height), index: 0 }),
            received: vec![OwnedOutput { vout: 0, value: Amount::from_int_btc(50), owner }],
            spent: Vec::new(),
            evidence: if height.is_some() {
                InclusionEvidence::Block
            } else {
                InclusionEvidence::Unconfirmed
            },
            why: if height.is_some() { HitReason::Matched } else { HitReason::Relayed },
            peer: Some("peer.example:8333".into()),
        })
    }

    fn update(id: u64, again: bool, news: News) -> Update {
        Update { id: UpdateId(id), wallet: Some("w".into()), again, news }
    }

    /// What was printed; `None` while nothing can be printed.
    #[derive(Debug, Clone)]
    struct Printed(Arc<Mutex<Option<String>>>);

    impl Printed {
        fn text(&self) -> String {
            self.0.lock().unwrap().clone().unwrap()
        }
    }

    impl Write for Printed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut printed = self.0.lock().unwrap();
            let printed = printed.as_mut().ok_or(io::ErrorKind::StorageFull)?;
            printed.push_str(str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn printer(json: bool) -> (Printer, Printed) {
        let names = vec!["first".into(), "second".into()];
        let mut printer = Printer::new("w".into(), names, Network::Bitcoin, json);
        let printed = Printed(Arc::new(Mutex::new(Some(String::new()))));
        printer.lines = Lines::to(printed.clone());
        (printer, printed)
    }

    #[test]
    fn a_hit_has_its_item_as_typed_and_its_confirmations() {
        let (mut printer, printed) = printer(true);
        printer.print_update(update(1, false, News::Hit(hit(Some(10)))), 12).unwrap();
        printer.print_update(update(2, true, News::Hit(hit(None))), 12).unwrap();
        let lines: Vec<Value> =
            printed.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["received"][0]["item"], "second");
        assert_eq!(lines[0]["received"][0]["satoshis"], 5_000_000_000_u64);
        assert_eq!((&lines[0]["confirmations"], &lines[0]["again"]), (&json!(3), &json!(false)));
        assert_eq!((&lines[1]["confirmations"], &lines[1]["again"]), (&json!(0), &json!(true)));
        assert_eq!((&lines[1]["height"], &lines[1]["block"]), (&Value::Null, &Value::Null));
        assert_eq!((printer.hits, printer.again), (1, 1));
    }

    #[test]
    fn words_for_people() {
        let (mut printer, printed) = printer(false);
        printer.print_update(update(1, false, News::Hit(hit(Some(10)))), 10).unwrap();
        let expected = format!(
            "height 10  {}  tx 4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b  \
             output 0 pays 50 BTC to second index 7  [in the block, 1 confirmation, matched]\n",
            "0".repeat(64)
        );
        assert_eq!(printed.text(), expected);
    }

    #[test]
    fn what_cannot_be_printed_is_not_acknowledged() {
        let (mut printer, printed) = printer(true);
        *printed.0.lock().unwrap() = None;
        printer.print_update(update(1, false, News::Hit(hit(Some(10)))), 12).unwrap_err();
        assert_eq!(printer.hits, 0);
        *printed.0.lock().unwrap() = Some(String::new());
        let done = printer.print_update(update(2, false, News::Hit(hit(Some(10)))), 12).unwrap();
        assert_eq!(done.iter().map(|update| update.id).collect::<Vec<_>>(), [UpdateId(2)]);
    }

    #[test]
    fn programs_get_findings_that_concern_no_block() {
        let finding = || News::Finding(Finding::ClockBehind);
        let (mut lines, printed) = printer(true);
        lines.print_update(update(1, false, finding()), 0).unwrap();
        let line: Value = serde_json::from_str(&printed.text()).unwrap();
        assert_eq!((&line["finding"], &line["block"]), (&json!("clock_behind"), &Value::Null));
        // People see it on standard error.
        let (mut page, shown) = printer(false);
        page.print_update(update(1, false, finding()), 0).unwrap();
        assert_eq!(shown.text(), "");
    }

    #[test]
    fn a_reorganisation_is_one_line_and_its_withdrawals_wait_for_it() {
        let (mut printer, printed) = printer(true);
        let news =
            News::Reorganized { fork: at(9), disconnected: vec![at(11), at(10)], withdrawn: 2 };
        assert_eq!(printer.print_update(update(1, false, news), 9).unwrap(), []);
        let withdrawn = |id, height| update(id, false, News::Withdrawn(hit(Some(height))));
        assert_eq!(printer.print_update(withdrawn(2, 10), 9).unwrap(), []);
        assert_eq!(printed.text(), "");
        let done = printer.print_update(withdrawn(3, 11), 9).unwrap();
        assert_eq!(done, [withdrawn(2, 10), withdrawn(3, 11)]);
        let line: Value = serde_json::from_str(&printed.text()).unwrap();
        assert_eq!((&line["kind"], &line["fork"]["height"]), (&json!("reorg"), &json!(9)));
        assert_eq!(line["disconnected"][0]["height"], 11);
        assert_eq!(line["withdrawn"][1]["height"], 11);
        assert_eq!(printer.withdrawn, 2);
    }
}
