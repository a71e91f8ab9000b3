//! Fixed names of values: one table for each type.

use alloc::string::String;

use thiserror::Error;

/// Reason why a text cannot be parsed: it is not one of the names of a type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown {what} {found:?}, the names are {}", names.join(", "))]
#[non_exhaustive]
pub struct UnknownName {
    /// What the text should name, such as "protocol".
    pub what: &'static str,
    /// The text.
    pub found: String,
    /// All names that are known.
    pub names: &'static [&'static str],
}

/// Implements `name`, `Display`, `FromStr` and `serde` for an enum whose variants have no fields,
/// from one table of its names.
macro_rules! names {
    ($type:ident, $what:literal, $first:ident => $first_name:literal
        $(, $variant:ident => $name:literal)* $(,)?) => {
        impl $type {
            #[doc = concat!(
                "Returns the fixed name, which `Display` writes and `FromStr` reads: `",
                $first_name, "`" $(, ", `", $name, "`")*, "."
            )]
            pub fn name(self) -> &'static str {
                match self {
                    Self::$first => $first_name,
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        impl core::str::FromStr for $type {
            type Err = $crate::btc::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $first_name => Ok(Self::$first),
                    $($name => Ok(Self::$variant),)*
                    _ => Err($crate::btc::UnknownName {
                        what: $what,
                        found: text.into(),
                        names: &[$first_name $(, $name)*],
                    }),
                }
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <alloc::string::String as serde::Deserialize>::deserialize(deserializer)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(in crate::btc) use names;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use core::fmt::{Debug, Display};
    use core::str::FromStr;

    use super::UnknownName;
    use crate::btc::bip37::UpdateMode;
    use crate::btc::{bip158, script, wallet};

    fn check<T: FromStr<Err = UnknownName> + Display + Debug>() {
        let names = "?".parse::<T>().unwrap_err().names;
        assert!(names.len() > 1);
        for name in names {
            let value: T = name.parse().unwrap();
            assert_eq!(value.to_string(), *name);
        }
    }

    #[test]
    fn every_name_is_read_again() {
        check::<UpdateMode>();
        check::<bip158::Acceptance>();
        check::<bip158::Witnesses>();
        check::<bip158::audit::Basis>();
        check::<script::ScriptType>();
        check::<wallet::History>();
        check::<wallet::Outcome>();
        #[cfg(feature = "descriptors")]
        check::<wallet::LookAhead>();
        #[cfg(feature = "std")]
        check::<crate::btc::bip157::Why>();
        #[cfg(all(feature = "std", feature = "descriptors"))]
        {
            check::<crate::btc::client::Evidence>();
            check::<crate::btc::client::Protocol>();
            check::<crate::btc::client::Why>();
        }
    }

    #[test]
    fn the_error_tells_the_names() {
        let error = "p2pubkey-only".parse::<UpdateMode>().unwrap_err();
        let expected =
            r#"unknown update mode "p2pubkey-only", the names are none, all, p2pubkey_only"#;
        assert_eq!(error.to_string(), expected);
    }
}
