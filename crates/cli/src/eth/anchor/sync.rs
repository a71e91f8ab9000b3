//! The command `eth anchor sync`.

use std::path::Path;

use anyhow::Context as _;
use chainsieve::eth::anchor::sync_committee::LightClient;
use chainsieve_provider::{BeaconClient, BeaconRound};
use chainsieve_report::{Exit, Lines, Page, Report, count, json_line};
use serde_json::json;

use super::client::{self, anchor_json, builder, data_folder, in_words};
use crate::args::eth::SyncAnchorArgs;
use crate::exit::stop_on_signals;

pub(super) fn run(args: &SyncAnchorArgs, json: bool) -> anyhow::Result<Report> {
    let network = super::network(&args.beacon.network)?;
    let folder = data_folder(args.beacon.data.as_ref(), &network)?;
    if args.beacon.beacon.is_empty() {
        return Ok(in_folder(summary(&client::stored(&folder, network)?, None, false)?, &folder));
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
    let client = beacon.light_client().context("no light client")?;
    Ok(in_folder(summary(&client, Some((&beacon, &round)), args.optimistic)?, &folder))
}

/// Adds the folder in which a light client is kept to its report.
fn in_folder(report: Report, folder: &Path) -> Report {
    let (mut page, mut json, exit) = report.into_parts();
    page.fields(vec![("folder", folder.display().to_string())]);
    json["folder"] = json!(folder);
    Report::new(page, json, exit)
}

/// Returns the report of a light client, and of the round in which the beacon nodes were asked.
fn summary(
    client: &LightClient,
    round: Option<(&BeaconClient, &BeaconRound)>,
    is_optimistic: bool,
) -> anyhow::Result<Report> {
    let now = super::now(None)?;
    let mut warnings = client::warnings(client, now);
    let mut json = client::json(client, now);
    let mut fields = client::fields(client);
    if let Some((beacon, round)) = round {
        let asked = beacon.servers().len();
        warnings.extend(round.failures.iter().map(ToString::to_string));
        json["servers"] = json!({ "asked": asked, "answered": round.answered });
        let failures = round.failures.iter().map(|failure| {
            json!({ "server": failure.server, "proven": failure.is_proven, "why": failure.why })
        });
        json["failures"] = failures.collect();
        if is_optimistic {
            json["optimistic"] = anchor_json(&round.optimistic, true);
            fields.push(("newest signed", client::line(&round.optimistic, client.network())));
        }
        let of = count(asked, "beacon node");
        fields.push(("answered", format!("{} of {of}", round.answered)));
    }
    Ok(Report::new(Page::of_fields(fields), json, Exit::Yes).with_warnings(warnings))
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
        printed = beacon.light_client().context("no light client").and_then(|client| {
            let text = if json {
                let report = summary(&client, Some((beacon, round)), args.optimistic)?;
                json_line(kind, report.into_parts().1)
            } else {
                format!("{}\n", client::line(newest, client.network()))
            };
            Ok(lines.print(&text)?)
        });
    });
    watched.map_err(in_words)?;
    printed?;
    let round = latest.context("stopped before a beacon node answered")?;
    let client = beacon.light_client().context("no light client")?;
    Ok(summary(&client, Some((beacon, &round)), args.optimistic)?.after_lines())
}
