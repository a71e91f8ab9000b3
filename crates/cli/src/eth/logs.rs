//! Reads the logs of a provider's answer.

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::files::{JsonValue, JsonValues};
use chainsieve::eth::log::{LocatedLog, LogJsonError};
use chainsieve_report::{Source, excerpt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Maximum size of a JSON value in bytes: a reply with many logs is a single value.
const MAX_VALUE: u64 = 1 << 30;

/// Reads logs from each file: replies of a node, lists, or one log per line.
pub(crate) fn read(arguments: &[String]) -> anyhow::Result<Vec<LocatedLog>> {
    let mut logs = Vec::new();
    for argument in arguments {
        let source = Source::open(argument, "logs")?;
        let name = format!("logs, {}", source.name());
        let mut values = JsonValues::new(source.input, MAX_VALUE);
        let mut index = 0;
        while let Some(value) = values.next_value().with_context(|| name.clone())? {
            let place = || format!("{name}, line {}", value.line);
            read_value(&value, index, &mut logs).with_context(place)?;
            index += 1;
        }
    }
    Ok(logs)
}

/// A node's JSON-RPC reply. A log has none of the fields of a reply.
#[derive(Deserialize)]
struct Reply<'a> {
    jsonrpc: Option<IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn read_value(value: &JsonValue, index: usize, logs: &mut Vec<LocatedLog>) -> anyhow::Result<()> {
    let text = value.text.as_str();
    if text.starts_with('[') {
        logs.extend(LocatedLog::list_from_json(text)?);
        return Ok(());
    }
    let reply: Option<Reply<'_>> =
        text.starts_with('{').then(|| serde_json::from_str(text)).transpose().map_err(
            |error: serde_json::Error| {
                let message = error.to_string();
                let (position, what) = value.locate(&message);
                anyhow!("{position}: {what}")
            },
        )?;
    let Some(reply) = reply else { bail!("a log is an object, not {:?}", excerpt(text)) };
    if let Some(error) = reply.error {
        bail!("the node's reply is an error: {:?}", format!("{:.200}", error.get()));
    }
    if let Some(result) = reply.result {
        logs.extend(LocatedLog::list_from_json(result.get())?);
        return Ok(());
    }
    if reply.jsonrpc.is_some() {
        bail!("the node's reply has no result");
    }
    match LocatedLog::from_json(text) {
        Ok(log) => logs.push(log),
        Err(LogJsonError::Log { problem, .. }) => bail!("log {index}: {problem}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
