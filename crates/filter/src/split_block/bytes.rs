//! The encoded form of split-block filters. The first parameter is the number of blocks, and the
//! other two are zero.

use alloc::vec::Vec;

use super::{BlockShape, MAX_BLOCKS, SplitBlockFilter, words_of_block};
use crate::encoding::{DecodeError, EncodeError, Header, Opened, Portable, parameter};

impl<B: BlockShape> Portable for SplitBlockFilter<B> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let (hasher, len) = (self.hasher, self.len);
        let params = [self.num_blocks(), 0, 0];
        Header { kind: B::KIND, hasher, len, params }.encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open::<B>(bytes)?;
        let Header { len, hasher, .. } = opened.header;
        Self::from_words(opened.words()?, len, hasher).checked()
    }
}

impl<'a, B: BlockShape> SplitBlockFilter<B, &'a [u64]> {
    /// Opens an encoded filter in place, without copying its bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`decode`](Portable::decode). Also returns
    /// [`DecodeError::NotInPlace`] if the bytes can't be read in place.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = open::<B>(bytes)?;
        let Header { len, hasher, .. } = opened.header;
        Self::from_words(opened.words_in_place()?, len, hasher).checked()
    }
}

impl<B: BlockShape, S: AsRef<[u64]>> SplitBlockFilter<B, S> {
    /// Returns an error if `len` keys can't have set the bits: if more than 8 bits per key are set,
    /// or if there are keys but no bit is set.
    fn checked(self) -> Result<Self, DecodeError> {
        let ones = self.ones();
        if ones > self.len.saturating_mul(8) || ones == 0 && self.len > 0 {
            let limit = "a number that can have set these bits";
            return Err(parameter("the number of keys", self.len, limit));
        }
        Ok(self)
    }
}

fn open<B: BlockShape>(bytes: &[u8]) -> Result<Opened<'_>, DecodeError> {
    Opened::read(bytes, B::KIND, |header| {
        let [num_blocks, unused @ ..] = header.params;
        if unused != [0; 2] {
            return Err(DecodeError::NotZero("bytes 48 to 63"));
        }
        if !(1..=MAX_BLOCKS).contains(&num_blocks) {
            return Err(parameter("the number of blocks", num_blocks, "from 1 to 2^28"));
        }
        Ok(num_blocks * words_of_block::<B>())
    })
}
