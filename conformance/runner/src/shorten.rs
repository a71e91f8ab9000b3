//! Shortens values so that a page of them can be read.

use serde_json::{Map, Value, json};

/// Number of characters up to which a string is shown whole.
const WHOLE: usize = 160;
/// Number of items up to which a list is shown whole.
const ITEMS: usize = 20;

/// Number of values that are shown in all. No case of the pack has as many.
const VALUES: usize = 500;

/// Returns a value in which long strings and lists are replaced by their start, their end and their
/// length. Of a value with very many parts, the first ones are shown.
pub fn shortened(value: &Value) -> Value {
    short_value(value, &mut { VALUES })
}

/// Shortens a value of which at most `left` further parts are shown.
fn short_value(value: &Value, left: &mut usize) -> Value {
    *left = left.saturating_sub(1);
    match value {
        Value::String(text) => short_text(text).into(),
        Value::Array(items) => {
            let whole = if items.len() > ITEMS { ITEMS - 1 } else { items.len() };
            let mut short = Vec::new();
            for item in items.iter().take(whole) {
                if *left == 0 {
                    break;
                }
                short.push(short_value(item, left));
            }
            if short.len() < items.len() {
                short.push(json!(format!("… {} items", items.len())));
            }
            short.into()
        }
        Value::Object(members) => {
            let mut short = Map::new();
            for (name, member) in members {
                if *left == 0 {
                    short.insert("…".into(), json!(format!("{} members", members.len())));
                    break;
                }
                short.insert(short_text(name), short_value(member, left));
            }
            short.into()
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
