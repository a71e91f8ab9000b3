//! Audits of two providers at once.

use super::*;

#[test]
fn the_one_that_omits_is_told_from_the_one_that_does_not() {
    let first = honest(Chain::real_and(0));
    let second = provider(Chain::real_and(0), |_, method, _| {
        (method == "eth_getLogs").then(|| Ok(json!(answer()[1..])))
    });
    for (servers, liar) in [([&first, &second], 1), ([&second, &first], 0)] {
        let json = audit(&servers, &["--anchor", &anchor()], WRONG);
        assert_eq!(json["status"], "wrong");
        assert_eq!(json["anchor_agreed"], true);
        for (index, letter) in ["A", "B"].into_iter().enumerate() {
            let audit = &json["audits"][index];
            assert_eq!(audit["provider"]["name"], letter);
            assert_eq!(audit["provider"]["host"], json!(servers[index].host()));
            let status = if index == liar { "wrong" } else { "complete" };
            assert_eq!(audit["status"], status, "{letter}");
            let found: Vec<_> = audit["findings"].as_array().into_iter().flatten().collect();
            assert_eq!(found.len(), usize::from(index == liar));
            for finding in found {
                assert_eq!(finding["provider"], letter);
                assert_eq!(finding["kind"], "omitted_log");
            }
        }
        let [only_honest, only_liar] =
            if liar == 1 { ["only_a", "only_b"] } else { ["only_b", "only_a"] };
        assert_eq!(json["compared"]["same"], false);
        assert_eq!(json["compared"][only_honest].as_array().map(Vec::len), Some(1));
        assert_eq!(json["compared"][only_honest][0]["logIndex"], answer()[0]["logIndex"]);
        assert_eq!(json["compared"][only_liar], json!([]));
    }
    let urls = [first.url(), second.url()];
    let page = discreet(&audit_args(&urls, &["--anchor", &anchor()])).stdout;
    assert!(
        page.contains("A and B return different logs: 1 log only from A, 0 logs only from B"),
        "{page}"
    );
    assert!(page.contains("17686111  B         omitted"), "{page}");
}

/// Returns a provider that has not all receipts of any block.
fn without_receipts() -> Server {
    provider(Chain::real_and(0), |chain, method, params| {
        if method == "eth_getTransactionReceipt" {
            return Some(Err(error(-32601, "method not found")));
        }
        (method == "eth_getBlockReceipts").then(|| {
            let receipts = chain.answer(method, params)?;
            Ok(json!(receipts.as_array().expect("a list")[1..]))
        })
    })
}

/// A pipe can be read only once, and both audits need what it has.
#[test]
fn receipts_from_a_pipe_serve_both_audits() {
    let case = super::super::audit::Case::new("pipe-of-two");
    let receipts = fs::read(case.receipts.path()).expect("receipts");
    let servers = [without_receipts(), without_receipts()];
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let args = audit_args(&urls, &["--anchor", &case.anchor, "--receipts", "-", "--json"]);
    let output = run_with(&args, &receipts);
    assert_eq!(output.code, YES, "{}{}", output.stdout, output.stderr);
}

#[test]
fn receipts_that_one_has_not_come_from_the_other() {
    let (first, second) = (without_receipts(), honest(Chain::real_and(0)));
    let json = audit(&[&first, &second], &["--anchor", &anchor()], YES);
    assert_eq!(json["providers"][0]["receipts_of_blocks"], 0);
    assert_eq!(json["providers"][1]["receipts_of_blocks"], 2);
    assert_eq!(json["compared"], json!({ "same": true, "only_a": [], "only_b": [] }));
    let both =
        audit(&[&without_receipts(), &without_receipts()], &["--anchor", &anchor()], UNDECIDED);
    assert_eq!(both["status"], "undecided");
    assert_eq!(both["audits"][1]["wanted"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_chain_comes_from_the_one_that_has_the_anchor() {
    let mut other = Chain::real_and(0);
    let stranger = chain::child(&other.blocks[0], "another");
    other.blocks[1] = stranger;
    let other = provider(other, |_, _, _| None);
    let right = honest(Chain::real_and(0));
    let json = audit(&[&other, &right], &["--anchor", &anchor()], WRONG);
    assert_eq!(json["anchored_to"], 17_686_112);
    assert_eq!(json["audits"][1]["status"], "complete");
    assert_eq!(json["audits"][0]["status"], "wrong");
    assert_eq!(json["anchor_agreed"], false);
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains("does not contain the anchor"), "{warnings}");
    assert!(warnings.contains("has another block 17686112"), "{warnings}");
    // Without an anchor, the report names the provider that claims the chain.
    let json = audit(&[&right, &other], &[], UNDECIDED);
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains(&format!("only {} claims", right.host())), "{warnings}");
    let json = audit(&[&right, &honest(Chain::real_and(0))], &[], YES);
    assert!(json["warnings"].to_string().contains("both providers claim"), "{json}");
}

#[test]
fn providers_of_two_chains_are_refused() {
    let first = honest(Chain::real_and(0));
    let second = provider(Chain::real_and(0), |_, method, _| {
        (method == "eth_chainId").then(|| Ok(json!("0xaa36a7")))
    });
    let urls = [first.url(), second.url()];
    let output = discreet(&audit_args(&urls, &[]));
    assert_eq!((output.code, output.stdout.as_str()), (BAD_INPUT, ""));
    assert!(
        output.stderr.contains("two different chains, with ids 1 and 11155111"),
        "{}",
        output.stderr
    );
}

/// Headers for one provider are not sent to the other.
#[test]
fn each_provider_gets_its_own_headers() {
    let needs = |line: String, not: String| {
        let chain = Chain::real_and(0);
        Server::start(move |post| {
            let head = post.head.to_ascii_lowercase();
            if !head.contains(&line.to_ascii_lowercase())
                || head.contains(&not.to_ascii_lowercase())
            {
                return Sent::Status(403, "", String::new());
            }
            Sent::Json(replies(&post.body, |method, params| chain.answer(method, params)))
        })
    };
    let (one, two) = (format!("X-One: {SECRET}5"), format!("X-Two: {SECRET}6"));
    let first = needs(one.clone(), "x-two".into());
    let second = needs(two.clone(), "x-one".into());
    let more = ["--anchor", &anchor(), "--rpc-header", &one, "--rpc2-header", &two];
    audit(&[&first, &second], &more, YES);
}
