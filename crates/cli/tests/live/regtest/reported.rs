//! What `btc watch --json` has said, in the words of [`Event`].

use std::collections::BTreeSet;

use chainsieve::bitcoin::BlockHash;
use serde_json::Value;

use super::{Event, Move};

/// The confirmed history that these lines leave: hits, less what reorganisations took back.
pub(crate) fn reported(lines: &[Value]) -> BTreeSet<Event> {
    let mut events: BTreeSet<Event> = BTreeSet::new();
    for line in lines {
        match line["event"].as_str().expect("a kind of line") {
            "hit" if !line["height"].is_null() => events.extend(of_hit(line)),
            "reorg" => {
                let withdrawn: BTreeSet<_> = list(line, "withdrawn")
                    .map(|hit| (height(hit), parse(&hit["block"]), parse(&hit["txid"])))
                    .collect();
                let is_withdrawn =
                    |event: &Event| withdrawn.contains(&(event.height, event.block, event.txid));
                let known: BTreeSet<_> =
                    events.iter().map(|event| (event.height, event.block, event.txid)).collect();
                let gone: BTreeSet<BlockHash> =
                    list(line, "disconnected").map(|block| parse(&block["block"])).collect();
                // Of blocks that left while the command did not run, it takes back what it had
                // noted as well, which a kill may have kept from being printed.
                let unknown =
                    withdrawn.difference(&known).find(|(_, block, _)| gone.contains(block));
                assert_eq!(unknown, None, "what was never said is taken back: {line}");
                events.retain(|event| !is_withdrawn(event));
                let left = events.iter().find(|event| gone.contains(&event.block));
                assert_eq!(left, None, "not taken back: {line}");
            }
            _ => {}
        }
    }
    events
}

fn of_hit(hit: &Value) -> Vec<Event> {
    let (height, block, txid) = (height(hit), parse(&hit["block"]), parse(&hit["txid"]));
    let number = |entry: &Value, name: &str| {
        u32::try_from(entry[name].as_u64().expect("a number")).expect("of 32 bits")
    };
    let paid = list(hit, "received").map(|output| Move::Paid { vout: number(output, "vout") });
    let spent = list(hit, "spent").map(|input| Move::Spent { vin: number(input, "vin") });
    paid.chain(spent).map(|what| Event { height, block, txid, what }).collect()
}

fn list<'a>(line: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    line[name].as_array().unwrap_or_else(|| panic!("no {name} in {line}")).iter()
}

fn height(entry: &Value) -> u32 {
    u32::try_from(entry["height"].as_u64().expect("a height")).expect("of 32 bits")
}

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &Value) -> T {
    text.as_str().expect("text").parse().expect("a hash")
}
