//! Failures of delivery: the node errs, stalls or sends no JSON-RPC.

use std::time::Duration;

use serde_json::Value;

use super::lie;
use crate::serve::json_rpc::{Fate, Fault, Rule};
use crate::serve::lie::{Count, Lie, Verdict};

/// A failure of delivery.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) lie: Lie,
    /// Number of calls that are answered before the failures begin.
    after: u32,
    fail: fn(&mut Value) -> Fate,
}

const fn told(
    id: &'static str,
    title: &'static str,
    expected: (Verdict, &'static str),
    after: u32,
    fail: fn(&mut Value) -> Fate,
) -> Failure {
    Failure { lie: lie(id, title, expected, "JSON-RPC 2.0, RFC 9110"), after, fail }
}

/// Time for which a stalled request stays open: longer than the timeout of any client.
const STALL: Duration = Duration::from_secs(60 * 60);

/// The failures of delivery.
pub(super) static LIES: [Failure; 6] = [
    told(
        "eth-error-late",
        "From the fourth call on, each answer is an internal error",
        (Verdict::MustNotCrash, "the error: a part of the answer is missing"),
        3,
        error,
    ),
    told(
        "eth-rate-limited",
        "From the fourth call on, each answer is HTTP status 429",
        (Verdict::MustNotCrash, "the status: a part of the answer is missing"),
        3,
        |_| Fate::Status(429),
    ),
    told(
        "eth-server-error",
        "Each answer is HTTP status 500",
        (Verdict::MustNotCrash, "the status"),
        0,
        |_| Fate::Status(500),
    ),
    told(
        "eth-slow",
        "From the second call on, requests stay open without an answer",
        (Verdict::MustTimeOut, "a timeout of each request"),
        1,
        |_| Fate::Silent(STALL),
    ),
    told(
        "eth-hang-up",
        "From the second call on, the connection closes without an answer",
        (Verdict::MustNotCrash, "the end of the stream"),
        1,
        |_| Fate::Closed,
    ),
    told(
        "eth-garbage",
        "From the second call on, random bytes come in place of a response",
        (Verdict::MustNotCrash, "the form of the response"),
        1,
        |_| Fate::Bytes(vec![0xa5; 4_096]),
    ),
];

fn error(answer: &mut Value) -> Fate {
    *answer = Fault::new(-32603, "internal error").answer(&answer["id"].take());
    Fate::Answered
}

impl Failure {
    /// Returns the rule of a proxy that fails in this way.
    pub(super) fn rule(&'static self, failures: Count) -> Rule {
        let calls = Count::default();
        Box::new(move |_, _, answer| {
            if calls.get() < self.after {
                calls.add_one();
                return Fate::Answered;
            }
            failures.add_one();
            (self.fail)(answer)
        })
    }
}
