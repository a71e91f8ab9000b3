//! The table of lies.

use std::collections::BTreeSet;

use chainsieve_conformance::serve::{Protocol, StartError, bitcoin, ethereum, find, lies};

#[test]
fn each_lie_has_an_id_of_its_own_and_can_be_told() {
    let ids: BTreeSet<_> = lies().map(|lie| lie.id).collect();
    assert_eq!(ids.len(), lies().count());
    assert_eq!(ids.len(), 62);
    for lie in lies() {
        assert!(lie.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", lie.id);
        for text in [lie.title, lie.expected.by, lie.source] {
            assert!(!text.is_empty() && !text.ends_with('.'), "{text}");
        }
        assert_eq!(find(lie.id), Some(lie));
        let of_bitcoin = bitcoin::LyingNode::builder().lie(lie.id);
        let of_ethereum = ethereum::LyingNode::builder().lie(lie.id);
        let error = if lie.protocol == Protocol::BitcoinP2p {
            assert!(lie.id.starts_with("btc-"), "{}", lie.id);
            drop(of_bitcoin.unwrap().start().unwrap());
            of_ethereum.unwrap_err()
        } else {
            assert!(lie.id.starts_with("eth-"), "{}", lie.id);
            drop(of_ethereum.unwrap().start().unwrap());
            of_bitcoin.unwrap_err()
        };
        assert!(matches!(error, StartError::UnknownLie(id) if id == lie.id));
    }
    assert_eq!(find("btc-nothing"), None);
}

#[test]
fn a_lie_is_described_for_programs() {
    let json = serde_json::to_value(find("btc-filter-hides-transactions")).unwrap();
    assert_eq!(json["protocol"], "bitcoin-p2p");
    assert_eq!(json["expected"]["verdict"], "cannot-detect-alone");
    assert!(json["expected"]["by"].as_str().unwrap().contains("second node"));
}
