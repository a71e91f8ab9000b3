//! The command `btc sync`.

use chainsieve_client::{Client, Finding, News, Protocol, Status, Update};
use chainsieve_report::{Page, Report, grouped, print_log};
use chainsieve_report::args::network_name;
use serde_json::json;

use crate::args::client::SyncArgs;
use crate::exit::stop_on_signals;
use super::{birthday_name, builder, chain, data_folder, start, trusting};
use super::drive::{Reader, drive};
use super::summary::{graded_json, grades_in_words, peers_json, tip_json, warnings, work_hex};

/// Maximum number of disputes that the report lists.
const MAX_DISPUTES: usize = 1_000;

/// Disputes between peers, as text.
#[derive(Default)]
struct Disputes(Vec<String>);

impl Reader for Disputes {
    fn take(&mut self, update: Update, _: &Status, _: &Client) -> anyhow::Result<Vec<Update>> {
        match &update.news {
            // The log line about the ban and the report name it.
            News::Finding(Finding::FalseFilter { .. }) => {}
            News::Finding(finding) => {
                let text = finding.to_string();
                print_log(&text);
                if finding.at().is_some() && self.0.len() < MAX_DISPUTES {
                    self.0.push(text);
                }
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    fn is_closed(&self) -> bool {
        false
    }
}

pub(crate) fn run(args: &SyncArgs) -> anyhow::Result<Report> {
    let network = args.network;
    let chain = chain(&args.peers, network)?;
    // From here on, Ctrl-C ends the run and the state is stored; it does not kill the process.
    stop_on_signals()?;
    let data = data_folder(&args.peers, &chain)?;
    let client = if args.headers_only {
        builder(&args.peers, chain, &data, None)?.protocol(Protocol::HeadersOnly)
    } else {
        let name = format!("filters-{}", birthday_name(args.birthday));
        let builder = builder(&args.peers, chain, &data, Some(&name))?.start_at(args.birthday);
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
        "false_filters": ended.false_filters.json(),
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
    fields.extend(ended.false_filters.texts().map(|text| ("false filter", text)));
    page.fields(fields);
    page.warnings(&warnings);
    Ok(Report::new(page, json, ended.exit()))
}
