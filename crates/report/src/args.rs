//! Arguments that both programs accept, the parsers of their values, and the secrets among them: no error shows a
//! private key or a URL, because errors end up in logs.

use core::fmt::{self, Display};
use core::ops::RangeInclusive;
use std::borrow::Cow;
use std::fs;

use anyhow::Context as _;
use chainsieve::bitcoin::address::NetworkUnchecked;
use chainsieve::bitcoin::{Address, Network, base58};
use chainsieve::eth::chain_profile::{BloomSoundness, ReceiptsScope};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// The options of every command about its output.
#[derive(Debug, Clone, Copy, Args)]
pub struct OutputArgs {
    /// Print JSON instead of text
    #[arg(long, global = true, display_order = 100)]
    pub json: bool,
    /// Print no notes and no progress on standard error
    #[arg(long, short, global = true, display_order = 101, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Begin each note with the time since the start, and print the total time at the end
    #[arg(long, short, global = true, display_order = 102)]
    pub verbose: bool,
}

/// A possible value of an option: its word on the command line, the value itself, and its help
/// text.
pub type Choice<T> = (&'static str, T, &'static str);

/// Returns a parser that accepts exactly the words of `choices`.
pub fn choice<T>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let words = choices.iter().map(|(word, _, help)| PossibleValue::new(word).help(help));
    let named = |name: String| choices.iter().find(|(word, ..)| *word == name);
    PossibleValuesParser::new(words).map(move |name| named(name).expect("a possible word").1)
}

/// Returns the parser of `--network`, which also accepts Bitcoin Core's names of the networks.
pub fn network() -> impl TypedValueParser<Value = Network> {
    const NETWORKS: [(&str, Network, &[&str]); 5] = [
        ("mainnet", Network::Bitcoin, &["main", "bitcoin"]),
        ("testnet", Network::Testnet, &["test", "testnet3"]),
        ("testnet4", Network::Testnet4, &[]),
        ("signet", Network::Signet, &[]),
        ("regtest", Network::Regtest, &[]),
    ];
    let words = NETWORKS.map(|(name, _, aliases)| PossibleValue::new(name).aliases(aliases));
    PossibleValuesParser::new(words).map(|word| {
        let named = |(name, _, aliases): &(&str, _, &[&str])| {
            *name == word || aliases.contains(&word.as_str())
        };
        NETWORKS.into_iter().find(named).expect("a possible word").1
    })
}

/// Returns the name of a network as `--network` accepts it.
pub fn network_name(network: Network) -> String {
    if network == Network::Bitcoin { "mainnet".into() } else { network.to_string() }
}

/// Possible values of `--assume-bloom`.
pub const SOUNDNESS: [Choice<BloomSoundness>; 4] = [
    ("exact", BloomSoundness::Exact, "Filters have the bits of the block's logs and no other bits"),
    ("superset", BloomSoundness::Superset, "Filters have at least the bits of the block's logs"),
    ("absent", BloomSoundness::Absent, "There are no filters, or they are constant"),
    ("unsound", BloomSoundness::Unsound, "Filters may lack bits of a log"),
];

/// Possible values of `--assume-receipts`.
pub const SCOPES: [Choice<ReceiptsScope>; 2] = [
    ("every-log", ReceiptsScope::EveryLog, "Every log that nodes return is in a receipt"),
    ("not-every-log", ReceiptsScope::NotEveryLog, "Nodes may return logs that are in no receipt"),
];

/// A secret argument, which no error, debug output or help shows.
#[derive(Clone)]
pub struct Secret(pub String);

impl Secret {
    /// Returns the text, or the contents of the file that `@FILE` names. The error names the flag, and nothing of
    /// the text.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn or_of_file(&self, flag: &str) -> anyhow::Result<Cow<'_, str>> {
        let Some(path) = self.0.strip_prefix('@') else { return Ok(Cow::Borrowed(&self.0)) };
        let read = fs::read_to_string(path);
        let read = read.with_context(|| format!("{flag} @…, a file with the URL"))?;
        Ok(Cow::Owned(read))
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Returns a parser of numbers as people write them (`1000`, `1_000`, `1,000`, `1e3`, `1.5e6`) that
/// rejects numbers outside `range`.
pub fn count<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: TryFrom<u64> + PartialOrd + Display + Clone,
{
    move |text| {
        let number = number(text).ok_or("not a number: write 1000, 1_000 or 1e3")?;
        let found = T::try_from(number).ok().filter(|number| range.contains(number));
        found.ok_or_else(|| format!("{number} is not in {}..={}", range.start(), range.end()))
    }
}

/// Parses a whole number; returns `None` if the text is not a whole number of at most 64 bits.
pub fn number(text: &str) -> Option<u64> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse().ok()?),
        None => (text, 0_u32),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let zeros = exponent.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    if !whole.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let whole = whole.replace(['_', ','], "");
    let digits: u64 = format!("{whole}{fraction}").parse().ok()?;
    10_u64.checked_pow(zeros)?.checked_mul(digits)
}

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
    use super::*;

    #[test]
    fn as_people_write_them() {
        for (text, expected) in [
            ("0", 0),
            ("1000", 1_000),
            ("1_000", 1_000),
            ("17,686,111", 17_686_111),
            ("1e6", 1_000_000),
            ("1.5E6", 1_500_000),
            ("1.50e1", 15),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(number(text), Some(expected), "{text}");
        }
        for text in
            ["", "-1", "+1", "1.5", "1.55e1", "e3", "_1", "1e20", "1e", "0x10", "1 000", "²"]
        {
            assert_eq!(number(text), None, "{text}");
        }
        assert_eq!(count(1..=64_u16)("1e1"), Ok(10));
        assert_eq!(count(1..=64_u16)("65"), Err("65 is not in 1..=64".into()));
        assert_eq!(count(0..=255_u8)("1e9"), Err("1000000000 is not in 0..=255".into()));
    }

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
