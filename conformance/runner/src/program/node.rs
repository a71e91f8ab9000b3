//! `serve-node` and `audit-node`.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail, ensure};
use chainsieve::btc::server::ServedChain;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve_conformance::audit::{self, AuditReport};
use chainsieve_conformance::serve::{self, Lie, Protocol, StartError, bitcoin, ethereum};
use chainsieve_provider::{Endpoint, Provider, Stop};
use chainsieve_report::args::network_name;
use chainsieve_report::blocks::{self, SourcedBlock};
use chainsieve_report::{
    Exit, Lines, Page, Progress, Report, UsageError, count, grouped, json_line, named, on_signals,
    plain_or_quoted, print_log, print_note,
};
use serde_json::{Value, json};

use crate::args::{AuditNodeArgs, ServeNodeArgs};

/// Interval at which `serve-node` looks for further lies.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) fn serve(args: &ServeNodeArgs, json: bool) -> anyhow::Result<Report> {
    if args.list {
        return list(json);
    }
    let lie = args.lie.as_deref().map(|id| serve::find(id).ok_or(NO_SUCH_LIE)).transpose()?;
    if !args.listen.ip().is_loopback() {
        bail!(UsageError(
            "--listen: a node that may lie listens on an address of this machine only"
        ));
    }
    let of_ethereum = args.ethereum || args.upstream.is_some();
    let of_bitcoin = args.bitcoin || args.blocks.is_some();
    let protocol = match lie.map(|lie| lie.protocol) {
        Some(Protocol::BitcoinP2p) if of_ethereum => bail!(OTHER_PROTOCOL),
        Some(Protocol::EthereumJsonRpc) if of_bitcoin => bail!(OTHER_PROTOCOL),
        Some(protocol) => protocol,
        None if of_ethereum => Protocol::EthereumJsonRpc,
        None => Protocol::BitcoinP2p,
    };
    let stop = stop_on_signals()?;
    let mut log = Log { json, lines: Lines::default(), told: 0 };
    match protocol {
        Protocol::BitcoinP2p => serve_bitcoin(args, lie, &stop, &mut log),
        _ => serve_ethereum(args, lie, &stop, &mut log),
    }
}

const NO_SUCH_LIE: UsageError = UsageError("--lie: no lie has this id: --list names the lies");
const OTHER_PROTOCOL: UsageError = UsageError("--lie: the lie is one of the other protocol");

/// Lists the lies.
fn list(json: bool) -> anyhow::Result<Report> {
    let mut lines = Lines::default();
    let mut page = Page::default();
    let mut rows = Vec::new();
    for lie in serve::lies() {
        let Ok(members) = serde_json::to_value(lie) else { continue };
        let verdict = members["expected"]["verdict"].as_str().unwrap_or_default().to_owned();
        if json {
            lines.print(&json_line("lie", members))?;
        }
        rows.push(vec![lie.id.to_owned(), verdict, lie.title.to_owned()]);
    }
    let lies = rows.len();
    page.table(vec!["id", "a correct client", "lie"], rows);
    Ok(Report::new(page, json!({ "lies": lies }), Exit::Yes).after_lines())
}

/// Prints the lines of a running node.
struct Log {
    json: bool,
    lines: Lines,
    /// Number of lies that were reported so far.
    told: u32,
}

impl Log {
    /// Prints that the node listens, on standard output in both formats: a test waits for this line.
    fn listening(&mut self, address: SocketAddr, lie: Option<&Lie>, what: &str, members: Value) {
        let lies = lie.map_or("an honest node".into(), |lie| format!("{}: {}", lie.id, lie.title));
        let text = format!("listening at {address}: {what}, {lies}\n");
        let expected = lie.map(|lie| lie.expected.by);
        let mut line = json!({ "address": address.to_string(), "lie": lie });
        if let (Some(line), Value::Object(members)) = (line.as_object_mut(), members) {
            line.extend(members);
        }
        let text = if self.json { json_line("listening", line) } else { text };
        // The node goes on without a reader of its log.
        drop(self.lines.print(&text));
        if let Some(by) = expected.filter(|_| !self.json) {
            print_note(&format!("the lie is revealed by {by}"));
        }
    }

    /// Prints that the lie was told, if it was told again.
    fn told(&mut self, count: u32) {
        if count == self.told {
            return;
        }
        self.told = count;
        if self.json {
            drop(self.lines.print(&json_line("told", json!({ "count": count }))));
        } else {
            print_log(&format!("the lie was told {} so far", times(count)));
        }
    }

    fn warning(&mut self, text: &str) {
        if self.json {
            drop(self.lines.print(&json_line("warning", json!({ "text": text }))));
        } else {
            print_log(&format!("warning: {text}"));
        }
    }
}

fn times(number: u32) -> String {
    count(number, "time")
}

fn serve_bitcoin(
    args: &ServeNodeArgs,
    lie: Option<&Lie>,
    stop: &Stop,
    log: &mut Log,
) -> anyhow::Result<Report> {
    let mut builder = bitcoin::LyingNode::builder().listen(args.listen);
    if let Some(lie) = lie {
        builder = builder.lie(lie.id)?;
    }
    let mut scripts = bitcoin::known_scripts();
    if let (Some(blocks), Some(network)) = (&args.blocks, args.network) {
        let mut chain = ServedChain::new(network, true);
        for warning in chain_of_folder(blocks, &mut chain)? {
            log.warning(&warning);
        }
        scripts.clear();
        builder = builder.chain(chain);
    }
    let node = builder.start().map_err(|error| cannot_listen(args.listen, error))?;
    let (network, blocks) = {
        let chain = node.node().chain();
        (network_name(chain.network()), chain.len())
    };
    let members = json!({
        "protocol": Protocol::BitcoinP2p,
        "network": network,
        "blocks": blocks,
        "scripts": scripts,
    });
    let what = format!("{network}, {}", count(blocks, "block"));
    log.listening(node.address(), lie, &what, members);
    for known in scripts.iter().filter(|_| !log.json) {
        print_note(&format!("payments to {}, {}, key {}", known.address, known.kind, known.wif));
    }
    while !stop.wait_timeout(LOOK) {
        log.told(node.told());
    }
    let connections = node.node().connections();
    Ok(summary(("connections", connections), node.told()))
}

/// Adds all blocks of a folder to a chain. Returns warnings about damaged files and invalid blocks.
fn chain_of_folder(folder: &Path, chain: &mut ServedChain) -> anyhow::Result<Vec<String>> {
    ensure!(folder.is_dir(), "{}: not a folder", named(folder));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut warnings = Vec::new();
    for (path, _) in blocks::files(folder).with_context(|| named(folder))? {
        let read =
            blocks::for_each_block_of(&path, |SourcedBlock { block, prevout_scripts, .. }| {
                let errors = chain.add_block(block, prevout_scripts, now).errors;
                warnings.extend(errors.iter().map(ToString::to_string));
                Ok(())
            });
        if let Err(error) = read {
            warnings.push(format!("damaged or truncated file: {error:#}"));
        }
    }
    if let Some((waiting, missing)) = chain.waiting() {
        let blocks = count(waiting, "block");
        warnings.push(format!("{blocks} not served: block {missing} is not in the folder"));
    }
    Ok(warnings)
}

/// Returns a handle that Ctrl-C, SIGTERM and SIGHUP set.
pub(crate) fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new();
    let set = stop.clone();
    on_signals(move || set.set())?;
    Ok(stop)
}

fn serve_ethereum(
    args: &ServeNodeArgs,
    lie: Option<&Lie>,
    stop: &Stop,
    log: &mut Log,
) -> anyhow::Result<Report> {
    let mut builder = ethereum::LyingNode::builder().listen(args.listen);
    if let Some(lie) = lie {
        builder = builder.lie(lie.id)?;
    }
    let mut what = format!("blocks {} to {} of mainnet", ethereum::FIRST, ethereum::LAST);
    if let Some(url) = &args.upstream {
        let endpoint = Endpoint::new(&url.0).map_err(|error| UsageError(error.as_str()));
        what = format!("the blocks of {}", endpoint.context("--upstream")?);
        builder = builder.upstream(&url.0);
    }
    let node = builder.start().map_err(|error| cannot_listen(args.listen, error))?;
    let protocol = Protocol::EthereumJsonRpc;
    let members = json!({ "protocol": protocol, "upstream": args.upstream.is_some() });
    log.listening(node.address(), lie, &what, members);
    while !stop.wait_timeout(LOOK) {
        log.told(node.told());
    }
    Ok(summary(("calls", node.num_calls() as u64), node.told()))
}

fn cannot_listen(address: SocketAddr, error: StartError) -> anyhow::Error {
    anyhow!(error).context(format!("the node at {address}"))
}

fn summary((name, number): (&'static str, u64), told: u32) -> Report {
    let mut page = Page::default();
    page.fields(vec![(name, grouped(number)), ("lie told", times(told))]);
    let mut json = json!({ "told": told });
    json[name] = json!(number);
    Report::new(page, json, Exit::Yes).after_lines()
}

pub(crate) fn audit(args: &AuditNodeArgs) -> anyhow::Result<Report> {
    let provider = if let Some(url) = &args.ethereum {
        let url = url.or_of_file("--ethereum")?;
        Some(provider(args, Endpoint::new(&url), "--ethereum")?)
    } else if let Some(url) = &args.bitcoin_rpc {
        let url = with_credentials(url.or_of_file("--bitcoin-rpc")?.trim(), credentials(args)?);
        Some(provider(args, Endpoint::new(&url), "--bitcoin-rpc")?)
    } else {
        None
    };
    let node = provider.as_ref().map(|provider| &provider.nodes()[0]);
    let range = match (args.last, args.from.zip(args.to), node) {
        (Some(count), _, Some(node)) => {
            let last = if args.ethereum.is_some() {
                audit::ethereum::last_block(node)?
            } else {
                audit::bitcoin::last_block(node)?
            };
            last.saturating_sub(count - 1)..=last
        }
        (_, Some((from, to)), _) => from..=to,
        _ => bail!(UsageError("--from and --to, or --last, are missing")),
    };
    if range.is_empty() {
        bail!(UsageError("--from is after --to"));
    }
    let total = (range.end() - range.start()).saturating_add(1);
    let bar = Progress::counting(total, "blocks");
    let progress = |done| bar.at(done);
    let report = match (node, &args.bitcoin_p2p, args.assume_bloom) {
        (None, Some(peer), _) => {
            let network = args.network.ok_or(UsageError("--network is missing"))?;
            let mut addresses = peer.to_socket_addrs().with_context(|| format!("peer {peer}"))?;
            let address = addresses.next().ok_or_else(|| anyhow!("peer {peer}: no address"))?;
            let timeout = Duration::from_secs(args.timeout);
            audit::bitcoin::audit_peer(address, network, range, timeout, progress)
        }
        (Some(node), _, _) if args.ethereum.is_none() => {
            audit::bitcoin::audit_rpc(node, range, progress)
        }
        (Some(node), _, Some(bloom)) => {
            let profile = ChainProfile::assumed("assumed", bloom, args.assume_receipts);
            audit::ethereum::audit_node_of(node, &profile, range, progress)
        }
        (Some(node), _, None) => audit::ethereum::audit_node(node, range, progress),
        (None, None, _) => bail!(UsageError("no node is given")),
    };
    drop(bar);
    Ok(shown(&report?))
}

/// Returns a provider of one node. No error contains its URL, which may contain a key.
fn provider(
    args: &AuditNodeArgs,
    endpoint: Result<Endpoint, chainsieve_provider::EndpointError>,
    option: &'static str,
) -> anyhow::Result<Provider> {
    let endpoint = endpoint.map_err(|error| UsageError(error.as_str())).context(option)?;
    let builder = Provider::builder()
        .trust_head()
        .endpoint(endpoint)
        .timeout(Duration::from_secs(args.timeout))
        .retries(args.retries)
        .stop(stop_on_signals()?);
    Ok(builder.build()?)
}

/// Returns the user and the password of Bitcoin Core's JSON-RPC.
fn credentials(args: &AuditNodeArgs) -> anyhow::Result<Option<(String, String)>> {
    let read = |path: &Path| {
        let text = fs::read_to_string(path).with_context(|| named(path))?;
        Ok::<_, anyhow::Error>(text.trim_end_matches(['\r', '\n']).to_owned())
    };
    if let Some(path) = &args.cookie {
        let text = read(path)?;
        let (user, password) = text
            .split_once(':')
            .with_context(|| format!("{}: a cookie is USER:PASSWORD", named(path)))?;
        return Ok(Some((user.to_owned(), password.to_owned())));
    }
    match (&args.user, &args.password_file) {
        (Some(user), Some(path)) => Ok(Some((user.clone(), read(path)?))),
        _ => Ok(None),
    }
}

/// Adds credentials to a URL, from which the provider makes a header.
fn with_credentials(url: &str, credentials: Option<(String, String)>) -> String {
    let (Some((user, password)), Some((scheme, rest))) = (credentials, url.split_once("://"))
    else {
        return url.to_owned();
    };
    let mut with = format!("{scheme}://");
    for (part, end) in [(user, ':'), (password, '@')] {
        // All bytes are escaped, since any of them may have a meaning in a URL.
        for digits in hex::encode(part).as_bytes().chunks(2) {
            with.push('%');
            with.extend(digits.iter().map(|digit| char::from(*digit)));
        }
        with.push(end);
    }
    with + rest
}

/// Maximum number of differences in the table for people.
const ROWS: usize = 20;

fn shown(report: &AuditReport) -> Report {
    let (status, exit) = match (report.differences.is_empty(), report.undecided) {
        (false, _) => ("differs", Exit::Wrong),
        (true, 0) => ("agrees", Exit::Yes),
        (true, _) => ("undecided", Exit::Undecided),
    };
    let mut page = Page::default();
    page.fields(vec![
        ("status", status.into()),
        ("blocks", format!("{}, {} to {}", grouped(report.blocks), report.from, report.to)),
        ("undecided", count(report.undecided, "comparison")),
    ]);
    page.line("");
    let rows = report.checks.iter().map(|(rule, checks)| {
        let broken = report.differences.iter().filter(|difference| difference.rule == *rule);
        vec![(*rule).to_owned(), grouped(*checks), grouped(broken.count())]
    });
    page.table(vec!["rule", "comparisons", "distinct differences"], rows.collect());
    for difference in report.differences.iter().take(ROWS) {
        page.line("");
        let mut fields = vec![
            ("rule", difference.rule.to_owned()),
            ("block", grouped(difference.block)),
            ("what", difference.what.clone()),
            ("expected", cut(&difference.expected)),
            ("got", cut(&difference.got)),
        ];
        fields.extend(difference.query.as_ref().map(|query| ("query", query.to_string())));
        page.fields(fields);
    }
    for text in report.why_undecided.iter().chain(&report.notes) {
        page.line("");
        page.line(text.clone());
    }
    let mut json = json!({ "status": status });
    if let (Some(json), Ok(Value::Object(members))) =
        (json.as_object_mut(), serde_json::to_value(report))
    {
        json.extend(members);
    }
    Report::new(page, json, exit)
}

/// Cuts a long value, such as a filter, for people; the JSON has the whole value.
fn cut(value: &str) -> String {
    /// Maximum number of characters that are shown.
    const LONGEST: usize = 200;
    match value.char_indices().nth(LONGEST) {
        Some((end, _)) => {
            format!("{}… ({})", plain_or_quoted(&value[..end]), count(value.len(), "character"))
        }
        None => plain_or_quoted(value).into_owned(),
    }
}
