//! Tests of `eth audit --rpc` and `eth scan --rpc` against providers of every kind.
//!
//! The blocks are mainnet's; a local server simulates the providers. No run may print a secret part
//! of the URL.

mod audit;
pub(crate) mod chain;
mod decoded;
mod follow;
mod hashes;
mod honest;
mod hostile;
mod light_client;
mod limits;
mod numbers;
mod scan;
pub(crate) mod server;
mod two;

use super::*;
use chain::Chain;
use server::{Answer, Post, Sent, Server, error, replies};

/// Text that must never be printed.
const SECRET: &str = "S3CR3T-k3y-0f-th3-us3r-";

/// Returns a provider that answers call by call. If `lie` returns `None`, the provider sends the
/// true answer.
pub(crate) fn provider(
    chain: Chain,
    lie: impl Fn(&Chain, &str, &Value) -> Option<Answer> + Send + Sync + 'static,
) -> Server {
    Server::start(move |post| {
        let answer = |method: &str, params: &Value| {
            lie(&chain, method, params).unwrap_or_else(|| chain.answer(method, params))
        };
        Sent::Json(replies(&post.body, answer))
    })
}

fn honest(chain: Chain) -> Server {
    provider(chain, |_, _, _| None)
}

/// Returns an honest provider of both real blocks.
pub(crate) fn honest_provider() -> Server {
    honest(Chain::real_and(0))
}

/// Runs a command, and checks that it prints no secret.
fn discreet(args: &[&str]) -> Output {
    let output = run(args);
    for printed in [&output.stdout, &output.stderr] {
        assert!(!printed.contains(SECRET), "{printed}");
        assert!(!printed.contains("/v3/"), "{printed}");
    }
    output
}

/// Returns the arguments of an audit of the query over the two real blocks.
fn audit_args<'a>(urls: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["eth", "audit"];
    args.extend(urls.iter().flat_map(|url| ["--rpc", url.as_str()]));
    args.extend(QUERY);
    args.extend(["--from", "17686111", "--to", "17686112"]);
    if !more.contains(&"--retries") {
        args.extend(["--retries", "1"]);
    }
    args.extend(more);
    args
}

/// Runs an audit with `--json`, and returns its report.
fn audit(servers: &[&Server], more: &[&str], code: i32) -> Value {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let output = discreet(&audit_args(&urls, &[more, &["--json"]].concat()));
    assert_eq!(output.code, code, "{more:?}: {}", output.stderr);
    serde_json::from_str(&output.stdout).expect("--json prints JSON")
}

/// Runs an audit that must fail with an error that contains each of `words`.
fn audit_fails(server: &Server, more: &[&str], code: i32, words: &[&str]) {
    let urls = [server.url()];
    let output = discreet(&audit_args(&urls, more));
    assert_eq!(output.code, code, "{}{}", output.stderr, output.stdout);
    assert_eq!(output.stdout, "");
    for word in words {
        assert!(output.stderr.contains(word), "{word:?} is not in {}", output.stderr);
    }
}

fn kinds(json: &Value) -> Vec<&str> {
    json["findings"].as_array().expect("findings").iter().map(|f| text(&f["kind"])).collect()
}

/// Returns the hash of the second real block.
pub(crate) fn anchor() -> String {
    Block::read(SECOND).hash
}
