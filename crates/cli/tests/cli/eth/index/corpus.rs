//! Index tests on every run of real headers in the corpus, and on the archive of the first epoch.

use super::*;

#[test]
fn every_run_of_headers_and_the_first_epoch() {
    let Some((corpus, files)) = testkit::corpus::index("ethereum") else { return };
    let of_headers = |file: &&Value| {
        let name = text(&file["file"]);
        name.contains("/header_runs/") || name.contains("/era1/")
    };
    let files: Vec<_> = files.iter().filter(of_headers).collect();
    assert_eq!(files.len(), 8);
    let folder = Folder::new("index-corpus");
    let mut candidates = 0;
    for file in files {
        let headers = corpus.join(text(&file["file"]));
        let headers = headers.to_str().expect("text");
        let chain = text(&file["chain"]);
        let (index, summary) = build(&folder, headers, &["--label", chain]);
        assert_eq!((&summary["added"], &summary["label"]), (&file["count"], &json!(chain)));
        assert_eq!(summary["last_hash"], file["hash"]);
        for query in [&["--address", WETH][..], &["--event", DEPOSIT], &QUERY, &[]] {
            let (found, hashes) = same_as_scan(&index, headers, query);
            assert_eq!(found, hashes, "nothing is sealed yet");
            candidates += found;
        }
        assert_eq!(json_of(&["eth", "index", "verify", &index, headers], YES)["valid"], true);
        if file["count"] == 8192 {
            // With `--confirmations 0`, all blocks of the epoch are sealed, as one section.
            let index = folder.path("sealed");
            let args = ["eth", "index", "build", &index, headers, "--confirmations", "0"];
            let (_, summary) = lines_of(&args, YES);
            assert_eq!(summary["sealed_sections"], 1);
            assert!(summary["bytes_per_header"].as_f64().expect("a number") < 5.0, "{summary}");
            let verified = json_of(&["eth", "index", "verify", &index, headers], YES);
            assert_eq!(verified["compared"]["sections"], 1);
            same_as_scan(&index, headers, &["--address", WETH]);
            same_as_scan(&index, headers, &[]);
        }
        fs::remove_dir_all(&index).expect("removed");
    }
    assert!(candidates > 8192, "{candidates}");
}
