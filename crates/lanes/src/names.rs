//! Names of enum values: one table for each type, which `name`, `Display` and `FromStr` share.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use core::fmt;

/// Error: the text is not a name of any value of the parsed type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownName {
    /// The kind of value that the text should have named, for example `a status`.
    pub what: &'static str,
    /// The unknown name.
    pub name: String,
    /// All names of the type.
    pub known: &'static [&'static str],
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}: ", self.name, self.what)?;
        for (index, name) in self.known.iter().enumerate() {
            let before = match index {
                0 => "",
                _ if index + 1 == self.known.len() => " or ",
                _ => ", ",
            };
            write!(f, "{before}{name}")?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownName {}

/// Returns the index of a name. `-` and `_` are the same, because commands write names with `-`.
///
/// # Errors
/// Returns an error if the name is not known.
pub fn index_of(
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

/// Implements `Display` and `FromStr` of an enum from its `name`, `NAMES` and `ALL`.
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    ($type:ident, $what:literal) => {
        /// Writes the [name](Self::name).
        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        /// Reads a [name](Self::name). `-` and `_` are the same.
        impl core::str::FromStr for $type {
            type Err = $crate::names::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Ok(Self::ALL[$crate::names::index_of($what, Self::NAMES, name)?])
            }
        }
    };
}

/// Defines `name` of an enum without fields from one table of its names, and implements
/// [`named!`].
#[doc(hidden)]
#[macro_export]
macro_rules! names {
    ($type:ident, $what:literal: $($value:ident = $name:literal),+ $(,)?) => {
        impl $type {
            pub(crate) const NAMES: &'static [&'static str] = &[$($name),+];
            pub(crate) const ALL: &'static [Self] = &[$(Self::$value),+];

            #[doc = concat!(
                "Returns the name, which `Display` writes and `FromStr` reads:",
                $(" `", $name, "`",)+ "."
            )]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        $crate::names::named!($type, $what);
    };
}

#[doc(hidden)]
pub use named;

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use crate::names::index_of;

    #[test]
    fn an_unknown_name_is_reported_with_all_names() {
        assert_eq!(index_of("a colour", &["dark_red", "green"], "dark-red"), Ok(0));
        assert_eq!(index_of("a colour", &["dark-red", "green"], "dark_red"), Ok(0));
        let error = |known, name| index_of("a colour", known, name).unwrap_err().to_string();
        assert_eq!(
            error(&["red", "green", "blue"], "Red"),
            "\"Red\" is not a colour: red, green or blue"
        );
        assert_eq!(error(&["red"], "re"), "\"re\" is not a colour: red");
        assert_eq!(error(&["red"], "redd"), "\"redd\" is not a colour: red");
    }
}
