//! Merkle branches of the specification's own tests, for states and bodies of each fork.

use alloy_primitives::B256;
use chainsieve::eth::anchor::merkle_branch::{is_valid, root};

use crate::corpus::{self, Anchors, number};

#[test]
fn branches_of_the_specification() {
    let Some(anchors) = Anchors::open() else { return };
    let rows = anchors.json("light_client/branches.json");
    let rows = rows.as_array().expect("a list");
    for row in rows {
        let name = format!("{} {}", row["fork"], row["case"]);
        let leaf = corpus::root(&row["leaf"]).0;
        let branch = row["branch"].as_array().expect("a list");
        let branch: Vec<[u8; 32]> = branch.iter().map(|node| corpus::root(node).0).collect();
        let (gindex, expected) = (number(&row["gindex"]), corpus::root(&row["root"]).0);
        assert_eq!(root(leaf, &branch, gindex), Some(expected), "{name}");
        assert!(is_valid(leaf, &branch, gindex, expected), "{name}");
        // Another leaf, place, root or length.
        assert!(!is_valid(B256::repeat_byte(0x5a).0, &branch, gindex, expected), "{name}");
        // The two committees of the first period are the same, so their places can be exchanged.
        let is_twin = branch[0] == leaf;
        assert_eq!(is_valid(leaf, &branch, gindex ^ 1, expected), is_twin, "{name}");
        assert!(!is_valid(leaf, &branch, gindex, [0; 32]), "{name}");
        for wrong in [0, 1, gindex / 2, gindex * 2] {
            assert_eq!(root(leaf, &branch, wrong), None, "{name}: {wrong}");
        }
        assert_eq!(root(leaf, &branch[1..], gindex), None, "{name}");
        for node in 0..branch.len() {
            let mut other = branch.clone();
            other[node][31] ^= 1;
            assert!(!is_valid(leaf, &other, gindex, expected), "{name}: node {node}");
        }
    }
    assert_eq!(rows.len(), 18);
}

#[test]
fn indices_without_a_branch() {
    assert_eq!(root([1; 32], &[], 0), None);
    assert_eq!(root([1; 32], &[], 1), Some([1; 32]));
    assert_eq!(root([1; 32], &[[0; 32]], u64::MAX), None);
    assert!(root([1; 32], &[[0; 32]; 63], u64::MAX).is_some());
}
