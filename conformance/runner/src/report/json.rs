//! The report as JSON.

use serde_json::{Value, json};

use super::Report;
use crate::run::{AreaRun, Counts, Outcome, SubjectRun};

impl Report {
    /// Returns the report as JSON: the counts of each area, and the findings with their details.
    pub fn to_json(&self) -> Value {
        json!({
            "pack": self.pack,
            "profile": self.profile,
            "date": self.date,
            "subjects": self.runs.iter().map(subject).collect::<Vec<_>>(),
        })
    }
}

fn subject(run: &SubjectRun) -> Value {
    json!({
        "name": run.subject.name,
        "version": run.subject.version,
        "language": run.subject.language,
        "counts": counts(run.counts()),
        "faults": run.faults,
        "unknown_areas": run.unknown_areas,
        "areas": run.areas.iter().map(area).collect::<Vec<_>>(),
    })
}

fn area(area: &AreaRun) -> Value {
    json!({
        "area": area.name,
        "title": area.title,
        "counts": counts(area.counts()),
        "gave_up": area.gave_up,
        "kinds": area.kinds().iter().map(|kind| json!({
            "number": kind.number,
            "outcome": kind.outcome,
            "text": kind.text,
            "smallest": kind.smallest,
        })).collect::<Vec<_>>(),
        "findings": area.findings().map(|(case, detail)| {
            let at = match &case.outcome {
                Outcome::Differs { at, .. } => Some(at),
                _ => None,
            };
            json!({
                "id": case.id,
                "outcome": case.outcome.word(),
                "comment": detail.comment,
                "level": detail.level.name(),
                "flags": detail.flags,
                "source": detail.source,
                "input": detail.input,
                "input_bytes": case.input_bytes,
                "expected": detail.expected,
                "got": case.outcome.got(),
                "differs_at": at,
                "milliseconds": u64::try_from(case.time.as_millis()).unwrap_or(u64::MAX),
            })
        }).collect::<Vec<_>>(),
        "skipped": area.cases.iter().filter_map(|case| match &case.outcome {
            Outcome::Skipped(why) => Some(json!({ "id": case.id, "why": why })),
            _ => None,
        }).collect::<Vec<_>>(),
        "not_run": area.cases.iter().filter_map(|case| match &case.outcome {
            Outcome::NotRun(why) => Some(json!({ "id": case.id, "why": why })),
            _ => None,
        }).collect::<Vec<_>>(),
    })
}

fn counts(counts: Counts) -> Value {
    let Counts { run, agree, differ, error, skipped, not_run } = counts;
    json!({
        "run": run,
        "agree": agree,
        "differ": differ,
        "skipped": skipped,
        "error": error,
        "not_run": not_run,
    })
}
