//! Numbers as people write them: `1000`, `1_000`, `1,000`, `1e3`, `1.5e6`.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// Returns a parser of counts that rejects numbers outside `range`.
pub(crate) fn count<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: TryFrom<u64> + PartialOrd + Display + Clone,
{
    move |text| {
        let number = parse(text).ok_or("not a number: write 1000, 1_000 or 1e3")?;
        let found = T::try_from(number).ok().filter(|number| range.contains(number));
        found.ok_or_else(|| format!("{number} is not in {}..={}", range.start(), range.end()))
    }
}

/// Parses a whole number; returns `None` if the text is not a whole number of at most 64 bits.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse().ok()?),
        None => (text, 0_u32),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let zeros = exponent.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    if !whole.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let whole = whole.replace(['_', ','], "");
    let digits: u64 = format!("{whole}{fraction}").parse().ok()?;
    10_u64.checked_pow(zeros)?.checked_mul(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_write_them() {
        for (text, number) in [
            ("0", 0),
            ("1000", 1_000),
            ("1_000", 1_000),
            ("17,686,111", 17_686_111),
            ("1e6", 1_000_000),
            ("1.5E6", 1_500_000),
            ("1.50e1", 15),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for text in
            ["", "-1", "+1", "1.5", "1.55e1", "e3", "_1", "1e20", "1e", "0x10", "1 000", "²"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(count(1..=64_u16)("1e1"), Ok(10));
        assert_eq!(count(1..=64_u16)("65"), Err("65 is not in 1..=64".into()));
        assert_eq!(count(0..=255_u8)("1e9"), Err("1000000000 is not in 0..=255".into()));
    }
}
