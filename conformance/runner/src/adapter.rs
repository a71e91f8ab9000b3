//! The subject's side of the protocol, for implementations in Rust.

use std::io::{self, BufRead, Write};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::subject::{StartError, Subject};

/// A line of the runner.
#[derive(Deserialize)]
#[serde(tag = "cmd", rename_all = "lowercase")]
enum Command {
    Start { version: u64 },
    Run { seq: u64, area: String, input: Value },
    Stop,
}

/// Answers a runner's questions as a subject, until the runner says `stop` or the input ends. A
/// program that calls this function is a subject for `chainsieve-conformance run --subject`.
///
/// # Errors
/// If a stream fails, if the subject does not start, or if a line is not of the protocol.
///
/// # Examples
/// ```no_run
/// use chainsieve_conformance::{Answer, InProcess, answer_questions};
/// use serde_json::json;
///
/// let sizing = |_area: &str, input: &serde_json::Value| {
///     let elements = input["elements"].as_u64().expect("a number");
///     // Ask the implementation here.
///     Answer::Value(json!({ "bytes": elements, "hash_funcs": 1 }))
/// };
/// let mut subject = InProcess::new("my-library", "1.0.0", &["bip37.sizing"], sizing);
/// answer_questions(&mut subject, std::io::stdin().lock(), std::io::stdout().lock())?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn answer_questions(
    subject: &mut dyn Subject,
    input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    for line in input.lines() {
        let answer = match serde_json::from_str(&line?)? {
            Command::Start { version: 1 } => introduction(subject).map_err(io::Error::other)?,
            Command::Start { version } => {
                return Err(io::Error::other(StartError::Version(version.to_string())));
            }
            Command::Run { seq, area, input } => {
                let mut answer = subject.ask(&area, &input).json();
                answer["seq"] = seq.into();
                answer
            }
            Command::Stop => break,
        };
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn introduction(subject: &mut dyn Subject) -> Result<Value, StartError> {
    let who = subject.start()?;
    let mut line = json!({
        "version": 1,
        "implementation": { "name": who.name, "version": who.version, "language": who.language },
        "areas": who.areas,
    });
    if let Some(rpc) = who.rpc {
        line["rpc"] = rpc.into();
    }
    Ok(line)
}
