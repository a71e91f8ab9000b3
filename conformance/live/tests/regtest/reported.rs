//! Converts the lines of `btc watch --json` to [`Event`]s.

use std::collections::BTreeSet;

use chainsieve::bitcoin::BlockHash;
use serde_json::Value;

use super::{Event, Move};

/// Returns the confirmed events after these lines: the hits, without those that reorganisations
/// withdrew.
pub(crate) fn reported(lines: &[Value]) -> BTreeSet<Event> {
    let mut events: BTreeSet<Event> = BTreeSet::new();
    for line in lines {
        match line["kind"].as_str().expect("a kind of line") {
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
                // A command that is killed may have stored hits without printing them. If their
                // blocks are reorganised away before the next run, the command withdraws these hits
                // too.
                let unknown =
                    withdrawn.difference(&known).find(|(_, block, _)| gone.contains(block));
                assert_eq!(unknown, None, "a hit was withdrawn that was never reported: {line}");
                events.retain(|event| !is_withdrawn(event));
                let left = events.iter().find(|event| gone.contains(&event.block));
                assert_eq!(left, None, "not withdrawn: {line}");
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
