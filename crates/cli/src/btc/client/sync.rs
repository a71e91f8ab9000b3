//! `btc sync`.

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::btc::headers::HeaderChain;
use serde_json::json;

use super::compact::Compact;
use super::compact_state::CompactState;
use super::driver::{Core, Ending, Make, drive};
use super::follower::{Follower, HeadersOnly};
use super::summary::{Graded, chain_warnings, grades_in_words, peers_json, tip_json, work_hex};
use super::{Setup, filter_config, first_height, patience, until};
use crate::args::client::{Birthday, SyncArgs};
use crate::output::{Exit, Page, Report, grouped};

/// What the filters came to.
#[derive(Default)]
struct Filters {
    first: Option<u32>,
    answered_to: Option<u32>,
    grades: Vec<Graded>,
    disputes: Vec<String>,
}

pub(crate) fn run(args: &SyncArgs) -> anyhow::Result<Report> {
    if args.headers_only {
        return run_with(
            args,
            ServiceFlags::NONE,
            |_| Ok(Box::new(|_| Ok(HeadersOnly))),
            |_, _| Filters::default(),
        );
    }
    let config = filter_config(args.network.network(), 0, &args.trust, &args.peers)?;
    let from = args.from;
    let make = |setup: &Setup| {
        let name = match from {
            Birthday::Height(height) => format!("filters-{height}"),
            Birthday::Day(seconds) => format!("filters-t{seconds}"),
        };
        let state = CompactState::open(&setup.folder.file(&name))?;
        let make: Make<Compact> = Box::new(move |chain: &HeaderChain| {
            let mut config = config;
            config.first = first_height(from, chain);
            Compact::new(&config, state, None, None, chain)
        });
        Ok(make)
    };
    let services = ServiceFlags::NETWORK | ServiceFlags::COMPACT_FILTERS;
    run_with(args, services, make, |compact, chain| Filters {
        first: Some(compact.first()),
        answered_to: compact.answered_to(),
        grades: compact.grades(chain),
        disputes: compact.disputes.clone(),
    })
}

fn run_with<F: Follower>(
    args: &SyncArgs,
    services: ServiceFlags,
    make: impl FnOnce(&Setup) -> anyhow::Result<Make<F>>,
    tell: impl FnOnce(&F, &HeaderChain) -> Filters,
) -> anyhow::Result<Report> {
    let setup = Setup::new(&args.peers, args.network.network(), services)?;
    let make = make(&setup)?;
    let Setup { folder: _folder, store, chain, mut pool, stop } = setup;
    let mut core = Core::new(chain, store, patience(&args.peers), services, make);
    let ending = drive(&mut core, &mut pool, &stop, until(&args.peers, true))?;
    let chain = &core.chain;
    let filters = core.follower.as_ref().map(|follower| tell(follower, chain)).unwrap_or_default();
    let mut warnings = chain_warnings(chain);
    if let Ending::GaveUp(why) = &ending {
        warnings.push(format!("gave up: {why}"));
    }
    let json = json!({
        "ended": ending.name(),
        "network": args.network.to_string(),
        "tip": tip_json(chain),
        "work": work_hex(chain),
        "headers_only": args.headers_only,
        "from": filters.first,
        "answered_to": filters.answered_to,
        "grades": filters.grades.iter().map(|graded| graded.json()).collect::<Vec<_>>(),
        "disputes": filters.disputes,
        "peers": peers_json(&pool),
        "warnings": warnings,
    });
    let tip = chain.tip();
    let mut page = Page::default();
    let mut fields = vec![
        ("ended", ending.name().replace('_', " ")),
        ("tip", format!("{} at height {}", tip.hash, grouped(tip.height.into()))),
        ("work", work_hex(chain)),
    ];
    fields.extend(grades_in_words(&filters.grades).into_iter().map(|words| ("filters", words)));
    fields.extend(filters.disputes.iter().map(|text| ("dispute", text.clone())));
    page.fields(fields);
    page.warnings(&warnings);
    let exit = if matches!(ending, Ending::GaveUp(_)) { Exit::Undecided } else { Exit::Yes };
    Ok(Report { page, json, payload: None, exit })
}
