//! The command `eth anchor sync`.

use std::path::Path;

use anyhow::Context as _;
use chainsieve::eth::anchor::sync_committee::LightClient;
use chainsieve_provider::{BeaconClient, BeaconRound};
use chainsieve_report::{Exit, Lines, Page, Report, json_line};
use serde_json::{Value, json};

use super::client::{self, anchor_json, answered, builder, data_folder, in_words};
use crate::args::eth::SyncAnchorArgs;
use crate::exit::stop_on_signals;

pub(super) fn run(args: &SyncAnchorArgs, json: bool) -> anyhow::Result<Report> {
    let network = super::network(&args.beacon.network)?;
    let folder = data_folder(args.beacon.data.as_ref(), &network)?;
    if args.beacon.beacon.is_empty() {
        let (page, json) = show(&client::stored(&folder, network)?)?;
        return Ok(in_folder(page, json, &folder));
    }
    let stop = stop_on_signals()?;
    let limits = (args.limits.timeout, args.limits.retries);
    let mut builder = builder(&args.beacon, network, Some(folder.clone()), limits, stop)?;
    if args.restart {
        builder = builder.restart();
    }
    if args.optimistic {
        builder = builder.optimistic();
    }
    let beacon = builder.build().map_err(in_words)?;
    if args.watch {
        return watch(&beacon, args, json);
    }
    let round = client::sync(&beacon)?;
    let (page, json) = summary(&beacon, &round, args)?;
    Ok(in_folder(page, json, &folder))
}

/// Returns the report of a light client that is kept in a folder.
fn in_folder(mut page: Page, mut json: Value, folder: &Path) -> Report {
    page.fields(vec![("folder", folder.display().to_string())]);
    json["folder"] = json!(folder);
    Report::new(page, json, Exit::Yes)
}

/// Returns a stored light client, without any request.
fn show(client: &LightClient) -> anyhow::Result<(Page, Value)> {
    let now = super::now(None)?;
    let warnings = client::warnings(client, now);
    let mut json = client::json(client, now);
    json["warnings"] = json!(warnings);
    let mut page = Page::default();
    page.fields(client::fields(client));
    page.warnings(&warnings);
    Ok((page, json))
}

fn summary(
    beacon: &BeaconClient,
    round: &BeaconRound,
    args: &SyncAnchorArgs,
) -> anyhow::Result<(Page, Value)> {
    let client = beacon.light_client().context("no light client")?;
    let now = super::now(None)?;
    let asked = beacon.servers().len();
    let mut warnings = client::warnings(&client, now);
    warnings.extend(round.failures.iter().map(ToString::to_string));
    let mut json = client::json(&client, now);
    json["servers"] = json!({ "asked": asked, "answered": round.answered });
    let failures = round.failures.iter().map(|failure| {
        json!({ "server": failure.server, "proven": failure.is_proven, "why": failure.why })
    });
    json["failures"] = failures.collect();
    json["warnings"] = json!(warnings);
    let mut page = Page::default();
    let mut fields = client::fields(&client);
    if args.optimistic {
        json["optimistic"] = anchor_json(&round.optimistic, true);
        fields.push(("newest signed", client::line(&round.optimistic, client.network())));
    }
    fields.push(("answered", answered(round, asked)));
    page.fields(fields);
    page.warnings(&warnings);
    Ok((page, json))
}

/// Prints a line for each newer block, until the command is stopped.
fn watch(beacon: &BeaconClient, args: &SyncAnchorArgs, json: bool) -> anyhow::Result<Report> {
    let mut lines = Lines::default();
    let mut last = None;
    let mut printed = Ok(());
    let mut latest = None;
    let watched = beacon.watch(|round| {
        latest = Some(round.clone());
        let (kind, newest) = if args.optimistic {
            ("optimistic", &round.optimistic)
        } else {
            ("finalized", &round.finalized)
        };
        if printed.is_err() || last == Some(newest.root) {
            return;
        }
        last = Some(newest.root);
        printed = summary(beacon, round, args).and_then(|(_, members)| {
            let client = beacon.light_client().context("no light client")?;
            let text = if json {
                json_line(kind, members)
            } else {
                format!("{}\n", client::line(newest, client.network()))
            };
            lines.print(&text)?;
            Ok(())
        });
    });
    watched.map_err(in_words)?;
    printed?;
    let round = latest.context("stopped before a beacon node answered")?;
    let (page, json) = summary(beacon, &round, args)?;
    Ok(Report::new(page, json, Exit::Yes).after_lines())
}
