//! The command `filter test`.

use chainsieve_report::{Lines, Page, Progress, Reader, Report, UsageError, decode_hex, estimate, grouped, json_line, plain_or_quoted, rate, shorten};
use serde_json::json;

use crate::args::filter::{Answers, TestArgs};
use super::foreign::{self, Asked};
use super::keys::{KeyBatch, KeyLines, stdin_once};

pub(crate) fn run(args: &TestArgs, json: bool) -> anyhow::Result<Report> {
    let files = args.file.iter().map(AsRef::as_ref);
    let arguments = [&args.filter].into_iter().chain(&args.keys).map(AsRef::as_ref);
    stdin_once(arguments.chain(files))?;
    let key_hasher = foreign::key_hasher(args.format, &args.key_hash)?;
    let input = super::read(&Reader::default(), &args.filter)?;
    let filter = foreign::read(args.format, &input, key_hasher)?;
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
            "warnings": warnings,
        });
        let mut page = Page::default();
        let empty = match self.empty {
            0 => String::new(),
            lines => format!("; empty lines: {}", grouped(lines)),
        };
        page.fields(vec![
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
        page.warnings(&warnings);
        // The answers are on standard output, so the page is printed on standard error: a program
        // that reads the answers must not read the page as further answers.
        Report::new(page, json, self.maybe > 0).with_payload(String::new()).after_lines()
    }
}
