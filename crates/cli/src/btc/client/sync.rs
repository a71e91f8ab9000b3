//! The command `btc sync`.

use chainsieve_client::{Client, Finding, News, Protocol, Status, Update};
use serde_json::json;

use super::drive::{Reader, drive};
use super::summary::{
    false_filters_json, graded_json, grades_in_words, peers_json, tip_json, warnings, work_hex,
};
use super::{birthday_name, builder, data_folder, start, trusting};
use crate::args::client::SyncArgs;
use crate::args::network_name;
use crate::output::{Page, Report, grouped, print_log};
use crate::stop;

/// Maximum number of disputes that the report lists.
const MAX_DISPUTES: usize = 1_000;

/// Disputes between peers, as text.
#[derive(Default)]
struct Disputes(Vec<String>);

impl Reader for Disputes {
    fn take(&mut self, update: Update, _: &Status, _: &Client) -> anyhow::Result<Vec<Update>> {
        if let News::Finding(finding) = &update.news {
            let text = finding.to_string();
            print_log(&text);
            let is_dispute =
                finding.at().is_some() && !matches!(finding, Finding::FalseFilter { .. });
            if is_dispute && self.0.len() < MAX_DISPUTES {
                self.0.push(text);
            }
        }
        Ok(Vec::new())
    }

    fn is_closed(&self) -> bool {
        false
    }
}

pub(crate) fn run(args: &SyncArgs) -> anyhow::Result<Report> {
    // From here on, Ctrl-C ends the run and the state is stored; it does not kill the process.
    stop::on_signals()?;
    let network = args.network;
    let data = data_folder(&args.peers, network)?;
    let client = if args.headers_only {
        builder(&args.peers, network, &data, None)?.protocol(Protocol::HeadersOnly)
    } else {
        let name = format!("filters-{}", birthday_name(args.birthday));
        let builder = builder(&args.peers, network, &data, Some(&name))?.start_at(args.birthday);
        trusting(builder, &args.trust)
    };
    let client = start(client, &data, network)?;
    let mut disputes = Disputes::default();
    let ended = drive(client, &args.peers, true, &mut disputes)?;
    let warnings = warnings(&ended, network);
    let progress = &ended.status.progress;
    let json = json!({
        "ended": ended.ending.name(),
        "network": network_name(network),
        "tip": tip_json(&ended),
        "work": work_hex(progress),
        "headers_only": args.headers_only,
        "from": ended.status.first,
        "answered_to": progress.settled_to,
        "grades": ended.grades.iter().map(graded_json).collect::<Vec<_>>(),
        "disputes": disputes.0,
        "false_filters": false_filters_json(&ended.false_filters.0),
        "peers": peers_json(&ended.status.peers),
        "warnings": warnings,
    });
    let tip = progress.tip;
    let mut page = Page::default();
    let mut fields = vec![
        ("ended", ended.ending.name().replace('_', " ")),
        ("tip", format!("{} at height {}", tip.hash, grouped(tip.height))),
        ("work", work_hex(progress)),
    ];
    fields.extend(grades_in_words(&ended.grades).into_iter().map(|words| ("filters", words)));
    fields.extend(disputes.0.into_iter().map(|text| ("dispute", text)));
    let false_filters = ended.false_filters.0.iter();
    fields.extend(false_filters.map(|finding| ("false filter", finding.to_string())));
    page.fields(fields);
    page.warnings(&warnings);
    Ok(Report::new(page, json, ended.exit()))
}
