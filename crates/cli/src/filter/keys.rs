//! Reads keys, one per line, from a file or standard input, with one key in memory at a time. Also the
//! hash functions of keys and their seeds.

use std::io::{BufRead as _, Read as _};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use chainsieve_filter::KeyHasher;
use chainsieve_filter::hashing::HashFunction;
use chainsieve_report::{Source, decode_hex, named};

use crate::args::filter::HashName;
use crate::args::word;

/// Maximum length of a line in bytes. A file with a longer line is not a list of keys.
const LONGEST: u64 = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The lines of one file.
pub(super) struct KeyLines {
    source: Source,
    hex: bool,
    /// The number of the last line that was read, from 1.
    number: u64,
    line: Vec<u8>,
    key: Vec<u8>,
    /// Number of empty lines.
    pub(super) empty: u64,
}

impl KeyLines {
    /// Opens a file, or standard input (`-`).
    pub(super) fn open(path: &Path, hex: bool) -> anyhow::Result<Self> {
        let source = if path.as_os_str() == "-" {
            Source::open("-", "keys")?
        } else {
            Source::file(path).with_context(|| format!("keys, {}", named(path)))?
        };
        Ok(Self { source, hex, number: 0, line: Vec::new(), key: Vec::new(), empty: 0 })
    }

    /// Returns the next key; `None` at the end.
    pub(super) fn next_key(&mut self) -> anyhow::Result<Option<&[u8]>> {
        loop {
            self.line.clear();
            let mut line = (&mut self.source).take(LONGEST + 2);
            let read = line.read_until(b'\n', &mut self.line);
            if read.with_context(|| self.source.name().to_owned())? == 0 {
                return Ok(None);
            }
            self.number += 1;
            let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = match self.number {
                1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
                _ => line,
            };
            if line.len() as u64 > LONGEST {
                bail!("{}: the line is longer than {LONGEST} bytes", self.place());
            }
            if self.hex {
                let text = line.trim_ascii();
                let digits = text.strip_prefix(b"0x").unwrap_or(text);
                if !text.is_empty() && digits.is_empty() {
                    bail!("{}: no digits after 0x", self.place());
                }
                self.key.resize(digits.len() / 2, 0);
                if hex::decode_to_slice(digits, &mut self.key).is_err() {
                    let error = decode_hex(&String::from_utf8_lossy(digits)).err();
                    let error = error.unwrap_or_else(|| anyhow::anyhow!("not hex"));
                    return Err(error.context(self.place()));
                }
            } else {
                self.key.clear();
                self.key.extend_from_slice(line);
            }
            if self.key.is_empty() {
                self.empty += 1;
                continue;
            }
            return Ok(Some(&self.key));
        }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn offset(&self) -> u64 {
        self.source.offset()
    }

    fn place(&self) -> String {
        format!("{}, line {}", self.source.name(), self.number)
    }
}

/// Concatenated keys that are tested together.
#[derive(Debug, Default)]
pub(super) struct KeyBatch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyBatch {
    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn is_full(&self) -> bool {
        const KEYS: usize = 4096;
        const BYTES: usize = 4 << 20;
        self.ends.len() >= KEYS || self.bytes.len() >= BYTES
    }

    pub(super) fn keys(&self) -> Vec<&[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end]).collect()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Returns the hasher of a function and a seed in hex; without a seed, a random seed is drawn.
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
            format!("not a number in hex up to {most:x}, the limit of {}", word(&name))
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

/// Returns the name of a hash function, and its seed if it has one.
pub(super) fn hash_words(hasher: &KeyHasher) -> String {
    let seed = seed_hex(hasher).map(|seed| format!(", seed {seed}"));
    format!("{}{}", hasher.name(), seed.unwrap_or_default())
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
            assert_eq!(drawn.name(), word(&name));
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
