//! The encoded form of cuckoo filters.
//!
//! The first parameter is the number of buckets, and the other two are zero. The body contains the
//! buckets as they lie in memory, padded with zeros to a whole word.
//!
//! Any content of the buckets is a valid filter of some keys. So the decoder checks only what the
//! other operations rely on: the body has the length that follows from the number of buckets, the
//! number of taken slots equals the number of keys in the header, and the padding after the last
//! bucket is zero.

use alloc::vec::Vec;

use super::CuckooFilter;
use super::bucket::{SLOTS, load, words_for};
use super::place::MAX_BUCKETS;
use crate::encoding::{DecodeError, EncodeError, Header, Opened, Portable, parameter};

impl<const BITS: u32> Portable for CuckooFilter<BITS> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.header().encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open::<BITS>(bytes)?;
        Self::over(&opened, opened.words()?)
    }
}

impl<'a, const BITS: u32> CuckooFilter<BITS, &'a [u64]> {
    /// Opens an encoded filter in place, without copying its bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`decode`](Portable::decode). Also returns
    /// [`DecodeError::NotInPlace`] if the bytes can't be read in place.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = open::<BITS>(bytes)?;
        Self::over(&opened, opened.words_in_place()?)
    }
}

impl<const BITS: u32, S: AsRef<[u64]>> CuckooFilter<BITS, S> {
    fn header(&self) -> Header {
        let (kind, hasher, len) = (Self::KIND, self.hasher, self.len);
        Header { kind, hasher, len, params: [self.buckets, 0, 0] }
    }

    fn over(opened: &Opened<'_>, words: S) -> Result<Self, DecodeError> {
        let Header { hasher, len, params: [buckets, ..], .. } = opened.header;
        check_body::<BITS>(words.as_ref(), buckets, len)?;
        Ok(Self { words, buckets, len, hasher })
    }
}

fn open<const BITS: u32>(bytes: &[u8]) -> Result<Opened<'_>, DecodeError> {
    Opened::read(bytes, CuckooFilter::<BITS>::KIND, |header| {
        let [buckets, rest @ ..] = header.params;
        if rest != [0; 2] {
            return Err(DecodeError::NotZero("parameters after the number of buckets"));
        }
        if !(1..=MAX_BUCKETS).contains(&buckets) {
            return Err(parameter("number of buckets", buckets, "from 1 to 2^32"));
        }
        Ok(words_for::<BITS>(buckets))
    })
}

fn check_body<const BITS: u32>(words: &[u64], buckets: u64, len: u64) -> Result<(), DecodeError> {
    let used = buckets * u64::from(SLOTS * BITS) % 64;
    if used != 0 && words.last().is_some_and(|last| last >> used != 0) {
        return Err(DecodeError::NotZero("bytes after the last bucket"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "bucket indices are below 2^32")]
    let taken: u64 = (0..buckets).map(|at| u64::from(load::<BITS>(words, at as u32).taken())).sum();
    if taken != len {
        return Err(parameter("number of keys", len, "the number of taken slots"));
    }
    Ok(())
}
