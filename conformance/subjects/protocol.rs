//! The loop of a subject in Rust. A subject is a program that answers test cases: it reads one JSON
//! object a line from standard input and writes one JSON object a line to standard output. Anything
//! may be written to standard error. To test an implementation of your own, copy this file.
#![allow(dead_code, reason = "no subject uses all of it")]
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

/// Why a case has no value. With `?`, an error that the library returns becomes `Invalid`.
pub enum No {
    /// The implementation refused the input in its documented way.
    Invalid(String),
    /// The implementation has no call for this input.
    Skipped(&'static str),
}

impl<E: std::fmt::Display> From<E> for No {
    fn from(error: E) -> Self {
        Self::Invalid(error.to_string())
    }
}

pub type Answer = Result<Value, No>;

/// Answers cases until `stop` or the end of the input. A panic of the library becomes `error`.
pub fn serve(areas: &[(&str, fn(&Value) -> Answer)]) {
    let about = std::fs::read_to_string("subject.json").expect("runs in the subject's folder");
    let about: Value = serde_json::from_str(&about).expect("subject.json is JSON");
    let [name, version, language] = ["name", "version", "language"].map(|member| &about[member]);
    let about = json!({ "name": name, "version": version, "language": language });
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let message: Value = serde_json::from_str(&line).expect("a message is JSON");
        let (command, seq, input) = (&message["cmd"], &message["seq"], &message["input"]);
        if command == "stop" {
            return;
        }
        if command == "start" {
            let names: Vec<_> = areas.iter().map(|(name, _)| name).collect();
            println!("{}", json!({ "version": 1, "implementation": about, "areas": names }));
            continue;
        }
        let area = areas.iter().find(|(name, _)| message["area"] == *name).expect("a known area").1;
        println!(
            "{}",
            match catch_unwind(AssertUnwindSafe(|| area(input))) {
                Ok(Ok(value)) => json!({ "seq": seq, "value": value }),
                Ok(Err(No::Invalid(why))) => json!({ "seq": seq, "invalid": why }),
                Ok(Err(No::Skipped(why))) => json!({ "seq": seq, "skipped": why }),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or(panic.downcast_ref::<&str>().copied());
                    json!({ "seq": seq, "error": text.unwrap_or("panic") })
                }
            }
        );
    }
}

/// The bytes of a hex string.
pub fn bytes(hex: &Value) -> Vec<u8> {
    hex::decode(hex.as_str().expect("a string")).expect("hex")
}

/// What `read` makes of each item of a list.
pub fn list<T>(items: &Value, read: impl FnMut(&Value) -> T) -> Vec<T> {
    items.as_array().expect("a list").iter().map(read).collect()
}
