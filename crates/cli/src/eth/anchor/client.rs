//! The light client of the arguments, and its anchors, as fields for people and as JSON.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync_committee::{
    Anchor, BoundExecution, Checkpoint, Evidence, LightClient, Participation,
};
use chainsieve_provider::{BeaconBuilder, BeaconClient, BeaconError, BeaconRound, Note, Stop};
use chainsieve_report::calendar::Utc;
use chainsieve_report::{
    Exit, Lines, Page, Report, UsageError, count, float, grouped, json_line, named, print_note,
};
use serde_json::{Value, json};

use crate::args::eth::{BeaconArgs, SyncAnchorArgs};
use crate::args::platform_folder;
use crate::eth::Bar;
use crate::eth::header::decimal;
use crate::exit::stop_on_signals;

/// Age of a finalised block from which a warning says that a newer finalised block may exist.
/// Finality takes about 15 minutes.
const OLD: Duration = Duration::from_hours(1);

/// Returns `--data`, or the network's folder in the platform's data folder.
pub(super) fn data_folder(data: Option<&PathBuf>, network: &Network) -> anyhow::Result<PathBuf> {
    if let Some(data) = data {
        return Ok(data.clone());
    }
    // A network of a file may have any name, but not the name of a path elsewhere.
    let name: String = network.name().chars().filter(char::is_ascii_alphanumeric).collect();
    Ok(platform_folder()?.join(format!("beacon-{name}")))
}

/// Returns the light client of the arguments, with progress and notes on standard error. Without a
/// folder, nothing is kept.
pub(super) fn builder(
    args: &BeaconArgs,
    network: Network,
    folder: Option<PathBuf>,
    (timeout, retries): (u64, u32),
    stop: Stop,
) -> anyhow::Result<BeaconBuilder> {
    let bar = Bar::default();
    let mut builder = BeaconClient::builder(network)
        .timeout(Duration::from_secs(timeout))
        .retries(retries)
        .stop(stop)
        .on_note(move |endpoint, note| match note {
            Note::Progress { stage, done, total } => bar.show(&stage.to_string(), *done, *total),
            note => print_note(&format!("{endpoint}: {note}")),
        });
    for endpoint in args.endpoints()? {
        builder = builder.endpoint(endpoint);
    }
    if let Some(root) = args.checkpoint.checkpoint {
        builder = builder.checkpoint(root);
    }
    Ok(match folder {
        Some(folder) => builder.folder(folder),
        None => builder,
    })
}

/// Reads the light client in a folder.
pub(super) fn stored(folder: &Path, network: Network) -> anyhow::Result<LightClient> {
    let client = BeaconClient::read(folder, network).map_err(in_words)?;
    client.ok_or_else(|| {
        let folder = named(folder);
        anyhow!(
            "{folder}: there is no light client; `eth anchor sync` with --beacon and --checkpoint \
             makes one"
        )
    })
}

/// Converts an error to one that names the flags of the command.
pub(super) fn in_words(error: BeaconError) -> anyhow::Error {
    match &error {
        BeaconError::NoStart => {
            UsageError("--checkpoint is missing: give the root of a block that you trust").into()
        }
        BeaconError::NoCheckpoint(path) => {
            let folder = path.parent().unwrap_or(path);
            let words = "no light client there yet: the first run of `eth anchor sync` needs \
                         --checkpoint";
            anyhow::Error::from(UsageError(words)).context(format!("--data {}", named(folder)))
        }
        // A path may be a URL that was given in the wrong place.
        BeaconError::File(error) => anyhow!("{}: {}", named(error.path()), error.reason()),
        BeaconError::OtherCheckpoint { path, stored, given } => {
            let folder = named(path.parent().unwrap_or(path));
            anyhow!(
                "--data {folder}: the light client started from checkpoint {stored}, not from \
                 {given}: `eth anchor sync --restart` replaces it"
            )
        }
        BeaconError::NoBootstrap { failures, .. } => {
            let proven = failures.iter().any(|failure| failure.is_proven);
            let exit = if proven { Exit::Wrong } else { Exit::Failed };
            let advice = "servers keep the bootstraps of the first blocks of finalised epochs, for \
                          about five months: compare the root, and --network";
            exit.error(anyhow!("{error}: {advice}"))
        }
        _ => error.into(),
    }
}

/// Asks the beacon nodes for newer blocks. It is an error if none of them answers.
pub(super) fn sync(client: &BeaconClient) -> anyhow::Result<BeaconRound> {
    let round = client.sync().map_err(in_words)?;
    if round.answered == 0 && !client.servers().is_empty() {
        let why: Vec<_> = round.failures.iter().map(ToString::to_string).collect();
        bail!("no beacon node answered: {}", why.join("; "));
    }
    Ok(round)
}

/// Asks the beacon nodes for newer blocks, and does not wait for nodes that do not answer. Returns the
/// failures as warnings: if no beacon node answers, the earlier results remain valid.
pub(super) fn advance(client: &BeaconClient) -> anyhow::Result<Vec<String>> {
    let round = client.advance().map_err(in_words)?;
    let mut warnings: Vec<_> = round.failures.iter().map(ToString::to_string).collect();
    if round.answered == 0 && !client.servers().is_empty() {
        warnings.push("no beacon node answered: newer blocks are not known".into());
    }
    Ok(warnings)
}

/// Returns the warnings about all results that follow from a light client.
pub(super) fn warnings(client: &LightClient, now: Duration) -> Vec<String> {
    let mut warnings = Vec::new();
    let checkpoint = client.trust().checkpoint;
    if checkpoint.is_stale() {
        warnings.push(stale(&checkpoint));
    }
    if let Some(forced) = client.trust().forced {
        warnings.push(format!(
            "an update that only {forced} members signed was forced: no later result is more reliable than this update"
        ));
    }
    let finalized = client.finalized();
    let made = client.network().time_of_slot(finalized.beacon.slot);
    let since = now.saturating_sub(made);
    if since > OLD {
        warnings.push(format!(
            "the newest known finalised block is {} old: newer blocks are not covered",
            age(since)
        ));
    }
    warnings
}

/// Returns the last period whose sync committee is known.
fn committee_period(client: &LightClient) -> u64 {
    let period = client.network().period_of_slot(client.finalized().beacon.slot);
    period + u64::from(client.is_next_committee_known())
}

/// Returns a light client as fields for people.
pub(super) fn fields(client: &LightClient) -> Vec<(&'static str, String)> {
    let checkpoint = client.trust().checkpoint;
    let mut fields = vec![
        ("network", client.network().name().to_owned()),
        ("checkpoint", format!("slot {}, {}", grouped(checkpoint.slot), checkpoint.root)),
        ("", format!("{} old when the light client continued from it", age(checkpoint.age))),
    ];
    fields.extend(anchor_fields(client.finalized(), true));
    fields.push(("committees", format!("known up to period {}", committee_period(client))));
    fields.push(("not proven", NOT_PROVEN.into()));
    fields
}

/// Returns a light client as JSON.
pub(super) fn json(client: &LightClient, now: Duration) -> Value {
    let checkpoint = client.trust().checkpoint;
    json!({
        "network": client.network().name(),
        "at": now.as_secs(),
        "checkpoint": {
            "root": checkpoint.root,
            "slot": checkpoint.slot,
            "time": client.network().time_of_slot(checkpoint.slot).as_secs(),
            "age": checkpoint.age.as_secs(),
            "limit": checkpoint.limit.as_secs(),
            "stale": checkpoint.is_stale(),
        },
        "forced": client.trust().forced.map(|by| by.signed),
        "committee_period": committee_period(client),
        "finalized": anchor_json(client.finalized(), true),
        "not_proven": NOT_PROVEN,
    })
}

/// Describes an anchor in one line.
pub(super) fn line(anchor: &Anchor, network: &Network) -> String {
    let slot = grouped(anchor.beacon.slot);
    let block = match (anchor.execution.header(), anchor.execution.bound_hash()) {
        (Some(header), _) => {
            format!("block {}, {}", grouped(header.block_number), header.block_hash)
        }
        (None, Some(hash)) => format!("the block before slot {slot}, {hash}"),
        (None, None) => format!("slot {slot}"),
    };
    let time = Utc::new(network.time_of_slot(anchor.beacon.slot).as_secs()).date_time();
    format!("{time}: {block}, {}", anchor.evidence)
}

/// The facts that no sync committee proves.
pub(super) const NOT_PROVEN: &str = "\
full consensus: no attestations were counted, and members of a sync committee are not slashed for a \
false signature";

/// Returns the fields of an anchor: the beacon block, the execution block, and the evidence.
///
/// `is_trusted` is `false` if the user did not give the checkpoint. The anchor then has no grade.
pub(super) fn anchor_fields(anchor: &Anchor, is_trusted: bool) -> Vec<(&'static str, String)> {
    let mut fields =
        vec![("beacon block", format!("slot {}, {}", grouped(anchor.beacon.slot), anchor.root))];
    match &anchor.execution {
        BoundExecution::Header(header) => fields.extend([
            ("block", grouped(header.block_number)),
            ("hash", header.block_hash.to_string()),
            ("parent", header.parent_hash.to_string()),
            ("time", Utc::new(header.timestamp).date_time()),
            ("state root", header.state_root.to_string()),
            ("receipts root", header.receipts_root.to_string()),
        ]),
        execution => {
            let hash = execution.bound_hash();
            fields.push(("hash", hash.map_or("none is bound".into(), |hash| hash.to_string())));
            if execution.lags() {
                fields.push(("", "of the last execution block before the beacon block".into()));
            }
        }
    }
    fields.push(("evidence", anchor.evidence.to_string()));
    let grade =
        if is_trusted { anchor.grade().name() } else { "none: the checkpoint is not yours" };
    fields.push(("grade", grade.into()));
    fields
}

/// Returns the JSON of an anchor, with the same facts and more fields of the execution header.
pub(crate) fn anchor_json(anchor: &Anchor, is_trusted: bool) -> Value {
    let (evidence, by) = evidence_of(anchor.evidence);
    json!({
        "slot": anchor.beacon.slot,
        "root": anchor.root,
        "state_root": anchor.beacon.state_root,
        "evidence": evidence,
        "signed": by.map(|by| by.signed),
        "of": by.map(|by| by.of),
        "grade": is_trusted.then(|| anchor.grade()),
        "execution": execution(&anchor.execution),
    })
}

fn evidence_of(evidence: Evidence) -> (&'static str, Option<Participation>) {
    match evidence {
        Evidence::Finalized(by) => ("finalized", Some(by)),
        Evidence::Optimistic(by) => ("optimistic", Some(by)),
        Evidence::Forced(by) => ("forced", Some(by)),
        _ => ("checkpoint", None),
    }
}

/// Members of an execution header that are printed in the form in which the library writes them.
const SAME: [&str; 10] = [
    "parent_hash",
    "timestamp",
    "state_root",
    "receipts_root",
    "fee_recipient",
    "gas_limit",
    "gas_used",
    "prev_randao",
    "extra_data",
    "logs_bloom",
];

fn execution(execution: &BoundExecution) -> Value {
    let Some(hash) = execution.bound_hash() else { return Value::Null };
    let header = json!(execution.header());
    let mut json = json!({
        "number": header["block_number"],
        "hash": hash,
        "lags": execution.lags(),
        "base_fee_per_gas": execution.header().map(|header| decimal(header.base_fee_per_gas)),
    });
    for name in SAME {
        json[name] = header[name].clone();
    }
    json
}

/// Returns the warning about a checkpoint that is too old.
pub(super) fn stale(checkpoint: &Checkpoint) -> String {
    format!(
        "the checkpoint is {} old, more than the weak-subjectivity period of {}: validators of that \
         time may have withdrawn their stake, and can then sign another chain at no cost; a newer \
         checkpoint has no such risk",
        age(checkpoint.age),
        age(checkpoint.limit)
    )
}

/// Formats an age for people: `12 minutes`, `5.2 hours`, `15.7 days`.
pub(super) fn age(age: Duration) -> String {
    const HOUR: u64 = 3_600;
    let seconds = age.as_secs();
    match seconds / HOUR {
        0..2 => count(seconds / 60, "minute"),
        2..48 => format!("{:.1} hours", float(seconds) / float(HOUR)),
        _ => format!("{:.1} days", float(seconds) / float(24 * HOUR)),
    }
}

/// Runs `eth anchor sync`.
pub(super) fn run_sync(args: &SyncAnchorArgs, json: bool) -> anyhow::Result<Report> {
    let network = super::network(&args.beacon.network)?;
    let folder = data_folder(args.beacon.data.as_ref(), &network)?;
    if args.beacon.beacon.is_empty() {
        return Ok(in_folder(summary(&stored(&folder, network)?, None, false)?, &folder));
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
    let round = sync(&beacon)?;
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
    let mut warnings = warnings(client, now);
    let mut json = json(client, now);
    let mut fields = fields(client);
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
            fields.push(("newest signed", line(&round.optimistic, client.network())));
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
                format!("{}\n", line(newest, client.network()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_for_people() {
        for (seconds, expected) in [
            (0, "0 minutes"),
            (119, "1 minute"),
            (7_199, "119 minutes"),
            (98_304, "27.3 hours"),
            (1_356_288, "15.7 days"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }
}
