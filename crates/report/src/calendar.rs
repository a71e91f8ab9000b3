//! Conversions between Unix times and dates.

use core::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// A date and a time of day, both in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    /// The year.
    pub year: u64,
    /// The month, from 1 on.
    pub month: u64,
    /// The day of the month, from 1 on.
    pub day: u64,
    seconds: u64,
}

const DAY: u64 = 86_400;
/// Number of days in 400 years, after which the Gregorian calendar repeats.
const CYCLE: u64 = 146_097;

impl Utc {
    /// Returns the date of a number of seconds since 1970.
    ///
    /// Every `u64` has a date: timestamps of headers are untrusted and must not cause a panic.
    pub fn new(timestamp: u64) -> Self {
        // Years are counted from March, so that a leap day is the last day of its year (Hinnant's
        // civil_from_days).
        let days = timestamp / DAY + 719_468;
        let (cycle, day) = (days / CYCLE, days % CYCLE);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let march_month = (5 * day + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Self {
            year: cycle * 400 + year + u64::from(month <= 2),
            month,
            day: day - (153 * march_month + 2) / 5 + 1,
            seconds: timestamp % DAY,
        }
    }

    /// Returns the date of now.
    pub fn now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(now.as_secs())
    }

    /// Formats the date as `2023-07-13`.
    pub fn date(self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// Formats date and time as `2023-07-13 16:20:35 UTC`.
    pub fn date_time(self) -> String {
        let Self { seconds, .. } = self;
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        format!("{} {hours:02}:{minutes:02}:{seconds:02} UTC", self.date())
    }
}

/// Returns the Unix time at which a day starts in UTC; the year must be at least 1970.
pub fn midnight(year: u64, month: u64, day: u64) -> u64 {
    // Years are counted from March, as in `Utc::new` (Hinnant's days_from_civil).
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (cycle, year) = (year / 400, year % 400);
    let days = 365 * year + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1;
    (cycle * CYCLE + days - 719_468).saturating_mul(DAY)
}

/// Parses a day such as `2023-07-13` and returns the Unix time at which it starts in UTC.
///
/// Returns `None` if the text is not a day, if the day is before 1970, or if its start does not fit
/// into the 32 bits of a Bitcoin header's time.
pub fn day_start(text: &str) -> Option<u32> {
    let number = |digits: Range<usize>| text.get(digits)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let may_be = year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day);
    let found = may_be.then(|| midnight(year, month, day));
    u32::try_from(found.filter(|&at| Utc::new(at).date() == text)?).ok()
}

#[cfg(test)]
mod tests {
    use super::{Utc, day_start};

    #[test]
    fn days_begin_where_date_1_says() {
        for (day, expected) in [
            ("1970-01-01", Some(0)),
            ("2000-02-29", Some(951_782_400)),
            ("2015-12-31", Some(1_451_520_000)),
            ("2100-03-01", Some(4_107_542_400)),
            ("2106-02-07", Some(4_294_944_000)),
        ] {
            assert_eq!(day_start(day), expected, "{day}");
        }
        for none in [
            "2106-02-08",
            "2023-02-29",
            "1969-12-31",
            "1970-01-00",
            "2000-03-00",
            "2023-7-13",
            "2023-07-130",
            "",
            "20 3-07-13",
            "２０２3-07",
        ] {
            assert_eq!(day_start(none), None, "{none}");
        }
    }

    #[test]
    fn dates_are_those_of_date_1() {
        for (timestamp, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_438_269_973, "2015-07-30 15:26:13 UTC"),
            (1_704_067_199, "2023-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(Utc::new(timestamp).date_time(), expected);
        }
        assert_eq!(Utc::new(u64::MAX).year, 584_554_051_223);
    }
}
