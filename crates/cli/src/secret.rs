//! Private keys, told by their form: no error shows them, for errors end up in logs.

use chainsieve::bitcoin::address::NetworkUnchecked;
use chainsieve::bitcoin::{Address, base58};

/// What stands in place of a private key, and what to give.
pub(crate) const NOT_SHOWN: &str = "a private key, not shown: watching needs only public ones: \
                                    give an address, a public key or a descriptor with xpub keys";

/// What stands in place of an error about the command line that would show a URL.
pub(crate) const URL_NOT_SHOWN: &str = "a URL, not shown, where none belongs, or a value that is \
                                        not valid: see --help. A provider is given with --rpc URL";

/// Whether `text` holds what looks like a private key: WIF, BIP38 or an extended one, with
/// a slip of the pen or two.
pub(crate) fn holds_private_key(text: &str) -> bool {
    words(text).any(|word| is_single(word) || (is_extended(word) && !is_public(word)))
}

/// The runs of letters and digits: a descriptor's keys, the value behind `kind:`.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
}

/// WIF has 51 or 52 characters, BIP38 58.
fn is_single(word: &str) -> bool {
    let wif = (48..=56).contains(&word.len()) && word.starts_with(['5', 'K', 'L', '9', 'c']);
    let bip38 = (54..=62).contains(&word.len()) && word.starts_with("6P");
    // Data in hex may be as long and start as they do.
    (wif || bip38) && !word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `xprv`, `tprv`, `yprv`, … and a part of the key at least.
fn is_extended(word: &str) -> bool {
    let is_prefix =
        |four: &[u8]| four[0].is_ascii_alphabetic() && four[1..].eq_ignore_ascii_case(b"prv");
    word.as_bytes().windows(4).position(is_prefix).is_some_and(|start| word.len() - start >= 16)
}

/// Whether a word is whole, by its checksum, and public: one address in some thousands has the
/// letters of `xprv` in it by chance.
fn is_public(word: &str) -> bool {
    let is_address = || word.parse::<Address<NetworkUnchecked>>().is_ok();
    // Where a private extended key has a zero, a public one has what a public key starts with.
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
            // Whole, with the letters in them.
            "bc1q7dqjzudr76xf4dnl5hprvm62y0eh9dsc7duge8",
            "3KBQV3vk9fw5qprvgw6SFqcrcbfFyw3FK2",
            "wpkh(xpub661MyMwAqRbcGc5AmjYgqmo9eAniaMC6wZVeiP9F7LdW7aVBVbAYL3yjhSFNdn56gG6mQZUanPRVoLTuPL3TyvcoF9NZ9tjfVANzLTsrujx/0/*)",
        ] {
            assert!(!holds_private_key(public), "{public}");
        }
    }
}
