//! Hash functions and seeds: `--hash` and `--seed`.

use anyhow::{Context as _, anyhow, bail};
use chainsieve_filter::KeyHasher;
use chainsieve_filter::hashing::HashFunction;
use chainsieve_report::decode_hex;

use crate::args::filter::HashName;

/// Returns the hasher of a function and a seed in hex; without a seed, a random one is drawn.
pub(super) fn hasher(name: HashName, seed: Option<&str>) -> anyhow::Result<KeyHasher> {
    let function = match seed {
        Some(seed) => of_seed(name, seed).context("--seed")?,
        None => random(name)
            .map_err(|error| anyhow!("the system provides no random numbers: {error}"))?,
    };
    Ok(KeyHasher::new(function))
}

fn of_seed(name: HashName, seed: &str) -> anyhow::Result<HashFunction> {
    let digits = seed.strip_prefix("0x").unwrap_or(seed);
    let number = |most: u64| {
        let number = Some(digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.filter(|number| *number <= most).with_context(|| {
            format!("not a number in hex up to {most:x}, the limit of {}", function_name(name))
        })
    };
    Ok(match name {
        HashName::Siphash13 => {
            let key = decode_hex(digits)?;
            let Ok(key) = <[u8; 16]>::try_from(key.as_slice()) else {
                bail!("{} bytes, but the key of siphash13 has 16", key.len());
            };
            let key = u128::from_le_bytes(key);
            HashFunction::SipHash13 { key: [low(key), low(key >> 64)] }
        }
        HashName::Xxh3 => HashFunction::Xxh3 { seed: number(u64::MAX)? },
        HashName::Xxh64 => HashFunction::Xxh64 { seed: number(u64::MAX)? },
        HashName::Murmur3 => {
            let seed = u32::try_from(number(u32::MAX.into())?)?;
            HashFunction::Murmur3 { seed }
        }
        HashName::Fnv1a => bail!("fnv1a has no seed"),
    })
}

fn random(name: HashName) -> Result<HashFunction, getrandom::Error> {
    Ok(match name {
        HashName::Siphash13 => {
            HashFunction::SipHash13 { key: [getrandom::u64()?, getrandom::u64()?] }
        }
        HashName::Xxh3 => HashFunction::Xxh3 { seed: getrandom::u64()? },
        HashName::Xxh64 => HashFunction::Xxh64 { seed: getrandom::u64()? },
        HashName::Murmur3 => HashFunction::Murmur3 { seed: getrandom::u32()? },
        HashName::Fnv1a => HashFunction::Fnv1a,
    })
}

/// Returns the seed as `--seed` accepts it; `None` for a function without a seed.
pub(super) fn seed_hex(hasher: &KeyHasher) -> Option<String> {
    match hasher.function() {
        HashFunction::SipHash13 { key: [k0, k1] } => {
            Some(hex::encode([k0.to_le_bytes(), k1.to_le_bytes()].concat()))
        }
        HashFunction::Xxh3 { seed } | HashFunction::Xxh64 { seed } => Some(format!("{seed:016x}")),
        HashFunction::Murmur3 { seed } => Some(format!("{seed:08x}")),
        _ => None,
    }
}

fn function_name(name: HashName) -> &'static str {
    match name {
        HashName::Siphash13 => "siphash13",
        HashName::Xxh3 => "xxh3",
        HashName::Xxh64 => "xxh64",
        HashName::Murmur3 => "murmur3",
        HashName::Fnv1a => "fnv1a",
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half")]
fn low(key: u128) -> u64 {
    key as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_read_as_they_are_shown() {
        for name in [
            HashName::Siphash13,
            HashName::Xxh3,
            HashName::Xxh64,
            HashName::Murmur3,
            HashName::Fnv1a,
        ] {
            let drawn = hasher(name, None).expect("random");
            assert_eq!(drawn.name(), function_name(name));
            let again = hasher(name, seed_hex(&drawn).as_deref()).expect("its own seed");
            assert_eq!(again, drawn);
            assert_eq!(drawn == hasher(name, None).expect("random"), name == HashName::Fnv1a);
        }
        // The key of the paper on SipHash, 00 01 02 … 0f.
        let key = hasher(HashName::Siphash13, Some("000102030405060708090a0b0c0d0e0f"));
        let expected = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(key.expect("a key"), KeyHasher::siphash_1_3(expected));
        let zero = hasher(HashName::Xxh64, Some("0x0")).expect("a seed");
        assert_eq!(zero.function(), HashFunction::Xxh64 { seed: 0 });
    }

    #[test]
    fn seeds_that_do_not_fit_are_refused() {
        for (name, seed, word) in [
            (HashName::Siphash13, "00", "1 bytes, but the key of siphash13 has 16"),
            (HashName::Siphash13, "0g", "'g' at position 1"),
            (HashName::Xxh3, "10000000000000000", "ffffffffffffffff"),
            (HashName::Xxh64, "+1", "not a number in hex"),
            (HashName::Xxh64, "", "not a number in hex"),
            (HashName::Murmur3, "100000000", "ffffffff, the limit of murmur3"),
            (HashName::Fnv1a, "0", "fnv1a has no seed"),
        ] {
            let error = hasher(name, Some(seed)).expect_err(seed);
            assert!(format!("{error:#}").contains(word), "{error:#}");
        }
    }
}
