//! `eth serve`: a JSON-RPC endpoint whose answers are proven.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use chainsieve_provider::{RpcServerBuilder, RpcServerError, RpcServerEvent};
use chainsieve_report::{Exit, Page, Report, UsageError, json_line, line_of, print_note};
use serde_json::json;

use super::anchor::{self, Following};
use super::{builder, in_words_of_the_command};
use crate::args::eth::{ServeArgs, Unverified};
use crate::exit::stop_on_signals;

/// Maximum number of events that wait to be printed. Further events are lost, so that a slow reader
/// does not delay the head.
const WAITING: usize = 1024;

/// Age in seconds from which on the head of a light client is too old: 50 slots.
const OLDEST_HEAD: u64 = 600;

pub(crate) fn run(args: &ServeArgs, json: bool) -> anyhow::Result<Report> {
    if !args.listen.ip().is_loopback() && !args.listen_anywhere {
        let words = "--listen: other machines can reach this address; --listen-anywhere allows it";
        bail!(UsageError(words));
    }
    let is_anchored = !args.trust.anchor.is_empty() || args.beacon.is_given();
    if !is_anchored && !args.trust_head {
        bail!(UsageError(
            "nothing is trusted: give --beacon and --checkpoint, --anchor, or --trust-head"
        ));
    }
    let stop = stop_on_signals()?;
    let (builder, _bar) = builder(&args.rpc, args.rpc.any_number()?, stop.clone());
    let provider = builder.build()?;
    // A node that does not answer holds this question for a whole timeout.
    let upstreams: Vec<_> =
        provider.nodes().iter().map(|node| node.endpoint().to_string()).collect();
    print_note(&format!("asking which chain it is: {}", upstreams.join(", ")));
    let chain_id = provider.chain_id().map_err(in_words_of_the_command)?;
    let provider = provider.with_profile(args.trust.profile_of(chain_id)?);
    let beacon = anchor::beacon(&args.beacon, &args.rpc, chain_id, stop.clone(), true)?;
    let trust = match (&beacon, args.trust_head) {
        (Some(_), _) => "light client",
        (None, false) => "anchor",
        (None, true) => "the head that the nodes name",
    };
    let following = Following { anchors: args.trust.anchor.clone(), beacon };
    let (provider, warnings) = if args.trust_head {
        let words = "all answers are only as authentic as the head that the nodes name";
        (provider, vec![words.to_owned()])
    } else {
        let warnings = following.begin()?.0;
        (provider.with_anchor(following), warnings)
    };
    for warning in &warnings {
        print_note(warning);
    }
    let (events, happened) = mpsc::sync_channel::<RpcServerEvent>(WAITING);
    let server = configured(args, provider.serve()).on_event(move |event| {
        let _ = events.try_send(event.clone());
    });
    let server = server.start(args.listen).map_err(in_words)?;
    let address = server.address();
    let mut out = chainsieve_report::Lines::default();
    out.print(&if json {
        let members = json!({
            "address": address.to_string(),
            "trust": trust,
            "chain_id": chain_id,
            "upstreams": upstreams,
            "warnings": warnings,
        });
        json_line("listening", members)
    } else {
        format!("listening on http://{address} and ws://{address}; trusted: {trust}\n")
    })?;
    while !stop.is_set() {
        match happened.recv_timeout(Duration::from_millis(200)) {
            Ok(event) if json => {
                out.print(&line_of(&serde_json::to_value(&event).context("an event")?))?;
            }
            Ok(event) => out.print(&format!("{event}\n"))?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let (head, calls) = (server.head(), server.num_calls());
    drop(server);
    let json = json!({ "head": head, "calls": calls, "warnings": warnings });
    Ok(Report::new(Page::default(), json, Exit::Yes).after_lines())
}

fn configured(args: &ServeArgs, mut server: RpcServerBuilder) -> RpcServerBuilder {
    let mut limits = args.limits.limits();
    limits.disk = args.cache_size << 20;
    limits.parallel = args.rpc.parallel;
    server = server.allow_origins(args.allow_origin.clone());
    if !args.allow_host.is_empty() {
        server = server.hosts(args.allow_host.clone());
    }
    server = server.limits(limits).poll(Duration::from_secs_f64(args.poll));
    if let Some(folder) = &args.cache {
        server = server.folder(folder);
    }
    if let Some(folder) = &args.index {
        server = server.index(folder);
    }
    if let Some(first) = args.index_from {
        server = server.index_from(first);
    }
    if args.unverified == Unverified::Pass {
        server = server.pass_unverified();
    }
    let age = args.max_head_age.or(args.beacon.is_given().then_some(OLDEST_HEAD));
    if let Some(age) = age {
        server = server.max_head_age(Duration::from_secs(age));
    }
    if args.no_compare {
        server = server.without_comparison();
    }
    server
}

fn in_words(error: RpcServerError) -> anyhow::Error {
    match error {
        RpcServerError::Fetch(error) => in_words_of_the_command(error),
        RpcServerError::Listen { .. } => anyhow::Error::from(error).context("--listen"),
        error => error.into(),
    }
}
