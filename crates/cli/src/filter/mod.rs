//! The `filter` commands, and the file that they write.

mod build;
mod convert;
mod keys;
mod size;
mod test;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use chainsieve_filter::any::Param;
use chainsieve_report::{
    Exit, Input, Page, Reader, Report, UsageError, bytes, check_overwrite, folder_and_name,
    grouped, named, replace,
};
use serde_json::{Map, Value, json};

use crate::args::filter::FilterCommand;

pub(crate) fn run(command: &FilterCommand, json: bool) -> anyhow::Result<Report> {
    match command {
        FilterCommand::Size(args) => size::run(args),
        FilterCommand::Build(args) => build::run(args, json),
        FilterCommand::Test(args) => test::test(args, json),
        FilterCommand::Info(args) => test::info(args),
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

/// Returns an error, before any work is done, if `out` cannot be written or is one of the inputs.
pub(super) fn check_out<'a>(
    out: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
    (json, force): (bool, bool),
) -> anyhow::Result<()> {
    if is_stdout(out) {
        if json {
            return Err(UsageError(
                "--json and --out - both write to standard output: give --out a file",
            )
            .into());
        }
        return Ok(());
    }
    ensure!(!out.is_dir(), "cannot write {}: it is a directory", named(out));
    let (folder, _) = folder_and_name(out)?;
    ensure!(folder.is_dir(), "cannot write {}: no such directory", named(out));
    let place = |path: &Path| fs::canonicalize(path).ok();
    if let Some(out_place) = place(out)
        && out_place.is_file()
        && inputs.into_iter().any(|input| place(input).as_ref() == Some(&out_place))
    {
        return Err(UsageError("--out is also an input: give another file").into());
    }
    check_overwrite(out, force)
}

/// Returns `true` for `-`, which stands for standard output.
pub(super) fn is_stdout(out: &Path) -> bool {
    out.as_os_str() == "-"
}

/// Returns the report of a command that wrote a filter to `out`. If that is standard output, the page must
/// not be printed there.
fn written_report(
    out: &Path,
    mut fields: Vec<(&'static str, String)>,
    json: Value,
    warnings: Vec<String>,
) -> Report {
    let payload = is_stdout(out).then(String::new);
    if payload.is_none() {
        fields.push(("written to", named(out)));
    }
    let report = Report::new(Page::of_fields(fields), json, Exit::Yes);
    report.with_warnings(warnings).with_payload(payload)
}

/// Writes a filter.
pub(super) fn write_out(out: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if is_stdout(out) {
        let mut stdout = io::stdout().lock();
        return stdout.write_all(bytes).and_then(|()| stdout.flush()).context("standard output");
    }
    replace(out, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_stays_beside_it() {
        let folder = std::env::temp_dir().join(format!("chainsieve-out-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let out = folder.join("filter");
        write_out(&out, b"one").expect("written");
        write_out(&out, b"two").expect("written");
        assert_eq!(fs::read(&out).expect("there"), b"two");
        let names = || fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(names(), 1);
        // A name of the maximum length.
        let long = folder.join("n".repeat(255));
        write_out(&long, b"three").expect("written");
        assert_eq!((fs::read(&long).expect("there"), names()), (b"three".to_vec(), 2));
        #[cfg(unix)]
        for (link, to) in [("link", "filter"), ("dangling", "not-yet")] {
            let link = folder.join(link);
            std::os::unix::fs::symlink(to, &link).expect("a link");
            write_out(&link, b"four").expect("written");
            assert!(link.is_symlink(), "the link stays");
            assert_eq!(fs::read(folder.join(to)).expect("there"), b"four");
        }
        assert!(check_out(&out, [out.as_path()], (false, true)).is_err());
        assert!(check_out(&out, [], (false, false)).is_err(), "it exists");
        assert!(check_out(&out, [folder.join("keys").as_path()], (true, true)).is_ok());
        assert!(check_out(&folder, [], (false, false)).is_err());
        assert!(check_out(&folder.join("no/filter"), [], (false, false)).is_err());
        assert!(check_out(Path::new("-"), [], (false, false)).is_ok());
        assert!(check_out(Path::new("-"), [], (true, false)).is_err());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
