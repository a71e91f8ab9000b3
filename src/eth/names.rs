//! Names of enum values: one table for each type, which `Display`, `FromStr` and `name` share.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use core::fmt;

/// Error: a text is not a name of the type that it was parsed as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not {what}: {}", Listed(.known))]
#[non_exhaustive]
pub struct UnknownName {
    /// What the text should have named, for example `a status`.
    pub what: &'static str,
    /// The unknown name.
    pub name: String,
    /// All names of the type.
    pub known: &'static [&'static str],
}

/// Writes names as a list: `a, b or c`.
struct Listed<'a>(&'a [&'static str]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(names) = self;
        for (index, name) in names.iter().enumerate() {
            let before = match index {
                0 => "",
                _ if index + 1 == names.len() => " or ",
                _ => ", ",
            };
            write!(f, "{before}{name}")?;
        }
        Ok(())
    }
}

/// Returns the index of a name. `-` and `_` are the same, because commands write names with `-`.
pub(super) fn index_of(
    what: &'static str,
    known: &'static [&'static str],
    name: &str,
) -> Result<usize, UnknownName> {
    let letter = |byte| if byte == b'-' { b'_' } else { byte };
    let is_it = |known: &&str| {
        let mut letters = known.bytes().zip(name.bytes());
        known.len() == name.len() && letters.all(|(a, b)| letter(a) == letter(b))
    };
    let index = known.iter().position(is_it);
    index.ok_or_else(|| UnknownName { what, name: name.to_owned(), known })
}

/// Defines `name`, `Display` and `FromStr` of an enum without fields from one table of its names.
/// `serde` must write the same names: `names_tests` checks it for each type.
macro_rules! names {
    ($type:ident, $what:literal: $($value:ident = $name:literal),+ $(,)?) => {
        impl $type {
            pub(in crate::eth) const NAMES: &'static [&'static str] = &[$($name),+];
            pub(in crate::eth) const VALUES: &'static [Self] = &[$(Self::$value),+];

            /// Returns the name, which `Display` and `serde` write and `FromStr` reads.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        /// Writes the [name](Self::name).
        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        /// Reads a [name](Self::name). `-` may be written for `_`.
        impl core::str::FromStr for $type {
            type Err = crate::eth::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Ok(Self::VALUES[crate::eth::names::index_of($what, Self::NAMES, name)?])
            }
        }
    };
}

pub(super) use names;

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::index_of;

    #[test]
    fn an_unknown_name_is_reported_with_all_names() {
        assert_eq!(index_of("a colour", &["dark_red", "green"], "dark-red"), Ok(0));
        let error = |known, name| index_of("a colour", known, name).unwrap_err().to_string();
        assert_eq!(
            error(&["red", "green", "blue"], "Red"),
            "\"Red\" is not a colour: red, green or blue"
        );
        assert_eq!(error(&["red"], "re"), "\"re\" is not a colour: red");
        assert_eq!(error(&["red"], "redd"), "\"redd\" is not a colour: red");
    }
}
