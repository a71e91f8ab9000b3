//! The name of an enum value, as it is displayed, is parsed as the same value.

use core::fmt::{Debug, Display};
use core::str::FromStr;

use chainsieve_filter::count_min::UpdateRule;
use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::interop::guava::Strategy;
use chainsieve_filter::watch_set::WatchAnswer;
use chainsieve_filter::{Kind, UnknownName};

fn check<T>(values: impl IntoIterator<Item = T>, name: fn(T) -> &'static str)
where
    T: Copy + Debug + Display + PartialEq + FromStr<Err = UnknownName>,
{
    let mut names = Vec::new();
    for value in values {
        let name = name(value);
        assert_eq!(value.to_string(), name);
        assert_eq!(name.parse(), Ok(value));
        assert_eq!(name.replace('-', "_").parse(), Ok(value));
        names.push(name);
    }
    let error = "nothing".parse::<T>().expect_err("an unknown name");
    assert_eq!((&*error.name, error.known), ("nothing", &names[..]));
}

#[test]
fn names_are_read_as_written() {
    check(Kind::ALL, Kind::name);
    check([UpdateRule::Plain, UpdateRule::Conservative], UpdateRule::name);
    check([Strategy::Murmur128Mitz32, Strategy::Murmur128Mitz64], Strategy::name);
    check([WatchAnswer::No, WatchAnswer::Maybe, WatchAnswer::Yes], WatchAnswer::name);
    assert_eq!(HashFunction::Xxh64 { seed: 7 }.to_string(), "xxh64");
    assert_eq!(
        "mean".parse::<UpdateRule>().unwrap_err().to_string(),
        "\"mean\" is not a rule of updates: plain or conservative"
    );
}
