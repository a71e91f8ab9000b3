//! The command `eth anchor header`: links one block to the newest finalised block.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::anchor::header_proof::{HeaderProof, History};
use chainsieve::eth::anchor::links::{Anchored, LinkProblem, Origin};
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync_committee::LightClient;
use chainsieve::eth::files::{HistoryReader, Input};
use chainsieve_provider::{BeaconClient, BeaconError, LinkOptions, LinkedBlock};
use chainsieve_report::{
    Exit, Page, Reader, Report, UsageError, as_text, check_overwrite, grouped, named, write,
};
use serde_json::json;

use super::client::{self, builder, data_folder, in_words};
use crate::args::eth::HeaderAnchorArgs;
use crate::eth;
use crate::eth::headers::Headers;
use crate::exit::stop_on_signals;

/// The kind of the argument.
enum Wanted {
    Number(u64),
    Header { number: u64, hash: B256 },
    Links(Box<LinkedBlock>),
}

/// A verdict about a block.
struct Verdict {
    exit: Exit,
    /// The reason, unless the block is proven.
    why: Option<String>,
    number: Option<u64>,
    shown: Option<Anchored>,
    /// The links, which lead to the block.
    links: Option<LinkedBlock>,
}

pub(super) fn run(args: &HeaderAnchorArgs) -> anyhow::Result<Report> {
    let network = super::network(&args.beacon.network)?;
    let wanted = wanted(&args.block)?;
    if let Some(out) = &args.out {
        check_overwrite(out, args.overwrite.force)?;
    }
    let beacon = light_client(args, network)?;
    let failures = client::advance(&beacon)?;
    let light_client = beacon.light_client().ok_or(UsageError(
        "there is no light client yet: give --beacon, or --data of `eth anchor sync`",
    ))?;
    let (verdict, expected) = match wanted {
        Wanted::Links(linked) => (recheck(&linked, &light_client), None),
        Wanted::Number(number) => (link(args, &beacon, light_client.network(), number)?, None),
        Wanted::Header { number, hash } => {
            let verdict = link(args, &beacon, light_client.network(), number)?;
            (compare(verdict, hash), Some(hash))
        }
    };
    let out = verdict.links.as_ref().filter(|_| verdict.exit == Exit::Yes).zip(args.out.as_ref());
    if let Some((links, out)) = out {
        write(out, &serde_json::to_vec(links)?, args.overwrite.force)?;
    }
    let out = out.map(|(_, out)| out.as_path());
    report(&verdict, expected, &light_client, failures, out)
}

/// Reads the argument: a number, links, or a header.
fn wanted(argument: &str) -> anyhow::Result<Wanted> {
    if let Ok(number) = argument.replace([',', '_'], "").parse() {
        return Ok(Wanted::Number(number));
    }
    if Path::new(argument).is_file() {
        let bytes = Reader::default().raw(argument, "block")?.bytes;
        let links = as_text(&bytes).filter(|text| text.contains("\"links\""));
        if let Some(links) = links {
            let linked = serde_json::from_str(links);
            let linked = linked.with_context(|| format!("links, {argument}"))?;
            return Ok(Wanted::Links(Box::new(linked)));
        }
    }
    let arguments = [argument.to_owned()];
    let mut headers = Headers::new(&arguments, None);
    let mut found = None;
    while let Some(batch) = headers.next_batch()? {
        for header in batch.headers() {
            let (_, header) = header?;
            if found.replace((header.number(), header.hash())).is_some() {
                bail!("{argument}: more than one header; give the last one of a chain");
            }
        }
    }
    let (number, hash) = found.with_context(|| format!("{argument}: no header"))?;
    Ok(Wanted::Header { number, hash })
}

fn light_client(args: &HeaderAnchorArgs, network: Network) -> anyhow::Result<BeaconClient> {
    let beacon = &args.beacon;
    // A checkpoint alone needs no folder.
    let folder = if beacon.checkpoint.checkpoint.is_some() && beacon.data.is_none() {
        None
    } else {
        Some(data_folder(beacon.data.as_ref(), &network)?)
    };
    let limits = (args.rpc.timeout, args.rpc.retries);
    let stop = stop_on_signals()?;
    builder(beacon, network, folder, limits, stop)?.build().map_err(in_words)
}

/// Links a block to the newest finalised block.
fn link(
    args: &HeaderAnchorArgs,
    beacon: &BeaconClient,
    network: &Network,
    number: u64,
) -> anyhow::Result<Verdict> {
    if !args.rpc.is_given() {
        return Err(UsageError("--rpc is missing: give the URL of a provider of headers").into());
    }
    let (builder, _) = eth::builder(&args.rpc, args.rpc.endpoints(&[])?, stop_on_signals()?);
    let provider = builder.build()?;
    let history = network.history();
    let mut find = |number, accept: &mut dyn FnMut(Bytes, HeaderProof) -> bool| {
        find_proof(&args.archive, number, &history, accept)
    };
    let mut options = LinkOptions::new(provider.nodes());
    options.max_headers = args.max_headers;
    if !args.archive.is_empty() {
        options.proofs = Some(&mut find);
    }
    let linked = beacon.link(number, options);
    let number = Some(number);
    let why = match linked {
        Ok((shown, linked)) => {
            let (shown, links) = (Some(shown), Some(linked));
            return Ok(Verdict { exit: Exit::Yes, why: None, number, shown, links });
        }
        Err(error @ BeaconError::TooManyHeaders { .. }) => {
            format!("{error}: --max-headers raises the limit")
        }
        Err(error @ (BeaconError::NotFinal { .. } | BeaconError::Unreachable { .. })) => {
            error.to_string()
        }
        Err(error) => return Err(in_words(error)),
    };
    Ok(Verdict { exit: Exit::Undecided, why: Some(why), number, shown: None, links: None })
}

/// Offers the headers and proofs of ere archives for a block, until a header and a proof are
/// accepted.
fn find_proof(
    archives: &[PathBuf],
    number: u64,
    history: &History,
    accept: &mut dyn FnMut(Bytes, HeaderProof) -> bool,
) -> Result<(), String> {
    let mut failed = None;
    for path in archives {
        match find_in(path, number, history.clone()) {
            Ok(Some((header, proof))) => {
                if accept(header, proof) {
                    return Ok(());
                }
            }
            // Another archive may have the block.
            Ok(None) => {}
            Err(error) => failed = failed.or(Some(format!("{}: {error:#}", named(path)))),
        }
    }
    failed.map_or(Ok(()), Err)
}

fn find_in(
    path: &Path,
    number: u64,
    history: History,
) -> anyhow::Result<Option<(Bytes, HeaderProof)>> {
    let input = Input::seekable(File::open(path)?)?;
    Ok(HistoryReader::new(input, history).find(number)?)
}

/// Compares the block that is shown with the header of the argument.
fn compare(verdict: Verdict, hash: B256) -> Verdict {
    match &verdict.shown {
        Some(shown) if shown.hash != hash => {
            let why = format!(
                "the chain has block {}, but the given header is that of block {hash}",
                shown.hash
            );
            Verdict { exit: Exit::Wrong, why: Some(why), ..verdict }
        }
        _ => verdict,
    }
}

/// Verifies links that someone else wrote, from the state of this light client.
fn recheck(linked: &LinkedBlock, client: &LightClient) -> Verdict {
    let own = Origin::from(client.finalized());
    let verdict = |exit, why, shown: Option<Anchored>| {
        let number = shown.as_ref().and_then(|shown| shown.number);
        Verdict { exit, why, number, shown, links: None }
    };
    // Nothing of the file's origin is believed. It only tells from where its links start.
    let starts = (linked.origin.block_hash, linked.origin.beacon_state);
    if starts != (own.block_hash, own.beacon_state) {
        let hash = |hash: Option<B256>| hash.map_or("none".into(), |hash| hash.to_string());
        let why = format!(
            "the links start from the finalised block {}, but the light client has {}",
            hash(linked.origin.block_hash),
            hash(own.block_hash)
        );
        return verdict(Exit::Undecided, Some(why), None);
    }
    match linked.verify(&own, client.network()) {
        Ok(shown) => verdict(Exit::Yes, None, Some(shown)),
        Err(error) => {
            let exit = if is_undecidable(&error.problem) { Exit::Undecided } else { Exit::Wrong };
            verdict(exit, Some(error.to_string()), None)
        }
    }
}

/// Returns `true` if the links may be valid, but data that they need is missing.
fn is_undecidable(problem: &LinkProblem) -> bool {
    match problem {
        LinkProblem::NoBlock | LinkProblem::NoBeaconState => true,
        LinkProblem::HeaderProof(error) => error.is_undecidable(),
        _ => false,
    }
}

fn report(
    verdict: &Verdict,
    expected: Option<B256>,
    client: &LightClient,
    failures: Vec<String>,
    out: Option<&Path>,
) -> anyhow::Result<Report> {
    let now = super::now(None)?;
    let mut warnings = client::warnings(client, now);
    warnings.extend(failures);
    let status = verdict.exit.verdict("proven");
    let mut page = Page::default();
    page.heading(match (&verdict.why, verdict.number) {
        (Some(why), _) => format!("{status}: {why}"),
        (None, Some(number)) => format!("{status}: block {} is on the chain", grouped(number)),
        (None, None) => status.to_owned(),
    });
    let by: Vec<String> =
        verdict.shown.iter().flat_map(|shown| shown.by.iter().map(ToString::to_string)).collect();
    let evidence = verdict
        .links
        .as_ref()
        .map(|linked| serde_json::to_vec(&linked.links).map(|json| json.len()).unwrap_or_default());
    let mut fields = Vec::new();
    if let Some(shown) = &verdict.shown {
        fields.extend([
            ("hash", shown.hash.to_string()),
            ("links", if by.is_empty() { "none needed".into() } else { by.join(", then ") }),
            ("grade", shown.grade.name().to_owned()),
        ]);
    }
    if let Some(bytes) = evidence {
        fields.push(("evidence", format!("{} bytes of JSON", grouped(bytes))));
    }
    if let Some(out) = out {
        fields.push(("written to", out.display().to_string()));
    }
    page.fields(fields);
    page.line("");
    page.line("The light client:");
    page.fields(client::fields(client));
    let mut json = json!({
        "status": status,
        "why": verdict.why,
        "number": verdict.number,
        "hash": verdict.shown.as_ref().map(|shown| shown.hash),
        "grade": verdict.shown.as_ref().map(|shown| shown.grade),
        "by": by,
        "expected": expected,
        "evidence": evidence,
        "out": out,
    });
    if let (Some(own), serde_json::Value::Object(members)) =
        (json.as_object_mut(), client::json(client, now))
    {
        own.extend(members);
    }
    Ok(Report::new(page, json, verdict.exit).with_warnings(warnings))
}
