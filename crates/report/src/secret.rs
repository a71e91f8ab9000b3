//! Detects private keys by their form. No error shows them, because errors end up in logs.

use chainsieve::bitcoin::address::NetworkUnchecked;
use chainsieve::bitcoin::{Address, base58};

/// Message that replaces a message with a private key. It also says what to give instead of a
/// private key.
pub const NOT_SHOWN: &str = "a private key, not shown: watching needs no private key: \
                                    give an address, a public key or a descriptor with xpub keys";

/// Message that replaces an error about the command line with a URL.
pub(crate) const URL_NOT_SHOWN: &str = "a URL in the wrong place, or an invalid value beside a URL \
                                        (not shown, because a URL may be secret): see --help for \
                                        the options that accept a URL";

/// Returns `true` if `text` contains what looks like a private key: WIF, BIP38 or an extended key,
/// even with one or two typing errors.
pub fn holds_private_key(text: &str) -> bool {
    words(text).any(|word| is_single(word) || (is_extended(word) && !is_public(word)))
}

/// Splits a text into runs of letters and digits, such as a descriptor's keys.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
}

/// Returns `true` for what looks like a single private key: WIF has 51 or 52 characters, BIP38 58.
/// A few characters may be missing or added.
fn is_single(word: &str) -> bool {
    let wif = (48..=56).contains(&word.len()) && word.starts_with(['5', 'K', 'L', '9', 'c']);
    let bip38 = (54..=62).contains(&word.len()) && word.starts_with("6P");
    // Hex data may have the same length and first character.
    (wif || bip38) && !word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns `true` for `xprv`, `tprv`, `yprv`, … followed by at least 12 characters of a key.
fn is_extended(word: &str) -> bool {
    let is_prefix =
        |four: &[u8]| four[0].is_ascii_alphabetic() && four[1..].eq_ignore_ascii_case(b"prv");
    word.as_bytes().windows(4).position(is_prefix).is_some_and(|start| word.len() - start >= 16)
}

/// Returns `true` for an address or an extended public key with a valid checksum: about one address
/// in a few thousand contains the letters of `xprv` by chance.
fn is_public(word: &str) -> bool {
    let is_address = || word.parse::<Address<NetworkUnchecked>>().is_ok();
    // BIP32: byte 45 of an extended key is 0 for a private key, 2 or 3 for a public key.
    let is_extended_public = || {
        base58::decode_check(word)
            .is_ok_and(|bytes| bytes.len() == 78 && matches!(bytes[45], 2 | 3))
    };
    is_address() || is_extended_public()
}

#[cfg(test)]
mod tests {
    use super::holds_private_key;

    #[test]
    fn private_keys_and_what_is_none() {
        for secret in [
            "5Kg1gnAjaLfKiwhhPpGS3QfRg2m6awQvaj98JCZBZQ5SuS2F15C",
            "L4rK1yDtCWekvXuE6oXD9jCYfFNV2cWRpVuPLBcCU2z8TrisoyY1",
            "cMahea7zqjxrtgAbB7LSGbcQUr1uX1ojuat9jZodMN87JcbXMTcA",
            "key: 5Kg1gnAjaLfKiwhhPpGS3QfRg2m6awQvaj98JCZBZQ5SuS2F15",
            "6PRVWUbkzzsbcVac2qwfssoUJAN1Xhrg6bNk8J7Nzm5H7kxEbn2Nh2ZoGg",
            "[73c5da0a/84'/0'/0']zprvAWgYBBk7JR8Gjrh4UJQ2uJdG1r3WNRRfURiABBE3RvMXYSrRJL62XuezvGdPvG6GFBZduosCc1YP5wixPox7zhZLfiUm8aunE96BBa4Kei5/0/*",
        ] {
            assert!(holds_private_key(secret), "{secret}");
        }
        let hex = format!("data:5c{}", "ab".repeat(25));
        for public in [
            &hex,
            "bc1q7dmjqztn342e7qyl4tlfyqc8mju8ny7me8vm4n",
            "wpkh(xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V/0/*)",
            "wallet.xprv.txt",
            // Complete addresses and keys that contain the letters of a private key's prefix.
            "bc1q7dqjzudr76xf4dnl5hprvm62y0eh9dsc7duge8",
            "3KBQV3vk9fw5qprvgw6SFqcrcbfFyw3FK2",
            "wpkh(xpub661MyMwAqRbcGc5AmjYgqmo9eAniaMC6wZVeiP9F7LdW7aVBVbAYL3yjhSFNdn56gG6mQZUanPRVoLTuPL3TyvcoF9NZ9tjfVANzLTsrujx/0/*)",
        ] {
            assert!(!holds_private_key(public), "{public}");
        }
    }
}
