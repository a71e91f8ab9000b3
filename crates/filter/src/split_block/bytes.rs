//! Split-block filters in bytes: one parameter, the number of blocks.

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
    /// The filter in bytes that [`encode`](Portable::encode) made, where they are.
    ///
    /// # Errors
    /// As [`decode`](Portable::decode), and if the bytes can't be read in place.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = open::<B>(bytes)?;
        let Header { len, hasher, .. } = opened.header;
        Self::from_words(opened.words_in_place()?, len, hasher).checked()
    }
}

impl<B: BlockShape, S: AsRef<[u64]>> SplitBlockFilter<B, S> {
    /// Refuses more bits than the keys can have set, and keys that have set none.
    fn checked(self) -> Result<Self, DecodeError> {
        let ones = self.ones();
        if ones > self.len.saturating_mul(8) || ones == 0 && self.len > 0 {
            let limit = "an eighth of the bits set, and none if none is";
            return Err(parameter("the number of keys", self.len, limit));
        }
        Ok(self)
    }
}

fn open<B: BlockShape>(bytes: &[u8]) -> Result<Opened<'_>, DecodeError> {
    Opened::read(bytes, B::KIND, |header| {
        let [num_blocks, unused @ ..] = header.params;
        if unused != [0; 2] {
            return Err(DecodeError::NotZero("48 to 63"));
        }
        if !(1..=MAX_BLOCKS).contains(&num_blocks) {
            return Err(parameter(
                "the number of blocks",
                num_blocks,
                "from 1 to 2^28 are possible",
            ));
        }
        Ok(num_blocks * words_of_block::<B>())
    })
}
