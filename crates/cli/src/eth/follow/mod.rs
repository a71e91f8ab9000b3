//! `eth follow`.

mod drive;
mod indexed;
mod lines;
mod setup;
mod state;

use std::time::{Duration, Instant};

use serde_json::json;

use self::drive::Driver;
use crate::args::eth::FollowArgs;
use crate::eth::rpc::Provider;
use crate::output::{Exit, Page, Report, count, duration, grouped};
use crate::stop::Stop;

pub(crate) fn run(args: &FollowArgs, json: bool) -> anyhow::Result<Report> {
    let stop = Stop::on_signals()?;
    let provider = Provider::connect_until(&args.rpc, args.rpc.endpoint()?, stop.clone());
    let began = Instant::now();
    let setup = match setup::set_up(args, &provider) {
        // Ctrl-C before anything began.
        Err(_) if stop.is_set() => return Ok(nothing()),
        setup => setup?,
    };
    let mut driver = Driver::new(&provider, setup, stop, json);
    driver.run()?;
    Ok(report(&driver, began.elapsed()))
}

fn nothing() -> Report {
    let json = json!({
        "blocks": 0,
        "receipts": 0,
        "logs": 0,
        "removed": 0,
        "first": null,
        "last": null,
        "last_hash": null,
        "seconds": 0.0,
        "warnings": ["ended before it began"],
    });
    let mut page = Page::default();
    page.line("ended before it began");
    Report { page, json, payload: None, exit: Exit::YesAfterLines }
}

fn report(driver: &Driver<'_>, elapsed: Duration) -> Report {
    let Some(started) = &driver.started else { return nothing() };
    let (counts, from) = (&driver.counts, started.from);
    let receipts = driver.follower.num_verified();
    let last = driver.follower.last().filter(|last| last.number >= from);
    let json = json!({
        "blocks": counts.blocks,
        "receipts": receipts,
        "logs": counts.logs,
        "removed": counts.removed,
        "first": last.map(|_| from),
        "last": last.map(|last| last.number),
        "last_hash": last.map(|last| last.hash),
        "seconds": elapsed.as_secs_f64(),
        "warnings": driver.warnings,
    });
    let count_of = |number: u64, noun| count(usize::try_from(number).unwrap_or(usize::MAX), noun);
    let mut page = Page::default();
    let removed = match counts.removed {
        0 => String::new(),
        removed => format!(", and {} removed again", grouped(removed)),
    };
    let mut fields = vec![
        ("logs", format!("{}{removed}", grouped(counts.logs))),
        (
            "blocks",
            format!(
                "{} linked, receipts of {} verified, {}",
                count_of(counts.blocks, "block"),
                grouped(receipts),
                duration(elapsed)
            ),
        ),
    ];
    if let Some(last) = last {
        fields.push(("up to", format!("block {}, {}", grouped(last.number), last.hash)));
    }
    page.fields(fields);
    Report { page, json, payload: None, exit: Exit::YesAfterLines }
}
