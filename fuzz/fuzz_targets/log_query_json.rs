//! A query: alloy reads every query that the library reads by alloy's rules, with the same sets.
//! The canonical form of a query reads as the same query.
#![no_main]

use alloy_rpc_types_eth::Filter;
use chainsieve::eth::log_query::{BlockSelection, LogQuery, Semantics};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for semantics in [Semantics::Geth, Semantics::Alloy] {
        let Ok(query) = LogQuery::from_json(text, semantics) else { continue };
        let written = query.to_json();
        for semantics in [semantics, Semantics::Alloy] {
            assert_eq!(LogQuery::from_json(&written, semantics).as_ref(), Ok(&query), "{written}");
        }
        let clauses = query.topics().iter().filter(|set| !set.is_any()).count()
            + usize::from(!query.address_set().is_empty());
        assert_eq!(query.compile().clauses().len(), clauses);
    }
    let Ok(query) = LogQuery::from_json(text, Semantics::Alloy) else { return };
    let filter: Filter = serde_json_of(text);
    assert_eq!(query.address_set().len(), filter.address.len());
    assert!(query.address_set().iter().all(|address| filter.address.contains(address)));
    for (position, theirs) in filter.topics.iter().enumerate() {
        let ours = query.topics().get(position).map_or(&[][..], |set| set.values());
        assert_eq!(ours.len(), theirs.len());
        assert!(ours.iter().all(|topic| theirs.contains(topic)));
    }
    let hash = match query.blocks() {
        BlockSelection::AtHash(hash) => Some(*hash),
        BlockSelection::Range { .. } => None,
    };
    assert_eq!(hash, filter.get_block_hash());
});

fn serde_json_of(text: &str) -> Filter {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("alloy refuses {text}: {e}"))
}
