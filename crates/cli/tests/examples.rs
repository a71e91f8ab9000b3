//! Runs every example, and checks lines of its output.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::program::built;

/// Each example with lines of its expected output.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "already_seen",
        &[
            "200 users, 1500 notices each: 227702 shown, 72298 held back",
            "none shown twice within 200; 39 new ones held back",
            "1088 bytes a user, 6400 for the ids",
        ],
    ),
    (
        "audit_logs",
        &[
            "the provider returns 17 logs",
            "Wrong: 2 blocks checked",
            "omitted, proven: log 122 of block 17686112",
        ],
    ),
    (
        "blocklist",
        &[
            "list 1000000 bytes, filter shipped 120936 bytes",
            "271 addresses in the block, 2 asked of the owner, 2 listed",
            "of a million others 14 would be asked about",
        ],
    ),
    (
        "bloom_join",
        &[
            "200000 rows in the table, 4182 shipped, 3987 joined",
            "bytes: 9600000 before, 202792 with a filter of 2056",
            "with the accounts instead of a filter: 211376",
            "false positives among the rows: 195",
        ],
    ),
    (
        "digest_exchange",
        &[
            "40000 transactions here, 40000 there, 42000 in all",
            "round 1: 3985 transactions moved, 15 left out",
            "round 2: 15 transactions moved, 0 left out",
            "ids on the wire: 2560000 bytes plainly, 199072 in digests",
        ],
    ),
    (
        "index_logs",
        &["blocks 22431080 to 22431086 of mainnet", "block 22431083, by block 22431083: shown"],
    ),
    (
        "match_block",
        &["2 of 47 transactions matched", "    outpoint spent by input 2", "merkleblock 280 bytes"],
    ),
    (
        "popular_values",
        &[
            "fixtures: 5 blocks, 790 logs, 846 values",
            "sketch 988480 bytes, estimates at most 0.3 too high, but for 0.0001 of values",
            "54 % of logs: 0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef, 426 (426 exactly)",
            "17 % of logs: 0xc02aaa39b223fe8d0a0e5c4f27ead9083c756cc2, 136 (136 exactly)",
        ],
    ),
    (
        "scan_filters",
        &[
            "block 9: scripts [0]",
            "block 170: scripts [0]",
            "block 170: scripts [1]",
            "block 248: scripts [7]",
            "256 records intact, block 256 is next",
            "247 filters asked, 0 of them unverified; 8 candidates, 0.0008 scripts expected by chance",
        ],
    ),
    (
        "scan_headers",
        &[
            "7 headers, authentic up to block 22431086",
            "block 22431082: no: proven",
            "block 22431083: perhaps",
            "topic 0 alone: 100 % of blocks, which selects nothing",
        ],
    ),
    (
        "second_request",
        &[
            "each stored: 326939 writes, 18.3 % hits",
            "at the second request: 36829 writes, 26.6 % hits",
            "33 of 219045 first requests mistaken for second requests",
            "doorkeeper 107840 bytes, 23030 requests remembered",
        ],
    ),
    (
        "segment_gate",
        &[
            "20 segments of 5000 keys, gates of 10.1 bits a key",
            "10000 keys asked for, 5000 found, the same with gates and without",
            "segments read: 152500 without gates, 6459 with: 4.2 %",
        ],
    ),
    (
        "verify_merkleblock",
        &[
            "2 transactions proven to be in block 00000000d1145790a8694403d4063f323d499e655c83426834d4ce2f8dd4a2ee; height 170, 6 confirmations; not proven: that no other transaction was left out, and that the number of transactions is 2 as claimed",
        ],
    ),
    (
        "wallet_session",
        &[
            "4d38ceb47f18dc408f65a88c68de5d8ab803501bff1586e60b741eadf59147e2: 0 received, 1 spent",
            "3 transactions proven to be in block 000000000000011f9791dcfdfe0e402b79a165a3b781bafcc918b6f2166d577c; height 150013, 8 confirmations; not proven: that no other transaction was left out, and that the number of transactions is 47 as claimed",
        ],
    ),
    ("watch_header", &["block 17686111: 678 of 10000 watches perhaps", "customer 7: 1 transfers"]),
    (
        "watch_set",
        &[
            "4 of 389 outputs",
            "1000003 scripts, exact: false",
            "beside the scripts: 28 bits each",
            "looked up without need: about one stranger in a million",
        ],
    ),
    (
        "wallet_filter",
        &["filterload 259 bytes", "filteradd 14abababababababababababababababababababab"],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_example_runs() {
    let files: BTreeSet<_> = std::fs::read_dir(root().join("examples"))
        .expect("examples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .filter_map(|path| path.file_stem()?.to_str().map(String::from))
        .collect();
    let names: BTreeSet<_> = EXAMPLES.iter().map(|(name, _)| String::from(*name)).collect();
    assert_eq!(files, names);
    for (name, lines) in EXAMPLES {
        let program = built("chainsieve", ["--example", name]);
        let output = Command::new(program).output().expect("the example starts");
        let stdout = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        for line in *lines {
            assert!(stdout.lines().any(|shown| shown == *line), "{name}: {line:?} in\n{stdout}");
        }
    }
}
