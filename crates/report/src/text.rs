//! Texts and numbers for people, and the escaping of text from untrusted sources.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _};
use std::sync::LazyLock;
use std::time::Duration;

use indicatif::HumanCount;

/// Escapes every character that a terminal does not show as itself: control characters, line breaks,
/// marks of writing direction. The text then stays on one line, even if it comes from a file, a name
/// or a server. Quotes and backslashes are not escaped, because text that was quoted before contains
/// them.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let kept = ['"', '\'', '\\'];
    let mut out = String::with_capacity(text.len() + 8);
    for part in text.split_inclusive(kept) {
        let (part, end) = part.split_at(part.trim_end_matches(kept).len());
        out.extend(part.escape_debug());
        out.push_str(end);
    }
    Cow::Owned(out)
}

/// Returns a name or another word as it is, or escaped and quoted if the terminal would not show it
/// as it is.
pub fn plain_or_quoted(text: &str) -> Cow<'_, str> {
    if printable(text) == text { Cow::Borrowed(text) } else { format!("{text:?}").into() }
}

/// Escapes the characters in JSON that a terminal does not show as themselves, and that JSON allows
/// in strings. A program reads the same strings.
pub fn printable_json(json: String) -> String {
    let steers = |c: char| c > '~' && c.escape_debug().len() > 1;
    if !json.contains(steers) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if steers(c) {
            out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// Formats a rate: `12.5 %`, `1 in 9873`, `0`.
pub fn rate(rate: f64) -> String {
    rate_in(rate, grouped)
}

/// Formats a rate with separators in its numbers: `1 in 9,873`. Charts and the demo use this,
/// because only people read them.
pub fn rate_with_separators(rate: f64) -> String {
    rate_in(rate, with_separators)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded for people")]
fn rate_in(rate: f64, number: impl Fn(u64) -> String) -> String {
    if rate <= 0.0 {
        "0".into()
    } else if rate >= 0.1 {
        format!("{:.1} %", rate * 100.0)
    } else if rate < 1e-18 {
        format!("{rate:.0e}")
    } else {
        format!("1 in {}", number((1.0 / rate).round() as u64))
    }
}

/// Formats a share of blocks, with about two significant digits: `12.5 %`, `0.032 %`.
pub fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        ..=0.0 => "0 %".into(),
        ..0.0001 => "< 0.0001 %".into(),
        ..0.001 => format!("{percent:.5} %"),
        ..0.01 => format!("{percent:.4} %"),
        ..0.1 => format!("{percent:.3} %"),
        ..1.0 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// Formats an estimate with two significant digits.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded for people")]
pub fn estimate(estimate: f64) -> String {
    match estimate {
        ..0.05 => "0".into(),
        ..10.0 => format!("{estimate:.1}"),
        estimate => {
            let unit = 10_f64.powf(estimate.log10().floor() - 1.0).max(1.0);
            grouped(((estimate / unit).round() * unit) as u64)
        }
    }
}

/// Formats a number of bytes: `86 kB`, `1.3 GB`.
pub fn bytes(bytes: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes / unit < 10.0 => format!("{:.1} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.0} {name}", bytes / unit),
        None => format!("{bytes:.0} bytes"),
    }
}

/// Formats a duration: `12 µs`, `1.2 ms`, `48.1 s`.
pub fn duration(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    match micros {
        ..1e3 => format!("{micros:.0} µs"),
        ..1e6 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.1} s", micros / 1e6),
    }
}

/// Formats a number as `36,000` on a terminal, and as `36000` in a pipe, for other programs.
pub fn grouped(number: impl TryInto<u64>) -> String {
    static IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| io::stdout().is_terminal());
    let number = number.try_into().unwrap_or(u64::MAX);
    if *IS_TERMINAL { with_separators(number) } else { number.to_string() }
}

/// Formats a number as `36,000` even in a pipe. Charts and the demo use this, because only people
/// read them.
pub fn with_separators(number: impl TryInto<u64>) -> String {
    HumanCount(number.try_into().unwrap_or(u64::MAX)).to_string()
}

/// Formats a number with a noun: `1 byte`, `2 bytes`.
pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Formats the number of blocks in a range, and the range: `8,192, 0 to 8,191`.
pub fn span(first: u64, last: u64, blocks: u64) -> String {
    format!("{}, {} to {}", grouped(blocks), grouped(first), grouped(last))
}

/// Converts a number for a computation. The result is only shown to people, so it may be inexact.
#[expect(clippy::cast_precision_loss, reason = "a count for people")]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// Escapes each line except its line break: LF, or CR LF in CSV.
pub(crate) fn printable_lines(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for line in text.split_inclusive('\n') {
        let end =
            line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line));
        out.extend([&*printable(end), &line[end.len()..]]);
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn numbers_for_people() {
        // A test may run in a terminal or in a pipe.
        assert_eq!(rate(0.0001), format!("1 in {}", grouped(10_000_u64)));
        assert_eq!(grouped(36_000_u64).replace(',', ""), "36000");
        assert_eq!(rate_with_separators(0.0001), "1 in 10,000");
        let numbers = [0_u64, 999, 1_000, 12_345_678].map(with_separators);
        assert_eq!(numbers, ["0", "999", "1,000", "12,345,678"]);
        assert_eq!(rate(1.0), "100.0 %");
        assert_eq!(rate(0.0), "0");
        let shares = [0.0, 1e-9, 0.000_012, 0.004_2, 0.125, 1.0].map(share);
        assert_eq!(shares, ["0 %", "< 0.0001 %", "0.0012 %", "0.42 %", "12.5 %", "100.0 %"]);
    }

    /// Control characters of C0 and C1, line breaks, and marks of writing direction.
    const STEERING: &str =
        "a\u{1b}[2J\r\n\t\u{0}\u{7f}\u{85}\u{9b}\u{200f}\u{202e}\u{2028}\u{2066}z";

    #[test]
    fn text_stays_on_its_line() {
        let escaped =
            "a\\u{1b}[2J\\r\\n\\t\\0\\u{7f}\\u{85}\\u{9b}\\u{200f}\\u{202e}\\u{2028}\\u{2066}z";
        assert_eq!(printable(STEERING), escaped);
        assert_eq!(plain_or_quoted(STEERING), format!("\"{escaped}\""));
        for plain in ["", "it's", "\"a\\n\"", "Δx ≤ 7 – 日本語", "e\u{301}"] {
            assert_eq!(printable(plain), plain);
            assert_eq!(plain_or_quoted(plain), plain);
        }
        // The line breaks between lines stay, also those of CSV.
        assert_eq!(printable_lines("a\n\u{9b}b\r\nc\r"), "a\n\\u{9b}b\r\nc\\r");
    }

    #[test]
    fn json_is_read_as_before() {
        let json = json!({ STEERING: [STEERING, "\u{e0001}é"] });
        let text = printable_json(json.to_string());
        assert!(!text.chars().any(|c| c.is_control() || ('\u{2000}'..='\u{20ff}').contains(&c)));
        assert!(
            text.contains("\\u202e\\u2028\\u2066") && text.contains("\\udb40\\udc01é"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json);
    }
}
