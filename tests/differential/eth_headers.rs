//! Checks that every header of the fixtures decodes as in alloy.

use std::collections::BTreeSet;

use testkit::eth::fixtures;
use testkit::eth::header_checks::{check, ones};

#[test]
fn every_fixture_hashes_and_reads_as_alloy_has_it() {
    let headers = fixtures::headers();
    let mut forks = BTreeSet::new();
    for header in &headers {
        let alloy = check(&header.name, &header.rlp, header.hash);
        assert_eq!(alloy.number, header.number, "{}", header.name);
        assert_eq!(alloy.parent_hash, header.parent_hash, "{}", header.name);
        assert!(ones(&alloy.logs_bloom) <= 2_048);
        let of_amsterdam = header.fork.as_deref() == Some("Amsterdam");
        assert_eq!(alloy.slot_number.is_some(), of_amsterdam, "{}", header.name);
        forks.extend(header.fork.clone());
    }
    assert_eq!(headers.len(), 129);
    assert_eq!(forks.len(), 18, "{forks:?}");
}
