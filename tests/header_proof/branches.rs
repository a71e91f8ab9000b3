//! Merkle branches: the official vectors, and the slow checker on made-up ones.

use chainsieve::eth::anchor::merkle_branch::{is_valid, root};
use testkit::Rng;

use crate::corpus::{Anchors, text};
use crate::slow_ssz::{Node, gindex_valid};

fn node(value: &serde_json::Value) -> Node {
    text(value).parse::<alloy_primitives::B256>().expect("32 bytes").0
}

/// The vectors `single_merkle_proof` of consensus-specs. Each changed bit makes the branch invalid.
#[test]
fn official_vectors() {
    let Some(corpus) = Anchors::open() else { return };
    let vectors = corpus.json("light_client/branches.json");
    let vectors = vectors.as_array().expect("a list");
    for vector in vectors {
        let name = format!("{} {}", text(&vector["fork"]), text(&vector["case"]));
        let (leaf, expected) = (node(&vector["leaf"]), node(&vector["root"]));
        let gindex = vector["gindex"].as_u64().expect("a number");
        let branch: Vec<_> =
            vector["branch"].as_array().expect("a list").iter().map(node).collect();
        assert_eq!(root(leaf, &branch, gindex), Some(expected), "{name}");
        assert!(is_valid(leaf, &branch, gindex, expected), "{name}");
        assert!(gindex_valid(leaf, &branch, gindex, expected), "{name}");

        for bit in 0..256 {
            let flipped = |mut node: Node| {
                node[bit / 8] ^= 1 << (bit % 8);
                node
            };
            assert!(!is_valid(flipped(leaf), &branch, gindex, expected), "{name}");
            assert!(!is_valid(leaf, &branch, gindex, flipped(expected)), "{name}");
            for at in 0..branch.len() {
                let mut other = branch.clone();
                other[at] = flipped(other[at]);
                assert!(!is_valid(leaf, &other, gindex, expected), "{name}");
            }
        }
        // Another depth, another place, a shorter and a longer branch. The two committees of some
        // states are the same, and then their places are alike.
        let beside = if branch[0] == leaf { 0 } else { gindex ^ 1 };
        for other in [0, 1, beside, gindex / 2, gindex * 2, u64::MAX] {
            assert!(!is_valid(leaf, &branch, other, expected), "{name}: {other}");
        }
        assert_eq!(root(leaf, &branch[1..], gindex), None, "{name}");
        assert_eq!(root(leaf, &[&branch[..], &[leaf]].concat(), gindex), None, "{name}");
    }
    assert_eq!(vectors.len(), 18);
}

#[test]
fn made_up_branches_as_the_specification_checks_them() {
    let mut rng = Rng::new(2935);
    let mut valid = 0;
    for round in 0..2_000 {
        let depth = rng.below(20);
        let leaf: Node = rng.array();
        let branch: Vec<Node> = (0..depth).map(|_| rng.array()).collect();
        let mut place = || (1_u64 << depth) + rng.u64() % (1 << depth);
        let (gindex, place) = (place(), place());
        let computed = root(leaf, &branch, gindex).expect("the depth");
        // The right root, the root at another place, and another branch's root.
        for (gindex, root) in [(gindex, computed), (place, computed), (gindex, leaf)] {
            let expected = gindex_valid(leaf, &branch, gindex, root);
            assert_eq!(is_valid(leaf, &branch, gindex, root), expected, "{round}: {gindex}");
            valid += usize::from(expected);
        }
    }
    assert!((2_000..6_000).contains(&valid), "{valid}");
    assert_eq!(root([7; 32], &[], 1), Some([7; 32]));
    assert_eq!(root([7; 32], &[], 0), None);
    assert_eq!(root([7; 32], &[], 2), None);
}
