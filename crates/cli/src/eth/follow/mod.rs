//! `eth follow`.

mod blocks;
mod drive;
mod evidence;
mod fault;
mod indexed;
mod lines;
mod machine;
mod messages;
mod node;
mod setup;
mod state;

#[cfg(test)]
mod machine_run;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod world;

use std::time::{Duration, Instant};

use serde_json::json;

use self::drive::{Driver, Pace};
use self::setup::Start;
use crate::args::eth::FollowArgs;
use crate::eth::rpc::Provider;
use crate::output::{Exit, Lines, Page, Report, count, duration, grouped, print_note};
use crate::stop::Stop;

pub(crate) fn run(args: &FollowArgs, json: bool) -> anyhow::Result<Report> {
    let stop = Stop::on_signals()?;
    let provider = Provider::connect_until(&args.rpc, args.rpc.endpoint()?, stop.clone());
    let started = Instant::now();
    let Start { machine, state, subject, index, warnings, line } =
        match setup::start(args, &provider) {
            // Ctrl-C before anything began.
            Err(_) if stop.is_set() => return Ok(nothing()),
            start => start?,
        };
    let mut lines = Lines::default();
    if json {
        lines.print(&format!("{line}\n"))?;
    } else {
        for note in setup::notes(&machine, &subject, &provider).iter().chain(&warnings) {
            print_note(note);
        }
    }
    let tries = args.rpc.retries.saturating_mul(2).saturating_add(2);
    let pace = Pace { once: args.once, poll: Duration::from_secs_f64(args.poll), tries, json };
    let mut driver = Driver::new(&provider, machine, pace, state, subject, stop);
    driver.index = index;
    driver.run()?;
    Ok(report(&driver, &warnings, started.elapsed()))
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

fn report(driver: &Driver<&Provider>, warnings: &[String], elapsed: Duration) -> Report {
    let (counts, machine) = (&driver.counts, &driver.machine);
    let from = machine.rules().from;
    let last = machine.blocks().last_printed().filter(|last| last.number >= from);
    let json = json!({
        "blocks": counts.blocks,
        "receipts": machine.examined,
        "logs": counts.logs,
        "removed": counts.removed,
        "first": last.map(|_| from),
        "last": last.map(|last| last.number),
        "last_hash": last.map(|last| last.hash),
        "seconds": elapsed.as_secs_f64(),
        "warnings": warnings,
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
                "{} linked, receipts of {} looked into, {}",
                count_of(counts.blocks, "block"),
                grouped(machine.examined),
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
