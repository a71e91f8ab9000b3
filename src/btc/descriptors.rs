//! The output scripts of a descriptor (feature `descriptors`), for a wallet to watch.
//!
//! Filters contain scripts, and wallets describe their scripts by descriptors.
//! [`descriptor_scripts`] derives the scripts of a descriptor for a range of indices, with ranged
//! (`…/*`) and multipath (`…/<0;1>/*`) keys.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::str::FromStr as _;

use bitcoin::ScriptBuf;
use bitcoin::bip32::ChildNumber;
use miniscript::descriptor::{DescriptorPublicKey, Wildcard};
use miniscript::{Descriptor, ForEachKey as _};
use secp256k1::Secp256k1;
use thiserror::Error;

/// Number of non-hardened child indices (BIP32): 2³¹.
pub(super) const NUM_INDICES: u32 = 1 << 31;

/// An output script of a descriptor, with the path and index of its derivation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DescriptorScript {
    /// Position of the alternative of a multipath descriptor, from 0; 0 for a descriptor with one
    /// path.
    pub path: u32,
    /// The child index that replaces `*`; `None` if the descriptor has no wildcard.
    pub index: Option<u32>,
    /// The script of an output that pays to the descriptor.
    pub script: ScriptBuf,
}

/// Returns the scripts of `descriptor` for the indices in `range`.
///
/// For a multipath descriptor, all indices of the first alternative come first, then all indices of
/// the next alternative.
///
/// If the descriptor has no wildcard, `range` is ignored and there is one script for each
/// alternative. A descriptor with a private key is rejected, because watching does not need private
/// keys.
///
/// # Errors
/// Returns an error if the descriptor is malformed or contains a private key, if an index is 2³¹ or
/// more, or if public derivation cannot reach a key.
///
/// # Cost
/// Each key and index needs at least one elliptic-curve multiplication, which takes about 50 µs.
///
/// # Examples
/// ```
/// use chainsieve::btc::descriptors::descriptor_scripts;
/// // The receiving and change addresses of BIP84's test wallet.
/// let wallet = "wpkh([73c5da0a/84'/0'/0']xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V/<0;1>/*)";
/// let scripts = descriptor_scripts(wallet, 0..=1)?;
/// assert_eq!(scripts.len(), 4);
/// assert_eq!(
///     hex::encode(&scripts[0].script),
///     "0014c0cebcd6c3d3ca8c75dc5ec62ebe55330ef910e2",
/// );
/// assert_eq!((scripts[3].path, scripts[3].index), (1, Some(1)));
/// # Ok::<(), chainsieve::btc::descriptors::DescriptorError>(())
/// ```
pub fn descriptor_scripts(
    descriptor: &str,
    range: RangeInclusive<u32>,
) -> Result<Vec<DescriptorScript>, DescriptorError> {
    let parsed = parse(descriptor)?;
    let ranged = parsed.has_wildcard();
    if ranged && *range.end() >= NUM_INDICES {
        return Err(DescriptorError::IndexTooLarge(*range.end()));
    }
    let alternatives = parsed
        .into_single_descriptors()
        .map_err(|error| DescriptorError::Malformed(error.to_string()))?;
    let secp = Secp256k1::verification_only();
    let mut scripts = Vec::new();
    for (path, alternative) in (0..).zip(alternatives) {
        check_derivable(&alternative)?;
        let mut derive = |index: Option<u32>| {
            let derived = alternative
                .derived_descriptor(&secp, index.unwrap_or(0))
                .map_err(|error| DescriptorError::Underivable(error.to_string()))?;
            scripts.push(DescriptorScript { path, index, script: derived.script_pubkey() });
            Ok(())
        };
        if ranged {
            range.clone().try_for_each(|index| derive(Some(index)))?;
        } else {
            derive(None)?;
        }
    }
    Ok(scripts)
}

/// Returns `true` if `descriptor` has a wildcard, so that [`descriptor_scripts`] uses the range.
///
/// # Errors
/// Returns an error if the descriptor is malformed or contains a private key.
pub fn is_ranged(descriptor: &str) -> Result<bool, DescriptorError> {
    Ok(parse(descriptor)?.has_wildcard())
}

fn parse(descriptor: &str) -> Result<Descriptor<DescriptorPublicKey>, DescriptorError> {
    Descriptor::from_str(descriptor).map_err(|error| {
        // For a private key, miniscript's own message is that a public key is malformed. A private
        // key is recognised only by its first letters, since one public key in 100,000 contains
        // these letters further on.
        let mut keys = descriptor.split(['(', ',', ']', '{']);
        if keys.any(|key| ["xprv", "tprv"].iter().any(|prefix| key.starts_with(prefix))) {
            DescriptorError::PrivateKey
        } else {
            DescriptorError::Malformed(error.to_string())
        }
    })
}

/// Checks that public derivation reaches all keys: no hardened step after an extended key, and no
/// key below depth 255, where miniscript panics.
fn check_derivable(descriptor: &Descriptor<DescriptorPublicKey>) -> Result<(), DescriptorError> {
    let mut result = Ok(());
    descriptor.for_each_key(|key| {
        let DescriptorPublicKey::XPub(key) = key else { return true };
        let wildcard = usize::from(key.wildcard != Wildcard::None);
        let depth = usize::from(key.xkey.depth) + key.derivation_path.len() + wildcard;
        if key.wildcard == Wildcard::Hardened
            || key.derivation_path.into_iter().any(ChildNumber::is_hardened)
        {
            result = Err(DescriptorError::Underivable(format!(
                "a hardened step after {} needs the private key",
                key.xkey
            )));
        } else if depth > usize::from(u8::MAX) {
            result = Err(DescriptorError::Underivable(format!(
                "a key at depth {depth}, the limit is {}",
                u8::MAX
            )));
        }
        result.is_ok()
    });
    result
}

/// Reason why the scripts of a descriptor cannot be derived.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "error", rename_all = "snake_case")
)]
pub enum DescriptorError {
    /// The descriptor is malformed; the text is miniscript's reason.
    #[error("malformed descriptor: {0}")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::reason"))]
    Malformed(String),
    /// The descriptor contains a private extended key.
    #[error("descriptor contains a private key, but watching needs only public keys")]
    PrivateKey,
    /// Public derivation cannot reach a key; the text gives the reason.
    #[error("descriptor cannot be derived: {0}")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::reason"))]
    Underivable(String),
    /// An index is 2³¹ or more.
    #[error("child index {0}, the limit is {max}", max = NUM_INDICES - 1)]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::index"))]
    IndexTooLarge(u32),
}

#[cfg(test)]
mod tests {
    use bitcoin::bip32::Xpub;

    use super::*;

    const XPUB: &str = "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V";

    fn address(script: &ScriptBuf) -> String {
        bitcoin::Address::from_script(script, bitcoin::Network::Bitcoin).unwrap().to_string()
    }

    #[test]
    fn bip84_test_vectors() {
        let scripts = descriptor_scripts(&format!("wpkh({XPUB}/<0;1>/*)"), 0..=1).unwrap();
        let found: Vec<_> = scripts.iter().map(|s| (s.path, s.index, address(&s.script))).collect();
        let expected = [
            (0, 0, "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"),
            (0, 1, "bc1qnjg0jd8228aq7egyzacy8cys3knf9xvrerkf9g"),
            (1, 0, "bc1q8c6fshw2dlwun7ekn9qwf37cu2rn755upcp6el"),
        ];
        assert_eq!(found.len(), 4);
        for (found, (path, index, address)) in found.iter().zip(expected) {
            assert_eq!(*found, (path, Some(index), String::from(address)));
        }
    }

    #[test]
    fn without_a_wildcard_the_range_is_not_looked_at() {
        let scripts = descriptor_scripts(&format!("pkh({XPUB}/0/7)"), 5..=u32::MAX).unwrap();
        assert_eq!((scripts.len(), scripts[0].index), (1, None));
        let ranged = descriptor_scripts(&format!("pkh({XPUB}/0/*)"), 7..=7).unwrap();
        assert_eq!(ranged[0].script, scripts[0].script);
        assert!(is_ranged(&format!("pkh({XPUB}/0/*)")).unwrap());
        assert!(!is_ranged(&format!("pkh({XPUB}/0)")).unwrap());
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "the test needs an empty range")]
    fn an_empty_range_has_no_scripts() {
        assert_eq!(descriptor_scripts(&format!("tr({XPUB}/*)"), 1..=0), Ok(Vec::new()));
    }

    #[test]
    fn errors_not_panics() {
        let error = |descriptor: &str, range| descriptor_scripts(descriptor, range).unwrap_err();
        assert!(matches!(error("", 0..=0), DescriptorError::Malformed(_)));
        assert!(matches!(error("wpkh(02)", 0..=0), DescriptorError::Malformed(_)));
        let hardened = format!("wpkh({XPUB}/0h/*)");
        assert!(matches!(error(&hardened, 0..=0), DescriptorError::Underivable(_)));
        let hardened = format!("wpkh({XPUB}/*h)");
        assert!(matches!(error(&hardened, 0..=0), DescriptorError::Underivable(_)));
        let index = 1 << 31;
        let ranged = format!("wpkh({XPUB}/*)");
        assert_eq!(error(&ranged, 0..=index), DescriptorError::IndexTooLarge(index));
        let private = "wpkh(xprv9s21ZrQH143K31xYSDQpPDxsXRTUcvj2iNHm5NUtrGiGG5e2DtALGdso3pGz6ssrdK4PFmM8NSpSBHNqPqm55Qn3LqFtT2emdEXVYsCzC2U/0)";
        assert_eq!(error(private, 0..=0), DescriptorError::PrivateKey);
    }

    #[test]
    fn a_public_key_with_the_letters_of_a_private_one() {
        let mut xpub: Xpub = XPUB.parse().unwrap();
        let found = (0..1 << 31).map(|index| ChildNumber::Normal { index }).find(|&child| {
            xpub.child_number = child;
            xpub.to_string().contains("xprv")
        });
        assert!(found.is_some());
        assert_eq!(descriptor_scripts(&format!("wpkh({xpub})"), 0..=0).unwrap().len(), 1);
    }

    #[test]
    fn the_deepest_key_has_no_children() {
        let mut xpub: Xpub = XPUB.parse().unwrap();
        xpub.depth = 255;
        assert_eq!(descriptor_scripts(&format!("wpkh({xpub})"), 0..=0).unwrap().len(), 1);
        for descriptor in [format!("wpkh({xpub}/*)"), format!("wpkh({xpub}/<0;1>)")] {
            let error = descriptor_scripts(&descriptor, 0..=0).unwrap_err();
            assert!(matches!(error, DescriptorError::Underivable(_)), "{descriptor}");
        }
    }
}
