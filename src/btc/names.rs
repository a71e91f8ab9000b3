//! Names of enum values in JSON: those that `Display` writes.

/// Defines the names of an enum without fields from one table. With the feature `serde`, the JSON
/// of the enum uses the same names.
macro_rules! names {
    ($type:ident, $what:literal: $($value:ident = $name:literal),+ $(,)?) => {
        chainsieve_lanes::names! { $type, $what: $($value = $name),+ }

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

    use chainsieve_lanes::names::UnknownName;

    use crate::btc::bip37::UpdateMode;
    use crate::btc::{bip158, script, wallet};

    fn check<T: FromStr<Err = UnknownName> + Display + Debug>() {
        let names = "?".parse::<T>().unwrap_err().known;
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
        check::<crate::btc::bip157::ScanReason>();
        #[cfg(all(feature = "std", feature = "descriptors"))]
        {
            check::<crate::btc::client::InclusionEvidence>();
            check::<crate::btc::client::Protocol>();
            check::<crate::btc::client::HitReason>();
        }
    }

    #[test]
    fn the_error_tells_the_names() {
        let error = "p2pubkey only".parse::<UpdateMode>().unwrap_err();
        let expected = r#""p2pubkey only" is not an update mode: none, all or p2pubkey_only"#;
        assert_eq!(error.to_string(), expected);
    }
}
