//! The `filter` commands.

mod build;
mod chart;
mod convert;
mod fill;
mod foreign;
mod hasher;
mod info;
mod keys;
mod out;
mod size;
mod test;

use chainsieve_filter::any::Param;
use chainsieve_report::{Input, Reader, Report, bytes, grouped};
use serde_json::{Map, Value, json};

use crate::args::filter::FilterCommand;

pub(crate) fn run(command: &FilterCommand, json: bool) -> anyhow::Result<Report> {
    match command {
        FilterCommand::Size(args) => size::run(args),
        FilterCommand::Build(args) => build::run(args, json),
        FilterCommand::Test(args) => test::run(args, json),
        FilterCommand::Info(args) => info::run(args),
        FilterCommand::Convert(args) => convert::run(args, json),
    }
}

/// Reads the bytes of a filter, raw or hex.
fn read(reader: &Reader, argument: &str) -> anyhow::Result<Input> {
    let input = reader.raw(argument, "filter")?;
    let is_hex = |byte: &u8| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace();
    if input.bytes.iter().all(is_hex) { input.unhex("filter") } else { Ok(input) }
}

/// Formats a parameter for people.
fn param_words(param: Param) -> String {
    match param {
        Param::Number(number) => grouped(number),
        Param::Fraction(fraction) => format!("{fraction}"),
        Param::Word(word) => word.to_owned(),
        // The enum is `non_exhaustive`, but this version has only the values above.
        other => format!("{other:?}"),
    }
}

/// Returns parameters as JSON, for programs.
fn params_json(params: Vec<(&'static str, Param)>) -> Value {
    let value = |param| match param {
        Param::Number(number) => json!(number),
        Param::Fraction(fraction) => json!(fraction),
        Param::Word(word) => json!(word),
        other => json!(format!("{other:?}")),
    };
    let member = |(name, param): (&str, Param)| (name.to_owned(), value(param));
    Value::Object(params.into_iter().map(member).collect::<Map<_, _>>())
}

/// Returns the bits per key; `None` for a filter without keys.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn bits_per_key(bits: u64, keys: u64) -> Option<f64> {
    (keys > 0).then(|| bits as f64 / keys as f64)
}

/// Formats the size of a filter's bits for people, with the bits per key.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn size_words(bits: u64, keys: u64) -> String {
    let size = bytes(bits as f64 / 8.0);
    match bits_per_key(bits, keys) {
        Some(bits) => format!("{size}, {bits:.2} bits per key"),
        None => size,
    }
}
