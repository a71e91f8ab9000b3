//! The `eth` commands, and their providers: their flags, built from them with progress bars and
//! notes on standard error, and with errors that name the flags.

pub(crate) mod anchor;
pub(crate) mod audit;
pub(crate) mod certificate;
pub(crate) mod chart;
pub(crate) mod follow;
pub(crate) mod forecast;
pub(crate) mod header;
pub(crate) mod headers;
pub(crate) mod index;
pub(crate) mod query;
pub(crate) mod receipts;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod stats;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::follow::FollowNote;
use chainsieve_provider::{Builder, Endpoint, FetchError, Note, Provider, RpcError, Stop, Warning};
use chainsieve_report::args::{self, Secret};
use chainsieve_report::{Progress, UsageError, bytes, count, duration, grouped, print_note};
use clap::Args;

use crate::exit::of_fetch;
use query::QueryArgs;

/// A provider, and the limits of requests to it.
#[derive(Debug, Args)]
#[command(next_help_heading = "The provider")]
pub(crate) struct RpcArgs {
    /// The URL of a node's JSON-RPC (http or https), or @FILE that contains it
    ///
    /// URLs are secrets: only the host is ever shown. Requests use the proxy of the environment, if
    /// there is one, except requests to this machine.
    ///
    /// [default: the environment variable `ETH_RPC_URL`, unless headers are given]
    #[arg(long, value_name = "URL")]
    pub(crate) rpc: Vec<Secret>,
    /// An HTTP header for the provider, 'Name: value'
    ///
    /// The header is never shown. May be given again
    #[arg(long, value_name = "HEADER", requires = "rpc")]
    pub(crate) rpc_header: Vec<Secret>,
    /// Seconds to wait for a response
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = args::count(1..=3600_u64),
        hide_short_help = true
    )]
    pub(crate) timeout: u64,
    /// Number of times that a failed request is retried, with increasing waits
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 5,
        value_parser = args::count(0..=100_u32),
        hide_short_help = true
    )]
    pub(crate) retries: u32,
    /// Maximum number of calls in one batch request; fewer if the provider accepts fewer
    #[arg(
        long,
        value_name = "CALLS",
        default_value_t = 100,
        value_parser = args::count(1..=1_000_usize),
        hide_short_help = true
    )]
    pub(crate) batch: usize,
    /// Number of requests in flight at the same time; a response may have at most 256 MiB
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 4,
        value_parser = args::count(1..=64_usize),
        hide_short_help = true
    )]
    pub(crate) parallel: usize,
    /// Maximum number of blocks in one eth_getLogs [default: learnt from the provider]
    #[arg(long, value_name = "BLOCKS", value_parser = args::count(1..=u64::MAX), hide_short_help = true)]
    pub(crate) rpc_log_range: Option<u64>,
}

impl RpcArgs {
    /// Returns `true` if a provider was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.rpc.is_empty()
    }

    /// Returns the provider of a command that takes exactly one.
    pub(crate) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        match self.rpc.as_slice() {
            [] => bail!(MISSING),
            [url] => with_headers(url, &self.rpc_header),
            _ => bail!(UsageError("--rpc is given more than once")),
        }
    }

    /// Returns any number of providers. HTTP headers may be given only if there is one provider,
    /// because the key of one provider must not reach another.
    pub(crate) fn any_number(&self) -> anyhow::Result<Vec<Endpoint>> {
        match self.rpc.as_slice() {
            [] => bail!(MISSING),
            [_] => Ok(vec![self.endpoint()?]),
            _ if !self.rpc_header.is_empty() => {
                bail!(UsageError(
                    "--rpc-header with more than one --rpc: the header would be sent to each provider"
                ))
            }
            urls => urls.iter().map(|url| with_headers(url, &[])).collect(),
        }
    }

    /// Returns one provider or two; `headers_of_second` are the HTTP headers of the second
    /// provider.
    pub(crate) fn endpoints(&self, headers_of_second: &[Secret]) -> anyhow::Result<Vec<Endpoint>> {
        match self.rpc.as_slice() {
            [] => bail!(MISSING),
            [_] if !headers_of_second.is_empty() => {
                bail!(UsageError("--rpc2-header without a second --rpc"))
            }
            [_] => Ok(vec![self.endpoint()?]),
            [first, second] => Ok(vec![
                with_headers(first, &self.rpc_header)?,
                with_headers(second, headers_of_second)?,
            ]),
            _ => bail!(UsageError("--rpc is given more than twice")),
        }
    }
}

const MISSING: UsageError = UsageError("--rpc is missing: give the URL of a provider");

/// Returns a provider with its HTTP headers.
fn with_headers(url: &Secret, headers: &[Secret]) -> anyhow::Result<Endpoint> {
    endpoint(["--rpc", "--rpc-header"], url, headers)
}

/// Returns an endpoint with its HTTP headers; `flags` name the URL and a header. No error contains the
/// URL or a header, because either may contain a key.
pub(crate) fn endpoint(
    flags: [&'static str; 2],
    url: &Secret,
    headers: &[Secret],
) -> anyhow::Result<Endpoint> {
    let [flag, header_flag] = flags;
    let url = url.or_of_file(flag)?;
    let mut endpoint =
        Endpoint::new(&url).map_err(|error| UsageError(error.as_str())).context(flag)?;
    for header in headers {
        let with_header = endpoint.with_header(&header.0);
        endpoint = with_header.map_err(|error| UsageError(error.as_str())).context(header_flag)?;
    }
    Ok(endpoint)
}

/// The progress bar of a provider, and the notes that are printed later.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bar(Arc<Mutex<Shown>>);

#[derive(Debug, Default)]
struct Shown {
    /// The name of the items that the bar counts, their total number, and the bar itself.
    bar: Option<(String, u64, Progress)>,
    kept: Vec<String>,
}

impl Bar {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows that `done` of `total` items are done.
    pub(crate) fn show(&self, what: &str, done: u64, total: u64) {
        let bar = &mut self.shown().bar;
        if !matches!(bar, Some((of, all, _)) if (of.as_str(), *all) == (what, total)) {
            // The old bar must be dropped first: two bars would overwrite each other.
            *bar = None;
            *bar = Some((what.to_owned(), total, Progress::counting(total, what)));
        }
        if let Some((_, _, bar)) = bar {
            bar.at(done);
        }
        if done >= total {
            *bar = None;
        }
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.shown().bar.is_some()
    }

    /// Returns the notes that were kept since the last call.
    pub(crate) fn take_kept(&self) -> Vec<String> {
        std::mem::take(&mut self.shown().kept)
    }

    fn note(&self, endpoint: &Endpoint, note: &Note) {
        let text = match note {
            Note::Progress { stage, done, total } => {
                return self.show(&stage.to_string(), *done, *total);
            }
            // This note is not printed now: the first line of `eth follow` contains it as a
            // warning.
            Note::Follow(note @ FollowNote::AnchorNotCompared(_)) => {
                return self.shown().kept.push(note.to_string());
            }
            Note::Follow(FollowNote::Failed { question, error, wait }) => {
                format!("{question}: {error}; trying again in {}", duration(*wait))
            }
            Note::Logs(logs) => count(*logs, "log"),
            Note::FetchesReceipts { blocks, bytes } => {
                return print_note(&format!("fetching {}", receipts(*blocks, *bytes)));
            }
            note => note.to_string(),
        };
        print_note(&format!("{endpoint}: {text}"));
    }
}

fn receipts(blocks: u64, size: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let size = bytes(size as f64);
    let blocks = count(blocks, "block");
    format!("receipts of {blocks}, about {size}")
}

/// Returns the builder of a provider with the limits of the flags, and its progress bar.
pub(crate) fn builder(args: &RpcArgs, endpoints: Vec<Endpoint>, stop: Stop) -> (Builder, Bar) {
    let bar = Bar::default();
    let notes = bar.clone();
    // Each command says itself what follows from a missing anchor.
    let mut builder = Provider::builder()
        .trust_head()
        .timeout(Duration::from_secs(args.timeout))
        .retries(args.retries)
        .batch(args.batch)
        .parallel(args.parallel)
        .stop(stop)
        .on_note(move |endpoint, note| notes.note(endpoint, note));
    if let Some(blocks) = args.rpc_log_range {
        builder = builder.log_range(blocks);
    }
    (endpoints.into_iter().fold(builder, Builder::endpoint), bar)
}

/// Converts an error of a provider to one that names the flags of the command.
pub(crate) fn in_words_of_the_command(error: FetchError) -> anyhow::Error {
    let (advice, limit) = match &error {
        FetchError::TooManyHeaders { limit, .. } => ("--max-headers allows", Some(*limit)),
        FetchError::TooManyReceipts { blocks, bytes, limit } => {
            return anyhow!(
                "{}: --max-receipts allows {}; narrow the query or its range, or raise the limit",
                receipts(*blocks, *bytes),
                count(*limit, "block")
            );
        }
        FetchError::NoFinalized => {
            ("--unfinalized accepts blocks that a reorganisation may still remove", None)
        }
        FetchError::NotFinal { .. } => ("--unfinalized accepts them", None),
        FetchError::Rpc { error, .. } if matches!(error.origin(), RpcError::Timeout { .. }) => {
            ("--timeout sets the limit", None)
        }
        _ => return error.into(),
    };
    match limit {
        Some(limit) => anyhow!("{error}: {advice} {}", grouped(limit)),
        None => of_fetch(&error).error(anyhow!("{error}: {advice}")),
    }
}

/// Converts a warning of a provider to text that names the flags of the command.
pub(crate) fn words_of(warning: &Warning) -> String {
    match warning {
        Warning::EndsAtFinalized { .. } => format!("{warning} (--unfinalized includes it)"),

        warning => warning.to_string(),
    }
}

/// Converts the warnings about a query's answer. Without `--to`, the user expects the range to end at the
/// finalised block, so no warning about this end is needed.
pub(crate) fn words_of_all(args: &QueryArgs, warnings: &[Warning]) -> impl Iterator<Item = String> {
    let has_open_end = args.query.is_none() && args.to.is_none();
    let is_expected = move |it: &&Warning| matches!(it, Warning::EndsAtFinalized { .. });
    warnings.iter().filter(move |it| !(has_open_end && is_expected(it))).map(words_of)
}
