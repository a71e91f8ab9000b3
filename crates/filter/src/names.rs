//! Names of enum values: one table for each type, which `Display`, `FromStr` and `name` share.

use alloc::borrow::ToOwned as _;
use alloc::string::String;

/// Error: a text is not a name of the type that it was parsed as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not {what}: known are {}", .known.join(", "))]
#[non_exhaustive]
pub struct UnknownName {
    /// What the text should have named, for example `a kind of filter`.
    pub what: &'static str,
    /// The unknown name.
    pub name: String,
    /// All names of the type.
    pub known: &'static [&'static str],
}

/// Returns the index of a name. `-` and `_` are the same.
pub(crate) fn index_of(
    what: &'static str,
    known: &'static [&'static str],
    name: &str,
) -> Result<usize, UnknownName> {
    let letter = |byte| if byte == b'_' { b'-' } else { byte };
    let is_it = |known: &&str| {
        let mut letters = known.bytes().zip(name.bytes());
        known.len() == name.len() && letters.all(|(a, b)| letter(a) == letter(b))
    };
    let index = known.iter().position(is_it);
    index.ok_or_else(|| UnknownName { what, name: name.to_owned(), known })
}

/// Implements `Display` and `FromStr` of an enum from its `name`, `NAMES` and `ALL`.
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
            type Err = crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Ok(Self::ALL[crate::names::index_of($what, Self::NAMES, name)?])
            }
        }
    };
}

/// Defines `name` of an enum without fields from one table of its names, and implements
/// [`named!`](named).
macro_rules! names {
    ($type:ident, $what:literal: $($value:ident = $name:literal),+ $(,)?) => {
        impl $type {
            const NAMES: &'static [&'static str] = &[$($name),+];
            const ALL: &'static [Self] = &[$(Self::$value),+];

            /// Returns the name, which `Display` writes and `FromStr` reads.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        crate::names::named!($type, $what);
    };
}

pub(crate) use {named, names};
