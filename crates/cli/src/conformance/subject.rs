//! The command `conformance answer`: chainsieve as a subject of the conformance vectors.

use anyhow::Context as _;
use serde_json::json;

use super::answer;
use crate::args::UsageError;
use crate::args::conformance::AnswerArgs;
use crate::exit::Exit;
use crate::output::{Page, Report};

pub(crate) fn run(args: &AnswerArgs, json: bool) -> anyhow::Result<Report> {
    // The runner would take a report for an answer.
    if json {
        return Err(UsageError("--json: the answers are lines of JSON already").into());
    }
    answer::serve(args.semantics).context("the questions of the runner")?;
    Ok(Report::new(Page::default(), json!({}), Exit::Yes).with_payload(String::new()))
}
