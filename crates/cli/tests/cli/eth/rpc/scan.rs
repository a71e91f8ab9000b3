//! Tests of `eth scan --rpc`.

use super::*;

/// Runs a scan, and returns its lines.
fn scan(server: &Server, more: &[&str], code: i32) -> Vec<Value> {
    let url = server.url();
    let mut args = vec!["eth", "scan", "--rpc", &url, "--json", "--retries", "1"];
    args.extend(more);
    let output = discreet(&args).exits(code);
    output.lines()
}

/// `ETH_RPC_URL` names the provider of a command if its arguments contain neither headers nor
/// `--rpc`.
#[test]
fn the_environment_names_a_provider() {
    let server = honest(Chain::real_and(30));
    let anchor = anchor();
    let mut more = vec!["--from", "17686111", "--to", "17686112", "--anchor", &anchor];
    more.extend(QUERY);
    let run = |args: &[&str], url: &str| {
        let mut command = binary();
        command.args(args).args(&more).arg("--json").env("ETH_RPC_URL", url);
        let output = command.output().expect("the binary ends");
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
        assert!(!stdout.contains(SECRET) && !stderr.contains(SECRET), "{stderr}");
        (output.status.code(), stdout)
    };
    let named = ["eth", "scan", "--rpc", &server.url()];
    let expected = run(&named, "http://127.0.0.1:1/");
    assert_eq!(expected.0, Some(YES));
    assert_eq!(run(&["eth", "scan"], &server.url()), expected);
    let files = both_headers("scan-environment.rlp");
    let of_files = run(&["eth", "scan", files.path()], "http://127.0.0.1:1/");
    assert_eq!(of_files.0, Some(YES), "the provider is not asked");
    let unreachable = run(&["eth", "scan", "--retries", "0"], &closed_url());
    assert_eq!(unreachable, (Some(BAD_INPUT), String::new()));
}

/// Returns the URL of a provider that does not listen, with a secret in it.
fn closed_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}/v3/{SECRET}", listener.local_addr().expect("an address"))
}

#[test]
fn candidates_are_those_of_files() {
    let server = honest(Chain::real_and(30));
    let files = both_headers("scan-rpc.rlp");
    let anchor = anchor();
    let mut more = vec!["--from", "17686111", "--to", "17686112", "--anchor", &anchor];
    more.extend(QUERY);
    let of_files = json_lines(&[&["eth", "scan", files.path()], &more[..]].concat(), YES);
    let mut of_provider = scan(&server, &more, YES);
    assert_eq!(of_provider[2]["provider"], json!({ "host": server.host() }));
    assert_eq!(of_provider[2]["anchor_from"], "user");
    assert_eq!(of_provider[2]["light_client"], Value::Null);
    for member in ["provider", "anchor_from", "light_client"] {
        of_provider[2].as_object_mut().expect("an object").remove(member);
    }
    assert_eq!(of_provider[2]["chain_from"], "provider");
    of_provider[2]["chain_from"] = json!("assumed");
    assert_eq!(of_provider, of_files);
    assert_eq!(server.params("eth_getLogs").len(), 0);

    let end = Chain::real_and(30).last().hash.clone();
    let mut more = vec!["--from", "17686111", "--anchor", &end];
    more.extend(QUERY);
    let lines = scan(&server, &more, YES);
    let summary = lines.last().expect("a summary");
    assert_eq!((&summary["blocks"], &summary["candidates"]), (&json!(32), &json!(2)));
    assert_eq!(summary["anchored_to"], 17_686_142);
    // The anchor is after the end of the range.
    let mut more = vec!["--from", "17686113", "--to", "17686115", "--anchor", &end];
    more.extend(QUERY);
    let lines = scan(&server, &more, NO);
    assert_eq!((&lines[0]["blocks"], &lines[0]["anchored_to"]), (&json!(3), &json!(17_686_142)));
}

#[test]
fn failures_end_it_with_their_code() {
    let server = provider(Chain::real_and(3), |_, method, params| {
        (method == "eth_getBlockByNumber" && params[0] == "0x10dde61").then(|| Ok(json!({})))
    });
    let url = server.url();
    let base = ["eth", "scan", "--rpc", &url, "--address", WETH, "--retries", "1"];
    let output = discreet(&[&base[..], &["--from", "17686111"]].concat());
    assert_eq!((output.code, output.stdout.as_str()), (BAD_INPUT, ""), "{}", output.stdout);
    assert!(output.stderr.contains("block 17686113"), "{}", output.stderr);
    assert_eq!(discreet(&base).code, USAGE);
    let gone = honest(Chain::real_and(0)).url();
    let args = ["eth", "scan", "--rpc", &gone, "--address", WETH, "--from", "1", "--retries", "0"];
    let output = discreet(&args);
    assert_eq!(output.code, BAD_INPUT);
    assert!(output.stderr.contains("http://127.0.0.1:"), "{}", output.stderr);
    let mut unfinalised = Chain::real_and(3);
    unfinalised.finalized = 17_686_111;
    let server = honest(unfinalised);
    let mut more = vec!["--from", "17686111"];
    more.extend(QUERY);
    let lines = scan(&server, &more, YES);
    assert_eq!(lines.last().expect("a summary")["last"], 17_686_111);
    let lines = scan(&server, &[&more[..], &["--unfinalized"]].concat(), YES);
    assert_eq!(lines.last().expect("a summary")["last"], 17_686_115);
}

#[test]
fn a_forecast_of_a_providers_headers_is_that_of_files() {
    let server = honest(Chain::real_and(30));
    let files = both_headers("forecast-rpc.rlp");
    let url = server.url();
    let more = ["--from", "17686111", "--to", "17686112", "--address", WETH];
    let of = |source: &[&str]| json_of(&[&["eth", "forecast"], source, &more].concat(), YES);
    assert_eq!(of(&["--rpc", &url]), of(&[files.path()]));
    for method in ["eth_getLogs", "eth_getBlockReceipts"] {
        assert_eq!(server.params(method).len(), 0, "{method}");
    }
    // Without --to, the range ends at the final block.
    let open = ["eth", "forecast", "--rpc", &url, "--from", "17686111", "--address", WETH];
    let forecast = json_of(&open, YES);
    assert_eq!((&forecast["blocks"], &forecast["warnings"]), (&json!(32), &json!([])));
    // The range needs a beginning, and headers come from one source.
    let refused =
        |args: &[&str]| discreet(&[&["eth", "forecast", "--rpc", &url], args].concat()).code;
    assert_eq!(refused(&["--address", WETH]), USAGE);
    assert_eq!(refused(&[files.path(), "--from", "17686111"]), USAGE);
    let stopped = ["--from", "17686111", "--retries", "0", "--address", WETH];
    let output = discreet(&[&["eth", "forecast", "--rpc", &closed_url()], &stopped[..]].concat());
    assert_eq!((output.code, output.stdout.as_str()), (BAD_INPUT, ""), "{}", output.stderr);
}
