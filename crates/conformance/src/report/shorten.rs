//! Shortens values so that a page of them can be read.

use serde_json::{Value, json};

/// Number of characters up to which a string is shown whole.
const WHOLE: usize = 160;
/// Number of items up to which a list is shown whole.
const ITEMS: usize = 20;

/// Returns a value in which long strings and lists are replaced by their start, their end and their
/// length.
pub fn shortened(value: &Value) -> Value {
    match value {
        Value::String(text) => short_text(text).into(),
        Value::Array(items) if items.len() > ITEMS => {
            let mut short: Vec<_> = items[..ITEMS - 1].iter().map(shortened).collect();
            short.push(json!(format!("… {} items", items.len())));
            short.into()
        }
        Value::Array(items) => items.iter().map(shortened).collect(),
        Value::Object(members) => {
            let member = |(name, value): (&String, _)| (name.clone(), shortened(value));
            Value::Object(members.iter().map(member).collect())
        }
        other => other.clone(),
    }
}

fn short_text(text: &str) -> String {
    let length = text.chars().count();
    if length <= WHOLE {
        return text.to_owned();
    }
    let start: String = text.chars().take(WHOLE / 2).collect();
    let end: String = text.chars().skip(length - WHOLE / 4).collect();
    let is_hex = length.is_multiple_of(2) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_hex {
        format!("{start}…{end} ({} bytes)", length / 2)
    } else {
        format!("{start}…{end} ({length} characters)")
    }
}
