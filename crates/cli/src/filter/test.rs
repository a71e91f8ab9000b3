//! The commands `filter test` and `filter info`.

use std::ffi::OsStr;

use chainsieve_filter::KeyHasher;
use chainsieve_report::{
    Exit, Lines, Page, Progress, Reader, Report, UsageError, count, decode_hex, estimate, grouped,
    json_line, plain_or_quoted, rate, share, shorten,
};
use serde_json::json;

use super::convert::{Asked, key_hasher, read_foreign, says_hasher, says_len};
use super::keys::{KeyBatch, KeyLines, hash_words, seed_hex};
use super::{bits_per_key, param_words, params_json, size_words};
use crate::args::filter::{Answers, Format, InfoArgs, TestArgs};
use crate::args::word;

pub(crate) fn test(args: &TestArgs, json: bool) -> anyhow::Result<Report> {
    let files = args.file.iter().map(AsRef::<OsStr>::as_ref);
    let arguments = [&args.filter].into_iter().chain(&args.keys).map(AsRef::as_ref);
    let reader = Reader::of(arguments.chain(files))?;
    let key_hasher = key_hasher(args.format, &args.key_hash)?;
    let input = super::read(&reader, &args.filter)?;
    let filter = read_foreign(args.format, &input, key_hasher)?;
    let mut asking = Asking {
        filter: &filter,
        show: args.show,
        hex: args.hex,
        json,
        batch: KeyBatch::default(),
        lines: Lines::default(),
        asked: 0,
        maybe: 0,
        empty: 0,
    };
    for key in args.keys.iter().filter(|key| *key != "-") {
        if args.hex {
            let digits = key.trim();
            let key = decode_hex(digits.strip_prefix("0x").unwrap_or(digits));
            asking.ask(&key.map_err(|error| error.context(format!("key {}", shorten(digits))))?)?;
        } else {
            asking.ask(key.as_bytes())?;
        }
    }
    let progress = Progress::over_files(args.file.iter().filter_map(|file| file.to_str()));
    let stdin = args.keys.iter().any(|key| key == "-").then_some("-".as_ref());
    let mut before = 0;
    for path in args.file.iter().map(AsRef::as_ref).chain(stdin) {
        let mut lines = KeyLines::open(path, args.hex)?;
        while let Some(key) = lines.next_key()? {
            asking.ask(key)?;
            if asking.lines.is_closed() {
                break;
            }
            if asking.asked.is_multiple_of(65_536) {
                progress.at(before + lines.offset());
            }
        }
        before += lines.offset();
        asking.empty += lines.empty;
    }
    asking.answer()?;
    drop(progress);
    if asking.asked == 0 && asking.empty == 0 && stdin.is_none() && args.file.is_empty() {
        return Err(UsageError("no key to test: give KEY, --file or -").into());
    }
    Ok(asking.report())
}

/// A filter, and the counts of keys tested so far.
struct Asking<'a> {
    filter: &'a Asked,
    show: Answers,
    hex: bool,
    json: bool,
    /// Keys that were read and are not tested yet.
    batch: KeyBatch,
    lines: Lines,
    asked: u64,
    maybe: u64,
    empty: u64,
}

impl Asking<'_> {
    fn ask(&mut self, key: &[u8]) -> anyhow::Result<()> {
        self.batch.push(key);
        self.asked += 1;
        if self.batch.is_full() { self.answer() } else { Ok(()) }
    }

    /// Tests the keys of the batch and prints the answers.
    fn answer(&mut self) -> anyhow::Result<()> {
        let keys = self.batch.keys();
        let mut answers = vec![false; keys.len()];
        self.filter.contains_batch(&keys, &mut answers);
        let mut text = String::new();
        for (key, may_contain) in keys.iter().zip(answers) {
            self.maybe += u64::from(may_contain);
            let is_shown = match self.show {
                Answers::All => true,
                Answers::Maybe => may_contain,
                Answers::No => !may_contain,
                Answers::None => false,
            };
            if is_shown {
                self.write_line(&mut text, key, may_contain);
            }
        }
        drop(keys);
        self.batch.clear();
        if !text.is_empty() {
            self.lines.print(&text)?;
        }
        Ok(())
    }

    fn write_line(&self, text: &mut String, key: &[u8], may_contain: bool) {
        let words = if self.hex { hex::encode(key).into() } else { String::from_utf8_lossy(key) };
        if self.json {
            let mut members = json!({ "key": words, "may_contain": may_contain });
            if !self.hex && str::from_utf8(key).is_err() {
                members["key_hex"] = hex::encode(key).into();
            }
            *text += &json_line("answer", members);
        } else {
            let answer = if may_contain { "maybe  " } else { "no     " };
            text.extend([answer, &plain_or_quoted(&words), "\n"]);
        }
    }

    fn report(self) -> Report {
        let stats = self.filter.stats();
        let fpr = stats.expected_fpr;
        #[expect(clippy::cast_precision_loss, reason = "an expectation")]
        let by_chance = self.asked as f64 * fpr;
        let no = self.asked - self.maybe;
        let mut warnings = Vec::new();
        if stats.fill == 0.0 && stats.len == 0 {
            warnings.push("the filter is empty: every answer is \"no\"".to_owned());
        }
        let json = json!({
            "asked": self.asked,
            "maybe": self.maybe,
            "no": no,
            "empty": self.empty,
            "rate": fpr,
            "expected_by_chance": by_chance,
        });
        let empty = match self.empty {
            0 => String::new(),
            lines => format!("; empty lines: {}", grouped(lines)),
        };
        let page = Page::of_fields(vec![
            ("asked", format!("{}{empty}", grouped(self.asked))),
            ("maybe", grouped(self.maybe)),
            ("no", format!("{}, certain", grouped(no))),
            (
                "by chance",
                format!(
                    "{} of other keys: about {} of these {}",
                    rate(fpr),
                    estimate(by_chance),
                    grouped(self.asked)
                ),
            ),
        ]);
        // The answers are on standard output, so the page is printed on standard error: a program
        // that reads the answers must not read the page as further answers.
        let report = Report::new(page, json, self.maybe > 0).with_warnings(warnings);
        report.with_payload(String::new()).after_lines()
    }
}

pub(crate) fn info(args: &InfoArgs) -> anyhow::Result<Report> {
    let input = super::read(&Reader::default(), &args.filter)?;
    let format = args.format;
    let filter = read_foreign(format, &input, None)?;
    let is_native = format == Format::Native;
    let is_len_known = says_len(format);
    let stats = filter.stats();
    let hasher = says_hasher(format).then(|| filter.hasher());
    let mut warnings = Vec::new();
    if stats.len == 0 && is_len_known {
        warnings.push("the filter is empty: every answer is \"no\"".to_owned());
    }
    if stats.expected_fpr > 0.5 {
        warnings.push(format!(
            "the false-positive rate is {}: the filter rules out few keys",
            rate(stats.expected_fpr)
        ));
    }
    let json = json!({
        "format": word(&format),
        "kind": filter.kind_name(),
        "version": is_native.then_some(1),
        "checksum": is_native.then_some("fits"),
        "hash": hasher.map(KeyHasher::name),
        "seed": hasher.and_then(seed_hex),
        "keys": is_len_known.then_some(stats.len),
        "estimated_keys": stats.estimated_len.filter(|keys| keys.is_finite()),
        "bytes": input.bytes.len(),
        "bits": stats.num_bits,
        "bits_per_key": bits_per_key(stats.num_bits, stats.len).filter(|_| is_len_known),
        "fill": stats.fill,
        "rate": stats.expected_fpr,
        "parameters": params_json(filter.params()),
    });
    let checked = if is_native { ", version 1; the checksum matches" } else { "" };
    let hash = hasher
        .map_or_else(|| "unknown: the format does not store the hash function".into(), hash_words);
    let estimated = stats.estimated_len.filter(|keys| keys.is_finite());
    let about = estimated.map(|keys| format!("about {} estimated from the fill", estimate(keys)));
    let keys = match (is_len_known, about) {
        (true, Some(about)) => format!("{} by the stored count, {about}", grouped(stats.len)),
        (true, None) => format!("{} by the stored count", grouped(stats.len)),
        (false, Some(about)) => about,
        (false, None) => "unknown".into(),
    };
    let mut fields = vec![
        ("kind", filter.kind_name().to_owned()),
        ("format", format!("{}{checked}", word(&format))),
        ("hash", hash),
        ("keys", keys),
        ("size", size_words(stats.num_bits, stats.len)),
        ("file", count(input.bytes.len(), "byte")),
        ("fill", share(stats.fill)),
        ("rate", format!("{} of other keys match too", rate(stats.expected_fpr))),
    ];
    fields.extend(filter.params().into_iter().map(|(name, param)| (name, param_words(param))));
    Ok(Report::new(Page::of_fields(fields), json, Exit::Yes).with_warnings(warnings))
}
