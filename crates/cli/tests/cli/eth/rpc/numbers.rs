//! Block numbers at the ends of their range: no number from a provider causes an overflow.

use super::*;
use testkit::TestFolder;

/// Returns a provider whose chain is one block with this number, without parent and logs.
fn single(number: u64) -> (Server, String) {
    let mut chain = Chain::real_and(1);
    let block = chain::numbered(&chain.blocks[2], number);
    let hash = block.hash.clone();
    chain.finalized = number;
    chain.blocks = vec![block];
    (honest(chain), hash)
}

#[test]
fn a_head_of_any_number_is_taken() {
    for number in [0, u64::MAX - 1, u64::MAX] {
        let (server, hash) = single(number);
        let (url, from) = (server.url(), number.to_string());
        for (from, code) in [(from.as_str(), YES), ("0", BAD_INPUT)] {
            if number == 0 && code == BAD_INPUT {
                continue;
            }
            let code = |usual| if code == YES { usual } else { code };
            let start = ["--rpc", &url, "--from", from, "--address", WETH, "--retries", "0"];
            for (command, usual) in [
                (&["eth", "audit", "--anchor", &hash][..], YES),
                (&["eth", "audit", "--unfinalized"], YES),
                (&["eth", "scan"], NO),
                (&["eth", "follow", "--once", "--poll", "0.05"], YES),
            ] {
                let output = discreet(&[command, &start].concat());
                let place = format!("{number}, {command:?} from {from}: {}", output.stderr);
                assert!(!output.stderr.contains("panicked"), "{place}");
                assert_eq!(output.code, code(usual), "{place}");
            }
            let folder = TestFolder::new(&format!("single-{number}-{from}"));
            let args = ["eth", "index", "build", "--rpc", &url, "--from", from, "--retries", "0"];
            let output = discreet(&[&args[..], &[&folder.file("index")]].concat());
            assert!(!output.stderr.contains("panicked"), "{number}: {}", output.stderr);
        }
    }
}
